//! Printing of frames on standard output during a capture.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, IsTerminal, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use jiff::tz::TimeZone;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wb_files::read::offsets;
use wb_session::{FrameSink, SinkEnd, SinkFlush, SinkFrame};
use wb_tcpdump::print::{CapturedPacket, LinkType, PacketPrinter, PrintOptions};

use crate::stdout::stdout;

/// Maximum wait for blocked output before the stop flags are checked again.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// Maximum number of batches of lines that wait for a slow reader while frames go into a file.
const WAITING: usize = 64;
/// Maximum frame bytes per batch of lines.
const BATCH: usize = 64 << 10;

/// Prints frames as tcpdump does.
pub(crate) struct Lines {
    printer: PacketPrinter,
    /// Names of the interfaces if there are several.
    names: Vec<String>,
    text: String,
    /// End of each frame's lines in the text.
    ends: Vec<usize>,
    out: Patient,
    line_by_line: bool,
}

impl Lines {
    /// Creates a printer for the current standard output.
    ///
    /// # Errors
    /// If there is no standard output.
    pub(super) fn new(
        options: PrintOptions,
        names: Vec<String>,
        line_by_line: bool,
    ) -> io::Result<Self> {
        Ok(Self {
            printer: PacketPrinter::new(options).in_zone(offsets(TimeZone::system())),
            names: if names.len() > 1 { names } else { Vec::new() },
            text: String::new(),
            ends: Vec::new(),
            out: Patient::standard()?,
            line_by_line,
        })
    }

    /// Writes the text, at once or frame by frame; `taken` is called with each successful write.
    fn write(
        &mut self,
        gives_up: &dyn Fn() -> bool,
        taken: &dyn Fn(usize),
    ) -> (usize, Option<SinkEnd>) {
        let text = self.text.as_bytes();
        let (mut ends, whole) = (&self.ends[..], [text.len()]);
        if !self.line_by_line {
            ends = &whole;
        }
        let mut written = 0;
        for end in ends {
            let (more, stopped) = self.out.put(&text[written..*end], gives_up, taken);
            written += more;
            if stopped.is_some() {
                return (written, stopped);
            }
        }
        (written, None)
    }

    fn flush_telling(&mut self, gives_up: &dyn Fn() -> bool, taken: &dyn Fn(usize)) -> SinkFlush {
        let (written, end) = self.write(gives_up, taken);
        let frames = self.ends.iter().filter(|end| **end <= written).count() as u64;
        self.text.clear();
        self.ends.clear();
        SinkFlush { frames, end }
    }
}

impl FrameSink for Lines {
    fn frame(&mut self, frame: &SinkFrame<'_>) {
        let packet = CapturedPacket {
            interface: self.names.get(frame.interface as usize).map(String::as_str),
            original_len: frame.original_len,
            ..CapturedPacket::new(frame.stamp_ns, frame.bytes, LinkType::Ethernet)
        };
        self.printer.line(&mut self.text, &packet);
        self.ends.push(self.text.len());
    }

    fn flush(&mut self, gives_up: &dyn Fn() -> bool) -> SinkFlush {
        self.flush_telling(gives_up, &|_| ())
    }
}

/// Standard output with a limited wait.
struct Patient {
    file: File,
    /// True if the descriptor can be polled: a pipe or a terminal, reopened so that O_NONBLOCK affects only this
    /// process.
    polled: bool,
}

impl Patient {
    fn standard() -> io::Result<Self> {
        let stdout = stdout()?;
        let file = File::from(stdout.as_fd().try_clone_to_owned()?);
        let waits = file.metadata()?.file_type().is_fifo() || stdout.is_terminal();
        let anew = || {
            OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
                .open("/proc/self/fd/1")
        };
        Ok(match waits.then(anew) {
            Some(Ok(file)) => Self { file, polled: true },
            _ => Self {
                file,
                polled: false,
            },
        })
    }

