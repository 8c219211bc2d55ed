//! Metrics: figures of flows, from their run, and of ports, from their interfaces.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, LazyLock},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use wb_machine::LinkCounters;
use wb_model::{
    Report, Verdict,
    fleet::HostState,
    report::{JobReport, StreamReport, Totals},
};
use wb_otg::{
    Answer, Config, Flow, FlowFigures, LatencyFigures, MetricsRequest, PortFigures, Transmit,
};
use wb_runs::JobsSoFar;
use wb_session::StreamSteer;

use super::{
    ActiveFlows, FCS, FlowPhase, Inner, OtgError, OtgResult, PATIENCE, elsewhere, ports, wait_until,
};

/// Time after which a frame that was sent should have arrived, in ns.
const FLIGHT_NS: u64 = 500_000_000;
/// Shortest time between two readings of a port for a rate.
const RATE: Duration = Duration::from_millis(250);
/// Longest time between two such readings.
const LONGEST_RATE: Duration = Duration::from_millis(1250);

/// Counters of a port at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortReading {
    at: Instant,
    counters: LinkCounters,
    /// Rates until then: frames sent and received, octets sent and received, per second.
    rates: [f64; 4],
}

/// Place of a stream: numbers of the job and of the stream in it.
type Place = (usize, usize);

/// Places of the streams of each flow. They are the same at all moments of a run.
#[derive(Debug, Default)]
pub(super) struct Streams(HashMap<String, Vec<Place>>);

impl Streams {
    fn of(jobs: &[JobReport]) -> Self {
        let mut places: HashMap<String, Vec<Place>> = HashMap::new();
        for (number, job) in jobs.iter().enumerate() {
            for (n, stream) in job.streams.iter().enumerate() {
                let own = places.entry(stream.name.clone()).or_default();
                own.push((number, n));
            }
        }
        Self(places)
    }

    fn places(&self, flow: &Flow) -> &[Place] {
        self.0.get(&flow.name).map_or(&[], Vec::as_slice)
    }
}

/// Streams at these places, each with its job.
fn streams_at<'j>(
    places: &[Place],
    jobs: &'j [JobReport],
) -> impl Iterator<Item = (&'j JobReport, &'j StreamReport)> {
    places.iter().filter_map(|(number, n)| {
        let job = jobs.get(*number)?;
        Some((job, job.streams.get(*n)?))
    })
}

/// Counts of the received frames of a stream. Frames without a tag are those of the only stream.
fn received<'j>(job: &'j JobReport, stream: &'j StreamReport) -> &'j Totals {
    match (stream.totals.received_frames, job.streams.len()) {
        (None, 1) => &job.totals,
        _ => &stream.totals,
    }
}

/// Frames sent and received by the streams of a flow.
fn frames(places: &[Place], jobs: &[JobReport]) -> [u64; 2] {
    let streams = streams_at(places, jobs);
    streams.fold([0, 0], |[sent, arrived], (job, stream)| {
        let own = received(job, stream).received_frames.unwrap_or(0);
        [
            sent + stream.totals.offered_frames.unwrap_or(0),
            arrived + own,
        ]
    })
}

/// Sums of the streams of a flow.
fn sums(places: &[Place], jobs: &[JobReport]) -> FlowFigures {
    let mut figures = FlowFigures::default();
    let (mut samples, mut sum) = (0, 0.0);
    let mut latency: Option<(i64, i64)> = None;
    for (job, stream) in streams_at(places, jobs) {
        let received = received(job, stream);
        let sent = &stream.totals;
        figures.frames_tx += sent.offered_frames.unwrap_or(0);
        figures.bytes_tx += sent.offered_octets.unwrap_or(0);
        figures.frames_rx += received.received_frames.unwrap_or(0);
        figures.bytes_rx += received.received_octets.unwrap_or(0);
        figures.duplicates += received.duplicate_frames.unwrap_or(0);
        figures.missing += received.lost_frames.unwrap_or(0);
        add_times(&mut figures, stream);
        if let (Some(min), Some(max), Some(mean)) = (
            stream.latency_ns.min,
            stream.latency_ns.max,
            stream.latency_ns.mean,
        ) {
            let known = latency.unwrap_or((min, max));
            latency = Some((known.0.min(min), known.1.max(max)));
            samples += stream.latency_ns.samples;
            #[allow(clippy::cast_precision_loss)]
            let whole = mean * stream.latency_ns.samples as f64;
            sum += whole;
        }
    }
    figures.due_frames = figures.frames_tx;
    #[allow(clippy::cast_precision_loss)]
    let of = |(min, max): (i64, i64)| LatencyFigures {
        min: min as f64,
        mean: sum / samples as f64,
        max: max as f64,
    };
    figures.latency = latency.filter(|_| samples > 0).map(of);
    figures
}

