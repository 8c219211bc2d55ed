//! From what workers measured to the report. Every total is settled here, once, so that it adds up.

use std::collections::BTreeMap;

use wb_measure::{Account, Measurement};
use wb_model::{
    Lateness, LatenessReport, REPORT_SCHEMA, Report, Summary, Totals,
    criteria::{Criterion, Limit, Metric},
    report::{
        ClockReport, CriterionReport, FlowReport, JobReport, PortReport, Rates, StreamReport,
        WorkerReport,
    },
    units::WIRE_OVERHEAD,
};
use wb_traffic::{PKTGEN_FLOW, SenderOutcome};

use crate::{
    clock::rfc3339,
    lateness,
    prepare::{Prepared, Way, is_tagged},
    run::{End, Ended, Seat},
    verdict::{self, Circumstances},
};

/// Flows that are listed one by one; of more, those with most trouble.
const LISTED_FLOWS: usize = 1024;

pub(crate) fn summary(s: wb_measure::Summary) -> Summary {
    Summary {
        samples: s.samples,
        min: s.min,
        mean: s.mean,
        stddev: s.stddev,
        p50: s.p50,
        p90: s.p90,
        p99: s.p99,
        p999: s.p999,
        max: s.max,
    }
}

/// One way, settled.
struct Settled {
    job: JobReport,
    measurement: Option<Measurement>,
    /// Those with most trouble, no more than are listed.
    flows: Vec<FlowReport>,
    /// Flows beside them.
    omitted: usize,
    /// Whether a stream was sent as fast as the port takes frames.
    at_max: bool,
}

fn senders(ended: &Ended, way: usize) -> impl Iterator<Item = (&Seat, &SenderOutcome)> {
    ended
        .seats
        .iter()
        .filter(move |s| s.sends == Some(way))
        .filter_map(|s| Some((s, s.outcome.as_ref()?.sender.as_ref()?)))
}

/// What the receivers of a way measured together, and the frames that their rings had no room for.
fn measured(ended: &mut Ended, way: usize) -> (Option<Measurement>, u64) {
    let mut sum: Option<Measurement> = None;
    let mut dropped = 0;
    let outcomes = ended
        .seats
        .iter_mut()
        .filter(|s| s.receives == Some(way))
        .filter_map(|s| s.outcome.as_mut());
    for outcome in outcomes {
        let Some(receiver) = &mut outcome.receiver else {
            continue;
        };
        dropped += outcome.rx.dropped_frames;
        // Nobody else asks for the flows of one worker.
        let part = receiver.measurement.take_flows();
        match &mut sum {
            Some(sum) => sum.merge(&part),
            None => sum = Some(part),
        }
    }
    (sum, dropped)
}

/// What the sending side of a way did, stream by stream.
fn sent(
    way: &Way,
    index: usize,
    ended: &Ended,
) -> (Totals, Vec<StreamReport>, Vec<(u32, u64)>, u64) {
    let mut streams: Vec<StreamReport> = way
        .streams
        .iter()
        .map(|s| StreamReport {
            name: s.name.clone(),
            first_flow: s.first_flow,
            flows: s.flows,
            totals: Totals::default(),
        })
        .collect();
    // Streams have their flows one behind the other: what is found by its place needs no map.
    let mut flows: Vec<(u32, u64)> = way
        .streams
        .iter()
        .filter(|s| is_tagged(&s.stream))
        .flat_map(|s| (s.first_flow..s.first_flow + s.flows).map(|f| (f, 0)))
        .collect();
    let mut untagged = 0;
    let mut ramp = 0;
    for (_, outcome) in senders(ended, index) {
        ramp += outcome.ramp_frames;
        for ((report, spec), stream) in streams.iter_mut().zip(&way.streams).zip(&outcome.streams) {
            let intended = stream.intended_frames.unwrap_or(stream.offered_frames);
            report.totals = report.totals.plus(&Totals {
                intended_frames: Some(intended),
                offered_frames: Some(stream.offered_frames),
                unsent_frames: Some(intended - stream.offered_frames),
                offered_octets: Some(stream.offered_octets),
                refused_frames: Some(stream.refused_frames),
                ..Totals::default()
            });
            if is_tagged(&spec.stream) {
                let first = flows.partition_point(|(flow, _)| *flow < spec.first_flow);
                for ((_, sum), frames) in flows[first..].iter_mut().zip(&stream.flow_frames) {
                    *sum += frames;
                }
            } else {
                untagged += stream.offered_frames;
            }
        }
    }
    let totals = streams.iter().fold(
        Totals {
            ramp_frames: Some(ramp),
            ..Totals::default()
        },
        |t, s| t.plus(&s.totals),
    );
    (totals, streams, flows, untagged)
}

