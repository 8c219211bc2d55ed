//! Outputs that fail or are slow: every frame is accounted for.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use wb_capture::{CaptureControl, OutputError};
use wb_model::capture::{CaptureOutput, Compression, DirectWrites, FileFormat, OnFull, Overflow};

/// Captures 2000 frames of 1514 bytes into a place with room for `room_bytes`.
fn fill(path: &Path, format: FileFormat, room_bytes: u64, cause: &str) {
    for direct in [DirectWrites::Never, DirectWrites::Always] {
        fill_by(direct, path, format, room_bytes, cause);
    }
}

fn fill_by(direct: DirectWrites, path: &Path, format: FileFormat, room_bytes: u64, cause: &str) {
    let control = CaptureControl::new();
    let output = CaptureOutput {
        buffer_bytes: 4 << 20,
        direct,
        ..output(path, format)
    };
    let feed = Feed::new(frames(2000, 1514));
    let run = capture_with(&spec(1, Some(output)), vec![feed], &control, |_| {});
    let file = read(path);
    let content = content(&file);
    assert_eq!(content.error, None);
    assert_eq!(content.frames.len() as u64, run.account.captured);
    assert!(content.frames == frames(2000, 1514)[..content.frames.len()]);
    assert_eq!(run.account.captured + run.account.not_written, 2000);
    assert_eq!(run.writer.file_octets, file.len() as u64);
    let error = run.writer.error.unwrap().to_string();
    assert!(error.contains(cause), "{error}");
    assert!(control.output_failed());
    match format {
        FileFormat::Pcapng => {
            let record = 32 + 1516;
            assert!(file.len() as u64 + record > room_bytes, "{}", file.len());
            let delivered = content.statistics.last().and_then(|s| s.delivered);
            assert_eq!(delivered, Some(run.account.captured));
        }
        _ => {
            let frames = (room_bytes - 24) / 1530;
            assert_eq!(run.account.captured, frames);
            assert_eq!(file.len() as u64, 24 + frames * 1530);
        }
    }
}

#[test]
fn a_full_disk_is_accounted_for() {
    if let Some(dir) = here() {
        let full = dir.join("out");
        fill(&full, FileFormat::Pcap, 1 << 20, "No space left on device");
        // The values of the vector: 685 written, 1315 not.
        assert_eq!(read(&full).len(), 1_048_074);
        std::fs::remove_file(&full).unwrap();
        fill(
            &full,
            FileFormat::Pcapng,
            1 << 20,
            "No space left on device",
        );
        return;
    }
    let (dir, _) = scratch();
    if !rustix::process::geteuid().is_root() {
        wb_testing::skipped("mounting a tmpfs needs root");
        return;
    }
    let script = format!("mount -t tmpfs -o size=1M tmpfs ${HERE}; exec \"$@\"");
    again(
        "failures::a_full_disk_is_accounted_for",
        dir.path(),
        true,
        &script,
    );
}

/// 4000 frames of 1514 bytes, 6 MB, in files of 200 kB.
fn flood(path: &Path, change: impl Fn(&mut CaptureOutput)) -> Run {
    let mut output = CaptureOutput {
        rotate_bytes: 200_000,
        buffer_bytes: 1 << 20,
        ..output(path, FileFormat::Pcapng)
    };
    change(&mut output);
    let feed = Feed::new(frames(4000, 1514));
    capture(&spec(1, Some(output)), vec![feed])
}

/// Checks that the files of a directory hold the last of the frames without a gap. Returns the number of files.
fn assert_last_frames(dir: &Path, compress: Compression) -> usize {
    let mut files: Vec<_> = listing(dir)
        .into_iter()
        .map(|(name, _)| {
            let content = content(&plain(compress, &read(dir.join(&name))));
            assert_eq!(content.error, None, "{name}");
            assert!(!content.frames.is_empty(), "{name}");
            content.frames
        })
        .collect();
    files.sort_by_key(|frames| frames[0].stamp_ns);
    let count = files.len();
    let kept = files.concat();
    assert!(kept == frames(4000, 1514)[4000 - kept.len()..]);
    count
}

