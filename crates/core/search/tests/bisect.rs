//! Binary search with and without loss verification, integer search, doubling and loss curves: test vectors and random
//! devices.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use support::{Device, TEN_GIG};
use wb_search::{
    Binary, Doubling, ForwardingCurve, Integers, LimitCause, LoadOutcome, LossCurve, Measurer,
    Purpose, SearchResult, Trial, TrialRequest, binary, doubling, forwarding_curve, integers,
    loss_curve,
};

const CAPACITY: f64 = 8_123_456.0;

fn assert_near(seen: f64, expected: f64, tolerance: f64) {
    assert!(
        (seen - expected).abs() <= tolerance,
        "{seen} instead of {expected}"
    );
}

#[test]
fn throughput_is_found_with_these_trials() {
    let mut device = Device::new(CAPACITY);
    let found = binary(&mut device, &Binary::up_to(TEN_GIG)).unwrap();
    let expected = [
        (100.0, 405_449_782, 45.41038),
        (50.0, 0, 0.0),
        (75.0, 182_235_497, 27.21383),
        (62.5, 70_628_354, 12.65660),
        (56.25, 14_824_782, 2.95178),
        (53.125, 0, 0.0),
        (54.6875, 873_890, 0.17897),
        (53.90625, 0, 0.0),
        (54.296_875, 0, 0.0),
        (54.492_187_5, 0, 0.0),
        (54.589_843_75, 1_959, 0.00040),
    ];
    assert_eq!(device.log.len(), expected.len());
    for (row, (percent, lost, loss)) in device.log.iter().zip(expected) {
        assert_near(row.load / TEN_GIG * 100.0, percent, 1e-12);
        assert_eq!(row.lost, lost, "at {percent} %");
        assert_near(row.trial.loss * 100.0, loss, 5e-6);
        assert_eq!(row.duration, Duration::from_secs(60));
    }
    let best = found.best.unwrap();
    assert_eq!(best.floor(), 8_108_956.0);
    assert_near(best * 84.0 * 8.0 / 1e6, 5449.22, 5e-3);
    assert_near(best * 64.0 * 8.0 / 1e6, 4151.79, 5e-3);
    assert_eq!(
        (
            found.bound,
            found.confirmed,
            found.trials,
            found.near_maximum
        ),
        (LimitCause::Device, true, 11, None)
    );
    assert_near(found.beyond.unwrap() / TEN_GIG, 0.545_898_437_5, 1e-12);
}

#[test]
fn a_partial_drop_rate_is_found_with_these_trials() {
    let mut device = Device::new(CAPACITY);
    let plan = Binary {
        loss_goal: 0.005,
        ..Binary::up_to(TEN_GIG)
    };
    let found = binary(&mut device, &plan).unwrap();
    let expected = [
        (100.0, 45.41038, 'F'),
        (50.0, 0.0, 'P'),
        (75.0, 27.21383, 'F'),
        (62.5, 12.65660, 'F'),
        (56.25, 2.95178, 'F'),
        (53.125, 0.0, 'P'),
        (54.6875, 0.17897, 'P'),
        (55.468_75, 1.58490, 'F'),
        (55.078_125, 0.88692, 'F'),
        (54.882_812_5, 0.53421, 'F'),
        (54.785_156_25, 0.35691, 'P'),
    ];
    assert_eq!(device.log.len(), expected.len());
    let told = device.told(0.005);
    for ((row, (_, letter)), (percent, loss, verdict)) in device.log.iter().zip(told).zip(expected)
    {
        assert_near(row.load / TEN_GIG * 100.0, percent, 1e-12);
        assert_near(row.trial.loss * 100.0, loss, 5e-6);
        assert_eq!(letter, verdict.to_string(), "at {percent} %");
    }
    assert_eq!(found.best.unwrap().floor(), 8_152_553.0);
}

/// Device that loses 10 frames in every third trial.
fn unlucky() -> Device {
    Device {
        noise: Box::new(|trial, _| if trial % 3 == 0 { 10 } else { 0 }),
        ..Device::new(CAPACITY)
    }
}

