//! State of a device: the `Current:` values and the counters of its run.

use std::net::Ipv6Addr;

use wb_model::device::{DeviceConfig, Interface, lax_ipv4};

/// Counters and current field values of a device.
#[derive(Debug, PartialEq, Eq)]
pub struct DeviceProgress {
    /// Packets sent in this run.
    pub sofar: u64,
    /// Packets that the port refused.
    pub errors: u64,
    /// CLOCK_MONOTONIC of the start, in ns; 0 before the first run.
    pub started_ns: u64,
    /// CLOCK_MONOTONIC of the end, in ns.
    pub stopped_ns: u64,
    /// Time spent waiting, in ns.
    pub idle_ns: u64,
    /// Sequence number of the next built packet.
    pub seq_num: u32,
    /// Next offset of the destination MAC.
    pub dst_mac_offset: u32,
    /// Next offset of the source MAC.
    pub src_mac_offset: u32,
    /// IPv4 source.
    pub saddr: u32,
    /// IPv4 destination.
    pub daddr: u32,
    /// IPv6 source.
    pub saddr6: Ipv6Addr,
    /// IPv6 destination.
    pub daddr6: Ipv6Addr,
    /// UDP source.
    pub udp_src: u16,
    /// UDP destination.
    pub udp_dst: u16,
    /// Transmit queue.
    pub queue: u16,
    /// Flows started in this run.
    pub flows: u32,
    /// Size of the last built packet as configured, bytes without FCS.
    pub size: u32,
    /// Fragments of the current packet; `None` if there is no packet.
    pub frags: Option<u32>,
    /// Packets built for each entry of the mix.
    pub imix_counts: Vec<u64>,
}

// Written by hand, so that `clone_from` does not allocate: a worker publishes its progress many times a second.
impl Clone for DeviceProgress {
    fn clone(&self) -> Self {
        let mut clone = Self::default();
        clone.clone_from(self);
        clone
    }

    fn clone_from(&mut self, source: &Self) {
        let mut imix_counts = std::mem::take(&mut self.imix_counts);
        imix_counts.clone_from(&source.imix_counts);
        *self = Self {
            imix_counts,
            sofar: source.sofar,
            errors: source.errors,
            started_ns: source.started_ns,
            stopped_ns: source.stopped_ns,
            idle_ns: source.idle_ns,
            seq_num: source.seq_num,
            dst_mac_offset: source.dst_mac_offset,
            src_mac_offset: source.src_mac_offset,
            saddr: source.saddr,
            daddr: source.daddr,
            saddr6: source.saddr6,
            daddr6: source.daddr6,
            udp_src: source.udp_src,
            udp_dst: source.udp_dst,
            queue: source.queue,
            flows: source.flows,
            size: source.size,
            frags: source.frags,
        };
    }
}

impl Default for DeviceProgress {
    fn default() -> Self {
        Self {
            sofar: 0,
            errors: 0,
            started_ns: 0,
            stopped_ns: 0,
            idle_ns: 0,
            seq_num: 0,
            dst_mac_offset: 0,
            src_mac_offset: 0,
            saddr: 0,
            daddr: 0,
            saddr6: Ipv6Addr::UNSPECIFIED,
            daddr6: Ipv6Addr::UNSPECIFIED,
            udp_src: 0,
            udp_dst: 0,
            queue: 0,
            flows: 0,
            size: 0,
            frags: None,
            imix_counts: Vec::new(),
        }
    }
}

impl DeviceProgress {
    /// Updates the current values after a change of the configuration. A changed lower or upper bound becomes the
    /// current value.
    pub fn follow(&mut self, old: &DeviceConfig, new: &DeviceConfig) {
        let text = |old: &str, new: &str, current: &mut u32| {
            if old != new {
                *current = lax_ipv4(new);
            }
        };
        text(&old.dst_min, &new.dst_min, &mut self.daddr);
        text(&old.dst_max, &new.dst_max, &mut self.daddr);
        text(&old.src_min, &new.src_min, &mut self.saddr);
        text(&old.src_max, &new.src_max, &mut self.saddr);
        let port = |old: u16, new: u16, current: &mut u16| {
            if old != new {
                *current = new;
            }
        };
        port(old.udp_src_min, new.udp_src_min, &mut self.udp_src);
        port(old.udp_src_max, new.udp_src_max, &mut self.udp_src);
        port(old.udp_dst_min, new.udp_dst_min, &mut self.udp_dst);
        port(old.udp_dst_max, new.udp_dst_max, &mut self.udp_dst);
        if old.min_size != new.min_size {
            self.size = new.min_size;
        }
        if old.src_mac_count != new.src_mac_count {
            self.src_mac_offset = 0;
        }
        if old.dst_mac_count != new.dst_mac_count {
            self.dst_mac_offset = 0;
        }
        if old.imix != new.imix {
            self.imix_counts = vec![0; new.imix.len()];
        }
        if old.clears != new.clears {
            self.clear();
        }
    }

    /// Resets the counters, at a start and on `clear_counters`.
    pub fn clear(&mut self) {
        self.seq_num = 1;
        self.sofar = 0;
        self.errors = 0;
        self.idle_ns = 0;
    }

    /// Resets the current values for a start; `config` must be settled.
    pub fn start(&mut self, config: &DeviceConfig, interface: &Interface) {
        self.clear();
        self.dst_mac_offset = 0;
        self.src_mac_offset = 0;
        self.udp_src = config.udp_src_min;
        self.udp_dst = config.udp_dst_min;
        self.flows = 0;
        self.size = config.min_size;
        self.frags = None;
        self.imix_counts = vec![0; config.imix.len()];
        if config.is_ipv6() && self.saddr6.is_unspecified() {
            self.saddr6 = interface.link_local.unwrap_or(Ipv6Addr::UNSPECIFIED);
        }
        self.saddr = config.source_range(interface).0;
        self.daddr = config.destination_range().0;
    }
}
