//! `wirebench report`: report page from the JSON of runs, comparisons, and merged reports.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use wb_files::{
    check_standard_input, is_same_file,
    report::{Form, draw, merged, read_runs},
};
use wb_model::Verdict;

use crate::{
    deliver::{check_writable, deliver},
    say::say,
};

/// Create a self-contained page with plots and tables from the report of a run, compare runs, or merge them.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench trial --tx eth2 --rx eth3 --rate 100kpps --json >a.json; wirebench report a.json\n  \
    wirebench report before.json after.json -o compared.html\n  \
    wirebench report a.json --markdown\n  \
    wirebench report --merge host1.json host2.json -o both.json\n  \
    wirebench report a.json -o a.csv --plots pictures")]
pub(crate) struct ReportArgs {
    /// Reports as printed by `--json`; - reads standard input. The first report is the baseline for the others.
    #[arg(value_name = "RUN.json", required = true)]
    runs: Vec<PathBuf>,
    /// Output file: FILE.html, FILE.md or FILE.csv [default: name of the first run with .html, in the current
    /// folder]; with --merge also FILE.json [default: JSON on standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print Markdown on standard output instead.
    #[arg(long, conflicts_with = "output")]
    markdown: bool,
    /// Merge the reports of several runs of the same jobs, of one tester or of several, into one report. Counts add up,
    /// rates are those of the time in which all runs were active, and criteria are judged again. Percentiles need
    /// reports with --histograms. Exit codes: 1 a criterion failed, 3 invalid, 4 a run was incomplete.
    #[arg(long)]
    merge: bool,
    /// Also write each plot as a separate SVG file to this folder, which is created.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Link speed for the theoretical maximum, if a port does not report one.
    #[arg(long, value_name = "SPEED", value_parser = wb_render::linerate::parse_speed)]
    link_speed: Option<u64>,
}

/// Checks before a run that its report can be written at the end.
pub(crate) fn check(path: &Path) -> Result<()> {
    Form::of(path).context("--report")?;
    check_writable(path).context("--report")
}

pub(crate) fn run(args: &ReportArgs) -> Result<u8> {
    let output = match &args.output {
        Some(path) => Some(path.clone()),
        None if args.markdown || args.merge => None,
        None => {
            let first = args.runs[0].file_stem().unwrap_or("report".as_ref());
            Some(Path::new(first).with_extension("html"))
        }
    };
    let form = match &output {
        Some(path) if args.merge && is_json(path) => None,
        Some(path) if args.merge => Some(Form::of(path).map_err(|_| {
            anyhow::anyhow!(
                "{}: expected a name that ends in .json, .html, .md or .csv",
                path.display()
            )
        })?),
        Some(path) => Some(Form::of(path)?),
        None => args.markdown.then_some(Form::Markdown),
    };
    if let Some(output) = &output
        && args.runs.iter().any(|run| is_same_file(run, output))
    {
        bail!(
            "{}: would overwrite its input; use -o FILE",
            output.display()
        );
    }
    check_standard_input(&args.runs)?;
    if args.merge && args.runs.len() < 2 {
        bail!("--merge: expected two or more reports");
    }
    let mut runs = read_runs(&args.runs, args.link_speed)?;
    let mut code = 0;
    if args.merge {
        let merged = merged(runs)?;
        code = exit_code(merged.report.verdict);
        runs = vec![merged];
    }
    if let Some(folder) = &args.plots {
        draw(&runs, folder)?;
    }
    let text = match form {
        Some(form) => form.text(&runs),
        None => wb_render::json::report(&runs[0].report) + "\n",
    };
    match output {
        None => deliver(&text)?,
        Some(output) => {
            fs::write(&output, text)
                .with_context(|| format!("cannot write {}", output.display()))?;
            say(format_args!("written: {}", output.display()));
        }
    }
    Ok(code)
}

fn is_json(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("json"))
}

/// Exit code for the verdict of merged runs.
const fn exit_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Pass | Verdict::Completed => 0,
        Verdict::Fail => 1,
        Verdict::Invalid => 3,
        Verdict::Incomplete => 4,
    }
}
