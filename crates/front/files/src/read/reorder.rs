//! Sorts packets by time stamp within a window.
//!
//! Independent of files and clocks. A packet that is later than the window allows is returned at once, out of order,
//! and counted; packets are never dropped.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::input::Packet;

/// Maximum bytes of held packets. At 10 Gbit/s, one second is more than a gigabyte; the window then shrinks to
/// protect the host's memory.
const MOST_BYTES: usize = 64 << 20;
/// Memory overhead of a held packet, in bytes.
const OVERHEAD: usize = size_of::<Held>() + 16;

struct Held {
    stamp_ns: u64,
    arrival: u64,
    packet: Packet,
}

/// The maximum of the heap is the earliest packet; for equal time stamps, the one that arrived first.
impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.stamp_ns, other.arrival).cmp(&(self.stamp_ns, self.arrival))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Held {}

/// Reorder buffer: [`push`](Self::push) a packet, then [`pop`](Self::pop) until there is none; at the end
/// [`finish`](Self::finish) and `pop` again.
pub(super) struct Reorder {
    window_ns: u64,
    held: BinaryHeap<Held>,
    held_bytes: usize,
    most_bytes: usize,
    arrivals: u64,
    latest_ns: u64,
    given_ns: u64,
    finished: bool,
    /// Packets that came after a later one.
    pub(super) moved: u64,
    /// Moved packets that came too late for their correct place.
    pub(super) too_late: u64,
    /// Packets returned early because too many bytes were held.
    pub(super) hurried: u64,
}

impl Reorder {
    pub(super) fn new(window_ns: u64) -> Self {
        Self {
            window_ns,
            held: BinaryHeap::new(),
            held_bytes: 0,
            most_bytes: MOST_BYTES,
            arrivals: 0,
            latest_ns: 0,
            given_ns: 0,
            finished: false,
            moved: 0,
            too_late: 0,
            hurried: 0,
        }
    }

    pub(super) fn push(&mut self, packet: Packet) {
        let stamp_ns = packet.stamp_ns;
        self.moved += u64::from(stamp_ns < self.latest_ns);
        self.too_late += u64::from(stamp_ns < self.given_ns);
        self.latest_ns = self.latest_ns.max(stamp_ns);
        self.held_bytes += packet.bytes.capacity() + OVERHEAD;
        self.held.push(Held {
            stamp_ns,
            arrival: self.arrivals,
            packet,
        });
        self.arrivals += 1;
    }

    pub(super) fn pop(&mut self) -> Option<Packet> {
        let first = self.held.peek()?;
        let due = self.finished || self.latest_ns - first.stamp_ns > self.window_ns;
        if !due {
            if self.held_bytes <= self.most_bytes {
                return None;
            }
            self.hurried += 1;
        }
        let packet = self.held.pop()?.packet;
        self.held_bytes -= packet.bytes.capacity() + OVERHEAD;
        self.given_ns = self.given_ns.max(packet.stamp_ns);
        Some(packet)
    }

    pub(super) fn finish(&mut self) {
        self.finished = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(reorder: &mut Reorder, stamps: &[u64]) -> Vec<u64> {
        let mut out = Vec::new();
        for stamp_ns in stamps {
            reorder.push(Packet {
                stamp_ns: *stamp_ns,
                ..Packet::default()
            });
            out.extend(std::iter::from_fn(|| reorder.pop()).map(|p| p.stamp_ns));
        }
        reorder.finish();
        out.extend(std::iter::from_fn(|| reorder.pop()).map(|p| p.stamp_ns));
        out
    }

    #[test]
    fn within_the_window_all_is_put_in_order() {
        let mut reorder = Reorder::new(10);
        assert_eq!(order(&mut reorder, &[5, 3, 9, 1, 11]), [1, 3, 5, 9, 11]);
        assert_eq!((reorder.moved, reorder.too_late), (2, 0));
    }

    #[test]
    fn what_comes_too_late_is_kept_and_counted() {
        let mut reorder = Reorder::new(10);
        assert_eq!(
            order(&mut reorder, &[5, 100, 4, 99, 120]),
            [5, 4, 99, 100, 120]
        );
        assert_eq!((reorder.moved, reorder.too_late), (2, 1));
    }

    #[test]
    fn memory_is_bounded() {
        let mut reorder = Reorder::new(u64::MAX);
        reorder.most_bytes = 3 * OVERHEAD;
        assert_eq!(order(&mut reorder, &[9, 8, 7, 6, 5]), [6, 5, 7, 8, 9]);
        assert_eq!((reorder.too_late, reorder.hurried), (1, 2));
    }
}
