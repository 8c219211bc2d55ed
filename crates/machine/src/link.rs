//! Links: lists interfaces with their kind and counters, creates veth pairs, and makes the changes of `ip link`.
//!
//! Does not know addresses, routes or the properties that only ethtool reports (speed, channels, offloads).

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
    LinkXdp, Stats64, XdpAttached,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use wb_counters::LinkCounters;

use crate::error::{self, HostError, Result};
use crate::netlink::{Netlink, NetlinkRefusal, NetlinkRequest};
use crate::netns::{self, Namespace};

/// net/if.h: IFNAMSIZ without the terminating zero.
const NAME_MAX: usize = 15;

/// Interface as described by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index in its namespace.
    pub index: u32,
    /// Name in its namespace.
    pub name: String,
    /// Hardware address; zeros if there is none.
    pub mac: [u8; 6],
    /// MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Largest MTU in bytes, if the driver reports it.
    pub max_mtu: Option<u32>,
    /// True if the interface is up (IFF_UP).
    pub up: bool,
    /// True if the interface has a carrier.
    pub carrier: bool,
    /// True if the interface is promiscuous, set by `ip link` or by a socket.
    pub promiscuous: bool,
    /// Kind of the interface.
    pub kind: LinkKind,
    /// True if the interface carries Ethernet frames (ARPHRD_ETHER).
    pub ethernet: bool,
    /// Index of the bridge, bond or other device of which the interface is a port.
    pub master_index: Option<u32>,
    /// Index of the veth peer or of the parent device, in its namespace.
    pub peer_index: Option<u32>,
    /// Id of the peer's namespace in this namespace; `None` if both are in the same one.
    pub peer_netnsid: Option<i32>,
    /// Allocated transmit queues; `ethtool -l` lists the active ones.
    pub num_tx_queues: u32,
    /// Allocated receive queues.
    pub num_rx_queues: u32,
    /// Attached XDP program.
    pub xdp_attached: Option<XdpProgram>,
}

/// What an interface is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String", into = "String")]
pub enum LinkKind {
    /// A device of a bus, real or of the virtual machine.
    #[default]
    Physical,
    /// The loopback.
    Loopback,
    /// One end of a virtual wire.
    Veth,
    /// A learning bridge.
    Bridge,
    /// A tun or tap.
    Tun,
    /// Something else that is made by software, by its netlink name: `vlan`, `bond`, `dummy`.
    Other(String),
}

impl LinkKind {
    /// Returns true if frames on the interface never reach a wire, so that its speed has no meaning.
    pub fn is_virtual(&self) -> bool {
        !matches!(self, LinkKind::Physical)
    }
}

impl std::fmt::Display for LinkKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LinkKind::Physical => "physical",
            LinkKind::Loopback => "loopback",
            LinkKind::Veth => "veth",
            LinkKind::Bridge => "bridge",
            LinkKind::Tun => "tun",
            LinkKind::Other(kind) => kind,
        })
    }
}

impl From<LinkKind> for String {
    fn from(kind: LinkKind) -> Self {
        kind.to_string()
    }
}

impl From<String> for LinkKind {
    fn from(name: String) -> Self {
        match name.as_str() {
            "physical" => LinkKind::Physical,
            "loopback" => LinkKind::Loopback,
            "veth" => LinkKind::Veth,
            "bridge" => LinkKind::Bridge,
            "tun" => LinkKind::Tun,
            _ => LinkKind::Other(name),
        }
    }
}

/// An XDP program found on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct XdpProgram {
    /// Its id, as `bpftool prog` lists it.
    pub id: u32,
    /// Where it runs.
    pub mode: XdpMode,
}

