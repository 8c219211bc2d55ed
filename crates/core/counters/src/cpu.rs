//! CPU time of an interval, from two readings of `/proc/stat`.

use schemars::JsonSchema;
use serde::Serialize;

/// Shares of an interval, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CpuShares {
    /// Programs, including niced ones.
    pub user_percent: f64,
    /// Kernel work for programs.
    pub system_percent: f64,
    /// Interrupts.
    pub irq_percent: f64,
    /// Soft interrupts: mainly packet processing.
    pub softirq_percent: f64,
    /// Time stolen by the hypervisor.
    pub steal_percent: f64,
    /// Idle, or waiting for disks.
    pub idle_percent: f64,
}

/// Converts ticks since boot (user, nice, system, idle, iowait, irq, softirq, steal, guest, guest nice) to shares.
/// Returns `None` if no tick has passed or the CPU was offline in between.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn shares(old: &[u64; 10], new: &[u64; 10]) -> Option<CpuShares> {
    let mut risen = [0_u64; 8];
    for (slot, (old, new)) in risen.iter_mut().zip(old.iter().zip(new)) {
        // The kernel's idle time can fall by a tick.
        *slot = new.saturating_sub(*old);
    }
    let all: u64 = risen.iter().sum();
    let share = |ticks: u64| 100.0 * ticks as f64 / all as f64;
    (all > 0).then(|| CpuShares {
        user_percent: share(risen[0] + risen[1]),
        system_percent: share(risen[2]),
        irq_percent: share(risen[5]),
        softirq_percent: share(risen[6]),
        steal_percent: share(risen[7]),
        idle_percent: share(risen[3] + risen[4]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let s = shares(&[0; 10], &[10, 10, 20, 30, 10, 5, 10, 5, 0, 0]).unwrap();
        let sum = s.user_percent
            + s.system_percent
            + s.irq_percent
            + s.softirq_percent
            + s.steal_percent
            + s.idle_percent;
        assert!((sum - 100.0).abs() < 1e-9);
        assert!((s.softirq_percent - 10.0).abs() < 1e-9);
        assert_eq!(shares(&[1; 10], &[1; 10]), None);
    }
}
