//! Faults during a run: the final statistics are still written, and nothing is left behind.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{
    Lab, Running, assert_adds_up, eventually, privileged, run, system, total, wirebench,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn long_trial(lab: &Lab) -> Running {
    Running::start(&[
        "trial",
        "--tx",
        &lab.a0(),
        "--rx",
        &lab.b0(),
        "--rate",
        "10kpps",
        "--duration",
        "60s",
        "--json",
    ])
}

/// Waits until a0 has sent for a while.
pub(crate) fn wait_until_sending(lab: &Lab) {
    let sent = || -> u64 {
        let out = system(
            "ip",
            &["-n", &lab.node("a"), "-j", "-s", "link", "show", "a0"],
        )
        .stdout;
        let links: Value = serde_json::from_slice(&out).unwrap();
        links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    };
    eventually("frames leave", || sent() > 2_000);
}

fn report_of(running: Running, code: i32) -> Value {
    let output = running.finish(PATIENCE);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    let said = format!("{error}{}: {}", report["reason"], report["totals"]);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_adds_up(&report);
    assert!(total(&report, "offered") > 1_000);
    report
}

#[test]
fn signals_end_a_run_with_its_statistics() {
    if !privileged() {
        return;
    }
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let lab = Lab::up("pair", &[]);
        let running = long_trial(&lab);
        wait_until_sending(&lab);
        running.signal(signal);
        let report = report_of(running, code);
        assert_eq!(total(&report, "lost"), 0, "{}", report["totals"]);
        assert!(
            report["reason"].as_str().unwrap().contains("SIG"),
            "{}",
            report["reason"]
        );
    }
}

#[test]
fn a_second_signal_does_not_wait_for_the_drain() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let running = Running::start(&[
        "trial",
        "--tx",
        &lab.a0(),
        "--rx",
        &lab.b0(),
        "--rate",
        "10kpps",
        "--drain",
        "1m",
        "--json",
        "-q",
    ]);
    wait_until_sending(&lab);
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::INT);
    let report = report_of(running, 130);
    assert_eq!(total(&report, "lost"), 0, "{}", report["totals"]);
    let elapsed = report["elapsed_ns"].as_u64().unwrap();
    assert!(
        elapsed < 30_000_000_000,
        "it waited for the drain: {elapsed}"
    );
}

#[test]
fn results_that_cannot_be_written_are_a_fault() {
    let output = crate::kit::wirebench()
        .args(["tx", "-i", "file:/dev/null", "--count", "1", "--json", "-q"])
        .stdout(std::fs::File::create("/dev/full").unwrap())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.contains("standard output"), "{error}");
}

#[test]
fn a_link_that_goes_down_and_up_costs_frames_and_not_the_run() {
    if !privileged() {
        return;
    }
    for driver in ["packet", "xdp"] {
        let lab = Lab::up("pair", &[]);
        let (tx, rx) = (
            format!("{driver}:{}", lab.a0()),
            format!("{driver}:{}", lab.b0()),
        );
        let running = Running::start(&[
            "trial",
            "--tx",
            &tx,
            "--rx",
            &rx,
            "--rate",
            "10kpps",
            "--duration",
            "6s",
            "--json",
            "-q",
        ]);
        wait_until_sending(&lab);
        let node = lab.node("a");
        system("ip", &["-n", &node, "link", "set", "a0", "down"]);
        std::thread::sleep(Duration::from_millis(1000));
        system("ip", &["-n", &node, "link", "set", "a0", "up"]);
        let report = report_of(running, 3);
        assert_eq!(total(&report, "intended"), 60_000, "{driver}");
        let missing = total(&report, "unsent") + total(&report, "lost");
        assert!(
            missing > 2_000,
            "{driver}: the link was down for a second: {}",
            report["totals"]
        );
        let limited_by = report["limited_by"].as_str().unwrap();
        assert!(limited_by.contains("the link"), "{driver}: {limited_by}");
        assert!(
            report["warnings"].to_string().contains("went down once"),
            "{driver}: {}",
            report["warnings"]
        );
        assert!(
            total(&report, "received") > 30_000,
            "{driver}: it went on afterwards: {}",
            report["totals"]
        );
    }
}

