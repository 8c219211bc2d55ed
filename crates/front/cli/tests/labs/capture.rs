//! Captures of real frames: every sent frame is in a file, or is counted at the place of its loss.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read as _,
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use wb_pcapng::{CaptureDecoder, CaptureReader, Event};
use wb_wire::Tag;

use crate::kit::{
    self, Lab, Running, eventually, listening, privileged, run, system, total, wirebench,
};
use crate::load_interop::installed;

const PATIENCE: Duration = Duration::from_secs(30);
const FILTER: &str = "udp port 7";

/// A capture of test frames that listens.
struct Capture {
    running: Running,
    out: PathBuf,
    said: PathBuf,
}

impl Capture {
    fn start(dir: &TempDir, options: &[&str]) -> Self {
        let mut command = kit::capture(options);
        command.args(["-q", FILTER]);
        Self::of(dir, command)
    }

    /// A capture by this command; it listens.
    fn of(dir: &TempDir, mut command: Command) -> Self {
        Self {
            running: listening(dir.path(), &mut command),
            out: dir.path().join("report.json"),
            said: dir.path().join("said"),
        }
    }

    fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Waits until it reports, prompted by a signal, that 1,000 frames are written.
    fn wait_for_a_thousand(&self) {
        let line =
            "1000 packets captured, 1000 packets received by filter, 0 packets dropped by kernel";
        eventually("the counts are told", || {
            self.signal(Signal::USR1);
            std::thread::sleep(Duration::from_millis(50));
            self.said().contains(line)
        });
    }

    /// Waits until it reports, prompted by a signal, that it has written some frames.
    fn wait_for_frames(&self) {
        eventually("frames are written", || {
            self.signal(Signal::USR1);
            std::thread::sleep(Duration::from_millis(20));
            let said = self.said();
            let mut counts = said.lines().filter(|l| l.contains(" captured, "));
            counts.any(|l| !l.contains(": 0 packets captured"))
        });
    }

    /// Waits for the end: exit code, standard output, standard error.
    fn end(self) -> (i32, String, String) {
        let status = self.running.finish(PATIENCE).status;
        (
            status.code().unwrap_or(-1),
            fs::read_to_string(self.out).unwrap(),
            fs::read_to_string(self.said).unwrap(),
        )
    }

    /// Ends it by Ctrl-C, with its account.
    fn interrupt(self) -> Account {
        self.signal(Signal::INT);
        self.account()
    }

    /// Waits for the end of a capture with `--json`; its account, which adds up.
    fn account(self) -> Account {
        let (code, out, said) = self.end();
        let report: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {said}"));
        let c = &report["capture"];
        let of = |key: &str| c[key].as_u64().unwrap_or_else(|| panic!("no {key} in {c}"));
        let account = Account {
            code,
            passed: of("filter_accept_frames"),
            captured: of("captured_frames"),
            dropped: of("kernel_drop_frames"),
            not_written: of("not_written_frames"),
            over_limit: of("over_limit_frames"),
            not_read: of("not_read_frames"),
            files: of("files"),
            said,
        };
        let known = account.captured
            + account.dropped
            + account.not_written
            + account.over_limit
            + account.not_read
            + of("queue_drop_frames");
        assert_eq!(account.passed, known, "{c}");
        assert_eq!(c["exact"], true, "{c}");
        account
    }
}

#[derive(Debug)]
struct Account {
    code: i32,
    passed: u64,
    captured: u64,
    dropped: u64,
    not_written: u64,
    over_limit: u64,
    not_read: u64,
    files: u64,
    said: String,
}

impl Account {
    /// All frames are in files.
    fn assert_whole(&self, sent: u64) {
        assert_eq!((self.passed, self.captured), (sent, sent), "{self:?}");
        assert_eq!(self.code, 0, "{self:?}");
    }
}

/// Sends exactly `frames` frames from a to b.
fn send(lab: &Lab, frames: u64, options: &[&str]) {
    send_by(&lab.a0(), frames, options);
}

