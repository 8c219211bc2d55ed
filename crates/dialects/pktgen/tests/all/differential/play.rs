//! Plays recorded answers of a kernel on a [`PktgenFiles`] and compares every answer and every frame.
//!
//! | line | meaning |
//! |---|---|
//! | `fresh` | `reset` |
//! | `sequence` | the next steps do not depend on the previous ones |
//! | `> FILE BYTES` | one write; `! WHY` after it: it failed |
//! | `run FROM TO` | a run and its bounds, in us of CLOCK_REALTIME |
//! | `frame HEX` | the next frame of the run |
//! | `< FILE` | a read; its lines follow, each after a bar |
//!
//! At an intentional difference between folder and kernel, the rest of the sequence is skipped and the reason
//! counted.

use std::collections::{BTreeMap, BTreeSet};

use wb_model::device::{DeviceConfig, Flags};
use wb_model::units::Mac;
use wb_pktgen::control::{ControlOptions, PktgenFiles};
use wb_pktgen::errno::Errno;
use wb_pktgen::machine::{DeviceTime, Interface, Link, PktgenMachine};

use super::parts::{Drawn, Part, Parts};

/// Interfaces of the machine.
pub(crate) struct Host;

impl PktgenMachine for Host {
    fn interface(&self, name: &str) -> Option<Interface> {
        let (last, queues) = match name {
            "eth0" => (0x01, 1),
            "va" => (0x0a, 2),
            "vq" => (0x0c, 4),
            "dn" => (0x0d, 2),
            "lo" => (0, 1),
            _ => return None,
        };
        let first = if name == "lo" { 0 } else { 2 };
        Some(Interface {
            mac: Mac([first, 0, 0, 0, 0, last]),
            up: name != "dn",
            link: if name == "lo" {
                Link::Loopback
            } else {
                Link::Ethernet
            },
            ipv4: (name == "eth0").then(|| [192, 0, 2, 1].into()),
            link_local: (name == "eth0").then(|| "fe80::1".parse().unwrap()),
            tx_queues: queues,
            shares_packets: name == "eth0",
            ..Interface::default()
        })
    }

    fn node_possible(&self, node: i32) -> bool {
        node == 0
    }

    fn may_administer(&self) -> bool {
        true
    }
}

/// Numbers of compared and skipped items, with reasons.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) commands: usize,
    pub(crate) texts: usize,
    pub(crate) runs: usize,
    pub(crate) frames: usize,
    pub(crate) drawn_frames: usize,
    /// Skipped sequences, by reason.
    pub(crate) departures: BTreeMap<&'static str, usize>,
    pub(crate) commands_left_out: usize,
}

/// Answers of the kernel and of the folder.
#[derive(Debug)]
struct Answers<'a> {
    file: &'a str,
    /// The preceding write, without separators at both ends.
    written: &'a str,
    errno: (&'a str, &'a str),
    text: (&'a str, &'a str),
}

impl Answers<'_> {
    fn command(&self) -> (&str, &str) {
        let separates = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '"' | '=');
        let (name, rest) = self
            .written
            .split_once(separates)
            .unwrap_or((self.written, ""));
        (name, rest.trim_matches(separates))
    }

    /// Returns true if the texts differ, but only in lines that begin with one of `these`.
    fn differ_only_in(&self, these: &[&str]) -> bool {
        let differing = differing(self.text.0, self.text.1);
        !differing.is_empty()
            && differing
                .iter()
                .all(|(k, o)| these.iter().any(|t| k.starts_with(t) && o.starts_with(t)))
    }
}

fn differing<'a>(kernel: &'a str, ours: &'a str) -> Vec<(&'a str, &'a str)> {
    let (mut k, mut o) = (kernel.lines(), ours.lines());
    let mut all = Vec::new();
    loop {
        match (k.next(), o.next()) {
            (None, None) => return all,
            (k, o) if k == o => {}
            (k, o) => all.push((k.unwrap_or("(nothing)"), o.unwrap_or("(nothing)"))),
        }
    }
}

