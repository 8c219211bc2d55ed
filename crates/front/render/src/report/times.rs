//! Distribution of times: percentiles with their tail, and histograms.

use wb_model::{Report, Summary, timeline::Distribution};

use super::{
    document::{Section, Side, Table},
    plot::{Form, Plot, Scale, Series, X, Y},
};
use crate::figures::{UNKNOWN, count, time_ns};

/// A table of times; the names of its rows are in the order of the summaries.
pub(crate) fn table<'a>(
    caption: &str,
    rows: impl IntoIterator<Item = (String, &'a Summary)>,
) -> Table {
    let mut table = Table::new(caption, &["time", ">samples"]);
    let head = |(name, _)| (Summary::label(name).to_owned(), Side::Right);
    table.head.extend(Summary::default().statistics().map(head));
    for (name, s) in rows.into_iter().filter(|(_, s)| s.samples > 0) {
        let known = |ns: Option<f64>| ns.map_or_else(|| UNKNOWN.to_owned(), time_ns);
        let cells = s.statistics().map(|(_, value)| known(value));
        table.row([name, count(s.samples)].into_iter().chain(cells));
    }
    // Older reports have fewer percentiles.
    table.known()
}

/// Name of a distribution in a legend.
fn called(name: &str) -> &str {
    match name {
        "latency_ns" => "latency",
        "connect_ns" => "connection setup",
        "first_byte_ns" => "first byte",
        "request_ns" => "request to response",
        "request_due_ns" => "due time to response",
        "ipdv_ns" => "IPDV",
        "inter_arrival_ns" => "inter-arrival",
        "inter_departure_ns" => "inter-departure",
        other => other,
    }
}

/// Steps of the plot of percentiles for each further nine.
const STEPS: u32 = 24;

/// The distributions, or the summaries in reports without distributions.
pub(super) fn plots(section: &mut Section, report: &Report) {
    let known = report.distributions.iter().filter(|d| is_sound(d));
    let known: Vec<&Distribution> = known.collect();
    let shown = [
        "latency_ns",
        "request_ns",
        "request_due_ns",
        "first_byte_ns",
        "connect_ns",
    ];
    let of_tail: Vec<(String, &Distribution)> = known
        .iter()
        .filter(|d| shown.contains(&d.name.as_str()))
        .map(|d| (label(d), *d))
        .collect();
    section.plot(match of_tail.is_empty() {
        false => tail(&of_tail),
        true => tail_of_summary(&report.latency_ns),
    });
    for distribution in known.iter().filter(|d| d.of.is_empty()) {
        let title = match distribution.name.as_str() {
            "ipdv_ns" => "Delay variation between consecutive frames (IPDV)".to_owned(),
            name => format!("Histogram: {}", called(name)),
        };
        section.plot(histogram(distribution, &title));
    }
}

/// Returns true if the buckets are in order and not all empty.
fn is_sound(d: &Distribution) -> bool {
    d.count() > 0
        && d.buckets.iter().all(|b| b.0 <= b.1)
        && d.buckets.windows(2).all(|w| w[0].1 < w[1].0)
}

fn label(d: &Distribution) -> String {
    match d.of.as_str() {
        "" => called(&d.name).to_owned(),
        of => format!("{}, {of}", called(&d.name)),
    }
}

fn tail_axis() -> X {
    X::scaled("percentile", Scale::Tail)
}

fn tail(list: &[(String, &Distribution)]) -> Option<Plot> {
    let most = list.iter().map(|(_, d)| d.count()).max()?;
    // The last of n samples stands at n - 1/2.
    let nines = (2.0 * most as f64).log10().clamp(1.0, 9.0);
    let steps = (nines * f64::from(STEPS)).ceil() as u32;
    let shares: Vec<f64> = (0..=steps)
        .map(|step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(STEPS)))
        .collect();
    let series = list.iter().map(|(name, d)| {
        let n = d.count() as f64;
        let at = |share: &f64| {
            // Beyond the last sample no value is known.
            (n * (1.0 - share) >= 0.499).then(|| value_at(d, share * n) / 1e9)
        };
        Series::line(name, shares.iter().map(at).collect())
    });
    let y = Y::new("time", "s").log();
    let plot = Plot::new(
        "percentiles",
        "Percentiles",
        tail_axis(),
        y,
        shares.clone(),
        series.collect(),
    )?;
    Some(plot.note("x % of the samples took y or less. Steps are at most 6 % wide."))
}