fn verified(repeats: u32) -> (SearchResult, Vec<(f64, String)>) {
    let mut device = unlucky();
    let plan = Binary {
        repeats,
        ..Binary::up_to(TEN_GIG)
    };
    let found = binary(&mut device, &plan).unwrap();
    assert_eq!(found.trials as usize, device.log.len());
    for (n, row) in device.log.iter().enumerate() {
        let noise = if (n + 1) % 3 == 0 { 10 } else { 0 };
        assert!(row.load > CAPACITY || row.lost == noise, "{row:?}");
    }
    let told = device.told(0.0).into_iter();
    (
        found,
        told.map(|(load, told)| (load / TEN_GIG * 100.0, told))
            .collect(),
    )
}

fn assert_told(told: &[(f64, String)], expected: &[(f64, &str)]) {
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((load, told), (percent, verdicts)) in told.iter().zip(expected) {
        assert_near(*load, *percent, 1e-12);
        assert_eq!(told, verdicts, "at {percent} %");
    }
}

#[test]
fn chance_decides_a_search_without_loss_verification() {
    let (found, told) = verified(0);
    assert_told(
        &told,
        &[
            (100.0, "F"),
            (50.0, "P"),
            (75.0, "F"),
            (62.5, "F"),
            (56.25, "F"),
            (53.125, "F"),
            (51.5625, "P"),
            (52.34375, "P"),
            (52.734_375, "F"),
            (52.539_062_5, "P"),
            (52.636_718_75, "P"),
        ],
    );
    assert_near(found.best.unwrap() / TEN_GIG * 100.0, 52.636_718_75, 1e-12);
    assert_eq!(found.trials, 11);
}

#[test]
fn loss_verification_outlives_chance() {
    let (found, told) = verified(1);
    assert_told(
        &told,
        &[
            (100.0, "FF"),
            (50.0, "FP"),
            (75.0, "FF"),
            (62.5, "FF"),
            (56.25, "FF"),
            (53.125, "P"),
            (54.6875, "FF"),
            (53.90625, "P"),
            (54.296_875, "FP"),
            (54.492_187_5, "P"),
            (54.589_843_75, "FF"),
        ],
    );
    assert_near(found.best.unwrap() / TEN_GIG * 100.0, 54.492_187_5, 1e-12);
    assert_eq!(found.trials, 19);
}

#[test]
fn the_testers_limit_is_no_throughput() {
    let mut device = Device {
        ceiling: 12e6,
        ..Device::new(14e6)
    };
    let found = binary(&mut device, &Binary::up_to(TEN_GIG)).unwrap();
    assert_eq!((found.best, found.bound), (Some(12e6), LimitCause::Tester));
    assert_eq!(
        device.told(0.0),
        [(TEN_GIG, "U".into()), (12e6, "P".into())]
    );

    let mut device = Device {
        ceiling: 12e6,
        ..Device::new(5e6)
    };
    let plan = Binary::up_to(TEN_GIG);
    let found = binary(&mut device, &plan).unwrap();
    assert_eq!(found.bound, LimitCause::Device);
    let best = found.best.unwrap();
    assert!(best <= 5e6 && best + plan.resolution >= 5e6, "{best}");
}

#[test]
fn a_maximum_that_fails_alone_is_tried_with_the_slowest_clock() {
    let plan = Binary::up_to(1e6);
    for (capacity, held, best, beyond) in [
        (999_850.0, true, 999_800.0, 1e6),
        (999_500.0, false, 999_023.437_5, 999_800.0),
    ] {
        let mut device = Device::new(capacity);
        let found = binary(&mut device, &plan).unwrap();
        assert_eq!(found.near_maximum, Some(held));
        assert_eq!((found.best, found.beyond), (Some(best), Some(beyond)));
        assert_eq!((found.bound, found.trials), (LimitCause::Device, 12));
    }
    // If the resolution is finer than the clock tolerance, the extra trial adds nothing.
    let fine = Binary {
        resolution: 50.0,
        ..plan
    };
    assert_eq!(
        binary(&mut Device::new(999_990.0), &fine)
            .unwrap()
            .near_maximum,
        None
    );
    assert_eq!(
        binary(&mut Device::new(998_000.0), &plan)
            .unwrap()
            .near_maximum,
        None
    );
    assert_eq!(
        binary(&mut Device::new(1e6), &plan).unwrap().bound,
        LimitCause::Maximum
    );
}

