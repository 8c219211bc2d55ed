//! Properties for arbitrary frames, checked against a plain model, a sorted list, and another library.

use std::collections::HashSet;

use proptest::prelude::*;
use wb_measure::{
    Analyser, Arrival, Histogram, Measurement, SequenceTracker, SignedHistogram, WindowSize,
};

/// Tracker that remembers all numbers.
#[derive(Default)]
struct Model {
    seen: HashSet<u64>,
    next: u64,
}

impl Model {
    fn observe(&mut self, sequence: u64, window: u64) -> Arrival {
        let new = self.seen.insert(sequence);
        if sequence >= self.next {
            let gap = sequence - self.next;
            self.next = sequence + 1;
            return Arrival::InOrder { gap };
        }
        match (self.next - sequence > window, new) {
            (true, _) => Arrival::BeyondWindow,
            (false, true) => Arrival::Reordered,
            (false, false) => Arrival::Duplicate,
        }
    }
}

/// Steps from the highest number: mostly forward, sometimes back or far ahead.
fn steps() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![
        6 => Just(1i64),
        3 => -40i64..40,
        2 => 2i64..4,
        1 => -1100i64..1100,
        1 => 0i64..5000,
    ];
    prop::collection::vec(step, 1..1500)
}

/// Values of all magnitudes.
fn amounts() -> impl Strategy<Value = Vec<u64>> {
    let amount = (0u32..42, any::<u64>()).prop_map(|(bits, random)| random >> (63 - bits));
    prop::collection::vec(amount, 1..400)
}

fn nearest_rank(percent: f64, count: usize) -> usize {
    ((percent / 100.0 * count as f64 - 1e-9).ceil() as usize).max(1)
}

fn within(value: f64, expected: f64, relative: f64) -> bool {
    (value - expected).abs() <= expected.abs() * relative
}

/// Frame as received by a worker.
type Frame = (u32, u32, u64, u64);

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let frame = (0u32..6, 0u32..300, 0u64..5000, 0u64..6000);
    prop::collection::vec(frame, 0..200)
}

