//! Packets of a device as tables, for a port that builds them itself, and steps over many packets at once.

use wb_model::device::{Flags, TimeForm};
use wb_wire::{PktgenTag, SplitMix64};

use super::{Fields, NetworkFields, Walker};
use crate::DeviceTime;

/// Increment of the SplitMix64 state for each number.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Packets of a device from the next one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// One template per size, in the order of `order`.
    pub templates: Vec<FrameRecipe>,
    /// Selects the template of each packet; `None` if there is only one.
    pub order: Option<PlaceSelection>,
    /// Template of each place of the order.
    pub places: Vec<u16>,
    /// Other fields that differ from packet to packet.
    pub fields: Vec<FieldRecipe>,
    /// Offset of the network header.
    pub ip_at: usize,
    /// True for IPv6 packets.
    pub is_ipv6: bool,
    /// Offset of the UDP header, which precedes the tag.
    pub udp_at: usize,
    /// True if packets have a UDP checksum.
    pub udp_checksum: bool,
    /// Sequence number of the next packet.
    pub sequence: u32,
    /// Format of the timestamp in the tag; `None` for zeros.
    pub time: Option<TimeForm>,
    /// Number of times that each packet is sent.
    pub copies: u32,
    /// Number of copies that are due at once.
    pub burst: u32,
}

/// Packet of one size, up to the end of its tag. Variable fields, checksums, sequence number and time are 0, and so are
/// all bytes behind the tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRecipe {
    /// Length of the whole packet without FCS, in bytes.
    pub len: u32,
    /// Bytes up to the end of the tag.
    pub header: Vec<u8>,
}

/// Part of the header, as a big-endian number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRecipe {
    /// Offset of the first byte.
    pub at: usize,
    /// Width in bytes.
    pub width: u8,
    /// Bits that are written.
    pub mask: u64,
    /// Value at place 0.
    pub first: u64,
    /// Selects the place for each packet.
    pub turn: PlaceSelection,
    /// True if the IPv4 checksum covers the field.
    pub in_ip: bool,
    /// True if the UDP checksum covers the field.
    pub in_udp: bool,
}

/// Selection of a place, out of a number of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceSelection {
    /// One place after the other.
    InOrder {
        /// Number of places.
        places: u64,
        /// Next place.
        next: u64,
    },
    /// A random place.
    Drawn {
        /// Number of places, at most 2^32.
        places: u64,
        /// State of the generator before the next packet.
        state: u64,
        /// Increment of the state for each packet.
        stride: u64,
    },
}

/// Variable fields of a packet, in the order in which they draw numbers.
#[derive(Default)]
struct RecipeWalks {
    fields: Vec<FieldRecipe>,
    order: Option<PlaceSelection>,
    draws: u64,
}

/// Creates a random selection. Until all draws of a packet are known, `state` is the number of previous draws.
const fn drawn(places: u64, draws: &mut u64) -> PlaceSelection {
    let state = *draws;
    *draws += 1;
    PlaceSelection::Drawn {
        places,
        state,
        stride: 0,
    }
}

/// Creates a selection of `min..=max` in order, after `current`.
fn in_order(current: u32, min: u32, max: u32) -> Result<PlaceSelection, &'static str> {
    let next = super::step(current, min, max).checked_sub(min);
    Ok(PlaceSelection::InOrder {
        places: u64::from(max - min) + 1,
        next: u64::from(next.ok_or("a field is outside its range")?),
    })
}

/// Returns the value `steps` steps after `current`.
fn stepped(current: u32, min: u32, max: u32, steps: u64) -> u32 {
    let room = u64::from(max.saturating_sub(current));
    match steps.checked_sub(room + 1) {
        None => current + steps as u32,
        Some(beyond) => min + (beyond % (u64::from(max - min) + 1)) as u32,
    }
}

