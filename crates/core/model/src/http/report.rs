//! Results of HTTP loads in reports and snapshots.

use std::collections::BTreeMap;

use derive_more::{Add, AddAssign, Sub};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::Merge;

use crate::{lateness::Lateness, report::Times};

/// HTTP loads of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpReport {
    /// Results of each job, in order.
    pub jobs: Vec<HttpJobReport>,
    /// SYN segments that the kernel retransmitted during the run, for all programs of the network namespace; null over
    /// `--port`. Connection times include the wait.
    #[serde(default)]
    pub repeated_syns: Option<u64>,
}

impl HttpReport {
    /// All jobs as one; `None` without jobs.
    #[must_use]
    pub fn as_one_job(&self) -> Option<HttpJobReport> {
        let (first, rest) = self.jobs.split_first()?;
        let mut all = first.clone();
        rest.iter().for_each(|job| all.merge(job));
        Some(all)
    }
}

/// Requests and connections, each counted once: `sent = completed + failed + in_flight`, `attempted = established +
/// refused + connecting`, `established + warm_up_connections = closed + broken + open`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Add,
    AddAssign,
    Sub,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub struct HttpTotals {
    /// Requests that were at least partly passed to the transport.
    pub sent: u64,
    /// Requests with a complete response that meets all conditions.
    pub completed: u64,
    /// Requests that were due but never sent: no connection was free, or the time was over.
    pub unsent: u64,
    /// Requests that ended without such a response, by cause.
    pub failed: HttpFailures,
    /// Requests without a response at the end of the run.
    pub in_flight: u64,
    /// Requests repeated over another connection because the server reported that it had not processed them (HTTP/2,
    /// HTTP/3). `sent` counts each request once.
    #[serde(default)]
    pub retried: u64,
    /// Requests of the warm-up, which all other counts exclude.
    pub warm_up: u64,
    /// Completed responses with a status of 400 or more.
    pub error_responses: u64,
    /// Connections started.
    pub attempted_connections: u64,
    /// Connections established, including TLS if it is used.
    pub established_connections: u64,
    /// Connections that could not be established, by cause.
    pub refused_connections: HttpFailures,
    /// Connections not yet established at the end of the run.
    pub connecting: u64,
    /// Connections of the warm-up that were open at its end: included in `closed`, `broken` and `open`, but not in
    /// `established`.
    #[serde(default)]
    pub warm_up_connections: u64,
    /// Connections that either end closed in order.
    pub closed_connections: u64,
    /// Connections that ended during an exchange.
    pub broken_connections: u64,
    /// Connections open at the end of the run.
    pub open_connections: u64,
    /// Bytes of requests, before TLS.
    pub sent_bytes: u64,
    /// Bytes of responses, after TLS.
    pub received_bytes: u64,
    /// Part of the received bytes in bodies, without chunk framing.
    pub body_bytes: u64,
}

impl HttpTotals {
    /// Subtracts connections and bytes that were counted by the end of the warm-up. Requests of the warm-up are not
    /// part of these counts.
    #[must_use]
    pub fn without_warm_up(self, then: &Self) -> Self {
        let refused = then.refused_connections;
        Self {
            // Connections that were not yet established count after the warm-up.
            attempted_connections: self.attempted_connections
                - then.established_connections
                - refused.sum(),
            established_connections: self.established_connections - then.established_connections,
            refused_connections: self.refused_connections - refused,
            closed_connections: self.closed_connections - then.closed_connections,
            broken_connections: self.broken_connections - then.broken_connections,
            warm_up_connections: then.established_connections
                - then.closed_connections
                - then.broken_connections,
            sent_bytes: self.sent_bytes - then.sent_bytes,
            received_bytes: self.received_bytes - then.received_bytes,
            body_bytes: self.body_bytes - then.body_bytes,
            ..self
        }
    }

    /// Returns true if every request and connection is counted once.
    #[must_use]
    pub const fn adds_up(&self) -> bool {
        self.sent == self.completed + self.failed.sum() + self.in_flight
            && self.attempted_connections
                == self.established_connections + self.refused_connections.sum() + self.connecting
            && self.established_connections + self.warm_up_connections
                == self.closed_connections + self.broken_connections + self.open_connections
    }
}

