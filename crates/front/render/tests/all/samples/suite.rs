//! Suites as produced by runs: all tests with all possible results.

use wb_model::{
    REPORT_SCHEMA, Report, Verdict,
    bench::{
        BenchLive, BurstResult, Family, FamilyFrames, ImpactRow, LatencyRow, LbLimit, LossRow,
        MfrResult, MfrRow, MlrLoad, MlrResult, Quantity, RecoveryResult, ResetResult,
        ServiceResult, ServiceStep, SuitePlan, SuiteResult, SuiteTest, SuiteTrial, TrialOutcome,
        TrialPurpose,
    },
    plan::Procedure,
    report::CriterionReport,
};

use super::summary;

/// Frame rate of a link of 10 Gbit/s, in frames per second.
pub(crate) fn line(size: f64) -> f64 {
    10e9 / ((size + 20.0) * 8.0)
}

/// A trial of 10 s at a load, with `lost` lost frames.
pub(crate) fn trial(number: u32, fps: f64, lost: u64, outcome: TrialOutcome) -> SuiteTrial {
    let tx = (fps * 10.0) as u64;
    let reason = match outcome {
        TrialOutcome::Pass => "nothing was lost".to_owned(),
        TrialOutcome::Fail => format!("{lost} frames were lost, and none may be"),
        TrialOutcome::Measured => format!("{lost} frames were lost"),
        TrialOutcome::NotOffered => "the tester sent 81 % of what was asked for".to_owned(),
        TrialOutcome::NotRead => "1,234 frames found no room in our rings".to_owned(),
        TrialOutcome::Late => "the tester was late: away for 12 ms".to_owned(),
        TrialOutcome::Cut => "port b: the link went down".to_owned(),
    };
    SuiteTrial {
        trial: number,
        size: "64".into(),
        intended_pct: Some(100.0 * fps / line(64.0)),
        offered: fps,
        forwarded: fps - lost as f64 / 10.0,
        tx,
        rx: tx - lost,
        lost,
        loss_ratio: lost as f64 / tx.max(1) as f64,
        latency_ns: summary(tx - lost, 4_000, 1_000),
        ipdv_ns: summary(tx - lost, -3_000, 1_000),
        pdv_ns: summary(tx - lost, 0, 1_000),
        outcome,
        reason,
        ..SuiteTrial::new(TrialPurpose::Search, fps, 10.0)
    }
}

fn of(test: SuiteTest, size: &str) -> SuiteResult {
    let bytes: f64 = size.parse().unwrap_or(353.8);
    SuiteResult {
        size: size.into(),
        mean_size: Some(bytes),
        theoretical_fps: Some(line(bytes)),
        maximum: Some(line(bytes)),
        loss_goal: Some(0.0),
        ..SuiteResult::new(test, Quantity::Frames)
    }
}

/// A throughput that is this share of the line rate.
pub(crate) fn throughput(size: &str, share: f64, by: LbLimit) -> SuiteResult {
    let mut r = of(SuiteTest::Throughput, size);
    let (line, bytes) = (r.theoretical_fps.unwrap(), r.mean_size.unwrap());
    let fps = line * share;
    r.limit = Some(fps);
    r.throughput_fps = r.limit;
    r.throughput_l2_bps = Some(fps * bytes * 8.0);
    r.throughput_l1_bps = Some(fps * (bytes + 20.0) * 8.0);
    r.beyond = (share < 1.0).then_some(fps * 1.004);
    r.limited_by = Some(by);
    r.tester_limit = by == LbLimit::Tester;
    r.confirmed = true;
    r.tester_ceiling = Some(line.min(6e6));
    r.tester_ceiling_fps = r.tester_ceiling;
    r.trial_log = vec![
        SuiteTrial {
            purpose: TrialPurpose::WarmUp,
            ..trial(1, line, 1_000_000, TrialOutcome::Measured)
        },
        trial(2, line, 1_000_000, TrialOutcome::Fail),
        trial(3, fps * 1.004, 0, TrialOutcome::NotOffered),
        trial(4, fps * 1.004, 1, TrialOutcome::Fail),
        trial(5, fps, 0, TrialOutcome::Pass),
        SuiteTrial {
            purpose: TrialPurpose::Confirm,
            warnings: vec!["foreign frames: 12".into()],
            rose: [("port b.rx_missed".to_owned(), 12)].into(),
            ..trial(6, fps, 0, TrialOutcome::Pass)
        },
    ];
    r.trials = 6;
    r.trial_seconds = 60.0;
    r
}

