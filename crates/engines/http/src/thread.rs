//! The loop of a thread.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    sync::Arc,
};

use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send, sockopt},
    time::{ClockId, Timespec, clock_gettime},
};
use rustls::{ClientConfig, HandshakeKind};
use wb_http1::{Interim, Progress, Read, Reader, Sink};
use wb_measure::Histogram;
use wb_model::{Lateness, Turns, http::HttpTotals, lateness::LATE_NS};

use crate::{
    Live, Load, ThreadTask,
    account::{CallOutcome, Cause, Outcome, RATE_INTERVAL_NS, STATUSES},
    connection::{Asked, Connection, State, begin},
    judge::{Judge, Kept},
    schedule::Schedule,
    set::only_fixed,
};

/// Events taken from the kernel at a time: few enough that a turn is no stall.
const EVENTS: usize = 64;
/// What a call to receive may bring.
const BUFFER: usize = 64 * 1024;
/// Nobody waits longer than this before it looks whether it is to stop.
const LOOK_NS: u64 = 50_000_000;
/// How often others are told how it goes.
const TELL_NS: u64 = 20_000_000;
/// Connections that are being made at a time.
const CONNECTING: usize = 512;
/// A server that cannot be reached is tried again after this, and after twice as long each time.
const BACKOFF_NS: u64 = 1_000_000;
const LONGEST_BACKOFF_NS: u64 = 1_000_000_000;

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    // Neither is negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn now() -> u64 {
    clock(ClockId::Monotonic)
}

/// What is done with the pieces of an answer.
struct Pieces<'a> {
    bytes: &'a mut u64,
    kept: Option<&'a mut Kept>,
}

impl Sink for Pieces<'_> {
    #[inline]
    fn head(&mut self, bytes: &[u8]) {
        if let Some(kept) = &mut self.kept {
            kept.head.extend_from_slice(bytes);
        }
    }

    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        *self.bytes += bytes.len() as u64;
        if let Some(kept) = &mut self.kept {
            kept.body.extend_from_slice(bytes);
        }
    }

    #[inline]
    fn interim(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
    }
}

/// What a connection's turn led to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    On,
    /// It has no socket any more.
    Ended,
}

struct Thread<'a> {
    load: &'a Load,
    task: ThreadTask,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Those not yet begun: from here on.
    begun: usize,
    connecting: usize,
    /// Connections begun so far, also those that replaced others.
    numbers: u64,
    reader: Reader,
    judge: Judge,
    keeps: bool,
    tls: Option<Arc<ClientConfig>>,
    schedule: Option<Schedule>,
    /// Connections that wait for a request that is due.
    idle: VecDeque<usize>,
    /// What happens to connections later: when, which, and its number then.
    timers: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// Requests still to be sent.
    budget: u64,
    credit: Vec<i64>,
    /// The next line of the data file.
    line: u64,
    /// What the script sends again and again, and how many requests that is.
    batch: Option<Vec<u8>>,
    batch_len: usize,
    warm_until: u64,
    end: u64,
    /// Nothing new is asked any more.
    closing: bool,
    give_up: u64,
    in_flight: u64,
    next_scan: u64,
    next_tell: u64,
    rate_since: u64,
    rate_responses: u64,
    latency_ns: u64,
    answers: u64,
    turns: Turns,
    statuses: Box<[u64; STATUSES]>,
    out: Outcome,
}

/// Carries out the part of one thread, and returns what it measured.
#[must_use]
pub fn run(load: &Load, task: ThreadTask) -> Outcome {
    match Thread::new(load, task) {
        Ok(mut thread) => {
            thread.work();
            thread.finish()
        }
        Err(why) => Outcome {
            error: Some(format!("epoll: {why}")),
            ..Outcome::new(load)
        },
    }
}

impl Outcome {
    fn new(load: &Load) -> Self {
        let job = &load.job;
        Self {
            totals: HttpTotals::default(),
            in_time: HttpTotals::default(),
            duration_ns: 0,
            latency: Histogram::new(),
            service: (!job.rate.is_empty()).then(Histogram::new),
            first_byte: Histogram::new(),
            connect: Histogram::new(),
            handshake: Histogram::new(),
            statuses: BTreeMap::new(),
            calls: match load.set.calls.len() {
                1 => Vec::new(),
                n => (0..n).map(|_| CallOutcome::default()).collect(),
            },
            agreed: BTreeMap::new(),
            handshakes: (0, 0),
            digests: BTreeSet::new(),
            first_failure: None,
            error: None,
            cpu_ns: 0,
            lateness: Lateness::default(),
            exact: job.as_wrk.then(Box::default),
        }
    }
}

