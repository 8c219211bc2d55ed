//! Carries out plans over the hosts of a fleet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use wb_fleet_core::{
    Now, ShareEnd,
    controller::{
        Action, Controller, Event, Published, RecordStage, RunEnd, RunRecord, RunResult,
        RunSettings, Shown, TICK_NS,
    },
    message::{MESSAGE_LIMIT, ShareMessage, StopHow},
    place::{Placement, drain_ns, place, planned_ns},
    subjects::Subject,
};
use wb_model::{
    Plan, PlanError, PlanProblem, Report, Totals, Verdict,
    fleet::{Agent, HostReport, HostState},
    merge::assemble,
    timeline::Recorder,
};
use wb_session::{Carrier, End, Environment, Observer, StartError, View};

use crate::{clock::HostClock, files::Offer, fleet::Fleet, wire};

/// Length of the lease of a run in ns.
const LEASE_NS: u64 = 3_000_000_000;

/// Time before the start after which the user learns which hosts the run waits for.
const SILENCE: Duration = Duration::from_secs(2);

/// Settings of the runs of a fleet.
#[derive(Clone, Debug, Default)]
pub struct FleetSettings {
    /// Length of the lease in ns, 1 s to 60 s; `None`: 3 s.
    pub lease_ns: Option<u64>,
    /// Maximum error of the clocks of two hosts in ns.
    pub max_clock_error_ns: Option<u64>,
    /// Prints a message for the user before the run.
    pub say: Option<fn(&str)>,
}

/// Carries out plans over a fleet.
#[derive(Debug)]
pub struct FleetCarrier {
    fleet: Arc<Fleet>,
    settings: FleetSettings,
}

impl FleetCarrier {
    /// A carrier of a fleet.
    #[must_use]
    pub const fn new(fleet: Arc<Fleet>, settings: FleetSettings) -> Self {
        Self { fleet, settings }
    }

    /// The runs of the last days that the broker knows, the newest last. [`Carrier::resume`] makes their reports.
    ///
    /// # Errors
    /// A sentence, if the broker does not answer.
    pub fn runs(&self) -> Result<Vec<String>, String> {
        self.fleet.kept.runs()
    }

    /// Places the jobs of a plan on its hosts.
    fn place(
        &self,
        plan: &Plan,
    ) -> Result<(Placement, Vec<wb_fleet_core::message::Registration>), StartError> {
        let of_ports = plan.locators().filter_map(|locator| locator.host.clone());
        let of_jobs = plan.job_hosts().map(|(_, host)| host.to_string());
        let hosts: BTreeSet<String> = of_ports.chain(of_jobs).collect();
        let registrations = self.fleet.registrations(&hosts);
        let first = first_flow().map_err(|cause| StartError::System {
            operation: "choose the first flow",
            cause,
        })?;
        let placement = place(plan, &registrations, first);
        match placement {
            Ok(placement) => Ok((placement, registrations)),
            Err(problems) => Err(refused(&problems)),
        }
    }
}

/// A random number for the first flow of a run, small enough for all flows.
fn first_flow() -> std::io::Result<u32> {
    let word = wire::random_id()?;
    Ok(u32::from_str_radix(&word[..8], 16).unwrap_or(0) >> 1)
}

fn refused(problems: &[wb_fleet_core::message::Problem]) -> StartError {
    let all = problems.iter().map(|problem| PlanProblem {
        place: problem.place.clone(),
        what: problem.what.clone(),
    });
    StartError::Plan(PlanError(all.collect()))
}

impl Carrier for FleetCarrier {
    fn carry_out(
        &self,
        plan: Plan,
        environment: &Environment,
        observer: &mut dyn Observer,
    ) -> Result<(Report, End), StartError> {
        let mut plan = plan;
        let warnings = plan.validate()?;
        plan.name_jobs();
        let epoch = self.fleet.leadership.epoch(self.settings.say);
        let epoch = epoch.map_err(|why| StartError::stream("fleet", why))?;
        let (mut placement, registrations) = self.place(&plan)?;
        let files = Offer::read(&mut placement, environment.base.as_deref());
        let files = files.map_err(|problems| refused(&problems))?;
        let run = environment.run.clone().map_or_else(run_id, Ok);
        let run = run.map_err(|cause| StartError::System {
            operation: "name the run",
            cause,
        })?;
        let key = wire::random_hex::<32>().map_err(|cause| StartError::System {
            operation: "choose the key of the clock exchanges",
            cause,
        })?;
        let settings = RunSettings {
            run: run.clone(),
            key,
            controller: crate::pki::CONTROLLER.to_owned(),
            lease_ns: self.settings.lease_ns.unwrap_or(LEASE_NS),
            interval_ns: plan.interval.as_nanos(),
            max_clock_error_ns: self.settings.max_clock_error_ns,
            planned_ns: planned_ns(&plan),
            drain_ns: drain_ns(&plan),
            ..RunSettings::default()
        };
        let (events, arrivals) = channel();
        let _listening = self.fleet.listen(&run, events);
        self.fleet.offer(&run, files);
        let whole = placement.plan.clone();
        let (controller, actions) =
            Controller::new(settings, epoch, placement, &registrations, now());
        let mut course = Course::new(&self.fleet, run, whole, controller, environment, observer);
        course.notes = warnings;
        course.perform(actions);
        course.follow(&arrivals, self.settings.say);
        course.end()
    }

