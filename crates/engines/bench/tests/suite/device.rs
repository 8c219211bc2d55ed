//! A simulated device in virtual time, behind a tester that can fail.
//!
//! Every trial is computed in closed form: of `load × time` frames, rounded down, the device forwards at most `capacity
//! × time`, rounded down. Of a burst it keeps as much as its buffer holds. [`Mishap`] selects failures of the tester by
//! trial and load.

use std::{collections::BTreeMap, time::Duration};

use wb_bench::{Bench, CutReason, DeviceReading, PlanRun, Trigger};
use wb_model::{
    Driver, Lateness, LatenessReport, Limiter, Plan, PortPlan, Report, Stream, Summary, Totals,
    TrafficJob, Verdict,
    bench::BenchLive,
    load::{ConnectionTotals, LoadEnd, LoadJob, LoadJobReport, LoadPhaseReport, LoadReport},
    report::{FlowReport, JobReport, PortReport, Rates, StreamReport},
    timeline::{Column, Timeline},
    units::{Rate, Rational, WIRE_OVERHEAD},
};

/// Name of a load that runs alongside the searched one.
pub(crate) const BESIDE: &str = "beside";

/// The device is not there.
#[derive(Debug)]
pub(crate) struct Gone;

/// A disturbance of one trial that the device does not cause.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    /// The sender is stopped for this time, this number of times, and catches up at once.
    Stopped(Duration, u64),
    /// The sender is stopped, and gives up this number of frames.
    GivenUp(u64),
    /// This share of the load is sent.
    Sent(f64),
    /// A signal ends it after this time.
    SignalAfter(Duration),
    /// Sending takes this factor longer.
    Longer(f64),
    /// The tester's rings drop this number of frames.
    Unread(u64),
    /// The rings drop this number of frames during a stall.
    LeftUnread(u64),
    /// A link is down for this number of checks, which also ends the worker.
    Torn(u32),
    /// The tester's interface drops this number of frames.
    Refused(u64),
    /// This number of foreign frames is received.
    Foreign(u64),
    /// A link goes down, and is up again after this number of checks.
    LinkDown(u32),
    /// The user ends it.
    Signal,
    /// A worker ends it.
    Fault(&'static str),
    /// It cannot begin.
    Gone,
    /// This number of connections of the load alongside fail.
    BesideFails(u64),
    /// This number of them are not begun.
    BesideUnsent(u64),
    /// This number of them fail during a stall.
    BesideExposed(u64),
}

impl Mishap {
    /// Frames dropped at the tester's ports.
    const fn frames_of_ours(self) -> Option<u64> {
        match self {
            Self::Unread(n) | Self::LeftUnread(n) | Self::Refused(n) => Some(n),
            _ => None,
        }
    }
}

/// SNMP agent of the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Agent {
    Answers,
    Errs,
    Silent,
}

/// Effect of a reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// The command that causes it must be this.
    pub(crate) command: &'static str,
    /// Time without forwarding.
    pub(crate) length: Duration,
    /// Additional delay of the first frame after it.
    pub(crate) wake_ns: i64,
    /// It takes the tester's own link down.
    pub(crate) takes_link: bool,
    /// It ends eventually.
    pub(crate) ends: bool,
}

type ByTrial<T> = Box<dyn FnMut(u32, f64) -> T>;

