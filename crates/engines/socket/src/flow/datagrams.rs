//! Streams of datagrams: one by one, several with one call, or many as one that the kernel cuts.
//!
//! A datagram that the kernel has no room for is a failed send; the sender goes on. An empty datagram
//! is the end.

use std::{
    io,
    net::SocketAddr,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv},
};
use wb_wire::Tag;

use super::{
    Ended, Run, Tally,
    buffers::{BufferPlan, Ring},
    clock::{now_ns, sleep_exactly, sleep_until, wall_ns},
    messages::{Batch, await_first, is_passing, send_one},
    pace::{Pace, Pacer, Schedule},
    tags::{TagReader, TagReport},
    zerocopy::{self, Completions},
};
use crate::{Stopper, sys::set_int};

/// udp.h: UDP_SEGMENT.
const UDP_SEGMENT: i32 = 103;
/// Segments of a large datagram at most: udp.h UDP_MAX_SEGMENTS of all kernels that have it.
const MOST_SEGMENTS: u32 = 64;
/// Payload of the longest datagram: 65535 bytes less the headers of IPv4 and UDP.
const LONGEST: u32 = 65_507;
/// Of a datagram that is thrown away, what is looked at.
const HEAD: usize = 64;
/// Empty datagrams at the end, for some may be lost.
const ENDS: usize = 3;

/// The datagrams of this size that make so many bits per second: what is asked of them is kept to by a
/// schedule, as the kernel does not.
pub fn datagrams_per_second(bps: Option<u64>, size: u32) -> Option<f64> {
    bps.map(|bps| bps as f64 / 8.0 / f64::from(size.max(1)))
}

/// A stream of datagrams to be sent.
#[derive(Clone, Debug, Default)]
pub struct DatagramSendPlan {
    /// What is sent; `size` is that of a datagram, 1 to 65507.
    pub buffers: BufferPlan,
    /// Datagrams handed over with one call; 0 and 1 is one by one.
    pub batch: u32,
    /// A batch goes as one large datagram that is cut on the way (UDP_SEGMENT); at most 64, and as
    /// many as fit into 65507 bytes.
    pub gso: bool,
    /// Without a copy (MSG_ZEROCOPY).
    pub zerocopy: bool,
    /// Datagrams per second, on an absolute schedule.
    pub rate: Option<f64>,
    /// Length of the schedule; without it the schedule has no end.
    pub time: Option<Duration>,
    /// Bursts and pauses; counted in calls.
    pub pace: Option<Pace>,
    /// Bytes after which it is done: the datagram that reaches them is the last, or its batch.
    pub limit: Option<u64>,
    /// With a tag of this stream in each datagram, which needs 18 bytes.
    pub flow: Option<u32>,
    /// Wait for the schedule without sleeping.
    pub spin: bool,
}

/// Sends streams of datagrams.
#[derive(Debug)]
pub struct DatagramSender {
    plan: DatagramSendPlan,
    /// Datagrams of a batch.
    batch: usize,
    /// For batches that are cut, a buffer is a whole batch.
    ring: Ring,
    messages: Option<Batch>,
    completions: Option<Completions>,
}

