//! A capture in the place of tcpdump, side by side with it: the same command line, the same frames.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::kit::{Lab, Running, eventually, listening, privileged, run, system, total, wirebench};

const PATIENCE: Duration = Duration::from_secs(60);

/// One of the two tools, in the receiving node and a separate folder.
struct Tool {
    dir: TempDir,
    running: Running,
}

/// Output and files of the tool.
#[derive(Debug)]
struct Left {
    code: Option<i32>,
    out: String,
    said: String,
}

impl Tool {
    fn start(lab: &Lab, tool: &[&str], words: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let node = lab.node("b");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &node]).args(tool);
        command.args(words).current_dir(dir.path());
        let running = listening(dir.path(), &mut command);
        Self { dir, running }
    }

    fn tcpdump(lab: &Lab, words: &[&str]) -> Self {
        Self::start(lab, &["tcpdump", "-Z", "root"], words)
    }

    fn ours(lab: &Lab, words: &[&str]) -> Self {
        Self::start(lab, &[env!("CARGO_BIN_EXE_wirebench"), "capture"], words)
    }

    fn end(self) -> (Left, TempDir) {
        let code = self.running.finish(PATIENCE).status.code();
        let read = |name| {
            let bytes = fs::read(self.dir.path().join(name)).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let left = Left {
            code,
            out: read("report.json"),
            said: read("said"),
        };
        (left, self.dir)
    }
}

impl Left {
    /// The lines that tcpdump ends with, and what stands before them but the invitation to -v.
    fn tcpdumps_lines(&self) -> Vec<String> {
        self.said
            .lines()
            .filter(|l| {
                let ours = l.starts_with('#') || l.contains(" pps ");
                !ours && !l.contains("verbose output suppressed")
            })
            .map(|l| l.trim_start_matches("tcpdump: ").to_owned())
            .collect()
    }

    fn assert_exact(&self) {
        assert!(self.said.contains("accounting exact"), "{}", self.said);
    }
}

/// The packets of a vector of the printer, once each.
fn replay(lab: &Lab, vector: &str, frames: usize) {
    let file = format!(
        "{}/../../dialects/tcpdump/tests/vectors/{vector}.pcap",
        env!("CARGO_MANIFEST_DIR")
    );
    let frames = frames.to_string();
    send(
        lab,
        &[
            "--replay",
            &file,
            "--count",
            &frames,
            "--i-own-this-network",
        ],
    );
}

fn send(lab: &Lab, options: &[&str]) {
    let a = lab.a0();
    let mut words = vec!["tx", "-i", &a, "-q", "--json", "--catch-up", "10s"];
    if !options.contains(&"--rate") {
        words.extend(["--rate", "10kpps"]);
    }
    words.extend(options);
    let output = run(&words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(total(&report, "offered") > 0);
}

/// Both tools with these words while `sends` runs; both are ended by Ctrl-C unless they end themselves.
fn side_by_side(
    lab: &Lab,
    words: &[&str],
    ends: bool,
    sends: impl FnOnce(),
) -> [(Left, TempDir); 2] {
    let (theirs, ours) = (Tool::tcpdump(lab, words), Tool::ours(lab, words));
    sends();
    if !ends {
        // tcpdump leaves unread what is not in a block that was handed over.
        std::thread::sleep(Duration::from_millis(1200));
        theirs.running.signal(Signal::INT);
        ours.running.signal(Signal::INT);
    }
    let both = [theirs.end(), ours.end()];
    assert_eq!(both[0].0.code, both[1].0.code, "{words:?}: {both:?}");
    // Above the limit, the number of lines before the end depends on chance.
    let lines = |left: &Left| {
        let mut lines = left.tcpdumps_lines();
        lines.truncate(if ends { 2 } else { usize::MAX });
        lines
    };
    assert_eq!(lines(&both[0].0), lines(&both[1].0), "{words:?}");
    both[1].0.assert_exact();
    both
}

/// The vectors contain no kinds of packets that tcpdump decodes in more detail.
#[test]
fn frames_are_printed_as_tcpdump_prints_them() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for (vector, frames, words) in [
        ("ipv4", 136, "-nni b0 -t ip"),
        ("ipv4", 136, "ip -tvvni b0 -e -K -S"),
        ("ipv4", 136, "-t -l -X -i b0 -n ip and not tcp"),
        ("ipv6", 75, "-tnq -A -i b0 -s 80 -# ip6 and ip6[7] == 64"),
    ] {
        let words: Vec<_> = words.split(' ').collect();
        let [(theirs, _), (ours, _)] =
            side_by_side(&lab, &words, false, || replay(&lab, vector, frames));
        assert!(theirs.out.lines().count() > 20, "{words:?}: {theirs:?}");
        // Interrupted, tcpdump ends the line of a `^C` that a terminal would show.
        let lines = theirs.out.strip_suffix("\n\n").unwrap_or(&theirs.out);
        assert_eq!(lines, ours.out.trim_end_matches('\n'), "{words:?}");
    }
}

