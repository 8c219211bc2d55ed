//! Due times of the frames of a stream.
//!
//! Knows a schedule and the worker's share of it, but no frames, queues or clocks: all times are offsets from the
//! start. The due time of event `k` follows from `k` alone, so nothing drifts. Fractions of a nanosecond are rounded
//! down, which keeps "before the end" exact.
//!
//! A schedule can change at a time ([`Pacer::follow`]). Its events due before this time stay, and all events due from
//! then on belong to the next part. So each event is planned once, however late the sender is.

use std::{collections::VecDeque, sync::Arc};

use wb_model::units::Rational;
use wb_port::offload::Pace;

use crate::control::StreamPace;

const SECOND: u128 = 1_000_000_000;

/// Due times of the events of a stream, over all workers.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    /// Evenly: event k at k / rate.
    Even(Rational),
    /// `size` events at once, or at a rate, every `gap_ns`.
    Bursts {
        size: u64,
        gap_ns: u64,
        rate: Option<Rational>,
    },
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
            Self::Bursts { size, gap_ns, rate } => {
                let within = rate.map_or(0, |rate| Self::Even(rate).due_time(k % size).0);
                let start = (k / size).saturating_mul(*gap_ns);
                (start.saturating_add(within), 0)
            }
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
            Self::Bursts { size, gap_ns, rate } => {
                let Some(rate) = rate else {
                    return offset_ns.div_ceil(*gap_ns).saturating_mul(*size);
                };
                let within = Self::Even(*rate).count_before(offset_ns % gap_ns);
                let whole = (offset_ns / gap_ns).saturating_mul(*size);
                whole.saturating_add(within.min(*size))
            }
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
    /// Events of this part sent or given up.
    passed: u64,
    /// Events of this part in total.
    limit: u64,
    skipped: u64,
    /// Delay added to the schedule.
    delay: u64,
    worker: u64,
    workers: u64,
    schedule: Schedule,
    /// Events of earlier parts.
    earlier: u64,
    /// Events due from here on are not planned.
    end_ns: u64,
    /// Events of this worker over all parts.
    count: u64,
    /// Start of the current pause.
    held_since: Option<u64>,
    /// Later parts, with their start.
    changes: VecDeque<(u64, StreamPace)>,
}

