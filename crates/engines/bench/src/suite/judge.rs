//! Evaluates a trial: converts a report to a line of the trial log.

use std::{collections::BTreeMap, ops::Range};

use wb_model::{
    Charge, JobKind, Lateness, Report, Stream, Summary, Totals,
    bench::{Family, FamilyFrames, Quantity, SuiteTrial, TrialOutcome},
    counted, judge_lateness,
    lateness::{MISSED, WAS_LATE},
    load::{LoadEnd, LoadJobReport, LoadPhaseReport},
    report::JobReport,
};

use super::{
    availability::stream_availability,
    lb::LbTrials,
    modifiers::{bursts, management, put_by_us, routing},
    shape::{TargetJob, TrialAmount, TrialShape, direction_count, directions_before},
};
use crate::{CutReason, PlanRun, dropped_by_tester};

/// Tolerated unsent part of a load: the frames of this time, and one batch (trial specification, after FD.io's
/// practice).
const UNSENT_SECONDS: f64 = 10e-6;
const BATCH: f64 = 64.0;
/// Maximum duration of a trial relative to the intended one.
const LONGER: f64 = 1.01;
/// Share of foreign frames above which they are reported.
const FOREIGN: f64 = 0.001;
/// Connections and requests are due one by one; this share of them must have been begun.
const BEGUN: f64 = 0.98;
/// Minimum share of a load that is reported as possibly missing because of the tester's lateness.
const SEEN: f64 = 0.001;

/// Load of some streams of a trial's jobs, evaluated separately.
#[derive(Clone, Debug)]
pub(super) struct StreamPart {
    pub(super) name: String,
    /// Index of their job, and the range of its streams.
    pub(super) job: usize,
    pub(super) streams: Range<usize>,
    /// Load in each direction.
    pub(super) load: f64,
    /// Tolerated loss ratio.
    pub(super) goal: f64,
}

/// A trial with values that the searches need in addition to the line of the log.
#[derive(Clone, Debug)]
pub(super) struct JudgedTrial {
    pub(super) trial: SuiteTrial,
    /// Forwarded rate per second. With two directions that of the slower one, because the load applies to both.
    pub(super) through: f64,
    /// The last skipped frame, counted from 0 over all flows of its direction.
    pub(super) last_skipped: Option<u64>,
    /// Frames lost in the direction that lost more.
    pub(super) most_lost: u64,
    /// Time without received frames before the last frame was due, seconds, in the direction with the longer time.
    pub(super) silent_end_s: f64,
    /// Sources of the receive timestamps.
    pub(super) stamps: String,
    /// Ports of the tester without a link.
    pub(super) link_down: Option<String>,
    /// Bits per second of the slowest physical link; `None` if no port has one.
    pub(super) line_bps: Option<u64>,
    /// Share of the time in which frames arrived, if known.
    pub(super) availability: Option<f64>,
    /// Each of several jobs, evaluated separately.
    pub(super) parts: Vec<JudgedTrial>,
    /// The trigger failed.
    pub(super) misfired: bool,
}

/// Sums over the jobs of a frame load.
struct FrameSums<'a> {
    jobs: Vec<&'a JobReport>,
}

impl<'a> FrameSums<'a> {
    fn sum(&self, of: fn(&JobReport) -> Option<u64>) -> u64 {
        self.jobs.iter().filter_map(|job| of(job)).sum()
    }
}

/// Reports of a traffic job, one for each direction.
fn jobs_of(report: &Report, n: usize) -> Vec<&JobReport> {
    let plan = &report.plan;
    let Some(job) = plan.traffic.get(n) else {
        return Vec::new();
    };
    let first = directions_before(plan, n);
    report
        .jobs
        .iter()
        .skip(first)
        .take(direction_count(job))
        .collect()
}

fn load_job(report: &Report, n: usize) -> Option<&LoadJobReport> {
    load_named(report, &report.plan.loads.get(n)?.name)
}

/// Report of a load with this name.
pub(super) fn load_named<'a>(report: &'a Report, name: &str) -> Option<&'a LoadJobReport> {
    report
        .load
        .as_ref()?
        .jobs
        .iter()
        .find(|job| job.name == name)
}

pub(super) fn steady_phase(job: &LoadJobReport) -> Option<&LoadPhaseReport> {
    job.phases.iter().find(|p| p.phase == "steady")
}

