//! Opens a data socket with all requested options, and reads back the settings in effect.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        AddressFamily, Protocol, SocketFlags,
        sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery},
    },
};
use wb_model::socket::{SendBy, SocketOptions, SocketProtocol, SocketSide, SocketType, TcpSample};

use crate::{
    Stopper,
    sys::{get_int, set_bytes, set_int, tcp_sample},
};

/// Microseconds that a receive polls the device queue before it sleeps (SO_BUSY_POLL).
const BUSY_POLL_US: i32 = 50;
/// TCP Fast Open connections that may be pending at a server; netperf's value.
const FAST_OPEN_QUEUE: i32 = 5;
/// Seconds that a server's TCP waits for the first byte before accepting (TCP_DEFER_ACCEPT).
const DEFER_S: i32 = 1;
/// sctp.h: SCTP_NODELAY at level IPPROTO_SCTP.
const SCTP_NODELAY: i32 = 3;
/// udp.h: UDP_GRO.
const UDP_GRO: i32 = 104;
/// tcp.h: TCP_FASTOPEN_CONNECT.
const TCP_FASTOPEN_CONNECT: i32 = 30;

/// Settings of a data socket.
#[derive(Clone, Debug)]
pub struct SocketPlan<'a> {
    /// Address to bind, port 0 for any; `None` leaves the socket unbound.
    pub bind: Option<SocketAddr>,
    /// Address family of an unbound socket.
    pub ipv6: bool,
    /// Protocol over IP.
    pub protocol: SocketProtocol,
    /// Socket type, if not the usual one of the protocol.
    pub socket_type: Option<SocketType>,
    /// Buffer sizes, priority and similar options of this end.
    pub side: &'a SocketSide,
    /// Boolean options.
    pub options: &'a SocketOptions,
    /// True for the server's end: some options apply to one end only, see `SocketOptions`.
    pub server: bool,
    /// Multicast group to join.
    pub join: Option<IpAddr>,
    /// This end sends first. TCP Fast Open of a client depends on it: `connect` then returns at once, and the first
    /// send carries the SYN.
    pub speaks_first: bool,
    /// Receives poll the device queue (SO_BUSY_POLL).
    pub busy_poll: bool,
    /// Source addresses from which the kernel accepts datagrams; empty means all.
    pub only_from: &'a [IpAddr],
}

/// An open socket and its settings in effect.
#[derive(Debug)]
pub struct OpenSocket {
    /// The socket.
    pub fd: OwnedFd,
    /// SO_SNDBUF as the kernel reports it.
    pub send_buffer: u32,
    /// SO_RCVBUF.
    pub receive_buffer: u32,
    /// One line for each failed option that does not affect the results.
    pub warnings: Vec<String>,
}

/// A failed system call.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {cause}")]
struct FailedCall {
    call: &'static str,
    cause: io::Error,
}

fn failed_call(call: &'static str, cause: impl Into<io::Error>) -> io::Error {
    let cause = cause.into();
    io::Error::new(cause.kind(), FailedCall { call, cause })
}

/// Number of the system's error, also if the text names the call.
#[must_use]
pub fn errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let refused = error.get_ref()?.downcast_ref::<FailedCall>()?;
        refused.cause.raw_os_error()
    })
}

/// Sets options and collects warnings for the report.
struct OptionSetter<'a> {
    fd: BorrowedFd<'a>,
    warnings: Vec<String>,
}

impl OptionSetter<'_> {
    fn int(&self, call: &'static str, level: i32, name: i32, value: i32) -> io::Result<()> {
        set_int(self.fd, level, name, value).map_err(|error| failed_call(call, error))
    }

    /// Sets an option that the test can do without.
    fn try_int(&mut self, call: &'static str, level: i32, name: i32, value: i32) {
        if let Err(error) = set_int(self.fd, level, name, value) {
            self.warnings.push(format!("{call}: {error}"));
        }
    }
}

