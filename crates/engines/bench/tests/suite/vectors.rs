//! Section 16 of the trial specification, through the suites: plan in, results out. Vectors of the searches alone
//! (16.6, 16.8, 16.9, 16.12) are tested with the searches.

use std::time::Duration;

use wb_model::bench::{LbLimit, SuiteTest, TrialOutcome, TrialPurpose};

use crate::{
    Device, TEN_GIG, assert_near, assert_told, completed,
    device::{Mishap, Outage},
    of, plan, searched,
};

/// Trials of 60 s and a resolution of 0.1 % of line rate (RFC 2544 section 26.1).
const THROUGHPUT: &str = r#"
    tests = ["throughput"]
    [procedure.suite.times]
    trial = "60s"
    search = "60s"
    [procedure.suite.search]
    resolution = "0.1%"
    budget = "2h"
"#;

/// Vector 16.2.
#[test]
fn throughput_by_halving() {
    let results = completed(&mut Device::default(), &plan(THROUGHPUT));
    let result = of(&results, SuiteTest::Throughput);
    let expected = [
        (100.0, 405_449_782, 45.41038, "fail"),
        (50.0, 0, 0.0, "pass"),
        (75.0, 182_235_497, 27.21383, "fail"),
        (62.5, 70_628_354, 12.65660, "fail"),
        (56.25, 14_824_782, 2.95178, "fail"),
        (53.125, 0, 0.0, "pass"),
        (54.6875, 873_890, 0.17897, "fail"),
        (53.90625, 0, 0.0, "pass"),
        (54.296_875, 0, 0.0, "pass"),
        (54.492_187_5, 0, 0.0, "pass"),
        (54.589_843_75, 1_959, 0.00040, "fail"),
    ];
    assert_eq!(searched(result).count(), expected.len());
    for (trial, (percent, lost, loss, outcome)) in searched(result).zip(expected) {
        assert_near(trial.intended_pct.unwrap(), percent, 1e-9);
        assert_near(trial.intended, TEN_GIG * percent / 100.0, 1e-6);
        assert_eq!(
            (trial.lost, trial.outcome.name()),
            (lost, outcome),
            "at {percent} %"
        );
        assert_near(trial.loss_ratio * 100.0, loss, 5e-6);
        assert_eq!(trial.duration_s, 60.0);
        assert_eq!(
            (trial.unsent, trial.nic_drops, trial.dup, trial.ooo),
            (0, 0, 0, 0)
        );
    }
    assert_eq!(result.throughput_fps.unwrap().floor(), 8_108_956.0);
    assert_eq!(result.limit, result.throughput_fps);
    assert_near(result.throughput_l1_bps.unwrap() / 1e6, 5449.22, 5e-3);
    assert_near(result.throughput_l2_bps.unwrap() / 1e6, 4151.79, 5e-3);
    assert_near(result.beyond.unwrap() / TEN_GIG, 0.545_898_437_5, 1e-12);
    assert_near(result.theoretical_fps.unwrap(), TEN_GIG, 1e-6);
    assert_eq!(
        (result.limited_by, result.tester_limit, result.confirmed),
        (Some(LbLimit::Device), false, true)
    );
    assert_eq!((result.trials, result.trial_seconds), (11, 660.0));
    assert!(result.notes.is_empty(), "{:?}", result.notes);
}

/// Vector 16.3.
#[test]
fn partial_drop_rate() {
    let plan = plan(&THROUGHPUT.replace("budget", "loss = \"0.5%\"\nbudget"));
    let results = completed(&mut Device::default(), &plan);
    let result = of(&results, SuiteTest::Throughput);
    assert_told(
        result,
        &[
            (100.0, "F"),
            (50.0, "P"),
            (75.0, "F"),
            (62.5, "F"),
            (56.25, "F"),
            (53.125, "P"),
            (54.6875, "P"),
            (55.468_75, "F"),
            (55.078_125, "F"),
            (54.882_812_5, "F"),
            (54.785_156_25, "P"),
        ],
    );
    let losses = [
        45.41038, 0.0, 27.21383, 12.65660, 2.95178, 0.0, 0.17897, 1.58490, 0.88692, 0.53421,
        0.35691,
    ];
    for (trial, loss) in searched(result).zip(losses) {
        assert_near(trial.loss_ratio * 100.0, loss, 5e-6);
    }
    assert_eq!(result.throughput_fps.unwrap().floor(), 8_152_553.0);
    assert_eq!(result.loss_goal, Some(0.005));
}

