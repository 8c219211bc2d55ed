//! The loop of a reader: frames from a port into buffers of records.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use wb_model::capture::{CaptureOutput, Compression, Overflow};
use wb_model::lateness::{Lateness, Turns};
use wb_port::{PortError, RxCounters, RxFrame, RxQueue, StrippedVlan};

use crate::encode::Encoding;
use crate::pool::{Buffer, Delivered};
use crate::{CaptureControl, CaptureShared, CaptureSpec, Clock, ReaderSnapshot};

/// Frames of a batch at most.
const BATCH: usize = 1024;
/// The longest wait without a look at the flags.
const POLL_INTERVAL: Duration = Duration::from_nanos(POLL_INTERVAL_NS);
const POLL_INTERVAL_NS: u64 = 10_000_000;
/// The kernel's counters are asked so often.
const COUNTERS_NS: u64 = 100_000_000;
/// Frames read at most after the stop from a port that goes on and stamps them all before the stop; more
/// than any ring holds.
const LAST_FRAMES: usize = 1 << 25;

/// Stamps of frames that come from several CPUs into one ring may be out of order by so much.
const DISORDER_NS: u64 = 10_000_000;
/// Losses that are kept apart while the frames before them are still being read.
const LOSSES: usize = 64;

/// Looks at the bytes of a whole frame and its length, and says whether it is kept.
pub type FrameFilter = Box<dyn FnMut(&[u8], u32) -> bool + Send>;

/// Where a reader puts its records.
#[derive(Debug)]
pub(crate) struct Delivery {
    full: Sender<Delivered>,
    encoding: Encoding,
    /// Whether the writer wants to know how far this reader is, because files change by time and there are
    /// other readers.
    tells_clear: bool,
    /// A buffer is full with so many bytes, though a record longer than that fits.
    buffer_bytes: usize,
    flush_ns: u64,
    /// Whether a buffer goes to the writer as soon as nothing comes. Small ones compress badly.
    flushes_idle: bool,
}