fn send_by(port: &str, frames: u64, options: &[&str]) {
    let count = frames.to_string();
    let mut arguments = vec!["tx", "-i", port, "--count", &count, "-q", "--json"];
    arguments.extend(["--catch-up", "10s"]);
    if !options.contains(&"--rate") {
        arguments.extend(["--rate", "50kpps"]);
    }
    arguments.extend(options);
    let output = run(&arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(total(&report, "offered"), frames);
}

/// Properties of a frame in a file.
struct Kept {
    interface: u32,
    bytes: Vec<u8>,
    len: u32,
    stamp_ns: u64,
}

impl Kept {
    /// Its number, if it is a test frame of IPv4 without a VLAN tag.
    fn sequence(&self) -> Option<u32> {
        Some(Tag::read(self.bytes.get(42..)?)?.sequence)
    }
}

fn frames_of(file: &[u8]) -> Vec<Kept> {
    let mut reader = CaptureReader::new(file).unwrap();
    let mut frames = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        if let Event::Record(record) = item.event {
            frames.push(Kept {
                interface: record.interface,
                bytes: record.captured.to_vec(),
                len: record.original_len,
                stamp_ns: record.stamp_ns,
            });
        }
    }
    frames
}

fn frames_in(path: &Path) -> Vec<Kept> {
    frames_of(&fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// The frames are numbers 0 to `count` - 1, each once, in order of their stamps.
fn assert_first(frames: &[Kept], count: u64) {
    assert_eq!(frames.len() as u64, count);
    for (number, frame) in (0..).zip(frames) {
        assert_eq!(frame.sequence(), Some(number));
    }
    assert!(frames.is_sorted_by_key(|f| f.stamp_ns));
}

/// Checks that other programs read the file without a complaint, and find `count` frames.
fn assert_others_read(path: &Path, count: u64) {
    let path = path.to_str().unwrap();
    let lines = |text: &[u8]| String::from_utf8_lossy(text).lines().count() as u64;
    let shark = system("tshark", &["-r", path, "-T", "fields", "-e", "frame.len"]);
    let complaints: Vec<String> = String::from_utf8_lossy(&shark.stderr)
        .lines()
        .filter(|l| !l.starts_with("Running as user"))
        .map(str::to_owned)
        .collect();
    assert!(
        shark.status.success() && complaints.is_empty(),
        "{complaints:?}"
    );
    assert_eq!(lines(&shark.stdout), count);
    let dump = system("tcpdump", &["-n", "-t", "-r", path]);
    let said = String::from_utf8_lossy(&dump.stderr);
    assert!(dump.status.success(), "{said}");
    assert!(
        said.lines()
            .all(|l| l.starts_with("reading from") || l.starts_with("Warning: interface names")),
        "{said}"
    );
    assert_eq!(lines(&dump.stdout), count);
}

/// Unpacks a sequence of LZ4 frames.
fn from_lz4(mut packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while !packed.is_empty() {
        lz4_flex::frame::FrameDecoder::new(&mut packed)
            .read_to_end(&mut plain)
            .unwrap();
    }
    plain
}

/// Files of a folder with names that begin with `prefix`, sorted by name.
fn files(dir: &TempDir, prefix: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| {
            p.file_name()
                .is_some_and(|n| n.to_str().unwrap().starts_with(prefix))
        })
        .collect();
    paths.sort();
    paths
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn every_frame_is_in_the_file_in_every_form() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    for form in ["pcapng", "pcap", "pcap-ns"] {
        for back_end in [&[][..], &["--xdp"]] {
            let file = path(&dir, "trace");
            let b = lab.b0();
            let mut options = vec!["-i", &b, "--json", "--format", form, "-w", &file];
            options.extend(back_end);
            let capture = Capture::start(&dir, &options);
            send(&lab, 5_000, &[]);
            let account = capture.interrupt();
            account.assert_whole(5_000);
            for line in [
                "5000 packets captured\n",
                "5000 packets received by filter\n",
                "0 packets dropped by kernel\n",
            ] {
                assert!(account.said.contains(line), "{}", account.said);
            }
            assert_first(&frames_in(Path::new(&file)), 5_000);
            assert_others_read(Path::new(&file), 5_000);
        }
    }
}

#[test]
fn what_a_stalled_reader_loses_is_counted_exactly() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let (b, file) = (lab.b0(), path(&dir, "trace.pcapng"));
    let ring = ["--ring", "2", "--block-timeout", "1s"];
    let cases: [(&[&str], &[u64]); 2] = [
        (&ring, &[1, 1_000, 13_000, 15_000, 20_000, 60_000]),
        (&["--xdp"], &[1, 1_000, 20_000, 100_000]),
    ];
    for (back_end, numbers) in cases {
        for &sent in numbers {
            let mut options = vec!["-i", &b, "--json", "-w", &file];
            options.extend(back_end);
            let capture = Capture::start(&dir, &options);
            capture.signal(Signal::STOP);
            send(&lab, sent, &["--rate", "200kpps", "--size", "68"]);
            capture.signal(Signal::CONT);
            let account = capture.interrupt();
            assert_eq!(
                account.captured + account.dropped + account.not_written,
                sent,
                "{back_end:?}: {account:?}"
            );
            assert_eq!((account.not_written, account.not_read), (0, 0));
            let code = if account.dropped > 0 { 3 } else { 0 };
            assert_eq!(account.code, code, "{account:?}");
            // A full ring drops the newest frames.
            assert_first(&frames_in(Path::new(&file)), account.captured);
            if sent <= 1_000 {
                assert_eq!(account.dropped, 0, "{account:?}");
            }
            if sent >= 60_000 {
                assert!(account.dropped > 0, "{account:?}");
            }
            if back_end == ring {
                // Two blocks of 1 MiB hold at most this number of frames of 64 bytes.
                assert!(account.captured <= 13_796, "{account:?}");
            }
        }
    }
}

