//! Several requests in flight: a fixed number, or at a rate.
//!
//! Requests are sent without waiting, and answers are received even while a request is half sent. Therefore two ends
//! with large messages cannot deadlock in their sends. Answers of a stream arrive in order. Datagrams carry a number if
//! both messages have room and the server returns it, so each answer finds its request. Otherwise datagram answers are
//! assumed to be in order too.

use std::{net::SocketAddr, os::fd::BorrowedFd};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv},
};

use super::{
    LoopContext, LoopEnd, LoopTally,
    buffers::BufferRing,
    burst_pace::{BurstPacer, OperationSchedule},
    clock::{duration_ns, now_ns, sleep_exactly, to_timespec},
    messages::send_one,
    outstanding::OutstandingRequests,
    request::{RequestPlan, number_of, write_number},
};

/// Maximum requests sent between two checks for answers, so that due requests do not delay answers.
const AT_ONCE: u32 = 64;
/// A request is lost once at least this number of later requests overtook it, if no timeout applies.
const OVERTAKEN: u64 = 4096;
/// The same limit with a rate, in seconds of that rate, and its maximum in requests.
const OVERTAKEN_S: f64 = 2.0;
const OVERTAKEN_MOST: u64 = 1 << 22;

/// One run of overlapping requests.
pub(super) struct Pipeline<'a> {
    plan: &'a RequestPlan,
    requests: &'a mut BufferRing,
    responses: &'a mut BufferRing,
    fd: BorrowedFd<'a>,
    to: Option<SocketAddr>,
    /// Start time of each request in flight; with a rate, its due time.
    book: OutstandingRequests,
    schedule: Option<OperationSchedule>,
    timeout: Option<u64>,
    /// Start time of the next request, before any of it is sent.
    begins: u64,
    /// The server returns numbers, so a datagram without one is not its answer.
    gives_numbers: bool,
    /// Bytes of the next request already sent.
    part: usize,
    /// Bytes of the next response already received.
    got: usize,
    /// The last send found no buffer space.
    blocked: bool,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(
        plan: &'a RequestPlan,
        requests: &'a mut BufferRing,
        responses: &'a mut BufferRing,
        fd: BorrowedFd<'a>,
        to: Option<SocketAddr>,
    ) -> Self {
        let schedule = (plan.rate).map(|rate| OperationSchedule::begin(rate, plan.time));
        if schedule.is_some() {
            sleep_exactly();
        }
        Self {
            book: OutstandingRequests::new(match plan.rate {
                Some(rate) => ((rate * OVERTAKEN_S) as u64).clamp(OVERTAKEN, OVERTAKEN_MOST),
                None => OVERTAKEN.max(8 * (u64::from(plan.first_burst) + 1)),
            }),
            schedule,
            timeout: plan.timeout.filter(|_| plan.datagrams).map(duration_ns),
            plan,
            requests,
            responses,
            fd,
            to,
            begins: 0,
            gives_numbers: false,
            part: 0,
            got: 0,
            blocked: false,
        }
    }

    pub(super) fn run(mut self, run: &mut LoopContext<'_>) -> LoopTally {
        let mut tally = run.run_loop(self.plan.pace, |run, tally, pacer| {
            self.take_turn(run, tally, pacer)
        });
        tally.given_up = self.book.given_up();
        let due_and_not_sent = self.schedule.as_ref().map_or(0, |schedule| {
            let most = self.next_deadline().saturating_add(tally.given_up);
            let due = schedule.due_by(now_ns()).min(most);
            due.saturating_sub(self.book.begun_requests())
        });
        tally.unanswered = self.book.under_way() + due_and_not_sent;
        tally
    }

    fn next_deadline(&self) -> u64 {
        self.plan.limit.unwrap_or(u64::MAX)
    }

    fn take_turn(
        &mut self,
        run: &mut LoopContext<'_>,
        tally: &mut LoopTally,
        pacer: &mut BurstPacer,
    ) -> Result<(), LoopEnd> {
        while tally.transactions < self.next_deadline() {
            run.stop.check_stopped()?;
            self.send_all(tally)?;
            let before = tally.transactions;
            self.receive_answer(run, tally)?;
            if tally.transactions > before {
                pacer.after_operation(run.stop)?;
            }
        }
        Ok(())
    }

    /// Returns true if enough requests were sent for the limit, not counting those given up.
    fn all_begun(&self) -> bool {
        self.book.begun_requests() - self.book.given_up() >= self.next_deadline()
    }

    /// Returns true if the next request may begin.
    fn may_send(&self) -> bool {
        if self.part > 0 {
            return true;
        }
        if self.all_begun() {
            return false;
        }
        match &self.schedule {
            Some(schedule) => schedule.due_time(self.book.begun_requests()) <= now_ns(),
            None => self.book.under_way() <= u64::from(self.plan.first_burst),
        }
    }

    /// Sends due requests until there is no buffer space.
    fn send_all(&mut self, tally: &mut LoopTally) -> Result<(), LoopEnd> {
        self.blocked = false;
        let mut left = AT_ONCE;
        while left > 0 && self.may_send() {
            if self.part == 0 {
                self.begin_request();
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let bytes = &self.requests.current()[self.part..];
            match send_one(self.fd, self.to.as_ref(), bytes, flags) {
                Ok(n) => {
                    tally.bytes_sent += n as u64;
                    tally.send_calls += 1;
                    if self.part == 0 {
                        self.book.begin_next(self.begins);
                    }
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
                Err(error) => return Err(error.into()),
            }
            if self.part >= self.requests.size() {
                self.part = 0;
                self.requests.advance();
                left -= 1;
            }
        }
        Ok(())
    }

    fn begin_request(&mut self) {
        let number = self.book.begun_requests();
        self.begins = match &self.schedule {
            Some(schedule) => schedule.due_time(number),
            None => now_ns(),
        };
        if self.plan.datagrams {
            write_number(self.requests.current_mut(), number);
        }
    }

    /// Waits for an answer, or until the next request may begin, and receives the answer.
    fn receive_answer(
        &mut self,
        run: &mut LoopContext<'_>,
        tally: &mut LoopTally,
    ) -> Result<(), LoopEnd> {
        // If only an answer can arrive, the receive call itself waits. Otherwise poll for both events, so that an
        // answer never delays a request.
        let mut flags = RecvFlags::empty();
        if self.plan.spin || self.blocked || self.schedule.is_some() || self.timeout.is_some() {
            flags = RecvFlags::DONTWAIT;
            if !self.plan.spin && !self.wait()? {
                self.give_up_if_late();
                return Ok(());
            }
        }
        let into = &mut self.responses.current_mut()[self.got..];
        match recv(self.fd, into, flags) {
            Ok((0, _)) if !self.plan.datagrams => Err(LoopEnd::Eof),
            Ok((n, _)) => {
                tally.bytes_received += n as u64;
                tally.receive_calls += 1;
                self.got += n;
                if self.plan.datagrams || self.got == self.responses.size() {
                    self.complete_request(run, tally);
                }
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => {
                self.give_up_if_late();
                std::hint::spin_loop();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until data arrives (returns true), buffer space is free, or something is due.
    fn wait(&self) -> Result<bool, LoopEnd> {
        let mut events = PollFlags::IN;
        if self.blocked {
            events |= PollFlags::OUT;
        }
        let mut until = u64::MAX;
        if let Some(schedule) = &self.schedule
            && !self.blocked
            && !self.all_begun()
        {
            until = schedule.due_time(self.book.begun_requests());
        }
        if let (Some(timeout), Some(oldest)) = (self.timeout, self.book.oldest_start()) {
            until = until.min(oldest.saturating_add(timeout));
        }
        let left = to_timespec(until.saturating_sub(if until < u64::MAX { now_ns() } else { 0 }));
        let mut fds = [PollFd::from_borrowed_fd(self.fd, events)];
        match poll(&mut fds, (until < u64::MAX).then_some(&left)) {
            Ok(_) => Ok(fds[0]
                .revents()
                .intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP)),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives up requests in flight for longer than the timeout, except a partly sent one.
    fn give_up_if_late(&mut self) {
        if let Some(timeout) = self.timeout {
            self.book.give_up_until(now_ns().saturating_sub(timeout));
        }
    }

    /// Completes a request after its whole response has arrived.
    fn complete_request(&mut self, run: &mut LoopContext<'_>, tally: &mut LoopTally) {
        let size = self.got;
        self.got = 0;
        let Some(since) = self.match_answer(size, tally) else {
            return;
        };
        self.responses.advance();
        run.count_transaction(tally, (self.requests.size() + size) as u64, Some(since));
        self.give_up_if_late();
    }

    /// Start time of the request that this message answers. `None` if the request was answered or given up before, or
    /// if the message is not an answer.
    #[inline]
    fn match_answer(&mut self, size: usize, tally: &mut LoopTally) -> Option<u64> {
        if !self.plan.datagrams {
            return self.book.answer_oldest();
        }
        let number = number_of(&self.responses.current()[..size]);
        // In an answer of random bytes, a number that was never sent is a coincidence.
        if let Some(number) = number.filter(|number| *number < self.book.begun_requests()) {
            self.gives_numbers = true;
            return self.book.take_start(number);
        }
        if self.gives_numbers {
            return None;
        }
        tally.unnumbered += 1;
        self.book.answer_oldest()
    }
}