#[allow(clippy::cast_precision_loss)]
fn rates(
    way: &Way,
    index: usize,
    prepared: &Prepared,
    ended: &Ended,
    totals: &Totals,
    measured: Option<&Measurement>,
) -> Rates {
    let per = |n: Option<u64>, ns: Option<u64>| match (n, ns) {
        (Some(n), Some(ns)) if ns > 0 => Some(n as f64 * 1e9 / ns as f64),
        _ => None,
    };
    let start = senders(ended, index).map(|(_, o)| o.start_ns).min();
    let last = senders(ended, index)
        .map(|(_, o)| o.last_departure_ns)
        .max();
    let job = &prepared.plan.traffic[way.job];
    // A run that lasted as long as planned is divided by the plan's time: the last frame of an
    // even schedule leaves one gap before the end.
    let tx_time = match (start, last) {
        (Some(start), Some(last)) if last > start => {
            let spent = last - start;
            Some(job.duration.map_or(spent, |d| {
                if job.count.is_none() && ended.end == End::Completed {
                    spent.max(d.as_nanos())
                } else {
                    spent
                }
            }))
        }
        _ => None,
    };
    let rx_time = measured.and_then(Measurement::receive_time_ns);
    let received = totals.received_frames;
    let l1 = |octets: Option<u64>, frames: Option<u64>| {
        Some(octets? + frames? * u64::from(WIRE_OVERHEAD))
    };
    let bits = |octets: Option<u64>, ns| per(octets.map(|o| o * 8), ns);
    // From first to last frame there is one interval less than there are frames.
    let last_excluded = |n: Option<u64>| n.map(|n| n.saturating_sub(1));
    let octets_excluded = match (totals.received_octets, received) {
        (Some(octets), Some(frames)) if frames > 0 => Some(octets - octets / frames),
        _ => None,
    };
    let line = way.tx.and_then(|p| prepared.ports[p].line_rate());
    let intended: Option<f64> = way
        .streams
        .iter()
        .map(|s| s.pps.map(wb_model::units::Rational::as_f64))
        .sum();
    let mean_size = way
        .streams
        .first()
        .map(|s| s.stream.sizes().mean().as_f64());
    Rates {
        intended_pps: intended.filter(|_| !way.streams.is_empty()),
        offered_pps: per(totals.offered_frames, tx_time),
        received_pps: per(last_excluded(received), rx_time),
        offered_l1_bps: bits(l1(totals.offered_octets, totals.offered_frames), tx_time),
        received_l1_bps: bits(l1(octets_excluded, last_excluded(received)), rx_time),
        offered_l2_bps: bits(totals.offered_octets, tx_time),
        received_l2_bps: bits(octets_excluded, rx_time),
        line_rate_pps: line
            .zip(mean_size)
            .map(|(l, s)| l as f64 / ((s + f64::from(WIRE_OVERHEAD)) * 8.0)),
        largest_catch_up_frames: (way.tx.is_some()).then(|| {
            senders(ended, index)
                .map(|(_, o)| o.largest_catch_up_frames)
                .max()
                .unwrap_or(0)
        }),
        tx_time_ns: tx_time,
        rx_time_ns: rx_time,
    }
}

