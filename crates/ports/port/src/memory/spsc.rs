//! Single-producer, single-consumer ring of frame slots.
//!
//! The sender writes each frame directly into the slot that the receiver reads; nothing is copied or allocated.
//! Positions increase for ever and are masked to the ring. Starting at the receiver's end the slots are: *visible*
//! (published, not yet released), *pending* (submitted, not yet published), *lent* (being written), free. `depth`
//! limits the visible slots, so that a full receiver leaves frames pending, as a full device does.
//!
//! Each end keeps a copy of the other end's position and reads the shared position only if the copy shows too few
//! slots.
//!
//! This module does not know ports, time or counters. With `--cfg loom` the shared parts are those of the model
//! checker: `RUSTFLAGS="--cfg loom" cargo test -p wb-port --lib spsc`.
#![allow(
    unsafe_code,
    reason = "two threads use one buffer, by turns that only the two positions tell"
)]
#![allow(
    unexpected_cfgs,
    reason = "loom is switched on by RUSTFLAGS, as its documentation asks"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Header in front of the bytes of each slot.
#[repr(C)]
struct RingHeader {
    stamp_ns: u64,
    cookie: u64,
    len: u32,
}

const HEADER: usize = size_of::<RingHeader>();
/// Alignment of the first slot.
const ALIGNMENT: usize = 128;

/// Length of a slot for frames of up to `capacity` bytes. It is an odd number of cache lines, so that the headers spread
/// over all sets of the caches.
pub(crate) const fn slot_bytes(capacity: usize) -> usize {
    ((HEADER + capacity).div_ceil(64) | 1) * 64
}

/// The prefetcher of common processors fetches pairs of cache lines, hence 128 and not 64.
#[repr(align(128))]
struct Padded<T>(T);

/// Memory of the slots, identical at both ends.
#[derive(Clone, Copy)]
struct RingMemory {
    base: NonNull<u8>,
    mask: usize,
    stride: usize,
    capacity: usize,
}

impl RingMemory {
    #[inline]
    fn header(self, position: usize) -> NonNull<RingHeader> {
        // SAFETY: the masked position is below the number of slots and each is `stride` long, so the
        // result lies within the allocation, aligned to 64 bytes.
        unsafe { self.base.add((position & self.mask) * self.stride) }.cast()
    }

    #[inline]
    fn bytes(header: NonNull<RingHeader>) -> NonNull<u8> {
        // SAFETY: each slot has `stride >= HEADER + capacity` bytes.
        unsafe { header.cast::<u8>().add(HEADER) }
    }

    fn layout(self) -> Layout {
        Layout::from_size_align((self.mask + 1) * self.stride + ALIGNMENT, 16)
            .expect("the size was accepted when the ring was made")
    }
}

struct SharedRing {
    /// First slot that the receiver has not released. Written by the receiver.
    head: Padded<AtomicUsize>,
    /// First slot that is not visible. Written by the sender.
    tail: Padded<AtomicUsize>,
    /// True after the receiver was dropped; `head` then belongs to the sender.
    deserted: AtomicBool,
    /// Start of the allocation that contains `area`.
    allocation: NonNull<u8>,
    area: RingMemory,
    /// Lets the model checker verify that all access to each slot is ordered.
    #[cfg(loom)]
    touched: Vec<UnsafeCell<()>>,
}

// SAFETY: only the one sender and the one receiver access the memory behind `area`, each in the slots that `head` and
// `tail` give it. The memory is freed when both are dropped.
unsafe impl Send for SharedRing {}
// SAFETY: as above.
unsafe impl Sync for SharedRing {}

impl Drop for SharedRing {
    fn drop(&mut self) {
        // SAFETY: allocated in `ring` with this layout; both ends are dropped.
        unsafe { dealloc(self.allocation.as_ptr(), self.area.layout()) };
    }
}