/// The device, the tester, and the actions of the suite.
pub(crate) struct Device {
    /// Forwarding capacity in each direction, frames per second.
    pub(crate) capacity: f64,
    /// Capacity of the return direction, if different.
    pub(crate) capacity_back: Option<f64>,
    /// Forwarded rate as a function of the load, frames per second, if not limited by the capacity alone.
    pub(crate) passes: Option<fn(f64) -> f64>,
    /// Capacity for IPv6 frames, frames per second, if lower.
    pub(crate) capacity6: Option<f64>,
    /// Frames of a burst that fit into its buffer.
    pub(crate) buffer: u64,
    /// Delay of a frame.
    pub(crate) delay_ns: i64,
    /// Difference of the longest delay.
    pub(crate) jitter_ns: i64,
    /// Every n-th forwarded frame is duplicated.
    pub(crate) doubles: Option<u64>,
    /// Share of the ceiling that the tester reaches in trials of the ceiling, in reverse order.
    pub(crate) hindered: Vec<f64>,
    /// Additional lost frames, by trial and load.
    pub(crate) noise: ByTrial<u64>,
    /// Time after an overload in which no frame is forwarded.
    pub(crate) recovery: Duration,
    /// Silent time at the end of the phase after the overload.
    pub(crate) silent_end: Duration,
    pub(crate) outage: Option<Outage>,
    /// Reason why a trigger failed.
    pub(crate) misfire: Option<&'static str>,
    /// Forwarded rate of a stream and its delay, while others share its job; by its name.
    pub(crate) shared: BTreeMap<&'static str, (f64, i64)>,
    /// A stream without forwarding between two seconds of a trial.
    pub(crate) away: Option<(&'static str, u64, u64)>,
    pub(crate) agent: Agent,
    /// Capacity in new connections per second, requests per second and open connections.
    pub(crate) cps: f64,
    pub(crate) rps: f64,
    pub(crate) cc: u64,
    /// Link speed reported by its ports.
    pub(crate) line_bps: Option<u64>,
    /// Frames per second that the tester can send.
    pub(crate) ceiling: f64,
    /// Requests per second for which a connection is free.
    pub(crate) free: f64,
    /// Reported limiter of the load.
    pub(crate) blamed: Option<Limiter>,
    /// Connections or requests per second that the tester can begin.
    pub(crate) most_begun: f64,
    /// Disturbance by trial and load. Trials of the tester's ceiling are not counted.
    pub(crate) mishap: ByTrial<Option<Mishap>>,
    /// The user stops the suite after this number of trials.
    pub(crate) stop_after: u32,
    /// Overhead of a trial.
    pub(crate) overhead: Duration,
    /// Trials so far, and all runs.
    pub(crate) trials: u32,
    pub(crate) runs: u32,
    pub(crate) told: Vec<BenchLive>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) now: u64,
    pub(crate) looks: u32,
    pub(crate) forwarded: u64,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            capacity: 8_123_456.0,
            passes: None,
            capacity6: None,
            capacity_back: None,
            buffer: 0,
            delay_ns: 20_000,
            jitter_ns: 0,
            doubles: None,
            hindered: Vec::new(),
            noise: Box::new(|_, _| 0),
            recovery: Duration::ZERO,
            silent_end: Duration::ZERO,
            outage: None,
            misfire: None,
            shared: BTreeMap::new(),
            away: None,
            agent: Agent::Answers,
            cps: 37_500.0,
            rps: 250_000.0,
            cc: 100_000,
            line_bps: Some(10_000_000_000),
            ceiling: f64::INFINITY,
            free: f64::INFINITY,
            blamed: None,
            most_begun: f64::INFINITY,
            mishap: Box::new(|_, _| None),
            stop_after: u32::MAX,
            overhead: Duration::ZERO,
            trials: 0,
            runs: 0,
            told: Vec::new(),
            plans: Vec::new(),
            now: 0,
            looks: 0,
            forwarded: 0,
        }
    }
}

/// A mishap in these trials.
pub(crate) fn in_trials(trials: &'static [u32], mishap: Mishap) -> ByTrial<Option<Mishap>> {
    Box::new(move |trial, _| trials.contains(&trial).then_some(mishap))
}

/// A distribution with a single value.
fn constant(ns: i64, samples: u64) -> Summary {
    let value = (samples > 0).then_some(ns);
    Summary {
        samples,
        min: value,
        mean: value.map(|ns| ns as f64),
        stddev: value.map(|_| 0.0),
        p50: value,
        p90: value,
        p99: value,
        p999: value,
        p9999: value,
        p95: value,
        p99999: value,
        max: value,
    }
}

fn mean_size(job: &TrafficJob) -> f64 {
    job.streams[0].sizes().mean().as_f64()
}

/// A number of frames, rounded down. Plans round loads to millionths of a frame per second; a frame that is incomplete
/// only for this reason counts.
fn whole(per_second: f64, seconds: f64) -> u64 {
    // Saturates, so infinite rates work.
    (per_second * seconds + 1e-6 * seconds).floor() as u64
}

