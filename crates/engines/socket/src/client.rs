//! The client of a socket test: agrees on it with a server, moves the data and reports.
//!
//! The thread that calls [`run_job`] is the control thread: it talks to the servers, checks the clock and the stop
//! request, and reads counters. Each stream has a thread and a control connection; all streams start together.

use std::{net::SocketAddr, time::Duration};

use wb_measure::{ConfidenceLevel, Histogram, interval_width};
use wb_model::{
    socket::{
        ConfidenceReport, CpuUse, SocketFigures, SocketJob, SocketJobReport, SocketLive,
        SocketStage, SocketStreamReport, SocketTest,
    },
    units::Span,
};
use wb_netperf_wire::{Calibration, Passphrase, Request};

use crate::{StopRequest, agreement::StreamLength, host::Host};
use control::{ClientControl, Silence};
use failure::{answer_failure, stage_failure};
use figures::{add_datagrams, confidence_result, datagram_report, mean_figures, sum_figures};
use iteration::{IterationParameters, IterationResult, IterationSettings, JobStream};
use remote_answers::RemoteResults;
use role::StreamRole;
use stream_watch::SocketTimeouts;
use target::ResolvedTarget;
use wb_wire::SplitMix64;
use window::fairness;

mod conclude;
mod connect_loop;
mod control;
mod failure;
mod figures;
mod granted_extensions;
mod interval;
mod iteration;
mod ports;
mod prepare;
mod remote_answers;
mod request;
mod role;
mod shared_stream;
mod stream_thread;
mod stream_watch;
mod target;
#[cfg(test)]
mod tests;
mod window;

/// Position of a job in its plan, and the seed of its random numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobPlace {
    /// Index, from 0.
    pub index: u32,
    /// Number of jobs.
    pub count: u32,
    /// Seed of random ports and addresses, for repeatable runs.
    pub seed: u64,
}

/// Carries out a job, from name resolution to the means over its iterations.
///
/// Failures are reported in `failure` of the report, together with the results measured until then. `stop` ends the job
/// normally, with the results of the shorter time. `observe` is called at the end of each interval of `job.interim`.
pub fn run_job(
    job: &SocketJob,
    place: JobPlace,
    host: &dyn Host,
    stop: &StopRequest,
    observe: &mut dyn FnMut(&SocketLive),
) -> SocketJobReport {
    run_with_timeouts(job, place, host, stop, observe, SocketTimeouts::default())
}

fn run_with_timeouts(
    job: &SocketJob,
    place: JobPlace,
    host: &dyn Host,
    stop: &StopRequest,
    observe: &mut dyn FnMut(&SocketLive),
    timeouts: SocketTimeouts,
) -> SocketJobReport {
    let mut report = SocketJobReport {
        name: if job.name.is_empty() {
            format!("test {}", place.index + 1)
        } else {
            job.name.clone()
        },
        point: job.point.clone(),
        test: job.test,
        protocol: job.protocol,
        ..SocketJobReport::default()
    };
    let target = match ResolvedTarget::resolve(job, host) {
        Ok(target) => target,
        Err(failed) => {
            report.failure = Some(failed);
            return report;
        }
    };
    report.server_name.clone_from(&target.name);
    let settings = IterationSettings {
        job,
        place,
        host,
        stop,
        target: &target,
        timeouts,
    };
    let mut run = JobRun {
        settings,
        random: SplitMix64(place.seed),
        report,
        histogram: Histogram::new(),
        idle: Histogram::new(),
    };
    match run.connect() {
        Ok(mut streams) => {
            run.run_iterations(&mut streams, observe);
            let controls = streams.into_iter().filter_map(|stream| stream.control);
            ClientControl::close(controls.collect(), timeouts.drain, stop);
        }
        Err(silence) => run.record_silence(silence),
    }
    run.report
}

/// A running job.
struct JobRun<'a> {
    settings: IterationSettings<'a>,
    random: SplitMix64,
    report: SocketJobReport,
    /// Operation times over all iterations.
    histogram: Histogram,
    /// Operation times before the path was loaded.
    idle: Histogram,
}

