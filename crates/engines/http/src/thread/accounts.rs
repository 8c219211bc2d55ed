//! Counts every request and every connection exactly once.

use std::os::fd::OwnedFd;

use ring::digest::Context;
use rustix::time::ClockId;
use wb_http1::Progress;
use wb_measure::Histogram;
use wb_model::http::{HttpTotals, Seen};

use super::{HttpThread, clock_ns, now_ns};
use crate::{
    LiveHttpState,
    connection::{HttpConnectionState, KeptAnswer, SentRequest},
    thread_outcome::{FailureCause, HttpThreadOutcome},
};

impl HttpThread<'_> {
    /// Ends the warm-up: saves its counts and restarts the time measurements.
    pub(super) fn end_warm_up(&mut self) {
        self.warm_up = Some(self.out.totals);
        if self.load.job.version.has_streams() {
            // The frames of a connection are not attributed to requests.
            self.warm_bytes.received = self.out.totals.received_bytes;
        }
        if self.quic.is_some() {
            self.warm_bytes.sent = self.out.totals.sent_bytes;
        }
        self.out.connect = Histogram::new();
        self.out.handshake = Histogram::new();
        self.out.handshakes = (0, 0);
        let (http2, http3) = (&mut self.out.http2, &mut self.out.http3);
        http2.resets.clear();
        http2.goaways.clear();
        http2.cancelled = 0;
        http3.resets.clear();
        http3.closes.clear();
        (http3.stream_waits, http3.goaways, http3.cancelled) = (0, 0, 0);
    }

    /// The counts without those of the warm-up.
    pub(super) fn without_warm_up(&self) -> HttpTotals {
        let all = self.out.totals;
        let Some(then) = self.warm_up else {
            return all.without_warm_up(&all);
        };
        all.without_warm_up(&HttpTotals {
            sent_bytes: self.warm_bytes.sent,
            received_bytes: self.warm_bytes.received,
            body_bytes: self.warm_bytes.body,
            ..then
        })
    }

    pub(super) fn publish(&self) {
        self.publish_counts();
        if self.task.control.latency.is_wanted() {
            self.publish_latency();
        }
    }

    /// Publishes the counts. Returns false if a reader held the lock.
    fn publish_counts(&self) -> bool {
        let mut totals = self.out.totals;
        totals.connecting = self.connecting as u64;
        let ended = totals.closed_connections + totals.broken_connections;
        totals.open_connections = totals.established_connections - ended;
        totals.in_flight = totals.sent - totals.completed - totals.failed.sum();
        self.task.control.publish_live(LiveHttpState {
            totals,
            latency_ns: self.latency_ns,
            answers: self.answers,
            draining: self.closing,
        })
    }

    /// Publishes the latency. Returns false if a reader held the lock.
    fn publish_latency(&self) -> bool {
        let shown = &self.task.control.latency;
        shown.show(|outline| outline.add(&self.out.latency))
    }

    /// Samples the rate as wrk does: no sample if no answer arrived.
    pub(super) fn sample_rate(&mut self, now: u64) {
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

    pub(super) fn wrk_read_error(&mut self) {
        if let Some(exact) = &mut self.out.exact {
            exact.errors[1] += 1;
        }
    }

    pub(super) fn wrk_connect_error(&mut self) {
        if let Some(exact) = &mut self.out.exact {
            exact.errors[0] += 1;
        }
    }

    #[cold]
    pub(super) fn record_first_complaint(&mut self, what: impl FnOnce() -> String) {
        if self.out.first_failure.is_none() {
            self.out.first_failure = Some(wb_model::cause_text(what()));
        }
    }

    /// Counts an answer as wrk does; only the last of a batch has a time.
    pub(super) fn count_exact(&mut self, status: u16, ns: Option<u64>) {
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
            exact.times.record(us);
        }
    }

    /// Counts a complete answer.
    pub(super) fn count_completed(&mut self, index: usize, status: u16, now: u64) {
        let connection = &mut self.connections[index];
        let Some(asked) = connection.asked.pop_front() else {
            return;
        };
        connection.progress = Progress::NEW;
        if let Some(next) = connection.asked.front() {
            connection.progress.expect(next.head);
        }
        let last = connection.asked.is_empty();
        let mut kept = connection.kept.take();
        self.count_answer(asked, status, kept.as_deref_mut(), last, now);
        self.connections[index].kept = kept;
    }

    /// Counts a complete answer. `last`: no other pipelined request waits for its answer.
    pub(super) fn count_answer(
        &mut self,
        asked: SentRequest,
        status: u16,
        mut kept: Option<&mut KeptAnswer>,
        last: bool,
        now: u64,
    ) {
        self.in_flight -= 1;
        let latency = now.saturating_sub(asked.due_ns);
        let mut seen = &Seen::default();
        if let Some(kept) = &mut kept {
            if self.load.job.version.has_streams() {
                self.judge.head(&mut kept.seen, &kept.head);
            }
            seen = &kept.seen;
        }
        let fault = self.judge.fault(status, seen);
        if let Some(kept) = kept {
            let digest = kept.digest.clone().map(Context::finish);
            if let Some(Ok(digest)) = digest.map(|digest| digest.as_ref().try_into()) {
                self.out.digests.insert((asked.call as usize, digest));
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
            self.record_first_complaint(|| format!("{}: {fault}", name.unwrap_or_default()));
            FailureCause::Check.count(&mut self.out.totals.failed, 1);
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
        let class = self.out.classes.entry((status / 100) as u8);
        class.or_default().record(latency);
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

    /// Closes the connection in order, and begins another one.
    pub(super) fn close(&mut self, index: usize, now: u64) {
        self.drop_asked(index, FailureCause::Closed);
        self.out.totals.closed_connections += 1;
        self.send_goaway(index, now);
        let renewed = self.renew_socket(index);
        self.connections[index].clear();
        self.reconnect(index, now, renewed);
    }

    /// Counts the requests in flight on it as failed.
    pub(super) fn drop_asked(&mut self, index: usize, cause: FailureCause) {
        let connection = &mut self.connections[index];
        for asked in connection.asked.drain(..) {
            count_unfinished(&mut self.out, &mut self.in_flight, asked, cause);
        }
        if let Some(http2) = &mut connection.http2 {
            for pending in http2.protocol.drain() {
                count_unfinished(&mut self.out, &mut self.in_flight, pending.asked, cause);
            }
        }
        if let Some(http3) = &mut connection.http3 {
            for pending in http3.protocol.drain() {
                count_unfinished(&mut self.out, &mut self.in_flight, pending.asked, cause);
            }
        }
    }

    /// Counts a failed request on a connection that continues.
    pub(super) fn count_failed_request(&mut self, asked: SentRequest, cause: FailureCause) {
        count_unfinished(&mut self.out, &mut self.in_flight, asked, cause);
    }

    fn reconnect(&mut self, index: usize, now: u64, renewed: Option<OwnedFd>) {
        if !self.stops_asking() && self.needs_connection() {
            self.connect(index, now, renewed);
        }
    }

    /// Counts a connection that broke or could not be established.
    pub(super) fn fail_connection(&mut self, index: usize, cause: FailureCause, now: u64) {
        let was = self.connections[index].state;
        let connection = &self.connections[index];
        let answered = connection.requests as usize > connection.under_way();
        self.drop_asked(index, cause);
        match was {
            HttpConnectionState::Without => return,
            HttpConnectionState::Connecting
            | HttpConnectionState::Handshake
            | HttpConnectionState::Greeting => {
                self.connecting -= 1;
                cause.count(&mut self.out.totals.refused_connections, 1);
            }
            HttpConnectionState::Open => self.out.totals.broken_connections += 1,
        }
        self.send_goaway(index, now);
        self.connections[index].clear();
        match answered {
            // It has served before.
            true => self.reconnect(index, now, None),
            false if !self.stops_asking() => self.retry_later(index, now),
            false => {}
        }
    }

    pub(super) fn finish(mut self) -> HttpThreadOutcome {
        let now = now_ns();
        if !self.closing {
            self.closing = true;
            self.out.in_time = self.without_warm_up();
            self.out.duration_ns = now.min(self.end).saturating_sub(self.warm_until);
        }
        if self.out.exact.is_some() {
            self.sample_rate(now);
        }
        let again = self.unprocessed.iter().filter(|request| !request.warm_up);
        self.out.totals.in_flight += again.count() as u64;
        for connection in &self.connections {
            match connection.state {
                HttpConnectionState::Without => {}
                HttpConnectionState::Connecting
                | HttpConnectionState::Handshake
                | HttpConnectionState::Greeting => self.out.totals.connecting += 1,
                HttpConnectionState::Open => self.out.totals.open_connections += 1,
            }
            let of_http2 = connection.http2.iter().flat_map(|h| h.protocol.requests());
            let of_http3 = connection.http3.iter().flat_map(|h| h.protocol.requests());
            let streams = of_http2.chain(of_http3).map(|pending| &pending.asked);
            let left = connection.asked.iter().chain(streams);
            let left = left.filter(|asked| !asked.warm_up);
            self.out.totals.in_flight += left.count() as u64;
        }
        for index in 0..self.connections.len() {
            self.send_goaway(index, now);
        }
        let statuses = self.statuses.iter().enumerate().filter(|(_, n)| **n > 0);
        self.out.statuses = statuses.map(|(s, n)| (s as u16, *n)).collect();
        self.out.cpu_ns = clock_ns(ClockId::ThreadCPUTime);
        self.out.wall_ns = now.saturating_sub(self.task.start_ns);
        // A reader holds the lock only for the time of a copy.
        while !self.publish_counts() || !self.publish_latency() {
            std::hint::spin_loop();
        }
        self.out.totals = self.without_warm_up();
        self.out
    }
}

/// Counts a request under the cause of its end.
fn count_unfinished(
    out: &mut HttpThreadOutcome,
    in_flight: &mut u64,
    asked: SentRequest,
    cause: FailureCause,
) {
    *in_flight -= 1;
    if asked.warm_up {
        return;
    }
    cause.count(&mut out.totals.failed, 1);
    if let Some(one) = out.calls.get_mut(asked.call as usize) {
        one.failed += 1;
    }
}
