//! Wakes a thread that polls sockets at the same time.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::event::{EventfdFlags, eventfd};

/// Readable after a wake-up.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        // Fails only for a counter near 2^64, and then it is readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears pending wake-ups.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Request that tests or a server end. It can be set from any thread, once, and wakes every thread that waits for it.
#[derive(Debug)]
pub struct StopRequest {
    is_set: AtomicBool,
    waker: Option<Waker>,
}

impl Default for StopRequest {
    fn default() -> Self {
        Self {
            // Without a descriptor the request is noticed when a wait times out.
            waker: Waker::new().ok(),
            ..Self::never()
        }
    }
}

impl StopRequest {
    /// Longest time that a wait for other things takes before it checks the request again.
    pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

    /// Creates a request that nothing will set.
    pub(crate) const fn never() -> Self {
        Self {
            is_set: AtomicBool::new(false),
            waker: None,
        }
    }

    /// Sets the request.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Returns true if the request was set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Descriptor to wait for: readable once the request is set. `None` when it is set already, so that no later wait
    /// returns at once.
    pub(crate) fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        let waker = self.waker.as_ref().filter(|_| !self.is_set());
        waker.map(AsFd::as_fd)
    }
}
