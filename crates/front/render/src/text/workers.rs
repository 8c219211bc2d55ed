//! Tables of streams, flows and workers.

use wb_model::{
    Report,
    report::{FlowReport, StreamReport},
};

use crate::{
    figures::{count, ratio, time_ns},
    page::{Page, Tone},
    table::Table,
};

fn frames(n: Option<u64>) -> String {
    n.map(count).unwrap_or_default()
}

/// Sent frames of each stream of a job.
pub(super) fn streams(page: &mut Page, streams: &[StreamReport]) {
    if streams.is_empty() {
        return;
    }
    let mut table = Table::new()
        .left("stream")
        .left("path")
        .right("flows")
        .right("intended")
        .right("offered")
        .right("unsent")
        .right("received")
        .right("lost");
    for s in streams {
        table.row([
            s.name.clone(),
            s.path.clone(),
            count(s.flows.into()),
            frames(s.totals.intended_frames),
            frames(s.totals.offered_frames),
            frames(s.totals.unsent_frames),
            frames(s.totals.received_frames),
            frames(s.totals.lost_frames),
        ]);
    }
    page.gap();
    page.table(&table.without_blank_columns(), 2, 1);
}

/// The first flows, if there is more than one.
pub(super) fn flows(page: &mut Page, report: &Report, max: usize) {
    let known = u64::try_from(report.flows.len()).unwrap_or(u64::MAX);
    let total = known.saturating_add(report.flows_omitted);
    if total < 2 {
        return;
    }
    page.head(&if report.flows_omitted > 0 {
        format!("flows ({}; most affected first)", count(total))
    } else {
        format!("flows ({})", count(total))
    });
    let shown = &report.flows[..report.flows.len().min(max)];
    if !shown.is_empty() {
        page.table(&flow_table(shown), 2, 1);
    }
    let more = total - u64::try_from(shown.len()).unwrap_or(u64::MAX);
    if more > 0 {
        page.line(Tone::Plain, &format!("  ... and {} more", count(more)));
    }
}

fn flow_table(flows: &[FlowReport]) -> Table {
    let mut table = Table::new()
        .right("flow")
        .left("stream")
        .right("offered")
        .right("received")
        .right("lost")
        .right("dup")
        .right("reord")
        .right("mean")
        .right("max");
    #[allow(clippy::cast_precision_loss)]
    let time = |ns: Option<i64>| ns.map(|ns| time_ns(ns as f64)).unwrap_or_default();
    for f in flows {
        table.row([
            f.flow.to_string(),
            f.stream.clone().unwrap_or_default(),
            frames(f.totals.offered_frames),
            frames(f.totals.received_frames),
            frames(f.totals.lost_frames),
            frames(f.totals.duplicate_frames),
            frames(f.totals.reordered_frames),
            f.latency_ns.mean.map(time_ns).unwrap_or_default(),
            time(f.latency_ns.max),
        ]);
    }
    table.without_blank_columns()
}

/// One line for each worker.
pub(super) fn section(page: &mut Page, report: &Report, verbose: bool) {
    if report.workers.is_empty() {
        return;
    }
    page.head("workers");
    let mut table = Table::new()
        .left("port")
        .right("queue")
        .left("role")
        .right("CPU")
        .right("offered")
        .right("received")
        .right("rx dropped")
        .right("busy")
        .right("kicks")
        .right("full")
        .right("mean latency");
    for w in &report.workers {
        let sends = w.role.contains("tx");
        table.row([
            w.port.clone(),
            w.queue.to_string(),
            w.role.clone(),
            w.cpu.map(|cpu| cpu.to_string()).unwrap_or_default(),
            frames(w.totals.offered_frames),
            frames(w.totals.received_frames),
            frames(w.totals.rx_dropped_frames),
            ratio(w.busy),
            if sends { count(w.kicks) } else { String::new() },
            if sends {
                count(w.full_events)
            } else {
                String::new()
            },
            w.latency_ns
                .mean
                .filter(|_| verbose)
                .map(time_ns)
                .unwrap_or_default(),
        ]);
    }
    page.table(&table.without_blank_columns(), 2, 2);
    let mut legend = "busy: share of polls with work".to_owned();
    if report.workers.iter().any(|w| w.role.contains("tx")) {
        legend.push_str("; kicks: send system calls; full: times the TX queue was full");
    }
    page.item(Tone::Plain, "  ", Tone::Plain, &legend);
}
