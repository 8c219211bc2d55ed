//! Detects whether a process that waits for our answer has been interrupted.
//!
//! A process that blocks in a `write(2)` on a FUSE file cannot handle signals: they stay pending until the write is
//! answered. `/proc/TID/status` shows them. This module does not know FUSE.

use std::fs;
use std::io;

/// Set of signals, in the format of the masks in `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// Signals that end a wait: Ctrl-C, `kill`, hang-up, Ctrl-\, `kill -9`. The end of a background job (CHLD) and a
    /// resized window (WINCH) do not end it.
    pub const STOPS: SignalSet = SignalSet(
        bit(libc::SIGINT)
            | bit(libc::SIGTERM)
            | bit(libc::SIGHUP)
            | bit(libc::SIGQUIT)
            | bit(libc::SIGKILL),
    );

    /// Returns true if the set contains the signal with this number, for example `libc::SIGINT`.
    pub fn contains(self, signal: i32) -> bool {
        (1..=64).contains(&signal) && self.0 & bit(signal) != 0
    }

    /// Returns true if the sets have a signal in common.
    pub fn intersects(self, other: SignalSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Pending signals of the thread `tid` and its process that the thread does not block.
///
/// # Errors
/// `NotFound` if the thread does not exist; `InvalidData` if the kernel reports no masks.
pub fn pending_signals(tid: u32) -> io::Result<SignalSet> {
    let status = fs::read(format!("/proc/{tid}/status"))?;
    pending(&status).ok_or_else(|| {
        let what = format!("/proc/{tid}/status has no SigPnd, ShdPnd and SigBlk");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Returns true if the thread `tid` should not wait any longer: a signal of [`SignalSet::STOPS`] is pending, or the
/// thread has ended. A thread in another pid namespace has `tid` 0 and never counts as interrupted.
pub fn is_interrupted(tid: u32) -> bool {
    if tid == 0 {
        return false;
    }
    match pending_signals(tid) {
        Ok(signals) => signals.intersects(SignalSet::STOPS),
        // ESRCH: the thread ended between open and read.
        Err(e) => e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH),
    }
}

fn pending(status: &[u8]) -> Option<SignalSet> {
    let own = mask(status, b"SigPnd:")?;
    let shared = mask(status, b"ShdPnd:")?;
    let blocked = mask(status, b"SigBlk:")?;
    Some(SignalSet((own | shared) & !blocked))
}

fn mask(status: &[u8], name: &[u8]) -> Option<u64> {
    // The first line is the command's name; the kernel escapes its line feeds.
    let line = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(str::from_utf8(line).ok()?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATUS: &str = "Name:\tbash\nState:\tD (disk sleep)\nThreads:\t1\nSigQ:\t1/31452\n\
        SigPnd:\t0000000000000000\nShdPnd:\t0000000000010002\nSigBlk:\t0000000000010000\n\
        SigIgn:\t0000000000000004\nSigCgt:\t0000000043817efb\n";

    #[test]
    fn a_pending_interrupt() {
        let signals = pending(STATUS.as_bytes()).unwrap();
        assert!(signals.contains(libc::SIGINT));
        assert!(!signals.contains(libc::SIGCHLD), "blocked");
        assert!(signals.intersects(SignalSet::STOPS));
    }

    #[test]
    fn the_end_of_a_child_is_no_interrupt() {
        let status = STATUS
            .replace("10002", "10000")
            .replace("SigBlk:\t0000000000010", "SigBlk:\t0000000000000");
        let signals = pending(status.as_bytes()).unwrap();
        assert!(signals.contains(libc::SIGCHLD));
        assert!(!signals.intersects(SignalSet::STOPS));
        assert!(!signals.is_empty());
    }

    #[test]
    fn a_signal_to_the_thread_itself_counts() {
        let status = STATUS
            .replace("SigPnd:\t0000000000000000", "SigPnd:\t0000000000000100")
            .replace("10002", "00000");
        assert!(pending(status.as_bytes()).unwrap().contains(libc::SIGKILL));
    }

    #[test]
    fn masks_that_are_missing_or_odd() {
        assert_eq!(pending(b""), None);
        assert_eq!(pending(STATUS.replace("ShdPnd", "Shdpnd").as_bytes()), None);
        assert_eq!(pending(STATUS.replace("10002", "1000x").as_bytes()), None);
        for signal in [i32::MIN, -1, 0, 65, i32::MAX] {
            assert!(!SignalSet(u64::MAX).contains(signal));
        }
        assert!(SignalSet(u64::MAX).contains(64));
    }

    #[test]
    fn nobody_is_interrupted_without_cause() {
        assert!(!is_interrupted(std::process::id()));
        assert!(!is_interrupted(0));
        assert!(is_interrupted(u32::MAX), "no such thread");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = pending(&text);
        }

        #[test]
        fn any_mask_is_read_without_a_panic(
            own in "[ \\t]*[-+0-9a-fA-F]{0,18}", shared in "[0-9a-f]{1,17}", blocked in "[0-9a-f]{16}",
        ) {
            let text = format!("SigPnd:{own}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\n");
            if let Some(signals) = pending(text.as_bytes()) {
                let blocked = u64::from_str_radix(&blocked, 16).unwrap();
                prop_assert_eq!(signals.0 & blocked, 0);
            }
        }
    }
}
