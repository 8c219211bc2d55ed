//! The server of requests and responses.

use std::{io, os::fd::BorrowedFd, time::Instant};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, SocketAddrAny, recvfrom, send, sendto},
};

use super::{
    LoopContext, LoopEnd, LoopTally,
    buffers::{BufferPlan, BufferRing},
    burst_pace::{BurstPace, BurstPacer},
    messages::{AnsweringSocket, await_first, is_passing, receive_whole, send_whole},
    request::give_number_back,
};

/// Requests to answer.
#[derive(Clone, Debug, Default)]
pub struct RespondPlan {
    /// Request buffers; `size` is that of a request.
    pub request: BufferPlan,
    /// Response data.
    pub response: BufferPlan,
    /// Poll for requests instead of sleeping.
    pub spin: bool,
    /// Use datagrams instead of a stream.
    pub datagrams: bool,
    /// Answer datagrams from the address they were sent to; the socket has IP_PKTINFO.
    pub packet_info: bool,
    /// Connect the datagram socket to the source of the first request.
    pub connect: bool,
    /// Transactions that end the run.
    pub limit: Option<u64>,
    /// Bursts and pauses.
    pub pace: Option<BurstPace>,
}

/// Answers requests.
#[derive(Debug)]
pub struct Responder {
    plan: RespondPlan,
    requests: BufferRing,
    responses: BufferRing,
    answers: Option<AnsweringSocket>,
    /// Source of the last datagram.
    source: Option<SocketAddrAny>,
}

impl Responder {
    /// Allocates and fills the buffers.
    ///
    /// # Errors
    /// Fails for messages of 0 bytes, if memory runs out, or if a file cannot be read.
    pub fn new(plan: &RespondPlan) -> io::Result<Self> {
        if plan.request.size == 0 || plan.response.size == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a message of no bytes",
            ));
        }
        Ok(Self {
            requests: BufferRing::empty(&plan.request)?,
            responses: BufferRing::new(&plan.response)?,
            answers: (plan.packet_info && plan.datagrams && !plan.connect)
                .then(AnsweringSocket::new),
            source: None,
            plan: plan.clone(),
        })
    }

    /// Answers requests until the stream ends or an empty datagram arrives, until the limit, or until stopped.
    pub fn run(&mut self, fd: BorrowedFd<'_>, run: &mut LoopContext<'_>) -> LoopTally {
        run.run_loop(self.plan.pace, |run, tally, pacer| {
            if self.plan.datagrams {
                self.respond_by_datagrams(fd, run, tally, pacer)
            } else {
                self.respond_over_stream(fd, run, tally, pacer)
            }
        })
    }

    fn respond_over_stream(
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
            let into = self.requests.current_mut();
            tally.receive_calls += receive_whole(fd, into, self.plan.spin, run.stop)?;
            tally.bytes_received += asked;
            tally.send_calls += send_whole(fd, self.responses.current(), run.stop)?;
            tally.bytes_sent += given;
            self.count(run, tally, asked + given, from);
            if tally.transactions < limit {
                pacer.after_operation(run.stop)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn count(
        &mut self,
        run: &mut LoopContext<'_>,
        tally: &mut LoopTally,
        bytes: u64,
        from: Option<u64>,
    ) {
        run.count_transaction(tally, bytes, from);
        self.requests.advance();
        self.responses.advance();
    }

    fn respond_by_datagrams(
        &mut self,
        fd: BorrowedFd<'_>,
        run: &mut LoopContext<'_>,
        tally: &mut LoopTally,
        pacer: &mut BurstPacer,
    ) -> Result<(), LoopEnd> {
        tally.peer = await_first(fd, self.plan.spin, run.stop)?;
        tally.began = Some(Instant::now());
        if self.plan.connect
            && let Some(peer) = tally.peer
        {
            rustix::net::connect(fd, &peer)?;
        }
        let limit = self.plan.limit.unwrap_or(u64::MAX);
        let given = self.responses.size() as u64;
        while tally.transactions < limit {
            let from = run.begin_operation()?;
            let got = match self.receive(fd) {
                Ok(0) => return Err(LoopEnd::Eof),
                Ok(got) => got,
                Err(Errno::INTR | Errno::AGAIN) => {
                    std::hint::spin_loop();
                    continue;
                }
                Err(error) if is_passing(error) => continue,
                Err(error) => return Err(error.into()),
            };
            tally.receive_calls += 1;
            tally.bytes_received += got as u64;
            give_number_back(
                &self.requests.current()[..got],
                self.responses.current_mut(),
            );
            if !self.answer_last(fd, run, tally)? {
                continue;
            }
            tally.send_calls += 1;
            tally.bytes_sent += given;
            self.count(run, tally, got as u64 + given, from);
            if tally.transactions < limit {
                pacer.after_operation(run.stop)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, fd: BorrowedFd<'_>) -> rustix::io::Result<usize> {
        let into = self.requests.current_mut();
        if let Some(answers) = &mut self.answers {
            return answers.receive(fd, into, self.plan.spin);
        }
        let flags = if self.plan.spin {
            RecvFlags::DONTWAIT
        } else {
            RecvFlags::empty()
        };
        let (got, _, source) = recvfrom(fd, into, flags)?;
        self.source = source;
        Ok(got)
    }

    /// Answers the last request. Returns false if there was no buffer space.
    #[inline]
    fn answer_last(
        &mut self,
        fd: BorrowedFd<'_>,
        run: &LoopContext<'_>,
        tally: &mut LoopTally,
    ) -> Result<bool, LoopEnd> {
        let bytes = self.responses.current();
        loop {
            let sent = match (&mut self.answers, &self.source) {
                (Some(answers), _) => answers.send(fd, bytes),
                (None, Some(source)) if !self.plan.connect => {
                    sendto(fd, bytes, SendFlags::NOSIGNAL, source)
                }
                (None, _) => send(fd, bytes, SendFlags::NOSIGNAL),
            };
            match sent {
                Ok(_) => return Ok(true),
                Err(Errno::INTR) if run.stop.is_stopped() => return Err(LoopEnd::Stopped),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    tally.failed_sends += 1;
                    return Ok(false);
                }
                // The error concerns an earlier answer; this one has not been sent yet.
                Err(error) if is_passing(error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads one whole request and sends one response over a stream, for servers that accept a connection for each
    /// transaction. Counts and records nothing.
    ///
    /// # Errors
    /// Returns the reason if it was not completed.
    pub fn exchange_once(
        &mut self,
        fd: BorrowedFd<'_>,
        run: &mut LoopContext<'_>,
    ) -> Result<(), LoopEnd> {
        receive_whole(fd, self.requests.current_mut(), self.plan.spin, run.stop)?;
        send_whole(fd, self.responses.current(), run.stop)?;
        self.requests.advance();
        self.responses.advance();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
