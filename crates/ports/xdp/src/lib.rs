//! AF_XDP driver with its own implementation of the rings.
//!
//! [`open`] opens an interface that the host has described, in the network namespace of the calling thread. The queues
//! may then be moved to any thread. This crate does not inspect the host and does not interpret frames, except that the
//! XDP program passes frames that are not for the port to the kernel (see [`Select`]).
//!
//! In addition, [`consume`] drops counted frames before the host receives them.
//!
//! Each queue has separate memory, divided into frames for sending and frames for receiving, so that a sent frame keeps
//! its content for the next use.

#[cfg(feature = "bpf")]
#[path = "../../bpf/attach_words.rs"]
mod attach_words;
pub mod consume;
mod group;
mod link;
#[cfg(feature = "bpf")]
#[path = "../../bpf/object.rs"]
mod object;
mod options;
mod port;
mod port_errors;
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
