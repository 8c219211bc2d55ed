//! Suites of tests on the lab `router` of known capacity: results of a search, and its end when it is
//! disturbed.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Lab, Running, privileged, run, system, wirebench};
use crate::turns::Turn;

/// Maximum duration of any of these benchmarks on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Rate limit of the router, in bit/s without FCS.
const LIMIT: f64 = 20e6;
const SIZE: f64 = 512.0;

/// The options of a short search in a lab.
fn options(lab: &Lab, more: &[&str]) -> Vec<String> {
    let own = [
        "--tx",
        &lab.a0(),
        "--rx",
        &lab.b0(),
        "--fast",
        "--isolated",
        "--sizes",
        "512",
        "--max",
        "40kpps",
        "--no-ceiling",
        "--json",
        "--quiet",
    ];
    own.iter()
        .chain(more)
        .map(|word| (*word).to_owned())
        .collect()
}

fn bench(lab: &Lab, test: &str, more: &[&str]) -> (Option<i32>, Value) {
    let options = options(lab, more);
    let line: Vec<&str> = ["bench", test]
        .into_iter()
        .chain(options.iter().map(String::as_str))
        .collect();
    let output = run(&line);
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    (output.status.code(), report)
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Each trial's frames are accounted for.
fn assert_trials_add_up(report: &Value) {
    for result in report["results"].as_array().unwrap() {
        let trials = result["trial_log"].as_array().unwrap();
        assert!(!trials.is_empty(), "{result}");
        for trial in trials {
            let count = |key: &str| trial[key].as_u64().unwrap();
            assert_eq!(
                count("rx") - count("dup") + count("lost"),
                count("tx"),
                "{trial}"
            );
        }
    }
}

/// Frames per second that the router's bucket allows in a trial of `seconds` seconds.
fn allowed(seconds: f64) -> (f64, f64) {
    let octets = SIZE - 4.0;
    let steady = LIMIT / 8.0 / octets;
    // Bucket and queue may be full before, and let that much more through.
    let burst = (LIMIT / 8.0 * 0.012).max(2.0 * 15_220.0) / octets;
    (steady, steady + burst / seconds)
}

/// Returns true if the machine left the tester enough time to measure the device.
fn is_of_device(report: &Value) -> bool {
    report["results"][0]["limited_by"] == "device"
}

#[test]
fn throughput_is_what_the_router_lets_through() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("router", &["--limit", "20mbit"]);
    let criteria = ["--criteria", "throughput>=3k,512.throughput>=20mbps-l2"];
    for attempt in 1.. {
        let more = [&["--tests", "throughput"][..], &criteria].concat();
        let (code, report) = bench(&lab, "rfc2544", &more);
        assert_trials_add_up(&report);
        let result = &report["results"][0];
        if !is_of_device(&report) && attempt < 4 {
            continue;
        }
        let found = number(&result["throughput_fps"]);
        let (least, most) = allowed(1.0);
        assert!(
            (least * 0.98..most * 1.02).contains(&found),
            "{found} of {least} to {most}: {result}"
        );
        assert_eq!(
            (code, &report["verdict"]),
            (Some(0), &"pass".into()),
            "{}",
            report["criteria"]
        );
        assert_eq!(result["loss_goal"], 0.0);
        assert!(
            number(&result["throughput_l2_bps"]) > LIMIT * 0.98,
            "{result}"
        );
        assert!(number(&result["beyond"]) > found, "{result}");
        break;
    }
    // A criterion that a device of this capacity cannot reach.
    let more = ["--tests", "throughput", "--criteria", "throughput>=30k"];
    for attempt in 1.. {
        let (code, report) = bench(&lab, "rfc2544", &more);
        if is_of_device(&report) || attempt == 4 {
            assert_eq!(
                (code, &report["verdict"]),
                (Some(1), &"fail".into()),
                "{report}"
            );
            break;
        }
    }
}

/// A throughput test that has printed `word`.
fn begun(lab: &Lab, dir: &Path, more: &[&str], word: &str) -> Running {
    test_begun(lab, dir, "throughput", more, word)
}

