//! Ports without an explicit driver: streams run inside the kernel if possible, else the report gives the reason.

use std::{
    path::Path,
    process::{Child, Command, Output},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::kit::{
    Lab, Running, assert_adds_up, eventually, privileged, run, system, total, wirebench,
};

fn driver(report: &Value, port: usize) -> &str {
    report["ports"][port]["driver"].as_str().unwrap()
}

fn because(report: &Value, port: usize) -> &str {
    report["ports"][port]["chosen_because"].as_str().unwrap()
}

fn path(report: &Value) -> &str {
    report["jobs"][0]["streams"][0]["path"].as_str().unwrap()
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"))
}

fn ip(arguments: &str) {
    let words: Vec<&str> = arguments.split(' ').collect();
    let output = system("ip", &words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {said}");
}

#[test]
fn each_end_takes_the_way_that_its_streams_allow() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let count = ["--count", "1000"];
    for (options, way, at_a, at_b) in [
        (&["--rate", "20kpps"][..], "live to live", "", ""),
        (&["--rate", "max"], "live to live", "", ""),
        (
            &["--rate", "20kpps", "--tag", "none"],
            "live to xdp",
            "",
            "without a tag",
        ),
        (
            &["--rate", "max", "--tag", "none"],
            "xdp to xdp",
            "could not receive at full speed",
            "without a tag",
        ),
        (
            &["--rate", "20kpps", "--departures"],
            "xdp to live",
            "departures",
            "",
        ),
        (
            &["--rate", "20kpps", "--workers", "2", "--flows", "2"],
            "packet to live",
            "2 workers",
            "",
        ),
    ] {
        let report = lab.trial(&[&count, options].concat());
        assert_eq!(path(&report), way, "{options:?}: {}", report["ports"]);
        assert_eq!(total(&report, "received"), 1000, "{options:?}");
        for (port, part) in [(0, at_a), (1, at_b)] {
            let because = because(&report, port);
            let said = because.contains("live not used: ");
            assert_eq!(said, !part.is_empty(), "{options:?}: {because}");
            assert!(because.contains(part), "{options:?}: {because}");
        }
    }
    // Alone, each end has its own reason.
    let sends = report(&run(&[
        "tx",
        "-i",
        &lab.a0(),
        "--count",
        "100",
        "--json",
        "-q",
    ]));
    assert_eq!(driver(&sends, 0), "xdp");
    assert!(because(&sends, 0).contains("this run has no receiver"));
    let receives = report(&run(&[
        "rx",
        "-i",
        &lab.b0(),
        "--duration",
        "50ms",
        "--json",
        "-q",
    ]));
    assert_eq!(driver(&receives, 0), "xdp");
    assert!(because(&receives, 0).contains("the number of flows is unknown"));
}

#[test]
fn other_programs_and_long_frames_are_in_the_way_of_none() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for (node, end) in [(lab.node("a"), "a0"), (lab.node("b"), "b0")] {
        ip(&format!("-n {node} link set {end} mtu 6000"));
    }
    let report = lab.trial(&["--count", "100", "--rate", "10kpps", "--size", "5000"]);
    assert_eq!(path(&report), "packet to live", "{}", report["ports"]);
    assert!(because(&report, 0).contains("5000"), "{}", report["ports"]);
    assert_eq!(total(&report, "received"), 100);
    // Suitable traffic takes the short path, if the device permits it.
    let short = lab.trial(&["--count", "100", "--rate", "10kpps"]);
    assert_eq!(path(&short), "live to live", "{}", short["ports"]);
    for (node, end) in [(lab.node("a"), "a0"), (lab.node("b"), "b0")] {
        ip(&format!("-n {node} link set {end} mtu 1500"));
    }
    // The port is used by another program, which takes all frames.
    let (a, b) = (lab.a0(), lab.b0());
    let other = Running::start(&["capture", "-i", &b, "--xdp", "-w", "/dev/null", "-q"]);
    eventually("another program is attached", || {
        attached(&lab.node("b"), "b0")
    });
    let report = self::report(&run(&[
        "trial", "--tx", &a, "--rx", &b, "--count", "100", "--rate", "10kpps", "--json", "-q",
    ]));
    assert_eq!(driver(&report, 0), "xdp", "{}", report["ports"]);
    assert!(because(&report, 0).contains("another user's"));
    assert_eq!(driver(&report, 1), "packet", "{}", report["ports"]);
    assert!(because(&report, 1).contains("is attached"));
    other.signal(rustix::process::Signal::INT);
    other.finish(Duration::from_secs(10));
}

