//! Socket tests between two hosts with wirebench at both ends: both ends report the same, and every
//! byte has been counted. Rates are not checked.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Lab, Running, eventually, privileged, system};

mod asleep;
mod faults;
mod interop;
mod intervals;
mod many;
mod rates;
mod requests;
mod rows;
mod sweep;

/// The hosts b of the labs.
pub(crate) const SERVER_V4: &str = "198.19.1.2";
pub(crate) const SERVER_V6: &str = "2001:2:0:8001::2";
/// Maximum duration of a test of one or two seconds on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command of the system in a namespace, ended after 90 s.
pub(crate) fn within(node: &str, program: &str, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", "90", "ip", "netns", "exec", node, program])
        .args(words)
        .stdin(Stdio::null());
    command
}

/// The binary in a namespace, run to its end.
pub(crate) fn ours(node: &str, words: &[&str]) -> Output {
    ours_going_on(node, words).finish(Duration::from_secs(90))
}

/// The binary in a namespace, without a program in between, so that it receives the signals of the test.
pub(crate) fn ours_going_on(node: &str, words: &[&str]) -> Running {
    let child = Command::new("ip")
        .args(["netns", "exec", node, env!("CARGO_BIN_EXE_wirebench")])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    Running(child)
}

/// Waits until a process listens at a TCP port of a node.
pub(crate) fn wait_for_port(node: &str, port: u16) {
    let wanted = format!(":{port:04X}");
    eventually("it listens", || {
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
            let output = system("ip", &["netns", "exec", node, "cat", table]);
            String::from_utf8_lossy(&output.stdout).lines().any(|line| {
                let address = line.split_whitespace().nth(1);
                address.is_some_and(|a| a.ends_with(&wanted)) && line.contains(" 0A ")
            })
        })
    });
}

/// `wirebench netserver` at its usual port, with these options; it prints its report when it is stopped.
pub(crate) struct Server(Running);

impl Server {
    pub(crate) fn start(node: &str, ours: &[&str], theirs: &[&str]) -> Self {
        let words = [&["netserver", "--json"], ours, &["--", "-D"], theirs].concat();
        let running = ours_going_on(node, &words);
        wait_for_port(node, 12865);
        Self(running)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    /// Ends it in order; what it did.
    pub(crate) fn end(self) -> Value {
        self.0.signal(Signal::TERM);
        let output = self.0.finish(PATIENCE);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(128 + 15), "{said}");
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
        let counts = report["socket"]["server"].clone();
        assert!(counts.is_object(), "{report}");
        counts
    }
}

/// Report of `wirebench netperf` with these options; the run must end with `code`.
pub(crate) fn report_of(output: &Output, code: i32) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{said}\n{printed}");
    serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {said}\n{printed}"))
}

/// Our netperf from host a to host b; the report of its only job.
fn job_with(lab: &Lab, ours_first: &[&str], theirs: &str) -> Value {
    let words: Vec<&str> = ["netperf", "--json"]
        .into_iter()
        .chain(ours_first.iter().copied())
        .chain(["--", "-H", SERVER_V4])
        .chain(theirs.split_whitespace())
        .collect();
    let report = report_of(&ours(&lab.node("a"), &words), 0);
    let job = report["socket"]["jobs"][0].clone();
    assert!(job["failure"].is_null(), "{words:?}: {}", job["failure"]);
    job
}

fn number(value: &Value, path: &str) -> u64 {
    let found = value.pointer(path);
    found
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no {path} in {value}"))
}

fn real(value: &Value, path: &str) -> f64 {
    let found = value.pointer(path);
    found
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("no {path} in {value}"))
}

/// Checks that each end received what its peer sent.
fn assert_ends_agree(job: &Value) {
    for (from, to) in [("local", "remote"), ("remote", "local")] {
        assert_eq!(
            number(job, &format!("/{from}/bytes_sent")),
            number(job, &format!("/{to}/bytes_received")),
            "{from} to {to}: {job}"
        );
    }
}

