//! Sweeps over a wire of 100 Mbit/s and 1 ms each way: the table, the files, the exit codes.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::Value;

use super::{PATIENCE, SERVER_V4, Server, number, ours, ours_going_on, real, report_of};
use crate::kit::{Lab, eventually, privileged};

/// Options of the lab.
const SLOW_WIRE: [&str; 6] = ["--hosts", "--rate", "100mbit", "--delay", "1ms", "--both"];

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The fields of a line of CSV; commas between quotes separate nothing.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("one at least").push(c),
        }
    }
    fields
}

/// Throughputs in Mbit/s, row by row.
fn throughputs(report: &Value) -> Vec<f64> {
    let jobs = report["socket"]["jobs"].as_array().expect("jobs");
    jobs.iter()
        .map(|job| {
            assert!(job["failure"].is_null(), "{job}");
            real(job, "/result/throughput_bps") / 1e6
        })
        .collect()
}

/// Repeats a check until it succeeds, at most three times: other processes may keep the machine busy, and
/// then the slow wire is not what limits.
fn seen<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let mut found = Vec::new();
    for _ in 0..3 {
        match look() {
            Ok(got) => return got,
            Err(other) => found.push(other),
        }
    }
    panic!("{what}: {found:#?}")
}

#[test]
fn small_buffers_throttle_and_message_sizes_do_not() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("impair", &SLOW_WIRE);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (picture, second, page) = (place("x.svg"), place("y.svg"), place("z.html"));
    let line = format!(
        "sweep -q --json -H {SERVER_V4} --local-buffer 2048,16384,262144 --duration 1s \
         --plot {picture} --plot {second} --html {page}"
    );
    let mut tests = 0;
    let report = seen("small buffers throttle", || {
        tests += 3;
        let report = report_of(&ours(&a, &words(&line)), 0);
        let buffers = throughputs(&report);
        assert_eq!(buffers.len(), 3, "{report}");
        // No more than the wire carries.
        assert!(
            buffers.iter().all(|n| *n > 0.0 && *n < 105.0),
            "{buffers:?}"
        );
        let shape = buffers[0] * 1.2 < buffers[2] && buffers[0] < buffers[1];
        shape.then_some(report).ok_or(format!("{buffers:?}"))
    });
    let points: Vec<&str> = (0..3)
        .map(|i| {
            report
                .pointer(&format!("/socket/jobs/{i}/point/0/1"))
                .and_then(Value::as_str)
                .expect("a point")
        })
        .collect();
    assert_eq!(points, ["2048", "16384", "262144"]);
    let svg = fs::read_to_string(&picture).unwrap();
    assert!(svg.starts_with("<svg") || svg.starts_with("<?xml"), "{svg}");
    assert!(
        svg.trim_end().ends_with("</svg>") && svg.contains("262144"),
        "{svg}"
    );
    assert_eq!(fs::read_to_string(&second).unwrap(), svg);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.to_lowercase().starts_with("<!doctype html>"), "{html}");
    assert!(
        html.contains("<svg") && html.contains("262144") && html.trim_end().ends_with("</html>")
    );

    let line = format!("sweep -q --json -H {SERVER_V4} --message 2Ki,16Ki --duration 1s");
    seen("messages of any size are alike", || {
        tests += 2;
        let messages = throughputs(&report_of(&ours(&a, &words(&line)), 0));
        let alike = messages[0] < messages[1] * 2.0 && messages[1] < messages[0] * 2.0;
        alike.then_some(()).ok_or(format!("{messages:?}"))
    });

    // The server's window is its buffer.
    let line = format!(
        "sweep -q --csv -H {SERVER_V4} --remote-buffer 4Ki,256Ki --streams 1,2 --duration 500ms"
    );
    seen("small windows throttle", || {
        tests += 6;
        let output = ours(&a, &words(&line));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let lines: Vec<Vec<String>> = text.lines().map(fields).collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines.iter().all(|l| l.len() == lines[0].len()), "{text}");
        let column = |wanted: &str| {
            let found = lines[0].iter().position(|name| name == wanted);
            found.unwrap_or_else(|| panic!("no {wanted} in {text}"))
        };
        let asked = |row: usize| {
            (
                lines[row][column("remote_buffer")].as_str(),
                lines[row][column("streams")].as_str(),
            )
        };
        assert_eq!(
            (asked(2), asked(3)),
            (("4Ki", "2"), ("256Ki", "1")),
            "{text}"
        );
        let rate = |row: usize| {
            lines[row][column("throughput_bps")]
                .parse::<f64>()
                .expect("a number")
        };
        (rate(1) * 1.5 < rate(3)).then_some(()).ok_or(text.clone())
    });

    // For people: a line for each test, with what was asked.
    let line = format!(
        "sweep -q -H {SERVER_V4} --test tcp_rr --request 1,64,1Ki --duration 300ms --repeat 3 --confidence 95,50"
    );
    let output = ours(&a, &words(&line));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for part in ["1Ki", "64", "request"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let did = server.end();
    assert_eq!(did["failed"], 0, "{did}");
    assert_eq!(did["completed"], tests + 9, "{did}");
}

