//! Why there is no output, or no more of it.

use std::io;
use std::path::PathBuf;

/// An error of the output.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The settings contradict each other or are out of range.
    #[error("capture output: {0}")]
    Input(String),
    /// There is not so much memory.
    #[error(
        "capture output: {buffers} buffers of {bytes} bytes: not enough memory; take fewer or smaller ones"
    )]
    Memory {
        /// Buffers asked for.
        buffers: u32,
        /// Bytes of each.
        bytes: usize,
    },
    /// A file could not be opened.
    #[error("{path}: open for writing: {cause}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A write failed: disk full, disk error, nobody reads the pipe any more.
    #[error("{path}: write: {cause}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The output took nothing more, and the capture was told not to wait.
    #[error("{path}: write: given up, the output took nothing more", path = path.display())]
    GivenUp {
        /// The file.
        path: PathBuf,
    },
}