impl XdpProgram {
    /// Warning for captures behind this program. Includes the process that holds the program, if found.
    pub fn warning(&self) -> String {
        let holder = crate::process::holder_of_program(self.id).map_or(String::new(), |pid| {
            let command = crate::process::command_of(pid).unwrap_or_default();
            format!(" (process {pid}: {command})")
        });
        format!(
            "XDP program ID {}{holder} is attached; frames that it consumes are not seen here",
            self.id
        )
    }
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// After the driver, on ready-made socket buffers.
    Generic,
    /// In the device.
    Offloaded,
    /// In several of these places.
    Several,
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
            XdpMode::Offloaded => "offloaded",
            XdpMode::Several => "several modes",
        })
    }
}

/// Description of one end of a new veth pair.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Namespace.
    pub namespace: &'a Namespace,
    /// Name.
    pub name: &'a str,
    /// Hardware address; `None` for a random one.
    pub mac: Option<[u8; 6]>,
    /// Number of transmit and of receive queues, all active.
    pub queues: u32,
    /// MTU in bytes; `None` for 1500.
    pub mtu: Option<u32>,
}

/// All interfaces of a namespace, by index.
///
/// # Errors
/// If the namespace cannot be entered.
pub fn links(namespace: &Namespace) -> Result<Vec<Link>> {
    Netlink::open(namespace)?.links()
}

/// The interface `name` of a namespace.
///
/// # Errors
/// [`HostError::UnknownInterface`], with similar names and all existing names.
pub fn link_by_name(namespace: &Namespace, name: &str) -> Result<Link> {
    Netlink::open(namespace)?.link(name)
}

/// Creates a veth pair directly in the final namespaces. Both ends are down.
///
/// # Errors
/// [`HostError::Exists`] if a name is in use; a refusal without the required privileges.
pub fn create_veth(a: &VethEnd<'_>, b: &VethEnd<'_>) -> Result<()> {
    check_name(a.name)?;
    check_name(b.name)?;
    let mut message = LinkMessage::default();
    message.attributes = a.attributes();
    let mut peer = LinkMessage::default();
    peer.attributes = b.attributes();
    peer.attributes
        .push(LinkAttribute::NetNsFd(netns::raw_fd(b.namespace)));
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    let netlink = Netlink::open(a.namespace)?;
    netlink
        .ask(
            RouteNetlinkMessage::NewLink(message),
            NetlinkRequest::Create,
        )
        .map(drop)
        .map_err(|refusal| {
            if refusal.errno() != Some(libc::EEXIST) {
                return refusal.on("create", format!("the veth pair {} - {}", a.name, b.name));
            }
            // Either name may be in use; the kernel does not report which.
            let taken = if netlink.link(a.name).is_ok() { a } else { b };
            HostError::Exists {
                object: format!("interface {} in {}", taken.name, taken.namespace.place()),
                command: format!(
                    "{}ip link delete {}",
                    taken.namespace.command_prefix(),
                    taken.name
                ),
            }
        })
}

impl VethEnd<'_> {
    fn attributes(&self) -> Vec<LinkAttribute> {
        // If the counts are given, veth activates all queues, otherwise only the first.
        let mut attributes = vec![
            LinkAttribute::IfName(self.name.into()),
            LinkAttribute::NumTxQueues(self.queues),
            LinkAttribute::NumRxQueues(self.queues),
        ];
        attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
        attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        attributes
    }
}

