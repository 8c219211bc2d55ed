//! Neighbours: which hardware address stands for which IP address.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteType;

use crate::address::family;
use crate::error::Result;
use crate::netlink::{Ask, Netlink};

/// An entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The IP address asked for.
    pub address: IpAddr,
    /// The hardware address that answers for it; absent while nobody has answered.
    pub mac: Option<[u8; 6]>,
    /// Whether it may be used: known for certain, or lately, or at least once.
    pub usable: bool,
    /// Whether it was set by hand and never expires.
    pub permanent: bool,
}

impl Netlink {
    /// The neighbours known on the interface called `name`.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`](crate::HostError::UnknownInterface).
    pub fn neighbours(&self, name: &str) -> Result<Vec<Neighbour>> {
        let index = self.link(name)?.index;
        let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self
            .ask(request, Ask::Dump)
            .map_err(|refusal| refusal.on("list the neighbours on", name))?;
        Ok(answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewNeighbour(m) if m.header.ifindex == index => read(m),
                _ => None,
            })
            .collect())
    }

    /// Says for good which hardware address stands for `address`; replaces what was known.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`](crate::HostError::UnknownInterface); a refusal where
    /// privileges are missing.
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
        self.ask(RouteNetlinkMessage::NewNeighbour(message), Ask::Replace)
            .map(drop)
            .map_err(|refusal| refusal.on("add a neighbour on", format!("{name}: {address}")))
    }
}

fn read(message: &NeighbourMessage) -> Option<Neighbour> {
    let mut address = None;
    let mut mac = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some((*v4).into())
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some((*v6).into())
            }
            NeighbourAttribute::LinkLocalAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    let state = message.header.state;
    Some(Neighbour {
        address: address?,
        mac,
        usable: !matches!(
            state,
            NeighbourState::None | NeighbourState::Incomplete | NeighbourState::Failed
        ),
        permanent: state == NeighbourState::Permanent,
    })
}
