//! One iteration: sockets, requests, data, results.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags};
use wb_model::socket::{
    CpuUse, SocketEndReport, SocketFailure, SocketInterval, SocketJob, SocketLive, SocketProtocol,
    SocketStage, SocketTest,
};
use wb_omni::{ClassicKind, Request};

use super::{
    JobPlace,
    answer::{Ready, Told},
    control::{Control, NOTICE, Silence, wait},
    drive::{Drive, Outcome, When},
    failure::{answer, failure},
    figures::{Measured, mean_cpu},
    grants::{Grants, grants},
    lane::{Bell, Gate, Lane, Phase},
    prepare::{Prepared, Terms, prepare},
    random::Random,
    request::{Ask, Length, unspeakable},
    role::Role,
    target::{DataEnds, Target},
    watch::{Patience, Watch, Watched},
};
use crate::{
    cpu::{clamped, cpu_use},
    flow::Recorder,
    host::Host,
};

/// What all iterations of a job have in common.
#[derive(Clone, Copy)]
pub(super) struct Settings<'a> {
    pub(super) job: &'a SocketJob,
    pub(super) place: JobPlace,
    pub(super) host: &'a dyn Host,
    pub(super) stop: &'a AtomicBool,
    pub(super) target: &'a Target,
    pub(super) patience: Patience,
}

/// One stream of a job, with its control connection.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) role: Role,
    /// Whether it only loads the path.
    pub(super) load: bool,
    /// Its number among all of the job, from 0.
    pub(super) number: u16,
    /// `up 1`.
    pub(super) name: String,
    pub(super) control: Option<Control>,
}

/// What differs from iteration to iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) length: Length,
    pub(super) omit: Duration,
    pub(super) interim: Option<Duration>,
    /// Keep the time of operations.
    pub(super) record: bool,
    /// From 1.
    pub(super) iteration: u32,
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) measured: Vec<Measured>,
    pub(super) names: Vec<String>,
    pub(super) local: SocketEndReport,
    pub(super) remote: SocketEndReport,
    pub(super) local_cpu: Option<CpuUse>,
    pub(super) remote_cpu: Option<CpuUse>,
    pub(super) intervals: Vec<SocketInterval>,
    pub(super) data_server: Option<SocketAddr>,
    pub(super) data_client: Option<SocketAddr>,
    /// Every server is ours and grants what was asked for.
    pub(super) extended: bool,
    /// Somebody wished the end.
    pub(super) wished: bool,
    pub(super) failure: Option<SocketFailure>,
    pub(super) warnings: Vec<String>,
}

impl Round {
    fn warn(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.warnings.contains(&what) {
            self.warnings.push(what);
        }
    }

    fn silent(&mut self, silence: Silence) {
        match silence {
            Silence::Stopped => self.wished = true,
            Silence::Failed(failed) => self.failure = Some(failed),
        }
    }
}

/// A stream whose server is ready.
struct Agreed {
    prepared: Prepared,
    kind: Option<ClassicKind>,
    to: SocketAddr,
    grants: Grants,
}

