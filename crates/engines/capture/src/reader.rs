//! The loop of a reader: converts frames from a port to buffers of records.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use wb_model::capture::{CaptureOutput, Compression, Overflow};
use wb_model::lateness::{Lateness, Turns};
use wb_port::{
    PortError, RxCounters, RxFrame, RxQueue, StrippedVlan,
    worker_loop::{LAST_FRAMES, POLL_INTERVAL, POLL_INTERVAL_NS},
};

use crate::encode::Encoding;
use crate::pool::{DeliveredBuffer, RecordBuffer};
use crate::{CaptureControl, CaptureShared, CaptureSpec, Clock, ReaderSnapshot};

/// Maximum number of frames per batch.
const BATCH: usize = 1024;
/// Interval between reads of the kernel's drop counters.
const COUNTERS_NS: u64 = 100_000_000;

/// Maximum disorder of timestamps if several CPUs write frames into one ring.
const DISORDER_NS: u64 = 10_000_000;
/// Maximum number of separate losses while the frames before them are still being read.
const LOSSES: usize = 64;

/// Inspects the bytes of a whole frame and its length. Returns true to keep it.
pub type FrameFilter = Box<dyn FnMut(&[u8], u32) -> bool + Send>;

/// Destination of a reader's records.
#[derive(Debug)]
pub(crate) struct Delivery {
    full: Sender<DeliveredBuffer>,
    encoding: Encoding,
    /// The writer needs the progress of this reader, because files change by time and there are other readers.
    tells_clear: bool,
    /// Buffer capacity in bytes. A longer record still fits.
    buffer_bytes: usize,
    flush_ns: u64,
    /// A buffer is delivered as soon as no more frames arrive. Small buffers compress badly.
    flushes_idle: bool,
}

impl Delivery {
    pub(crate) fn new(
        full: Sender<DeliveredBuffer>,
        output: &CaptureOutput,
        encoding: Encoding,
        readers: usize,
    ) -> Self {
        Self {
            full,
            encoding,
            tells_clear: readers > 1 && output.rotate_time.is_some(),
            buffer_bytes: output.buffer_bytes as usize,
            flush_ns: output.flush.as_nanos(),
            flushes_idle: output.compress == Compression::None,
        }
    }
}

/// Parameters of a reader from its capture.
pub struct ReaderSeat {
    /// Frames rejected by this filter count as if they had never passed the kernel's filter. It sees them with their
    /// VLAN tag and before truncation. `None` in the fast path.
    pub filter: Option<FrameFilter>,
    /// Poll for frames instead of sleeping.
    pub busy: bool,
    index: usize,
    shared: Arc<CaptureShared>,
    snap_len: usize,
    limit: Option<u64>,
    overflow: Overflow,
    /// `None` if frames are only counted.
    delivery: Option<Delivery>,
}

impl ReaderSeat {
    pub(crate) fn new(
        index: usize,
        shared: &Arc<CaptureShared>,
        spec: &CaptureSpec,
        delivery: Option<Delivery>,
    ) -> Self {
        Self {
            filter: None,
            busy: false,
            index,
            shared: shared.clone(),
            snap_len: spec.snap_len as usize,
            limit: spec.limit,
            overflow: spec.overflow,
            delivery,
        }
    }
}

