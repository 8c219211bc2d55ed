//! Ports with more queues than workers. Their frames arrive on the queue that the peer chose: a kernel
//! that spreads connections over its queues, or a socket of wirebench that leaves the choice to the kernel.

use std::{
    fs::{self, File},
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kit::{Lab, Running, eventually, privileged, run, system, total, wirebench},
    load::{PATIENCE, Talking, assert_alike, counter, job, job_total, load, sent_again, words},
    load_interop::{Nginx, assert_perfect, inside, installed, kernel_at},
};

/// Frames that the XDP program has seen on each queue of a port so far.
fn by_queue(node: &str, interface: &str) -> Vec<u64> {
    let statistics = inside(node, &["ethtool", "-S", interface]);
    let line = |line: &str| {
        let (name, n) = line.trim().split_once(": ")?;
        let queue = name.strip_prefix("rx_queue_")?;
        queue.strip_suffix("_xdp_packets")?;
        n.parse().ok()
    };
    statistics.lines().filter_map(line).collect()
}

/// Checks that several queues of the port have got frames since `before`, and not only a stray one.
fn assert_spread(node: &str, interface: &str, before: &[u64], place: &str) {
    let after = by_queue(node, interface);
    let had = |queue: usize| before.get(queue).copied().unwrap_or(0);
    let got = (0..after.len())
        .filter(|&q| after[q] >= had(q) + 20)
        .count();
    assert!(got >= 2, "{place}: {before:?} to {after:?}");
}

fn workers(report: &Value, end: &str) -> usize {
    let job = job(report, end);
    job["workers"].as_array().expect("workers").len()
}

/// Checks that no frame arrived at a worker that did not expect it, except `again` segments that were sent again.
fn assert_none_astray(job: &Value, again: u64, place: &str) {
    assert!(counter(job, "drop_unknown") <= again, "{place}: {job}");
    assert_eq!(counter(job, "drop_datagram"), 0, "{place}: {job}");
    assert_eq!(
        job["totals"]["rx_dropped_frames"].as_u64().unwrap_or(0),
        0,
        "{place}"
    );
}

/// A finished worker continues to forward the frames that arrive at its queues.
#[test]
fn workers_that_are_done_leave_nobody_waiting() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "4"]);
    let ends = format!("--client {} --server {}", lab.a0(), lab.b0());
    for options in ["--workers 4", "--workers 4 --server-workers 2 --udp"] {
        for run in 0..4 {
            let line = format!("{ends} {options} --cps 5k --duration 500ms --drain 3s");
            let report = load(&words(&line), 0);
            let job = job(&report, "client");
            assert_eq!(job_total(job, "open_connections"), 0, "{line} {run}: {job}");
            assert_alike(&report, &line);
        }
    }
}

#[test]
fn answers_of_a_kernel_find_their_connection_on_any_queue() {
    if !privileged() || !installed(&["nginx", "ethtool"]) {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "4"]);
    let node = kernel_at(&lab, "b");
    let nginx = Nginx::start(&node);
    for driver in ["xdp", "packet"] {
        for n in [1, 2, 4] {
            let before = by_queue(&lab.node("a"), "a0");
            let line = format!(
                "--client {driver}:{} --cps 200 --requests 3 --duration 1s --drain 20s --retransmit 50s --workers {n}",
                lab.a0()
            );
            let report = load(&words(&line), 0);
            let place = format!("{driver}, {n} workers");
            assert_perfect(&report, &place);
            assert_eq!(workers(&report, "client"), n, "{place}");
            assert_none_astray(job(&report, "client"), 0, &place);
            if driver == "xdp" {
                assert_spread(&lab.node("a"), "a0", &before, &place);
            }
        }
    }
    drop(nginx);
}

#[test]
fn requests_of_a_kernel_find_the_worker_of_their_connection() {
    if !privileged() || !installed(&["python3", "ethtool"]) {
        return;
    }
    const CLIENT: &str = "
import http.client
for n in range(60):
    c = http.client.HTTPConnection('198.19.1.2', 80, timeout=10)
    for m in range(3):
        c.request('GET', '/')
        r = c.getresponse()
        assert r.status == 200 and len(r.read()) == 1500
    c.close()
";
    let lab = Lab::up("pair", &["--queues", "4"]);
    let node = kernel_at(&lab, "a");
    for driver in ["xdp", "packet"] {
        for n in ["1", "2", "4"] {
            let place = format!("{driver}, {n} workers");
            let before = by_queue(&lab.node("b"), "b0");
            let at = format!("{driver}:{}", lab.b0());
            let line = [
                "--server",
                &at,
                "--server-workers",
                n,
                "--answer",
                "http:1500",
                "--retransmit",
                "50s",
            ];
            let server = Talking::start(&line);
            let output = system(
                "ip",
                &[
                    "netns", "exec", &node, "timeout", "60", "python3", "-c", CLIENT,
                ],
            );
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{place}: {said}");
            let report = server.stop();
            let server = job(&report, "server");
            assert_eq!(
                job_total(server, "completed_connections"),
                60,
                "{place}: {server}"
            );
            assert_eq!(job_total(server, "responses"), 180, "{place}: {server}");
            assert_eq!(workers(&report, "server").to_string(), n, "{place}");
            assert_none_astray(server, 0, &place);
            if driver == "xdp" {
                assert_spread(&lab.node("b"), "b0", &before, &place);
            }
        }
    }
}

