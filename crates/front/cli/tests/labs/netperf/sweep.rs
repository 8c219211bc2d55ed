//! Sweeps over a wire of 100 Mbit/s and 1 ms each way: the table, the files, the exit codes.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::Value;

use super::{PATIENCE, SERVER_V4, Server, number, ours, ours_going_on, real, report_of};
use crate::kit::{Lab, eventually, privileged};

fn slow_wire() -> Lab {
    let options = "--hosts --rate 100mbit --delay 1ms --both";
    Lab::up("impair", &options.split(' ').collect::<Vec<_>>())
}

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

#[test]
fn small_buffers_throttle_and_message_sizes_do_not() {
    if !privileged("small_buffers_throttle_and_message_sizes_do_not") {
        return;
    }
    let lab = slow_wire();
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (picture, drawn, page) = (place("x.svg"), place("y.png"), place("z.html"));
    let line = format!(
        "sweep -q --json -H {SERVER_V4} --local-buffer 2048,16384,262144 --duration 1s \
         --plot {picture} --plot {drawn} --html {page}"
    );
    let report = report_of(&ours(&a, &words(&line)), 0);
    let buffers = throughputs(&report);
    assert_eq!(buffers.len(), 3, "{report}");
    assert!(buffers[0] * 1.2 < buffers[2], "{buffers:?}");
    assert!(buffers[0] < buffers[1], "{buffers:?}");
    // No more than the wire carries, headers apart.
    assert!(
        buffers.iter().all(|n| *n > 0.0 && *n < 105.0),
        "{buffers:?}"
    );
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
    assert!(fs::read(&drawn).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.to_lowercase().starts_with("<!doctype html>"), "{html}");
    assert!(
        html.contains("<svg") && html.contains("262144") && html.trim_end().ends_with("</html>")
    );

    let line = format!("sweep -q --json -H {SERVER_V4} --message 2Ki,16Ki --duration 1s");
    let messages = throughputs(&report_of(&ours(&a, &words(&line)), 0));
    assert!(
        messages[0] < messages[1] * 2.0 && messages[1] < messages[0] * 2.0,
        "{messages:?}"
    );

    // The server's window is its buffer.
    let line = format!(
        "sweep -q --csv -H {SERVER_V4} --remote-buffer 4Ki,256Ki --streams 1,2 --duration 500ms"
    );
    let output = ours(&a, &words(&line));
    let text = String::from_utf8_lossy(&output.stdout);
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
    let rate = |row: usize| {
        lines[row][column("throughput_bps")]
            .parse::<f64>()
            .expect("a number")
    };
    assert!(rate(1) * 1.5 < rate(3), "{text}");

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
    assert_eq!(did["completed"], 3 + 2 + 6 + 9, "{did}");
}

#[test]
fn a_sweep_keeps_its_rows_when_the_server_fails() {
    if !privileged("a_sweep_keeps_its_rows_when_the_server_fails") {
        return;
    }
    let lab = slow_wire();
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let line = format!(
        "sweep -q --json -H {SERVER_V4} --test tcp_rr --request 1,2,3 --duration 1s --html {}",
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
