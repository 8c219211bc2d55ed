//! Benchmarks: the procedures of `wb_bench` on real ports, with the device's own counters.
//!
//! A benchmark is an engine like the others. Its single worker makes the trials. Each trial is a separate run, prepared
//! by [`Prepare`]. The device is read before a trial, at an interval during the trial from a dedicated thread,
//! and after the trial. A failed reading is counted and ends nothing.

mod findings;

use std::{
    collections::BTreeSet,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use wb_bench::{Bench, BenchEnd, BenchRun, CutReason, DeviceReading, PlanRun, Trigger, lb, suite};
use wb_machine::{clock::monotonic_ns, descriptors::keep_limit};
use wb_model::{
    JobKind, Lateness, LatenessReport, Phase, Plan, PortPlan, Snapshot,
    bench::{BenchLive, SuiteResult},
    load::LoadReport,
    plan::Procedure,
    report::PortReport,
    timeline::Row,
};

use self::findings::{Findings, TestOutcome};
use wb_engine::{End, Ended, Engine, EngineState, Launch, Observer, Outcome, Part, Stop, View};
use wb_engine::{
    opening::{Carrier, Environment},
    signals::Signals,
    steering::Steering,
};
use wb_open::{OpenPort, StartError, Workers};

use wb_probe::Watched;

use crate::{extras::Extras, run::Prepared};

/// Prepares a trial, as any other run is prepared.
pub(crate) type Prepare = fn(Plan, &Environment, Extras) -> Result<Prepared, StartError>;

/// Interval at which a pause checks for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time that a command which resets the device may continue after a signal. A second signal ends the command at once.
const TRIGGER_GRACE: Duration = Duration::from_secs(10);

fn read_all(probes: &[Watched]) -> DeviceReading {
    let mut reading = DeviceReading::default();
    for probe in probes {
        match probe.read() {
            Some(sample) => {
                reading.counters.extend(sample.counters);
                reading.gauges.extend(sample.gauges);
            }
            None => reading.failed += 1,
        }
    }
    reading
}

/// State of the search or of the current trial, with the loads of the trial so far.
type News = (Snapshot, Option<LoadReport>);

/// A trial that is about to run.
enum Trial {
    /// On ports of this host.
    Here(Prepared),
    /// On ports of other hosts.
    There(Arc<dyn Carrier>, Plan),
}

/// Trials on real ports.
struct Ports {
    environment: Environment,
    prepare: Prepare,
    /// Part of the plan that all trials share.
    base: Plan,
    probes: Arc<Vec<Watched>>,
    every: Duration,
    warnings: BTreeSet<String>,
    /// Ports as the trials opened them. The counters of each trial are in its report.
    ports: Vec<PortReport>,
    /// Notified once, when the first trial has been prepared.
    ready: Option<Sender<()>>,
    news: Sender<News>,
    start_ns: u64,
    stop: Arc<AtomicBool>,
    /// State of the current trial.
    live: Option<BenchLive>,
}

/// Reads the device at an interval until `over`.
fn follow(probes: &[Watched], every: Duration, over: &AtomicBool) -> Vec<DeviceReading> {
    let mut readings = Vec::new();
    let mut next = Instant::now() + every;
    while !over.load(Ordering::Acquire) {
        if Instant::now() >= next {
            readings.push(read_all(probes));
            next = Instant::now() + every;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    readings
}

/// Forwards the progress of a trial.
struct TrialObserver<'a> {
    start_ns: u64,
    live: Option<BenchLive>,
    news: &'a Sender<News>,
    /// Notified when the first frame is sent.
    begins: Sender<()>,
}

impl Observer for TrialObserver<'_> {
    fn started(&mut self) {
        let _ = self.begins.send(());
    }

    fn view(&mut self, view: &View<'_>) {
        if !view.done {
            let snapshot = Snapshot {
                elapsed_ns: monotonic_ns().saturating_sub(self.start_ns),
                progress: None,
                bench: self.live.clone(),
                ..view.snapshot.clone()
            };
            let _ = self.news.send((snapshot, view.report.load.clone()));
        }
    }
}

/// Ends a command and the processes it started.
fn end(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}

/// Runs a command when it is due, unless the trial ends before. Returns the reason if the command failed. The command
/// ends with the trial. If the trial is ended early, the command may finish, because the device it was about to bring
/// back would otherwise stay away.
fn pull(
    trigger: &Trigger,
    begun: Receiver<()>,
    over: &AtomicBool,
    signals: &Signals,
) -> Option<String> {
    begun.recv().ok()?;
    let at = Instant::now() + trigger.after;
    while Instant::now() < at {
        if over.load(Ordering::Acquire) {
            return Some("the trial ended before the trigger was due".to_owned());
        }
        std::thread::sleep(POLL_INTERVAL.min(at.saturating_duration_since(Instant::now())));
    }
    let mut command = Command::new("sh");
    command.args(["-c", &trigger.command]).stdin(Stdio::null());
    // Ctrl-C is handled by the trial.
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = match keep_limit(&mut command).spawn() {
        Ok(child) => child,
        Err(error) => {
            return Some(format!(
                "cannot run the command: {}",
                wb_machine::cause_text(&error)
            ));
        }
    };
    let mut last = None;
    loop {
        let is_over = over.load(Ordering::Acquire) && {
            let grace = match signals.received() {
                Some(_) => TRIGGER_GRACE,
                None => Duration::ZERO,
            };
            Instant::now() >= *last.get_or_insert_with(|| Instant::now() + grace) || signals.hurry()
        };
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(status)) => return Some(format!("failed with {status}")),
            Err(error) => return Some(wb_machine::cause_text(&error)),
            Ok(None) if is_over => {
                end(&mut child);
                return Some("still running at the end of the trial".to_owned());
            }
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

impl Ports {
    fn elapsed_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.start_ns)
    }

    /// Sends the state of the search, with the trial that has just ended, if any.
    fn send_progress(&self, live: BenchLive) {
        let interval = self.base.interval.as_nanos();
        let snapshot = Snapshot {
            bench: Some(live),
            ..Snapshot::at(self.elapsed_ns(), interval, Phase::Running)
        };
        // At the end of a run that broke, the receiver is gone.
        let _ = self.news.send((snapshot, None));
    }
}