impl Walker {
    /// Returns the packets from the next one on as tables.
    ///
    /// # Errors
    /// The reason why tables cannot describe the packets.
    pub fn recipe(&self) -> Result<Recipe, &'static str> {
        if self.is_in_hand() {
            return Err("a packet is pending");
        }
        let c = &self.config;
        let headers = self.headers as usize;
        let RecipeWalks {
            mut fields,
            order,
            draws,
        } = self.regular()?;
        let state = self.random.0;
        let settle = |turn: PlaceSelection| match turn {
            PlaceSelection::Drawn {
                places,
                state: before,
                ..
            } => {
                let stride = draws.wrapping_mul(GAMMA);
                let own = (before + 1).wrapping_mul(GAMMA);
                PlaceSelection::Drawn {
                    places,
                    state: state.wrapping_add(own).wrapping_sub(stride),
                    stride,
                }
            }
            turn => turn,
        };
        for field in &mut fields {
            field.turn = settle(field.turn);
        }
        let sizes: Vec<u32> = match (&order, c.uses_imix()) {
            (None, _) => vec![self.progress.size],
            (Some(_), true) => c.imix.iter().map(|entry| entry.size as u32).collect(),
            (Some(_), false) => (c.min_size..=c.max_size).collect(),
        };
        let places = match (&order, c.uses_imix()) {
            (None, _) => Vec::new(),
            (Some(_), true) => self.bins.iter().map(|bin| u16::from(*bin)).collect(),
            (
                Some(PlaceSelection::Drawn { places, .. } | PlaceSelection::InOrder { places, .. }),
                false,
            ) => (0..*places).map(|place| place as u16).collect(),
        };
        let udp_at = headers - 8;
        let templates = sizes.iter().map(|size| self.template(*size, &fields));
        Ok(Recipe {
            templates: templates.collect(),
            order: order.map(settle),
            places,
            fields,
            ip_at: udp_at - if c.is_ipv6() { 40 } else { 20 },
            is_ipv6: c.is_ipv6(),
            udp_at,
            udp_checksum: c.flags.has(Flags::UDPCSUM),
            sequence: self.progress.seq_num,
            time: (!c.flags.has(Flags::NO_TIMESTAMP)).then_some(self.time_form),
            copies: u32::try_from(self.copies()).map_err(|_| "a packet is sent too many times")?,
            burst: self.config.burst.max(1) as u32,
        })
    }

    /// Returns true if the current packet will be sent again.
    fn is_in_hand(&self) -> bool {
        self.left > 0 || self.is_reusable()
    }

    /// Number of times that the current packet will be sent again, if the count allows it.
    pub fn in_hand(&self) -> u64 {
        let burst = self.config.burst.max(1) as u64;
        let calls = self.config.clone_skb.max(1) as u64;
        let begun = u64::from(self.left > 0);
        let left = match self.is_reusable() {
            true => calls - u64::from(self.calls_of_frame.unwrap_or(0)) - begun,
            false => 0,
        };
        self.left + left * burst
    }

    /// Time at which the next call that has not begun is due after the start: nanoseconds, and the remainder in units
    /// of 1 / the denominator of the delay.
    pub fn next_call(&self) -> (u64, u64) {
        let exact = self.config.delay.exact_ns;
        let calls = u128::from(self.calls) + u128::from(self.left > 0);
        let parts = calls * u128::from(exact.numerator());
        let whole = parts / u128::from(exact.denominator());
        let due_ns = self
            .pace_base_ns
            .saturating_add(u64::try_from(whole).unwrap_or(u64::MAX));
        (due_ns, (parts % u128::from(exact.denominator())) as u64)
    }

    /// Number of times that each packet is sent.
    fn copies(&self) -> u64 {
        let calls = match self.config.flags.has(Flags::SHARED) {
            true => self.config.clone_skb.max(1) as u64,
            false => 1,
        };
        calls * self.config.burst.max(1) as u64
    }

    fn template(&self, size: u32, fields: &[FieldRecipe]) -> FrameRecipe {
        let (c, p) = (&self.config, &self.progress);
        let payload = (size.saturating_sub(self.headers) as usize).max(PktgenTag::LEN);
        let len = self.headers as usize + payload;
        let mut header = Vec::with_capacity(len);
        let network = match c.is_ipv6() {
            true => NetworkFields::V6 {
                src: p.saddr6,
                dst: p.daddr6,
                class: c.traffic_class,
            },
            false => NetworkFields::V4 {
                src: p.saddr,
                dst: p.daddr,
                tos: c.tos,
                id: 0,
            },
        };
        let layout = Fields {
            dst_mac: self.dst_mac,
            src_mac: self.src_mac,
            svlan: c.svlan.tci(),
            vlan: c.vlan.tci(),
            labels: &c.labels,
            network,
            sport: p.udp_src,
            dport: p.udp_dst,
            tag: PktgenTag {
                sequence: 0,
                time: [0, 0],
            },
            udp_checksum: false,
            len,
        }
        .write(&mut header);
        header.truncate(layout.udp + 8 + PktgenTag::LEN);
        if !c.is_ipv6() {
            header[layout.ip + 10..][..2].fill(0);
        }
        for field in fields {
            let mask = field.mask.to_be_bytes();
            let mask = &mask[8 - usize::from(field.width)..];
            for (byte, mask) in header[field.at..].iter_mut().zip(mask) {
                *byte &= !mask;
            }
        }
        FrameRecipe {
            len: len as u32,
            header,
        }
    }

    /// Returns the variable fields that tables can describe, in the order of [`Walker::build`].
    fn regular(&self) -> Result<RecipeWalks, &'static str> {
        let (c, p) = (&self.config, &self.progress);
        let mut walks = RecipeWalks::default();
        if c.flows > 0 {
            return Err("the flows form a table (flows)");
        }
        self.regular_macs(&mut walks)?;
        self.regular_tags(&mut walks);
        let udp_at = self.headers as usize - 8;
        let field =
            |walks: &mut RecipeWalks, at, width, (first, turn): (u32, PlaceSelection), in_ip| {
                walks.fields.push(FieldRecipe {
                    at,
                    width,
                    mask: u64::MAX >> (64 - 8 * u32::from(width)),
                    first: first.into(),
                    turn,
                    in_ip,
                    in_udp: true,
                });
            };
        for (at, min, max, flag, current) in [
            (
                0,
                c.udp_src_min,
                c.udp_src_max,
                Flags::UDPSRC_RND,
                p.udp_src,
            ),
            (
                2,
                c.udp_dst_min,
                c.udp_dst_max,
                Flags::UDPDST_RND,
                p.udp_dst,
            ),
        ] {
            if min >= max {
                continue;
            }
            let turn = match c.flags.has(flag) {
                true => drawn((max - min).into(), &mut walks.draws),
                false => in_order(current.into(), min.into(), u32::from(max) - 1)?,
            };
            field(&mut walks, udp_at + at, 2, (min.into(), turn), false);
        }
        if c.is_ipv6() {
            if !c.dst6_min.is_unspecified() {
                return Err("all bits of the IPv6 destinations are random (dst6_min)");
            }
        } else {
            let ip_at = udp_at - 20;
            let id = PlaceSelection::InOrder {
                places: 1 << 16,
                next: self.memory.ip_id.into(),
            };
            let (src, dst) = (self.source, self.destination);
            if dst.0 < dst.1 && c.flags.has(Flags::IPDST_RND) && has_excluded(dst.0, dst.1 - 1) {
                return Err("the destination range includes excluded addresses");
            }
            for (at, (min, max), flag, current) in [
                (12, src, Flags::IPSRC_RND, p.saddr),
                (16, dst, Flags::IPDST_RND, p.daddr),
            ] {
                if min >= max {
                    continue;
                }
                let turn = match c.flags.has(flag) {
                    true => drawn((max - min).into(), &mut walks.draws),
                    false => in_order(current, min, max)?,
                };
                field(&mut walks, ip_at + at, 4, (min, turn), true);
            }
            field(&mut walks, ip_at + 4, 2, (0, id), true);
            if let Some(id) = walks.fields.last_mut() {
                id.in_udp = false;
            }
        }
        if c.min_size < c.max_size {
            walks.order = Some(match c.flags.has(Flags::TXSIZE_RND) {
                true => drawn((c.max_size - c.min_size).into(), &mut walks.draws),
                false => in_order(p.size, c.min_size, c.max_size)?,
            });
        } else if !c.imix.is_empty() {
            walks.order = Some(drawn(self.bins.len() as u64, &mut walks.draws));
        }
        let draws_queue = !c.flags.has(Flags::QUEUE_MAP_CPU) && c.queue_min <= c.queue_max;
        if draws_queue && c.flags.has(Flags::QUEUE_MAP_RND) {
            walks.draws += 1;
        }
        Ok(walks)
    }

    fn regular_macs(&self, walks: &mut RecipeWalks) -> Result<(), &'static str> {
        let (c, p) = (&self.config, &self.progress);
        let own = self.interface.mac.0[0];
        let src = c.src_mac.map_or([own, 0, 0, 0, 0, 0], |mac| mac.0);
        for (at, base, count, flag, next) in [
            (6, src, c.src_mac_count, Flags::MACSRC_RND, p.src_mac_offset),
            (
                0,
                c.dst_mac.0,
                c.dst_mac_count,
                Flags::MACDST_RND,
                p.dst_mac_offset,
            ),
        ] {
            if count <= 1 {
                continue;
            }
            let places = count as u64;
            let first = wb_wire::MacAddr(base).to_u64();
            if (first & 0xff_ffff_ffff) + places > 1 << 40 || u64::from(next) >= places {
                return Err("the MAC addresses wrap around within a walk");
            }
            walks.fields.push(FieldRecipe {
                at,
                width: 6,
                mask: (1 << 48) - 1,
                first,
                turn: match c.flags.has(flag) {
                    true => drawn(places, &mut walks.draws),
                    false => PlaceSelection::InOrder {
                        places,
                        next: next.into(),
                    },
                },
                in_ip: false,
                in_udp: false,
            });
        }
        Ok(())
    }

    fn regular_tags(&self, walks: &mut RecipeWalks) {
        let c = &self.config;
        let field = |walks: &mut RecipeWalks, at, width, mask, places| {
            let turn = drawn(places, &mut walks.draws);
            walks.fields.push(FieldRecipe {
                at,
                width,
                mask,
                first: 0,
                turn,
                in_ip: false,
                in_udp: false,
            });
        };
        let tag = |on: Option<u16>| if on.is_some() { 4 } else { 0 };
        let (svlan, vlan) = (tag(c.svlan.id), tag(c.vlan.id));
        if c.flags.has(Flags::MPLS_RND) {
            let bottom = super::BOTTOM_OF_STACK;
            for (i, _) in c
                .labels
                .iter()
                .enumerate()
                .filter(|(_, l)| **l & bottom != 0)
            {
                let mask = u64::from(0x000f_ffff & !bottom);
                field(walks, 14 + svlan + vlan + 4 * i, 4, mask, 1 << 32);
            }
        }
        for (flag, length, at) in [
            (Flags::VID_RND, vlan, 14 + svlan),
            (Flags::SVID_RND, svlan, 14),
        ] {
            if c.flags.has(flag) && length > 0 {
                field(walks, at, 2, 0x0fff, 4096);
            }
        }
    }

    /// Continues as if `packets` packets had been taken from [`Walker::poll`] and sent, with the last one built now.
    /// Takes one step if [`Walker::recipe`] has tables.
    pub fn advance(&mut self, mut packets: u64, now: DeviceTime) {
        while packets > 0 {
            let copies = self.copies();
            if packets > copies
                && !self.is_in_hand()
                && let Ok(walks) = self.regular()
            {
                // Build the last packet in full, to set all state that follows from it.
                let whole = (packets - 1) / copies;
                self.skip(whole, &walks);
                packets -= whole * copies;
            }
            let Some(call) = self.poll(now) else {
                return;
            };
            let sent = call.copies.min(packets);
            self.sent(sent);
            packets -= sent;
        }
    }

    /// Skips `builds` packets, each sent as often as configured.
    fn skip(&mut self, builds: u64, walks: &RecipeWalks) {
        let packets = builds * self.copies();
        let (c, p) = (&self.config, &mut self.progress);
        let (flags, burst) = (c.flags, c.burst.max(1) as u64);
        let turned = |next: u32, count: i32| match count {
            ..=1 => next,
            count => ((u64::from(next) + builds) % count as u64) as u32,
        };
        if !flags.has(Flags::MACSRC_RND) {
            p.src_mac_offset = turned(p.src_mac_offset, c.src_mac_count);
        }
        if !flags.has(Flags::MACDST_RND) {
            p.dst_mac_offset = turned(p.dst_mac_offset, c.dst_mac_count);
        }
        let port = |current: u16, min: u16, max: u16| match min < max {
            true => stepped(current.into(), min.into(), u32::from(max) - 1, builds) as u16,
            false => current,
        };
        p.udp_src = port(p.udp_src, c.udp_src_min, c.udp_src_max);
        p.udp_dst = port(p.udp_dst, c.udp_dst_min, c.udp_dst_max);
        let range = |current: u32, (min, max): (u32, u32)| match min < max {
            true => stepped(current, min, max, builds),
            false => current,
        };
        if !c.is_ipv6() {
            p.saddr = range(p.saddr, self.source);
            p.daddr = range(p.daddr, self.destination);
            self.memory.ip_id = self.memory.ip_id.wrapping_add(builds as u16);
        }
        p.size = range(p.size, (c.min_size, c.max_size));
        if !flags.has(Flags::QUEUE_MAP_CPU) && c.queue_min <= c.queue_max {
            p.queue = stepped(
                p.queue.into(),
                c.queue_min.into(),
                c.queue_max.into(),
                builds,
            ) as u16;
        }
        let stride = walks.draws.wrapping_mul(GAMMA);
        if c.uses_imix()
            && let Some(PlaceSelection::Drawn { places, state, .. }) = walks.order
        {
            for build in 0..builds {
                let before = build
                    .wrapping_mul(stride)
                    .wrapping_add(state.wrapping_mul(GAMMA));
                let mut random = SplitMix64(self.random.0.wrapping_add(before));
                let bin = ((random.next() >> 32) * places) >> 32;
                let index = usize::from(self.bins[bin as usize]);
                if let Some(count) = p.imix_counts.get_mut(index) {
                    *count += 1;
                }
            }
        }
        self.random.0 = self.random.0.wrapping_add(builds.wrapping_mul(stride));
        p.sofar += packets;
        p.seq_num = p.seq_num.wrapping_add(packets as u32);
        self.calls += packets / burst;
        self.calls_of_frame = None;
    }
}

