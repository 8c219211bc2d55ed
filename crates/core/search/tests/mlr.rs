//! MLRsearch: test vectors, random devices, and the limit of the tester.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use support::{Device, TEN_GIG};
use wb_search::{
    Class, Goal, GoalFound, GoalResult, LoadOutcome, Measurer, Mlr, MlrFound, MlrTrial, Purpose,
    Sums, Trial, TrialRequest, conditional_throughput, mlr,
};

const CAPACITY: f64 = 8_123_456.0;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn assert_near(seen: f64, expected: f64, tolerance: f64) {
    assert!(
        (seen - expected).abs() <= tolerance,
        "{seen} instead of {expected}"
    );
}

/// Plan without intermediate targets: every load is decided.
fn plain(goals: &[Goal]) -> Mlr {
    Mlr {
        goals: goals.to_vec(),
        intermediate: false,
        ..Mlr::between(9001.0, TEN_GIG)
    }
}

fn classes(found: &MlrFound, n: usize) -> String {
    let letter = |class| match class {
        Class::Upper => 'U',
        Class::Lower => 'L',
        Class::Undecided => '?',
    };
    found.loads[n]
        .goals
        .iter()
        .map(|(_, class)| letter(*class))
        .collect()
}

#[test]
fn a_load_is_classified_by_sums_of_durations() {
    let one_second = Goal {
        loss_ratio: 0.005,
        exceed_ratio: 0.5,
        final_duration: seconds(1),
        duration_sum: seconds(120),
        ..Goal::rfc2544()
    };
    let twenty_percent = Goal {
        loss_ratio: 0.005,
        exceed_ratio: 0.2,
        ..Goal::rfc2544()
    };
    let goals = [Goal::rfc2544(), Goal::tst009(), one_second, twenty_percent];
    let rows = [
        (59, 1, 0.0, "????"),
        (1, 1, 0.01, "U???"),
        (59, 1, 0.01, "U??U"),
        (1, 1, 0.0, "U?LU"),
        // The worked example of the draft has L in the last column of these two; its formulas, which this crate
        // follows, give U.
        (1, 60, 0.001, "U?LU"),
        (1, 60, 0.0, "ULLU"),
    ];
    let mut trials = Vec::new();
    for (times, length, loss_ratio, expected) in rows {
        let trial = MlrTrial {
            duration: seconds(length),
            loss_ratio,
        };
        trials.extend([trial].repeat(times));
        let told: String = goals
            .iter()
            .map(|goal| match Sums::sum_trials(goal, &trials).class(goal) {
                Class::Upper => 'U',
                Class::Lower => 'L',
                Class::Undecided => '?',
            })
            .collect();
        assert_eq!(told, expected, "{} trials", trials.len());
    }
    let carried = goals.map(|goal| conditional_throughput(1e6, &goal, &trials));
    assert_eq!(carried[1..], [1e6, 1e6, 999_000.0]);
}

#[test]
fn ndr_and_pdr_are_found_with_these_trials() {
    let mut device = Device::new(CAPACITY);
    let found = mlr(&mut device, &plain(&[Goal::ndr(), Goal::pdr()])).unwrap();
    let rows = [
        (8_123_456.2, 0.0, "LL"),
        (8_164_277.6, 0.499_995, "UL"),
        (8_205_304.1, 0.997_501, "UU"),
        (14_880_952.4, 45.410_374, "UU"),
    ];
    assert_eq!(found.loads.len(), rows.len());
    for (n, (load, percent, told)) in rows.into_iter().enumerate() {
        let seen = &found.loads[n];
        assert_near(seen.load, load, 0.05);
        assert_eq!(seen.trials.len(), 11);
        for trial in &seen.trials {
            assert_eq!(trial.duration, seconds(1));
            assert_near(trial.loss_ratio * 100.0, percent, 5e-7);
        }
        assert_eq!(classes(&found, n), told);
    }
    let order: Vec<_> = device
        .told(0.005)
        .iter()
        .map(|(load, _)| load.round())
        .collect();
    assert_eq!(order, [14_880_952.0, 8_123_456.0, 8_164_278.0, 8_205_304.0]);
    let first = device.log[0];
    assert_eq!((first.load, first.purpose), (TEN_GIG, Purpose::WarmUp));
    assert_eq!((found.trials, device.log.len()), (44, 45));
    assert_eq!((found.trial_time, found.spent), (seconds(44), seconds(45)));
    let [ndr, pdr] = found.goals[..] else {
        panic!()
    };
    for (found, lower, upper, carried) in [
        (ndr, 8_123_456.2, 8_164_277.6, 8_123_456.2),
        (pdr, 8_164_277.6, 8_205_304.1, 8_123_456.6),
    ] {
        assert_near(found.lower.unwrap(), lower, 0.05);
        assert_near(found.upper.unwrap(), upper, 0.05);
        assert_near(found.width.unwrap(), 0.005, 1e-9);
        assert_near(found.conditional_throughput.unwrap(), carried, 0.05);
        assert_eq!(found.result, GoalResult::Regular);
    }
    assert_eq!((ndr.trials, pdr.trials), (33, 11));
}

