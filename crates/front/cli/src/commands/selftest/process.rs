//! Processes of the experiment, which all end with it, and the capture files that they write.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use wb_machine::Namespace;
use wb_pcapng::{CaptureDecoder, Event};
use wb_session::Signals;
use wb_testbed::{Lab, end_with_this_thread};
use wb_wire::Tag;

use super::Load;

const LOOK: Duration = Duration::from_millis(10);
/// Maximum time for a tool to start listening.
const STARTS: Duration = Duration::from_secs(15);
/// Maximum time for a tool to write its buffers and exit.
const ENDS: Duration = Duration::from_secs(60);
/// Additional time for a sender beyond the duration of its frames.
const SENDS: Duration = Duration::from_secs(60);
/// Offset of the test tag behind Ethernet, IPv4 without options, and UDP, in bytes.
const TAG_OFFSET: usize = 14 + 20 + 8;

/// Signal that ends the experiment, by number.
#[derive(Debug)]
pub(super) struct Interrupted(pub(super) i32);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "interrupted by signal {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

fn look(signals: &Signals) -> Result<()> {
    match signals.received() {
        Some(signal) => Err(Interrupted(signal).into()),
        None => Ok(()),
    }
}

/// Sleeps, unless a signal arrives.
pub(super) fn pause(time: Duration, signals: &Signals) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        look(signals)?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Child process that ends when this value is dropped or the program ends.
pub(super) struct Running {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Running {
    /// Starts a command, in the namespace `node` if given, with its output in `log`.
    ///
    /// Must be called on the main thread, because the process dies with the thread that starts it.
    pub(super) fn start(mut command: Command, log: &Path, node: &Option<String>) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        let said = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            // Ctrl-C reaches only this program, which then ends the process.
            .process_group(0);
        end_with_this_thread(&mut command, Signal::KILL);
        let start = |command: &mut Command| {
            command
                .spawn()
                .with_context(|| format!("cannot start {name}"))
        };
        let child = match node {
            None => start(&mut command)?,
            Some(node) => {
                let home = Namespace::current()?;
                Namespace::named(node)?.enter()?;
                let child = start(&mut command);
                home.enter()?;
                child?
            }
        };
        Ok(Self {
            child,
            name,
            log: log.to_owned(),
        })
    }