/// Lines of the article, of tcpdump's man page and of habit, unedited; the last word of each line may stand
/// for a filter of several.
#[test]
fn tcpdumps_lines_run_as_they_are() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    // Whatever takes the first interface needs it to be there.
    eventually("the link is up", || {
        let node = lab.node("b");
        let list = system("ip", &["netns", "exec", &node, "tcpdump", "-D"]);
        String::from_utf8_lossy(&list.stdout).starts_with("1.b0 ")
    });
    let lines: [(&[&str], bool); 5] = [
        (&["src host 198.18.1.2", "-w", "a.pcap"], false),
        (&["-nni", "b0", "-w", "a.pcap", "udp"], false),
        (&["-w", "a.pcap", "-s0", "-c100", "udp", "port", "7"], true),
        (&["-i", "1", "udp", "-U", "-w", "a.pcap", "-nnXS"], false),
        (
            &[
                "-B", "4096", "-pni", "b0", "-c", "50", "-w", "a.pcap", "udp",
            ],
            true,
        ),
    ];
    for (words, ends) in lines {
        let [(_, theirs), (_, ours)] = side_by_side(&lab, words, ends, || {
            send(&lab, &["--count", "500"]);
        });
        let frames = |dir: &TempDir| {
            let file = dir.path().join("a.pcap");
            let output = system("tcpdump", &["-xntr", file.to_str().unwrap()]);
            String::from_utf8(output.stdout).unwrap()
        };
        let (theirs, ours) = (frames(&theirs), frames(&ours));
        assert!(theirs.lines().count() >= 20, "{words:?}: {theirs}");
        assert_eq!(theirs, ours, "{words:?}");
    }
}

/// Counts in the report that a capture leaves in its statistics file.
fn account(dir: &Path) -> impl Fn(&str) -> u64 + use<> {
    let text = fs::read_to_string(dir.join("stats")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let c = report["capture"].clone();
    let of = move |key: &str| c[key].as_u64().unwrap_or_else(|| panic!("no {key} in {c}"));
    let parts = [
        "captured_frames",
        "kernel_drop_frames",
        "not_written_frames",
        "queue_drop_frames",
        "over_limit_frames",
        "not_read_frames",
    ];
    assert_eq!(
        of("filter_accept_frames"),
        parts.into_iter().map(&of).sum::<u64>()
    );
    of
}

/// A capture with lines that go into a pipe.
fn into_a_pipe(lab: &Lab, dir: &TempDir, words: &[&str]) -> Running {
    let b = lab.b0();
    let said = dir.path().join("said");
    let child = wirebench()
        .args(["capture", "-nni", &b, "--stats-file", "stats"])
        .args(words)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let running = Running(child);
    eventually("the capture listens", || {
        fs::read_to_string(&said).unwrap().contains("listening on ")
    });
    running
}

#[test]
fn a_slow_reader_of_lines_costs_frames_and_no_count() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for reads in [true, false] {
        let dir = TempDir::new().unwrap();
        let ring = ["--ring", "512KiB", "--block-size", "64KiB", "udp"];
        let mut running = into_a_pipe(&lab, &dir, &ring);
        send(&lab, &["--count", "150000", "--rate", "200kpps"]);
        running.signal(Signal::INT);
        let mut text = String::new();
        let mut out = running.0.stdout.take().unwrap();
        if reads {
            out.read_to_string(&mut text).unwrap();
        } else {
            // The first signal requests the end, the second does not wait for the reader.
            std::thread::sleep(Duration::from_millis(300));
            running.signal(Signal::INT);
        }
        let code = running.finish(PATIENCE).status.code();
        drop(out);
        let of = account(dir.path());
        let said = fs::read_to_string(dir.path().join("said")).unwrap();
        assert_eq!(of("filter_accept_frames"), 150_000, "{said}");
        assert!(of("kernel_drop_frames") > 0, "{said}");
        assert!(said.contains("accounting exact"), "{said}");
        if reads {
            assert_eq!(code, Some(1), "{said}");
            assert_eq!(text.lines().count() as u64, of("captured_frames"), "{said}");
        } else {
            assert_eq!(code, Some(4), "{said}");
            assert!(of("not_written_frames") > 0, "{said}");
        }
    }
}

