//! Paces the frames before the counted schedule, while the rate rises evenly from 0 and is then held for a while.
//!
//! After time t of a ramp of length R the rate is r·t/R, so r·t²/(2R) frames have left and frame k
//! (from 1) is due at √(2Rk/r); from R on at R + (k − rR/2)/r. These frames are not part of any account, so floating
//! point will do.

/// What comes before the counted schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lead {
    /// How long the rate rises from 0.
    pub rise_ns: u64,
    /// How long it is held then.
    pub hold_ns: u64,
    /// At how many times the rate of the schedule.
    pub times: f64,
}

impl Lead {
    /// A ramp and nothing else.
    #[must_use]
    pub const fn ramp(rise_ns: u64) -> Self {
        Self {
            rise_ns,
            hold_ns: 0,
            times: 1.0,
        }
    }

    /// From its first frame to the counted schedule.
    #[must_use]
    pub const fn whole_ns(&self) -> u64 {
        self.rise_ns.saturating_add(self.hold_ns)
    }
}

impl Default for Lead {
    fn default() -> Self {
        Self::ramp(0)
    }
}

/// One worker's way through a ramp.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    /// 2R/r in ns².
    scale: f64,
    /// Frames until the rate is held.
    risen: f64,
    /// From frame to frame then, ns.
    gap: f64,
    rise: f64,
    k: f64,
    workers: f64,
    due: u64,
    end: u64,
}

impl Ramp {
    pub(crate) fn new(pps: f64, lead: Lead, worker: u32, workers: u32) -> Self {
        let pps = pps * lead.times;
        let rise = lead.rise_ns as f64;
        let mut ramp = Self {
            scale: 2.0 * rise * 1e9 / pps,
            risen: pps * rise / 2e9,
            gap: 1e9 / pps,
            rise,
            k: f64::from(worker) + 1.0,
            workers: f64::from(workers),
            due: 0,
            end: lead.whole_ns(),
        };
        ramp.seek();
        ramp
    }

    fn seek(&mut self) {
        let due = if self.k < self.risen {
            (self.k * self.scale).sqrt()
        } else {
            self.rise + (self.k - self.risen) * self.gap
        } as u64;
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
            let at = offset_ns as f64;
            let passed = if at < self.rise {
                at.powi(2) / self.scale
            } else {
                self.risen + (at - self.rise) / self.gap
            };
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
        let all = dues(Ramp::new(1000.0, Lead::ramp(1_000_000_000), 0, 1));
        assert_eq!(all.len(), 499);
        assert!(all.is_sorted());
        let first_half = all.iter().filter(|d| **d < 500_000_000).count();
        assert_eq!(first_half, 124);
        let mut both = dues(Ramp::new(1000.0, Lead::ramp(1_000_000_000), 0, 2));
        both.extend(dues(Ramp::new(1000.0, Lead::ramp(1_000_000_000), 1, 2)));
        both.sort_unstable();
        assert_eq!(both, all);
    }

    #[test]
    fn a_rate_is_held_after_it_has_risen() {
        let lead = Lead {
            rise_ns: 1_000_000_000,
            hold_ns: 2_000_000_000,
            times: 2.0,
        };
        let all = dues(Ramp::new(500.0, lead, 0, 1));
        let rising = all.iter().filter(|due| **due < 1_000_000_000).count();
        assert_eq!((rising, all.len()), (499, 2_499));
        let held: Vec<u64> = all[500..].windows(2).map(|two| two[1] - two[0]).collect();
        assert!(held.iter().all(|gap| (999_999..=1_000_001).contains(gap)));
        let only_held = dues(Ramp::new(
            1000.0,
            Lead {
                rise_ns: 0,
                hold_ns: 1_000_000_000,
                times: 1.0,
            },
            0,
            1,
        ));
        assert_eq!((only_held.len(), only_held[0]), (999, 1_000_000));
        let mut late = Ramp::new(500.0, lead, 0, 1);
        late.skip_before(2_000_000_000);
        assert!(
            (1_999_000_000..=2_001_000_000).contains(&late.due()),
            "{}",
            late.due()
        );
    }

    #[test]
    fn a_stall_is_not_made_up() {
        let mut ramp = Ramp::new(1000.0, Lead::ramp(1_000_000_000), 0, 1);
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
