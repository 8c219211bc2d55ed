//! Published counters of a running capture, with one writer each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use crate::pool::BufferPool;

/// State of a capture at an instant. Each number is exact; together they may come from successive updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureSnapshot {
    /// One for each reader.
    pub readers: Vec<ReaderSnapshot>,
    /// Frames written to the output.
    pub written_frames: u64,
    /// Frames that the writer could not write.
    pub not_written_frames: u64,
    /// Bytes of all files together.
    pub file_octets: u64,
    /// Files begun.
    pub files: u64,
    /// Finished files that were removed for lack of space.
    pub files_removed: u64,
    /// The current file.
    pub path: Option<PathBuf>,
    /// Buffers between readers and writer.
    pub buffers: u64,
    /// Empty buffers.
    pub buffers_free: u64,
    /// Minimum number of empty buffers so far.
    pub buffers_fewest: u64,
    /// Longest time for writing a buffer.
    pub longest_write_ns: u64,
    /// The writer has ended.
    pub writer_ended: bool,
}

impl CaptureSnapshot {
    /// Sum over the readers.
    #[must_use]
    pub fn total(&self) -> ReaderSnapshot {
        let mut sum = ReaderSnapshot {
            ended: true,
            ..ReaderSnapshot::default()
        };
        for reader in &self.readers {
            sum.read_frames += reader.read_frames;
            sum.read_octets += reader.read_octets;
            sum.passed_frames += reader.passed_frames;
            sum.dropped_frames += reader.dropped_frames;
            sum.queue_drop_frames += reader.queue_drop_frames;
            sum.buffer_waits += reader.buffer_waits;
            sum.longest_gap_ns = sum.longest_gap_ns.max(reader.longest_gap_ns);
            sum.ended &= reader.ended;
        }
        sum
    }
}

/// State of a reader at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderSnapshot {
    /// The interface that it reads.
    pub interface: u32,
    /// Frames read that passed all filters.
    pub read_frames: u64,
    /// Octets of these frames, with FCS.
    pub read_octets: u64,
    /// F: frames that passed the filter; up to 100 ms old.
    pub passed_frames: u64,
    /// K: frames dropped by the kernel or the device; up to 100 ms old.
    pub dropped_frames: u64,
    /// Q: frames dropped for lack of buffers.
    pub queue_drop_frames: u64,
    /// Number of waits for a buffer.
    pub buffer_waits: u64,
    /// Longest time between two reads of the port.
    pub longest_gap_ns: u64,
    /// The reader has ended.
    pub ended: bool,
}

#[derive(Debug, Default)]
struct ReaderSlot {
    interface: AtomicU64,
    read_frames: AtomicU64,
    read_octets: AtomicU64,
    passed_frames: AtomicU64,
    dropped_frames: AtomicU64,
    queue_drop_frames: AtomicU64,
    buffer_waits: AtomicU64,
    longest_gap_ns: AtomicU64,
    ended: AtomicBool,
}

/// Counters published by the writer.
#[derive(Debug, Default)]
pub(crate) struct WriterSlot {
    pub(crate) written_frames: AtomicU64,
    pub(crate) not_written_frames: AtomicU64,
    pub(crate) file_octets: AtomicU64,
    pub(crate) files: AtomicU64,
    pub(crate) files_removed: AtomicU64,
    pub(crate) longest_write_ns: AtomicU64,
    pub(crate) ended: AtomicBool,
}

/// Interface counters provided by the caller.
#[derive(Debug, Default)]
struct InterfaceSlot {
    known: AtomicBool,
    received: AtomicU64,
    dropped: AtomicU64,
}

/// Live counters of a capture.
#[derive(Debug)]
pub struct CaptureShared {
    readers: Vec<CachePadded<ReaderSlot>>,
    interfaces: Vec<InterfaceSlot>,
    pub(crate) writer: CachePadded<WriterSlot>,
    /// Number of places below the limit already taken.
    pub(crate) tickets: CachePadded<AtomicU64>,
    /// `None` if frames are only counted.
    pub(crate) pool: Option<BufferPool>,
    path: Mutex<Option<PathBuf>>,
}