/// Device with a capacity that decreases with the trial duration.
struct Tiring {
    log: Vec<(f64, Duration, Purpose)>,
    /// Capacity in a trial of full length.
    full: f64,
}

impl Measurer for Tiring {
    type Error = std::convert::Infallible;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
        let duration = ask.duration.unwrap();
        self.log.push((ask.load, duration, ask.purpose));
        let capacity = match duration.as_secs() {
            60 => self.full,
            _ => 600.0,
        };
        Ok(Some(match ask.load <= capacity {
            true => Trial::held(ask.load),
            false => Trial::broke(ask.load, capacity),
        }))
    }
}

#[test]
fn what_short_trials_found_is_confirmed_at_full_length() {
    let plan = Binary {
        resolution: 10.0,
        search_duration: Some(Duration::from_secs(2)),
        final_duration: Some(Duration::from_secs(60)),
        ..Binary::up_to(1000.0)
    };
    let run = |full: f64, plan: &Binary| {
        let mut device = Tiring {
            log: Vec::new(),
            full,
        };
        let found = binary(&mut device, plan).unwrap();
        assert_eq!(found.trials as usize, device.log.len());
        let confirming = |(_, time, purpose): &&(f64, Duration, Purpose)| {
            assert_eq!(time.as_secs() == 60, *purpose == Purpose::Confirm);
            *purpose == Purpose::Confirm
        };
        let tried: Vec<_> = device
            .log
            .iter()
            .filter(confirming)
            .map(|row| row.0)
            .collect();
        (found, tried)
    };
    let (found, tried) = run(600.0, &plan);
    assert_eq!(tried, [593.75]);
    assert_eq!(
        (found.best, found.confirmed, found.bound),
        (Some(593.75), true, LimitCause::Device)
    );

    let (found, tried) = run(575.0, &plan);
    assert_eq!(tried, [593.75, 583.75, 573.75]);
    assert_eq!((found.best, found.beyond), (Some(573.75), Some(583.75)));
    assert!(found.confirmed);

    let (found, tried) = run(100.0, &plan);
    assert_eq!(tried.len(), 10);
    assert_eq!(
        (found.best, found.confirmed, found.bound),
        (None, false, LimitCause::Unfinished)
    );

    // Trials of full length need no confirmation.
    let full = Binary {
        search_duration: Some(Duration::from_secs(60)),
        ..plan
    };
    let mut device = Tiring {
        log: Vec::new(),
        full: 600.0,
    };
    let found = binary(&mut device, &full).unwrap();
    assert!(found.confirmed && device.log.iter().all(|row| row.2 == Purpose::Search));
}

/// Passes up to this number.
struct UpTo(f64, Vec<(u64, char)>);

impl Measurer for UpTo {
    type Error = std::convert::Infallible;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
        assert_eq!(ask.load.fract(), 0.0);
        let passes = ask.load <= self.0;
        self.1
            .push((ask.load as u64, if passes { 'P' } else { 'F' }));
        Ok(Some(match passes {
            true => Trial::held(ask.load),
            false => Trial::broke(ask.load, self.0),
        }))
    }
}

impl UpTo {
    fn told(&self) -> String {
        let told: Vec<_> = self
            .1
            .iter()
            .map(|(n, told)| format!("{n}{told}"))
            .collect();
        told.join(" ")
    }
}

const WHOLE: Integers = Integers {
    low: 0,
    high: 65_536,
    resolution: 1,
    repeats: 0,
};