#[test]
fn both_ends_say_the_same() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    for theirs in [
        "-t TCP_STREAM -l 1",
        "-t TCP_MAERTS -l 1",
        "-t TCP_SENDFILE -l 1",
        "-t TCP_RR -l 1 -- -r 10,200",
        "-t TCP_CRR -l 1 -- -r 10,200",
        "-t TCP_CC -l 1",
        "-t TCP_RR -l 1 -- -b 7 -r 64",
    ] {
        let job = job_with(&lab, &[], theirs);
        // These two have special messages, without room for more.
        let old = theirs.contains("SENDFILE") || theirs.contains("TCP_CC");
        assert_eq!(job["extended"], !old, "{theirs}");
        // Data in flight at the end does not count here, and may have arrived there.
        let cut = match theirs {
            "-t TCP_RR -l 1 -- -r 10,200" | "-t TCP_CRR -l 1 -- -r 10,200" => Some((1, 10, 200)),
            "-t TCP_RR -l 1 -- -b 7 -r 64" => Some((8, 64, 64)),
            _ => None,
        };
        if let Some((most, request, response)) = cut {
            let gone = number(&job, "/remote/bytes_received") - number(&job, "/local/bytes_sent");
            let come = number(&job, "/remote/bytes_sent") - number(&job, "/local/bytes_received");
            assert!(
                gone.is_multiple_of(request) && gone / request <= most,
                "{job}"
            );
            assert!(
                come.is_multiple_of(response) && come / response <= most,
                "{job}"
            );
        } else {
            assert_ends_agree(&job);
        }
        if theirs.contains("RR") {
            let transactions = number(&job, "/result/transactions");
            assert!(transactions > 0, "{theirs}: {job}");
        } else if !theirs.contains("CC") {
            assert!(number(&job, "/local/bytes_sent") + number(&job, "/remote/bytes_sent") > 0);
        }
    }
    // Counts are exact; bytes of a stream go in whole sends.
    for (theirs, sent, got, transactions) in [
        ("-t TCP_RR -l -500 -- -r 10,200", 5_000, 100_000, 500),
        ("-t TCP_RR -l -500 -- -r 10,200 -b 4", 5_000, 100_000, 500),
        ("-t TCP_CRR -l -50 -- -r 10,200", 500, 10_000, 50),
        ("-t TCP_CC -l -50", 0, 0, 50),
        ("-t UDP_RR -l -100 -- -r 32,64", 3_200, 6_400, 100),
        ("-t TCP_STREAM -l -1000000 -- -m 1000", 1_000_000, 0, 0),
        ("-t TCP_STREAM -l -1000001 -- -m 1000", 1_001_000, 0, 0),
        ("-t TCP_MAERTS -l -1000000 -- -m ,1000", 0, 1_000_000, 0),
    ] {
        let job = job_with(&lab, &[], theirs);
        assert_ends_agree(&job);
        assert_eq!(number(&job, "/local/bytes_sent"), sent, "{theirs}: {job}");
        assert_eq!(
            number(&job, "/local/bytes_received"),
            got,
            "{theirs}: {job}"
        );
        if transactions > 0 {
            assert_eq!(
                number(&job, "/result/transactions"),
                transactions,
                "{theirs}"
            );
        }
    }
    let did = server.end();
    assert_eq!(did["failed"], 0, "{did}");
    assert_eq!(did["completed"], 15, "{did}");
    assert_eq!(did["tests"], did["completed"], "{did}");
}

