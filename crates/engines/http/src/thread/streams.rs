//! HTTP/2: requests are streams of a connection.

use wb_http2::{FailureReason, Http2Connection as Protocol, Http2Step, ResponseSink, frame};
use wb_model::http::Judge;

use super::{ConnectionTurn, HttpThread, count_name};
use crate::{
    connection::{HttpConnectionState, KeptAnswer, PendingStream, SentRequest},
    thread_outcome::FailureCause,
};

/// Processing of answers.
pub(super) struct StreamAnswers<'a> {
    pub(super) bytes: &'a mut u64,
    /// Bytes of answers to requests of the warm-up; part of `bytes`.
    pub(super) warm_bytes: &'a mut u64,
    pub(super) judge: &'a Judge,
    pub(super) now: u64,
}

impl ResponseSink<PendingStream> for StreamAnswers<'_> {
    #[inline]
    fn head<'a>(&mut self, of: &'a mut PendingStream) -> Option<&'a mut Vec<u8>> {
        if of.asked.first_ns == 0 {
            of.asked.first_ns = self.now;
        }
        let kept = of.kept.as_deref_mut()?;
        // Earlier heads were interim.
        kept.clear();
        Some(&mut kept.head)
    }

    #[inline]
    fn body(&mut self, of: &mut PendingStream, bytes: &[u8]) {
        *self.bytes += bytes.len() as u64;
        if of.asked.warm_up {
            *self.warm_bytes += bytes.len() as u64;
        }
        if let Some(kept) = &mut of.kept {
            kept.add_body_bytes(self.judge, bytes);
        }
    }
}

/// Maximum number of times that a request is sent: each time it may come after the last one that a connection
/// processes.
const MOST_TRIES: u32 = 10;

/// A request that a server has not processed, or that has not been sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnprocessedRequest {
    /// Original due time.
    due_ns: u64,
    call: u32,
    /// Its line of the data file.
    line: u64,
    tries: u32,
    /// It was first sent in the warm-up.
    pub(super) warm_up: bool,
}

