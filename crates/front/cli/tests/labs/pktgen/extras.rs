//! Files that the kernel's generator does not have.

use std::process::{Command, Stdio};

use super::{Folder, PATIENCE, frames, sent, text};
use crate::kit::{Lab, Running, eventually, privileged, run};

#[test]
fn extra_files_say_more_and_are_not_listed() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"), &[]);
    let listed = || {
        let names = std::fs::read_dir(folder.dir.path()).expect("a listing");
        let mut names: Vec<_> = names
            .map(|n| n.expect("a name").file_name().into_string().expect("UTF-8"))
            .filter(|n| !n.starts_with("kpktgend_"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(listed(), ["pgctrl", "pgrx"]);
    assert_eq!(folder.read("result.json"), "null\n");
    assert!(!folder.path("a0.result.json").exists());

    folder.device("a0", &["count 1000", "pkt_size 60", "dst 198.18.0.42"]);
    assert_eq!(folder.json("a0.result.json")["state"], "idle");
    folder.start();
    let report = sent(&folder.result("a0"));
    assert_eq!(listed(), ["a0", "pgctrl", "pgrx"]);
    let device = folder.json("a0.result.json");
    assert_eq!(device["state"], "stopped");
    assert_eq!(device["sent_frames"], report.packets);
    assert_eq!(device["unsent_frames"], 0);
    // With the four bytes of the checksum.
    assert_eq!(device["offered_octets"], 1000 * 64);
    assert_eq!(device["result"], folder.result("a0"));
    let run = folder.json("result.json");
    assert_eq!(run["kind"], "pktgen");
    assert_eq!(run["totals"]["offered_frames"], 1000);
    crate::kit::assert_adds_up(&run);
    assert_eq!(folder.json("pgrx.json")["enabled"], false);
    for name in [
        "result.json",
        "plan.toml",
        "live",
        "pgrx.json",
        "a0.result.json",
    ] {
        let error = folder.write(name, b"start").expect_err(name);
        assert!(
            matches!(error.raw_os_error(), Some(1 | 13 | 22 | 30)),
            "{name}: {error}"
        );
    }

    folder.set("a0", "count 0");
    folder.set("a0", "delay 100000");
    let writer = folder.starter();
    folder.await_packets("a0", 10);
    assert_eq!(folder.json("a0.result.json")["state"], "running");
    eventually("rates are known", || {
        folder.read("live").lines().count() == 2
    });
    let live = folder.read("live");
    assert!(
        live.lines().nth(1).is_some_and(|l| l.starts_with("a0 ")),
        "{live}"
    );
    folder.set("pgctrl", "stop");
    assert_eq!(text(&writer.finish(PATIENCE).stdout), "returned\n");
}

#[test]
fn a_duration_ends_a_run_without_count() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"), &[]);
    folder.device("a0", &["count 0", "ratep 1000", "duration 1s"]);
    folder.start();
    let packets = sent(&folder.result("a0")).packets;
    assert!((1..=1001).contains(&packets), "{packets}");
    assert!(
        !folder.read("a0").contains("duration"),
        "the text is the kernel's"
    );
}

/// Frames that arrive on b0 during `sending`, except those that its link sends unasked.
pub(super) fn captured(
    node: &str,
    file: &std::path::Path,
    packets: usize,
    sending: impl FnOnce(),
) -> Vec<Vec<u8>> {
    let mut child = Command::new("ip")
        .args([
            "netns",
            "exec",
            node,
            "tcpdump",
            "-i",
            "b0",
            "-U",
            "--immediate-mode",
            "-w",
        ])
        .arg(file)
        .arg("udp")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tcpdump starts");
    let mut said = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let tcpdump = Running(child);
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        let n = std::io::BufRead::read_line(&mut said, &mut line).expect("it speaks");
        assert!(n > 0, "tcpdump does not listen");
    }
    sending();
    eventually("all are captured", || frames::of(file).len() >= packets);
    tcpdump.signal(rustix::process::Signal::INT);
    drop(tcpdump);
    frames::of(file).into_iter().map(|f| f.bytes).collect()
}

#[test]
fn the_plan_of_a_folder_sends_the_same_frames() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let folder = Folder::mount(&a, &["--seed", "99"]);
    folder.device(
        "a0",
        &[
            "count 60",
            "min_pkt_size 60",
            "max_pkt_size 90",
            "src_min 10.0.0.1",
            "dst_min 198.18.0.1",
            "dst_max 198.18.0.9",
            "udp_src_min 9",
            "udp_src_max 5000",
            "flag UDPSRC_RND",
            "vlan_id 5",
            "flag VID_RND",
            "flag NO_TIMESTAMP",
            "delay 100000",
            "clone_skb 2",
        ],
    );
    let plan = folder.read("plan.toml");
    let files = tempfile::tempdir().unwrap();
    let mine = captured(&b, &files.path().join("folder.pcap"), 60, || folder.start());
    assert_eq!(sent(&folder.result("a0")).packets, 60);
    std::fs::write(files.path().join("plan.toml"), plan).unwrap();
    let path = files.path().join("plan.toml");
    let again = captured(&b, &files.path().join("plan.pcap"), 60, || {
        let output = run(&["run", path.to_str().unwrap(), "-q", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["totals"]["offered_frames"], 60);
    });
    assert_eq!(mine.len(), 60);
    assert_eq!(mine, again);
    let tags: Vec<_> = frames::of(&files.path().join("plan.pcap"))
        .iter()
        .map(|f| f.tag().expect("the generator's").seq)
        .collect();
    assert_eq!(tags[..6], [1, 1, 3, 3, 5, 5]);
}
