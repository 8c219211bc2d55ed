//! Streams inside the kernel: the same accounts as on the other paths.

use std::{process::Stdio, thread::sleep, time::Duration};

use serde_json::Value;

use crate::faults::wait_until_sending;
use crate::kit::{
    self, Lab, Running, assert_adds_up, eventually, privileged, run, system, total, wirebench,
};

fn live(port: &str) -> String {
    format!("live:{port}")
}

/// A trial with both ends in the kernel.
fn trial(lab: &Lab, options: &[&str]) -> Value {
    lab.trial_with(&live(&lab.a0()), &live(&lab.b0()), options, 0)
}

/// The device's counters from a to b once it is at rest.
fn truth(lab: &Lab) -> Value {
    let mut last = Value::Null;
    eventually("the device comes to rest", || {
        let now = lab.status()["device"]["a_to_b"].clone();
        let rest = now.is_object() && now == last && now["inside"] == 0;
        last = now;
        sleep(Duration::from_millis(80));
        rest
    });
    last
}

#[test]
fn every_frame_is_sent_and_accounted_for_in_the_kernel() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "2"]);
    let cases: [(&[&str], Option<u64>); 11] = [
        (&["--rate", "20kpps", "--duration", "1s"], Some(20_000)),
        (&["--rate", "100pps", "--duration", "1s"], Some(100)),
        (
            &["--rate", "10kpps", "--duration", "1s", "--ramp", "200ms"],
            Some(10_000),
        ),
        (
            &[
                "--stream",
                "size=64 rate=20kpps",
                "--stream",
                "size=imix rate=10kpps vlan=7 flows=3",
                "--duration",
                "1s",
            ],
            Some(30_000),
        ),
        (
            &[
                "--rate",
                "50kpps",
                "--duration",
                "1s",
                "--workers",
                "2",
                "--flows",
                "10",
            ],
            Some(50_000),
        ),
        (
            &["--rate", "max", "--count", "200000", "--workers", "2"],
            Some(200_000),
        ),
        (
            &["--rate", "max", "--duration", "500ms", "--size", "imix"],
            None,
        ),
        (
            &["--burst", "20", "--gap", "10ms", "--duration", "1s"],
            Some(2_000),
        ),
        (
            &[
                "--rate",
                "20kpps",
                "--duration",
                "1s",
                "-6",
                "--proto",
                "tcp",
                "--size",
                "120",
                "--flows",
                "100",
            ],
            Some(20_000),
        ),
        (
            &[
                "--rate",
                "20kpps",
                "--duration",
                "1s",
                "--vlan",
                "5,6",
                "--size",
                "100",
            ],
            Some(20_000),
        ),
        (
            &[
                "--rate",
                "10kpps",
                "--duration",
                "1s",
                "--bidir",
                "--vary",
                "sport=random:1-9999",
            ],
            Some(20_000),
        ),
    ];
    for (options, planned) in cases {
        let report = trial(&lab, options);
        let offered = total(&report, "offered");
        assert!(
            offered > 0 && planned.is_none_or(|n| n == offered),
            "{options:?}: {offered}"
        );
        assert_eq!(
            total(&report, "received"),
            offered,
            "{options:?}: {}",
            report["totals"]
        );
        let latencies = report["latency_ns"]["samples"].as_u64().unwrap();
        assert_eq!(latencies, offered, "{options:?}");
        for port in report["ports"].as_array().unwrap() {
            assert_eq!(port["driver"], "live");
            assert!(port["locator"].as_str().unwrap().starts_with("live:"));
        }
        // Counters of the device.
        let sent = &report["ports"][0];
        let counted = |when: &str| sent[when]["tx_packets"].as_u64().unwrap();
        assert!(
            counted("after") - counted("before") >= offered / 2,
            "{options:?}"
        );
    }
}

