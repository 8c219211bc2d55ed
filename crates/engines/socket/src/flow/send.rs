//! Sends a byte stream by one of several methods.

use std::{io, os::fd::BorrowedFd};

use rustix::{
    io::Errno,
    net::{SendFlags, send},
};
use wb_model::socket::SendBy;

use super::{
    LoopContext, LoopEnd, LoopTally,
    buffers::{BufferPlan, BufferRing},
    burst_pace::BurstPace,
    sendfile::FileSource,
    uring::UringSender,
    zerocopy::{self, ZeroCopyCompletions},
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
    pub pace: Option<BurstPace>,
}

/// Sends streams.
#[derive(Debug)]
pub struct BufferSender {
    method: SendMethod,
    limit: Option<u64>,
    pace: Option<BurstPace>,
}

#[derive(Debug)]
enum SendMethod {
    Copy(BufferRing),
    Write(BufferRing),
    File(FileSource),
    Zerocopy(BufferRing, ZeroCopyCompletions),
    Uring(Box<UringSender>),
}

impl BufferSender {
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
            SendBy::Copy => SendMethod::Copy(BufferRing::new(&plan.buffers)?),
            SendBy::Write => SendMethod::Write(BufferRing::new(&plan.buffers)?),
            SendBy::Sendfile => SendMethod::File(FileSource::new(&plan.buffers)?),
            SendBy::Zerocopy => SendMethod::Zerocopy(
                BufferRing::new(&plan.buffers)?,
                ZeroCopyCompletions::default(),
            ),
            SendBy::Uring => SendMethod::Uring(Box::new(UringSender::new(&plan.buffers)?)),
        };
        Ok(Self {
            method,
            limit: plan.limit,
            pace: plan.pace,
        })
    }

    /// Sends until stopped or until the limit. The sent part of a buffer counts.
    pub fn run(&mut self, fd: BorrowedFd<'_>, run: &mut LoopContext<'_>) -> LoopTally {
        let (limit, pace) = (self.limit, self.pace);
        match &mut self.method {
            SendMethod::Copy(ring) => send_stream(run, limit, pace, |most| {
                let sent = send(fd, shorten(ring.current(), most), SendFlags::NOSIGNAL);
                ring.advance();
                sent
            }),
            SendMethod::Write(ring) => send_stream(run, limit, pace, |most| {
                let sent = rustix::io::write(fd, shorten(ring.current(), most));
                ring.advance();
                sent
            }),
            SendMethod::File(source) => send_stream(run, limit, pace, |most| source.send(fd, most)),
            SendMethod::Zerocopy(ring, completions) => {
                *completions = match ZeroCopyCompletions::begin(fd) {
                    Ok(fresh) => fresh,
                    Err(error) => return LoopTally::from_error(error),
                };
                send_stream(run, limit, pace, |most| {
                    match send(
                        fd,
                        shorten(ring.current(), most),
                        zerocopy::zero_copy_flags(),
                    ) {
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
            SendMethod::Uring(uring) => uring.send_stream(fd, run, limit, pace),
        }
    }

    /// Waits until the kernel has released all buffers of zero-copy sends, and counts which sends were copied. Other
    /// methods do not wait. Call it after the last `run` on a socket, before closing it. `stop` ends the wait; the
    /// remaining sends are then not counted.
    pub fn wait_for_completions(
        &mut self,
        fd: BorrowedFd<'_>,
        stop: &Stopper,
        tally: &mut LoopTally,
    ) {
        match &mut self.method {
            SendMethod::Zerocopy(_, completions) => {
                completions.wait_for_completions(fd, stop, tally)
            }
            SendMethod::Uring(uring) => uring.wait_for_buffers(stop, tally),
            SendMethod::Copy(_) | SendMethod::Write(_) | SendMethod::File(_) => {}
        }
    }
}

impl Drop for BufferSender {
    fn drop(&mut self) {
        if let SendMethod::Zerocopy(ring, completions) = &mut self.method
            && completions.pending() > 0
        {
            ring.leak();
        }
    }
}

impl LoopTally {
    pub(super) fn from_error(error: io::Error) -> Self {
        Self {
            ended: LoopEnd::Failed(error),
            ..Self::default()
        }
    }
}

#[inline]
fn shorten(buffer: &[u8], most: u64) -> &[u8] {
    &buffer[..(buffer.len() as u64).min(most) as usize]
}

/// The loop of all methods with one call per send. `once` sends at most the given number of bytes.
#[inline]
fn send_stream(
    run: &mut LoopContext<'_>,
    limit: Option<u64>,
    pace: Option<BurstPace>,
    mut once: impl FnMut(u64) -> rustix::io::Result<usize>,
) -> LoopTally {
    run.run_loop(pace, |run, tally, pacer| {
        let mut left = limit.unwrap_or(u64::MAX);
        loop {
            let from = run.begin_operation()?;
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
            run.record_operation(from);
            if left > 0 {
                pacer.after_operation(run.stop)?;
            }
        }
    })
}

#[cfg(test)]
mod tests;
