//! Outages of a path, compared with the silence that a capture shows.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Lab, Running, assert_adds_up, eventually, privileged, run, system, total};

/// Time between two frames, in ns.
const INTERVAL_NS: u64 = 2_500_000;

/// Frames that an interface has sent.
fn sent(node: &str, interface: &str) -> u64 {
    let arguments = ["-n", node, "-j", "-s", "link", "show", interface];
    let links: Value = serde_json::from_slice(&system("ip", &arguments).stdout).unwrap();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

/// Times between successive frames of a capture, in ns.
fn silences(file: &str) -> Vec<u64> {
    let lines = system("tcpdump", &["-tt", "--nano", "-n", "-r", file, "udp"]).stdout;
    let lines = String::from_utf8(lines).unwrap();
    let stamp = |line: &str| {
        let (seconds, rest) = line.split_once('.').unwrap();
        let nanos = rest.split(' ').next().unwrap();
        seconds.parse::<u64>().unwrap() * 1_000_000_000 + nanos.parse::<u64>().unwrap()
    };
    let stamps: Vec<u64> = lines.lines().map(stamp).collect();
    stamps
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect()
}

#[test]
fn an_outage_is_the_silence_that_a_capture_shows() {
    if !privileged() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for driver in ["packet", "xdp", "live"] {
        let lab = Lab::alone("router", &[]);
        let router = lab.node("dut");
        let file = directory.path().join(driver);
        let file = file.to_str().unwrap();
        let capture = Running::start(&[
            "capture",
            "-i",
            &lab.port("dut", "db"),
            "-w",
            file,
            "--duration",
            "60s",
            "-q",
        ]);
        eventually("the capture has begun", || {
            std::path::Path::new(file).exists()
        });
        let trial = Running::start(&[
            "trial",
            "--tx",
            &format!("{driver}:{}", lab.a0()),
            "--rx",
            &format!("{driver}:{}", lab.b0()),
            "--rate",
            "400pps",
            "--duration",
            "3s",
            "--catch-up",
            "10s",
            "--criteria",
            "outages<=0",
            "--criteria",
            "outage<=200ms",
            "--json",
            "-q",
        ]);
        let before = sent(&router, "db");
        eventually("frames arrive", || sent(&router, "db") > before + 200);
        system("ip", &["-n", &router, "link", "set", "db", "down"]);
        std::thread::sleep(Duration::from_millis(300));
        system("ip", &["-n", &router, "link", "set", "db", "up"]);
        let output = trial.finish(Duration::from_secs(20));
        let error = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).expect(&error);
        assert_adds_up(&report);
        capture.signal(Signal::INT);
        capture.finish(Duration::from_secs(20));

        let outages = &report["outages"];
        assert!(
            total(&report, "lost") > 50,
            "{driver}: {}",
            report["totals"]
        );
        assert_eq!(outages["outages"], 1, "{driver}: {outages}");
        assert_eq!(outages["interrupted_flows"], 1, "{driver}: {outages}");
        let number = |key: &str| outages[key].as_u64().unwrap();
        let lasted = number("outage_ns");
        assert_eq!(lasted, number("outage_end_ns") - number("outage_begin_ns"));
        assert!(lasted > 290_000_000, "{driver}: {outages}");
        let silences = silences(file);
        let same = silences
            .iter()
            .any(|silence| silence.abs_diff(lasted) <= INTERVAL_NS);
        let longest = silences.iter().max();
        assert!(same, "{driver}: {outages}, longest silence {longest:?}");
        let measured: Vec<&Value> = report["criteria"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| &c["measured"])
            .collect();
        assert_eq!(measured[0], 1.0, "{driver}");
        assert_eq!(measured[1].as_f64(), Some(lasted as f64), "{driver}");
        assert_eq!(
            report["flows"][0]["outages"]["outage_ns"],
            outages["outage_ns"]
        );
    }
}

#[test]
fn an_outage_that_does_not_end_lasts_until_the_last_departure() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    let router = lab.node("dut");
    let trial = Running::start(&[
        "trial",
        "--tx",
        &lab.a0(),
        "--rx",
        &lab.b0(),
        "--rate",
        "400pps",
        "--duration",
        "2s",
        "--catch-up",
        "10s",
        "--outage-threshold",
        "300ms",
        "--json",
        "-q",
    ]);
    let before = sent(&router, "db");
    eventually("frames arrive", || sent(&router, "db") > before + 200);
    system("ip", &["-n", &router, "link", "set", "db", "down"]);
    let output = trial.finish(Duration::from_secs(20));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let outages = &report["outages"];
    assert_eq!(outages["outages"], 1, "{outages}");
    // Each lost frame belongs to an interval of the outage.
    let expected = total(&report, "lost") * INTERVAL_NS;
    let lasted = outages["outage_ns"].as_u64().unwrap();
    assert!(
        lasted.abs_diff(expected) < 20 * INTERVAL_NS,
        "{outages}: {}",
        report["totals"]
    );
    let end = outages["outage_end_ns"].as_u64().unwrap();
    let sending = report["rates"]["tx_time_ns"].as_u64().unwrap();
    assert!(
        end.abs_diff(sending) < 20 * INTERVAL_NS,
        "{outages}, sent for {sending} ns"
    );
}

#[test]
fn loss_without_a_silence_is_no_outage() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &["--loss-every", "7"]);
    let output = run(&[
        "trial",
        "--tx",
        &lab.a0(),
        "--rx",
        &lab.b0(),
        "--rate",
        "10kpps",
        "--duration",
        "1s",
        "--catch-up",
        "10s",
        "--outage-threshold",
        "2s",
        "--criteria",
        "outages<=0",
        "--json",
        "-q",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(total(&report, "lost") > 1_000);
    assert_eq!(report["outages"]["outages"], 0);
    assert_eq!(
        report["criteria"][0]["held"], true,
        "{}",
        report["criteria"]
    );
}
