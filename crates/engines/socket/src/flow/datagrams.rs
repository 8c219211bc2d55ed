//! Datagram streams: sent one at a time, in batches per call, or as large datagrams segmented by the kernel.
//!
//! A datagram that the kernel has no room for is a failed send, and the sender continues. An empty datagram marks the
//! end.

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
    LoopContext, LoopEnd, LoopTally,
    buffers::{BufferPlan, BufferRing},
    burst_pace::{BurstPace, BurstPacer, OperationSchedule},
    clock::{now_ns, sleep_exactly, sleep_until, wall_ns},
    messages::{DatagramBatch, await_first, is_passing, send_one},
    tags::{TagReader, TagReport},
    zerocopy::{self, ZeroCopyCompletions},
};
use crate::{Stopper, sys::set_int};

/// udp.h: UDP_SEGMENT.
const UDP_SEGMENT: i32 = 103;
/// Maximum segments of a large datagram: udp.h UDP_MAX_SEGMENTS in all kernels that have it.
const MOST_SEGMENTS: u32 = 64;
/// Payload of the longest datagram: 65535 bytes minus the IPv4 and UDP headers.
const LONGEST: u32 = 65_507;
/// Bytes read of a discarded datagram.
const HEAD: usize = 64;
/// Empty datagrams sent at the end, because some may be lost.
const ENDS: usize = 3;

/// Datagrams per second of this size for a bit rate. The sender uses a schedule because the kernel does not pace
/// datagrams.
pub fn datagrams_per_second(bps: Option<u64>, size: u32) -> Option<f64> {
    bps.map(|bps| bps as f64 / 8.0 / f64::from(size.max(1)))
}

/// A datagram stream to send.
#[derive(Clone, Debug, Default)]
pub struct DatagramSendPlan {
    /// Data to send; `size` is that of one datagram, 1 to 65507.
    pub buffers: BufferPlan,
    /// Datagrams per call; 0 and 1 mean one at a time.
    pub batch: u32,
    /// Send each batch as one large datagram that is segmented later (UDP_SEGMENT); at most 64 segments and 65507
    /// bytes.
    pub gso: bool,
    /// Send without copying (MSG_ZEROCOPY).
    pub zerocopy: bool,
    /// Datagrams per second, on an absolute schedule.
    pub rate: Option<f64>,
    /// Length of the schedule; `None` is unlimited.
    pub time: Option<Duration>,
    /// Bursts and pauses, counted in calls.
    pub pace: Option<BurstPace>,
    /// Bytes that end the stream: the datagram, or batch, that reaches this number is the last.
    pub limit: Option<u64>,
    /// Stream ID of the tag in each datagram, which needs 18 bytes.
    pub flow: Option<u32>,
    /// Busy-wait for the schedule instead of sleeping.
    pub spin: bool,
}

/// Sends datagram streams.
#[derive(Debug)]
pub struct DatagramSender {
    plan: DatagramSendPlan,
    /// Datagrams per batch.
    batch: usize,
    /// With segmentation, a buffer holds a whole batch.
    ring: BufferRing,
    messages: Option<DatagramBatch>,
    completions: Option<ZeroCopyCompletions>,
}

