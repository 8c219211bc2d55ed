//! Walks a device from packet to packet: steps its fields, builds frames and counts transmit calls.
//!
//! Knows neither ports nor clocks: a worker asks for the next transmit call, reports its result, and passes the time.
//!
//! ```
//! use wb_model::device::{Defaults, DeviceConfig, Interface};
//! use wb_pktgen_device::{DeviceTime, Start, Walker};
//!
//! let mut config = DeviceConfig::new("eth0", &Defaults::default());
//! (config.count, config.min_size) = (3, 60);
//! let mut walker = Walker::new(config, &Start { interface: Interface::default(), ..Start::default() })?;
//! while let Some(call) = walker.poll(DeviceTime::default()) {
//!     assert_eq!(call.frame.len(), 60);
//!     let all = call.copies; // what the port took
//!     walker.sent(all);
//! }
//! assert_eq!(walker.progress().sofar, 3);
//! # Ok::<(), wb_pktgen_device::TooLong>(())
//! ```

use wb_model::device::{Delay, DeviceConfig, Flags, Interface, TimeForm, mix};
use wb_model::units::Mac;
use wb_wire::{MacAddr, PktgenTag, SplitMix64};

use crate::DeviceTime;
use crate::flows::Flows;
use crate::frame::{BOTTOM_OF_STACK, Fields, FrameLayout, NetworkFields};
use crate::progress::DeviceProgress;

mod recipe;

pub use recipe::{FieldRecipe, FrameRecipe, PlaceSelection, Recipe};

/// State that a device keeps from one run to the next, besides its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// IPv4 identification of the next built packet.
    pub ip_id: u16,
    /// The flow table.
    pub flows: Flows,
}

/// Initial state of a walk.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Interface for sending.
    pub interface: Interface,
    /// CPU of the thread.
    pub cpu: u32,
    /// Seed of random choices; the same seed gives the same packets.
    pub seed: u64,
    /// Format of the timestamp in packets.
    pub time_form: TimeForm,
    /// State from earlier runs.
    pub memory: Memory,
    /// Current values from earlier runs.
    pub progress: DeviceProgress,
}

/// A frame that the interface cannot send.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet size {len} exceeds {limit}")]
pub struct TooLong {
    /// Length of the frame without FCS, in bytes.
    pub len: u64,
    /// Limit of the interface, in bytes.
    pub limit: u64,
}

/// One transmit call: copies of one frame, back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCall<'a> {
    /// The frame, without FCS.
    pub frame: &'a [u8],
    /// Number of copies to send now.
    pub copies: u64,
    /// Transmit queue.
    pub queue: u16,
    /// Sequence number in the frame.
    pub sequence: u32,
    /// Time at which the call is due, in ns after the start.
    pub due_ns: u64,
}

/// Fields that change at all, so that a packet pays only for those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Walks {
    macs: bool,
    tags: bool,
    ports: bool,
    addresses: bool,
    sizes: bool,
}

