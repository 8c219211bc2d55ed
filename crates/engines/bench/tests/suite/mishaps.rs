//! Disturbances of a tester never become wrong results of the device, and an early end keeps the results known by then.

use std::time::Duration;

use wb_bench::{BenchEnd, suite};
use wb_model::{
    Limiter, Plan,
    bench::{LbLimit, SuiteResult, SuiteTest, TrialOutcome},
};

use crate::{
    Device, STREAM, TEN_GIG, assert_near, completed,
    device::{BESIDE, Gone, Mishap, in_trials},
    of, plan, plan_of, searched,
};

const PLAN: &str = r#"
    tests = ["throughput"]
    [procedure.suite.times]
    trial = "10s"
    search = "10s"
    [procedure.suite.search]
    resolution = "0.1%"
    budget = "2h"
"#;

const CLIENTS: &str = r#"
    port = "tx"
    end = "client"
    clients = ["198.18.1.10-198.18.1.20"]
    servers = ["198.19.1.10"]
    request = { bytes = 1 }
    reading = { bytes = 1 }
    requests = 1
"#;

const ADDRESSES: [(&str, &str); 2] = [("eth8", "198.18.1.2"), ("eth9", "198.19.1.2")];

fn with_addresses(text: &str) -> String {
    ADDRESSES.iter().fold(text.to_owned(), |text, (port, own)| {
        let locator = format!("locator = \"{port}\"");
        text.replace(&locator, &format!("{locator}\naddresses = [\"{own}\"]"))
    })
}

/// A search of a load of connections or requests, with a precision of 0.5 %.
pub(crate) fn connections(of: &str) -> Plan {
    let ports = STREAM.split("[[traffic]]").next().unwrap();
    plan_of(&with_addresses(&format!(
        "{ports}[[load]]\nname = \"clients\"{CLIENTS}rate = {{ {of} = 1000 }}\n\
         [procedure.suite]\ntests = [\"throughput\"]\nof = \"{of}\"\n"
    )))
}

/// A stream with 100 connections per second alongside.
fn beside() -> Plan {
    plan_of(&with_addresses(&format!(
        "{STREAM}[[load]]\nname = \"{BESIDE}\"{CLIENTS}rate = {{ cps = 100 }}\n\
         [procedure.suite]\nsizes = [\"64\"]\n{PLAN}"
    )))
}

/// Result of an undisturbed device.
const LIMIT: f64 = 0.544_921_875;

fn outcomes(result: &SuiteResult) -> Vec<&'static str> {
    searched(result).map(|t| t.outcome.name()).collect()
}

#[track_caller]
fn assert_unharmed(result: &SuiteResult) {
    assert_near(result.limit.unwrap() / TEN_GIG, LIMIT, 1e-12);
    assert_eq!(
        (result.limited_by, result.confirmed),
        (Some(LbLimit::Device), true)
    );
}

#[test]
fn void_trials_are_made_again() {
    let stopped = Mishap::Stopped(Duration::from_millis(80), 3);
    for (mishap, void) in [
        (stopped, "late"),
        (Mishap::GivenUp(9_000_000), "late"),
        // The missed frames are too few to explain the loss, and few enough for a late tester.
        (Mishap::GivenUp(1_000), "late"),
        (Mishap::Sent(0.5), "not-offered"),
        (Mishap::Longer(1.2), "not-offered"),
        (Mishap::Unread(1_000), "not-read"),
        (Mishap::Refused(1_000), "not-read"),
        (Mishap::LeftUnread(1_000), "late"),
        (Mishap::LinkDown(3), "cut"),
        (Mishap::Torn(3), "cut"),
    ] {
        // Trials 2 and 7 would have passed: the second is the first again.
        let mut device = Device {
            mishap: in_trials(&[2, 7], mishap),
            ..Device::default()
        };
        let result = completed(&mut device, &plan(PLAN)).remove(0);
        assert_unharmed(&result);
        let told = outcomes(&result);
        assert_eq!((told[1], told[6]), (void, void), "{mishap:?}: {told:?}");
        assert_eq!((told.len(), result.trials), (13, 13));
        let again: Vec<_> = searched(&result).map(|t| t.intended).collect();
        assert_eq!((again[1], again[6]), (again[2], again[7]));
    }
}

