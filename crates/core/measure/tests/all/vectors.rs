//! Worked examples with known results, through the public API.

use wb_measure::{Account, Analyser, Arrival, Histogram, Measurement, WindowSize};

/// Analyses one flow with these sequence numbers and delays, in the order given; a frame is sent every 1000 ns.
fn analyse(frames: &[(u32, i64)]) -> Measurement {
    let mut analyser = Analyser::planned(1);
    for &(sequence, delay) in frames {
        let tx_ns = 1_000_000 + u64::from(sequence) * 1000;
        analyser.on_frame(0, sequence, tx_ns, tx_ns.wrapping_add_signed(delay), 64);
    }
    analyser.into_measurement()
}

fn values(histogram: &Histogram) -> Vec<u64> {
    (1..=histogram.count())
        .filter_map(|rank| histogram.value_at_rank(rank))
        .collect()
}

fn ipdv(measurement: &Measurement) -> Vec<i64> {
    let ipdv = &measurement.ipdv;
    (1..=ipdv.count())
        .filter_map(|rank| ipdv.value_at_rank(rank))
        .collect()
}

/// D = 20, 10, 20, 25, 20: IPDV -10, 10, 5, -5; jitter 10, 10, 5, 5; PDV 10, 0, 10, 15, 10.
#[test]
fn delay_variation_of_five_frames() {
    let delays = [20, 10, 20, 25, 20];
    let frames: Vec<_> = (0..).zip(delays).collect();
    let smoothed = [0.625, 1.2109375, 1.44775390625, 1.669769287109375];
    for (count, expected) in (2..).zip(smoothed) {
        let jitter = analyse(&frames[..count]).smoothed_jitter().unwrap();
        assert_eq!(
            (jitter.mean_ns, jitter.max_ns),
            (expected, expected),
            "{count} frames"
        );
    }
    assert_eq!(analyse(&frames[..1]).smoothed_jitter(), None);

    let all = analyse(&frames);
    assert_eq!(ipdv(&all), [-10, -5, 5, 10]);
    assert_eq!(all.ipdv.summary().mean, Some(0.0));
    assert_eq!(values(&all.jitter()), [5, 5, 10, 10]);
    assert_eq!(all.jitter().summary().mean, Some(7.5));
    assert_eq!(values(&all.latency), [10, 20, 20, 20, 25]);
    let pdv = all.pdv();
    assert_eq!((pdv.min, pdv.p50, pdv.max), (Some(0), Some(10), Some(15)));
    assert_eq!(pdv.mean, Some(9.0));
    assert_eq!(pdv.stddev, all.latency.summary().stddev);
}

/// 500 latencies 10.00, 10.01 ... 14.99 us.
#[test]
fn percentiles_of_five_hundred_latencies() {
    let frames: Vec<_> = (0..500).map(|n| (n, 10_000 + 10 * i64::from(n))).collect();
    let all = analyse(&frames);
    let summary = all.latency.summary();
    let near = |value: Option<i64>, expected: i64| {
        let error = (value.unwrap() - expected).abs() as f64;
        assert!(
            error <= expected as f64 * Histogram::RELATIVE_ERROR,
            "{value:?} for {expected}"
        );
    };
    near(summary.p50, 12_495);
    near(summary.p90, 14_490);
    near(summary.p99, 14_940);
    near(summary.p999, 14_990);
    assert_eq!((summary.min, summary.max), (Some(10_000), Some(14_990)));
    assert_eq!(summary.mean, Some(12_495.0));
    assert_eq!(all.pdv().max, Some(4_990));
    assert_eq!(all.pdv().p999, Some(4_990));
}

/// A million frames through a device that drops every 1000th, duplicates every 5000th of the rest and swaps every 700th
/// with its successor.
#[test]
fn a_million_frames_through_a_faulty_device() {
    let mut analyser = Analyser::planned(1);
    let mut out: Vec<u32> = Vec::new();
    let (mut duplicated, mut swaps) = (0, 0);
    for (passed, sequence) in (0..1_000_000u32).filter(|n| n % 1000 != 999).enumerate() {
        out.push(sequence);
        if passed % 5000 == 4999 {
            out.push(sequence);
            duplicated += 1;
        }
    }
    let mut at = 699;
    while at + 1 < out.len() {
        if out[at] != out[at + 1] {
            out.swap(at, at + 1);
            swaps += 1;
        }
        at += 700;
    }
    let drain_from = 2_000_000_000;
    for (place, &sequence) in out.iter().enumerate() {
        let tx_ns = 1_000_000_000 + u64::from(sequence) * 1000;
        if place == out.len() - 10 {
            analyser.drain_since(drain_from);
        }
        let rx_ns = if place < out.len() - 10 {
            tx_ns + 500
        } else {
            drain_from + 1 + tx_ns
        };
        analyser.on_frame(0, sequence, tx_ns, rx_ns, 64);
    }
    let all = analyser.into_measurement();
    let counters = all.counters;
    assert_eq!(duplicated, 199);
    assert_eq!(counters.received_frames, 999_000 + duplicated);
    assert_eq!(counters.duplicate_frames, duplicated);
    assert_eq!(counters.unique_frames(), 999_000);
    assert_eq!(counters.reordered_frames, swaps);
    assert_eq!(counters.late_frames, 10);
    assert_eq!(counters.beyond_window_frames, 0);
    // The last number, 999,999, was dropped and therefore left no gap.
    assert_eq!(counters.missing_frames, 999);

    let (total, flows) = all.account(&[(0, 1_000_000)]);
    let expected = Account {
        offered: 1_000_000,
        received: 999_199,
        duplicate: 199,
        lost: 1000,
        excess: 0,
    };
    assert_eq!(total, expected);
    assert_eq!(flows, [(0, total)]);
    assert_eq!(all.latency.count(), 999_000);
    assert_eq!(all.jitter().count(), 998_999);
}

