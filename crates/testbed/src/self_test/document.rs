//! Document of the self-test, and its text.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use wb_figures::{table::Table, text as figures};
use wb_model::schema::mismatch;

use super::{
    Load,
    row::{SelfTestRow, spread},
    tool::CaptureTool,
};

/// JSON document of `capture --self-test --json`.
#[derive(Serialize, JsonSchema)]
pub struct SelfTestDocument {
    /// `wirebench.self-test/1`.
    schema: &'static str,
    /// `pass`, `fail`, `invalid`, `interrupted` or `fault`.
    pub verdict: &'static str,
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
pub(super) struct SelfTestLoad {
    /// Frame size with FCS, in bytes.
    pub(super) size: u32,
    /// Requested rate, in frames per second.
    pub(super) pps: f64,
    /// Number of frames.
    pub(super) frames: u64,
}

/// One capture by one tool.
#[derive(Serialize, JsonSchema)]
pub(super) struct SelfTestRun {
    /// Frame size with FCS, in bytes.
    pub(super) size: u32,
    /// Name of the tool.
    pub(super) tool: &'static str,
    /// Number of the run, from 1.
    pub(super) run: u32,
    /// Number of attempts; an attempt is repeated if the sender did not hold the rate.
    pub(super) attempts: u32,
    /// Frames that were sent.
    pub(super) sent: u64,
    /// Rate of the sender, in frames per second.
    pub(super) offered_pps: f64,
    /// True if the sender held the rate.
    pub(super) valid: bool,
    /// Frames that the tool reports as captured.
    pub(super) captured: u64,
    /// Frames that the tool reports as received by its filter.
    pub(super) received_by_filter: u64,
    /// Frames that the tool reports as dropped.
    pub(super) dropped: u64,
    /// Frames that the network stack dropped before any tap.
    pub(super) before_tap: u64,
    /// Frames in the file.
    pub(super) in_file: u64,
    /// Sent frames that are not in the file.
    pub(super) missing: u64,
    /// Frames that are in the file more than once.
    pub(super) duplicates: u64,
    /// Frames in the file that the test did not send.
    pub(super) foreign: u64,
    /// Sent frames that the tool reports neither as captured nor as lost; negative if it reports too many.
    pub(super) not_accounted: i64,
    /// Missing frames as a share of the sent frames.
    pub(super) lost_share: f64,
    /// True if the counts of the tool are exact.
    pub(super) exact: bool,
    /// CPU time of the tool, in seconds.
    pub(super) cpu_seconds: f64,
    /// Result in words.
    pub(super) verdict: String,
}

/// Losses of one tool at one frame size.
#[derive(Serialize, JsonSchema)]
pub(super) struct SelfTestSummary {
    /// Frame size with FCS, in bytes.
    pub(super) size: u32,
    /// Name of the tool.
    pub(super) tool: &'static str,
    /// Number of runs.
    pub(super) runs: usize,
    /// Number of runs in which the sender held the rate.
    pub(super) valid: usize,
    /// Smallest share of missing frames in valid runs.
    pub(super) least_lost_share: Option<f64>,
    /// Median share of missing frames in valid runs.
    pub(super) median_lost_share: Option<f64>,
    /// Largest share of missing frames in valid runs.
    pub(super) most_lost_share: Option<f64>,
}

impl SelfTestDocument {
    /// Creates the document of the captures in `rows`.
    pub(super) fn new(
        hogs: u32,
        loads: &[Load],
        rows: &[SelfTestRow],
        verdict: &'static str,
    ) -> Self {
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
        let document = Self {
            schema: "wirebench.self-test/1",
            verdict,
            kernel: system.release().to_string_lossy().into_owned(),
            cpus: wb_machine::cpu::allowed().map_or(0, |c| c.len()),
            hogs,
            loads: loads.collect(),
            runs: rows.iter().map(SelfTestRow::document).collect(),
            summary: summary.collect(),
        };
        debug_assert_eq!(mismatch(&document), None, "a document matches its schema");
        document
    }

    /// Returns the document as tables, or an empty text if there is no capture.
    #[must_use]
    pub fn text(&self) -> String {
        if self.runs.is_empty() {
            return String::new();
        }
        format!("{}\n{}", self.table().text(0), self.summary_table().text(0))
    }

    fn table(&self) -> Table {
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
        for run in &self.runs {
            table.row([
                run.size.to_string(),
                self.hogs.to_string(),
                run.tool.to_owned(),
                run.run.to_string(),
                figures::count(run.sent),
                figures::count(run.captured),
                figures::count(run.received_by_filter),
                figures::count(run.dropped),
                figures::count(run.in_file),
                percent(run.lost_share),
                run.verdict.clone(),
            ]);
        }
        table
    }

    fn summary_table(&self) -> Table {
        let mut table = Table::new()
            .right("size")
            .left("tool")
            .right("valid runs")
            .right("lost % least")
            .right("median")
            .right("most");
        for tool in &self.summary {
            let cell = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), percent);
            table.row([
                tool.size.to_string(),
                tool.tool.to_owned(),
                format!("{} of {}", tool.valid, tool.runs),
                cell(tool.least_lost_share),
                cell(tool.median_lost_share),
                cell(tool.most_lost_share),
            ]);
        }
        table
    }
}

fn percent(share: f64) -> String {
    if share == 0.0 {
        return "0".to_owned();
    }
    figures::ratio(share).trim_end_matches(" %").to_owned()
}

fn groups(rows: &[SelfTestRow]) -> BTreeMap<(u32, CaptureTool), Vec<&SelfTestRow>> {
    let mut groups: BTreeMap<_, Vec<&SelfTestRow>> = BTreeMap::new();
    for row in rows {
        groups.entry((row.size, row.tool)).or_default().push(row);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_share_has_two_digits() {
        assert_eq!(percent(0.0), "0");
        assert_eq!(percent(1.0 / 600_000.0), "0.00017");
    }
}
