//! Due times of connections.
//!
//! Knows a curve, limits and the time since the start, but no frames. The due time of the k-th connection follows from
//! k, so nothing drifts. A late worker catches up at once for at most `catch_up`; older launches are given up and
//! counted.

use derive_more::{AddAssign, Sub};
use wb_model::load::LoadShape;
use wb_model::units::Rational;

use wb_tcp::LatenessSeries;

use crate::curve::{Curve, ONE};
use crate::rates::WorkerLimits;

const SECOND: u64 = 1_000_000_000;
/// Connections opened at once if only the number of open ones is limited.
const AT_ONCE: u64 = 64;
/// Largest numerator of a rate, so that products with areas fit 128 bits.
const LARGEST: u64 = 1_000_000_000_000_000;

/// Counts of due launches or requests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign, Sub)]
pub struct LaunchCounters {
    /// Connections opened, or requests sent.
    pub launched: u64,
    /// Given up because the worker was too late.
    pub unsent: u64,
    /// Omitted because the intended number of connections was open. For requests: never sent because all connections
    /// waited for answers.
    pub held_back: u64,
    /// Omitted because all tried addresses and ports are in use, or the table is full.
    pub no_tuple: u64,
}

/// Grouping of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Groups of this size, evenly spaced; 0 means 1.
    Even(u32),
    /// As in dperf: groups of this size, at a whole number of groups per second, with a ramp in steps of a second. 0
    /// selects the smallest size from 4 to 10 that divides the rate, else 4.
    Dperf(u32),
}

/// Launches of one worker. Times are ns since the start of the run.
#[derive(Clone, Debug)]
pub(crate) struct LaunchSchedule {
    curve: Curve,
    limits: WorkerLimits,
    kind: ScheduleKind,
    grouping: Grouping,
    catch_up: u64,
    /// Ramp and wait of dperf's groups.
    ramp: u64,
    wait: u64,
    end: u64,
    /// Due launches wait for answers, so they do not become too old.
    waits: bool,
    counters: LaunchCounters,
}

#[derive(Clone, Debug)]
enum ScheduleKind {
    /// Limited only by the number of open connections.
    Unlimited,
    Even(EvenLaunches),
    Groups(LaunchGroups),
    /// No launches.
    Never,
}

/// Event k is due when the area below the curve reaches k / rate.
#[derive(Clone, Debug)]
struct EvenLaunches {
    num: u128,
    /// Per event, twice the area is `den / num`.
    den: u128,
    group: u64,
    /// Start of the present rate, and a flag that is set if an event is due right there.
    from_area: u128,
    with_first: bool,
    /// Events since then.
    passed: u64,
    /// Launches of the current group that are still to be made.
    owed: u64,
    due: u64,
}

/// dperf's groups: each schedules the next one by the interval of its second.
#[derive(Clone, Debug)]
struct LaunchGroups {
    cps: u64,
    group: u64,
    next: u64,
    owed: u64,
}

impl LaunchSchedule {
    pub(crate) fn new(
        shape: &LoadShape,
        limits: WorkerLimits,
        grouping: Grouping,
        catch_up: u64,
    ) -> Self {
        let curve = Curve::new(shape);
        let (ramp, wait) = (shape.ramp.as_nanos(), shape.wait.as_nanos());
        let mut pace = Self {
            curve,
            limits,
            kind: ScheduleKind::Never,
            grouping,
            catch_up,
            ramp,
            wait,
            end: ramp.max(wait).saturating_add(shape.duration.as_nanos()),
            waits: false,
            counters: LaunchCounters::default(),
        };
        pace.set(limits, None);
        pace
    }

    pub(crate) fn counters(&self) -> &LaunchCounters {
        &self.counters
    }

    /// Sets new limits, effective from `now` if the run has begun. An even rate continues from here.
    pub(crate) fn set(&mut self, limits: WorkerLimits, now: Option<u64>) {
        let before = std::mem::replace(&mut self.limits, limits);
        let begun = now.filter(|now| *now > self.curve.begin());
        let is_same = limits.launches == before.launches
            && limits.unlimited == before.unlimited
            && limits.open.is_some() == before.open.is_some();
        if begun.is_some() && is_same {
            return;
        }
        self.kind = match (limits.launches, self.grouping) {
            (None, _) if limits.open.is_none() && !limits.unlimited => ScheduleKind::Never,
            (None, _) => ScheduleKind::Unlimited,
            (Some(rate), _) if rate.is_zero() => ScheduleKind::Never,
            (Some(rate), Grouping::Dperf(group)) => {
                let cps = (rate.numerator() / rate.denominator()).max(1);
                ScheduleKind::Groups(LaunchGroups {
                    cps,
                    group: dperf_group(group, cps),
                    next: begun.unwrap_or(self.wait),
                    owed: 0,
                })
            }
            (Some(rate), Grouping::Even(group)) => {
                ScheduleKind::Even(self.even_launches(rate, group, begun))
            }
        };
    }

