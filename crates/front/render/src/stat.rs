//! `wirebench stat`: intervals as text for a quick overview, as lines of JSON, and as CSV.

use std::fmt::Write;

use wb_counters::{
    LinkCounters, LinkRates, LinkState,
    advice::Advice,
    interrupts::Move,
    path::Between,
    stat_document::{DocumentKind, InterfaceStat, Probe, StatDocument},
};
use wb_model::schema::mismatch;

use crate::figures::{UNKNOWN, count};

/// Number of lines after which the header is repeated.
const HEADER_AFTER: usize = 20;

/// Counters that have columns; the others are named when they change.
const IN_COLUMNS: [&str; 5] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "multicast",
];

/// Formats intervals as text.
#[derive(Clone, Debug, Default)]
pub struct Text {
    omit_idle: bool,
    cpus: bool,
    width: usize,
    /// Lines since the last header.
    lines: Option<usize>,
    /// Advice already given.
    told: Vec<Advice>,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> String {
    count(value.round().max(0.0) as u64)
}

fn megabits(bps: Option<f64>) -> String {
    bps.map_or_else(|| UNKNOWN.to_owned(), |bps| format!("{:.3}", bps / 1e6))
}

/// A share of the wire speed, marked if it exceeds the capacity of a wire.
#[must_use]
pub fn percent(share: Option<f64>, over: bool) -> String {
    match share {
        None => UNKNOWN.to_owned(),
        // More than any wire carries: see the note below the line.
        Some(share) if over => format!(">{share:.1}"),
        Some(share) => format!("{share:.1}"),
    }
}

fn size(bytes: Option<f64>) -> String {
    bytes.map_or_else(|| UNKNOWN.to_owned(), |bytes| format!("{bytes:.0}"))
}

impl Text {
    /// `omit_idle` leaves out interfaces that counted nothing and were not requested by name. `cpus` adds a line for
    /// each CPU, not only for those that dropped packets.
    #[must_use]
    pub fn new(omit_idle: bool, cpus: bool) -> Self {
        Self {
            omit_idle,
            cpus,
            ..Self::default()
        }
    }

    /// Formats an interval. `time` is the text at the start of the line, as `18:44:41`.
    pub fn line(&mut self, line: &StatDocument, time: &str) -> String {
        let idle = |i: &&InterfaceStat| self.omit_idle && is_idle(i);
        let shown: Vec<&InterfaceStat> = line.interfaces.iter().filter(|i| !idle(i)).collect();
        let hidden = line.interfaces.len() - shown.len();
        let widest = shown.iter().map(|i| i.name.chars().count()).max();
        let wider = widest.unwrap_or(0) > self.width;
        self.width = self.width.max(widest.unwrap_or(0)).max(9);
        let mut text = String::new();
        let several = shown.len() > 1 || line.kind == DocumentKind::Average;
        if several && self.lines.is_some() {
            text.push('\n');
        }
        if line.kind == DocumentKind::Average {
            let _ = writeln!(
                text,
                "average over {:.1} s, {} interval{}",
                line.seconds,
                line.number,
                if line.number == 1 { "" } else { "s" }
            );
        }
        if wider
            || line.kind == DocumentKind::Average
            || self.lines.is_none_or(|lines| lines >= HEADER_AFTER)
        {
            self.header(&mut text);
            self.lines = Some(0);
        }
        let begin = text.len();
        for interface in shown {
            self.interface(&mut text, interface, time);
        }
        if hidden > 0 {
            let s = if hidden == 1 { "" } else { "s" };
            let _ = writeln!(text, "{time:8}  {hidden} idle interface{s} not shown");
        }
        self.softnet(&mut text, line);
        devices(&mut text, line);
        interrupts(&mut text, line);
        self.advice(&mut text, line);
        for probe in &line.probes {
            self::probe(&mut text, probe);
        }
        path(&mut text, line);
        let added = text[begin..].lines().count();
        self.lines = self.lines.map(|lines| lines + added);
        text
    }

