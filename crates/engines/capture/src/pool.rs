//! The buffers between readers and writer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::OutputError;

/// Whole records, on their way to the writer.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: u64,
    /// Of which interface all of them are.
    pub(crate) interface: u32,
}

/// Empty buffers. Locked once per buffer, never per frame.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The one returned last is taken first: its memory is warm.
    empty: Mutex<Vec<Vec<u8>>>,
    returned: Condvar,
    total: usize,
    free: AtomicUsize,
    fewest: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(buffers: u32, bytes: usize) -> Result<Self, OutputError> {
        let total = buffers as usize;
        let mut empty = Vec::with_capacity(total);
        for _ in 0..total {
            let mut buffer = Vec::new();
            buffer
                .try_reserve_exact(bytes)
                .map_err(|_| OutputError::Memory { buffers, bytes })?;
            empty.push(buffer);
        }
        Ok(Self {
            empty: Mutex::new(empty),
            returned: Condvar::new(),
            total,
            free: AtomicUsize::new(total),
            fewest: AtomicUsize::new(total),
        })
    }

    /// An empty buffer, if there is one at once.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        self.pop(&mut lock(&self.empty))
    }

    /// An empty buffer, if there is one within this time.
    pub(crate) fn wait(&self, longest: Duration) -> Option<Vec<u8>> {
        let empty = lock(&self.empty);
        let (mut empty, _) = self
            .returned
            .wait_timeout_while(empty, longest, |empty| empty.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        self.pop(&mut empty)
    }

    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut empty = lock(&self.empty);
        empty.push(buffer);
        self.free.store(empty.len(), Ordering::Relaxed);
        drop(empty);
        self.returned.notify_one();
    }

    fn pop(&self, empty: &mut Vec<Vec<u8>>) -> Option<Vec<u8>> {
        let buffer = empty.pop();
        self.free.store(empty.len(), Ordering::Relaxed);
        self.fewest.fetch_min(empty.len(), Ordering::Relaxed);
        buffer
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
