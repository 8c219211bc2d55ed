//! Validation of a plan: finds all its problems at once, before the run starts.
//!
//! It knows only the plan. The session checks properties of the host (MTU, line rate, routes) later.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Component, Path, PathBuf},
};

use crate::{
    capture::{CaptureJob, Direction},
    counted,
    device::DeviceConfig,
    kinds::JobKind,
    plan::{Extension, Plan, Proto, Stream, TagKind, TrafficJob},
    stream::{MAX_FLOWS, PAST_LAST_FLOW},
    text::is_unprintable,
    units::{Rate, SizeModel, Span},
    vary::{Field, Vary},
};

/// Problem of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanProblem {
    /// Place: `traffic 1, stream 2, size`.
    pub place: String,
    /// Problem, and the allowed values.
    pub what: String,
}

impl fmt::Display for PlanProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl PlanProblem {
    /// Returns `load`, `2` and `, vlan` for a problem of one of several jobs.
    fn parts(&self) -> Option<(&str, &str, &str)> {
        let (job, rest) = self.place.split_once(' ')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(digits);
        (digits > 0 && (rest.is_empty() || rest.starts_with(", "))).then_some((job, number, rest))
    }

    /// Returns true if this is the same problem of another job.
    fn is_like(&self, other: &Self) -> bool {
        let but_number = |problem: &Self| {
            let parts = problem.parts();
            parts.map(|(job, _, rest)| format!("{job}{rest}"))
        };
        self.what == other.what
            && but_number(self).is_some_and(|own| but_number(other) == Some(own))
    }
}

/// Returns true for more than two consecutive numbers.
fn span(numbers: &[&str]) -> bool {
    let numbers: Vec<u64> = numbers.iter().filter_map(|n| n.parse().ok()).collect();
    numbers.len() > 2 && numbers.windows(2).all(|two| two[1] == two[0] + 1)
}

