//! Converts the measurements of workers into the report. Every total is settled here, once, so that it adds up.

use crate::{CounterValues, PKTGEN_FLOW, SenderOutcome, StreamOutcome, WorkerOutcome};
use wb_figures::text::time_ns;
use wb_measure::{Account, FlowOutages, FlowStats, Measurement, Outages, SentFrames};
use wb_model::{
    Driver, JobKind, Lateness, LatenessReport, Limit, LimitedBy, Limiter, Proto, Stream, Summary,
    Totals, counted,
    frames::Frames,
    lateness::MISSED,
    peer::Sent,
    report::{FlowReport, JobReport, OutageReport, PortReport, Rates, StreamReport, WorkerReport},
    units::WIRE_OVERHEAD,
};

use super::{Direction, Traffic, WorkerSlot, checks::mean_size, live, remote::RemoteSender};
use wb_engine::{End, Ended, LinkDown, Outcome, Part, Stamping, Times};
use wb_engine::{
    criteria::{self, Offered, Shortfall},
    lateness,
    settle::{
        counted_frames, distribution, distributions_of, measurement_warnings, nothing_arrived,
        nothing_sent, share, stalls_explain, times_of,
    },
};
use wb_open::{OpenPort, signal_name};

/// Maximum number of flows that are listed individually. If there are more, the flows with most trouble are listed.
const LISTED_FLOWS: usize = 1024;

/// One direction after settling.
struct SettledDirection {
    job: JobReport,
    measurement: Option<Measurement>,
    /// Listed flows: those with most trouble, if not all are listed.
    flows: Vec<FlowReport>,
    /// Number of flows that are not listed.
    omitted: usize,
    /// True if a stream was sent as fast as the port takes frames.
    at_max: bool,
}

fn senders(run: &Traffic, direction: usize) -> impl Iterator<Item = (&WorkerSlot, &SenderOutcome)> {
    run.slots
        .iter()
        .filter(move |s| s.sends == Some(direction))
        .filter_map(|s| Some((s, s.outcome.as_ref()?.sender.as_ref()?)))
}

/// Returns the merged measurement of a direction's receivers, the frames that their rings dropped, and the frames of
/// ramps.
fn measured(run: &mut Traffic, direction: usize) -> (Option<Measurement>, u64, u64) {
    let mut sum: Option<Measurement> = None;
    let (mut dropped, mut ramp) = (0, 0);
    let outcomes = run
        .slots
        .iter_mut()
        .filter(|s| s.receives == Some(direction))
        .filter_map(|s| s.outcome.as_mut());
    for outcome in outcomes {
        let Some(receiver) = &mut outcome.receiver else {
            continue;
        };
        dropped += outcome.rx.dropped_frames;
        ramp += receiver.ramp_frames;
        // The flows of one worker are not needed after this.
        let part = receiver.measurement.take_flows();
        match &mut sum {
            Some(sum) => sum.merge(&part),
            None => sum = Some(part),
        }
    }
    (sum, dropped, ramp)
}

/// Counts of the sending side of a direction.
pub(super) struct SentSide {
    /// Totals of each stream: intended, offered, unsent, refused.
    streams: Vec<Totals>,
    /// Offered frames of each flow with a tag. The flows are consecutive.
    flows: Vec<(u32, u64)>,
    ramp_frames: u64,
    /// Start of the schedule and last departure, in ns of the sender's monotonic clock; of a sender on another host, of
    /// this host's wall clock.
    departures: Option<(u64, u64)>,
    /// Start of the schedule on this host's wall clock, in ns since 1970; 0 if nothing was sent.
    first_departure_wall_ns: u64,
    /// Last departure on this host's wall clock, in ns since 1970; 0 if nothing was sent.
    last_departure_wall_ns: u64,
}

impl SentSide {
    /// Sums the results of the senders of a direction.
    pub(super) fn of_outcomes(direction: &Direction, outcomes: &[&SenderOutcome]) -> Self {
        let mut streams = vec![Totals::default(); direction.streams.len()];
        let tagged = direction.streams.iter().filter(|s| s.stream.is_tagged());
        // The flows of the streams are consecutive, so an index replaces a map.
        let mut flows: Vec<(u32, u64)> = tagged
            .flat_map(|s| (s.first_flow..s.first_flow + s.flows).map(|f| (f, 0)))
            .collect();
        for outcome in outcomes {
            let sent = streams
                .iter_mut()
                .zip(&direction.streams)
                .zip(&outcome.streams);
            for ((totals, spec), stream) in sent {
                *totals = totals.plus(&totals_of_stream(stream));
                if spec.stream.is_tagged() {
                    let first = flows.partition_point(|(flow, _)| *flow < spec.first_flow);
                    for ((_, sum), frames) in flows[first..].iter_mut().zip(&stream.flow_frames) {
                        *sum += frames;
                    }
                }
            }
        }
        let departed = || outcomes.iter().filter(|o| o.last_departure_wall_ns > 0);
        let start = |o: &&SenderOutcome| {
            let sending_ns = o.last_departure_ns.saturating_sub(o.start_ns);
            o.last_departure_wall_ns.saturating_sub(sending_ns)
        };
        let first = outcomes.iter().map(|o| o.start_ns).min();
        let last = outcomes.iter().map(|o| o.last_departure_ns).max();
        Self {
            streams,
            flows,
            ramp_frames: outcomes.iter().map(|o| o.ramp_frames).sum(),
            departures: first.zip(last),
            first_departure_wall_ns: departed().map(start).min().unwrap_or(0),
            last_departure_wall_ns: departed()
                .map(|o| o.last_departure_wall_ns)
                .max()
                .unwrap_or(0),
        }
    }

    /// The sending side as another host counted it.
    fn of_message(direction: &Direction, sender: &RemoteSender, sent: &Sent) -> Self {
        let local = |wall_ns| match wall_ns {
            0 => 0,
            wall_ns => sender.clock.clock.local(wall_ns),
        };
        let (first, last) = (sent.first_departure_wall_ns, sent.last_departure_wall_ns);
        Self {
            streams: sent.streams.clone(),
            flows: (direction.first_flow..)
                .zip(sent.flows.iter().copied())
                .collect(),
            ramp_frames: sent.ramp_frames,
            departures: (last > 0).then_some((first, last)),
            first_departure_wall_ns: local(first),
            last_departure_wall_ns: local(last),
        }
    }

    /// Assumes that everything arrived, in place of unknown counts.
    fn of_arrivals(direction: &Direction, m: &Measurement) -> Self {
        let untagged = Totals {
            offered_frames: Some(m.counters.untagged_frames),
            ..Totals::default()
        };
        let mut streams = vec![Totals::default(); direction.streams.len()];
        let own = streams.iter_mut().zip(&direction.streams);
        if let Some((totals, _)) = own.into_iter().find(|(_, s)| !s.stream.is_tagged()) {
            *totals = untagged;
        }
        Self {
            streams,
            flows: m
                .flows
                .iter()
                .map(|flow| (flow.flow, flow.unique()))
                .collect(),
            ramp_frames: 0,
            departures: None,
            first_departure_wall_ns: 0,
            last_departure_wall_ns: 0,
        }
    }

    /// The counts for the host of the receiver.
    pub(super) fn message(self, direction: &Direction) -> Sent {
        Sent {
            direction: direction.first_flow,
            first_departure_wall_ns: self.first_departure_wall_ns,
            last_departure_wall_ns: self.last_departure_wall_ns,
            streams: self.streams,
            ramp_frames: self.ramp_frames,
            flows: self.flows.into_iter().map(|(_, frames)| frames).collect(),
        }
    }

    /// Totals of all streams.
    fn totals(&self) -> Totals {
        let ramp = Totals {
            ramp_frames: Some(self.ramp_frames),
            ..Totals::default()
        };
        self.streams
            .iter()
            .fold(ramp, |sum, totals| sum.plus(totals))
    }

