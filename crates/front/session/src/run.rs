//! The single loop of all runs. It starts the engines together, watches them, stops them in order, and collects their
//! accounts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use wb_engine::{
    DeviceCounters, End, Ended, Engine, EngineState, Launch, LinkDown, Observer, Request, Stop,
    View,
};
use wb_engine::{
    clock::rfc3339, neighbour_responder::ResponderThread, signals::Signals, snapshot::snapshot,
};
use wb_machine::clock::{ClockOffset, monotonic_ns, wall_minus_monotonic, wall_ns};
use wb_model::{Lateness, Phase, Plan, REPORT_SCHEMA, Report, timeline::Recorder};
use wb_open::{Alarm, StartError};
use wb_traffic::{DeviceHandle, devices::WatchQueue};

use crate::report;

/// Longest sleep of the controlling thread. Events end the sleep early: a signal, the end of a worker, a request. A
/// thread that wakes more often pushes receiving threads off their CPUs.
const LONGEST_SLEEP_NS: u64 = 50_000_000;
/// Longest sleep while all engines are idle.
const IDLE_SLEEP_NS: u64 = 1_000_000_000;
/// Interval at which counters are recorded for the report, unless live output needs a shorter interval, in ns.
const RECORD_INTERVAL_NS: u64 = 100_000_000;
/// Interval at which the interface counters are recorded, in ns.
const COUNTERS_INTERVAL_NS: u64 = 500_000_000;
/// Time before a given start at which the workers are started, in ns.
const READY_NS: u64 = 200_000_000;
/// Time that receiving engines continue for frames in flight after the other engines have ended, in ns.
const RESIDUE_NS: u64 = 200_000_000;

/// Start of a run: its first frame or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// The run starts as soon as the workers are ready.
    Now,
    /// The run starts at this time of the wall clock, in ns since 1970. Captures and probes begin up to 0.2 s earlier.
    Wall(u64),
}

/// Final account of a run, with the end of the run.
#[derive(Debug)]
pub struct Finished {
    /// The report.
    pub report: Report,
    /// End of the run.
    pub end: End,
}

impl Finished {
    /// Returns the exit code of a native command: 0 completed or all criteria held, 1 a criterion failed, 3 invalid,
    /// 4 ended by a fault or incomplete, 128 + n after signal n.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        wb_engine::verdict::exit_code(&self.end, self.report.verdict)
    }
}

/// A run that is ready to start: everything that can fail before the first frame has been done.
pub struct Prepared {
    pub(crate) plan: Plan,
    /// Engines in the order in which they fill the common part of snapshots and report.
    pub(crate) engines: Vec<Box<dyn Engine>>,
    /// Neighbour responders. They answer for as long as the run lives.
    pub(crate) _responders: Vec<ResponderThread>,
    /// Hardware addresses of the neighbours that answered, by port.
    pub(crate) neighbours: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) devices: Vec<Arc<DeviceHandle>>,
    pub(crate) watches: Vec<WatchQueue>,
    pub(crate) addresses: Vec<std::net::SocketAddr>,
    pub(crate) warnings: Vec<String>,
    /// True if the report has all distributions at full resolution.
    pub(crate) histograms: bool,
    pub(crate) signals: Signals,
}

impl Prepared {
    /// The plan with resolved addresses.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A line for each port: locator, driver, mode, and why.
    #[must_use]
    pub fn port_lines(&self) -> Vec<String> {
        let ports = self.engines.iter().flat_map(|e| e.ports());
        ports.map(wb_open::OpenPort::line).collect()
    }

    /// The ports by name, with their place and the chosen driver. If a port has several users, the first user counts.
    #[must_use]
    pub fn locators(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        for port in self.engines.iter().flat_map(|e| e.ports()) {
            if !all.iter().any(|(name, _)| *name == port.plan.name) {
                all.push((port.plan.name.clone(), port.facts.locator.clone()));
            }
        }
        all
    }

    /// Warnings for the user before the run starts.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Time before a start at which the start has to be known, in ns.
    #[must_use]
    pub fn lead_ns(&self) -> u64 {
        // The workers are started within this time.
        2 * READY_NS
    }

    /// The packet devices, in the order of the plan.
    #[must_use]
    pub fn devices(&self) -> &[Arc<DeviceHandle>] {
        &self.devices
    }

