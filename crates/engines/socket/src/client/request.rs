//! Builds the request to the server.

use std::{net::SocketAddr, time::Duration};

use wb_model::socket::{
    ReceiveBy, SendBy, SocketJob, SocketOptions, SocketProtocol, SocketSide, SocketType as Kind,
};
use wb_netperf_wire::{
    ClassicRequest, ClassicTest, DataDirection, DatagramTest, ExchangeTest, Features, Flags, Name,
    OmniRequest, Request, RequestExtension, StreamTest, TestLength, WireAddress, WireFamily,
    WireSocketType,
};

use super::{role::StreamRole, target::DataAddresses};
use crate::agreement::{self, MessageFields as _, StreamLength};

/// SO_BUSY_POLL requested from the server, µs, as proposed by the kernel documentation.
const BUSY_POLL_US: u32 = 50;

/// Contents of the request for one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamRequest<'a> {
    pub(super) job: &'a SocketJob,
    pub(super) role: StreamRole,
    pub(super) length: StreamLength,
    pub(super) ends: DataAddresses,
    /// Port that the server must bind, 0 for any.
    pub(super) server_port: u16,
    /// The local data socket.
    pub(super) client: SocketAddr,
    /// Address at which datagrams of the server reach this end.
    pub(super) reachable: std::net::IpAddr,
    /// Number of local send buffers, which netperf also transmits.
    pub(super) send_width: u32,
    pub(super) receive_width: u32,
    /// Bytes of local sends.
    pub(super) send_size: u32,
}

