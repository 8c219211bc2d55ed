//! The verdict of dead paths, overloaded testers and good runs, with and without criteria.

use std::{
    io::{Read, Write},
    net::TcpListener,
    time::Duration,
};

use serde_json::Value;

use rustix::process::Signal;

use crate::kit::{Lab, Running, eventually, listening, privileged, run, system, total, wirebench};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a line; returns its exit code and its report.
fn report(line: &str) -> (Option<i32>, Value) {
    let words: Vec<&str> = line.split_whitespace().chain(["--json", "-q"]).collect();
    let output = run(&words);
    let error = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|e| panic!("{line}: {e}: {error}"));
    (output.status.code(), report)
}

/// Asserts the verdict with its exit code. Returns the report.
#[track_caller]
fn ends(line: &str, verdict: &str, code: i32, reason: &str) -> Value {
    let (got, report) = report(line);
    let told = report["reason"].as_str().unwrap();
    assert_eq!(
        (report["verdict"].as_str(), got),
        (Some(verdict), Some(code)),
        "{line}: {told}"
    );
    assert!(told.contains(reason), "{line}: {told}");
    report
}

/// Asserts that the limit is not the plan, the rate or the answers.
#[track_caller]
fn assert_blames_the_far_end(report: &Value) {
    let by = report["limited_by"].as_str().unwrap();
    for wrong in ["the plan", "the rate", "closed loop"] {
        assert!(!by.contains(wrong), "{by}");
    }
}

#[test]
fn a_trial_on_a_dead_path_is_invalid() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    let line = format!(
        "trial --tx {} --rx {} --rate 1kpps --duration 300ms --dst 198.18.99.99",
        lab.port("a", "a0"),
        lab.port("b", "b0")
    );
    let report = ends(&line, "invalid", 3, "nothing arrived");
    assert_eq!(total(&report, "received"), 0);
    assert_blames_the_far_end(&report);
    ends(
        &format!("{line} --max-loss 0"),
        "fail",
        1,
        "criteria not met",
    );
    ends(
        &format!("{line} --criteria p99<=1s"),
        "invalid",
        3,
        "nothing arrived",
    );
}

#[test]
fn a_benchmark_of_a_dead_path_is_invalid() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    let line = format!(
        "bench rfc2544 --tests throughput --sizes 64 --fast --isolated --duration 100ms --ramp 0s --drain 100ms --settle 0s --no-ceiling --max 2kpps --min 1kpps \
         --tx {} --rx {} --dst 198.18.99.99",
        lab.port("a", "a0"),
        lab.port("b", "b0")
    );
    let report = ends(&line, "invalid", 3, "nothing arrived at any load");
    assert_blames_the_far_end(&report);
    ends(
        &format!("{line} --criteria throughput>=1kpps"),
        "invalid",
        3,
        "nothing arrived at any load",
    );
}

#[test]
fn frames_that_the_interface_does_not_take_are_its_limit() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    // The peer's MTU bounds what a veth takes.
    system(
        "ip",
        &["-n", &lab.node("b"), "link", "set", "b0", "mtu", "500"],
    );
    for driver in ["xdp", "packet"] {
        for rate in ["1kpps", "max"] {
            let line = format!(
                "trial --tx {driver}:{} --rx packet:{} --size 1000 --rate {rate} --duration 300ms --catch-up 10s",
                lab.a0(),
                lab.b0()
            );
            let report = ends(&line, "invalid", 3, "nothing was sent");
            let by = report["limited_by"].as_str().unwrap();
            assert!(
                by.starts_with("the sending interface: ")
                    && (by.contains(" refused") || by.contains("TX queue full")),
                "{line}: {by}"
            );
        }
    }
}

#[test]
fn frames_that_arrive_unrecognised_are_the_testers_fault() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    // The router overwrites the beginning of each tag.
    let garble = "table ip garble { chain f { type filter hook forward priority 0; \
                  udp dport 7 @th,64,16 set 0; }; }";
    let nft = ["netns", "exec", &lab.node("dut"), "nft", garble];
    assert!(system("ip", &nft).status.success());
    for driver in ["live", "xdp", "packet"] {
        let line = format!(
            "trial --tx packet:{} --rx {driver}:{} --rate 1kpps --duration 300ms --catch-up 10s",
            lab.port("a", "a0"),
            lab.port("b", "b0")
        );
        for criteria in ["", " --criteria loss<=0%"] {
            let report = ends(&format!("{line}{criteria}"), "invalid", 3, "not recognised");
            assert_eq!(
                (total(&report, "received"), total(&report, "foreign")),
                (0, 300)
            );
            let by = report["limited_by"].as_str().unwrap();
            assert!(by.starts_with("the tester: "), "{by}");
        }
    }
}

#[test]
fn a_load_to_nobody_is_invalid() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let line = format!(
        "load --client {} --servers 198.19.1.77 --gateway-mac 02:00:00:00:00:77 --cps 100 --duration 300ms --drain 200ms",
        lab.a0()
    );
    let report = ends(&line, "invalid", 3, "no connection was established");
    assert_blames_the_far_end(&report);
    ends(
        &format!("{line} --criteria failed<=0"),
        "fail",
        1,
        "criteria not met",
    );
}

#[test]
fn requests_to_a_closed_port_are_invalid() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    for more in ["", "--rate 100"] {
        let line = format!("http -c 2 -d 300ms {more} {url}");
        let report = ends(&line, "invalid", 3, "no request was sent");
        assert_blames_the_far_end(&report);
    }
}

#[test]
fn requests_that_are_never_answered_are_invalid() {
    // The kernel accepts the connections; no process answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    for more in ["", "--rate 100"] {
        let line = format!("http -c 2 -d 300ms {more} {url}");
        let report = ends(&line, "invalid", 3, "");
        assert_blames_the_far_end(&report);
    }
}