    fn even_launches(&self, rate: Rational, group: u32, begun: Option<u64>) -> EvenLaunches {
        let group = u64::from(group.max(1));
        let mut even = EvenLaunches {
            num: u128::from(rate.numerator().min(LARGEST)),
            den: u128::from(rate.denominator())
                .saturating_mul(u128::from(2 * ONE) * u128::from(SECOND) * u128::from(group)),
            group,
            from_area: begun.map_or(0, |now| self.curve.area_until(now)),
            with_first: begun.is_none(),
            passed: 0,
            owed: 0,
            due: 0,
        };
        even.seek_next(&self.curve);
        even
    }

    /// Current share of the rate, in millionths.
    pub(crate) fn current_share(&self, now: u64) -> u64 {
        self.curve.share_at(now)
    }

    /// Number of connections to open now, given the number of open ones.
    #[inline]
    pub(crate) fn connections_to_open(&mut self, now: u64, open: u64) -> u64 {
        let room = match self.limits.open {
            Some(most) => self.most_open(most, now).saturating_sub(open),
            None => u64::MAX,
        };
        let (due, given_up) = match &mut self.kind {
            ScheduleKind::Never => return 0,
            ScheduleKind::Unlimited => {
                let share = now < self.end && self.curve.share_at(now) > 0;
                return if share { room.min(AT_ONCE) } else { 0 };
            }
            ScheduleKind::Even(even) => {
                if now < even.due && even.owed == 0 {
                    return 0;
                }
                let before = if self.waits { even.owed } else { 0 };
                let given_up = even.take_due(&self.curve, now, self.end, self.catch_up, before);
                (even.owed, given_up)
            }
            ScheduleKind::Groups(groups) => {
                if now < groups.next && groups.owed == 0 {
                    return 0;
                }
                let until = now.min(self.end.saturating_sub(1));
                let given_up = groups.take_due(until, self.ramp, self.catch_up);
                (groups.owed, given_up)
            }
        };
        let wanted = due.min(room);
        // Launches without room would not have been possible in time either.
        let unsent = given_up.min(room - wanted);
        self.counters.unsent += unsent;
        let held_back = due - wanted + given_up - unsent;
        if held_back > 0 {
            self.drop_owed(due - wanted);
            self.counters.held_back += held_back;
        }
        wanted
    }

    /// Sets whether due launches must wait for answers.
    #[inline]
    pub(crate) fn set_waits(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Lateness of the due launches, the oldest first.
    #[inline]
    pub(crate) fn due_lateness(&self, now: u64) -> LatenessSeries {
        match &self.kind {
            ScheduleKind::Even(even) => even.due_lateness(&self.curve, now),
            _ => LatenessSeries::NOT,
        }
    }

    /// Ends the schedule: launches still due were never made.
    #[cold]
    pub(crate) fn finish(&mut self) {
        let owed = match &self.kind {
            ScheduleKind::Even(EvenLaunches { owed, .. })
            | ScheduleKind::Groups(LaunchGroups { owed, .. }) => *owed,
            _ => 0,
        };
        self.drop_owed(owed);
        match self.waits {
            true => self.counters.held_back += owed,
            false => self.counters.unsent += owed,
        }
    }

    /// Maximum number of connections open now; `None` means unlimited.
    #[inline]
    pub(crate) fn open_limit(&self, now: u64) -> Option<u64> {
        self.limits.open.map(|most| self.most_open(most, now))
    }

    /// With a launch rate the number of open connections is only a limit; otherwise it rises along the curve.
    fn most_open(&self, most: u64, now: u64) -> u64 {
        if self.limits.launches.is_some() {
            return most;
        }
        let share = u128::from(self.curve.share_at(now));
        (u128::from(most) * share).div_ceil(u128::from(ONE)) as u64
    }

    fn drop_owed(&mut self, n: u64) {
        match &mut self.kind {
            ScheduleKind::Even(EvenLaunches { owed, .. })
            | ScheduleKind::Groups(LaunchGroups { owed, .. }) => {
                *owed = owed.saturating_sub(n);
            }
            _ => {}
        }
    }

    /// Records launches among those that were due.
    #[inline]
    pub(crate) fn record_launches(&mut self, n: u64) {
        self.counters.launched += n;
        self.drop_owed(n);
    }

    /// Records launches that are impossible even later, because no tuple is free.
    #[cold]
    pub(crate) fn no_tuple(&mut self, n: u64) {
        self.counters.no_tuple += n;
        self.drop_owed(n);
    }

    /// Due time of the next launch; `None` if it depends on a connection closing.
    #[inline]
    pub(crate) fn next_due(&self, now: u64, open: u64) -> Option<u64> {
        if self.limits.open.is_some_and(|most| open >= most) {
            return None;
        }
        let due = match &self.kind {
            ScheduleKind::Never => return None,
            ScheduleKind::Unlimited if self.limits.unlimited => self.curve.begin().max(now),
            // The limit rises with the curve, so check every millisecond.
            ScheduleKind::Unlimited => self.curve.begin().max(now + 1_000_000),
            ScheduleKind::Even(even) if even.owed > 0 => now,
            ScheduleKind::Groups(groups) if groups.owed > 0 => now,
            ScheduleKind::Even(even) => even.due,
            ScheduleKind::Groups(groups) => groups.next,
        };
        (due < self.end).then_some(due)
    }
}

impl EvenLaunches {
    /// Computes the due time of the next event.
    fn seek_next(&mut self, curve: &Curve) {
        self.due = self.due_of(curve, self.passed);
    }

