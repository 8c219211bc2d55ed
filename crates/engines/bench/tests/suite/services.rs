//! Services of Y.1564, each evaluated against its own guarantees.

use wb_bench::{BenchEnd, suite};
use wb_model::{
    Plan, Verdict,
    bench::{ServiceStep, SuiteResult},
};

use crate::{
    completed,
    device::{Device, Mishap},
    plan_of,
};

/// Voice, video, and a download alongside them.
const SERVICES: &str = r#"
    [[port]]
    name = "tx"
    locator = "eth8"
    [[port]]
    name = "rx"
    locator = "eth9"
    [[port]]
    name = "tx2"
    locator = "eth10"
    [[port]]
    name = "rx2"
    locator = "eth11"
    [[traffic]]
    name = "film"
    tx = "tx"
    rx = "rx"
    [[traffic.stream]]
    size = "1000"
    [[traffic]]
    name = "download"
    tx = "tx2"
    rx = "rx2"
    [[traffic.stream]]
    rate = "500pps"
    [[traffic]]
    name = "call"
    tx = "tx"
    rx = "rx"
    [[traffic.stream]]
    size = "250"
    [procedure.suite]
    tests = ["y1564"]
    [[procedure.suite.service]]
    name = "voice"
    job = "call"
    cir = "2mbps-l2"
    delay = "1ms"
    availability = "99%"
    performance = "60s"
    [[procedure.suite.service]]
    name = "video"
    job = "film"
    cir = "16mbps-l2"
    eir = "8mbps-l2"
    loss = "1%"
    performance = "90s"
"#;

fn plan() -> Plan {
    plan_of(SERVICES)
}

/// A device that polices both services as contracted.
fn device() -> Device {
    Device {
        // Voice is policed at 1.25 of its CIR, video at CIR and EIR.
        passes: Some(|load| match load {
            1250.0 => 1000.0,
            load => load.min(3000.0),
        }),
        ..Device::default()
    }
}

fn together<'r>(result: &'r SuiteResult, service: &str) -> &'r ServiceStep {
    let mut steps = result.steps.iter();
    let own = |s: &&ServiceStep| s.service == service && s.step.starts_with("performance, all");
    steps.find(own).unwrap()
}

fn verdicts(result: &SuiteResult) -> Vec<(&str, Verdict)> {
    let all = result.services.iter();
    all.map(|s| (s.service.as_str(), s.verdict)).collect()
}

/// Rates of the services in each trial of the suite without the ceiling trials, frames per second.
fn sent(device: &Device) -> Vec<Vec<(String, f64)>> {
    let trials = device.plans.iter().skip(3);
    let jobs = trials.map(|plan| plan.traffic.iter());
    jobs.map(|jobs| {
        jobs.map(|job| {
            let rates = job.streams.iter().map(|s| s.frames_per_second(None));
            let sum: f64 = rates
                .map(|rate| rate.map_or(f64::NAN, |r| r.as_f64()))
                .sum();
            (job.name.clone(), sum)
        })
        .collect()
    })
    .collect()
}

#[test]
fn each_by_itself_and_then_all_together() {
    let mut device = device();
    device.shared.insert("voice", (1000.0, 40_000));
    let result = completed(&mut device, &plan()).remove(0);
    let sent = sent(&device);
    let (last, alone) = sent.split_last().unwrap();
    let download = || ("download".to_owned(), 500.0);
    // Frames of 250 bytes and of 1000 bytes, each without the other service and alongside the job without one.
    let film = [0.25, 0.5, 0.75, 1.0, 1.5, 1.625].map(|share| ("film", 2000.0 * share));
    let call = [0.25, 0.5, 0.75, 1.0, 1.25].map(|share| ("call", 1000.0 * share));
    let expected: Vec<_> = call
        .into_iter()
        .chain(film)
        .map(|(name, load)| vec![(name.to_owned(), load), download()])
        .collect();
    assert_eq!(alone, expected);
    // Streams of one job, because a port sends for one job.
    let plan = device.plans.last().unwrap();
    let streams = plan.traffic[0].streams.iter();
    let streams: Vec<_> = streams
        .map(|s| (s.name.as_str(), s.frames_per_second(None).unwrap().as_f64()))
        .collect();
    assert_eq!(streams, [("voice", 1000.0), ("video", 2000.0)]);
    assert_eq!(last[1..], [download()]);
    let (voice, video) = (together(&result, "voice"), together(&result, "video"));
    let rates = |step: &ServiceStep| (step.offered_bps, step.received_bps, step.duration_s);
    assert_eq!(rates(voice), (2e6, 2e6, 90.0));
    assert_eq!(rates(video), (16e6, 16e6, 90.0));
    assert_eq!(
        [voice, video].map(|step| step.delay_max_ns),
        [Some(40_000), Some(20_000)]
    );
    assert_eq!(voice.availability, Some(1.0));
    assert!(
        result.steps.iter().all(|step| step.passed),
        "{:#?}",
        result.steps
    );
    assert_eq!(
        verdicts(&result),
        [("voice", Verdict::Pass), ("video", Verdict::Pass)]
    );
    assert!(result.confirmed);
    let counts = result.services.iter().map(|s| (s.steps, s.passed));
    assert_eq!(counts.collect::<Vec<_>>(), [(6, 6), (7, 7)]);
    // Step of a trial. The forwarded rate never exceeds the offered one, despite rounding to whole frames.
    let log = &result.trial_log;
    let step = |n: usize| log[n].step.as_str();
    assert_eq!((step(0), step(10)), ("voice CIR 25 %", "video policing"));
    assert_eq!(step(11), "performance, all services together");
    assert!(log.iter().all(|trial| trial.forwarded <= trial.offered));
    // One line of the log is the sum of both.
    let trial = result.trial_log.last().unwrap();
    assert_eq!(
        (trial.intended, trial.offered, trial.tx),
        (3000.0, 3000.0, 270_000)
    );
}

