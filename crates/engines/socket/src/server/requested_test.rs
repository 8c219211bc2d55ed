//! The client's request, in one form for both kinds of messages. Refuses what no server should do, without querying the
//! machine.

use wb_model::{
    socket::{ReceiveBy, SocketOptions, SocketProtocol, SocketSide, SocketType},
    units::Span,
};
use wb_netperf_wire::{
    ClassicKind, ClassicRequest, ClassicTest, DataDirection, Features, Flags, OmniRequest,
    RequestExtension, WireAddress, WireFamily,
};

use crate::agreement::{self, MessageFields as _, StreamLength};

/// Maximum bytes of a send, receive, request or response.
const LARGEST: u32 = 64 << 20;
/// Maximum alignment and offset of buffers: a huge page.
const LARGEST_ALIGNMENT: u32 = 2 << 20;

/// Highest socket priority available without privileges: socket(7), SO_PRIORITY. Higher values are ignored, as
/// netserver does if the kernel refuses them.
const HIGHEST_PRIORITY: u32 = 6;
/// Ports that only root may bind. No client gets one, even if the server runs as root.
const PRIVILEGED: std::ops::Range<u16> = 1..1024;

/// Files from which a client may fill send buffers. Any other file could be read remotely.
const FILL_FILES: [&str; 3] = ["/dev/zero", "/dev/urandom", "/dev/random"];

/// A test requested by a client.
#[derive(Clone, Debug)]
pub(super) struct RequestedTest {
    /// Kind of messages that the client uses.
    pub talk: MessageKind,
    /// Data exchange of the test.
    pub work: DataExchange,
    /// Protocol of the data.
    pub protocol: SocketProtocol,
    /// Socket type, if not the usual one of the protocol.
    pub socket_type: Option<SocketType>,
    /// Address family of the data socket.
    pub family: WireFamily,
    /// Address to bind the data socket to.
    pub server_address: WireAddress,
    /// Address of the client's data socket; unspecified if the client does not send it.
    pub client_address: WireAddress,
    /// Port of the client's data socket; 0 if the client does not send it.
    pub client_port: u16,
    /// Port to bind the data socket to; 0 for any.
    pub data_port: u16,
    /// Buffer sizes and similar options, as requested.
    pub side: SocketSide,
    /// Boolean options.
    pub options: SocketOptions,
    /// Send datagrams without checksums.
    pub checksum_off: bool,
    /// End of the test.
    pub length: StreamLength,
    /// CPU of the data loop.
    pub cpu: Option<u32>,
    /// Extensions requested by a wirebench client.
    pub extension: Option<RequestExtension>,
    /// Include the name of the congestion control algorithm in the results.
    pub name_congestion: bool,
    /// The client requested sends without copying. Confirmed in the response, as netserver does; the loop copies.
    pub send_avoid: bool,
}

/// Kind of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// One message for all tests.
    Omni,
    /// One layout per test.
    Classic(ClassicKind),
}

/// Data exchange as seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataExchange {
    /// The server receives a stream.
    Receive {
        /// A datagram of any other size ends the stream.
        only_size: Option<u32>,
    },
    /// The server sends a stream.
    Send,
    /// Requests and responses on one connection.
    Exchange { request: u32, response: u32 },
    /// One connection per transaction. The server receives a request, or everything until the end, and sends a response
    /// or one buffer.
    Connections {
        receives: Option<Option<u32>>,
        sends: Option<Option<u32>>,
    },
}

/// A Linux errno, for the client.
pub(super) type LinuxErrno = i32;

