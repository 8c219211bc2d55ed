//! The interface between a run and its engines, and what the engines share: surroundings of a run, neighbours of ports,
//! the guard, lateness, criteria, and common parts of reports. A run knows no more about any engine.

use std::{collections::BTreeMap, os::fd::BorrowedFd, sync::Arc};

use wb_measure::NamedHistogram;
use wb_model::{
    JobKind, Lateness, LatenessReport, LimitedBy, Plan, Report, Snapshot, Summary,
    report::{CriterionReport, PortReport},
    timeline::{Row, Timeline},
};
use wb_open::{Alarm, OpenPort, StartError};

pub mod clock;
pub mod criteria;
pub mod describe;
pub mod guard;
pub mod input;
pub mod lateness;
pub mod neighbour_responder;
pub mod neighbours;
pub mod opening;
mod part;
pub mod peers;
pub mod settle;
pub mod sharing;
pub mod signals;
pub mod snapshot;
pub mod stations;
pub mod steering;
pub mod verdict;

pub use part::{Part, fill, fill_so_far};

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The plan was completed.
    Completed,
    /// A signal ended the run.
    Signal(i32),
    /// A failure after the start: a device vanished, or a thread died.
    Fault(String),
}

/// Failure after something had been started. Exit code 4.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// Time between the start order and the first frame or connection, for all workers to be ready, in ns.
pub const LEAD_NS: u64 = 30_000_000;

/// Way to stop an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Stop in order: start nothing new, and wait for work in flight.
    Drain,
    /// Stop at once.
    Now,
}

/// Phase of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// The engine works.
    Running,
    /// The engine waits for work in flight.
    Draining,
    /// All workers of the engine have ended.
    Over,
}

/// Request that a signal or a caller makes while a run continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Show the counts. The run does this itself.
    Counts,
    /// Write the frames that were read.
    Flush,
    /// Begin the next file.
    NextFile,
}

impl Request {
    /// All requests, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Counts, Self::Flush, Self::NextFile];
}

/// Arguments for starting workers.
pub struct Launch<'a> {
    /// CPUs for the queues of each port of [`Engine::placed`].
    pub cpus: &'a [Vec<u32>],
    /// Raised when a worker breaks; its bell wakes the controlling thread.
    pub alarm: &'a Arc<Alarm>,
}

/// Counters of an interface, with the kernel's names.
pub type DeviceCounters = BTreeMap<String, u64>;

/// Moment at which a port's link was first seen to have gone down.
#[derive(Clone, Debug)]
pub struct LinkDown {
    /// Time since the start of the run.
    pub at_ns: u64,
    /// True if the interface itself was set down on this host.
    pub set_down: bool,
}

/// Facts about a run that an engine's account needs.
pub struct Ended {
    /// End of the run.
    pub end: End,
    /// Start of the run on the wall clock.
    pub started_wall_ns: u64,
    /// Time since the start.
    pub elapsed_ns: u64,
    /// Stalls of the controlling thread. A stop of the whole process is under-measured by up to 50 ms.
    pub lateness: Lateness,
    /// Step of the wall clock during the run, in ns.
    pub clock_step_ns: i64,
    /// Maximum error of the wall-to-monotonic clock offset, in ns.
    pub clock_error_ns: u64,
    /// Interface counters before the first frame, by port.
    pub before: BTreeMap<String, DeviceCounters>,
    /// Interface counters after the last frame, by port.
    pub after: BTreeMap<String, DeviceCounters>,
    /// Link failures of ports, by port.
    pub downs: BTreeMap<String, LinkDown>,
}

impl Ended {
    /// Returns how much a counter of a port's interface grew during the run.
    pub fn grew(&self, port: &OpenPort, key: &str) -> u64 {
        let of = |all: &BTreeMap<String, DeviceCounters>| {
            let counters = all.get(&port.plan.name)?;
            counters.get(key).copied()
        };
        let (before, after) = (of(&self.before), of(&self.after));
        after.unwrap_or(0).saturating_sub(before.unwrap_or(0))
    }

    /// Returns the report of a port.
    pub fn port(&self, port: &OpenPort) -> PortReport {
        let of = |all: &BTreeMap<String, DeviceCounters>| {
            all.get(&port.plan.name).cloned().unwrap_or_default()
        };
        port.report(of(&self.before), of(&self.after))
    }
}

/// Distributions of times.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// One-way delays, in ns.
    pub latency: Summary,
    /// Differences of the delays of successive frames, in ns.
    pub jitter: Summary,
    /// Jitter of RFC 3550, in ns.
    pub jitter_rfc3550_ns: Option<f64>,
    /// Delay variation between successive frames, with its sign (RFC 3393), in ns.
    pub ipdv: Summary,
    /// Delays above the smallest one (RFC 5481), in ns.
    pub pdv: Summary,
    /// Times between arrivals, in ns.
    pub inter_arrival: Summary,
    /// Times between departures, in ns.
    pub inter_departure: Option<Summary>,
    /// Largest relative error of a percentile.
    pub percentile_error: f64,
}

/// Source of the timestamps, and how well the clocks agree.
#[derive(Clone, Debug, Default)]
pub struct Stamping {
    /// True if both ends read the same clock.
    pub same_clock: bool,
    /// True if times are differences of wall clock timestamps.
    pub wall: bool,
    /// Largest error of a delay that the clocks cause, in ns.
    pub error_ns: Option<u64>,
    /// Source of the departure times.
    pub tx: String,
    /// Source of the arrival times.
    pub rx: String,
}

impl Stamping {
    /// Timestamps for sockets of the kernel: times are read around calls.
    pub fn by_calls() -> Self {
        Self {
            same_clock: true,
            tx: "user, before a call".to_owned(),
            rx: "user, after a call".to_owned(),
            ..Self::default()
        }
    }
}

