//! `pgrx`: its counts of packets of wirebench and of a kernel, in both forms.

use std::path::{Path, PathBuf};

use super::{Folder, add_loop, counted, frames, ip, number_after, text};
use crate::kit::{Lab, eventually, privileged, run};

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

/// Sends from w0 to w1 of one node; returns the row of the sum, and the number of latency samples.
fn local(folder: &Folder, settings: &[&str]) -> (String, u64) {
    folder.set("pgctrl", "reset");
    folder.device("w0", settings);
    folder.set("pgrx", "rx w1");
    folder.set("pgrx", "statistics time");
    folder.set("pgrx", "display script");
    folder.start();
    let rows = folder.read("pgrx");
    let samples = rows
        .lines()
        .filter(|l| !l.starts_with('G'))
        .map(|l| l.trim_end().split(' ').collect::<Vec<_>>())
        .filter(|fields| fields.len() >= 17)
        .map(|fields| fields[fields.len() - 1].parse::<u64>().expect("samples"))
        .sum();
    (rows.lines().last().expect("a sum").to_owned(), samples)
}

#[test]
fn latency_is_measured_where_sender_and_receiver_are_one() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    add_loop(&node);
    for time in ["kernel", "osta"] {
        let folder = Folder::mount(&node, &["--time", time]);
        for (settings, bytes) in [
            (
                &[
                    "count 500",
                    "delay 1000000",
                    "pkt_size 60",
                    "src_min 10.0.0.1",
                    "dst 10.0.0.2",
                ][..],
                60,
            ),
            (
                &[
                    "count 500",
                    "delay 1000000",
                    "pkt_size 80",
                    "src6 fd00::1",
                    "dst6 fd00::2",
                ],
                80,
            ),
            (
                &[
                    "count 500",
                    "delay 1000000",
                    "pkt_size 64",
                    "dst 10.0.0.2",
                    "vlan_id 77",
                ],
                60,
            ),
            (
                &[
                    "count 500",
                    "delay 1000000",
                    "pkt_size 68",
                    "dst 10.0.0.2",
                    "vlan_id 7",
                    "svlan_id 9",
                ],
                60,
            ),
        ] {
            // Packets with the same timestamp, in microseconds, as the previous packet are not counted: a sender that
            // stalled catches up at once. After a long stall there is another try.
            let mut tries = 3;
            let samples = loop {
                let (sum, samples) = local(&folder, settings);
                assert!(
                    sum.starts_with(&format!("G 500 {} ", 500 * bytes)),
                    "{time}: {settings:?}: {sum}"
                );
                tries -= 1;
                if samples >= 300 || tries == 0 {
                    break samples;
                }
            };
            assert!(
                (300..=500).contains(&samples),
                "{time}: {settings:?}: {samples}"
            );
            let json = folder.json("pgrx.json");
            for cpu in json["cpus"].as_array().expect("CPUs") {
                let most = cpu["latency"]["max_ns"].as_u64().unwrap_or(0);
                assert!(most < 5_000_000_000, "{time}: {settings:?}: {json}");
            }
        }
        let (sum, samples) = local(&folder, &["count 100", "flag NO_TIMESTAMP"]);
        assert!(sum.starts_with("G 100 "), "{sum}");
        assert_eq!(samples, 0, "no time, no latency");
        // Consumed: no other program in the node gets them.
        folder.set("pgrx", "rx_disable");
        assert_eq!(folder.read("pgrx"), "Not enabled.\n");
    }
}

#[test]
fn the_receiver_obeys_its_commands() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    ip(
        &b,
        &["link", "add", "x0", "type", "veth", "peer", "name", "x1"],
    );
    ip(&b, &["link", "set", "x0", "up"]);
    let (sender, receiver) = (Folder::mount(&a, &[]), Folder::mount(&b, &[]));
    assert_eq!(receiver.read("pgrx"), "Not enabled.\n");
    receiver.set("pgrx", "display script");
    assert_eq!(
        receiver.read("pgrx"),
        "Not enabled.\n",
        "before rx there is nothing to display"
    );
    sender.device("a0", &["count 100", "pkt_size 60", "dst 198.18.0.42"]);
    let total = || {
        let shown = receiver.read("pgrx");
        number_after(&shown, "Packets Rx: ")
    };
    let receives = |n: u64| eventually("all are counted", || total() == n);

    for order in ["rx", "rx nosuch", "rx b0"] {
        receiver.set("pgrx", order);
        sender.start();
        receives(100);
    }
    let basic = receiver.read("pgrx");
    assert!(
        basic.contains("\tWork time ") && basic.contains("\tRate:  "),
        "{basic}"
    );
    assert!(!basic.contains("Inter-arrival"), "{basic}");
    receiver.set("pgrx", "rx x0");
    sender.start();
    assert_eq!(total(), 0, "those of another interface do not count");
    receiver.set("pgrx", "rx b0");

    receiver.set("pgrx", "statistics counter");
    sender.start();
    receives(100);
    assert!(
        !receiver.read("pgrx").contains("Rate"),
        "a counter reads no clock"
    );
    receiver.set("pgrx", "rx_reset");
    assert_eq!(total(), 0);
    receiver.set("pgrx", "statistics time");
    for known in ["basic6", "nonsense", ""] {
        receiver.set("pgrx", &format!("statistics {known}"));
        receiver.set("pgrx", &format!("display {known}"));
    }
    receiver.set("pgrx", "statistics time");
    receiver.set("pgrx", "strange words");
    sender.start();
    receives(100);
    let human = receiver.read("pgrx");
    assert!(human.contains("\tInter-arrival\n\t\tAverage: "), "{human}");
    assert!(
        !human.contains("Latency"),
        "of a sender elsewhere nothing is known: {human}"
    );
    receiver.set("pgrx", "display script");
    let script = receiver.read("pgrx");
    let sum = script.lines().last().expect("a sum");
    assert!(
        sum.starts_with("G 100 6000 ") && sum.ends_with(' '),
        "{script}"
    );
    receiver.set("pgrx", "rx_disable");
    let before = counted(&b, "b0", "rx");
    sender.start();
    assert_eq!(counted(&b, "b0", "rx") - before, 100);
    assert_eq!(receiver.read("pgrx"), "Not enabled.\n");
    receiver.set("pgrx", "rx b0");
    assert!(
        receiver
            .read("pgrx")
            .starts_with("\t\tRECEPTION STATISTICS\n"),
        "human again"
    );
    assert_eq!(receiver.write("pgrx", b"").unwrap_or(0), 0);
}

#[test]
fn an_interface_is_watched_without_a_folder() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let sender = Folder::mount(&lab.node("a"), &[]);
    sender.device(
        "a0",
        &[
            "count 300",
            "pkt_size 60",
            "dst 198.18.0.42",
            "delay 100000",
        ],
    );
    let watch = crate::kit::Running::start(&["pktgen", "watch", "-q", "-i", &lab.b0(), "--script"]);
    // The start of its listening is not reported; so packets are sent until it has received some.
    std::thread::sleep(std::time::Duration::from_millis(500));
    sender.start();
    watch.signal(rustix::process::Signal::INT);
    let output = watch.finish(super::PATIENCE);
    let rows = text(&output.stdout);
    let sum = rows.lines().last().unwrap_or_default();
    assert!(
        sum.starts_with("G 300 18000 "),
        "{rows}{}",
        text(&output.stderr)
    );
}
