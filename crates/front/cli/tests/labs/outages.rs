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
            "5s",
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
        eventually("frames arrive", || sent(&router, "db") > before + 100);
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
        let stalled = report["lateness"]["largest_gap_ns"].as_u64().unwrap();
        let silences = silences(file);
        let same = silences
            .iter()
            .any(|silence| silence.abs_diff(lasted) <= INTERVAL_NS + stalled);
        let longest = silences.iter().max();
        assert!(same, "{driver}: {outages}, longest silence {longest:?}");
        let measured: Vec<&Value> = report["criteria"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| &c["measured"])
            .collect();
        if stalled < 90_000_000 {
            // No stall can explain an outage that is longer.
            assert_eq!(report["verdict"], "fail", "{driver}: {}", report["reason"]);
        }
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
        "3s",
        "--catch-up",
        "10s",
        "--outage-threshold",
        "300ms",
        "--json",
        "-q",
    ]);
    let before = sent(&router, "db");
    eventually("frames arrive", || sent(&router, "db") > before + 100);
    system("ip", &["-n", &router, "link", "set", "db", "down"]);
    let output = trial.finish(Duration::from_secs(20));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let outages = &report["outages"];
    assert_eq!(outages["outages"], 1, "{outages}");
    let stalled = report["lateness"]["largest_gap_ns"].as_u64().unwrap();
    // Each lost frame belongs to an interval of the outage.
    let expected = total(&report, "lost") * INTERVAL_NS;
    let lasted = outages["outage_ns"].as_u64().unwrap();
    assert!(
        lasted.abs_diff(expected) < 20 * INTERVAL_NS + stalled,
        "{outages}: {}",
        report["totals"]
    );
    let end = outages["outage_end_ns"].as_u64().unwrap();
    let sending = report["rates"]["tx_time_ns"].as_u64().unwrap();
    assert!(
        end.abs_diff(sending) < 20 * INTERVAL_NS + stalled,
        "{outages}, sent for {sending} ns"
    );
}

#[test]
fn loss_without_a_silence_is_no_outage() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &["--loss-every", "7"]);
    for driver in ["packet", "xdp", "live"] {
        let output = run(&[
            "trial",
            "--tx",
            &lab.a0(),
            "--rx",
            &format!("{driver}:{}", lab.b0()),
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
        assert!(total(&report, "lost") > 1_000, "{driver}");
        assert_eq!(report["outages"]["outages"], 0, "{driver}");
        let criteria = &report["criteria"];
        assert_eq!(criteria[0]["held"], true, "{driver}: {criteria}");
    }
}

/// A path that loses everything is not free of outages.
#[test]
fn a_flow_of_which_nothing_arrives_has_an_outage() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    // The router drops the second flow, which has another destination.
    let rules = "add table ip t; add chain ip t c { type filter hook forward priority 0; }; \
        add rule ip t c ip daddr 198.19.1.3 drop";
    let made = system("ip", &["netns", "exec", &lab.node("dut"), "nft", rules]);
    assert!(made.status.success(), "{made:?}");
    let output = run(&[
        "trial",
        "--tx",
        &lab.a0(),
        "--rx",
        &lab.b0(),
        "--dst",
        "198.19.1.2-198.19.1.3",
        "--rate",
        "1kpps",
        "--duration",
        "1s",
        "--catch-up",
        "10s",
        "--criteria",
        "outage<=400ms",
        "--json",
        "-q",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lasted = report["outages"]["outage_ns"].as_u64().unwrap();
    assert!(lasted > 900_000_000, "{}", report["outages"]);
    assert_eq!(report["criteria"][0]["held"], false);
}
