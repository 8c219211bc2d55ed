//! End of an iteration: collects the servers' results and completes the report.

use std::time::{Duration, Instant};

use wb_model::{
    counted,
    socket::{
        SocketEndReport, SocketFailure, SocketOmitted, SocketProtocol, SocketStage, SocketTest,
    },
};
use wb_netperf_wire::{ClassicKind, Request};

use super::{
    control::{ClientControl, Silence},
    failure::{answer_failure, stage_failure},
    figures::{StreamMeasurement, mean_cpu},
    iteration::{IterationParameters, IterationResult, IterationSettings, JobStream},
    remote_answers::RemoteResults,
    role::StreamRole,
    stream_thread::StreamThreadOutcome,
    stream_watch::WatchResult,
    window::{CounterReading, WindowReadings},
};
use crate::{StopRequest, cpu::clamp_shares};

/// Datagram requests that are answered at all are answered within this time.
const SILENT: Duration = Duration::from_secs(1);

/// Collects the results of the servers and finishes the iteration.
pub(super) fn conclude_iteration(
    settings: IterationSettings<'_>,
    streams: &mut [JobStream],
    turn: IterationParameters,
    (mut outcomes, watched): (Vec<StreamThreadOutcome>, WatchResult),
    (kinds, told_end): (&[Option<ClassicKind>], &[bool]),
    round: &mut IterationResult,
) {
    let job = settings.job;
    round.wished |= watched.wished;
    round.intervals = watched.intervals;
    for outcome in &mut outcomes {
        for warning in std::mem::take(&mut outcome.warnings) {
            round.add_warning(warning);
        }
    }
    // The server's own message explains what our sockets saw.
    let mut failed = round.failure.take().or(watched.failure);
    if failed.is_none() {
        failed = outcomes
            .iter_mut()
            .find_map(|outcome| outcome.failure.take());
    }
    if failed.is_none() && !round.wished {
        failed = not_connected(settings, &outcomes);
    }
    let early = round.wished;
    let mut due = ResultsDeadline(None);
    let mut remote: Vec<Option<RemoteResults>> = Vec::new();
    for ((stream, kind), end) in streams.iter_mut().zip(kinds).zip(told_end) {
        let mut results = None;
        if outcomes.is_empty() {
            break;
        }
        if let Some(control) = &mut stream.control
            && failed
                .as_ref()
                .is_none_or(|failed| failed.stage != SocketStage::Control)
        {
            let asked = ResultsRequest {
                role: stream.role,
                end: *end,
                early,
                failed: failed.is_some(),
                ends_by_data: job.protocol.connects() && !stream.role.connects_each(),
                timed: turn.length.unit_limit().is_none(),
                kind: *kind,
                cpu: job.remote.measure_cpu,
            };
            match results_of(control, asked, &mut due, settings) {
                Ok(remote) => results = Some(remote),
                Err(what) if early && failed.is_none() => round.add_warning(format!(
                    "the test was stopped early and the server's results are missing: {}",
                    what.what
                )),
                Err(what) if stream.load && failed.is_none() => round.add_warning(format!(
                    "{}: the server's results are missing: {}",
                    stream.name, what.what
                )),
                Err(what) => {
                    let explains = failed.is_none() || what.stage == SocketStage::Remote;
                    if explains {
                        failed = Some(what);
                    }
                }
            }
        }
        remote.push(results);
    }
    round.failure = failed;
    if job.test == SocketTest::Rr && job.protocol.is_datagram() && watched.silence > SILENT {
        round.add_warning(format!(
            "no datagram arrived in the last {:.1} s: one was lost and the test waited for it; with a timeout (-e) the test continues",
            watched.silence.as_secs_f64()
        ));
    }
    measure_iteration(
        settings,
        streams,
        turn,
        outcomes,
        (watched.spans, watched.omitted),
        remote,
        round,
    );
}

