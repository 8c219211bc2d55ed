//! Packet device: the settings of one device of the Linux packet generator, as plain data.
//!
//! The fields have the widths of the kernel's, so that a value out of range wraps here as it does there. This module
//! does not define how fields step from packet to packet.

mod address;
pub mod flags;
mod interface;
mod job;
pub mod mix;
mod text;

use std::net::Ipv6Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use flags::Flags;
pub use interface::{Interface, Link};
pub use job::{DeviceJob, JitterRule, Mode, TimeForm, WatchJob};
pub use mix::Entry;

use crate::units::{Mac, Rational};

pub use address::lax_ipv4;

/// Path of sent packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum XmitMode {
    /// Directly to the driver.
    #[default]
    StartXmit,
    /// Into the receive side of the interface.
    NetifReceive,
    /// Through the queueing discipline.
    QueueXmit,
}

/// Time between two transmit calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Printed value, in whole ns.
    pub shown_ns: u64,
    /// Exact value in ns: `rate` and `ratep` rarely result in whole ns. 0 is full speed.
    pub exact_ns: Rational,
}

impl Delay {
    /// Value for a device that never sends.
    pub const NEVER: u64 = u64::MAX;

    /// Creates a delay of whole ns.
    pub const fn whole(ns: u64) -> Self {
        Self {
            shown_ns: ns,
            exact_ns: Rational::whole(ns),
        }
    }

    /// Creates a delay of `num / den` ns. A value that prints as 0 is full speed.
    pub fn fraction(num: u64, den: u64) -> Self {
        let shown_ns = num.checked_div(den).unwrap_or(0);
        if shown_ns == 0 {
            return Self::whole(0);
        }
        Self {
            shown_ns,
            exact_ns: Rational::new(num.into(), den.into()).unwrap_or(Rational::whole(shown_ns)),
        }
    }

    /// Returns true if the device never sends.
    pub const fn is_never(self) -> bool {
        self.shown_ns == Self::NEVER
    }

    /// Returns the time of call number `call` (from 0) after the first, in ns.
    pub fn due_ns(self, call: u64) -> u64 {
        let whole = u128::from(call) * u128::from(self.exact_ns.numerator())
            / u128::from(self.exact_ns.denominator());
        u64::try_from(whole).unwrap_or(u64::MAX)
    }
}

/// 802.1Q tag of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VlanTag {
    /// VLAN id. Without it, the device adds no tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u16>,
    /// Priority, kept while the tag is off.
    pub priority: u8,
    /// Bit after the priority (CFI), kept while the tag is off.
    pub cfi: u8,
}

impl VlanTag {
    /// Returns the 16 bits of tag control information, if the tag is on.
    pub const fn tci(self) -> Option<u16> {
        match self.id {
            Some(id) => Some((self.priority as u16) << 13 | (self.cfi as u16) << 12 | id),
            None => None,
        }
    }
}

