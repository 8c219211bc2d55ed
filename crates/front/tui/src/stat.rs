//! Counters over time, as read by `stat`, in place of a run.

use std::collections::{BTreeMap, VecDeque};

use wb_counters::{
    LinkState, Smooth,
    device::Group,
    path::Between,
    stat_document::{Device, DeviceInterrupts, InterfaceStat, StatDocument},
};
use wb_model::{Phase, Snapshot};
use wb_render::{
    figures::{UNKNOWN, count, rate_bps, rate_pps},
    stat::{advice, advice_text, cpu_list, is_idle, notes, percent},
};

use crate::{
    Page, Row, Screen, Section, Tone,
    pages::{Chart, per_second, text},
    screen::KEPT,
};

/// Contents of a screen of counters, in addition to interfaces and CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// True if interfaces that counted nothing are left out.
    pub omit_idle: bool,
    /// True if driver-specific statistics are shown.
    pub driver: bool,
    /// True if interrupts of queues are shown.
    pub interrupts: bool,
}

/// Packets per second of an interface, received and sent, interval by interval.
type Past = [VecDeque<Option<f64>>; 2];

/// The last interval, all intervals, and the history of each.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    interval: StatDocument,
    whole: StatDocument,
    past: BTreeMap<String, Past>,
}

fn head(figures: &[&str]) -> Row {
    Row::toned("", figures.iter().map(|t| (*t).to_owned()), Tone::Label)
}

fn none(title: &str, why: &str) -> Vec<Section> {
    vec![Section::new(title, vec![text(why)])]
}

#[allow(clippy::cast_precision_loss)]
fn rate(n: u64, seconds: f64) -> String {
    per_second(if seconds > 0.0 {
        n as f64 / seconds
    } else {
        0.0
    })
}

fn tone(n: u64) -> Tone {
    if n > 0 { Tone::Bad } else { Tone::Plain }
}

impl Screen {
    /// Adds an interval of counters, and the totals until now. Only for a screen of counters.
    pub fn count(&mut self, interval: StatDocument, whole: StatDocument) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        // Probes may take some time after the reading, while the clock continues: it must not go back.
        let shown = self.elapsed_ns().saturating_add(self.since_ns);
        let at_ns = ns(whole.seconds).max(shown);
        let moment = Snapshot::at(at_ns, ns(interval.seconds), Phase::Running);
        (self.now, self.since_ns) = (Some(moment), 0);
        let counted = self.counted.get_or_insert_default();
        let mut before = std::mem::take(&mut counted.past);
        let mut said = Vec::new();
        for interface in &interval.interfaces {
            let name = interface.renamed_from.as_ref().unwrap_or(&interface.name);
            let mut past = before.remove(name).unwrap_or_default();
            // The line of the interface reports it for one interval only.
            let news = match (&interface.renamed_from, interface.state) {
                (Some(before), _) => Some(format!("renamed from {before}")),
                (None, LinkState::Steady) => None,
                _ => Some(state(interface).to_owned()),
            };
            let at = whole.seconds;
            said.extend(news.map(|news| format!("{at:.1} s: {}: {news}", interface.name)));
            let rates = interface.rates.as_ref();
            for (past, now) in past
                .iter_mut()
                .zip([rates.map(|r| r.rx_pps), rates.map(|r| r.tx_pps)])
            {
                if past.len() == KEPT {
                    past.pop_front();
                }
                past.push_back(now);
            }
            counted.past.insert(interface.name.clone(), past);
        }
        (counted.interval, counted.whole) = (interval, whole);
        said.iter().for_each(|line| self.say(line));
    }

    /// The sections of a page about counters.
    pub(crate) fn counted_sections(&self, reading: Reading) -> Vec<Section> {
        let Some(counted) = &self.counted else {
            return none("Starting", "waiting for the end of the first interval");
        };
        match self.page {
            Page::Interfaces => counted.each_interface(reading.omit_idle),
            Page::Cpus => counted.each_cpu(),
            Page::Interrupts if !reading.interrupts => {
                none("Interrupts", "not enabled; use --interrupts")
            }
            Page::Interrupts => counted.interrupts(),
            Page::Driver if !reading.driver => none("Driver", "not enabled; use --driver"),
            Page::Driver => counted.drivers(),
            Page::Probes => counted.probes(),
            _ => {
                let mut sections = vec![counted.interfaces(reading.omit_idle)];
                sections.extend(counted.path());
                sections.extend(counted.trouble());
                sections.extend(counted.cpus());
                if counted
                    .interval
                    .interrupts
                    .iter()
                    .any(|d| !d.moves.is_empty())
                {
                    sections.push(Section::new("Advice", counted.advice()));
                }
                if !counted.interval.probes.is_empty() {
                    sections.extend(counted.probes());
                }
                if !self.messages.is_empty() {
                    sections.push(self.said(3));
                }
                sections
            }
        }
    }

    /// Rates of the first interfaces, for the room that sections leave.
    pub(crate) fn counted_charts(&self, reading: Reading) -> Vec<Chart> {
        let Some(counted) = self
            .counted
            .as_ref()
            .filter(|_| self.page == Page::Overview)
        else {
            return Vec::new();
        };
        let mut charts = Vec::new();
        for interface in counted.shown(reading.omit_idle).take(2) {
            let past = counted.past.get(&interface.name);
            for (way, past) in ["received", "sent"]
                .into_iter()
                .zip(past.into_iter().flatten())
            {
                if past.iter().flatten().any(|pps| *pps > 0.0) {
                    charts.push(Chart {
                        title: format!("{}, {way} packets per second", interface.name),
                        values: past.iter().copied().collect(),
                        write: rate_pps,
                    });
                }
            }
        }
        charts
    }
}

