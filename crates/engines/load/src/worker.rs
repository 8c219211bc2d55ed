//! The main loop of a worker: processes and answers received frames, opens due connections, runs timers, submits
//! frames, publishes counters, waits.

use std::sync::atomic::Ordering;
use std::time::Duration;

use wb_model::http::HttpTotals;
use wb_model::lateness::{Lateness, Turns};
use wb_model::load::{LoadEnd, LoadStage};
use wb_port::{
    ChecksumState, PortError, QueuePair, RxFrame, RxQueue, StampSource, TxQueue, prefetch,
    worker_loop::{POLL_INTERVAL_NS, RETRY_NS},
};
use wb_tcp::{
    Behaviour, Cause, Checksum, Config, ConfigError, Counters, Exchange, FrameSink,
    LONGEST_LOOK_AHEAD, Latencies, Machine, Observer, Received, Role, ServerAnswer, Transport,
};

use crate::http::{HttpAccount, HttpOutcome, HttpRequestSchedule};
use crate::launch_schedule::{Grouping, LaunchCounters, LaunchSchedule};
use crate::neighbour_responder::{ResponderCounters, answer_frame};
use crate::outcome::{LoadOutcome, PhaseTotals};
use crate::rates::WorkerLimits;
use crate::shared::{LiveTimes, LoadSlot, LoadSnapshot};
use crate::sink::Sink;
use crate::{Clock, LoadControl, LoadSpec};

/// Interval between two snapshots while idle, in ns.
const IDLE_TICK_NS: u64 = 100_000_000;
/// First wait while the device is full, in ns.
const FULL_NS: u64 = 10_000;
/// A stall of this length may make any connection fail, in ns: the time limits of the peer are unknown.
const LONG_AWAY_NS: u64 = 100_000_000;
/// Maximum number of connections of an HTTP job that a worker opens concurrently: the size of a ring, so that a million
/// of them neither overrun the peer nor leave no room for requests.
const MOST_BEING_MADE: u64 = 4096;
/// Attempts on a full device at the very end before it counts as stuck.
const MOST_IDLE: u32 = 10_000;

/// Collects the machine's times.
#[derive(Debug, Default)]
struct TimeCollector {
    all: Latencies,
    connect: LiveTimes,
    first_byte: LiveTimes,
    request: LiveTimes,
    /// Results of each request of an HTTP job.
    http: Option<Box<HttpAccount>>,
}

impl Observer for TimeCollector {
    #[inline]
    fn asked(&mut self, _: u64, text: u16, n: u16) {
        if let Some(http) = &mut self.http {
            http.record_sent(text, n);
        }
    }

    #[inline]
    fn exchanged(&mut self, exchange: &Exchange) {
        if let Some(http) = &mut self.http {
            http.record_exchange(exchange);
        }
    }

    #[inline]
    fn answer_bytes(&mut self, sent_ns: u64, all: u64, body: u64) {
        if let Some(http) = &mut self.http {
            http.answer_bytes(sent_ns, all, body);
        }
    }

    #[inline]
    fn unanswered(&mut self, text: u16, ns: u64, cause: Cause) {
        if let Some(http) = &mut self.http {
            http.record_unanswered(text, ns, cause);
        }
    }

    fn head(&mut self, place: u16, first: bool, bytes: &[u8]) {
        if let Some(http) = &mut self.http {
            http.add_head_bytes(place, first, bytes);
        }
    }

    fn body(&mut self, place: u16, bytes: &[u8]) {
        if let Some(http) = &mut self.http {
            http.add_body_bytes(place, bytes);
        }
    }

    fn malformed(&mut self, bytes: &[u8]) {
        if let Some(http) = &mut self.http {
            http.record_malformed(bytes);
        }
    }

    fn unasked(&mut self) {
        if let Some(http) = &mut self.http {
            http.record_first_complaint(|| {
                "the server sent data although no request was pending".to_owned()
            });
        }
    }

    #[inline]
    fn answered_since_due(&mut self, ns: u64) {
        self.all.answered_since_due(ns);
    }

    #[inline]
    fn connected(&mut self, ns: u64) {
        self.all.connected(ns);
        self.connect.record(ns);
        if let Some(http) = &mut self.http {
            http.record_connected(ns);
        }
    }

    #[inline]
    fn first_byte(&mut self, ns: u64) {
        self.all.first_byte(ns);
        self.first_byte.record(ns);
        if let Some(http) = &mut self.http {
            http.first_byte(ns);
        }
    }

    #[inline]
    fn answered(&mut self, ns: u64) {
        self.all.answered(ns);
        self.request.record(ns);
    }
}

