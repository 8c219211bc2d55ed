//! Impairing device in one lane of a link: stores the frames while [`Impairer`] decides.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::spsc;
use crate::fault::{ImpairCounters, Impairer, Impairment, InvalidImpairment};

pub(super) struct Device {
    impairer: Impairer<u32>,
    store: Store,
    published: Arc<Mutex<ImpairCounters>>,
}

impl Device {
    pub(super) fn new(
        impairment: &Impairment,
        frame_capacity: usize,
        published: Arc<Mutex<ImpairCounters>>,
    ) -> Result<Self, InvalidImpairment> {
        Ok(Self {
            impairer: Impairer::new(impairment)?,
            store: Store::new(frame_capacity),
            published,
        })
    }

    /// Accepts all frames that have arrived.
    pub(super) fn take_in(&mut self, ring: &mut spsc::RingReceiver) {
        let n = ring.available(usize::MAX);
        for i in 0..n {
            let (bytes, stamp_ns) = ring.frame(i);
            let slot = self.store.keep(bytes);
            let store = &mut self.store;
            let dropped = self
                .impairer
                .arrive(stamp_ns, bytes.len() as u32, slot, |slot| {
                    store.share(*slot);
                    *slot
                });
            if let Some(slot) = dropped {
                self.store.give_back(slot);
            }
        }
        ring.release(n);
    }

    /// Passes up to `max` due frames to `on_frame`, with their due times. Returns the number of frames.
    pub(super) fn let_out(
        &mut self,
        now_ns: u64,
        max: usize,
        mut each: impl FnMut(&[u8], u64),
    ) -> usize {
        let mut n = 0;
        while n < max
            && let Some((slot, due_ns)) = self.impairer.depart(now_ns)
        {
            each(self.store.bytes(slot), due_ns);
            self.store.give_back(slot);
            n += 1;
        }
        *self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = self.impairer.counters();
        n
    }

    pub(super) fn has_due(&self, now_ns: u64) -> bool {
        self.impairer
            .next_departure()
            .is_some_and(|due| due <= now_ns)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.impairer.counters().fmt(f)
    }
}

/// Frames in flight. Grows to the largest number that was ever inside.
struct Store {
    capacity: usize,
    bytes: Vec<u8>,
    slots: Vec<KeptFrame>,
    free: Vec<u32>,
}

struct KeptFrame {
    len: usize,
    /// Number of departures left.
    users: u32,
}

impl Store {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            bytes: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    fn keep(&mut self, frame: &[u8]) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(KeptFrame { len: 0, users: 0 });
            self.bytes.resize(self.slots.len() * self.capacity, 0);
            (self.slots.len() - 1) as u32
        });
        let start = slot as usize * self.capacity;
        self.bytes[start..start + frame.len()].copy_from_slice(frame);
        self.slots[slot as usize] = KeptFrame {
            len: frame.len(),
            users: 1,
        };
        slot
    }

    fn share(&mut self, slot: u32) {
        self.slots[slot as usize].users += 1;
    }

    fn bytes(&self, slot: u32) -> &[u8] {
        let start = slot as usize * self.capacity;
        &self.bytes[start..start + self.slots[slot as usize].len]
    }

    fn give_back(&mut self, slot: u32) {
        let kept = &mut self.slots[slot as usize];
        kept.users -= 1;
        if kept.users == 0 {
            self.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_when_the_last_user_is_done() {
        let mut store = Store::new(16);
        let a = store.keep(b"first");
        store.share(a);
        store.give_back(a);
        assert_eq!(store.keep(b"second"), a + 1);
        assert_eq!(store.bytes(a), b"first");
        store.give_back(a);
        assert_eq!(store.keep(b"third"), a);
        assert_eq!(
            (store.bytes(a), store.bytes(a + 1)),
            (&b"third"[..], &b"second"[..])
        );
    }
}
