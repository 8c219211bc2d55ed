//! Properties of an interface that a device needs.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::units::Mac;

/// Link type of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Ethernet frames.
    #[default]
    Ethernet,
    /// Loopback interface.
    Loopback,
    /// Other link types, which devices do not support.
    Other,
}

/// Network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// True if the interface is up.
    pub up: bool,
    /// Link type.
    pub link: Link,
    /// Hardware address.
    pub mac: Mac,
    /// First IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Link-local IPv6 address, unless still tentative.
    pub link_local: Option<Ipv6Addr>,
    /// Number of transmit queues in use; 0 counts as 1.
    pub tx_queues: u16,
    /// Maximum packet size in bytes, without the Ethernet header.
    pub mtu: u32,
    /// True if the kernel driver can send one packet several times. Needed by a strict dialect only.
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