/// An intentional difference from the kernel.
struct Departure {
    reason: &'static str,
    explains: fn(&Answers<'_>) -> bool,
}

/// All differences visible in commands. A difference that none of them explains is a defect.
const DEPARTURES: &[Departure] = &[
    Departure {
        reason: "names of older versions are understood",
        explains: |a| {
            let (name, _) = a.command();
            matches!(name, "ipg" | "dstmac" | "srcmac" | "config") && a.errno.0 == "EINVAL"
        },
    },
    Departure {
        reason: "NODE_ALLOC is another name of NODE",
        explains: |a| {
            let (name, argument) = a.command();
            name == "flag"
                && argument.trim_start_matches('!').starts_with("NODE_ALLOC")
                && a.text.0.contains("Result: Flag -:")
                && a.text.1.contains("Result: OK: flags=")
        },
    },
    Departure {
        reason: "clones and bursts go on every interface",
        explains: |a| {
            let (name, _) = a.command();
            matches!(name, "clone_skb" | "burst")
                && a.file.starts_with('v')
                // A mix and unshared packets have separate reasons, checked later.
                && matches!(a.errno, ("EOPNOTSUPP", "" | "EINVAL"))
        },
    },
    Departure {
        reason: "pkt_size sets both bounds, even if the lower one stays",
        explains: |a| a.command().0 == "pkt_size" && a.differ_only_in(&["Params: count "]),
    },
    Departure {
        reason: "debug never makes a write fail",
        explains: |a| a.file.ends_with("@debug") && a.errno == ("EINVAL", ""),
    },
    Departure {
        reason: "a delay does not wrap",
        explains: |a| a.command().0 == "rate" && a.differ_only_in(&["     frags: "]),
    },
];

/// Differences visible in runs.
const MIX_COUNTERS: &str = "counters of a mix begin anew with each run";
const MIX_SHARES: &str = "an entry of a mix without a share is never sent";
const WALKED: &str = "a walked source address begins anew with each run";
const FLOWS: &str = "flows of other destinations are forgotten";
const TOO_LONG: &str = "a device whose frames the interface cannot send does not start";

/// All differences.
pub(crate) fn departures() -> impl Iterator<Item = &'static str> {
    let of_runs = [MIX_COUNTERS, MIX_SHARES, WALKED, FLOWS, TOO_LONG];
    DEPARTURES.iter().map(|d| d.reason).chain(of_runs)
}

#[derive(Default)]
struct Run {
    bounds_us: (u64, u64),
    frames: Vec<Vec<u8>>,
}

pub(crate) struct Player {
    folder: PktgenFiles,
    pub(crate) tally: Tally,
    place: String,
    written: String,
    errno: (String, String),
    /// The rest of the sequence is skipped.
    left_out: bool,
    mono_ns: u64,
    drawn: Option<(Drawn, Vec<Parts>, Vec<Parts>)>,
    /// Packets of each size of the mix in earlier runs of the sequence.
    earlier_mix: Vec<u64>,
    /// Destinations of flows in this sequence, for the kernel and for the folder.
    known: [BTreeSet<u32>; 2],
    pub(crate) failures: Vec<String>,
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => match rest.next().expect("a byte after a backslash") {
                b'n' => out.push(b'\n'),
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    let digits = std::str::from_utf8(&digits).unwrap().to_owned();
                    out.push(u8::from_str_radix(&digits, 16).unwrap());
                }
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
    out
}

/// Symbol of an error from its C library message.
fn errno_named(text: &str) -> String {
    let named = Errno::ALL.iter().find(|e| {
        let words = match e {
            Errno::Eperm => "Operation not permitted",
            Errno::Enoent => "No such file or directory",
            Errno::E2big => "Argument list too long",
            Errno::Ebusy => "Device or resource busy",
            Errno::Enodev => "No such device",
            Errno::Einval => "Invalid argument",
            Errno::Eopnotsupp => "Operation not supported",
            Errno::Enetdown => "Network is down",
        };
        words == text
    });
    named.map_or_else(|| text.to_owned(), |e| e.name().to_owned())
}