/// The time that `rank` values do not exceed, interpolated within a bucket.
fn value_at(d: &Distribution, rank: f64) -> f64 {
    let mut passed = 0.0;
    for (low, high, n) in &d.buckets {
        let n = *n as f64;
        if passed + n >= rank {
            let part = if n > 0.0 {
                ((rank - passed) / n).clamp(0.0, 1.0)
            } else {
                1.0
            };
            return *low as f64 + part * (*high as f64 - *low as f64);
        }
        passed += n;
    }
    d.buckets.last().map_or(0.0, |b| b.1 as f64)
}

fn tail_of_summary(s: &Summary) -> Option<Plot> {
    let last = 1.0 - 1.0 / (s.samples.max(2) as f64);
    let ends = [(0.0, s.statistic("min")), (last, s.statistic("max"))];
    let percentiles = Summary::PERCENTILES.iter();
    let percentiles = percentiles.map(|(name, _, at)| (*at as f64 / 1e6, s.statistic(name)));
    let mut points: Vec<(f64, f64)> = ends
        .into_iter()
        .chain(percentiles)
        .filter_map(|(share, ns)| Some((share, ns?)))
        .filter(|(share, _)| s.samples > 0 && *share <= last)
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (shares, values) = points
        .into_iter()
        .map(|(share, ns)| (share, Some(ns / 1e9)))
        .unzip();
    let series = vec![Series::line("latency", values).as_form(Form::Marks)];
    let y = Y::new("time", "s").log();
    let plot = Plot::new("percentiles", "Percentiles", tail_axis(), y, shares, series)?;
    Some(plot.note("Only the percentiles in the table are known."))
}

/// More bars cannot be distinguished.
const MOST_BARS: f64 = 100.0;
/// Minimum width of a bar: the steps of a distribution, the logarithm of their 6 %.
const LEAST_BAR: f64 = 0.026;

fn histogram(d: &Distribution, title: &str) -> Option<Plot> {
    let x = X::scaled("time", Scale::Times);
    let all = d.count() as f64;
    let place = |ns: i64| x.place(ns as f64);
    let (first, last) = (d.buckets.first()?, d.buckets.last()?);
    let width = ((place(last.1) - place(first.0)) / MOST_BARS).max(LEAST_BAR);
    // The share of each bar at its beginning; zero if the next bar is not adjacent.
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut last_bar: Option<i64> = None;
    for (low, high, n) in &d.buckets {
        let middle = (place(*low) + place(*high)) / 2.0;
        let (bar, share) = ((middle / width).floor() as i64, 100.0 * *n as f64 / all);
        if last_bar == Some(bar) {
            points.last_mut()?.1 += share;
            continue;
        }
        if let Some(before) = last_bar.filter(|before| before + 1 < bar) {
            points.push(((before + 1) as f64 * width, 0.0));
        }
        points.push((bar as f64 * width, share));
        last_bar = Some(bar);
    }
    points.push(((last_bar? + 1) as f64 * width, 0.0));
    let (xs, values) = points
        .into_iter()
        .map(|(at, share)| (x.value_at(at), Some(share)))
        .unzip();
    let series = vec![Series::line(called(&d.name), values).as_form(Form::Area)];
    let name = format!(
        "histogram-{}",
        d.name.trim_end_matches("_ns").replace('_', "-")
    );
    Plot::new(&name, title, x, Y::new("share of samples", "%"), xs, series)
}
