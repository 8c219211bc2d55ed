//! Signals that ask a run to end. SIGINT, SIGTERM and SIGHUP end a run soon and in order, and so does a terminal that
//! hangs up without sending a signal. Under `nohup` a run continues without its terminal. A program that has changed
//! the terminal can restore it while the process is suspended ([`mind_suspension`]).

#![allow(
    unsafe_code,
    reason = "a signal's disposition cannot be set in safe code"
)]

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use signal_hook::{
    consts::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGXFSZ},
    iterator::{self, SignalsInfo, exfiltrator::WithOrigin},
    low_level::siginfo::Cause,
};

use crate::Request;
use wb_open::{Alarm, StartError};

/// Time in which the same signal once more is the same request. `timeout -s INT` signals the process and then its group,
/// and a terminal and the program that started this one may both pass on a Ctrl-C.
const SAME_REQUEST: Duration = Duration::from_millis(250);

/// Counts the requests for the end. The first signal ends the run in order. The second ends it without waiting
/// for frames in flight. The third ends the process at once, in case the others have no effect.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    first: Arc<AtomicI32>,
    /// Time of the first signal if a process sent it, and only once. Signals of a terminal come from the kernel.
    sent: Arc<Mutex<Option<Instant>>>,
    count: Arc<AtomicU32>,
    /// Numbers of requests, in the order of [`Request::ALL`].
    requests: Arc<[AtomicU32; 3]>,
    /// Alarms of the current runs.
    alarms: Arc<Mutex<Vec<Weak<Alarm>>>>,
}

impl Signals {
    /// Installs the handlers for the rest of the process's life. SIGUSR1 reports the counts.
    ///
    /// # Errors
    /// Fails if the system refuses a handler or a thread.
    pub fn install() -> Result<Self, StartError> {
        Self::install_for(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1])
    }

    /// Installs the handlers for a socket test, which SIGALRM ends too. The user sets the time of that signal, so it is
    /// a normal end.
    ///
    /// # Errors
    /// Fails if the system refuses a handler or a thread.
    pub fn install_for_test() -> Result<Self, StartError> {
        Self::install_for(&[SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGUSR1])
    }

    /// Installs the handlers for a capture: SIGHUP begins the next file, SIGUSR1 reports the counts, SIGUSR2 writes the
    /// frames that were read.
    ///
    /// # Errors
    /// Fails if the system refuses a handler or a thread.
    pub fn install_for_capture() -> Result<Self, StartError> {
        Self::install_for(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])
    }

    fn install_for(numbers: &[i32]) -> Result<Self, StartError> {
        let captures = numbers.contains(&SIGUSR2);
        let refused = |cause| StartError::System {
            operation: "handle signals",
            cause,
        };
        let signals = Self::default();
        let numbers: Vec<i32> = numbers
            .iter()
            .copied()
            .filter(|n| *n != SIGHUP || !wb_machine::process::ignores(SIGHUP))
            .collect();
        let mut arrivals = SignalsInfo::<WithOrigin>::new(&numbers).map_err(refused)?;
        let noted = signals.clone();
        std::thread::Builder::new()
            .name("wb-signals".to_owned())
            .spawn(move || {
                let mut last = None;
                for arrival in &mut arrivals {
                    let signal = arrival.signal;
                    noted.ask(match signal {
                        SIGUSR1 => Request::Counts,
                        SIGUSR2 => Request::Flush,
                        SIGHUP if captures => Request::NextFile,
                        _ => {
                            let now = Instant::now();
                            let by_process = matches!(arrival.cause, Cause::Sent(_));
                            let is_first = noted.received().is_none();
                            let mut sent =
                                noted.sent.lock().unwrap_or_else(PoisonError::into_inner);
                            *sent = (by_process && is_first).then_some(now);
                            drop(sent);
                            if is_new_request(last, signal, now) {
                                last = Some((signal, now));
                                if noted.note(signal) > 2 {
                                    std::process::exit(128 + signal);
                                }
                            }
                            continue;
                        }
                    });
                }
            })
            .map_err(refused)?;
        if numbers.contains(&SIGHUP)
            && let Some(terminal) = terminal()
        {
            signals.watch(terminal).map_err(refused)?;
        }
        Ok(signals)
    }

    /// Ends the run when its terminal hangs up. The kernel sends SIGHUP only to the shell of a terminal and to the
    /// processes in its foreground. A run in the background, or under `timeout` in a script, gets none.
    fn watch(&self, terminal: OwnedFd) -> io::Result<()> {
        let noted = self.clone();
        let wait = move || {
            let mut watched = [PollFd::new(&terminal, PollFlags::empty())];
            while poll(&mut watched, None) == Err(Errno::INTR) {}
            if watched[0].revents().contains(PollFlags::HUP) {
                noted.note(SIGHUP);
            }
        };
        let thread = std::thread::Builder::new().name("wb-terminal".to_owned());
        thread.spawn(wait).map(drop)
    }

    /// Returns signals that never arrive, for runs inside another program.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Number for [`Signals::raise`] that stands for a request of another program, such as a server, to stop.
    pub const REQUEST: i32 = wb_open::STOP_REQUEST;

    /// Number for [`Signals::raise`] that stands for the end of the lease of a part of a run.
    pub const LEASE_END: i32 = wb_open::LEASE_END;

    /// Acts as if this signal had arrived, for programs that run a plan inside their own process.
    pub fn raise(&self, signal: i32) {
        self.note(signal);
    }

    /// Makes a request to the runs with these signals.
    pub fn ask(&self, request: Request) {
        self.requests[request as usize].fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    fn note(&self, signal: i32) -> u32 {
        let first = self
            .first
            .compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
        // A terminal hangs up once, but the kernel, the shell and the terminal itself all report it.
        if signal == SIGHUP && first.is_err() {
            return self.count.load(Ordering::Relaxed);
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        self.ring();
        count
    }

    /// Wakes the controlling thread of a run whenever a signal arrives, for as long as `alarm` lives.
    pub fn wake(&self, alarm: &Arc<Alarm>) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        alarms.retain(|alarm| alarm.strong_count() > 0);
        alarms.push(Arc::downgrade(alarm));
    }

    fn ring(&self) {
        let alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = alarms.iter().filter_map(Weak::upgrade);
        alive.for_each(|alarm| alarm.bell.ring());
    }

    /// The first signal that arrived, if any.
    #[must_use]
    pub fn received(&self) -> Option<i32> {
        match self.first.load(Ordering::Relaxed) {
            0 => None,
            n => Some(n),
        }
    }

    /// Returns true if a process sent a signal to this process and not to its group, as a terminal and `timeout` do.
    #[must_use]
    pub fn is_for_this_process_only(&self) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.is_some_and(|at| at.elapsed() >= SAME_REQUEST)
    }

    /// The signal that ended a run early, if any.
    pub fn interrupted(&self) -> Option<i32> {
        self.received().filter(|n| *n != SIGALRM)
    }

    /// Refuses to start a run after a signal.
    ///
    /// # Errors
    /// [`StartError::Interrupted`].
    pub fn refuse_start(&self) -> Result<(), StartError> {
        let interrupted = self.interrupted().map(StartError::Interrupted);
        interrupted.map_or(Ok(()), Err)
    }

    /// Numbers of requests so far, in the order of [`Request::ALL`].
    pub fn requests(&self) -> [u32; 3] {
        Request::ALL.map(|request| self.requests[request as usize].load(Ordering::Relaxed))
    }

    /// Returns true if a second signal arrived: the run must end without waiting.
    #[must_use]
    pub fn hurry(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 1
    }
}