#[test]
fn loss_and_reordering_break_ipdv_pairs_but_not_jitter() {
    let lost = analyse(&[(0, 10), (1, 12), (3, 20), (4, 21)]);
    assert_eq!(ipdv(&lost), [1, 2]);
    assert_eq!(values(&lost.jitter()), [1, 2, 8]);
    assert_eq!((lost.counters.missing_frames, lost.largest_gap), (1, 1));

    let swapped = analyse(&[(0, 10), (2, 13), (1, 20), (3, 11), (4, 15)]);
    assert_eq!(swapped.counters.reordered_frames, 1);
    assert_eq!(swapped.counters.missing_frames, 0);
    assert_eq!(ipdv(&swapped), [4]);
    assert_eq!(values(&swapped.jitter()), [3, 4, 7, 9]);
}

#[test]
fn duplicates_have_no_delay() {
    let all = analyse(&[(0, 10), (0, 900), (1, 12)]);
    assert_eq!(values(&all.latency), [10, 12]);
    assert_eq!(ipdv(&all), [2]);
    assert_eq!(all.counters.duplicate_frames, 1);
    assert_eq!(all.inter_arrival.count(), 2);
    assert_eq!(
        (all.flows[0].unique(), all.flows[0].latency.samples),
        (2, 2)
    );
}

/// Two hosts without a common clock: no latency, but the variation is right.
#[test]
fn frames_from_the_future_still_vary() {
    let all = analyse(&[(0, -500), (1, -490), (2, -495), (3, 0)]);
    assert_eq!(all.counters.clock_error_frames, 3);
    assert_eq!(values(&all.latency), [0]);
    assert_eq!(ipdv(&all), [-5, 10, 495]);
    assert_eq!(all.flows[0].latency.samples, 1);
    assert_eq!(all.flows[0].latency.max, Some(0));
}

#[test]
fn frames_without_a_stamp_are_only_followed() {
    let mut analyser = Analyser::planned(1);
    analyser.on_frame(0, 0, 90, 100, 64);
    analyser.on_frame(0, 1, 0, 110, 64);
    analyser.on_frame(0, 2, 110, 125, 64);
    analyser.on_frame(0, 3, 120, 136, 64);
    let all = analyser.into_measurement();
    assert_eq!(
        (all.counters.received_frames, all.counters.unstamped_frames),
        (4, 1)
    );
    assert_eq!(values(&all.latency), [10, 15, 16]);
    assert_eq!(ipdv(&all), [1]);
    assert_eq!(all.jitter().count(), 1);
    assert_eq!(all.flows[0].latency.mean(), Some(41.0 / 3.0));
}

#[test]
fn late_are_originals_after_the_drain_began() {
    let mut analyser = Analyser::planned(1);
    analyser.on_frame(0, 0, 1, 100, 64);
    analyser.drain_since(100);
    analyser.on_frame(0, 1, 1, 100, 64);
    analyser.on_frame(0, 2, 1, 101, 64);
    analyser.on_frame(0, 2, 1, 102, 64);
    let counters = analyser.counters();
    assert_eq!((counters.late_frames, counters.received_frames), (1, 4));
    assert_eq!(analyser.flow(0).unwrap().late, 1);
}

#[test]
fn inter_arrival_runs_over_all_flows_and_never_below_zero() {
    let mut analyser = Analyser::planned(2);
    for (flow, rx_ns) in [(0, 100), (1, 130), (0, 120), (1, 180)] {
        analyser.on_frame(flow, 0, 1, rx_ns, 64);
    }
    assert_eq!(values(analyser.inter_arrival()), [0, 30, 50]);
    let all = analyser.into_measurement();
    assert_eq!(all.receive_time_ns(), Some(80));
    assert_eq!(Measurement::default().receive_time_ns(), None);
}

