//! Merges the reports of several runs: of several testers at one device, or of repeated runs.
//!
//! Counts add up. Distributions add up at full resolution if all reports have their values (`--histograms`); without
//! them, percentiles are unknown. Rates cover the time in which all runs were active. Criteria are judged again.

mod assemble;
mod course;
mod rates;
#[cfg(test)]
mod tests;
mod values;
mod verdict;

use serde_json::Value as Json;
use wb_figures::{Field, Merge, Value};

pub use self::assemble::assemble;
use self::values::{Values, add};
use crate::{
    JobKind, LimitedBy, Plan,
    frames::FRAME_TOTALS,
    http::HttpReport,
    lateness::LatenessReport,
    load::LoadReport,
    report::{
        ClockReport, EnvironmentReport, FlowReport, JobReport, MergedRun, OutageReport, Report,
        Summary, Totals,
    },
};

/// Report of one run, for a merge.
#[derive(Clone, Debug)]
pub struct Part {
    /// Name in messages and in the merged report.
    pub name: String,
    /// Start of the run by the wall clock, in ns since 1970.
    pub started_ns: u64,
    /// The report.
    pub report: Report,
}

/// Kinds of jobs that can be merged.
const KINDS: [JobKind; 5] = [
    JobKind::Traffic,
    JobKind::Devices,
    JobKind::Load,
    JobKind::Capture,
    JobKind::Http,
];

/// Maximum number of reports that are merged.
const MOST_PARTS: usize = 64;

/// Merges the reports of several runs of the same jobs into one. The plan is that of the first report.
///
/// # Errors
/// A sentence that names the reports which cannot be merged.
pub fn merge(mut parts: Vec<Part>) -> Result<Report, String> {
    refuse(&parts)?;
    let first_ns = parts.iter().map(|part| part.started_ns).min().unwrap_or(0);
    for part in &mut parts {
        part.started_ns -= first_ns;
        part.report.shift(part.started_ns);
        part.report.name_streams(&part.name);
    }
    name_ports(&mut parts);
    number_flows(&mut parts);
    let values = parts.iter().map(Values::of);
    let values = values.collect::<Result<Vec<_>, _>>()?;
    for (part, values) in parts.iter_mut().zip(&values) {
        values.attach(&mut part.report);
    }
    let mut merged = sum(&parts)?;
    let timelines = parts
        .iter()
        .map(|part| (part.started_ns, &part.report.timeline));
    merged.timeline = course::sum(&timelines.collect::<Vec<_>>());
    rates::set(&mut merged, &parts)?;
    let all = Values::sum(&values);
    all.set(&mut merged, &parts);
    verdict::judge(&mut merged, &parts, &all);
    Ok(merged)
}

/// Returns an error that names the reports which cannot be merged.
fn refuse(parts: &[Part]) -> Result<(), String> {
    let [first, ..] = parts else {
        return Err("nothing to merge".to_owned());
    };
    if parts.len() > MOST_PARTS {
        return Err(format!(
            "at most {MOST_PARTS} reports can be merged, got {}",
            parts.len()
        ));
    }
    for (place, part) in parts.iter().enumerate() {
        refuse_one(part)?;
        let is_same = |other: &&Part| {
            let facts = |part: &Part| {
                let report = &part.report;
                (
                    part.started_ns,
                    report.elapsed_ns,
                    report.first_flow,
                    report.environment.host.clone(),
                )
            };
            facts(other) == facts(part)
        };
        if let Some(other) = parts[..place].iter().find(is_same) {
            return Err(format!(
                "{} and {} are reports of the same run",
                other.name, part.name
            ));
        }
        if let Some(why) = difference(&first.report, &part.report) {
            return Err(format!(
                "{} and {} cannot be merged: {why}",
                first.name, part.name
            ));
        }
    }
    Ok(())
}

