//! Contents of the files: formats, tags, truncation, filters, limits, statistics.

use crate::common::*;
use wb_capture::{Capture, CaptureControl, OutputError};
use wb_model::capture::{CaptureOutput, Compression, FileFormat};
use wb_port::StrippedVlan;

const FORMATS: [FileFormat; 3] = [FileFormat::Pcapng, FileFormat::PcapNs, FileFormat::Pcap];

fn mixed() -> Vec<Waiting> {
    (0..5000u64)
        .map(|i| frame(i, 14 + (i * 37 % 1500) as usize))
        .collect()
}

#[test]
fn every_frame_is_in_the_file_in_order() {
    for format in FORMATS {
        let (_dir, path) = scratch();
        let run = capture(
            &spec(1, Some(output(&path, format))),
            vec![Feed::new(mixed())],
        );
        assert_eq!(run.account.captured, 5000);
        assert_eq!(run.account.lost_frames(), 0);
        assert!(run.readers[0].received_all);
        let file = read(&path);
        assert_eq!(run.writer.file_octets, file.len() as u64);
        let content = content(&file);
        assert_eq!(content.error, None);
        assert!(content.frames == mixed(), "{format:?}");
    }
}

#[test]
fn compressed_files_hold_the_same() {
    for compress in [Compression::Zstd, Compression::Lz4, Compression::Gzip] {
        let (dir, path) = scratch();
        let output = CaptureOutput {
            compress,
            ..output(&path, FileFormat::Pcapng)
        };
        let run = capture(&spec(1, Some(output)), vec![Feed::new(mixed())]);
        assert_eq!(run.account.captured, 5000);
        assert!(run.writer.writes > 10);
        let (name, _) = &listing(dir.path())[0];
        let file = read(dir.path().join(name));
        let suffix = match compress {
            Compression::Zstd => ".zst",
            Compression::Lz4 => ".lz4",
            _ => ".gz",
        };
        assert_eq!(*name, format!("out{suffix}"));
        let content = content(&plain(compress, &file));
        assert!(content.error.is_none() && content.frames == mixed());
        assert_eq!(content.statistics.len(), 1);
    }
}

#[test]
fn a_file_is_readable_wherever_it_ends() {
    for format in FORMATS {
        let (_dir, path) = scratch();
        let all: Vec<_> = (0..40u64).map(|i| frame(i, 60 + i as usize)).collect();
        capture(
            &spec(1, Some(output(&path, format))),
            vec![Feed::new(all.clone())],
        );
        let file = read(&path);
        let mut seen = 0;
        for cut in 0..=file.len() {
            let got = content(&file[..cut]);
            assert!(got.frames == all[..got.frames.len()]);
            assert!(got.frames.len() >= seen, "{cut}");
            seen = got.frames.len();
        }
        assert_eq!(seen, 40);
    }
}

#[test]
fn the_tag_is_put_back_and_frames_are_cut_after_it() {
    let tag = StrippedVlan {
        tpid: 0x8100,
        tci: 0x2064,
    };
    let tagged = |len| Waiting {
        vlan: Some(tag),
        ..frame(1, len)
    };
    let (_dir, path) = scratch();
    let spec = wb_capture::CaptureSpec {
        snap_len: 64,
        ..spec(1, Some(output(&path, FileFormat::PcapNs)))
    };
    let run = capture(
        &spec,
        vec![Feed::new(vec![
            tagged(60),
            tagged(64),
            tagged(12),
            tagged(5),
            frame(1, 65),
        ])],
    );
    assert_eq!(run.readers[0].read_octets, (64 + 68 + 16 + 9 + 65) + 5 * 4);
    let got = content(&read(&path)).frames;
    let whole = |len: usize| {
        let plain = frame(1, len).bytes;
        let at = len.min(12);
        [&plain[..at], &[0x81, 0, 0x20, 0x64], &plain[at..]].concat()
    };
    let lens: Vec<_> = got
        .iter()
        .map(|f| (f.bytes.len(), f.original_len))
        .collect();
    assert_eq!(lens, [(64, 64), (64, 68), (16, 16), (9, 9), (64, 65)]);
    assert_eq!(got[0].bytes, whole(60));
    assert_eq!(got[1].bytes, whole(64)[..64]);
    assert_eq!(got[2].bytes, whole(12));
    assert_eq!(got[3].bytes, whole(5));
}