#[test]
fn on_a_full_disk_the_oldest_file_goes_if_so_told() {
    if let Some(dir) = here() {
        for compress in [Compression::None, Compression::Lz4] {
            for direct in [DirectWrites::Never, DirectWrites::Always] {
                let run = flood(&dir.join("out"), |o| {
                    (o.on_enospc, o.compress, o.direct) = (OnFull::RotateDelete, compress, direct);
                });
                assert_eq!((run.account.captured, run.account.not_written), (4000, 0));
                assert!(run.writer.error.is_none());
                let left = assert_last_frames(&dir, compress);
                let removed = run.writer.files_removed;
                assert_eq!(left as u64 + removed, run.writer.files);
                assert!(removed > 0 || compress == Compression::Lz4);
                listing(&dir)
                    .iter()
                    .for_each(|f| std::fs::remove_file(dir.join(&f.0)).unwrap());
            }
        }
        // If no file is left to remove, it ends as without this option.
        let run = flood(&dir.join("out"), |o| {
            (o.on_enospc, o.rotate_bytes) = (OnFull::RotateDelete, 5_000_000);
        });
        let error = run.writer.error.unwrap().to_string();
        assert!(error.contains("No space left on device"), "{error}");
        assert!(run.account.not_written > 0 && run.writer.files_removed == 0);
        std::fs::remove_file(dir.join("out")).unwrap();
        // Files of other programs stay.
        std::fs::write(dir.join("other"), vec![0; 1 << 20]).unwrap();
        let run = flood(&dir.join("out"), |o| o.on_enospc = OnFull::RotateDelete);
        assert_eq!(run.account.captured, 4000);
        assert_eq!(read(dir.join("other")).len(), 1 << 20);
        return;
    }
    let (dir, _) = scratch();
    if !rustix::process::geteuid().is_root() {
        wb_testing::skipped("mounting a tmpfs needs root");
        return;
    }
    let script = format!("mount -t tmpfs -o size=2M tmpfs ${HERE}; exec \"$@\"");
    let test = "failures::on_a_full_disk_the_oldest_file_goes_if_so_told";
    again(test, dir.path(), true, &script);
}

#[test]
fn room_is_kept_free_if_so_told() {
    if let Some(dir) = here() {
        let run = flood(&dir.join("out"), |o| o.keep_free = 2_000_000);
        assert_eq!(run.account.captured, 4000);
        assert!(!run.writer.room_short);
        let left = assert_last_frames(&dir, Compression::None);
        assert_eq!(left as u64 + run.writer.files_removed, run.writer.files);
        let size: u64 = listing(&dir).iter().map(|f| f.1).sum();
        // A file of 200 kB may have been added since the last check, and blocks are whole.
        assert!((1_500_000..2_450_000).contains(&size), "{size}");
        // More than the total space: all finished files are removed, and this is reported.
        let run = flood(&dir.join("out"), |o| o.keep_free = 5 << 20);
        assert!(run.writer.room_short);
        assert_eq!(run.account.captured, 4000);
        return;
    }
    let (dir, _) = scratch();
    if !rustix::process::geteuid().is_root() {
        wb_testing::skipped("mounting a tmpfs needs root");
        return;
    }
    let script = format!("mount -t tmpfs -o size=4M tmpfs ${HERE}; exec \"$@\"");
    again(
        "failures::room_is_kept_free_if_so_told",
        dir.path(),
        true,
        &script,
    );
}

#[test]
fn a_file_size_limit_is_accounted_for() {
    if let Some(dir) = here() {
        let out = dir.join("out");
        // Blocks of 512 bytes.
        fill(&out, FileFormat::Pcap, 1000 * 512, "File too large");
        fill(&out, FileFormat::Pcapng, 1000 * 512, "File too large");
        return;
    }
    let (dir, _) = scratch();
    // In POSIX shells the unit of -f is 512 bytes; some use 1024.
    let script = "trap '' XFSZ; (ulimit -f 1000; exec \"$@\")";
    again(
        "failures::a_file_size_limit_is_accounted_for",
        dir.path(),
        false,
        script,
    );
}