impl CaptureShared {
    pub(crate) fn new(readers: usize, interfaces: usize, pool: Option<BufferPool>) -> Self {
        Self {
            readers: (0..readers).map(|_| CachePadded::default()).collect(),
            interfaces: (0..interfaces).map(|_| InterfaceSlot::default()).collect(),
            writer: CachePadded::default(),
            tickets: CachePadded::default(),
            pool,
            path: Mutex::default(),
        }
    }

    /// Current state of the capture.
    #[must_use]
    pub fn snapshot(&self) -> CaptureSnapshot {
        let (writer, pool) = (&self.writer, self.pool.as_ref());
        CaptureSnapshot {
            readers: self.readers.iter().map(|slot| slot.read()).collect(),
            written_frames: get(&writer.written_frames),
            not_written_frames: get(&writer.not_written_frames),
            file_octets: get(&writer.file_octets),
            files: get(&writer.files),
            files_removed: get(&writer.files_removed),
            path: self.lock_path().clone(),
            buffers: pool.map_or(0, BufferPool::total) as u64,
            buffers_free: pool.map_or(0, BufferPool::empty_buffers) as u64,
            buffers_fewest: pool.map_or(0, BufferPool::fewest_empty_buffers) as u64,
            longest_write_ns: get(&writer.longest_write_ns),
            writer_ended: writer.ended.load(Ordering::Acquire),
        }
    }

    /// Sets the interface's own counters since the start of the capture: frames received and dropped by it. They appear
    /// in the statistics of a pcapng file.
    pub fn set_interface(&self, interface: u32, received: u64, dropped: u64) {
        if let Some(slot) = self.interfaces.get(interface as usize) {
            slot.received.store(received, Ordering::Relaxed);
            slot.dropped.store(dropped, Ordering::Relaxed);
            // Release: a thread that sees the flag also sees the counters.
            slot.known.store(true, Ordering::Release);
        }
    }

    pub(crate) fn interface_counters(&self, interface: u32) -> Option<(u64, u64)> {
        let slot = self.interfaces.get(interface as usize)?;
        let known = slot.known.load(Ordering::Acquire);
        known.then(|| (get(&slot.received), get(&slot.dropped)))
    }

    /// F and K of an interface, over its readers.
    pub(crate) fn passed_and_dropped(&self, interface: u32) -> (u64, u64) {
        self.readers
            .iter()
            .filter(|slot| get(&slot.interface) == u64::from(interface))
            .map(|slot| (get(&slot.passed_frames), get(&slot.dropped_frames)))
            .fold((0, 0), |sum, slot| (sum.0 + slot.0, sum.1 + slot.1))
    }

    pub(crate) fn show_reader(&self, reader: usize, values: &ReaderSnapshot) {
        self.readers[reader].publish(values);
    }

    pub(crate) fn show_path(&self, path: PathBuf) {
        *self.lock_path() = Some(path);
    }

    fn lock_path(&self) -> std::sync::MutexGuard<'_, Option<PathBuf>> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl ReaderSlot {
    fn publish(&self, values: &ReaderSnapshot) {
        let put = |slot: &AtomicU64, value| slot.store(value, Ordering::Relaxed);
        put(&self.interface, values.interface.into());
        put(&self.read_frames, values.read_frames);
        put(&self.read_octets, values.read_octets);
        put(&self.passed_frames, values.passed_frames);
        put(&self.dropped_frames, values.dropped_frames);
        put(&self.queue_drop_frames, values.queue_drop_frames);
        put(&self.buffer_waits, values.buffer_waits);
        put(&self.longest_gap_ns, values.longest_gap_ns);
        // Release: a thread that sees the end also sees the last values.
        self.ended.store(values.ended, Ordering::Release);
    }

    fn read(&self) -> ReaderSnapshot {
        let ended = self.ended.load(Ordering::Acquire);
        ReaderSnapshot {
            interface: get(&self.interface) as u32,
            read_frames: get(&self.read_frames),
            read_octets: get(&self.read_octets),
            passed_frames: get(&self.passed_frames),
            dropped_frames: get(&self.dropped_frames),
            queue_drop_frames: get(&self.queue_drop_frames),
            buffer_waits: get(&self.buffer_waits),
            longest_gap_ns: get(&self.longest_gap_ns),
            ended,
        }
    }
}