/// Facts about an engine that has ended, for the verdict of the run.
#[derive(Default)]
pub struct Outcome {
    /// Name of the job, if the engine has one of several jobs of its kind.
    pub job: Option<String>,
    /// Distributions at full resolution.
    pub distributions: Vec<NamedHistogram>,
    /// Criteria that judge the engine, with their results.
    pub criteria: Vec<CriterionReport>,
    /// Lateness of the engine's workers.
    pub lateness: LatenessReport,
    /// Contradiction in the figures.
    pub defect: Option<String>,
    /// Reason why the engine measured nothing.
    pub nothing: Option<String>,
    /// Reason why less than 98 % of the intended load was offered.
    pub not_offered: Option<String>,
    /// Reason why the engine ended in order, other than a signal.
    pub stopped: Option<String>,
    /// Broken promise of the engine, which holds without criteria.
    pub broken: Option<String>,
    /// Reason why failed criteria say nothing about the device, in addition to `lateness`.
    pub excuse: Option<String>,
    /// True if the jobs have goals. The run met them if nothing is `broken`.
    pub has_goals: bool,
    /// Result of the run, if no criteria were set.
    pub found: Option<String>,
    /// Limiting factor of the run; empty if nothing could be the limit.
    pub limited_by: LimitedBy,
    /// Warnings for the report.
    pub warnings: Vec<String>,
    /// Source of the timestamps.
    pub stamping: Stamping,
}

impl Outcome {
    /// Lateness of the engine's workers.
    pub fn late(&self) -> &Lateness {
        &self.lateness.all
    }

    /// Returns why failed criteria say nothing about the device.
    pub fn excuse(&self) -> Option<&String> {
        let late = self.lateness.may_have_caused.as_ref();
        late.or(self.excuse.as_ref())
    }
}

/// One engine of a run with all its jobs, ready to start.
pub trait Engine: Send {
    /// Kind of the engine's jobs.
    fn kind(&self) -> JobKind;

    /// Ports with workers that the run places on CPUs. Other workers choose their CPUs themselves.
    fn placed(&self) -> &[OpenPort] {
        &[]
    }

    /// All ports of the engine.
    fn ports(&self) -> &[OpenPort];

    /// Returns true if the engine only receives what others send. Such an engine continues until the other engines have
    /// ended.
    fn only_listens(&self) -> bool;

    /// Time that the workers need to be ready, in ns.
    fn lead_ns(&self) -> u64 {
        0
    }

    /// Starts the workers. Those that send wait for [`Engine::begin`]. If one worker cannot be started, all are ended.
    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError>;

    /// Begins the work after all engines have started. The first frame is due at this monotonic time. [`Engine::stop`] may
    /// come first.
    fn begin(&mut self, start_ns: u64);

    /// Stops the engine. May be called more than once.
    fn stop(&mut self, how: Stop);

    /// Does the work that is due outside the workers, and returns the phase of the engine.
    fn state(&mut self, now_ns: u64) -> EngineState;

    /// Returns the next monotonic time at which [`Engine::state`] has work although no event comes; `u64::MAX` if there
    /// is none.
    fn due_ns(&self) -> u64 {
        u64::MAX
    }

    /// Returns descriptors at which requests for [`Engine::state`] arrive.
    fn request_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Handles a request of the user.
    fn request(&mut self, _request: Request, _now_ns: u64) {}

    /// Returns true if nothing can happen without a ring of the bell, so that the controlling thread may sleep.
    fn is_idle(&self) -> bool {
        false
    }

    /// Returns true if the engine has separate times for views instead of the plan's interval.
    fn has_own_times(&self) -> bool {
        false
    }

    /// Takes the next news of an engine with separate times. Returns true if there was one: a view follows.
    fn has_news(&mut self) -> bool {
        false
    }

    /// Writes the addresses that the engine found into the plan of the report.
    fn complete(&self, _plan: &mut Plan) {}

    /// Fills the engine's part of the report so far: counts, and means of times; no distributions and no flows.
    fn fill(&self, part: &mut Part<'_>);

    /// Adds values to the snapshot of a view that no report contains: the phase, the progress, means of the last interval.
    /// The phase, the progress and the mean latency of a snapshot are those of the first engine.
    fn show(&mut self, snapshot: &mut Snapshot, now_ns: u64);

    /// Records the counters so far. The intervals of snapshots are not affected.
    fn record(&self, row: &mut Row<'_>);

    /// Waits for the workers. Returns a description of what broke.
    fn join(&mut self) -> Option<String>;

    /// Fills the engine's part of the final report.
    fn settle(&mut self, part: &mut Part<'_>, ended: &Ended) -> Outcome;
}

/// State of a run at an instant.
pub struct View<'a> {
    /// Snapshot, as all readers see it.
    pub snapshot: Snapshot,
    /// Report so far: counts, and means of times; no distributions and no flows. In a benchmark, its frames and loads are
    /// those of the current trial.
    pub report: &'a Report,
    /// True if a signal asked for the counts.
    pub asked: bool,
    /// True for the last view: all engines have ended.
    pub done: bool,
}

/// Receives the progress of a run.
pub trait Observer {
    /// Called when all workers run.
    fn started(&mut self) {}
    /// Called before each view, with all records so far.
    fn recorded(&mut self, _timeline: &Timeline) {}
    /// Called once per interval, whenever a signal asks for the counts, and at the end.
    fn view(&mut self, view: &View<'_>);
}

impl<F: FnMut(&View<'_>)> Observer for F {
    fn view(&mut self, view: &View<'_>) {
        self(view);
    }
}