    fn resume(
        &self,
        run: &str,
        environment: &Environment,
        observer: &mut dyn Observer,
    ) -> Option<Result<(Report, End), StartError>> {
        let record = self.record_of(run).transpose()?;
        Some(record.and_then(|record| self.adopt(run, record, environment, observer)))
    }

    fn delivered_late(&self) -> Vec<String> {
        self.fleet.delivered_late()
    }

    fn agents(&self) -> Vec<Agent> {
        let agents = self.fleet.agents().into_values();
        agents.map(|agent| agent.describe()).collect()
    }

    fn drain(&self, host: &str, on: bool) -> Result<(), String> {
        match self.fleet.agents().contains_key(host) {
            true => self.fleet.drain(host, on),
            false => return Err(format!("no agent of the host {host} is there")),
        }
        Ok(())
    }

    fn close(&self) {
        self.fleet.close();
    }
}

impl FleetCarrier {
    /// The record of a run that had not ended.
    fn record_of(&self, run: &str) -> Result<Option<RunRecord>, StartError> {
        let record = self.fleet.kept.record(run);
        record.map_err(|why| StartError::stream("fleet", why))
    }

    fn adopt(
        &self,
        run: &str,
        record: RunRecord,
        environment: &Environment,
        observer: &mut dyn Observer,
    ) -> Result<(Report, End), StartError> {
        let failed = |why| StartError::stream("fleet", why);
        let epoch = self
            .fleet
            .leadership
            .epoch(self.settings.say)
            .map_err(failed)?;
        let (events, arrivals) = channel();
        let _listening = self.fleet.listen(run, events);
        let is_over = record.stage == RecordStage::Over;
        let plan = record.plan.clone();
        let (controller, actions) = Controller::adopt(record, epoch, now());
        let run = run.to_owned();
        let mut course = Course::new(&self.fleet, run, plan, controller, environment, observer);
        course.perform(actions);
        let shares = self.fleet.shares(&course.run).map_err(failed)?;
        course.take(Event::Shares(shares));
        if is_over && course.result.is_none() {
            let actions = course.controller.deliver_again();
            course.perform(actions);
        }
        course.follow(&arrivals, self.settings.say);
        course.end()
    }
}

/// Time of this host.
fn now() -> Now {
    HostClock::default().now()
}

fn run_id() -> std::io::Result<String> {
    let stamp = Timestamp::now().strftime("%Y%m%dT%H%M%S").to_string();
    Ok(format!("{stamp}-{}", &wire::random_id()?[..8]))
}

/// Course of one run.
struct Course<'a> {
    fleet: &'a Fleet,
    run: String,
    plan: Plan,
    controller: Controller,
    environment: &'a Environment,
    observer: &'a mut dyn Observer,
    /// Last report so far of each host.
    so_far: BTreeMap<String, Report>,
    recorder: Recorder,
    has_started: bool,
    /// Number of stops that were passed on.
    stops: usize,
    result: Option<Box<RunResult>>,
    notes: Vec<String>,
}

impl<'a> Course<'a> {
    fn new(
        fleet: &'a Fleet,
        run: String,
        plan: Plan,
        controller: Controller,
        environment: &'a Environment,
        observer: &'a mut dyn Observer,
    ) -> Self {
        Self {
            recorder: Recorder::new(plan.interval.as_nanos()),
            fleet,
            run,
            plan,
            controller,
            environment,
            observer,
            so_far: BTreeMap::new(),
            has_started: false,
            stops: 0,
            result: None,
            notes: Vec::new(),
        }
    }

