//! Hash table from 32-bit flow number to dense index, for receivers that do not know their flows in advance.
//!
//! Open addressing with linear probing at half load at most: one multiplication and usually one cache line. Flows are
//! never removed.

/// Fibonacci hashing: the odd number nearest to 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Map from flow number to index, in order of first arrival.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// Flow number in the upper half, index + 1 in the lower; 0 is free.
    slots: Vec<u64>,
    flows: Vec<u32>,
}

impl Keys {
    pub(crate) fn new() -> Keys {
        Keys {
            slots: vec![0; 64],
            flows: Vec::new(),
        }
    }

    /// Flow numbers by index.
    pub(crate) fn flows(&self) -> &[u32] {
        &self.flows
    }

    #[inline]
    pub(crate) fn get(&self, flow: u32) -> Option<usize> {
        let mut at = self.home(flow);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == flow {
                return Some(slot as u32 as usize - 1);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Assigns the next index to a new flow.
    pub(crate) fn insert(&mut self, flow: u32) -> usize {
        if (self.flows.len() + 1) * 2 > self.slots.len() {
            self.slots = vec![0; self.slots.len() * 2];
            for index in 0..self.flows.len() {
                self.place(self.flows[index], index);
            }
        }
        let index = self.flows.len();
        self.flows.push(flow);
        self.place(flow, index);
        index
    }

    fn place(&mut self, flow: u32, index: usize) {
        let mut at = self.home(flow);
        while self.slots[at] != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = (u64::from(flow) << 32) | (index as u64 + 1);
    }

    #[inline]
    fn home(&self, flow: u32) -> usize {
        let bits = self.slots.len().trailing_zeros();
        (u64::from(flow).wrapping_mul(MULTIPLIER) >> (64 - bits)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_inserted_and_nothing_else() {
        let mut keys = Keys::new();
        let numbers = |n: u32| n.wrapping_mul(2_654_435_761) ^ 0x5555;
        for n in 0..5000 {
            assert_eq!(keys.get(numbers(n)), None);
            assert_eq!(keys.insert(numbers(n)), n as usize);
        }
        for n in 0..5000 {
            assert_eq!(keys.get(numbers(n)), Some(n as usize));
        }
        assert_eq!(keys.get(numbers(5001)), None);
        assert_eq!(keys.flows()[4999], numbers(4999));
    }

    #[test]
    fn neighbouring_and_extreme_numbers() {
        let mut keys = Keys::new();
        for (index, flow) in [0, 1, 2, u32::MAX, u32::MAX - 1, 1 << 31]
            .into_iter()
            .enumerate()
        {
            assert_eq!(keys.insert(flow), index);
        }
        assert_eq!(keys.get(0), Some(0));
        assert_eq!(keys.get(u32::MAX), Some(3));
        assert_eq!(keys.get(3), None);
    }
}