#[test]
fn both_ends_agree_whatever_numbers_of_workers_they_have() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "4"]);
    // The flow selects the queue for frames of a packet socket.
    for (client, server, options) in [
        ("xdp", "xdp", "--workers 1 --server-workers 4"),
        ("xdp", "packet", "--workers 4 --server-workers 1"),
        ("packet", "xdp", "--workers 2 --server-workers 3 -6"),
    ] {
        let line = format!(
            "--client {client}:{} --server {server}:{} --cps 300 --duration 1s --drain 20s --retransmit 50s --answer http:4000 {options}",
            lab.a0(),
            lab.b0()
        );
        let report = load(&words(&line), 0);
        assert_alike(&report, &line);
        for end in ["client", "server"] {
            assert_none_astray(job(&report, end), sent_again(&report), &line);
        }
    }
}

#[test]
fn more_workers_than_queues_are_refused_with_the_most_there_may_be() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "2"]);
    let (a, b) = (lab.a0(), lab.b0());
    let xdp = format!("xdp:{a}");
    for line in [
        vec!["load", "--client", &xdp, "--workers", "3", "--cps", "1"],
        vec!["tx", "-i", &xdp, "--workers", "3"],
        vec!["rx", "-i", &xdp, "--workers", "3"],
    ] {
        let output = run(&line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {said}");
        assert!(
            said.contains("3 workers need 3") && said.contains("2 are enabled"),
            "{line:?}: {said}"
        );
    }
    // xdp was not requested: the packet driver has any number of workers.
    let line = format!(
        "--client {a} --server {b} --workers 3 --server-workers 3 --cps 100 --duration 500ms --drain 20s"
    );
    let report = load(&words(&line), 0);
    assert_alike(&report, &line);
    assert_eq!(
        (workers(&report, "client"), workers(&report, "server")),
        (3, 3)
    );
}

/// Rows of workers that receive.
fn receivers(report: &Value) -> usize {
    let workers = report["workers"].as_array().expect("workers");
    workers.iter().filter(|w| w["role"] == "rx").count()
}

#[test]
fn a_trial_has_as_many_receiving_workers_as_it_was_told() {
    if !privileged() || !installed(&["ethtool"]) {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "4"]);
    let tx = format!("xdp:{}", lab.a0());
    for driver in ["xdp", "packet"] {
        for n in ["1", "2", "4"] {
            let place = format!("{driver}, {n} workers");
            let before = by_queue(&lab.node("b"), "b0");
            let rx = format!("{driver}:{}", lab.b0());
            let options = words("--workers 4 --rate 20kpps --duration 300ms --flows 64 --drain 1s");
            let options = [options.as_slice(), &["--rx-workers", n]].concat();
            let report = lab.trial_with(&tx, &rx, &options, 0);
            assert_eq!(
                receivers(&report).to_string(),
                n,
                "{place}: {}",
                report["workers"]
            );
            assert_eq!(
                (total(&report, "offered"), total(&report, "lost")),
                (6000, 0),
                "{place}"
            );
            assert_eq!(total(&report, "reordered"), 0, "{place}");
            if driver == "xdp" {
                assert_spread(&lab.node("b"), "b0", &before, &place);
            }
        }
    }
}

/// Sends test frames of one flow by the kernel, which puts each of its sockets on a queue that it likes.
const SPREADER: &str = "
import socket, struct, sys, time
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(512)]
for number in range(int(sys.argv[1])):
    tag = struct.pack('>HIIQ', 0xb5e1, 7, number, time.time_ns())
    sockets[number % 512].sendto(tag + bytes(20), ('198.19.1.2', 4000))
    if number % 64 == 0:
        time.sleep(0.002)
";