#[test]
fn streams_add_up() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    let job = job_with(&lab, &["--streams", "4"], "-l 1");
    assert_ends_agree(&job);
    let streams = job["streams"].as_array().expect("streams");
    assert_eq!(streams.len(), 4, "{job}");
    let sum: f64 = streams.iter().map(|s| real(s, "/throughput_bps")).sum();
    let whole = real(&job, "/result/throughput_bps");
    assert!((sum - whole).abs() <= whole * 0.001, "{sum} {whole}");
    let bytes: u64 = streams.iter().map(|s| number(s, "/bytes_sent")).sum();
    assert_eq!(bytes, number(&job, "/local/bytes_sent"), "{job}");
    let fairness = real(&job, "/fairness");
    assert!(fairness > 0.25 && fairness <= 1.0 + 1e-9, "{fairness}");

    let job = job_with(&lab, &["--streams", "3", "--reverse"], "-l 1");
    assert_ends_agree(&job);
    assert_eq!(number(&job, "/local/bytes_sent"), 0, "{job}");
    assert_eq!(job["streams"].as_array().expect("streams").len(), 3);

    let job = job_with(&lab, &["--bidir"], "-l 1");
    assert_ends_agree(&job);
    assert!(real(&job, "/result/throughput_bps") > 0.0, "{job}");
    assert!(real(&job, "/result/reverse_bps") > 0.0, "{job}");
    assert!(number(&job, "/local/bytes_received") > 0, "{job}");

    let job = job_with(&lab, &["--streams", "3"], "-t TCP_RR -l -300");
    assert_ends_agree(&job);
    // The result is of the time in which all three were running.
    assert_eq!(number(&job, "/local/bytes_sent"), 900, "{job}");
    assert!(number(&job, "/result/transactions") <= 900, "{job}");
    let did = server.end();
    assert_eq!(
        (&did["failed"], &did["completed"]),
        (&0.into(), &12.into()),
        "{did}"
    );
}

#[test]
fn intervals_rates_and_percentiles() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    let job = job_with(&lab, &["--interval", "200ms"], "-l 2");
    let intervals = job["intervals"].as_array().expect("intervals");
    assert!(intervals.len() >= 4, "{}", intervals.len());
    assert_eq!(real(&intervals[0], "/from_s"), 0.0);
    for two in intervals.windows(2) {
        assert_eq!(two[0]["to_s"], two[1]["from_s"]);
        assert!(real(&two[1], "/to_s") > real(&two[1], "/from_s"));
    }
    let units: u64 = intervals.iter().map(|i| number(i, "/units")).sum();
    assert_eq!(units, number(&job, "/local/bytes_sent"), "{job}");
    assert!(number(&intervals[1], "/tcp/0/cwnd") > 0, "{}", intervals[1]);

    let job = job_with(&lab, &["--latency"], "-t TCP_RR -l 1");
    let latency = &job["latency_ns"];
    let whole = |key: &str| {
        latency[key]
            .as_i64()
            .unwrap_or_else(|| panic!("{key}: {latency}"))
    };
    assert_eq!(
        number(&job, "/latency_ns/samples"),
        number(&job, "/result/transactions")
    );
    let row = [
        whole("min"),
        whole("p50"),
        whole("p90"),
        job["latency_p95_ns"].as_i64().expect("p95"),
        whole("p99"),
        whole("p999"),
        whole("p9999"),
        whole("max"),
    ];
    assert!(row.is_sorted() && row[0] > 0, "{row:?}");
    let mean = real(&job, "/latency_ns/mean");
    assert!(
        mean >= row[0] as f64 && mean <= row[7] as f64,
        "{mean} {row:?}"
    );
    // One at a time, so all together take the time of the run.
    let transactions = number(&job, "/result/transactions") as f64;
    let all = mean * transactions / 1e9;
    assert!(all <= real(&job, "/result/elapsed_s") * 1.02, "{all} {job}");

    // A schedule is not exceeded; how far a busy machine falls behind is its own affair.
    let job = job_with(&lab, &["--rate", "200"], "-t TCP_RR -l 2");
    let transactions = number(&job, "/result/transactions");
    assert!((40..=402).contains(&transactions), "{transactions}");
    assert_eq!(number(&job, "/latency_ns/samples"), transactions);
    let job = job_with(&lab, &["--rate", "500"], "-t UDP_STREAM -l 2 -- -m 200");
    let sent = number(&job, "/local/bytes_sent");
    assert!(sent > 0 && sent <= 1_002 * 200, "{sent}");
    assert_eq!(server.end()["failed"], 0);
}

