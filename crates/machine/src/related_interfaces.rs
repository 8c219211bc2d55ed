//! Related interfaces: masters and parents of an interface, interfaces stacked on it, and those that lead to the
//! default route.
//!
//! Bridges, bonds and teams have ports, VLANs and MACVLANs have a parent, and both may be in another namespace. Frames
//! sent on one related interface may reach the networks behind the others, and a program that takes its frames takes
//! them from the others. An unknown relation is an error, never a no.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::error::{HostError, Result};
use crate::link::{Link, LinkKind};
use crate::netlink::Netlink;
use crate::netns::Namespace;
use crate::peer::candidates;
use crate::route::Route;

/// Route to most of the address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// Requested interface.
    pub asked: String,
    /// Outgoing interface, `NODE/IF` in another namespace; `None` if the kernel does not name it.
    pub interface: Option<String>,
    /// Route: `the default route`, or the widest of several routes that together are equivalent.
    pub route: String,
    /// Routing table; 254 is the main table.
    pub table: u32,
}

impl std::fmt::Display for WayOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.route)?;
        if self.table != MAIN {
            write!(f, " of table {}", self.table)?;
        }
        match &self.interface {
            None => f.write_str(" may leave by this interface"),
            Some(own) if *own == self.asked => f.write_str(" leaves by this interface"),
            Some(other) => write!(f, " leaves by {other}, to which {} belongs", self.asked),
        }
    }
}

/// linux/rtnetlink.h: RT_TABLE_MAIN
const MAIN: u32 = 254;
/// Share of the address space that counts as most of it: an eighth, the size of `2000::/3` in IPv6.
const WORLD: f64 = 0.125;

impl Netlink {
    /// Route to the rest of the network that frames on the interface `name` may take: a route as wide as the default
    /// route, in any table and family, through this interface or a related one.
    ///
    /// # Errors
    /// Any failure that leaves the answer unknown.
    pub fn way_out(&self, name: &str) -> Result<Option<WayOut>> {
        let world = World::around(self, name)?;
        let family = world.family(Reach::Wire)?;
        for (view, at) in world.views.iter().enumerate() {
            let members: BTreeMap<u32, &str> = family
                .iter()
                .filter(|(there, _)| *there == view)
                .filter_map(|(_, index)| Some((*index, at.link(*index)?.name.as_str())))
                .collect();
            if members.is_empty() {
                continue;
            }
            if let Some((route, by)) = widest(&at.netlink.all_routes()?, &members) {
                let interface = by.map(|index| match view {
                    0 => members[&index].to_owned(),
                    _ => format!("{}/{}", at.namespace.name().unwrap_or("?"), members[&index]),
                });
                return Ok(Some(WayOut {
                    asked: name.to_owned(),
                    interface,
                    route: match route.prefix_len {
                        0 => "the default route".to_owned(),
                        bits => format!("the route to {}/{bits}", route.destination),
                    },
                    table: route.table,
                }));
            }
        }
        Ok(None)
    }

    /// Use of the interface `name` by the host, which forbids taking its frames: an address, a route, membership in a
    /// bridge or bond, a VLAN or similar on top.
    ///
    /// # Errors
    /// Any failure that leaves the answer unknown.
    pub fn host_use(&self, name: &str) -> Result<Option<String>> {
        let own = self.addresses(name)?;
        // Every interface that is up has a link-local address, which is not a sign of use by the host.
        let mut own = own.iter().filter(|address| !address.link_local);
        if let Some(address) = own.next() {
            return Ok(Some(format!("the host uses {name} ({address})")));
        }
        let link = self.link(name)?;
        let route = |route: &Route| {
            !is_of_the_link(route) && route.hops.iter().any(|(by, _)| *by == link.index)
        };
        if let Some(route) = self.all_routes()?.into_iter().find(route) {
            let (to, bits) = (route.destination, route.prefix_len);
            return Ok(Some(format!(
                "the host has a route to {to}/{bits} through {name}"
            )));
        }
        let world = World::around(self, name)?;
        if let Some(index) = link.master_index {
            let master = world.views[0].link(index);
            let master = master.map_or_else(|| format!("interface {index}"), |m| m.name.clone());
            return Ok(Some(format!("{name} is a port of {master}")));
        }
        let upper = world
            .family(Reach::Above)?
            .into_iter()
            .find(|at| *at != world.start);
        Ok(upper.map(|(view, index)| {
            let at = &world.views[view];
            let upper = at.link(index).map_or("an interface", |l| &l.name);
            match view {
                0 => format!("{upper} is on top of {name}"),
                _ => format!("{upper} in {} is on top of {name}", at.namespace.place()),
            }
        }))
    }
}