impl fmt::Debug for ReaderSeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderSeat")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// Results of a reader.
#[derive(Debug, Default)]
pub struct ReaderOutcome {
    /// The interface that it read.
    pub interface: u32,
    /// R: frames read that passed all filters.
    pub read_frames: u64,
    /// Octets of these frames, with FCS.
    pub read_octets: u64,
    /// Frames rejected by the filter of the seat; otherwise included only in the port's counters.
    pub rejected_frames: u64,
    /// Frames counted, if there is no output.
    pub counted_frames: u64,
    /// C: frames read after the limit was reached.
    pub over_limit_frames: u64,
    /// Q: frames dropped for lack of buffers.
    pub queue_drop_frames: u64,
    /// The part of E that never reached the writer, because it had ended or was no longer waited for.
    pub not_written_frames: u64,
    /// Counters of the port.
    pub rx: RxCounters,
    /// The kernel's counters from which these were computed, by name.
    pub kernel: Vec<(&'static str, u64)>,
    /// Octets of the longest frame, without FCS.
    pub longest_frame: u32,
    /// Longest time between two reads of the port.
    pub longest_gap_ns: u64,
    /// Lateness of the reader, including waits for a buffer, because the ring fills during those too.
    pub lateness: Lateness,
    /// Number of waits for a buffer.
    pub buffer_waits: u64,
    /// Total time of these waits.
    pub buffer_wait_ns: u64,
    /// Error that ended it early.
    pub fault: Option<PortError>,
    /// The port has reached the end of a capture file.
    pub received_all: bool,
    /// Frames in the port at the stop were not read, because the end was hurried.
    pub hurried: bool,
}

/// Reads until the control requests a stop or the port is exhausted; then reads the remaining frames.
pub fn run_reader<R: RxQueue, C: Clock>(
    rx: &mut R,
    seat: ReaderSeat,
    interface: u32,
    control: &CaptureControl,
    clock: &C,
) -> ReaderOutcome {
    let mut reader = FrameReader::new(seat, interface, control, clock);
    let end = reader.run_until_end(rx);
    reader.hand_over();
    reader.ask_counters(rx);
    reader.outcome.kernel = rx.kernel_counters();
    let received_all = matches!(end, Err(PortError::EndOfFile { .. }));
    ReaderOutcome {
        fault: end.err().filter(|_| !received_all),
        received_all,
        // Last, because it reports the end and releases the writer.
        ..reader.finish()
    }
}

struct FrameReader<'a, C> {
    control: &'a CaptureControl,
    clock: &'a C,
    seat: ReaderSeat,
    buffer: Option<RecordBuffer>,
    /// Arrival of its first record, monotonic.
    buffer_since_ns: u64,
    /// Bytes of all earlier buffers.
    delivered_bytes: u64,
    /// A frame with its VLAN tag restored.
    restored: Vec<u8>,
    outcome: ReaderOutcome,
    latest_stamp_ns: u64,
    looked_ns: u64,
    expected: Turns,
    counters_ns: u64,
    flushes: u64,
    /// Frames need the slow path: they are filtered, or one must report a loss.
    slow: bool,
    losses: UnreportedLosses,
}

/// Frames dropped by the kernel that no record has reported yet.
///
/// The counter shows the number of lost frames, not their position. All frames in the ring at the time of the reading
/// may precede the loss. Therefore the first frame with a later timestamp, or the first one after the ring was empty,
/// reports it.
#[derive(Debug, Default)]
struct UnreportedLosses {
    /// K at a reading of the counter, and the timestamp from which frames came after it; the oldest first.
    seen: VecDeque<(u64, u64)>,
    /// The part of K already reported by records.
    told: u64,
}

impl UnreportedLosses {
    /// Records that the counter is `dropped` at this time.
    fn record_dropped(&mut self, dropped: u64, wall_ns: u64) {
        let known = self.seen.back().map_or(self.told, |seen| seen.0);
        if dropped <= known {
            return;
        }
        if self.seen.len() == LOSSES {
            self.seen.pop_back();
        }
        self.seen.push_back((dropped, wall_ns));
    }

    /// All later frames arrive after every recorded loss.
    fn ring_is_empty(&mut self) {
        for seen in &mut self.seen {
            seen.1 = 0;
        }
    }

    /// Unreported frames lost before one with this timestamp.
    fn lost_before(&self, stamp_ns: u64) -> u64 {
        let past = self.seen.iter().take_while(|seen| seen.1 <= stamp_ns);
        past.last().map_or(0, |seen| seen.0 - self.told)
    }

    /// Records that `lost` frames were reported.
    fn mark_reported(&mut self, lost: u64) {
        self.told += lost;
        while self.seen.front().is_some_and(|seen| seen.0 <= self.told) {
            self.seen.pop_front();
        }
    }
}

impl<'a, C: Clock> FrameReader<'a, C> {
    fn new(seat: ReaderSeat, interface: u32, control: &'a CaptureControl, clock: &'a C) -> Self {
        let now_ns = clock.monotonic_ns();
        let mut expected = Turns::default();
        control
            .readers_due_ns()
            .into_iter()
            .for_each(|due_ns| expected.first_due(due_ns));
        Self {
            control,
            clock,
            slow: seat.filter.is_some(),
            losses: UnreportedLosses::default(),
            seat,
            buffer: None,
            buffer_since_ns: now_ns,
            delivered_bytes: 0,
            restored: Vec::with_capacity(64 << 10),
            outcome: ReaderOutcome {
                interface,
                ..ReaderOutcome::default()
            },
            latest_stamp_ns: 0,
            looked_ns: now_ns,
            expected,
            counters_ns: now_ns,
            flushes: control.flush_count(),
        }
    }