fn attached(node: &str, interface: &str) -> bool {
    let link = system("ip", &["-n", node, "link", "show", interface]);
    String::from_utf8_lossy(&link.stdout).contains("xdp")
}

#[test]
fn ways_of_both_kinds_go_in_one_plan() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--links", "2"]);
    let folder = TempDir::new().unwrap();
    let recording = folder.path().join("few.pcap");
    let made = run(&[
        "tx",
        "-i",
        &format!("file:{}", recording.display()),
        "--count",
        "50",
        "--rate",
        "1kpps",
        "--dst-mac",
        "02:00:00:00:00:02",
    ]);
    assert!(made.status.success(), "{made:?}");
    let port = |name: &str, node: &str, interface: &str| {
        let locator = lab.port(node, interface);
        format!("[[port]]\nname = \"{name}\"\nlocator = \"{locator}\"\n")
    };
    let plan = [
        port("a", "a", "a0"),
        port("b", "b", "b0"),
        port("c", "a", "a1"),
        port("d", "b", "b1"),
        "[[traffic]]\nname = \"made\"\ntx = \"a\"\nrx = \"b\"\ncount = 500\nstream = [{ rate = \"5kpps\" }]\n".to_owned(),
        "[[traffic]]\nname = \"mixed\"\ntx = \"c\"\nrx = \"d\"\nduration = \"500ms\"\nstream = [{ rate = \"1kpps\" }, { replay = \"few.pcap\" }]\n".to_owned(),
    ];
    let file = folder.path().join("plan.toml");
    std::fs::write(&file, plan.concat()).unwrap();
    let report = report(&run(&["run", file.to_str().unwrap(), "--json", "-q"]));
    assert_eq!(total(&report, "received"), total(&report, "offered"));
    let paths = |job: usize| -> Vec<&str> {
        let streams = report["jobs"][job]["streams"].as_array().unwrap();
        streams
            .iter()
            .map(|s| s["path"].as_str().unwrap())
            .collect()
    };
    assert_eq!(paths(0), ["live to live"], "{}", report["ports"]);
    assert_eq!(paths(1), ["xdp to xdp"; 2], "{}", report["ports"]);
    assert!(because(&report, 2).contains("replays are sent"));
    assert!(because(&report, 3).contains("of a replay"));
}

#[test]
fn a_capture_of_the_same_plan_sees_what_arrives() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = TempDir::new().unwrap();
    let (a, b) = (lab.a0(), lab.b0());
    let plan = format!(
        "[[port]]\nname = \"a\"\nlocator = \"{a}\"\n[[port]]\nname = \"b\"\nlocator = \"{b}\"\nring_bytes = 16777216\n\
         [[traffic]]\ntx = \"a\"\nrx = \"b\"\ncount = 500\nstream = [{{ rate = \"5kpps\" }}]\n\
         [[capture]]\nports = [\"b\"]\noutput = {{ path = \"{}\" }}\nfilter = \"udp\"\n",
        folder.path().join("seen.pcap").display()
    );
    let file = folder.path().join("plan.toml");
    std::fs::write(&file, plan).unwrap();
    let output = run(&["run", file.to_str().unwrap(), "--json", "-q"]);
    let report = report(&output);
    assert_eq!(path(&report), "live to packet", "{}", report["ports"]);
    let why = report["ports"][1]["users"][0]["chosen_because"]
        .as_str()
        .unwrap();
    assert!(why.contains("a capture on this port"), "{why}");
    assert_eq!(
        report["capture"]["captured_frames"], 500,
        "{}",
        report["capture"]
    );
}

/// Two ends of a veth pair in a namespace of a lab, and a command there with less than root has.
fn in_node(node: &str, before: &[&str], arguments: &str) -> Output {
    Command::new("ip")
        .args(["netns", "exec", node])
        .args(before)
        .arg(env!("CARGO_BIN_EXE_wirebench"))
        .args(arguments.split(' '))
        .output()
        .expect("runs")
}

