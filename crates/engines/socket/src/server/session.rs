//! One control connection, from the first message to its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use wb_netperf_wire::{Calibration, Passphrase, Refusal, Request, SystemText, debug_ok};

use super::{
    control::{ControlEvent, ServerControl},
    prepare::PreparedTest,
    requested_test::{LinuxErrno, RequestedTest},
    running_test::{RunningTest, TestOutcome},
    server_messages,
    state::{ClientGuard, ServerCounts, ServerState},
};

/// Time limit for the passphrase; netperf's value.
const PASSPHRASE: Duration = Duration::from_secs(20);

/// Reason for the end of a control connection.
enum ConnectionEnd {
    /// Closed by the client between two messages, or by the server.
    Well,
    /// Idle for too long, or invalid messages.
    GivenUp,
    /// Without the passphrase.
    Unauthorised,
}

/// Serves a client until it leaves.
pub(super) fn serve_control(state: &ServerState, mut control: ServerControl, guard: &ClientGuard) {
    let left = match check_passphrase(state, &mut control) {
        Ok(()) => answer_messages(state, &mut control, guard),
        Err(left) => left,
    };
    match left {
        ConnectionEnd::Well => {}
        ConnectionEnd::GivenUp => ServerCounts::add_one(&state.counts.given_up),
        ConnectionEnd::Unauthorised => ServerCounts::add_one(&state.counts.unauthorised),
    }
    control.close_orderly();
}

/// Waits for the passphrase, if one is required.
fn check_passphrase(state: &ServerState, control: &mut ServerControl) -> Result<(), ConnectionEnd> {
    let Some(expected) = &state.job.passphrase else {
        return Ok(());
    };
    match control.wait(None, Some(Instant::now() + PASSPHRASE)) {
        ControlEvent::Message(message) => match Request::parse(&message) {
            Ok(Request::Passphrase(said)) if is_right(&said, expected) => Ok(()),
            _ => Err(ConnectionEnd::Unauthorised),
        },
        ControlEvent::Closed => Err(ConnectionEnd::Well),
        ControlEvent::Woken | ControlEvent::Deadline | ControlEvent::Broken => {
            Err(ConnectionEnd::GivenUp)
        }
    }
}

/// Compares the part of a passphrase that fits into a message.
fn is_right(said: &Passphrase, expected: &str) -> bool {
    let expected = expected.as_bytes();
    said.matches(&expected[..expected.len().min(Passphrase::MAX_LEN)])
}

/// Answers one message after another.
fn answer_messages(
    state: &ServerState,
    control: &mut ServerControl,
    guard: &ClientGuard,
) -> ConnectionEnd {
    let idle = Duration::from_nanos(state.job.idle.as_nanos());
    loop {
        let message = match control.wait(None, Some(Instant::now() + idle)) {
            ControlEvent::Message(message) => message,
            ControlEvent::Closed => return ConnectionEnd::Well,
            // The server ended the connection.
            ControlEvent::Broken | ControlEvent::Deadline | ControlEvent::Woken
                if state.is_closing() =>
            {
                return ConnectionEnd::Well;
            }
            ControlEvent::Broken | ControlEvent::Deadline | ControlEvent::Woken => {
                return ConnectionEnd::GivenUp;
            }
        };
        let kind = Request::type_of(&message);
        let generation = control.generation();
        let refuse = |refusal: Refusal| refusal.encode(Request::answer_type(kind), generation);
        let answer = match Request::parse(&message) {
            Ok(Request::Omni(request)) => match RequestedTest::from_omni(&request) {
                Ok(ask) => match run_test(state, control, guard, ask, kind) {
                    Ok(answer) => answer,
                    Err(ClientLeft) => return ConnectionEnd::Well,
                },
                Err(errno) => refuse(to_refusal(errno)),
            },
            Ok(Request::Classic(request)) => match RequestedTest::from_classic(&request) {
                Ok(ask) => match run_test(state, control, guard, ask, kind) {
                    Ok(answer) => answer,
                    Err(ClientLeft) => return ConnectionEnd::Well,
                },
                Err(errno) => refuse(to_refusal(errno)),
            },
            Ok(Request::CpuCalibrate) => Calibration {
                rate: server_messages::CPU_RATE,
                cpus: cpu_count(state),
            }
            .encode(generation),
            Ok(Request::System) => SystemText::deprecated().encode(generation),
            Ok(Request::DebugOn | Request::DebugOff) => debug_ok(generation),
            // An end message after the end, or a passphrase that is not required.
            Ok(Request::End | Request::Passphrase(_)) => continue,
            Ok(Request::Unknown(_)) => refuse(Refusal::UNKNOWN_REQUEST),
            Err(_) => refuse(Refusal::INVALID),
        };
        if control.send(&answer).is_err() {
            return ConnectionEnd::GivenUp;
        }
    }
}

