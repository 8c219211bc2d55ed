//! What one thread measured.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use wb_measure::Histogram;
use wb_model::{
    Lateness,
    http::{Http2Report, Http3Report, HttpFailures, HttpTotals},
};

use crate::{Load, exact_times::ExactTimes};

/// Statuses are three digits.
pub(crate) const STATUSES: usize = 1000;
/// Rates are looked at so often, as wrk does, ns.
pub(crate) const RATE_INTERVAL_NS: u64 = 100_000_000;

/// What one thread measured.
#[derive(Debug)]
pub struct Outcome {
    /// Everything counted once.
    pub totals: HttpTotals,
    /// Of these what was complete when nothing more was asked: rates are made of it.
    pub in_time: HttpTotals,
    /// Between the warm-up and then, ns.
    pub duration_ns: u64,
    /// From due to the last byte.
    pub latency: Histogram,
    /// From sent to the last byte, where a schedule makes that another time.
    pub service: Option<Histogram>,
    /// From sent to the first byte.
    pub first_byte: Histogram,
    /// TCP's handshake.
    pub connect: Histogram,
    /// That of TLS.
    pub handshake: Histogram,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// `latency` by class of status: 2 has those from 200 to 299.
    pub classes: BTreeMap<u8, Histogram>,
    /// By request of the set; none where there is one.
    pub calls: Vec<CallOutcome>,
    /// Versions and ciphers, with their connections.
    pub agreed: BTreeMap<String, u64>,
    /// Handshakes from the beginning, and those of a known session.
    pub handshakes: (u64, u64),
    /// What HTTP/2 did.
    pub http2: Http2Report,
    /// What HTTP/3 did.
    pub http3: Http3Report,
    /// Digests of bodies.
    pub digests: BTreeSet<(usize, [u8; 32])>,
    /// What was wrong with the first answer that was not as it must be.
    pub first_failure: Option<String>,
    /// Connections that this machine had no route or link for.
    pub unrouted: u64,
    /// Why the thread gave up.
    pub error: Option<String>,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// From the start of the run to the end of the thread, ns.
    pub wall_ns: u64,
    /// How late it was.
    pub lateness: Lateness,
    /// As wrk counts.
    pub exact: Option<Box<Exact>>,
}

impl Outcome {
    pub(crate) fn new(load: &Load) -> Self {
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
                n => (0..n).map(|_| CallOutcome::default()).collect(),
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
                Box::new(Exact {
                    times: Arc::clone(times),
                    ..Exact::default()
                })
            }),
        }
    }
}

/// One request of a set.
#[derive(Debug, Default)]
pub struct CallOutcome {
    /// Sent.
    pub sent: u64,
    /// With a whole answer.
    pub completed: u64,
    /// Without.
    pub failed: u64,
    /// From due to the last byte.
    pub latency: Histogram,
}

/// As wrk counts: times in whole microseconds.
#[derive(Clone, Debug, Default)]
pub struct Exact {
    /// Number of occurrences of each time, over all threads.
    pub times: Arc<ExactTimes>,
    /// Answers per second in each tenth of a second.
    pub rates: Vec<u64>,
    /// Slower than the timeout.
    pub timeouts: u64,
    /// Errors: connect, read, write.
    pub errors: [u64; 3],
    /// Answers, interim ones too.
    pub responses: u64,
    /// With a status above 399.
    pub status_errors: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// Why something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
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

impl Cause {
    /// Counts `n` under it.
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

    /// What an error of the system means.
    pub(crate) fn of(errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match errno {
            Errno::CONNREFUSED => Self::Refused,
            // Only a path can be missing: that of a socket of the file system.
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
