//! One open file, pipe or device, with its write position.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Seek, SeekFrom, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    Advice, FallocateFlags, Mode, OFlags, ResolveFlags, fadvise, fallocate, fcntl_getfl,
    fcntl_setfl, fstatvfs, openat2,
};
use rustix::io::Errno;

use wb_model::capture::{Compression, DirectWrites};

use crate::OutputError;
use crate::compress::Compressor;
use crate::direct::DirectWriter;
use crate::open::standard_output;
use crate::pool::PageMemory;
use crate::retention::FinishedFile;
use crate::spec::FileLinks;

/// After this number of bytes the kernel is asked to write them to the disk and drop them from the cache. Otherwise
/// dirty pages accumulate up to the limit at which the kernel blocks the writer until all are written.
const BEHIND: u64 = 64 << 20;
/// Longest wait for a pipe between checks of the flags.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Type of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputKind {
    /// A file that begins at this offset and can be truncated.
    Regular(u64),
    /// Non-blocking, so that a slow reader never blocks the writer.
    Pipe,
    Other,
}

/// Identity of a file, independent of the name used to open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

/// Options for opening files.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputOpening {
    /// A file has `.part` appended to its name until it is finished.
    pub(crate) part: bool,
    /// When to bypass the page cache, if supported.
    pub(crate) direct: DirectWrites,
    /// Expected length of the file in bytes; 0 if unknown.
    pub(crate) expected: u64,
    /// Compression method.
    pub(crate) compress: Compression,
    /// Symbolic links in the names of files.
    pub(crate) links: FileLinks,
}

/// Opens a file for writing, and truncates it. Makes it if it does not exist.
fn open_file(path: &Path, reads: bool, links: &FileLinks) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(reads).write(true).create(true).truncate(true);
    let FileLinks::Refuse { below } = links else {
        return options.open(path);
    };
    let below = below
        .as_deref()
        .and_then(|folder| Some((folder, path.strip_prefix(folder).ok()?)));
    let opened = match below {
        Some((folder, rest)) => {
            let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
            let access = if reads { OFlags::RDWR } else { OFlags::WRONLY };
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let mode = Mode::from_raw_mode(0o666);
            let file = openat2(File::open(folder)?, rest, flags | access, mode, resolve);
            file.map(File::from).map_err(io::Error::from)
        }
        None => options
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path),
    };
    opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => io::Error::other("a symbolic link, which is not followed here"),
        _ => error,
    })
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Output {
    /// Compressor of the file; data passed to `write_all` is already compressed.
    pub(crate) compressor: Option<Compressor>,
    path: PathBuf,
    /// Final name, if different from the current one.
    finished_path: Option<PathBuf>,
    /// `None` if writes use the kernel's page cache.
    direct: Option<DirectWriter>,
    /// More space was allocated than the file may need.
    allocated: bool,
    file: File,
    kind: OutputKind,
    /// Bytes accepted, including those held back.
    len: u64,
    /// Offset up to which the kernel was asked to write, and `forgotten` up to which it was asked to drop the pages.
    behind: u64,
    forgotten: u64,
}

/// A write that was not completed.
#[derive(Debug)]
pub(crate) struct ShortWrite {
    /// Bytes accepted.
    pub(crate) written: usize,
    pub(crate) error: OutputError,
}

impl Output {
    /// Opens a file and truncates it.
    pub(crate) fn create(path: &Path, opening: &OutputOpening) -> Result<Self, OutputError> {
        // A pipe or a device is opened under its name: a file of that name would replace it.
        let takes_part = opening.part && fs::metadata(path).map_or(true, |there| there.is_file());
        let finished_path = takes_part.then(|| path.to_owned());
        let path = match takes_part {
            true => with_part(path),
            false => path.to_owned(),
        };
        let open = || {
            // Also opened for reading, because an existing file may be written past the page cache later.
            let open = |reads| open_file(&path, reads, &opening.links);
            // A pipe that is opened for reading and writing never ends, and a file may be write-only.
            let reads = takes_part || fs::metadata(&path).map_or(true, |there| there.is_file());
            let file = open(reads).or_else(|error| if reads { open(false) } else { Err(error) })?;
            let kind = match file.metadata()?.file_type() {
                kind if kind.is_file() => OutputKind::Regular(0),
                kind if kind.is_fifo() => {
                    fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
                    OutputKind::Pipe
                }
                _ => OutputKind::Other,
            };
            Ok((file, kind))
        };
        let opened = open();
        let mut output = Self::new(path, opened, opening.compress)?;
        output.finished_path = finished_path;
        if opening.direct == DirectWrites::Always {
            output.write_directly(opening.expected, false);
        }
        Ok(output)
    }

