//! Counters of the device, in a small file that other processes read during operation.
//!
//! Each direction has a separate slot, which its thread writes completely with one system call. A sequence number
//! before
//! and after the counters reveals a read in the middle of a write.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use wb_port::fault::ImpairCounters;

/// Counters of the frames of one direction.
///
/// For test frames, `arrived = lost + rate_dropped + (left − duplicated) + inside` always holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DirectionCounters {
    /// Test frames that arrived.
    pub arrived: u64,
    /// Test frames lost on purpose.
    pub lost: u64,
    /// Test frames dropped by the rate limit.
    pub rate_dropped: u64,
    /// Second copies that left.
    pub duplicated: u64,
    /// Originals that left after an original that had arrived later (RFC 4689).
    pub reordered: u64,
    /// Test frames that left, including copies.
    pub left: u64,
    /// Test frames that are still inside.
    pub inside: u64,
    /// Other frames (ARP, ND, ping), forwarded unchanged and immediately.
    pub passed: u64,
    /// Frames of both kinds that were due but not accepted by the link.
    pub tx_refused: u64,
    /// Frames lost before the device saw them, because its ring was full.
    pub rx_dropped: u64,
    /// Frames that could not be stored, because the device's memory was full.
    pub overflowed: u64,
    /// Sum of the times from arrival to the due departure, over the originals that left, ns.
    pub delay_sum_ns: u64,
    /// Shortest of these times, ns.
    pub delay_min_ns: u64,
    /// Longest of these times, ns.
    pub delay_max_ns: u64,
    /// Sum of the delays from the due departure until the link got the test frame, ns.
    pub late_sum_ns: u64,
    /// Longest of these delays, ns.
    pub late_max_ns: u64,
}

/// Number of 64-bit words of [`DirectionCounters`].
const WORDS: usize = 16;

impl DirectionCounters {
    pub(crate) fn update_counters(&mut self, impaired: ImpairCounters, inside: u64) {
        *self = Self {
            arrived: impaired.arrived,
            lost: impaired.lost,
            rate_dropped: impaired.rate_dropped,
            duplicated: impaired.duplicated,
            reordered: impaired.reordered,
            left: impaired.left,
            inside,
            delay_sum_ns: impaired.delay_sum_ns,
            delay_min_ns: impaired.delay_min_ns,
            delay_max_ns: impaired.delay_max_ns,
            ..*self
        };
    }

    fn words(&self) -> [u64; WORDS] {
        [
            self.arrived,
            self.lost,
            self.rate_dropped,
            self.duplicated,
            self.reordered,
            self.left,
            self.inside,
            self.passed,
            self.tx_refused,
            self.rx_dropped,
            self.overflowed,
            self.delay_sum_ns,
            self.delay_min_ns,
            self.delay_max_ns,
            self.late_sum_ns,
            self.late_max_ns,
        ]
    }

    fn from_words(words: &[u64; WORDS]) -> Self {
        let &[
            arrived,
            lost,
            rate_dropped,
            duplicated,
            reordered,
            left,
            inside,
            passed,
            tx_refused,
            rx_dropped,
            overflowed,
            delay_sum_ns,
            delay_min_ns,
            delay_max_ns,
            late_sum_ns,
            late_max_ns,
        ] = words;
        Self {
            arrived,
            lost,
            rate_dropped,
            duplicated,
            reordered,
            left,
            inside,
            passed,
            tx_refused,
            rx_dropped,
            overflowed,
            delay_sum_ns,
            delay_min_ns,
            delay_max_ns,
            late_sum_ns,
            late_max_ns,
        }
    }
}

/// Counters of the device in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceCounters {
    /// Direction from node a to node b.
    pub a_to_b: DirectionCounters,
    /// Direction from node b to node a.
    pub b_to_a: DirectionCounters,
}

/// Bytes of a slot: the counters between two copies of the sequence number.
const SLOT: usize = (WORDS + 2) * 8;

/// Slot of a direction in the file, held by its only writer.
pub(crate) struct CounterSlot {
    file: File,
    offset: u64,
    writings: u64,
    last: Option<DirectionCounters>,
}

impl CounterSlot {
    /// Slot `direction` (0 or 1) of the file.
    pub(crate) fn open(path: &Path, direction: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let mut slot = Self {
            file,
            offset: direction * SLOT as u64,
            writings: 0,
            last: None,
        };
        slot.publish(&DirectionCounters::default());
        Ok(slot)
    }

    /// Writes the counters if they changed.
    pub(crate) fn publish(&mut self, counters: &DirectionCounters) {
        if self.last.as_ref() == Some(counters) {
            return;
        }
        self.writings += 1;
        let mut bytes = [0; SLOT];
        let words = [self.writings]
            .into_iter()
            .chain(counters.words())
            .chain([self.writings]);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        // If the disk is full, the next write may succeed.
        if self.file.write_all_at(&bytes, self.offset).is_ok() {
            self.last = Some(*counters);
        }
    }
}

/// Counters in the file; `None` without a file.
pub(crate) fn read(path: &Path) -> Option<DeviceCounters> {
    // A write takes a microsecond: reading during a write is rare, and twice in a row rarer.
    (0..100).find_map(|_| {
        let bytes = fs::read(path).ok()?;
        Some(DeviceCounters {
            a_to_b: read_slot(bytes.get(..SLOT)?)?,
            b_to_a: read_slot(bytes.get(SLOT..2 * SLOT)?)?,
        })
    })
}

fn read_slot(bytes: &[u8]) -> Option<DirectionCounters> {
    let mut words = [0; WORDS + 2];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(place.try_into().expect("chunks are whole"));
    }
    let [before, counters @ .., after] = &words;
    (before == after).then(|| DirectionCounters::from_words(counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(first: u64) -> DirectionCounters {
        let mut words = [0; WORDS];
        for (word, number) in words.iter_mut().zip(first..) {
            *word = number;
        }
        DirectionCounters::from_words(&words)
    }

    #[test]
    fn every_counter_has_its_word() {
        let counters = numbered(1);
        assert_eq!(counters.words(), std::array::from_fn(|i| i as u64 + 1));
        assert_eq!((counters.arrived, counters.late_max_ns), (1, 16));
        let json = serde_json::to_value(counters).unwrap();
        assert_eq!(json.as_object().unwrap().len(), WORDS);
    }

    #[test]
    fn what_is_published_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.counters");
        assert_eq!(read(&path), None);
        let mut there = CounterSlot::open(&path, 0).unwrap();
        assert_eq!(read(&path), None, "one direction is missing");
        let mut back = CounterSlot::open(&path, 1).unwrap();
        assert_eq!(read(&path), Some(DeviceCounters::default()));
        there.publish(&numbered(1));
        back.publish(&numbered(100));
        assert_eq!(
            read(&path),
            Some(DeviceCounters {
                a_to_b: numbered(1),
                b_to_a: numbered(100)
            })
        );
    }

    #[test]
    fn half_a_writing_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.counters");
        let _slots = [
            CounterSlot::open(&path, 0).unwrap(),
            CounterSlot::open(&path, 1).unwrap(),
        ];
        let mut bytes = fs::read(&path).unwrap();
        bytes[0] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(read(&path), None);
    }
}
