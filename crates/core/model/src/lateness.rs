//! Lateness of the tester and its possible effect on results: one rule for all engines.
//!
//! Every engine measures its lateness in the same way ([`Turns`]), every report includes it, and every verdict checks
//! [`judge_lateness`] before a failure is attributed to the device. The rule is a bound, not an estimate. A tester that
//! was away and then sends all frames that became due at once has moved that many departures. A queue on the path then
//! loses at most one more frame for each moved departure, and delays no frame by more than the time that the tester was
//! away. (Bursts no larger than a batch are excluded, because senders produce them normally.) Loss beyond the bound is
//! therefore caused by the device, even with a late tester; loss within the bound proves nothing.
//!
//! The time is passed as an argument; nothing here reads a clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::text::{count, time_ns};

use crate::counted;

/// Minimum lateness in ns. Less is ordinary scheduler noise, and no more than a batch.
pub const LATE_NS: u64 = 1_000_000;
/// Maximum number of frames sent at once that counts as a batch. Senders produce batches at any time, and every device
/// has room for one. More frames are a burst.
pub const BATCH: u64 = 64;
/// Time in ns that limits a batch on a slow schedule: more frames than are due in this time are a burst, too. Such a
/// schedule has no batches, and an equally slow queue may have no room for them.
pub const USUAL_NS: u64 = 4 * LATE_NS;
/// Share of the intended load that may stay unsent due to lateness before a run is invalid for this load.
pub const MISSED: f64 = 0.02;
/// Prefix of every reason from [`judge_lateness`].
pub const WAS_LATE: &str = "the tester was late";

/// Longest absences with known times, without overlaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absences([(u64, u64); 8]);

impl Absences {
    /// Returns the absences with one more.
    #[cold]
    fn with(self, (mut begin, mut end): (u64, u64)) -> Self {
        let mut all = [(0, 0); 9];
        for (place, absence) in all.iter_mut().zip(self.0) {
            // Absences that touch it are merged with it.
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

    /// Returns the time in which both were away at once, in ns.
    fn overlap_ns(&self, other: &Self) -> u64 {
        let at_once = |a: (u64, u64), b: (u64, u64)| a.1.min(b.1).saturating_sub(a.0.max(b.0));
        let pairs = self.0.iter().flat_map(|a| other.0.map(|b| at_once(*a, b)));
        pairs.sum()
    }
}

/// Lateness of one worker, or of all workers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Lateness {
    /// Longest absence of a worker, in ns: from the end of a loop iteration, or of a requested sleep, to the start of
    /// the next iteration.
    pub largest_gap_ns: u64,
    /// Number of absences longer than 1 ms.
    pub stalls: u64,
    /// Total time of these absences, in ns. Times in which several workers were away count once if each worker had at
    /// most 8 absences. For more absences, only the longest 8 of a worker are merged, and the rest is added.
    pub stalled_ns: u64,
    /// Times of these absences, as far as known.
    #[serde(skip)]
    pub absences: Absences,
    /// Frames, connections, requests and responses that became due during an absence and left at once after it, in
    /// bursts of more than 64. For frames, bursts of more than is due in 4 ms count, too.
    pub late_departures: u64,
    /// Departures that were dropped due to an absence: they are unsent, or waited for a response that may have been
    /// unread.
    pub missed_departures: u64,
    /// Frames that waited in a ring while their worker was away, if this delayed responses or measured times.
    pub late_reads: u64,
    /// Maximum time that a frame waited for its reader, in ns; known if arrivals have timestamps.
    pub oldest_read_ns: u64,
    /// Frames dropped because the tester's rings were full after late reads.
    pub dropped_reads: u64,
    /// Connections that were open during an absence long enough to make them fail, counted once per absence: half of
    /// the shortest timeout, or 100 ms.
    pub exposed_connections: u64,
}

impl Lateness {
    /// Records that a worker was away for `ns` until now. Returns true if this is a stall.
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

    /// Returns the time in which all workers of both sides were away, in ns.
    fn stalled_together_ns(&self, other: &Self) -> u64 {
        let sum = self.stalled_ns.saturating_add(other.stalled_ns);
        sum.saturating_sub(self.absences.overlap_ns(&other.absences))
    }

    /// Records that `n` departures left at once after a stall; `usual` of them are due in [`USUAL_NS`].
    pub fn made_up(&mut self, n: u64, usual: u64) {
        if n > BATCH.min(usual.max(1)) {
            self.late_departures += n;
        }
    }

