//! A device: its configuration, its progress and the text of its file.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::address::show_ipv6;
use wb_model::device::flags::FLAGS;
use wb_model::device::{DeviceConfig, Flags, Interface, VlanTag, XmitMode};
use wb_pktgen_device::{DeviceProgress, Memory};

/// Identifier of a device, unique within its folder and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u64);

/// One device of a folder.
#[derive(Clone, Debug)]
pub struct PktgenDevice {
    pub(crate) id: DeviceId,
    /// CPU of the thread to which the device was added.
    pub(crate) cpu: u32,
    /// Name of the file: the full name, until the interface is renamed.
    pub(crate) file: String,
    /// Interface of the device, under its present name.
    pub(crate) interface: String,
    pub(crate) config: DeviceConfig,
    pub(crate) progress: DeviceProgress,
    pub(crate) memory: Memory,
    pub(crate) result: String,
    pub(crate) running: bool,
}

/// Copies random VLAN ids and MPLS labels into the configuration, as the kernel does for these flags.
pub(crate) fn keep_drawn(config: &mut DeviceConfig, walked: &DeviceConfig) {
    let drawn = |tag: &mut VlanTag, from: &VlanTag, on| {
        if on && tag.id.is_some() && from.id.is_some() {
            tag.id = from.id;
        }
    };
    let flags = config.flags;
    drawn(&mut config.vlan, &walked.vlan, flags.has(Flags::VID_RND));
    drawn(&mut config.svlan, &walked.svlan, flags.has(Flags::SVID_RND));
    if flags.has(Flags::MPLS_RND) && config.labels.len() == walked.labels.len() {
        config.labels.clone_from(&walked.labels);
    }
}

impl PktgenDevice {
    /// Full name, including the tag after `@`.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Interface of the device, under its present name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// CPU of its thread.
    pub const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Settings of the device.
    pub const fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Progress of the present or last run.
    pub const fn progress(&self) -> &DeviceProgress {
        &self.progress
    }

    /// Returns true if the device runs.
    pub const fn is_running(&self) -> bool {
        self.running
    }

    /// Text after `Result: ` in the file.
    pub fn result_text(&self) -> &str {
        if self.result.is_empty() {
            "Idle"
        } else {
            &self.result
        }
    }

    /// Text of the file. `now_ns` is CLOCK_MONOTONIC.
    pub(crate) fn file_text(&self, interface: Option<&Interface>, now_ns: u64) -> String {
        let mut text = String::with_capacity(1024);
        self.show_settings(&mut text, interface);
        self.show_current(&mut text, now_ns);
        let _ = writeln!(text, "Result: {}", self.result_text());
        text
    }

