//! The receiver: its counts of packets of a kernel, in both forms.

use std::path::{Path, PathBuf};

use super::{frames, number_after, text};
use crate::kit::run;

/// Average, variance, largest, least, number.
fn statistics(samples: &[u64]) -> String {
    let n = samples.len() as u128;
    if n == 0 {
        return String::new();
    }
    let average = samples.iter().map(|s| u128::from(*s)).sum::<u128>() / n;
    let squares = samples.iter().map(|s| u128::from(*s).pow(2)).sum::<u128>() / n;
    let (max, min) = (
        samples.iter().max().expect("some"),
        samples.iter().min().expect("some"),
    );
    format!("{average} {} {max} {min} {n} ", squares - average * average)
}

/// Output of the receiver of 2014 for a capture in script form, by its definitions.
fn expected_rows(path: &Path) -> String {
    let frames: Vec<_> = frames::of(path)
        .into_iter()
        .filter_map(|f| f.tag().map(|t| (f.at_ns, t)))
        .collect();
    let packets = frames.len() as u64;
    let bytes: u64 = frames.iter().map(|(_, t)| t.counted_bytes).sum();
    let us = (frames[frames.len() - 1].0 - frames[0].0) / 1000;
    let (pps, bps) = (packets * 1_000_000 / us, bytes * 8_000_000 / us);
    let sums = format!("{packets} {bytes} {us} {pps} {} {bps} ", bps / 1_000_000);
    let arrivals: Vec<u64> = frames.windows(2).map(|w| w[1].0 - w[0].0).collect();
    let (mut latencies, mut jitters, mut last) = (Vec::new(), Vec::new(), (0, 0));
    for (at, tag) in &frames {
        let Some(stamp) = tag.kernel_ns().filter(|stamp| *stamp != last.0) else {
            continue;
        };
        let latency = at - stamp;
        jitters.push(latency.abs_diff(last.1));
        latencies.push(latency);
        last = (stamp, latency);
    }
    let times = [arrivals, jitters, latencies]
        .map(|s| statistics(&s))
        .concat();
    format!("0 {sums}{times}\nG {sums}\n")
}

fn capture(name: &str) -> PathBuf {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../dialects/pktgen/tests/vectors"
    );
    PathBuf::from(folder).join(name)
}

#[test]
fn packets_of_a_kernel_are_counted_and_timed_from_a_capture() {
    for (name, packets) in [
        ("kernel-ratep.pcap", 200),
        ("kernel-clones.pcap", 180),
        ("kernel-ipv6-vlan.pcap", 100),
    ] {
        let path = capture(name);
        let port = format!("file:{}", path.display());
        let watch = |options: &[&str]| {
            let output = run(&[&["pktgen", "watch", "-q", "-i", &port], options].concat());
            assert_eq!(
                output.status.code(),
                Some(0),
                "{name}: {}",
                text(&output.stderr)
            );
            text(&output.stdout)
        };
        let rows = expected_rows(&path);
        assert_eq!(watch(&["--mode", "time", "--script"]), rows, "{name}");
        let basic = watch(&["--script"]);
        let sums = rows.lines().last().expect("a sum");
        assert_eq!(
            basic,
            format!("{}\n{sums}\n", sums.replacen('G', "0", 1)),
            "{name}"
        );
        let human = watch(&["--mode", "counter"]);
        assert_eq!(number_after(&human, "Packets Rx: "), packets, "{name}");
        assert!(!human.contains("Rate"), "{human}");
        let old = watch(&["--mode", "time", "--script", "--pgrx", "osta36"]);
        let jitters = |row: &str| row.split(' ').nth(16).and_then(|n| n.parse::<u64>().ok());
        assert_eq!(jitters(&old), Some(packets - 2), "{old}");
    }
}
