//! Lease of a run: an agent may send until its lease runs out.

/// Lease of one run on one host, by the monotonic clock. Both the agent's state machine and the thread that stops an
/// engine without the agent keep one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    length_ns: u64,
    renewed_ns: u64,
    /// Epoch of the controller and number of the renewal. Both only rise, so a repeated message renews nothing.
    last: (u64, u64),
}

impl Lease {
    /// Creates a lease of this length in ns that begins at `now_ns`, granted by the controller of `epoch`.
    #[must_use]
    pub const fn new(length_ns: u64, epoch: u64, now_ns: u64) -> Self {
        Self {
            length_ns,
            renewed_ns: now_ns,
            last: (epoch, 0),
        }
    }

    /// Renews the lease. Returns false, and changes nothing, if the message is not newer than the last one, if its epoch
    /// is lower, or if the lease has run out: a stopped sender does not start again.
    pub fn renew(&mut self, epoch: u64, seq: u64, now_ns: u64) -> bool {
        if (epoch, seq) <= self.last || self.has_run_out(now_ns) {
            return false;
        }
        self.last = (epoch, seq);
        self.renewed_ns = self.renewed_ns.max(now_ns);
        true
    }

    /// Epoch of the controller that renewed the lease last.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.last.0
    }

    /// Time at which the lease runs out without a renewal, in ns.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        self.renewed_ns.saturating_add(self.length_ns)
    }

    /// Returns true if the lease has run out.
    #[must_use]
    pub const fn has_run_out(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_runs_out_unless_it_is_renewed_in_time() {
        let mut lease = Lease::new(3_000, 4, 100);
        assert!(!lease.has_run_out(3_099));
        assert!(lease.has_run_out(3_100));
        assert!(lease.renew(4, 1, 2_000));
        assert_eq!(lease.end_ns(), 5_000);
        // A late renewal does not revive it.
        assert!(!lease.renew(4, 2, 5_000));
        assert_eq!(lease.end_ns(), 5_000);
    }

    #[test]
    fn only_newer_messages_renew_and_a_higher_epoch_takes_over() {
        let mut lease = Lease::new(3_000, 4, 0);
        assert!(!lease.renew(3, 9, 1_000));
        assert!(lease.renew(4, 2, 1_000));
        assert!(!lease.renew(4, 2, 2_000), "a replay");
        assert!(!lease.renew(4, 1, 2_000), "out of order");
        assert!(lease.renew(5, 0, 2_000));
        assert!(!lease.renew(4, 3, 2_500));
        assert_eq!((lease.epoch(), lease.end_ns()), (5, 5_000));
    }
}