/// A violation of one service does not affect the others.
#[test]
fn one_fails_for_itself() {
    for (passes, delay, reason) in [
        (1000.0, 1_200_000, "delay 1200000 ns, promised 1ms"),
        (900.0, 20_000, "9000 of 90000 frames lost"),
    ] {
        let mut device = device();
        device.shared.insert("voice", (passes, delay));
        let result = completed(&mut device, &plan()).remove(0);
        let told = verdicts(&result);
        assert_eq!(told, [("voice", Verdict::Fail), ("video", Verdict::Pass)]);
        assert_eq!(together(&result, "voice").reason, reason);
        assert!(!result.confirmed);
        let whole = format!("performance, all services together: {reason}");
        assert_eq!(result.services[0].reason, whole);
    }
    // Each has separate limits: voice may lose less than video.
    let mut device = device();
    device.shared.insert("video", (1980.0, 20_000));
    let result = completed(&mut device, &plan()).remove(0);
    assert_eq!(together(&result, "video").loss_ratio, 0.01);
    assert!(result.confirmed, "{:#?}", result.services);
    device.shared.insert("voice", (990.0, 20_000));
    let result = completed(&mut device, &plan()).remove(0);
    assert_eq!(
        verdicts(&result),
        [("voice", Verdict::Fail), ("video", Verdict::Pass)]
    );
}

#[test]
fn ten_seconds_away_are_a_promise_broken() {
    let mut plan = plan();
    let suite = plan.procedure.as_mut().unwrap();
    let wb_model::plan::Procedure::Suite(suite) = suite else {
        unreachable!()
    };
    suite.services[0].loss = wb_model::bench::Share(0.2);
    for (to, available, verdict) in [
        (29, 1.0, Verdict::Pass),
        (30, 1.0 - 10.0 / 90.0, Verdict::Fail),
    ] {
        let mut device = Device {
            away: Some(("voice", 20, to)),
            ..device()
        };
        let result = completed(&mut device, &plan).remove(0);
        let voice = together(&result, "voice");
        let own = voice.availability.unwrap();
        assert!((own - available).abs() < 1e-9, "{own}");
        assert_eq!(voice.passed, verdict == Verdict::Pass, "{voice:?}");
        assert_eq!(result.services[0].verdict, verdict);
        // The others were available.
        assert_eq!(together(&result, "video").availability, Some(1.0));
    }
}

