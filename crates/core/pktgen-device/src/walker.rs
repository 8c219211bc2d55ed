//! Walks a device from packet to packet: which fields step, in which order, and what is sent how often.
//!
//! Knows neither ports nor clocks: a worker asks for the next transmit call, says what became of
//! it, and brings the time along.
//!
//! ```
//! use wb_model::device::{Defaults, DeviceConfig, Interface};
//! use wb_pktgen_device::{Start, Time, Walker};
//!
//! let mut config = DeviceConfig::new("eth0", &Defaults::default());
//! (config.count, config.min_size) = (3, 60);
//! let mut walker = Walker::new(config, &Start { interface: Interface::default(), ..Start::default() })?;
//! while let Some(call) = walker.poll(Time::default()) {
//!     assert_eq!(call.frame.len(), 60);
//!     let all = call.copies; // what the port took
//!     walker.sent(all);
//! }
//! assert_eq!(walker.progress().sofar, 3);
//! # Ok::<(), wb_pktgen_device::TooLong>(())
//! ```

use wb_model::device::{Delay, DeviceConfig, Flags, Interface, TimeForm, mix};
use wb_model::units::Mac;
use wb_wire::{MacAddr, PktgenTag};

use crate::Time;
use crate::flows::Flows;
use crate::frame::{BOTTOM_OF_STACK, Fields, Layout, Network};
use crate::progress::Progress;
use crate::random::Random;

mod recipe;

pub use recipe::{Field, Recipe, Template, Turn};

/// What a device keeps from one run to the next, besides its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// IPv4 identification of the next built packet.
    pub ip_id: u16,
    /// The flow table.
    pub flows: Flows,
}

/// What a walk begins with.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The interface that is sent on.
    pub interface: Interface,
    /// CPU of the thread.
    pub cpu: u32,
    /// Where random choices come from; the same seed makes the same packets.
    pub seed: u64,
    /// How the time is written.
    pub time_form: TimeForm,
    /// What earlier runs left.
    pub memory: Memory,
    /// Current values that earlier runs left.
    pub progress: Progress,
}

/// A frame that the interface cannot send.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet size {len} exceeds {limit}")]
pub struct TooLong {
    /// Bytes of the frame without FCS.
    pub len: u64,
    /// The most that the interface sends.
    pub limit: u64,
}

/// One transmit call: the same frame, some times back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The frame, without FCS.
    pub frame: &'a [u8],
    /// How often to send it now.
    pub copies: u64,
    /// Transmit queue.
    pub queue: u16,
    /// Sequence number in the frame.
    pub sequence: u32,
    /// When it is due after the start, ns.
    pub due_ns: u64,
}

/// Which fields walk at all, so that a packet pays only for those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Walks {
    macs: bool,
    tags: bool,
    ports: bool,
    addresses: bool,
    sizes: bool,
}

impl Walks {
    fn of(c: &DeviceConfig, source: (u32, u32), destination: (u32, u32)) -> Self {
        let drawn = [Flags::MPLS_RND, Flags::VID_RND, Flags::SVID_RND];
        Self {
            macs: c.src_mac_count > 1 || c.dst_mac_count > 1,
            tags: drawn.into_iter().any(|flag| c.flags.has(flag)),
            ports: c.udp_src_min < c.udp_src_max || c.udp_dst_min < c.udp_dst_max,
            addresses: if c.is_ipv6() {
                !c.dst6_min.is_unspecified()
            } else {
                source.0 < source.1 || destination.0 < destination.1 || c.flows > 0
            },
            sizes: c.min_size < c.max_size || !c.imix.is_empty(),
        }
    }
}

