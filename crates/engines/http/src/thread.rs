//! The loop of a thread.

mod accounts;
mod connecting;
mod effective_wait;
mod idle_sleep;
mod quic;
mod reading;
mod sending;
mod streams;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    os::fd::OwnedFd,
    sync::Arc,
};

use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, Event, EventFlags},
    io::Errno,
    time::{ClockId, Timespec, clock_gettime},
};
use rustls::ClientConfig;
use wb_http1::{Interim, Reader};
use wb_http2::HeaderDecoder;
use wb_model::{
    Turns,
    http::{HttpTotals, HttpVersion, Judge, Schedule},
    lateness::LATE_NS,
};

use crate::{
    HttpLoad, ThreadTask,
    connection::{Connection, HttpConnectionState, KeptAnswer, SentRequest},
    quic::Quic,
    request_set::only_fixed,
    thread::{effective_wait::EffectiveWait, idle_sleep::IdleSleep, streams::UnprocessedRequest},
    thread_outcome::{FailureCause, HttpThreadOutcome, RATE_INTERVAL_NS, STATUSES},
};

/// Maximum events per epoll call: few enough that a turn is no stall.
const EVENTS: usize = 64;
/// Maximum consecutive receive calls for one connection before others are served.
const CALLS: usize = 4;
/// Maximum bytes per receive call.
const BUFFER: usize = 64 * 1024;
/// Longest wait between checks of the stop signal.
const LOOK_NS: u64 = 50_000_000;
/// Interval between updates of the shared counters: short enough that counts over 100 ms are accurate to 1 %.
const TELL_NS: u64 = 1_000_000;
/// Interval between adaptations of the length of naps.
const ADAPT_NS: u64 = 20_000_000;

fn clock_ns(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    // Neither is negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// Result of a connection's turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionTurn {
    On,
    /// It has no socket any more.
    Ended,
}

/// Bytes that belong to the warm-up, as [`HttpTotals`] counts them.
#[derive(Clone, Copy, Default)]
struct WarmBytes {
    sent: u64,
    received: u64,
    body: u64,
}

struct HttpThread<'a> {
    load: &'a HttpLoad,
    task: ThreadTask,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Index of the first connection not yet begun.
    begun: usize,
    connecting: usize,
    /// Connections begun so far, including replacements.
    numbers: u64,
    reader: Reader,
    http2: bool,
    decoder: HeaderDecoder,
    /// HTTP/3 state.
    quic: Option<Box<Quic>>,
    /// Header block and body of variable HTTP/2 and HTTP/3 requests.
    making: (Vec<u8>, Vec<u8>),
    judge: Judge,
    keeps: bool,
    /// Reusable memory for kept answers of streams, boxed so that moves are cheap.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<KeptAnswer>>,
    tls: Option<Arc<ClientConfig>>,
    schedule: Option<Schedule>,
    /// Connections that wait for a request that is due.
    idle: VecDeque<usize>,
    /// Connections with unread data after their turn, with their numbers at that time.
    unread: Vec<(usize, u64)>,
    /// Sockets of ended connections may be reused.
    renews: bool,
    /// Number of connections to end before this is tried again.
    renews_after: u32,
    /// Pending events of connections: time, index, and number at that time.
    timers: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// Requests that a server has not processed, to be sent over other connections.
    unprocessed: VecDeque<UnprocessedRequest>,
    /// Requests still to be sent.
    budget: u64,
    credit: Vec<i64>,
    /// The next line of the data file.
    line: u64,
    /// The script's constant text, and its number of requests.
    batch: Option<Vec<u8>>,
    batch_len: usize,
    warm_until: u64,
    /// Counters at the end of the warm-up.
    warm_up: Option<HttpTotals>,
    /// Bytes of requests of the warm-up, and of their answers.
    warm_bytes: WarmBytes,
    end: u64,
    /// Last time at which a connection was established.
    reached_ns: u64,
    /// No new requests are sent.
    closing: bool,
    give_up: u64,
    in_flight: u64,
    next_scan: u64,
    next_tell: u64,
    next_adapt: u64,
    rate_since: u64,
    rate_responses: u64,
    latency_ns: u64,
    answers: u64,
    nap: IdleSleep,
    turns: Turns,
    listening: EffectiveWait,
    /// Start of the last stall, and the time until which requests delayed by it should have been sent, ns.
    behind: (u64, u64),
    statuses: Box<[u64; STATUSES]>,
    out: HttpThreadOutcome,
}

