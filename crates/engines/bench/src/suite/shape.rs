//! Builds the plan of a trial: the plan's own jobs, one of them with another load.

use std::time::Duration;

use wb_model::{
    Driver, Plan, Stream, TrafficJob,
    bench::{Modifier, Quantity, SuitePlan, TestSize, TrialPurpose},
    device::{Defaults, DeviceConfig, DeviceJob},
    http::HttpStage,
    load::{LoadEnd, LoadJob},
    units::{AddressRange, FrameSize, Mac, Rate, Rational, SizeModel, Span},
};

use super::modifiers::{bursts, management, routing};

/// Time for connections that end with a trial: longer than their retries.
const CLOSING: Duration = Duration::from_millis(1_300);
/// Resolution of loads, in parts of a frame per second: fractions of a frame matter in a long trial.
const FINENESS: f64 = 1_000_000.0;
/// Shares of a mix are written as rates; their sum is this number of frames per second.
const WHOLE: f64 = 1e6;
/// One of this number of frames is a broadcast (RFC 2544 section 11.1).
const BROADCAST: f64 = 100.0;

/// The job with a variable load, by its index among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetJob {
    Traffic(usize),
    /// This number of traffic jobs, the first of the plan, each at the rates of its streams.
    Services(usize),
    Load(usize),
    Http(usize),
}

impl TargetJob {
    pub(super) fn of_plan(suite: &SuitePlan, plan: &Plan) -> Option<Self> {
        let load = || suite.load_index(plan).map(Self::Load);
        match suite.of {
            Quantity::Frames => suite.traffic_index(plan).map(Self::Traffic),
            Quantity::Cps | Quantity::Cc => load(),
            Quantity::Rps => load().or_else(|| suite.http_index(plan).map(Self::Http)),
        }
    }

    /// Returns true for the target job or one of the target jobs.
    pub(super) fn is_traffic(self, n: usize) -> bool {
        match self {
            Self::Traffic(own) => own == n,
            Self::Services(jobs) => n < jobs,
            Self::Load(_) | Self::Http(_) => false,
        }
    }
}

/// Amount to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TrialAmount {
    /// A load in each direction, in the unit of the suite.
    Load(f64),
    /// Full speed, as limited by the port.
    Most,
    /// This number of frames, as fast as the port accepts them.
    Burst(u64),
}

/// Parameters of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TrialShape {
    pub(super) amount: TrialAmount,
    /// Without ramp, drain and the load before.
    pub(super) duration: Duration,
    pub(super) ramp: Duration,
    pub(super) drain: Duration,
    /// Load sent directly before, with its duration; not evaluated.
    pub(super) before: Option<(f64, Duration)>,
    /// The frames of a load arrive in bursts of this size.
    pub(super) burst: Option<u32>,
    pub(super) purpose: TrialPurpose,
}

impl TrialShape {
    /// Time from its first frame to its end.
    pub(super) fn whole_duration(&self) -> Duration {
        self.ramp
            + self.before.map_or(Duration::ZERO, |(_, time)| time)
            + self.duration
            + self.drain
    }

    /// Time from the first frame to the first that counts.
    pub(super) fn lead_time(&self) -> Duration {
        self.ramp + self.before.map_or(Duration::ZERO, |(_, time)| time)
    }
}

fn exact_rate(load: f64) -> Rational {
    let parts = (load.max(0.0) * FINENESS).round();
    Rational::new(parts as u128, FINENESS as u128).unwrap_or(Rational::whole(load as u64))
}

/// Each stream's share of its job's frames: proportional to their rates, else equal.
fn stream_shares(job: &TrafficJob) -> Vec<f64> {
    let rates: Option<Vec<f64>> = job
        .streams
        .iter()
        .map(|s| s.frames_per_second(None).map(Rational::as_f64))
        .collect();
    let rates = rates.filter(|rates| rates.iter().sum::<f64>() > 0.0);
    let rates = rates.unwrap_or_else(|| vec![1.0; job.streams.len()]);
    let sum: f64 = rates.iter().sum();
    rates.into_iter().map(|rate| rate / sum).collect()
}

/// The job with this share of IPv6 frames: stream rates are proportional to their intended loads. Streams of a version
/// with a share of 0 are omitted.
pub(super) fn with_ipv6_share(job: &TrafficJob, ipv6: f64) -> TrafficJob {
    let own = stream_shares(job);
    let of = |is_ipv6: bool| -> f64 {
        let streams = job.streams.iter().zip(&own);
        let streams = streams.filter(|(stream, _)| stream.is_ipv6() == is_ipv6);
        streams.map(|(_, share)| share).sum()
    };
    let sums = [of(false), of(true)];
    let streams = job.streams.iter().zip(&own).filter_map(|(stream, share)| {
        let (part, sum) = match stream.is_ipv6() {
            false => (1.0 - ipv6, sums[0]),
            true => (ipv6, sums[1]),
        };
        let share = part * share / sum;
        (share > 0.0).then(|| Stream {
            rate: Rate::Pps(exact_rate(share * WHOLE)),
            burst: None,
            gap: None,
            ..stream.clone()
        })
    });
    TrafficJob {
        streams: streams.collect(),
        ..job.clone()
    }
}