/// Creates a ring of `slots` slots (a power of two) for frames of up to `capacity` bytes, of which `depth` may be
/// visible at once.
///
/// # Panics
/// Unless `slots` is a power of two, `1 <= depth <= slots`, and the ring fits in memory.
pub(crate) fn ring(slots: usize, depth: usize, capacity: usize) -> (RingSender, RingReceiver) {
    assert!(slots.is_power_of_two() && (1..=slots).contains(&depth));
    let stride = slot_bytes(capacity);
    // The allocator writes zeros only for large alignments. With a small one, pages without frames take no memory.
    let layout = slots
        .checked_mul(stride)
        .and_then(|size| size.checked_add(ALIGNMENT))
        .and_then(|size| Layout::from_size_align(size, 16).ok())
        .expect("a ring of this size fits in memory");
    // SAFETY: the layout is not empty, as `slots` and `stride` are not 0.
    let Some(allocation) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        handle_alloc_error(layout)
    };
    let offset = allocation.align_offset(ALIGNMENT);
    // SAFETY: the offset is below the alignment, and the allocation is longer than the slots by that much.
    let base = unsafe { allocation.add(offset) };
    let area = RingMemory {
        base,
        mask: slots - 1,
        stride,
        capacity,
    };
    let shared = Arc::new(SharedRing {
        head: Padded(AtomicUsize::new(0)),
        tail: Padded(AtomicUsize::new(0)),
        deserted: AtomicBool::new(false),
        allocation,
        area,
        #[cfg(loom)]
        touched: (0..slots).map(|_| UnsafeCell::new(())).collect(),
    });
    let sender = RingSender {
        area,
        depth,
        visible_end: 0,
        pending_end: 0,
        lent: 0,
        seen_head: 0,
        shared: Arc::clone(&shared),
    };
    let receiver = RingReceiver {
        area,
        head: 0,
        seen_tail: 0,
        shared,
    };
    (sender, receiver)
}

/// The writing end.
pub(crate) struct RingSender {
    area: RingMemory,
    depth: usize,
    /// First pending slot: this end's copy of `tail`.
    visible_end: usize,
    /// First lent slot.
    pending_end: usize,
    lent: usize,
    seen_head: usize,
    shared: Arc<SharedRing>,
}

// SAFETY: `area` points into memory that `shared` keeps alive. Only the slots from `tail` on are used, which belong to
// this end.
unsafe impl Send for RingSender {}

impl RingSender {
    pub(crate) fn capacity(&self) -> usize {
        self.area.capacity
    }

    fn refresh_head(&mut self) {
        if self.shared.deserted.load(Ordering::Acquire) {
            // The visible frames will never be read.
            self.seen_head = self.visible_end;
            return;
        }
        // Acquire pairs with the Release in `Receiver::release`: the receiver has finished reading the slots.
        self.seen_head = self.shared.head.0.load(Ordering::Acquire);
    }

    #[inline]
    fn free(&self) -> usize {
        self.area.mask + 1 - self.pending_end.wrapping_sub(self.seen_head)
    }

    /// Lends up to `n` slots. Slots that were lent before are lent again.
    #[inline]
    pub(crate) fn lend(&mut self, n: usize) -> usize {
        if self.free() < n {
            self.refresh_head();
        }
        self.lent = n.min(self.free());
        self.lent
    }