#[test]
fn only_what_passes_the_filter_is_received() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    for back_end in ["packet", "xdp"] {
        let file = path(&dir, "trace.pcapng");
        let b = format!("{back_end}:{}", lab.b0());
        let mut command = kit::capture(&["-q", "-i", &b, "--json", "-w", &file]);

        command.arg("udp dst port 9 and greater 100");
        let capture = Capture::of(&dir, command);
        send(&lab, 1_000, &["--dport", "7", "--size", "128"]);
        send(&lab, 700, &["--dport", "9", "--size", "128"]);
        send(&lab, 300, &["--dport", "9", "--size", "64"]);
        let account = capture.interrupt();
        account.assert_whole(700);
        assert_first(&frames_in(Path::new(&file)), 700);
    }
}

#[test]
fn vlan_tags_are_where_they_were() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    for (vlan, filter) in [
        ("10", "vlan 10 and udp port 7"),
        ("10,20", "vlan 10 and vlan 20 and udp port 7"),
    ] {
        for back_end in ["packet", "xdp"] {
            let file = path(&dir, "trace.pcapng");
            let b = format!("{back_end}:{}", lab.b0());
            let command = kit::capture(&["-q", "-i", &b, "--json", "-w", &file, filter]);

            let capture = Capture::of(&dir, command);
            send(&lab, 200, &["--vlan", vlan, "--size", "128"]);
            send(&lab, 100, &["--vlan", "30", "--size", "128"]);
            capture.interrupt().assert_whole(200);
            for frame in frames_in(Path::new(&file)) {
                assert_eq!((frame.bytes.len(), frame.len), (124, 124));
                let outer: [u8; 2] = if vlan == "10" {
                    [0x81, 0x00]
                } else {
                    [0x88, 0xa8]
                };
                assert_eq!(frame.bytes[12..14], outer, "{vlan} {back_end}");
                assert_eq!(frame.bytes[14..16], [0, 10], "{vlan} {back_end}");
            }
        }
    }
}

#[test]
fn a_filter_sees_frames_without_their_outer_tag() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    // 100 frames without a tag, 200 of VLAN 10, 400 of VLAN 20 in 10; as tcpdump counts them.
    for (filter, chosen) in [
        ("udp port 7", 300),
        ("ip or (vlan and ip)", 300),
        ("vlan and udp port 7", 200),
        ("ether proto 0x88a8", 0),
        ("udp port 7 and not vlan", 100),
        ("vlan 10 and vlan 20 and udp port 7", 400),
    ] {
        for back_end in ["packet", "xdp"] {
            let b = format!("{back_end}:{}", lab.b0());
            // Excludes frames of the host.
            let filter = format!("ether[12:2] != 0x86dd and ({filter})");
            let command = kit::capture(&["-q", "-i", &b, "--json", "--count", &filter]);

            let capture = Capture::of(&dir, command);
            send(&lab, 100, &["--size", "128"]);
            send(&lab, 200, &["--size", "128", "--vlan", "10"]);
            send(&lab, 400, &["--size", "128", "--vlan", "10,20"]);
            let account = capture.interrupt();
            assert_eq!(account.passed, chosen, "{filter} {back_end}");
        }
    }
}