fn refuse_one(Part { name, report, .. }: &Part) -> Result<(), String> {
    if !report.merged.is_empty() {
        return Err(format!(
            "{name}: is merged already; merge the reports of all runs at once"
        ));
    }
    let kinds: Vec<JobKind> = report.plan.kinds().collect();
    if let Some(kind) = kinds.iter().find(|kind| !KINDS.contains(kind)) {
        return Err(format!(
            "{name}: results of {} jobs cannot be merged; possible are traffic, devices, load, capture and http",
            kind.name()
        ));
    }
    if kinds.len() > 1 {
        return Err(format!(
            "{name}: a run with jobs of several kinds cannot be merged"
        ));
    }
    if !is_small(report) {
        return Err(format!("{name}: its numbers are too large to be merged"));
    }
    Ok(())
}

/// Returns the difference because of which two reports cannot be merged.
fn difference(one: &Report, other: &Report) -> Option<String> {
    let jobs = [one, other].map(job_names);
    if jobs[0] != jobs[1] {
        let [one, other] = jobs.map(|names| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        });
        return Some(format!("their jobs differ: {one}; {other}"));
    }
    let criteria = |r: &Report| Vec::from_iter(r.plan.criteria.iter().map(ToString::to_string));
    if criteria(one) != criteria(other) {
        return Some("their criteria differ".to_owned());
    }
    let what = |r: &Report| {
        let captures = r.capture.iter().chain(r.captures.values());
        Vec::from_iter(captures.map(|capture| (capture.filter.clone(), capture.snap_len)))
    };
    if what(one) != what(other) {
        return Some("their filters or snapshot lengths differ".to_owned());
    }
    // A count that only one of them has would be too small for both.
    let totals = |r: &Report| Vec::from_iter(r.jobs.iter().map(|job| job.totals).chain([r.totals]));
    let (one, other) = (totals(one), totals(other));
    one.iter().zip(&other).find_map(|(one, other)| {
        let is_known =
            |field: &Field<Totals>, of: &Totals| !matches!((field.get)(of), Value::Unknown);
        let mut fields = FRAME_TOTALS.iter();
        let field = fields.find(|field| is_known(field, one) != is_known(field, other))?;
        Some(format!("only one of them has {}", field.def.name))
    })
}

/// Jobs of a report, each with its kind and the end of a load.
fn job_names(report: &Report) -> Vec<String> {
    let frames = report.jobs.iter().map(|job| format!("job {}", job.name));
    let loads = report.load.iter().flat_map(|load| &load.jobs);
    let loads =
        loads.map(|job| format!("{} {} {}", job.transport.name(), job.end.name(), job.name));
    let http = report.http.iter().flat_map(|http| &http.jobs);
    let http = http.map(|job| format!("http {}", job.name));
    let only = report.capture.iter().map(|_| "capture".to_owned());
    let captures = report.captures.keys().map(|name| format!("capture {name}"));
    frames
        .chain(loads)
        .chain(http)
        .chain(only)
        .chain(captures)
        .collect()
}

/// Returns true if the sums of all numbers of such reports fit into 64 bits.
fn is_small(report: &Report) -> bool {
    fn is_small(value: &Json) -> bool {
        match value {
            Json::Number(n) => match n.as_u64() {
                Some(n) => n < 1 << 56,
                None => n.as_f64().is_some_and(|n| n.abs() < 1e18),
            },
            Json::Array(list) => list.iter().all(is_small),
            Json::Object(fields) => fields.values().all(is_small),
            Json::Null | Json::Bool(_) | Json::String(_) => true,
        }
    }
    let mut counted = Report {
        plan: Plan::default(),
        // These are checked on their own.
        histograms: Vec::new(),
        ..report.clone()
    };
    for stream in counted.jobs.iter_mut().flat_map(|job| &mut job.streams) {
        // Times since 1970 are not added.
        (stream.first_rx_ns, stream.last_rx_ns) = (None, None);
    }
    serde_json::to_value(&counted).is_ok_and(|value| is_small(&value))
}

