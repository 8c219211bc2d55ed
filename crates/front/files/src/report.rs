//! Reports of runs: read from files, merged, and written as pages, Markdown, CSV and plots.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize as _;
use serde_json::Value;
use wb_model::{
    REPORT_SCHEMA, Report,
    bench::Quantity,
    merge::{Part, merge},
    text::is_unprintable,
};
use wb_render::report::{Run, csv, document, html, markdown, svg};
use wb_session::{
    Fault,
    input::{LARGEST_DATA, read_all, read_file},
};

/// Format of a report file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Page with plots.
    Html,
    /// Markdown.
    Markdown,
    /// CSV.
    Csv,
}

impl Form {
    /// Returns the format that the name of a file implies.
    ///
    /// # Errors
    /// If the name implies none.
    pub fn of(path: &Path) -> Result<Self> {
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

    /// Returns the report of these runs; the first run is the baseline for the others.
    #[must_use]
    pub fn text(self, runs: &[Run]) -> String {
        match self {
            Self::Html => html(&document(runs)),
            Self::Markdown => markdown(&document(runs)),
            Self::Csv => csv(runs),
        }
    }
}

/// Writes the report of runs to a file in the format of its name.
///
/// # Errors
/// If the file cannot be written.
pub fn write(runs: &[Run], path: &Path) -> Result<(), Fault> {
    let fault = |e: &dyn std::fmt::Display| Fault(format!("cannot write {}: {e}", path.display()));
    let form = Form::of(path).map_err(|e| fault(&e))?;
    fs::write(path, form.text(runs)).map_err(|e| fault(&e))
}

/// Reads the reports of several files, each with a name that no other has. `link_speed`, in bit/s, is that of ports
/// that report none.
///
/// # Errors
/// If a file cannot be read or is no report.
pub fn read_runs(files: &[PathBuf], link_speed: Option<u64>) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for path in files {
        let mut report = read(path)?;
        if let Some(speed) = link_speed {
            assume(&mut report, speed);
        }
        runs.push(Run {
            name: name_of(path, &runs),
            report,
        });
    }
    Ok(runs)
}

/// Merges the reports of runs of the same jobs.
///
/// # Errors
/// If a run has no valid start time, or the runs differ too much.
pub fn merged(runs: Vec<Run>) -> Result<Run> {
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
    let report = merge(parts.collect::<Result<_>>()?).map_err(anyhow::Error::msg)?;
    let name = "merged".to_owned();
    Ok(Run { name, report })
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

/// Returns the file name without its extension, numbered if the name is taken.
fn name_of(path: &Path, others: &[Run]) -> String {
    let stem = match path.as_os_str().to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .replace(is_unprintable, "?"),
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

/// Writes each plot of these runs to a separate SVG file in a folder, which is created.
///
/// # Errors
/// If the folder or a file cannot be written.
pub fn draw(runs: &[Run], folder: &Path) -> Result<()> {
    let cannot = || format!("cannot write to {}", folder.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    let mut names: Vec<String> = Vec::new();
    for plot in document(runs).plots() {
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
