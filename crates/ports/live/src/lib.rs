//! The live driver: streams sent and accounted for inside the kernel.
//!
//! Not a driver of queue pairs but an offload ([`wb_port::offload`]). The kernel runs a program of ours on frames that it
//! makes itself ("live frames" of `BPF_PROG_RUN`, Linux 5.18), and the program writes each frame by tables and redirects
//! it to the port; a second program at the receiving port accounts for what arrives, as `wb_measure` does, and drops it.
//! So no frame passes a socket.
//!
//! What the call of the kernel says is not believed: it always succeeds. What a device refuses is counted, flow by flow,
//! by programs at the tracepoints that tell it.
//!
//! Interfaces are opened in the network namespace of the calling thread; senders and receivers may then be used by any.
//! Everything is gone with the process, however it ends: programs hang on links, and links on descriptors.

mod fault;

#[cfg(feature = "bpf")]
mod area;
#[cfg(feature = "bpf")]
#[path = "../../bpf/attach_words.rs"]
mod attach_words;
#[cfg(feature = "bpf")]
mod hook;
#[cfg(feature = "bpf")]
#[path = "../../bpf/object.rs"]
mod object;
#[cfg(feature = "bpf")]
mod passage;
#[cfg(feature = "bpf")]
mod probe;
#[cfg(feature = "bpf")]
mod receiver;
#[cfg(feature = "bpf")]
mod sender;
#[cfg(not(feature = "bpf"))]
mod without;

#[cfg(feature = "bpf")]
pub use hook::takes_frames;
#[cfg(feature = "bpf")]
pub use passage::Passage;
#[cfg(feature = "bpf")]
pub use probe::probe;
#[cfg(feature = "bpf")]
pub use receiver::{Account, Receiver};
#[cfg(feature = "bpf")]
pub use sender::{Sender, fits};
#[cfg(not(feature = "bpf"))]
pub use without::{Account, Passage, Receiver, Sender, fits, probe, takes_frames};

/// Longest header, from the destination address to the end of the tag and of what fields write.
pub const MOST_HEADER: usize = 128;
/// Most fields that change from frame to frame, those of the 5-tuple included.
pub const MOST_FIELDS: usize = 12;
/// Most streams at one port.
pub const MOST_STREAMS: usize = 64;
/// Longest frame, without FCS: what the kernel fits into a page, with a margin.
pub const MOST_FRAME: usize = 3_400;
