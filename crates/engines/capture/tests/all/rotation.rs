//! Sequences and rings of files.

use crate::common::*;
use proptest::prelude::*;
use wb_capture::{CaptureControl, CaptureSpec};
use wb_model::capture::{CaptureOutput, Compression, DirectWrites, FileFormat};
use wb_model::units::Span;

fn rotated(
    count: u64,
    format: FileFormat,
    change: impl Fn(&mut CaptureOutput),
) -> (tempfile::TempDir, Run) {
    let (dir, path) = scratch();
    let mut output = output(&path, format);
    change(&mut output);
    let feed = Feed::new(frames(count, 1514));
    let run = capture(&spec(1, Some(output)), vec![feed]);
    assert_eq!(run.account.captured, count);
    (dir, run)
}

fn named(files: &[(&str, u64)]) -> Vec<(String, u64)> {
    files
        .iter()
        .map(|(n, len)| ((*n).to_owned(), *len))
        .collect()
}

#[test]
fn sizes_and_names_are_those_of_tcpdump() {
    let (dir, run) = rotated(2000, FileFormat::Pcap, |o| o.rotate_bytes = 1_000_000);
    assert_eq!(
        listing(dir.path()),
        named(&[
            ("out", 1_000_644),
            ("out1", 1_000_644),
            ("out2", 1_000_644),
            ("out3", 58_164)
        ])
    );
    assert_eq!(run.writer.files, 4);
    let (dir, run) = rotated(4000, FileFormat::Pcap, |o| {
        (o.rotate_bytes, o.files) = (1_000_000, 3);
    });
    assert_eq!(
        listing(dir.path()),
        named(&[("out0", 116_304), ("out1", 1_000_644), ("out2", 1_000_644)])
    );
    assert_eq!((run.writer.files, run.writer.written_frames), (7, 4000));
    let (dir, _) = rotated(700, FileFormat::Pcap, |o| {
        (o.rotate_bytes, o.files) = (1_000_000, 12);
    });
    let names: Vec<_> = listing(dir.path()).into_iter().map(|f| f.0).collect();
    assert_eq!(names, ["out00", "out01"]);
    // A file is full when it exceeds its size.
    let (dir, _) = rotated(4, FileFormat::Pcap, |o| o.rotate_bytes = 24 + 1530);
    assert_eq!(
        listing(dir.path()),
        named(&[("out", 24 + 2 * 1530), ("out1", 24 + 2 * 1530)])
    );
}

#[test]
fn a_ring_of_one_file_writes_over_itself() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let (dir, run) = rotated(25, format, |o| (o.rotate_frames, o.files) = (10, 1));
        assert_eq!(run.writer.files, 3);
        let content = content(&read(dir.path().join("out0")));
        assert_eq!(content.error, None);
        assert!(content.frames == frames(25, 1514)[20..]);
    }
}

#[test]
fn every_pcapng_file_stands_alone() {
    let (dir, _) = rotated(95, FileFormat::Pcapng, |o| o.rotate_frames = 30);
    for (n, name) in ["out", "out1", "out2", "out3"].into_iter().enumerate() {
        let content = content(&read(dir.path().join(name)));
        assert_eq!(content.error, None);
        assert_eq!(content.names, ["wb0"]);
        assert!(content.frames == frames(95, 1514)[n * 30..95.min(n * 30 + 30)]);
        let written = (n as u64 * 30 + 30).min(95);
        assert_eq!(content.statistics.last().unwrap().delivered, Some(written));
    }
}

