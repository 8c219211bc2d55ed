//! One direction of the device: from the receiving half of one port to the sending half of the other.

use std::collections::VecDeque;
use std::time::Duration;

use wb_machine::clock::{self, ClockOffset};
use wb_port::fault::{Impairer, Impairment, InvalidImpairment};
use wb_port::{PortError, QueuePair, RxFrame, RxQueue, TxQueue};
use wb_wire::find_tag;

use super::counters::{CounterSlot, DirectionCounters};
use super::pool::{FrameHandle, FramePool};
use super::wake_tuning::WakeTuning;

/// Maximum number of frames received between two checks for due departures.
const BATCH: usize = 64;
/// Maximum number of frames that wait for a blocked link; more are counted as refused.
const BACKLOG: usize = 1 << 16;
/// Maximum age of published counters while frames pass.
const PUBLISH_NS: u64 = 50_000_000;
/// Maximum time until a frame other than a test frame is noticed while others are inside.
const MAX_UNNOTICED_NS: u64 = 500_000;
/// Shorter delays leave no time to sleep without checking for frames.
const SHORT_NS: u64 = 10_000;
/// Interval of retries for a blocked link.
const STUCK: Duration = Duration::from_micros(200);
/// Sleep time of an idle thread.
pub(super) const IDLE: Duration = Duration::from_millis(500);
/// Interval of clock comparisons: timestamps use the wall clock, which may be set at any time.
const CLOCK_NS: u64 = 100_000_000;

/// State of a direction and its thread: receives with `R`, sends with `T`.
pub(super) struct ImpairedDirection<R, T> {
    rx: R,
    tx: T,
    impairer: Impairer<FrameHandle>,
    /// Treats packets of TCP and UDP like test frames.
    all: bool,
    pool: FramePool,
    /// Frames on their way to the link, in order.
    outgoing: VecDeque<FrameHandle>,
    /// Minimum time between arrival and departure of a frame.
    shortest_ns: u64,
    counters: DirectionCounters,
    slot: CounterSlot,
    published_ns: u64,
    offset: ClockOffset,
    offset_ns: u64,
    sent_ns: u64,
    tuning: WakeTuning,
}

impl<R: QueuePair, T: QueuePair> ImpairedDirection<R, T> {
    pub(super) fn new(
        rx: R,
        tx: T,
        impairment: &Impairment,
        all: bool,
        slot: CounterSlot,
        tuning: WakeTuning,
    ) -> Result<Self, InvalidImpairment> {
        let now = clock::monotonic_ns();
        Ok(Self {
            rx,
            tx,
            impairer: Impairer::new(impairment)?,
            all,
            pool: FramePool::default(),
            outgoing: VecDeque::new(),
            shortest_ns: impairment.delay_ns.saturating_sub(impairment.jitter_ns),
            counters: DirectionCounters::default(),
            slot,
            published_ns: now,
            offset: clock::wall_minus_monotonic(),
            offset_ns: now,
            sent_ns: 0,
            tuning,
        })
    }

    /// Performs one round: receives frames, sends due ones, waits for the next event. Returns
    /// true if no frame came for a while, so that the caller can do other work.
    pub(super) fn run_round(&mut self) -> Result<bool, PortError> {
        let came = self.receive_frames()?;
        let now = clock::monotonic_ns();
        self.send_due(now);
        self.send(now)?;
        if now - self.published_ns >= PUBLISH_NS {
            self.publish(now);
        }
        self.tuning.enforce_sleep_quota(now);
        if came == BATCH {
            return Ok(false);
        }
        self.wait(now)
    }