    /// Events due up to `area` since the present rate began.
    fn count(&self, area: u128) -> u64 {
        let count = (area - self.from_area.min(area)) * self.num / self.den;
        u64::try_from(count).unwrap_or(u64::MAX) + u64::from(self.with_first)
    }

    /// Lateness of the due launches.
    #[inline]
    fn due_lateness(&self, curve: &Curve, now: u64) -> LatenessSeries {
        let events = self.owed.div_ceil(self.group);
        if events == 0 {
            return LatenessSeries::NOT;
        }
        let first = self.due_of(curve, self.passed - events);
        let last = match events {
            1 => first,
            _ => self.due_of(curve, self.passed - 1),
        };
        LatenessSeries {
            first: now.saturating_sub(first),
            step: last.saturating_sub(first) / (self.owed - 1).max(1),
        }
    }

    /// Due time of an event, counted from the start of the present rate.
    fn due_of(&self, curve: &Curve, event: u64) -> u64 {
        // The first event is due at the start of the curve if included, the next one a stride later.
        let ordinal = event + u64::from(!self.with_first);
        if ordinal == 0 {
            return curve.begin();
        }
        let area = (u128::from(ordinal) * self.den).div_ceil(self.num);
        curve.time_of(self.from_area + area).max(curve.begin())
    }

    /// Collects everything due by `now`. Gives up what is older than `catch_up`, except the `kept` oldest, and returns
    /// the number given up.
    fn take_due(&mut self, curve: &Curve, now: u64, end: u64, catch_up: u64, kept: u64) -> u64 {
        let area = curve.area_until(now);
        let mut due = self.count(area);
        // An event due exactly at the end is beyond it.
        due -= u64::from(now >= end && due > 0 && self.is_whole(area, due));
        let mut given_up = 0;
        if let Some(oldest) = now.checked_sub(catch_up) {
            given_up = self
                .count(curve.area_until(oldest))
                .min(due.saturating_sub(1));
        }
        if due > self.passed {
            self.owed += (due - self.passed) * self.group;
            self.passed = due;
        }
        // Also applies to earlier due launches, in case of frequent calls without launches.
        let unsent = self
            .owed
            .saturating_sub((due - given_up.min(due)) * self.group + kept);
        self.owed -= unsent;
        self.seek_next(curve);
        unsent
    }

    /// Returns true if the last of `due` events falls exactly on the area, and thus not before it.
    fn is_whole(&self, area: u128, due: u64) -> bool {
        let ordinal = u128::from(due - u64::from(self.with_first));
        ordinal > 0 && (area - self.from_area.min(area)) * self.num == ordinal * self.den
    }
}

impl LaunchGroups {
    /// Interval between groups at this time.
    fn group_interval(&self, at: u64, ramp: u64) -> u64 {
        let steady = SECOND / (self.cps / self.group).max(1);
        let seconds = ramp / SECOND;
        if at >= ramp || seconds == 0 {
            return steady;
        }
        let rate = (at / SECOND + 1) * (self.cps / seconds).max(1);
        (SECOND * self.group / rate).clamp(steady, SECOND)
    }

    fn take_due(&mut self, now: u64, ramp: u64, catch_up: u64) -> u64 {
        let mut unsent = 0;
        while self.next <= now {
            if now - self.next > catch_up {
                unsent += self.group;
            } else {
                self.owed += self.group;
            }
            self.next += self.group_interval(self.next, ramp);
        }
        let most = (catch_up / self.group_interval(now, ramp) + 1) * self.group;
        unsent += self.owed.saturating_sub(most);
        self.owed = self.owed.min(most);
        unsent
    }
}

fn dperf_group(told: u32, cps: u64) -> u64 {
    let group = match told {
        0 => (4..=10).find(|n| cps.is_multiple_of(*n)).unwrap_or(4),
        told => u64::from(told),
    };
    // If the rate is below the group size, all launches of a second form one group.
    group.min(cps)
}

#[cfg(test)]
mod tests;
