//! What became of socket tests: the part of a report, and of a snapshot, that they have.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SocketProtocol, SocketTest};
use crate::report::Summary;

/// The socket tests of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketReport {
    /// Each test, in order. One that failed has what it measured until then.
    pub jobs: Vec<SocketJobReport>,
    /// The server, if this was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<SocketServerReport>,
}

/// One test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketJobReport {
    /// Name from the plan, or `test 1`.
    pub name: String,
    /// What varies in a sweep: parameter and value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub point: Vec<(String, String)>,
    /// What was exchanged.
    pub test: SocketTest,
    /// Over what.
    pub protocol: SocketProtocol,
    /// Address and port of the server's control connection.
    pub server: String,
    /// Name of the server by the resolver.
    pub server_name: String,
    /// Our address on the control connection.
    pub client: String,
    /// Address and port the data went to, of the first stream in the last iteration.
    pub data_server: String,
    /// Address and port of this end.
    pub data_client: String,
    /// The interface towards the server and its speed, where it has one: `eth0 1 Gbit/s`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// Whether the server is ours and granted what was asked for.
    pub extended: bool,
    /// Means over the iterations.
    pub result: SocketFigures,
    /// Each iteration.
    pub iterations: Vec<SocketFigures>,
    /// How well the means are known, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<ConfidenceReport>,
    /// This end in the last iteration; sums over the streams.
    pub local: SocketEndReport,
    /// The server's end.
    pub remote: SocketEndReport,
    /// Largest segment of the data connection (TCP_MAXSEG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u32>,
    /// Time of an operation over all iterations: a transaction; a connection with what went over
    /// it; a send or receive call of a stream. From when it was due, where a rate was asked for.
    pub latency_ns: Summary,
    /// 95th percentile, beside those of the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_p95_ns: Option<i64>,
    /// Without `load_streams`, that is before them: the same on the idle path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_latency_ns: Option<Summary>,
    /// Throughput of the streams that loaded the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_bps: Option<f64>,
    /// Datagrams by their numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramReport>,
    /// Each stream of the last iteration.
    #[serde(default)]
    pub streams: Vec<SocketStreamReport>,
    /// How evenly the streams shared: (Σx)² ÷ (n·Σx²) (Jain), 1 is even.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// Each interval of the last iteration, if it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<SocketInterval>,
    /// What ended it before its time. What was measured until then stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<SocketFailure>,
    /// What the reader must know, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl SocketJobReport {
    /// Segments sent again, by the end that sends: of streams both ways, by both.
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

/// Figures of an iteration, or their means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketFigures {
    /// From before the first operation until the connection was taken down, as the client saw it,
    /// s; less what was omitted.
    pub elapsed_s: f64,
    /// The result of a stream: bytes the receiver got ÷ elapsed, in bits per second. Of the others:
    /// requests and responses. Several streams: their sum in the time that all were running.
    pub throughput_bps: f64,
    /// Streams of `both`: the way from the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse_bps: Option<f64>,
    /// Bytes this end sent ÷ elapsed, bits per second.
    pub sent_bps: f64,
    /// Transactions ÷ elapsed.
    pub transactions_per_second: f64,
    /// Transactions.
    pub transactions: u64,
    /// How busy this end's CPUs were, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_cpu: Option<CpuUse>,
    /// The server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_cpu: Option<CpuUse>,
    /// CPU time of this end, µs for a KiB of a stream or for a transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_service_demand: Option<f64>,
    /// The server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_service_demand: Option<f64>,
}

/// How busy the CPUs of a host were, percent of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuUse {
    /// 100 − idle.
    pub total: f64,
    /// In user mode, niced included.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
    /// Idle while a disk was awaited.
    pub iowait: f64,
    /// In interrupts.
    pub irq: f64,
    /// In soft interrupts.
    pub softirq: f64,
    /// Number of CPUs.
    pub cpus: u32,
    /// The busiest one.
    pub peak_cpu: i32,
    /// How busy that was.
    pub peak: f64,
}

impl CpuUse {
    /// All that is a percentage.
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

/// How well the means are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfidenceReport {
    /// Level, percent.
    pub level: u8,
    /// Width asked for, percent of the mean.
    pub width: f64,
    /// Whether it was reached.
    pub reached: bool,
    /// Width of the interval of the result, percent of the mean.
    pub result: f64,
    /// Of the local CPU use; 0 where it was not measured.
    pub local_cpu: f64,
    /// Of the server's.
    pub remote_cpu: f64,
}

