//! Receives a byte stream by one of several methods.

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
    pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice},
};
use wb_model::socket::ReceiveBy;

use super::{
    LoopContext, LoopEnd, LoopTally,
    buffers::{BufferPlan, BufferRing},
};

/// A stream to receive.
#[derive(Clone, Debug)]
pub struct ReceivePlan {
    /// Receive buffers; each call reads at most one buffer.
    pub buffers: BufferPlan,
    /// Receive method.
    pub by: ReceiveBy,
    /// Bytes that end the stream; the last call may exceed this number.
    pub limit: Option<u64>,
}

/// Receives streams.
#[derive(Debug)]
pub struct StreamReceiver {
    method: ReceiveMethod,
    limit: Option<u64>,
}

#[derive(Debug)]
enum ReceiveMethod {
    Recv(BufferRing, RecvFlags),
    Splice(SpliceDrain),
}

impl StreamReceiver {
    /// Allocates the receive buffers.
    ///
    /// # Errors
    /// Fails for a receive size of 0, if memory runs out, or if the pipe or the null device cannot be opened.
    pub fn new(plan: &ReceivePlan) -> io::Result<Self> {
        if plan.buffers.size == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a receive of no bytes",
            ));
        }
        let method = match plan.by {
            ReceiveBy::Copy => {
                ReceiveMethod::Recv(BufferRing::empty(&plan.buffers)?, RecvFlags::empty())
            }
            ReceiveBy::Discard => {
                ReceiveMethod::Recv(BufferRing::empty(&plan.buffers)?, RecvFlags::TRUNC)
            }
            ReceiveBy::Splice => {
                ReceiveMethod::Splice(SpliceDrain::new(plan.buffers.size as usize)?)
            }
        };
        Ok(Self {
            method,
            limit: plan.limit,
        })
    }

    /// Receives until the stream ends, until the limit, or until stopped.
    pub fn run(&mut self, fd: BorrowedFd<'_>, run: &mut LoopContext<'_>) -> LoopTally {
        match &mut self.method {
            ReceiveMethod::Recv(ring, flags) => receive_stream(run, self.limit, || {
                let got = recv(fd, ring.current_mut(), *flags);
                ring.advance();
                got.map(|(_, bytes)| bytes)
            }),
            ReceiveMethod::Splice(drain) => {
                receive_stream(run, self.limit, || drain.splice_once(fd))
            }
        }
    }
}

#[inline]
fn receive_stream(
    run: &mut LoopContext<'_>,
    limit: Option<u64>,
    mut once: impl FnMut() -> rustix::io::Result<usize>,
) -> LoopTally {
    run.run_loop(None, |run, tally, _| {
        loop {
            let from = run.begin_operation()?;
            if tally.bytes_received >= limit.unwrap_or(u64::MAX) {
                return Ok(());
            }
            let got = match once() {
                Ok(0) => return Err(LoopEnd::Eof),
                Ok(got) => got as u64,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            tally.bytes_received += got;
            tally.receive_calls += 1;
            run.counters.add(1, got);
            run.record_operation(from);
        }
    })
}

/// Splices from a socket through a pipe to the null device: pages change hands, bytes are not copied.
#[derive(Debug)]
struct SpliceDrain {
    out: OwnedFd,
    into: OwnedFd,
    null: File,
    size: usize,
}

impl SpliceDrain {
    fn new(size: usize) -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        // Size of a receive if the user's limit allows; otherwise each call moves less.
        let _ = fcntl_setpipe_size(&into, size.clamp(65_536, 1 << 20));
        let null = OpenOptions::new().write(true).open("/dev/null")?;
        Ok(Self {
            out,
            into,
            null,
            size,
        })
    }

    #[inline]
    fn splice_once(&mut self, fd: BorrowedFd<'_>) -> rustix::io::Result<usize> {
        let got = splice(fd, None, &self.into, None, self.size, SpliceFlags::MOVE)?;
        let mut left = got;
        while left > 0 {
            match splice(&self.out, None, &self.null, None, left, SpliceFlags::MOVE) {
                Ok(n) => left -= n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }
}
