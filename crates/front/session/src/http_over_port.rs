//! HTTP loads over ports of the plan: the connections are a load's, the report is that of HTTP loads.

use std::{os::fd::BorrowedFd, sync::Arc};

use wb_http::HttpThreadOutcome;
use wb_load::engine::run::{LoadWorkerSlot, Loads};
use wb_load::{HttpOutcome, HttpTask, LoadSnapshot};
use wb_model::{
    JobKind, Phase, Plan, Snapshot,
    http::{HttpJobReport, HttpReport},
    load::LoadStage,
    timeline::Row,
};

use wb_engine::{Ended, Engine, EngineState, Launch, Outcome, Part, Stamping, Stop};
use wb_engine::{opening::Environment, settle::error_responses};
use wb_http::engine::{
    Moment, RequestFolder, record,
    report::{self, HttpJobFacts, Via},
    show,
};
use wb_open::{OpenPort, StartError};

/// HTTP loads of a run that use ports.
pub(crate) struct PortHttps {
    plan: Plan,
    loads: Loads,
    facts: Vec<HttpJobFacts>,
    last: Moment,
}

/// Makes the requests of the jobs, in their order.
pub(crate) fn tasks(
    plan: &Plan,
    environment: &Environment,
) -> Result<Vec<Arc<HttpTask>>, StartError> {
    let files = RequestFolder(environment.base.clone());
    let jobs = plan.http_jobs.iter().filter(|job| job.port.is_some());
    let read = |path: &str| wb_http::RequestFiles::read(&files, path);
    jobs.map(|job| {
        HttpTask::new(job, plan.seed, read)
            .map(Arc::new)
            .map_err(|what| StartError::stream(job.name.clone(), what))
    })
    .collect()
}

impl PortHttps {
    /// Creates the engine from a plan and its prepared connections.
    pub(crate) fn new(plan: &Plan, tasks: &[Arc<HttpTask>], loads: Loads) -> Self {
        let plan = plan.part(JobKind::Http);
        let facts = tasks.iter().enumerate().map(|(number, task)| {
            let load = &loads.plan.loads[number];
            let workers = loads.workers_of(number);
            let port = load.server_ports.first;
            let connections = u64::from(task.job.connections);
            let share = |worker| wb_load::worker_share(connections, worker, workers);
            HttpJobFacts {
                addresses: load
                    .servers
                    .iter()
                    .map(|range| match range.is_ipv6() {
                        true => format!("[{range}]:{port}"),
                        false => format!("{range}:{port}"),
                    })
                    .collect(),
                names: task.names.clone(),
                connections: (0..workers)
                    .map(|worker| u32::try_from(share(worker)).unwrap_or(u32::MAX))
                    .collect(),
                via: Via::Port,
            }
        });
        Self {
            facts: facts.collect(),
            plan,
            loads,
            last: Moment::default(),
        }
    }
}

/// Converts the measurements of a worker into the form that socket threads use.
fn outcome(
    slot: &mut LoadWorkerSlot,
    with_service: bool,
    wall_ns: u64,
) -> Option<HttpThreadOutcome> {
    let load = slot.outcome.as_mut()?;
    let HttpOutcome {
        totals,
        in_time,
        duration_ns,
        latency,
        service,
        first_byte,
        connect,
        statuses,
        classes,
        calls,
        first_failure,
        digests,
    } = load.http.take()?;
    let calls = calls.into_iter().map(|call| wb_http::RequestOutcome {
        sent: call.sent,
        completed: call.completed,
        failed: call.failed,
        latency: call.latency,
    });
    Some(HttpThreadOutcome {
        totals,
        in_time,
        duration_ns,
        latency,
        service: with_service.then_some(service),
        first_byte,
        connect,
        handshake: wb_measure::Histogram::new(),
        statuses,
        calls: calls.collect(),
        agreed: Default::default(),
        handshakes: (0, 0),
        digests,
        first_failure,
        unrouted: 0,
        error: None,
        cpu_ns: slot.cpu_ns,
        wall_ns,
        lateness: load.lateness,
        exact: None,
        http2: Default::default(),
        http3: Default::default(),
        classes,
    })
}