/// Runs one thread's share of the load. Returns its measurements.
#[must_use]
pub fn run(load: &HttpLoad, task: ThreadTask) -> HttpThreadOutcome {
    match HttpThread::new(load, task) {
        Ok(mut thread) => {
            thread.run_loop();
            thread.finish()
        }
        Err(why) => HttpThreadOutcome {
            error: Some(format!("epoll: {why}")),
            ..HttpThreadOutcome::new(load)
        },
    }
}

impl<'a> HttpThread<'a> {
    fn new(load: &'a HttpLoad, task: ThreadTask) -> Result<Self, Errno> {
        let job = &load.job;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let judge = Judge::new(&job.check);
        let sees = task.script.as_ref().is_some_and(|s| s.wants_responses());
        let batch = match &task.script {
            Some(script) => script.fixed().map(<[u8]>::to_vec),
            None => only_fixed(&load.set).map(<[u8]>::to_vec),
        };
        let index = u64::from(task.index);
        let threads = u64::from(job.threads);
        let start = task.start_ns;
        let tls = load.tls.as_ref();
        let quic = match job.version {
            HttpVersion::V3 => tls.and_then(|tls| tls.quic_of_thread(job.tls.resume, now_ns())),
            _ => None,
        };
        let end = job
            .ends_after()
            .map_or(u64::MAX, |after| start.saturating_add(after.as_nanos()));
        Ok(Self {
            epoll,
            connections: (0..load.connections_of_thread(task.index))
                .map(|_| Connection::new(job.pipeline as usize))
                .collect(),
            begun: 0,
            connecting: 0,
            numbers: index,
            reader: Reader::responses(match job.as_wrk {
                true => Interim::Messages,
                false => Interim::Skipped,
            }),
            http2: job.version == HttpVersion::V2,
            decoder: HeaderDecoder::new(),
            quic: quic.map(Box::new),
            making: Default::default(),
            spare: Vec::new(),
            keeps: judge.looks() || job.digest || sees,
            judge,
            tls: tls.map(|tls| tls.of_thread(job.tls.resume)),
            schedule: (!job.rate.is_empty()).then(|| {
                let place = (task.index, job.threads);
                Schedule::new(&job.rate, job.arrivals, load.seed, place)
            }),
            idle: VecDeque::new(),
            unread: Vec::new(),
            renews: load.reuses_sockets(),
            renews_after: 0,
            timers: BinaryHeap::new(),
            unprocessed: VecDeque::new(),
            budget: job
                .amount
                .map_or(u64::MAX, |n| n / threads + u64::from(index < n % threads)),
            credit: vec![0; load.set.calls.len()],
            line: index,
            batch_len: 0,
            batch,
            warm_until: start.saturating_add(job.warm_up.as_nanos()),
            warm_up: None,
            warm_bytes: WarmBytes::default(),
            end,
            reached_ns: start,
            closing: false,
            give_up: u64::MAX,
            in_flight: 0,
            next_scan: start,
            next_tell: start,
            next_adapt: start,
            rate_since: start,
            rate_responses: 0,
            latency_ns: 0,
            answers: 0,
            nap: IdleSleep::default(),
            turns: Turns::default(),
            listening: EffectiveWait::default(),
            behind: (0, 0),
            statuses: Box::new([0; STATUSES]),
            out: HttpThreadOutcome::new(load),
            load,
            task,
        })
    }