#[test]
fn without_a_capability_the_way_is_another_or_there_is_none() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    ip(&format!("-n {node} link add c0 type veth peer name d0"));
    ip(&format!("-n {node} link set c0 up"));
    ip(&format!("-n {node} link set d0 up"));
    let less = ["setpriv", "--bounding-set=-sys_admin"];
    let to = "--dst-mac 02:00:00:00:00:02 --count 100 --rate 10kpps --json -q";
    let output = in_node(&node, &less, &format!("trial --tx c0 --rx d0 {to}"));
    let report = report(&output);
    assert_eq!(total(&report, "received"), 100);
    assert_eq!(path(&report), "xdp to live", "{}", report["ports"]);
    assert!(because(&report, 0).contains("CAP_SYS_ADMIN is missing"));
    let output = in_node(&node, &less, &format!("trial --tx live:c0 --rx d0 {to}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");
    // `doctor` knows.
    let output = in_node(&node, &less, "doctor c0");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("CAP_SYS_ADMIN is missing"), "{text}");
    let all = in_node(&node, &["env"], "doctor c0");
    let text = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(text.contains("ethtool -K d0 gro on"), "{text}");
    // The suggested command solves the problem.
    ip(&format!("netns exec {node} ethtool -K d0 gro on"));
    let output = in_node(&node, &["env"], &format!("tx -i c0 {to}"));
    let report = self::report(&output);
    assert_eq!(driver(&report, 0), "live", "{}", report["ports"]);
}

#[test]
fn in_a_user_namespace_the_way_is_that_of_sockets() {
    if !privileged() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_wirebench");
    let script = format!(
        "ip link add c0 type veth peer name d0 && ip link set c0 up && ip link set d0 up && \
         exec {program} trial --tx c0 --rx d0 --dst-mac 02:00:00:00:00:02 --count 100 --rate 10kpps --json -q"
    );
    let output = Command::new("unshare")
        .args(["-Urn", "sh", "-c", &script])
        .output()
        .expect("runs");
    let report = report(&output);
    for port in [0, 1] {
        assert_ne!(driver(&report, port), "live", "{}", report["ports"]);
        assert!(because(&report, port).contains("user namespace"));
    }
    assert_eq!(total(&report, "received"), 100);
}

#[test]
fn a_container_that_does_not_see_the_sessions_leader_is_a_place_to_run() {
    if !privileged() {
        return;
    }
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(env!("CARGO_BIN_EXE_wirebench"))
        .args(["trial", "--tx", "memory:c", "--rx", "memory:c"])
        .args(["--count", "100", "--rate", "10kpps", "--json", "-q"])
        .output()
        .expect("runs");
    assert_eq!(total(&report(&output), "received"), 100);
}

/// A tap program that stops reading after some frames: it takes frames from programs and loses them.
const HOLD: &str = "import fcntl, os, struct, sys, time
f = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(f, 0x400454ca, struct.pack('16sH22x', b't0', 0x1002))
for _ in range(int(sys.argv[1])):
    os.read(f, 2048)
time.sleep(60)
";

/// A tap in a namespace, and the process that holds it.
struct Tap(Child);