/// The text after `label` up to white space or a bracket.
fn value<'a>(line: &'a str, label: &str) -> Option<&'a str> {
    let rest = &line[line.find(label)? + label.len()..];
    Some(rest.split([' ', '(', ')']).next().unwrap_or(rest))
}

/// `line` with `*` in place of the value after `label`.
fn star(line: &str, label: &str) -> String {
    match value(line, label) {
        Some(old) => line.replacen(&format!("{label}{old}"), &format!("{label}*"), 1),
        None => line.to_owned(),
    }
}

/// Text with times, rates and the random fields of `drawn` masked.
fn mask(text: &str, drawn: Option<&Drawn>) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut line = line.to_owned();
        if line.contains(") usec, ") {
            let (_, rest) = line.split_once(" usec, ").unwrap();
            line = format!("Result: OK: *(c*+d*) usec, {rest}");
        } else if line.starts_with("  ")
            && line.contains("pps ")
            && line.ends_with(|c: char| c.is_ascii_digit())
        {
            line = "  *pps".to_owned();
        }
        for label in ["started: ", "stopped: ", "idle: ", "errors: "] {
            line = star(&line, label);
        }
        let has = |part| drawn.is_some_and(|d| d.has(part));
        for (part, label) in [
            (Part::Sport, "cur_udp_src: "),
            (Part::Dport, "cur_udp_dst: "),
            (Part::Src, "cur_saddr: "),
            (Part::Dst, "cur_daddr: "),
            (Part::Vlan, "     vlan_id: "),
            (Part::Svlan, "     svlan_id: "),
        ] {
            if has(part) {
                line = star(&line, label);
            }
        }
        if has(Part::Labels) && line.starts_with("     mpls: ") {
            line = "     mpls: *".to_owned();
        }
        if (has(Part::Size) || has(Part::Mix)) && line.starts_with("Result: OK: *") {
            let (head, _) = line.split_once(" (").unwrap();
            line = format!("{head} (*)");
        }
        if has(Part::Mix) && line.starts_with("     imix_size_counts: ") {
            line = "     imix_size_counts: *".to_owned();
        }
        if drawn.is_some_and(|d| d.flows)
            && line.starts_with("     flows: ")
            && !line.contains("flowlen")
        {
            line = "     flows: *".to_owned();
        }
        if drawn.is_some() && line.starts_with("     cur_queue_map: ") {
            line = "     cur_queue_map: *".to_owned();
        }
        out += &line;
        out.push('\n');
    }
    out
}

impl Player {
    pub(crate) fn new() -> Self {
        Self {
            folder: PktgenFiles::new([0, 1], ControlOptions::default()),
            tally: Tally::default(),
            place: String::new(),
            written: String::new(),
            errno: Default::default(),
            left_out: false,
            mono_ns: 1_000_000_000,
            drawn: None,
            earlier_mix: Vec::new(),
            known: Default::default(),
            failures: Vec::new(),
        }
    }

    /// Records a difference. Only the first of a sequence counts, since it causes the others.
    fn fail(&mut self, text: &str) {
        self.failures.push(format!("{}: {text}", self.place));
        self.left_out = true;
    }

    fn depart(&mut self, reason: &'static str) {
        *self.tally.departures.entry(reason).or_default() += 1;
        self.left_out = true;
    }