#[test]
fn a_compressed_file_ends_with_a_whole_frame() {
    if let Some(dir) = here() {
        for compress in [Compression::Zstd, Compression::Lz4] {
            let out = dir.join("out");
            let output = CaptureOutput {
                compress,
                ..output(&out, FileFormat::PcapNs)
            };
            let noise = noise(1000);
            let run = capture(&spec(1, Some(output)), vec![Feed::new(noise.clone())]);
            assert!(run.account.captured > 0 && run.account.not_written > 0);
            let (name, _) = listing(&dir).pop().unwrap();
            let file = read(dir.join(&name));
            let content = content(&plain(compress, &file));
            assert_eq!(content.error, None);
            assert!(content.frames == noise[..run.account.captured as usize]);
            std::fs::remove_file(dir.join(&name)).unwrap();
        }
        return;
    }
    let (dir, _) = scratch();
    let script = "trap '' XFSZ; (ulimit -f 1000; exec \"$@\")";
    again(
        "failures::a_compressed_file_ends_with_a_whole_frame",
        dir.path(),
        false,
        script,
    );
}

/// Frames of 1514 bytes that cannot be compressed.
fn noise(count: u64) -> Vec<Waiting> {
    let mut state = 1u64;
    let mut noise = frames(count, 1514);
    for byte in noise.iter_mut().flat_map(|frame| &mut frame.bytes) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *byte = (state >> 56) as u8;
    }
    noise
}

fn pipe() -> (tempfile::TempDir, PathBuf) {
    let (dir, path) = scratch();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    (dir, path)
}

/// Captures 3000 frames of 1514 bytes into a pipe that `reader` reads.
fn capture_to_pipe(
    path: &Path,
    overflow: Overflow,
    control: &CaptureControl,
    reader: impl FnOnce(std::fs::File) + Send,
) -> Run {
    std::thread::scope(|scope| {
        scope.spawn(|| reader(std::fs::File::open(path).unwrap()));
        let spec = wb_capture::CaptureSpec {
            overflow,
            ..spec(1, Some(output(path, FileFormat::PcapNs)))
        };
        capture_with(&spec, vec![Feed::new(frames(3000, 1514))], control, |_| {})
    })
}

#[test]
fn a_closed_pipe_ends_the_capture() {
    let (_dir, path) = pipe();
    let control = CaptureControl::new();
    let run = capture_to_pipe(&path, Overflow::Wait, &control, |mut pipe| {
        let mut some = vec![0; 100_000];
        pipe.read_exact(&mut some).unwrap();
    });
    assert!(
        (65..3000).contains(&run.account.captured),
        "{:?}",
        run.account
    );
    assert_eq!(run.account.captured + run.account.not_written, 3000);
    let error = run.writer.error.unwrap().to_string();
    assert!(error.contains("Broken pipe"), "{error}");
}

#[test]
fn a_slow_pipe_is_waited_for() {
    let (_dir, path) = pipe();
    let control = CaptureControl::new();
    let mut got = Vec::new();
    let run = capture_to_pipe(&path, Overflow::Wait, &control, |mut pipe| {
        wb_testing::disturb(Duration::from_millis(300));
        pipe.read_to_end(&mut got).unwrap();
    });
    assert_eq!(run.account.captured, 3000);
    assert!(run.readers[0].buffer_waits > 0);
    assert_eq!(run.writer.buffers_fewest, 0);
    assert!(content(&got).frames == frames(3000, 1514));
}

#[test]
fn for_a_slow_pipe_the_newest_are_dropped_if_so_told() {
    let (_dir, path) = pipe();
    let control = CaptureControl::new();
    let mut got = Vec::new();
    let run = capture_to_pipe(&path, Overflow::DropNewest, &control, |mut pipe| {
        wb_testing::disturb(Duration::from_millis(300));
        pipe.read_to_end(&mut got).unwrap();
    });
    assert!(run.account.queue_drop > 0);
    assert_eq!(run.account.captured + run.account.queue_drop, 3000);
    assert_eq!(run.readers[0].buffer_waits, 0);
    let content = content(&got);
    assert_eq!(content.error, None);
    assert_eq!(content.frames.len() as u64, run.account.captured);
    let kept = content.frames.len();
    assert!(kept >= 4 * 42 && content.frames[..4 * 42] == frames(4 * 42, 1514));
}