pub(crate) fn throughputs() -> Vec<SuiteResult> {
    let incomplete = SuiteResult {
        incomplete: true,
        limited_by: Some(LbLimit::Time),
        confirmed: false,
        ..throughput("1024", 0.5, LbLimit::Time)
    };
    let nothing_held = SuiteResult {
        limit: None,
        throughput_fps: None,
        throughput_l1_bps: None,
        throughput_l2_bps: None,
        ..throughput("1280", 0.01, LbLimit::Device)
    };
    let skipped = SuiteResult {
        not_measured: Some("the MTU of port b is 1400".into()),
        ..SuiteResult::new(SuiteTest::Throughput, Quantity::Frames)
    };
    vec![
        throughput("64", 0.2, LbLimit::Device),
        throughput("128", 0.5, LbLimit::Tester),
        throughput("256", 0.999_999_9, LbLimit::Device),
        throughput("512", 1.0, LbLimit::Plan),
        incomplete,
        nothing_held,
        SuiteResult {
            size: "1518".into(),
            ..skipped
        },
        throughput("imix", 0.4, LbLimit::Device),
    ]
}

fn ndr(goal: &str, limit: Option<f64>, irregular: Option<&str>) -> SuiteResult {
    let load = |load: f64, class: &str, low: f64, high: f64| MlrLoad {
        load,
        trials: (low + high) as u32,
        low_full_s: low,
        high_full_s: high,
        class: class.into(),
        ..MlrLoad::default()
    };
    let most = limit.unwrap_or(9_001.0);
    let beyond = irregular.is_none().then_some(most * 1.005);
    SuiteResult {
        goal: Some(goal.into()),
        limit,
        beyond,
        confirmed: true,
        limited_by: Some(LbLimit::Device),
        trials: 43,
        trial_seconds: 67.5,
        mlr: Some(MlrResult {
            relevant_lower_bound: limit,
            relevant_upper_bound: beyond,
            relative_width: beyond.map(|_| 0.004_975),
            conditional_throughput: limit.map(|l| l * 0.997),
            irregular: irregular.map(Into::into),
            loads: vec![
                load(most, "lower", 14.0, 7.0),
                load(most * 1.005, "upper", 9.0, 12.0),
                load(most * 1.2, "undecided", 0.0, 1.0),
            ],
        }),
        trial_log: vec![
            trial(1, 9e6, 100_000, TrialOutcome::Fail),
            trial(2, 8e6, 0, TrialOutcome::Pass),
        ],
        ..of(SuiteTest::Ndr, "64")
    }
}

pub(crate) fn ndrs() -> Vec<SuiteResult> {
    let irregular = "no load that was tried is an upper bound";
    vec![
        ndr("ndr", Some(8_000_000.0), None),
        ndr("pdr", Some(8_400_000.0), None),
        ndr("lossy", Some(line(64.0)), Some(irregular)),
    ]
}

pub(crate) fn latency() -> SuiteResult {
    let row = |load: f64, min: i64, lost: u64| LatencyRow {
        p50_spread: None,
        p99_spread: None,
        load,
        offered: 2_900_000.0 * load,
        definition: "store and forward: last bit in to first bit out".into(),
        stamp_source: "user space at both ends".into(),
        repetitions: 3,
        typical_ns: Some(min as f64 * 1.6),
        worst_ns: Some(min as f64 * 12.0),
        latency_ns: summary(29_000_000, min, min / 5),
        pdv_ns: Some(min as f64 * 11.0),
        ipdv_ns: summary(28_999_999, -min, min / 9),
        lost,
    };
    SuiteResult {
        latency: vec![row(0.1, 4_000, 0), row(0.5, 4_600, 0), row(1.0, 21_000, 17)],
        spread: Some(0.013),
        trial_log: vec![SuiteTrial {
            purpose: TrialPurpose::Measure,
            ..trial(1, 290_000.0, 0, TrialOutcome::Pass)
        }],
        ..of(SuiteTest::Latency, "64")
    }
}

pub(crate) fn loss(size: &str, capacity: f64) -> SuiteResult {
    let mut r = of(SuiteTest::Loss, size);
    let most = r.maximum.unwrap();
    r.curve = (2..=10)
        .rev()
        .map(|tenth| {
            let load = f64::from(tenth) / 10.0;
            let void = size == "64" && tenth == 9;
            LossRow {
                load_pct: load * 100.0,
                offered: most * load,
                loss_pct: (!void).then_some((100.0 * (1.0 - capacity / load)).max(0.0)),
                families: Vec::new(),
            }
        })
        .collect();
    // One frame of many millions.
    r.curve[7].loss_pct = Some(1e-6);
    r.trial_log = vec![trial(1, most, 7_000_000, TrialOutcome::Measured)];
    r
}

