//! What became of connections: the part of a report, and of a snapshot, that loads have.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LoadEnd, LoadTransport};
use crate::{
    lateness::Lateness,
    report::{Summary, Totals},
};

/// Connections, counted each once: attempted = completed + failed + open.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, derive_more::Add,
)]
pub struct ConnectionTotals {
    /// Connections begun: SYN or first datagram sent; server: SYN accepted.
    pub attempted_connections: u64,
    /// Those with a finished handshake; over UDP those with an answer.
    pub established_connections: u64,
    /// Those with all that was to be exchanged, and closed.
    pub completed_connections: u64,
    /// Those given up, refused, or ended by an error.
    pub failed_connections: u64,
    /// Those open at the end.
    pub open_connections: u64,
    /// Requests sent by a client, received by a server.
    pub requests: u64,
    /// Responses received by a client, sent by a server.
    pub responses: u64,
    /// UDP client: requests that were not answered in time.
    #[serde(default)]
    pub lost_requests: u64,
    /// UDP client: requests that wait for their answers.
    #[serde(default)]
    pub in_flight_requests: u64,
    /// UDP client with `flood`: requests whose answers nobody waits for.
    #[serde(default)]
    pub unawaited_requests: u64,
    /// UDP client: answers to requests that had been given up as lost.
    #[serde(default)]
    pub late_responses: u64,
    /// UDP client: answers to requests that had been answered.
    #[serde(default)]
    pub duplicate_responses: u64,
    /// Of the responses, those of HTTP with a status of 400 or more.
    #[serde(default)]
    pub error_responses: u64,
}

impl ConnectionTotals {
    /// Whether every request of UDP clients is accounted for.
    #[must_use]
    pub const fn requests_add_up(&self) -> bool {
        self.requests
            == self.responses
                + self.lost_requests
                + self.in_flight_requests
                + self.unawaited_requests
    }

    /// Whether every connection is accounted for.
    #[must_use]
    pub const fn adds_up(&self) -> bool {
        self.attempted_connections
            == self.completed_connections + self.failed_connections + self.open_connections
    }

    /// Field by field sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        *self + *other
    }
}

/// The loads of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadReport {
    /// Each end of each job.
    pub jobs: Vec<LoadJobReport>,
}

/// A route of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadRouteReport {
    /// Its path; `404` has all that no other has.
    pub path: String,
    /// Its status.
    pub status: u16,
    /// How often it was answered.
    pub answers: u64,
}

/// One end of connections at one port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadJobReport {
    /// Name from the plan, or `client 1`, `server 1`.
    pub name: String,
    /// Port name.
    pub port: String,
    /// Which end.
    pub end: LoadEnd,
    /// TCP or UDP.
    pub transport: LoadTransport,
    /// Its connections.
    pub totals: ConnectionTotals,
    /// Its frames: sent are `offered_frames`, of the load `received_frames`.
    pub frames: Totals,
    /// Connections that were due and not begun; never failures.
    pub unsent_connections: u64,
    /// Requests that were due on open connections and not sent, because the tester was late.
    #[serde(default)]
    pub unsent_requests: u64,
    /// Requests that were due and not sent because every connection waited for an answer: the far end was
    /// the limit.
    #[serde(default)]
    pub waited_requests: u64,
    /// Of the unsent connections, because every combination of addresses and ports was in use.
    pub no_tuple: u64,
    /// Failed connections by cause; their sum is `totals.failed_connections`.
    pub failures: BTreeMap<String, u64>,
    /// Everything that was counted and is not 0, by name.
    pub counters: BTreeMap<String, u64>,
    /// Combinations of addresses and ports, of all workers.
    pub tuples: u64,
    /// From SYN to SYN-ACK; client.
    pub connect_ns: Summary,
    /// From a request to the first byte of its answer; client.
    pub first_byte_ns: Summary,
    /// From when a request was sent to the last byte of its answer; client.
    pub request_ns: Summary,
    /// From when it was due to the last byte of its answer; client, where a rate or an interval says when
    /// that is.
    #[serde(default)]
    pub request_due_ns: Summary,
    /// From when a request was sent to the last byte of its answer, ns; the same as `request_ns`.
    #[serde(default)]
    pub since_sent_ns: Summary,
    /// From when a request was due to the last byte of its answer, ns. Without a rate or an interval a request is
    /// due when it is sent.
    #[serde(default)]
    pub since_due_ns: Summary,
    /// Some answers over UDP did not tell their requests, so the order decided and times are estimates.
    #[serde(default)]
    pub latency_is_estimate: bool,
    /// The phases, in order.
    pub phases: Vec<LoadPhaseReport>,
    /// Of a server with routes, its answers by route; their sum is its responses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<LoadRouteReport>,
    /// Each worker.
    pub workers: Vec<LoadWorkerReport>,
    /// How often the link went down, and for how many ns.
    pub link_downs: u64,
    /// For how long, in ns.
    pub link_down_ns: u64,
}

/// One phase: `wait`, `ramp`, `steady` or `drain`; `ready` before the start of a server's clients. A server has the
/// phases of its clients where these belong to the same run. Else its `steady` is from the first frame of the load to
/// the last, as it may have waited for its clients, or stayed when they had gone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadPhaseReport {
    /// Which.
    pub phase: String,
    /// When it began, in ns since the start.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// What happened in it; `open_connections` is how many were open at its end, so attempted =
    /// completed + failed + (open now - open before).
    pub totals: ConnectionTotals,
    /// Connections that were due and not begun.
    pub unsent_connections: u64,
    /// New connections per second.
    pub cps: f64,
    /// Requests per second.
    pub rps: f64,
    /// Frames sent per second.
    pub tx_pps: f64,
    /// Frames of the load received per second.
    pub rx_pps: f64,
    /// Bits sent per second, layer 2 with FCS.
    pub tx_bps: f64,
    /// Bits received per second, layer 2 with FCS.
    pub rx_bps: f64,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadWorkerReport {
    /// Queue of the port.
    pub queue: u32,
    /// CPU it was pinned to, if any.
    pub cpu: Option<u32>,
    /// Its connections.
    pub totals: ConnectionTotals,
    /// Frames sent.
    pub tx_frames: u64,
    /// Frames of the load received.
    pub rx_frames: u64,
    /// Share of its time in which there was something to do, 0 to 1.
    pub busy: f64,
    /// The longest time between two looks at the port, in ns.
    pub longest_turn_ns: u64,
    /// How late it was.
    #[serde(default)]
    pub lateness: Lateness,
}

/// Where a load is.
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
    /// Not begun; servers answer already.
    #[default]
    Ready,
    /// Nothing is opened yet.
    Wait,
    /// The rate rises.
    Ramp,
    /// The duration.
    Steady,
    /// Nothing more is opened.
    Drain,
    /// Over.
    Done,
}

impl LoadStage {
    /// The name in reports: `ready`, `wait`, `ramp`, `steady`, `drain`, `done`.
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

/// Connections in a snapshot: of all clients, or, without clients, of all servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadLive {
    /// Where it is.
    pub phase: LoadStage,
    /// Counts so far.
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
    /// Mean time from a request to the end of its answer in the interval, ns.
    pub request_mean_ns: Option<f64>,
}