    /// Passes on events until the result is there.
    fn follow(&mut self, arrivals: &Receiver<Event>, say: Option<fn(&str)>) {
        let (began, mut say) = (Instant::now(), say);
        while self.result.is_none() {
            let event = match arrivals.recv_timeout(Duration::from_nanos(TICK_NS)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Event::Tick,
            };
            if let Event::Snap { host, snap } = &event
                && let Some(so_far) = &snap.so_far
            {
                self.so_far.insert(host.clone(), (**so_far).clone());
            }
            self.take(event);
            self.pass_on_signals();
            if let Some(say) = say.take_if(|_| began.elapsed() >= SILENCE)
                && !self.has_started
            {
                let awaited = self.controller.awaited();
                if !awaited.is_empty() {
                    say(&format!("waiting for {}", awaited.join(", ")));
                }
            }
            if !self.has_started && self.controller.start().is_some() {
                self.has_started = true;
                self.observer.started();
            }
        }
        // Requests that tidy up are on their way.
        self.fleet.bus.flush();
    }

    fn take(&mut self, event: Event) {
        let actions = self.controller.on(event, now());
        self.perform(actions);
    }

    fn pass_on_signals(&mut self) {
        let signals = &self.environment.signals;
        let asked = match (signals.interrupted().is_some(), signals.hurry()) {
            (_, true) => 2,
            (true, false) => 1,
            (false, false) => 0,
        };
        while self.stops < asked {
            self.stops += 1;
            let how = match self.stops {
                1 => StopHow::Drain,
                _ => StopHow::Now,
            };
            self.take(Event::Stop(how));
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Request { host, id, request } => {
                    let content = wire::write(&request);
                    if content.len() > MESSAGE_LIMIT {
                        self.notes
                            .push(format!("{host}: its part is too large for the broker"));
                        continue;
                    }
                    self.fleet.ask(&self.run, &host, id, content);
                }
                Action::Publish { subject, message } => {
                    let content = match &message {
                        Published::Start(message) => wire::write(message),
                        Published::Lease(message) => wire::write(message),
                        Published::Stop(message) => wire::write(message),
                    };
                    self.fleet.bus.publish(&subject.to_string(), content);
                }
                Action::MeasureClocks { hosts } => self.fleet.measure_clocks(&self.run, hosts),
                Action::Show(shown) => self.show(*shown),
                Action::Store(record) => {
                    let subject = Subject::Event {
                        host: crate::pki::CONTROLLER.to_owned(),
                        run: Some(self.run.clone()),
                    };
                    let content = wire::write(&record);
                    // A longer record is not stored: no other controller can continue such a run.
                    if content.len() <= MESSAGE_LIMIT {
                        self.fleet.bus.publish(&subject.to_string(), content);
                    }
                }
                Action::Note(text) => self.notes.push(text),
                Action::Finish(result) => self.result = Some(result),
            }
        }
    }

    /// Shows the figures of an interval.
    fn show(&mut self, shown: Shown) {
        let parts = self
            .so_far
            .iter()
            .map(|(host, report)| (host.clone(), report.clone()));
        let mut report = assemble(&self.plan, parts.collect(), Vec::new()).unwrap_or_default();
        for job in &mut report.jobs {
            let streams = job.streams.iter_mut().map(|stream| &mut stream.totals);
            streams.for_each(count_arrived);
        }
        report.totals = shown.snapshot.totals;
        let mut row = self.recorder.row(shown.snapshot.elapsed_ns);
        let totals = &shown.snapshot.totals;
        for (name, unit, value) in [
            ("offered_frames", "frames", totals.offered_frames),
            ("offered_octets", "octets", totals.offered_octets),
            ("unsent_frames", "frames", totals.unsent_frames),
            ("received_frames", "frames", totals.received_frames),
            ("received_octets", "octets", totals.received_octets),
            ("duplicate_frames", "frames", totals.duplicate_frames),
            ("reordered_frames", "frames", totals.reordered_frames),
        ] {
            if let Some(value) = value {
                row.counter("traffic", name, unit, value);
            }
        }
        drop(row);
        self.observer.recorded(self.recorder.so_far());
        self.observer.view(&View {
            snapshot: shown.snapshot,
            report: &report,
            asked: false,
            done: false,
        });
    }

    /// The report of the run.
    fn end(self) -> Result<(Report, End), StartError> {
        let Some(result) = self.result else {
            return Err(StartError::stream("fleet", "the run has no result"));
        };
        if result.end == RunEnd::Refused {
            return Err(match result.problems.is_empty() {
                true => StartError::stream("fleet", self.notes.join("; ")),
                false => refused(&result.problems),
            });
        }
        let signal = self.environment.signals.received();
        if result.end == RunEnd::Stopped && result.started_wall_ns.is_none() {
            return Err(StartError::Interrupted(signal.unwrap_or(2)));
        }
        let mut report = report(&self.plan, &result)?;
        let is_new = |note: &String| !result.warnings.contains(note);
        let notes = self.notes.into_iter().filter(is_new);
        report.warnings.splice(0..0, notes);
        let missing = report
            .hosts
            .iter()
            .find(|host| host.state != HostState::Complete);
        let cut_short = result.shares.iter().find_map(cut_short);
        let end = match (result.end, missing) {
            (_, Some(host)) => End::Fault(host.account()),
            (RunEnd::Finished, None) if cut_short.is_some() => {
                End::Fault(cut_short.clone().unwrap_or_default())
            }
            (RunEnd::Stopped, None) => End::Signal(signal.unwrap_or(2)),
            _ => End::Completed,
        };
        // A missing host makes the run incomplete; it is no error of this process.
        let judged_end = match &end {
            End::Fault(_) => &End::Completed,
            other => other,
        };
        let void = result.shares.iter().find_map(void);
        wb_session::judge(&mut report, judged_end, cut_short, void);
        Ok((report, end))
    }
}

