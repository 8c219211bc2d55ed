//! Several requests under way at once: a burst of them, or as a rate says.
//!
//! Requests go out without waiting, and answers are taken while a request is half sent, so two ends
//! with large messages cannot wait for each other in a send. Answers of a stream come in order.
//! Datagrams carry a number where both messages have room for it and the server gives it back: then
//! each answer finds its request, whatever came before it. Else they are taken to come in order too.

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
    outstanding::Outstanding,
    pace::{Pacer, Schedule},
    request::{RequestPlan, number_of, write_number},
};

/// Requests that are looked for in the time between two answers at most, so that answers are not
/// kept waiting by what is due.
const AT_ONCE: u32 = 64;
/// A request that was overtaken by so many others, at least, is lost, where no timeout says when.
const OVERTAKEN: u64 = 4096;
/// The same with a rate, in seconds of it, and at most.
const OVERTAKEN_S: f64 = 2.0;
const OVERTAKEN_MOST: u64 = 1 << 22;

/// One run of requests that overlap.
pub(super) struct Pipeline<'a> {
    plan: &'a RequestPlan,
    requests: &'a mut Ring,
    responses: &'a mut Ring,
    fd: BorrowedFd<'a>,
    to: Option<SocketAddr>,
    /// Since when each request is under way; with a rate, since it was due.
    book: Outstanding,
    schedule: Option<Schedule>,
    timeout: Option<u64>,
    /// When the next request began, of which nothing is handed over yet.
    begins: u64,
    /// The server gives numbers back: what comes without one is not an answer of its.
    gives_numbers: bool,
    /// Bytes of the next request that are handed over.
    part: usize,
    /// Bytes of the next response that came.
    got: usize,
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
        let schedule = (plan.rate).map(|rate| Schedule::begin(rate, plan.time));
        if schedule.is_some() {
            sleep_exactly();
        }
        Self {
            book: Outstanding::new(match plan.rate {
                Some(rate) => ((rate * OVERTAKEN_S) as u64).clamp(OVERTAKEN, OVERTAKEN_MOST),
                None => OVERTAKEN.max(8 * (u64::from(plan.first_burst) + 1)),
            }),
            schedule,
            timeout: plan.timeout.filter(|_| plan.datagrams).map(length),
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

    pub(super) fn run(mut self, run: &mut Run<'_>) -> Tally {
        let mut tally = run.tally(self.plan.pace, |run, tally, pacer| {
            self.turn(run, tally, pacer)
        });
        tally.given_up = self.book.given_up();
        let due_and_not_sent = self.schedule.as_ref().map_or(0, |schedule| {
            let most = self.limit().saturating_add(tally.given_up);
            let due = schedule.due_by(now_ns()).min(most);
            due.saturating_sub(self.book.begun())
        });
        tally.unanswered = self.book.under_way() + due_and_not_sent;
        tally
    }

    fn limit(&self) -> u64 {
        self.plan.limit.unwrap_or(u64::MAX)
    }

    fn turn(
        &mut self,
        run: &mut Run<'_>,
        tally: &mut Tally,
        pacer: &mut Pacer,
    ) -> Result<(), Ended> {
        while tally.transactions < self.limit() {
            run.stop.check()?;
            self.send_all(tally)?;
            let before = tally.transactions;
            self.take(run, tally)?;
            if tally.transactions > before {
                pacer.after_operation(run.stop)?;
            }
        }
        Ok(())
    }

    /// Whether enough requests were sent for the limit; those that were given up do not count.
    fn all_begun(&self) -> bool {
        self.book.begun() - self.book.given_up() >= self.limit()
    }

    /// Whether the next request may begin.
    fn may_send(&self) -> bool {
        if self.part > 0 {
            return true;
        }
        if self.all_begun() {
            return false;
        }
        match &self.schedule {
            Some(schedule) => schedule.due(self.book.begun()) <= now_ns(),
            None => self.book.under_way() <= u64::from(self.plan.first_burst),
        }
    }

    /// Sends what may go, until there is no room.
    fn send_all(&mut self, tally: &mut Tally) -> Result<(), Ended> {
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
                        self.book.begin(self.begins);
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
        let number = self.book.begun();
        self.begins = match &self.schedule {
            Some(schedule) => schedule.due(number),
            None => now_ns(),
        };
        if self.plan.datagrams {
            write_number(self.requests.current_mut(), number);
        }
    }

    /// Waits for an answer, or until the next request may go, and takes the answer.
    fn take(&mut self, run: &mut Run<'_>, tally: &mut Tally) -> Result<(), Ended> {
        // Where there is nothing to do but wait for an answer, the call that takes it waits. Else
        // it is waited for both, so that no request comes late because of an answer.
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
                self.give_up_if_late();
                std::hint::spin_loop();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until something came (then true), until there is room, or until something is due.
    fn wait(&self) -> Result<bool, Ended> {
        let mut events = PollFlags::IN;
        if self.blocked {
            events |= PollFlags::OUT;
        }
        let mut until = u64::MAX;
        if let Some(schedule) = &self.schedule
            && !self.blocked
            && !self.all_begun()
        {
            until = schedule.due(self.book.begun());
        }
        if let (Some(timeout), Some(oldest)) = (self.timeout, self.book.oldest()) {
            until = until.min(oldest.saturating_add(timeout));
        }
        let left = timespec(until.saturating_sub(if until < u64::MAX { now_ns() } else { 0 }));
        let mut fds = [PollFd::from_borrowed_fd(self.fd, events)];
        match poll(&mut fds, (until < u64::MAX).then_some(&left)) {
            Ok(_) => Ok(fds[0]
                .revents()
                .intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP)),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives up what has been under way for longer than the timeout. A request of which only a part
    /// went stays.
    fn give_up_if_late(&mut self) {
        if let Some(timeout) = self.timeout {
            self.book.give_up_until(now_ns().saturating_sub(timeout));
        }
    }

    /// A whole response is there.
    fn answered(&mut self, run: &mut Run<'_>, tally: &mut Tally) {
        let size = self.got;
        self.got = 0;
        let Some(since) = self.settle(size, tally) else {
            return;
        };
        self.responses.advance();
        run.transacted(tally, (self.requests.size() + size) as u64, Some(since));
        self.give_up_if_late();
    }

    /// Since when the request was under way that this answers; none if it was answered or given up
    /// before, or is nobody's answer.
    #[inline]
    fn settle(&mut self, size: usize, tally: &mut Tally) -> Option<u64> {
        if !self.plan.datagrams {
            return self.book.answer_oldest();
        }
        let number = number_of(&self.responses.current()[..size]);
        // A number that was not sent is chance, in an answer of random bytes.
        if let Some(number) = number.filter(|number| *number < self.book.begun()) {
            self.gives_numbers = true;
            return self.book.answer(number);
        }
        if self.gives_numbers {
            return None;
        }
        tally.unnumbered += 1;
        self.book.answer_oldest()
    }
}