#[test]
fn lines_that_nobody_reads_end_the_capture_in_order() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for line_by_line in [false, true] {
        let dir = TempDir::new().unwrap();
        let words = if line_by_line {
            &["-l", "udp"][..]
        } else {
            &["udp"]
        };
        let mut running = into_a_pipe(&lab, &dir, words);
        drop(running.0.stdout.take());
        send(&lab, &["--count", "2000"]);
        let code = running.finish(PATIENCE).status.code();
        let said = fs::read_to_string(dir.path().join("said")).unwrap();
        let of = account(dir.path());
        assert_eq!(code, Some(0), "{said}");
        assert_eq!((of("captured_frames"), of("not_written_frames")), (0, 0));
        assert!(of("over_limit_frames") > 0, "{said}");
        assert!(said.contains("accounting exact"), "{said}");
    }
    // A write error is a different case.
    let dir = TempDir::new().unwrap();
    let mut command = wirebench();
    command.args(["capture", "-ni", &lab.b0(), "--stats-file", "stats", "udp"]);
    command.current_dir(dir.path()).stdin(Stdio::null());
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    command.stderr(File::create(dir.path().join("said")).unwrap());
    let running = Running(command.spawn().unwrap());
    let said = || fs::read_to_string(dir.path().join("said")).unwrap();
    eventually("the capture listens", || said().contains("listening on "));
    send(&lab, &["--count", "2000"]);
    assert_eq!(
        running.finish(PATIENCE).status.code(),
        Some(4),
        "{}",
        said()
    );
    assert!(account(dir.path())("not_written_frames") > 0);
    assert!(said().contains("No space left on device"), "{}", said());
}

#[test]
fn what_is_printed_beside_a_file_never_costs_the_file_a_frame() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for reads in [true, false] {
        let dir = TempDir::new().unwrap();
        let words = ["-w", "a.pcapng", "--print", "-XX", "udp"];
        let mut running = into_a_pipe(&lab, &dir, &words);
        let out = running.0.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let (mut out, mut text) = (out, String::new());
            if reads {
                out.read_to_string(&mut text).unwrap();
            } else {
                std::thread::park();
            }
            text
        });
        send(
            &lab,
            &["--count", "60000", "--size", "128", "--rate", "60kpps"],
        );
        running.signal(Signal::INT);
        let code = running.finish(PATIENCE).status.code();
        let said = fs::read_to_string(dir.path().join("said")).unwrap();
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(account(dir.path())("captured_frames"), 60_000, "{said}");
        reader.thread().unpark();
        let lines = reader.join().unwrap();
        let printed = lines
            .lines()
            .filter(|l| l.contains(" > ") && l.contains("UDP"));
        let unprinted: usize = said
            .lines()
            .find_map(|l| {
                let said = l.strip_prefix("# wirebench: ")?;
                said.contains("not printed").then(|| said.split_once(' '))?
            })
            .map_or(0, |(n, _)| n.parse().unwrap());
        if reads {
            // A frame that was cut off has its first line, and counts as not printed.
            let frames = printed.count() + unprinted;
            assert!((60_000..=60_001).contains(&frames), "{frames}: {said}");
        } else {
            assert!(unprinted > 0, "{said}");
        }
    }
}

#[test]
fn statistics_that_cannot_be_saved_cost_neither_account_nor_report() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let mut command = wirebench();
    command.args(["capture", "-qi", &lab.b0(), "--json", "udp", "--stats-file"]);
    command.arg(folder.join("stats"));
    let running = listening(dir.path(), &mut command);
    fs::remove_dir_all(&folder).unwrap();
    send(&lab, &["--count", "300"]);
    running.signal(Signal::INT);
    let code = running.finish(PATIENCE).status.code();
    let said = fs::read_to_string(dir.path().join("said")).unwrap();
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains("300 packets captured") && said.contains("accounting exact"),
        "{said}"
    );
    assert!(said.contains("stats: No such file"), "{said}");
    let report: Value =
        serde_json::from_slice(&fs::read(dir.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(report["capture"]["captured_frames"], 300, "{said}");
}