pub(crate) fn bursts(size: &str) -> SuiteResult {
    SuiteResult {
        bursts: Some(BurstResult {
            lengths: vec![26_000, 26_100, 25_900],
            average: 26_000.0,
            min: 25_900,
            max: 26_100,
            stddev: 81.65,
            resolution: 1,
            longest: 29_761_904,
            burst_fps: 14_880_952.0,
            throughput_fps: Some(2_976_190.0),
            implied_s: 0.001_747_2,
            corrected_s: Some(0.001_397_8),
            buffer_frames: Some(20_800.0),
        }),
        ..of(SuiteTest::B2b, size)
    }
}

pub(crate) fn recovery() -> SuiteResult {
    SuiteResult {
        recovery: Some(RecoveryResult {
            overload_fps: 3_273_809.0,
            half_fps: 1_636_904.5,
            seconds: vec![Some(0.012), Some(0.0), None],
            average_s: Some(0.006),
            min_s: Some(0.0),
            max_s: Some(0.012),
        }),
        ..of(SuiteTest::Recovery, "64")
    }
}

pub(crate) fn reset() -> SuiteResult {
    SuiteResult {
        reset: Some(ResetResult {
            kind: "software".into(),
            trigger: "systemctl restart <frr> & wait".into(),
            offered_fps: 1_488_095.0,
            lost: 1_836_309,
            by_loss_s: Some(1.234),
            by_stamps_s: Some(1.240),
            not_again_s: None,
        }),
        // Frames lost in a repeated trial are not counted for the reset.
        trial_log: vec![
            trial(1, 1_488_095.0, 999, TrialOutcome::Late),
            SuiteTrial {
                purpose: TrialPurpose::Measure,
                longest_silence_ns: Some(1_240_000_000),
                ..trial(2, 1_488_095.0, 1_836_309, TrialOutcome::Measured)
            },
        ],
        ..of(SuiteTest::Reset, "64")
    }
}

pub(crate) fn services() -> SuiteResult {
    let step = |step: &str, offered: f64, received: f64, passed: bool| ServiceStep {
        service: "voice".into(),
        step: step.into(),
        offered_bps: offered,
        received_bps: received,
        loss_ratio: 1.0 - received / offered,
        delay_ns: Some(12_300.0),
        delay_max_ns: Some(99_000),
        variation_ns: Some(91_000),
        duration_s: 10.0,
        availability: (step == "performance").then_some(0.9995),
        passed,
        void: false,
        reason: match passed {
            true => "it meets what the service promises".into(),
            false => "110 Mbit/s came through, and no more than 101 may".into(),
        },
    };
    SuiteResult {
        steps: vec![
            step("CIR 25 %", 25e6, 25e6, true),
            step("CIR 100 %", 100e6, 100e6, true),
            step("policing", 125e6, 110e6, false),
            step("performance", 100e6, 100e6, true),
        ],
        services: vec![
            ServiceResult {
                service: "voice".into(),
                verdict: Verdict::Fail,
                steps: 4,
                passed: 3,
                reason: "policing: 110 Mbit/s came through, and no more than 101 may".into(),
            },
            ServiceResult {
                service: "video".into(),
                verdict: Verdict::Incomplete,
                reason: "stopped before all steps were completed".into(),
                ..ServiceResult::default()
            },
        ],
        ..of(SuiteTest::Y1564, "512")
    }
}

/// A device with a known forwarding rate at all loads but the last.
pub(crate) fn forwarding() -> SuiteResult {
    let row = |load_pct, forwarded_fps| MfrRow {
        load_pct,
        offered_fps: line(64.0) * load_pct / 100.0,
        forwarded_fps,
    };
    SuiteResult {
        limit: Some(1_250_000.0),
        limited_by: Some(LbLimit::Device),
        confirmed: true,
        trials: 4,
        mfr: Some(MfrResult {
            rate_fps: 1_250_000.0,
            load_fps: line(64.0) * 0.9,
            rate_l1_bps: Some(840e6),
            rate_l2_bps: Some(640e6),
            frmol_fps: None,
            max_offered_fps: None,
            rows: vec![
                row(80.0, Some(1_190_476.0)),
                row(90.0, Some(1_250_000.0)),
                row(100.0, None),
            ],
        }),
        ..of(SuiteTest::Mfr, "64")
    }
}