/// In every third trial 10 frames are lost below capacity; `repeats` is the number of repetitions of a failed trial.
fn verified(repeats: u32) -> wb_model::bench::SuiteResult {
    let mut device = Device {
        noise: Box::new(|trial, _| if trial % 3 == 0 { 10 } else { 0 }),
        ..Device::default()
    };
    let plan = plan(&THROUGHPUT.replace("budget", &format!("repeats = {repeats}\nbudget")));
    let results = completed(&mut device, &plan);
    assert_eq!(device.trials, results[0].trials);
    results.into_iter().next().unwrap()
}

/// Vector 16.4, r = 0.
#[test]
fn chance_decides_without_loss_verification() {
    let result = verified(0);
    assert_told(
        &result,
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
    assert_near(result.limit.unwrap() / TEN_GIG, 0.526_367_187_5, 1e-12);
}

/// Vector 16.4, r = 1.
#[test]
fn loss_verification_outlives_chance() {
    let result = verified(1);
    assert_told(
        &result,
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
    assert_eq!(result.trials, 19);
    assert_near(result.limit.unwrap() / TEN_GIG, 0.544_921_875, 1e-12);
}

/// Vector 16.14.
#[test]
fn loss_by_load() {
    let mut device = Device {
        capacity: TEN_GIG * 0.75,
        ..Device::default()
    };
    let plan = plan("tests = [\"loss\"]\n[procedure.suite.times]\ntrial = \"60s\"\n");
    let results = completed(&mut device, &plan);
    let curve = &of(&results, SuiteTest::Loss).curve;
    let expected = [
        (100.0, 25.0),
        (90.0, 16.667),
        (80.0, 6.25),
        (70.0, 0.0),
        (60.0, 0.0),
    ];
    assert_eq!(curve.len(), expected.len(), "{curve:?}");
    for (row, (load, loss)) in curve.iter().zip(expected) {
        assert_near(row.load_pct, load, 1e-9);
        assert_near(row.loss_pct.unwrap(), loss, 5e-4);
        assert_near(row.offered, TEN_GIG * load / 100.0, 1e-6);
    }
}

/// Vector 16.18.
#[test]
fn the_testers_limit_is_no_throughput() {
    // A disturbance in one of the two ceiling trials has no effect.
    for hindered in [vec![], vec![0.5, 1.0], vec![1.0, 0.5]] {
        the_tester_alone(hindered);
    }
}

#[track_caller]
fn the_tester_alone(hindered: Vec<f64>) {
    let mut device = Device {
        ceiling: 12e6,
        capacity: 14e6,
        hindered,
        ..Device::default()
    };
    let results = completed(&mut device, &plan(THROUGHPUT));
    let result = of(&results, SuiteTest::Throughput);
    assert_eq!(
        (result.limited_by, result.tester_limit),
        (Some(LbLimit::Tester), true)
    );
    assert_eq!(result.limit, Some(12e6));
    assert_eq!(result.tester_ceiling_fps, Some(12e6));
    // No trial failed, and unsent frames are not counted as loss.
    for trial in searched(result) {
        assert_eq!((trial.lost, trial.loss_ratio), (0, 0.0), "{trial:?}");
        assert_ne!(trial.outcome.name(), "fail");
    }
}

/// Vector 16.5.
#[test]
fn the_longest_burst() {
    let mut device = Device {
        capacity: 10e6,
        buffer: 1000,
        ..Device::default()
    };
    // The throughput of the vector is exact, and bursts of up to 65,536 frames are tried.
    let text = r#"
        max = "10mpps"
        tests = ["b2b"]
        [procedure.suite.b2b]
        searches = 1
        longest = "4404.02us"
    "#;
    let results = completed(&mut device, &plan(text));
    assert_eq!(of(&results, SuiteTest::Throughput).limit, Some(10e6));
    let result = of(&results, SuiteTest::B2b);
    let told: Vec<_> = searched(result)
        .map(|t| (t.intended as u64, t.outcome.name() == "pass"))
        .collect();
    let expected = [
        (32768, false),
        (16384, false),
        (8192, false),
        (4096, false),
        (2048, true),
        (3072, false),
        (2560, true),
        (2816, true),
        (2944, true),
        (3008, true),
        (3040, true),
        (3056, false),
        (3048, true),
        (3052, false),
        (3050, false),
        (3049, false),
    ];
    assert_eq!(told, expected);
    let bursts = result.bursts.as_ref().unwrap();
    assert_eq!((bursts.average, bursts.longest), (3048.0, 65_536));
    assert_near(bursts.implied_s * 1e6, 204.8256, 1e-4);
    assert_near(bursts.corrected_s.unwrap() * 1e6, 67.1828, 1e-4);
    assert_near(bursts.buffer_frames.unwrap(), 999.74, 0.01);
}

/// Vector 16.7. The suite takes intermediate targets, which dismiss the maximum after one trial: the same bounds by
/// fewer trials.
#[test]
fn ndr_and_pdr() {
    let text = "tests = [\"ndr\"]\n[procedure.suite.times]\nsearch = \"1s\"\n";
    let results = completed(&mut Device::default(), &plan(text));
    assert_eq!(results.len(), 2);
    // The ceiling trial does not belong to a goal.
    let logged = searched(&results[0]).count() as u32;
    assert_eq!(results[0].trials + results[1].trials, logged);
    assert!(results[0].trials < logged);
    for (result, goal, lower_class) in
        [(&results[0], "ndr", "lower"), (&results[1], "pdr", "upper")]
    {
        assert_eq!(result.goal.as_deref(), Some(goal));
        let mlr = result.mlr.as_ref().unwrap();
        let lower = mlr.relevant_lower_bound.unwrap();
        let upper = mlr.relevant_upper_bound.unwrap();
        assert_eq!((result.limit, result.beyond), (Some(lower), Some(upper)));
        assert!(mlr.relative_width.unwrap() <= 0.005 * (1.0 + 1e-9));
        let share = 1.0 - result.loss_goal.unwrap();
        assert!(lower <= 8_123_456.5 / share && upper > 8_123_456.0 / share);
        assert_near(
            mlr.conditional_throughput.unwrap().min(8_123_456.0),
            lower.min(8_123_456.0),
            1.0,
        );
        let trials: Vec<_> = mlr.loads.iter().map(|load| load.trials).collect();
        assert_eq!(trials, [11, 11, 11, 1]);
        assert_eq!(mlr.loads[0].class, "lower");
        assert_eq!(mlr.loads[2].class, "upper");
        assert_eq!(mlr.loads[1].class == "lower", lower_class == "upper");
        assert_eq!(
            (result.limited_by, result.confirmed),
            (Some(LbLimit::Device), true)
        );
    }
}

/// Vector 16.9 in this engine's own steps: from 1,000 upwards, guided by the forwarded rate.
#[test]
fn connections_per_second() {
    let results = completed(&mut Device::default(), &crate::mishaps::connections("cps"));
    let limit = results[0].limit.unwrap();
    assert!((37_300.0..=37_500.0).contains(&limit), "{limit}");
    assert_eq!(results[0].limited_by, Some(LbLimit::Device));
    let results = completed(&mut Device::default(), &crate::mishaps::connections("cc"));
    let limit = results[0].limit.unwrap();
    assert!((99_000.0..=100_000.0).contains(&limit), "{limit}");
    let results = completed(&mut Device::default(), &crate::mishaps::connections("rps"));
    let limit = results[0].limit.unwrap();
    assert!((248_000.0..=250_000.0).contains(&limit), "{limit}");
}

/// Vector 16.13, on a device that lets CIR and EIR pass.
#[test]
fn services() {
    for (eir, loads) in [
        (50.0, &[25.0, 50.0, 75.0, 100.0, 150.0, 162.5][..]),
        (10.0, &[25.0, 50.0, 75.0, 100.0, 110.0, 135.0]),
        (0.0, &[25.0, 50.0, 75.0, 100.0, 125.0]),
    ] {
        let told = match eir {
            0.0 => String::new(),
            eir => format!("eir = \"{eir}mbps-l2\"\n"),
        };
        let text = format!(
            "tests = [\"y1564\"]\n[[procedure.suite.service]]\ncir = \"100mbps-l2\"\n{told}performance = \"60s\"\n"
        );
        let mut device = Device {
            capacity: (100.0 + eir) * 1e6 / 512.0,
            ..Device::default()
        };
        let results = completed(&mut device, &plan(&text));
        let steps = &results[0].steps;
        let (last, steps) = steps.split_last().unwrap();
        let offered: Vec<_> = steps.iter().map(|step| step.offered_bps / 1e6).collect();
        assert_eq!(offered.len(), loads.len());
        for (step, load) in steps.iter().zip(loads) {
            assert_near(step.offered_bps / 1e6, *load, 1e-6);
            assert!(step.passed, "{step:?}");
            assert!(step.received_bps <= (100.0 + eir) * 1e6 + 1.0);
            assert_eq!(step.delay_max_ns, Some(20_000));
        }
        assert!(last.passed && last.step == "performance", "{last:?}");
        // A device without policing forwards too much; one below CIR fails its steps.
        for (capacity, bad) in [(1e9, "policing"), (90e6 / 512.0, "CIR 100 %")] {
            let mut device = Device {
                capacity,
                ..Device::default()
            };
            let results = completed(&mut device, &plan(&text));
            let step = results[0].steps.iter().find(|step| step.step == bad);
            assert!(!step.unwrap().passed, "{step:?}");
            assert!(!results[0].confirmed);
        }
    }
}

/// Vector 16.15; with several flows, each has separate sequence numbers.
#[test]
fn recovery_from_an_overload() {
    for flows in [1, 16] {
        let mut device = Device {
            recovery: Duration::from_millis(350),
            ..Device::default()
        };
        let text = THROUGHPUT.replace("[\"throughput\"]", "[\"throughput\", \"recovery\"]");
        let mut plan = plan(&text);
        plan.traffic[0].streams[0].flows = Some(flows);
        let results = completed(&mut device, &plan);
        let found = of(&results, SuiteTest::Recovery).recovery.as_ref().unwrap();
        assert_near(found.overload_fps, 8_919_851.6, 1.0);
        assert_near(found.half_fps, 4_459_925.8, 0.5);
        assert_eq!(found.seconds.len(), 5);
        let frame = f64::from(flows) / found.half_fps;
        for seconds in &found.seconds {
            assert_near(seconds.unwrap(), 0.35, frame);
        }
        assert_near(found.average_s.unwrap(), 0.35, frame);
    }
}

/// Unsent frames have no number, so the sent ones leave later than their numbers show.
#[test]
fn no_recovery_of_a_half_that_was_not_sent() {
    let text = THROUGHPUT.replace("[\"throughput\"]", "[\"throughput\", \"recovery\"]");
    for share in [0.9, 0.999_999] {
        let mut device = Device {
            recovery: Duration::from_millis(350),
            mishap: Box::new(move |_, load| (load < 5e6).then_some(Mishap::Sent(share))),
            ..Device::default()
        };
        let results = completed(&mut device, &plan(&text));
        let result = of(&results, SuiteTest::Recovery);
        assert_eq!(result.recovery.as_ref().unwrap().seconds, []);
        assert!(result.not_measured.is_some());
        let log = &result.trial_log;
        assert!(
            log.iter().all(|t| t.outcome == TrialOutcome::NotOffered),
            "{share}"
        );
    }
}

const RESET: &str = r#"
    tests = ["reset"]
    ceiling = false
    max = "1gbps"
    [procedure.suite.reset]
    trigger = "reboot it"
    load = "10%"
"#;

/// Vector 16.16.
#[test]
fn reset_by_loss_and_by_stamps() {
    // By loss 10 s, rounded down to whole frames; the first frame afterwards is delayed by an additional 1.88 us.
    let reset = |takes_link| {
        let mut device = Device {
            line_bps: Some(1_000_000_000),
            outage: Some(Outage {
                command: "reboot it",
                length: Duration::from_secs(10),
                wake_ns: 1_880,
                takes_link,
                ends: true,
            }),
            ..Device::default()
        };
        of(&completed(&mut device, &plan(RESET)), SuiteTest::Reset).clone()
    };
    let result = reset(false);
    let log = &result.trial_log;
    assert_eq!((log.len(), log[0].purpose), (1, TrialPurpose::Measure));
    assert_eq!(log[0].lost, 1_488_095);
    let found = result.reset.unwrap();
    assert_near(found.offered_fps, 148_809.5, 0.05);
    assert_near(found.by_loss_s.unwrap(), 10.0, 5e-4);
    assert_near(found.by_stamps_s.unwrap(), 10.000_007, 1e-7);
    assert_eq!((found.lost, found.not_again_s), (1_488_095, None));
    // Unsent frames were not lost: only the timestamps remain.
    let result = reset(true);
    assert_eq!(result.trial_log[0].lost, 0);
    let found = result.reset.unwrap();
    assert_eq!(found.by_loss_s, None);
    assert_near(found.by_stamps_s.unwrap(), 10.000_007, 1e-7);
}

/// Loss in both directions is not counted as two successive outages.
#[test]
fn a_reset_of_both_directions() {
    let mut device = Device {
        outage: Some(Outage {
            command: "reboot it",
            length: Duration::from_secs(3),
            wake_ns: 0,
            takes_link: false,
            ends: true,
        }),
        ..Device::default()
    };
    let mut plan = plan(RESET);
    plan.traffic[0].bidir = true;
    let results = completed(&mut device, &plan);
    let result = of(&results, SuiteTest::Reset);
    let found = result.reset.as_ref().unwrap();
    assert_eq!(result.trial_log[0].lost, 2 * found.lost);
    assert_near(found.by_loss_s.unwrap(), 3.0, 1e-4);
}

/// If a device does not recover, the waiting time is not reported as its outage.
#[test]
fn a_reset_without_an_end() {
    for takes_link in [false, true] {
        let mut device = Device {
            outage: Some(Outage {
                command: "reboot it",
                length: Duration::from_secs(30),
                wake_ns: 0,
                takes_link,
                ends: false,
            }),
            ..Device::default()
        };
        let results = completed(&mut device, &plan(RESET));
        let result = of(&results, SuiteTest::Reset);
        let found = result.reset.as_ref().unwrap();
        assert_eq!((found.by_loss_s, found.by_stamps_s), (None, None));
        assert_near(found.not_again_s.unwrap(), 30.0, 1e-6);
        assert!(!result.confirmed);
    }
}

/// A step that the tester could not offer does not violate a guarantee.
#[test]
fn a_step_that_could_not_be_made() {
    let text = "tests = [\"y1564\"]\n[[procedure.suite.service]]\ncir = \"100mbps-l2\"\n";
    let mut device = Device {
        capacity: 100e6 / 512.0,
        mishap: Box::new(|_, load| (load > 100_000.0).then_some(Mishap::Sent(0.5))),
        ..Device::default()
    };
    let result = completed(&mut device, &plan(text)).remove(0);
    let said: Vec<_> = result.steps.iter().map(|s| (s.passed, s.void)).collect();
    let (good, void) = ((true, false), (false, true));
    assert_eq!(said, [good, good, void, void, void, void]);
    assert!(!result.confirmed);
}

/// Frames missing at the very end of the phase leave no gap before a later frame.
#[test]
fn no_recovery_for_a_device_that_is_silent_at_the_end() {
    let text = THROUGHPUT.replace("[\"throughput\"]", "[\"throughput\", \"recovery\"]");
    let mut device = Device {
        recovery: Duration::from_millis(350),
        silent_end: Duration::from_secs(2),
        ..Device::default()
    };
    let results = completed(&mut device, &plan(&text));
    let found = of(&results, SuiteTest::Recovery).recovery.as_ref().unwrap();
    assert_eq!(found.seconds, [None; 5]);
    assert_eq!(found.average_s, None);
}

/// A failed trigger did not reset the device.
#[test]
fn a_trigger_that_misfires() {
    let mut device = Device {
        misfire: Some("it ended with exit status: 1"),
        ..Device::default()
    };
    let results = completed(&mut device, &plan(RESET));
    let result = of(&results, SuiteTest::Reset);
    let why = "trigger: it ended with exit status: 1";
    assert_eq!(result.not_measured.as_deref(), Some(why));
    assert!(!result.confirmed);
    // No criterion passes with a time of 0 s.
    assert_eq!(result.reset, None);
}

/// A silence caused by the tester is not attributed to the reset.
#[test]
fn a_reset_beside_a_tester_that_is_always_late() {
    let mut device = Device {
        outage: Some(Outage {
            command: "reboot it",
            length: Duration::from_millis(10),
            wake_ns: 0,
            takes_link: false,
            ends: true,
        }),
        mishap: Box::new(|_, load| (load < 200_000.0).then_some(Mishap::GivenUp(40_000))),
        ..Device::default()
    };
    let results = completed(&mut device, &plan(RESET));
    let result = of(&results, SuiteTest::Reset);
    let why = result.not_measured.as_deref().unwrap();
    assert!(why.starts_with("the tester was late"), "{why}");
    assert_eq!(result.reset, None);
}

/// Frames dropped at the tester's port do not count as outage.
#[test]
fn a_reset_without_what_our_port_dropped() {
    let mut device = Device {
        line_bps: Some(1_000_000_000),
        outage: Some(Outage {
            command: "reboot it",
            length: Duration::from_secs(10),
            wake_ns: 0,
            takes_link: false,
            ends: true,
        }),
        mishap: Box::new(|_, _| Some(Mishap::Refused(5_000))),
        ..Device::default()
    };
    let results = completed(&mut device, &plan(RESET));
    let result = of(&results, SuiteTest::Reset);
    assert_eq!(result.trial_log[0].lost, 1_488_095 + 5_000);
    assert_eq!(result.reset.as_ref().unwrap().lost, 1_488_095);
}
