//! How late the tester itself was, and what of a result that may have caused: one rule for all engines.
//!
//! Every engine measures its own lateness the same way ([`Turns`]), every report tells it, and every
//! verdict asks [`judge_lateness`] before a device is blamed. The rule is a bound, not a guess. Whoever
//! was away and then sends at once what fell due meanwhile has moved so many departures; a queue on the
//! way loses at most one frame more for each that was moved, and holds none back for longer than the
//! tester was away. (A burst no larger than a batch is left out: that is how senders send.) So what goes beyond the bound is the device's doing, late tester or not, and what
//! stays within it proves nothing.
//!
//! Takes the time as an argument, reads no clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What counts as late, in ns: less is the ordinary noise of a scheduler, and no more than a batch.
pub const LATE_NS: u64 = 1_000_000;
/// What leaves at once is a burst if it is more than this; less is a batch, which senders make at any
/// time, and for which every device has room.
pub const BATCH: u64 = 64;
/// … or more than falls due in this time, in ns, where that is less: so slow a schedule has no batches, and a queue that is
/// as slow may have no room for them.
pub const USUAL_NS: u64 = 4 * LATE_NS;
/// The share of what was asked for that may stay unsent for lateness before a run says nothing of the
/// load it was asked for.
pub const MISSED: f64 = 0.02;
/// How every reason begins that [`judge_lateness`] gives.
pub const WAS_LATE: &str = "the tester was late";

/// The longest times of which is known when they were; none overlaps another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absences([(u64, u64); 8]);

impl Absences {
    /// With one more.
    #[cold]
    fn with(self, (mut begin, mut end): (u64, u64)) -> Self {
        let mut all = [(0, 0); 9];
        for (place, absence) in all.iter_mut().zip(self.0) {
            // Absences that it touches are merged with it.
            if absence.0 <= end && begin <= absence.1 && absence != (0, 0) {
                (begin, end) = (begin.min(absence.0), end.max(absence.1));
            } else {
                *place = absence;
            }
        }
        all[8] = (begin, end);
        all.sort_unstable_by_key(|(begin, end)| begin.abs_diff(*end));
        let mut longest = Self::default();
        longest.0.copy_from_slice(&all[1..]);
        longest
    }

    fn plus(self, other: &Self) -> Self {
        let known = other.0.into_iter().filter(|a| *a != (0, 0));
        known.fold(self, Self::with)
    }

    /// For how long both were away at once, ns.
    fn overlap_ns(&self, other: &Self) -> u64 {
        let at_once = |a: (u64, u64), b: (u64, u64)| a.1.min(b.1).saturating_sub(a.0.max(b.0));
        let pairs = self.0.iter().flat_map(|a| other.0.map(|b| at_once(*a, b)));
        pairs.sum()
    }
}

/// How late one worker, or all of a run, was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Lateness {
    /// The longest time in ns that a worker was away: from the end of one turn, or of the sleep it had
    /// asked for, to the beginning of the next.
    pub largest_gap_ns: u64,
    /// How often a worker was away for more than 1 ms.
    pub stalls: u64,
    /// For how long in all, ns. Times in which several workers were away count once, as far as each of them was away
    /// for no more than 8 times; beyond that the longest 8 do, and the others are added.
    pub stalled_ns: u64,
    /// When that was, as far as it is known.
    #[serde(skip)]
    pub absences: Absences,
    /// Frames, connections, requests and answers that fell due while a worker was away and left at once
    /// after it, in bursts of more than 64; of frames, also of more than fall due in 4 ms.
    pub late_departures: u64,
    /// Those that were given up for it: they are unsent, or have waited for an answer that may have lain
    /// unread.
    pub missed_departures: u64,
    /// Frames that waited in a ring while their worker was away, where answers or the times measured
    /// are late for it.
    pub late_reads: u64,
    /// How long a frame waited for its reader at most, ns; known where arrivals are stamped.
    pub oldest_read_ns: u64,
    /// Frames that found no room in our rings because we read too late.
    pub dropped_reads: u64,
    /// Connections that were open while their worker was away for so long that they may have failed for
    /// it, each counted once for each time: half of the shortest time that is waited for anything, or 100 ms.
    pub exposed_connections: u64,
}