/// The client left during a test.
struct ClientLeft;

fn to_refusal(errno: LinuxErrno) -> Refusal {
    Refusal::new(errno).unwrap_or(Refusal::INVALID)
}

/// Runs a test. Returns the final message. The data connection is closed by then, unless the client expects otherwise.
fn run_test(
    state: &ServerState,
    control: &mut ServerControl,
    guard: &ClientGuard,
    ask: RequestedTest,
    kind: i32,
) -> Result<Vec<u8>, ClientLeft> {
    let counts = &state.counts;
    ServerCounts::add_one(&counts.tests);
    let generation = control.generation();
    let refuse = |errno: LinuxErrno| {
        ServerCounts::add_one(&counts.failed);
        to_refusal(errno).encode(Request::answer_type(kind), generation)
    };
    let ends = control
        .local()
        .and_then(|local| Ok((local, control.peer()?)));
    let prepared = match ends {
        Ok((local, peer)) => PreparedTest::new(ask, state, local, peer),
        Err(error) => Err(error.raw_os_error().unwrap_or(libc::ENOTCONN)),
    };
    let running = match prepared.and_then(|prepared| RunningTest::start(prepared, state)) {
        Ok(running) => running,
        Err(errno) => return Ok(refuse(errno)),
    };
    let response =
        server_messages::ready_message(&running.facts, running.measures_cpu(), generation);
    let counters = running.counters();
    guard.publish_counters(Some(Arc::clone(&counters)));
    let outcome = match control.send(&response) {
        Ok(()) => running.watch_until_end(control, state).ok(),
        Err(_) => {
            running.abandon();
            None
        }
    };
    guard.publish_counters(None);
    let Some(outcome) = outcome else {
        ServerCounts::add_one(&counts.failed);
        return Err(ClientLeft);
    };
    count(counts, &outcome);
    match outcome.failure() {
        Some(errno) => Ok(refuse(errno)),
        None => {
            // Sent here, so that a lingering connection is closed afterwards.
            let results = server_messages::results_message(&outcome, generation);
            if control.send(&results).is_err() {
                ServerCounts::add_one(&counts.failed);
                return Err(ClientLeft);
            }
            ServerCounts::add_one(&counts.completed);
            drop(outcome.linger);
            Ok(Vec::new())
        }
    }
}

fn count(counts: &ServerCounts, outcome: &TestOutcome) {
    let tally = &outcome.done.tally;
    ServerCounts::add(&counts.bytes_received, tally.bytes_received);
    ServerCounts::add(&counts.bytes_sent, tally.bytes_sent);
    ServerCounts::add(&counts.strangers, outcome.done.strangers);
}

/// Number of CPUs.
fn cpu_count(state: &ServerState) -> u32 {
    let measured = state.host.cpu_times().map(|times| times.cpus.len());
    let known = measured.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    u32::try_from(known.unwrap_or(1)).unwrap_or(u32::MAX)
}