#[test]
fn a_filter_sees_the_tag_and_rejects_before_all_counting() {
    let (_dir, path) = scratch();
    let tagged: Vec<_> = (0..100u64)
        .map(|i| Waiting {
            vlan: Some(StrippedVlan {
                tpid: 0x88a8,
                tci: i as u16,
            }),
            ..frame(i, 60)
        })
        .collect();
    let spec = wb_capture::CaptureSpec {
        limit: Some(20),
        snap_len: 14,
        ..spec(1, Some(output(&path, FileFormat::Pcapng)))
    };
    let run = capture_with(
        &spec,
        vec![Feed::new(tagged)],
        &CaptureControl::new(),
        |seat| {
            seat.filter = Some(Box::new(|bytes, len| {
                assert_eq!((bytes.len(), len), (64, 64));
                bytes[12..14] == [0x88, 0xa8] && bytes[15] % 2 == 1
            }));
        },
    );
    assert_eq!(run.readers[0].rejected_frames, 50);
    let statistics = content(&read(&path)).statistics[0];
    assert_eq!(statistics.filter_accepted, Some(50));
    assert_eq!(statistics.delivered, Some(20));
    assert_eq!(run.account.filter_accept, 50);
    assert_eq!(run.account.captured, 20);
    assert_eq!(run.account.over_limit, 30);
    assert_eq!(content(&read(&path)).frames.len(), 20);
}

#[test]
fn several_interfaces_go_into_one_file_with_their_statistics() {
    let (_dir, path) = scratch();
    let mut feeds = vec![
        Feed::new(frames(700, 60)),
        Feed::new(frames(1300, 1514)),
        Feed::new(frames(50, 60)),
    ];
    feeds[0].dropped = 7;
    feeds[1].dropped = 20;
    feeds[2].dropped = 1;
    // The third reader shares the second interface.
    let run = capture(&spec(2, Some(output(&path, FileFormat::Pcapng))), feeds);
    assert_eq!(run.account.kernel_drop, 28);
    assert_eq!(run.account.filter_accept, 2050 + 28);
    assert_eq!(run.writer.interface_frames, [700, 1350]);
    let content = content(&read(&path));
    assert_eq!(content.error, None);
    assert_eq!(content.names, ["wb0", "wb1"]);
    let of = |interface| {
        content
            .interfaces
            .iter()
            .filter(|i| **i == interface)
            .count()
    };
    assert_eq!((of(0), of(1)), (700, 1350));
    let [first, second] = content.statistics[..] else {
        panic!("{:?}", content.statistics);
    };
    assert_eq!(first.adds_up(), Some(true));
    assert_eq!(
        (first.filter_accepted, first.os_dropped, first.delivered),
        (Some(707), Some(7), Some(700))
    );
    assert_eq!(
        (second.filter_accepted, second.os_dropped, second.delivered),
        (Some(1371), Some(21), Some(1350))
    );
    assert_eq!(first.start_ns, Some(START_NS));
    assert_eq!(first.if_received, None);
}

#[test]
fn the_limit_is_exact_over_several_readers() {
    for limit in [1, 100, 999, 2999, 3000, 3001] {
        for to_file in [true, false] {
            let (_dir, path) = scratch();
            let output = to_file.then(|| output(&path, FileFormat::Pcap));
            let spec = wb_capture::CaptureSpec {
                limit: Some(limit),
                ..spec(1, output)
            };
            let feeds = (0..3).map(|_| Feed::new(frames(1000, 60))).collect();
            let control = CaptureControl::new();
            let run = capture_with(&spec, feeds, &control, |_| {});
            let kept = limit.min(3000);
            assert_eq!(run.account.captured, kept);
            assert_eq!(run.account.over_limit, 3000 - kept);
            assert_eq!(control.limit_reached(), limit <= 3000);
            if to_file {
                assert_eq!(content(&read(&path)).frames.len() as u64, kept);
            }
        }
    }
}

