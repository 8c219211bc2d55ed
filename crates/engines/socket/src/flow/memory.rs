//! Memory for buffers.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use memmap2::{Advice, MmapMut};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Smaller buffers stay in the inner CPU caches regardless of the page size.
const LARGE: usize = 128 << 10;

/// Zero-initialised memory.
#[derive(Debug)]
pub(super) enum ZeroedMemory {
    Heap(Vec<u8>),
    /// Huge pages, if available: contiguous memory does not compete for the same cache sets. Bytes before the first
    /// whole page are unused.
    Huge {
        map: MmapMut,
        first: usize,
    },
}

impl Default for ZeroedMemory {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl ZeroedMemory {
    /// Allocates this number of bytes.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let mut probe = Vec::<u8>::new();
        probe.try_reserve_exact(bytes).map_err(|_| {
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!("not enough memory for buffers of {bytes} bytes"),
            )
        })?;
        drop(probe);
        Ok(Self::Heap(vec![0; bytes]))
    }

    /// Allocates memory that is read repeatedly, in huge pages if available.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub(super) fn huge(bytes: usize) -> io::Result<Self> {
        if bytes < LARGE {
            return Self::new(bytes);
        }
        let whole = bytes.next_multiple_of(HUGE);
        let map = MmapMut::map_anon(whole + HUGE)?;
        let start = map.as_ptr() as usize;
        let first = start.next_multiple_of(HUGE) - start;
        // If refused, small pages work too.
        let _ = map.advise_range(Advice::HugePage, first, whole);
        Ok(Self::Huge { map, first })
    }
}

impl Deref for ZeroedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Huge { map, first } => &map[*first..],
        }
    }
}

impl DerefMut for ZeroedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Huge { map, first } => &mut map[*first..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_as_much_as_was_asked_for() {
        for bytes in [0, 1, LARGE - 1, LARGE, HUGE, HUGE + 1] {
            let mut memory = ZeroedMemory::huge(bytes).unwrap();
            assert!(memory.len() >= bytes, "{bytes}");
            if let Some(last) = bytes.checked_sub(1) {
                memory[last] = 7;
                assert_eq!((memory[last], memory[0]), (7, u8::from(bytes == 1) * 7));
            }
            let large = bytes >= LARGE;
            assert_eq!(large, (memory.as_ptr() as usize).is_multiple_of(HUGE));
        }
    }
}
