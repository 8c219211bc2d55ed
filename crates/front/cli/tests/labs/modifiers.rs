//! Modifiers of RFC 2544 sections 11 and 21 in addition to the test frames, through the lab `router`.

use std::{
    collections::BTreeSet,
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;
use wb_machine::{Namespace, in_namespace};

use crate::kit::{self, Lab, Running, eventually, privileged, run, system, total};

fn bench(lab: &Lab, more: &[&str]) -> Value {
    let (a0, b0) = (lab.a0(), lab.b0());
    let own = [
        "bench",
        "rfc2544",
        "--tx",
        &a0,
        "--rx",
        &b0,
        "--fast",
        "--isolated",
        "--json",
        "--quiet",
        "--tests",
        "throughput",
    ];
    let line: Vec<&str> = own.iter().chain(more).copied().collect();
    let output = run(&line);
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"))
}

/// Bursts of 16 pass at a load that the router carries, with the gap that this load means; no gap helps those for which
/// bucket and queue have no room. The search itself is tested on paper.
#[test]
fn the_gap_between_bursts() {
    if !privileged() {
        return;
    }
    // 1,230 frames of 508 bytes without FCS in a second, and room for some 60.
    let lab = Lab::alone("router", &["--limit", "5mbit"]);
    let report = bench(
        &lab,
        &[
            "--sizes",
            "512",
            "--max",
            "1kpps",
            "--min",
            "500",
            "--precision",
            "20%",
            "--modifiers",
            "bursts",
            "--burst-lengths",
            "16,256",
        ],
    );
    let results = report["results"].as_array().unwrap();
    let [even, short, long] = &results[..] else {
        panic!("{report}");
    };
    assert_eq!(
        (&even["burst"], even["limit"].as_f64()),
        (&Value::Null, Some(1_000.0)),
        "{even}"
    );
    let burst = &short["burst"];
    assert_eq!(
        (&burst["frames"], short["limit"].as_f64()),
        (&16.into(), Some(1_000.0)),
        "{short}"
    );
    let get = |key: &str| burst[key].as_f64().unwrap();
    assert_eq!(get("period_us"), 16_000.0);
    let left = 16_000.0 - 16e6 / get("burst_fps");
    assert!(
        (get("gap_us") - left).abs() < 1e-3 && left > 10_000.0,
        "{burst}"
    );
    assert_eq!(long["burst"]["frames"], 256);
    assert_eq!(
        (&long["limit"], &long["burst"]["gap_us"]),
        (&Value::Null, &Value::Null)
    );
    let losses = long["trial_log"].as_array().unwrap().iter();
    assert!(
        losses.filter(|trial| trial["outcome"] == "fail").count() > 0,
        "{long}"
    );
}

/// Answers queries at the router's own address, until it is dropped.
struct Agent {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Agent {
    fn at(node: &str) -> Self {
        let node = Namespace::named(node).unwrap();
        let socket = in_namespace(&node, || UdpSocket::bind("198.18.1.1:161"));
        let socket = socket.unwrap().unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut bytes, mut answered) = ([0; 1500], 0);
            while !over.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else {
                    continue;
                };
                socket.send_to(&response(&bytes[..len]), from).unwrap();
                answered += 1;
            }
            answered
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Number of answers.
    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The response to a GetRequest for one variable: TimeTicks of one byte in place of its NULL, so all around it is one
/// byte longer.
fn response(request: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_vec();
    let pdu = 5 + 2 + usize::from(bytes[6]);
    assert_eq!(bytes[pdu], 0xa0, "{request:x?}");
    bytes[pdu] = 0xa2;
    let len = bytes.len();
    bytes.splice(len - 2.., [0x43, 1, 7]);
    for at in [1, pdu + 1, len - 15, len - 13] {
        bytes[at] += 1;
    }
    bytes
}

/// Section 11.2 and 11.3, as the router sees them.
#[test]
fn queries_and_updates_beside_a_test() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("router", &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seen.pcap");
    let port = lab.port("dut", "da");
    let capture = Running(
        kit::capture(&[
            "-i",
            &port,
            "-w",
            file.to_str().unwrap(),
            "--duration",
            "60s",
            "--quiet",
            "udp and (port 161 or port 520)",
        ])
        .spawn()
        .unwrap(),
    );
    eventually("the capture has its file", || file.exists());
    let agent = Agent::at(&lab.node("dut"));
    let options = [
        "--sizes",
        "64",
        "--max",
        "1kpps",
        "--precision",
        "10%",
        "--duration",
        "1500ms",
        "--modifiers",
        "management,routing",
        "--snmp-community",
        "secret",
    ];
    let report = bench(&lab, &options);
    let result = &report["results"][0];
    assert_eq!(result["limit"], 1000.0, "{result}");
    let queries = &result["management"];
    let sent = queries["sent"].as_u64().unwrap();
    assert_eq!(
        (&queries["answered"], &queries["unanswered"]),
        (&sent.into(), &0.into()),
        "{result}"
    );
    assert_eq!(
        agent.end(),
        sent + 2,
        "the tester's ceiling was looked at twice beside"
    );
    let updates = result["routing_updates"].as_u64().unwrap();
    let trials = result["trial_log"].as_array().unwrap();
    for trial in trials.iter().filter(|trial| trial["outcome"] == "pass") {
        assert_eq!(trial["routing_updates"], 1, "{trial}");
        let seconds = trial["duration_s"].as_f64().unwrap().ceil();
        assert_eq!(
            trial["management"]["sent"].as_f64(),
            Some(seconds),
            "{trial}"
        );
    }
    // An absent agent is reported, and nothing else changes.
    let report = bench(&lab, &options);
    let result = &report["results"][0];
    assert_eq!(result["limit"], 1000.0, "{result}");
    assert_eq!(result["management"]["answered"], 0);
    let warnings = report["warnings"].as_array().unwrap();
    let told = |w: &Value| w.as_str().unwrap().starts_with("none of");
    assert!(warnings.iter().any(told), "{warnings:?}");
    capture.signal(rustix::process::Signal::INT);
    capture.finish(Duration::from_secs(10));
    judged_by_tshark(file.to_str().unwrap(), updates);
}

/// Verification of the frames by another decoder.
fn judged_by_tshark(file: &str, updates: u64) {
    if std::process::Command::new("tshark")
        .arg("-v")
        .output()
        .is_err()
    {
        wb_skip::skipped("no tshark here");
        return;
    }
    let fields = |filter: &str, fields: &[&str]| {
        let mut line = vec![
            "-n",
            "-r",
            file,
            "-o",
            "udp.check_checksum:TRUE",
            "-Y",
            filter,
            "-T",
            "fields",
        ];
        line.extend(fields.iter().flat_map(|field| ["-e", field]));
        let output = system("tshark", &line);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let snmp = fields(
        "snmp.get_request_element",
        &[
            "snmp.version",
            "snmp.community",
            "snmp.name",
            "udp.checksum.status",
            "_ws.malformed",
        ],
    );
    assert!(!snmp.is_empty());
    for line in snmp.lines() {
        assert_eq!(line.trim_end(), "1\tsecret\t1.3.6.1.2.1.1.3.0\t1", "{snmp}");
    }
    let rip = fields(
        "rip",
        &[
            "ip.dst",
            "eth.dst",
            "ip.ttl",
            "rip.version",
            "rip.command",
            "udp.checksum.status",
            "_ws.malformed",
        ],
    );
    assert!(rip.lines().count() as u64 >= updates, "{rip}");
    for line in rip.lines() {
        assert_eq!(
            line.trim_end(),
            "224.0.0.9\t01:00:5e:00:00:09\t1\t2\t2\t1",
            "{rip}"
        );
    }
    // Trials begin with one table and the other in turn.
    let metrics = fields("rip", &["rip.metric"]);
    let seen: BTreeSet<String> = metrics.lines().map(Into::into).collect();
    let (there, gone) = (["1"; 12].join(","), ["16"; 12].join(","));
    let both = [format!("{there},{gone}"), format!("{gone},{there}")];
    assert_eq!(seen, BTreeSet::from(both));
}

/// Section 11.4: the router forwards what a trial sends by default, and nothing else.
#[test]
fn a_filter_of_25_conditions() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &["--filters", "25"]);
    let passed = |more: &[&str], code| {
        let options = [&["--rate", "1kpps", "--duration", "300ms"], more].concat();
        let report = lab.trial_with(&lab.a0(), &lab.b0(), &options, code);
        (total(&report, "offered"), total(&report, "received"))
    };
    assert_eq!(passed(&[], 0), (300, 300));
    assert_eq!(passed(&["-6"], 0), (300, 300));
    // Another pair, one that is denied, and the way back.
    for more in [
        &["--dst", "198.19.1.3"],
        &["--dst", "198.19.111.2"],
        &["--src", "198.18.1.3"],
    ] {
        assert_eq!(passed(more, 3), (300, 0), "{more:?}");
    }
    assert_eq!(
        lab.status()["options"]["filters"].as_array().unwrap().len(),
        50
    );
}
