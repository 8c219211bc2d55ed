//! Whole suites against a simulated device: the vectors of the trial specification (section 16), random devices, and
//! all disturbances of a tester.
//!
//! | file | holds |
//! |---|---|
//! | `device` | the device, and the tester before it |
//! | `vectors` | section 16, a test for each vector |
//! | `random` | random devices |
//! | `forwarding` | maximum forwarding rate |
//! | `mixes` | IPv4 and IPv6 together, and frames that are a test of impact |
//! | `services` | several services of Y.1564 |
//! | `latency` | delay at shares of the throughput |
//! | `limits` | identification of the limit |
//! | `modifiers` | additional traffic of RFC 2544 |
//! | `mishaps` | a tester that fails, links that go down, an early end |

mod device;
mod forwarding;
mod latency;
mod limits;
mod mishaps;
mod mixes;
mod modifiers;
mod random;
mod services;
mod soak;
mod vectors;

use wb_bench::{BenchEnd, suite};
use wb_model::{
    Plan,
    bench::{FamilyFrames, SuiteResult, SuiteTest, SuiteTrial, TrialOutcome, TrialPurpose},
    text::plan_from_toml,
};

use device::Device;

/// Line rate of 64-byte frames at 10 Gbit/s, frames per second.
const TEN_GIG: f64 = 1e10 / 672.0;

const STREAM: &str = r#"
    [[port]]
    name = "tx"
    locator = "eth8"
    [[port]]
    name = "rx"
    locator = "eth9"
    [[traffic]]
    name = "stream"
    tx = "tx"
    rx = "rx"
    [[traffic.stream]]
"#;

/// A suite with one stream; `more` begins within `[procedure.suite]`.
fn plan(more: &str) -> Plan {
    plan_of(&format!(
        "{STREAM}[procedure.suite]\nsizes = [\"64\"]\n{more}"
    ))
}

fn plan_of(text: &str) -> Plan {
    let plan = plan_from_toml("plan", text).unwrap();
    assert!(plan.validate().is_ok(), "{:?}", plan.validate());
    plan
}

/// All results of a suite that must complete.
#[track_caller]
fn completed(device: &mut Device, plan: &Plan) -> Vec<SuiteResult> {
    let run = suite::run(device, plan);
    assert!(matches!(run.end, BenchEnd::Completed), "{:?}", run.end);
    for result in &run.results {
        assert!(!result.incomplete, "{result:?}");
        assert_sums(result);
    }
    run.results
}

fn of(results: &[SuiteResult], test: SuiteTest) -> &SuiteResult {
    results.iter().find(|r| r.test == test).unwrap()
}

/// Sent frames are received originals plus lost ones.
#[track_caller]
fn assert_sums(result: &SuiteResult) {
    for trial in &result.trial_log {
        if result.unit == "fps" {
            assert_eq!(trial.tx, trial.rx - trial.dup + trial.lost, "{trial:?}");
            // A duplicate was forwarded once.
            let unique = (trial.rx - trial.dup) as f64 / f64::from(result.directions);
            let forwarded = trial.forwarded * trial.duration_s;
            assert_near(forwarded, unique, 1e-9 * unique + 1e-6);
        }
        for own in &trial.families {
            assert_eq!(own.tx, own.rx - own.dup + own.lost, "{trial:?}");
        }
        let sum = |of: fn(&FamilyFrames) -> u64| trial.families.iter().map(of).sum::<u64>();
        if !trial.families.is_empty() {
            assert_eq!(
                (sum(|f| f.tx), sum(|f| f.lost)),
                (trial.tx, trial.lost),
                "{trial:?}"
            );
        }
        let ratio = trial.lost_by_device() as f64 / trial.tx.max(1) as f64;
        assert!(trial.loss_ratio >= ratio, "{trial:?}");
    }
}

#[track_caller]
fn assert_near(seen: f64, expected: f64, tolerance: f64) {
    assert!(
        (seen - expected).abs() <= tolerance,
        "{seen} instead of {expected}"
    );
}

/// Trials that a search requested.
fn searched(result: &SuiteResult) -> impl Iterator<Item = &SuiteTrial> {
    let purposes = [TrialPurpose::Search, TrialPurpose::Confirm];
    let trials = result.trial_log.iter();
    trials.filter(move |trial| purposes.contains(&trial.purpose))
}

/// Each load in per cent with the outcomes of its trials: `P`, `F`, or `-` for a void one.
fn told(result: &SuiteResult) -> Vec<(f64, String)> {
    let mut told: Vec<(f64, String)> = Vec::new();
    for trial in searched(result) {
        let letter = match trial.outcome {
            TrialOutcome::Pass => 'P',
            TrialOutcome::Fail => 'F',
            _ => '-',
        };
        let percent = trial.intended_pct.unwrap();
        match told.last_mut().filter(|(load, _)| *load == percent) {
            Some((_, letters)) => letters.push(letter),
            None => told.push((percent, letter.to_string())),
        }
    }
    told
}

#[track_caller]
fn assert_told(result: &SuiteResult, expected: &[(f64, &str)]) {
    let told = told(result);
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((load, told), (percent, verdicts)) in told.iter().zip(expected) {
        assert_near(*load, *percent, 1e-9);
        assert_eq!(told, verdicts, "at {percent} %");
    }
}
