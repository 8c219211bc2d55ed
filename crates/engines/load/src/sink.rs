//! Output of the machine's frames: the slots lent by a port.

use wb_port::TxQueue;
use wb_tcp::FrameSink;

/// Lent slots, filled in order. Filled slots are sent by [`Sink::submit`].
pub(crate) struct Sink<'a, T> {
    tx: &'a mut T,
    batch: usize,
    lent: usize,
    filled: usize,
    /// Frames handed to the port so far.
    pub(crate) sent: usize,
}

impl<'a, T: TxQueue> Sink<'a, T> {
    pub(crate) fn new(tx: &'a mut T, batch: usize) -> Self {
        Self {
            tx,
            batch,
            lent: 0,
            filled: 0,
            sent: 0,
        }
    }

    /// Submits the filled slots and returns the rest to the port.
    #[inline]
    pub(crate) fn submit(&mut self) {
        if self.lent > 0 {
            self.tx.submit(self.filled);
            self.sent += self.filled;
            (self.lent, self.filled) = (0, 0);
        }
    }
}

impl<T: TxQueue> FrameSink for Sink<'_, T> {
    #[inline]
    fn lend(&mut self) -> Option<&mut [u8]> {
        if self.filled == self.lent {
            self.submit();
            self.lent = self.tx.lend(self.batch);
            if self.lent == 0 {
                return None;
            }
        }
        Some(self.tx.slot(self.filled).bytes)
    }

    #[inline]
    fn commit(&mut self, len: usize) {
        let slot = self.tx.slot(self.filled);
        // A frame fits its slot, so its length fits too.
        (*slot.len, *slot.cookie) = (len as u32, 0);
        self.filled += 1;
    }
}