/// Returns true if a signal is not a repetition of the last one.
fn is_new_request(last: Option<(i32, Instant)>, signal: i32, now: Instant) -> bool {
    last.is_none_or(|(number, at)| number != signal || now.duration_since(at) >= SAME_REQUEST)
}

/// Turns reaching the file size limit (`ulimit -f`) into a write error instead of the end of the process. Child
/// processes keep the previous behaviour.
pub fn survive_file_limit() {
    // Registration fails only for signals that cannot be handled.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Returns the terminal that the run reports to, if it is the controlling terminal of the process. A daemon has none.
fn terminal() -> Option<OwnedFd> {
    let (error, output) = (io::stderr(), io::stdout());
    let terminal = [error.as_fd(), output.as_fd()]
        .into_iter()
        .find(|fd| is_controlling_terminal(*fd))?;
    terminal.try_clone_to_owned().ok()
}

/// Returns true for the controlling terminal, because only that terminal has a foreground process group. The group has
/// no number (`OPNOTSUPP`) if its leader is outside of our process namespace, as in a container.
fn is_controlling_terminal(fd: BorrowedFd<'_>) -> bool {
    matches!(
        rustix::termios::tcgetpgrp(fd),
        Ok(_) | Err(rustix::io::Errno::OPNOTSUPP)
    )
}

/// Calls `before` just before a suspended process (Ctrl-Z) stops, and `after` when the process continues, even after a
/// SIGSTOP, which cannot be handled. Stays active for the rest of the process's life. Call it once.
///
/// # Errors
/// Fails if the system refuses a handler or a thread.
pub fn mind_suspension(
    before: impl Fn() + Send + 'static,
    after: impl Fn() + Send + 'static,
) -> std::io::Result<()> {
    let mut arrivals = iterator::Signals::new([SIGTSTP, SIGCONT])?;
    let work = move || {
        for signal in &mut arrivals {
            if signal == SIGTSTP {
                before();
                suspend();
            }
            after();
        }
    };
    let thread = std::thread::Builder::new().name("wb-suspend".to_owned());
    thread.spawn(work).map(drop)
}

/// Suspends the process as if SIGTSTP had no handler. The kernel may decide that there is no shell to continue the
/// process.
fn suspend() {
    // SAFETY: all zeroes is a valid `sigaction`, the default disposition with no flags; both structures live until
    // the calls have returned, and what was there before is put back.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut ours: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(SIGTSTP, &raw const default, &raw mut ours) == 0 {
            libc::raise(SIGTSTP);
            libc::sigaction(SIGTSTP, &raw const ours, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_counts_and_the_second_hurries() {
        let signals = Signals::none();
        assert_eq!((signals.received(), signals.hurry()), (None, false));
        assert_eq!(signals.note(SIGINT), 1);
        assert_eq!((signals.received(), signals.hurry()), (Some(SIGINT), false));
        assert_eq!(signals.note(SIGTERM), 2);
        assert_eq!((signals.received(), signals.hurry()), (Some(SIGINT), true));
    }

    #[test]
    fn a_signal_that_is_delivered_twice_is_one_request() {
        let now = Instant::now();
        let last = Some((SIGINT, now));
        assert!(is_new_request(None, SIGINT, now));
        assert!(!is_new_request(last, SIGINT, now + SAME_REQUEST / 2));
        assert!(is_new_request(last, SIGTERM, now));
        assert!(is_new_request(last, SIGINT, now + SAME_REQUEST));
    }

    #[test]
    fn a_terminal_that_hangs_up_says_so_more_than_once() {
        let signals = Signals::none();
        for _ in 0..4 {
            assert_eq!(signals.note(SIGHUP), 1);
        }
        assert_eq!((signals.received(), signals.hurry()), (Some(SIGHUP), false));
        signals.note(SIGTERM);
        assert!(signals.hurry());
    }
}