fn measure(frames: &[Frame]) -> Measurement {
    let mut analyser = Analyser::open(64);
    analyser.drain_since(5500);
    for &(flow, sequence, tx_ns, rx_ns) in frames {
        analyser.on_frame(flow, sequence, tx_ns, rx_ns, 64);
    }
    analyser.into_measurement()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tracker_agrees_with_one_that_remembers_everything(
        start in prop_oneof![Just(0u64), Just(70), Just((1 << 32) - 700), 0u64..1 << 32],
        full in 0..2500,
        steps in steps(),
    ) {
        let window = WindowSize::MIN;
        let mut tracker = SequenceTracker::new(window);
        let mut model = Model::default();
        let mut reordered = 0;
        let mut sequence = start;
        // Fill the ring first; otherwise the test does not show whether it clears skipped numbers.
        let run = (0..full).map(|_| 1);
        for step in std::iter::once(0).chain(run).chain(steps) {
            sequence = sequence.max(model.next.saturating_sub(1)).saturating_add_signed(step);
            let expected = model.observe(sequence, u64::from(window.get()));
            prop_assert_eq!(tracker.observe(sequence as u32), expected, "{}", sequence);
            reordered += u64::from(expected == Arrival::Reordered);
            sequence = 0;
        }
        prop_assert_eq!(tracker.reordered(), reordered);
        prop_assert_eq!(tracker.highest(), Some(model.next - 1));
        if tracker.beyond_window() == 0 {
            prop_assert_eq!(tracker.unique(), model.seen.len() as u64);
        }
        prop_assert_eq!(tracker.missing() + tracker.unique(), model.next);
    }

    #[test]
    fn histogram_agrees_with_the_sorted_list_and_with_hdrhistogram(values in amounts()) {
        let mut ours = Histogram::new();
        let mut judge = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 43, 3).unwrap();
        for &value in &values {
            ours.record(value);
            judge.record(value).unwrap();
        }
        let mut sorted = values.clone();
        sorted.sort_unstable();
        for percent in [0.0, 1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let value = ours.percentile(percent).unwrap();
            let exact = sorted[nearest_rank(percent, sorted.len()) - 1];
            prop_assert!(
                within(value as f64, exact as f64, Histogram::RELATIVE_ERROR),
                "{} % is {}, not {}", percent, value, exact
            );
            let judged = judge.value_at_quantile(percent / 100.0);
            prop_assert!(
                within(value as f64, judged as f64, Histogram::RELATIVE_ERROR + 0.001)
                    || percent == 0.0,
                "{} % is {}, judged {}", percent, value, judged
            );
        }
        let summary = ours.summary();
        prop_assert_eq!(summary.samples, judge.len());
        prop_assert_eq!(summary.min, Some(sorted[0] as i64));
        prop_assert_eq!(summary.max, sorted.last().map(|&max| max as i64));
        let mean = sorted.iter().map(|&v| v as f64).sum::<f64>() / sorted.len() as f64;
        let squares = sorted.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>();
        let stddev = (squares / sorted.len() as f64).sqrt();
        prop_assert!(within(summary.mean.unwrap(), mean, 1e-9));
        prop_assert!(within(summary.stddev.unwrap(), stddev, 1e-6));
        prop_assert_eq!(ours.buckets().map(|bucket| bucket.count).sum::<u64>(), ours.count());
    }

    #[test]
    fn signed_histogram_agrees_with_the_sorted_list(values in amounts(), signs in any::<u64>()) {
        let mut ours = SignedHistogram::new();
        let mut sorted: Vec<i64> = (0..)
            .zip(values)
            .map(|(n, value)| if signs >> (n % 64) & 1 == 1 { -(value as i64) } else { value as i64 })
            .collect();
        sorted.iter().for_each(|&value| ours.record(value));
        sorted.sort_unstable();
        for (rank, &exact) in (1..).zip(&sorted) {
            let value = ours.value_at_rank(rank).unwrap();
            prop_assert!(within(value as f64, exact as f64, Histogram::RELATIVE_ERROR));
        }
        let summary = ours.summary();
        prop_assert_eq!((summary.min, summary.max), (sorted.first().copied(), sorted.last().copied()));
        let mean = sorted.iter().map(|&v| v as f64).sum::<f64>() / sorted.len() as f64;
        prop_assert!((summary.mean.unwrap() - mean).abs() <= 1e-3);
    }

    #[test]
    fn a_merged_histogram_is_that_of_all_values(parts in prop::collection::vec(amounts(), 1..4)) {
        let mut merged = Histogram::new();
        let mut whole = Histogram::new();
        for part in &parts {
            let mut histogram = Histogram::new();
            part.iter().for_each(|&value| histogram.record(value));
            part.iter().for_each(|&value| whole.record(value));
            merged.merge(&histogram);
        }
        prop_assert_eq!(merged, whole);
    }

    #[test]
    fn merging_does_not_depend_on_the_order(a in frames(), b in frames(), c in frames()) {
        let parts = [measure(&a), measure(&b), measure(&c)];
        let fold = |order: [usize; 3]| {
            let mut all = Measurement::default();
            order.into_iter().for_each(|part| all.merge(&parts[part]));
            all
        };
        let expected = fold([0, 1, 2]);
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            prop_assert_eq!(&fold(order), &expected);
        }
        let mut inner = parts[1].clone();
        inner.merge(&parts[2]);
        let mut nested = parts[0].clone();
        nested.merge(&inner);
        prop_assert_eq!(&nested, &expected);
        let frames: usize = [a, b, c].iter().map(Vec::len).sum();
        prop_assert_eq!(expected.counters.received_frames, frames as u64);
        let of_flows: u64 = expected.flows.iter().map(|flow| flow.received).sum();
        prop_assert_eq!(of_flows, frames as u64);
    }

    /// For any frames, the flows add up to the counters, and each original has a latency, a clock error or no stamp.
    #[test]
    fn figures_add_up(frames in frames()) {
        let all = measure(&frames);
        let counters = all.counters;
        let sum = |of: fn(&wb_measure::FlowStats) -> u64| all.flows.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|flow| flow.duplicates), counters.duplicate_frames);
        prop_assert_eq!(sum(|flow| flow.reordered), counters.reordered_frames);
        prop_assert_eq!(sum(|flow| flow.late), counters.late_frames);
        prop_assert_eq!(sum(|flow| flow.octets), counters.received_octets);
        prop_assert_eq!(sum(|flow| flow.latency.samples), all.latency.count());
        prop_assert_eq!(
            all.latency.count() + counters.clock_error_frames + counters.unstamped_frames,
            counters.unique_frames()
        );
        let missing = sum(|flow| flow.highest.map_or(0, |highest| highest + 1) - flow.unique());
        prop_assert_eq!(missing, counters.missing_frames);
        let offered: Vec<_> = (0..6).map(|flow| (flow, 150)).collect();
        let (total, accounts) = all.account(&offered);
        prop_assert!(total.balances());
        prop_assert_eq!(total.offered, 900);
        prop_assert_eq!(accounts.len(), 6);
        prop_assert_eq!(total.received + total.excess, counters.received_frames);
    }
}

#[test]
fn a_flow_that_two_workers_saw_is_said_to_be_split() {
    let mut all = measure(&[(1, 0, 1, 2), (2, 0, 1, 2)]);
    all.merge(&measure(&[(2, 1, 1, 2), (3, 0, 1, 2)]));
    assert_eq!(all.split_flows(), 1);
    assert_eq!(
        all.flows.iter().map(|flow| flow.flow).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(all.flows[1].unique(), 2);

    let idle = Analyser::planned(2).into_measurement();
    let mut planned = idle.clone();
    planned.merge(&idle);
    assert_eq!((planned.flows.len(), planned.split_flows()), (2, 0));
}

#[test]
fn the_smallest_window_is_the_one_to_tell() {
    let windows = [2048, 1024, 4096].map(|size| WindowSize::new(size).unwrap());
    let mut smallest = Measurement::default();
    for window in windows {
        smallest.merge(&Analyser::planned_with_window(1, window).into_measurement());
    }
    assert_eq!(smallest.window, Some(WindowSize::MIN));
}