fn settle(prepared: &Prepared, ended: &mut Ended, index: usize) -> Settled {
    let way = &prepared.ways[index];
    let (mut totals, streams, offered, untagged_offered) = sent(way, index, ended);
    if way.tx.is_none() {
        totals.ramp_frames = None;
    }
    let (measurement, dropped) = measured(ended, index);
    let mut flows = Vec::new();
    let mut omitted = 0;
    if let Some(m) = &measurement {
        totals = totals.plus(&received(
            way,
            m,
            &offered,
            untagged_offered,
            dropped,
            &mut flows,
            &mut omitted,
        ));
    } else if way.tx.is_some() {
        omitted = offered.len().saturating_sub(LISTED_FLOWS);
        flows = offered
            .iter()
            .take(LISTED_FLOWS)
            .map(|(flow, frames)| FlowReport {
                flow: *flow,
                stream: stream_of(way, *flow),
                totals: Totals {
                    offered_frames: Some(*frames),
                    ..Totals::default()
                },
                ..FlowReport::default()
            })
            .collect();
    }
    let name_of = |port: Option<usize>| port.map(|p| prepared.ports[p].plan.name.clone());
    let job = JobReport {
        name: way.name.clone(),
        tx: name_of(way.tx),
        rx: name_of(way.rx),
        rates: rates(way, index, prepared, ended, &totals, measurement.as_ref()),
        latency_ns: measurement
            .as_ref()
            .map(|m| summary(m.latency.summary()))
            .unwrap_or_default(),
        totals,
        streams,
    };
    Settled {
        job,
        measurement,
        flows,
        omitted,
        at_max: way
            .streams
            .iter()
            .any(|s| s.pps.is_none() && s.replay.is_none()),
    }
}

fn stream_of(way: &Way, flow: u32) -> Option<String> {
    if way.tx.is_none() && flow == PKTGEN_FLOW {
        return Some("pktgen".to_owned());
    }
    way.streams
        .iter()
        .find(|s| (s.first_flow..s.first_flow + s.flows).contains(&flow))
        .map(|s| s.name.clone())
}

/// The receiving side of a way, settled against what was offered.
fn received(
    way: &Way,
    m: &Measurement,
    offered: &[(u32, u64)],
    untagged_offered: u64,
    dropped: u64,
    flows: &mut Vec<FlowReport>,
    omitted: &mut usize,
) -> Totals {
    let counters = m.counters;
    let (known, mut accounts) = m.account(offered);
    let untagged = Account::settle(untagged_offered, counters.untagged_frames, 0);
    let stats = |flow: u32| {
        let place = m.flows.binary_search_by_key(&flow, |f| f.flow);
        place.ok().map(|at| &m.flows[at])
    };
    let gaps = |seen: &wb_measure::FlowStats| {
        let highest = seen.highest?;
        Some((highest + 1).saturating_sub(seen.unique()))
    };
    let sends = way.tx.is_some();
    *omitted = accounts.len().saturating_sub(LISTED_FLOWS);
    if *omitted > 0 {
        // Of millions only those are made a report of that are listed.
        let worst_first = |(flow, account): &(u32, Account)| {
            let seen = stats(*flow);
            let lost = match sends {
                true => account.lost,
                false => seen.and_then(gaps).unwrap_or(0),
            };
            let trouble = lost + account.duplicate + seen.map_or(0, |s| s.reordered);
            (std::cmp::Reverse(trouble), *flow)
        };
        accounts.select_nth_unstable_by_key(LISTED_FLOWS - 1, worst_first);
        accounts.truncate(LISTED_FLOWS);
        accounts.sort_unstable_by_key(|(flow, _)| *flow);
    }
    for (flow, account) in &accounts {
        let seen = stats(*flow);
        flows.push(FlowReport {
            flow: *flow,
            stream: stream_of(way, *flow),
            totals: Totals {
                offered_frames: sends.then_some(account.offered),
                received_frames: Some(if sends {
                    account.received
                } else {
                    seen.map_or(0, |s| s.received)
                }),
                duplicate_frames: Some(account.duplicate),
                lost_frames: if sends {
                    Some(account.lost)
                } else {
                    seen.and_then(gaps)
                },
                reordered_frames: Some(seen.map_or(0, |s| s.reordered)),
                late_frames: Some(seen.map_or(0, |s| s.late)),
                received_octets: Some(seen.map_or(0, |s| s.octets)),
                ..Totals::default()
            },
            latency_ns: seen.map_or_else(Summary::default, |s| Summary {
                samples: s.latency.samples,
                min: s.latency.min.and_then(|v| i64::try_from(v).ok()),
                mean: s.latency.mean(),
                max: s.latency.max.and_then(|v| i64::try_from(v).ok()),
                ..Summary::default()
            }),
        });
    }
    if !sends {
        // Nobody said what was sent: loss is the gaps in the sequence numbers seen.
        return Totals {
            received_frames: Some(counters.received_frames),
            lost_frames: Some(counters.missing_frames),
            duplicate_frames: Some(counters.duplicate_frames),
            reordered_frames: Some(counters.reordered_frames),
            late_frames: Some(counters.late_frames),
            foreign_frames: Some(counters.foreign_frames),
            rx_dropped_frames: Some(dropped),
            received_octets: Some(counters.received_octets),
            ..Totals::default()
        };
    }
    Totals {
        received_frames: Some(known.received + untagged.received),
        lost_frames: Some(known.lost + untagged.lost),
        duplicate_frames: Some(known.duplicate),
        reordered_frames: Some(counters.reordered_frames),
        late_frames: Some(counters.late_frames),
        foreign_frames: Some(counters.foreign_frames + known.excess + untagged.excess),
        rx_dropped_frames: Some(dropped),
        received_octets: Some(counters.received_octets),
        ..Totals::default()
    }
}

