//! Figures of a run in the text format of OpenMetrics, for Prometheus and compatible readers.
//!
//! Names are derived from those of snapshots, timelines and reports, so a new counter appears without code here:
//! `received_frames` of `job a` is `wirebench_job_received_frames_total{job="a"}`. Times are in seconds, octets are
//! bytes, ratios range from 0 to 1.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use serde_json::{Map, Value};
use wb_counters::stat_document::StatDocument;
use wb_figures::{Kind, Section};
use wb_model::{
    Phase, Report, Snapshot,
    bench::{BenchLive, is_test},
    timeline::{Distribution, Spread, Timeline},
};

/// Media type of [`text()`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Media type of [`older`].
pub const OLDER_MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Known figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Latest figures, of a single moment ([`Timeline::last`]).
    pub figures: Timeline,
    /// Snapshot as shown on screens.
    pub snapshot: Option<Snapshot>,
    /// The jobs of the report so far, during the run.
    pub so_far: Option<Report>,
    /// Report, once the run has ended.
    pub report: Option<Report>,
    /// Counts of interfaces, CPUs and devices since the first reading of `stat`: its line of totals.
    pub stat: Option<StatDocument>,
}

type Labels = Vec<(String, String)>;

/// All values of one name.
#[derive(Debug)]
struct Family {
    /// Name without prefix and unit, which the encoder adds.
    name: String,
    help: String,
    unit: Option<Unit>,
    samples: Samples,
}

#[derive(Debug)]
enum Samples {
    Counters(BTreeMap<Labels, f64>),
    Gauges(BTreeMap<Labels, f64>),
    Info(Labels),
    /// Sum, and the upper limit of each bucket with its count.
    Histograms(BTreeMap<Labels, (f64, Vec<(f64, u64)>)>),
}

/// Families by their name with its unit: requests `sent` and bytes `sent` are two families.
#[derive(Debug, Default)]
struct Families(BTreeMap<String, Family>);

/// The text of OpenMetrics 1.0.
#[must_use]
pub fn text(version: &str, seen: &Seen) -> String {
    written(families(version, seen))
}

/// The figures of several runs, each with its name as the label `run`, and the number of runs that are active.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn text_of_runs(version: &str, active: usize, runs: &[(String, Arc<Seen>)]) -> String {
    let mut all = families(version, &Seen::default());
    all.put("runs", "that are active", Vec::new(), false, active as f64);
    for (run, seen) in runs {
        all.add_run(run, families(version, seen));
    }
    written(all)
}

fn written(families: Families) -> String {
    let mut registry = Registry::with_prefix("wirebench");
    registry.register_collector(Box::new(families));
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

/// Converts to the older text format of Prometheus (0.0.4), which uses the full name of counters.
#[must_use]
pub fn older(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut kinds = BTreeMap::new();
    for line in openmetrics.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            kinds.insert(name, kind);
        }
    }
    for line in openmetrics.lines() {
        let told = ["# HELP ", "# TYPE "].into_iter().find_map(|word| {
            let (name, rest) = line.strip_prefix(word)?.split_once(' ')?;
            Some((word, name, rest))
        });
        match told {
            Some((word, name, rest)) => {
                let end = match kinds.get(name) {
                    Some(&"counter") => "_total",
                    Some(&"info") => "_info",
                    _ => "",
                };
                let rest = if rest == "info" { "gauge" } else { rest };
                text += &format!("{word}{name}{end} {rest}\n");
            }
            None if line.starts_with('#') => {}
            None => text += &format!("{line}\n"),
        }
    }
    text
}

/// All known figures, each once: if a figure stands in several places, the first counts.
fn families(version: &str, seen: &Seen) -> Families {
    let mut all = Families::default();
    let build = vec![("version".to_owned(), version.to_owned())];
    all.0.insert(
        "build".to_owned(),
        Family {
            name: "build".to_owned(),
            help: "Version of wirebench".to_owned(),
            unit: None,
            samples: Samples::Info(build),
        },
    );
    all.figures(&seen.figures);
    let totals = match (&seen.report, &seen.snapshot) {
        (Some(report), _) => serde_json::to_value(report.totals),
        (None, Some(snapshot)) => serde_json::to_value(snapshot.totals),
        (None, None) => Ok(Value::Null),
    };
    if let Ok(Value::Object(totals)) = totals {
        all.section("", "of the whole run", &Vec::new(), &totals);
    }
    if let Some(report) = &seen.report {
        all.report(report);
    }
    if let Some(snapshot) = &seen.snapshot {
        all.snapshot(snapshot, seen.report.is_some());
    }
    if let Some(line) = &seen.stat {
        all.stat(line);
    }
    if seen.report.is_none() {
        for spread in &seen.figures.spreads {
            all.distribution(&by_doubling(spread), None, "so far");
        }
    }
    match (&seen.report, &seen.so_far) {
        (Some(report), _) => all.jobs(report, "of the finished run", |_| true),
        // Other figures have their values at the end.
        (None, Some(so_far)) => all.jobs(so_far, "so far", |kind| kind == Kind::Counter),
        (None, None) => {}
    }
    all
}

