//! Results of loads in reports and snapshots.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::Merge;

use super::{LoadEnd, LoadTransport};
use crate::{
    lateness::Lateness,
    report::{Rates, Times, Totals},
};

/// Connection counts; each connection counts once: attempted = completed + failed + open.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, derive_more::Add,
)]
pub struct ConnectionTotals {
    /// Connections started: SYN or first datagram sent; server: SYN accepted.
    pub attempted_connections: u64,
    /// Connections with a completed handshake; over UDP, connections with a response.
    pub established_connections: u64,
    /// Connections that exchanged all messages and were closed.
    pub completed_connections: u64,
    /// Connections that timed out, were refused, or ended with an error.
    pub failed_connections: u64,
    /// Connections open at the end.
    pub open_connections: u64,
    /// Requests sent by a client, received by a server.
    pub requests: u64,
    /// Responses received by a client, sent by a server.
    pub responses: u64,
    /// UDP client: requests without a response in time.
    #[serde(default)]
    pub lost_requests: u64,
    /// UDP client: requests that wait for their responses.
    #[serde(default)]
    pub in_flight_requests: u64,
    /// UDP client with `flood`: requests that expect no response.
    #[serde(default)]
    pub unawaited_requests: u64,
    /// UDP client: responses to requests that already counted as lost.
    #[serde(default)]
    pub late_responses: u64,
    /// UDP client: responses to requests that already had a response.
    #[serde(default)]
    pub duplicate_responses: u64,
    /// Part of the responses with an HTTP status of 400 or more.
    #[serde(default)]
    pub error_responses: u64,
    /// UDP client: part of the requests that expect a response. Only known after a merge of several jobs.
    #[serde(skip)]
    pub awaited_requests: u64,
}

impl ConnectionTotals {
    /// Returns true if every request of UDP clients is accounted for.
    #[must_use]
    pub const fn requests_add_up(&self) -> bool {
        self.requests
            == self.responses
                + self.lost_requests
                + self.in_flight_requests
                + self.unawaited_requests
    }

    /// Returns true if every connection is accounted for.
    #[must_use]
    pub const fn adds_up(&self) -> bool {
        self.attempted_connections
            == self.completed_connections + self.failed_connections + self.open_connections
    }

    /// Returns the sum of each field.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        *self + *other
    }
}

/// Loads of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadReport {
    /// Results of each end of each job.
    pub jobs: Vec<LoadJobReport>,
}

impl LoadReport {
    /// End with the connections and frames of the run: the clients; without clients, the servers.
    #[must_use]
    pub fn shown(&self) -> LoadEnd {
        match self.jobs.iter().any(|job| job.end == LoadEnd::Client) {
            true => LoadEnd::Client,
            false => LoadEnd::Server,
        }
    }

    /// The jobs of the shown end as one; `None` without jobs.
    #[must_use]
    pub fn as_one_job(&self) -> Option<LoadJobReport> {
        let mut jobs = self.jobs.iter().filter(|job| job.end == self.shown());
        let mut all = jobs.next()?.clone();
        jobs.for_each(|job| all.merge(job));
        Some(all)
    }

    /// Connections of the shown end.
    #[must_use]
    pub fn connections(&self) -> ConnectionTotals {
        let jobs = self.jobs.iter().filter(|job| job.end == self.shown());
        jobs.fold(ConnectionTotals::default(), |sum, job| {
            sum.plus(&job.totals)
        })
    }

    /// Frames and connections of the shown end.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let jobs = self.jobs.iter().filter(|job| job.end == self.shown());
        Totals {
            connections: Some(self.connections()),
            ..jobs.fold(Totals::default(), |sum, job| sum.plus(&job.frames))
        }
    }

    /// Rates of the frames of the shown end in the phase `steady`.
    #[must_use]
    pub fn rates(&self) -> Rates {
        let jobs = self.jobs.iter().filter(|job| job.end == self.shown());
        let steady = jobs.flat_map(|job| job.phases.iter().filter(|p| p.phase == "steady"));
        Rates::sum(steady.map(|phase| Rates {
            offered_pps: Some(phase.tx_pps),
            received_pps: Some(phase.rx_pps),
            offered_l2_bps: Some(phase.tx_bps),
            received_l2_bps: Some(phase.rx_bps),
            tx_time_ns: Some(phase.to_ns.saturating_sub(phase.from_ns)),
            ..Rates::default()
        }))
    }
}

/// Results of a route of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadRouteReport {
    /// Path of the route; `404` counts the requests that match no route.
    pub path: String,
    /// HTTP status of the route.
    pub status: u16,
    /// Number of responses.
    pub answers: u64,
}

/// Counters of all frames in the queues of a load, and of messages that are not part of the load: ARP, ICMP (pings and
/// neighbour discovery) and others. [`LoadJobReport::counters`] contains them in addition to the counters of the load. Its
/// `icmp_rx` counts only ICMP messages about packets of the load.
pub const PORT_COUNTERS: [&str; 7] = [
    "port_rx_frames",
    "port_tx_frames",
    "arp_messages_rx",
    "arp_messages_tx",
    "icmp_messages_rx",
    "icmp_messages_tx",
    "other_messages_rx",
];