/// Opens the socket, neither connected nor listening.
///
/// An unavailable congestion control algorithm is only a warning, as in netperf; so are options that only save time.
///
/// # Errors
/// Fails if the kernel refuses an option or call; the text names it, and [`errno`] returns the number.
pub fn open(plan: &SocketPlan<'_>) -> io::Result<OpenSocket> {
    let ipv6 = plan.bind.map_or(plan.ipv6, |address| address.is_ipv6());
    let fd = create_socket(plan.protocol, plan.socket_type, ipv6)?;
    let mut set = OptionSetter {
        fd: fd.as_fd(),
        warnings: Vec::new(),
    };
    set_buffers(&set, plan.side)?;
    set_network(&mut set, plan, ipv6)?;
    match plan.protocol {
        SocketProtocol::Tcp | SocketProtocol::Mptcp => set_tcp(&mut set, plan)?,
        SocketProtocol::Sctp => {
            if plan.options.no_delay {
                let level = SocketProtocol::Sctp.number();
                set.int("SCTP_NODELAY", level, SCTP_NODELAY, 1)?;
            }
        }
        SocketProtocol::Udp | SocketProtocol::UdpLite => set_datagrams(&mut set, plan, ipv6)?,
        SocketProtocol::Dccp => {}
    }
    if !plan.only_from.is_empty() && !plan.protocol.connects() {
        // Before binding, so that the queue is empty.
        crate::sys::filter_sources(set.fd, plan.only_from)
            .map_err(|e| failed_call("SO_ATTACH_FILTER", e))?;
    }
    if let Some(address) = plan.bind {
        // Permits a port with old connections in TIME_WAIT. Datagram sockets would share the port and take each other's
        // datagrams.
        if plan.protocol.connects() || plan.join.is_some() {
            set.int("SO_REUSEADDR", libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        }
        rustix::net::bind(&fd, &address).map_err(|error| failed_call("bind", error))?;
    }
    if let Some(group) = plan.join {
        join_group(&fd, group, plan.bind)?;
    }
    let warnings = set.warnings;
    let (send_buffer, receive_buffer) = buffer_sizes(fd.as_fd());
    Ok(OpenSocket {
        fd,
        send_buffer,
        receive_buffer,
        warnings,
    })
}

fn create_socket(
    protocol: SocketProtocol,
    kind: Option<SocketType>,
    ipv6: bool,
) -> io::Result<OwnedFd> {
    let family = if ipv6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let kind = kind.unwrap_or(match protocol {
        SocketProtocol::Udp | SocketProtocol::UdpLite => SocketType::Dgram,
        SocketProtocol::Dccp => SocketType::Dccp,
        _ => SocketType::Stream,
    });
    let kind = rustix::net::SocketType::from_raw(match kind {
        SocketType::Stream => libc::SOCK_STREAM,
        SocketType::Dgram => libc::SOCK_DGRAM,
        SocketType::Dccp => libc::SOCK_DCCP,
        SocketType::SeqPacket => libc::SOCK_SEQPACKET,
    } as u32);
    let number = std::num::NonZeroU32::new(protocol.number() as u32).map(Protocol::from_raw);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, number)
        .map_err(|error| failed_call("socket", error))
}

fn set_buffers(set: &OptionSetter<'_>, side: &SocketSide) -> io::Result<()> {
    let clamp = |bytes: u32| i32::try_from(bytes).unwrap_or(i32::MAX);
    if let Some(bytes) = side.send_buffer {
        set.int("SO_SNDBUF", libc::SOL_SOCKET, libc::SO_SNDBUF, clamp(bytes))?;
    }
    if let Some(bytes) = side.receive_buffer {
        set.int("SO_RCVBUF", libc::SOL_SOCKET, libc::SO_RCVBUF, clamp(bytes))?;
    }
    Ok(())
}