/// The line of the log; the caller sets its number and its size.
pub(super) fn judge_trial(
    ran: &PlanRun,
    of: Quantity,
    target: TargetJob,
    shape: &TrialShape,
    goal: f64,
    parts: &[StreamPart],
    lb: Option<&LbTrials<'_>>,
) -> JudgedTrial {
    let report = &ran.report;
    let is_cut = ran.cut.is_some();
    if let Some(lb) = lb {
        let judged = lb.judge(report, &ran.readings, shape);
        return with_the_run(ran, target, shape, goal, judged, Some(lb));
    }
    let judged = match target {
        TargetJob::Traffic(n) => {
            let mut judged = judge_frames(report, jobs_of(report, n), shape, goal, is_cut);
            judged.trial.families = family_frames(report, n, judged.trial.duration_s);
            judged
        }
        TargetJob::Services(jobs) => return judge_parts(ran, jobs, shape, parts),
        TargetJob::Load(n) => judge_connections(report, of, n, shape, goal),
        TargetJob::Http(n) => judge_requests(report, n, shape, goal),
    };
    with_the_run(ran, target, shape, goal, judged, None)
}

/// Adds properties of the whole run: lateness, links, other jobs, an early end.
fn with_the_run(
    ran: &PlanRun,
    target: TargetJob,
    shape: &TrialShape,
    goal: f64,
    mut judged: JudgedTrial,
    lb: Option<&LbTrials<'_>>,
) -> JudgedTrial {
    let report = &ran.report;
    let trial = &mut judged.trial;
    trial.lateness = report.lateness.all;
    trial.warnings.clone_from(&report.warnings);
    if lb.is_none() {
        trial.rose = counter_increases(ran);
    }
    trial.management = management::read(report);
    trial.routing_updates = routing::read(report);
    judge_other_jobs(report, target, trial, goal);
    void_if_late(report, target, shape, goal, trial, lb);
    judged.link_down = link_down(report);
    let wires = report.ports.iter().filter(|p| !p.speed_nominal);
    judged.line_bps = wires.filter_map(|p| p.speed_bps).min();
    let trial = &mut judged.trial;
    if let Some(port) = judged
        .link_down
        .as_ref()
        .filter(|_| trial.outcome != TrialOutcome::Pass || lb.is_some())
    {
        (trial.outcome, trial.reason) =
            (TrialOutcome::Cut, format!("the link of {port} went down"));
    }
    match &ran.cut {
        Some(CutReason::Signal) => {
            (trial.outcome, trial.reason) =
                (TrialOutcome::Cut, "stopped early by a signal".to_owned());
        }
        Some(CutReason::Fault(fault)) => {
            (trial.outcome, trial.reason) = (
                TrialOutcome::Cut,
                format!("stopped early by an error: {fault}"),
            );
        }
        None => {}
    }
    judged
}

/// Evaluates several sets of streams separately, and their sum, which is void if one of them is.
fn judge_parts(
    ran: &PlanRun,
    jobs: usize,
    shape: &TrialShape,
    parts: &[StreamPart],
) -> JudgedTrial {
    let report = &ran.report;
    let is_cut = ran.cut.is_some();
    let each = parts.iter().map(|part| {
        let amount = TrialAmount::Load(part.load);
        let shape = TrialShape { amount, ..*shape };
        let whole = jobs_of(report, part.job);
        let own: Vec<JobReport> = whole
            .iter()
            .map(|way| streams_of(report, way, part))
            .collect();
        let own = own.iter().collect();
        let mut one = judge_frames(report, own, &shape, part.goal, is_cut);
        let each = whole
            .iter()
            .map(|way| stream_availability(&report.timeline, way, &part.streams));
        let each: Option<Vec<f64>> = each.collect();
        one.availability = each.and_then(|each| each.into_iter().reduce(f64::min));
        with_the_run(ran, TargetJob::Services(jobs), &shape, part.goal, one, None)
    });
    let each: Vec<JudgedTrial> = each.collect();
    let all = (0..jobs).flat_map(|n| jobs_of(report, n)).collect();
    let mut sum = judge_frames(report, all, shape, 1.0, is_cut);
    let add = |of: fn(&SuiteTrial) -> f64| each.iter().map(|one| of(&one.trial)).sum();
    let trial = &mut sum.trial;
    trial.intended = parts.iter().map(|part| part.load).sum();
    trial.offered = add(|trial| trial.offered);
    trial.forwarded = add(|trial| trial.forwarded);
    let void = |one: &&JudgedTrial| !one.trial.outcome.is_valid();
    let failed = |one: &&JudgedTrial| one.trial.outcome == TrialOutcome::Fail;
    let worst = each.iter().find(void).or(each.iter().find(failed));
    trial.outcome = worst.map_or(TrialOutcome::Pass, |one| one.trial.outcome);
    let said = parts.iter().zip(&each);
    let said = said.map(|(part, one)| format!("{}: {}", part.name, one.trial.reason));
    trial.reason = said.collect::<Vec<_>>().join("; ");
    if let Some(one) = each.first() {
        // Properties of the run are the same for all.
        trial.lateness = one.trial.lateness;
        trial.warnings.clone_from(&one.trial.warnings);
        trial.rose.clone_from(&one.trial.rose);
        sum.link_down.clone_from(&one.link_down);
        sum.line_bps = one.line_bps;
    }
    if ran.cut.is_some()
        && let Some(one) = each.first()
    {
        trial.reason.clone_from(&one.trial.reason);
    }
    sum.parts = each;
    sum
}