    fn run_until_end<R: RxQueue>(&mut self, rx: &mut R) -> Result<(), PortError> {
        let mut idle_since_ns = self.looked_ns;
        while !self.control.is_stopped() {
            if self.receive(rx)? > 0 {
                idle_since_ns = self.looked_ns;
                continue;
            }
            if self.seat.busy {
                std::hint::spin_loop();
                if self.looked_ns.saturating_sub(idle_since_ns) > POLL_INTERVAL_NS {
                    idle_since_ns = self.looked_ns;
                    if self.flushes_idle() {
                        self.hand_over();
                    }
                }
                continue;
            }
            let until_ns = self.clock.monotonic_ns().saturating_add(POLL_INTERVAL_NS);
            self.expected.sleep_until(until_ns);
            if !ignore_link_down(rx.wait(POLL_INTERVAL))?.unwrap_or(false) && self.flushes_idle() {
                self.hand_over();
            }
        }
        let closed = ignore_link_down(rx.close_intake());
        self.receive_the_last(rx)?;
        closed.map(|_| ())
    }

    /// Reads frames that arrived before the intake was closed and have not been delivered yet.
    #[cold]
    fn receive_the_last<R: RxQueue>(&mut self, rx: &mut R) -> Result<(), PortError> {
        let end_wall_ns = self.clock.wall_ns();
        let hold_ns = u64::try_from(rx.longest_hold().as_nanos()).unwrap_or(0);
        let mut quiet_until_ns = self.clock.monotonic_ns().saturating_add(hold_ns);
        let mut left = LAST_FRAMES;
        while left > 0 {
            if self.control.is_hurried() {
                self.outcome.hurried = true;
                break;
            }
            // Before the ring is read: frames that arrive between the two are then read in another pass.
            let now_ns = self.clock.monotonic_ns();
            let n = self.receive(rx)?;
            left = left.saturating_sub(n);
            if n > 0 {
                // A port that cannot close its intake delivers later frames too.
                if hold_ns == 0 && self.latest_stamp_ns > end_wall_ns {
                    break;
                }
                quiet_until_ns = now_ns.saturating_add(hold_ns);
            } else if now_ns >= quiet_until_ns {
                break;
            } else {
                let rest = Duration::from_nanos(quiet_until_ns - now_ns);
                ignore_link_down(rx.wait(rest.min(POLL_INTERVAL)))?;
            }
        }
        Ok(())
    }

    /// Reads the port once.
    #[inline]
    fn receive<R: RxQueue>(&mut self, rx: &mut R) -> Result<usize, PortError> {
        let now_ns = self.clock.monotonic_ns();
        let gap_ns = now_ns.saturating_sub(self.looked_ns);
        self.outcome.longest_gap_ns = self.outcome.longest_gap_ns.max(gap_ns);
        self.looked_ns = now_ns;
        let away_ns = self.expected.begin(now_ns);
        let stalled = self.outcome.lateness.away(now_ns, away_ns);
        let n =
            ignore_link_down(rx.receive(BATCH, |frame| self.process_frame(frame)))?.unwrap_or(0);
        if stalled && n > 0 {
            self.outcome.lateness.late_reads += n as u64;
        }
        if n == 0 {
            self.losses.ring_is_empty();
        }
        if self.is_due(now_ns) {
            self.hand_over();
        }
        if now_ns.saturating_sub(self.counters_ns) >= COUNTERS_NS {
            self.counters_ns = now_ns;
            self.ask_counters(rx);
            if n == 0 {
                self.report_progress(rx);
            }
        }
        if n > 0 {
            self.publish(false);
        }
        Ok(n)
    }

    /// Processes one frame.
    #[inline]
    fn process_frame(&mut self, frame: &RxFrame<'_>) {
        self.latest_stamp_ns = frame.stamp_ns;
        if self.slow || frame.vlan.is_some() {
            return self.process_slowly(frame);
        }
        self.store_frame(frame.bytes, frame.original_len, frame.stamp_ns, 0);
    }

    /// Processes a frame that is filtered, has lost its VLAN tag, or comes after a loss.
    fn process_slowly(&mut self, frame: &RxFrame<'_>) {
        let mut restored = std::mem::take(&mut self.restored);
        let (bytes, len) = match frame.vlan {
            None => (frame.bytes, frame.original_len),
            Some(tag) => {
                restore_vlan(frame.bytes, tag, &mut restored);
                (&restored[..], frame.original_len + TAG_LEN)
            }
        };
        if self.seat.filter.as_mut().is_some_and(|f| !f(bytes, len)) {
            self.outcome.rejected_frames += 1;
        } else {
            let lost = self.losses.lost_before(frame.stamp_ns);
            self.store_frame(bytes, len, frame.stamp_ns, lost);
        }
        self.restored = restored;
    }

