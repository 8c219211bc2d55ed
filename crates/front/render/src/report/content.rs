//! Contents of the report of one run, in reading order.

use wb_model::{
    Report, Totals, Verdict,
    report::{CriterionReport, Rates},
    text::written_as_toml,
};

use super::{
    document::{Block, Cell, Document, Mark, Outcome, Section, Table},
    engines, over_time, suite, times,
};
use crate::{
    figures::{UNKNOWN, count, count_or, exact_pps, rate_bps, ratio, share, time_ns},
    sections,
    text::{self, rates::differs},
};

/// Maximum number of listed flows.
const MOST_FLOWS: usize = 50;

pub(super) fn document(report: &Report) -> Document {
    let mut document = Document {
        title: title(report),
        verdicts: vec![outcome("", report)],
        ..Document::default()
    };
    document.section(summary(report));
    document.section(criteria(&report.criteria));
    document.section(warnings(report));
    let course = over_time::Course::of(report);
    let course = course.as_ref();
    document.section(frames(report, course));
    document.section(engines::bench(report));
    for section in suite::sections(report) {
        document.section(section);
    }
    for kind in ["load", "http", "socket", "server", "capture"] {
        document.section(jobs(report, kind, course));
    }
    document.section(all_times(report));
    document.section(beside(report, course));
    document.section(jobs(report, "probe", None));
    document.section(ports(report));
    document.section(workers(report));
    document.section(flows(report));
    document.section(environment(report));
    document.section(plan(report));
    document
}

/// All jobs of one kind.
fn jobs(report: &Report, kind: &str, course: Option<&over_time::Course<'_>>) -> Section {
    let mut section = sections::document::section(&sections::of_kind(report, kind), course);
    if let Some(socket) = report.socket.as_ref().filter(|_| kind == "socket") {
        section.plot(engines::compared(&socket.jobs));
    }
    section
}

/// Subject of the run, for the heading.
pub(super) fn title(report: &Report) -> String {
    let kind = match report.kind.as_str() {
        "" => "run",
        kind => kind,
    };
    format!("wirebench {kind}")
}

pub(super) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Completed => "COMPLETED",
        Verdict::Fail => "FAIL",
        Verdict::Invalid => "INVALID",
        Verdict::Incomplete => "INCOMPLETE",
    }
}

pub(super) fn outcome(run: &str, report: &Report) -> Outcome {
    Outcome {
        run: run.to_owned(),
        mark: match report.verdict {
            Verdict::Pass => Mark::Good,
            Verdict::Completed => Mark::Plain,
            _ => Mark::Bad,
        },
        word: word(report.verdict).to_owned(),
        reason: report.reason.clone(),
    }
}

