//! A benchmark that is interrupted, or loses its link during the run: results so far are kept, and
//! the device is not blamed.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Lab, Running, eventually, privileged, system, wirebench};

const PATIENCE: Duration = Duration::from_secs(60);

/// A search for the packet rate below 2 kpps, after it has printed `word`.
fn begun(lab: &Lab, dir: &Path, times: [&str; 2], word: &str) -> Running {
    let said = dir.join("said");
    let line = format!(
        "bench lb --lab {} --only oneway-pps --max 2k --budget 60s --trial {} --confirm {} --json",
        lab.name, times[0], times[1],
    );
    let running = wirebench()
        .args(line.split(' '))
        .stdout(File::create(dir.join("report.json")).unwrap())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .map(Running)
        .unwrap();
    let begin = Instant::now();
    loop {
        let text = fs::read_to_string(&said).unwrap();
        if text.contains(word) {
            return running;
        }
        let waited = begin.elapsed();
        assert!(waited < PATIENCE, "no {word:?} within {waited:?}: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a trial sends: the servers' port has received more than the frames before a trial.
fn sending(lab: &Lab) {
    let received = || {
        let node = lab.node("server");
        let shown = system("ip", &["-n", &node, "-s", "-j", "link", "show", "s0"]);
        let links: Value = serde_json::from_slice(&shown.stdout).unwrap();
        links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    };
    let before = received();
    eventually("frames arrive", || received() > before + 500);
}

/// Its exit code, its report, and its only result.
fn ended(running: Running, dir: &Path) -> (Option<i32>, Value, Value) {
    let output = running.finish(PATIENCE);
    let text = fs::read_to_string(dir.join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {}", fs::read_to_string(dir.join("said")).unwrap()));
    let result = report["results"][0].clone();
    (output.status.code(), report, result)
}

#[test]
fn an_end_before_its_time_keeps_what_held() {
    if !privileged() {
        return;
    }
    // A load passes if 98 % of it was sent in time: no pause of the machine may be longer than 40 ms.
    let lab = Lab::alone("balancer", &[]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let dir = tempfile::tempdir().unwrap();
        let running = begun(&lab, dir.path(), ["2s", "30s"], "pass:");
        sending(&lab);
        running.signal(signal);
        let (ended, report, result) = ended(running, dir.path());
        assert_eq!(
            (ended, &report["verdict"]),
            (Some(code), &"incomplete".into())
        );
        // The limit is the load that held, and the device is not reported as the limiting component.
        let limit = result["limit"].as_f64().expect("what held");
        // A load passes if at least 98 % of it was sent.
        assert!((1_960.0..=2_000.0).contains(&limit), "{limit}");
        assert_eq!(
            (&result["limited_by"], &result["confirmed"]),
            (&"time".into(), &false.into())
        );
        let trials = result["trials"].as_array().unwrap();
        let cut = trials.last().unwrap();
        assert_eq!(
            (&cut["outcome"], &cut["purpose"]),
            (&"cut".into(), &"confirm".into())
        );
        assert!(cut["ours"]["sent_frames"].as_u64() > Some(100), "{cut}");
    }
}

#[test]
fn a_link_that_was_down_is_no_limit_of_the_device() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("balancer", &[]);
    let dir = tempfile::tempdir().unwrap();
    let running = begun(&lab, dir.path(), ["4s", "500ms"], "oneway");
    sending(&lab);
    let node = lab.node("server");
    for state in ["down", "up"] {
        let set = system("ip", &["-n", &node, "link", "set", "s0", state]);
        assert!(set.status.success());
        std::thread::sleep(Duration::from_millis(300));
    }
    let (code, report, result) = ended(running, dir.path());
    let trials = result["trials"].as_array().unwrap();
    assert_eq!(trials[0]["outcome"], "cut", "{}", trials[0]);
    let reason = trials[0]["reason"].as_str().unwrap();
    assert!(reason.contains("s0 went down"), "{reason}");
    assert!(trials[0]["warnings"][0].is_string(), "{}", trials[0]);
    // It was made again, with the load unchanged.
    assert_eq!(trials[1]["asked"], trials[0]["asked"]);
    // A tester that was late on a busy machine finds no limit at all.
    let limited_by = result["limited_by"].as_str().unwrap();
    assert!(
        matches!((code, limited_by), (Some(0), "plan") | (Some(3), "tester")),
        "{code:?} {limited_by}: {}",
        report["reason"]
    );
}
