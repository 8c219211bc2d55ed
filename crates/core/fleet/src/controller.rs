//! State machine of the controller of one run: opens, arms and starts the parts of a plan on their hosts, keeps the lease,
//! aligns the snapshots, and collects the shares.
//!
//! The caller passes messages and the time to [`Controller::on`], carries out the returned actions in order, and calls
//! with [`Event::Tick`] at least every [`TICK_NS`]. After [`Action::Finish`] the controller still accepts late shares,
//! until [`Controller::is_over`].

mod arming;
mod ending;
mod record;
mod running;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use wb_model::{Snapshot, peer::PairClock};

pub use record::{RecordStage, RecordedHost, RunRecord};
pub use wb_model::fleet::{HostReport, HostState};

use crate::{
    MS, Now, SECOND,
    clock::{ClockLine, Estimate, Offset},
    message::{
        AgentEvent, Alive, Answer, LeaseMessage, Op, Problem, Registration, Request, ShareMessage,
        Snap, Start, Stop, StopHow,
    },
    place::Placement,
    subjects::Subject,
};

/// Longest time between two events: the caller passes [`Event::Tick`] then.
pub const TICK_NS: u64 = 50 * MS;
/// Time between two renewals of the lease.
const LEASE_NS: u64 = 500 * MS;
/// Time after which a request without a reply is sent again.
const AGAIN_NS: u64 = SECOND;
/// Time without any message after which a host is lost.
const SILENCE_NS: u64 = 3 * SECOND;
/// Time that a host has to open its ports or to resolve its neighbours.
const PATIENCE_NS: u64 = 60 * SECOND;
/// Time until every host must have a clock estimate.
const CLOCK_PATIENCE_NS: u64 = 5 * SECOND;
/// Time between two estimates of the clocks.
const CLOCK_NS: u64 = SECOND;
/// Time from the start message to the start, in addition to the lead of the hosts and the round trips.
const START_MARGIN_NS: u64 = 500 * MS;
/// Time after the planned moment of a snapshot until which the controller waits for late hosts.
const LATE_NS: u64 = 300 * MS;
/// Time that the hosts have to answer a stop before the lease is withdrawn.
const STOP_PATIENCE_NS: u64 = 2 * SECOND;
/// Time after the planned end, or after the drain, in which shares are expected.
const SHARE_PATIENCE_NS: u64 = 5 * SECOND;
/// Time after the end in which a late share makes a new result.
const LATE_SHARES_NS: u64 = 600 * SECOND;

/// Settings of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Run.
    pub run: String,
    /// Name of the controller.
    pub controller: String,
    /// Length of the lease in ns, 1 s to 60 s.
    pub lease_ns: u64,
    /// Interval between two snapshots in ns.
    pub interval_ns: u64,
    /// Number of hosts with which the run starts and continues although others failed before the start. `None`: all.
    #[serde(default)]
    pub min_agents: Option<usize>,
    /// Maximum error of the clocks of two hosts in ns; the run is refused above it.
    #[serde(default)]
    pub max_clock_error_ns: Option<u64>,
    /// Time from the start to the planned end of the last job, with its drain, in ns. `None`: only a stop ends the run.
    #[serde(default)]
    pub planned_ns: Option<u64>,
    /// Longest drain of a job in ns.
    #[serde(default)]
    pub drain_ns: u64,
    /// Key of the run for clock exchanges, as hex digits. Another controller that continues the run does not need it.
    #[serde(skip)]
    pub key: String,
}

/// Input of the controller.
#[derive(Clone, Debug)]
pub enum Event {
    /// Reply to [`Action::Request`] with this number.
    Reply {
        /// Host.
        host: String,
        /// Number of the request.
        id: u64,
        /// Answer.
        answer: Answer,
    },
    /// Presence of an agent.
    Alive {
        /// Host.
        host: String,
        /// Message.
        alive: Alive,
    },
    /// Snapshot of a host.
    Snap {
        /// Host in the subject.
        host: String,
        /// Message.
        snap: Box<Snap>,
    },
    /// Event of an agent.
    Agent {
        /// Host in the subject.
        host: String,
        /// Message.
        event: AgentEvent,
    },
    /// Share of a host, from the stream. A share may come more than once.
    Share(Box<ShareMessage>),
    /// All shares that the stream has, for a controller that adopts the run: it takes all before it judges any.
    Shares(Vec<ShareMessage>),
    /// Estimate of a host's clock against the clock of the controller.
    Clock {
        /// Host.
        host: String,
        /// Estimate.
        estimate: Estimate,
        /// Number of exchanges of which the estimate was made.
        exchanges: usize,
    },
    /// Request of the user to stop. The second one stops at once.
    Stop(StopHow),
    /// Time has passed.
    Tick,
}

