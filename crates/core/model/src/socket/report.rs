//! Results of socket tests in reports and snapshots.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SocketProtocol, SocketTest};
use crate::report::Summary;

/// Socket tests of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketReport {
    /// Tests in order. A failed test has the results until its failure.
    pub jobs: Vec<SocketJobReport>,
    /// Server, if the run was a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<SocketServerReport>,
}

/// Results of one test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketJobReport {
    /// Name from the plan, or `test 1`.
    pub name: String,
    /// Sweep: varied parameters with their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub point: Vec<(String, String)>,
    /// Test type.
    pub test: SocketTest,
    /// Transport protocol.
    pub protocol: SocketProtocol,
    /// Address and port of the server's control connection.
    pub server: String,
    /// Name of the server from the resolver.
    pub server_name: String,
    /// Local address of the control connection.
    pub client: String,
    /// Server address and port of the data connection, for the first stream of the last iteration.
    pub data_server: String,
    /// Local address and port of the data connection.
    pub data_client: String,
    /// Interface towards the server and its speed, if known: `eth0 1 Gbit/s`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// True if the server is wirebench and accepted the extensions that were requested.
    pub extended: bool,
    /// Means over the iterations.
    pub result: SocketFigures,
    /// Results of each iteration.
    pub iterations: Vec<SocketFigures>,
    /// Confidence intervals of the means, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<ConfidenceReport>,
    /// Local end in the last iteration; sums over the streams.
    pub local: SocketEndReport,
    /// Remote end in the last iteration; sums over the streams.
    pub remote: SocketEndReport,
    /// Maximum segment size of the data connection in bytes (TCP_MAXSEG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u32>,
    /// Duration of an operation over all iterations, in ns: a transaction; a connection with its data; a send or
    /// receive call of a stream. With a requested rate, from the scheduled time.
    pub latency_ns: Summary,
    /// 95th percentile of the duration, in ns, in addition to the percentiles of the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_p95_ns: Option<i64>,
    /// Duration of an operation on the idle path, before `load_streams` start, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_latency_ns: Option<Summary>,
    /// Throughput of the streams that loaded the path, in bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_bps: Option<f64>,
    /// Datagram counts, from their sequence numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramReport>,
    /// Results of each stream in the last iteration.
    #[serde(default)]
    pub streams: Vec<SocketStreamReport>,
    /// Fairness between the streams: (Σx)² ÷ (n·Σx²) (Jain), 1 for equal shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// Results of each interval of the last iteration, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<SocketInterval>,
    /// Error that ended the test early. Results until then remain valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<SocketFailure>,
    /// Warnings for the interpretation of the figures, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl SocketJobReport {
    /// Returns the segments that the sending end retransmitted; for streams in both directions, the sum of both ends.
    #[must_use]
    pub fn retransmissions(&self) -> Option<u64> {
        let (here, there) = (self.local.retransmissions, self.remote.retransmissions);
        match self.test {
            SocketTest::Receive => there,
            SocketTest::Both => Some(here? + there?),
            _ => here,
        }
    }
}

/// Results of an iteration, or their means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketFigures {
    /// Elapsed time in s, from before the first operation until the connection was closed, measured by the client and
    /// without the omitted time.
    pub elapsed_s: f64,
    /// Throughput in bits per second: for a stream, bytes received by the receiver ÷ elapsed; for other tests, requests
    /// and responses. With several streams: their sum over the time in which all were running.
    pub throughput_bps: f64,
    /// Streams of `both`: throughput from the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse_bps: Option<f64>,
    /// Bytes sent by this end ÷ elapsed, in bits per second.
    pub sent_bps: f64,
    /// Transactions ÷ elapsed time.
    pub transactions_per_second: f64,
    /// Number of transactions.
    pub transactions: u64,
    /// CPU utilization of this end, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_cpu: Option<CpuUse>,
    /// CPU utilization of the server, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_cpu: Option<CpuUse>,
    /// CPU time of this end, in µs per KiB of a stream or per transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_service_demand: Option<f64>,
    /// CPU time of the server, in µs per KiB of a stream or per transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_service_demand: Option<f64>,
}

