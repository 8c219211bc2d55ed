//! Compares filters with independent references: libpcap's interpreter, tcpdump's listing, and the kernel's checker,
//! interpreter and verifier.

mod corpus;
mod kernel;
mod tap;

use corpus::{Random, corpus, expression, packet};
use wb_filter::{Ancillary, Program};
use wb_machine::expression::{LINK_ETHERNET, compile, compile_for_tap};

const SNAP_LEN: u32 = 262_144;

fn verdict(program: &Program, packet: &[u8]) -> u32 {
    program.accepts(packet, packet.len() as u32, &Ancillary::default())
}

fn compiled() -> Vec<(String, Program)> {
    let all: Vec<_> = corpus()
        .into_iter()
        .filter_map(|text| {
            let program = compile(&text, LINK_ETHERNET, SNAP_LEN, true).ok()?;
            Some((text, program))
        })
        .collect();
    assert!(all.len() > 145, "{} of the corpus compile", all.len());
    all
}

#[test]
fn known_verdicts() {
    let mut frame = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0x2e, 0, 0, 0, 0, 0x40, 0x11, 0x66,
        0x23, 10, 77, 0, 1, 10, 77, 0, 2, 0, 9, 0, 9, 0, 0x1a, 0, 0, 0x57, 0x42,
    ];
    frame.resize(60, 0);
    for (text, kept) in [
        ("src host 172.16.32.25", false),
        ("src host 10.77.0.1", true),
        ("udp port 9", true),
        ("tcp", false),
        ("less 60", true),
        ("greater 61", false),
        ("vlan", false),
    ] {
        for optimize in [true, false] {
            let program = compile(text, LINK_ETHERNET, SNAP_LEN, optimize).unwrap();
            let expected = if kept { SNAP_LEN } else { 0 };
            assert_eq!(verdict(&program, &frame), expected, "{text}");
        }
    }
    let program = compile("src host 172.16.32.25", LINK_ETHERNET, SNAP_LEN, true).unwrap();
    let list: Vec<_> = program
        .instructions()
        .iter()
        .map(|i| (i.code, i.jt, i.jf, i.k))
        .collect();
    let expected = [
        (40, 0, 0, 12),
        (21, 0, 2, 2048),
        (32, 0, 0, 26),
        (21, 4, 5, 2_886_737_945),
        (21, 1, 0, 2054),
        (21, 0, 3, 32821),
        (32, 0, 0, 28),
        (21, 0, 1, 2_886_737_945),
        (6, 0, 0, 262_144),
        (6, 0, 0, 0),
    ];
    assert_eq!(list, expected);
}

#[test]
fn the_interpreter_agrees_with_libpcap() {
    const SEED: u64 = 20;
    let mut random = Random(SEED);
    let judge = pcap::Capture::dead(pcap::Linktype(1)).unwrap();
    let mut pairs = 0;
    let mut kept = 0;
    let texts: Vec<_> = (0..900)
        .map(|_| expression(&mut random, 3))
        .chain(corpus())
        .collect();
    for text in texts {
        for optimize in [true, false] {
            let (ours, theirs) = (
                compile(&text, LINK_ETHERNET, SNAP_LEN, optimize),
                judge.compile(&text, optimize),
            );
            let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
                continue;
            };
            // libpcap's interpreter does not provide the kernel's values.
            if ours.kernel_values().next().is_some() {
                continue;
            }
            for _ in 0..12 {
                let packet = packet(&mut random);
                let verdict = verdict(&ours, &packet);
                assert_eq!(
                    verdict > 0,
                    theirs.filter(&packet),
                    "seed {SEED}: `{text}` on {packet:02x?}\n{ours:?}"
                );
                pairs += 1;
                kept += u32::from(verdict > 0);
            }
        }
    }
    assert!(pairs >= 5000, "{pairs} pairs");
    let share = f64::from(kept) / f64::from(pairs);
    assert!((0.1..0.9).contains(&share), "{kept} of {pairs} kept");
}

#[test]
fn the_listing_is_that_of_tcpdump() {
    let available = std::process::Command::new("tcpdump")
        .arg("--version")
        .output();
    if available.is_err() {
        wb_testing::skipped("tcpdump is not installed");
        return;
    }
    // Loops are unrolled here, because the kernel rejects backward jumps.
    let long = |text: &str| text.len() > 400 || text.contains("protochain");
    for (text, program) in compiled().iter().filter(|(text, _)| !long(text)).step_by(3) {
        for (option, ours) in [
            ("-d", program.listing()),
            ("-dd", program.c_array()),
            ("-ddd", program.decimal()),
        ] {
            let output = std::process::Command::new("tcpdump")
                .args(["-y", "EN10MB", option, "--", text])
                .output()
                .unwrap();
            let theirs = String::from_utf8(output.stdout).unwrap();
            if theirs.is_empty() {
                eprintln!(
                    "not compared: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                );
                continue;
            }
            assert_eq!(ours, theirs, "{text}");
        }
    }
}

/// Frame as a tap delivers it, if the kernel would remove its first tag.
fn strip(frame: &[u8]) -> (Vec<u8>, Ancillary) {
    let tpid = u16::from_be_bytes([frame[12], frame[13]]);
    if !matches!(tpid, 0x8100 | 0x88a8) {
        return (frame.to_vec(), Ancillary::default());
    }
    let ancillary = Ancillary {
        vlan_present: true,
        vlan_proto: tpid,
        vlan_tci: u16::from_be_bytes([frame[14], frame[15]]),
        ..Ancillary::default()
    };
    ([&frame[..12], &frame[16..]].concat(), ancillary)
}

#[test]
fn a_tap_filter_chooses_the_same_frames() {
    let mut random = Random(7);
    for text in corpus() {
        let Ok(filter) = compile_for_tap(&text, SNAP_LEN, true) else {
            continue;
        };
        let attach = filter.attach.unwrap();
        for _ in 0..40 {
            let frame = packet(&mut random);
            let (stripped, ancillary) = strip(&frame);
            assert_eq!(
                attach.accepts(&stripped, stripped.len() as u32, &ancillary),
                verdict(&filter.whole, &frame),
                "`{text}` on {frame:02x?}"
            );
        }
    }
}
