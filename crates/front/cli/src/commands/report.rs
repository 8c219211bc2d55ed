//! `wirebench report`: report page from the JSON of runs, comparisons, and merged reports.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize as _;
use serde_json::Value;
use wb_model::{
    REPORT_SCHEMA, Report, Verdict,
    bench::Quantity,
    merge::{Part, merge},
};
use wb_render::report::{Document, Run, csv, document, html, markdown, svg};
use wb_session::input::{LARGEST_DATA, read_all, read_file};

use crate::{
    deliver::{Fault, check_writable, deliver},
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

/// Format of a report file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Markdown,
    Csv,
}

impl Form {
    fn of(path: &Path) -> Result<Self> {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or("");
        match end.to_ascii_lowercase().as_str() {
            "html" | "htm" => Ok(Self::Html),
            "md" => Ok(Self::Markdown),
            "csv" => Ok(Self::Csv),
            _ => bail!(
                "{}: expected a name that ends in .html, .md or .csv",
                path.display()
            ),
        }
    }

    fn text(self, runs: &[Run]) -> String {
        match self {
            Self::Html => html(&document(runs)),
            Self::Markdown => markdown(&document(runs)),
            Self::Csv => csv(runs),
        }
    }
}

/// Returns true if the name of the file says that it is a page, Markdown or CSV.
pub(crate) fn is_page(path: &Path) -> bool {
    Form::of(path).is_ok()
}

/// Checks before a run that its report can be written at the end.
pub(crate) fn check(path: &Path) -> Result<()> {
    Form::of(path).context("--report")?;
    check_writable(path).context("--report")
}

/// Writes the report of runs that have just ended.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(runs: &[Run], path: &Path) -> Result<(), Fault> {
    let fault = |e: &dyn std::fmt::Display| Fault(format!("cannot write {}: {e}", path.display()));
    let form = Form::of(path).map_err(|e| fault(&e))?;
    fs::write(path, form.text(runs)).map_err(|e| fault(&e))
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
        && args.runs.iter().any(|run| same_file(run, output))
    {
        bail!(
            "{}: would overwrite its input; use -o FILE",
            output.display()
        );
    }
    let from_standard_input = args.runs.iter().filter(|run| run.as_os_str() == "-");
    if from_standard_input.count() > 1 {
        bail!("standard input (-) can be given only once");
    }
    if args.merge && args.runs.len() < 2 {
        bail!("--merge: expected two or more reports");
    }
    let mut runs = Vec::new();
    for path in &args.runs {
        let mut report = read(path)?;
        if let Some(speed) = args.link_speed {
            assume(&mut report, speed);
        }
        runs.push(Run {
            name: name_of(path, &runs),
            report,
        });
    }
    let mut code = 0;
    if args.merge {
        let merged = merged(runs)?;
        code = exit_code(merged.verdict);
        runs = vec![Run {
            name: "merged".to_owned(),
            report: merged,
        }];
    }
    if let Some(folder) = &args.plots {
        draw(&document(&runs), folder)?;
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

fn merged(runs: Vec<Run>) -> Result<Report> {
    let parts = runs.into_iter().map(|Run { name, report }| {
        let started: jiff::Timestamp = report.started.parse().with_context(|| {
            format!(
                "{name}: expected a time in RFC 3339 in \"started\", got {:?}",
                report.started
            )
        })?;
        let started_ns = u64::try_from(started.as_nanosecond());
        Ok(Part {
            started_ns: started_ns.with_context(|| {
                format!("{name}: \"started\" must be a time from 1970 to 2554, got {started}")
            })?,
            name,
            report,
        })
    });
    merge(parts.collect::<Result<_>>()?).map_err(anyhow::Error::msg)
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

/// Sets the speed of links that report none or only a nominal one.
#[allow(clippy::cast_precision_loss)]
fn assume(report: &mut Report, speed: u64) {
    for port in &mut report.ports {
        if port.speed_bps.is_none() || port.speed_nominal {
            (port.speed_bps, port.speed_nominal) = (Some(speed), false);
        }
    }
    let jobs = report.jobs.iter_mut().map(|job| &mut job.rates);
    for rates in jobs.chain([&mut report.rates]) {
        if let (None, Some(bps), Some(pps)) =
            (rates.line_rate_pps, rates.offered_l2_bps, rates.offered_pps)
            && pps > 0.0
        {
            // Bits of a frame on the wire, including preamble and gap.
            rates.line_rate_pps = Some(speed as f64 / (bps / pps + 160.0));
        }
    }
    let suites = report.results.iter_mut().filter(|r| r.balancer.is_none());
    for result in suites.filter(|r| r.of == Quantity::Frames) {
        let line = result
            .mean_size
            .map(|size| speed as f64 / (size * 8.0 + 160.0));
        result.theoretical_fps = result.theoretical_fps.or(line);
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    let inode = |path: &Path| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino()))
    };
    a == b || inode(a).is_some_and(|own| inode(b) == Some(own))
}