/// The report of a job restricted to some of its streams. Delays are those of their flows, without percentiles.
fn streams_of(report: &Report, way: &JobReport, part: &StreamPart) -> JobReport {
    let own = way.streams.get(part.streams.clone()).unwrap_or_default();
    let totals = own
        .iter()
        .fold(Totals::default(), |sum, s| sum.plus(&s.totals));
    let is_own = |flow: u32| {
        let mut ranges = own.iter().map(|s| s.first_flow..s.first_flow + s.flows);
        ranges.any(|flows| flows.contains(&flow))
    };
    let flows = report.flows.iter().filter(|flow| is_own(flow.flow));
    let latency = flows.map(|flow| flow.latency_ns);
    let latency = latency.reduce(|a, b| {
        let samples = a.samples + b.samples;
        let sum = |s: &Summary| s.mean.unwrap_or(0.0) * s.samples as f64;
        Summary {
            samples,
            min: [a.min, b.min].into_iter().flatten().min(),
            max: a.max.max(b.max),
            mean: (samples > 0).then(|| (sum(&a) + sum(&b)) / samples as f64),
            ..Summary::default()
        }
    });
    JobReport {
        totals: Totals {
            // Frames dropped by the tester's rings cannot be attributed to streams.
            rx_dropped_frames: way.totals.rx_dropped_frames,
            ..totals
        },
        // The longest delay of flows that are not listed is unknown.
        latency_ns: latency
            .filter(|_| report.flows_omitted == 0)
            .unwrap_or_default(),
        streams: own.to_vec(),
        name: way.name.clone(),
        tx: way.tx.clone(),
        rx: way.rx.clone(),
        rates: way.rates,
        ..JobReport::default()
    }
}

pub(super) fn empty_trial(shape: &TrialShape) -> SuiteTrial {
    let intended = match shape.amount {
        TrialAmount::Load(load) => load,
        TrialAmount::Most => 0.0,
        TrialAmount::Burst(frames) => frames as f64,
    };
    SuiteTrial::new(shape.purpose, intended, shape.duration.as_secs_f64())
}

pub(super) fn judged_without_extras(trial: SuiteTrial) -> JudgedTrial {
    JudgedTrial {
        through: trial.forwarded,
        trial,
        last_skipped: None,
        most_lost: 0,
        silent_end_s: 0.0,
        stamps: String::new(),
        link_down: None,
        line_bps: None,
        availability: None,
        parts: Vec::new(),
        misfired: false,
    }
}