    /// Offered frames of the streams without a tag.
    fn untagged(&self, direction: &Direction) -> u64 {
        let streams = self.streams.iter().zip(&direction.streams);
        let untagged = streams.filter(|(_, spec)| !spec.stream.is_tagged());
        untagged
            .filter_map(|(totals, _)| totals.offered_frames)
            .sum()
    }
}

/// Counts of a stream of one sender.
fn totals_of_stream(stream: &StreamOutcome) -> Totals {
    let intended = stream.intended_frames.unwrap_or(stream.offered_frames);
    Totals {
        intended_frames: Some(intended),
        offered_frames: Some(stream.offered_frames),
        unsent_frames: Some(intended - stream.offered_frames),
        offered_octets: Some(stream.offered_octets),
        refused_frames: Some(stream.refused_frames),
        ..Totals::default()
    }
}

/// Counts of the sending side of a direction: those of this host, or those that another host reported. `None` if they
/// are unknown.
fn sent(run: &Traffic, index: usize) -> Option<SentSide> {
    let direction = &run.directions[index];
    match direction.remote_sender() {
        Some(sender) => Some(SentSide::of_message(direction, sender, sender.sent()?)),
        None => {
            direction.tx?;
            let outcomes: Vec<_> = senders(run, index).map(|(_, sender)| sender).collect();
            Some(SentSide::of_outcomes(direction, &outcomes))
        }
    }
}

/// Reports of a direction's streams, with the counts of a sender on this host.
fn stream_reports(
    run: &Traffic,
    direction: &Direction,
    sent: Option<&SentSide>,
) -> Vec<StreamReport> {
    let path = run.path_of(direction);
    let own = sent.filter(|_| direction.tx.is_some());
    let streams = direction.streams.iter().enumerate();
    streams
        .map(|(number, spec)| StreamReport {
            name: spec.name.clone(),
            first_flow: run.flows.shown(spec.first_flow),
            flows: spec.flows,
            path: path.clone(),
            totals: own.map(|sent| sent.streams[number]).unwrap_or_default(),
            ..StreamReport::default()
        })
        .collect()
}

#[allow(clippy::cast_precision_loss)]
fn rates(
    run: &Traffic,
    ended: &Ended,
    index: usize,
    totals: &Totals,
    sent: Option<&SentSide>,
    measured: Option<&Measurement>,
) -> Rates {
    let direction = &run.directions[index];
    let per = |n: Option<u64>, ns: Option<u64>| match (n, ns) {
        (Some(n), Some(ns)) if ns > 0 => Some(n as f64 * 1e9 / ns as f64),
        _ => None,
    };
    let job = &run.plan.traffic[direction.planned.job];
    // N frames over N intervals: the last frame of an even schedule leaves one gap before the end of the planned time.
    let tx_time = match sent.and_then(|sent| sent.departures) {
        Some((start, last)) if last > start => {
            let spent = last - start;
            Some(match job.duration {
                Some(d) if job.count.is_none() && ended.end == End::Completed => {
                    spent.max(d.as_nanos())
                }
                _ => {
                    let offered = sent.and_then(|sent| sent.totals().offered_frames);
                    with_last_gap(spent, offered.unwrap_or(0), direction)
                }
            })
        }
        _ => None,
    };
    let rx_time = measured.and_then(Measurement::receive_time_ns);
    let l1 = |octets: Option<u64>, frames: Option<u64>| {
        Some(octets? + frames? * u64::from(WIRE_OVERHEAD))
    };
    let bits = |octets: Option<u64>, ns| per(octets.map(|o| o * 8), ns);
    let line = direction.tx.and_then(|p| run.ports[p].line_rate());
    let is_steered = run.steered.as_ref().is_some_and(|s| s.has_changed(index));
    let intended: Option<f64> = match is_steered {
        true => per(totals.intended_frames, tx_time),
        false => (direction.streams.iter())
            .map(|s| s.pps.map(wb_model::units::Rational::as_f64))
            .sum(),
    };
    let mean_size = direction.streams.first().map(|s| mean_size(s).as_f64());
    let mut rates = Rates {
        intended_pps: intended.filter(|_| direction.tx.is_some()),
        offered_pps: per(totals.offered_frames, tx_time),
        offered_l1_bps: bits(l1(totals.offered_octets, totals.offered_frames), tx_time),
        offered_l2_bps: bits(totals.offered_octets, tx_time),
        line_rate_pps: line
            .zip(mean_size)
            .map(|(l, s)| l as f64 / ((s + f64::from(WIRE_OVERHEAD)) * 8.0)),
        largest_catch_up_frames: (direction.tx.is_some()).then(|| {
            senders(run, index)
                .map(|(_, o)| o.largest_catch_up_frames)
                .max()
                .unwrap_or(0)
        }),
        tx_time_ns: tx_time,
        rx_time_ns: rx_time,
        ..Rates::default()
    };
    rates.set_received(totals);
    rates.tx_time_ns.take_if(|_| direction.tx.is_none());
    rates
}

/// Returns the time in ns for `frames` frames that were sent within `spent_ns`, including the gap after the last frame.
fn with_last_gap(spent_ns: u64, frames: u64, direction: &Direction) -> u64 {
    let streams = &direction.streams;
    let pps: Option<f64> = streams.iter().map(|s| s.pps.map(|pps| pps.as_f64())).sum();
    let even_ns = match pps {
        Some(pps) if pps > 0.0 && frames > 0 => Some(frames as f64 * 1e9 / pps),
        _ => None,
    };
    match even_ns {
        // The frames of a burst leave together, and the gap after the last frame is the gap of the burst.
        Some(even_ns) if streams.iter().any(|s| s.stream.burst.is_some()) => {
            spent_ns.max(even_ns as u64)
        }
        Some(even_ns) => spent_ns + (even_ns / frames as f64) as u64,
        None if frames > 1 => spent_ns + spent_ns / (frames - 1),
        None => spent_ns,
    }
}

fn settle_way(run: &mut Traffic, ended: &Ended, index: usize) -> SettledDirection {
    let sent = sent(run, index);
    let (mut measurement, dropped, ramp) = measured(run, index);
    let (run, direction) = (&*run, &run.directions[index]);
    let mut streams = stream_reports(run, direction, sent.as_ref());
    // Ramps of all runs use the same flow.
    let strays = sent
        .as_ref()
        .map_or(0, |sent| ramp.saturating_sub(sent.ramp_frames));
    let own = sent.as_ref().filter(|_| direction.tx.is_some());
    let mut totals = own.map(SentSide::totals).unwrap_or_default();
    if direction.from.is_some() {
        totals.ramp_frames = Some(ramp).filter(|n| *n > 0);
    }
    let mut flows = Vec::new();
    let mut omitted = 0;
    let (mut latency_ns, mut pdv_ns) = (Summary::default(), Summary::default());
    if let Some(m) = &mut measurement {
        end_outages(run, index, sent.as_ref(), m);
        // Latencies are raised only while they are measured. Between two clocks they may then be below 0.
        let bias_ns = direction.bias_ns();
        latency_ns = m.latency.summary().lowered_by(bias_ns as i64);
        pdv_ns = m.pdv();
        m.lower_latencies(bias_ns);
    }
    let first_rx_ns = measurement.as_ref().and_then(|m| m.first_rx_ns);
    // Frames of a file arrived long before the run.
    let start_ns = ended.started_wall_ns.min(first_rx_ns.unwrap_or(u64::MAX));
    let shown = |outages: &FlowOutages| OutageReport {
        outage_flow: Some(run.flows.shown(outages.flow)),
        ..outages_of_flow(outages, start_ns)
    };
    if let Some(m) = &measurement {
        let mut came;
        let assumed;
        let offered = match &sent {
            Some(sent) => sent,
            None => {
                assumed = SentSide::of_arrivals(direction, m);
                &assumed
            }
        };
        (came, omitted) = received(direction, m, offered, dropped, &mut streams, &mut flows);
        if sent.is_none() && direction.remote.is_some() {
            forget_losses(&mut came, &mut streams, &mut flows);
        }
        for flow in &mut flows {
            flow.outages = m.outages.of(flow.flow).map(shown);
            flow.flow = run.flows.shown(flow.flow);
        }
        if direction.from.is_none() {
            add_strays(&mut came, strays);
        }
        if (direction.rx).is_some_and(|rx| !run.ports[rx].counts_foreign()) {
            came.foreign_frames = came.foreign_frames.filter(|n| *n > 0);
        }
        totals = totals.plus(&came);
    } else if let Some(sent) = own {
        omitted = sent.flows.len().saturating_sub(LISTED_FLOWS);
        flows = offered_flows(run, direction, sent);
    }
    let summary = |of: fn(&Measurement) -> Summary| {
        let measured = measurement.as_ref();
        measured.map(of).unwrap_or_default()
    };
    let job = JobReport {
        name: direction.planned.name.clone(),
        tx: direction.planned.tx.clone(),
        rx: direction.planned.rx.clone(),
        rates: rates(
            run,
            ended,
            index,
            &totals,
            sent.as_ref(),
            measurement.as_ref(),
        ),
        latency_ns,
        ipdv_ns: summary(|m| m.ipdv.summary()),
        pdv_ns,
        inter_arrival_ns: summary(|m| m.inter_arrival.summary()),
        last_skipped: measurement.as_ref().and_then(|m| m.last_skipped),
        outages: measurement
            .as_ref()
            .filter(|_| direction.from.is_some() || direction.flows > 0)
            .map(|m| all_outages(&m.outages, shown)),
        totals,
        streams,
        incomplete: direction
            .remote_sender()
            .and_then(RemoteSender::why_missing),
        clock: direction.remote_sender().and_then(RemoteSender::pair_clock),
        round_trip_mean_ns: None,
    };
    SettledDirection {
        job,
        measurement,
        flows,
        omitted,
        at_max: direction.tx.is_some()
            && direction
                .streams
                .iter()
                .any(|s| s.pps.is_none() && s.replay.is_none()),
    }
}

