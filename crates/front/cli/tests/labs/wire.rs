//! The frames themselves, judged by tshark.

use std::{fs, process::Command};

use crate::kit::run;

/// Frames of each kind.
const EACH: usize = 64;

/// Complaints of tshark about the frames of a file. Each line begins with a frame's number.
fn complaints(file: &str) -> String {
    let output = Command::new("tshark")
        .args(["-r", file, "-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"])
        .args(["-o", "tcp.check_checksum:TRUE", "-o", "tcp.analyze_sequence_numbers:FALSE"])
        .args(["-Y", "_ws.malformed || ip.checksum.status == \"Bad\" || udp.checksum.status == \"Bad\" || tcp.checksum.status == \"Bad\" || icmp.checksum.status == \"Bad\" || icmpv6.checksum.status == \"Bad\""])
        .args(["-d", "udp.port==7,data", "-d", "udp.port==49184,data", "-d", "tcp.port==7,data"])
        .output()
        .expect("tshark runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All kinds of frames with this tag, one after another in a file, for tshark takes longer to start than to look.
fn judged(tag: &str) {
    if Command::new("tshark").arg("--version").output().is_err() {
        wb_skip::skipped("tshark is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, all) = (path("one.pcap"), path("all.pcap"));
    let target = format!("file:{one}");
    let count = EACH.to_string();
    let mut frames = Vec::new();
    let kinds = kinds();
    for kind in &kinds {
        let mut arguments = vec![
            "tx", "-i", &target, "--count", &count, "--tag", tag, "-q", "--json",
        ];
        if !kind.contains(&"--payload") {
            arguments.extend(["--payload", "a55a01"]);
        }
        arguments.extend(kind);
        let made = run(&arguments);
        assert!(
            made.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        let file = fs::read(&one).unwrap();
        // Behind the head of a pcap file are its frames.
        frames.extend(&file[if frames.is_empty() { 0 } else { 24 }..]);
    }
    fs::write(&all, frames).unwrap();
    let found = complaints(&all);
    let first = found.split_whitespace().next();
    let first = first.map(|number| &kinds[(number.parse::<usize>().unwrap() - 1) / EACH]);
    assert!(found.is_empty(), "{tag}, first of {first:?}:\n{found}");
    // No frame was skipped.
    let frames = Command::new("tshark")
        .args(["-r", &all, "-n", "-T", "fields", "-e", "frame.number"])
        .output()
        .unwrap()
        .stdout;
    let frames = String::from_utf8_lossy(&frames).lines().count();
    assert_eq!(frames, kinds.len() * EACH, "{tag}");
}

#[test]
fn tshark_finds_nothing_wrong_with_any_kind_of_frame() {
    judged("wirebench");
}

#[test]
fn tshark_finds_nothing_wrong_with_pktgens_tag() {
    judged("pktgen");
}

#[test]
fn tshark_finds_nothing_wrong_without_a_tag() {
    judged("none");
}

fn kinds() -> Vec<Vec<&'static str>> {
    let mut kinds: Vec<Vec<&str>> = vec![
        vec!["--proto", "arp"],
        vec!["--proto", "raw", "--payload", "0102"],
        vec![
            "--vary",
            "src=random:10.0.0.0/8",
            "--vary",
            "sport=inc:1-65535,step=7",
        ],
        vec![
            "--vary",
            "dst=inc:198.18.0.0-198.19.255.255,step=1031",
            "--vary",
            "id=random:0-65535",
        ],
        vec![
            "--vary",
            "tos=random:0-255",
            "--vary",
            "ttl=dec:1-255",
            "--flows",
            "50",
        ],
        vec!["--vlan", "5", "--vary", "vlan=list:5,7,9"],
        vec![
            "-6",
            "--vary",
            "flow-label=random:0-1048575",
            "--vary",
            "src=random:2001:2::/64",
        ],
        vec![
            "--proto",
            "tcp",
            "--vary",
            "tcp-seq=random:0-4294967295",
            "--vary",
            "tcp-flags=random:0-255",
        ],
        vec![
            "--size",
            "128",
            "--vary",
            "u16@80=random:0-65535",
            "--vary",
            "u8@101=inc:0-255",
        ],
        vec!["--proto", "icmp", "--vary", "sport=random:0-65535"],
        vec![
            "-6",
            "--ext",
            "hop-by-hop,fragment,destination",
            "--flows",
            "50",
        ],
        vec!["-6", "--ext", "fragment,destination", "--proto", "tcp"],
        vec!["-6", "--ext", "destination", "--proto", "icmp"],
    ];
    for proto in ["udp", "tcp", "icmp"] {
        for family in [&[][..], &["-6"]] {
            for tags in [
                &[][..],
                &["--vlan", "10"],
                &["--vlan", "10,20"],
                &["--mpls", "16,17"],
            ] {
                let mut kind = vec!["--proto", proto];
                kind.extend(family);
                kind.extend(tags);
                kinds.push(kind);
            }
        }
    }
    kinds
}
