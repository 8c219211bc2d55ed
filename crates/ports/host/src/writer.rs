//! Who waits for an answer of ours: has it been told to stop waiting?
//!
//! A process that blocks in a `write(2)` on a FUSE file cannot take its signals: they stay pending
//! until the write is answered. `/proc/TID/status` shows them. Knows nothing of FUSE.

use std::fs;
use std::io;

/// A set of signals, as the masks in `/proc/PID/status` have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// What ends a wait: Ctrl-C, `kill`, the end of the terminal, Ctrl-\, `kill -9`. The end of a
    /// background job (CHLD) or a resized window (WINCH) does not.
    pub const STOPS: SignalSet = SignalSet(
        bit(libc::SIGINT)
            | bit(libc::SIGTERM)
            | bit(libc::SIGHUP)
            | bit(libc::SIGQUIT)
            | bit(libc::SIGKILL),
    );

    /// Whether the signal of this number, `libc::SIGINT` for instance, is in it.
    pub fn contains(self, signal: i32) -> bool {
        (1..=64).contains(&signal) && self.0 & bit(signal) != 0
    }

    /// Whether it has a signal in common with another set.
    pub fn intersects(self, other: SignalSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no signal is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signals that wait for the thread `tid`, sent to it or to its process, and that it does not
/// block.
///
/// # Errors
/// `NotFound` where there is no such thread; `InvalidData` where the kernel tells no masks.
pub fn pending_signals(tid: u32) -> io::Result<SignalSet> {
    let status = fs::read(format!("/proc/{tid}/status"))?;
    pending(&status).ok_or_else(|| {
        let what = format!("/proc/{tid}/status has no SigPnd, ShdPnd and SigBlk");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Whether the thread `tid` shall no longer be kept waiting: a signal of [`SignalSet::STOPS`] is
/// pending, or it is gone. 0, a thread of which only is known that it is in another pid namespace,
/// is never interrupted.
pub fn is_interrupted(tid: u32) -> bool {
    if tid == 0 {
        return false;
    }
    match pending_signals(tid) {
        Ok(signals) => signals.intersects(SignalSet::STOPS),
        // ESRCH: it went between the opening and the reading.
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
