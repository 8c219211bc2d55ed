//! Self-test of captures: frames lost on a busy machine, by wirebench and by other tools.
//!
//! An exact number of frames crosses a lab while processes keep the CPUs busy. Each tool in turn writes the frames to
//! a file. The file is then compared with the frames sent.

mod contents;
mod document;
mod folder;
mod row;
mod running;
mod tool;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use wb_figures::text as figures;
use wb_model::units::{Rate, Rational};

pub use self::{document::SelfTestDocument, tool::CaptureTool};

use self::{
    contents::contents,
    folder::Folder,
    row::SelfTestRow,
    running::{Running, pause, send},
};
use crate::{Lab, LabKind, LabOptions, Result, SweepScope, TestbedError, sweep};

/// Minimum share of the requested rate; a run below does not count.
const HELD: f64 = 0.98;
/// Further attempts if the sender did not hold its rate.
const REPEATS: u32 = 2;
/// Twice the longest block timeout of the tools, after which all frames of a ring have been read.
const SETTLE: Duration = Duration::from_secs(2);

/// Frame size with rate and number of frames.
struct Load {
    size: u32,
    pps: f64,
    rate: Rate,
    frames: u64,
}

/// Options of the self-test.
#[derive(Clone, Debug)]
pub struct SelfTestOptions {
    /// True to capture over AF_XDP too.
    pub xdp: bool,
    /// Tools to compare with.
    pub with: Vec<CaptureTool>,
    /// Number of processes that keep the CPUs busy.
    pub hogs: u32,
    /// Frame sizes with FCS, in bytes, 64 to 1518.
    pub sizes: Vec<u32>,
    /// One rate for all sizes, or one per size (default 200 kpps for 64 bytes, 100 kpps above).
    pub rates: Vec<Rate>,
    /// One number of frames for all sizes, or one per size (default 600000 for 64 bytes, 400000 above).
    pub frames: Vec<u64>,
    /// Runs of each tool at each size.
    pub runs: u32,
    /// Folder for the temporary files (default: temporary folder of the system).
    pub folder: Option<PathBuf>,
}

/// Returns the value for the size at `number`, which may be one for all sizes.
fn value_of<T: Copy>(given: &[T], number: usize) -> Option<T> {
    given.get(number).or(given.first()).copied()
}

impl SelfTestOptions {
    /// Returns the load of each size.
    fn loads(&self) -> Result<Vec<Load>> {
        let sizes = self.sizes.len();
        for (given, what) in [
            (self.rates.len(), "--rate"),
            (self.frames.len(), "--frames"),
        ] {
            if given > 1 && given != sizes {
                return Err(TestbedError::Input(format!(
                    "{what}: {given} values for {sizes} sizes; give one value, or one per size"
                )));
            }
        }
        if sizes == 0 {
            return Err(TestbedError::Input("--sizes: no size given".to_owned()));
        }
        let sizes = self.sizes.iter().enumerate();
        sizes.map(|(n, size)| self.load(n, *size)).collect()
    }

    fn load(&self, number: usize, size: u32) -> Result<Load> {
        if !(64..=1518).contains(&size) {
            return Err(TestbedError::Input(format!(
                "--sizes: must be between 64 and 1518, got {size}"
            )));
        }
        let (pps, frames) = match size {
            64 => (200_000, 600_000),
            _ => (100_000, 400_000),
        };
        let rate = value_of(&self.rates, number).unwrap_or(Rate::Pps(Rational::whole(pps)));
        let Some(pps) = rate.frames_per_second(Rational::whole(u64::from(size)), None) else {
            return Err(TestbedError::Input(
                "--rate: expected frames or bits per second, such as 100kpps or 1gbps".to_owned(),
            ));
        };
        let frames = value_of(&self.frames, number).unwrap_or(frames);
        if frames == 0 || frames > u64::from(u32::MAX) {
            return Err(TestbedError::Input(format!(
                "--frames: must be between 1 and {}",
                u32::MAX
            )));
        }
        Ok(Load {
            size,
            pps: pps.as_f64(),
            rate,
            frames,
        })
    }

