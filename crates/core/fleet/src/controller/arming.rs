//! Everything before the start: hosts open, resolve and compare clocks. A problem of any host ends the run here, and
//! nothing was sent.

use std::collections::{BTreeMap, BTreeSet};

use wb_model::{peer::PairClock, units::Span};

use super::{
    Action, CLOCK_NS, CLOCK_PATIENCE_NS, Controller, HostState, LEASE_NS, PATIENCE_NS, Progress,
    Published, RecordStage, RunEnd, SILENCE_NS, START_MARGIN_NS, Stage,
};
use crate::{
    MS, Now,
    message::{
        Answer, Armed, ClockSource, Direction, LeaseMessage, Op, Open, Problem, Refused,
        Registration, RunEpoch, Start, V1,
    },
    subjects::Subject,
};

impl Controller {
    /// Asks every host to open its part.
    pub(super) fn open(&mut self, registrations: &[Registration], now: Now) {
        self.store_record(RecordStage::Arming);
        let parts: Vec<_> = self.placement.parts.clone().into_iter().collect();
        for (host, part) in parts {
            let directions = self.placement.directions.iter();
            let own = directions.filter(|d| d.from == host || d.to == host);
            let own: Vec<Direction> = own.cloned().collect();
            let sends = |known: &&Registration| {
                let to_own = |d: &Direction| d.to == host && d.from == known.host;
                known.host != host && own.iter().any(to_own)
            };
            let senders = registrations.iter().filter(sends).map(|known| ClockSource {
                host: known.host.clone(),
                boot: known.boot.clone(),
                udp: known.udp.clone(),
            });
            let open = Open {
                senders: senders.collect(),
                run: self.settings.run.clone(),
                epoch: self.epoch,
                controller: self.settings.controller.clone(),
                plan: part.plan,
                directions: own,
                files: part.files,
                lease_ms: self.settings.lease_ns / MS,
                key: self.settings.key.clone(),
            };
            self.request(&host, Op::Open(Box::new(open)), now);
        }
        self.renew_lease(now);
    }

    pub(super) fn replied(&mut self, name: &str, id: u64, answer: Answer, now: Now) {
        if self
            .pending
            .get(&id)
            .is_none_or(|pending| pending.host != name)
        {
            return;
        }
        let Some(pending) = self.pending.remove(&id) else {
            return;
        };
        let Some(host) = self.hosts.get_mut(name).filter(|host| host.is_live()) else {
            return;
        };
        host.heard_ns = now.mono_ns;
        match (pending.op, answer, self.stage) {
            (Op::Open(_), Answer::Opened(opened), Stage::Opening) => {
                host.progress = Progress::Ready;
                if !opened.version.is_empty() {
                    host.outcome.version.clone_from(&opened.version);
                    host.version = opened.version;
                }
                host.outcome.clock = opened.clock;
                let warnings = opened.warnings.into_iter();
                self.warnings
                    .extend(warnings.map(|text| format!("{name}: {text}")));
            }
            (Op::Resolve(_), Answer::Armed(armed), Stage::Resolving) => {
                host.progress = Progress::Ready;
                host.lead_ns = armed.lead_ns;
                let compared = armed.clocks.iter().filter(|clock| clock.to == name);
                let compared = compared.map(|clock| {
                    let hosts = (clock.from.clone(), clock.to.clone());
                    (hosts, clock.clone())
                });
                self.compared.extend(compared);
                self.check_flows(name, &armed);
            }
            (Op::Open(_) | Op::Resolve(_), Answer::Refused(refused), _) => {
                self.refused(name, refused);
            }
            (Op::Resend(_), Answer::Refused(refused), Stage::Running) => {
                self.no_share(name, &refused, now);
            }
            _ => {}
        }
    }

    /// Both ends of a direction must count the same flows.
    fn check_flows(&mut self, host: &str, armed: &Armed) {
        for flows in &armed.flows {
            let mut directions = self.placement.directions.iter();
            let Some(known) = directions.find(|d| d.name == flows.direction) else {
                continue;
            };
            if (flows.first, flows.count) != (known.first_flow, known.flows) {
                let what = format!(
                    "{} has flows from {} ({}) on this host; the controller planned flows from {} ({})",
                    known.name, flows.first, flows.count, known.first_flow, known.flows
                );
                self.problems.push(Problem::new(host, what));
            }
        }
    }

