//! What is known about a port once it is open.

use std::fmt;

/// Who took a receive stamp. In the order of how much it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StampSource {
    /// The network card, when the frame arrived.
    Nic,
    /// The kernel's packet tap (TPACKET), in the receive path.
    KernelTpacket,
    /// The XDP program, in the driver's receive path.
    KernelXdp,
    /// This process, when it saw the frame; includes the wait for its thread.
    UserSpace,
    /// A capture file.
    Recorded,
    /// A clock that the test turns.
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
    /// The device only claims it (veth, tap): no percentage or line rate can be taken from it.
    pub nominal: bool,
}

/// What is known about an open port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// The locator it was opened from, with the driver: `xdp:wb-pair-a/a0`.
    pub locator: String,
    /// Driver name: `xdp`, `packet`, `memory`, `file`.
    pub driver: &'static str,
    /// How the driver works here: `native copy`, `tpacket-v3 + sendmmsg`, …
    pub mode: String,
    /// Interface index in its namespace; 0 where there is no interface.
    pub ifindex: u32,
    /// Hardware address; zero where there is none.
    pub mac: [u8; 6],
    /// Largest IP packet; frames may be this plus 14 (and 4 for each VLAN tag) long.
    pub mtu: u32,
    /// Link speed, where known.
    pub speed: Option<Speed>,
    /// Queue pairs open.
    pub queues: u32,
    /// The best stamp that this port takes.
    pub stamp_source: StampSource,
    /// Kernel driver (`veth`, `ixgbe`, …); empty where there is none.
    pub kernel_driver: String,
    /// What the user should know, a sentence each.
    pub warnings: Vec<String>,
}

/// An interface as the host described it, given to a driver to open.
///
/// Drivers open it in the network namespace of the calling thread; they find out nothing of
/// this themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The port as the user wrote it, for messages.
    pub port: String,
    /// Interface name in its namespace.
    pub name: String,
    /// Interface index in its namespace.
    pub index: u32,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Largest IP packet.
    pub mtu: u32,
    /// Link speed, where known.
    pub speed: Option<Speed>,
    /// Kernel driver (`veth`, `ixgbe`, …); empty where unknown.
    pub kernel_driver: String,
    /// Transmit queues switched on; 1 where unknown.
    pub tx_queues: u32,
    /// Receive queues switched on; 1 where unknown.
    pub rx_queues: u32,
}

impl Interface {
    /// Returns the command that switches on `count` queues, or a hint if the driver refuses XDP programs then.
    #[must_use]
    pub fn switch_on(&self, count: u64) -> String {
        let name = &self.name;
        match self.kernel_driver.as_str() {
            // veth knows receive and transmit queues; most cards know only pairs.
            "veth" => format!("try `ethtool -L {name} rx {count} tx {count}`"),
            driver @ ("ena" | "gve") => format!(
                "{driver} takes XDP programs with at most half of its queues on, see `wirebench doctor {name}`"
            ),
            _ => format!("try `ethtool -L {name} combined {count}`"),
        }
    }
}