/// Adds ramp-up frames of other runs.
fn add_strays(came: &mut Totals, strays: u64) {
    let more = |n: &mut Option<u64>| *n = n.map(|n| n + strays);
    more(&mut came.foreign_frames);
    more(&mut came.unplanned_frames);
    more(&mut came.other_run_frames);
}

/// Flows of a direction without a receiver on this host.
fn offered_flows(run: &Traffic, direction: &Direction, sent: &SentSide) -> Vec<FlowReport> {
    let listed = sent.flows.iter().take(LISTED_FLOWS);
    listed
        .map(|(flow, frames)| FlowReport {
            flow: run.flows.shown(*flow),
            stream: stream_of(direction, *flow),
            totals: Totals {
                offered_frames: Some(*frames),
                ..Totals::default()
            },
            ..FlowReport::default()
        })
        .collect()
}

/// Completes the outages of a direction with the frames that it sent.
fn end_outages(run: &Traffic, index: usize, sent: Option<&SentSide>, m: &mut Measurement) {
    let direction = &run.directions[index];
    let sent = sent.map(|sent| SentFrames {
        offered: &sent.flows,
        first_departure_ns: sent.first_departure_wall_ns,
        last_departure_ns: sent.last_departure_wall_ns,
    });
    let threshold = run.plan.traffic[direction.planned.job].outage_threshold;
    m.end_outages(sent.as_ref(), threshold.as_nanos());
}

/// Removes everything that follows from the assumption that all frames arrived.
fn forget_losses(came: &mut Totals, streams: &mut [StreamReport], flows: &mut [FlowReport]) {
    let streams = streams.iter_mut().map(|stream| &mut stream.totals);
    let flows = flows.iter_mut().map(|flow| &mut flow.totals);
    for totals in streams.chain(flows).chain([came]) {
        (totals.offered_frames, totals.lost_frames) = (None, None);
    }
}

/// Outages of a flow, with times since `start_ns`.
fn outages_of_flow(of: &FlowOutages, start_ns: u64) -> OutageReport {
    let since_start = |wall_ns: u64| wall_ns.checked_sub(start_ns);
    OutageReport {
        outages: of.outages,
        interrupted_flows: 1,
        outage_ns: of.longest.duration_ns(),
        outage_begin_ns: since_start(of.longest.begin_ns),
        outage_end_ns: since_start(of.longest.end_ns),
        ..OutageReport::default()
    }
}

/// Outages of all flows of a direction.
fn all_outages(all: &Outages, shown: impl Fn(&FlowOutages) -> OutageReport) -> OutageReport {
    OutageReport {
        outages: all.count(),
        interrupted_flows: all.flows.len() as u64,
        outages_not_kept: all.not_kept,
        unknown_flows: all.unknown_flows,
        ..all.longest().map(shown).unwrap_or_default()
    }
}

/// Outages of several directions together.
fn sum_of_outages<'a>(settled: impl Iterator<Item = &'a SettledDirection>) -> Option<OutageReport> {
    let known = settled.filter_map(|s| s.job.outages);
    known.reduce(|sum, other| sum.plus(&other))
}

fn stream_of(direction: &Direction, flow: u32) -> Option<String> {
    if direction.from.is_some() && flow == PKTGEN_FLOW {
        return Some("pktgen".to_owned());
    }
    direction
        .streams
        .iter()
        .find(|s| (s.first_flow..s.first_flow + s.flows).contains(&flow))
        .map(|s| s.name.clone())
}

/// Sums the received frames of each tagged stream over its flows.
fn received_of_streams(
    direction: &Direction,
    accounts: &[(u32, Account)],
    seen: &[FlowStats],
    streams: &mut [StreamReport],
) {
    for (report, spec) in streams.iter_mut().zip(&direction.streams) {
        if !spec.stream.is_tagged() {
            continue;
        }
        let place = |flow: u32| accounts.partition_point(|(own, _)| *own < flow);
        let own = &accounts[place(spec.first_flow)..place(spec.first_flow + spec.flows)];
        let sum = |of: fn(&Account) -> u64| Some(own.iter().map(|(_, a)| of(a)).sum());
        report.totals.received_frames = sum(|a| a.received);
        report.totals.duplicate_frames = sum(|a| a.duplicate);
        report.totals.lost_frames = sum(|a| a.lost);
        let place = |flow: u32| seen.partition_point(|own| own.flow < flow);
        let own = &seen[place(spec.first_flow)..place(spec.first_flow + spec.flows)];
        add_times(report, own.iter());
        report.totals.received_octets = Some(own.iter().map(|flow| flow.octets).sum());
    }
}

/// Adds latency and receive times of the flows of a stream.
#[allow(clippy::cast_precision_loss)]
fn add_times<'a>(report: &mut StreamReport, flows: impl Iterator<Item = &'a FlowStats> + Clone) {
    let latencies = || flows.clone().map(|flow| flow.latency);
    let samples = latencies().map(|l| l.samples).sum();
    let sum: u128 = latencies().map(|l| l.sum).sum();
    let signed = |ns: u64| i64::try_from(ns).ok();
    report.latency_ns = Summary {
        samples,
        min: latencies().filter_map(|l| l.min).min().and_then(signed),
        mean: (samples > 0).then(|| sum as f64 / samples as f64),
        max: latencies().filter_map(|l| l.max).max().and_then(signed),
        ..Summary::default()
    };
    report.first_rx_ns = flows.clone().filter_map(|flow| flow.first_rx_ns).min();
    report.last_rx_ns = flows.filter_map(|flow| flow.last_rx_ns).max();
}