/// Message that the controller publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// Start.
    Start(Start),
    /// Lease.
    Lease(LeaseMessage),
    /// Stop.
    Stop(Stop),
}

/// Output of the controller.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends a request to an agent. A repeated request has the number of the first one.
    Request {
        /// Host.
        host: String,
        /// Number of the request.
        id: u64,
        /// Request.
        request: Request,
    },
    /// Publishes a message.
    Publish {
        /// Subject.
        subject: Subject,
        /// Message.
        message: Published,
    },
    /// Makes exchanges with these hosts; each gives an [`Event::Clock`].
    MeasureClocks {
        /// Hosts.
        hosts: Vec<String>,
    },
    /// Shows the figures of an interval.
    Show(Box<Shown>),
    /// Stores the record of the run, so that another controller can adopt it.
    Store(Box<RunRecord>),
    /// Message for the user and the history, one sentence.
    Note(String),
    /// The run has ended with this result, or a late share has changed the result.
    Finish(Box<RunResult>),
}

/// Figures of an interval over all hosts.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Number of the interval, from 1.
    pub k: u64,
    /// Merged snapshot, with the hosts that are late or lost.
    pub snapshot: Snapshot,
}

/// Result of a run, for the report.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Run.
    pub run: String,
    /// Number of the result, from 1.
    pub revision: u32,
    /// End of the run.
    pub end: RunEnd,
    /// Problems because of which the run was refused.
    pub problems: Vec<Problem>,
    /// Start by the wall clock of the controller, in ns since 1970.
    pub started_wall_ns: Option<u64>,
    /// Shares, one for each host.
    pub shares: Vec<ShareMessage>,
    /// Hosts.
    pub hosts: Vec<HostReport>,
    /// Reason for which a direction is incomplete, by the first flow of the direction.
    pub incomplete: BTreeMap<u32, String>,
    /// Warnings, one sentence each.
    pub warnings: Vec<String>,
}

/// End of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunEnd {
    /// The run ended as planned.
    #[default]
    Finished,
    /// The user stopped it.
    Stopped,
    /// A host refused it; see [`RunResult::problems`].
    Refused,
}

/// Stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Hosts open their ports.
    Opening,
    /// Hosts resolve their neighbours.
    Resolving,
    /// Clocks are compared.
    Clocks,
    /// The start is set.
    Running,
    /// The result was delivered.
    Over,
}

/// Progress of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The reply of this stage is missing.
    Waiting,
    /// The host has done what the stage asks for.
    Ready,
    /// The share is here.
    Settled,
    /// The host takes no part, or no part any more.
    Gone,
}

/// Host of the run.
#[derive(Debug)]
struct Host {
    id: String,
    version: String,
    progress: Progress,
    outcome: HostReport,
    heard_ns: u64,
    alive_seq: Option<u64>,
    lead_ns: u64,
    clock: ClockLine,
    last: Option<Box<Snap>>,
    share: Option<Box<ShareMessage>>,
    /// True if the share is in a result of an earlier controller, which it must stay in.
    is_counted: bool,
    resend_asked_ns: u64,
}

impl Host {
    const fn is_live(&self) -> bool {
        matches!(self.progress, Progress::Waiting | Progress::Ready)
    }
}

/// Snapshots of one interval by host.
type SnapsOfHosts = BTreeMap<String, Box<Snap>>;

/// Request without a reply.
#[derive(Debug)]
struct Pending {
    host: String,
    op: Op,
    first_ns: u64,
    next_ns: u64,
}

