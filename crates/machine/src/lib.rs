//! State of the machine: namespaces, links, CPUs, clocks, and their limits.
//!
//! This is the only crate that reads `/proc`, `/sys` and netlink. It moves no frames and does not know plans. It reads
//! and changes the machine's state on request and never prints.
//!
//! A network namespace belongs to a thread. [`Netlink`] and [`Ethtool`] open their socket in the namespace once and can
//! then be used from any thread. Operations without a socket (sysctls, a new packet socket) run in [`in_namespace`].

pub mod address;
pub mod affinity;
pub mod bridge;
pub mod clock;
pub mod counters;
pub mod cpu;
pub mod descriptors;
pub mod doctor;
pub mod ethtool;
pub mod expression;
pub mod link;
pub mod link_events;
pub mod locks;
pub mod machine;
pub mod memory;
pub mod mount;
pub mod neighbour;
pub mod netns;
pub mod offloads;
pub mod pci;
pub mod peer;
pub mod pending_signals;
pub mod privilege;
pub mod probe;
pub mod process;
pub mod realtime;
pub mod related_interfaces;
pub mod resolve;
pub mod route;
pub mod runs;
pub mod stamped_udp;
pub mod steering;
pub mod sysctl;
pub mod user;

mod error;
mod netlink;
mod private_folder;
mod queues;
mod sysfs;

pub use error::{HostError, Result, cause_text};
pub use ethtool::Ethtool;
pub use link::{Link, LinkCounters};
pub use link_events::LinkEvents;
pub use locks::{Direction, QueueLock};
pub use mount::{MountTable, PrivateMounts, ShownModule};
pub use netlink::Netlink;
pub use netns::{Namespace, in_namespace};
pub use peer::veth_peer;
pub use related_interfaces::WayOut;
