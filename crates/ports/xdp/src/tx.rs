//! The sending half of a queue.
//!
//! In copy mode the kernel works on the transmit ring only inside our own `sendto`, on this
//! thread: it takes a descriptor, copies the frame and hands it to the device. So when the call
//! returns, what became of each frame is known: consumed is sent, except that `EBUSY` says that
//! the device dropped the last one consumed. With zero copy the device works on its own, and a
//! frame is sent when it comes back through the completion ring.
#![allow(unsafe_code)] // Slices of frames, and taking back descriptors: who holds what is known here.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use wb_port::{Interface, PortError, Slot, TxCounters, TxQueue};

use crate::fault;
use crate::link::Link;
use crate::ring::{Consumer, Descriptor, Producer};
use crate::socket::{TxParts, kick_tx};
use crate::umem::Area;

/// Frames worth handing over at once. Measured on veth in copy mode: see `examples/xsk_blast.rs`.
const BATCH: usize = 64;

/// A device that drops frame after frame is asked for its carrier at the second, and after so many again.
const ASK_DROPS: u32 = 64;

/// Stands in the ring for a withdrawn frame. No kernel has such options or so long a memory, so it
/// skips the descriptor as invalid.
const WITHDRAWN: Descriptor = Descriptor {
    address: u64::MAX,
    len: 1,
    options: 0x8000_0000,
};

/// The sending half of an [`crate::XdpQueue`].
///
/// Bytes of refused frames stay in the frames they were sent from. A caller that does not collect
/// them with [`TxQueue::take_refused`] loses them when there is no other frame left to lend; the
/// counters stay right.
pub struct XdpTx {
    sender: Option<Sender<Arc<OwnedFd>>>,
}

/// One frame of ours, beside its bytes.
#[derive(Clone, Copy, Default)]
struct Frame {
    cookie: u64,
    len: u32,
    /// Refused and not yet handed out: not free even when completed.
    refused: bool,
    completed: bool,
}

/// What sends the frames in the transmit ring: the kernel behind a socket, or a test's model of it.
trait Kernel {
    fn kick(&self) -> Result<(), Errno>;
}

impl Kernel for Arc<OwnedFd> {
    #[inline]
    fn kick(&self) -> Result<(), Errno> {
        kick_tx(self)
    }
}

struct Sender<K> {
    port: String,
    kernel: K,
    link: Link,
    ring: Producer<Descriptor>,
    completions: Consumer<u64>,
    area: Area,
    frames: Box<[Frame]>,
    /// A stack, so that the frames used are the ones still in the cache.
    free: Vec<u32>,
    lent: Vec<u32>,
    refused: Vec<u32>,
    in_flight: usize,
    zero_copy: bool,
    /// Copy mode: position of the first descriptor that the kernel has not consumed. May be ahead
    /// of the kernel's index, which it leaves alone when a call sends nothing.
    next: u32,
    /// Copy mode: the kernel may have copied a producer index up to here, and would go on to it
    /// without looking at the index again.
    seen: u32,
    /// Copy mode: frames that the device dropped since one was sent.
    drops_in_a_row: u32,
    /// Zero copy: something was completed since the last kick.
    progress: bool,
    counters: TxCounters,
}

impl XdpTx {
    pub(crate) fn closed() -> Self {
        Self { sender: None }
    }

    pub(crate) fn new(
        interface: &Interface,
        parts: TxParts,
        zero_copy: bool,
    ) -> Result<Self, PortError> {
        Ok(Self {
            sender: Some(Sender::new(
                interface.port.clone(),
                parts.socket,
                Link::new(interface)?,
                (parts.ring, parts.completions),
                parts.area,
                zero_copy,
            )),
        })
    }
}

impl TxQueue for XdpTx {
    fn frame_capacity(&self) -> usize {
        self.sender
            .as_ref()
            .map_or(0, |sender| sender.area.frame_size())
    }