/// All problems of a plan, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub Vec<PlanProblem>);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(&PlanProblem, Vec<&str>)> = Vec::new();
        for problem in &self.0 {
            let number = problem.parts().map(|(_, number, _)| number);
            // Options apply to both ends of a load, and to all rows of a sweep: one line is enough.
            match lines.iter_mut().find(|(first, _)| first.is_like(problem)) {
                Some((_, numbers)) => numbers.extend(number),
                None => lines.push((problem, Vec::from_iter(number))),
            }
        }
        for (i, (problem, numbers)) in lines.iter().enumerate() {
            let end = if i == 0 { "" } else { "\n" };
            match (problem.parts(), &numbers[..]) {
                (Some((job, _, rest)), [first, .., last]) => {
                    let which = match span(numbers) {
                        true => format!("{first} to {last}"),
                        false => numbers.join(" and "),
                    };
                    write!(f, "{end}{job} {which}{rest}: {}", problem.what)?;
                }
                _ => write!(f, "{end}{problem}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for PlanError {}

/// Warnings about a valid plan.
pub type PlanWarnings = Vec<String>;

#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<PlanProblem>,
    warnings: PlanWarnings,
}

impl Findings {
    pub(crate) fn problem(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.problems.push(PlanProblem {
            place: place.into(),
            what: what.into(),
        });
    }

    /// Adds the problems of a part; their places are its keys.
    pub(crate) fn within(&mut self, part: &str, problems: Vec<PlanProblem>) {
        let problems = problems.into_iter().map(|problem| PlanProblem {
            place: format!("{part}, {}", problem.place),
            what: problem.what,
        });
        self.problems.extend(problems);
    }
}

/// Rules, in the order of their messages. Each has the condition that breaks it, the place, and a message with its
/// arguments: the problem and the allowed values.
macro_rules! rules {
    ($found:ident: $($broken:expr => $place:expr, $what:literal $(, $argument:expr)*;)*) => {
        $(if $broken {
            $found.problem($place, format!($what $(, $argument)*));
        })*
    };
}

pub(crate) use rules;

impl Plan {
    /// Checks the whole plan.
    ///
    /// # Errors
    /// Returns all problems, not only the first.
    pub fn validate(&self) -> Result<PlanWarnings, PlanError> {
        if let Some(suite) = self.suite() {
            return self.validate_suite(suite);
        }
        let mut found = Findings::default();
        self.check_ports(&mut found);
        self.check_names(&mut found);
        rules! { found:
            self.kinds().next().is_none() =>
                "plan", "the plan has no job; add one, such as [[traffic]]";
            !self.sockets.is_empty() && self.socket_server.is_some() =>
                "plan", "[[socket]] and [socket_server] exclude each other; use two plans";
            self.lb().is_some() && (!self.ports.is_empty() || self.trial().kinds().next().is_some()) =>
                "plan", "a benchmark creates its ports and jobs; remove [[port]] and all jobs";
        }
        if let Some(plan) = self.lb() {
            plan.check(self.i_own_this_network, &mut found);
        }
        self.carried().check_sharing(&mut found);
        for (n, probe) in self.probes.iter().enumerate() {
            crate::bench::check_probe(probe, &format!("probe {}", n + 1), &mut found);
        }
        self.check_sockets(&mut found);
        self.check_https(&mut found);
        self.check_criteria(&mut found);
        self.check_flow_numbers(&mut found);
        self.check_job_hosts(&mut found);
        self.check_loads(&mut found);
        self.check_devices(&mut found);
        self.check_rings(&mut found);
        self.check_captures(&mut found);
        rules! { found:
            !(Span::from_millis(100)..=Span::from_secs(60)).contains(&self.interval) =>
                "interval", "must be between 100ms and 1m, got {}", self.interval;
        }
        for (i, job) in self.traffic.iter().enumerate() {
            let place = if self.traffic.len() == 1 {
                "traffic".to_owned()
            } else {
                format!("traffic {}", i + 1)
            };
            self.check_job(&place, job, &mut found);
        }
        let total: u64 = self
            .traffic
            .iter()
            .flat_map(|j| {
                j.streams
                    .iter()
                    .map(move |s| u64::from(s.flow_count()) * if j.bidir { 2 } else { 1 })
            })
            .sum();
        rules! { found:
            total > u64::from(MAX_FLOWS) => "plan", "the streams have {total} flows together; at most {MAX_FLOWS} are allowed";
            self.first_flow.is_some() && self.traffic.is_empty() =>
                "first_flow", "needs a [[traffic]] job with streams; only their flows are numbered";
            self.first_flow.is_some() && self.procedure.is_some() =>
                "first_flow", "cannot be set in a benchmark; each trial has its first flow";
            self.first_flow.is_some_and(|first| u64::from(first) + total.max(1) > u64::from(PAST_LAST_FLOW)) =>
                "first_flow", "too high for {}: the highest flow number is {}",
                counted(total, "flow", "flows"), PAST_LAST_FLOW - 1;
        }
        if found.problems.is_empty() {
            Ok(found.warnings)
        } else {
            Err(PlanError(found.problems))
        }
    }

    /// Checks names, which are written unchanged to terminals and to files with one name per line.
    fn check_names(&self, found: &mut Findings) {
        fn numbered<'a>(
            word: &'static str,
            names: impl Iterator<Item = &'a str>,
        ) -> impl Iterator<Item = (String, &'a str)> {
            (1..)
                .zip(names)
                .map(move |(n, name)| (format!("{word} {n}"), name))
        }
        let streams = (1..).zip(&self.traffic).flat_map(|(job, traffic)| {
            let streams = (1..).zip(&traffic.streams);
            streams.map(move |(n, s)| (format!("traffic {job}, stream {n}"), s.name.as_str()))
        });
        let jobs = JobKind::ALL.into_iter().flat_map(|kind| {
            let word = match kind {
                JobKind::Devices => "device",
                _ => kind.name(),
            };
            numbered(word, self.names(kind).into_iter())
        });
        let names = numbered("port", self.ports.iter().map(|p| p.name.as_str()))
            .chain(jobs)
            .chain(streams)
            .chain(
                self.lb()
                    .map(|lb| ("device".to_owned(), lb.device.name.as_str())),
            );
        for (place, name) in names.filter(|(_, name)| name.contains(is_unprintable)) {
            found.problem(
                place,
                format!("the name {name:?} has a control character; use letters, digits, spaces and punctuation"),
            );
        }
    }

    fn check_ports(&self, found: &mut Findings) {
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        for port in &self.ports {
            let place = port.title();
            if port.name.is_empty() {
                found.problem("port", "missing name");
            } else if !names.insert(port.name.as_str()) {
                found.problem(&place, "duplicate name");
            }
            // Frames with different send paths may leave through the same interface.
            let host = port.locator.host.as_deref();
            let way = (host, port.locator.place(), port.way as u8, port.priority);
            rules! { found:
                port.locator.is_interface() && !places.insert(way) =>
                    &place, "another port of this plan has the same interface, {}", port.locator.place();
                !(1..=64).contains(&port.workers) =>
                    &place, "workers must be between 1 and 64, got {}", port.workers;
                !port.cpus.is_empty() && port.cpus.len() != port.workers as usize =>
                    &place, "give one CPU per worker ({}), got {}", port.workers, port.cpus.len();
            }
        }
    }

    /// Checks the ring parameters of capture ports; other ports have no such parameters.
    fn check_rings(&self, found: &mut Findings) {
        const RING: std::ops::RangeInclusive<u32> = 64..=1 << 20;
        for port in &self.ports {
            let place = port.title();
            let block = port.block_bytes;
            if block != 0 {
                if !block.is_power_of_two() || block < 4096 {
                    found.problem(
                        &place,
                        format!("block_bytes must be a power of two, at least 4096, got {block}"),
                    );
                } else if port.ring_bytes != 0 && block > port.ring_bytes / 2 {
                    found.problem(
                        &place,
                        format!(
                            "block_bytes must be at most half of ring_bytes: got {block} of {}",
                            port.ring_bytes
                        ),
                    );
                }
            }
            for (key, slots) in [("xdp_ring", port.xdp_ring), ("xdp_fill", port.xdp_fill)] {
                rules! { found:
                    slots != 0 && (!slots.is_power_of_two() || !RING.contains(&slots)) =>
                        &place, "{key} must be a power of two between {} and {}, got {slots}", RING.start(), RING.end();
                }
            }
            rules! { found:
                ![0, 2048, 4096].contains(&port.xdp_chunk) =>
                    &place, "xdp_chunk must be 2048 or 4096, got {}", port.xdp_chunk;
            }
            let by_xdp = port.locator.driver == Some(crate::Driver::Xdp);
            let for_xdp = !port.queues.is_empty()
                || port.xdp_ring != 0
                || port.xdp_fill != 0
                || port.xdp_chunk != 0;
            rules! { found:
                for_xdp && !by_xdp =>
                    &place,
                    "queues, xdp_ring, xdp_fill and xdp_chunk need the xdp driver; write the locator as xdp:IF";
                block != 0 && by_xdp => &place, "block_bytes does not apply to the xdp driver; use xdp_ring";
                (1..port.queues.len()).any(|i| port.queues[..i].contains(&port.queues[i])) =>
                    &place, "duplicate receive queue";
                port.queues.len() > 64 => &place, "at most 64 receive queues are allowed, got {}", port.queues.len();
            }
        }
    }

    /// Returns true if streams or loads send at a port.
    fn sends_at(&self, port: &str) -> bool {
        let is = |name: &Option<String>| name.as_deref() == Some(port);
        let sends = |job: &TrafficJob| is(&job.tx) || job.bidir && is(&job.rx);
        self.traffic.iter().any(sends)
            || self.loads.iter().any(|load| load.port == port)
            || self
                .http_jobs
                .iter()
                .any(|job| job.port.as_deref() == Some(port))
    }

    fn check_captures(&self, found: &mut Findings) {
        let several = self.captures.len() > 1;
        for (number, job) in self.captures.iter().enumerate() {
            let others = &self.captures[..number];
            // `./a` is `a`; links are resolved when the files are opened.
            let path = |job: &CaptureJob| {
                let output = job.output.as_ref()?;
                let parts = Path::new(&output.path).components();
                let parts = parts.filter(|part| *part != Component::CurDir);
                Some(parts.collect::<PathBuf>())
            };
            rules! { found:
                !job.name.is_empty() && others.iter().any(|other| other.name == job.name) =>
                    "capture", "two captures have the name {:?}", job.name;
                path(job).is_some() && others.iter().any(|other| path(other) == path(job)) =>
                    "capture", "two captures write to {:?}", path(job).unwrap_or_default();
                several && job.user.is_some() =>
                    "capture", "user applies to the whole process and cannot be set with several captures; start wirebench as that user";
            }
            rules! { found: job.ports.is_empty() => "capture", "ports is empty; give at least one port"; }
            // These frames bypass the queueing disciplines and therefore the taps.
            if let Some(port) = job.ports.iter().find(|port| self.sends_at(port))
                && job.direction != Direction::In
            {
                found.warnings.push(format!(
                    "the capture does not include frames that this plan sends at {port}: they bypass the kernel's taps; capture at the receiving port"
                ));
            }
            for (i, name) in job.ports.iter().enumerate() {
                rules! { found:
                    !self.ports.iter().any(|p| p.name == *name) => "capture", "unknown port {name:?}";
                    job.ports[..i].contains(name) => "capture", "duplicate port {name:?}";
                }
            }
            rules! { found:
                !(1..=262_144).contains(&job.snap_len) =>
                    "capture", "snap_len must be between 1 and 262144, got {}", job.snap_len;
                job.count == Some(0) => "capture", "count must be at least 1, got 0";
                job.duration.is_some_and(|d| d == Span::default()) => "capture", "duration must be above 0";
                !(Span::from_millis(1)..=Span::from_secs(1)).contains(&job.block_timeout) =>
                    "capture", "block_timeout must be between 1ms and 1s, got {}", job.block_timeout;
                job.user.is_some() && (job.offloads_off || job.realtime) =>
                    "capture",
                    "user and offloads_off or realtime exclude each other: that user has no privileges to restore the settings";
            }
            let Some(output) = &job.output else { continue };
            rules! { found:
                output.path.is_empty() => "capture", "output.path is empty; give a path, or - for standard output";
                !output.buffer_bytes.is_power_of_two()
                    || !(64 << 10..=16 << 20).contains(&output.buffer_bytes) =>
                    "capture", "output.buffer_bytes must be a power of two between 64 KiB and 16 MiB, got {}",
                    output.buffer_bytes;
                !(2..=4096).contains(&output.buffers) =>
                    "capture", "output.buffers must be between 2 and 4096, got {}", output.buffers;
            }
            let rotates =
                output.rotate_bytes > 0 || output.rotate_frames > 0 || output.rotate_time.is_some();
            rules! { found:
                output.path == "-" && rotates => "capture", "output.path - (standard output) cannot be rotated; give a file";
                output.path == "-" && (output.part || output.command.is_some()) =>
                    "capture",
                    "output.path - (standard output) excludes part and command; give a file";
                output.command.as_ref().is_some_and(String::is_empty) =>
                    "capture", "output.command is empty; give a program";
                output.files > 0 && !rotates =>
                    "capture",
                    "output.files needs rotate_bytes, rotate_time or rotate_frames";
                output.file_limit > 0 && !rotates =>
                    "capture",
                    "output.file_limit needs rotate_bytes, rotate_time or rotate_frames";
                output.rotate_aligned && output.rotate_time.is_none() =>
                    "capture", "output.rotate_aligned needs rotate_time";
                output.rotate_time.is_some_and(|t| t < Span::from_millis(1)) =>
                    "capture", "output.rotate_time must be at least 1ms";
            }
        }
    }

    fn check_sockets(&self, found: &mut Findings) {
        for (i, job) in self.sockets.iter().enumerate() {
            match self.sockets.len() {
                1 => found.within("socket", job.problems()),
                _ => found.within(&format!("socket {}", i + 1), job.problems()),
            }
        }
        if let Some(server) = &self.socket_server {
            found.within("socket_server", server.problems());
        }
    }

    fn check_https(&self, found: &mut Findings) {
        for (i, job) in self.http_jobs.iter().enumerate() {
            let place = match self.http_jobs.len() {
                1 => "http".to_owned(),
                _ => format!("http {}", i + 1),
            };
            found.within(&place, job.problems());
        }
        self.check_carried(found);
    }

    fn check_loads(&self, found: &mut Findings) {
        for (i, job) in self.loads.iter().enumerate() {
            let place = match self.loads.len() {
                1 => "load".to_owned(),
                _ => format!("load {}", i + 1),
            };
            found.within(&place, job.problems());
            let Some(port) = self.ports.iter().find(|p| p.name == job.port) else {
                rules! { found: !job.port.is_empty() => &place, "unknown port {:?}", job.port; }
                continue;
            };
            let answers = job.worker_answers.len();
            rules! { found:
                answers != 0 && answers != port.workers as usize =>
                    &format!("{place}, worker_answers"),
                    "give one answer per worker of the port ({}), got {answers}", port.workers;
            }
        }
    }

    fn check_devices(&self, found: &mut Findings) {
        let port = |name: &str| self.ports.iter().find(|p| p.name == name);
        for (i, device) in self.devices.iter().enumerate() {
            let place = format!("device {}", i + 1);
            rules! { found:
                port(&device.port).is_none() => &place, "unknown port {:?}", device.port;
                device.settings.name.is_empty() =>
                    &place, "settings.name is empty; give the device a name";
                (1..DeviceConfig::SMALLEST).contains(&device.settings.min_size) =>
                    &place, "settings.min_size must be 0 (the smallest) or at least {}, got {}",
                    DeviceConfig::SMALLEST, device.settings.min_size;
            }
            let settings = &device.settings;
            for (what, value, most) in [
                ("labels", settings.labels.len(), DeviceConfig::MAX_LABELS),
                ("imix", settings.imix.len(), crate::device::mix::MAX_ENTRIES),
                (
                    "flows",
                    settings.flows as usize,
                    DeviceConfig::MAX_FLOWS as usize,
                ),
            ] {
                rules! { found:
                    value > most => &place, "settings.{what}: at most {most} are allowed, got {value}";
                }
            }
        }
        for (i, watch) in self.watches.iter().enumerate() {
            let place = format!("watch {}", i + 1);
            rules! { found:
                port(&watch.port).is_none() => &place, "unknown port {:?}", watch.port;
                self.devices.iter().any(|d| d.port == watch.port) =>
                    &place, "port {:?} is a sending port; watch at another port", watch.port;
                self.watches[..i].iter().any(|w| w.port == watch.port) =>
                    &place, "port {:?} has two watches", watch.port;
                watch.duration.is_some_and(|d| d == Span::default()) => &place, "duration must be above 0";
            }
        }
    }

    /// Checks the numbers of the jobs' first flows.
    fn check_flow_numbers(&self, found: &mut Findings) {
        let sending = || self.traffic.iter().filter(|job| job.tx.is_some());
        if sending().all(|job| job.first_flow.is_none()) {
            return;
        }
        let directions = self.directions(0).into_iter();
        let sent = directions.filter(|way| way.tx.is_some());
        let mut ranges: Vec<(u64, u64)> = sent
            .map(|way| {
                let flows = way.streams.iter().map(|(_, flows)| u64::from(*flows));
                (u64::from(way.first_flow), flows.sum())
            })
            .collect();
        ranges.sort_unstable();
        let end = |(first, flows): &(u64, u64)| first + flows;
        rules! { found:
            sending().any(|job| job.first_flow.is_none()) =>
                "traffic", "first_flow is set in some of the jobs that send; set it in all or in none";
            self.first_flow.is_none_or(|first| ranges.iter().any(|(own, _)| *own < u64::from(first))) =>
                "traffic", "first_flow of a job that sends needs first_flow of the plan, which must not be higher";
            ranges.windows(2).any(|pair| end(&pair[0]) > pair[1].0) =>
                "traffic", "first_flow: two jobs have the same flow numbers";
            ranges.iter().any(|range| end(range) > u64::from(PAST_LAST_FLOW)) =>
                "traffic", "first_flow is too high: the highest flow number is {}", PAST_LAST_FLOW - 1;
        }
    }

    fn check_job(&self, place: &str, job: &TrafficJob, found: &mut Findings) {
        for (end, name) in [("tx", &job.tx), ("rx", &job.rx)] {
            if let Some(name) = name
                && !self.ports.iter().any(|p| p.name == *name)
            {
                found.problem(format!("{place}, {end}"), format!("unknown port {name:?}"));
            }
        }
        match (&job.tx, &job.rx) {
            (None, None) => found.problem(place, "missing tx or rx"),
            (Some(_), _) if job.streams.is_empty() => {
                found.problem(place, "a job with tx needs at least one stream")
            }
            (None, Some(_)) if !job.streams.is_empty() => {
                found.problem(place, "streams need tx; add tx, or remove the streams");
            }
            _ => {}
        }
        rules! { found:
            job.bidir && (job.tx.is_none() || job.rx.is_none()) => place, "bidir needs tx and rx";
            job.tx.is_some() && job.flows.is_some() => place, "flows and tx exclude each other; set flows in the streams";
            job.flows.is_some_and(|n| !(1..=1 << 24).contains(&n)) => place, "flows must be between 1 and 16777216, got {}", job.flows.unwrap_or_default();
            job.tx.is_some() && job.count == Some(0) => place, "count must be at least 1, got 0";
            job.duration.is_some_and(|d| d == Span::default()) => place, "duration must be above 0";
            !(0.01..=100.0).contains(&job.hold_load) => place, "hold_load must be between 0.01 and 100, got {}", job.hold_load;
            job.outage_threshold > Span::from_secs(3600) =>
                place, "outage_threshold must be at most 1h, got {}", job.outage_threshold;
            job.drain > Span::from_secs(60) => place, "drain must be at most 1m, got {}", job.drain;
        }
        for (i, stream) in job.streams.iter().enumerate() {
            let place = if job.streams.len() == 1 {
                if self.kind == "run" {
                    format!("{place}, stream")
                } else {
                    "stream".to_owned()
                }
            } else {
                format!("{place}, stream {}", i + 1)
            };
            check_stream(&place, stream, found);
        }
    }
}

fn check_stream(place: &str, stream: &Stream, found: &mut Findings) {
    let at = |key: &str| format!("{place}, {key}");
    if let (Some(src), Some(dst)) = (&stream.src, &stream.dst)
        && src.is_ipv6() != dst.is_ipv6()
    {
        found.problem(place, "src and dst have different IP versions");
    }
    rules! { found:
        stream.ipv6 && !stream.is_ipv6() => place, "ipv6 is set but the addresses are IPv4";
        stream.proto == Proto::Arp && stream.is_ipv6() => place, "proto arp needs IPv4 addresses";
        stream.proto == Proto::Raw && (stream.src.is_some() || stream.dst.is_some() || stream.ipv6) =>
            place, "proto raw has no IP header; remove src, dst and ipv6";
        stream.proto == Proto::Raw && (stream.sport.is_some() || stream.dport.is_some()) =>
            place, "proto raw has no ports; remove sport and dport";
        stream.proto == Proto::Arp && (stream.sport.is_some() || stream.dport.is_some()) =>
            place, "proto arp has no ports; remove sport and dport";
    }
    rules! { found:
        stream.headers.is_some() && stream.proto != Proto::Raw =>
            &at("headers"), "headers need proto raw";
        !stream.bad_checksums.is_empty() && stream.headers.is_none() =>
            &at("bad_checksums"), "bad_checksums need headers, which have these checksums";
        stream.count == Some(0) => &at("count"), "must be at least 1, got 0";
        stream.count.is_some() && stream.rate == Rate::Max && stream.burst.is_none() =>
            &at("count"), "a stream with a count needs a rate";
        stream.replay.is_some() && (stream.count.is_some() || stream.headers.is_some()) =>
            place, "replay excludes count and headers; use the count of the job";
    }
    check_size(place, stream, found);
    check_rate(place, stream, found);
    match stream.flows {
        Some(flows) if !(1..=MAX_FLOWS).contains(&flows) => {
            found.problem(
                at("flows"),
                format!("must be between 1 and {MAX_FLOWS}, got {flows}"),
            );
        }
        Some(flows) if u128::from(flows) > stream.tuples() => {
            found.problem(
                at("flows"),
                format!(
                    "{flows} flows need as many 5-tuples, and the ranges have {}; widen --src, --dst, --sport or --dport",
                    stream.tuples()
                ),
            );
        }
        _ => {}
    }
    rules! { found:
        stream.vlan.len() > 4 => &at("vlan"), "at most 4 tags are allowed, got {}", stream.vlan.len();
        stream.mpls.len() > 8 => &at("mpls"), "at most 8 labels are allowed, got {}", stream.mpls.len();
    }
    if let Some(label) = stream.mpls.iter().find(|l| **l > 0xf_ffff) {
        found.problem(
            at("mpls"),
            format!("labels must be between 0 and 1048575, got {label}"),
        );
    }
    rules! { found:
        !stream.ext.is_empty() && (!stream.is_ipv6() || matches!(stream.proto, Proto::Arp | Proto::Raw)) =>
            &at("ext"), "extension headers need IPv6; set ipv6 = true";
        stream.ext.iter().skip(1).any(|e| *e == Extension::HopByHop) =>
            &at("ext"), "hop-by-hop must be the first header (RFC 8200 section 4.1)";
        (1..stream.ext.len()).any(|n| stream.ext[..n].contains(&stream.ext[n])) => &at("ext"), "duplicate header";
        !stream.mpls.is_empty() && stream.proto == Proto::Arp => &at("mpls"), "proto arp and MPLS labels exclude each other";
    }
    for vary in &stream.vary {
        check_vary(place, stream, vary, found);
    }
    if let Some(speed) = stream.speed
        && (!speed.is_finite() || speed <= 0.0)
    {
        found.problem(at("speed"), format!("must be above 0, got {speed}"));
    }
    rules! { found:
        stream.speed.is_some() && stream.replay.is_none() =>
            &at("speed"), "speed needs a replay; use --rate";
    }
}

fn check_vary(place: &str, stream: &Stream, vary: &Vary, found: &mut Findings) {
    let at = format!("{place}, vary {}", vary.field);
    let ip = !matches!(stream.proto, Proto::Arp | Proto::Raw);
    let exists = match vary.field {
        Field::DstMac | Field::SrcMac => true,
        Field::Vlan(n) => usize::from(n) < stream.vlan.len(),
        Field::Mpls(n) => usize::from(n) < stream.mpls.len(),
        Field::Tos | Field::Ttl => ip,
        Field::Id => ip && !stream.is_ipv6(),
        Field::FlowLabel => ip && stream.is_ipv6(),
        Field::Src | Field::Dst => stream.proto != Proto::Raw,
        Field::Sport | Field::Dport => ip,
        Field::TcpSeq | Field::TcpAck | Field::TcpFlags => stream.proto == Proto::Tcp,
        Field::At { offset, width } => {
            u32::from(offset) + u32::from(width) <= stream.sizes().smallest().get() - 4
        }
    };
    if !exists {
        found.problem(&at, "the frames of the stream have no such field");
    } else if matches!(vary.field, Field::Src | Field::Dst) && vary.ipv6 != stream.is_ipv6() {
        found.problem(&at, "the values and the stream have different IP versions");
    }
    if let Field::At { offset, width } = vary.field {
        let (first, last) = (u32::from(offset), u32::from(offset) + u32::from(width));
        let tag = stream.header_len()..stream.header_len() + stream.tag_len();
        rules! { found:
            first < tag.end && last > tag.start && stream.tag != TagKind::None =>
                &at, "overwrites the test tag at bytes {} to {}; choose other bytes, or tag = \"none\"", tag.start, tag.end - 1;
        }
    }
    rules! { found: stream.replay.is_some() => &at, "vary and replay exclude each other; a replay sends frames unmodified"; }
}

fn check_size(place: &str, stream: &Stream, found: &mut Findings) {
    let least = stream.smallest_size();
    let name = match stream.tag {
        TagKind::None => "the headers",
        _ => "the headers and the test tag",
    };
    match &stream.size {
        Some(SizeModel::Mix(list)) => {
            let small: Vec<String> = list
                .iter()
                .filter(|(s, _)| *s < least)
                .map(|(s, _)| s.to_string())
                .collect();
            if !small.is_empty() {
                found.warnings.push(format!(
                    "{place}: sizes {} of the mix were raised to {least}, the minimum for {name}",
                    small.join(", ")
                ));
            }
        }
        Some(model) if model.smallest() < least => found.problem(
            format!("{place}, size"),
            format!(
                "{} bytes are too small for {name}; the minimum is {least}",
                model.smallest()
            ),
        ),
        _ => {}
    }
}

fn check_rate(place: &str, stream: &Stream, found: &mut Findings) {
    match (stream.burst, stream.gap) {
        (Some(n), Some(gap)) => {
            rules! { found:
                n == 0 || gap == Span::default() =>
                    &format!("{place}, burst"), "burst and gap must be above 0";
                !matches!(stream.rate, Rate::Max | Rate::Pps(_)) =>
                    &format!("{place}, burst"), "the rate of frames in a burst must be in frames per second";
                stream.burst_ns().is_some_and(|ns| ns >= u128::from(gap.as_nanos())) =>
                    &format!("{place}, gap"), "the gap must be longer than a burst at this rate";
            }
        }
        (Some(_), None) => {
            found.problem(format!("{place}, burst"), "a burst needs a gap (--gap 1ms)")
        }
        (None, Some(_)) => {
            found.problem(format!("{place}, gap"), "a gap needs a burst (--burst 32)")
        }
        (None, None) => {}
    }
    if let Some(fps) = stream.frames_per_second(None)
        && fps.as_f64() > 2e9
    {
        found.problem(format!("{place}, rate"), "must be at most 2gpps");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PortPlan;

    fn plan(stream: Stream) -> Plan {
        Plan {
            ports: vec![PortPlan::new("a", "eth0".parse().unwrap())],
            traffic: vec![TrafficJob {
                tx: Some("a".into()),
                streams: vec![stream],
                ..TrafficJob::default()
            }],
            ..Plan::default()
        }
    }

    #[test]
    fn the_default_stream_is_fine() {
        assert_eq!(plan(Stream::default()).validate(), Ok(Vec::new()));
    }

    #[test]
    fn extension_headers_are_for_ipv6_and_in_order() {
        use Extension::{Destination, Fragment, HopByHop, Routing};
        let said = |ipv6, ext: &[Extension]| {
            let stream = Stream {
                ipv6,
                ext: ext.to_vec(),
                ..Stream::default()
            };
            let refused = plan(stream).validate().err();
            refused.map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(said(true, &[HopByHop, Routing, Fragment, Destination]), "");
        assert!(said(false, &[Routing]).contains("need IPv6"));
        assert!(said(true, &[Routing, HopByHop]).contains("must be the first header"));
        assert!(said(true, &[Routing, Routing]).contains("duplicate header"));
    }

    #[test]
    fn raw_frames_have_no_addresses_and_no_ports() {
        let said = |change: fn(&mut Stream)| {
            let mut stream = Stream {
                proto: Proto::Raw,
                ..Stream::default()
            };
            change(&mut stream);
            let refused = plan(stream).validate().err();
            refused.map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(said(|_| ()), "");
        assert!(said(|s| s.src = Some("198.18.1.2".parse().unwrap())).contains("no IP header"));
        assert!(said(|s| s.dst = Some("198.19.1.2".parse().unwrap())).contains("no IP header"));
        assert!(said(|s| s.ipv6 = true).contains("no IP header"));
        assert!(said(|s| s.dport = Some("9".parse().unwrap())).contains("no ports"));
        let arp = said(|s| {
            (s.proto, s.sport) = (Proto::Arp, Some("9".parse().unwrap()));
        });
        assert!(arp.contains("proto arp has no ports"), "{arp}");
    }

    #[test]
    fn what_is_wrong_with_several_jobs_is_told_once() {
        let problem = |place: &str, what: &str| PlanProblem {
            place: place.to_owned(),
            what: what.to_owned(),
        };
        let error = PlanError(vec![
            problem("load 1, vlan", "too high"),
            problem("load 1, rate", "there is none"),
            problem("load 2, vlan", "too high"),
            problem("socket 1, streams", "0"),
            problem("socket 2, streams", "0"),
            problem("socket 3, streams", "0"),
            problem("load 9, vlan", "too high"),
            problem("port a", "too high"),
        ]);
        assert_eq!(
            error.to_string(),
            "load 1 and 2 and 9, vlan: too high\nload 1, rate: there is none\n\
             socket 1 to 3, streams: 0\nport a: too high"
        );
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let bad = plan(Stream {
            size: Some("64".parse().unwrap()),
            proto: Proto::Tcp,
            burst: Some(3),
            flows: Some(0),
            ..Stream::default()
        });
        let problems = bad.validate().unwrap_err();
        assert_eq!(problems.0.len(), 3, "{problems}");
        assert!(problems.to_string().contains("the minimum is 76"));
    }

    #[test]
    fn small_entries_of_a_mix_are_raised_with_a_warning() {
        let mix = plan(Stream {
            size: Some(SizeModel::imix()),
            ipv6: true,
            ..Stream::default()
        });
        let warnings = mix.validate().unwrap();
        assert!(warnings[0].contains("raised to 84"), "{warnings:?}");
    }

    #[test]
    fn names_and_ports_are_checked() {
        let mut p = plan(Stream::default());
        p.ports.push(PortPlan::new("a", "eth0".parse().unwrap()));
        p.traffic[0].rx = Some("zz".into());
        assert_eq!(p.validate().unwrap_err().0.len(), 3);
    }

    #[test]
    fn names_hold_no_control_characters() {
        type Set = fn(&mut Plan, String);
        let set: [(&str, Set); 9] = [
            ("port 1", |p, name| p.ports[0].name = name),
            ("traffic 1", |p, name| p.traffic[0].name = name),
            ("traffic 1, stream 1", |p, name| {
                p.traffic[0].streams[0].name = name
            }),
            ("load 1", |p, name| {
                p.loads = vec![crate::LoadJob {
                    name,
                    ..Default::default()
                }];
            }),
            ("capture 1", |p, name| {
                p.captures = vec![CaptureJob {
                    name,
                    ..Default::default()
                }];
            }),
            ("socket 1", |p, name| {
                p.sockets = vec![crate::socket::SocketJob {
                    name,
                    ..Default::default()
                }];
            }),
            ("http 1", |p, name| {
                p.http_jobs = vec![crate::http::HttpJob {
                    name,
                    ..Default::default()
                }];
            }),
            ("device 1", |p, name| {
                p.devices = vec![crate::device::DeviceJob::default()];
                p.devices[0].settings.name = name;
            }),
            ("probe 1", |p, name| {
                let probe = "[[probe]]\nkind = \"netdev\"\n";
                p.probes = crate::text::plan_from_toml("p", probe).unwrap().probes;
                p.probes[0].name = name;
            }),
        ];
        for (place, set) in set {
            let said = |name: &str| {
                let mut plan = plan(Stream::default());
                set(&mut plan, name.to_owned());
                let problems = plan.validate().err().map_or_else(Vec::new, |e| e.0);
                problems
                    .iter()
                    .any(|p| p.place == place && p.what.contains("control character"))
            };
            assert!(said("a\u{1b}[2J"), "{place}");
            assert!(!said("näme 1"), "{place}");
        }
    }

    #[test]
    fn captures_beside_each_other_and_beside_senders() {
        let capture = |name: &str, path: &str| CaptureJob {
            name: name.to_owned(),
            ports: vec!["a".to_owned()],
            output: Some(crate::capture::CaptureOutput {
                path: path.to_owned(),
                ..Default::default()
            }),
            ..CaptureJob::default()
        };
        let plan = |path: &str, direction| Plan {
            ports: vec![crate::PortPlan::new("a", "n/a".parse().unwrap())],
            captures: vec![
                CaptureJob {
                    direction,
                    ..capture("one", "x.pcap")
                },
                CaptureJob {
                    direction: Direction::In,
                    ..capture("two", path)
                },
            ],
            traffic: vec![TrafficJob {
                tx: Some("a".to_owned()),
                streams: vec![Stream::default()],
                ..TrafficJob::default()
            }],
            ..Plan::default()
        };
        let mut same = plan("y.pcap", Direction::In);
        same.captures[1].name = "one".to_owned();
        let said = same.validate().unwrap_err().to_string();
        assert!(
            said.contains("two captures have the name \"one\""),
            "{said}"
        );
        for path in ["x.pcap", "./x.pcap", ".//x.pcap"] {
            let said = plan(path, Direction::In)
                .validate()
                .unwrap_err()
                .to_string();
            assert!(said.contains("two captures write to"), "{said}");
        }
        let warnings = |direction| plan("y.pcap", direction).validate().unwrap();
        assert!(warnings(Direction::In).is_empty());
        for direction in [Direction::Out, Direction::Inout] {
            assert!(warnings(direction)[0].contains("bypass the kernel's taps"));
            // Captures do not see frames sent by loads, either.
            let mut load = plan("y.pcap", direction);
            load.traffic.clear();
            load.loads.push(crate::load::LoadJob {
                port: "a".to_owned(),
                end: crate::load::LoadEnd::Server,
                servers: vec!["198.19.1.2".parse().unwrap()],
                ..crate::load::LoadJob::default()
            });
            let warned = load.validate().unwrap();
            assert!(warned[0].contains("bypass the kernel's taps"), "{warned:?}");
        }
    }
}