/// Settings of a device after its commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceConfig {
    /// Full name, including the tag after `@`.
    pub name: String,
    /// Number of packets to send; 0 means no limit.
    pub count: u64,
    /// Minimum size in bytes without FCS; 0 means not set yet.
    pub min_size: u32,
    /// Maximum size in bytes without FCS.
    pub max_size: u32,
    /// Mix of sizes, used if the sizes above are not a range.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub imix: Vec<Entry>,
    /// Number of memory fragments of the payload; no effect on the bytes.
    pub frags: i32,
    /// Time between two transmit calls in ns: `5000`, `1000/3` or `never`; 0 means full speed.
    pub delay: Delay,
    /// Number of times that each built packet is sent.
    pub clone_skb: i32,
    /// Packets per transmit call.
    pub burst: i32,
    /// Number of slots of the flow table.
    pub flows: u32,
    /// Packets per flow.
    pub flow_len: u32,
    /// Security parameter index, displayed only.
    pub spi: u32,
    /// First transmit queue.
    pub queue_min: u16,
    /// Last transmit queue.
    pub queue_max: u16,
    /// Priority in the queueing discipline.
    pub skb_priority: u32,
    /// Lowest IPv4 destination, as written.
    pub dst_min: String,
    /// Highest IPv4 destination, as written.
    pub dst_max: String,
    /// Lowest IPv4 source, as written; empty means the address of the interface.
    pub src_min: String,
    /// Highest IPv4 source, as written.
    pub src_max: String,
    /// IPv6 source; `::` means the address of the interface.
    pub src6: Ipv6Addr,
    /// IPv6 destination.
    pub dst6: Ipv6Addr,
    /// Bits that are always set in a random IPv6 destination.
    pub dst6_min: Ipv6Addr,
    /// Bits that may be set in a random IPv6 destination.
    pub dst6_max: Ipv6Addr,
    /// Source hardware address. Default: the address of the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_mac: Option<Mac>,
    /// Destination hardware address.
    pub dst_mac: Mac,
    /// Number of source hardware addresses to step through.
    pub src_mac_count: i32,
    /// Number of destination hardware addresses to step through.
    pub dst_mac_count: i32,
    /// Lowest UDP source port.
    pub udp_src_min: u16,
    /// Exclusive upper bound of the UDP source port.
    pub udp_src_max: u16,
    /// Lowest UDP destination port.
    pub udp_dst_min: u16,
    /// Exclusive upper bound of the UDP destination port.
    pub udp_dst_max: u16,
    /// MPLS words, topmost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<u32>,
    /// Inner VLAN tag.
    pub vlan: VlanTag,
    /// Outer VLAN tag.
    pub svlan: VlanTag,
    /// IPv4 type of service.
    pub tos: u8,
    /// IPv6 traffic class.
    pub traffic_class: u8,
    /// NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<i32>,
    /// Path of sent packets, for display: `start_xmit`, `netif_receive` or `queue_xmit`. In a plan, the port's `way`
    /// determines the path.
    pub xmit_mode: XmitMode,
    /// Names of flags, separated by blanks, such as `UDPCSUM SHARED`.
    pub flags: Flags,
    /// Sending time in ns; 0 means no time limit. Sending ends at the first of `duration_ns` and `count`.
    pub duration_ns: u64,
    /// Number of times that `clear_counters` was written; a sender that sees an increase clears its counters.
    #[serde(skip)]
    pub clears: u64,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self::new("", &Defaults::default())
    }
}

impl DeviceConfig {
    /// Minimum accepted size: Ethernet, IPv4 and UDP headers.
    pub const SMALLEST: u32 = 42;
    /// Maximum number of flows.
    pub const MAX_FLOWS: u32 = 65_536;
    /// Maximum number of MPLS labels.
    pub const MAX_LABELS: usize = 16;

    /// Creates the settings of a device that was just added.
    pub fn new(name: &str, defaults: &Defaults) -> Self {
        Self {
            name: name.to_owned(),
            count: defaults.count,
            min_size: 0,
            max_size: 0,
            imix: Vec::new(),
            frags: 0,
            delay: Delay::whole(defaults.delay_ns),
            clone_skb: defaults.clone_skb,
            burst: 1,
            flows: 0,
            flow_len: 0,
            spi: 0,
            queue_min: 0,
            queue_max: 0,
            skb_priority: 0,
            dst_min: String::new(),
            dst_max: String::new(),
            src_min: String::new(),
            src_max: String::new(),
            src6: Ipv6Addr::UNSPECIFIED,
            dst6: Ipv6Addr::UNSPECIFIED,
            dst6_min: Ipv6Addr::UNSPECIFIED,
            dst6_max: Ipv6Addr::UNSPECIFIED,
            src_mac: None,
            dst_mac: Mac([0; 6]),
            src_mac_count: 0,
            dst_mac_count: 0,
            udp_src_min: 9,
            udp_src_max: 9,
            udp_dst_min: 9,
            udp_dst_max: 9,
            labels: Vec::new(),
            vlan: VlanTag::default(),
            svlan: VlanTag::default(),
            tos: 0,
            traffic_class: 0,
            node: None,
            xmit_mode: XmitMode::default(),
            flags: Flags(Flags::SHARED),
            duration_ns: 0,
            clears: 0,
        }
    }

    /// Returns true if packets are IPv6.
    pub const fn is_ipv6(&self) -> bool {
        self.flags.has(Flags::IPV6)
    }

    /// Length of labels and tags between Ethernet and IP headers, in bytes.
    pub fn overhead(&self) -> u32 {
        4 * (self.labels.len() as u32
            + u32::from(self.vlan.id.is_some())
            + u32::from(self.svlan.id.is_some()))
    }

