//! The receiving side of captures: rings, their exact sizes and losses, filters in the XDP program, and
//! the options of ports.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use wb_pcapng::{CaptureReader, Event};
use wb_wire::Tag;

use crate::kit::{self, Lab, Running, listening, privileged, run, system, total};

const PATIENCE: Duration = Duration::from_secs(30);
/// The block timer of a ring expires at an arbitrary time, and may close a block within a burst.
const ATTEMPTS: usize = 6;

struct Listening {
    running: Running,
    out: PathBuf,
    said: PathBuf,
}

impl Listening {
    fn start(dir: &TempDir, arguments: &[&str]) -> Self {
        let mut command = kit::capture(arguments);
        command.args(["-q", "--json"]);
        Self {
            running: listening(dir.path(), &mut command),
            out: dir.path().join("report.json"),
            said: dir.path().join("said"),
        }
    }

    /// Ends it by Ctrl-C: its exit code and its account, which adds up.
    fn interrupt(self) -> (i32, Kept) {
        self.running.signal(Signal::INT);
        let status = self.running.finish(PATIENCE).status;
        let said = fs::read_to_string(&self.said).unwrap();
        let text = fs::read_to_string(&self.out).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {said}"));
        (status.code().unwrap_or(-1), Kept::of(&report, said))
    }
}

/// F, W, K and what the kernel counted.
#[derive(Debug)]
struct Kept {
    passed: u64,
    captured: u64,
    dropped: u64,
    freezes: u64,
    kernel: Value,
    readers: usize,
    report: Value,
    said: String,
}

impl Kept {
    fn of(report: &Value, said: String) -> Self {
        let c = &report["capture"];
        let of = |key: &str| c[key].as_u64().unwrap_or_else(|| panic!("no {key} in {c}"));
        let known: u64 = [
            "captured_frames",
            "kernel_drop_frames",
            "not_written_frames",
            "queue_drop_frames",
            "over_limit_frames",
            "not_read_frames",
        ]
        .into_iter()
        .map(of)
        .sum();
        assert_eq!(of("filter_accept_frames"), known, "{c}");
        assert_eq!(
            (&c["exact"], of("not_read_frames")),
            (&Value::Bool(true), 0),
            "{c}"
        );
        Self {
            passed: of("filter_accept_frames"),
            captured: of("captured_frames"),
            dropped: of("kernel_drop_frames"),
            freezes: of("ring_freezes"),
            kernel: c["readers"][0]["kernel_counters"].clone(),
            readers: c["readers"].as_array().unwrap().len(),
            report: report.clone(),
            said,
        }
    }