impl Netlink {
    /// All interfaces of the namespace, by index.
    ///
    /// # Errors
    /// If the kernel refuses the list.
    pub fn links(&self) -> Result<Vec<Link>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self
            .ask(request, NetlinkRequest::Dump)
            .map_err(|r| r.on("list", self.interfaces()))?;
        let mut links: Vec<Link> = answers.iter().filter_map(as_link).map(Link::from).collect();
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// Like [`links`](Self::links), but returns an error if one of them cannot be read.
    pub(crate) fn all_links(&self) -> Result<Vec<Link>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self
            .ask_whole(request)
            .map_err(|r| r.on("list", self.interfaces()))?;
        Ok(answers.iter().filter_map(as_link).map(Link::from).collect())
    }

    /// The interface `name`.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`], with similar names and all existing names.
    pub fn link(&self, name: &str) -> Result<Link> {
        self.message_of(name).map(|message| Link::from(&message))
    }

    /// Counters of the interface since its creation.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`].
    pub fn counters(&self, name: &str) -> Result<LinkCounters> {
        let message = self.message_of(name)?;
        counters_of(&message).ok_or_else(|| {
            let none = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
            NetlinkRefusal::from(none).on("read the counters of", name)
        })
    }

    /// Sets the interface up.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`]; a refusal without the required privileges.
    pub fn set_up(&self, name: &str) -> Result<()> {
        self.change(name, "bring up", |message| {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        })
    }

    /// Sets the interface down.
    ///
    /// # Errors
    /// See [`Netlink::set_up`].
    pub fn set_down(&self, name: &str) -> Result<()> {
        self.change(name, "take down", |message| {
            message.header.change_mask = LinkFlags::Up
        })
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// See [`Netlink::set_up`]; a refusal for an MTU that the device does not support.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> Result<()> {
        self.change(name, "set the MTU of", |m| {
            m.attributes.push(LinkAttribute::Mtu(mtu))
        })
    }

    /// Sets the hardware address.
    ///
    /// # Errors
    /// See [`Netlink::set_up`].
    pub fn set_mac(&self, name: &str, mac: [u8; 6]) -> Result<()> {
        self.change(name, "set the hardware address of", |message| {
            message
                .attributes
                .push(LinkAttribute::Address(mac.to_vec()));
        })
    }

    /// Removes the interface, with its peer if it is a veth.
    ///
    /// # Errors
    /// See [`Netlink::set_up`].
    pub fn delete_link(&self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.link(name)?.index;
        self.ask(RouteNetlinkMessage::DelLink(message), NetlinkRequest::Plain)
            .map(drop)
            .map_err(|refusal| refusal.on("delete", name))
    }

    pub(crate) fn change(
        &self,
        name: &str,
        operation: &'static str,
        edit: impl FnOnce(&mut LinkMessage),
    ) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.link(name)?.index;
        edit(&mut message);
        self.ask(RouteNetlinkMessage::SetLink(message), NetlinkRequest::Plain)
            .map(drop)
            .map_err(|refusal| refusal.on(operation, name))
    }

    /// All interfaces with their counters.
    pub(crate) fn all_counters(&self) -> Result<Vec<(Link, LinkCounters)>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self
            .ask(request, NetlinkRequest::Dump)
            .map_err(|r| r.on("list", self.interfaces()))?;
        let with_counters = |message| Some((Link::from(message), counters_of(message)?));
        Ok(answers
            .iter()
            .filter_map(as_link)
            .filter_map(with_counters)
            .collect())
    }

    /// Interface with this index and its counters; `None` if it was removed.
    pub(crate) fn counters_at(&self, index: u32) -> Result<Option<(Link, LinkCounters)>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        match self.ask(RouteNetlinkMessage::GetLink(message), NetlinkRequest::Plain) {
            Ok(answers) => Ok(answers
                .iter()
                .find_map(as_link)
                .and_then(|message| Some((Link::from(message), counters_of(message)?)))),
            Err(refusal) if refusal.errno() == Some(libc::ENODEV) => Ok(None),
            Err(refusal) => Err(refusal.on("read the counters of", format!("interface {index}"))),
        }
    }

    fn message_of(&self, name: &str) -> Result<LinkMessage> {
        if check_name(name).is_err() {
            return Err(self.unknown(name)?);
        }
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        match self.ask(RouteNetlinkMessage::GetLink(message), NetlinkRequest::Plain) {
            Ok(answers) => match answers.into_iter().next() {
                Some(RouteNetlinkMessage::NewLink(message)) => Ok(message),
                _ => Err(self.unknown(name)?),
            },
            Err(refusal) if refusal.errno() == Some(libc::ENODEV) => Err(self.unknown(name)?),
            Err(refusal) => Err(refusal.on("look up", name)),
        }
    }

    fn unknown(&self, name: &str) -> Result<HostError> {
        let existing: Vec<String> = self.links()?.into_iter().map(|link| link.name).collect();
        let nearest = error::nearest(name, &existing);
        Ok(HostError::UnknownInterface {
            name: name.into(),
            place: self.namespace().place(),
            nearest,
            existing,
        })
    }

    fn interfaces(&self) -> String {
        format!("the interfaces of {}", self.namespace().place())
    }
}