    /// Returns the tools, wirebench first. All of them are installed.
    fn tools(&self) -> Result<Vec<CaptureTool>> {
        let mut tools = vec![CaptureTool::Wirebench];
        if self.xdp {
            tools.push(CaptureTool::WirebenchXdp);
        }
        for &tool in &self.with {
            if !tools.contains(&tool) {
                tools.push(tool);
            }
        }
        let missing: Vec<&str> = tools
            .iter()
            .filter(|t| !t.is_installed())
            .map(|t| t.name())
            .collect();
        if !missing.is_empty() {
            return Err(TestbedError::Input(format!(
                "--with: not installed: {}",
                missing.join(", ")
            )));
        }
        Ok(tools)
    }
}

/// Returns the number of the signal that ends the self-test, once one has arrived.
type Stopped<'a> = &'a dyn Fn() -> Option<i32>;

fn look(stopped: Stopped<'_>) -> Result<()> {
    match stopped() {
        Some(signal) => Err(TestbedError::Interrupted { signal }),
        None => Ok(()),
    }
}

/// Program and user of the self-test.
#[derive(Clone, Copy)]
pub struct SelfTestEnvironment<'a> {
    /// This program, which sends and captures frames.
    pub program: &'a Path,
    /// True if the process has entered a user namespace to make labs.
    pub in_user_namespace: bool,
    /// Returns the number of the signal that ends the self-test, once one has arrived.
    pub stopped: Stopped<'a>,
    /// Prints a line of progress.
    pub progress: &'a dyn Fn(&str),
}

/// Results of the self-test.
pub struct SelfTestOutcome {
    /// All captures until the end.
    pub document: SelfTestDocument,
    /// Reason for an early end.
    pub end: Result<()>,
    /// Removal of the lab.
    pub removed: Result<()>,
}

/// Self-test with valid options.
pub struct SelfTest {
    loads: Vec<Load>,
    tools: Vec<CaptureTool>,
    hogs: u32,
    runs: u32,
    folder: PathBuf,
}

impl SelfTest {
    /// Checks the options, and that all tools are installed.
    ///
    /// # Errors
    /// The first problem found.
    pub fn new(options: SelfTestOptions) -> Result<Self> {
        Ok(Self {
            loads: options.loads()?,
            tools: options.tools()?,
            hogs: options.hogs,
            runs: options.runs,
            folder: options.folder.unwrap_or_else(std::env::temp_dir),
        })
    }

    /// Runs all captures. Must be called on the main thread, because the processes of the self-test end with the thread
    /// that starts them.
    ///
    /// # Errors
    /// If the self-test cannot start: the folder or the lab cannot be made.
    pub fn run(&self, environment: &SelfTestEnvironment<'_>) -> Result<SelfTestOutcome> {
        let folder = Folder::fresh(&self.folder)?;
        folder.check_room(&self.loads)?;
        if environment.in_user_namespace {
            (environment.progress)(
                "not root: running in a user namespace, without real-time priority for the sender",
            );
        }
        let _ = sweep(&SweepScope {
            force: false,
            only: Some("selftest-".to_owned()),
        });
        let lab = Lab::up(
            LabKind::Pair,
            &LabOptions {
                name: Some(format!("selftest-{}", std::process::id())),
                ..LabOptions::default()
            },
        )?;
        let bench = Bench {
            lab: &lab,
            folder: &folder.0,
            hogs: self.hogs,
            program: environment.program,
            stopped: environment.stopped,
        };
        let mut rows = Vec::new();
        let end = self.captures(&bench, environment.progress, &mut rows);
        rows.sort_by_key(|r| (r.size, r.tool, r.run));
        let verdict = verdict(&rows, &end);
        Ok(SelfTestOutcome {
            document: SelfTestDocument::new(self.hogs, &self.loads, &rows, verdict),
            end,
            removed: lab.down(),
        })
    }

