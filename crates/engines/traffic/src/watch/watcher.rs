//! The loop of a watcher.

use std::time::Duration;

use wb_measure::{Analyser, Counters, Measurement};
use wb_model::lateness::{Lateness, Turns};
use wb_pktgen_device::{CpuStatistics, DeviceTime, Mode, classify_pktgen};
use wb_port::{
    PortError, QueuePair, RxCounters, RxFrame, RxQueue, StampSource, TxCounters, TxQueue,
    worker_loop::{LAST_FRAMES, POLL_INTERVAL, POLL_INTERVAL_NS},
};
use wb_wire::{PktgenTag, PktgenTime};

use super::sequence::Repetitions;
use super::{WatchExtras, WatchHandle, WatchSettings};
use crate::receiver::{SOURCES, source_index, tells_arrival};
use crate::{Clock, CounterValues, ReceiverOutcome, WorkerOutcome, worker::PUBLISH_NS};

/// Frames per batch.
const RECEIVE: usize = 256;
/// Percentiles take some microseconds to compute, so they are updated less often.
const SUMMARIZE_NS: u64 = 100_000_000;
/// Maximum deviation of the clock offset from the one in use.
const DRIFT_NS: u64 = 1000;
/// Reading both clocks takes about 100 ns; a longer reading was interrupted.
const READING_NS: u64 = 2000;

/// Results of a watcher.
#[derive(Debug)]
pub struct WatchOutcome {
    /// Results of the original module.
    pub row: CpuStatistics,
    /// Additional results.
    pub extra: WatchExtras,
    /// The same results with whole distributions, since the counters were last cleared; only frame counts if sequences
    /// were not evaluated.
    pub measurement: Measurement,
    /// Foreign frames.
    pub foreign_frames: u64,
    /// Number of receive timestamps of counted packets by source.
    pub stamp_sources: Vec<(StampSource, u64)>,
    /// Turns taken.
    pub turns: u64,
    /// Turns in which frames arrived.
    pub busy_turns: u64,
    /// Counters of the transmit half of the queue pair.
    pub tx: TxCounters,
    /// Counters of the receive half.
    pub rx: RxCounters,
    /// Error that ended it early.
    pub fault: Option<PortError>,
    /// The port has reached the end of a capture file.
    pub received_all: bool,
    /// Lateness of the watcher.
    pub lateness: Lateness,
}

impl WatchOutcome {
    /// Converts the results to those of a receiving worker.
    #[must_use]
    pub fn into_worker_outcome(self) -> WorkerOutcome {
        WorkerOutcome {
            sender: None,
            receiver: Some(ReceiverOutcome {
                measurement: self.measurement,
                ramp_frames: 0,
                stamp_sources: self.stamp_sources,
                turns: self.turns,
                busy_turns: self.busy_turns,
            }),
            tx: self.tx,
            rx: self.rx,
            fault: self.fault,
            link_down_ns: 0,
            link_downs: 0,
            lateness: self.lateness,
        }
    }
}

/// Watches until the handle requests a stop or the port is exhausted. Frames that arrived before the stop count even if
/// the device delivers them later.
pub fn run_watcher<Q: QueuePair, C: Clock>(
    pair: &mut Q,
    handle: &WatchHandle,
    clock: &C,
) -> WatchOutcome {
    let ending = WatcherEndGuard(handle);
    let mut watcher = Watcher::new(handle, clock);
    let fault = watcher.run_until_end(pair.rx());
    let received_all = matches!(fault, Err(PortError::EndOfFile { .. }));
    watcher.publish(PublishOccasion::End);
    let (tx, rx) = pair.split();
    let outcome = WatchOutcome {
        fault: fault.err().filter(|_| !received_all),
        received_all,
        ..watcher.outcome(tx.counters(), rx.counters())
    };
    drop(ending);
    outcome
}

/// Occasion for publishing results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PublishOccasion {
    /// Packets arrive.
    Busy,
    /// No packets for a while.
    Pause,
    /// Final update, which waits for readers.
    End,
}

/// Reports the end of the watcher, even if it panics.
struct WatcherEndGuard<'a>(&'a WatchHandle);

impl Drop for WatcherEndGuard<'_> {
    fn drop(&mut self) {
        self.0.mark_ended();
    }
}

struct Watcher<'a, C> {
    handle: &'a WatchHandle,
    clock: &'a C,
    generation: Option<u64>,
    /// Time at which a pending request was first seen, until everything that had arrived by then is published.
    asked_ns: Option<u64>,
    sight: WatchAnalysis,
    published_ns: u64,
    summarized_ns: u64,
    unpublished: bool,
    /// The distributions changed since they were published.
    unsummarized: bool,
    extra: WatchExtras,
    turns: u64,
    busy_turns: u64,
    expected: Turns,
    /// Start of the last turn.
    turn_ns: u64,
    lateness: Lateness,
}

