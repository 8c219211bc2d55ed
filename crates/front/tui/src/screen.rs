//! State of the screen of a run, and the effect of keys.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use wb_model::{Criterion, Phase, Report, Snapshot, text::is_unprintable, timeline::Timeline};

use crate::{
    Key, Tone,
    figures::Figures,
    progress::Progress,
    stat::{Counted, Reading},
    suite,
};

/// Properties of a run that are known before it starts.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Name of the command: `trial`.
    pub title: String,
    /// Its ports: name and locator.
    pub ports: Vec<(String, String)>,
    /// Planned duration in ns, if its snapshots do not contain it.
    pub planned_ns: Option<u64>,
    /// Criteria of the run.
    pub criteria: Vec<Criterion>,
    /// True if it searches by trials.
    pub searches: bool,
    /// Reason why its rate cannot be changed while it runs, if it cannot.
    pub fixed_rate: Option<String>,
    /// Counters to show, for a screen of counters over time without a run.
    pub reading: Option<Reading>,
    /// True if the terminal has characters beyond ASCII.
    pub unicode: bool,
    /// True if colours are enabled.
    pub color: bool,
}

/// A page of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Page {
    /// A summary of everything.
    #[default]
    Overview,
    /// Latency and other times.
    Times,
    /// Figures by job.
    Jobs,
    /// Figures by worker.
    Workers,
    /// Counters of interfaces and probes.
    Counters,
    /// The trials of a search.
    Trials,
    /// Messages so far.
    Messages,
    /// Counters of each interface.
    Interfaces,
    /// Packet processing of each CPU.
    Cpus,
    /// Interrupts of queues.
    Interrupts,
    /// Counters of drivers.
    Driver,
    /// Counters of device probes.
    Probes,
}

impl Page {
    /// Pages of a run, in the order of their keys.
    const OF_RUNS: [Self; 7] = [
        Self::Overview,
        Self::Times,
        Self::Jobs,
        Self::Workers,
        Self::Counters,
        Self::Trials,
        Self::Messages,
    ];

    /// Pages of counters.
    const OF_COUNTERS: [Self; 7] = [
        Self::Overview,
        Self::Interfaces,
        Self::Cpus,
        Self::Interrupts,
        Self::Driver,
        Self::Probes,
        Self::Messages,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Times => "Times",
            Self::Jobs => "Jobs",
            Self::Workers => "Workers",
            Self::Counters => "Counters",
            Self::Trials => "Trials",
            Self::Messages => "Messages",
            Self::Interfaces => "Interfaces",
            Self::Cpus => "CPUs",
            Self::Interrupts => "Interrupts",
            Self::Driver => "Driver",
            Self::Probes => "Probes",
        }
    }
}

/// Request of a key to the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Stop in order, as by SIGINT.
    Stop,
    /// Send nothing new until resumed.
    Pause,
    /// This share of the planned rate; also ends a pause.
    Rate(f64),
}

/// Number of moments kept for lines of bars and charts.
pub(crate) const KEPT: usize = 600;
/// Maximum number of kept messages.
const MESSAGES: usize = 200;
/// Factor by which a key changes the rate.
const STEP: f64 = 1.1;

/// State of a run for the screen.
#[derive(Debug, Default)]
pub struct Screen {
    pub(crate) about: About,
    pub(crate) now: Option<Snapshot>,
    /// Time since that snapshot, ns.
    pub(crate) since_ns: u64,
    pub(crate) past: BTreeMap<&'static str, VecDeque<Option<f64>>>,
    pub(crate) figures: Figures,
    pub(crate) progress: Progress,
    /// Ended trials of a search and its next step, in a line each.
    pub(crate) trials: Vec<(String, Tone)>,
    /// The largest load of the search so far.
    pub(crate) largest: f64,
    pub(crate) messages: VecDeque<String>,
    pub(crate) counted: Option<Counted>,
    pub(crate) page: Page,
    pub(crate) help: bool,
    pub(crate) status: Option<String>,
    pub(crate) stopping: bool,
    pub(crate) paused: bool,
    /// Share of the planned rate.
    pub(crate) rate: Option<f64>,
    /// Number of lines above the visible part.
    pub(crate) above: usize,
}

impl Screen {
    /// A run that is about to start.
    #[must_use]
    pub fn new(about: About) -> Self {
        Self {
            about,
            ..Self::default()
        }
    }