impl Lateness {
    /// Takes note that a worker was away for `ns` until now. Returns whether that is a stall.
    #[inline]
    pub fn away(&mut self, now_ns: u64, ns: u64) -> bool {
        self.largest_gap_ns = self.largest_gap_ns.max(ns);
        let stalled = ns > LATE_NS;
        if stalled {
            self.stalls += 1;
            self.stalled_ns = self.stalled_ns.saturating_add(ns);
            self.absences = self.absences.with((now_ns.saturating_sub(ns), now_ns));
        }
        stalled
    }

    /// Time in which all workers of both were away, in ns.
    fn stalled_together_ns(&self, other: &Self) -> u64 {
        let sum = self.stalled_ns.saturating_add(other.stalled_ns);
        sum.saturating_sub(self.absences.overlap_ns(&other.absences))
    }

    /// Takes note that so many left at once after a stall, of which `usual` fall due in [`USUAL_NS`].
    pub fn made_up(&mut self, n: u64, usual: u64) {
        if n > BATCH.min(usual.max(1)) {
            self.late_departures += n;
        }
    }

    /// With that of another worker.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            largest_gap_ns: self.largest_gap_ns.max(other.largest_gap_ns),
            stalls: self.stalls + other.stalls,
            stalled_ns: self.stalled_together_ns(other),
            absences: self.absences.plus(&other.absences),
            late_departures: self.late_departures + other.late_departures,
            missed_departures: self.missed_departures + other.missed_departures,
            late_reads: self.late_reads + other.late_reads,
            oldest_read_ns: self.oldest_read_ns.max(other.oldest_read_ns),
            dropped_reads: self.dropped_reads + other.dropped_reads,
            exposed_connections: self.exposed_connections + other.exposed_connections,
        }
    }

    /// Frames that the tester may have lost, or made others lose, at most.
    #[must_use]
    pub const fn frames_at_risk(&self) -> u64 {
        self.late_departures.saturating_add(self.dropped_reads)
    }

    /// What happened, for the end of a sentence.
    #[must_use]
    pub fn account(&self) -> String {
        let mut parts = Vec::new();
        let mut say = |n: u64, what: &str, text: &str| {
            let many = if n == 1 || what.is_empty() { "" } else { "s" };
            if n > 0 {
                parts.push(format!("{n} {what}{many}{text}"));
            }
        };
        say(self.late_departures, "departure", " made up for at once");
        say(self.missed_departures, "", "given up");
        say(self.late_reads, "frame", " read late");
        say(
            self.dropped_reads,
            "frame",
            " that found no room in its receive rings",
        );
        let mut text = match self.stalls {
            0 => "it did not read in time".to_owned(),
            1 => format!("away once, for {}", millis(self.largest_gap_ns)),
            n => format!(
                "away {n} times, {} in all and {} at most",
                millis(self.stalled_ns),
                millis(self.largest_gap_ns)
            ),
        };
        if !parts.is_empty() {
            text.push_str(", ");
            text.push_str(&parts.join(", "));
        }
        text
    }
}

fn millis(ns: u64) -> String {
    match ns / 1_000_000 {
        0..10 => format!("{:.1} ms", ns as f64 / 1e6),
        ms => format!("{ms} ms"),
    }
}

/// Follows the turns of a loop. Costs a subtraction and a compare each.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// When the next turn was meant to begin; `u64::MAX` before the first.
    expected_ns: u64,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            expected_ns: u64::MAX,
        }
    }
}

impl Turns {
    /// The first turn is to begin at this time at the latest: who begins later was away before it.
    pub fn first_due(&mut self, ns: u64) {
        self.expected_ns = self.expected_ns.min(ns);
    }

