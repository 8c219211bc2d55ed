//! Effective listening time of a thread: a delay of the thread itself never makes an answer late.
//!
//! Timers use the last time for which all data received by then has been read. Stalls of the thread do not count as
//! waiting time.

use std::collections::VecDeque;

/// Number of remembered stalls; a thread that stalls permanently still measures time.
const REMEMBERED: usize = 64;

#[derive(Default)]
pub(super) struct EffectiveWait {
    /// All data received by this time has been read, ns.
    heard_ns: u64,
    /// Start of the current round of reads, ns, and the number of reads left in it.
    round: Option<(u64, usize)>,
    /// End of each stall, ns, and its length.
    absences: VecDeque<(u64, u64)>,
}

impl EffectiveWait {
    /// Records a stall of `ns` that ended at `now`.
    pub(super) fn was_away(&mut self, now: u64, ns: u64) {
        if self.absences.len() == REMEMBERED {
            self.absences.pop_front();
        }
        self.absences.push_back((now, ns));
    }

    /// Records a read that began at `now`: of everything, or of a part, after which at most `more` reads are needed.
    pub(super) fn record_read(&mut self, now: u64, all: bool, more: usize) {
        let (began, left) = match all {
            true => (now, 0),
            false => self.round.unwrap_or((now, more)),
        };
        self.round = left.checked_sub(1).map(|left| (began, left));
        if left == 0 {
            self.heard_ns = began;
        }
    }

    /// Time without an answer since then, ns, during which the thread has listened.
    pub(super) fn effective_wait(&self, since: u64) -> u64 {
        let waited = self.heard_ns.saturating_sub(since);
        let away = self.absences.iter().rev().map_while(|(until, ns)| {
            let within = until.checked_sub(since).filter(|n| *n > 0)?;
            Some(within.min(*ns))
        });
        waited.saturating_sub(away.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_by_as_far_as_all_was_read() {
        let mut ears = EffectiveWait::default();
        ears.record_read(100, true, 2);
        assert_eq!(ears.effective_wait(30), 70);
        assert_eq!(ears.effective_wait(300), 0);
        // More is pending than one read returns: three reads return everything that was pending at the first.
        for (now, heard) in [(200, 100), (210, 100), (220, 200), (230, 200), (240, 200)] {
            ears.record_read(now, false, 2);
            assert_eq!(ears.effective_wait(0), heard, "at {now}");
        }
        ears.record_read(250, true, 2);
        assert_eq!(ears.effective_wait(0), 250);
    }

    #[test]
    fn who_was_away_has_not_waited() {
        let mut ears = EffectiveWait::default();
        ears.was_away(200, 50);
        ears.was_away(400, 100);
        ears.record_read(500, true, 1);
        let waited = [0, 160, 200, 250, 350, 400, 450].map(|since| ears.effective_wait(since));
        assert_eq!(waited, [350, 200, 200, 150, 100, 100, 50]);
    }

    #[test]
    fn who_is_away_all_the_time_still_sees_it_go_by() {
        let mut ears = EffectiveWait::default();
        for n in 1..=1_000 {
            ears.was_away(n * 10, 10);
            ears.record_read(n * 10, false, 3);
        }
        assert!(ears.effective_wait(0) > 9_000);
    }
}