impl DatagramSender {
    /// Makes ready what is sent.
    ///
    /// # Errors
    /// A size that no datagram has, or too small for tags; no memory; a file that cannot be read.
    pub fn new(plan: &DatagramSendPlan) -> io::Result<Self> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let size = plan.buffers.size;
        if !(1..=LONGEST).contains(&size) {
            return Err(invalid(format!(
                "datagrams of {size} bytes; 1 to {LONGEST}"
            )));
        }
        if plan.flow.is_some() && (size as usize) < Tag::LEN {
            return Err(invalid(format!(
                "datagrams of {size} bytes; tags need {}",
                Tag::LEN
            )));
        }
        let mut batch = plan.batch.max(1);
        let mut buffers = plan.buffers.clone();
        let mut messages = None;
        if plan.gso {
            batch = batch.min(MOST_SEGMENTS).min(LONGEST / size);
            buffers.size = size * batch;
        } else if batch > 1 {
            buffers.width = buffers.width.max(batch).next_multiple_of(batch);
            messages = Some(Batch::new(batch as usize));
        }
        let mut ring = Ring::new(&buffers)?;
        if let Some(flow) = plan.flow {
            let tag = Tag {
                flow,
                sequence: 0,
                time_ns: 0,
            };
            for n in 0..ring.width() {
                for datagram in ring.at_mut(n).chunks_exact_mut(size as usize) {
                    tag.write(datagram.first_chunk_mut().expect("checked above"));
                }
            }
        }
        Ok(Self {
            plan: plan.clone(),
            batch: batch as usize,
            ring,
            messages,
            completions: None,
        })
    }

    /// Sends until told to end, or until the limit; to an address, or where the socket is connected
    /// to.
    pub fn run(&mut self, fd: BorrowedFd<'_>, to: Option<SocketAddr>, run: &mut Run<'_>) -> Tally {
        self.completions = None;
        if self.plan.zerocopy {
            match Completions::begin(fd) {
                Ok(fresh) => self.completions = Some(fresh),
                Err(error) => return Tally::failed(error),
            }
        }
        if !self.plan.gso || self.batch == 1 {
            return self.stream(fd, to, run);
        }
        let segment = |bytes: i32| set_int(fd, libc::SOL_UDP, UDP_SEGMENT, bytes);
        if let Err(error) = segment(self.plan.buffers.size.cast_signed()) {
            return Tally::failed(io::Error::new(
                error.kind(),
                format!("UDP_SEGMENT: {error}"),
            ));
        }
        let tally = self.stream(fd, to, run);
        // The end marks go one by one.
        let _ = segment(0);
        tally
    }

    fn stream(&mut self, fd: BorrowedFd<'_>, to: Option<SocketAddr>, run: &mut Run<'_>) -> Tally {
        run.tally(self.plan.pace, |run, tally, pacer| {
            self.send_all(fd, to, run, tally, pacer)
        })
    }

    fn send_all(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<SocketAddr>,
        run: &mut Run<'_>,
        tally: &mut Tally,
        pacer: &mut Pacer,
    ) -> Result<(), Ended> {
        let limit = self.plan.limit.unwrap_or(u64::MAX);
        let schedule = (self.plan.rate).map(|rate| Schedule::begin(rate, self.plan.time));
        if schedule.is_some() {
            sleep_exactly();
        }
        if let Some(messages) = &mut self.messages {
            messages.address(to.as_ref());
        }
        // Datagrams of the schedule that are behind us: sent, failed or skipped.
        let mut behind = 0;
        loop {
            run.stop.check()?;
            if tally.bytes_sent >= limit {
                return Ok(());
            }
            if let Some(schedule) = &schedule {
                let from = schedule.skip_to(behind, now_ns());
                tally.unsent += from - behind;
                behind = from;
                if !until(schedule.due(behind), self.plan.spin, run.stop) {
                    return Err(Ended::Stopped);
                }
            }
            let from = run.begin()?;
            let done = match self.once(fd, to.as_ref(), tally.send_calls as u32) {
                Ok(done) => done,
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    // Of a batch that failed, the first datagram is what failed.
                    tally.failed_sends += 1;
                    behind += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let bytes = done as u64 * u64::from(self.plan.buffers.size);
            behind += done as u64;
            tally.bytes_sent += bytes;
            tally.send_calls += done as u64;
            run.counters.add(done as u64, bytes);
            run.record(from);
            pacer.after_operation(run.stop)?;
        }
    }

    /// One call; how many datagrams went.
    #[inline]
    fn once(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<&SocketAddr>,
        sequence: u32,
    ) -> rustix::io::Result<usize> {
        let flags = if self.completions.is_some() {
            zerocopy::flags()
        } else {
            SendFlags::NOSIGNAL
        };
        if self.plan.flow.is_some() {
            self.tag(sequence);
        }
        let sent = match &mut self.messages {
            Some(messages) => {
                let first = self.ring.turn();
                let ring = &self.ring;
                let buffers = (first..first + self.batch).map(|n| ring.at(n));
                messages.send(fd, buffers, flags).map(|n| (n, n as u64))
            }
            None => send_one(fd, to, self.ring.current(), flags).map(|_| (self.batch, 1)),
        };
        let datagrams = match (sent, &mut self.completions) {
            (Ok((datagrams, _)), None) => datagrams,
            (Ok((datagrams, sends)), Some(completions)) => {
                completions.after_sends(fd, sends);
                datagrams
            }
            (Err(error), completions) => {
                let again = completions.as_mut().is_some_and(|c| c.make_room(fd, error));
                return Err(if again { Errno::INTR } else { error });
            }
        };
        for _ in 0..if self.messages.is_some() {
            self.batch
        } else {
            1
        } {
            self.ring.advance();
        }
        Ok(datagrams)
    }

    /// Writes numbers and the time into the datagrams of the next call. Of a batch all have the time
    /// at which it was handed over.
    #[inline]
    fn tag(&mut self, mut sequence: u32) {
        let now = wall_ns();
        let size = self.plan.buffers.size as usize;
        let first = self.ring.turn();
        let buffers = if self.messages.is_some() {
            self.batch
        } else {
            1
        };
        for n in first..first + buffers {
            for datagram in self.ring.at_mut(n).chunks_exact_mut(size) {
                let tag = datagram.first_chunk_mut().expect("checked when made");
                Tag::write_seq_time(tag, sequence, now);
                sequence = sequence.wrapping_add(1);
            }
        }
    }

    /// As [`Sender::settle`](super::Sender::settle).
    pub fn settle(&mut self, fd: BorrowedFd<'_>, stop: &Stopper, tally: &mut Tally) {
        if let Some(completions) = &mut self.completions {
            completions.settle(fd, stop, tally);
        }
    }
}