#[test]
fn what_a_device_does_is_what_the_kernel_accounts_for() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone(
        "impair",
        &[
            "--delay",
            "300us",
            "--loss",
            "1%",
            "--duplicate",
            "0.5%",
            "--reorder",
            "2%",
        ],
    );
    // Each end alone in the kernel, and both.
    let (a, b) = (lab.a0(), lab.b0());
    let mut before = truth(&lab);
    let xdp = |port: &str| format!("xdp:{port}");
    for (tx, rx) in [
        (live(&a), live(&b)),
        (live(&a), xdp(&b)),
        (xdp(&a), live(&b)),
        (a.clone(), b.clone()),
    ] {
        let options = ["--rate", "50kpps", "--duration", "1s"];
        let report = lab.trial_with(&tx, &rx, &options, 0);
        let now = truth(&lab);
        let did = |key: &str| now[key].as_u64().unwrap() - before[key].as_u64().unwrap();
        assert_eq!(total(&report, "offered"), did("arrived"), "{tx} {rx}");
        assert_eq!(total(&report, "lost"), did("lost"), "{tx} {rx}: {now}");
        assert_eq!(total(&report, "duplicate"), did("duplicated"), "{tx} {rx}");
        assert_eq!(total(&report, "reordered"), did("reordered"), "{tx} {rx}");
        assert_eq!(total(&report, "received"), did("left"), "{tx} {rx}");
        assert!(did("lost") > 100 && did("reordered") > 200, "{now}");
        let because = report["ports"][0]["chosen_because"].as_str().unwrap();
        assert_eq!(
            because.contains("passes all frames"),
            !tx.starts_with("xdp:"),
            "{because}"
        );
        before = now;
    }
}

#[test]
fn a_router_changes_frames_and_none_comes_back_wrong() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    // In addition to the TTL and the addresses of layer 2, nftables changes DSCP and identification.
    let change = [
        "add table ip wb",
        "add chain ip wb out { type filter hook postrouting priority 0; }",
        "add rule ip wb out ip dscp set af11 ip id set 4242",
    ];
    for command in change {
        system("ip", &["netns", "exec", &lab.node("dut"), "nft", command]);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seen.pcap");
    let path = file.to_str().unwrap();
    let port = lab.port("dut", "da");
    let capture = Running(
        kit::capture(&["-i", &port, "-w", path, "-q", "udp port 7"])
            .spawn()
            .unwrap(),
    );
    eventually("the capture has its file", || file.exists());
    // Enough frames to reuse their memory several times, with the changes of the router in it.
    let options = [
        "--rate",
        "20kpps",
        "--duration",
        "5s",
        "--flows",
        "20",
        "--size",
        "imix",
    ];
    let report = trial(&lab, &options);
    assert_eq!(total(&report, "offered"), 100_000);
    assert_eq!(
        total(&report, "lost"),
        0,
        "{} {}",
        report["totals"],
        report["warnings"]
    );
    capture.signal(rustix::process::Signal::INT);
    capture.finish(Duration::from_secs(20));
    let shark = |options: &[&str]| {
        let line = [
            "-n",
            "-r",
            path,
            "-o",
            "ip.check_checksum:TRUE",
            "-o",
            "udp.check_checksum:TRUE",
        ];
        let output = system("tshark", &[&line[..], options].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let right = "ip.checksum.status == 1 && udp.checksum.status == 1 && ip.ttl == 64 && ip.dsfield == 0 && ip.id == 0";
    let count = |filter: &str| {
        shark(&["-Y", filter, "-T", "fields", "-e", "eth.dst"])
            .lines()
            .count()
    };
    assert_eq!(count(&format!("!({right})")), 0);
    // A busy machine may capture some less.
    let seen = count(right);
    assert!((50_000..=100_000).contains(&seen), "{seen}");
}

#[test]
fn who_only_receives_accounts_for_the_flows_that_it_was_told_of() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let b = live(&lab.b0());
    for (driver, flows, ours) in [("xdp", 10, 5000), ("packet", 3, 1500), ("live", 10, 5000)] {
        let flows = flows.to_string();
        let receiver = Running::start(&["rx", "-i", &b, "--flows", &flows, "--json"]);
        eventually("the program is there", || {
            let link = system("ip", &["-n", &lab.node("b"), "link", "show", "b0"]);
            String::from_utf8_lossy(&link.stdout).contains("xdp")
        });
        // Workers begin a moment after their ports are open.
        sleep(Duration::from_millis(1500));
        let tx = format!("{driver}:{}", lab.a0());
        let sent = wirebench()
            .args(["tx", "-i", &tx, "--dst", "198.19.1.2", "--flows", "10"])
            .args(["--rate", "20kpps", "--count", "5000"])
            .output()
            .expect("runs");
        assert!(sent.status.success(), "{sent:?}");
        receiver.signal(rustix::process::Signal::INT);
        let output = receiver.finish(Duration::from_secs(30));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            total(&report, "received"),
            ours,
            "{driver}: {}",
            report["totals"]
        );
        assert_eq!(total(&report, "foreign"), 5000 - ours, "{driver}");
        assert_eq!(total(&report, "unplanned"), 5000 - ours, "{driver}");
        let warnings = report["warnings"].to_string();
        let told = "3,500 frames had a tag of flows beyond the 3 planned ones (set `--flows N`";
        assert_eq!(warnings.contains(told), ours < 5000, "{driver}: {warnings}");
        assert_eq!(total(&report, "lost"), 0, "{driver}");
        let flows = report["flows"].as_array().expect("flows");
        assert_eq!(flows.len() as u64, ours / 500, "{driver}");
        for flow in flows {
            assert_eq!(flow["totals"]["received_frames"], 500, "{driver}: {flow}");
        }
    }
}