    fn run_loop(&mut self) {
        // Without it sleeps end up to 50 us late (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut buffer = vec![0_u8; BUFFER];
        let mut plain = vec![0_u8; if self.tls.is_some() { BUFFER } else { 0 }];
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut unread = Vec::new();
        self.turns.first_due(self.task.start_ns);
        if !self.wait_for_start() {
            return;
        }
        loop {
            // Before new events are read, so that no event refers to an ended connection.
            std::mem::swap(&mut unread, &mut self.unread);
            for (index, number) in unread.drain(..) {
                if self.connections[index].number == number {
                    let flags = EventFlags::IN | EventFlags::RDHUP;
                    self.handle_events(index, flags, &mut buffer, &mut plain);
                }
            }
            let now = now_ns();
            let away = self.turns.begin(now);
            let stalled = self.out.lateness.away(now, away) && away > LATE_NS;
            if stalled && away >= self.exposing_stall_ns() {
                let open = self
                    .connections
                    .iter()
                    .filter(|c| c.state == HttpConnectionState::Open);
                self.out.lateness.exposed_connections += open.count() as u64;
                self.listening.was_away(now, away);
            }
            if stalled {
                self.behind = (now - away, now.saturating_add(away));
            }
            self.check_clock(now);
            if self.is_over(now) {
                return;
            }
            self.begin_more(now);
            self.run_due_timers(now);
            self.run_due_quic_timers(now);
            let sent = self.send_what_is_due(now);
            if stalled {
                self.out.lateness.made_up(sent, u64::MAX);
            }
            if self.next_scan <= now {
                self.scan_timeouts(now);
            }
            let until = self.next_look(now);
            self.turns.sleep_until(until);
            let asked_at = now;
            if let Err(why) = self.wait_for_events(&mut events, until.saturating_sub(now)) {
                self.out.error = Some(format!("epoll: {why}"));
                return;
            }
            for event in &events {
                let index = event.data.u64() as usize;
                self.handle_events(index, event.flags, &mut buffer, &mut plain);
            }
            let (all, more) = (events.len() < EVENTS, self.connections.len() / EVENTS);
            self.listening.record_read(asked_at, all, more);
        }
    }

    /// Reads pending events, or waits for some.
    fn wait_for_events(&self, events: &mut Vec<Event>, most_ns: u64) -> Result<(), Errno> {
        events.clear();
        let mut wait_ns = most_ns;
        // At a set rate, the time of an answer is the result.
        if self.nap.sleep_ns() > 0 && self.schedule.is_none() {
            self.poll(events, 0)?;
            if !events.is_empty() {
                return Ok(());
            }
            let nap_ns = self.nap.sleep_ns().min(wait_ns);
            std::thread::sleep(std::time::Duration::from_nanos(nap_ns));
            wait_ns -= nap_ns;
        }
        self.poll(events, wait_ns)
    }