/// Returns true for routes that every interface has: to neighbours on the link, and multicast.
fn is_of_the_link(route: &Route) -> bool {
    match route.destination {
        IpAddr::V4(to) => to.is_multicast() || (to.is_link_local() && route.prefix_len >= 16),
        IpAddr::V6(to) => {
            to.is_multicast() || (to.is_unicast_link_local() && route.prefix_len >= 10)
        }
    }
}

/// The widest route through these interfaces, if the routes of one table together cover most of the address space, and
/// its outgoing interface.
fn widest<'a>(
    routes: &'a [Route],
    members: &BTreeMap<u32, &str>,
) -> Option<(&'a Route, Option<u32>)> {
    let leaves = |route: &Route| -> Option<Option<u32>> {
        let by = route.hops.iter().map(|(by, _)| *by);
        match by.clone().find(|by| members.contains_key(by)) {
            Some(by) => Some(Some(by)),
            // A next hop that the kernel stores as a nexthop object.
            None => route.hops.is_empty().then_some(None),
        }
    };
    let mut tables: BTreeMap<(u32, bool), Vec<&Route>> = BTreeMap::new();
    for route in routes {
        if !route.destination.is_multicast() && leaves(route).is_some() {
            let table = (route.table, route.destination.is_ipv6());
            tables.entry(table).or_default().push(route);
        }
    }
    let share = |route: &&Route| 0.5_f64.powi(i32::from(route.prefix_len));
    let wide = tables
        .values()
        .find(|table| table.iter().map(share).sum::<f64>() >= WORLD)?;
    let widest = wide.iter().min_by_key(|route| route.prefix_len)?;
    Some((widest, leaves(widest).flatten()))
}

/// Interface: the number of its view, and its index there.
type At = (usize, u32);

/// Direction of the search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// All interfaces that share the wire, in any way.
    Wire,
    /// Interfaces stacked on it.
    Above,
}

/// Namespace and its contents.
struct NamespaceView {
    namespace: Namespace,
    netlink: Netlink,
    links: Vec<Link>,
}

impl NamespaceView {
    fn look(namespace: Namespace) -> Result<Self> {
        let netlink = Netlink::open(&namespace)?;
        Ok(Self {
            links: netlink.all_links()?,
            netlink,
            namespace,
        })
    }

    /// Retries [`look`](Self::look) a few times, because other namespaces may change while they are read.
    fn look_again(namespace: Namespace) -> Result<Self> {
        const TRIES: usize = 5;
        for _ in 1..TRIES {
            match Self::look(namespace.clone()) {
                Err(error) if !error.is_permission() => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                other => return other,
            }
        }
        Self::look(namespace)
    }

    fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }
}

/// All known namespaces; the first is the one of the request.
struct World {
    views: Vec<NamespaceView>,
    start: At,
}