#[test]
fn a_program_that_leaves_the_other_end_ends_the_run_with_the_reason() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (live(&lab.a0()), live(&lab.b0()));
    // It is what lets frames of programs in there.
    let receiver = Running::start(&["rx", "-i", &b, "--flows", "1", "--json", "-q"]);
    eventually("the program is there", || {
        let link = system("ip", &["-n", &lab.node("b"), "link", "show", "b0"]);
        String::from_utf8_lossy(&link.stdout).contains("xdp")
    });
    let sender = Running::start(&[
        "tx", "-i", &a, "--rate", "10kpps", "--count", "600000", "--json", "-q",
    ]);
    // A sender that finds no program at the other end attaches one.
    wait_until_sending(&lab);
    receiver.signal(rustix::process::Signal::INT);
    let received = receiver.finish(Duration::from_secs(10));
    let output = sender.finish(Duration::from_secs(10));
    let error = String::from_utf8_lossy(&output.stderr);
    let read = |bytes: &[u8]| -> Value {
        serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{e}: {error}"))
    };
    let (received, sent) = (read(&received.stdout), read(&output.stdout));
    assert_eq!(output.status.code(), Some(4), "{error}");
    let reason = sent["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("accepts frames from programs only while"),
        "{reason}"
    );
    assert_adds_up(&sent);
    // Frames that were in flight when the program stopped counting belong to no count.
    let (offered, came) = (total(&sent, "offered"), total(&received, "received"));
    assert!(came > 0 && came <= offered, "{came} of {offered}");
}

#[test]
fn what_it_cannot_do_is_said_before_anything_starts() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (live(&lab.a0()), live(&lab.b0()));
    for (tx, rx, options, said) in [
        (
            &a,
            &b,
            &["--rate", "1kpps", "--tag", "none"][..],
            "without a tag",
        ),
        (
            &a,
            &b,
            &["--rate", "1kpps", "--tag", "pktgen"],
            "wirebench tag",
        ),
        (&a, &b, &["--rate", "1kpps", "--size", "9000"], "MTU"),
    ] {
        let output = wirebench()
            .args(["trial", "--tx", tx, "--rx", rx, "--duration", "1s"])
            .args(options)
            .output()
            .expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {error}");
        assert!(error.contains(said), "{options:?}: {error}");
    }
    let alone = wirebench()
        .args(["rx", "-i", &b, "--duration", "1s"])
        .output()
        .expect("runs");
    assert_eq!(alone.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("rx --flows N"));
    let capture = wirebench()
        .args(["capture", "-i", &b, "-w", "/dev/null", "-c", "1"])
        .output()
        .expect("runs");
    assert_eq!(capture.status.code(), Some(2), "{capture:?}");
}

