//! Plays the vectors under `tests/vectors`: writes, expected reads and expected frames.
//!
//! One statement per line; `#` begins a comment. `\n \t \r \0 \\ \xHH` stand for bytes.
//!
//! | line | meaning |
//! |---|---|
//! | `interface NAME key=value…` | adds or changes an interface of the machine |
//! | `option key=value…` | options of later folders |
//! | `fresh` | a new folder |
//! | `> FILE BYTES` | one write, which succeeds unless `! ERRNO` follows |
//! | `= FILE TEXT` | text after `Result: ` |
//! | `+ FILE LINE` | a line that the file contains |
//! | `< FILE` | a read; its lines follow, each after a bar |
//! | `~ FILE N` | N lines are read; the lines that differ from a new device follow |
//! | `run key=value…` | start, send everything, stop |
//! | `frame HEX` | the next frame sent; the last of a group is the last sent |
//! | `fields …` | the fields of the next frame sent |
//! | `last HEX` | the last frame sent |
//! | `sent N` | frames sent |
//! | `arrive cpu=N at=NS time=NS` | the receiver sees 60 bytes |
//!
//! In lines after a bar `*` stands for any number.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use wb_model::units::Mac;
use wb_pktgen::control::{ControlOptions, PktgenFiles};
use wb_pktgen::errno::Errno;
use wb_pktgen::machine::{DeviceTime, Interface, Link, PktgenMachine};
use wb_pktgen::pgrx::ReceiverDialect;
use wb_pktgen_device::TimeForm;
use wb_wire::PktgenTag;

#[derive(Default)]
struct Host {
    interfaces: BTreeMap<String, Interface>,
    unprivileged: bool,
}

impl PktgenMachine for Host {
    fn interface(&self, name: &str) -> Option<Interface> {
        self.interfaces.get(name).cloned()
    }
    fn node_possible(&self, node: i32) -> bool {
        node == 0
    }
    fn may_administer(&self) -> bool {
        !self.unprivileged
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match rest.next().expect("a byte after a backslash") {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'0' => 0,
            b'x' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    out
}

fn escape(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(*byte)),
            other => write!(text, "\\x{other:02x}").unwrap(),
        }
        text
    })
}

