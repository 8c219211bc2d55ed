//! Sending half of a queue.
//!
//! In copy mode the kernel processes the transmit ring only inside `sendto` calls of this thread. It takes a
//! descriptor, copies the frame and passes it to the device. So after the call the fate of each frame is known:
//! consumed frames are sent, except that `EBUSY` means that the device dropped the last one. With zero copy the device
//! works independently, and a frame is sent when it returns through the completion ring.
#![allow(unsafe_code)] // Slices of frames, and taking back descriptors: who holds what is known here.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use wb_port::{Interface, PortError, Slot, TxCounters, TxQueue};

use crate::link::CarrierReader;
use crate::port_errors;
use crate::ring::{Descriptor, RingConsumer, RingProducer};
use crate::socket::{TxParts, kick_tx};
use crate::umem::Area;

/// Efficient batch size in frames. Measured on veth in copy mode: see `examples/xsk_blast.rs`.
const BATCH: usize = 64;

/// If a device drops frame after frame, its carrier is checked after two drops, and again after this number of drops.
const ASK_DROPS: u32 = 64;

/// Replaces a withdrawn frame in the ring. No kernel has such options or such a large memory, so the kernel skips the
/// descriptor as invalid.
const WITHDRAWN: Descriptor = Descriptor {
    address: u64::MAX,
    len: 1,
    options: 0x8000_0000,
};

/// Sending half of an [`crate::XdpQueue`].
///
/// The bytes of refused frames stay in their frames. If the caller does not collect them with
/// [`TxQueue::take_refused`], they are lost when no other frame is left to lend; the counters stay correct.
pub struct XdpTx {
    sender: Option<OpenXdpTx<Arc<OwnedFd>>>,
}

/// State of one frame.
#[derive(Clone, Copy, Default)]
struct Frame {
    cookie: u64,
    len: u32,
    /// Refused and not yet handed out: not free even if completed.
    refused: bool,
    completed: bool,
}

/// Sends the frames in the transmit ring: the kernel behind a socket, or a model in tests.
trait Kernel {
    fn kick(&self) -> Result<(), Errno>;
}

impl Kernel for Arc<OwnedFd> {
    #[inline]
    fn kick(&self) -> Result<(), Errno> {
        kick_tx(self)
    }
}

struct OpenXdpTx<K> {
    port: String,
    kernel: K,
    link: CarrierReader,
    ring: RingProducer<Descriptor>,
    completions: RingConsumer<u64>,
    area: Area,
    frames: Box<[Frame]>,
    /// A stack, so that frames are reused while they are still in the cache.
    free: Vec<u32>,
    lent: Vec<u32>,
    refused: Vec<u32>,
    in_flight: usize,
    zero_copy: bool,
    /// Copy mode: position of the first descriptor that the kernel has not consumed. May be ahead of the kernel's
    /// index, which the kernel does not update in a call that sends nothing.
    next: u32,
    /// Copy mode: the kernel may have cached a producer index up to here, and would continue to it without reading the
    /// index again.
    seen: u32,
    /// Copy mode: number of consecutive frames that the device dropped.
    drops_in_a_row: u32,
    /// Zero copy: true if frames were completed since the last kick.
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
            sender: Some(OpenXdpTx::new(
                interface.port.clone(),
                parts.socket,
                CarrierReader::new(interface)?,
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

    /// With zero copy, only frames that were never flushed can be taken back, because the device may read the ring at
    /// any time until the port is closed.
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

impl<K: Kernel> OpenXdpTx<K> {
    fn new(
        port: String,
        kernel: K,
        link: CarrierReader,
        (ring, completions): (RingProducer<Descriptor>, RingConsumer<u64>),
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
        // Not only when frames run out: completed frames are still in the cache.
        self.reclaim();
        while self.lent.len() < n {
            let Some(frame) = self.free.pop() else { break };
            self.lent.push(frame);
        }
        // The ring has at most 2^20 slots, checked by `XdpOptions::resolve`.
        let lent = self.lent.len().min(n);
        lent.min(self.ring.free_entries(lent as u32) as usize)
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
                    // Without a carrier the kernel drops every frame, in any number of calls. The remaining frames can
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

    /// Settles the frames that the kernel's index shows as consumed; returns false if there are none.
    #[inline]
    fn note_consumed(&mut self) -> bool {
        let consumed = self.ring.consumed();
        if !self.is_ahead(consumed) {
            return false;
        }
        self.settle_sent(consumed);
        true
    }

    /// Handles a call that met a withdrawn frame first: it ends there, without an error or a change of the index.
    fn note_skipped(&mut self, outcome: Result<(), Errno>) -> bool {
        let skipped = outcome.is_ok() && self.ring.pushed(self.next) == WITHDRAWN;
        if skipped {
            self.next = self.next.wrapping_add(1);
        }
        skipped
    }

    /// Settles a call that ended because the device dropped the last frame consumed. Returns true if other frames were
    /// sent before it. Otherwise the kernel may not have updated its index.
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

    /// Position of the first frame from `position` on that was not withdrawn. Kernels before multi-buffer support (6.6)
    /// skip withdrawn frames and continue in the same call.
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
        // A driver that never changes the flag of this ring would block the sender, so kick also if nothing has
        // completed since the last kick.
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
            Errno::NXIO | Errno::NODEV | Errno::BADF => port_errors::gone(&self.port),
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
            // SAFETY: the kernel has copied and dropped the frame, and `refused` keeps it from being lent.
            each(&unsafe { self.area.frame(index) }[..frame.len as usize]);
            frame.refused = false;
            if std::mem::take(&mut frame.completed) {
                self.free.push(index);
            }
        }
    }

    /// Removes positions from the ring that the kernel has not seen. Positions within a producer index that the kernel
    /// may have cached would be read without a check of the index, so they are overwritten with a descriptor that the
    /// kernel skips.
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
                // SAFETY: the kernel has not started to read the frame; otherwise it would be settled.
                each(&unsafe { self.area.frame(frame) }[..descriptor.len as usize]);
                self.free.push(frame);
                self.in_flight -= 1;
                self.counters.withdrawn_frames += 1;
            }
            if i < keep.wrapping_sub(first) {
                // SAFETY: copy mode, in which the kernel reads the ring only inside our `sendto`.
                unsafe { self.ring.replace(position, WITHDRAWN) };
            }
        }
        // SAFETY: `keep` is not before any producer index that the kernel may have seen.
        unsafe { self.ring.rewind(keep) };
    }
}

#[cfg(test)]
mod tests;
