//! Live screen on the terminal: the conditions for opening it, the thread that draws it, and the restoration of the
//! terminal however the run ends.
//!
//! Signals keep their meaning: the terminal is not in raw mode, so Ctrl-C, Ctrl-Z and Ctrl-\ work as usual, even if
//! output is blocked. A dedicated thread draws and reads keys. The run updates the screen under a lock that is held
//! only while lines are composed, never while lines are written. If the process is killed (`kill -9`, the third
//! Ctrl-C, Ctrl-\), a small helper process at the end of a pipe restores the terminal (`guard`).

mod pane;

use std::{
    io::{self, IsTerminal, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ratatui_core::terminal::Terminal;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios},
};
use wb_model::{JobKind, Phase, Plan, Report, Snapshot, timeline::Timeline};
use wb_session::{Environment, Prepared, Signals, Steer, Steering, View};
use wb_tui::{About, Action, Keys, Reading, Screen};

use self::pane::Pane;
use crate::{
    deliver::{color, unicode},
    say::say_as_is,
};

/// Minimum duration of a run with a screen; shorter runs print lines.
const LEAST: Duration = Duration::from_secs(2);
/// Minimum time between two frames.
const FRAME: Duration = Duration::from_millis(100);
/// Time between two frames if only the clock has changed.
const IDLE: Duration = Duration::from_millis(500);
/// Switches to the alternate screen, hides the cursor and clears the screen.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// Switches back to the main screen with default colours and a visible cursor.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// Open screen, for messages and for panics.
static OPEN: Mutex<Option<Held>> = Mutex::new(None);

/// Lock for writing to the terminal, so that no part of a frame follows the restoration.
static PEN: Mutex<()> = Mutex::new(());

/// State that must be restored.
struct Held {
    before: Termios,
    screen: Arc<Mutex<Screen>>,
    /// Messages during the screen, printed when the screen is closed.
    said: String,
    /// True if drawing is suspended because the terminal belongs to another process.
    away: Arc<AtomicBool>,
    /// True if the terminal is available again and must be redrawn.
    again: Arc<AtomicBool>,
    /// Pipe to the guard, which learns here if there is anything to restore.
    guard: Option<Arc<ChildStdin>>,
}