/// If sending took longer, rates refer to the actual time.
#[test]
fn rates_of_what_took_longer_are_those_of_that_time() {
    let mut device = Device {
        mishap: Box::new(|_, _| Some(Mishap::Longer(1.2))),
        ..Device::default()
    };
    let result = completed(&mut device, &plan(PLAN)).remove(0);
    let failed = searched(&result).find(|t| t.outcome == TrialOutcome::Fail);
    let failed = failed.expect("an overload is one however long it takes");
    assert_near(failed.offered, failed.intended / 1.2, 1.0);
    assert_near(
        failed.forwarded * failed.duration_s,
        (failed.rx - failed.dup) as f64,
        1.0,
    );
}

#[test]
fn frames_of_others_are_said_and_void_nothing() {
    let mut device = Device {
        mishap: Box::new(|_, _| Some(Mishap::Foreign(5_000_000))),
        ..Device::default()
    };
    let result = completed(&mut device, &plan(PLAN)).remove(0);
    assert_unharmed(&result);
    let passed = searched(&result).filter(|t| t.outcome == TrialOutcome::Pass);
    for trial in passed {
        assert!(trial.reason.contains("unexpected frames"), "{trial:?}");
        assert_eq!(trial.rx, trial.tx);
    }
}

#[test]
fn a_late_tester_does_not_excuse_what_no_lateness_costs() {
    // 45 % of the frames are lost at the maximum, and a stop of 80 ms costs 0.8 % of them.
    let stopped = Mishap::Stopped(Duration::from_millis(80), 1);
    let mut device = Device {
        mishap: in_trials(&[1], stopped),
        ..Device::default()
    };
    let result = completed(&mut device, &plan(PLAN)).remove(0);
    assert_unharmed(&result);
    assert_eq!((outcomes(&result)[0], result.trials), ("fail", 11));
}

#[test]
fn a_tester_that_is_always_late_blames_nobody() {
    let mut device = Device {
        mishap: Box::new(|_, _| Some(Mishap::Stopped(Duration::from_millis(80), 10))),
        ..Device::default()
    };
    let result = completed(&mut device, &plan(PLAN)).remove(0);
    let failed = searched(&result).filter(|t| t.outcome == TrialOutcome::Fail);
    for trial in failed {
        assert!(trial.intended > device.capacity, "{trial:?}");
    }
    assert!(result.limit.is_none_or(|limit| limit <= device.capacity));
    assert_ne!(result.limited_by, Some(LbLimit::Device), "{result:?}");
    assert!(result.trials < 60, "{}", result.trials);
}

