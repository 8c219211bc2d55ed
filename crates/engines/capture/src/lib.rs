//! The capture engine: frames from ports into capture files, with an exact account.
//!
//! Knows ports by trait, clocks by trait and file formats by `wb_pcapng`; compiles no filters, starts no
//! threads and prints nothing. [`Capture::open`] opens the output and makes a seat for each reader; then each
//! reader is one loop, [`run_reader`], and the files have one more, [`run_writer`]:
//!
//! ```text
//!  RxQueue ──> run_reader ──full buffers──> run_writer ──> file, file1, …
//!                  └───────empty buffers────────┘
//! ```
//!
//! A frame is copied once, as a finished record into a buffer, from which a disk takes it as it is; nothing
//! is allocated, locked or asked of the kernel for it. A slow output makes the readers wait for buffers, so
//! that what is lost is lost in the ring of the kernel and counted there; with
//! [`Overflow::DropNewest`](wb_model::capture::Overflow) it is lost and counted here.
//!
//! **Order.** The frames of one reader stand in the files in the order they came. Those of several stand
//! buffer by buffer. Where files change by time, a frame of each reader is in the file of its time: a file
//! stays open until no reader can have anything for it.
//!
//! **Losses.** In pcapng the first frame that surely came after a loss says how many frames the kernel had
//! dropped before it. What these tell together is never more than K, and the statistics tell all.
//!
//! **Sinks.** A [`FrameSink`] takes frames to show them. In the place of files it makes readers wait as a
//! slow disk does, so nothing is shown that is not accounted for; beside files it has to keep up by itself.
//!
//! **The account.** `F = W + K + E + Q + C + U`: what passed the filter is written, dropped by the kernel,
//! not written because of an error, dropped here for want of buffers, beyond what was wanted, or never read. See
//! [`Account`].
//!
//! **The end.** [`CaptureControl::stop`] makes each reader close its intake and read what is still there;
//! then its last buffer goes to the writer. When all readers have ended, the writer ends. Run the writer
//! before or beside the readers: they wait for it.

#![forbid(unsafe_code)]

mod account;
mod compress;
mod control;
mod direct;
mod encode;
mod error;
mod files;
mod held;
mod names;
mod open;
mod output;
mod output_pipe;
mod pool;
mod reader;
mod retention;
mod rotation;
mod shared;
mod sink;
mod spec;
mod writer;

pub use account::Account;
pub use control::CaptureControl;
pub use error::OutputError;
pub use open::Capture;
pub use output::FileId;
pub use reader::{FrameFilter, ReaderOutcome, ReaderSeat, run_reader};
pub use shared::{CaptureShared, CaptureSnapshot, ReaderSnapshot};
pub use sink::{Flushed, FrameSink, SinkEnd, SinkFrame};
pub use spec::{CaptureSpec, InterfaceSpec};
pub use wb_port::clock::WorkerClock as Clock;
pub use writer::{Writer, WriterOutcome, run_writer};