/// Pairs of a name and its description.
pub(super) fn facts(
    caption: &str,
    rows: impl IntoIterator<Item = (&'static str, String)>,
) -> Table {
    let mut table = Table::new(caption, &["", ""]);
    for (name, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        table.row([name.to_owned(), value]);
    }
    table
}

fn summary(report: &Report) -> Section {
    let mut section = Section::new("Summary");
    let late = &report.lateness.all;
    let lateness = match late.stalls.saturating_add(late.dropped_reads) {
        0 if late.largest_gap_ns > 0 => {
            format!(
                "on time (longest pause {})",
                time_ns(late.largest_gap_ns as f64)
            )
        }
        0 => String::new(),
        _ => late.account(),
    };
    let asked = text::plan::lines(&report.plan).into_iter().enumerate();
    let asked = asked.map(|(i, line)| {
        (
            if i == 0 { "plan" } else { "" },
            line.trim_start().to_owned(),
        )
    });
    section.table(facts(
        "",
        asked.chain([
            ("limited by", report.limited_by.to_string()),
            ("tester", lateness),
            (
                "possibly caused by the tester",
                report.lateness.may_have_caused.clone().unwrap_or_default(),
            ),
            ("started", report.started.clone()),
            ("took", time_ns(report.elapsed_ns as f64)),
            ("seed", report.plan.seed.to_string()),
            ("host", report.environment.host.clone()),
            ("tool", report.environment.tool.clone()),
        ]),
    ));
    section
}

fn criteria(criteria: &[CriterionReport]) -> Section {
    let mut section = Section::new("Criteria");
    let mut table = Table::new("", &["", "criterion", ">measured"]);
    for c in criteria {
        let (word, mark) = match c.held {
            true => ("held", Mark::Good),
            false => ("FAILED", Mark::Bad),
        };
        let measured = c.measured.map_or_else(
            || "no data".to_owned(),
            |value| text::measured(&c.criterion, value),
        );
        table.row([
            Cell::marked(word, mark),
            c.criterion.clone().into(),
            measured.into(),
        ]);
    }
    section.table(table);
    section
}

fn warnings(report: &Report) -> Section {
    let mut section = Section::new("Warnings");
    let warnings = report.warnings.iter().cloned();
    section.blocks.extend(warnings.map(Block::Warning));
    section
}

fn frames(report: &Report, course: Option<&over_time::Course<'_>>) -> Section {
    let mut section = Section::new("Frames");
    // Frames of loads and captures are in their sections.
    if report.jobs.is_empty() && text::has_other_jobs(report) {
        return section;
    }
    section.table(totals("", &[("", &report.totals)]));
    section.table(rates(&[("", &report.rates)]).known());
    if report.jobs.len() > 1 {
        let mut table = Table::new(
            "Jobs",
            &[
                "job",
                "from",
                "to",
                ">offered",
                ">received",
                ">lost",
                ">lost share",
                ">offered rate",
                ">received rate",
                ">p50",
                ">p99",
                ">max",
            ],
        );
        let time = |ns: Option<i64>| ns.map_or_else(|| UNKNOWN.to_owned(), |ns| time_ns(ns as f64));
        let pps = |pps: Option<f64>| pps.map_or_else(|| UNKNOWN.to_owned(), exact_pps);
        for job in &report.jobs {
            let t = &job.totals;
            table.row([
                job.name.clone(),
                job.tx.clone().unwrap_or_default(),
                job.rx.clone().unwrap_or_default(),
                count_or(t.offered_frames),
                count_or(t.received_frames),
                count_or(t.lost_frames),
                part(t.lost_frames, t.offered_frames),
                pps(job.rates.offered_pps),
                pps(job.rates.received_pps),
                time(job.latency_ns.p50),
                time(job.latency_ns.p99),
                time(job.latency_ns.max),
            ]);
        }
        section.table(table.known());
    }
    if let Some(course) = course {
        over_time::frames(&mut section, course, report);
    }
    section
}

fn part(part: Option<u64>, whole: Option<u64>) -> String {
    part.zip(whole)
        .map_or_else(|| UNKNOWN.to_owned(), |(part, whole)| share(part, whole))
}

/// Counts that a sender knows without a receiver.
const SENT: [&str; 5] = [
    "intended",
    "offered (sent)",
    "unsent",
    "refused by the device",
    "sent during the ramp-up",
];

/// Frames of one or more jobs, each counted once.
fn totals(caption: &str, of: &[(&str, &Totals)]) -> Table {
    let mut table = Table::new(caption, &["frames", ">number", ">share"]);
    for (_, t) in of {
        for (name, n) in [
            ("intended", t.intended_frames),
            ("offered (sent)", t.offered_frames),
            ("unsent", t.unsent_frames),
            ("refused by the device", t.refused_frames.filter(|n| *n > 0)),
            ("sent during the ramp-up", t.ramp_frames.filter(|n| *n > 0)),
            ("received", t.received_frames),
            ("lost", t.lost_frames),
            ("duplicate", t.duplicate_frames),
            ("reordered", t.reordered_frames),
            ("late", t.late_frames),
            ("foreign", t.foreign_frames),
            (
                "foreign, with a test tag",
                t.unplanned_frames.filter(|n| *n > 0),
            ),
            (
                "foreign, from another run",
                t.other_run_frames.filter(|n| *n > 0),
            ),
            (
                "before the first received frame",
                t.head_frames.filter(|n| *n > 0),
            ),
            ("dropped by the tester", t.rx_dropped_frames),
        ] {
            let Some(n) = n else { continue };
            let bad = n > 0 && ["lost", "unsent", "dropped by the tester"].contains(&name);
            let mark = if bad { Mark::Bad } else { Mark::Plain };
            // Without tracking from end to end, received frames are not a share of the sent ones.
            let followed = t.lost_frames.is_some() || SENT.contains(&name);
            let (whole, of) = match name {
                "intended" | "offered (sent)" => (None, ""),
                "unsent" => (t.intended_frames, "intended"),
                _ => (t.offered_frames.filter(|_| followed), "offered"),
            };
            let share = match whole.filter(|all| *all > 0) {
                Some(all) => format!("{} of {of}", share(n, all)),
                None => String::new(),
            };
            table.row([name.into(), Cell::marked(count(n), mark), share.into()]);
        }
    }
    table
}

fn rates(of: &[(&str, &Rates)]) -> Table {
    let mut table = Table::new(
        "Rates",
        &[
            "rate",
            ">frames",
            ">layer 2, with FCS",
            ">layer 1, with preamble and gap",
        ],
    );
    let pps = |v: Option<f64>| v.map_or_else(|| UNKNOWN.to_owned(), exact_pps);
    let bps = |v: Option<f64>| v.map_or_else(|| UNKNOWN.to_owned(), rate_bps);
    for (_, r) in of {
        for (name, frames, l2, l1) in [
            ("intended", r.intended_pps, None, None),
            ("offered", r.offered_pps, r.offered_l2_bps, r.offered_l1_bps),
            (
                "received",
                r.received_pps,
                r.received_l2_bps,
                r.received_l1_bps,
            ),
            (
                "while receiving",
                r.while_receiving_pps.filter(|_| differs(r)),
                r.while_receiving_l2_bps.filter(|_| differs(r)),
                None,
            ),
            ("line rate at this size", r.line_rate_pps, None, None),
        ] {
            if frames.or(l2).or(l1).is_some() {
                table.row([name.to_owned(), pps(frames), bps(l2), bps(l1)]);
            }
        }
    }
    table
}

fn all_times(report: &Report) -> Section {
    let mut section = Section::new("Times");
    let own = |name: &str| name.to_owned();
    let mut rows = vec![
        (own("latency"), &report.latency_ns),
        (own("jitter (OSTA, RFC 4689)"), &report.jitter_ns),
        (own("IPDV (RFC 3393)"), &report.ipdv_ns),
        (own("PDV (RFC 5481)"), &report.pdv_ns),
        (own("inter-arrival"), &report.inter_arrival_ns),
    ];
    rows.extend(
        report
            .inter_departure_ns
            .as_ref()
            .map(|s| (own("inter-departure"), s)),
    );
    if report.load.is_some() || report.http.is_some() || report.socket.is_some() {
        rows.truncate(1);
    }
    section.table(times::table("", rows));
    if let Some(jitter) = report.jitter_rfc3550_ns {
        section.text(format!("RFC 3550 jitter at the end: {}.", time_ns(jitter)));
    }
    times::plots(&mut section, report);
    let clock = &report.clock;
    if !section.blocks.is_empty() {
        let stamp = |end: &str, stamp: &str| match stamp.is_empty() {
            true => String::new(),
            false => format!("{end} timestamps: {stamp}. "),
        };
        let error = clock.error_ns.map_or_else(String::new, |ns| {
            format!("Times may be too short by up to {}.", time_ns(ns as f64))
        });
        let text = format!(
            "{}{}{error}",
            stamp("Transmit", &clock.tx_stamp),
            stamp("Receive", &clock.rx_stamp)
        );
        if !text.is_empty() {
            section.text(text);
        }
    }
    section
}

fn beside(_report: &Report, course: Option<&over_time::Course<'_>>) -> Section {
    let mut section = Section::new("Interfaces, device and workers over time");
    if let Some(course) = course {
        over_time::beside(&mut section, course);
    }
    section
}

fn ports(report: &Report) -> Section {
    let mut section = Section::new("Ports");
    let mut table = Table::new(
        "",
        &[
            "port",
            "interface",
            "mode",
            "address",
            ">MTU",
            "kernel driver",
            "device",
            ">speed",
            "receive timestamps",
            "why this driver",
        ],
    );
    for port in &report.ports {
        let nic = port.nic.clone().unwrap_or_default();
        let parts = [&nic.pci_id, &nic.bus, &nic.firmware];
        let device = parts
            .into_iter()
            .filter(|p| !p.is_empty())
            .cloned()
            .collect::<Vec<_>>();
        let driver = match nic.driver_version.is_empty() {
            true => port.kernel_driver.clone(),
            false => format!("{} {}", port.kernel_driver, nic.driver_version),
        };
        let speed = match port.speed_bps {
            Some(bps) if port.speed_nominal => format!("{} (nominal)", rate_bps(bps as f64)),
            Some(bps) => rate_bps(bps as f64),
            None => UNKNOWN.to_owned(),
        };
        table.row([
            port.name.clone(),
            port.locator.clone(),
            port.mode.clone(),
            port.mac.clone(),
            port.mtu.to_string(),
            driver,
            device.join(", "),
            speed,
            port.timestamp_source.clone(),
            port.chosen_because.clone(),
        ]);
    }
    section.table(table.known());
    let mut table = Table::new(
        "Interface counters during the run",
        &["port", "counter", ">before", ">after", ">rise"],
    );
    for port in &report.ports {
        for (name, after) in &port.after {
            let before = port.before.get(name).copied().unwrap_or(0);
            if *after != before {
                let rise = match after.checked_sub(before) {
                    Some(rise) => count(rise),
                    None => "reset".to_owned(),
                };
                table.row([
                    port.name.clone(),
                    name.clone(),
                    count(before),
                    count(*after),
                    rise,
                ]);
            }
        }
    }
    section.table(table);
    section
}

fn workers(report: &Report) -> Section {
    let mut section = Section::new("Workers");
    let mut table = Table::new(
        "",
        &[
            "port",
            ">queue",
            "role",
            ">CPU",
            ">busy",
            ">sent",
            ">received",
            ">stalls",
            ">longest pause",
        ],
    );
    for w in &report.workers {
        table.row([
            w.port.clone(),
            w.queue.to_string(),
            w.role.clone(),
            w.cpu
                .map_or_else(|| UNKNOWN.to_owned(), |cpu| cpu.to_string()),
            ratio(w.busy),
            count_or(w.totals.offered_frames),
            count_or(w.totals.received_frames),
            count(w.lateness.stalls),
            time_ns(w.lateness.largest_gap_ns as f64),
        ]);
    }
    section.table(table);
    section
}

fn flows(report: &Report) -> Section {
    let mut section = Section::new("Flows");
    let mut table = Table::new(
        "",
        &[
            "flow",
            "stream",
            ">offered",
            ">received",
            ">lost",
            ">lost share",
            ">reordered",
            ">mean latency",
            ">max latency",
        ],
    );
    for f in report.flows.iter().take(MOST_FLOWS) {
        let t = &f.totals;
        table.row([
            f.flow.to_string(),
            f.stream.clone().unwrap_or_default(),
            count_or(t.offered_frames),
            count_or(t.received_frames),
            count_or(t.lost_frames),
            part(t.lost_frames, t.offered_frames),
            count_or(t.reordered_frames),
            f.latency_ns
                .mean
                .map_or_else(|| UNKNOWN.to_owned(), time_ns),
            f.latency_ns
                .max
                .map_or_else(|| UNKNOWN.to_owned(), |ns| time_ns(ns as f64)),
        ]);
    }
    section.table(table.known());
    let more = report.flows.len().saturating_sub(MOST_FLOWS) as u64;
    let more = more.saturating_add(report.flows_omitted);
    if more > 0 {
        section.text(format!(
            "Not listed: {} more flows, which are included in the totals.",
            count(more)
        ));
    }
    section
}

pub(super) fn environment_rows(report: &Report) -> Vec<(&'static str, String)> {
    let e = &report.environment;
    let memory = match e.memory_bytes {
        0 => String::new(),
        bytes => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    };
    let cpus = match e.cpus {
        0 => e.cpu.clone(),
        n => format!("{} ({n} online)", e.cpu),
    };
    vec![
        ("tool", e.tool.clone()),
        ("host", e.host.clone()),
        ("kernel", e.kernel.clone()),
        ("architecture", e.architecture.clone()),
        ("CPU", cpus),
        ("memory", memory),
        ("clock", report.clock.source.clone()),
        ("report format", report.schema.clone()),
    ]
}

fn environment(report: &Report) -> Section {
    let mut section = Section::new("Environment");
    let clock = &report.clock;
    let stepped = match clock.step_ns {
        0 => String::new(),
        ns => format!("; stepped by {ns} ns during the run"),
    };
    let (step, cost) = (clock.resolution_ns, clock.read_cost_ns);
    let reading = format!("{cost} ns per reading, resolution {step} ns{stepped}");
    let mut rows = environment_rows(report);
    rows.push(("clock reading", reading));
    section.table(facts("", rows));
    section
}

fn plan(report: &Report) -> Section {
    let mut section = Section::new("Plan");
    if let Some(text) = written_as_toml(&report.plan) {
        section
            .blocks
            .push(Block::Code("plan of this run".to_owned(), text));
    }
    section
}
