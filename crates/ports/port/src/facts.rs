//! Properties of an open port.

use std::fmt;

/// Source of a receive timestamp, ordered by accuracy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StampSource {
    /// The network card, on arrival of the frame.
    Nic,
    /// The kernel's packet tap (TPACKET), in the receive path.
    KernelTpacket,
    /// The XDP program, in the driver's receive path.
    KernelXdp,
    /// This process, on reading the frame; includes the wake-up delay of the thread.
    UserSpace,
    /// A capture file.
    Recorded,
    /// Virtual clock of a test.
    Virtual,
}

impl StampSource {
    /// The name used in reports: `nic`, `kernel-tpacket`, `kernel-xdp`, `user`, `recorded`, `virtual`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nic => "nic",
            Self::KernelTpacket => "kernel-tpacket",
            Self::KernelXdp => "kernel-xdp",
            Self::UserSpace => "user",
            Self::Recorded => "recorded",
            Self::Virtual => "virtual",
        }
    }
}

impl fmt::Display for StampSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Link speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Bits per second on the wire.
    pub bits_per_second: u64,
    /// True if the device only claims the speed (veth, tap): it defines no line rate and no percentage.
    pub nominal: bool,
}

/// Properties of an open port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Locator that the port was opened from, with the driver: `xdp:wb-pair-a/a0`.
    pub locator: String,
    /// Driver name: `xdp`, `packet`, `memory`, `file`.
    pub driver: &'static str,
    /// Mode of the driver: `native copy`, `tpacket-v3 + sendmmsg`, …
    pub mode: String,
    /// Interface index in its namespace; 0 without an interface.
    pub ifindex: u32,
    /// Hardware address; zeros if there is none.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes. Frames may have this plus 14 bytes, and 4 for each VLAN tag.
    pub mtu: u32,
    /// Link speed, if known.
    pub speed: Option<Speed>,
    /// Number of open queue pairs.
    pub queues: u32,
    /// Best timestamp source of this port.
    pub stamp_source: StampSource,
    /// Kernel driver (`veth`, `ixgbe`, …); empty if there is none.
    pub kernel_driver: String,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
}

/// Interface to open, as described by the host.
///
/// Drivers open it in the network namespace of the calling thread. They do not determine these properties themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Port as the user wrote it, for messages.
    pub port: String,
    /// Interface name in its namespace.
    pub name: String,
    /// Interface index in its namespace.
    pub index: u32,
    /// Largest IP packet in bytes.
    pub mac: [u8; 6],
    /// Largest IP packet.
    pub mtu: u32,
    /// Link speed, if known.
    pub speed: Option<Speed>,
    /// Kernel driver (`veth`, `ixgbe`, …); empty if unknown.
    pub kernel_driver: String,
    /// Active transmit queues; 1 if unknown.
    pub tx_queues: u32,
    /// Active receive queues; 1 if unknown.
    pub rx_queues: u32,
}

impl Interface {
    /// Returns the command that switches on `count` queues, or a hint if the driver refuses XDP programs then.
    #[must_use]
    pub fn switch_on(&self, count: u64) -> String {
        let name = &self.name;
        match self.kernel_driver.as_str() {
            // veth has separate receive and transmit queues; most cards have only pairs.
            "veth" => format!("try `ethtool -L {name} rx {count} tx {count}`"),
            driver @ ("ena" | "gve") => format!(
                "{driver} accepts XDP programs only if at most half of its queues are on; see `wirebench doctor {name}`"
            ),
            _ => format!("try `ethtool -L {name} combined {count}`"),
        }
    }
}
