//! Section 16 of the specification of trials, through the suites: plan in, results out. What concerns the searches
//! alone (16.6, 16.8, 16.9, 16.12) is tested where they are.

use wb_model::bench::{LbLimit, SuiteTest};

use crate::{Device, TEN_GIG, assert_near, assert_told, completed, of, plan, searched};

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
        (LbLimit::Device, false, true)
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

/// In every third trial 10 frames are lost below capacity; a trial that fails is made again so often.
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
    let mut device = Device {
        ceiling: 12e6,
        capacity: 14e6,
        ..Device::default()
    };
    let results = completed(&mut device, &plan(THROUGHPUT));
    let result = of(&results, SuiteTest::Throughput);
    assert_eq!(
        (result.limited_by, result.tester_limit),
        (LbLimit::Tester, true)
    );
    assert_eq!(result.limit, Some(12e6));
    assert_eq!(result.tester_ceiling_fps, Some(12e6));
    let note = "tester limit at 12000000 fps: the device carried all that the tester could offer";
    assert_eq!(result.notes, [note]);
    // Nothing failed, and nothing that was not sent is loss.
    for trial in searched(result) {
        assert_eq!((trial.lost, trial.loss_ratio), (0, 0.0), "{trial:?}");
        assert_ne!(trial.outcome.name(), "fail");
    }
}