#[test]
fn an_xdp_program_in_front_is_named() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let b = format!("packet:{}", lab.b0());
    let capture = || {
        let command = kit::capture(&["-q", "-i", &b, "--count", "--json", FILTER]);

        Capture::of(&dir, command)
    };
    let is_named = |said: &str, receiver: &Running| {
        let process = format!("(process {}: ", receiver.0.id());
        said.lines().any(|line| {
            line.contains("XDP program ID ")
                && line.contains(&process)
                && line.contains(") is attached; frames that it consumes are not seen here")
        })
    };
    // The capture comes first: the warning is in its report.
    let early = capture();
    let receiver = Running::start(&["rx", "-i", &format!("xdp:{}", lab.b0()), "-q"]);
    let place = lab.b0();
    let (node, interface) = place.split_once('/').unwrap();
    eventually("the program is attached", || {
        let link = system("ip", &["-n", node, "link", "show", interface]);
        String::from_utf8_lossy(&link.stdout).contains("xdp")
    });
    early.signal(Signal::INT);
    let (_, said, _) = early.end();
    assert!(is_named(&said, &receiver), "{said}");
    let late = capture();
    late.signal(Signal::INT);
    let (_, said, _) = late.end();
    assert!(is_named(&said, &receiver), "{said}");
    let output = run(&["stat", "-i", &lab.b0(), "--plain", "0.1", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(is_named(&said, &receiver), "{said}");
    receiver.signal(Signal::INT);
    receiver.finish(PATIENCE);
    let free = capture();
    free.signal(Signal::INT);
    let (_, said, _) = free.end();
    assert!(!said.contains("XDP program"), "{said}");
}

#[test]
fn a_receiver_behind_the_xdp_program_of_others_names_it() {
    if !privileged() || !installed(&["clang"]) {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let (source, object) = (path(&dir, "pass.c"), path(&dir, "pass.o"));
    let text = "__attribute__((section(\"xdp\"), used)) int pass(void *context) { return 2; }\n\
                char _license[] __attribute__((section(\"license\"), used)) = \"GPL\";\n";
    fs::write(&source, text).unwrap();
    let compiled = system(
        "clang",
        &["-O2", "-target", "bpf", "-c", &source, "-o", &object],
    );
    assert!(compiled.status.success(), "{compiled:?}");
    let place = lab.b0();
    let (node, interface) = place.split_once('/').unwrap();
    let set = ["-n", node, "link", "set", interface, "xdp"];
    let program = ["object", &object, "section", "xdp"];
    let attached = system("ip", &[&set[..], &program].concat());
    if !attached.status.success() {
        return wb_skip::skipped("ip loads no XDP programs");
    }
    let port = format!("packet:{place}");
    let warnings = || {
        let output = run(&["rx", "-i", &port, "--duration", "100ms", "-q", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["warnings"].to_string()
    };
    let said = warnings();
    let rest = " is attached; frames that it consumes are not seen here";
    assert!(
        said.contains("XDP program ID ") && said.contains(rest),
        "{said}"
    );
    assert!(
        system("ip", &[&set[..], &["off"]].concat())
            .status
            .success()
    );
    let said = warnings();
    assert!(!said.contains("XDP program"), "{said}");
}

#[test]
fn a_count_is_kept_exactly() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    for back_end in [&[][..], &["--xdp"]] {
        let (b, file) = (lab.b0(), path(&dir, "trace.pcapng"));
        let mut options = vec!["-i", &b, "--json", "-w", &file, "-c", "100"];
        options.extend(back_end);
        let capture = Capture::start(&dir, &options);
        send(&lab, 500, &[]);
        let account = capture.account();
        assert_eq!((account.code, account.captured), (0, 100), "{account:?}");
        assert!(account.passed <= 500);
        assert_eq!(account.over_limit, account.passed - 100);
        assert_first(&frames_in(Path::new(&file)), 100);
    }
}

#[test]
fn files_by_size_are_those_of_tcpdump() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let b = lab.b0();
    // A record of 1530 bytes, 654 of them in a million.
    type Case<'a> = (&'a [&'a str], u64, &'a [(&'a str, u64)]);
    let cases: [Case<'_>; 3] = [
        (
            &["-C", "1"],
            2_000,
            &[
                ("out", 1_000_644),
                ("out1", 1_000_644),
                ("out2", 1_000_644),
                ("out3", 58_164),
            ],
        ),
        (
            &["-C", "1", "-W", "3"],
            4_000,
            &[("out0", 116_304), ("out1", 1_000_644), ("out2", 1_000_644)],
        ),
        (
            &["-C", "1", "-W", "12"],
            1_000,
            &[("out00", 1_000_644), ("out01", 24 + 346 * 1_530)],
        ),
    ];
    for (rotation, sent, wanted) in cases {
        let dir = TempDir::new().unwrap();
        let file = path(&dir, "out");
        let mut options = vec!["-i", &b, "--format", "pcap", "-w", &file];
        options.extend(rotation);
        let capture = Capture::start(&dir, &options);
        send(&lab, sent, &["--size", "1518"]);
        capture.signal(Signal::INT);
        let (code, _, said) = capture.end();
        assert_eq!(code, 0, "{said}");
        let found: Vec<(String, u64)> = files(&dir, "out")
            .iter()
            .filter(|p| !p.ends_with("out.json"))
            .map(|p| {
                let name = p.file_name().unwrap().to_str().unwrap().to_owned();
                (name, p.metadata().unwrap().len())
            })
            .collect();
        let wanted: Vec<(String, u64)> =
            wanted.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect();
        assert_eq!(found, wanted, "{rotation:?}");
        for (name, size) in wanted {
            assert_others_read(&dir.path().join(name), (size - 24) / 1_530);
        }
    }
}

#[test]
fn no_frame_is_lost_between_two_files() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let b = lab.b0();
    let ways: [&[&str]; 3] = [
        &["--rotate-packets", "777"],
        &["-C", "1", "--compress", "lz4"],
        &[],
    ];
    for way in ways {
        let dir = TempDir::new().unwrap();
        let file = path(&dir, "trace");
        let mut options = vec!["-i", &b, "--json", "-w", &file];
        options.extend(way);
        let capture = Capture::start(&dir, &options);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(&lab, 30_000, &["--rate", "20kpps"]));
            while way.is_empty() && !sender.is_finished() {
                std::thread::sleep(Duration::from_millis(200));
                capture.signal(Signal::HUP);
            }
            sender.join().unwrap();
        });
        let account = capture.interrupt();
        account.assert_whole(30_000);
        let paths = files(&dir, "trace");
        assert!(paths.len() > 2, "{way:?}: {paths:?}");
        assert_eq!(paths.len() as u64, account.files, "{way:?}");
        let mut seen = BTreeSet::new();
        for (number, path) in paths.iter().enumerate() {
            let bytes = fs::read(path).unwrap();
            let bytes = if way.contains(&"lz4") {
                from_lz4(&bytes)
            } else {
                // They take a second for each.
                if number % 10 == 1 {
                    assert_others_read(path, frames_of(&bytes).len() as u64);
                }
                bytes
            };
            for frame in frames_of(&bytes) {
                assert!(seen.insert(frame.sequence().unwrap()), "twice");
            }
        }
        assert_eq!(seen.len(), 30_000, "{way:?}");
        assert_eq!(seen.last(), Some(&29_999));
    }
}

#[test]
fn counts_are_told_when_a_signal_asks() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let (b, file) = (lab.b0(), path(&dir, "trace.pcapng"));
    let capture = Capture::start(&dir, &["-i", &b, "--json", "-U", "-w", &file]);
    send(&lab, 1_000, &[]);
    capture.wait_for_a_thousand();
    capture.interrupt().assert_whole(1_000);
}

