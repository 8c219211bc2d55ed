//! One line for each snapshot, for a terminal or a log.

use wb_model::{
    Phase, Snapshot, bench::BenchLive, counted, http::HttpLive, load::LoadLive, socket::SocketLive,
};

use crate::{
    figures::{count, rate_bps, rate_pps, time_ns},
    suite,
};

/// Parts of a snapshot that are shown, from everything to very little.
#[derive(Clone, Copy)]
struct Layout {
    bar: usize,
    percent: bool,
    bits: bool,
    latency: bool,
    missing: bool,
}

/// Layouts, tried in this order until the line fits.
const LAYOUTS: [Layout; 9] = {
    const ALL: Layout = Layout {
        bar: 20,
        percent: true,
        bits: true,
        latency: true,
        missing: true,
    };
    const NO_BITS: Layout = Layout { bits: false, ..ALL };
    const SHORT: Layout = Layout { bar: 10, ..NO_BITS };
    const NO_PERCENT: Layout = Layout {
        percent: false,
        ..SHORT
    };
    const TINY: Layout = Layout {
        bar: 5,
        ..NO_PERCENT
    };
    const NO_BAR: Layout = Layout { bar: 0, ..SHORT };
    const NO_PROGRESS: Layout = Layout { bar: 0, ..TINY };
    const NO_LATENCY: Layout = Layout {
        latency: false,
        ..NO_PROGRESS
    };
    const RATES: Layout = Layout {
        missing: false,
        ..NO_LATENCY
    };
    [
        ALL,
        NO_BITS,
        SHORT,
        NO_PERCENT,
        TINY,
        NO_BAR,
        NO_PROGRESS,
        NO_LATENCY,
        RATES,
    ]
};

/// The snapshot in at most `width` columns: elapsed time, phase, progress, rates of the last
/// interval, frames missing (or lost, once known), mean latency. Parts that do not fit are left
/// out, the least important first. A benchmark shows its search, its current trial and
/// the result of each trial. `unicode` draws the bar with block characters.
#[must_use]
pub fn line(snapshot: &Snapshot, width: usize, unicode: bool) -> String {
    match &snapshot.bench {
        Some(bench) if bench.trial == 0 => return suite::live::begins(bench),
        Some(bench) => {
            return match &bench.ended {
                Some(trial) => suite::live::ended(bench, trial),
                None => tried(snapshot, bench, width),
            };
        }
        None => {}
    }
    let mut text = String::new();
    for layout in LAYOUTS {
        text = with(snapshot, layout, unicode);
        if text.chars().count() <= width {
            return text;
        }
    }
    let cut: String = text.chars().take(width).collect();
    cut.trim_end().to_owned()
}

/// A running trial of a benchmark: its load, the interval that contains the result, and the remaining time.
fn tried(s: &Snapshot, bench: &BenchLive, width: usize) -> String {
    let mut parts = vec![format!("{:>5} s", tenths(s.elapsed_ns))];
    parts.extend(suite::live::running(bench));
    parts.extend(missing(s));
    while parts.len() > 2 && parts.join("  ").chars().count() > width {
        parts.pop();
    }
    let text = parts.join("  ");
    let cut: String = text.chars().take(width).collect();
    cut.trim_end().to_owned()
}

fn with(s: &Snapshot, layout: Layout, unicode: bool) -> String {
    let mut parts = vec![
        format!("{:>5} s", tenths(s.elapsed_ns)),
        format!("{:<5}", phase(s.phase)),
    ];
    if let Some(progress) = s.progress {
        if layout.bar > 0 {
            parts.push(bar(progress, layout.bar, unicode));
        }
        if layout.percent {
            parts.push(format!("{:>3} %", whole_percent(progress)));
        }
    }
    parts.extend(figures(s, layout));
    parts.join("  ").trim_end().to_owned()
}