/// Failures by cause.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Add,
    AddAssign,
    Sub,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub struct HttpFailures {
    /// No connection: the server's port refused it.
    pub refused: u64,
    /// No connection: the Unix domain socket does not exist.
    #[serde(default)]
    pub no_socket: u64,
    /// No local address, port or descriptor was left.
    pub exhausted: u64,
    /// The TLS handshake failed, or a record could not be read.
    pub tls: u64,
    /// Time above `timeout`.
    pub timeout: u64,
    /// Connection setup took longer than `connect_timeout`.
    #[serde(default)]
    pub connect_timeout: u64,
    /// The first byte of the response took longer than `first_byte_timeout`.
    #[serde(default)]
    pub first_byte_timeout: u64,
    /// The connection was silent for longer than the server allows (HTTP/3).
    #[serde(default)]
    pub idle_timeout: u64,
    /// Server and tester have no common version of QUIC (HTTP/3).
    #[serde(default)]
    pub version: u64,
    /// The server reset the connection.
    pub reset: u64,
    /// The server closed the connection before the response was complete.
    pub closed: u64,
    /// The response is not valid HTTP.
    pub malformed: u64,
    /// The server reset the request's stream (HTTP/2, HTTP/3); `http2.resets` or `http3.resets` has the codes.
    #[serde(default)]
    pub stream_reset: u64,
    /// The server closed the connection and reported that it had not processed the request (HTTP/2, HTTP/3).
    #[serde(default)]
    pub unprocessed: u64,
    /// The response does not meet the conditions of `check`.
    pub check: u64,
    /// The script failed, or another system error occurred.
    pub other: u64,
}

impl HttpFailures {
    /// Returns the sum of all causes.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        let causes = self.by_cause();
        let (mut sum, mut at) = (0_u64, 0);
        while at < causes.len() {
            sum = sum.saturating_add(causes[at].1);
            at += 1;
        }
        sum
    }

    /// Returns the name and the count of each cause.
    #[must_use]
    pub const fn by_cause(&self) -> [(&'static str, u64); 16] {
        [
            ("refused", self.refused),
            ("no_socket", self.no_socket),
            ("exhausted", self.exhausted),
            ("tls", self.tls),
            ("timeout", self.timeout),
            ("connect_timeout", self.connect_timeout),
            ("first_byte_timeout", self.first_byte_timeout),
            ("idle_timeout", self.idle_timeout),
            ("version", self.version),
            ("reset", self.reset),
            ("closed", self.closed),
            ("malformed", self.malformed),
            ("stream_reset", self.stream_reset),
            ("unprocessed", self.unprocessed),
            ("check", self.check),
            ("other", self.other),
        ]
    }
}

/// Results of one job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpJobReport {
    /// Name from the plan, or `http 1`.
    pub name: String,
    /// URL of the requests.
    pub url: String,
    /// Addresses of the server that were used.
    pub addresses: Vec<String>,
    /// Request and connection counts.
    pub totals: HttpTotals,
    /// Time in which requests were started, without the warm-up, in ns.
    pub duration_ns: u64,
    /// Completed requests per second over that time.
    pub requests_per_second: f64,
    /// Connections established per second over that time.
    pub connections_per_second: f64,
    /// Bits of responses per second over that time.
    pub received_bps: f64,
    /// Connections open at the end of that time.
    #[serde(default)]
    pub steady_open_connections: u64,
    /// Time from the scheduled start of a request to the last byte of its response, in ns; equal to `since_due_ns`.
    /// Without a rate, requests are scheduled when they are sent.
    pub latency_ns: Times,
    /// Time from the scheduled start of a request to the last byte of its response, in ns.
    #[serde(default)]
    pub since_due_ns: Times,
    /// Time from a request to the last byte of its response, in ns.
    #[serde(default)]
    pub since_sent_ns: Times,
    /// Time from a request to the last byte of its response, in ns; only if it differs from `latency_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ns: Option<Times>,
    /// Time from a request to the first byte of its response, in ns.
    pub first_byte_ns: Times,
    /// Time from the first packet to an established connection, in ns: TCP, or QUIC with its TLS handshake.
    pub connect_ns: Times,
    /// TLS statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<HttpTlsReport>,
    /// HTTP/2 statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2Report>,
    /// HTTP/3 and QUIC statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http3: Option<Http3Report>,
    /// Responses by status.
    pub statuses: BTreeMap<String, u64>,
    /// `latency_ns` by class of status: `2xx`, `3xx`, `4xx`, `5xx`, for classes that occurred.
    #[serde(default)]
    pub classes: BTreeMap<String, Times>,
    /// Results of each request of the set.
    pub requests: Vec<HttpRequestReport>,
    /// Results of each thread.
    pub threads: Vec<HttpThreadReport>,
    /// Error of the first response that did not meet `check` or was not valid HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// Number of distinct bodies, by request, if digests were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<String>,
    /// Times and rates without rounding, if requested.
    #[serde(skip)]
    pub exact: Option<ExactTimes>,
}

