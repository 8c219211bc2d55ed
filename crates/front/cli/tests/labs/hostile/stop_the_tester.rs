//! Stops the tester: for 80 ms each second, for a second in the middle, before the first frame. Frames
//! not sent are unsent, catch-up is reported, a trial is void if the stop may have affected
//! it, and no other component is blamed.

use std::{
    fs::{self, File},
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kit::{Lab, Running, assert_adds_up, listening, privileged, system, total, wirebench},
    netperf::{SERVER_V4, Server, ours_going_on},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a run has a thread with a name that begins with `thread`.
pub(super) fn begun(running: &Running, thread: &str) {
    let tasks = format!("/proc/{}/task", running.0.id());
    let begin = Instant::now();
    let there = || {
        let entries = fs::read_dir(&tasks).ok()?;
        let mut names =
            entries.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.any(|name| name.starts_with(thread)).then_some(())
    };
    while there().is_none() {
        assert!(begin.elapsed() < PATIENCE, "no thread {thread}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn stop_for(running: &Running, ms: u64) {
    running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(ms));
    running.signal(Signal::CONT);
}

/// Stops it for 80 ms of each half second, until it has ended.
fn hamper(mut running: Running) -> Output {
    while running.0.try_wait().expect("wait").is_none() {
        stop_for(&running, 80);
        std::thread::sleep(Duration::from_millis(420));
    }
    running.finish(PATIENCE)
}

fn report_of(output: &Output) -> (i32, Value) {
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    assert_adds_up(&report);
    (output.status.code().expect("it ended by itself"), report)
}

fn late(report: &Value, key: &str) -> u64 {
    let n = report["lateness"][key].as_u64();
    n.unwrap_or_else(|| panic!("no {key} in {}", report["lateness"]))
}

/// Checks that the tester stalled at least `times` times, and reports for how long.
#[track_caller]
fn assert_away(report: &Value, times: u64, ms: u64) {
    let lateness = &report["lateness"];
    assert!(late(report, "stalls") >= times, "{lateness}");
    // Part of the stop may coincide with an intended sleep.
    assert!(
        late(report, "largest_gap_ns") >= (ms - 25) * 1_000_000,
        "{lateness}"
    );
}

/// Checks that the trial is void for lateness, and that nothing else is blamed.
#[track_caller]
fn assert_void(code: i32, report: &Value) {
    let reason = report["reason"].as_str().unwrap();
    assert_eq!(
        (code, &report["verdict"]),
        (3, &"invalid".into()),
        "{reason}"
    );
    assert!(reason.contains("the tester was late"), "{reason}");
    // Failed criteria follow the cause.
    let cause = report["lateness"]["may_have_caused"].as_str().unwrap();
    assert!(reason.starts_with(cause), "{reason}");
    let by = report["limited_by"].as_str().unwrap();
    assert!(by.starts_with("the tester: "), "{by}");
    assert!(!by.contains("the device"), "{by}");
}

/// A trial of 4 kpps unless another rate is given, JSON at its end.
fn trial(lab: &Lab, options: &[&str]) -> Running {
    let (a0, b0) = (lab.a0(), lab.b0());
    let line = ["trial", "--tx", &a0, "--rx", &b0, "--json", "-q"];
    let rate: &[&str] = match options.contains(&"--rate") {
        true => &[],
        false => &["--rate", "4kpps"],
    };
    Running::start(&[&line[..], rate, options].concat())
}

/// Lets `pps` frames of 64 bytes per second through, with a small buffer.
fn narrow(node: &str, interface: &str, pps: u64) {
    // Without FCS, as the kernel counts.
    let rate = format!("{}bit", pps * 60 * 8);
    let words = [
        "netns", "exec", node, "tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate",
        &rate, "burst", "3000", "limit", "3000",
    ];
    let output = system("ip", &words);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_device_is_not_blamed_for_what_was_made_up() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("router", &[]);
    narrow(&lab.node("dut"), "db", 6_000);
    let running = trial(&lab, &["--duration", "2s", "--max-loss", "0"]);
    begun(&running, "wb-tx");
    let (code, report) = report_of(&hamper(running));
    assert_away(&report, 2, 80);
    let (lost, late) = (total(&report, "lost"), late(&report, "late_departures"));
    assert!(lost > 0 && late >= lost, "{lost} lost, {late} late");
    assert_void(code, &report);

    // Losses above that are the device's, late or not.
    let running = trial(
        &lab,
        &["--duration", "2s", "--max-loss", "0", "--rate", "20kpps"],
    );
    begun(&running, "wb-tx");
    let (code, report) = report_of(&hamper(running));
    assert_eq!(
        (code, &report["verdict"]),
        (1, &"fail".into()),
        "{}",
        report["reason"]
    );
    let by = report["limited_by"].as_str().unwrap();
    assert!(
        by.contains("the device or the path") && by.contains("because of tester stalls"),
        "{by}"
    );
}

#[test]
fn what_a_stopped_sender_did_not_send_was_not_carried() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    for criterion in [&["--max-loss", "0"][..], &[]] {
        let running = trial(&lab, &[&["--duration", "2s"], criterion].concat());
        begun(&running, "wb-tx");
        std::thread::sleep(Duration::from_millis(500));
        stop_for(&running, 1_000);
        let (code, report) = report_of(&running.finish(PATIENCE));
        assert_away(&report, 1, 1_000);
        // All but the tenth of a second that is made up for.
        let (unsent, missed) = (total(&report, "unsent"), late(&report, "missed_departures"));
        assert!(
            unsent > 3_000 && unsent.abs_diff(missed) <= unsent / 10,
            "{unsent}, {missed}"
        );
        // With criteria and without.
        assert_void(code, &report);
    }
}

#[test]
fn a_run_that_was_stopped_before_its_first_frame_is_void() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let printed = wirebench()
        .args([
            "trial",
            "--tx",
            &lab.a0(),
            "--rx",
            &lab.b0(),
            "--print-plan",
        ])
        .args(["--rate", "4kpps", "--duration", "300ms", "--max-loss", "0"])
        .output()
        .unwrap();
    // Time to stop it in.
    let text = String::from_utf8(printed.stdout).unwrap();
    let text = text.replacen(
        "duration = \"300ms\"",
        "duration = \"300ms\"\nstart = \"400ms\"",
        1,
    );
    assert!(text.contains("start = \"400ms\""), "{text}");
    let plan = dir.path().join("plan.toml");
    fs::write(&plan, text).unwrap();
    let running = Running::start(&["run", plan.to_str().unwrap(), "--json", "-q"]);
    begun(&running, "wb-tx");
    // The start time is set once all threads exist.
    std::thread::sleep(Duration::from_millis(100));
    stop_for(&running, 1_200);
    let (code, report) = report_of(&running.finish(PATIENCE));
    assert_eq!(total(&report, "offered"), 0, "{}", report["totals"]);
    assert_away(&report, 1, 600);
    assert_void(code, &report);
}

