//! `wirebench capture --self-test`: frames lost on a busy machine, by wirebench and by other tools.
//!
//! An exact number of frames crosses a lab while processes keep the CPUs busy. Each tool in turn writes the frames to
//! a file. The file is then compared with the frames sent.

mod process;
mod tool;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use wb_model::{
    schema::mismatch,
    units::{FrameSize, Rate, Rational},
};
use wb_render::{figures, table::Table};
use wb_session::Signals;
use wb_testbed::{Lab, LabKind, LabOptions};

use self::{
    process::{Contents, Interrupted, Running, contents, pause, send},
    tool::{Counts, Tool},
};
use super::lab::gain_privileges;
use crate::{
    args::count_in,
    deliver::{Fault, deliver, print},
    say::{say, say_in_passing},
};

/// Options for the experiment.
#[derive(Args, Debug)]
#[command(next_help_heading = "Self-test")]
pub(crate) struct SelfTestArgs {
    /// Tools to compare with, at their default settings.
    #[arg(
        long,
        value_name = "TOOLS",
        value_delimiter = ',',
        requires = "self_test"
    )]
    with: Vec<Tool>,
    /// Number of processes that keep the CPUs busy during the experiment.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "self_test", value_parser = count_in::<u32>(0..))]
    hogs: u32,
    /// Frame sizes with FCS.
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "64,1518",
        requires = "self_test"
    )]
    sizes: Vec<u32>,
    /// Frames per second: one rate for all sizes, or one per size [default: 200kpps for 64, 100kpps above].
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        requires = "self_test"
    )]
    rate: Vec<Rate>,
    /// Frames to send: one number for all sizes, or one per size [default: 600000 for 64, 400000 above].
    #[arg(long, value_name = "N", value_delimiter = ',', requires = "self_test", value_parser = count_in::<u64>(0..))]
    frames: Vec<u64>,
    /// Runs of each tool at each size, 1 to 100.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "self_test",
        value_parser = count_in::<u32>(1..=100))]
    runs: u32,
    /// Folder for the temporary capture files [default: temporary folder of the system].
    #[arg(long, value_name = "DIR", requires = "self_test")]
    dir: Option<PathBuf>,
}

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

/// Result of one capture.
struct Row {
    size: u32,
    tool: Tool,
    run: u32,
    attempts: u32,
    sent: u64,
    offered_pps: f64,
    /// True if the sender held the rate.
    valid: bool,
    counts: Counts,
    contents: Contents,
    /// Frames dropped by the network stack of this machine before any tap.
    before_tap: u64,
    cpu_seconds: f64,
}

impl Row {
    /// Returns the number of sent frames that are not in the file.
    const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.contents.distinct)
    }

    #[allow(clippy::cast_precision_loss)]
    fn share(&self) -> f64 {
        if self.sent == 0 {
            return 0.0;
        }
        self.lost() as f64 / self.sent as f64
    }

    /// Returns the number of sent frames that the tool reports neither as captured nor as lost.
    fn unaccounted(&self) -> i128 {
        i128::from(self.sent)
            - i128::from(self.counts.captured)
            - i128::from(self.counts.dropped)
            - i128::from(self.before_tap)
    }

    fn exact(&self) -> bool {
        self.unaccounted() == 0
            && self.counts.captured == self.contents.frames
            && self.contents.duplicates == 0
            && self.contents.foreign == 0
            && self.contents.damage.is_none()
    }

    fn verdict(&self) -> String {
        let mut text = match (self.valid, self.lost()) {
            (false, _) => "INVALID: the sender did not reach the rate".to_owned(),
            (true, 0) => "nothing lost".to_owned(),
            (true, _) => "LOST".to_owned(),
        };
        if self.before_tap > 0 {
            text += &format!(
                ", {} before the capture point",
                figures::count(self.before_tap)
            );
        }
        if self.unaccounted() != 0 {
            text += &format!(", {} not accounted for", self.unaccounted());
        } else if self.exact() {
            text += ", counts exact";
        }
        if self.counts.captured != self.contents.frames {
            text += ", the number of frames in the file differs from the reported one";
        }
        if self.contents.duplicates > 0 {
            text += &format!(", {} twice", figures::count(self.contents.duplicates));
        }
        if self.contents.foreign > 0 {
            text += &format!(", {} foreign", figures::count(self.contents.foreign));
        }
        if let Some(damage) = &self.contents.damage {
            text += &format!(", file damaged: {damage}");
        }
        text
    }

    fn passes(&self) -> bool {
        self.valid && self.lost() == 0 && self.exact()
    }

    fn document(&self) -> SelfTestRun {
        SelfTestRun {
            size: self.size,
            tool: self.tool.name(),
            run: self.run,
            attempts: self.attempts,
            sent: self.sent,
            offered_pps: self.offered_pps,
            valid: self.valid,
            captured: self.counts.captured,
            received_by_filter: self.counts.received,
            dropped: self.counts.dropped,
            before_tap: self.before_tap,
            in_file: self.contents.frames,
            missing: self.lost(),
            duplicates: self.contents.duplicates,
            foreign: self.contents.foreign,
            not_accounted: i64::try_from(self.unaccounted()).unwrap_or(i64::MIN),
            lost_share: self.share(),
            exact: self.exact(),
            cpu_seconds: self.cpu_seconds,
            verdict: self.verdict(),
        }
    }
}