#[test]
fn nothing_stays_behind_when_it_is_killed() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let mut child = wirebench()
        .args(["trial", "--tx", &live(&lab.a0()), "--rx", &live(&lab.b0())])
        .args(["--rate", "max", "--duration", "60s", "-q"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let attached = || {
        let node = lab.node("b");
        let link = system("ip", &["-n", &node, "link", "show", "b0"]);
        String::from_utf8_lossy(&link.stdout).contains("xdp")
    };
    eventually("the receiver is attached", attached);
    sleep(Duration::from_millis(300));
    let programs = || lab.status()["programs"].clone();
    let at: Vec<_> = (programs().as_array().unwrap().iter())
        .map(|program| program["port"].clone())
        .collect();
    assert_eq!(at, [lab.b0()]);
    let said = run(&["lab", "ls"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = format!("is attached to {} (native)", lab.b0());
    assert!(said.contains(&line), "{said}");
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the receiver is gone", || !attached());
    assert_eq!(programs().as_array().unwrap().len(), 0);
    // The port can be used again at once.
    let report = trial(&lab, &["--rate", "1kpps", "--duration", "100ms"]);
    assert_eq!(total(&report, "received"), 100);
}

/// Frames still to be sent wait for a link, and the run reports it meanwhile.
#[test]
fn who_waits_for_a_link_says_so() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let folder = tempfile::tempdir().unwrap();
    for driver in ["live", "xdp", "packet"] {
        let [tx, rx] = [lab.a0(), lab.b0()].map(|port| format!("{driver}:{port}"));
        let said = folder.path().join(driver);
        let child = wirebench()
            .args(["trial", "--tx", &tx, "--rx", &rx, "--rate", "10kpps"])
            .args(["--count", "10000000", "--live-json", "--json", "-q"])
            .args(["--interval", "100ms"])
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&said).unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let running = Running(child);
        let last = || {
            let text = std::fs::read_to_string(&said).unwrap();
            let line = text.lines().rfind(|line| line.ends_with('}'))?;
            serde_json::from_str::<Value>(line).ok()
        };
        let waits = |last: &Value| last["links_down"] == serde_json::json!(["tx"]);
        let sends = |last: &Value| last["offered_pps"].as_f64() > Some(0.0) && !waits(last);
        eventually("it sends", || last().is_some_and(|last| sends(&last)));
        ip(&lab.node("b"), "b0", "down");
        eventually("it says that it waits", || {
            last().is_some_and(|l| waits(&l))
        });
        ip(&lab.node("b"), "b0", "up");
        eventually("it goes on", || last().is_some_and(|last| sends(&last)));
        ip(&lab.node("b"), "b0", "down");
        eventually("it waits again", || last().is_some_and(|l| waits(&l)));
        running.signal(rustix::process::Signal::INT);
        let output = running.finish(Duration::from_secs(20));
        assert_eq!(output.status.code(), Some(130), "{driver}");
        ip(&lab.node("b"), "b0", "up");
        let text = std::fs::read(&said).unwrap();
        let values = serde_json::Deserializer::from_slice(&text).into_iter::<Value>();
        let report = values.last().expect("a report").expect("JSON");
        assert_adds_up(&report);
        assert!(total(&report, "received") > 0, "{driver}");
    }
}

/// Sets a link up or down.
fn ip(node: &str, interface: &str, state: &str) {
    let done = system("ip", &["-n", node, "link", "set", interface, state]);
    assert!(done.status.success(), "{done:?}");
}
