//! What a run asks of an engine, and what it gets from it. The session knows no more of any of them.

use std::{any::Any, collections::BTreeMap, os::fd::BorrowedFd, sync::Arc};

use wb_model::{
    JobKind, Lateness, LatenessReport, LimitedBy, Snapshot, Summary, Totals,
    bench::{BenchResult, ProbeReport},
    http::HttpReport,
    load::LoadReport,
    report::{
        CaptureReport, CriterionReport, FlowReport, JobReport, PortReport, Rates, WorkerReport,
    },
    socket::SocketReport,
    timeline::{Distribution, Row, Timeline},
};

use wb_traffic::DeviceOutcome;

use crate::{End, StartError, bell::Alarm, ports::OpenPort};

/// How an engine is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// In order: nothing new, and what is under way is awaited.
    Drain,
    /// At once.
    Now,
}

/// How far an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// At work.
    Running,
    /// It awaits what is under way.
    Draining,
    /// All its workers have ended.
    Over,
}

/// What somebody asks for by a signal while a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// What was read is to be written.
    Flush,
    /// The next file is to begin.
    NextFile,
}

/// What workers are started with.
pub(crate) struct Launch<'a> {
    /// CPUs for the queues of each port of [`Engine::placed`].
    pub(crate) cpus: &'a [Vec<u32>],
    /// Raised when a worker breaks; its bell wakes the controlling thread.
    pub(crate) alarm: &'a Arc<Alarm>,
}

/// What an interface counted, with the names of the kernel.
pub(crate) type DeviceCounters = BTreeMap<String, u64>;

/// When a port's link was first seen to have gone down.
#[derive(Clone, Debug)]
pub(crate) struct LinkDown {
    /// Time since the start of the run.
    pub(crate) at_ns: u64,
    /// The interface itself had been set down on this host.
    pub(crate) set_down: bool,
}

/// What of the run an engine's account needs.
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) elapsed_ns: u64,
    /// Stalls of the controlling thread. A stop of the whole process is under-measured by up to 50 ms.
    pub(crate) lateness: Lateness,
    pub(crate) clock_step_ns: i64,
    /// The most by which a monotonic time and a wall time of the same moment were told apart wrongly.
    pub(crate) clock_error_ns: u64,
    /// What the interfaces had counted before the first frame and after the last, by port.
    pub(crate) before: BTreeMap<String, DeviceCounters>,
    pub(crate) after: BTreeMap<String, DeviceCounters>,
    /// The ports whose links went down.
    pub(crate) downs: BTreeMap<String, LinkDown>,
}

impl Ended {
    /// How much a counter of a port's interface grew during the run.
    pub(crate) fn grew(&self, port: &OpenPort, key: &str) -> u64 {
        let of = |all: &BTreeMap<String, DeviceCounters>| {
            let counters = all.get(&port.plan.name)?;
            counters.get(key).copied()
        };
        let (before, after) = (of(&self.before), of(&self.after));
        after.unwrap_or(0).saturating_sub(before.unwrap_or(0))
    }

    /// A port for the report.
    pub(crate) fn port(&self, port: &OpenPort) -> PortReport {
        let of = |all: &BTreeMap<String, DeviceCounters>| {
            all.get(&port.plan.name).cloned().unwrap_or_default()
        };
        port.report(of(&self.before), of(&self.after))
    }
}

/// Distributions of times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) latency: Summary,
    pub(crate) jitter: Summary,
    pub(crate) jitter_rfc3550_ns: Option<f64>,
    pub(crate) ipdv: Summary,
    pub(crate) pdv: Summary,
    pub(crate) inter_arrival: Summary,
    pub(crate) inter_departure: Option<Summary>,
    /// Largest relative error of a percentile.
    pub(crate) percentile_error: f64,
}

/// Who took the stamps, and how well they fit together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamping {
    pub(crate) same_clock: bool,
    /// Times are differences of wall clock stamps.
    pub(crate) wall: bool,
    pub(crate) error_ns: Option<u64>,
    pub(crate) tx: String,
    pub(crate) rx: String,
}

impl Stamping {
    /// Of sockets of the kernel: times are read around calls.
    pub(crate) fn by_calls() -> Self {
        Self {
            same_clock: true,
            tx: "user, before a call".to_owned(),
            rx: "user, after a call".to_owned(),
            ..Self::default()
        }
    }
}

/// The final account of one engine: its part of the report.
#[derive(Default)]
pub(crate) struct Settled {
    /// The one job of several of its kind that it is about.
    pub(crate) job: Option<String>,
    pub(crate) totals: Totals,
    pub(crate) rates: Rates,
    pub(crate) times: Times,
    pub(crate) jobs: Vec<JobReport>,
    pub(crate) first_flow: Option<u32>,
    pub(crate) flows: Vec<FlowReport>,
    pub(crate) flows_omitted: u64,
    pub(crate) workers: Vec<WorkerReport>,
    pub(crate) ports: Vec<PortReport>,
    pub(crate) capture: Option<CaptureReport>,
    pub(crate) load: Option<LoadReport>,
    pub(crate) http: Option<HttpReport>,
    pub(crate) socket: Option<SocketReport>,
    pub(crate) probes: Vec<ProbeReport>,
    pub(crate) results: Vec<BenchResult>,
    pub(crate) distributions: Vec<Distribution>,
    /// The criteria that judge it, and how each came out.
    pub(crate) criteria: Vec<CriterionReport>,
    pub(crate) lateness: LatenessReport,
    /// What of its figures contradicts itself.
    pub(crate) defect: Option<String>,
    /// Why it has measured nothing.
    pub(crate) nothing: Option<String>,
    /// Less than 98 % of its intended load was offered, and why.
    pub(crate) not_offered: Option<String>,
    /// What ended it in order, other than a signal.
    pub(crate) stopped: Option<String>,
    /// What it promises without criteria, and did not keep.
    pub(crate) broken: Option<String>,
    /// Why its failed criteria say nothing about the device, in addition to `lateness`.
    pub(crate) excuse: Option<String>,
    /// Its jobs have goals, which the run met if nothing is `broken`.
    pub(crate) has_goals: bool,
    /// Its result, if no criteria were set.
    pub(crate) found: Option<String>,
    /// What kept it from doing more; empty where nothing could.
    pub(crate) limited_by: LimitedBy,
    pub(crate) warnings: Vec<String>,
    pub(crate) stamping: Stamping,
}