#[test]
fn a_load_tells_how_late_it_was_and_blames_nobody() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let (a0, b0) = (lab.a0(), lab.b0());
    let line = [
        "load",
        "--json",
        "-q",
        "--client",
        &a0,
        "--server",
        &b0,
        "--cps",
        "500",
        "--duration",
        "2s",
        "--criteria",
        "failed<=0%",
    ];
    let running = Running::start(&line);
    begun(&running, "wb-load");
    let (code, report) = report_of(&hamper(running));
    assert_away(&report, 2, 80);
    match code {
        0 => assert_eq!(report["verdict"], "pass"),
        _ => assert_void(code, &report),
    }
    // New connections, and connections that send requests at intervals.
    for load in [
        &["--cps", "500"][..],
        &["--cc", "50", "--every", "10ms"],
        &["--udp", "--cc", "50", "--every", "10ms"],
    ] {
        let line = [&line[..7], load, &line[9..]].concat();
        let running = Running::start(&line);
        begun(&running, "wb-load");
        std::thread::sleep(Duration::from_millis(500));
        // Longer than any timeout of the connections.
        stop_for(&running, 1_500);
        let (code, report) = report_of(&running.finish(PATIENCE));
        assert_away(&report, 1, 1_500);
        assert!(
            late(&report, "missed_departures") > 100,
            "{load:?} {}",
            report["lateness"]
        );
        assert_void(code, &report);
    }
}

#[test]
fn devices_and_watches_tell_how_late_they_were() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan.toml");
    let text = format!(
        "kind = \"pktgen\"\n\
         [[port]]\nname = \"a\"\nlocator = \"{}\"\n\
         [[port]]\nname = \"b\"\nlocator = \"{}\"\n\
         [[device]]\nport = \"a\"\n[device.settings]\nname = \"a0\"\ncount = 8000\ndelay = \"250000\"\n\
         min_size = 60\nmax_size = 60\n\
         [[watch]]\nport = \"b\"\n",
        lab.a0(),
        lab.b0()
    );
    fs::write(&plan, text).unwrap();
    let running = Running::start(&["run", plan.to_str().unwrap(), "--json", "-q"]);
    begun(&running, "wb-pktgend");
    let (code, report) = report_of(&hamper(running));
    assert!(matches!(code, 0 | 3), "{report}");
    assert_away(&report, 4, 80);
    // No frames are given up: a device sends all overdue frames.
    assert_eq!(total(&report, "offered"), 8_000);
    assert!(
        late(&report, "late_departures") > 300,
        "{}",
        report["lateness"]
    );
    for worker in report["workers"].as_array().unwrap() {
        assert!(
            worker["lateness"]["stalls"].as_u64().unwrap() > 0,
            "{worker}"
        );
    }
}

