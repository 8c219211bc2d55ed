//! Plans of the flows that start and the captures that are on.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use wb_model::{
    Driver, Locator, Plan, TagKind,
    capture::{CaptureJob, CaptureOutput, Direction, FileFormat},
    plan::{PortPlan, TrafficJob, XdpMode},
    units::{Mac, Span},
};

use crate::{
    config::{Config, PortConfig},
    flow::Flow,
    problem::{Problem, Problems},
};

/// Number of queues of a port.
const QUEUES: std::ops::RangeInclusive<u32> = 1..=64;
/// Interval between figures during a run.
const INTERVAL: Span = Span::from_millis(250);
/// Time in which frames in flight still arrive after the last one was sent.
const DRAIN: Span = Span::from_millis(500);

/// Part of a configuration that starts.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// Names of the flows that start.
    pub flows: &'c BTreeSet<String>,
    /// Names of the ports with captures that are on.
    pub captures: &'c BTreeSet<String>,
    /// True if frames may go to any address.
    pub owns_network: bool,
    /// Hardware address of a neighbour of a device's Ethernet interface.
    pub neighbour: &'c dyn Fn(&str, IpAddr) -> Option<[u8; 6]>,
}

/// Plan of a start.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan. Each flow is a stream, or several, with its name.
    pub plan: Plan,
    /// Capture file of each port.
    pub files: BTreeMap<String, String>,
}

impl PortConfig {
    /// Host of the port in a fleet; `None` for a port of the server.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        self.plan().ok()?.locator.host
    }

    /// The port of plans.
    ///
    /// # Errors
    /// Returns why the location is not supported.
    pub fn plan(&self) -> Result<PortPlan, String> {
        let (place, options) = match self.location.split_once('?') {
            Some((place, options)) => (place, options),
            None => (self.location.as_str(), ""),
        };
        let locator: Locator = place.parse().map_err(|error| {
            format!("unsupported location: {error}; use an interface such as eth1")
        })?;
        let mut port = PortPlan::new(self.name.clone(), locator);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let unknown = || format!("unsupported: option {option}");
            let (key, value) = option.split_once('=').ok_or_else(unknown)?;
            match (key, value) {
                ("engine" | "mode" | "queues", "auto") => {}
                ("engine", "afxdp") => port.locator.driver = Some(Driver::Xdp),
                ("engine", "afpacket") => port.locator.driver = Some(Driver::Packet),
                ("mode", "zc") => port.xdp_mode = XdpMode::ZeroCopy,
                ("mode", "copy") => port.xdp_mode = XdpMode::Native,
                ("queues", number) => {
                    let workers = number.parse().ok();
                    let workers = workers.filter(|workers| QUEUES.contains(workers));
                    let (low, high) = (QUEUES.start(), QUEUES.end());
                    let what = format!("out of range: queues must be between {low} and {high}");
                    port.workers = workers.ok_or(what)?;
                }
                _ => return Err(unknown()),
            }
        }
        Ok(port)
    }
}

impl Config {
    /// Makes the plan of a start.
    ///
    /// # Errors
    /// Returns all problems: port locations, combinations of flows and neighbours that are not known.
    pub fn compile(&self, context: &Context<'_>) -> Result<Planned, Vec<Problem>> {
        let problems = Problems::default();
        let mut plan = Plan {
            interval: INTERVAL,
            i_own_this_network: context.owns_network,
            allow_unsent: true,
            ..Plan::default()
        };
        let starts = |flow: &&Flow| context.flows.contains(&flow.name);
        let mut jobs: Vec<(TrafficJob, Vec<&Flow>)> = Vec::new();
        for flow in self.flows.iter().filter(starts) {
            self.add_flow(&mut jobs, flow, context, &problems);
        }
        for (job, flows) in &jobs {
            check_untagged(job, flows, &problems);
        }
        plan.traffic = jobs.into_iter().map(|(job, _)| job).collect();
        let mut files = BTreeMap::new();
        for (number, port) in self.ports.iter().enumerate() {
            let is_on = context.captures.contains(&port.name);
            if let Some(capture) = self.capture_at(&port.name).filter(|_| is_on) {
                let file = format!("port{number}.pcap");
                plan.captures.push(CaptureJob {
                    name: format!("capture at {}", port.name),
                    ports: vec![port.name.clone()],
                    direction: Direction::In,
                    snap_len: capture.packet_size.unwrap_or(262_144),
                    output: Some(CaptureOutput {
                        path: file.clone(),
                        format: FileFormat::PcapNs,
                        ..CaptureOutput::default()
                    }),
                    ..CaptureJob::default()
                });
                files.insert(port.name.clone(), file);
            }
            let is_end = |end: &Option<String>| end.as_deref() == Some(&port.name);
            let is_used = is_on || plan.traffic.iter().any(|j| is_end(&j.tx) || is_end(&j.rx));
            if is_used {
                match port.plan() {
                    Ok(port) => plan.ports.push(port),
                    Err(why) => problems.add(format!("ports[{number}].location"), why),
                }
            }
        }
        problems.into_result(Planned { plan, files })
    }