impl StreamRequest<'_> {
    pub(super) fn request_message(&self) -> Request {
        match self.classic_test() {
            Some(test) => self.classic_request(test).into(),
            None => self.omni_request().into(),
        }
    }

    /// Returns true if the request has room for the extensions of a wirebench server.
    pub(super) fn is_extended(&self) -> bool {
        !self.job.control.plain && self.classic_test().is_none()
    }

    /// Extensions requested from a wirebench server.
    pub(super) fn request_extension(&self) -> RequestExtension {
        let job = self.job;
        let features = Features::EXPLICIT_END | Features::CLOCK_FROM_FIRST;
        RequestExtension {
            features: features
                .with_if(self.is_tagged(), Features::UDP_TAGGED)
                .with_if(
                    job.remote.gro && self.role != StreamRole::Down,
                    Features::GRO,
                )
                .with_if(
                    job.remote.receive_by == ReceiveBy::Discard && self.role == StreamRole::Up,
                    Features::ZERO_COPY_RECEIVE,
                )
                .with_if(job.protocol == SocketProtocol::Mptcp, Features::MPTCP),
            busy_poll_us: if job.busy_poll { BUSY_POLL_US } else { 0 },
            // Bits to bytes.
            pacing_rate: job.remote.pacing_bps.map_or(0, |bits| bits / 8),
            omit_ms: match self.length {
                StreamLength::Time(_) | StreamLength::Open => {
                    u32::try_from(job.omit.0.as_millis()).unwrap_or(u32::MAX)
                }
                StreamLength::Amount(_) => 0,
            },
            streams: 0,
            count: self.length.to_message().1,
        }
    }

    /// Returns true if datagrams carry sequence numbers and timestamps.
    pub(super) fn is_tagged(&self) -> bool {
        self.job.tagged && self.job.protocol.is_datagram() && self.role.is_stream()
    }

    fn address_family(&self) -> WireFamily {
        if self.ends.server.is_ipv4() {
            WireFamily::V4
        } else {
            WireFamily::V6
        }
    }

    fn omni_request(&self) -> OmniRequest {
        let job = self.job;
        let remote = &job.remote;
        let connected = job.protocol.connects();
        let transactions = matches!(self.role, StreamRole::Rr | StreamRole::Crr);
        let named = self.ends.server_named
            || !self.ends.server.is_unspecified() && self.has_drawn_address();
        let avoids = self.omni_avoids();
        let client_address = if self.role == StreamRole::Down && !connected {
            self.reachable
        } else {
            self.ends.local
        };
        let mut request = OmniRequest {
            cpu: remote.cpu,
            request_size: transactions.then_some(job.request_size),
            response_size: transactions.then_some(job.response_size),
            flags: self.socket_flags(),
            cpu_rate: 0.0,
            length: self.length.to_message().0,
            receive_avoid: avoids.1,
            send_avoid: avoids.0,
            data_port: self.server_port,
            family: self.address_family(),
            socket_type: socket_type(job),
            // MPTCP is TCP on the wire and for servers other than wirebench.
            protocol: u8::try_from(job.protocol.number()).unwrap_or(6),
            direction: match self.role {
                StreamRole::Up | StreamRole::Mss => DataDirection::ServerReceives,
                StreamRole::Down => DataDirection::ServerSends,
                StreamRole::Rr | StreamRole::Crr => DataDirection::Both,
                StreamRole::Cc => DataDirection::ConnectOnly,
            },
            client_port: self.client.port(),
            interval_us: to_micros(remote.burst_interval.0),
            client_address: wire_address(client_address),
            server_address: if named {
                wire_address(self.ends.server)
            } else {
                WireAddress::ANY
            },
            tos: remote.tos.map(u32::from),
            congestion_control: name(remote.congestion.as_deref()),
            fill_file: name(remote.fill_file.as_deref()),
            extension: self.is_extended().then(|| self.request_extension()),
            ..OmniRequest::default()
        };
        remote.write_to(&mut request);
        (request.send_width, request.receive_width) = (self.send_width, self.receive_width);
        request
    }

    /// The server should send, or receive, without copying.
    pub(super) fn omni_avoids(&self) -> (bool, bool) {
        let remote = &self.job.remote;
        let sends = self.role == StreamRole::Down;
        let receives = self.role == StreamRole::Up;
        (
            sends && !matches!(remote.send_by, SendBy::Copy | SendBy::Write),
            receives && remote.receive_by == ReceiveBy::Splice,
        )
    }

    /// Returns true if the server's address was chosen at random, so that the request must contain it.
    fn has_drawn_address(&self) -> bool {
        self.job.data.server_prefix.is_some()
    }

    fn socket_flags(&self) -> Flags {
        let options = &self.job.options;
        let connected = self.job.protocol.connects();
        let common = agreement::flags_of_options(SocketOptions {
            no_delay: options.no_delay && connected,
            connect_remote: options.connect_remote && !connected,
            ..options.clone()
        });
        let sendfile = self.job.local.send_by == SendBy::Sendfile;
        common
            .with_if(sendfile, Flags::USE_SENDFILE)
            .with_if(self.role.connects_each(), Flags::CONNECTION_TEST)
            .with_if(self.job.remote.measure_cpu, Flags::MEASURE_CPU)
    }

    /// The classic message for this test, if the job uses classic messages (before netperf's omni message).
    pub(super) fn classic_test(&self) -> Option<ClassicTest> {
        let job = self.job;
        if !job.control.classic {
            return None;
        }
        let remote = &job.remote;
        let no_delay = job.options.no_delay;
        let (call_size, alignment, offset) = match self.role {
            StreamRole::Down => (remote.send_size, remote.send_align, remote.send_offset),
            _ => (
                remote.receive_size,
                remote.receive_align,
                remote.receive_offset,
            ),
        };
        let mut stream = StreamTest {
            call_size,
            alignment,
            offset,
            no_delay,
            ..StreamTest::default()
        };
        remote.write_to(&mut stream);
        let mut exchange = ExchangeTest {
            request_size: job.request_size,
            response_size: job.response_size,
            no_delay,
            ..ExchangeTest::default()
        };
        remote.write_to(&mut exchange);
        let datagrams = job.protocol.is_datagram();
        Some(match self.role {
            StreamRole::Up if datagrams => ClassicTest::UdpStream(DatagramTest {
                receive_buffer: remote.receive_buffer,
                message_size: self.send_size,
                connect: job.options.connect_remote,
                alignment,
                offset,
                checksum_off: false,
            }),
            StreamRole::Up | StreamRole::Mss => ClassicTest::TcpStream(stream),
            StreamRole::Down => ClassicTest::TcpMaerts(stream),
            StreamRole::Rr if datagrams => ClassicTest::UdpRr(exchange),
            StreamRole::Rr => ClassicTest::TcpRr(exchange),
            StreamRole::Crr => ClassicTest::TcpCrr(exchange),
            StreamRole::Cc => ClassicTest::TcpCc(exchange),
        })
    }

    fn classic_request(&self, test: ClassicTest) -> ClassicRequest {
        // Streams that end after a number of bytes encode it in place of the seconds, and the client ends the data.
        let length = match (self.length, self.role.is_stream()) {
            (StreamLength::Amount(bytes), true) => {
                TestLength::Seconds(u32::try_from(bytes).unwrap_or(u32::MAX))
            }
            (length, _) => length.to_message().0,
        };
        ClassicRequest {
            cpu: self.job.remote.cpu,
            test,
            measure_cpu: self.job.remote.measure_cpu,
            cpu_rate: 0.0,
            length,
            receive_avoid: self.job.remote.receive_by == ReceiveBy::Splice,
            send_avoid: false,
            data_port: self.server_port,
            family: self.address_family(),
        }
    }
}