#[test]
fn a_link_that_was_down_briefly_is_not_blamed_for_a_tester_that_stood_still() {
    if !privileged() {
        return;
    }
    for driver in ["packet", "xdp"] {
        let lab = Lab::up("pair", &[]);
        let running = Running::start(&[
            "trial",
            "--tx",
            &format!("{driver}:{}", lab.a0()),
            "--rx",
            &format!("{driver}:{}", lab.b0()),
            "--rate",
            "10kpps",
            "--duration",
            "8s",
            "--json",
            "-q",
        ]);
        wait_until_sending(&lab);
        let node = lab.node("a");
        system("ip", &["-n", &node, "link", "set", "a0", "down"]);
        std::thread::sleep(Duration::from_millis(200));
        system("ip", &["-n", &node, "link", "set", "a0", "up"]);
        std::thread::sleep(Duration::from_millis(500));
        running.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(2_000));
        running.signal(Signal::CONT);
        let report = report_of(running, 3);
        assert!(total(&report, "unsent") > 10_000, "{driver}");
        let limited_by = report["limited_by"].as_str().unwrap();
        assert!(
            limited_by.starts_with("the tester"),
            "{driver}: {limited_by}"
        );
    }
}

/// No sent frame was lost. That says nothing about a device that was to carry three times as many.
#[test]
fn a_link_that_dies_in_the_middle_proves_nothing() {
    if !privileged() {
        return;
    }
    for (driver, node, interface) in [
        ("packet", "a", "a0"),
        ("xdp", "a", "a0"),
        ("packet", "b", "b0"),
        ("xdp", "b", "b0"),
    ] {
        let lab = Lab::alone("pair", &[]);
        let (tx, rx) = (
            format!("{driver}:{}", lab.a0()),
            format!("{driver}:{}", lab.b0()),
        );
        let running = Running::start(&[
            "trial",
            "--tx",
            &tx,
            "--rx",
            &rx,
            "--rate",
            "2kpps",
            "--duration",
            "4s",
            "--criteria",
            "loss<=5%",
            "--json",
            "-q",
        ]);
        wait_until_sending(&lab);
        let link = |state| {
            let node = lab.node(node);
            system("ip", &["-n", &node, "link", "set", interface, state]);
        };
        link("down");
        std::thread::sleep(Duration::from_millis(1200));
        link("up");
        let report = report_of(running, 3);
        let place = format!("{driver} {interface}");
        assert_eq!(report["verdict"], "invalid", "{place}");
        assert_eq!(report["criteria"][0]["held"], true, "{place}");
        if report["lateness"]["stalled_ns"].as_u64() > Some(40_000_000) {
            // Not only the link kept frames from being sent.
            continue;
        }
        let reason = report["reason"].as_str().unwrap();
        assert!(
            reason.contains("of the intended load: the link"),
            "{reason}"
        );
        let warnings = report["warnings"].to_string();
        let down = warnings.split("went down once during the run, for ").nth(1);
        let down = down.unwrap_or_else(|| panic!("{place}: {warnings}"));
        let ms: u64 = down.split(' ').next().unwrap().parse().unwrap();
        assert!((1150..=2000).contains(&ms), "{place}: {warnings}");
    }
}

#[test]
fn a_namespace_that_vanishes_ends_the_run_with_code_4() {
    if !privileged() {
        return;
    }
    for driver in ["packet", "xdp"] {
        let lab = Lab::up("pair", &[]);
        let (tx, rx) = (
            format!("{driver}:{}", lab.a0()),
            format!("{driver}:{}", lab.b0()),
        );
        let running = Running::start(&[
            "trial",
            "--tx",
            &tx,
            "--rx",
            &rx,
            "--rate",
            "10kpps",
            "--duration",
            "60s",
            "--json",
            "-q",
        ]);
        wait_until_sending(&lab);
        // A namespace exists as long as a socket in it; its interface is deleted first, as when a container
        // is removed.
        system("ip", &["-n", &lab.node("b"), "link", "del", "b0"]);
        let report = report_of(running, 4);
        assert_eq!(report["verdict"], "incomplete");
        assert!(
            report["reason"].as_str().unwrap().contains("gone"),
            "{}",
            report["reason"]
        );
    }
}

#[test]
fn a_receiver_that_is_killed_is_loss_for_the_sender_alone() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let receiver = Running::start(&["rx", "-i", &lab.b0(), "-q"]);
    let sender = Running::start(&[
        "tx",
        "-i",
        &lab.a0(),
        "--rate",
        "10kpps",
        "--duration",
        "3s",
        "--json",
        "-q",
    ]);
    wait_until_sending(&lab);
    receiver.signal(Signal::KILL);
    drop(receiver);
    let report = report_of(sender, 0);
    assert_eq!(total(&report, "offered") + total(&report, "unsent"), 30_000);
    // The queue and the program are free again at once, or after a delay of the kernel.
    eventually("the port can be opened again", || {
        let output = run(&["rx", "-i", &lab.b0(), "-q", "--duration", "10ms"]);
        // It ran, and no frame arrived.
        output.status.code() == Some(3)
    });
}

