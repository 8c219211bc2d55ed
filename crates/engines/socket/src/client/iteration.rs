//! One iteration: sockets, requests, data, results.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use wb_model::socket::{
    CpuUse, SocketEndReport, SocketFailure, SocketInterval, SocketJob, SocketLive, SocketStage,
};
use wb_netperf_wire::ClassicKind;
use wb_wire::SplitMix64;

use super::{
    JobPlace,
    conclude::conclude_iteration,
    control::{ClientControl, Silence, poll_readable, wait},
    failure::{answer_failure, stage_failure},
    figures::StreamMeasurement,
    granted_extensions::{GrantedExtensions, granted_extensions},
    prepare::{PreparedStream, TaskTerms, prepare_stream},
    remote_answers::RemoteReady,
    request::{StreamRequest, inexpressible_options},
    role::StreamRole,
    shared_stream::{SharedStream, StartGate, StreamPhase},
    stream_thread::{ConnectTime, StreamThread, StreamThreadOutcome},
    stream_watch::{SocketTimeouts, StreamWatch, WatchResult},
    target::{DataAddresses, ResolvedTarget},
};
use crate::{
    StopRequest,
    agreement::StreamLength,
    cpu::cpu_use,
    flow::TimeRecorder,
    host::{Host, endpoint},
    waker::Waker,
};

/// Parameters shared by all iterations of a job.
#[derive(Clone, Copy)]
pub(super) struct IterationSettings<'a> {
    pub(super) job: &'a SocketJob,
    pub(super) place: JobPlace,
    pub(super) host: &'a dyn Host,
    pub(super) stop: &'a StopRequest,
    pub(super) target: &'a ResolvedTarget,
    pub(super) timeouts: SocketTimeouts,
}

/// One stream of a job, with its control connection.
#[derive(Debug)]
pub(super) struct JobStream {
    pub(super) role: StreamRole,
    /// Only loads the path.
    pub(super) load: bool,
    /// Number among all streams of the job, from 0.
    pub(super) number: u16,
    /// Name in reports, such as `up 1`.
    pub(super) name: String,
    pub(super) control: Option<ClientControl>,
}

/// Parameters that differ between iterations.
#[derive(Clone, Copy, Debug)]
pub(super) struct IterationParameters {
    pub(super) length: StreamLength,
    pub(super) omit: Duration,
    pub(super) interim: Option<Duration>,
    /// Record operation times.
    pub(super) record: bool,
    /// From 1.
    pub(super) iteration: u32,
}

impl IterationParameters {
    /// Length of a stream. A load stream lasts until the measurement ends.
    pub(super) fn length_of(self, stream: &JobStream) -> StreamLength {
        match self.length {
            StreamLength::Amount(_) if stream.load => StreamLength::Open,
            length => length,
        }
    }
}

/// Results of an iteration.
#[derive(Debug, Default)]
pub(super) struct IterationResult {
    pub(super) measured: Vec<StreamMeasurement>,
    pub(super) names: Vec<String>,
    pub(super) local: SocketEndReport,
    pub(super) remote: SocketEndReport,
    pub(super) local_cpu: Option<CpuUse>,
    pub(super) remote_cpu: Option<CpuUse>,
    pub(super) intervals: Vec<SocketInterval>,
    pub(super) data_server: Option<SocketAddr>,
    pub(super) data_client: Option<SocketAddr>,
    /// All servers are wirebench and grant everything requested.
    pub(super) extended: bool,
    /// A stop was requested.
    pub(super) wished: bool,
    pub(super) failure: Option<SocketFailure>,
    pub(super) warnings: Vec<String>,
}

impl IterationResult {
    pub(super) fn add_warning(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.warnings.contains(&what) {
            self.warnings.push(what);
        }
    }

    fn record_silence(&mut self, silence: Silence) {
        match silence {
            Silence::Stopped => self.wished = true,
            Silence::Failed(failed) => self.failure = Some(failed),
        }
    }
}

/// A stream with a server that is ready.
struct AgreedStream {
    prepared: PreparedStream,
    kind: Option<ClassicKind>,
    to: SocketAddr,
    grants: GrantedExtensions,
}