fn judge_frames(
    report: &Report,
    jobs: Vec<&JobReport>,
    shape: &TrialShape,
    goal: f64,
    is_cut: bool,
) -> JudgedTrial {
    let frames = FrameSums { jobs };
    let mut trial = empty_trial(shape);
    trial.tx = frames.sum(|j| j.totals.offered_frames);
    trial.rx = frames.sum(|j| j.totals.received_frames);
    trial.lost = frames.sum(|j| j.totals.lost_frames);
    trial.dup = frames.sum(|j| j.totals.duplicate_frames);
    trial.ooo = frames.sum(|j| j.totals.reordered_frames);
    trial.foreign = frames.sum(|j| j.totals.foreign_frames);
    trial.unsent = frames.sum(|j| j.totals.unsent_frames);
    let ways = frames.jobs.len().max(1) as f64;
    let interface: u64 = report.ports.iter().map(|p| p.interface_drops).sum();
    trial.nic_drops = frames.sum(|j| j.totals.rx_dropped_frames) + interface;
    let took = frames.jobs.iter().filter_map(|j| j.rates.tx_time_ns).max();
    let took_s = took.unwrap_or(0) as f64 / 1e9;
    // For a load use the time of the trial. For bursts, interrupted trials and trials that took longer use the actual
    // time.
    let is_longer = took_s > longest_s(shape);
    let seconds = match shape.amount {
        TrialAmount::Load(_) if !is_cut && !is_longer => trial.duration_s,
        _ => took_s,
    };
    if seconds > 0.0 {
        trial.offered = trial.tx as f64 / seconds / ways;
        let unique = trial.rx.saturating_sub(trial.dup) as f64;
        trial.forwarded = unique / seconds / ways;
    }
    if shape.amount == TrialAmount::Most {
        trial.intended = trial.offered;
    }
    if let TrialAmount::Load(load) = shape.amount
        && trial.unsent == 0
        && trial.tx > 0
        && !is_cut
        && !is_longer
    {
        // Everything was sent: the schedule is exact, but the count is rounded to whole frames.
        trial.offered = load;
        // For the same reason the forwarded rate cannot be higher.
        trial.forwarded = trial.forwarded.min(load);
    }
    trial.duration_s = seconds;
    trial.loss_ratio = match trial.tx {
        0 => 0.0,
        tx => trial.lost_by_device() as f64 / tx as f64,
    };
    if let Some(first) = frames.jobs.first() {
        // Of two directions, the slower one is reported.
        let slower = |a: &&&JobReport, b: &&&JobReport| a.latency_ns.p50.cmp(&b.latency_ns.p50);
        let job = frames.jobs.iter().max_by(slower).map_or(*first, |job| job);
        trial.latency_ns = job.latency_ns;
        trial.ipdv_ns = job.ipdv_ns;
        trial.pdv_ns = job.pdv_ns;
        let silence = frames.jobs.iter().filter_map(|j| j.inter_arrival_ns.max);
        trial.longest_silence_ns = silence.max();
    }
    (trial.outcome, trial.reason) = outcome_of_frames(&trial, shape, took_s, goal);
    let rx = frames.jobs.first().and_then(|job| job.rx.as_ref());
    let stamps = report.ports.iter().find(|p| Some(&p.name) == rx);
    let lost = frames.jobs.iter().filter_map(|j| j.totals.lost_frames);
    let silent = frames.jobs.iter().map(|j| silent_end_s(j, shape));
    let unique = frames.jobs.iter().map(|j| {
        let totals = &j.totals;
        let received = totals.received_frames.unwrap_or(0);
        received.saturating_sub(totals.duplicate_frames.unwrap_or(0))
    });
    let least = unique.min().filter(|_| seconds > 0.0);
    let least = least.map_or(0.0, |frames| frames as f64 / seconds);
    JudgedTrial {
        last_skipped: frames.jobs.iter().filter_map(|j| last_skipped(j)).max(),
        most_lost: lost.max().unwrap_or(0),
        silent_end_s: silent.fold(0.0, f64::max),
        stamps: stamps.map_or_else(String::new, |p| p.timestamp_source.clone()),
        through: least.min(trial.forwarded),
        ..judged_without_extras(trial)
    }
}

/// If sending takes longer than this, less than the intended load was offered.
fn longest_s(shape: &TrialShape) -> f64 {
    shape.duration.as_secs_f64() * LONGER + 1e-3
}

/// Results of each IP version, if a job has both.
fn family_frames(report: &Report, n: usize, seconds: f64) -> Vec<FamilyFrames> {
    let Some(job) = report.plan.traffic.get(n) else {
        return Vec::new();
    };
    let of_all = |family: Family| {
        let is_own = |stream: &Stream| stream.is_ipv6() == (family == Family::Ipv6);
        let jobs = jobs_of(report, n);
        let ways = jobs.len().max(1) as f64;
        let own: Vec<&Totals> = jobs
            .iter()
            .flat_map(|way| job.streams.iter().zip(&way.streams))
            .filter(|(stream, _)| is_own(stream))
            .map(|(_, told)| &told.totals)
            .collect();
        let sum = |of: fn(&Totals) -> Option<u64>| -> Option<u64> {
            own.iter().map(|totals| of(totals)).sum()
        };
        let (tx, rx) = (sum(|t| t.offered_frames)?, sum(|t| t.received_frames)?);
        let (lost, dup) = (sum(|t| t.lost_frames)?, sum(|t| t.duplicate_frames)?);
        let per_second = |frames: u64| match seconds > 0.0 {
            true => frames as f64 / seconds / ways,
            false => 0.0,
        };
        (!own.is_empty()).then(|| FamilyFrames {
            family,
            offered_fps: per_second(tx),
            forwarded_fps: per_second(rx.saturating_sub(dup)),
            tx,
            rx,
            lost,
            dup,
        })
    };
    let all = [Family::Ipv4, Family::Ipv6].into_iter().filter_map(of_all);
    let all: Vec<FamilyFrames> = all.collect();
    // For a single version the trial itself is enough.
    if all.len() < 2 { Vec::new() } else { all }
}