impl Counted {
    fn shown(&self, omit_idle: bool) -> impl Iterator<Item = &InterfaceStat> {
        let all = self.interval.interfaces.iter();
        all.filter(move |interface| !(omit_idle && is_idle(interface)))
    }

    /// Totals of an interface, if it existed before.
    fn in_all(&self, interface: &InterfaceStat) -> Option<&InterfaceStat> {
        let same = |i: &&InterfaceStat| (i.index, &i.name) == (interface.index, &interface.name);
        self.whole.interfaces.iter().find(same)
    }

    fn past(&self, name: &str) -> Vec<Option<f64>> {
        let Some([rx, tx]) = self.past.get(name) else {
            return Vec::new();
        };
        let both = rx.iter().zip(tx);
        both.map(|(rx, tx)| Some((*rx)? + (*tx)?)).collect()
    }

    fn interfaces(&self, omit_idle: bool) -> Section {
        let mut rows = Vec::new();
        let mut shown = 0;
        for interface in self.shown(omit_idle) {
            if shown == 0 {
                rows.push(head(&["rx", "tx", "rx L1", "tx L1", "rx %", "tx %"]));
            }
            shown += 1;
            rows.push(match &interface.rates {
                Some(r) => {
                    let bits = |bps: Option<f64>| bps.map_or_else(|| UNKNOWN.to_owned(), rate_bps);
                    Row::of(
                        &interface.name,
                        [
                            rate_pps(r.rx_pps),
                            rate_pps(r.tx_pps),
                            bits(r.rx_l1_bps),
                            bits(r.tx_l1_bps),
                            percent(r.rx_l1_percent, r.over_line),
                            percent(r.tx_l1_percent, r.over_line),
                        ],
                    )
                    .over(self.past(&interface.name))
                }
                None => Row::toned(&interface.name, [state(interface).to_owned()], Tone::Warn),
            });
            let notes = notes(interface);
            rows.extend(
                notes
                    .into_iter()
                    .map(|note| Row::Text(format!("{}: {note}", interface.name), Tone::Warn)),
            );
        }
        let hidden = self.interval.interfaces.len() - shown;
        if hidden > 0 {
            let s = if hidden == 1 { "" } else { "s" };
            rows.push(text(format!("{hidden} idle interface{s} not shown")));
        }
        if self.interval.interfaces.is_empty() {
            rows.push(text("no interfaces"));
        }
        let title = format!("Interfaces in the last {:.1} s", self.interval.seconds);
        Section::new(&title, rows)
    }

