//! The engine of a run: resolves names, reads files and starts the threads that make the requests.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use crate::{
    HttpDestination, HttpLoad, HttpThreadControl, HttpThreadOutcome, LiveHttpState, RequestFiles,
    Script, ThreadTask,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wb_engine::{Ended, Engine, EngineState, Launch, Outcome, Part, Stop};
use wb_engine::{
    guard::{Guard, needs_no_zone},
    input::{LARGEST_DATA, read_file},
    opening::Environment,
};
use wb_model::{
    JobKind, Phase, Plan, Snapshot, Summary, counted,
    http::{
        HttpJob, HttpJobReport, HttpLive, HttpReport, HttpTotals, HttpUrl, HttpVersion,
        ServerAddress,
    },
    timeline::Row,
    units::Span,
};
use wb_open::{LastOutlineRequest, OpenPort, StartError, Workers};

pub mod report;

use report::{HttpJobFacts, Via};

/// Descriptors in addition to those of connections: epoll instances, files, and descriptors that the program has open
/// anyway.
const DESCRIPTORS: u64 = 64;

/// Time that one of several addresses may take to refuse a connection before the run.
const PROBE: Duration = Duration::from_secs(1);

/// Scripts of a job, one for each thread.
pub type Scripts = Vec<Box<dyn Script>>;

/// One job, ready to run.
struct Job {
    load: Arc<HttpLoad>,
    addresses: Vec<String>,
    controls: Vec<Arc<HttpThreadControl>>,
    scripts: Scripts,
}

/// The HTTP loads of a run.
pub struct Https {
    plan: Plan,
    jobs: Vec<Job>,
    workers: Workers<HttpThreadOutcome>,
    starts: Vec<Sender<u64>>,
    /// SYN segments that were retransmitted before the run.
    repeated_syns: Option<u64>,
    last: Moment,
    asked: LastOutlineRequest,
    outcomes: Vec<Option<HttpThreadOutcome>>,
    /// Warnings found before the run.
    warnings: Vec<String>,
}

/// Folder of a plan, from which relative file names start.
pub struct RequestFolder(pub Option<PathBuf>);

impl RequestFiles for RequestFolder {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let place = match &self.0 {
            Some(base) => base.join(path),
            None => PathBuf::from(path),
        };
        read_file(&place, LARGEST_DATA).map_err(|e| {
            format!(
                "cannot read {}: {}",
                place.display(),
                wb_machine::cause_text(&e)
            )
        })
    }
}

/// Returns the socket address with the number of its zone.
fn in_zone(server: &ServerAddress) -> Result<SocketAddr, String> {
    let Some(interface) = &server.interface else {
        return Ok(server.address);
    };
    let zoned = format!("{}%{interface}", server.address.ip());
    let mut found = (zoned.as_str(), server.address.port())
        .to_socket_addrs()
        .map_err(|e| format!("{zoned}: {}", wb_machine::cause_text(&e)))?;
    found
        .next()
        .ok_or_else(|| format!("{zoned}: no address found"))
}

/// Returns the destination of a job's connections.
fn server(job: &HttpJob) -> Result<HttpDestination, String> {
    if let Some(path) = &job.unix {
        return Ok(HttpDestination::Unix(path.clone()));
    }
    let url: HttpUrl = job.url.parse()?;
    let port = url.port_or_default();
    let mut addresses: Vec<SocketAddr> = match job.connect_to.is_empty() {
        false => job
            .connect_to
            .iter()
            .map(in_zone)
            .collect::<Result<_, _>>()?,
        true => (url.host.as_str(), port)
            .to_socket_addrs()
            .map_err(|e| format!("cannot resolve {}: {e}", url.host))?
            .collect(),
    };
    // A name may have several addresses, of which those that refuse are left out.
    let checked = || addresses.iter().map(needs_no_zone);
    if !job.connect_to.is_empty() || checked().all(|c| c.is_err()) {
        checked().collect::<Result<(), _>>()?;
    }
    for address in &mut addresses {
        if address.port() == 0 {
            address.set_port(port);
        }
    }
    let sources_v6 = job
        .sources
        .first()
        .map(wb_model::units::AddressRange::is_ipv6);
    addresses.retain(|a| sources_v6.is_none_or(|v6| a.is_ipv6() == v6));
    let mut seen = Vec::new();
    addresses.retain(|a| {
        let new = !seen.contains(a);
        seen.push(*a);
        new
    });
    match addresses.is_empty() {
        true => Err(format!(
            "{} has no address of the address family of the sources",
            url.host
        )),
        false => Ok(HttpDestination::Addresses(addresses)),
    }
}