impl JobRun<'_> {
    fn record_silence(&mut self, silence: Silence) {
        match silence {
            Silence::Stopped => self.add_warning("the test was stopped before it started"),
            Silence::Failed(failed) => self.report.failure = Some(failed),
        }
    }

    fn add_warning(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.report.warnings.contains(&what) {
            self.report.warnings.push(what);
        }
    }

    /// Opens all control connections in turn and sends the passphrase on each.
    fn connect(&mut self) -> Result<Vec<JobStream>, Silence> {
        let job = self.settings.job;
        if job.control.none && job.test == SocketTest::Receive && !job.protocol.connects() {
            let what = "a service that answers each datagram with one cannot send a stream";
            return Err(Silence::Failed(stage_failure(SocketStage::Data, what)));
        }
        let mut roles = Vec::new();
        for number in 0..job.streams {
            let of_one = StreamRole::of_test(job.test).iter();
            roles.extend(of_one.map(|role| (*role, false, number)));
        }
        // Every second stream loads the return path.
        for number in 0..job.load_streams {
            let role = if number % 2 == 0 {
                StreamRole::Up
            } else {
                StreamRole::Down
            };
            roles.push((role, true, number));
        }
        if roles.is_empty() {
            roles.push((StreamRole::Cc, false, 0));
        }
        let mut streams = Vec::with_capacity(roles.len());
        for (place, (role, load, number)) in roles.into_iter().enumerate() {
            let control = if job.control.none {
                None
            } else {
                Some(self.open_control()?)
            };
            let kind = if load { "load " } else { "" };
            streams.push(JobStream {
                role,
                load,
                // At most 3 · 512.
                number: u16::try_from(place).unwrap_or(u16::MAX),
                name: format!("{kind}{} {}", role.name(), number + 1),
                control,
            });
        }
        Ok(streams)
    }

    fn open_control(&mut self) -> Result<ClientControl, Silence> {
        let IterationSettings {
            job, stop, target, ..
        } = self.settings;
        let mut control = ClientControl::connect(target, stop)?;
        if self.report.server.is_empty() {
            self.report.server = control.peer.to_string();
            self.report.client = control.local.ip().to_string();
        }
        if let Some(passphrase) = &job.control.passphrase {
            let passphrase = Passphrase::new(passphrase.as_bytes()).ok_or_else(|| {
                let what = format!(
                    "the passphrase is longer than {} bytes",
                    Passphrase::MAX_LEN
                );
                Silence::Failed(stage_failure(SocketStage::Control, what))
            })?;
            control.send(&Request::Passphrase(passphrase), stop)?;
        }
        Ok(control)
    }

    fn run_iterations(&mut self, streams: &mut [JobStream], observe: &mut dyn FnMut(&SocketLive)) {
        let job = self.settings.job;
        if job.test == SocketTest::ServerCpu {
            if let Err(silence) = self.ask_cpu_method(streams) {
                self.record_silence(silence);
            }
            return;
        }
        if job.warm_up > Span::default() && !self.warm_up(streams) {
            return;
        }
        let (least, most) = match &job.confidence {
            Some(confidence) => (confidence.min.max(1), confidence.max.max(confidence.min)),
            None => (1, 1),
        };
        for iteration in 1..=most.max(1) {
            if iteration > 1 && self.settings.stop.is_set() {
                break;
            }
            if !self.run_iteration(streams, iteration, observe) {
                break;
            }
            let reached = self.update_confidence();
            if iteration >= least && reached {
                break;
            }
        }
        self.finish();
    }

    /// Length of a stream of this job.
    fn stream_length(&self) -> StreamLength {
        let job = self.settings.job;
        match (job.test, job.amount, job.duration) {
            (_, Some(amount), _) => StreamLength::Amount(amount),
            (_, None, Some(duration)) => StreamLength::Time(duration.0),
            (_, None, None) => StreamLength::Open,
        }
    }

    /// Runs the warm-up, which is not reported. Returns true if the test continues.
    fn warm_up(&mut self, streams: &mut [JobStream]) -> bool {
        let turn = IterationParameters {
            length: StreamLength::Time(self.settings.job.warm_up.0),
            omit: Duration::ZERO,
            interim: None,
            record: false,
            iteration: 0,
        };
        let chosen = foreground_streams(streams);
        let round = iteration::run(self.settings, chosen, turn, &mut self.random, &mut |_| {});
        let goes_on = round.failure.is_none() && !round.wished;
        if let Some(mut failed) = round.failure {
            failed.what = format!("warm-up: {}", failed.what);
            self.report.failure = Some(failed);
        } else if round.wished {
            self.add_warning("the test was stopped before it started");
        }
        goes_on
    }

    /// Runs one iteration. Returns true if another one may follow.
    fn run_iteration(
        &mut self,
        streams: &mut [JobStream],
        iteration: u32,
        observe: &mut dyn FnMut(&SocketLive),
    ) -> bool {
        let job = self.settings.job;
        let turn = IterationParameters {
            length: self.stream_length(),
            omit: if job.amount.is_some() {
                Duration::ZERO
            } else {
                job.omit.0
            },
            interim: job.interim.map(|interim| interim.0),
            record: job.latency || job.load_streams > 0,
            iteration,
        };
        if job.load_streams > 0 {
            let idle = IterationParameters {
                interim: None,
                ..turn
            };
            let chosen = foreground_streams(streams);
            let round = iteration::run(self.settings, chosen, idle, &mut self.random, &mut |_| {});
            for measured in &round.measured {
                if let Some(histogram) = &measured.outcome.histogram {
                    self.idle.merge(histogram);
                }
            }
            self.report.idle_latency_ns = Some(self.idle.summary());
            if round.failure.is_some() || round.wished {
                self.add_round(round);
                return false;
            }
        }
        let round = iteration::run(self.settings, streams, turn, &mut self.random, observe);
        let goes_on = round.failure.is_none() && !round.wished;
        for measured in &round.measured {
            if let Some(histogram) = &measured.outcome.histogram {
                self.histogram.merge(histogram);
            }
        }
        self.add_round(round);
        goes_on
    }

    /// Adds an iteration to the report. The partial results of a failed iteration are kept, but it does not count.
    fn add_round(&mut self, round: IterationResult) {
        let job = self.settings.job;
        for warning in &round.warnings {
            self.add_warning(warning.clone());
        }
        if round.measured.is_empty() {
            // No data moved: keep the results of the iterations before.
            match round.failure {
                Some(failed) => self.report.failure = Some(failed),
                None if self.report.iterations.is_empty() => {
                    self.add_warning("the test was stopped before it started");
                }
                None => {}
            }
            return;
        }
        let figures = sum_figures(job.test, &round.measured, round.local_cpu, round.remote_cpu);
        let report = &mut self.report;
        report.extended = round.extended;
        report.data_server = address_text(round.data_server);
        report.data_client = address_text(round.data_client);
        let mut rows: Vec<SocketStreamReport> = Vec::new();
        let mut shares = Vec::new();
        let mut load = 0.0;
        report.datagrams = None;
        for (measured, name) in round.measured.iter().zip(round.names) {
            let share = measured.share();
            let tally = &measured.outcome.tally;
            let known = measured.outcome.effective.as_ref();
            let remote = measured.remote.as_ref();
            // For a stream, the sender's TCP statistics matter.
            let (again, tcp) = match measured.role {
                StreamRole::Down => (
                    remote.and_then(|remote| remote.retransmissions),
                    remote.and_then(RemoteResults::tcp_sample),
                ),
                _ => {
                    let tcp = known.and_then(|known| known.tcp);
                    (tcp.map(|tcp| tcp.retransmissions.into()), tcp)
                }
            };
            let seen = remote.and_then(|remote| remote.extension?.datagrams);
            let of_one = match (&measured.outcome.tags, remote, seen) {
                (Some(tags), Some(remote), _) => Some(tags.datagram_report(remote.send_calls)),
                (None, _, Some(seen)) => Some(datagram_report(tally.send_calls, &seen)),
                _ => None,
            };
            rows.push(SocketStreamReport {
                name,
                throughput_bps: share.bits_per_second,
                transactions_per_second: share.transactions_per_second,
                bytes_sent: tally.bytes_sent,
                bytes_received: tally.bytes_received,
                remote_bytes_sent: remote.map(|remote| remote.bytes_sent),
                remote_bytes_received: remote.map(|remote| remote.bytes_received),
                retransmissions: again,
                tcp,
                datagrams: of_one,
                latency_ns: measured
                    .outcome
                    .histogram
                    .as_ref()
                    .map(Histogram::summary)
                    .unwrap_or_default(),
                omitted: measured.omitted,
                remote_omitted: remote.and_then(|remote| remote.omitted_part(measured.omit)),
            });
            if measured.load {
                load += share.bits_per_second;
                continue;
            }
            shares.push(if measured.role.is_stream() {
                share.bits_per_second
            } else {
                share.transactions_per_second
            });
            report.segment_bytes = report
                .segment_bytes
                .or(known.and_then(|known| known.segment));
            if let Some(of_one) = of_one {
                report.datagrams = Some(add_datagrams(report.datagrams, of_one));
            }
        }
        report.load_bps = (job.load_streams > 0).then_some(load);
        report.fairness = fairness(&shares);
        report.streams = rows;
        report.local = round.local;
        report.remote = round.remote;
        report.intervals = round.intervals;
        match round.failure {
            None => report.iterations.push(figures),
            Some(failed) => {
                report.failure = Some(failed);
                if report.iterations.is_empty() {
                    report.result = figures;
                }
            }
        }
    }

    /// Returns true if the means are known well enough, or no confidence was requested.
    fn update_confidence(&mut self) -> bool {
        let job = self.settings.job;
        let Some(asked) = &job.confidence else {
            return true;
        };
        let Some(level) = ConfidenceLevel::from_percent(asked.level) else {
            return true;
        };
        let iterations = &self.report.iterations;
        let width = |of: &dyn Fn(&SocketFigures) -> f64| {
            let values: Vec<f64> = iterations.iter().map(of).collect();
            interval_width(level, &values)
        };
        let use_of = |cpu: &Option<CpuUse>| cpu.map_or(-1.0, |cpu| cpu.total);
        let found = (
            width(&|figures| confidence_result(job.test, figures)),
            width(&|figures| use_of(&figures.local_cpu)),
            width(&|figures| use_of(&figures.remote_cpu)),
        );
        let (Some(result), Some(local_cpu), Some(remote_cpu)) = found else {
            // One repetition gives no variance.
            return false;
        };
        let cpus = asked.result_only || local_cpu <= asked.width && remote_cpu <= asked.width;
        let reached = result <= asked.width && cpus;
        self.report.confidence = Some(ConfidenceReport {
            level: asked.level,
            width: asked.width,
            reached,
            result,
            local_cpu,
            remote_cpu,
        });
        reached
    }

    fn finish(&mut self) {
        let report = &mut self.report;
        if !report.iterations.is_empty() {
            report.result = mean_figures(&report.iterations);
        }
        report.latency_ns = self.histogram.summary();
        let p95 = self.histogram.percentile(95.0);
        report.latency_p95_ns = p95.and_then(|ns| i64::try_from(ns).ok());
    }

    /// Asks the server how it measures its CPUs.
    fn ask_cpu_method(&mut self, streams: &mut [JobStream]) -> Result<(), Silence> {
        let IterationSettings { stop, timeouts, .. } = self.settings;
        let Some(control) = streams
            .first_mut()
            .and_then(|stream| stream.control.as_mut())
        else {
            let what = "the server's CPUs are asked for on the control connection";
            return Err(Silence::Failed(stage_failure(SocketStage::Control, what)));
        };
        control.send(&Request::CpuCalibrate, stop)?;
        // netperf 2.7 waits longer for this message, because old machines took long to calibrate.
        let wait = timeouts.answer + timeouts.answer / 3;
        let message = control.receive("calibration", wait, stop)?;
        let said = Calibration::parse(&message)
            .map_err(|error| Silence::Failed(answer_failure("calibration", &error)))?;
        let figures = SocketFigures {
            remote_cpu: Some(CpuUse {
                // netperf prints the rate of an idle CPU; on Linux this is ticks per second.
                total: said.rate.into(),
                cpus: said.cpus,
                peak_cpu: -1,
                ..CpuUse::default()
            }),
            ..SocketFigures::default()
        };
        self.report.result = figures;
        self.report.iterations = vec![figures];
        Ok(())
    }
}

/// The streams without the load streams, which are last.
fn foreground_streams(streams: &mut [JobStream]) -> &mut [JobStream] {
    let count = streams.iter().filter(|stream| !stream.load).count();
    &mut streams[..count]
}

fn address_text(address: Option<SocketAddr>) -> String {
    address
        .map(|address| address.to_string())
        .unwrap_or_default()
}