/// Each flow has separate sequence numbers, and flows take turns.
fn last_skipped(job: &JobReport) -> Option<u64> {
    let flows: u64 = job.streams.iter().map(|s| u64::from(s.flows)).sum();
    Some((job.last_skipped? + 1) * flows.max(1) - 1)
}

fn silent_end_s(job: &JobReport, shape: &TrialShape) -> f64 {
    let came = match (job.totals.received_frames, job.rates.rx_time_ns) {
        (Some(0), _) => 0,
        (_, Some(ns)) => ns,
        (_, None) => return 0.0,
    };
    (shape.duration.as_secs_f64() - came as f64 / 1e9).max(0.0)
}

fn outcome_of_frames(
    trial: &SuiteTrial,
    shape: &TrialShape,
    took_s: f64,
    goal: f64,
) -> (TrialOutcome, String) {
    let (tx, lost) = (trial.tx, trial.lost);
    if tx == 0 {
        return (TrialOutcome::NotOffered, "nothing was sent".to_owned());
    }
    let not_sent = || {
        let intended = tx + trial.unsent;
        format!("only {tx} of {intended} frames sent")
    };
    if shape.before.is_some() && trial.unsent > 0 && lost > 0 {
        // The sequence number shows when the last lost frame was sent, and unsent frames have none.
        return (TrialOutcome::NotOffered, not_sent());
    }
    // A load that was not offered cannot be judged, regardless of loss.
    if trial.unsent as f64 > MISSED * (tx + trial.unsent) as f64 {
        return (TrialOutcome::NotOffered, not_sent());
    }
    let borne = goal * tx as f64;
    let not_read = || dropped_by_tester(trial.nic_drops);
    // Frames dropped by the tester's ports were not lost by the device.
    let of_device = trial.lost_by_device();
    if of_device as f64 > borne {
        let reason = match trial.nic_drops {
            0 => format!("{lost} of {tx} frames lost"),
            _ => format!(
                "the device lost at least {of_device} of {tx} frames; {}",
                not_read()
            ),
        };
        return (TrialOutcome::Fail, reason);
    }
    if lost as f64 > borne {
        return (TrialOutcome::NotRead, not_read());
    }
    if let TrialAmount::Load(load) = shape.amount {
        let spare = load * UNSENT_SECONDS + BATCH;
        if trial.unsent as f64 > spare {
            return (TrialOutcome::NotOffered, not_sent());
        }
        let asked = shape.duration.as_secs_f64();
        if took_s > longest_s(shape) {
            let reason = format!("sending took {took_s:.3} s instead of {asked:.3} s");
            return (TrialOutcome::NotOffered, reason);
        }
    }
    let mut reason = format!("{lost} of {tx} frames lost");
    if trial.foreign as f64 > FOREIGN * trial.rx as f64 {
        let unexpected = counted(trial.foreign, "unexpected frame", "unexpected frames");
        reason.push_str(&format!("; {unexpected} received"));
    }
    (TrialOutcome::Pass, reason)
}

