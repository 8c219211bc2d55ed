//! The client of requests and responses: a request, its response, the next request.

use std::{io, net::SocketAddr, os::fd::BorrowedFd, time::Duration};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv},
};

use super::{
    LoopContext, LoopEnd, LoopTally,
    buffers::{BufferPlan, BufferRing},
    burst_pace::{BurstPace, BurstPacer},
    clock::{duration_ns, now_ns, to_timespec},
    messages::{receive_whole, send_one, send_whole},
    pipeline::Pipeline,
};

/// First bytes of a numbered request datagram: the magic number of our tag with another version, so that the two are
/// never confused.
const NUMBERED: [u8; 2] = [0xb5, 0xe2];
/// Bytes of the number and its prefix.
pub(super) const NUMBER: usize = 8;

/// Requests to send.
#[derive(Clone, Debug, Default)]
pub struct RequestPlan {
    /// Request data.
    pub request: BufferPlan,
    /// Response buffers; `size` is that of a response.
    pub response: BufferPlan,
    /// Requests in flight in addition to the one that is waited for.
    pub first_burst: u32,
    /// Requests per second, on an absolute schedule. A late client sends all due requests at once on the same
    /// connection. The time of each request starts when it was due.
    pub rate: Option<f64>,
    /// Length of the schedule; `None` is unlimited.
    pub time: Option<Duration>,
    /// Bursts and pauses.
    pub pace: Option<BurstPace>,
    /// Poll for answers instead of sleeping.
    pub spin: bool,
    /// Use datagrams instead of a stream.
    pub datagrams: bool,
    /// Time limit for a datagram answer, after which the request is given up.
    pub timeout: Option<Duration>,
    /// Transactions that end the run.
    pub limit: Option<u64>,
}

/// Sends requests and receives the answers.
#[derive(Debug)]
pub struct Requester {
    plan: RequestPlan,
    requests: BufferRing,
    responses: BufferRing,
}

