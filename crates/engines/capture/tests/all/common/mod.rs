//! Ports that need no interface, and a whole capture in one call.

// Each test program uses only a part.
#![allow(unreachable_pub)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wb_capture::{
    Capture, CaptureControl, CaptureSpec, Clock, FrameAccount, InterfaceSpec, ReaderOutcome,
    ReaderSeat, WriterOutcome, run_reader, run_writer,
};
use wb_model::capture::{CaptureOutput, Compression, FileFormat};
use wb_pcapng::{CaptureDecoder, Event, Statistics};
use wb_port::{ChecksumState, PortError, RxCounters, RxFrame, RxQueue, StampSource, StrippedVlan};

pub const START_NS: u64 = 1_700_000_000_000_000_000;

/// Real time, or time that runs faster by this factor.
pub struct RealClock(Instant, u64);

impl Clock for RealClock {
    fn monotonic_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64 * self.1
    }

    fn wall_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_nanos() as u64
    }
}

pub fn clock(speed: u64) -> RealClock {
    RealClock(Instant::now(), speed)
}

/// A frame that is waiting in a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub stamp_ns: u64,
    pub bytes: Vec<u8>,
    pub original_len: u32,
    pub vlan: Option<StrippedVlan>,
}

/// Frame `i` of `len` bytes, a microsecond after the previous one.
pub fn frame(i: u64, len: usize) -> Waiting {
    let mut bytes = vec![i as u8; len];
    let n = len.min(8);
    bytes[..n].copy_from_slice(&i.to_be_bytes()[8 - n..]);
    Waiting {
        stamp_ns: START_NS + i * 1000,
        original_len: len as u32,
        bytes,
        vlan: None,
    }
}

pub fn frames(count: u64, len: usize) -> Vec<Waiting> {
    (0..count).map(|i| frame(i, len)).collect()
}

/// Time for which a port holds frames back.
const HOLD: Duration = Duration::from_millis(200);

/// A port that delivers frames in batches, with the counters of a kernel.
pub struct Feed {
    pub frames: Vec<Waiting>,
    pub next: usize,
    /// Frames of a batch.
    pub batch: usize,
    /// Frames that the kernel has dropped.
    pub dropped: u64,
    /// The kernel counts passed frames.
    pub counts: bool,
    /// The port ends after the last frame; otherwise it stays idle.
    pub ends: bool,
    /// Frames held back until the intake is closed.
    pub held: usize,
    pub closed: Option<Instant>,
    pub tell: Option<Arc<AtomicBool>>,
    /// Time for delivering a batch.
    pub pause: Duration,
    /// Losses: number of delivered frames at which they occur, and number of lost frames. The port is then idle for a
    /// while.
    pub loses: Vec<(usize, u64)>,
    pub quiet: Option<Instant>,
}

impl Feed {
    pub fn new(frames: Vec<Waiting>) -> Self {
        Self {
            frames,
            next: 0,
            batch: 64,
            dropped: 0,
            counts: true,
            ends: true,
            held: 0,
            closed: None,
            tell: None,
            pause: Duration::ZERO,
            loses: Vec::new(),
            quiet: None,
        }
    }
}

impl RxQueue for Feed {
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        mut on_frame: F,
    ) -> Result<usize, PortError> {
        wb_testing::disturb(self.pause);
        if let Some((at, lost)) = self.loses.first().copied()
            && self.next >= at
        {
            self.dropped += lost;
            self.loses.remove(0);
            self.quiet = Some(Instant::now());
        }
        // The counters are read every 100 ms.
        if self.quiet.is_some_and(|since| since.elapsed() < HOLD) {
            return Ok(0);
        }
        // Frames held back are delivered shortly after the intake is closed.
        let hidden = match self.closed {
            Some(since) if since.elapsed() >= HOLD / 2 => 0,
            _ => self.held,
        };
        let visible = &self.frames[self.next..self.frames.len() - hidden];
        let n = visible.len().min(max).min(self.batch);
        if n == 0 && self.ends && hidden == 0 {
            return Err(PortError::EndOfFile {
                port: "feed".to_owned(),
            });
        }
        for frame in &visible[..n] {
            on_frame(&RxFrame {
                bytes: &frame.bytes,
                original_len: frame.original_len,
                stamp_ns: frame.stamp_ns,
                stamp_source: StampSource::Recorded,
                vlan: frame.vlan,
                checksum: ChecksumState::Unknown,
            });
        }
        self.next += n;
        if let Some(tell) = &self.tell
            && self.next == self.frames.len() - hidden
        {
            tell.store(true, Ordering::Release);
        }
        Ok(n)
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        wb_testing::disturb(timeout.min(Duration::from_millis(1)));
        Ok(false)
    }

    fn longest_hold(&self) -> Duration {
        if self.held > 0 { HOLD } else { Duration::ZERO }
    }

    fn close_intake(&mut self) -> Result<(), PortError> {
        self.closed = Some(Instant::now());
        Ok(())
    }

    fn counters(&mut self) -> RxCounters {
        RxCounters {
            received_frames: self.next as u64,
            dropped_frames: self.dropped,
            passed_frames: self
                .counts
                .then_some(self.frames.len() as u64 + self.dropped),
            freezes: 0,
        }
    }
}

pub fn output(path: &Path, format: FileFormat) -> CaptureOutput {
    CaptureOutput {
        path: path.to_str().unwrap().to_owned(),
        format,
        buffer_bytes: 64 << 10,
        buffers: 4,
        ..CaptureOutput::default()
    }
}