fn as_link(message: &RouteNetlinkMessage) -> Option<&LinkMessage> {
    match message {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    let why = match name {
        "" => "it must not be empty",
        "." | ".." => "it must not be . or ..",
        _ if name.len() > NAME_MAX => "it must have at most 15 bytes",
        _ if name.contains(|c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace()) => {
            "it must not contain slashes, colons or spaces"
        }
        _ => return Ok(()),
    };
    Err(HostError::BadName {
        name: name.into(),
        what: "an interface",
        why,
    })
}

impl From<&LinkMessage> for Link {
    fn from(message: &LinkMessage) -> Self {
        let header = &message.header;
        let loopback = header.link_layer_type == LinkLayerType::Loopback;
        let mut link = Link {
            index: header.index,
            name: String::new(),
            mac: [0; 6],
            mtu: 0,
            max_mtu: None,
            up: header.flags.contains(LinkFlags::Up),
            carrier: header.flags.contains(LinkFlags::LowerUp),
            promiscuous: header.flags.contains(LinkFlags::Promisc),
            kind: if loopback {
                LinkKind::Loopback
            } else {
                LinkKind::Physical
            },
            ethernet: header.link_layer_type == LinkLayerType::Ether,
            master_index: None,
            peer_index: None,
            peer_netnsid: None,
            num_tx_queues: 1,
            num_rx_queues: 1,
            xdp_attached: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(bytes) => {
                    link.mac = bytes.as_slice().try_into().unwrap_or_default();
                }
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::MaxMtu(mtu) => link.max_mtu = (*mtu != 0).then_some(*mtu),
                LinkAttribute::Carrier(carrier) => link.carrier = *carrier != 0,
                LinkAttribute::Promiscuity(count) => link.promiscuous |= *count > 0,
                LinkAttribute::Link(index) => link.peer_index = (*index != 0).then_some(*index),
                LinkAttribute::Controller(index) => {
                    link.master_index = (*index != 0).then_some(*index);
                }
                LinkAttribute::LinkNetNsId(id) => link.peer_netnsid = Some(*id),
                LinkAttribute::NumTxQueues(count) => link.num_tx_queues = *count,
                LinkAttribute::NumRxQueues(count) => link.num_rx_queues = *count,
                LinkAttribute::LinkInfo(infos) => {
                    if let Some(kind) = infos.iter().find_map(kind_of) {
                        link.kind = kind;
                    }
                }
                LinkAttribute::Xdp(facts) => link.xdp_attached = xdp_of(facts),
                _ => {}
            }
        }
        link
    }
}

fn kind_of(info: &LinkInfo) -> Option<LinkKind> {
    let LinkInfo::Kind(kind) = info else {
        return None;
    };
    Some(match kind {
        InfoKind::Veth => LinkKind::Veth,
        InfoKind::Bridge => LinkKind::Bridge,
        InfoKind::Tun => LinkKind::Tun,
        other => LinkKind::Other(other.to_string()),
    })
}

fn xdp_of(facts: &[LinkXdp]) -> Option<XdpProgram> {
    let attached = facts.iter().find_map(|fact| match fact {
        LinkXdp::Attached(attached) => Some(*attached),
        _ => None,
    })?;
    let mode = match attached {
        XdpAttached::None => return None,
        XdpAttached::Driver => XdpMode::Native,
        XdpAttached::SocketBuffer => XdpMode::Generic,
        XdpAttached::Hardware => XdpMode::Offloaded,
        _ => XdpMode::Several,
    };
    // Several programs have no common id. Use the program in the driver, which receives the frames first.
    let id = facts.iter().find_map(|fact| match fact {
        LinkXdp::ProgId(id) => Some(*id),
        LinkXdp::DrvProgId(id) if mode == XdpMode::Several => Some(*id),
        _ => None,
    });
    Some(XdpProgram {
        id: id.unwrap_or(0),
        mode,
    })
}