impl Walks {
    fn from_config(c: &DeviceConfig, source: (u32, u32), destination: (u32, u32)) -> Self {
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

/// Walk of a device. Call [`poll`](Self::poll), then [`sent`](Self::sent) or [`refused`](Self::refused), until `poll`
/// returns `None`.
#[derive(Clone, Debug)]
pub struct Walker {
    config: DeviceConfig,
    interface: Interface,
    cpu: u32,
    time_form: TimeForm,
    random: SplitMix64,
    memory: Memory,
    progress: DeviceProgress,
    source: (u32, u32),
    destination: (u32, u32),
    bins: [u8; mix::BINS],
    walks: Walks,
    /// Bytes before the UDP payload.
    headers: u32,
    src_mac: MacAddr,
    dst_mac: MacAddr,
    frame: Vec<u8>,
    /// Layout of the frame, as long as the next one has the same tags and settings.
    layout: Option<FrameLayout>,
    sequence: u32,
    /// Calls made with the current frame; `None` if there is no frame.
    calls_of_frame: Option<u32>,
    /// Packets of the current call that remain to be sent.
    left: u64,
    /// Calls since `pace_base_ns`.
    calls: u64,
    /// Time at which call 0 of the current pace was due, in ns after the start.
    pace_base_ns: u64,
}

impl Walker {
    /// Starts a run: settles the configuration, and sets current values to their minima and counters to zero.
    ///
    /// # Errors
    /// The interface cannot send the largest frame of the configuration.
    pub fn new(mut config: DeviceConfig, start: &Start) -> Result<Self, TooLong> {
        config.settle(&start.interface);
        check(&config, &start.interface)?;
        let mut progress = start.progress.clone();
        progress.start(&config, &start.interface);
        let mut memory = start.memory.clone();
        let (min, max) = config.destination_range();
        memory.flows.resize_and_clear(config.flows, min, max);
        let mut walker = Self {
            interface: start.interface.clone(),
            cpu: start.cpu,
            time_form: start.time_form,
            random: SplitMix64(start.seed),
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

    /// Configuration in use; random tags and labels are set in it.
    pub const fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Counters and current values.
    pub const fn progress(&self) -> &DeviceProgress {
        &self.progress
    }

    /// State for a later run.
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Applies a configuration changed during the run, from the next packet on. A new pace begins with the call that is
    /// due next.
    ///
    /// # Errors
    /// The interface cannot send the largest frame of the configuration. The old configuration stays in use.
    pub fn reconfigure(&mut self, config: &DeviceConfig) -> Result<(), TooLong> {
        let due_ns = self.due_ns();
        self.take_over(config, |_| due_ns)
    }

    /// Like [`reconfigure`](Self::reconfigure), at `elapsed_ns` after the start. The next call is due at the latest
    /// according to the new pace, and at once if there was no pace before. Full speed leaves no backlog.
    ///
    /// # Errors
    /// Fails like [`reconfigure`](Self::reconfigure).
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

    /// Updates all state that depends on the configuration.
    fn derive(&mut self) {
        self.layout = None;
        self.source = self.config.source_range(&self.interface);
        self.destination = self.config.destination_range();
        self.bins = mix::bins(&self.config.imix);
        self.walks = Walks::from_config(&self.config, self.source, self.destination);
        let smallest = self.config.frame_len(0) as u32;
        self.headers = smallest - PktgenTag::LEN as u32;
        self.src_mac = MacAddr(self.config.src_mac.unwrap_or(self.interface.mac).0);
        self.dst_mac = MacAddr(self.config.dst_mac.0);
    }

    /// Sets the start of the run for the report, in CLOCK_MONOTONIC ns.
    pub const fn started(&mut self, mono_ns: u64) {
        self.progress.started_ns = mono_ns;
    }

    /// Sets the end of the run, or the current time, for the report, in CLOCK_MONOTONIC ns.
    pub const fn stopped(&mut self, mono_ns: u64) {
        self.progress.stopped_ns = mono_ns;
    }

    /// Sets the idle time so far for the report, in ns.
    pub const fn idle(&mut self, ns: u64) {
        self.progress.idle_ns = ns;
    }

    /// Time at which the next call is due, in ns after the start.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        if self.config.delay.exact_ns.numerator() == 0 {
            return self.pace_base_ns;
        }
        self.pace_base_ns
            .saturating_add(self.config.delay.due_ns(self.calls))
    }

    /// Returns the next transmit call, or the rest of an incomplete one. Returns `None` once the count is reached. A
    /// packet that is built now carries `now`.
    ///
    /// With the delay [`Delay::NEVER`](wb_model::device::Delay::NEVER) the next call is due at the end of time: check
    /// `due_ns`.
    pub fn poll(&mut self, now: DeviceTime) -> Option<DeviceCall<'_>> {
        self.poll_with(|_| now)
    }

    /// Like [`poll`](Self::poll), but reads the time only if it builds a packet with a timestamp. Of the two clocks,
    /// only the one for the given format is needed.
    #[inline]
    pub fn poll_with(
        &mut self,
        now: impl FnOnce(TimeForm) -> DeviceTime,
    ) -> Option<DeviceCall<'_>> {
        if self.left == 0 {
            if self.has_reached_count() {
                return None;
            }
            if !self.is_reusable() {
                let now = if self.config.flags.has(Flags::NO_TIMESTAMP) {
                    DeviceTime::default()
                } else {
                    now(self.time_form)
                };
                self.build(now);
            }
            self.left = self.config.burst.max(1) as u64;
        }
        Some(DeviceCall {
            copies: self.left,
            queue: self.progress.queue,
            sequence: self.sequence,
            due_ns: self.due_ns(),
            frame: &self.frame,
        })
    }

    /// Returns true if the next call sends the current packet again.
    #[inline]
    fn is_reusable(&self) -> bool {
        let calls = self.config.clone_skb.max(1) as u32;
        self.config.flags.has(Flags::SHARED) && self.calls_of_frame.is_some_and(|made| made < calls)
    }

    /// Returns true if the count is reached and the last call is complete.
    #[inline]
    pub const fn has_reached_count(&self) -> bool {
        self.left == 0 && self.config.count != 0 && self.progress.sofar >= self.config.count
    }

    /// Reports that `copies` packets of the current call were sent.
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

    /// Reports that the port refused the current call, which will be offered again.
    pub const fn refused(&mut self) {
        self.progress.errors += 1;
    }

    /// Reports that the port refused packets after it had accepted them; later packets replace them.
    pub const fn taken_back(&mut self, packets: u64) {
        self.withdrawn(packets);
        self.progress.errors += packets;
    }

