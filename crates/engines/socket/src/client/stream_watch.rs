//! The control thread of a test while data moves: checks the clock, the control connections and the stop request, and
//! reads the counters of the streams.

use std::{
    os::fd::AsFd,
    sync::atomic::Ordering,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use wb_model::socket::{SocketFailure, SocketInterval, SocketLive, SocketStage};
use wb_netperf_wire::Request;

use super::{
    control::{ClientControl, poll_readable, wait},
    failure::stage_failure,
    interval::{ReadingPair, RunningInterval},
    role::StreamRole,
    shared_stream::{SharedStream, StreamPhase},
    window::{CounterReading, WindowReadings},
};
use crate::{StopRequest, waker::Waker};

/// Interval between interrupts of a thread that should have ended.
const AGAIN: Duration = Duration::from_millis(3);
/// Interval between checks for progress.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest duration of a set of counter readings that count as one instant, and the number of attempts.
const INSTANT: Duration = Duration::from_micros(100);
const TRIES: u32 = 10;
/// Time that datagrams of the server may still arrive after the end of the test.
const GRACE: Duration = Duration::from_secs(1);

/// Time limits for expected events.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketTimeouts {
    /// For a response, and for results.
    pub(super) answer: Duration,
    /// For the next byte during the tear-down.
    pub(super) drain: Duration,
    /// For the next unit of a test that ends after a number of units.
    pub(super) progress: Duration,
    /// For results if the server received no end message.
    pub(super) untold: Duration,
    /// For anything expected at once after a stop request. Supervisors usually kill a process five seconds after the
    /// request, and then all results are lost.
    pub(super) wished: Duration,
}

impl Default for SocketTimeouts {
    fn default() -> Self {
        Self {
            // From netperf 2.7.
            answer: Duration::from_secs(120),
            drain: Duration::from_secs(20),
            progress: Duration::from_secs(60),
            untold: Duration::from_secs(6),
            wished: Duration::from_secs(2),
        }
    }
}

/// Inputs of the watch.
pub(super) struct StreamWatch<'a> {
    pub(super) streams: &'a [SharedStream],
    /// Name of each stream.
    pub(super) names: &'a [String],
    /// Control connection of each stream.
    pub(super) controls: Vec<Option<&'a mut ClientControl>>,
    /// True for streams with a server that must receive an end message.
    pub(super) tell_end: &'a [bool],
    /// The streams move datagrams without connections.
    pub(super) connectionless: bool,
    pub(super) time: Option<Duration>,
    /// The test ends after a number of units.
    pub(super) counted: bool,
    pub(super) omit: Duration,
    pub(super) interim: Option<Duration>,
    pub(super) stop: &'a StopRequest,
    pub(super) waker: &'a Waker,
    pub(super) timeouts: SocketTimeouts,
    /// Constant part of the live display.
    pub(super) live: SocketLive,
    pub(super) observe: &'a mut dyn FnMut(&SocketLive),
}

/// Results of the watch.
#[derive(Debug, Default)]
pub(super) struct WatchResult {
    /// Common window of each stream, if all were running together.
    pub(super) spans: Option<Vec<WindowReadings>>,
    /// Reading of each stream at the end of `omit`, if that was reached.
    pub(super) omitted: Option<Vec<CounterReading>>,
    pub(super) intervals: Vec<SocketInterval>,
    pub(super) failure: Option<SocketFailure>,
    /// A stop was requested.
    pub(super) wished: bool,
    /// Time without progress before the streams were stopped.
    pub(super) silence: Duration,
}

struct WatchState {
    start: Instant,
    begin: Option<Vec<CounterReading>>,
    end: Option<Vec<CounterReading>>,
    omitting: bool,
    /// Time at which the streams were asked to end.
    closing: Option<Instant>,
    /// Datagram receivers are stopped later.
    grace: bool,
    tick: Option<RunningInterval>,
    /// Units at the start of the first interval.
    first: u64,
    moved: u64,
    moved_at: Instant,
    looked_at: Instant,
    seen: WatchResult,
}

