//! IPv4 and IPv6 in one set of streams (RFC 5180).

use wb_model::{
    Plan,
    bench::{Family, FamilyFrames, LbLimit, SuiteResult, SuiteTest},
};

use crate::{assert_near, completed, device::Device, plan_of};

/// Streams of both versions; two of IPv4, with rates of one to three.
fn plan(suite: &str) -> Plan {
    plan_of(&format!(
        r#"
        [[port]]
        name = "tx"
        locator = "eth8"
        [[port]]
        name = "rx"
        locator = "eth9"
        [[traffic]]
        tx = "tx"
        rx = "rx"
        [[traffic.stream]]
        rate = "100pps"
        [[traffic.stream]]
        rate = "300pps"
        dport = "9"
        [[traffic.stream]]
        ipv6 = true
        rate = "50pps"
        [procedure.suite]
        sizes = ["128"]
        {suite}
        "#
    ))
}

const MIXES: &str = r#"
    tests = ["throughput", "loss"]
    ipv6_shares = ["0", "10%", "50%", "90%"]
    max = "4mpps"
    [procedure.suite.search]
    resolution = "0.1%"
"#;

fn rates(plan: &Plan) -> Vec<(bool, f64)> {
    let streams = plan.traffic[0].streams.iter();
    streams
        .map(|s| (s.is_ipv6(), s.frames_per_second(None).unwrap().as_f64()))
        .collect()
}

fn of_test(results: &[SuiteResult], test: SuiteTest) -> Vec<&SuiteResult> {
    results.iter().filter(|r| r.test == test).collect()
}

#[test]
fn each_share_is_a_run_of_its_own() {
    let mut device = Device {
        capacity: 3e6,
        ..Device::default()
    };
    let results = completed(&mut device, &plan(MIXES));
    let found = of_test(&results, SuiteTest::Throughput);
    let named: Vec<_> = found
        .iter()
        .map(|r| (r.size.as_str(), r.ipv6_share))
        .collect();
    let expected = [
        ("128 0% IPv6", Some(0.0)),
        ("128 10% IPv6", Some(0.1)),
        ("128 50% IPv6", Some(0.5)),
        ("128 90% IPv6", Some(0.9)),
    ];
    assert_eq!(named, expected);
    for (result, (_, share)) in found.iter().zip(expected) {
        let share = share.unwrap();
        let limit = result.limit.unwrap();
        assert!((2.99e6..=3e6).contains(&limit), "{limit}");
        assert_eq!(result.trial_log[0].size, result.size);
        // For a single version the result itself is enough.
        if share == 0.0 {
            assert_eq!(result.families, []);
            continue;
        }
        let [v4, v6] = result.families.as_slice() else {
            panic!("{result:?}")
        };
        assert_eq!((v4.family, v6.family), (Family::Ipv4, Family::Ipv6));
        assert_near(v6.offered_fps, limit * share, 1.0);
        assert_near(v4.offered_fps, limit * (1.0 - share), 1.0);
        assert_eq!((v4.lost, v6.lost), (0, 0));
        assert_eq!(v4.forwarded_fps, v4.offered_fps);
    }
    // Streams of one version keep the ratio of their rates.
    let of_trials = device.plans.iter().filter(|plan| rates_known(plan));
    for plan in of_trials {
        let rates = rates(plan);
        let whole: f64 = rates.iter().map(|(_, rate)| rate).sum();
        let v4: Vec<f64> = rates.iter().filter(|r| !r.0).map(|r| r.1).collect();
        let share = 1.0 - v4.iter().sum::<f64>() / whole;
        let known = [0.0, 0.1, 0.5, 0.9]
            .iter()
            .any(|s| (s - share).abs() < 1e-6);
        assert!(known && v4.len() == 2, "{rates:?}");
        assert_near(v4[1] / v4[0], 3.0, 1e-6);
    }
    let alone = device.plans.iter().filter(|plan| rates_known(plan));
    assert!(alone.clone().any(|plan| rates(plan).len() == 2));
    assert!(alone.clone().any(|plan| rates(plan).len() == 3));
}

