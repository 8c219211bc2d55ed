//! `wirebench ls`: the runs on this host.

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use wb_machine::runs::{self, FoundRun};
use wb_model::{text::is_unprintable, units::Span};
use wb_render::table::Table;

use crate::deliver::{print, width};

/// List the runs on this host: their ports, since when they run, and their processes.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  wirebench ls\n  wirebench ls --json | jq -r '.runs[].id'\n\n\
    Root sees the runs of all users. A run of pktgen is its script or its folder of control files."
)]
pub(crate) struct LsArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// JSON document of `ls --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunsDocument {
    /// `wirebench.runs/1`.
    schema: &'static str,
    /// Runs, the oldest first.
    runs: Vec<RunLine>,
}

/// A run on this host.
#[derive(Serialize, JsonSchema)]
struct RunLine {
    /// Name, for `wirebench stop`.
    id: String,
    /// Kind, such as `trial`.
    kind: String,
    /// Ports, URLs or servers.
    target: String,
    /// Start, RFC 3339.
    started: String,
    /// Time since the start, in ns.
    elapsed_ns: u64,
    /// Number of the user.
    user: u32,
    /// Number of the process.
    process: u32,
    /// Command line.
    command: String,
}

impl RunLine {
    fn of(run: FoundRun, now_ns: u64) -> Self {
        let record = run.record;
        let started = Timestamp::from_nanosecond(i128::from(record.started_wall_ns));
        Self {
            id: record.id,
            kind: record.kind,
            target: record.target,
            started: started.map_or_else(|_| String::new(), |time| time.to_string()),
            elapsed_ns: now_ns.saturating_sub(record.started_wall_ns),
            user: run.user,
            process: record.process,
            command: record.command,
        }
    }
}

pub(crate) fn run(args: &LsArgs) -> Result<u8> {
    let now_ns = wb_machine::clock::wall_ns();
    let lines = runs::running().into_iter();
    let runs = lines.map(|run| RunLine::of(run, now_ns)).collect();
    let document = RunsDocument {
        schema: "wirebench.runs/1",
        runs,
    };
    print(&match args.json {
        true => serde_json::to_string_pretty(&document)?,
        false => text(&document.runs, width()),
    });
    Ok(0)
}

/// The runs as a table with lines of at most `width` columns.
fn text(runs: &[RunLine], width: usize) -> String {
    if runs.is_empty() {
        return "no runs".to_owned();
    }
    let mut table = Table::new()
        .left("run")
        .left("kind")
        .right("for")
        .right("process")
        .left("ports");
    for run in runs {
        let seconds = Span::from_secs(run.elapsed_ns / 1_000_000_000);
        table.row([
            run.id.clone(),
            run.kind.clone(),
            seconds.to_string(),
            run.process.to_string(),
            run.target.replace(is_unprintable, " "),
        ]);
    }
    let cut = |line: &str| line.chars().take(width).collect::<String>();
    let lines: Vec<String> = table.text(0).lines().map(cut).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_shown_in_lines_that_fit() {
        assert_eq!(text(&[], 80), "no runs");
        let run = RunLine {
            id: "20261129T164300-7f3a".to_owned(),
            kind: "trial".to_owned(),
            target: "wb-pair-a/a0 and wb-pair-b/b0".to_owned(),
            started: "2026-11-29T16:43:00Z".to_owned(),
            elapsed_ns: 12_900_000_000,
            user: 0,
            process: 4711,
            command: "wirebench trial --tx wb-pair-a/a0 --rx wb-pair-b/b0 --rate 10kpps".to_owned(),
        };
        insta::assert_snapshot!(text(&[run], 100), @r"
    run                   kind   for  process  ports
    20261129T164300-7f3a  trial  12s     4711  wb-pair-a/a0 and wb-pair-b/b0
    ");
    }
}