impl<'a> Thread<'a> {
    fn new(load: &'a Load, task: ThreadTask) -> Result<Self, Errno> {
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
        let end = job
            .ends_after()
            .map_or(u64::MAX, |after| start.saturating_add(after.as_nanos()));
        Ok(Self {
            epoll,
            connections: (0..load.connections(task.index))
                .map(|_| Connection::new(job.pipeline as usize))
                .collect(),
            begun: 0,
            connecting: 0,
            numbers: index,
            reader: Reader::responses(match job.as_wrk {
                true => Interim::Messages,
                false => Interim::Skipped,
            }),
            keeps: judge.looks() || job.digest || sees,
            judge,
            tls: load.tls.as_ref().map(|tls| tls.of_thread(job.tls.resume)),
            schedule: (!job.rate.is_empty()).then(|| {
                let place = (task.index, job.threads);
                Schedule::new(&job.rate, job.arrivals, load.seed, place)
            }),
            idle: VecDeque::new(),
            timers: BinaryHeap::new(),
            budget: job
                .amount
                .map_or(u64::MAX, |n| n / threads + u64::from(index < n % threads)),
            credit: vec![0; load.set.calls.len()],
            line: index,
            batch_len: 0,
            batch,
            warm_until: start.saturating_add(job.warm_up.as_nanos()),
            end,
            closing: false,
            give_up: u64::MAX,
            in_flight: 0,
            next_scan: start,
            next_tell: start,
            rate_since: start,
            rate_responses: 0,
            latency_ns: 0,
            answers: 0,
            turns: Turns::default(),
            statuses: Box::new([0; STATUSES]),
            out: Outcome::new(load),
            load,
            task,
        })
    }

