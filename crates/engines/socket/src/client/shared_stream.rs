//! One stream while it runs: what its thread and the control thread share.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Instant,
};

use wb_model::socket::TcpSample;

use super::{role::Role, window::Reading};
use crate::{
    flow::{Counters, Meter},
    stop::Stopper,
    sys::tcp_sample,
    waker::Waker,
};

/// How far a thread is. It only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// Allocates; connects, if that does not count.
    Preparing,
    /// Waits for the others.
    Ready,
    /// Connects.
    Begun,
    /// Data moves.
    Moving,
    /// No more data; the connection is taken down.
    Looped,
    /// That is done too.
    Done,
}

const PHASES: [Phase; 6] = [
    Phase::Preparing,
    Phase::Ready,
    Phase::Begun,
    Phase::Moving,
    Phase::Looped,
    Phase::Done,
];

/// What both threads see of a stream.
#[derive(Debug)]
pub(super) struct SharedStream {
    pub(super) role: Role,
    /// Whether it only loads the path.
    pub(super) load: bool,
    /// Its calls are datagrams.
    pub(super) datagrams: bool,
    /// Ends the loop.
    pub(super) run: Stopper,
    /// Ends the tear-down.
    pub(super) drain: Stopper,
    /// The tear-down need not wait for what the server still wants to send.
    pub(super) abort: AtomicBool,
    /// The loop ended because something went wrong.
    pub(super) failed: AtomicBool,
    pub(super) counters: Counters,
    pub(super) meter: Option<Arc<Meter>>,
    /// The data socket; none where each transaction has one of its own.
    pub(super) socket: Option<OwnedFd>,
    phase: AtomicU8,
    waker: Arc<Waker>,
}

impl SharedStream {
    pub(super) fn new(
        role: Role,
        (load, datagrams): (bool, bool),
        socket: Option<OwnedFd>,
        meter: Option<Arc<Meter>>,
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
            counters: Counters::default(),
            meter,
            socket,
            phase: AtomicU8::new(Phase::Preparing as u8),
            waker: Arc::clone(waker),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        // Only `enter` writes it.
        PHASES[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// Its thread says how far it is.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
        self.waker.wake();
    }

    /// TCP's own figures now.
    pub(super) fn sample(&self) -> Option<TcpSample> {
        self.socket
            .as_ref()
            .and_then(|socket| tcp_sample(socket.as_fd()))
    }

    pub(super) fn read(&self) -> Reading {
        Reading {
            tcp: self.sample(),
            at: Instant::now(),
            bytes: self.counters.bytes(),
            calls: self.counters.calls(),
            transactions: self.counters.transactions(),
            numbers: self.counters.numbers(),
        }
    }
}

/// Where threads wait until all may go.
#[derive(Debug, Default)]
pub(super) struct Gate {
    open: Mutex<Option<bool>>,
    change: Condvar,
}

impl Gate {
    /// Lets all go; or sends all home.
    pub(super) fn open(&self, go: bool) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(go);
        self.change.notify_all();
    }

    /// Whether to go.
    pub(super) fn pass(&self) -> bool {
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