#[test]
fn a_full_disk_ends_the_capture_with_its_totals() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for form in ["pcap", "pcapng"] {
        let dir = TempDir::new().unwrap();
        let small = path(&dir, "small");
        let kept = path(&dir, "kept");
        fs::create_dir(&small).unwrap();
        // The mount is private and disappears with the last process in the namespace.
        let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" || exit 9
            \"$2\" capture -q --json --duration 20s -i \"$3\" --format \"$4\" -w \"$1/trace\" udp port 7
            code=$?; cp \"$1/trace\" \"$5\"; exit $code";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh", &small]);
        command.args([env!("CARGO_BIN_EXE_wirebench"), &lab.b0(), form, &kept]);
        let capture = Capture::of(&dir, command);
        send(&lab, 2_000, &["--size", "1518"]);
        let account = capture.account();
        assert_eq!(account.code, 4, "{account:?}");
        assert!(account.not_written > 0, "{account:?}");
        assert!(account.said.contains("No space left"), "{account:?}");
        assert_first(&frames_in(Path::new(&kept)), account.captured);
        assert!(account.captured > 600, "{account:?}");
        assert_others_read(Path::new(&kept), account.captured);
    }
}

/// A capture with `-w -` into a pipe; it listens.
fn capture_into_pipe(lab: &Lab, said: &Path) -> (Running, std::process::ChildStdout) {
    let mut child = kit::capture(&["-q", "-U", "-i", &lab.b0(), "-w", "-", FILTER])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(said).unwrap())
        .spawn()
        .unwrap();
    let pipe = child.stdout.take().unwrap();
    let running = Running(child);
    eventually("the capture listens", || {
        fs::read_to_string(said).unwrap().contains("listening on ")
    });
    (running, pipe)
}

