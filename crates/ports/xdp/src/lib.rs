//! The xdp driver: AF_XDP sockets on rings of our own.
//!
//! [`open`] takes an interface that the host has described and opens it in the network namespace
//! of the calling thread; the queues may then be moved to any thread. This crate finds out nothing
//! of the host itself and knows nothing of what the frames mean, except that the XDP program leaves
//! to the kernel what is not the port's (see [`Select`]).
//!
//! Beside that, [`consume`] keeps counted frames from the host while others receive them.
//!
//! Each queue has a memory of its own, parted in frames for sending and frames for receiving, so
//! that a sent frame keeps its content for the next use.

#[cfg(feature = "bpf")]
#[path = "../../bpf/attach_words.rs"]
mod attach_words;
pub mod consume;
mod fault;
mod group;
mod link;
#[cfg(feature = "bpf")]
#[path = "../../bpf/object.rs"]
mod object;
mod options;
mod port;
mod probe;
#[cfg(feature = "bpf")]
mod program;
mod ring;
mod rx;
mod socket;
mod stamp;
mod tx;
mod umem;

pub use group::{XdpGroup, XdpGroupRx, gather};
pub use options::{BusyPoll, Mode, Select, XdpOptions};
pub use port::{XdpPort, XdpQueue, open};
pub use probe::{Features, Probe, features, probe, try_native};
pub use rx::XdpRx;
pub use tx::XdpTx;
