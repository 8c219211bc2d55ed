//! Every way to end a run: its output, its messages, and its verdict.

use std::{net::TcpListener, time::Duration};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Running, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

/// Starts it, lets it run for a moment, and ends it.
fn ended(line: &str, signal: Signal) -> (Option<i32>, Value) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let running = Running::start(&words);
    let comm = format!("/proc/{}/task", running.0.id());
    eventually("it works", || {
        std::fs::read_dir(&comm).is_ok_and(|tasks| tasks.count() > 2)
    });
    std::thread::sleep(Duration::from_millis(300));
    running.signal(signal);
    let output = running.finish(PATIENCE);
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{line}: {e}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

#[test]
fn a_run_that_was_cut_short_is_incomplete() {
    for (line, signal, code, verdict) in [
        (
            "trial --tx memory:x --rx memory:x --rate 1kpps --duration 50s",
            Signal::INT,
            130,
            "incomplete",
        ),
        (
            "trial --tx memory:x --rx memory:x --rate 1kpps --duration 50s --max-loss 0",
            Signal::TERM,
            143,
            "incomplete",
        ),
        (
            "tx -i memory:x --rate 1kpps --duration 50s",
            Signal::INT,
            130,
            "incomplete",
        ),
        (
            "load --client memory:x --server memory:x --cps 100 --duration 50s",
            Signal::INT,
            130,
            "incomplete",
        ),
        // A run without a duration is complete after a signal; but nothing arrived.
        ("rx -i memory:x", Signal::INT, 130, "invalid"),
        (
            "rx -i memory:x --duration 50s",
            Signal::INT,
            130,
            "incomplete",
        ),
    ] {
        let (got, report) = ended(&format!("{line} --json -q"), signal);
        assert_eq!(got, Some(code), "{line}: {}", report["reason"]);
        assert_eq!(report["verdict"], verdict, "{line}: {}", report["reason"]);
    }
}

#[test]
fn an_alarm_is_a_normal_end_of_netperf() {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    let server = Running::start(&["netserver", "-D", "-L", "127.0.0.1", "-p", &port]);
    eventually("the server listens", || {
        std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()
    });
    let running = Running::start(&[
        "netperf",
        "-H",
        "127.0.0.1",
        "-p",
        &port,
        "-l",
        "60",
        "-P",
        "0",
    ]);
    let tasks = format!("/proc/{}/task", running.0.id());
    eventually("the stream flows", || {
        std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > 2)
    });
    std::thread::sleep(Duration::from_millis(500));
    running.signal(Signal::ALARM);
    let output = running.finish(PATIENCE);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let rate: f64 = printed
        .split_whitespace()
        .last()
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no result: {printed}"));
    assert!(rate > 0.0, "{printed}");
    server.signal(Signal::TERM);
    server.finish(PATIENCE);
}
