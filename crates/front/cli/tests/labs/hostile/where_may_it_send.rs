//! Permitted destinations: each source of frames with an address that is in use elsewhere. Without consent
//! none of them may be on the wire.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Output,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;
use tempfile::TempDir;
use wb_model::{
    Plan, PortPlan, Proto, Stream, TagKind, TrafficJob,
    device::{Defaults, DeviceConfig, DeviceJob, Flags},
    load::{
        Destinations, LoadEnd, LoadJob, LoadMessage, LoadRate, LoadShape, LoadTransport, Vxlan,
    },
    units::{AddressRange, Rate, Span},
};

use crate::kit::{self, Lab, Running, listening, privileged, run};

/// Returns true if an address belongs to others: a separate list, to verify that of the program.
fn is_somebodys(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            let [x, y, z, _] = a.octets();
            let on_the_link = a.is_broadcast() || [x, y, z] == [224, 0, 0];
            let nobodys = a.is_private() || a.is_link_local() || a.is_loopback();
            let tests = x == 198 && y & 0xfe == 18;
            !(on_the_link || nobodys || tests || a.is_documentation() || a.is_unspecified())
        }
        IpAddr::V6(a) => {
            let s = a.segments();
            let tests = s[..3] == [0x2001, 2, 0] || s[..2] == [0x2001, 0xdb8];
            let nobodys = matches!(s[0] >> 8, 0xfc | 0xfd) || s[0] & 0xffc0 == 0xfe80;
            !(tests || nobodys || s[0] == 0xff02 || a.is_loopback() || a.is_unspecified())
        }
    }
}

/// The addresses of a frame: behind VLAN tags and labels, and within VXLAN.
fn addresses(frame: &[u8]) -> Vec<IpAddr> {
    let word = |at: usize| {
        frame
            .get(at..at + 2)
            .map(|b| u16::from_be_bytes([b[0], b[1]]))
    };
    let v4 = |at: usize| {
        let bytes = frame.get(at..at + 4)?;
        Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?))
    };
    let v6 = |at: usize| {
        let bytes = frame.get(at..at + 16)?;
        Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?))
    };
    let (mut kind, mut at) = (word(12), 14);
    while matches!(kind, Some(0x8100 | 0x88a8 | 0x9100)) {
        (kind, at) = (word(at + 2), at + 4);
    }
    if kind == Some(0x8847) {
        while frame.get(at + 2).is_some_and(|b| b & 1 == 0) {
            at += 4;
        }
        at += 4;
        kind = match frame.get(at).map(|b| b >> 4) {
            Some(6) => Some(0x86dd),
            _ => Some(0x0800),
        };
    }
    match kind {
        Some(0x0806) => [v4(at + 14), v4(at + 24)].into_iter().flatten().collect(),
        Some(0x0800) => {
            let mut found: Vec<IpAddr> = [v4(at + 12), v4(at + 16)].into_iter().flatten().collect();
            if frame.get(at + 9) == Some(&17) && word(at + 22) == Some(4789) {
                found.extend(frame.get(at + 36..).map(addresses).unwrap_or_default());
            }
            found
        }
        Some(0x86dd) => [v6(at + 8), v6(at + 24)].into_iter().flatten().collect(),
        _ => Vec::new(),
    }
}

/// Frames that arrive at both ends, as seen by the taps there.
struct Eyes {
    captures: Vec<(Running, PathBuf, TempDir)>,
}

impl Eyes {
    fn open(lab: &Lab) -> Self {
        let captures = [lab.a0(), lab.b0()].map(|port| {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("seen.pcap");
            let mut command = kit::capture(&["-i", &port, "-w", file.to_str().unwrap(), "--json"]);
            (listening(dir.path(), &mut command), file, dir)
        });
        Self {
            captures: captures.into(),
        }
    }

