//! Flow table: each slot holds one IPv4 destination and its number of packets.

use wb_wire::SplitMix64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// `None` until the slot is first used.
    address: Option<u32>,
    packets: u32,
}

/// Flow table of a device. Outlives a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    slots: Vec<Slot>,
    current: usize,
}

impl Flows {
    /// Resizes the table to `flows` slots, and clears those that the current settings cannot have produced: slots
    /// beyond the table and destinations outside `min..=max`.
    pub(crate) fn resize_and_clear(&mut self, flows: u32, min: u32, max: u32) {
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

    /// Resizes the table to `flows` slots, without other changes.
    pub(crate) fn resize(&mut self, flows: u32) {
        self.slots.resize(flows as usize, Slot::default());
        if self.current >= self.slots.len() {
            self.current = 0;
        }
    }

    /// Selects the slot of the next packet. With `in_turn`, each flow has exactly `len` packets before the next one;
    /// otherwise the slot is random, and restarts after `len` + 1 packets.
    pub(crate) fn pick(&mut self, in_turn: bool, len: u32, random: &mut SplitMix64) {
        if self.slots.is_empty() {
            return;
        }
        if in_turn {
            if self.slots[self.current].packets >= len {
                self.slots[self.current] = Slot::default();
                self.current = (self.current + 1) % self.slots.len();
            }
        } else {
            self.current = random.below_u32(self.slots.len() as u32) as usize;
            if self.slots[self.current].packets > len {
                self.slots[self.current] = Slot::default();
            }
        }
    }

    /// Destination of the current slot, if it has one.
    pub(crate) fn destination(&self) -> Option<u32> {
        self.slots.get(self.current)?.address
    }

    /// Sets the destination of the current slot. Returns false if there is no table.
    pub(crate) fn remember(&mut self, address: u32) -> bool {
        match self.slots.get_mut(self.current) {
            Some(slot) => {
                slot.address = Some(address);
                true
            }
            None => false,
        }
    }

    /// Counts a packet in the current slot.
    pub(crate) fn count(&mut self) {
        if let Some(slot) = self.slots.get_mut(self.current) {
            slot.packets = slot.packets.saturating_add(1);
        }
    }
}