#[test]
fn noise_is_decided_by_the_majority() {
    // Trials with this remainder of their number lose.
    for (rest, by, class, trials) in [
        (0, 10, Class::Lower, 12),
        (0, 2, Class::Lower, 21),
        (1, 2, Class::Upper, 21),
    ] {
        let mut device = Device::new(2e6);
        device.noise = Box::new(move |n, sent| if n % by == rest { sent / 100 } else { 0 });
        let plan = Mlr {
            warm_up: None,
            time_limit: seconds(trials),
            ..Mlr {
                maximum: 1e6,
                ..plain(&[Goal::ndr()])
            }
        };
        let found = mlr(&mut device, &plan).unwrap();
        let seen = found.loads.last().unwrap();
        assert_eq!((seen.load, seen.trials.len() as u64), (1e6, trials));
        assert_eq!(seen.goals[0].1, class);
        // One trial less would not be enough.
        let goal = Goal::ndr();
        let less = Sums::sum_trials(&goal, &seen.trials[1..]).class(&goal);
        assert_eq!(less, Class::Undecided);
    }
}

#[test]
fn the_testers_limit_is_no_throughput() {
    let mut device = Device {
        ceiling: 12e6,
        ..Device::new(14e6)
    };
    let found = mlr(&mut device, &plain(&[Goal::ndr(), Goal::pdr()])).unwrap();
    assert_eq!(found.tester_limit, Some(12e6));
    for goal in &found.goals {
        assert_eq!(goal.result, GoalResult::TesterLimit(12e6));
        assert_eq!((goal.lower, goal.upper), (Some(12e6), None));
        assert_eq!(goal.conditional_throughput, Some(12e6));
    }
    // The load that was not offered does not count for the device.
    assert_eq!(found.loads.len(), 1);
    assert_eq!(found.trials, 11);
}

#[test]
fn the_maximum_and_the_minimum_are_no_limits_of_a_device() {
    for intermediate in [false, true] {
        let plan = |minimum, maximum| Mlr {
            intermediate,
            ..Mlr::between(minimum, maximum)
        };
        let found = mlr(&mut Device::new(2e6), &plan(9001.0, 1e6)).unwrap();
        assert_eq!(found.trials, 11);
        for goal in &found.goals {
            assert_eq!(
                (goal.lower, goal.upper, goal.width),
                (Some(1e6), None, None)
            );
            assert_eq!(goal.conditional_throughput, Some(1e6));
            assert_eq!(goal.result, GoalResult::AtMaximum);
        }
        let found = mlr(&mut Device::new(8000.0), &plan(9001.0, 1e6)).unwrap();
        for goal in &found.goals {
            assert_eq!(
                (goal.lower, goal.upper, goal.width),
                (None, Some(9001.0), None)
            );
            assert_eq!(goal.conditional_throughput, None);
            assert_eq!(goal.result, GoalResult::AtMinimum);
            assert!(!goal.result.is_regular());
        }
        assert_eq!(found.trials, if intermediate { 12 } else { 22 });
    }
}

#[test]
fn intermediate_targets_dismiss_loads_after_one_trial() {
    let mut device = Device::new(CAPACITY);
    let found = mlr(&mut device, &Mlr::between(9001.0, TEN_GIG)).unwrap();
    let seen: Vec<_> = found.loads.iter().map(|load| load.trials.len()).collect();
    assert_eq!(seen, [11, 11, 11, 1]);
    assert_eq!(
        [0, 1, 2, 3].map(|n| classes(&found, n)),
        ["LL", "UL", "UU", "??"]
    );
    // The capacity is in the middle of the bracket.
    let ndr = found.goals[0];
    let middle = ndr.lower.unwrap().midpoint(ndr.upper.unwrap());
    assert_near(middle / CAPACITY, 1.0, 1e-5);
    assert_near(
        found.goals[1].conditional_throughput.unwrap(),
        CAPACITY,
        1.0,
    );
}