/// Sets the options of all IP protocols.
fn set_network(set: &mut OptionSetter<'_>, plan: &SocketPlan<'_>, ipv6: bool) -> io::Result<()> {
    let (side, options) = (plan.side, plan.options);
    let socket = libc::SOL_SOCKET;
    if options.keepalive {
        set.int("SO_KEEPALIVE", socket, libc::SO_KEEPALIVE, 1)?;
    }
    if options.dont_route {
        set.int("SO_DONTROUTE", socket, libc::SO_DONTROUTE, 1)?;
    }
    if options.debug && !plan.server {
        set.int("SO_DEBUG", socket, libc::SO_DEBUG, 1)?;
    }
    // For datagrams this works only with the fq qdisc; their sender paces itself.
    if let Some(bps) = side.pacing_bps.filter(|_| plan.protocol.connects()) {
        set_bytes(
            set.fd,
            socket,
            libc::SO_MAX_PACING_RATE,
            &(bps / 8).to_ne_bytes(),
        )
        .map_err(|error| failed_call("SO_MAX_PACING_RATE", error))?;
    }
    if side.send_by == SendBy::Zerocopy {
        set.int("SO_ZEROCOPY", socket, libc::SO_ZEROCOPY, 1)?;
    }
    if plan.busy_poll {
        set.try_int("SO_BUSY_POLL", socket, libc::SO_BUSY_POLL, BUSY_POLL_US);
    }
    if let Some(tos) = side.tos {
        if ipv6 {
            set.int(
                "IPV6_TCLASS",
                libc::IPPROTO_IPV6,
                libc::IPV6_TCLASS,
                tos.into(),
            )?;
        } else {
            set.int("IP_TOS", libc::IPPROTO_IP, libc::IP_TOS, tos.into())?;
        }
    }
    // After the TOS, which also sets a priority.
    if let Some(priority) = side.priority {
        set.int(
            "SO_PRIORITY",
            socket,
            libc::SO_PRIORITY,
            priority.cast_signed(),
        )?;
    }
    if options.dont_fragment {
        if ipv6 {
            sockopt::set_ipv6_mtu_discover(set.fd, Ipv6PathMtuDiscovery::DO)
                .map_err(|error| failed_call("IPV6_MTU_DISCOVER", error))?;
        } else {
            sockopt::set_ip_mtu_discover(set.fd, Ipv4PathMtuDiscovery::DO)
                .map_err(|error| failed_call("IP_MTU_DISCOVER", error))?;
        }
    }
    Ok(())
}

fn set_tcp(set: &mut OptionSetter<'_>, plan: &SocketPlan<'_>) -> io::Result<()> {
    let options = plan.options;
    let tcp = libc::IPPROTO_TCP;
    if options.no_delay {
        set.int("TCP_NODELAY", tcp, libc::TCP_NODELAY, 1)?;
    }
    if options.cork && !plan.server {
        set.int("TCP_CORK", tcp, libc::TCP_CORK, 1)?;
    }
    if let Some(bytes) = options.max_segment.filter(|_| !plan.server) {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        set.int("TCP_MAXSEG", tcp, libc::TCP_MAXSEG, bytes)?;
    }
    if let Some(name) = &plan.side.congestion
        && let Err(error) = sockopt::set_tcp_congestion(set.fd, name)
    {
        set.warnings
            .push(format!("congestion control {name}: {error}"));
    }
    if options.defer_accept && plan.server {
        set.int("TCP_DEFER_ACCEPT", tcp, libc::TCP_DEFER_ACCEPT, DEFER_S)?;
    }
    if options.fast_open {
        if plan.server {
            set.try_int("TCP_FASTOPEN", tcp, libc::TCP_FASTOPEN, FAST_OPEN_QUEUE);
        } else if plan.speaks_first {
            set.try_int("TCP_FASTOPEN_CONNECT", tcp, TCP_FASTOPEN_CONNECT, 1);
        }
    }
    Ok(())
}

fn set_datagrams(set: &mut OptionSetter<'_>, plan: &SocketPlan<'_>, ipv6: bool) -> io::Result<()> {
    // Reports a full device queue to the sender (ENOBUFS).
    if ipv6 {
        set.try_int("IPV6_RECVERR", libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1);
    } else {
        set.try_int("IP_RECVERR", libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    }
    if plan.options.packet_info && plan.server {
        if ipv6 {
            let name = libc::IPV6_RECVPKTINFO;
            set.int("IPV6_RECVPKTINFO", libc::IPPROTO_IPV6, name, 1)?;
        } else {
            set.int("IP_PKTINFO", libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        }
    }
    if plan.side.gro {
        set.int("UDP_GRO", libc::SOL_UDP, UDP_GRO, 1)?;
    }
    if let Some(ttl) = plan.options.multicast_ttl {
        if ipv6 {
            let name = libc::IPV6_MULTICAST_HOPS;
            set.int("IPV6_MULTICAST_HOPS", libc::IPPROTO_IPV6, name, ttl.into())?;
        } else {
            let name = libc::IP_MULTICAST_TTL;
            set.int("IP_MULTICAST_TTL", libc::IPPROTO_IP, name, ttl.into())?;
        }
    }
    Ok(())
}

fn join_group(fd: &OwnedFd, group: IpAddr, bind: Option<SocketAddr>) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            let at = match bind.map(|address| address.ip()) {
                Some(IpAddr::V4(at)) if !at.is_multicast() => at,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            sockopt::set_ip_add_membership(fd, &group, &at)
                .map_err(|error| failed_call("IP_ADD_MEMBERSHIP", error))
        }
        IpAddr::V6(group) => sockopt::set_ipv6_add_membership(fd, &group, scope_id(bind))
            .map_err(|error| failed_call("IPV6_ADD_MEMBERSHIP", error)),
    }
}

