//! Metrics: figures of flows, from their run, and of ports, from their interfaces.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use serde_json::Value;
use wb_machine::LinkCounters;
use wb_model::{
    Report, Verdict,
    report::{JobReport, StreamReport},
};
use wb_otg::{Config, Flow, FlowFigures, LatencyFigures, MetricsRequest, PortFigures, Transmit};
use wb_runs::JobsSoFar;

use super::{ActiveFlows, Inner, OtgError, OtgResult, PATIENCE, wait_until};

/// Time after which a frame that was sent should have arrived, in ns.
const FLIGHT_NS: u64 = 500_000_000;
/// Shortest time between two readings of a port for a rate.
const RATE_SECONDS: f64 = 0.25;
const FCS: u64 = 4;

/// Streams by the name of their flow, each with its job.
type Streams<'r> = BTreeMap<&'r str, Vec<(&'r JobReport, &'r StreamReport)>>;

fn streams_of(jobs: &[JobReport]) -> Streams<'_> {
    let mut streams = Streams::new();
    for job in jobs {
        for stream in &job.streams {
            let own = streams.entry(stream.name.as_str()).or_default();
            own.push((job, stream));
        }
    }
    streams
}

/// Streams of a run at a moment, in ns since its start.
struct Moment<'r> {
    elapsed_ns: u64,
    streams: Streams<'r>,
}

fn moments(seen: &[JobsSoFar]) -> Vec<Moment<'_>> {
    let all = seen.iter().map(|seen| Moment {
        elapsed_ns: seen.elapsed_ns,
        streams: streams_of(&seen.jobs),
    });
    all.collect()
}