    fn each_interface(&self, omit_idle: bool) -> Vec<Section> {
        let mut sections = Vec::new();
        for interface in &self.interval.interfaces {
            let mut rows = Vec::new();
            let all = self.in_all(interface);
            if omit_idle && is_idle(interface) && all.is_none_or(is_idle) {
                continue;
            }
            if interface.rates.is_none() {
                rows.push(Row::Text(state(interface).to_owned(), Tone::Warn));
            }
            let counters = all.and_then(|all| all.counted.as_ref());
            if let Some((all, counters)) = all.zip(counters.filter(|c| !c.is_empty())) {
                rows.push(head(&["since the start", "per second", "now"]));
                for (name, n) in counters {
                    let now = interface.counted.as_ref();
                    let now = now.map_or_else(
                        || UNKNOWN.to_owned(),
                        |now| rate(*now.get(name).unwrap_or(&0), interface.seconds),
                    );
                    rows.push(Row::of(name, [count(*n), rate(*n, all.seconds), now]));
                }
            } else {
                rows.push(text("no packets"));
            }
            let moved = |s: &&Smooth| s.rx_pps.iter().chain(&s.tx_pps).any(|pps| *pps > 0.0);
            if let Some(smooth) = interface.smooth.as_ref().filter(moved) {
                rows.push(head(&["over 1 s", "10 s", "60 s"]));
                for (name, pps) in [
                    ("rx, smoothed", smooth.rx_pps),
                    ("tx, smoothed", smooth.tx_pps),
                ] {
                    if pps.iter().any(|pps| *pps > 0.0) {
                        rows.push(Row::of(name, pps.map(rate_pps)));
                    }
                }
            }
            let now = notes(interface);
            rows.extend(now.into_iter().map(|note| Row::Text(note, Tone::Warn)));
            if let Some(n) = all.and_then(|all| all.resets).filter(|n| *n > 0) {
                let s = if n == 1 { "" } else { "s" };
                rows.push(text(format!(
                    "reset {n} time{s}; intervals with a reset are left out"
                )));
            }
            #[allow(clippy::cast_precision_loss)]
            let speed = interface
                .speed_bps
                .map(|bps| format!(", {}", rate_bps(bps as f64)));
            let title = format!("{}{}", interface.name, speed.unwrap_or_default());
            sections.push(Section::new(&title, rows));
        }
        if sections.is_empty() {
            return none("Interfaces", "no interface has counted anything");
        }
        sections
    }

    fn path(&self) -> Option<Section> {
        let whole = self.whole.path.as_ref()?;
        let now = self.interval.path.as_ref().map(|path| &path.hops);
        let mut rows = vec![head(&["in", "out", "missing", "in the last interval"])];
        for (at, hop) in whole.hops.iter().enumerate() {
            let between = match hop.between {
                Between::Wire => "wire",
                Between::Device => "device",
            };
            let name = format!("{} > {}, {between}", hop.from, hop.to);
            let now = now.and_then(|hops| hops.get(at));
            let tone = if hop.lost_packets > 0 {
                Tone::Bad
            } else {
                Tone::Plain
            };
            let figures = [
                count(hop.in_packets),
                count(hop.out_packets),
                signed(hop.lost_packets),
                now.map_or_else(|| UNKNOWN.to_owned(), |hop| signed(hop.lost_packets)),
            ];
            rows.push(Row::toned(&name, figures, tone));
        }
        let said = whole.lost_where.clone();
        let said = said.unwrap_or_else(|| match whole.hops.is_empty() {
            true => "unknown: an interface of the path was reset or not always present".to_owned(),
            false => "nothing lost".to_owned(),
        });
        rows.push(Row::Text(said, Tone::Plain));
        Some(Section::new("Path, since the start", rows))
    }

