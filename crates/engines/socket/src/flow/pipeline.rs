//! Several requests under way at once: a burst of them, or as a rate says.
//!
//! Requests go out without waiting, and answers are taken while a request is half sent, so two ends
//! with large messages cannot wait for each other in a send. Answers of a stream come in order.
//! Datagrams carry a number where both messages have room for it and the server gives it back; else
//! they are taken to come in order too.

use std::{net::SocketAddr, os::fd::BorrowedFd};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv},
};

use super::{
    Ended, Run, Tally,
    buffers::Ring,
    clock::{length, now_ns, sleep_exactly, timespec},
    messages::send_one,
    pace::{Pacer, Schedule},
    request::{RequestPlan, number_of, write_number},
};

/// Requests that are looked for in the time between two answers at most, so that answers are not
/// kept waiting by what is due.
const AT_ONCE: u32 = 64;

/// One run of requests that overlap.
pub(super) struct Pipeline<'a> {
    plan: &'a RequestPlan,
    requests: &'a mut Ring,
    responses: &'a mut Ring,
    fd: BorrowedFd<'a>,
    to: Option<SocketAddr>,
    /// When each request under way began, by its number modulo their most; empty with a rate, which
    /// says when they were due.
    stamps: Vec<u64>,
    schedule: Option<Schedule>,
    timeout: Option<u64>,
    /// Requests wholly handed over.
    sent: u64,
    /// Requests answered or given up: the number of the oldest that is under way.
    settled: u64,
    /// Bytes of the next request that are handed over.
    part: usize,
    /// Bytes of the next response that came.
    got: usize,
    /// When something came last, or the first was sent after nothing was under way.
    heard: u64,
    /// The last send found no room.
    blocked: bool,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(
        plan: &'a RequestPlan,
        requests: &'a mut Ring,
        responses: &'a mut Ring,
        fd: BorrowedFd<'a>,
        to: Option<SocketAddr>,
    ) -> Self {
        let schedule = plan.rate.map(Schedule::begin);
        if schedule.is_some() {
            sleep_exactly();
        }
        Self {
            stamps: vec![0; plan.first_burst as usize + 1],
            schedule,
            timeout: plan.timeout.filter(|_| plan.datagrams).map(length),
            plan,
            requests,
            responses,
            fd,
            to,
            sent: 0,
            settled: 0,
            part: 0,
            got: 0,
            heard: 0,
            blocked: false,
        }
    }

    pub(super) fn run(mut self, run: &mut Run<'_>) -> Tally {
        let mut tally = Tally::default();
        let mut pacer = self.plan.pace.map(Pacer::begin);
        tally.ended = match self.turn(run, &mut tally, pacer.as_mut()) {
            Ok(()) => Ended::Limit,
            Err(ended) => ended,
        };
        if let Some(pacer) = pacer {
            tally.waited = pacer.waited();
        }
        let begun = match &self.schedule {
            Some(schedule) => {
                let most = self.limit().saturating_add(tally.given_up);
                schedule.due_by(now_ns()).min(most).max(self.sent)
            }
            None => self.sent + u64::from(self.part > 0),
        };
        tally.unanswered = begun - self.settled;
        tally
    }

    fn limit(&self) -> u64 {
        self.plan.limit.unwrap_or(u64::MAX)
    }

    fn under_way(&self) -> u64 {
        self.sent - self.settled
    }

    fn turn(
        &mut self,
        run: &mut Run<'_>,
        tally: &mut Tally,
        mut pacer: Option<&mut Pacer>,
    ) -> Result<(), Ended> {
        while tally.transactions < self.limit() {
            if run.stop.stopped() {
                return Err(Ended::Stopped);
            }
            self.send_all(tally)?;
            let before = tally.transactions;
            self.take(run, tally)?;
            if tally.transactions > before
                && let Some(pacer) = &mut pacer
                && !pacer.after_operation(run.stop)
            {
                return Err(Ended::Stopped);
            }
        }
        Ok(())
    }

    /// Whether enough requests were sent for the limit; those that were given up do not count.
    fn all_begun(&self, tally: &Tally) -> bool {
        self.sent - tally.given_up >= self.limit()
    }

    /// Whether the next request may begin.
    fn may_send(&self, tally: &Tally) -> bool {
        if self.part > 0 {
            return true;
        }
        if self.all_begun(tally) {
            return false;
        }
        match &self.schedule {
            Some(schedule) => schedule.due(self.sent) <= now_ns(),
            None => self.under_way() <= u64::from(self.plan.first_burst),
        }
    }

    /// Sends what may go, until there is no room.
    fn send_all(&mut self, tally: &mut Tally) -> Result<(), Ended> {
        self.blocked = false;
        let mut left = AT_ONCE;
        while left > 0 && self.may_send(tally) {
            if self.part == 0 {
                self.begin_request();
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let bytes = &self.requests.current()[self.part..];
            match send_one(self.fd, self.to.as_ref(), bytes, flags) {
                Ok(n) => {
                    tally.bytes_sent += n as u64;
                    tally.send_calls += 1;
                    self.part += n;
                }
                Err(Errno::AGAIN) => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(Errno::INTR) => return Ok(()),
                Err(Errno::NOBUFS | Errno::NOMEM) if self.plan.datagrams => {
                    tally.failed_sends += 1;
                    return Ok(());
                }
                Err(error) => return Err(Ended::Failed(error.into())),
            }
            if self.part >= self.requests.size() {
                self.part = 0;
                self.sent += 1;
                self.requests.advance();
                left -= 1;
            }
        }
        Ok(())
    }

    fn begin_request(&mut self) {
        if self.timeout.is_some() && self.under_way() == 0 {
            self.heard = now_ns();
        }
        if self.schedule.is_none() {
            let at = self.sent % self.stamps.len() as u64;
            self.stamps[at as usize] = now_ns();
        }
        if self.plan.datagrams {
            write_number(self.requests.current_mut(), self.sent);
        }
    }

    /// Waits for an answer, or until the next request may go, and takes the answer.
    fn take(&mut self, run: &mut Run<'_>, tally: &mut Tally) -> Result<(), Ended> {
        // Where there is nothing to do but wait for an answer, the call that takes it waits. Else
        // it is waited for both, so that no request comes late because of an answer.
        let mut flags = RecvFlags::empty();
        if self.plan.spin || self.blocked || self.schedule.is_some() || self.timeout.is_some() {
            flags = RecvFlags::DONTWAIT;
            if !self.plan.spin && !self.wait(tally)? {
                self.give_up_if_late(tally);
                return Ok(());
            }
        }
        let into = &mut self.responses.current_mut()[self.got..];
        match recv(self.fd, into, flags) {
            Ok((0, _)) if !self.plan.datagrams => Err(Ended::Eof),
            Ok((n, _)) => {
                tally.bytes_received += n as u64;
                tally.receive_calls += 1;
                self.got += n;
                if self.plan.datagrams || self.got == self.responses.size() {
                    self.answered(run, tally);
                }
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => {
                self.give_up_if_late(tally);
                std::hint::spin_loop();
                Ok(())
            }
            Err(error) => Err(Ended::Failed(error.into())),
        }
    }

    /// Sleeps until something came (then true), until there is room, or until something is due.
    fn wait(&self, tally: &Tally) -> Result<bool, Ended> {
        let mut events = PollFlags::IN;
        if self.blocked {
            events |= PollFlags::OUT;
        }
        let mut until = u64::MAX;
        if let Some(schedule) = &self.schedule
            && !self.blocked
            && !self.all_begun(tally)
        {
            until = schedule.due(self.sent);
        }
        if let Some(timeout) = self.timeout.filter(|_| self.under_way() > 0) {
            until = until.min(self.heard + timeout);
        }
        let left = timespec(until.saturating_sub(if until < u64::MAX { now_ns() } else { 0 }));
        let mut fds = [PollFd::from_borrowed_fd(self.fd, events)];
        match poll(&mut fds, (until < u64::MAX).then_some(&left)) {
            Ok(_) => Ok(fds[0]
                .revents()
                .intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP)),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(Ended::Failed(error.into())),
        }
    }

    /// After the timeout all that is under way is given up.
    fn give_up_if_late(&mut self, tally: &mut Tally) {
        let Some(timeout) = self.timeout else {
            return;
        };
        if self.under_way() > 0 && now_ns() >= self.heard + timeout {
            tally.given_up += self.under_way();
            self.settled = self.sent;
        }
    }

    /// A whole response is there.
    fn answered(&mut self, run: &mut Run<'_>, tally: &mut Tally) {
        let size = self.got;
        self.got = 0;
        let mut number = self.settled;
        if self.plan.datagrams
            && let Some(given_back) = number_of(&self.responses.current()[..size])
        {
            number = given_back;
        }
        // The answer to what was given up, or the same answer again.
        if !(self.settled..self.sent).contains(&number) {
            return;
        }
        tally.given_up += number - self.settled;
        self.settled = number + 1;
        self.responses.advance();
        tally.transactions += 1;
        run.counters.add(2, (self.requests.size() + size) as u64);
        run.counters.add_transaction();
        if self.timeout.is_none() && run.recorder.is_none() {
            return;
        }
        self.heard = now_ns();
        if let Some(recorder) = run.recorder.as_deref_mut() {
            let from = match &self.schedule {
                Some(schedule) => schedule.due(number),
                None => self.stamps[(number % self.stamps.len() as u64) as usize],
            };
            recorder.record(self.heard.saturating_sub(from));
        }
    }
}