    /// All frames that either has seen.
    fn close(self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for (capture, file, _dir) in self.captures {
            capture.signal(Signal::INT);
            capture.finish(std::time::Duration::from_secs(20));
            let bytes = fs::read(file).unwrap();
            let reader = wb_pcapng::CaptureReader::new(&bytes).unwrap();
            frames.extend(reader.map(|record| record.unwrap().captured.to_vec()));
        }
        frames
    }
}

fn strangers(frames: &[Vec<u8>]) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = frames
        .iter()
        .flat_map(|f| addresses(f))
        .filter(|a| is_somebodys(*a))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Numbers by chance, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    /// An address or range, one in five in use elsewhere.
    fn range(&mut self, v6: bool) -> AddressRange {
        let strange = self.one_in(5);
        let text = match (v6, strange) {
            (false, false) => self.of(&[
                "198.18.1.2",
                "198.19.1.2",
                "10.1.2.3-10.1.2.9",
                "192.168.7.0/30",
                "203.0.113.1",
            ]),
            (false, true) => self.of(&[
                "8.8.8.8",
                "198.19.255.254-198.20.0.9",
                "10.255.255.254-172.16.0.2",
                "1.2.3.0/29",
            ]),
            (true, false) => self.of(&["2001:2::1", "fd00::5-fd00::9", "2001:db8::/126"]),
            (true, true) => self.of(&["2600::1", "2001:2:0:ffff:ffff:ffff:ffff:fffe-2001:2:1::9"]),
        };
        text.parse().unwrap()
    }

    fn single(&mut self, v6: bool) -> AddressRange {
        AddressRange::single(self.range(v6).last())
    }
}

const MAC: &str = "02:00:00:00:00:0b";

/// A run that was drawn.
struct Drawn {
    kind: &'static str,
    /// Command line, in a folder with its files.
    arguments: Vec<String>,
    text: String,
}

/// Draws runs into a folder.
struct Draw<'a> {
    lab: &'a Lab,
    folder: &'a Path,
    dice: Dice,
    files: u32,
}