/// Runs one iteration over all streams together.
pub(super) fn run(
    settings: IterationSettings<'_>,
    streams: &mut [JobStream],
    turn: IterationParameters,
    random: &mut SplitMix64,
    observe: &mut dyn FnMut(&SocketLive),
) -> IterationResult {
    let mut round = IterationResult {
        names: streams.iter().map(|stream| stream.name.clone()).collect(),
        ..IterationResult::default()
    };
    let agreed = match agree_streams(settings, streams, turn, random, &mut round) {
        Ok(agreed) => agreed,
        Err(silence) => {
            round.record_silence(silence);
            return round;
        }
    };
    if let Err(silence) = pause_before_traffic(settings, streams) {
        round.record_silence(silence);
        return round;
    }
    let kinds: Vec<Option<ClassicKind>> = agreed.iter().map(|one| one.kind).collect();
    let told_end: Vec<bool> = agreed.iter().map(|one| one.grants.end).collect();
    let before = settings
        .job
        .local
        .measure_cpu
        .then(|| settings.host.cpu_times())
        .flatten();
    let (outcomes, watched) = run_traffic(settings, streams, turn, agreed, &mut round, observe);
    let after = before.as_ref().and_then(|_| settings.host.cpu_times());
    round.local_cpu = before
        .zip(after)
        .map(|(before, after)| cpu_use(&before, &after));
    if settings.job.local.measure_cpu && round.local_cpu.is_none() {
        round.add_warning("this machine does not report its CPU utilisation");
    }
    conclude_iteration(
        settings,
        streams,
        turn,
        (outcomes, watched),
        (&kinds, &told_end),
        &mut round,
    );
    round
}

/// Opens all sockets, sends all requests, waits for all responses.
fn agree_streams(
    settings: IterationSettings<'_>,
    streams: &mut [JobStream],
    turn: IterationParameters,
    random: &mut SplitMix64,
    round: &mut IterationResult,
) -> Result<Vec<AgreedStream>, Silence> {
    let IterationSettings {
        job, target, stop, ..
    } = settings;
    let mut prepared = Vec::with_capacity(streams.len());
    for stream in streams.iter() {
        let control = stream.control.as_ref().map(|control| control.peer.ip());
        let ends = target
            .data_addresses(control, random)
            .map_err(Silence::Failed)?;
        let one = prepare_stream(job, stream.role, stream.number, ends, random)
            .map_err(Silence::Failed)?;
        for warning in &one.warnings {
            round.add_warning(warning.clone());
        }
        if !stream.load {
            one.add_to(&mut round.local, job);
        }
        prepared.push(one);
    }
    for (stream, one) in streams.iter_mut().zip(&prepared) {
        let ask = stream_request(settings, stream, one, turn).map_err(Silence::Failed)?;
        if let Some(control) = &mut stream.control {
            control.send(&ask.request_message(), stop)?;
        }
    }
    let mut agreed = Vec::with_capacity(streams.len());
    round.extended = !job.control.none;
    for (stream, prepared) in streams.iter_mut().zip(prepared) {
        let ask = stream_request(settings, stream, &prepared, turn).map_err(Silence::Failed)?;
        let kind = ask.classic_test().map(|test| test.kind());
        let ready = match &mut stream.control {
            Some(control) => {
                let message = control.receive("response", settings.timeouts.answer, stop)?;
                RemoteReady::parse(&message, kind)
                    .map_err(|error| Silence::Failed(answer_failure("response", &error)))?
            }
            None => RemoteReady {
                port: service_port(job, stream.role),
                ..RemoteReady::default()
            },
        };
        if ready.port == 0 {
            let what = "the server's response has no data port";
            return Err(Silence::Failed(stage_failure(SocketStage::Control, what)));
        }
        let grants = match &stream.control {
            Some(_) => granted_extensions(&ask, &ready),
            None => GrantedExtensions::default(),
        };
        for warning in &grants.warnings {
            round.add_warning(warning.clone());
        }
        for word in inexpressible_options(&job.remote, stream.role) {
            round.add_warning(format!("remote.{word} cannot be requested from the server"));
        }
        round.extended &= grants.all;
        if !stream.load && round.remote.send_buffer[1].is_none() {
            round.remote = ready.end.clone();
            round.remote.send_buffer[0] = job.remote.send_buffer;
            round.remote.receive_buffer[0] = job.remote.receive_buffer;
        }
        let to = endpoint(prepared.ends.server, ready.port, prepared.ends.scope);
        round.data_server = round.data_server.or(Some(to));
        round.data_client = round.data_client.or(Some(prepared.local));
        agreed.push(AgreedStream {
            prepared,
            kind,
            to,
            grants,
        });
    }
    Ok(agreed)
}