impl Held {
    /// Sends a byte to the guard, if any.
    fn tell_guard(&self, byte: u8) {
        if let Some(mut line) = self.guard.as_deref() {
            let _ = line.write_all(&[byte]);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if all three standard streams are the terminal and the process is in the foreground; a background
/// process would be stopped.
fn has_terminal() -> bool {
    let able = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    let all = io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
    let front = termios::tcgetpgrp(io::stdin());
    able && all && front.is_ok_and(|front| front == rustix::process::getpgrp())
}

/// Returns the end of the HTTP jobs without progress reports, in ns after the start, if known.
fn http_ends(plan: &Plan) -> Option<u64> {
    let ends = plan
        .http_jobs
        .iter()
        .map(|job| job.duration.map(|d| d.as_nanos()));
    ends.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Returns the facts about a run that are known before its start.
fn about(plan: &Plan, ports: Vec<(String, String)>) -> About {
    About {
        title: plan.kind.clone(),
        ports,
        planned_ns: http_ends(plan),
        criteria: plan.criteria.clone(),
        searches: plan.has(JobKind::Bench),
        reading: None,
        fixed_rate: (!Steering::is_followed_by(plan))
            .then(|| "only loads on ports support this".to_owned()),
        unicode: unicode(),
        color: color(),
    }
}

/// Screen of a run: not yet opened, open, or not wanted.
pub(crate) struct Live {
    screen: Option<Arc<Mutex<Screen>>>,
    signals: Signals,
    steering: Steering,
    open: Option<Open>,
    started: Instant,
    /// Duration of the run as far as the plan defines it.
    planned: Option<Duration>,
}

/// Parts of an open screen.
struct Open {
    thread: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
    guard: Option<(Child, Arc<ChildStdin>)>,
}

impl Live {
    /// Creates a screen for a run if it is wanted and the terminal supports it. The screen opens once the run exceeds
    /// the minimum duration.
    pub(crate) fn new(run: &Prepared, wanted: bool, environment: &Environment) -> Self {
        let (signals, steering) = (&environment.signals, &environment.steering);
        let about = || about(run.plan(), run.locators());
        Self::about(about, wanted, signals, steering)
    }

    /// Creates a screen for a run on other hosts, as [`Live::new`] does.
    pub(crate) fn elsewhere(plan: &Plan, wanted: bool, environment: &Environment) -> Self {
        let (signals, steering) = (&environment.signals, &environment.steering);
        let ports = plan.ports.iter();
        let ports = ports.map(|port| (port.name.clone(), port.locator.to_string()));
        let about = || About {
            fixed_rate: Some("runs of a fleet keep their rates".to_owned()),
            ..about(plan, ports.collect())
        };
        Self::about(about, wanted, signals, steering)
    }

    fn about(
        about: impl FnOnce() -> About,
        wanted: bool,
        signals: &Signals,
        steering: &Steering,
    ) -> Self {
        let screen = (wanted && has_terminal()).then(|| Screen::new(about()));
        Self {
            planned: screen.as_ref().and_then(Screen::planned),
            screen: screen.map(|screen| Arc::new(Mutex::new(screen))),
            signals: signals.clone(),
            steering: steering.clone(),
            open: None,
            started: Instant::now(),
        }
    }

    /// Creates a screen for counters, read every `interval` for a given time or without an end. The screen opens at
    /// once.
    pub(crate) fn of_counters(
        reading: Reading,
        interval: Duration,
        planned: Option<Duration>,
        wanted: bool,
        signals: &Signals,
    ) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let about = || About {
            title: "stat".to_owned(),
            planned_ns: planned.map(ns),
            reading: Some(reading),
            fixed_rate: Some("stat does not send traffic".to_owned()),
            unicode: unicode(),
            color: color(),
            ..About::default()
        };
        let wanted = wanted && planned.is_none_or(|planned| planned > LEAST);
        let mut live = Self::about(about, wanted, signals, &Steering::default());
        live.tell(true, |screen| {
            screen.take(
                &Snapshot::at(0, ns(interval), Phase::Running),
                &Report::default(),
            );
        });
        live
    }

    /// Updates the screen, opens it if permitted, and returns true if it is open.
    pub(crate) fn tell(&mut self, may_open: bool, tell: impl FnOnce(&mut Screen)) -> bool {
        let Some(screen) = &self.screen else {
            return false;
        };
        tell(&mut lock(screen));
        // Causes a panic for the test of the terminal's restoration.
        #[cfg(debug_assertions)]
        if self.open.is_some() && std::env::var_os("WIREBENCH_PANIC").is_some() {
            panic!("WIREBENCH_PANIC is set");
        }
        if self.open.is_none() && may_open {
            match Open::start(screen, &self.signals, &self.steering) {
                Ok(open) => self.open = Some(open),
                Err(_) => self.screen = None,
            }
        }
        // After a lost terminal or a failed screen, lines may still reach the user.
        let gone = self.open.as_ref().is_some_and(Open::has_ended);
        if let Some(open) = self.open.take_if(|_| gone) {
            open.leave();
            self.screen = None;
        }
        self.open.is_some()
    }

    /// Takes over a recorded timeline.
    pub(crate) fn recorded(&mut self, timeline: &Timeline) {
        if let Some(screen) = &self.screen {
            lock(screen).record(timeline);
        }
    }

    /// Shows a view. Returns false if the screen is not open, so that a line may be printed instead.
    pub(crate) fn view(&mut self, view: &View<'_>) -> bool {
        let may_open = !view.done && self.is_long(view);
        self.tell(may_open, |screen| screen.take(&view.snapshot, view.report))
    }

    #[allow(clippy::cast_precision_loss)]
    fn is_long(&self, view: &View<'_>) -> bool {
        let s = &view.snapshot;
        match s.progress.filter(|p| *p > 0.0) {
            Some(progress) => s.elapsed_ns as f64 / progress > LEAST.as_nanos() as f64 * 1.01,
            None => self.planned.unwrap_or_default() > LEAST || self.started.elapsed() >= LEAST,
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.leave();
        }
    }
}

/// Takes over a message if a screen is open. Returns true if it did.
pub(crate) fn overhears(text: &str) -> bool {
    let mut open = lock(&OPEN);
    let Some(held) = &mut *open else {
        return false;
    };
    held.said.push_str(text);
    // In a panic, the drawing thread itself may hold the lock.
    if let Ok(mut screen) = held.screen.try_lock() {
        screen.say(text);
    }
    true
}

/// Restores the terminal. Returns the messages of the meantime.
fn give_back() -> Option<String> {
    let held = lock(&OPEN).take()?;
    held.away.store(true, Ordering::Release);
    restore(&held.before);
    Some(held.said)
}

fn restore(before: &Termios) {
    let _pen = lock(&PEN);
    let mut out = io::stderr();
    let _ = out.write_all(LEAVE).and_then(|()| out.flush());
    let _ = termios::tcsetattr(&out, OptionalActions::Now, before);
}

/// Restores the terminal while the process is suspended, and takes it back afterwards.
fn mind_suspension() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = || {
            if let Some(held) = &*lock(&OPEN) {
                held.away.store(true, Ordering::Release);
                restore(&held.before);
                // From here on, a killed process leaves nothing to restore.
                held.tell_guard(DISMISSED);
            }
        };
        let after = || {
            if let Some(held) = &*lock(&OPEN) {
                held.tell_guard(CALLED_BACK);
                held.away.store(false, Ordering::Release);
                held.again.store(true, Ordering::Release);
            }
        };
        // On failure, the screen works without suspension support.
        let _ = wb_session::mind_suspension(before, after);
    });
}