/// If the loss is the result, a part that the tester may have caused makes it void, or is noted if it is small.
#[test]
fn no_loss_is_told_that_may_be_the_testers() {
    for test in [SuiteTest::Loss, SuiteTest::Mfr, SuiteTest::Impact] {
        let text = format!(
            "tests = [\"{}\"]\nmax = \"10mpps\"\n[procedure.suite.times]\ntrial = \"10s\"\nsearch = \"10s\"\n",
            test.name()
        );
        // At the largest load frames are lost, and the tester stalls there.
        let most = match test {
            SuiteTest::Impact => 4.9e6,
            _ => 9e6,
        };
        let find = |away_ms, times: u32| {
            // The throughput, which is the start of the forwarding test, begins there too.
            let mut before = u32::from(test == SuiteTest::Mfr);
            let mut left = times;
            let mut device = Device {
                capacity: 4e6,
                mishap: Box::new(move |_, load| {
                    let is_most = load > most;
                    let is_struck = is_most && before == 0 && left > 0;
                    before -= u32::from(is_most && before > 0);
                    left -= u32::from(is_struck);
                    is_struck.then_some(Mishap::Stopped(Duration::from_millis(away_ms), 1))
                }),
                ..Device::default()
            };
            of(&completed(&mut device, &plan(&text)), test).clone()
        };
        let unharmed = find(0, 0);
        assert_eq!(unharmed.notes, Vec::<String>::new());
        // 3 % of a trial of 10 s.
        let result = find(300, 1);
        assert_eq!(result.trials, unharmed.trials + 1, "{test:?}");
        let mut void = result.trial_log.iter().filter(|t| !t.outcome.is_valid());
        let late = void.next().unwrap();
        assert_eq!(late.outcome, TrialOutcome::Late, "{late:?}");
        assert!(late.reason.starts_with("the tester was late"), "{late:?}");
        assert_eq!(result.curve, unharmed.curve);
        assert_eq!(result.impact, unharmed.impact);
        assert_eq!(result.mfr, unharmed.mfr);
        // 1 %, and less than a thousandth.
        for (away_ms, notes) in [(100, 1), (9, 0)] {
            let result = find(away_ms, 1);
            assert_eq!(
                (result.trials, result.notes.len()),
                (unharmed.trials, notes)
            );
            let told = |note: &String| note.contains("the tester's lateness can explain");
            assert!(result.notes.iter().all(told), "{:?}", result.notes);
        }
        // A tester that is always late gives no result for this load.
        let result = find(300, u32::MAX);
        let mut harmed = result.trial_log.iter().filter(|t| t.intended > most);
        assert!(harmed.all(|trial| !trial.outcome.is_valid()));
        assert!(result.impact.last().is_none_or(|row| row.lost.is_none()));
        assert!(
            result
                .curve
                .first()
                .is_none_or(|row| row.loss_pct.is_none())
        );
        let mfr = result.mfr.as_ref().and_then(|mfr| mfr.rows.last());
        assert!(mfr.is_none_or(|row| row.forwarded_fps.is_none()));
    }
}

#[test]
fn a_search_waits_for_its_link() {
    let mut device = Device {
        mishap: in_trials(&[4], Mishap::LinkDown(100)),
        ..Device::default()
    };
    let usual = {
        let mut device = Device::default();
        completed(&mut device, &plan(PLAN));
        device.now
    };
    let result = completed(&mut device, &plan(PLAN)).remove(0);
    assert_unharmed(&result);
    assert_eq!(outcomes(&result)[3], "cut");
    let trial = searched(&result).nth(3).unwrap();
    assert!(trial.reason.contains("eth9 went down"), "{}", trial.reason);
    // 100 checks of 250 ms, and one additional trial.
    let waited = device.now - usual;
    assert!((35e9..40e9).contains(&(waited as f64)), "{waited}");
}

/// A suite that is interrupted: after trial 3 50 % is known to pass, after 6 53.125 %.
#[track_caller]
fn ends(device: &mut Device, held: f64) -> BenchEnd<Gone> {
    let run = suite::run(device, &plan(PLAN));
    assert_eq!(run.results.len(), 1);
    let result = &run.results[0];
    assert!(result.incomplete && !result.confirmed);
    assert_near(result.limit.unwrap() / TEN_GIG, held, 1e-12);
    assert_eq!(result.limited_by, Some(LbLimit::Time));
    let told = result
        .notes
        .iter()
        .any(|n| n.contains("the result is partial"));
    assert!(told, "{:?}", result.notes);
    assert_eq!(
        result.trial_log.len(),
        result.trials as usize
            + result
                .trial_log
                .iter()
                .filter(|t| t.purpose == wb_model::bench::TrialPurpose::Ceiling)
                .count()
    );
    run.end
}

