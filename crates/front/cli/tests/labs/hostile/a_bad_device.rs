//! A device that corrupts frames: wrong checksums of IP, TCP and UDP are counted and not answered,
//! with both drivers; frames that are not addressed to the load are not counted for it.

use std::{fs, path::Path};

use rustix::process::Signal;

use super::{late_answers::mac, stop_the_tester::begun};
use crate::{
    kit::{Lab, privileged, run},
    load::{PATIENCE, counter, job, report_of, started, words},
};

fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum()
}

fn checksum(mut sum: u32) -> [u8; 2] {
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!(sum as u16)).to_be_bytes()
}

const FROM: [u8; 4] = [198, 18, 1, 2];

/// A frame to the load's server: TCP with `protocol` 6, UDP with 17; `broken` is a place to be changed.
fn frame(protocol: u8, mac: &str, broken: Option<usize>) -> Vec<u8> {
    let to = [198, 19, 1, 2];
    let mut l4 = match protocol {
        6 => [
            &[
                4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 9, 9, 0, 0, 0, 0,
            ][..],
            b"",
        ]
        .concat(),
        _ => [&[4, 0, 0, 80, 0, 26, 0, 0][..], b"eighteen bytes  .."].concat(),
    };
    let pseudo = sum(&FROM) + sum(&to) + u32::from(protocol) + l4.len() as u32;
    let check = checksum(pseudo + sum(&l4));
    let at = if protocol == 6 { 16 } else { 6 };
    l4[at..at + 2].copy_from_slice(&check);
    let len = (20 + l4.len() as u16).to_be_bytes();
    let mut ip = vec![0x45, 0, len[0], len[1], 0, 1, 0, 0, 64, protocol, 0, 0];
    ip.extend_from_slice(&FROM);
    ip.extend_from_slice(&to);
    let check = checksum(sum(&ip));
    ip[10..12].copy_from_slice(&check);
    let mut frame: Vec<u8> = mac
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"))
        .collect();
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 9, 8, 0]);
    frame.extend_from_slice(&ip);
    frame.extend_from_slice(&l4);
    frame.resize(60, 0);
    if let Some(at) = broken {
        frame[at] ^= 0x40;
    }
    frame
}

fn pcap(path: &Path, frames: &[Vec<u8>]) {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[0, 0, 1, 0, 1, 0, 0, 0]);
    for frame in frames {
        let len = (frame.len() as u32).to_le_bytes();
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&len);
        bytes.extend_from_slice(&len);
        bytes.extend_from_slice(frame);
    }
    fs::write(path, bytes).expect("it can be written");
}

#[test]
fn wrong_checksums_are_counted_and_not_answered() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let mac = mac(&lab.node("b"), "b0");
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("bad.pcap");
    for (protocol, option) in [(6, ""), (17, "--udp")] {
        let foreign = {
            let mut frame = frame(protocol, &mac, None);
            frame[12] = 0x88;
            frame
        };
        // The time to live in the IP header, and a port in the payload.
        let frames = [
            frame(protocol, &mac, Some(22)),
            frame(protocol, &mac, Some(35)),
            foreign,
            frame(protocol, &mac, None),
        ];
        pcap(&file, &frames);
        for driver in ["xdp", "packet"] {
            let line = format!("--server {driver}:{} {option}", lab.b0());
            let server = started(&words(&line));
            // Its neighbour responder is there before its workers, so some time is given to them.
            begun(&server, "wb-load");
            std::thread::sleep(std::time::Duration::from_secs(1));
            let port = format!("packet:{}", lab.a0());
            let replay = ["--replay", file.to_str().expect("text")];
            let line = "--count 4 --rate 100pps -q";
            let done = run(&[&["tx", "-i", &port], &replay[..], &words(line)].concat());
            let error = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{error}");
            server.signal(Signal::INT);
            let report = report_of(&server.finish(PATIENCE), 130);
            let job = job(&report, "server");
            let bad = counter(job, "rx_bad_checksum");
            assert!(bad >= 2, "{driver} {option}: {job}");
            // One of three of its kind was whole.
            let taken = match protocol {
                6 => counter(job, "attempted"),
                _ => counter(job, "requests"),
            };
            assert_eq!(bad, 2 * taken, "{driver} {option}: {job}");
            assert_eq!(counter(job, "rx_malformed"), 0, "{driver} {option}: {job}");
            let received = job["frames"]["received_frames"].as_u64().expect("a number");
            assert_eq!(received, 3 * taken, "{driver} {option}: {job}");
            // An XDP program does not even pass on frames of another protocol.
            let foreign = job["frames"]["foreign_frames"].as_u64();
            assert!(driver == "xdp" || foreign >= Some(taken), "{option}: {job}");
            assert!(
                foreign < Some(taken + received),
                "{driver} {option}: what was for the load counts as foreign: {job}"
            );
            let warnings = report["warnings"].to_string();
            assert!(
                warnings.contains("UDP checksum"),
                "{driver} {option}: {warnings}"
            );
        }
    }
}
