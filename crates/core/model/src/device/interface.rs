//! What a device must know of the interface it sends on.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::units::Mac;

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
    pub mac: Mac,
    /// Its first IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its link-local IPv6 address, unless still tentative.
    pub link_local: Option<Ipv6Addr>,
    /// Transmit queues in use; 0 counts as 1.
    pub tx_queues: u16,
    /// Largest packet it carries, without the Ethernet header.
    pub mtu: u32,
    /// Whether its kernel driver could send one packet several times. Asked only by
    /// a strict dialect.
    pub shares_packets: bool,
}

impl Default for Interface {
    fn default() -> Self {
        Self {
            up: true,
            link: Link::Ethernet,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            ipv4: None,
            link_local: None,
            tx_queues: 1,
            mtu: 1500,
            shares_packets: true,
        }
    }
}
