//! Parses frames of the generator, and determines which fields are random and their ranges.
//!
//! Written from the formats alone; shares no code with the generator.

use std::net::{Ipv4Addr, Ipv6Addr};

use wb_model::device::{DeviceConfig, Flags, Interface};

/// Fields of a frame. Lengths, checksums and zero padding are already verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Length without padding after the IP packet.
    pub(crate) len: usize,
    pub(crate) dst_mac: u64,
    pub(crate) src_mac: u64,
    /// Outer tag first.
    pub(crate) tags: Vec<u16>,
    pub(crate) labels: Vec<u32>,
    /// Version, traffic class or type of service, flow label or identification, hop limit, protocol.
    pub(crate) network: [u32; 5],
    pub(crate) src: u128,
    pub(crate) dst: u128,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) has_checksum: bool,
    pub(crate) sequence: u32,
    /// Seconds and microseconds.
    pub(crate) time: [u32; 2],
}

fn word(bytes: &[u8], at: usize) -> Result<u16, String> {
    match bytes.get(at..at + 2) {
        Some(two) => Ok(u16::from_be_bytes([two[0], two[1]])),
        None => Err(format!("ends before byte {}", at + 2)),
    }
}

fn long(bytes: &[u8], at: usize) -> Result<u32, String> {
    Ok(u32::from(word(bytes, at)?) << 16 | u32::from(word(bytes, at + 2)?))
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |n, b| n << 8 | u128::from(*b))
}

/// RFC 1071 sum over all of `parts`, each padded to an even number of bytes.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|p| p.chunks(2));
    let mut sum = words
        .map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0)))
        .sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl Parts {
    /// # Errors
    /// Defect of the frame.
    pub(crate) fn of(frame: &[u8]) -> Result<Self, String> {
        let mut at = 12;
        let mut tags = Vec::new();
        let mut labels = Vec::new();
        let mut kind = word(frame, at)?;
        at += 2;
        while kind == 0x8100 {
            tags.push(word(frame, at)?);
            kind = word(frame, at + 2)?;
            at += 4;
        }
        if kind == 0x8847 {
            loop {
                labels.push(long(frame, at)?);
                at += 4;
                if labels.last().is_some_and(|l| l & 0x100 != 0) {
                    break;
                }
            }
            kind = if word(frame, at)? >> 12 == 6 {
                0x86dd
            } else {
                0x0800
            };
        }
        let ip = &frame[at..];
        let (header, total, network, addresses) = match kind {
            0x0800 => {
                if word(ip, 0)? >> 8 != 0x45 || word(ip, 6)? != 0 || ip.len() < 20 {
                    return Err("not a plain IPv4 header".to_owned());
                }
                if sum(&[&ip[..20]]) != 0xffff {
                    return Err("IPv4 checksum".to_owned());
                }
                let network = [
                    4,
                    ip[1].into(),
                    word(ip, 4)?.into(),
                    ip[8].into(),
                    ip[9].into(),
                ];
                (20, usize::from(word(ip, 2)?), network, &ip[12..20])
            }
            0x86dd => {
                let first = long(ip, 0)?;
                if ip.len() < 40 {
                    return Err("short IPv6 header".to_owned());
                }
                let network = [
                    first >> 28,
                    first >> 20 & 0xff,
                    first & 0xf_ffff,
                    ip[7].into(),
                    ip[6].into(),
                ];
                (40, 40 + usize::from(word(ip, 4)?), network, &ip[8..40])
            }
            other => return Err(format!("type {other:04x}")),
        };
        let udp = ip.get(header..total).ok_or("the IP packet is cut off")?;
        let padding = &ip[total..];
        if udp.len() < 24 || usize::from(word(udp, 4)?) != udp.len() {
            return Err("UDP length".to_owned());
        }
        let pseudo = [0, 17, udp[4], udp[5]];
        let has_checksum = word(udp, 6)? != 0;
        if has_checksum && sum(&[addresses, &pseudo, udp]) != 0xffff {
            return Err("UDP checksum".to_owned());
        }
        if long(udp, 8)? != 0xbe9b_e955 {
            return Err("no magic number".to_owned());
        }
        if udp[24..].iter().chain(padding).any(|b| *b != 0) {
            return Err("the fill is not zero".to_owned());
        }
        let (src, dst) = addresses.split_at(addresses.len() / 2);
        Ok(Self {
            len: at + total,
            dst_mac: number(&frame[0..6]) as u64,
            src_mac: number(&frame[6..12]) as u64,
            tags,
            labels,
            network,
            src: number(src),
            dst: number(dst),
            sport: word(udp, 0)?,
            dport: word(udp, 2)?,
            has_checksum,
            sequence: long(udp, 12)?,
            time: [long(udp, 16)?, long(udp, 20)?],
        })
    }

    fn address(&self, address: u128) -> String {
        if self.network[0] == 4 {
            Ipv4Addr::from(address as u32).to_string()
        } else {
            Ipv6Addr::from(address).to_string()
        }
    }
}

