//! State of a running stream that its thread and the control thread share.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Instant,
};

use wb_model::socket::TcpSample;

use super::{role::StreamRole, window::CounterReading};
use crate::{
    flow::{LoopCounters, TimeMeter},
    stop::Stopper,
    sys::tcp_sample,
    waker::Waker,
};

/// Phase of a thread; it only increases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum StreamPhase {
    /// Allocates, and connects if connecting is not measured.
    Preparing,
    /// Waits for the other streams.
    Ready,
    /// Connects.
    Begun,
    /// Data moves.
    Moving,
    /// Data has ended; the connection is taken down.
    Looped,
    /// The tear-down is complete.
    Done,
}

const PHASES: [StreamPhase; 6] = [
    StreamPhase::Preparing,
    StreamPhase::Ready,
    StreamPhase::Begun,
    StreamPhase::Moving,
    StreamPhase::Looped,
    StreamPhase::Done,
];

/// State of a stream shared by both threads.
#[derive(Debug)]
pub(super) struct SharedStream {
    pub(super) role: StreamRole,
    /// Only loads the path.
    pub(super) load: bool,
    /// Its calls are datagrams.
    pub(super) datagrams: bool,
    /// Stops the loop.
    pub(super) run: Stopper,
    /// Stops the tear-down.
    pub(super) drain: Stopper,
    /// The tear-down need not wait for data that the server still sends.
    pub(super) abort: AtomicBool,
    /// The loop ended with a failure.
    pub(super) failed: AtomicBool,
    pub(super) counters: LoopCounters,
    pub(super) meter: Option<Arc<TimeMeter>>,
    /// The data socket; `None` if each transaction has a separate one.
    pub(super) socket: Option<OwnedFd>,
    phase: AtomicU8,
    waker: Arc<Waker>,
}

impl SharedStream {
    pub(super) fn new(
        role: StreamRole,
        (load, datagrams): (bool, bool),
        socket: Option<OwnedFd>,
        meter: Option<Arc<TimeMeter>>,
        waker: &Arc<Waker>,
    ) -> Self {
        Self {
            role,
            load,
            datagrams,
            run: Stopper::new(),
            drain: Stopper::new(),
            abort: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            counters: LoopCounters::default(),
            meter,
            socket,
            phase: AtomicU8::new(StreamPhase::Preparing as u8),
            waker: Arc::clone(waker),
        }
    }

    pub(super) fn phase(&self) -> StreamPhase {
        // Only `enter_phase` writes it.
        PHASES[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// Announces the phase reached by the stream's thread.
    pub(super) fn enter_phase(&self, phase: StreamPhase) {
        self.phase.store(phase as u8, Ordering::Release);
        self.waker.wake();
    }

    /// Current TCP statistics.
    pub(super) fn tcp_sample(&self) -> Option<TcpSample> {
        self.socket
            .as_ref()
            .and_then(|socket| tcp_sample(socket.as_fd()))
    }

    pub(super) fn read(&self) -> CounterReading {
        let tcp = self.tcp_sample();
        let at = Instant::now();
        let (bytes, calls, transactions) = self.counters.totals();
        CounterReading {
            tcp,
            at,
            bytes,
            calls,
            transactions,
            numbers: self.counters.sequence_results(),
        }
    }
}

/// Gate at which threads wait for the common start.
#[derive(Debug, Default)]
pub(super) struct StartGate {
    open: Mutex<Option<bool>>,
    change: Condvar,
}

impl StartGate {
    /// Releases all threads, to start or to give up.
    pub(super) fn open(&self, go: bool) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(go);
        self.change.notify_all();
    }

    /// Waits for the gate. Returns true to start, false to give up.
    pub(super) fn wait_to_start(&self) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(go) = *open {
                return go;
            }
            open = self
                .change
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