/// Results of one direction of a job.
#[derive(Default)]
struct DirectionResult {
    asked: u64,
    sent: u64,
    passed: u64,
    read: u64,
    foreign: u64,
    /// Dropped by the tester's interface, not by its rings.
    refused: u64,
    last_skipped: Option<u64>,
    took_s: f64,
    silence_ns: i64,
    /// Time without received frames at the end.
    silent_end_s: f64,
    delay_ns: i64,
    first_flow: u32,
    /// Sent and not forwarded frames of each stream.
    streams: Vec<(u64, u64)>,
}

impl DirectionResult {
    /// A stream's part of the unsent frames.
    fn unsent_of(&self, n: usize) -> u64 {
        let unsent = self.asked - self.sent;
        let sent = self.streams[n].0 as f64 / self.sent.max(1) as f64;
        (unsent as f64 * sent).round() as u64
    }
}

/// Number of the first flow of a stream.
fn first_flow(way: &DirectionResult, job: &TrafficJob, n: usize) -> u32 {
    way.first_flow + job.streams[..n].iter().map(Stream::flow_count).sum::<u32>()
}

impl Device {
    /// Adds a sample per second to the timeline, for the job and the first flow of each stream.
    fn record(&self, timeline: &mut Timeline, name: &str, job: &TrafficJob, way: &DirectionResult) {
        let seconds = way.took_s.floor() as u64;
        let column = |of: String, name: &str, each: f64, away: Option<(u64, u64)>| {
            let mut sum = 0.0;
            let values = (0..seconds).map(|second| {
                let is_away = away.is_some_and(|(from, to)| (from..to).contains(&second));
                sum += if is_away { 0.0 } else { each };
                Some(sum)
            });
            Column {
                of,
                name: name.to_owned(),
                counter: true,
                values: values.collect(),
                ..Column::default()
            }
        };
        let per_second = |frames: u64| frames as f64 / way.took_s;
        timeline.at_ns = (1..=seconds).map(|second| second * 1_000_000_000).collect();
        for (column_name, frames) in [("offered_frames", way.sent), ("received_frames", way.read)] {
            let of = format!("job {name}");
            let column = column(of, column_name, per_second(frames), None);
            timeline.columns.push(column);
        }
        for (n, (stream, (sent, lost))) in job.streams.iter().zip(&way.streams).enumerate() {
            let of = format!("flow {}", first_flow(way, job, n));
            let away = self.away_of(stream, way.took_s);
            let passed = match away {
                Some(_) => *sent,
                None => sent - lost,
            };
            let column = column(of, "received_frames", per_second(passed), away);
            timeline.columns.push(column);
        }
    }

    /// Report of the first flow of each stream.
    fn flows(&self, job: &TrafficJob, way: &DirectionResult) -> Vec<FlowReport> {
        let streams = job.streams.iter().zip(&way.streams).enumerate();
        let flows = streams.map(|(n, (stream, (sent, lost)))| {
            let delay = self.shared.get(stream.name.as_str());
            FlowReport {
                flow: first_flow(way, job, n),
                latency_ns: constant(delay.map_or(way.delay_ns, |(_, ns)| *ns), sent - lost),
                ..FlowReport::default()
            }
        });
        flows.collect()
    }
}

impl Device {
    /// Frames per second at full speed.
    fn most(&self, job: &TrafficJob) -> f64 {
        let line = self.line_bps.map_or(f64::INFINITY, |bps| {
            bps as f64 / ((mean_size(job) + f64::from(WIRE_OVERHEAD)) * 8.0)
        });
        // An unlimited link still needs some limit.
        line.min(self.ceiling).min(1e8)
    }

    /// Frames per second of a job; `None` at full speed.
    fn rate(job: &TrafficJob) -> Option<f64> {
        let rates = job.streams.iter().map(|stream| match stream.rate {
            Rate::Max if stream.burst.is_none() => None,
            _ => stream.frames_per_second(None).map(Rational::as_f64),
        });
        rates.sum()
    }