#[test]
fn short_trials_find_the_way_for_long_ones() {
    let plan = Mlr {
        time_limit: seconds(3600),
        initial_duration: Some(seconds(1)),
        ..plain(&[Goal::rfc2544()])
    };
    let long = mlr(&mut Device::new(CAPACITY), &plan).unwrap();
    assert_eq!((long.trials, long.trial_time), (3, seconds(180)));
    let mut device = Device::new(CAPACITY);
    let short = mlr(
        &mut device,
        &Mlr {
            intermediate: true,
            ..plan.clone()
        },
    )
    .unwrap();
    assert_eq!(short.goals[0].result, GoalResult::Regular);
    let lengths = |length: f64| {
        let is = |row: &&support::Row| (row.duration.as_secs_f64() - length).abs() < 1e-6;
        device.log.iter().filter(is).count()
    };
    // Warm-up, maximum and the two bounds. One trial is enough for the upper bound, because one miss is too many.
    assert_eq!([1.0, 60_f64.sqrt(), 60.0].map(lengths), [4, 1, 1]);
    let lower = short
        .loads
        .iter()
        .find(|load| Some(load.load) == short.goals[0].lower)
        .unwrap();
    assert_eq!(lower.goals[0].0.full_low, seconds(60));
    assert_near(
        lower.goals[0].0.short_low.as_secs_f64(),
        1.0 + 60_f64.sqrt(),
        1e-6,
    );

    // No trial is longer than necessary.
    let ndr = |initial_duration| {
        let plan = Mlr {
            initial_duration,
            ..Mlr::between(9001.0, TEN_GIG)
        };
        mlr(&mut Device::new(CAPACITY), &plan).unwrap()
    };
    assert_eq!(ndr(Some(seconds(2))), ndr(None));

    // The initial duration of a goal overrides that of the search.
    let own = Goal {
        initial_duration: Some(seconds(2)),
        ..Goal::rfc2544()
    };
    let mut device = Device::new(CAPACITY);
    let plan = Mlr {
        intermediate: true,
        goals: vec![own],
        ..plan
    };
    mlr(&mut device, &plan).unwrap();
    assert_eq!(device.log[1].duration, seconds(2));
}

#[test]
fn four_goals_are_found_together() {
    let goals = ["rfc2544", "tst009", "ndr", "pdr"].map(|name| Goal::named(name).unwrap());
    assert_eq!(Goal::named("mrr"), None);
    let mut device = Device::new(CAPACITY);
    let plan = Mlr {
        goals: goals.to_vec(),
        time_limit: seconds(3600),
        ..Mlr::between(9001.0, TEN_GIG)
    };
    let found = mlr(&mut device, &plan).unwrap();
    for goal in &found.goals {
        assert_eq!(goal.result, GoalResult::Regular, "{goal:?}");
        assert!(goal.width.unwrap() <= 0.005 + 1e-9);
        assert_near(goal.conditional_throughput.unwrap() / CAPACITY, 1.0, 0.005);
    }
    assert_eq!(
        found.goals.iter().map(|goal| goal.trials).sum::<u32>(),
        found.trials
    );
    // The loads of ndr are enough for the first two goals. Each lower bound takes one trial of 60 s; the short trials
    // that missed decide the upper bounds.
    let long = device.log.iter().filter(|row| row.duration == seconds(60));
    assert_eq!(long.count(), 2);
}

/// Device with trials that take longer than their duration.
struct Slow(Device, Duration);

impl Measurer for Slow {
    type Error = std::convert::Infallible;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
        let trial = self.0.measure(ask)?;
        Ok(trial.map(|trial| Trial {
            overhead: self.1,
            ..trial
        }))
    }
}

#[test]
fn overhead_counts_for_the_time_limit() {
    let plan = |limit| Mlr {
        time_limit: limit,
        ..plain(&[Goal::ndr(), Goal::pdr()])
    };
    let run = |overhead, limit| {
        let mut slow = Slow(Device::new(CAPACITY), overhead);
        mlr(&mut slow, &plan(limit)).unwrap()
    };
    // A warm-up trial and 44 others.
    let found = run(seconds(7), seconds(8 * 45));
    assert_eq!(
        (found.spent, found.trial_time),
        (seconds(8 * 45), seconds(44))
    );
    assert!(found.goals.iter().all(|goal| goal.result.is_regular()));
    // The overhead of the last trial may exceed the limit.
    let found = run(seconds(7), seconds(8 * 44 + 1));
    assert_eq!((found.trials, found.spent), (44, seconds(8 * 45)));

    // Half of its duration is not enough for another trial.
    let found = run(seconds(7), Duration::from_millis(8 * 44_000 + 500));
    assert_eq!((found.trials, found.spent), (43, seconds(8 * 44)));
    let [ndr, pdr] = found.goals[..] else {
        panic!()
    };
    assert_eq!(
        (ndr.result, pdr.result),
        (GoalResult::Regular, GoalResult::Unfinished)
    );
    assert_near(pdr.lower.unwrap(), 8_164_277.6, 0.05);
    assert_eq!(pdr.upper, Some(TEN_GIG));
    assert!(pdr.conditional_throughput.is_some() && pdr.width.unwrap() > 0.4);

    let found = run(seconds(7), Duration::ZERO);
    assert_eq!(
        (found.trials, found.spent, found.loads.len()),
        (0, Duration::ZERO, 0)
    );
    assert!(
        found
            .goals
            .iter()
            .all(|goal| goal.result == GoalResult::Unfinished)
    );
}

