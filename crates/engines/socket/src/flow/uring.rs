//! Sends through io_uring: registered buffers, zero copy, several sends per system call.
//!
//! The sends of a batch are linked, and each waits until all its bytes are accepted, so the stream keeps its order. A
//! send completes twice: when its bytes are accepted, and when the kernel releases the buffer. The second completion
//! reports if the data was copied after all.
#![allow(
    unsafe_code,
    reason = "what is handed to the ring must outlive its use there"
)]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use super::{
    LoopContext, LoopTally,
    buffers::{BufferPlan, BufferRing},
    burst_pace::BurstPace,
    clock::now_ns,
};
use crate::Stopper;

/// Sends per batch.
const BATCH: usize = 8;
/// Entries of the submission queue: a batch, and its cancellation.
const ENTRIES: u32 = 16;
/// Marks entries that are not sends.
const CANCEL: u64 = u64::MAX;
/// io_uring.h: IORING_SEND_ZC_REPORT_USAGE.
const REPORT_USAGE: u16 = 1 << 3;
/// io_uring.h: IORING_NOTIF_USAGE_ZC_COPIED.
const USAGE_COPIED: u32 = 1 << 31;
/// Error text for a kernel without the required operation.
const TOO_OLD: &str =
    "io_uring has no zero-copy sends on this kernel; Linux 6.2 or later is needed";

/// A ring, and the buffers registered with it.
pub(super) struct UringSender {
    // Dropped first, so that the kernel releases the buffers before they are freed.
    ring: IoUring,
    buffers: BufferRing,
    turn: usize,
    under_way: usize,
    /// Sends that still occupy their buffer. Briefly below 0 if the kernel reports the release before the bytes.
    unfinished: i64,
    zero_copy: u64,
    copied: u64,
}

impl std::fmt::Debug for UringSender {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Uring")
            .field("under_way", &self.under_way)
            .field("unfinished", &self.unfinished)
            .finish_non_exhaustive()
    }
}

/// Results of a batch.
#[derive(Default)]
struct UringBatch {
    bytes: u64,
    sends: u64,
    error: Option<io::Error>,
}

