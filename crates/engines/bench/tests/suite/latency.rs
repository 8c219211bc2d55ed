//! Delay at shares of the throughput, and void trials.

use std::time::Duration;

use wb_model::{
    bench::{SuiteResult, SuiteTest},
    units::Span,
};

use crate::{
    assert_near, completed,
    device::{Device, Mishap},
    of, plan,
};

const LATENCY: &str = r#"
    tests = ["throughput", "latency"]
    [procedure.suite.latency]
    duration = "4s"
    after = "1s"
    repetitions = 3
    loads = ["50%", "90%"]
"#;

/// Trials before the first stream.
fn before() -> u32 {
    completed(&mut Device::default(), &plan(LATENCY))[0].trials
}

fn latency(device: &mut Device) -> SuiteResult {
    of(&completed(device, &plan(LATENCY)), SuiteTest::Latency).clone()
}

#[test]
fn each_load_is_a_share_of_the_throughput() {
    let mut device = Device::default();
    let results = completed(&mut device, &plan(LATENCY));
    let throughput = results[0].limit.unwrap();
    let result = of(&results, SuiteTest::Latency);
    let rows = &result.latency;
    assert_eq!(rows.len(), 2);
    for (row, share) in rows.iter().zip([0.5, 0.9]) {
        assert_near(row.offered, throughput * share, 1e-3);
        assert_eq!((row.load, row.repetitions), (share, 3));
        assert_eq!((row.typical_ns, row.worst_ns), (Some(20e3), Some(20e3)));
        assert_eq!(row.stamp_source, "nic");
        assert_eq!(row.p50_spread, Some(0.0));
    }
    assert!(result.confirmed);
    // The warm-up uses the same load, and the measurement covers the rest of the stream.
    for plan in &device.plans[device.plans.len() - 6..] {
        let job = &plan.traffic[0];
        assert_eq!((job.hold.0, job.hold_load), (Duration::from_secs(1), 1.0));
        assert_eq!(job.duration, Some(Span::from_secs(3)));
    }
}

#[test]
fn a_stream_that_was_not_offered_is_in_no_median() {
    let first = before() + 1;
    // It is tried twice.
    let mut device = Device {
        mishap: Box::new(move |trial, _| {
            (first..first + 2)
                .contains(&trial)
                .then_some(Mishap::Sent(0.5))
        }),
        ..Device::default()
    };
    let result = latency(&mut device);
    assert_eq!(result.latency[0].repetitions, 2);
    assert_eq!(result.latency[1].repetitions, 3);
    assert!(
        result.notes[0].starts_with("50 % of the throughput: only"),
        "{:?}",
        result.notes
    );
    let mut device = Device {
        mishap: Box::new(move |trial, _| (trial >= first).then_some(Mishap::Sent(0.5))),
        ..Device::default()
    };
    let result = latency(&mut device);
    assert!(result.latency.is_empty() && !result.confirmed);
    assert!(result.not_measured.is_some());
}