/// CPU utilization of a host, in percent of all its CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuUse {
    /// Total utilization: 100 − idle.
    pub total: f64,
    /// User mode, niced processes included.
    pub user: f64,
    /// Kernel mode.
    pub system: f64,
    /// Idle while waiting for a disk.
    pub iowait: f64,
    /// Interrupts.
    pub irq: f64,
    /// Soft interrupts.
    pub softirq: f64,
    /// Number of CPUs.
    pub cpus: u32,
    /// Number of the busiest CPU.
    pub peak_cpu: i32,
    /// Utilization of the busiest CPU.
    pub peak: f64,
}

impl CpuUse {
    /// Returns all fields that are percentages.
    pub fn shares_mut(&mut self) -> [&mut f64; 7] {
        [
            &mut self.total,
            &mut self.user,
            &mut self.system,
            &mut self.iowait,
            &mut self.irq,
            &mut self.softirq,
            &mut self.peak,
        ]
    }
}

/// Confidence intervals of the means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfidenceReport {
    /// Confidence level in percent.
    pub level: u8,
    /// Requested width in percent of the mean.
    pub width: f64,
    /// True if the requested width was reached.
    pub reached: bool,
    /// Width of the interval of the result, in percent of the mean.
    pub result: f64,
    /// Width of the interval of the local CPU utilization; 0 if not measured.
    pub local_cpu: f64,
    /// Width of the interval of the server's CPU utilization; 0 if not measured.
    pub remote_cpu: f64,
}

/// One end of the data connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketEndReport {
    /// SO_SNDBUF in bytes: requested, at the start, at the end.
    pub send_buffer: [Option<u32>; 3],
    /// SO_RCVBUF in bytes: requested, at the start, at the end.
    pub receive_buffer: [Option<u32>; 3],
    /// Bytes per send call of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_size: Option<u32>,
    /// Bytes per receive call of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_size: Option<u32>,
    /// Number of send buffers used in turn.
    pub send_width: u32,
    /// Number of receive buffers used in turn.
    pub receive_width: u32,
    /// Successful send calls; for batched datagrams, the number of datagrams.
    pub send_calls: u64,
    /// Successful receive calls.
    pub receive_calls: u64,
    /// Sends that failed because no buffer was available (ENOBUFS, ENOMEM).
    pub failed_sends: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// TCP_NODELAY in effect.
    pub no_delay: bool,
    /// Congestion control in effect; empty if there is none.
    pub congestion: String,
    /// Retransmitted segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmissions: Option<u64>,
    /// SO_PRIORITY in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// TOS in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos: Option<i32>,
    /// Accepted burst length of paced sending.
    pub burst: u32,
    /// Interval between bursts, in µs.
    pub burst_interval_us: u32,
    /// Zero copy: completed sends, by method: `zero-copy`, `copied`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub completions: BTreeMap<String, u64>,
    /// TCP_INFO of the first stream at the end of the last iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSample>,
    /// Part of these counts that falls into the time of `omit`, if this end reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<SocketOmitted>,
}

/// Counts of the time of `omit`. The counts of an end or a stream include it; rates, times and intervals do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketOmitted {
    /// Bytes sent and received.
    pub bytes: u64,
    /// Number of transactions.
    pub transactions: u64,
    /// Send and receive calls; null if the end does not report it.
    pub calls: Option<u64>,
    /// Retransmitted segments; null if the end does not report it.
    pub retransmissions: Option<u64>,
}

impl SocketOmitted {
    /// Returns the sum of two streams.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        Self {
            bytes: self.bytes + more.bytes,
            transactions: self.transactions + more.transactions,
            calls: sum(self.calls, more.calls),
            retransmissions: sum(self.retransmissions, more.retransmissions),
        }
    }
}