    fn batch_hint(&self) -> usize {
        BATCH
    }

    #[inline]
    fn lend(&mut self, n: usize) -> usize {
        self.sender.as_mut().map_or(0, |sender| sender.lend(n))
    }

    #[inline]
    fn slot(&mut self, i: usize) -> Slot<'_> {
        self.sender
            .as_mut()
            .expect("a closed half lends nothing")
            .slot(i)
    }

    #[inline]
    fn submit(&mut self, n: usize) {
        if let Some(sender) = &mut self.sender {
            sender.submit(n);
        }
    }

    #[inline]
    fn flush(&mut self) -> Result<(), PortError> {
        match &mut self.sender {
            None => Ok(()),
            Some(sender) if sender.zero_copy => sender.flush_zero_copy(),
            Some(sender) => sender.flush_copy(),
        }
    }

    fn in_flight(&self) -> usize {
        self.sender.as_ref().map_or(0, |sender| sender.in_flight)
    }

    fn take_refused<F: FnMut(&[u8])>(&mut self, each: F) {
        if let Some(sender) = &mut self.sender {
            sender.take_refused(each);
        }
    }

    /// With zero copy only frames that were never flushed can be taken back: the device reads the
    /// ring at any time, until the port is closed.
    fn withdraw<F: FnMut(&[u8])>(&mut self, each: F) {
        if let Some(sender) = &mut self.sender {
            sender.withdraw(each);
        }
    }

    fn counters(&self) -> TxCounters {
        self.sender
            .as_ref()
            .map_or_else(TxCounters::default, |sender| sender.counters)
    }
}

impl<K: Kernel> Sender<K> {
    fn new(
        port: String,
        kernel: K,
        link: Link,
        (ring, completions): (Producer<Descriptor>, Consumer<u64>),
        area: Area,
        zero_copy: bool,
    ) -> Self {
        let count = area.frames();
        let list = || Vec::with_capacity(count as usize);
        let mut free = list();
        free.extend((0..count).rev());
        Self {
            port,
            kernel,
            link,
            next: ring.head(),
            seen: ring.head(),
            ring,
            completions,
            area,
            frames: vec![Frame::default(); count as usize].into(),
            free,
            lent: list(),
            refused: list(),
            in_flight: 0,
            zero_copy,
            drops_in_a_row: 0,
            progress: true,
            counters: TxCounters::default(),
        }
    }

    #[inline]
    fn lend(&mut self, n: usize) -> usize {
        // Not only when frames run out: those just completed are still in the cache.
        self.reclaim();
        while self.lent.len() < n {
            let Some(frame) = self.free.pop() else { break };
            self.lent.push(frame);
        }
        // The ring has at most 32768 slots, by `XdpOptions::resolve`.
        let lent = self.lent.len().min(n);
        lent.min(self.ring.room(lent as u32) as usize)
    }

