//! Makes what a test needs before the client is told that it may begin: the socket, bound and
//! listening, and the loop with its buffers.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use wb_model::socket::{ReceiveBy, SocketOptions, SocketProtocol, SocketSide};
use wb_omni::{Family, Features, ResponseExtension};

use super::{
    ask::{Ask, Errno, Work},
    house::{House, Reserved},
};
use crate::{
    Effective, Opened, SocketPlan, effective, errno,
    flow::{
        BufferPlan, DatagramReceivePlan, DatagramReceiver, DatagramSendPlan, DatagramSender, Pace,
        ReceivePlan, Receiver, RespondPlan, Responder, SendPlan, Sender, default_width,
    },
    listen, local_address, open, sys,
};

/// Connections that wait to be accepted. The original has 5 and loses some of a fast test.
const BACKLOG: u32 = 1024;
/// Memory of the buffers of one direction of a test, if more of them were asked for.
const RING: u32 = 64 << 20;
/// Buffers of one direction.
const WIDEST: u32 = 16_384;
/// Bytes of a call where the system does not tell its buffer.
const CALL_SIZE: u32 = 4096;
/// The largest datagram over IPv4.
const DATAGRAM: u32 = 65_507;
/// udp.h: UDP_GRO.
const UDP_GRO: i32 = 104;
/// What a server can do for a client of ours.
const CAN: Features = Features(
    Features::EXPLICIT_END.0
        | Features::UDP_TAGGED.0
        | Features::GRO.0
        | Features::CLOCK_FROM_FIRST.0
        | Features::ZERO_COPY_RECEIVE.0
        | Features::MPTCP.0,
);

/// A test that can begin.
pub(super) struct Prepared {
    pub facts: Facts,
    pub stage: Stage,
}

/// What the data thread needs.
pub(super) struct Stage {
    /// Listens, or takes datagrams.
    pub fd: OwnedFd,
    pub engine: Engine,
    /// Held until the buffers are gone.
    pub memory: Reserved,
}

/// What the client is told.
pub(super) struct Facts {
    pub ask: Ask,
    /// Where the client shall connect or send.
    pub data_port: u16,
    /// At the start.
    pub effective: Effective,
    /// Bytes of a receive; none if it does not receive.
    pub receive_size: Option<u32>,
    /// Bytes of a send; none if it does not send.
    pub send_size: Option<u32>,
    pub receive_width: u32,
    pub send_width: u32,
    /// What a client of ours gets.
    pub granted: Option<ResponseExtension>,
}

/// The loop.
pub(super) enum Engine {
    Receive(Receiver),
    Send(Sender),
    Respond(Responder),
    /// A connection for each transaction; what is done on it.
    Connections(Box<Each>),
    ReceiveDatagrams(DatagramReceiver),
    /// Datagrams of one size; one of another ends it.
    ReceiveOnly {
        buffer: Vec<u8>,
        size: usize,
        /// Connect to the source of the first.
        connect: bool,
    },
    SendDatagrams(DatagramSender, SocketAddr),
}

/// What is done on each connection.
pub(super) enum Each {
    Nothing,
    Exchange {
        responder: Responder,
        request: u64,
        response: u64,
    },
    Receive(Receiver),
    Send(Sender),
    Both(Receiver, Sender),
}

/// Sizes and numbers of buffers.
struct Sizes {
    receive: Option<u32>,
    send: Option<u32>,
    receive_width: u32,
    send_width: u32,
}