#[test]
fn a_capture_says_that_it_was_late_itself() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let mut command = wirebench();
    command
        .args([
            "capture",
            "--json",
            "-i",
            &lab.b0(),
            "--ring",
            "512KiB",
            "--block-size",
            "64KiB",
            "--duration",
            "3s",
        ])
        .arg("-w")
        .arg(dir.path().join("all.pcap"));
    let running = listening(dir.path(), &mut command);
    let sender = Running::start(&[
        "tx",
        "-i",
        &lab.a0(),
        "-q",
        "--rate",
        "40kpps",
        "--duration",
        "2s",
    ]);
    std::thread::sleep(Duration::from_millis(700));
    stop_for(&running, 1_000);
    sender.finish(PATIENCE);
    let output = running.finish(PATIENCE);
    let report: Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("report.json")).unwrap()).unwrap();
    assert_away(&report, 1, 1_000);
    let dropped = total(&report, "rx_dropped");
    assert!(dropped > 0, "{}", report["capture"]);
    assert_eq!(late(&report, "dropped_reads"), dropped);
    // It promises to keep all, and did not.
    assert_eq!(
        (output.status.code(), &report["verdict"]),
        (Some(3), &"invalid".into())
    );
    let by = report["limited_by"].as_str().unwrap();
    assert!(
        by.starts_with("the tester: readers were late (") && by.contains(" stall"),
        "{by}"
    );
}

#[test]
fn a_socket_test_tells_how_late_it_was() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    let words = [
        "netperf", "--json", "--", "-H", SERVER_V4, "-t", "TCP_RR", "-l", "2",
    ];
    let running = ours_going_on(&lab.node("a"), &words);
    std::thread::sleep(Duration::from_millis(600));
    stop_for(&running, 300);
    std::thread::sleep(Duration::from_millis(300));
    stop_for(&running, 300);
    let output = running.finish(PATIENCE);
    server.end();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_away(&report, 2, 300);
}

/// The device carries 6,000 frames per second, whatever happens to the tester.
#[test]
fn a_search_finds_the_devices_limit_or_none() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("balancer", &[]);
    narrow(&lab.node("lb"), "ds", 6_000);
    // Writes to a file: a pipe would not be read before the end.
    let dir = tempfile::tempdir().unwrap();
    let (printed, said) = (dir.path().join("printed"), dir.path().join("said"));
    let child = wirebench()
        .args([
            "bench",
            "lb",
            "--lab",
            &lab.name,
            "--only",
            "oneway-pps",
            "--json",
        ])
        .args([
            "--trial",
            "1s",
            "--confirm",
            "1s",
            "--budget",
            "20s",
            "--max",
            "20k",
        ])
        .stdin(Stdio::null())
        .stdout(File::create(&printed).unwrap())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let output = hamper(Running(child));
    let said = fs::read_to_string(&said).unwrap();
    let report: Value = serde_json::from_str(&fs::read_to_string(&printed).unwrap())
        .unwrap_or_else(|e| panic!("{e}: {said}"));
    let result = &report["results"][0];
    match result["limit"].as_f64() {
        // The limit is a load of one trial, and a trial above it was late. The tester's limit says nothing about more.
        Some(limit) if result["limited_by"] == "tester" => {
            assert!(limit <= 6_060.0, "{limit}: {said}");
            let trials = result["trials"].as_array().unwrap();
            let is = |t: &Value, outcomes: &[&str]| outcomes.iter().any(|o| t["outcome"] == *o);
            let showed = |t: &&Value| is(t, &["held", "unoffered"]) && t["offered"] == limit;
            assert!(trials.iter().any(|t| showed(&t)), "{limit}: {said}");
            let beyond = |t: &&Value| {
                is(t, &["late", "unoffered", "unread"]) && t["asked"].as_f64() > Some(limit)
            };
            assert!(trials.iter().any(|t| beyond(&t)), "{limit}: {said}");
        }
        Some(limit) => assert!((5_600.0..=6_060.0).contains(&limit), "{limit}: {said}"),
        None => {
            assert_eq!(report["verdict"], "invalid", "{said}");
            assert_eq!(result["limited_by"], "tester", "{said}");
            let reason = report["reason"].as_str().unwrap();
            assert!(reason.starts_with("the tester was late"), "{reason}");
            assert_eq!(output.status.code(), Some(3));
        }
    }
}