    /// Adds each advice once, and all of them again at the end.
    fn advice(&mut self, text: &mut String, line: &StatDocument) {
        for advice in &line.advice {
            let told = self.told.iter().any(|told| told.is_like(advice));
            if !told || line.kind == DocumentKind::Average {
                let _ = writeln!(text, "{:8}  {}", "", advice_text(advice));
            }
            if !told {
                self.told.push(advice.clone());
            }
        }
    }

    fn header(&self, text: &mut String) {
        let width = self.width;
        let _ = writeln!(
            text,
            "{:8}  {:width$} {:>11} {:>11} {:>11} {:>11} {:>7} {:>7} {:>6} {:>6}",
            "time",
            "interface",
            "rx pkt/s",
            "tx pkt/s",
            "rx Mb/s L1",
            "tx Mb/s L1",
            "rx size",
            "tx size",
            "rx %",
            "tx %",
        );
    }

    fn interface(&self, text: &mut String, interface: &InterfaceStat, time: &str) {
        let width = self.width;
        let _ = write!(text, "{time:8}  {:width$}", interface.name);
        match (&interface.rates, interface.state) {
            (Some(r), _) => {
                let _ = writeln!(
                    text,
                    " {:>11} {:>11} {:>11} {:>11} {:>7} {:>7} {:>6} {:>6}",
                    whole(r.rx_pps),
                    whole(r.tx_pps),
                    megabits(r.rx_l1_bps),
                    megabits(r.tx_l1_bps),
                    size(r.rx_size_bytes),
                    size(r.tx_size_bytes),
                    percent(r.rx_l1_percent, r.over_line),
                    percent(r.tx_l1_percent, r.over_line),
                );
            }
            (None, LinkState::New) => text.push_str(" new: no rates before the next interval\n"),
            (None, LinkState::Gone) => text.push_str(" gone\n"),
            (None, _) => text.push_str(" reset: counters decreased; no rates for this interval\n"),
        }
        for note in notes(interface) {
            let _ = writeln!(text, "{:8}    {note}", "");
        }
    }

