//! Where data of a test may come from: its client, and nobody else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{
    ask::{Ask, Errno, Work},
    state::ServerState,
};
use wb_omni::Family;

/// Addresses that data is taken from. None: any.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(Vec<IpAddr>);

impl Sources {
    /// For what is asked by a client at this address: that address, and one that the client names
    /// where nothing goes back that its owner could not have asked for, as a connection proves who is there.
    ///
    /// # Errors
    /// EACCES if answers would have to go to somebody else; EAFNOSUPPORT if the client's address in
    /// the family of the data is not known.
    pub(super) fn of(ask: &Ask, state: &ServerState, peer: IpAddr) -> Result<Self, Errno> {
        if state.job.any_source {
            return Ok(Self::default());
        }
        let peer = peer.to_canonical();
        let ipv6 = match ask.family {
            Family::V4 => false,
            Family::V6 => true,
            _ => peer.is_ipv6(),
        };
        let mut allowed = Vec::new();
        if peer.is_ipv6() == ipv6 {
            allowed.push(peer);
        } else if peer.is_loopback() {
            allowed.push(match ipv6 {
                true => Ipv6Addr::LOCALHOST.into(),
                false => Ipv4Addr::LOCALHOST.into(),
            });
        }
        let named = named(ask, ipv6);
        if !named.is_empty() && !named.iter().any(|address| allowed.contains(address)) {
            if answers_datagrams(ask) {
                return Err(libc::EACCES);
            }
            allowed.extend(named);
        }
        match allowed.is_empty() {
            true => Err(libc::EAFNOSUPPORT),
            false => Ok(Self(allowed)),
        }
    }

    /// For the kernel, which passes over datagrams from elsewhere; empty: any.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.0
    }

    /// Whether a connection may come from there.
    pub(super) fn admits(&self, from: SocketAddr) -> bool {
        self.0.is_empty() || self.0.contains(&from.ip().to_canonical())
    }
}

/// The address that the client says its data comes from, in both orders of bytes that netperfs have.
fn named(ask: &Ask, ipv6: bool) -> Vec<IpAddr> {
    let address = ask.client_address;
    match (address.is_any(), ipv6) {
        (true, _) => Vec::new(),
        (false, true) => vec![address.v6().into(), address.v6_straight().into()],
        (false, false) => vec![address.v4().into()],
    }
}

fn answers_datagrams(ask: &Ask) -> bool {
    !ask.protocol.connects() && !matches!(ask.work, Work::Receive { .. })
}
