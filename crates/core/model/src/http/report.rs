//! What became of HTTP loads: the part of a report, and of a snapshot, that they have.

use std::collections::BTreeMap;

use derive_more::{Add, AddAssign, Sub};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{lateness::Lateness, report::Summary};

/// The HTTP loads of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpReport {
    /// Each job, in order.
    pub jobs: Vec<HttpJobReport>,
    /// SYN segments that the kernel sent again during the run, for all programs of the network namespace; null over
    /// `--port`. Times to connect include the wait.
    #[serde(default)]
    pub repeated_syns: Option<u64>,
}

/// Requests and connections, each counted once: `sent = completed + failed + in_flight`,
/// `attempted = established + refused + connecting`, `established + warm_up_connections = closed + broken + open`.
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
    /// Requests whose first byte was handed over.
    pub sent: u64,
    /// Requests with a whole answer that is as it must be.
    pub completed: u64,
    /// Requests that were due and never sent: no connection was free, or the time was over.
    pub unsent: u64,
    /// Requests that ended without such an answer, by cause.
    pub failed: HttpFailures,
    /// Requests without an answer when the run was over.
    pub in_flight: u64,
    /// Requests asked again over another connection, because the server said that it had not processed them
    /// (HTTP/2, HTTP/3). `sent` has each once.
    #[serde(default)]
    pub retried: u64,
    /// Requests of the warm-up, which none of the others have.
    pub warm_up: u64,
    /// Completed answers with a status of 400 or more.
    pub error_responses: u64,
    /// Connections begun.
    pub attempted_connections: u64,
    /// Connections that were made, with TLS where it is asked for.
    pub established_connections: u64,
    /// Connections that could not be made, by cause.
    pub refused_connections: HttpFailures,
    /// Connections not yet made when the run was over.
    pub connecting: u64,
    /// Connections of the warm-up that were open at its end: `closed`, `broken` and `open` have them, `established`
    /// has not.
    #[serde(default)]
    pub warm_up_connections: u64,
    /// Connections that ended in order, by either end.
    pub closed_connections: u64,
    /// Connections that ended in the middle of something.
    pub broken_connections: u64,
    /// Connections open when the run was over.
    pub open_connections: u64,
    /// Bytes of requests, before TLS.
    pub sent_bytes: u64,
    /// Bytes of answers, after TLS.
    pub received_bytes: u64,
    /// Of these, bytes of bodies, without the marks of chunks.
    pub body_bytes: u64,
}

impl HttpTotals {
    /// Subtracts connections and bytes that were counted by the end of the warm-up. Requests of the warm-up are not
    /// among them.
    #[must_use]
    pub fn without_warm_up(self, then: &Self) -> Self {
        let refused = then.refused_connections;
        Self {
            // Connections that were being made belong to the time after it.
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

    /// Whether all is counted once.
    #[must_use]
    pub const fn adds_up(&self) -> bool {
        self.sent == self.completed + self.failed.sum() + self.in_flight
            && self.attempted_connections
                == self.established_connections + self.refused_connections.sum() + self.connecting
            && self.established_connections + self.warm_up_connections
                == self.closed_connections + self.broken_connections + self.open_connections
    }
}

/// What went wrong, by cause.
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
    /// No connection: nobody listens there.
    pub refused: u64,
    /// No connection: the socket of the file system does not exist.
    #[serde(default)]
    pub no_socket: u64,
    /// No address, port or descriptor of ours was left.
    pub exhausted: u64,
    /// The TLS handshake failed, or a record could not be read.
    pub tls: u64,
    /// It took longer than `timeout`.
    pub timeout: u64,
    /// A connection took longer than `connect_timeout` to be made.
    #[serde(default)]
    pub connect_timeout: u64,
    /// The first byte of the answer took longer than `first_byte_timeout`.
    #[serde(default)]
    pub first_byte_timeout: u64,
    /// Nothing came for as long as the server lets a connection be silent (HTTP/3).
    #[serde(default)]
    pub idle_timeout: u64,
    /// The server speaks no version of QUIC that we do (HTTP/3).
    #[serde(default)]
    pub version: u64,
    /// The server reset the connection.
    pub reset: u64,
    /// The server closed the connection before the answer was whole.
    pub closed: u64,
    /// What came is no HTTP.
    pub malformed: u64,
    /// The server reset the request's stream (HTTP/2, HTTP/3); `http2.resets` or `http3.resets` has the codes.
    #[serde(default)]
    pub stream_reset: u64,
    /// The server went away and said that it had not looked at the request (HTTP/2, HTTP/3).
    #[serde(default)]
    pub unprocessed: u64,
    /// The answer is not what `check` asks for.
    pub check: u64,
    /// The script broke, or another error of the system.
    pub other: u64,
}

impl HttpFailures {
    /// All of them.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.refused
            + self.no_socket
            + self.exhausted
            + self.tls
            + self.timeout
            + self.connect_timeout
            + self.first_byte_timeout
            + self.idle_timeout
            + self.version
            + self.reset
            + self.closed
            + self.malformed
            + self.stream_reset
            + self.unprocessed
            + self.check
            + self.other
    }