#[test]
fn a_measurer_that_stops_leaves_what_is_known() {
    for patience in 0..45 {
        let mut device = Device {
            patience,
            ..Device::new(CAPACITY)
        };
        let found = mlr(&mut device, &plain(&[Goal::ndr(), Goal::pdr()])).unwrap();
        assert_eq!(found.trials as usize, patience.saturating_sub(1));
        let [ndr, pdr] = found.goals[..] else {
            panic!()
        };
        assert_eq!(ndr.result.is_regular(), patience >= 34);
        assert_eq!(pdr.result, GoalResult::Unfinished);
        assert_eq!(ndr.upper.is_some(), patience >= 12);
        assert_eq!(ndr.lower.is_some(), patience >= 23);
    }
}

/// Tester that cannot receive more than this load.
struct Deaf(Device, f64);

impl Measurer for Deaf {
    type Error = std::convert::Infallible;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
        let Some(trial) = self.0.measure(ask)? else {
            return Ok(None);
        };
        let outcome = if trial.through > self.1 {
            LoadOutcome::Unread
        } else {
            trial.outcome
        };
        let through = trial.through.min(self.1);
        Ok(Some(Trial {
            outcome,
            through,
            loss: 1.0 - through / ask.load,
            ..trial
        }))
    }
}

#[test]
fn what_the_tester_cannot_read_is_no_loss() {
    let plan = Mlr::between(9001.0, TEN_GIG);
    let found = mlr(&mut Deaf(Device::new(14e6), 3e6), &plan).unwrap();
    for goal in &found.goals {
        assert_eq!(goal.result, GoalResult::TesterLimit(3e6));
        assert_eq!((goal.lower, goal.upper), (Some(3e6), None));
    }
    // The device forwards less than the tester can receive.
    let found = mlr(&mut Deaf(Device::new(2e6), 3e6), &plan).unwrap();
    assert_eq!(found.tester_limit, None);
    assert!(found.goals.iter().all(|goal| goal.result.is_regular()));
}

/// Device that forwards only a share of its capacity under overload.
struct Collapsing(Device, f64);

impl Measurer for Collapsing {
    type Error = std::convert::Infallible;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
        let Some(trial) = self.0.measure(ask)? else {
            return Ok(None);
        };
        let too_much = ask.load > self.0.capacity;
        Ok(Some(if too_much {
            Trial::broke(ask.load, self.0.capacity * self.1)
        } else {
            trial
        }))
    }
}

#[test]
fn a_wrong_guess_is_left_in_steps_that_double_and_closed_in_halves() {
    let mut device = Collapsing(Device::new(1e5), 0.7);
    let plan = Mlr {
        warm_up: None,
        ..plain(&[Goal::ndr()])
    };
    mlr(
        &mut device,
        &Mlr {
            maximum: 1e6,
            ..plan.clone()
        },
    )
    .unwrap();
    let told = device.0.told(0.0);
    let guess = 70_000.0_f64;
    let widths: Vec<_> = told[1..]
        .iter()
        .map(|(load, _)| (load / guess).ln() / -0.995_f64.ln())
        .collect();
    let expected = [
        0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 127.0, 95.0, 79.0, 71.0, 75.0, 73.0, 72.0,
    ];
    assert_eq!(widths.len(), expected.len(), "{widths:?}");
    for (seen, expected) in widths.into_iter().zip(expected) {
        assert_near(seen, expected, 1e-6);
    }
    // Gaps of nine, five, three and two widths: the lower parts are four, two, two and one.
    let mut device = Collapsing(Device::new(65_000.0), 0.9);
    let maximum = 58_500.0 / 0.995_f64.powi(24);
    mlr(&mut device, &Mlr { maximum, ..plan }).unwrap();
    let widths: Vec<_> = device.0.told(0.0)[1..]
        .iter()
        .map(|(load, _)| ((load / 58_500.0).ln() / -0.995_f64.ln()).round())
        .collect();
    assert_eq!(widths, [0.0, 1.0, 3.0, 7.0, 15.0, 19.0, 21.0, 23.0, 22.0]);
}