    /// Starts a process that only keeps a CPU busy.
    pub(super) fn hog(log: &Path) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -t 600; while :; do :; done"]);
        Self::start(command, log, &None)
    }

    fn said(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn wait_until_it_says(&mut self, what: &str, signals: &Signals) -> Result<()> {
        let begin = Instant::now();
        loop {
            look(signals)?;
            let said = self.said();
            if said.contains(what) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended ({status}): {}", self.name, said.trim());
            }
            if begin.elapsed() > STARTS {
                bail!(
                    "{} was not ready after {STARTS:?}: {}",
                    self.name,
                    said.trim()
                );
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the CPU time used so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        wb_machine::process::cpu_seconds(self.child.id())
    }

    /// Asks the process to end, waits for it, and returns its output.
    pub(super) fn stop(&mut self, signals: &Signals) -> Result<String> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        self.wait(ENDS, signals)?;
        Ok(self.said())
    }

    fn wait(&mut self, patience: Duration, signals: &Signals) -> Result<bool> {
        let begin = Instant::now();
        loop {
            look(signals)?;
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            if begin.elapsed() > patience {
                bail!("{} did not end", self.name);
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Results of a sender.
pub(super) struct Sent {
    pub(super) frames: u64,
    pub(super) pps: f64,
}

/// Sends a load from a to b, with the priority that a dedicated machine would give.
pub(super) fn send(lab: &Lab, load: &Load, log: &Path, signals: &Signals) -> Result<Sent> {
    let mut command = Command::new("nice");
    command
        .args(["-n", "-20"])
        .arg(std::env::current_exe()?)
        .args(["tx", "-q", "--json", "--catch-up", "1s"])
        .args(["-i", &lab.port("a0")])
        .args(["--size", &load.size.to_string()])
        .args(["--rate", &load.rate.to_string()])
        .args(["--count", &load.frames.to_string()]);
    let mut sender = Running::start(command, log, &None)?;
    let patience = SENDS + Duration::from_secs_f64(load.frames as f64 / load.pps);
    let well = sender.wait(patience, signals)?;
    let said = sender.said();
    // Without the permission to raise the priority, nice prints a message before the report.
    let report: Option<Value> = said.find('{').and_then(|at| {
        serde_json::Deserializer::from_str(&said[at..])
            .into_iter()
            .next()?
            .ok()
    });
    let figures = report.and_then(|report| {
        Some(Sent {
            frames: report["totals"]["offered_frames"].as_u64()?,
            pps: report["rates"]["offered_pps"].as_f64()?,
        })
    });
    match figures {
        Some(sent) if well => Ok(sent),
        _ => bail!("the sender failed: {}", said.trim()),
    }
}

/// Contents of a capture file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) frames: u64,
    /// Number of distinct test frames.
    pub(super) distinct: u64,
    pub(super) duplicates: u64,
    pub(super) foreign: u64,
    /// Reason why the file could not be read to its end.
    pub(super) damage: Option<String>,
}

/// Reads a file to its end; expects the test frames 0 to `sent` - 1.
pub(super) fn contents(path: &Path, sent: u64, signals: &Signals) -> Result<Contents> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut decoder = CaptureDecoder::new();
    let mut seen = Seen::new(sent);
    let mut contents = Contents::default();
    loop {
        look(signals)?;
        let len = file.read(decoder.space(4 << 20))?;
        if len == 0 {
            decoder.finish();
        }
        decoder.filled(len);
        loop {
            match decoder.next_item() {
                Ok(Some(item)) => {
                    if let Event::Record(record) = item.event {
                        contents.frames += 1;
                        let tag = record.captured.get(TAG_OFFSET..).and_then(Tag::read);
                        match tag.map(|t| seen.note(t.sequence)) {
                            Some(Some(true)) => contents.distinct += 1,
                            Some(Some(false)) => contents.duplicates += 1,
                            Some(None) | None => contents.foreign += 1,
                        }
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    contents.damage = Some(error.to_string());
                    return Ok(contents);
                }
            }
        }
        if len == 0 {
            return Ok(contents);
        }
    }
}

/// Set of seen sequence numbers, from 0.
struct Seen {
    words: Vec<u64>,
    numbers: u64,
}

impl Seen {
    fn new(numbers: u64) -> Self {
        let words = usize::try_from(numbers.div_ceil(64)).unwrap_or(0);
        Self {
            words: vec![0; words],
            numbers,
        }
    }

    /// Returns true if the number is new, or `None` if it is out of range.
    fn note(&mut self, number: u32) -> Option<bool> {
        let word = self.words.get_mut(number as usize / 64)?;
        if u64::from(number) >= self.numbers {
            return None;
        }
        let bit = 1 << (number % 64);
        let first = *word & bit == 0;
        *word |= bit;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use wb_pcapng::{LINK_ETHERNET, PcapWriter};

    use super::*;

    #[test]
    fn a_file_is_compared_frame_by_frame() {
        let mut file = Vec::new();
        let mut writer = PcapWriter::new(LINK_ETHERNET, &mut file);
        for sequence in [0, 1, 1, 3, 70] {
            let mut frame = [0; 60];
            let tag = Tag {
                flow: 0,
                sequence,
                time_ns: 1,
            };
            tag.write(frame[TAG_OFFSET..].first_chunk_mut().unwrap());
            writer.record(1, 60, &frame, &mut file);
        }
        writer.record(1, 60, &[0; 60], &mut file);
        let path = std::env::temp_dir().join(format!("wb-self-test-unit-{}", std::process::id()));
        fs::write(&path, &file).unwrap();
        let all = contents(&path, 70, &Signals::none()).unwrap();
        assert_eq!((all.frames, all.distinct), (6, 3));
        assert_eq!((all.duplicates, all.foreign), (1, 2));
        assert!(all.damage.is_none());
        fs::write(&path, &file[..file.len() - 1]).unwrap();
        let cut = contents(&path, 70, &Signals::none()).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(cut.frames, 5);
        assert!(cut.damage.is_some());
    }
}