impl Draw<'_> {
    /// Uses the driver with frames that the taps see.
    fn port(&self, end: &str) -> PortPlan {
        let place = match end {
            "a" => self.lab.a0(),
            _ => self.lab.b0(),
        };
        PortPlan::new(end, format!("packet:{place}").parse().unwrap())
    }

    fn file(&mut self, suffix: &str, bytes: &[u8]) -> String {
        self.files += 1;
        let path = self.folder.join(format!("{}.{suffix}", self.files));
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn plan(&mut self, kind: &'static str, plan: &Plan) -> Drawn {
        let text = wb_model::text::plan_to_toml(plan);
        let file = self.file("toml", text.as_bytes());
        Drawn {
            kind,
            arguments: ["run", &file, "-q", "--json"].map(str::to_owned).into(),
            text,
        }
    }

    fn draw(&mut self, number: usize) -> Drawn {
        match number % 7 {
            0 => self.streams(),
            1 => self.raw(),
            2 => self.replay(),
            3 => self.loads(),
            4 => self.device(),
            5 => self.dperf(),
            _ => self.modified(),
        }
    }

    fn traffic(&self, stream: Stream, bidir: bool) -> Plan {
        Plan {
            kind: "run".to_owned(),
            ports: vec![self.port("a"), self.port("b")],
            traffic: vec![TrafficJob {
                tx: Some("a".to_owned()),
                rx: Some("b".to_owned()),
                bidir,
                count: Some(20),
                drain: Span::from_millis(20),
                streams: vec![Stream {
                    rate: "2kpps".parse::<Rate>().unwrap(),
                    // A fixed address avoids address resolution.
                    dst_mac: Some(MAC.parse().unwrap()),
                    src_mac: Some(MAC.parse().unwrap()),
                    mpls: vec![16],
                    ..stream
                }],
                ..TrafficJob::default()
            }],
            ..Plan::default()
        }
    }

    fn streams(&mut self) -> Drawn {
        let v6 = self.dice.one_in(3);
        let proto = match v6 {
            true => self.dice.of(&[Proto::Udp, Proto::Tcp, Proto::Icmp]),
            false => self
                .dice
                .of(&[Proto::Udp, Proto::Tcp, Proto::Icmp, Proto::Arp]),
        };
        let stream = Stream {
            proto,
            src: Some(self.dice.range(v6)),
            dst: Some(self.dice.range(v6)),
            ..Stream::default()
        };
        let bidir = self.dice.one_in(2);
        let mut plan = self.traffic(stream, bidir);
        if proto == Proto::Arp {
            plan.traffic[0].streams[0].mpls.clear();
        }
        self.plan("stream", &plan)
    }

    /// Modifiers of addresses, and of bytes anywhere.
    fn modified(&mut self) -> Drawn {
        let range = self.dice.range(false);
        let vary = match self.dice.below(3) {
            0 => format!("src=inc:{}-{}", range.first(), range.last()),
            1 => format!("dst=random:{}-{}", range.first(), range.last()),
            _ => format!(
                "u16@{}=random:0-65535",
                self.dice.of(&[26, 28, 30, 32, 38, 40])
            ),
        };
        let stream = Stream {
            vary: vec![vary.parse().unwrap()],
            size: Some("128".parse().unwrap()),
            ..Stream::default()
        };
        let mut plan = self.traffic(stream, false);
        // Offsets are of a frame without labels.
        plan.traffic[0].streams[0].mpls.clear();
        plan.traffic[0].rx = None;
        self.plan("modifier", &plan)
    }

    /// A packet of two addresses, without its Ethernet header.
    fn packet(&mut self) -> Vec<u8> {
        let (src, dst) = (
            self.dice.single(false).first(),
            self.dice.single(false).first(),
        );
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else {
            unreachable!("they are drawn of IPv4")
        };
        wb_wire::Stack::udp4(src, dst, 9, 9).build(60)[14..].to_vec()
    }

    fn raw(&mut self) -> Drawn {
        let packet = self.packet();
        let hex: String = packet.iter().map(|b| format!("{b:02x}")).collect();
        let stream = match self.dice.one_in(3) {
            // Within a tunnel.
            true => Stream {
                dport: Some("4789".parse().unwrap()),
                payload: Some(
                    format!("0800000000000100{}0800{hex}", "02".repeat(12))
                        .parse()
                        .unwrap(),
                ),
                ..Stream::default()
            },
            false => Stream {
                proto: Proto::Raw,
                ethertype: Some(0x0800),
                payload: Some(hex.parse().unwrap()),
                ..Stream::default()
            },
        };
        let mut plan = self.traffic(
            Stream {
                tag: TagKind::None,
                size: Some("128".parse().unwrap()),
                ..stream
            },
            false,
        );
        plan.traffic[0].streams[0].mpls.clear();
        plan.traffic[0].rx = None;
        self.plan("raw", &plan)
    }

    fn replay(&mut self) -> Drawn {
        let mut pcap = Vec::new();
        pcap.extend(0xa1b2_c3d4_u32.to_le_bytes());
        pcap.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        pcap.extend(65_535_u32.to_le_bytes());
        pcap.extend(1_u32.to_le_bytes());
        for _ in 0..3 {
            let mut frame = vec![2; 12];
            if self.dice.one_in(2) {
                frame.extend([0x81, 0, 0, 5]);
            }
            frame.extend([8, 0]);
            frame.extend(self.packet());
            pcap.extend([0; 8]);
            pcap.extend((frame.len() as u32).to_le_bytes());
            pcap.extend((frame.len() as u32).to_le_bytes());
            pcap.extend(frame);
        }
        let file = self.file("pcap", &pcap);
        let port = format!("packet:{}", self.lab.a0());
        let arguments = [
            "tx", "-i", &port, "--replay", &file, "--rate", "2kpps", "--count", "9", "-q", "--json",
        ];
        Drawn {
            kind: "replay",
            arguments: arguments.map(str::to_owned).into(),
            text: file,
        }
    }

    fn loads(&mut self) -> Drawn {
        let v6 = self.dice.one_in(3);
        let udp = self.dice.one_in(2);
        let flood = self.dice.one_in(3);
        let (clients, servers) = loop {
            let (a, b) = (self.dice.range(v6), self.dice.range(v6));
            if !a.contains(b.first()) && !b.contains(a.first()) {
                break (vec![a], vec![b]);
            }
        };
        let job = LoadJob {
            gateway_mac: Some(MAC.parse().unwrap()),
            transport: if udp {
                LoadTransport::Udp
            } else {
                LoadTransport::Tcp
            },
            clients,
            servers,
            shape: LoadShape {
                duration: Span::from_millis(100),
                drain: Span::from_millis(20),
                ..LoadShape::default()
            },
            ..LoadJob::default()
        };
        let mut client = LoadJob {
            port: "a".to_owned(),
            end: LoadEnd::Client,
            rate: LoadRate {
                cps: Some(200),
                ..LoadRate::default()
            },
            request: LoadMessage::Bytes(20),
            reading: wb_model::load::LoadReading::Segment,
            flood,
            ..job.clone()
        };
        if flood && self.dice.one_in(2) {
            client.destinations = vec![Destinations {
                addresses: self.dice.range(v6),
                step: 1,
            }];
        } else if self.dice.one_in(3) {
            client.vxlan = Some(Vxlan {
                vni: 5,
                src_mac: MAC.parse().unwrap(),
                dst_mac: MAC.parse().unwrap(),
                local: self.dice.single(false),
                remote: self.dice.single(false),
            });
        }
        let server = LoadJob {
            port: "b".to_owned(),
            end: LoadEnd::Server,
            answer: wb_model::load::LoadAnswer::Echo,
            gateway_mac: None,
            ..job
        };
        let both = self.dice.one_in(2) && client.vxlan.is_none();
        let plan = Plan {
            kind: "load".to_owned(),
            ports: vec![self.port("a"), self.port("b")],
            loads: if both {
                vec![client, server]
            } else {
                vec![client]
            },
            // A busy machine may keep a load from being offered.
            allow_unsent: true,
            ..Plan::default()
        };
        self.plan("load", &plan)
    }

    fn device(&mut self) -> Drawn {
        let mut settings = DeviceConfig::new("a0", &Defaults::default());
        settings.count = 20;
        settings.dst_mac = MAC.parse().unwrap();
        if self.dice.one_in(3) {
            settings.flags.put(Flags::IPV6, true);
            let (IpAddr::V6(src), IpAddr::V6(dst)) = (
                self.dice.single(true).first(),
                self.dice.single(true).first(),
            ) else {
                unreachable!("they are drawn of IPv6")
            };
            (settings.src6, settings.dst6) = (src, dst);
            if self.dice.one_in(2) {
                settings.dst6_min = dst;
                settings.dst6_max = self.dice.of(&["fd00::ffff", "ffff::ffff"]).parse().unwrap();
            }
        } else {
            let (src, dst) = (self.dice.range(false), self.dice.range(false));
            (settings.src_min, settings.src_max) =
                (src.first().to_string(), src.last().to_string());
            (settings.dst_min, settings.dst_max) =
                (dst.first().to_string(), dst.last().to_string());
            settings.flags.put(Flags::IPDST_RND, self.dice.one_in(2));
            settings.flags.put(Flags::IPSRC_RND, self.dice.one_in(2));
        }
        let plan = Plan {
            kind: "pktgen".to_owned(),
            ports: vec![self.port("a")],
            devices: vec![DeviceJob {
                port: "a".to_owned(),
                settings,
                ..DeviceJob::default()
            }],
            ..Plan::default()
        };
        self.plan("device", &plan)
    }

    fn dperf(&mut self) -> Drawn {
        // Most of these are refused, since one that is not takes its whole seconds.
        let text = format!(
            "mode client\ncpu 0\nduration 1s\nport 0000:1b:00.0 {} 198.18.0.1 {MAC}\nclient {} 1\nserver {} 1\nprotocol udp\ncps 100\nlisten 80 1\n",
            self.dice.single(false).first(),
            self.dice.of(&["8.8.8.8", "198.18.0.9"]),
            self.dice.of(&["8.8.4.4", "1.2.3.4"]),
        );
        let file = self.file("conf", text.as_bytes());
        let port = format!("0000:1b:00.0=packet:{}", self.lab.a0());
        let arguments = ["load", &file, "--port", &port, "-q", "--json"];
        Drawn {
            kind: "dperf",
            arguments: arguments.map(str::to_owned).into(),
            text,
        }
    }
}

