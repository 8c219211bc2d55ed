//! Merges the snapshots that several hosts made at one moment.

use std::collections::BTreeMap;

use wb_model::{Phase, Snapshot, http::HttpLive, load::LoadLive, load::LoadStage};

use crate::message::{JobCounts, Snap, sum_of_totals};

/// Snapshot of a host for a merge.
#[derive(Clone, Copy, Debug)]
pub struct HostSnap<'a> {
    /// Host.
    pub host: &'a str,
    /// Snapshot of the interval, or the last one before it.
    pub snap: &'a Snap,
    /// True if the snapshot is of the interval: its rates count.
    pub is_current: bool,
    /// True if the host only has the servers of loads that have clients on other hosts, which count the same.
    pub is_other_end: bool,
}

/// Merges the snapshots of an interval. Counts are sums over all hosts, also of those that are late or have ended; rates
/// are sums over the hosts with a snapshot of this interval. `missing_frames` covers directions of which both ends are
/// known. `lost_frames` stays unknown until the report.
#[must_use]
pub fn merge(parts: &[HostSnap<'_>], elapsed_ns: u64, interval_ns: u64) -> Snapshot {
    let all = || parts.iter().map(|part| &part.snap.snapshot);
    let counted = || parts.iter().filter(|part| !part.is_other_end);
    let current = || {
        let current = counted().filter(|part| part.is_current);
        current.map(|part| &part.snap.snapshot)
    };
    let phase = all().map(|s| s.phase).min_by_key(|phase| order(*phase));
    let mut merged = Snapshot::at(elapsed_ns, interval_ns, phase.unwrap_or(Phase::Preparing));
    merged.totals = sum_of_totals(counted().map(|part| &part.snap.snapshot.totals));
    merged.totals.lost_frames = None;
    merged.progress = smallest(current().filter_map(|s| s.progress));
    merged.offered_pps = sum(current().map(|s| s.offered_pps));
    merged.received_pps = sum(current().map(|s| s.received_pps));
    merged.offered_l2_bps = sum(current().map(|s| s.offered_l2_bps));
    merged.received_l2_bps = sum(current().map(|s| s.received_l2_bps));
    merged.missing_frames = missing_frames(parts.iter().flat_map(|part| &part.snap.jobs));
    let outages = all().filter_map(|s| s.outages);
    merged.outages = outages.reduce(u64::saturating_add);
    let weighted = current().filter_map(|s| Some((s.latency_mean_ns?, s.received_pps?)));
    merged.latency_mean_ns = weighted_mean(weighted);
    for part in parts {
        let host = part.host;
        let of = &part.snap.snapshot;
        let links = of.links_down.iter();
        merged
            .links_down
            .extend(links.map(|port| format!("{host} {port}")));
        let captures = of.captures.iter();
        let captures = captures.map(|(name, live)| (format!("{host} {name}"), *live));
        merged.captures.extend(captures);
        let only = of.capture.map(|live| (format!("{host} capture"), live));
        merged.captures.extend(only);
        let probes = of.probes.iter().cloned().map(|mut probe| {
            probe.name = format!("{host} {}", probe.name);
            probe
        });
        merged.probes.extend(probes);
    }
    let loads = counted().filter_map(|part| part.snap.snapshot.load);
    merged.load = loads.reduce(load_of_both);
    merged.http = all().filter_map(|s| s.http).reduce(http_of_both);
    merged.socket = all().filter_map(|s| s.socket).next_back();
    merged
}

/// Frames offered and not received, over the directions of which both ends are known.
#[must_use]
pub fn missing_frames<'a>(jobs: impl Iterator<Item = &'a JobCounts>) -> Option<u64> {
    let mut directions: BTreeMap<&str, JobCounts> = BTreeMap::new();
    for job in jobs {
        let known = directions.entry(&job.name).or_default();
        *known = known.or(job);
    }
    let missing = directions.values().filter_map(|job| {
        let (offered, unique) = (job.offered?, job.unique()?);
        // The receiver's snapshot may be a moment later than the sender's.
        Some(offered.saturating_sub(unique))
    });
    missing.reduce(u64::saturating_add)
}

/// Order of phases over the hosts: the run is in the earliest phase of any host, and a ramp-up elsewhere precedes it.
const fn order(phase: Phase) -> u8 {
    match phase {
        Phase::Preparing => 0,
        Phase::Ramp => 1,
        Phase::Running => 2,
        Phase::Drain => 3,
        Phase::Done => 4,
    }
}

fn smallest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::min)
}

/// Sum of the known values.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().reduce(|a, b| a + b)
}

/// Mean of pairs of value and weight. Weights of 0 do not count.
fn weighted_mean(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let values = values.filter(|(_, weight)| *weight > 0.0);
    let (sum, weights) = values.fold((0.0, 0.0), |(sum, all), (value, weight)| {
        (sum + value * weight, all + weight)
    });
    (weights > 0.0).then(|| sum / weights)
}

fn load_of_both(one: LoadLive, other: LoadLive) -> LoadLive {
    let weights = [(&one, one.rps), (&other, other.rps)];
    let means = weights
        .iter()
        .filter_map(|(of, weight)| Some((of.request_mean_ns?, *weight)));
    LoadLive {
        phase: earlier(one.phase, other.phase),
        request_mean_ns: weighted_mean(means),
        totals: one.totals.plus(&other.totals),
        attempted_cps: one.attempted_cps + other.attempted_cps,
        established_cps: one.established_cps + other.established_cps,
        completed_cps: one.completed_cps + other.completed_cps,
        failed_cps: one.failed_cps + other.failed_cps,
        rps: one.rps + other.rps,
    }
}

/// Stage of loads on two hosts: the earlier one, not counting loads that have not started.
fn earlier(one: LoadStage, other: LoadStage) -> LoadStage {
    match (one, other) {
        (LoadStage::Ready, stage) | (stage, LoadStage::Ready) => stage,
        (one, other) => one.min(other),
    }
}

fn http_of_both(one: HttpLive, other: HttpLive) -> HttpLive {
    let weights = [&one, &other].map(|of| (of.latency_mean_ns, of.requests_per_second));
    let means = weights
        .iter()
        .filter_map(|(mean, weight)| Some(((*mean)?, *weight)));
    HttpLive {
        requests_per_second: one.requests_per_second + other.requests_per_second,
        connections_per_second: one.connections_per_second + other.connections_per_second,
        received_bps: one.received_bps + other.received_bps,
        latency_mean_ns: weighted_mean(means),
        totals: one.totals + other.totals,
    }
}