impl Bench for Ports {
    type Error = StartError;

    fn run(&mut self, plan: Plan, trigger: Option<&Trigger>) -> Result<PlanRun, StartError> {
        let plan = Plan {
            seed: self.base.seed,
            interval: self.base.interval,
            i_own_this_network: self.base.i_own_this_network,
            ..plan
        };
        let trial = match self.environment.carrier.clone() {
            Some(carrier) => Trial::There(carrier, plan),
            None => Trial::Here((self.prepare)(plan, &self.environment, Extras::default())?),
        };
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(());
        }
        if let Trial::Here(prepared) = &trial {
            self.warnings.extend(prepared.warnings().iter().cloned());
        }
        let mut readings = vec![read_all(&self.probes)];
        let over = AtomicBool::new(false);
        let (probes, every) = (&self.probes, self.every);
        let (environment, signals) = (&self.environment, &self.environment.signals);
        let (begins, begun) = channel();
        let mut observer = TrialObserver {
            start_ns: self.start_ns,
            live: self.live.clone(),
            news: &self.news,
            begins,
        };
        let mut misfire = None;
        let finished = std::thread::scope(|scope| {
            let follower =
                (!probes.is_empty()).then(|| scope.spawn(|| follow(probes, every, &over)));
            let shooter =
                trigger.map(|trigger| scope.spawn(|| pull(trigger, begun, &over, signals)));
            let finished = match trial {
                Trial::Here(prepared) => {
                    let finished = prepared.run(&mut observer);
                    finished.map(|finished| (finished.report, finished.end))
                }
                Trial::There(carrier, plan) => carrier.carry_out(plan, environment, &mut observer),
            };
            drop(observer);
            over.store(true, Ordering::Release);
            misfire = shooter.and_then(|shooter| shooter.join().ok().flatten());
            if let Some(Ok(during)) = follower.map(std::thread::ScopedJoinHandle::join) {
                readings.extend(during);
            }
            finished
        })?;
        let (report, end) = finished;
        readings.push(read_all(&self.probes));
        let of_trial = report.ports.iter();
        self.ports = of_trial
            .map(|port| PortReport {
                before: Default::default(),
                after: Default::default(),
                ..port.clone()
            })
            .collect();
        Ok(PlanRun {
            report,
            readings,
            misfire,
            cut: match end {
                End::Completed => None,
                End::Signal(_) => Some(CutReason::Signal),
                End::Fault(text) => Some(CutReason::Fault(text)),
            },
        })
    }

    fn read(&mut self) -> DeviceReading {
        read_all(&self.probes)
    }

    fn links_are_up(&mut self, ports: &[PortPlan]) -> bool {
        ports.iter().all(wb_open::has_link)
    }

    fn wait_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.is_stopped() {
            std::thread::sleep(POLL_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        }
    }

    fn now_ns(&mut self) -> u64 {
        monotonic_ns()
    }

    fn is_stopped(&mut self) -> bool {
        self.stop.load(Ordering::Acquire) || self.environment.signals.received().is_some()
    }

    fn report_progress(&mut self, live: BenchLive) {
        let running = BenchLive {
            ended: None,
            ..live.clone()
        };
        if live.trial == 0 || live.ended.is_some() {
            self.send_progress(live);
        }
        self.live = Some(running);
    }
}