/// Counts frames that arrived as sent, also if the figures of the sending host are a moment older.
fn count_arrived(totals: &mut Totals) {
    let (Some(offered), Some(received)) = (totals.offered_frames, totals.received_frames) else {
        return;
    };
    let distinct = received.saturating_sub(totals.duplicate_frames.unwrap_or(0));
    let sent = distinct + totals.lost_frames.unwrap_or(0);
    if sent > offered {
        totals.offered_frames = Some(sent);
        totals.offered_octets = totals.offered_octets.max(totals.received_octets);
    }
}

/// Reason why a host ended before its planned end, unless the user has stopped it.
fn cut_short(share: &ShareMessage) -> Option<String> {
    match &share.share.end {
        ShareEnd::Fault(why) => Some(format!("{}: {why}", share.host)),
        ShareEnd::Lease => Some(format!(
            "host {} stopped when its lease ran out",
            share.host
        )),
        ShareEnd::Finished | ShareEnd::Stopped => None,
    }
}

/// Reason why the results of a host are void: one without an end of a direction measured nothing, such as no completed
/// request, or a port was set down there.
fn void(share: &ShareMessage) -> Option<String> {
    let own = &share.share.report;
    let was_set_down = || own.ports.iter().any(|port| port.set_down_at_ns.is_some());
    let is_void = own.verdict == Verdict::Invalid && (own.jobs.is_empty() || was_set_down());
    is_void.then(|| format!("{}: {}", share.host, own.reason))
}

/// Makes the report of a result.
fn report(plan: &Plan, result: &RunResult) -> Result<Report, StartError> {
    let parts = result.shares.iter();
    let parts = parts.map(|share| (share.host.clone(), (*share.share.report).clone()));
    let hosts = result.hosts.clone();
    let report = assemble(plan, parts.collect(), hosts.clone());
    let mut report = report.unwrap_or_else(|why| {
        // Without any share, nothing is known but the hosts.
        let missing: Vec<String> = hosts
            .iter()
            .filter(|host| host.state != HostState::Complete)
            .map(HostReport::account)
            .collect();
        Report {
            schema: wb_model::REPORT_SCHEMA.to_owned(),
            kind: plan.kind.clone(),
            plan: plan.clone(),
            verdict: Verdict::Incomplete,
            reason: match missing.is_empty() {
                true => why,
                false => missing.join("; "),
            },
            hosts,
            ..Report::default()
        }
    });
    for warning in &result.warnings {
        if !report.warnings.contains(warning) {
            report.warnings.push(warning.clone());
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_arrived_were_sent() {
        let sent = |offered, received, duplicate, lost| {
            let mut totals = Totals {
                offered_frames: offered,
                offered_octets: offered.map(|n| 64 * n),
                received_frames: Some(received),
                received_octets: Some(64 * received),
                duplicate_frames: Some(duplicate),
                lost_frames: Some(lost),
                ..Totals::default()
            };
            count_arrived(&mut totals);
            (totals.offered_frames, totals.offered_octets)
        };
        assert_eq!(sent(Some(100), 90, 0, 2), (Some(100), Some(6400)));
        assert_eq!(sent(Some(100), 110, 5, 2), (Some(107), Some(7040)));
        assert_eq!(sent(None, 110, 5, 2), (None, None));
    }
}