fn add_times(figures: &mut FlowFigures, stream: &StreamReport) {
    let first = figures.first_ns.into_iter().chain(stream.first_rx_ns);
    figures.first_ns = first.min();
    figures.last_ns = figures.last_ns.max(stream.last_rx_ns);
}

/// Frames per second, sent (0) or received (1), between the first of these moments at which the flow had frames, and the
/// last one. The start of the run counts only if there are no two such moments, because the first frame leaves later.
#[allow(clippy::cast_precision_loss)]
fn rate(points: &[(u64, [u64; 2])], end: usize) -> f64 {
    let points = points.iter().map(|(at, frames)| (*at, frames[end]));
    let mut points = points.filter(|(_, frames)| *frames > 0);
    let first = points.next().unwrap_or_default();
    let ((since, old), (now, new)) = match points.next_back() {
        Some(last) => (first, last),
        None => ((0, 0), first),
    };
    let seconds = now.saturating_sub(since) as f64 / 1e9;
    new.saturating_sub(old) as f64 / seconds.max(1e-9)
}

/// Figures of a flow during its run, from the figures of about the last second.
fn live_figures(
    flow: &Flow,
    phase: FlowPhase,
    places: &[Place],
    seen: &[JobsSoFar],
) -> FlowFigures {
    let transmit = match phase {
        FlowPhase::Started => Transmit::Started,
        FlowPhase::Paused => Transmit::Paused,
        FlowPhase::Held | FlowPhase::Stopped => Transmit::Stopped,
    };
    let Some(now) = seen.last() else {
        return FlowFigures {
            transmit,
            ..FlowFigures::default()
        };
    };
    let mut figures = sums(places, &now.jobs);
    let points: Vec<(u64, [u64; 2])> = seen
        .iter()
        .map(|at| (at.elapsed_ns, frames(places, &at.jobs)))
        .collect();
    (figures.tx_pps, figures.rx_pps) = (rate(&points, 0), rate(&points, 1));
    let mut old = points.iter().rev();
    let arrived = old.find(|(at, _)| now.elapsed_ns - at >= FLIGHT_NS);
    figures.due_frames = arrived.map_or(0, |(_, [sent, _])| *sent);
    // All frames were sent, and those in flight have arrived.
    let is_over =
        phase == FlowPhase::Stopped || flow.count.is_some_and(|count| figures.due_frames >= count);
    // Frames before the last arrival are due, too. So losses show at once, and also if nothing arrives any more.
    let distinct = figures.frames_rx.saturating_sub(figures.duplicates);
    figures.due_frames = figures.due_frames.max(distinct + figures.missing);
    figures.transmit = transmit;
    if is_over {
        figures.transmit = Transmit::Stopped;
        figures.due_frames = figures.frames_tx;
        (figures.tx_pps, figures.rx_pps) = (0.0, 0.0);
    }
    figures
}

/// Warning about flows that did not run as planned.
fn warning(report: &Report) -> Option<String> {
    let unsent = report.totals.unsent_frames.unwrap_or(0);
    let mut hosts = report.hosts.iter();
    let is_there = hosts.all(|host| host.state == HostState::Complete);
    let is_whole = !matches!(report.verdict, Verdict::Invalid) && unsent == 0 && is_there;
    (!is_whole).then(|| {
        format!(
            "the last flows did not run as planned: {}; {unsent} frames were not sent",
            report.reason
        )
    })
}