impl StreamWatch<'_> {
    /// Watches until all streams are done.
    pub(super) fn run(mut self, start: Instant) -> WatchResult {
        let mut state = WatchState {
            start,
            begin: None,
            end: None,
            omitting: self.omit > Duration::ZERO,
            closing: None,
            grace: false,
            tick: None,
            first: 0,
            moved: 0,
            moved_at: start,
            looked_at: start,
            seen: WatchResult::default(),
        };
        if !state.omitting {
            // Data moved before the first check belongs to the first interval.
            let nothing = self
                .streams
                .iter()
                .map(|_| CounterReading::before_work(start))
                .collect();
            self.first_tick(&mut state, start, nothing);
        }
        while self
            .streams
            .iter()
            .any(|stream| stream.phase() < StreamPhase::Done)
        {
            self.take_step(&mut state);
            self.sleep_until_event(&state);
        }
        self.last_tick(&mut state);
        let (begin, end) = (state.begin, state.end);
        state.seen.spans = begin.zip(end).map(|(begin, end)| {
            let pairs = begin.into_iter().zip(end);
            pairs
                .map(|(begin, end)| WindowReadings { begin, end })
                .collect()
        });
        state.seen
    }

    fn take_step(&mut self, state: &mut WatchState) {
        let now = Instant::now();
        if state.omitting && now >= state.start + self.omit {
            state.omitting = false;
            for meter in self
                .streams
                .iter()
                .filter_map(|stream| stream.meter.as_ref())
            {
                meter.resume();
            }
            let begun = state.start + self.omit;
            let (_, readings) = self.timed_readings();
            self.first_tick(state, begun, readings.clone());
            if state.closing.is_none() && self.all_move() {
                // The omitted part and the counted part must add up to the total.
                state.begin = Some(readings.clone());
            }
            state.seen.omitted = Some(readings);
        }
        self.update_window(state);
        self.update_intervals(state, now);
        if self
            .streams
            .iter()
            .all(|stream| stream.load || stream.phase() >= StreamPhase::Looped)
        {
            self.last_tick(state);
        }
        if state.closing.is_none() {
            self.reasons_to_end(state, now);
        } else {
            self.interrupt_streams(state, now);
        }
        self.check_servers(state);
        self.check_progress(state, now);
    }

    /// The window begins when all streams move, and ends when the first one stops.
    fn update_window(&self, state: &mut WatchState) {
        if state.begin.is_none() && !state.omitting && state.closing.is_none() {
            if self.all_move() {
                state.begin = Some(self.stream_readings());
            }
        } else if state.begin.is_some()
            && state.end.is_none()
            && self
                .streams
                .iter()
                .any(|stream| stream.phase() >= StreamPhase::Looped)
        {
            state.end = Some(self.stream_readings());
        }
    }

    fn all_move(&self) -> bool {
        self.streams
            .iter()
            .all(|stream| stream.phase() == StreamPhase::Moving)
    }

    fn stream_readings(&self) -> Vec<CounterReading> {
        self.streams.iter().map(SharedStream::read).collect()
    }

    fn reasons_to_end(&mut self, state: &mut WatchState, now: Instant) {
        let failed = self
            .streams
            .iter()
            .any(|stream| stream.failed.load(Ordering::Relaxed));
        let wished = self.stop.is_set();
        let late = self.time.is_some_and(|time| now >= state.start + time);
        // The end of a load stream is never waited for.
        let foreground = |stream: &&SharedStream| !stream.load;
        let done = self
            .streams
            .iter()
            .filter(foreground)
            .all(|stream| stream.phase() >= StreamPhase::Looped);
        if failed || wished || late || done {
            state.seen.wished = wished;
            self.close(state, now, failed || wished, late && !wished && !failed);
        }
    }

    /// Asks all streams to end. `at_once`: without waiting for data that the server still sends.
    fn close(&mut self, state: &mut WatchState, now: Instant, at_once: bool, grace: bool) {
        if state.begin.is_some() && state.end.is_none() {
            state.end = Some(self.stream_readings());
        }
        state.closing = Some(now);
        state.seen.silence = now.saturating_duration_since(state.moved_at);
        state.grace = grace;
        for (index, stream) in self.streams.iter().enumerate() {
            if stream.role != StreamRole::Down || stream.phase() >= StreamPhase::Looped {
                continue;
            }
            if self.tell_end[index] {
                // Fails only if the connection is broken, which is noticed elsewhere.
                if let Some(control) = &mut self.controls[index] {
                    let _ = control.send(&Request::End, &StopRequest::never());
                }
            } else if at_once || stream.load && self.counted {
                stream.abort.store(true, Ordering::Relaxed);
            }
        }
        self.interrupt_streams(state, now);
    }

    /// Interrupts streams that have not ended yet.
    fn interrupt_streams(&self, state: &WatchState, now: Instant) {
        let waits = state.grace && state.closing.is_some_and(|since| now < since + GRACE);
        for stream in self.streams {
            let datagrams = self.connectionless && stream.role == StreamRole::Down;
            if stream.phase() < StreamPhase::Looped && !(waits && datagrams) {
                stream.run.stop();
            } else if state.seen.failure.is_some() {
                stream.drain.stop();
            }
        }
    }

    /// Checks the servers for failures and closed connections.
    fn check_servers(&mut self, state: &mut WatchState) {
        if state.seen.failure.is_some() {
            return;
        }
        let streams = self.streams;
        let undone = |index: usize| streams[index].phase() < StreamPhase::Done;
        let mut trouble = None;
        // Streams that are done are read too: unread results would wake this thread again and again.
        for (index, control) in self.controls.iter_mut().enumerate() {
            let said = control
                .as_mut()
                .and_then(|control| control.server_failure());
            trouble = trouble.or(said.filter(|_| undone(index)));
        }
        if let Some(trouble) = trouble {
            self.give_up(state, trouble);
        }
    }

    fn give_up(&mut self, state: &mut WatchState, why: SocketFailure) {
        state.seen.failure = Some(why);
        for stream in self.streams {
            stream.abort.store(true, Ordering::Relaxed);
            stream.drain.stop();
        }
        if state.closing.is_none() {
            self.close(state, Instant::now(), true, false);
        }
    }

    /// Gives up on a server that no longer moves data.
    fn check_progress(&mut self, state: &mut WatchState, now: Instant) {
        if now < state.looked_at + POLL_INTERVAL {
            return;
        }
        state.looked_at = now;
        let moved = self.streams.iter().map(moved_by).sum();
        if moved != state.moved {
            state.moved = moved;
            state.moved_at = now;
        }
        let (limit, what) = match state.closing {
            Some(since) => {
                state.moved_at = state.moved_at.max(since);
                // The stop request may have come after the time was up.
                let limit = match self.stop.is_set() {
                    true => self.timeouts.drain.min(self.timeouts.wished),
                    false => self.timeouts.drain,
                };
                (
                    limit,
                    "while waiting until the server closes its data connection",
                )
            }
            None if self.counted => (self.timeouts.progress, "before the test was complete"),
            None => return,
        };
        if now.saturating_duration_since(state.moved_at) < limit {
            return;
        }
        if state.seen.failure.is_none() {
            let seconds = limit.as_secs_f64();
            let what = format!("no progress for {seconds} s {what}");
            self.give_up(state, stage_failure(SocketStage::Data, what));
        }
    }

    fn first_tick(&self, state: &mut WatchState, from: Instant, begin: Vec<CounterReading>) {
        state.first = self.unit_count(&begin);
        state.tick = self
            .interim
            .map(|length| RunningInterval::new(from, from + length, begin));
    }

    /// Units of all streams except load streams.
    fn unit_count(&self, readings: &[CounterReading]) -> u64 {
        self.streams
            .iter()
            .zip(readings)
            .filter(|(stream, _)| !stream.load)
            .map(|(stream, reading)| match stream.role.is_stream() {
                true => reading.bytes,
                false => reading.transactions,
            })
            .sum()
    }

    fn update_intervals(&mut self, state: &mut WatchState, now: Instant) {
        let (Some(tick), Some(length)) = (&mut state.tick, self.interim) else {
            return;
        };
        if now < tick.due {
            return;
        }
        // Intervals that were missed are merged into one.
        let due = tick.due;
        while tick.due <= now {
            tick.due += length;
        }
        // A short remainder at the end is merged with the last whole interval.
        let left = |time: Duration| (state.start + time).saturating_duration_since(due);
        if self.time.is_some_and(|time| left(time) < length / 2) {
            return;
        }
        self.end_interval(state);
    }

    fn last_tick(&mut self, state: &mut WatchState) {
        let now = Instant::now();
        if state
            .tick
            .as_ref()
            .is_some_and(|tick| now > tick.start_time())
        {
            self.end_interval(state);
        }
        state.tick = None;
    }

    /// Readings of all streams, and their time.
    fn timed_readings(&self) -> (Instant, Vec<CounterReading>) {
        let mut tries = 0;
        loop {
            let before = Instant::now();
            let readings = self.stream_readings();
            let now = Instant::now();
            tries += 1;
            // If this thread was preempted meanwhile, the readings would mix different instants.
            if now - before < INSTANT || tries == TRIES {
                return (now, readings);
            }
        }
    }

    fn end_interval(&mut self, state: &mut WatchState) {
        let (now, readings) = self.timed_readings();
        let (Some(tick), Some(whole)) = (&mut state.tick, self.interim) else {
            return;
        };
        // A short remainder after the last interval is not a separate interval.
        let stub = now.saturating_duration_since(tick.start_time()) < whole / 10;
        let joined = stub && tick.join_previous();
        if joined {
            state.seen.intervals.pop();
        }
        let from = tick.start_time();
        let seconds = now.saturating_duration_since(from).as_secs_f64();
        let since = |at: Instant| at.saturating_duration_since(state.start).as_secs_f64();
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let (begin, latency) = tick.start_readings(joined);
        for stream in self.streams.iter().filter(|stream| !stream.load) {
            if let Some(meter) = &stream.meter {
                latency.merge(&meter.take_interval());
            }
        }
        let between = ReadingPair {
            streams: self.streams,
            names: self.names,
            begin,
            end: &readings,
            seconds,
        };
        let interval = SocketInterval {
            from_s: since(from),
            to_s: since(now),
            ended_s: wall.as_secs_f64(),
            ..between.interval_figures(self.live.transactions, latency)
        };
        let live = SocketLive {
            units: interval.units,
            interval_s: seconds,
            ended_s: interval.ended_s,
            total: self.unit_count(&readings).saturating_sub(state.first),
            ..self.live
        };
        tick.next(now, readings);
        state.seen.intervals.push(interval);
        // Most of a joined interval was already reported to the observer.
        if !joined {
            (self.observe)(&live);
        }
    }

    /// Sleeps until the next event is due, a thread wakes this one or a server sends.
    fn sleep_until_event(&mut self, state: &WatchState) {
        let now = Instant::now();
        let mut until = now + POLL_INTERVAL;
        let dues = [
            state.tick.as_ref().map(|tick| tick.due),
            state.omitting.then(|| state.start + self.omit),
            self.time
                .map(|time| state.start + time)
                .filter(|due| *due > now),
        ];
        for due in dues.into_iter().flatten() {
            until = until.min(due);
        }
        let last = if state.seen.failure.is_some() {
            StreamPhase::Done
        } else {
            StreamPhase::Looped
        };
        if state.closing.is_some() && self.streams.iter().any(|stream| stream.phase() < last) {
            until = until.min(now + AGAIN);
        }
        let mut fds = vec![poll_readable(self.waker.as_fd())];
        fds.extend(self.stop.wait_descriptor().map(poll_readable));
        for control in self
            .controls
            .iter()
            .flatten()
            .filter(|control| !control.is_over())
        {
            fds.push(poll_readable(control.as_fd()));
        }
        if wait(&mut fds, until) {
            self.waker.clear();
        }
    }
}

/// A counter that increases while the stream makes progress in either direction.
fn moved_by(stream: &SharedStream) -> u64 {
    let tcp = stream
        .tcp_sample()
        .map_or(0, |sample| sample.bytes_acked + sample.bytes_received);
    let counters = &stream.counters;
    counters.bytes() + counters.transactions() + tcp + stream.phase() as u64
}