/// Routes panic messages: in place of the screen if the panic ends the process, otherwise among the other messages.
fn mind_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let main = std::thread::current().name() == Some("main");
            if main {
                if let Some(said) = give_back() {
                    say_as_is(said);
                }
                before(panic);
            } else if !overhears(&format!("{panic}\n")) {
                before(panic);
            }
        }));
    });
}

/// Returns the terminal settings for the screen: key by key, without echo.
fn key_by_key(before: &Termios) -> Termios {
    let mut modes = before.clone();
    modes
        .local_modes
        .remove(LocalModes::ICANON | LocalModes::ECHO);
    modes.special_codes[SpecialCodeIndex::VMIN] = 0;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    modes
}

impl Open {
    fn start(
        screen: &Arc<Mutex<Screen>>,
        signals: &Signals,
        steering: &Steering,
    ) -> io::Result<Self> {
        mind_panics();
        let (away, again) = (Arc::default(), Arc::default());
        let before = termios::tcgetattr(io::stderr())?;
        // Started first, so that the terminal is protected from the beginning.
        let guard = start_guard().ok();
        let line = guard.as_ref().map(|(_, line)| Arc::clone(line));
        *lock(&OPEN) = Some(Held {
            before: before.clone(),
            screen: Arc::clone(screen),
            said: String::new(),
            away: Arc::clone(&away),
            again: Arc::clone(&again),
            guard: line,
        });
        mind_suspension();
        let over = Arc::new(AtomicBool::new(false));
        let drawing = Drawing {
            screen: Arc::clone(screen),
            signals: signals.clone(),
            steering: steering.clone(),
            over: Arc::clone(&over),
            away,
            again,
            modes: key_by_key(&before),
        };
        let thread = std::thread::Builder::new()
            .name("wb-screen".to_owned())
            .spawn(move || drawing.run());
        if thread.is_err() {
            give_back();
        }
        Ok(Self {
            thread: Some(thread?),
            over,
            guard,
        })
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn leave(mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let said = give_back();
        if let Some((mut child, line)) = self.guard.take() {
            // The terminal is restored, so the guard has nothing left to do.
            let _ = (&*line).write_all(&[DISMISSED]);
            drop(line);
            let _ = child.wait();
        }
        if let Some(said) = said.filter(|said| !said.is_empty()) {
            say_as_is(said);
        }
    }
}

/// State of the drawing thread.
struct Drawing {
    screen: Arc<Mutex<Screen>>,
    signals: Signals,
    steering: Steering,
    over: Arc<AtomicBool>,
    away: Arc<AtomicBool>,
    again: Arc<AtomicBool>,
    modes: Termios,
}

impl Drawing {
    fn run(self) {
        let Ok(mut terminal) = Terminal::new(Pane::default()) else {
            return;
        };
        let mut keys = Keys::default();
        let mut told = (u64::MAX, Instant::now());
        let mut drawn = None::<Instant>;
        self.again.store(true, Ordering::Release);
        while !self.over.load(Ordering::Acquire) {
            if self.away.load(Ordering::Acquire) {
                std::thread::sleep(FRAME);
                continue;
            }
            if self.again.swap(false, Ordering::AcqRel) {
                let _pen = lock(&PEN);
                // Suspended in the meantime: the terminal has been restored.
                if self.away.load(Ordering::Acquire) {
                    continue;
                }
                let _ = termios::tcsetattr(io::stderr(), OptionalActions::Now, &self.modes);
                terminal.backend_mut().put(ENTER);
                if terminal.clear().is_err() {
                    return;
                }
                drawn = None;
            }
            let pressed = self.keys(&mut keys);
            let now = {
                let mut screen = lock(&self.screen);
                let now = screen.elapsed_ns();
                if now != told.0 {
                    told = (now, Instant::now());
                }
                #[allow(clippy::cast_possible_truncation)]
                screen.set_since(told.1.elapsed().as_nanos() as u64);
                now == told.0 && told.1.elapsed() < FRAME
            };
            let due = drawn.is_none_or(|at| at.elapsed() >= IDLE);
            if !(pressed || now || due) {
                continue;
            }
            let frame = |frame: &mut ratatui_core::terminal::Frame<'_>| {
                wb_tui::draw(frame, &lock(&self.screen));
            };
            let pen = lock(&PEN);
            if self.away.load(Ordering::Acquire) {
                continue;
            }
            // A lost terminal does not return; the run continues without it.
            if terminal.draw(frame).is_err() {
                return;
            }
            drop(pen);
            drawn = Some(Instant::now());
        }
    }

