//! Contents of each page.

use wb_model::{
    JobKind, Snapshot, Totals,
    bench::BenchLive,
    criteria::{Bound, Criterion},
    snapshot::ProbeLive,
    socket::SocketLive,
    timeline::PERCENTILES,
};
use wb_render::figures::{count, rate_bps, rate_pps, share, time_ns};

use crate::{Page, Row, Screen, Section, Tone, suite};

/// Formats a value.
pub(crate) type Write = fn(f64) -> String;

/// Values over time with a title and a format.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) values: Vec<Option<f64>>,
    pub(crate) write: Write,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn whole(n: f64) -> String {
    count(n.max(0.0).round() as u64)
}

pub(crate) fn per_second(n: f64) -> String {
    format!("{}/s", whole(n))
}

pub(crate) fn text(text: impl Into<String>) -> Row {
    Row::Text(text.into(), Tone::Label)
}

/// Evidence against a criterion that the rest of the run cannot undo. A share can still fall, unless zero is
/// required; a rate can rise; lost frames may be in flight. Snapshots have no figures of single jobs.
fn against(criterion: &Criterion, now: &Snapshot) -> Option<u64> {
    let nothing_is_allowed = criterion.bound == Bound::AtMost && criterion.limit.as_f64() == 0.0;
    if !nothing_is_allowed || criterion.job.is_some() {
        return None;
    }
    let of = |kind| criterion.kind.is_none_or(|own| own == kind);
    let load = now.load.as_ref().filter(|_| of(JobKind::Load));
    let http = now.http.as_ref().filter(|_| of(JobKind::Http));
    // Frames of loads are not frames of streams.
    let alone = now.load.is_none() && now.http.is_none();
    let frames = match criterion.kind {
        None => alone,
        Some(kind) => kind == JobKind::Traffic,
    };
    let totals = Some(&now.totals).filter(|_| frames);
    let n = match criterion.metric.as_str() {
        "failed" => {
            let connections = load.map_or(0, |l| l.totals.failed_connections);
            let requests = http.map_or(0, |h| h.totals.failed.sum());
            connections.saturating_add(requests)
        }
        "errors" => {
            let answers = load.map_or(0, |l| l.totals.error_responses);
            answers.saturating_add(http.map_or(0, |h| h.totals.error_responses))
        }
        "duplicates" => totals.and_then(|t| t.duplicate_frames).unwrap_or(0),
        "reordered" => totals.and_then(|t| t.reordered_frames).unwrap_or(0),
        _ => 0,
    };
    (n > 0).then_some(n)
}

/// A count that should be zero.
fn trouble(name: &str, n: Option<u64>, rest: impl IntoIterator<Item = String>) -> Option<Row> {
    let n = n?;
    let tone = if n == 0 { Tone::Plain } else { Tone::Bad };
    let figures = [count(n)].into_iter().chain(rest);
    Some(Row::toned(name, figures, tone))
}

impl Screen {
    pub(crate) fn sections(&self) -> Vec<Section> {
        if self.page == Page::Messages {
            return vec![self.said(usize::MAX)];
        }
        if let Some(reading) = self.about.reading {
            return self.counted_sections(reading);
        }
        match self.page {
            Page::Overview => self.overview(),
            Page::Times => self.times(),
            Page::Jobs => self.jobs(),
            Page::Workers => self.workers(),
            Page::Counters => self.counters(),
            Page::Trials => self.search_log(usize::MAX),
            // Shown above, and on pages of counters.
            _ => Vec::new(),
        }
    }