#[test]
fn a_clock_that_is_slower_than_ours_costs_no_width() {
    for intermediate in [false, true] {
        let run = |share: f64| {
            let plan = Mlr {
                intermediate,
                ..Mlr::between(9001.0, TEN_GIG)
            };
            mlr(&mut Device::new(share * TEN_GIG), &plan).unwrap()
        };
        let found = run(0.999_85);
        let ndr = found.goals[0];
        assert_eq!(
            (ndr.lower, ndr.upper),
            (Some(0.9998 * TEN_GIG), Some(TEN_GIG))
        );
        assert_eq!(ndr.result, GoalResult::Regular);
        assert_eq!(found.goals[1].result, GoalResult::AtMaximum);
        // A loss above the clock tolerance is bracketed as usual.
        let ndr = run(0.999).goals[0];
        assert!(ndr.lower.unwrap() <= 0.999 * TEN_GIG && ndr.result.is_regular());
    }
}

#[test]
fn a_tester_whose_limit_varies_is_kept_below_it() {
    struct Wavering(Device, u32);
    impl Measurer for Wavering {
        type Error = std::convert::Infallible;
        fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
            self.1 += 1;
            self.0.ceiling = 12e6 * (1.0 + 0.001 * f64::from(self.1 * 7 % 11));
            self.0.measure(ask)
        }
    }
    let plan = Mlr::between(9001.0, TEN_GIG);
    let found = mlr(&mut Wavering(Device::new(14e6), 0), &plan).unwrap();
    for goal in &found.goals {
        let GoalResult::TesterLimit(limit) = goal.result else {
            panic!("{goal:?}");
        };
        assert!((12e6 * 0.99..=12e6 * 1.01).contains(&limit), "{limit}");
        assert_eq!((goal.lower, goal.upper), (Some(limit), None));
    }
    assert!(found.loads.len() <= 4, "{found:?}");
}

fn many() -> ProptestConfig {
    ProptestConfig {
        cases: 1000,
        ..ProptestConfig::default()
    }
}

fn goals() -> impl Strategy<Value = Vec<Goal>> {
    let loss = prop_oneof![Just(0.0), 0.0..0.1_f64];
    let exceed = prop_oneof![Just(0.5), Just(0.0), 0.0..0.9_f64];
    let goal = (loss, exceed, 1..20_u64, 0.001..0.1_f64).prop_map(
        |(loss_ratio, exceed_ratio, sum, width)| Goal {
            loss_ratio,
            exceed_ratio,
            duration_sum: seconds(sum),
            width,
            ..Goal::ndr()
        },
    );
    prop::collection::vec(goal, 1..4)
}

/// Number of full-length trials that decide a load if all have the same result.
fn decisive(goal: &Goal) -> u32 {
    let sum = goal.duration_sum.as_secs_f64();
    let high = (goal.exceed_ratio * sum).floor() as u32 + 1;
    let low = ((1.0 - goal.exceed_ratio) * sum - 1e-6).ceil() as u32;
    high.max(low).max(1)
}

/// Checks that the capacity is between the bounds, to the precision of whole frames.
fn assert_bracketed(found: &GoalFound, capacity: f64, plan: &Mlr) -> Result<(), TestCaseError> {
    let limit = capacity / (1.0 - found.goal.loss_ratio);
    let frame = 2.0;
    if let Some(lower) = found.lower {
        prop_assert!(lower <= limit + frame, "{:?} of {}", found, capacity);
        let carried = found.conditional_throughput.unwrap();
        prop_assert!(carried <= capacity + frame && carried <= lower);
        prop_assert!(carried >= lower * (1.0 - found.goal.loss_ratio) - frame);
    }
    if let Some(upper) = found.upper {
        prop_assert!(upper >= limit - frame, "{:?} of {}", found, capacity);
    }
    match found.result {
        GoalResult::Regular => {
            prop_assert!(found.width.unwrap() <= found.goal.width * (1.0 + 1e-9))
        }
        GoalResult::AtMaximum => prop_assert_eq!(found.lower, Some(plan.maximum)),
        GoalResult::AtMinimum => prop_assert_eq!(found.upper, Some(plan.minimum)),
        _ => prop_assert!(false, "{:?}", found),
    }
    Ok(())
}

