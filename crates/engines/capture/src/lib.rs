//! The capture engine: writes frames from ports into capture files, and accounts for every frame.
//!
//! [`Captures`] is the engine: it compiles the filter, opens the ports and starts the threads. Everything else knows
//! ports by trait, clocks by trait and file formats by `wb_pcapng`. The crate prints nothing. [`Capture::open`] opens the
//! output and creates a seat for each reader. Each reader then runs the loop [`run_reader`], and one writer runs
//! [`run_writer`]:
//!
//! ```text
//!  RxQueue ──> run_reader ──full buffers──> run_writer ──> file, file1, …
//!                  └───────empty buffers────────┘
//! ```
//!
//! A frame is copied once, as a complete record, into a buffer that can be written to disk directly. This needs no
//! allocation, lock or system call per frame. If the output is slow, readers wait for buffers, so losses occur in the
//! kernel's ring and are counted there. With [`Overflow::DropNewest`](wb_model::capture::Overflow) they occur and are
//! counted here.
//!
//! **Order.** Frames of one reader are in the files in the order of arrival. Frames of several readers are interleaved
//! by buffer. If files change by time, each frame is in the file of its time: a file stays open until no reader can
//! have frames for it.
//!
//! **Losses.** In pcapng, the first frame that certainly arrived after a loss states the number of frames that the
//! kernel dropped before it. The sum of these numbers never exceeds K, and the statistics block contains the total.
//!
//! **Sinks.** A [`FrameSink`] displays frames. In place of files it makes readers wait as a slow disk does, so all
//! displayed frames are accounted for. In addition to files it must keep up without such waits.
//!
//! **The account.** `F = W + K + E + Q + C + U`: frames that passed the filter were written, dropped by the kernel, not
//! written because of an error, dropped here for lack of buffers, beyond the limit, or never read. See [`FrameAccount`].
//!
//! **The end.** After [`CaptureControl::stop`], each reader closes its intake, reads the remaining frames, and delivers
//! its last buffer. When all readers have ended, the writer ends. Start the writer before the readers or in parallel,
//! because they wait for it.

#![forbid(unsafe_code)]

mod account;
mod commands;
mod compress;
mod control;
mod direct;
mod encode;
mod engine;
mod error;
mod files;
mod names;
mod open;
mod open_file;
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

pub use account::FrameAccount;
pub use control::CaptureControl;
pub use engine::{CaptureExtras, Captures};
pub use error::OutputError;
pub use open::Capture;
pub use output::FileId;
pub use reader::{FrameFilter, ReaderOutcome, ReaderSeat, run_reader};
pub use shared::{CaptureShared, CaptureSnapshot, ReaderSnapshot};
pub use sink::{FrameSink, SinkEnd, SinkFlush, SinkFrame};
pub use spec::{CaptureSpec, FileLinks, InterfaceSpec};
pub use wb_port::clock::WorkerClock as Clock;
pub use writer::{Writer, WriterOutcome, run_writer};
