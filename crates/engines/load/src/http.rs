//! HTTP over our own TCP: requests, their schedule and their results.
//!
//! A job's requests are a [mix](wb_tcp::WeightedRequest) of the machine, which selects among them. With a rate they are due by a
//! [`Schedule`] of the worker. A due request waits for an idle connection, and this wait is part of its latency. The
//! [`HttpAccount`] records each request when it is sent and when it ends: `sent = completed + failed by cause + in flight`.
//! Requests in flight at the end are counted per connection, so that the sum is a real check. The sending time decides
//! if a request belongs to the warm-up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use wb_http1::{Version, request};
use wb_measure::Histogram;
use wb_model::http::{HttpCall, HttpFailures, HttpJob, HttpTotals, HttpUrl, Judge, Schedule, Seen};
use wb_tcp::{Cause, Counters, Exchange, Message, WeightedRequest};

use crate::shared::LiveTimes;

/// Statuses have three digits.
const STATUSES: usize = 1000;
/// Classes have one digit.
const CLASSES: usize = 10;
/// Delay before the first retry of a failed connection, doubled up to the longest one, ns.
const FIRST_PAUSE_NS: u64 = 1_000_000;
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;

/// Requests shared by all workers of a job.
#[derive(Debug)]
pub struct HttpTask {
    /// Names of the requests in the report, in their order.
    pub names: Vec<String>,
    /// The plan's job.
    pub job: HttpJob,
    pub(crate) judge: Judge,
    pub(crate) asks: Vec<WeightedRequest>,
    seed: u64,
}

impl HttpTask {
    /// Builds the requests of a job. `read` returns the contents of a file.
    ///
    /// # Errors
    /// Fails for a file that cannot be read, or a request that cannot be encoded.
    pub fn new(
        job: &HttpJob,
        seed: u64,
        read: impl Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Self, String> {
        let url: HttpUrl = job.url.parse()?;
        let only = [HttpCall::default()];
        let calls = match job.requests.is_empty() {
            true => &only[..],
            false => &job.requests,
        };
        let (mut names, mut asks) = (Vec::new(), Vec::new());
        for call in calls {
            let path = match call.path.is_empty() {
                true => &url.target,
                false => &call.path,
            };
            let body = match &call.body_file {
                Some(file) => read(file)?,
                None => call.body.clone().into_bytes(),
            };
            let text = request_bytes(call, job, path, &url.authority(), &body)?;
            asks.push(WeightedRequest {
                message: Message::bytes(&text),
                weight: call.weight,
                head: call.method == "HEAD",
            });
            names.push(match call.name.is_empty() {
                true => format!("{} {path}", call.method),
                false => call.name.clone(),
            });
        }
        Ok(Self {
            names,
            job: job.clone(),
            judge: Judge::new(&job.check),
            asks,
            seed,
        })
    }
}

/// A request in wire format.
fn request_bytes(
    call: &HttpCall,
    job: &HttpJob,
    path: &str,
    host: &str,
    body: &[u8],
) -> Result<Vec<u8>, String> {
    let split = |header: &String| {
        let (name, value) = header.split_once(':').unwrap_or((header, ""));
        (name.to_owned(), value.trim().to_owned())
    };
    let own: Vec<(String, String)> = call.headers.iter().map(split).collect();
    let has = |all: &[(String, String)], name: &str| {
        all.iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
    };
    let mut headers: Vec<_> = job.headers.iter().map(split).collect();
    headers.retain(|(name, _)| !has(&own, name));
    headers.extend(own);
    if !has(&headers, "host") {
        headers.insert(0, ("Host".to_owned(), host.to_owned()));
    }
    if job.per_connection == 1 && !has(&headers, "connection") {
        headers.push(("Connection".to_owned(), "close".to_owned()));
    }
    let has_body = !body.is_empty() || matches!(call.method.as_str(), "POST" | "PUT" | "PATCH");
    let body = has_body.then_some(body);
    request(&call.method, path, Version::New, &headers, body).map_err(|e| e.to_string())
}

/// HTTP state of a worker in addition to the machine.
#[derive(Debug)]
pub(crate) struct HttpRequestSchedule {
    schedule: Option<Schedule>,
    patience: Option<u64>,
    /// Last time with an established connection, ns since the start, and the allowed time without one.
    reached: u64,
    deserted_after: Option<u64>,
    /// Start of the worker's last stall, and the time until which requests delayed by it should have been sent.
    pub(crate) behind: Option<(u64, u64)>,
    /// Number of requests unsent because of it.
    missed: u64,
    pub(crate) warm_up: u64,
    /// Due times of requests not yet sent, ns since the start: as many as are sent together.
    owed: VecDeque<u64>,
    most: usize,
    late: Vec<u64>,
    /// No connection is opened before this time, because the server was unreachable.
    held_until: u64,
    pause: u64,
    failed_seen: u64,
    refused_seen: u64,
    answers_seen: u64,
}

impl HttpRequestSchedule {
    pub(crate) fn new(task: &HttpTask, worker: u32, workers: u32) -> Self {
        let job = &task.job;
        Self {
            schedule: (!job.rate.is_empty())
                .then(|| Schedule::new(&job.rate, job.arrivals, task.seed, (worker, workers))),
            patience: job.patience.map(|patience| patience.as_nanos()),
            reached: 0,
            deserted_after: job.deserted_after().map(|time| time.as_nanos()),
            behind: None,
            missed: 0,
            warm_up: job.warm_up.as_nanos(),
            owed: VecDeque::new(),
            most: job.pipeline.max(1) as usize,
            late: Vec::new(),
            held_until: 0,
            pause: 0,
            failed_seen: 0,
            refused_seen: 0,
            answers_seen: 0,
        }
    }