#[test]
fn without_an_output_frames_are_counted() {
    let mut feed = Feed::new(frames(1000, 60));
    feed.dropped = 3;
    let run = capture(&spec(1, None), vec![feed]);
    assert_eq!((run.account.captured, run.account.kernel_drop), (1000, 3));
    assert_eq!(run.writer.files, 0);
}

#[test]
fn at_the_stop_what_the_port_holds_back_is_read() {
    for hurries in [false, true] {
        let (_dir, path) = scratch();
        let control = CaptureControl::new();
        let shown = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut feed = Feed::new(frames(500, 60));
        (feed.held, feed.ends, feed.tell) = (123, false, Some(shown.clone()));
        let run = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !shown.load(std::sync::atomic::Ordering::Acquire) {
                    std::thread::yield_now();
                }
                match hurries {
                    true => control.stop_at_once(),
                    false => control.stop(),
                }
            });
            let spec = spec(1, Some(output(&path, FileFormat::Pcap)));
            capture_with(&spec, vec![feed], &control, |_| {})
        });
        let unread = if hurries { 123 } else { 0 };
        assert_eq!(run.account.not_read, unread);
        assert_eq!(run.readers[0].hurried, hurries);
        assert_eq!(run.account.captured, 500 - unread);
        assert_eq!(content(&read(&path)).frames.len() as u64, 500 - unread);
    }
}

#[test]
fn a_frame_longer_than_a_buffer_has_a_place() {
    let (_dir, path) = scratch();
    let all = vec![
        frame(0, 60),
        frame(1, 200_000),
        frame(2, 60),
        frame(3, 262_144),
    ];
    capture(
        &spec(1, Some(output(&path, FileFormat::Pcapng))),
        vec![Feed::new(all.clone())],
    );
    assert!(content(&read(&path)).frames == all);
}

#[test]
fn a_partial_buffer_goes_to_the_file_while_the_port_is_quiet() {
    for (compress, flush_ns) in [(Compression::None, u64::MAX), (Compression::Zstd, 1)] {
        let (dir, path) = scratch();
        let control = CaptureControl::new();
        let mut feed = Feed::new(frames(10, 60));
        feed.ends = false;
        let output = CaptureOutput {
            compress,
            flush: wb_model::units::Span::from_nanos(flush_ns),
            ..output(&path, FileFormat::Pcap)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Ends only once the frames are in the file.
                loop {
                    let (name, _) = listing(dir.path()).pop().unwrap_or_default();
                    let file = std::fs::read(dir.path().join(name)).unwrap_or_default();
                    let mut plain = Vec::new();
                    match compress {
                        Compression::Zstd => {
                            let _ = zstd::stream::copy_decode(&file[..], &mut plain);
                        }
                        _ => plain = file,
                    }
                    if content(&plain).frames.len() == 10 {
                        return control.stop();
                    }
                    std::thread::yield_now();
                }
            });
            capture_with(&spec(1, Some(output)), vec![feed], &control, |_| {})
        });
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let (dir, path) = scratch();
    let good = || spec(1, Some(output(&path, FileFormat::Pcap)));
    let refused = |spec: &wb_capture::CaptureSpec| {
        let error = Capture::open(spec, 1, 0).unwrap_err();
        assert!(matches!(error, OutputError::Input(_)), "{error}");
        error.to_string()
    };
    let with = |change: &dyn Fn(&mut CaptureOutput)| {
        let mut spec = good();
        change(spec.output.as_mut().unwrap());
        refused(&spec)
    };
    assert!(with(&|o| o.buffer_bytes = 65_537).contains("power of two"));
    assert!(with(&|o| o.buffer_bytes = 1 << 25).contains("16 MiB"));
    assert!(with(&|o| o.buffers = 1).contains("between 2 and 4096, got 1"));
    assert!(with(&|o| o.path = String::new()).contains("file name is empty"));
    let rotated = with(&|o| (o.path, o.rotate_frames) = ("-".to_owned(), 1));
    assert!(rotated.contains("standard output cannot be rotated"));
    assert!(
        refused(&wb_capture::CaptureSpec {
            snap_len: 0,
            ..good()
        })
        .contains("snap length: must be between 1 and 262144 bytes, got 0")
    );
    assert!(refused(&spec(0, None)).contains("at least one interface"));
    let mut two = spec(2, good().output);
    two.interfaces[1].link_type = 101;
    assert!(refused(&two).contains("use pcapng"));
    assert_eq!(listing(dir.path()), []);

    let mut nowhere = good();
    nowhere.output.as_mut().unwrap().path = format!("{}/no/file", dir.path().display());
    let error = Capture::open(&nowhere, 1, 0).unwrap_err().to_string();
    assert!(
        error.contains("/no/file for writing: No such file"),
        "{error}"
    );
}