#[test]
fn the_longest_burst_is_found_with_these_trials() {
    // The queue grows by the frames that do not leave meanwhile: N · (1 - T / Rmax) of 1000.
    let fits = 1000.0 / (1.0 - 10e6 / TEN_GIG);
    let mut device = UpTo(fits, Vec::new());
    let found = integers(&mut device, &WHOLE).unwrap();
    assert_eq!(
        device.told(),
        "32768F 16384F 8192F 4096F 2048P 3072F 2560P 2816P 2944P 3008P 3040P 3056F 3048P 3052F 3050F 3049F"
    );
    assert_eq!(
        (found.best, found.beyond, found.bound, found.trials),
        (Some(3048.0), Some(3049.0), LimitCause::Device, 16)
    );
}

#[test]
fn addresses_of_a_cache_are_found_with_these_trials() {
    let mut device = UpTo(8191.0, Vec::new());
    let plan = Integers {
        high: 16_384,
        ..WHOLE
    };
    let found = integers(&mut device, &plan).unwrap();
    assert_eq!(
        device.told(),
        "8192F 4096P 6144P 7168P 7680P 7936P 8064P 8128P 8160P 8176P 8184P 8188P 8190P 8191P"
    );
    assert_eq!(
        (found.best, found.bound, found.trials),
        (Some(8191.0), LimitCause::Device, 14)
    );
    // No trial failed, so the limit is unknown.
    let found = integers(&mut UpTo(1e9, Vec::new()), &plan).unwrap();
    assert_eq!(
        (found.best, found.beyond, found.bound),
        (Some(16_383.0), None, LimitCause::Maximum)
    );
    let found = integers(&mut UpTo(0.0, Vec::new()), &plan).unwrap();
    assert_eq!(
        (found.best, found.beyond, found.bound, found.confirmed),
        (Some(0.0), Some(1.0), LimitCause::Device, false)
    );
}

#[test]
fn doubling_finds_connections_with_these_trials() {
    let mut device = UpTo(37_500.0, Vec::new());
    let plan = Doubling {
        start: 1000,
        maximum: 1 << 40,
        resolution: 0.01,
        repeats: 0,
        most_trials: 100,
    };
    let found = doubling(&mut device, &plan).unwrap();
    assert_eq!(
        device.told(),
        "1000P 2000P 4000P 8000P 16000P 32000P 64000F 48000F 40000F 36000P 38000F 37000P 37500P 37750F"
    );
    assert_eq!(
        (found.best, found.bound, found.trials),
        (Some(37_500.0), LimitCause::Device, 14)
    );
}

#[test]
fn a_loss_curve_ends_after_two_loads_without_loss() {
    let mut device = Device::new(0.75 * TEN_GIG);
    let plan = LossCurve {
        maximum: TEN_GIG,
        step: 0.1,
    };
    let curve = loss_curve(&mut device, &plan).unwrap();
    let points = curve.points.iter();
    let seen: Vec<_> = points
        .map(|p| {
            let percent = (p.load / TEN_GIG * 100.0).round();
            (percent, (p.trial.loss * 1e5).round() / 1e3)
        })
        .collect();
    assert_eq!(
        seen,
        [
            (100.0, 25.0),
            (90.0, 16.667),
            (80.0, 6.25),
            (70.0, 0.0),
            (60.0, 0.0)
        ]
    );
    assert!(curve.is_finished);
    // A device that loses at every load is tried ten times, down to a tenth.
    assert_eq!(
        loss_curve(&mut Device::new(0.0), &plan)
            .unwrap()
            .points
            .len(),
        10
    );
    // A load that was not offered does not count as free of loss.
    let mut device = Device {
        ceiling: 0.85 * TEN_GIG,
        ..Device::new(TEN_GIG)
    };
    let curve = loss_curve(&mut device, &plan).unwrap();
    let outcomes: Vec<_> = curve.points.iter().map(|p| p.trial.outcome).collect();
    use LoadOutcome::{Held, Unoffered};
    assert_eq!(outcomes, [Unoffered, Unoffered, Held, Held]);
    let mut device = Device {
        patience: 3,
        ..Device::new(0.0)
    };
    let curve = loss_curve(&mut device, &plan).unwrap();
    assert_eq!((curve.points.len(), curve.is_finished), (3, false));
}