impl RequestedTest {
    /// Parses an omni request.
    pub(super) fn from_omni(request: &OmniRequest) -> Result<Self, LinuxErrno> {
        let features = request
            .extension
            .map_or(Features::NONE, |wants| wants.features);
        let flags = request.flags;
        let protocol = match request.protocol {
            0 if request.socket_type == wb_netperf_wire::WireSocketType::Datagram => {
                SocketProtocol::Udp
            }
            6 if features.contains(Features::MPTCP) => SocketProtocol::Mptcp,
            0 | 6 => SocketProtocol::Tcp,
            17 => SocketProtocol::Udp,
            33 => SocketProtocol::Dccp,
            132 => SocketProtocol::Sctp,
            136 => SocketProtocol::UdpLite,
            _ => return Err(libc::EPROTONOSUPPORT),
        };
        let count = request.extension.map_or(0, |wants| wants.count);
        let tos = match request.tos {
            Some(tos) => Some(u8::try_from(tos).map_err(|_| libc::EINVAL)?),
            None => None,
        };
        let mut side = SocketSide {
            burst_interval: Span::from_nanos(u64::from(request.interval_us) * 1000),
            congestion: request.congestion_control.as_str().map(str::to_owned),
            tos,
            fill_file: request
                .fill_file
                .as_str()
                .filter(|name| FILL_FILES.contains(name))
                .map(str::to_owned),
            measure_cpu: flags.contains(Flags::MEASURE_CPU),
            pacing_bps: request
                .extension
                .filter(|wants| wants.pacing_rate > 0)
                .map(|wants| wants.pacing_rate.saturating_mul(8)),
            // MPTCP does not support this receive method.
            receive_by: if features.contains(Features::ZERO_COPY_RECEIVE)
                && protocol != SocketProtocol::Mptcp
            {
                ReceiveBy::Discard
            } else if request.receive_avoid && !protocol.is_datagram() {
                ReceiveBy::Splice
            } else {
                ReceiveBy::Copy
            },
            gro: features.contains(Features::GRO) && protocol == SocketProtocol::Udp,
            ..SocketSide::default()
        };
        side.read_from(request);
        side.priority = side.priority.filter(|wish| *wish <= HIGHEST_PRIORITY);
        if request.interval_us == 0 {
            side.burst = 0;
        }
        let mut options = agreement::options_of_flags(flags);
        // Flags without a meaning for the protocol are ignored.
        options.no_delay &= protocol.connects() && protocol != SocketProtocol::Dccp;
        options.fast_open &= protocol == SocketProtocol::Tcp;
        options.defer_accept &= protocol == SocketProtocol::Tcp;
        options.connect_remote &= !protocol.connects();
        options.packet_info &= !protocol.connects();
        let ask = Self {
            talk: MessageKind::Omni,
            work: DataExchange::from_omni(request)?,
            protocol,
            socket_type: match (request.socket_type, protocol) {
                (_, SocketProtocol::Dccp) => None,
                (wb_netperf_wire::WireSocketType::Stream, protocol) if protocol.connects() => None,
                (wb_netperf_wire::WireSocketType::Datagram, protocol) if !protocol.connects() => {
                    None
                }
                (wb_netperf_wire::WireSocketType::Stream, _) => Some(SocketType::Stream),
                (wb_netperf_wire::WireSocketType::Datagram, _) => Some(SocketType::Dgram),
                (wb_netperf_wire::WireSocketType::Dccp, _) => Some(SocketType::Dccp),
                (wb_netperf_wire::WireSocketType::SeqPacket, _) => Some(SocketType::SeqPacket),
            },
            family: request.family,
            server_address: request.server_address,
            client_address: request.client_address,
            client_port: request.client_port,
            data_port: request.data_port,
            side,
            options,
            checksum_off: flags.contains(Flags::CHECKSUM_OFF),
            length: StreamLength::from_message(request.length, count),
            cpu: request.cpu,
            extension: request.extension,
            name_congestion: flags.contains(Flags::ROUTING_ALLOWED),
            send_avoid: request.send_avoid,
        };
        ask.check_sizes()
    }