#[test]
fn every_frame_is_in_the_file_of_its_time() {
    let step_ns = 700_000_000;
    let all: Vec<_> = (0..20u64)
        .map(|i| Waiting {
            stamp_ns: START_NS + 500_000_000 + i * step_ns,
            ..frame(i, 60)
        })
        .collect();
    let (dir, path) = scratch();
    let output = CaptureOutput {
        path: path.to_str().unwrap().to_owned() + "-%s",
        rotate_time: Some(Span::from_secs(2)),
        ..output(&path, FileFormat::PcapNs)
    };
    capture(&spec(1, Some(output.clone())), vec![Feed::new(all.clone())]);
    let files = listing(dir.path());
    let mut got = Vec::new();
    for (name, _) in &files {
        let frames = content(&read(dir.path().join(name))).frames;
        let (first, last) = (frames[0].stamp_ns, frames.last().unwrap().stamp_ns);
        assert!(last - first < 2_000_000_000);
        if !got.is_empty() {
            assert_eq!(*name, format!("out-{}", first / 1_000_000_000));
        }
        got.extend(frames);
    }
    assert!(got == all);
    assert_eq!(files.len(), 7);

    // In a ring with time-based names the oldest file is removed.
    let (ring, path) = scratch();
    let output = CaptureOutput {
        path: path.to_str().unwrap().to_owned() + "-%s",
        files: 3,
        ..output
    };
    capture(&spec(1, Some(output)), vec![Feed::new(all)]);
    assert_eq!(listing(ring.path()), files[4..]);
}

#[test]
fn a_rotation_on_demand_begins_a_file_if_there_is_a_frame() {
    let (dir, path) = scratch();
    let control = CaptureControl::new();
    let shown = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut feed = Feed::new(frames(110, 60));
    (feed.ends, feed.held, feed.tell) = (false, 10, Some(shown.clone()));
    let spec = spec(1, Some(output(&path, FileFormat::Pcap)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let first = path.clone();
            while content(&std::fs::read(&first).unwrap_or_default())
                .frames
                .len()
                < 100
            {
                std::thread::yield_now();
            }
            control.request_rotation();
            while !dir.path().join("out1").exists() {
                std::thread::yield_now();
            }
            // The new file is empty, so this has no effect.
            control.request_rotation();
            wb_testing::disturb(std::time::Duration::from_millis(150));
            control.stop();
        });
        capture_with(&spec, vec![feed], &control, |_| {})
    });
    assert_eq!(
        listing(dir.path()),
        named(&[("out", 24 + 100 * 76), ("out1", 24 + 10 * 76)])
    );
}