    fn refused(&mut self, name: &str, refused: Refused) {
        let first = refused.problems.first().map(|problem| problem.what.clone());
        self.problems.extend(refused.problems);
        self.end = RunEnd::Refused;
        self.leave(name, HostState::Refused, first.unwrap_or_default(), None);
    }

    pub(super) fn continue_arming(&mut self, now: Now) {
        if self.is_time_to_check(now) {
            self.fail_silent_hosts(now);
        }
        if self.stage != Stage::Clocks && self.live().any(|(_, h)| h.progress == Progress::Waiting)
        {
            return;
        }
        if !self.problems.is_empty() && !self.has_enough_hosts() {
            return self.refuse_run(now);
        }
        match self.stage {
            Stage::Opening => self.resolve(now),
            Stage::Resolving => self.enter(Stage::Clocks, now),
            _ => self.start_with_clocks(now),
        }
    }

    /// Returns true if the run may continue without the hosts that are gone.
    pub(super) fn has_enough_hosts(&self) -> bool {
        let enough = self.settings.min_agents;
        self.end != RunEnd::Refused
            && enough.is_some_and(|least| self.live().count() >= least.max(1))
    }

    fn enter(&mut self, stage: Stage, now: Now) {
        self.stage = stage;
        self.stage_since_ns = now.mono_ns;
    }

    fn fail_silent_hosts(&mut self, now: Now) {
        let waiting = self
            .pending
            .values()
            .map(|pending| (&*pending.host, pending.first_ns));
        let waiting: BTreeMap<&str, u64> = waiting.collect();
        let failed = self.live().filter_map(|(name, host)| {
            let silent_ns = now.mono_ns.saturating_sub(host.heard_ns);
            let since = waiting.get(&**name).copied().unwrap_or(now.mono_ns);
            let waiting_ns = now.mono_ns.saturating_sub(since);
            match (silent_ns >= SILENCE_NS, waiting_ns >= PATIENCE_NS) {
                (true, _) => Some((name.clone(), "no message for 3 s")),
                (_, true) => Some((name.clone(), "no answer for 60 s")),
                _ => None,
            }
        });
        for (name, why) in failed.collect::<Vec<_>>() {
            self.problems.push(Problem::new(&*name, why));
            self.leave(&name, HostState::Lost, why.to_owned(), None);
        }
    }

    fn resolve(&mut self, now: Now) {
        self.enter(Stage::Resolving, now);
        let live: Vec<String> = self.live().map(|(name, _)| name.clone()).collect();
        for name in live {
            if let Some(host) = self.hosts.get_mut(&name) {
                host.progress = Progress::Waiting;
            }
            let of = self.run_epoch();
            self.request(&name, Op::Resolve(of), now);
        }
    }

    pub(super) fn run_epoch(&self) -> RunEpoch {
        RunEpoch {
            run: self.settings.run.clone(),
            epoch: self.epoch,
        }
    }

    /// Disarms every host and ends the run.
    pub(super) fn refuse_run(&mut self, now: Now) {
        if self.end == RunEnd::Finished {
            self.end = RunEnd::Refused;
        }
        self.disarm_all(now);
        self.finish(now);
    }

    pub(super) fn disarm_all(&mut self, now: Now) {
        self.pending.clear();
        let all: Vec<String> = self.hosts.keys().cloned().collect();
        for host in all {
            let of = self.run_epoch();
            self.request(&host, Op::Disarm(of), now);
        }
    }

    pub(super) fn measure_clocks(&mut self, now: Now) {
        let is_due = now.mono_ns >= self.clock_next_ns;
        if is_due && matches!(self.stage, Stage::Clocks | Stage::Running) {
            self.clock_next_ns = now.mono_ns + CLOCK_NS;
            let hosts = self.hosts_to_measure();
            if !hosts.is_empty() {
                self.actions.push(Action::MeasureClocks { hosts });
            }
        }
    }

    /// Hosts to measure. Before the start these are all, because each host starts by its clock. During the run, pairs of
    /// hosts that compare their clocks directly are left out.
    fn hosts_to_measure(&self) -> Vec<String> {
        let ends = |d: &Direction| (d.from.clone(), d.to.clone());
        let directions = self.placement.directions.iter();
        let open = directions.filter(|d| !d.is_local() && !self.compared.contains_key(&ends(d)));
        let needed: BTreeSet<&str> = open.flat_map(|d| [&*d.from, &*d.to]).collect();
        let live = self.live().map(|(name, _)| name);
        live.filter(|name| self.stage == Stage::Clocks || needed.contains(name.as_str()))
            .cloned()
            .collect()
    }

