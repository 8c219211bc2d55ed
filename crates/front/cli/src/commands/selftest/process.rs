//! The processes of an experiment, none of which outlives it, and the file that one leaves.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde_json::Value;
use wb_machine::Namespace;
use wb_pcapng::{Decoder, Event};
use wb_session::Signals;
use wb_testbed::Lab;
use wb_wire::Tag;

use super::Load;

const LOOK: Duration = Duration::from_millis(10);
/// How long a tool may take to listen.
const STARTS: Duration = Duration::from_secs(15);
/// How long a tool may take to write what it holds and to end.
const ENDS: Duration = Duration::from_secs(60);
/// How much longer than its frames take a sender may need.
const SENDS: Duration = Duration::from_secs(60);
/// IPv4 without options, and UDP.
const TAG_OFFSET: usize = 14 + 20 + 8;

/// Someone wants the experiment to end: the number of the signal.
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

/// Sleeps, unless a signal comes.
pub(super) fn pause(time: Duration, signals: &Signals) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        look(signals)?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// A process that ends with this value, and with this program.
pub(super) struct Running {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Running {
    /// Starts a command, in the namespace `node` if one is given. What it says goes to `log`.
    ///
    /// To be called on the main thread: the process dies with the thread that starts it.
    pub(super) fn start(mut command: Command, log: &Path, node: &Option<String>) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        let said = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            // A key on the terminal is for us; we then end it.
            .process_group(0);
        end_with_this_thread(&mut command);
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

    /// Starts a process that does nothing but keep a CPU busy.
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
                    "{} does not listen after {STARTS:?}: {}",
                    self.name,
                    said.trim()
                );
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Seconds of CPU time it has taken so far.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn cpu_seconds(&self) -> f64 {
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // proc_pid_stat(5): 14 and 15, counted from the name in brackets, which is 2.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|f| f.parse::<u64>().ok())
            .sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Asks it to end, waits until it did, and tells what it said.
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
                bail!("{} does not end", self.name);
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

#[allow(unsafe_code)] // The death signal can only be set in the child.
fn end_with_this_thread(command: &mut Command) {
    let bind = || set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from);
    // SAFETY: prctl is async-signal-safe, and nothing is allocated or locked.
    unsafe { command.pre_exec(bind) };
}

/// What a sender did.
pub(super) struct Sent {
    pub(super) frames: u64,
    pub(super) pps: f64,
}

/// Sends a load from a to b with the priority of a machine of its own.
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
    // Without the right to a priority, nice says so before.
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

/// What a capture file holds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) frames: u64,
    /// Test frames, each counted once.
    pub(super) distinct: u64,
    pub(super) duplicates: u64,
    pub(super) foreign: u64,
    /// Why it could not be read to its end.
    pub(super) damage: Option<String>,
}

/// Reads a file to its end; of the test frames 0 to `sent` - 1 are expected.
pub(super) fn contents(path: &Path, sent: u64, signals: &Signals) -> Result<Contents> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut decoder = Decoder::new();
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

/// Sequence numbers from 0, each seen or not.
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

    /// Whether it is seen for the first time; none if it is not one of ours.
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