/// Interrupted by the user: the current step is reported with its actual time.
#[test]
fn an_end_before_the_end() {
    let time = std::time::Duration::from_millis(3500);
    let cut = |trial: u32| Device {
        mishap: Box::new(move |n, _| (n == trial).then_some(Mishap::SignalAfter(time))),
        ..device()
    };
    let run = suite::run(&mut cut(12), &plan());
    assert!(matches!(run.end, BenchEnd::Interrupted), "{:?}", run.end);
    let result = &run.results[0];
    assert!(result.incomplete && !result.confirmed);
    // Seconds of the two services, in complete and incomplete steps.
    let voice = together(result, "voice");
    assert_eq!(
        (voice.passed, voice.void, voice.duration_s),
        (false, true, 3.5)
    );
    assert_eq!((voice.offered_bps, voice.received_bps), (2e6, 2e6));
    assert_eq!(voice.availability, None);
    let trial = result.trial_log.last().unwrap();
    assert_eq!((trial.duration_s, trial.tx), (3.5, 3500 + 7000));
    assert!(trial.reason.contains("signal"), "{}", trial.reason);
    assert_eq!(
        verdicts(result),
        [("voice", Verdict::Invalid), ("video", Verdict::Invalid)]
    );
    // In the second step of the second service, the first one is incomplete too.
    let run = suite::run(&mut cut(7), &plan());
    let result = &run.results[0];
    assert_eq!(result.steps.len(), 7);
    let last = result.steps.last().unwrap();
    assert_eq!((last.duration_s, last.void), (3.5, true));
    assert_eq!(result.trial_log.last().unwrap().duration_s, 3.5);
    assert_eq!(
        verdicts(result),
        [
            ("voice", Verdict::Incomplete),
            ("video", Verdict::Incomplete)
        ]
    );
    assert!(result.trial_seconds < 64.0, "{}", result.trial_seconds);
}

/// Unsent frames are not a failure of a service.
#[test]
fn a_trial_that_was_not_offered() {
    let mut device = Device {
        mishap: Box::new(|trial, _| (trial >= 12).then_some(Mishap::Sent(0.5))),
        ..device()
    };
    let result = completed(&mut device, &plan()).remove(0);
    for service in ["voice", "video"] {
        let step = together(&result, service);
        assert!(step.void && !step.passed, "{step:?}");
    }
    assert_eq!(
        verdicts(&result),
        [("voice", Verdict::Invalid), ("video", Verdict::Invalid)]
    );
    // It was tried twice.
    assert_eq!(device.trials, 13);
}

/// Two services send at separate ports. One is void and the other fails: the trial is repeated for the void one.
#[test]
fn a_void_service_beside_one_that_fails() {
    let second = SERVICES.replacen(
        "tx = \"tx\"\n    rx = \"rx\"",
        "tx = \"tx2\"\n    rx = \"rx2\"",
        1,
    );
    let second = second.replace(
        "name = \"download\"\n    tx = \"tx2\"\n    rx = \"rx2\"",
        "name = \"download\"\n    tx = \"tx3\"\n    rx = \"rx3\"",
    );
    let ports = "[[port]]\n    name = \"tx3\"\n    locator = \"eth12\"\n    [[port]]\n    name = \"rx3\"\n    locator = \"eth13\"\n    [[traffic]]\n    name = \"film\"";
    let plan = plan_of(&second.replace("[[traffic]]\n    name = \"film\"", ports));
    let mut device = Device {
        mishap: Box::new(|trial, _| (trial == 12).then_some(Mishap::Sent(0.5))),
        ..device()
    };
    device.shared.insert("video", (1000.0, 20_000));
    let result = completed(&mut device, &plan).remove(0);
    assert_eq!(device.plans.last().unwrap().traffic.len(), 3);
    assert_eq!(device.trials, 13);
    assert_eq!(
        verdicts(&result),
        [("voice", Verdict::Pass), ("video", Verdict::Fail)]
    );
}

/// The delay of a step varies, and no load exceeds the line rate.
#[test]
fn variation_and_the_line() {
    let one = "tests = [\"y1564\"]\n[[procedure.suite.service]]\ncir = \"700mbps-l2\"\nvariation = \"50us\"\nperformance = \"10s\"\n";
    for (jitter_ns, passes) in [(50_000, true), (50_001, false)] {
        let mut device = Device {
            line_bps: Some(1_000_000_000),
            passes: Some(|load| load.min(700e6 / 512.0)),
            jitter_ns,
            ..Device::default()
        };
        let result = completed(&mut device, &crate::plan(one)).remove(0);
        let first = &result.steps[0];
        assert_eq!(first.variation_ns, Some(jitter_ns));
        assert_eq!(first.passed, passes, "{first:?}");
        // 1.25 of CIR are 875 Mbit/s, and with frames of 64 bytes the line carries 762.
        let policing = result.steps.iter().find(|s| s.step == "policing").unwrap();
        assert!(
            (policing.offered_bps - 1e9 * 64.0 / 84.0).abs() < 1.0,
            "{policing:?}"
        );
        assert!(
            result.notes[0].contains("load reduced to line rate"),
            "{:?}",
            result.notes
        );
    }
}
