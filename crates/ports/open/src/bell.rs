//! The event that the controlling thread of a run sleeps on.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes the waiting thread from any other thread. A ring before the wait ends the wait at once.
#[derive(Debug)]
pub struct Bell(Option<OwnedFd>);

impl Default for Bell {
    fn default() -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        // Without a descriptor each wait lasts its full time.
        Self(eventfd(0, flags).ok())
    }
}

impl Bell {
    /// Ends the wait, or the next one.
    pub fn ring(&self) {
        if let Some(fd) = &self.0 {
            // Only a counter near 2^64 would refuse, and the descriptor is readable then.
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
    }

    /// Waits at most `longest` for a ring or for one of `others` to become readable.
    pub fn wait(&self, others: &[BorrowedFd<'_>], longest: Duration) {
        let own = self.0.as_ref().map(AsFd::as_fd);
        let mut fds: Vec<_> = own
            .into_iter()
            .chain(others.iter().copied())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let longest = Timespec::try_from(longest).ok();
        let woken = poll(&mut fds, longest.as_ref());
        if let (Some(fd), Ok(1..)) = (own, woken) {
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
    }
}

/// Events that the worker threads of a run raise: a worker broke, or there is something to process.
#[derive(Debug, Default)]
pub struct Alarm {
    faulted: AtomicBool,
    /// Wakes the controlling thread.
    pub bell: Bell,
}

impl Alarm {
    /// A worker broke, so the run has to end.
    pub fn fault(&self) {
        self.faulted.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Returns true if a worker broke.
    pub fn has_faulted(&self) -> bool {
        self.faulted.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Instant};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_ring_ends_the_wait() {
        let bell = Arc::new(Bell::default());
        let began = Instant::now();
        bell.ring();
        bell.ring();
        bell.wait(&[], LONG);
        let other = Arc::clone(&bell);
        let thread = std::thread::spawn(move || other.ring());
        bell.wait(&[], LONG);
        thread.join().unwrap();
        // Several rings before a wait count as one.
        bell.wait(&[], Duration::ZERO);
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        bell.wait(&[reader.as_fd()], LONG);
        assert!(began.elapsed() < LONG);
    }
}