#[test]
fn a_file_that_cannot_be_begun_ends_the_capture() {
    let (dir, path) = scratch();
    std::fs::create_dir(dir.path().join("out2")).unwrap();
    let output = CaptureOutput {
        rotate_frames: 100,
        ..output(&path, FileFormat::Pcap)
    };
    let control = CaptureControl::new();
    let feed = Feed::new(frames(1000, 60));
    let run = capture_with(&spec(1, Some(output)), vec![feed], &control, |_| {});
    assert_eq!(run.account.captured, 200);
    assert_eq!(run.account.not_written, 800);
    assert!(control.output_failed() && control.is_stopped());
    let error = run.writer.error.unwrap().to_string();
    assert!(
        error.contains("out2 for writing: Is a directory"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// All files in sequence hold the input in order, for any sizes, buffers and boundaries.
    #[test]
    fn nothing_is_lost_at_a_seam(
        lens in prop::collection::vec(0usize..4000, 1..400),
        format in prop::sample::select(vec![FileFormat::Pcapng, FileFormat::PcapNs]),
        compress in prop::sample::select(vec![Compression::None, Compression::None, Compression::Lz4]),
        rotate_bytes in prop::sample::select(vec![0u64, 1, 3000, 100_000]),
        rotate_frames in prop::sample::select(vec![0u64, 1, 7, 100]),
        rotate_us in prop::option::of(1u64..500),
        limit in prop::option::of(1u64..500),
        snap_len in prop::sample::select(vec![1u32, 60, 262_144]),
        batch in 1usize..200,
    ) {
        let (dir, path) = scratch();
        let fed: Vec<_> = (0..).zip(&lens).map(|(i, len)| frame(i, *len)).collect();
        let output = CaptureOutput {
            compress,
            rotate_bytes,
            rotate_frames,
            rotate_time: rotate_us.map(|us| Span::from_nanos(us * 1000)),
            ..output(&path, format)
        };
        let spec = CaptureSpec { limit, snap_len, ..spec(1, Some(output)) };
        let mut feed = Feed::new(fed.clone());
        feed.batch = batch;
        let run = capture(&spec, vec![feed]);
        let kept = limit.unwrap_or(u64::MAX).min(fed.len() as u64);
        prop_assert_eq!(run.account.captured, kept);
        let suffix = if compress == Compression::Lz4 { ".lz4" } else { "" };
        let mut got = Vec::new();
        for n in 0..run.writer.files {
            let number = if n == 0 { String::new() } else { n.to_string() };
            let file = read(dir.path().join(format!("out{number}{suffix}")));
            let content = content(&plain(compress, &file));
            prop_assert_eq!(&content.error, &None);
            prop_assert!(!content.frames.is_empty());
            if rotate_frames > 0 {
                prop_assert!(content.frames.len() as u64 <= rotate_frames);
            }
            if let Some(us) = rotate_us {
                let span = content.frames.last().unwrap().stamp_ns - content.frames[0].stamp_ns;
                prop_assert!(span < us * 1000);
            }
            got.extend(content.frames);
        }
        let expected: Vec<_> = fed.into_iter().take(kept as usize).map(|mut f| {
            f.bytes.truncate(snap_len as usize);
            f
        }).collect();
        prop_assert!(got == expected);
    }
}

/// Two readers, the second far behind: the writer gets its frames of a second long after the first has moved on to
/// later ones.
#[test]
fn with_several_readers_too_every_frame_is_in_the_file_of_its_time() {
    const SECOND: u64 = 1_000_000_000;
    let (dir, path) = scratch();
    let output = CaptureOutput {
        path: path.to_str().unwrap().to_owned() + "-%s",
        rotate_time: Some(Span::from_secs(1)),
        ..output(&path, FileFormat::Pcapng)
    };
    let of = |reader: u64| -> Vec<_> {
        (0..5000u64)
            .map(|i| Waiting {
                stamp_ns: START_NS + i * 1_000_000 + reader * 500,
                ..frame(2 * i + reader, 60)
            })
            .collect()
    };
    let (mut fast, mut slow) = (Feed::new(of(0)), Feed::new(of(1)));
    (fast.batch, slow.batch) = (1000, 100);
    slow.pause = std::time::Duration::from_millis(5);
    let run = capture(&spec(2, Some(output)), vec![fast, slow]);
    assert_eq!(run.account.captured, 10_000);
    let files = listing(dir.path());
    assert_eq!(run.writer.files, files.len() as u64);
    let mut seen = 0;
    let mut first_ns = None;
    for (name, _) in &files {
        let content = content(&read(dir.path().join(name)));
        assert_eq!(content.error, None);
        let stamps: Vec<_> = content.frames.iter().map(|f| f.stamp_ns).collect();
        let begin_ns = *first_ns.get_or_insert(*stamps.iter().min().unwrap());
        let slots: Vec<_> = stamps.iter().map(|s| (s - begin_ns) / SECOND).collect();
        assert!(slots.iter().all(|slot| *slot == slots[0]), "{name}");
        seen += stamps.len();
    }
    assert_eq!(seen, 10_000);
    assert!((5..=6).contains(&files.len()), "{files:?}");
}

#[test]
fn a_part_is_called_so_until_it_is_finished() {
    let (dir, path) = scratch();
    let (finished, files) = std::sync::mpsc::channel();
    let output = CaptureOutput {
        part: true,
        rotate_frames: 100,
        ..output(&path, FileFormat::Pcapng)
    };
    let spec = CaptureSpec {
        finished: Some(finished),
        ..spec(1, Some(output))
    };
    let control = CaptureControl::new();
    let mut feed = Feed::new(frames(250, 60));
    feed.ends = false;
    let at = |name: &str| dir.path().join(name);
    let files = std::sync::Mutex::new(files);
    let told = || files.lock().unwrap().try_iter().collect::<Vec<_>>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let open = || content(&std::fs::read(at("out2.part")).unwrap_or_default());
            while open().frames.len() < 50 {
                std::thread::yield_now();
            }
            // Finished files have their names, and have been reported.
            assert_eq!(told(), [at("out"), at("out1")]);
            assert!(at("out1").exists() && !at("out2").exists());
            control.stop();
        });
        let run = capture_with(&spec, vec![feed], &control, |_| {});
        assert_eq!(run.writer.path, Some(at("out2")));
    });
    let names: Vec<_> = listing(dir.path()).into_iter().map(|f| f.0).collect();
    assert_eq!(names, ["out", "out1", "out2"]);
    assert_eq!(told(), [at("out2")]);
    for (n, name) in names.iter().enumerate() {
        let content = content(&read(at(name)));
        assert!(content.frames == frames(250, 60)[n * 100..250.min(n * 100 + 100)]);
    }
    // In a ring of one file each is complete before the next begins.
    let (dir, _) = rotated(25, FileFormat::Pcapng, |o| {
        (o.rotate_frames, o.files, o.part) = (10, 1, true);
    });
    assert_eq!(listing(dir.path()).len(), 1);
    let content = content(&read(dir.path().join("out0")));
    assert!(content.frames == frames(25, 1514)[20..]);
}