    fn counter(&self, name: &str) -> u64 {
        self.kernel[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {}", self.kernel))
    }
}

/// Sends exactly `frames` frames from a to b.
fn send(lab: &Lab, frames: u64, options: &[&str]) {
    let count = frames.to_string();
    let a = lab.a0();
    let mut arguments = vec!["tx", "-i", &a, "--count", &count, "-q", "--json"];
    arguments.extend(["--catch-up", "10s"]);
    arguments.extend(options);
    let output = run(&arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(total(&report, "offered"), frames);
}

/// The numbers of the test frames in a file.
fn numbers(path: &Path) -> Vec<u32> {
    let file = fs::read(path).unwrap();
    let mut reader = CaptureReader::new(&file[..]).unwrap();
    let mut numbers = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        if let Event::Record(record) = item.event {
            numbers.push(Tag::read(&record.captured[42..]).unwrap().sequence);
        }
    }
    numbers
}

/// The file has the oldest frames, each once and in order.
fn assert_oldest(path: &Path, count: u64) {
    let numbers = numbers(path);
    assert_eq!(numbers.len() as u64, count);
    assert!((0..).eq_by_number(&numbers), "not the first {count}");
}

trait EqByNumber {
    fn eq_by_number(self, numbers: &[u32]) -> bool;
}

impl<I: Iterator<Item = u32>> EqByNumber for I {
    fn eq_by_number(self, numbers: &[u32]) -> bool {
        self.zip(numbers).all(|(wanted, found)| wanted == *found)
    }
}

/// A capture that stands still while `frames` frames arrive.
fn stalled(lab: &Lab, dir: &TempDir, options: &[&str], frames: u64, sending: &[&str]) -> Kept {
    let (b, file) = (lab.b0(), dir.path().join("trace.pcapng"));
    let mut arguments = vec!["-i", &b, "-w", file.to_str().unwrap()];
    arguments.extend(options);
    arguments.extend(["udp", "port", "7"]);
    let capture = Listening::start(dir, &arguments);
    capture.running.signal(Signal::STOP);
    send(lab, frames, sending);
    capture.running.signal(Signal::CONT);
    let (code, kept) = capture.interrupt();
    let expected = if kept.dropped > 0 { 3 } else { 0 };
    assert_eq!(code, expected, "{kept:?}");
    assert_eq!(kept.passed, frames, "{kept:?}");
    assert_oldest(&file, kept.captured);
    kept
}

#[test]
fn a_stalled_ring_holds_what_its_shape_says() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    // A frame of 64 bytes takes 152 of a block, one of 1514 takes 1600; 48 are the block's own. Sizes
    // are with FCS.
    let cases = [
        ("2MiB", "256KiB", "68", 20_000, 13_792),
        ("2MiB", "128KiB", "68", 20_000, 13_776),
        ("2MiB", "65536", "68", 20_000, 13_760),
        ("2MiB", "1MiB", "68", 20_000, 13_796),
        ("2MiB", "256KiB", "1518", 5_000, 1_304),
    ];
    for (ring, block, size, frames, held) in cases {
        let options = [
            "--ring",
            ring,
            "--block-size",
            block,
            "--block-timeout",
            "1000ms",
        ];
        let sending = ["--rate", "200kpps", "--size", size];
        let mut attempts = Vec::new();
        while attempts.last() != Some(&held) {
            assert!(
                attempts.len() < ATTEMPTS,
                "{block} {size}: {held} expected, {attempts:?}"
            );
            let kept = stalled(&lab, &dir, &options, frames, &sending);
            assert!(kept.captured <= held, "{kept:?}");
            assert_eq!(kept.captured + kept.dropped, frames, "{kept:?}");
            assert_eq!(kept.counter("tp_packets"), frames, "{kept:?}");
            assert_eq!(kept.counter("tp_drops"), kept.dropped, "{kept:?}");
            if kept.captured == held {
                assert_eq!(kept.freezes, 1, "{kept:?}");
                assert_eq!(kept.report["capture"]["ring_bytes"], 2 << 20);
            }
            attempts.push(kept.captured);
        }
    }
}

#[test]
fn stalled_rings_of_xdp_hold_what_they_have_slots_for() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    // Receive ring, fill ring; the kernel's counters.
    let cases = [
        (
            "1024",
            "4096",
            [
                ("rx_ring_full", 18_976),
                ("rx_dropped", 0),
                ("rx_fill_ring_empty_descs", 0),
            ],
        ),
        (
            "4096",
            "1024",
            [
                ("rx_ring_full", 0),
                ("rx_dropped", 18_976),
                ("rx_fill_ring_empty_descs", 18_976),
            ],
        ),
    ];
    for (ring, fill, counters) in cases {
        let options = ["--xdp", "--xdp-ring", ring, "--xdp-fill", fill];
        let kept = stalled(
            &lab,
            &dir,
            &options,
            20_000,
            &["--rate", "200kpps", "--size", "68"],
        );
        assert_eq!((kept.captured, kept.dropped), (1_024, 18_976), "{kept:?}");
        for (name, value) in counters {
            assert_eq!(kept.counter(name), value, "{name}: {kept:?}");
        }
        assert_eq!(kept.counter("xdp_matched"), 20_000, "{kept:?}");
    }
}

#[test]
fn memory_goes_round_in_a_fill_ring_without_a_slot_to_spare() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let (b, file) = (lab.b0(), dir.path().join("trace.pcapng"));
    let capture = Listening::start(
        &dir,
        &[
            "-i",
            &b,
            "--xdp",
            "--xdp-ring",
            "4096",
            "--xdp-fill",
            "1024",
            "-w",
            file.to_str().unwrap(),
            "udp",
            "port",
            "7",
        ],
    );
    // Each round is less than all memory, and together they are many times as much.
    for _ in 0..8 {
        send(&lab, 1_000, &["--rate", "20kpps"]);
    }
    let (code, kept) = capture.interrupt();
    assert_eq!((code, kept.captured), (0, 8_000), "{kept:?}");
}