impl Drop for DatagramSender {
    fn drop(&mut self) {
        if self.completions.as_ref().is_some_and(|c| c.pending() > 0) {
            self.ring.leak();
        }
    }
}

/// Waits until a time of CLOCK_MONOTONIC; false if told to end.
fn until(due: u64, spin: bool, stop: &Stopper) -> bool {
    if now_ns() >= due {
        return true;
    }
    if !spin {
        return sleep_until(due, stop);
    }
    while now_ns() < due {
        if stop.stopped() {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Says that a stream of datagrams is over: three empty ones. Nobody hears of it if they are lost,
/// or if the receiver has gone.
pub fn end_datagrams(fd: BorrowedFd<'_>, to: Option<SocketAddr>) {
    let mut left = ENDS;
    // A call may tell of what became of an earlier datagram instead of sending; hence some more.
    for _ in 0..2 * ENDS {
        if left > 0 && send_one(fd, to.as_ref(), &[], SendFlags::NOSIGNAL).is_ok() {
            left -= 1;
        }
    }
}

/// A stream of datagrams to be taken.
#[derive(Clone, Debug, Default)]
pub struct DatagramReceivePlan {
    /// Where they are put; of longer datagrams the rest is lost. 65536 bytes with `gro`.
    pub buffers: BufferPlan,
    /// Datagrams taken with one call, if so many are there; 0 and 1 is one by one.
    pub batch: u32,
    /// The socket has UDP_GRO: several datagrams may come as one.
    pub gro: bool,
    /// Look at the beginning only, but count all bytes.
    pub discard: bool,
    /// Look at tags.
    pub tagged: bool,
    /// Bytes after which it is done.
    pub limit: Option<u64>,
    /// Connect the socket to where the first datagram comes from.
    pub connect: bool,
    /// Look again and again instead of sleeping.
    pub spin: bool,
}

/// Takes streams of datagrams.
#[derive(Debug)]
pub struct DatagramReceiver {
    plan: DatagramReceivePlan,
    ring: Ring,
    messages: Option<Batch>,
    tags: Option<TagReader>,
}

impl DatagramReceiver {
    /// Makes ready where they are put.
    ///
    /// # Errors
    /// Receives of no bytes; no memory.
    pub fn new(plan: &DatagramReceivePlan) -> io::Result<Self> {
        if plan.buffers.size == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a receive of no bytes",
            ));
        }
        let batch = plan.batch.max(1);
        let mut buffers = plan.buffers.clone();
        let mut messages = None;
        if plan.gro || batch > 1 {
            buffers.width = batch;
            if plan.gro {
                buffers.size = 1 << 16;
            }
            messages = Some(Batch::new(buffers.effective_width() as usize));
        }
        Ok(Self {
            plan: plan.clone(),
            ring: Ring::empty(&buffers)?,
            messages,
            tags: plan.tagged.then(TagReader::new),
        })
    }

    /// Takes what comes until an empty datagram, until the limit, or until told to end. When the
    /// first came, and from where, is in the tally.
    pub fn run(&mut self, fd: BorrowedFd<'_>, run: &mut Run<'_>) -> Tally {
        run.tally(None, |run, tally, _| self.stream(fd, run, tally))
    }

    fn stream(
        &mut self,
        fd: BorrowedFd<'_>,
        run: &mut Run<'_>,
        tally: &mut Tally,
    ) -> Result<(), Ended> {
        tally.peer = await_first(fd, self.plan.spin, run.stop)?;
        tally.began = Some(Instant::now());
        if self.plan.connect
            && let Some(peer) = tally.peer
        {
            rustix::net::connect(fd, &peer)?;
        }
        let limit = self.plan.limit.unwrap_or(u64::MAX);
        while tally.bytes_received < limit {
            let from = run.begin()?;
            let (calls, bytes, ended) = match self.once(fd) {
                Ok(done) => done,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    std::hint::spin_loop();
                    continue;
                }
                Err(error) if is_passing(error) => continue,
                Err(error) => return Err(error.into()),
            };
            tally.receive_calls += calls;
            tally.bytes_received += bytes;
            run.counters.add(calls, bytes);
            if let Some(tags) = &self.tags {
                run.counters.set_numbers(tags.numbers());
            }
            if ended {
                return Err(Ended::Eof);
            }
            run.record(from);
        }
        Ok(())
    }

    /// One call: datagrams, their bytes, and whether one of them was the end.
    #[inline]
    fn once(&mut self, fd: BorrowedFd<'_>) -> rustix::io::Result<(u64, u64, bool)> {
        if let Some(messages) = &mut self.messages {
            return several(fd, messages, &mut self.ring, &self.plan, self.tags.as_mut());
        }
        let mut flags = RecvFlags::empty();
        if self.plan.spin {
            flags |= RecvFlags::DONTWAIT;
        }
        let mut buffer = self.ring.current_mut();
        if self.plan.discard {
            flags |= RecvFlags::TRUNC;
            let head = buffer.len().min(HEAD);
            buffer = &mut buffer[..head];
        }
        let (kept, bytes) = recv(fd, &mut *buffer, flags)?;
        if bytes == 0 {
            return Ok((0, 0, true));
        }
        if let Some(tags) = &mut self.tags {
            tags.on_datagram(&buffer[..kept], wall_ns());
        }
        self.ring.advance();
        Ok((1, bytes as u64, false))
    }

    /// What the tags say so far, if they were looked at.
    #[must_use]
    pub fn tags(&self) -> Option<TagReport> {
        self.tags.as_ref().map(TagReader::report)
    }
}

