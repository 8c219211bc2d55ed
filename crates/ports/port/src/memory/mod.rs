//! Driver `memory:NAME`: a link of two ports inside the process.
//!
//! Each direction of each lane is a ring of frame slots. The receiver reads a frame in place. A frame arrives when its
//! sender flushes; the clock's time at that moment (plus the delay, if the link impairs) is its timestamp. The caller
//! supplies the clock: real time to measure the maximum speed of the engine, virtual time in tests.
//!
//! A direction may impair its frames ([`crate::fault`]). Each lane does so separately, with the full capacity of the
//! impairment and a separate seed. Frames that the impairment has accepted no longer occupy the ring.
//!
//! If the peer of a port was dropped, the port sends at full rate and the frames are lost.

mod device;
mod queue;
mod registry;
pub(crate) mod spsc;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::Clock;
use crate::fault::{ImpairCounters, Impairment};
use crate::{PortError, PortFacts, Speed};

pub use queue::{MemoryQueue, MemoryRx, MemoryTx};
pub use registry::Registry;

use device::Device;

/// Options of a link. [`LinkOptions::new`] sets common values for all except name and clock.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Name, without `memory:`.
    pub name: String,
    /// Time source of timestamps and of the impairment.
    pub clock: Clock,
    /// Queue pairs of each end. Lane `i` of one end is connected with lane `i` of the other.
    pub queues: u32,
    /// Frames that may wait for the receiver in each lane, rounded up to a power of two. The same number may in
    /// addition be lent or in flight at the sender.
    pub depth: u32,
    /// Largest IP packet in bytes. Frames may have this plus the Ethernet header and two VLAN tags.
    pub mtu: u32,
    /// Value of [`crate::TxQueue::batch_hint`].
    pub batch: u32,
    /// True to refuse frames for which the receiver has no room instead of keeping them in flight.
    pub drop_when_full: bool,
    /// Link speed to report.
    pub speed: Option<Speed>,
    /// Impairment of frames from the first end to the second.
    pub forward: Impairment,
    /// Impairment of frames from the second end to the first.
    pub backward: Impairment,
}

impl LinkOptions {
    /// One lane of 1024 frames, MTU 1500, batches of 64, no impairment.
    #[must_use]
    pub fn new(name: impl Into<String>, clock: Clock) -> Self {
        Self {
            name: name.into(),
            clock,
            queues: 1,
            depth: 1024,
            mtu: 1500,
            batch: 64,
            drop_when_full: false,
            speed: None,
            forward: Impairment::default(),
            backward: Impairment::default(),
        }
    }

    /// Sets one impairment for both directions, with different seeds.
    #[must_use]
    pub fn impaired(mut self, impairment: &Impairment) -> Self {
        self.backward = impairment.with_seed(impairment.seed ^ 0x5555_5555);
        self.forward = impairment.clone();
        self
    }

    fn locator(&self) -> String {
        format!("memory:{}", self.name)
    }

    /// Ethernet header and two VLAN tags in addition to the packet.
    fn frame_capacity(&self) -> usize {
        self.mtu as usize + 14 + 8
    }

    fn slots(&self) -> (usize, usize) {
        let depth = (self.depth as usize).next_power_of_two();
        (depth * 2, depth)
    }

    /// Most memory that the frames of the link take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let (slots, _) = self.slots();
        let of_lane = slots as u64 * spsc::slot_bytes(self.frame_capacity()) as u64;
        2 * of_lane * u64::from(self.queues)
    }

    fn validate(&self) -> Result<(), PortError> {
        let allowed = |name: &str, value: u32, from: u32, to: u32| {
            if (from..=to).contains(&value) {
                return Ok(());
            }
            Err(format!(
                "{name} must be between {from} and {to}, got {value}"
            ))
        };
        allowed("queues", self.queues, 1, 1024)
            .and_then(|()| allowed("depth", self.depth, 1, 1 << 20))
            .and_then(|()| allowed("mtu", self.mtu, 68, 65_535))
            .and_then(|()| allowed("batch", self.batch, 1, 1 << 20))
            .and_then(|()| self.forward.validate().map_err(|e| e.to_string()))
            .and_then(|()| self.backward.validate().map_err(|e| e.to_string()))
            .map_err(|what| PortError::Input {
                port: self.locator(),
                what,
            })
    }
}

/// One end of a link.
#[derive(Debug)]
pub struct MemoryPort {
    /// Properties of the port.
    pub facts: PortFacts,
    /// Queue pairs, to move to the workers.
    pub queues: Vec<MemoryQueue>,
    /// Control of the link, which remains after the queues have moved to workers.
    pub control: LinkControl,
}

/// Connects, disconnects or removes a link, and returns the counters of its impairments. All clones and both ends
/// control the same link.
#[derive(Clone, Debug, Default)]
pub struct LinkControl(Arc<LinkState>);

#[derive(Debug, Default)]
struct LinkState {
    status: AtomicU8,
    forward: Vec<Arc<Mutex<ImpairCounters>>>,
    backward: Vec<Arc<Mutex<ImpairCounters>>>,
}