/// A benchmark with its worker.
pub(crate) struct Benchmark {
    base: Plan,
    environment: Environment,
    prepare: Prepare,
    probes: Arc<Vec<Watched>>,
    worker: Workers<BenchOutcome>,
    stop: Arc<AtomicBool>,
    start_ns: u64,
    news: Option<Receiver<News>>,
    /// News for the next view.
    shown: Option<News>,
    /// True if the last snapshot has been sent.
    final_sent: bool,
    outcome: Option<BenchOutcome>,
}

/// Results that the worker leaves.
struct BenchOutcome {
    results: Vec<SuiteResult>,
    end: BenchEnd<StartError>,
    warnings: BTreeSet<String>,
    ports: Vec<PortReport>,
}

/// Makes all trials of the plan's procedure.
fn carry_out(ports: &mut Ports) -> BenchRun<StartError> {
    let plan = ports.base.clone();
    match &plan.procedure {
        Some(Procedure::Lb(lb)) => lb::run(ports, lb),
        _ => suite::run(ports, &plan),
    }
}

/// Returns the merged lateness of all trials.
fn lateness_of(results: &[SuiteResult]) -> Lateness {
    let trials = results.iter().flat_map(|result| &result.trial_log);
    trials.fold(Lateness::default(), |sum, trial| sum.plus(&trial.lateness))
}

impl Benchmark {
    /// Opens the probes of the device.
    ///
    /// # Errors
    /// Returns the error of the first probe that cannot be opened.
    pub(crate) fn open(
        plan: &Plan,
        environment: &Environment,
        prepare: Prepare,
    ) -> Result<Self, StartError> {
        let (probes, place) = match &plan.procedure {
            Some(Procedure::Lb(lb)) => (&lb.device.probes, "device.probe"),
            Some(Procedure::Suite(_)) => (&plan.probes, "probe"),
            None => (&plan.probes, "probe"),
        };
        Ok(Self {
            base: plan.clone(),
            environment: Environment {
                memory: None,
                // Trials have the rates of the procedure.
                steering: Steering::default(),
                // Each trial is a separate run.
                run: None,
                ..environment.clone()
            },
            prepare,
            probes: Arc::new(Watched::open(probes, place)?),
            worker: Workers::new(&Arc::default()),
            stop: Arc::new(AtomicBool::new(false)),
            start_ns: 0,
            news: None,
            shown: None,
            final_sent: false,
            outcome: None,
        })
    }

    /// Takes over the results of the worker. Returns true if there were any.
    fn collect(&mut self) -> bool {
        for outcome in self.worker.join() {
            self.outcome = outcome;
        }
        self.outcome.is_some()
    }
}

impl Engine for Benchmark {
    fn kind(&self) -> JobKind {
        JobKind::Bench
    }

    fn ports(&self) -> &[OpenPort] {
        &[]
    }

    fn only_listens(&self) -> bool {
        false
    }