#[test]
fn a_killed_run_leaves_nothing_that_the_next_one_stumbles_over() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for _ in 0..3 {
        let running = long_trial(&lab);
        wait_until_sending(&lab);
        running.signal(Signal::KILL);
        drop(running);
        let report = lab.trial(&["--rate", "5kpps", "--duration", "200ms"]);
        assert_eq!(total(&report, "lost"), 0, "{}", report["totals"]);
    }
}

#[test]
fn a_lab_command_takes_its_lab_with_it() {
    if !privileged() {
        return;
    }
    let name = format!("r{}", std::process::id());
    let output = run(&[
        "lab",
        "run",
        "pair",
        "--as",
        &name,
        "--",
        "sh",
        "-c",
        "ip netns list; exit 7",
    ]);
    assert_eq!(output.status.code(), Some(7));
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(seen.contains(&format!("wb-{name}-a")), "{seen}");
    let after = String::from_utf8_lossy(&system("ip", &["netns", "list"]).stdout).into_owned();
    assert!(!after.contains(&format!("wb-{name}-")), "{after}");
}

#[test]
fn a_signal_ends_the_set_up_of_many_streams() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    let mut plan = format!(
        "schema = \"wirebench.plan/1\"\n\
         port = [{{ name = \"tx\", locator = \"{}\" }}, {{ name = \"rx\", locator = \"{}\" }}]\n\
         [[traffic]]\ntx = \"tx\"\nrx = \"rx\"\nduration = \"1s\"\n",
        lab.port("a", "a0"),
        lab.port("b", "b0")
    );
    // The router knows no way there, so no ping is answered.
    for net in 100..130 {
        plan += &format!(
            "[[traffic.stream]]\nrate = \"1kpps\"\ndst = \"198.18.{net}.1-198.18.{net}.250\"\n"
        );
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), plan).unwrap();
    let running = Running::start(&["run", file.path().to_str().unwrap(), "-q"]);
    let tasks = format!("/proc/{}/task", running.0.id());
    eventually("it handles signals", || {
        let tasks = std::fs::read_dir(&tasks).unwrap().flatten();
        let names = tasks.map(|t| std::fs::read_to_string(t.path().join("comm")));
        names.flatten().any(|name| name.trim() == "wb-signals")
    });
    running.signal(Signal::INT);
    let output = running.finish(Duration::from_secs(60));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(
        error.contains("ended by SIGINT before the start"),
        "{error}"
    );
}

/// Runs the binary in a shell after a command.
fn after(command: &str, arguments: &[&str]) -> std::process::Output {
    std::process::Command::new("sh")
        .args(["-c", &format!("{command}; exec \"$0\" \"$@\"")])
        .arg(wirebench().get_program())
        .args(arguments)
        .output()
        .expect("runs")
}

#[test]
fn the_soft_limit_of_open_files_is_raised_and_the_hard_limit_named() {
    if !privileged() {
        return;
    }
    // The way out of an interface is looked for in every namespace.
    let lab = Lab::up("pair", &[]);
    let names: Vec<String> = (0..45).map(|n| lab.node(&format!("more{n}"))).collect();
    for name in &names {
        assert!(system("ip", &["netns", "add", name]).status.success());
    }
    let (tx, rx) = (
        format!("packet:{}", lab.a0()),
        format!("packet:{}", lab.b0()),
    );
    let trial = [
        "trial",
        "--tx",
        &tx,
        "--rx",
        &rx,
        "--rate",
        "1kpps",
        "--duration",
        "200ms",
        "-q",
        "--catch-up",
        "10s",
    ];
    let soft = after("ulimit -Sn 50", &trial);
    let hard = after("ulimit -n 50", &trial);
    let child = [
        "lab",
        "exec",
        &lab.node("a"),
        "sh",
        "-c",
        "ulimit -Sn; ulimit -Hn",
    ];
    let kept = after("ulimit -Sn 50; ulimit -Hn 4000", &child);
    for name in &names {
        system("ip", &["netns", "del", name]);
    }
    let error = String::from_utf8_lossy(&soft.stderr);
    assert_eq!(soft.status.code(), Some(0), "{error}");
    let error = String::from_utf8_lossy(&hard.stderr);
    assert_eq!(hard.status.code(), Some(2), "{error}");
    assert!(error.contains("ulimit -n"), "{error}");
    assert!(!error.contains("--i-own-this-network"), "{error}");
    assert_eq!(String::from_utf8_lossy(&kept.stdout), "50\n4000\n");
}