    /// Returns true if requests are due by a schedule.
    pub(crate) fn has_schedule(&self) -> bool {
        self.schedule.is_some()
    }

    /// Returns true if the server is given up, with this number of established connections.
    pub(crate) fn is_deserted(&mut self, at: u64, established: u64) -> bool {
        if established > 0 {
            self.reached = at;
        }
        let most = self.deserted_after;
        most.is_some_and(|most| at.saturating_sub(self.reached) >= most)
    }

    /// Lateness of the requests due by `at` and before `end`, at most as many as are sent together. Counts requests
    /// that have waited too long as unsent.
    pub(crate) fn due_requests(&mut self, at: u64, end: u64, unsent: &mut u64) -> &[u64] {
        let Some(schedule) = &mut self.schedule else {
            return &[];
        };
        loop {
            while self.owed.len() < self.most && schedule.due() <= at && schedule.due() < end {
                self.owed.push_back(schedule.due());
                schedule.take();
            }
            let Some(oldest) = self.owed.front() else {
                return &[];
            };
            if *oldest < self.warm_up && at >= self.warm_up {
                // As over sockets, requests due in the warm-up are sent in it or not at all.
                self.owed.pop_front();
                continue;
            }
            if self.patience.is_none_or(|patience| at - oldest <= patience) {
                break;
            }
            let given_up = oldest.saturating_add(self.patience.unwrap_or(0));
            self.owed.pop_front();
            if at >= self.warm_up {
                *unsent += 1;
                self.missed += u64::from(is_of(self.behind, given_up, at));
            }
        }
        self.late.clear();
        self.late.extend(self.owed.iter().map(|due| at - due));
        &self.late
    }

    /// Removes `n` requests that were sent.
    pub(crate) fn mark_sent(&mut self, n: usize) {
        self.owed.drain(..n);
    }

    /// Due time of the next request.
    pub(crate) fn next_due(&self) -> u64 {
        let next = self.schedule.as_ref().map_or(u64::MAX, Schedule::due);
        self.owed.front().copied().unwrap_or(next)
    }

    /// Nominal end of a count of answered requests: n requests take n gaps.
    pub(crate) fn nominal_end(&self, amount: u64) -> u64 {
        let due = self.schedule.as_ref().map(|s| s.nominal(amount));
        due.filter(|due| *due < u64::MAX).unwrap_or(0)
    }

