//! Contents of the report of one run, in reading order.

use wb_model::{
    Report, Verdict, fleet, frames,
    report::{CriterionReport, MergedRun},
    text::written_as_toml,
};

use super::{
    document::{Block, Cell, Document, Mark, Outcome, Section, Table, Tile},
    over_time, socket, suite, times,
};
use crate::{
    csv::verdict,
    figures::{UNKNOWN, count, rate_bps, time_ns},
    sections,
    summary::{self, Lead},
    text,
};

pub(super) fn document(report: &Report) -> Document {
    let mut document = Document {
        title: title(report),
        verdicts: vec![outcome("", report)],
        tiles: tiles(report),
        ..Document::default()
    };
    document.section(summary(report));
    document.section(criteria(&report.criteria));
    document.section(warnings(report));
    let course = over_time::Course::of(report);
    let course = course.as_ref();
    for kind in ["traffic", "devices"] {
        document.section(jobs(report, kind, course));
    }
    for section in suite::sections(report) {
        document.section(section);
    }
    // Frames and probes have other places.
    let known = [
        "traffic", "devices", "load", "http", "socket", "server", "capture", "probe",
    ];
    let others = sections::other_kinds(report, &known);
    for kind in known[2..7].iter().copied().chain(others) {
        document.section(jobs(report, kind, course));
    }
    document.section(distributions(report));
    document.section(beside(report, course));
    document.section(jobs(report, "probe", None));
    if !report.hosts.is_empty() {
        document.section(sections::document::section(&[fleet::hosts(report)], None));
    }
    document.section(ports(report));
    let workers = frames::workers(report);
    document.section(sections::document::section(&[workers], None));
    document.section(environment(report));
    document.section(plan(report));
    document
}

/// All jobs of one kind.
fn jobs(report: &Report, kind: &str, course: Option<&over_time::Course<'_>>) -> Section {
    let mut section = sections::document::section(&sections::of_kind(report, kind), course);
    if let Some(tests) = report.socket.as_ref().filter(|_| kind == "socket") {
        section.plot(socket::compared(&tests.jobs));
    }
    section
}

/// Subject of the run, for the heading.
pub(super) fn title(report: &Report) -> String {
    let kind = match report.kind.as_str() {
        "" => "run",
        kind => kind,
    };
    let day = report.started.split('T').next().unwrap_or_default();
    let parts = [
        format!("wirebench {kind}"),
        summary::target(report),
        day.to_owned(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
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

/// Main figures of the first job, or of all jobs of streams together: one row.
pub(super) fn tiles(report: &Report) -> Vec<Tile> {
    let jobs = summary::main_figures(report);
    let prefix = match jobs.as_slice() {
        [first, _, ..] => format!("{}: ", first.job),
        _ => String::new(),
    };
    let tile = |lead: &Lead| Tile {
        label: format!("{prefix}{}", lead.label),
        value: match lead.is_bad {
            true => Cell::marked(lead.value.as_str(), Mark::Bad),
            false => Cell::from(lead.value.as_str()),
        },
    };
    let first = jobs.first().map(|main| main.leads.as_slice());
    first.unwrap_or_default().iter().map(tile).collect()
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
    let label = match report.merged.is_empty() {
        true => "plan",
        false => "plan of the first run",
    };
    let asked = asked.map(|(i, line)| {
        (
            if i == 0 { label } else { "" },
            line.trim_start().to_owned(),
        )
    });
    section.table(facts(
        "",
        asked.chain([
            ("limited by", report.limited_by.to_string()),
            ("next", summary::next(report).unwrap_or_default()),
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
    if !report.merged.is_empty() {
        section.table(merged(&report.merged));
    }
    section
}

/// The runs of a merged report.
fn merged(runs: &[MergedRun]) -> Table {
    let columns = ["run", "host", ">started after", ">took", "verdict", ""];
    let mut table = Table::new("Merged runs", &columns);
    for run in runs {
        table.row([
            run.name.clone(),
            run.host.clone(),
            time_ns(run.after_ns as f64),
            time_ns(run.elapsed_ns as f64),
            verdict(run.verdict).to_owned(),
            run.reason.clone(),
        ]);
    }
    table
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

fn distributions(report: &Report) -> Section {
    let mut section = Section::new("Distributions of times");
    times::plots(&mut section, report);
    if text::is_clock_unknown(report) {
        section
            .blocks
            .push(Block::Warning(text::UNKNOWN_CLOCK.to_owned()));
    }
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
    // A report of a run that was killed does not have it.
    rows.extend((step > 0).then_some(("clock reading", reading)));
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