#[test]
fn a_link_that_stays_down_ends_the_suite() {
    let mut device = Device {
        mishap: in_trials(&[4], Mishap::LinkDown(u32::MAX)),
        ..Device::default()
    };
    let end = ends(&mut device, 0.5);
    // Four trials, and a minute of waiting.
    assert!(
        (60e9..120e9).contains(&(device.now as f64)),
        "{}",
        device.now
    );
    let BenchEnd::Broken(text) = end else {
        panic!("{end:?}");
    };
    assert!(
        text.contains("eth8 and eth9") && text.contains("down for 60 s"),
        "{text}"
    );
}

#[test]
fn an_end_before_the_end_leaves_what_is_known() {
    let mut device = Device {
        stop_after: 6,
        ..Device::default()
    };
    assert!(matches!(ends(&mut device, 0.53125), BenchEnd::Interrupted));
    let mut device = Device {
        mishap: in_trials(&[7], Mishap::Signal),
        ..Device::default()
    };
    assert!(matches!(ends(&mut device, 0.53125), BenchEnd::Interrupted));
    let mut device = Device {
        mishap: in_trials(&[7], Mishap::Fault("a worker ended")),
        ..Device::default()
    };
    let end = ends(&mut device, 0.53125);
    assert!(
        matches!(&end, BenchEnd::Broken(text) if text.contains("a worker ended")),
        "{end:?}"
    );
    let mut device = Device {
        mishap: Box::new(|trial, _| (trial >= 4).then_some(Mishap::Gone)),
        ..Device::default()
    };
    assert!(matches!(ends(&mut device, 0.5), BenchEnd::Failed(Gone)));
    assert!(device.trials < 20, "{}", device.trials);
}

#[test]
fn a_device_that_comes_back_is_measured_on() {
    let mut device = Device {
        mishap: in_trials(&[4, 5], Mishap::Gone),
        ..Device::default()
    };
    let result = completed(&mut device, &plan(PLAN)).remove(0);
    assert_unharmed(&result);
    assert_eq!(result.trials, 11);
}

#[test]
fn what_runs_beside_counts_too() {
    let result = completed(&mut Device::default(), &beside()).remove(0);
    assert_unharmed(&result);
    assert!(searched(&result).all(|t| t.beside.len() == 1));
    // Its connections fail above 30 %, which is then the limit.
    let mut device = Device {
        mishap: Box::new(|_, load| (load > 0.3 * TEN_GIG).then_some(Mishap::BesideFails(3))),
        ..Device::default()
    };
    let result = completed(&mut device, &beside()).remove(0);
    assert_near(result.limit.unwrap() / TEN_GIG, 0.3, 0.001);
    assert_eq!(result.limited_by, Some(LbLimit::Device));
    let failed = searched(&result).find(|t| t.outcome == TrialOutcome::Fail && t.lost == 0);
    let reason = &failed.unwrap().reason;
    assert!(
        reason.contains("connections of the concurrent job beside failed"),
        "{reason}"
    );
    // Trials with connections that were not begun, or failed perhaps because of lateness, are repeated.
    for (mishap, void) in [
        (Mishap::BesideUnsent(500), "not-offered"),
        (Mishap::BesideExposed(3), "late"),
    ] {
        let mut device = Device {
            mishap: in_trials(&[2, 7], mishap),
            ..Device::default()
        };
        let result = completed(&mut device, &beside()).remove(0);
        let told = outcomes(&result);
        assert_eq!((told[1], told[6]), (void, void), "{mishap:?}: {told:?}");
        assert_unharmed(&result);
    }
}

