//! When connections are due.
//!
//! Knows a curve, limits and the time since the start, nothing of frames. The time at which the k-th
//! connection is due follows from k, so nothing drifts. Whoever is late makes up at once, for no more
//! than `catch_up`; older launches are given up and counted.

use derive_more::{AddAssign, Sub};
use wb_model::load::LoadShape;
use wb_model::units::Rational;

use wb_tcp::Late;

use crate::curve::{Curve, ONE};
use crate::rates::Limits;

const SECOND: u64 = 1_000_000_000;
/// Connections opened at once where nothing but the number of open ones limits them.
const AT_ONCE: u64 = 64;
/// The largest numerator of a rate, so that products with areas fit 128 bits.
const LARGEST: u64 = 1_000_000_000_000_000;

/// What became of launches, or of requests, that were due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign, Sub)]
pub struct LaunchCounters {
    /// Connections opened, or requests sent.
    pub launched: u64,
    /// Given up because the worker was too late.
    pub unsent: u64,
    /// Left out because as many connections were open as were asked for. Of requests: never sent because
    /// all connections waited for answers.
    pub held_back: u64,
    /// Left out because all addresses and ports that were tried are in use, or the table is full.
    pub no_tuple: u64,
}

/// How launches follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// So many at once, evenly spread; 0 is 1.
    Even(u32),
    /// As dperf does: so many at once (0: the smallest number from 4 to 10 that divides the rate,
    /// else 4), at whole numbers of groups a second, the ramp in steps of a second.
    Dperf(u32),
}

/// One worker's launches. Times are ns since the start of the run.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    curve: Curve,
    limits: Limits,
    kind: Kind,
    grouping: Grouping,
    catch_up: u64,
    /// Ramp and wait for dperf's groups.
    ramp: u64,
    wait: u64,
    end: u64,
    /// What is owed waits for answers, so it does not grow too old.
    waits: bool,
    counters: LaunchCounters,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Only the number of open connections limits.
    Unlimited,
    Even(Even),
    Groups(Groups),
    /// None at all.
    Never,
}

/// Event k is due when the area below the curve reaches k / rate.
#[derive(Clone, Debug)]
struct Even {
    num: u128,
    /// Per event, twice the area is `den / num`.
    den: u128,
    group: u64,
    /// Where the present rate began, and whether an event is due right there.
    from_area: u128,
    with_first: bool,
    /// Events passed since then.
    passed: u64,
    /// Of the group begun, launches that are still to be made.
    owed: u64,
    due: u64,
}

/// dperf's groups: each moves the next on by the interval of its second.
#[derive(Clone, Debug)]
struct Groups {
    cps: u64,
    group: u64,
    next: u64,
    owed: u64,
}

