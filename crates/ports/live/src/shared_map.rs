//! BPF maps as memory shared with user space.
#![allow(unsafe_code)] // Shared memory.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Values of a mappable BPF map, as 8-byte words.
pub(crate) struct SharedMap {
    start: NonNull<AtomicU64>,
    words: usize,
    len: usize,
}

// SAFETY: all access is by atomic words, and the mapping lives as long as the area.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps the first `len` bytes of a map's values.
    pub(crate) fn map(map: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map,
                0,
            )
        }?;
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?,
            words: len / 8,
            len,
        })
    }

    /// Word at `offset`, in bytes.
    ///
    /// # Panics
    /// If `offset` is beyond the end or not a multiple of 8.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        let at = offset / 8;
        assert!(
            offset.is_multiple_of(8) && at < self.words,
            "a word of the map"
        );
        // SAFETY: within the mapping, which lives as long as `self`, and aligned as pages are.
        unsafe { self.start.add(at).as_ref() }
    }

    /// Reads the word at `offset`. Acquire: later reads see all writes that came before the store.
    #[inline]
    pub(crate) fn get(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// The word at `offset` as two 32-bit numbers, the one at the lower address first.
    #[inline]
    pub(crate) fn halves(&self, offset: usize) -> (u32, u32) {
        let bytes = self.get(offset).to_ne_bytes();
        let half = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        (half(0), half(4))
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the mapping was made above, and no borrow of it is left.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Word made of two 32-bit numbers, `low` at the lower address on every byte order.
pub(crate) fn word_of(low: u32, high: u32) -> u64 {
    let [a, b, c, d] = low.to_ne_bytes();
    let [e, f, g, h] = high.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}