fn workers(prepared: &Prepared, ended: &Ended) -> Vec<WorkerReport> {
    let mut list = Vec::new();
    for seat in &ended.seats {
        let Some(outcome) = &seat.outcome else {
            continue;
        };
        let mut totals = Totals::default();
        let mut latency = Summary::default();
        let mut busy = 0.0;
        if let Some(sender) = &outcome.sender {
            for stream in &sender.streams {
                let intended = stream.intended_frames.unwrap_or(stream.offered_frames);
                totals = totals.plus(&Totals {
                    intended_frames: Some(intended),
                    offered_frames: Some(stream.offered_frames),
                    unsent_frames: Some(intended - stream.offered_frames),
                    offered_octets: Some(stream.offered_octets),
                    refused_frames: Some(stream.refused_frames),
                    ..Totals::default()
                });
            }
            busy = share(sender.busy_turns, sender.turns);
        }
        if let Some(receiver) = &outcome.receiver {
            let c = receiver.measurement.counters;
            totals = totals.plus(&Totals {
                received_frames: Some(c.received_frames),
                received_octets: Some(c.received_octets),
                duplicate_frames: Some(c.duplicate_frames),
                reordered_frames: Some(c.reordered_frames),
                late_frames: Some(c.late_frames),
                foreign_frames: Some(c.foreign_frames),
                rx_dropped_frames: Some(outcome.rx.dropped_frames),
                ..Totals::default()
            });
            latency = summary(receiver.measurement.latency.summary());
            if outcome.sender.is_none() {
                busy = share(receiver.busy_turns, receiver.turns);
            }
        }
        let role = match (&outcome.sender, &outcome.receiver) {
            (Some(_), Some(_)) => "tx+rx",
            (Some(_), None) => "tx",
            _ => "rx",
        };
        list.push(WorkerReport {
            port: prepared.ports[seat.port].plan.name.clone(),
            queue: seat.queue,
            role: role.to_owned(),
            cpu: seat.cpu,
            totals,
            latency_ns: latency,
            kicks: outcome.tx.kicks,
            full_events: outcome.tx.full_events,
            busy,
            lateness: outcome.lateness(),
        });
    }
    list
}

#[allow(clippy::cast_precision_loss)]
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// How late all workers were.
fn lateness_of(ended: &Ended) -> Lateness {
    let outcomes = ended.seats.iter().filter_map(|s| s.outcome.as_ref());
    outcomes.fold(Lateness::default(), |sum, o| sum.plus(&o.lateness()))
}

fn port_reports(prepared: &Prepared, ended: &Ended) -> Vec<PortReport> {
    prepared
        .ports
        .iter()
        .enumerate()
        .map(|(i, port)| PortReport {
            timestamp_source: stamp_source(ended, i)
                .unwrap_or_else(|| port.facts.stamp_source.to_string()),
            neighbours: prepared.neighbours[i].clone(),
            ..port.report(&ended.before[i], &ended.after[i])
        })
        .collect()
}

