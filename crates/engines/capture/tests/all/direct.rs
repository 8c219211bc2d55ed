//! Files written past the page cache, with the last bytes held back: if the disk fails, and if the capture is killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wb_capture::{Capture, CaptureControl, run_reader, run_writer};
use wb_model::capture::{CaptureOutput, DirectWrites, FileFormat};

/// Frames of 1514 bytes, and bytes that each takes in a pcap file after its header.
const FRAME: usize = 1514;
const RECORD: u64 = 16 + FRAME as u64;
const HEADER: u64 = 24;
const BLOCK: u64 = 4096;

/// Buffers above the size up to which nothing is held back.
const BUFFER: u64 = 512 << 10;

fn directly(path: &Path, format: FileFormat) -> CaptureOutput {
    CaptureOutput {
        buffer_bytes: BUFFER as u32,
        direct: DirectWrites::Always,
        ..output(path, format)
    }
}

/// Captures a thousand frames into a file limited to `most` bytes. Returns the number of complete frames in it.
fn limited(path: &Path, format: FileFormat, most: u64) -> u64 {
    let hard = getrlimit(Resource::Fsize).maximum;
    let limit = |current| {
        let limit = Rlimit {
            current,
            maximum: hard,
        };
        setrlimit(Resource::Fsize, limit).unwrap();
    };
    limit(Some(most));
    let feed = Feed::new(frames(1000, FRAME));
    let run = capture(&spec(1, Some(directly(path, format))), vec![feed]);
    limit(hard);
    let file = read(path);
    let content = content(&file);
    // W is the number of frames found in the file, and E the rest, including those held back.
    assert_eq!(content.error, None, "{most}");
    assert_eq!(content.frames.len() as u64, run.account.captured, "{most}");
    assert!(content.frames == frames(1000, FRAME)[..content.frames.len()]);
    let rest = 1000 - run.account.captured;
    assert!(run.account.not_written == rest && rest > 0, "{most}");
    assert_eq!(run.writer.interface_frames, [run.account.captured]);
    assert_eq!(run.writer.file_octets, file.len() as u64, "{most}");
    assert!(file.len() as u64 <= most);
    assert!(run.writer.error.is_some(), "{most}");
    if run.writer.direct_files == 0 {
        wb_testing::skipped("no direct writing here");
    }
    run.account.captured
}

#[test]
fn what_is_held_back_is_not_written_when_the_disk_fails() {
    let test = "direct::what_is_held_back_is_not_written_when_the_disk_fails";
    let Some(dir) = here() else {
        let (dir, _) = scratch();
        return again(test, dir.path(), false, "trap '' XFSZ; exec \"$@\"");
    };
    let path = dir.join("out");
    // Ends of the first buffer, the second, and all frames.
    let buffer = BUFFER / RECORD;
    for frames in [buffer, 2 * buffer, 1000] {
        // The next write fails completely, so only the held-back part of the last one is lost.
        let end = HEADER + frames * RECORD;
        let most = end / BLOCK * BLOCK;
        let whole = (most - HEADER) / RECORD;
        assert!(whole + 2 <= frames, "two are held back, and more");
        assert_eq!(limited(&path, FileFormat::Pcap, most), whole);
        // A small part of it succeeds.
        for more in 0..4 {
            limited(&path, FileFormat::Pcap, most - more * BLOCK);
            limited(&path, FileFormat::Pcap, most - more * 512);
        }
    }
    // The frames of pcapng files end elsewhere, and a final block records the losses.
    for blocks in (120..136).chain(250..260) {
        limited(&path, FileFormat::Pcapng, blocks * BLOCK);
    }
}

/// Captures until it is killed, and continuously prints the number of frames in the file.
fn capture_until_killed(path: &Path, format: FileFormat) {
    let mut feed = Feed::new(frames(20_000, FRAME));
    // Two milliseconds for 100 kB.
    (feed.ends, feed.pause) = (false, Duration::from_millis(2));
    let control = CaptureControl::new();
    let clock = clock(1);
    let spec = spec(1, Some(directly(path, format)));
    let Capture {
        readers,
        writer,
        shared,
    } = Capture::open(&spec, 1, START_NS).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| run_writer(writer, &control, &clock));
        let seat = readers.into_iter().next().unwrap();
        scope.spawn(|| run_reader(&mut feed, seat, 0, &control, &clock));
        loop {
            let mut out = std::io::stdout().lock();
            let told = writeln!(out, "whole {}", shared.snapshot().written_frames);
            if told.and_then(|()| out.flush()).is_err() {
                // The parent process has gone.
                std::process::exit(1);
            }
            wb_testing::disturb(Duration::from_micros(200));
        }
    });
}

#[test]
fn a_capture_that_is_killed_leaves_whole_records() {
    let test = "direct::a_capture_that_is_killed_leaves_whole_records";
    if let Some(dir) = here() {
        return capture_until_killed(&dir.join("out"), FileFormat::Pcapng);
    }
    let all = frames(20_000, FRAME);
    for enough in [1, 900, 1500, 4000, 9000] {
        let (dir, path) = scratch();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads", "1"])
            .env(HERE, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut last = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            // The last one may be truncated.
            let Ok(line) = line else { break };
            let Some(whole) = line.strip_prefix("whole ").and_then(|w| w.parse().ok()) else {
                continue;
            };
            last = last.max(whole);
            if last >= enough {
                // A late kill does no harm: everything printed before counts.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(last >= enough, "it ended by itself after {last}");
        let file = read(&path);
        let content = content(&file);
        let found = content.frames.len();
        assert!(found >= last, "{last} were said to be there, {found} are");
        assert!(content.frames == all[..found]);
        // It is followed by at most a part of the next record.
        let behind = &file[content.whole as usize..];
        assert!(behind.len() < 32 + 1516, "{} bytes behind", behind.len());
        assert_eq!(content.error.is_some(), !behind.is_empty());
    }
}