/// Settles the receiving side of a direction against the offered frames. Returns the totals and the number of flows
/// that are not listed.
fn received(
    direction: &Direction,
    m: &Measurement,
    offered: &SentSide,
    dropped: u64,
    streams: &mut [StreamReport],
    flows: &mut Vec<FlowReport>,
) -> (Totals, usize) {
    let counters = m.counters;
    let other_run = counters.unplanned_frames + counters.stale_frames;
    let unplanned = other_run + counters.pktgen_frames;
    let (known, mut accounts) = m.account(&offered.flows);
    let untagged = Account::settle(offered.untagged(direction), counters.untagged_frames, 0);
    let stats = |flow: u32| {
        let place = m.flows.binary_search_by_key(&flow, |f| f.flow);
        place.ok().map(|at| &m.flows[at])
    };
    let gaps = |seen: &wb_measure::FlowStats| {
        let highest = seen.highest?;
        Some((highest + 1 - seen.head).saturating_sub(seen.unique()))
    };
    let sends = direction.from.is_none();
    if !sends {
        // The range of expected flows follows from the received frames.
        accounts.retain(|(flow, _)| stats(*flow).is_some_and(|seen| seen.received > 0));
    }
    if sends {
        received_of_streams(direction, &accounts, &m.flows, streams);
    }
    let omitted = accounts.len().saturating_sub(LISTED_FLOWS);
    if omitted > 0 {
        // If there are millions of flows, reports are made only of the listed ones.
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
            outages: None,
            flow: *flow,
            stream: stream_of(direction, *flow),
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
        // The sent frames are unknown, so loss is the gaps in the received sequence numbers.
        let totals = Totals {
            received_frames: Some(counters.received_frames),
            lost_frames: Some(counters.missing_frames),
            duplicate_frames: Some(counters.duplicate_frames),
            reordered_frames: Some(counters.reordered_frames),
            late_frames: Some(counters.late_frames),
            foreign_frames: Some(counters.foreign_frames),
            unplanned_frames: Some(unplanned),
            other_run_frames: Some(other_run),
            head_frames: Some(counters.head_frames),
            rx_dropped_frames: Some(dropped),
            received_octets: Some(counters.received_octets),
            ..Totals::default()
        };
        return (totals, omitted);
    }
    // Without tags a duplicate looks like an original, and there is no order.
    let has_tags = direction.flows > 0;
    let totals = Totals {
        received_frames: Some(known.received + untagged.received),
        lost_frames: Some(known.lost + untagged.lost),
        duplicate_frames: has_tags.then_some(known.duplicate),
        reordered_frames: has_tags.then_some(counters.reordered_frames),
        late_frames: Some(counters.late_frames),
        foreign_frames: Some(counters.foreign_frames + known.excess + untagged.excess),
        unplanned_frames: Some(unplanned),
        other_run_frames: Some(other_run),
        rx_dropped_frames: Some(dropped),
        received_octets: Some(counters.received_octets),
        ..Totals::default()
    };
    (totals, omitted)
}

fn workers(run: &Traffic) -> Vec<WorkerReport> {
    let mut list = Vec::new();
    for slot in &run.slots {
        let Some(outcome) = &slot.outcome else {
            continue;
        };
        let mut totals = Totals::default();
        let mut latency = Summary::default();
        let mut busy = 0.0;
        if let Some(sender) = &outcome.sender {
            for stream in &sender.streams {
                totals = totals.plus(&totals_of_stream(stream));
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
                foreign_frames: (c.foreign_frames > 0 || run.ports[slot.port].counts_foreign())
                    .then_some(c.foreign_frames),
                unplanned_frames: Some(c.unplanned_frames + c.stale_frames + c.pktgen_frames),
                other_run_frames: Some(c.unplanned_frames + c.stale_frames),
                rx_dropped_frames: Some(outcome.rx.dropped_frames),
                ..Totals::default()
            });
            let bias_ns = slot.receives.map_or(0, |way| run.directions[way].bias_ns());
            latency = receiver.measurement.latency.summary();
            latency = latency.lowered_by(bias_ns as i64);
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
            port: run.ports[slot.port].plan.name.clone(),
            queue: slot.queue,
            role: role.to_owned(),
            cpu: slot.cpu,
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

/// Lateness of all workers.
fn lateness_of(run: &Traffic) -> Lateness {
    let outcomes = run.slots.iter().filter_map(|s| s.outcome.as_ref());
    outcomes.fold(Lateness::default(), |sum, o| sum.plus(&o.lateness()))
}

fn port_reports(run: &Traffic, ended: &Ended) -> impl Iterator<Item = PortReport> {
    let (drops, downs) = (device_drops(run, ended), link_downs(run));
    run.ports.iter().enumerate().map(move |(i, port)| {
        let locator = port.plan.locator.to_string();
        let drops = drops.iter().find(|(of, _)| *of == locator);
        let downs = downs.iter().find(|(of, ..)| *of == locator);
        let own_down = ended
            .downs
            .get(&port.plan.name)
            .filter(|down| down.set_down && port.used.rx);
        PortReport {
            timestamp_source: stamp_source(run, i),
            set_down_at_ns: own_down.map(|down| down.at_ns),
            link_downs: downs.map_or(0, |(_, times, _)| *times),
            interface_drops: drops.map_or(0, |(_, frames)| *frames),
            ..ended.port(port)
        }
    })
}

/// Outcomes of a port's workers.
fn outcomes(run: &Traffic, port: usize) -> impl Iterator<Item = &WorkerOutcome> {
    let slots = run.slots.iter().filter(move |s| s.port == port);
    slots.filter_map(|s| s.outcome.as_ref())
}

/// Returns the actual source of the timestamps of frames received at a port. Without frames, returns the configured
/// source.
fn stamp_source(run: &Traffic, port: usize) -> String {
    let mut sources: Vec<String> = outcomes(run, port)
        .filter_map(|o| o.receiver.as_ref())
        .flat_map(|r| r.stamp_sources.iter().map(|(source, _)| source.to_string()))
        .collect();
    sources.sort();
    sources.dedup();
    if sources.is_empty() {
        return run.ports[port].facts.stamp_source.to_string();
    }
    sources.join("+")
}

/// Frames that the interfaces of receiving ports dropped during the run, except those that the port's own counters
/// hold.
fn device_drops(run: &Traffic, ended: &Ended) -> Vec<(String, u64)> {
    let mut drops = Vec::new();
    for (i, port) in run.ports.iter().enumerate().filter(|(_, p)| p.used.rx) {
        let [dropped, missed, no_room] =
            ["rx_dropped", "rx_missed_errors", "rx_fifo_errors"].map(|key| ended.grew(port, key));
        let beyond = match port.facts.driver == Driver::Packet.name() {
            true => dropped.saturating_sub(dropped_behind_tap(run, i)) + missed + no_room,
            // A full XDP ring shows in both.
            false => {
                let ours = outcomes(run, i).map(|o| o.rx.dropped_frames).sum();
                (dropped + missed + no_room).saturating_sub(ours)
            }
        };
        if beyond > 0 {
            drops.push((port.plan.locator.to_string(), beyond));
        }
    }
    drops
}

/// Number of frames that the kernel may have counted in `rx_dropped` after a port of the packet driver received them:
/// frames for which the kernel may have no protocol.
fn dropped_behind_tap(run: &Traffic, port: usize) -> u64 {
    let slots = run.slots.iter().filter(|s| s.port == port);
    slots
        .filter_map(|slot| {
            let direction = &run.directions[slot.receives?];
            let outcome = slot.outcome.as_ref()?;
            let counters = outcome.receiver.as_ref()?.measurement.counters;
            let of_run = counters.received_frames + outcome.rx.dropped_frames;
            // The protocol of another sender's frames is unknown.
            let streams = &direction.streams;
            let known = !streams.is_empty() && streams.iter().all(|s| has_protocol(&s.stream));
            Some(counters.foreign_frames + if known { 0 } else { of_run })
        })
        .sum()
}

/// True if every Linux kernel has a protocol for the frames of a stream.
fn has_protocol(stream: &Stream) -> bool {
    stream.vlan.len() < 2
        && stream.mpls.is_empty()
        && stream.proto != Proto::Raw
        && stream.replay.is_none()
}

/// Returns why a run says nothing if a port's device never counted frames that it took.
fn vanished(run: &Traffic, ended: &Ended) -> Option<String> {
    let mut ports = run.ports.iter().enumerate();
    ports.find_map(|(i, port)| {
        let taken = outcomes(run, i).map(|o| o.tx.sent_frames).sum();
        let down = outcomes(run, i).any(|o| o.link_downs > 0);
        live::vanished(port, ended, taken, down)
    })
}

/// Number and duration in ns of link failures at sending ports: the maximum over each port's workers.
fn link_downs(run: &Traffic) -> Vec<(String, u64, u64)> {
    let mut downs = Vec::new();
    for (i, port) in run.ports.iter().enumerate() {
        let times = outcomes(run, i).map(|o| o.link_downs).max().unwrap_or(0);
        let ns = outcomes(run, i).map(|o| o.link_down_ns).max().unwrap_or(0);
        if times > 0 {
            downs.push((port.plan.locator.to_string(), times, ns));
        }
    }
    downs
}

/// Link failures of receiving ports.
fn receiving_downs<'a>(
    run: &'a Traffic,
    ended: &'a Ended,
) -> impl Iterator<Item = (&'a OpenPort, &'a LinkDown)> {
    let ports = run.ports.iter().filter(|port| port.used.rx);
    ports.filter_map(|port| Some((port, ended.downs.get(&port.plan.name)?)))
}

/// Link failures of sending ports during which the workers sent nothing, with the time in words.
fn unnoticed_downs<'a>(
    run: &'a Traffic,
    ended: &'a Ended,
) -> impl Iterator<Item = (String, String)> + 'a {
    let noticed = link_downs(run);
    let ports = run.ports.iter().filter(|port| !port.used.rx);
    ports.filter_map(move |port| {
        let (locator, down) = (
            port.plan.locator.to_string(),
            ended.downs.get(&port.plan.name)?,
        );
        (!noticed.iter().any(|(port, ..)| *port == locator)).then(|| (locator, when(down)))
    })
}

