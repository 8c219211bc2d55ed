//! Builds the plan of a trial.

use std::time::Duration;

use wb_model::{
    Plan, PortPlan,
    bench::{LB_KIND, LbMetric, LbPlan, LbSide},
    load::{
        LoadAnswer, LoadClose, LoadEnd, LoadJob, LoadMessage, LoadRate, LoadReading, LoadShape,
        LoadTcp,
    },
    units::{AddressRange, Span},
};

use super::{LbSearch, LbTrials};
use crate::suite::shape::{TrialAmount, TrialShape};

/// Default number of concurrent flows.
const FLOWS: u64 = 1_000;
/// Ethernet, IP and UDP headers and the FCS.
const HEADERS: [u16; 2] = [14 + 20 + 8 + 4, 14 + 40 + 8 + 4];
/// Time for connections that end with a trial: longer than their retries.
const CLOSING: Duration = Duration::from_millis(1_300);

/// Index of the clients among the loads of a trial.
pub(super) const CLIENT: usize = 0;

/// Load of a trial: frames per second, connections per second, or connections.
pub(super) fn load(shape: &TrialShape) -> f64 {
    match shape.amount {
        TrialAmount::Load(load) => load,
        TrialAmount::Most | TrialAmount::Burst(_) => 0.0,
    }
}

/// Fits the times of a trial to its load.
pub(super) fn fit(trials: &LbTrials<'_>, shape: TrialShape) -> TrialShape {
    let load = load(&shape).round().max(1.0);
    let shape = TrialShape {
        amount: TrialAmount::Load(load),
        ..shape
    };
    match trials.metric() {
        LbMetric::Cps => TrialShape {
            ramp: Duration::ZERO,
            drain: CLOSING.max(shape.drain),
            ..shape
        },
        LbMetric::Cc => {
            let opening = Duration::from_secs_f64(load / trials.open_rate as f64);
            let slack = Duration::from_millis(300);
            TrialShape {
                ramp: Duration::ZERO,
                duration: opening.mul_f64(1.15) + rest(trials, &shape).mul_f64(1.25) + slack,
                drain: CLOSING.max(shape.drain),
                ..shape
            }
        }
        _ => {
            let flows = concurrent_flows(trials.plan, trials.item) as f64;
            // Opening uses at most half of the rate.
            let ramp = Duration::from_secs_f64((2.0 * flows / load).min(10.0));
            TrialShape {
                ramp: shape.ramp.max(ramp),
                ..shape
            }
        }
    }
}

/// New connections per second.
fn opening(trials: &LbTrials<'_>, shape: &TrialShape) -> u64 {
    match trials.metric() {
        LbMetric::Cps => load(shape) as u64,
        LbMetric::Cc => trials.open_rate,
        _ => {
            let flows = concurrent_flows(trials.plan, trials.item) as f64;
            (4.0 * flows / shape.ramp.as_secs_f64().max(1e-3)).ceil() as u64
        }
    }
}

/// Interval between requests of a held connection.
fn rest(trials: &LbTrials<'_>, shape: &TrialShape) -> Duration {
    match trials.metric() {
        LbMetric::Cc => {
            let opening = Duration::from_secs_f64(load(shape) / trials.open_rate as f64);
            // A request and its answer are less work than opening was.
            trials.item.test.hold.0.max(opening / 2)
        }
        _ => Duration::ZERO,
    }
}

/// Maximum number of connections begun.
pub(super) fn max_connections(trials: &LbTrials<'_>, shape: &TrialShape) -> u64 {
    (opening(trials, shape) as f64 * shape.duration.as_secs_f64()).ceil() as u64
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

/// The ports of all trials.
pub(super) fn ports(plan: &LbPlan) -> Plan {
    Plan {
        kind: LB_KIND.to_owned(),
        ports: vec![
            port_plan("client", &plan.client),
            port_plan("server", &plan.server),
        ],
        ..Plan::default()
    }
}

/// Plan of a trial; `clients` are its source addresses.
pub(super) fn trial_plan(
    trials: &LbTrials<'_>,
    shape: &TrialShape,
    clients: Vec<AddressRange>,
) -> Plan {
    let (plan, item) = (trials.plan, trials.item);
    let metric = trials.metric();
    let reading = match item.size {
        Some(_) => LoadReading::Segment,
        None => LoadReading::Bytes(1),
    };
    let rest = rest(trials, shape);
    let server = LoadJob {
        name: "server".to_owned(),
        port: "server".to_owned(),
        end: LoadEnd::Server,
        transport: item.transport(),
        clients: plan.server.peers.clone(),
        servers: plan.server.hosts.clone(),
        server_ports: plan.server.ports.unwrap_or(plan.device.ports),
        answer: match metric {
            LbMetric::OnewayPps | LbMetric::Bps | LbMetric::Elephant => LoadAnswer::Sink,
            LbMetric::TwowayPps => LoadAnswer::Echo,
            LbMetric::Cps | LbMetric::Cc => LoadAnswer::Bytes(1),
        },
        reading,
        requests: 0,
        tcp: tcp_limits(rest),
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
        request: LoadMessage::Bytes(payload_len(plan, item)),
        answer: LoadAnswer::default(),
        flood: item.size.is_some(),
        requests: u32::from(metric == LbMetric::Cps),
        interval: Span(rest),
        close: match metric {
            LbMetric::Cc => LoadClose::Reset,
            _ => LoadClose::Fin,
        },
        rate: load_rate(trials, shape),
        shape: LoadShape {
            ramp: Span(shape.ramp),
            duration: Span(shape.duration),
            drain: Span(shape.drain),
            ..LoadShape::default()
        },
        ..server.clone()
    };
    Plan {
        loads: vec![client, server],
        ..ports(plan)
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

fn load_rate(trials: &LbTrials<'_>, shape: &TrialShape) -> LoadRate {
    let load = load(shape) as u64;
    let cps = Some(opening(trials, shape));
    match trials.metric() {
        LbMetric::Cps => LoadRate {
            cps,
            ..LoadRate::default()
        },
        LbMetric::Cc => LoadRate {
            cps,
            cc: Some(load),
            ..LoadRate::default()
        },
        _ => LoadRate {
            cps,
            cc: Some(concurrent_flows(trials.plan, trials.item)),
            pps: Some(load),
            ..LoadRate::default()
        },
    }
}

/// Time limits that let a connection fail within a trial.
fn tcp_limits(rest: Duration) -> LoadTcp {
    let second = Span::from_secs(1);
    LoadTcp {
        retransmit: Span::from_millis(250),
        tries: 3,
        connect_timeout: second,
        response_timeout: second,
        close_timeout: second,
        idle_timeout: Span(rest * 3 + Duration::from_secs(30)),
        ..LoadTcp::default()
    }
}
