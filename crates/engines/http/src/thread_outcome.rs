//! Measurements of one thread.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use wb_measure::Histogram;
use wb_model::{
    Lateness,
    http::{Http2Report, Http3Report, HttpFailures, HttpTotals},
};

use crate::{HttpLoad, exact_times::ExactTimes};

/// Statuses are three digits.
pub(crate) const STATUSES: usize = 1000;
/// Interval between rate samples, as in wrk, ns.
pub(crate) const RATE_INTERVAL_NS: u64 = 100_000_000;

/// Measurements of one thread.
#[derive(Debug)]
pub struct HttpThreadOutcome {
    /// Totals of the whole run.
    pub totals: HttpTotals,
    /// The part that was complete when the last request had been sent; rates are computed from it.
    pub in_time: HttpTotals,
    /// Time between the end of the warm-up and the last request, ns.
    pub duration_ns: u64,
    /// Time from the due time to the last byte.
    pub latency: Histogram,
    /// Time from sending to the last byte, if a schedule makes it different from `latency`.
    pub service: Option<Histogram>,
    /// Time from sending to the first byte.
    pub first_byte: Histogram,
    /// Time of TCP's handshake.
    pub connect: Histogram,
    /// Time of TLS's handshake.
    pub handshake: Histogram,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// `latency` by class of status: 2 has those from 200 to 299.
    pub classes: BTreeMap<u8, Histogram>,
    /// Results by request of the set; empty if there is only one.
    pub calls: Vec<RequestOutcome>,
    /// Negotiated TLS versions and ciphers, with their number of connections.
    pub agreed: BTreeMap<String, u64>,
    /// Full handshakes, and resumed sessions.
    pub handshakes: (u64, u64),
    /// HTTP/2 statistics.
    pub http2: Http2Report,
    /// HTTP/3 statistics.
    pub http3: Http3Report,
    /// Digests of bodies.
    pub digests: BTreeSet<(usize, [u8; 32])>,
    /// Description of the first invalid answer.
    pub first_failure: Option<String>,
    /// Connections for which this machine had no route or link.
    pub unrouted: u64,
    /// Reason why the thread gave up.
    pub error: Option<String>,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Time from the start of the run to the end of the thread, ns.
    pub wall_ns: u64,
    /// Lateness of the thread.
    pub lateness: Lateness,
    /// Counts in the way of wrk.
    pub exact: Option<Box<WrkCounts>>,
}

impl HttpThreadOutcome {
    pub(crate) fn new(load: &HttpLoad) -> Self {
        let job = &load.job;
        Self {
            totals: HttpTotals::default(),
            in_time: HttpTotals::default(),
            duration_ns: 0,
            latency: Histogram::new(),
            service: (!job.rate.is_empty()).then(Histogram::new),
            first_byte: Histogram::new(),
            connect: Histogram::new(),
            handshake: Histogram::new(),
            statuses: BTreeMap::new(),
            classes: BTreeMap::new(),
            calls: match load.set.calls.len() {
                1 => Vec::new(),
                n => (0..n).map(|_| RequestOutcome::default()).collect(),
            },
            agreed: BTreeMap::new(),
            handshakes: (0, 0),
            http2: Http2Report {
                streams: job.streams,
                ..Http2Report::default()
            },
            http3: Http3Report {
                streams: job.streams,
                ..Http3Report::default()
            },
            digests: BTreeSet::new(),
            first_failure: None,
            unrouted: 0,
            error: None,
            cpu_ns: 0,
            wall_ns: 0,
            lateness: Lateness::default(),
            exact: load.times.as_ref().map(|times| {
                Box::new(WrkCounts {
                    times: Arc::clone(times),
                    ..WrkCounts::default()
                })
            }),
        }
    }
}

/// One request of a set.
#[derive(Debug, Default)]
pub struct RequestOutcome {
    /// Requests sent.
    pub sent: u64,
    /// Requests with a complete answer.
    pub completed: u64,
    /// Requests without one.
    pub failed: u64,
    /// Time from the due time to the last byte.
    pub latency: Histogram,
}

/// Counts in the way of wrk: times in whole microseconds.
#[derive(Clone, Debug, Default)]
pub struct WrkCounts {
    /// Number of occurrences of each time, over all threads.
    pub times: Arc<ExactTimes>,
    /// Answers per second in each tenth of a second.
    pub rates: Vec<u64>,
    /// Answers slower than the timeout.
    pub timeouts: u64,
    /// Errors: connect, read, write.
    pub errors: [u64; 3],
    /// Answers, including interim ones.
    pub responses: u64,
    /// Answers with a status above 399.
    pub status_errors: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// Reason for the end of a request or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    Refused,
    NoSocket,
    Exhausted,
    Tls,
    Timeout,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    Version,
    Reset,
    Closed,
    Malformed,
    StreamReset,
    Unprocessed,
    Check,
    Other,
}

impl FailureCause {
    /// Adds `n` to the counter of this cause.
    pub(crate) fn count(self, failures: &mut HttpFailures, n: u64) {
        let place = match self {
            Self::Refused => &mut failures.refused,
            Self::NoSocket => &mut failures.no_socket,
            Self::Exhausted => &mut failures.exhausted,
            Self::Tls => &mut failures.tls,
            Self::Timeout => &mut failures.timeout,
            Self::ConnectTimeout => &mut failures.connect_timeout,
            Self::FirstByteTimeout => &mut failures.first_byte_timeout,
            Self::IdleTimeout => &mut failures.idle_timeout,
            Self::Version => &mut failures.version,
            Self::Reset => &mut failures.reset,
            Self::Closed => &mut failures.closed,
            Self::Malformed => &mut failures.malformed,
            Self::StreamReset => &mut failures.stream_reset,
            Self::Unprocessed => &mut failures.unprocessed,
            Self::Check => &mut failures.check,
            Self::Other => &mut failures.other,
        };
        *place += n;
    }

    /// Cause that corresponds to a system error.
    pub(crate) fn from_errno(errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match errno {
            Errno::CONNREFUSED => Self::Refused,
            // Only a path can be missing: that of a Unix domain socket.
            Errno::NOENT => Self::NoSocket,
            Errno::CONNRESET | Errno::PIPE => Self::Reset,
            Errno::TIMEDOUT => Self::Timeout,
            Errno::MFILE
            | Errno::NFILE
            | Errno::ADDRNOTAVAIL
            | Errno::NOBUFS
            | Errno::NOMEM
            | Errno::AGAIN => Self::Exhausted,
            _ => Self::Other,
        }
    }
}