    /// Total loss of a device that has emptied its buffer before each burst.
    fn lost_of_bursts(&self, job: &TrafficJob, sent: u64) -> u64 {
        let Some(frames) = job.streams[0].burst.map(u64::from) else {
            return 0;
        };
        let left_over = frames as f64 * (1.0 - self.capacity / self.most(job)) - self.buffer as f64;
        sent / frames * left_over.max(0.0).ceil() as u64
    }

    fn way(
        &mut self,
        job: &TrafficJob,
        trigger: Option<&Trigger>,
        mishap: Option<Mishap>,
    ) -> DirectionResult {
        let rate = Self::rate(job);
        let pace = rate.unwrap_or_else(|| self.most(job));
        if let Some(count) = job.count {
            let mut way = self.burst(count, pace);
            if let Some(Mishap::Sent(share)) = mishap {
                way.sent = (count as f64 * share) as u64;
                way.passed = way.passed.min(way.sent);
                way.read = way.passed;
            }
            return way;
        }
        let seconds = job.duration.unwrap().0.as_secs_f64();
        let mut asked = whole(pace, seconds);
        if let (Some(frames), Some(gap)) = (job.streams[0].burst, job.streams[0].gap) {
            let time = job.duration.unwrap().as_nanos();
            asked = time.div_ceil(gap.as_nanos()) * u64::from(frames);
        }
        let mut way = DirectionResult {
            asked,
            sent: asked.min(whole(self.ceiling, seconds)),
            took_s: seconds,
            silence_ns: (1e9 / pace) as i64,
            ..DirectionResult::default()
        };
        match mishap {
            Some(Mishap::Sent(share)) => way.sent = (way.sent as f64 * share) as u64,
            Some(Mishap::GivenUp(frames)) => way.sent -= frames,
            Some(Mishap::Longer(times)) => way.took_s *= times,
            Some(Mishap::SignalAfter(time)) => {
                way.took_s = time.as_secs_f64();
                way.asked = whole(pace, way.took_s);
                way.sent = way.asked;
            }
            Some(Mishap::Foreign(frames)) => way.foreign = frames,
            _ => {}
        }
        let capacity = self.passes.map_or(self.capacity, |of| of(pace));
        way.delay_ns = self.delay_ns;
        let mut lost = way.sent.saturating_sub(whole(capacity, seconds));
        if job.streams[0].burst.is_some() && pace <= self.capacity {
            // The whole last burst is sent, and its time is extended beyond the end.
            lost = self.lost_of_bursts(job, way.sent);
        }
        if let (Some(trial), Some(rate)) = (self.counts(job), rate)
            && lost == 0
        {
            lost = (self.noise)(trial, rate);
        }
        if let Some(Mishap::Stopped(away, times)) = mishap {
            let burst = whole(pace, away.as_secs_f64());
            lost = lost.max(burst.saturating_sub(self.buffer) * times);
        }
        if let Some(Mishap::LinkDown(_) | Mishap::Torn(_)) = mishap {
            lost = way.sent / 2;
        }
        let overload = pace * job.hold_load;
        if !job.hold.0.is_zero() && overload > self.capacity && !self.recovery.is_zero() {
            let after = (self.recovery.as_secs_f64() * pace).ceil() as u64;
            way.silent_end_s = self.silent_end.as_secs_f64();
            lost = lost.max((after + whole(pace, way.silent_end_s)).min(way.sent));
            let flows = u64::from(job.streams[0].flow_count());
            way.last_skipped = (after < way.sent).then(|| (after - 1) / flows);
        }
        if let (Some(outage), Some(trigger)) = (self.outage, trigger) {
            assert_eq!(trigger.command, outage.command);
            let lead = job.ramp.0 + job.hold.0;
            assert!(trigger.after >= lead && trigger.after < lead + job.duration.unwrap().0);
            let in_it = whole(pace, outage.length.as_secs_f64()).min(way.sent);
            let gap = (in_it + 1) as f64 / pace;
            match outage.ends {
                true => way.silence_ns = (gap * 1e9).round() as i64 + outage.wake_ns,
                false => way.silent_end_s = outage.length.as_secs_f64(),
            }
            match outage.takes_link {
                true => way.sent -= in_it,
                false => lost += in_it,
            }
        }
        way.streams = self.of_streams(job, &way, lost, seconds);
        let lost = way.streams.iter().map(|(_, lost)| lost).sum::<u64>();
        way.passed = way.sent - lost.min(way.sent);
        way.read = way.passed;
        let ours = Mishap::frames_of_ours;
        if let Some(frames) = mishap.and_then(ours) {
            way.read -= frames.min(way.read);
        }
        if let Some(Mishap::Refused(_)) = mishap {
            way.refused = way.passed - way.read;
        }
        way
    }

