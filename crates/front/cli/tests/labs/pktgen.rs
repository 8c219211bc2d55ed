//! The packet generator's files and scripts, with real frames: long outputs that are those of a kernel, random commands,
//! and interfaces that a kernel may lack. The rest is in `tests/scenarios/pktgen`.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::kit::{Running, eventually, run, system, wirebench};

mod commands;
mod frames;
mod random;
mod receiver;
mod script;

/// Longest that anything here may take, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
/// Destination of the frames: an unused address.
const DST_MAC: &str = "02:00:00:00:00:0b";

/// A folder of control files, served by a separate process that does not outlive the test.
struct Folder {
    daemon: Running,
    dir: TempDir,
}

impl Folder {
    fn mount(node: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let daemon = wirebench()
            .args(["pktgen", "mount"])
            .arg(dir.path())
            .args(["--netns", node])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // It may print many messages, and the test does not read them.
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let folder = Self {
            daemon: Running(daemon),
            dir,
        };
        eventually("the control files are there", || {
            folder.path("pgctrl").exists()
        });
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.path(name));
        String::from_utf8(bytes.unwrap_or_else(|e| panic!("{name}: {e}"))).expect("UTF-8")
    }

    /// One write.
    fn write(&self, name: &str, command: &[u8]) -> io::Result<usize> {
        let mut file = OpenOptions::new().write(true).open(self.path(name))?;
        file.write(command)
    }

    /// One write that must succeed, as a whole.
    fn set(&self, name: &str, command: &str) {
        match self.write(name, command.as_bytes()) {
            Ok(n) => assert_eq!(n, command.len(), "{name}: {command}"),
            Err(e) => panic!("{name}: {command}: {e}"),
        }
    }

    /// A device on CPU 0, and its settings.
    fn device(&self, name: &str, settings: &[&str]) {
        self.set("kpktgend_0", &format!("add_device {name}"));
        self.set(name, &format!("dst_mac {DST_MAC}"));
        for setting in settings {
            self.set(name, setting);
        }
    }

    /// Text after `Result: `.
    fn result(&self, name: &str) -> String {
        let text = self.read(name);
        let (_, result) = text.split_once("Result: ").expect("a result");
        result.trim_end().to_owned()
    }

    /// A process that writes `start` and then reports it.
    fn starter(&self) -> Running {
        let child = Command::new("bash")
            .args(["-c", "echo start > $P/pgctrl && echo returned"])
            .env("P", self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bash starts");
        Running(child)
    }

    /// A whole run, to its end.
    fn start(&self) {
        let output = self.starter().finish(PATIENCE);
        assert_eq!(
            text(&output.stdout),
            "returned\n",
            "{}",
            text(&output.stderr)
        );
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = run(&["pktgen", "umount", self.dir.path().to_str().expect("UTF-8")]);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number after the first `label`.
fn number_after(text: &str, label: &str) -> u64 {
    let rest = text
        .split_once(label)
        .unwrap_or_else(|| panic!("no {label:?} in {text}"))
        .1;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end]
        .parse()
        .unwrap_or_else(|e| panic!("{label}: {e}: {text}"))
}

/// Frames that an interface of a node has seen, `rx` or `tx`.
fn counted(node: &str, interface: &str, direction: &str) -> u64 {
    let output = system("ip", &["-n", node, "-s", "-j", "link", "show", interface]);
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON of ip");
    list[0]["stats64"][direction]["packets"]
        .as_u64()
        .expect("packets")
}

/// The path of one of the scripts.
fn script(name: &str) -> String {
    format!("{}/tests/labs/scripts/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a script by `pktgen run` in a node, to its end.
fn run_script(node: &str, script_and_arguments: &[&str]) -> Output {
    let own = ["pktgen", "run", "--netns", node, "bash"];
    Running::start(&[&own[..], script_and_arguments].concat()).finish(PATIENCE)
}

/// The packets of a report that begins `OK: `. Checks its arithmetic.
fn sent(result: &str) -> u64 {
    let numbers: Vec<u64> = result
        .split(|c: char| !c.is_ascii_digit())
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().expect("a number"))
        .collect();
    let [e, c, i, packets, size, _, pps, mbps, bps, errors] = numbers[..] else {
        panic!("not the report of a run: {result}");
    };
    let again = format!(
        "OK: {e}(c{c}+d{i}) usec, {packets} ({size}byte,{}frags)\n  {pps}pps {mbps}Mb/sec ({bps}bps) errors: {errors}",
        if result.contains("-1frags") {
            "-1"
        } else {
            "0"
        },
    );
    assert_eq!(result, again);
    assert!(e == c + i || e == c + i + 1, "{result}");
    // The microseconds were cut off, the rate is of nanoseconds.
    let at_most = packets * 1_000_000_000 / (e * 1000).max(1);
    let at_least = packets * 1_000_000_000 / (e * 1000 + 999);
    assert!((at_least..=at_most).contains(&pps), "{result}");
    assert_eq!(bps, pps * 8 * size, "{result}");
    assert_eq!(mbps, bps / 1_000_000, "{result}");
    packets
}

/// The mounts of this process that a run of a script could leave behind.
fn mounts_on_proc() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let on_proc = |line: &&str| {
        line.split(' ')
            .nth(1)
            .is_some_and(|p| p.starts_with("/proc"))
    };
    mounts.lines().filter(on_proc).map(str::to_owned).collect()
}

/// Processes in a node.
fn processes(node: &str) -> String {
    text(&system("ip", &["netns", "pids", node]).stdout)
}

/// Replaces values that differ between runs by a letter.
fn masked(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut line = line.to_owned();
        if line.trim_start().starts_with("started: ") {
            line = "     started: Tus  stopped: Tus idle: Tus".to_owned();
        }
        for (label, letter) in [
            ("src_mac: ", "MAC"),
            ("cur_udp_src: ", "P"),
            ("cur_udp_dst: ", "P"),
        ] {
            // The settings of the same name are not drawn.
            if letter == "P" && !line.trim_start().starts_with("cur_") {
                continue;
            }
            if let Some(at) = line.find(label).map(|at| at + label.len()) {
                let end = line[at..].find(' ').map_or(line.len(), |n| at + n);
                line.replace_range(at..end, letter);
            }
        }
        if let (true, Some(at)) = (line.contains(" usec, "), line.find("OK: ")) {
            let end = line.find(" usec").expect("just seen");
            line.replace_range(at + 4..end, "E(cC+dI)");
        }
        if let Some(at) = line.find(" errors: ").filter(|_| line.contains("pps ")) {
            line = format!("  Rpps RMb/sec (Rbps){}", &line[at..]);
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

/// Compares with a committed file.
fn assert_expected(name: &str, found: &str) {
    let path = format!(
        "{}/tests/labs/pktgen/expected/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(
        expected == found,
        "{path} and what was found differ:\n{}",
        difference(&expected, found)
    );
}

fn difference(expected: &str, found: &str) -> String {
    let (a, b): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let mut text = String::new();
    for i in 0..a.len().max(b.len()) {
        let (x, y) = (a.get(i), b.get(i));
        if x != y {
            text.push_str(&format!("{}: expected {x:?}, found {y:?}\n", i + 1));
        }
    }
    text
}
