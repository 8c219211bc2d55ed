//! HTTP load over sockets of the kernel.
//!
//! Each thread owns its connections: an epoll instance that is told about each socket once (edges, so there is
//! nothing to change later), one buffer that all of them read into, one reader of answers, one set of
//! histograms. Per request there is one call to send and one to receive; nothing is allocated, locked or shared.
//! With HTTP/2 a call sends, and receives, whatever is ready of all streams of a connection; with HTTP/3 it sends and
//! receives several datagrams of one.
//!
//! The engine resolves no name and reads no file; it is given both.

#![forbid(unsafe_code)]

mod account;
mod connection;
mod exact_times;
mod quic;
mod set;
mod thread;
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

pub use account::{CallOutcome, Exact, Outcome};
pub use exact_times::ExactTimes;
pub use set::Files;
pub use thread::run;
pub use wb_http1::script::{Script, ScriptError};

use set::Set;
use tls::Tls;

/// Where connections go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// These addresses, in turn.
    Addresses(Vec<SocketAddr>),
    /// A socket of the file system.
    Unix(String),
}

/// A job that is ready to run: requests made, keys read.
#[derive(Debug)]
pub struct Load {
    pub(crate) job: HttpJob,
    pub(crate) set: Set,
    pub(crate) server: Server,
    pub(crate) tls: Option<Tls>,
    pub(crate) seed: u64,
    /// Times of all threads, as wrk counts them.
    pub(crate) times: Option<Arc<ExactTimes>>,
}

impl Load {
    /// Makes the requests of a job.
    ///
    /// # Errors
    /// A file that cannot be read or used, a variable without value, TLS that is not possible as asked for.
    pub fn new(
        job: &HttpJob,
        server: Server,
        seed: u64,
        files: &dyn Files,
    ) -> Result<Self, String> {
        let url: HttpUrl = job.url.parse()?;
        Ok(Self {
            set: Set::new(job, &url, files)?,
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

    /// The names of its requests, in the order of [`Outcome::calls`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.set.calls.iter().map(|call| call.name.as_str())
    }

    /// Connections of a thread: the remainder goes to the first ones. As wrk does, it is left out.
    #[must_use]
    pub fn connections(&self, thread: u32) -> u32 {
        let share = self.job.connections / self.job.threads;
        let rest = self.job.connections % self.job.threads;
        share + u32::from(thread < rest && !self.job.as_wrk)
    }
}

/// What a thread is told, and what it tells while it runs.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicU8,
    live: Mutex<Live>,
    /// As [`Outcome::latency`] so far, for who asks.
    pub latency: ShownOutline,
}

/// A thread at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    /// So far.
    pub totals: HttpTotals,
    /// Sum of the times of all answers, ns.
    pub latency_ns: u64,
    /// How many answers that is the sum of.
    pub answers: u64,
    /// Nothing new is asked any more.
    pub draining: bool,
}

impl Control {
    /// Nothing new is asked; what is under way is awaited for as long as the job's timeout.
    pub fn drain(&self) {
        self.stop.fetch_max(1, Ordering::Relaxed);
    }

    /// It ends at once.
    pub fn stop(&self) {
        self.stop.fetch_max(2, Ordering::Relaxed);
    }

    pub(crate) fn wish(&self) -> u8 {
        self.stop.load(Ordering::Relaxed)
    }

    /// How it goes; told some fifty times a second.
    #[must_use]
    pub fn live(&self) -> Live {
        *self
            .live
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether nobody was just reading.
    pub(crate) fn tell(&self, live: Live) -> bool {
        let mut place = match self.live.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        *place = live;
        true
    }
}

/// What a thread needs besides its load.
pub struct ThreadTask {
    /// Which of the threads it is.
    pub index: u32,
    /// When the first request is due, CLOCK_MONOTONIC, ns.
    pub start_ns: u64,
    /// Its part of the script.
    pub script: Option<Box<dyn Script>>,
    /// What others tell it.
    pub control: Arc<Control>,
}
