//! Receive timestamps: reads them from the frame and converts them to wall time.

use rustix::time::{ClockId, clock_gettime};

/// Size of the timestamp in front of a frame: u64 monotonic ns, u32 magic, u32 unused, in host byte order.
/// `bpf/select.bpf.c` writes it.
const LEN: usize = 16;
const MAGIC: u32 = 0x7762_5844;

/// Takes the timestamp at the end of `front`, the bytes before a frame, if there is one.
///
/// Erases it, so that a later frame in the same memory does not appear to have a timestamp.
#[inline]
pub(crate) fn read_stamp(front: &mut [u8]) -> Option<u64> {
    let stamp = front.last_chunk_mut::<LEN>()?;
    let (time, rest) = stamp.split_first_chunk_mut::<8>()?;
    let (magic, _) = rest.split_first_chunk_mut::<4>()?;
    if u32::from_ne_bytes(*magic) != MAGIC {
        return None;
    }
    *magic = [0; 4];
    Some(u64::from_ne_bytes(*time))
}

/// Difference between wall time and monotonic time at one moment.
#[derive(Clone, Copy)]
pub(crate) struct WallOffset {
    offset_ns: u64,
    /// Wall time of that moment in ns.
    pub(crate) now_ns: u64,
}

impl WallOffset {
    /// Reads both clocks.
    pub(crate) fn sample() -> Self {
        // The thread may lose its CPU between two readings, and the offset would be wrong by that time. Readings within
        // a short interval are accurate to half of the interval.
        const SHORT_NS: u64 = 1_000;
        let mut best = (u64::MAX, 0, 0);
        for _ in 0..4 {
            let before = now(ClockId::Monotonic);
            let wall = now(ClockId::Realtime);
            let took = now(ClockId::Monotonic).saturating_sub(before);
            if took < best.0 {
                best = (took, before + took / 2, wall);
            }
            if took < SHORT_NS {
                break;
            }
        }
        let (_, monotonic, wall) = best;
        Self {
            offset_ns: wall.wrapping_sub(monotonic),
            now_ns: wall,
        }
    }

    #[inline]
    pub(crate) fn wall_ns(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.wrapping_add(self.offset_ns)
    }
}

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both clocks are never negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(time: u64, magic: u32) -> Vec<u8> {
        let mut bytes = vec![0xee; 240];
        bytes.extend(time.to_ne_bytes());
        bytes.extend(magic.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn a_stamp_is_taken_once() {
        let mut bytes = front(77, MAGIC);
        assert_eq!(read_stamp(&mut bytes), Some(77));
        assert_eq!(read_stamp(&mut bytes), None);
    }

    #[test]
    fn what_is_no_stamp_is_left_alone() {
        let mut bytes = front(77, MAGIC ^ 1);
        let before = bytes.clone();
        assert_eq!(read_stamp(&mut bytes), None);
        assert_eq!(bytes, before);
        assert_eq!(read_stamp(&mut [0; LEN - 1]), None);
    }

    #[test]
    fn the_offset_leads_from_one_clock_to_the_other() {
        let offset = WallOffset::sample();
        let before = now(ClockId::Realtime);
        let between = offset.wall_ns(now(ClockId::Monotonic));
        let after = now(ClockId::Realtime);
        // The wall clock may be slewed; a millisecond is far more than it can drift here.
        assert!(between + 1_000_000 > before && between < after + 1_000_000);
    }
}
