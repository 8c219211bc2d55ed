//! Traits of the two halves of a queue pair.

use std::time::Duration;

use crate::{PortError, RxFrame, Slot};

/// Queue pair: one lane of a port, owned by one worker.
///
/// A pair may be open in one direction only. The other half then lends and receives nothing.
pub trait QueuePair: Send {
    /// Sending half.
    type Tx: TxQueue;
    /// Receiving half.
    type Rx: RxQueue;

    /// Borrows both halves, so that a worker can answer while it reads a frame.
    fn split(&mut self) -> (&mut Self::Tx, &mut Self::Rx);

    /// Sending half.
    fn tx(&mut self) -> &mut Self::Tx {
        self.split().0
    }

    /// Receiving half.
    fn rx(&mut self) -> &mut Self::Rx {
        self.split().1
    }
}

/// Sends frames in batches, in place.
///
/// Each submitted frame ends in exactly one of three ways: *sent* (accepted by the device), *refused* (dropped by the
/// device before the wire; returned by [`TxQueue::take_refused`]) or *withdrawn* (never offered to the device; returned
/// by [`TxQueue::withdraw`]). If the kernel requests a retry, the frame stays in flight and is sent again. `submitted =
/// sent + refused + withdrawn + in_flight` always holds.
pub trait TxQueue {
    /// Length of the longest frame that can be sent in bytes, without FCS.
    fn frame_capacity(&self) -> usize;

    /// Efficient batch size in frames. A sender at full rate fills this many.
    fn batch_hint(&self) -> usize;

    /// Prepares up to `n` frames for writing and returns their number (0 if the device holds all frames). A second call
    /// before `submit` lends the same frames again. May reclaim completed frames; makes no system call.
    fn lend(&mut self, n: usize) -> usize;

    /// The `i`-th lent frame.
    ///
    /// # Panics
    /// May panic if `i` is not below what the last [`TxQueue::lend`] returned.
    fn slot(&mut self, i: usize) -> Slot<'_>;

    /// Queues the first `n` lent frames for sending, in order; the others are taken back.
    fn submit(&mut self, n: usize);

    /// Makes the device send the submitted frames, with as few system calls as possible, and updates the counters. Does
    /// not wait: a full device leaves frames in flight.
    ///
    /// # Errors
    /// [`PortError::LinkDown`] while the link is down (frames stay in flight and can be flushed again or withdrawn),
    /// [`PortError::Gone`] if the device has been removed.
    fn flush(&mut self) -> Result<(), PortError>;

    /// Number of submitted frames with an unknown outcome.
    fn in_flight(&self) -> usize;

    /// Passes the bytes of every frame refused since the last call to `each`.
    fn take_refused<F: FnMut(&[u8])>(&mut self, each: F);

    /// Takes back every frame that the device has not started to send, and passes its bytes to `each`.
    fn withdraw<F: FnMut(&[u8])>(&mut self, each: F);

    /// Totals since the port was opened.
    fn counters(&self) -> TxCounters;
}

/// Receives frames in batches, in place.
pub trait RxQueue {
    /// Passes up to `max` waiting frames to `on_frame`, in order of arrival, and then releases their memory. Returns
    /// the number of frames, 0 at once if none are waiting. Makes at most one system call.
    ///
    /// # Errors
    /// [`PortError::Gone`] if the device has been removed, [`PortError::EndOfFile`] after the last recorded frame.
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        on_frame: F,
    ) -> Result<usize, PortError>;

    /// Shows up to `max` of the frames that [`RxQueue::receive`] will return next, without removing them, so that a
    /// caller can prefetch the memory that it needs for them. A driver may show none.
    #[inline]
    fn look_ahead<F: FnMut(&[u8])>(&mut self, _max: usize, _on_frame: F) {}

    /// Number of lanes from which frames are taken in turn. Each lane is in order. Frames of one flow may be in several
    /// lanes if the device distributes them.
    fn lanes(&self) -> usize {
        1
    }

    /// Receives from one [lane](RxQueue::lanes) only; otherwise the same as [`RxQueue::receive`].
    ///
    /// # Errors
    /// See [`RxQueue::receive`].
    ///
    /// # Panics
    /// May panic if the lane does not exist.
    #[inline]
    fn receive_from<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        _lane: usize,
        max: usize,
        on_frame: F,
    ) -> Result<usize, PortError> {
        self.receive(max, on_frame)
    }

    /// Sleeps until a frame may be waiting, at most for `timeout`. Returns true if a frame may be waiting.
    ///
    /// # Errors
    /// See [`RxQueue::receive`].
    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError>;

    /// Maximum time from a frame's timestamp until it can be received, because the device collects frames before it
    /// delivers them.
    fn longest_hold(&self) -> Duration {
        Duration::ZERO
    }

    /// Maximum time for which a caller may sleep at any rate without losing frames or accurate timestamps, because the
    /// frames wait in the ring with kernel timestamps.
    fn longest_nap(&self) -> Duration {
        Duration::ZERO
    }

    /// Stops the intake of frames, so that the caller can read the waiting frames and final totals. Does nothing if the
    /// driver cannot stop it.
    ///
    /// # Errors
    /// The error of the kernel.
    fn close_intake(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Totals since the port was opened. Reads kernel counters if necessary.
    fn counters(&mut self) -> RxCounters;

    /// Kernel counters of this queue since the port was opened, with the kernel's names. [`RxQueue::counters`] is
    /// derived from them; they allow an independent check.
    fn kernel_counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Totals of a sending half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, derive_more::AddAssign)]
pub struct TxCounters {
    /// Frames handed over with [`TxQueue::submit`].
    pub submitted_frames: u64,
    /// Frames the device took.
    pub sent_frames: u64,
    /// Bytes of the sent frames, without FCS.
    pub sent_octets: u64,
    /// Frames the device dropped before the wire.
    pub refused_frames: u64,
    /// Frames taken back unsent.
    pub withdrawn_frames: u64,
    /// Number of system calls.
    pub kicks: u64,
    /// Number of times the device was full.
    pub full_events: u64,
}

/// Totals of a receiving half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Frames passed to the caller.
    pub received_frames: u64,
    /// Frames that arrived and were lost because a ring was full, from all counters.
    pub dropped_frames: u64,
    /// Frames that passed the filter, including dropped frames, if the kernel counts them.
    pub passed_frames: Option<u64>,
    /// Number of times the kernel found the ring full.
    pub freezes: u64,
}