fn test_begun(lab: &Lab, dir: &Path, test: &str, more: &[&str], word: &str) -> Running {
    let said = dir.join("said");
    let mut words = options(lab, more);
    words.retain(|word| word != "--quiet");
    let running = wirebench()
        .args(["bench", "rfc2544", "--tests", test])
        .args(words)
        .stdout(File::create(dir.join("report.json")).unwrap())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .map(Running)
        .unwrap();
    let begin = Instant::now();
    while !fs::read_to_string(&said).unwrap().contains(word) {
        let text = fs::read_to_string(&said).unwrap();
        assert!(begin.elapsed() < PATIENCE, "no {word:?}: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

fn ended(running: Running, dir: &Path) -> (Option<i32>, Value) {
    let output = running.finish(PATIENCE);
    let text = fs::read_to_string(dir.join("report.json")).unwrap();
    let report = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {}", fs::read_to_string(dir.join("said")).unwrap()));
    (output.status.code(), report)
}

#[test]
fn a_search_that_is_interrupted_tells_what_held() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &["--limit", "20mbit"]);
    let dir = tempfile::tempdir().unwrap();
    // The trials are long, so that the search has not ended when it is interrupted.
    let more = ["--search-duration", "1s", "--precision", "0.1%"];
    let running = begun(&lab, dir.path(), &more, "pass:");
    running.signal(Signal::INT);
    let (code, report) = ended(running, dir.path());
    assert_eq!(
        (code, &report["verdict"]),
        (Some(130), &"incomplete".into())
    );
    let result = &report["results"][0];
    assert_eq!(result["incomplete"], true, "{result}");
    assert!(
        number(&result["limit"]) > 0.0,
        "what held is told: {result}"
    );
    assert_trials_add_up(&report);
}

#[test]
fn a_search_waits_for_a_link_and_goes_on() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &["--limit", "20mbit"]);
    let dir = tempfile::tempdir().unwrap();
    let running = begun(&lab, dir.path(), &["--search-duration", "1s"], "pass:");
    let device = lab.node("dut");
    for state in ["down", "up"] {
        let done = system("ip", &["-n", &device, "link", "set", "da", state]);
        assert!(done.status.success(), "{done:?}");
        std::thread::sleep(Duration::from_secs(2));
    }
    let (_, report) = ended(running, dir.path());
    let result = &report["results"][0];
    // The search continued to a result, whatever its limit on this machine.
    assert_eq!(result["incomplete"], false, "{result}");
    assert!(number(&result["limit"]) > 0.0, "{result}");
    assert_trials_add_up(&report);
    let (_, most) = allowed(0.4);
    assert!(
        number(&result["limit"]) < most * 1.05,
        "never more than it carries: {result}"
    );
}

#[test]
fn a_tester_that_is_stopped_finds_no_wrong_number() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &["--limit", "20mbit"]);
    let dir = tempfile::tempdir().unwrap();
    let running = begun(&lab, dir.path(), &["--search-duration", "1s"], "pass:");
    running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::CONT);
    let (_, report) = ended(running, dir.path());
    let result = &report["results"][0];
    let found = number(&result["limit"]);
    let (least, most) = allowed(0.4);
    assert!(found < most * 1.05, "{result}");
    if result["limited_by"] == "device" {
        assert!(found > least * 0.9, "{result}");
    }
    assert_trials_add_up(&report);
}

/// A stop of the tester never adds to a loss that is the result.
#[test]
fn a_loss_is_the_devices_though_the_tester_was_stopped() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &["--limit", "20mbit"]);
    let dir = tempfile::tempdir().unwrap();
    let mut running = test_begun(&lab, dir.path(), "impact", &[], "impact");
    while running.0.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(920));
        running.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(80));
        running.signal(Signal::CONT);
    }
    let (_, report) = ended(running, dir.path());
    assert_trials_add_up(&report);
    let result = &report["results"][0];
    let trials = result["trial_log"].as_array().unwrap();
    assert!(
        trials.iter().any(|trial| trial["outcome"] == "late"),
        "{result}"
    );
    for row in result["impact"].as_array().unwrap() {
        let Some(lost) = row["loss_pct"].as_f64() else {
            continue;
        };
        let offered = number(&row["offered_fps"]);
        let (least, most) = allowed(1.0);
        let loss = |carried: f64| 100.0 * (1.0 - carried / offered).max(0.0);
        // A trial in which up to 2 % of the time was missing is one.
        let truth = loss(most) - 0.1..=loss(least * 0.96) + 0.1;
        assert!(truth.contains(&lost), "{truth:?}: {result}");
    }
}