    /// A turn begins. Returns for how long the worker was away, 0 if it was not.
    #[inline]
    pub fn begin(&mut self, now_ns: u64) -> u64 {
        let away = now_ns.saturating_sub(self.expected_ns);
        self.expected_ns = now_ns;
        away
    }

    /// The worker sleeps until then, or until a frame wakes it.
    #[inline]
    pub fn sleep_until(&mut self, ns: u64) {
        // Before the first turn nothing is expected.
        if self.expected_ns != u64::MAX {
            self.expected_ns = self.expected_ns.max(ns);
        }
    }
}

/// Something that a result is held against the device for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Charge {
    /// So many frames were lost, of which `borne` would have been all right.
    Frames {
        /// Lost, those that our own rings dropped included.
        bad: u64,
        /// How many were allowed.
        borne: f64,
    },
    /// So many connections or requests failed, of which `borne` would have been all right.
    Connections {
        /// Failed, or not finished.
        bad: u64,
        /// How many were allowed.
        borne: f64,
    },
    /// A time was longer than allowed; both in ns.
    Time {
        /// The measured one.
        measured_ns: f64,
        /// The longest that was allowed.
        limit_ns: f64,
    },
    /// A load was carried that should have been larger.
    Load {
        /// What was asked for, in frames, connections or requests.
        intended: u64,
        /// What was sent.
        offered: u64,
    },
    /// A rate below its limit.
    Rate {
        /// Measured rate.
        measured: f64,
        /// Lowest rate that is allowed.
        limit: f64,
        /// Duration of the measurement, ns.
        elapsed_ns: u64,
    },
}

/// Whether the tester's lateness alone may have caused this; then the reason, which begins with
/// [`WAS_LATE`]. `None`: the tester was in time, or what it missed does not make up for it.
#[must_use]
pub fn judge_lateness(lateness: &Lateness, charge: &Charge) -> Option<String> {
    let excused = |bad: u64, borne: f64, excuse: u64| {
        bad as f64 > borne && bad.saturating_sub(excuse) as f64 <= borne
    };
    let why = match *charge {
        Charge::Frames { bad, borne } => excused(bad, borne, lateness.frames_at_risk())
            .then(|| format!("that may have cost all {bad} frames that are missing")),
        Charge::Connections { bad, borne } => {
            let excuse = lateness
                .frames_at_risk()
                .saturating_add(lateness.exposed_connections);
            excused(bad, borne, excuse).then(|| format!("that may be why all {bad} of them failed"))
        }
        Charge::Time {
            measured_ns,
            limit_ns,
        } => {
            let late = lateness.stalls > 0
                && measured_ns > limit_ns
                && measured_ns - lateness.largest_gap_ns as f64 <= limit_ns;
            late.then(|| format!("that may be why it took {:.1} us", measured_ns / 1e3))
        }
        Charge::Rate {
            measured,
            limit,
            elapsed_ns,
        } => {
            // Without the stalls the same count would have taken the rest of the time.
            let stalled = lateness.stalled_ns.min(elapsed_ns);
            let share = stalled as f64 / elapsed_ns.max(1) as f64;
            let late = stalled > 0 && measured < limit && measured >= limit * (1.0 - share);
            late.then(|| {
                format!(
                    "that is {:.1} % of the time, for which the rate may be lower",
                    share * 100.0
                )
            })
        }
        Charge::Load { intended, offered } => {
            let unsent = intended.saturating_sub(offered);
            let missed = lateness.missed_departures.min(unsent);
            (missed > 0 && missed as f64 > intended as f64 * MISSED)
                .then(|| format!("{missed} of {intended} that were asked for were not sent for it"))
        }
    };
    why.map(|why| format!("{WAS_LATE} ({}): {why}", lateness.account()))
}

