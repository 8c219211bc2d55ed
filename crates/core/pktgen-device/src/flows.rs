//! The flow table: each slot remembers one IPv4 destination and how many packets it had.

use crate::random::Random;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// None until the slot is first used.
    address: Option<u32>,
    packets: u32,
}

/// The flow table of a device. It outlives a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    slots: Vec<Slot>,
    current: usize,
}

impl Flows {
    /// Makes room for `flows` slots and forgets those that the present settings cannot have made:
    /// slots beyond the table and destinations outside `min..=max`.
    pub(crate) fn settle(&mut self, flows: u32, min: u32, max: u32) {
        self.slots.resize(flows as usize, Slot::default());
        if self.current >= self.slots.len() {
            self.current = 0;
        }
        for slot in &mut self.slots {
            if slot
                .address
                .is_some_and(|a| !(min..=max.max(min)).contains(&a))
            {
                *slot = Slot::default();
            }
        }
    }

    /// Room for `flows` slots, all else as it is.
    pub(crate) fn resize(&mut self, flows: u32) {
        self.slots.resize(flows as usize, Slot::default());
        if self.current >= self.slots.len() {
            self.current = 0;
        }
    }

    /// Goes to the slot of the next packet. `in_turn`: a flow has exactly `len` packets, then comes
    /// the next; else any slot, renewed after `len` + 1 packets.
    pub(crate) fn pick(&mut self, in_turn: bool, len: u32, random: &mut Random) {
        if self.slots.is_empty() {
            return;
        }
        if in_turn {
            if self.slots[self.current].packets >= len {
                self.slots[self.current] = Slot::default();
                self.current = (self.current + 1) % self.slots.len();
            }
        } else {
            self.current = random.below(self.slots.len() as u32) as usize;
            if self.slots[self.current].packets > len {
                self.slots[self.current] = Slot::default();
            }
        }
    }

    /// The destination of the current slot, if it has one.
    pub(crate) fn destination(&self) -> Option<u32> {
        self.slots.get(self.current)?.address
    }

    /// Gives the current slot its destination; false if there is no table.
    pub(crate) fn remember(&mut self, address: u32) -> bool {
        match self.slots.get_mut(self.current) {
            Some(slot) => {
                slot.address = Some(address);
                true
            }
            None => false,
        }
    }

    /// One packet more in the current slot.
    pub(crate) fn count(&mut self) {
        if let Some(slot) = self.slots.get_mut(self.current) {
            slot.packets = slot.packets.saturating_add(1);
        }
    }
}
