//! Selects the next request, its sending time and its connection.

use std::{cmp::Reverse, io::Write as _, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    net::{SendFlags, send},
};

use super::HttpThread;
use crate::{
    connection::{HttpConnectionState, SentRequest},
    thread_outcome::FailureCause,
};

impl HttpThread<'_> {
    /// Sends due requests over idle connections. Returns the number sent.
    pub(super) fn send_what_is_due(&mut self, now: u64) -> u64 {
        let mut sent = 0;
        if !self.unprocessed.is_empty() {
            self.ask_again_anywhere(now);
        }
        if self.closing {
            return sent;
        }
        let patience = self.load.job.patience.map(|p| p.as_nanos());
        while let Some(schedule) = &mut self.schedule
            && self.budget > 0
        {
            let due = self.task.start_ns.saturating_add(schedule.due());
            if due > now || due >= self.end {
                break;
            }
            if due < self.warm_until && now >= self.warm_until {
                // Requests that were due in the warm-up are sent in it or not at all: the counted part would
                // otherwise begin with more than its own rate.
                schedule.take();
                continue;
            }
            if patience.is_some_and(|patience| now - due > patience) {
                schedule.take();
                if now >= self.warm_until {
                    self.out.totals.unsent += 1;
                    let given_up = due.saturating_add(patience.unwrap_or(0));
                    let meanwhile = now <= self.behind.1 && given_up >= self.behind.0;
                    self.out.lateness.missed_departures += u64::from(meanwhile);
                }
                continue;
            }
            let Some(index) = self.idle.pop_front() else {
                break;
            };
            let connection = &mut self.connections[index];
            let waits = std::mem::take(&mut connection.idle)
                && connection.state == HttpConnectionState::Open;
            if !waits || self.sendable_requests(index) == 0 {
                continue;
            }
            if let Some(schedule) = &mut self.schedule {
                schedule.take();
            }
            self.send_next_requests(index, due, now);
            sent += 1;
        }
        sent
    }

    /// Called if a connection can take a request: sends one if permitted, or queues the connection as idle.
    pub(super) fn next(&mut self, index: usize, now: u64) {
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
        self.send_next_requests(index, now, now);
    }

    pub(super) fn give_up_for(&mut self, why: String) {
        self.out.error.get_or_insert(why);
    }

    /// Number of requests that may be sent over a connection now.
    pub(super) fn sendable_requests(&self, index: usize) -> u64 {
        self.free_request_slots(index).min(self.budget)
    }

    /// Number of requests that a connection has room for, including repeated ones.
    pub(super) fn free_request_slots(&self, index: usize) -> u64 {
        let (job, connection) = (&self.load.job, &self.connections[index]);
        let last = match job.per_connection {
            0 => u32::MAX,
            n => n.saturating_sub(connection.requests),
        };
        let streams = job.streams as usize;
        let free = match (&connection.http2, &connection.http3) {
            (Some(http2), _) => {
                let free = streams.saturating_sub(http2.protocol.open_streams());
                free.min(http2.protocol.free_streams())
            }
            (_, Some(http3)) => match http3.has_room() {
                true => streams.saturating_sub(http3.protocol.open_streams()),
                false => 0,
            },
            _ => (job.pipeline as usize).saturating_sub(connection.asked.len()),
        };
        u64::from(last).min(free as u64)
    }

    /// Sends the next request over a connection, or as many as may be in flight on it.
    pub(super) fn send_next_requests(&mut self, index: usize, due: u64, now: u64) {
        let job = &self.load.job;
        if let Some(script) = &mut self.task.script {
            let connection = &mut self.connections[index];
            if self.budget == 0 || script.stopped() {
                return;
            }
            // If an answer came before its request was sent to the end, the rest of the request goes first:
            // RFC 9112 section 9.3.2.
            let from = connection.out.len();
            match &self.batch {
                Some(batch) => connection.out.extend_from_slice(batch),
                None => {
                    if let Err(why) = script.request(&mut connection.out) {
                        return self.give_up_for(why.to_string());
                    }
                }
            }
            let text = &connection.out[from..];
            if text.is_empty() {
                // This connection sends no more, as in wrk.
                return;
            }
            if self.batch_len == 0 {
                // As wrk does: all texts have the number of requests of the first one.
                let asked = wb_http1::requests(text);
                self.batch_len = asked.map_or(1, |asked| asked.len().max(1));
            }
            let head = text.starts_with(b"HEAD ");
            for _ in 0..self.batch_len {
                self.record_sent_request(index, due, now, 0, head);
            }
            return self.flush(index, now);
        }
        let patience = job.patience.map(|p| p.as_nanos());
        let mut due = due;
        let mut wrote = false;
        while self.sendable_requests(index) > 0 {
            let connection = &mut self.connections[index];
            match &self.batch {
                _ if job.version.has_streams() => self.open_stream(index, due, now),
                // The usual case: nothing to copy.
                Some(fixed)
                    if !wrote
                        && connection.out.is_empty()
                        && connection.tls.is_none()
                        && job.pipeline == 1 =>
                {
                    let (len, head) = (fixed.len(), self.load.set.calls[0].head);
                    self.record_sent_request(index, due, now, 0, head);
                    return self.send_fixed(index, now, len);
                }
                Some(fixed) => {
                    connection.out.extend_from_slice(fixed);
                    let head = self.load.set.calls[0].head;
                    self.record_sent_request(index, due, now, 0, head);
                }
                None => {
                    let call = self.load.set.choose_next(&mut self.credit);
                    self.load.set.write(call, self.line, &mut connection.out);
                    self.line += u64::from(job.threads);
                    let head = self.load.set.calls[call].head;
                    self.record_sent_request(index, due, now, call as u32, head);
                }
            }
            wrote = true;
            let room = self.sendable_requests(index) > 0;
            // With a schedule each has a separate due time.
            if let Some(schedule) = &mut self.schedule {
                let next = self.task.start_ns.saturating_add(schedule.due());
                let is_warm_up = next < self.warm_until && now >= self.warm_until;
                let is_given_up =
                    patience.is_some_and(|patience| now.saturating_sub(next) > patience);
                // After a stall these are overdue too. They are counted when the next connection is chosen.
                if next > now || next >= self.end || is_warm_up || is_given_up {
                    break;
                }
                if room {
                    schedule.take();
                    due = next;
                }
            }
        }
        if wrote {
            self.flush(index, now);
        }
        if self.schedule.is_some() && self.sendable_requests(index) > 0 {
            self.next(index, now);
        }
    }

    /// Counts a request as sent.
    pub(super) fn record_sent_request(
        &mut self,
        index: usize,
        due_ns: u64,
        now: u64,
        call: u32,
        head: bool,
    ) {
        let connection = &mut self.connections[index];
        let warm_up = now < self.warm_until;
        if connection.asked.is_empty() {
            connection.progress.expect(head);
        }
        connection.asked.push_back(SentRequest {
            due_ns,
            sent_ns: now,
            first_ns: 0,
            call,
            head,
            warm_up,
        });
        self.count_sent(index, call, warm_up);
    }

    /// Adds a sent request to the counters.
    pub(super) fn count_sent(&mut self, index: usize, call: u32, warm_up: bool) {
        self.connections[index].requests += 1;
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

    pub(super) fn send_fixed(&mut self, index: usize, now: u64, len: usize) {
        let (connection, Some(fixed)) = (&mut self.connections[index], &self.batch) else {
            return;
        };
        let Some(socket) = &connection.socket else {
            return;
        };
        match send(socket, fixed, SendFlags::NOSIGNAL) {
            Ok(n) => {
                let warm_up = now < self.warm_until;
                self.out.totals.sent_bytes += n as u64;
                self.warm_bytes.sent += if warm_up { n as u64 } else { 0 };
                if n < len {
                    connection.out.extend_from_slice(&fixed[n..]);
                    connection.warm_out = if warm_up { len - n } else { 0 };
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                connection.out.extend_from_slice(fixed);
                connection.warm_out = if now < self.warm_until { len } else { 0 };
            }
            Err(why) => self.broken_write(index, why, now),
        }
    }

    pub(super) fn broken_write(&mut self, index: usize, why: Errno, now: u64) {
        if let Some(exact) = &mut self.out.exact {
            exact.errors[2] += 1;
        }
        let cause = FailureCause::from_errno(why);
        let connection = &mut self.connections[index];
        let may_have_answer = cause == FailureCause::Reset
            && !self.load.job.as_wrk
            && connection.state == HttpConnectionState::Open
            && !connection.write_failed;
        if may_have_answer {
            // The server may have answered before it closed the connection: RFC 9112 section 9.5.
            connection.write_failed = true;
            connection.clear_out();
            self.unread.push((index, connection.number));
            return;
        }
        self.fail_connection(index, cause, now);
    }

    /// Sends pending data.
    pub(super) fn flush(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        if connection.http3.is_some() {
            return self.transmit(index, now);
        }
        if now < self.warm_until {
            connection.warm_out = connection.out.len();
        }
        if connection.out_at < connection.out.len()
            && connection.state != HttpConnectionState::Handshake
            && let Some(tls) = &mut connection.tls
        {
            let text = &connection.out[connection.out_at..];
            // It accepts everything; its buffer has no limit.
            let _ = tls.writer().write_all(text);
            let len = text.len();
            self.out.totals.sent_bytes += len as u64;
            self.warm_bytes.sent += connection.handed_over(len);
            connection.clear_out();
        }
        let Some(socket) = &connection.socket else {
            return;
        };
        if let Some(tls) = &mut connection.tls {
            while tls.wants_write() {
                match tls.write_tls(&mut TlsOutput(socket)) {
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
        while connection.out_at < connection.out.len()
            && let Some(socket) = &connection.socket
        {
            match send(
                socket,
                &connection.out[connection.out_at..],
                SendFlags::NOSIGNAL,
            ) {
                Ok(n) => {
                    self.out.totals.sent_bytes += n as u64;
                    self.warm_bytes.sent += connection.handed_over(n);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(why) => return self.broken_write(index, why, now),
            }
        }
        connection.clear_out();
    }
}

/// Output of TLS.
struct TlsOutput<'a>(&'a OwnedFd);

impl std::io::Write for TlsOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