    fn work(&mut self) {
        // Without it sleeps end up to 50 us late (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut buffer = vec![0_u8; BUFFER];
        let mut plain = vec![0_u8; if self.tls.is_some() { BUFFER } else { 0 }];
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        self.turns.first_due(self.task.start_ns);
        if !self.wait_for_start() {
            return;
        }
        loop {
            let now = now();
            let away = self.turns.begin(now);
            let stalled = self.out.lateness.away(away) && away > LATE_NS;
            if stalled && away >= self.exposing() {
                let open = self.connections.iter().filter(|c| c.state == State::Open);
                self.out.lateness.exposed_connections += open.count() as u64;
            }
            self.look_at_the_time(now);
            if self.over(now) {
                return;
            }
            self.begin_more(now);
            self.fire(now);
            let sent = self.send_what_is_due(now);
            if stalled {
                self.out.lateness.made_up(sent);
            }
            if self.next_scan <= now {
                self.scan(now);
            }
            let until = self.next_look(now);
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: until.saturating_sub(now).min(999_999_999) as _,
            };
            self.turns.sleep_until(until);
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(why) => {
                    self.out.error = Some(format!("epoll: {why}"));
                    return;
                }
            }
            for event in &events {
                let index = event.data.u64() as usize;
                self.handle(index, event.flags, &mut buffer, &mut plain);
            }
        }
    }

    /// Returns whether it comes to a start at all.
    fn wait_for_start(&self) -> bool {
        loop {
            if self.task.control.wish() > 0 {
                return false;
            }
            let left = self.task.start_ns.saturating_sub(now()).min(LOOK_NS);
            if left == 0 {
                return true;
            }
            std::thread::sleep(std::time::Duration::from_nanos(left));
        }
    }

    /// Who is away for so long may cost connections their lives.
    fn exposing(&self) -> u64 {
        (self.load.job.timeout.as_nanos() / 2).clamp(1, 100_000_000)
    }

    fn look_at_the_time(&mut self, now: u64) {
        let wish = self.task.control.wish();
        let stopped = self.task.script.as_ref().is_some_and(|s| s.stopped());
        let spent = self.budget == 0 && self.in_flight == 0 && self.nothing_waits();
        if !self.closing
            && (now >= self.end || wish > 0 || stopped || spent || self.out.error.is_some())
        {
            self.closing = true;
            let until = now.min(self.end);
            self.out.duration_ns = until.saturating_sub(self.warm_until);
            self.out.in_time = self.out.totals;
            let patience = match self.load.job.as_wrk {
                true => 0,
                false => self.load.job.timeout.as_nanos(),
            };
            self.give_up = now.saturating_add(patience);
            if let Some(schedule) = &mut self.schedule {
                // What was due and found no connection.
                while schedule.due() < until.saturating_sub(self.task.start_ns) {
                    self.out.totals.unsent += 1;
                    schedule.take();
                }
            }
        }
        if now >= self.rate_since + RATE_INTERVAL_NS && self.out.exact.is_some() {
            self.sample_rate(now);
        }
        if now >= self.next_tell {
            self.next_tell = now + TELL_NS;
            self.tell();
        }
    }

    /// With a count of requests: whether all connections have had their turn.
    fn nothing_waits(&self) -> bool {
        self.connecting == 0 || self.budget == 0
    }

    fn tell(&self) {
        self.task.control.tell(Live {
            totals: self.out.totals,
            latency_ns: self.latency_ns,
            answers: self.answers,
            draining: self.closing,
        });
    }

    /// As wrk does: no sample while nothing comes.
    fn sample_rate(&mut self, now: u64) {
        let elapsed_ms = (now - self.rate_since) / 1_000_000;
        if let Some(exact) = &mut self.out.exact
            && self.rate_responses > 0
        {
            exact
                .rates
                .push(self.rate_responses * 1000 / elapsed_ms.max(1));
            self.rate_responses = 0;
            self.rate_since = now;
        }
    }

    fn over(&self, now: u64) -> bool {
        self.closing
            && (self.in_flight == 0
                || now >= self.give_up
                || self.task.control.wish() > 1
                || self.out.error.is_some())
    }

    /// When there is something to do at the latest.
    fn next_look(&self, now: u64) -> u64 {
        let mut until = (now + LOOK_NS).min(self.next_scan).min(self.give_up);
        if !self.closing {
            until = until.min(self.end);
            if let (Some(schedule), false) = (&self.schedule, self.idle.is_empty()) {
                until = until.min(self.task.start_ns.saturating_add(schedule.due()));
            }
            if let Some(Reverse((at, ..))) = self.timers.peek() {
                until = until.min(*at);
            }
        }
        until.max(now)
    }

    /// Begins connections that have not been begun, some at a time: those that a server has no room for in its
    /// queue would cost a second each.
    fn begin_more(&mut self, now: u64) {
        while self.begun < self.connections.len()
            && !self.closing
            && (self.connecting < CONNECTING || self.load.job.as_wrk)
        {
            let index = self.begun;
            self.begun += 1;
            self.connect(index, now);
        }
    }

    fn connect(&mut self, index: usize, now: u64) {
        let number = self.numbers;
        self.numbers += u64::from(self.load.job.threads);
        self.out.totals.attempted_connections += 1;
        let address = self.task.script.as_ref().and_then(|s| s.address());
        let begun = begin(self.load, address, number).and_then(|socket| {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(
                &self.epoll,
                &socket,
                EventData::new_u64(index as u64),
                flags,
            )?;
            Ok(socket)
        });
        let connection = &mut self.connections[index];
        connection.number = number;
        connection.since_ns = now;
        match begun {
            Ok(socket) => {
                connection.socket = Some(socket);
                connection.state = State::Connecting;
                self.connecting += 1;
            }
            Err(why) => {
                if let Some(exact) = &mut self.out.exact {
                    exact.errors[0] += 1;
                }
                Cause::of(why).count(&mut self.out.totals.refused_connections, 1);
                self.complain(|| format!("no connection: {why}"));
                self.retry(index, now);
            }
        }
    }

    /// Tries again after a while that grows.
    fn retry(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        connection.clear();
        connection.backoff_ns = (connection.backoff_ns * 2).clamp(BACKOFF_NS, LONGEST_BACKOFF_NS);
        let at = now + connection.backoff_ns;
        self.timers.push(Reverse((at, index, connection.number)));
    }

    /// What was put off and is due now.
    fn fire(&mut self, now: u64) {
        while let Some(Reverse((at, index, number))) = self.timers.peek().copied()
            && at <= now
            && !self.closing
        {
            self.timers.pop();
            let connection = &self.connections[index];
            if connection.number != number {
                continue;
            }
            match connection.state {
                State::Without if self.budget > 0 => self.connect(index, now),
                State::Open if connection.asked.is_empty() => self.ask(index, at, now),
                _ => {}
            }
        }
    }

    /// Sends requests whose time has come over connections that wait for them. Returns how many.
    fn send_what_is_due(&mut self, now: u64) -> u64 {
        let mut sent = 0;
        if self.closing {
            return sent;
        }
        let patience = self.load.job.patience.map(|p| p.as_nanos());
        while let Some(schedule) = &mut self.schedule
            && self.budget > 0
        {
            let due = self.task.start_ns.saturating_add(schedule.due());
            if due > now {
                break;
            }
            if patience.is_some_and(|patience| now - due > patience) {
                schedule.take();
                if now >= self.warm_until {
                    self.out.totals.unsent += 1;
                }
                continue;
            }
            let Some(index) = self.idle.pop_front() else {
                break;
            };
            let connection = &mut self.connections[index];
            if !std::mem::take(&mut connection.idle) || connection.state != State::Open {
                continue;
            }
            schedule.take();
            self.ask(index, due, now);
            sent += 1;
        }
        sent
    }

    /// A connection can take a request: sends one if it may, else lets it wait.
    fn next(&mut self, index: usize, now: u64) {
        if self.closing {
            return;
        }
        if self.schedule.is_some() {
            let connection = &mut self.connections[index];
            if !connection.idle {
                connection.idle = true;
                self.idle.push_back(index);
            }
            return;
        }
        if let Some(script) = &mut self.task.script
            && script.delays()
        {
            match script.delay_ms() {
                Ok(0) => {}
                Ok(ms) => {
                    let at = now.saturating_add(ms.saturating_mul(1_000_000));
                    let number = self.connections[index].number;
                    self.timers.push(Reverse((at, index, number)));
                    return;
                }
                Err(why) => return self.give_up_for(why.to_string()),
            }
        }
        self.ask(index, now, now);
    }

    fn give_up_for(&mut self, why: String) {
        self.out.error.get_or_insert(why);
    }

    /// Sends the next request over a connection, or as many as it may have under way.
    fn ask(&mut self, index: usize, due: u64, now: u64) {
        let job = &self.load.job;
        let room = |connection: &Connection, budget: u64| {
            let last = match job.per_connection {
                0 => u32::MAX,
                n => n.saturating_sub(connection.requests),
            };
            let free = (job.pipeline as usize).saturating_sub(connection.asked.len());
            u64::from(last).min(free as u64).min(budget)
        };
        if let Some(script) = &mut self.task.script {
            let connection = &mut self.connections[index];
            if self.budget == 0 {
                return;
            }
            connection.out.clear();
            connection.out_at = 0;
            match &self.batch {
                Some(batch) => connection.out.extend_from_slice(batch),
                None => {
                    if let Err(why) = script.request(&mut connection.out) {
                        return self.give_up_for(why.to_string());
                    }
                }
            }
            if self.batch_len == 0 {
                // As wrk does: what the first text holds, all hold.
                let asked = wb_http1::requests(&connection.out);
                self.batch_len = asked.map_or(1, |asked| asked.len().max(1));
            }
            let head = connection.out.starts_with(b"HEAD ");
            for _ in 0..self.batch_len {
                self.note(index, due, now, 0, head);
            }
            return self.flush(index, now);
        }
        let mut due = due;
        let mut wrote = false;
        while room(&self.connections[index], self.budget) > 0 {
            let connection = &mut self.connections[index];
            match &self.batch {
                // The usual case: nothing to copy.
                Some(fixed)
                    if !wrote
                        && connection.out.is_empty()
                        && connection.tls.is_none()
                        && job.pipeline == 1 =>
                {
                    let (len, head) = (fixed.len(), self.load.set.calls[0].head);
                    self.note(index, due, now, 0, head);
                    return self.send_fixed(index, now, len);
                }
                Some(fixed) => {
                    connection.out.extend_from_slice(fixed);
                    let head = self.load.set.calls[0].head;
                    self.note(index, due, now, 0, head);
                }
                None => {
                    let call = self.load.set.choose(&mut self.credit);
                    self.load.set.write(call, self.line, &mut connection.out);
                    self.line += u64::from(job.threads);
                    let head = self.load.set.calls[call].head;
                    self.note(index, due, now, call as u32, head);
                }
            }
            wrote = true;
            // With a schedule each has a time of its own.
            if let Some(schedule) = &mut self.schedule {
                let next = self.task.start_ns.saturating_add(schedule.due());
                if next > now {
                    break;
                }
                if room(&self.connections[index], self.budget) > 0 {
                    schedule.take();
                    due = next;
                }
            }
        }
        if wrote {
            self.flush(index, now);
        }
        if self.schedule.is_some() && room(&self.connections[index], self.budget) > 0 {
            self.next(index, now);
        }
    }

    /// Counts a request as sent.
    fn note(&mut self, index: usize, due_ns: u64, now: u64, call: u32, head: bool) {
        let connection = &mut self.connections[index];
        // By when it is sent: behind a server that is too slow, all that is sent for long was due in the warm-up.
        let warm_up = now < self.warm_until;
        if connection.asked.is_empty() {
            connection.progress = Progress::NEW;
            connection.progress.expect(head);
        }
        connection.asked.push_back(Asked {
            due_ns,
            sent_ns: now,
            first_ns: 0,
            call,
            head,
            warm_up,
        });
        connection.requests += 1;
        self.budget = self.budget.saturating_sub(1);
        self.in_flight += 1;
        match warm_up {
            true => self.out.totals.warm_up += 1,
            false => {
                self.out.totals.sent += 1;
                if let Some(one) = self.out.calls.get_mut(call as usize) {
                    one.sent += 1;
                }
            }
        }
    }

    fn send_fixed(&mut self, index: usize, now: u64, len: usize) {
        let (connection, Some(fixed)) = (&mut self.connections[index], &self.batch) else {
            return;
        };
        let Some(socket) = &connection.socket else {
            return;
        };
        match send(socket, fixed, SendFlags::NOSIGNAL) {
            Ok(n) => {
                self.out.totals.sent_bytes += n as u64;
                if n < len {
                    connection.out.extend_from_slice(&fixed[n..]);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => connection.out.extend_from_slice(fixed),
            Err(why) => self.broken_write(index, why, now),
        }
    }

    fn broken_write(&mut self, index: usize, why: Errno, now: u64) {
        if let Some(exact) = &mut self.out.exact {
            exact.errors[2] += 1;
        }
        self.fail(index, Cause::of(why), now);
    }

    /// Hands over what waits.
    fn flush(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let Some(socket) = &connection.socket else {
            return;
        };
        if let Some(tls) = &mut connection.tls {
            if connection.out_at < connection.out.len() && connection.state == State::Open {
                let text = &connection.out[connection.out_at..];
                self.out.totals.sent_bytes += text.len() as u64;
                // It takes all; its buffer has no limit.
                let _ = tls.writer().write_all(text);
                connection.out.clear();
                connection.out_at = 0;
            }
            while tls.wants_write() {
                match tls.write_tls(&mut To(socket)) {
                    Ok(_) => {}
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                    Err(e) => {
                        let why = e.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
                        return self.broken_write(index, why, now);
                    }
                }
            }
            return;
        }
        while connection.out_at < connection.out.len() {
            match send(
                socket,
                &connection.out[connection.out_at..],
                SendFlags::NOSIGNAL,
            ) {
                Ok(n) => {
                    connection.out_at += n;
                    self.out.totals.sent_bytes += n as u64;
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(why) => return self.broken_write(index, why, now),
            }
        }
        connection.out.clear();
        connection.out_at = 0;
    }

    fn handle(&mut self, index: usize, flags: EventFlags, buffer: &mut [u8], plain: &mut [u8]) {
        let now = now();
        if self.connections[index].state == State::Connecting {
            if self.connected(index, flags, now) == Goes::Ended {
                return;
            }
        } else if flags.contains(EventFlags::OUT) && self.connections[index].has_output() {
            self.flush(index, now);
        }
        let readable = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(readable) {
            let ends = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            self.receive(index, ends, buffer, plain);
        }
    }

    /// TCP is done, one way or the other.
    fn connected(&mut self, index: usize, flags: EventFlags, now: u64) -> Goes {
        if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            let socket = self.connections[index].socket.as_ref();
            let why = match socket.map(sockopt::socket_error) {
                Some(Ok(Err(why)) | Err(why)) => why,
                _ => Errno::CONNRESET,
            };
            self.complain(|| format!("no connection: {why}"));
            self.fail(index, Cause::of(why), now);
            return Goes::Ended;
        }
        if !flags.contains(EventFlags::OUT) {
            return Goes::On;
        }
        let connection = &mut self.connections[index];
        self.out
            .connect
            .record(now.saturating_sub(connection.since_ns));
        connection.since_ns = now;
        let (Some(tls), Some(config)) = (&self.load.tls, &self.tls) else {
            self.ready(index, now);
            return Goes::On;
        };
        match tls.connect(config) {
            Ok(session) => {
                connection.tls = Some(Box::new(session));
                connection.state = State::Handshake;
                self.flush(index, now);
                Goes::On
            }
            Err(_) => {
                self.fail(index, Cause::Tls, now);
                Goes::Ended
            }
        }
    }

    /// Requests may go over it.
    fn ready(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        connection.state = State::Open;
        connection.backoff_ns = 0;
        self.connecting -= 1;
        self.out.totals.established_connections += 1;
        if self.keeps && connection.kept.is_none() {
            connection.kept = Some(Box::default());
        }
        self.next(index, now);
    }

    fn receive(&mut self, index: usize, ends: bool, buffer: &mut [u8], plain: &mut [u8]) {
        loop {
            let number = self.connections[index].number;
            let Some(socket) = &self.connections[index].socket else {
                return;
            };
            match recv(socket, &mut *buffer, RecvFlags::empty()) {
                Ok((_, 0)) => return self.ended(index),
                Ok((_, n)) => {
                    let goes = match self.connections[index].tls {
                        Some(_) => self.decrypt(index, &buffer[..n], plain),
                        None => self.read(index, &buffer[..n]),
                    };
                    let gone = goes == Goes::Ended || self.connections[index].number != number;
                    // Less than there was room for: there is no more, unless its end.
                    if gone || n < buffer.len() && !ends {
                        return;
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(why) => {
                    self.wrk_read_error();
                    return self.fail(index, Cause::of(why), now());
                }
            }
        }
    }

    fn wrk_read_error(&mut self) {
        if let Some(exact) = &mut self.out.exact {
            exact.errors[1] += 1;
        }
    }

    fn decrypt(&mut self, index: usize, mut bytes: &[u8], plain: &mut [u8]) -> Goes {
        let number = self.connections[index].number;
        while !bytes.is_empty() {
            let connection = &mut self.connections[index];
            let Some(tls) = &mut connection.tls else {
                return Goes::Ended;
            };
            let taken = tls.read_tls(&mut bytes);
            let state = match taken.map(|_| tls.process_new_packets()) {
                Ok(Ok(state)) => state,
                bad => {
                    if let Ok(Err(why)) = bad {
                        self.complain(|| format!("TLS: {why}"));
                    }
                    // The alert that says why goes out if it can.
                    self.flush(index, now());
                    if self.connections[index].number == number
                        && self.connections[index].socket.is_some()
                    {
                        match self.connections[index].state {
                            State::Open => self.wrk_read_error(),
                            _ => self.wrk_connect_error(),
                        }
                        self.fail(index, Cause::Tls, now());
                    }
                    return Goes::Ended;
                }
            };
            if tls.wants_write() {
                self.flush(index, now());
            }
            if self.agreed(index) == Goes::Ended {
                return Goes::Ended;
            }
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let Some(tls) = &mut self.connections[index].tls else {
                    return Goes::Ended;
                };
                let Ok(n) = tls.reader().read(plain) else {
                    break;
                };
                left -= n.min(left);
                let goes = self.read(index, &plain[..n]);
                if goes == Goes::Ended || self.connections[index].number != number || n == 0 {
                    return goes;
                }
            }
        }
        Goes::On
    }

    fn wrk_connect_error(&mut self) {
        if let Some(exact) = &mut self.out.exact {
            exact.errors[0] += 1;
        }
    }

    /// Looks whether the handshake is over.
    fn agreed(&mut self, index: usize) -> Goes {
        let connection = &mut self.connections[index];
        let Some(tls) = &connection.tls else {
            return Goes::Ended;
        };
        if connection.state != State::Handshake || tls.is_handshaking() {
            return Goes::On;
        }
        let now = now();
        self.out
            .handshake
            .record(now.saturating_sub(connection.since_ns));
        match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => self.out.handshakes.1 += 1,
            _ => self.out.handshakes.0 += 1,
        }
        let version = tls.protocol_version().and_then(|v| v.as_str());
        let suite = tls
            .negotiated_cipher_suite()
            .and_then(|s| s.suite().as_str());
        let name = (version.unwrap_or("?"), suite.unwrap_or("?"));
        match self
            .out
            .agreed
            .iter_mut()
            .find(|(k, _)| k.split_once(' ') == Some(name))
        {
            Some((_, n)) => *n += 1,
            None => {
                self.out.agreed.insert(format!("{} {}", name.0, name.1), 1);
            }
        }
        self.ready(index, now);
        match self.connections[index].socket {
            Some(_) => Goes::On,
            None => Goes::Ended,
        }
    }

    /// Reads answers out of what came.
    fn read(&mut self, index: usize, mut bytes: &[u8]) -> Goes {
        let number = self.connections[index].number;
        let all = bytes.len() as u64;
        self.out.totals.received_bytes += all;
        if let Some(exact) = &mut self.out.exact {
            exact.bytes += all;
        }
        let now = now();
        while !bytes.is_empty() {
            let connection = &mut self.connections[index];
            let Some(front) = connection.asked.front_mut() else {
                // Nobody has asked for this.
                self.wrk_read_error();
                self.complain(|| "the server sent what nobody had asked for".to_owned());
                self.fail(index, Cause::Malformed, now);
                return Goes::Ended;
            };
            if front.first_ns == 0 {
                front.first_ns = now;
            }
            let mut pieces = Pieces {
                bytes: &mut self.out.totals.body_bytes,
                kept: connection.kept.as_deref_mut(),
            };
            match self
                .reader
                .read_with(&mut connection.progress, bytes, &mut pieces)
            {
                Read::More => break,
                Read::Message { used, status, end } => {
                    bytes = &bytes[used..];
                    if status < 200 && status != 101 {
                        // Interim, and told because wrk counts it.
                        self.count_exact(status, None);
                        continue;
                    }
                    self.completed(index, status, now);
                    if self.connections[index].number != number {
                        return Goes::Ended;
                    }
                    let connection = &mut self.connections[index];
                    let job = &self.load.job;
                    let last = job.per_connection > 0 && connection.requests >= job.per_connection;
                    if end.close || last && connection.asked.is_empty() {
                        self.close(index, now);
                        return Goes::Ended;
                    }
                    self.goes_on(index, now);
                    if self.connections[index].number != number
                        || self.connections[index].socket.is_none()
                    {
                        return Goes::Ended;
                    }
                }
                Read::Expects { used } => bytes = &bytes[used..],
                Read::Bad => {
                    self.wrk_read_error();
                    let begin = bytes[..bytes.len().min(40)].to_vec();
                    self.complain(|| {
                        format!(
                            "the answer is no HTTP: {:?}",
                            String::from_utf8_lossy(&begin)
                        )
                    });
                    self.fail(index, Cause::Malformed, now);
                    return Goes::Ended;
                }
            }
        }
        Goes::On
    }

    /// After an answer: the next request, if there is room.
    fn goes_on(&mut self, index: usize, now: u64) {
        let connection = &self.connections[index];
        if connection.asked.is_empty() || self.task.script.is_none() {
            self.next(index, now);
        }
    }

    #[cold]
    fn complain(&mut self, what: impl FnOnce() -> String) {
        if self.out.first_failure.is_none() {
            self.out.first_failure = Some(what());
        }
    }

    /// As wrk counts an answer; a time only of the last of a batch.
    fn count_exact(&mut self, status: u16, ns: Option<u64>) {
        let Some(exact) = &mut self.out.exact else {
            return;
        };
        exact.responses += 1;
        self.rate_responses += 1;
        exact.status_errors += u64::from(status > 399);
        if let Some(ns) = ns {
            let us = ns / 1000;
            if us > self.load.job.timeout.as_nanos() / 1000 {
                exact.timeouts += 1;
                return;
            }
            let at = us as usize;
            if at >= exact.latency_us.len() {
                // Grows with the longest time, by doubling.
                exact.latency_us.resize((at + 1).next_power_of_two(), 0);
            }
            exact.latency_us[at] += 1;
        }
    }

    /// An answer is whole.
    fn completed(&mut self, index: usize, status: u16, now: u64) {
        let connection = &mut self.connections[index];
        let Some(asked) = connection.asked.pop_front() else {
            return;
        };
        connection.progress = Progress::NEW;
        if let Some(next) = connection.asked.front() {
            connection.progress.expect(next.head);
        }
        self.in_flight -= 1;
        let last = connection.asked.is_empty();
        let latency = now.saturating_sub(asked.due_ns);
        let fault = self.judge.fault(status, connection.kept.as_deref());
        if let Some(kept) = &mut connection.kept {
            if self.load.job.digest {
                let digest = ring::digest::digest(&ring::digest::SHA256, &kept.body);
                if let Ok(digest) = digest.as_ref().try_into() {
                    self.out.digests.insert((asked.call as usize, digest));
                }
            }
            if let Some(script) = &mut self.task.script
                && script.wants_responses()
                && let Err(why) = script.response(status, &kept.head, &kept.body)
            {
                self.out.error.get_or_insert_with(|| why.to_string());
            }
            kept.clear();
        }
        self.count_exact(status, last.then_some(now.saturating_sub(asked.sent_ns)));
        self.latency_ns += latency;
        self.answers += 1;
        if asked.warm_up {
            return;
        }
        if let Some(fault) = fault {
            let name = self
                .load
                .set
                .calls
                .get(asked.call as usize)
                .map(|c| c.name.clone());
            self.complain(|| format!("{}: {fault}", name.unwrap_or_default()));
            Cause::Check.count(&mut self.out.totals.failed, 1);
            if let Some(one) = self.out.calls.get_mut(asked.call as usize) {
                one.failed += 1;
            }
            return;
        }
        self.out.totals.completed += 1;
        self.out.totals.error_responses += u64::from(status >= 400);
        if let Some(count) = self.statuses.get_mut(usize::from(status)) {
            *count += 1;
        }
        self.out.latency.record(latency);
        if let Some(service) = &mut self.out.service {
            service.record(now.saturating_sub(asked.sent_ns));
        }
        let first = if asked.first_ns == 0 {
            now
        } else {
            asked.first_ns
        };
        self.out
            .first_byte
            .record(first.saturating_sub(asked.sent_ns));
        if let Some(one) = self.out.calls.get_mut(asked.call as usize) {
            one.completed += 1;
            one.latency.record(latency);
        }
    }

    /// The server has ended it.
    fn ended(&mut self, index: usize) {
        let now = now();
        self.wrk_read_error();
        let connection = &self.connections[index];
        let whole = connection.progress.end();
        match (connection.state, connection.asked.is_empty(), whole) {
            (State::Open, true, _) => self.close(index, now),
            // Its end is that of the answer.
            (State::Open, false, Some(status)) => {
                self.completed(index, status, now);
                self.close(index, now);
            }
            _ => self.fail(index, Cause::Closed, now),
        }
    }

    /// Ends it in order, and begins another.
    fn close(&mut self, index: usize, now: u64) {
        self.drop_asked(index, Cause::Closed);
        self.out.totals.closed_connections += 1;
        self.connections[index].clear();
        self.again(index, now);
    }

    /// What was under way on it has failed.
    fn drop_asked(&mut self, index: usize, cause: Cause) {
        let connection = &mut self.connections[index];
        self.in_flight -= connection.asked.len() as u64;
        for asked in connection.asked.drain(..).filter(|asked| !asked.warm_up) {
            cause.count(&mut self.out.totals.failed, 1);
            if let Some(one) = self.out.calls.get_mut(asked.call as usize) {
                one.failed += 1;
            }
        }
    }

    fn again(&mut self, index: usize, now: u64) {
        if self.closing || self.budget == 0 {
            return;
        }
        self.connect(index, now);
    }

    /// It broke, or could not be made.
    fn fail(&mut self, index: usize, cause: Cause, now: u64) {
        let was = self.connections[index].state;
        let answered =
            self.connections[index].requests as usize > self.connections[index].asked.len();
        self.drop_asked(index, cause);
        match was {
            State::Without => return,
            State::Connecting | State::Handshake => {
                self.connecting -= 1;
                cause.count(&mut self.out.totals.refused_connections, 1);
            }
            State::Open => self.out.totals.broken_connections += 1,
        }
        self.connections[index].clear();
        match answered {
            // It has served before.
            true => self.again(index, now),
            false if !self.closing => self.retry(index, now),
            false => {}
        }
    }

    /// Looks for what takes too long.
    fn scan(&mut self, now: u64) {
        let timeout = self.load.job.timeout.as_nanos();
        self.next_scan = now + (timeout / 50).clamp(1_000_000, LOOK_NS);
        if self.load.job.as_wrk {
            return;
        }
        for index in 0..self.begun {
            let connection = &self.connections[index];
            let since = match connection.state {
                State::Without => continue,
                State::Connecting | State::Handshake => connection.since_ns,
                State::Open => match connection.asked.front() {
                    Some(asked) => asked.sent_ns,
                    None => continue,
                },
            };
            if now.saturating_sub(since) >= timeout {
                self.fail(index, Cause::Timeout, now);
            }
        }
    }

    fn finish(mut self) -> Outcome {
        let now = now();
        if !self.closing {
            self.closing = true;
            self.out.in_time = self.out.totals;
            self.out.duration_ns = now.min(self.end).saturating_sub(self.warm_until);
        }
        if self.out.exact.is_some() {
            self.sample_rate(now);
        }
        for connection in &self.connections {
            match connection.state {
                State::Without => {}
                State::Connecting | State::Handshake => self.out.totals.connecting += 1,
                State::Open => self.out.totals.open_connections += 1,
            }
            let left = connection.asked.iter().filter(|asked| !asked.warm_up);
            self.out.totals.in_flight += left.count() as u64;
        }
        let statuses = self.statuses.iter().enumerate().filter(|(_, n)| **n > 0);
        self.out.statuses = statuses.map(|(s, n)| (s as u16, *n)).collect();
        self.out.cpu_ns = clock(ClockId::ThreadCPUTime);
        self.tell();
        self.out
    }
}

/// What TLS writes to.
struct To<'a>(&'a OwnedFd);

impl std::io::Write for To<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