    /// Ends the schedule. Returns the number of requests that were due by then and found no connection, at most `left`;
    /// after giving up a server, all of `left`. Counts each once.
    pub(crate) fn finish(&mut self, end: u64, left: u64) -> u64 {
        if self.is_deserted(end, 0) {
            (self.deserted_after, self.schedule) = (None, None);
            self.owed.clear();
            return left;
        }
        let mut unsent = 0;
        let mut owed = std::mem::take(&mut self.owed).into_iter();
        let mut schedule = self.schedule.take();
        let mut next = || {
            owed.next().or_else(|| {
                let schedule = schedule.as_mut().filter(|s| s.due() < end)?;
                let due = schedule.due();
                schedule.take();
                Some(due)
            })
        };
        while unsent < left
            && let Some(due) = next()
        {
            if due < self.warm_up {
                continue;
            }
            unsent += 1;
            self.missed += u64::from(is_of(self.behind, due, end));
        }
        unsent
    }

    /// Requests unsent because of stalls since the last call.
    pub(crate) fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// Returns true if connections may be opened now. After failed attempts there is an increasing delay, and after
    /// connections without an answer a short one.
    pub(crate) fn may_open(&mut self, now: u64, counters: &Counters) -> bool {
        if now < self.held_until {
            return false;
        }
        let (failed, answers) = (counters.failed(), counters.responses);
        let refused =
            counters.failed_connect_timeout + counters.failed_refused + counters.failed_unreachable;
        if failed > self.failed_seen {
            self.pause = match (answers > self.answers_seen, refused > self.refused_seen) {
                (true, _) => 0,
                (false, true) => (2 * self.pause).clamp(FIRST_PAUSE_NS, LONGEST_PAUSE_NS),
                (false, false) => FIRST_PAUSE_NS,
            };
            self.held_until = now + self.pause;
        }
        (self.failed_seen, self.refused_seen, self.answers_seen) = (failed, refused, answers);
        now >= self.held_until
    }
}

/// Returns true if the result of a request at `at` may be due to the stall: nothing that was over at `before` can be.
fn is_of(absence: Option<(u64, u64)>, before: u64, at: u64) -> bool {
    absence.is_some_and(|(from, until)| at <= until && before >= from)
}

/// Results of one request of the set.
#[derive(Clone, Debug, Default)]
pub struct HttpCallOutcome {
    /// Requests sent.
    pub sent: u64,
    /// Requests with a complete, valid answer.
    pub completed: u64,
    /// Requests without one.
    pub failed: u64,
    /// Time from the due time to the last byte.
    pub latency: Histogram,
}

/// Results of one worker's requests.
#[derive(Debug, Default)]
pub struct HttpOutcome {
    /// Totals of the whole run.
    pub totals: HttpTotals,
    /// The part that was complete when the last request had been sent.
    pub in_time: HttpTotals,
    /// Time between the end of the warm-up and the last request, ns.
    pub duration_ns: u64,
    /// Time from the due time to the last byte.
    pub latency: Histogram,
    /// Time from sending to the last byte.
    pub service: Histogram,
    /// Time from sending to the first byte.
    pub first_byte: Histogram,
    /// Time from SYN to SYN-ACK, after the warm-up.
    pub connect: Histogram,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// `latency` by class of status: 2 has those from 200 to 299.
    pub classes: BTreeMap<u8, Histogram>,
    /// Results by request of the set.
    pub calls: Vec<HttpCallOutcome>,
    /// Description of the first invalid answer.
    pub first_failure: Option<String>,
    /// SHA-256 digests of the different bodies, with the number of their request, if requested.
    pub digests: BTreeSet<(usize, [u8; 32])>,
}

/// Parse state of an answer that has begun.
#[derive(Default)]
struct AnswerInProgress {
    seen: Seen,
    /// Digest of its body, if requested.
    digest: Option<Context>,
}

impl std::fmt::Debug for AnswerInProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.seen.fmt(f)
    }
}