    fn softnet(&self, text: &mut String, line: &StatDocument) {
        let all = &line.softnet.all;
        let troubled = all.dropped + all.squeezed + all.flow_limit > 0;
        if !troubled && !self.cpus {
            return;
        }
        for cpu in &line.softnet.cpus {
            let counted = cpu.counted;
            if !self.cpus && counted.dropped + counted.squeezed + counted.flow_limit == 0 {
                continue;
            }
            let _ = write!(
                text,
                "{:8}  CPU {:<3} {:>11} pkt/s in",
                "",
                cpu.cpu,
                whole(per_second(counted.processed, line.seconds)),
            );
            for (name, n) in [
                (
                    "dropped (backlog full: net.core.netdev_max_backlog)",
                    counted.dropped,
                ),
                (
                    "squeezed (budget used up: net.core.netdev_budget)",
                    counted.squeezed,
                ),
                ("from other CPUs (RPS)", counted.received_rps),
                ("dropped (flow limit)", counted.flow_limit),
            ] {
                if n > 0 {
                    let _ = write!(text, ", {} {name}", count(n));
                }
            }
            if let Some(s) = cpu.shares {
                let _ = write!(
                    text,
                    "; softirq {:.0} %, system {:.0} %, user {:.0} %, idle {:.0} %",
                    s.softirq_percent + s.irq_percent,
                    s.system_percent,
                    s.user_percent,
                    s.idle_percent
                );
                if s.steal_percent >= 1.0 {
                    let _ = write!(text, ", steal {:.0} %", s.steal_percent);
                }
            }
            text.push('\n');
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn per_second(n: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        n as f64 / seconds
    } else {
        0.0
    }
}

/// Returns true if an interface counted nothing, did not change and was not requested by name.
#[must_use]
pub fn is_idle(interface: &InterfaceStat) -> bool {
    interface.counted.as_ref().is_some_and(|c| c.is_empty())
        && interface.renamed_from.is_none()
        && !interface.named
}

/// Notes below the line of an interface: errors and drops that rose, and changes of its state.
#[must_use]
pub fn notes(interface: &InterfaceStat) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(before) = &interface.renamed_from {
        notes.push(format!("renamed from {before}"));
    }
    if !interface.running && interface.state == LinkState::Steady {
        notes.push("link is down".to_owned());
    }
    let moved = interface.counted.iter().flatten();
    let troubles: Vec<String> = moved
        .filter(|(name, _)| !IN_COLUMNS.contains(&name.as_str()))
        .map(|(name, n)| {
            let rate = whole(per_second(*n, interface.seconds));
            format!("{name} {} ({rate}/s)", count(*n))
        })
        .collect();
    if !troubles.is_empty() {
        notes.push(troubles.join(", "));
    }
    let Some(rates) = &interface.rates else {
        return notes;
    };
    for (direction, ratio) in [
        ("received", rates.rx_drop_ratio),
        ("sent", rates.tx_drop_ratio),
    ] {
        if let Some(ratio) = ratio.filter(|ratio| *ratio > 0.0) {
            let word = if direction == "received" {
                "received packets"
            } else {
                "packets to send"
            };
            notes.push(format!("dropped {:.4} % of the {word}", ratio * 100.0));
        }
    }
    if rates.over_line {
        notes.push(
            "above the link speed: the device updates its counters late; use a longer interval"
                .to_owned(),
        );
    }
    if let Some(resets) = interface.resets.filter(|n| *n > 0) {
        notes.push(format!(
            "reset {resets} time{}; intervals with a reset are left out",
            if resets == 1 { "" } else { "s" }
        ));
    }
    for (direction, range) in [
        ("rx", interface.rx_pps_range),
        ("tx", interface.tx_pps_range),
    ] {
        if let Some([least, most]) = range.filter(|[_, most]| *most > 0.0) {
            notes.push(format!(
                "{direction} pkt/s: min {}, max {}",
                whole(least),
                whole(most)
            ));
        }
    }
    notes
}

fn devices(text: &mut String, line: &StatDocument) {
    for device in &line.devices {
        for (group, counters) in &device.groups {
            let counters: Vec<String> = counters
                .iter()
                .map(|(name, n)| format!("{name} {}", count(*n)))
                .collect();
            let (interface, title) = (&device.interface, group.title());
            let advice = group
                .advice()
                .map_or(String::new(), |advice| format!(" ({advice})"));
            let counters = counters.join(", ");
            let _ = writeln!(text, "{:8}  {interface}, {title}: {counters}{advice}", "");
        }
    }
}

/// CPUs in a list.
#[must_use]
pub fn cpu_list(cpus: &[u32]) -> String {
    let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    if cpus.is_empty() {
        UNKNOWN.to_owned()
    } else {
        cpus.join(",")
    }
}

/// Target CPU of an interrupt, the reason and the command.
#[must_use]
pub fn advice(step: &Move) -> String {
    let why = match &*step.rule {
        "T2" => "on a different NUMA node than the device",
        _ => "on a CPU with another busy queue, while a CPU is idle",
    };
    format!(
        "{} advice: interrupt {} is {why}; echo {} > /proc/irq/{}/smp_affinity_list, or --apply",
        step.rule, step.irq, step.to, step.irq,
    )
}

/// An advice: reason, command and cost.
#[must_use]
pub fn advice_text(advice: &Advice) -> String {
    let interface = advice
        .interface
        .as_ref()
        .map_or(String::new(), |i| format!("{i}: "));
    let command = advice
        .command
        .as_ref()
        .map_or(String::new(), |c| format!("; {c}"));
    let (rule, evidence, risk) = (&advice.rule, &advice.evidence, &advice.risk);
    format!("{rule} advice: {interface}{evidence}{command} ({risk})")
}

fn interrupts(text: &mut String, line: &StatDocument) {
    for device in &line.interrupts {
        for queue in &device.queues {
            let _ = writeln!(
                text,
                "{:8}  {}, interrupt {} {}: {}/s on CPU {}, affinity {}",
                "",
                device.interface,
                queue.irq,
                queue.name,
                whole(queue.per_second),
                cpu_list(&queue.came_on),
                cpu_list(&queue.cpus),
            );
        }
        for step in &device.moves {
            let _ = writeln!(text, "{:8}  {}", "", advice(step));
        }
    }
}

fn probe(text: &mut String, probe: &Probe) {
    let _ = write!(text, "{:8}  {}:", "", probe.name);
    if let Some(why) = &probe.missing {
        let _ = write!(text, " missing: {why}");
    }
    if let Some(failures) = probe.failures.filter(|n| *n > 0) {
        let s = if failures == 1 { "" } else { "s" };
        let _ = write!(text, " ({failures} reading{s} failed)");
    }
    let short = |name: &str| {
        name.strip_prefix(&format!("{}.", probe.name))
            .unwrap_or(name)
            .to_owned()
    };
    let mut parts: Vec<String> = Vec::new();
    for (name, n) in &probe.counted {
        match n {
            Some(0) => {}
            Some(n) => {
                let rate = whole(per_second(*n, probe.seconds));
                parts.push(format!("{} {} ({rate}/s)", short(name), count(*n)));
            }
            None => parts.push(format!("{} reset", short(name))),
        }
    }
    parts.extend(
        probe
            .gauges
            .iter()
            .map(|(name, n)| format!("{} = {}", short(name), count(*n))),
    );
    if parts.is_empty() && probe.missing.is_none() {
        parts.push("no change".to_owned());
    }
    let gap = if parts.is_empty() { "" } else { " " };
    let _ = writeln!(text, "{gap}{}", parts.join(", "));
}

fn path(text: &mut String, line: &StatDocument) {
    let Some(path) = &line.path else { return };
    for hop in &path.hops {
        let (verb_in, verb_out, between) = match hop.between {
            Between::Wire => ("sent", "received", "wire"),
            Between::Device => ("received", "forwarded", "device"),
        };
        let _ = write!(
            text,
            "{:8}  {} {verb_in} {}, {} {verb_out} {}: ",
            "",
            hop.from,
            count(hop.in_packets),
            hop.to,
            count(hop.out_packets),
        );
        let _ = match hop.lost_packets {
            0 if hop.in_packets == 0 => write!(text, "no traffic"),
            0 => write!(text, "nothing lost"),
            lost if lost > 0 => {
                write!(text, "{} lost in the {between}", count(lost.unsigned_abs()))
            }
            more => write!(
                text,
                "{} more packets out than in",
                count(more.unsigned_abs())
            ),
        };
        if hop.explained_packets > 0 {
            let _ = write!(
                text,
                " ({} of them counted as drops by {})",
                count(hop.explained_packets),
                hop.to
            );
        }
        text.push('\n');
    }
    let said = path
        .lost_where
        .as_deref()
        .unwrap_or(match path.hops.is_empty() {
            true => "unknown: an interface of the path was reset or not always present",
            false if path.hops.iter().all(|hop| hop.in_packets == 0) => "no traffic",
            false => "nothing lost",
        });
    let _ = writeln!(text, "{:8}  path: {said}", "");
}

/// One line of JSON, without a line feed.
///
/// # Panics
/// Never: a line has only types that JSON can hold.
#[must_use]
pub fn json(line: &StatDocument) -> String {
    debug_assert_eq!(mismatch(line), None, "a line is what its schema says");
    serde_json::to_string(line).expect("a line has only types that JSON can hold")
}

/// Columns before the counters.
const CSV: [&str; 21] = [
    "kind",
    "number",
    "time",
    "interface",
    "index",
    "state",
    "renamed_from",
    "running",
    "speed_bps",
    "seconds",
    "rx_pps",
    "tx_pps",
    "rx_bytes_per_s",
    "tx_bytes_per_s",
    "rx_l1_bps",
    "tx_l1_bps",
    "rx_l1_percent",
    "tx_l1_percent",
    "ifutil_percent",
    "rx_drop_ratio",
    "tx_drop_ratio",
];

/// Header of the CSV: rates, then counts.
#[must_use]
pub fn csv_header() -> String {
    let counters = LinkCounters::default();
    let names: Vec<&str> = CSV
        .into_iter()
        .chain(counters.named().map(|(name, _)| name))
        .collect();
    names.join(",")
}

/// A row for each interface.
#[must_use]
pub fn csv(line: &StatDocument) -> String {
    let mut text = String::new();
    for interface in &line.interfaces {
        let kind = match line.kind {
            DocumentKind::Interval => "interval",
            DocumentKind::Average => "average",
        };
        let state = match interface.state {
            LinkState::Steady => "steady",
            LinkState::New => "new",
            LinkState::Gone => "gone",
            LinkState::Reset => "reset",
        };
        let number = |n: Option<f64>| n.map_or(String::new(), |n| format!("{n}"));
        let rates = interface.rates.as_ref();
        let rate = |f: fn(&LinkRates) -> Option<f64>| number(rates.and_then(f));
        let mut cells = vec![
            kind.to_owned(),
            line.number.to_string(),
            line.time.clone(),
            quoted(&interface.name),
            interface.index.to_string(),
            state.to_owned(),
            interface
                .renamed_from
                .as_deref()
                .map_or(String::new(), quoted),
            interface.running.to_string(),
            interface.speed_bps.map_or(String::new(), |n| n.to_string()),
            format!("{}", interface.seconds),
            rate(|r| Some(r.rx_pps)),
            rate(|r| Some(r.tx_pps)),
            rate(|r| Some(r.rx_bytes_per_s)),
            rate(|r| Some(r.tx_bytes_per_s)),
            rate(|r| r.rx_l1_bps),
            rate(|r| r.tx_l1_bps),
            rate(|r| r.rx_l1_percent),
            rate(|r| r.tx_l1_percent),
            rate(|r| r.ifutil_percent),
            rate(|r| r.rx_drop_ratio),
            rate(|r| r.tx_drop_ratio),
        ];
        for (name, _) in LinkCounters::default().named() {
            let counted = interface.counted.as_ref();
            cells.push(counted.map_or(String::new(), |c| c.get(name).unwrap_or(&0).to_string()));
        }
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

/// Names of interfaces can contain nearly any character.
fn quoted(name: &str) -> String {
    match name.contains([',', '"', '\n']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use wb_counters::{LinkProperties, LinkReading, Series, path::hops};

    use super::*;

    fn reading(at_s: u64, packets: u64, crc: u64) -> LinkReading {
        LinkReading {
            id: (0, 3),
            name: "eth0".to_owned(),
            at_ns: at_s * 1_000_000_000,
            facts: LinkProperties {
                speed_bps: Some(1_000_000_000),
                ethernet: true,
                running: true,
                ..LinkProperties::default()
            },
            counters: LinkCounters {
                rx_packets: packets,
                rx_bytes: packets * 60,
                rx_crc_errors: crc,
                ..LinkCounters::default()
            },
        }
    }

    fn lines() -> (StatDocument, StatDocument, StatDocument) {
        let mut series = Series::default();
        series.next(vec![reading(0, 0, 0)]);
        let first = series.next(vec![reading(1, 1_488_095, 7)]);
        let second = series.next(vec![reading(2, 5, 0)]);
        let line = |intervals: &[wb_counters::LinkInterval]| StatDocument {
            schema: wb_counters::stat_document::SCHEMA.to_owned(),
            number: 1,
            seconds: 1.0,
            interfaces: intervals.iter().map(InterfaceStat::from).collect(),
            ..StatDocument::default()
        };
        let average = StatDocument {
            kind: DocumentKind::Average,
            interfaces: series
                .totals()
                .into_iter()
                .map(InterfaceStat::from)
                .collect(),
            ..line(&[])
        };
        (line(&first), line(&second), average)
    }

    #[test]
    fn a_reset_has_no_rate_and_errors_their_own_names() {
        let (first, second, average) = lines();
        let mut text = Text::default();
        let shown = [
            text.line(&first, "18:44:41"),
            text.line(&second, "18:44:42"),
            text.line(&average, "average"),
        ]
        .concat();
        let expected = "\
time      interface    rx pkt/s    tx pkt/s  rx Mb/s L1  tx Mb/s L1 rx size tx size   rx %   tx %
18:44:41  eth0        1,488,095           0    1000.000       0.000      64       -  100.0    0.0
            rx_crc_errors 7 (7/s)
18:44:42  eth0      reset: counters decreased; no rates for this interval

average over 1.0 s, 1 interval
time      interface    rx pkt/s    tx pkt/s  rx Mb/s L1  tx Mb/s L1 rx size tx size   rx %   tx %
average   eth0        1,488,095           0    1000.000       0.000      64       -  100.0    0.0
            rx_crc_errors 7 (7/s)
            reset 1 time; intervals with a reset are left out
            rx pkt/s: min 1,488,095, max 1,488,095
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_advice_is_given_once_and_at_the_end() {
        let advice = |evidence: &str| Advice {
            rule: "T9".to_owned(),
            interface: Some("eth0".to_owned()),
            evidence: evidence.to_owned(),
            command: Some("command".to_owned()),
            risk: "risk".to_owned(),
        };
        let line = |kind, evidence| StatDocument {
            kind,
            advice: vec![advice(evidence)],
            ..StatDocument::default()
        };
        let mut text = Text::default();
        let said = text.line(&line(DocumentKind::Interval, "one"), "12:00:00");
        assert!(
            said.contains("T9 advice: eth0: one; command (risk)"),
            "{said}"
        );
        let again = text.line(&line(DocumentKind::Interval, "two"), "12:00:01");
        assert!(!again.contains("T9"), "{again}");
        let average = text.line(&line(DocumentKind::Average, "two"), "average");
        assert!(average.contains("T9 advice: eth0: two"), "{average}");
    }

    #[test]
    fn json_and_csv_hold_the_same() {
        let (first, second, _) = lines();
        let value: serde_json::Value = serde_json::from_str(&json(&first)).unwrap();
        assert_eq!(value["interfaces"][0]["counted"]["rx_packets"], 1_488_095);
        let value: serde_json::Value = serde_json::from_str(&json(&second)).unwrap();
        assert_eq!(value["interfaces"][0]["state"], "reset");
        assert!(value["interfaces"][0]["rates"].is_null());
        let columns = csv_header().split(',').count();
        for line in [&first, &second] {
            assert_eq!(csv(line).trim_end().split(',').count(), columns);
        }
        assert_eq!(quoted("a,\"b"), "\"a,\"\"b\"");
    }

    #[test]
    fn losses_along_a_path_are_told_where_they_are() {
        let point = |name: &str, rx_packets, tx_packets| {
            let counters = LinkCounters {
                rx_packets,
                tx_packets,
                ..LinkCounters::default()
            };
            (name.to_owned(), counters)
        };
        let points = [
            point("a", 0, 1000),
            point("in", 1000, 0),
            point("out", 0, 700),
            point("b", 700, 0),
        ];
        let line = StatDocument {
            path: Some(wb_counters::stat_document::PathStat {
                hops: hops(&points),
                loss_ratio: Some(0.3),
                lost_where: Some("x".to_owned()),
            }),
            ..StatDocument::default()
        };
        let text = Text::default().line(&line, "12:00:00");
        assert!(
            text.contains("in received 1,000, out forwarded 700: 300 lost in the device"),
            "{text}"
        );
        assert!(
            text.contains("a sent 1,000, in received 1,000: nothing lost"),
            "{text}"
        );
    }
}