/// Sums of the streams of a flow.
fn sums(flow: &Flow, streams: &Streams<'_>) -> FlowFigures {
    let mut figures = FlowFigures::default();
    let (mut samples, mut sum) = (0, 0.0);
    let mut latency: Option<(i64, i64)> = None;
    for (job, stream) in streams.get(flow.name.as_str()).into_iter().flatten() {
        // Frames without a tag are those of the only stream.
        let received = match (stream.totals.received_frames, job.streams.len()) {
            (None, 1) => &job.totals,
            _ => &stream.totals,
        };
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

/// Figures of a flow during its run, from the figures of about the last second.
#[allow(clippy::cast_precision_loss)]
fn live_figures(flow: &Flow, seen: &[Moment<'_>]) -> FlowFigures {
    let Some(now) = seen.last() else {
        return FlowFigures {
            transmit: Transmit::Started,
            ..FlowFigures::default()
        };
    };
    let mut figures = sums(flow, &now.streams);
    let before = &seen[..seen.len() - 1];
    let (since_ns, base) = before.first().map_or_else(
        || (0, FlowFigures::default()),
        |first| (first.elapsed_ns, sums(flow, &first.streams)),
    );
    let seconds = now.elapsed_ns.saturating_sub(since_ns) as f64 / 1e9;
    let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds.max(1e-9);
    figures.tx_pps = rate(figures.frames_tx, base.frames_tx);
    figures.rx_pps = rate(figures.frames_rx, base.frames_rx);
    let old = before.iter().rev();
    let mut old = old.filter(|at| now.elapsed_ns - at.elapsed_ns >= FLIGHT_NS);
    let arrived = old.next().map(|at| sums(flow, &at.streams));
    figures.due_frames = arrived.map_or(0, |at| at.frames_tx);
    // All frames were sent, and those in flight have arrived.
    let is_over = flow.count.is_some_and(|count| figures.due_frames >= count);
    // Frames before the last arrival are due, too. So losses show at once, and also if nothing arrives any more.
    let distinct = figures.frames_rx.saturating_sub(figures.duplicates);
    figures.due_frames = figures.due_frames.max(distinct + figures.missing);
    figures.transmit = match is_over {
        true => Transmit::Stopped,
        false => Transmit::Started,
    };
    figures
}

/// Warning about flows that did not run as planned.
fn warning(report: &Report) -> Option<String> {
    let unsent = report.totals.unsent_frames.unwrap_or(0);
    let is_whole = !matches!(report.verdict, Verdict::Invalid) && unsent == 0;
    (!is_whole).then(|| {
        format!(
            "the last flows did not run as planned: {}; {unsent} frames were not sent",
            report.reason
        )
    })
}

/// Returns true if a flow has sent all its frames.
fn is_sent(flow: &Flow, seen: &[Moment<'_>]) -> bool {
    let now = seen.last().map(|now| sums(flow, &now.streams));
    let sent = now.map_or(0, |figures| figures.frames_tx);
    flow.count.is_some_and(|count| sent >= count)
}

impl Inner {
    /// Keeps the figures of flows after the end of their run. Returns the flows that are still sent.
    pub(super) fn settle(&self) -> Option<ActiveFlows> {
        let active = self.state().active.clone()?;
        if !self.has_ended(&active.run) {
            return Some(active);
        }
        let report = self.runs.report(&active.run.id);
        let warning = report.as_ref().and_then(warning);
        let jobs = report.map(|report| report.jobs).unwrap_or_default();
        let streams = streams_of(&jobs);
        let mut state = self.state();
        let is_same = |own: &ActiveFlows| Arc::ptr_eq(&own.run, &active.run);
        if state.active.as_ref().is_some_and(is_same) {
            state.active = None;
            state.warnings.extend(warning);
            let config = Arc::clone(&state.config);
            for flow in config
                .flows
                .iter()
                .filter(|f| active.flows.contains(&f.name))
            {
                state.ended.insert(flow.name.clone(), sums(flow, &streams));
            }
        }
        None
    }

    pub(super) fn metrics(&self, request: &MetricsRequest) -> OtgResult<Value> {
        match request.is_of_flows {
            true => self.flow_metrics(request),
            false => self.port_metrics(request),
        }
    }

    fn flow_metrics(&self, request: &MetricsRequest) -> OtgResult<Value> {
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
        if let Some(active) = self.settle() {
            let own = config.flows.iter();
            let mut own = own.filter(|flow| active.flows.contains(&flow.name));
            let seen = active.run.jobs();
            let seen = moments(&seen);
            // Frames in flight still arrive: the final figures are there soon.
            if own.all(|flow| is_sent(flow, &seen)) {
                wait_until(PATIENCE / 4, || self.has_ended(&active.run));
            }
        }
        let active = self.settle();
        let seen = active.as_ref().map(|active| active.run.jobs());
        let seen = seen.as_deref().map(moments);
        let state = self.state();
        let rows = flows.into_iter().map(|flow| {
            let active = active.as_ref().filter(|a| a.flows.contains(&flow.name));
            let figures = match (active, &seen) {
                (Some(_), Some(seen)) => live_figures(flow, seen),
                _ => state.ended.get(&flow.name).copied().unwrap_or_default(),
            };
            let speed = config.port(&flow.tx).and_then(|port| port.speed);
            (flow, figures, speed)
        });
        let rows: Vec<_> = rows.collect();
        Ok(wb_otg::flow_metrics(&rows, &request.columns))
    }

    fn port_metrics(&self, request: &MetricsRequest) -> OtgResult<Value> {
        let config = Arc::clone(&self.state().config);
        for (n, name) in request.names.iter().enumerate() {
            if config.port(name).is_none() {
                return Err(unknown_name(&format!("port.port_names[{n}]"), name));
            }
        }
        let active = self.settle();
        let ports = config.ports.iter();
        let wanted =
            ports.filter(|port| request.names.is_empty() || request.names.contains(&port.name));
        let rows = wanted.map(|port| {
            let transmits = is_sending(&config, active.as_ref(), &port.name);
            (port, self.port_figures(port, transmits))
        });
        let rows: Vec<_> = rows.collect();
        Ok(wb_otg::port_metrics(&rows, &request.columns))
    }

    #[allow(clippy::cast_precision_loss)]
    fn port_figures(&self, port: &wb_otg::PortConfig, transmits: bool) -> PortFigures {
        let Some((now, is_up)) = super::ports::reading(port) else {
            return PortFigures::default();
        };
        let mut state = self.state();
        let base = state.base.get(&port.name).copied().unwrap_or_default();
        let counted = now.since(&base);
        let octets = |octets: u64, frames: u64| octets + FCS * frames;
        let earlier = state.earlier.get(&port.name);
        let since = earlier.map(|(at, ..)| at.elapsed().as_secs_f64());
        let mut rates = earlier.map_or([0.0; 4], |(.., rates)| *rates);
        if since.is_none_or(|seconds| seconds >= RATE_SECONDS) {
            if let (Some((_, old, _)), Some(seconds)) = (earlier, since) {
                let new: LinkCounters = now.since(old);
                let rate = |n: u64| n as f64 / seconds;
                rates = [
                    rate(new.tx_packets),
                    rate(new.rx_packets),
                    rate(octets(new.tx_bytes, new.tx_packets)),
                    rate(octets(new.rx_bytes, new.rx_packets)),
                ];
            }
            let reading = (Instant::now(), now, rates);
            state.earlier.insert(port.name.clone(), reading);
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

fn is_sending(config: &Config, active: Option<&ActiveFlows>, port: &str) -> bool {
    let is_from = |flow: &&Flow| flow.tx == port;
    active.is_some_and(|active| {
        let mut flows = config.flows.iter().filter(is_from);
        flows.any(|flow| active.flows.contains(&flow.name))
    })
}

pub(super) fn unknown_name(path: &str, name: &str) -> OtgError {
    OtgError::new(400, format!("{path}: unknown name '{name}'"))
}

#[cfg(test)]
mod tests {
    use wb_model::report::Totals;

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
        }
    }

    #[test]
    fn losses_show_during_the_run() {
        let flow = Flow {
            name: "f".to_owned(),
            path: String::new(),
            tx: String::new(),
            rx: Vec::new(),
            count: None,
            streams: Vec::new(),
            has_metrics: true,
            has_loss: true,
            has_timestamps: false,
            latency: None,
            ratio: None,
        };
        let due = |seen: &[JobsSoFar]| {
            let figures = live_figures(&flow, &moments(seen));
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
