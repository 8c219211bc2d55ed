//! Maximum forwarding rate (RFC 2889 section 5.6.1).

use wb_model::bench::{LbLimit, SuiteResult, SuiteTest, TrialOutcome};

use crate::{
    assert_near, completed,
    device::{Device, Mishap},
    of, plan,
};

const MFR: &str =
    "tests = [\"mfr\"]\nmax = \"10mpps\"\n[procedure.suite.search]\nresolution = \"0.1%\"\n";

/// A device with a throughput of 6 Mpps, a maximum at 8 Mpps, and a decreasing rate beyond.
fn peak(load: f64) -> f64 {
    match load {
        load if load <= 6e6 => load,
        load if load <= 8e6 => 6e6 + (load - 6e6) * 0.5,
        load => 7e6 - (load - 8e6) * 0.25,
    }
}

fn device() -> Device {
    Device {
        passes: Some(peak),
        ..Device::default()
    }
}

fn mfr(device: &mut Device) -> SuiteResult {
    of(&completed(device, &plan(MFR)), SuiteTest::Mfr).clone()
}

#[test]
fn most_is_forwarded_below_the_maximum() {
    let result = mfr(&mut device());
    let found = result.mfr.as_ref().unwrap();
    // From the throughput on, 5.9961 Mpps by steps of 0.1 %, in steps of a tenth of the maximum.
    let throughput = found.rows[0].offered_fps;
    assert!((5.99e6..=6e6).contains(&throughput), "{throughput}");
    let loads: Vec<_> = found.rows.iter().map(|row| row.offered_fps).collect();
    let steps = [0.0, 1e6, 2e6, 3e6, 4e6].map(|more| throughput + more);
    assert_eq!(loads[..5], steps);
    assert_eq!(loads[5..], [10e6]);
    for row in &found.rows {
        assert_near(row.forwarded_fps.unwrap(), peak(row.offered_fps), 1.0);
        assert_near(row.load_pct, row.offered_fps / 1e5, 1e-6);
    }
    assert_eq!(found.load_fps, throughput + 2e6);
    assert_near(found.rate_fps, peak(found.load_fps), 1.0);
    assert_eq!(result.limit, Some(found.rate_fps));
    assert_near(found.frmol_fps.unwrap(), 6.5e6, 1.0);
    assert_eq!(found.max_offered_fps, Some(10e6));
    assert_near(found.rate_l2_bps.unwrap(), found.rate_fps * 512.0, 1e-3);
    assert_near(found.rate_l1_bps.unwrap(), found.rate_fps * 672.0, 1e-3);
    // There is no goal for the loss, so no trial fails.
    let mut outcomes = result.trial_log.iter().map(|trial| trial.outcome);
    assert!(result.trial_log.iter().any(|trial| trial.lost > 0));
    assert!(outcomes.all(|outcome| outcome == TrialOutcome::Measured));
    // This is not a throughput.
    assert_eq!(result.throughput_fps, None);
    assert_eq!(
        (result.limited_by, result.tester_limit, result.confirmed),
        (Some(LbLimit::Device), false, true)
    );
}

/// A device with slight loss at all loads has no throughput, but a forwarding rate.
#[test]
fn a_device_without_a_throughput() {
    let mut device = Device {
        passes: Some(|load| load * 0.99),
        ..Device::default()
    };
    let result = mfr(&mut device);
    let found = result.mfr.as_ref().unwrap();
    assert_eq!(found.rows.len(), 10);
    assert_near(found.rate_fps, 9.9e6, 1.0);
    assert_eq!(found.load_fps, 10e6);
    assert_eq!(result.limited_by, Some(LbLimit::Device));
    let mut device = Device {
        passes: Some(|_| 0.0),
        ..Device::default()
    };
    let result = mfr(&mut device);
    assert_eq!((result.limit, result.confirmed), (None, false));
    assert_eq!(result.limited_by, Some(LbLimit::Device));
    assert_eq!(result.mfr.unwrap().rate_fps, 0.0);
}

/// Without loss, the device may forward more than was offered.
#[test]
fn the_most_that_could_be_offered_is_no_limit_of_the_device() {
    let carries_all = || Device {
        passes: Some(|load| load),
        ..Device::default()
    };
    let result = mfr(&mut carries_all());
    assert_eq!(
        (result.limit, result.limited_by),
        (Some(10e6), Some(LbLimit::Plan))
    );
    let mut device = Device {
        ceiling: 7e6,
        ..carries_all()
    };
    let result = mfr(&mut device);
    assert_eq!(
        (result.limited_by, result.tester_limit),
        (Some(LbLimit::Tester), true)
    );
    assert_near(result.limit.unwrap(), 7e6, 1.0);
    let found = result.mfr.unwrap();
    assert_eq!(found.frmol_fps, found.max_offered_fps);
}

/// Drops at the tester's ports, or lateness, invalidate a forwarding rate.
#[test]
fn a_trial_that_does_not_tell_is_no_maximum() {
    let mut device = device();
    device.mishap = Box::new(|_, load| {
        (7.9e6..8.1e6)
            .contains(&load)
            .then_some(Mishap::Unread(50_000_000))
    });
    let result = mfr(&mut device);
    let found = result.mfr.as_ref().unwrap();
    // The device lost frames too, so its forwarding rate has a lower bound.
    assert!(
        result
            .notes
            .iter()
            .any(|note| note.contains("the forwarding rate is a lower bound")),
        "{:?}",
        result.notes
    );
    let mut device = Device {
        passes: Some(|load| load),
        mishap: Box::new(|_, load| (load > 9.5e6).then_some(Mishap::Unread(1_000))),
        ..Device::default()
    };
    assert!(found.rows.iter().all(|row| row.forwarded_fps.is_some()));
    let plan = plan(&MFR.replace("10mpps", "10mpps\"\nstep = \"5%"));
    let result = of(&completed(&mut device, &plan), SuiteTest::Mfr).clone();
    let found = result.mfr.as_ref().unwrap();
    assert_eq!(found.rows.last().unwrap().forwarded_fps, None);
    assert_eq!((found.frmol_fps, found.max_offered_fps), (None, None));
    assert!(found.rate_fps <= 9.5e6, "{found:?}");
    assert_eq!(result.limited_by, Some(LbLimit::Tester));
}