#[test]
fn frames_longer_than_their_memory_are_dropped_and_counted() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    for (node, interface) in [("a", "a0"), ("b", "b0")] {
        let words = [
            "-n",
            &lab.node(node),
            "link",
            "set",
            interface,
            "mtu",
            "2000",
        ];
        assert!(system("ip", &words).status.success());
    }
    let options = ["--xdp", "--xdp-chunk", "2048"];
    // 1800 bytes in memory; 1792 fit.
    let kept = stalled(
        &lab,
        &dir,
        &options,
        1_000,
        &["--rate", "20kpps", "--size", "1804"],
    );
    assert_eq!((kept.captured, kept.dropped), (0, 1_000), "{kept:?}");
    assert_eq!(kept.counter("rx_dropped"), 1_000, "{kept:?}");
    assert_eq!(kept.counter("rx_ring_full"), 0, "{kept:?}");
    assert!(
        kept.said.contains("longer than 1792 bytes are dropped"),
        "{}",
        kept.said
    );
    let kept = stalled(
        &lab,
        &dir,
        &options,
        1_000,
        &["--rate", "20kpps", "--size", "1796"],
    );
    assert_eq!((kept.captured, kept.dropped), (1_000, 0), "{kept:?}");
    // By default it takes enough memory.
    let kept = stalled(
        &lab,
        &dir,
        &["--xdp"],
        1_000,
        &["--rate", "20kpps", "--size", "1804"],
    );
    assert_eq!((kept.captured, kept.dropped), (1_000, 0), "{kept:?}");
}

#[test]
fn the_filter_of_xdp_leaves_the_rest_to_the_host() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let b = lab.b0();
    let capture = Listening::start(&dir, &["-i", &b, "--xdp", "udp", "dst", "port", "9"]);
    // A tap of the host sees the frames that arrive through the XDP program.
    let rest = TempDir::new().unwrap();
    let beside = Listening::start(&rest, &["-i", &b, "udp"]);
    for (port, frames) in [("9", 700), ("7", 1_000)] {
        send(&lab, frames, &["--rate", "20kpps", "--dport", port]);
    }
    let (code, host) = beside.interrupt();
    assert_eq!((code, host.captured), (0, 1_000), "{host:?}");
    let (code, kept) = capture.interrupt();
    assert_eq!(
        (code, kept.passed, kept.captured),
        (0, 700, 700),
        "{kept:?}"
    );
    assert_eq!(kept.counter("xdp_matched"), 700, "{kept:?}");
    assert!(!kept.said.contains("runs in user space"), "{}", kept.said);
}

