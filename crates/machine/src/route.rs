//! Routes: lists them and finds the route of a packet.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType,
};

use crate::address::family;
use crate::error::Result;
use crate::netlink::{Netlink, NetlinkRequest};

/// A unicast route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination network.
    pub destination: IpAddr,
    /// Length of the prefix in bits; 0 is the default route.
    pub prefix_len: u8,
    /// Next hops: interface index, and gateway if there is one. Empty for nexthop objects (`ip nexthop`).
    pub hops: Vec<(u32, Option<IpAddr>)>,
    /// Routing table; 254 is the main table.
    pub table: u32,
}

/// The kernel's route for one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedRoute {
    /// Index of the outgoing interface.
    pub interface: u32,
    /// Gateway; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Source address that the kernel would choose.
    pub source: Option<IpAddr>,
}

impl Netlink {
    /// Unicast routes of the main table, IPv4 first.
    ///
    /// # Errors
    /// If the kernel refuses the list.
    pub fn routes(&self) -> Result<Vec<Route>> {
        let mut routes = self.all_routes()?;
        routes.retain(|route| route.table == u32::from(RouteHeader::RT_TABLE_MAIN));
        Ok(routes)
    }

    /// Unicast routes of all tables, including those of VRFs and policy rules, IPv4 first.
    ///
    /// # Errors
    /// If the kernel refuses the list, or an answer cannot be read.
    pub fn all_routes(&self) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for any in [IpAddr::from([0u8; 4]), IpAddr::from([0u8; 16])] {
            let mut request = RouteMessage::default();
            request.header.address_family = family(any);
            let answers = match self.ask_whole(RouteNetlinkMessage::GetRoute(request)) {
                Ok(answers) => answers,
                // A kernel without this family has no routes of it.
                Err(r) if matches!(r.errno(), Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT)) => {
                    continue;
                }
                Err(refusal) => return Err(refusal.on("list", "the routes")),
            };
            routes.extend(answers.iter().filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(message) => read(message, any),
                _ => None,
            }));
        }
        Ok(routes)
    }

    /// Adds a route to a network through a gateway, an interface, or both. Replaces an existing route.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`](crate::HostError::UnknownInterface); a refusal with the kernel's reason.
    pub fn add_route(
        &self,
        destination: IpAddr,
        prefix_len: u8,
        gateway: Option<IpAddr>,
        interface: Option<&str>,
    ) -> Result<()> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(destination),
            destination_prefix_length: prefix_len,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: if gateway.is_some() {
                RouteScope::Universe
            } else {
                RouteScope::Link
            },
            kind: RouteType::Unicast,
            ..Default::default()
        };
        if prefix_len > 0 {
            message
                .attributes
                .push(RouteAttribute::Destination(destination.into()));
        }
        message
            .attributes
            .extend(gateway.map(|g| RouteAttribute::Gateway(g.into())));
        if let Some(name) = interface {
            message
                .attributes
                .push(RouteAttribute::Oif(self.link(name)?.index));
        }
        self.ask(
            RouteNetlinkMessage::NewRoute(message),
            NetlinkRequest::Replace,
        )
        .map(drop)
        .map_err(|refusal| refusal.on("add", format!("a route to {destination}/{prefix_len}")))
    }

    /// Current route of a packet to `destination`; `None` if there is none.
    ///
    /// # Errors
    /// If the kernel refuses for another reason than a missing route.
    pub fn route_to(&self, destination: IpAddr) -> Result<Option<ResolvedRoute>> {
        let found = self.find_route(destination, RouteFlags::empty())?;
        Ok(found.as_ref().and_then(resolved))
    }

    /// Returns true if a packet to `destination` would use a default route, false if it would use another route or has
    /// none.
    ///
    /// # Errors
    /// If the kernel refuses for another reason than a missing route.
    pub fn leaves_by_default(&self, destination: IpAddr) -> Result<bool> {
        let found = self.find_route(destination, RouteFlags::FibMatch)?;
        Ok(found.is_some_and(|message| {
            message.header.kind == RouteType::Unicast
                && message.header.destination_prefix_length == 0
        }))
    }

    /// The kernel's answer for a packet to `destination`; with [`RouteFlags::FibMatch`] the matching route.
    fn find_route(&self, destination: IpAddr, flags: RouteFlags) -> Result<Option<RouteMessage>> {
        let mut message = RouteMessage::default();
        message.header.flags = flags;
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
        message
            .attributes
            .push(RouteAttribute::Destination(destination.into()));
        let answers = match self.ask(
            RouteNetlinkMessage::GetRoute(message),
            NetlinkRequest::Plain,
        ) {
            Ok(answers) => answers,
            Err(r) if matches!(r.errno(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) => {
                return Ok(None);
            }
            Err(refusal) => {
                return Err(refusal.on("look up", format!("the route to {destination}")));
            }
        };
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => Some(message),
            _ => None,
        }))
    }
}

fn read(message: &RouteMessage, any: IpAddr) -> Option<Route> {
    let header = &message.header;
    let table = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    if header.kind != RouteType::Unicast {
        return None;
    }
    let mut destination = any;
    let mut hops: Vec<(u32, Option<IpAddr>)> = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip(address)?,
            RouteAttribute::Oif(index) => hops.push((*index, gateway(&message.attributes))),
            RouteAttribute::MultiPath(several) => hops.extend(
                several
                    .iter()
                    .map(|hop| (hop.interface_index, gateway(&hop.attributes))),
            ),
            _ => {}
        }
    }
    Some(Route {
        destination,
        prefix_len: header.destination_prefix_length,
        hops,
        table: table.unwrap_or(header.table.into()),
    })
}

fn resolved(message: &RouteMessage) -> Option<ResolvedRoute> {
    let interface = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        })?;
    let source = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(address) => ip(address),
            _ => None,
        });
    Some(ResolvedRoute {
        interface,
        gateway: gateway(&message.attributes),
        source,
    })
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        _ => None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}