/// Describes the time of a link failure. The link may have gone down some time before it was seen.
#[allow(clippy::cast_precision_loss)]
fn when(down: &LinkDown) -> String {
    let seconds = down.at_ns as f64 / 1e9;
    format!("seen {seconds:.1} s after the start")
}

/// Names of the receiving ports with a link that went down, and when it did.
fn named_downs(run: &Traffic, ended: &Ended) -> Vec<(String, LinkDown)> {
    let downs = receiving_downs(run, ended);
    let named = downs.map(|(port, down)| (port.plan.locator.to_string(), down.clone()));
    named.collect()
}

/// Returns why missing frames are no loss of the device: a receiving port was set down on this host.
fn deaf(downs: &[(String, LinkDown)], lost: Option<u64>) -> Option<String> {
    let lost = lost.filter(|n| *n > 0)?;
    let (port, down) = downs.iter().find(|(_, down)| down.set_down)?;
    Some(format!(
        "{port} was set down on this host ({}), so the loss of {} does not describe the device",
        when(down),
        counted_frames(lost)
    ))
}

/// Returns why the frames of a direction that arrived count as foreign, if no other frame arrived and the number that
/// arrived is close to the number sent.
fn unrecognised(totals: &Totals) -> Option<String> {
    let (offered, received) = (totals.offered_frames?, totals.received_frames?);
    // Frames of another run have a tag that was recognised.
    let unplanned = totals.unplanned_frames.unwrap_or(0);
    let foreign = totals.foreign_frames?.saturating_sub(unplanned);
    let about = offered - offered / 10..=offered + offered / 10;
    (received == 0 && foreign > 0 && about.contains(&foreign)).then(|| {
        format!(
            "{} arrived, not recognised as sent by this run, which sent {offered}",
            counted_frames(foreign)
        )
    })
}

/// Returns why frames are missing, if any are.
fn missing_because(
    run: &Traffic,
    ended: &Ended,
    totals: &Totals,
    lateness: &LatenessReport,
    unrecognised: Option<&str>,
) -> Option<Limit> {
    let lost = totals.lost_frames.filter(|n| *n > 0)?;
    if let Some(why) = unrecognised {
        return Some(Limiter::Tester.because(why));
    }
    let ours = totals.rx_dropped_frames.unwrap_or(0);
    if ours > 0 {
        return Some(Limiter::Tester.because(format!(
            "its receiver dropped {}, {lost} lost in total",
            counted_frames(ours)
        )));
    }
    let drops = device_drops(run, ended);
    if !drops.is_empty() {
        let list: Vec<String> = drops
            .iter()
            .map(|(port, n)| format!("{n} at {port}"))
            .collect();
        return Some(Limiter::Tester.because(format!(
            "its receiving interface dropped frames ({}), {lost} lost in total",
            list.join(", ")
        )));
    }
    if let Some((port, down)) = receiving_downs(run, ended).next() {
        let (port, when) = (&port.plan.locator, when(down));
        let why = format!("down at {port} ({when}), {} lost", counted_frames(lost));
        return Some(Limiter::Link.because(why));
    }
    let late = lateness.all.late_departures;
    Some(if late >= lost {
        Limiter::Tester.because(stalls_explain(lost))
    } else if late > 0 && totals.received_frames != Some(0) {
        Limiter::Path.because(format!(
            "{} lost, up to {late} of them because of tester stalls",
            counted_frames(lost)
        ))
    } else {
        Limiter::Path.because(format!("{} lost", counted_frames(lost)))
    })
}

/// Returns why frames stayed unsent, if any did.
fn unsent_because(run: &Traffic, totals: &Totals) -> Option<Limit> {
    let unsent = totals.unsent_frames.filter(|n| *n > 0)?;
    let late = &lateness_of(run);
    if late.missed_departures > unsent / 2 {
        return Some(Limiter::Tester.because(format!(
            "stalled for {} in total, {} unsent",
            time_ns(late.stalled_ns as f64),
            counted_frames(unsent)
        )));
    }
    if let Some((port, _, _)) = link_downs(run).first() {
        let rest = unsent.saturating_sub(late.missed_departures);
        let why = format!("down at {port}, {} unsent", counted_frames(rest));
        return Some(Limiter::Link.because(why));
    }
    let interface = not_taken_because(run, totals, unsent);
    Some(interface.unwrap_or_else(|| {
        Limiter::Tester.because(format!(
            "the sender could not keep up, {} unsent",
            counted_frames(unsent)
        ))
    }))
}

/// Returns the sending interface as the limit if it refused most of the unsent frames, or took nothing in most calls.
fn not_taken_because(run: &Traffic, totals: &Totals, unsent: u64) -> Option<Limit> {
    let refused = totals.refused_frames.unwrap_or(0);
    let and = match unsent {
        0 => String::new(),
        _ => format!(", {unsent} unsent"),
    };
    if refused > unsent / 2 {
        let why = format!("{} refused{and}", counted_frames(refused));
        return Some(Limiter::SendingInterface.because(why));
    }
    let mut ports = run.ports.iter().enumerate();
    ports.find_map(|(i, port)| {
        let kicks: u64 = outcomes(run, i).map(|o| o.tx.kicks).sum();
        let full: u64 = outcomes(run, i).map(|o| o.tx.full_events).sum();
        let port = &port.plan.locator;
        let why = format!("TX queue full in {full} of {kicks} send calls at {port}{and}");
        (full > kicks / 2).then(|| Limiter::SendingInterface.because(why))
    })
}

/// Returns the link as the limit if it was down for a share of the `sending_ns` in which frames were sent as fast as
/// the port took them. No rate was intended then, so no counter shows these frames as unsent.
fn down_at_full_speed(downs: &[(String, u64, u64)], sending_ns: u64) -> Option<(Limit, f64)> {
    let (port, _, down_ns) = downs.iter().max_by_key(|(_, _, ns)| *ns)?;
    let (down_ms, sending_ms) = (down_ns / 1_000_000, sending_ns / 1_000_000);
    // If the link never came up, there is no sending time.
    let (lost, why) = match sending_ns {
        0 => (1.0, format!("down at {port} for {down_ms} ms")),
        _ => (
            share(*down_ns, sending_ns).min(1.0),
            format!(
                "down at {port} for {down_ms} of {sending_ms} ms; the sender ran at full speed the rest of the time"
            ),
        ),
    };
    (lost > MISSED).then(|| (Limiter::Link.because(why), lost))
}

