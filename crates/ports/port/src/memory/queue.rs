//! The two halves of a lane.

use std::fmt;
use std::time::Duration;

use super::device::Device;
use super::{DOWN, GONE, LinkControl, LinkOptions, UP, spsc};
use crate::clock::Clock;
use crate::refused::RefusedFrames;
use crate::{
    ChecksumState, PortError, QueuePair, RxCounters, RxFrame, RxQueue, Slot, StampSource,
    TxCounters, TxQueue,
};

/// Queue pair of a memory port.
#[derive(Debug)]
pub struct MemoryQueue {
    tx: MemoryTx,
    rx: MemoryRx,
}

impl MemoryQueue {
    pub(super) fn new(tx: MemoryTx, rx: MemoryRx) -> Self {
        Self { tx, rx }
    }

    /// Splits the pair into its halves, for wrappers or for two threads.
    #[must_use]
    pub fn into_halves(self) -> (MemoryTx, MemoryRx) {
        (self.tx, self.rx)
    }

    pub(super) fn receive_from(&mut self, other: Self) {
        self.rx = other.rx;
    }
}

impl QueuePair for MemoryQueue {
    type Tx = MemoryTx;
    type Rx = MemoryRx;

    #[inline]
    fn split(&mut self) -> (&mut MemoryTx, &mut MemoryRx) {
        (&mut self.tx, &mut self.rx)
    }
}

/// The sending half.
pub struct MemoryTx {
    ring: spsc::RingSender,
    clock: Clock,
    control: LinkControl,
    port: String,
    batch: usize,
    drop_when_full: bool,
    counters: TxCounters,
    refused: RefusedFrames,
}

impl MemoryTx {
    pub(super) fn new(
        ring: spsc::RingSender,
        options: &LinkOptions,
        control: &LinkControl,
    ) -> Self {
        Self {
            ring,
            clock: options.clock.clone(),
            control: control.clone(),
            port: options.locator(),
            batch: options.batch as usize,
            drop_when_full: options.drop_when_full,
            counters: TxCounters::default(),
            refused: RefusedFrames::default(),
        }
    }

    #[cold]
    fn left_over(&mut self) {
        self.counters.full_events += 1;
        if !self.drop_when_full {
            return;
        }
        for i in 0..self.ring.pending() {
            self.refused.push(self.ring.pending_bytes(i));
        }
        self.counters.refused_frames += self.ring.pending() as u64;
        self.ring.retract();
    }
}

impl TxQueue for MemoryTx {
    fn frame_capacity(&self) -> usize {
        self.ring.capacity()
    }

    fn batch_hint(&self) -> usize {
        self.batch
    }

    #[inline]
    fn lend(&mut self, n: usize) -> usize {
        self.ring.lend(n)
    }

    #[inline]
    fn slot(&mut self, i: usize) -> Slot<'_> {
        let (bytes, len, cookie) = self.ring.slot(i);
        Slot { bytes, len, cookie }
    }

    #[inline]
    fn submit(&mut self, n: usize) {
        self.ring.submit(n);
        self.counters.submitted_frames += n as u64;
    }

    #[inline]
    fn flush(&mut self) -> Result<(), PortError> {
        check(&self.control, &self.port, true)?;
        let room = self.ring.free_slots();
        if room > 0 {
            self.counters.sent_octets += self.ring.publish(room, self.clock.now_ns());
            self.counters.sent_frames += room as u64;
        }
        if self.ring.pending() > 0 {
            self.left_over();
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.ring.pending()
    }

    fn take_refused<F: FnMut(&[u8])>(&mut self, each: F) {
        self.refused.take(each);
    }

    fn withdraw<F: FnMut(&[u8])>(&mut self, mut each: F) {
        for i in 0..self.ring.pending() {
            each(self.ring.pending_bytes(i));
        }
        self.counters.withdrawn_frames += self.ring.pending() as u64;
        self.ring.retract();
    }

    fn counters(&self) -> TxCounters {
        self.counters
    }
}

/// The receiving half.
pub struct MemoryRx {
    ring: spsc::RingReceiver,
    device: Option<Box<Device>>,
    clock: Clock,
    stamp_source: StampSource,
    control: LinkControl,
    port: String,
    counters: RxCounters,
}

