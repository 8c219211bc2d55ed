//! One open file, pipe or device, and what is known to be in it.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Seek, SeekFrom, Write};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};

use crate::OutputError;
use crate::open::standard_output;

/// After so many bytes the kernel is told to write them to the disk and forget them. Without it dirty pages
/// pile up to the limit at which the kernel makes the writer wait for all of them.
const BEHIND: u64 = 64 << 20;
/// How long a pipe is waited for without a look at the flags.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What it is that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file that begins at this offset; it can be cut to length.
    Regular(u64),
    /// Never blocks, so that nobody has to wait for its reader.
    Pipe,
    Other,
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    kind: Kind,
    /// Bytes in it.
    len: u64,
    /// Up to here the kernel was told to write them to the disk, and up to `forgotten` to forget them.
    behind: u64,
    forgotten: u64,
}

/// A write that did not come to its end.
#[derive(Debug)]
pub(crate) struct Short {
    /// Bytes that did get out.
    pub(crate) written: usize,
    pub(crate) error: OutputError,
}

impl Output {
    /// Opens a file, and empties it.
    pub(crate) fn create(path: &Path) -> Result<Self, OutputError> {
        let open = || {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)?;
            let kind = match file.metadata()?.file_type() {
                kind if kind.is_file() => Kind::Regular(0),
                kind if kind.is_fifo() => {
                    fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
                    Kind::Pipe
                }
                _ => Kind::Other,
            };
            Ok((file, kind))
        };
        Self::new(path.to_owned(), open())
    }

    /// Standard output.
    pub(crate) fn standard() -> Result<Self, OutputError> {
        let open = || {
            let stdout = io::stdout();
            if stdout.is_terminal() {
                return Err(io::Error::other(
                    "it is a terminal; lead it into a file or a pipe",
                ));
            }
            let mut file = File::from(stdout.as_fd().try_clone_to_owned()?);
            let kind = file.metadata()?.file_type();
            if kind.is_fifo() {
                // The flag that a write does not block belongs to all who share the pipe's end; opened anew
                // it is ours alone.
                let own = OpenOptions::new()
                    .write(true)
                    .custom_flags(OFlags::NONBLOCK.bits() as i32)
                    .open("/proc/self/fd/1");
                return Ok(own.map_or((file, Kind::Other), |own| (own, Kind::Pipe)));
            }
            let appends = fcntl_getfl(&file)?.contains(OFlags::APPEND);
            if kind.is_file() && !appends {
                let start = file.stream_position()?;
                return Ok((file, Kind::Regular(start)));
            }
            Ok((file, Kind::Other))
        };
        Self::new(standard_output(), open())
    }

    fn new(path: PathBuf, opened: io::Result<(File, Kind)>) -> Result<Self, OutputError> {
        match opened {
            Ok((file, kind)) => Ok(Self {
                path,
                file,
                kind,
                len: 0,
                behind: 0,
                forgotten: 0,
            }),
            Err(cause) => Err(OutputError::Open { path, cause }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in it.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Writes all of it, or says how much got out. A pipe is waited for until `gives_up`.
    pub(crate) fn put(&mut self, bytes: &[u8], gives_up: impl Fn() -> bool) -> Result<(), Short> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let result = match self.file.write(rest) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    rest = &rest[n..];
                    self.len += n as u64;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !gives_up() {
                        wait(&self.file);
                        continue;
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            };
            let path = self.path.clone();
            return Err(Short {
                written: bytes.len() - rest.len(),
                error: match result {
                    Ok(()) => OutputError::GivenUp { path },
                    Err(cause) => OutputError::Write { path, cause },
                },
            });
        }
        self.leave_behind();
        Ok(())
    }

    /// Cuts it to so many bytes, if it can be cut. Whether that worked.
    pub(crate) fn cut(&mut self, len: u64) -> bool {
        let Kind::Regular(start) = self.kind else {
            return false;
        };
        let cut = self.file.set_len(start + len).is_ok()
            && self.file.seek(SeekFrom::Start(start + len)).is_ok();
        if cut {
            self.len = len;
        }
        cut
    }

    /// Brings it to the disk.
    pub(crate) fn sync(&self) -> Result<(), OutputError> {
        match self.kind {
            Kind::Regular(_) => self.file.sync_data().map_err(|cause| OutputError::Write {
                path: self.path.clone(),
                cause,
            }),
            Kind::Pipe | Kind::Other => Ok(()),
        }
    }

    /// Asking the kernel to forget pages makes it begin to write the dirty ones and drop the clean ones
    /// (mm/fadvise.c). So each stretch is named twice: when it was written, and when the next one was.
    fn leave_behind(&mut self) {
        let Kind::Regular(start) = self.kind else {
            return;
        };
        if self.len - self.behind < BEHIND {
            return;
        }
        let stretch = NonZeroU64::new(self.len - self.forgotten);
        // Advice: without it the file is the same.
        let _ = fadvise(
            &self.file,
            start + self.forgotten,
            stretch,
            Advice::DontNeed,
        );
        self.forgotten = self.behind;
        self.behind = self.len;
    }
}

/// Sleeps until the pipe may take something.
fn wait(file: &File) {
    let mut fds = [PollFd::new(file, PollFlags::OUT)];
    // Whatever it says, the next write says it better.
    let _ = poll(&mut fds, Some(&LOOK));
}
