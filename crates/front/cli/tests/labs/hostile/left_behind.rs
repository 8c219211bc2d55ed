//! Cleanup after killed runs, and after a lab that is removed while in use.

use rustix::process::Signal;

use crate::kit::{self, Lab, Running, eventually, listening, privileged, run, system};

fn joins(lab: &Lab) -> bool {
    let output = system(
        "ip",
        &["netns", "exec", &lab.node("b"), "ethtool", "-k", "b0"],
    );
    String::from_utf8_lossy(&output.stdout).contains("generic-receive-offload: on")
}

/// A capture with offloads off, killed.
fn kill_a_capture(lab: &Lab) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.pcap");
    let mut command = kit::capture(&[
        "-i",
        &lab.b0(),
        "--offloads",
        "off",
        "-w",
        file.to_str().unwrap(),
    ]);
    let capture = listening(dir.path(), &mut command);
    assert!(!joins(lab));
    capture.signal(Signal::KILL);
    capture.finish(std::time::Duration::from_secs(10));
}

/// Returns true if a run reports that it restored the settings of the killed run. Runs of other tests, which
/// need no lab, may have restored them before.
fn repaired_by(lab: &Lab, what: &[&str]) -> bool {
    kill_a_capture(lab);
    let left = String::from_utf8(run(&["doctor"]).stdout).unwrap();
    let output = run(what);
    assert!(output.status.success());
    assert!(joins(lab), "whoever did it");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    let told = said.contains(&lab.b0()) && said.contains("off; restored");
    assert!(!told || left.contains("left behind"), "{left}");
    told
}

#[test]
fn offloads_come_back_after_a_kill() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let node = lab.node("b");
    let on = ["netns", "exec", &node, "ethtool", "-K", "b0", "gro", "on"];
    if !system("ip", &on).status.success() || !joins(&lab) {
        wb_skip::skipped("ethtool cannot switch GRO on here");
        return;
    }
    let a0 = format!("packet:{}", lab.a0());
    let next = [
        "tx",
        "--json",
        "-i",
        &a0,
        "--dst-mac",
        "02:00:00:00:00:02",
        "--count",
        "1",
    ];
    // On request, and by the next run of any kind.
    for what in [&["doctor", "--repair"][..], &next] {
        let told = (0..20).any(|_| repaired_by(&lab, what));
        assert!(told, "{what:?}");
    }
    let text = |arguments: &[&str]| String::from_utf8(run(arguments).stdout).unwrap();
    // Only the record of this lab is checked: other tests may have left theirs.
    assert!(!text(&["doctor"]).contains(&lab.b0()));
}

#[test]
fn a_lab_stays_while_a_run_uses_it() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let receiver = Running::start(&["rx", "-i", &lab.b0(), "-q"]);
    let mut said = String::new();
    let pid = format!("process {} (", receiver.0.id());
    eventually("the lab is in use", || {
        let held = wb_machine::Namespace::named(&lab.node("b")).unwrap();
        wb_machine::locks::holders(&held)
            .unwrap()
            .iter()
            .any(|h| h.starts_with(&pid))
    });
    let down = run(&["lab", "down", &lab.name]);
    said.push_str(&String::from_utf8_lossy(&down.stderr));
    assert_eq!(down.status.code(), Some(2), "{said}");
    assert!(said.contains(&pid) && said.contains("--force"), "{said}");
    assert_eq!(lab.status()["state"], "up");
    receiver.signal(Signal::INT);
    receiver.finish(std::time::Duration::from_secs(10));
    assert!(run(&["lab", "down", &lab.name]).status.success());
}
