//! Clock of this host as its time service describes it: an agent asks chrony and ptp4l.

use std::{
    io::Read as _,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use wb_fleet_core::time_service::{CHRONY, PTP, chrony, ptp};
use wb_model::fleet::HostClock;

/// Interval at which the time services are asked.
const INTERVAL: Duration = Duration::from_secs(30);
/// Time that a program may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which the end of a program is checked.
const CHECK: Duration = Duration::from_millis(10);

/// Asks the time services again and again, except during runs. The thread ends with the value.
pub(crate) struct TimeService {
    clock: Arc<Mutex<State>>,
    /// Closed at the end.
    _end: Sender<()>,
}

#[derive(Default)]
struct State {
    clock: Option<HostClock>,
    is_paused: bool,
}

impl TimeService {
    pub(crate) fn start() -> Self {
        let clock = Arc::new(Mutex::new(State::default()));
        let (end, ends) = channel();
        let of_thread = Arc::clone(&clock);
        let thread = thread::Builder::new().name("wb-time".to_owned());
        // Without the thread, the time services remain unknown.
        let _ = thread.spawn(move || {
            loop {
                let is_paused = lock(&of_thread).is_paused;
                if !is_paused {
                    let clock = ask();
                    lock(&of_thread).clock = clock;
                }
                if !matches!(ends.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout)) {
                    return;
                }
            }
        });
        Self { clock, _end: end }
    }

    /// Clock of the host, as far as a time service describes it.
    pub(crate) fn clock(&self) -> Option<HostClock> {
        lock(&self.clock).clock.clone()
    }

    /// Runs no programs, because the host measures, or runs them again.
    pub(crate) fn pause(&self, on: bool) {
        lock(&self.clock).is_paused = on;
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks ptp4l, which is more exact, then chrony.
fn ask() -> Option<HostClock> {
    let by_ptp = output(PTP, PATIENCE).and_then(|text| ptp(&text));
    by_ptp.or_else(|| chrony(&output(CHRONY, PATIENCE)?))
}

/// Output of a program that ends with success in time. `None` otherwise, or if it is not installed.
fn output(words: &[&str], patience: Duration) -> Option<String> {
    let (program, arguments) = words.split_first()?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + patience;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => thread::sleep(CHECK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_fails_or_hangs_has_no_output() {
        let shell = |script| output(&["sh", "-c", script], Duration::from_secs(10));
        assert_eq!(shell("echo a"), Some("a\n".to_owned()));
        assert_eq!(shell("echo a; exit 1"), None);
        assert_eq!(output(&["no-such-program-wb"], PATIENCE), None);
        let began = Instant::now();
        let hangs = output(&["sleep", "100"], Duration::from_millis(20));
        assert_eq!(hangs, None);
        assert!(began.elapsed() < Duration::from_secs(50));
    }
}
