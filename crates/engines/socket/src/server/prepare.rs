//! Prepares a test before the client is allowed to begin: the socket, bound and listening, and the loop with its
//! buffers.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use wb_model::socket::{ReceiveBy, SocketOptions, SocketProtocol, SocketSide};
use wb_netperf_wire::{Features, ResponseExtension, WireFamily};
use wb_wire::Tag;

use super::{
    allowed_sources::AllowedSources,
    requested_test::{DataExchange, LinuxErrno, RequestedTest},
    state::{MemoryReservation, ServerState},
    test_loop::{BufferSizes, TestLoop, test_loop},
};
use crate::{
    EffectiveSettings, OpenSocket, SocketPlan, effective_settings, errno, listen, local_address,
    open, sys,
};

/// Backlog of the data socket. netserver uses 5 and loses connections of a fast test.
const BACKLOG: u32 = 1024;
/// udp.h: UDP_GRO.
const UDP_GRO: i32 = 104;
/// Extensions supported by this server.
const CAN: Features = Features(
    Features::EXPLICIT_END.0
        | Features::UDP_TAGGED.0
        | Features::GRO.0
        | Features::CLOCK_FROM_FIRST.0
        | Features::ZERO_COPY_RECEIVE.0
        | Features::MPTCP.0,
);

/// A test that is ready to begin.
pub(super) struct PreparedTest {
    pub facts: ResponseFacts,
    pub stage: TestInputs,
}

/// Inputs of the data thread.
pub(super) struct TestInputs {
    /// Listening or datagram socket.
    pub fd: Arc<OwnedFd>,
    pub engine: TestLoop,
    /// Allowed sources of data.
    pub sources: AllowedSources,
    /// Reservation held until the buffers are freed.
    pub memory: MemoryReservation,
}

/// Contents of the response.
pub(super) struct ResponseFacts {
    pub ask: RequestedTest,
    /// Port to which the client connects or sends.
    pub data_port: u16,
    /// Settings in effect at the start.
    pub effective: EffectiveSettings,
    /// Bytes per receive; `None` if it does not receive.
    pub receive_size: Option<u32>,
    /// Bytes per send; `None` if it does not send.
    pub send_size: Option<u32>,
    pub receive_width: u32,
    pub send_width: u32,
    /// Extensions granted to a wirebench client.
    pub granted: Option<ResponseExtension>,
}

impl PreparedTest {
    /// Prepares a test. `local` and `peer` are the ends of the control connection.
    pub(super) fn new(
        mut ask: RequestedTest,
        state: &ServerState,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Self, LinuxErrno> {
        let target = datagram_target(&ask, peer)?;
        let sources = AllowedSources::for_test(&ask, state, peer.ip())?;
        let (bind, join) = bind_address(&ask, state, local)?;
        let busy_poll = ask.spins();
        let opened = open_leniently(&mut ask, bind, join, busy_poll, &sources)?;
        let fd = opened.fd;
        if ask.checksum_off && !ask.protocol.connects() {
            // netserver tries this too, and continues on failure.
            let _ = sys::set_int(&fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1);
        }
        if ask.protocol.connects() {
            let backlog = match ask.work {
                DataExchange::Connections { .. } => BACKLOG,
                _ => 8,
            };
            listen(fd.as_fd(), backlog).map_err(|error| error_number(&error))?;
        }
        let data_port = local_address(fd.as_fd())
            .map_err(|error| error_number(&error))?
            .port();
        let now = effective_settings(fd.as_fd());
        let sizes = BufferSizes::for_test(&ask, &now);
        let memory = state
            .reserve_memory(sizes.memory_bytes(&ask.side), peer.ip())
            .ok_or(libc::ENOMEM)?;
        let engine = test_loop(&ask, &sizes, target).map_err(|error| error_number(&error))?;
        let granted = granted_extensions(&ask, &fd);
        let facts = ResponseFacts {
            data_port,
            effective: now,
            receive_size: sizes.receive,
            send_size: sizes.send,
            receive_width: sizes.receive_width,
            send_width: sizes.send_width,
            granted,
            ask,
        };
        let stage = TestInputs {
            fd: Arc::new(fd),
            engine,
            sources,
            memory,
        };
        Ok(Self { facts, stage })
    }
}

/// Destination of datagrams that are sent without individual requests: the client, and no other host.
fn datagram_target(
    ask: &RequestedTest,
    peer: SocketAddr,
) -> Result<Option<SocketAddr>, LinuxErrno> {
    if ask.work != DataExchange::Send || ask.protocol.connects() {
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
        WireFamily::V4 => false,
        WireFamily::V6 => true,
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

/// Address to bind the data socket to, and the multicast group to join.
fn bind_address(
    ask: &RequestedTest,
    state: &ServerState,
    local: SocketAddr,
) -> Result<(SocketAddr, Option<IpAddr>), LinuxErrno> {
    let ipv6 = match ask.family {
        WireFamily::V4 => false,
        WireFamily::V6 => true,
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
        .find(|address| state.host.has_address(**address));
    let address = match ours {
        Some(address) => *address,
        None if state.job.any_address => readings[0],
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

/// Opens the socket. Ignores the same failures as netserver; the response contains the settings in effect.
fn open_leniently(
    ask: &mut RequestedTest,
    bind: SocketAddr,
    join: Option<IpAddr>,
    busy_poll: bool,
    sources: &AllowedSources,
) -> Result<OpenSocket, LinuxErrno> {
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
            only_from: sources.filter_addresses(),
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
    Err(error_number(&first))
}

/// Extensions granted to a wirebench client.
fn granted_extensions(ask: &RequestedTest, fd: &OwnedFd) -> Option<ResponseExtension> {
    let wants = ask.extension?;
    let streams = matches!(ask.work, DataExchange::Receive { .. });
    let datagrams = !ask.protocol.connects();
    let gro = datagrams
        && streams
        && sys::get_int(fd, libc::IPPROTO_UDP, UDP_GRO).is_ok_and(|on| on != 0);
    let has = |feature: Features| match feature {
        // Sent datagrams need room for a tag; the default size has it.
        Features::UDP_TAGGED => {
            let size = ask
                .side
                .send_size
                .filter(|_| ask.work == DataExchange::Send);
            let stream = streams || ask.work == DataExchange::Send;
            datagrams && stream && size.is_none_or(|size| size as usize >= Tag::LEN)
        }
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
        pacing_rate: match ask.protocol.connects() {
            true => pacing_rate(fd).unwrap_or(0),
            false => ask.side.pacing_bps.map_or(0, |bps| bps / 8),
        },
        omit_ms: wants.omit_ms,
        streams: 0,
    })
}

/// SO_MAX_PACING_RATE, bytes per second; `None` if there is no limit.
fn pacing_rate(fd: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 8];
    let read = sys::get_bytes(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut bytes).ok()?;
    let rate = u64::from_ne_bytes(bytes);
    (read == 8 && rate != u64::MAX).then_some(rate)
}

/// Error number for the client.
pub(super) fn error_number(error: &io::Error) -> LinuxErrno {
    errno(error).unwrap_or(libc::EIO)
}