    /// Counters of a driver that should be zero.
    fn trouble(&self) -> Option<Section> {
        let mut rows = Vec::new();
        for device in &self.whole.devices {
            for (group, counters) in &device.groups {
                let Some(advice) = group.advice() else {
                    continue;
                };
                for (name, n) in counters {
                    let now = rate(self.now_of(device, *group, name), self.interval.seconds);
                    let name = format!("{} {name}", device.interface);
                    rows.push(Row::toned(&name, [count(*n), now], Tone::Bad));
                }
                rows.push(text(format!("{}: {advice}", group.title())));
            }
        }
        (!rows.is_empty()).then(|| Section::new("Driver counters, since the start", rows))
    }

    /// Rise of a driver's counter in the last interval.
    fn now_of(&self, device: &Device, group: Group, name: &str) -> u64 {
        let mut all = self.interval.devices.iter();
        let same = all.find(|d| d.interface == device.interface);
        let counters = same.and_then(|d| d.groups.get(&group));
        counters.and_then(|c| c.get(name)).copied().unwrap_or(0)
    }

    /// All CPUs together, and those that dropped something.
    fn cpus(&self) -> Option<Section> {
        let softnet = &self.interval.softnet;
        if softnet.cpus.is_empty() {
            return None;
        }
        let row = |name: &str, c: &wb_counters::softnet::SoftnetRise| {
            let dropped = c.dropped + c.flow_limit;
            let figures = [
                rate(c.processed, self.interval.seconds),
                count(dropped),
                count(c.squeezed),
            ];
            Row::toned(name, figures, tone(dropped))
        };
        let mut rows = vec![
            head(&["packets in", "dropped", "squeezed"]),
            row("all", &softnet.all),
        ];
        for cpu in &softnet.cpus {
            let c = &cpu.counted;
            if c.dropped + c.squeezed + c.flow_limit > 0 {
                rows.push(row(&format!("CPU {}", cpu.cpu), c));
            }
        }
        Some(Section::new(
            "CPUs of the whole machine in the last interval",
            rows,
        ))
    }

    fn each_cpu(&self) -> Vec<Section> {
        let softnet = &self.interval.softnet;
        if softnet.cpus.is_empty() {
            return none("CPUs", "not available on this kernel");
        }
        let mut now = vec![head(&[
            "packets in",
            "dropped",
            "squeezed",
            "RPS",
            "softirq",
            "system",
            "user",
            "idle",
            "steal",
        ])];
        let mut all = vec![head(&[
            "packets in",
            "dropped",
            "flow limit",
            "squeezed",
            "RPS",
        ])];
        for cpu in &softnet.cpus {
            let name = format!("CPU {}", cpu.cpu);
            let c = &cpu.counted;
            let mut figures = vec![
                rate(c.processed, self.interval.seconds),
                count(c.dropped + c.flow_limit),
                count(c.squeezed),
                count(c.received_rps),
            ];
            if let Some(s) = &cpu.shares {
                let shares = [
                    s.softirq_percent + s.irq_percent,
                    s.system_percent,
                    s.user_percent,
                    s.idle_percent,
                    s.steal_percent,
                ];
                figures.extend(shares.map(|share| format!("{share:.0} %")));
            }
            now.push(Row::toned(&name, figures, tone(c.dropped + c.flow_limit)));
        }
        for cpu in &self.whole.softnet.cpus {
            let c = &cpu.counted;
            let figures = [
                c.processed,
                c.dropped,
                c.flow_limit,
                c.squeezed,
                c.received_rps,
            ]
            .map(count);
            let name = format!("CPU {}", cpu.cpu);
            all.push(Row::toned(&name, figures, tone(c.dropped + c.flow_limit)));
        }
        all.push(text(
            "Counters of the whole machine: a packet that crosses a veth pair is counted again. Dropped: the backlog was \
             full (net.core.netdev_max_backlog). Squeezed: the budget was used up (net.core.netdev_budget).",
        ));
        vec![
            Section::new("In the last interval", now),
            Section::new("Since the start", all),
        ]
    }