/// A device on its way. Call [`poll`](Self::poll), then [`sent`](Self::sent) or
/// [`refused`](Self::refused), until `poll` gives nothing.
#[derive(Clone, Debug)]
pub struct Walker {
    config: DeviceConfig,
    interface: Interface,
    cpu: u32,
    time_form: TimeForm,
    random: Random,
    memory: Memory,
    progress: Progress,
    source: (u32, u32),
    destination: (u32, u32),
    bins: [u8; mix::BINS],
    walks: Walks,
    /// Bytes before the UDP payload.
    headers: u32,
    src_mac: MacAddr,
    dst_mac: MacAddr,
    frame: Vec<u8>,
    /// Of the frame, as long as the next one has the same tags and settings.
    layout: Option<Layout>,
    sequence: u32,
    /// Calls made with the frame in hand; none: there is no frame in hand.
    calls_of_frame: Option<u32>,
    /// Packets of the present call that are still to be sent.
    left: u64,
    /// Calls since `pace_base_ns`.
    calls: u64,
    /// When call 0 of the present pace was due after the start.
    pace_base_ns: u64,
}

impl Walker {
    /// Starts a run: settles the configuration, current values to their minima, counters to zero.
    ///
    /// # Errors
    /// If the interface cannot send the largest frame that would be built.
    pub fn new(mut config: DeviceConfig, start: &Start) -> Result<Self, TooLong> {
        config.settle(&start.interface);
        check(&config, &start.interface)?;
        let mut progress = start.progress.clone();
        progress.start(&config, &start.interface);
        let mut memory = start.memory.clone();
        let (min, max) = config.destination_range();
        memory.flows.settle(config.flows, min, max);
        let mut walker = Self {
            interface: start.interface.clone(),
            cpu: start.cpu,
            time_form: start.time_form,
            random: Random::new(start.seed),
            memory,
            progress,
            source: (0, 0),
            destination: (0, 0),
            bins: [0; mix::BINS],
            walks: Walks::default(),
            headers: 0,
            src_mac: MacAddr::ZERO,
            dst_mac: MacAddr::ZERO,
            frame: Vec::new(),
            layout: None,
            sequence: 0,
            calls_of_frame: None,
            left: 0,
            calls: 0,
            pace_base_ns: 0,
            config,
        };
        walker.derive();
        Ok(walker)
    }

    /// The configuration as it is walked; random tags and labels stand in it.
    pub const fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Counters and current values.
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What a later run goes on from.
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Takes over a configuration changed during the run, from the next packet on. A new pace begins
    /// with the call that is due next.
    ///
    /// # Errors
    /// If the interface cannot send the largest frame that would be built; nothing is taken over.
    pub fn reconfigure(&mut self, config: &DeviceConfig) -> Result<(), TooLong> {
        let due_ns = self.due_ns();
        self.take_over(config, |_| due_ns)
    }

    /// [`reconfigure`](Self::reconfigure) so long after the start: the next call is then due no later
    /// than the new pace has it, and at once if there was none before. Full speed leaves no backlog.
    ///
    /// # Errors
    /// As there.
    pub fn reconfigure_at(
        &mut self,
        config: &DeviceConfig,
        elapsed_ns: u64,
    ) -> Result<(), TooLong> {
        let (due_ns, old) = (self.due_ns(), self.config.delay);
        self.take_over(config, |new| {
            if old.shown_ns == 0 || old.is_never() {
                elapsed_ns
            } else {
                due_ns.min(elapsed_ns.saturating_add(new.due_ns(1)))
            }
        })
    }

    fn take_over(
        &mut self,
        config: &DeviceConfig,
        next_due_ns: impl FnOnce(Delay) -> u64,
    ) -> Result<(), TooLong> {
        let mut config = config.clone();
        config.settle(&self.interface);
        check(&config, &self.interface)?;
        self.progress.follow(&self.config, &config);
        if config.src6 != self.config.src6 {
            self.progress.saddr6 = config.src6;
        }
        if config.dst6 != self.config.dst6 {
            self.progress.daddr6 = config.dst6;
        }
        if config.delay != self.config.delay {
            self.pace_base_ns = next_due_ns(config.delay);
            self.calls = 0;
        }
        if config.flows != self.config.flows {
            self.memory.flows.resize(config.flows);
        }
        self.config = config;
        self.derive();
        Ok(())
    }