/// Leaves out those of several addresses of a name that refuse a connection from the start, as wrk and curl do, if
/// another address does not. Returns a warning for each.
fn leave_out(job: &HttpJob, addresses: &mut Vec<SocketAddr>) -> Vec<String> {
    // A script makes its own choice, and QUIC has no quick refusal.
    let asks = !job.as_wrk && job.connect_to.is_empty() && job.version != HttpVersion::V3;
    if !asks || addresses.len() < 2 {
        return Vec::new();
    }
    let refusal = |address: &SocketAddr| {
        let refused = TcpStream::connect_timeout(address, PROBE).err()?;
        // An address without an answer may only be slow.
        (refused.kind() != ErrorKind::TimedOut).then_some(refused)
    };
    let refusals: Vec<_> = addresses.iter().map(refusal).collect();
    if refusals.iter().all(Option::is_some) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    let mut refusals = refusals.into_iter();
    addresses.retain(|address| {
        let Some(Some(why)) = refusals.next() else {
            return true;
        };
        warnings.push(format!(
            "{}: {address} is not used: cannot connect ({why})",
            job.name
        ));
        false
    });
    warnings
}

/// Raises the descriptor limit to the number that the connections need, if the system permits it.
fn allow_descriptors(needed: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|now| now >= needed) {
        return Ok(());
    }
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let wanted = Rlimit {
        current: Some(needed.max(limit.current.unwrap_or(0))),
        maximum: Some(hard.max(needed)),
    };
    // With privileges the hard limit can rise, too.
    if setrlimit(Resource::Nofile, wanted).is_ok() {
        return Ok(());
    }
    if hard >= needed {
        let within = Rlimit {
            current: Some(needed),
            maximum: Some(hard),
        };
        if setrlimit(Resource::Nofile, within).is_ok() {
            return Ok(());
        }
    }
    Err(format!(
        "{needed} file descriptors are needed, but the limit is {hard}; run `prlimit --nofile={needed} --pid $$` as root, then repeat in this shell"
    ))
}

impl Https {
    /// Resolves names, reads files and makes requests. No connection is opened yet.
    ///
    /// # Errors
    /// Returns a text that says what cannot be resolved, read or allowed.
    pub fn open(
        plan: &Plan,
        scripts: Vec<Scripts>,
        environment: &Environment,
    ) -> Result<Self, StartError> {
        let part = plan.part(JobKind::Http);
        let files = RequestFolder(environment.base.clone());
        let mut scripts = scripts.into_iter();
        let guard = Guard::of(plan);
        let (mut jobs, mut warnings) = (Vec::new(), Vec::new());
        for job in &part.http_jobs {
            let wrong = |what: String| StartError::stream(job.name.clone(), what);
            let mut place = server(job).map_err(wrong)?;
            if let HttpDestination::Addresses(all) = &mut place {
                guard.servers(all).map_err(wrong)?;
                warnings.extend(leave_out(job, all));
            }
            let addresses = match &place {
                HttpDestination::Addresses(all) => all.iter().map(ToString::to_string).collect(),
                HttpDestination::Unix(path) => vec![path.clone()],
            };
            let scripts = scripts.next().unwrap_or_default();
            if job.script.is_some() && scripts.len() != job.threads as usize {
                return Err(wrong(
                    "the job has a script; only `wirebench wrk` runs scripts".to_owned(),
                ));
            }
            jobs.push(Job {
                load: Arc::new(HttpLoad::new(job, place, plan.seed, &files).map_err(wrong)?),
                addresses,
                controls: (0..job.threads).map(|_| Arc::default()).collect(),
                scripts,
            });
        }
        let connections: u64 = part
            .http_jobs
            .iter()
            .map(|j| u64::from(j.connections))
            .sum();
        if let Err(what) = allow_descriptors(connections + DESCRIPTORS)
            && !part.http_jobs.iter().any(|j| j.as_wrk)
        {
            return Err(StartError::stream("http", what));
        }
        Ok(Self {
            plan: part,
            jobs,
            workers: Workers::new(&Arc::default()),
            starts: Vec::new(),
            repeated_syns: None,
            last: Moment::default(),
            asked: LastOutlineRequest::default(),
            outcomes: Vec::new(),
            warnings,
        })
    }

