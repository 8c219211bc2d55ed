//! Due times of the frames of a stream.
//!
//! Knows a schedule and the worker's share of it, but no frames, queues or clocks: all times are offsets from the
//! start. The due time of event `k` follows from `k` alone, so nothing drifts. Fractions of a nanosecond are rounded
//! down, which keeps "before the end" exact.

use std::sync::Arc;

use wb_model::units::Rational;
use wb_port::offload::Pace;

const SECOND: u128 = 1_000_000_000;

/// Due times of the events of a stream, over all workers.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    /// Evenly: event k at k / rate.
    Even(Rational),
    /// `size` events at once, every `gap_ns`.
    Bursts { size: u64, gap_ns: u64 },
    /// At these times, repeated every `period_ns`.
    Recorded { offsets: Arc<[u64]>, period_ns: u64 },
}

impl Schedule {
    /// `None` if the rate is 0 or its parts are too large to add without overflow.
    pub(crate) fn even(rate: Rational) -> Option<Self> {
        let fits = !rate.is_zero() && rate.numerator() <= u64::MAX / 2;
        fits.then_some(Self::Even(rate))
    }

    /// Due time of event `k`, and the remainder of the division, if any.
    fn due_time(&self, k: u64) -> (u64, u64) {
        match self {
            Self::Even(rate) => {
                let num = u128::from(rate.numerator());
                let unit = u128::from(rate.denominator()) * SECOND;
                // Both products fit: quotient and remainder of the unit are separated first.
                let rest = u128::from(k) * (unit % num);
                let whole = u128::from(k)
                    .saturating_mul(unit / num)
                    .saturating_add(rest / num);
                (
                    u64::try_from(whole).unwrap_or(u64::MAX),
                    (rest % num) as u64,
                )
            }
            Self::Bursts { size, gap_ns } => ((k / size).saturating_mul(*gap_ns), 0),
            Self::Recorded { offsets, period_ns } => {
                let len = offsets.len() as u64;
                let start = (k / len).saturating_mul(*period_ns);
                (start.saturating_add(offsets[(k % len) as usize]), 0)
            }
        }
    }

    /// Number of events due before `offset_ns`.
    fn count_before(&self, offset_ns: u64) -> u64 {
        match self {
            Self::Even(rate) => {
                let unit = u128::from(rate.denominator()) * SECOND;
                let events = (u128::from(offset_ns) * u128::from(rate.numerator())).div_ceil(unit);
                u64::try_from(events).unwrap_or(u64::MAX)
            }
            Self::Bursts { size, gap_ns } => offset_ns.div_ceil(*gap_ns).saturating_mul(*size),
            Self::Recorded { offsets, period_ns } => {
                let within = offset_ns % period_ns;
                let passes = (offset_ns / period_ns).saturating_mul(offsets.len() as u64);
                passes.saturating_add(offsets.partition_point(|o| *o < within) as u64)
            }
        }
    }
}

/// Position of one worker in a schedule.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Due time of the next event; `u64::MAX` if none is left.
    due: u64,
    /// Remainder of `due` in an even schedule, in parts of `num`.
    rest: u64,
    /// Step between this worker's events in an even schedule: nanoseconds and parts.
    stride: Option<(u64, u64)>,
    num: u64,
    /// Events of this worker sent or given up.
    passed: u64,
    /// Events of this worker in total.
    limit: u64,
    skipped: u64,
    /// Delay added to the schedule.
    delay: u64,
    worker: u64,
    workers: u64,
    schedule: Schedule,
}

impl Pacer {
    /// Creates an unlimited pacer for worker `worker` of `workers`.
    pub(crate) fn new(schedule: Schedule, worker: u32, workers: u32) -> Self {
        let (stride, num) = match &schedule {
            Schedule::Even(rate) => {
                let num = u128::from(rate.numerator());
                let way = u128::from(rate.denominator()) * SECOND * u128::from(workers);
                let whole = u64::try_from(way / num).unwrap_or(u64::MAX);
                (Some((whole, (way % num) as u64)), rate.numerator())
            }
            _ => (None, 1),
        };
        let mut pacer = Self {
            due: 0,
            rest: 0,
            stride,
            num,
            passed: 0,
            limit: u64::MAX,
            skipped: 0,
            delay: 0,
            worker: u64::from(worker),
            workers: u64::from(workers),
            schedule,
        };
        pacer.find_next();
        pacer
    }