/// Who really took the stamps of the frames that came in by a port.
fn stamp_source(ended: &Ended, port: usize) -> Option<String> {
    let mut sources: Vec<String> = ended
        .seats
        .iter()
        .filter(|s| s.port == port)
        .filter_map(|s| s.outcome.as_ref()?.receiver.as_ref())
        .flat_map(|r| r.stamp_sources.iter().map(|(source, _)| source.to_string()))
        .collect();
    sources.sort();
    sources.dedup();
    (!sources.is_empty()).then(|| sources.join("+"))
}

pub(crate) fn judge(criterion: &Criterion, totals: &Totals, latency: &Summary) -> CriterionReport {
    // A share of nothing is no measurement.
    let ratio = |part: Option<u64>, whole: Option<u64>| match (part, whole) {
        (Some(part), Some(whole)) if whole > 0 => Some(share(part, whole)),
        _ => None,
    };
    // Where only one end is ours, what must have been sent follows from what came and the gaps.
    let offered = totals.offered_frames.or_else(|| {
        let originals = totals.received_frames? - totals.duplicate_frames?;
        Some(originals + totals.lost_frames?)
    });
    #[allow(clippy::cast_precision_loss)]
    let time = |v: Option<i64>| v.map(|v| v as f64);
    let measured = match criterion.metric {
        Metric::Loss => ratio(totals.lost_frames, offered),
        Metric::Unsent => ratio(totals.unsent_frames, totals.intended_frames),
        Metric::Duplicates => ratio(totals.duplicate_frames, offered),
        Metric::Reordered => ratio(totals.reordered_frames, offered),
        Metric::Failed => totals
            .connections
            .and_then(|c| ratio(Some(c.failed_connections), Some(c.attempted_connections))),
        // Only loads have them; they judge by themselves.
        Metric::Errors => None,
        Metric::Mean => latency.mean,
        Metric::P50 => time(latency.p50),
        Metric::P99 => time(latency.p99),
        Metric::P999 => time(latency.p999),
        Metric::Max => time(latency.max),
    };
    #[allow(clippy::cast_precision_loss)]
    let limit = match criterion.limit {
        Limit::Share(s) => s.as_f64(),
        Limit::Time(t) => t.as_nanos() as f64,
    };
    CriterionReport {
        criterion: criterion.to_string(),
        measured,
        held: measured.is_some_and(|m| m <= limit),
    }
}

/// Frames that the interfaces of receiving ports dropped during the run, besides those that our
/// own counters know (a full XDP ring shows in both).
fn device_drops(prepared: &Prepared, ended: &Ended) -> Vec<(String, u64)> {
    let mut drops = Vec::new();
    for (i, port) in prepared.ports.iter().enumerate() {
        if !port.used.rx {
            continue;
        }
        let grew = |key: &str| {
            let of = |m: &BTreeMap<String, u64>| m.get(key).copied().unwrap_or(0);
            of(&ended.after[i]).saturating_sub(of(&ended.before[i]))
        };
        let dropped = grew("rx_dropped") + grew("rx_missed_errors") + grew("rx_fifo_errors");
        let ours: u64 = ended
            .seats
            .iter()
            .filter(|s| s.port == i)
            .filter_map(|s| s.outcome.as_ref())
            .map(|o| o.rx.dropped_frames)
            .sum();
        if dropped > ours {
            drops.push((port.plan.locator.to_string(), dropped - ours));
        }
    }
    drops
}

/// How often and how long links were down under senders: the worst of each port's workers.
fn link_downs(prepared: &Prepared, ended: &Ended) -> Vec<(String, u64, u64)> {
    let mut downs = Vec::new();
    for (i, port) in prepared.ports.iter().enumerate() {
        let outcomes = || {
            ended
                .seats
                .iter()
                .filter(move |s| s.port == i)
                .filter_map(|s| s.outcome.as_ref())
        };
        let times = outcomes().map(|o| o.link_downs).max().unwrap_or(0);
        let ns = outcomes().map(|o| o.link_down_ns).max().unwrap_or(0);
        if times > 0 {
            downs.push((port.plan.locator.to_string(), times, ns));
        }
    }
    downs
}