    /// Adds the result of each capture to `rows`.
    fn captures(
        &self,
        bench: &Bench<'_>,
        progress: &dyn Fn(&str),
        rows: &mut Vec<SelfTestRow>,
    ) -> Result<()> {
        for load in &self.loads {
            // The tools alternate, so that other activity on the machine affects all of them.
            for run in 1..=self.runs {
                for &tool in &self.tools {
                    progress(&format!(
                        "{} bytes at {}, {} busy processes, run {run} of {}: {}",
                        load.size,
                        load.rate,
                        self.hogs,
                        self.runs,
                        tool.name()
                    ));
                    let row = bench.run(load, tool, run)?;
                    let lost = figures::count(row.lost());
                    progress(&format!("  lost {lost} of {}", figures::count(row.sent)));
                    rows.push(row);
                }
            }
        }
        Ok(())
    }
}

fn verdict(rows: &[SelfTestRow], end: &Result<()>) -> &'static str {
    let mut ours = rows.iter().filter(|r| r.tool.is_ours());
    match end {
        Err(TestbedError::Interrupted { .. }) => "interrupted",
        Err(_) => "fault",
        Ok(()) if ours.clone().all(SelfTestRow::passes) => "pass",
        Ok(()) if ours.any(|r| !r.valid) => "invalid",
        Ok(()) => "fail",
    }
}

/// Environment shared by all runs.
struct Bench<'a> {
    lab: &'a Lab,
    folder: &'a Path,
    hogs: u32,
    program: &'a Path,
    stopped: Stopped<'a>,
}

impl Bench<'_> {
    /// Captures one load with one tool.
    fn run(&self, load: &Load, tool: CaptureTool, run: u32) -> Result<SelfTestRow> {
        let mut attempts = 1;
        loop {
            let mut row = self.attempt(load, tool)?;
            row.run = run;
            row.attempts = attempts;
            if row.valid || attempts > REPEATS {
                return Ok(row);
            }
            attempts += 1;
        }
    }

    fn attempt(&self, load: &Load, tool: CaptureTool) -> Result<SelfTestRow> {
        let file = self.folder.join(tool.file_name());
        let log = self.folder.join("log");
        let command = tool.command(self.program, self.lab, &file);
        let mut capture = Running::start(command, &log, &tool.node(self.lab))?;
        capture.wait_until_it_says(tool.listening(), self.stopped)?;
        let backlog = backlog_drops();
        let mut hogs = Vec::new();
        for _ in 0..self.hogs {
            hogs.push(Running::hog(&self.folder.join("hog-log"))?);
        }
        let sent = send(
            self.program,
            self.lab,
            load,
            &self.folder.join("sender-log"),
            self.stopped,
        )?;
        drop(hogs);
        pause(SETTLE, self.stopped)?;
        let cpu_seconds = capture.cpu_seconds();
        let said = capture.stop(self.stopped)?;
        let counts = tool.counts(&said).ok_or_else(|| {
            let name = tool.name();
            TestbedError::Tool(format!("{name} did not report its counts: {}", said.trim()))
        })?;
        let contents = contents(&file, load.frames, self.stopped)?;
        let _ = std::fs::remove_file(&file);
        Ok(SelfTestRow {
            size: load.size,
            tool,
            run: 0,
            attempts: 0,
            sent: sent.frames,
            offered_pps: sent.pps,
            valid: sent.frames == load.frames && sent.pps >= HELD * load.pps,
            counts,
            contents,
            before_tap: backlog_drops().saturating_sub(backlog),
            cpu_seconds,
        })
    }
}

/// Returns the frames that all CPUs dropped since boot because of a full backlog.
fn backlog_drops() -> u64 {
    let cpus = wb_machine::counters::softnet();
    cpus.iter().map(|cpu| u64::from(cpu.dropped)).sum()
}
