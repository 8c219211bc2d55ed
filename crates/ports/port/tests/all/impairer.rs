//! Laws of the impairing device, checked by an independent observer at the output.

use proptest::prelude::*;
use wb_port::fault::{Capacity, Impairer, Impairment, Loss, Rate};

fn ratio() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..0.3, Just(1.0)]
}

fn impairment() -> impl Strategy<Value = Impairment> {
    let loss = prop_oneof![
        Just(Loss::None),
        ratio().prop_map(Loss::Ratio),
        (1..20u64).prop_map(Loss::Every)
    ];
    let rate = prop_oneof![
        (1e3..1e8).prop_map(Rate::FramesPerSecond),
        (1_000_000..1_000_000_000u64).prop_map(Rate::BitsPerSecond)
    ];
    let capacity =
        (rate, 0..50u32, 0..1_000_000u64).prop_map(|(rate, buffer_frames, buffer_ns)| Capacity {
            rate,
            buffer_frames,
            buffer_ns,
        });
    (
        (loss, ratio(), ratio(), 1..6u32, 0..100_000u64),
        (
            0..50_000u64,
            0..80_000u64,
            proptest::option::of(capacity),
            any::<u64>(),
        ),
    )
        .prop_map(
            |((loss, duplicate, reorder, reorder_depth, reorder_limit_ns), rest)| {
                let (delay_ns, jitter_ns, capacity, seed) = rest;
                Impairment {
                    loss,
                    duplicate,
                    reorder,
                    reorder_depth,
                    reorder_limit_ns,
                    delay_ns,
                    jitter_ns,
                    capacity,
                    seed,
                }
            },
        )
}

/// Gaps between arrivals, and lengths.
fn traffic() -> impl Strategy<Value = Vec<(u64, u32)>> {
    proptest::collection::vec(
        (
            prop_oneof![Just(0), 0..2_000u64, 0..200_000u64],
            60..1515u32,
        ),
        1..300,
    )
}

#[derive(Default)]
struct Observer {
    /// (number, due) of all frames that left.
    left: Vec<(usize, u64)>,
    dropped: u64,
    arrivals: Vec<u64>,
}

/// Feeds the traffic. `look` selects the arrivals after which the output is polled.
fn play(
    impairment: &Impairment,
    traffic: &[(u64, u32)],
    look: impl Fn(usize) -> bool,
) -> (Observer, Impairer<usize>) {
    let mut device = Impairer::new(impairment).unwrap();
    let mut seen = Observer::default();
    let mut now = 1_000_000;
    for (number, (gap, len)) in traffic.iter().enumerate() {
        now += gap;
        // Frames due before this arrival leave before it.
        if look(number) {
            while let Some(frame) = device.depart(now.saturating_sub(1)) {
                seen.left.push(frame);
            }
            equation(&device);
        }
        seen.arrivals.push(now);
        seen.dropped += u64::from(device.arrive(now, *len, number, |n| *n).is_some());
        equation(&device);
    }
    (seen, device)
}

fn equation(device: &Impairer<usize>) {
    let c = device.counters();
    assert_eq!(
        c.arrived,
        c.lost + c.rate_dropped + (c.left - c.duplicated) + device.inside()
    );
}

fn drain(seen: &mut Observer, device: &mut Impairer<usize>) {
    while let Some(at) = device.next_departure() {
        seen.left.extend(device.depart(at));
        equation(device);
    }
}

/// RFC 4689: an original is reordered if one with a higher number left before it.
fn reordered(left: &[(usize, u64)]) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let mut highest = None;
    let mut count = 0;
    for (number, _) in left {
        if !seen.insert(*number) {
            continue;
        }
        count += u64::from(highest.is_some_and(|h| *number < h));
        highest = highest.max(Some(*number));
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_counters_are_what_an_observer_counts(impairment in impairment(), traffic in traffic()) {
        let (mut seen, mut device) = play(&impairment, &traffic, |_| true);
        drain(&mut seen, &mut device);
        let c = device.counters();
        prop_assert_eq!(device.inside(), 0);
        prop_assert_eq!(c.arrived, traffic.len() as u64);
        prop_assert_eq!(c.lost + c.rate_dropped, seen.dropped);
        prop_assert_eq!(c.left, seen.left.len() as u64);
        prop_assert_eq!(c.reordered, reordered(&seen.left));

        let mut numbers: Vec<usize> = seen.left.iter().map(|f| f.0).collect();
        prop_assert_eq!(numbers.windows(2).filter(|w| w[0] == w[1]).count() as u64, c.duplicated);
        numbers.dedup();
        prop_assert_eq!(numbers.len() as u64, c.originals(), "each original leaves once");

        prop_assert!(seen.left.is_sorted_by_key(|f| f.1), "departures in order of time");
        let mut originals = seen.left.clone();
        originals.dedup_by_key(|f| f.0);
        let delays: Vec<u64> = originals.iter().map(|(n, due)| due - seen.arrivals[*n]).collect();
        prop_assert_eq!(c.delay_sum_ns, delays.iter().sum::<u64>());
        prop_assert_eq!(c.delay_max_ns, delays.iter().copied().max().unwrap_or(0));
        prop_assert_eq!(c.delay_min_ns, delays.iter().copied().min().unwrap_or(0));
    }

    #[test]
    fn how_often_one_looks_changes_nothing(impairment in impairment(), traffic in traffic(), every in 1..50usize) {
        let (mut often, mut device) = play(&impairment, &traffic, |_| true);
        drain(&mut often, &mut device);
        let (mut seldom, mut other) = play(&impairment, &traffic, |n| n % every == every - 1);
        drain(&mut seldom, &mut other);
        prop_assert_eq!(often.left, seldom.left);
        prop_assert_eq!(device.counters(), other.counters());
    }

    #[test]
    fn flush_all_lets_everything_out(impairment in impairment(), traffic in traffic()) {
        let (mut seen, mut device) = play(&impairment, &traffic, |n| n % 3 == 0);
        device.flush_all(0, |n, due| seen.left.push((n, due)));
        equation(&device);
        prop_assert_eq!((device.inside(), device.next_departure()), (0, None));
        prop_assert_eq!(device.counters().reordered, reordered(&seen.left));
    }

    #[test]
    fn reordered_frames_waited_for_no_more_than_the_depth(impairment in impairment(), traffic in traffic()) {
        let (mut seen, mut device) = play(&impairment, &traffic, |_| true);
        drain(&mut seen, &mut device);
        let mut order: Vec<usize> = seen.left.iter().map(|f| f.0).collect();
        order.dedup();
        for (at, number) in order.iter().enumerate() {
            let later = order[..at].iter().filter(|n| *n > number).count();
            prop_assert!(later <= impairment.reorder_depth as usize, "{later} later ones before {number}");
        }
    }
}

#[test]
fn memory_is_used_again() {
    // A device in balance: the number of held frames stays bounded in a run of any length.
    let device = Impairment {
        loss: Loss::Ratio(0.01),
        duplicate: 0.01,
        reorder: 0.01,
        delay_ns: 10_000,
        jitter_ns: 1_000,
        ..Impairment::default()
    };
    let mut device = Impairer::new(&device).unwrap();
    let mut most = 0;
    for n in 0..500_000u64 {
        let now = n * 100;
        device.arrive(now, 60, n, |n| *n);
        while device.depart(now).is_some() {}
        most = most.max(device.inside());
    }
    assert!(
        most < 130,
        "{most} inside, about 100 are on the way at a time"
    );
}