impl Pacer {
    /// Creates an unlimited pacer for worker `worker` of `workers`.
    pub(crate) fn new(schedule: Schedule, worker: u32, workers: u32) -> Self {
        let workers = u64::from(workers);
        let (stride, num) = steps(&schedule, workers);
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
            workers,
            schedule,
            earlier: 0,
            end_ns: u64::MAX,
            count: u64::MAX,
            held_since: None,
            changes: VecDeque::new(),
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
            (
                Schedule::Bursts {
                    size,
                    gap_ns,
                    rate: None,
                },
                _,
            ) => {
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
        while self.passed >= self.limit {
            if !self.begins_part() {
                self.due = u64::MAX;
                return;
            }
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

    /// Changes the schedule from `at_ns` on. Events due before stay, except that nothing is due after a count or an end.
    #[cold]
    pub(crate) fn follow(&mut self, at_ns: u64, pace: StreamPace) {
        if self.is_done() {
            return;
        }
        self.changes.push_back((at_ns, pace));
        self.limit = self.part_limit();
        self.find_next();
    }

    /// Begins the next part after the last event of this one. Returns false if there is none.
    #[cold]
    fn begins_part(&mut self) -> bool {
        if self.earlier.saturating_add(self.passed) >= self.count {
            self.held_since = None;
            self.changes.clear();
            return false;
        }
        let Some((at_ns, pace)) = self.changes.pop_front() else {
            return false;
        };
        match (pace, &self.schedule) {
            (StreamPace::End, _) => {
                self.count = self.earlier.saturating_add(self.passed);
                self.limit = self.passed;
                self.held_since = None;
                self.changes.clear();
                return false;
            }
            (StreamPace::Off, _) => {
                self.held_since.get_or_insert(at_ns);
            }
            (StreamPace::Even(rate), Schedule::Even(current)) if rate != *current => {
                self.schedule = Schedule::Even(rate);
                (self.stride, self.num) = steps(&self.schedule, self.workers);
                self.earlier += self.passed;
                self.passed = 0;
                self.delay = at_ns;
                self.held_since = None;
            }
            _ => {
                let since = self.held_since.take();
                self.delay += since.map_or(0, |since| at_ns.saturating_sub(since));
            }
        }
        self.limit = self.part_limit();
        true
    }

    /// Number of this worker's events in this part.
    fn part_limit(&self) -> u64 {
        if self.held_since.is_some() {
            return self.passed;
        }
        let until_ns = self.changes.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        let by_time = match until_ns.min(self.end_ns) {
            u64::MAX => u64::MAX,
            until_ns => self.ours_before(until_ns.saturating_sub(self.delay)),
        };
        let by_count = self.count.saturating_sub(self.earlier);
        by_time.min(by_count).max(self.passed)
    }

    /// Returns true during a pause.
    pub(crate) fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// Delays all events by `delay_ns`.
    pub(crate) fn start_at(&mut self, delay_ns: u64) {
        self.delay = delay_ns;
        self.limit = self.part_limit();
        self.find_next();
    }

    /// Plans only events due before `offset_ns`.
    pub(crate) fn end_at(&mut self, offset_ns: u64) {
        self.end_ns = offset_ns;
        self.limit = self.part_limit();
        self.find_next();
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

    /// Number of this worker's events, without later parts.
    pub(crate) fn event_limit(&self) -> u64 {
        self.earlier.saturating_add(self.limit)
    }

    /// Limits this worker to `events` events.
    pub(crate) fn limit_to(&mut self, events: u64) {
        self.count = self.count.min(events);
        self.limit = self.part_limit();
        self.find_next();
    }

    /// Number of this worker's events that were sent or given up.
    pub(crate) fn events_passed(&self) -> u64 {
        self.earlier + self.passed
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
        let before = |ns: u64| self.ours_before(ns.saturating_sub(self.delay));
        let newest = before(now_ns.saturating_add(1)).saturating_sub(1);
        let to = before(offset_ns).min(newest).min(self.limit);
        if to > self.passed {
            self.skipped += to - self.passed;
            self.passed = to;
            self.find_next();
        }
    }

    /// Returns true if no event is left and none will follow after a pause.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.due == u64::MAX && self.held_since.is_none()
    }

    /// Stops the schedule; the planned number of events does not change.
    pub(crate) fn stop(&mut self) {
        while !self.changes.is_empty() {
            // Parts that have not begun were planned, too.
            self.passed = self.limit;
            if !self.begins_part() {
                break;
            }
        }
        self.held_since = None;
        self.due = u64::MAX;
    }

    /// Stops the schedule and reduces the planned number of events accordingly.
    pub(crate) fn truncate(&mut self) {
        self.changes.clear();
        self.limit = self.limit.min(self.passed);
        self.stop();
    }
}

/// Step between a worker's events in an even schedule: nanoseconds and parts, and the number of parts.
fn steps(schedule: &Schedule, workers: u64) -> (Option<(u64, u64)>, u64) {
    let Schedule::Even(rate) = schedule else {
        return (None, 1);
    };
    let num = u128::from(rate.numerator());
    let way = u128::from(rate.denominator()) * SECOND * u128::from(workers);
    let whole = u64::try_from(way / num).unwrap_or(u64::MAX);
    (Some((whole, (way % num) as u64)), rate.numerator())
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
    fn bursts_may_have_a_rate() {
        let schedule = Schedule::Bursts {
            size: 3,
            gap_ns: 1000,
            rate: Some(Rational::whole(10_000_000)),
        };
        let dues: Vec<u64> = (0..7).map(|k| schedule.due_time(k).0).collect();
        assert_eq!(dues, [0, 100, 200, 1000, 1100, 1200, 2000]);
        for (offset, count) in [
            (0, 0),
            (1, 1),
            (101, 2),
            (999, 3),
            (1000, 3),
            (1001, 4),
            (5000, 15),
        ] {
            assert_eq!(schedule.count_before(offset), count, "{offset}");
        }
        assert!(Pacer::new(schedule, 0, 1).to_pace(0).is_none());
    }

    #[test]
    fn bursts_are_due_at_once() {
        let mut pacer = Pacer::new(
            Schedule::Bursts {
                size: 3,
                gap_ns: 100,
                rate: None,
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
    fn a_changed_schedule_keeps_what_was_due_before() {
        const MS: u64 = 1_000_000;
        let mut pacer = even("1kpps", 0, 1);
        pacer.end_at(S);
        assert_eq!(pacer.event_limit(), 1000);
        // From 100.5 ms on 100 frames/s: 101 events before, 90 in the 899.5 ms after.
        pacer.follow(100 * MS + MS / 2, StreamPace::Even(rate("100pps")));
        for _ in 0..101 {
            assert!(pacer.next_due() <= 100 * MS);
            pacer.advance();
        }
        assert_eq!(pacer.next_due(), 100 * MS + MS / 2);
        pacer.advance();
        assert_eq!(pacer.next_due(), 110 * MS + MS / 2);
        assert_eq!((pacer.events_passed(), pacer.event_limit()), (102, 191));
        assert_eq!(pacer.events_waiting(130 * MS), 2);

        // A pause: nothing is due, nothing is planned, and it is not the end.
        pacer.follow(200 * MS, StreamPace::Off);
        for _ in 0..9 {
            pacer.advance();
        }
        assert_eq!((pacer.next_due(), pacer.is_held()), (u64::MAX, true));
        assert!(!pacer.is_done());
        assert_eq!((pacer.events_passed(), pacer.event_limit()), (111, 111));
        assert_eq!((pacer.events_waiting(S), pacer.events_skipped()), (0, 0));

        // It continues where it stopped: the event of 200.5 ms is due 300 ms later.
        pacer.follow(500 * MS, StreamPace::On);
        assert_eq!(pacer.next_due(), 500 * MS + MS / 2);
        assert_eq!(pacer.event_limit(), 111 + 50);
        pacer.stop();
        assert!(pacer.is_done());
        assert_eq!(pacer.event_limit(), 161);
    }

    #[test]
    fn parts_that_a_late_sender_never_reached_were_planned() {
        let mut pacer = even("1kpps", 0, 1);
        pacer.end_at(S);
        pacer.follow(S / 2, StreamPace::Even(rate("10pps")));
        pacer.follow(S / 2 + S / 4, StreamPace::Off);
        pacer.stop();
        assert_eq!((pacer.event_limit(), pacer.is_done()), (503, true));
        let mut truncated = even("1kpps", 0, 1);
        truncated.follow(S / 2, StreamPace::Even(rate("10pps")));
        truncated.advance();
        truncated.truncate();
        assert_eq!((truncated.event_limit(), truncated.is_done()), (1, true));
    }

    #[test]
    fn an_end_is_the_last_change_also_in_a_pause() {
        let mut pacer = even("1kpps", 0, 1);
        pacer.limit_to(50);
        pacer.follow(2_500_000, StreamPace::End);
        pacer.follow(S, StreamPace::On);
        for due in [0, 1_000_000, 2_000_000, u64::MAX] {
            assert_eq!(pacer.next_due(), due);
            pacer.advance();
        }
        let mut pacer = even("1kpps", 0, 1);
        pacer.follow(0, StreamPace::Off);
        assert_eq!((pacer.is_done(), pacer.event_limit()), (false, 0));
        pacer.follow(S, StreamPace::End);
        assert_eq!((pacer.is_done(), pacer.event_limit()), (true, 0));
        // A late sender planned everything up to the end.
        let mut late = even("1kpps", 0, 1);
        late.follow(S, StreamPace::End);
        late.stop();
        assert_eq!((late.is_done(), late.event_limit()), (true, 1000));
    }

    #[test]
    fn a_count_ends_a_changed_schedule_also_in_a_pause() {
        let mut pacer = even("1kpps", 0, 1);
        pacer.limit_to(3);
        pacer.follow(1_500_000, StreamPace::Even(rate("10pps")));
        pacer.follow(S, StreamPace::Off);
        let mut sent = 0;
        while !pacer.is_done() {
            pacer.advance();
            sent += 1;
        }
        assert_eq!((sent, pacer.event_limit(), pacer.is_held()), (3, 3, false));
    }

    #[test]
    fn a_delayed_schedule_ends_with_the_others() {
        let mut pacer = even("1kpps", 0, 1);
        pacer.end_at(S);
        pacer.start_at(S / 4);
        assert_eq!((pacer.next_due(), pacer.event_limit()), (S / 4, 750));
        pacer.skip_before(S / 2, S);
        assert_eq!((pacer.next_due(), pacer.events_skipped()), (S / 2, 250));
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
            (1u64..20, 1u64..10_000).prop_map(|(size, gap_ns)| Schedule::Bursts {
                size,
                gap_ns,
                rate: None
            }),
            (1u64..20, 2_000u64..10_000).prop_map(|(size, gap_ns)| Schedule::Bursts {
                size,
                gap_ns,
                rate: Some(Rational::whole(10_000_000))
            }),
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
        /// Over all workers, a changed schedule has the events of its parts, each once.
        #[test]
        fn parts_add_up(rates in prop::collection::vec(1u64..200_000, 1..5), workers in 1u32..4, off in 0usize..5) {
            let part_ns = 10_000_000;
            let mut dues = Vec::new();
            for worker in 0..workers {
                let first = Schedule::Even(Rational::whole(rates[0]));
                let mut pacer = Pacer::new(first, worker, workers);
                pacer.end_at(part_ns * rates.len() as u64);
                for (at, pps) in rates.iter().enumerate().skip(1) {
                    let pace = match at == off {
                        true => StreamPace::Off,
                        false => StreamPace::Even(Rational::whole(*pps)),
                    };
                    pacer.follow(part_ns * at as u64, pace);
                }
                while pacer.next_due() != u64::MAX {
                    dues.push(pacer.next_due());
                    pacer.advance();
                }
                pacer.stop();
                prop_assert_eq!(pacer.event_limit(), pacer.events_passed());
            }
            for (at, pps) in rates.iter().enumerate() {
                let (from, to) = (part_ns * at as u64, part_ns * (at as u64 + 1));
                let found = dues.iter().filter(|due| (from..to).contains(due)).count() as u64;
                let same = at > 0 && rates[at - 1] == *pps;
                match at == off && at > 0 {
                    true => prop_assert_eq!(found, 0),
                    // Equal rates continue, so their parts do not begin with an event.
                    false if same || (at > 0 && at - 1 == off) => {}
                    false => prop_assert_eq!(found, Schedule::Even(Rational::whole(*pps)).count_before(part_ns)),
                }
            }
        }

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