impl SelfTestArgs {
    fn loads(&self) -> Result<Vec<Load>> {
        let of = |given: usize, what: &str| {
            if given > 1 && given != self.sizes.len() {
                bail!(
                    "{what}: {given} values for {} sizes; give one value, or one per size",
                    self.sizes.len()
                );
            }
            Ok(())
        };
        of(self.rate.len(), "--rate")?;
        of(self.frames.len(), "--frames")?;
        if self.sizes.is_empty() {
            bail!("--sizes: no size given");
        }
        let mut loads = Vec::new();
        for (number, &size) in self.sizes.iter().enumerate() {
            if FrameSize::new(size).is_none() || !(64..=1518).contains(&size) {
                bail!("--sizes: must be between 64 and 1518, got {size}");
            }
            let small = size == 64;
            let rate = *self
                .rate
                .get(number)
                .or(self.rate.first())
                .unwrap_or(&Rate::Pps(Rational::whole(if small {
                    200_000
                } else {
                    100_000
                })));
            let pps = rate
                .frames_per_second(Rational::whole(u64::from(size)), None)
                .context("--rate: expected frames or bits per second, such as 100kpps or 1gbps")?
                .as_f64();
            let frames = *self
                .frames
                .get(number)
                .or(self.frames.first())
                .unwrap_or(if small { &600_000 } else { &400_000 });
            if frames == 0 || frames > u64::from(u32::MAX) {
                bail!("--frames: must be between 1 and {}", u32::MAX);
            }
            loads.push(Load {
                size,
                pps,
                rate,
                frames,
            });
        }
        Ok(loads)
    }

    fn tools(&self, xdp: bool) -> Result<Vec<Tool>> {
        let mut tools = vec![Tool::Wirebench];
        if xdp {
            tools.push(Tool::WirebenchXdp);
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
            bail!("--with: not installed: {}", missing.join(", "));
        }
        Ok(tools)
    }
}

/// Temporary folder of the experiment, removed with its contents at the end.
struct Folder(PathBuf);

impl Folder {
    const PREFIX: &str = "wirebench-self-test-";

    fn fresh(parent: &Path) -> Result<Self> {
        Self::remove_left_over(parent);
        let path = parent.join(format!("{}{}", Self::PREFIX, std::process::id()));
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot create the folder {}; use --dir", path.display()))?;
        Ok(Self(path))
    }

