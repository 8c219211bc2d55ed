//! One control connection, from the first message to its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use wb_netperf_wire::{Calibration, Passphrase, Refusal, Request, SystemText, debug_ok};

use super::{
    answer,
    ask::{Ask, Errno},
    control::{Control, Event},
    prepare::Prepared,
    state::{ClientGuard, Counts, ServerState},
    watch::{Outcome, Running},
};

/// Time limit for the passphrase; netperf's value.
const PASSPHRASE: Duration = Duration::from_secs(20);

/// Reason for the end of a control connection.
enum Left {
    /// Closed by the client between two messages, or by the server.
    Well,
    /// Idle for too long, or invalid messages.
    GivenUp,
    /// Without the passphrase.
    Unauthorised,
}

/// Serves a client until it leaves.
pub(super) fn serve(state: &ServerState, mut control: Control, guard: &ClientGuard) {
    let left = match authorise(state, &mut control) {
        Ok(()) => converse(state, &mut control, guard),
        Err(left) => left,
    };
    match left {
        Left::Well => {}
        Left::GivenUp => Counts::one(&state.counts.given_up),
        Left::Unauthorised => Counts::one(&state.counts.unauthorised),
    }
    control.part();
}

/// Waits for the passphrase, if one is required.
fn authorise(state: &ServerState, control: &mut Control) -> Result<(), Left> {
    let Some(expected) = &state.job.passphrase else {
        return Ok(());
    };
    match control.wait(None, Some(Instant::now() + PASSPHRASE)) {
        Event::Message(message) => match Request::parse(&message) {
            Ok(Request::Passphrase(said)) if is_right(&said, expected) => Ok(()),
            _ => Err(Left::Unauthorised),
        },
        Event::Closed => Err(Left::Well),
        Event::Woken | Event::Deadline | Event::Broken => Err(Left::GivenUp),
    }
}

/// Compares the part of a passphrase that fits into a message.
fn is_right(said: &Passphrase, expected: &str) -> bool {
    let expected = expected.as_bytes();
    said.matches(&expected[..expected.len().min(Passphrase::MAX_LEN)])
}

/// Answers one message after another.
fn converse(state: &ServerState, control: &mut Control, guard: &ClientGuard) -> Left {
    let idle = Duration::from_nanos(state.job.idle.as_nanos());
    loop {
        let message = match control.wait(None, Some(Instant::now() + idle)) {
            Event::Message(message) => message,
            Event::Closed => return Left::Well,
            // The server ended the connection.
            Event::Broken | Event::Deadline | Event::Woken if state.is_closing() => {
                return Left::Well;
            }
            Event::Broken | Event::Deadline | Event::Woken => return Left::GivenUp,
        };
        let kind = Request::type_of(&message);
        let generation = control.generation();
        let refuse = |refusal: Refusal| refusal.encode(Request::answer_type(kind), generation);
        let answer = match Request::parse(&message) {
            Ok(Request::Omni(request)) => match Ask::omni(&request) {
                Ok(ask) => match test(state, control, guard, ask, kind) {
                    Ok(answer) => answer,
                    Err(Over) => return Left::Well,
                },
                Err(errno) => refuse(refusal(errno)),
            },
            Ok(Request::Classic(request)) => match Ask::classic(&request) {
                Ok(ask) => match test(state, control, guard, ask, kind) {
                    Ok(answer) => answer,
                    Err(Over) => return Left::Well,
                },
                Err(errno) => refuse(refusal(errno)),
            },
            Ok(Request::CpuCalibrate) => Calibration {
                rate: answer::CPU_RATE,
                cpus: cpus(state),
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
            return Left::GivenUp;
        }
    }
}

/// The client left during a test.
struct Over;

fn refusal(errno: Errno) -> Refusal {
    Refusal::new(errno).unwrap_or(Refusal::INVALID)
}

/// Runs a test. Returns the final message. The data connection is closed by then, unless the client expects otherwise.
fn test(
    state: &ServerState,
    control: &mut Control,
    guard: &ClientGuard,
    ask: Ask,
    kind: i32,
) -> Result<Vec<u8>, Over> {
    let counts = &state.counts;
    Counts::one(&counts.tests);
    let generation = control.generation();
    let refuse = |errno: Errno| {
        Counts::one(&counts.failed);
        refusal(errno).encode(Request::answer_type(kind), generation)
    };
    let ends = control
        .local()
        .and_then(|local| Ok((local, control.peer()?)));
    let prepared = match ends {
        Ok((local, peer)) => Prepared::new(ask, state, local, peer),
        Err(error) => Err(error.raw_os_error().unwrap_or(libc::ENOTCONN)),
    };
    let running = match prepared.and_then(|prepared| Running::start(prepared, state)) {
        Ok(running) => running,
        Err(errno) => return Ok(refuse(errno)),
    };
    let response = answer::response(&running.facts, running.measures_cpu(), generation);
    let counters = running.counters();
    guard.show(Some(Arc::clone(&counters)));
    let outcome = match control.send(&response) {
        Ok(()) => running.watch(control, state).ok(),
        Err(_) => {
            running.abandon();
            None
        }
    };
    guard.show(None);
    let Some(outcome) = outcome else {
        Counts::one(&counts.failed);
        return Err(Over);
    };
    count(counts, &outcome);
    match outcome.failure() {
        Some(errno) => Ok(refuse(errno)),
        None => {
            // Sent here, so that a lingering connection is closed afterwards.
            let results = answer::results(&outcome, generation);
            if control.send(&results).is_err() {
                Counts::one(&counts.failed);
                return Err(Over);
            }
            Counts::one(&counts.completed);
            drop(outcome.linger);
            Ok(Vec::new())
        }
    }
}

fn count(counts: &Counts, outcome: &Outcome) {
    let tally = &outcome.done.tally;
    Counts::add(&counts.bytes_received, tally.bytes_received);
    Counts::add(&counts.bytes_sent, tally.bytes_sent);
    Counts::add(&counts.strangers, outcome.done.strangers);
}

/// Number of CPUs.
fn cpus(state: &ServerState) -> u32 {
    let measured = state.host.cpu_times().map(|times| times.cpus.len());
    let known = measured.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    u32::try_from(known.unwrap_or(1)).unwrap_or(u32::MAX)
}
