//! Plots of a sweep: throughput and transactions over the varied parameters.

use std::path::Path;

use anyhow::{Context, Result, bail};
use wb_model::{Report, socket::SocketJobReport};
use wb_render::{
    chart::{Chart, Point, Series, XAxis, YAxis, svg},
    report::{Block, Run, Section, document, html},
};

/// Refuses names of files that are not SVG.
pub(super) fn check_name(path: &Path) -> Result<()> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => Ok(()),
        _ => bail!(
            "--plot: {}: plots are written as SVG; pass a name that ends in .svg",
            path.display()
        ),
    }
}

/// Returns one chart for streams and one for transactions, if present. The first parameter with more than one value
/// is the x axis; every combination of the others is a series.
pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let Some(socket) = &report.socket else {
        return Vec::new();
    };
    let measured: Vec<&SocketJobReport> = socket
        .jobs
        .iter()
        .filter(|j| !j.iterations.is_empty())
        .collect();
    [false, true]
        .into_iter()
        .filter_map(|transactions| {
            let jobs: Vec<&SocketJobReport> = measured
                .iter()
                .copied()
                .filter(|j| j.test.counts_transactions() == transactions)
                .collect();
            (!jobs.is_empty()).then(|| chart(&jobs, transactions))
        })
        .collect()
}

fn chart(jobs: &[&SocketJobReport], transactions: bool) -> Chart {
    let names: Vec<&str> = jobs[0]
        .point
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let value = |job: &SocketJobReport, i: usize| {
        job.point.get(i).map_or("", |(_, v)| v.as_str()).to_owned()
    };
    let varies = |i: &usize| jobs.iter().any(|j| value(j, *i) != value(jobs[0], *i));
    let axis = (0..names.len())
        .find(|i| names[*i] != "test" && varies(i))
        .or_else(|| (0..names.len()).find(varies))
        .unwrap_or(0);
    let category = |job: &SocketJobReport| match names.is_empty() {
        true => job.name.clone(),
        false => value(job, axis),
    };
    let series_of = |job: &SocketJobReport| {
        let others: Vec<String> = (0..names.len())
            .filter(|i| *i != axis && varies(i))
            .map(|i| match names[i] {
                "test" => value(job, i),
                name => format!("{name} {}", value(job, i)),
            })
            .collect();
        others.join(", ")
    };
    let mut categories: Vec<String> = Vec::new();
    let mut series: Vec<(String, Vec<Point>)> = Vec::new();
    for job in jobs {
        let category = category(job);
        let at = match categories.iter().position(|c| *c == category) {
            Some(at) => at,
            None => {
                categories.push(category);
                categories.len() - 1
            }
        };
        let y = match transactions {
            true => job.result.transactions_per_second,
            false => job.result.throughput_bps + job.result.reverse_bps.unwrap_or(0.0),
        };
        let mut point = Point::new(at as f64, y);
        if let Some(confidence) = &job.confidence {
            point = point.plus_minus(y * confidence.result / 200.0);
        }
        let name = series_of(job);
        match series.iter_mut().find(|(n, _)| *n == name) {
            Some((_, points)) => points.push(point),
            None => series.push((name, vec![point])),
        }
    }
    let label = names.get(axis).copied().unwrap_or("test");
    let (title, y) = match transactions {
        true => ("Transactions", YAxis::new("transactions", "/s")),
        false => ("Throughput", YAxis::new("throughput", "bit/s")),
    };
    let title = match names.is_empty() {
        true => title.to_owned(),
        false => format!("{title} by {label}"),
    };
    let mut chart = Chart::bars(title, XAxis::new(label, categories), y);
    for (name, points) in series {
        chart = chart.with(Series::new(name, points));
    }
    let level = jobs.iter().find_map(|j| j.confidence.map(|c| c.level));
    match level {
        Some(level) => chart.note(format!(
            "Whiskers: {level} % confidence interval of the mean."
        )),
        None => chart,
    }
}

/// Writes the first chart to the file, and further charts to numbered files next to it.
pub(super) fn draw(charts: &[Chart], path: &Path) -> Result<()> {
    for (number, chart) in charts.iter().enumerate() {
        let place = match number {
            0 => path.to_owned(),
            n => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                path.with_file_name(format!("{stem}-{}.svg", n + 1))
            }
        };
        std::fs::write(&place, svg(chart))
            .with_context(|| format!("cannot write {}", place.display()))?;
    }
    Ok(())
}

/// Returns the report page with the plots at the top.
pub(super) fn page(report: &Report, charts: &[Chart]) -> String {
    let mut page = document(&[Run {
        name: String::new(),
        report: report.clone(),
    }]);
    let mut pictures = Section::new("Sweep");
    pictures.blocks = charts.iter().map(|c| Block::Picture(svg(c))).collect();
    if !charts.is_empty() {
        page.sections.insert(page.sections.len().min(1), pictures);
    }
    html(&page)
}
