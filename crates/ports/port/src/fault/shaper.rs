//! Rate-limited link: computes when a frame may leave and whether the buffer has room for it.

use std::collections::VecDeque;

use super::{Capacity, Rate};

/// Times have a resolution of 2^-32 ns, so that the rate is exact over any time.
const FRACTION: u32 = 32;

#[derive(Debug)]
pub(super) struct Shaper {
    per_frame: u64,
    per_byte: u64,
    buffer_frames: usize,
    buffer_ns: u64,
    /// Time at which the line becomes free, in units of 2^-32 ns.
    free_at: u128,
    /// Departures of the waiting frames, as of the last query.
    waiting: VecDeque<u64>,
}

impl Shaper {
    pub(super) fn new(capacity: &Capacity) -> Self {
        let unit = (1u64 << FRACTION) as f64;
        let (per_frame, per_byte) = match capacity.rate {
            Rate::FramesPerSecond(rate) => ((1e9 / rate * unit).round() as u64, 0),
            Rate::BitsPerSecond(bits) => {
                let per_byte = (8_000_000_000u128 << FRACTION) / u128::from(bits);
                (0, u64::try_from(per_byte).unwrap_or(u64::MAX))
            }
        };
        Self {
            per_frame,
            per_byte,
            buffer_frames: capacity.buffer_frames as usize,
            buffer_ns: capacity.buffer_ns,
            free_at: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Departure of a frame that is ready at `ready_ns`.
    fn departure(&self, ready_ns: u64) -> u64 {
        let free_at = (self.free_at + ((1 << FRACTION) - 1)) >> FRACTION;
        ready_ns.max(free_at as u64)
    }

    /// Returns true if a frame that is ready at `ready_ns` leaves at once or fits the buffer.
    pub(super) fn has_room(&mut self, ready_ns: u64) -> bool {
        while self
            .waiting
            .front()
            .is_some_and(|leaves| *leaves <= ready_ns)
        {
            self.waiting.pop_front();
        }
        let wait = self.departure(ready_ns) - ready_ns;
        wait == 0 || (self.waiting.len() < self.buffer_frames && wait <= self.buffer_ns)
    }

    /// Sends a frame and returns its departure. Does not check the buffer.
    pub(super) fn pass(&mut self, ready_ns: u64, len: u32) -> u64 {
        let takes = u128::from(self.per_frame) + u128::from(self.per_byte) * u128::from(len);
        let leaves = self.departure(ready_ns);
        self.free_at = self.free_at.max(u128::from(ready_ns) << FRACTION) + takes;
        if leaves > ready_ns {
            self.waiting.push_back(leaves);
        }
        leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_at_the_rate_of_their_bytes() {
        let mut shaper = Shaper::new(&Capacity::bits_per_second(100_000_000));
        // 125 bytes at 100 Mbit/s are 10 us.
        let leaves: Vec<u64> = [1000, 1000, 1000, 50_000]
            .into_iter()
            .map(|ready| shaper.pass(ready, 125))
            .collect();
        assert_eq!(leaves, [1000, 11_000, 21_000, 50_000]);
    }

    #[test]
    fn the_rate_holds_over_a_long_time() {
        let mut shaper = Shaper::new(&Capacity::frames_per_second(8_123_456.0, 10));
        let mut last = 0;
        for _ in 0..=812_345 {
            last = shaper.pass(0, 60);
        }
        // 812,345 gaps of 1 / 8,123,456 s, rounded up.
        assert_eq!(last, (812_345.0f64 / 8_123_456.0 * 1e9).ceil() as u64);
    }

    #[test]
    fn the_buffer_is_bounded_in_frames_and_in_time() {
        let mut shaper = Shaper::new(&Capacity::frames_per_second(1000.0, 2));
        let mut offer = |ready| shaper.has_room(ready).then(|| shaper.pass(ready, 60));
        assert_eq!(
            [offer(0), offer(0), offer(0), offer(0)],
            [Some(0), Some(1_000_000), Some(2_000_000), None]
        );
        assert_eq!(offer(999_999), None);
        assert_eq!(offer(1_000_000), Some(3_000_000));

        let mut shaper = Shaper::new(&Capacity {
            buffer_ns: 1_500_000,
            ..Capacity::frames_per_second(1000.0, 100)
        });
        let mut offer = |ready| shaper.has_room(ready).then(|| shaper.pass(ready, 60));
        assert_eq!(
            [offer(0), offer(0), offer(0)],
            [Some(0), Some(1_000_000), None]
        );
        assert_eq!(offer(500_000), Some(2_000_000));
    }
}