/// The lateness of a run, and what it may have caused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LatenessReport {
    /// That of all workers together: sums, and the largest of what is a time.
    #[serde(flatten)]
    pub all: Lateness,
    /// Why the result says nothing of the device, where that is so; then the verdict is `invalid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_have_caused: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(frames: u64) -> Lateness {
        let mut lateness = Lateness::default();
        lateness.away(100_000_000, 80_000_000);
        lateness.late_departures = frames;
        lateness
    }

    #[test]
    fn turns_tell_sleep_from_absence() {
        let mut turns = Turns::default();
        assert_eq!(turns.begin(5_000), 0, "nothing was expected before");
        assert_eq!(turns.begin(7_000), 2_000);
        turns.sleep_until(20_000);
        assert_eq!(turns.begin(12_000), 0, "a frame may wake it");
        turns.sleep_until(30_000);
        assert_eq!(turns.begin(30_050), 50);
        // A sleep that was over before it began.
        turns.sleep_until(10);
        assert_eq!(turns.begin(30_100), 50);
    }

    #[test]
    fn who_begins_too_late_was_away_before() {
        for (first, away) in [(900, 0), (1_000, 0), (1_700, 700)] {
            let mut turns = Turns::default();
            turns.first_due(1_000);
            assert_eq!(turns.begin(first), away);
            assert_eq!(turns.begin(first + 5), 5);
        }
    }

    #[test]
    fn a_stop_of_all_workers_counts_once() {
        const MS: u64 = 1_000_000;
        let worker = |absences: &[(u64, u64)]| {
            let mut lateness = Lateness::default();
            for (from, to) in absences {
                lateness.away(to * MS, (to - from) * MS);
            }
            lateness
        };
        let in_all = |workers: &[Lateness]| {
            let none = Lateness::default();
            workers.iter().fold(none, |sum, w| sum.plus(w)).stalled_ns / MS
        };
        let (one, two) = (worker(&[(1_000, 2_000)]), worker(&[(1_003, 1_997)]));
        assert_eq!(in_all(&[one, two]), 1_000);
        assert_eq!(in_all(&[two, one, one]), 1_000);
        let three = worker(&[(900, 1_100), (1_950, 2_050), (3_000, 3_010)]);
        assert_eq!(in_all(&[one, two, three]), 1_160);
        assert_eq!(in_all(&[three, two, one]), 1_160);
        // A stall without times is added.
        let told = Lateness {
            stalled_ns: 40 * MS,
            ..Lateness::default()
        };
        assert_eq!(in_all(&[one, told, two]), 1_040);
        // The longest are remembered.
        let mut often: Vec<(u64, u64)> = (0..20)
            .map(|i| (10_000 + i * 10, 10_002 + i * 10))
            .collect();
        often.push((1_000, 2_000));
        assert_eq!(in_all(&[worker(&often), two]), 1_040);
    }

    #[test]
    fn the_noise_of_a_scheduler_is_no_stall() {
        let mut lateness = Lateness::default();
        assert!(!lateness.away(LATE_NS, LATE_NS));
        assert!(lateness.away(9 * LATE_NS, LATE_NS + 1));
        assert_eq!(
            (
                lateness.stalls,
                lateness.stalled_ns,
                lateness.largest_gap_ns
            ),
            (1, LATE_NS + 1, LATE_NS + 1)
        );
    }

    #[test]
    fn a_batch_is_no_burst() {
        let mut lateness = Lateness::default();
        lateness.made_up(BATCH, u64::MAX);
        assert_eq!(lateness.frames_at_risk(), 0);
        lateness.made_up(BATCH + 1, u64::MAX);
        assert_eq!(lateness.frames_at_risk(), BATCH + 1);
    }

    #[test]
    fn what_lateness_may_have_cost_is_nobodys_fault() {
        let lost = |bad, borne| Charge::Frames { bad, borne };
        let reason = judge_lateness(&late(480), &lost(480, 0.0)).unwrap();
        assert!(
            reason.starts_with("the tester was late (away once, for 80 ms, 480 departures"),
            "{reason}"
        );
        // One more than that is the device's.
        assert_eq!(judge_lateness(&late(480), &lost(481, 0.0)), None);
        // … unless one is borne.
        assert!(judge_lateness(&late(480), &lost(481, 1.0)).is_some());
        // What is borne anyway needs no excuse.
        assert_eq!(judge_lateness(&late(480), &lost(3, 3.0)), None);
        assert_eq!(judge_lateness(&late(480), &lost(0, 0.0)), None);
        // A stall that cost nothing is told and excuses nothing.
        assert_eq!(judge_lateness(&late(0), &lost(1, 0.0)), None);
    }

    #[test]
    fn a_time_is_excused_by_no_more_than_the_longest_absence() {
        let took = |measured_ns, limit_ns| Charge::Time {
            measured_ns,
            limit_ns,
        };
        assert!(judge_lateness(&late(1), &took(82e6, 5e6)).is_some());
        assert_eq!(judge_lateness(&late(1), &took(86e6, 5e6)), None);
        assert_eq!(judge_lateness(&late(1), &took(4e6, 5e6)), None);
        assert_eq!(
            judge_lateness(&Lateness::default(), &took(5.1e6, 5e6)),
            None
        );
    }

    #[test]
    fn a_load_that_was_not_offered_is_none() {
        let mut lateness = late(0);
        let load = Charge::Load {
            intended: 1_000,
            offered: 900,
        };
        // A sender that is merely too slow has not been late.
        assert_eq!(judge_lateness(&lateness, &load), None);
        lateness.missed_departures = 20;
        assert_eq!(judge_lateness(&lateness, &load), None);
        lateness.missed_departures = 21;
        assert!(judge_lateness(&lateness, &load).is_some());
        let nothing = Charge::Load {
            intended: 10,
            offered: 0,
        };
        assert!(judge_lateness(&lateness, &nothing).is_some());
    }

    #[test]
    fn connections_at_a_stall_may_have_failed_for_it() {
        let lateness = Lateness {
            exposed_connections: 7,
            ..late(3)
        };
        let failed = |bad| Charge::Connections { bad, borne: 0.0 };
        assert!(judge_lateness(&lateness, &failed(10)).is_some());
        assert_eq!(judge_lateness(&lateness, &failed(11)), None);
    }

    /// The law behind the rule: however a tester stalls, a queue that drops its tail loses at most as
    /// many more as departures were moved, and none waits for longer than before plus the stall.
    #[test]
    fn a_queue_loses_no_more_than_was_moved() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..2_000 {
            let (gap, service) = (1 + random(50), 1 + random(60));
            let room = 1 + random(20);
            let (frames, from, length) = (200, random(5_000), random(3_000));
            let punctual: Vec<u64> = (0..frames).map(|k| k * gap).collect();
            let moved = |t: &u64| (from..from + length).contains(t);
            let stalled: Vec<u64> = punctual
                .iter()
                .map(|t| if moved(t) { from + length } else { *t })
                .collect();
            let n = punctual.iter().filter(|t| moved(t)).count() as u64;
            let (lost, late_lost) = (
                through(&punctual, service, room),
                through(&stalled, service, room),
            );
            assert!(
                late_lost <= lost + n,
                "{late_lost} > {lost} + {n}: gap {gap}, service {service}, room {room}, from {from}, length {length}"
            );
        }
    }

    /// Frames lost at a queue of `room` frames that takes `service` for each.
    fn through(arrivals: &[u64], service: u64, room: u64) -> u64 {
        let mut ends = std::collections::VecDeque::new();
        let (mut free_at, mut lost) = (0u64, 0);
        for at in arrivals {
            while ends.front().is_some_and(|end| end <= at) {
                ends.pop_front();
            }
            if ends.len() as u64 >= room {
                lost += 1;
                continue;
            }
            free_at = free_at.max(*at) + service;
            ends.push_back(free_at);
        }
        lost
    }
}