#[test]
fn a_part_does_not_take_the_place_of_a_device() {
    let (dir, _) = scratch();
    let pipe = dir.path().join("null");
    std::os::unix::fs::symlink("/dev/null", &pipe).unwrap();
    let output = CaptureOutput {
        part: true,
        ..output(&pipe, FileFormat::Pcap)
    };
    let (finished, files) = std::sync::mpsc::channel();
    let spec = CaptureSpec {
        finished: Some(finished),
        ..spec(1, Some(output))
    };
    capture(&spec, vec![Feed::new(frames(10, 60))]);
    assert!(pipe.is_symlink());
    assert_eq!(listing(dir.path()).len(), 1);
    assert_eq!(files.try_iter().count(), 0);
}

#[test]
fn a_fast_stream_goes_past_the_cache_on_its_way() {
    for (rotate_bytes, format) in [
        (0, FileFormat::Pcapng),
        (0, FileFormat::Pcap),
        (45_000_000, FileFormat::Pcapng),
    ] {
        let files = |direct| {
            let (dir, run) = rotated(50_000, format, |o| {
                (o.rotate_bytes, o.direct) = (rotate_bytes, direct);
            });
            match (direct, run.writer.direct_files) {
                (DirectWrites::Auto, 0) => wb_testing::skipped("no direct writing here"),
                (DirectWrites::Auto, went) => assert_eq!(went, run.writer.files),
                (_, went) => assert_eq!(went, 0),
            }
            let names = listing(dir.path()).into_iter();
            names
                .map(|(name, _)| {
                    let content = content(&read(dir.path().join(&name)));
                    assert_eq!(content.error, None);
                    (name, content.frames)
                })
                .collect::<Vec<_>>()
        };
        assert!(
            files(DirectWrites::Auto) == files(DirectWrites::Never),
            "{format:?}"
        );
    }
}

#[test]
fn files_written_past_the_cache_are_the_same() {
    for (format, rotate_bytes, buffer_bytes) in [
        (FileFormat::Pcap, 1_000_000, 64 << 10),
        (FileFormat::Pcapng, 300_000, 64 << 10),
        (FileFormat::PcapNs, 0, 64 << 10),
        // Larger ones leave a part of a block to the next.
        (FileFormat::Pcap, 0, 1 << 20),
        (FileFormat::Pcapng, 1_500_000, 1 << 20),
    ] {
        let files = |direct| {
            let (dir, run) = rotated(4000, format, |o| {
                (o.rotate_bytes, o.direct, o.buffer_bytes) = (rotate_bytes, direct, buffer_bytes);
            });
            assert!(run.writer.direct_files == 0 || run.writer.direct_files == run.writer.files);
            if direct == DirectWrites::Always && run.writer.direct_files == 0 {
                wb_testing::skipped("no direct writing here");
            }
            let frames: Vec<_> = listing(dir.path())
                .into_iter()
                .map(|(name, len)| {
                    let bytes = read(dir.path().join(&name));
                    let content = content(&bytes);
                    assert_eq!(content.error, None);
                    (name, len, content.frames)
                })
                .collect();
            frames
        };
        assert!(
            files(DirectWrites::Always) == files(DirectWrites::Never),
            "{format:?}"
        );
    }
}