/// Returns true if a flow has sent all its frames.
fn is_sent(flow: &Flow, places: &[Place], jobs: &[JobReport]) -> bool {
    flow.count.is_some_and(|count| {
        let sent = streams_at(places, jobs).map(|(_, s)| s.totals.offered_frames);
        sent.flatten().sum::<u64>() >= count
    })
}

impl ActiveFlows {
    /// Started flows that have not sent all their frames.
    pub(super) fn unsent(&self, config: &Config) -> BTreeSet<String> {
        let jobs = self.jobs_now();
        let flows = config.flows.iter();
        let unsent = flows.filter(|flow| self.is_unsent(flow, &jobs));
        unsent.map(|flow| flow.name.clone()).collect()
    }

    /// Returns true if a started flow has not sent all its frames.
    fn has_unsent(&self, config: &Config) -> bool {
        let jobs = self.jobs_now();
        config.flows.iter().any(|flow| self.is_unsent(flow, &jobs))
    }

    fn is_unsent(&self, flow: &Flow, jobs: &[JobReport]) -> bool {
        let phase = self.flows.get(&flow.name);
        matches!(phase, Some(FlowPhase::Started | FlowPhase::Paused))
            && !is_sent(flow, self.streams(jobs).places(flow), jobs)
    }

    fn jobs_now(&self) -> Arc<Vec<JobReport>> {
        let seen = self.run.jobs();
        seen.last()
            .map(|now| Arc::clone(&now.jobs))
            .unwrap_or_default()
    }

    /// Places of the streams, as the first figures of the run have them.
    fn streams(&self, jobs: &[JobReport]) -> &Streams {
        static NONE: LazyLock<Streams> = LazyLock::new(Streams::default);
        match jobs {
            [] => &NONE,
            jobs => self.streams.get_or_init(|| Streams::of(jobs)),
        }
    }
}

impl Inner {
    /// Keeps the figures of flows after the end of their run. Returns the flows of a run that has not ended.
    pub(super) fn settle(&self) -> Option<ActiveFlows> {
        let active = self.state().active.clone()?;
        if !self.has_ended(&active.run) {
            return Some(self.release_held().unwrap_or(active));
        }
        let report = self.runs.report(&active.run.id);
        let warning = report.as_ref().and_then(warning);
        let Report { jobs, ports, .. } = report.unwrap_or_default();
        let streams = Streams::of(&jobs);
        let mut state = self.state();
        let is_same = |own: &ActiveFlows| Arc::ptr_eq(&own.run, &active.run);
        if state.active.as_ref().is_some_and(is_same) {
            state.active = None;
            state.warnings.extend(warning);
            elsewhere::add_counts(&mut state.counted, &ports);
            let config = Arc::clone(&state.config);
            for flow in &config.flows {
                let phase = active.flows.get(&flow.name);
                if phase.is_some_and(|phase| *phase != FlowPhase::Held) {
                    let figures = sums(streams.places(flow), &jobs);
                    state.ended.insert(flow.name.clone(), figures);
                }
            }
        }
        None
    }

    /// Ends flows that were not started, once all others have been sent, so that the run ends. Returns the flows after
    /// the change.
    fn release_held(&self) -> Option<ActiveFlows> {
        let mut state = self.state();
        let config = Arc::clone(&state.config);
        let active = state.active.as_mut()?;
        let is_held = |phase: &FlowPhase| *phase == FlowPhase::Held;
        if active.flows.values().any(is_held) && !active.has_unsent(&config) {
            let held = active.flows.iter().filter(|(_, phase)| is_held(phase));
            let held = held.map(|(name, _)| (name.clone(), StreamSteer::End));
            let wishes: Vec<_> = held.collect();
            Arc::make_mut(&mut active.flows).retain(|_, phase| !is_held(phase));
            // If it fails, the run is about to end anyway.
            let _ = active.run.steer_streams(&wishes);
        }
        Some(active.clone())
    }

    pub(super) fn metrics(&self, request: &MetricsRequest) -> OtgResult<Answer> {
        match request.is_of_flows {
            true => self.flow_metrics(request),
            false => self.port_metrics(request).map(Answer::Document),
        }
    }