impl World {
    fn around(netlink: &Netlink, name: &str) -> Result<Self> {
        let own = NamespaceView::look(netlink.namespace().clone())?;
        let start = (0, netlink.link(name)?.index);
        let mut views = vec![own];
        for candidate in candidates()? {
            if views.iter().any(|p| p.namespace == candidate) {
                continue;
            }
            match NamespaceView::look_again(candidate) {
                Ok(view) => views.push(view),
                // Only a privileged user can enter a namespace, and most are unrelated to this one.
                Err(error) if error.is_permission() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { views, start })
    }

    /// Location of an interface that a link of `view` refers to by index, and of its namespace if that is another one.
    fn find(&self, view: usize, link: &Link) -> Result<Option<At>> {
        let Some(index) = link.peer_index else {
            return Ok(None);
        };
        let Some(id) = link.peer_netnsid else {
            return Ok(Some((view, index)));
        };
        for (other, there) in self.views.iter().enumerate() {
            if other != view && self.views[view].netlink.id_of(&there.namespace)? == Some(id) {
                return Ok(Some((other, index)));
            }
        }
        Ok(None)
    }

    /// Interface and its related interfaces.
    fn family(&self, reach: Reach) -> Result<BTreeSet<At>> {
        let links: Vec<&[Link]> = self.views.iter().map(|view| &*view.links).collect();
        let find = |view: usize, link: &Link| self.find(view, link);
        Graph {
            links: &links,
            find: &find,
        }
        .family(self.start, reach)
    }
}

/// All links, by namespace.
struct Graph<'a> {
    links: &'a [&'a [Link]],
    /// Finds the other interface that a link refers to.
    find: &'a dyn Fn(usize, &Link) -> Result<Option<At>>,
}

impl Graph<'_> {
    fn family(&self, start: At, reach: Reach) -> Result<BTreeSet<At>> {
        let (mut found, mut open) = (BTreeSet::from([start]), vec![start]);
        while let Some(at) = open.pop() {
            for next in self.next_to(at, reach)? {
                if found.insert(next) {
                    open.push(next);
                }
            }
        }
        Ok(found)
    }

    fn link(&self, at: At) -> Option<&Link> {
        self.links[at.0].iter().find(|link| link.index == at.1)
    }

    fn next_to(&self, at: At, reach: Reach) -> Result<Vec<At>> {
        let (view, index) = at;
        let here = self.links[view];
        let link = self.link(at).ok_or_else(|| lost(index))?;
        let mut next = self.uppers(at)?;
        if reach == Reach::Above {
            return Ok(next);
        }
        next.extend(link.master_index.map(|master| (view, master)));
        // The members of a VRF share a routing table but no wire.
        if link.kind != LinkKind::Other("vrf".into()) {
            let ports = here.iter().filter(|l| l.master_index == Some(index));
            next.extend(ports.map(|l| (view, l.index)));
        }
        // Open vSwitch decides internally which of its ports are connected.
        let open_vswitch = LinkKind::Other("openvswitch".into());
        if link.kind == open_vswitch {
            let others = here.iter().filter(|l| l.kind == open_vswitch);
            next.extend(others.map(|l| (view, l.index)));
        }
        match (is_a_wire(link), (self.find)(view, link)?) {
            (false, Some(below)) => next.push(below),
            (false, None) if link.peer_index.is_some() => return Err(lost(index)),
            // The peer is another interface and ends the wire, unless it is a port of another device.
            (true, Some(peer)) => {
                let is_port = |l: &Link| l.master_index.is_some();
                next.extend(self.link(peer).is_some_and(is_port).then_some(peer));
            }
            _ => {}
        }
        Ok(next)
    }

    /// Interfaces stacked on an interface: VLANs, MACVLANs and similar, in any namespace.
    fn uppers(&self, at: At) -> Result<Vec<At>> {
        let mut uppers = Vec::new();
        for (view, there) in self.links.iter().enumerate() {
            for link in there.iter() {
                let may_be = link.peer_index == Some(at.1)
                    && !is_a_wire(link)
                    && (view == at.0) == link.peer_netnsid.is_none();
                if may_be && (self.find)(view, link)? == Some(at) {
                    uppers.push((view, link.index));
                }
            }
        }
        Ok(uppers)
    }
}