#[test]
fn frames_of_others_and_frames_without_room() {
    let mut planned = Analyser::planned(1);
    assert_eq!(planned.on_frame(1, 0, 1, 2, 64), None);
    planned.on_foreign(1518);
    assert_eq!(planned.counters().foreign_frames, 2);
    assert_eq!(planned.counters().foreign_octets, 64 + 1518);
    assert_eq!(planned.counters().received_frames, 0);

    let mut open = Analyser::open(1);
    assert_eq!(
        open.on_frame(77, 0, 1, 2, 64),
        Some(Arrival::InOrder { gap: 0 })
    );
    assert_eq!(open.on_frame(78, 0, 1, 4, 64), None);
    open.on_untagged(7, 64);
    let counters = open.counters();
    assert_eq!(
        (counters.received_frames, counters.received_octets),
        (3, 192)
    );
    assert_eq!(
        (counters.untracked_frames, counters.untagged_frames),
        (1, 1)
    );
    assert_eq!(counters.foreign_frames, 0);
    assert_eq!(open.inter_arrival().count(), 2);
}

#[test]
fn figures_of_one_flow() {
    let mut analyser = Analyser::planned_with_window(3, WindowSize::MIN);
    for (sequence, tx_ns, rx_ns) in [
        (5000, 100, 140),
        (5000, 100, 150),
        (1, 80, 200),
        (4999, 90, 210),
    ] {
        analyser.on_frame(1, sequence, tx_ns, rx_ns, 100);
    }
    let flow = analyser.flow(1).unwrap();
    assert_eq!((flow.received, flow.octets, flow.unique()), (4, 400, 2));
    assert_eq!(
        (flow.duplicates, flow.reordered, flow.highest),
        (2, 1, Some(5000))
    );
    assert_eq!((flow.first_rx_ns, flow.last_rx_ns), (Some(140), Some(210)));
    assert_eq!((flow.latency.min, flow.latency.max), (Some(40), Some(120)));
    assert_eq!(analyser.counters().beyond_window_frames, 1);
    assert_eq!(analyser.counters().missing_frames, 4999);
    let idle = analyser.flow(2).unwrap();
    assert_eq!(
        (idle.received, idle.highest, idle.first_rx_ns),
        (0, None, None)
    );
    assert_eq!(idle.latency.mean(), None);
    assert_eq!(analyser.flow(3), None);
    assert_eq!(analyser.into_measurement().flows.len(), 3);
}

/// Frames of a sender that may have started before the receiver.
fn joined_late(numbers: &[u32]) -> Measurement {
    let mut analyser = Analyser::open(4).with_unknown_sender();
    for &number in numbers {
        analyser.on_frame(9, number, 1, 2, 64);
    }
    analyser.into_measurement()
}

#[test]
fn without_the_sender_gaps_count_from_the_first_number_seen() {
    let m = joined_late(&[1000, 1001, 1004]);
    assert_eq!(
        (m.counters.head_frames, m.counters.missing_frames),
        (1000, 2)
    );
    assert_eq!((m.largest_gap, m.last_skipped), (2, Some(1003)));
    assert_eq!((m.flows[0].head, m.flows[0].highest), (1000, Some(1004)));
    // Numbers may exceed half of the 32-bit range.
    let m = joined_late(&[u32::MAX, 0]);
    let counters = m.counters;
    assert_eq!(
        (counters.head_frames, counters.missing_frames),
        (u64::from(u32::MAX), 0)
    );
    // A number below the first one seen is an original; gaps then count from that number.
    let m = joined_late(&[1000, 997, 999, 997, 1001]);
    let c = m.counters;
    assert_eq!((c.head_frames, c.missing_frames), (997, 1));
    assert_eq!((c.reordered_frames, c.duplicate_frames), (2, 1));
    assert_eq!(m.flows[0].head, 997);
    let m = joined_late(&[5, 0]);
    assert_eq!((m.counters.head_frames, m.counters.missing_frames), (0, 4));
}

#[test]
fn a_stamp_far_in_the_future_is_a_clock_error() {
    let mut analyser = Analyser::planned(1);
    let now = 1_700_000_000_000_000_000;
    for (number, tx_ns) in [(0, u64::MAX), (1, now - 10), (2, u64::MAX), (3, now + 1)] {
        analyser.on_frame(0, number, tx_ns, now, 64);
    }
    let m = analyser.into_measurement();
    assert_eq!(m.counters.clock_error_frames, 3);
    assert_eq!((m.latency.count(), m.latency.summary().max), (1, Some(10)));
    // Three pairs, and none of them has wrapped.
    assert_eq!((m.jitter().count(), m.ipdv.count()), (3, 3));
    let (down, up) = (ipdv(&m)[0], ipdv(&m)[2]);
    assert!(down < -(1 << 41) && up > 1 << 41, "{down} {up}");
}
