//! The buffers between readers and writer.
//!
//! A buffer can be written to a disk directly, past the page cache: its memory is page-aligned, with huge pages if
//! available, and has space before the records for the held-back part of the last block. The reader places the first
//! record at its expected position in a block of the file. If the guess is right, nothing is copied later. See
//! [`DirectWriter`](crate::direct::DirectWriter).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memmap2::{Advice, MmapMut};
use wb_pcapng::ByteSink;

use crate::OutputError;

/// The largest block size of a disk that buffers are laid out for; a power of two.
pub(crate) const BLOCK: usize = 4096;
/// Space before the records: for held-back data, less than a block, and a block for moving the records.
pub(crate) const HEAD: usize = 2 * BLOCK;
/// Bytes of a huge page. A huge page is passed to the disk in one piece, small pages one by one. With huge pages one disk
/// was 1.5 times as fast, with half of the CPU time.
const HUGE: usize = 2 << 20;
/// A buffer remembers a record boundary this far, or twice as far, from its end.
const STRIDE: usize = 32 << 10;

/// Page-aligned memory. It is zero, and uses no physical memory until written.
#[derive(Debug)]
pub(crate) struct PageMemory {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl PageMemory {
    /// Returns `None` if memory is insufficient.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let align = if len >= HUGE { HUGE } else { BLOCK };
        let map = MmapMut::map_anon(len.checked_add(align)?).ok()?;
        let start = map.as_ptr().align_offset(align);
        if align == HUGE {
            // Only advice: the memory works without it.
            let _ = map.advise_range(Advice::HugePage, start, len / HUGE * HUGE);
        }
        Some(Self { map, start, len })
    }
}

impl Deref for PageMemory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }
}

impl DerefMut for PageMemory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }
}

/// Complete records on their way to the writer.
#[derive(Debug)]
pub(crate) struct RecordBuffer {
    pub(crate) memory: PageMemory,
    /// Offset of the records in the memory.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) records: u64,
    /// Interface of all records.
    pub(crate) interface: u32,
    /// Bytes of all earlier buffers of this reader.
    pub(crate) before: u64,
    /// Ends of records in the memory, the older first, and the number of records before each.
    strides: [(usize, u64); 2],
}

impl RecordBuffer {
    /// Creates an empty buffer; `guess` is from [`BufferPool::expected_position`].
    pub(crate) fn new(memory: PageMemory, interface: u32, before: u64, guess: usize) -> Self {
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

    /// Counts an added record.
    #[inline]
    pub(crate) fn count(&mut self) {
        self.records += 1;
        if self.end - self.strides[1].0 >= STRIDE {
            self.strides = [self.strides[1], (self.end, self.records)];
        }
    }

    /// Offset of a record boundary, usually at least a block before the end, and the number of records before it; the
    /// start and 0 if there is none.
    pub(crate) fn near_its_end(&self) -> (usize, u64) {
        let [older, newer] = self.strides;
        if self.end - newer.0 >= BLOCK {
            newer
        } else {
            older
        }
    }
}

/// Appends records. Data that does not fit is omitted.
impl ByteSink for RecordBuffer {
    #[inline]
    fn make_room(&mut self, len: usize) -> bool {
        self.memory.len() - self.end >= len
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        self.memory[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }
}

/// Message from a reader to the writer.
#[derive(Debug)]
pub(crate) struct DeliveredBuffer {
    pub(crate) reader: usize,
    /// This reader will deliver no earlier timestamps.
    pub(crate) clear_ns: u64,
    pub(crate) buffer: Option<RecordBuffer>,
}

/// Empty buffers. Locked once per buffer, never per frame.
#[derive(Debug)]
pub(crate) struct BufferPool {
    /// Last in, first out, because the memory is still cached.
    empty: Mutex<Vec<PageMemory>>,
    returned: Condvar,
    total: usize,
    free: AtomicUsize,
    fewest: AtomicUsize,
    /// Offset, modulo the block size, between the file and the data that readers delivered.
    ahead: AtomicUsize,
}

impl BufferPool {
    /// Creates `buffers` buffers for `bytes` bytes of records each.
    pub(crate) fn new(buffers: u32, bytes: usize) -> Result<Self, OutputError> {
        let total = buffers as usize;
        let memory = || PageMemory::new(HEAD + BLOCK + bytes);
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

    /// Takes an empty buffer, if one is available at once.
    pub(crate) fn take_buffer(&self) -> Option<PageMemory> {
        self.pop(&mut lock(&self.empty))
    }

    /// Takes an empty buffer, if one becomes available within this time.
    pub(crate) fn wait(&self, longest: Duration) -> Option<PageMemory> {
        let empty = lock(&self.empty);
        let (mut empty, _) = self
            .returned
            .wait_timeout_while(empty, longest, |empty| empty.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        self.pop(&mut empty)
    }

    pub(crate) fn return_buffer(&self, memory: PageMemory) {
        let mut empty = lock(&self.empty);
        empty.push(memory);
        self.free.store(empty.len(), Ordering::Relaxed);
        drop(empty);
        self.returned.notify_one();
    }

    fn pop(&self, empty: &mut Vec<PageMemory>) -> Option<PageMemory> {
        let memory = empty.pop();
        self.free.store(empty.len(), Ordering::Relaxed);
        self.fewest.fetch_min(empty.len(), Ordering::Relaxed);
        memory
    }

    /// Expected position in a block of the next buffer, for a reader that has delivered this number of bytes. Correct
    /// unless other readers or the statistics write to the file.
    pub(crate) fn expected_position(&self, delivered: u64) -> usize {
        (delivered as usize).wrapping_add(self.ahead.load(Ordering::Relaxed)) % BLOCK
    }

    /// Records the length of the file after the data delivered by a reader.
    pub(crate) fn record_file_len(&self, file_len: u64, delivered: u64) {
        let ahead = file_len.wrapping_sub(delivered) as usize % BLOCK;
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn empty_buffers(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Minimum number of empty buffers so far.
    pub(crate) fn fewest_empty_buffers(&self) -> usize {
        self.fewest.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