/// A second wire between the hosts, past the device.
fn second_wire(lab: &Lab) {
    let (a, b) = (lab.node("a"), lab.node("b"));
    let ip = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = system("ip", &words);
        assert!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    ip(&format!(
        "link add past0 netns {a} type veth peer name past1 netns {b}"
    ));
    for (node, device, address) in [
        (&a, "past0", "198.51.100.1/24"),
        (&b, "past1", "198.51.100.2/24"),
    ] {
        ip(&format!("-n {node} addr add {address} dev {device}"));
        ip(&format!("-n {node} link set {device} up"));
    }
}

/// A figure of /proc/net/snmp of a node.
fn snmp(node: &str, protocol: &str, key: &str) -> u64 {
    let output = system("ip", &["netns", "exec", node, "cat", "/proc/net/snmp"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text
        .lines()
        .filter(|l| l.starts_with(&format!("{protocol}:")));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names
        .split_whitespace()
        .position(|n| n == key)
        .expect("this figure");
    values
        .split_whitespace()
        .nth(at)
        .and_then(|v| v.parse().ok())
        .expect("a number")
}

/// Counts datagrams without payload that reach the host.
fn count_empty_datagrams(node: &str) {
    let rules = "add table ip t; add counter ip t empty; \
        add chain ip t in { type filter hook input priority 0; }; \
        add rule ip t in udp length 8 counter name empty";
    let output = system("ip", &["netns", "exec", node, "nft", rules]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn empty_datagrams(node: &str) -> u64 {
    let words = [
        "netns", "exec", node, "nft", "list", "counter", "ip", "t", "empty",
    ];
    let output = system("ip", &words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let packets = text.split_once("packets ").map(|(_, rest)| rest);
    let number = packets.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|n| n.parse().ok()).expect("a counter")
}

/// The device's counters from a to b once it is at rest.
fn at_rest(lab: &Lab) -> Value {
    let mut last = Value::Null;
    eventually("the device comes to rest", || {
        let now = lab.status()["device"]["a_to_b"].clone();
        let rest = now.is_object() && now == last && now["inside"] == 0;
        last = now;
        std::thread::sleep(Duration::from_millis(80));
        rest
    });
    last
}

/// The control connection uses a separate wire, so the device sees only datagrams: those with
/// numbers, and a few empty ones that mark the end.
#[test]
fn datagrams_are_followed_through_the_device() {
    if !privileged() {
        return;
    }
    let impair = "--hosts --delay 300us --loss 1% --duplicate 0.5% --reorder 2%";
    let lab = Lab::alone("impair", &impair.split(' ').collect::<Vec<_>>());
    second_wire(&lab);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    count_empty_datagrams(&b);
    let before = snmp(&a, "Udp", "OutDatagrams");
    let words = format!(
        "netperf --json --track --rate 1000 -- -H 198.51.100.2 -t UDP_STREAM -l 3 -- -m 200 -H {SERVER_V4} -S 200K"
    );
    let report = report_of(&ours(&a, &words.split(' ').collect::<Vec<_>>()), 0);
    let job = &report["socket"]["jobs"][0];
    let did = at_rest(&lab);
    let device = |key: &str| number(&did, &format!("/{key}"));
    let count = |key: &str| number(job, &format!("/datagrams/{key}"));
    let left = snmp(&a, "Udp", "OutDatagrams") - before;
    // Datagrams dropped by the host are lost, too.
    let full = snmp(&b, "Udp", "RcvbufErrors");
    assert_eq!(left, device("arrived"), "{did}");
    assert_eq!(
        count("sent") * 200,
        number(job, "/local/bytes_sent"),
        "{job}"
    );
    assert_eq!(
        count("lost"),
        count("sent") - (count("received") - count("duplicate")),
        "{job}"
    );
    assert_eq!(count("foreign"), 0, "{job}");
    // Other datagrams mark the end of the test. Only these few are among the other frames of the device.
    let marks = left - count("sent");
    assert!(marks <= 10, "{marks} {job}");
    for (ours, theirs) in [
        (count("lost"), device("lost") + full),
        (count("duplicate"), device("duplicated")),
        (count("reordered"), device("reordered")),
    ] {
        assert!(
            ours <= theirs && theirs <= ours + marks,
            "{ours} {theirs} ({marks}): {did} {job}"
        );
    }
    // The number of marks that arrived shows how many were lost or duplicated: then the sum is exact.
    let marks_lost = device("lost") + full - count("lost");
    let marks_twice = device("duplicated") - count("duplicate");
    assert_eq!(
        empty_datagrams(&b),
        marks + marks_twice - marks_lost,
        "{did} {job}"
    );
    assert!(
        count("lost") > 5 && count("duplicate") > 0 && count("reordered") > 10,
        "{job}"
    );
    let one_way = &job["datagrams"]["one_way_ns"];
    // Departures may be made together, half of them early.
    assert!(one_way["min"].as_i64().unwrap() >= 250_000, "{one_way}");
    drop(server);
}

#[test]
fn the_text_and_the_plan() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    let text = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = ours(&lab.node("a"), &words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        assert_eq!(said, "", "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // Interim lines are printed on time, the last for the remainder.
    let demo = text(&format!("netperf -H {SERVER_V4} -D 0.3 -l 1"));
    let lines: Vec<&str> = demo
        .lines()
        .filter(|l| l.starts_with("Interim result: "))
        .collect();
    assert!(lines.len() >= 3, "{demo}");
    for line in &lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.len(), 10, "{line}");
        assert_eq!(
            (words[3], words[4], words[6]),
            ("10^6bits/s", "over", "seconds"),
            "{line}"
        );
        assert!(
            words[2].parse::<f64>().is_ok() && words[5].parse::<f64>().is_ok(),
            "{line}"
        );
    }
    let keyed = text(&format!(
        "netperf -H {SERVER_V4} -D -0.3 -l 1 -P 0 -- -k THROUGHPUT,DIRECTION"
    ));
    assert!(keyed.contains("NETPERF_INTERIM_RESULT[0]="), "{keyed}");
    assert!(
        keyed.contains("\nTHROUGHPUT=") && keyed.contains("\nDIRECTION=Send\n"),
        "{keyed}"
    );

    // The original truncates addresses; wirebench does so only on request.
    let banner = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let ours_says = banner(&text(&format!("netperf -H {SERVER_V4} -l 1")));
    let strict = banner(&text(&format!("netperf --strict -- -H {SERVER_V4} -l 1")));
    assert!(
        ours_says.contains(&format!("to {SERVER_V4} ({SERVER_V4}) port 0 AF_INET")),
        "{ours_says}"
    );
    assert!(
        strict.contains(&format!("to {SERVER_V4} () port 0 AF_INET")),
        "{strict}"
    );

    // A printed plan runs the same.
    let words = format!(
        "netperf --print-plan --streams 2 -- -H {SERVER_V4} -t TCP_RR -l -200 -- -r 3,5 -D"
    );
    let plan = text(&words);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &plan).unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(text(&format!("run {path} --print-plan")), plan);
    let report: Value = serde_json::from_str(&text(&format!("run {path} --json -q"))).unwrap();
    let job = &report["socket"]["jobs"][0];
    assert_ends_agree(job);
    assert_eq!(number(job, "/local/bytes_sent"), 1_200, "{job}");
    assert_eq!(number(job, "/local/bytes_received"), 2_000, "{job}");
    assert_eq!(job["local"]["no_delay"], true, "{job}");

    // A link with the tool's name does, too.
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("netperf");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_wirebench"), &link).unwrap();
    let words = ["-H", SERVER_V6, "-P", "0", "-v", "0", "-l", "1"];
    let output = within(&lab.node("a"), path_of(&link), &words)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(
        printed.trim().parse::<f64>().is_ok_and(|n| n > 0.0),
        "{printed:?}"
    );
    assert_eq!(server.end()["failed"], 0);
}

fn path_of(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