/// Runs one iteration over all streams together.
pub(super) fn run(
    settings: Settings<'_>,
    streams: &mut [Stream],
    turn: Turn,
    random: &mut Random,
    observe: &mut dyn FnMut(&SocketLive),
) -> Round {
    let mut round = Round {
        names: streams.iter().map(|stream| stream.name.clone()).collect(),
        ..Round::default()
    };
    let agreed = match agree(settings, streams, turn, random, &mut round) {
        Ok(agreed) => agreed,
        Err(silence) => {
            round.silent(silence);
            return round;
        }
    };
    if let Err(silence) = pause(settings, streams) {
        round.silent(silence);
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
    let (outcomes, watched) = moving(settings, streams, turn, agreed, &mut round, observe);
    let after = before.as_ref().and_then(|_| settings.host.cpu_times());
    round.local_cpu = before
        .zip(after)
        .map(|(before, after)| cpu_use(&before, &after));
    if settings.job.local.measure_cpu && round.local_cpu.is_none() {
        round.warn("this machine does not tell how busy its CPUs are");
    }
    conclude(
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
fn agree(
    settings: Settings<'_>,
    streams: &mut [Stream],
    turn: Turn,
    random: &mut Random,
    round: &mut Round,
) -> Result<Vec<Agreed>, Silence> {
    let Settings {
        job, target, stop, ..
    } = settings;
    let mut prepared = Vec::with_capacity(streams.len());
    for stream in streams.iter() {
        let control = stream.control.as_ref().map(|control| control.peer.ip());
        let ends = target.data(control, random).map_err(Silence::Failed)?;
        let one =
            prepare(job, stream.role, stream.number, ends, random).map_err(Silence::Failed)?;
        for warning in &one.warnings {
            round.warn(warning.clone());
        }
        if !stream.load {
            one.add_to(&mut round.local, job);
        }
        prepared.push(one);
    }
    for (stream, one) in streams.iter_mut().zip(&prepared) {
        let ask = asking(settings, stream, one, turn).map_err(Silence::Failed)?;
        if let Some(control) = &mut stream.control {
            control.send(&ask.request(), stop)?;
        }
    }
    let mut agreed = Vec::with_capacity(streams.len());
    round.extended = job.control.server.is_empty() || !job.control.none;
    for (stream, prepared) in streams.iter_mut().zip(prepared) {
        let ask = asking(settings, stream, &prepared, turn).map_err(Silence::Failed)?;
        let kind = ask.classic().map(|test| test.kind());
        let ready = match &mut stream.control {
            Some(control) => {
                let message = control.receive("response", settings.patience.answer, stop)?;
                Ready::parse(&message, kind)
                    .map_err(|error| Silence::Failed(answer("response", &error)))?
            }
            None => Ready {
                port: service(job, stream.role),
                ..Ready::default()
            },
        };
        if ready.port == 0 {
            let what = "the server's response names no port for the data";
            return Err(Silence::Failed(failure(SocketStage::Control, what)));
        }
        let grants = match &stream.control {
            Some(_) => grants(&ask, &ready),
            None => Grants::default(),
        };
        for warning in &grants.warnings {
            round.warn(warning.clone());
        }
        for word in unspeakable(&job.remote, stream.role) {
            round.warn(format!("the server cannot be told about remote.{word}"));
        }
        round.extended &= grants.all;
        if !stream.load && round.remote.send_buffer[1].is_none() {
            round.remote = ready.end.clone();
            round.remote.send_buffer[0] = job.remote.send_buffer;
            round.remote.receive_buffer[0] = job.remote.receive_buffer;
        }
        let to = SocketAddr::new(prepared.ends.server, ready.port);
        round.data_server = round.data_server.or(Some(to));
        round.data_client = round.data_client.or(Some(prepared.local));
        agreed.push(Agreed {
            prepared,
            kind,
            to,
            grants,
        });
    }
    Ok(agreed)
}

fn asking<'a>(
    settings: Settings<'a>,
    stream: &Stream,
    one: &Prepared,
    turn: Turn,
) -> Result<Ask<'a>, SocketFailure> {
    let job = settings.job;
    let server_port = match job.data.server_port {
        0 => 0,
        first => first.checked_add(stream.number).ok_or_else(|| {
            let what = format!("no port for {}: they end at 65535", stream.name);
            failure(SocketStage::Socket, what)
        })?,
    };
    let reachable: IpAddr = match (&stream.control, one.ends.local) {
        (Some(control), local) if local.is_unspecified() => control.local.ip(),
        (_, local) => local,
    };
    Ok(Ask {
        job,
        role: stream.role,
        length: turn.length,
        ends: DataEnds { ..one.ends },
        server_port,
        client: one.local,
        reachable,
        send_width: one.send_width_on_the_wire(job),
        receive_width: one.receive_width_on_the_wire(job),
        send_size: one.send_size,
    })
}

/// The port of the service that takes, gives or returns data where no server was asked.
fn service(job: &SocketJob, role: Role) -> u16 {
    match (job.data.server_port, role) {
        (0, Role::Up | Role::Mss) => 9,
        (0, Role::Down) => 19,
        (0, Role::Rr | Role::Crr | Role::Cc) => 7,
        (port, _) => port,
    }
}

/// The wait between set-up and traffic.
fn pause(settings: Settings<'_>, streams: &mut [Stream]) -> Result<(), Silence> {
    let until = Instant::now() + settings.job.wait.0;
    while Instant::now() < until {
        look_around(settings.stop, streams)?;
        thread::sleep(NOTICE.min(until.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Whether it makes sense to go on.
fn look_around(stop: &AtomicBool, streams: &mut [Stream]) -> Result<(), Silence> {
    if stop.load(Ordering::Relaxed) {
        return Err(Silence::Stopped);
    }
    let mut controls = streams
        .iter_mut()
        .filter_map(|stream| stream.control.as_mut());
    match controls.find_map(Control::trouble) {
        Some(trouble) => Err(Silence::Failed(trouble)),
        None => Ok(()),
    }
}

/// Starts the threads, lets them go together, watches them.
fn moving(
    settings: Settings<'_>,
    streams: &mut [Stream],
    turn: Turn,
    agreed: Vec<Agreed>,
    round: &mut Round,
    observe: &mut dyn FnMut(&SocketLive),
) -> (Vec<Outcome>, Watched) {
    let job = settings.job;
    let bell = match Bell::new() {
        Ok(bell) => Arc::new(bell),
        Err(error) => {
            let what = super::failure::system(SocketStage::Socket, "eventfd", &error);
            round.failure = Some(what);
            return (Vec::new(), Watched::default());
        }
    };
    let gate = Gate::default();
    let connect = match (job.protocol.connects(), job.options.exclude_connect) {
        (true, false) => Some(When::AfterStart),
        (true, true) => Some(When::BeforeStart),
        // Costs no packets.
        (false, _) => job.options.connect_local.then_some(When::BeforeStart),
    };
    let tell_end: Vec<bool> = agreed.iter().map(|one| one.grants.end).collect();
    let mut lanes = Vec::with_capacity(agreed.len());
    let mut rest = Vec::with_capacity(agreed.len());
    for (stream, one) in streams.iter().zip(agreed) {
        let recorder = (turn.record && !stream.load).then(|| Recorder::new(turn.interim.is_some()));
        let meter = recorder.as_ref().map(Recorder::meter);
        if let Some(meter) = meter.as_ref().filter(|_| turn.omit > Duration::ZERO) {
            meter.pause();
        }
        let terms = Terms {
            length: turn.length,
            to: one.to,
            tag: one.grants.tags.then(|| u32::from(stream.number)),
            server_counts: stream.control.is_some()
                && (one.grants.all || turn.length.amount().is_none_or(|n| n <= 1 << 31)),
        };
        let (task, socket) = one.prepared.task(job, terms);
        lanes.push(Lane::new(stream.role, stream.load, socket, meter, &bell));
        rest.push((task, recorder, one.to));
    }
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(lanes.len());
        for (lane, (task, recorder, to)) in lanes.iter().zip(rest) {
            let drive = Drive {
                task,
                lane,
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
        let ready = all_ready(settings, streams, &lanes, &bell);
        let go = ready.is_ok();
        let start = Instant::now();
        gate.open(go);
        if !go {
            for lane in &lanes {
                lane.run.stop();
            }
        }
        let watched = Watch {
            lanes: &lanes,
            controls: streams
                .iter_mut()
                .map(|stream| stream.control.as_mut())
                .collect(),
            tell_end: &tell_end,
            connectionless: !job.protocol.connects(),
            time: turn.length.time(),
            counted: turn.length.amount().is_some(),
            omit: turn.omit,
            interim: turn.interim,
            stop: settings.stop,
            bell: &bell,
            patience: settings.patience,
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
            round.silent(silence);
        }
        (outcomes, watched)
    })
}

/// Waits until every thread stands at the gate, or has failed on its way there.
fn all_ready(
    settings: Settings<'_>,
    streams: &mut [Stream],
    lanes: &[Lane],
    bell: &Bell,
) -> Result<(), Silence> {
    let until = Instant::now() + settings.patience.answer;
    loop {
        look_around(settings.stop, streams)?;
        if lanes.iter().any(|lane| lane.phase() == Phase::Done) {
            // Its outcome says why.
            return Err(Silence::Stopped);
        }
        if lanes.iter().all(|lane| lane.phase() == Phase::Ready) {
            return Ok(());
        }
        if Instant::now() > until {
            let what = "the data connections cannot be made in time";
            return Err(Silence::Failed(failure(SocketStage::Data, what)));
        }
        let mut fds = [PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)];
        if wait(&mut fds, Instant::now() + NOTICE) {
            bell.hush();
        }
    }
}

/// Results of the servers, and what is known then.
fn conclude(
    settings: Settings<'_>,
    streams: &mut [Stream],
    turn: Turn,
    (mut outcomes, watched): (Vec<Outcome>, Watched),
    (kinds, told_end): (&[Option<ClassicKind>], &[bool]),
    round: &mut Round,
) {
    let job = settings.job;
    round.wished |= watched.wished || settings.stop.load(Ordering::Relaxed) && watched.wished;
    round.intervals = watched.intervals;
    for outcome in &mut outcomes {
        for warning in std::mem::take(&mut outcome.warnings) {
            round.warn(warning);
        }
    }
    // What the server says about itself explains what our sockets saw.
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
    let mut told: Vec<Option<Told>> = Vec::new();
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
            let asked = Asked {
                role: stream.role,
                end: *end,
                early,
                failed: failed.is_some(),
                ends_by_data: job.protocol.connects() && !stream.role.connects_each(),
                timed: turn.length.amount().is_none(),
                kind: *kind,
                cpu: job.remote.measure_cpu,
            };
            match results_of(control, asked, settings) {
                Ok(told) => results = Some(told),
                Err(what) if early && failed.is_none() => round.warn(format!(
                    "the test was ended early and the server's results are missing: {}",
                    what.what
                )),
                Err(what) => {
                    let explains = failed.is_none() || what.stage == SocketStage::Remote;
                    if explains {
                        failed = Some(what);
                    }
                }
            }
        }
        told.push(results);
    }
    round.failure = failed;
    measure(
        settings,
        streams,
        turn,
        outcomes,
        watched.spans,
        told,
        round,
    );
}

/// A connection that was never made although nobody wished the end.
fn not_connected(settings: Settings<'_>, outcomes: &[Outcome]) -> Option<SocketFailure> {
    let missing =
        settings.job.protocol.connects() && outcomes.iter().any(|outcome| !outcome.connected);
    missing.then(|| {
        failure(
            SocketStage::Data,
            "the data connection was not made before the test was over",
        )
    })
}

#[derive(Clone, Copy)]
struct Asked {
    role: Role,
    /// The server wants to be told the end.
    end: bool,
    /// Somebody wished the end.
    early: bool,
    failed: bool,
    /// The end of the data connection tells the server.
    ends_by_data: bool,
    timed: bool,
    kind: Option<ClassicKind>,
    cpu: bool,
}

fn results_of(
    control: &mut Control,
    asked: Asked,
    settings: Settings<'_>,
) -> Result<Told, SocketFailure> {
    let never = AtomicBool::new(false);
    let patience = settings.patience;
    if control.trouble().is_none()
        && asked.end
        && !asked.ends_by_data
        && (asked.timed || asked.early || asked.failed)
        && asked.role != Role::Down
        && !control.has_message()
    {
        // A broken connection shows when the results are waited for.
        let _ = control.send(&Request::End, &never);
    }
    let knows = asked.end || asked.ends_by_data && asked.role != Role::Down;
    let message = if asked.failed {
        control.receive("results", Duration::from_secs(1), &never)
    } else if asked.early {
        let limit = if knows {
            patience.drain
        } else {
            patience.untold
        };
        control.receive("results", limit, &never)
    } else {
        match control.receive("results", patience.answer, settings.stop) {
            Err(Silence::Stopped) => control.receive("results", patience.untold, &never),
            other => other,
        }
    };
    match message {
        Ok(message) => {
            Told::parse(&message, asked.kind, asked.cpu).map_err(|error| answer("results", &error))
        }
        Err(Silence::Failed(failed)) => Err(failed),
        // Nobody can stop this wait.
        Err(Silence::Stopped) => Err(failure(SocketStage::Control, "the wait was ended")),
    }
}

fn measure(
    settings: Settings<'_>,
    streams: &[Stream],
    turn: Turn,
    outcomes: Vec<Outcome>,
    spans: Option<Vec<super::window::Span>>,
    told: Vec<Option<Told>>,
    round: &mut Round,
) {
    let job = settings.job;
    let in_common = streams.len() > 1 || turn.omit > Duration::ZERO;
    if in_common && spans.is_none() && round.failure.is_none() && !outcomes.is_empty() {
        round.warn("the streams did not run at the same time; each counts over its own");
    }
    let mut spans = spans.filter(|_| in_common).map(Vec::into_iter);
    let mut cpus = Vec::new();
    for ((stream, outcome), told) in streams.iter().zip(outcomes).zip(told) {
        let span = spans.as_mut().and_then(Iterator::next);
        if let Some(told) = &told {
            cpus.extend(told.cpu);
            if !stream.load {
                told.add_to(&mut round.remote);
            }
        }
        if !stream.load {
            add_outcome(&outcome, &mut round.local);
        }
        if outcome.tally.unsent > 0 {
            round.warn(format!(
                "{}: {} operations were due and not begun; this end was too slow for the rate",
                stream.name, outcome.tally.unsent
            ));
        }
        if outcome.tally.given_up > 0 {
            round.warn(format!(
                "{}: {} requests were given up after the timeout",
                stream.name, outcome.tally.given_up
            ));
        }
        round.measured.push(Measured {
            role: stream.role,
            load: stream.load,
            protocol: job.protocol,
            length: turn.length,
            omit: turn.omit,
            outcome,
            span,
            told,
        });
    }
    if job.test != SocketTest::ServerCpu {
        let asked = job.remote.measure_cpu && !job.control.none;
        if asked && cpus.is_empty() && round.failure.is_none() {
            round.warn("the server does not tell how busy its CPUs were");
        }
    }
    if let Some(cpu) = mean_cpu(cpus.into_iter()) {
        let (cpu, changed) = clamped(cpu);
        if changed {
            round.warn("the server says that its CPUs were busy for more than all of the time");
        }
        round.remote_cpu = Some(cpu);
    }
    if job.protocol == SocketProtocol::Mptcp && round.measured.len() > 1 {
        round.warn("MPTCP does not tell what was acknowledged; the servers' counts are summed");
    }
}

/// Adds what a stream did to this end; the buffers are the first stream's.
fn add_outcome(outcome: &Outcome, end: &mut SocketEndReport) {
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
