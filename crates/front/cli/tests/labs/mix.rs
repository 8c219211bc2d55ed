//! Jobs of several kinds in one plan, over the same two ports: a load through a router, a tagged stream alongside
//! it, a capture of the router's output, and a probe of its counters. Such a plan has as many workers as several
//! labs, so the tests run alone.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use wb_wire::protocol;

use crate::kit::{Lab, Running, assert_adds_up, privileged, run, system};

const PATIENCE: Duration = Duration::from_secs(60);

/// A stream and a load from one port to the other, each opened by `driver`.
fn jobs(lab: &Lab, driver: &str, seconds: u32) -> String {
    let (near, far) = (lab.a0(), lab.b0());
    format!(
        r#"
# A busy machine holds up the client; what is judged here are the sums.
allow_unsent = true
[[port]]
name = "near"
locator = "{driver}{near}"

[[port]]
name = "far"
locator = "{driver}{far}"
ring_bytes = 16777216

[[traffic]]
name = "stream"
tx = "near"
rx = "far"
duration = "{seconds}s"
catch_up = "10s"
[[traffic.stream]]
rate = "5kpps"
size = 128

[[load]]
name = "clients"
port = "near"
end = "client"
clients = ["198.18.1.10-198.18.1.20"]
servers = ["198.19.1.10"]
rate = {{ cps = 500 }}
shape = {{ duration = "{seconds}s" }}
requests = 1

[[load]]
name = "servers"
port = "far"
end = "server"
servers = ["198.19.1.10"]
answer = {{ http = 200 }}
"#
    )
}

