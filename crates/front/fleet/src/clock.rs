//! The clock of an agent: that of its machine, or in tests and simulations one that is wrong on purpose.

use wb_fleet_core::Now;
use wb_machine::clock::{monotonic_ns, wall_ns};

/// Clock of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostClock {
    /// Difference to the clock of the machine, in ns.
    pub(crate) offset_ns: i64,
    /// Drift against the clock of the machine, in parts per billion.
    pub(crate) drift_ppb: i64,
    /// Time on the monotonic clock from which on it drifts, in ns.
    pub(crate) since_ns: u64,
}

impl HostClock {
    /// Time now.
    pub(crate) fn now(&self) -> Now {
        Now {
            mono_ns: monotonic_ns(),
            wall_ns: self.wall_ns(),
        }
    }

    /// Time of day in ns since 1970.
    pub(crate) fn wall_ns(&self) -> u64 {
        let drifted = i128::from(monotonic_ns().saturating_sub(self.since_ns))
            * i128::from(self.drift_ppb)
            / 1_000_000_000;
        let drifted = i64::try_from(drifted).unwrap_or(0);
        wall_ns().saturating_add_signed(self.offset_ns.saturating_add(drifted))
    }

    /// Time on the monotonic clock at which this clock shows `wall_ns`. The drift until then is not considered.
    pub(crate) fn mono_at(&self, wall_ns: u64) -> u64 {
        let now = self.now();
        let ahead = i128::from(wall_ns) - i128::from(now.wall_ns);
        u64::try_from(i128::from(now.mono_ns) + ahead).unwrap_or(0)
    }
}