/// One end of the data connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketEndReport {
    /// SO_SNDBUF: asked for, at the start, at the end.
    pub send_buffer: [Option<u32>; 3],
    /// SO_RCVBUF: asked for, at the start, at the end.
    pub receive_buffer: [Option<u32>; 3],
    /// Bytes of a send of a stream in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_size: Option<u32>,
    /// Bytes of a receive of a stream in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_size: Option<u32>,
    /// Buffers used in turn for sends.
    pub send_width: u32,
    /// For receives.
    pub receive_width: u32,
    /// Successful send calls; datagrams where they go in batches.
    pub send_calls: u64,
    /// Successful receive calls.
    pub receive_calls: u64,
    /// Sends refused for want of room (ENOBUFS, ENOMEM).
    pub failed_sends: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// TCP_NODELAY in effect.
    pub no_delay: bool,
    /// Congestion control in effect; empty if there is none.
    pub congestion: String,
    /// Segments sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmissions: Option<u64>,
    /// SO_PRIORITY in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// TOS in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos: Option<i32>,
    /// Burst of paced sending that the end accepted.
    pub burst: u32,
    /// From burst to burst, µs.
    pub burst_interval_us: u32,
    /// Zero copy: sends that were completed, by how: `zero-copy`, `copied`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub completions: BTreeMap<String, u64>,
    /// TCP's own figures at the end of the last iteration, of the first stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSample>,
    /// What of all this belongs to the time of `omit`, where this end tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<SocketOmitted>,
}

/// What was done in the time of `omit`: it is in the counts of an end or a stream, and in no rate, time
/// or interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketOmitted {
    /// Bytes, sent and received together.
    pub bytes: u64,
    /// Transactions.
    pub transactions: u64,
    /// Calls, sends and receives together; null if the end does not tell.
    pub calls: Option<u64>,
    /// Segments sent again; null if the end does not tell.
    pub retransmissions: Option<u64>,
}

impl SocketOmitted {
    /// Of two streams together.
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

/// TCP's own figures of a connection (TCP_INFO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpSample {
    /// Smoothed round trip, µs.
    pub rtt_us: u32,
    /// Its mean deviation, µs.
    pub rtt_var_us: u32,
    /// Least round trip, µs.
    pub min_rtt_us: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Slow start threshold, segments.
    pub ssthresh: u32,
    /// Segments sent again so far.
    pub retransmissions: u32,
    /// Segments that are thought lost now.
    pub lost: u32,
    /// Distance of reordering, segments.
    pub reordering: u32,
    /// Segment size, bytes.
    pub mss: u32,
    /// Path MTU, bytes.
    pub path_mtu: u32,
    /// Retransmission timeout, µs.
    pub rto_us: u32,
    /// Delayed acknowledgement timeout, µs.
    pub ato_us: u32,
    /// Slow start threshold of the receiver.
    pub receive_ssthresh: u32,
    /// Pacing rate, bits per second.
    pub pacing_bps: u64,
    /// Delivery rate, bits per second.
    pub delivery_bps: u64,
    /// Bytes acknowledged so far.
    pub bytes_acked: u64,
    /// Bytes received so far.
    pub bytes_received: u64,
    /// Bytes not sent yet.
    pub not_sent: u32,
    /// Time with data to send, µs.
    pub busy_us: u64,
    /// Of it, limited by the peer's window, µs.
    pub receiver_limited_us: u64,
    /// Of it, limited by our buffer, µs.
    pub buffer_limited_us: u64,
    /// Round trip as the receiver sees it, µs.
    pub receive_rtt_us: u32,
    /// Space the receiver aims at, bytes.
    pub receive_space: u32,
}

/// Datagrams of a stream by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatagramReport {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that arrived, duplicates included.
    pub received: u64,
    /// sent − (received − duplicate).
    pub lost: u64,
    /// Arrived again.
    pub duplicate: u64,
    /// Arrived after a later one (RFC 4689).
    pub reordered: u64,
    /// Without our tag.
    pub foreign: u64,
    /// RFC 3550 jitter at the end, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_rfc3550_ns: Option<f64>,
    /// One-way delay. Between two hosts it contains the difference of their clocks.
    pub one_way_ns: Summary,
}

/// One of several parallel streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketStreamReport {
    /// `up`, `down`, `rr`, …: which way, and a number from 1.
    pub name: String,
    /// Throughput in the time that all streams were running, bits per second.
    pub throughput_bps: f64,
    /// Transactions per second in that time.
    pub transactions_per_second: f64,
    /// Bytes this end sent.
    pub bytes_sent: u64,
    /// Bytes this end received.
    pub bytes_received: u64,
    /// Bytes the server sent, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_bytes_sent: Option<u64>,
    /// Bytes the server received, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_bytes_received: Option<u64>,
    /// Segments sent again: by this end, or of a stream that comes from the server, by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmissions: Option<u64>,
    /// TCP's own figures at the end, of the same end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSample>,
    /// What the numbers in datagrams told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramReport>,
    /// Time of an operation.
    pub latency_ns: Summary,
    /// What of its counts belongs to the time of `omit`, at this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<SocketOmitted>,
    /// At the server, if it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_omitted: Option<SocketOmitted>,
}