#[test]
fn a_frame_tells_what_was_lost_before_it() {
    for (format, told) in [
        (FileFormat::Pcapng, vec![(100, 7), (200, 3)]),
        (FileFormat::Pcap, vec![]),
    ] {
        let (_dir, path) = scratch();
        let mut feed = Feed::new(frames(300, 61));
        feed.batch = 50;
        feed.loses = vec![(100, 7), (200, 3)];
        // After the last frame no other frame can report it.
        feed.loses.push((300, 2));
        let run = capture(&spec(1, Some(output(&path, format))), vec![feed]);
        assert_eq!(run.account.captured, 300);
        let content = content(&read(&path));
        assert_eq!(content.error, None);
        assert!(content.frames == frames(300, 61));
        assert_eq!(content.losses, told);
        assert_eq!(run.account.kernel_drop, 12);
        if let Some(last) = content.statistics.last() {
            assert_eq!(last.os_dropped, Some(12));
        }
    }
}

#[test]
fn as_long_as_frames_may_be_older_than_the_loss_none_tells_it() {
    let (_dir, path) = scratch();
    // They were stamped years ago, and the ring is never empty.
    let mut feed = Feed::new(frames(300, 60));
    (feed.batch, feed.pause, feed.dropped) = (1, std::time::Duration::from_millis(1), 9);
    let run = capture(
        &spec(1, Some(output(&path, FileFormat::Pcapng))),
        vec![feed],
    );
    let content = content(&read(&path));
    assert_eq!(content.losses, []);
    assert_eq!(content.statistics.last().unwrap().os_dropped, Some(9));
    assert_eq!(run.account.kernel_drop, 9);
}

#[test]
fn it_is_known_how_long_writes_took() {
    let (_dir, path) = scratch();
    let run = capture(
        &spec(1, Some(output(&path, FileFormat::Pcap))),
        vec![Feed::new(frames(2000, 1514))],
    );
    let w = run.writer;
    assert!(w.writes > 40 && w.write_p50_ns > 0);
    assert!(w.write_p50_ns <= w.write_p99_ns && w.write_p99_ns <= w.longest_write_ns);
}

#[test]
fn wireshark_opens_compressed_files_of_many_buffers() {
    for compress in [Compression::Zstd, Compression::Lz4, Compression::Gzip] {
        let (_dir, path) = scratch();
        let name = format!("{}.pcapng", path.display());
        let output = CaptureOutput {
            path: name.clone(),
            compress,
            buffer_bytes: 64 << 10,
            ..CaptureOutput::default()
        };
        let run = capture(&spec(1, Some(output)), vec![Feed::new(frames(9_000, 600))]);
        assert!(run.writer.writes > 10);
        let path = run.writer.path.unwrap();
        let Ok(told) = std::process::Command::new("capinfos")
            .args(["-c", "-M", "-T", "-r"])
            .arg(&path)
            .output()
        else {
            eprintln!("capinfos: not there, so not asked");
            return;
        };
        let text = String::from_utf8_lossy(&told.stdout);
        let error = String::from_utf8_lossy(&told.stderr);
        assert!(
            text.trim_end().ends_with("\t9000"),
            "{compress:?}: {text}{error}"
        );
    }
}