    /// The queues of the ports that watch for packets of such devices.
    #[must_use]
    pub fn watches(&self) -> &[WatchQueue] {
        &self.watches
    }

    /// Addresses on which the server for socket tests listens.
    #[must_use]
    pub fn addresses(&self) -> &[std::net::SocketAddr] {
        &self.addresses
    }

    /// Interface counters so far, by port.
    fn counters(&self) -> BTreeMap<String, DeviceCounters> {
        let ports = self.engines.iter().flat_map(|e| e.ports());
        ports
            .map(|port| (port.plan.name.clone(), port.counters()))
            .collect()
    }

    /// Runs the plan to its end.
    ///
    /// # Errors
    /// Fails only before the first frame: if a stream does not fit a port's buffers or a thread cannot be started.
    pub fn run(self, observer: &mut dyn Observer) -> Result<Finished, StartError> {
        self.run_at(StartAt::Now, observer)
    }

    /// Runs the plan to its end, from a given start on.
    ///
    /// # Errors
    /// Returns the errors of [`Prepared::run`]. Returns [`StartError::TooLate`] if the workers cannot be ready at the
    /// start; nothing is sent then.
    pub fn run_at(
        mut self,
        start: StartAt,
        observer: &mut dyn Observer,
    ) -> Result<Finished, StartError> {
        let requests = self.signals.requests();
        let alarm = Arc::new(Alarm::default());
        self.signals.wake(&alarm);
        if let StartAt::Wall(wall_ns) = start {
            self.sleep_until_shortly_before(wall_ns, &alarm)?;
        }
        let before = self.counters();
        let offset = wall_minus_monotonic();
        self.spawn(&alarm)?;
        let lead = self.engines.iter().map(|e| e.lead_ns()).max().unwrap_or(0);
        let (start_ns, started_wall_ns) = match start {
            StartAt::Now => (monotonic_ns() + lead, wall_ns() + lead),
            StartAt::Wall(wall_ns) if !self.begins_at_once() => {
                (self.keep(wall_ns, lead)?, wall_ns)
            }
            StartAt::Wall(wall_ns) => (monotonic_ns(), wall_ns),
        };
        for engine in &mut self.engines {
            engine.begin(start_ns);
        }
        observer.started();
        let mut state = RunState {
            start_ns,
            end: End::Completed,
            works: self.engines.iter().any(|e| !e.only_listens()),
            works_until: None,
            requests,
            next_view: start_ns + self.plan.interval.as_nanos(),
            recorder: Recorder::new(self.plan.interval.as_nanos().min(RECORD_INTERVAL_NS)),
            counters_at: None,
            downs: BTreeMap::new(),
            counters: before.clone(),
            looked_ns: 0,
            lateness: Lateness::default(),
            so_far: Report {
                schema: REPORT_SCHEMA.to_owned(),
                kind: self.plan.kind.clone(),
                started: rfc3339(started_wall_ns),
                plan: self.plan.clone(),
                ..Report::default()
            },
        };
        while !self.turn(&mut state, &before, &alarm, observer) {
            let fds: Vec<_> = self.engines.iter().flat_map(|e| e.request_fds()).collect();
            let asleep_ns = monotonic_ns();
            let until = match self.engines.iter().all(|e| e.is_idle()) {
                true => asleep_ns + IDLE_SLEEP_NS,
                false => self.next_due(&state).min(asleep_ns + LONGEST_SLEEP_NS),
            };
            let until = until.max(asleep_ns);
            alarm
                .bell
                .wait(&fds, Duration::from_nanos(until - asleep_ns));
            let awake_ns = monotonic_ns();
            let late_ns = awake_ns.saturating_sub(until);
            state.lateness.away(awake_ns, late_ns);
        }
        let broken = self
            .engines
            .iter_mut()
            .fold(None, |first: Option<String>, engine| {
                let broken = engine.join();
                first.or(broken)
            });
        if let Some(text) = broken {
            state.end = End::Fault(text);
        }
        state.counters_at = None;
        let gone = self.record(&mut state, &before, monotonic_ns());
        if let (Some(gone), End::Completed) = (gone, &state.end) {
            state.end = End::Fault(gone);
        }
        if self.has_views() {
            self.view(&mut state, &before, observer, |view| {
                view.snapshot.phase = Phase::Done;
                view.done = true;
            });
        }
        Ok(self.finish(state, started_wall_ns, before, offset))
    }