    pub(crate) fn play(&mut self, name: &str, told: &str) {
        let mut lines = told.lines().enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            self.place = format!("{name}:{}", number + 1);
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            match verb {
                "#" | "" | "part" => {}
                "fresh" => {
                    // Previous answers of threads remain.
                    let _ = self.folder.write("pgctrl", b"reset\n", &Host);
                }
                "sequence" => {
                    self.left_out = false;
                    self.drawn = None;
                    self.earlier_mix.clear();
                    self.known = Default::default();
                }
                ">" => {
                    let failed = lines.next_if(|(_, l)| l.starts_with("! "));
                    self.write(rest, failed.map_or("", |(_, l)| &l[2..]));
                }
                "run" => {
                    let (from, to) = rest.split_once(' ').unwrap();
                    let mut run = Run {
                        bounds_us: (from.parse().unwrap(), to.parse().unwrap()),
                        frames: Vec::new(),
                    };
                    while let Some((_, line)) = lines.next_if(|(_, l)| l.starts_with("frame ")) {
                        let hex = &line.as_bytes()[6..];
                        let byte = |two: &[u8]| {
                            u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()
                        };
                        run.frames.push(hex.chunks(2).map(byte).collect());
                    }
                    if !self.left_out {
                        self.run(&run);
                    }
                }
                "<" => {
                    let mut text = String::new();
                    while let Some((_, line)) = lines.next_if(|(_, l)| l.starts_with('|')) {
                        text += &line[1..];
                        text.push('\n');
                    }
                    if !self.left_out {
                        self.read(rest, &text);
                    }
                }
                other => panic!("{}: {other}", self.place),
            }
        }
    }

    fn write(&mut self, rest: &str, failed: &str) {
        if self.left_out {
            self.tally.commands_left_out += 1;
            return;
        }
        let (file, text) = rest.split_once(' ').unwrap();
        let bytes = unescape(text);
        let ours = match self.folder.write(file, &bytes, &Host) {
            Ok(_) => "",
            Err(errno) => errno.name(),
        };
        self.tally.commands += 1;
        let lossy = String::from_utf8_lossy(&bytes).into_owned();
        self.written = lossy
            .trim_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '"' | '=' | '\0'))
            .to_owned();
        self.errno = (errno_named(failed), ours.to_owned());
        if self.errno.0 == self.errno.1 {
            return;
        }
        let (kernel, ours) = self.errno.clone();
        let written = self.written.clone();
        if !self.explained(&Answers {
            file,
            written: &written,
            errno: (&kernel, &ours),
            text: ("", ""),
        }) {
            self.fail(&format!("{rest}\n kernel {kernel:?}, ours {ours:?}"));
        }
    }

    fn explained(&mut self, answers: &Answers<'_>) -> bool {
        let departure = DEPARTURES.iter().find(|d| (d.explains)(answers));
        if let Some(departure) = departure {
            self.depart(departure.reason);
        }
        departure.is_some()
    }

    fn read(&mut self, file: &str, kernel: &str) {
        let ours = match self.folder.read(file, &Host, self.mono_ns) {
            Ok(bytes) => {
                // Escaped like the recorded lines of the kernel.
                let lines: Vec<_> = bytes
                    .split(|b| *b == b'\n')
                    .map(super::kernel::escape)
                    .collect();
                lines.join("\n")
            }
            Err(_) => String::new(),
        };
        self.tally.texts += 1;
        let drawn = self.drawn.take();
        let masked = |text: &str| mask(text, drawn.as_ref().map(|d| &d.0));
        let (k, o) = (masked(kernel), masked(&ours));
        if k != o {
            let (written, errno) = (self.written.clone(), self.errno.clone());
            let answers = Answers {
                file,
                written: &written,
                errno: (&errno.0, &errno.1),
                text: (&k, &o),
            };
            if !self.explained(&answers) {
                let lines: Vec<_> = differing(&k, &o)
                    .iter()
                    .map(|(k, o)| format!(" kernel {k}\n ours   {o}"))
                    .collect();
                self.fail(&format!("{file} after `{written}`\n{}", lines.join("\n")));
            }
        } else if let Some((drawn, of_kernel, of_ours)) = &drawn {
            let wrong = self
                .shown(drawn, kernel, of_kernel, true)
                .err()
                .or_else(|| {
                    self.shown(drawn, &ours, of_ours, false)
                        .err()
                        .map(|e| format!("ours: {e}"))
                });
            if let Some(wrong) = wrong {
                self.fail(&format!("{file} after a run: {wrong}"));
            }
        }
        if self.earlier_mix.iter().any(|n| *n > 0) && !self.left_out {
            // Already compared above; nothing else differs.
            *self.tally.departures.entry(MIX_COUNTERS).or_default() += 1;
        }
        if let Some((drawn, of_kernel, _)) = &drawn {
            let tally = mix_of(drawn, of_kernel);
            self.earlier_mix.resize(tally.len(), 0);
            for (sum, n) in self.earlier_mix.iter_mut().zip(tally) {
                *sum += n;
            }
        }
    }

    /// Checks that the random values in a text are those of the last frame.
    fn shown(
        &self,
        drawn: &Drawn,
        text: &str,
        frames: &[Parts],
        kernel: bool,
    ) -> Result<(), String> {
        let Some(last) = frames.last() else {
            return Ok(());
        };
        let all = text.lines().find_map(|l| value(l, "cur_queue_map: "));
        let limits = |label| -> u32 {
            let shown = text.lines().find_map(|l| value(l, label)).unwrap_or("0");
            shown.parse().unwrap_or(0)
        };
        let queue: u32 = all.unwrap_or("0").parse().unwrap_or(u32::MAX);
        if text.contains("QUEUE_MAP_RND") && !text.contains("QUEUE_MAP_CPU") {
            let (low, high) = (limits("queue_map_min: "), limits("queue_map_max: "));
            if low <= high && !(low..=high).contains(&queue) {
                return Err(format!("cur_queue_map {queue} is not in {low}..={high}"));
            }
        }
        if drawn.flows {
            let line = text.lines().rfind(|l| l.starts_with("     flows: "));
            let started: usize = line.and_then(|l| l[12..].parse().ok()).unwrap_or(0);
            let (flows, len) = (limits("flows: ") as usize, limits("flowlen: ") as usize);
            if frames.len() > (started + flows) * (len + 1) || started > frames.len() {
                return Err(format!("{} frames of {started} flows", frames.len()));
            }
        }
        let v6 = last.network[0] == 6;
        let address = |a: u128| {
            if v6 {
                std::net::Ipv6Addr::from(a).to_string()
            } else {
                std::net::Ipv4Addr::from(a as u32).to_string()
            }
        };
        let id = |tag: Option<&u16>| (tag.copied().unwrap_or(0) & 0xfff).to_string();
        for (part, label, wanted) in [
            (Part::Sport, "cur_udp_src: ", last.sport.to_string()),
            (Part::Dport, "cur_udp_dst: ", last.dport.to_string()),
            (Part::Src, "cur_saddr: ", address(last.src)),
            (Part::Dst, "cur_daddr: ", address(last.dst)),
            (Part::Vlan, "     vlan_id: ", id(last.tags.last())),
            (Part::Svlan, "     svlan_id: ", id(last.tags.first())),
        ] {
            let shown = text.lines().find_map(|l| value(l, label));
            if drawn.has(part) && shown != Some(&wanted) {
                return Err(format!("{label}{shown:?}, the last frame has {wanted}"));
            }
        }
        if drawn.has(Part::Labels) {
            let line = text.lines().find_map(|l| l.strip_prefix("     mpls: "));
            let words: Vec<_> = line
                .unwrap_or("")
                .split(", ")
                .map(|w| u32::from_str_radix(w, 16))
                .collect();
            let same = words
                .iter()
                .zip(&last.labels)
                .all(|(w, l)| w.as_ref().is_ok_and(|w| w & !0x100 == l & !0x100));
            if !same {
                return Err(format!("{line:?}, the last frame has {:x?}", last.labels));
            }
        }
        if drawn.has(Part::Size) || drawn.has(Part::Mix) {
            let shown = text.lines().find_map(|l| value(l, " ("));
            let size: u32 = shown
                .and_then(|s| s.split_once("byte")?.0.parse().ok())
                .unwrap_or(0);
            if text.contains(") usec, ") && drawn.len(size_of_result(text)) != last.len {
                return Err(format!("({size}byte, the last frame has {}", last.len));
            }
        }
        if drawn.has(Part::Mix) {
            // For sizes below the smallest frame only the sum is visible.
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix("     imix_size_counts: "));
            let mut shown = BTreeMap::<_, u64>::new();
            for pair in line.unwrap_or("").split_whitespace() {
                let (size, n) = pair.split_once(',').unwrap_or((pair, "0"));
                *shown.entry(drawn.len(size.parse().unwrap())).or_default() +=
                    n.parse::<u64>().unwrap();
            }
            let mut sent = BTreeMap::<_, u64>::new();
            for (index, (size, n)) in drawn.sizes().zip(mix_of(drawn, frames)).enumerate() {
                let before = if kernel {
                    self.earlier_mix.get(index).copied().unwrap_or(0)
                } else {
                    0
                };
                *sent.entry(drawn.len(size)).or_default() += n + before;
            }
            if shown != sent {
                return Err(format!("counts of the mix {shown:?}, sent {sent:?}"));
            }
        }
        Ok(())
    }

    fn run(&mut self, run: &Run) {
        self.tally.runs += 1;
        let jobs = self.folder.start_devices(self.mono_ns, 7, &Host);
        self.mono_ns += 1_000_000;
        let Some(mut job) = jobs.into_iter().next() else {
            if run.frames.iter().any(|f| f.len() > 1514) {
                self.depart(TOO_LONG);
            } else {
                self.fail("does not start");
            }
            return;
        };
        let interface = Host.interface(&job.interface).unwrap();
        let config = job.walker.config().clone();
        let drawn = Drawn::of(&config, &interface);
        // Only frames of eth0 are captured.
        let seen = job.interface == "eth0";
        let (mut of_kernel, mut of_ours) = (Vec::new(), Vec::new());
        let mut number = 0;
        loop {
            let wall_ns = match run.frames.get(number).map(|f| Parts::of(f)) {
                Some(Err(wrong)) => return self.fail(&format!("frame {number}: kernel's {wrong}")),
                Some(Ok(parts)) => {
                    u64::from(parts.time[0]) * 1_000_000_000 + u64::from(parts.time[1]) * 1000
                }
                None => 0,
            };
            let Some(call) = job.walker.poll(DeviceTime {
                wall_ns,
                mono_ns: 0,
            }) else {
                break;
            };
            let (frame, copies) = (call.frame.to_vec(), call.copies);
            job.walker.sent(copies);
            if !seen {
                of_ours.push(Parts::of(&frame).unwrap());
                continue;
            }
            for _ in 0..copies {
                let Some(kernel) = run.frames.get(number) else {
                    return self.fail(&format!("the kernel sent {number} frames, we more"));
                };
                let exact = drawn.parts.is_empty();
                match self.compare(&drawn, &config, kernel, &frame, run.bounds_us, exact) {
                    Ok((k, o)) => {
                        // A clone is not built again.
                        if of_kernel.last() != Some(&k) {
                            of_kernel.push(k);
                            of_ours.push(o);
                        }
                    }
                    Err(Difference::Meant(reason)) => return self.depart(reason),
                    Err(Difference::Defect(text)) => {
                        return self.fail(&format!("frame {number} of a run: {text}"));
                    }
                }
                number += 1;
            }
        }
        if seen && number != run.frames.len() {
            return self.fail(&format!(
                "the kernel sent {} frames, we {number}",
                run.frames.len()
            ));
        }
        if drawn.flows {
            for (known, frames) in self.known.iter_mut().zip([&of_kernel, &of_ours]) {
                if let Err(text) = follows_flows(&config, frames, known) {
                    return self.fail(&text);
                }
            }
        }
        self.folder.record_end(job.id, &job.walker, self.mono_ns, 0);
        let text_draws = drawn.flows || config.flags.has(Flags::QUEUE_MAP_RND);
        self.drawn = (!drawn.parts.is_empty() || text_draws).then_some((drawn, of_kernel, of_ours));
        "start".clone_into(&mut self.written);
    }

    fn compare(
        &mut self,
        drawn: &Drawn,
        config: &DeviceConfig,
        kernel: &[u8],
        ours: &[u8],
        bounds_us: (u64, u64),
        exact: bool,
    ) -> Result<(Parts, Parts), Difference> {
        let defect = |who: &str, text: String| Difference::Defect(format!("{who} {text}"));
        let k = Parts::of(kernel).map_err(|e| defect("kernel's:", e))?;
        let o = Parts::of(ours).map_err(|e| defect("ours:", e))?;
        if !config.flags.has(Flags::NO_TIMESTAMP) {
            let us = u64::from(k.time[0]) * 1_000_000 + u64::from(k.time[1]);
            if !(bounds_us.0..=bounds_us.1).contains(&us) {
                return Err(defect(
                    "kernel's",
                    format!("stamp {us} is not within {bounds_us:?}"),
                ));
            }
        }
        if exact && kernel.get(..ours.len()) != Some(ours)
            || !exact && drawn.compare(&k, &o).is_err()
        {
            let only = |change: fn(&mut Parts, &Parts)| {
                let mut o = o.clone();
                change(&mut o, &k);
                drawn.compare(&k, &o).is_ok()
            };
            if config.src_mac_count <= 1 && only(|o, k| o.src_mac = k.src_mac) {
                return Err(Difference::Meant(WALKED));
            }
            if config.flows > 0 && only(|o, k| o.dst = k.dst) {
                let (low, high) = config.destination_range();
                if !(low..=high.max(low)).contains(&(k.dst as u32)) {
                    return Err(Difference::Meant(FLOWS));
                }
            }
            if drawn.has(Part::Mix) && !drawn.has_share(&k) && drawn.has_share(&o) {
                return Err(Difference::Meant(MIX_SHARES));
            }
            let text = drawn
                .compare(&k, &o)
                .err()
                .unwrap_or_else(|| "bytes differ".to_owned());
            return Err(Difference::Defect(text));
        }
        self.tally.frames += 1;
        self.tally.drawn_frames += usize::from(!exact);
        Ok((k, o))
    }
}

