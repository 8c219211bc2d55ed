//! HTTP load over kernel sockets.
//!
//! Each thread owns its connections, an epoll instance, a shared receive buffer, a parser for answers and histograms.
//! Each socket is registered once, edge-triggered, and never modified. A request takes one call to send and one to
//! receive, without allocation, lock or shared data. With HTTP/2 a call sends, or receives, all ready data of all
//! streams of a connection; with HTTP/3 several of its datagrams.
//!
//! Only [`engine`] resolves names and reads files; the threads get both.

#![forbid(unsafe_code)]

mod connection;
pub mod engine;
mod exact_times;
mod quic;
mod request_set;
mod thread;
mod thread_outcome;
mod tls;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicU8, Ordering},
    },
};

use wb_measure::ShownOutline;
use wb_model::http::{HttpJob, HttpTotals, HttpUrl, Scheme};

pub use exact_times::ExactTimes;
pub use request_set::RequestFiles;
pub use thread::run;
pub use thread_outcome::{HttpThreadOutcome, RequestOutcome, WrkCounts};
pub use wb_http1::script::{Script, ScriptError};

use request_set::RequestSet;
use tls::Tls;

/// Destination of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpDestination {
    /// These addresses, in turn.
    Addresses(Vec<SocketAddr>),
    /// A Unix domain socket.
    Unix(String),
}

/// A job that is ready to run: requests built, keys read.
#[derive(Debug)]
pub struct HttpLoad {
    pub(crate) job: HttpJob,
    pub(crate) set: RequestSet,
    pub(crate) server: HttpDestination,
    pub(crate) tls: Option<Tls>,
    pub(crate) seed: u64,
    /// Times of all threads, as wrk counts them.
    pub(crate) times: Option<Arc<ExactTimes>>,
}

impl HttpLoad {
    /// Builds the requests of a job.
    ///
    /// # Errors
    /// Fails for a file that cannot be read or used, a variable without value, or unsupported TLS settings.
    pub fn new(
        job: &HttpJob,
        server: HttpDestination,
        seed: u64,
        files: &dyn RequestFiles,
    ) -> Result<Self, String> {
        let url: HttpUrl = job.url.parse()?;
        Ok(Self {
            set: RequestSet::new(job, &url, files)?,
            tls: match url.scheme {
                Scheme::Http => None,
                Scheme::Https => Some(Tls::new(&job.tls, job.version, url.known_host(), files)?),
            },
            job: job.clone(),
            server,
            seed,
            times: job.as_wrk.then(Arc::default),
        })
    }

    /// Names of its requests, in the order of [`HttpThreadOutcome::calls`].
    pub fn request_names(&self) -> impl Iterator<Item = &str> {
        self.set.calls.iter().map(|call| call.name.as_str())
    }

    /// Connections of a thread. The first threads get the remainder, which is left out in wrk mode.
    #[must_use]
    pub fn connections_of_thread(&self, thread: u32) -> u32 {
        let share = self.job.connections / self.job.threads;
        let rest = self.job.connections % self.job.threads;
        share + u32::from(thread < rest && !self.job.as_wrk)
    }
}

/// Control signals to a thread, and its live counters.
#[derive(Debug, Default)]
pub struct HttpThreadControl {
    stop: AtomicU8,
    live: Mutex<LiveHttpState>,
    /// Distribution of [`HttpThreadOutcome::latency`] so far, published on request.
    pub latency: ShownOutline,
}

/// State of a thread at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveHttpState {
    /// Totals so far.
    pub totals: HttpTotals,
    /// Sum of the times of all answers, ns.
    pub latency_ns: u64,
    /// Number of answers in that sum.
    pub answers: u64,
    /// No new requests are sent.
    pub draining: bool,
}

impl HttpThreadControl {
    /// Sends no new requests; waits for those in flight, at most for the job's timeout.
    pub fn drain(&self) {
        self.stop.fetch_max(1, Ordering::Relaxed);
    }

    /// Ends at once.
    pub fn stop(&self) {
        self.stop.fetch_max(2, Ordering::Relaxed);
    }

    pub(crate) fn stop_level(&self) -> u8 {
        self.stop.load(Ordering::Relaxed)
    }

    /// Last published state, updated at most 1,000 times per second.
    #[must_use]
    pub fn live(&self) -> LiveHttpState {
        *self
            .live
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Publishes the state. Returns false if a reader held the lock.
    pub(crate) fn publish_live(&self, live: LiveHttpState) -> bool {
        let mut place = match self.live.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        *place = live;
        true
    }
}

/// Inputs of a thread in addition to its load.
pub struct ThreadTask {
    /// Index of the thread.
    pub index: u32,
    /// Due time of the first request, CLOCK_MONOTONIC, ns.
    pub start_ns: u64,
    /// Its instance of the script.
    pub script: Option<Box<dyn Script>>,
    /// Signals from other threads.
    pub control: Arc<HttpThreadControl>,
}