    /// Returns the sum with the lateness of another worker.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            largest_gap_ns: self.largest_gap_ns.max(other.largest_gap_ns),
            stalls: self.stalls.saturating_add(other.stalls),
            stalled_ns: self.stalled_together_ns(other),
            absences: self.absences.plus(&other.absences),
            late_departures: self.late_departures.saturating_add(other.late_departures),
            missed_departures: self
                .missed_departures
                .saturating_add(other.missed_departures),
            late_reads: self.late_reads.saturating_add(other.late_reads),
            oldest_read_ns: self.oldest_read_ns.max(other.oldest_read_ns),
            dropped_reads: self.dropped_reads.saturating_add(other.dropped_reads),
            exposed_connections: self
                .exposed_connections
                .saturating_add(other.exposed_connections),
        }
    }

    /// Maximum number of frames that the tester may have lost or caused to be lost.
    #[must_use]
    pub const fn frames_at_risk(&self) -> u64 {
        self.late_departures.saturating_add(self.dropped_reads)
    }

    /// Description of the lateness, for the end of a sentence.
    #[must_use]
    pub fn account(&self) -> String {
        let longest = time_ns(self.largest_gap_ns as f64);
        let total = time_ns(self.stalled_ns as f64);
        let mut parts = match self.stalls {
            0 => Vec::new(),
            1 => vec![format!("1 stall of {longest}")],
            n => vec![format!(
                "{} stalls, {total} total, longest {longest}",
                count(n)
            )],
        };
        for (n, one, many) in [
            (
                self.late_departures,
                "departure late in a burst",
                "departures late in bursts",
            ),
            (self.missed_departures, "never sent", "never sent"),
            (self.late_reads, "frame read late", "frames read late"),
            (
                self.dropped_reads,
                "frame dropped by full receive rings",
                "frames dropped by full receive rings",
            ),
        ] {
            if n > 0 {
                parts.push(counted(count(n), one, many));
            }
        }
        match parts.is_empty() {
            true => "late reads".to_owned(),
            false => parts.join(", "),
        }
    }
}

/// Measures the gaps between the iterations of a loop. Costs a subtraction and a comparison per iteration.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Scheduled start of the next iteration; `u64::MAX` before the first.
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
    /// Sets the latest start of the first iteration: a later start counts as an absence.
    pub fn first_due(&mut self, ns: u64) {
        self.expected_ns = self.expected_ns.min(ns);
    }

    /// Starts an iteration. Returns the time that the worker was away, 0 if it was not.
    #[inline]
    pub fn begin(&mut self, now_ns: u64) -> u64 {
        let away = now_ns.saturating_sub(self.expected_ns);
        self.expected_ns = now_ns;
        away
    }

    /// Announces that the worker sleeps until this time, or until a frame wakes it.
    #[inline]
    pub fn sleep_until(&mut self, ns: u64) {
        // Before the first iteration no start is scheduled.
        if self.expected_ns != u64::MAX {
            self.expected_ns = self.expected_ns.max(ns);
        }
    }
}

/// Result that would be attributed to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Charge {
    /// Lost frames, of which `borne` are allowed.
    Frames {
        /// Lost frames, including those that the tester's rings dropped.
        bad: u64,
        /// Allowed number of lost frames.
        borne: f64,
    },
    /// Failed connections or requests, of which `borne` are allowed.
    Connections {
        /// Failed or unfinished connections or requests.
        bad: u64,
        /// Allowed number of failures.
        borne: f64,
    },
    /// Outages above their allowed number.
    Outages {
        /// Number of outages.
        bad: u64,
        /// Allowed number of outages.
        borne: f64,
        /// Duration of the longest outage.
        longest_ns: u64,
    },
    /// Time above its limit; both in ns.
    Time {
        /// Measured time.
        measured_ns: f64,
        /// Maximum allowed time.
        limit_ns: f64,
    },
    /// Load below the intended load.
    Load {
        /// Intended frames, connections or requests.
        intended: u64,
        /// Sent frames, connections or requests.
        offered: u64,
    },
    /// Rate below its limit.
    Rate {
        /// Measured rate.
        measured: f64,
        /// Minimum allowed rate.
        limit: f64,
        /// Duration of the measurement, ns.
        elapsed_ns: u64,
    },
}

/// Returns the reason, which begins with [`WAS_LATE`], if the tester's lateness alone may have caused this result.
/// `None` if the tester was on time or its lateness cannot explain the result.
#[must_use]
pub fn judge_lateness(lateness: &Lateness, charge: &Charge) -> Option<String> {
    let excused = |bad: u64, borne: f64, excuse: u64| {
        bad as f64 > borne && bad.saturating_sub(excuse) as f64 <= borne
    };
    let why = match *charge {
        Charge::Frames { bad, borne } => {
            excused(bad, borne, lateness.frames_at_risk()).then(|| {
                format!(
                    "this can explain {}",
                    all_of(bad, "lost frame", "lost frames")
                )
            })
        }
        Charge::Connections { bad, borne } => {
            let excuse = lateness
                .frames_at_risk()
                .saturating_add(lateness.exposed_connections);
            excused(bad, borne, excuse)
                .then(|| format!("this can explain {}", all_of(bad, "failure", "failures")))
        }
        Charge::Outages {
            bad,
            borne,
            longest_ns,
        } => {
            let is_as_long = lateness.largest_gap_ns >= longest_ns;
            (is_as_long && excused(bad, borne, lateness.stalls))
                .then(|| format!("this can explain {}", all_of(bad, "outage", "outages")))
        }
        Charge::Time {
            measured_ns,
            limit_ns,
        } => {
            let late = lateness.stalls > 0
                && measured_ns > limit_ns
                && measured_ns - lateness.largest_gap_ns as f64 <= limit_ns;
            late.then(|| format!("this can explain a time of {}", time_ns(measured_ns)))
        }
        Charge::Rate {
            measured,
            limit,
            elapsed_ns,
        } => {
            // Without the stalls the same count would have taken the remaining time.
            let stalled = lateness.stalled_ns.min(elapsed_ns);
            let share = stalled as f64 / elapsed_ns.max(1) as f64;
            let late = stalled > 0 && measured < limit && measured >= limit * (1.0 - share);
            late.then(|| {
                format!(
                    "stalls took {:.1} % of the time and can explain the lower rate",
                    share * 100.0
                )
            })
        }
        Charge::Load { intended, offered } => {
            let unsent = intended.saturating_sub(offered);
            let missed = lateness.missed_departures.min(unsent);
            let allowed = intended as f64 * MISSED;
            // Another cause may be larger.
            let is_main = missed >= unsent - missed;
            (missed > 0 && missed as f64 > allowed && is_main).then(|| {
                let (missed, all) = (count(missed), count(intended));
                format!("{missed} of {all} intended were due in a stall and never sent")
            })
        }
    };
    why.map(|why| format!("{WAS_LATE} ({}): {why}", lateness.account()))
}

