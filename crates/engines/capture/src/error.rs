//! Errors of the output.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use wb_model::cause_text;

/// An error of the output.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The settings contradict each other or are out of range.
    #[error("capture output: {0}")]
    Input(String),
    /// The buffers do not fit into memory.
    #[error(
        "capture output: not enough memory for {buffers} buffers of {bytes} bytes; use fewer or smaller buffers"
    )]
    Memory {
        /// Requested buffers.
        buffers: u32,
        /// Bytes of each.
        bytes: usize,
    },
    /// A file could not be opened.
    #[error("cannot open {path} for writing: {}", cause_text(.cause), path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Reason.
        #[source]
        cause: io::Error,
    },
    /// A write failed: disk full, disk error, pipe closed by its reader.
    #[error("cannot write {path}: {}", cause_text(.cause), path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Reason.
        #[source]
        cause: io::Error,
    },
    /// A finished file could not be given its name.
    #[error("cannot rename {path} to {name}: {}", cause_text(.cause), path = path.display(), name = name.display())]
    Rename {
        /// Current name.
        path: PathBuf,
        /// Intended name.
        name: PathBuf,
        /// Reason.
        #[source]
        cause: io::Error,
    },
    /// The output accepted no more data, and the capture was asked not to wait.
    #[error("cannot write {path}: the output accepted no more data", path = path.display())]
    GivenUp {
        /// The file.
        path: PathBuf,
    },
}

impl OutputError {
    /// Returns true if the file system, or the user's quota, is full.
    pub(crate) fn is_full(&self) -> bool {
        let (Self::Open { cause, .. } | Self::Write { cause, .. }) = self else {
            return false;
        };
        let full = [Errno::NOSPC, Errno::DQUOT];
        Errno::from_io_error(cause).is_some_and(|errno| full.contains(&errno))
    }
}