impl Settled {
    /// How late its workers were.
    pub(crate) fn late(&self) -> &Lateness {
        &self.lateness.all
    }

    /// True if it sent frames from this port.
    pub(crate) fn sent_from(&self, port: &str) -> bool {
        let sent = |totals: &Totals| totals.offered_frames.is_some_and(|n| n > 0);
        let mut jobs = self.jobs.iter();
        let mut loads = self.load.iter().flat_map(|load| &load.jobs);
        jobs.any(|job| job.tx.as_deref() == Some(port) && sent(&job.totals))
            || loads.any(|job| job.port == port && sent(&job.frames))
    }

    /// Why its failed criteria say nothing about the device.
    pub(crate) fn excuse(&self) -> Option<&String> {
        let late = self.lateness.may_have_caused.as_ref();
        late.or(self.excuse.as_ref())
    }
}

/// One engine of a run with all its jobs, ready to start.
pub(crate) trait Engine: Any + Send {
    /// The kind of its jobs.
    fn kind(&self) -> JobKind;

    /// Ports whose workers the session places; others say their CPUs themselves.
    fn placed(&self) -> &[OpenPort] {
        &[]
    }

    /// All its ports.
    fn ports(&self) -> &[OpenPort];

    /// Whether it only looks at what others send: it goes on until they have ended.
    fn only_listens(&self) -> bool;

    /// How long its workers need to be ready, ns.
    fn lead_ns(&self) -> u64 {
        0
    }

    /// Starts the workers. They wait for [`Engine::begin`]. Where one cannot be started, all are ended.
    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError>;

    /// All engines have started: the first frame is due at this monotonic time.
    fn begin(&mut self, start_ns: u64);

    /// Ends it; may be said more than once.
    fn stop(&mut self, how: Stop);

    /// Does what is due beside the workers, and says how far it is.
    fn state(&mut self, now_ns: u64) -> State;

    /// The next monotonic time at which [`Engine::state`] has something to do although no event comes; `u64::MAX` if
    /// there is none.
    fn due_ns(&self) -> u64 {
        u64::MAX
    }

    /// Descriptors at which requests arrive that [`Engine::state`] answers.
    fn request_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Somebody asks for something.
    fn request(&mut self, _request: Request, _now_ns: u64) {}

    /// Returns true if nothing can happen without a ring of the bell, so that the controlling thread may sleep.
    fn is_idle(&self) -> bool {
        false
    }

    /// Whether it has times of its own for snapshots, instead of the plan's interval.
    fn has_own_times(&self) -> bool {
        false
    }

    /// Snapshots that were due at its own times, each told once.
    fn news(&mut self) -> Vec<Snapshot> {
        Vec::new()
    }

    /// How it goes.
    fn sample(&mut self, now_ns: u64) -> Sample;

    /// Takes down what it has counted so far. What is told between snapshots stays as it is.
    fn record(&self, row: &mut Row<'_>);

    /// Waits for the workers. Returns what broke.
    fn join(&mut self) -> Option<String>;

    /// The final account.
    fn settle(&mut self, ended: &Ended) -> Settled;

    /// What became of its packet devices.
    fn devices(&mut self) -> Vec<Option<DeviceOutcome>> {
        Vec::new()
    }
}

/// An engine at an instant.
pub(crate) struct Sample {
    pub(crate) snapshot: Snapshot,
    pub(crate) load: Option<crate::load::LoadDetail>,
    pub(crate) capture: Option<wb_capture::CaptureSnapshot>,
}

impl From<Snapshot> for Sample {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            load: None,
            capture: None,
        }
    }
}

/// A run at an instant.
pub struct View {
    /// As all readers see it.
    pub snapshot: Snapshot,
    /// More about its loads.
    pub load: Option<crate::load::LoadDetail>,
    /// More about its captures.
    pub capture: Option<wb_capture::CaptureSnapshot>,
    /// Somebody asked for the counts by signal.
    pub asked: bool,
    /// The last view: all has ended.
    pub done: bool,
}

/// Who looks on while a run goes on.
pub trait Observer {
    /// All workers run.
    fn started(&mut self) {}
    /// What was taken down so far; before each view.
    fn recorded(&mut self, _timeline: &Timeline) {}
    /// Once per interval, whenever somebody asks for the counts, and at the end.
    fn view(&mut self, view: &View);
}

impl<F: FnMut(&View)> Observer for F {
    fn view(&mut self, view: &View) {
        self(view);
    }
}