    /// Returns the number of bytes written, and the error if not all were.
    fn put(
        &mut self,
        bytes: &[u8],
        gives_up: &dyn Fn() -> bool,
        taken: &dyn Fn(usize),
    ) -> (usize, Option<SinkEnd>) {
        let mut written = 0;
        while written < bytes.len() {
            match self.file.write(&bytes[written..]) {
                Ok(0) => {
                    return (written, Some(SinkEnd::Failed(ErrorKind::WriteZero.into())));
                }
                Ok(n) => {
                    written += n;
                    taken(n);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.polled => {
                    if gives_up() {
                        return (written, Some(SinkEnd::GivenUp));
                    }
                    let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
                    // Any error appears again with the next write.
                    let _ = poll(&mut fds, Some(&LOOK));
                }
                // A terminal that has hung up returns EIO.
                Err(e)
                    if e.kind() == ErrorKind::BrokenPipe
                        || (self.polled && e.raw_os_error() == Some(libc::EIO)) =>
                {
                    return (written, Some(SinkEnd::Unwanted));
                }
                Err(e) => return (written, Some(SinkEnd::Failed(e))),
            }
        }
        (written, None)
    }
}

/// Time without progress after which the remaining lines are abandoned at the end.
const STANDSTILL: Duration = Duration::from_secs(1);

/// Frame of a batch: interface, time stamp, length on the wire, and end of its bytes.
type Kept = (u32, u64, u32, usize);

#[derive(Default)]
struct Batch {
    frames: Vec<Kept>,
    bytes: Vec<u8>,
}

/// Printing in addition to files, on a dedicated thread that the capture never waits for. Frames that exceed its
/// capacity are in the files but not printed.
pub(super) struct Beside {
    batch: Batch,
    to_printer: SyncSender<Batch>,
    progress: Arc<Progress>,
}

/// Handle for ending [`Beside`].
pub(crate) struct Printing {
    thread: JoinHandle<()>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Frames that are in the files and will not be printed.
    unprinted: AtomicU64,
    /// Bytes of lines that were written.
    bytes: AtomicU64,
    given_up: AtomicBool,
}

impl Beside {
    pub(super) fn start(lines: Lines) -> io::Result<(Self, Printing)> {
        let (to_printer, batches) = sync_channel(WAITING);
        let progress = Arc::new(Progress::default());
        let shown = progress.clone();
        let thread = std::thread::Builder::new()
            .name("wb-lines".to_owned())
            .spawn(move || print_batches(lines, &batches, &shown))?;
        let beside = Self {
            batch: Batch::default(),
            to_printer,
            progress: progress.clone(),
        };
        Ok((beside, Printing { thread, progress }))
    }

    fn hand_over(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let frames = batch.frames.len() as u64;
        if frames > 0 && self.to_printer.try_send(batch).is_err() {
            self.progress.unprinted.fetch_add(frames, Ordering::Relaxed);
        }
    }
}

impl FrameSink for Beside {
    fn frame(&mut self, frame: &SinkFrame<'_>) {
        self.batch.bytes.extend_from_slice(frame.bytes);
        let end = self.batch.bytes.len();
        let kept = (frame.interface, frame.stamp_ns, frame.original_len, end);
        self.batch.frames.push(kept);
        if end >= BATCH {
            self.hand_over();
        }
    }

    fn flush(&mut self, _: &dyn Fn() -> bool) -> SinkFlush {
        self.hand_over();
        SinkFlush::default()
    }
}

fn print_batches(mut lines: Lines, batches: &Receiver<Batch>, progress: &Progress) {
    let mut ended = false;
    for batch in batches {
        let mut printed = 0;
        if !ended {
            let mut begin = 0;
            for (interface, stamp_ns, original_len, end) in &batch.frames {
                lines.frame(&SinkFrame {
                    interface: *interface,
                    stamp_ns: *stamp_ns,
                    original_len: *original_len,
                    bytes: &batch.bytes[begin..*end],
                });
                begin = *end;
            }
            let taken = |bytes: usize| {
                progress.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            };
            let flushed =
                lines.flush_telling(&|| progress.given_up.load(Ordering::Relaxed), &taken);
            printed = flushed.frames;
            ended = flushed.end.is_some();
        }
        let unprinted = batch.frames.len() as u64 - printed;
        progress.unprinted.fetch_add(unprinted, Ordering::Relaxed);
    }
}

impl Printing {
    /// Waits for pending lines while some are written and there is no hurry. Returns the number of frames that were
    /// not printed but are in the files.
    pub(super) fn end(self, hurried: impl Fn() -> bool) -> u64 {
        let taken = || self.progress.bytes.load(Ordering::Relaxed);
        let (mut last, mut since) = (taken(), Instant::now());
        while !self.thread.is_finished() {
            if taken() != last {
                (last, since) = (taken(), Instant::now());
            }
            if hurried() || since.elapsed() > STANDSTILL {
                self.progress.given_up.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(5));
            // Output that cannot be polled may block the thread forever.
            if since.elapsed() > 2 * STANDSTILL {
                break;
            }
        }
        self.progress.unprinted.load(Ordering::Relaxed)
    }
}