/// Why frames are missing, if any are.
fn missing_because(
    prepared: &Prepared,
    ended: &Ended,
    totals: &Totals,
    lateness: &LatenessReport,
) -> Option<String> {
    let lost = totals.lost_frames.filter(|n| *n > 0)?;
    let ours = totals.rx_dropped_frames.unwrap_or(0);
    if ours > 0 {
        return Some(format!(
            "the tester: its receiver dropped {ours} frames, {lost} are missing in all"
        ));
    }
    let drops = device_drops(prepared, ended);
    if !drops.is_empty() {
        let list: Vec<String> = drops
            .iter()
            .map(|(port, n)| format!("{n} at {port}"))
            .collect();
        return Some(format!(
            "the tester: its receiving interface dropped frames ({}), {lost} are missing in all",
            list.join(", ")
        ));
    }
    let late = lateness.all.late_departures;
    Some(if late >= lost {
        format!("the tester: it was late, which may be why {lost} frames are missing")
    } else if late > 0 {
        format!(
            "the device or the path: {lost} frames did not come back, up to {late} of them because the tester was late"
        )
    } else {
        format!("the device or the path: {lost} frames did not come back")
    })
}

/// Why frames stayed unsent, if any did. After a signal that is what was asked for.
fn unsent_because(prepared: &Prepared, ended: &Ended, totals: &Totals) -> Option<String> {
    let unsent = totals.unsent_frames.filter(|n| *n > 0)?;
    if ended.end != End::Completed {
        return None;
    }
    if let Some((port, _, _)) = link_downs(prepared, ended).first() {
        return Some(format!(
            "the link: it was down at {port}, {unsent} frames stayed unsent"
        ));
    }
    let refused = totals.refused_frames.unwrap_or(0);
    let late = &lateness_of(ended);
    Some(if late.missed_departures > unsent / 2 {
        format!(
            "the tester: it was away for {} ms in all, {unsent} frames stayed unsent",
            late.stalled_ns / 1_000_000
        )
    } else if refused > unsent / 2 {
        format!("the sending interface: it refused {refused} frames, {unsent} stayed unsent")
    } else {
        format!("the tester: its sender fell short by {unsent} frames")
    })
}

