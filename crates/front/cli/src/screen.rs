//! The live screen on the terminal: who may have it, the thread that draws it, and that the terminal is afterwards as
//! it was before, however the run ends.
//!
//! Signals stay signals: the terminal is not raw, so Ctrl-C, Ctrl-Z and Ctrl-\ work as ever, also while nothing can be
//! written. Drawing and keys are a thread of their own; what the run tells it is taken under a lock that is held only
//! while lines are made, never while they are written. For what no code of ours survives (`kill -9`, the third Ctrl-C,
//! Ctrl-\), a small process of our own waits at the end of a pipe and puts the terminal right (`guard`).

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
use wb_model::{JobKind, Phase, Plan, Snapshot, timeline::Timeline};
use wb_session::{Environment, Observer, Prepared, Signals, Steer, Steering, View};
use wb_tui::{About, Action, Keys, Reading, Screen};

use self::pane::Pane;
use crate::{
    run::{color, unicode},
    say::say_as_is,
};

/// Shorter runs have lines.
const LEAST: Duration = Duration::from_secs(2);
/// Time between two frames at least.
const FRAME: Duration = Duration::from_millis(100);
/// Time between two frames where nothing but the clock has moved.
const IDLE: Duration = Duration::from_millis(500);
/// To the other screen, its cursor hidden, and cleared.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// Back, with colours and the cursor as they are by default.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// The screen that is open, for whoever has something to say and for a panic.
static OPEN: Mutex<Option<Held>> = Mutex::new(None);

/// Held by whoever writes to the terminal, so that nothing of a frame comes after the terminal was given back.
static PEN: Mutex<()> = Mutex::new(());

/// What has to be given back.
struct Held {
    before: Termios,
    screen: Arc<Mutex<Screen>>,
    /// What was said meanwhile, told when the screen is left.
    said: String,
    /// Nothing is to be drawn: the terminal is somebody else's.
    away: Arc<AtomicBool>,
    /// It is ours again, and shows nothing of ours.
    again: Arc<AtomicBool>,
    /// Where the guard hears whether there is anything to guard.
    guard: Option<Arc<ChildStdin>>,
}

