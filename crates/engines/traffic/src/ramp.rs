//! Paces the frames before the counted schedule, while the rate rises evenly from 0.
//!
//! After time t of a ramp of length R the rate is r·t/R, so r·t²/(2R) frames have left and frame k
//! (from 1) is due at √(2Rk/r). These frames are not part of any account, so floating point will do.

/// One worker's way through a ramp.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    /// 2R/r in ns².
    scale: f64,
    k: f64,
    workers: f64,
    due: u64,
    end: u64,
}

impl Ramp {
    pub(crate) fn new(pps: f64, length_ns: u64, worker: u32, workers: u32) -> Self {
        let mut ramp = Self {
            scale: 2.0 * length_ns as f64 * 1e9 / pps,
            k: f64::from(worker) + 1.0,
            workers: f64::from(workers),
            due: 0,
            end: length_ns,
        };
        ramp.seek();
        ramp
    }

    fn seek(&mut self) {
        let due = (self.k * self.scale).sqrt() as u64;
        self.due = if due < self.end { due } else { u64::MAX };
    }

    /// When the next frame is due, from the start of the ramp; `u64::MAX` when none is left.
    pub(crate) fn due(&self) -> u64 {
        self.due
    }

    pub(crate) fn advance(&mut self) {
        self.k += self.workers;
        self.seek();
    }

    /// Gives up what is due before `offset_ns`.
    pub(crate) fn skip_before(&mut self, offset_ns: u64) {
        if self.due < offset_ns {
            let passed = (offset_ns as f64).powi(2) / self.scale;
            self.k += ((passed - self.k) / self.workers).floor().max(0.0) * self.workers;
            self.seek();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(mut ramp: Ramp) -> Vec<u64> {
        let mut dues = Vec::new();
        while ramp.due() != u64::MAX {
            dues.push(ramp.due());
            ramp.advance();
        }
        dues
    }

    #[test]
    fn half_the_frames_of_the_full_rate() {
        let all = dues(Ramp::new(1000.0, 1_000_000_000, 0, 1));
        assert_eq!(all.len(), 499);
        assert!(all.is_sorted());
        let first_half = all.iter().filter(|d| **d < 500_000_000).count();
        assert_eq!(first_half, 124);
        let mut both = dues(Ramp::new(1000.0, 1_000_000_000, 0, 2));
        both.extend(dues(Ramp::new(1000.0, 1_000_000_000, 1, 2)));
        both.sort_unstable();
        assert_eq!(both, all);
    }

    #[test]
    fn a_stall_is_not_made_up() {
        let mut ramp = Ramp::new(1000.0, 1_000_000_000, 0, 1);
        ramp.skip_before(500_000_000);
        assert!(
            (499_000_000..=502_000_000).contains(&ramp.due()),
            "{}",
            ramp.due()
        );
        ramp.skip_before(2_000_000_000);
        assert_eq!(ramp.due(), u64::MAX);
    }
}