/// Lets a kernel at `a` send `frames` frames of one flow to `b`, which receives with `options`.
fn hear_a_kernel(lab: &Lab, frames: u64, options: &[&str]) -> Value {
    let at = format!("xdp:{}", lab.b0());
    let dir = tempfile::tempdir().unwrap();
    let heard = dir.path().join("heard");
    let child = wirebench()
        .args([
            "rx",
            "-i",
            &at,
            "--live-json",
            "--json",
            "-q",
            "--interval",
            "100ms",
        ])
        .args(options)
        .stdin(Stdio::null())
        .stdout(File::create(&heard).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let running = Running(child);
    let received = || {
        let text = fs::read_to_string(&heard).unwrap();
        let last = text.lines().rfind(|line| line.ends_with('}'))?;
        let snapshot: Value = serde_json::from_str(last).ok()?;
        snapshot["totals"]["received_frames"].as_u64()
    };
    eventually("it listens", || received().is_some());
    let (node, count) = (lab.node("a"), frames.to_string());
    inside(&node, &["timeout", "60", "python3", "-c", SPREADER, &count]);
    let begin = Instant::now();
    // If some are lost, the report counts them.
    while received() < Some(frames) && begin.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal(Signal::INT);
    let output = running.finish(PATIENCE);
    assert_eq!(output.status.code(), Some(130));
    let text = fs::read(&heard).unwrap();
    let values = serde_json::Deserializer::from_slice(&text).into_iter::<Value>();
    values.last().expect("a report").expect("JSON")
}

#[test]
fn a_flow_that_is_spread_over_queues_is_not_called_reordered() {
    if !privileged() || !installed(&["python3", "ethtool"]) {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "4"]);
    kernel_at(&lab, "a");
    for n in ["1", "2"] {
        let before = by_queue(&lab.node("b"), "b0");
        let report = hear_a_kernel(&lab, 4096, &["--rx-workers", n]);
        assert_spread(&lab.node("b"), "b0", &before, n);
        assert_eq!(total(&report, "received"), 4096, "{n}");
        assert_eq!(receivers(&report).to_string(), n);
        assert_eq!(total(&report, "reordered"), 0, "{n}: {}", report["totals"]);
        let said = report["warnings"].to_string();
        assert!(said.contains("spread over several receive"), "{n}: {said}");
    }
}

#[test]
fn all_queues_of_a_wide_device_are_read() {
    if !privileged() || !installed(&["python3", "ethtool"]) {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "70"]);
    kernel_at(&lab, "a");
    let report = hear_a_kernel(&lab, 4096, &[]);
    let counts = by_queue(&lab.node("b"), "b0");
    assert_eq!(counts.len(), 70);
    assert!(counts[64..].iter().sum::<u64>() > 0, "{counts:?}");
    assert_eq!(total(&report, "received"), 4096);
    assert_eq!(receivers(&report), 1);
}

#[test]
fn a_mode_of_xdp_that_was_asked_for_has_no_substitute() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let a = lab.a0();
    let output = run(&[
        "tx",
        "-i",
        &a,
        "--xdp-mode",
        "zero-copy",
        "--duration",
        "100ms",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no zero copy on queue 0"), "{said}");
    let output = run(&[
        "tx",
        "-i",
        &a,
        "--xdp-mode",
        "native",
        "--duration",
        "100ms",
        "--rate",
        "100pps",
        "--json",
        "-q",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["ports"][0]["driver"], "xdp");
}

#[test]
fn the_largest_receive_ring_of_a_capture_is_what_the_manual_says() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.pcap");
    let child = wirebench()
        .args([
            "capture",
            "--xdp",
            "-i",
            &lab.b0(),
            "--xdp-ring",
            "1048576",
            "-w",
        ])
        .arg(&file)
        .args(["-a", "duration:1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = Running(child).finish(PATIENCE);
    let said = String::from_utf8_lossy(&output.stderr);
    // Two GiB of memory for its frames: less than a quarter of what not every machine has.
    let too_much = said.contains("MiB, a quarter of the memory");
    assert!(output.status.success() || too_much, "{said}");
}

/// A router with two queues forwards the frames of two workers inside the kernel on two CPUs.
#[test]
fn a_router_has_queues_for_several_workers() {
    if !privileged() || !installed(&["ethtool"]) {
        return;
    }
    let lab = Lab::up("router", &["--queues", "2"]);
    let (tx, rx) = (format!("live:{}", lab.a0()), format!("live:{}", lab.b0()));
    // The far end of the router has an XDP program only during a run.
    let before = by_queue(&lab.node("b"), "b0");
    // The router selects the queue by a hash of the flow, with a key that differs each time the machine starts.
    let options = words("--rate 50kpps --duration 1s --workers 2 --flows 64 --drain 500ms");
    let report = lab.trial_with(&tx, &rx, &options, 0);
    assert_eq!(total(&report, "offered"), 50_000);
    assert_eq!(total(&report, "received"), 50_000, "{}", report["totals"]);
    assert_spread(&lab.node("b"), "b0", &before, "behind the router");
}
