//! Ends a loop of blocking system calls from outside, at once, at no cost to the loop.
//!
//! The loop tests a flag before each call. A blocking call is interrupted by a signal with an empty handler and without
//! restart, so it returns EINTR. A signal between the test and the call is lost; therefore the signal is repeated every
//! few milliseconds until the loop has ended.
#![allow(
    unsafe_code,
    reason = "sending a signal to a thread of ours has no safe wrapper"
)]

use std::{
    sync::{
        Arc, Once,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::flow::clock::now_ns;

/// Interval between interrupts of a thread that should have ended.
const AGAIN: Duration = Duration::from_millis(3);

/// Minimum interval between two interrupts of a thread, ns. Faster signals queue up, and a thread that handles one
/// after the other makes no progress.
const LEAST_NS: u64 = 1_000_000;

/// Stops one thread. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    stop: AtomicBool,
    /// Thread to interrupt; 0 for none.
    thread: AtomicI32,
    /// Time of the last interrupt.
    interrupted_ns: AtomicU64,
}

/// Keeps the calling thread registered as the one to interrupt.
#[derive(Debug)]
pub struct InterruptRegistration(Arc<StopState>);

impl Stopper {
    /// Creates a stopper that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns true if the loop must end. One relaxed load.
    #[inline]
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// Registers the calling thread as the one to interrupt. It must not block signals.
    #[must_use]
    pub fn register_thread(&self) -> InterruptRegistration {
        install();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.0.thread.store(thread, Ordering::SeqCst);
        InterruptRegistration(Arc::clone(&self.0))
    }

    /// Sets the flag and interrupts the current call once.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::SeqCst);
        self.interrupt();
    }

    /// Interrupts the thread's current call, unless it was interrupted just before.
    pub fn interrupt(&self) {
        let thread = self.0.thread.load(Ordering::SeqCst);
        if thread == 0 || !self.has_had_time(now_ns()) {
            return;
        }
        let process = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: only integers are passed. A thread that has ended gives ESRCH, and within our process ID its thread
        // ID is not reused by another process.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal()) };
    }

    /// Returns true if the last interrupt is long enough ago, and then records a new one.
    fn has_had_time(&self, now_ns: u64) -> bool {
        let last = self.0.interrupted_ns.load(Ordering::Relaxed);
        let has = now_ns.saturating_sub(last) >= LEAST_NS;
        if has {
            self.0.interrupted_ns.store(now_ns, Ordering::Relaxed);
        }
        has
    }

    /// Stops the loop and waits for its end, at most for `patience`. Returns true if it has ended.
    pub fn stop_and_wait(&self, patience: Duration) -> bool {
        let began = std::time::Instant::now();
        loop {
            self.stop();
            if self.0.thread.load(Ordering::SeqCst) == 0 {
                return true;
            }
            if began.elapsed() > patience {
                return false;
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Returns true if a thread is in its loop.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.thread.load(Ordering::SeqCst) != 0
    }
}

impl Drop for InterruptRegistration {
    fn drop(&mut self) {
        self.0.thread.store(0, Ordering::SeqCst);
    }
}

/// A real-time signal reserved for this purpose.
fn signal() -> i32 {
    libc::SIGRTMIN() + 4
}

extern "C" fn nothing(_: i32) {}

/// Installs the empty handler once. It uses one real-time signal and no other; the process must not use that signal
/// elsewhere.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the zeroed struct is a valid value before it is filled; the handler is a function that accesses
        // nothing. Without SA_RESTART, calls return.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(signal(), &raw const action, std::ptr::null_mut());
        }
    });
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, thread};

    use super::*;

    #[test]
    fn a_blocking_call_ends() {
        let (one, _other) = UnixStream::pair().unwrap();
        let stopper = Stopper::new();
        let inside = stopper.clone();
        let reader = thread::spawn(move || {
            let _guard = inside.register_thread();
            let mut calls = 0;
            while !inside.is_stopped() {
                let mut byte = [0];
                let _ = rustix::io::read(&one, &mut byte);
                calls += 1;
            }
            calls
        });
        while !stopper.is_busy() {
            thread::yield_now();
        }
        assert!(stopper.stop_and_wait(Duration::from_secs(20)));
        assert!(reader.join().unwrap() <= 1);
        assert!(stopper.is_stopped() && !stopper.is_busy());
    }

    #[test]
    fn interruptions_leave_time_for_work() {
        let stopper = Stopper::new();
        let ms = 1_000_000;
        let times = [
            50 * ms,
            50 * ms + 10,
            51 * ms - 1,
            51 * ms,
            51 * ms + 1,
            60 * ms,
        ];
        let sent = times.map(|now| stopper.has_had_time(now));
        assert_eq!(sent, [true, false, false, true, false, true]);
    }
}