/// Returns true if the other interface that a link refers to is its peer, and not its parent.
fn is_a_wire(link: &Link) -> bool {
    match &link.kind {
        LinkKind::Veth => true,
        LinkKind::Other(kind) => kind == "netkit",
        _ => false,
    }
}

fn lost(index: u32) -> HostError {
    HostError::refused(
        "find",
        format!("the interfaces related to interface {index}"),
    )(std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(to: &str, by: u32, table: u32) -> Route {
        let (destination, bits) = to.split_once('/').unwrap();
        Route {
            destination: destination.parse().unwrap(),
            prefix_len: bits.parse().unwrap(),
            hops: vec![(by, None)],
            table,
        }
    }

    #[test]
    fn the_world_is_reached_by_one_route_or_by_several() {
        let members = BTreeMap::from([(2, "eth0"), (3, "br0")]);
        for (routes, wide) in [
            (&[("0.0.0.0/0", 2, 254)][..], true),
            (&[("::/0", 3, 254)], true),
            (&[("0.0.0.0/0", 4, 254)], false),
            (&[("0.0.0.0/0", 2, 100)], true),
            (&[("0.0.0.0/1", 2, 254), ("128.0.0.0/1", 2, 254)], true),
            (&[("128.0.0.0/1", 2, 254)], true),
            (&[("2000::/3", 2, 254)], true),
            (
                &[
                    ("0.0.0.0/5", 2, 9),
                    ("8.0.0.0/5", 3, 9),
                    ("16.0.0.0/5", 2, 9),
                    ("24.0.0.0/5", 2, 9),
                ],
                true,
            ),
            (&[("10.0.0.0/8", 2, 254), ("198.18.0.0/15", 3, 254)], false),
            (&[("224.0.0.0/3", 2, 254), ("ff00::/8", 2, 254)], false),
        ] {
            let routes: Vec<Route> = routes
                .iter()
                .map(|(to, by, table)| route(to, *by, *table))
                .collect();
            assert_eq!(widest(&routes, &members).is_some(), wide, "{routes:?}");
        }
        let unknown = Route {
            hops: Vec::new(),
            ..route("0.0.0.0/0", 0, 254)
        };
        assert_eq!(widest(&[unknown], &members).unwrap().1, None);
    }

    fn link(index: u32, kind: &str, master: u32, on: u32) -> Link {
        let some = |n: u32| (n != 0).then_some(n);
        Link {
            index,
            name: format!("i{index}"),
            mac: [0; 6],
            mtu: 1500,
            max_mtu: None,
            up: true,
            carrier: true,
            promiscuous: false,
            kind: match kind {
                "" => LinkKind::Physical,
                "veth" => LinkKind::Veth,
                "bridge" => LinkKind::Bridge,
                other => LinkKind::Other(other.into()),
            },
            ethernet: true,
            master_index: some(master),
            peer_index: some(on),
            peer_netnsid: None,
            num_tx_queues: 1,
            num_rx_queues: 1,
            xdp_attached: None,
        }
    }

    /// Indexes of the related interfaces in views 0 and 1; those of view 1 are offset by 100.
    fn kin(links: &[Link], elsewhere: &[Link], start: u32, reach: Reach) -> Result<Vec<u32>> {
        // A link with `peer_netnsid` 1 refers to an interface in the other view.
        let find = |view: usize, link: &Link| {
            let there = if link.peer_netnsid == Some(1) {
                1 - view
            } else {
                view
            };
            Ok(link.peer_index.map(|index| (there, index)))
        };
        let graph = Graph {
            links: &[links, elsewhere],
            find: &find,
        };
        let found = graph.family((0, start), reach)?;
        let number = |(view, index): (usize, u32)| index + 100 * view as u32;
        Ok(found
            .into_iter()
            .map(number)
            .filter(|n| *n != start)
            .collect())
    }

    #[test]
    fn kin_share_a_wire() {
        for (what, links, wire, above) in [
            (
                "alone",
                vec![link(1, "", 0, 0), link(2, "", 0, 0)],
                vec![],
                vec![],
            ),
            (
                "a port of a bridge, beside another",
                vec![
                    link(1, "", 9, 0),
                    link(2, "", 9, 0),
                    link(9, "bridge", 0, 0),
                ],
                vec![2, 9],
                vec![],
            ),
            (
                "a slave of a bond that has a VLAN, which is a port of a bridge",
                vec![
                    link(1, "", 7, 0),
                    link(7, "bond", 0, 0),
                    link(8, "vlan", 9, 7),
                    link(9, "bridge", 0, 0),
                ],
                vec![7, 8, 9],
                vec![],
            ),
            (
                "a parent of a VLAN and a MACVLAN on it",
                vec![
                    link(1, "", 0, 0),
                    link(2, "vlan", 0, 1),
                    link(3, "macvlan", 0, 2),
                ],
                vec![2, 3],
                vec![2, 3],
            ),
            (
                "a VLAN beside another on the same parent",
                vec![
                    link(1, "vlan", 0, 5),
                    link(2, "vlan", 0, 5),
                    link(5, "", 0, 0),
                ],
                vec![2, 5],
                vec![],
            ),
            (
                "a member of a VRF: the other members are not on its wire",
                vec![link(1, "", 9, 0), link(2, "", 9, 0), link(9, "vrf", 0, 0)],
                vec![9],
                vec![],
            ),
            (
                "a port of Open vSwitch, whose own ports have no master",
                vec![
                    link(1, "", 9, 0),
                    link(9, "openvswitch", 0, 0),
                    link(3, "openvswitch", 0, 0),
                ],
                vec![3, 9],
                vec![],
            ),
            (
                "a virtual wire that ends at a host",
                vec![link(1, "veth", 0, 2), link(2, "veth", 0, 1)],
                vec![],
                vec![],
            ),
            (
                "a virtual wire that ends at a port of a bridge",
                vec![
                    link(1, "veth", 0, 2),
                    link(2, "veth", 9, 1),
                    link(9, "bridge", 0, 0),
                    link(3, "", 9, 0),
                ],
                vec![2, 3, 9],
                vec![],
            ),
        ] {
            assert_eq!(kin(&links, &[], 1, Reach::Wire).unwrap(), wire, "{what}");
            assert_eq!(kin(&links, &[], 1, Reach::Above).unwrap(), above, "{what}");
        }
    }

    #[test]
    fn kin_are_found_in_other_namespaces() {
        let own = [link(1, "", 0, 0)];
        let mut container = link(4, "macvlan", 0, 1);
        container.peer_netnsid = Some(1);
        // A neighbour's interface that refers to index 1 of its namespace.
        let his = [container.clone(), link(1, "", 0, 0), link(5, "vlan", 0, 1)];
        assert_eq!(kin(&own, &his, 1, Reach::Above).unwrap(), [104]);
        // From the container down to the parent.
        assert_eq!(kin(&[container], &own, 4, Reach::Wire).unwrap(), [101]);
    }

    #[test]
    fn what_cannot_be_seen_is_an_error() {
        let links = [link(1, "macvlan", 0, 7)];
        assert!(kin(&links, &[], 1, Reach::Wire).is_err());
        let links = [link(1, "", 9, 0)];
        assert!(kin(&links, &[], 1, Reach::Wire).is_err());
    }

    #[test]
    fn loopback_leads_nowhere_and_is_the_hosts() {
        let netlink = Netlink::open(&Namespace::current().unwrap()).unwrap();
        assert_eq!(netlink.way_out("lo").unwrap(), None);
        assert!(netlink.host_use("lo").unwrap().is_some());
        assert!(netlink.way_out("wb-none").is_err() && netlink.host_use("wb-none").is_err());
    }
}
