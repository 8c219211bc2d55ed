//! `--metrics`: the served values match the report.

use std::{
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use wb_testing::{disturb, eventually, polled};

fn wirebench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirebench"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A trial in memory that serves its figures for a while after its end, and their address.
fn served(linger: &str, time: &str) -> (Child, String) {
    let mut child = wirebench(&[
        "trial",
        "--tx",
        "memory:metrics",
        "--rx",
        "memory:metrics",
        "--rate",
        "20kpps",
        "--allow-unsent",
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

/// Address at which the metrics are served.
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
    answer
}

/// Connections on which nothing is sent. The server takes them in this order.
fn silent_readers(place: &str, count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let stream = TcpStream::connect(place).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    (0..count).map(connect).collect()
}

/// Returns true if the server has neither answered nor closed the connection.
fn is_held(stream: &mut TcpStream) -> bool {
    let read = stream.read(&mut [0; 1]);
    read.is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
}

fn interrupt(child: &Child) {
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
}

fn metrics(place: &str) -> String {
    let accept =
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3";
    ask(
        place,
        &format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n\r\n"),
    )
}

/// Response after the end of the run.
fn last(place: &str) -> String {
    let ended = || Some(metrics(place)).filter(|text| text.contains("wirebench_run_verdict{"));
    polled(Duration::from_secs(30), ended).expect("the run ends")
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
    let unasked = ask(&place, "GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n");
    for text in [&older, &unasked] {
        assert!(
            text.starts_with(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            ),
            "{text}"
        );
        assert!(!text.contains("# EOF"), "{text}");
    }
    // A signal ends the waiting, too.
    interrupt(&child);
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
    let (mut child, place) = served("60s", "4s");
    // Three readers send nothing, and one disconnects while it is answered.
    let mut silent = silent_readers(&place, 3);
    let mut gone = TcpStream::connect(&place).unwrap();
    gone.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    drop(gone);
    let begun = Instant::now();
    let mut text = metrics(&place);
    // The response to the disconnected reader may be in progress.
    while text.starts_with("HTTP/1.1 503") && begun.elapsed() < Duration::from_secs(4) {
        text = metrics(&place);
    }
    assert!(text.contains("# EOF"), "while others say nothing: {text}");
    // The response did not wait until they were released.
    assert!(silent.iter_mut().all(is_held), "{:?}", begun.elapsed());
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
    // The maximum number of readers is connected; a further reader is refused and does not wait.
    let begun = Instant::now();
    loop {
        // Earlier connections may still occupy places; those of the last attempt must not.
        silent.clear();
        disturb(begun.elapsed() / 4);
        silent = silent_readers(&place, 4);
        let text = metrics(&place);
        let held = silent.iter_mut().all(is_held);
        if held && text.starts_with("HTTP/1.1 503") {
            assert_eq!(
                text,
                "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: text/plain\r\nContent-Length: 38\r\n\
                 Connection: close\r\n\r\ntoo many readers (limit 4); try again\n"
            );
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{text}");
    }
    drop(silent);
    last(&place);
    interrupt(&child);
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
}

#[test]
fn where_it_cannot_listen_nothing_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (place, says) in [
        (taken.as_str(), format!("wirebench: --metrics: cannot listen on {taken}: Address already in use\n")),
        ("nowhere", "wirebench: invalid value 'nowhere' for '--metrics <IP:PORT>': expected an address such as 127.0.0.1:9464, [::1]:9464 or :9464 (all addresses); see --help\n".to_owned()),
    ] {
        let output = wirebench(&["tx", "-i", "memory:x", "--duration", "1s", "--metrics", place]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{place}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), says, "{place}");
    }
}

/// Names in the dashboard exist in a run: figures are named when they are recorded.
#[test]
fn the_dashboard_names_metrics_that_there_are() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    let dashboard =
        std::fs::read_to_string(format!("{root}/examples/grafana/wirebench.json")).unwrap();
    let parsed: Value = serde_json::from_str(&dashboard).unwrap();
    assert_eq!(parsed["title"], "wirebench");
    let sources: String = [
        "engines",
        "front/session/src",
        "machine/src",
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
            disturb(Duration::from_millis(10));
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

/// Runs a command to its end and continues to serve: returns the served text and the report.
fn ended(words: &[&str]) -> (String, Value) {
    let ours = [
        "--json",
        "--metrics",
        "127.0.0.1:0",
        "--metrics-linger",
        "60s",
    ];
    let mut child = wirebench(&[&words[..1], &ours, &words[1..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let place = told(&mut child);
    let text = last(&place);
    end(&child);
    let mut document = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut document)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{document}");
    (text, serde_json::from_str(&document).unwrap())
}

fn end(child: &Child) {
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
}

/// Checks that each number of this part of the report is served under its name, and that there are some.
fn same(text: &str, part: &Value, begins: &str) {
    let numbers = part.as_object().unwrap().iter();
    let numbers: Vec<_> = numbers
        .filter_map(|(name, n)| Some((name.replace("_octets", "_bytes"), n.as_f64()?)))
        .collect();
    assert!(!numbers.is_empty(), "{part}");
    for (name, n) in numbers {
        let open = ["open", "in_flight", "connecting"];
        let end = match open.iter().any(|w| name.starts_with(w)) {
            true => "",
            false => "_total",
        };
        let id = format!("{begins}{name}{end}");
        assert_eq!(value(text, &id), Some(n), "{id}: {text}");
    }
}

/// The sum of a histogram is that of the report's mean, and it holds all samples.
fn same_times(text: &str, id: &str, summary: &Value) {
    let samples = summary["samples"].as_f64().unwrap();
    assert!(samples > 0.0, "{id}: {summary}");
    assert_eq!(
        value(text, &format!("wirebench_{id}_seconds_count")),
        Some(samples)
    );
    let sum = value(text, &format!("wirebench_{id}_seconds_sum")).unwrap();
    let expected = summary["mean"].as_f64().unwrap() * samples / 1e9;
    assert!(
        (sum / expected - 1.0).abs() < 1e-9,
        "{id}: {sum} {expected}"
    );
}

#[test]
fn the_last_figures_of_a_load_are_those_of_its_report() {
    let words =
        "load -q --client memory:ml --server memory:ml --cps 300 --allow-unsent --duration 1s";
    let (text, report) = ended(&words.split(' ').collect::<Vec<_>>());
    same(&text, &report["totals"], "wirebench_");
    let client = &report["load"]["jobs"][0];
    assert!(
        client["totals"]["completed_connections"].as_u64() > Some(0),
        "{client}"
    );
    for name in [
        "attempted_connections",
        "completed_connections",
        "requests",
        "responses",
    ] {
        let id = format!("wirebench_load_{name}_total");
        assert_eq!(value(&text, &id), client["totals"][name].as_f64(), "{id}");
    }
    same_times(&text, "connect", &client["connect_ns"]);
    same_times(&text, "first_byte", &client["first_byte_ns"]);
}

#[test]
fn the_last_figures_of_a_capture_are_those_of_its_report() {
    let folder = tempfile::TempDir::new().unwrap();
    let frames = format!("file:{}", folder.path().join("frames.pcap").display());
    let kept = folder.path().join("kept.pcap").display().to_string();
    let made = wirebench(&["tx", "-i", &frames, "--count", "321", "-q"]);
    assert!({ made }.output().unwrap().status.success());
    let (text, report) = ended(&["capture", "-q", "-i", &frames, "-w", &kept]);
    same(&text, &report["totals"], "wirebench_");
    let capture = &report["capture"];
    for (id, name) in [
        ("read_frames_total", "captured_frames"),
        ("written_frames_total", "captured_frames"),
        ("kernel_drop_frames_total", "kernel_drop_frames"),
        ("file_bytes_total", "file_octets"),
    ] {
        let id = format!("wirebench_capture_{id}");
        assert_eq!(value(&text, &id), capture[name].as_f64(), "{id}: {text}");
    }
    assert_eq!(capture["captured_frames"], 321, "{capture}");
}

/// Answers every request on every connection, until the test ends.
fn answering() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let mut stream = stream;
                while let Some(Ok(line)) = lines.next() {
                    if line.is_empty() {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
                    }
                }
            });
        }
    });
    place
}