    /// Bytes, length and cookie of the `i`-th lent slot.
    ///
    /// # Panics
    /// If fewer than `i + 1` are lent.
    #[inline]
    pub(crate) fn slot(&mut self, i: usize) -> (&mut [u8], &mut u32, &mut u64) {
        assert!(i < self.lent, "slot {i} of {} lent", self.lent);
        let position = self.pending_end.wrapping_add(i);
        self.touch_mut(position);
        let header = self.area.header(position);
        // SAFETY: `lend` saw that the receiver has released this slot. Only `publish` makes it visible again, and the
        // borrow of `self` prevents that call meanwhile. The memory was zeroed when allocated, so it is initialised.
        // Header and bytes do not overlap.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(
                RingMemory::bytes(header).as_ptr(),
                self.area.capacity,
            );
            let header = header.as_ptr();
            (bytes, &mut (*header).len, &mut (*header).cookie)
        }
    }

    /// Makes the first `n` lent slots pending; takes back the others.
    ///
    /// # Panics
    /// If fewer than `n` are lent.
    #[inline]
    pub(crate) fn submit(&mut self, n: usize) {
        assert!(n <= self.lent, "{n} submitted of {} lent", self.lent);
        self.pending_end = self.pending_end.wrapping_add(n);
        self.lent = 0;
    }

    /// Number of slots submitted and not published.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.pending_end.wrapping_sub(self.visible_end)
    }

    /// Number of pending slots that the receiver has room for.
    #[inline]
    pub(crate) fn free_slots(&mut self) -> usize {
        let pending = self.pending();
        let room = self.depth - self.visible_end.wrapping_sub(self.seen_head);
        if pending <= room {
            return pending;
        }
        self.refresh_head();
        pending.min(self.depth - self.visible_end.wrapping_sub(self.seen_head))
    }

    /// Makes the first `n` pending slots visible with this timestamp. Returns the sum of their lengths.
    ///
    /// # Panics
    /// If there is no room for `n` (check [`Sender::room`] first), or a length exceeds the capacity.
    #[inline]
    pub(crate) fn publish(&mut self, n: usize, stamp_ns: u64) -> u64 {
        let used = self.visible_end.wrapping_sub(self.seen_head);
        assert!(n <= self.pending() && n <= self.depth - used);
        let mut octets = 0;
        for i in 0..n {
            let position = self.visible_end.wrapping_add(i);
            self.touch_mut(position);
            let header = self.area.header(position).as_ptr();
            // SAFETY: a pending slot belongs to the sender until `tail` is stored below.
            let len = unsafe {
                (*header).stamp_ns = stamp_ns;
                (*header).len
            };
            assert!(
                len as usize <= self.area.capacity,
                "a frame of {len} bytes in a slot of {}",
                self.area.capacity
            );
            octets += u64::from(len);
        }
        self.visible_end = self.visible_end.wrapping_add(n);
        // Release pairs with the Acquire in `Receiver::available`: the slots are written.
        self.shared
            .tail
            .0
            .store(self.visible_end, Ordering::Release);
        octets
    }

    /// Bytes of the `i`-th pending slot.
    ///
    /// # Panics
    /// If fewer than `i + 1` are pending, or the length exceeds the capacity.
    pub(crate) fn pending_bytes(&self, i: usize) -> &[u8] {
        assert!(i < self.pending());
        let position = self.visible_end.wrapping_add(i);
        self.touch(position);
        let header = self.area.header(position);
        // SAFETY: a pending slot belongs to the sender and is not written while `self` is borrowed.
        let bytes = unsafe {
            std::slice::from_raw_parts(RingMemory::bytes(header).as_ptr(), self.area.capacity)
        };
        // SAFETY: as above.
        let len = unsafe { (*header.as_ptr()).len };
        &bytes[..len as usize]
    }

    /// Takes back all pending and lent slots.
    pub(crate) fn retract(&mut self) {
        self.pending_end = self.visible_end;
        self.lent = 0;
    }

    #[inline]
    fn touch(&self, _position: usize) {
        #[cfg(loom)]
        self.shared.touched[_position & self.area.mask].with(|_| ());
    }

    #[inline]
    fn touch_mut(&self, _position: usize) {
        #[cfg(loom)]
        self.shared.touched[_position & self.area.mask].with_mut(|_| ());
    }
}

/// The reading end.
pub(crate) struct RingReceiver {
    area: RingMemory,
    /// This end's copy of `head`.
    head: usize,
    seen_tail: usize,
    shared: Arc<SharedRing>,
}

// SAFETY: `area` points into memory that `shared` keeps alive. Only visible slots are read, which the sender does not
// access.
unsafe impl Send for RingReceiver {}

impl RingReceiver {
    /// Number of visible frames, up to `max`.
    #[inline]
    pub(crate) fn available(&mut self, max: usize) -> usize {
        if self.seen_tail.wrapping_sub(self.head) < max {
            // Acquire pairs with the Release in `Sender::publish`.
            self.seen_tail = self.shared.tail.0.load(Ordering::Acquire);
        }
        max.min(self.seen_tail.wrapping_sub(self.head))
    }

    /// The `i`-th visible frame and its timestamp.
    ///
    /// # Panics
    /// If [`Receiver::available`] did not return at least `i + 1`.
    #[inline]
    pub(crate) fn frame(&self, i: usize) -> (&[u8], u64) {
        assert!(i < self.seen_tail.wrapping_sub(self.head));
        let position = self.head.wrapping_add(i);
        self.touch(position);
        let header = self.area.header(position);
        // SAFETY: a visible slot is not written until `release` stores a later `head`, which the borrow of `self`
        // prevents. `publish` has checked the length.
        unsafe {
            let len = (*header.as_ptr()).len as usize;
            let bytes = std::slice::from_raw_parts(RingMemory::bytes(header).as_ptr(), len);
            (bytes, (*header.as_ptr()).stamp_ns)
        }
    }

    /// Cookie that the sender stored with the `i`-th visible frame.
    ///
    /// # Panics
    /// If [`Receiver::available`] did not return at least `i + 1`.
    #[inline]
    pub(crate) fn mark(&self, i: usize) -> u64 {
        assert!(i < self.seen_tail.wrapping_sub(self.head));
        let position = self.head.wrapping_add(i);
        self.touch(position);
        let header = self.area.header(position);
        // SAFETY: see `frame`. The sender set the whole header before the slot became visible.
        unsafe { (*header.as_ptr()).cookie }
    }

