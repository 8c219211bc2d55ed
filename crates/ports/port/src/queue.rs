//! The two halves of a queue pair.

use std::time::Duration;

use crate::{PortError, RxFrame, Slot};

/// A queue pair: one lane of a port, owned by one worker.
///
/// A pair may be opened for one direction only; the other half then lends and receives nothing.
pub trait QueuePair: Send {
    /// The sending half.
    type Tx: TxQueue;
    /// The receiving half.
    type Rx: RxQueue;

    /// Both halves at once, so that a worker can answer while it looks at a frame.
    fn split(&mut self) -> (&mut Self::Tx, &mut Self::Rx);

    /// The sending half.
    fn tx(&mut self) -> &mut Self::Tx {
        self.split().0
    }

    /// The receiving half.
    fn rx(&mut self) -> &mut Self::Rx {
        self.split().1
    }
}

/// Sends frames in batches, in place.
///
/// Every frame that was submitted ends in exactly one of three ways: *sent* (the device took it),
/// *refused* (the device dropped it before the wire; handed out by [`TxQueue::take_refused`]) or
/// *withdrawn* (never offered to the device; handed out by [`TxQueue::withdraw`]). A frame that the
/// kernel asks to be sent again is kept and sent again; it is none of them until then.
/// `submitted = sent + refused + withdrawn + in_flight` always holds.
pub trait TxQueue {
    /// Longest frame that can be sent, without FCS.
    fn frame_capacity(&self) -> usize;

    /// Frames worth handing over at once; a sender at full rate fills this many.
    fn batch_hint(&self) -> usize;

    /// Makes up to `n` frames ready for writing and says how many there are (0 when all are with
    /// the device). Calling again before `submit` starts over with the same frames. May reclaim,
    /// makes no system call.
    fn lend(&mut self, n: usize) -> usize;

    /// The `i`-th lent frame.
    ///
    /// # Panics
    /// May panic if `i` is not below what the last [`TxQueue::lend`] returned.
    fn slot(&mut self, i: usize) -> Slot<'_>;

    /// Queues the first `n` lent frames for sending, in order; the others are taken back.
    fn submit(&mut self, n: usize);

    /// Tells the device to send what was submitted, with as few system calls as it takes, and
    /// takes note of what it did. Does not wait: a full device leaves frames in flight.
    ///
    /// # Errors
    /// [`PortError::LinkDown`] while the link is down (frames stay in flight and can be flushed
    /// again or withdrawn), [`PortError::Gone`] when the device has vanished.
    fn flush(&mut self) -> Result<(), PortError>;

    /// Submitted frames whose end is not known yet.
    fn in_flight(&self) -> usize;

    /// Hands out the bytes of every frame refused since the last call.
    fn take_refused<F: FnMut(&[u8])>(&mut self, each: F);

    /// Takes back every frame that the device has not begun to send, and hands out its bytes.
    fn withdraw<F: FnMut(&[u8])>(&mut self, each: F);

    /// Totals since the port was opened.
    fn counters(&self) -> TxCounters;
}

/// Receives frames in batches, in place.
pub trait RxQueue {
    /// Shows up to `max` waiting frames to `on_frame`, in order of arrival, and gives their memory
    /// back. Returns how many; 0 at once when nothing waits. Makes at most one system call.
    ///
    /// # Errors
    /// [`PortError::Gone`] when the device has vanished, [`PortError::EndOfFile`] after the last
    /// recorded frame.
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        on_frame: F,
    ) -> Result<usize, PortError>;

    /// Shows up to `max` of the frames that [`RxQueue::receive`] would show next and leaves them where they are, so
    /// that a caller can fetch from memory what it will need for them. A driver may show none.
    #[inline]
    fn look_ahead<F: FnMut(&[u8])>(&mut self, _max: usize, _on_frame: F) {}

    /// From how many places it takes frames in turn, each of which keeps an order of its own. Those of
    /// one flow may come by several where the device spreads them.
    fn lanes(&self) -> usize {
        1
    }

    /// As [`RxQueue::receive`], from one of its [lanes](RxQueue::lanes) only.
    ///
    /// # Errors
    /// As [`RxQueue::receive`].
    ///
    /// # Panics
    /// May panic if there is no such lane.
    #[inline]
    fn receive_from<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        _lane: usize,
        max: usize,
        on_frame: F,
    ) -> Result<usize, PortError> {
        self.receive(max, on_frame)
    }

    /// Sleeps until a frame may be waiting, but not longer than `timeout`. Returns whether one may be.
    ///
    /// # Errors
    /// As [`RxQueue::receive`].
    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError>;

    /// How long after its stamp a frame may first be shown, because the device collects frames
    /// before it hands them over.
    fn longest_hold(&self) -> Duration {
        Duration::ZERO
    }

    /// How long a caller may sleep, whatever the rate, without a loss of frames or of their times, as it finds them
    /// in the ring with the kernel's stamps.
    fn longest_nap(&self) -> Duration {
        Duration::ZERO
    }

    /// Lets nothing more in, so that what waits can be read to the last frame and the totals stand
    /// still. Where the driver cannot, it goes on.
    ///
    /// # Errors
    /// What the kernel says.
    fn close_intake(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Totals since the port was opened (reads the kernel's counters where it must).
    fn counters(&mut self) -> RxCounters;

    /// The kernel's own counters of this queue since the port was opened, by the kernel's names.
    /// [`RxQueue::counters`] is made of them; here they are for whoever wants to check that.
    fn kernel_counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// What a sending half did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, derive_more::AddAssign)]
pub struct TxCounters {
    /// Frames handed over with [`TxQueue::submit`].
    pub submitted_frames: u64,
    /// Frames the device took.
    pub sent_frames: u64,
    /// Bytes of those, without FCS.
    pub sent_octets: u64,
    /// Frames the device dropped before the wire.
    pub refused_frames: u64,
    /// Frames taken back unsent.
    pub withdrawn_frames: u64,
    /// System calls made.
    pub kicks: u64,
    /// Times the device was full.
    pub full_events: u64,
}

/// What a receiving half did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Frames shown to the caller.
    pub received_frames: u64,
    /// Frames that reached us and were lost for want of room in our rings, by any counter.
    pub dropped_frames: u64,
    /// Frames that passed the filter, those dropped for want of room included, where the kernel
    /// counts them.
    pub passed_frames: Option<u64>,
    /// Times the kernel found the ring full.
    pub freezes: u64,
}