#[test]
fn a_sweep_keeps_its_rows_when_the_server_fails() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &SLOW_WIRE);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let line = format!(
        "sweep -q --json -H {SERVER_V4} --test tcp_rr --request 1,2,3,4,5,6 --duration 1s --html {}",
        page.display()
    );
    let sweep = ours_going_on(&a, &words(&line));
    // The first test is over when a second one has its control connection.
    let mut ports = std::collections::BTreeSet::new();
    eventually("the second test", || {
        let output = super::within(&a, "cat", &["/proc/net/tcp"])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let control = text.lines().filter(|l| l.contains(":3241 01 "));
        ports.extend(control.filter_map(|l| l.split_whitespace().nth(1).map(str::to_owned)));
        ports.len() >= 2
    });
    std::thread::sleep(Duration::from_millis(100));
    server.signal(Signal::KILL);
    let output = sweep.finish(PATIENCE);
    let report = report_of(&output, 4);
    let jobs = report["socket"]["jobs"].as_array().expect("jobs");
    assert!(jobs[0]["failure"].is_null(), "{}", jobs[0]);
    assert!(number(&jobs[0], "/result/transactions") > 0, "{}", jobs[0]);
    let failed = jobs
        .iter()
        .find(|j| !j["failure"].is_null())
        .expect("a failure");
    assert!(
        !failed["failure"]["what"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    );
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("request"), "{html}");
}

/// The script and the plans of the examples, as they are.
#[test]
fn the_examples_of_socket_tests_run() {
    if !privileged() {
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/socket");
    let plan = |name: &str| format!("{folder}/{name}.toml");
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    for (name, jobs) in [("client", 4), ("datagrams", 1)] {
        let report = report_of(&ours(&a, &["run", &plan(name), "--json", "-q"]), 0);
        let done = report["socket"]["jobs"].as_array().expect("jobs");
        assert_eq!(done.len(), jobs, "{name}");
        for job in done {
            assert!(job["failure"].is_null() && job["extended"] == true, "{job}");
            assert_eq!(
                number(job, "/local/bytes_sent"),
                number(job, "/remote/bytes_received"),
                "{job}"
            );
        }
        if name == "datagrams" {
            assert!(number(&done[0], "/datagrams/sent") > 0, "{}", done[0]);
            assert_eq!(number(&done[0], "/datagrams/lost"), 0, "{}", done[0]);
        }
    }
    server.end();
    let server = ours_going_on(&b, &["run", &plan("server"), "-q"]);
    super::wait_for_port(&b, 12865);
    let client = format!("netperf -H {SERVER_V4} -t TCP_RR -l -10");
    let output = ours(&a, &words(&client));
    assert_eq!(output.status.code(), Some(1));
    let output = ours(&a, &words(&format!("{client} -Z word")));
    assert_eq!(output.status.code(), Some(0));
    server.signal(Signal::INT);
    assert_eq!(server.finish(PATIENCE).status.code(), Some(130));
    let dir = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(format!("{folder}/tables.sh"))
        .args([dir.path().to_str().unwrap(), "0.3"])
        .env("WIREBENCH", env!("CARGO_BIN_EXE_wirebench"))
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for name in ["message", "local-buffer", "remote-buffer", "streams"] {
        assert!(text.contains(&format!("== {name}\n")), "{text}");
        assert!(dir.path().join(format!("{name}.svg")).exists(), "{name}");
    }
    assert_eq!(
        text.matches("Mbit/s").count() + text.matches("kbit/s").count(),
        16,
        "{text}"
    );
}
