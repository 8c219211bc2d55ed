//! Capacity limit of the router: a token bucket on its egress.
//!
//! A bucket sends what its tokens allow, however late its timer fires, as long as the tokens of that
//! time fit into the bucket. The bucket, not the queue before it, therefore determines the accuracy of the
//! rate. It holds more than the maximum lateness of a timer, while the queue stays short, so that few
//! frames arrive after the end of a trial.
//!
//! The timer for each waiting frame uses the CPU on which it was set, 10 us or more in a virtual machine.
//! The sender's system call carries its frames up to the bucket. On the sender's CPU, these timers would slow the
//! sender
//! down to the rate of the bucket, and the router could not be overloaded. So the router uses a separate CPU.

use std::process::Command;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_machine::{Namespace, cpu, in_namespace, steering};

use crate::{Result, TestbedError};

/// Time to fill the bucket; further tokens are lost.
const BUCKET_MS: u64 = 10;
/// Maximum time in the queue.
const QUEUE_MS: u64 = 2;
/// Bytes of the Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: u64 = 14 + 8;

/// Limit of an egress. In a time T at most `rate_bps` × T ÷ 8 + `burst_bytes` bytes leave,
/// and `queue_bytes` more after the last one has arrived. Frames count without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// Bits per second.
    pub rate_bps: u64,
    /// Bytes that may leave at once after a pause.
    pub burst_bytes: u64,
    /// Bytes that may wait.
    pub queue_bytes: u64,
}

impl Limit {
    /// Makes a limit that meets `rate_bps` in the long run.
    pub(crate) fn of_rate(rate_bps: u64, mtu: u32) -> Self {
        let longest = u64::from(mtu) + FRAME_OVERHEAD;
        let bytes_in = |ms: u64| rate_bps / 8 * ms / 1000;
        // The kernel stores the bucket size in 32 bits.
        let burst_bytes = bytes_in(BUCKET_MS).clamp(10 * longest, 1 << 30);
        let queue_bytes = bytes_in(QUEUE_MS).clamp(10 * longest, 1 << 30);
        Self {
            rate_bps,
            burst_bytes,
            queue_bytes,
        }
    }

    /// Applies the limit to an interface.
    pub(crate) fn apply_limit(&self, namespace: &Namespace, interface: &str) -> Result<()> {
        let Self {
            rate_bps,
            burst_bytes,
            queue_bytes,
        } = self;
        // For `tc`, a bare number is bits per second for a rate and bytes for the others.
        let line = format!(
            "qdisc replace dev {interface} root tbf rate {rate_bps}bit burst {burst_bytes}b limit {queue_bytes}b"
        );
        let command = format!("{}tc {line}", namespace.command_prefix());
        let output = in_namespace(namespace, || {
            Command::new("tc").args(line.split(' ')).output()
        })?
        .map_err(TestbedError::io("run", "tc (Debian package iproute2)"))?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr)
            .trim()
            .replace('\n', "; ");
        Err(TestbedError::Command { command, message })
    }
}

/// If permitted, makes the kernel forward arrivals at an interface on the CPU that senders take last.
pub(crate) fn forward_elsewhere(namespace: &Namespace, interface: &str) {
    if let Some(cpu) = cpu::online().ok().and_then(|cpus| cpu::placed_last(&cpus)) {
        steering::receive_on(namespace, interface, cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_and_queue() {
        let limit = Limit::of_rate(100_000_000, 1500);
        assert_eq!((limit.burst_bytes, limit.queue_bytes), (125_000, 25_000));
        let slow = Limit::of_rate(64_000, 1500);
        assert_eq!((slow.burst_bytes, slow.queue_bytes), (15_220, 15_220));
    }
}