    /// Sleeps until the workers have to be started, or until a signal arrives.
    ///
    /// # Errors
    /// [`StartError::TooLate`] if the start has passed.
    fn sleep_until_shortly_before(
        &self,
        start_wall_ns: u64,
        alarm: &Alarm,
    ) -> Result<(), StartError> {
        let early_ns = match self.begins_at_once() {
            true => 0,
            false => READY_NS,
        };
        loop {
            // Read again each time, because the wall clock may step.
            let start_ns = wall_minus_monotonic().monotonic_of(start_wall_ns);
            let left_ns = start_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 && early_ns > 0 {
                let late_ns = monotonic_ns().saturating_sub(start_ns);
                return Err(StartError::TooLate { late_ns });
            }
            if left_ns <= early_ns || self.signals.interrupted().is_some() {
                return Ok(());
            }
            let sleep_ns = (left_ns - early_ns).min(IDLE_SLEEP_NS);
            alarm.bell.wait(&[], Duration::from_nanos(sleep_ns));
        }
    }

    /// Returns true if the work begins as soon as the workers are started: a benchmark starts each trial itself.
    fn begins_at_once(&self) -> bool {
        self.plan.procedure.is_some()
    }

    /// Returns the monotonic time of a start on the wall clock. Ends the workers if they cannot be ready by then.
    fn keep(&mut self, start_wall_ns: u64, lead_ns: u64) -> Result<u64, StartError> {
        let start_ns = wall_minus_monotonic().monotonic_of(start_wall_ns);
        let late_ns = (monotonic_ns() + lead_ns).saturating_sub(start_ns);
        if late_ns > 0 {
            self.give_up(0);
            return Err(StartError::TooLate { late_ns });
        }
        Ok(start_ns)
    }

    /// Ends the workers of the engines from this number on, before they began.
    fn give_up(&mut self, from: usize) {
        for engine in &mut self.engines[from..] {
            engine.stop(Stop::Now);
            engine.join();
        }
    }

