//! Finds everything wrong with a plan at once, before anything starts.
//!
//! Knows only what the plan says; what the machine says (MTU, line rate, routes) is checked by the
//! session when it has asked the host.

use std::{collections::BTreeSet, fmt};

use crate::{
    device::DeviceConfig,
    plan::{Plan, Proto, Stream, TagKind, TrafficJob},
    stream::MAX_FLOWS,
    units::{Rate, SizeModel, Span},
    vary::{Field, Vary},
};

/// One thing wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanProblem {
    /// Where: `traffic 1, stream 2, size`.
    pub place: String,
    /// What is wrong and what is allowed.
    pub what: String,
}

impl fmt::Display for PlanProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl PlanProblem {
    /// `load`, `2` and `, vlan`, if it is about one of several jobs.
    fn parts(&self) -> Option<(&str, &str, &str)> {
        let (job, rest) = self.place.split_once(' ')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(digits);
        (digits > 0 && (rest.is_empty() || rest.starts_with(", "))).then_some((job, number, rest))
    }

    /// The same of another job.
    fn is_like(&self, other: &Self) -> bool {
        let but_number = |problem: &Self| {
            let parts = problem.parts();
            parts.map(|(job, _, rest)| format!("{job}{rest}"))
        };
        self.what == other.what
            && but_number(self).is_some_and(|own| but_number(other) == Some(own))
    }
}

/// Whether they are more than two that follow each other.
fn span(numbers: &[&str]) -> bool {
    let numbers: Vec<u64> = numbers.iter().filter_map(|n| n.parse().ok()).collect();
    numbers.len() > 2 && numbers.windows(2).all(|two| two[1] == two[0] + 1)
}