/// Processing of frames, and the results.
struct WatchAnalysis {
    settings: WatchSettings,
    row: CpuStatistics,
    analyser: Analyser,
    repetitions: Repetitions,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    wall_minus_mono: u64,
    since_wall_ns: u64,
    end_wall_ns: u64,
    saw_the_end: bool,
    /// Since the watcher began.
    counted_frames: u64,
    counted_octets: u64,
    foreign_frames: u64,
    /// Frames without sequence analysis since the counters were cleared.
    unanalysed: Counters,
    sources: [u64; SOURCES.len()],
    latest_ns: u64,
}

impl<'a, C: Clock> Watcher<'a, C> {
    fn new(handle: &'a WatchHandle, clock: &'a C) -> Self {
        Self {
            handle,
            clock,
            generation: None,
            asked_ns: None,
            sight: WatchAnalysis {
                settings: handle.settings(),
                row: CpuStatistics::default(),
                analyser: Analyser::planned(1),
                repetitions: Repetitions::default(),
                wall_minus_mono: 0,
                since_wall_ns: 0,
                end_wall_ns: u64::MAX,
                saw_the_end: false,
                counted_frames: 0,
                counted_octets: 0,
                foreign_frames: 0,
                unanalysed: Counters::default(),
                sources: [0; SOURCES.len()],
                latest_ns: 0,
            },
            published_ns: 0,
            summarized_ns: 0,
            unpublished: true,
            unsummarized: false,
            extra: WatchExtras::default(),
            turns: 0,
            busy_turns: 0,
            expected: Turns::default(),
            turn_ns: 0,
            lateness: Lateness::default(),
        }
    }

    fn run_until_end<R: RxQueue>(&mut self, rx: &mut R) -> Result<(), PortError> {
        while !self.handle.wants_stop() {
            if self.receive(rx)? > 0 {
                continue;
            }
            if self.unpublished {
                self.publish(PublishOccasion::Busy);
            }
            if self.asked_ns.is_some() {
                self.answer_request(rx.longest_hold());
            }
            self.expected
                .sleep_until(self.turn_ns.saturating_add(POLL_INTERVAL_NS));
            match rx.wait(POLL_INTERVAL) {
                Ok(false) if self.unsummarized => self.publish(PublishOccasion::Pause),
                Err(error) if !error.is_transient() => return Err(error),
                _ => {}
            }
        }
        self.receive_the_last(rx)
    }