/// Counters in a link's message, if the kernel included any.
pub(crate) fn counters_of(message: &LinkMessage) -> Option<LinkCounters> {
    let downs = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::CarrierDownCount(downs) => Some(u64::from(*downs)),
            _ => None,
        });
    let stats = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats),
            _ => None,
        })?;
    Some(counted(stats, downs.unwrap_or(0)))
}

fn counted(stats: &Stats64, carrier_downs: u64) -> LinkCounters {
    LinkCounters {
        rx_packets: stats.rx_packets,
        tx_packets: stats.tx_packets,
        rx_bytes: stats.rx_bytes,
        tx_bytes: stats.tx_bytes,
        rx_errors: stats.rx_errors,
        tx_errors: stats.tx_errors,
        rx_dropped: stats.rx_dropped,
        tx_dropped: stats.tx_dropped,
        multicast: stats.multicast,
        collisions: stats.collisions,
        rx_length_errors: stats.rx_length_errors,
        rx_over_errors: stats.rx_over_errors,
        rx_crc_errors: stats.rx_crc_errors,
        rx_frame_errors: stats.rx_frame_errors,
        rx_fifo_errors: stats.rx_fifo_errors,
        rx_missed_errors: stats.rx_missed_errors,
        tx_aborted_errors: stats.tx_aborted_errors,
        tx_carrier_errors: stats.tx_carrier_errors,
        tx_fifo_errors: stats.tx_fifo_errors,
        tx_heartbeat_errors: stats.tx_heartbeat_errors,
        tx_window_errors: stats.tx_window_errors,
        rx_compressed: stats.rx_compressed,
        tx_compressed: stats.tx_compressed,
        rx_nohandler: stats.rx_nohandler,
        rx_otherhost_dropped: stats.rx_otherhost_dropped,
        carrier_downs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_without_privileges() {
        let here = Namespace::current().unwrap();
        let lo = link_by_name(&here, "lo").unwrap();
        assert_eq!(
            (lo.index, lo.kind.clone(), lo.mac),
            (1, LinkKind::Loopback, [0; 6])
        );
        assert!(links(&here).unwrap().contains(&lo));
        assert_eq!(
            Netlink::open(&here)
                .unwrap()
                .counters("lo")
                .unwrap()
                .named()
                .count(),
            26
        );
    }

    #[test]
    fn names_too_long_for_an_interface_are_unknown_not_refused() {
        let here = Namespace::current().unwrap();
        let error = link_by_name(&here, "a-name-of-more-than-15").unwrap_err();
        assert!(
            matches!(error, HostError::UnknownInterface { .. }),
            "{error}"
        );
        assert!(matches!(check_name("a b"), Err(HostError::BadName { .. })));
    }

    #[test]
    fn xdp_facts() {
        let generic = [
            LinkXdp::Attached(XdpAttached::SocketBuffer),
            LinkXdp::ProgId(7),
        ];
        assert_eq!(
            xdp_of(&generic),
            Some(XdpProgram {
                id: 7,
                mode: XdpMode::Generic
            })
        );
        assert_eq!(xdp_of(&[LinkXdp::Attached(XdpAttached::None)]), None);
        let several = [
            LinkXdp::Attached(XdpAttached::Multiple),
            LinkXdp::SkbProgId(8),
            LinkXdp::DrvProgId(9),
        ];
        assert_eq!(
            xdp_of(&several),
            Some(XdpProgram {
                id: 9,
                mode: XdpMode::Several
            })
        );
    }
}
