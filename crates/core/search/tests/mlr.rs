//! MLRsearch: the vectors, random devices, and the tester's own limit.

mod support;

use std::time::Duration;

use support::{Device, TEN_GIG};
use wb_search::{
    Class, Goal, GoalResult, Mlr, MlrFound, MlrTrial, Purpose, Sums, conditional_throughput, mlr,
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

/// Without intermediate targets: every load is decided.
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
        // The draft's worked example has L in the last column of these two; its formulas, which are followed, give U.
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
            .map(|goal| match Sums::of(goal, &trials).class(goal) {
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
    // Trials lose which have this rest when their number is divided by that.
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
        // One less would not do.
        let goal = Goal::ndr();
        let less = Sums::of(&goal, &seen.trials[1..]).class(&goal);
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
    // The load that was not offered is none of the device's.
    assert_eq!(found.loads.len(), 1);
    assert_eq!(found.trials, 11);
}
