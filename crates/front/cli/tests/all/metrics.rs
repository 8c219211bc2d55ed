//! `--metrics`: what readers are told is what the report says.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

fn wirebench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirebench"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A trial in memory whose figures can be had for a while after its end, and where.
fn served(linger: &str, time: &str) -> (Child, String) {
    let mut child = wirebench(&[
        "trial",
        "--tx",
        "memory:metrics",
        "--rx",
        "memory:metrics",
        "--rate",
        "20kpps",
        "--duration",
        time,
        "--json",
        "-q",
        "--metrics",
        "127.0.0.1:0",
        "--metrics-linger",
        linger,
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let place = told(&mut child);
    (child, place)
}

/// Where it says that it serves them.
fn told(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let place = line
        .trim()
        .strip_prefix("metrics at http://")
        .and_then(|l| l.strip_suffix("/metrics"));
    place.unwrap_or_else(|| panic!("{line}")).to_owned()
}

fn ask(place: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(place).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    // Its thread has ended then.
    sleep(Duration::from_millis(50));
    answer
}

fn metrics(place: &str) -> String {
    ask(place, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// What is served when the run has ended.
fn last(place: &str) -> String {
    let begun = Instant::now();
    loop {
        let text = metrics(place);
        if text.contains("wirebench_run_verdict{") {
            return text;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{text}");
        sleep(Duration::from_millis(20));
    }
}

fn value(text: &str, id: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(id)?.strip_prefix(' '));
    line.and_then(|v| v.parse().ok())
}

#[test]
fn the_last_figures_are_those_of_the_report() {
    let (mut child, place) = served("30s", "1s");
    let during = metrics(&place);
    assert!(
        during.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"),
        "{during}"
    );
    assert!(!during.contains("run_verdict"), "{during}");
    let text = last(&place);
    let older = ask(
        &place,
        "GET /metrics HTTP/1.0\r\nAccept: text/plain\r\n\r\n",
    );
    // It waits for a signal as well.
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    let mut document = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut document)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let report: Value = serde_json::from_str(&document).unwrap();
    let totals = report["totals"].as_object().unwrap();
    let mut seen = 0;
    for (name, of_report) in totals {
        let Some(of_report) = of_report.as_f64() else {
            continue;
        };
        let name = name.replace("_octets", "_bytes");
        assert_eq!(
            value(&text, &format!("wirebench_{name}_total")),
            Some(of_report),
            "{name}: {text}"
        );
        assert_eq!(
            value(&older, &format!("wirebench_{name}_total")),
            Some(of_report),
            "{name}"
        );
        // Counted by the workers, and settled at the end: two ways to the same number.
        if let Some(counted) = value(&text, &format!("wirebench_traffic_{name}_total")) {
            assert_eq!(counted, of_report, "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen} of {totals:?}");
    assert!(
        totals["received_frames"].as_u64() > Some(10_000),
        "{totals:?}"
    );
    let samples = report["latency_ns"]["samples"].as_f64();
    assert_eq!(
        value(&text, "wirebench_latency_seconds_count"),
        samples,
        "{text}"
    );
    assert_eq!(
        value(&text, "wirebench_latency_seconds_bucket{le=\"+Inf\"}"),
        samples
    );
}

#[test]
fn readers_that_hang_or_talk_nonsense_disturb_nobody() {
    let (mut child, place) = served("0s", "4s");
    // One says nothing, and goes while it is answered; one sends too much; one speaks another language.
    let silent: Vec<_> = (0..3)
        .map(|_| TcpStream::connect(&place).unwrap())
        .collect();
    let mut gone = TcpStream::connect(&place).unwrap();
    gone.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    drop(gone);
    sleep(Duration::from_millis(200));
    let begun = Instant::now();
    assert!(
        metrics(&place).contains("# EOF"),
        "while others say nothing"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    let filler = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(9_000));
    assert!(ask(&place, &filler).starts_with("HTTP/1.1 431"));
    let post = ask(&place, "POST /metrics HTTP/1.1\r\n\r\n");
    assert!(
        post.starts_with("HTTP/1.1 405") && post.contains("\r\nAllow: GET, HEAD\r\n"),
        "{post}"
    );
    assert!(ask(&place, "garbage\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(ask(&place, "GET http://x/metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert!(ask(&place, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    let head = ask(&place, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    // As many as there may be are here; one more is sent away and does not wait.
    let _fourth = TcpStream::connect(&place).unwrap();
    sleep(Duration::from_millis(100));
    let begun = Instant::now();
    assert_eq!(metrics(&place), "");
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    let mut document = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut document)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let report: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(report["totals"]["lost_frames"], 0, "{}", report["totals"]);
    drop(silent);
}

#[test]
fn where_it_cannot_listen_nothing_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (place, says) in [
        (taken.as_str(), format!("wirebench: --metrics {taken}: cannot listen there: Address already in use (os error 98)\n")),
        ("nowhere", "wirebench: invalid value 'nowhere' for '--metrics <IP:PORT>': 127.0.0.1:9464, [::1]:9464 or :9464 (all addresses) is allowed; see --help\n".to_owned()),
    ] {
        let output = wirebench(&["tx", "-i", "memory:x", "--duration", "1s", "--metrics", place]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{place}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), says, "{place}");
    }
}

/// Names in the dashboard are those that a run has: its figures are named where they are taken down.
#[test]
fn the_dashboard_names_metrics_that_there_are() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    let dashboard =
        std::fs::read_to_string(format!("{root}/examples/grafana/wirebench.json")).unwrap();
    let parsed: Value = serde_json::from_str(&dashboard).unwrap();
    assert_eq!(parsed["title"], "wirebench");
    let sources: String = [
        "front/session/src",
        "ports/host/src",
        "front/render/src/metrics.rs",
    ]
    .iter()
    .flat_map(|place| sources(&format!("{root}/crates/{place}").into()))
    .collect();
    let mut names: Vec<&str> = dashboard.split("wirebench_").skip(1).collect();
    assert!(names.len() > 30, "{}", names.len());
    for rest in &mut names {
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        let name = &rest[..end.unwrap()];
        let bare = name.strip_suffix("_total").unwrap_or(name);
        let after = |kind: &str| bare.strip_prefix(kind).map(str::to_owned);
        let kinds = ["traffic_", "load_", "http_", "capture_", "socket_", "port_"];
        let own = kinds
            .iter()
            .find_map(|k| after(k))
            .unwrap_or_else(|| bare.to_owned());
        let spellings = [
            own.clone(),
            own.replace("_seconds", "_ns"),
            own.replace("_bytes", "_octets"),
            own.replace("_bytes_per_second", "_bps"),
            own.replace("build_info", "build"),
        ];
        let known = spellings
            .iter()
            .any(|s| sources.contains(&format!("\"{s}\"")));
        assert!(known, "{name}: no figure {own}");
    }
}

fn sources(place: &std::path::PathBuf) -> Vec<String> {
    if place.is_file() {
        return vec![std::fs::read_to_string(place).unwrap()];
    }
    let entries = std::fs::read_dir(place).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|path| sources(&path)).collect()
}

#[test]
fn stat_serves_what_its_average_says() {
    let child = wirebench(&["stat", "-i", "lo", "0.2", "3", "--json"])
        .args(["--metrics", "127.0.0.1:0", "--metrics-linger", "20s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let place = told(&mut child);
    // Something to count, until it ends.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let talk = std::thread::spawn(move || {
        for _ in 0..50 {
            socket.send_to(b"count me", to).unwrap();
            sleep(Duration::from_millis(10));
        }
    });
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let average = lines.find_map(|line| {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        (line["kind"] == "average").then_some(line)
    });
    let text = metrics(&place);
    let _ = child.kill();
    let _ = child.wait();
    talk.join().unwrap();
    let counted = &average.unwrap()["interfaces"][0]["counted"];
    for name in ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"] {
        let id = format!("wirebench_interface_{name}_total{{interface=\"lo\"}}");
        assert!(counted[name].as_u64() > Some(0), "{name}: {counted}");
        assert_eq!(value(&text, &id), counted[name].as_f64(), "{name}: {text}");
    }
    assert!(
        text.contains("wirebench_softnet_processed_total{cpu=\"0\"}"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
}