/// TCP metrics of a connection (TCP_INFO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpSample {
    /// Smoothed round-trip time, in µs.
    pub rtt_us: u32,
    /// Mean deviation of the round-trip time, in µs.
    pub rtt_var_us: u32,
    /// Minimum round-trip time, in µs.
    pub min_rtt_us: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Slow start threshold, in segments.
    pub ssthresh: u32,
    /// Segments retransmitted since the start.
    pub retransmissions: u32,
    /// Segments currently considered lost.
    pub lost: u32,
    /// Reordering distance, in segments.
    pub reordering: u32,
    /// Segment size, in bytes.
    pub mss: u32,
    /// Path MTU, in bytes.
    pub path_mtu: u32,
    /// Retransmission timeout, in µs.
    pub rto_us: u32,
    /// Delayed acknowledgement timeout, in µs.
    pub ato_us: u32,
    /// Slow start threshold of the receiver.
    pub receive_ssthresh: u32,
    /// Pacing rate, in bits per second.
    pub pacing_bps: u64,
    /// Delivery rate, in bits per second.
    pub delivery_bps: u64,
    /// Bytes acknowledged since the start.
    pub bytes_acked: u64,
    /// Bytes received since the start.
    pub bytes_received: u64,
    /// Bytes not sent yet.
    pub not_sent: u32,
    /// Time with data to send, in µs.
    pub busy_us: u64,
    /// Part of the busy time limited by the peer's window, in µs.
    pub receiver_limited_us: u64,
    /// Part of the busy time limited by the send buffer, in µs.
    pub buffer_limited_us: u64,
    /// Round-trip time estimate of the receiver, in µs.
    pub receive_rtt_us: u32,
    /// Target size of the receive buffer, in bytes.
    pub receive_space: u32,
}

/// Datagram counts of a stream, from the sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatagramReport {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that arrived, duplicates included.
    pub received: u64,
    /// sent − (received − duplicate).
    pub lost: u64,
    /// Duplicate datagrams.
    pub duplicate: u64,
    /// Datagrams that arrived after a later one (RFC 4689).
    pub reordered: u64,
    /// Datagrams without a tag of the test.
    pub foreign: u64,
    /// RFC 3550 jitter at the end, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_rfc3550_ns: Option<f64>,
    /// One-way delay, in ns. Between two hosts it includes the offset of their clocks.
    pub one_way_ns: Summary,
}

/// Results of one of several parallel streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketStreamReport {
    /// Direction and a number from 1: `up`, `down`, `rr`, …
    pub name: String,
    /// Throughput over the time in which all streams were running, in bits per second.
    pub throughput_bps: f64,
    /// Transactions per second over that time.
    pub transactions_per_second: f64,
    /// Bytes sent by this end.
    pub bytes_sent: u64,
    /// Bytes received by this end.
    pub bytes_received: u64,
    /// Bytes sent by the server, as the server reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_bytes_sent: Option<u64>,
    /// Bytes received by the server, as the server reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_bytes_received: Option<u64>,
    /// Segments retransmitted by the sending end: this end, or the server for a stream from the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmissions: Option<u64>,
    /// TCP_INFO of the sending end at the end of the test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSample>,
    /// Datagram counts, from the sequence numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramReport>,
    /// Duration of an operation, in ns.
    pub latency_ns: Summary,
    /// Part of its counts that falls into the time of `omit`, at this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<SocketOmitted>,
    /// Part of its counts that falls into the time of `omit`, at the server, if the server reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_omitted: Option<SocketOmitted>,
}

/// Results of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketInterval {
    /// Start of the interval, in s since the start of the iteration.
    pub from_s: f64,
    /// End of the interval, in s since the start of the iteration.
    pub to_s: f64,
    /// Wall clock at the end of the interval, in s since 1970.
    pub ended_s: f64,
    /// Bytes (sent or received by this end) or transactions.
    pub units: u64,
    /// Streams: received bits per second; for a TCP sender, acknowledged bits per second.
    pub throughput_bps: f64,
    /// Part of the throughput towards the server, in bits per second. Null if no stream has this direction.
    #[serde(default)]
    pub up_bps: Option<f64>,
    /// Part of the throughput from the server, in bits per second. Null if no stream has this direction.
    #[serde(default)]
    pub down_bps: Option<f64>,
    /// Transactions per second of all other tests.
    pub transactions_per_second: f64,
    /// Duration of an operation in this interval, in ns; only if requested.
    pub latency_ns: Summary,
    /// TCP_INFO of each stream at the end of the interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<TcpSample>,
    /// Results of each stream, in the order of the report's `streams`.
    #[serde(default)]
    pub streams: Vec<SocketIntervalStream>,
}