/// Returns true if its flows have different rates.
pub(super) fn has_unequal_flows(job: &TrafficJob) -> bool {
    let flows = job.streams.iter().map(Stream::flow_count);
    let mut rates = stream_shares(job)
        .into_iter()
        .zip(flows)
        .map(|(s, n)| s / f64::from(n));
    let first = rates.next().unwrap_or_default();
    rates.any(|rate| (rate - first).abs() > first * 1e-9)
}

/// Sizes of a stream in a test of `size`: smaller sizes than possible are raised to the minimum.
pub(super) fn stream_sizes(stream: &Stream, size: Option<&TestSize>) -> SizeModel {
    let mut stream = stream.clone();
    if let Some(size) = size {
        stream.size = Some(size.model.clone());
    }
    let least = stream.smallest_size();
    match stream.sizes() {
        SizeModel::Fixed(size) => SizeModel::Fixed(size.max(least)),
        SizeModel::Range(first, last) => SizeModel::Range(first.max(least), last.max(least)),
        sizes @ (SizeModel::Mix(_) | SizeModel::Steps(_)) => sizes,
    }
}

/// Mean frame size with FCS of a job in a test of `size`.
pub(super) fn mean_size(job: &TrafficJob, size: Option<&TestSize>) -> f64 {
    let shares = stream_shares(job);
    let all = job.streams.iter().zip(shares);
    all.map(|(stream, share)| share * stream_sizes(stream, size).mean().as_f64())
        .sum()
}

/// A job at another load; its frames are evenly spaced, or in bursts of this size.
pub(super) fn job_at_load(
    job: &TrafficJob,
    amount: TrialAmount,
    burst: Option<u32>,
    size: Option<&TestSize>,
) -> TrafficJob {
    let shares = stream_shares(job);
    let streams = job.streams.iter().zip(shares).map(|(stream, share)| {
        let (rate, burst, gap) = match (amount, burst) {
            (TrialAmount::Load(load), Some(frames)) => {
                let period = bursts::period_ns(load * share, frames);
                (Rate::Max, Some(frames), Some(Span::from_nanos(period)))
            }
            (TrialAmount::Load(load), None) => (Rate::Pps(exact_rate(load * share)), None, None),
            (TrialAmount::Most | TrialAmount::Burst(_), _) => (Rate::Max, None, None),
        };
        Stream {
            size: Some(stream_sizes(stream, size)),
            rate,
            burst,
            gap,
            ..stream.clone()
        }
    });
    TrafficJob {
        streams: streams.collect(),
        count: match amount {
            TrialAmount::Burst(frames) => Some(frames),
            _ => None,
        },
        start: Span::default(),
        ..job.clone()
    }
}

/// Broadcast frames, from a separate sender because they are not forwarded.
fn broadcast_job(job: &TrafficJob, load: f64, shape: &TrialShape) -> Option<DeviceJob> {
    let time = (shape.lead_time() + shape.duration).as_secs_f64();
    let size = job
        .streams
        .first()
        .map_or(FrameSize::MIN, Stream::smallest_size);
    let len = u32::try_from(size.len_without_fcs()).unwrap_or(u32::MAX);
    let defaults = Defaults {
        count: (load * time).ceil() as u64,
        delay_ns: (1e9 / load.max(1.0)) as u64,
        ..Defaults::default()
    };
    let own = job.streams.first().map(|s| (s.source(), s.destination()));
    let own = own.filter(|(source, _)| !source.is_ipv6());
    let text = |range: Option<AddressRange>| {
        range.map_or_else(String::new, |range| range.nth(0).to_string())
    };
    Some(DeviceJob {
        settings: DeviceConfig {
            dst_mac: Mac([0xff; 6]),
            min_size: len,
            max_size: len,
            src_min: text(own.map(|(source, _)| source)),
            dst_min: text(own.map(|(_, destination)| destination)),
            ..DeviceConfig::new("broadcast", &defaults)
        },
        port: job.tx.clone()?,
        ..DeviceJob::default()
    })
}

/// Returns true if a job uses a memory port: then there is no device.
fn is_in_memory(plan: &Plan, job: &TrafficJob) -> bool {
    let port = plan
        .ports
        .iter()
        .find(|port| Some(&port.name) == job.tx.as_ref());
    port.is_some_and(|port| port.locator.driver == Some(Driver::Memory))
}

