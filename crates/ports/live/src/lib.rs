//! Live driver: sends and counts the frames of streams inside the kernel.
//!
//! This is not a driver of queue pairs but an offload ([`wb_port::offload`]). The kernel runs our program on frames
//! that it allocates ("live frames" of `BPF_PROG_RUN`, Linux 5.18). The program writes each frame from tables and
//! redirects it to the port. A second program at the receiving port counts the frames that arrive, by the rules of
//! `wb_measure`, and drops them. So no frame passes a socket.
//!
//! The result of the kernel call is not used, because the call always succeeds. Programs at the redirect tracepoints
//! count the frames that a device refuses, per flow.
//!
//! Interfaces are opened in the network namespace of the calling thread. Any thread may then use the senders and
//! receivers. All programs are removed when the process ends, however it ends, because programs depend on links, and
//! links on descriptors.

mod fault;

#[cfg(feature = "bpf")]
#[path = "../../bpf/attach_words.rs"]
mod attach_words;
#[cfg(feature = "bpf")]
mod hook;
#[cfg(feature = "bpf")]
#[path = "../../bpf/object.rs"]
mod object;
#[cfg(feature = "bpf")]
mod pass_program;
#[cfg(feature = "bpf")]
mod probe;
#[cfg(feature = "bpf")]
mod receiver;
#[cfg(feature = "bpf")]
mod sender;
#[cfg(feature = "bpf")]
mod shared_map;
#[cfg(not(feature = "bpf"))]
mod unavailable;

#[cfg(feature = "bpf")]
pub use hook::takes_frames;
#[cfg(feature = "bpf")]
pub use pass_program::PassProgram;
#[cfg(feature = "bpf")]
pub use probe::probe;
#[cfg(feature = "bpf")]
pub use receiver::{Account, Receiver};
#[cfg(feature = "bpf")]
pub use sender::{Sender, fits};
#[cfg(not(feature = "bpf"))]
pub use unavailable::{Account, PassProgram, Receiver, Sender, fits, probe, takes_frames};

/// Longest header in bytes, from the destination address to the end of the tag and of all fields.
pub const MOST_HEADER: usize = 128;
/// Largest number of fields that change from frame to frame, including those of the 5-tuple.
pub const MOST_FIELDS: usize = 12;
/// Largest number of streams of a port.
pub const MOST_STREAMS: usize = 64;
/// Longest frame in bytes, without FCS: the part of a page that the kernel leaves for data, with a margin.
pub const MOST_FRAME: usize = 3_400;