pub fn spec(interfaces: usize, output: Option<CaptureOutput>) -> CaptureSpec {
    let interfaces = (0..interfaces).map(|i| InterfaceSpec::new(format!("wb{i}")));
    CaptureSpec::new(interfaces.collect(), output)
}

pub struct Run {
    pub readers: Vec<ReaderOutcome>,
    pub writer: WriterOutcome,
    pub account: FrameAccount,
}

/// Captures these ports to their end, each as a separate interface.
pub fn capture(spec: &CaptureSpec, feeds: Vec<Feed>) -> Run {
    capture_with(spec, feeds, &CaptureControl::new(), |_| {})
}

pub fn capture_with(
    spec: &CaptureSpec,
    feeds: Vec<Feed>,
    control: &CaptureControl,
    prepare: impl Fn(&mut ReaderSeat),
) -> Run {
    capture_at(1, spec, feeds, control, prepare)
}

pub fn capture_at(
    speed: u64,
    spec: &CaptureSpec,
    feeds: Vec<Feed>,
    control: &CaptureControl,
    prepare: impl Fn(&mut ReaderSeat),
) -> Run {
    let clock = clock(speed);
    let Capture {
        readers: mut seats,
        writer,
        shared,
    } = Capture::open(spec, feeds.len(), START_NS).unwrap();
    seats.iter_mut().for_each(prepare);
    let (readers, writer) = std::thread::scope(|scope| {
        let clock = &clock;
        let writer = scope.spawn(move || run_writer(writer, control, clock));
        let last = spec.interfaces.len() as u32 - 1;
        let readers: Vec<_> = (0..)
            .zip(seats.into_iter().zip(feeds))
            .map(|(i, (seat, mut feed))| {
                scope.spawn(move || run_reader(&mut feed, seat, last.min(i), control, clock))
            })
            .collect();
        let readers: Vec<_> = readers.into_iter().map(|r| r.join().unwrap()).collect();
        (readers, writer.join().unwrap())
    });
    let account = FrameAccount::of_capture(&readers, &writer);
    assert!(account.adds_up(), "{account:?}");
    let read = readers.iter().map(|r| r.read_frames).sum::<u64>();
    assert_eq!(account.read_frames(), read, "{account:?}");
    let shown = shared.snapshot();
    assert!(shown.writer_ended && shown.total().ended);
    assert_eq!(shown.total().read_frames, read);
    assert_eq!(shown.written_frames, writer.written_frames);
    assert_eq!(shown.not_written_frames, writer.not_written_frames);
    assert_eq!(shown.file_octets, writer.file_octets);
    assert_eq!(shown.buffers_free, shown.buffers);
    Run {
        readers,
        writer,
        account,
    }
}

#[derive(Debug, Default)]
pub struct Content {
    pub frames: Vec<Waiting>,
    pub interfaces: Vec<u32>,
    /// Losses reported by frames: the number of the frame in the file, and the number of frames lost before it.
    pub losses: Vec<(usize, u64)>,
    pub names: Vec<String>,
    pub statistics: Vec<Statistics>,
    pub error: Option<wb_pcapng::Error>,
    pub whole: u64,
}

/// The complete part of a capture file.
pub fn content(file: &[u8]) -> Content {
    let mut decoder = CaptureDecoder::new();
    decoder.push(file);
    decoder.finish();
    let mut content = Content::default();
    loop {
        match decoder.next_item() {
            Ok(None) => break,
            Err(error) => {
                content.error = Some(error);
                break;
            }
            Ok(Some(item)) => match item.event {
                Event::Record(record) => {
                    content.interfaces.push(record.interface);
                    if let Some(lost) = record.options.drop_count {
                        content.losses.push((content.frames.len(), lost));
                    }
                    content.frames.push(Waiting {
                        stamp_ns: record.stamp_ns,
                        bytes: record.captured.to_vec(),
                        original_len: record.original_len,
                        vlan: None,
                    });
                }
                Event::Statistics(statistics) => content.statistics.push(statistics),
                Event::Interface(i) => {
                    let name = item.interfaces[i as usize].name.clone();
                    content.names.extend(name);
                }
                _ => {}
            },
        }
    }
    content.whole = decoder.whole().offset;
    content
}

pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Names and sizes of the files in a directory, by name.
pub fn listing(dir: &Path) -> Vec<(String, u64)> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, entry.metadata().unwrap().len())
        })
        .collect();
    files.sort();
    files
}

pub fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    (dir, path)
}

/// The contents of a compressed file.
pub fn plain(compress: Compression, file: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match compress {
        Compression::None => plain.extend_from_slice(file),
        Compression::Zstd => zstd::stream::copy_decode(file, &mut plain).unwrap(),
        Compression::Lz4 => {
            // It stops at the end of each frame; another call continues.
            let mut decoder = lz4_flex::frame::FrameDecoder::new(file);
            while decoder.read_to_end(&mut plain).unwrap() > 0 {}
        }
        Compression::Gzip => {
            let mut decoder = flate2::read::MultiGzDecoder::new(file);
            decoder.read_to_end(&mut plain).unwrap();
        }
    }
    plain
}

/// Environment variable with the directory of a test that was started again in a separate environment.
pub const HERE: &str = "WB_CAPTURE_TEST_DIR";

/// Starts this test again by a shell command in which `exec "$@"` is this program.
pub fn again(test: &str, dir: &Path, privileged: bool, script: &str) {
    let mut command = match privileged {
        true => {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh"]);
            command
        }
        false => Command::new("sh"),
    };
    let output = command
        .args(["-e", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(HERE, dir)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{said}");
    assert!(text.contains("1 passed"), "{text}");
}

pub fn here() -> Option<PathBuf> {
    std::env::var_os(HERE).map(PathBuf::from)
}