/// The plan of a trial.
pub(super) fn trial_plan(
    base: &Plan,
    suite: &SuitePlan,
    target: TargetJob,
    size: Option<&TestSize>,
    shape: &TrialShape,
) -> Plan {
    let mut plan = base.clone();
    let ramp = Span(shape.ramp);
    let drain = Span(shape.drain);
    match target {
        TargetJob::Traffic(n) => {
            let job = &base.traffic[n];
            let mut own = shape.amount;
            if suite.modifiers.contains(&Modifier::Broadcast)
                && let TrialAmount::Load(load) = own
            {
                own = TrialAmount::Load(load * (1.0 - 1.0 / BROADCAST));
                plan.devices
                    .extend(broadcast_job(job, load / BROADCAST, shape));
            }
            let mut main = TrafficJob {
                ramp,
                drain,
                duration: match own {
                    TrialAmount::Burst(_) => None,
                    _ => Some(Span(shape.duration)),
                },
                ..job_at_load(job, own, shape.burst, size)
            };
            if let (Some((load, time)), TrialAmount::Load(own)) = (shape.before, own) {
                main.hold = Span(time);
                main.hold_load = load / own;
            }
            plan.traffic[n] = main;
            go_beside(&mut plan, base, target, shape);
            if !is_in_memory(base, job) {
                management::add_queries(&mut plan, base, suite, shape);
                routing::add_updates(&mut plan, base, suite, shape);
            }
            return plan;
        }
        TargetJob::Services(jobs) => {
            for job in &mut plan.traffic[..jobs] {
                (job.ramp, job.drain) = (ramp, drain);
                job.duration = Some(Span(shape.duration));
            }
        }
        TargetJob::Load(n) => {
            set_load(&mut plan.loads[n], suite.of, shape);
        }
        TargetJob::Http(n) => {
            let job = &mut plan.http_jobs[n];
            let TrialAmount::Load(load) = shape.amount else {
                return plan;
            };
            job.amount = None;
            // The warm-up is part of the job's time.
            job.duration = Some(Span(ramp.0 + shape.duration));
            job.warm_up = ramp;
            job.rate = vec![HttpStage {
                from: load,
                to: load,
                time: None,
            }];
        }
    }
    go_beside(&mut plan, base, target, shape);
    plan
}

/// The other jobs run as long as the trial sends.
fn go_beside(plan: &mut Plan, base: &Plan, target: TargetJob, shape: &TrialShape) {
    let time = Span(shape.lead_time() + shape.duration);
    for (n, job) in plan.traffic.iter_mut().enumerate() {
        if n < base.traffic.len() && !target.is_traffic(n) {
            job.count = None;
            job.duration = Some(time);
        }
    }
    for (n, load) in plan.loads.iter_mut().enumerate() {
        if load.end == LoadEnd::Client && target != TargetJob::Load(n) {
            let ramp = load.shape.ramp.0;
            load.shape.duration = Span(time.0.saturating_sub(ramp).max(Duration::from_millis(100)));
        }
    }
    for (n, job) in plan.http_jobs.iter_mut().enumerate() {
        if target != TargetJob::Http(n) {
            job.amount = None;
            job.duration = Some(time);
        }
    }
}

fn set_load(load: &mut LoadJob, of: Quantity, shape: &TrialShape) {
    let TrialAmount::Load(number) = shape.amount else {
        return;
    };
    let number = number.round().max(1.0) as u64;
    load.shape.ramp = Span(shape.ramp);
    load.shape.duration = Span(shape.duration);
    load.shape.profile = Vec::new();
    load.shape.drain = Span(shape.drain.max(CLOSING));
    match of {
        Quantity::Cps => {
            load.rate.cps = Some(number);
            load.requests = load.requests.max(1);
        }
        Quantity::Cc => {
            load.rate.cc = Some(number);
            // All are open before the trial's time begins.
            let cps = load.rate.cps.get_or_insert(20_000);
            // The rate rises evenly in a ramp, so half of the full number is opened, and some extra time is needed.
            let opening = Duration::from_secs_f64(number as f64 / (*cps).max(1) as f64 * 2.1);
            load.shape.ramp = Span(shape.ramp.max(opening));
        }
        Quantity::Rps => load.rate.rps = Some(number),
        Quantity::Frames => {}
    }
}

/// Number of entries in a report before those of the traffic job `n`: one for each direction.
pub(super) fn directions_before(plan: &Plan, n: usize) -> usize {
    plan.traffic[..n].iter().map(direction_count).sum()
}

/// Number of directions in which a job sends.
pub(super) fn direction_count(job: &TrafficJob) -> usize {
    1 + usize::from(job.bidir)
}

#[cfg(test)]
mod tests {
    use wb_model::text::plan_from_toml;

    use super::*;

    #[test]
    fn requests_of_http_warm_up_before_what_counts() {
        let text = "[[http]]\nurl = \"http://198.19.1.2\"\n[procedure.suite]\ntests = [\"throughput\"]\nof = \"rps\"\n";
        let base = plan_from_toml("plan", text).unwrap();
        let time = Duration::from_millis(500);
        let shape = TrialShape {
            amount: TrialAmount::Load(100.0),
            duration: time,
            ramp: time,
            drain: time,
            before: None,
            burst: None,
            purpose: TrialPurpose::Search,
        };
        let suite = SuitePlan::default();
        let plan = trial_plan(&base, &suite, TargetJob::Http(0), None, &shape);
        assert!(plan.http_jobs[0].problems().is_empty());
        assert_eq!(plan.http_jobs[0].duration, Some(Span(2 * time)));
    }
}