    fn show_settings(&self, text: &mut String, interface: Option<&Interface>) {
        let c = &self.config;
        // Writing to a String does not fail.
        macro_rules! line {
            ($($part:tt)*) => { let _ = writeln!(text, $($part)*); };
        }
        line!(
            "Params: count {}  min_pkt_size: {}  max_pkt_size: {}",
            c.count,
            c.min_size,
            c.max_size
        );
        if !c.imix.is_empty() {
            show_mix(
                text,
                "imix_weights",
                c.imix.iter().map(|e| (e.size, e.weight)),
            );
        }
        line!(
            "     frags: {}  delay: {}  clone_skb: {}  ifname: {}",
            c.frags,
            c.delay.shown_ns,
            c.clone_skb,
            c.name
        );
        line!("     flows: {} flowlen: {}", c.flows, c.flow_len);
        line!(
            "     queue_map_min: {}  queue_map_max: {}",
            c.queue_min,
            c.queue_max
        );
        if c.skb_priority != 0 {
            line!("     skb_priority: {}", c.skb_priority);
        }
        if c.is_ipv6() {
            line!(
                "     saddr: {}  min_saddr: ::  max_saddr: ::",
                show_ipv6(c.src6)
            );
            line!(
                "     daddr: {}  min_daddr: {}  max_daddr: {}",
                show_ipv6(c.dst6),
                show_ipv6(c.dst6_min),
                show_ipv6(c.dst6_max)
            );
        } else {
            line!("     dst_min: {}  dst_max: {}", c.dst_min, c.dst_max);
            line!("     src_min: {}  src_max: {}", c.src_min, c.src_max);
        }
        let own = interface.map(|i| i.mac).unwrap_or_default();
        line!(
            "     src_mac: {} dst_mac: {}",
            c.src_mac.unwrap_or(own),
            c.dst_mac
        );
        line!(
            "     udp_src_min: {}  udp_src_max: {}  udp_dst_min: {}  udp_dst_max: {}",
            c.udp_src_min,
            c.udp_src_max,
            c.udp_dst_min,
            c.udp_dst_max
        );
        line!(
            "     src_mac_count: {}  dst_mac_count: {}",
            c.src_mac_count,
            c.dst_mac_count
        );
        if !c.labels.is_empty() {
            let words: Vec<_> = c.labels.iter().map(|w| format!("{w:08x}")).collect();
            line!("     mpls: {}", words.join(", "));
        }
        for (label, tag) in [("vlan_id", c.vlan), ("svlan_id", c.svlan)] {
            if let Some(id) = tag.id {
                line!(
                    "     {label}: {id}  vlan_p: {}  vlan_cfi: {}",
                    tag.priority,
                    tag.cfi
                );
            }
        }
        if c.tos != 0 {
            line!("     tos: 0x{:02x}", c.tos);
        }
        if c.traffic_class != 0 {
            line!("     traffic_class: 0x{:02x}", c.traffic_class);
        }
        // Shown as a signed number, but compared as an unsigned 32-bit number.
        if c.burst as u32 > 1 {
            line!("     burst: {}", c.burst);
        }
        if let Some(node) = c.node {
            line!("     node: {node}");
        }
        let mode = match c.xmit_mode {
            XmitMode::StartXmit => None,
            XmitMode::NetifReceive => Some("netif_receive"),
            XmitMode::QueueXmit => Some("xmit_queue"),
        };
        if let Some(mode) = mode {
            line!("     xmit_mode: {mode}");
        }
        line!("     Flags: {}", show_flags(c));
    }

    fn show_current(&self, text: &mut String, now_ns: u64) {
        let p = &self.progress;
        let stopped = if self.running { now_ns } else { p.stopped_ns };
        let _ = writeln!(
            text,
            "Current:\n     pkts-sofar: {}  errors: {}",
            p.sofar, p.errors
        );
        if !self.config.imix.is_empty() {
            let counts = p.imix_counts.iter().chain(std::iter::repeat(&0));
            let sizes = self.config.imix.iter().map(|e| e.size);
            show_mix(text, "imix_size_counts", sizes.zip(counts.copied()));
        }
        let (saddr, daddr) = if self.config.is_ipv6() {
            (show_ipv6(p.saddr6), show_ipv6(p.daddr6))
        } else {
            (
                Ipv4Addr::from(p.saddr).to_string(),
                Ipv4Addr::from(p.daddr).to_string(),
            )
        };
        let _ = writeln!(
            text,
            "     started: {}us  stopped: {}us idle: {}us\n     \
             seq_num: {}  cur_dst_mac_offset: {}  cur_src_mac_offset: {}\n     \
             cur_saddr: {saddr}  cur_daddr: {daddr}\n     \
             cur_udp_dst: {}  cur_udp_src: {}\n     \
             cur_queue_map: {}\n     \
             flows: {}",
            p.started_ns / 1000,
            stopped / 1000,
            p.idle_ns / 1000,
            p.seq_num as i32,
            p.dst_mac_offset as i32,
            p.src_mac_offset as i32,
            p.udp_dst,
            p.udp_src,
            p.queue,
            p.flows
        );
    }
}

fn show_mix(text: &mut String, label: &str, pairs: impl Iterator<Item = (u64, u64)>) {
    let _ = write!(text, "     {label}: ");
    for (size, number) in pairs {
        let _ = write!(text, "{size},{number} ");
    }
    text.push('\n');
}

/// Names of the set flags, each followed by two blanks.
fn show_flags(config: &DeviceConfig) -> String {
    let mut text = String::new();
    for flag in FLAGS {
        let on = config.flags.has(flag.bit);
        match flag.bit {
            Flags::FLOW_SEQ if config.flows == 0 => {}
            Flags::FLOW_SEQ if !on => text.push_str("FLOW_RND  "),
            Flags::IPSEC if on && config.spi > 0 => {
                let _ = write!(text, "IPSEC  spi:{}  ", config.spi);
            }
            _ if on => {
                text.push_str(flag.name);
                text.push_str("  ");
            }
            _ => {}
        }
    }
    text
}