/// A ceiling just below the share that counts as an accident is still found.
#[test]
fn a_testers_ceiling_below_what_is_no_accident() {
    for ceiling in [2_499_999.0, 2_489_210.0, 624_000.0, 100_000.0] {
        let mut device = Device {
            ceiling,
            ..Device::new(9e6)
        };
        let found = mlr(&mut device, &Mlr::between(9001.0, 1e7)).unwrap();
        let limits = found.goals.iter().map(|goal| goal.result);
        assert!(
            limits.eq([GoalResult::TesterLimit(ceiling); 2]),
            "{ceiling}"
        );
    }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn every_capacity_is_bracketed_with_few_loads(
        goals in goals(), maximum in 1e4..1e8f64, share in 0.0..1.2f64, intermediate: bool,
    ) {
        let mut device = Device::new(maximum * share);
        let plan = Mlr { intermediate, time_limit: seconds(100_000), goals, ..Mlr::between(1000.0, maximum) };
        let found = mlr(&mut device, &plan).unwrap();
        for goal in &found.goals {
            assert_bracketed(goal, device.capacity, &plan)?;
        }
        // The maximum, and two loads for each goal; each load takes as many trials as the most demanding goal needs. A
        // device that carries only a few frames may be a width away from the guess.
        let most = plan.goals.iter().map(decisive).max().unwrap();
        let loads = 1 + 2 * plan.goals.len();
        prop_assert!(found.loads.len() <= loads + plan.goals.len(), "{:?}", found);
        prop_assert!(found.trials <= loads as u32 * most + plan.goals.len() as u32, "{:?}", found);
        prop_assert_eq!(found.trials as usize + 1, device.log.len());
        prop_assert_eq!(found.loads.iter().map(|load| load.trials.len()).sum::<usize>() + 1, device.log.len());
        prop_assert!(device.log.iter().all(|row| row.load >= plan.minimum && row.load <= plan.maximum));
    }

    #[test]
    fn a_device_that_collapses_is_found_by_steps_that_double(
        goals in goals(), share in 0.01..1.0f64, rest in 0.0..0.9f64, intermediate: bool,
    ) {
        let capacity = 1e6 * share;
        let plan = Mlr { intermediate, time_limit: seconds(100_000), goals, ..Mlr::between(1000.0, 1e6) };
        let found = mlr(&mut Collapsing(Device::new(capacity), rest), &plan).unwrap();
        for goal in &found.goals {
            prop_assert_eq!(goal.result, GoalResult::Regular);
            prop_assert!(goal.lower.unwrap() <= capacity && goal.upper.unwrap() > capacity * 0.999_999);
            // Steps of 1, 2, 4 widths, and as many halvings.
            let widths = 1000_f64.ln() / -(1.0 - goal.goal.width).ln();
            let most: u32 = plan.goals.iter().map(decisive).max().unwrap();
            prop_assert!(goal.trials <= (2 * (widths.log2().ceil() as u32 + 1) + 3) * most, "{:?}", found);
        }
    }

    #[test]
    fn rare_loss_decides_nothing(
        maximum in 1e4..1e8f64, share in 0.01..1.2f64, every in 3usize..10, phase in 0usize..10, intermediate: bool,
    ) {
        let mut device = Device::new(maximum * share);
        device.noise = Box::new(move |trial, sent| if (trial + phase).is_multiple_of(every) { sent / 50 + 1 } else { 0 });
        let plan = Mlr { intermediate, ..Mlr::between(50.0, maximum) };
        let found = mlr(&mut device, &plan).unwrap();
        for goal in &found.goals {
            let upper = goal.upper.unwrap_or(f64::INFINITY);
            let limit = device.capacity / (1.0 - goal.goal.loss_ratio);
            prop_assert!(goal.lower.unwrap() <= limit + 2.0 && upper >= limit - 2.0, "{:?}", found);
            prop_assert!(matches!(goal.result, GoalResult::Regular | GoalResult::AtMaximum), "{:?}", found);
        }
    }

    #[test]
    fn the_testers_ceiling_is_told_from_the_device(
        share in 0.01..1.2f64, ceiling in 0.01..1.2f64, intermediate: bool,
    ) {
        let maximum = 1e7;
        let (capacity, ceiling) = ((maximum * share).floor(), (maximum * ceiling).floor());
        let mut device = Device { ceiling, ..Device::new(capacity) };
        let plan = Mlr { intermediate, ..Mlr::between(9001.0, maximum) };
        let found = mlr(&mut device, &plan).unwrap();
        prop_assert!(found.loads.iter().all(|load| load.load <= ceiling));
        for goal in &found.goals {
            let limit = capacity / (1.0 - goal.goal.loss_ratio);
            match goal.result {
                GoalResult::Regular => prop_assert!(limit <= ceiling + 2.0),
                GoalResult::TesterLimit(limit) => {
                    prop_assert_eq!((limit, goal.lower, goal.upper), (ceiling, Some(ceiling), None));
                    prop_assert!(ceiling < maximum && capacity / (1.0 - goal.goal.loss_ratio) >= ceiling - 2.0);
                }
                GoalResult::AtMaximum => prop_assert!(limit + 2.0 >= maximum && ceiling >= maximum),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn goals_together_need_fewer_trials_than_apart(
        share in 0.01..1.0f64, loss_ratio in 0.0..0.1f64, intermediate: bool,
    ) {
        let goals = [Goal::ndr(), Goal { loss_ratio, ..Goal::ndr() }];
        let trials = |goals: &[Goal]| {
            let mut device = Device::new(1e7 * share);
            let plan = Mlr { intermediate, goals: goals.to_vec(), ..Mlr::between(1000.0, 1e7) };
            mlr(&mut device, &plan).unwrap().trials
        };
        prop_assert!(trials(&goals) < trials(&goals[..1]) + trials(&goals[1..]));
    }

    #[test]
    fn classes_and_conditional_throughput_keep_to_their_laws(
        goal in goals().prop_map(|goals| goals[0]),
        trials in prop::collection::vec((1..4_u64, prop_oneof![Just(0.0), 0.0..0.2f64]), 0..40),
        final_duration in 1..4_u64, load in 1.0..1e8f64, n: prop::sample::Index, more in 0.0..1.0f64,
    ) {
        let goal = Goal { final_duration: seconds(final_duration), ..goal };
        let mut trials: Vec<_> = trials
            .into_iter()
            .map(|(length, loss_ratio)| MlrTrial { duration: seconds(length), loss_ratio })
            .collect();
        let class = |trials: &[MlrTrial]| Sums::sum_trials(&goal, trials).class(&goal);
        let carried = |trials: &[MlrTrial]| conditional_throughput(load, &goal, trials);
        let (before, throughput) = (class(&trials), carried(&trials));
        let sums = Sums::sum_trials(&goal, &trials);
        let all: Duration = trials.iter().map(|trial| trial.duration).sum();
        prop_assert_eq!(sums.full_low + sums.full_high + sums.short_low + sums.short_high, all);

        // A lower bound carries what it promises, and the throughput is at most the load.
        prop_assert!((0.0..=load).contains(&throughput));
        if before == Class::Lower {
            prop_assert!(throughput >= load * (1.0 - goal.loss_ratio) - 1e-6);
        }
        if sums.full_low + sums.full_high >= goal.duration_sum {
            prop_assert_ne!(before, Class::Undecided);
        }
        // The order of trials does not matter.
        trials.reverse();
        prop_assert_eq!((class(&trials), carried(&trials)), (before, throughput));
        // A trial without loss does not change a lower bound, and a lost trial does not change an upper bound.
        let with = |duration, loss_ratio| {
            let mut trials = trials.clone();
            trials.push(MlrTrial { duration, loss_ratio });
            class(&trials)
        };
        match before {
            Class::Lower => prop_assert_eq!(with(goal.final_duration, 0.0), Class::Lower),
            Class::Upper => prop_assert_eq!(with(goal.final_duration, 1.0), Class::Upper),
            Class::Undecided => {}
        }
        // More loss never improves the class or the throughput.
        if !trials.is_empty() {
            let n = n.index(trials.len());
            trials[n].loss_ratio = trials[n].loss_ratio.max(more);
            prop_assert!(carried(&trials) <= throughput);
            let rank = |class| match class { Class::Upper => 0, Class::Undecided => 1, Class::Lower => 2 };
            prop_assert!(rank(class(&trials)) <= rank(before), "{:?}", sums);
        }
    }
}

/// Device with a capacity that differs from trial to trial.
fn jittery(capacity: f64, noise: f64, mut seed: u64) -> Device {
    let mut device = Device::new(f64::INFINITY);
    device.noise = Box::new(move |_, sent| {
        let mut random = 0.0;
        for _ in 0..12 {
            // SplitMix64; the sum of twelve uniform numbers is nearly normal.
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            random += ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
        }
        let passed = capacity * (1.0 + noise * random);
        (sent as f64 - passed).max(0.0) as u64
    });
    device
}

#[test]
fn a_capacity_that_varies_is_found_by_its_median() {
    let (mut together, mut apart, mut all) = (0, 0, 0.0);
    for seed in 0..300 {
        let noise = [0.0005, 0.002, 0.005, 0.01][seed as usize % 4];
        let run = |goals: &[Goal]| {
            let plan = Mlr {
                goals: goals.to_vec(),
                ..Mlr::between(9001.0, TEN_GIG)
            };
            mlr(&mut jittery(CAPACITY, noise, seed * 1000), &plan).unwrap()
        };
        let found = run(&[Goal::ndr(), Goal::pdr()]);
        for goal in &found.goals {
            assert!(goal.result.is_regular(), "seed {seed}: {goal:?}");
            let share = goal.conditional_throughput.unwrap() / CAPACITY;
            assert_near(share, 1.0, 0.006 + 2.0 * noise);
            all += share;
        }
        together += found.trials;
        apart += run(&[Goal::ndr()]).trials + run(&[Goal::pdr()]).trials;
    }
    assert_near(all / 600.0, 0.9985, 0.001);
    assert!(
        together < apart * 4 / 5,
        "{together} together, {apart} apart"
    );
    // 46 on average; nearly half of those are the minimum for two goals with three loads.
    assert!(together < 300 * 52, "{together}");
}

/// Returns the same result for every load, for a limited number of trials.
struct Same(Trial, usize);

impl Measurer for Same {
    type Error = std::convert::Infallible;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
        assert!(ask.load.is_finite() && ask.duration.unwrap() > Duration::ZERO);
        self.1 = self.1.saturating_sub(1);
        Ok((self.1 > 0).then_some(self.0))
    }
}

#[test]
fn odd_measurers_and_odd_plans_end() {
    let trial = |outcome, offered, loss| Trial {
        outcome,
        offered,
        through: offered * (1.0 - loss),
        loss,
        overhead: Duration::ZERO,
    };
    use LoadOutcome::{Broke, Held, Unoffered, Unread};
    let trials = [
        trial(Held, 1e6, 0.0),
        trial(Broke, 1e6, 1.0),
        trial(Broke, 1e6, 1e-9),
        trial(Broke, 1e6, f64::NAN),
        trial(Unread, 1e6, 0.0),
        trial(Unoffered, 0.0, 0.0),
        trial(Unoffered, 999_999.0, 0.0),
        trial(Unoffered, -5.0, 0.0),
        trial(Unoffered, 5e9, 0.0),
        trial(Unoffered, f64::NAN, 0.0),
    ];
    let up_to = Mlr::between(1.0, 1e6);
    let one = |goal: Goal| Mlr {
        goals: vec![goal],
        ..up_to.clone()
    };
    let ndr = Goal::ndr();
    let plans = [
        up_to.clone(),
        Mlr {
            intermediate: false,
            ..up_to.clone()
        },
        Mlr {
            goals: Vec::new(),
            ..up_to.clone()
        },
        Mlr {
            goals: vec![ndr, ndr, ndr],
            ..up_to.clone()
        },
        Mlr {
            minimum: 1e6,
            ..up_to.clone()
        },
        Mlr {
            minimum: 2e6,
            ..up_to.clone()
        },
        Mlr {
            initial_duration: Some(Duration::ZERO),
            time_limit: seconds(1),
            ..up_to.clone()
        },
        Mlr {
            initial_duration: Some(seconds(100)),
            ..up_to.clone()
        },
        one(Goal { width: 0.0, ..ndr }),
        one(Goal { width: 1.0, ..ndr }),
        one(Goal { width: -1.0, ..ndr }),
        one(Goal {
            exceed_ratio: 1.0,
            ..ndr
        }),
        one(Goal {
            loss_ratio: 1.0,
            ..ndr
        }),
        one(Goal {
            duration_sum: Duration::ZERO,
            ..ndr
        }),
        one(Goal {
            final_duration: Duration::MAX,
            duration_sum: Duration::MAX,
            ..ndr
        }),
    ];
    for one in trials {
        for patience in [0, 1, 2, 13, 24, 100, usize::MAX] {
            for plan in &plans {
                let found = mlr(&mut Same(one, patience), plan).unwrap();
                assert_eq!(found.goals.len(), plan.goals.len());
                for goal in &found.goals {
                    let told =
                        goal.lower.is_some() || goal.upper.is_some() || goal.result.is_regular();
                    assert!(one.is_valid() || !told, "{found:?} {one:?} {plan:?}");
                    // A tester that can offer nothing is reported, too.
                    if !one.is_valid() && patience == usize::MAX && plan == &up_to {
                        let GoalResult::TesterLimit(limit) = goal.result else {
                            panic!("{found:?} {one:?}");
                        };
                        assert!(limit < 1.0, "{limit} {one:?}");
                    }
                }
            }
        }
    }
}