    fn flow_metrics(&self, request: &MetricsRequest) -> OtgResult<Answer> {
        let config = Arc::clone(&self.state().config);
        let mut flows = Vec::new();
        if request.names.is_empty() {
            flows.extend(config.flows.iter().filter(|flow| flow.has_metrics));
        }
        let all = config.flows.iter().filter(|_| !request.names.is_empty());
        let known: BTreeMap<&str, &Flow> = all.map(|flow| (flow.name.as_str(), flow)).collect();
        for (n, name) in request.names.iter().enumerate() {
            let flow = known.get(name.as_str()).copied();
            let unknown = || unknown_name(&format!("flow.flow_names[{n}]"), name);
            flows.push(flow.ok_or_else(unknown)?);
        }
        // Frames in flight still arrive: the final figures are there soon.
        let mut active = self.settle();
        if let Some(flows) = active.take_if(|flows| !flows.has_unsent(&config)) {
            wait_until(PATIENCE / 4, || self.has_ended(&flows.run));
            active = self.settle();
        }
        let seen = active.as_ref().map(|active| active.run.jobs());
        let seen = seen.unwrap_or_default();
        let jobs = seen.last().map_or(&[][..], |now| &now.jobs);
        let state = self.state();
        let rows = flows.into_iter().map(|flow| {
            let phase = active
                .as_ref()
                .and_then(|active| Some((active, *active.flows.get(&flow.name)?)));
            let figures = match phase {
                None | Some((_, FlowPhase::Held)) => {
                    state.ended.get(&flow.name).copied().unwrap_or_default()
                }
                Some((active, phase)) => {
                    live_figures(flow, phase, active.streams(jobs).places(flow), &seen)
                }
            };
            let speed = config.port(&flow.tx).and_then(|port| port.speed);
            (flow, figures, speed)
        });
        let rows: Vec<_> = rows.collect();
        drop(state);
        wb_otg::flow_metrics(&rows, &request.columns).map_err(OtgError::internal)
    }

    fn port_metrics(&self, request: &MetricsRequest) -> OtgResult<Value> {
        let config = Arc::clone(&self.state().config);
        for (n, name) in request.names.iter().enumerate() {
            if config.port(name).is_none() {
                return Err(unknown_name(&format!("port.port_names[{n}]"), name));
            }
        }
        let unsent = self.settle().map(|active| {
            let mut unsent = active.unsent(&config);
            unsent.retain(|flow| active.flows.get(flow) == Some(&FlowPhase::Started));
            unsent
        });
        let unsent = unsent.unwrap_or_default();
        let ports = config.ports.iter();
        let wanted =
            ports.filter(|port| request.names.is_empty() || request.names.contains(&port.name));
        let wanted: Vec<_> = wanted.collect();
        self.read_again(&wanted);
        let rows = wanted.into_iter().map(|port| {
            let mut own = config.flows.iter().filter(|flow| flow.tx == port.name);
            let transmits = own.any(|flow| unsent.contains(&flow.name));
            let locator = ports::locator(&port.location);
            let figures = match locator.filter(|locator| locator.host.is_some()) {
                Some(locator) => self.figures_elsewhere(port, &locator, transmits),
                None => self.port_figures(port, transmits),
            };
            (port, figures)
        });
        let rows: Vec<_> = rows.collect();
        Ok(wb_otg::port_metrics(&rows, &request.columns))
    }