impl HttpThread<'_> {
    /// Sends the preface; requests wait for the server's settings.
    pub(super) fn send_preface(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        connection.state = HttpConnectionState::Greeting;
        connection.http2 = Some(Box::default());
        Protocol::<PendingStream>::greet(&mut connection.out);
        self.flush(index, now);
    }

    /// Sends the next request as a stream; a stream must be available.
    pub(super) fn open_stream(&mut self, index: usize, due_ns: u64, now: u64) {
        let call = self.load.set.choose_next(&mut self.credit);
        let warm_up = now < self.warm_until;
        let line = self.line;
        self.line += u64::from(self.load.job.threads);
        let request = UnprocessedRequest {
            due_ns,
            call: call as u32,
            line,
            tries: 0,
            warm_up,
        };
        if self.write_stream(index, &request, now) {
            self.count_sent(index, call as u32, warm_up);
        }
    }

    /// Sends a request as a stream. Returns false if its connection has ended.
    fn write_stream(&mut self, index: usize, request: &UnprocessedRequest, now: u64) -> bool {
        let UnprocessedRequest {
            due_ns,
            call,
            line,
            tries,
            warm_up,
        } = *request;
        let kept = match self.keeps {
            true => self.spare.pop().or_else(|| Some(self.kept_answer())),
            false => None,
        };
        let set = &self.load.set;
        let (block, body) = set.encoded_request(call as usize, line, &mut self.making);
        let connection = &mut self.connections[index];
        let head = set.calls[call as usize].head;
        let pending = PendingStream {
            asked: SentRequest {
                due_ns,
                sent_ns: now,
                first_ns: 0,
                call,
                head,
                warm_up,
            },
            line,
            tries,
            kept,
        };
        if let Some(http2) = &mut connection.http2 {
            http2
                .protocol
                .open(pending, head, block, body, &mut connection.out);
            let most = &mut self.out.http2.most_streams;
            *most = (*most).max(http2.protocol.open_streams() as u32);
        } else if let (Some(quic), Some(http3)) = (&mut self.quic, &mut connection.http3) {
            quic.text.clear();
            wb_http3::request(block, body.len(), &mut quic.text);
            quic.text.extend_from_slice(body);
            self.out.totals.sent_bytes += http3.send_request(pending, head, &quic.text);
            let out = &mut self.out.http3;
            out.most_streams = out.most_streams.max(http3.protocol.open_streams() as u32);
            out.stream_waits += u64::from(http3.look_ahead());
        } else {
            return false;
        }
        true
    }

    /// Queues a request for repetition if the server reports that it was not processed (RFC 9113 section 8.7), unless
    /// that has happened too often.
    pub(super) fn put_back(&mut self, pending: PendingStream, cause: FailureCause) {
        let SentRequest {
            due_ns,
            call,
            warm_up,
            ..
        } = pending.asked;
        if pending.tries >= MOST_TRIES || self.gives_up() {
            self.count_failed_request(pending.asked, cause);
        } else {
            self.unprocessed.push_back(UnprocessedRequest {
                due_ns,
                call,
                line: pending.line,
                tries: pending.tries + 1,
                warm_up,
            });
        }
        self.keep_spare(pending.kept);
    }

    /// Sends unprocessed requests of other connections, as far as this one has room.
    pub(super) fn ask_again(&mut self, index: usize, now: u64) {
        while self.connections[index].state == HttpConnectionState::Open
            && self.free_request_slots(index) > 0
        {
            let Some(request) = self.unprocessed.pop_front() else {
                return;
            };
            if !self.write_stream(index, &request, now) {
                return self.unprocessed.push_front(request);
            }
            self.connections[index].requests += 1;
            self.out.totals.retried += u64::from(!request.warm_up);
        }
    }

    /// Sends unprocessed requests again over any connection that has room.
    pub(super) fn ask_again_anywhere(&mut self, now: u64) {
        for index in 0..self.begun {
            if self.unprocessed.is_empty() {
                return;
            }
            if self.connections[index].state == HttpConnectionState::Open
                && self.free_request_slots(index) > 0
            {
                self.ask_again(index, now);
                self.flush(index, now);
            }
        }
    }

    /// Parses answers from received data.
    pub(super) fn read_streams(&mut self, index: usize, mut bytes: &[u8]) -> ConnectionTurn {
        self.out.totals.received_bytes += bytes.len() as u64;
        let now = super::now_ns();
        loop {
            let connection = &mut self.connections[index];
            let Some(http2) = &mut connection.http2 else {
                return ConnectionTurn::Ended;
            };
            let mut answers = StreamAnswers {
                bytes: &mut self.out.totals.body_bytes,
                warm_bytes: &mut self.warm_bytes.body,
                judge: &self.judge,
                now,
            };
            let step = http2.protocol.read(
                &mut self.decoder,
                &mut bytes,
                &mut connection.out,
                &mut answers,
            );
            match step {
                Ok(Http2Step::More) => return ConnectionTurn::On,
                Ok(Http2Step::Ready) => self.mark_ready(index, now),
                Ok(Http2Step::Ended { of, status }) => {
                    let mut kept = of.kept;
                    self.count_answer(of.asked, status, kept.as_deref_mut(), true, now);
                    self.spare.extend(kept);
                }
                Ok(Http2Step::Failed { of, why }) => self.stream_failed(of, why),
                Ok(Http2Step::GoingAway { code }) => {
                    count_name(&mut self.out.http2.goaways, frame::code_name(code))
                }
                Err(fault) => {
                    let (what, code) = (fault.what, frame::code_name(fault.code));
                    Protocol::<PendingStream>::farewell(fault.code, &mut connection.out);
                    self.record_first_complaint(|| {
                        format!("HTTP/2 protocol error by the server: {what} ({code})")
                    });
                    self.flush(index, now);
                    if self.connections[index].http2.is_some() {
                        self.fail_connection(index, FailureCause::Malformed, now);
                    }
                    return ConnectionTurn::Ended;
                }
            }
        }
    }

    #[cold]
    fn stream_failed(&mut self, pending: PendingStream, why: FailureReason) {
        let (cause, again) = match why {
            FailureReason::Reset(code) => {
                count_name(&mut self.out.http2.resets, frame::code_name(code));
                let refused = code == frame::code::REFUSED_STREAM;
                (FailureCause::StreamReset, refused)
            }
            FailureReason::Unprocessed => (FailureCause::Unprocessed, true),
            FailureReason::Malformed(what) => {
                self.record_first_complaint(|| format!("malformed HTTP/2 response: {what}"));
                (FailureCause::Malformed, false)
            }
        };
        self.end_failed_stream(pending, cause, again);
    }

    /// Puts the request of a failed stream back if it may be sent `again`, or counts the failure.
    #[cold]
    pub(super) fn end_failed_stream(
        &mut self,
        mut pending: PendingStream,
        cause: FailureCause,
        again: bool,
    ) {
        if again {
            return self.put_back(pending, cause);
        }
        self.count_failed_request(pending.asked, cause);
        self.keep_spare(pending.kept.take());
    }

    pub(super) fn kept_answer(&self) -> Box<KeptAnswer> {
        let whole = self
            .task
            .script
            .as_ref()
            .is_some_and(|s| s.wants_responses());
        Box::new(KeptAnswer::new(self.load.job.digest, whole))
    }

    pub(super) fn keep_spare(&mut self, kept: Option<Box<KeptAnswer>>) {
        self.spare.extend(kept.map(|mut kept| {
            kept.clear();
            kept
        }));
    }

    /// Processes a connection after events: ends a completed connection, sends as many requests as it has room for, and
    /// transmits pending data.
    pub(super) fn take_streams_turn(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let Some(http2) = &mut connection.http2 else {
            return;
        };
        if let Some(allowed) = http2.protocol.most_streams() {
            let fewest = &mut self.out.http2.allowed_streams;
            *fewest = Some(fewest.map_or(allowed, |before| before.min(allowed)));
        }
        let most = self.load.job.per_connection;
        let spent = most > 0 && connection.requests >= most;
        let idle =
            http2.protocol.open_streams() == 0 && connection.state == HttpConnectionState::Open;
        if idle && (spent || http2.protocol.is_over()) {
            Protocol::<PendingStream>::farewell(frame::code::NO_ERROR, &mut connection.out);
            self.flush(index, now);
            if self.connections[index].http2.is_some() {
                self.close(index, now);
            }
            return;
        }
        self.ask_again(index, now);
        if self.connections[index].state == HttpConnectionState::Open
            && self.sendable_requests(index) > 0
        {
            self.next(index, now);
        }
        self.flush(index, now);
        let connection = &mut self.connections[index];
        if !connection.has_output()
            && let Some(http2) = &mut connection.http2
        {
            http2.protocol.flushed();
        }
    }

    /// The server has ended the connection.
    pub(super) fn streams_ended(&mut self, index: usize, now: u64) {
        let connection = &self.connections[index];
        match (connection.state, connection.under_way()) {
            (HttpConnectionState::Open, 0) => self.close(index, now),
            (state, _) => {
                if state == HttpConnectionState::Greeting {
                    self.record_first_complaint(|| {
                        "the server closed the connection before its first HTTP/2 frame".to_owned()
                    });
                }
                let cause = self.connections[index].cause_of_end();
                self.fail_connection(index, cause, now);
            }
        }
    }

    /// Gives up requests that exceed their timeout, and the connection if the server does not answer a ping then.
    pub(super) fn scan_streams(&mut self, index: usize, now: u64) {
        let timeout = self.load.job.timeout.as_nanos();
        let mut expired = false;
        loop {
            let connection = &mut self.connections[index];
            let Some(http2) = &mut connection.http2 else {
                return;
            };
            let any = self.load.job.first_byte_timeout.is_some();
            let (load, ears) = (self.load, &self.listening);
            let late = |of: &PendingStream| {
                let waited = ears.effective_wait(of.asked.sent_ns);
                load.exceeded_timeout(&of.asked, waited).is_some()
            };
            let Some(pending) = http2.protocol.expire(any, late, &mut connection.out) else {
                break;
            };
            expired = true;
            self.out.http2.cancelled += 1;
            let cause = self.exceeded_timeout(&pending.asked);
            self.count_failed_request(pending.asked, cause.unwrap_or(FailureCause::Timeout));
            self.keep_spare(pending.kept);
        }
        let connection = &mut self.connections[index];
        let Some(http2) = &mut connection.http2 else {
            return;
        };
        if http2.protocol.echoes() != http2.echoes {
            (http2.pinged_ns, http2.echoes) = (0, http2.protocol.echoes());
        }
        if http2.pinged_ns > 0 && self.listening.effective_wait(http2.pinged_ns) >= timeout {
            return self.fail_connection(index, FailureCause::Timeout, now);
        }
        if expired {
            if http2.pinged_ns == 0 {
                http2.pinged_ns = now;
                Protocol::<PendingStream>::ping(&mut connection.out);
            }
            self.take_streams_turn(index, now);
        }
    }
}