#[test]
fn queues_that_are_not_named_stay_with_the_host() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "2"]);
    let dir = TempDir::new().unwrap();
    let b = lab.b0();
    let frames = 6_400;
    let flows = ["--rate", "20kpps", "--flows", "64"];
    let expression = ["udp", "port", "7"];
    let start = |dir: &TempDir, options: &[&str]| {
        Listening::start(dir, &[&["-i", &b][..], options, &expression].concat())
    };
    let all = start(&dir, &["--xdp"]);
    send(&lab, frames, &flows);
    let (_, all) = all.interrupt();
    assert_eq!((all.readers, all.captured), (2, frames), "{all:?}");
    let one = start(&dir, &["--xdp", "--queues", "1"]);
    let rest = TempDir::new().unwrap();
    let beside = start(&rest, &[]);
    send(&lab, frames, &flows);
    let (_, beside) = beside.interrupt();
    let (_, one) = one.interrupt();
    assert_eq!(one.readers, 1);
    assert_eq!(one.captured + beside.captured, frames, "{one:?} {beside:?}");
    for (options, why) in [
        (&["--xdp", "--queues", "5"][..], "queue 5"),
        (&["--queues", "1"], "need the xdp driver"),
        (&["--xdp", "--xdp-ring", "1000"], "power of two"),
        (
            &["--ring", "64KiB", "--block-size", "64KiB"],
            "at most half",
        ),
    ] {
        let output = run(&[&["capture", "-i", &b][..], options].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(why) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn any_is_every_interface_that_is_up() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--links", "2"]);
    let dir = TempDir::new().unwrap();
    let node = lab.node("b");
    let words = [
        "link", "add", "idle0", "type", "veth", "peer", "name", "idle1",
    ];
    let idle = system("ip", &[&["-n", &node][..], &words].concat());
    assert!(idle.status.success());
    let (any, file) = (format!("{node}/any"), dir.path().join("trace.pcapng"));
    let capture = Listening::start(
        &dir,
        &["-i", &any, "-w", file.to_str().unwrap(), "udp", "port", "7"],
    );
    send(&lab, 500, &["--rate", "20kpps"]);
    let (code, kept) = capture.interrupt();
    assert_eq!((code, kept.captured), (0, 500), "{kept:?}");
    assert!(
        kept.said.contains("skipping idle0: it is down"),
        "{}",
        kept.said
    );
    let bytes = fs::read(&file).unwrap();
    let mut reader = CaptureReader::new(&bytes[..]).unwrap();
    while reader.next_item().unwrap().is_some() {}
    let names: Vec<_> = reader
        .interfaces()
        .iter()
        .filter_map(|i| i.name.clone())
        .collect();
    for name in ["b0", "b1"] {
        assert!(names.iter().any(|n| n == name), "{names:?}");
    }
    assert!(!names.iter().any(|n| n == "idle0"), "{names:?}");
}

#[test]
fn files_belong_to_the_user_it_becomes() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    // Root's folder too: tcpdump opens the file there before it gives up the right to.
    for (back_end, mode) in [(&[][..], 0o777), (&[], 0o755), (&["--xdp"], 0o755)] {
        let dir = TempDir::new().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        let (b, file) = (lab.b0(), dir.path().join("trace.pcapng"));
        let mut options = vec!["-i", &b, "-Z", "nobody", "-w", file.to_str().unwrap()];
        options.extend(back_end);
        options.extend(["udp", "port", "7"]);
        let capture = Listening::start(&dir, &options);
        let pid = capture.running.0.id();
        send(&lab, 500, &["--rate", "20kpps"]);
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let status: String = threads
            .map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap())
            .collect();
        let (code, kept) = capture.interrupt();
        assert_eq!((code, kept.captured), (0, 500), "{kept:?}");
        // Real, effective, saved and file system user; and what is left of root's privileges.
        for line in status.lines().filter(|l| l.starts_with("Uid:")) {
            assert!(
                line.split_whitespace().skip(1).all(|uid| uid != "0"),
                "{line}"
            );
        }
        const CAP_BPF: u64 = 1 << 39;
        for line in status.lines().filter(|l| l.starts_with("CapPrm:")) {
            let left = line.split_whitespace().nth(1).unwrap();
            let left = u64::from_str_radix(left, 16).unwrap();
            let may = if back_end.is_empty() { 0 } else { CAP_BPF };
            assert_eq!(left & !may, 0, "{back_end:?}: {line}");
        }
        assert_ne!(fs::metadata(&file).unwrap().uid(), 0);
    }
    let output = run(&["capture", "-i", &lab.b0(), "-Z", "wb-nobody-has-this-name"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("no such user"), "{error}");
}

#[test]
fn offloads_are_off_while_it_runs() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let node = wb_machine::Namespace::named(&lab.node("b")).unwrap();
    let state = || {
        let ethtool = wb_machine::Ethtool::open(&node).unwrap();
        let of = |offload| ethtool.offload("b0", offload).unwrap();
        use wb_machine::ethtool::Offload::{Gro, Gso, Tso};
        [of(Gro), of(Gso), of(Tso)]
    };
    wb_machine::Ethtool::open(&node)
        .unwrap()
        .set_offload("b0", wb_machine::ethtool::Offload::Gro, true)
        .unwrap();
    let before = state();
    let capture = Listening::start(&dir, &["-i", &lab.b0(), "--offloads", "off"]);
    assert_eq!(state(), [Some(false); 3]);
    let _ = capture.interrupt();
    assert_eq!(state(), before);
    assert_eq!(before[0], Some(true));
}