    /// Reports that packets were withdrawn before the port processed them. They count neither as sent nor as errors.
    pub const fn withdrawn(&mut self, packets: u64) {
        self.progress.sofar = self.progress.sofar.saturating_sub(packets);
    }

    /// Number of packets left until the count is reached, in whole calls; `None` if there is no count.
    pub fn remaining(&self) -> Option<u64> {
        let count = self.config.count;
        let burst = self.config.burst.max(1) as u64;
        (count != 0).then(|| {
            let rest = count.saturating_sub(self.progress.sofar + self.left);
            self.left + rest.div_ceil(burst) * burst
        })
    }

    /// Number of packets that were due by `elapsed_ns` after the start and have not been sent; 0 at full speed.
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

    /// Calls [`poll`](Self::poll) and [`sent`](Self::sent) for one packet.
    pub fn next(&mut self, now: DeviceTime) -> Option<(Vec<u8>, u16)> {
        let call = self.poll(now)?;
        let packet = (call.frame.to_vec(), call.queue);
        self.sent(1);
        Some(packet)
    }

    /// Steps every field, in the order of pktgen, and builds the frame.
    fn build(&mut self, now: DeviceTime) {
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
        // Unless it was set, the address walks through the low bytes from zero; only the first byte comes from the
        // interface.
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
                    *label = BOTTOM_OF_STACK | self.random.next_u32() & 0x000f_ffff;
                }
            }
        }
        for (tag, flag) in [
            (&mut self.config.vlan, Flags::VID_RND),
            (&mut self.config.svlan, Flags::SVID_RND),
        ] {
            if flags.has(flag) && tag.id.is_some() {
                self.layout = None;
                tag.id = Some(self.random.below_u32(4096) as u16);
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
                self.random.in_range_u32(min.into(), u32::from(max) - 1) as u16
            } else {
                // Unlike other fields, the upper bound is never sent.
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
                self.random.in_range_u32(min, max - 1)
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
            address = self.random.in_range_u32(min, max);
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
        let draw = u128::from(self.random.next()) << 64 | u128::from(self.random.next());
        let bits = (draw | self.config.dst6_min.to_bits()) & self.config.dst6_max.to_bits();
        self.progress.daddr6 = bits.into();
    }

    fn walk_size(&mut self) {
        let (min, max) = (self.config.min_size, self.config.max_size);
        if min < max {
            self.progress.size = if self.config.flags.has(Flags::TXSIZE_RND) {
                self.random.in_range_u32(min, max - 1)
            } else {
                step(self.progress.size, min, max)
            };
        } else if !self.config.imix.is_empty() {
            let bin = self.random.below_u32(mix::BINS as u32) as usize;
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
            self.random.in_range_u32(min.into(), max.into())
        } else {
            step(self.progress.queue.into(), min.into(), max.into())
        };
        self.progress.queue = (queue % queues) as u16;
    }

    fn write_frame(&mut self, now: DeviceTime) {
        let (c, p) = (&self.config, &self.progress);
        let network = if c.is_ipv6() {
            NetworkFields::V6 {
                src: p.saddr6,
                dst: p.daddr6,
                class: c.traffic_class,
            }
        } else {
            let id = self.memory.ip_id;
            self.memory.ip_id = id.wrapping_add(1);
            NetworkFields::V4 {
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

/// Number of draws after which an excluded destination is sent.
const MOST_DRAWS: usize = 1000;

fn check(config: &DeviceConfig, interface: &Interface) -> Result<(), TooLong> {
    let (len, limit) = (config.largest_frame(), config.frame_limit(interface.mtu));
    if len > limit {
        return Err(TooLong { len, limit });
    }
    Ok(())
}

/// Returns the value after `current`; `min` follows `max`.
const fn step(current: u32, min: u32, max: u32) -> u32 {
    match current.checked_add(1) {
        Some(next) if next <= max => next,
        _ => min,
    }
}

/// Returns the current offset, if MAC addresses change.
fn mac_offset(count: i32, drawn: bool, next: &mut u32, random: &mut SplitMix64) -> Option<u32> {
    if count <= 1 {
        return None;
    }
    let count = count as u32;
    if drawn {
        return Some(random.below_u32(count));
    }
    let offset = *next;
    *next = if offset + 1 >= count { 0 } else { offset + 1 };
    Some(offset)
}

/// Adds to the low five bytes; the first byte never changes.
fn add_to_mac(base: MacAddr, offset: u32) -> MacAddr {
    const LOW: u64 = (1 << 40) - 1;
    let number = base.to_u64();
    let low = (number & LOW).wrapping_add(u64::from(offset)) & LOW;
    MacAddr::from_u64(number & !LOW | low)
}