    /// Reads ports again if their earlier reading is too old for a rate. Then waits until there can be a rate.
    fn read_again(&self, ports: &[&wb_otg::PortConfig]) {
        let mut is_counting = false;
        for port in ports {
            let Some((counters, _)) = ports::reading(port) else {
                continue;
            };
            let mut state = self.state();
            let earlier = state.earlier.get(&port.name);
            if earlier.is_none_or(|earlier| earlier.at.elapsed() > LONGEST_RATE) {
                is_counting |= earlier.is_none_or(|earlier| earlier.counters != counters);
                let reading = PortReading {
                    at: Instant::now(),
                    counters,
                    rates: [0.0; 4],
                };
                state.earlier.insert(port.name.clone(), reading);
            }
        }
        if is_counting {
            thread::sleep(RATE);
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn port_figures(&self, port: &wb_otg::PortConfig, transmits: bool) -> PortFigures {
        let Some((now, is_up)) = ports::reading(port) else {
            return PortFigures::default();
        };
        let mut state = self.state();
        let base = state.base.get(&port.name).copied().unwrap_or_default();
        let counted = now.since(&base);
        let octets = |octets: u64, frames: u64| octets + FCS * frames;
        let mut rates = [0.0; 4];
        if let Some(earlier) = state.earlier.get_mut(&port.name) {
            let since = earlier.at.elapsed();
            if since >= RATE {
                let new: LinkCounters = now.since(&earlier.counters);
                let rate = |n: u64| n as f64 / since.as_secs_f64();
                *earlier = PortReading {
                    at: Instant::now(),
                    counters: now,
                    rates: [
                        rate(new.tx_packets),
                        rate(new.rx_packets),
                        rate(octets(new.tx_bytes, new.tx_packets)),
                        rate(octets(new.rx_bytes, new.rx_packets)),
                    ],
                };
            }
            rates = earlier.rates;
        }
        let [tx_pps, rx_pps, tx_rate, rx_rate] = rates;
        PortFigures {
            is_up,
            captures: state.captures.contains(&port.name),
            transmits,
            frames_tx: counted.tx_packets,
            frames_rx: counted.rx_packets,
            bytes_tx: octets(counted.tx_bytes, counted.tx_packets),
            bytes_rx: octets(counted.rx_bytes, counted.rx_packets),
            tx_pps,
            rx_pps,
            tx_rate,
            rx_rate,
        }
    }
}

pub(super) fn unknown_name(path: &str, name: &str) -> OtgError {
    OtgError::new(400, format!("{path}: unknown name '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of a stream at a moment.
    fn at(ms: u64, offered: u64, received: u64, missing: u64) -> JobsSoFar {
        let stream = StreamReport {
            name: "f".to_owned(),
            totals: Totals {
                offered_frames: Some(offered),
                received_frames: Some(received),
                lost_frames: Some(missing),
                ..Totals::default()
            },
            ..StreamReport::default()
        };
        JobsSoFar {
            elapsed_ns: ms * 1_000_000,
            phase: wb_model::Phase::Running,
            jobs: Arc::new(vec![JobReport {
                streams: vec![stream],
                ..JobReport::default()
            }]),
            ports: Arc::default(),
        }
    }

    #[test]
    fn rates_begin_with_the_first_frame() {
        let point = |ms: u64, sent| (ms * 1_000_000, [sent, 0]);
        let of = |points: &[(u64, [u64; 2])]| rate(points, 0);
        assert_eq!(of(&[]), 0.0);
        assert_eq!(of(&[point(250, 0), point(500, 0)]), 0.0);
        assert_eq!(of(&[point(250, 100)]), 400.0);
        let points = [
            point(250, 0),
            point(500, 100),
            point(750, 350),
            point(1000, 600),
        ];
        assert_eq!(of(&points), 1000.0);
        assert_eq!(of(&points[..2]), 200.0);
    }

    #[test]
    fn losses_show_during_the_run() {
        let flow = Flow {
            name: "f".to_owned(),
            path: String::new(),
            tx: String::new(),
            rx: Vec::new(),
            count: None,
            is_timed: false,
            streams: Vec::new(),
            has_metrics: true,
            has_loss: true,
            has_timestamps: false,
            latency: None,
            ratio: None,
        };
        let due = |seen: &[JobsSoFar]| {
            let streams = Streams::of(&seen[0].jobs);
            let places = streams.places(&flow);
            let figures = live_figures(&flow, FlowPhase::Started, places, seen);
            (figures.due_frames, figures.frames_rx)
        };
        // One of 100 is lost: frames before the last arrival count at once.
        assert_eq!(due(&[at(100, 100, 98, 1)]), (99, 98));
        // If nothing arrives, frames that were sent half a second ago count.
        assert_eq!(due(&[at(100, 100, 0, 0), at(400, 400, 0, 0)]), (0, 0));
        assert_eq!(due(&[at(100, 100, 0, 0), at(700, 700, 0, 0)]), (100, 0));
        // Frames in flight are not lost.
        assert_eq!(
            due(&[at(100, 100, 90, 0), at(700, 700, 690, 0)]),
            (690, 690)
        );
    }
}