/// What happened in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketInterval {
    /// Begin, s since the start of the iteration.
    pub from_s: f64,
    /// End.
    pub to_s: f64,
    /// Wall clock at its end, s since 1970.
    pub ended_s: f64,
    /// Bytes (sent or received by this end) or transactions.
    pub units: u64,
    /// Bits per second, of streams: what arrived; of a TCP sender what was acknowledged.
    pub throughput_bps: f64,
    /// Of it, what went to the server. Null if no stream goes that way.
    #[serde(default)]
    pub up_bps: Option<f64>,
    /// What came from the server.
    #[serde(default)]
    pub down_bps: Option<f64>,
    /// Of the others.
    pub transactions_per_second: f64,
    /// Time of an operation in this interval, where it was asked for.
    pub latency_ns: Summary,
    /// Each stream's TCP at the end of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<TcpSample>,
    /// Each stream, in the order of the report's `streams`.
    #[serde(default)]
    pub streams: Vec<SocketIntervalStream>,
}

/// What one stream did in an interval, as far as this end knows: null is what only the other end could
/// tell, and does not while the test runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketIntervalStream {
    /// As in the report's `streams`: `up 1`. Those that only load the path begin with `load`.
    pub name: String,
    /// Which way its data goes.
    pub direction: SocketDirection,
    /// Bytes (sent or received by this end) or transactions.
    pub units: u64,
    /// Bits per second of a stream: what arrived; of a TCP sender what was acknowledged; of a sender of
    /// datagrams what was sent.
    pub throughput_bps: f64,
    /// Of the others.
    pub transactions_per_second: f64,
    /// Segments that this end sent again. Null where the server sends, and without TCP.
    pub retransmissions: Option<u64>,
    /// Congestion window of this end at the end of it, segments. Null as above.
    pub cwnd: Option<u32>,
    /// Smoothed round trip at the end of it, µs. Null as above.
    pub rtt_us: Option<u32>,
    /// Datagrams of a stream that this end sent or received, duplicates included.
    pub datagrams: Option<u64>,
    /// Datagrams with numbers that this end found missing, less those of earlier intervals that
    /// came after all: so it may be negative. Null where none came, and where the server receives.
    pub lost: Option<i64>,
    /// Their RFC 3550 jitter at the end of it, ns. Null as `lost`.
    pub jitter_rfc3550_ns: Option<f64>,
}

/// Which way the data of a stream goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SocketDirection {
    /// To the server.
    Up,
    /// From the server.
    Down,
    /// Both ways: requests and responses, and connections.
    #[default]
    Both,
}

/// What ended a test before its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketFailure {
    /// Where it happened.
    pub stage: SocketStage,
    /// What, in a line.
    pub what: String,
    /// Number of the system's error, ours or the server's, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// A part of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SocketStage {
    /// Name of the server, or of our end.
    Resolve,
    /// The control connection could not be made.
    Connect,
    /// The server refused the test, or could not do it.
    Remote,
    /// The control connection ended or said what cannot be understood.
    Control,
    /// Our own socket could not be made as asked.
    Socket,
    /// The data connection.
    Data,
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketServerReport {
    /// Control connections accepted.
    pub clients: u64,
    /// Turned away, because there were as many as allowed.
    pub turned_away: u64,
    /// Data connections that came from others than the client of a test, closed.
    #[serde(default)]
    pub strangers: u64,
    /// Ended because they said nothing for too long, or nothing that can be understood.
    pub given_up: u64,
    /// Without the passphrase.
    pub unauthorised: u64,
    /// Tests begun.
    pub tests: u64,
    /// Tests whose results were sent.
    pub completed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Bytes received by tests.
    pub bytes_received: u64,
    /// Bytes sent by tests.
    pub bytes_sent: u64,
}

/// A socket test while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketLive {
    /// Which job, from 0.
    pub job: u32,
    /// Jobs in all.
    pub jobs: u32,
    /// Which iteration, from 1.
    pub iteration: u32,
    /// Bytes or transactions in the interval.
    pub units: u64,
    /// Whether the units are transactions.
    pub transactions: bool,
    /// Length of the interval, s.
    pub interval_s: f64,
    /// Wall clock at its end, s since 1970.
    pub ended_s: f64,
    /// Bytes or transactions of the iteration.
    pub total: u64,
    /// Clients that are connected, of a server.
    pub clients: u64,
}