impl Samples {
    /// Adds a label to all samples.
    fn label(&mut self, name: &str, value: &str) {
        fn each<T>(samples: &mut BTreeMap<Labels, T>, label: &(String, String)) {
            let old = std::mem::take(samples).into_iter();
            *samples = old
                .map(|(mut labels, value)| {
                    labels.push(label.clone());
                    (labels, value)
                })
                .collect();
        }
        let label = (name.to_owned(), value.to_owned());
        match self {
            Self::Counters(samples) | Self::Gauges(samples) => each(samples, &label),
            Self::Histograms(samples) => each(samples, &label),
            Self::Info(_) => {}
        }
    }
}

impl Families {
    /// Adds the figures of a run, with its name as a label.
    fn add_run(&mut self, run: &str, of_run: Self) {
        for (name, mut family) in of_run.0 {
            family.samples.label("run", run);
            let Some(known) = self.0.get_mut(&name) else {
                self.0.insert(name, family);
                continue;
            };
            match (&mut known.samples, family.samples) {
                (Samples::Counters(all), Samples::Counters(own))
                | (Samples::Gauges(all), Samples::Gauges(own)) => all.extend(own),
                (Samples::Histograms(all), Samples::Histograms(own)) => all.extend(own),
                // A name has one kind.
                _ => {}
            }
        }
    }