fn several(
    fd: BorrowedFd<'_>,
    messages: &mut Batch,
    ring: &mut Ring,
    plan: &DatagramReceivePlan,
    mut tags: Option<&mut TagReader>,
) -> rustix::io::Result<(u64, u64, bool)> {
    // With segments the kernel must give all of it, or their tags are lost.
    let discard = plan.discard && !plan.gro;
    let most = if discard { HEAD } else { usize::MAX };
    let size = ring.size().min(most);
    let buffers = ring.all_mut().map(|buffer| &mut buffer[..size]);
    let came = messages.receive(fd, buffers, discard, plan.spin)?;
    let now = if tags.is_some() { wall_ns() } else { 0 };
    let (mut calls, mut bytes) = (0, 0);
    for n in 0..came {
        let length = messages.length(n);
        if length == 0 {
            return Ok((calls, bytes, true));
        }
        bytes += length as u64;
        let segment = messages.segment(n).unwrap_or(length);
        calls += length.div_ceil(segment) as u64;
        if let Some(tags) = &mut tags {
            let kept = &ring.at(n)[..length.min(size)];
            for datagram in kept.chunks(segment) {
                tags.on_datagram(datagram, now);
            }
        }
    }
    Ok((calls, bytes, false))
}

#[cfg(test)]
mod tests;
