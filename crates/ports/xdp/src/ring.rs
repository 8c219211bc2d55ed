//! Single-producer, single-consumer rings in memory shared with the kernel.
//!
//! Handles indices and slots; does not know sockets or frames. The process has one end of each ring and the kernel the
//! other, so every index has exactly one writer.
//!
//! Memory order: the writer of an index publishes it with Release after it has written (producer) or finished reading
//! (consumer) the slots. The other end loads it with Acquire before it accesses them. The process needs no atomic load
//! for its index, because it is the only writer, and keeps a copy.
#![allow(unsafe_code)] // Ring memory is mapped from the kernel and reached through raw pointers.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::xdp::XdpRingOffset;

/// Mapped memory, unmapped on drop.
pub(crate) struct RingMapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. It is accessed only through types that order their
// accesses.
unsafe impl Send for RingMapping {}
// SAFETY: as above; `&Mapping` provides only an address and a length.
unsafe impl Sync for RingMapping {}

impl RingMapping {
    /// Maps zeroed memory, backed by pages from the start.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        // SAFETY: a null hint lets the kernel choose the address, so no other mapping is affected.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )?
        };
        Self::from_raw(start.cast(), len)
    }

    /// Maps memory of a file, shared with its other users.
    pub(crate) fn shared(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        // SAFETY: a null hint lets the kernel choose the address, so no other mapping is affected.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                offset,
            )?
        };
        Self::from_raw(start.cast(), len)
    }

    fn from_raw(start: *mut u8, len: usize) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Address for `count` values of `T` at `offset`, if they are inside the mapping and aligned.
    fn place<T>(&self, offset: u64, count: u32) -> io::Result<NonNull<T>> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "ring offsets outside the ring");
        let offset = usize::try_from(offset).map_err(|_| bad())?;
        let bytes = (count as usize)
            .checked_mul(size_of::<T>())
            .ok_or_else(bad)?;
        let end = offset.checked_add(bytes).ok_or_else(bad)?;
        // SAFETY: if `end` is inside the mapping, or equal to its length, so is `offset`.
        let place = (end <= self.len).then(|| unsafe { self.start.add(offset) });
        place
            .map(NonNull::cast::<T>)
            .filter(|place| place.is_aligned())
            .ok_or_else(bad)
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, and all users of the memory keep it alive. After a failure it stays
        // mapped, which is harmless.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Type of a slot.
///
/// # Safety
/// Every bit pattern must be valid, because the other end writes the slots too.
pub(crate) unsafe trait Word: Copy {}

// SAFETY: an integer.
unsafe impl Word for u64 {}

/// Frame descriptor of the transmit and receive rings (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) options: u32,
}

// SAFETY: three integers without padding.
unsafe impl Word for Descriptor {}

struct KernelRing<T> {
    /// Keeps the memory behind the pointers mapped.
    _memory: Arc<RingMapping>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    slots: NonNull<T>,
    size: u32,
}

// SAFETY: the pointers lead into `_memory`, which moves with them and is not bound to a thread.
unsafe impl<T: Send> Send for KernelRing<T> {}

