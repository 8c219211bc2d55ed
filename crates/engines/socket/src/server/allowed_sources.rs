//! Allowed sources of a test's data: its client only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{
    requested_test::{DataExchange, LinuxErrno, RequestedTest},
    state::ServerState,
};
use wb_netperf_wire::WireFamily;

/// Addresses from which data is accepted; empty means any.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedSources(Vec<IpAddr>);

impl AllowedSources {
    /// Sources for a request from a client at this address: that address, and one that the client names. Another
    /// address is allowed only if the server would not answer its datagrams, because unlike a connection a datagram
    /// does not prove its source.
    ///
    /// # Errors
    /// EACCES if answers would go to another host; EAFNOSUPPORT if the client's address in the family of the data is
    /// unknown.
    pub(super) fn for_test(
        ask: &RequestedTest,
        state: &ServerState,
        peer: IpAddr,
    ) -> Result<Self, LinuxErrno> {
        if state.job.any_source {
            return Ok(Self::default());
        }
        let peer = peer.to_canonical();
        let ipv6 = match ask.family {
            WireFamily::V4 => false,
            WireFamily::V6 => true,
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
        let named = named_sources(ask, ipv6);
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

    /// Addresses for the kernel's filter; empty means any.
    pub(super) fn filter_addresses(&self) -> &[IpAddr] {
        &self.0
    }

    /// Returns true if a connection from there is allowed.
    pub(super) fn is_allowed(&self, from: SocketAddr) -> bool {
        self.0.is_empty() || self.0.contains(&from.ip().to_canonical())
    }
}

/// The source address of data as named by the client, in both byte orders that netperf versions use.
fn named_sources(ask: &RequestedTest, ipv6: bool) -> Vec<IpAddr> {
    let address = ask.client_address;
    match (address.is_any(), ipv6) {
        (true, _) => Vec::new(),
        (false, true) => vec![address.v6().into(), address.v6_straight().into()],
        (false, false) => vec![address.v4().into()],
    }
}

fn answers_datagrams(ask: &RequestedTest) -> bool {
    !ask.protocol.connects() && !matches!(ask.work, DataExchange::Receive { .. })
}