#[test]
fn a_closed_pipe_ends_the_capture() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let said = dir.path().join("said");
    let (running, mut pipe) = capture_into_pipe(&lab, &said);
    send(&lab, 1_000, &[]);
    let mut head = [0; 1_000];
    pipe.read_exact(&mut head).unwrap();
    assert_eq!(head[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    drop(pipe);
    send(&lab, 5_000, &[]);
    let status = running.finish(PATIENCE).status;
    let said = fs::read_to_string(&said).unwrap();
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let count = |of: &str| {
        let line = said.lines().find(|l| l.ends_with(of)).unwrap();
        line.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let written = count(" packets captured");
    let (passed, dropped) = (
        count(" packets received by filter"),
        count(" packets dropped by kernel"),
    );
    assert!(passed > written, "{said}");
    let lost = passed - dropped - written;
    assert!(
        said.contains(&format!(", write errors {lost}, not read 0,")),
        "{said}"
    );
}

#[test]
fn a_whole_stream_goes_through_a_pipe() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let said = dir.path().join("said");
    let (running, mut pipe) = capture_into_pipe(&lab, &said);
    // Far more than a pipe holds: the capture has to wait for its reader.
    send(&lab, 3_000, &["--size", "1518"]);
    std::thread::sleep(Duration::from_millis(500));
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        pipe.read_to_end(&mut all).map(|_| all)
    });
    running.signal(Signal::INT);
    let status = running.finish(PATIENCE).status;
    assert_eq!(status.code(), Some(0));
    let all = reader.join().unwrap().unwrap();
    assert_first(&frames_of(&all), 3_000);
}

#[test]
fn an_interface_that_goes_away_ends_the_capture_with_its_totals() {
    if !privileged() {
        return;
    }
    for back_end in [&[][..], &["--xdp"]] {
        let lab = Lab::up("pair", &[]);
        let dir = TempDir::new().unwrap();
        let (b, file) = (lab.b0(), path(&dir, "trace.pcapng"));
        let mut options = vec!["-i", &b, "--json", "-U", "-w", &file];
        options.extend(back_end);
        let capture = Capture::start(&dir, &options);
        send(&lab, 1_000, &[]);
        if !back_end.is_empty() {
            // The rings of XDP go with the interface.
            capture.wait_for_a_thousand();
        }
        let gone = system("ip", &["-n", &lab.node("b"), "link", "del", "b0"]);
        assert!(gone.status.success());
        let account = capture.account();
        assert_eq!(account.code, 4, "{back_end:?}: {account:?}");
        assert_eq!(account.captured, 1_000, "{back_end:?}: {account:?}");
        assert_first(&frames_in(Path::new(&file)), 1_000);
        assert_others_read(Path::new(&file), 1_000);
    }
}

#[test]
fn nothing_is_unread_when_it_ends_within_a_burst() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    for back_end in [&[][..], &["--xdp"]] {
        for wait_ms in [0, 150, 300] {
            let (b, file) = (lab.b0(), path(&dir, "trace.pcapng"));
            let mut options = vec!["-i", &b, "--json", "-w", &file];
            options.extend(back_end);
            let capture = Capture::start(&dir, &options);
            let account = std::thread::scope(|scope| {
                let sender = scope.spawn(|| send(&lab, 180_000, &["--rate", "60kpps"]));
                capture.wait_for_frames();
                std::thread::sleep(Duration::from_millis(wait_ms));
                let account = capture.interrupt();
                sender.join().unwrap();
                account
            });
            assert_eq!(account.not_read, 0, "{account:?}");
            assert!(account.captured > 0, "{account:?}");
            assert!(
                account.passed < 180_000,
                "not within the burst: {account:?}"
            );
            let frames = frames_in(Path::new(&file));
            assert_eq!(frames.len() as u64, account.captured);
            if account.dropped == 0 {
                assert_first(&frames, account.captured);
            }
        }
    }
}

#[test]
fn few_frames_and_a_quick_end() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let (b, file) = (lab.b0(), path(&dir, "trace.pcapng"));
    let slow = ["-i", &b, "--json", "--block-timeout", "1s", "-w", &file];
    let capture = Capture::start(&dir, &slow);
    send(&lab, 500, &["--rate", "20kpps"]);
    std::thread::sleep(Duration::from_millis(50));
    capture.interrupt().assert_whole(500);
    assert_first(&frames_in(Path::new(&file)), 500);

    let capture = Capture::start(&dir, &slow);
    send(&lab, 1, &[]);
    let account = capture.interrupt();
    account.assert_whole(1);
    assert!(
        account.said.contains("\n1 packet captured\n"),
        "{account:?}"
    );
}