const UP: u8 = 0;
const DOWN: u8 = 1;
const GONE: u8 = 2;

impl LinkControl {
    /// Connects or disconnects the link. Frames stay in flight while it is disconnected.
    pub fn set_up(&self, up: bool) {
        let to = if up { UP } else { DOWN };
        self.0.status.store(to, Ordering::Release);
    }

    /// Removes the link, as if the interfaces had been removed.
    pub fn remove(&self) {
        self.0.status.store(GONE, Ordering::Release);
    }

    /// Totals of the impairment from the first end to the second, over all lanes, as of the last call of `receive` per
    /// lane.
    #[must_use]
    pub fn forward_counters(&self) -> ImpairCounters {
        sum(&self.0.forward)
    }

    /// Totals of the impairment from the second end to the first.
    #[must_use]
    pub fn backward_counters(&self) -> ImpairCounters {
        sum(&self.0.backward)
    }

    #[inline]
    fn status(&self) -> u8 {
        // Acquire pairs with the Release of the setters: everything done before the link was disconnected is visible.
        self.0.status.load(Ordering::Acquire)
    }
}

fn sum(lanes: &[Arc<Mutex<ImpairCounters>>]) -> ImpairCounters {
    let mut sum = ImpairCounters::default();
    for lane in lanes {
        sum.merge(&lane.lock().unwrap_or_else(PoisonError::into_inner));
    }
    sum
}

/// Creates a link and returns its two ends.
///
/// # Errors
/// If an option is out of range.
pub fn link(options: &LinkOptions) -> Result<(MemoryPort, MemoryPort), PortError> {
    options.validate()?;
    let lanes = |impairment: &Impairment| {
        let n = if impairment.is_none() {
            0
        } else {
            options.queues
        };
        (0..n).map(|_| Arc::default()).collect()
    };
    let control = LinkControl(Arc::new(LinkState {
        status: AtomicU8::new(UP),
        forward: lanes(&options.forward),
        backward: lanes(&options.backward),
    }));
    let mut ends = (Vec::new(), Vec::new());
    for lane in 0..options.queues as usize {
        let (to_b, from_a) = half(
            options,
            &options.forward,
            &control.0.forward,
            lane,
            &control,
        )?;
        let (to_a, from_b) = half(
            options,
            &options.backward,
            &control.0.backward,
            lane,
            &control,
        )?;
        ends.0.push(MemoryQueue::new(to_b, from_b));
        ends.1.push(MemoryQueue::new(to_a, from_a));
    }
    Ok((
        port(options, ends.0, &control, 0x0a),
        port(options, ends.1, &control, 0x0b),
    ))
}

/// Creates a port that accepts frames at full rate, drops them and counts them as sent.
///
/// # Errors
/// If an option is out of range.
pub fn sink(options: &LinkOptions) -> Result<MemoryPort, PortError> {
    link(options).map(|(port, _)| port)
}

/// Creates a port that receives its sent frames, through the forward impairment.
///
/// # Errors
/// If an option is out of range.
pub fn looped(options: &LinkOptions) -> Result<MemoryPort, PortError> {
    let (mut a, b) = link(options)?;
    for (near, far) in a.queues.iter_mut().zip(b.queues) {
        near.receive_from(far);
    }
    "loop, ".clone_into(&mut a.facts.mode);
    a.facts.mode += time_mode(options);
    Ok(a)
}

fn half(
    options: &LinkOptions,
    impairment: &Impairment,
    counters: &[Arc<Mutex<ImpairCounters>>],
    lane: usize,
    control: &LinkControl,
) -> Result<(MemoryTx, MemoryRx), PortError> {
    let (slots, depth) = options.slots();
    let (sender, receiver) = spsc::ring(slots, depth, options.frame_capacity());
    let device = match counters.get(lane) {
        None => None,
        Some(published) => {
            let seeded = impairment.with_seed(impairment.seed.wrapping_add(lane as u64));
            let device = Device::new(&seeded, options.frame_capacity(), Arc::clone(published));
            Some(device.map_err(|e| PortError::Input {
                port: options.locator(),
                what: e.to_string(),
            })?)
        }
    };
    Ok((
        MemoryTx::new(sender, options, control),
        MemoryRx::new(receiver, device, options, control),
    ))
}

fn port(
    options: &LinkOptions,
    queues: Vec<MemoryQueue>,
    control: &LinkControl,
    end: u8,
) -> MemoryPort {
    MemoryPort {
        facts: PortFacts {
            locator: options.locator(),
            driver: "memory",
            mode: format!("in process, {}", time_mode(options)),
            ifindex: 0,
            // Locally administered; `wb` in the middle.
            mac: [0x02, 0x77, 0x62, 0x00, 0x00, end],
            mtu: options.mtu,
            speed: options.speed,
            queues: options.queues,
            stamp_source: options.clock.stamp_source(),
            kernel_driver: String::new(),
            warnings: Vec::new(),
        },
        queues,
        control: control.clone(),
    }
}

fn time_mode(options: &LinkOptions) -> &'static str {
    if options.clock.is_real() {
        "real time"
    } else {
        "virtual time"
    }
}
