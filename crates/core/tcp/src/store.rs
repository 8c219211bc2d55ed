//! Byte store: blocks of one size, allocated on first use and reused.

/// Maximum number of bytes stored by one machine.
const MOST_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub(crate) struct Store {
    blocks: Vec<Box<[u8]>>,
    free: Vec<u32>,
    block_len: usize,
}

impl Store {
    /// Creates a store with blocks of `block_len` bytes.
    pub(crate) fn new(block_len: usize) -> Self {
        Self {
            blocks: Vec::new(),
            free: Vec::new(),
            block_len,
        }
    }

    #[inline]
    pub(crate) fn block_len(&self) -> usize {
        self.block_len
    }

    /// Number of bytes that can still be stored.
    #[inline]
    pub(crate) fn free_bytes(&self) -> usize {
        let made = self.blocks.len() * self.block_len;
        MOST_BYTES.saturating_sub(made) + self.free.len() * self.block_len
    }

    /// Returns a block, or None if the limit is reached.
    pub(crate) fn allocate_block(&mut self) -> Option<u32> {
        if let Some(block) = self.free.pop() {
            return Some(block);
        }
        if (self.blocks.len() + 1) * self.block_len > MOST_BYTES {
            return None;
        }
        self.blocks.push(vec![0; self.block_len].into_boxed_slice());
        Some(self.blocks.len() as u32 - 1)
    }

    pub(crate) fn give_back(&mut self, block: u32) {
        self.free.push(block);
    }

    pub(crate) fn get(&self, block: u32) -> &[u8] {
        &self.blocks[block as usize]
    }

    pub(crate) fn get_mut(&mut self, block: u32) -> &mut [u8] {
        &mut self.blocks[block as usize]
    }

    /// Removes the bytes of a block, to be [put back](Store::return_bytes).
    pub(crate) fn lend(&mut self, block: u32) -> Box<[u8]> {
        std::mem::take(&mut self.blocks[block as usize])
    }

    pub(crate) fn return_bytes(&mut self, block: u32, bytes: Box<[u8]>) {
        self.blocks[block as usize] = bytes;
    }
}
