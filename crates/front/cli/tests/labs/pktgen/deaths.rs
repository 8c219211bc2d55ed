//! Killed processes, and the state that they leave.

use super::{Folder, PATIENCE, counted, mounts_on_proc, processes, sent, text};
use crate::kit::{Lab, Running, eventually, privileged, system};

/// Waits until no more frames arrive, and the interface can be used by others.
fn quiet(node: &str, interface: &str) -> u64 {
    let mut last = counted(node, interface, "rx");
    eventually("sending ends", || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = counted(node, interface, "rx");
        std::mem::replace(&mut last, now) == now
    });
    last
}

fn mounted(folder: &std::path::Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let folder = folder.to_str().expect("UTF-8");
    mounts.lines().any(|l| l.split(' ').nth(1) == Some(folder))
}

#[test]
fn a_killed_daemon_stops_sending_and_its_mount_is_replaced() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let folder = Folder::mount(&a, &[]);
    folder.device("a0", &["count 0", "delay 100000"]);
    let writer = folder.starter();
    folder.await_packets("a0", 10);
    folder.daemon.signal(rustix::process::Signal::KILL);
    let output = writer.finish(PATIENCE);
    assert_ne!(output.status.code(), Some(0), "{}", text(&output.stdout));
    quiet(&b, "b0");
    // The next folder is mounted at the same place.
    let path = folder.dir.path().to_owned();
    assert!(mounted(&path), "a mount without a daemon");
    let output = crate::kit::run(&[
        "pktgen",
        "mount",
        path.to_str().unwrap(),
        "--daemon",
        "--netns",
        &a,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        folder.read("kpktgend_0"),
        "Running: \nStopped: \nResult: NA\n"
    );
    folder.device("a0", &["count 50"]);
    let before = counted(&b, "b0", "rx");
    folder.start();
    assert_eq!(sent(&folder.result("a0")).packets, 50);
    assert_eq!(counted(&b, "b0", "rx") - before, 50);
    // Two at one place would be a mistake.
    let output = crate::kit::run(&["pktgen", "mount", path.to_str().unwrap(), "--netns", &a]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(
        text(&output.stderr).contains("umount"),
        "{}",
        text(&output.stderr)
    );
    let output = crate::kit::run(&["pktgen", "umount", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!mounted(&path));
    let command_line = path.to_str().unwrap().to_owned();
    eventually("the daemon ends", || {
        let found = system("pgrep", &["-f", &command_line]);
        text(&found.stdout).is_empty()
    });
}

#[test]
fn a_mount_that_is_asked_to_end_leaves_a_clean_system() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let mut folder = Folder::mount(&a, &[]);
        folder.device("a0", &["count 0", "delay 100000"]);
        folder.set("pgrx", "rx a0");
        let writer = folder.starter();
        folder.await_packets("a0", 10);
        folder.daemon.signal(signal);
        let placeholder = Running(std::process::Command::new("true").spawn().unwrap());
        let daemon = std::mem::replace(&mut folder.daemon, placeholder);
        let output = daemon.finish(PATIENCE);
        assert_eq!(
            output.status.code(),
            Some(128 + signal.as_raw()),
            "{}",
            text(&output.stderr)
        );
        // The write was carried out, as far as it went.
        assert_eq!(text(&writer.finish(PATIENCE).stdout), "returned\n");
        assert!(!mounted(folder.dir.path()));
        quiet(&b, "b0");
    }
}

const ENDLESS: &str = "cd /proc/net/pktgen; echo add_device a0 > kpktgend_0; echo count 0 > a0; \
    echo delay 100000 > a0; echo start > pgctrl; echo code $?";

/// A script that never ends, started once its packets leave.
fn endless(a: &str, b: &str) -> Running {
    let before = counted(b, "b0", "rx");
    let script = Running::start(&["pktgen", "run", "--netns", a, "bash", "-c", ENDLESS]);
    eventually("packets arrive", || counted(b, "b0", "rx") > before + 10);
    script
}

#[test]
fn a_killed_run_leaves_the_node_clean() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b, mounts) = (lab.node("a"), lab.node("b"), mounts_on_proc());
    let script = endless(&a, &b);
    script.signal(rustix::process::Signal::KILL);
    let output = script.finish(PATIENCE);
    assert_eq!(output.status.code(), None);
    // The script continues, as after a failed write of another kind.
    assert_eq!(text(&output.stdout), "code 1\n");
    eventually("nobody is left in the node", || processes(&a).is_empty());
    quiet(&b, "b0");
    assert_eq!(mounts_on_proc(), mounts);
    // And the interface is as before.
    let report = lab.trial(&["--rate", "1kpps", "--count", "100"]);
    assert_eq!(report["totals"]["received_frames"], 100);
}

#[test]
fn a_run_that_is_asked_to_end_ends_its_script() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b, mounts) = (lab.node("a"), lab.node("b"), mounts_on_proc());
    let script = endless(&a, &b);
    script.signal(rustix::process::Signal::TERM);
    let output = script.finish(PATIENCE);
    assert_eq!(
        output.status.code(),
        Some(128 + 15),
        "{}",
        text(&output.stderr)
    );
    eventually("nobody is left in the node", || processes(&a).is_empty());
    quiet(&b, "b0");
    assert_eq!(mounts_on_proc(), mounts);
}