/// Returns a number after "all", with its noun: "all 5 failures". One is "the failure".
fn all_of(n: u64, one: &str, many: &str) -> String {
    match n {
        1 => format!("the {one}"),
        n => format!("all {} {many}", count(n)),
    }
}

/// Lateness of a run, and its possible effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LatenessReport {
    /// Lateness of all workers together: sums of counts, and maxima of times.
    #[serde(flatten)]
    pub all: Lateness,
    /// Reason why the result does not describe the device; then the verdict is `invalid`.
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
        // A sleep that ended before it began.
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
        // Stalls without times are added.
        let told = Lateness {
            stalled_ns: 40 * MS,
            ..Lateness::default()
        };
        assert_eq!(in_all(&[one, told, two]), 1_040);
        // The longest absences are kept.
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
            reason.starts_with(
                "the tester was late (1 stall of 80.0 ms, 480 departures late in bursts): this can explain all 480 lost frames"
            ),
            "{reason}"
        );
        // One more than that is attributed to the device.
        assert_eq!(judge_lateness(&late(480), &lost(481, 0.0)), None);
        // … unless one loss is allowed.
        assert!(judge_lateness(&late(480), &lost(481, 1.0)).is_some());
        // Allowed losses need no explanation.
        assert_eq!(judge_lateness(&late(480), &lost(3, 3.0)), None);
        assert_eq!(judge_lateness(&late(480), &lost(0, 0.0)), None);
        // A stall without effect is reported and explains nothing.
        assert_eq!(judge_lateness(&late(0), &lost(1, 0.0)), None);
    }

    #[test]
    fn one_failure_is_singular_and_times_have_three_digits() {
        let lateness = Lateness {
            stalls: 2,
            largest_gap_ns: 168_700_000,
            stalled_ns: 1_641_000_000,
            exposed_connections: 1,
            dropped_reads: 1,
            ..Lateness::default()
        };
        let failed = Charge::Connections { bad: 1, borne: 0.0 };
        assert_eq!(
            judge_lateness(&lateness, &failed).unwrap(),
            "the tester was late (2 stalls, 1.64 s total, longest 169 ms, 1 frame dropped by full receive rings): this can explain the failure"
        );
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
    fn a_stall_explains_one_outage() {
        let outages = |bad, longest_ns| Charge::Outages {
            bad,
            borne: 0.0,
            longest_ns,
        };
        let excuse = |charge| judge_lateness(&late(1), &charge);
        // The stall took 80 ms.
        let reason = excuse(outages(1, 80_000_000)).unwrap();
        assert!(reason.ends_with("this can explain the outage"), "{reason}");
        assert_eq!(excuse(outages(1, 80_000_001)), None);
        assert_eq!(excuse(outages(2, 20_000_000)), None);
        assert_eq!(judge_lateness(&Lateness::default(), &outages(1, 0)), None);
    }

    #[test]
    fn a_load_that_was_not_offered_is_none() {
        let mut lateness = late(0);
        let load = Charge::Load {
            intended: 1_000,
            offered: 900,
        };
        // A sender that is only too slow was not late.
        assert_eq!(judge_lateness(&lateness, &load), None);
        // Most of what was not sent had another cause.
        lateness.missed_departures = 49;
        assert_eq!(judge_lateness(&lateness, &load), None);
        lateness.missed_departures = 50;
        assert!(judge_lateness(&lateness, &load).is_some());
        let enough = Charge::Load {
            intended: 1_000,
            offered: 980,
        };
        assert_eq!(judge_lateness(&lateness, &enough), None);
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

    /// Property behind the rule: for any stalls of the tester, a tail-drop queue loses at most one more frame per moved
    /// departure, and no frame waits longer than before plus the stall.
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