impl Pace {
    pub(crate) fn new(
        shape: &LoadShape,
        limits: Limits,
        grouping: Grouping,
        catch_up: u64,
    ) -> Self {
        let curve = Curve::new(shape);
        let (ramp, wait) = (shape.ramp.as_nanos(), shape.wait.as_nanos());
        let mut pace = Self {
            curve,
            limits,
            kind: Kind::Never,
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

    /// Takes other limits; from `now` on if the run has begun. An even rate goes on from here.
    pub(crate) fn set(&mut self, limits: Limits, now: Option<u64>) {
        let before = std::mem::replace(&mut self.limits, limits);
        let begun = now.filter(|now| *now > self.curve.begin());
        let is_same = limits.launches == before.launches
            && limits.unlimited == before.unlimited
            && limits.open.is_some() == before.open.is_some();
        if begun.is_some() && is_same {
            return;
        }
        self.kind = match (limits.launches, self.grouping) {
            (None, _) if limits.open.is_none() && !limits.unlimited => Kind::Never,
            (None, _) => Kind::Unlimited,
            (Some(rate), _) if rate.is_zero() => Kind::Never,
            (Some(rate), Grouping::Dperf(group)) => {
                let cps = (rate.numerator() / rate.denominator()).max(1);
                Kind::Groups(Groups {
                    cps,
                    group: dperf_group(group, cps),
                    next: begun.unwrap_or(self.wait),
                    owed: 0,
                })
            }
            (Some(rate), Grouping::Even(group)) => Kind::Even(self.even(rate, group, begun)),
        };
    }

    fn even(&self, rate: Rational, group: u32, begun: Option<u64>) -> Even {
        let group = u64::from(group.max(1));
        let mut even = Even {
            num: u128::from(rate.numerator().min(LARGEST)),
            den: u128::from(rate.denominator())
                .saturating_mul(u128::from(2 * ONE) * u128::from(SECOND) * u128::from(group)),
            group,
            from_area: begun.map_or(0, |now| self.curve.area(now)),
            with_first: begun.is_none(),
            passed: 0,
            owed: 0,
            due: 0,
        };
        even.seek(&self.curve);
        even
    }

    /// The share of the rate that is asked for now, in millionths.
    pub(crate) fn share(&self, now: u64) -> u64 {
        self.curve.share(now)
    }

    /// How many connections to open now, while so many are open.
    #[inline]
    pub(crate) fn wanted(&mut self, now: u64, open: u64) -> u64 {
        let room = match self.limits.open {
            Some(most) => self.most_open(most, now).saturating_sub(open),
            None => u64::MAX,
        };
        let (due, given_up) = match &mut self.kind {
            Kind::Never => return 0,
            Kind::Unlimited => {
                let share = now < self.end && self.curve.share(now) > 0;
                return if share { room.min(AT_ONCE) } else { 0 };
            }
            Kind::Even(even) => {
                if now < even.due && even.owed == 0 {
                    return 0;
                }
                let before = if self.waits { even.owed } else { 0 };
                let given_up = even.take_due(&self.curve, now, self.end, self.catch_up, before);
                (even.owed, given_up)
            }
            Kind::Groups(groups) => {
                if now < groups.next && groups.owed == 0 {
                    return 0;
                }
                let until = now.min(self.end.saturating_sub(1));
                let given_up = groups.take_due(until, self.ramp, self.catch_up);
                (groups.owed, given_up)
            }
        };
        let wanted = due.min(room);
        // Where there was no room, being in time would not have helped.
        let unsent = given_up.min(room - wanted);
        self.counters.unsent += unsent;
        let held_back = due - wanted + given_up - unsent;
        if held_back > 0 {
            self.drop_owed(due - wanted);
            self.counters.held_back += held_back;
        }
        wanted
    }

    /// Whether what is owed has to wait for answers, as far as the caller saw.
    #[inline]
    pub(crate) fn set_waits(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// How late those are that are owed now, the oldest first.
    #[inline]
    pub(crate) fn late(&self, now: u64) -> Late {
        match &self.kind {
            Kind::Even(even) => even.late(&self.curve, now),
            _ => Late::NOT,
        }
    }

    /// Nothing more will be launched: what is still owed never was.
    #[cold]
    pub(crate) fn finish(&mut self) {
        let owed = match &self.kind {
            Kind::Even(Even { owed, .. }) | Kind::Groups(Groups { owed, .. }) => *owed,
            _ => 0,
        };
        self.drop_owed(owed);
        match self.waits {
            true => self.counters.held_back += owed,
            false => self.counters.unsent += owed,
        }
    }

    /// How many connections may be open now; `None`: any number.
    #[inline]
    pub(crate) fn open_limit(&self, now: u64) -> Option<u64> {
        self.limits.open.map(|most| self.most_open(most, now))
    }

    /// With a rate of launches the number of open ones is a mere limit; without it is what rises.
    fn most_open(&self, most: u64, now: u64) -> u64 {
        if self.limits.launches.is_some() {
            return most;
        }
        let share = u128::from(self.curve.share(now));
        (u128::from(most) * share).div_ceil(u128::from(ONE)) as u64
    }

    fn drop_owed(&mut self, n: u64) {
        match &mut self.kind {
            Kind::Even(Even { owed, .. }) | Kind::Groups(Groups { owed, .. }) => {
                *owed = owed.saturating_sub(n);
            }
            _ => {}
        }
    }

    /// So many were opened of those wanted.
    #[inline]
    pub(crate) fn launched(&mut self, n: u64) {
        self.counters.launched += n;
        self.drop_owed(n);
    }

    /// So many could not be opened, and waiting would not help.
    #[cold]
    pub(crate) fn no_tuple(&mut self, n: u64) {
        self.counters.no_tuple += n;
        self.drop_owed(n);
    }

    /// When the next one is due; `None`: not by itself.
    #[inline]
    pub(crate) fn next_due(&self, now: u64, open: u64) -> Option<u64> {
        if self.limits.open.is_some_and(|most| open >= most) {
            return None;
        }
        let due = match &self.kind {
            Kind::Never => return None,
            Kind::Unlimited if self.limits.unlimited => self.curve.begin().max(now),
            // As the curve rises there is room for more, so look every millisecond.
            Kind::Unlimited => self.curve.begin().max(now + 1_000_000),
            Kind::Even(even) if even.owed > 0 => now,
            Kind::Groups(groups) if groups.owed > 0 => now,
            Kind::Even(even) => even.due,
            Kind::Groups(groups) => groups.next,
        };
        (due < self.end).then_some(due)
    }
}

impl Even {
    /// Finds out when the next event is due.
    fn seek(&mut self, curve: &Curve) {
        self.due = self.due_of(curve, self.passed);
    }

    /// Events due up to `area` since the present rate began.
    fn count(&self, area: u128) -> u64 {
        let count = (area - self.from_area.min(area)) * self.num / self.den;
        u64::try_from(count).unwrap_or(u64::MAX) + u64::from(self.with_first)
    }

    /// How late what is owed is.
    #[inline]
    fn late(&self, curve: &Curve, now: u64) -> Late {
        let events = self.owed.div_ceil(self.group);
        if events == 0 {
            return Late::NOT;
        }
        let first = self.due_of(curve, self.passed - events);
        let last = match events {
            1 => first,
            _ => self.due_of(curve, self.passed - 1),
        };
        Late {
            first: now.saturating_sub(first),
            step: last.saturating_sub(first) / (self.owed - 1).max(1),
        }
    }

    /// When an event is due, counted from where the present rate began.
    fn due_of(&self, curve: &Curve, event: u64) -> u64 {
        // The first one is due where there is anything at all, the next one a stride later.
        let ordinal = event + u64::from(!self.with_first);
        if ordinal == 0 {
            return curve.begin();
        }
        let area = (u128::from(ordinal) * self.den).div_ceil(self.num);
        curve.time_of(self.from_area + area).max(curve.begin())
    }

    /// Makes all owed that is due by `now`; what is older than `catch_up` is given up and returned,
    /// apart from the `kept` oldest.
    fn take_due(&mut self, curve: &Curve, now: u64, end: u64, catch_up: u64, kept: u64) -> u64 {
        let area = curve.area(now);
        let mut due = self.count(area);
        // What would be due at the very end is beyond it.
        due -= u64::from(now >= end && due > 0 && self.is_whole(area, due));
        let mut given_up = 0;
        if let Some(oldest) = now.checked_sub(catch_up) {
            given_up = self.count(curve.area(oldest)).min(due.saturating_sub(1));
        }
        if due > self.passed {
            self.owed += (due - self.passed) * self.group;
            self.passed = due;
        }
        // Also of what was owed before, whoever looks often and never gets rid of it.
        let unsent = self
            .owed
            .saturating_sub((due - given_up.min(due)) * self.group + kept);
        self.owed -= unsent;
        self.seek(curve);
        unsent
    }

    /// Whether the last of `due` events falls exactly on the area, so not before it.
    fn is_whole(&self, area: u128, due: u64) -> bool {
        let ordinal = u128::from(due - u64::from(self.with_first));
        ordinal > 0 && (area - self.from_area.min(area)) * self.num == ordinal * self.den
    }
}

impl Groups {
    /// From one group to the next at this time.
    fn interval(&self, at: u64, ramp: u64) -> u64 {
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
            self.next += self.interval(self.next, ramp);
        }
        let most = (catch_up / self.interval(now, ramp) + 1) * self.group;
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
    // Fewer a second than a group has: all of them once a second.
    group.min(cps)
}

#[cfg(test)]
mod tests;