impl<T: Word> KernelRing<T> {
    fn new(memory: Arc<RingMapping>, at: XdpRingOffset, size: u32) -> io::Result<Self> {
        if !size.is_power_of_two() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "ring size is no power of two",
            ));
        }
        Ok(Self {
            producer: memory.place(at.producer, 1)?,
            consumer: memory.place(at.consumer, 1)?,
            flags: at.flags.map(|flags| memory.place(flags, 1)).transpose()?,
            slots: memory.place(at.desc, size)?,
            _memory: memory,
            size,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: checked by `Mapping::place`, alive as long as `self._memory`, only accessed atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn slot(&self, position: u32) -> NonNull<T> {
        // SAFETY: masked to the ring, and `Mapping::place` has checked its `size` slots.
        unsafe { self.slots.add((position & (self.size - 1)) as usize) }
    }

    fn needs_wakeup(&self) -> bool {
        // if_xdp.h: XDP_RING_NEED_WAKEUP. Relaxed: a hint, and the following system call is a stronger barrier than any
        // fence here.
        // SAFETY: as for `producer`.
        self.flags
            .is_some_and(|flags| unsafe { flags.as_ref() }.load(Ordering::Relaxed) & 1 != 0)
    }
}

/// Producer end of a ring that the kernel reads.
///
/// [`RingProducer::push`] fills slots, [`RingProducer::publish`] shows them to the kernel.
pub(crate) struct RingProducer<T> {
    ring: KernelRing<T>,
    /// Position after the last slot written.
    head: u32,
    /// Position after the last slot shown.
    shown: u32,
    /// Last value read of the kernel's index.
    tail: u32,
}

impl<T: Word> RingProducer<T> {
    pub(crate) fn new(memory: Arc<RingMapping>, at: XdpRingOffset, size: u32) -> io::Result<Self> {
        let ring = KernelRing::new(memory, at, size)?;
        let head = ring.producer().load(Ordering::Relaxed);
        let tail = ring.consumer().load(Ordering::Acquire);
        Ok(Self {
            ring,
            head,
            shown: head,
            tail,
        })
    }

    /// Number of free slots. Reads the kernel's index only if fewer than `want` are known to be free.
    #[inline]
    pub(crate) fn free_entries(&mut self, want: u32) -> u32 {
        let room = self.ring.size - self.head.wrapping_sub(self.tail);
        if room >= want {
            return room;
        }
        self.consumed();
        self.ring.size - self.head.wrapping_sub(self.tail)
    }

    /// Fills the next slot; returns false if [`RingProducer::room`] has seen no free slot.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> bool {
        if self.head.wrapping_sub(self.tail) >= self.ring.size {
            return false;
        }
        // SAFETY: the slot is between the kernel's index (loaded with Acquire) and ours, so the kernel does not read it
        // until the Release in `publish`.
        unsafe { self.ring.slot(self.head).write(value) };
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Publishes all slots pushed so far.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.shown != self.head {
            self.shown = self.head;
            // Release pairs with the kernel's Acquire of the producer index.
            self.ring.producer().store(self.head, Ordering::Release);
        }
    }

    /// The kernel's index: position after the last slot that the kernel has released.
    #[inline]
    pub(crate) fn consumed(&mut self) -> u32 {
        // Acquire pairs with the kernel's Release of the consumer index: its reads have ended.
        self.tail = self.ring.consumer().load(Ordering::Acquire);
        self.tail
    }

    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    pub(crate) fn shown(&self) -> u32 {
        self.shown
    }

    /// Value pushed at `position`.
    #[inline]
    pub(crate) fn pushed(&self, position: u32) -> T {
        // SAFETY: inside the ring; both the kernel and this end only read there.
        unsafe { self.ring.slot(position).read() }
    }

    /// Replaces the value pushed at `position`.
    ///
    /// # Safety
    /// The kernel must not read the ring meanwhile: it reads only inside system calls of this thread, or the slot was
    /// not published yet.
    pub(crate) unsafe fn replace(&mut self, position: u32, value: T) {
        // SAFETY: inside the ring; the caller guarantees that the kernel does not read there now.
        unsafe { self.ring.slot(position).write(value) };
    }

    /// Takes back all slots from `position` on.
    ///
    /// # Safety
    /// The kernel must not have loaded a producer index beyond `position`, and must not read the ring meanwhile.
    pub(crate) unsafe fn rewind(&mut self, position: u32) {
        self.head = position;
        if self.shown.wrapping_sub(self.tail) > position.wrapping_sub(self.tail) {
            self.shown = position;
            self.ring.producer().store(position, Ordering::Release);
        }
    }

    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// Consumer end of a ring that the kernel fills.
///
/// [`RingConsumer::available`] returns the number of filled slots, [`RingConsumer::peek`] reads them,
/// [`RingConsumer::release`] returns them to the kernel.
pub(crate) struct RingConsumer<T> {
    ring: KernelRing<T>,
    /// Last value read of the kernel's index.
    head: u32,
    /// Position of the next slot to read.
    tail: u32,
}

impl<T: Word> RingConsumer<T> {
    pub(crate) fn new(memory: Arc<RingMapping>, at: XdpRingOffset, size: u32) -> io::Result<Self> {
        let ring = KernelRing::new(memory, at, size)?;
        let tail = ring.consumer().load(Ordering::Relaxed);
        let head = ring.producer().load(Ordering::Acquire);
        Ok(Self { ring, head, tail })
    }

    /// Number of filled slots, up to `max`. Reads the kernel's index only if fewer are known.
    #[inline]
    pub(crate) fn available(&mut self, max: u32) -> u32 {
        if self.head.wrapping_sub(self.tail) < max {
            // Acquire pairs with the kernel's Release of the producer index: the slots are written.
            self.head = self.ring.producer().load(Ordering::Acquire);
        }
        self.head
            .wrapping_sub(self.tail)
            .min(self.ring.size)
            .min(max)
    }

    /// The `i`-th filled slot, if [`RingConsumer::available`] has returned more than `i`.
    #[inline]
    pub(crate) fn peek(&self, i: u32) -> Option<T> {
        if i >= self.head.wrapping_sub(self.tail) {
            return None;
        }
        // SAFETY: the slot is between our index and the kernel's (loaded with Acquire), so it is written and unchanged
        // until `release`.
        Some(unsafe { self.ring.slot(self.tail.wrapping_add(i)).read() })
    }

    /// Releases the first `n` slots, at most the number seen.
    #[inline]
    pub(crate) fn release(&mut self, n: u32) {
        let n = n.min(self.head.wrapping_sub(self.tail));
        self.tail = self.tail.wrapping_add(n);
        // Release pairs with the kernel's Acquire of the consumer index: our reads have ended.
        self.ring.consumer().store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(super) const AT: XdpRingOffset = XdpRingOffset {
        producer: 0,
        consumer: 64,
        desc: 192,
        flags: Some(128),
    };

    pub(super) fn memory(start: u32) -> Arc<RingMapping> {
        let memory = Arc::new(RingMapping::anonymous(4096).unwrap());
        for offset in [AT.producer, AT.consumer] {
            let index = memory.place::<AtomicU32>(offset, 1).unwrap();
            // SAFETY: inside the live mapping.
            unsafe { index.as_ref() }.store(start, Ordering::Relaxed);
        }
        memory
    }

    /// Both ends of one ring, with indices that begin at `start`.
    pub(crate) fn pair<T: Word>(size: u32, start: u32) -> (RingProducer<T>, RingConsumer<T>) {
        let memory = memory(start);
        (
            RingProducer::new(Arc::clone(&memory), AT, size).unwrap(),
            RingConsumer::new(memory, AT, size).unwrap(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::testing::{AT, memory, pair};
    use super::*;

    #[test]
    fn an_empty_ring_gives_nothing() {
        let (_producer, mut consumer) = pair::<u64>(4, 0);
        assert_eq!(consumer.available(4), 0);
        assert_eq!(consumer.peek(0), None);
        consumer.release(3);
        assert_eq!(consumer.available(4), 0);
    }

    #[test]
    fn a_full_ring_takes_nothing() {
        let (mut producer, mut consumer) = pair(4, 0);
        for value in 0..4 {
            assert!(producer.push(value));
        }
        assert!(!producer.push(9));
        assert_eq!(producer.free_entries(1), 0);
        producer.publish();
        assert!(!producer.push(9));
        assert_eq!(consumer.available(8), 4);
        consumer.release(1);
        assert!(
            !producer.push(9),
            "room must be looked for before it is used"
        );
        assert_eq!(producer.free_entries(1), 1);
        assert!(producer.push(9));
    }

    #[test]
    fn nothing_shows_before_it_is_published() {
        let (mut producer, mut consumer) = pair(4, 0);
        producer.push(7);
        assert_eq!(consumer.available(4), 0);
        producer.publish();
        assert_eq!(consumer.available(4), 1);
        assert_eq!(consumer.peek(0), Some(7));
        assert_eq!(consumer.peek(1), None);
    }

    #[test]
    fn rewound_slots_are_never_seen() {
        let (mut producer, mut consumer) = pair(8, u32::MAX - 1);
        for value in 0..3 {
            producer.push(value);
        }
        producer.publish();
        producer.push(3);
        let keep = producer.shown().wrapping_sub(2);
        // SAFETY: the consumer has not read the ring yet.
        unsafe { producer.rewind(keep) };
        producer.push(8);
        producer.publish();
        assert_eq!(consumer.available(8), 2);
        assert_eq!([consumer.peek(0), consumer.peek(1)], [Some(0), Some(8)]);
    }

    #[test]
    fn offsets_outside_the_memory_are_refused() {
        let far = XdpRingOffset {
            desc: 4096 - 8,
            ..AT
        };
        assert!(RingProducer::<u64>::new(memory(0), far, 2).is_err());
        assert!(RingProducer::<u64>::new(memory(0), XdpRingOffset { desc: 193, ..AT }, 2).is_err());
        assert!(
            RingProducer::<u64>::new(
                memory(0),
                XdpRingOffset {
                    flags: Some(u64::MAX),
                    ..AT
                },
                2
            )
            .is_err()
        );
        assert!(RingConsumer::<u64>::new(memory(0), AT, 3).is_err());
        assert!(RingConsumer::<u64>::new(memory(0), AT, 1024).is_err());
    }

    #[test]
    fn memory_outlives_the_end_that_is_dropped_first() {
        let (mut producer, mut consumer) = pair(4, 0);
        producer.push(5);
        producer.publish();
        drop(producer);
        assert_eq!(consumer.available(1), 1);
        assert_eq!(consumer.peek(0), Some(5));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// All values come out once and in order, even if the indices wrap.
        #[test]
        fn behaves_as_a_queue(
            start in prop_oneof![Just(0), Just(u32::MAX - 5), any::<u32>()],
            steps in proptest::collection::vec((0u32..6, 0u32..6), 0..60),
        ) {
            let (mut producer, mut consumer) = pair(8, start);
            let mut model = VecDeque::new();
            let mut next = 0u64;
            for (push, take) in steps {
                let room = producer.free_entries(push).min(push);
                prop_assert_eq!(room, push.min(8 - u32::try_from(model.len()).unwrap()));
                for _ in 0..room {
                    prop_assert!(producer.push(next));
                    model.push_back(next);
                    next += 1;
                }
                producer.publish();
                let n = consumer.available(take);
                for i in 0..n {
                    prop_assert_eq!(consumer.peek(i), model.pop_front());
                }
                consumer.release(n);
                prop_assert_eq!(n == take || model.is_empty(), true);
            }
        }
    }
}
