//! Processes of the self-test, which all end with it.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use wb_machine::Namespace;

use super::{Load, Stopped, look};
use crate::{Lab, Result, TestbedError, end_with_this_thread};

const LOOK: Duration = Duration::from_millis(10);
/// Maximum time for a tool to start listening.
const STARTS: Duration = Duration::from_secs(15);
/// Maximum time for a tool to write its buffers and exit.
const ENDS: Duration = Duration::from_secs(60);
/// Additional time for a sender beyond the duration of its frames.
const SENDS: Duration = Duration::from_secs(60);

/// Sleeps, unless a signal arrives.
pub(super) fn pause(time: Duration, stopped: Stopped<'_>) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        look(stopped)?;
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
        let said =
            File::create(log).map_err(TestbedError::io("write", log.display().to_string()))?;
        command
            .stdin(Stdio::null())
            .stdout(
                said.try_clone()
                    .map_err(TestbedError::io("open", "the log again"))?,
            )
            .stderr(said)
            // Ctrl-C reaches only this program, which then ends the process.
            .process_group(0);
        end_with_this_thread(&mut command, Signal::KILL);
        let start = |command: &mut Command| {
            command
                .spawn()
                .map_err(TestbedError::io("start", name.as_str()))
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

    pub(super) fn wait_until_it_says(&mut self, what: &str, stopped: Stopped<'_>) -> Result<()> {
        let begin = Instant::now();
        loop {
            look(stopped)?;
            let said = self.said();
            if said.contains(what) {
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                return Err(TestbedError::Tool(format!(
                    "{} ended ({status}): {}",
                    self.name,
                    said.trim()
                )));
            }
            if begin.elapsed() > STARTS {
                return Err(TestbedError::Tool(format!(
                    "{} was not ready after {STARTS:?}: {}",
                    self.name,
                    said.trim()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait();
        status.map_err(TestbedError::io("wait for", self.name.as_str()))
    }

    /// Returns the CPU time used so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        wb_machine::process::cpu_seconds(self.child.id())
    }

    /// Asks the process to end, waits for it, and returns its output.
    pub(super) fn stop(&mut self, stopped: Stopped<'_>) -> Result<String> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        self.wait(ENDS, stopped)?;
        Ok(self.said())
    }

    fn wait(&mut self, patience: Duration, stopped: Stopped<'_>) -> Result<bool> {
        let begin = Instant::now();
        loop {
            look(stopped)?;
            if let Some(status) = self.ended()? {
                return Ok(status.success());
            }
            if begin.elapsed() > patience {
                return Err(TestbedError::Tool(format!("{} did not end", self.name)));
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

/// Sends a load from a to b by `program`, with the priority that a dedicated machine would give.
pub(super) fn send(
    program: &Path,
    lab: &Lab,
    load: &Load,
    log: &Path,
    stopped: Stopped<'_>,
) -> Result<Sent> {
    let mut command = Command::new("nice");
    command
        .args(["-n", "-20"])
        .arg(program)
        .args(["tx", "-q", "--json", "--catch-up", "1s"])
        .args(["-i", &lab.port("a0")])
        .args(["--size", &load.size.to_string()])
        .args(["--rate", &load.rate.to_string()])
        .args(["--count", &load.frames.to_string()]);
    let mut sender = Running::start(command, log, &None)?;
    let patience = SENDS + Duration::from_secs_f64(load.frames as f64 / load.pps);
    let well = sender.wait(patience, stopped)?;
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
        _ => Err(TestbedError::Tool(format!(
            "the sender failed: {}",
            said.trim()
        ))),
    }
}
