//! Output of captures: full disks, finished files, programs that process them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use wb_pcapng::{CaptureReader, Event};
use wb_wire::Tag;

use crate::kit::{self, Lab, Running, eventually, listening, privileged, run, system};

const PATIENCE: Duration = Duration::from_secs(30);

/// A small disk, for as long as this lives.
struct Disk(TempDir);

impl Disk {
    fn of(size: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let path = dir.path().display().to_string();
        let mounted = system("mount", &["-t", "tmpfs", "-o", &size, "wb-disk", &path]);
        assert!(mounted.status.success(), "{mounted:?}");
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let path = self.path().display().to_string();
        let _ = system("umount", &["--lazy", &path]);
    }
}

/// A capture of test frames with `--json`.
struct Capture {
    running: Running,
    /// Folder for its output and its messages: never on the disk under test.
    dir: TempDir,
}

impl Capture {
    fn start(lab: &Lab, file: &Path, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = kit::capture(options);
        command.args(["-q", "--json", "-i", &lab.b0(), "-w"]);
        command.arg(file).arg("udp port 7");
        let running = listening(dir.path(), &mut command);
        Self { running, dir }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.dir.path().join("said")).unwrap()
    }

    /// Ends it: exit code, the capture in its report, standard error.
    fn interrupt(self) -> (i32, Value, String) {
        self.running.signal(Signal::INT);
        let Self { running, dir } = self;
        let code = running.finish(PATIENCE).status.code().unwrap_or(-1);
        let text = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        let said = text("said");
        let report: Value =
            serde_json::from_str(&text("report.json")).unwrap_or_else(|e| panic!("{e}: {said}"));
        assert_eq!(report["capture"]["exact"], true, "{said}");
        (code, report["capture"].clone(), said)
    }
}

fn send(lab: &Lab, frames: u64, size: &str) {
    let count = frames.to_string();
    let output = run(&[
        "tx",
        "-i",
        &lab.a0(),
        "--count",
        &count,
        "--size",
        size,
        "--rate",
        "20kpps",
        "--catch-up",
        "10s",
        "-q",
    ]);
    assert!(output.status.success(), "{output:?}");
}

/// Sequence numbers of the test frames of a file as far as it is whole, and whether it is to its end.
fn whole_sequences(path: &Path) -> (Vec<u32>, bool) {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut reader = CaptureReader::new(&bytes[..]).unwrap();
    let mut found = Vec::new();
    loop {
        match reader.next_item() {
            Ok(None) => return (found, true),
            Err(_) => return (found, false),
            Ok(Some(item)) => {
                if let Event::Record(record) = item.event {
                    let tag = record.captured.get(42..).and_then(Tag::read).unwrap();
                    found.push(tag.sequence);
                }
            }
        }
    }
}

/// Sequence numbers in a complete file that other programs can read.
fn sequences(path: &Path) -> Vec<u32> {
    let (found, whole) = whole_sequences(path);
    assert!(whole, "{} is cut", path.display());
    let name = path.display().to_string();
    match std::process::Command::new("capinfos")
        .args(["-Mc", &name])
        .output()
    {
        Ok(told) => {
            let text = String::from_utf8_lossy(&told.stdout);
            assert!(told.status.success(), "{told:?}");
            assert!(text.contains(&format!(" {}", found.len())), "{text}");
        }
        Err(_) => eprintln!("no capinfos here to judge {name}"),
    }
    found
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The files hold the last of `sent` frames without a gap.
fn assert_last_frames(dir: &Path, sent: u32) {
    let mut kept: Vec<_> = files_in(dir).iter().flat_map(|f| sequences(f)).collect();
    kept.sort_unstable();
    let first = kept[0];
    assert!(first > 0, "nothing was removed");
    assert!(kept.iter().copied().eq(first..sent), "from {first}");
}

#[test]
fn a_full_disk_loses_the_oldest_file_and_no_frame() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let disk = Disk::of("2M");
    let options = ["-C", "200k", "--on-enospc", "rotate-delete"];
    let capture = Capture::start(&lab, &disk.path().join("out"), &options);
    send(&lab, 4000, "1518");
    let (code, c, said) = capture.interrupt();
    assert_eq!((code, &c["captured_frames"]), (0, &4000.into()), "{said}");
    let removed = c["files_removed"].as_u64().unwrap();
    let left = files_in(disk.path()).len() as u64;
    assert!(removed > 0, "{c}");
    assert_eq!(c["files"], left + removed);
    assert!(said.contains(" removed to free disk space"), "{said}");
    assert_last_frames(disk.path(), 4000);
}

#[test]
fn room_is_kept_free() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let disk = Disk::of("4M");
    let options = ["-C", "200k", "--keep-free", "2m"];
    let capture = Capture::start(&lab, &disk.path().join("out"), &options);
    send(&lab, 4000, "1518");
    let (code, c, said) = capture.interrupt();
    assert_eq!((code, &c["captured_frames"]), (0, &4000.into()), "{said}");
    assert_last_frames(disk.path(), 4000);
    let size: u64 = files_in(disk.path())
        .iter()
        .map(|f| fs::metadata(f).unwrap().len())
        .sum();
    assert!(size < 2_500_000, "{size}");
}