#[test]
fn answers_that_are_errors_are_a_warning() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut connection in server.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while connection.read(&mut bytes).is_ok_and(|n| n > 0) {
                    let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
                    if connection.write_all(answer).is_err() {
                        break;
                    }
                }
            });
        }
    });
    let report = ends(
        &format!("http -c 1 -n 20 {url}"),
        "completed",
        0,
        "no criteria were set",
    );
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("20 of 20 responses have a 4xx or 5xx status"),
        "{warnings}"
    );
    ends(
        &format!("http -c 1 -n 20 --criteria errors<=0 {url}"),
        "fail",
        1,
        "errors<=0",
    );
}

#[test]
fn a_capture_behind_an_xdp_program_says_so() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.a0(), lab.b0());
    let taker = Running::start(&["capture", "-i", &b, "--xdp", "-w", "/dev/null", "-q"]);
    eventually("the program is attached", || {
        let shown = system("ip", &["-n", &lab.node("b"), "link", "show", "b0"]);
        String::from_utf8_lossy(&shown.stdout).contains("xdp")
    });
    let line = format!("capture -i {b} --duration 500ms");
    for (more, verdict, code) in [("", "completed", 0), ("--criteria loss<=0", "invalid", 3)] {
        let sender = Running::start(&["tx", "-i", &a, "--rate", "1kpps", "--duration", "500ms"]);
        let report = ends(&format!("{line} {more}"), verdict, code, "");
        sender.finish(PATIENCE);
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("XDP program "), "{warnings}");
        // Frames that the host sends itself do not pass the program.
        assert!(total(&report, "received") < 10, "{}", report["totals"]);
    }
    taker.signal(rustix::process::Signal::INT);
    taker.finish(PATIENCE);
}

#[test]
fn less_than_98_percent_is_invalid_unless_the_plan_accepts_it() {
    let line = "trial --tx memory:x --rx memory:x --duration 200ms";
    let too_much = format!("{line} --rate 800mpps");
    ends(&too_much, "invalid", 3, "% of the intended load: ");
    ends(
        &format!("{too_much} --criteria reordered<=100%"),
        "invalid",
        3,
        "% of the intended load: ",
    );
    ends(&format!("{too_much} --allow-unsent"), "completed", 0, "");
    ends(
        &format!("{too_much} --criteria unsent<=100%"),
        "pass",
        0,
        "",
    );
    ends(&format!("{line} --rate max"), "completed", 0, "");
    let printed = run(&[
        "tx",
        "-i",
        "memory:x",
        "--rate",
        "1kpps",
        "--allow-unsent",
        "--print-plan",
    ]);
    let printed = String::from_utf8_lossy(&printed.stdout);
    assert!(printed.contains("allow_unsent = true"), "{printed}");
}

#[test]
fn good_runs_are_completed_and_pass_with_criteria() {
    for (line, criteria) in [
        (
            "trial --tx memory:x --rx memory:x --rate 1kpps --duration 200ms --catch-up 10s",
            "pps>=1",
        ),
        (
            "load --client memory:x --server memory:x --cps 100 --duration 300ms --drain 200ms",
            "failed<=100%",
        ),
    ] {
        ends(line, "completed", 0, "no criteria were set");
        ends(
            &format!("{line} --criteria {criteria}"),
            "pass",
            0,
            "all criteria met",
        );
    }
}

#[test]
fn a_load_at_max_has_nothing_unsent() {
    let line = "load --client memory:x --server memory:x --cps max --cc 50 --requests 1 --duration 300ms --drain 300ms";
    let report = ends(line, "completed", 0, "");
    let job = &report["load"]["jobs"][0];
    assert_eq!(job["unsent_connections"], 0, "{job}");
    let opened = job["totals"]["attempted_connections"].as_u64().unwrap();
    assert!(opened > 100, "{opened}");
    assert_eq!(report["plan"]["load"][0]["rate"]["cps"], "max");
    let line = "load --client memory:x --server memory:x --udp --rps max --cc 4 --duration 300ms";
    let report = ends(line, "completed", 0, "");
    let job = &report["load"]["jobs"][0];
    let answers = job["totals"]["responses"].as_u64().unwrap();
    assert!(answers > 100, "{job}");
}

#[test]
fn a_capture_whose_reader_stalled_is_invalid() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = tempfile::TempDir::new().unwrap();
    let mut command = wirebench();
    let ring = ["--ring", "512KiB", "--block-size", "64KiB"];
    command.args(["capture", "-q", "--json", "-i", &lab.b0(), "-w"]);
    command.arg(folder.path().join("trace.pcap"));
    command.args(ring).args(["udp", "port", "7"]);
    let capture = listening(folder.path(), &mut command);
    capture.signal(Signal::STOP);
    let tx = [
        "tx",
        "-i",
        &lab.a0(),
        "--dst-mac",
        "02:00:00:00:00:02",
        "--rate",
        "max",
        "--count",
        "50000",
    ];
    assert!(run(&tx).status.success());
    capture.signal(Signal::CONT);
    eventually("frames are read", || {
        let trace = std::fs::metadata(folder.path().join("trace.pcap"));
        trace.is_ok_and(|m| m.len() > 1_000)
    });
    capture.signal(Signal::INT);
    let code = capture.finish(PATIENCE).status.code();
    let report = std::fs::read(folder.path().join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let reason = report["reason"].as_str().unwrap();
    assert_eq!(report["verdict"], "invalid", "{reason}");
    assert!(reason.contains("the tester was late"), "{reason}");
    assert_eq!(code, Some(3), "{reason}");
}