#[test]
fn the_maximum_forwarding_rate_need_not_be_at_the_maximum_load() {
    /// Device that carries less the more its capacity is exceeded.
    struct Congested(f64, Vec<f64>);
    impl Measurer for Congested {
        type Error = std::convert::Infallible;
        fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
            self.1.push(ask.load);
            let beyond = (ask.load - self.0).max(0.0);
            Ok(Some(match beyond > 0.0 {
                true => Trial::broke(ask.load, ask.load - 1.5 * beyond),
                false => Trial::held(ask.load),
            }))
        }
    }
    let mut device = Congested(700.0, Vec::new());
    let plan = ForwardingCurve {
        minimum: 640.0,
        maximum: 1000.0,
        step: 0.1,
    };
    let curve = forwarding_curve(&mut device, &plan).unwrap();
    assert_eq!(device.1, [640.0, 740.0, 840.0, 940.0, 1000.0]);
    let through: Vec<_> = curve.points.iter().map(|p| p.trial.through).collect();
    assert_eq!(through, [640.0, 680.0, 630.0, 580.0, 550.0]);
    assert_eq!(curve.maximum_forwarding_rate().unwrap().load, 740.0);
    assert!(curve.is_finished);

    // The lowest of equal loads; loads that could not be received are excluded.
    let mut device = Device::new(700.0);
    device.duration = Duration::from_secs(1);
    let mut curve = forwarding_curve(&mut device, &plan).unwrap();
    assert_eq!(curve.maximum_forwarding_rate().unwrap().load, 740.0);
    curve.points[1].trial.outcome = LoadOutcome::Unread;
    assert_eq!(curve.maximum_forwarding_rate().unwrap().load, 840.0);
    // The maximum is measured exactly once, also with a step of 0.
    for (minimum, step, loads) in [
        (1000.0, 0.1, 1),
        (500.0, 0.1, 6),
        (640.0, 0.0, 2),
        (2e3, 0.1, 1),
    ] {
        let plan = ForwardingCurve {
            minimum,
            step,
            ..plan
        };
        let curve = forwarding_curve(&mut Device::new(700.0), &plan).unwrap();
        assert_eq!(
            (curve.points.len(), curve.points.last().unwrap().load),
            (loads, 1000.0)
        );
    }
    device.patience = device.log.len() + 2;
    let curve = forwarding_curve(&mut device, &plan).unwrap();
    assert_eq!((curve.points.len(), curve.is_finished), (2, false));
}

fn many() -> ProptestConfig {
    ProptestConfig {
        cases: 1000,
        ..ProptestConfig::default()
    }
}

