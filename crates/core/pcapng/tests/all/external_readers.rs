//! Files checked with other programs.

use std::io::Write;
use std::process::{Command, Stdio};

use wb_pcapng::{
    Block, CaptureInterface, Custom, EnhancedPacket, LINK_ETHERNET, PacketOptions, PcapWriter,
    PcapngWriter, Precision, Section, Statistics,
};

const STAMP: u64 = 1_700_000_000_123_456_789;

/// UDP 10.77.0.1:9 to 10.77.0.2:9 with 18 bytes of payload.
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    let head = *b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0\x45\0\0\x2e\0\0\0\0\x40\x11\x66\x23\x0a\x4d\0\x01\x0a\x4d\0\x02\0\x09\0\x09\0\x1a\0\0WB";
    let mut i = 0;
    while i < head.len() {
        frame[i] = head[i];
        i += 1;
    }
    frame
};

/// Runs a program on the file and returns its output. Returns `None` and prints the reason if it is not installed.
fn judge(program: &str, args: &[&str], file: &[u8]) -> Option<String> {
    let child = Command::new(program)
        .args(args)
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            println!("SKIPPED: {program}: {error}");
            return None;
        }
    };
    child.stdin.take().unwrap().write_all(file).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {complaints}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn pcap(precision: Precision) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = PcapWriter::with(LINK_ETHERNET, 0, precision, &mut file);
    writer.record(STAMP, 60, &FRAME, &mut file);
    writer.record(STAMP + 1_000_000_000, 1514, &FRAME[..42], &mut file);
    file
}

fn pcapng() -> Vec<u8> {
    let mut file = Vec::new();
    let section = Section {
        hardware: Some("test bench"),
        os: Some("Linux 6.18"),
        application: Some("wirebench"),
        comment: None,
    };
    let mut writer = PcapngWriter::section(&section, &mut file);
    for name in ["left", "right"] {
        let interface = CaptureInterface {
            name: Some(name.to_owned()),
            description: Some(format!("the {name} one")),
            mac: Some([2, 0, 0, 0, 0, 1]),
            speed_bps: Some(10_000_000_000),
            filter: Some("udp port 9".to_owned()),
            os: Some("Linux".to_owned()),
            ..CaptureInterface::new(LINK_ETHERNET)
        };
        writer.describe(&interface, &mut file);
    }
    writer.record(0, STAMP, 60, &FRAME, &mut file);
    let second = EnhancedPacket {
        interface: 1,
        ticks: STAMP + 1000,
        original_len: 60,
        captured: &FRAME[..45],
        options: PacketOptions {
            flags: Some(1),
            drop_count: Some(7),
            packet_id: Some(99),
            queue: Some(3),
            comment: Some("cut here"),
        },
    };
    writer.packet(&second, &mut file);
    let custom = Custom {
        enterprise: 32_473,
        content: b"{\"waits\":0}",
    };
    custom.write(&mut file);
    let statistics = Statistics {
        interface: 1,
        stamp_ns: STAMP + 2000,
        start_ns: Some(STAMP),
        end_ns: Some(STAMP + 2000),
        if_received: Some(9),
        if_dropped: Some(0),
        filter_accepted: Some(8),
        os_dropped: Some(7),
        delivered: Some(1),
    };
    writer.statistics(&statistics, &mut file);
    file
}

#[test]
fn tcpdump_reads_what_we_write() {
    let args = ["-r", "-", "-e", "-n", "-tt", "--nano"];
    let tail = " 02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype IPv4 (0x0800), length 60: 10.77.0.1.9 > 10.77.0.2.9: UDP, length 18";
    for (file, first) in [
        (pcap(Precision::Nano), "1700000000.123456789"),
        (pcap(Precision::Micro), "1700000000.123456000"),
        (pcapng(), "1700000000.123456789"),
    ] {
        let Some(text) = judge("tcpdump", &args, &file) else {
            return;
        };
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0], format!("{first}{tail}"));
    }
}

#[test]
fn tshark_reads_what_we_write() {
    let fields = |names: &[&'static str]| {
        let mut args = vec!["-r", "-", "-n", "-T", "fields", "-E", "separator=|"];
        for name in names {
            args.extend(["-e", name]);
        }
        args
    };
    let args = fields(&[
        "frame.time_epoch",
        "frame.cap_len",
        "frame.len",
        "frame.interface_name",
        "frame.interface_description",
        "frame.comment",
        "frame.packet_flags",
        "frame.drop_count",
        "frame.packet_id",
        "frame.interface_queue",
    ]);
    let Some(text) = judge("tshark", &args, &pcapng()) else {
        return;
    };
    // tshark lists the custom block, too, as a third line without a time.
    let lines: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(
        lines,
        [
            "1700000000.123456789|60|60|left|the left one|||||",
            "1700000000.123457789|45|60|right|the right one|cut here|0x00000001|7|99|3"
        ]
    );

    let args = fields(&["frame.time_epoch", "frame.cap_len", "frame.len"]);
    let text = judge("tshark", &args, &pcap(Precision::Micro)).unwrap();
    assert_eq!(
        text,
        "1700000000.123456000|60|60\n1700000001.123456000|42|1514\n"
    );
}
