//! Sends a byte stream by one of several methods.

use std::{io, os::fd::BorrowedFd};

use rustix::{
    io::Errno,
    net::{SendFlags, send},
};
use wb_model::socket::SendBy;

use super::{
    Ended, Run, Tally,
    buffers::{BufferPlan, Ring},
    pace::Pace,
    sendfile::Source,
    uring::Uring,
    zerocopy::{self, Completions},
};
use crate::Stopper;

/// A stream to send.
#[derive(Clone, Debug)]
pub struct SendPlan {
    /// Data to send; each call sends one buffer.
    pub buffers: BufferPlan,
    /// Send method.
    pub by: SendBy,
    /// Bytes that end the stream, exactly. (netperf rounds up to whole sends.)
    pub limit: Option<u64>,
    /// Bursts and pauses.
    pub pace: Option<Pace>,
}

/// Sends streams.
#[derive(Debug)]
pub struct Sender {
    method: SendMethod,
    limit: Option<u64>,
    pace: Option<Pace>,
}

#[derive(Debug)]
enum SendMethod {
    Copy(Ring),
    Write(Ring),
    File(Source),
    Zerocopy(Ring, Completions),
    Uring(Box<Uring>),
}

impl Sender {
    /// Allocates and fills the buffers.
    ///
    /// # Errors
    /// Fails for a send size of 0, if memory runs out, if a file cannot be read, or if the kernel lacks io_uring
    /// zero-copy sends.
    pub fn new(plan: &SendPlan) -> io::Result<Self> {
        if plan.buffers.size == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a send of no bytes",
            ));
        }
        let method = match plan.by {
            SendBy::Copy => SendMethod::Copy(Ring::new(&plan.buffers)?),
            SendBy::Write => SendMethod::Write(Ring::new(&plan.buffers)?),
            SendBy::Sendfile => SendMethod::File(Source::new(&plan.buffers)?),
            SendBy::Zerocopy => {
                SendMethod::Zerocopy(Ring::new(&plan.buffers)?, Completions::default())
            }
            SendBy::Uring => SendMethod::Uring(Box::new(Uring::new(&plan.buffers)?)),
        };
        Ok(Self {
            method,
            limit: plan.limit,
            pace: plan.pace,
        })
    }

    /// Sends until stopped or until the limit. The sent part of a buffer counts.
    pub fn run(&mut self, fd: BorrowedFd<'_>, run: &mut Run<'_>) -> Tally {
        let (limit, pace) = (self.limit, self.pace);
        match &mut self.method {
            SendMethod::Copy(ring) => stream(run, limit, pace, |most| {
                let sent = send(fd, shortened(ring.current(), most), SendFlags::NOSIGNAL);
                ring.advance();
                sent
            }),
            SendMethod::Write(ring) => stream(run, limit, pace, |most| {
                let sent = rustix::io::write(fd, shortened(ring.current(), most));
                ring.advance();
                sent
            }),
            SendMethod::File(source) => stream(run, limit, pace, |most| source.send(fd, most)),
            SendMethod::Zerocopy(ring, completions) => {
                *completions = match Completions::begin(fd) {
                    Ok(fresh) => fresh,
                    Err(error) => return Tally::failed(error),
                };
                stream(run, limit, pace, |most| {
                    match send(fd, shortened(ring.current(), most), zerocopy::flags()) {
                        Ok(sent) => {
                            completions.after_sends(fd, 1);
                            ring.advance();
                            Ok(sent)
                        }
                        Err(error) if completions.make_room(fd, error) => Err(Errno::INTR),
                        Err(error) => Err(error),
                    }
                })
            }
            SendMethod::Uring(uring) => uring.stream(fd, run, limit, pace),
        }
    }

    /// Waits until the kernel has released all buffers of zero-copy sends, and counts which sends were copied. Other
    /// methods do not wait. Call it after the last `run` on a socket, before closing it. `stop` ends the wait; the
    /// remaining sends are then not counted.
    pub fn settle(&mut self, fd: BorrowedFd<'_>, stop: &Stopper, tally: &mut Tally) {
        match &mut self.method {
            SendMethod::Zerocopy(_, completions) => completions.settle(fd, stop, tally),
            SendMethod::Uring(uring) => uring.settle(stop, tally),
            SendMethod::Copy(_) | SendMethod::Write(_) | SendMethod::File(_) => {}
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let SendMethod::Zerocopy(ring, completions) = &mut self.method
            && completions.pending() > 0
        {
            ring.leak();
        }
    }
}

impl Tally {
    pub(super) fn failed(error: io::Error) -> Self {
        Self {
            ended: Ended::Failed(error),
            ..Self::default()
        }
    }
}

#[inline]
fn shortened(buffer: &[u8], most: u64) -> &[u8] {
    &buffer[..(buffer.len() as u64).min(most) as usize]
}

/// The loop of all methods with one call per send. `once` sends at most the given number of bytes.
#[inline]
fn stream(
    run: &mut Run<'_>,
    limit: Option<u64>,
    pace: Option<Pace>,
    mut once: impl FnMut(u64) -> rustix::io::Result<usize>,
) -> Tally {
    run.tally(pace, |run, tally, pacer| {
        let mut left = limit.unwrap_or(u64::MAX);
        loop {
            let from = run.begin()?;
            if left == 0 {
                return Ok(());
            }
            let sent = match once(left) {
                Ok(sent) => sent as u64,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            left -= sent;
            tally.bytes_sent += sent;
            tally.send_calls += 1;
            run.counters.add(1, sent);
            run.record(from);
            if left > 0 {
                pacer.after_operation(run.stop)?;
            }
        }
    })
}

#[cfg(test)]
mod tests;