    /// Counts a frame, and adds it to the buffer as a record that reports `lost` frames before it.
    #[inline]
    fn store_frame(&mut self, bytes: &[u8], original_len: u32, stamp_ns: u64, lost: u64) {
        self.outcome.read_frames += 1;
        self.outcome.read_octets += u64::from(original_len) + FCS_LEN;
        self.outcome.longest_frame = self.outcome.longest_frame.max(original_len);
        if self.is_over_limit() {
            self.outcome.over_limit_frames += 1;
            return;
        }
        let Some(delivery) = &self.seat.delivery else {
            match self.takes_ticket() {
                true => self.outcome.counted_frames += 1,
                false => self.outcome.over_limit_frames += 1,
            }
            return;
        };
        let (encoding, buffer_bytes) = (delivery.encoding, delivery.buffer_bytes);
        let captured = &bytes[..bytes.len().min(self.seat.snap_len)];
        let len = encoding.record_len(captured.len(), lost);
        let fits =
            |buffer: &RecordBuffer| buffer.len() + len <= buffer_bytes || buffer.records == 0;
        if !self.buffer.as_ref().is_some_and(fits)
            && let Err(lost) = self.begin_buffer()
        {
            match lost {
                LossReason::NoBuffer => self.outcome.queue_drop_frames += 1,
                LossReason::NoWriter => self.outcome.not_written_frames += 1,
            }
            return;
        }
        if !self.takes_ticket() {
            self.outcome.over_limit_frames += 1;
            return;
        }
        let Some(buffer) = &mut self.buffer else {
            return;
        };
        encoding.append_record(
            self.outcome.interface,
            stamp_ns,
            original_len,
            captured,
            lost,
            buffer,
        );
        buffer.count();
        if lost > 0 {
            self.losses.mark_reported(lost);
            self.choose_speed();
        }
    }

    /// Selects the slow path if frames must be inspected.
    fn choose_speed(&mut self) {
        self.slow = self.seat.filter.is_some() || !self.losses.seen.is_empty();
    }

    fn is_over_limit(&self) -> bool {
        self.seat
            .limit
            .is_some_and(|limit| self.seat.shared.tickets.load(Ordering::Relaxed) >= limit)
    }

    /// Takes a place below the limit. The reader that takes the last one stops the capture.
    fn takes_ticket(&self) -> bool {
        let Some(limit) = self.seat.limit else {
            return true;
        };
        let ticket = self.seat.shared.tickets.fetch_add(1, Ordering::Relaxed);
        if ticket + 1 == limit {
            self.control.reach_limit();
        }
        ticket < limit
    }

    /// Delivers the buffer and begins the next.
    #[cold]
    fn begin_buffer(&mut self) -> Result<(), LossReason> {
        self.hand_over();
        let shared = self.seat.shared.clone();
        let pool = shared.pool.as_ref().ok_or(LossReason::NoWriter)?;
        let memory = match (pool.take_buffer(), self.seat.overflow) {
            (Some(memory), _) => memory,
            (None, _) if self.writer_ended() => return Err(LossReason::NoWriter),
            (None, Overflow::DropNewest) => return Err(LossReason::NoBuffer),
            (None, Overflow::Wait) => {
                self.outcome.buffer_waits += 1;
                self.publish(false);
                let since_ns = self.clock.monotonic_ns();
                let memory = loop {
                    if let Some(memory) = pool.wait(POLL_INTERVAL) {
                        break Some(memory);
                    }
                    if self.writer_ended() || self.control.is_hurried() {
                        break None;
                    }
                };
                let waited_ns = self.clock.monotonic_ns().saturating_sub(since_ns);
                self.outcome.buffer_wait_ns += waited_ns;
                memory.ok_or(LossReason::NoWriter)?
            }
        };
        self.buffer_since_ns = self.looked_ns;
        let (delivered, interface) = (self.delivered_bytes, self.outcome.interface);
        let guess = pool.expected_position(delivered);
        self.buffer = Some(RecordBuffer::new(memory, interface, delivered, guess));
        Ok(())
    }

    /// Delivers the buffer to the writer, unless it is empty.
    fn hand_over(&mut self) {
        let Some(buffer) = self.buffer.take_if(|buffer| buffer.records > 0) else {
            return;
        };
        self.delivered_bytes += buffer.len() as u64;
        let clear_ns = self.latest_stamp_ns.saturating_sub(DISORDER_NS);
        if let Some(buffer) = self.send(Some(buffer), clear_ns) {
            self.outcome.not_written_frames += buffer.records;
            self.control.fail_output();
        }
    }