/// Results of one end of connections at one port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadJobReport {
    /// Name from the plan, or `client 1`, `server 1`.
    pub name: String,
    /// Port name.
    pub port: String,
    /// End of the connections.
    pub end: LoadEnd,
    /// TCP or UDP.
    pub transport: LoadTransport,
    /// Connection counts.
    pub totals: ConnectionTotals,
    /// Frame counts: `offered_frames` are sent frames, `received_frames` are received frames of the load.
    pub frames: Totals,
    /// Connections that were due but not started; never counted as failures.
    pub unsent_connections: u64,
    /// Requests that were due on open connections but not sent because the tester was late.
    #[serde(default)]
    pub unsent_requests: u64,
    /// Requests that were due but not sent because every connection waited for a response: the far end was the limit.
    #[serde(default)]
    pub waited_requests: u64,
    /// Part of the unsent connections: every combination of addresses and ports was in use.
    pub no_tuple: u64,
    /// Failed connections by cause; their sum is `totals.failed_connections`.
    pub failures: BTreeMap<String, u64>,
    /// All counters that are not 0, by name.
    pub counters: BTreeMap<String, u64>,
    /// Number of combinations of addresses and ports, over all workers.
    pub tuples: u64,
    /// Client: time from SYN to SYN-ACK, in ns.
    pub connect_ns: Times,
    /// Client: time from a request to the first byte of its response, in ns.
    pub first_byte_ns: Times,
    /// Client: time from a request to the last byte of its response, in ns.
    pub request_ns: Times,
    /// Client: time from the scheduled start of a request to the last byte of its response, in ns; only with a rate or
    /// an interval.
    #[serde(default)]
    pub request_due_ns: Times,
    /// Time from a request to the last byte of its response, in ns; equal to `request_ns`.
    #[serde(default)]
    pub since_sent_ns: Times,
    /// Time from the scheduled start of a request to the last byte of its response, in ns. Without a rate or an
    /// interval, requests are scheduled when they are sent.
    #[serde(default)]
    pub since_due_ns: Times,
    /// True if some UDP responses did not identify their requests. Responses are then matched by order, and times are
    /// estimates.
    #[serde(default)]
    pub latency_is_estimate: bool,
    /// Phases, in order.
    pub phases: Vec<LoadPhaseReport>,
    /// Server with routes: responses by route; their sum is the number of responses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<LoadRouteReport>,
    /// Results of each worker.
    pub workers: Vec<LoadWorkerReport>,
    /// Number of times that the link went down.
    pub link_downs: u64,
    /// Total time that the link was down, in ns.
    pub link_down_ns: u64,
}

/// Results of one phase: `wait`, `ramp`, `steady` or `drain`; `ready` before the start of a server's clients. A server
/// has the phases of its clients if they belong to the same run. Otherwise its `steady` phase is the time from the
/// first to the last frame of the load, because the server may run before and after its clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadPhaseReport {
    /// Name of the phase.
    pub phase: String,
    /// Start of the phase, in ns since the start of the run.
    pub from_ns: u64,
    /// End of the phase, in ns since the start of the run.
    pub to_ns: u64,
    /// Counts of the phase; `open_connections` is the number of open connections at its end, so attempted = completed +
    /// failed + (open now - open before).
    pub totals: ConnectionTotals,
    /// Connections that were due but not started.
    pub unsent_connections: u64,
    /// New connections per second, established or not.
    pub cps: f64,
    /// Handshakes completed per second; the criterion `cps` of the phase `steady`.
    #[serde(default)]
    pub established_cps: f64,
    /// Requests per second.
    pub rps: f64,
    /// Responses per second; the criterion `rps` of the phase `steady`.
    #[serde(default)]
    pub responses_rps: f64,
    /// Frames sent per second.
    pub tx_pps: f64,
    /// Frames of the load received per second.
    pub rx_pps: f64,
    /// Bits sent per second, layer 2 with FCS.
    pub tx_bps: f64,
    /// Bits of the load received per second, layer 2 with FCS.
    pub rx_bps: f64,
}

/// Results of one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadWorkerReport {
    /// Queue of the port.
    pub queue: u32,
    /// CPU of the worker, if pinned.
    pub cpu: Option<u32>,
    /// Connection counts.
    pub totals: ConnectionTotals,
    /// Frames sent.
    pub tx_frames: u64,
    /// Frames of the load received.
    pub rx_frames: u64,
    /// Share of its time with work to do, 0 to 1.
    pub busy: f64,
    /// Time with work to do, in ns.
    #[serde(default)]
    pub busy_ns: u64,
    /// Maximum time between two polls of the port, in ns.
    pub longest_turn_ns: u64,
    /// Lateness of the worker.
    #[serde(default)]
    pub lateness: Lateness,
}

/// Stage of a load.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum LoadStage {
    /// Not started; servers already answer.
    #[default]
    Ready,
    /// No connections are opened yet.
    Wait,
    /// Ramp-up of the rate.
    Ramp,
    /// Measured duration.
    Steady,
    /// No more connections are opened.
    Drain,
    /// Ended.
    Done,
}

impl LoadStage {
    /// Name in reports: `ready`, `wait`, `ramp`, `steady`, `drain`, `done`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Wait => "wait",
            Self::Ramp => "ramp",
            Self::Steady => "steady",
            Self::Drain => "drain",
            Self::Done => "done",
        }
    }
}

/// Connection figures of a snapshot: of all clients or, without clients, of all servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadLive {
    /// Current stage.
    pub phase: LoadStage,
    /// Counts since the start.
    pub totals: ConnectionTotals,
    /// New connections per second in the interval.
    pub attempted_cps: f64,
    /// Handshakes completed per second in the interval.
    pub established_cps: f64,
    /// Connections completed per second in the interval.
    pub completed_cps: f64,
    /// Connections failed per second in the interval.
    pub failed_cps: f64,
    /// Requests per second in the interval.
    pub rps: f64,
    /// Mean time from a request to the end of its response in the interval, in ns.
    pub request_mean_ns: Option<f64>,
}
