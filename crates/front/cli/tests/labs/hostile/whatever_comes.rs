//! Unexpected frames are classified: the other form of the tag, and frames that a host would keep for itself.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Lab, Running, assert_adds_up, eventually, privileged, run, total};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_receiver_reads_the_tags_of_pktgen() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for driver in ["packet", "xdp"] {
        let port = format!("{driver}:{}", lab.b0());
        let running = Running::start(&["rx", "-i", &port, "--json", "--interval", "100ms"]);
        let tasks = format!("/proc/{}/task", running.0.id());
        eventually("it receives", || {
            let tasks = fs::read_dir(&tasks).into_iter().flatten().flatten();
            tasks
                .filter_map(|t| fs::read_to_string(t.path().join("comm")).ok())
                .any(|name| name.starts_with("wb-rx"))
        });
        std::thread::sleep(Duration::from_millis(200));
        let sent = run(&[
            "tx",
            "-i",
            &lab.a0(),
            "--tag",
            "pktgen",
            "--count",
            "2000",
            "--rate",
            "20kpps",
            "-q",
        ]);
        assert_eq!(
            sent.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&sent.stderr)
        );
        std::thread::sleep(Duration::from_millis(300));
        running.signal(Signal::INT);
        let output = running.finish(PATIENCE);
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let totals = &report["totals"];
        assert_eq!(total(&report, "received"), 2000, "{driver}: {totals}");
        assert_eq!(total(&report, "lost"), 0, "{driver}: {totals}");
        assert_eq!(total(&report, "duplicate"), 0, "{driver}: {totals}");
        assert_eq!(report["latency_ns"]["samples"], 2000);
        assert_eq!(report["flows"][0]["stream"], "pktgen");
    }
}

/// A pcap file of these frames, a millisecond apart.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (number, frame) in (0u32..).zip(frames) {
        let len = frame.len() as u32;
        for word in [1_700_000_000, number * 1000, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// An Ethernet frame from hex digits, padded to 60 bytes.
fn frame(destination: [u8; 6], rest: &str) -> Vec<u8> {
    let digits: Vec<u8> = rest.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let bytes = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    let mut frame = destination.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(bytes);
    frame.resize(frame.len().max(60), 0);
    frame
}

#[test]
fn a_replay_is_counted_whatever_it_holds() {
    if !privileged() {
        return;
    }
    const ALL: [u8; 6] = [0xff; 6];
    const ONE: [u8; 6] = [2, 0, 0, 0, 0, 7];
    let ip = "4500 001c 0001 0000 40";
    let addresses = "0000 c612 0001 c612 0002";
    let kinds = [
        // ARP request, LLDP, spanning tree, DHCP, neighbour solicitation, echo, UDP, UDP in a VLAN.
        frame(
            ALL,
            "0806 0001 0800 0604 0001 020000000009 c6120001 000000000000 c6120002",
        ),
        frame(
            [1, 0x80, 0xc2, 0, 0, 0x0e],
            "88cc 0207 0402 0000 0000 09 0403 0261 30 0602 0078 0000",
        ),
        frame(
            [1, 0x80, 0xc2, 0, 0, 0],
            "0026 4242 0300 0000 0000 8000 0200 0000 0009",
        ),
        frame(
            ALL,
            &format!("0800 {ip}11 0000 00000000 ffffffff 0044 0043 0008 0000"),
        ),
        frame(
            [0x33, 0x33, 0xff, 0, 0, 2],
            "86dd 60000000 0018 3aff 20010002000000000000000000000001 ff0200000000000000000001ff000002 \
             8700 0000 00000000 20010002000000000000000000000002",
        ),
        frame(ONE, &format!("0800 {ip}01 {addresses} 0800 0000 0001 0001")),
        frame(ONE, &format!("0800 {ip}11 {addresses} 0009 0009 0008 0000")),
        frame(
            ONE,
            &format!("8100 0007 0800 {ip}11 {addresses} 0009 0009 0008 0000"),
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.pcap");
    fs::write(&file, pcap(&kinds)).unwrap();
    let file = file.to_str().unwrap();
    let lab = Lab::up("pair", &[]);
    let report = lab.trial(&["--replay", file, "--rate", "2kpps", "--count", "800"]);
    assert_adds_up(&report);
    assert_eq!(total(&report, "offered"), 800);
    assert_eq!(total(&report, "lost"), 0, "{}", report["totals"]);
    assert_eq!(report["ports"][1]["driver"], "packet");
    // XDP cannot see them, and is not taken for it.
    let xdp = format!("xdp:{}", lab.b0());
    let output = run(&[
        "trial",
        "--tx",
        &lab.a0(),
        "--rx",
        &xdp,
        "--replay",
        file,
        "--count",
        "8",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("packet:"), "{said}");
}