    /// Removes the remains of killed experiments.
    fn remove_left_over(parent: &Path) {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix(Self::PREFIX))
                .and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| wb_machine::process::start_time(pid).is_none()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Checks that the largest file of the experiment fits.
    fn check_room(&self, loads: &[Load]) -> Result<()> {
        // A pcapng frame has 32 bytes of overhead; twice that for safety.
        let needed = loads
            .iter()
            .map(|l| l.frames * u64::from(l.size + 64))
            .max();
        let needed = needed.unwrap_or(0);
        let there = rustix::fs::statvfs(&self.0).map_or(u64::MAX, |s| s.f_bavail * s.f_frsize);
        if there < needed {
            bail!(
                "{}: {} MB free, but a file needs {} MB; use --dir or fewer --frames",
                self.0.display(),
                there / 1_000_000,
                needed / 1_000_000
            );
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Environment shared by all runs.
struct Bench<'a> {
    lab: &'a Lab,
    folder: &'a Path,
    hogs: u32,
    signals: &'a Signals,
}

impl Bench<'_> {
    /// Captures one load with one tool.
    fn run(&self, load: &Load, tool: Tool, run: u32) -> Result<Row> {
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

    fn attempt(&self, load: &Load, tool: Tool) -> Result<Row> {
        let file = self.folder.join(tool.file_name());
        let log = self.folder.join("log");
        let command = tool.command(self.lab, &file)?;
        let mut capture = Running::start(command, &log, &tool.node(self.lab))?;
        capture.wait_until_it_says(tool.listening(), self.signals)?;
        let backlog = backlog_drops();
        let mut hogs = Vec::new();
        for _ in 0..self.hogs {
            hogs.push(Running::hog(&self.folder.join("hog-log"))?);
        }
        let sent = send(
            self.lab,
            load,
            &self.folder.join("sender-log"),
            self.signals,
        )?;
        drop(hogs);
        pause(SETTLE, self.signals)?;
        let cpu_seconds = capture.cpu_seconds();
        let said = capture.stop(self.signals)?;
        let counts = tool.counts(&said).with_context(|| {
            format!("{} did not report its counts: {}", tool.name(), said.trim())
        })?;
        let contents = contents(&file, load.frames, self.signals)?;
        let _ = std::fs::remove_file(&file);
        Ok(Row {
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

fn percent(share: f64) -> String {
    if share == 0.0 {
        return "0".to_owned();
    }
    figures::ratio(share).trim_end_matches(" %").to_owned()
}

fn table(rows: &[Row], hogs: u32) -> Table {
    let mut table = Table::new()
        .right("size")
        .right("hogs")
        .left("tool")
        .right("run")
        .right("sent")
        .right("captured")
        .right("received by filter")
        .right("dropped")
        .right("in file")
        .right("lost %")
        .left("verdict");
    for row in rows {
        table.row([
            row.size.to_string(),
            hogs.to_string(),
            row.tool.name().to_owned(),
            row.run.to_string(),
            figures::count(row.sent),
            figures::count(row.counts.captured),
            figures::count(row.counts.received),
            figures::count(row.counts.dropped),
            figures::count(row.contents.frames),
            percent(row.share()),
            row.verdict(),
        ]);
    }
    table
}

/// Returns minimum, median and maximum loss share of the valid runs.
fn spread(rows: &[&Row]) -> Option<[f64; 3]> {
    let mut shares: Vec<f64> = rows.iter().filter(|r| r.valid).map(|r| r.share()).collect();
    shares.sort_by(f64::total_cmp);
    let (first, last) = (*shares.first()?, *shares.last()?);
    let middle = (shares[(shares.len() - 1) / 2] + shares[shares.len() / 2]) / 2.0;
    Some([first, middle, last])
}

fn groups(rows: &[Row]) -> BTreeMap<(u32, Tool), Vec<&Row>> {
    let mut groups: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        groups.entry((row.size, row.tool)).or_default().push(row);
    }
    groups
}

fn summary(rows: &[Row]) -> Table {
    let mut table = Table::new()
        .right("size")
        .left("tool")
        .right("valid runs")
        .right("lost % least")
        .right("median")
        .right("most");
    for ((size, tool), rows) in groups(rows) {
        let counted = rows.iter().filter(|r| r.valid).count();
        let mut cells = vec![
            size.to_string(),
            tool.name().to_owned(),
            format!("{counted} of {}", rows.len()),
        ];
        cells.extend(spread(&rows).map_or_else(
            || vec!["-".to_owned(); 3],
            |spread| spread.map(percent).to_vec(),
        ));
        table.row(cells);
    }
    table
}

/// JSON document of `capture --self-test --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SelfTestDocument {
    /// `wirebench.self-test/1`.
    schema: &'static str,
    /// `pass`, `fail`, `invalid`, `interrupted` or `fault`.
    verdict: &'static str,
    /// Release of the kernel.
    kernel: String,
    /// Number of CPUs that the process may use.
    cpus: usize,
    /// Number of processes that kept the CPUs busy.
    hogs: u32,
    /// Loads, one for each frame size.
    loads: Vec<SelfTestLoad>,
    /// Captures, by frame size, tool and run.
    runs: Vec<SelfTestRun>,
    /// Losses of each tool at each frame size.
    summary: Vec<SelfTestSummary>,
}

/// Frames of one size.
#[derive(Serialize, JsonSchema)]
struct SelfTestLoad {
    /// Frame size with FCS, in bytes.
    size: u32,
    /// Requested rate, in frames per second.
    pps: f64,
    /// Number of frames.
    frames: u64,
}

/// One capture by one tool.
#[derive(Serialize, JsonSchema)]
struct SelfTestRun {
    /// Frame size with FCS, in bytes.
    size: u32,
    /// Name of the tool.
    tool: &'static str,
    /// Number of the run, from 1.
    run: u32,
    /// Number of attempts; an attempt is repeated if the sender did not hold the rate.
    attempts: u32,
    /// Frames that were sent.
    sent: u64,
    /// Rate of the sender, in frames per second.
    offered_pps: f64,
    /// True if the sender held the rate.
    valid: bool,
    /// Frames that the tool reports as captured.
    captured: u64,
    /// Frames that the tool reports as received by its filter.
    received_by_filter: u64,
    /// Frames that the tool reports as dropped.
    dropped: u64,
    /// Frames that the network stack dropped before any tap.
    before_tap: u64,
    /// Frames in the file.
    in_file: u64,
    /// Sent frames that are not in the file.
    missing: u64,
    /// Frames that are in the file more than once.
    duplicates: u64,
    /// Frames in the file that the test did not send.
    foreign: u64,
    /// Sent frames that the tool reports neither as captured nor as lost; negative if it reports too many.
    not_accounted: i64,
    /// Missing frames as a share of the sent frames.
    lost_share: f64,
    /// True if the counts of the tool are exact.
    exact: bool,
    /// CPU time of the tool, in seconds.
    cpu_seconds: f64,
    /// Result in words.
    verdict: String,
}

/// Losses of one tool at one frame size.
#[derive(Serialize, JsonSchema)]
struct SelfTestSummary {
    /// Frame size with FCS, in bytes.
    size: u32,
    /// Name of the tool.
    tool: &'static str,
    /// Number of runs.
    runs: usize,
    /// Number of runs in which the sender held the rate.
    valid: usize,
    /// Smallest share of missing frames in valid runs.
    least_lost_share: Option<f64>,
    /// Median share of missing frames in valid runs.
    median_lost_share: Option<f64>,
    /// Largest share of missing frames in valid runs.
    most_lost_share: Option<f64>,
}

fn document(
    args: &SelfTestArgs,
    loads: &[Load],
    rows: &[Row],
    verdict: &'static str,
) -> SelfTestDocument {
    let system = rustix::system::uname();
    let summary = groups(rows).into_iter().map(|((size, tool), rows)| {
        let spread = spread(&rows);
        SelfTestSummary {
            size,
            tool: tool.name(),
            runs: rows.len(),
            valid: rows.iter().filter(|r| r.valid).count(),
            least_lost_share: spread.map(|s| s[0]),
            median_lost_share: spread.map(|s| s[1]),
            most_lost_share: spread.map(|s| s[2]),
        }
    });
    let loads = loads.iter().map(|l| SelfTestLoad {
        size: l.size,
        pps: l.pps,
        frames: l.frames,
    });
    SelfTestDocument {
        schema: "wirebench.self-test/1",
        verdict,
        kernel: system.release().to_string_lossy().into_owned(),
        cpus: wb_machine::cpu::allowed().map_or(0, |c| c.len()),
        hogs: args.hogs,
        loads: loads.collect(),
        runs: rows.iter().map(Row::document).collect(),
        summary: summary.collect(),
    }
}

/// Runs the experiment, with `xdp` also over AF_XDP. Returns the exit code.
pub(crate) fn run(args: &SelfTestArgs, xdp: bool, quiet: bool, json: bool) -> Result<u8> {
    let loads = args.loads()?;
    let tools = args.tools(xdp)?;
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let unprivileged = gain_privileges()?;
    let signals = Signals::install()?;
    let folder = Folder::fresh(&parent)?;
    folder.check_room(&loads)?;
    if unprivileged && !quiet {
        say("not root: running in a user namespace, without real-time priority for the sender");
    }
    let _ = wb_testbed::sweep(&wb_testbed::SweepScope {
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
        hogs: args.hogs,
        signals: &signals,
    };
    let mut rows = Vec::new();
    let mut ended = Ok(());
    'all: for load in &loads {
        // The tools alternate, so that other activity on the machine affects all of them.
        for run in 1..=args.runs {
            for &tool in &tools {
                if !quiet {
                    say_in_passing(format_args!(
                        "{} bytes at {}, {} busy processes, run {run} of {}: {}",
                        load.size,
                        load.rate,
                        args.hogs,
                        args.runs,
                        tool.name()
                    ));
                }
                match bench.run(load, tool, run) {
                    Ok(row) => {
                        if !quiet {
                            let lost = figures::count(row.lost());
                            say_in_passing(format_args!(
                                "  lost {lost} of {}",
                                figures::count(row.sent)
                            ));
                        }
                        rows.push(row);
                    }
                    Err(error) => {
                        ended = Err(error);
                        break 'all;
                    }
                }
            }
        }
    }
    rows.sort_by_key(|r| (r.size, r.tool, r.run));
    let ours = || rows.iter().filter(|r| r.tool.is_ours());
    let (verdict, code) = match &ended {
        Err(e) => match e.downcast_ref::<Interrupted>() {
            Some(Interrupted(signal)) => ("interrupted", u8::try_from(128 + signal).unwrap_or(1)),
            None => ("fault", 4),
        },
        Ok(()) if ours().all(Row::passes) => ("pass", 0),
        Ok(()) if ours().any(|r| !r.valid) => ("invalid", 1),
        Ok(()) => ("fail", 1),
    };
    if json {
        let document = document(args, &loads, &rows, verdict);
        debug_assert_eq!(mismatch(&document), None, "a document matches its schema");
        deliver(&serde_json::to_string_pretty(&document)?)?;
    } else if !rows.is_empty() {
        print(&table(&rows, args.hogs).text(0));
        print(&format!("\n{}", summary(&rows).text(0)));
    }
    lab.down()?;
    match ended {
        Err(error) if code == 4 => Err(Fault(format!("{error:#}")).into()),
        _ => Ok(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sent: u64, captured: u64, dropped: u64, in_file: u64) -> Row {
        Row {
            size: 64,
            tool: Tool::Tcpdump,
            run: 1,
            attempts: 1,
            sent,
            offered_pps: 1.0,
            valid: true,
            counts: Counts {
                captured,
                received: captured + dropped,
                dropped,
            },
            contents: Contents {
                frames: in_file,
                distinct: in_file,
                ..Contents::default()
            },
            before_tap: 0,
            cpu_seconds: 0.0,
        }
    }

    #[test]
    fn a_verdict_hides_nothing() {
        let clean = row(100, 100, 0, 100);
        assert!(clean.passes());
        assert_eq!(clean.verdict(), "nothing lost, counts exact");
        let lost = row(100, 90, 10, 90);
        assert!(!lost.passes() && lost.exact());
        assert_eq!(lost.verdict(), "LOST, counts exact");
        let silent = row(100, 90, 0, 90);
        assert_eq!(silent.verdict(), "LOST, 10 not accounted for");
        let boasts = row(100, 100, 0, 90);
        assert!(!boasts.passes());
        assert_eq!(
            boasts.verdict(),
            "LOST, the number of frames in the file differs from the reported one"
        );
        let slow = Row {
            valid: false,
            ..row(100, 100, 0, 100)
        };
        assert!(!slow.passes());
        assert!(slow.verdict().starts_with("INVALID"));
    }

    #[test]
    fn the_spread_is_of_runs_that_count() {
        let rows = [
            row(100, 90, 10, 90),
            row(100, 70, 30, 70),
            row(100, 80, 20, 80),
            Row {
                valid: false,
                ..row(100, 0, 100, 0)
            },
        ];
        let all: Vec<&Row> = rows.iter().collect();
        assert_eq!(spread(&all), Some([0.1, 0.2, 0.3]));
        assert_eq!(spread(&all[3..]), None);
        assert_eq!(percent(0.0), "0");
        assert_eq!(percent(1.0 / 600_000.0), "0.00017");
    }
}