/// Results of one stream in an interval, as far as this end knows them. A field is null if only the other end knows the
/// value, which it does not send during the test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketIntervalStream {
    /// Name as in the report's `streams`: `up 1`. Names of streams that only load the path begin with `load`.
    pub name: String,
    /// Direction of the data.
    pub direction: SocketDirection,
    /// Bytes (sent or received by this end) or transactions.
    pub units: u64,
    /// Streams: received bits per second; for a TCP sender, acknowledged bits per second; for a sender of datagrams,
    /// sent bits per second.
    pub throughput_bps: f64,
    /// Transactions per second of all other tests.
    pub transactions_per_second: f64,
    /// Segments retransmitted by this end. Null if the server sends, and without TCP.
    pub retransmissions: Option<u64>,
    /// Congestion window of this end at the end of the interval, in segments. Null if the server sends, and without
    /// TCP.
    pub cwnd: Option<u32>,
    /// Smoothed round-trip time at the end of the interval, in µs. Null if the server sends, and without TCP.
    pub rtt_us: Option<u32>,
    /// Datagrams that this end sent or received, duplicates included.
    pub datagrams: Option<u64>,
    /// Numbered datagrams that this end found missing, less those of earlier intervals that arrived after all; it may
    /// therefore be negative. Null if none arrived, and if the server receives.
    pub lost: Option<i64>,
    /// RFC 3550 jitter of the datagrams at the end of the interval, in ns. Null in the same cases as `lost`.
    pub jitter_rfc3550_ns: Option<f64>,
}

/// Direction of the data of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SocketDirection {
    /// To the server.
    Up,
    /// From the server.
    Down,
    /// Both directions: requests and responses, and connections.
    #[default]
    Both,
}

/// Error that ended a test early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketFailure {
    /// Stage of the test in which the error occurred.
    pub stage: SocketStage,
    /// Error message, one line.
    pub what: String,
    /// System error number of this end or of the server, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// Stage of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SocketStage {
    /// Name resolution of the server or of the local end.
    Resolve,
    /// Setup of the control connection.
    Connect,
    /// The server refused the test or could not run it.
    Remote,
    /// The control connection ended or carried an invalid message.
    Control,
    /// Setup of the local socket with the requested options.
    Socket,
    /// Data connection.
    Data,
}

/// Counts of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketServerReport {
    /// Control connections accepted.
    pub clients: u64,
    /// Connections rejected because the limit was reached.
    pub turned_away: u64,
    /// Data connections closed because they came from an address other than the client of a test.
    #[serde(default)]
    pub strangers: u64,
    /// Connections closed because they were silent for too long or sent invalid messages.
    pub given_up: u64,
    /// Connections without the passphrase.
    pub unauthorised: u64,
    /// Tests started.
    pub tests: u64,
    /// Tests with results that were sent to the client.
    pub completed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Bytes received by tests.
    pub bytes_received: u64,
    /// Bytes sent by tests.
    pub bytes_sent: u64,
}

/// State of a running socket test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketLive {
    /// Number of the job, from 0.
    pub job: u32,
    /// Total number of jobs.
    pub jobs: u32,
    /// Number of the iteration, from 1.
    pub iteration: u32,
    /// Bytes or transactions in the interval.
    pub units: u64,
    /// True if the units are transactions.
    pub transactions: bool,
    /// Length of the interval, in s.
    pub interval_s: f64,
    /// Wall clock at the end of the interval, in s since 1970.
    pub ended_s: f64,
    /// Bytes or transactions of the iteration.
    pub total: u64,
    /// Server: number of connected clients.
    pub clients: u64,
}