    /// Bypasses the page cache from now on. Has no effect if the file system does not support it, or, with `sure`, if
    /// it may not be faster.
    pub(crate) fn write_directly(&mut self, expected: u64, sure: bool) {
        if self.direct.is_some() || self.kind != OutputKind::Regular(0) {
            return;
        }
        let Some(mut direct) = DirectWriter::new(&self.file, sure) else {
            return;
        };
        let Ok(flags) = fcntl_getfl(&self.file) else {
            return;
        };
        if direct.resume(&self.file, self.len).is_err()
            || fcntl_setfl(&self.file, flags | OFlags::DIRECT).is_err()
        {
            return;
        }
        self.direct = Some(direct);
        // Allocates space once and not at each write; the length of the file does not change.
        self.allocated = expected > self.len
            && fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, expected).is_ok();
    }

    /// Opens standard output.
    pub(crate) fn open_standard_output(opening: &OutputOpening) -> Result<Self, OutputError> {
        let open = || {
            let stdout = io::stdout();
            if stdout.is_terminal() {
                return Err(io::Error::other(
                    "it is a terminal; redirect it to a file or a pipe",
                ));
            }
            let mut file = File::from(stdout.as_fd().try_clone_to_owned()?);
            let kind = file.metadata()?.file_type();
            if kind.is_fifo() {
                // The non-blocking flag would apply to all processes that share this end of the pipe. A newly opened
                // descriptor has a separate flag.
                let own = OpenOptions::new()
                    .write(true)
                    .custom_flags(OFlags::NONBLOCK.bits() as i32)
                    .open("/proc/self/fd/1");
                return Ok(own.map_or((file, OutputKind::Other), |own| (own, OutputKind::Pipe)));
            }
            let appends = fcntl_getfl(&file)?.contains(OFlags::APPEND);
            if kind.is_file() && !appends {
                let start = file.stream_position()?;
                return Ok((file, OutputKind::Regular(start)));
            }
            Ok((file, OutputKind::Other))
        };
        Self::new(standard_output(), open(), opening.compress)
    }

    fn new(
        path: PathBuf,
        opened: io::Result<(File, OutputKind)>,
        compress: Compression,
    ) -> Result<Self, OutputError> {
        let compressor = Compressor::new(compress)
            .map_err(|error| OutputError::Input(format!("compression: {error}")))?;
        match opened {
            Ok((file, kind)) => Ok(Self {
                compressor,
                path,
                finished_path: None,
                direct: None,
                allocated: false,
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

    /// Final name of the file.
    pub(crate) fn finished_path(&self) -> &Path {
        self.finished_path.as_deref().unwrap_or(&self.path)
    }

    /// Identity of the file; `None` for a device, which several captures may write to.
    pub(crate) fn id(&self) -> Option<FileId> {
        let file = self.file.metadata().ok()?;
        let kind = file.file_type();
        let device = kind.is_char_device() || kind.is_block_device();
        (!device).then(|| FileId {
            device: file.dev(),
            inode: file.ino(),
        })
    }

    /// Bytes accepted; a few of them may be held back.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes in the file.
    pub(crate) fn in_file(&self) -> u64 {
        self.direct.as_ref().map_or(self.len, DirectWriter::in_file)
    }

    /// Returns true if writes bypass the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Free bytes of its file system for unprivileged users; `None` if it is not a file.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        match self.kind {
            OutputKind::Regular(_) => {
                let told = fstatvfs(&self.file).ok()?;
                Some(told.f_bavail.saturating_mul(told.f_frsize))
            }
            OutputKind::Pipe | OutputKind::Other => None,
        }
    }

    /// Writes data from memory that permits direct writes; see [`DirectWriter::put_in_place`].
    pub(crate) fn put_in_place(
        &mut self,
        memory: &mut PageMemory,
        place: &mut Range<usize>,
        gives_up: impl Fn() -> bool,
    ) -> Result<(), ShortWrite> {
        match &mut self.direct {
            Some(direct) => {
                let result = direct.put_in_place(&self.file, memory, place);
                self.note_direct_write(result)
            }
            None => self.write_all(&memory[place.clone()], gives_up),
        }
    }

    /// Updates the length after a direct write.
    fn note_direct_write(&mut self, result: io::Result<()>) -> Result<(), ShortWrite> {
        let len = self.direct.as_ref().map_or(self.len, DirectWriter::len);
        let written = (len - self.len) as usize;
        self.len = len;
        result.map_err(|cause| ShortWrite {
            written,
            error: self.output_error(cause),
        })
    }

    fn output_error(&self, cause: io::Error) -> OutputError {
        OutputError::Write {
            path: self.path.clone(),
            cause,
        }
    }

    /// Writes the held-back data to the file.
    pub(crate) fn write_held_back(&mut self) -> Result<(), OutputError> {
        let settled = match &mut self.direct {
            Some(direct) => direct.write_held_back(&self.file),
            None => Ok(()),
        };
        settled.map_err(|cause| self.output_error(cause))
    }

    /// Writes all bytes, or returns the number accepted. Waits for a pipe until `gives_up`.
    pub(crate) fn write_all(
        &mut self,
        bytes: &[u8],
        gives_up: impl Fn() -> bool,
    ) -> Result<(), ShortWrite> {
        if let Some(direct) = &mut self.direct {
            let result = direct.append(&self.file, bytes);
            return self.note_direct_write(result);
        }
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
            return Err(ShortWrite {
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

    /// Truncates the file to this length. Returns true on success.
    pub(crate) fn truncate(&mut self, len: u64) -> bool {
        let OutputKind::Regular(start) = self.kind else {
            return false;
        };
        // A truncated file gets at most its final blocks, from unaligned memory.
        if self.direct.take().is_some()
            && let Ok(flags) = fcntl_getfl(&self.file)
        {
            let _ = fcntl_setfl(&self.file, flags - OFlags::DIRECT);
        }
        let cut = self.file.set_len(start + len).is_ok()
            && self.file.seek(SeekFrom::Start(start + len)).is_ok();
        if cut {
            self.len = len;
        }
        cut
    }

    /// Flushes the file to the disk.
    pub(crate) fn sync(&self) -> Result<(), OutputError> {
        match self.kind {
            OutputKind::Regular(_) => self
                .file
                .sync_data()
                .map_err(|cause| self.output_error(cause)),
            OutputKind::Pipe | OutputKind::Other => Ok(()),
        }
    }

    /// Ends the file and gives it its final name; no data may be held back. Returns `None` if it is not a file.
    pub(crate) fn finish(self, sync: bool) -> Result<Option<FinishedFile>, OutputError> {
        let OutputKind::Regular(start) = self.kind else {
            return Ok(None);
        };
        if self.allocated {
            // The file is valid even if the space cannot be released.
            let _ = self.file.set_len(start + self.len);
        }
        if sync || self.finished_path.is_some() {
            self.sync()?;
        }
        if let Some(name) = &self.finished_path {
            fs::rename(&self.path, name).map_err(|cause| OutputError::Rename {
                path: self.path.clone(),
                name: name.clone(),
                cause,
            })?;
        }
        let path = self.finished_path.unwrap_or(self.path);
        let told = self.file.metadata();
        Ok(told.ok().map(|told| FinishedFile {
            path,
            device: told.dev(),
            inode: told.ino(),
        }))
    }

    /// Asking the kernel to forget pages makes it begin to write the dirty ones and drop the clean ones (mm/fadvise.c).
    /// So each range is named twice: after it was written, and after the next one was.
    fn leave_behind(&mut self) {
        let OutputKind::Regular(start) = self.kind else {
            return;
        };
        if self.len - self.behind < BEHIND {
            return;
        }
        let stretch = NonZeroU64::new(self.len - self.forgotten);
        // Only advice: the file does not depend on it.
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

fn with_part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Sleeps until the pipe may accept data.
fn wait(file: &File) {
    let mut fds = [PollFd::new(file, PollFlags::OUT)];
    // Errors are reported by the next write.
    let _ = poll(&mut fds, Some(&POLL_INTERVAL));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_only_where_they_are_allowed() {
        let all = tempfile::tempdir().unwrap();
        let folder = all.path().join("granted");
        fs::create_dir_all(folder.join("own")).unwrap();
        fs::write(all.path().join("secret"), "kept").unwrap();
        symlink(all.path().join("secret"), folder.join("link")).unwrap();
        symlink(all.path(), folder.join("out")).unwrap();
        let below = FileLinks::Refuse {
            below: Some(folder.clone()),
        };
        let none = FileLinks::Refuse { below: None };
        for (name, links, opens) in [
            ("new", &below, true),
            ("own/new", &below, true),
            ("new", &none, true),
            ("link", &below, false),
            ("link", &none, false),
            ("out/secret", &below, false),
            ("own/../../secret", &below, false),
        ] {
            let opened = open_file(&folder.join(name), true, links);
            assert_eq!(opened.is_ok(), opens, "{name} {links:?} {opened:?}");
        }
        let refused = open_file(&folder.join("link"), true, &below).unwrap_err();
        assert!(refused.to_string().contains("symbolic link"), "{refused}");
        let secret = || fs::read_to_string(all.path().join("secret")).unwrap();
        assert_eq!(secret(), "kept");
        open_file(&folder.join("link"), false, &FileLinks::Follow).unwrap();
        assert_eq!(secret(), "");
    }
}