impl Delivery {
    pub(crate) fn new(
        full: Sender<Delivered>,
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

/// What a reader needs of its capture.
pub struct ReaderSeat {
    /// Frames for which this says no are not read, as if they had never passed the filter. It sees them
    /// with their VLAN tag and before they are cut. None on the fast path.
    pub filter: Option<FrameFilter>,
    /// Look for frames all the time instead of sleeping until they come.
    pub busy: bool,
    index: usize,
    shared: Arc<CaptureShared>,
    snap_len: usize,
    limit: Option<u64>,
    overflow: Overflow,
    /// None if frames are only counted.
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

/// What a reader did.
#[derive(Debug, Default)]
pub struct ReaderOutcome {
    /// The interface it read.
    pub interface: u32,
    /// R: frames read that passed all filters.
    pub read_frames: u64,
    /// Octets of these, with FCS.
    pub read_octets: u64,
    /// Frames that the filter of the seat rejected; in no other number but those of the port.
    pub rejected_frames: u64,
    /// Frames counted, if there is no output.
    pub counted_frames: u64,
    /// C: frames read after the limit was reached.
    pub over_limit_frames: u64,
    /// Q: frames dropped for want of buffers.
    pub queue_drop_frames: u64,
    /// The part of E that never came to the writer: it had ended, or was not waited for any more.
    pub not_written_frames: u64,
    /// What the port counted.
    pub rx: RxCounters,
    /// The kernel's counters that this was made of, by their names.
    pub kernel: Vec<(&'static str, u64)>,
    /// Octets of the longest frame, without FCS.
    pub longest_frame: u32,
    /// The longest time between two looks at the port.
    pub longest_gap_ns: u64,
    /// How late it was; waiting for a buffer counts, as the ring fills just the same.
    pub lateness: Lateness,
    /// Times it had to wait for a buffer.
    pub buffer_waits: u64,
    /// How long it waited in all.
    pub buffer_wait_ns: u64,
    /// What ended it before its time.
    pub fault: Option<PortError>,
    /// The port has nothing more to give: the end of a file.
    pub received_all: bool,
    /// What was in the port at the stop was not read, because of hurry.
    pub hurried: bool,
}

/// Reads until the control says stop or the port has nothing more to give; then reads what is still there.
pub fn run_reader<R: RxQueue, C: Clock>(
    rx: &mut R,
    seat: ReaderSeat,
    interface: u32,
    control: &CaptureControl,
    clock: &C,
) -> ReaderOutcome {
    let mut reader = Reader::new(seat, interface, control, clock);
    let end = reader.work(rx);
    reader.hand_over();
    reader.ask_counters(rx);
    reader.outcome.kernel = rx.kernel_counters();
    let received_all = matches!(end, Err(PortError::EndOfFile { .. }));
    ReaderOutcome {
        fault: end.err().filter(|_| !received_all),
        received_all,
        // Last, as it says the end, and lets go of the writer.
        ..reader.finish()
    }
}

struct Reader<'a, C> {
    control: &'a CaptureControl,
    clock: &'a C,
    seat: ReaderSeat,
    buffer: Option<Buffer>,
    /// When its first record came, monotonic.
    buffer_since_ns: u64,
    /// Of all buffers before it.
    delivered_bytes: u64,
    /// A frame with its VLAN tag again.
    restored: Vec<u8>,
    outcome: ReaderOutcome,
    latest_stamp_ns: u64,
    looked_ns: u64,
    expected: Turns,
    counters_ns: u64,
    flushes: u64,
    /// Frames are not just kept: they are filtered, or one has to tell of a loss.
    slow: bool,
    losses: Losses,
}

/// What the kernel dropped and no record has told yet.
///
/// The counter says that frames were lost, not where. All that the ring held when the counter was asked may
/// have come before the loss; so it is told by the first frame stamped later, or the first one after the
/// ring was seen empty.
#[derive(Debug, Default)]
struct Losses {
    /// K at a reading of the counter, and the stamp from which on frames came after it; the oldest first.
    seen: VecDeque<(u64, u64)>,
    /// How much of K records have told.
    told: u64,
}

impl Losses {
    /// The counter says `dropped` at this time.
    fn note(&mut self, dropped: u64, wall_ns: u64) {
        let known = self.seen.back().map_or(self.told, |seen| seen.0);
        if dropped <= known {
            return;
        }
        if self.seen.len() == LOSSES {
            self.seen.pop_back();
        }
        self.seen.push_back((dropped, wall_ns));
    }

    /// Whatever comes now came after all that was noted.
    fn ring_is_empty(&mut self) {
        for seen in &mut self.seen {
            seen.1 = 0;
        }
    }

    /// Frames lost before one with this stamp that were not told yet.
    fn before(&self, stamp_ns: u64) -> u64 {
        let past = self.seen.iter().take_while(|seen| seen.1 <= stamp_ns);
        past.last().map_or(0, |seen| seen.0 - self.told)
    }

    /// A record has told so many.
    fn tell(&mut self, lost: u64) {
        self.told += lost;
        while self.seen.front().is_some_and(|seen| seen.0 <= self.told) {
            self.seen.pop_front();
        }
    }
}

impl<'a, C: Clock> Reader<'a, C> {
    fn new(seat: ReaderSeat, interface: u32, control: &'a CaptureControl, clock: &'a C) -> Self {
        let now_ns = clock.monotonic_ns();
        Self {
            control,
            clock,
            slow: seat.filter.is_some(),
            losses: Losses::default(),
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
            expected: Turns::default(),
            counters_ns: now_ns,
            flushes: control.flushes(),
        }
    }

    fn work<R: RxQueue>(&mut self, rx: &mut R) -> Result<(), PortError> {
        let mut idle_since_ns = self.looked_ns;
        while !self.control.stopped() {
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
            if !calm(rx.wait(POLL_INTERVAL))?.unwrap_or(false) && self.flushes_idle() {
                self.hand_over();
            }
        }
        let closed = calm(rx.close_intake());
        self.receive_the_last(rx)?;
        closed.map(|_| ())
    }

    /// Reads what came before the intake was closed and has not been shown yet.
    #[cold]
    fn receive_the_last<R: RxQueue>(&mut self, rx: &mut R) -> Result<(), PortError> {
        let end_wall_ns = self.clock.wall_ns();
        let hold_ns = u64::try_from(rx.longest_hold().as_nanos()).unwrap_or(0);
        let mut quiet_until_ns = self.clock.monotonic_ns().saturating_add(hold_ns);
        let mut left = LAST_FRAMES;
        while left > 0 {
            if self.control.hurried() {
                self.outcome.hurried = true;
                break;
            }
            // Before the look: what comes between the two is then looked for again.
            let now_ns = self.clock.monotonic_ns();
            let n = self.receive(rx)?;
            left = left.saturating_sub(n);
            if n > 0 {
                // A port that cannot close its intake shows what came after.
                if hold_ns == 0 && self.latest_stamp_ns > end_wall_ns {
                    break;
                }
                quiet_until_ns = now_ns.saturating_add(hold_ns);
            } else if now_ns >= quiet_until_ns {
                break;
            } else {
                let rest = Duration::from_nanos(quiet_until_ns - now_ns);
                calm(rx.wait(rest.min(POLL_INTERVAL)))?;
            }
        }
        Ok(())
    }

    /// One look at the port.
    #[inline]
    fn receive<R: RxQueue>(&mut self, rx: &mut R) -> Result<usize, PortError> {
        let now_ns = self.clock.monotonic_ns();
        let gap_ns = now_ns.saturating_sub(self.looked_ns);
        self.outcome.longest_gap_ns = self.outcome.longest_gap_ns.max(gap_ns);
        self.looked_ns = now_ns;
        let away_ns = self.expected.begin(now_ns);
        let stalled = self.outcome.lateness.away(now_ns, away_ns);
        let n = calm(rx.receive(BATCH, |frame| self.take(frame)))?.unwrap_or(0);
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
                self.tell_clear(rx);
            }
        }
        if n > 0 {
            self.show(false);
        }
        Ok(n)
    }

    /// One frame.
    #[inline]
    fn take(&mut self, frame: &RxFrame<'_>) {
        self.latest_stamp_ns = frame.stamp_ns;
        if self.slow || frame.vlan.is_some() {
            return self.take_slowly(frame);
        }
        self.keep(frame.bytes, frame.original_len, frame.stamp_ns, 0);
    }

    /// One frame that is looked at, has lost its VLAN tag, or comes after a loss.
    fn take_slowly(&mut self, frame: &RxFrame<'_>) {
        let mut restored = std::mem::take(&mut self.restored);
        let (bytes, len) = match frame.vlan {
            None => (frame.bytes, frame.original_len),
            Some(tag) => {
                restore(frame.bytes, tag, &mut restored);
                (&restored[..], frame.original_len + TAG_LEN)
            }
        };
        if self.seat.filter.as_mut().is_some_and(|f| !f(bytes, len)) {
            self.outcome.rejected_frames += 1;
        } else {
            let lost = self.losses.before(frame.stamp_ns);
            self.keep(bytes, len, frame.stamp_ns, lost);
        }
        self.restored = restored;
    }

    /// Counts a frame, and puts it into the buffer as a record that tells of so many lost before it.
    #[inline]
    fn keep(&mut self, bytes: &[u8], original_len: u32, stamp_ns: u64, lost: u64) {
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
        let fits = |buffer: &Buffer| buffer.len() + len <= buffer_bytes || buffer.records == 0;
        if !self.buffer.as_ref().is_some_and(fits)
            && let Err(lost) = self.begin_buffer()
        {
            match lost {
                Lost::NoBuffer => self.outcome.queue_drop_frames += 1,
                Lost::NoWriter => self.outcome.not_written_frames += 1,
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
        encoding.put(
            self.outcome.interface,
            stamp_ns,
            original_len,
            captured,
            lost,
            buffer,
        );
        buffer.count();
        if lost > 0 {
            self.losses.tell(lost);
            self.choose_speed();
        }
    }

    /// Whether frames have to be looked at.
    fn choose_speed(&mut self) {
        self.slow = self.seat.filter.is_some() || !self.losses.seen.is_empty();
    }

    fn is_over_limit(&self) -> bool {
        self.seat
            .limit
            .is_some_and(|limit| self.seat.shared.tickets.load(Ordering::Relaxed) >= limit)
    }

    /// Takes a place below the limit. Whoever takes the last one stops the capture.
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

    /// Hands over the buffer and begins the next.
    #[cold]
    fn begin_buffer(&mut self) -> Result<(), Lost> {
        self.hand_over();
        let shared = self.seat.shared.clone();
        let pool = shared.pool.as_ref().ok_or(Lost::NoWriter)?;
        let memory = match (pool.take(), self.seat.overflow) {
            (Some(memory), _) => memory,
            (None, _) if self.writer_ended() => return Err(Lost::NoWriter),
            (None, Overflow::DropNewest) => return Err(Lost::NoBuffer),
            (None, Overflow::Wait) => {
                self.outcome.buffer_waits += 1;
                self.show(false);
                let since_ns = self.clock.monotonic_ns();
                let memory = loop {
                    if let Some(memory) = pool.wait(POLL_INTERVAL) {
                        break Some(memory);
                    }
                    if self.writer_ended() || self.control.hurried() {
                        break None;
                    }
                };
                let waited_ns = self.clock.monotonic_ns().saturating_sub(since_ns);
                self.outcome.buffer_wait_ns += waited_ns;
                memory.ok_or(Lost::NoWriter)?
            }
        };
        self.buffer_since_ns = self.looked_ns;
        let (delivered, interface) = (self.delivered_bytes, self.outcome.interface);
        let guess = pool.guess(delivered);
        self.buffer = Some(Buffer::new(memory, interface, delivered, guess));
        Ok(())
    }

    /// Hands the buffer to the writer, if there is anything in it.
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

    /// Returns the buffer if nobody takes it.
    fn send(&self, buffer: Option<Buffer>, clear_ns: u64) -> Option<Buffer> {
        let delivered = Delivered {
            reader: self.seat.index,
            clear_ns,
            buffer,
        };
        match &self.seat.delivery {
            Some(delivery) => delivery.full.send(delivered).err()?.0.buffer,
            None => delivered.buffer,
        }
    }

    /// Nothing came: what comes now cannot be older than what the port may hold back.
    fn tell_clear<R: RxQueue>(&self, rx: &R) {
        let tells = |delivery: &Delivery| delivery.tells_clear;
        if self.buffer.is_none() && self.seat.delivery.as_ref().is_some_and(tells) {
            let hold_ns = u64::try_from(rx.longest_hold().as_nanos()).unwrap_or(u64::MAX);
            let clear_ns = self.clock.wall_ns().saturating_sub(hold_ns);
            self.send(None, clear_ns.saturating_sub(DISORDER_NS));
        }
    }

    /// Whether nobody takes buffers any more. Then there is no use in going on.
    fn writer_ended(&self) -> bool {
        let writer = &self.seat.shared.writer;
        let ended = writer.ended.load(Ordering::Acquire);
        if ended {
            self.control.fail_output();
        }
        ended
    }

    /// Whether the buffer has waited long enough to be full.
    fn is_due(&mut self, now_ns: u64) -> bool {
        let Some(delivery) = &self.seat.delivery else {
            return false;
        };
        let age_ns = now_ns.saturating_sub(self.buffer_since_ns);
        let flushes = self.control.flushes();
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
            self.losses.note(dropped, self.clock.wall_ns());
            self.choose_speed();
        }
        self.show(false);
    }

    fn show(&self, ended: bool) {
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
            pool.give(empty.memory);
        }
        // Others may have to wait for this before a file can be closed.
        self.send(None, u64::MAX);
        self.show(true);
        self.outcome
    }
}

/// Why a frame found no place.
enum Lost {
    NoBuffer,
    NoWriter,
}

const TAG_LEN: u32 = 4;
const FCS_LEN: u64 = 4;
/// Both addresses; the tag stands behind them.
const ADDRESSES_LEN: usize = 12;

/// The frame with its tag again. What is shorter than the addresses gets it at its end.
fn restore(bytes: &[u8], tag: StrippedVlan, out: &mut Vec<u8>) {
    let (addresses, rest) = bytes.split_at(bytes.len().min(ADDRESSES_LEN));
    out.clear();
    out.extend_from_slice(addresses);
    out.extend_from_slice(&tag.tpid.to_be_bytes());
    out.extend_from_slice(&tag.tci.to_be_bytes());
    out.extend_from_slice(rest);
}

/// None while the link is down: that passes.
fn calm<T>(result: Result<T, PortError>) -> Result<Option<T>, PortError> {
    match result {
        Err(error) if error.is_transient() => Ok(None),
        result => result.map(Some),
    }
}
