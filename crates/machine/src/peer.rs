//! Finds the peer of a veth in any namespace.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use crate::error::Result;
use crate::link::{Link, LinkKind};
use crate::netlink::{Netlink, NetlinkRequest};
use crate::netns::{self, Namespace};

/// Namespace and name of the peer of the veth `name` in `namespace`. `None` if `name` is not a veth, or its peer is in
/// a namespace that has no name and is not the thread's.
///
/// # Errors
/// [`HostError::UnknownInterface`](crate::HostError::UnknownInterface); an error if a namespace cannot be entered.
pub fn veth_peer(namespace: &Namespace, name: &str) -> Result<Option<(Namespace, String)>> {
    let netlink = Netlink::open(namespace)?;
    let end = netlink.link(name)?;
    let (LinkKind::Veth, Some(index)) = (&end.kind, end.peer_index) else {
        return Ok(None);
    };
    let Some(id) = end.peer_netnsid else {
        return Ok(other_end(&netlink.links()?, index, &end).map(|peer| (namespace.clone(), peer)));
    };
    for candidate in candidates()? {
        if netlink.id_of(&candidate)? != Some(id) {
            continue;
        }
        let links = Netlink::open(&candidate)?.links()?;
        return Ok(other_end(&links, index, &end).map(|peer| (candidate, peer)));
    }
    Ok(None)
}

/// Namespaces that can be searched: this thread's and all named ones.
pub(crate) fn candidates() -> Result<Vec<Namespace>> {
    let mut all = vec![Namespace::current()?];
    // Skip namespaces that are removed meanwhile, and left-over files.
    all.extend(
        netns::list()?
            .iter()
            .filter_map(|name| Namespace::named(name).ok()),
    );
    // Prefer named namespaces, because messages can show the name.
    all.sort_by_key(|namespace| namespace.name().is_none());
    Ok(all)
}

fn other_end(links: &[Link], index: u32, end: &Link) -> Option<String> {
    links
        .iter()
        .find(|link| {
            link.index == index && link.kind == LinkKind::Veth && link.peer_index == Some(end.index)
        })
        .map(|link| link.name.clone())
}

impl Netlink {
    /// Id of another namespace in this one, if it has been assigned.
    pub(crate) fn id_of(&self, other: &Namespace) -> Result<Option<i32>> {
        let mut message = NsidMessage::default();
        let fd = u32::try_from(netns::raw_fd(other)).expect("an open descriptor is not negative");
        message.attributes.push(NsidAttribute::Fd(fd));
        let answers = self
            .ask(RouteNetlinkMessage::GetNsId(message), NetlinkRequest::Plain)
            .map_err(|refusal| refusal.on("look up the id of", other.place()))?;
        let id = answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewNsId(message) => {
                message
                    .attributes
                    .iter()
                    .find_map(|attribute| match attribute {
                        NsidAttribute::Id(id) => Some(*id),
                        _ => None,
                    })
            }
            _ => None,
        });
        Ok(id.filter(|id| *id >= 0))
    }
}