/// Records each request.
#[derive(Debug)]
pub(crate) struct HttpAccount {
    task: Arc<HttpTask>,
    lens: Box<[u64]>,
    /// Time of this turn, and end of the warm-up, on the machine's clock.
    pub(crate) now: u64,
    pub(crate) warm_until: u64,
    statuses: Box<[u64]>,
    /// Time from the due time to the last byte, by class of status.
    classes: [Option<Histogram>; CLASSES],
    /// Parse state of answers that have begun, by connection slot.
    shown: Vec<AnswerInProgress>,
    pub(crate) out: HttpOutcome,
    /// Time from the due time to the last byte, including the warm-up.
    pub(crate) live: LiveTimes,
    /// Counters at the end of the warm-up.
    warm_up: Option<HttpTotals>,
    /// Bytes of answers to requests of the warm-up, and their body bytes.
    warm_bytes: (u64, u64),
    ended: bool,
}

impl HttpAccount {
    pub(crate) fn new(task: &Arc<HttpTask>) -> Self {
        Self {
            lens: task
                .asks
                .iter()
                .map(|ask| ask.message.len().into())
                .collect(),
            now: 0,
            warm_until: u64::MAX,
            statuses: vec![0; STATUSES].into_boxed_slice(),
            classes: Default::default(),
            shown: Vec::new(),
            out: HttpOutcome {
                calls: vec![HttpCallOutcome::default(); task.asks.len()],
                ..HttpOutcome::default()
            },
            live: LiveTimes::default(),
            warm_up: None,
            warm_bytes: (0, 0),
            ended: false,
            task: Arc::clone(task),
        }
    }

    /// Latencies so far, without the warm-up, in parts.
    pub(crate) fn latencies(&self) -> impl Iterator<Item = &Histogram> {
        self.classes.iter().flatten()
    }

    /// Returns true if a request sent `ns` ago was sent in the warm-up.
    #[inline]
    fn is_warm_up(&self, ns: u64) -> bool {
        self.now - ns < self.warm_until
    }

    /// Number of requests, if that ends the job.
    pub(crate) fn request_limit(&self) -> Option<u64> {
        self.task.job.amount
    }

    /// Returns true once after the end of the warm-up: then [`Self::end_warm_up`] is due.
    #[inline]
    pub(crate) fn ends_warm_up(&self) -> bool {
        self.warm_up.is_none() && self.now >= self.warm_until
    }

    /// Saves the counts of the warm-up.
    #[cold]
    pub(crate) fn end_warm_up(&mut self, counters: &Counters) {
        self.warm_up = Some(self.live_totals(counters));
    }

    /// The counts without those of the warm-up.
    fn without_warm_up(&self, all: HttpTotals) -> HttpTotals {
        let (received_bytes, body_bytes) = self.warm_bytes;
        let then = self.warm_up.map(|then| HttpTotals {
            received_bytes,
            body_bytes,
            ..then
        });
        all.without_warm_up(&then.unwrap_or(all))
    }

    #[inline]
    pub(crate) fn answer_bytes(&mut self, sent_ns: u64, all: u64, body: u64) {
        if sent_ns < self.warm_until {
            self.warm_bytes.0 += all;
            self.warm_bytes.1 += body;
        }
    }

    #[inline]
    pub(crate) fn record_connected(&mut self, ns: u64) {
        if self.now >= self.warm_until {
            self.out.connect.record(ns);
        }
    }

    #[inline]
    pub(crate) fn record_sent(&mut self, text: u16, n: u16) {
        let (text, n) = (usize::from(text), u64::from(n));
        let totals = &mut self.out.totals;
        totals.sent_bytes += n * self.lens[text];
        if self.now < self.warm_until {
            totals.warm_up += n;
        } else {
            totals.sent += n;
            self.out.calls[text].sent += n;
        }
    }

    #[inline]
    pub(crate) fn first_byte(&mut self, ns: u64) {
        if !self.is_warm_up(ns) {
            self.out.first_byte.record(ns);
        }
    }

    #[inline]
    pub(crate) fn record_exchange(&mut self, exchange: &Exchange) {
        self.live.record(exchange.since_due);
        if self.task.job.digest {
            self.finish_digest(exchange);
        }
        if self.is_warm_up(exchange.ns + exchange.unread) {
            return;
        }
        let status = exchange.status;
        let place = exchange.shown.map(usize::from);
        let seen = match place.and_then(|place| self.shown.get(place)) {
            Some(shown) => &shown.seen,
            None => &Seen::default(),
        };
        if let Some(fault) = self.task.judge.fault(status, seen) {
            return self.record_invalid(exchange, &fault);
        }
        let out = &mut self.out;
        out.totals.completed += 1;
        out.totals.error_responses += u64::from(status >= 400);
        if let Some(count) = self.statuses.get_mut(usize::from(status)) {
            *count += 1;
        }
        let class = &mut self.classes[usize::from(status / 100).min(CLASSES - 1)];
        class.get_or_insert_default().record(exchange.since_due);
        out.service.record(exchange.ns);
        let call = &mut out.calls[usize::from(exchange.text)];
        call.completed += 1;
        call.latency.record(exchange.since_due);
    }