    /// Parses a classic request.
    pub(super) fn from_classic(request: &ClassicRequest) -> Result<Self, LinuxErrno> {
        let mut side = SocketSide {
            measure_cpu: request.measure_cpu,
            ..SocketSide::default()
        };
        let mut options = SocketOptions::default();
        let mut checksum_off = false;
        let work = match request.test {
            ClassicTest::TcpStream(test) | ClassicTest::TcpMaerts(test) => {
                side.read_from(&test);
                options.no_delay = test.no_delay;
                if matches!(request.test, ClassicTest::TcpMaerts(_)) {
                    side.send_size = test.call_size;
                    (side.send_align, side.send_offset) = (test.alignment, test.offset);
                    DataExchange::Send
                } else {
                    side.receive_size = test.call_size;
                    (side.receive_align, side.receive_offset) = (test.alignment, test.offset);
                    DataExchange::Receive { only_size: None }
                }
            }
            ClassicTest::TcpRr(test)
            | ClassicTest::TcpCrr(test)
            | ClassicTest::TcpCc(test)
            | ClassicTest::UdpRr(test) => {
                side.read_from(&test);
                options.no_delay = test.no_delay && !matches!(request.test, ClassicTest::UdpRr(_));
                match request.test {
                    ClassicTest::TcpCc(_) => DataExchange::Connections {
                        receives: None,
                        sends: None,
                    },
                    ClassicTest::TcpCrr(_) => DataExchange::Connections {
                        receives: Some(Some(test.request_size)),
                        sends: Some(Some(test.response_size)),
                    },
                    _ => DataExchange::Exchange {
                        request: test.request_size,
                        response: test.response_size,
                    },
                }
            }
            ClassicTest::UdpStream(test) => {
                side.receive_buffer = test.receive_buffer;
                // One byte more, so that a longer datagram is recognised.
                side.receive_size = Some(test.message_size.saturating_add(1));
                (side.receive_align, side.receive_offset) = (test.alignment, test.offset);
                checksum_off = test.checksum_off;
                options.connect_remote = test.connect;
                DataExchange::Receive {
                    only_size: Some(test.message_size),
                }
            }
        };
        let kind = request.test.kind();
        let datagrams = matches!(kind, ClassicKind::UdpStream | ClassicKind::UdpRr);
        if request.receive_avoid && !datagrams {
            side.receive_by = ReceiveBy::Splice;
        }
        Self {
            talk: MessageKind::Classic(kind),
            work,
            protocol: if datagrams {
                SocketProtocol::Udp
            } else {
                SocketProtocol::Tcp
            },
            socket_type: None,
            family: request.family,
            server_address: WireAddress::ANY,
            client_address: WireAddress::ANY,
            client_port: 0,
            data_port: request.data_port,
            side,
            options,
            checksum_off,
            length: StreamLength::from_message(request.length, 0),
            cpu: request.cpu,
            extension: None,
            name_congestion: false,
            send_avoid: request.send_avoid,
        }
        .check_sizes()
    }

    /// Checks that the sizes can be served.
    fn check_sizes(self) -> Result<Self, LinuxErrno> {
        let (of_work, least) = match self.work {
            DataExchange::Exchange { request, response } => ([Some(request), Some(response)], 1),
            DataExchange::Connections { receives, sends } => {
                ([receives.flatten(), sends.flatten()], 1)
            }
            DataExchange::Receive { only_size } => ([only_size, None], 0),
            DataExchange::Send => ([None, None], 0),
        };
        let sizes = [self.side.send_size, self.side.receive_size];
        // Includes the extra byte of classic datagrams.
        let too_large = sizes.into_iter().flatten().any(|size| size > LARGEST + 1)
            || of_work
                .into_iter()
                .flatten()
                .any(|size| !(least..=LARGEST).contains(&size));
        let places = [
            self.side.send_align,
            self.side.send_offset,
            self.side.receive_align,
            self.side.receive_offset,
        ];
        if too_large || places.into_iter().any(|place| place > LARGEST_ALIGNMENT) {
            return Err(libc::EINVAL);
        }
        if PRIVILEGED.contains(&self.data_port) {
            return Err(libc::EACCES);
        }
        if self.family == WireFamily::Rds {
            return Err(libc::EAFNOSUPPORT);
        }
        // Datagrams have no connections.
        if matches!(self.work, DataExchange::Connections { .. }) && !self.protocol.connects() {
            return Err(libc::EOPNOTSUPP);
        }
        Ok(self)
    }

    /// The client asked for busy polling.
    pub(super) fn spins(&self) -> bool {
        self.extension.is_some_and(|wants| wants.busy_poll_us > 0)
    }

    /// Features requested by the client.
    pub(super) fn requested_features(&self) -> Features {
        self.extension
            .map_or(Features::NONE, |wants| wants.features)
    }
}

impl DataExchange {
    fn from_omni(request: &OmniRequest) -> Result<Self, LinuxErrno> {
        let connections = request.flags.contains(Flags::CONNECTION_TEST)
            || request.direction == DataDirection::ConnectOnly;
        Ok(match request.direction {
            DataDirection::Both if !connections => Self::Exchange {
                request: request.request_size.ok_or(libc::EINVAL)?,
                response: request.response_size.ok_or(libc::EINVAL)?,
            },
            DataDirection::ServerReceives if !connections => Self::Receive { only_size: None },
            DataDirection::ServerSends if !connections => Self::Send,
            direction => Self::Connections {
                receives: direction.server_receives().then_some(request.request_size),
                sends: direction.server_sends().then_some(request.response_size),
            },
        })
    }

    /// Returns true if the test counts transactions.
    pub(super) fn is_transactions(self) -> bool {
        matches!(self, Self::Exchange { .. } | Self::Connections { .. })
    }
}