#[test]
fn a_killed_capture_leaves_what_was_flushed() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for form in ["pcapng", "pcap"] {
        let dir = TempDir::new().unwrap();
        let (b, file) = (lab.b0(), path(&dir, "trace"));
        let capture = Capture::start(&dir, &["-i", &b, "--format", form, "-w", &file]);
        send(&lab, 20_001, &[]);
        // The kernel hands over a block after 100 ms, and the file is flushed each second.
        let whole = |count: &mut usize| {
            let mut decoder = CaptureDecoder::new();
            decoder.push(&fs::read(&file).unwrap());
            *count = 0;
            while let Ok(Some(item)) = decoder.next_item() {
                *count += usize::from(matches!(item.event, Event::Record(_)));
            }
            *count
        };
        let mut count = 0;
        eventually("all is flushed", || whole(&mut count) == 20_001);
        send(&lab, 5_000, &[]);
        capture.signal(Signal::KILL);
        let _ = capture.running.finish(PATIENCE);
        let repaired = run(&["read", "--repair", "--in-place", &file]);
        assert!(
            repaired.status.code().is_some_and(|c| c < 2),
            "{}",
            String::from_utf8_lossy(&repaired.stderr)
        );
        let frames = frames_in(Path::new(&file));
        assert!(frames.len() >= 20_001);
        let (first, _) = frames.split_at(20_001);
        assert_first(first, 20_001);
        assert_others_read(Path::new(&file), frames.len() as u64);
    }
}

#[test]
fn frames_of_either_direction_can_be_chosen() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let node = lab.node("b");
    for words in [
        &["addr", "add", "10.99.0.1/24", "dev", "b0"][..],
        &[
            "neigh",
            "add",
            "10.99.0.2",
            "lladdr",
            "02:00:00:00:00:99",
            "dev",
            "b0",
        ],
    ] {
        let mut arguments = vec!["-n", node.as_str()];
        arguments.extend(words);
        assert!(system("ip", &arguments).status.success());
    }
    // Through the stack of b: what bypasses it shows to no tap.
    let node = wb_machine::Namespace::named(&node).unwrap();
    let leave = |frames: u32| {
        wb_machine::in_namespace(&node, || {
            let socket = UdpSocket::bind("10.99.0.1:0").unwrap();
            for _ in 0..frames {
                assert_eq!(socket.send_to(&[0; 30], "10.99.0.2:7").unwrap(), 30);
            }
        })
        .unwrap();
    };
    for (direction, wanted) in [("in", 50), ("out", 30), ("inout", 80)] {
        let (b, file) = (lab.b0(), path(&dir, "trace.pcapng"));
        let capture = Capture::start(&dir, &["-i", &b, "--json", "-Q", direction, "-w", &file]);
        send(&lab, 50, &[]);
        leave(30);
        capture.interrupt().assert_whole(wanted);
        let arrived = frames_in(Path::new(&file))
            .iter()
            .filter(|f| f.sequence().is_some())
            .count();
        assert_eq!(arrived, if direction == "out" { 0 } else { 50 });
    }
}

#[test]
fn several_interfaces_go_into_one_file() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--links", "2"]);
    let dir = TempDir::new().unwrap();
    let (b0, b1) = (lab.port("b", "b0"), lab.port("b", "b1"));
    let file = path(&dir, "trace.pcapng");
    let capture = Capture::start(&dir, &["-i", &b0, "-i", &b1, "--json", "-w", &file]);
    send_by(&lab.port("a", "a0"), 3_000, &[]);
    send_by(&lab.port("a", "a1"), 2_000, &[]);
    capture.interrupt().assert_whole(5_000);
    let frames = frames_in(Path::new(&file));
    for (interface, sent) in [(0, 3_000), (1, 2_000)] {
        let of: Vec<u32> = frames
            .iter()
            .filter(|f| f.interface == interface)
            .filter_map(Kept::sequence)
            .collect();
        assert!(of.iter().copied().eq(0..sent), "interface {interface}");
    }
    assert_others_read(Path::new(&file), 5_000);
}