    fn poll(&self, events: &mut Vec<Event>, wait_ns: u64) -> Result<(), Errno> {
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: wait_ns.min(999_999_999) as _,
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Waits for the start. Returns false if the run ends before it.
    fn wait_for_start(&self) -> bool {
        loop {
            if self.task.control.stop_level() > 0 {
                return false;
            }
            let left = self.task.start_ns.saturating_sub(now_ns()).min(LOOK_NS);
            if left == 0 {
                return true;
            }
            std::thread::sleep(std::time::Duration::from_nanos(left));
        }
    }

    /// Length of a stall that may cause connections to fail, ns.
    fn exposing_stall_ns(&self) -> u64 {
        (self.load.shortest_timeout() / 2).clamp(1, 100_000_000)
    }

    fn check_clock(&mut self, now: u64) {
        if self.warm_up.is_none() && now >= self.warm_until {
            self.end_warm_up();
        }
        let stopped = self.task.script.as_ref().is_some_and(|s| s.stopped());
        let now = match stopped && !self.closing {
            true => self.idle_until_end(),
            false => now,
        };
        let wish = self.task.control.stop_level();
        let spent = self.budget == 0 && self.in_flight == 0 && self.nothing_waits();
        let deserted = self.is_deserted(now);
        if !self.closing
            && (now >= self.end
                || wish > 0
                || stopped
                || spent
                || deserted
                || self.out.error.is_some())
        {
            if deserted {
                self.out.totals.unsent += std::mem::take(&mut self.budget);
            }
            self.send_what_is_due(now);
            self.closing = true;
            let until = now.max(self.nominal_end(spent)).min(self.end);
            self.out.duration_ns = until.saturating_sub(self.warm_until);
            self.out.in_time = self.without_warm_up();
            let patience = match self.load.job.as_wrk {
                true => 0,
                false => self.load.job.timeout.as_nanos(),
            };
            self.give_up = now.saturating_add(patience);
            if let Some(schedule) = &mut self.schedule {
                // Requests that were due and found no connection; with a count, at most the remaining number.
                let start = self.task.start_ns;
                while self.budget > 0 && schedule.due() < until.saturating_sub(start) {
                    let due = start.saturating_add(schedule.due());
                    if due < self.warm_until {
                        schedule.take();
                        continue;
                    }
                    self.out.totals.unsent += 1;
                    let meanwhile = due >= self.behind.0;
                    self.out.lateness.missed_departures +=
                        u64::from(now <= self.behind.1 && meanwhile);
                    self.budget -= 1;
                    schedule.take();
                }
            }
        }
        if now >= self.rate_since + RATE_INTERVAL_NS && self.out.exact.is_some() {
            self.sample_rate(now);
        }
        if now >= self.next_tell {
            self.next_tell = now + TELL_NS;
            self.publish();
        }
        if now >= self.next_adapt {
            self.next_adapt = now + ADAPT_NS;
            self.nap
                .adapt(self.in_flight, self.latency_ns, self.answers);
        }
    }

    /// Waits until the end of the run, like a wrk thread with a stopped script. Returns the time.
    fn idle_until_end(&mut self) -> u64 {
        self.publish();
        loop {
            let now = now_ns();
            let left = self.end.saturating_sub(now).min(LOOK_NS);
            if left == 0 || self.task.control.stop_level() > 0 {
                return now;
            }
            std::thread::sleep(std::time::Duration::from_nanos(left));
        }
    }

    /// Nominal end of a count of sent requests: n requests take n gaps.
    fn nominal_end(&self, spent: bool) -> u64 {
        match (&self.schedule, self.load.job.amount) {
            (Some(schedule), Some(amount)) if spent => match schedule.nominal(amount) {
                u64::MAX => 0,
                due => self.task.start_ns.saturating_add(due),
            },
            _ => 0,
        }
    }

    /// Returns true if a server has been unreachable for too long; a count of requests would otherwise never end.
    fn is_deserted(&self, now: u64) -> bool {
        let patience = self.load.job.deserted_after();
        patience.is_some_and(|most| now >= self.reached_ns.saturating_add(most.as_nanos()))
    }

    /// Returns true if no connection is needed any more: the time is over, and no request has to be repeated.
    fn stops_asking(&self) -> bool {
        self.closing && self.unprocessed.is_empty()
    }

    /// Returns true if the run must end at once.
    fn gives_up(&self) -> bool {
        self.task.control.stop_level() > 1 || self.out.error.is_some()
    }

    /// With a count of requests: returns true if all connections have had their turn.
    fn nothing_waits(&self) -> bool {
        self.connecting == 0 || self.budget == 0
    }

    fn is_over(&self, now: u64) -> bool {
        self.closing
            && (self.in_flight == 0
                || now >= self.give_up
                || self.task.control.stop_level() > 1
                || self.out.error.is_some())
    }

    /// Latest time of the next action.
    fn next_look(&self, now: u64) -> u64 {
        if !self.unread.is_empty() {
            return now;
        }
        let mut until = (now + LOOK_NS).min(self.next_scan).min(self.give_up);
        until = until.min(self.next_of_quic());
        if !self.closing {
            until = until.min(self.end);
            if let (Some(schedule), false) = (&self.schedule, self.idle.is_empty()) {
                until = until.min(self.task.start_ns.saturating_add(schedule.due()));
            }
        }
        if !self.stops_asking()
            && let Some(Reverse((at, ..))) = self.timers.peek()
        {
            until = until.min(*at);
        }
        until.max(now)
    }

    /// Runs postponed events that are due now.
    fn run_due_timers(&mut self, now: u64) {
        while let Some(Reverse((at, index, number))) = self.timers.peek().copied()
            && at <= now
            && !self.stops_asking()
        {
            self.timers.pop();
            let connection = &self.connections[index];
            if connection.number != number {
                continue;
            }
            match connection.state {
                HttpConnectionState::Without if self.budget > 0 || !self.unprocessed.is_empty() => {
                    self.connect(index, now, None);
                }
                HttpConnectionState::Open if connection.asked.is_empty() && !self.closing => {
                    self.send_next_requests(index, at, now)
                }
                _ => {}
            }
        }
    }

    fn handle_events(
        &mut self,
        index: usize,
        flags: EventFlags,
        buffer: &mut [u8],
        plain: &mut [u8],
    ) {
        let now = now_ns();
        let readable = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if let Some(http3) = &self.connections[index].http3 {
            if flags.contains(EventFlags::OUT) && http3.unsent.is_some() {
                self.transmit(index, now);
            }
            if flags.intersects(readable) {
                self.receive_datagrams(index);
            }
            return;
        }
        if self.connections[index].state == HttpConnectionState::Connecting {
            if self.finish_tcp_handshake(index, flags, now) == ConnectionTurn::Ended {
                return;
            }
        } else if flags.contains(EventFlags::OUT) && self.connections[index].has_output() {
            self.flush(index, now);
        }
        if flags.intersects(readable) {
            let ends = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            self.receive(index, ends, buffer, plain);
        }
    }

    /// The timeout exceeded by the answer to a request, if any.
    fn exceeded_timeout(&self, asked: &SentRequest) -> Option<FailureCause> {
        let waited = self.listening.effective_wait(asked.sent_ns);
        self.load.exceeded_timeout(asked, waited)
    }

    /// Checks for exceeded timeouts.
    fn scan_timeouts(&mut self, now: u64) {
        let shortest = self.load.shortest_timeout();
        self.next_scan = now + (shortest / 50).clamp(1_000_000, LOOK_NS);
        let job = &self.load.job;
        if job.as_wrk {
            return;
        }
        let timeout = job.timeout.as_nanos();
        for index in 0..self.begun {
            let connection = &self.connections[index];
            if connection.state == HttpConnectionState::Open {
                self.reached_ns = now;
            }
            let overdue = match connection.state {
                HttpConnectionState::Without => None,
                HttpConnectionState::Connecting
                | HttpConnectionState::Handshake
                | HttpConnectionState::Greeting => {
                    let (since, most, cause) = match job.connect_timeout {
                        Some(most) => (
                            connection.begun_ns,
                            most.as_nanos(),
                            FailureCause::ConnectTimeout,
                        ),
                        None => (connection.since_ns, timeout, FailureCause::Timeout),
                    };
                    (self.listening.effective_wait(since) >= most).then_some(cause)
                }
                HttpConnectionState::Open if self.http2 => {
                    self.scan_streams(index, now);
                    None
                }
                HttpConnectionState::Open if self.quic.is_some() => {
                    self.scan_quic(index, now);
                    None
                }
                HttpConnectionState::Open => {
                    let asked = connection.asked.front();
                    asked.and_then(|asked| self.exceeded_timeout(asked))
                }
            };
            if let Some(cause) = overdue {
                self.fail_connection(index, cause, now);
            }
        }
    }
}

#[cold]
fn count_name(names: &mut BTreeMap<String, u64>, name: &str) {
    *names.entry(name.to_owned()).or_insert(0) += 1;
}