#[test]
fn in_a_hurry_a_pipe_is_not_waited_for() {
    let (_dir, path) = pipe();
    let control = CaptureControl::new();
    let run = capture_to_pipe(&path, Overflow::Wait, &control, |pipe| {
        wb_testing::disturb(Duration::from_millis(100));
        control.stop_at_once();
        while !control.output_failed() {
            std::thread::yield_now();
        }
        drop(pipe);
    });
    assert!(matches!(
        run.writer.error,
        Some(OutputError::GivenUp { .. })
    ));
    assert!(run.account.not_written > 0 && run.account.captured > 0);
    // Read and unread frames together are all frames.
    assert_eq!(run.account.filter_accept, 3000);
}

#[test]
fn when_buffers_are_scarce_they_are_stored_and_not_compressed() {
    for compress in [Compression::Zstd, Compression::Lz4] {
        let (dir, fifo) = pipe();
        let suffix = match compress {
            Compression::Zstd => ".zst",
            _ => ".lz4",
        };
        let path = dir.path().join(format!("out{suffix}"));
        std::fs::rename(fifo, &path).unwrap();
        let mut got = Vec::new();
        // 60 of 64 buffers are waiting before the pipe is read, and a second passes for each.
        let all = noise(60 * 42);
        let shown = Arc::new(AtomicBool::new(false));
        let mut feed = Feed::new(all.clone());
        feed.tell = Some(shown.clone());
        let run = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pipe = std::fs::File::open(&path).unwrap();
                while !shown.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let mut some = vec![0; 64 << 10];
                loop {
                    wb_testing::disturb(Duration::from_millis(2));
                    match pipe.read(&mut some).unwrap() {
                        0 => break,
                        n => got.extend_from_slice(&some[..n]),
                    }
                }
            });
            let output = CaptureOutput {
                compress,
                buffers: 64,
                ..output(&path, FileFormat::Pcapng)
            };
            let control = CaptureControl::new();
            capture_at(1000, &spec(1, Some(output)), vec![feed], &control, |_| {})
        });
        assert!(run.writer.stored_writes > 0, "{:?}", run.writer);
        assert!(run.writer.stored_writes < run.writer.writes);
        let content = content(&plain(compress, &got));
        assert!(content.error.is_none() && content.frames == all);
    }
}

/// The process may be stopped before a reader has begun.
#[test]
fn a_reader_that_begins_late_counts_a_stall() {
    /// A clock that began an hour ago.
    struct Old(crate::common::RealClock);

    const HOUR_NS: u64 = 3_600_000_000_000;

    impl wb_capture::Clock for Old {
        fn monotonic_ns(&self) -> u64 {
            self.0.monotonic_ns() + HOUR_NS
        }

        fn wall_ns(&self) -> u64 {
            self.0.wall_ns()
        }
    }

    let clock = Old(clock(1));
    let now_ns = HOUR_NS;
    for (due_ns, stalls) in [(now_ns - 1_000_000_000, 1), (now_ns + HOUR_NS, 0)] {
        let capture = wb_capture::Capture::open(&spec(1, None), 1, START_NS).unwrap();
        let control = CaptureControl::new();
        control.expect_readers_at(due_ns);
        let seat = capture.readers.into_iter().next().unwrap();
        let mut feed = Feed::new(frames(10, 64));
        let outcome = wb_capture::run_reader(&mut feed, seat, 0, &control, &clock);
        assert_eq!(outcome.lateness.stalls, stalls, "{:?}", outcome.lateness);
    }
}

#[test]
fn if_the_writer_never_runs_nobody_waits_for_it() {
    let (_dir, path) = scratch();
    let spec = spec(1, Some(output(&path, FileFormat::Pcap)));
    let capture = wb_capture::Capture::open(&spec, 1, START_NS).unwrap();
    drop(capture.writer);
    let control = CaptureControl::new();
    let seat = capture.readers.into_iter().next().unwrap();
    let outcome = wb_capture::run_reader(
        &mut Feed::new(frames(1000, 1514)),
        seat,
        0,
        &control,
        &clock(1),
    );
    assert_eq!(outcome.not_written_frames, 1000);
    assert!(control.output_failed());
}