#[test]
fn bounds_and_the_time_left_are_told() {
    let mut device = Device {
        overhead: Duration::from_millis(300),
        ..Device::default()
    };
    completed(&mut device, &plan(PLAN));
    let (mut low, mut high) = (None, None);
    let mut left = Vec::new();
    for live in &device.told {
        if let Some(ns) = live
            .left_ns
            .filter(|_| live.ended.is_none() && live.load.is_some())
        {
            left.push(ns);
        }
        if let Some(trial) = &live.ended {
            match trial.outcome {
                TrialOutcome::Pass if trial.purpose != wb_model::bench::TrialPurpose::Ceiling => {
                    low = Some(trial.intended);
                }
                TrialOutcome::Fail => high = Some(trial.intended),
                _ => {}
            }
            assert_eq!((live.low, live.high), (low, high), "{live:?}");
        }
    }
    // The last trial has only itself left; the first all of them.
    assert_eq!(left.len(), 11);
    assert!(left.windows(2).all(|pair| pair[1] < pair[0]), "{left:?}");
    let one = 10.0 + 1.0 + 0.5 + 0.3;
    for (n, ns) in left.iter().enumerate() {
        let truth = one * (11 - n) as f64;
        assert_near(*ns as f64 / 1e9, truth, 0.1 * truth + 1.0);
    }
}

/// Drops at the tester's ports are no loss of the device, even in addition to real loss.
#[test]
fn frames_without_room_at_our_port_are_not_in_the_loss() {
    let mut device = Device {
        capacity: 0.75 * TEN_GIG,
        mishap: in_trials(&[2], Mishap::Refused(1_000_000)),
        ..Device::default()
    };
    let loss = completed(&mut device, &plan("tests = [\"loss\"]\n")).remove(0);
    let told: Vec<f64> = loss.curve.iter().map(|row| row.loss_pct.unwrap()).collect();
    for (told, expected) in told.iter().zip([25.0, 100.0 / 6.0, 6.25, 0.0, 0.0]) {
        assert_near(*told, expected, 1e-4);
    }
    let trial = searched(&loss).nth(1).unwrap();
    assert_eq!(trial.outcome, TrialOutcome::Measured);
    assert!(
        trial.lost > trial.lost_by_device() && trial.reason.contains("at least"),
        "{trial:?}"
    );
    assert!(
        loss.notes[0].starts_with("at 90 % the tester"),
        "{:?}",
        loss.notes
    );

    // After an overload, the last frame lost by the device cannot be identified.
    let text = PLAN.replace("[\"throughput\"]", "[\"throughput\", \"recovery\"]");
    let mut device = Device {
        recovery: Duration::from_millis(350),
        mishap: Box::new(|trial, _| (trial == 13).then_some(Mishap::Refused(1_000))),
        ..Device::default()
    };
    let results = completed(&mut device, &plan(&text));
    assert_eq!(results[1].recovery.as_ref().unwrap().seconds.len(), 4);

    // A step that failed only because of the tester's drops is void.
    let text = "tests = [\"y1564\"]\n[[procedure.suite.service]]\ncir = \"100mbps-l2\"\n";
    let cir = 100e6 / 512.0;
    let mut device = Device {
        capacity: cir,
        mishap: Box::new(move |_, load| (load > cir * 1.01).then_some(Mishap::Refused(1_000))),
        ..Device::default()
    };
    let service = completed(&mut device, &plan(text)).remove(0);
    let policing = service.steps.iter().find(|s| s.step == "policing").unwrap();
    assert_eq!(
        (policing.passed, policing.void),
        (false, true),
        "{policing:?}"
    );
}

/// A burst interrupted by a stall is void, even without loss.
#[test]
fn a_burst_with_a_pause_in_it() {
    let text = "max = \"10mpps\"\ntests = [\"b2b\"]\n[procedure.suite.b2b]\nsearches = 1\nlongest = \"5ms\"\n";
    let device = || Device {
        capacity: 10e6,
        buffer: 1000,
        ..Device::default()
    };
    let mut usual = device();
    let known = completed(&mut usual, &plan(text)).pop().unwrap();
    let before = usual.trials - known.trial_log.len() as u32;
    let passed = known
        .trial_log
        .iter()
        .rposition(|t| t.outcome == TrialOutcome::Pass);
    let number = before + passed.unwrap() as u32 + 1;
    let stopped = Mishap::Stopped(Duration::from_millis(80), 1);
    let mut device = Device {
        mishap: Box::new(move |trial, _| (trial == number).then_some(stopped)),
        ..device()
    };
    let result = completed(&mut device, &plan(text)).pop().unwrap();
    assert_eq!(device.trials, usual.trials + 1);
    let log = &result.trial_log;
    let late = log
        .iter()
        .position(|t| t.outcome == TrialOutcome::Late)
        .unwrap();
    assert_eq!(log[late].intended, log[late + 1].intended);
    let lengths = |result: &SuiteResult| result.bursts.as_ref().unwrap().lengths.clone();
    assert_eq!(lengths(&result), lengths(&known));
}