    /// Adds a snapshot and the report so far.
    pub fn take(&mut self, snapshot: &Snapshot, report: &Report) {
        if let Some(bench) = &snapshot.bench {
            let before = if bench.trial == 0 { 0.0 } else { self.largest };
            self.largest = suite::largest(bench).max(before);
        }
        if let Some(bench) = &snapshot.bench
            && (bench.trial == 0 || bench.ended.is_some())
        {
            // A snapshot about a trial, not taken during one: its figures are no measurement of this moment.
            let line = wb_render::live::line(snapshot, usize::MAX, self.about.unicode);
            self.trials.push((line, suite::tone(bench)));
            let now = self
                .now
                .get_or_insert_with(|| Snapshot::at(0, 1, Phase::Running));
            (now.elapsed_ns, now.bench) = (snapshot.elapsed_ns, snapshot.bench.clone());
            self.since_ns = 0;
            return;
        }
        let s = snapshot;
        let mut note = |name: &'static str, value: Option<f64>| {
            let past = self.past.entry(name).or_default();
            if past.len() == KEPT {
                past.pop_front();
            }
            past.push_back(value);
        };
        // The last snapshot covers the rest of an interval, and a drain is no sample of the rate.
        if s.phase != Phase::Done {
            note("tx", s.offered_pps);
            note("rx", s.received_pps);
            // Loads and HTTP have separate means.
            let of_frames = s.load.is_none() && s.http.is_none() || s.missing_frames.is_some();
            note("latency", s.latency_mean_ns.filter(|_| of_frames));
            if let Some(socket) = &s.socket
                && socket.jobs > 0
            {
                #[allow(clippy::cast_precision_loss)]
                let units = socket.units as f64 / socket.interval_s.max(1e-9);
                note("socket", Some(units));
            }
        }
        self.progress.take(s, report);
        self.now = Some(snapshot.clone());
        self.since_ns = 0;
    }

    /// Adds the new moments of the timeline of the run.
    pub fn record(&mut self, timeline: &Timeline) {
        self.figures.take(timeline);
    }

    /// Time of the last snapshot since the start, in ns.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.now.as_ref().map_or(0, |now| now.elapsed_ns)
    }

    /// Sets the time since the last snapshot, in ns.
    pub fn set_since(&mut self, ns: u64) {
        self.since_ns = ns;
    }

    /// Adds a message, which may have several lines.
    pub fn say(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if self.messages.len() == MESSAGES {
                self.messages.pop_front();
            }
            // Control characters in a message must not reach the terminal.
            let clean: String = line.chars().filter(|c| !is_unprintable(*c)).collect();
            self.messages.push_back(clean);
        }
    }

    /// Sets the last line, which reports the effect of a key.
    pub fn set_status(&mut self, text: impl Into<String>) {
        self.status = Some(text.into());
    }

    /// Planned duration, if it was known before the start.
    #[must_use]
    pub fn planned(&self) -> Option<Duration> {
        self.about.planned_ns.map(Duration::from_nanos)
    }

    /// The existing pages.
    pub(crate) const fn pages(&self) -> &'static [Page] {
        match self.about.reading {
            Some(_) => &Page::OF_COUNTERS,
            None => &Page::OF_RUNS,
        }
    }

    /// The visible page.
    #[must_use]
    pub const fn page(&self) -> Page {
        self.page
    }

    /// Handles a key; returns the request to the run.
    pub fn press(&mut self, key: Key) -> Option<Action> {
        self.status = None;
        let all = self.pages();
        let at = all.iter().position(|p| *p == self.page).unwrap_or(0);
        let pages = all.len();
        let turn = |to: usize| all[to % pages];
        if self.help && matches!(key, Key::Escape | Key::Char('?' | 'h')) {
            self.help = false;
            return None;
        }
        match key {
            Key::Char('q' | 'Q') => {
                self.stopping = true;
                return Some(Action::Stop);
            }
            Key::Char('?' | 'h') => {
                (self.help, self.above) = (true, 0);
            }
            Key::Tab => self.open(turn(at + 1)),
            Key::BackTab => self.open(turn(at + pages - 1)),
            Key::Char(digit @ '1'..='9') => {
                let to = digit as usize - '1' as usize;
                match all.get(to) {
                    Some(page) => self.open(*page),
                    None => self.set_status(format!("no page {digit}: the last page is {pages}")),
                }
            }
            Key::Up | Key::Char('k') => self.above = self.above.saturating_sub(1),
            Key::Down | Key::Char('j') => self.above += 1,
            Key::PageUp => self.above = self.above.saturating_sub(10),
            Key::PageDown | Key::Char(' ') => self.above += 10,
            Key::Char('p' | '+' | '-' | '=') => return self.change(key),
            Key::Escape => self.open(Page::Overview),
            Key::Char(other) => {
                self.set_status(format!("unknown key {other:?}; ? shows all keys"));
            }
        }
        None
    }

    fn open(&mut self, page: Page) {
        (self.page, self.help, self.above) = (page, false, 0);
    }

    /// Handles keys that change the sent traffic.
    fn change(&mut self, key: Key) -> Option<Action> {
        if let Some(why) = &self.about.fixed_rate {
            let what = match key {
                Key::Char('p') => "pause",
                _ => "rate change",
            };
            self.status = Some(format!("no {what}: {why}"));
            return None;
        }
        let rate = self.rate.unwrap_or(1.0);
        let action = match key {
            Key::Char('p') => {
                self.paused = !self.paused;
                if self.paused {
                    Action::Pause
                } else {
                    Action::Rate(rate)
                }
            }
            _ if self.paused => {
                self.set_status("paused; p resumes");
                return None;
            }
            key => {
                let rate = match key {
                    Key::Char('-') => rate / STEP,
                    _ => rate * STEP,
                };
                // Ten steps up and ten down lead back to the start exactly.
                let rate = if (rate - 1.0).abs() < 1e-6 { 1.0 } else { rate };
                self.rate = Some(rate);
                Action::Rate(rate)
            }
        };
        self.status = Some(match action {
            Action::Pause => "paused; p resumes".to_owned(),
            Action::Rate(_) if key == Key::Char('p') => "resumed".to_owned(),
            _ => format!(
                "{:.1} % of the planned rate",
                self.rate.unwrap_or(1.0) * 100.0
            ),
        });
        Some(action)
    }

    pub(crate) fn past(&self, name: &str) -> Vec<Option<f64>> {
        let past = self.past.get(name);
        past.map_or_else(Vec::new, |past| past.iter().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_turn_pages_and_ask_for_the_end() {
        let mut screen = Screen::default();
        assert_eq!(screen.press(Key::Tab), None);
        assert_eq!(screen.page(), Page::Times);
        screen.press(Key::BackTab);
        screen.press(Key::BackTab);
        assert_eq!(screen.page(), Page::Messages);
        screen.press(Key::Char('5'));
        assert_eq!(screen.page(), Page::Counters);
        screen.press(Key::Char('9'));
        assert_eq!(
            screen.status.as_deref(),
            Some("no page 9: the last page is 7")
        );
        screen.press(Key::Char('?'));
        assert!(screen.help);
        screen.press(Key::Escape);
        assert!(!screen.help && screen.page() == Page::Counters);
        assert_eq!(screen.press(Key::Char('q')), Some(Action::Stop));
    }

    #[test]
    fn a_fixed_rate_is_told_and_never_pretended() {
        let mut screen = Screen::new(About {
            fixed_rate: Some("streams keep their schedule".to_owned()),
            ..About::default()
        });
        for key in ['p', '+', '-'] {
            assert_eq!(screen.press(Key::Char(key)), None);
            let status = screen.status.clone().unwrap();
            assert!(status.ends_with("streams keep their schedule"), "{status}");
        }
        assert!(!screen.paused && screen.rate.is_none());
    }

    #[test]
    fn rates_go_up_and_down_by_steps() {
        let mut screen = Screen::default();
        for _ in 0..3 {
            screen.press(Key::Char('+'));
        }
        screen.press(Key::Char('-'));
        screen.press(Key::Char('-'));
        assert_eq!(screen.press(Key::Char('-')), Some(Action::Rate(1.0)));
        assert_eq!(screen.press(Key::Char('p')), Some(Action::Pause));
        assert_eq!(screen.press(Key::Char('+')), None, "not while paused");
        assert_eq!(screen.press(Key::Char('p')), Some(Action::Rate(1.0)));
    }

    #[test]
    fn messages_do_not_steer_the_terminal() {
        let mut screen = Screen::default();
        screen.say("a\x1b[2Jb\n\n  c\n");
        assert_eq!(screen.messages, ["a[2Jb", "  c"]);
        (0..MESSAGES).for_each(|n| screen.say(&n.to_string()));
        assert_eq!(screen.messages.len(), MESSAGES);
    }
}