    /// The seconds between which no frame of a stream is forwarded.
    fn away_of(&self, stream: &Stream, seconds: f64) -> Option<(u64, u64)> {
        let (name, from, to) = self.away?;
        (stream.name == name && to as f64 <= seconds).then_some((from, to))
    }

    /// Frames sent by each stream according to its rate, and its losses: a share of the total loss, and for IPv6
    /// everything above the IPv6 capacity.
    fn of_streams(
        &self,
        job: &TrafficJob,
        way: &DirectionResult,
        lost: u64,
        seconds: f64,
    ) -> Vec<(u64, u64)> {
        let whole_rate = Self::rate(job);
        let mut left = (way.sent, lost.min(way.sent));
        let count = job.streams.len();
        let streams = job.streams.iter().enumerate().map(|(n, stream)| {
            let share = match (stream.rate, whole_rate) {
                (Rate::Pps(pps), Some(whole)) => pps.as_f64() / whole,
                _ => 1.0 / count as f64,
            };
            // The last one gets the rounding remainder.
            let of = |all: u64, left: u64| match n + 1 == count {
                true => left,
                false => ((all as f64 * share).round() as u64).min(left),
            };
            let sent = of(way.sent, left.0);
            let own = of(lost, left.1);
            left = (left.0 - sent, left.1 - own);
            let six = self.capacity6.filter(|_| stream.is_ipv6());
            let shared = self.shared.get(stream.name.as_str()).map(|(most, _)| *most);
            let most = six.into_iter().chain(shared).reduce(f64::min);
            let more = most.map_or(0, |most| sent.saturating_sub(whole(most, seconds)));
            let away = self.away_of(stream, seconds).map_or(0, |(from, to)| {
                whole(sent as f64 / seconds, (to - from) as f64)
            });
            (sent, own.max(more).max(away).min(sent))
        });
        streams.collect()
    }

    /// A burst of `count` frames.
    fn burst(&mut self, count: u64, pace: f64) -> DirectionResult {
        let left_over = count as f64 * (1.0 - self.capacity / pace) - self.buffer as f64;
        let lost = left_over.max(0.0).ceil() as u64;
        DirectionResult {
            asked: count,
            sent: count,
            passed: count - lost,
            read: count - lost,
            took_s: count as f64 / pace,
            silence_ns: (1e9 / pace) as i64,
            delay_ns: self.delay_ns,
            ..DirectionResult::default()
        }
    }

    /// Number of the trial, unless it measures the tester's ceiling.
    fn counts(&self, job: &TrafficJob) -> Option<u32> {
        (Self::rate(job).is_some() || job.count.is_some()).then_some(self.trials)
    }