    /// Adds the next bytes of a head.
    pub(crate) fn add_head_bytes(&mut self, place: u16, first: bool, bytes: &[u8]) {
        let place = usize::from(place);
        if place >= self.shown.len() {
            self.shown.resize_with(place + 1, AnswerInProgress::default);
        }
        let shown = &mut self.shown[place];
        if first {
            shown.seen.clear();
            shown.digest = self.task.job.digest.then(|| Context::new(&SHA256));
        }
        self.task.judge.head(&mut shown.seen, bytes);
    }

    /// Adds the next bytes of a body.
    pub(crate) fn add_body_bytes(&mut self, place: u16, bytes: &[u8]) {
        if let Some(shown) = self.shown.get_mut(usize::from(place)) {
            if let Some(context) = &mut shown.digest {
                context.update(bytes);
            }
            self.task.judge.body(&mut shown.seen, bytes);
        }
    }

    /// Completes the digest of a body.
    fn finish_digest(&mut self, exchange: &Exchange) {
        let shown = exchange
            .shown
            .and_then(|place| self.shown.get_mut(usize::from(place)));
        let digest = shown.and_then(|shown| shown.digest.take());
        if let Some(Ok(digest)) = digest.map(|context| context.finish().as_ref().try_into()) {
            self.out.digests.insert((exchange.text.into(), digest));
        }
    }

    #[cold]
    fn record_invalid(&mut self, exchange: &Exchange, fault: &str) {
        let text = usize::from(exchange.text);
        self.out.totals.failed.check += 1;
        self.out.calls[text].failed += 1;
        let complaint = || format!("{}: {fault}", self.task.names[text]);
        self.out.first_failure.get_or_insert_with(complaint);
    }

    /// Records the first invalid answer.
    #[cold]
    pub(crate) fn record_first_complaint(&mut self, what: impl FnOnce() -> String) {
        self.out.first_failure.get_or_insert_with(what);
    }

    #[cold]
    pub(crate) fn record_malformed(&mut self, bytes: &[u8]) {
        let begin = &bytes[..bytes.len().min(40)];
        let begin = String::from_utf8_lossy(begin);
        self.record_first_complaint(|| format!("not an HTTP response: {begin:?}"));
    }

    #[cold]
    pub(crate) fn record_unanswered(&mut self, text: u16, ns: u64, cause: Cause) {
        if self.is_warm_up(ns) {
            return;
        }
        self.out.calls[usize::from(text)].failed += 1;
        let failed = &mut self.out.totals.failed;
        *match cause {
            Cause::Connect | Cause::Response | Cause::Close | Cause::Idle => &mut failed.timeout,
            Cause::FirstByte => &mut failed.first_byte_timeout,
            Cause::Refused | Cause::Unreachable => &mut failed.refused,
            Cause::Reset => &mut failed.reset,
            Cause::Short => &mut failed.closed,
            Cause::Malformed => &mut failed.malformed,
            Cause::Aborted => &mut failed.other,
        } += 1;
    }

    /// Counts so far; `connecting` connections have no answer to their SYN.
    pub(crate) fn totals(&self, counters: &Counters, connecting: u64) -> HttpTotals {
        let refused =
            counters.failed_connect_timeout + counters.failed_refused + counters.failed_unreachable;
        let (timeout, connect_timeout) = match self.task.job.connect_timeout {
            None => (counters.failed_connect_timeout, 0),
            Some(_) => (0, counters.failed_connect_timeout),
        };
        HttpTotals {
            attempted_connections: counters.attempted,
            established_connections: counters.established,
            refused_connections: HttpFailures {
                timeout,
                connect_timeout,
                refused: counters.failed_refused + counters.failed_unreachable,
                ..HttpFailures::default()
            },
            connecting,
            closed_connections: counters.completed,
            broken_connections: counters.failed() - refused,
            open_connections: counters.open - connecting,
            received_bytes: counters.payload_rx,
            body_bytes: counters.body_rx,
            ..self.out.totals
        }
    }