impl Requester {
    /// Allocates and fills the buffers.
    ///
    /// # Errors
    /// Fails for messages of 0 bytes, if memory runs out, or if a file cannot be read.
    pub fn new(plan: &RequestPlan) -> io::Result<Self> {
        if plan.request.size == 0 || plan.response.size == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a message of no bytes",
            ));
        }
        Ok(Self {
            requests: BufferRing::new(&plan.request)?,
            responses: BufferRing::empty(&plan.response)?,
            plan: plan.clone(),
        })
    }

    /// Runs until stopped or until the limit. The destination is `to`, or the peer of a connected socket.
    pub fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<SocketAddr>,
        run: &mut LoopContext<'_>,
    ) -> LoopTally {
        if self.plan.first_burst > 0 || self.plan.rate.is_some() {
            let (requests, responses) = (&mut self.requests, &mut self.responses);
            return Pipeline::new(&self.plan, requests, responses, fd, to).run(run);
        }
        run.run_loop(self.plan.pace, |run, tally, pacer| {
            if self.plan.datagrams {
                self.request_by_datagrams(fd, to.as_ref(), run, tally, pacer)
            } else {
                self.request_over_stream(fd, run, tally, pacer)
            }
        })
    }

    /// One request at a time over a stream.
    fn request_over_stream(
        &mut self,
        fd: BorrowedFd<'_>,
        run: &mut LoopContext<'_>,
        tally: &mut LoopTally,
        pacer: &mut BurstPacer,
    ) -> Result<(), LoopEnd> {
        let limit = self.plan.limit.unwrap_or(u64::MAX);
        let (asked, given) = (self.requests.size() as u64, self.responses.size() as u64);
        while tally.transactions < limit {
            let from = run.begin_operation()?;
            tally.unanswered = 1;
            tally.send_calls += send_whole(fd, self.requests.current(), run.stop)?;
            tally.bytes_sent += asked;
            let into = self.responses.current_mut();
            tally.receive_calls += receive_whole(fd, into, self.plan.spin, run.stop)?;
            tally.bytes_received += given;
            tally.unanswered = 0;
            run.count_transaction(tally, asked + given, from);
            self.requests.advance();
            self.responses.advance();
            if tally.transactions < limit {
                pacer.after_operation(run.stop)?;
            }
        }
        Ok(())
    }

    /// One request at a time by datagrams, some of which may be lost.
    fn request_by_datagrams(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<&SocketAddr>,
        run: &mut LoopContext<'_>,
        tally: &mut LoopTally,
        pacer: &mut BurstPacer,
    ) -> Result<(), LoopEnd> {
        let limit = self.plan.limit.unwrap_or(u64::MAX);
        let asked = self.requests.size() as u64;
        let timeout = self.plan.timeout.map(duration_ns);
        let mut number = 0;
        while tally.transactions < limit {
            run.stop.check_stopped()?;
            let from = (run.recorder.is_some() || timeout.is_some()).then(now_ns);
            number += 1;
            // A number prevents a late or repeated answer from being taken for this request's answer.
            write_number(self.requests.current_mut(), number);
            match send_one(fd, to, self.requests.current(), SendFlags::NOSIGNAL) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    tally.failed_sends += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            tally.send_calls += 1;
            tally.bytes_sent += asked;
            tally.unanswered = 1;
            let until = from.zip(timeout).map(|(from, timeout)| from + timeout);
            let Some(given) = self.await_answer(fd, number, until, run, tally)? else {
                tally.unanswered = 0;
                tally.given_up += 1;
                continue;
            };
            tally.unanswered = 0;
            run.count_transaction(tally, asked + given, from);
            self.requests.advance();
            self.responses.advance();
            if tally.transactions < limit {
                pacer.after_operation(run.stop)?;
            }
        }
        Ok(())
    }

    /// Length of the answer to a request; `None` if none arrived in time.
    #[inline]
    fn await_answer(
        &mut self,
        fd: BorrowedFd<'_>,
        number: u64,
        until: Option<u64>,
        run: &LoopContext<'_>,
        tally: &mut LoopTally,
    ) -> Result<Option<u64>, LoopEnd> {
        let waits = self.plan.spin || until.is_some();
        let flags = if waits {
            RecvFlags::DONTWAIT
        } else {
            RecvFlags::empty()
        };
        loop {
            if let Some(until) = until
                && !self.plan.spin
                && !wait_readable(fd, until)?
            {
                run.stop.check_stopped()?;
                if now_ns() >= until {
                    return Ok(None);
                }
                continue;
            }
            let into = self.responses.current_mut();
            match recv(fd, &mut *into, flags) {
                Ok((got, _)) => {
                    tally.receive_calls += 1;
                    tally.bytes_received += got as u64;
                    // In an answer of random bytes, a number that was never sent is a coincidence.
                    let late = number_of(&into[..got]).is_some_and(|answered| answered < number);
                    if !late {
                        return Ok(Some(got as u64));
                    }
                }
                Err(Errno::INTR | Errno::AGAIN) => {
                    run.stop.check_stopped()?;
                    if until.is_some_and(|until| now_ns() >= until) {
                        return Ok(None);
                    }
                    std::hint::spin_loop();
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// One request and its whole response over a stream, for clients that connect for each transaction. Counts and
    /// records nothing.
    ///
    /// # Errors
    /// Returns the reason if it was not completed.
    pub fn exchange_once(
        &mut self,
        fd: BorrowedFd<'_>,
        run: &mut LoopContext<'_>,
    ) -> Result<(), LoopEnd> {
        send_whole(fd, self.requests.current(), run.stop)?;
        receive_whole(fd, self.responses.current_mut(), self.plan.spin, run.stop)?;
        self.requests.advance();
        self.responses.advance();
        Ok(())
    }
}

/// Sleeps until a datagram or an error is pending (returns true), until a time, or until a signal.
fn wait_readable(fd: BorrowedFd<'_>, until: u64) -> Result<bool, LoopEnd> {
    use rustix::event::{PollFd, PollFlags, poll};

    let left = to_timespec(until.saturating_sub(now_ns()));
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    match poll(&mut fds, Some(&left)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Writes a request's number if there is room. A wirebench server returns it; netserver does not.
#[inline]
pub(super) fn write_number(request: &mut [u8], number: u64) {
    if let Some(head) = request.first_chunk_mut::<NUMBER>() {
        *head = number.to_be_bytes();
        head[..2].copy_from_slice(&NUMBERED);
    }
}

/// The number of a numbered message.
#[inline]
pub(super) fn number_of(message: &[u8]) -> Option<u64> {
    let mut head = *message.first_chunk::<NUMBER>()?;
    if head[..2] != NUMBERED {
        return None;
    }
    head[..2].fill(0);
    Some(u64::from_be_bytes(head))
}

/// Copies the request's number into the response, if there is one and room for it.
#[inline]
pub(super) fn give_number_back(request: &[u8], response: &mut [u8]) {
    if let (Some(asked), Some(given)) = (
        request.first_chunk::<NUMBER>(),
        response.first_chunk_mut::<NUMBER>(),
    ) && asked[..2] == NUMBERED
    {
        *given = *asked;
    }
}