/// Hop-by-hop options at two loads, one of them void.
pub(crate) fn impact() -> SuiteResult {
    let row = |load_pct: f64, lost: Option<u64>, void: &str| ImpactRow {
        load_pct,
        offered_fps: 12_000.0 * load_pct,
        tx: 120_000,
        lost,
        loss_pct: lost.map(|lost| lost as f64 / 1_200.0),
        latency_ns: summary(120_000, 4_000, 1_000),
        rose: [("dut.slow_path".to_owned(), 120_000)].into(),
        void: void.into(),
    };
    SuiteResult {
        confirmed: false,
        impact: vec![
            row(1.0, Some(30), ""),
            row(10.0, None, "only 3 of 120000 frames were sent"),
        ],
        ..of(SuiteTest::Impact, "64")
    }
}

/// A tenth of the frames is of IPv6, and loses more.
pub(crate) fn mix() -> SuiteResult {
    let family = |family, tx, lost| FamilyFrames {
        family,
        offered_fps: tx as f64 / 10.0,
        forwarded_fps: (tx - lost) as f64 / 10.0,
        tx,
        rx: tx - lost,
        lost,
        dup: 0,
    };
    let mut r = loss("512", 0.75);
    r.size = "512 10% IPv6".into();
    r.ipv6_share = Some(0.1);
    r.curve.truncate(2);
    r.curve[0].families = vec![
        family(Family::Ipv4, 2_000_000, 0),
        family(Family::Ipv6, 222_222, 55_555),
    ];
    r
}

/// New connections per second, without frames.
pub(crate) fn connections() -> SuiteResult {
    SuiteResult {
        limit: Some(41_234.0),
        beyond: Some(41_440.0),
        tester_ceiling: Some(90_000.0),
        limited_by: Some(LbLimit::Device),
        confirmed: true,
        trials: 2,
        trial_seconds: 20.0,
        trial_log: vec![SuiteTrial {
            size: String::new(),
            intended_pct: None,
            ..trial(1, 41_234.0, 0, TrialOutcome::Pass)
        }],
        ..SuiteResult::new(SuiteTest::Throughput, Quantity::Cps)
    }
}

/// A report of these results.
pub(crate) fn report(results: Vec<SuiteResult>) -> Report {
    let mut tests: Vec<SuiteTest> = results.iter().map(|r| r.test).collect();
    tests.dedup();
    let mut plan = SuitePlan {
        tests,
        isolated: true,
        of: results.first().map_or(Quantity::Frames, |r| r.of),
        ..SuitePlan::default()
    };
    plan.device.name = "router".into();
    plan.device.version = "6.1".into();
    plan.device.configuration = "two routes".into();
    let mut report = super::lossy();
    report.schema = REPORT_SCHEMA.into();
    report.kind = "rfc2544".into();
    report.verdict = Verdict::Pass;
    report.reason = "all tests completed".into();
    report.limited_by = "the device: throughput".into();
    report.jobs.clear();
    report.flows.clear();
    report.flows_omitted = 0;
    report.workers.clear();
    report.criteria.clear();
    report.ports.clear();
    report.warnings.clear();
    report.totals = Default::default();
    report.rates = Default::default();
    report.timeline = Default::default();
    report.plan.procedure = Some(Procedure::Suite(Box::new(plan)));
    report.results = results;
    report
}

/// All tests.
pub(crate) fn full() -> Report {
    let mut all = throughputs();
    all.extend(ndrs());
    all.push(latency());
    all.extend([loss("64", 0.2), loss("512", 0.75)]);
    all.extend([forwarding(), impact(), mix()]);
    all.extend([bursts("64"), recovery(), reset(), services()]);
    let mut report = report(all);
    report.criteria = vec![CriterionReport {
        criterion: "pps>=1000000".into(),
        measured: Some(999_999.5),
        held: false,
    }];
    report.verdict = Verdict::Fail;
    report
}

/// A running trial.
pub(crate) fn live() -> BenchLive {
    BenchLive {
        test: Some(SuiteTest::Throughput),
        size: Some("64".into()),
        trial: 7,
        purpose: Some(TrialPurpose::Search),
        load: Some(1_050_000.0),
        unit: "fps".into(),
        low: Some(1_000_000.0),
        high: Some(1_100_000.0),
        left_ns: Some(95_000_000_000),
        ..BenchLive::default()
    }
}

/// The same trial after its end.
pub(crate) fn ended(outcome: TrialOutcome) -> BenchLive {
    let lost = if outcome == TrialOutcome::Fail { 12 } else { 0 };
    let trial = trial(7, 1_050_000.0, lost, outcome);
    BenchLive {
        ended: Some(Box::new(trial)),
        ..live()
    }
}