#[test]
fn a_reset_is_as_long_as_the_router_was_away() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    let device = lab.node("dut");
    let command =
        format!("ip -n {device} link set db down; sleep 1; ip -n {device} link set db up");
    let plan = format!(
        r#"
        kind = "bench reset"
        [[port]]
        name = "tx"
        locator = "{}"
        [[port]]
        name = "rx"
        locator = "{}"
        [[traffic]]
        tx = "tx"
        rx = "rx"
        [[traffic.stream]]
        [procedure.suite]
        tests = ["reset"]
        max = "2kpps"
        ceiling = false
        isolated = true
        [procedure.suite.times]
        trial = "500ms"
        search = "500ms"
        [procedure.suite.reset]
        trigger = "{command}"
        patience = "6s"
        "#,
        lab.a0(),
        lab.b0()
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("reset.toml");
    fs::write(&path, plan).unwrap();
    let output = run(&["run", path.to_str().unwrap(), "--json", "--quiet"]);
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    let results = report["results"].as_array().unwrap();
    let reset = &results.iter().find(|r| r["test"] == "reset").unwrap()["reset"];
    let by_stamps = number(&reset["by_stamps_s"]);
    assert!((1.0..6.0).contains(&by_stamps), "{report}");
    let trial = &results.last().unwrap()["trial_log"][0];
    let Some(by_loss) = reset["by_loss_s"].as_f64() else {
        // Frames that a busy machine did not send cannot have been lost.
        assert!(trial["unsent"].as_u64().unwrap() > 0, "{trial}");
        return;
    };
    // Frames that waited for a neighbour were kept and not lost.
    assert!((0.9..=by_stamps + 0.1).contains(&by_loss), "{reset}");
}

/// Answers requests one after another, each after 10 ms, on `connections` connections.
fn slow_server(connections: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for _ in 0..connections {
        let listener = listener.try_clone().unwrap();
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|n| n > 0) {
                    thread::sleep(Duration::from_millis(10));
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if stream.write_all(answer).is_err() {
                        break;
                    }
                }
            }
        });
    }
    port
}

#[test]
fn a_server_that_is_slow_or_away_is_not_the_testers_limit() {
    let _turn = Turn::alone();
    let dir = tempfile::tempdir().unwrap();
    for (port, code) in [(slow_server(2), 0), (9, 1)] {
        let path = dir.path().join("web.toml");
        let plan = format!(
            "kind = \"bench ndr\"\n[[http]]\nurl = \"http://127.0.0.1:{port}\"\nconnections = 2\n\
             [procedure.suite]\ntests = [\"ndr\"]\nof = \"rps\"\nmin = \"10\"\nmax = \"2k\"\nisolated = true\n\
             [procedure.suite.times]\nsearch = \"300ms\"\nramp = \"200ms\"\ndrain = \"100ms\"\nsettle = \"50ms\"\n\
             [[procedure.suite.search.goal]]\nname = \"ndr\"\nfinal_duration = \"500ms\"\nduration_sum = \"1s\"\n\
             loss = \"0\"\nexceed = \"50%\"\nwidth = \"10%\"\n"
        );
        fs::write(&path, plan).unwrap();
        let output = run(&["bench", "ndr", path.to_str().unwrap(), "--json", "--quiet"]);
        let told = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {told}"));
        assert_eq!(output.status.code(), Some(code), "{}", report["reason"]);
        let result = &report["results"][0];
        assert_eq!(result["limited_by"], "device", "{result}");
        let limit = result["limit"].as_f64();
        match code {
            // Two connections, each with at most 100 answers per second.
            0 => assert!(
                limit.is_some_and(|rps| (50.0..=205.0).contains(&rps)),
                "{limit:?}"
            ),
            _ => assert_eq!(limit, None),
        }
    }
}