#[test]
fn readers_may_spin_or_take_turns_or_come_first() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let b = lab.b0();
    for options in [
        &["--busy"][..],
        &["--rt"],
        &["--xdp", "--busy"],
        &["--immediate-mode", "-l", "-y", "EN10MB", "--nano"],
    ] {
        let file = dir.path().join("trace.pcapng");
        let words = [
            &["-i", &b, "-w", file.to_str().unwrap()][..],
            options,
            &["udp", "port", "7"],
        ]
        .concat();
        let capture = Listening::start(&dir, &words);
        send(&lab, 2_000, &["--rate", "20kpps"]);
        let (code, kept) = capture.interrupt();
        assert_eq!((code, kept.captured), (0, 2_000), "{options:?}: {kept:?}");
        assert_oldest(&file, 2_000);
    }
    let capture = Listening::start(
        &dir,
        &[
            "-i",
            &b,
            "--threads",
            "2",
            "--single-flow",
            "udp",
            "port",
            "7",
        ],
    );
    send(&lab, 2_000, &["--rate", "20kpps"]);
    let (_, kept) = capture.interrupt();
    let each = &kept.report["capture"]["readers"];
    assert_eq!(each[0]["read_frames"], 1_000, "{each}");
    assert_eq!(each[1]["read_frames"], 1_000, "{each}");
}

#[test]
fn the_words_of_others_are_taken_or_refused_in_one_line() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let b = lab.b0();
    let said = |options: &[&str]| {
        let output = run(&[&["capture", "-i", &b][..], options].concat());
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, out, _) = said(&["-L"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("EN10MB (Ethernet)"), "{out}");
    let (code, out, _) = said(&["-J"]);
    assert_eq!(code, Some(0));
    assert!(
        out.contains("  host (Host)\n") && !out.contains("adapter"),
        "{out}"
    );
    for (options, why) in [
        (&["-j", "adapter"][..], "does not timestamp received frames"),
        (&["-j", "adapter_unsynced", "--xdp"], "host timestamps only"),
        (&["-I"], "-I of tcpdump"),
        (&["-nE", "x"], "-E of tcpdump"),
        (&["-M", "x"], "-M of tcpdump"),
        (&["-T", "vat"], "-T of tcpdump"),
        (&["-u"], "-u of tcpdump"),
        (
            &["--print", "--json"],
            "exclude each other: both use standard output",
        ),
        (&["-G", "5"], "-w <FILE>"),
        (&["-b", "files:3"], "-a files need -w"),
    ] {
        let (code, _, error) = said(options);
        assert_eq!(code, Some(2), "{options:?}: {error}");
        assert!(error.contains(why), "{options:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{options:?}: {error}");
    }
    for (options, why) in [
        (&["-y", "LINUX_SLL"][..], "EN10MB"),
        (&["-a", "files:2"], "-a files need -w"),
        (
            &["-a", "files:2", "-w", "x.pcap"],
            "needs rotate_bytes, rotate_time or rotate_frames",
        ),
        (&["-b", "interval:2"], "-a files need -w"),
        (&["-b", "nametimenum:2"], "duration:N"),
        (&["--offloads", "on"], "off"),
    ] {
        let (code, _, error) = said(options);
        assert_eq!(code, Some(2), "{options:?}: {error}");
        assert!(error.contains(why), "{options:?}: {error}");
    }
    let plan = said(&[
        "-a",
        "duration:5",
        "-a",
        "packets:7",
        "-a",
        "filesize:3",
        "-b",
        "filesize:2",
        "-b",
        "files:4",
        "-w",
        "x.pcapng",
        "--print-plan",
    ]);
    for line in [
        "duration = \"5s\"",
        "count = 7",
        "stop_octets = 3000",
        "rotate_bytes = 2000",
        "files = 4",
    ] {
        assert!(plan.1.contains(line), "{line}: {plan:?}");
    }
}

#[test]
fn a_size_ends_the_capture() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let (b, file) = (lab.b0(), dir.path().join("trace.pcap"));
    let capture = Listening::start(
        &dir,
        &[
            "-i",
            &b,
            "-U",
            "-a",
            "filesize:100",
            "-w",
            file.to_str().unwrap(),
            "udp",
            "port",
            "7",
        ],
    );
    send(&lab, 2_000, &["--rate", "20kpps"]);
    let status = capture.running.finish(PATIENCE).status;
    assert_eq!(status.code(), Some(0));
    assert!(fs::metadata(&file).unwrap().len() >= 100_000);
}
