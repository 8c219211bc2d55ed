//! Schedule of the ramp-up before the counted schedule: the rate rises evenly from 0 and is then held for a while.
//!
//! After time t of a ramp of length R the rate is r·t/R, so r·t²/(2R) frames have left and frame k (from 1) is due at
//! √(2Rk/r); from R on at R + (k − rR/2)/r. These frames are not part of any result, so floating point is sufficient.

use wb_port::offload::Pace;

/// The ramp-up before the counted schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RampUp {
    /// Time in which the rate rises from 0.
    pub rise_ns: u64,
    /// Time for which it is held afterwards.
    pub hold_ns: u64,
    /// Held rate, as a multiple of the schedule's rate.
    pub times: f64,
}

impl RampUp {
    /// A ramp without a hold time.
    #[must_use]
    pub const fn without_hold(rise_ns: u64) -> Self {
        Self {
            rise_ns,
            hold_ns: 0,
            times: 1.0,
        }
    }

    /// Time from its first frame to the counted schedule.
    #[must_use]
    pub const fn whole_ns(&self) -> u64 {
        self.rise_ns.saturating_add(self.hold_ns)
    }
}

impl Default for RampUp {
    fn default() -> Self {
        Self::without_hold(0)
    }
}

/// Position of one worker in a ramp.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    /// 2R/r in ns².
    scale: f64,
    /// Frames until the rate is held.
    risen: f64,
    /// Gap between frames after the rise, ns.
    gap: f64,
    rise: f64,
    k: f64,
    workers: f64,
    due: u64,
    end: u64,
}

impl Ramp {
    pub(crate) fn new(pps: f64, lead: RampUp, worker: u32, workers: u32) -> Self {
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
        ramp.find_next();
        ramp
    }

    /// Due time of frame `k`.
    fn due_time(&self, k: f64) -> f64 {
        if k < self.risen {
            (k * self.scale).sqrt()
        } else {
            self.rise + (k - self.risen) * self.gap
        }
    }

    /// Number of frames due by then.
    fn frames_due_by(&self, at: f64) -> f64 {
        if at < self.rise {
            at.powi(2) / self.scale
        } else {
            self.risen + (at - self.rise) / self.gap
        }
    }

    fn find_next(&mut self) {
        let due = self.due_time(self.k) as u64;
        self.due = if due < self.end { due } else { u64::MAX };
    }

    /// This worker's frames per second at the full rate.
    pub(crate) fn full_rate_pps(&self) -> f64 {
        1e9 / self.gap / self.workers
    }

    /// Frames from now on that are due before `until_ns`, at least one, approximated as evenly spaced, and their
    /// number. Times are from `start_ns` on. `None` if no frame is left.
    pub(crate) fn even_pace(&self, start_ns: u64, until_ns: u64) -> Option<(Pace, u64)> {
        /// Parts of a nanosecond.
        const PARTS: u64 = 1_000_000;
        if self.due == u64::MAX {
            return None;
        }
        let passed = self.frames_due_by(until_ns.min(self.end) as f64) - self.k;
        let frames = (passed / self.workers).ceil().max(1.0);
        let gap = (self.due_time(self.k + frames * self.workers) - self.due_time(self.k)) / frames;
        let pace = Pace {
            due_ns: start_ns.saturating_add(self.due),
            rest: 0,
            whole_ns: gap as u64,
            part: (gap.fract() * PARTS as f64) as u64,
            parts: PARTS,
            carry_ns: 1,
        };
        Some((pace, frames as u64))
    }

    /// Advances by frames that a port sent from that table.
    pub(crate) fn advance_by(&mut self, frames: u64) {
        self.k += frames as f64 * self.workers;
        self.find_next();
    }

    /// Due time of the next frame, from the start of the ramp; `u64::MAX` if none is left.
    pub(crate) fn next_due(&self) -> u64 {
        self.due
    }

    pub(crate) fn advance(&mut self) {
        self.k += self.workers;
        self.find_next();
    }

    /// Gives up frames due before `offset_ns`.
    pub(crate) fn skip_before(&mut self, offset_ns: u64) {
        if self.due < offset_ns {
            let passed = self.frames_due_by(offset_ns as f64);
            self.k += ((passed - self.k) / self.workers).floor().max(0.0) * self.workers;
            self.find_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(mut ramp: Ramp) -> Vec<u64> {
        let mut dues = Vec::new();
        while ramp.next_due() != u64::MAX {
            dues.push(ramp.next_due());
            ramp.advance();
        }
        dues
    }

    #[test]
    fn half_the_frames_of_the_full_rate() {
        let all = dues(Ramp::new(1000.0, RampUp::without_hold(1_000_000_000), 0, 1));
        assert_eq!(all.len(), 499);
        assert!(all.is_sorted());
        let first_half = all.iter().filter(|d| **d < 500_000_000).count();
        assert_eq!(first_half, 124);
        let mut both = dues(Ramp::new(1000.0, RampUp::without_hold(1_000_000_000), 0, 2));
        both.extend(dues(Ramp::new(
            1000.0,
            RampUp::without_hold(1_000_000_000),
            1,
            2,
        )));
        both.sort_unstable();
        assert_eq!(both, all);
    }

    #[test]
    fn a_rate_is_held_after_it_has_risen() {
        let lead = RampUp {
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
            RampUp {
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
            (1_999_000_000..=2_001_000_000).contains(&late.next_due()),
            "{}",
            late.next_due()
        );
    }

    #[test]
    fn even_parts_of_a_ramp_follow_it() {
        let lead = RampUp {
            rise_ns: 1_000_000_000,
            hold_ns: 500_000_000,
            times: 3.0,
        };
        let exact = dues(Ramp::new(3333.0, lead, 1, 2));
        let mut ramp = Ramp::new(3333.0, lead, 1, 2);
        let mut all = Vec::new();
        let mut now = 0;
        while ramp.next_due() != u64::MAX {
            now += 5_000_000;
            let Some((pace, frames)) = ramp.even_pace(7, now).filter(|(p, _)| p.due_ns - 7 <= now)
            else {
                continue;
            };
            let way = |k: u64| k * pace.whole_ns + k * pace.part / pace.parts * pace.carry_ns;
            all.extend((0..frames).map(|k| pace.due_ns - 7 + way(k)));
            ramp.advance_by(frames);
        }
        assert_eq!(all.len(), exact.len());
        // Within a part the rate is the mean; at the start of the ramp, gaps between frames are longer than parts.
        let off = all.iter().zip(&exact).map(|(a, b)| a.abs_diff(*b));
        let most = off.max().unwrap();
        assert!(most < 500_000, "{most} ns");
    }

    #[test]
    fn a_stall_is_not_made_up() {
        let mut ramp = Ramp::new(1000.0, RampUp::without_hold(1_000_000_000), 0, 1);
        ramp.skip_before(500_000_000);
        assert!(
            (499_000_000..=502_000_000).contains(&ramp.next_due()),
            "{}",
            ramp.next_due()
        );
        ramp.skip_before(2_000_000_000);
        assert_eq!(ramp.next_due(), u64::MAX);
    }
}
