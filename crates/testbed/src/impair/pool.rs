//! Memory for the frames inside the device: reused buffers.

use wb_port::StrippedVlan;

/// Maximum number of frames inside: a quarter of a second at 1 Mpps.
const MOST: usize = 1 << 18;
/// Bytes of destination and source address; a VLAN tag comes next.
const ADDRESSES: usize = 12;

/// A frame in the pool.
pub(crate) type FrameHandle = u32;

#[derive(Default)]
pub(crate) struct FramePool {
    buffers: Vec<Vec<u8>>,
    free: Vec<FrameHandle>,
}

impl FramePool {
    /// Stores a frame and restores the VLAN tag that the kernel removed. `None` if the pool is full.
    pub(crate) fn store_frame(
        &mut self,
        bytes: &[u8],
        vlan: Option<StrippedVlan>,
    ) -> Option<FrameHandle> {
        let handle = self.take_free()?;
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
    pub(crate) fn copy_frame(&mut self, handle: FrameHandle) -> FrameHandle {
        let bytes = std::mem::take(&mut self.buffers[handle as usize]);
        let second = self.free.pop().unwrap_or_else(|| self.grow());
        let buffer = &mut self.buffers[second as usize];
        buffer.clear();
        buffer.extend_from_slice(&bytes);
        self.buffers[handle as usize] = bytes;
        second
    }

    pub(crate) fn bytes(&self, handle: FrameHandle) -> &[u8] {
        &self.buffers[handle as usize]
    }

    /// Releases a frame.
    pub(crate) fn release(&mut self, handle: FrameHandle) {
        self.free.push(handle);
    }

    fn take_free(&mut self) -> Option<FrameHandle> {
        if let Some(handle) = self.free.pop() {
            return Some(handle);
        }
        (self.buffers.len() < MOST).then(|| self.grow())
    }

    fn grow(&mut self) -> FrameHandle {
        self.buffers.push(Vec::new());
        (self.buffers.len() - 1) as FrameHandle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_kept_copied_and_forgotten() {
        let mut pool = FramePool::default();
        let first = pool.store_frame(b"first", None).unwrap();
        let copy = pool.copy_frame(first);
        assert_ne!(first, copy);
        assert_eq!(
            (pool.bytes(first), pool.bytes(copy)),
            (&b"first"[..], &b"first"[..])
        );
        pool.release(first);
        let second = pool.store_frame(b"2nd", None).unwrap();
        assert_eq!((second, pool.bytes(second)), (first, &b"2nd"[..]));
        assert_eq!(pool.bytes(copy), b"first");
    }

    #[test]
    fn a_stripped_tag_is_put_back() {
        let mut pool = FramePool::default();
        let bytes: Vec<u8> = (0..20).collect();
        let handle = pool
            .store_frame(
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
        let mut pool = FramePool::default();
        let handles: Vec<FrameHandle> = (0..MOST)
            .map(|_| pool.store_frame(b"", None).unwrap())
            .collect();
        assert_eq!(pool.store_frame(b"", None), None);
        pool.copy_frame(handles[0]);
        pool.release(handles[1]);
        assert_eq!(pool.store_frame(b"x", None), Some(handles[1]));
    }
}