impl Engine for PortHttps {
    fn kind(&self) -> JobKind {
        JobKind::Http
    }

    fn placed(&self) -> &[OpenPort] {
        self.loads.placed()
    }

    fn ports(&self) -> &[OpenPort] {
        self.loads.ports()
    }

    fn only_listens(&self) -> bool {
        false
    }

    fn lead_ns(&self) -> u64 {
        self.loads.lead_ns()
    }

    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        self.loads.spawn(launch)
    }

    fn begin(&mut self, start_ns: u64) {
        self.last.0 = start_ns;
        self.loads.begin(start_ns);
    }

    fn stop(&mut self, how: Stop) {
        self.loads.stop(how);
    }

    fn state(&mut self, now: u64) -> EngineState {
        self.loads.state(now)
    }

    fn due_ns(&self) -> u64 {
        self.loads.due_ns()
    }

    fn request_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.loads.request_fds()
    }

    fn fill(&self, part: &mut Part<'_>) {
        let jobs = self.plan.http_jobs.iter().zip(&self.facts).enumerate();
        let jobs = jobs.map(|(number, (plan, facts))| {
            let seen = self.loads.seen_of(number);
            HttpJobReport {
                addresses: facts.addresses.clone(),
                ..report::so_far(plan, seen.http, seen.request.summary())
            }
        });
        part.report.http = Some(HttpReport {
            jobs: jobs.collect(),
            ..HttpReport::default()
        });
    }

    fn show(&mut self, snapshot: &mut Snapshot, now_ns: u64) {
        let seen = self.loads.seen();
        let now = (now_ns, seen.http, times(&seen));
        show(snapshot, &self.plan.http_jobs, &mut self.last, now);
        snapshot.phase = match seen.phase {
            LoadStage::Drain | LoadStage::Done => Phase::Drain,
            _ => Phase::Running,
        };
    }

    fn record(&self, row: &mut Row<'_>) {
        self.loads.record(row);
        let sum = self.loads.seen();
        record(row, &sum.http, times(&sum));
        for slot in &self.loads.slots {
            slot.record_requests(row, "http", "latency");
        }
    }

    fn join(&mut self) -> Option<String> {
        self.loads.join()
    }

    fn settle(&mut self, part: &mut Part<'_>, ended: &Ended) -> Outcome {
        let jobs_before = part.report.load.as_ref().map_or(0, |load| load.jobs.len());
        let load = self.loads.settle(part, ended);
        let outcomes = (0..self.facts.len()).map(|number| {
            let with_service = !self.plan.http_jobs[number].rate.is_empty();
            let slots = self.loads.slots.iter_mut();
            slots
                .filter(|slot| slot.job == number)
                .filter_map(|slot| outcome(slot, with_service, ended.elapsed_ns))
                .collect()
        });
        let outcomes: Vec<Vec<HttpThreadOutcome>> = outcomes.collect();
        let http = report::settle(&self.plan, &self.facts, outcomes, part, ended);
        let mut warnings = http.warnings;
        // Both engines warn about error responses.
        let jobs = part.report.load.iter().flat_map(|load| &load.jobs);
        let own = jobs.skip(jobs_before).map(|job| &job.totals);
        let (failed, all) = own.fold((0, 0), |(failed, all), totals| {
            (failed + totals.error_responses, all + totals.responses)
        });
        let errors = error_responses(failed, all);
        warnings.extend(
            load.warnings
                .into_iter()
                .filter(|w| Some(w) != errors.as_ref()),
        );
        Outcome {
            defect: http.defect.or(load.defect),
            warnings,
            stamping: Stamping {
                same_clock: true,
                tx: "user, when the request is handed over".to_owned(),
                rx: load.stamping.rx,
                ..Stamping::default()
            },
            ..http
        }
    }
}

/// Number of the response times so far, and their sum modulo 2^64.
fn times(seen: &LoadSnapshot) -> (u64, u64) {
    (seen.request.count, seen.request.sum as u64)
}
