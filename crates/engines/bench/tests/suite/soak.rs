//! Loss and delay at one load for a long time.

use wb_model::bench::{SuiteResult, SuiteTest, TrialOutcome};

use crate::{assert_near, completed, device::Device, of, plan};

fn soak(device: &mut Device, loss: &str, keys: &str) -> SuiteResult {
    let plan = plan(&format!(
        "tests = [\"soak\"]\nmax = \"10mpps\"\nsoak = {{ {keys} }}\n\
         [procedure.suite.search]\nresolution = \"0.1%\"\nloss = \"{loss}\"\n"
    ));
    of(&completed(device, &plan), SuiteTest::Soak).clone()
}

fn device() -> Device {
    Device {
        capacity: 6e6,
        ..Device::default()
    }
}

#[test]
fn nothing_is_lost_below_the_throughput() {
    let result = soak(&mut device(), "0", "duration = \"1h\"");
    let [row] = result.impact.as_slice() else {
        panic!("{:?}", result.impact);
    };
    // 90 % of the throughput, which is 60 % of the maximum, for an hour.
    assert_near(row.load_pct, 90.0, 1e-9);
    assert_near(row.offered_fps, 5.4e6, 0.01e6);
    assert_near(row.tx as f64, row.offered_fps * 3600.0, 1.0);
    assert_eq!((row.lost, row.loss_pct), (Some(0), Some(0.0)));
    assert!(row.latency_ns.p50.is_some() && result.confirmed);
    assert_eq!(result.trial_log.len(), 1);
    assert_eq!(result.limit, None);
}

#[test]
fn an_overload_is_a_loss_and_no_failure() {
    // The throughput of this search loses a tenth.
    let keys = "load = \"100%\", duration = \"10s\"";
    let result = soak(&mut device(), "10%", keys);
    assert_near(result.impact[0].loss_pct.unwrap(), 10.0, 0.2);
    assert_eq!(result.trial_log[0].outcome, TrialOutcome::Measured);
    assert!(!result.has_failed());
}

#[test]
fn without_a_throughput_there_is_no_load() {
    let mut device = Device {
        passes: Some(|load| load * 0.99),
        ..Device::default()
    };
    let result = soak(&mut device, "0", "");
    let why = result.not_measured.as_deref();
    assert_eq!(why, Some("no throughput was found"));
    assert!(result.impact.is_empty());
}