/// TLS statistics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpTlsReport {
    /// Negotiated versions and ciphers, with the number of connections.
    pub agreed: BTreeMap<String, u64>,
    /// Full handshakes.
    pub full_handshakes: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed_handshakes: u64,
    /// Time from an established TCP connection to the end of the handshake, in ns; with HTTP/3 both are one,
    /// `connect_ns`.
    pub handshake_ns: Times,
}

/// HTTP/2 statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Http2Report {
    /// Requested number of concurrent streams.
    pub streams: u32,
    /// Minimum number of streams that the server allowed on a connection (SETTINGS_MAX_CONCURRENT_STREAMS), if it sent
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_streams: Option<u32>,
    /// Maximum number of concurrent streams on a connection.
    pub most_streams: u32,
    /// Streams that the server reset, by code.
    pub resets: BTreeMap<String, u64>,
    /// Connections on which the server sent GOAWAY, by code.
    pub goaways: BTreeMap<String, u64>,
    /// Requests cancelled because they took longer than `timeout`.
    pub cancelled: u64,
}

/// HTTP/3 and QUIC statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Http3Report {
    /// Requested number of concurrent streams.
    pub streams: u32,
    /// Maximum number of concurrent streams on a connection.
    pub most_streams: u32,
    /// Number of times that a connection waited because the server allowed no more streams.
    pub stream_waits: u64,
    /// Streams that the server reset, by code.
    pub resets: BTreeMap<String, u64>,
    /// Connections on which the server sent GOAWAY.
    pub goaways: u64,
    /// Connections that the server closed, by code.
    pub closes: BTreeMap<String, u64>,
    /// Requests cancelled because they took too long.
    pub cancelled: u64,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// Part of the sent packets that QUIC counted as lost.
    pub lost_packets: u64,
    /// UDP datagrams sent.
    pub sent_datagrams: u64,
    /// UDP datagrams received.
    pub received_datagrams: u64,
}

/// Results of one request of the set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpRequestReport {
    /// Name of the request.
    pub name: String,
    /// Number of requests sent.
    pub sent: u64,
    /// Number of requests with a complete response.
    pub completed: u64,
    /// Number of requests that failed.
    pub failed: u64,
    /// Latency in ns, as in the job.
    pub latency_ns: Times,
}

/// Results of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpThreadReport {
    /// Number of connections.
    pub connections: u32,
    /// Request and connection counts.
    pub totals: HttpTotals,
    /// CPU time used, in ns.
    pub cpu_ns: u64,
    /// Lateness of the thread.
    pub lateness: Lateness,
}

/// Times in whole microseconds, and rates, each with its frequency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExactTimes {
    /// Response times, in µs.
    pub latency_us: Vec<(u64, u64)>,
    /// Responses per second of each thread in each tenth of a second.
    pub rates: Vec<(u64, u64)>,
    /// Responses that took longer than `timeout`; they have no time.
    pub timeouts: u64,
    /// Errors in wrk's categories: connect, read, write.
    pub errors: [u64; 3],
    /// All responses, including interim responses.
    pub responses: u64,
    /// Responses with a status above 399.
    pub status_errors: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Time from the start of the threads to the end of the last, in µs.
    pub elapsed_us: u64,
}

/// Current figures of running HTTP loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpLive {
    /// Requests completed in the interval, per second.
    pub requests_per_second: f64,
    /// Connections established in the interval, per second.
    pub connections_per_second: f64,
    /// Bits of responses in the interval, per second.
    pub received_bps: f64,
    /// Mean time of the responses in the interval, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_mean_ns: Option<f64>,
    /// Counts since the start.
    pub totals: HttpTotals,
}
