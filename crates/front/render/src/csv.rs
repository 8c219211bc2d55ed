//! Report as comma-separated values (RFC 4180, lines ended by a line feed).
//!
//! Figures are plain numbers in base units: frames, octets, bits per second, nanoseconds. Unknown
//! values are left empty.

use std::fmt::Display;

use wb_figures::Section;
use wb_model::{
    Report, Verdict,
    bench::{self, BalancerLimit, LbMetric, SuiteResult, SuiteTest, SuiteTrial},
    http::{self, HttpJobReport},
    load::{self, LoadJobReport, LoadTransport},
    socket::{self, SocketJobReport},
};

use crate::{
    sections::{of_kind, other_kinds},
    suite,
};

/// One record under construction. Names and values are kept in one place, so that they cannot drift apart.
#[derive(Default)]
struct Record {
    names: Vec<String>,
    values: Vec<String>,
}

impl Record {
    fn value(&mut self, name: impl Into<String>, value: impl Display) {
        self.names.push(name.into());
        self.values.push(field(&value.to_string()));
    }

    fn known(&mut self, name: impl Into<String>, value: Option<impl Display>) {
        match value {
            Some(value) => self.value(name, value),
            None => self.value(name, ""),
        }
    }
}

/// Quotes a field if necessary.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// The header and the rows. The header is that of `empty`, which names the columns even without rows. A row is
/// empty in columns that only other rows have.
fn document(empty: Record, records: impl IntoIterator<Item = Record>) -> String {
    let records: Vec<Record> = records.into_iter().collect();
    let mut columns = empty.names;
    for record in &records {
        for name in &record.names {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
    }
    let mut text = columns.join(",");
    text.push('\n');
    for record in &records {
        let of = |column: &String| record.names.iter().position(|name| name == column);
        let values = columns
            .iter()
            .map(|column| of(column).map_or("", |at| record.values[at].as_str()));
        text.push_str(&values.collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

/// Word of a verdict, as in JSON.
pub(crate) const fn verdict(v: Verdict) -> &'static str {
    match v {
        Verdict::Pass => "pass",
        Verdict::Completed => "completed",
        Verdict::Fail => "fail",
        Verdict::Invalid => "invalid",
        Verdict::Incomplete => "incomplete",
    }
}

/// One row for each job, with the columns of its kind; in a mix of kinds `job_kind` holds the kind. A run that
/// ended before any job also has one row.
#[must_use]
pub fn report(report: &Report) -> String {
    let mut kinds: Vec<(&str, (Record, Vec<Record>))> = Vec::new();
    let (http, socket, load) = <(HttpJobReport, SocketJobReport, LoadJobReport)>::default();
    for (kind, is_there, none) in [
        ("http", report.http.is_some(), http::figures::section(&http)),
        (
            "socket",
            report.socket.is_some(),
            socket::figures::section(&socket),
        ),
        ("load", report.load.is_some(), load::figures::section(&load)),
    ] {
        if is_there {
            kinds.push((kind, sections(report, &of_kind(report, kind), &none)));
        }
    }
    let limits = of_kind(report, SuiteTest::Lb.name());
    if report.plan.lb().is_some() || !limits.is_empty() {
        let none = BalancerLimit::new(LbMetric::OnewayPps, LoadTransport::Udp);
        let none = SuiteResult::of_balancer(none, Some(64));
        let none = bench::section(None, &none);
        kinds.push(("bench", sections(report, &limits, &none)));
    } else if report.plan.suite().is_some() || !report.results.is_empty() {
        kinds.push(("bench", trials(report)));
    }
    // The other known kinds are above, or have no rows.
    let own = ["traffic", "devices", "capture"];
    let known = [
        own.as_slice(),
        &["load", "http", "socket", "server", "probe"],
    ]
    .concat();
    for kind in own.into_iter().chain(other_kinds(report, &known)) {
        let mut own = of_kind(report, kind);
        // All jobs together are a row only if there is no other.
        own.retain(|job| !job.is_total || report.jobs.is_empty());
        if let Some(first) = own.first() {
            kinds.push((kind, sections(report, &own, first)));
        }
    }
    if kinds.is_empty() {
        kinds.push(("", (Record::default(), vec![begin(report)])));
    }
    if let [_] = kinds.as_slice() {
        let (_, (empty, rows)) = kinds.remove(0);
        return document(empty, rows);
    }
    let mut named = Vec::new();
    for (kind, (_, rows)) in kinds {
        for mut row in rows {
            row.names.insert(0, "job_kind".to_owned());
            row.values.insert(0, kind.to_owned());
            named.push(row);
        }
    }
    document(Record::default(), named)
}

/// Columns at the start of each row.
fn begin(report: &Report) -> Record {
    let mut r = Record::default();
    r.value("kind", &report.kind);
    r.value("started", &report.started);
    r.value("elapsed_ns", report.elapsed_ns);
    r.value("verdict", verdict(report.verdict));
    r
}

/// One row for each section. `none` names the columns even without rows.
fn sections(report: &Report, all: &[Section<'_>], none: &Section<'_>) -> (Record, Vec<Record>) {
    let row = |section: &Section<'_>| {
        let mut r = begin(report);
        r.value("job", &section.job);
        crate::sections::csv::record(section, |name, value| r.value(name, value));
        r
    };
    (row(none), all.iter().map(row).collect())
}

/// One row for each trial of a suite, and one for each test without trials. Frames and times are those of the trial;
/// the columns after the verdict give the purpose of the trial and the result of its test.
fn trials(report: &Report) -> (Record, Vec<Record>) {
    let row = |r: Option<&SuiteResult>, t: Option<&SuiteTrial>| {
        let mut row = Record::default();
        let l = t.map(|t| &t.latency_ns);
        row.known("test", r.map(|r| r.test.name()));
        row.known("trial", t.map(|t| t.trial));
        row.known("size", r.map(|r| &r.size));
        row.known("intended_fps", t.map(|t| t.intended));
        row.known("intended_pct", t.and_then(|t| t.intended_pct));
        row.known("offered_fps", t.map(|t| t.offered));
        row.known("duration_s", t.map(|t| t.duration_s));
        row.known("tx", t.map(|t| t.tx));
        row.known("rx", t.map(|t| t.rx));
        row.known("lost", t.map(|t| t.lost));
        row.known("loss_ratio", t.map(|t| t.loss_ratio));
        row.known("dup", t.map(|t| t.dup));
        row.known("ooo", t.map(|t| t.ooo));
        row.known("foreign", t.map(|t| t.foreign));
        row.known("lat_min_ns", l.and_then(|l| l.min));
        row.known("lat_p50", l.and_then(|l| l.p50));
        row.known("lat_p99", l.and_then(|l| l.p99));
        row.known("lat_p999", l.and_then(|l| l.p999));
        row.known("lat_max", l.and_then(|l| l.max));
        row.known("nic_drops", t.map(|t| t.nic_drops));
        row.known("verdict", t.map(|t| t.outcome.name()));
        row.known("purpose", t.map(|t| suite::purpose(t.purpose)));
        row.known("step", t.map(|t| &t.step));
        row.known(
            "reason",
            t.map(|t| &t.reason)
                .or(r.and_then(|r| r.not_measured.as_ref())),
        );
        row.known("unit", r.map(SuiteResult::trial_unit));
        row.known("goal", r.and_then(|r| r.goal.as_ref()));
        row.known("directions", r.map(|r| r.directions));
        row.known("unsent", t.map(|t| t.unsent));
        row.known("forwarded_fps", t.map(|t| t.forwarded));
        row.known("limit", r.and_then(|r| r.limit));
        let searched = r.filter(|r| r.test.finds_limit());
        row.known("limited_by", searched.map(SuiteResult::limiter));
        let burst = r.and_then(|r| r.burst.as_ref());
        row.known("burst", burst.map(|burst| burst.frames));
        row.known("gap_us", burst.and_then(|burst| burst.gap_us));
        row
    };
    let mut rows = Vec::new();
    for r in &report.results {
        match r.trial_log.as_slice() {
            [] => rows.push(row(Some(r), None)),
            log => rows.extend(log.iter().map(|t| row(Some(r), Some(t)))),
        }
    }
    (row(None, None), rows)
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn quoting_follows_rfc_4180() {
        assert_eq!(field("a b"), "a b");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("say \"x\"\n"), "\"say \"\"x\"\"\n\"");
    }
}