    /// Starts the workers of all engines, receiving engines first.
    pub(crate) fn spawn(&mut self, alarm: &Arc<Alarm>) -> Result<(), StartError> {
        let cpus = wb_machine::cpu::online().unwrap_or_default();
        let placed: Vec<_> = self.engines.iter().flat_map(|e| e.placed()).collect();
        let (lists, crowded) = wb_open::place(&placed, &cpus);
        self.warnings.extend(crowded);
        self.warnings
            .extend(wb_open::in_the_way(&placed, &lists, &cpus));
        let mut rest = lists.as_slice();
        for number in (0..self.engines.len()).rev() {
            let (before, own) = rest.split_at(rest.len() - self.engines[number].placed().len());
            rest = before;
            let launch = Launch { cpus: own, alarm };
            if let Err(error) = self.engines[number].spawn(&launch) {
                // Engines that already run would otherwise never be stopped.
                self.give_up(number + 1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Checks all engines, signals and timers once. Returns true if all engines are over.
    fn turn(
        &mut self,
        state: &mut RunState,
        before: &BTreeMap<String, DeviceCounters>,
        alarm: &Alarm,
        observer: &mut dyn Observer,
    ) -> bool {
        let now = monotonic_ns();
        state.looked_ns = now;
        if state.end == End::Completed {
            if let Some(signal) = self.signals.interrupted() {
                state.end = End::Signal(signal);
            } else if alarm.has_faulted() {
                state.end = End::Fault(String::new());
            }
            if state.end != End::Completed {
                self.stop(Stop::Drain, !state.works);
            }
        }
        if self.signals.hurry() {
            self.stop(Stop::Now, true);
            self.stop(Stop::Now, false);
        }
        let asked = self.pass_on(state, now);
        let mut all_over = true;
        let mut work_over = true;
        for engine in &mut self.engines {
            let over = engine.state(now) == EngineState::Over;
            all_over &= over;
            work_over &= over || engine.only_listens();
        }
        if state.works && work_over {
            // The last frames are still in flight.
            let since = *state.works_until.get_or_insert(now);
            if now.saturating_sub(since) >= RESIDUE_NS {
                self.stop(Stop::Drain, true);
            }
        }
        let only_news = !self.has_views();
        for number in 0..self.engines.len() {
            while self.engines[number].has_news() {
                // Additional views would shorten the intervals of engines with regular views.
                if only_news {
                    self.view(state, before, observer, |_| {});
                }
            }
        }
        if now >= state.start_ns && state.recorder.is_due(now - state.start_ns) {
            let gone = self.record(state, before, now);
            if let (Some(gone), End::Completed) = (gone, &state.end) {
                state.end = End::Fault(gone);
                self.stop(Stop::Drain, !state.works);
            }
        }
        if now >= state.next_view || asked {
            if asked || self.has_views() {
                self.view(state, before, observer, |view| view.asked = asked);
            }
            let interval = self.plan.interval.as_nanos();
            while state.next_view <= now {
                state.next_view += interval;
            }
        }
        all_over
    }

    /// Returns the next time at which there is work although no event comes.
    fn next_due(&self, state: &RunState) -> u64 {
        let residue = state
            .works_until
            .map_or(u64::MAX, |since| since + RESIDUE_NS);
        let next_moment = state.start_ns + state.recorder.next_ns();
        let dues = [state.next_view, next_moment, residue];
        let engines = self.engines.iter().map(|e| e.due_ns());
        // Work that was due at the last turn was done in that turn.
        let dues = dues
            .into_iter()
            .chain(engines)
            .filter(|due| *due > state.looked_ns);
        dues.min().unwrap_or(u64::MAX)
    }

    /// Stops the engines that only receive, or the other engines.
    fn stop(&mut self, how: Stop, listening: bool) {
        let engines = self.engines.iter_mut();
        engines
            .filter(|e| e.only_listens() == listening)
            .for_each(|e| e.stop(how));
    }

    /// Passes signal requests on to the engines. Returns true if the counts were requested.
    fn pass_on(&mut self, state: &mut RunState, now: u64) -> bool {
        let asked = self.signals.requests();
        let is_new =
            |request: &Request| asked[*request as usize] != state.requests[*request as usize];
        let of_engines = [Request::Flush, Request::NextFile];
        for request in of_engines.into_iter().filter(is_new) {
            self.engines
                .iter_mut()
                .for_each(|e| e.request(request, now));
        }
        let counts = is_new(&Request::Counts);
        state.requests = asked;
        counts
    }

    /// Records the counters so far for the report. Returns a fault if an interface is gone and its workers cannot
    /// detect that themselves.
    fn record(
        &self,
        state: &mut RunState,
        before: &BTreeMap<String, DeviceCounters>,
        now: u64,
    ) -> Option<String> {
        let mut row = state.recorder.row(now.saturating_sub(state.start_ns));
        self.engines.iter().for_each(|e| e.record(&mut row));
        let mut gone = None;
        // The kernel is read less often, as some drivers are slow.
        let old = |at: u64| now.saturating_sub(at) >= COUNTERS_INTERVAL_NS;
        if state.counters_at.is_none_or(old) {
            state.counters_at = Some(now);
            let counters = self.counters();
            let at_ns = now.saturating_sub(state.start_ns);
            let ports = self.engines.iter().flat_map(|e| e.ports());
            for port in ports.filter(|p| lost_carrier(&p.plan.name, before, &counters)) {
                let down = state
                    .downs
                    .entry(port.plan.name.clone())
                    .or_insert(LinkDown {
                        at_ns,
                        set_down: false,
                    });
                down.set_down |= port.was_set_down();
            }
            gone = self
                .engines
                .iter()
                .flat_map(|e| e.ports())
                .find(|port| port.is_live() && is_gone(&port.plan.name, before, &counters))
                .map(|port| format!("{}: the interface is gone", port.plan.locator));
            for (port, counters) in &counters {
                let of = format!("port {port}");
                for (name, value) in counters {
                    let unit = if name.ends_with("bytes") {
                        "octets"
                    } else {
                        "frames"
                    };
                    row.counter(&of, name, unit, *value);
                }
            }
            state.counters = counters;
        }
        gone
    }

    /// Returns true unless all engines have separate times for views.
    fn has_views(&self) -> bool {
        self.engines.iter().any(|engine| !engine.has_own_times())
    }

    /// Shows the state of all engines, after `mark` has been applied to it, and begins a new interval.
    fn view(
        &mut self,
        state: &mut RunState,
        before: &BTreeMap<String, DeviceCounters>,
        observer: &mut dyn Observer,
        mark: impl FnOnce(&mut View<'_>),
    ) {
        let now = monotonic_ns();
        let so_far = &mut state.so_far;
        let header = next_header(so_far, now.saturating_sub(state.start_ns));
        let earlier = std::mem::replace(so_far, header);
        wb_engine::fill_so_far(&mut self.engines, so_far, before, &state.counters);
        let mut snapshot = snapshot(&earlier, so_far);
        let (phase, interval_ns) = (snapshot.phase, snapshot.interval_ns);
        for (number, engine) in self.engines.iter_mut().enumerate().rev() {
            if number == 0 {
                // Discards the values of later engines.
                (snapshot.phase, snapshot.interval_ns) = (phase, interval_ns);
                (snapshot.progress, snapshot.latency_mean_ns) = (None, None);
            }
            engine.show(&mut snapshot, now);
        }
        let mut view = View {
            snapshot,
            report: so_far,
            asked: false,
            done: false,
        };
        mark(&mut view);
        observer.recorded(state.recorder.so_far());
        observer.view(&view);
    }

    fn finish(
        mut self,
        mut state: RunState,
        started_wall_ns: u64,
        before: BTreeMap<String, DeviceCounters>,
        offset: ClockOffset,
    ) -> Finished {
        let offset_after = wall_minus_monotonic();
        let ended = Ended {
            end: state.end,
            started_wall_ns,
            elapsed_ns: monotonic_ns().saturating_sub(state.start_ns),
            lateness: state.lateness,
            clock_step_ns: clock_step(offset, offset_after),
            clock_error_ns: offset.error_ns.max(offset_after.error_ns),
            before,
            after: self.counters(),
            downs: state.downs,
        };
        let mut report = next_header(&mut state.so_far, ended.elapsed_ns);
        report.timeline = state.recorder.finish();
        let mut outcomes = Vec::new();
        wb_engine::fill(&mut report, &mut self.engines, |engine, part| {
            outcomes.push((engine.kind(), engine.settle(part, &ended)));
        });
        let known = report::Known {
            plan: self.plan,
            neighbours: self.neighbours,
            warnings: self.warnings,
            histograms: self.histograms,
        };
        report::complete(&mut report, known, &ended, outcomes);
        Finished {
            report,
            end: ended.end,
        }
    }
}

/// Returns true if an interface that had counters has none any more.
fn is_gone(
    port: &str,
    before: &BTreeMap<String, DeviceCounters>,
    now: &BTreeMap<String, DeviceCounters>,
) -> bool {
    let counts =
        |all: &BTreeMap<String, DeviceCounters>| all.get(port).is_some_and(|c| !c.is_empty());
    counts(before) && !counts(now)
}

/// Returns true if a port's link went down since the run began.
fn lost_carrier(
    port: &str,
    before: &BTreeMap<String, DeviceCounters>,
    now: &BTreeMap<String, DeviceCounters>,
) -> bool {
    let downs =
        |all: &BTreeMap<String, DeviceCounters>| all.get(port)?.get("carrier_downs").copied();
    matches!((downs(before), downs(now)), (Some(before), Some(now)) if now > before)
}

/// State of a run between its start and its end.
struct RunState {
    start_ns: u64,
    end: End,
    /// True if an engine does more than receive.
    works: bool,
    /// Time when the last such engine was seen to have ended.
    works_until: Option<u64>,
    /// Numbers of requests handled so far.
    requests: [u32; 3],
    next_view: u64,
    recorder: Recorder,
    /// Time when the interface counters were last recorded.
    counters_at: Option<u64>,
    /// Interface counters at that time, by port.
    counters: BTreeMap<String, DeviceCounters>,
    /// Link failures of ports, by port.
    downs: BTreeMap<String, LinkDown>,
    /// Time of the last turn of the controlling thread, in ns.
    looked_ns: u64,
    /// Stalls of the controlling thread.
    lateness: Lateness,
    /// The report at the last view.
    so_far: Report,
}

/// Takes the facts about the run out of a report, into a report of a later time without any figures.
fn next_header(last: &mut Report, elapsed_ns: u64) -> Report {
    Report {
        schema: std::mem::take(&mut last.schema),
        kind: std::mem::take(&mut last.kind),
        started: std::mem::take(&mut last.started),
        plan: std::mem::take(&mut last.plan),
        elapsed_ns,
        ..Report::default()
    }
}

/// Movement of the wall clock against the monotonic clock, in ns; 0 if the movement is within the error of reading the
/// two clocks.
pub(crate) fn clock_step(before: ClockOffset, after: ClockOffset) -> i64 {
    let step = after.ns - before.ns;
    if step.unsigned_abs() <= before.error_ns + after.error_ns {
        0
    } else {
        step
    }
}

#[cfg(test)]
mod tests {
    use wb_model::JobKind;

    use super::*;

    #[test]
    fn a_link_that_went_down_is_seen_by_its_counter() {
        let of = |downs: u64| -> BTreeMap<String, DeviceCounters> {
            let counters = [("carrier_downs".to_owned(), downs)].into();
            [("a".to_owned(), counters)].into()
        };
        assert!(lost_carrier("a", &of(1), &of(2)));
        assert!(!lost_carrier("a", &of(2), &of(2)));
        assert!(!lost_carrier("a", &of(1), &BTreeMap::new()));
        assert!(!lost_carrier("b", &of(1), &of(2)));
    }

    /// An engine whose worker breaks as soon as it works.
    struct Breaks(wb_open::Workers<()>);

    impl Engine for Breaks {
        fn kind(&self) -> JobKind {
            JobKind::Probe
        }

        fn ports(&self) -> &[wb_open::OpenPort] {
            &[]
        }

        fn only_listens(&self) -> bool {
            false
        }

        fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
            self.0 = wb_open::Workers::new(launch.alarm);
            let work = || panic!("as it is meant to");
            self.0.spawn("wb-test".to_owned(), None, |()| false, work)
        }

        fn begin(&mut self, _start_ns: u64) {}

        fn stop(&mut self, _how: Stop) {}

        fn state(&mut self, _now_ns: u64) -> EngineState {
            match self.0.all_over() {
                true => EngineState::Over,
                false => EngineState::Running,
            }
        }

        fn fill(&self, _part: &mut wb_engine::Part<'_>) {}

        fn show(&mut self, _snapshot: &mut wb_model::Snapshot, _now_ns: u64) {}

        fn record(&self, _row: &mut wb_model::timeline::Row<'_>) {}

        fn join(&mut self) -> Option<String> {
            let broke = self.0.join().iter().any(Option::is_none);
            broke.then(|| "a worker panicked".to_owned())
        }

        fn settle(
            &mut self,
            _part: &mut wb_engine::Part<'_>,
            _ended: &Ended,
        ) -> wb_engine::Outcome {
            wb_engine::Outcome::default()
        }
    }

    #[test]
    fn a_worker_that_panics_ends_the_run_as_incomplete() {
        let run = Prepared {
            plan: Plan::default(),
            engines: vec![Box::new(Breaks(wb_open::Workers::new(&Arc::default())))],
            _responders: Vec::new(),
            neighbours: BTreeMap::new(),
            devices: Vec::new(),
            watches: Vec::new(),
            addresses: Vec::new(),
            warnings: Vec::new(),
            histograms: false,
            signals: Signals::none(),
        };
        let finished = run.run(&mut |_: &View<'_>| {}).unwrap();
        assert_eq!(finished.end, End::Fault("a worker panicked".to_owned()));
        assert_eq!(finished.exit_code(), 4);
        let report = finished.report;
        assert_eq!(report.verdict, wb_model::Verdict::Incomplete);
        assert!(report.reason.contains("panicked"), "{}", report.reason);
        assert!(report.elapsed_ns < 20_000_000_000, "{}", report.elapsed_ns);
    }

    #[test]
    fn an_interface_that_had_counters_and_has_none_is_gone() {
        let of = |counters: &[(&str, u64)]| -> BTreeMap<String, DeviceCounters> {
            let counters = counters.iter();
            let counters = counters.map(|(name, n)| ((*name).to_owned(), *n));
            [("a".to_owned(), counters.collect())].into()
        };
        let (some, none) = (of(&[("rx_packets", 0)]), of(&[]));
        assert!(is_gone("a", &some, &none));
        assert!(!is_gone("a", &some, &some));
        // Ports in memory have no counters.
        assert!(!is_gone("a", &none, &none));
        assert!(!is_gone("b", &some, &none));
    }
}