/// Maximum number of trials of a search: the maximum, and one per halving.
fn most_trials(plan: &Binary) -> u32 {
    1 + (plan.maximum / plan.resolution).log2().ceil().max(0.0) as u32
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn a_binary_search_finds_every_capacity(
        maximum in 1e3..1e8f64, share in 0.0..1.2f64, resolution in 1e-5..2.0f64,
        loss_goal in prop_oneof![Just(0.0), 0.0..0.1f64],
        minimum in prop_oneof![Just(0.0), 0.0..0.5f64],
    ) {
        let mut device = Device::new(maximum * share);
        let plan = Binary {
            minimum: maximum * minimum,
            resolution: maximum * resolution,
            loss_goal,
            ..Binary::up_to(maximum)
        };
        let found = binary(&mut device, &plan).unwrap();
        let near = found.near_maximum.is_some();
        prop_assert!(found.trials <= most_trials(&plan) + u32::from(near));
        if plan.minimum == 0.0 && found.bound == LimitCause::Device {
            prop_assert_eq!(found.trials, most_trials(&plan) + u32::from(near));
        }
        // Highest load within the goal; frames are integers, so a load may be one frame higher.
        let limit = device.capacity / (1.0 - loss_goal);
        let frame = 2.0;
        match found.best {
            Some(best) => {
                prop_assert!(best <= limit + frame && best >= plan.minimum && best <= maximum);
                match found.bound {
                    LimitCause::Device => prop_assert!(best + plan.resolution >= limit - frame),
                    LimitCause::Maximum => prop_assert_eq!(best, maximum),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            None => {
                prop_assert_eq!(found.bound, LimitCause::Device);
                prop_assert!(limit <= plan.minimum.max(plan.resolution) + frame);
            }
        }
        prop_assert!(device.log.iter().all(|row| row.load >= plan.minimum && row.load <= maximum));
    }

    #[test]
    fn loss_verification_finds_the_capacity_behind_loss_by_chance(
        maximum in 1e3..1e8f64, share in 0.01..1.2f64, repeats in 1u32..5, phase in 0usize..10, is_noisy: bool,
    ) {
        // The repetitions just make up for the consecutive lossy trials.
        let every = repeats as usize + 1;
        let mut device = Device::new(maximum * share);
        if is_noisy {
            device.noise = Box::new(move |trial, sent| if (trial + phase).is_multiple_of(every) { 0 } else { sent / 50 + 1 });
        }
        let plan = Binary { repeats, ..Binary::up_to(maximum) };
        let found = binary(&mut device, &plan).unwrap();
        let best = found.best.unwrap();
        prop_assert!(best <= device.capacity + 1.0);
        prop_assert!(best + plan.resolution >= device.capacity.min(maximum) - 1.0, "{:?}", found);
        // A failing load takes all repetitions, a passing one takes one trial.
        let told = device.told(0.0);
        let loads = if found.bound == LimitCause::Maximum { 1 } else { most_trials(&plan) };
        prop_assert_eq!(told.len() as u32, loads + u32::from(found.near_maximum.is_some()));
        for (load, letters) in told {
            let most = repeats as usize + 1;
            match load <= device.capacity {
                true => prop_assert!(letters.len() <= most && letters.trim_start_matches('F') == "P"),
                false => prop_assert!(letters.len() == most || letters == "P", "{} of {}", letters, device.capacity),
            }
        }
    }

    #[test]
    fn the_testers_ceiling_is_told_from_the_device(
        maximum in 1e3..1e8f64, share in 0.0..1.2f64, ceiling in 0.0..1.2f64,
    ) {
        let (capacity, ceiling) = ((maximum * share).floor(), (maximum * ceiling).floor());
        let mut device = Device { ceiling, ..Device::new(capacity) };
        let plan = Binary::up_to(maximum);
        let found = binary(&mut device, &plan).unwrap();
        prop_assert!(found.trials <= most_trials(&plan) + 3);
        match found.bound {
            LimitCause::Device => {
                prop_assert!(capacity <= ceiling + 1.0);
                let best = found.best.unwrap_or(0.0);
                prop_assert!(best <= capacity + 1.0 && best + plan.resolution >= capacity - 1.0);
            }
            LimitCause::Tester => {
                prop_assert!(ceiling < maximum && capacity + 1.0 >= ceiling);
                let best = found.best.unwrap_or(0.0);
                prop_assert!(best <= ceiling && best + plan.resolution >= ceiling);
            }
            LimitCause::Maximum => prop_assert_eq!(found.best, Some(maximum)),
            LimitCause::Unfinished => prop_assert!(false),
        }
    }

    #[test]
    fn whole_numbers_are_found(
        low in 0u64..1000, span in 0u64..1_000_000, limit in 0u64..1_100_000, resolution in 0u64..50,
        start in 0u64..100_000, repeats in 0u32..3,
    ) {
        let plan = Integers { low, high: low + span, resolution, repeats };
        let mut device = UpTo(limit as f64, Vec::new());
        let found = integers(&mut device, &plan).unwrap();
        let best = found.best.unwrap() as u64;
        prop_assert!(best >= low && (best <= limit || best == low));
        if found.bound == LimitCause::Device {
            prop_assert!(best + resolution.max(1) > limit);
        } else {
            prop_assert!(best + resolution.max(1) >= low + span);
        }
        prop_assert!(device.1.iter().all(|(n, _)| *n > low && *n < low + span));
        prop_assert!(found.trials <= (repeats + 1) * (1 + span.max(1).ilog2() + 1));

        let plan = Doubling { start, maximum: 1_000_000, resolution: resolution as f64 / 100.0, repeats, most_trials: 1000 };
        let mut device = UpTo(limit as f64, Vec::new());
        let found = doubling(&mut device, &plan).unwrap();
        let best = found.best.unwrap_or(0.0);
        prop_assert!(best <= limit as f64);
        match found.bound {
            LimitCause::Maximum => prop_assert_eq!(best, 1e6),
            LimitCause::Device => {
                let width = (best * plan.resolution).max(1.0);
                prop_assert!(best + width >= limit as f64, "{:?} of {}", found, limit);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        prop_assert!(found.trials <= (repeats + 1) * 42);
    }
}

/// Returns the same result for every load, for a limited number of trials.
struct Same(Trial, usize, usize);

impl Measurer for Same {
    type Error = std::convert::Infallible;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
        self.2 += 1;
        assert!(self.2 < 10_000 && !ask.load.is_nan());
        Ok((self.2 <= self.1).then_some(self.0))
    }
}

#[test]
fn odd_measurers_and_odd_plans_end() {
    let trial = |outcome, offered, loss| Trial {
        outcome,
        offered,
        through: 0.0,
        loss,
        overhead: Duration::ZERO,
    };
    use LoadOutcome::{Broke, Held, Unoffered, Unread};
    let trials = [
        trial(Held, 1e6, 0.0),
        trial(Broke, 1e6, 1.0),
        trial(Unread, 1e6, 0.0),
        trial(Unoffered, 0.0, 0.0),
        trial(Unoffered, 999_999.0, 0.0),
        trial(Unoffered, -5.0, 0.0),
        trial(Unoffered, 5e9, 0.0),
    ];
    let up_to = Binary::up_to(1e6);
    let short = Some(Duration::from_secs(1));
    let plans = [
        up_to,
        Binary {
            maximum: 0.0,
            first: 0.0,
            ..up_to
        },
        Binary {
            resolution: 1e9,
            ..up_to
        },
        Binary {
            resolution: 0.0,
            ..up_to
        },
        Binary {
            resolution: -1.0,
            ..up_to
        },
        Binary {
            minimum: 1e6,
            ..up_to
        },
        Binary {
            minimum: 2e6,
            ..up_to
        },
        Binary {
            first: 10.0,
            repeats: 2,
            ..up_to
        },
        Binary {
            first: 0.0,
            ..up_to
        },
        Binary {
            most_trials: 0,
            ..up_to
        },
        Binary {
            search_duration: short,
            ..up_to
        },
        Binary {
            search_duration: short,
            resolution: 0.0,
            repeats: 2,
            ..up_to
        },
        Binary {
            search_duration: short,
            most_confirmations: 0,
            ..up_to
        },
    ];
    for one in trials {
        for patience in 0..40 {
            for plan in &plans {
                let mut same = Same(one, patience, 0);
                let found = binary(&mut same, plan).unwrap();
                assert_eq!(found.trials as usize, same.2.min(patience));
                let tester = !one.is_valid();
                assert!(
                    !(tester && found.bound == LimitCause::Device),
                    "{found:?} {one:?} {plan:?}"
                );
                assert!(
                    !tester || found.best.is_none(),
                    "{found:?} {one:?} {plan:?}"
                );
                assert!(!found.confirmed || found.best.is_some());
            }
            integers(&mut Same(one, patience, 0), &WHOLE).unwrap();
            let plan = Doubling {
                start: 0,
                maximum: 1 << 50,
                resolution: 0.0,
                repeats: 1,
                most_trials: 500,
            };
            doubling(&mut Same(one, patience, 0), &plan).unwrap();
            let plan = LossCurve {
                maximum: 1e6,
                step: 0.05,
            };
            assert!(
                loss_curve(&mut Same(one, patience, 0), &plan)
                    .unwrap()
                    .points
                    .len()
                    <= 20
            );
        }
    }
}