    /// Charts for the room that sections leave.
    pub(crate) fn charts(&self) -> Vec<Chart> {
        if let Some(reading) = self.about.reading {
            return self.counted_charts(reading);
        }
        let all: &[(&'static str, &str, Write)] = match self.page {
            Page::Overview => &[
                ("Sent frames per second", "tx", rate_pps),
                ("Received frames per second", "rx", rate_pps),
                ("Mean latency", "latency", time_ns),
            ],
            Page::Times => &[("Mean latency per interval", "latency", time_ns)],
            _ => &[],
        };
        let of_times = self.page == Page::Times;
        let mut charts = self.progress.charts();
        charts.retain(|chart| match self.page {
            Page::Overview | Page::Times => !of_times || chart.title.contains(": mean "),
            _ => false,
        });
        charts.retain(|chart| crate::bars::largest(&chart.values).is_some());
        for (title, name, write) in all {
            let values = self.past(name);
            if crate::bars::largest(&values).is_some() {
                charts.push(Chart {
                    title: (*title).to_owned(),
                    values,
                    write: *write,
                });
            }
        }
        if let Some(socket) = self.now.as_ref().and_then(|s| s.socket.as_ref())
            && self.page == Page::Overview
            && socket.jobs > 0
        {
            charts.push(match socket.transactions {
                true => Chart {
                    title: "Transactions per second".to_owned(),
                    values: self.past("socket"),
                    write: per_second,
                },
                false => Chart {
                    title: "Throughput".to_owned(),
                    values: self.past("socket"),
                    write: |octets| rate_bps(octets * 8.0),
                },
            });
        }
        charts
    }

    fn overview(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        let Some(now) = &self.now else {
            return vec![Section::new("Starting", vec![text("no measurements yet")])];
        };
        sections.extend(now.bench.as_ref().map(|bench| self.search(bench)));
        sections.extend(self.progress.sections().iter().cloned());
        sections.extend(now.socket.as_ref().map(|socket| self.exchange(socket)));
        sections.extend(self.frames(now));
        sections.extend(self.ports());
        sections.extend(self.judged());
        if !self.messages.is_empty() {
            sections.push(self.said(3));
        }
        sections
    }

    fn frames(&self, now: &Snapshot) -> Option<Section> {
        let t = &now.totals;
        let way = |name: &str, pps: Option<f64>, bps: Option<f64>, n: Option<u64>, past: &str| {
            let (pps, n) = (pps?, n?);
            let bits = bps.map_or_else(String::new, |bps| format!("{} L2", rate_bps(bps)));
            let figures = [count(n), rate_pps(pps), bits];
            Some(Row::of(name, figures).over(self.past(past)))
        };
        let sent = way(
            "sent",
            now.offered_pps,
            now.offered_l2_bps,
            t.offered_frames,
            "tx",
        );
        let received = way(
            "received",
            now.received_pps,
            now.received_l2_bps,
            t.received_frames,
            "rx",
        );
        if sent.is_none() && received.is_none() {
            return None;
        }
        let of_offered = |n: Option<u64>| {
            let shared = t.offered_frames.zip(n).filter(|(offered, _)| *offered > 0);
            shared.map(|(offered, n)| share(n, offered))
        };
        // Lost frames once known; until then they may be in flight.
        let missing = match (t.lost_frames, now.missing_frames) {
            (Some(lost), _) => trouble("lost", Some(lost), of_offered(Some(lost))),
            (None, Some(n)) => Some(Row::of(
                "missing",
                [count(n)].into_iter().chain(of_offered(Some(n))),
            )),
            (None, None) => None,
        };
        let latency = now
            .latency_mean_ns
            .map(|ns| Row::of("mean latency", [time_ns(ns)]).over(self.past("latency")));
        let down = (!now.links_down.is_empty())
            .then(|| Row::toned("link down", [now.links_down.join(", ")], Tone::Bad));
        let mut rows: Vec<Row> = [down, sent, received, missing, latency]
            .into_iter()
            .flatten()
            .collect();
        rows.extend(flaws(t));
        rows.extend(trouble("outages", now.outages.filter(|n| *n > 0), []));
        Some(Section::new("Frames", rows))
    }

    #[allow(clippy::cast_precision_loss)]
    fn exchange(&self, socket: &SocketLive) -> Section {
        if socket.jobs == 0 {
            let clients = Row::of("clients", [count(socket.clients)]);
            return Section::new("Server for socket tests", vec![clients]);
        }
        let rate = socket.units as f64 / socket.interval_s.max(1e-9);
        let figures = match socket.transactions {
            true => [
                "transactions".to_owned(),
                count(socket.total),
                per_second(rate),
            ],
            false => [
                "bytes".to_owned(),
                count(socket.total),
                rate_bps(rate * 8.0),
            ],
        };
        let [name, total, rate] = figures;
        let title = format!(
            "Socket test {} of {}, run {}",
            socket.job + 1,
            socket.jobs,
            socket.iteration
        );
        let row = Row::of(&name, [total, rate]).over(self.past("socket"));
        Section::new(&title, vec![row])
    }

    fn search(&self, bench: &BenchLive) -> Section {
        suite::section(bench, self.largest, &self.trials, self.about.unicode)
    }

    fn search_log(&self, most: usize) -> Vec<Section> {
        if !self.about.searches {
            let none = text("no trials: this run does not search for a limit");
            return vec![Section::new("Trials", vec![none])];
        }
        let first = self.trials.len().saturating_sub(most);
        let mut rows: Vec<Row> = Vec::new();
        for (line, tone) in &self.trials[first..] {
            rows.push(match (line.starts_with(' '), tone) {
                (false, _) => Row::Text(line.clone(), Tone::Warn),
                // Most trials pass: the others are highlighted.
                (true, Tone::Good) => Row::Text(line.trim().to_owned(), Tone::Plain),
                (true, tone) => Row::Text(line.trim().to_owned(), *tone),
            });
        }
        if rows.is_empty() {
            rows.push(text("no finished trials yet"));
        }
        vec![Section::new("Trials, newest last", rows)]
    }

    /// Counters of the interfaces of the ports.
    fn ports(&self) -> Option<Section> {
        let mut rows = Vec::new();
        for of in self.figures.owners("port ") {
            let name = of.strip_prefix("port ").unwrap_or(of);
            let locator = self.about.ports.iter().find(|(n, _)| n == name);
            let shown = match locator {
                Some((_, locator)) if locator != name => format!("{name} {locator}"),
                _ => name.to_owned(),
            };
            let rate = |counter: &str| self.figures.rate(of, counter);
            let way = |counters: [&str; 2]| {
                let [frames, octets] = counters.map(rate);
                let frames = frames.map_or_else(String::new, rate_pps);
                let bits = octets.map_or_else(String::new, |o| rate_bps(o * 8.0));
                [frames, bits]
            };
            let [tx, tx_bits] = way(["tx_packets", "tx_bytes"]);
            let [rx, rx_bits] = way(["rx_packets", "rx_bytes"]);
            let dropped = self.dropped(of);
            let tone = if dropped > 0.0 {
                Tone::Warn
            } else {
                Tone::Plain
            };
            rows.push(Row::Cells(vec![
                (shown, Tone::Label),
                (tx, Tone::Plain),
                (rx, Tone::Plain),
                (whole(dropped), tone),
                (tx_bits, Tone::Plain),
                (rx_bits, Tone::Plain),
            ]));
        }
        if rows.is_empty() {
            return None;
        }
        let head =
            ["tx", "rx", "dropped", "tx bits", "rx bits"].map(|t| (t.to_owned(), Tone::Label));
        let mut cells = vec![(String::new(), Tone::Label)];
        cells.extend(head);
        rows.insert(0, Row::Cells(cells));
        Some(Section::new("Ports (interface counters)", rows))
    }

    /// Frames that an interface dropped since the start of the run, for any reason.
    fn dropped(&self, of: &str) -> f64 {
        let names = self.figures.names(of);
        let own = names.filter(|name| name.contains("dropped") || name.contains("missed"));
        own.filter_map(|name| self.figures.grown(of, name)).sum()
    }

    fn judged(&self) -> Option<Section> {
        if self.about.criteria.is_empty() {
            return None;
        }
        let (mut rows, mut open) = (Vec::new(), Vec::new());
        for criterion in &self.about.criteria {
            match self.now.as_ref().and_then(|now| against(criterion, now)) {
                Some(n) => rows.push(Row::Text(
                    format!("{criterion}  FAILED: {} so far", whole(n as f64)),
                    Tone::Bad,
                )),
                None => open.push(criterion.to_string()),
            }
        }
        if !open.is_empty() {
            rows.push(Row::Text(open.join(", "), Tone::Plain));
            rows.push(text("evaluated when all counts are final"));
        }
        Some(Section::new("Criteria", rows))
    }

    fn times(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        let mut means = Vec::new();
        let pairs = [
            (
                "frame latency",
                "latency",
                "traffic",
                ["latency_samples", "latency_sum_ns"],
            ),
            (
                "load responses",
                "request_ns",
                "load",
                ["request_samples", "request_sum_ns"],
            ),
            (
                "load connects",
                "connect_ns",
                "load",
                ["connect_samples", "connect_sum_ns"],
            ),
            (
                "HTTP responses",
                "latency_ns",
                "http",
                ["latency_samples", "latency_sum_ns"],
            ),
        ];
        for (name, past, of, [samples, sum]) in pairs {
            let last = self.figures.mean(of, samples, sum);
            let all = self.figures.mean_of_all(of, samples, sum);
            let past = match of {
                "traffic" => self.past(past),
                of => self.progress.means(of, past),
            };
            let known: Vec<f64> = past.iter().copied().flatten().collect();
            let now = known.last().copied().or(last);
            if now.is_none() && all.is_none() {
                continue;
            }
            let write = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), time_ns);
            let measured = self
                .figures
                .last(of, samples)
                .map_or_else(String::new, whole);
            means.push(
                Row::of(
                    name,
                    [
                        write(now),
                        write(all),
                        write(known.iter().copied().reduce(f64::min)),
                        write(known.iter().copied().reduce(f64::max)),
                        measured,
                    ],
                )
                .over(past),
            );
        }
        if means.is_empty() {
            let none = text("no times measured yet");
            return vec![Section::new("Times", vec![none])];
        }
        let head = ["now", "whole run", "lowest", "highest", "samples"];
        means.insert(0, Row::toned("", head.map(str::to_owned), Tone::Label));
        sections.push(Section::new("Mean per interval", means));
        sections.extend(self.percentiles());
        sections
    }

    /// Percentiles of each interval, and of all times so far with their histogram.
    fn percentiles(&self) -> Vec<Section> {
        let write = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), time_ns);
        let (mut intervals, mut all, mut histograms) = (Vec::new(), Vec::new(), Vec::new());
        for (name, of, key) in [
            ("frame latency", "traffic", "latency"),
            ("load responses", "load", "request"),
            ("load connects", "load", "connect"),
            ("HTTP responses", "http", "latency"),
        ] {
            let Some(spread) = self.figures.spread(of, key) else {
                continue;
            };
            let columns = PERCENTILES.map(|(_, ends)| format!("{key}_{ends}"));
            let now = columns.clone().map(|c| write(self.figures.last(of, &c)));
            let [_, p99, _] = &columns;
            intervals.push(Row::of(name, now).over(self.figures.past(of, p99)));

            let so_far = &spread.so_far;
            let ends = so_far.buckets().fold(None, |ends, bucket| {
                let (low, _) = ends.unwrap_or((bucket.low, 0));
                Some((low, bucket.high))
            });
            #[allow(clippy::cast_precision_loss)]
            let of_ns = |ns: u64| ns as f64;
            let of_all = PERCENTILES.map(|(percent, _)| so_far.percentile(percent).map(of_ns));
            all.push(Row::of(name, of_all.map(write)));
            let ends = [ends.map(|e| of_ns(e.0)), ends.map(|e| of_ns(e.1))];
            #[allow(clippy::cast_precision_loss)]
            let counts = so_far.counts().map(|n| Some(n as f64)).collect();
            histograms.push(Row::of(name, ends.map(write)).over(counts));
        }
        if all.is_empty() {
            let none = "not available during the run; see the report";
            return vec![Section::new("Percentiles and histogram", vec![text(none)])];
        }
        let head =
            |names: &[&str]| Row::toned("", names.iter().map(|n| (*n).to_owned()), Tone::Label);
        intervals.insert(0, head(&["p50", "p99", "p99.9", "p99 over time"]));
        all.insert(0, head(&["p50", "p99", "p99.9"]));
        histograms.insert(0, head(&["from", "to", "distribution"]));
        vec![
            Section::new("Percentiles of the last interval, within 3 %", intervals),
            Section::new("Percentiles of the whole run, within 3 %", all),
            Section::new(
                "Histogram of the whole run, 16 buckets per doubling",
                histograms,
            ),
        ]
    }

    fn jobs(&self) -> Vec<Section> {
        let mut owners = self.figures.owners("job ");
        if owners.is_empty() {
            let kinds = ["traffic", "load", "http", "devices", "socket"];
            owners = kinds
                .into_iter()
                .filter(|kind| self.figures.names(kind).next().is_some())
                .collect();
        }
        owners.extend(self.figures.owners("capture"));
        let mut sections = Vec::new();
        for of in owners {
            sections.push(Section::new(of, self.everything(of)));
        }
        if sections.is_empty() {
            sections.push(Section::new("Jobs", vec![text("not measured")]));
        }
        if self.figures.names("traffic").next().is_some() {
            sections.push(Section::new("Flows received", self.flows()));
        }
        sections
    }

    /// The first flows, if there are several.
    fn flows(&self) -> Vec<Row> {
        let owners = self.figures.owners("flow ");
        if owners.is_empty() {
            return vec![text("at most one flow; its figures are above")];
        }
        let labels = ["frames", "bits", "mean latency"].map(str::to_owned);
        let mut rows = vec![Row::toned("number", labels, Tone::Label)];
        for of in owners {
            let rate = |name: &str| self.figures.rate(of, name);
            let mean = self.figures.mean(of, "latency_samples", "latency_sum_ns");
            let figures = [
                rate("received_frames").map(rate_pps),
                rate("received_octets").map(|octets| rate_bps(8.0 * octets)),
                mean.map(time_ns),
            ];
            let figures = figures.map(|told| told.unwrap_or_else(|| "-".to_owned()));
            let number = of.strip_prefix("flow ").unwrap_or(of);
            rows.push(Row::of(number, figures).over(self.figures.rates(of, "received_frames")));
        }
        rows.push(text("first eight flows of each job; the report lists all"));
        rows
    }

    /// All figures of an owner: total, per second, over time.
    fn everything(&self, of: &str) -> Vec<Row> {
        let names = self.figures.names(of);
        names
            .filter(|name| !name.ends_with("_sum_ns"))
            .filter_map(|name| {
                let value = self.figures.last(of, name)?;
                let percentile = PERCENTILES.iter().any(|(_, ends)| name.ends_with(ends));
                if let Some(name) = name.strip_suffix("_ns").filter(|_| percentile) {
                    let past = self.figures.past(of, &format!("{name}_ns"));
                    let shown = name.replace('_', " ").replace("p999", "p99.9");
                    let row = Row::of(&shown, [time_ns(value), String::new()]);
                    return Some(row.over(past));
                }
                let shown = name.replace('_', " ");
                Some(match self.figures.rate(of, name) {
                    Some(rate) => Row::of(&shown, [whole(value), per_second(rate)])
                        .over(self.figures.rates(of, name)),
                    None => Row::of(&shown, [whole(value)]),
                })
            })
            .collect()
    }

    fn workers(&self) -> Vec<Section> {
        let owners = self.figures.owners("worker ");
        if owners.is_empty() {
            return vec![Section::new(
                "Workers",
                vec![text(
                    "not available during this kind of run; see the report",
                )],
            )];
        }
        let mut rows = vec![Row::toned(
            "port, queue",
            ["busy", "sent", "received"].map(str::to_owned),
            Tone::Label,
        )];
        for of in owners {
            let busy = self
                .figures
                .rate(of, "busy_ns")
                .map(|ns| (ns / 1e9).min(1.0));
            let busy = busy.map_or_else(
                || "-".to_owned(),
                |part| {
                    let bar = crate::bars::gauge(part, 10, self.about.unicode);
                    format!("{bar} {:>3.0} %", part * 100.0)
                },
            );
            let rate = |name: &str| {
                let rate = self.figures.rate(of, name);
                rate.map_or_else(|| "-".to_owned(), rate_pps)
            };
            let figures = [busy, rate("offered_frames"), rate("received_frames")];
            let past = ["busy_ns", "received_frames", "offered_frames"]
                .map(|name| self.figures.rates(of, name))
                .into_iter()
                .find(|past| !past.is_empty());
            let shown = of.strip_prefix("worker ").unwrap_or(of).replace(' ', ", ");
            rows.push(Row::of(&shown, figures).over(past.unwrap_or_default()));
        }
        vec![Section::new("Workers", rows)]
    }

    fn counters(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        for of in self.figures.owners("port ") {
            let mut rows = vec![Row::toned(
                "",
                ["since the start", "per second"].map(str::to_owned),
                Tone::Label,
            )];
            for name in self.figures.names(of) {
                let grown = self.figures.grown(of, name).unwrap_or(0.0);
                let common = ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes"].contains(&name);
                if grown == 0.0 && !common {
                    continue;
                }
                let rate = self.figures.rate(of, name).unwrap_or(0.0);
                rows.push(
                    Row::of(name, [whole(grown), per_second(rate)])
                        .over(self.figures.rates(of, name)),
                );
            }
            rows.push(text("unchanged counters are not shown"));
            let name = of.strip_prefix("port ").unwrap_or(of);
            let locator = self.about.ports.iter().find(|(n, _)| n == name);
            let title = match locator {
                Some((_, locator)) => format!("Port {name}, {locator}"),
                None => format!("Port {name}"),
            };
            sections.push(Section::new(&title, rows));
        }
        let probes = self.now.iter().flat_map(|now| &now.probes);
        sections.extend(probes.map(probe));
        if sections.is_empty() {
            let none = text("this run has no interface counters and no probes");
            sections.push(Section::new("Counters", vec![none]));
        }
        sections
    }

    pub(crate) fn said(&self, most: usize) -> Section {
        let first = self.messages.len().saturating_sub(most);
        let mut rows: Vec<Row> = self
            .messages
            .iter()
            .skip(first)
            .map(|line| Row::Text(line.clone(), Tone::Warn))
            .collect();
        if rows.is_empty() {
            rows.push(text("no messages"));
        }
        Section::new("Messages", rows)
    }
}