/// A field with random values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Sport,
    Dport,
    Src,
    Dst,
    SrcMac,
    DstMac,
    Size,
    Mix,
    Vlan,
    Svlan,
    Labels,
}

/// Random fields of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) parts: Vec<Part>,
    /// Packets belong to randomly chosen flows.
    pub(crate) flows: bool,
    config: DeviceConfig,
    source: (u32, u32),
    destination: (u32, u32),
    own_mac: u64,
}

impl Drawn {
    pub(crate) fn of(config: &DeviceConfig, interface: &Interface) -> Self {
        let c = config;
        let on = |flag| c.flags.has(flag);
        let source = c.source_range(interface);
        let destination = c.destination_range();
        let v4 = !c.is_ipv6();
        let flows = v4 && c.flows > 0 && !on(Flags::FLOW_SEQ);
        let all = [
            (
                Part::Sport,
                on(Flags::UDPSRC_RND) && c.udp_src_min < c.udp_src_max,
            ),
            (
                Part::Dport,
                on(Flags::UDPDST_RND) && c.udp_dst_min < c.udp_dst_max,
            ),
            (Part::Src, on(Flags::IPSRC_RND) && v4 && source.0 < source.1),
            (
                Part::Dst,
                on(Flags::IPDST_RND) && v4 && destination.0 < destination.1
                    || flows && destination.0 < destination.1
                    || !v4 && !c.dst6_min.is_unspecified(),
            ),
            (Part::SrcMac, on(Flags::MACSRC_RND) && c.src_mac_count > 1),
            (Part::DstMac, on(Flags::MACDST_RND) && c.dst_mac_count > 1),
            (Part::Size, on(Flags::TXSIZE_RND) && c.min_size < c.max_size),
            (Part::Mix, c.uses_imix()),
            (Part::Vlan, on(Flags::VID_RND) && c.vlan.id.is_some()),
            (Part::Svlan, on(Flags::SVID_RND) && c.svlan.id.is_some()),
            (
                Part::Labels,
                on(Flags::MPLS_RND) && c.labels.iter().any(|l| l & 0x100 != 0),
            ),
        ];
        Self {
            parts: all
                .into_iter()
                .filter(|(_, on)| *on)
                .map(|(part, _)| part)
                .collect(),
            flows,
            source,
            destination,
            own_mac: number(&interface.mac.0) as u64,
            config: config.clone(),
        }
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Returns true if a random field of `frame` is within its range.
    fn allows(&self, part: Part, frame: &Parts) -> bool {
        let c = &self.config;
        let offset = |mac: u64, base: u64, count: i32| {
            // Only the low five bytes change.
            let low = (1 << 40) - 1;
            mac >> 40 == base >> 40 && (mac & low).wrapping_sub(base & low) & low < count as u64
        };
        match part {
            Part::Sport => (c.udp_src_min..c.udp_src_max).contains(&frame.sport),
            Part::Dport => (c.udp_dst_min..c.udp_dst_max).contains(&frame.dport),
            Part::Src => (self.source.0..self.source.1).contains(&(frame.src as u32)),
            Part::Dst if c.is_ipv6() => {
                let (low, high) = (u128::from(c.dst6_min), u128::from(c.dst6_max));
                frame.dst & !high == 0 && frame.dst & low & high == low & high
            }
            Part::Dst => {
                let (low, high) = self.destination;
                let high = if c.flags.has(Flags::IPDST_RND) {
                    high - 1
                } else {
                    high
                };
                (low..=high).contains(&(frame.dst as u32))
            }
            Part::SrcMac => {
                // An address that was never written is walked from zero.
                let base = match c.src_mac {
                    Some(mac) => number(&mac.0) as u64,
                    None => self.own_mac & 0xff << 40,
                };
                offset(frame.src_mac, base, c.src_mac_count)
            }
            Part::DstMac => offset(frame.dst_mac, number(&c.dst_mac.0) as u64, c.dst_mac_count),
            Part::Size => (c.min_size..c.max_size).any(|size| self.len(size) == frame.len),
            Part::Mix => self.has_share(frame),
            Part::Vlan | Part::Svlan => true,
            Part::Labels => c.labels.iter().zip(&frame.labels).all(|(word, sent)| {
                if word & 0x100 == 0 {
                    sent & !0x100 == *word
                } else {
                    *sent <= 0xf_ffff
                }
            }),
        }
    }

    /// Returns true if the frame has the length of a mix entry with at least one of the hundred shares.
    pub(crate) fn has_share(&self, frame: &Parts) -> bool {
        let mix = &self.config.imix;
        let total: u64 = mix.iter().map(|e| e.weight).sum();
        let (last, others) = mix.split_last().expect("a mix");
        let shares: Vec<_> = others.iter().map(|e| e.weight * 100 / total).collect();
        let rest = 100 - shares.iter().sum::<u64>();
        let entries = others.iter().zip(shares).chain([(last, rest)]);
        entries
            .filter(|(_, share)| *share > 0)
            .any(|(entry, _)| self.len(entry.size as u32) == frame.len)
    }

    /// Length of a frame with the configured `size`.
    pub(crate) fn len(&self, size: u32) -> usize {
        self.config.frame_len(size) as usize
    }

    /// Sizes of the mix.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u32> {
        self.config.imix.iter().map(|e| e.size as u32)
    }