/// Options of a side that no request can express, one word each.
pub(super) fn inexpressible_options(remote: &SocketSide, role: StreamRole) -> Vec<&'static str> {
    let mut found = Vec::new();
    if role == StreamRole::Down && remote.batch > 1 {
        found.push("batch");
    }
    if role == StreamRole::Down && remote.gso {
        found.push("gso");
    }
    let too_long = |name: &Option<String>, most| name.as_ref().is_some_and(|n| n.len() > most);
    if too_long(&remote.congestion, 15) {
        found.push("congestion");
    }
    if too_long(&remote.fill_file, 31) {
        found.push("fill_file");
    }
    found
}

fn to_micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn wire_address(ip: std::net::IpAddr) -> WireAddress {
    if ip.is_unspecified() {
        WireAddress::ANY
    } else {
        ip.into()
    }
}

fn name<const N: usize>(text: Option<&str>) -> Name<N> {
    text.and_then(|text| Name::new(text.as_bytes()))
        .unwrap_or(Name::NONE)
}

fn socket_type(job: &SocketJob) -> WireSocketType {
    match (job.socket_type, job.protocol) {
        (Some(Kind::Stream), _) => WireSocketType::Stream,
        (Some(Kind::Dgram), _) => WireSocketType::Datagram,
        (Some(Kind::Dccp), _) => WireSocketType::Dccp,
        (Some(Kind::SeqPacket), _) => WireSocketType::SeqPacket,
        (None, SocketProtocol::Udp | SocketProtocol::UdpLite) => WireSocketType::Datagram,
        (None, SocketProtocol::Dccp) => WireSocketType::Dccp,
        (None, _) => WireSocketType::Stream,
    }
}

#[cfg(test)]
mod tests {
    use wb_netperf_wire::Generation;

    use super::*;