/// The longest burst that the tester can send is not a limit of the device.
#[test]
fn bursts_that_the_tester_could_not_send() {
    let text = "max = \"10mpps\"\ntests = [\"b2b\"]\n[procedure.suite.b2b]\nsearches = 3\nlongest = \"5ms\"\n";
    let find = |most| {
        let mut device = Device {
            capacity: 10e6,
            buffer: 1000,
            // The load of a burst is its number of frames: the first has 10,000, and loads of other trials are larger.
            mishap: Box::new(move |_, load| {
                (load > most && load < 1e5 && load != 1e4).then_some(Mishap::Sent(0.5))
            }),
            ..Device::default()
        };
        completed(&mut device, &plan(text)).pop().unwrap()
    };
    let known = find(f64::INFINITY);
    assert!(known.bursts.as_ref().unwrap().min > 2_000, "{known:?}");
    assert!(known.confirmed);
    let limited = find(1_500.0);
    assert_eq!((&limited.bursts, limited.confirmed), (&None, false));
    let told = |note: &String| note.contains("the tester could not send a burst");
    assert!(limited.notes.iter().any(told), "{limited:?}");
}

#[test]
fn connections_that_the_tester_could_not_begin() {
    let mut device = Device {
        most_begun: 20_000.0,
        ..Device::default()
    };
    let result = completed(&mut device, &connections("cps")).remove(0);
    assert_eq!(
        (result.limited_by, result.tester_limit),
        (Some(LbLimit::Tester), true)
    );
    let limit = result.limit.unwrap();
    assert!((15_000.0..=20_410.0).contains(&limit), "{limit}");
    assert!(searched(&result).all(|t| t.outcome != TrialOutcome::Fail));
}

/// A tester that offers a load between the device's capacity and line rate: the first load cannot be offered, and the
/// search continues below the offered load.
#[test]
fn the_first_loads_are_beyond_the_tester() {
    let find = |capacity| {
        let mut device = Device {
            capacity,
            ceiling: 9e6,
            ..Device::default()
        };
        completed(&mut device, &plan(CLOSE)).remove(0)
    };
    // Line rate, its forwarded rate, 1 % above that, and the trial that confirms; one more for the middle.
    let result = find(6e6);
    assert_eq!(result.limited_by, Some(LbLimit::Device), "{result:?}");
    assert!(result.confirmed && !result.tester_limit);
    assert_near(result.limit.unwrap(), 6e6, 3e4);
    assert!(result.trials <= 5, "{:?}", outcomes(&result));
    // Line rate, and the offered load to confirm it.
    let result = find(12e6);
    assert_eq!(result.limited_by, Some(LbLimit::Tester), "{result:?}");
    assert!(result.confirmed && result.tester_limit);
    assert_near(result.limit.unwrap(), 9e6, 9e4);
    assert!(result.trials <= 3, "{:?}", outcomes(&result));
    for trial in result.trial_log.iter().filter(|t| t.intended > 9.2e6) {
        assert_eq!(trial.outcome, TrialOutcome::NotOffered);
    }
}