    fn job(
        &self,
        name: &str,
        ends: [&Option<String>; 2],
        job: &TrafficJob,
        way: &DirectionResult,
    ) -> JobReport {
        let doubled = self.doubles.map_or(0, |every| way.read / every);
        let size = mean_size(job) as u64;
        let dropped = way.passed - way.read - way.refused;
        JobReport {
            outages: None,
            incomplete: None,
            clock: None,
            round_trip_mean_ns: None,
            name: name.to_owned(),
            tx: ends[0].clone(),
            rx: ends[1].clone(),
            totals: Totals {
                intended_frames: Some(way.asked),
                offered_frames: Some(way.sent),
                unsent_frames: Some(way.asked - way.sent),
                received_frames: Some(way.read + doubled),
                lost_frames: Some(way.sent - way.read),
                duplicate_frames: Some(doubled),
                reordered_frames: Some(0),
                late_frames: Some(0),
                foreign_frames: Some(way.foreign),
                rx_dropped_frames: Some(dropped),
                offered_octets: Some(way.sent * size),
                received_octets: Some((way.read + doubled) * size),
                ..Totals::default()
            },
            rates: Rates {
                tx_time_ns: Some((way.took_s * 1e9).round() as u64),
                rx_time_ns: Some(((way.took_s - way.silent_end_s) * 1e9).round() as u64),
                ..Rates::default()
            },
            latency_ns: Summary {
                max: (way.read > 0).then_some(way.delay_ns + self.jitter_ns),
                ..constant(way.delay_ns, way.read)
            },
            ipdv_ns: constant(0, way.read.saturating_sub(1)),
            pdv_ns: constant(0, way.read),
            inter_arrival_ns: Summary {
                max: (way.read > 1).then_some(way.silence_ns),
                ..Summary::default()
            },
            last_skipped: way.last_skipped,
            streams: job
                .streams
                .iter()
                .enumerate()
                .map(|(n, stream)| {
                    let own = way.streams.get(n).copied();
                    StreamReport {
                        first_flow: first_flow(way, job, n),
                        flows: stream.flow_count(),
                        totals: Totals {
                            intended_frames: own.map(|(sent, _)| sent + way.unsent_of(n)),
                            unsent_frames: own.map(|_| way.unsent_of(n)),
                            offered_frames: own.map(|(sent, _)| sent),
                            received_frames: own.map(|(sent, lost)| sent - lost),
                            lost_frames: own.map(|(_, lost)| lost),
                            duplicate_frames: own.map(|_| 0),
                            ..Totals::default()
                        },
                        ..StreamReport::default()
                    }
                })
                .collect(),
        }
    }

    /// Results of a load with periodic requests.
    fn asking(&self, plan: &LoadJob) -> LoadJobReport {
        let time = plan.shape.duration.as_nanos();
        let requests = time.div_ceil(plan.interval.as_nanos());
        let mut report = LoadJobReport {
            name: plan.name.clone(),
            end: LoadEnd::Client,
            ..LoadJobReport::default()
        };
        report.totals.requests = requests;
        if !plan.flood && self.agent != Agent::Silent {
            report.totals.responses = requests;
        }
        if !plan.flood && self.agent == Agent::Errs {
            report.counters = [("snmp_errors".to_owned(), requests)].into();
        }
        // A flow without any answer has failed.
        if !plan.flood && self.agent == Agent::Silent {
            report.totals.attempted_connections = 1;
            report.totals.failed_connections = 1;
        }
        report
    }

    fn client(&self, plan: &LoadJob, mishap: Option<Mishap>) -> LoadJobReport {
        if !plan.interval.0.is_zero() && plan.name != BESIDE {
            return self.asking(plan);
        }
        let seconds = plan.shape.duration.0.as_secs_f64();
        let mut phase = LoadPhaseReport {
            phase: "steady".to_owned(),
            to_ns: plan.shape.duration.as_nanos(),
            ..LoadPhaseReport::default()
        };
        let mut report = LoadJobReport {
            name: plan.name.clone(),
            end: LoadEnd::Client,
            ..LoadJobReport::default()
        };
        let rate = &plan.rate;
        let most = whole(self.most_begun, seconds);
        if let Some(cc) = rate.cc {
            // The rate rises evenly, and connections that are not open after the ramp are not offered.
            let ramp = plan.shape.ramp.0.as_secs_f64();
            let cc = cc.min(whole(rate.cps.unwrap() as f64, ramp / 2.0));
            let failed = cc.saturating_sub(self.cc);
            phase.totals = ConnectionTotals {
                attempted_connections: cc,
                established_connections: cc - failed,
                failed_connections: failed,
                open_connections: cc - failed,
                ..ConnectionTotals::default()
            };
        } else if let Some(rps) = rate.rps {
            let asked = whole(rps as f64, seconds);
            let due = asked.min(most);
            let sent = due.min(whole(self.free, seconds));
            report.unsent_requests = asked - due;
            report.waited_requests = due - sent;
            phase.totals = ConnectionTotals {
                established_connections: 1,
                requests: sent,
                responses: sent.min(whole(self.rps, seconds)),
                ..ConnectionTotals::default()
            };
        } else {
            let asked = whole(rate.cps.unwrap() as f64, seconds);
            let begun = asked.min(most);
            report.unsent_connections = asked - begun;
            let completed = begun.min(whole(self.cps, seconds));
            phase.totals = ConnectionTotals {
                attempted_connections: begun,
                established_connections: completed,
                completed_connections: completed,
                failed_connections: begun - completed,
                requests: completed,
                responses: completed,
                ..ConnectionTotals::default()
            };
        }
        if plan.name == BESIDE {
            let totals = &mut phase.totals;
            match mishap {
                Some(Mishap::BesideFails(n) | Mishap::BesideExposed(n)) => {
                    totals.failed_connections += n;
                    totals.completed_connections -= n;
                }
                Some(Mishap::BesideUnsent(n)) => {
                    report.unsent_connections += n;
                    totals.attempted_connections -= n;
                    totals.completed_connections -= n;
                    totals.requests -= n;
                    totals.responses -= n;
                }
                _ => {}
            }
        }
        report.totals = phase.totals;
        report.phases = vec![phase];
        report
    }