    fn ask(job: &SocketJob, role: StreamRole, length: StreamLength) -> StreamRequest<'_> {
        StreamRequest {
            job,
            role,
            length,
            ends: DataAddresses {
                server: "127.0.0.1".parse().unwrap(),
                local: "0.0.0.0".parse().unwrap(),
                server_named: false,
                scope: 0,
            },
            server_port: job.data.server_port,
            client: "0.0.0.0:41769".parse().unwrap(),
            reachable: "127.0.0.1".parse().unwrap(),
            send_width: 2,
            receive_width: 0,
            send_size: 16384,
        }
    }

    fn plain() -> SocketJob {
        let mut job = SocketJob::default();
        job.control.plain = true;
        job
    }

    fn words(bytes: &[u8], from: usize, hex: &str) {
        let text: String = bytes[from..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let expected: String = hex.split_whitespace().collect();
        assert_eq!(text[..expected.len()], expected, "from byte {from}");
    }

    /// The request of `netperf -H 127.0.0.1 -l 2`, captured from netperf 2.7.0.
    #[test]
    fn a_stream_is_asked_for_as_netperf_does() {
        let job = plain();
        let length = StreamLength::Time(Duration::from_secs(2));
        let bytes = ask(&job, StreamRole::Up, length)
            .request_message()
            .encode(Generation::Words164);
        words(
            &bytes,
            0,
            "00000061 ffffffff ffffffff ffffffff 00000008 00000000 00000002 ffffffff
             ffffffff ffffffff 00000008 00000000 00000000 ffffffff 00000020 00000000
             00000002 00000000 00000000 ffffffff ffffffff ffffffff 00000000 00000004
             00000001 00000006 00000004 0000a329 00000000",
        );
        words(&bytes, 152, "ffffffff ffffffff 00000000");
        assert!(bytes[208..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn five_transactions_are_a_negative_length() {
        let mut job = plain();
        job.test = wb_model::socket::SocketTest::Rr;
        job.request_size = 10;
        job.response_size = 20;
        let bytes = ask(&job, StreamRole::Rr, StreamLength::Amount(3))
            .request_message()
            .encode(Generation::Words164);
        words(&bytes, 28, "0000000a");
        words(&bytes, 52, "00000014 00000020");
        words(&bytes, 64, "fffffffd");
        words(&bytes, 104, "00000006");
    }

    #[test]
    fn fractions_of_a_second_are_rounded_up_and_large_counts_go_elsewhere() {
        let time = |ms| StreamLength::Time(Duration::from_millis(ms)).to_message().0;
        assert_eq!(time(200), TestLength::Seconds(1));
        assert_eq!(time(2000), TestLength::Seconds(2));
        assert_eq!(time(2001), TestLength::Seconds(3));
        let many = 1 << 40;
        assert_eq!(
            StreamLength::Amount(many).to_message(),
            (TestLength::UntilTold, many)
        );
        assert_eq!(
            StreamLength::Amount(7).to_message(),
            (TestLength::Units(7), 0)
        );
        let job = SocketJob::default();
        let asked = ask(&job, StreamRole::Up, StreamLength::Amount(many)).request_extension();
        assert_eq!(asked.count, many);
    }

    #[test]
    fn classic_tests_are_asked_for_in_their_own_words() {
        let mut job = plain();
        job.control.classic = true;
        let types = [
            (StreamRole::Up, SocketProtocol::Tcp, 10),
            (StreamRole::Mss, SocketProtocol::Tcp, 10),
            (StreamRole::Down, SocketProtocol::Tcp, 94),
            (StreamRole::Rr, SocketProtocol::Tcp, 13),
            (StreamRole::Crr, SocketProtocol::Tcp, 34),
            (StreamRole::Cc, SocketProtocol::Tcp, 300),
            (StreamRole::Up, SocketProtocol::Udp, 16),
            (StreamRole::Rr, SocketProtocol::Udp, 19),
        ];
        for (role, protocol, kind) in types {
            job.protocol = protocol;
            let request = ask(&job, role, StreamLength::Amount(5)).request_message();
            let bytes = request.encode(Generation::Words164);
            assert_eq!(Request::type_of(&bytes), kind, "{role:?} {protocol:?}");
        }
        job.protocol = SocketProtocol::Tcp;
        let bytes = ask(&job, StreamRole::Up, StreamLength::Amount(5))
            .request_message()
            .encode(Generation::Words164);
        // Byte counts of a stream are positive.
        words(&bytes, 40, "00000005");
        let bytes = ask(&job, StreamRole::Cc, StreamLength::Amount(5))
            .request_message()
            .encode(Generation::Words164);
        words(&bytes, 52, "fffffffb");
    }

    #[test]
    fn what_only_our_server_can_do_is_asked_for_unless_plain() {
        let mut job = SocketJob {
            protocol: SocketProtocol::Udp,
            tagged: true,
            busy_poll: true,
            ..SocketJob::default()
        };
        job.remote.gro = true;
        job.remote.pacing_bps = Some(8000);
        let length = StreamLength::Time(Duration::from_secs(1));
        let asked = ask(&job, StreamRole::Up, length).request_extension();
        let wanted = Features::UDP_TAGGED | Features::GRO | Features::EXPLICIT_END;
        assert!(asked.features.contains(wanted | Features::CLOCK_FROM_FIRST));
        assert_eq!((asked.busy_poll_us, asked.pacing_rate), (50, 1000));
        assert!(ask(&job, StreamRole::Up, length).is_extended());
        job.control.plain = true;
        assert!(!ask(&job, StreamRole::Up, length).is_extended());
    }
}