fn judge_connections(
    report: &Report,
    of: Quantity,
    n: usize,
    shape: &TrialShape,
    goal: f64,
) -> JudgedTrial {
    let mut trial = empty_trial(shape);
    let Some(job) = load_job(report, n) else {
        (trial.outcome, trial.reason) =
            (TrialOutcome::NotOffered, "the job did not run".to_owned());
        return judged_without_extras(trial);
    };
    let full = steady_phase(job);
    let seconds = full.map_or(0.0, |p| p.to_ns.saturating_sub(p.from_ns) as f64 / 1e9);
    let totals = &job.totals;
    trial.duration_s = seconds;
    let per_second = |count: u64| match seconds > 0.0 {
        true => count as f64 / seconds,
        false => 0.0,
    };
    let of_phase = full.map(|p| p.totals).unwrap_or_default();
    match of {
        Quantity::Rps => {
            trial.tx = totals.requests;
            trial.rx = totals.responses;
            trial.lost = totals.requests.saturating_sub(totals.responses);
            trial.unsent = job.unsent_requests;
            trial.offered = per_second(of_phase.requests);
            trial.forwarded = per_second(of_phase.responses);
            trial.latency_ns = *job.request_ns;
        }
        Quantity::Cc => {
            trial.tx = totals.attempted_connections;
            trial.rx = totals.attempted_connections - totals.failed_connections;
            trial.lost = totals.failed_connections;
            trial.unsent = job.unsent_connections;
            trial.offered = of_phase.open_connections as f64;
            trial.forwarded = of_phase.open_connections as f64;
            trial.latency_ns = *job.request_ns;
        }
        _ => {
            trial.tx = totals.attempted_connections;
            trial.rx = totals.completed_connections;
            trial.lost = totals.failed_connections + totals.open_connections;
            trial.unsent = job.unsent_connections;
            trial.offered = per_second(of_phase.attempted_connections);
            trial.forwarded = per_second(of_phase.completed_connections);
            trial.latency_ns = *job.connect_ns;
        }
    }
    trial.loss_ratio = match trial.tx {
        0 => 0.0,
        tx => trial.lost as f64 / tx as f64,
    };
    let what = match of {
        Quantity::Rps => "requests unanswered",
        _ => "connections failed",
    };
    set_outcome(&mut trial, what, goal);
    if of == Quantity::Rps {
        let made = totals.established_connections > 0;
        count_waited(
            &mut trial,
            report,
            JobKind::Load,
            job.waited_requests,
            made,
            goal,
        );
    }
    judged_without_extras(trial)
}

fn judge_requests(report: &Report, n: usize, shape: &TrialShape, goal: f64) -> JudgedTrial {
    let mut trial = empty_trial(shape);
    let jobs = report.http.as_ref().map(|http| http.jobs.as_slice());
    let Some(job) = jobs.and_then(|jobs| jobs.get(n)) else {
        (trial.outcome, trial.reason) =
            (TrialOutcome::NotOffered, "the job did not run".to_owned());
        return judged_without_extras(trial);
    };
    let totals = &job.totals;
    trial.duration_s = job.duration_ns as f64 / 1e9;
    trial.tx = totals.sent;
    trial.rx = totals.completed;
    trial.lost = totals.sent.saturating_sub(totals.completed);
    trial.unsent = totals.unsent;
    trial.offered = match trial.duration_s > 0.0 {
        true => totals.sent as f64 / trial.duration_s,
        false => 0.0,
    };
    trial.forwarded = job.requests_per_second;
    trial.latency_ns = *job.latency_ns;
    trial.loss_ratio = match trial.tx {
        0 => 0.0,
        tx => trial.lost as f64 / tx as f64,
    };
    set_outcome(&mut trial, "requests unanswered", goal);
    let made = totals.established_connections > 0;
    count_waited(&mut trial, report, JobKind::Http, totals.unsent, made, goal);
    judged_without_extras(trial)
}

/// Requests that were due and found no free connection count as unanswered, unless the tester caused it.
fn count_waited(
    trial: &mut SuiteTrial,
    report: &Report,
    of: JobKind,
    waited: u64,
    made: bool,
    goal: f64,
) {
    let due = trial.tx + waited;
    if waited == 0 || due == 0 || report.limited_by.is_tester_of(of) {
        return;
    }
    let missing = trial.lost + waited;
    trial.loss_ratio = missing as f64 / due as f64;
    if trial.loss_ratio <= goal {
        return;
    }
    trial.outcome = TrialOutcome::Fail;
    trial.reason = match made {
        true => format!(
            "{missing} of {due} requests unanswered, {waited} of them because no connection was free"
        ),
        false => "no connection could be established".to_owned(),
    };
}