impl DatagramSender {
    /// Allocates and fills the buffers.
    ///
    /// # Errors
    /// Fails for a size that no datagram has or that is too small for tags, if memory runs out, or if a file cannot be
    /// read.
    pub fn new(plan: &DatagramSendPlan) -> io::Result<Self> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let size = plan.buffers.size;
        if !(1..=LONGEST).contains(&size) {
            return Err(invalid(format!(
                "datagram size: must be between 1 and {LONGEST} bytes, got {size}"
            )));
        }
        if plan.flow.is_some() && (size as usize) < Tag::LEN {
            return Err(invalid(format!(
                "datagram size {size}: tags need at least {} bytes",
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
            messages = Some(DatagramBatch::new(batch as usize));
        }
        let mut ring = BufferRing::new(&buffers)?;
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

    /// Sends until stopped or until the limit. The destination is `to`, or the peer of a connected socket.
    pub fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<SocketAddr>,
        run: &mut LoopContext<'_>,
    ) -> LoopTally {
        self.completions = None;
        if self.plan.zerocopy {
            match ZeroCopyCompletions::begin(fd) {
                Ok(fresh) => self.completions = Some(fresh),
                Err(error) => return LoopTally::from_error(error),
            }
        }
        if !self.plan.gso || self.batch == 1 {
            return self.send_stream(fd, to, run);
        }
        let segment = |bytes: i32| set_int(fd, libc::SOL_UDP, UDP_SEGMENT, bytes);
        if let Err(error) = segment(self.plan.buffers.size.cast_signed()) {
            return LoopTally::from_error(io::Error::new(
                error.kind(),
                format!("UDP_SEGMENT: {error}"),
            ));
        }
        let tally = self.send_stream(fd, to, run);
        // The end marks are sent one at a time.
        let _ = segment(0);
        tally
    }

    fn send_stream(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<SocketAddr>,
        run: &mut LoopContext<'_>,
    ) -> LoopTally {
        run.run_loop(self.plan.pace, |run, tally, pacer| {
            self.send_all(fd, to, run, tally, pacer)
        })
    }

    fn send_all(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<SocketAddr>,
        run: &mut LoopContext<'_>,
        tally: &mut LoopTally,
        pacer: &mut BurstPacer,
    ) -> Result<(), LoopEnd> {
        let limit = self.plan.limit.unwrap_or(u64::MAX);
        let schedule = (self.plan.rate).map(|rate| OperationSchedule::begin(rate, self.plan.time));
        if schedule.is_some() {
            sleep_exactly();
        }
        if let Some(messages) = &mut self.messages {
            messages.set_destination(to.as_ref());
        }
        // Datagrams of the schedule already handled: sent, failed or skipped.
        let mut behind = 0;
        loop {
            run.stop.check_stopped()?;
            if tally.bytes_sent >= limit {
                return Ok(());
            }
            if let Some(schedule) = &schedule {
                let from = schedule.skip_to(behind, now_ns());
                tally.unsent += from - behind;
                behind = from;
                if !until(schedule.due_time(behind), self.plan.spin, run.stop) {
                    return Err(LoopEnd::Stopped);
                }
            }
            let from = run.begin_operation()?;
            let done = match self.send_once(fd, to.as_ref(), tally.send_calls as u32) {
                Ok(done) => done,
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    // The failure applies to the first datagram of the batch.
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
            run.record_operation(from);
            pacer.after_operation(run.stop)?;
        }
    }

    /// Makes one call. Returns the number of datagrams sent.
    #[inline]
    fn send_once(
        &mut self,
        fd: BorrowedFd<'_>,
        to: Option<&SocketAddr>,
        sequence: u32,
    ) -> rustix::io::Result<usize> {
        let flags = if self.completions.is_some() {
            zerocopy::zero_copy_flags()
        } else {
            SendFlags::NOSIGNAL
        };
        if self.plan.flow.is_some() {
            self.write_tags(sequence);
        }
        let sent = match &mut self.messages {
            Some(messages) => {
                let first = self.ring.current_index();
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

    /// Writes sequence numbers and the time into the datagrams of the next call. All datagrams of a batch carry the
    /// time of that call.
    #[inline]
    fn write_tags(&mut self, mut sequence: u32) {
        let now = wall_ns();
        let size = self.plan.buffers.size as usize;
        let first = self.ring.current_index();
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

    /// See [`BufferSender::wait_for_completions`](super::BufferSender::wait_for_completions).
    pub fn wait_for_completions(
        &mut self,
        fd: BorrowedFd<'_>,
        stop: &Stopper,
        tally: &mut LoopTally,
    ) {
        if let Some(completions) = &mut self.completions {
            completions.wait_for_completions(fd, stop, tally);
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

/// Waits until a CLOCK_MONOTONIC time. Returns false if stopped first.
fn until(due: u64, spin: bool, stop: &Stopper) -> bool {
    if now_ns() >= due {
        return true;
    }
    if !spin {
        return sleep_until(due, stop);
    }
    while now_ns() < due {
        if stop.is_stopped() {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Marks the end of a datagram stream with three empty datagrams. The mark has no effect if they are lost or the
/// receiver has gone.
pub fn end_datagrams(fd: BorrowedFd<'_>, to: Option<SocketAddr>) {
    let mut left = ENDS;
    // A call may return the error of an earlier datagram instead of sending; hence the extra attempts.
    for _ in 0..2 * ENDS {
        if left > 0 && send_one(fd, to.as_ref(), &[], SendFlags::NOSIGNAL).is_ok() {
            left -= 1;
        }
    }
}

/// A datagram stream to receive.
#[derive(Clone, Debug, Default)]
pub struct DatagramReceivePlan {
    /// Receive buffers; longer datagrams are truncated. 65536 bytes with `gro`.
    pub buffers: BufferPlan,
    /// Maximum datagrams per call; 0 and 1 mean one at a time.
    pub batch: u32,
    /// The socket has UDP_GRO: several datagrams may arrive as one.
    pub gro: bool,
    /// Read only the beginning of each datagram, but count all bytes.
    pub discard: bool,
    /// Evaluate tags.
    pub tagged: bool,
    /// Bytes that end the stream.
    pub limit: Option<u64>,
    /// Connect the socket to the source of the first datagram.
    pub connect: bool,
    /// Poll instead of sleeping.
    pub spin: bool,
}

/// Receives datagram streams.
#[derive(Debug)]
pub struct DatagramReceiver {
    plan: DatagramReceivePlan,
    ring: BufferRing,
    messages: Option<DatagramBatch>,
    tags: Option<TagReader>,
}

impl DatagramReceiver {
    /// Allocates the receive buffers.
    ///
    /// # Errors
    /// Fails for a receive size of 0, or if memory runs out.
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
            messages = Some(DatagramBatch::new(buffers.effective_width() as usize));
        }
        Ok(Self {
            plan: plan.clone(),
            ring: BufferRing::empty(&buffers)?,
            messages,
            tags: plan.tagged.then(TagReader::new),
        })
    }

    /// Receives until an empty datagram, until the limit, or until stopped. The tally contains the time and source of
    /// the first datagram.
    pub fn run(&mut self, fd: BorrowedFd<'_>, run: &mut LoopContext<'_>) -> LoopTally {
        run.run_loop(None, |run, tally, _| self.receive_stream(fd, run, tally))
    }

    fn receive_stream(
        &mut self,
        fd: BorrowedFd<'_>,
        run: &mut LoopContext<'_>,
        tally: &mut LoopTally,
    ) -> Result<(), LoopEnd> {
        tally.peer = await_first(fd, self.plan.spin, run.stop)?;
        tally.began = Some(Instant::now());
        if self.plan.connect
            && let Some(peer) = tally.peer
        {
            rustix::net::connect(fd, &peer)?;
        }
        let limit = self.plan.limit.unwrap_or(u64::MAX);
        while tally.bytes_received < limit {
            let from = run.begin_operation()?;
            let (calls, bytes, ended) = match self.receive_once(fd) {
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
                run.counters.set_numbers(tags.sequence_results());
            }
            if ended {
                return Err(LoopEnd::Eof);
            }
            run.record_operation(from);
        }
        Ok(())
    }

    /// Makes one call. Returns the datagrams, their bytes, and true if one was the end mark.
    #[inline]
    fn receive_once(&mut self, fd: BorrowedFd<'_>) -> rustix::io::Result<(u64, u64, bool)> {
        if let Some(messages) = &mut self.messages {
            return receive_several(fd, messages, &mut self.ring, &self.plan, self.tags.as_mut());
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

    /// Results from the tags so far, if they are evaluated.
    #[must_use]
    pub fn tag_report(&self) -> Option<TagReport> {
        self.tags.as_ref().map(TagReader::tag_report)
    }
}

fn receive_several(
    fd: BorrowedFd<'_>,
    messages: &mut DatagramBatch,
    ring: &mut BufferRing,
    plan: &DatagramReceivePlan,
    mut tags: Option<&mut TagReader>,
) -> rustix::io::Result<(u64, u64, bool)> {
    // With GRO, the kernel must copy all data, or the tags of later segments are lost.
    let discard = plan.discard && !plan.gro;
    let most = if discard { HEAD } else { usize::MAX };
    let size = ring.size().min(most);
    let buffers = ring.all_mut().map(|buffer| &mut buffer[..size]);
    let came = messages.receive(fd, buffers, discard, plan.spin)?;
    let now = if tags.is_some() { wall_ns() } else { 0 };
    let (mut calls, mut bytes) = (0, 0);
    for n in 0..came {
        let length = messages.received_len(n);
        if length == 0 {
            return Ok((calls, bytes, true));
        }
        bytes += length as u64;
        let segment = messages.segment_len(n).unwrap_or(length);
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