    /// Releases the first `n` visible slots.
    ///
    /// # Panics
    /// If [`Receiver::available`] did not return at least `n`.
    #[inline]
    pub(crate) fn release(&mut self, n: usize) {
        assert!(n <= self.seen_tail.wrapping_sub(self.head));
        self.head = self.head.wrapping_add(n);
        // Release pairs with the Acquire in `Sender::refresh_head`.
        self.shared.head.0.store(self.head, Ordering::Release);
    }

    #[inline]
    fn touch(&self, _position: usize) {
        #[cfg(loom)]
        self.shared.touched[_position & self.area.mask].with(|_| ());
    }
}

impl Drop for RingReceiver {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `Sender::refresh_head`: all reads have ended.
        self.shared.deserted.store(true, Ordering::Release);
    }
}

#[cfg(test)]
fn write(sender: &mut RingSender, i: usize, value: u8, len: u32) {
    let (bytes, slot_len, cookie) = sender.slot(i);
    bytes[..len as usize].fill(value);
    *slot_len = len;
    *cookie = u64::from(value);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn refuses<V>(act: impl FnOnce() -> V) -> bool {
        catch_unwind(AssertUnwindSafe(|| {
            act();
        }))
        .is_err()
    }

    #[test]
    fn frames_appear_when_published_and_in_order() {
        let (mut tx, mut rx) = ring(8, 4, 100);
        assert_eq!(tx.lend(20), 8);
        assert_eq!(tx.lend(3), 3);
        for i in 0..3u8 {
            write(&mut tx, usize::from(i), i + 1, 10 + u32::from(i));
        }
        tx.submit(3);
        assert_eq!((tx.pending(), rx.available(9)), (3, 0));
        assert_eq!(tx.free_slots(), 3);
        assert_eq!(tx.publish(3, 77), 33);
        assert_eq!((tx.pending(), rx.available(2), rx.available(9)), (0, 2, 3));
        assert_eq!(rx.frame(2), (&[3u8; 12][..], 77));
        rx.release(2);
        assert_eq!(rx.frame(0).0, [3u8; 12]);
    }

    #[test]
    fn a_full_receiver_leaves_frames_pending() {
        let (mut tx, mut rx) = ring(8, 4, 100);
        tx.lend(6);
        (0..6).for_each(|i| write(&mut tx, i, i as u8, 10));
        tx.submit(6);
        assert_eq!(tx.free_slots(), 4);
        tx.publish(4, 0);
        assert_eq!((tx.free_slots(), tx.pending(), tx.lend(9)), (0, 2, 2));
        rx.available(9);
        rx.release(1);
        assert_eq!((tx.free_slots(), tx.pending_bytes(1)), (1, &[5u8; 10][..]));
        tx.retract();
        assert_eq!((tx.pending(), tx.lend(9)), (0, 5));
    }

    #[test]
    fn positions_wrap_and_slots_keep_their_content() {
        let (mut tx, mut rx) = ring(4, 4, 64);
        // Just before the positions overflow.
        for position in [&mut tx.visible_end, &mut tx.pending_end, &mut tx.seen_head] {
            *position = usize::MAX - 5;
        }
        rx.head = usize::MAX - 5;
        rx.seen_tail = usize::MAX - 5;
        tx.shared.head.0.store(usize::MAX - 5, Ordering::Relaxed);
        tx.shared.tail.0.store(usize::MAX - 5, Ordering::Relaxed);
        for round in 0..20u8 {
            assert_eq!(tx.lend(1), 1);
            if round >= 4 {
                let (bytes, len, cookie) = tx.slot(0);
                assert_eq!(
                    (bytes[0], *len, *cookie),
                    (round - 4, 20, u64::from(round) - 4)
                );
            }
            write(&mut tx, 0, round, 20);
            tx.submit(1);
            assert_eq!(tx.free_slots(), 1);
            tx.publish(1, 0);
            assert_eq!(rx.available(4), 1);
            assert_eq!(rx.frame(0).0, [round; 20]);
            rx.release(1);
        }
    }

    #[test]
    fn misuse_is_refused() {
        let (mut tx, mut rx) = ring(4, 2, 64);
        assert!(refuses(|| *tx.slot(0).1));
        assert!(refuses(|| tx.submit(1)));
        assert!(refuses(|| tx.publish(1, 0)));
        assert!(refuses(|| tx.pending_bytes(0).len()));
        assert!(refuses(|| rx.frame(0).1));
        assert!(refuses(|| rx.release(1)));
        tx.lend(3);
        tx.submit(3);
        assert!(refuses(|| tx.publish(3, 0)), "deeper than the receiver");
        tx.retract();
        tx.lend(1);
        *tx.slot(0).1 = 65;
        tx.submit(1);
        assert!(refuses(|| tx.publish(1, 0)), "longer than the slot");
        assert_eq!(rx.available(1), 0);
        assert!(refuses(|| ring(3, 2, 64)));
        assert!(refuses(|| ring(4, 5, 64)));
        assert!(refuses(|| ring(1 << 60, 2, 64)));
    }

    #[test]
    fn either_end_may_go_first() {
        let (mut tx, mut rx) = ring(4, 4, 64);
        tx.lend(1);
        write(&mut tx, 0, 9, 9);
        tx.submit(1);
        tx.publish(1, 0);
        drop(tx);
        assert_eq!(rx.available(4), 1);
        assert_eq!(rx.frame(0).0, [9; 9]);

        let (mut tx, rx) = ring(4, 4, 64);
        drop(rx);
        for _ in 0..20 {
            assert_eq!(tx.lend(1), 1);
            *tx.slot(0).1 = 10;
            tx.submit(1);
            assert_eq!(tx.free_slots(), 1);
            tx.publish(1, 0);
        }
    }

    #[test]
    fn two_threads_lose_and_mix_nothing() {
        const FRAMES: u64 = 300_000;
        let (mut tx, mut rx) = ring(64, 32, 100);
        let sender = std::thread::spawn(move || {
            let mut next = 0u64;
            while next < FRAMES || tx.pending() > 0 {
                let want = (next % 11 + 1).min(FRAMES - next) as usize;
                let lent = tx.lend(want);
                for i in 0..lent {
                    let (bytes, len, _) = tx.slot(i);
                    *len = 16 + (next % 80) as u32;
                    bytes[..8].copy_from_slice(&next.to_be_bytes());
                    bytes[8..*len as usize].fill(next as u8);
                    next += 1;
                }
                tx.submit(lent);
                let room = tx.free_slots();
                tx.publish(room, next);
                if room == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0u64;
        while expected < FRAMES {
            let n = rx.available((expected % 7 + 1) as usize);
            for i in 0..n {
                let (bytes, stamp) = rx.frame(i);
                assert_eq!(bytes[..8], expected.to_be_bytes());
                assert_eq!(bytes.len() as u64, 16 + expected % 80);
                assert!(bytes[8..].iter().all(|b| *b == expected as u8));
                assert!(stamp > expected);
                expected += 1;
            }
            rx.release(n);
            if n == 0 {
                std::thread::yield_now();
            }
        }
        sender.join().unwrap();
        assert_eq!(rx.available(1), 0);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    #[test]
    fn every_interleaving_hands_over_whole_frames() {
        loom::model(|| {
            let (mut tx, mut rx) = ring(2, 2, 8);
            let sender = loom::thread::spawn(move || {
                for value in 1..=3u8 {
                    while tx.lend(1) == 0 {
                        loom::thread::yield_now();
                    }
                    write(&mut tx, 0, value, 4);
                    tx.submit(1);
                    while tx.room() == 0 {
                        loom::thread::yield_now();
                    }
                    tx.publish(1, u64::from(value));
                }
            });
            for value in 1..=3u8 {
                while rx.available(1) == 0 {
                    loom::thread::yield_now();
                }
                assert_eq!(rx.frame(0), (&[value; 4][..], u64::from(value)));
                rx.release(1);
            }
            sender.join().unwrap();
        });
    }

    #[test]
    fn a_sender_takes_over_what_a_dropped_receiver_read() {
        loom::model(|| {
            let (mut tx, mut rx) = ring(1, 1, 8);
            let receiver = loom::thread::spawn(move || {
                if rx.available(1) == 1 {
                    assert_eq!(rx.frame(0).0, [1; 4]);
                }
            });
            for value in 1..=2u8 {
                while tx.lend(1) == 0 {
                    loom::thread::yield_now();
                }
                write(&mut tx, 0, value, 4);
                tx.submit(1);
                tx.publish(1, 0);
            }
            receiver.join().unwrap();
        });
    }
}
