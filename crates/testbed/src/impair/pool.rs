//! Memory for the frames inside the device: reused buffers.

use wb_port::StrippedVlan;

/// Maximum number of frames inside: a quarter of a second at 1 Mpps.
const MOST: usize = 1 << 18;
/// Bytes of destination and source address; a VLAN tag comes next.
const ADDRESSES: usize = 12;

/// A frame in the pool.
pub(crate) type Handle = u32;

#[derive(Default)]
pub(crate) struct Pool {
    buffers: Vec<Vec<u8>>,
    free: Vec<Handle>,
}

impl Pool {
    /// Stores a frame and restores the VLAN tag that the kernel removed. `None` if the pool is full.
    pub(crate) fn keep(&mut self, bytes: &[u8], vlan: Option<StrippedVlan>) -> Option<Handle> {
        let handle = self.take()?;
        let buffer = &mut self.buffers[handle as usize];
        buffer.clear();
        match vlan {
            Some(StrippedVlan { tpid, tci }) if bytes.len() >= ADDRESSES => {
                buffer.extend_from_slice(&bytes[..ADDRESSES]);
                buffer.extend_from_slice(&tpid.to_be_bytes());
                buffer.extend_from_slice(&tci.to_be_bytes());
                buffer.extend_from_slice(&bytes[ADDRESSES..]);
            }
            _ => buffer.extend_from_slice(bytes),
        }
        Some(handle)
    }

    /// Stores a copy of a frame. Always succeeds, with one frame beyond the limit if necessary.
    pub(crate) fn copy(&mut self, handle: Handle) -> Handle {
        let bytes = std::mem::take(&mut self.buffers[handle as usize]);
        let second = self.free.pop().unwrap_or_else(|| self.grow());
        let buffer = &mut self.buffers[second as usize];
        buffer.clear();
        buffer.extend_from_slice(&bytes);
        self.buffers[handle as usize] = bytes;
        second
    }

    pub(crate) fn bytes(&self, handle: Handle) -> &[u8] {
        &self.buffers[handle as usize]
    }

    /// Releases a frame.
    pub(crate) fn release(&mut self, handle: Handle) {
        self.free.push(handle);
    }

    fn take(&mut self) -> Option<Handle> {
        if let Some(handle) = self.free.pop() {
            return Some(handle);
        }
        (self.buffers.len() < MOST).then(|| self.grow())
    }

    fn grow(&mut self) -> Handle {
        self.buffers.push(Vec::new());
        (self.buffers.len() - 1) as Handle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_kept_copied_and_forgotten() {
        let mut pool = Pool::default();
        let first = pool.keep(b"first", None).unwrap();
        let copy = pool.copy(first);
        assert_ne!(first, copy);
        assert_eq!(
            (pool.bytes(first), pool.bytes(copy)),
            (&b"first"[..], &b"first"[..])
        );
        pool.release(first);
        let second = pool.keep(b"2nd", None).unwrap();
        assert_eq!((second, pool.bytes(second)), (first, &b"2nd"[..]));
        assert_eq!(pool.bytes(copy), b"first");
    }

    #[test]
    fn a_stripped_tag_is_put_back() {
        let mut pool = Pool::default();
        let bytes: Vec<u8> = (0..20).collect();
        let handle = pool
            .keep(
                &bytes,
                Some(StrippedVlan {
                    tpid: 0x8100,
                    tci: 0x600a,
                }),
            )
            .unwrap();
        let expected: Vec<u8> = (0..12).chain([0x81, 0, 0x60, 0x0a]).chain(12..20).collect();
        assert_eq!(pool.bytes(handle), expected);
    }

    #[test]
    fn there_is_an_end() {
        let mut pool = Pool::default();
        let handles: Vec<Handle> = (0..MOST).map(|_| pool.keep(b"", None).unwrap()).collect();
        assert_eq!(pool.keep(b"", None), None);
        pool.copy(handles[0]);
        pool.release(handles[1]);
        assert_eq!(pool.keep(b"x", None), Some(handles[1]));
    }
}