    fn lateness(plan: &Plan, mishap: Option<Mishap>) -> Lateness {
        let mut late = Lateness::default();
        let pace = plan.traffic.first().and_then(Self::rate).unwrap_or(0.0);
        match mishap {
            Some(Mishap::Stopped(away, times)) => {
                let ns = away.as_nanos() as u64;
                (late.largest_gap_ns, late.stalls, late.stalled_ns) = (ns, times, ns * times);
                late.late_departures = whole(pace, away.as_secs_f64()) * times;
            }
            Some(Mishap::GivenUp(frames)) => {
                (late.largest_gap_ns, late.stalls) = (80_000_000, 1);
                (late.stalled_ns, late.missed_departures) = (80_000_000, frames);
            }
            Some(Mishap::LeftUnread(frames)) => {
                (late.largest_gap_ns, late.stalls) = (80_000_000, 1);
                (late.stalled_ns, late.dropped_reads) = (80_000_000, frames);
            }
            Some(Mishap::BesideExposed(connections)) => {
                (late.largest_gap_ns, late.stalls) = (300_000_000, 1);
                (late.stalled_ns, late.exposed_connections) = (300_000_000, connections);
            }
            _ => {}
        }
        late
    }

    fn reading(&self) -> DeviceReading {
        let counters = [("dut.forwarded".to_owned(), self.forwarded)].into();
        DeviceReading {
            counters,
            ..DeviceReading::default()
        }
    }

    fn ports(&self, plan: &Plan, mishap: Option<Mishap>) -> Vec<PortReport> {
        let report = |(n, port): (usize, &PortPlan)| PortReport {
            name: port.name.clone(),
            locator: port.locator.to_string(),
            speed_bps: self.line_bps,
            speed_nominal: self.line_bps.is_none(),
            timestamp_source: "nic".to_owned(),
            link_downs: u64::from(
                n == 1 && matches!(mishap, Some(Mishap::LinkDown(_) | Mishap::Torn(_))),
            ),
            interface_drops: match mishap {
                Some(Mishap::Refused(frames)) if n == 1 => frames,
                _ => 0,
            },
            before: BTreeMap::new(),
            ..PortReport::default()
        };
        plan.ports.iter().enumerate().map(report).collect()
    }
}

impl Bench for Device {
    type Error = Gone;