/// Adds the name of its run to each port, if ports of several runs have the same name.
fn name_ports(parts: &mut [Part]) {
    let mut names = Vec::new();
    for part in parts.iter() {
        names.extend(part.report.ports.iter().map(|port| port.name.clone()));
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    if names.len() == all {
        return;
    }
    for Part { name, report, .. } in parts {
        for port in report.port_names() {
            *port = format!("{name}:{port}");
        }
    }
}

/// Numbers the flows of all runs from the smallest first flow; as in the tags, if a run does not know its first flow.
fn number_flows(parts: &mut [Part]) {
    let firsts: Option<Vec<u32>> = parts.iter().map(|part| part.report.first_flow).collect();
    let first = firsts.and_then(|firsts| firsts.into_iter().min());
    for Part { report, .. } in parts {
        let more = report.first_flow.unwrap_or(0) - first.unwrap_or(0);
        report.first_flow = first;
        for flow in report.flow_numbers() {
            *flow = flow.saturating_add(more);
        }
    }
}

/// Adds the results of all runs, without rates, distributions and verdict.
fn sum(parts: &[Part]) -> Result<Report, String> {
    let [first, rest @ ..] = parts else {
        return Err("nothing to merge".to_owned());
    };
    let mut sum = first.report.clone();
    for Part { report, .. } in rest {
        if report.started < sum.started {
            sum.started.clone_from(&report.started);
        }
        if report.kind != sum.kind {
            "run".clone_into(&mut sum.kind);
        }
        sum.totals = sum.totals.plus(&report.totals);
        sum.outages.merge(&report.outages);
        for (own, job) in sum.jobs.iter_mut().zip(&report.jobs) {
            own.merge(job);
        }
        sum.flows.extend_from_slice(&report.flows);
        sum.flows_omitted.merge(&report.flows_omitted);
        sum.workers.extend_from_slice(&report.workers);
        sum.ports.extend_from_slice(&report.ports);
        sum.capture.merge(&report.capture);
        for (own, capture) in sum.captures.values_mut().zip(report.captures.values()) {
            own.merge(capture);
        }
        sum.load.merge(&report.load);
        sum.http.merge(&report.http);
        sum.lateness.merge(&report.lateness);
        sum.clock.merge(&report.clock);
        sum.environment.merge(&report.environment);
    }
    let ends = parts
        .iter()
        .map(|p| p.started_ns.saturating_add(p.report.elapsed_ns));
    sum.elapsed_ns = ends.max().unwrap_or(0);
    sum.limited_by = LimitedBy::from(told(parts, |report| report.limited_by.to_string()));
    sum.merged = parts.iter().map(MergedRun::of).collect();
    let warnings = parts.iter().flat_map(|part| {
        let own = part.report.warnings.iter();
        own.map(|warning| format!("{}: {warning}", part.name))
    });
    sum.warnings = warnings.collect();
    for part in rest {
        let keys = different_keys(&first.report.plan, &part.report.plan);
        if !keys.is_empty() {
            let keys = keys.join(", ");
            sum.warnings.push(format!(
                "the plans of {} and {} differ: {keys}",
                first.name, part.name
            ));
        }
    }
    Ok(sum)
}

/// Keys of two plans with different values, apart from those of ports and random choices.
fn different_keys(one: &Plan, other: &Plan) -> Vec<String> {
    fn compare(key: &str, one: &Json, other: &Json, found: &mut Vec<String>) {
        match (one, other) {
            (Json::Object(a), Json::Object(b)) => {
                let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
                for key in
                    keys.filter(|key| !["ports", "seed", "first_flow"].contains(&key.as_str()))
                {
                    let of = |map: &serde_json::Map<String, Json>| {
                        map.get(key).cloned().unwrap_or_default()
                    };
                    compare(key, &of(a), &of(b), found);
                }
            }
            (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
                a.iter().zip(b).for_each(|(a, b)| compare(key, a, b, found));
            }
            _ if one == other || found.iter().any(|known| known == key) => {}
            _ => found.push(key.to_owned()),
        }
    }
    let [one, other] = [one, other].map(|plan| serde_json::to_value(plan).unwrap_or_default());
    let mut found = Vec::new();
    compare("plan", &one, &other, &mut found);
    found
}

/// A text of all runs: once if all have the same, otherwise each with the name of its run.
fn told(parts: &[Part], of: impl Fn(&Report) -> String) -> String {
    let mut texts = parts.iter().map(|part| of(&part.report));
    let first = texts.next().unwrap_or_default();
    if texts.all(|text| text == first) {
        return first;
    }
    let each = parts.iter().map(|part| (&part.name, of(&part.report)));
    let each = each.filter(|(_, text)| !text.is_empty());
    let each = each.map(|(name, text)| format!("{name}: {text}"));
    each.collect::<Vec<_>>().join("; ")
}

impl MergedRun {
    fn of(part: &Part) -> Self {
        let report = &part.report;
        Self {
            name: part.name.clone(),
            host: report.environment.host.clone(),
            after_ns: part.started_ns,
            elapsed_ns: report.elapsed_ns,
            verdict: report.verdict,
            reason: report.reason.clone(),
        }
    }
}

impl Report {
    /// Adds `ns` to all times since the start of the run.
    fn shift(&mut self, ns: u64) {
        for at in &mut self.timeline.at_ns {
            *at = at.saturating_add(ns);
        }
        for job in self.load.iter_mut().flat_map(|load| &mut load.jobs) {
            for phase in &mut job.phases {
                phase.from_ns = phase.from_ns.saturating_add(ns);
                phase.to_ns = phase.to_ns.saturating_add(ns);
            }
        }
        for outages in self.all_outages() {
            for at in [&mut outages.outage_begin_ns, &mut outages.outage_end_ns] {
                *at = at.map(|at| at.saturating_add(ns));
            }
        }
    }

    /// Adds the name of the run to the names of its streams.
    fn name_streams(&mut self, run: &str) {
        let streams = self.jobs.iter_mut().flat_map(|job| &mut job.streams);
        let streams = streams.map(|stream| &mut stream.name);
        let of_flows = self
            .flows
            .iter_mut()
            .filter_map(|flow| flow.stream.as_mut());
        for name in streams.chain(of_flows) {
            *name = format!("{run}: {name}");
        }
    }

    fn all_outages(&mut self) -> impl Iterator<Item = &mut OutageReport> {
        let jobs = self.jobs.iter_mut().filter_map(|job| job.outages.as_mut());
        let flows = self
            .flows
            .iter_mut()
            .filter_map(|flow| flow.outages.as_mut());
        self.outages.iter_mut().chain(jobs).chain(flows)
    }

    /// Names of ports in the results.
    fn port_names(&mut self) -> Vec<&mut String> {
        let mut names: Vec<&mut String> = Vec::new();
        for JobReport { tx, rx, .. } in &mut self.jobs {
            names.extend([tx, rx].into_iter().flatten());
        }
        names.extend(self.ports.iter_mut().map(|port| &mut port.name));
        names.extend(self.workers.iter_mut().map(|worker| &mut worker.port));
        let loads = self.load.iter_mut().flat_map(|load| &mut load.jobs);
        names.extend(loads.map(|job| &mut job.port));
        let captures = self.capture.iter_mut().chain(self.captures.values_mut());
        names.extend(
            captures
                .flat_map(|c| &mut c.readers)
                .map(|reader| &mut reader.port),
        );
        names
    }

    /// Numbers of flows in the results.
    fn flow_numbers(&mut self) -> Vec<&mut u32> {
        let mut numbers: Vec<&mut u32> = Vec::new();
        numbers.extend(
            self.outages
                .iter_mut()
                .filter_map(|o| o.outage_flow.as_mut()),
        );
        for JobReport {
            outages, streams, ..
        } in &mut self.jobs
        {
            numbers.extend(outages.iter_mut().filter_map(|o| o.outage_flow.as_mut()));
            numbers.extend(streams.iter_mut().map(|stream| &mut stream.first_flow));
        }
        for FlowReport { flow, outages, .. } in &mut self.flows {
            numbers.push(flow);
            numbers.extend(outages.iter_mut().filter_map(|o| o.outage_flow.as_mut()));
        }
        numbers
    }
}

impl Merge for JobReport {
    /// Adds counts. Rates are not merged.
    fn merge(&mut self, other: &Self) {
        self.totals = self.totals.plus(&other.totals);
        for (own, other) in [(&mut self.tx, &other.tx), (&mut self.rx, &other.rx)] {
            join(
                own.get_or_insert_default(),
                other.as_deref().unwrap_or_default(),
            );
            own.take_if(|names| names.is_empty());
        }
        add(&mut self.latency_ns, other.latency_ns);
        add(&mut self.ipdv_ns, other.ipdv_ns);
        add(&mut self.inter_arrival_ns, other.inter_arrival_ns);
        // Each path has its own smallest delay.
        self.pdv_ns = Summary::default();
        // Sequence numbers of different runs have nothing in common.
        self.last_skipped = None;
        self.outages.merge(&other.outages);
        self.streams.extend_from_slice(&other.streams);
    }
}

impl Merge for OutageReport {
    fn merge(&mut self, other: &Self) {
        *self = self.plus(other);
    }
}

impl Merge for LoadReport {
    fn merge(&mut self, other: &Self) {
        for (own, job) in self.jobs.iter_mut().zip(&other.jobs) {
            own.merge(job);
            join(&mut own.port, &job.port);
        }
    }
}

impl Merge for HttpReport {
    fn merge(&mut self, other: &Self) {
        for (own, job) in self.jobs.iter_mut().zip(&other.jobs) {
            own.merge(job);
            join(&mut own.url, &job.url);
        }
        self.repeated_syns.merge(&other.repeated_syns);
    }
}

impl Merge for LatenessReport {
    fn merge(&mut self, other: &Self) {
        self.all = self.all.plus(&other.all);
        if self.may_have_caused.is_none() {
            self.may_have_caused.clone_from(&other.may_have_caused);
        }
    }
}

impl Merge for ClockReport {
    /// Keeps the larger errors.
    fn merge(&mut self, other: &Self) {
        join(&mut self.source, &other.source);
        self.resolution_ns = self.resolution_ns.max(other.resolution_ns);
        self.read_cost_ns = self.read_cost_ns.max(other.read_cost_ns);
        if other.step_ns.unsigned_abs() > self.step_ns.unsigned_abs() {
            self.step_ns = other.step_ns;
        }
        self.same_clock &= other.same_clock;
        self.error_ns = self.error_ns.zip(other.error_ns).map(|(a, b)| a.max(b));
        join(&mut self.tx_stamp, &other.tx_stamp);
        join(&mut self.rx_stamp, &other.rx_stamp);
    }
}

impl Merge for EnvironmentReport {
    /// Adds another host; the same host stays as it is.
    fn merge(&mut self, other: &Self) {
        if self == other {
            return;
        }
        join(&mut self.tool, &other.tool);
        join(&mut self.kernel, &other.kernel);
        join(&mut self.architecture, &other.architecture);
        join(&mut self.cpu, &other.cpu);
        if join(&mut self.host, &other.host) {
            self.cpus = self.cpus.saturating_add(other.cpus);
            self.memory_bytes.merge(&other.memory_bytes);
        }
    }
}

/// Adds a text to a list of texts with commas. Returns false if the list has it already.
fn join(list: &mut String, text: &str) -> bool {
    if text.is_empty() || list.split(", ").any(|own| own == text) || list == text {
        return false;
    }
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(text);
    true
}