fn stream_request<'a>(
    settings: IterationSettings<'a>,
    stream: &JobStream,
    one: &PreparedStream,
    turn: IterationParameters,
) -> Result<StreamRequest<'a>, SocketFailure> {
    let job = settings.job;
    let server_port = match job.data.server_port {
        0 => 0,
        first => first.checked_add(stream.number).ok_or_else(|| {
            let what = format!("no data port for {}: the last port is 65535", stream.name);
            stage_failure(SocketStage::Socket, what)
        })?,
    };
    let reachable: IpAddr = match (&stream.control, one.ends.local) {
        (Some(control), local) if local.is_unspecified() => control.local.ip(),
        (_, local) => local,
    };
    Ok(StreamRequest {
        job,
        role: stream.role,
        length: turn.length_of(stream),
        ends: DataAddresses { ..one.ends },
        server_port,
        client: one.local,
        reachable,
        send_width: one.send_width_on_the_wire(job),
        receive_width: one.receive_width_on_the_wire(job),
        send_size: one.send_size,
    })
}

/// Port of the echo, discard or chargen service in tests without a control connection.
fn service_port(job: &SocketJob, role: StreamRole) -> u16 {
    match (job.data.server_port, role) {
        (0, StreamRole::Up | StreamRole::Mss) => 9,
        (0, StreamRole::Down) => 19,
        (0, StreamRole::Rr | StreamRole::Crr | StreamRole::Cc) => 7,
        (port, _) => port,
    }
}

/// The wait between set-up and traffic.
fn pause_before_traffic(
    settings: IterationSettings<'_>,
    streams: &mut [JobStream],
) -> Result<(), Silence> {
    let until = Instant::now() + settings.job.wait.0;
    while Instant::now() < until {
        check_stop_and_servers(settings.stop, streams)?;
        let mut fds = Vec::from_iter(settings.stop.wait_descriptor().map(poll_readable));
        wait(
            &mut fds,
            until.min(Instant::now() + StopRequest::POLL_INTERVAL),
        );
    }
    Ok(())
}

/// Checks for a stop request and for failed servers.
fn check_stop_and_servers(stop: &StopRequest, streams: &mut [JobStream]) -> Result<(), Silence> {
    if stop.is_set() {
        return Err(Silence::Stopped);
    }
    let mut controls = streams
        .iter_mut()
        .filter_map(|stream| stream.control.as_mut());
    match controls.find_map(ClientControl::server_failure) {
        Some(trouble) => Err(Silence::Failed(trouble)),
        None => Ok(()),
    }
}

/// When the data sockets of a job connect, if they do.
fn connect_time(job: &SocketJob) -> Option<ConnectTime> {
    match (job.protocol.connects(), job.options.exclude_connect) {
        (true, false) => Some(ConnectTime::AfterStart),
        (true, true) => Some(ConnectTime::BeforeStart),
        // Costs no packets.
        (false, _) => job
            .options
            .connect_local
            .then_some(ConnectTime::BeforeStart),
    }
}