    /// What follows from the configuration.
    fn derive(&mut self) {
        self.layout = None;
        self.source = self.config.source_range(&self.interface);
        self.destination = self.config.destination_range();
        self.bins = mix::bins(&self.config.imix);
        self.walks = Walks::of(&self.config, self.source, self.destination);
        let smallest = self.config.frame_len(0) as u32;
        self.headers = smallest - PktgenTag::LEN as u32;
        self.src_mac = MacAddr(self.config.src_mac.unwrap_or(self.interface.mac).0);
        self.dst_mac = MacAddr(self.config.dst_mac.0);
    }

    /// When the run began, CLOCK_MONOTONIC, for the report.
    pub const fn started(&mut self, mono_ns: u64) {
        self.progress.started_ns = mono_ns;
    }

    /// When the run ended, or where it stands, CLOCK_MONOTONIC, for the report.
    pub const fn stopped(&mut self, mono_ns: u64) {
        self.progress.stopped_ns = mono_ns;
    }

    /// Idle time so far, for the report, ns.
    pub const fn idle(&mut self, ns: u64) {
        self.progress.idle_ns = ns;
    }

    /// When the next call is due after the start, ns.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        if self.config.delay.exact_ns.numerator() == 0 {
            return self.pace_base_ns;
        }
        self.pace_base_ns
            .saturating_add(self.config.delay.due_ns(self.calls))
    }

    /// The next transmit call, or the rest of one that was not all taken; nothing when the count is
    /// reached. A packet that is built now carries `now`.
    ///
    /// A device whose delay is [`Delay::NEVER`](wb_model::device::Delay::NEVER) is due at the end of
    /// time: the caller looks at `due_ns`.
    pub fn poll(&mut self, now: Time) -> Option<Call<'_>> {
        self.poll_with(|_| now)
    }

    /// [`poll`](Self::poll) that asks for the time only when a packet is built that carries one. Of
    /// the two clocks it needs the one of the form that it names.
    #[inline]
    pub fn poll_with(&mut self, now: impl FnOnce(TimeForm) -> Time) -> Option<Call<'_>> {
        if self.left == 0 {
            if self.has_reached_count() {
                return None;
            }
            if !self.is_reusable() {
                let now = if self.config.flags.has(Flags::NO_TIMESTAMP) {
                    Time::default()
                } else {
                    now(self.time_form)
                };
                self.build(now);
            }
            self.left = self.config.burst.max(1) as u64;
        }
        Some(Call {
            copies: self.left,
            queue: self.progress.queue,
            sequence: self.sequence,
            due_ns: self.due_ns(),
            frame: &self.frame,
        })
    }

    /// Whether the packet that was built last is sent in the next call too.
    #[inline]
    fn is_reusable(&self) -> bool {
        let calls = self.config.clone_skb.max(1) as u32;
        self.config.flags.has(Flags::SHARED) && self.calls_of_frame.is_some_and(|made| made < calls)
    }

    /// Whether all that was asked for has been sent, and the last call wholly.
    #[inline]
    pub const fn has_reached_count(&self) -> bool {
        self.left == 0 && self.config.count != 0 && self.progress.sofar >= self.config.count
    }

    /// `copies` packets of the present call have left.
    pub fn sent(&mut self, copies: u64) {
        let copies = copies.min(self.left);
        self.progress.sofar += copies;
        self.progress.seq_num = self.progress.seq_num.wrapping_add(copies as u32);
        self.left -= copies;
        if self.left == 0 && copies > 0 {
            self.calls += 1;
            self.calls_of_frame = self.calls_of_frame.map(|made| made.saturating_add(1));
            if !self.config.flags.has(Flags::SHARED) {
                self.calls_of_frame = None;
                self.progress.frags = None;
            }
        }
    }

    /// The port refused the present call; it is offered again.
    pub const fn refused(&mut self) {
        self.progress.errors += 1;
    }

    /// The port refused packets after it had taken them: later ones make up for them.
    pub const fn taken_back(&mut self, packets: u64) {
        self.withdrawn(packets);
        self.progress.errors += packets;
    }

    /// Packets were taken back before the port had looked at them: they were not sent, and nobody
    /// erred.
    pub const fn withdrawn(&mut self, packets: u64) {
        self.progress.sofar = self.progress.sofar.saturating_sub(packets);
    }

    /// Packets that are still to be sent until the count is reached, in whole calls; none if there is
    /// no count.
    pub fn remaining(&self) -> Option<u64> {
        let count = self.config.count;
        let burst = self.config.burst.max(1) as u64;
        (count != 0).then(|| {
            let rest = count.saturating_sub(self.progress.sofar + self.left);
            self.left + rest.div_ceil(burst) * burst
        })
    }

    /// Packets of the schedule that were due by then after the start and have not been sent; at full
    /// speed nothing is ever due.
    pub fn backlog(&self, elapsed_ns: u64) -> u64 {
        let Delay { shown_ns, exact_ns } = self.config.delay;
        let Some(since_ns) = elapsed_ns.checked_sub(self.pace_base_ns) else {
            return 0;
        };
        if shown_ns == 0 || shown_ns == Delay::NEVER {
            return 0;
        }
        let due = ((u128::from(since_ns) + 1) * u128::from(exact_ns.denominator()))
            .div_ceil(u128::from(exact_ns.numerator()));
        let calls = u64::try_from(due)
            .unwrap_or(u64::MAX)
            .saturating_sub(self.calls);
        let burst = self.config.burst.max(1) as u64;
        let begun = if self.left == 0 {
            0
        } else {
            burst.saturating_sub(self.left)
        };
        let due = calls.saturating_mul(burst).saturating_sub(begun);
        due.min(self.remaining().unwrap_or(u64::MAX))
    }

    /// [`poll`](Self::poll) and [`sent`](Self::sent) of one packet.
    pub fn next(&mut self, now: Time) -> Option<(Vec<u8>, u16)> {
        let call = self.poll(now)?;
        let packet = (call.frame.to_vec(), call.queue);
        self.sent(1);
        Some(packet)
    }

    /// Steps every field, in the order of the original, and builds the frame.
    fn build(&mut self, now: Time) {
        let in_turn = self.config.flags.has(Flags::FLOW_SEQ);
        self.memory
            .flows
            .pick(in_turn, self.config.flow_len, &mut self.random);
        let walks = self.walks;
        if walks.macs {
            self.walk_macs();
        }
        if walks.tags {
            self.walk_tags();
        }
        if walks.ports {
            self.walk_ports();
        }
        if walks.addresses {
            self.walk_addresses();
        }
        if walks.sizes {
            self.walk_size();
        }
        self.walk_queue();
        self.memory.flows.count();
        self.write_frame(now);
    }

    fn walk_macs(&mut self) {
        let flags = self.config.flags;
        // The walk of an address that was never written goes through the low bytes from zero; only
        // the first byte is the interface's.
        let base = self
            .config
            .src_mac
            .unwrap_or(Mac([self.interface.mac.0[0], 0, 0, 0, 0, 0]));
        if let Some(offset) = mac_offset(
            self.config.src_mac_count,
            flags.has(Flags::MACSRC_RND),
            &mut self.progress.src_mac_offset,
            &mut self.random,
        ) {
            self.src_mac = add_to_mac(MacAddr(base.0), offset);
        }
        if let Some(offset) = mac_offset(
            self.config.dst_mac_count,
            flags.has(Flags::MACDST_RND),
            &mut self.progress.dst_mac_offset,
            &mut self.random,
        ) {
            self.dst_mac = add_to_mac(MacAddr(self.config.dst_mac.0), offset);
        }
    }

    fn walk_tags(&mut self) {
        let flags = self.config.flags;
        if flags.has(Flags::MPLS_RND) {
            for label in &mut self.config.labels {
                if *label & BOTTOM_OF_STACK != 0 {
                    self.layout = None;
                    *label = BOTTOM_OF_STACK | self.random.word() & 0x000f_ffff;
                }
            }
        }
        for (tag, flag) in [
            (&mut self.config.vlan, Flags::VID_RND),
            (&mut self.config.svlan, Flags::SVID_RND),
        ] {
            if flags.has(flag) && tag.id.is_some() {
                self.layout = None;
                tag.id = Some(self.random.below(4096) as u16);
            }
        }
    }

    fn walk_ports(&mut self) {
        let (c, p) = (&self.config, &mut self.progress);
        for (min, max, flag, current) in [
            (
                c.udp_src_min,
                c.udp_src_max,
                Flags::UDPSRC_RND,
                &mut p.udp_src,
            ),
            (
                c.udp_dst_min,
                c.udp_dst_max,
                Flags::UDPDST_RND,
                &mut p.udp_dst,
            ),
        ] {
            if min >= max {
                continue;
            }
            *current = if c.flags.has(flag) {
                self.random.within(min.into(), u32::from(max) - 1) as u16
            } else {
                // Unlike the other walkers: the upper bound is never sent.
                match current.saturating_add(1) {
                    next if next >= max => min,
                    next => next,
                }
            };
        }
    }

    fn walk_addresses(&mut self) {
        if self.config.is_ipv6() {
            self.walk_addresses6();
            return;
        }
        let flags = self.config.flags;
        let (min, max) = self.source;
        if min < max {
            self.progress.saddr = if flags.has(Flags::IPSRC_RND) {
                self.random.within(min, max - 1)
            } else {
                step(self.progress.saddr, min, max)
            };
        }
        if let Some(address) = self.memory.flows.destination() {
            self.progress.daddr = address;
            return;
        }
        let (min, max) = self.destination;
        if min < max {
            self.progress.daddr = if flags.has(Flags::IPDST_RND) {
                self.random_destination(min, max - 1)
            } else {
                step(self.progress.daddr, min, max)
            };
        }
        if self.memory.flows.remember(self.progress.daddr) {
            self.progress.flows = self.progress.flows.wrapping_add(1);
        }
    }

    fn random_destination(&mut self, min: u32, max: u32) -> u32 {
        let mut address = min;
        for _ in 0..MOST_DRAWS {
            address = self.random.within(min, max);
            let excluded =
                address >> 24 == 127 || address >> 28 == 0xe || address == u32::MAX || address == 0;
            if !excluded {
                break;
            }
        }
        address
    }

    fn walk_addresses6(&mut self) {
        if self.config.dst6_min.is_unspecified() {
            return;
        }
        let draw = u128::from(self.random.0.next()) << 64 | u128::from(self.random.0.next());
        let bits = (draw | self.config.dst6_min.to_bits()) & self.config.dst6_max.to_bits();
        self.progress.daddr6 = bits.into();
    }

    fn walk_size(&mut self) {
        let (min, max) = (self.config.min_size, self.config.max_size);
        if min < max {
            self.progress.size = if self.config.flags.has(Flags::TXSIZE_RND) {
                self.random.within(min, max - 1)
            } else {
                step(self.progress.size, min, max)
            };
        } else if !self.config.imix.is_empty() {
            let bin = self.random.below(mix::BINS as u32) as usize;
            let index = usize::from(self.bins[bin]);
            if let Some(entry) = self.config.imix.get(index) {
                self.progress.size = entry.size as u32;
            }
            if let Some(count) = self.progress.imix_counts.get_mut(index) {
                *count += 1;
            }
        }
    }

    fn walk_queue(&mut self) {
        let (min, max) = (self.config.queue_min, self.config.queue_max);
        let flags = self.config.flags;
        let queues = u32::from(self.interface.tx_queues.max(1));
        let queue = if flags.has(Flags::QUEUE_MAP_CPU) {
            self.cpu
        } else if min > max {
            u32::from(self.progress.queue)
        } else if flags.has(Flags::QUEUE_MAP_RND) {
            self.random.within(min.into(), max.into())
        } else {
            step(self.progress.queue.into(), min.into(), max.into())
        };
        self.progress.queue = (queue % queues) as u16;
    }

    fn write_frame(&mut self, now: Time) {
        let (c, p) = (&self.config, &self.progress);
        let network = if c.is_ipv6() {
            Network::V6 {
                src: p.saddr6,
                dst: p.daddr6,
                class: c.traffic_class,
            }
        } else {
            let id = self.memory.ip_id;
            self.memory.ip_id = id.wrapping_add(1);
            Network::V4 {
                src: p.saddr,
                dst: p.daddr,
                tos: c.tos,
                id,
            }
        };
        self.sequence = p.seq_num;
        let tag = if c.flags.has(Flags::NO_TIMESTAMP) {
            PktgenTag {
                sequence: self.sequence,
                time: [0, 0],
            }
        } else {
            match self.time_form {
                TimeForm::Kernel => PktgenTag::at(self.sequence, now.wall_ns),
                TimeForm::Osta => PktgenTag {
                    sequence: self.sequence,
                    time: [(now.mono_ns >> 32) as u32, now.mono_ns as u32],
                },
            }
        };
        let payload = (p.size.saturating_sub(self.headers) as usize).max(PktgenTag::LEN);
        let len = self.headers as usize + payload;
        let fields = Fields {
            dst_mac: self.dst_mac,
            src_mac: self.src_mac,
            svlan: c.svlan.tci(),
            vlan: c.vlan.tci(),
            labels: &c.labels,
            network,
            sport: p.udp_src,
            dport: p.udp_dst,
            tag,
            udp_checksum: c.flags.has(Flags::UDPCSUM),
            len,
        };
        match &self.layout {
            Some(layout) => fields.patch(layout, &mut self.frame),
            None => self.layout = Some(fields.write(&mut self.frame)),
        }
        let frags = if payload > PktgenTag::LEN {
            c.frags.clamp(0, MAX_FRAGS)
        } else {
            0
        };
        self.progress.frags = Some(frags as u32);
        self.calls_of_frame = Some(0);
    }
}