    fn controls(&self) -> impl Iterator<Item = &Arc<HttpThreadControl>> {
        self.jobs.iter().flat_map(|job| &job.controls)
    }

    fn live(&self) -> LiveHttpState {
        sum_of(self.controls().map(|control| control.live()))
    }
}

fn sum_of(threads: impl Iterator<Item = LiveHttpState>) -> LiveHttpState {
    threads.fold(LiveHttpState::default(), |a, b| LiveHttpState {
        totals: a.totals + b.totals,
        latency_ns: a.latency_ns + b.latency_ns,
        answers: a.answers + b.answers,
        draining: a.draining || b.draining,
    })
}

/// Records the totals so far, and the number and sum of the response times.
#[allow(clippy::cast_precision_loss)]
pub fn record(row: &mut Row<'_>, totals: &HttpTotals, times: (u64, u64)) {
    for (name, unit, n) in [
        ("sent", "requests", totals.sent),
        ("completed", "requests", totals.completed),
        ("unsent", "requests", totals.unsent),
        ("error_responses", "responses", totals.error_responses),
        (
            "established_connections",
            "connections",
            totals.established_connections,
        ),
        ("received_bytes", "octets", totals.received_bytes),
        ("sent_bytes", "octets", totals.sent_bytes),
        ("latency_samples", "requests", times.0),
        ("latency_sum_ns", "ns", times.1),
    ] {
        row.counter("http", name, unit, n);
    }
    let refused = &totals.refused_connections;
    for (cause, n) in totals.failed.by_cause().into_iter().filter(|(_, n)| *n > 0) {
        row.counter("http", &format!("failed_{cause}"), "requests", n);
    }
    for (cause, n) in refused.by_cause().into_iter().filter(|(_, n)| *n > 0) {
        row.counter("http", &format!("no_connection_{cause}"), "connections", n);
    }
    row.level(
        "http",
        "open_connections",
        "connections",
        totals.open_connections as f64,
    );
    row.level("http", "in_flight", "requests", totals.in_flight as f64);
}

/// State at a time in ns: the totals so far, and the number and sum of the response times.
pub type Moment = (u64, HttpTotals, (u64, u64));

/// Adds the figures of the interval since the last view, and the progress of the jobs, to a snapshot.
pub fn show(snapshot: &mut Snapshot, jobs: &[HttpJob], last: &mut Moment, now: Moment) {
    let http = between(std::mem::replace(last, now), now);
    snapshot.progress = progress(jobs, &now.1, snapshot.elapsed_ns);
    snapshot.latency_mean_ns = http.latency_mean_ns;
    snapshot.http = Some(http);
}

/// Part of the time of jobs that end by time, or else of the requests of jobs that end by a count: 0 to 1. `None` if a
/// job has neither end.
#[allow(clippy::cast_precision_loss)]
fn progress(jobs: &[HttpJob], totals: &HttpTotals, elapsed_ns: u64) -> Option<f64> {
    let ends = jobs.iter().map(|job| job.ends_after());
    let ends: Option<Vec<u64>> = ends.map(|end| end.map(Span::as_nanos)).collect();
    let (done, whole) = match ends {
        Some(ends) => (elapsed_ns, ends.into_iter().max()?),
        None => {
            let requests = jobs.iter().map(|job| job.amount).sum::<Option<u64>>()?;
            (totals.completed + totals.failed.sum(), requests)
        }
    };
    Some((done as f64 / whole.max(1) as f64).min(1.0))
}

/// Figures of the interval between two times.
#[allow(clippy::cast_precision_loss)]
fn between(from: Moment, to: Moment) -> HttpLive {
    let seconds = to.0.saturating_sub(from.0) as f64 / 1e9;
    let rate = |n: u64| match seconds > 0.0 {
        true => n as f64 / seconds,
        false => 0.0,
    };
    let answers = to.2.0 - from.2.0;
    HttpLive {
        requests_per_second: rate(answers),
        connections_per_second: rate(to.1.established_connections - from.1.established_connections),
        received_bps: rate(to.1.received_bytes - from.1.received_bytes) * 8.0,
        latency_mean_ns: (answers > 0)
            .then(|| to.2.1.wrapping_sub(from.2.1) as f64 / answers as f64),
        totals: to.1,
    }
}