    fn start_with_clocks(&mut self, now: Now) {
        let unknown = self.live().filter(|(_, host)| host.clock.last().is_none());
        let unknown: Vec<String> = unknown.map(|(name, _)| name.clone()).collect();
        if !unknown.is_empty() {
            if now.mono_ns >= self.stage_since_ns + CLOCK_PATIENCE_NS {
                for host in unknown {
                    let why = "no clock exchange succeeded within 5 s";
                    self.problems.push(Problem::new(&*host, why));
                    self.leave(&host, HostState::Lost, why.to_owned(), None);
                }
            }
            return;
        }
        self.check_clock_errors(now);
        self.check_time_services(now);
        match self.problems.is_empty() || self.has_enough_hosts() {
            true => self.set_start(now),
            false => self.refuse_run(now),
        }
    }

    fn check_clock_errors(&mut self, now: Now) {
        let Some(limit) = self.settings.max_clock_error_ns else {
            return;
        };
        let clocks = self.clocks(now).into_iter();
        let problems: Vec<Problem> = clocks
            .filter(|clock| clock.error_ns > limit)
            .map(|clock| {
                let limit = Span::from_nanos(limit);
                let text = format!("{}; at most {limit} is allowed", clock.account());
                Problem::new("clocks", text)
            })
            .collect();
        if !problems.is_empty() {
            self.end = RunEnd::Refused;
            self.problems.extend(problems);
        }
    }

    /// Warns if the offset of two clocks contradicts the errors that the time services of both hosts claim.
    fn check_time_services(&mut self, now: Now) {
        let claim_of = |host: &str| self.hosts.get(host)?.outcome.clock.clone();
        let wrong = |clock: &PairClock| {
            let claims = [claim_of(&clock.from)?, claim_of(&clock.to)?];
            clock.contradicts(&claims[0], &claims[1])
        };
        let clocks = self.clocks(now);
        let warnings: Vec<String> = clocks.iter().filter_map(wrong).collect();
        self.warnings.extend(warnings);
    }

    /// Sets the start so late that the message reaches every host in time.
    fn set_start(&mut self, now: Now) {
        let lead = self.live().map(|(_, host)| host.lead_ns).max().unwrap_or(0);
        let bounds = self
            .live()
            .filter_map(|(_, host)| Some(host.clock.last()?.bound_ns));
        let round_trip = bounds.max().unwrap_or(0).saturating_mul(2);
        let ahead = lead
            .saturating_add(START_MARGIN_NS)
            .saturating_add(round_trip.saturating_mul(4));
        let at_wall_ns = now.wall_ns.saturating_add(ahead);
        let offsets = self.live().filter_map(|(name, host)| {
            Some((name.clone(), host.clock.offset_at(at_wall_ns)?.offset_ns))
        });
        let start = Start {
            v: V1,
            run: self.settings.run.clone(),
            epoch: self.epoch,
            at_wall_ns,
            offsets: offsets.collect(),
            clocks: self.clocks(now),
        };
        self.start_ns = i128::from(now.mono_ns) + i128::from(ahead);
        self.start = Some(start);
        self.enter(Stage::Running, now);
        self.store_record(RecordStage::Started);
        self.publish_start();
        let gone: Vec<String> = self.gone().collect();
        for host in gone {
            self.report_lost_sender(&host, now);
        }
    }

    pub(super) fn publish_start(&mut self) {
        if let Some(start) = self.start.clone() {
            let run = self.settings.run.clone();
            self.publish(Subject::Start { run }, Published::Start(start));
        }
    }

    /// Renews the lease, and repeats the start until its time.
    pub(super) fn renew_lease(&mut self, now: Now) {
        if !self.is_leasing || self.stage == Stage::Over || now.mono_ns < self.lease_next_ns {
            return;
        }
        self.lease_next_ns = now.mono_ns + LEASE_NS;
        self.lease_seq += 1;
        if self.start.is_some() && i128::from(now.mono_ns) < self.start_ns {
            self.publish_start();
        }
        let lease = LeaseMessage {
            v: V1,
            epoch: self.epoch,
            seq: self.lease_seq,
            clocks: self.clocks(now),
        };
        let run = self.settings.run.clone();
        self.publish(Subject::Lease { run }, Published::Lease(lease));
    }
}