#[test]
fn several_readers_share_an_interface() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let (b, file) = (lab.b0(), path(&dir, "trace.pcapng"));
    let capture = Capture::start(&dir, &["-i", &b, "--json", "--threads", "2", "-w", &file]);
    let report = capture.out.clone();
    // One numbering in each of 64 flows.
    send(&lab, 6_400, &["--flows", "64"]);
    capture.interrupt().assert_whole(6_400);
    let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let readers = report["capture"]["readers"].as_array().unwrap();
    let read = readers.iter().map(|r| r["read_frames"].as_u64().unwrap());
    let read: Vec<u64> = read.collect();
    assert_eq!((read.len(), read.iter().sum()), (2, 6_400));
    // One receive queue, so the flows are dealt by their hash.
    assert!(read.iter().all(|n| *n > 0), "{read:?}");
    let tags: BTreeSet<(u32, u32)> = frames_in(Path::new(&file))
        .iter()
        .filter_map(|f| Tag::read(&f.bytes[42..]))
        .map(|t| (t.flow, t.sequence))
        .collect();
    assert_eq!(tags.len(), 6_400);
    assert_others_read(Path::new(&file), 6_400);
}

#[test]
fn the_snap_length_cuts_frames_and_tells_their_length() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    for back_end in [&[][..], &["--xdp"]] {
        for form in ["pcapng", "pcap-ns"] {
            let (b, file) = (lab.b0(), path(&dir, "trace"));
            let mut options = vec![
                "-i", &b, "--json", "-s", "64", "--format", form, "-w", &file,
            ];
            options.extend(back_end);
            let capture = Capture::start(&dir, &options);
            send(&lab, 500, &["--size", "1518"]);
            capture.interrupt().assert_whole(500);
            let frames = frames_in(Path::new(&file));
            assert_first(&frames, 500);
            assert!(frames.iter().all(|f| (f.bytes.len(), f.len) == (64, 1_514)));
            assert_others_read(Path::new(&file), 500);
        }
    }
}

#[test]
fn packed_files_unpack_to_the_same() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    for (suffix, form) in [("zst", "pcapng"), ("lz4", "pcapng"), ("zst", "pcap")] {
        let (b, file) = (lab.b0(), path(&dir, &format!("trace.{suffix}")));
        let capture = Capture::start(&dir, &["-i", &b, "--json", "--format", form, "-w", &file]);
        send(&lab, 20_000, &[]);
        capture.interrupt().assert_whole(20_000);
        let packed = fs::read(&file).unwrap();
        let plain = if suffix == "zst" {
            zstd::decode_all(&packed[..]).unwrap()
        } else {
            from_lz4(&packed)
        };
        assert_first(&frames_of(&plain), 20_000);
        assert!(packed.len() < plain.len());
        let count = run(&["read", "--verify", "--sent", "20000", &file]);
        assert_eq!(
            count.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&count.stdout)
        );
    }
}

#[test]
fn the_experiment_compares_what_was_sent() {
    if !privileged() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let place = dir.path().to_str().unwrap();
    let arguments = [
        "capture",
        "--self-test",
        "--with",
        "tcpdump",
        "--hogs",
        "1",
        "--sizes",
        "64,256",
        "--frames",
        "5000,2000",
        "--rate",
        "20kpps",
        "--runs",
        "1",
        "--xdp",
        "--json",
        "-q",
        "--dir",
        place,
    ];
    let running = Running::start(&arguments);
    let own = format!("selftest-{}", running.0.id());
    let output = running.finish(Duration::from_secs(90));
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    let rows = report["runs"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|r| r["tool"].as_str().unwrap()).collect();
    let tools = ["wirebench", "wirebench xdp", "tcpdump"];
    assert_eq!(names, [tools, tools].concat());
    for row in rows {
        assert_eq!(row["sent"], if row["size"] == 64 { 5_000 } else { 2_000 });
        assert_eq!(row["not_accounted"], 0, "{row}");
        assert_eq!(row["captured"], row["in_file"], "{row}");
    }
    // A machine too busy to send at this rate is reported.
    let code = output.status.code();
    match report["verdict"].as_str() {
        Some("pass") => assert_eq!(code, Some(0)),
        Some("invalid") => assert_eq!(code, Some(1)),
        other => panic!("{other:?}: {report}"),
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let labs = String::from_utf8_lossy(&run(&["lab", "ls"]).stdout).into_owned();
    assert!(!labs.contains(&own), "{labs}");
}

#[test]
fn the_experiment_says_what_is_missing_before_it_begins() {
    let output = wirebench()
        .args(["capture", "--self-test", "--with", "tcpdump"])
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("not installed: tcpdump"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}