/// Returns the tester as the limit: the sender ran at full speed, except while a link was down.
fn at_full_speed(downs: &[(String, u64, u64)], lossless: &str) -> Limit {
    let but = match downs.iter().max_by_key(|(_, _, ns)| *ns) {
        Some((port, _, ns)) => {
            let ms = ns / 1_000_000;
            format!(" except for {ms} ms while the link was down at {port}")
        }
        None => String::new(),
    };
    Limiter::Tester.because(format!("the sender ran at full speed{but}{lossless}"))
}

fn limited_by(
    run: &Traffic,
    ended: &Ended,
    totals: &Totals,
    lateness: &LatenessReport,
    full_speed_ns: Option<u64>,
    unrecognised: Option<&str>,
) -> LimitedBy {
    if let End::Fault(text) = &ended.end {
        return Limiter::Fault.because(text).into();
    }
    // After a signal, no more was asked for.
    let completed = ended.end == End::Completed;
    let unsent = unsent_because(run, totals).filter(|_| completed);
    let downs = link_downs(run);
    let down = full_speed_ns
        .filter(|_| completed && unsent.is_none())
        .and_then(|ns| down_at_full_speed(&downs, ns))
        .map(|(down, _)| down);
    let missing = missing_because(run, ended, totals, lateness, unrecognised);
    let causes: Vec<Limit> = [down, unsent, missing].into_iter().flatten().collect();
    if !causes.is_empty() {
        return LimitedBy::all(causes);
    }
    if totals.offered_frames.is_none() {
        return Limiter::Sender.because("this run only receives").into();
    }
    let lossless = if totals.lost_frames.is_some() {
        " and nothing was lost"
    } else {
        ""
    };
    if let End::Signal(n) = ended.end {
        let by = Limiter::Ended(signal_name(n));
        let until_then = match lossless {
            "" => "",
            _ => "; nothing was lost until then",
        };
        return by
            .because(format!("ended the run early{until_then}"))
            .into();
    }
    if full_speed_ns.is_some() {
        let not_taken = match totals.offered_frames {
            Some(0) => not_taken_because(run, totals, 0),
            _ => None,
        };
        let full_speed = || at_full_speed(&downs, lossless);
        return not_taken.unwrap_or_else(full_speed).into();
    }
    let why = match lossless.is_empty() {
        true => "all requested frames were sent",
        false => "all requested frames were sent, none lost",
    };
    Limiter::Plan.because(why).into()
}

/// Warning about untagged frames that arrived in excess of those sent.
fn untagged_excess((settled, direction): (&SettledDirection, &Direction)) -> Option<String> {
    let received = settled.measurement.as_ref()?.counters.untagged_frames;
    let streams = settled.job.streams.iter().zip(&direction.streams);
    let untagged = streams.filter(|(_, spec)| !spec.stream.is_tagged());
    let sent: u64 = untagged
        .filter_map(|(report, _)| report.totals.offered_frames)
        .sum();
    let excess = received.saturating_sub(sent);
    (direction.tx.is_some() && sent > 0 && excess > 0).then(|| {
        format!(
            "{} more arrived than were sent: duplicates or foreign; without tags they look the same, and all count as \
             foreign",
            counted_frames(excess)
        )
    })
}

/// Fills the report so far.
pub(super) fn fill(run: &Traffic, part: &mut Part<'_>) {
    let seen: Vec<(&WorkerSlot, CounterValues)> = run
        .slots
        .iter()
        .map(|slot| (slot, slot.shared.read()))
        .collect();
    let mut outages = None;
    let jobs = run.directions.iter().enumerate().map(|(index, direction)| {
        let (totals, ended_outages) = seen_so_far(run, &seen, index);
        if direction.rx.is_some() {
            *outages.get_or_insert(0) += ended_outages;
        }
        JobReport {
            name: direction.planned.name.clone(),
            tx: direction.planned.tx.clone(),
            rx: direction.planned.rx.clone(),
            totals,
            streams: streams_so_far(run, index),
            ..JobReport::default()
        }
    });
    let jobs: Vec<JobReport> = jobs.collect();
    let sum = |sum: Totals, job: &JobReport| sum.plus(&job.totals);
    let totals = jobs.iter().fold(Totals::default(), sum);
    part.frames(&totals, &Rates::default());
    part.report.jobs.extend(jobs);
    part.report.outages = outages.map(|outages| OutageReport {
        outages,
        ..OutageReport::default()
    });
}

/// Streams so far of a direction, as of the last figures that the workers published. Frames that are missing before the
/// last arrival of their flow count as lost, until they arrive late.
fn streams_so_far(run: &Traffic, index: usize) -> Vec<StreamReport> {
    let direction = &run.directions[index];
    let mut streams: Vec<StreamReport> = direction
        .streams
        .iter()
        .map(|spec| StreamReport {
            name: spec.name.clone(),
            first_flow: run.flows.shown(spec.first_flow),
            flows: spec.flows,
            ..StreamReport::default()
        })
        .collect();
    for slot in run.slots.iter().filter(|s| s.sends == Some(index)) {
        let sent = slot.shared.streams.read();
        for (report, (frames, octets)) in streams.iter_mut().zip(sent.iter()) {
            report.totals = report.totals.plus(&Totals {
                offered_frames: Some(*frames),
                offered_octets: Some(*octets),
                ..Totals::default()
            });
        }
    }
    let mut seen: Vec<FlowStats> = Vec::new();
    for slot in run.slots.iter().filter(|s| s.receives == Some(index)) {
        seen.extend(slot.shared.flows.read().iter().cloned());
    }
    seen.sort_unstable_by_key(|flow| flow.flow);
    for (report, spec) in streams.iter_mut().zip(&direction.streams) {
        let place = |flow: u32| seen.partition_point(|own| own.flow < flow);
        let own = &seen[place(spec.first_flow)..place(spec.first_flow + spec.flows)];
        // Only the first flows are published during a run.
        if own.len() < spec.flows as usize || !spec.stream.is_tagged() {
            continue;
        }
        let sum = |of: fn(&FlowStats) -> u64| Some(own.iter().map(of).sum());
        report.totals.received_frames = sum(|flow| flow.received);
        report.totals.received_octets = sum(|flow| flow.octets);
        report.totals.duplicate_frames = sum(|flow| flow.duplicates);
        // A frame that arrived was sent, with all before it, even if its sender has not counted them yet.
        let (mut sent, mut missing) = (0, 0);
        for parts in own.chunk_by(|a, b| a.flow == b.flow) {
            let highest = parts.iter().filter_map(|part| part.highest).max();
            let before = highest.map_or(0, |highest| highest + 1);
            let distinct = parts
                .iter()
                .map(|part| part.received.saturating_sub(part.duplicates));
            sent += before;
            missing += before.saturating_sub(distinct.sum());
        }
        report.totals.lost_frames = Some(missing);
        if direction.tx.is_some() {
            report.totals.offered_frames = report.totals.offered_frames.max(Some(sent));
            let octets = report.totals.offered_octets;
            report.totals.offered_octets = octets.max(report.totals.received_octets);
        }
        add_times(report, own.iter());
    }
    streams
}

/// Counts so far of a direction: frames, and outages that have ended. Frames may be in flight, so none is lost yet.
fn seen_so_far(
    run: &Traffic,
    seen: &[(&WorkerSlot, CounterValues)],
    index: usize,
) -> (Totals, u64) {
    let direction = &run.directions[index];
    let (mut sent, mut received) = (CounterValues::default(), CounterValues::default());
    for (slot, seen) in seen {
        if slot.sends == Some(index) {
            sent += *seen;
        }
        if slot.receives == Some(index) {
            received += *seen;
        }
    }
    let of = |end: Option<usize>, n: u64| end.map(|_| n);
    let (tx, rx) = (direction.tx, direction.rx);
    if direction.streams.iter().all(|spec| spec.stream.is_tagged()) {
        // A frame that arrived was sent, even if its sender, which counts in batches, has not counted it yet.
        let arrived = (received.received_frames).saturating_sub(received.duplicate_frames);
        if arrived > sent.offered_frames {
            sent.offered_frames = arrived;
            sent.offered_octets = sent.offered_octets.max(received.received_octets);
        }
    }
    let counts_foreign = rx.is_some_and(|rx| run.ports[rx].counts_foreign());
    let foreign = Some(received.foreign_frames).filter(|n| counts_foreign || *n > 0);
    let totals = Totals {
        offered_frames: of(tx, sent.offered_frames),
        offered_octets: of(tx, sent.offered_octets),
        unsent_frames: of(tx, sent.unsent_frames),
        ramp_frames: of(tx, sent.ramp_frames),
        refused_frames: of(tx, sent.refused_frames),
        received_frames: of(rx, received.received_frames),
        received_octets: of(rx, received.received_octets),
        duplicate_frames: of(rx, received.duplicate_frames),
        reordered_frames: of(rx, received.reordered_frames),
        late_frames: of(rx, received.late_frames),
        foreign_frames: foreign.filter(|_| rx.is_some()),
        ..Totals::default()
    };
    (totals, received.outages)
}