    #[inline]
    fn slot(&mut self, i: usize) -> Slot<'_> {
        let index = self.lent[i];
        let frame = &mut self.frames[index as usize];
        // SAFETY: a lent frame is not in any ring: it was completed, withdrawn, or never submitted.
        let bytes = unsafe { self.area.frame(index) };
        Slot {
            bytes,
            len: &mut frame.len,
            cookie: &mut frame.cookie,
        }
    }

    #[inline]
    fn submit(&mut self, n: usize) {
        let capacity = self.area.frame_size() as u32;
        for frame in self.lent.drain(..n) {
            let len = self.frames[frame as usize].len;
            assert!(
                len > 0 && len <= capacity,
                "frame of {len} bytes in a slot of {capacity}"
            );
            let pushed = self.ring.push(Descriptor {
                address: self.area.address(frame),
                len,
                options: 0,
            });
            assert!(pushed, "more frames submitted than lent");
        }
        self.free.append(&mut self.lent);
        self.in_flight += n;
        self.counters.submitted_frames += n as u64;
    }

    fn flush_copy(&mut self) -> Result<(), PortError> {
        self.ring.publish();
        while self.next != self.ring.shown() {
            let outcome = self.kernel.kick();
            self.counters.kicks += 1;
            match outcome {
                Ok(()) | Err(Errno::AGAIN | Errno::NOBUFS) => {
                    self.seen = self.ring.shown();
                    self.drops_in_a_row = 0;
                    if !self.note_consumed() && !self.note_skipped(outcome) {
                        self.counters.full_events += 1;
                        break;
                    }
                }
                Err(Errno::BUSY) => {
                    self.seen = self.ring.shown();
                    self.drops_in_a_row = match self.note_dropped() {
                        true => 0,
                        false => self.drops_in_a_row.wrapping_add(1),
                    };
                    // Without a carrier the kernel drops frame after frame, in however many calls. What is left can
                    // wait.
                    if self.drops_in_a_row % ASK_DROPS == 2 && !self.link.may_carry() {
                        self.drops_in_a_row = 1;
                        return Err(PortError::LinkDown {
                            port: self.port.clone(),
                        });
                    }
                }
                Err(Errno::INTR) => {}
                Err(cause) => return Err(self.fault(cause)),
            }
        }
        Ok(())
    }

    /// Settles what the kernel's index shows as consumed; false when that is nothing.
    #[inline]
    fn note_consumed(&mut self) -> bool {
        let consumed = self.ring.consumed();
        if !self.is_ahead(consumed) {
            return false;
        }
        self.settle_sent(consumed);
        true
    }

    /// A call that meets a withdrawn frame first ends there, without moving its index or an error.
    fn note_skipped(&mut self, outcome: Result<(), Errno>) -> bool {
        let skipped = outcome.is_ok() && self.ring.pushed(self.next) == WITHDRAWN;
        if skipped {
            self.next = self.next.wrapping_add(1);
        }
        skipped
    }

    /// Settles a call that ended because the device dropped the last frame consumed. Says whether
    /// others were sent before it: if not, the kernel may not have moved its index.
    fn note_dropped(&mut self) -> bool {
        let consumed = self.ring.consumed();
        let shown = consumed.wrapping_sub(1);
        let last = if !self.is_ahead(consumed) {
            self.after_withdrawn(self.next)
        } else if self.ring.pushed(shown) == WITHDRAWN {
            self.after_withdrawn(consumed)
        } else {
            shown
        };
        let sent_before = self.counters.sent_frames;
        self.settle_sent(last);
        let dropped = self.ring.pushed(last);
        self.next = last.wrapping_add(1);
        if let Some((frame, _)) = self.area.locate(dropped.address) {
            self.frames[frame as usize].refused = true;
            self.refused.push(frame);
            self.in_flight -= 1;
            self.counters.refused_frames += 1;
        }
        self.counters.sent_frames != sent_before
    }

    /// The first frame from `position` on that was not withdrawn. Kernels from before frames in
    /// parts (6.6) skip withdrawn ones and go on in the same call.
    fn after_withdrawn(&self, mut position: u32) -> u32 {
        while position != self.ring.shown() && self.ring.pushed(position) == WITHDRAWN {
            position = position.wrapping_add(1);
        }
        position
    }

    fn is_ahead(&self, consumed: u32) -> bool {
        let ahead = consumed.wrapping_sub(self.next);
        ahead != 0 && ahead <= self.ring.shown().wrapping_sub(self.next)
    }

    /// Counts the frames before position `end` as sent.
    #[inline]
    fn settle_sent(&mut self, end: u32) {
        while self.next != end {
            let descriptor = self.ring.pushed(self.next);
            self.next = self.next.wrapping_add(1);
            if descriptor != WITHDRAWN {
                self.counters.sent_frames += 1;
                self.counters.sent_octets += u64::from(descriptor.len);
                self.in_flight -= 1;
            }
        }
    }

    fn flush_zero_copy(&mut self) -> Result<(), PortError> {
        self.ring.publish();
        self.reclaim();
        // A driver that never clears or sets the flag on this ring would stall us; so kick also
        // when nothing has moved since the last kick.
        if self.in_flight == 0 || (self.progress && !self.ring.needs_wakeup()) {
            self.progress = false;
            return Ok(());
        }
        self.progress = false;
        self.counters.kicks += 1;
        match self.kernel.kick() {
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::BUSY) => self.counters.full_events += 1,
            Err(cause) => return Err(self.fault(cause)),
        }
        self.reclaim();
        Ok(())
    }

    #[cold]
    fn fault(&self, cause: Errno) -> PortError {
        match cause {
            Errno::NETDOWN => PortError::LinkDown {
                port: self.port.clone(),
            },
            Errno::NXIO | Errno::NODEV | Errno::BADF => fault::gone(&self.port),
            cause => PortError::Io {
                port: self.port.clone(),
                operation: "send (AF_XDP)".into(),
                cause: cause.into(),
            },
        }
    }

    /// Takes frames back from the completion ring.
    #[inline]
    fn reclaim(&mut self) {
        let n = self.completions.available(self.area.frames());
        if n > 0 {
            for i in 0..n {
                let frame = self
                    .completions
                    .peek(i)
                    .and_then(|address| self.area.locate(address));
                if let Some((frame, _)) = frame {
                    self.complete(frame);
                }
            }
            self.completions.release(n);
            self.progress = true;
        }
        if self.free.is_empty() && self.lent.is_empty() && !self.refused.is_empty() {
            self.take_refused(|_| {});
        }
    }

    #[inline]
    fn complete(&mut self, index: u32) {
        let frame = &mut self.frames[index as usize];
        if self.zero_copy {
            self.counters.sent_frames += 1;
            self.counters.sent_octets += u64::from(frame.len);
            self.in_flight -= 1;
        }
        if frame.refused {
            frame.completed = true;
        } else {
            self.free.push(index);
        }
    }

    fn take_refused(&mut self, mut each: impl FnMut(&[u8])) {
        for index in self.refused.drain(..) {
            let frame = &mut self.frames[index as usize];
            // SAFETY: the kernel has copied and dropped the frame, and `refused` keeps it ours.
            each(&unsafe { self.area.frame(index) }[..frame.len as usize]);
            frame.refused = false;
            if std::mem::take(&mut frame.completed) {
                self.free.push(index);
            }
        }
    }

    /// Positions that the kernel has not looked at are taken out of the ring. Those it may have
    /// copied the producer index over, it would read without looking at the index again: they are
    /// overwritten with a descriptor that it skips.
    fn withdraw(&mut self, mut each: impl FnMut(&[u8])) {
        let head = self.ring.head();
        let (first, keep) = if self.zero_copy {
            (self.ring.shown(), self.ring.shown())
        } else {
            (self.next, self.seen)
        };
        for i in 0..head.wrapping_sub(first) {
            let position = first.wrapping_add(i);
            let descriptor = self.ring.pushed(position);
            if let Some((frame, _)) = self.area.locate(descriptor.address) {
                // SAFETY: the kernel has not begun to read the frame, or this would be settled.
                each(&unsafe { self.area.frame(frame) }[..descriptor.len as usize]);
                self.free.push(frame);
                self.in_flight -= 1;
                self.counters.withdrawn_frames += 1;
            }
            if i < keep.wrapping_sub(first) {
                // SAFETY: copy mode, where the kernel reads the ring only inside our `sendto`.
                unsafe { self.ring.replace(position, WITHDRAWN) };
            }
        }
        // SAFETY: `keep` is not before what the kernel may have seen of the producer index.
        unsafe { self.ring.rewind(keep) };
    }
}

#[cfg(test)]
mod tests;