fn limited_by(
    prepared: &Prepared,
    ended: &Ended,
    totals: &Totals,
    lateness: &LatenessReport,
    at_max: bool,
) -> String {
    if let End::Fault(text) = &ended.end {
        return format!("a fault: {text}");
    }
    let causes: Vec<String> = [
        unsent_because(prepared, ended, totals),
        missing_because(prepared, ended, totals, lateness),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !causes.is_empty() {
        return causes.join("; and ");
    }
    if totals.offered_frames.is_none() {
        return "whoever sends: this run only receives".to_owned();
    }
    let lossless = if totals.lost_frames.is_some() {
        " and nothing was lost"
    } else {
        ""
    };
    if let End::Signal(n) = ended.end {
        return format!("{}: it ended the run early{lossless}", signal_name(n));
    }
    if at_max {
        return format!("the tester: the sender ran at full speed{lossless}");
    }
    if lossless.is_empty() {
        "the plan: all that was asked was sent".to_owned()
    } else {
        "the plan: all that was asked was sent, and nothing was lost".to_owned()
    }
}

pub(crate) fn measurement_warnings(m: &Measurement, warnings: &mut Vec<String>) {
    let c = m.counters;
    let mut warn = |n: u64, text: &str| {
        if n > 0 {
            warnings.push(format!("{n} {text}"));
        }
    };
    warn(
        c.beyond_window_frames,
        "frames came so late that they could not be told from duplicates; they count as duplicates, and loss may be overstated by as many",
    );
    warn(
        c.clock_error_frames,
        "frames carry a send time after their arrival; they give no latency (are the clocks of both ends the same?)",
    );
    warn(
        c.untracked_frames,
        "frames belong to flows for which the flow table had no room; they are counted and not followed",
    );
    warn(
        m.split_flows() as u64,
        "flows were spread over several receive queues or workers; duplicates and reordering between these go unseen",
    );
    warn(
        m.latency.clamped(),
        "latencies were longer than 73 minutes and are counted as that",
    );
}

/// The report of a run.
pub(crate) fn report(prepared: &Prepared, ended: &mut Ended) -> Report {
    let mut settled: Vec<Settled> = (0..prepared.ways.len())
        .map(|i| settle(prepared, ended, i))
        .collect();
    let ended = &*ended;
    let totals = settled
        .iter()
        .fold(Totals::default(), |t, s| t.plus(&s.job.totals));
    let mut measured: Vec<Measurement> = settled
        .iter_mut()
        .filter_map(|s| s.measurement.take())
        .collect();
    // Millions of flows are not copied.
    let mut all = measured.pop().unwrap_or_default();
    measured.iter().for_each(|m| all.merge(m));
    let mut warnings = prepared.warnings.clone();
    measurement_warnings(&all, &mut warnings);
    if all
        .flows
        .iter()
        .any(|f| f.flow == PKTGEN_FLOW && f.duplicates > 0)
    {
        warnings.push(
            "frames of pktgen have a number and no flow: several devices of it, clone_skb and burst look like duplicates"
                .to_owned(),
        );
    }
    // Where everything sent came back, the frames dropped were not of the test.
    if totals.offered_frames.is_none() || totals.lost_frames.is_some_and(|n| n > 0) {
        for (port, n) in device_drops(prepared, ended) {
            warnings.push(format!("{port}: the interface itself dropped {n} frames"));
        }
    }
    for (port, times, ns) in link_downs(prepared, ended) {
        let times = if times == 1 {
            "once".to_owned()
        } else {
            format!("{times} times")
        };
        warnings.push(format!(
            "{port}: the link went down {times} during the run, for {} ms",
            ns / 1_000_000
        ));
    }
    if !totals.adds_up() {
        warnings.push("the totals do not add up; this is a defect of the program".to_owned());
    }
    let catch_up = settled
        .iter()
        .filter_map(|s| s.job.rates.largest_catch_up_frames)
        .max();
    if ended.clock_step_ns.unsigned_abs() > 1_000 {
        warnings.push(format!(
            "the wall clock was stepped by {} ns during the run; latencies are wrong by up to that",
            ended.clock_step_ns
        ));
    }
    let latency = summary(all.latency.summary());
    let criteria: Vec<CriterionReport> = prepared
        .plan
        .criteria
        .iter()
        .map(|c| judge(c, &totals, &latency))
        .collect();
    let lateness = lateness::consider(
        &lateness::Trial {
            criteria: &prepared.plan.criteria,
            reports: &criteria,
            totals: &totals,
            intended: totals.intended_frames,
            offered: totals.offered_frames.unwrap_or(0),
        },
        lateness_of(ended),
    );
    let (verdict, reason) = verdict::verdict(
        &ended.end,
        &criteria,
        Circumstances {
            invalid: lateness
                .may_have_caused
                .clone()
                .or_else(|| nothing_sent(&totals)),
            endless: prepared.plan.is_endless(),
            stopped: None,
        },
    );
    let mut flows: Vec<FlowReport> = settled
        .iter()
        .flat_map(|s| s.flows.iter().cloned())
        .collect();
    let more = flows.len().saturating_sub(LISTED_FLOWS);
    let omitted = more + settled.iter().map(|s| s.omitted).sum::<usize>();
    if omitted > 0 {
        let trouble = |f: &FlowReport| {
            let t = &f.totals;
            t.lost_frames.unwrap_or(0)
                + t.duplicate_frames.unwrap_or(0)
                + t.reordered_frames.unwrap_or(0)
        };
        flows.sort_by_key(|f| (std::cmp::Reverse(trouble(f)), f.flow));
        flows.truncate(LISTED_FLOWS);
    }
    let departures = ended
        .seats
        .iter()
        .filter_map(|s| s.outcome.as_ref()?.sender.as_ref()?.departures.as_ref())
        .fold(None::<wb_measure::Histogram>, |sum, h| {
            let mut sum = sum.unwrap_or_default();
            sum.merge(h);
            Some(sum)
        });
    let mut rates = if let [only] = settled.as_slice() {
        only.job.rates
    } else {
        sum_rates(&settled)
    };
    rates.largest_catch_up_frames = catch_up;
    Report {
        schema: REPORT_SCHEMA.to_owned(),
        kind: prepared.plan.kind.clone(),
        verdict,
        reason,
        limited_by: limited_by(
            prepared,
            ended,
            &totals,
            &lateness,
            settled.iter().any(|s| s.at_max),
        ),
        started: rfc3339(ended.started_wall_ns),
        elapsed_ns: ended.elapsed_ns,
        plan: prepared.plan.clone(),
        totals,
        rates,
        latency_ns: latency,
        jitter_ns: summary(all.jitter().summary()),
        jitter_rfc3550_ns: all.smoothed_jitter().map(|j| j.max_ns),
        ipdv_ns: summary(all.ipdv.summary()),
        pdv_ns: summary(all.pdv()),
        inter_arrival_ns: summary(all.inter_arrival.summary()),
        inter_departure_ns: departures.map(|h| summary(h.summary())),
        percentile_error: wb_measure::Histogram::RELATIVE_ERROR,
        jobs: settled.iter().map(|s| s.job.clone()).collect(),
        flows,
        flows_omitted: omitted as u64,
        workers: workers(prepared, ended),
        ports: port_reports(prepared, ended),
        criteria,
        capture: None,
        load: None,
        socket: None,
        lateness,
        clock: clock_report(prepared, ended),
        warnings,
    }
}

/// A run that was to send and did not is no measurement of the device.
pub(crate) fn nothing_sent(totals: &Totals) -> Option<String> {
    (totals.offered_frames == Some(0)).then(|| "nothing was sent".to_owned())
}

pub(crate) fn signal_name(n: i32) -> String {
    match n {
        1 => "SIGHUP".to_owned(),
        2 => "SIGINT".to_owned(),
        14 => "SIGALRM".to_owned(),
        15 => "SIGTERM".to_owned(),
        n => format!("signal {n}"),
    }
}

fn sum_rates(settled: &[Settled]) -> Rates {
    let sum = |f: &dyn Fn(&Rates) -> Option<f64>| {
        settled
            .iter()
            .map(|s| f(&s.job.rates))
            .fold(None, |a: Option<f64>, b| match (a, b) {
                (None, b) => b,
                (a, None) => a,
                (Some(a), Some(b)) => Some(a + b),
            })
    };
    Rates {
        intended_pps: sum(&|r| r.intended_pps),
        offered_pps: sum(&|r| r.offered_pps),
        received_pps: sum(&|r| r.received_pps),
        offered_l1_bps: sum(&|r| r.offered_l1_bps),
        received_l1_bps: sum(&|r| r.received_l1_bps),
        offered_l2_bps: sum(&|r| r.offered_l2_bps),
        received_l2_bps: sum(&|r| r.received_l2_bps),
        line_rate_pps: sum(&|r| r.line_rate_pps),
        largest_catch_up_frames: None,
        tx_time_ns: settled.iter().filter_map(|s| s.job.rates.tx_time_ns).max(),
        rx_time_ns: settled.iter().filter_map(|s| s.job.rates.rx_time_ns).max(),
    }
}

fn clock_report(prepared: &Prepared, ended: &Ended) -> ClockReport {
    let rx: Vec<String> = prepared
        .ports
        .iter()
        .enumerate()
        .filter(|(_, p)| p.used.rx)
        .map(|(i, p)| {
            format!(
                "{}: {}",
                p.plan.name,
                stamp_source(ended, i).unwrap_or_else(|| p.facts.stamp_source.to_string())
            )
        })
        .collect();
    let sends = prepared.ports.iter().any(|p| p.used.tx);
    let clock = crate::clock::clock_report(ended.clock_step_ns);
    let converted = rx.iter().any(|source| source.contains("xdp"));
    let conversion = if converted { ended.clock_error_ns } else { 0 };
    ClockReport {
        same_clock: sends,
        error_ns: sends.then_some(clock.resolution_ns + clock.read_cost_ns + conversion),
        tx_stamp: if sends {
            "user, just before the frame is handed over".to_owned()
        } else {
            String::new()
        },
        rx_stamp: rx.join(", "),
        ..clock
    }
}