/// Sets the outcome of a load of connections or requests.
fn set_outcome(trial: &mut SuiteTrial, what: &str, goal: f64) {
    let (lost, tx) = (trial.lost, trial.tx);
    (trial.outcome, trial.reason) = match () {
        () if tx == 0 => (TrialOutcome::NotOffered, "nothing was sent".to_owned()),
        () if trial.unsent as f64 > MISSED * (tx + trial.unsent) as f64 => (
            TrialOutcome::NotOffered,
            format!("only {tx} of {} started", tx + trial.unsent),
        ),
        () if lost as f64 > goal * tx as f64 => {
            (TrialOutcome::Fail, format!("{lost} of {tx} {what}"))
        }
        () if trial.offered < trial.intended * BEGUN => (
            TrialOutcome::NotOffered,
            format!(
                "only {:.0} of {:.0} per second were offered",
                trial.offered, trial.intended
            ),
        ),
        () => (TrialOutcome::Pass, format!("{lost} of {tx} {what}")),
    };
}

/// Evaluates the jobs alongside it: if the device does not carry their stated load, it does not pass.
fn judge_other_jobs(report: &Report, target: TargetJob, trial: &mut SuiteTrial, goal: f64) {
    let loads = report.plan.loads.iter().enumerate();
    let clients = loads.filter(|(n, l)| l.end == LoadEnd::Client && target != TargetJob::Load(*n));
    let clients = clients.filter(|(_, load)| !put_by_us(load));
    for (n, plan) in clients {
        let Some(job) = load_job(report, n) else {
            continue;
        };
        let totals = &job.totals;
        let failed = totals.failed_connections;
        trial.beside.push(format!(
            "{}: {} attempted, {failed} failed, {} not attempted",
            plan.name,
            counted(totals.attempted_connections, "connection", "connections"),
            job.unsent_connections
        ));
        let missed = job.unsent_connections + job.unsent_requests;
        let due = totals.attempted_connections + totals.requests + missed;
        if failed as f64 > goal * totals.attempted_connections as f64 {
            let attempted = totals.attempted_connections;
            let reason = format!(
                "{failed} of {attempted} connections of the concurrent job {} failed",
                plan.name
            );
            let charge = Charge::Connections {
                bad: failed,
                borne: goal * attempted as f64,
            };
            if trial.outcome == TrialOutcome::Pass {
                (trial.outcome, trial.reason) = match judge_lateness(&trial.lateness, &charge) {
                    Some(late) => (TrialOutcome::Late, late),
                    None => (TrialOutcome::Fail, reason),
                };
            }
            trial.loss_ratio = trial.loss_ratio.max(failed as f64 / attempted as f64);
        } else if missed as f64 > (1.0 - BEGUN) * due as f64 && trial.outcome == TrialOutcome::Pass
        {
            let reason = format!(
                "not offered: {missed} of {due} connections and requests of the concurrent job {}",
                plan.name
            );
            (trial.outcome, trial.reason) = (TrialOutcome::NotOffered, reason);
        }
    }
    for (n, _) in report.plan.traffic.iter().enumerate() {
        if target.is_traffic(n) {
            continue;
        }
        for job in jobs_of(report, n) {
            let number = |count: Option<u64>| count.unwrap_or(0);
            trial.beside.push(format!(
                "{}: {} sent, {} lost, {} unsent",
                job.name,
                counted(number(job.totals.offered_frames), "frame", "frames"),
                number(job.totals.lost_frames),
                number(job.totals.unsent_frames)
            ));
        }
    }
}

