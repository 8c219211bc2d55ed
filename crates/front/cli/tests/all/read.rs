//! `wirebench read` from outside: the vectors of the formats, every task, and tcpdump as the judge.

use std::{
    fs,
    io::{Read, Write},
    net::Ipv6Addr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;
use wb_pcapng::{
    CaptureInterface, CaptureReader, EnhancedPacket, PacketOptions, PcapWriter, PcapngWriter,
    Precision, Statistics,
};
use wb_wire::{Ipv4, NetworkHeader, PktgenTag, Stack, Tag, Tcp, TransportHeader, Vlan};

const T0: u64 = 1_700_000_000_123_456_789;
const LINE: &str = "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype IPv4 (0x0800), length 60: \
                    10.77.0.1.9 > 10.77.0.2.9: UDP, length 18\n";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// UDP from port 9 of 10.77.0.1 to port 9 of 10.77.0.2, 60 bytes.
fn frame_q() -> Vec<u8> {
    let mut frame = hex(
        "020000000002 020000000001 0800 4500002e 00000000 4011 6623 0a4d0001 \
                         0a4d0002 0009 0009 001a 0000 5742",
    );
    frame.resize(60, 0);
    frame
}

fn with_q(header: &str, tail: &str) -> Vec<u8> {
    [hex(header), frame_q(), hex(tail)].concat()
}

fn vector_1() -> Vec<u8> {
    with_q(
        "d4c3b2a1 02000400 00000000 00000000 00000400 01000000 \
         00f15365 40e20100 3c000000 3c000000",
        "",
    )
}

fn vector_4() -> Vec<u8> {
    with_q(
        "0a0d0d0a 1c000000 4d3c2b1a 01000000 ffffffff ffffffff 1c000000 \
         01000000 28000000 01000000 00000400 02000300 77626200 09000100 09000000 00000000 28000000 \
         06000000 5c000000 00000000 fe9c9717 15cd853d 3c000000 3c000000",
        "5c000000 06000000 40000000 00000000 fe9c9717 fdd0853d 05000000 3c000000 02000000 00000000 \
         02000400 01000000 04000800 07000000 00000000 00000000 40000000 \
         05000000 70000000 00000000 fe9c9717 e5d4853d 02000800 fe9c9717 2dc9853d 03000800 fe9c9717 \
         e5d4853d 04000800 09000000 00000000 05000800 00000000 00000000 06000800 09000000 00000000 \
         07000800 07000000 00000000 08000800 02000000 00000000 00000000 70000000",
    )
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
    }

    fn get(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wirebench"));
        command.arg("read").args(arguments);
        command.current_dir(self.0.path()).env("TZ", "UTC");
        // Without these options tcpdump must not be found, so that the built-in format is used.
        if !arguments
            .iter()
            .any(|word| matches!(*word, "--as" | "--decode"))
        {
            command.env("PATH", "");
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output, of a run that ends with this code.
    fn read(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Standard error, of a run that ends with this code.
    fn complaint(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn json(&self, code: i32, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.read(code, arguments)).unwrap()
    }

    fn stamps(&self, name: &str) -> Vec<u64> {
        stamps(&self.get(name))
    }
}

fn stamps(file: &[u8]) -> Vec<u64> {
    let records = CaptureReader::new(file).unwrap();
    records.map(|record| record.unwrap().stamp_ns).collect()
}

fn there(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        wb_testing::skipped(format_args!("{tool} is not installed"));
    }
    found
}

/// Frames of many kinds.
fn traffic() -> Vec<Vec<u8>> {
    let (a, b) = ([10, 77, 0, 1], [10, 77, 0, 2]);
    let (a6, b6) = (Ipv6Addr::from(1 << 120), Ipv6Addr::from(2));
    let mut frames = vec![frame_q()];
    for n in 0..40_u16 {
        let sport = 1000 + n % 5;
        frames.push(Stack::udp4(a, b, sport, 9000 + n % 3).build(60 + usize::from(n)));
        let tcp = TransportHeader::Tcp(Tcp {
            flags: 1 << (n % 5),
            ..Tcp::new(4080 + n % 2, sport)
        });
        let ip = Ipv4::new(b.into(), a.into());
        frames.push(Stack::over(NetworkHeader::Ipv4(ip, tcp)).build(74));
        frames.push(Stack::udp6(a6, b6, sport, 9).build(90));
        let mut tagged = Stack::udp4(b, a, 7, sport);
        tagged.vlans = vec![Vlan::customer(10 + n % 2)];
        frames.push(tagged.build(64));
    }
    frames
}

fn pcap(link_type: u16, records: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = PcapWriter::new(link_type, &mut file);
    for (stamp, frame) in records {
        writer.record(stamp, frame.len() as u32, &frame, &mut file);
    }
    file
}

/// A stamp each microsecond.
fn traffic_file() -> Vec<u8> {
    pcap(1, (0..).map(|n| T0 + n * 1000).zip(traffic()))
}

/// Frames at these stamps.
fn at(stamps: &[u64]) -> Vec<u8> {
    pcap(1, stamps.iter().map(|stamp| (*stamp, frame_q())))
}

#[test]
fn the_vectors_are_printed() {
    let folder = Folder::new();
    let line = format!("1700000000.123456 {LINE}");
    folder.put("1", &vector_1());
    assert_eq!(folder.read(0, &["-e", "-n", "-tt", "1"]), line);
    folder.put(
        "2",
        &with_q(
            "4d3cb2a1 02000400 00000000 00000000 60000000 01000000 \
             00f15365 15cd5b07 3c000000 ea050000",
            "",
        ),
    );
    let nano = folder.read(0, &["--nano", "-tt", "2"]);
    assert!(nano.starts_with("1700000000.123456789 IP "), "{nano}");
    let info = folder.json(0, &["--info", "--json", "2"]);
    assert_eq!(info["files"][0]["original_bytes"], 1514);
    assert_eq!(info["files"][0]["captured_bytes"], 60);
    folder.put(
        "3",
        &with_q(
            "a1b2c3d4 00020004 00000000 00000000 00040000 00000001 \
             6553f100 0001e240 0000003c 0000003c",
            "",
        ),
    );
    assert_eq!(folder.read(0, &["-r", "3", "-entt"]), line);
    folder.put("4", &vector_4());
    assert_eq!(folder.read(0, &["--count", "4"]), "2 packets\n");
    let stamps: Vec<String> = folder
        .read(0, &["--nano", "-tt", "4"])
        .lines()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(stamps, ["1700000000.123456789", "1700000000.123457789"]);
    let info = folder.json(0, &["--info", "--json", "4"]);
    assert_eq!(folder.json(0, &["--json", "4"]), info);
    folder.complaint(2, &["--json", "4", "-w", "x.pcap"]);
    let interface = &info["files"][0]["interfaces"][0];
    assert_eq!(interface["name"], "wbb");
    assert_eq!(interface["noted_drops"], 7);
    assert_eq!(interface["statistics"]["filter_accepted"], 9);
    assert_eq!(interface["statistics"]["adds_up"], true);
}

#[test]
fn a_cut_file_is_read_as_far_as_it_is_whole_and_repaired() {
    let folder = Folder::new();
    folder.put("cut.pcap", &vector_1()[..90]);
    let output = folder.run(&["cut.pcap"]);
    assert_eq!(
        (output.status.code(), &output.stdout[..]),
        (Some(1), &b""[..])
    );
    let said = folder.complaint(1, &["--count", "cut.pcap"]);
    let problem = "byte 24: truncated: record needs 60 bytes, 50 present";
    assert!(said.contains(problem), "{said}");
    let said = folder.read(0, &["--repair", "--in-place", "cut.pcap"]);
    assert!(said.contains("removed 66 bytes from the end"), "{said}");
    assert_eq!(folder.get("cut.pcap"), vector_1()[..24]);
    assert_eq!(folder.read(0, &["--count", "cut.pcap"]), "0 packets\n");

    folder.put("head.pcap", &vector_1()[..20]);
    assert!(
        folder
            .complaint(1, &["head.pcap"])
            .contains("truncated file header")
    );
    folder.read(1, &["--repair", "--in-place", "head.pcap"]);
    assert_eq!(
        folder.get("head.pcap").len(),
        20,
        "nothing whole, nothing cut"
    );

    folder.put("whole.pcapng", &vector_4());
    folder.read(0, &["--repair", "--in-place", "whole.pcapng"]);
    assert_eq!(folder.get("whole.pcapng"), vector_4());
    folder.put("4.pcapng", &vector_4()[..300]);
    assert_eq!(folder.read(1, &["--count", "4.pcapng"]), "2 packets\n");
    folder.read(0, &["--repair", "--in-place", "4.pcapng"]);
    assert_eq!(folder.get("4.pcapng"), vector_4()[..224]);

    folder.put("text", b"no capture");
    folder.complaint(2, &["--repair", "--in-place", "text"]);
    assert_eq!(folder.get("text"), b"no capture");
}

#[test]
fn a_whole_file_is_printed_by_tcpdump_if_it_is_there() {
    if !there("tcpdump") {
        return;
    }
    let folder = Folder::new();
    folder.put("a.pcap", &traffic_file());
    let read = |words: &[&str], path: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wirebench"));
        command.arg("read").args(words).current_dir(folder.0.path());
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command.env("TZ", "UTC").output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    for (words, options) in [
        (&["a.pcap"][..], &[][..]),
        (
            &["-e", "-tttt", "-c", "7", "a.pcap", "udp", "port", "9"],
            &["-e", "-tttt", "-c", "7", "udp port 9"],
        ),
        (
            &[
                "-vv", "-X", "-Z", "root", "-y", "EN10MB", "-L", "-H", "--print", "a.pcap",
            ],
            &["-vv", "-X"],
        ),
    ] {
        let mut theirs = Command::new("tcpdump");
        theirs.args(["-n", "-r", "a.pcap"]).args(options);
        let theirs = theirs
            .current_dir(folder.0.path())
            .env("TZ", "UTC")
            .output()
            .unwrap();
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        assert_eq!(read(words, None), (Some(0), theirs), "{words:?}");
    }
    // A stand-in shows the program used. Features without an equivalent, and files that libpcap cannot read, stay here.
    let bin = folder.path("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("tcpdump"), "#!/bin/sh\necho theirs\n").unwrap();
    fs::set_permissions(
        bin.join("tcpdump"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let bin = bin.display().to_string();
    let is_theirs = |words: &[&str]| read(words, Some(&bin)).1 == "theirs\n";
    assert!(is_theirs(&["a.pcap"]));
    for words in [
        &["--as", "wirebench", "a.pcap"][..],
        &["--count", "a.pcap"],
        &["--skip", "1", "a.pcap"],
        &["--to", "+1", "a.pcap"],
        &["a.pcap", "a.pcap"],
        &["--reorder", "a.pcap"],
        &["-w", "b.pcap", "--print", "a.pcap"],
    ] {
        assert!(!is_theirs(words), "{words:?}");
    }
    let mut ixia = folder.get("a.pcap");
    ixia[..4].copy_from_slice(&0x1c00_01ac_u32.to_le_bytes());
    ixia.splice(24..24, [0; 4]);
    folder.put("ixia.pcap", &ixia);
    assert!(!is_theirs(&["ixia.pcap"]));
}

/// Options of a pcapng block, little endian, with their end.
fn options(list: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (code, value) in list {
        bytes.extend(code.to_le_bytes());
        bytes.extend((value.len() as u16).to_le_bytes());
        bytes.extend(*value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes.extend([0; 4]);
    bytes
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes(), &len, body, &len].concat()
}

#[test]
fn a_conversion_keeps_what_the_file_says_or_lists_what_it_loses() {
    let folder = Folder::new();
    let section = [
        &hex("4d3c2b1a 01000000 ffffffff ffffffff")[..],
        &options(&[
            (1, b"section note"),
            (2, b"hw x"),
            (3, b"os y"),
            (4, b"app z"),
        ]),
    ];
    let interface = [
        &hex("01000000 00000400")[..],
        &options(&[
            (1, b"note"),
            (2, b"eth9"),
            (4, &[0; 8]),
            (15, b"card"),
            (16, &[0; 8]),
        ]),
    ];
    let frame = frame_q();
    let packet = [
        &hex("00000000 00000000 01000000 3c000000 3c000000")[..],
        &frame,
        &options(&[
            (1, b"first"),
            (1, b"second"),
            (3, &[2, 0]),
            (7, &[0; 9]),
            (2988, b"custom"),
        ]),
    ];
    let file = [
        block(0x0a0d_0d0a, &section.concat()),
        block(1, &interface.concat()),
        block(6, &packet.concat()),
    ];
    folder.put("rich.pcapng", &file.concat());
    let said = folder.complaint(0, &["rich.pcapng", "-w", "copy.pcapng"]);
    assert_eq!(
        said,
        "wirebench: not copied: interface comments, interface addresses, \
         interface hardware, separate transmit and receive speeds, additional packet comments, \
         packet hashes, packet verdicts, custom options\n"
    );
    let copy = folder.get("copy.pcapng");
    let has = |text: &str| {
        copy.windows(text.len())
            .any(|bytes| bytes == text.as_bytes())
    };
    assert!(
        ["section note", "hw x", "os y", "app z", "eth9", "first"]
            .iter()
            .all(|t| has(t))
    );
    assert_eq!(
        folder.complaint(0, &["copy.pcapng", "-w", "again.pcapng"]),
        ""
    );
    let said = folder.complaint(0, &["copy.pcapng", "-w", "copy.pcap"]);
    assert_eq!(
        said,
        "wirebench: not copied: section hardware, section operating systems, section programs, \
         section comments, interface names and descriptions, packet comments\n"
    );
}

#[test]
fn a_repair_says_where_it_writes() {
    let folder = Folder::new();
    let cut = &vector_4()[..300];
    folder.put("cut.pcapng", cut);
    let said = folder.complaint(2, &["--repair", "cut.pcapng"]);
    assert!(
        said.contains("-w COPY") && said.contains("--in-place"),
        "{said}"
    );
    let said = folder.complaint(2, &["--repair", "cut.pcapng", "-w", "c", "--in-place"]);
    assert!(said.contains("exclude"), "{said}");
    folder.complaint(2, &["--repair", "cut.pcapng", "-w", "cut.pcapng"]);
    folder.complaint(
        2,
        &["--repair", "cut.pcapng", "-w", "c", "--format", "pcap"],
    );
    let said = folder.read(0, &["--repair", "cut.pcapng", "-w", "copy.pcapng"]);
    assert!(
        said.contains("copy.pcapng: saved 2 complete packets before it (224 bytes)"),
        "{said}"
    );
    assert_eq!(
        folder.get("cut.pcapng"),
        cut,
        "the file itself stays as it is"
    );
    assert_eq!(folder.get("copy.pcapng"), vector_4()[..224]);
    folder.put("text", b"no capture");
    folder.put("kept", b"kept");
    folder.complaint(2, &["--repair", "text", "-w", "kept"]);
    assert_eq!(folder.get("kept"), b"kept");
}

#[test]
fn frames_longer_than_those_of_networks_are_no_damage() {
    let folder = Folder::new();
    for (link_type, len) in [(249, 300_027), (231, 500_000)] {
        let records = [40, len, 40].map(|len| (T0, vec![0; len]));
        let file = pcap(link_type, records);
        folder.put("long.pcap", &file);
        assert_eq!(folder.read(0, &["--count", "long.pcap"]), "3 packets\n");
        folder.read(0, &["--repair", "--in-place", "long.pcap"]);
        assert_eq!(folder.get("long.pcap"), file);
        folder.read(0, &["long.pcap", "-w", "copy.pcapng"]);
        folder.read(0, &["copy.pcapng", "-w", "again.pcap"]);
        let again = folder.get("again.pcap");
        let lens = CaptureReader::new(&again)
            .unwrap()
            .map(|r| r.unwrap().captured.len());
        assert_eq!(lens.collect::<Vec<_>>(), [40, len, 40]);
    }
    // Without a filter none is compiled, so libpcap need not know the link type.
    for link_type in [14, 100, 147, 12345] {
        folder.put("odd.pcap", &pcap(link_type, [(T0, frame_q())]));
        assert_eq!(folder.read(0, &["--count", "odd.pcap"]), "1 packet\n");
        folder.read(0, &["odd.pcap", "-w", "odd.pcapng"]);
        folder.read(1, &["--verify", "odd.pcap"]);
    }
    let said = folder.complaint(2, &["--as", "wirebench", "odd.pcap"]);
    assert!(
        said.contains("type 12345 cannot be printed; print the packets with --as tcpdump"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let folder = Folder::new();
    folder.put("a.pcap", &vector_1());
    folder.put("text", b"no capture");
    for (arguments, words) in [
        (&["nowhere"][..], "cannot open nowhere"),
        (&[], "no file given"),
        (&["a.pcap", "b.pcap"], "cannot open b.pcap"),
        (&["text"], "not a pcap or pcapng file"),
        (&["."], "got a directory"),
        (&["-I", "a.pcap"], "-I of tcpdump"),
        (&["-u", "a.pcap"], "-u of tcpdump"),
        (&["-i", "eth0"], "wirebench capture"),
        (&["--info", "a.pcap", "udp"], "whole files"),
        (
            &["--count", "-w", "b", "a.pcap"],
            "--count and -w exclude each other",
        ),
        (
            &["a.pcap", "-w", "a.pcap"],
            "is an input file; write to another file",
        ),
        (&["--from", "soon", "a.pcap"], "expected a time such as"),
        (&["a.pcap", "-w", "no/such/folder"], "cannot create"),
        (&["-", "-"], "only once"),
    ] {
        let said = folder.complaint(2, arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(
            said.starts_with("wirebench: ") && said.lines().count() == 1,
            "{said}"
        );
    }
    assert_eq!(folder.get("a.pcap"), vector_1());
}

#[test]
fn a_mistake_in_a_filter_is_shown_with_a_caret() {
    let folder = Folder::new();
    folder.put("a.pcap", &vector_1());
    let said = folder.complaint(2, &["a.pcap", "udp and", "tcp prot 80"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "wirebench: udp and tcp prot 80");
    assert_eq!(lines[1], "wirebench:             ^^^^");
}

#[test]
fn filters_choose() {
    let folder = Folder::new();
    folder.put("q.pcap", &vector_1());
    folder.put("expression", b"src host\n10.77.0.1\n");
    for (filter, packets) in [
        ("src host 172.16.32.25", 0),
        ("src host 10.77.0.1", 1),
        ("udp port 9", 1),
        ("tcp", 0),
        ("less 60", 1),
        ("greater 61", 0),
        ("vlan", 0),
    ] {
        let json = folder.json(0, &["--count", "--json", "q.pcap", filter]);
        assert_eq!(json["packets"], packets, "{filter}");
    }
    let count = folder.read(0, &["--count", "-F", "expression", "q.pcap"]);
    assert_eq!(count, "1 packet\n");
}

#[test]
fn filters_choose_what_tcpdump_chooses() {
    if !there("tcpdump") {
        return;
    }
    let folder = Folder::new();
    folder.put("t.pcap", &traffic_file());
    for filter in [
        "",
        "tcp",
        "udp port 1002",
        "ip6",
        "vlan 10",
        "vlan and ip",
        "greater 80",
        "ether src 02:00:00:00:00:01",
        "host 10.77.0.1 and not tcp",
        "udp[2:2] & 1 = 1",
        "tcp[tcpflags] & tcp-syn != 0 or portrange 1000-1001",
    ] {
        let theirs = Command::new("tcpdump")
            .args(["-n", "--count", "-r", "t.pcap", filter])
            .current_dir(folder.0.path())
            .output()
            .unwrap();
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        assert_eq!(
            folder.read(0, &["--count", "-r", "t.pcap", filter]),
            theirs,
            "{filter}"
        );
    }
}

#[test]
fn lines_are_those_of_tcpdump() {
    if !there("tcpdump") {
        return;
    }
    let folder = Folder::new();
    folder.put("t.pcap", &traffic_file());
    for options in [
        &["-n"][..],
        &["-n", "-e"],
        &["-n", "-tttt", "-v"],
        &["-n", "-ttt", "-q"],
        &["-n", "-ttttt", "-xx"],
        &["-nn", "-X", "-#"],
        &["-n", "-tt", "-S", "-c", "7"],
        &["-n", "-A", "udp"],
    ] {
        let filter = options.iter().position(|word| *word == "udp");
        let (options, filter) = options.split_at(filter.unwrap_or(options.len()));
        for zone in ["UTC", "EST5EDT", "Asia/Kathmandu"] {
            let theirs = Command::new("tcpdump")
                .args(options)
                .args(["-r", "t.pcap"])
                .args(filter)
                .current_dir(folder.0.path())
                .env("TZ", zone)
                .output()
                .unwrap();
            let mut ours = folder.command(options);
            ours.args(["-r", "t.pcap"]).args(filter).env("TZ", zone);
            let ours = String::from_utf8(ours.output().unwrap().stdout).unwrap();
            let theirs = String::from_utf8(theirs.stdout).unwrap();
            assert!(!theirs.is_empty());
            for (ours, theirs) in ours.lines().zip(theirs.lines()) {
                assert_eq!(ours, theirs, "{options:?}");
            }
            assert_eq!(ours.len(), theirs.len());
        }
    }
}

#[test]
fn round_trips_between_formats_and_packings() {
    let folder = Folder::new();
    let original = traffic_file();
    folder.put("a.pcap", &original);
    for packing in ["", ".zst", ".lz4", ".gz"] {
        let (first, second) = (format!("b.pcapng{packing}"), format!("c.pcap{packing}"));
        folder.read(0, &["a.pcap", "-w", &first]);
        folder.read(0, &[&first, "-w", &second]);
        folder.read(0, &[&second, "-w", "d.pcap"]);
        assert_eq!(folder.get("d.pcap"), original, "{packing}");
        let info = folder.json(0, &["--info", "--json", &first]);
        assert_eq!(info["files"][0]["format"], "pcapng");
        assert_eq!(info["files"][0]["packing"].is_null(), packing.is_empty());
        for (ending, tool) in [(".zst", "zstd"), (".lz4", "lz4"), (".gz", "gzip")] {
            if packing == ending && there(tool) {
                let path = folder.path(&second);
                let unpacked = Command::new(tool)
                    .args(["-d", "-c"])
                    .arg(path)
                    .output()
                    .unwrap();
                assert_eq!(unpacked.stdout, original, "{tool}");
                // Packed files are packed files behind one another, too.
                let mut twice = Vec::new();
                for (name, part) in [("1", &original[..500]), ("2", &original[500..])] {
                    folder.put(name, part);
                    let path = folder.path(name);
                    let packed = Command::new(tool).arg("-c").arg(path).output().unwrap();
                    twice.extend(packed.stdout);
                }
                folder.put("twice", &twice);
                folder.read(0, &["twice", "-w", "e.pcap"]);
                assert_eq!(folder.get("e.pcap"), original, "{tool}");
            }
        }
    }
    let compressed = folder
        .run(&["a.pcap", "-w", "-", "--compress", "zstd", "-P"])
        .stdout;
    assert_eq!(compressed[..4], [0x28, 0xb5, 0x2f, 0xfd]);
    folder.put("cut.zst", &compressed[..compressed.len() - 3]);
    let said = folder.complaint(1, &["--count", "cut.zst"]);
    assert!(said.contains("zstd: damaged or truncated"), "{said}");
}

#[test]
fn what_pcapng_tells_survives() {
    let folder = Folder::new();
    folder.put("4.pcapng", &vector_4());
    folder.read(0, &["4.pcapng", "-w", "out.pcapng"]);
    let info = |name| folder.json(0, &["--info", "--json", name])["files"][0]["interfaces"].clone();
    assert_eq!(info("out.pcapng"), info("4.pcapng"));
    let out = folder.get("out.pcapng");
    let records: Vec<_> = CaptureReader::new(&out)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(records[1].options.flags, Some(1));
    assert_eq!(records[1].options.drop_count, Some(7));
    // The counts of the interface are not those of a part.
    folder.read(0, &["4.pcapng", "-c", "1", "-w", "part.pcapng"]);
    assert!(info("part.pcapng")[0]["statistics"].is_null());
}

#[test]
fn slices() {
    let folder = Folder::new();
    let second = 1_000_000_000;
    let all: Vec<u64> = (0..10).map(|n| T0 + n * second).collect();
    folder.put("a.pcap", &at(&all));
    for (arguments, expected) in [
        (&["--from", "+2", "--to", "+4s"][..], &all[2..4]),
        (&["--from", "1700000002.123456789"], &all[2..]),
        (&["--to", "2023-11-14T22:13:21.2Z"], &all[..2]),
        (&["--to", "2023-11-14 22:13:21.2"], &all[..2]),
        (&["--skip", "3", "--first", "2"], &all[3..5]),
        (&["--skip", "30"], &[]),
        (&["-c", "0"], &[]),
        (&["--from", "+8", "--skip", "1"], &all[9..]),
    ] {
        let mut arguments = arguments.to_vec();
        arguments.extend(["a.pcap", "-w", "out"]);
        folder.read(0, &arguments);
        assert_eq!(folder.stamps("out"), expected, "{arguments:?}");
    }
    folder.read(0, &["a.pcap", "-s", "42", "-w", "short.pcap"]);
    let short = folder.get("short.pcap");
    assert_eq!(short[16..20], 42_u32.to_le_bytes());
    let record = CaptureReader::new(&short).unwrap().next().unwrap().unwrap();
    assert_eq!((record.captured.len(), record.original_len), (42, 60));
    folder.read(0, &["a.pcap", "--micro", "-w", "micro.pcap"]);
    assert_eq!(folder.get("micro.pcap")[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
    assert_eq!(folder.stamps("micro.pcap")[0], T0 / 1000 * 1000);
}

#[test]
fn files_are_merged_by_time_and_interfaces_kept_apart() {
    let folder = Folder::new();
    let mut ng = Vec::new();
    let mut writer = PcapngWriter::new("", &mut ng);
    for (name, link_type) in [("eth0", 1), ("tun0", 101)] {
        writer.interface(name, link_type, &mut ng);
    }
    for (interface, stamp, ticks) in [(1, 2, 14), (0, 5, 0), (1, 8, 14)] {
        let captured = frame_q()[ticks..].to_vec();
        let packet = EnhancedPacket {
            interface,
            ticks: stamp,
            original_len: captured.len() as u32,
            captured: &captured,
            options: PacketOptions {
                flags: Some(stamp as u32),
                ..PacketOptions::NONE
            },
        };
        writer.packet(&packet, &mut ng);
    }
    for interface in 0..2 {
        let statistics = Statistics {
            interface,
            delivered: Some(u64::from(interface) + 1),
            ..Statistics::default()
        };
        writer.statistics(&statistics, &mut ng);
    }
    folder.put("a.pcapng", &ng);
    folder.put("b.pcap", &at(&[1, 5, 9]));
    folder.put("c.pcap", &at(&[0, 5, 7]));
    folder.read(0, &["a.pcapng", "b.pcap", "c.pcap", "-w", "m.pcapng"]);
    let merged = folder.get("m.pcapng");
    let mut reader = CaptureReader::new(&merged).unwrap();
    let mut seen = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        if let wb_pcapng::Event::Record(record) = item.event {
            let interface: &CaptureInterface = &item.interfaces[record.interface as usize];
            let name = interface.name.clone().unwrap_or_default();
            seen.push((record.stamp_ns, name, record.link_type));
        }
    }
    let expected = [
        (0, "", 1),
        (1, "", 1),
        (2, "tun0", 101),
        (5, "eth0", 1),
        (5, "", 1),
        (5, "", 1),
        (7, "", 1),
        (8, "tun0", 101),
        (9, "", 1),
    ];
    assert_eq!(
        seen,
        expected.map(|(stamp, name, link)| (stamp, name.to_owned(), link))
    );
    let info = folder.json(0, &["--info", "--json", "m.pcapng"]);
    let interfaces = info["files"][0]["interfaces"].as_array().unwrap();
    assert_eq!(interfaces.len(), 3, "the two without a name are one");
    for interface in interfaces {
        let delivered = &interface["statistics"]["delivered"];
        match interface["name"].as_str() {
            Some("eth0") => assert_eq!(delivered, 1),
            Some("tun0") => assert_eq!(delivered, 2),
            _ => assert!(interface["statistics"].is_null()),
        }
    }
    // pcap holds one link type.
    assert!(
        folder
            .complaint(2, &["a.pcapng", "-w", "x.pcap"])
            .contains("one link type")
    );
    folder.read(
        0,
        &[
            "a.pcapng",
            "b.pcap",
            "c.pcap",
            "ether[0] = 2",
            "-w",
            "x.pcapng",
        ],
    );
}

#[test]
fn packets_are_put_in_order() {
    let folder = Folder::new();
    let ms = 1_000_000;
    folder.put(
        "a.pcap",
        &at(&[
            T0 + 5 * ms,
            T0 + 3 * ms,
            T0 + 9 * ms,
            T0 + ms,
            T0 + 2000 * ms,
            T0,
        ]),
    );
    let output = folder.run(&["a.pcap", "--reorder", "-w", "out.pcap"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let order = [1, 3, 5, 9, 0, 2000].map(|n| T0 + n * ms);
    assert_eq!(folder.stamps("out.pcap"), order);
    assert!(
        said.contains(
            "3 packets were out of order; too late for the window, and still out of order: 1"
        ),
        "{said}"
    );
    folder.read(0, &["a.pcap", "--reorder=10s", "-w", "out.pcap"]);
    assert_eq!(
        folder.stamps("out.pcap"),
        [0, 1, 3, 5, 9, 2000].map(|n| T0 + n * ms)
    );
}

#[test]
fn test_tags_are_verified() {
    let folder = Folder::new();
    let tagged = |flow, sequence| {
        let stack = Stack::udp4([10, 77, 0, 1], [10, 77, 0, 2], 9, 9);
        let mut frame = stack.build(60);
        let tag = Tag {
            flow,
            sequence,
            time_ns: 1,
        };
        tag.write(frame[42..].first_chunk_mut().unwrap());
        (T0, frame)
    };
    let pktgen = |sequence| {
        let mut frame = frame_q();
        PktgenTag::at(sequence, 1).write(frame[42..].first_chunk_mut().unwrap());
        (T0, frame)
    };
    let mut records: Vec<_> = (0..100).map(|n| tagged(3, n)).collect();
    folder.put("all.pcap", &pcap(1, records.clone()));
    let text = folder.read(0, &["--verify", "all.pcap"]);
    assert!(text.starts_with("nothing missing: 100 packets"), "{text}");
    folder.read(1, &["--verify", "--sent", "101", "all.pcap"]);
    records.drain(40..43);
    records.swap(10, 11);
    records.push(tagged(3, 0));
    records.extend((1..=5).map(pktgen));
    records.push((T0, frame_q()));
    folder.put("some.pcap", &pcap(1, records));
    let json = folder.json(1, &["--verify", "--json", "some.pcap"]);
    assert_eq!(json["totals"]["missing_frames"], 3);
    assert_eq!(json["totals"]["untagged_frames"], 1);
    let flow = &json["streams"][0];
    for (key, value) in [
        ("flow", 3),
        ("first", 0),
        ("last", 99),
        ("received_frames", 98),
        ("duplicate_frames", 1),
        ("reordered_frames", 1),
    ] {
        assert_eq!(flow[key], value, "{key}");
    }
    assert_eq!(flow["missing_ranges"], serde_json::json!([[40, 42]]));
    assert_eq!(json["streams"][1]["tag"], "pktgen");
    assert_eq!(json["streams"][1]["received_frames"], 5);
    let text = folder.read(1, &["--verify", "some.pcap"]);
    assert!(
        text.starts_with("3 MISSING") && text.contains("40-42"),
        "{text}"
    );
    folder.put("none.pcap", &vector_1());
    assert!(
        folder
            .read(1, &["--verify", "none.pcap"])
            .contains("nothing verified")
    );
}

#[test]
fn a_closed_pipe_is_no_fault() {
    let folder = Folder::new();
    let many = (0..40).flat_map(|_| traffic()).map(|frame| (T0, frame));
    folder.put("a.pcap", &pcap(1, many));
    for arguments in [&["-X", "a.pcap"][..], &["a.pcap", "-w", "-"]] {
        let mut child = folder
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
        assert!(!said.contains("wirebench:"), "{said}");
    }
}

#[test]
fn a_full_disk_is_a_fault() {
    if !Path::new("/dev/full").exists() {
        wb_testing::skipped("no /dev/full");
        return;
    }
    let folder = Folder::new();
    folder.put("a.pcap", &traffic_file());
    let said = folder.complaint(4, &["a.pcap", "-w", "/dev/full"]);
    assert!(
        said.contains("cannot write /dev/full: No space left"),
        "{said}"
    );
}

/// Peak memory of a child so far, in kB.
fn peak_kb(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn memory_is_bounded_on_a_long_stream() {
    let folder = Folder::new();
    let mut header = Vec::new();
    let mut writer = PcapWriter::with(1, 0, Precision::Nano, &mut header);
    let mut piece = Vec::new();
    let frame = Stack::udp4([10, 77, 0, 1], [10, 77, 0, 2], 9, 9).build(1514);
    for n in 0..700 {
        writer.record(T0 + n, 1514, &frame, &mut piece);
    }
    let pieces = 300_000_000 / piece.len() + 1;
    let mut child = folder
        .command(&["-", "--print", "-w", "/dev/null", "--reorder=1ms", "udp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&header).unwrap();
    let (mut peak, mut begun) = (0, 0);
    for n in 0..pieces {
        stdin.write_all(&piece).unwrap();
        peak = peak.max(peak_kb(child.id()).unwrap_or(0));
        if n == pieces / 2 {
            begun = peak;
        }
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    // 64 MiB for frames in the window, and the pages of the binary, which are many in a debug build.
    assert!(peak > 0 && peak < 120_000, "{peak} kB");
    let grew = peak - begun;
    assert!(grew < 2_000, "{begun} kB, then {grew} kB more");
}

/// A question for the address of wb.test.
fn question() -> Vec<u8> {
    let payload = hex("1234 0100 0001 0000 0000 0000 02 7762 04 74657374 00 0001 0001");
    let stack = Stack::udp4([10, 77, 0, 1], [10, 77, 0, 2], 4000, 53);
    let mut frame = stack.build(42 + payload.len());
    frame[42..].copy_from_slice(&payload);
    frame
}

#[test]
fn others_print_what_we_do_not_take_apart() {
    let folder = Folder::new();
    let records = [question(), frame_q(), question()];
    folder.put("a.pcap", &pcap(1, (0..).map(|n| T0 + n).zip(records)));
    if there("tcpdump") {
        for words in [
            &["-nt"][..],
            &["-tttt", "-vv", "-e"],
            &["-t", "-X", "--nano"],
        ] {
            let ours = [words, &["--as", "tcpdump", "a.pcap", "udp port 53"]].concat();
            let ours = folder.read(0, &ours);
            let theirs = Command::new("tcpdump")
                .args(["-n", "-r", "a.pcap"])
                .args(words)
                .arg("udp port 53")
                .current_dir(folder.0.path())
                .env("TZ", "UTC")
                .output()
                .unwrap();
            assert_eq!(ours, String::from_utf8(theirs.stdout).unwrap());
            assert!(ours.contains("A? wb.test."), "{ours}");
        }
        // An empty output is not an error.
        assert_eq!(folder.read(0, &["--as", "tcpdump", "a.pcap", "arp"]), "");
    }
    if there("tshark") {
        let text = folder.read(0, &["--decode", "a.pcap", "--skip", "1"]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("Standard query 0x1234 A wb.test"), "{text}");
        let text = folder.read(0, &["--decode", "-v", "-c", "1", "a.pcap"]);
        assert!(text.contains("Domain Name System (query)"), "{text}");
    }
    let nowhere = folder
        .command(&["--as", "tcpdump", "a.pcap"])
        .env("PATH", "")
        .output()
        .unwrap();
    assert_eq!(nowhere.status.code(), Some(2));
    let error = String::from_utf8_lossy(&nowhere.stderr);
    assert!(error.contains("tcpdump is not installed"), "{error}");
}

#[test]
fn tcpdumps_r_reads() {
    let folder = Folder::new();
    folder.put("1", &vector_1());
    for words in [
        &["capture", "-enttr", "1"][..],
        &["capture", "udp port 9", "-r", "1", "-entt"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_wirebench"))
            .args(words)
            .current_dir(folder.0.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text, format!("1700000000.123456 {LINE}"), "{words:?}");
    }
}

#[test]
fn which_way_a_packet_went_is_not_in_the_file() {
    let folder = Folder::new();
    folder.put("1", &vector_1());
    for filter in ["inbound", "udp and outbound"] {
        let error = folder.complaint(2, &["1", filter]);
        assert!(error.contains("inbound, outbound"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