/// skbuff.h: MAX_SKB_FRAGS.
const MAX_FRAGS: i32 = 17;

/// Draws before an excluded destination is sent after all.
const MOST_DRAWS: usize = 1000;

fn check(config: &DeviceConfig, interface: &Interface) -> Result<(), TooLong> {
    let (len, limit) = (config.largest_frame(), config.frame_limit(interface.mtu));
    if len > limit {
        return Err(TooLong { len, limit });
    }
    Ok(())
}

/// The value after `current`; past `max` comes `min`.
const fn step(current: u32, min: u32, max: u32) -> u32 {
    match current.checked_add(1) {
        Some(next) if next <= max => next,
        _ => min,
    }
}

/// The offset to use now, if MAC addresses are walked.
fn mac_offset(count: i32, drawn: bool, next: &mut u32, random: &mut Random) -> Option<u32> {
    if count <= 1 {
        return None;
    }
    let count = count as u32;
    if drawn {
        return Some(random.below(count));
    }
    let offset = *next;
    *next = if offset + 1 >= count { 0 } else { offset + 1 };
    Some(offset)
}

/// Adds to the low five bytes; the first never changes.
fn add_to_mac(base: MacAddr, offset: u32) -> MacAddr {
    const LOW: u64 = (1 << 40) - 1;
    let number = base.to_u64();
    let low = (number & LOW).wrapping_add(u64::from(offset)) & LOW;
    MacAddr::from_u64(number & !LOW | low)
}