/// Fills the report, and settles the account of all traffic jobs.
pub(super) fn settle(run: &mut Traffic, part: &mut Part<'_>, ended: &Ended) -> Outcome {
    let mut settled: Vec<SettledDirection> = (0..run.directions.len())
        .map(|i| settle_way(run, ended, i))
        .collect();
    let run = &*run;
    let totals = settled
        .iter()
        .fold(Totals::default(), |t, s| t.plus(&s.job.totals));
    let judged = criteria::judge(&run.plan, |job| figures(run, &settled, job));
    let directions = || settled.iter().zip(&run.directions);
    let unplanned = directions().flat_map(|(settled, way)| unplanned(run, settled, way));
    let mut warnings: Vec<String> = unplanned.collect();
    warnings.extend(directions().filter_map(untagged_excess));
    let mut of_jobs = Vec::new();
    for direction in settled.iter().filter(|_| settled.len() > 1) {
        let of = |m| distributions_of(&direction.job.name, m);
        of_jobs.extend(direction.measurement.iter().flat_map(of));
    }
    let all = taken(&mut settled);
    measurement_warnings(&all, &mut warnings);
    let steered = run.steered.as_ref();
    let steered = steered.map(|s| s.warnings(run.live.start_ns, &run.directions));
    warnings.extend(steered.into_iter().flatten());
    path_warnings(run, ended, &all, &totals, &mut warnings);
    let mut times = times_of(&all);
    match settled.as_slice() {
        // The latencies of two clocks may be negative, but histograms have no negative values.
        [only] => (times.latency, times.pdv) = (only.job.latency_ns, only.job.pdv_ns),
        // Each direction has its own smallest delay.
        _ => times.pdv = Summary::default(),
    }
    let mut distributions = distributions_of("", &all);
    distributions.append(&mut of_jobs);
    // After a signal, no more was asked for.
    let completed = ended.end == End::Completed;
    let offered = settled.iter().map(|s| Offered {
        job: &s.job.name,
        intended: s.job.totals.intended_frames.unwrap_or(0),
        offered: s.job.totals.offered_frames.unwrap_or(0),
    });
    let short = Shortfall::of(&run.plan, offered).filter(|_| completed);
    let trial = lateness::Trial {
        judged: &judged,
        totals: &totals,
        intended: totals.intended_frames,
        offered: totals.offered_frames.unwrap_or(0),
        short: short.as_ref(),
        rates_over_ns: totals.intended_frames.is_none().then_some(ended.elapsed_ns),
    };
    let lateness = lateness::consider(&trial, lateness_of(run));
    warnings.extend(trial.warning(&lateness.all));
    let (mut flows, omitted) = listed_flows(&settled);
    let departures = departures(run);
    let rates = rates_of(&settled);
    // Ends of several directions on other hosts leave sums that need not add up.
    let add_up = settled.iter().all(|s| s.job.totals.adds_up());
    let defect = (!add_up)
        .then(|| "the totals do not add up; this is a bug in wirebench".to_owned())
        .or_else(|| vanished(run, ended));
    let at_max = settled.iter().any(|s| s.at_max);
    let full_speed_ns = at_max.then(|| rates.tx_time_ns.unwrap_or(0));
    let not_offered = short
        .and_then(|short| Some(short.because(&unsent_because(run, &totals)?.to_string())))
        .or_else(|| {
            let (cause, _) = down_at_full_speed(&link_downs(run), full_speed_ns?)?;
            criteria::held_of_less(&run.plan, &judged, &cause.to_string())
        });
    let unknown = settled.iter().find_map(|s| unrecognised(&s.job.totals));
    distributions.extend(
        departures
            .as_ref()
            .and_then(|h| distribution("", "inter_departure_ns", h)),
    );
    let outcome = Outcome {
        distributions,
        limited_by: limited_by(
            run,
            ended,
            &totals,
            &lateness,
            full_speed_ns,
            unknown.as_deref(),
        ),
        not_offered,
        criteria: criteria::reports(judged),
        lateness,
        defect,
        nothing: nothing_sent(&totals).or_else(|| silent(&settled)),
        excuse: unknown.or_else(|| deaf(&named_downs(run, ended), totals.lost_frames)),
        warnings,
        stamping: stamping(run, ended),
        ..Outcome::default()
    };
    part.frames(&totals, &rates);
    part.times(Times {
        inter_departure: departures.map(|h| h.summary()),
        ..times
    });
    port_reports(run, ended).for_each(|port| part.port(port));
    let report = &mut *part.report;
    report.outages = sum_of_outages(settled.iter());
    report.jobs.extend(settled.into_iter().map(|s| s.job));
    report.first_flow = run.flows.first;
    report.flows.append(&mut flows);
    report.flows_omitted += omitted as u64;
    report.workers.extend(workers(run));
    outcome
}

/// Warns of what happened to frames outside the jobs: several devices with pktgen's tag, which look like
/// duplicates; frames that interfaces dropped; links that went down.
fn path_warnings(
    run: &Traffic,
    ended: &Ended,
    all: &Measurement,
    totals: &Totals,
    warnings: &mut Vec<String>,
) {
    if all
        .flows
        .iter()
        .any(|f| f.flow == PKTGEN_FLOW && f.duplicates > 0)
    {
        warnings.push(
            "pktgen frames carry a sequence number but no flow: several pktgen devices, clone_skb and burst look like duplicates"
                .to_owned(),
        );
    }
    // If everything sent came back, the dropped frames did not belong to the test.
    if totals.offered_frames.is_none() || totals.lost_frames.is_some_and(|n| n > 0) {
        for (port, n) in device_drops(run, ended) {
            warnings.push(format!(
                "{port}: the interface dropped {}",
                counted_frames(n)
            ));
        }
    }
    for (port, times, ns) in link_downs(run) {
        let times = if times == 1 {
            "once".to_owned()
        } else {
            format!("{times} times")
        };
        warnings.push(format!(
            "{port}: the link went down {times} during the run, for {} ms in total",
            ns / 1_000_000
        ));
    }
    for (port, when) in unnoticed_downs(run, ended) {
        warnings.push(format!("{port}: the link went down, {when}"));
    }
    for (port, down) in receiving_downs(run, ended) {
        let (port, when) = (&port.plan.locator, when(down));
        warnings.push(format!(
            "{port}: the link of this receiving port went down, {when}"
        ));
    }
}

/// Takes the measurements of all directions, merged. The flows may be millions and are not copied.
fn taken(settled: &mut [SettledDirection]) -> Measurement {
    let each = settled.iter_mut().filter_map(|s| s.measurement.take());
    let mut measured: Vec<Measurement> = each.collect();
    let mut all = measured.pop().unwrap_or_default();
    measured.iter().for_each(|m| all.merge(m));
    all
}

/// The rates of all directions together, and the largest burst of any of them.
fn rates_of(settled: &[SettledDirection]) -> Rates {
    let each = settled.iter().map(|s| s.job.rates);
    let bursts = each
        .clone()
        .filter_map(|rates| rates.largest_catch_up_frames);
    Rates {
        largest_catch_up_frames: bursts.max(),
        ..Rates::sum(each)
    }
}