    /// Counts during the run; the number of connections in progress follows from the others.
    pub(crate) fn live_totals(&self, counters: &Counters) -> HttpTotals {
        let refused =
            counters.failed_connect_timeout + counters.failed_refused + counters.failed_unreachable;
        let connecting = counters.attempted - counters.established - refused;
        let totals = self.totals(counters, connecting);
        HttpTotals {
            in_flight: totals.sent - totals.completed - totals.failed.sum(),
            ..totals
        }
    }

    /// Marks the end of new requests at `at`, ns since the start.
    pub(crate) fn end_requests(&mut self, counters: &Counters, at: u64) {
        if !self.ended {
            self.ended = true;
            let all = self.live_totals(counters);
            self.out.in_time = self.without_warm_up(all);
            self.out.duration_ns = at.saturating_sub(self.task.job.warm_up.as_nanos());
        }
    }

    /// Final results.
    pub(crate) fn conclude(&mut self, counters: &Counters, connecting: u64) -> HttpOutcome {
        let all = self.totals(counters, connecting);
        self.out.totals = self.without_warm_up(all);
        let seen = self.statuses.iter().enumerate().filter(|(_, n)| **n > 0);
        self.out.statuses = seen.map(|(status, n)| (status as u16, *n)).collect();
        for (class, times) in (0..).zip(&mut self.classes) {
            if let Some(times) = times.take() {
                self.out.latency.merge(&times);
                self.out.classes.insert(class, times);
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Counts a request without an answer at the very end. `sent` is on the machine's clock.
    pub(crate) fn in_flight(&mut self, sent: u64) {
        self.out.totals.in_flight += u64::from(sent >= self.warm_until);
    }
}

#[cfg(test)]
mod tests {
    use wb_model::http::{Arrivals, HttpStage};
    use wb_model::units::Span;

    use super::*;

    fn job() -> HttpJob {
        HttpJob {
            url: "http://198.19.1.2/x".to_owned(),
            ..HttpJob::default()
        }
    }

    #[test]
    fn requests_are_as_the_plan_says() {
        let job = HttpJob {
            headers: vec!["X-A: 1".to_owned(), "X-B: 2".to_owned()],
            requests: vec![
                HttpCall::default(),
                HttpCall {
                    method: "POST".to_owned(),
                    path: "/y".to_owned(),
                    headers: vec!["x-a: 3".to_owned(), "Host: web".to_owned()],
                    body_file: Some("f".to_owned()),
                    weight: 2,
                    ..HttpCall::default()
                },
            ],
            per_connection: 1,
            ..job()
        };
        let texts: Vec<String> = job
            .requests
            .iter()
            .map(|call| {
                let path = if call.path.is_empty() {
                    "/x"
                } else {
                    &call.path
                };
                let body: &[u8] = if call.body_file.is_some() {
                    b"abc"
                } else {
                    b""
                };
                String::from_utf8(request_bytes(call, &job, path, "198.19.1.2", body).unwrap())
                    .unwrap()
            })
            .collect();
        assert_eq!(
            texts[0],
            "GET /x HTTP/1.1\r\nHost: 198.19.1.2\r\nX-A: 1\r\nX-B: 2\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            texts[1],
            "POST /y HTTP/1.1\r\nX-B: 2\r\nx-a: 3\r\nHost: web\r\nConnection: close\r\n\
             Content-Length: 3\r\n\r\nabc"
        );
        let task = HttpTask::new(&job, 1, |_| Ok(b"abc".to_vec())).unwrap();
        assert_eq!(task.names, ["GET /x", "POST /y"]);
        assert_eq!(task.asks[1].weight, 2);
        let missing = HttpTask::new(&job, 1, |path| Err(format!("no {path}")));
        assert_eq!(missing.unwrap_err(), "no f");
    }

    fn rated(patience: Option<Span>, pipeline: u32) -> HttpRequestSchedule {
        let job = HttpJob {
            rate: vec![HttpStage {
                from: 1000.0,
                to: 1000.0,
                time: None,
            }],
            arrivals: Arrivals::Uniform,
            patience,
            pipeline,
            ..job()
        };
        HttpRequestSchedule::new(&HttpTask::new(&job, 1, |_| Ok(Vec::new())).unwrap(), 0, 1)
    }

    #[test]
    fn what_is_due_waits_and_the_rest_is_unsent() {
        const MS: u64 = 1_000_000;
        let (mut pace, mut unsent) = (rated(None, 2), 0);
        assert_eq!(pace.due_requests(0, u64::MAX, &mut unsent), [0]);
        pace.mark_sent(1);
        assert_eq!(pace.next_due(), MS);
        // No connection was free for a while; each request keeps its lateness.
        assert_eq!(
            pace.due_requests(5 * MS, u64::MAX, &mut unsent),
            [4 * MS, 3 * MS]
        );
        pace.mark_sent(1);
        assert_eq!(
            pace.due_requests(6 * MS, u64::MAX, &mut unsent),
            [4 * MS, 3 * MS]
        );
        assert_eq!((unsent, pace.finish(10 * MS, u64::MAX)), (0, 8));

        let mut pace = rated(Some(Span::from_millis(2)), 1);
        assert_eq!(pace.due_requests(10 * MS, u64::MAX, &mut unsent), [2 * MS]);
        assert_eq!((unsent, pace.take_missed()), (8, 0));
        // Of the requests given up then, only those that could still have been sent when the stall began.
        let mut pace = rated(Some(Span::from_millis(2)), 1);
        pace.behind = Some((6 * MS, 14 * MS));
        pace.due_requests(10 * MS, u64::MAX, &mut unsent);
        assert_eq!((unsent, pace.take_missed()), (16, 4));
        assert_eq!((pace.finish(12 * MS, 3), pace.take_missed()), (3, 3));
    }

    #[test]
    fn a_count_ends_where_nobody_can_be_reached() {
        const S: u64 = 1_000_000_000;
        let job = HttpJob {
            amount: Some(10),
            timeout: Span::from_secs(2),
            ..job()
        };
        let pace = |job: &HttpJob| {
            let task = HttpTask::new(job, 1, |_| Ok(Vec::new())).unwrap();
            HttpRequestSchedule::new(&task, 0, 1)
        };
        let mut deserted = pace(&job);
        deserted.owed.push_back(0);
        assert!(!deserted.is_deserted(9 * S, 0));
        assert!(!deserted.is_deserted(30 * S, 1));
        assert!(!deserted.is_deserted(39 * S, 0));
        assert!(deserted.is_deserted(40 * S, 0));
        // The rest is unsent, once.
        let unsent = [deserted.finish(40 * S, 7), deserted.finish(40 * S, 7)];
        assert_eq!(unsent, [7, 0]);
        let timed = HttpJob {
            duration: Some(Span::from_secs(60)),
            ..job
        };
        assert!(!pace(&timed).is_deserted(59 * S, 0));
    }

    #[test]
    fn who_reaches_nobody_waits_longer_each_time() {
        let mut pace = rated(None, 1);
        let mut counters = Counters::default();
        let mut waits = Vec::new();
        let mut now = 0;
        for _ in 0..3 {
            counters.failed_refused += 5;
            assert!(!pace.may_open(now, &counters));
            waits.push(pace.held_until - now);
            now = pace.held_until;
            assert!(pace.may_open(now, &counters));
        }
        assert_eq!(waits, [1_000_000, 2_000_000, 4_000_000]);
        // A server that accepts but does not answer is retried as soon as over sockets.
        for _ in 0..3 {
            counters.failed_response_timeout += 5;
            assert!(!pace.may_open(now, &counters));
            assert_eq!(pace.held_until - now, FIRST_PAUSE_NS);
            now = pace.held_until;
            assert!(pace.may_open(now, &counters));
        }
        (counters.failed_reset, counters.responses) = (1, 1);
        assert!(pace.may_open(now, &counters));
    }
}