    /// # Errors
    /// Difference between `ours` and the kernel's frame in a fixed field, or the frame that leaves a range.
    pub(crate) fn compare(&self, kernel: &Parts, ours: &Parts) -> Result<(), String> {
        for part in &self.parts {
            for (who, frame) in [("kernel's", kernel), ("ours", ours)] {
                if !self.allows(*part, frame) {
                    return Err(format!("{who}: {part:?} out of range: {frame:?}"));
                }
            }
        }
        let mut ours = ours.clone();
        for part in &self.parts {
            match part {
                Part::Sport => ours.sport = kernel.sport,
                Part::Dport => ours.dport = kernel.dport,
                Part::Src => ours.src = kernel.src,
                Part::Dst => ours.dst = kernel.dst,
                Part::SrcMac => ours.src_mac = kernel.src_mac,
                Part::DstMac => ours.dst_mac = kernel.dst_mac,
                Part::Size | Part::Mix => ours.len = kernel.len,
                Part::Vlan => keep_id(ours.tags.last_mut(), kernel.tags.last()),
                Part::Svlan => keep_id(ours.tags.first_mut(), kernel.tags.first()),
                Part::Labels => ours.labels.clone_from(&kernel.labels),
            }
        }
        if ours == *kernel {
            return Ok(());
        }
        Err(format!(
            "kernel {kernel:?}\n ours   {ours:?}\n ({} -> {})",
            kernel.address(kernel.src),
            kernel.address(kernel.dst)
        ))
    }
}

/// Copies the id of a tag, but not its priority.
fn keep_id(to: Option<&mut u16>, from: Option<&u16>) {
    if let (Some(to), Some(from)) = (to, from) {
        *to = *to & 0xf000 | from & 0x0fff;
    }
}