    /// Due time of the next event; `u64::MAX` if none is left.
    #[inline]
    pub(crate) fn next_due(&self) -> u64 {
        self.due
    }

    /// Advances to the next event.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.passed += 1;
        match self.stride {
            Some((whole, rest)) if self.passed < self.limit => {
                self.due = self.due.saturating_add(whole);
                self.rest += rest;
                if self.rest >= self.num {
                    self.rest -= self.num;
                    self.due = self.due.saturating_add(1);
                }
            }
            _ => self.find_next(),
        }
    }

    /// The schedule as a table, with times from `start_ns` on; `None` if its steps are not even.
    pub(crate) fn to_pace(&self, start_ns: u64) -> Option<Pace> {
        let (rest, whole_ns, part, parts, carry_ns) = match (&self.schedule, self.stride) {
            (Schedule::Even(_), Some((whole, part))) => (self.rest, whole, part, self.num, 1),
            (Schedule::Bursts { size, gap_ns }, _) => {
                let k = self.workers.saturating_mul(self.passed) + self.worker;
                let whole = (self.workers / size).saturating_mul(*gap_ns);
                (k % size, whole, self.workers % size, *size, *gap_ns)
            }
            _ => return None,
        };
        Some(Pace {
            due_ns: start_ns.saturating_add(self.due),
            rest,
            whole_ns,
            part,
            parts,
            carry_ns,
        })
    }

    /// Advances by events that a port sent from that table.
    pub(crate) fn advance_by(&mut self, events: u64) {
        self.passed += events;
        if !self.is_done() {
            self.find_next();
        }
    }

    fn find_next(&mut self) {
        if self.passed >= self.limit {
            self.due = u64::MAX;
            return;
        }
        let k = self
            .worker
            .saturating_add(self.workers.saturating_mul(self.passed));
        (self.due, self.rest) = self.schedule.due_time(k);
        self.due = self.due.saturating_add(self.delay);
    }

    /// Postpones the remaining events, so that the next one is due no earlier than `offset_ns`.
    #[cold]
    pub(crate) fn put_off(&mut self, offset_ns: u64) {
        if self.due < offset_ns {
            self.delay += offset_ns - self.due;
            self.due = offset_ns;
        }
    }

    /// Number of this worker's events due before `offset_ns`, ignoring the limit.
    pub(crate) fn ours_before(&self, offset_ns: u64) -> u64 {
        self.ours_of(self.schedule.count_before(offset_ns))
    }

    /// Number of this worker's events among the first `events` events.
    pub(crate) fn ours_of(&self, events: u64) -> u64 {
        match events.checked_sub(self.worker + 1) {
            Some(after_first) => after_first / self.workers + 1,
            None => 0,
        }
    }

    /// Number of this worker's events.
    pub(crate) fn event_limit(&self) -> u64 {
        self.limit
    }

    /// Limits this worker to `events` events.
    pub(crate) fn limit_to(&mut self, events: u64) {
        self.limit = self.limit.min(events);
        self.find_next();
    }

    /// Number of this worker's events that were sent or given up.
    pub(crate) fn events_passed(&self) -> u64 {
        self.passed
    }

    /// Number of this worker's events that were given up.
    pub(crate) fn events_skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of waiting events due by `offset_ns`.
    pub(crate) fn events_waiting(&self, offset_ns: u64) -> u64 {
        let due = self
            .ours_before(offset_ns.saturating_add(1).saturating_sub(self.delay))
            .min(self.limit);
        due.saturating_sub(self.passed)
    }

    /// Gives up events due before `offset_ns`, except the last one due by `now_ns`.
    #[cold]
    pub(crate) fn skip_before(&mut self, offset_ns: u64, now_ns: u64) {
        let newest = self.ours_before(now_ns.saturating_add(1)).saturating_sub(1);
        let to = self.ours_before(offset_ns).min(newest).min(self.limit);
        if to > self.passed {
            self.skipped += to - self.passed;
            self.passed = to;
            self.find_next();
        }
    }

    /// Returns true if no event is left.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.due == u64::MAX
    }

    /// Stops the schedule; the planned number of events does not change.
    pub(crate) fn stop(&mut self) {
        self.due = u64::MAX;
    }

    /// Stops the schedule and reduces the planned number of events accordingly.
    pub(crate) fn truncate(&mut self) {
        self.limit = self.limit.min(self.passed);
        self.stop();
    }
}