    /// Returns when the first trial is prepared: an obstacle to the first trial is an obstacle to all.
    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        self.worker = Workers::new(launch.alarm);
        self.start_ns = monotonic_ns();
        let (ready, is_ready) = channel();
        let (news, listener) = channel();
        self.news = Some(listener);
        let mut ports = Ports {
            environment: self.environment.clone(),
            prepare: self.prepare,
            base: self.base.clone(),
            probes: Arc::clone(&self.probes),
            every: match &self.base.procedure {
                Some(Procedure::Lb(lb)) => lb.device.every.0,
                _ => Duration::from_millis(500),
            },
            warnings: BTreeSet::new(),
            ports: Vec::new(),
            ready: Some(ready),
            news,
            start_ns: self.start_ns,
            stop: Arc::clone(&self.stop),
            live: None,
        };
        let work = move || {
            let run = carry_out(&mut ports);
            let mut warnings = ports.warnings;
            warnings.extend(run.warnings);
            BenchOutcome {
                results: run.results,
                end: run.end,
                warnings,
                ports: ports.ports,
            }
        };
        self.worker.spawn_plain("wb-bench".to_owned(), work)?;
        if is_ready.recv().is_ok() {
            return Ok(());
        }
        // The worker ended without a trial.
        self.collect();
        match self.outcome.take() {
            Some(BenchOutcome {
                end: BenchEnd::Failed(error),
                ..
            }) => Err(error),
            outcome => {
                self.outcome = outcome;
                Ok(())
            }
        }
    }

    fn begin(&mut self, _start_ns: u64) {}

    fn stop(&mut self, _how: Stop) {
        self.stop.store(true, Ordering::Release);
    }

    fn state(&mut self, _now: u64) -> EngineState {
        match self.worker.all_over() {
            true => EngineState::Over,
            false => EngineState::Running,
        }
    }

    fn has_own_times(&self) -> bool {
        true
    }

    fn has_news(&mut self) -> bool {
        let over = self.worker.all_over();
        let news = self.news.as_ref();
        let mut news = news.and_then(|news| news.try_recv().ok());
        if news.is_none() && over && !self.final_sent {
            self.final_sent = true;
            let elapsed_ns = monotonic_ns().saturating_sub(self.start_ns);
            let interval_ns = self.base.interval.as_nanos();
            let over = Snapshot::at(elapsed_ns, interval_ns, Phase::Done);
            news = Some((over, None));
        }
        let is_new = news.is_some();
        self.shown = news.or(self.shown.take());
        is_new
    }

    fn fill(&self, part: &mut Part<'_>) {
        if let Some((snapshot, load)) = &self.shown {
            part.report.totals = snapshot.totals;
            part.report.load.clone_from(load);
        }
        let probes = self.probes.iter().map(Watched::report);
        part.report.probes.extend(probes);
    }

    /// The trials are separate runs with their own snapshots.
    fn show(&mut self, snapshot: &mut Snapshot, _now_ns: u64) {
        if let Some((of_trial, _)) = &self.shown {
            snapshot.clone_from(of_trial);
        }
    }

    /// The trials are separate runs with their own records.
    fn record(&self, _row: &mut Row<'_>) {}

    fn join(&mut self) -> Option<String> {
        if !self.collect() {
            return Some("the benchmark thread panicked".to_owned());
        }
        match &self.outcome.as_ref()?.end {
            BenchEnd::Completed
            | BenchEnd::Interrupted
            | BenchEnd::Failed(StartError::Interrupted(_)) => None,
            // Results from before the failure are still reported.
            BenchEnd::Failed(error) => Some(error.to_string()),
            BenchEnd::Broken(text) => Some(text.clone()),
        }
    }

    fn settle(&mut self, part: &mut Part<'_>, _ended: &Ended) -> Outcome {
        let (results, warnings, ports) = match self.outcome.take() {
            Some(outcome) => (outcome.results, outcome.warnings, outcome.ports),
            None => Default::default(),
        };
        let findings = Findings::of(&self.base, &results);
        let criteria = findings.judge(&self.base.criteria);
        // One failure that is the device's own doing is enough.
        let broke = criteria
            .iter()
            .any(|(report, excuse)| !report.held && excuse.is_none());
        let excuse = criteria.iter().find_map(|(_, excuse)| excuse.clone());
        // If criteria are set, the demands of the tests themselves do not count.
        let own = match criteria.is_empty() {
            true => findings.own(),
            false => TestOutcome {
                nothing: findings.nothing_arrived(),
                ..TestOutcome::default()
            },
        };
        let lateness = LatenessReport {
            all: lateness_of(&results),
            may_have_caused: None,
        };
        let outcome = Outcome {
            excuse: excuse.filter(|_| !broke),
            broken: own.broken,
            nothing: own.nothing,
            found: own.found,
            has_goals: own.has_goals,
            lateness,
            criteria: criteria.into_iter().map(|(report, _)| report).collect(),
            limited_by: findings.limited_by(),
            warnings: warnings.into_iter().collect(),
            ..Outcome::default()
        };
        self.shown = None;
        self.fill(part);
        part.report.results = results;
        ports.into_iter().for_each(|port| part.port(port));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use wb_model::bench::{Quantity, SuiteTest, SuiteTrial};

    use super::*;

    /// Runs a command in a trial that is over after 100 ms. Returns the error, if any, and the time the command took.
    fn ended(command: &str, signals: &Signals) -> (Option<String>, Duration) {
        let trigger = Trigger {
            after: Duration::ZERO,
            command: command.to_owned(),
        };
        let (begins, begun) = channel();
        begins.send(()).unwrap();
        let (over, begin) = (AtomicBool::new(false), Instant::now());
        let said = std::thread::scope(|scope| {
            let pulled = scope.spawn(|| pull(&trigger, begun, &over, signals));
            wb_testing::disturb(Duration::from_millis(100));
            over.store(true, Ordering::Release);
            pulled.join().unwrap()
        });
        (said, begin.elapsed())
    }

    #[test]
    fn a_command_that_fails_is_reported() {
        let (said, _) = ended("false", &Signals::none());
        assert_eq!(said.as_deref(), Some("failed with exit status: 1"));
        assert_eq!(ended("true", &Signals::none()).0, None);
    }

    #[test]
    fn the_lateness_of_a_suite_is_the_sum_of_its_trials() {
        let trial = |stalls: u64, stalled_ms: u64| {
            let zero = serde_json::json!({"samples": 0});
            let lateness = Lateness {
                stalls,
                stalled_ns: stalled_ms * 1_000_000,
                largest_gap_ns: stalled_ms * 1_000_000,
                missed_departures: 10 * stalls,
                ..Lateness::default()
            };
            serde_json::from_value::<SuiteTrial>(serde_json::json!({
                "trial": 1, "purpose": "search", "intended": 0.0, "intended_pct": null, "offered": 0.0,
                "forwarded": 0.0, "duration_s": 1.0, "tx": 0, "rx": 0, "lost": 0, "loss_ratio": 0.0, "dup": 0,
                "ooo": 0, "foreign": 0, "unsent": 0, "nic_drops": 0, "latency_ns": zero, "ipdv_ns": zero,
                "pdv_ns": zero, "longest_silence_ns": null, "outcome": "pass", "reason": "",
                "lateness": lateness,
            }))
            .unwrap()
        };
        let suite = |trials| {
            let mut result = SuiteResult::new(SuiteTest::Throughput, Quantity::Frames);
            result.trial_log = trials;
            result
        };
        // The suite has two sizes.
        let results = [
            suite(vec![trial(2, 30), trial(0, 0)]),
            suite(vec![trial(1, 270)]),
        ];
        let all = lateness_of(&results);
        assert_eq!((all.stalls, all.missed_departures), (3, 30));
        assert_eq!(
            (all.stalled_ns, all.largest_gap_ns),
            (300_000_000, 270_000_000)
        );
    }

    /// Returns true if a process has the path in its command line.
    fn is_named(path: &std::path::Path) -> bool {
        let has = |process: std::fs::DirEntry| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&*path.to_string_lossy())
        };
        let processes = std::fs::read_dir("/proc").unwrap();
        processes.flatten().any(has)
    }

    #[test]
    fn a_command_that_has_not_ended_is_ended_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("late");
        let command = format!("(sleep 60; touch {}) & wait", file.display());
        let (said, took) = ended(&command, &Signals::none());
        assert!(said.unwrap().contains("still running"));
        assert!(took < Duration::from_secs(50), "{took:?}");
        wb_testing::eventually("its processes have ended", || !is_named(&file));
        assert!(!file.exists());
    }

    /// A device that was taken away is brought back.
    #[test]
    fn after_a_signal_a_command_comes_to_its_own_end() {
        let signals = Signals::none();
        signals.raise(2);
        let (said, took) = ended("sleep 0.4", &signals);
        assert_eq!(said, None);
        assert!(took >= Duration::from_millis(400), "{took:?}");
        // A second signal does not wait.
        signals.raise(2);
        let (said, took) = ended("sleep 5", &signals);
        assert!(said.is_some() && took < Duration::from_secs(4), "{took:?}");
    }
}