    /// Each cause in words, with its count.
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

/// One job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpJobReport {
    /// Name from the plan, or `http 1`.
    pub name: String,
    /// Where it went.
    pub url: String,
    /// The addresses behind it that were used.
    pub addresses: Vec<String>,
    /// Requests and connections.
    pub totals: HttpTotals,
    /// Time in which requests were begun, without the warm-up, ns.
    pub duration_ns: u64,
    /// Completed requests per second of that time.
    pub requests_per_second: f64,
    /// Connections established per second of that time.
    pub connections_per_second: f64,
    /// Bits of answers per second of that time.
    pub received_bps: f64,
    /// From when a request was due to the last byte of its answer, ns; the same as `since_due_ns`. Without a rate a
    /// request is due when it is sent.
    pub latency_ns: Summary,
    /// From when a request was due to the last byte of its answer, ns.
    #[serde(default)]
    pub since_due_ns: Summary,
    /// From when a request was sent to the last byte of its answer, ns.
    #[serde(default)]
    pub since_sent_ns: Summary,
    /// From when a request was sent to the last byte of its answer, where that is another time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ns: Option<Summary>,
    /// From when a request was sent to the first byte of its answer.
    pub first_byte_ns: Summary,
    /// From the first packet to an established connection: TCP's, or QUIC's with its TLS.
    pub connect_ns: Summary,
    /// What TLS did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<HttpTlsReport>,
    /// What HTTP/2 did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2Report>,
    /// What HTTP/3 and QUIC did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http3: Option<Http3Report>,
    /// Answers by status.
    pub statuses: BTreeMap<String, u64>,
    /// `latency_ns` by class of status: `2xx`, `3xx`, `4xx`, `5xx`, as far as any came.
    #[serde(default)]
    pub classes: BTreeMap<String, Summary>,
    /// Each request of the set.
    pub requests: Vec<HttpRequestReport>,
    /// Each thread.
    pub threads: Vec<HttpThreadReport>,
    /// What was wrong with the first answer that `check` refused, or that was no HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// How many different bodies came, by request, where digests were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<String>,
    /// Times and rates with nothing rounded, where they were asked for.
    #[serde(skip)]
    pub exact: Option<ExactTimes>,
}

/// What TLS did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpTlsReport {
    /// Versions and ciphers that were agreed on, with how many connections did.
    pub agreed: BTreeMap<String, u64>,
    /// Whole handshakes.
    pub full_handshakes: u64,
    /// Handshakes that took up an earlier session.
    pub resumed_handshakes: u64,
    /// From an established TCP connection to the end of the handshake; with HTTP/3 both are one, `connect_ns`.
    pub handshake_ns: Summary,
}

/// What HTTP/2 did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Http2Report {
    /// Streams at a time that were asked for.
    pub streams: u32,
    /// The fewest that the server allowed a connection (SETTINGS_MAX_CONCURRENT_STREAMS), if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_streams: Option<u32>,
    /// The most that were under way on a connection.
    pub most_streams: u32,
    /// Streams that the server reset, by code.
    pub resets: BTreeMap<String, u64>,
    /// Connections on which the server said that it goes away, by code.
    pub goaways: BTreeMap<String, u64>,
    /// Requests that we cancelled because they took longer than `timeout`.
    pub cancelled: u64,
}

/// What HTTP/3 and QUIC did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Http3Report {
    /// Streams at a time that were asked for.
    pub streams: u32,
    /// The most that were under way on a connection.
    pub most_streams: u32,
    /// How often a connection had to wait because the server allowed no more streams.
    pub stream_waits: u64,
    /// Streams that the server reset, by code.
    pub resets: BTreeMap<String, u64>,
    /// Connections on which the server said that it goes away (GOAWAY).
    pub goaways: u64,
    /// Connections that the server closed, by code.
    pub closes: BTreeMap<String, u64>,
    /// Requests that we cancelled because they took too long.
    pub cancelled: u64,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// Of these, packets that QUIC counted as lost.
    pub lost_packets: u64,
    /// UDP datagrams sent.
    pub sent_datagrams: u64,
    /// UDP datagrams received.
    pub received_datagrams: u64,
}

/// A request of the set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpRequestReport {
    /// Its name.
    pub name: String,
    /// How many were sent.
    pub sent: u64,
    /// How many have a whole answer.
    pub completed: u64,
    /// How many failed.
    pub failed: u64,
    /// As that of the job.
    pub latency_ns: Summary,
}

/// A thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpThreadReport {
    /// Its connections.
    pub connections: u32,
    /// Its requests and connections.
    pub totals: HttpTotals,
    /// CPU time it has used, ns.
    pub cpu_ns: u64,
    /// How late it was.
    pub lateness: Lateness,
}

/// Times in whole microseconds, and rates, each with how often it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExactTimes {
    /// Times of answers, µs.
    pub latency_us: Vec<(u64, u64)>,
    /// Answers per second, of each thread in each tenth of a second.
    pub rates: Vec<(u64, u64)>,
    /// Answers that took longer than `timeout`, of which there is no time.
    pub timeouts: u64,
    /// Errors as wrk counts them: connect, read, write.
    pub errors: [u64; 3],
    /// All answers, interim ones too.
    pub responses: u64,
    /// Those with a status above 399.
    pub status_errors: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// From the start of the threads to the end of the last, µs.
    pub elapsed_us: u64,
}

/// How HTTP loads go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpLive {
    /// Requests completed in the interval, per second.
    pub requests_per_second: f64,
    /// Connections established in it, per second.
    pub connections_per_second: f64,
    /// Bits of answers in it, per second.
    pub received_bps: f64,
    /// Mean time of the answers in it, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_mean_ns: Option<f64>,
    /// So far.
    pub totals: HttpTotals,
}