    /// Reads frames that arrived before the stop and have not been delivered yet.
    #[cold]
    fn receive_the_last<R: RxQueue>(&mut self, rx: &mut R) -> Result<(), PortError> {
        self.sight.end_wall_ns = self.clock.wall_ns();
        let hold_ns = u64::try_from(rx.longest_hold().as_nanos()).unwrap_or(0);
        let until_ns = self.clock.monotonic_ns().saturating_add(hold_ns);
        let mut left = LAST_FRAMES;
        while left > 0 {
            // Before the ring is read: frames that arrive between the two are then read in another pass.
            let now_ns = self.clock.monotonic_ns();
            let n = self.receive(rx)?;
            left = left.saturating_sub(n);
            if now_ns >= until_ns && (n == 0 || self.sight.saw_the_end) {
                break;
            }
            if n == 0 {
                let rest = Duration::from_nanos(until_ns.saturating_sub(now_ns));
                match rx.wait(rest.min(POLL_INTERVAL)) {
                    Err(error) if !error.is_transient() => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn receive<R: RxQueue>(&mut self, rx: &mut R) -> Result<usize, PortError> {
        self.turns += 1;
        let generation = self.handle.generation();
        if self.generation != Some(generation) {
            // At the beginning there can be no request, so the clock is not read.
            if self.generation.replace(generation).is_some() {
                self.asked_ns = Some(self.clock.monotonic_ns());
            }
            self.apply_settings();
            self.handle.mark_obeyed(generation);
        }
        let counts_only = self.sight.settings.mode == Mode::Counter;
        if counts_only {
            // Do not read the clock for frames without a time.
            self.expected = Turns::default();
        } else {
            self.turn_ns = self.compare_clocks();
            let away_ns = self.expected.begin(self.turn_ns);
            self.lateness.away(self.turn_ns, away_ns);
        }
        let sight = &mut self.sight;
        sight.since_wall_ns = self.handle.since_wall_ns();
        let result = match counts_only {
            true => rx.receive(RECEIVE, |frame| sight.count(frame)),
            false => rx.receive(RECEIVE, |frame| sight.process_frame(frame)),
        };
        let n = match result {
            Err(error) if error.is_transient() => 0,
            result => result?,
        };
        if n > 0 {
            self.busy_turns += 1;
            self.unpublished = true;
            self.unsummarized = true;
            // Use the timestamps to avoid reading the clock.
            if self.sight.latest_ns.wrapping_sub(self.published_ns) >= PUBLISH_NS {
                self.publish(PublishOccasion::Busy);
            }
        }
        Ok(n)
    }

    /// Called when the queue is empty: completes a pending request once the device no longer holds frames back.
    #[cold]
    fn answer_request(&mut self, longest_hold: Duration) {
        let hold_ns = u64::try_from(longest_hold.as_nanos()).unwrap_or(0);
        let waited_ns = self
            .asked_ns
            .map(|asked_ns| self.clock.monotonic_ns().saturating_sub(asked_ns));
        if let (Some(generation), Some(true)) = (self.generation, waited_ns.map(|ns| ns >= hold_ns))
        {
            // Results that a reader blocked must be published first.
            if !self.unpublished {
                self.handle.mark_drained(generation);
                self.asked_ns = None;
            }
        }
    }

    #[cold]
    fn apply_settings(&mut self) {
        let (old, new) = (self.sight.settings, self.handle.settings());
        self.sight.settings = new;
        if old.clears != new.clears {
            self.sight.row = CpuStatistics::default();
            self.sight.analyser = Analyser::planned(1);
            self.sight.repetitions = Repetitions::default();
            self.sight.unanalysed = Counters::default();
            self.unpublished = true;
            self.unsummarized = true;
        }
        if self.unpublished {
            self.publish(PublishOccasion::Busy);
        }
    }

    /// Returns the monotonic time.
    #[inline]
    fn compare_clocks(&mut self) -> u64 {
        let before_ns = self.clock.monotonic_ns();
        let wall_ns = self.clock.wall_ns();
        let distance = wall_ns.wrapping_sub(before_ns);
        if distance.abs_diff(self.sight.wall_minus_mono) > DRIFT_NS {
            self.correct_clocks();
        }
        before_ns
    }

    #[cold]
    fn correct_clocks(&mut self) {
        for _ in 0..3 {
            let before_ns = self.clock.monotonic_ns();
            let wall_ns = self.clock.wall_ns();
            let took_ns = self.clock.monotonic_ns().saturating_sub(before_ns);
            if took_ns <= READING_NS || self.sight.wall_minus_mono == 0 {
                self.sight.wall_minus_mono = wall_ns.wrapping_sub(before_ns + took_ns / 2);
            }
            if took_ns <= READING_NS {
                break;
            }
        }
    }

    #[cold]
    fn publish(&mut self, moment: PublishOccasion) {
        let sight = &self.sight;
        let analyser = &sight.analyser;
        self.extra.counters = sight.counters();
        self.extra.sequence_is_plain = sight.repetitions.is_plain();
        let age_ns = sight.latest_ns.wrapping_sub(self.summarized_ns);
        if moment != PublishOccasion::Busy || age_ns >= SUMMARIZE_NS {
            self.summarized_ns = sight.latest_ns;
            self.unsummarized = false;
            self.extra.latency_ns = analyser.latency().summary();
            self.extra.inter_arrival_ns = analyser.inter_arrival().summary();
        }
        self.published_ns = sight.latest_ns;
        let shown = self.handle.publish(
            &sight.row,
            &self.extra,
            sight.foreign_frames,
            moment == PublishOccasion::End,
        );
        self.unpublished = !shown;
        self.handle.counters().publish(&CounterValues {
            received_frames: sight.counted_frames,
            received_octets: sight.counted_octets,
            duplicate_frames: self.extra.counters.duplicate_frames,
            reordered_frames: self.extra.counters.reordered_frames,
            foreign_frames: sight.foreign_frames,
            latency_samples: analyser.latency().count(),
            latency_sum_ns: analyser.latency().sum() as u64,
            ..CounterValues::default()
        });
    }

    fn outcome(self, tx: TxCounters, rx: RxCounters) -> WatchOutcome {
        let sight = self.sight;
        let counted = SOURCES.into_iter().zip(sight.sources);
        let counters = sight.counters();
        let mut measurement = sight.analyser.into_measurement();
        measurement.counters = counters;
        WatchOutcome {
            row: sight.row,
            extra: self.extra,
            measurement,
            foreign_frames: sight.foreign_frames,
            stamp_sources: counted.filter(|(_, frames)| *frames > 0).collect(),
            turns: self.turns,
            busy_turns: self.busy_turns,
            tx,
            rx,
            fault: None,
            received_all: false,
            lateness: self.lateness,
        }
    }
}

impl WatchAnalysis {
    /// Returns true if the frame arrived before the end; records its source and timestamp.
    #[inline]
    fn is_in_time(&mut self, frame: &RxFrame<'_>) -> bool {
        if frame.stamp_ns > self.end_wall_ns && tells_arrival(frame.stamp_source) {
            self.saw_the_end = true;
            return false;
        }
        self.latest_ns = frame.stamp_ns;
        true
    }

    /// Mode `counter`.
    #[inline]
    fn count(&mut self, frame: &RxFrame<'_>) {
        if !self.is_in_time(frame) {
            return;
        }
        let Some(seen) = classify_pktgen(frame.bytes) else {
            return self.count_foreign(frame);
        };
        self.count_frame(frame);
        let rule = self.settings.rule;
        self.row
            .arrival(Mode::Counter, rule, seen.bytes, DeviceTime::default(), None);
        self.count_unanalysed(frame);
    }

    #[inline]
    fn process_frame(&mut self, frame: &RxFrame<'_>) {
        if !self.is_in_time(frame) {
            return;
        }
        let Some(seen) = classify_pktgen(frame.bytes) else {
            return self.count_foreign(frame);
        };
        let recorded = frame.stamp_source == StampSource::Recorded;
        let wall_minus_mono = if recorded { 0 } else { self.wall_minus_mono };
        if self.since_wall_ns > 0
            && let Some(tag) = seen.tag.filter(|_| !recorded)
            && (1..self.since_wall_ns).contains(&sent_wall_ns(
                &tag,
                frame.stamp_ns,
                wall_minus_mono,
            ))
        {
            return self.count_foreign(frame);
        }
        self.count_frame(frame);
        let now = DeviceTime {
            wall_ns: frame.stamp_ns,
            mono_ns: frame.stamp_ns.wrapping_sub(wall_minus_mono),
        };
        let settings = self.settings;
        let timed = seen
            .tag
            .filter(|tag| settings.takes_latency && tells_time(tag, frame));
        if let Some(tag) = seen.tag.filter(|_| settings.sequences) {
            self.repetitions.inspect(tag);
            let sent_ns =
                timed.map_or(0, |tag| sent_wall_ns(&tag, frame.stamp_ns, wall_minus_mono));
            // pktgen's numbers start at 1.
            let sequence = tag.sequence.wrapping_sub(1);
            self.analyser
                .on_frame(0, sequence, sent_ns, frame.stamp_ns, frame.size());
        } else {
            self.count_unanalysed(frame);
        }
        self.row
            .arrival(settings.mode, settings.rule, seen.bytes, now, timed);
    }

    #[inline]
    fn count_unanalysed(&mut self, frame: &RxFrame<'_>) {
        self.unanalysed.received_frames += 1;
        self.unanalysed.untagged_frames += 1;
        self.unanalysed.received_octets += u64::from(frame.size());
    }

    fn counters(&self) -> Counters {
        let mut counters = self.analyser.counters();
        counters += self.unanalysed;
        counters
    }

    #[inline]
    fn count_frame(&mut self, frame: &RxFrame<'_>) {
        self.counted_frames += 1;
        self.counted_octets += u64::from(frame.size());
        self.sources[source_index(frame.stamp_source)] += 1;
    }

    #[cold]
    fn count_foreign(&mut self, frame: &RxFrame<'_>) {
        self.foreign_frames += 1;
        self.analyser.on_foreign(frame.size());
    }
}

/// A recording contains no monotonic time of its host.
#[inline]
fn tells_time(tag: &PktgenTag, frame: &RxFrame<'_>) -> bool {
    frame.stamp_source != StampSource::Recorded
        || matches!(tag.guess_time(frame.stamp_ns), PktgenTime::Wall(_))
}

/// Wall time at which the packet was built; 0 if it carries none.
#[inline]
fn sent_wall_ns(tag: &PktgenTag, stamp_ns: u64, wall_minus_mono: u64) -> u64 {
    match tag.guess_time(stamp_ns) {
        PktgenTime::None => 0,
        PktgenTime::Wall(ns) => ns,
        PktgenTime::Monotonic(ns) => wall_minus_mono.wrapping_add_signed(ns),
    }
}
