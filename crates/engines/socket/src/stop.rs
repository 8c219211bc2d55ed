//! Ends a loop of blocking system calls from outside, at once, at no cost to the loop.
//!
//! The loop tests a flag before each call. A call that blocks is interrupted by a signal whose
//! handler does nothing and which restarts nothing, so it returns EINTR. A signal that comes between
//! the test and the call is lost; so it is sent again every few milliseconds until the loop has ended.
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

/// How often a thread is interrupted that should have ended.
const AGAIN: Duration = Duration::from_millis(3);

/// From one interruption of a thread to the next, at least. Signals that come faster than they can be taken
/// wait in line, and a thread that takes one after the other gets to nothing else.
const LEAST_NS: u64 = 1_000_000;

/// Tells one thread to end. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<State>);

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    /// The thread that can be interrupted; 0: none.
    thread: AtomicI32,
    /// When it was last interrupted.
    interrupted_ns: AtomicU64,
}

/// While it lives, the thread that made it is interrupted when it is told to end.
#[derive(Debug)]
pub struct StopGuard(Arc<State>);

impl Stopper {
    /// One that has not been told anything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the loop must end. One relaxed load.
    #[inline]
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// Makes the calling thread the one that is interrupted. It must not block signals.
    #[must_use]
    pub fn enter(&self) -> StopGuard {
        install();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.0.thread.store(thread, Ordering::SeqCst);
        StopGuard(Arc::clone(&self.0))
    }

    /// Tells the loop to end, and interrupts its call once.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::SeqCst);
        self.interrupt();
    }

    /// Interrupts the call that the thread is in, if it is in one, and was not just interrupted.
    pub fn interrupt(&self) {
        let thread = self.0.thread.load(Ordering::SeqCst);
        if thread == 0 || !self.has_had_time(now_ns()) {
            return;
        }
        let process = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: plain numbers; a thread that has ended meanwhile gives ESRCH, and a number of a
        // thread is not used again by another process under our process number.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal()) };
    }

    /// Whether the thread can be interrupted again, and is then taken to be.
    fn has_had_time(&self, now_ns: u64) -> bool {
        let last = self.0.interrupted_ns.load(Ordering::Relaxed);
        let has = now_ns.saturating_sub(last) >= LEAST_NS;
        if has {
            self.0.interrupted_ns.store(now_ns, Ordering::Relaxed);
        }
        has
    }

    /// Tells the loop to end and waits until it has, at most for `patience`. Whether it has.
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

    /// Whether a thread is in its loop.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.0.thread.load(Ordering::SeqCst) != 0
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.thread.store(0, Ordering::SeqCst);
    }
}

/// A real-time signal that nobody else uses.
fn signal() -> i32 {
    libc::SIGRTMIN() + 4
}

extern "C" fn nothing(_: i32) {}

/// Installs the handler that does nothing, once. Whoever owns the process's signals calls it; it
/// takes one real-time signal and no other.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the struct is all zeros before it is filled, which is a valid value; the handler is
        // a function that touches nothing. No SA_RESTART: calls shall return.
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
            let _guard = inside.enter();
            let mut calls = 0;
            while !inside.stopped() {
                let mut byte = [0];
                let _ = rustix::io::read(&one, &mut byte);
                calls += 1;
            }
            calls
        });
        while !stopper.busy() {
            thread::yield_now();
        }
        assert!(stopper.stop_and_wait(Duration::from_secs(20)));
        assert!(reader.join().unwrap() <= 1);
        assert!(stopper.stopped() && !stopper.busy());
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