#[test]
fn a_program_gets_each_finished_file() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out");
    let options = ["--rotate-packets", "100", "--part", "-z", "gzip"];
    let capture = Capture::start(&lab, &file, &options);
    assert_eq!(files_in(dir.path()), [dir.path().join("out.part")]);
    send(&lab, 250, "64");
    let (code, c, said) = capture.interrupt();
    assert_eq!((code, &c["captured_frames"]), (0, &250.into()), "{said}");
    // It was waited for the last one too.
    let names = ["out.gz", "out1.gz", "out2.gz"].map(|name| dir.path().join(name));
    assert_eq!(files_in(dir.path()), names, "{said}");
    for name in names {
        assert!(
            system("gunzip", &[&name.display().to_string()])
                .status
                .success()
        );
    }
    let kept: Vec<_> = files_in(dir.path())
        .iter()
        .flat_map(|f| sequences(f))
        .collect();
    assert!(kept.iter().copied().eq(0..250));

    // A failing command does no harm, and is reported.
    let file = dir.path().join("again");
    let capture = Capture::start(&lab, &file, &["-z", "false"]);
    send(&lab, 10, "64");
    let (code, _, said) = capture.interrupt();
    assert_eq!(code, 0);
    let line = format!("-z false {}: exit status: 1", file.display());
    assert!(said.contains(&line), "{said}");
    assert!(sequences(&file).len() == 10);
}

#[test]
fn who_asks_twice_does_not_wait_for_a_program() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("slow");
    let began = dir.path().join("began");
    // It ends with the directory.
    let text = format!(
        "#!/bin/sh\ntouch {0}\nwhile [ -e {0} ]; do sleep 0.1; done\n",
        began.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let program = program.display().to_string();
    let capture = Capture::start(&lab, &dir.path().join("out"), &["-z", &program]);
    capture.running.signal(Signal::INT);
    eventually("the program runs", || began.exists());
    // Two signals within 250 ms count as one request.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let (code, _, said) = capture.interrupt();
    assert_eq!(code, 0);
    assert!(said.contains("ended with 1 still running"), "{said}");
}

#[test]
fn past_the_cache_every_frame_is_in_the_file_even_after_a_kill() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.pcap");
    let capture = Capture::start(&lab, &file, &["--direct", "-C", "1"]);
    send(&lab, 2000, "1518");
    let (code, c, said) = capture.interrupt();
    assert_eq!((code, &c["captured_frames"]), (0, &2000.into()), "{said}");
    assert!(!said.contains("direct writes"), "{said}");
    let kept: Vec<_> = files_in(dir.path())
        .iter()
        .flat_map(|f| sequences(f))
        .collect();
    assert!(kept.iter().copied().eq(0..2000));
    assert_eq!(fs::metadata(&file).unwrap().len(), 1_000_644);

    // Few frames at once; and enough frames to fill the buffers, while blocks of the disk are held back in between.
    for (frames, size) in [(777, "100"), (8000, "1518")] {
        let file = dir.path().join("killed.pcapng");
        let capture = Capture::start(&lab, &file, &["--direct"]);
        send(&lab, frames, size);
        let line = format!("tcpdump: {frames} packets captured");
        eventually("it is written", || {
            capture.running.signal(Signal::USR1);
            std::thread::sleep(Duration::from_millis(50));
            capture.said().contains(&line)
        });
        capture.running.signal(Signal::KILL);
        drop(capture);
        // The written file is complete, with nothing after the last frame.
        assert!(sequences(&file).into_iter().eq(0..frames as u32));
        let len = fs::metadata(&file).unwrap().len();
        let repaired = run(&[
            "read",
            "--repair",
            "--in-place",
            &file.display().to_string(),
        ]);
        assert!(repaired.status.success(), "{repaired:?}");
        assert_eq!(fs::metadata(&file).unwrap().len(), len);
    }
}

/// Number of frames written according to the last report in `said`; the last line may be cut.
fn last_told(said: &str) -> usize {
    let mut told = said.lines().filter_map(|line| {
        let (count, _) = line.strip_prefix("tcpdump: ")?.split_once(" packet")?;
        count.parse().ok()
    });
    told.next_back().unwrap_or(0)
}

#[test]
fn killed_while_it_writes_past_the_cache_it_leaves_whole_records() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    for form in ["pcapng", "pcap"] {
        let file = dir.path().join(format!("killed.{form}"));
        let name = file.display().to_string();
        let capture = Capture::start(&lab, &file, &["--direct"]);
        // Without a duration, so that frames still arrive when the capture is killed.
        let sender = Running::start(&[
            "tx",
            "-i",
            &lab.a0(),
            "--size",
            "1518",
            "--rate",
            "10kpps",
            "--catch-up",
            "10s",
            "-q",
        ]);
        eventually("much is written", || {
            capture.running.signal(Signal::USR1);
            std::thread::sleep(Duration::from_millis(20));
            last_told(&capture.said()) > 2500
        });
        capture.running.signal(Signal::KILL);
        drop(sender);
        let Capture {
            running,
            dir: words,
        } = capture;
        running.finish(PATIENCE);
        let said = fs::read_to_string(words.path().join("said")).unwrap();

        // The file contains all frames reported as written, complete and in order, and nothing else.
        let (found, whole) = whole_sequences(&file);
        assert!(found.iter().copied().eq(0..found.len() as u32));
        let last = last_told(&said);
        assert!(found.len() >= last, "{} of {last}", found.len());
        let read = run(&["read", "--count", &name]);
        let text = String::from_utf8_lossy(&read.stdout);
        let count = format!("{} packets", found.len());
        assert_eq!(text.trim().replace(',', ""), count, "{read:?}");

        let len = fs::metadata(&file).unwrap().len();
        let repaired = run(&["read", "--repair", "--in-place", &name]);
        assert!(repaired.status.code().is_some_and(|code| code < 2));
        let left = fs::metadata(&file).unwrap().len();
        assert!(left <= len && len - left < 2048 && (left == len) == whole);
        assert!(sequences(&file) == found);
    }
}