fn scope_id(bind: Option<SocketAddr>) -> u32 {
    match bind {
        Some(SocketAddr::V6(address)) => address.scope_id(),
        _ => 0,
    }
}

/// SO_SNDBUF and SO_RCVBUF in effect; 0 if the kernel does not report them.
fn buffer_sizes(fd: BorrowedFd<'_>) -> (u32, u32) {
    let ask = |name| get_int(fd, libc::SOL_SOCKET, name).map_or(0, i32::cast_unsigned);
    (ask(libc::SO_SNDBUF), ask(libc::SO_RCVBUF))
}

/// Settings in effect on a socket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EffectiveSettings {
    /// SO_SNDBUF.
    pub send_buffer: u32,
    /// SO_RCVBUF.
    pub receive_buffer: u32,
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// TCP_CONGESTION; empty if there is none.
    pub congestion: String,
    /// SO_PRIORITY.
    pub priority: Option<i32>,
    /// IP_TOS or IPV6_TCLASS.
    pub tos: Option<i32>,
    /// TCP_MAXSEG.
    pub segment: Option<u32>,
    /// TCP statistics.
    pub tcp: Option<TcpSample>,
}

/// Reads the settings in effect on a socket.
#[must_use]
pub fn effective_settings(fd: BorrowedFd<'_>) -> EffectiveSettings {
    let (send_buffer, receive_buffer) = buffer_sizes(fd);
    let tcp = |name| get_int(fd, libc::IPPROTO_TCP, name);
    let tos = match local_address(fd) {
        Ok(SocketAddr::V6(_)) => get_int(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        _ => get_int(fd, libc::IPPROTO_IP, libc::IP_TOS),
    };
    EffectiveSettings {
        send_buffer,
        receive_buffer,
        no_delay: tcp(libc::TCP_NODELAY).is_ok_and(|on| on != 0),
        congestion: sockopt::tcp_congestion(fd).unwrap_or_default(),
        priority: get_int(fd, libc::SOL_SOCKET, libc::SO_PRIORITY).ok(),
        tos: tos.ok(),
        segment: tcp(libc::TCP_MAXSEG).ok().map(i32::cast_unsigned),
        tcp: tcp_sample(fd),
    }
}

/// Address and port of this end.
///
/// # Errors
/// Returns the system's error, or an error for a socket without an internet address.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(rustix::net::getsockname(fd)?)?)
}

/// Connects. Continues after a signal; returns [`io::ErrorKind::Interrupted`] if stopped.
///
/// # Errors
/// Returns the system's error.
pub fn connect(fd: BorrowedFd<'_>, to: SocketAddr, stop: &Stopper) -> io::Result<()> {
    if stop.is_stopped() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    match rustix::net::connect(fd, &to) {
        Ok(()) => return Ok(()),
        Err(Errno::INTR) => {}
        Err(error) => return Err(failed_call("connect", error)),
    }
    // The handshake continues in the background.
    loop {
        if stop.is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
        match poll(&mut fds, None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed_call("poll", error)),
        }
    }
    match sockopt::socket_error(fd) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) | Err(error) => Err(failed_call("connect", error)),
    }
}

/// Starts listening.
///
/// # Errors
/// Returns the system's error.
pub fn listen(fd: BorrowedFd<'_>, backlog: u32) -> io::Result<()> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    rustix::net::listen(fd, backlog).map_err(|error| failed_call("listen", error))
}

/// Waits for a connection, which inherits the options of the listening socket. Returns [`io::ErrorKind::Interrupted`]
/// if stopped. Skips connections that ended before they were accepted.
///
/// # Errors
/// Returns the system's error.
pub fn accept(fd: BorrowedFd<'_>, stop: &Stopper) -> io::Result<(OwnedFd, SocketAddr)> {
    while !stop.is_stopped() {
        match rustix::net::acceptfrom_with(fd, SocketFlags::CLOEXEC) {
            Ok((connection, peer)) => {
                let nowhere = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                return Ok((connection, peer.unwrap_or(nowhere)));
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => return Err(failed_call("accept", error)),
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

#[cfg(test)]
mod tests;