    /// Length of the frame (without FCS) for a requested `size`, in bytes.
    pub fn frame_len(&self, size: u32) -> u64 {
        let headers = 14 + self.overhead() + if self.is_ipv6() { 40 } else { 20 } + 8;
        u64::from(headers) + u64::from(size.saturating_sub(headers).max(16))
    }

    /// Applies the permanent changes of a start: sets a missing minimum size, raises a maximum size below the minimum,
    /// and limits queues to those of the interface. Returns warnings.
    pub fn settle(&mut self, interface: &Interface) -> Vec<String> {
        let mut warnings = Vec::new();
        let last = interface.tx_queues.max(1) - 1;
        for (what, queue) in [
            ("queue_map_min", &mut self.queue_min),
            ("queue_map_max", &mut self.queue_max),
        ] {
            if *queue > last {
                warnings.push(format!(
                    "{}: {what} {queue} is above the last transmit queue; {last} is used",
                    self.name
                ));
                *queue = last;
            }
        }
        if self.min_size == 0 {
            self.min_size = if self.is_ipv6() { 78 } else { 58 };
        }
        self.max_size = self.max_size.max(self.min_size);
        warnings
    }

    /// Returns true if the size comes from the mix.
    pub fn uses_imix(&self) -> bool {
        self.min_size >= self.max_size && !self.imix.is_empty()
    }

    /// Returns the largest frame of this configuration, in bytes without FCS.
    pub fn largest_frame(&self) -> u64 {
        if self.uses_imix() {
            let sizes = self.imix.iter().map(|e| e.size as u32);
            return self.frame_len(sizes.max().unwrap_or(0));
        }
        self.frame_len(self.max_size.max(self.min_size))
    }

    /// Returns the largest frame that an interface with this MTU sends, in bytes without FCS. A VLAN tag may be added
    /// to the MTU, and an IP packet is at most as long as its length field allows.
    pub fn frame_limit(&self, mtu: u32) -> u64 {
        let tag = if self.vlan.id.is_some() { 4 } else { 0 };
        let packet = 65_535 + if self.is_ipv6() { 40 } else { 0 };
        (14 + tag + u64::from(mtu)).min(14 + u64::from(self.overhead()) + packet)
    }

    /// Returns the IPv4 source range; the address of the interface if none was written.
    pub fn source_range(&self, interface: &Interface) -> (u32, u32) {
        if self.src_min.is_empty() {
            let own = interface.ipv4.map_or(0, u32::from);
            (own, own)
        } else {
            (lax_ipv4(&self.src_min), lax_ipv4(&self.src_max))
        }
    }

    /// Returns the IPv4 destination range.
    pub fn destination_range(&self) -> (u32, u32) {
        (lax_ipv4(&self.dst_min), lax_ipv4(&self.dst_max))
    }
}

/// Defaults of a new device that are parameters of the kernel module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// `pg_count_d`.
    pub count: u64,
    /// `pg_delay_d`, in ns.
    pub delay_ns: u64,
    /// `pg_clone_skb_d`.
    pub clone_skb: i32,
    /// `debug`.
    pub debug: u64,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            count: 1000,
            delay_ns: 0,
            clone_skb: 0,
            debug: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_exact() {
        let delay = Delay::fraction(1_000_000_000, 3_000_000);
        assert_eq!(delay.shown_ns, 333);
        assert_eq!(delay.due_ns(3_000_000), 1_000_000_000);
        assert_eq!(
            Delay::fraction(1_000_000_000, 2_000_000_000),
            Delay::whole(0)
        );
        assert!(Delay::whole(Delay::NEVER).is_never());
        assert_eq!(Delay::whole(Delay::NEVER).due_ns(2), u64::MAX);
    }

    #[test]
    fn frames_are_never_below_their_headers() {
        let mut config = DeviceConfig::new("eth0", &Defaults::default());
        assert_eq!(config.frame_len(42), 58);
        assert_eq!(config.frame_len(60), 60);
        config.flags.put(Flags::IPV6, true);
        assert_eq!(config.frame_len(60), 78);
        config.vlan.id = Some(1);
        assert_eq!(config.frame_len(60), 82);
        assert_eq!(config.frame_limit(1500), 1518);
    }
}
