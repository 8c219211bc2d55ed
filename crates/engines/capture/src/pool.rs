//! The buffers between readers and writer.
//!
//! A buffer can be written to a disk as it lies there, past the page cache: its memory begins at a page, huge
//! where the kernel has such, and before the records there is room for what the file holds back of the last
//! block. The reader lays the first record where it will stand in a block of the file, if it guesses right;
//! then nothing is copied any more. See [`Direct`](crate::direct::Direct).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memmap2::{Advice, MmapMut};
use wb_pcapng::Sink;

use crate::OutputError;

/// The largest block of a disk that buffers are laid out for; a power of two.
pub(crate) const BLOCK: usize = 4096;
/// Room before the records: what a file holds back, less than a block, and a block to move them in.
pub(crate) const HEAD: usize = 2 * BLOCK;
/// A huge page. A disk is given these in one piece, small pages one by one: that takes half of the CPU's
/// time and made one disk write half as fast again.
const HUGE: usize = 2 << 20;
/// A buffer remembers where a record began, so far or twice as far from its end.
const STRIDE: usize = 32 << 10;

/// Memory that begins at a page. It is zero, and takes nothing until it is used.
#[derive(Debug)]
pub(crate) struct Memory {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Memory {
    /// None where there is not so much.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let align = if len >= HUGE { HUGE } else { BLOCK };
        let map = MmapMut::map_anon(len.checked_add(align)?).ok()?;
        let start = map.as_ptr().align_offset(align);
        if align == HUGE {
            // Without it the memory is the same.
            let _ = map.advise_range(Advice::HugePage, start, len / HUGE * HUGE);
        }
        Some(Self { map, start, len })
    }
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }
}

/// Whole records, on their way to the writer.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) memory: Memory,
    /// Where in the memory the records are.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) records: u64,
    /// Of which interface all of them are.
    pub(crate) interface: u32,
    /// Bytes of all buffers of this reader before this one.
    pub(crate) before: u64,
    /// Ends of records in the memory, the older first, and how many records are before them.
    strides: [(usize, u64); 2],
}

impl Buffer {
    /// An empty one; `guess` is from [`Pool::guess`].
    pub(crate) fn new(memory: Memory, interface: u32, before: u64, guess: usize) -> Self {
        let start = HEAD + guess;
        Self {
            memory,
            start,
            end: start,
            records: 0,
            interface,
            before,
            strides: [(start, 0); 2],
        }
    }

    /// Bytes of its records.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// A record was put.
    #[inline]
    pub(crate) fn count(&mut self) {
        self.records += 1;
        if self.end - self.strides[1].0 >= STRIDE {
            self.strides = [self.strides[1], (self.end, self.records)];
        }
    }

    /// Where a record ends, so far from the end of all that a block is between, and the number of records up
    /// to there. Or the start, and none.
    pub(crate) fn near_its_end(&self) -> (usize, u64) {
        let [older, newer] = self.strides;
        if self.end - newer.0 >= BLOCK {
            newer
        } else {
            older
        }
    }
}

/// Records are appended. What does not fit is left out.
impl Sink for Buffer {
    #[inline]
    fn make_room(&mut self, len: usize) -> bool {
        self.memory.len() - self.end >= len
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        self.memory[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }
}

/// What a reader sends the writer.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) reader: usize,
    /// Nothing comes from this reader any more with a stamp below this.
    pub(crate) clear_ns: u64,
    pub(crate) buffer: Option<Buffer>,
}

/// Empty buffers. Locked once per buffer, never per frame.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The one returned last is taken first: its memory is warm.
    empty: Mutex<Vec<Memory>>,
    returned: Condvar,
    total: usize,
    free: AtomicUsize,
    fewest: AtomicUsize,
    /// How far in a block the file is ahead of what readers delivered.
    ahead: AtomicUsize,
}

impl Pool {
    /// So many buffers, each for so many bytes of records.
    pub(crate) fn new(buffers: u32, bytes: usize) -> Result<Self, OutputError> {
        let total = buffers as usize;
        let memory = || Memory::new(HEAD + BLOCK + bytes);
        let empty: Option<Vec<_>> = (0..total).map(|_| memory()).collect();
        Ok(Self {
            empty: Mutex::new(empty.ok_or(OutputError::Memory { buffers, bytes })?),
            returned: Condvar::new(),
            total,
            free: AtomicUsize::new(total),
            fewest: AtomicUsize::new(total),
            ahead: AtomicUsize::new(0),
        })
    }

    /// An empty buffer, if there is one at once.
    pub(crate) fn take(&self) -> Option<Memory> {
        self.pop(&mut lock(&self.empty))
    }

    /// An empty buffer, if there is one within this time.
    pub(crate) fn wait(&self, longest: Duration) -> Option<Memory> {
        let empty = lock(&self.empty);
        let (mut empty, _) = self
            .returned
            .wait_timeout_while(empty, longest, |empty| empty.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        self.pop(&mut empty)
    }

    pub(crate) fn give(&self, memory: Memory) {
        let mut empty = lock(&self.empty);
        empty.push(memory);
        self.free.store(empty.len(), Ordering::Relaxed);
        drop(empty);
        self.returned.notify_one();
    }

    fn pop(&self, empty: &mut Vec<Memory>) -> Option<Memory> {
        let memory = empty.pop();
        self.free.store(empty.len(), Ordering::Relaxed);
        self.fewest.fetch_min(empty.len(), Ordering::Relaxed);
        memory
    }

    /// Where in a block the next buffer of a reader will stand that has delivered so many bytes. It is right
    /// as long as nobody else writes to the file, other readers or the statistics.
    pub(crate) fn guess(&self, delivered: u64) -> usize {
        (delivered as usize).wrapping_add(self.ahead.load(Ordering::Relaxed)) % BLOCK
    }

    /// The file has so many bytes, after those that a reader had delivered.
    pub(crate) fn learn(&self, file_len: u64, delivered: u64) {
        let ahead = file_len.wrapping_sub(delivered) as usize % BLOCK;
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// The fewest there have been.
    pub(crate) fn fewest(&self) -> usize {
        self.fewest.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