/// The first direction in which nothing arrived, in words.
fn silent(settled: &[SettledDirection]) -> Option<String> {
    settled.iter().find_map(|s| {
        let nothing = nothing_arrived(&s.job.totals)?;
        Some(match settled.len() {
            1 => nothing,
            _ => format!("{}: {nothing}", s.job.name),
        })
    })
}

/// The flows to list, those with the most problems first if there are too many, and the number of the others.
fn listed_flows(settled: &[SettledDirection]) -> (Vec<FlowReport>, usize) {
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
    (flows, omitted)
}

/// Times between departures of all workers, if they were asked for.
fn departures(run: &Traffic) -> Option<wb_measure::Histogram> {
    run.slots
        .iter()
        .filter_map(|s| s.outcome.as_ref()?.sender.as_ref()?.departures.as_ref())
        .fold(None::<wb_measure::Histogram>, |sum, h| {
            let mut sum = sum.unwrap_or_default();
            sum.merge(h);
            Some(sum)
        })
}

/// Warnings about foreign frames that have a tag of a tester.
fn unplanned(run: &Traffic, settled: &SettledDirection, direction: &Direction) -> Vec<String> {
    let counters = settled.measurement.as_ref().map(|m| m.counters);
    let counters = counters.unwrap_or_default();
    let sends = direction.from.is_none();
    let said = |n: u64, what: String| {
        (n > 0).then(|| {
            format!(
                "{} had a tag of {what}: counted as foreign",
                counted_frames(n)
            )
        })
    };
    let of_flows = match (sends, run.plan.traffic[direction.planned.job].flows) {
        (true, _) => {
            "another run (a second tester, or delayed frames of an earlier run)".to_owned()
        }
        (false, Some(flows)) => {
            let planned = counted(flows, "planned one", "planned ones");
            format!("flows beyond the {planned} (set `--flows N`)")
        }
        (false, None) => {
            "a run other than the tracked one (select it with `--first-flow N`)".to_owned()
        }
    };
    let of_pktgen = match sends {
        true => "pktgen, which this run does not send",
        false => "pktgen, which live does not count (use xdp: or packet: without `--flows`)",
    };
    let other_run = settled.job.totals.other_run_frames.unwrap_or(0);
    let of_flows = said(other_run, of_flows);
    let of_pktgen = said(counters.pktgen_frames, of_pktgen.to_owned());
    of_flows.into_iter().chain(of_pktgen).collect()
}

/// Measurements of one job in both directions, or of all jobs.
fn figures(run: &Traffic, settled: &[SettledDirection], job: Option<&str>) -> Frames {
    let names = run.plan.job_names(JobKind::Traffic);
    let mine = settled.iter().zip(&run.directions);
    let mine = mine.filter(|(_, d)| job.is_none_or(|name| names[d.planned.job] == name));
    let mine = mine.map(|(settled, _)| settled);
    let mut latency = wb_measure::Histogram::default();
    for measurement in mine.clone().filter_map(|s| s.measurement.as_ref()) {
        latency.merge(&measurement.latency);
    }
    Frames {
        totals: mine
            .clone()
            .fold(Totals::default(), |sum, s| sum.plus(&s.job.totals)),
        rates: Rates::sum(mine.clone().map(|s| s.job.rates)),
        latency_ns: latency.summary(),
        outages: sum_of_outages(mine.clone()),
        transactions_per_second: None,
    }
}

/// Largest error of the clocks of senders on other hosts, in ns; `None` if one is unknown or there are none.
fn clock_error_ns<'a>(mut senders: impl Iterator<Item = &'a RemoteSender>) -> Option<u64> {
    let error = |sender: &RemoteSender| Some(sender.pair_clock()?.error_ns);
    let first = error(senders.next()?)?;
    senders.try_fold(first, |largest, sender| Some(largest.max(error(sender)?)))
}

fn stamping(run: &Traffic, ended: &Ended) -> Stamping {
    let ports = run.ports.iter().enumerate().filter(|(_, p)| p.used.rx);
    let rx: Vec<String> = ports
        .map(|(i, p)| format!("{}: {}", p.plan.name, stamp_source(run, i)))
        .collect();
    let remote = || run.directions.iter().filter_map(Direction::remote_sender);
    let sends = run.ports.iter().any(|p| p.used.tx) && remote().next().is_none();
    // Timestamps are written by a kernel program or by this program.
    let written = |live: bool| {
        let how = match live {
            true => "kernel, as the frame is written",
            false => "user, just before the frame is handed over",
        };
        let mut senders = run.ports.iter().filter(|p| p.used.tx);
        senders.any(|p| p.is_live() == live).then_some(how)
    };
    let tx: Vec<&str> = [false, true].into_iter().filter_map(written).collect();
    let converted = rx.iter().any(|source| source.contains("xdp"));
    let conversion = if converted { ended.clock_error_ns } else { 0 };
    Stamping {
        same_clock: sends,
        wall: true,
        error_ns: match sends {
            true => Some(conversion),
            false => clock_error_ns(remote()).map(|error| error.saturating_add(conversion)),
        },
        tx: tx.join("; "),
        rx: rx.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_arrive_as_foreign_are_the_testers_fault() {
        let of = |received, foreign, unplanned| {
            unrecognised(&Totals {
                offered_frames: Some(1000),
                received_frames: Some(received),
                foreign_frames: Some(foreign),
                unplanned_frames: Some(unplanned),
                ..Totals::default()
            })
        };
        assert_eq!(
            of(0, 998, 0).as_deref(),
            Some("998 frames arrived, not recognised as sent by this run, which sent 1000")
        );
        for (received, foreign, unplanned) in [(0, 0, 0), (0, 40, 0), (1, 999, 0), (0, 1000, 1000)]
        {
            assert_eq!(of(received, foreign, unplanned), None);
        }
    }

    #[test]
    fn what_did_not_arrive_at_a_port_that_was_set_down_is_no_loss() {
        let down = |set_down| {
            let at_ns = 1_500_000_000;
            [("a/b".to_owned(), LinkDown { at_ns, set_down })]
        };
        let why = deaf(&down(true), Some(7)).expect("it was set down here");
        assert_eq!(
            why,
            "a/b was set down on this host (seen 1.5 s after the start), so the loss of 7 frames does not describe the device"
        );
        assert_eq!(deaf(&down(true), Some(0)), None);
        // The other end went down, which may be part of the test.
        assert_eq!(deaf(&down(false), Some(7)), None);
        assert_eq!(deaf(&[], Some(7)), None);
    }

    #[test]
    fn full_speed_is_only_said_of_the_time_in_which_the_link_was_up() {
        const S: u64 = 1_000_000_000;
        let downs = |downs: &[(&str, u64)]| -> Vec<(String, u64, u64)> {
            let downs = downs.iter();
            downs
                .map(|(port, ns)| ((*port).to_owned(), 1, *ns))
                .collect()
        };
        let link = |of: &[(&str, u64)], ns| {
            let limit = down_at_full_speed(&downs(of), ns);
            limit.map(|(limit, _)| limit.to_string())
        };
        let long = "the link: down at b for 9000 of 10000 ms; the sender ran at full speed the rest of the time";
        assert_eq!(
            link(&[("a", S / 20), ("b", 9 * S)], 10 * S).as_deref(),
            Some(long)
        );
        // It never came up, and no time of sending is known.
        let never = "the link: down at a for 1000 ms";
        assert_eq!(link(&[("a", S)], 0).as_deref(), Some(never));
        assert_eq!(link(&[("a", S / 10)], 10 * S), None);
        assert_eq!(link(&[], 10 * S), None);
        let said =
            |of: &[(&str, u64)]| at_full_speed(&downs(of), " and nothing was lost").to_string();
        assert_eq!(
            said(&[]),
            "the tester: the sender ran at full speed and nothing was lost"
        );
        assert_eq!(
            said(&[("a", S / 10)]),
            "the tester: the sender ran at full speed except for 100 ms while the link was down at a and nothing was lost"
        );
    }
}