/// A trial that did not offer its load counts neither against the device nor for it, regardless of loss.
#[test]
fn a_load_that_was_not_offered_is_no_word_on_the_device() {
    // The device carries 4.5 Mpps, and the tester offers 90 % of each load above 4 Mpps.
    let mut device = Device {
        capacity: 4.5e6,
        mishap: Box::new(|_, load| (load > 4e6).then_some(Mishap::Sent(0.9))),
        ..Device::default()
    };
    let result = completed(&mut device, &plan(CLOSE)).remove(0);
    for trial in searched(&result).filter(|t| t.intended > 4e6) {
        assert_eq!(trial.outcome, TrialOutcome::NotOffered, "{trial:?}");
    }
    assert_ne!(result.limited_by, Some(LbLimit::Device), "{result:?}");
    assert!(result.limit.unwrap() <= 4.5e6, "{result:?}");
}

/// Requests that were due and found no free connection count as unanswered, unless the tester caused it.
#[test]
fn requests_that_wait_for_a_connection() {
    for (blamed, limited_by) in [
        (Limiter::FarEnd, LbLimit::Device),
        (Limiter::Tester, LbLimit::Tester),
        (Limiter::PerhapsTester, LbLimit::Tester),
    ] {
        let mut device = Device {
            free: 5_000.0,
            blamed: Some(blamed.clone()),
            ..Device::default()
        };
        let result = completed(&mut device, &connections("rps")).remove(0);
        assert_eq!(result.limited_by, Some(limited_by), "{blamed:?}");
        let limit = result.limit.unwrap();
        assert!((3_700.0..=5_103.0).contains(&limit), "{blamed:?}: {limit}");
        let failed = searched(&result).find(|t| t.outcome == TrialOutcome::Fail);
        assert_eq!(failed.is_some(), limited_by == LbLimit::Device);
        if let Some(trial) = failed {
            assert!(
                trial.reason.contains("because no connection was free"),
                "{}",
                trial.reason
            );
        }
    }
}

#[test]
fn a_search_ends_with_its_budget() {
    let text = PLAN.replace("2h", "50s");
    let mut device = Device::default();
    let result = completed(&mut device, &plan(&text)).remove(0);
    assert_eq!(result.limited_by, Some(LbLimit::Time));
    assert!(result.trials < 11, "{}", result.trials);
    assert_near(result.limit.unwrap() / TEN_GIG, 0.5, 1e-12);
}

/// A load that the tester could not offer has no loss, and a curve that ran out of time is incomplete.
#[test]
fn holes_and_the_end_of_a_curve() {
    let text = "tests = [\"loss\"]\n";
    let mut device = Device {
        capacity: 0.75 * TEN_GIG,
        mishap: Box::new(|_, load| {
            let share = load / TEN_GIG;
            (share > 0.85 && share < 0.95).then_some(Mishap::Sent(0.5))
        }),
        ..Device::default()
    };
    let loss = completed(&mut device, &plan(text)).remove(0);
    let told: Vec<_> = loss
        .curve
        .iter()
        .map(|row| row.loss_pct.is_some())
        .collect();
    assert_eq!(told, [true, false, true, true, true]);
    let mut device = Device::default();
    let text = format!("{text}[procedure.suite.search]\nbudget = \"30s\"\n");
    let run = suite::run(&mut device, &plan(&text));
    let loss = &run.results[0];
    assert!(loss.incomplete && !loss.confirmed);
    assert!(
        loss.notes.iter().any(|n| n.contains("time ran out")),
        "{:?}",
        loss.notes
    );
    assert!(loss.curve.len() < 5, "{:?}", loss.curve);
}

/// A load that passed once and failed on confirmation is not the limit of an interrupted suite.
#[test]
fn an_end_after_a_result_that_did_not_hold_again() {
    let text = PLAN.replace("search = \"10s\"", "search = \"1s\"");
    let mut device = Device {
        noise: Box::new(|trial, _| u64::from(trial == 12)),
        stop_after: 12,
        ..Device::default()
    };
    let run = suite::run(&mut device, &plan(&text));
    let result = &run.results[0];
    let failed = result.trial_log.last().unwrap();
    assert_eq!(failed.outcome, TrialOutcome::Fail);
    let passed_once = |t: &&wb_model::bench::SuiteTrial| t.intended == failed.intended;
    assert_eq!(searched(result).filter(passed_once).count(), 2);
    assert!(result.limit.unwrap() < failed.intended, "{result:?}");
}