/// Reports a data connection that was never made although no stop was requested.
fn not_connected(
    settings: IterationSettings<'_>,
    outcomes: &[StreamThreadOutcome],
) -> Option<SocketFailure> {
    let missing =
        settings.job.protocol.connects() && outcomes.iter().any(|outcome| !outcome.connected);
    missing.then(|| {
        stage_failure(
            SocketStage::Data,
            "the data connection was not established before the end of the test",
        )
    })
}

#[derive(Clone, Copy)]
struct ResultsRequest {
    role: StreamRole,
    /// The server must receive an explicit end message.
    end: bool,
    /// A stop was requested.
    early: bool,
    failed: bool,
    /// Closing the data connection signals the end to the server.
    ends_by_data: bool,
    timed: bool,
    kind: Option<ClassicKind>,
    cpu: bool,
}

/// Deadline for results that may never arrive. All servers share it, so the number of streams does not extend it.
struct ResultsDeadline(Option<Instant>);

impl ResultsDeadline {
    /// Time left. The first call sets the deadline to `limit` from now.
    fn time_left(&mut self, limit: Duration) -> Duration {
        let now = Instant::now();
        self.0
            .get_or_insert(now + limit)
            .saturating_duration_since(now)
    }
}

fn results_of(
    control: &mut ClientControl,
    asked: ResultsRequest,
    due: &mut ResultsDeadline,
    settings: IterationSettings<'_>,
) -> Result<RemoteResults, SocketFailure> {
    let never = StopRequest::never();
    let timeouts = settings.timeouts;
    if control.server_failure().is_none()
        && asked.end
        && !asked.ends_by_data
        && (asked.timed || asked.early || asked.failed)
        && asked.role != StreamRole::Down
        && !control.has_message()
    {
        // A broken connection is noticed during the wait for results.
        let _ = control.send(&Request::End, &never);
    }
    let knows = asked.end || asked.ends_by_data && asked.role != StreamRole::Down;
    let message = if asked.failed {
        control.receive("results", due.time_left(Duration::from_secs(1)), &never)
    } else if asked.early {
        let limit = if knows {
            timeouts.wished
        } else {
            timeouts.untold
        };
        control.receive("results", due.time_left(limit), &never)
    } else {
        match control.receive("results", timeouts.answer, settings.stop) {
            Err(Silence::Stopped) => {
                control.receive("results", due.time_left(timeouts.wished), &never)
            }
            other => other,
        }
    };
    match message {
        Ok(message) => RemoteResults::parse(&message, asked.kind, asked.cpu)
            .map_err(|error| answer_failure("results", &error)),
        Err(Silence::Failed(failed)) => Err(failed),
        // This wait cannot be stopped.
        Err(Silence::Stopped) => Err(stage_failure(SocketStage::Control, "the wait was stopped")),
    }
}