impl Held {
    /// Tells the guard, if there is one.
    fn tell_guard(&self, byte: u8) {
        if let Some(mut line) = self.guard.as_deref() {
            let _ = line.write_all(&[byte]);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is a terminal that can have a screen: all three streams are a terminal, and it is ours: who is in the background would be stopped.
fn has_terminal() -> bool {
    let able = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    let all = io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
    let front = termios::tcgetpgrp(io::stdin());
    able && all && front.is_ok_and(|front| front == rustix::process::getpgrp())
}

/// When the HTTP jobs have ended that tell no progress, ns after the start; none where nobody knows.
fn http_ends(plan: &Plan) -> Option<u64> {
    let ends = plan
        .http_jobs
        .iter()
        .map(|job| job.duration.map(|d| d.as_nanos()));
    ends.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// What is known of a run before it starts.
fn about(run: &Prepared) -> About {
    let plan = run.plan();
    About {
        title: plan.kind.clone(),
        ports: run.locators(),
        planned_ns: http_ends(plan),
        criteria: plan.criteria.clone(),
        searches: plan.has(JobKind::Bench),
        reading: None,
        fixed_rate: (!Steering::is_followed_by(plan))
            .then(|| "only loads by ports can, and this run has others or none".to_owned()),
        unicode: unicode(),
        color: color(),
    }
}

/// The screen of a run: not opened yet, open, or not wanted.
pub(crate) struct Live {
    screen: Option<Arc<Mutex<Screen>>>,
    signals: Signals,
    steering: Steering,
    open: Option<Open>,
    started: Instant,
    /// As far as the plan alone tells.
    planned: Option<Duration>,
}

/// What an open screen consists of.
struct Open {
    thread: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
    guard: Option<(Child, Arc<ChildStdin>)>,
}

impl Live {
    /// A screen for this run, if it is wanted and the terminal can. It opens when the run has turned out to be no short
    /// one.
    pub(crate) fn new(run: &Prepared, wanted: bool, environment: &Environment) -> Self {
        let (signals, steering) = (&environment.signals, &environment.steering);
        Self::about(|| about(run), wanted, signals, steering)
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

    /// A screen for counters, which are read every `interval` for so long, or without an end. It opens at once.
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
            fixed_rate: Some("stat sends nothing, it only reads".to_owned()),
            unicode: unicode(),
            color: color(),
            ..About::default()
        };
        let wanted = wanted && planned.is_none_or(|planned| planned > LEAST);
        let mut live = Self::about(about, wanted, signals, &Steering::default());
        live.tell(true, |screen| {
            screen.take(&Snapshot::at(0, ns(interval), Phase::Running));
        });
        live
    }

    /// Tells the screen something, opens it if it may be, and says whether it is there.
    pub(crate) fn tell(&mut self, may_open: bool, tell: impl FnOnce(&mut Screen)) -> bool {
        let Some(screen) = &self.screen else {
            return false;
        };
        tell(&mut lock(screen));
        // What no run should do, for the test of what becomes of the terminal then.
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
        // A terminal that has gone, or a screen that broke: lines may still reach somebody.
        let gone = self.open.as_ref().is_some_and(Open::has_ended);
        if let Some(open) = self.open.take_if(|_| gone) {
            open.leave();
            self.screen = None;
        }
        self.open.is_some()
    }

    /// Takes what was taken down.
    pub(crate) fn recorded(&mut self, timeline: &Timeline) {
        if let Some(screen) = &self.screen {
            lock(screen).record(timeline);
        }
    }

    /// Takes a view. Returns whether it is on the screen; else somebody may want a line.
    pub(crate) fn view(&mut self, view: &View) -> bool {
        let may_open = !view.done && self.is_long(view);
        self.tell(may_open, |screen| screen.take(&view.snapshot))
    }

    #[allow(clippy::cast_precision_loss)]
    fn is_long(&self, view: &View) -> bool {
        let s = &view.snapshot;
        match s.progress.filter(|p| *p > 0.0) {
            Some(progress) => s.elapsed_ns as f64 / progress > LEAST.as_nanos() as f64 * 1.01,
            None => self.planned.unwrap_or_default() > LEAST || self.started.elapsed() >= LEAST,
        }
    }
}

/// A run on the screen, and whoever tells of it in another way: it is told of each view, and whether that is on the
/// screen.
pub(crate) struct Watched<F> {
    pub(crate) live: Live,
    pub(crate) tell: F,
}

impl<F: FnMut(&View, bool)> Observer for Watched<F> {
    fn recorded(&mut self, timeline: &Timeline) {
        self.live.recorded(timeline);
    }

    fn view(&mut self, view: &View) {
        let shown = self.live.view(view);
        (self.tell)(view, shown);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.leave();
        }
    }
}

/// Takes what is said while a screen is open. Returns whether it did.
pub(crate) fn overhears(text: &str) -> bool {
    let mut open = lock(&OPEN);
    let Some(held) = &mut *open else {
        return false;
    };
    held.said.push_str(text);
    // Who draws may be the one who says it, in a panic.
    if let Ok(mut screen) = held.screen.try_lock() {
        screen.say(text);
    }
    true
}

/// Gives the terminal back. Returns what was said meanwhile.
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

/// Gives the terminal back while the process is suspended, and takes it again.
fn mind_suspension() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = || {
            if let Some(held) = &*lock(&OPEN) {
                held.away.store(true, Ordering::Release);
                restore(&held.before);
                // Whoever is killed now has nothing to be put right: the screen is left.
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
        // Without it the screen is there all the same.
        let _ = wb_session::mind_suspension(before, after);
    });
}

/// Where a panic is told: in the place of the screen where it ends the process, else with what else was said.
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

/// The terminal as the screen has it: keys come one by one and are not shown.
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
        // First, so that there is no moment without it.
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
            // The terminal is right: nothing is left to do for it.
            let _ = (&*line).write_all(&[DISMISSED]);
            drop(line);
            let _ = child.wait();
        }
        if let Some(said) = said.filter(|said| !said.is_empty()) {
            say_as_is(said);
        }
    }
}

/// What the thread needs that draws.
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
                // Suspended since: the terminal has been given back.
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
            // A terminal that has gone comes back no more, and the run goes on without it.
            if terminal.draw(frame).is_err() {
                return;
            }
            drop(pen);
            drawn = Some(Instant::now());
        }
    }

    /// Waits for keys for the time of a frame and does what they say. Returns whether there were any.
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
        // Whoever holds a key down, or has hung up, draws no faster.
        if came {
            std::thread::sleep(FRAME.saturating_sub(began.elapsed()));
        }
        !pressed.is_empty()
    }
}

/// Said to the guard when there is nothing left to guard.
const DISMISSED: u8 = b'd';
/// And when there is something again.
const CALLED_BACK: u8 = b'b';

/// Starts the process that puts the terminal right if this one cannot, and waits until it is ready.
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

/// The command that the guard is.
pub(crate) const GUARD: &str = "screen-guard";

/// The guard: remembers how the terminal is, waits until nobody holds the other end of its input, and puts the terminal
/// right unless it was told that it is.
pub(crate) fn guard() {
    // Out of reach of the terminal's signals and rules: it is no longer ours, only something to write to.
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
