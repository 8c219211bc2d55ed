//! What the language must know of the machine, as questions to the caller.

use std::net::{Ipv4Addr, Ipv6Addr};

use wb_wire::MacAddr;

/// What kind of link an interface is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Ethernet frames.
    #[default]
    Ethernet,
    /// The loopback interface.
    Loopback,
    /// Anything else: devices cannot be made of it.
    Other,
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Whether it is set up.
    pub up: bool,
    /// What it carries.
    pub link: Link,
    /// Its own address.
    pub mac: MacAddr,
    /// Its first IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its link-local IPv6 address, unless still tentative.
    pub link_local: Option<Ipv6Addr>,
    /// Transmit queues in use; 0 counts as 1.
    pub tx_queues: u16,
    /// Largest packet it carries, without the Ethernet header.
    pub mtu: u32,
    /// Whether its kernel driver could send one packet several times. Asked only by
    /// [`Options::strict_sharing`](crate::control::Options::strict_sharing).
    pub shares_packets: bool,
}

impl Default for Interface {
    fn default() -> Self {
        Self {
            up: true,
            link: Link::Ethernet,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ipv4: None,
            link_local: None,
            tx_queues: 1,
            mtu: 1500,
            shares_packets: true,
        }
    }
}

/// The machine, as far as the control files ask about it.
pub trait World {
    /// The interface of this name, if there is one.
    fn interface(&self, name: &str) -> Option<Interface>;
    /// Whether this NUMA node may exist.
    fn node_possible(&self, node: i32) -> bool;
    /// Whether the writer has CAP_NET_ADMIN.
    fn may_administer(&self) -> bool;
}

/// An instant on both clocks of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// CLOCK_REALTIME, ns.
    pub wall_ns: u64,
    /// CLOCK_MONOTONIC, ns.
    pub mono_ns: u64,
}