/// Everything wrong with a plan; at least one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub Vec<PlanProblem>);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(&PlanProblem, Vec<&str>)> = Vec::new();
        for problem in &self.0 {
            let number = problem.parts().map(|(_, number, _)| number);
            // An option is set for both ends of a load, and for all rows of a sweep: one line is enough.
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

/// What a good plan still deserves to have said about it.
pub type PlanWarnings = Vec<String>;

#[derive(Default)]
struct Findings {
    problems: Vec<PlanProblem>,
    warnings: PlanWarnings,
}

impl Findings {
    fn problem(&mut self, place: &str, what: impl Into<String>) {
        self.problems.push(PlanProblem {
            place: place.to_owned(),
            what: what.into(),
        });
    }
}

impl Plan {
    fn check_criteria(&self, found: &mut Findings) {
        let (kind, measured) = self.measures();
        for criterion in &self.criteria {
            if !measured.contains(&criterion.metric) {
                let names: Vec<String> = measured.iter().map(ToString::to_string).collect();
                let what = match names.is_empty() {
                    true => "it measures nothing that can be judged".to_owned(),
                    false => format!("it measures {}", names.join(", ")),
                };
                found.problem(
                    "criteria",
                    format!("{criterion}: not measured by {kind}; {what}"),
                );
            }
        }
    }

    /// Checks the whole plan.
    ///
    /// # Errors
    /// With every problem found, not only the first.
    pub fn validate(&self) -> Result<PlanWarnings, PlanError> {
        let mut found = Findings::default();
        self.check_ports(&mut found);
        let devices = !(self.devices.is_empty() && self.watches.is_empty());
        let others = devices || !self.traffic.is_empty() || !self.captures.is_empty();
        let sockets = !self.sockets.is_empty() || self.socket_server.is_some();
        if !others && self.loads.is_empty() && !sockets {
            found.problem("plan", "there is nothing to do; add a [[traffic]] job");
        }
        if !self.traffic.is_empty() && devices {
            found.problem("plan", "it has traffic and devices; make two plans of it");
        }
        if !self.captures.is_empty() && (devices || !self.traffic.is_empty()) {
            found.problem(
                "plan",
                "it captures and does other things; make two plans of it",
            );
        }
        if self.captures.len() > 1 {
            found.problem("plan", "it has several captures; name all ports in one");
        }
        if others && !self.loads.is_empty() {
            found.problem(
                "plan",
                "it has loads and does other things; make two plans of it",
            );
        }
        if sockets && (others || !self.loads.is_empty()) {
            found.problem(
                "plan",
                "it has socket tests and does other things; make two plans of it",
            );
        }
        if !self.sockets.is_empty() && self.socket_server.is_some() {
            found.problem("plan", "it is client and server; make two plans of it");
        }
        self.check_sockets(&mut found);
        self.check_criteria(&mut found);
        self.check_loads(&mut found);
        self.check_devices(&mut found);
        self.check_rings(&mut found);
        self.check_captures(&mut found);
        if !(Span::from_millis(100)..=Span::from_secs(60)).contains(&self.interval) {
            found.problem(
                "interval",
                format!("{} is not between 100ms and 1m", self.interval),
            );
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
        if total > u64::from(MAX_FLOWS) {
            found.problem(
                "plan",
                format!("{total} flows in all; at most {MAX_FLOWS} are allowed"),
            );
        }
        if found.problems.is_empty() {
            Ok(found.warnings)
        } else {
            Err(PlanError(found.problems))
        }
    }

    fn check_ports(&self, found: &mut Findings) {
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        for port in &self.ports {
            let place = format!("port {}", port.name);
            if port.name.is_empty() {
                found.problem("port", "every port needs a name");
            } else if !names.insert(port.name.as_str()) {
                found.problem(&place, "two ports have this name");
            }
            // Frames that take different ways may leave by one interface.
            let way = (port.locator.place(), port.way as u8, port.priority);
            if port.locator.is_interface() && !places.insert(way) {
                found.problem(
                    &place,
                    format!(
                        "{} is already another port of this plan",
                        port.locator.place()
                    ),
                );
            }
            if !(1..=64).contains(&port.workers) {
                found.problem(
                    &place,
                    format!("{} workers; 1 to 64 are allowed", port.workers),
                );
            }
            if !port.cpus.is_empty() && port.cpus.len() != port.workers as usize {
                found.problem(
                    &place,
                    format!(
                        "{} CPUs for {} workers; name one for each",
                        port.cpus.len(),
                        port.workers
                    ),
                );
            }
        }
    }

    /// The rings of the ports of captures; other ports have none that can be chosen so.
    fn check_rings(&self, found: &mut Findings) {
        const RING: std::ops::RangeInclusive<u32> = 64..=1 << 20;
        for port in &self.ports {
            let mut problem = |what: String| found.problem(&format!("port {}", port.name), what);
            let block = port.block_bytes;
            if block != 0 {
                if !block.is_power_of_two() || block < 4096 {
                    problem(format!(
                        "block_bytes is {block}; a power of two from 4096 on"
                    ));
                } else if port.ring_bytes != 0 && block > port.ring_bytes / 2 {
                    problem(format!(
                        "block_bytes is {block}; at most half of ring_bytes, which is {}",
                        port.ring_bytes
                    ));
                }
            }
            for (key, slots) in [("xdp_ring", port.xdp_ring), ("xdp_fill", port.xdp_fill)] {
                if slots != 0 && (!slots.is_power_of_two() || !RING.contains(&slots)) {
                    problem(format!(
                        "{key} is {slots}; a power of two from {} to {}",
                        RING.start(),
                        RING.end()
                    ));
                }
            }
            if ![0, 2048, 4096].contains(&port.xdp_chunk) {
                problem(format!("xdp_chunk is {}; 2048 or 4096", port.xdp_chunk));
            }
            let by_xdp = port.locator.driver == Some(crate::Driver::Xdp);
            let for_xdp = !port.queues.is_empty()
                || port.xdp_ring != 0
                || port.xdp_fill != 0
                || port.xdp_chunk != 0;
            if for_xdp && !by_xdp {
                problem(
                    "queues, xdp_ring, xdp_fill and xdp_chunk are for ports opened by xdp"
                        .to_owned(),
                );
            }
            if block != 0 && by_xdp {
                problem("block_bytes is not for ports opened by xdp".to_owned());
            }
            if (1..port.queues.len()).any(|i| port.queues[..i].contains(&port.queues[i])) {
                problem("a receive queue is named twice".to_owned());
            }
            if port.queues.len() > 64 {
                problem("more than 64 receive queues".to_owned());
            }
        }
    }

    fn check_captures(&self, found: &mut Findings) {
        for job in &self.captures {
            let mut problem = |what: String| found.problem("capture", what);
            if job.ports.is_empty() {
                problem("it names no port".to_owned());
            }
            for (i, name) in job.ports.iter().enumerate() {
                if !self.ports.iter().any(|p| p.name == *name) {
                    problem(format!("no port is named {name:?}"));
                }
                if job.ports[..i].contains(name) {
                    problem(format!("port {name:?} is named twice"));
                }
            }
            if !(1..=262_144).contains(&job.snap_len) {
                problem(format!(
                    "snap_len is {}; 1 to 262144 are allowed",
                    job.snap_len
                ));
            }
            if job.count == Some(0) {
                problem("count is 0; at least 1 frame".to_owned());
            }
            if job.duration.is_some_and(|d| d == Span::default()) {
                problem("duration is 0".to_owned());
            }
            if !(Span::from_millis(1)..=Span::from_secs(1)).contains(&job.block_timeout) {
                problem(format!(
                    "block_timeout is {}; 1ms to 1s are allowed",
                    job.block_timeout
                ));
            }
            if job.user.is_some() && (job.offloads_off || job.realtime) {
                problem(
                    "user gives up the privileges that offloads_off and realtime need later"
                        .to_owned(),
                );
            }
            let Some(output) = &job.output else { continue };
            if output.path.is_empty() {
                problem("output.path is empty; - is standard output".to_owned());
            }
            if !output.buffer_bytes.is_power_of_two()
                || !(64 << 10..=16 << 20).contains(&output.buffer_bytes)
            {
                problem(format!(
                    "output.buffer_bytes is {}; a power of two from 64 KiB to 16 MiB",
                    output.buffer_bytes
                ));
            }
            if !(2..=4096).contains(&output.buffers) {
                problem(format!(
                    "output.buffers is {}; 2 to 4096 are allowed",
                    output.buffers
                ));
            }
            let rotates =
                output.rotate_bytes > 0 || output.rotate_frames > 0 || output.rotate_time.is_some();
            if output.path == "-" && rotates {
                problem("standard output cannot be a row of files".to_owned());
            }
            if output.path == "-" && (output.part || output.command.is_some()) {
                problem(
                    "standard output is no file that gets a name or is given to a program"
                        .to_owned(),
                );
            }
            if output.command.as_ref().is_some_and(String::is_empty) {
                problem("output.command is empty; it is a program".to_owned());
            }
            if output.files > 0 && !rotates {
                problem("output.files needs a size, a time or a number of frames to begin the next file at".to_owned());
            }
            if output.file_limit > 0 && output.rotate_time.is_none() {
                problem("output.file_limit counts files of rotate_time; there is none".to_owned());
            }
            if output.rotate_time.is_some_and(|t| t < Span::from_millis(1)) {
                problem("output.rotate_time is below 1ms".to_owned());
            }
        }
    }

    fn check_sockets(&self, found: &mut Findings) {
        let mut add = |place: &str, problems: Vec<PlanProblem>| {
            found
                .problems
                .extend(problems.into_iter().map(|problem| PlanProblem {
                    place: format!("{place}, {}", problem.place),
                    what: problem.what,
                }));
        };
        for (i, job) in self.sockets.iter().enumerate() {
            match self.sockets.len() {
                1 => add("socket", job.problems()),
                _ => add(&format!("socket {}", i + 1), job.problems()),
            }
        }
        if let Some(server) = &self.socket_server {
            add("socket_server", server.problems());
        }
    }

    fn check_loads(&self, found: &mut Findings) {
        for (i, job) in self.loads.iter().enumerate() {
            let place = match self.loads.len() {
                1 => "load".to_owned(),
                _ => format!("load {}", i + 1),
            };
            found
                .problems
                .extend(job.problems().into_iter().map(|problem| PlanProblem {
                    place: format!("{place}, {}", problem.place),
                    what: problem.what,
                }));
            let Some(port) = self.ports.iter().find(|p| p.name == job.port) else {
                if !job.port.is_empty() {
                    found.problem(&place, format!("no port is named {:?}", job.port));
                }
                continue;
            };
            if self.loads[..i].iter().any(|other| other.port == job.port) {
                found.problem(&place, format!("port {:?} has a load already", job.port));
            }
            let answers = job.worker_answers.len();
            if answers != 0 && answers != port.workers as usize {
                found.problem(
                    &format!("{place}, worker_answers"),
                    format!(
                        "{answers} answers for the {} workers of its port; one for each",
                        port.workers
                    ),
                );
            }
        }
    }

    fn check_devices(&self, found: &mut Findings) {
        let port = |name: &str| self.ports.iter().find(|p| p.name == name);
        for (i, device) in self.devices.iter().enumerate() {
            let place = format!("device {}", i + 1);
            if port(&device.port).is_none() {
                found.problem(&place, format!("no port is named {:?}", device.port));
            }
            if device.settings.name.is_empty() {
                found.problem(&place, "settings.name is empty; every device needs a name");
            }
            if (1..DeviceConfig::SMALLEST).contains(&device.settings.min_size) {
                found.problem(
                    &place,
                    format!(
                        "settings.min_size is {}; at least {}, or 0 for the smallest",
                        device.settings.min_size,
                        DeviceConfig::SMALLEST
                    ),
                );
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
                if value > most {
                    found.problem(
                        &place,
                        format!("settings.{what}: {value}; at most {most} are allowed"),
                    );
                }
            }
        }
        for (i, watch) in self.watches.iter().enumerate() {
            let place = format!("watch {}", i + 1);
            if port(&watch.port).is_none() {
                found.problem(&place, format!("no port is named {:?}", watch.port));
            }
            if self.devices.iter().any(|d| d.port == watch.port) {
                found.problem(
                    &place,
                    format!("port {:?} sends; watch from another", watch.port),
                );
            }
            if self.watches[..i].iter().any(|w| w.port == watch.port) {
                found.problem(&place, format!("port {:?} is watched already", watch.port));
            }
            if watch.duration.is_some_and(|d| d == Span::default()) {
                found.problem(&place, "duration is 0");
            }
        }
    }

    fn check_job(&self, place: &str, job: &TrafficJob, found: &mut Findings) {
        for (end, name) in [("tx", &job.tx), ("rx", &job.rx)] {
            if let Some(name) = name
                && !self.ports.iter().any(|p| p.name == *name)
            {
                found.problem(
                    &format!("{place}, {end}"),
                    format!("no port is named {name:?}"),
                );
            }
        }
        match (&job.tx, &job.rx) {
            (None, None) => found.problem(place, "a job needs tx, rx or both"),
            (Some(_), _) if job.streams.is_empty() => {
                found.problem(place, "a sending job needs at least one stream")
            }
            (None, Some(_)) if !job.streams.is_empty() => {
                found.problem(place, "a job that only receives has no streams; add tx");
            }
            _ => {}
        }
        if job.bidir && (job.tx.is_none() || job.rx.is_none()) {
            found.problem(place, "bidir needs both tx and rx");
        }
        if job.tx.is_some() && job.count == Some(0) {
            found.problem(place, "count is 0; at least 1 frame");
        }
        if job.duration.is_some_and(|d| d == Span::default()) {
            found.problem(place, "duration is 0");
        }
        if job.drain > Span::from_secs(60) {
            found.problem(place, format!("drain is {}; at most 1m", job.drain));
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
        found.problem(place, "src and dst are of different IP families");
    }
    if stream.ipv6 && !stream.is_ipv6() {
        found.problem(place, "IPv6 is asked for, but the addresses are IPv4");
    }
    if stream.proto == Proto::Arp && stream.is_ipv6() {
        found.problem(place, "ARP knows IPv4 addresses only");
    }
    check_size(place, stream, found);
    check_rate(place, stream, found);
    match stream.flows {
        Some(flows) if !(1..=MAX_FLOWS).contains(&flows) => {
            found.problem(
                &at("flows"),
                format!("{flows} is not between 1 and {MAX_FLOWS}"),
            );
        }
        Some(flows) if u128::from(flows) > stream.tuples() => {
            found.problem(
                &at("flows"),
                format!("{flows} flows, but the ranges give only {} different 5-tuples; widen --src, --dst, --sport or --dport", stream.tuples()),
            );
        }
        _ => {}
    }
    if stream.vlan.len() > 4 {
        found.problem(
            &at("vlan"),
            format!("{} tags; at most 4", stream.vlan.len()),
        );
    }
    if stream.mpls.len() > 8 {
        found.problem(
            &at("mpls"),
            format!("{} labels; at most 8", stream.mpls.len()),
        );
    }
    if let Some(label) = stream.mpls.iter().find(|l| **l > 0xf_ffff) {
        found.problem(
            &at("mpls"),
            format!("label {label} is not between 0 and 1048575"),
        );
    }
    if !stream.mpls.is_empty() && stream.proto == Proto::Arp {
        found.problem(&at("mpls"), "ARP is not carried in MPLS");
    }
    for vary in &stream.vary {
        check_vary(place, stream, vary, found);
    }
    if let Some(speed) = stream.speed
        && (!speed.is_finite() || speed <= 0.0)
    {
        found.problem(&at("speed"), "must be above 0");
    }
    if stream.speed.is_some() && stream.replay.is_none() {
        found.problem(&at("speed"), "only a replay has a speed; give --rate");
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
        found.problem(&at, "the stream's frames have no such field");
    } else if matches!(vary.field, Field::Src | Field::Dst) && vary.ipv6 != stream.is_ipv6() {
        found.problem(&at, "the values are of the other IP family than the stream");
    }
    if let Field::At { offset, width } = vary.field {
        let (first, last) = (u32::from(offset), u32::from(offset) + u32::from(width));
        let tag = stream.header_len()..stream.header_len() + stream.tag_len();
        if first < tag.end && last > tag.start && stream.tag != TagKind::None {
            found.problem(
                &at,
                format!(
                    "overwrites the test tag at bytes {} to {}",
                    tag.start,
                    tag.end - 1
                ),
            );
        }
    }
    if stream.replay.is_some() {
        found.problem(&at, "frames of a replay are sent as they are");
    }
}

fn check_size(place: &str, stream: &Stream, found: &mut Findings) {
    let least = stream.smallest_size();
    let name = match stream.tag {
        TagKind::None => "the headers",
        _ => "headers and test tag",
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
                    "{place}: sizes {} of the mix are raised to {least}, the smallest in which {name} fit",
                    small.join(", ")
                ));
            }
        }
        Some(model) if model.smallest() < least => found.problem(
            &format!("{place}, size"),
            format!(
                "{} bytes are too few for {name}; the smallest is {least}",
                model.smallest()
            ),
        ),
        _ => {}
    }
}

fn check_rate(place: &str, stream: &Stream, found: &mut Findings) {
    match (stream.burst, stream.gap) {
        (Some(n), Some(gap)) => {
            if n == 0 || gap == Span::default() {
                found.problem(&format!("{place}, burst"), "burst and gap must be above 0");
            }
            if stream.rate != Rate::Max {
                found.problem(
                    &format!("{place}, burst"),
                    "burst and gap stand instead of a rate; give one of them",
                );
            }
        }
        (Some(_), None) => found.problem(
            &format!("{place}, burst"),
            "a burst needs a gap (--gap 1ms)",
        ),
        (None, Some(_)) => {
            found.problem(&format!("{place}, gap"), "a gap needs a burst (--burst 32)")
        }
        (None, None) => {}
    }
    if let Some(fps) = stream.frames_per_second(None)
        && fps.as_f64() > 2e9
    {
        found.problem(&format!("{place}, rate"), "at most 2 gpps");
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
        assert!(problems.to_string().contains("the smallest is 76"));
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
}
