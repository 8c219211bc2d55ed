//! Memory for buffers.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use memmap2::{Advice, MmapMut};

/// A huge page.
const HUGE: usize = 2 << 20;
/// Less than this lies in the processor's nearest caches whatever its pages are.
const LARGE: usize = 128 << 10;

/// Zeros at first.
#[derive(Debug)]
pub(super) enum Memory {
    Heap(Vec<u8>),
    /// In huge pages, if the system gives them: what lies together in memory does not fight for
    /// places in the cache. Bytes in front of the first whole one are not used.
    Huge {
        map: MmapMut,
        first: usize,
    },
}

impl Default for Memory {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Memory {
    /// So many bytes.
    ///
    /// # Errors
    /// There is not so much.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let mut probe = Vec::<u8>::new();
        probe.try_reserve_exact(bytes).map_err(|_| {
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!("no memory for buffers of {bytes} bytes"),
            )
        })?;
        drop(probe);
        Ok(Self::Heap(vec![0; bytes]))
    }

    /// The same for what is read again and again.
    ///
    /// # Errors
    /// There is not so much.
    pub(super) fn huge(bytes: usize) -> io::Result<Self> {
        if bytes < LARGE {
            return Self::new(bytes);
        }
        let whole = bytes.next_multiple_of(HUGE);
        let map = MmapMut::map_anon(whole + HUGE)?;
        let start = map.as_ptr() as usize;
        let first = start.next_multiple_of(HUGE) - start;
        // Small pages do as well.
        let _ = map.advise_range(Advice::HugePage, first, whole);
        Ok(Self::Huge { map, first })
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Huge { map, first } => &map[*first..],
        }
    }
}

impl DerefMut for Memory {
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
            let mut memory = Memory::huge(bytes).unwrap();
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
