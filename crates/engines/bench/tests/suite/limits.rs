//! Identification of the limit, and results that are therefore missing.

use std::time::Duration;

use wb_model::bench::{LbLimit, SuiteResult, SuiteTest};

use crate::{
    TEN_GIG, assert_near, completed,
    device::{Device, Mishap},
    of, plan,
};

const TIMES: &str = r#"
    [procedure.suite.times]
    trial = "10s"
    search = "10s"
    [procedure.suite.search]
    resolution = "0.1%"
    budget = "2h"
"#;

fn made(device: &mut Device, tests: &str) -> Vec<SuiteResult> {
    completed(device, &plan(&format!("tests = [{tests}]\n{TIMES}")))
}

fn first(device: &mut Device, tests: &str) -> SuiteResult {
    made(device, tests).remove(0)
}

/// Without a physical line rate, the maximum is the measured ceiling of the tester.
#[test]
fn a_maximum_of_our_own() {
    for test in ["\"throughput\"", "\"ndr\""] {
        let mut device = Device {
            line_bps: None,
            ceiling: 5e6,
            capacity: 9e6,
            ..Device::default()
        };
        let result = first(&mut device, test);
        assert_eq!(
            (result.limited_by, result.tester_limit, result.limit),
            (Some(LbLimit::Tester), true, Some(5e6)),
            "{test}"
        );
        // The capacity of the link is not a limit of the tester.
        let mut device = Device {
            capacity: f64::INFINITY,
            ..Device::default()
        };
        let result = first(&mut device, test);
        assert_eq!(
            (result.limited_by, result.tester_limit),
            (Some(LbLimit::Plan), false),
            "{test}"
        );
        assert!(
            result.notes.iter().any(|n| n.contains("line rate")),
            "{:?}",
            result.notes
        );
    }
}

#[test]
fn goals_that_the_tester_or_the_device_does_not_meet() {
    let mut device = Device {
        ceiling: 3e6,
        ..Device::default()
    };
    let result = first(&mut device, "\"ndr\"");
    assert_eq!(
        (result.limited_by, result.tester_limit),
        (Some(LbLimit::Tester), true)
    );
    assert!(result.limit.is_none_or(|limit| limit <= 3e6));
    let mut device = Device {
        capacity: 0.0,
        ..Device::default()
    };
    let result = first(&mut device, "\"ndr\"");
    assert_eq!(
        (result.limited_by, result.limit, result.confirmed),
        (Some(LbLimit::Device), None, false)
    );
}

/// The last load that the tester could offer is close to one at which the device fails.
#[test]
fn a_device_that_fails_not_far_above_the_testers_limit() {
    let mut device = Device {
        capacity: 0.53 * TEN_GIG,
        mishap: Box::new(|_, load| {
            let share = load / TEN_GIG;
            (share > 0.51 && share <= 0.53).then_some(Mishap::Unread(1_000))
        }),
        ..Device::default()
    };
    let result = first(&mut device, "\"throughput\"");
    assert_eq!(result.limited_by, Some(LbLimit::Device));
    assert!(
        result.notes.iter().any(|n| n.starts_with("between")),
        "{:?}",
        result.notes
    );
    assert!(result.limit.unwrap() <= 0.53 * TEN_GIG);
}

/// A load that never passes again is not confirmed.
#[test]
fn a_result_that_does_not_hold_again() {
    let mut device = Device {
        noise: Box::new(|trial, _| u64::from(trial > 11)),
        ..Device::default()
    };
    let text = TIMES.replace("search = \"10s\"", "search = \"1s\"");
    let result = completed(
        &mut device,
        &plan(&format!("tests = [\"throughput\"]\n{text}")),
    )
    .remove(0);
    assert!(!result.confirmed, "{result:?}");
}

#[test]
fn what_cannot_be_overloaded_has_no_recovery_and_no_burst_that_is_too_long() {
    let tests = "\"throughput\", \"recovery\", \"b2b\"";
    let why = |results: &[SuiteResult], test| of(results, test).not_measured.clone().unwrap();
    // A device that carries the line rate.
    let mut device = Device {
        capacity: f64::INFINITY,
        ..Device::default()
    };
    let results = made(&mut device, tests);
    assert!(why(&results, SuiteTest::Recovery).starts_with("not applicable"));
    assert!(why(&results, SuiteTest::B2b).contains("does not exceed the throughput"));
    // A tester that cannot receive a higher load.
    let mut device = Device {
        capacity: 14e6,
        mishap: Box::new(|_, load| (load > 8e6).then_some(Mishap::Unread(1_000))),
        ..Device::default()
    };
    let results = made(&mut device, tests);
    assert_eq!(results[0].limited_by, Some(LbLimit::Tester));
    assert!(why(&results, SuiteTest::Recovery).ends_with("is unknown"));
    assert!(why(&results, SuiteTest::B2b).contains("the tester limited the throughput"));
}

#[test]
fn the_longest_burst_that_was_tried_is_no_result() {
    let text = "max = \"10mpps\"\ntests = [\"b2b\"]\n[procedure.suite.b2b]\nsearches = 1\nlongest = \"100us\"\n";
    let mut device = Device {
        capacity: 10e6,
        buffer: 1000,
        ..Device::default()
    };
    let result = completed(&mut device, &plan(text)).pop().unwrap();
    assert!(!result.confirmed);
    assert!(
        result.notes[0].contains("the result is a lower bound"),
        "{:?}",
        result.notes
    );
}

/// Loss close to the end of the phase may continue after it.
#[test]
fn a_recovery_at_the_very_end_is_none() {
    for (ms, recovered) in [(9_800, true), (9_950, false)] {
        let mut device = Device {
            recovery: Duration::from_millis(ms),
            ..Device::default()
        };
        let results = made(&mut device, "\"throughput\", \"recovery\"");
        let found = of(&results, SuiteTest::Recovery).recovery.as_ref().unwrap();
        let seconds = found.seconds[0];
        assert_eq!(seconds.is_some(), recovered, "{seconds:?}");
        if let Some(seconds) = seconds {
            assert_near(seconds, 9.8, 1e-3);
        }
    }
}