    /// Adds a flow to the job of its ports.
    fn add_flow<'c>(
        &'c self,
        jobs: &mut Vec<(TrafficJob, Vec<&'c Flow>)>,
        flow: &'c Flow,
        context: &Context<'_>,
        problems: &Problems,
    ) {
        let path = format!("{}.tx_rx", flow.path);
        let rx = flow.rx.first();
        if let Some((job, _)) = jobs.iter().find(|(job, _)| {
            rx.is_some() && job.rx.as_ref() == rx && job.tx.as_ref() != Some(&flow.tx)
        }) {
            let other = job.tx.as_deref().unwrap_or_default();
            let rx = rx.map_or("", String::as_str);
            let what = format!("port '{rx}' receives from '{}' and '{other}'", flow.tx);
            return problems.unsupported(path, &what);
        }
        let known = jobs.iter_mut();
        let known = known.map(|(job, flows)| (job, flows));
        let mut same = known.filter(|(job, _)| job.tx.as_ref() == Some(&flow.tx));
        let (job, flows) = match same.next() {
            Some(found) => found,
            None => {
                let job = TrafficJob {
                    name: format!("from {}", flow.tx),
                    tx: Some(flow.tx.clone()),
                    drain: DRAIN,
                    ..TrafficJob::default()
                };
                jobs.push((job, Vec::new()));
                let (job, flows) = jobs.last_mut().expect("it was just added");
                (job, flows)
            }
        };
        match (&job.rx, rx) {
            (Some(own), Some(rx)) if own != rx => {
                let what = format!("port '{}' sends to '{own}' and '{rx}'", flow.tx);
                return problems.unsupported(path, &what);
            }
            (None, Some(rx)) => job.rx = Some(rx.clone()),
            _ => {}
        }
        for (stream, neighbour) in &flow.streams {
            let mut stream = stream.clone();
            if let Some(neighbour) = neighbour {
                match (context.neighbour)(&neighbour.ethernet, neighbour.address) {
                    Some(mac) => stream.dst_mac = Some(Mac(mac)),
                    None => problems.add(
                        path.clone(),
                        format!(
                            "unresolved: {} of device interface '{}' does not answer",
                            neighbour.address, neighbour.ethernet
                        ),
                    ),
                }
            }
            job.streams.push(stream);
        }
        flows.push(flow);
    }
}

/// Frames without a tag are counted as all frames that arrive, so they are the only ones of a port.
fn check_untagged(job: &TrafficJob, flows: &[&Flow], problems: &Problems) {
    if job.rx.is_none() || job.streams.len() < 2 {
        return;
    }
    for flow in flows
        .iter()
        .filter(|flow| flow.has_metrics && !flow.rx.is_empty())
    {
        if let Some((stream, _)) = flow.streams.iter().find(|(s, _)| s.tag == TagKind::None) {
            let least = stream.header_len() + 18 + 4;
            let what = format!(
                "out of range: frames of several flows need room for the test tag, at least {least} bytes"
            );
            problems.add(format!("{}.size", flow.path), what);
        }
    }
}