/// Makes a trial void if the tester's own lateness may have caused its outcome.
fn void_if_late(
    report: &Report,
    target: TargetJob,
    shape: &TrialShape,
    goal: f64,
    trial: &mut SuiteTrial,
    lb: Option<&LbTrials<'_>>,
) {
    let lateness = &report.lateness.all;
    let is_of_frames = matches!(target, TargetJob::Traffic(_) | TargetJob::Services(_));
    let borne = goal * trial.tx as f64;
    if let Some(lb) = lb {
        let charge = lb.charge(shape, trial);
        if let Some(reason) = charge.and_then(|charge| judge_lateness(lateness, &charge)) {
            (trial.outcome, trial.reason) = (TrialOutcome::Late, reason);
        }
        return;
    }
    let charge = match trial.outcome {
        // Bursts delayed by a stall merge, and no gap remains between them.
        TrialOutcome::Fail if bursts::may_have_joined(shape, lateness, trial.lost) => {
            trial.outcome = TrialOutcome::Late;
            trial.reason = format!(
                "the tester was late ({}): {}",
                lateness.account(),
                trial.reason
            );
            return;
        }
        TrialOutcome::Fail if is_of_frames => Charge::Frames {
            bad: trial.lost,
            borne,
        },
        TrialOutcome::Fail => Charge::Connections {
            bad: trial.lost,
            borne,
        },
        TrialOutcome::NotRead if lateness.stalls > 0 => Charge::Frames {
            bad: trial.nic_drops,
            borne: 0.0,
        },
        TrialOutcome::NotOffered => Charge::Load {
            intended: trial.tx + trial.unsent,
            offered: trial.tx,
        },
        // A burst with a pause is not a burst. Receivers may pause: on another host, they wait until the end of the
        // burst is known.
        TrialOutcome::Pass if matches!(shape.amount, TrialAmount::Burst(_)) => {
            let senders = report.workers.iter().filter(|worker| worker.role != "rx");
            let senders = senders.fold(Lateness::default(), |all, own| all.plus(&own.lateness));
            // Loads have no workers in this list.
            let senders = match report.workers.is_empty() {
                true => *lateness,
                false => senders,
            };
            if senders.stalls > 0 {
                trial.outcome = TrialOutcome::Late;
                trial.reason = format!(
                    "the tester was late ({}) during the burst",
                    senders.account()
                );
            }
            return;
        }
        _ => return,
    };
    let reason = judge_lateness(lateness, &charge).or_else(|| {
        // A small number of unsent frames after a stall is no proof that the load was too high for the tester.
        let stalled = trial.outcome == TrialOutcome::NotOffered && lateness.missed_departures > 0;
        stalled.then(|| {
            format!(
                "the tester was late ({}): {}",
                lateness.account(),
                trial.reason
            )
        })
    });
    if let Some(reason) = reason {
        (trial.outcome, trial.reason) = (TrialOutcome::Late, reason);
    }
}

/// Missing frames of a trial that may be due to the tester's lateness. Drops at the tester's ports are reported
/// separately.
fn may_be_ours(trial: &SuiteTrial) -> u64 {
    let late = &trial.lateness;
    let moved = late.late_departures.saturating_add(late.missed_departures);
    moved.min(trial.lost)
}

/// Makes a trial void if the tester may have caused too many of the missing frames. Used if the loss itself is the
/// result and is not compared with a goal.
pub(super) fn void_if_tester_late(trial: &mut SuiteTrial) {
    let ours = may_be_ours(trial);
    if trial.outcome.is_valid() && ours as f64 > MISSED * (trial.tx + trial.unsent) as f64 {
        trial.outcome = TrialOutcome::Late;
        trial.reason = format!(
            "{WAS_LATE} ({}): this can explain {ours} of {}",
            trial.lateness.account(),
            counted(trial.lost, "lost frame", "lost frames")
        );
    }
}

/// Note about a visible part of the loss that may be due to the tester.
pub(super) fn tester_loss_note(trial: &SuiteTrial) -> Option<String> {
    let ours = may_be_ours(trial);
    (trial.outcome.is_valid() && ours as f64 > SEEN * trial.tx as f64).then(|| {
        format!(
            "at {:.0} fps the tester's lateness can explain {ours} of {} ({})",
            trial.offered,
            counted(trial.lost, "lost frame", "lost frames"),
            trial.lateness.account()
        )
    })
}

/// The port of the tester that had no link for a while: then no load caused the loss.
fn link_down(report: &Report) -> Option<String> {
    let port = report.ports.iter().find(|port| port.link_downs > 0);
    if let Some(port) = port {
        return Some(port.locator.clone());
    }
    let mut jobs = report.load.iter().flat_map(|load| &load.jobs);
    let name = &jobs.find(|job| job.link_downs > 0)?.port;
    let port = report.ports.iter().find(|port| port.name == *name);
    Some(port.map_or(name, |port| &port.locator).clone())
}

/// Counter increases: those of the device, and those of the tester's ports that indicate problems.
fn counter_increases(ran: &PlanRun) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    if let (Some(first), Some(last)) = (ran.readings.first(), ran.readings.last()) {
        for (name, after) in &last.counters {
            let before = first.counters.get(name).copied().unwrap_or(0);
            all.insert(name.clone(), after.saturating_sub(before));
        }
    }
    for port in &ran.report.ports {
        for (name, after) in &port.after {
            let trouble = ["drop", "err", "miss"]
                .iter()
                .any(|word| name.contains(word));
            let rise = after.saturating_sub(port.before.get(name).copied().unwrap_or(0));
            if trouble && rise > 0 {
                all.insert(format!("{}.{name}", port.name), rise);
            }
        }
    }
    all
}
