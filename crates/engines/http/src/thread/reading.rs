//! Received data, up to the ends of answers.

use std::io::Read as _;

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use rustls::AlertDescription;
use wb_http1::{MessageSink, Progress, Read};
use wb_model::http::Judge;

use super::{CALLS, ConnectionTurn, HttpThread, now_ns};
use crate::{
    connection::{HttpConnectionState, KeptAnswer},
    thread_outcome::FailureCause,
};

/// Processing of the pieces of an answer.
struct AnswerProcessor<'a> {
    bytes: &'a mut u64,
    judge: &'a Judge,
    kept: Option<&'a mut KeptAnswer>,
}

impl MessageSink for AnswerProcessor<'_> {
    #[inline]
    fn head(&mut self, bytes: &[u8]) {
        if let Some(kept) = &mut self.kept {
            kept.add_head_bytes(self.judge, bytes);
        }
    }

    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        *self.bytes += bytes.len() as u64;
        if let Some(kept) = &mut self.kept {
            kept.add_body_bytes(self.judge, bytes);
        }
    }

    #[inline]
    fn interim(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
    }
}

impl HttpThread<'_> {
    pub(super) fn receive(
        &mut self,
        index: usize,
        ends: bool,
        buffer: &mut [u8],
        plain: &mut [u8],
    ) {
        for _ in 0..CALLS {
            let number = self.connections[index].number;
            let Some(socket) = &self.connections[index].socket else {
                return;
            };
            match recv(socket, &mut *buffer, RecvFlags::empty()) {
                Ok((_, 0)) => return self.handle_server_close(index),
                Ok((_, n)) => {
                    let goes = match self.connections[index].tls {
                        Some(_) => self.decrypt(index, &buffer[..n], plain),
                        None => self.read(index, &buffer[..n]),
                    };
                    if self.http2 && goes == ConnectionTurn::On {
                        self.take_streams_turn(index, now_ns());
                    }
                    let gone =
                        goes == ConnectionTurn::Ended || self.connections[index].number != number;
                    // Less than the buffer size: no more is pending, except perhaps the end.
                    if gone || n < buffer.len() && !ends {
                        return;
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(why) => {
                    self.wrk_read_error();
                    return self.fail_connection(index, FailureCause::from_errno(why), now_ns());
                }
            }
        }
        self.unread.push((index, self.connections[index].number));
    }

    pub(super) fn decrypt(
        &mut self,
        index: usize,
        mut bytes: &[u8],
        plain: &mut [u8],
    ) -> ConnectionTurn {
        let number = self.connections[index].number;
        while !bytes.is_empty() {
            let connection = &mut self.connections[index];
            let Some(tls) = &mut connection.tls else {
                return ConnectionTurn::Ended;
            };
            let taken = tls.read_tls(&mut bytes);
            let state = match taken.map(|_| tls.process_new_packets()) {
                Ok(Ok(state)) => state,
                bad => {
                    if let Ok(Err(why)) = bad {
                        let none = AlertDescription::NoApplicationProtocol;
                        self.record_first_complaint(|| match why == rustls::Error::AlertReceived(none) {
                            true => "the server does not support HTTP/2: it refused h2 in the TLS handshake (ALPN)".to_owned(),
                            false => format!("TLS: {why}"),
                        });
                    }
                    // The alert with the reason is sent if possible.
                    self.flush(index, now_ns());
                    if self.connections[index].number == number
                        && self.connections[index].socket.is_some()
                    {
                        match self.connections[index].state {
                            HttpConnectionState::Open => self.wrk_read_error(),
                            _ => self.wrk_connect_error(),
                        }
                        self.fail_connection(index, FailureCause::Tls, now_ns());
                    }
                    return ConnectionTurn::Ended;
                }
            };
            if tls.wants_write() {
                self.flush(index, now_ns());
            }
            if self.check_tls_handshake(index) == ConnectionTurn::Ended {
                return ConnectionTurn::Ended;
            }
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let Some(tls) = &mut self.connections[index].tls else {
                    return ConnectionTurn::Ended;
                };
                let Ok(n) = tls.reader().read(plain) else {
                    break;
                };
                left -= n.min(left);
                let goes = self.read(index, &plain[..n]);
                if goes == ConnectionTurn::Ended
                    || self.connections[index].number != number
                    || n == 0
                {
                    return goes;
                }
            }
        }
        ConnectionTurn::On
    }

    /// Parses answers from received data.
    pub(super) fn read(&mut self, index: usize, mut bytes: &[u8]) -> ConnectionTurn {
        if self.http2 {
            return self.read_streams(index, bytes);
        }
        let number = self.connections[index].number;
        if let Some(exact) = &mut self.out.exact {
            exact.bytes += bytes.len() as u64;
        }
        let now = now_ns();
        let mut answered = false;
        while !bytes.is_empty() {
            let connection = &mut self.connections[index];
            match connection.asked.front_mut() {
                Some(front) if front.first_ns == 0 => front.first_ns = now,
                // wrk counts unrequested answers.
                None if !self.load.job.as_wrk => {
                    self.record_first_complaint(|| {
                        "the server sent data although no request was pending".to_owned()
                    });
                    self.fail_connection(index, FailureCause::Malformed, now);
                    return ConnectionTurn::Ended;
                }
                _ => {}
            }
            let warm_up = connection.asked.front().is_some_and(|asked| asked.warm_up);
            let before = self.out.totals.body_bytes;
            let mut pieces = AnswerProcessor {
                bytes: &mut self.out.totals.body_bytes,
                judge: &self.judge,
                kept: connection.kept.as_deref_mut(),
            };
            let read = self
                .reader
                .read_with(&mut connection.progress, bytes, &mut pieces);
            let used = match read {
                Read::Message { used, .. } | Read::Expects { used } => used,
                Read::More | Read::Bad => bytes.len(),
            };
            self.out.totals.received_bytes += used as u64;
            if warm_up {
                self.warm_bytes.received += used as u64;
                self.warm_bytes.body += self.out.totals.body_bytes - before;
            }
            match read {
                Read::More => break,
                Read::Message { used, status, end } => {
                    bytes = &bytes[used..];
                    if status < 200 && status != 101 {
                        // An interim answer, which wrk counts.
                        self.count_exact(status, None);
                        continue;
                    }
                    if connection.asked.is_empty() {
                        connection.progress = Progress::NEW;
                        self.count_exact(status, None);
                    } else {
                        self.count_completed(index, status, now);
                        answered = true;
                    }
                    let connection = &mut self.connections[index];
                    let job = &self.load.job;
                    let last = job.per_connection > 0 && connection.requests >= job.per_connection;
                    if end.close || last && connection.asked.is_empty() {
                        self.close(index, now);
                        return ConnectionTurn::Ended;
                    }
                }
                Read::Expects { used } => bytes = &bytes[used..],
                Read::Bad => {
                    self.wrk_read_error();
                    let begin = bytes[..bytes.len().min(40)].to_vec();
                    self.record_first_complaint(|| {
                        format!(
                            "not an HTTP response: {:?}",
                            String::from_utf8_lossy(&begin)
                        )
                    });
                    self.fail_connection(index, FailureCause::Malformed, now);
                    return ConnectionTurn::Ended;
                }
            }
        }
        // Only after all received data is read: a request sent now has no answer in it.
        if answered {
            self.goes_on(index, now);
        }
        let connection = &self.connections[index];
        match connection.number != number || connection.socket.is_none() {
            true => ConnectionTurn::Ended,
            false => ConnectionTurn::On,
        }
    }

    /// After an answer: sends the next request, if there is room.
    pub(super) fn goes_on(&mut self, index: usize, now: u64) {
        let connection = &self.connections[index];
        if connection.asked.is_empty() || self.task.script.is_none() {
            self.next(index, now);
        }
    }

    /// The server has ended the connection.
    pub(super) fn handle_server_close(&mut self, index: usize) {
        let now = now_ns();
        self.wrk_read_error();
        if self.http2 {
            return self.streams_ended(index, now);
        }
        let connection = &self.connections[index];
        let whole = connection.progress.end();
        match (connection.state, connection.asked.is_empty(), whole) {
            (HttpConnectionState::Open, true, _) => self.close(index, now),
            // Its end is that of the answer.
            (HttpConnectionState::Open, false, Some(status)) if !connection.write_failed => {
                self.count_completed(index, status, now);
                self.close(index, now);
            }
            _ => self.fail_connection(index, connection.cause_of_end(), now),
        }
    }
}