/// Returns true if `text` matches `pattern`, in which `*` stands for digits.
fn matches(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    for (index, part) in pattern.split('*').enumerate() {
        if index > 0 {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        match rest.strip_prefix(part) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

struct Player {
    host: Host,
    options: ControlOptions,
    folder: PktgenFiles,
    frames: VecDeque<Vec<u8>>,
    mono_ns: u64,
    place: String,
    /// Differences, all printed at the end.
    failures: Vec<String>,
}

impl Player {
    fn new() -> Self {
        let mut host = Host::default();
        host.interfaces
            .insert("eth0".to_owned(), Interface::default());
        Self {
            host,
            options: ControlOptions::default(),
            folder: PktgenFiles::new([0, 1], ControlOptions::default()),
            frames: VecDeque::new(),
            mono_ns: 1_000_000_000,
            place: String::new(),
            failures: Vec::new(),
        }
    }

    fn read(&self, file: &str) -> Vec<u8> {
        self.folder
            .read(file, &self.host, self.mono_ns)
            .unwrap_or_else(|e| panic!("{}: reading {file}: {e}", self.place))
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = escape(&self.read(file));
        let text = text.strip_suffix("\\n").expect("a last line feed");
        text.split("\\n").map(str::to_owned).collect()
    }

    fn result(&self, file: &str) -> String {
        let text = escape(&self.read(file));
        let at = text.find("Result: ").expect("a Result line");
        text[at + 8..].strip_suffix("\\n").unwrap().to_owned()
    }

    fn interface(&mut self, words: &[&str]) {
        let interface = self.host.interfaces.entry(words[0].to_owned()).or_default();
        for (key, value) in words[1..].iter().map(|w| w.split_once('=').unwrap()) {
            match key {
                "mac" => interface.mac = value.parse::<Mac>().unwrap(),
                "ipv4" => interface.ipv4 = Some(value.parse().unwrap()),
                "linklocal" => interface.link_local = Some(value.parse().unwrap()),
                "queues" => interface.tx_queues = value.parse().unwrap(),
                "mtu" => interface.mtu = value.parse().unwrap(),
                "up" => interface.up = value == "yes",
                "shares" => interface.shares_packets = value == "yes",
                "link" => {
                    interface.link = match value {
                        "loopback" => Link::Loopback,
                        "ethernet" => Link::Ethernet,
                        _ => Link::Other,
                    }
                }
                other => panic!("{}: {other}", self.place),
            }
        }
    }

    fn option(&mut self, words: &[&str]) {
        for (key, value) in words.iter().map(|w| w.split_once('=').unwrap()) {
            match (key, value) {
                ("strict", _) => self.options.strict_sharing = value == "yes",
                ("privileged", _) => self.host.unprivileged = value == "no",
                ("time", "osta") => self.options.time_form = TimeForm::Osta,
                ("time", _) => self.options.time_form = TimeForm::Kernel,
                ("receiver", "osta36") => self.options.receiver = ReceiverDialect::Osta36,
                ("receiver", _) => self.options.receiver = ReceiverDialect::Osta,
                other => panic!("{}: {other:?}", self.place),
            }
        }
    }

    fn run(&mut self, words: &[&str]) {
        let mut time = DeviceTime {
            wall_ns: 1_700_000_000_000_000_000,
            mono_ns: self.mono_ns,
        };
        for (key, value) in words.iter().map(|w| w.split_once('=').unwrap()) {
            let value = value.parse().unwrap();
            match key {
                "wall" => time.wall_ns = value,
                "mono" => time.mono_ns = value,
                other => panic!("{}: {other}", self.place),
            }
        }
        assert!(self.frames.is_empty(), "{}: frames left over", self.place);
        for mut job in self.folder.start_devices(self.mono_ns, 1, &self.host) {
            while let Some((frame, _)) = job.walker.next(time) {
                self.frames.push_back(frame);
                assert!(self.frames.len() < 100_000, "{}: no end", self.place);
            }
            self.mono_ns += 1_000_000;
            self.folder.record_end(job.id, &job.walker, self.mono_ns, 0);
        }
    }

    fn arrive(&mut self, words: &[&str]) {
        let values: BTreeMap<_, u64> = words
            .iter()
            .map(|w| w.split_once('=').unwrap())
            .map(|(k, v)| (k, v.parse().unwrap()))
            .collect();
        let tag = values.get("time").map(|time| PktgenTag {
            sequence: 1,
            time: [(time >> 32) as u32, *time as u32],
        });
        let now = DeviceTime {
            wall_ns: 1_700_000_000_000_000_000 + values["at"],
            mono_ns: values["at"],
        };
        self.folder
            .receiver_mut()
            .count_arrival(values["cpu"] as u32, 60, now, tag);
    }

    /// Fields `dst-mac src-mac vlan… src dst sport dport id seq len` of an untagged IPv4 frame.
    fn fields(frame: &[u8]) -> String {
        let hex = |b: &[u8]| -> String { b.iter().map(|b| format!("{b:02x}")).collect() };
        let quad = |b: &[u8]| format!("{}.{}.{}.{}", b[0], b[1], b[2], b[3]);
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        format!(
            "{} {} {} {} {} {} {} {} {}",
            frame.len(),
            hex(&frame[0..6]),
            hex(&frame[6..12]),
            quad(&frame[26..30]),
            quad(&frame[30..34]),
            word(34),
            word(36),
            word(18),
            u32::from_be_bytes(frame[46..50].try_into().unwrap())
        )
    }

    fn play(&mut self, name: &str, script: &str) {
        let mut lines = script.lines().enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            self.place = format!("{name}:{}", number + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            let words: Vec<_> = rest.split_whitespace().collect();
            let (file, text) = rest.split_once(' ').unwrap_or((rest, ""));
            if !matches!(verb, "frame" | "fields" | "sent" | "last") && !self.frames.is_empty() {
                // The test does not check this group.
                self.frames.clear();
            }
            let mut barred = || {
                let mut all = Vec::new();
                while let Some((_, line)) = lines.next_if(|(_, l)| l.starts_with('|')) {
                    all.push(line[1..].to_owned());
                }
                all
            };
            match verb {
                "interface" => self.interface(&words),
                "option" => self.option(&words),
                "fresh" => self.folder = PktgenFiles::new([0, 1], self.options),
                ">" => {
                    let got = self.folder.write(file, &unescape(text), &self.host);
                    let wanted = lines.next_if(|(_, l)| l.starts_with("! ")).map(|(_, l)| {
                        *Errno::ALL
                            .iter()
                            .find(|e| e.name() == &l[2..])
                            .unwrap_or_else(|| panic!("{}: {l}", self.place))
                    });
                    let got = got.err();
                    self.check(got == wanted, || {
                        format!("{line}\n wanted {wanted:?}, got {got:?}")
                    });
                }
                "=" => {
                    let got = self.result(file);
                    self.check(matches(text, &got), || {
                        format!("{line}\n wanted {text}\n got    {got}")
                    });
                }
                "+" => {
                    let got = self.lines(file);
                    self.check(got.iter().any(|l| matches(text, l)), || {
                        format!("{line}\n got\n{}", got.join("\n"))
                    });
                }
                "<" => {
                    let wanted = barred();
                    let got = self.lines(file);
                    let same = got.len() == wanted.len()
                        && wanted.iter().zip(&got).all(|(w, g)| matches(w, g));
                    self.check(same, || {
                        let (wanted, got) = (wanted.join("\n"), got.join("\n"));
                        format!("{line}\n wanted\n{wanted}\n got\n{got}")
                    });
                }
                "~" => {
                    let wanted = barred();
                    let all = self.lines(file);
                    let interface = file.split('@').next().unwrap();
                    let mac = self.host.interfaces[interface].mac;
                    let got: Vec<_> = all
                        .iter()
                        .filter(|l| !is_fresh(l, file, mac))
                        .cloned()
                        .collect();
                    let same = got.len() == wanted.len()
                        && wanted.iter().zip(&got).all(|(w, g)| matches(w, g));
                    let number = all.len();
                    self.check(same && number.to_string() == text, || {
                        let (wanted, got) = (wanted.join("\n"), got.join("\n"));
                        format!("{line}\n wanted\n{wanted}\n got {number}\n{got}")
                    });
                }
                "run" => self.run(&words),
                "frame" => {
                    let frame = self.frames.pop_front().unwrap_or_default();
                    let got: String = frame.iter().map(|b| format!("{b:02x}")).collect();
                    self.check(rest == got, || format!(" wanted {rest}\n got    {got}"));
                    self.end_of_group(lines.peek().map(|(_, l)| *l));
                }
                "fields" => {
                    let frame = self.frames.pop_front().expect("a frame");
                    let got = Self::fields(&frame);
                    self.check(rest == got, || format!(" wanted {rest}\n got    {got}"));
                    self.end_of_group(lines.peek().map(|(_, l)| *l));
                }
                "sent" => {
                    let got = self.frames.len();
                    self.check(rest == got.to_string(), || format!("{line}, got {got}"));
                }
                "last" => {
                    self.frames.drain(..self.frames.len().saturating_sub(1));
                    let frame = self.frames.pop_front().unwrap_or_default();
                    let got: String = frame.iter().map(|b| format!("{b:02x}")).collect();
                    self.check(rest == got, || format!(" wanted {rest}\n got    {got}"));
                }
                "sending" => self.folder.receiver_mut().set_sending(rest == "on"),
                "arrive" => self.arrive(&words),
                other => panic!("{}: {other}", self.place),
            }
        }
    }

    fn check(&mut self, right: bool, told: impl FnOnce() -> String) {
        if !right {
            self.failures.push(format!("{}: {}", self.place, told()));
        }
    }

    fn end_of_group(&mut self, next: Option<&str>) {
        let more = next.is_some_and(|l| l.starts_with("frame ") || l.starts_with("fields "));
        let left = self.frames.len();
        self.check(more || left == 0, || {
            format!("{left} frames more were sent")
        });
    }
}

/// Returns true if a new device has the line.
fn is_fresh(line: &str, device: &str, mac: Mac) -> bool {
    const FRESH: &str = "\
Params: count 1000  min_pkt_size: 0  max_pkt_size: 0
     flows: 0 flowlen: 0
     queue_map_min: 0  queue_map_max: 0
     dst_min:   dst_max: 
     src_min:   src_max: 
     udp_src_min: 9  udp_src_max: 9  udp_dst_min: 9  udp_dst_max: 9
     src_mac_count: 0  dst_mac_count: 0
     Flags: SHARED  
Current:
     pkts-sofar: 0  errors: 0
     started: 0us  stopped: 0us idle: 0us
     seq_num: 0  cur_dst_mac_offset: 0  cur_src_mac_offset: 0
     cur_saddr: 0.0.0.0  cur_daddr: 0.0.0.0
     cur_udp_dst: 0  cur_udp_src: 0
     cur_queue_map: 0
     flows: 0
Result: Idle";
    FRESH.split('\n').any(|l| l == line)
        || line == format!("     frags: 0  delay: 0  clone_skb: 0  ifname: {device}")
        || line == format!("     src_mac: {mac} dst_mac: 00:00:00:00:00:00")
}

/// Maximum number of differences printed in full.
const SHOWN: usize = 20;

fn play(name: &str) {
    let path = format!("{}/tests/vectors/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let script = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut player = Player::new();
    player.play(name, &script);
    let failures = &player.failures;
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures[..failures.len().min(SHOWN)].join("\n")
    );
}

macro_rules! vectors {
    ($($name:ident)*) => {
        $(#[test] fn $name() { play(stringify!($name)); })*
    };
}

vectors! { text packets receiver drawn_commands drawn_runs }