/// Returns the file name without its extension, numbered if the name is taken.
fn name_of(path: &Path, others: &[Run]) -> String {
    let stem = match path.as_os_str().to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .replace(char::is_control, "?"),
    };
    let taken = |name: &str| others.iter().any(|run| run.name == name);
    let mut names = std::iter::once(stem.clone()).chain((2..).map(|n| format!("{stem} {n}")));
    names.find(|name| !taken(name)).unwrap_or(stem)
}

/// Reads the report of a file. After lines of `--live-json`, the report is the last document.
///
/// # Errors
/// If the file cannot be read or is no report.
pub(crate) fn read(path: &Path) -> Result<Report> {
    let place = match path.as_os_str().to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    };
    let bytes = match path.as_os_str().to_str() {
        Some("-") => read_all(std::io::stdin(), LARGEST_DATA),
        _ => read_file(path, LARGEST_DATA),
    }
    .with_context(|| format!("cannot read {place}"))?;
    let mut last: Option<Value> = None;
    for document in serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>() {
        last = Some(document.map_err(|e| {
            anyhow::anyhow!("{place}: not a JSON report (create one with --json): {e}")
        })?);
    }
    let Some(document) = last else {
        bail!("{place}: empty; create a report with --json");
    };
    match document.get("schema").and_then(Value::as_str) {
        Some(REPORT_SCHEMA) => {}
        Some(other) => bail!("{place}: expected schema {REPORT_SCHEMA:?}, got {other:?}"),
        None => bail!("{place}: not a report (schema {REPORT_SCHEMA:?}); create one with --json"),
    }
    Report::deserialize(document)
        .map_err(|e| anyhow::anyhow!("{place}: cannot read the report with this version: {e}"))
}

/// Writes each plot to a separate file.
fn draw(document: &Document, folder: &Path) -> Result<()> {
    let cannot = || format!("cannot write to {}", folder.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    let mut names: Vec<String> = Vec::new();
    for plot in document.plots() {
        // Names derive from those of jobs and probes, which may contain any character.
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        };
        let stem: String = plot.name.chars().map(plain).take(80).collect();
        let known = names.iter().filter(|name| **name == stem).count();
        let file = match known {
            0 => format!("{stem}.svg"),
            n => format!("{stem}_{}.svg", n + 1),
        };
        names.push(stem);
        fs::write(folder.join(file), svg(plot)).with_context(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wb_model::bench::{SuiteResult, SuiteTest};

    use super::*;

    #[test]
    fn a_link_speed_is_the_line_rate_of_results_without_one() {
        let result = |theoretical_fps| SuiteResult {
            mean_size: Some(64.0),
            theoretical_fps,
            ..SuiteResult::new(SuiteTest::Throughput, Quantity::Frames)
        };
        let mut report = Report {
            results: vec![result(None), result(Some(5.0))],
            ..Report::default()
        };
        assume(&mut report, 1_000_000_000);
        let line: Vec<u64> = report
            .results
            .iter()
            .filter_map(|r| r.theoretical_fps)
            .map(|fps| fps as u64)
            .collect();
        assert_eq!(line, [1_488_095, 5]);
    }
}