/// Controller of one run.
#[derive(Debug)]
pub struct Controller {
    settings: RunSettings,
    epoch: u64,
    placement: Placement,
    stage: Stage,
    stage_since_ns: u64,
    hosts: BTreeMap<String, Host>,
    /// Hosts with a job that ends without a stop. When all of these have ended, the others are stopped.
    working: BTreeSet<String>,
    /// Number of hosts that take part.
    live_hosts: usize,
    pending: BTreeMap<u64, Pending>,
    next_request: u64,
    problems: Vec<Problem>,
    warnings: Vec<String>,
    start: Option<Start>,
    /// Start by the monotonic clock of this controller. A machine that has just booted may have a negative one.
    start_ns: i128,
    lease_seq: u64,
    lease_next_ns: u64,
    is_leasing: bool,
    clock_next_ns: u64,
    /// Clocks that the hosts compared themselves, by sender and receiver.
    compared: BTreeMap<(String, String), PairClock>,
    /// Snapshots that are not shown yet, by interval and host.
    snaps: BTreeMap<u64, SnapsOfHosts>,
    shown: u64,
    stop: Option<(StopHow, u64)>,
    stop_next_ns: u64,
    end: RunEnd,
    revision: u32,
    over_ns: u64,
    /// Time of the last event, to notice that this controller itself stood still.
    last_ns: u64,
    /// Longest time for which it stood still.
    stalled_ns: u64,
    /// True if an earlier controller began the run.
    is_adopted: bool,
    has_late_share: bool,
    check_next_ns: u64,
    /// Time until which intervals wait for snapshots, after this controller stood still.
    patient_until_ns: u64,
    actions: Vec<Action>,
}

impl Controller {
    /// Creates the controller of a new run and opens the parts.
    #[must_use]
    pub fn new(
        settings: RunSettings,
        epoch: u64,
        placement: Placement,
        registrations: &[Registration],
        now: Now,
    ) -> (Self, Vec<Action>) {
        let hosts = placement.parts.keys().map(|host| {
            let known = registrations.iter().find(|known| known.host == *host);
            let (id, version) = known.map_or_else(Default::default, |known| {
                (known.id.clone(), known.version.clone())
            });
            (host.clone(), Host::new(host, id, version, now.mono_ns))
        });
        let hosts = hosts.collect();
        let mut controller = Self::of(settings, epoch, placement, hosts, now);
        controller.open(registrations, now);
        let actions = controller.take_actions();
        (controller, actions)
    }

    fn of(
        settings: RunSettings,
        epoch: u64,
        placement: Placement,
        hosts: BTreeMap<String, Host>,
        now: Now,
    ) -> Self {
        let working = placement
            .parts
            .iter()
            .filter(|(_, part)| !part.plan.is_endless())
            .map(|(host, _)| host.clone());
        Self {
            settings,
            epoch,
            working: working.collect(),
            warnings: placement.warnings.clone(),
            placement,
            stage: Stage::Opening,
            stage_since_ns: now.mono_ns,
            live_hosts: hosts.len(),
            hosts,
            pending: BTreeMap::new(),
            next_request: 0,
            problems: Vec::new(),
            start: None,
            start_ns: 0,
            lease_seq: 0,
            lease_next_ns: now.mono_ns,
            is_leasing: true,
            clock_next_ns: now.mono_ns,
            compared: BTreeMap::new(),
            snaps: BTreeMap::new(),
            shown: 0,
            stop: None,
            stop_next_ns: 0,
            end: RunEnd::Finished,
            revision: 0,
            over_ns: 0,
            last_ns: now.mono_ns,
            stalled_ns: 0,
            is_adopted: false,
            has_late_share: false,
            check_next_ns: 0,
            patient_until_ns: 0,
            actions: Vec::new(),
        }
    }