/// The figures of a snapshot in one line, without time and progress: `tx 1,000 pps, rx 1,000 pps, missing 0`.
#[must_use]
pub fn now(snapshot: &Snapshot) -> String {
    let parts = match &snapshot.bench {
        Some(bench) => suite::live::running(bench),
        None => figures(snapshot, LAYOUTS[0]),
    };
    let parts = parts.iter().map(|part| {
        let words: Vec<&str> = part.split_whitespace().collect();
        words.join(" ")
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn figures(s: &Snapshot, layout: Layout) -> Vec<String> {
    let mut parts = Vec::new();
    // Socket tests in addition to other jobs.
    let beside = s.socket.as_ref().map(exchange).filter(|_| layout.bits);
    if let Some(load) = &s.load {
        parts.extend(connections(load, s.phase, layout));
        // Streams in addition to the load.
        parts.extend(
            s.missing_frames
                .and_then(|_| missing(s))
                .filter(|_| layout.missing),
        );
        parts.extend(beside);
        return parts;
    }
    if let Some(http) = &s.http {
        parts.extend(requests(http, s.phase, layout));
        parts.extend(beside);
        return parts;
    }
    let has_frames = s.offered_pps.or(s.received_pps).is_some();
    if let Some(socket) = s.socket.as_ref().filter(|_| !has_frames) {
        parts.push(exchange(socket));
        return parts;
    }
    let rate = |name: &str, pps: Option<f64>, bps: Option<f64>| {
        let mut text = format!("{name} {:>9}", rate_pps(pps?));
        if let Some(bps) = bps.filter(|_| layout.bits) {
            text.push_str(&format!(" {:>11} L2", rate_bps(bps)));
        }
        Some(text)
    };
    parts.extend(rate("tx", s.offered_pps, s.offered_l2_bps));
    parts.extend(rate("rx", s.received_pps, s.received_l2_bps));
    parts.extend(missing(s).filter(|_| layout.missing));
    let outages = s.outages.filter(|n| *n > 0);
    parts.extend(outages.map(|n| counted(count(n), "outage", "outages")));
    if !s.links_down.is_empty() {
        parts.push(format!("link down: {}", s.links_down.join(", ")));
    }
    if let Some(ns) = s.latency_mean_ns.filter(|_| layout.latency) {
        parts.push(format!("mean {}", time_ns(ns)));
    }
    parts.extend(beside);
    parts
}

/// Frames that are lost or still missing; for a capture, frames that found no room.
fn missing(s: &Snapshot) -> Option<String> {
    let captures = s.capture.iter().chain(s.captures.values());
    let dropped = captures.map(|c| c.kernel_drop_frames).reduce(|a, b| a + b);
    match (s.totals.lost_frames, s.missing_frames, dropped) {
        (Some(lost), _, _) => Some(format!("lost {}", count(lost))),
        (None, Some(missing), _) => Some(format!("missing {}", count(missing))),
        (None, None, Some(dropped)) => Some(format!("dropped by kernel {}", count(dropped))),
        (None, None, None) => None,
    }
}

/// New and failed connections of the interval, open connections, requests, and response times. At the end, when the
/// interval is only a remainder, the totals.
fn connections(load: &LoadLive, phase: Phase, layout: Layout) -> Vec<String> {
    if phase == Phase::Done {
        return vec![format!(
            "{} established, {} failed",
            count(load.totals.established_connections),
            count(load.totals.failed_connections)
        )];
    }
    let whole = |n: f64| n.round() as u64;
    let mut parts = vec![
        format!("{:>9}/s new", count(whole(load.attempted_cps))),
        format!("{:>9} open", count(load.totals.open_connections)),
    ];
    if layout.bits || load.rps > load.attempted_cps * 1.01 {
        parts.push(format!("{:>9}/s requests", count(whole(load.rps))));
    }
    if layout.missing {
        parts.push(format!("{}/s failed", count(whole(load.failed_cps))));
    }
    if let Some(ns) = load.request_mean_ns.filter(|_| layout.latency) {
        parts.push(format!("mean {}", time_ns(ns)));
    }
    parts
}

/// Answers of the interval, new connections, pending connections, failures so far, and response times. At the
/// end, when the interval is only a remainder, the totals.
fn requests(http: &HttpLive, phase: Phase, layout: Layout) -> Vec<String> {
    let t = &http.totals;
    let failed = t.failed.sum() + t.refused_connections.sum();
    if phase == Phase::Done {
        let responses = counted(count(t.completed), "response", "responses");
        return vec![format!("{responses}, {} failed", count(failed))];
    }
    let whole = |n: f64| count(n.round() as u64);
    let mut parts = vec![
        format!("{:>9}/s responses", whole(http.requests_per_second)),
        format!("{:>9}/s new", whole(http.connections_per_second)),
    ];
    // With many connections, nothing else happens for seconds.
    if http.totals.connecting > 0 {
        parts.push(format!("{} connecting", count(http.totals.connecting)));
    }
    if layout.bits {
        parts.push(format!("{:>11}", rate_bps(http.received_bps)));
    }
    if layout.missing {
        parts.push(format!("{} failed", count(failed)));
    }
    if let Some(ns) = http.latency_mean_ns.filter(|_| layout.latency) {
        parts.push(format!("mean {}", time_ns(ns)));
    }
    parts
}

/// Test, repetition and rate; for a server, the number of its clients.
fn exchange(socket: &SocketLive) -> String {
    if socket.jobs == 0 {
        return format!("{:>5} clients", count(socket.clients));
    }
    #[allow(clippy::cast_precision_loss)]
    let per_second = socket.units as f64 / socket.interval_s.max(1e-9);
    let rate = match socket.transactions {
        true => format!("{:>9}/s transactions", count(per_second.round() as u64)),
        false => format!("{:>11}", rate_bps(per_second * 8.0)),
    };
    format!(
        "test {} of {}  run {}  {rate}",
        socket.job + 1,
        socket.jobs,
        socket.iteration
    )
}

fn tenths(ns: u64) -> String {
    format!("{}.{}", ns / 1_000_000_000, ns / 100_000_000 % 10)
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Preparing => "open",
        Phase::Ramp => "ramp",
        Phase::Running => "run",
        Phase::Drain => "drain",
        Phase::Done => "done",
    }
}

/// Rounded down, so that 100 appears at the end only.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole_percent(progress: f64) -> u32 {
    (progress.clamp(0.0, 1.0) * 100.0) as u32
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]
fn bar(progress: f64, cells: usize, unicode: bool) -> String {
    let full = ((progress.clamp(0.0, 1.0) * cells as f64) as usize).min(cells);
    let (on, off) = if unicode {
        ("\u{2588}", "\u{2591}")
    } else {
        ("#", "-")
    };
    let drawn = format!("{}{}", on.repeat(full), off.repeat(cells - full));
    if unicode { drawn } else { format!("[{drawn}]") }
}