impl Engine for Https {
    fn kind(&self) -> JobKind {
        JobKind::Http
    }

    fn ports(&self) -> &[OpenPort] {
        &[]
    }

    fn only_listens(&self) -> bool {
        false
    }

    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        self.workers = Workers::new(launch.alarm);
        for job in &mut self.jobs {
            let mut scripts = std::mem::take(&mut job.scripts).into_iter();
            for (index, control) in (0_u32..).zip(&job.controls) {
                let (start, started) = channel();
                let (load, control) = (Arc::clone(&job.load), Arc::clone(control));
                let script = scripts.next();
                let work = move || {
                    // If nothing is received, the thread that starts the run is gone.
                    let start_ns = started.recv().unwrap_or_else(|_| {
                        control.stop();
                        u64::MAX
                    });
                    let task = ThreadTask {
                        index,
                        start_ns,
                        script,
                        control,
                    };
                    crate::run(&load, task)
                };
                // Plain threads without raised priority: servers on the same machine need the CPU as well.
                let spawned = self.workers.spawn_plain(format!("wb-http-{index}"), work);
                self.starts.push(start);
                if let Err(why) = spawned {
                    self.starts.clear();
                    self.workers.join();
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, start_ns: u64) {
        self.repeated_syns = wb_machine::counters::repeated_syns();
        self.last.0 = start_ns;
        for start in self.starts.drain(..) {
            // The worker waits for this message.
            let _ = start.send(start_ns);
        }
    }

    fn stop(&mut self, how: Stop) {
        self.starts.clear();
        for control in self.controls() {
            match how {
                Stop::Drain => control.drain(),
                Stop::Now => control.stop(),
            }
        }
    }

    fn state(&mut self, now: u64) -> EngineState {
        if self.asked.is_due(now) {
            self.controls().for_each(|c| c.latency.ask());
        }
        match self.workers.all_over() {
            true => EngineState::Over,
            false if self.controls().all(|c| c.live().draining) => EngineState::Draining,
            false => EngineState::Running,
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn fill(&self, part: &mut Part<'_>) {
        let jobs = self.plan.http_jobs.iter().zip(&self.jobs);
        let jobs = jobs.map(|(plan, job)| {
            let live = sum_of(job.controls.iter().map(|control| control.live()));
            let mean = live.latency_ns as f64 / live.answers as f64;
            let latency = Summary {
                samples: live.answers,
                mean: (live.answers > 0).then_some(mean),
                ..Summary::default()
            };
            HttpJobReport {
                addresses: job.addresses.clone(),
                ..report::so_far(plan, live.totals, latency)
            }
        });
        part.report.http = Some(HttpReport {
            jobs: jobs.collect(),
            ..HttpReport::default()
        });
    }

    fn show(&mut self, snapshot: &mut Snapshot, now_ns: u64) {
        let live = self.live();
        let now = (now_ns, live.totals, (live.answers, live.latency_ns));
        show(snapshot, &self.plan.http_jobs, &mut self.last, now);
        snapshot.phase = match live.draining {
            true => Phase::Drain,
            false => Phase::Running,
        };
    }

    fn record(&self, row: &mut Row<'_>) {
        let live = self.live();
        record(row, &live.totals, (live.answers, live.latency_ns));
        for control in self.controls() {
            row.times("http", "latency", &control.latency.read());
        }
    }

    fn join(&mut self) -> Option<String> {
        self.outcomes = self.workers.join();
        let broken = self.outcomes.iter().any(Option::is_none);
        let error = self.outcomes.iter().flatten().find_map(|o| o.error.clone());
        match broken {
            true => Some("an HTTP thread panicked; its counts are missing".to_owned()),
            false => error,
        }
    }

    fn settle(&mut self, part: &mut Part<'_>, ended: &Ended) -> Outcome {
        let mut outcomes = std::mem::take(&mut self.outcomes).into_iter();
        let by_job: Vec<Vec<HttpThreadOutcome>> = self
            .jobs
            .iter()
            .map(|job| {
                outcomes
                    .by_ref()
                    .take(job.controls.len())
                    .flatten()
                    .collect()
            })
            .collect();
        let facts: Vec<HttpJobFacts> = self
            .jobs
            .iter()
            .map(|job| HttpJobFacts {
                addresses: job.addresses.clone(),
                names: job.load.request_names().map(str::to_owned).collect(),
                connections: (0..)
                    .take(job.controls.len())
                    .map(|thread| job.load.connections_of_thread(thread))
                    .collect(),
                via: Via::Sockets,
            })
            .collect();
        let mut outcome = report::settle(&self.plan, &facts, by_job, part, ended);
        let syns = self
            .repeated_syns
            .zip(wb_machine::counters::repeated_syns());
        let syns = syns.map(|(before, after)| after.saturating_sub(before));
        if let Some(report) = &mut part.report.http {
            report.repeated_syns = syns;
        }
        if let Some(n @ 1..) = syns {
            outcome.warnings.push(format!(
                "{} in this network namespace: SYNs were lost, or the server still had the previous connection of the port; connect times include the wait",
                counted(n, "SYN retransmit", "SYN retransmits")
            ));
        }
        outcome.warnings.splice(0..0, self.warnings.drain(..));
        outcome
    }
}

/// Sums the totals.
pub fn sum(totals: impl Iterator<Item = HttpTotals>) -> HttpTotals {
    totals.fold(HttpTotals::default(), |a, b| a + b)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn progress_follows_the_time_or_the_requests() {
        let by_time = |seconds| HttpJob {
            duration: Some(Span::from_secs(seconds)),
            ..HttpJob::default()
        };
        let by_count = |amount| HttpJob {
            amount: Some(amount),
            ..HttpJob::default()
        };
        let done = HttpTotals {
            completed: 30,
            ..HttpTotals::default()
        };
        let after = |jobs: &[HttpJob]| progress(jobs, &done, 2_000_000_000);
        assert_eq!(after(&[by_time(4), by_time(8)]), Some(0.25));
        assert_eq!(after(&[by_time(1)]), Some(1.0));
        assert_eq!(after(&[by_count(20), by_count(40)]), Some(0.5));
        // Neither all times nor all counts are known.
        assert_eq!(after(&[by_time(4), by_count(40)]), None);
        assert_eq!(after(&[HttpJob::default()]), None);
    }

    #[test]
    fn link_local_addresses_need_their_interface() {
        let of = |url: &str, connect_to: &[&str]| {
            server(&HttpJob {
                url: url.to_owned(),
                connect_to: connect_to.iter().map(|a| a.parse().unwrap()).collect(),
                ..HttpJob::default()
            })
        };
        for why in [
            of("http://[fe80::1]/", &[]),
            of("http://[fe80::1]/", &["[fe80::2%1]:0", "[fe80::1]:0"]),
        ] {
            assert!(why.unwrap_err().contains("[fe80::1%INTERFACE]"));
        }
        // The loopback interface is the first of every namespace.
        for zoned in [
            of("http://[fe80::1%lo]/", &[]),
            of("http://[fe80::1%25lo]/", &[]),
            of("http://[fe80::2]/", &["[fe80::1%1]:0"]),
            of("http://[fe80::2]/", &["[fe80::1%lo]:0"]),
            of("http://[fe80::2]/", &["[fe80::1%25lo]:80"]),
        ] {
            let Ok(HttpDestination::Addresses(found)) = zoned else {
                panic!("no addresses");
            };
            assert_eq!(found, ["[fe80::1%1]:80".parse().unwrap()]);
        }
    }

    #[test]
    fn an_address_that_refuses_is_left_out_if_another_does_not() {
        let there = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = there.local_addr().map(|address| (there, address));
        let (_there, open) = there.unwrap();
        let gone = TcpListener::bind("127.0.0.2:0").unwrap();
        let refuses = gone.local_addr().unwrap();
        drop(gone);
        let job = HttpJob {
            name: "web".to_owned(),
            ..HttpJob::default()
        };
        let mut addresses = vec![refuses, open];
        let warnings = leave_out(&job, &mut addresses);
        assert_eq!(addresses, [open]);
        assert!(
            warnings.len() == 1 && warnings[0].starts_with(&format!("web: {refuses} is not used")),
            "{warnings:?}"
        );
        for (job, all) in [
            (job.clone(), vec![refuses]),
            (
                HttpJob {
                    connect_to: [refuses, open].map(Into::into).into(),
                    ..job
                },
                vec![refuses, open],
            ),
        ] {
            let mut kept = all.clone();
            assert!(leave_out(&job, &mut kept).is_empty());
            assert_eq!(kept, all);
        }
    }
}