    fn receive_frames(&mut self) -> Result<usize, PortError> {
        let now = clock::monotonic_ns();
        if now - self.offset_ns >= CLOCK_NS {
            self.offset = clock::wall_minus_monotonic();
            self.offset_ns = now;
        }
        let Self {
            rx,
            impairer,
            all,
            pool,
            outgoing,
            counters,
            offset,
            ..
        } = self;
        rx.rx().receive(BATCH, |frame: &RxFrame<'_>| {
            let whole = frame.original_len as usize == frame.bytes.len();
            let Some(handle) = whole
                .then(|| pool.store_frame(frame.bytes, frame.vlan))
                .flatten()
            else {
                counters.overflowed += 1;
                return;
            };
            let bytes = pool.bytes(handle);
            if find_tag(bytes).is_none() && !(*all && is_transport(bytes)) {
                counters.passed += 1;
                outgoing.push_back(handle);
                return;
            }
            // The clock may have been set since the timestamp; no frame waits here for a second.
            let stamp = offset.monotonic_of(frame.stamp_ns);
            let arrival = if now.abs_diff(stamp) > 1_000_000_000 {
                now
            } else {
                stamp
            };
            let len = bytes.len() as u32;
            if let Some(dropped) =
                impairer.arrive(arrival, len, handle, |handle| pool.copy_frame(*handle))
            {
                pool.release(dropped);
            }
        })
    }

    fn send_due(&mut self, now: u64) {
        // Departures that are grouped are up to half the group's time early or late, so the
        // median delay is the requested one.
        let quantum_ns = self.tuning.quantum_ns;
        let ahead_ns = if self.shortest_ns >= quantum_ns {
            quantum_ns / 2
        } else {
            0
        };
        while let Some((handle, due_ns)) = self.impairer.depart(now + ahead_ns) {
            let late_ns = now.saturating_sub(due_ns);
            self.counters.late_sum_ns += late_ns;
            self.counters.late_max_ns = self.counters.late_max_ns.max(late_ns);
            self.outgoing.push_back(handle);
        }
    }

    /// Passes as many frames as the link accepts.
    fn send(&mut self, now: u64) -> Result<(), PortError> {
        while !self.outgoing.is_empty() {
            let tx = self.tx.tx();
            let lent = tx.lend(self.outgoing.len().min(BATCH));
            if lent == 0 {
                break;
            }
            for (i, handle) in self.outgoing.drain(..lent).enumerate() {
                let bytes = self.pool.bytes(handle);
                let slot = tx.slot(i);
                // Both links of a lab have the same MTU, so the frame fits.
                let len = bytes.len().min(slot.bytes.len());
                slot.bytes[..len].copy_from_slice(&bytes[..len]);
                *slot.len = len as u32;
                *slot.cookie = 0;
                self.pool.release(handle);
            }
            tx.submit(lent);
            self.flush()?;
            self.sent_ns = now;
        }
        if self.tx.tx().in_flight() > 0 {
            self.flush()?;
        }
        while self.outgoing.len() > BACKLOG {
            let dropped = self.outgoing.pop_front().expect("it is not empty");
            self.pool.release(dropped);
            self.counters.tx_refused += 1;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        match self.tx.tx().flush() {
            Err(error) if !error.is_transient() => return Err(error),
            _ => {}
        }
        let refused = &mut self.counters.tx_refused;
        self.tx.tx().take_refused(|_| *refused += 1);
        Ok(())
    }

    fn publish(&mut self, now: u64) {
        self.published_ns = now;
        self.counters.rx_dropped = self.rx.rx().counters().dropped_frames;
        self.counters
            .update_counters(self.impairer.counters(), self.impairer.inside());
        self.slot.publish(&self.counters);
    }

    fn wait(&mut self, now: u64) -> Result<bool, PortError> {
        let stuck = !self.outgoing.is_empty() || self.tx.tx().in_flight() > 0;
        let Some(due_ns) = self.impairer.next_departure() else {
            if stuck {
                self.wait_for_frames(STUCK)?;
                return Ok(false);
            }
            self.publish(now);
            return Ok(!self.wait_for_frames(IDLE)?);
        };
        // Later arrivals leave no sooner than this, so no check is needed until then.
        let blind_ns = self.shortest_ns.min(MAX_UNNOTICED_NS);
        if blind_ns >= self.tuning.quantum_ns.max(SHORT_NS) {
            let together_ns = self.sent_ns + self.tuning.quantum_ns;
            self.tuning
                .sleep_until(due_ns.min(now + blind_ns).max(together_ns), now);
            return Ok(false);
        }
        // Frames that leave immediately may arrive.
        let alarm_ns = self.tuning.wake_time(due_ns);
        if alarm_ns > now + self.tuning.spin_ns {
            self.wait_for_frames(Duration::from_nanos(alarm_ns - now))?;
        }
        Ok(false)
    }

    fn wait_for_frames(&mut self, at_most: Duration) -> Result<bool, PortError> {
        let before = clock::monotonic_ns();
        let came = self.rx.rx().wait(at_most)?;
        self.tuning.note_sleep(clock::monotonic_ns() - before);
        Ok(came)
    }
}

/// Returns true if a frame, after at most one VLAN tag, is TCP or UDP. ARP and neighbour discovery are excluded, since
/// no traffic could pass without them.
fn is_transport(frame: &[u8]) -> bool {
    let kind_at = match frame.get(12..14) {
        Some([0x81, 0x00]) => 16,
        _ => 12,
    };
    let protocol_at = match frame.get(kind_at..kind_at + 2) {
        Some([0x08, 0x00]) => kind_at + 2 + 9,
        Some([0x86, 0xdd]) => kind_at + 2 + 6,
        _ => return false,
    };
    matches!(frame.get(protocol_at), Some(6 | 17))
}