/// Returns true if a range contains addresses that are drawn again.
fn has_excluded(min: u32, max: u32) -> bool {
    let overlaps = |from: u32, to: u32| min <= to && max >= from;
    min == 0
        || max == u32::MAX
        || overlaps(0x7f00_0000, 0x7fff_ffff)
        || overlaps(0xe000_0000, 0xefff_ffff)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wb_model::device::{Defaults, DeviceConfig, Entry, Interface};

    use super::super::Start;
    use super::*;

    const FLAGS: [u32; 14] = [
        Flags::IPSRC_RND,
        Flags::IPDST_RND,
        Flags::UDPSRC_RND,
        Flags::UDPDST_RND,
        Flags::MACSRC_RND,
        Flags::MACDST_RND,
        Flags::MPLS_RND,
        Flags::VID_RND,
        Flags::SVID_RND,
        Flags::TXSIZE_RND,
        Flags::UDPCSUM,
        Flags::QUEUE_MAP_RND,
        Flags::SHARED,
        Flags::IPV6,
    ];

    prop_compose! {
        fn config()(
            flags: [bool; FLAGS.len()],
            (src, dst) in (1u8..40, 1u8..40),
            macs in (0..5i32, 0..5i32),
            ports in (0..7u16, 0..7u16),
            sizes in (60..70u32, 0..9u32),
            mix: bool,
            (clone, burst) in (0..4, 1..4),
            tags in (any::<Option<u8>>(), any::<Option<u8>>(), 0..3usize),
            queues in (0..3u16, 0..3u16),
        ) -> DeviceConfig {
            let mut c = DeviceConfig::new("e", &Defaults { count: 0, ..Defaults::default() });
            for (flag, on) in FLAGS.iter().zip(flags) {
                c.flags.put(*flag, on);
            }
            (c.src_min, c.src_max) = ("10.0.0.1".into(), format!("10.0.0.{src}"));
            (c.dst_min, c.dst_max) = ("10.1.0.1".into(), format!("10.1.0.{dst}"));
            (c.src_mac_count, c.dst_mac_count) = macs;
            (c.udp_src_max, c.udp_dst_max) = (9 + ports.0, 9 + ports.1);
            (c.min_size, c.max_size) = (sizes.0, sizes.0 + sizes.1);
            if mix {
                c.imix = vec![Entry { size: 60, weight: 3 }, Entry { size: 90, weight: 1 }];
            }
            (c.clone_skb, c.burst) = (clone, burst);
            c.vlan.id = tags.0.map(u16::from);
            c.svlan.id = tags.1.map(u16::from);
            c.labels = vec![BOTTOM | 7; tags.2];
            (c.queue_min, c.queue_max) = queues;
            c
        }
    }

    const BOTTOM: u32 = super::super::BOTTOM_OF_STACK;

    proptest! {
        #[test]
        fn many_at_once_are_as_each_by_itself(
            config in config(), seed: u64, ahead in 0..20u64, many in 0..200u64,
        ) {
            let interface = Interface { tx_queues: 4, ..Interface::default() };
            let start = Start { interface, seed, ..Start::default() };
            let mut walker = Walker::new(config, &start).unwrap();
            for _ in 0..ahead {
                walker.next(DeviceTime::default());
            }
            let mut each = walker.clone();
            walker.advance(many, DeviceTime::default());
            for _ in 0..many {
                each.next(DeviceTime::default());
            }
            prop_assert_eq!(&walker.frame, &each.frame);
            for _ in 0..3 {
                prop_assert_eq!(walker.progress(), each.progress());
                prop_assert_eq!(walker.memory(), each.memory());
                prop_assert_eq!(walker.due_ns(), each.due_ns());
                prop_assert_eq!(walker.next(DeviceTime::default()), each.next(DeviceTime::default()));
            }
        }
    }
}
