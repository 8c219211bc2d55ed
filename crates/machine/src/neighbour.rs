//! Neighbour entries: hardware addresses of IP addresses.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::RouteType;

use crate::address::family;
use crate::error::Result;
use crate::netlink::{Netlink, NetlinkRequest};

impl Netlink {
    /// Adds a permanent neighbour entry for `address`, or replaces the existing entry.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`](crate::HostError::UnknownInterface); a refusal without the required privileges.
    pub fn add_neighbour(&self, name: &str, address: IpAddr, mac: [u8; 6]) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.link(name)?.index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            NeighbourAttribute::Destination(address.into()),
            NeighbourAttribute::LinkLocalAddress(mac.to_vec()),
        ];
        self.ask(
            RouteNetlinkMessage::NewNeighbour(message),
            NetlinkRequest::Replace,
        )
        .map(drop)
        .map_err(|refusal| refusal.on("add a neighbour on", format!("{name}: {address}")))
    }
}