    fn run(&mut self, plan: Plan, trigger: Option<&Trigger>) -> Result<PlanRun, Gone> {
        assert!(plan.validate().is_ok(), "{:?}", plan.validate());
        self.runs += 1;
        let is_engine = plan
            .ports
            .iter()
            .all(|port| port.locator.driver == Some(Driver::Memory));
        let is_ceiling = plan
            .traffic
            .first()
            .is_some_and(|job| Self::rate(job).is_none() && job.count.is_none());
        let mut mishap = None;
        if is_ceiling && !is_engine {
            mishap = self.hindered.pop().map(Mishap::Sent);
        } else if !is_engine {
            self.trials += 1;
            let load = plan.traffic.first();
            let load = load.and_then(|job| Self::rate(job).or(job.count.map(|n| n as f64)));
            mishap = (self.mishap)(self.trials, load.unwrap_or(0.0));
        }
        if let Some(Mishap::Gone) = mishap {
            return Err(Gone);
        }
        let before = self.reading();
        let mut jobs = Vec::new();
        let mut time = Duration::ZERO;
        let mut timeline = Timeline::default();
        let mut flows = Vec::new();
        for (n, job) in plan.traffic.iter().enumerate() {
            // A signal ends everything.
            let of_all = |mishap: &Mishap| matches!(mishap, Mishap::SignalAfter(_));
            let own = mishap.filter(|mishap| n == 0 || of_all(mishap));
            let name = match job.name.as_str() {
                "" => format!("job {}", n + 1),
                name => name.to_owned(),
            };
            let mut way = self.way(job, trigger, own);
            way.first_flow = 1000 * n as u32;
            self.forwarded += way.passed;
            self.record(&mut timeline, &name, job, &way);
            flows.extend(self.flows(job, &way));
            jobs.push(self.job(&name, [&job.tx, &job.rx], job, &way));
            if job.bidir {
                // Disturbances affect only one direction.
                let forth = self.capacity;
                self.capacity = self.capacity_back.unwrap_or(forth);
                let way = self.way(job, trigger, None);
                self.capacity = forth;
                jobs.push(self.job(&name, [&job.rx, &job.tx], job, &way));
            }
            let sending = Duration::from_secs_f64(way.took_s);
            time = time.max(job.ramp.0 + job.hold.0 + sending + job.drain.0);
        }
        let loads = plan.loads.iter().filter(|l| l.end == LoadEnd::Client);
        let clients: Vec<LoadJobReport> = loads
            .map(|load| {
                let shape = &load.shape;
                time = time.max(shape.ramp.0 + shape.duration.0 + shape.drain.0);
                self.client(load, mishap)
            })
            .collect();
        self.now += (time + self.overhead).as_nanos() as u64;
        if let Some(Mishap::LinkDown(looks) | Mishap::Torn(looks)) = mishap {
            self.looks = looks;
        }
        let mut ports = self.ports(&plan, mishap);
        if trigger.is_some() && self.outage.is_some_and(|outage| outage.takes_link) {
            ports[0].link_downs = 1;
        }
        for job in &jobs {
            assert!(job.totals.adds_up(), "{job:?}");
        }
        self.plans.push(plan.clone());
        Ok(PlanRun {
            report: Report {
                kind: plan.kind.clone(),
                verdict: Verdict::Pass,
                lateness: LatenessReport {
                    all: Self::lateness(&plan, mishap),
                    may_have_caused: None,
                },
                limited_by: self
                    .blamed
                    .clone()
                    .map(|by| by.because("").into())
                    .unwrap_or_default(),
                load: (!clients.is_empty()).then_some(LoadReport { jobs: clients }),
                jobs,
                ports,
                plan,
                timeline,
                flows,
                ..Report::default()
            },
            readings: vec![before, self.reading()],
            misfire: self
                .misfire
                .filter(|_| trigger.is_some())
                .map(str::to_owned),
            cut: match mishap {
                Some(Mishap::Signal | Mishap::SignalAfter(_)) => Some(CutReason::Signal),
                Some(Mishap::Fault(text)) => Some(CutReason::Fault(text.to_owned())),
                Some(Mishap::Torn(_)) => Some(CutReason::Fault("a worker ended".to_owned())),
                _ => None,
            },
        })
    }

    fn read(&mut self) -> DeviceReading {
        self.reading()
    }

    fn links_are_up(&mut self, _: &[PortPlan]) -> bool {
        let down = self.looks > 0;
        if self.looks != u32::MAX {
            self.looks = self.looks.saturating_sub(1);
        }
        !down
    }

    fn wait_for(&mut self, time: Duration) {
        self.now += time.as_nanos() as u64;
    }

    fn now_ns(&mut self) -> u64 {
        self.now
    }

    fn is_stopped(&mut self) -> bool {
        self.trials >= self.stop_after
    }

    fn report_progress(&mut self, live: BenchLive) {
        self.told.push(live);
    }
}