fn measure_iteration(
    settings: IterationSettings<'_>,
    streams: &[JobStream],
    turn: IterationParameters,
    outcomes: Vec<StreamThreadOutcome>,
    (spans, omitted): (Option<Vec<WindowReadings>>, Option<Vec<CounterReading>>),
    remote: Vec<Option<RemoteResults>>,
    round: &mut IterationResult,
) {
    let job = settings.job;
    let in_common = streams.len() > 1 || turn.omit > Duration::ZERO;
    if in_common && spans.is_none() && round.failure.is_none() && !outcomes.is_empty() {
        round.add_warning(
            "the streams did not run at the same time; each result covers its own time",
        );
    }
    let mut spans = spans.filter(|_| in_common).map(Vec::into_iter);
    let mut omitted = omitted.map(Vec::into_iter);
    let mut cpus = Vec::new();
    for ((stream, outcome), remote) in streams.iter().zip(outcomes).zip(remote) {
        let span = spans.as_mut().and_then(Iterator::next);
        let omitted = omitted.as_mut().and_then(Iterator::next);
        let omitted = omitted.map(|reading| reading.omitted_part());
        if let Some(remote) = &remote {
            cpus.extend(remote.cpu);
            // A server that may not, or cannot, set it continues with its current algorithm and reports no error.
            if let Some(wanted) = &job.remote.congestion
                && !remote.congestion.is_empty()
                && remote.congestion != *wanted
            {
                round.add_warning(format!(
                    "the server uses congestion control {}, not {wanted}",
                    remote.congestion
                ));
            }
            if !stream.load {
                remote.add_to(&mut round.remote);
                add_omitted(remote.omitted_part(turn.omit), &mut round.remote);
            }
        }
        if !stream.load {
            add_outcome(&outcome, &mut round.local);
            add_omitted(omitted, &mut round.local);
        }
        if outcome.tally.unsent > 0 {
            round.add_warning(format!(
                "{}: {} due and not started; this end was too slow for the rate",
                stream.name,
                counted(outcome.tally.unsent, "operation was", "operations were")
            ));
        }
        if outcome.tally.given_up > 0 {
            round.add_warning(format!(
                "{}: {} timed out",
                stream.name,
                counted(outcome.tally.given_up, "request", "requests")
            ));
        }
        if turn.record && outcome.tally.unnumbered > 0 {
            round.add_warning(format!(
                "{}: {} without a number, matched in order: after a lost response, the latencies of the following ones are too high",
                stream.name,
                counted(outcome.tally.unnumbered, "response", "responses")
            ));
        }
        round.measured.push(StreamMeasurement {
            role: stream.role,
            load: stream.load,
            protocol: job.protocol,
            length: turn.length_of(stream),
            omit: turn.omit,
            outcome,
            span,
            omitted,
            remote,
        });
    }
    if job.test != SocketTest::ServerCpu {
        let asked = job.remote.measure_cpu && !job.control.none;
        if asked && cpus.is_empty() && round.failure.is_none() {
            round.add_warning("the server did not report its CPU utilisation");
        }
    }
    if let Some(cpu) = mean_cpu(cpus.into_iter()) {
        let (cpu, changed) = clamp_shares(cpu);
        if changed {
            round.add_warning("the server reported a CPU utilisation above 100 %");
        }
        round.remote_cpu = Some(cpu);
    }
    if job.protocol == SocketProtocol::Mptcp && round.measured.len() > 1 {
        round.add_warning(
            "MPTCP does not report what was acknowledged; the servers' counts are added up",
        );
    }
}

/// Either all streams of a test report the omitted part, or none does.
fn add_omitted(omitted: Option<SocketOmitted>, end: &mut SocketEndReport) {
    if let Some(more) = omitted {
        end.omitted = Some(end.omitted.map_or(more, |sum| sum.and(more)));
    }
}

/// Adds the results of a stream to the report of this end; the buffer sizes are those of the first stream.
fn add_outcome(outcome: &StreamThreadOutcome, end: &mut SocketEndReport) {
    let tally = &outcome.tally;
    end.bytes_sent += tally.bytes_sent;
    end.bytes_received += tally.bytes_received;
    end.send_calls += tally.send_calls;
    end.receive_calls += tally.receive_calls;
    end.failed_sends += tally.failed_sends;
    for (name, count) in [("zero-copy", tally.zero_copy), ("copied", tally.copied)] {
        if count > 0 {
            *end.completions.entry(name.to_owned()).or_default() += count;
        }
    }
    let Some(known) = &outcome.effective else {
        return;
    };
    end.send_buffer[2] = end.send_buffer[2].or(Some(known.send_buffer));
    end.receive_buffer[2] = end.receive_buffer[2].or(Some(known.receive_buffer));
    if let Some(tcp) = known.tcp {
        let again = u64::from(tcp.retransmissions);
        end.retransmissions = Some(end.retransmissions.unwrap_or(0) + again);
        end.tcp = end.tcp.or(Some(tcp));
    }
}
