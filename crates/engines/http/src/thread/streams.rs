//! HTTP/2: requests are streams of a connection.

use wb_http2::{Connection as Protocol, Sink, Step, Why, frame};
use wb_model::http::Judge;

use super::{Goes, Thread, tally};
use crate::{
    account::Cause,
    connection::{Asked, Kept, Pending, State},
};

/// What is done with answers as they come.
pub(super) struct Answers<'a> {
    pub(super) bytes: &'a mut u64,
    pub(super) judge: &'a Judge,
    pub(super) now: u64,
}

impl Sink<Pending> for Answers<'_> {
    #[inline]
    fn head<'a>(&mut self, of: &'a mut Pending) -> Option<&'a mut Vec<u8>> {
        if of.asked.first_ns == 0 {
            of.asked.first_ns = self.now;
        }
        let kept = of.kept.as_deref_mut()?;
        // What came before was interim.
        kept.clear();
        Some(&mut kept.head)
    }

    #[inline]
    fn body(&mut self, of: &mut Pending, bytes: &[u8]) {
        *self.bytes += bytes.len() as u64;
        if let Some(kept) = &mut of.kept {
            kept.body(self.judge, bytes);
        }
    }
}

impl Thread<'_> {
    /// Says the first words; requests wait until the server has said what it allows.
    pub(super) fn greet(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        connection.state = State::Greeting;
        connection.http2 = Some(Box::default());
        Protocol::<Pending>::greet(&mut connection.out);
        self.flush(index, now);
    }

    /// Writes the next request; there has to be room.
    pub(super) fn open_stream(&mut self, index: usize, due_ns: u64, now: u64) {
        let call = self.load.set.choose(&mut self.credit);
        let warm_up = now < self.warm_until;
        let kept = match self.keeps {
            true => self.spare.pop().or_else(|| Some(self.keeping())),
            false => None,
        };
        let (block, body) = self.load.set.coded(call, self.line, &mut self.making);
        self.line += u64::from(self.load.job.threads);
        let connection = &mut self.connections[index];
        let head = self.load.set.calls[call].head;
        let pending = Pending {
            asked: Asked {
                due_ns,
                sent_ns: now,
                first_ns: 0,
                call: call as u32,
                head,
                warm_up,
            },
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
            self.out.totals.sent_bytes += http3.ask(pending, head, &quic.text);
            let out = &mut self.out.http3;
            out.most_streams = out.most_streams.max(http3.protocol.open_streams() as u32);
            out.stream_waits += u64::from(http3.look_ahead());
        } else {
            return;
        }
        self.count_sent(index, call as u32, warm_up);
    }

    /// Reads answers out of what came.
    pub(super) fn read_streams(&mut self, index: usize, mut bytes: &[u8]) -> Goes {
        self.out.totals.received_bytes += bytes.len() as u64;
        let now = super::now();
        loop {
            let connection = &mut self.connections[index];
            let Some(http2) = &mut connection.http2 else {
                return Goes::Ended;
            };
            let mut answers = Answers {
                bytes: &mut self.out.totals.body_bytes,
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
                Ok(Step::More) => return Goes::On,
                Ok(Step::Ready) => self.ready(index, now),
                Ok(Step::Ended { of, status }) => {
                    let mut kept = of.kept;
                    self.answered(of.asked, status, kept.as_deref_mut(), true, now);
                    self.spare.extend(kept);
                }
                Ok(Step::Failed { of, why }) => self.stream_failed(of, why),
                Ok(Step::GoingAway { code }) => {
                    tally(&mut self.out.http2.goaways, frame::code_name(code))
                }
                Err(fault) => {
                    let (what, code) = (fault.what, frame::code_name(fault.code));
                    Protocol::<Pending>::farewell(fault.code, &mut connection.out);
                    self.complain(|| format!("this is no HTTP/2: {what} ({code})"));
                    self.flush(index, now);
                    if self.connections[index].http2.is_some() {
                        self.fail(index, Cause::Malformed, now);
                    }
                    return Goes::Ended;
                }
            }
        }
    }

    #[cold]
    fn stream_failed(&mut self, mut pending: Pending, why: Why) {
        let cause = match why {
            Why::Reset(code) => {
                tally(&mut self.out.http2.resets, frame::code_name(code));
                Cause::StreamReset
            }
            Why::Unprocessed => Cause::Unprocessed,
            Why::Malformed(what) => {
                self.complain(|| format!("the answer is no HTTP/2: {what}"));
                Cause::Malformed
            }
        };
        self.failed(pending.asked, cause);
        self.keep_spare(pending.kept.take());
    }

    pub(super) fn keeping(&self) -> Box<Kept> {
        let whole = self
            .task
            .script
            .as_ref()
            .is_some_and(|s| s.wants_responses());
        Box::new(Kept::new(self.load.job.digest, whole))
    }

    pub(super) fn keep_spare(&mut self, kept: Option<Box<Kept>>) {
        self.spare.extend(kept.map(|mut kept| {
            kept.clear();
            kept
        }));
    }

    /// After whatever has happened on it: ends a connection that has done its work, asks what there is room for, and
    /// hands over what waits.
    pub(super) fn turn_of_streams(&mut self, index: usize, now: u64) {
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
        let idle = http2.protocol.open_streams() == 0 && connection.state == State::Open;
        if idle && (spent || http2.protocol.is_over()) {
            Protocol::<Pending>::farewell(frame::code::NO_ERROR, &mut connection.out);
            self.flush(index, now);
            if self.connections[index].http2.is_some() {
                self.close(index, now);
            }
            return;
        }
        if connection.state == State::Open && self.room(index) > 0 {
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
            (State::Open, 0) => self.close(index, now),
            (state, _) => {
                if state == State::Greeting {
                    self.complain(|| {
                        "the server ended the connection before it said a word of HTTP/2".to_owned()
                    });
                }
                self.fail(index, Cause::Closed, now);
            }
        }
    }

    /// Gives up what takes too long, and the connection, too, if the server does not say then that it is alive.
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
            let late = |of: &Pending| {
                let waited = ears.waited(of.asked.sent_ns);
                load.overdue(&of.asked, waited).is_some()
            };
            let Some(pending) = http2.protocol.expire(any, late, &mut connection.out) else {
                break;
            };
            expired = true;
            self.out.http2.cancelled += 1;
            let cause = self.overdue(&pending.asked);
            self.failed(pending.asked, cause.unwrap_or(Cause::Timeout));
            self.keep_spare(pending.kept);
        }
        let connection = &mut self.connections[index];
        let Some(http2) = &mut connection.http2 else {
            return;
        };
        if http2.protocol.echoes() != http2.echoes {
            (http2.pinged_ns, http2.echoes) = (0, http2.protocol.echoes());
        }
        if http2.pinged_ns > 0 && self.listening.waited(http2.pinged_ns) >= timeout {
            return self.fail(index, Cause::Timeout, now);
        }
        if expired {
            if http2.pinged_ns == 0 {
                http2.pinged_ns = now;
                Protocol::<Pending>::ping(&mut connection.out);
            }
            self.turn_of_streams(index, now);
        }
    }
}
