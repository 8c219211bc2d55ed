//! Builds the plan of a trial.

use std::time::Duration;

use wb_model::{
    Plan, PortPlan,
    bench::{LbMetric, LbPlan, LbSide},
    load::{
        LoadAnswer, LoadClose, LoadEnd, LoadJob, LoadMessage, LoadRate, LoadReading, LoadShape,
        LoadTcp,
    },
    units::{AddressRange, Span},
};
use wb_search::Purpose;

use super::LbSearch;

/// Default number of concurrent flows.
const FLOWS: u64 = 1_000;
/// Ethernet, IP and UDP headers and the FCS.
const HEADERS: [u16; 2] = [14 + 20 + 8 + 4, 14 + 40 + 8 + 4];
/// Time for connections that end with a trial: longer than their retries.
const CLOSING: Duration = Duration::from_millis(1_300);

/// Parameters of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LbTrialShape {
    /// Frames per second, connections per second, or connections.
    pub(super) load: f64,
    pub(super) ramp: Duration,
    pub(super) full: Duration,
    pub(super) drain: Duration,
    /// New connections per second; 0: according to the load.
    pub(super) opening: u64,
    /// Interval between requests of a held connection.
    pub(super) rest: Duration,
}

impl LbTrialShape {
    pub(super) fn new(
        plan: &LbPlan,
        item: &LbSearch,
        load: f64,
        purpose: Purpose,
        open_rate: u64,
    ) -> Self {
        let times = &plan.times;
        let full = match purpose {
            Purpose::WarmUp | Purpose::Search => times.trial.0,
            Purpose::Confirm => times.confirm.0,
        };
        match item.test.metric {
            LbMetric::Cps => Self {
                load,
                ramp: Duration::ZERO,
                full,
                drain: CLOSING.max(times.drain.0),
                opening: load as u64,
                rest: Duration::ZERO,
            },
            LbMetric::Cc => {
                let rate = open_rate.max(1);
                let opening = Duration::from_secs_f64(load / rate as f64);
                // A request and its answer are less work than opening was.
                let rest = item.test.hold.0.max(opening / 2);
                let slack = Duration::from_millis(300);
                Self {
                    load,
                    ramp: Duration::ZERO,
                    full: opening.mul_f64(1.15) + rest.mul_f64(1.25) + slack,
                    drain: CLOSING.max(times.drain.0),
                    opening: rate,
                    rest,
                }
            }
            _ => {
                let flows = concurrent_flows(plan, item) as f64;
                // Opening uses at most half of the rate.
                let ramp = times
                    .ramp
                    .0
                    .max(Duration::from_secs_f64((2.0 * flows / load).min(10.0)));
                let opening = (4.0 * flows / ramp.as_secs_f64().max(1e-3)).ceil();
                Self {
                    load,
                    ramp,
                    full,
                    drain: times.drain.0,
                    opening: opening as u64,
                    rest: Duration::ZERO,
                }
            }
        }
    }

    /// Time from its first frame to its end.
    pub(super) fn whole_duration(&self) -> Duration {
        self.ramp + self.full + self.drain
    }

    /// Maximum number of connections begun.
    pub(super) fn max_connections(&self) -> u64 {
        (self.opening as f64 * self.full.as_secs_f64()).ceil() as u64
    }
}

/// Number of concurrent flows.
pub(super) fn concurrent_flows(plan: &LbPlan, item: &LbSearch) -> u64 {
    if item.test.metric == LbMetric::Elephant {
        return 1;
    }
    let asked = item.test.flows.map_or(FLOWS, |flows| flows.0);
    u64::try_from(plan.tuples()).unwrap_or(u64::MAX).min(asked)
}

fn port_plan(name: &str, side: &LbSide) -> PortPlan {
    let mut addresses = side.addresses.clone();
    if !addresses.is_empty() {
        addresses.extend(&side.hosts);
    }
    PortPlan {
        workers: side.workers,
        cpus: side.cpus.clone(),
        addresses,
        gateway: side.gateway,
        ..PortPlan::new(name, side.port.clone())
    }
}