impl Prepared {
    /// Prepares. `local` and `peer` are the ends of the control connection.
    pub(super) fn new(
        mut ask: Ask,
        house: &House,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Self, Errno> {
        let target = target(&ask, peer)?;
        let (bind, join) = place(&ask, house, local)?;
        let busy_poll = ask.extension.is_some_and(|wants| wants.busy_poll_us > 0);
        let opened = open_leniently(&mut ask, bind, join, busy_poll)?;
        let fd = opened.fd;
        if ask.checksum_off && !ask.protocol.connects() {
            // The original tries, and goes on without.
            let _ = sys::set_int(&fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1);
        }
        if ask.protocol.connects() {
            let backlog = match ask.work {
                Work::Connections { .. } => BACKLOG,
                _ => 8,
            };
            listen(fd.as_fd(), backlog).map_err(|error| number(&error))?;
        }
        let data_port = local_address(fd.as_fd())
            .map_err(|error| number(&error))?
            .port();
        let now = effective(fd.as_fd());
        let sizes = Sizes::of(&ask, &now);
        let memory = house.reserve(sizes.memory(&ask.side)).ok_or(libc::ENOMEM)?;
        let engine = engine(&ask, &sizes, target).map_err(|error| number(&error))?;
        let granted = granted(&ask, &fd);
        let facts = Facts {
            data_port,
            effective: now,
            receive_size: sizes.receive,
            send_size: sizes.send,
            receive_width: sizes.receive_width,
            send_width: sizes.send_width,
            granted,
            ask,
        };
        let stage = Stage { fd, engine, memory };
        Ok(Self { facts, stage })
    }
}

/// Where datagrams go that nobody asked for one by one: to the client, and nowhere else.
fn target(ask: &Ask, peer: SocketAddr) -> Result<Option<SocketAddr>, Errno> {
    if ask.work != Work::Send || ask.protocol.connects() {
        return Ok(None);
    }
    let peer_ip = peer.ip().to_canonical();
    let named = match peer_ip {
        IpAddr::V4(_) => vec![IpAddr::V4(ask.client_address.v4())],
        IpAddr::V6(_) => vec![
            IpAddr::V6(ask.client_address.v6()),
            IpAddr::V6(ask.client_address.v6_straight()),
        ],
    };
    if !ask.client_address.is_any() && !named.contains(&peer_ip) {
        return Err(libc::EACCES);
    }
    let port = ask.client_port;
    if port == 0 {
        return Err(libc::EDESTADDRREQ);
    }
    let wanted_v6 = match ask.family {
        Family::V4 => false,
        Family::V6 => true,
        _ => peer_ip.is_ipv6(),
    };
    match (peer_ip, peer) {
        (IpAddr::V4(v4), _) if !wanted_v6 => Ok(Some(SocketAddr::new(v4.into(), port))),
        (IpAddr::V6(v6), SocketAddr::V6(whole)) if wanted_v6 => {
            let to = SocketAddrV6::new(v6, port, 0, whole.scope_id());
            Ok(Some(SocketAddr::V6(to)))
        }
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// What the data socket is bound to, and the group it joins.
fn place(
    ask: &Ask,
    house: &House,
    local: SocketAddr,
) -> Result<(SocketAddr, Option<IpAddr>), Errno> {
    let ipv6 = match ask.family {
        Family::V4 => false,
        Family::V6 => true,
        _ => local.ip().to_canonical().is_ipv6(),
    };
    let wildcard: IpAddr = if ipv6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let asked = ask.server_address;
    if asked.is_any() {
        return Ok((SocketAddr::new(wildcard, ask.data_port), None));
    }
    let readings: Vec<IpAddr> = if ipv6 {
        vec![asked.v6().into(), asked.v6_straight().into()]
    } else {
        vec![asked.v4().into()]
    };
    if let Some(group) = readings.iter().find(|address| address.is_multicast())
        && !ask.protocol.connects()
    {
        return Ok((SocketAddr::new(wildcard, ask.data_port), Some(*group)));
    }
    let ours = readings
        .iter()
        .find(|address| house.host.has_address(**address));
    let address = match ours {
        Some(address) => *address,
        None if house.job.any_address => readings[0],
        None => return Err(libc::EADDRNOTAVAIL),
    };
    let bind = match (address, local) {
        (IpAddr::V6(address), SocketAddr::V6(local)) if address.is_unicast_link_local() => {
            SocketAddrV6::new(address, ask.data_port, 0, local.scope_id()).into()
        }
        _ => SocketAddr::new(address, ask.data_port),
    };
    Ok((bind, None))
}

/// Opens the socket. What the original would go on without, we go on without: what is in effect
/// stands in the response.
fn open_leniently(
    ask: &mut Ask,
    bind: SocketAddr,
    join: Option<IpAddr>,
    busy_poll: bool,
) -> Result<Opened, Errno> {
    let attempt = |protocol: SocketProtocol, side: &SocketSide, options: &SocketOptions| {
        open(&SocketPlan {
            bind: Some(bind),
            ipv6: bind.is_ipv6(),
            protocol,
            socket_type: ask.socket_type,
            side,
            options,
            server: true,
            join,
            speaks_first: false,
            busy_poll,
        })
    };
    let first = match attempt(ask.protocol, &ask.side, &ask.options) {
        Ok(opened) => return Ok(opened),
        Err(error) => error,
    };
    if ask.protocol == SocketProtocol::Mptcp
        && let Ok(opened) = attempt(SocketProtocol::Tcp, &ask.side, &ask.options)
    {
        ask.protocol = SocketProtocol::Tcp;
        return Ok(opened);
    }
    let modest = SocketSide {
        priority: None,
        tos: None,
        ..ask.side.clone()
    };
    if modest != ask.side
        && let Ok(opened) = attempt(ask.protocol, &modest, &ask.options)
    {
        ask.side = modest;
        return Ok(opened);
    }
    Err(number(&first))
}

impl Sizes {
    fn of(ask: &Ask, now: &Effective) -> Self {
        let side = &ask.side;
        let default = |buffer: u32| {
            if buffer == 0 {
                CALL_SIZE
            } else {
                buffer.min(RING)
            }
        };
        let receive_call = side
            .receive_size
            .unwrap_or_else(|| default(now.receive_buffer));
        let send_call = side.send_size.unwrap_or_else(|| {
            let size = default(now.send_buffer);
            if ask.protocol.is_datagram() {
                size.min(DATAGRAM)
            } else {
                size
            }
        });
        let (receive, send) = match ask.work {
            Work::Receive { .. } => (Some(receive_call), None),
            Work::Send => (None, Some(send_call)),
            Work::Exchange { request, response } => (Some(request), Some(response)),
            Work::Connections { receives, sends } => (
                receives.map(|size| size.unwrap_or(receive_call)),
                sends.map(|size| size.unwrap_or(send_call)),
            ),
        };
        let width = |asked: u32, size: Option<u32>, buffer: u32, place: u32| {
            // Of a direction that is not used, the client hears what it said.
            let Some(size) = size else { return asked };
            let wanted = match (asked, ask.work.is_transactions()) {
                (0, true) => 1,
                (0, false) => default_width(buffer, size),
                (asked, _) => asked,
            };
            wanted.min(WIDEST).min((RING / (size + place)).max(1))
        };
        Self {
            receive,
            send,
            receive_width: width(
                side.receive_width,
                receive,
                now.receive_buffer,
                side.receive_align + side.receive_offset + 1,
            ),
            send_width: width(
                side.send_width,
                send,
                now.send_buffer,
                side.send_align + side.send_offset + 1,
            ),
        }
    }

    /// Memory of the buffers, bytes.
    fn memory(&self, side: &SocketSide) -> u64 {
        let ring = |size: Option<u32>, width: u32, align: u32, offset: u32| {
            let Some(size) = size else { return 0 };
            (u64::from(size) + u64::from(align) + u64::from(offset)) * u64::from(width)
        };
        ring(
            self.receive,
            self.receive_width,
            side.receive_align,
            side.receive_offset,
        ) + ring(
            self.send,
            self.send_width,
            side.send_align,
            side.send_offset,
        )
    }
}

/// The loop for a test, with its buffers.
fn engine(ask: &Ask, sizes: &Sizes, target: Option<SocketAddr>) -> io::Result<Engine> {
    let side = &ask.side;
    let received = BufferPlan {
        size: sizes.receive.unwrap_or(0),
        width: sizes.receive_width,
        align: side.receive_align,
        offset: side.receive_offset,
        fill: None,
    };
    let sent = BufferPlan {
        size: sizes.send.unwrap_or(0),
        width: sizes.send_width,
        align: side.send_align,
        offset: side.send_offset,
        fill: side.fill_file.as_ref().map(PathBuf::from),
    };
    let datagrams = !ask.protocol.connects();
    let units = ask.length.units();
    let spin = ask.extension.is_some_and(|wants| wants.busy_poll_us > 0);
    let tagged = ask.wants().contains(Features::UDP_TAGGED);
    Ok(match ask.work {
        Work::Receive {
            only_size: Some(size),
        } => Engine::ReceiveOnly {
            buffer: vec![0; received.size as usize],
            size: size as usize,
            connect: ask.options.connect_remote,
        },
        Work::Receive { only_size: None } if datagrams => {
            Engine::ReceiveDatagrams(DatagramReceiver::new(&DatagramReceivePlan {
                buffers: received,
                batch: side.batch,
                gro: side.gro,
                discard: side.receive_by == ReceiveBy::Discard && !tagged,
                tagged,
                limit: None,
                connect: ask.options.connect_remote,
                spin,
            })?)
        }
        // The client ends a stream of so many bytes, and rounds up to whole sends.
        Work::Receive { only_size: None } => Engine::Receive(Receiver::new(&ReceivePlan {
            buffers: received,
            by: side.receive_by,
            limit: None,
        })?),
        Work::Send => {
            let size = u64::from(sent.size.max(1));
            let limit = units.map(|units| units.div_ceil(size).saturating_mul(size));
            match target {
                Some(target) => Engine::SendDatagrams(
                    DatagramSender::new(&DatagramSendPlan {
                        buffers: sent,
                        batch: 0,
                        gso: false,
                        zerocopy: false,
                        rate: None,
                        pace: Pace::of(side),
                        limit,
                        flow: None,
                        spin,
                    })?,
                    target,
                ),
                None => Engine::Send(Sender::new(&SendPlan {
                    buffers: sent,
                    by: side.send_by,
                    limit,
                    pace: Pace::of(side),
                })?),
            }
        }
        Work::Exchange { .. } => Engine::Respond(Responder::new(&RespondPlan {
            request: received,
            response: sent,
            spin,
            datagrams,
            packet_info: ask.options.packet_info,
            connect: ask.options.connect_remote,
            limit: units,
            pace: Pace::of(side),
        })?),
        Work::Connections { receives, sends } => {
            let receiver = || {
                Receiver::new(&ReceivePlan {
                    buffers: received.clone(),
                    by: side.receive_by,
                    limit: None,
                })
            };
            let sender = || {
                Sender::new(&SendPlan {
                    buffers: sent.clone(),
                    by: side.send_by,
                    limit: Some(sent.size.into()),
                    pace: None,
                })
            };
            Engine::Connections(Box::new(match (receives, sends) {
                (None, None) => Each::Nothing,
                (Some(Some(_)), Some(_)) => Each::Exchange {
                    request: received.size.into(),
                    response: sent.size.into(),
                    responder: Responder::new(&RespondPlan {
                        request: received,
                        response: sent,
                        spin,
                        datagrams: false,
                        packet_info: false,
                        connect: false,
                        limit: None,
                        pace: None,
                    })?,
                },
                (Some(_), Some(_)) => Each::Both(receiver()?, sender()?),
                (Some(_), None) => Each::Receive(receiver()?),
                (None, Some(_)) => Each::Send(sender()?),
            }))
        }
    })
}

/// What a client of ours gets of what it wants.
fn granted(ask: &Ask, fd: &OwnedFd) -> Option<ResponseExtension> {
    let wants = ask.extension?;
    let streams = matches!(ask.work, Work::Receive { .. });
    let datagrams = !ask.protocol.connects();
    let gro = datagrams
        && streams
        && sys::get_int(fd, libc::IPPROTO_UDP, UDP_GRO).is_ok_and(|on| on != 0);
    let has = |feature: Features| match feature {
        Features::UDP_TAGGED => datagrams && streams,
        Features::GRO => gro,
        Features::ZERO_COPY_RECEIVE => ask.side.receive_by == ReceiveBy::Discard && streams,
        Features::MPTCP => ask.protocol == SocketProtocol::Mptcp,
        _ => true,
    };
    let mut features = Features::NONE;
    for bit in (0..32).map(|bit| Features(1 << bit)) {
        let granted = CAN.contains(bit) && wants.features.contains(bit) && has(bit);
        features = features.with_if(granted, bit);
    }
    let busy_poll_us = match wants.busy_poll_us {
        0 => 0,
        _ => sys::get_int(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL).unwrap_or(0),
    };
    Some(ResponseExtension {
        features,
        busy_poll_us: u32::try_from(busy_poll_us).unwrap_or(0),
        pacing_rate: pacing_rate(fd).unwrap_or(0),
        omit_ms: wants.omit_ms,
        streams: 0,
    })
}

/// SO_MAX_PACING_RATE, bytes per second; none if there is no limit.
fn pacing_rate(fd: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 8];
    let read = sys::get_bytes(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut bytes).ok()?;
    let rate = u64::from_ne_bytes(bytes);
    (read == 8 && rate != u64::MAX).then_some(rate)
}

/// The number that the client is told.
pub(super) fn number(error: &io::Error) -> Errno {
    errno(error).unwrap_or(libc::EIO)
}