/// Rows of the counts that should be zero but are not.
fn flaws(t: &Totals) -> Vec<Row> {
    let flaws = [
        ("duplicate", t.duplicate_frames),
        ("reordered", t.reordered_frames),
        ("late", t.late_frames),
        ("foreign", t.foreign_frames),
        ("unsent", t.unsent_frames),
        ("refused", t.refused_frames),
        ("dropped by tester", t.rx_dropped_frames),
    ];
    let seen = flaws
        .into_iter()
        .map(|(name, n)| (name, n.filter(|n| *n > 0)));
    seen.filter_map(|(name, n)| trouble(name, n, [])).collect()
}

fn probe(probe: &ProbeLive) -> Section {
    let mut rows: Vec<Row> = Vec::new();
    rows.extend(trouble(
        "failed readings",
        Some(probe.failures).filter(|n| *n > 0),
        [],
    ));
    let counters = probe.counters.iter();
    rows.extend(counters.map(|(name, n)| Row::of(name, [format!("+{}", count(*n))])));
    let gauges = probe.gauges.iter();
    rows.extend(gauges.map(|(name, n)| Row::of(name, [count(*n)])));
    if rows.is_empty() {
        rows.push(text("no readings yet"));
    }
    Section::new(&format!("Probe {}", probe.name), rows)
}