fn rates_known(plan: &Plan) -> bool {
    let mut streams = plan.traffic[0].streams.iter();
    streams.all(|s| s.frames_per_second(None).is_some())
}

/// If one version is slower, its frames are lost.
#[test]
fn loss_by_version() {
    let mut device = Device {
        capacity: 4e6,
        capacity6: Some(1e6),
        ..Device::default()
    };
    let results = completed(&mut device, &plan(MIXES));
    let limits: Vec<f64> = of_test(&results, SuiteTest::Throughput)
        .iter()
        .map(|r| r.limit.unwrap())
        .collect();
    for (limit, most) in limits.iter().zip([4e6, 4e6, 2e6, 1e6 / 0.9]) {
        assert!((most * 0.99..=most + 1.0).contains(limit), "{limits:?}");
    }
    let losses = of_test(&results, SuiteTest::Loss);
    let half = losses.iter().find(|r| r.size == "128 50% IPv6").unwrap();
    let first = &half.curve[0];
    assert_near(first.loss_pct.unwrap(), 25.0, 1e-3);
    let by_family: Vec<_> = first
        .families
        .iter()
        .map(|own: &FamilyFrames| (own.family, own.loss_ratio()))
        .collect();
    assert_eq!(by_family[0], (Family::Ipv4, 0.0));
    assert_near(by_family[1].1, 0.5, 1e-6);
    let trial = &half.trial_log[0];
    assert_eq!(trial.families, first.families);
    let ones = of_test(&results, SuiteTest::Throughput);
    assert_eq!(ones[0].limited_by, Some(LbLimit::Plan));
    assert_eq!(ones[2].limited_by, Some(LbLimit::Device));
}

const IMPACT: &str = r#"
    tests = ["impact"]
    sizes = ["84"]
    max = "1mpps"
    [procedure.suite.times]
    trial = "30s"
    search = "1s"
"#;

fn impact(device: &mut Device) -> SuiteResult {
    let plan = crate::plan_of(&format!(
        "{}ipv6 = true\next = [\"hop-by-hop\"]\n[procedure.suite]\n{IMPACT}",
        crate::STREAM
    ));
    completed(device, &plan).remove(0)
}

#[test]
fn what_hop_by_hop_options_do() {
    let mut device = Device {
        capacity: 40e3,
        ..Device::default()
    };
    let result = impact(&mut device);
    let rows: Vec<_> = result
        .impact
        .iter()
        .map(|row| (row.load_pct, row.offered_fps, row.tx, row.lost))
        .collect();
    let expected = [
        (1.0, 10e3, 300_000, Some(0)),
        (10.0, 100e3, 3_000_000, Some(1_800_000)),
        (50.0, 500e3, 15_000_000, Some(13_800_000)),
    ];
    assert_eq!(rows, expected);
    assert_eq!(result.impact[1].loss_pct, Some(60.0));
    assert_eq!(result.impact[0].latency_ns.p50, Some(20_000));
    // Counts of the device meanwhile.
    let rose: Vec<_> = result
        .impact
        .iter()
        .map(|row| row.rose["dut.forwarded"])
        .collect();
    assert_eq!(rose, [300_000, 1_200_000, 1_200_000]);
    // There is no limit for it.
    assert_eq!(
        (result.limit, result.throughput_fps, result.limited_by),
        (None, None, None)
    );
    assert!(result.confirmed);
    let headers = device
        .plans
        .iter()
        .all(|plan| !plan.traffic[0].streams[0].ext.is_empty());
    assert!(headers);
}

#[test]
fn an_impact_that_the_tester_could_not_make() {
    let mut device = Device {
        ceiling: 200e3,
        ..Device::default()
    };
    let result = impact(&mut device);
    let last = result.impact.last().unwrap();
    assert_eq!((last.lost, last.loss_pct), (None, None));
    assert!(last.void.contains("frames sent"), "{last:?}");
    assert!(result.impact[..2].iter().all(|row| row.lost == Some(0)));
    assert!(!result.confirmed);
}
