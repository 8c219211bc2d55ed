//! Listening sockets for control connections.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt,
};
use wb_model::socket::{Family, SocketServerJob};

use super::ServerError;
use crate::{Host, host::endpoint};

/// Backlog: clients waiting to be accepted.
const BACKLOG: i32 = 1024;

/// Listens at the job's address.
///
/// # Errors
/// Fails if the name cannot be resolved, or no address can be bound.
pub(super) fn open_listeners(
    job: &SocketServerJob,
    host: &dyn Host,
) -> Result<Vec<TcpListener>, ServerError> {
    match &job.listen {
        Some(name) => listen_at_name(job, name, host),
        None => listen_everywhere(job),
    }
}

fn listen_at_name(
    job: &SocketServerJob,
    name: &str,
    host: &dyn Host,
) -> Result<Vec<TcpListener>, ServerError> {
    let resolved = host
        .resolve(name, job.family)
        .map_err(|what| ServerError::Resolve {
            name: name.to_owned(),
            what,
        })?;
    let mut refused = None;
    let mut listeners = Vec::new();
    for address in resolved.addresses {
        match listen_at(endpoint(address, job.port, resolved.scope), false) {
            Ok(listener) => listeners.push(listener),
            Err(cause) => {
                refused.get_or_insert(ServerError::Bind {
                    address: SocketAddr::new(address, job.port),
                    cause,
                });
            }
        }
    }
    match refused {
        Some(refused) if listeners.is_empty() => Err(refused),
        _ => Ok(listeners),
    }
}

/// The IPv6 wildcard, which also accepts IPv4 on most systems, then the IPv4 wildcard.
fn listen_everywhere(job: &SocketServerJob) -> Result<Vec<TcpListener>, ServerError> {
    let v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), job.port);
    let first = match job.family {
        Family::Ipv4 => None,
        Family::Ipv6 | Family::Any => Some(listen_at(v6, job.family == Family::Ipv6)),
    };
    let port = match &first {
        // If any port is acceptable, use the same one for both.
        Some(Ok(listener)) => listener
            .local_addr()
            .map_or(job.port, |address| address.port()),
        _ => job.port,
    };
    let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    let second = match job.family {
        Family::Ipv6 => None,
        Family::Ipv4 | Family::Any => Some(listen_at(v4, false)),
    };
    match (first, second) {
        (Some(Ok(first)), Some(Ok(second))) => Ok(vec![first, second]),
        (Some(Ok(only)), _) | (_, Some(Ok(only))) => Ok(vec![only]),
        (_, Some(Err(cause))) => Err(ServerError::Bind { address: v4, cause }),
        (Some(Err(cause)), None) => Err(ServerError::Bind { address: v6, cause }),
        (None, None) => unreachable!("each family has one of them"),
    }
}

fn listen_at(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    let family = match address.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, only_v6)?;
    }
    bind(&fd, &address)?;
    listen(&fd, BACKLOG)?;
    Ok(TcpListener::from(fd))
}