impl Tap {
    fn up(node: &str, read_frames: &str) -> Self {
        let holder = Command::new("ip")
            .args(["netns", "exec", node, "python3", "-c", HOLD, read_frames])
            .spawn()
            .expect("runs");
        eventually("the tap is there", || {
            let up = system("ip", &["-n", node, "link", "set", "t0", "up"]);
            up.status.success()
        });
        Self(holder)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_device_that_drops_silently_is_found_out() {
    if !privileged() {
        return;
    }
    if !Path::new("/dev/net/tun").exists() || !system("python3", &["--version"]).status.success() {
        wb_skip::skipped("no tap devices or no python3 here");
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    let options = "--dst-mac 02:00:00:00:00:02 --count 50 --rate 10kpps --json -q";
    let tap = Tap::up(&node, "0");
    let forced = in_node(&node, &["env"], &format!("tx -i live:t0 {options}"));
    let open = in_node(&node, &["env"], &format!("tx -i t0 {options}"));
    let said = String::from_utf8_lossy(&forced.stderr);
    assert_eq!(forced.status.code(), Some(2), "{said}");
    assert!(said.contains("counted 0 as sent"), "{said}");
    let of_open = report(&open);
    assert_ne!(driver(&of_open, 0), "live", "{}", of_open["ports"]);
    assert!(
        because(&of_open, 0).contains("counted 0 as sent"),
        "{}",
        of_open["ports"]
    );
    // A packet device sends nothing before its own packets, so this shows at the end.
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("report.json");
    let script = "cd /proc/net/pktgen; echo add_device t0 > kpktgend_0; echo count 50 > t0; \
                  echo dst 198.18.0.9 > t0; echo dst_mac 02:00:00:00:00:02 > t0; echo start > pgctrl";
    let arguments = ["pktgen", "run", "--netns", &node, "--report"];
    let arguments = [
        &arguments[..],
        &[file.to_str().unwrap(), "sh", "-c", script],
    ]
    .concat();
    let output = run(&arguments);
    assert!(output.status.success(), "{output:?}");
    let of_device: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(driver(&of_device, 0), "live", "{}", of_device["ports"]);
    assert_found_out(&of_device);
    drop(tap);
    // A tap that fails only after the trial: 16 frames, and the frames that the host sends unasked.
    eventually("the tap is gone", || {
        !system("ip", &["-n", &node, "link", "show", "t0"])
            .status
            .success()
    });
    let _tap = Tap::up(&node, "30");
    let output = in_node(&node, &["env"], &format!("tx -i live:t0 {options}"));
    let late = report(&output);
    assert_eq!(output.status.code(), Some(3), "{}", late["reason"]);
    assert_found_out(&late);
    assert_eq!(total(&late, "offered"), 50);
}

fn assert_found_out(report: &Value) {
    let reason = report["reason"].as_str().unwrap();
    assert_eq!(report["verdict"], "invalid", "{reason}");
    assert!(
        reason.contains("accepted 50 frames but counted"),
        "{reason}"
    );
}

#[test]
fn links_that_go_down_are_told_and_the_account_is_whole() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let arrived = || {
        let node = lab.node("b");
        let output = system("ip", &["-n", &node, "-s", "-j", "link", "show", "b0"]);
        let links: Value = serde_json::from_slice(&output.stdout).unwrap();
        links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    };
    for (node, end) in [(lab.node("a"), "a0"), (lab.node("b"), "b0")] {
        let (a, b) = (lab.a0(), lab.b0());
        let before = arrived();
        let started = wirebench()
            .args(["trial", "--tx", &a, "--rx", &b, "--rate", "10kpps"])
            .args(["--duration", "6s", "--json", "-q"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("runs");
        // More than are sent to try the device out.
        eventually("frames arrive", || arrived() > before + 1000);
        ip(&format!("-n {node} link set {end} down"));
        sleep(Duration::from_millis(300));
        ip(&format!("-n {node} link set {end} up"));
        let output = started.wait_with_output().unwrap();
        let report = report(&output);
        assert_adds_up(&report);
        assert_eq!(path(&report), "live to live", "{}", report["ports"]);
        assert_eq!(total(&report, "intended"), 60_000, "{end}");
        assert!(
            total(&report, "unsent") > 500,
            "{end}: {}",
            report["totals"]
        );
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("the link went down"), "{end}: {warnings}");
    }
}

#[test]
fn nothing_stays_at_the_other_end_when_it_is_killed() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    let namespaces = || system("ip", &["netns", "list"]).stdout;
    let before = namespaces();
    let mut child = wirebench()
        .args(["trial", "--tx", &lab.a0(), "--rx", &lab.b0()])
        .args(["--rate", "10kpps", "--duration", "60s", "-q"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("runs");
    let (dut, b) = (lab.node("dut"), lab.node("b"));
    let all = || [attached(&dut, "da"), attached(&b, "b0")];
    eventually("programs are attached", || all() == [true; 2]);
    sleep(Duration::from_millis(200));
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("they are gone", || all() == [false; 2]);
    let mine = |list: &[u8]| {
        let text = String::from_utf8_lossy(list).into_owned();
        text.lines().filter(|l| l.contains(&lab.node(""))).count()
    };
    assert_eq!(mine(&namespaces()), mine(&before));
}