/// Plan of a trial; `clients` are its source addresses.
pub(super) fn trial_plan(
    plan: &LbPlan,
    item: &LbSearch,
    shape: &LbTrialShape,
    clients: Vec<AddressRange>,
) -> Plan {
    let request = LoadMessage::Bytes(payload_len(plan, item));
    let reading = match item.size {
        Some(_) => LoadReading::Segment,
        None => LoadReading::Bytes(1),
    };
    let server = LoadJob {
        name: "server".to_owned(),
        port: "server".to_owned(),
        end: LoadEnd::Server,
        transport: item.transport(),
        clients: plan.server.peers.clone(),
        servers: plan.server.hosts.clone(),
        server_ports: plan.server.ports.unwrap_or(plan.device.ports),
        answer: match item.test.metric {
            LbMetric::OnewayPps | LbMetric::Bps | LbMetric::Elephant => LoadAnswer::Sink,
            LbMetric::TwowayPps => LoadAnswer::Echo,
            LbMetric::Cps | LbMetric::Cc => LoadAnswer::Bytes(1),
        },
        reading,
        requests: 0,
        tcp: tcp_limits(shape),
        shape: LoadShape {
            drain: Span(shape.drain),
            ..LoadShape::default()
        },
        ..LoadJob::default()
    };
    let client = LoadJob {
        name: "client".to_owned(),
        port: "client".to_owned(),
        end: LoadEnd::Client,
        clients,
        servers: plan.device.service.clone(),
        client_ports: plan.client_ports(),
        server_ports: plan.device.ports,
        request,
        answer: LoadAnswer::default(),
        flood: item.size.is_some(),
        requests: u32::from(item.test.metric == LbMetric::Cps),
        interval: Span(shape.rest),
        close: match item.test.metric {
            LbMetric::Cc => LoadClose::Reset,
            _ => LoadClose::Fin,
        },
        rate: load_rate(plan, item, shape),
        shape: LoadShape {
            ramp: Span(shape.ramp),
            duration: Span(shape.full),
            drain: Span(shape.drain),
            ..LoadShape::default()
        },
        ..server.clone()
    };
    Plan {
        kind: "bench lb".to_owned(),
        ports: vec![
            port_plan("client", &plan.client),
            port_plan("server", &plan.server),
        ],
        loads: vec![client, server],
        ..Plan::default()
    }
}

fn payload_len(plan: &LbPlan, item: &LbSearch) -> u32 {
    let v6 = plan
        .device
        .service
        .first()
        .is_some_and(AddressRange::is_ipv6);
    // IPv6 makes the smallest frame slightly longer.
    let headers = HEADERS[usize::from(v6)];
    item.size
        .map_or(1, |size| u32::from(size.saturating_sub(headers).max(1)))
}

fn load_rate(plan: &LbPlan, item: &LbSearch, shape: &LbTrialShape) -> LoadRate {
    let load = shape.load as u64;
    match item.test.metric {
        LbMetric::Cps => LoadRate {
            cps: Some(load),
            ..LoadRate::default()
        },
        LbMetric::Cc => LoadRate {
            cps: Some(shape.opening),
            cc: Some(load),
            ..LoadRate::default()
        },
        _ => LoadRate {
            cps: Some(shape.opening),
            cc: Some(concurrent_flows(plan, item)),
            pps: Some(load),
            ..LoadRate::default()
        },
    }
}

/// Time limits that let a connection fail within a trial.
fn tcp_limits(shape: &LbTrialShape) -> LoadTcp {
    let second = Span::from_secs(1);
    LoadTcp {
        retransmit: Span::from_millis(250),
        tries: 3,
        connect_timeout: second,
        response_timeout: second,
        close_timeout: second,
        idle_timeout: Span(shape.rest * 3 + Duration::from_secs(30)),
        ..LoadTcp::default()
    }
}