/// Returns true if no frame of a run arrived at the expected place: the run says nothing about a device.
fn measured_nothing(report: &serde_json::Value, floods: bool) -> bool {
    let n = |value: &serde_json::Value, key: &str| value[key].as_u64().unwrap_or(0);
    let loads = report["load"]["jobs"].as_array().into_iter().flatten();
    let mut clients = loads
        .filter(|job| job["end"] == "client")
        .map(|job| &job["totals"]);
    let without_answer = |t: &serde_json::Value| {
        let (asked, unawaited) = (n(t, "requests"), n(t, "unawaited_requests"));
        // A flood of SYN segments establishes no connection.
        let floods = floods || asked > 0 && asked == unawaited;
        !floods && (n(t, "established_connections") == 0 || asked > 0 && n(t, "responses") == 0)
    };
    match report["kind"].as_str() {
        Some("load") => clients.any(without_answer),
        _ => {
            !report["totals"]["received_frames"].is_null()
                && n(&report["totals"], "received_frames") == 0
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn no_plan_puts_an_address_of_somebody_on_the_wire() {
    if !privileged() {
        return;
    }
    let seed = match std::env::var("WIREBENCH_SEED") {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_nanos() as u64
                | 1
        }
    };
    println!("WIREBENCH_SEED={seed} draws these plans again");
    let lab = Lab::up("pair", &[]);
    let folder = tempfile::tempdir().unwrap();
    let eyes = Eyes::open(&lab);
    let mut draw = Draw {
        lab: &lab,
        folder: folder.path(),
        dice: Dice(seed),
        files: 0,
    };
    let mut outcomes = Vec::new();
    for number in 0..35 {
        let drawn = draw.draw(number);
        let arguments: Vec<&str> = drawn.arguments.iter().map(String::as_str).collect();
        let output = run(&arguments);
        let said = said(&output);
        match output.status.code() {
            Some(2) => assert!(
                said.contains("--i-own-this-network"),
                "{}: refused for another reason: {said}\n{}",
                drawn.kind,
                drawn.text
            ),
            code => {
                let report = serde_json::from_slice(&output.stdout).unwrap();
                let expected = if measured_nothing(&report, drawn.text.contains("flood = true")) {
                    3
                } else {
                    0
                };
                let reason = &report["reason"];
                assert_eq!(
                    code,
                    Some(expected),
                    "{}: {reason}: {said}\n{}",
                    drawn.kind,
                    drawn.text
                );
            }
        }
        outcomes.push((drawn.kind, output.status.code() == Some(2)));
    }
    let frames = eyes.close();
    assert_eq!(strangers(&frames), [] as [IpAddr; 0], "seed {seed}");
    // Some runs were refused, but not all.
    let refused = outcomes.iter().filter(|(_, refused)| *refused).count();
    assert!((1..outcomes.len()).contains(&refused), "{outcomes:?}");
    assert!(
        frames.iter().any(|f| !addresses(f).is_empty()),
        "nothing was seen"
    );
}