enum Difference {
    Meant(&'static str),
    Defect(String),
}

fn size_of_result(text: &str) -> u32 {
    let line = text.lines().find(|l| l.contains(") usec, ")).unwrap_or("");
    let size = line
        .rsplit_once(" (")
        .and_then(|(_, s)| s.split_once("byte"));
    size.and_then(|(s, _)| s.parse().ok()).unwrap_or(0)
}

/// Number of frames of each size of the mix; frames of equal length count for the first such size.
fn mix_of(drawn: &Drawn, frames: &[Parts]) -> Vec<u64> {
    let lens: Vec<_> = drawn.sizes().map(|s| drawn.len(s)).collect();
    let mut counts = vec![0; lens.len()];
    for frame in frames {
        if let Some(index) = lens.iter().position(|l| *l == frame.len) {
            counts[index] += 1;
        }
    }
    counts
}

/// Checks that each destination is that of an earlier packet or follows the previous one.
fn follows_flows(
    config: &DeviceConfig,
    frames: &[Parts],
    known: &mut BTreeSet<u32>,
) -> Result<(), String> {
    if config.flags.has(Flags::IPDST_RND) {
        return Ok(());
    }
    let (low, high) = config.destination_range();
    let mut last = low;
    for frame in frames {
        let dst = frame.dst as u32;
        let next = if last >= high { low } else { last + 1 };
        if known.insert(dst) && dst != next {
            let dst = std::net::Ipv4Addr::from(dst);
            return Err(format!(
                "destination {dst} is neither a flow's nor the next"
            ));
        }
        last = dst;
    }
    Ok(())
}