/// Returns true if the kernel timestamped a frame when it arrived, with this machine's clock.
#[inline]
fn is_stamped_by_kernel(frame: &RxFrame<'_>) -> bool {
    matches!(
        frame.stamp_source,
        StampSource::KernelXdp | StampSource::KernelTpacket
    )
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadTurn {
    /// The monotonic time at its beginning.
    pub now_ns: u64,
    /// Frames were received or sent.
    pub busy: bool,
    /// Latest time of the next turn, even if no frame arrives; monotonic.
    pub next_ns: u64,
    /// `next_ns` is a launch, for which busy-waiting is useful.
    pub exact: bool,
    /// The worker has finished.
    pub done: bool,
}

/// One worker, turn by turn. [`run_load_worker`] runs it completely.
///
/// Call [`turn`](LoadWorker::turn) until it returns `done` or fails permanently, then
/// [`conclude`](LoadWorker::conclude).
pub struct LoadWorker {
    spec: LoadSpec,
    machine: Machine<TimeCollector>,
    pace: LaunchSchedule,
    /// Schedule of requests over persistent connections.
    asks: LaunchSchedule,
    /// Schedule of an HTTP job, used in place of `asks`.
    http: Option<HttpRequestSchedule>,
    responder: ResponderCounters,
    /// Longer frames are ignored: an answer to them would not fit a slot.
    longest: usize,
    /// The monotonic time that is 0 for the machine.
    zero: Option<u64>,
    phase: LoadStage,
    /// End of the drain, since the start.
    drain_end: u64,
    /// Arrival of the first and the last load frame in this phase, since the start.
    active: Option<(u64, u64)>,
    phases: Vec<PhaseTotals>,
    phase_from: u64,
    phase_counters: Counters,
    phase_launch: LaunchCounters,
    phase_asks: LaunchCounters,
    rate_version: u64,
    at: u64,
    /// Last time at which the receive queue was empty, in the machine's time.
    heard: u64,
    published: Option<u64>,
    /// Frames were received or sent since the last update.
    unpublished: bool,
    turns: u64,
    busy_turns: u64,
    busy_ns: u64,
    longest_turn_ns: u64,
    expected: Turns,
    lateness: Lateness,
    /// End of the catch-up after a stall, at the latest.
    behind_until: Option<u64>,
    /// Start of the last stall.
    away_from: u64,
    /// Frames sent during the catch-up.
    burst: u64,
    /// Unsent launches and requests at the last check.
    unsent_seen: u64,
    /// Requests that had waited for answers at the last check.
    waited_seen: u64,
    /// Remaining number of waiting requests that may be due to the stall or the catch-up.
    waited_most: u64,
    /// A stall of this length may make a connection fail, in ns.
    exposing_ns: u64,
    /// Some frames had no kernel timestamp, so times end when they are read.
    unstamped: bool,
    /// Its connections have ended, and `LoadControl` has counted this.
    rests: bool,
    last: Option<(u64, bool)>,
    /// Start of the link outage, and the number of frames sent by then.
    down_since: Option<(u64, u64)>,
    link_downs: u64,
    link_down_ns: u64,
}

impl LoadWorker {
    /// Creates a worker for a port with frames of up to `frame_capacity` bytes, without FCS.
    ///
    /// # Errors
    /// Fails if the configuration is invalid.
    pub fn new(spec: LoadSpec, frame_capacity: usize) -> Result<Self, ConfigError> {
        let task = spec.http.as_ref();
        let times = TimeCollector {
            http: task.map(|task| Box::new(HttpAccount::new(task))),
            ..TimeCollector::default()
        };
        let machine = Machine::new(spec.config.clone(), times)?;
        let echoes = spec.config.transport == Transport::Udp
            && matches!(&spec.config.role, Role::Server(server) if matches!(server.answer, ServerAnswer::Echo));
        let least = spec.config.longest_frame();
        if least > frame_capacity && !echoes {
            return Err(ConfigError::Range {
                name: "room of the port for a frame",
                value: frame_capacity as u64,
                low: least as u64,
                high: u64::MAX,
            });
        }
        let pace = LaunchSchedule::new(&spec.shape, spec.limits, spec.grouping, spec.catch_up_ns);
        let asks = LaunchSchedule::new(
            &spec.shape,
            requests_of(&spec.limits),
            Grouping::Even(1),
            spec.catch_up_ns,
        );
        Ok(Self {
            // Receive offload may deliver more data than fits a slot, so an echo of it has no room.
            longest: if echoes {
                frame_capacity - 4
            } else {
                usize::MAX
            },
            machine,
            pace,
            asks,
            http: spec
                .http
                .as_ref()
                .map(|task| HttpRequestSchedule::new(task, spec.worker, spec.workers)),
            responder: ResponderCounters::default(),
            zero: None,
            phase: LoadStage::Ready,
            drain_end: u64::MAX,
            active: None,
            phases: Vec::new(),
            phase_from: 0,
            phase_counters: Counters::default(),
            phase_launch: LaunchCounters::default(),
            phase_asks: LaunchCounters::default(),
            rate_version: 0,
            at: 0,
            heard: 0,
            published: None,
            unpublished: false,
            turns: 0,
            busy_turns: 0,
            busy_ns: 0,
            longest_turn_ns: 0,
            expected: Turns::default(),
            lateness: Lateness::default(),
            behind_until: None,
            away_from: 0,
            burst: 0,
            unsent_seen: 0,
            waited_seen: 0,
            waited_most: 0,
            exposing_ns: exposing_ns(&spec.config),
            unstamped: false,
            rests: false,
            last: None,
            down_since: None,
            link_downs: 0,
            link_down_ns: 0,
            spec,
        })
    }

    /// Takes a turn.
    ///
    /// # Errors
    /// Returns errors of the port, except [`PortError::is_transient`] ones, which are handled here.
    pub fn turn<Q: QueuePair, C: Clock>(
        &mut self,
        queue: &mut Q,
        control: &LoadControl,
        slot: &LoadSlot,
        clock: &C,
    ) -> Result<LoadTurn, PortError> {
        let mono = clock.monotonic_ns();
        let start = control.start_at_mono_ns.load(Ordering::Acquire);
        if self.zero.is_none() {
            self.expected.first_due(start);
        }
        self.note_turn(mono);
        let zero = *self.zero.get_or_insert(mono);
        if let Some(http) = &mut self.http
            && let Some(account) = &mut self.machine.observer_mut().http
        {
            let since_start = |mono: u64| mono.saturating_sub(start);
            let behind = self.behind_until.map(|until| (self.away_from, until));
            http.behind = behind.map(|(from, until)| (since_start(from), since_start(until)));
            account.now = mono - zero;
            if start <= mono {
                account.warm_until = (start + http.warm_up).saturating_sub(zero);
            }
            if account.ends_warm_up() {
                self.end_warm_up();
            }
        }
        let (tx, rx) = queue.split();
        let mut sink = Sink::new(tx, self.spec.batch);
        let of_load = self.machine.counters().rx_of_load().0;
        // Received frames arrived before this time. Otherwise an answer that arrived while the thread had no CPU would
        // look faster than it was.
        let times = (|| clock.monotonic_ns() - zero, || clock.wall_ns());
        let (received, now) = self.receive(rx, times, &mut sink)?;
        let now = now.unwrap_or(mono - zero);
        let at = (now + zero).checked_sub(start);
        if received < self.spec.batch {
            self.heard = now;
        }
        if let Some(at) = at {
            self.at = at;
            if received > 0 && self.machine.counters().rx_of_load().0 > of_load {
                self.active = Some((self.active.map_or(at, |(first, _)| first), at));
            }
            self.advance_phases(at, now, control, &mut sink);
        }
        // Frames that arrived during a stall must not cause timeouts: they are read before any timer expires.
        if self.behind_until.is_none() || received < self.spec.batch {
            self.machine.poll_heard(now, self.heard, &mut sink);
        }
        sink.submit();
        let sent = sink.sent;
        if self.behind_until.is_some() {
            self.catch_up(mono, received, sent);
        }
        let up = self.flush(tx, mono)?;
        let busy = received > 0 || sent > 0;
        self.unpublished |= busy;
        self.publish(mono, tx, rx, slot);
        self.busy_turns += u64::from(busy);
        self.last = Some((mono, busy));
        let mut turn = LoadTurn {
            now_ns: mono,
            busy,
            next_ns: mono + POLL_INTERVAL_NS,
            exact: false,
            done: self.is_done(tx, control),
        };
        if at.is_none() && start != u64::MAX {
            turn.next_ns = turn.next_ns.min(start);
        }
        if let Some(due) = self.machine.next_due() {
            turn.next_ns = turn.next_ns.min(mono + due.saturating_sub(now));
        }
        if let Some(at) = at.filter(|_| self.is_opening()) {
            let counters = self.machine.counters();
            let next = self.pace.next_due(at, counters.open).unwrap_or(u64::MAX);
            let next = next.min(self.next_ask(at));
            let next = next.min(self.phase_end(at)).saturating_sub(at);
            turn.exact = mono.saturating_add(next) < turn.next_ns;
            turn.next_ns = turn.next_ns.min(mono.saturating_add(next));
        } else if at.is_some() {
            turn.next_ns = turn
                .next_ns
                .min(mono.saturating_add(self.drain_end.saturating_sub(self.at)));
        }
        if !up {
            turn.next_ns = turn.next_ns.max(mono + RETRY_NS);
            turn.exact = false;
        } else if tx.in_flight() > 0 {
            turn.next_ns = turn.next_ns.clamp(mono + FULL_NS, mono + RETRY_NS);
        }
        if !busy {
            self.expected.sleep_until(turn.next_ns);
        }
        Ok(turn)
    }

    #[inline]
    fn note_turn(&mut self, mono: u64) {
        self.turns += 1;
        if let Some((before, true)) = self.last {
            let ns = mono - before;
            self.busy_ns += ns;
            self.longest_turn_ns = self.longest_turn_ns.max(ns);
        }
        let away_ns = self.expected.begin(mono);
        if self.lateness.away(mono, away_ns) {
            self.was_away(mono, away_ns);
        }
    }

    /// Handles a gap between turns.
    #[cold]
    fn was_away(&mut self, mono: u64, away_ns: u64) {
        if away_ns >= self.exposing_ns {
            self.lateness.exposed_connections += self.machine.counters().open;
        }
        self.away_from = mono - away_ns;
        if let (Some(zero), Some((turn, _))) = (self.zero, self.last) {
            self.machine
                .was_away(turn.saturating_sub(zero), mono - zero);
        }
        self.behind_until = Some(mono.saturating_add(away_ns));
        self.unsent_seen = self.unsent();
        self.waited_seen = self.waited();
        self.waited_most = self.periods_in(away_ns);
    }

    /// A turn after a stall: all frames read had waited, and all frames sent are late. This phase may take as long as
    /// the stall.
    #[cold]
    fn catch_up(&mut self, mono: u64, received: usize, sent: usize) {
        self.lateness.late_reads += received as u64;
        self.burst += sent as u64;
        let unsent = self.unsent();
        self.lateness.missed_departures += unsent - self.unsent_seen;
        self.unsent_seen = unsent;
        // Requests that became due while an answer was unread have not waited for the peer.
        let waited = self.waited();
        let missed = (waited - self.waited_seen).min(self.waited_most);
        self.lateness.missed_departures += missed;
        self.waited_most -= missed;
        self.waited_seen = waited;
        if received == 0 && sent == 0 || self.behind_until.is_some_and(|until| mono >= until) {
            self.caught_up();
        }
    }

    fn caught_up(&mut self) {
        self.behind_until = None;
        self.lateness
            .made_up(std::mem::take(&mut self.burst), u64::MAX);
    }

    fn unsent(&self) -> u64 {
        let at_intervals = self.machine.counters().requests_unsent;
        self.pace.counters().unsent + self.asks.counters().unsent + at_intervals
    }

    fn waited(&self) -> u64 {
        self.asks.counters().held_back + self.machine.counters().requests_waited
    }

    /// Maximum number of requests due within `ns`, including the period in which it began.
    fn periods_in(&self, ns: u64) -> u64 {
        match &self.spec.config.role {
            Role::Client(client) if client.interval > 0 => {
                let periods = ns.div_ceil(client.interval);
                let each = periods.saturating_mul(client.pipeline.max(1).into());
                self.machine.counters().open.saturating_mul(each)
            }
            // With a rate: everything held back meanwhile fell due meanwhile.
            _ => u64::MAX,
        }
    }

    /// Receives a batch and writes the answers into lent slots.
    #[inline]
    fn receive<R: RxQueue, T: TxQueue>(
        &mut self,
        rx: &mut R,
        (time, wall): (impl Fn() -> u64, impl Fn() -> u64),
        sink: &mut Sink<'_, T>,
    ) -> Result<(usize, Option<u64>), PortError> {
        let (machine, responder, counters) =
            (&mut self.machine, &self.spec.responder, &mut self.responder);
        let (mut came, mut wall_now) = (None, None);
        let (heard, mut stamped) = (self.heard, None);
        let longest = self.longest;
        if machine.is_worth_looking_ahead() {
            let most = self.spec.batch.min(LONGEST_LOOK_AHEAD);
            rx.look_ahead(most, |frame| machine.look_ahead(frame, prefetch));
            machine.fetch_records(prefetch);
        }
        let result = rx.receive(self.spec.batch, |frame| {
            if frame.bytes.len() > longest {
                counters.other_rx += 1;
                return;
            }
            let known = match frame.checksum {
                ChecksumState::Unknown => Checksum::Unknown,
                ChecksumState::Valid => Checksum::Right,
                ChecksumState::NotReady => Checksum::Left,
            };
            let now = match came {
                Some(now) => now,
                None => {
                    let now = time();
                    came = Some(now);
                    if let Some(account) = &mut machine.observer_mut().http {
                        account.now = now;
                        if account.ends_warm_up() {
                            let counters = *machine.counters();
                            if let Some(account) = &mut machine.observer_mut().http {
                                account.end_warm_up(&counters);
                            }
                        }
                    }
                    now
                }
            };
            let by_kernel = is_stamped_by_kernel(frame);
            machine.set_unread(match by_kernel {
                true => {
                    let wall = *wall_now.get_or_insert_with(&wall);
                    // No frame was left unread when the ring was empty, even if the wall clock was set since.
                    wall.saturating_sub(frame.stamp_ns)
                        .min(now.saturating_sub(heard))
                }
                false => 0,
            });
            stamped = Some(by_kernel);
            if machine.receive_known(now, frame.bytes, known, sink) == Received::NotOurs
                && let Some(len) = answer_frame(responder, counters, frame, || sink.lend())
            {
                sink.commit(len);
            }
        });
        self.unstamped |= stamped == Some(false);
        let received = match result {
            Err(error) if error.is_transient() => 0,
            // A recording has ended; the run continues to its end.
            Err(PortError::EndOfFile { .. }) => 0,
            result => result?,
        };
        Ok((received, came))
    }

    /// Returns true while connections may be opened.
    fn is_opening(&self) -> bool {
        self.phase < LoadStage::Drain
    }

    /// End of the phase at this time; the drain has none.
    fn phase_end(&self, at: u64) -> u64 {
        let shape = &self.spec.shape;
        let (wait, ramp) = (shape.wait.as_nanos(), shape.ramp.as_nanos());
        let steady = wait.max(ramp);
        if at < wait {
            wait
        } else if at < steady {
            steady
        } else {
            self.steady_end()
        }
    }

    fn phase_at(&self, at: u64) -> LoadStage {
        let shape = &self.spec.shape;
        let (wait, ramp) = (shape.wait.as_nanos(), shape.ramp.as_nanos());
        let steady = wait.max(ramp);
        if at < wait {
            LoadStage::Wait
        } else if at < steady {
            LoadStage::Ramp
        } else if at < self.steady_end() {
            LoadStage::Steady
        } else {
            LoadStage::Drain
        }
    }

    /// Advances through the phases and opens due connections.
    #[inline]
    fn advance_phases<T: TxQueue>(
        &mut self,
        at: u64,
        now: u64,
        control: &LoadControl,
        sink: &mut Sink<'_, T>,
    ) {
        let stopped = control.stop.load(Ordering::Relaxed);
        if !self.is_opening() {
            if stopped && self.drain_end == u64::MAX {
                self.drain_end = self.drain_from(at);
            }
            return;
        }
        let stopped = stopped || self.has_asked_all() || self.is_deserted(at);
        let phase = if stopped || control.clients_stop.load(Ordering::Relaxed) {
            LoadStage::Drain
        } else {
            self.phase_at(at)
        };
        if let Some(rate) = control.changed_rate(&mut self.rate_version) {
            let (worker, workers) = (self.spec.worker, self.spec.workers);
            let limits = WorkerLimits::for_worker(&rate, self.spec.cost, worker, workers);
            self.pace.set(limits, Some(at));
            self.asks.set(requests_of(&limits), Some(at));
            let paced = self.spec.is_paced(&limits);
            self.machine.set_paced(now, paced);
        }
        if phase != self.phase && phase != LoadStage::Drain {
            self.enter_phase(phase, at, now, stopped);
        }
        if self.spec.end == LoadEnd::Client && !stopped {
            // Launches due before the end are still made then, and belong to the ending phase.
            self.open_due_connections(at, now, sink);
            self.send_due_requests(at, now, sink);
            if let Some(most) = self.pace.open_limit(at) {
                self.machine.close_down_to(now, most);
            }
        }
        if phase == LoadStage::Drain {
            self.enter_phase(phase, at, now, stopped);
        }
    }

    #[inline]
    fn open_due_connections<T: TxQueue>(&mut self, at: u64, now: u64, sink: &mut Sink<'_, T>) {
        let wanted = self
            .pace
            .connections_to_open(at, self.machine.counters().open);
        if wanted == 0 {
            return;
        }
        if let Some(http) = &mut self.http
            && !http.may_open(now, self.machine.counters())
        {
            return;
        }
        let wanted = match self.http {
            // Each connection being opened will take one of the remaining requests.
            Some(_) => {
                let most = self.machine.left().min(MOST_BEING_MADE);
                wanted.min(most.saturating_sub(self.being_made()))
            }
            None => wanted,
        };
        let n = u32::try_from(wanted).unwrap_or(u32::MAX);
        let busy = self.machine.counters().tuples_busy;
        let late = self.pace.due_lateness(at);
        let launched = self.machine.launch_late(now, n, late, sink);
        self.pace.record_launches(launched.into());
        let full = self.machine.held() >= self.machine.config().most_open;
        if launched < n && (full || self.machine.counters().tuples_busy > busy) {
            self.pace.no_tuple(u64::from(n - launched));
        }
    }

    /// Connections without an answer to their SYN.
    fn being_made(&self) -> u64 {
        let counters = self.machine.counters();
        counters.attempted
            - counters.established
            - counters.failed_connect_timeout
            - counters.failed_refused
            - counters.failed_unreachable
    }

    /// Sends due requests over idle connections.
    #[inline]
    fn send_due_requests<T: TxQueue>(&mut self, at: u64, now: u64, sink: &mut Sink<'_, T>) {
        if self.http.is_some() {
            return self.ask_http(at, now, sink);
        }
        let due = self.asks.connections_to_open(at, 0);
        if due > 0 {
            let n = u32::try_from(due).unwrap_or(u32::MAX);
            let late = self.asks.due_lateness(at);
            let asked = self.machine.ask_late(now, n, late, sink);
            self.asks.record_launches(asked.into());
            self.asks.set_waits(asked < n && !self.machine.can_ask());
        }
    }

    /// Sends the due requests of an HTTP job, each over the connection that has been idle longest.
    fn ask_http<T: TxQueue>(&mut self, at: u64, now: u64, sink: &mut Sink<'_, T>) {
        let end = self.steady_end();
        let Some(http) = self.http.as_mut().filter(|http| http.has_schedule()) else {
            return;
        };
        loop {
            let mut unsent = 0;
            let late = http.due_requests(at, end, &mut unsent);
            let n = match late.is_empty() {
                true => 0,
                false => self.machine.ask_each(now, late, sink),
            };
            if let Some(account) = &mut self.machine.observer_mut().http {
                account.out.totals.unsent += unsent;
            }
            if n == 0 {
                return;
            }
            http.mark_sent(n);
        }
    }

    /// Returns true if an HTTP job with an exact number of requests has received its last answer.
    #[inline]
    fn has_asked_all(&self) -> bool {
        let counters = self.machine.counters();
        self.machine.left() == 0 && counters.requests == counters.responses + counters.requests_lost
    }

    /// Returns true if an HTTP job has waited long enough for an unreachable server.
    fn is_deserted(&mut self, at: u64) -> bool {
        if self.http.is_none() {
            return false;
        }
        let established = self.machine.counters().open - self.being_made();
        let http = self.http.as_mut();
        http.is_some_and(|http| http.is_deserted(at, established))
    }

    /// Due time of the next request, if a connection is available for it.
    #[inline]
    fn next_ask(&self, at: u64) -> u64 {
        if !self.machine.can_ask() {
            return u64::MAX;
        }
        if let Some(http) = &self.http {
            return http.next_due();
        }
        self.asks.next_due(at, 0).unwrap_or(u64::MAX)
    }

    /// End of the duration.
    fn steady_end(&self) -> u64 {
        let shape = &self.spec.shape;
        let steady = shape.wait.as_nanos().max(shape.ramp.as_nanos());
        steady.saturating_add(shape.duration.as_nanos())
    }

    /// End of a drain that begins now.
    fn drain_from(&self, at: u64) -> u64 {
        at.saturating_add(self.spec.shape.drain.as_nanos())
    }

    #[cold]
    fn enter_phase(&mut self, phase: LoadStage, at: u64, now: u64, stopped: bool) {
        if phase == LoadStage::Drain && self.spec.end == LoadEnd::Client {
            self.pace.finish();
            self.asks.finish();
            self.end_http(at.min(self.steady_end()));
        }
        self.close_phase(at);
        self.phase = phase;
        if phase == LoadStage::Drain {
            if stopped || !self.spec.beside {
                self.drain_end = self.drain_from(at);
            }
            if self.spec.end == LoadEnd::Client {
                // A server continues to answer until its connections have ended.
                let half = self.spec.shape.drain.as_nanos() / 2;
                let ended = at.min(self.steady_end());
                let ended_at = now.saturating_sub(at - ended);
                self.machine
                    .finish_as_of(ended_at, now.saturating_add(half));
            }
        }
    }

    /// Ends the warm-up of an HTTP job.
    #[cold]
    fn end_warm_up(&mut self) {
        let counters = *self.machine.counters();
        if let Some(account) = &mut self.machine.observer_mut().http {
            account.end_warm_up(&counters);
        }
    }

    /// Stops the requests of an HTTP job at `ended`.
    #[cold]
    fn end_http(&mut self, ended: u64) {
        let all_asked = self.has_asked_all();
        let Some(http) = &mut self.http else { return };
        let mut counted = ended;
        if all_asked && let Some(account) = &self.machine.observer().http {
            let nominal = account.request_limit().map_or(0, |n| http.nominal_end(n));
            counted = ended.max(nominal);
        }
        let unsent = http.finish(ended, self.machine.left());
        self.lateness.missed_departures += http.take_missed();
        let counters = *self.machine.counters();
        if let Some(account) = &mut self.machine.observer_mut().http {
            account.out.totals.unsent += unsent;
            account.end_requests(&counters, counted);
        }
    }

    /// Final results of an HTTP job.
    #[cold]
    fn conclude_http(&mut self) -> Option<HttpOutcome> {
        self.machine.observer().http.as_ref()?;
        self.end_http(self.at.min(self.steady_end()));
        let connecting = self.machine.connecting();
        let counters = *self.machine.counters();
        let mut waiting = Vec::new();
        self.machine.waiting_requests(|_, sent| waiting.push(sent));
        let account = self.machine.observer_mut().http.as_mut()?;
        waiting.into_iter().for_each(|sent| account.in_flight(sent));
        Some(account.conclude(&counters, connecting))
    }

    /// Records the counters since the phase began.
    #[cold]
    fn close_phase(&mut self, at: u64) {
        let counters = *self.machine.counters();
        let (launch, asks) = (*self.pace.counters(), *self.asks.counters());
        let latencies = std::mem::take(&mut self.machine.observer_mut().all);
        // A lone server has waited for its clients, and they may have left: this is not time under load.
        let alone = self.spec.end == LoadEnd::Server && !self.spec.beside;
        let (from_ns, to_ns) = match self.active.take() {
            Some(active) if alone && self.phase == LoadStage::Steady => active,
            _ => (self.phase_from, at),
        };
        let totals = PhaseTotals {
            phase: self.phase,
            from_ns,
            to_ns,
            counters: counters.since(&self.phase_counters),
            launch: launch - self.phase_launch,
            asks: asks - self.phase_asks,
            latencies,
        };
        let nothing = totals.counters == Counters::default();
        if at > self.phase_from || !nothing {
            self.phases.push(totals);
        }
        (self.phase_from, self.phase_counters) = (at, counters);
        (self.phase_launch, self.phase_asks) = (launch, asks);
    }

    /// Flushes submitted frames. Returns false while the link is down.
    #[inline]
    fn flush<T: TxQueue>(&mut self, tx: &mut T, mono: u64) -> Result<bool, PortError> {
        if tx.in_flight() == 0 {
            return Ok(true);
        }
        let result = tx.flush();
        // The port counts them; TCP retransmits what the device refused.
        tx.take_refused(|_| ());
        match result {
            Ok(()) => {
                // An empty queue does not prove that the link is up.
                let sent = tx.counters().sent_frames;
                if let Some((since, _)) = self.down_since.take_if(|(_, before)| sent > *before) {
                    self.link_down_ns += mono - since;
                }
                Ok(true)
            }
            Err(error) if error.is_transient() => {
                if self.down_since.is_none() {
                    self.down_since = Some((mono, tx.counters().sent_frames));
                    self.link_downs += 1;
                }
                // Discards frames as a cut cable would. Otherwise they would occupy all slots, prevent new connections,
                // and leave when they are no longer useful.
                tx.withdraw(|_| ());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Publishes the counters once per tick, or less often while idle.
    #[inline]
    fn publish<T: TxQueue, R: RxQueue>(&mut self, mono: u64, tx: &T, rx: &mut R, slot: &LoadSlot) {
        let is_due = self.published.is_none_or(|last| match self.unpublished {
            true => mono - last >= self.spec.tick_ns,
            false => mono - last >= IDLE_TICK_NS,
        });
        if is_due && slot.try_publish(&self.snapshot(tx, rx)) {
            self.published = Some(mono);
            self.unpublished = false;
            if slot.connect.is_wanted() {
                self.show_connect(slot);
            }
            if slot.request.is_wanted() {
                self.show_request(slot);
            }
        }
    }

    /// The times so far, phase by phase.
    fn latencies(&self) -> impl Iterator<Item = &Latencies> {
        let before = self.phases.iter().map(|phase| &phase.latencies);
        before.chain([&self.machine.observer().all])
    }

    /// Publishes connect times. Returns false if a reader held the lock.
    fn show_connect(&self, slot: &LoadSlot) -> bool {
        slot.connect
            .show(|outline| self.latencies().for_each(|l| outline.add(&l.connect)))
    }

    fn show_request(&self, slot: &LoadSlot) -> bool {
        slot.request
            .show(|outline| match &self.machine.observer().http {
                Some(http) => http.latencies().for_each(|l| outline.add(l)),
                None => self.latencies().for_each(|l| outline.add(&l.answer)),
            })
    }

    #[cold]
    fn snapshot<T: TxQueue, R: RxQueue>(&self, tx: &T, rx: &mut R) -> LoadSnapshot {
        let times = self.machine.observer();
        LoadSnapshot {
            phase: self.phase,
            at_ns: self.at,
            counters: *self.machine.counters(),
            responder: self.responder,
            launch: *self.pace.counters(),
            asks: *self.asks.counters(),
            tx: tx.counters(),
            rx: rx.counters(),
            share: self.pace.current_share(self.at),
            connect: times.connect,
            first_byte: times.first_byte,
            request: times.http.as_ref().map_or(times.request, |http| http.live),
            http: times.http.as_ref().map_or(HttpTotals::default(), |http| {
                http.live_totals(self.machine.counters())
            }),
            busy_ns: self.busy_ns,
            longest_turn_ns: self.longest_turn_ns,
        }
    }

    /// Returns true if this worker may end. It stays while others wait for answers, which may arrive at its queues.
    fn is_done<T: TxQueue>(&mut self, tx: &T, control: &LoadControl) -> bool {
        if control.hurry.load(Ordering::Relaxed) {
            return true;
        }
        let stopped = control.stop.load(Ordering::Relaxed);
        if self.spec.beside && !stopped {
            return false;
        }
        let stopped_before = self.phase == LoadStage::Ready && stopped;
        let drained =
            self.phase == LoadStage::Drain && self.machine.is_idle() && tx.in_flight() == 0;
        if stopped_before || drained {
            self.report_idle(control);
        }
        let over = self.phase == LoadStage::Drain && self.at >= self.drain_end;
        stopped_before || over || drained && control.are_idle(self.spec.workers)
    }

    fn report_idle(&mut self, control: &LoadControl) {
        if !self.rests {
            self.rests = true;
            control.count_idle_worker();
        }
    }

    /// Sends RST to the peers of connections that are still open, while the port accepts frames.
    fn reset_peers<T: TxQueue>(&mut self, tx: &mut T) {
        let mut idle = 0;
        while idle < MOST_IDLE {
            let mut sink = Sink::new(tx, self.spec.batch);
            let all = self.machine.reset_open_connections(&mut sink);
            sink.submit();
            idle = if sink.sent > 0 { 0 } else { idle + 1 };
            if tx.flush().is_err() || all && tx.in_flight() == 0 {
                return;
            }
            tx.take_refused(|_| ());
        }
    }

    /// Final results. Remaining connections are reported as open.
    pub fn conclude<Q: QueuePair>(
        mut self,
        queue: &mut Q,
        slot: &LoadSlot,
        fault: Option<PortError>,
    ) -> LoadOutcome {
        let (tx, rx) = queue.split();
        if fault.is_none() && self.spec.parts {
            self.reset_peers(tx);
        }
        tx.take_refused(|_| ());
        tx.withdraw(|_| ());
        self.caught_up();
        self.close_phase(self.at);
        self.phase = LoadStage::Done;
        let mono = self.last.map_or(0, |(mono, _)| mono);
        if let Some((since, _)) = self.down_since.take() {
            self.link_down_ns += mono.saturating_sub(since);
        }
        // A reader holds the lock only for the time of a copy.
        while !slot.try_publish(&self.snapshot(tx, rx)) {
            std::hint::spin_loop();
        }
        while !self.show_connect(slot) || !self.show_request(slot) {
            std::hint::spin_loop();
        }
        let http = self.conclude_http();
        LoadOutcome {
            end: self.spec.end,
            http,
            routes: self.machine.route_answers(),
            icmp: self.machine.icmp_news().clone(),
            unstamped: self.unstamped,
            counters: *self.machine.counters(),
            phases: self.phases,
            launch: *self.pace.counters(),
            asks: *self.asks.counters(),
            responder: self.responder,
            tx: tx.counters(),
            rx: rx.counters(),
            turns: self.turns,
            busy_turns: self.busy_turns,
            busy_ns: self.busy_ns,
            ns: mono - self.zero.unwrap_or(mono),
            longest_turn_ns: self.longest_turn_ns,
            link_downs: self.link_downs,
            link_down_ns: self.link_down_ns,
            lateness: Lateness {
                dropped_reads: rx.counters().dropped_frames,
                ..self.lateness
            },
            fault,
        }
    }
}

/// Minimum stall that can make a connection fail: half of the shortest time limit of this end. A shorter stall shifts
/// events too little.
fn exposing_ns(config: &Config) -> u64 {
    let interval = match &config.role {
        Role::Client(client) if config.style == Behaviour::Dperf && client.interval > 0 => {
            client.interval
        }
        _ => u64::MAX,
    };
    let patience = [
        config.connect_timeout,
        config.response_timeout,
        config.first_byte_timeout,
        config.close_timeout,
        config.idle_timeout,
        interval,
    ];
    let shortest = patience.into_iter().min().unwrap_or(u64::MAX);
    LONG_AWAY_NS.min(shortest / 2)
}

/// The request rate as a launch rate; without one, as many as there is room for.
fn requests_of(limits: &WorkerLimits) -> WorkerLimits {
    WorkerLimits {
        launches: limits.requests,
        unlimited: false,
        open: limits.requests.is_none().then_some(u64::MAX),
        requests: None,
    }
}

/// Runs one worker until its times are over and its connections have ended, or the drain is over.
///
/// # Errors
/// Fails if the configuration is invalid. Faults of the port are in the outcome.
pub fn run_load_worker<Q: QueuePair, C: Clock>(
    queue: &mut Q,
    spec: LoadSpec,
    control: &LoadControl,
    slot: &LoadSlot,
    clock: &C,
) -> Result<LoadOutcome, ConfigError> {
    let spin_ns = spec.spin_ns;
    let mut worker = LoadWorker::new(spec, queue.tx().frame_capacity())?;
    let fault = loop {
        let result = worker.turn(queue, control, slot, clock).and_then(|turn| {
            if !turn.busy && !turn.done {
                wait(queue.rx(), &turn, spin_ns)?;
            }
            Ok(turn.done)
        });
        match result {
            Ok(false) => {}
            Ok(true) => break None,
            Err(error) => {
                worker.report_idle(control);
                break Some(error);
            }
        }
    };
    Ok(worker.conclude(queue, slot, fault))
}

/// Sleeps until a frame arrives or an event is due; busy-waits for the last part before a launch.
#[inline]
fn wait<R: RxQueue>(rx: &mut R, turn: &LoadTurn, spin_ns: u64) -> Result<(), PortError> {
    let mut gap = turn.next_ns.saturating_sub(turn.now_ns);
    if turn.exact {
        gap = gap.saturating_sub(spin_ns);
    }
    if gap == 0 {
        std::hint::spin_loop();
        return Ok(());
    }
    match rx.wait(Duration::from_nanos(gap)) {
        Err(PortError::EndOfFile { .. }) => Ok(()),
        Err(error) if !error.is_transient() => Err(error),
        _ => Ok(()),
    }
}