    /// Waits for keys for the time of one frame and acts on them. Returns true if there were any.
    fn keys(&self, keys: &mut Keys) -> bool {
        let stdin = io::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        let frame = Timespec {
            tv_sec: 0,
            tv_nsec: FRAME.subsec_nanos().into(),
        };
        let began = Instant::now();
        let came = poll(&mut ready, Some(&frame)).is_ok_and(|n| n > 0);
        let mut bytes = [0; 64];
        let read = match came {
            true => rustix::io::read(&stdin, &mut bytes).unwrap_or(0),
            false => 0,
        };
        let pressed = match read {
            0 => keys.rest().into_iter().collect(),
            n => keys.read(&bytes[..n]),
        };
        for key in &pressed {
            let action = lock(&self.screen).press(*key);
            match action {
                Some(Action::Stop) => self.signals.raise(libc::SIGINT),
                Some(Action::Pause) => self.steering.ask(Steer::Pause),
                Some(Action::Rate(share)) => self.steering.ask(Steer::Rate(share)),
                None => {}
            }
        }
        // A held key or a hang-up must not speed up the drawing.
        if came {
            std::thread::sleep(FRAME.saturating_sub(began.elapsed()));
        }
        !pressed.is_empty()
    }
}

/// Message to the guard that nothing is left to restore.
const DISMISSED: u8 = b'd';
/// Message to the guard that there is something to restore again.
const CALLED_BACK: u8 = b'b';

/// Starts the process that restores the terminal if this process cannot, and waits until it is ready.
fn start_guard() -> io::Result<(Child, Arc<ChildStdin>)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(GUARD)
        .arg0("wb-screen-guard")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let line = child.stdin.take();
    let mut ready = [0];
    if let Some(mut told) = child.stdout.take() {
        let _ = io::Read::read(&mut told, &mut ready);
    }
    line.map(|line| (child, Arc::new(line)))
        .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}

/// Name of the guard's command.
pub(crate) const GUARD: &str = "screen-guard";

/// Runs the guard: stores the state of the terminal, waits until the other end of its input is closed, and restores
/// the terminal unless dismissed.
pub(crate) fn guard() {
    // A new session is out of reach of the terminal's signals and job control; the terminal is only written to.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"wb-screen-guard");
    let Ok(before) = termios::tcgetattr(io::stderr()) else {
        return;
    };
    let _ =
        crate::stdout::stdout().and_then(|mut out| out.write_all(b"r").and_then(|()| out.flush()));
    let mut said = Vec::new();
    let _ = io::Read::read_to_end(&mut io::stdin(), &mut said);
    if said.last() != Some(&DISMISSED) {
        let _ = io::stderr().write_all(LEAVE);
        let _ = termios::tcsetattr(io::stderr(), OptionalActions::Now, &before);
    }
}