impl MemoryRx {
    pub(super) fn new(
        ring: spsc::RingReceiver,
        device: Option<Device>,
        options: &LinkOptions,
        control: &LinkControl,
    ) -> Self {
        Self {
            ring,
            device: device.map(Box::new),
            clock: options.clock.clone(),
            stamp_source: options.clock.stamp_source(),
            control: control.clone(),
            port: options.locator(),
            counters: RxCounters::default(),
        }
    }

    fn is_ready(&mut self) -> bool {
        let Some(device) = &mut self.device else {
            return self.ring.available(1) > 0;
        };
        // Read the time before the ring: all frames with an earlier timestamp are then in the ring or already accepted.
        let now_ns = self.clock.now_ns();
        device.take_in(&mut self.ring);
        device.has_due(now_ns)
    }

    #[inline(never)]
    fn receive_impaired<F: FnMut(&RxFrame<'_>)>(&mut self, max: usize, mut on_frame: F) -> usize {
        let Some(device) = &mut self.device else {
            return 0;
        };
        let now_ns = self.clock.now_ns();
        device.take_in(&mut self.ring);
        let source = self.stamp_source;
        let n = device.let_out(now_ns, max, |bytes, due_ns| {
            on_frame(&frame(bytes, due_ns, source));
        });
        self.counters.received_frames += n as u64;
        n
    }
}

impl RxQueue for MemoryRx {
    #[inline]
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        mut on_frame: F,
    ) -> Result<usize, PortError> {
        check(&self.control, &self.port, false)?;
        if self.device.is_some() {
            return Ok(self.receive_impaired(max, on_frame));
        }
        let n = self.ring.available(max);
        for i in 0..n {
            let (bytes, stamp_ns) = self.ring.frame(i);
            on_frame(&frame(bytes, stamp_ns, self.stamp_source));
        }
        if n > 0 {
            self.ring.release(n);
            self.counters.received_frames += n as u64;
        }
        Ok(n)
    }

    #[inline]
    fn look_ahead<F: FnMut(&[u8])>(&mut self, max: usize, mut on_frame: F) {
        // The frames that an impairing device will release are not known in advance.
        if self.device.is_none() {
            let n = self.ring.available(max);
            (0..n).for_each(|i| on_frame(self.ring.frame(i).0));
        }
    }

    /// Polls, because no wake-up exists. In virtual time it polls once, because waiting does not advance the clock.
    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        /// Short compared with the wake-up time of a thread, long compared with a poll.
        const NAP: Duration = Duration::from_micros(20);
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = self.clock.now_ns().saturating_add(timeout_ns);
        loop {
            check(&self.control, &self.port, false)?;
            if self.is_ready() {
                return Ok(true);
            }
            if !self.clock.is_real() {
                std::thread::yield_now();
                return Ok(self.is_ready());
            }
            if self.clock.now_ns() >= until_ns {
                return Ok(false);
            }
            std::thread::sleep(NAP);
        }
    }

    fn counters(&mut self) -> RxCounters {
        self.counters
    }
}

#[inline]
fn frame(bytes: &[u8], stamp_ns: u64, stamp_source: StampSource) -> RxFrame<'_> {
    RxFrame {
        bytes,
        original_len: bytes.len() as u32,
        stamp_ns,
        stamp_source,
        vlan: None,
        checksum: ChecksumState::Unknown,
    }
}

/// A receiver does not notice that the link is down; it receives nothing.
#[inline]
fn check(control: &LinkControl, port: &str, sending: bool) -> Result<(), PortError> {
    match control.status() {
        UP => Ok(()),
        status => not_up(status, port, sending),
    }
}

#[cold]
fn not_up(status: u8, port: &str, sending: bool) -> Result<(), PortError> {
    let port = port.to_owned();
    match status {
        GONE => Err(PortError::Gone { port }),
        DOWN if sending => Err(PortError::LinkDown { port }),
        _ => Ok(()),
    }
}

impl fmt::Debug for MemoryTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTx")
            .field("port", &self.port)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryRx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRx")
            .field("port", &self.port)
            .field("counters", &self.counters)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