#[test]
fn the_last_figures_of_http_and_of_wrk_are_those_of_their_reports() {
    let url = format!("http://{}/", answering());
    for words in [
        [
            "http",
            "-q",
            "-c",
            "2",
            "--rate",
            "200",
            "-d",
            "1s",
            "--allow-unsent",
            &url,
        ]
        .as_slice(),
        // The options of wrk follow those of wirebench.
        &["wrk", "-t1", "-c2", "-d1s", &url],
    ] {
        let (text, report) = ended(words);
        let job = &report["http"]["jobs"][0];
        assert!(job["totals"]["completed"].as_u64() > Some(50), "{job}");
        same(&text, &job["totals"], "wirebench_http_");
        for (cause, n) in job["totals"]["failed"].as_object().unwrap() {
            let id = format!("wirebench_http_failed_total{{cause=\"{cause}\"}}");
            assert_eq!(value(&text, &id), n.as_f64(), "{id}: {text}");
        }
        same_times(&text, "latency", &job["latency_ns"]);
        let elapsed = report["elapsed_ns"].as_f64().unwrap() / 1e9;
        let told = value(&text, "wirebench_run_elapsed_seconds").unwrap();
        assert!((told - elapsed).abs() < 1e-6, "{told} {elapsed}");
    }
}