    /// Run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.settings.run
    }

    /// Stage of the run.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Hosts for which the run waits before its start.
    #[must_use]
    pub fn awaited(&self) -> Vec<&str> {
        let waits = |host: &Host| match self.stage {
            Stage::Opening | Stage::Resolving => host.progress == Progress::Waiting,
            Stage::Clocks => host.is_live() && host.clock.last().is_none(),
            Stage::Running | Stage::Over => false,
        };
        let hosts = self.hosts.iter().filter(|(_, host)| waits(host));
        hosts.map(|(name, _)| name.as_str()).collect()
    }

    /// Start of the run, once it is set.
    #[must_use]
    pub const fn start(&self) -> Option<&Start> {
        self.start.as_ref()
    }

    /// Offset of a host's clock at a time of this controller's wall clock, in ns since 1970.
    #[must_use]
    pub fn offset(&self, host: &str, at_wall_ns: u64) -> Option<Offset> {
        self.hosts.get(host)?.clock.offset_at(at_wall_ns)
    }

    /// Returns true when no message of this run matters any more.
    #[must_use]
    pub fn is_over(&self, now: Now) -> bool {
        let every_share = || self.hosts.values().all(|host| host.share.is_some());
        let is_final = self.start.is_none() || every_share();
        self.stage == Stage::Over
            && (is_final && self.pending.is_empty()
                || now.mono_ns >= self.over_ns.saturating_add(LATE_SHARES_NS))
    }

    /// Handles an event and returns the actions in order.
    pub fn on(&mut self, event: Event, now: Now) -> Vec<Action> {
        self.forgive_own_stall(now);
        match event {
            Event::Reply { host, id, answer } => self.replied(&host, id, answer, now),
            Event::Alive { host, alive } => self.alive(&host, alive, now),
            Event::Snap { host, snap } => self.snap(&host, snap, now),
            Event::Agent { host, event } => self.agent_event(&host, &event, now),
            Event::Share(share) => self.share(share, now),
            Event::Shares(all) => {
                for share in all {
                    self.share(Box::new(share), now);
                }
            }
            Event::Clock {
                host,
                estimate,
                exchanges,
            } => {
                if let Some(host) = self.hosts.get_mut(&host) {
                    host.clock.add(estimate, exchanges);
                }
            }
            Event::Stop(how) => self.user_stop(how, now),
            Event::Tick => {}
        }
        self.pass_time(now);
        self.take_actions()
    }

    fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Does not blame the hosts for a time in which this controller did not run: their messages may still wait.
    fn forgive_own_stall(&mut self, now: Now) {
        let gap = now.mono_ns.saturating_sub(self.last_ns);
        self.last_ns = now.mono_ns;
        if gap > LATE_NS {
            self.patient_until_ns = now.mono_ns + LATE_NS;
        }
        if gap > SECOND {
            self.stalled_ns = self.stalled_ns.max(gap);
            for host in self.hosts.values_mut() {
                host.heard_ns = host.heard_ns.saturating_add(gap).min(now.mono_ns);
            }
            for pending in self.pending.values_mut() {
                pending.first_ns = pending.first_ns.saturating_add(gap);
            }
        }
    }

    fn pass_time(&mut self, now: Now) {
        self.repeat_requests(now);
        self.renew_lease(now);
        self.measure_clocks(now);
        match self.stage {
            Stage::Opening | Stage::Resolving | Stage::Clocks => self.continue_arming(now),
            Stage::Running => self.continue_running(now),
            Stage::Over => self.deliver_late_shares(),
        }
    }

    fn request(&mut self, host: &str, op: Op, now: Now) {
        let id = self.next_request;
        self.next_request += 1;
        self.actions.push(Action::Request {
            host: host.to_owned(),
            id,
            request: Request::new(op.clone()),
        });
        let pending = Pending {
            host: host.to_owned(),
            op,
            first_ns: now.mono_ns,
            next_ns: now.mono_ns + AGAIN_NS,
        };
        self.pending.insert(id, pending);
    }

    fn repeat_requests(&mut self, now: Now) {
        let is_gone = |host: &str| self.hosts.get(host).is_none_or(|host| !host.is_live());
        // The agent frees its ports without these requests, too.
        self.pending.retain(|_, pending| {
            let is_old = now.mono_ns >= pending.first_ns + SILENCE_NS;
            !(is_old && (self.stage == Stage::Over || is_gone(&pending.host)))
        });
        for (id, pending) in &mut self.pending {
            if now.mono_ns >= pending.next_ns {
                pending.next_ns = now.mono_ns + AGAIN_NS;
                self.actions.push(Action::Request {
                    host: pending.host.clone(),
                    id: *id,
                    request: Request::new(pending.op.clone()),
                });
            }
        }
    }

    fn publish(&mut self, subject: Subject, message: Published) {
        self.actions.push(Action::Publish { subject, message });
    }

    fn count_live(&mut self) {
        self.live_hosts = self.live().count();
    }

    fn live(&self) -> impl Iterator<Item = (&String, &Host)> {
        self.hosts.iter().filter(|(_, host)| host.is_live())
    }

    /// Time since the start of the run, in ns; 0 before it.
    fn elapsed_ns(&self, now: Now) -> u64 {
        match self.start {
            Some(_) => u64::try_from(i128::from(now.mono_ns) - self.start_ns).unwrap_or(0),
            None => 0,
        }
    }
}

impl Host {
    fn new(host: &str, id: String, version: String, now_ns: u64) -> Self {
        Self {
            outcome: HostReport {
                host: host.to_owned(),
                version: version.clone(),
                ..HostReport::default()
            },
            id,
            version,
            progress: Progress::Waiting,
            heard_ns: now_ns,
            alive_seq: None,
            lead_ns: 0,
            clock: ClockLine::default(),
            last: None,
            share: None,
            is_counted: false,
            resend_asked_ns: 0,
        }
    }
}