fn write(folder: &TempDir, text: &str) -> String {
    let path = folder.path().join("mix.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The plan for a lab; the capture goes into `folder`.
fn plan(lab: &Lab, folder: &TempDir, seconds: u32, criteria: &str) -> String {
    let (jobs, dut) = (jobs(lab, "", seconds), lab.node("dut"));
    let file = folder.path().join("far.pcap");
    let text = format!(
        r#"
criteria = [{criteria}]
{jobs}
[[capture]]
ports = ["far"]
direction = "in"
output = {{ path = {file:?} }}

[[probe]]
kind = "netdev"
node = "{dut}"
"#
    );
    write(folder, &text)
}

/// Frames of a capture with this protocol and destination port.
fn kept(folder: &TempDir, wanted: u8, port: u16) -> u64 {
    let bytes = fs::read(folder.path().join("far.pcap")).unwrap();
    let records = wb_pcapng::CaptureReader::new(&bytes)
        .unwrap()
        .map(Result::unwrap);
    let frames = records.filter(|record| {
        let frame = &record.captured;
        let is_ip = frame[12..14] == [8, 0] && frame[23] == wanted;
        is_ip && frame[36..38] == port.to_be_bytes()
    });
    frames.count() as u64
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// All of every job adds up.
fn check_sums(report: &Value) {
    assert_adds_up(report);
    for job in report["jobs"].as_array().unwrap() {
        let of = |key: &str| number(&job["totals"][format!("{key}_frames")]);
        assert_eq!(of("offered"), of("received") + of("lost"), "{job}");
    }
    for job in report["load"]["jobs"].as_array().unwrap() {
        let of = |key: &str| number(&job["totals"][format!("{key}_connections")]);
        let ended = of("completed") + of("failed") + of("open");
        assert_eq!(of("attempted"), ended, "{job}");
    }
}

/// Checks that every section exists and adds up, and that the file holds the frames that both jobs received.
fn check(report: &Value, folder: &TempDir) {
    check_sums(report);
    let stream = &report["jobs"][0]["totals"];
    let received = number(&stream["received_frames"]);
    assert_eq!(received, kept(folder, protocol::UDP, 7), "{stream}");
    let servers = &report["load"]["jobs"][1];
    assert_eq!(servers["end"], "server");
    let arrived = number(&servers["frames"]["received_frames"]);
    assert_eq!(arrived, kept(folder, protocol::TCP, 80), "{servers}");
    let capture = &report["capture"];
    assert_eq!(capture["exact"], true, "{capture}");
    assert_eq!(capture["kernel_drop_frames"], 0, "{capture}");
    let probe = &report["probes"][0];
    assert!(number(&probe["readings"]) >= 2, "{probe}");
    assert_eq!(probe["failures"], 0, "{probe}");
    let rose = |key: &str| number(&probe["after"][key]) - number(&probe["before"][key]);
    assert!(
        rose("netdev.db.tx_packets") >= received + arrived,
        "{probe}"
    );
}

fn report_of(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_load_a_stream_a_capture_and_a_probe_share_two_ports() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("router", &["--limit", "100mbit"]);
    let folder = TempDir::new().unwrap();
    for (criterion, said) in [
        ("unsent<=100%", "traffic.unsent<=100% or load.unsent"),
        ("probe.netdev.db.tx_drops<=0", "netdev.db.tx_dropped"),
        ("web.cps>=1", "unknown job \"web\""),
    ] {
        let refused = plan(&lab, &folder, 2, &format!("{criterion:?}"));
        let output = run(&["run", &refused]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(said), "{text}");
    }

    let criteria = r#""traffic.loss<=0%", "load.failed<=0%", "capture.lost<=0", "clients.cps>=100",
        "connect_p99<=10s", "open<=200", "stream.pps>=1k", "probe.netdev.db.tx_errors<=0""#;
    let path = plan(&lab, &folder, 2, criteria);
    let output = run(&["run", &path, "--json", "-q"]);
    let report = report_of(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", report["reason"]);
    check(&report, &folder);
    assert_eq!(report["totals"]["offered_frames"], 10_000);
    let attempted = number(&report["totals"]["attempted_connections"]);
    let unsent = number(&report["load"]["jobs"][0]["unsent_connections"]);
    assert_eq!(attempted + unsent, 1_000);

    // The report's plan is a plan, and the text has a part for each job.
    let again = folder.path().join("again.json");
    fs::write(&again, report["plan"].to_string()).unwrap();
    let output = run(&["run", again.to_str().unwrap(), "-q", "-v"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in [
        "stream: near -> far",
        "clients: TCP client",
        "capture\n",
        "netdev: device probe",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn a_criterion_that_fails_is_named() {
    if !privileged() {
        return;
    }
    // Far less than the offered rate, so that lateness is no excuse.
    let lab = Lab::up("router", &["--limit", "1mbit"]);
    let folder = TempDir::new().unwrap();
    let criteria = r#""capture.loss<=0%", "traffic.loss<=0%", "probe.netdev.db.tx_packets<=1""#;
    let path = plan(&lab, &folder, 1, criteria);
    let output = run(&["run", &path, "--json", "-q"]);
    let report = report_of(&output.stdout);
    check(&report, &folder);
    assert_eq!(output.status.code(), Some(1), "{}", report["reason"]);
    let reason = report["reason"].as_str().unwrap();
    for named in [
        "criteria not met: traffic.loss<=0% (measured ",
        ", probe.netdev.db.tx_packets<=1 (measured ",
    ] {
        assert!(reason.contains(named), "{reason}");
    }
}

/// Runs the plan and calls `disturb` in the middle.
fn disturbed(lab: &Lab, path: &str, disturb: impl FnOnce(&Running)) -> (Option<i32>, Value) {
    let running = Running::start(&["run", path, "--json", "-q"]);
    let file = Path::new(path).with_file_name("far.pcap");
    crate::kit::eventually("frames are kept", || {
        fs::metadata(&file).is_ok_and(|m| m.len() > 100_000)
    });
    disturb(&running);
    let output = running.finish(PATIENCE);
    let report = report_of(&output.stdout);
    let _ = lab;
    (output.status.code(), report)
}

#[test]
fn an_interrupted_mix_adds_up() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    let folder = TempDir::new().unwrap();
    let path = plan(&lab, &folder, 60, "");
    let (code, report) = disturbed(&lab, &path, |running| running.signal(Signal::INT));
    assert_eq!(code, Some(130), "{}", report["reason"]);
    assert_eq!(report["verdict"], "incomplete");
    check(&report, &folder);
}

#[test]
fn a_mix_whose_link_goes_down_adds_up() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    let folder = TempDir::new().unwrap();
    let path = plan(&lab, &folder, 4, "");
    let dut = lab.node("dut");
    let (_, report) = disturbed(&lab, &path, |_| {
        system("ip", &["-n", &dut, "link", "set", "db", "down"]);
        std::thread::sleep(Duration::from_millis(500));
        system("ip", &["-n", &dut, "link", "set", "db", "up"]);
    });
    check(&report, &folder);
    assert!(number(&report["totals"]["lost_frames"]) > 0, "{report}");
}

/// Which jobs of a port were opened by which driver.
fn drivers(report: &Value) -> Vec<(String, String)> {
    let users = report["ports"][1]["users"].as_array().unwrap().iter();
    let word = |user: &Value, key: &str| user[key].as_str().unwrap().to_owned();
    let driver = |locator: String| locator.split(':').next().unwrap().to_owned();
    users
        .map(|user| (word(user, "jobs"), driver(word(user, "locator"))))
        .collect()
}

/// Checks that each end of a load received exactly what its peer sent.
fn assert_ends_agree(client: &Value, server: &Value) {
    let frames = |job: &Value, key: &str| number(&job["frames"][key]);
    for (sender, receiver) in [(client, server), (server, client)] {
        let offered = frames(sender, "offered_frames");
        assert_eq!(
            offered,
            frames(receiver, "received_frames"),
            "{sender} {receiver}"
        );
        assert!(offered > 0, "{sender}");
    }
}

#[test]
fn a_load_by_xdp_leaves_the_rest_to_streams() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("router", &["--limit", "100mbit"]);
    let folder = TempDir::new().unwrap();
    for driver in ["xdp:", ""] {
        // A client that stalled may leave connections out: this test is not about its rate.
        let criteria = r#"criteria = ["traffic.loss<=0%", "load.failed<=0%", "load.unsent<=90%"]"#;
        // Both ports send and receive streams, without a tag in one run.
        let jobs = jobs(&lab, driver, 2).replace("tx = \"near\"", "bidir = true\ntx = \"near\"");
        let jobs = match driver {
            "" => jobs.replace("size = 128", "size = 128\ntag = \"none\""),
            _ => jobs,
        };
        let path = write(&folder, &format!("{criteria}{jobs}"));
        let output = run(&["run", &path, "--json", "-q"]);
        let report = report_of(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", report["reason"]);
        check_sums(&report);
        let expected = [("traffic", "packet"), ("load", "xdp")];
        let expected = expected.map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(drivers(&report), expected, "{}", report["warnings"]);
        for job in report["jobs"].as_array().unwrap() {
            assert_eq!(job["totals"]["received_frames"], 10_000, "{job}");
            // The connections are a thousand, of many frames; neighbour discovery sends a few frames.
            assert!(number(&job["totals"]["foreign_frames"]) < 100, "{job}");
        }
        let loads = &report["load"]["jobs"];
        assert_ends_agree(&loads[0], &loads[1]);
    }
    let output = run(&["run", &write(&folder, &jobs(&lab, "", 1)), "-q", "-v"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "several jobs share this interface",
        "its XDP program selects",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn streams_in_the_kernel_leave_the_rest_to_a_load() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("router", &["--limit", "100mbit"]);
    let folder = TempDir::new().unwrap();
    let criteria = r#"criteria = ["traffic.loss<=0%", "load.failed<=0%", "load.unsent<=90%"]"#;
    let jobs = jobs(&lab, "live:", 2).replace("tx = \"near\"", "bidir = true\ntx = \"near\"");
    let path = write(&folder, &format!("{criteria}{jobs}"));
    let output = run(&["run", &path, "--json", "-q"]);
    let report = report_of(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{} {said}", report["reason"]);
    check_sums(&report);
    let expected = [("traffic", "live"), ("load", "packet")];
    let expected = expected.map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(drivers(&report), expected, "{}", report["warnings"]);
    for job in report["jobs"].as_array().unwrap() {
        assert_eq!(job["totals"]["received_frames"], 10_000, "{job}");
        // Unexpected frames may belong to the load, and are not counted.
        assert_eq!(job["totals"]["foreign_frames"], Value::Null, "{job}");
    }
    let loads = &report["load"]["jobs"];
    assert_ends_agree(&loads[0], &loads[1]);
}

/// Three loads from each end of a pair to the other, and a stream at the port of one.
#[test]
fn loads_and_streams_share_a_port_by_what_tells_them_apart() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let folder = TempDir::new().unwrap();
    let load = |name: &str, own: &str, server: &str| {
        let client = r#"requests = 1
rate = { cps = 200 }
shape = { duration = "1s" }"#;
        let ends = [("near", "client", client), ("far", "server", "")];
        ends.map(|(port, end, more)| {
            format!(
                r#"
[[load]]
name = "{name} {end}"
port = "{port}"
end = "{end}"
clients = ["198.18.1.10"]
servers = ["{server}"]
{own}
{more}
"#
            )
        })
        .concat()
    };
    let udp = r#"transport = "udp"
server_ports = "7"
reading = "segment"
answer = "echo"
request = { bytes = 40 }"#;
    for driver in ["", "xdp:", "packet:"] {
        let ports = jobs(&lab, driver, 1);
        let ports = ports.split("[[load]]").next().unwrap();
        let text = [
            ports.to_owned(),
            load("tagged", "vlan = 5", "198.18.1.30"),
            load("web", "", "198.18.1.30"),
            load("other", "", "198.18.1.31"),
            load("datagrams", udp, "198.18.1.30"),
        ];
        let output = run(&["run", &write(&folder, &text.concat()), "--json", "-q"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{error}");
        let report = report_of(&output.stdout);
        check_sums(&report);
        assert_eq!(report["jobs"][0]["totals"]["received_frames"], 5_000);
        let loads = report["load"]["jobs"].as_array().unwrap();
        assert_eq!(loads.len(), 8);
        for ends in loads.chunks(2) {
            assert_ends_agree(&ends[0], &ends[1]);
            assert_eq!(ends[0]["totals"]["completed_connections"], 200, "{ends:?}");
        }
        let of_first = if driver == "packet:" { "packet" } else { "xdp" };
        let opened = drivers(&report);
        assert_eq!(opened.len(), 5, "{opened:?}");
        assert_eq!(opened[0].1, "packet", "{opened:?}");
        assert_eq!(
            opened[1],
            ("load tagged server".to_owned(), of_first.to_owned())
        );
        assert!(opened[2..].iter().all(|(_, d)| d == "packet"), "{opened:?}");
    }
}

/// A load and a stream of the same kind of frames at both ends of a pair, even if only the test tag distinguishes them.
#[test]
fn a_load_and_a_stream_share_vlans_families_and_tunnels() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let folder = TempDir::new().unwrap();
    let tcp = "requests = 1";
    let udp = r#"transport = "udp"
requests = 1
server_ports = "7"
reading = "segment"
answer = "echo"
request = { bytes = 40 }"#;
    let four = ("198.18.1.10", "198.18.1.30");
    let six = ("2001:2:0:1::10", "2001:2:0:1::30");
    let tunnel = |local: &str, remote: &str| {
        format!(
            r#"vxlan = {{ vni = 5, src_mac = "02:00:00:00:00:01", dst_mac = "02:00:00:00:00:02", local = "{local}", remote = "{remote}" }}"#
        )
    };
    let (near_tunnel, far_tunnel) = (
        tunnel("198.18.1.40", "198.18.1.41"),
        tunnel("198.18.1.41", "198.18.1.40"),
    );
    for (what, (client, server), load, [near, far], stream) in [
        ("VLAN", four, tcp, ["vlan = 5"; 2], "vlan = [5]"),
        (
            "datagrams in a VLAN",
            four,
            udp,
            ["vlan = 5"; 2],
            "vlan = [5]",
        ),
        ("IPv6", six, tcp, [""; 2], "ipv6 = true"),
        ("datagrams of IPv6", six, udp, [""; 2], "ipv6 = true"),
        (
            "VXLAN",
            four,
            tcp,
            [&*near_tunnel, &*far_tunnel],
            "dport = 4789",
        ),
    ] {
        for driver in ["", "packet:"] {
            let ends = [("near", "client", near), ("far", "server", far)];
            let ends = ends.map(|(port, end, own)| {
                let rate = match end {
                    "client" => "rate = { cps = 200 }\nshape = { duration = \"1s\" }",
                    _ => "",
                };
                format!(
                    "[[load]]\nname = \"{end}\"\nport = \"{port}\"\nend = \"{end}\"\nclients = [\"{client}\"]\nservers = [\"{server}\"]\n{load}\n{own}\n{rate}\n"
                )
            });
            let text = jobs(&lab, driver, 1);
            let ports = text.split("[[load]]").next().unwrap();
            let ports = ports.replace("size = 128", &format!("size = 128\n{stream}"));
            let path = write(&folder, &[ports, ends.concat()].concat());
            // A client that stalled for long leaves connections out, and gets another try.
            let mut tries = 3;
            let report = loop {
                let output = run(&["run", &path, "--json", "-q"]);
                let error = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(0), "{what} {driver}: {error}");
                let report = report_of(&output.stdout);
                check_sums(&report);
                tries -= 1;
                if number(&report["load"]["jobs"][0]["unsent_connections"]) == 0 || tries == 0 {
                    break report;
                }
            };
            let job = &report["jobs"][0];
            assert_eq!(
                job["totals"]["received_frames"], 5_000,
                "{what} {driver}: {job}"
            );
            assert!(
                number(&job["totals"]["foreign_frames"]) < 20,
                "{what}: {job}"
            );
            let loads = &report["load"]["jobs"];
            assert_ends_agree(&loads[0], &loads[1]);
            let completed = number(&loads[0]["totals"]["completed_connections"]);
            assert_eq!(completed, 200, "{what} {driver}: {loads}");
            let of_load = if driver.is_empty() { "xdp" } else { "packet" };
            assert_eq!(drivers(&report)[1].1, of_load, "{what}");
        }
    }
}

#[test]
fn devices_and_a_watch_share_the_ports_of_a_load_and_a_stream() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let folder = TempDir::new().unwrap();
    let devices = r#"
[[device]]
port = "near"
cpu = 0
settings = { name = "a0", count = 2000, delay = "500000", dst_min = "198.18.1.2" }
[[watch]]
port = "far"
mode = "time"
"#;
    let text = jobs(&lab, "", 1).replace("198.19.1.10", "198.18.1.30");
    let path = write(&folder, &format!("{text}{devices}"));
    let output = run(&["run", &path, "--json", "-q"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report = report_of(&output.stdout);
    assert!(report["totals"]["lost_frames"] == 0, "{}", report["totals"]);
    let jobs = report["jobs"].as_array().unwrap();
    let found = |name: &str, key: &str| {
        let named = |job: &&Value| job["name"].as_str().unwrap().contains(name);
        let job = jobs.iter().find(named);
        number(&job.unwrap_or_else(|| panic!("{jobs:?}"))["totals"][key])
    };
    assert_eq!(found("stream", "offered_frames"), 5_000);
    assert_eq!(found("stream", "received_frames"), 5_000);
    assert_eq!(found("a0", "offered_frames"), 2_000);
    assert_eq!(found("a0", "received_frames"), 2_000);
    let loads = report["load"]["jobs"].as_array().unwrap();
    assert_ends_agree(&loads[0], &loads[1]);
    assert_eq!(loads[0]["totals"]["completed_connections"], 500);
    // The load and the stream keep the workers that the plan gave them.
    assert_eq!(report["plan"]["port"][1]["workers"], Value::Null);
    let users = report["ports"][0]["users"].as_array().unwrap();
    let names: Vec<_> = users.iter().map(|user| &user["jobs"]).collect();
    assert_eq!(names, ["traffic", "devices", "load"], "{users:?}");
}

#[test]
fn captures_of_one_port_keep_what_their_filters_say() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &["--limit", "100mbit"]);
    let folder = TempDir::new().unwrap();
    let capture = |name: &str, filter: &str| {
        let file = folder.path().join(format!("{name}.pcap"));
        format!(
            r#"
[[capture]]
name = "{name}"
ports = ["far"]
filter = "{filter}"
direction = "in"
output = {{ path = {file:?} }}
"#
        )
    };
    let text = [
        r#"criteria = ["capture.loss<=0%", "connections.lost<=0", "capture.far.lost<=0", "traffic.loss<=0%"]"#
            .to_owned(),
        jobs(&lab, "", 1),
        capture("connections", "tcp dst port 80"),
        capture("far", "udp"),
    ];
    let path = write(&folder, &text.concat());
    let output = run(&["run", &path, "--json", "-q"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report = report_of(&output.stdout);
    check_sums(&report);
    assert_eq!(report["capture"], Value::Null);
    let captured = |name: &str| {
        let section = &report["captures"][name];
        assert_eq!(section["exact"], true, "{section}");
        number(&section["captured_frames"])
    };
    let arrived = number(&report["load"]["jobs"][1]["frames"]["received_frames"]);
    assert_eq!(captured("connections"), arrived);
    assert_eq!(captured("far"), 5_000);
    assert_eq!(kept(&folder, protocol::UDP, 7), 5_000);
    assert_eq!(kept(&folder, protocol::TCP, 80), 0);

    let twice = text.concat().replace("far.pcap", "connections.pcap");
    let output = run(&["run", &write(&folder, &twice)]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("two captures write to"), "{error}");
}