    fn advice(&self) -> Vec<Row> {
        let steps = self
            .interval
            .interrupts
            .iter()
            .flat_map(|device| &device.moves);
        let others = self.interval.advice.iter().map(advice_text);
        let all = steps.map(advice).chain(others);
        all.map(|said| Row::Text(said, Tone::Warn)).collect()
    }

    fn interrupts(&self) -> Vec<Section> {
        let section = |device: &DeviceInterrupts| {
            let mut rows = vec![head(&["per second", "on CPU", "affinity"])];
            for queue in &device.queues {
                let name = format!("{} {}", queue.irq, queue.name);
                let figures = [
                    per_second(queue.per_second),
                    cpu_list(&queue.came_on),
                    cpu_list(&queue.cpus),
                ];
                rows.push(Row::of(&name, figures));
            }
            if device.queues.is_empty() {
                rows = vec![text("no interrupts")];
            }
            Section::new(&format!("Interrupts of {}", device.interface), rows)
        };
        let mut sections: Vec<Section> = self.interval.interrupts.iter().map(section).collect();
        if sections.is_empty() {
            sections = none("Interrupts", "no dedicated interrupts on these interfaces");
        }
        let advice = self.advice();
        if !advice.is_empty() {
            sections.push(Section::new("Advice", advice));
        }
        sections
    }

    fn drivers(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        for device in &self.whole.devices {
            for (group, counters) in &device.groups {
                let mut rows = vec![head(&["since the start", "now"])];
                for (name, n) in counters {
                    let now = self.now_of(device, *group, name);
                    rows.push(Row::of(name, [count(*n), rate(now, self.interval.seconds)]));
                }
                rows.extend(group.advice().map(text));
                let title = format!("{}, {}", device.interface, group.title());
                sections.push(Section::new(&title, rows));
            }
            if !device.fell.is_empty() {
                let fell = device.fell.iter();
                let rows = fell.map(|(name, n)| Row::of(name, [count(*n)])).collect();
                let title = format!("{}, decreased or reset: current value", device.interface);
                sections.push(Section::new(&title, rows));
            }
        }
        if sections.is_empty() {
            return none("Driver", "no driver counter has changed");
        }
        sections
    }

    fn probes(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        for (probe, all) in self.interval.probes.iter().zip(&self.whole.probes) {
            let mut rows = Vec::new();
            if let Some(why) = &probe.missing {
                rows.push(Row::Text(format!("missing: {why}"), Tone::Warn));
            }
            if let Some(n) = all.failures.filter(|n| *n > 0) {
                rows.push(Row::toned("failed readings", [count(n)], Tone::Bad));
            }
            if !all.counted.is_empty() {
                rows.push(head(&["since the start", "now"]));
            }
            for (name, n) in &all.counted {
                let now = match probe.counted.get(name) {
                    Some(Some(n)) => rate(*n, probe.seconds),
                    Some(None) => "reset".to_owned(),
                    None => UNKNOWN.to_owned(),
                };
                let all = n.map_or_else(|| "reset".to_owned(), count);
                rows.push(Row::of(name, [all, now]));
            }
            let gauges = all.gauges.iter();
            rows.extend(gauges.map(|(name, n)| Row::of(name, [count(*n)])));
            sections.push(Section::new(&format!("Probe {}", probe.name), rows));
        }
        if sections.is_empty() {
            return none(
                "Probes",
                "not enabled; use --probe to read a device under test",
            );
        }
        sections
    }
}

/// State of an interface in an interval without rates.
const fn state(interface: &InterfaceStat) -> &'static str {
    match interface.state {
        LinkState::New => "new",
        LinkState::Gone => "gone",
        LinkState::Reset => "reset",
        LinkState::Steady => "steady",
    }
}

/// A count with its sign.
fn signed(n: i64) -> String {
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", count(n.unsigned_abs()))
}