    /// Sends a buffer to the writer. Returns it if the writer has ended.
    fn send(&self, buffer: Option<RecordBuffer>, clear_ns: u64) -> Option<RecordBuffer> {
        let delivered = DeliveredBuffer {
            reader: self.seat.index,
            clear_ns,
            buffer,
        };
        match &self.seat.delivery {
            Some(delivery) => delivery.full.send(delivered).err()?.0.buffer,
            None => delivered.buffer,
        }
    }

    /// Reports progress of an idle port: later frames are not older than its hold time.
    fn report_progress<R: RxQueue>(&self, rx: &R) {
        let tells = |delivery: &Delivery| delivery.tells_clear;
        if self.buffer.is_none() && self.seat.delivery.as_ref().is_some_and(tells) {
            let hold_ns = u64::try_from(rx.longest_hold().as_nanos()).unwrap_or(u64::MAX);
            let clear_ns = self.clock.wall_ns().saturating_sub(hold_ns);
            self.send(None, clear_ns.saturating_sub(DISORDER_NS));
        }
    }

    /// Returns true if the writer has ended, so that reading is pointless.
    fn writer_ended(&self) -> bool {
        let writer = &self.seat.shared.writer;
        let ended = writer.ended.load(Ordering::Acquire);
        if ended {
            self.control.fail_output();
        }
        ended
    }

    /// Returns true if the buffer must be delivered although it is not full.
    fn is_due(&mut self, now_ns: u64) -> bool {
        let Some(delivery) = &self.seat.delivery else {
            return false;
        };
        let age_ns = now_ns.saturating_sub(self.buffer_since_ns);
        let flushes = self.control.flush_count();
        age_ns >= delivery.flush_ns || std::mem::replace(&mut self.flushes, flushes) != flushes
    }

    fn flushes_idle(&self) -> bool {
        self.seat.delivery.as_ref().is_some_and(|d| d.flushes_idle)
    }

    fn ask_counters<R: RxQueue>(&mut self, rx: &mut R) {
        self.outcome.rx = rx.counters();
        let tells = |delivery: &Delivery| delivery.encoding.tells_losses();
        if self.seat.delivery.as_ref().is_some_and(tells) {
            let dropped = self.outcome.rx.dropped_frames;
            self.losses.record_dropped(dropped, self.clock.wall_ns());
            self.choose_speed();
        }
        self.publish(false);
    }

    fn publish(&self, ended: bool) {
        let (outcome, rx) = (&self.outcome, &self.outcome.rx);
        let passed = rx
            .passed_frames
            .unwrap_or(rx.received_frames + rx.dropped_frames);
        let values = ReaderSnapshot {
            interface: outcome.interface,
            read_frames: outcome.read_frames,
            read_octets: outcome.read_octets,
            passed_frames: passed.saturating_sub(outcome.rejected_frames),
            dropped_frames: rx.dropped_frames,
            queue_drop_frames: outcome.queue_drop_frames,
            buffer_waits: outcome.buffer_waits,
            longest_gap_ns: outcome.longest_gap_ns,
            ended,
        };
        self.seat.shared.show_reader(self.seat.index, &values);
    }

    fn finish(mut self) -> ReaderOutcome {
        if let (Some(empty), Some(pool)) = (self.buffer.take(), &self.seat.shared.pool) {
            pool.return_buffer(empty.memory);
        }
        // The writer may need this to close a file.
        self.send(None, u64::MAX);
        self.publish(true);
        self.outcome
    }
}

/// Reason why a frame was not stored.
enum LossReason {
    NoBuffer,
    NoWriter,
}

const TAG_LEN: u32 = 4;
const FCS_LEN: u64 = 4;
/// Both addresses; the tag follows them.
const ADDRESSES_LEN: usize = 12;

/// Restores the VLAN tag of a frame. A frame shorter than the addresses gets it at its end.
fn restore_vlan(bytes: &[u8], tag: StrippedVlan, out: &mut Vec<u8>) {
    let (addresses, rest) = bytes.split_at(bytes.len().min(ADDRESSES_LEN));
    out.clear();
    out.extend_from_slice(addresses);
    out.extend_from_slice(&tag.tpid.to_be_bytes());
    out.extend_from_slice(&tag.tci.to_be_bytes());
    out.extend_from_slice(rest);
}

/// Returns `None` while the link is down, which is temporary.
fn ignore_link_down<T>(result: Result<T, PortError>) -> Result<Option<T>, PortError> {
    match result {
        Err(error) if error.is_transient() => Ok(None),
        result => result.map(Some),
    }
}