/// The bounds of a search never contradict each other, regardless of random loss.
#[test]
fn bounds_are_told_apart_after_chance() {
    // By bisection with a repetition, and guided by the forwarded rate, with the last result at a load.
    let halves = PLAN.replace("budget", "repeats = 1\nbudget");
    let ladder = PLAN.replace("resolution", "precision");
    for (text, chance) in [halves, ladder]
        .iter()
        .flat_map(|text| (1..=12).map(move |n| (text, n)))
    {
        let mut device = Device {
            noise: Box::new(move |trial, _| if trial == chance { 50 } else { 0 }),
            ..Device::default()
        };
        completed(&mut device, &plan(text));
        let bounds = device
            .told
            .iter()
            .filter_map(|live| live.low.zip(live.high));
        bounds.for_each(|(low, high)| assert!(low < high, "{low} {high}, chance in {chance}"));
    }
}

const CLOSE: &str = r#"
    tests = ["throughput"]
    [procedure.suite.times]
    trial = "1s"
    search = "400ms"
    [procedure.suite.search]
    precision = "0.5%"
"#;

/// A pass in one direction does not cast doubt on a failure in the other.
#[test]
fn of_two_directions_the_weaker_decides() {
    let find = |capacity, back| {
        let mut device = Device {
            capacity,
            capacity_back: Some(back),
            ceiling: 8e6,
            ..Device::default()
        };
        let mut plan = plan(CLOSE);
        plan.traffic[0].bidir = true;
        completed(&mut device, &plan).remove(0)
    };
    let alike = find(1e6, 1e6);
    assert_eq!(alike.notes, Vec::<String>::new());
    for other in [find(1e6, 8e6), find(8e6, 1e6)] {
        assert_near(other.limit.unwrap(), alike.limit.unwrap(), 5e3);
        assert!(
            other.trials <= alike.trials + 1,
            "{} {}",
            other.trials,
            alike.trials
        );
        assert_eq!(other.notes, alike.notes);
    }
}

#[test]
fn a_failure_that_another_trial_contradicts_is_tried_again() {
    let text = CLOSE;
    let capacity = Device::default().capacity;
    // Random loss in one trial, after others of its length that carried more: short ones, and those that confirm. The
    // loss in those leads the search there.
    let short: (u32, &[(u32, f64)], f64) = (3, &[(2, 0.1)], 0.995);
    let full: (u32, &[(u32, f64)], f64) = (7, &[(5, 0.01), (6, 0.0004)], 0.985);
    for (chance, lost_before, least) in [short, full] {
        let mut device = Device {
            ceiling: 1.5 * capacity,
            noise: Box::new(move |trial, load| {
                let before = lost_before.iter().find(|(number, _)| *number == trial);
                match before {
                    Some((_, share)) => (share * load) as u64,
                    None => 50 * u64::from(trial == chance),
                }
            }),
            ..Device::default()
        };
        let result = completed(&mut device, &plan(text)).remove(0);
        let log: Vec<_> = searched(&result).collect();
        let [failed, again] = [log[chance as usize - 1], log[chance as usize]];
        assert_eq!(failed.outcome, TrialOutcome::Fail);
        assert_eq!(again.outcome, TrialOutcome::Pass, "{:?}", result.trial_log);
        assert_eq!(again.intended, failed.intended);
        let twice = log.windows(2).filter(|w| w[0].intended == w[1].intended);
        let confirms = twice.filter(|w| w[0].purpose == w[1].purpose).count();
        assert_eq!(confirms, 1, "only that is doubted: {:?}", result.trial_log);
        assert!(result.limit.unwrap() > least * capacity, "{result:?}");
        let told = |note: &String| note.starts_with("a load failed although another trial");
        assert!(result.notes.iter().any(told), "{:?}", result.notes);
    }
}