/// Starts all threads together and watches them.
fn run_traffic(
    settings: IterationSettings<'_>,
    streams: &mut [JobStream],
    turn: IterationParameters,
    agreed: Vec<AgreedStream>,
    round: &mut IterationResult,
    observe: &mut dyn FnMut(&SocketLive),
) -> (Vec<StreamThreadOutcome>, WatchResult) {
    let job = settings.job;
    let waker = match Waker::new() {
        Ok(waker) => Arc::new(waker),
        Err(error) => {
            let what = super::failure::system_failure(SocketStage::Socket, "eventfd", &error);
            round.failure = Some(what);
            return (Vec::new(), WatchResult::default());
        }
    };
    let gate = StartGate::default();
    let connect = connect_time(job);
    let tell_end: Vec<bool> = agreed.iter().map(|one| one.grants.end).collect();
    let mut shared = Vec::with_capacity(agreed.len());
    let mut rest = Vec::with_capacity(agreed.len());
    for (stream, one) in streams.iter().zip(agreed) {
        let recorder =
            (turn.record && !stream.load).then(|| TimeRecorder::new(turn.interim.is_some()));
        let meter = recorder.as_ref().map(TimeRecorder::meter);
        if let Some(meter) = meter.as_ref().filter(|_| turn.omit > Duration::ZERO) {
            meter.pause();
        }
        let terms = TaskTerms {
            length: turn.length_of(stream),
            to: one.to,
            tag: one.grants.tags.then(|| u32::from(stream.number)),
            server_counts: stream.control.is_some()
                && (one.grants.all || turn.length.unit_limit().is_none_or(|n| n <= 1 << 31)),
        };
        let (task, socket) = one.prepared.into_task(job, terms);
        let kind = (stream.load, job.protocol.is_datagram());
        shared.push(SharedStream::new(stream.role, kind, socket, meter, &waker));
        rest.push((task, recorder, one.to));
    }
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(shared.len());
        for (stream, (task, recorder, to)) in shared.iter().zip(rest) {
            let drive = StreamThread {
                task,
                stream,
                gate: &gate,
                host: settings.host,
                cpu: job.local.cpu,
                to,
                connectionless: !job.protocol.connects(),
                connect,
                recorder,
            };
            handles.push(scope.spawn(move || drive.run()));
        }
        let ready = all_ready(settings, streams, &shared, &waker);
        let go = ready.is_ok();
        let start = Instant::now();
        gate.open(go);
        if !go {
            for stream in &shared {
                stream.run.stop();
            }
        }
        let watched = StreamWatch {
            streams: &shared,
            names: &round.names,
            controls: streams
                .iter_mut()
                .map(|stream| stream.control.as_mut())
                .collect(),
            tell_end: &tell_end,
            connectionless: !job.protocol.connects(),
            time: turn.length.time_limit(),
            counted: turn.length.unit_limit().is_some(),
            omit: turn.omit,
            interim: turn.interim,
            stop: settings.stop,
            waker: &waker,
            timeouts: settings.timeouts,
            live: SocketLive {
                job: settings.place.index,
                jobs: settings.place.count,
                iteration: turn.iteration,
                transactions: job.test.counts_transactions(),
                ..SocketLive::default()
            },
            observe,
        }
        .run(start);
        let outcomes = handles
            .into_iter()
            .map(|handle| {
                handle
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        if let Err(silence) = ready {
            round.record_silence(silence);
        }
        (outcomes, watched)
    })
}

/// Waits until every thread has reached the gate or failed before it.
fn all_ready(
    settings: IterationSettings<'_>,
    streams: &mut [JobStream],
    shared: &[SharedStream],
    waker: &Waker,
) -> Result<(), Silence> {
    let until = Instant::now() + settings.timeouts.answer;
    loop {
        check_stop_and_servers(settings.stop, streams)?;
        if shared
            .iter()
            .any(|stream| stream.phase() == StreamPhase::Done)
        {
            // The outcome of the thread contains the reason.
            return Err(Silence::Stopped);
        }
        if shared
            .iter()
            .all(|stream| stream.phase() == StreamPhase::Ready)
        {
            return Ok(());
        }
        if Instant::now() > until {
            let what = "the data connections were not established in time";
            return Err(Silence::Failed(stage_failure(SocketStage::Data, what)));
        }
        let mut fds = vec![poll_readable(waker.as_fd())];
        fds.extend(settings.stop.wait_descriptor().map(poll_readable));
        let controls = streams.iter().filter_map(|stream| stream.control.as_ref());
        let controls = controls.filter(|control| !control.is_over());
        fds.extend(controls.map(|control| poll_readable(control.as_fd())));
        if wait(&mut fds, Instant::now() + StopRequest::POLL_INTERVAL) {
            waker.clear();
        }
    }
}