/// tcpdump's `-G 1 -W 3`: three files, each of the second in its name, and the end.
#[test]
fn files_by_time_may_be_limited() {
    const SECOND: u64 = 1_000_000_000;
    for readers in [1, 2] {
        let (dir, path) = scratch();
        let output = CaptureOutput {
            path: path.to_str().unwrap().to_owned() + "-%s",
            rotate_time: Some(Span::from_secs(1)),
            file_limit: 3,
            ..output(&path, FileFormat::Pcapng)
        };
        // From half a second after the opening, every hundredth of a second, for five seconds.
        let of = |reader: u64| -> Vec<_> {
            (0..500u64)
                .map(|i| Waiting {
                    stamp_ns: START_NS + SECOND / 2 + i * SECOND / 100 + reader,
                    ..frame(i, 60)
                })
                .collect()
        };
        let feeds = (0..readers).map(|reader| Feed::new(of(reader))).collect();
        let control = CaptureControl::new();
        let run = capture_with(
            &spec(readers as usize, Some(output)),
            feeds,
            &control,
            |_| {},
        );
        assert!(control.limit_reached());
        let names: Vec<_> = listing(dir.path())
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let second = START_NS / SECOND;
        let expected = [0, 1, 2].map(|n| format!("out-{}", second + n));
        assert_eq!(names, expected);
        for (name, begin_ns) in names.iter().zip((START_NS..).step_by(SECOND as usize)) {
            let frames = content(&read(dir.path().join(name))).frames;
            let (first, last) = (frames[0].stamp_ns, frames.last().unwrap().stamp_ns);
            assert!(first >= begin_ns && last < begin_ns + SECOND, "{name}");
        }
        let account = run.account;
        assert_eq!(account.captured, 250 * readers, "{account:?}");
        assert_eq!(
            account.captured + account.over_limit,
            account.filter_accept,
            "{account:?}"
        );
    }
}

/// tcpdump's `-G 2` with files that are full earlier: the clock of `-G` continues, additional files of its time span
/// are numbered, and a file with a repeated name is overwritten.
#[test]
fn full_files_do_not_hold_up_the_clock_and_names_come_again() {
    const SECOND: u64 = 1_000_000_000;
    // Ten frames a second, for six seconds.
    let all: Vec<_> = (0..60u64)
        .map(|i| Waiting {
            stamp_ns: START_NS + i * SECOND / 10,
            ..frame(i, 60)
        })
        .collect();
    let rotated = |name: &str, frames, files| {
        let (dir, path) = scratch();
        let output = CaptureOutput {
            path: path.to_str().unwrap().to_owned() + name,
            rotate_time: Some(Span::from_secs(2)),
            rotate_frames: frames,
            files,
            overwrite: true,
            ..output(&path, FileFormat::PcapNs)
        };
        let run = capture(&spec(1, Some(output)), vec![Feed::new(all.clone())]);
        assert_eq!(run.account.captured, 60);
        let first = |(name, _): &(String, u64)| {
            let frames = content(&read(dir.path().join(name))).frames;
            (
                name.clone(),
                (frames[0].stamp_ns - START_NS) / (SECOND / 10),
                frames.len(),
            )
        };
        listing(dir.path()).iter().map(first).collect::<Vec<_>>()
    };
    let second = START_NS / SECOND;
    let file = |slice: u64, n: &str| format!("out-{}{n}", second + slice);
    assert_eq!(
        rotated("-%s", 8, 0),
        [
            (file(0, ""), 0, 8),
            (file(0, "1"), 8, 8),
            (file(0, "2"), 16, 4),
            (file(2, ""), 20, 8),
            (file(2, "1"), 28, 8),
            (file(2, "2"), 36, 4),
            (file(4, ""), 40, 8),
            (file(4, "1"), 48, 8),
            (file(4, "2"), 56, 4),
        ]
    );
    // A ring of two in each time, and one name for all times.
    assert_eq!(
        rotated("-%s", 8, 2)[..2],
        [(file(0, "0"), 16, 4), (file(0, "1"), 8, 8)]
    );
    assert_eq!(rotated("", 0, 0), [("out".to_owned(), 40, 20)]);
    assert_eq!(rotated("-%C", 0, 0), [("out-20".to_owned(), 40, 20)]);
}