    fn put(&mut self, name: &str, of: &str, labels: Labels, counter: bool, value: f64) {
        let name: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_lowercase()
                } else {
                    '_'
                }
            })
            .collect();
        let (name, unit, scale) = unit_of(&name);
        let mut help = name.replace('_', " ");
        if let Some(first) = help.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let empty = match counter {
            true => Samples::Counters(BTreeMap::new()),
            false => Samples::Gauges(BTreeMap::new()),
        };
        let whole = with_unit(&name, unit.as_ref());
        let family = self.0.entry(whole).or_insert_with(|| Family {
            name,
            help: format!("{help} {of}").trim_end().to_owned(),
            unit,
            samples: empty,
        });
        if let Samples::Counters(samples) | Samples::Gauges(samples) = &mut family.samples {
            samples.entry(labels).or_insert(value * scale);
        }
    }

    fn figures(&mut self, figures: &Timeline) {
        for column in &figures.columns {
            let (kind, labels, of) = whose(&column.of);
            let Some(value) = column.values.last().copied().flatten() else {
                continue;
            };
            let (name, labels) = caused(&column.name, labels);
            let name = format!("{kind}_{name}");
            self.put(&name, of, labels, column.counter, value);
        }
    }

    /// Numbers of a part of a snapshot, by their names there; tables in it are counts by cause.
    fn section(&mut self, kind: &str, of: &str, labels: &Labels, section: &Map<String, Value>) {
        let name = |key: &str| format!("{kind}{}{key}", if kind.is_empty() { "" } else { "_" });
        for (key, value) in section {
            let counter = !["open", "in_flight", "connecting"]
                .iter()
                .any(|w| key.starts_with(w));
            match value {
                Value::Object(causes) => {
                    for (cause, value) in causes {
                        let with = [labels.as_slice(), &[("cause".to_owned(), cause.clone())]];
                        if let Some(value) = value.as_f64() {
                            self.put(&name(key), of, with.concat(), counter, value);
                        }
                    }
                }
                value => {
                    if let Some(value) = value.as_f64() {
                        self.put(&name(key), of, labels.clone(), counter, value);
                    }
                }
            }
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn snapshot(&mut self, snapshot: &Snapshot, ended: bool) {
        let none = Vec::new;
        let label = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        let elapsed = snapshot.elapsed_ns as f64;
        self.put("run_elapsed_ns", "", none(), false, elapsed);
        // The last snapshot of some kinds of runs was taken before the end.
        let stale = ended && snapshot.phase != Phase::Done;
        if let Some(progress) = snapshot.progress.filter(|_| !stale) {
            self.put("run_progress_ratio", "", none(), false, progress);
        }
        let phase = serde_json::to_value(snapshot.phase);
        if let (Ok(Value::String(phase)), false) = (phase, ended) {
            self.put(
                "run_phase",
                "(1 for the current phase)",
                label("phase", &phase),
                false,
                1.0,
            );
        }
        if let Some(missing) = snapshot.missing_frames {
            self.put(
                "missing_frames",
                "(lost or in flight)",
                none(),
                false,
                missing as f64,
            );
        }
        if let Some(outages) = snapshot.outages {
            let of = "(so far; reordered frames take outages back)";
            self.put("outages", of, none(), false, outages as f64);
        }
        if let Some(Ok(Value::Object(totals))) = snapshot
            .http
            .as_ref()
            .map(|live| serde_json::to_value(live.totals))
        {
            self.section("http", "of HTTP loads", &none(), &totals);
        }
        if let Some(live) = &snapshot.socket {
            let of = "of socket tests";
            self.put("socket_job", of, none(), false, f64::from(live.job + 1));
            self.put("socket_jobs", of, none(), false, f64::from(live.jobs));
            self.put(
                "socket_iteration",
                of,
                none(),
                false,
                f64::from(live.iteration),
            );
            self.put("socket_clients", of, none(), false, live.clients as f64);
            let name = match live.transactions {
                true => "socket_iteration_transactions",
                false => "socket_iteration_octets",
            };
            self.put(
                name,
                "(current iteration)",
                none(),
                false,
                live.total as f64,
            );
        }
        let one = snapshot.capture.iter().map(|live| (none(), live));
        let several = snapshot.captures.iter();
        for (labels, live) in one.chain(several.map(|(n, live)| (label("capture", n), live))) {
            if let Ok(Value::Object(counts)) = serde_json::to_value(live) {
                self.section("capture", "of a capture", &labels, &counts);
            }
        }
        for probe in &snapshot.probes {
            let labels = label("probe", &probe.name);
            let failures = probe.failures as f64;
            self.put(
                "probe_failures",
                "(failed readings)",
                labels,
                true,
                failures,
            );
        }
        if let Some(bench) = &snapshot.bench {
            self.search(bench, ended);
        }
    }

    /// Figures of a running benchmark.
    #[allow(clippy::cast_precision_loss)]
    fn search(&mut self, bench: &BenchLive, ended: bool) {
        let mut labels = Vec::new();
        if let Ok(Value::String(metric)) = serde_json::to_value(bench.metric) {
            labels.push(("metric".to_owned(), metric));
        }
        labels.extend(bench.size.clone().map(|size| ("size".to_owned(), size)));
        let burst = bench.burst.map(|frames| frames.to_string());
        labels.extend(burst.map(|burst| ("burst".to_owned(), burst)));
        let test = bench.test.map(|test| test.name().to_owned());
        labels.extend(test.map(|test| ("test".to_owned(), test)));
        let of = "of the running search, from 1";
        let number = f64::from(bench.trial);
        self.put("bench_trial", of, labels.clone(), false, number);
        if let Some(ns) = bench.left_ns.filter(|_| !ended) {
            let of = "(estimate)";
            self.put("bench_left_ns", of, labels.clone(), false, ns as f64);
        }
        if !bench.unit.is_empty() {
            labels.push(("unit".to_owned(), bench.unit.clone()));
        }
        for (name, of, value) in [
            ("bench_load", "of the current trial", bench.load),
            ("bench_low", "(highest load that passed)", bench.low),
            ("bench_high", "(lowest load that failed)", bench.high),
        ] {
            if let Some(value) = value.filter(|_| !ended) {
                self.put(name, of, labels.clone(), false, value);
            }
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn stat(&mut self, line: &StatDocument) {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let since = "since the first reading";
        self.put("stat_seconds", since, Vec::new(), false, line.seconds);
        for interface in &line.interfaces {
            let labels = vec![label("interface", &interface.name)];
            for (name, n) in interface.counted.iter().flatten() {
                let name = format!("interface_{name}");
                self.put(&name, since, labels.clone(), true, *n as f64);
            }
            let resets = interface.resets.unwrap_or_default() as f64;
            self.put("interface_resets", since, labels.clone(), true, resets);
            let running = f64::from(u8::from(interface.running));
            self.put(
                "interface_running",
                "(1 or 0)",
                labels.clone(),
                false,
                running,
            );
            if let Some(speed) = interface.speed_bps {
                self.put("interface_speed_bps", "", labels, false, speed as f64);
            }
        }
        for cpu in &line.softnet.cpus {
            let labels = vec![label("cpu", &cpu.cpu.to_string())];
            if let Ok(Value::Object(counted)) = serde_json::to_value(cpu.counted) {
                for (name, n) in &counted {
                    let name = format!("softnet_{name}");
                    let n = n.as_f64().unwrap_or_default();
                    self.put(
                        &name,
                        "of the packets that a CPU processes",
                        labels.clone(),
                        name != "softnet_backlog",
                        n,
                    );
                }
            }
        }
        for device in &line.devices {
            for (name, n) in device.groups.values().flatten() {
                let labels = vec![label("interface", &device.interface), label("name", name)];
                self.put(
                    "driver_statistic",
                    "(changed counters only)",
                    labels,
                    true,
                    *n as f64,
                );
            }
        }
        for probe in &line.probes {
            let labels = vec![label("probe", &probe.name)];
            let counted = probe
                .counted
                .iter()
                .filter_map(|(name, n)| Some((name, (*n)?, true)));
            let gauges = probe.gauges.iter().map(|(name, n)| (name, *n, false));
            for (name, n, counter) in counted.chain(gauges) {
                let name = format!("probe_{name}");
                self.put(
                    &name,
                    "as read by the probe",
                    labels.clone(),
                    counter,
                    n as f64,
                );
            }
            let failures = probe.failures.unwrap_or_default() as f64;
            self.put(
                "probe_failures",
                "(failed readings)",
                labels,
                true,
                failures,
            );
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn report(&mut self, report: &Report) {
        let label = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        let elapsed = report.elapsed_ns as f64;
        self.put("run_elapsed_ns", "", Vec::new(), false, elapsed);
        let of = "(1 for the current phase)";
        self.put("run_phase", of, label("phase", "done"), false, 1.0);
        for job in report.socket.iter().flat_map(|socket| &socket.jobs) {
            let result = serde_json::to_value(job.result).unwrap_or_default();
            for (key, value) in result.as_object().into_iter().flatten() {
                let key = match key.as_str() {
                    "elapsed_s" => "elapsed_seconds",
                    key => key,
                };
                if let Some(value) = value.as_f64() {
                    let name = format!("socket_result_{key}");
                    let of = "of a finished socket test";
                    self.put(&name, of, label("job", &job.name), false, value);
                }
            }
        }
        if let Ok(Value::String(verdict)) = serde_json::to_value(report.verdict) {
            let labels = vec![("verdict".to_owned(), verdict)];
            self.put(
                "run_verdict",
                "(1 for the verdict of the run)",
                labels,
                false,
                1.0,
            );
        }
        for result in &report.results {
            let unit = ("unit".to_owned(), result.unit.clone());
            let name = |of: &str| (of.to_owned(), result.name().to_owned());
            let mut labels = match result.balancer {
                Some(_) => vec![unit, name("metric")],
                None => vec![name("test"), unit],
            };
            let burst = result.burst.as_ref().map(|burst| burst.frames.to_string());
            for (name, value) in [
                ("size", Some(&result.size)),
                ("goal", result.goal.as_ref()),
                ("burst", burst.as_ref()),
            ] {
                let value = value.filter(|value| !value.is_empty());
                labels.extend(value.map(|value| (name.to_owned(), value.clone())));
            }
            if let Some(limit) = result.limit {
                let of = "found by a benchmark";
                self.put("bench_limit", of, labels, false, limit);
            }
        }
        let whole = serde_json::to_value(report).unwrap_or_default();
        for distribution in &report.distributions {
            let sum = sum_of(&whole, distribution);
            self.distribution(distribution, sum, "of the finished run");
        }
    }

    /// Numbers of the jobs of a report, by their names in its CSV. Names that are known already count once.
    fn jobs(&mut self, report: &Report, of: &str, is_shown: impl Fn(Kind) -> bool) {
        let known: BTreeSet<String> = self.0.keys().cloned().collect();
        // Sums over jobs must not count their total, too.
        let is_job = |section: &Section<'_>| !section.is_total || report.jobs.is_empty();
        for section in report.sections().into_iter().filter(is_job) {
            let is_bench = is_test(section.kind);
            let kind = match is_bench {
                true => format!("bench_{}", section.kind),
                false => section.kind.to_owned(),
            };
            let labels = match is_bench {
                true => section.parameters.to_vec(),
                false => vec![("job".to_owned(), section.job.to_string())],
            };
            let shown = section.figures.iter().filter(|f| is_shown(f.def.kind));
            for figure in shown {
                let def = figure.def;
                let name = match def.unit {
                    wb_figures::Unit::Share => {
                        format!("{}_{}_ratio", kind, def.name.trim_end_matches("_share"))
                    }
                    _ => format!("{}_{}", kind, def.name),
                };
                let (base, unit, _) = unit_of(&name);
                let whole = with_unit(&base, unit.as_ref());
                let result = whole.replacen('_', "_result_", 1);
                let is_known = known.contains(&whole) || known.contains(&result);
                if let Some(value) = figure.value.number().filter(|_| !is_known) {
                    let is_counter = def.kind == Kind::Counter;
                    self.put(&name, of, labels.clone(), is_counter, value);
                }
            }
        }
    }

    /// A distribution of times as a histogram. Its sum is the known sum, or else computed from the middles of buckets.
    /// Differences, which can be negative, have no sum and are left out.
    #[allow(clippy::cast_precision_loss)]
    fn distribution(&mut self, distribution: &Distribution, sum: Option<f64>, when: &str) {
        let buckets = &distribution.buckets;
        let Some(base) = distribution.name.strip_suffix("_ns") else {
            return;
        };
        if buckets.is_empty() || buckets.iter().any(|(low, ..)| *low < 0) {
            return;
        }
        let middles = buckets
            .iter()
            .map(|(low, high, n)| (*low as f64 / 2.0 + *high as f64 / 2.0) * *n as f64);
        let sum = sum.unwrap_or_else(|| middles.sum());
        let buckets = buckets.iter().map(|(_, high, n)| (*high as f64 / 1e9, *n));
        // No value lies above the last bucket.
        let buckets = buckets.chain([(f64::INFINITY, 0)]).collect();
        let labels = match distribution.of.is_empty() {
            true => Vec::new(),
            false => vec![("job".to_owned(), distribution.of.clone())],
        };
        let unit = Some(Unit::Seconds);
        let whole = with_unit(base, unit.as_ref());
        let family = self.0.entry(whole).or_insert_with(|| Family {
            name: base.to_owned(),
            help: format!("{} {when}", base.replace('_', " ")),
            unit,
            samples: Samples::Histograms(BTreeMap::new()),
        });
        if let Samples::Histograms(samples) = &mut family.samples {
            samples.insert(labels, (sum / 1e9, buckets));
        }
    }
}

/// The exact sum of a distribution's values: from the mean of the run, or from the means of its jobs if they cover the
/// same values.
#[allow(clippy::cast_precision_loss)]
fn sum_of(report: &Value, distribution: &Distribution) -> Option<f64> {
    let Distribution { of, name, .. } = distribution;
    let kinds = [
        &report["jobs"],
        &report["load"]["jobs"],
        &report["http"]["jobs"],
    ];
    let jobs = kinds.into_iter().filter_map(Value::as_array).flatten();
    let jobs = jobs.filter(|job| of.is_empty() || job["name"].as_str() == Some(of));
    let whole = std::iter::once(report).filter(|_| of.is_empty());
    let sum = |of: &mut dyn Iterator<Item = &Value>| {
        of.fold((0, 0.0), |(count, sum), part| {
            let n = part[name]["samples"].as_u64().unwrap_or(0);
            let mean = part[name]["mean"].as_f64().unwrap_or(0.0);
            (count + n, sum + mean * n as f64)
        })
    };
    // For loads, the times of the run are those of the client end.
    let asking = jobs.clone().filter(|job| job["end"] != "server");
    let sums = [
        sum(&mut { whole }),
        sum(&mut { jobs }),
        sum(&mut { asking }),
    ];
    let same = sums.into_iter().find(|(n, _)| *n == distribution.count());
    same.map(|(_, sum)| sum)
}

/// Distribution of a run that continues, in buckets that double from 1 us to 34 s, which stay the same from reading to
/// reading.
#[allow(clippy::cast_possible_wrap)]
fn by_doubling(spread: &Spread) -> Distribution {
    let mut counts = [0_u64; 26];
    for bucket in spread.so_far.buckets() {
        let doubling = u64::BITS - bucket.high.leading_zeros();
        let place = doubling.saturating_sub(10).min(counts.len() as u32 - 1);
        counts[place as usize] += bucket.count;
    }
    let mut low = 0;
    let buckets = counts.iter().enumerate().map(|(place, count)| {
        let high = (1_i64 << (place + 10)) - 1;
        (std::mem::replace(&mut low, high + 1), high, *count)
    });
    Distribution {
        of: spread
            .of
            .strip_prefix("job ")
            .unwrap_or_default()
            .to_owned(),
        name: format!("{}_ns", spread.name),
        buckets: buckets.collect(),
    }
}

/// First word of the owner of a figure, its labels, and the end of the help.
fn whose(of: &str) -> (&str, Labels, &'static str) {
    let (kind, name) = of.split_once(' ').unwrap_or((of, ""));
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let of = match kind {
        "job" => "of a job",
        "worker" => "of a worker",
        "flow" => "of one of the first flows",
        "port" => "as counted by the interface since its creation",
        "probe" => "as read by the probe",
        "capture" => "of a capture",
        _ => "of all jobs of the kind",
    };
    let labels = match (kind, name.rsplit_once(' ')) {
        (_, _) if name.is_empty() => Vec::new(),
        ("worker", Some((port, queue))) => vec![label("port", port), label("queue", queue)],
        _ => vec![label(kind, name)],
    };
    (kind, labels, of)
}

/// Name of a count by cause, and the cause as a label.
fn caused(name: &str, mut labels: Labels) -> (&str, Labels) {
    for (begins, family) in [
        ("failed_", "failed"),
        ("no_connection_", "refused_connections"),
    ] {
        if let Some(cause) = name.strip_prefix(begins)
            && cause != "connections"
        {
            labels.push(("cause".to_owned(), cause.to_owned()));
            return (family, labels);
        }
    }
    (name, labels)
}

/// Name without its unit, the unit, and the factor that converts a value to that unit.
fn unit_of(name: &str) -> (String, Option<Unit>, f64) {
    for (end, unit, scale) in [
        ("_ns", Unit::Seconds, 1e-9),
        ("_octets", Unit::Bytes, 1.0),
        ("_bytes", Unit::Bytes, 1.0),
        ("_ratio", Unit::Ratios, 1.0),
        ("_bps", Unit::Other("bytes_per_second".to_owned()), 0.125),
    ] {
        if let Some(base) = name.strip_suffix(end) {
            return match unit {
                Unit::Ratios => (name.to_owned(), None, 1.0),
                unit => (base.to_owned(), Some(unit), scale),
            };
        }
    }
    (name.to_owned(), None, 1.0)
}

/// The exported name with its unit, without prefix and suffix.
fn with_unit(name: &str, unit: Option<&Unit>) -> String {
    match unit {
        Some(Unit::Seconds) => format!("{name}_seconds"),
        Some(Unit::Bytes) => format!("{name}_bytes"),
        Some(Unit::Other(unit)) => format!("{name}_{unit}"),
        _ => name.to_owned(),
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in self.0.values() {
            let kind = match family.samples {
                Samples::Counters(_) => MetricType::Counter,
                Samples::Gauges(_) => MetricType::Gauge,
                Samples::Info(_) => MetricType::Info,
                Samples::Histograms(_) => MetricType::Histogram,
            };
            let unit = family.unit.as_ref();
            let mut metric = encoder.encode_descriptor(&family.name, &family.help, unit, kind)?;
            match &family.samples {
                Samples::Counters(samples) => {
                    for (labels, value) in samples {
                        sample(&mut metric, labels, |of| match whole(*value) {
                            Some(n) => of.encode_counter::<NoLabelSet, u64, u64>(&n, None),
                            None => of.encode_counter::<NoLabelSet, f64, u64>(value, None),
                        })?;
                    }
                }
                Samples::Gauges(samples) => {
                    for (labels, value) in samples {
                        sample(&mut metric, labels, |of| of.encode_gauge(value))?;
                    }
                }
                Samples::Info(labels) => metric.encode_info(labels)?,
                Samples::Histograms(samples) => {
                    for (labels, (sum, buckets)) in samples {
                        let count = buckets.iter().map(|b| b.1).sum();
                        sample(&mut metric, labels, |of| {
                            of.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
                        })?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A value with its labels. Without labels there are no braces.
fn sample(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels,
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    match labels.is_empty() {
        true => encode(metric),
        false => encode(&mut metric.encode_family(labels)?),
    }
}

/// A count as an integer.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> Option<u64> {
    // Above this limit not all integers can be represented.
    ((0.0..9e15).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use wb_model::{
        http::{HttpJobReport, HttpReport},
        load::{LoadJobReport, LoadReport},
        timeline::Recorder,
    };

    use super::*;

    /// Figures of a moment.
    fn figures(of: &[(&str, &str, &str, bool, f64)]) -> Timeline {
        let mut recorder = Recorder::new(1);
        let mut row = recorder.row(5);
        for (of, name, unit, counter, value) in of {
            match counter {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                true => row.counter(of, name, unit, *value as u64),
                false => row.level(of, name, unit, *value),
            }
        }
        drop(row);
        recorder.so_far().last()
    }

    /// Value of each sample. Panics if the text is not valid OpenMetrics.
    fn read(text: &str) -> BTreeMap<String, f64> {
        let name_ends =
            |l: &str| l.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        let (mut kind, mut family) = ("", "");
        let (mut families, mut values) = (BTreeSet::new(), BTreeMap::new());
        let body = text.strip_suffix("# EOF\n").expect("it ends with EOF");
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let (word, rest) = rest.split_once(' ').unwrap();
                let (name, rest) = rest.split_once(' ').unwrap();
                match word {
                    "HELP" => {
                        assert!(families.insert(name), "{name} twice");
                        family = name;
                        assert!(rest.len() > 3, "{line}");
                    }
                    "TYPE" => kind = rest,
                    "UNIT" => assert!(name.ends_with(rest), "{line}"),
                    _ => panic!("{line}"),
                }
                assert_eq!(name, family, "{line}");
                continue;
            }
            let (name, rest) = line.split_at(name_ends(line).unwrap());
            assert!(name.starts_with("wirebench_"), "{line}");
            let end = name.strip_prefix(family).expect(line);
            match kind {
                "counter" => assert_eq!(end, "_total", "{line}"),
                "gauge" => assert_eq!(end, "", "{line}"),
                "info" => assert_eq!(end, "_info", "{line}"),
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&end), "{line}"),
                _ => panic!("{line}"),
            }
            let mut rest = rest;
            if let Some(mut labels) = rest.strip_prefix('{') {
                loop {
                    let (key, value) = labels.split_once("=\"").expect(line);
                    assert_eq!(name_ends(key), None, "{line}");
                    let mut escaped = false;
                    let end = value.find(|c| {
                        let ends = c == '"' && !escaped;
                        escaped = c == '\\' && !escaped;
                        ends
                    });
                    labels = &value[end.expect(line) + 1..];
                    match labels.strip_prefix(',') {
                        Some(more) => labels = more,
                        None => break,
                    }
                }
                rest = labels.strip_prefix('}').expect(line);
            }
            let value: f64 = rest.strip_prefix(' ').expect(line).parse().expect(line);
            let id = line[..line.len() - rest.len()].to_owned();
            assert!(values.insert(id, value).is_none(), "twice: {line}");
        }
        values
    }

    #[test]
    fn several_runs_have_their_names_as_labels() {
        let mut of_times = wb_measure::Outline::default();
        for ns in [900, 1_500, 40_000_000, 60_000_000_000] {
            of_times.add_to_slot(wb_measure::Outline::slot(ns), 1);
        }
        let seen = |frames: f64| {
            let mut figures = figures(&[("traffic", "received_frames", "frames", true, frames)]);
            figures.spreads.push(Spread {
                of: "traffic".to_owned(),
                name: "latency".to_owned(),
                so_far: of_times.clone(),
            });
            Arc::new(Seen {
                figures,
                ..Seen::default()
            })
        };
        let runs = [("r1".to_owned(), seen(7.0)), ("r2".to_owned(), seen(9.0))];
        let values = read(&text_of_runs("1.2.3", 2, &runs));
        for (id, value) in [
            (r#"wirebench_build_info{version="1.2.3"}"#, 1.0),
            ("wirebench_runs", 2.0),
            (r#"wirebench_traffic_received_frames_total{run="r1"}"#, 7.0),
            (r#"wirebench_traffic_received_frames_total{run="r2"}"#, 9.0),
            (r#"wirebench_latency_seconds_count{run="r2"}"#, 4.0),
            (
                r#"wirebench_latency_seconds_bucket{le="0.000001023",run="r2"}"#,
                1.0,
            ),
            (
                r#"wirebench_latency_seconds_bucket{le="0.000002047",run="r2"}"#,
                2.0,
            ),
            (
                r#"wirebench_latency_seconds_bucket{le="+Inf",run="r2"}"#,
                4.0,
            ),
        ] {
            assert_eq!(values.get(id), Some(&value), "{id}: {values:?}");
        }
        // The buckets do not depend on the values.
        let buckets = values
            .keys()
            .filter(|id| id.contains("_bucket{") && id.contains("r1"));
        assert_eq!(buckets.count(), 27);
    }

    #[test]
    fn names_units_and_labels() {
        let seen = Seen {
            figures: figures(&[
                ("traffic", "received_frames", "frames", true, 7.0),
                ("traffic", "received_octets", "octets", true, 448.0),
                ("traffic", "latency_sum_ns", "ns", true, 2_500_000_000.0),
                ("job a b", "received_frames", "frames", true, 3.0),
                ("worker eth2 1", "busy_ns", "ns", true, 500_000_000.0),
                ("port eth2", "rx_packets", "frames", true, 9.0),
                ("http", "failed_timeout", "requests", true, 2.0),
                ("http", "failed_reset", "requests", true, 1.0),
                ("http", "sent", "requests", true, 20.0),
                ("http", "sent_bytes", "octets", true, 30.0),
                ("load", "failed_connections", "connections", true, 4.0),
                ("load", "open_connections", "connections", false, 5.0),
                ("socket", "throughput_bps", "bit/s", false, 800.0),
            ]),
            snapshot: Some(Snapshot {
                missing_frames: Some(1),
                progress: Some(0.5),
                ..Snapshot::at(1_500_000_000, 1_000_000_000, Phase::Running)
            }),
            so_far: None,
            report: None,
            stat: None,
        };
        let values = read(&text("1.2.3", &seen));
        for (id, value) in [
            (r#"wirebench_build_info{version="1.2.3"}"#, 1.0),
            ("wirebench_traffic_received_frames_total", 7.0),
            ("wirebench_traffic_received_bytes_total", 448.0),
            ("wirebench_traffic_latency_sum_seconds_total", 2.5),
            (r#"wirebench_job_received_frames_total{job="a b"}"#, 3.0),
            (
                r#"wirebench_worker_busy_seconds_total{port="eth2",queue="1"}"#,
                0.5,
            ),
            (r#"wirebench_port_rx_packets_total{port="eth2"}"#, 9.0),
            (r#"wirebench_http_failed_total{cause="timeout"}"#, 2.0),
            (r#"wirebench_http_failed_total{cause="reset"}"#, 1.0),
            ("wirebench_http_sent_total", 20.0),
            ("wirebench_http_sent_bytes_total", 30.0),
            ("wirebench_load_failed_connections_total", 4.0),
            ("wirebench_load_open_connections", 5.0),
            ("wirebench_socket_throughput_bytes_per_second", 100.0),
            ("wirebench_missing_frames", 1.0),
            ("wirebench_run_elapsed_seconds", 1.5),
            ("wirebench_run_progress_ratio", 0.5),
            (r#"wirebench_run_phase{phase="running"}"#, 1.0),
        ] {
            assert_eq!(values.get(id), Some(&value), "{id} in {values:#?}");
        }
    }

    #[test]
    fn counters_of_the_report_so_far_are_served_during_the_run() {
        let mut job = LoadJobReport {
            name: "a b".to_owned(),
            unsent_connections: 7,
            ..LoadJobReport::default()
        };
        job.totals.attempted_connections = 9;
        let load = Some(LoadReport { jobs: vec![job] });
        let http = Some(HttpReport {
            jobs: vec![HttpJobReport::default()],
            ..HttpReport::default()
        });
        let seen = Seen {
            figures: figures(&[("load", "attempted_connections", "connections", true, 8.0)]),
            so_far: Some(Report {
                load,
                http,
                ..Report::default()
            }),
            ..Seen::default()
        };
        let values = read(&text("1", &seen));
        let unsent = r#"wirebench_load_unsent_connections_total{job="a b"}"#;
        assert_eq!(values.get(unsent), Some(&7.0), "{values:#?}");
        // The timeline has it already.
        assert_eq!(values["wirebench_load_attempted_connections_total"], 8.0);
        // A rate over the whole run is known at its end.
        let is_rate = |id: &&String| id.contains("cps") || id.contains("per_second");
        assert_eq!(values.keys().find(is_rate), None, "{values:#?}");
    }

    #[test]
    fn distributions_are_histograms_that_hold_all() {
        let mut all = Families::default();
        let fine = [(0, 0, 2), (900, 950, 3), (5_000_000, 5_000_001, 5)];
        let whole = Distribution::from_buckets("", "latency_ns", fine.into_iter());
        all.distribution(&whole, Some(10_000_000.0), "so far");
        let job = Distribution::from_buckets("a", "latency_ns", fine.into_iter());
        all.distribution(&job, None, "so far");
        let signed = [(-5, -5, 1), (5, 5, 1)];
        all.distribution(
            &Distribution::from_buckets("", "ipdv_ns", signed.into_iter()),
            None,
            "so far",
        );
        let mut registry = Registry::with_prefix("wirebench");
        registry.register_collector(Box::new(all));
        let mut out = String::new();
        text::encode(&mut out, &registry).unwrap();
        let values = read(&out);
        assert_eq!(values["wirebench_latency_seconds_count"], 10.0);
        assert!((values["wirebench_latency_seconds_sum"] - 0.01).abs() < 1e-12);
        assert_eq!(
            values[r#"wirebench_latency_seconds_bucket{le="+Inf"}"#],
            10.0
        );
        assert_eq!(values[r#"wirebench_latency_seconds_count{job="a"}"#], 10.0);
        let middles = values[r#"wirebench_latency_seconds_sum{job="a"}"#];
        assert!((middles - 0.025).abs() < 0.001, "{middles}");
        let mut last = 0.0;
        for line in out
            .lines()
            .filter(|l| l.contains("_bucket{le") && !l.contains("job="))
        {
            let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(count >= last, "{line}");
            last = count;
        }
        assert!(!out.contains("ipdv"), "{out}");
    }

    #[test]
    fn the_older_text_names_counters_by_all_of_their_name() {
        let seen = Seen {
            figures: figures(&[("load", "tx_octets", "octets", true, 7.0)]),
            ..Seen::default()
        };
        assert_eq!(
            older(&text("1", &seen)),
            "# HELP wirebench_build_info Version of wirebench\n\
             # TYPE wirebench_build_info gauge\n\
             wirebench_build_info{version=\"1\"} 1\n\
             # HELP wirebench_load_tx_bytes_total Load tx of all jobs of the kind\n\
             # TYPE wirebench_load_tx_bytes_total counter\n\
             wirebench_load_tx_bytes_total 7\n"
        );
    }

    proptest! {
        #[test]
        fn any_figures_are_openmetrics(
            figures_of in prop::collection::vec(
                ("(traffic|job|worker|port|probe|capture)( [^ ]{1,6}){0,2}", "[a-z_.:-]{1,12}(_ns|_octets|_bytes|_bps|)", any::<bool>(), 0.0..1e18),
                0..20,
            ),
        ) {
            let all: Vec<_> = figures_of.iter().map(|(of, name, c, v)| (of.as_str(), name.as_str(), "", *c, *v)).collect();
            let seen = Seen { figures: figures(&all), ..Seen::default() };
            read(&text("1", &seen));
        }
    }
}
