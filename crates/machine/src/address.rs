//! Addresses of interfaces.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::Result;
use crate::netlink::{Netlink, NetlinkRequest};

/// Address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// IP address.
    pub address: IpAddr,
    /// Length of the network prefix in bits.
    pub prefix_len: u8,
    /// True for addresses that are valid on this link only (IPv6 `fe80::/10`).
    pub link_local: bool,
    /// True while duplicate address detection is running, so that the address cannot be used yet.
    pub tentative: bool,
}

impl std::fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl Netlink {
    /// Addresses of the interface `name`.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`](crate::HostError::UnknownInterface).
    pub fn addresses(&self, name: &str) -> Result<Vec<InterfaceAddress>> {
        let index = self.link(name)?.index;
        let mut request = AddressMessage::default();
        request.header.index = index;
        let answers = self
            .ask(
                RouteNetlinkMessage::GetAddress(request),
                NetlinkRequest::Dump,
            )
            .map_err(|refusal| refusal.on("list the addresses of", name))?;
        // Without strict checking the kernel lists the addresses of all interfaces.
        Ok(answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(m) if m.header.index == index => read(m),
                _ => None,
            })
            .collect())
    }

    /// All addresses of all interfaces of the namespace.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn all_addresses(&self) -> Result<Vec<InterfaceAddress>> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self
            .ask(request, NetlinkRequest::Dump)
            .map_err(|refusal| refusal.on("list the addresses of", "all interfaces"))?;
        Ok(answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(m) => read(m),
                _ => None,
            })
            .collect())
    }

    /// Adds an address to the interface; does nothing if the interface has it already. An IPv6 address is usable at
    /// once, without duplicate address detection.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`](crate::HostError::UnknownInterface); a refusal without the required privileges.
    pub fn add_address(&self, name: &str, address: IpAddr, prefix_len: u8) -> Result<()> {
        let mut message = self.message(name, address, prefix_len)?;
        match address {
            IpAddr::V4(v4) if prefix_len < 31 => {
                let host_bits = u32::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
                let broadcast = Ipv4Addr::from_bits(v4.to_bits() | host_bits);
                message
                    .attributes
                    .push(AddressAttribute::Broadcast(broadcast));
            }
            IpAddr::V4(_) => {}
            IpAddr::V6(_) => {
                message.header.flags = AddressHeaderFlags::Nodad;
                message
                    .attributes
                    .push(AddressAttribute::Flags(AddressFlags::Nodad));
            }
        }
        self.ask(
            RouteNetlinkMessage::NewAddress(message),
            NetlinkRequest::Replace,
        )
        .map(drop)
        .map_err(|refusal| {
            refusal.on(
                "add an address to",
                format!("{name}: {address}/{prefix_len}"),
            )
        })
    }

    /// Removes an address from the interface.
    ///
    /// # Errors
    /// See [`Netlink::add_address`]; a refusal if the interface does not have the address.
    pub fn remove_address(&self, name: &str, address: IpAddr, prefix_len: u8) -> Result<()> {
        let message = self.message(name, address, prefix_len)?;
        self.ask(
            RouteNetlinkMessage::DelAddress(message),
            NetlinkRequest::Plain,
        )
        .map(drop)
        .map_err(|refusal| {
            refusal.on(
                "remove an address from",
                format!("{name}: {address}/{prefix_len}"),
            )
        })
    }

    fn message(&self, name: &str, address: IpAddr, prefix_len: u8) -> Result<AddressMessage> {
        let mut message = AddressMessage::default();
        message.header.index = self.link(name)?.index;
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        // Only IPv4 reads broadcast addresses. It expects the address both as local and as peer address.
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        Ok(message)
    }
}

/// Netlink family of an address.
pub(crate) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn read(message: &AddressMessage) -> Option<InterfaceAddress> {
    let mut address = None;
    let mut tentative = message.header.flags.contains(AddressHeaderFlags::Tentative);
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link the other attribute is the peer's address.
            AddressAttribute::Local(local) => address = Some(*local),
            AddressAttribute::Address(other) => address = address.or(Some(*other)),
            AddressAttribute::Flags(flags) => tentative |= flags.contains(AddressFlags::Tentative),
            _ => {}
        }
    }
    Some(InterfaceAddress {
        address: address?,
        prefix_len: message.header.prefix_len,
        link_local: message.header.scope == AddressScope::Link,
        tentative,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_address_wins_over_the_peers() {
        let peer = IpAddr::from([10, 0, 0, 2]);
        let local = IpAddr::from([10, 0, 0, 1]);
        for attributes in [
            vec![
                AddressAttribute::Address(peer),
                AddressAttribute::Local(local),
            ],
            vec![
                AddressAttribute::Local(local),
                AddressAttribute::Address(peer),
            ],
        ] {
            let mut message = AddressMessage::default();
            message.attributes = attributes;
            assert_eq!(read(&message).unwrap().address, local);
        }
        assert_eq!(read(&AddressMessage::default()), None);
    }
}
