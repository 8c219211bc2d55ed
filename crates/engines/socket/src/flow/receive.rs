//! Takes a stream of bytes, in one of several ways.

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
    Ended, Run, Tally,
    buffers::{BufferPlan, Ring},
};

/// A stream to be taken.
#[derive(Clone, Debug)]
pub struct ReceivePlan {
    /// Where it is put: as many bytes at once as a buffer has.
    pub buffers: BufferPlan,
    /// How.
    pub by: ReceiveBy,
    /// Bytes after which it is done; the last call may bring it past them.
    pub limit: Option<u64>,
}

/// Takes streams.
#[derive(Debug)]
pub struct Receiver {
    method: ReceiveMethod,
    limit: Option<u64>,
}

#[derive(Debug)]
enum ReceiveMethod {
    Recv(Ring, RecvFlags),
    Splice(Drain),
}

impl Receiver {
    /// Makes ready where it is put.
    ///
    /// # Errors
    /// Receives of no bytes; no memory; no pipe, no null device.
    pub fn new(plan: &ReceivePlan) -> io::Result<Self> {
        if plan.buffers.size == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a receive of no bytes",
            ));
        }
        let method = match plan.by {
            ReceiveBy::Copy => ReceiveMethod::Recv(Ring::empty(&plan.buffers)?, RecvFlags::empty()),
            ReceiveBy::Discard => {
                ReceiveMethod::Recv(Ring::empty(&plan.buffers)?, RecvFlags::TRUNC)
            }
            ReceiveBy::Splice => ReceiveMethod::Splice(Drain::new(plan.buffers.size as usize)?),
        };
        Ok(Self {
            method,
            limit: plan.limit,
        })
    }

    /// Takes what comes until the stream ends, until the limit, or until told to end.
    pub fn run(&mut self, fd: BorrowedFd<'_>, run: &mut Run<'_>) -> Tally {
        match &mut self.method {
            ReceiveMethod::Recv(ring, flags) => stream(run, self.limit, || {
                let got = recv(fd, ring.current_mut(), *flags);
                ring.advance();
                got.map(|(_, bytes)| bytes)
            }),
            ReceiveMethod::Splice(drain) => stream(run, self.limit, || drain.once(fd)),
        }
    }
}

#[inline]
fn stream(
    run: &mut Run<'_>,
    limit: Option<u64>,
    mut once: impl FnMut() -> rustix::io::Result<usize>,
) -> Tally {
    run.tally(None, |run, tally, _| {
        loop {
            let from = run.begin()?;
            if tally.bytes_received >= limit.unwrap_or(u64::MAX) {
                return Ok(());
            }
            let got = match once() {
                Ok(0) => return Err(Ended::Eof),
                Ok(got) => got as u64,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            tally.bytes_received += got;
            tally.receive_calls += 1;
            run.counters.add(1, got);
            run.record(from);
        }
    })
}

/// From a socket through a pipe to the null device: pages change hands, bytes are not copied.
#[derive(Debug)]
struct Drain {
    out: OwnedFd,
    into: OwnedFd,
    null: File,
    size: usize,
}

impl Drain {
    fn new(size: usize) -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        // As large as the receive, if the user's limit allows; else less goes at once.
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
    fn once(&mut self, fd: BorrowedFd<'_>) -> rustix::io::Result<usize> {
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