/// Distributes `count` events over parallel schedules: the earliest events are taken, in pacer order if due in the same
/// nanosecond.
pub(crate) fn share_out(pacers: &mut [&mut Pacer], count: u64) {
    let total = |at: &dyn Fn(&Pacer) -> u64, pacers: &[&mut Pacer]| {
        pacers
            .iter()
            .fold(0u64, |sum, p| sum.saturating_add(at(p).min(p.limit)))
    };
    if total(&|p| p.limit, pacers) <= count {
        return;
    }
    // The longest time in which at most `count` are due.
    let (mut low, mut high) = (0u64, u64::MAX);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if total(&|p| p.ours_before(middle), pacers) <= count {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut left = count - total(&|p| p.ours_before(low), pacers);
    for pacer in pacers {
        let until = pacer.ours_before(low).min(pacer.limit);
        let more = pacer
            .ours_before(high)
            .min(pacer.limit)
            .saturating_sub(until)
            .min(left);
        left -= more;
        pacer.limit_to(until + more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> Rational {
        match text.split_once('/') {
            Some((a, b)) => Rational::new(a.parse().unwrap(), b.parse().unwrap()).unwrap(),
            None => match text.parse().unwrap() {
                wb_model::units::Rate::Pps(rate) => rate,
                _ => unreachable!(),
            },
        }
    }

    fn even(text: &str, worker: u32, workers: u32) -> Pacer {
        Pacer::new(Schedule::even(rate(text)).unwrap(), worker, workers)
    }

    fn count(text: &str, worker: u32, workers: u32, duration_ns: u64) -> u64 {
        even(text, worker, workers).ours_before(duration_ns)
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn counts_are_exact() {
        assert_eq!(count("100kpps", 0, 1, 5 * S), 500_000);
        assert_eq!(count("14880952.38pps", 0, 1, 100 * S), 1_488_095_238);
        // 14,880,952.38 events: the last begins within the second.
        assert_eq!(count("14880952.38pps", 0, 1, S), 14_880_953);
        // At 0, 303, 606 and 909 ms.
        assert_eq!(count("3.3pps", 0, 1, S), 4);
        assert_eq!(count("3.3pps", 0, 1, 10 * S), 33);
        assert_eq!(count("1/3", 0, 1, 3 * S - 1), 1);
        assert_eq!(count("1/3", 0, 1, 3 * S), 1);
        assert_eq!(count("1/3", 0, 1, 3 * S + 1), 2);
        assert_eq!(count("1/3", 0, 1, 30 * S), 10);
        assert_eq!(count("1/3", 2, 3, 30 * S), 3);
        assert_eq!(count("1pps", 0, 1, 0), 0);
        assert_eq!(
            count("148809523809523/10000000", 0, 1, 3600 * S),
            53_571_428_572
        );
    }

    #[test]
    fn there_is_no_drift() {
        let mut pacer = even("14880952.38pps", 1, 3);
        for _ in 0..1_000_000 {
            pacer.advance();
        }
        // k = 1 + 3 × 10^6; k × 10^9 / 14880952.38.
        assert_eq!(
            pacer.next_due(),
            (3_000_001u128 * 100 * 1_000_000_000 / 1_488_095_238) as u64
        );
        let mut slow = even("1/3", 0, 1);
        slow.advance();
        slow.advance();
        assert_eq!(slow.next_due(), 6 * S);
    }

    #[test]
    fn the_limit_ends_it() {
        let mut pacer = even("1kpps", 0, 1);
        pacer.limit_to(2);
        assert_eq!(pacer.next_due(), 0);
        pacer.advance();
        assert_eq!((pacer.next_due(), pacer.events_waiting(S)), (1_000_000, 1));
        pacer.advance();
        assert!(pacer.is_done());
        let mut none = even("1kpps", 0, 1);
        none.limit_to(0);
        assert!(none.is_done());
    }

    #[test]
    fn skipping_keeps_what_is_young_enough_and_the_newest() {
        let mut pacer = even("1kpps", 0, 1);
        pacer.limit_to(100);
        pacer.advance();
        pacer.skip_before(10_000_000, 15_000_000);
        assert_eq!(
            (
                pacer.next_due(),
                pacer.events_skipped(),
                pacer.events_passed()
            ),
            (10_000_000, 9, 10)
        );
        assert_eq!(pacer.events_waiting(15_000_000), 6);
        pacer.skip_before(15_500_001, 15_500_001);
        assert_eq!((pacer.next_due(), pacer.events_skipped()), (15_000_000, 14));
        pacer.skip_before(5 * S, 6 * S);
        assert_eq!(
            (
                pacer.is_done(),
                pacer.events_skipped(),
                pacer.events_passed()
            ),
            (true, 99, 100)
        );
    }

    #[test]
    fn bursts_are_due_at_once() {
        let mut pacer = Pacer::new(
            Schedule::Bursts {
                size: 3,
                gap_ns: 100,
            },
            1,
            2,
        );
        let dues: Vec<u64> = (0..5)
            .map(|_| {
                let due = pacer.next_due();
                pacer.advance();
                due
            })
            .collect();
        // The worker's events are 1, 3, 5, 7, 9.
        assert_eq!(dues, [0, 100, 100, 200, 300]);
        assert_eq!(pacer.ours_before(100), 1);
        assert_eq!(pacer.ours_before(101), 3);
    }

    #[test]
    fn recordings_go_round() {
        let schedule = Schedule::Recorded {
            offsets: [0, 10, 10, 70].into(),
            period_ns: 100,
        };
        let mut pacer = Pacer::new(schedule, 0, 1);
        let mut dues = Vec::new();
        for _ in 0..6 {
            dues.push(pacer.next_due());
            pacer.advance();
        }
        assert_eq!(dues, [0, 10, 10, 70, 100, 110]);
        assert_eq!(
            (
                pacer.ours_before(70),
                pacer.ours_before(71),
                pacer.ours_before(111)
            ),
            (3, 4, 7)
        );
    }

    #[test]
    fn a_count_goes_to_the_earliest() {
        let mut fast = even("3kpps", 0, 1);
        let mut slow = even("1kpps", 0, 1);
        share_out(&mut [&mut fast, &mut slow], 6);
        // 0 0 333 666 1000 1000 …
        assert_eq!((fast.event_limit(), slow.event_limit()), (4, 2));
        let (mut a, mut b) = (even("1kpps", 0, 1), even("1kpps", 0, 1));
        share_out(&mut [&mut a, &mut b], 5);
        assert_eq!((a.event_limit(), b.event_limit()), (3, 2));
        let (mut a, mut b) = (even("1kpps", 0, 1), even("2kpps", 0, 1));
        b.limit_to(2);
        share_out(&mut [&mut a, &mut b], 8);
        assert_eq!((a.event_limit(), b.event_limit()), (6, 2));
        let mut plenty = even("1kpps", 0, 1);
        plenty.limit_to(5);
        share_out(&mut [&mut plenty], 9);
        assert_eq!(plenty.event_limit(), 5);
    }

    #[test]
    fn impossible_rates_are_refused() {
        assert!(Schedule::even(Rational::ZERO).is_none());
        assert!(Schedule::even(Rational::whole(u64::MAX)).is_none());
    }

    fn schedules() -> impl Strategy<Value = Schedule> {
        prop_oneof![
            (1u64..5_000_000_000, 1u64..1_000_000)
                .prop_map(|(n, d)| Schedule::Even(Rational::new(n.into(), d.into()).unwrap())),
            (1u64..20, 1u64..10_000).prop_map(|(size, gap_ns)| Schedule::Bursts { size, gap_ns }),
            prop::collection::vec(0u64..1000, 1..20).prop_map(|mut offsets| {
                offsets.sort_unstable();
                Schedule::Recorded {
                    offsets: offsets.into(),
                    period_ns: 1000,
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn steps_agree_with_the_formula(schedule in schedules(), workers in 1u32..5, skip in 0u64..50) {
            let mut dues = Vec::new();
            for worker in 0..workers {
                let mut pacer = Pacer::new(schedule.clone(), worker, workers);
                for _ in 0..40 {
                    let due = pacer.next_due();
                    prop_assert_eq!(pacer.ours_before(due) <= pacer.events_passed(), true);
                    prop_assert_eq!(pacer.ours_before(due + 1) > pacer.events_passed(), true);
                    dues.push(due);
                    pacer.advance();
                }
                let before = pacer.events_passed();
                let to = pacer.next_due() + skip * 100;
                pacer.skip_before(to, u64::MAX / 4);
                prop_assert_eq!(pacer.events_skipped(), pacer.events_passed() - before);
                prop_assert!(pacer.next_due() >= to);
            }
            dues.sort_unstable();
            let all: Vec<u64> = (0..u64::from(workers) * 40).map(|k| schedule.due_time(k).0).collect();
            prop_assert_eq!(dues, all);
        }
    }
}