#[test]
fn the_last_figures_of_a_socket_test_and_its_server_are_those_of_their_reports() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let mut server = wirebench(&[
        "netserver",
        "--metrics",
        "127.0.0.1:0",
        "--metrics-linger",
        "60s",
    ])
    .args(["--json", "--", "-D", "-4", "-L", "127.0.0.1", "-p", &port])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let serves = told(&mut server);
    eventually("netserver listens", || {
        TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()
    });
    let words = [
        "--",
        "-H",
        "127.0.0.1",
        "-p",
        &port,
        "-t",
        "TCP_RR",
        "-l",
        "1",
    ];
    let (text, report) = ended(&[&["netperf", "-q"], words.as_slice()].concat());
    let during = metrics(&serves);
    end(&server);
    assert!(
        during.contains("wirebench_run_phase{phase=\"running\"} 1"),
        "{during}"
    );
    assert_eq!(server.wait().unwrap().code(), Some(130));
    let job = &report["socket"]["jobs"][0];
    let (name, result) = (job["name"].as_str().unwrap(), &job["result"]);
    assert!(result["transactions"].as_u64() > Some(10), "{job}");
    for (id, expected) in [
        ("transactions", result["transactions"].as_f64().unwrap()),
        (
            "transactions_per_second",
            result["transactions_per_second"].as_f64().unwrap(),
        ),
        (
            "throughput_bytes_per_second",
            result["throughput_bps"].as_f64().unwrap() / 8.0,
        ),
        ("elapsed_seconds", result["elapsed_s"].as_f64().unwrap()),
    ] {
        let id = format!("wirebench_socket_result_{id}{{job=\"{name}\"}}");
        // Reading the report's digits may cost the last of them.
        let told = value(&text, &id).unwrap_or_else(|| panic!("{id}: {text}"));
        assert!(
            (told - expected).abs() <= 1e-12 * expected,
            "{id}: {told} {expected}"
        );
    }
    assert!(
        text.contains("wirebench_run_phase{phase=\"done\"} 1"),
        "{text}"
    );
    assert!(!text.contains("phase=\"running\""), "{text}");
}