impl UringSender {
    pub(super) fn new(plan: &BufferPlan) -> io::Result<Self> {
        let unsupported = || io::Error::new(io::ErrorKind::Unsupported, TOO_OLD);
        let ring = IoUring::builder()
            .setup_clamp()
            .setup_cqsize(ENTRIES * 16)
            .build(ENTRIES)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENOSYS) => unsupported(),
                _ => io::Error::new(error.kind(), format!("io_uring: {error}")),
            })?;
        let mut probe = Probe::new();
        ring.submitter()
            .register_probe(&mut probe)
            .map_err(|_| unsupported())?;
        if !probe.is_supported(opcode::SendZc::CODE) {
            return Err(unsupported());
        }
        // More buffers than one batch can be in use until the peer has acknowledged them; sending the same bytes again
        // from them does no harm.
        let buffers = BufferRing::new(plan)?;
        let vectors: Vec<libc::iovec> = (0..buffers.width().min(1024))
            .map(|n| {
                let bytes = buffers.at(n);
                libc::iovec {
                    iov_base: bytes.as_ptr().cast_mut().cast(),
                    iov_len: bytes.len(),
                }
            })
            .collect();
        // SAFETY: the memory belongs to `buffers`, which does not move it, is never written after this, and outlives
        // the ring; it is leaked if the kernel may still read it.
        unsafe { ring.submitter().register_buffers(&vectors) }.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot register io_uring buffers (raise ulimit -l): {error}"),
            )
        })?;
        Ok(Self {
            ring,
            buffers,
            turn: 0,
            under_way: 0,
            unfinished: 0,
            zero_copy: 0,
            copied: 0,
        })
    }

    /// Sends until stopped or until the limit. If times are recorded, each send of a batch counts from the submission
    /// of the batch.
    pub(super) fn send_stream(
        &mut self,
        fd: BorrowedFd<'_>,
        run: &mut LoopContext<'_>,
        limit: Option<u64>,
        pace: Option<BurstPace>,
    ) -> LoopTally {
        // A pause may be due after any send.
        let batch = if pace.is_some() { 1 } else { BATCH };
        run.run_loop(pace, |run, tally, pacer| {
            let mut left = limit.unwrap_or(u64::MAX);
            loop {
                let from = run.begin_operation()?;
                if left == 0 {
                    return Ok(());
                }
                self.push(fd, batch, left);
                let done = self.complete_batch(run.stop);
                left -= done.bytes;
                tally.bytes_sent += done.bytes;
                tally.send_calls += done.sends;
                run.counters.add(done.sends, done.bytes);
                if let (Some(from), Some(recorder)) = (from, run.recorder.as_deref_mut()) {
                    let took = now_ns() - from;
                    for _ in 0..done.sends {
                        recorder.record(took);
                    }
                }
                if let Some(error) = done.error {
                    return Err(error.into());
                }
                for _ in 0..if left > 0 { done.sends } else { 0 } {
                    pacer.after_operation(run.stop)?;
                }
            }
        })
    }

    /// Queues linked sends.
    fn push(&mut self, fd: BorrowedFd<'_>, batch: usize, mut left: u64) {
        let fd = types::Fd(fd.as_raw_fd());
        let size = self.buffers.size() as u64;
        for n in 0..batch {
            let bytes = size.min(left);
            left -= bytes;
            let last = n + 1 == batch || left == 0;
            let buffer = self.buffers.at(self.turn);
            let mut entry = opcode::SendZc::new(fd, buffer.as_ptr(), bytes as u32)
                .buf_index(Some(self.turn as u16))
                .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
                .zc_flags(REPORT_USAGE)
                .build();
            if !last {
                entry = entry.flags(squeue::Flags::IO_LINK);
            }
            // SAFETY: the buffer is one of the registered buffers, see `new`; the descriptor is borrowed until the
            // batch is complete, which this type waits for.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the queue has room for a batch");
            self.under_way += 1;
            self.turn = (self.turn + 1) % self.buffers.width().min(1024);
            if last {
                break;
            }
        }
    }

    /// Submits the queue and waits until the bytes of all its sends are accepted. If stopped, cancels the sends and
    /// counts the accepted bytes.
    fn complete_batch(&mut self, stop: &Stopper) -> UringBatch {
        let mut batch = UringBatch::default();
        let mut cancelled = false;
        while self.under_way > 0 {
            if stop.is_stopped() && !cancelled {
                cancelled = true;
                self.cancel_sends();
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // The completion queue is full; reading it solves this.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => {
                    batch.error = Some(error);
                    return batch;
                }
            }
            self.read_completions(&mut batch);
        }
        batch
    }

    fn cancel_sends(&mut self) {
        let entry = opcode::AsyncCancel2::new(types::CancelBuilder::any())
            .build()
            .user_data(CANCEL);
        // SAFETY: the entry refers to no memory.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the queue has room beside a batch");
    }

    /// Reads completions without waiting.
    fn read_completions(&mut self, batch: &mut UringBatch) {
        for entry in self.ring.completion() {
            if entry.user_data() == CANCEL {
                continue;
            }
            if cqueue::notif(entry.flags()) {
                self.unfinished -= 1;
                if entry.result().cast_unsigned() & USAGE_COPIED == 0 {
                    self.zero_copy += 1;
                } else {
                    self.copied += 1;
                }
                continue;
            }
            self.under_way -= 1;
            self.unfinished += i64::from(cqueue::more(entry.flags()));
            match entry.result() {
                // An earlier send was shortened, or it was cancelled from here.
                n if n == -libc::ECANCELED || n == -libc::EINTR => {}
                n if n == -libc::EINVAL => {
                    batch.error = Some(io::Error::new(io::ErrorKind::Unsupported, TOO_OLD));
                }
                n if n < 0 => {
                    batch.error.get_or_insert(io::Error::from_raw_os_error(-n));
                }
                n => {
                    batch.bytes += u64::from(n.cast_unsigned());
                    batch.sends += 1;
                }
            }
        }
    }

    /// Waits until the kernel has released all buffers, or until stopped, and counts which sends were copied.
    pub(super) fn wait_for_buffers(&mut self, stop: &Stopper, tally: &mut LoopTally) {
        let mut none = UringBatch::default();
        self.read_completions(&mut none);
        while self.unfinished > 0 && !stop.is_stopped() {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => break,
            }
            self.read_completions(&mut none);
        }
        tally.zero_copy += std::mem::take(&mut self.zero_copy);
        tally.copied += std::mem::take(&mut self.copied);
    }
}

impl Drop for UringSender {
    fn drop(&mut self) {
        if self.unfinished != 0 || self.under_way > 0 {
            self.buffers.leak();
        }
    }
}
