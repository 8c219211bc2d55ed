//! Plots of the counts in the course of a run: rates are the differences of counts.

use wb_model::{
    Report,
    timeline::{Column, PERCENTILES, Timeline},
};

use super::{
    document::Section,
    plot::{Plot, Series, X, Y},
};

/// More lines cannot be distinguished.
const MOST_LINES: usize = 12;

/// A timeline with lists of the required length, whatever wrote it.
pub(crate) struct Course<'a> {
    timeline: &'a Timeline,
    seconds: Vec<f64>,
    /// Minimum interval of a rate: the last moment may be just behind the previous one, and a single frame would be a
    /// rate.
    least: f64,
}

impl<'a> Course<'a> {
    /// Course of a report; none if nothing was recorded or its times do not ascend.
    pub(super) fn of(report: &'a Report) -> Option<Self> {
        let timeline = &report.timeline;
        let ascends = timeline.at_ns.windows(2).all(|w| w[0] < w[1]);
        let seconds: Vec<f64> = timeline.at_ns.iter().map(|ns| *ns as f64 / 1e9).collect();
        let mut spacings: Vec<f64> = seconds.windows(2).map(|w| w[1] - w[0]).collect();
        spacings.sort_by(f64::total_cmp);
        let least = 0.3 * spacings.get(spacings.len() / 2)?;
        ascends.then_some(Self {
            timeline,
            seconds,
            least,
        })
    }

    pub(crate) fn column(&self, of: &str, name: &str) -> Option<&'a Column> {
        self.timeline.column(of, name)
    }

    /// Owners of the columns that begin with this word: `job `, `port `.
    pub(crate) fn owners(&self, kind: &str) -> Vec<&'a str> {
        let mut owners: Vec<&str> = Vec::new();
        for column in &self.timeline.columns {
            if column.of.starts_with(kind) && !owners.contains(&column.of.as_str()) {
                owners.push(&column.of);
            }
        }
        owners
    }

    /// Rise of a count in each second, times `factor`.
    fn rate(&self, column: &Column, factor: f64) -> Vec<Option<f64>> {
        let mut rates = vec![None; self.seconds.len()];
        let mut last: Option<(usize, f64, f64)> = None;
        for (i, (at, value)) in self.seconds.iter().zip(&column.values).enumerate() {
            let Some(value) = value else { continue };
            if last.is_some_and(|(_, before, _)| at - before < self.least) {
                continue;
            }
            let Some((first, before, less)) = last.replace((i, *at, *value)) else {
                continue;
            };
            let (time, rise) = (at - before, value - less);
            // A counter that fell was reset.
            if time > 0.0 && rise >= 0.0 {
                // A moment just behind the previous one lies in this interval, so there is no gap.
                for j in (first + 1..=i).filter(|j| column.values[*j].is_some()) {
                    rates[j] = Some(factor * rise / time);
                }
            }
        }
        rates
    }

    pub(crate) fn rate_of(
        &self,
        of: &str,
        name: &str,
        called: &str,
        factor: f64,
    ) -> Option<Series> {
        let column = self.column(of, name)?;
        Some(Series::line(called, self.rate(column, factor)))
    }

    /// Mean of the values between two moments: the rise of their sum divided by the rise of their number.
    pub(crate) fn mean_of(&self, of: &str, stem: &str, called: &str) -> Option<Series> {
        let sum = self.column(of, &format!("{stem}_sum_ns"))?;
        let number = self.column(of, &format!("{stem}_samples"))?;
        let mut last: Option<(f64, f64)> = None;
        let mean = |(sum, number): (&Option<f64>, &Option<f64>)| {
            let now = ((*sum)?, (*number)?);
            let before = last.replace(now)?;
            let (sum, number) = (now.0 - before.0, now.1 - before.1);
            (number > 0.0 && sum >= 0.0).then(|| sum / number / 1e9)
        };
        let values = sum.values.iter().zip(&number.values).map(mean).collect();
        Some(Series::line(called, values))
    }

    /// Percentiles of the values between two moments.
    pub(crate) fn percentiles_of(
        &self,
        of: &str,
        stem: &str,
        called: &str,
    ) -> impl Iterator<Item = Series> {
        PERCENTILES.iter().filter_map(move |(percent, ends)| {
            let column = self.column(of, &format!("{stem}_{ends}"))?;
            let values = column.values.iter().map(|ns| ns.map(|ns| ns / 1e9));
            Some(Series::line(
                &format!("{called}p{percent}"),
                values.collect(),
            ))
        })
    }

    pub(crate) fn level_of(&self, of: &str, name: &str, called: &str) -> Option<Series> {
        let column = self.column(of, name)?;
        Some(Series::line(called, column.values.clone()))
    }

    /// A line at the same value at each moment.
    pub(crate) fn constant(&self, called: &str, value: f64) -> Series {
        Series::line(called, vec![Some(value); self.seconds.len()])
    }

    pub(crate) fn plot(
        &self,
        name: &str,
        title: &str,
        y: Y,
        series: impl IntoIterator<Item = Series>,
    ) -> Option<Plot> {
        let mut series: Vec<Series> = series.into_iter().collect();
        let more = series.len().saturating_sub(MOST_LINES);
        series.truncate(MOST_LINES);
        let plot = Plot::new(name, title, X::time(), y, self.seconds.clone(), series)?;
        Some(match more {
            0 => plot,
            n => plot.note(format!("Not shown: {n} more.")),
        })
    }
}

/// Name in a legend: without the kind, which is in the title.
fn short(of: &str) -> &str {
    of.split_once(' ').map_or(of, |(_, name)| name)
}

/// Returns true if the column has different values.
pub(crate) fn rises(column: Option<&Column>) -> bool {
    let known = column.map(|c| c.values.iter().flatten());
    known.is_some_and(|mut known| {
        let first = known.next();
        first.is_some_and(|first| known.any(|v| v != first))
    })
}

/// Plots of interfaces, probes and workers.
pub(super) fn beside(section: &mut Section, course: &Course<'_>) {
    interfaces(section, course);
    for of in course.owners("probe ") {
        probe(section, course, of);
    }
    let busy = course.owners("worker ");
    let busy: Vec<Series> = busy
        .iter()
        // Nanoseconds per second, as a percentage.
        .filter_map(|of| course.rate_of(of, "busy_ns", short(of), 1e-7))
        .collect();
    section.plot(course.plot(
        "workers",
        "Busy share of each worker",
        Y::new("busy", "%"),
        busy,
    ));
}

/// Frames and bits of all interfaces, and their other counters.
fn interfaces(section: &mut Section, course: &Course<'_>) {
    const FRAMES: [&str; 2] = ["rx_packets", "tx_packets"];
    const BYTES: [&str; 2] = ["rx_bytes", "tx_bytes"];
    let ports = course.owners("port ");
    let mut add = |name: &str, title: &str, unit: &str, counters: &[&str], factor: f64| {
        let each = ports
            .iter()
            .flat_map(|of| counters.iter().map(move |name| (*of, *name)));
        let rises = each.filter(|(of, name)| rises(course.column(of, name)));
        let series: Vec<Series> = rises
            .filter_map(|(of, name)| {
                let called = format!("{}: {name}", short(of));
                course.rate_of(of, name, &called, factor)
            })
            .collect();
        let plot = course.plot(name, title, Y::new("rate", unit), series);
        section.plot(plot.map(Plot::joined));
    };
    let mut trouble: Vec<&str> = Vec::new();
    for column in &course.timeline.columns {
        let name = column.name.as_str();
        let is_known = FRAMES.contains(&name) || BYTES.contains(&name) || trouble.contains(&name);
        if column.of.starts_with("port ") && !is_known {
            trouble.push(name);
        }
    }
    let title = "Packets counted by the interfaces";
    add("interfaces", title, "pps", &FRAMES, 1.0);
    let title = "Throughput of the interfaces, without FCS";
    add("interface-bits", title, "bit/s", &BYTES, 8.0);
    let title = "Drops and errors of the interfaces";
    add("interface-trouble", title, "pps", &trouble, 1.0);
}

/// Counters and values of one probe, the steepest first.
fn probe(section: &mut Section, course: &Course<'_>, of: &str) {
    let columns = course.timeline.columns.iter();
    let columns = columns.filter(|c| c.of == of && rises(Some(c)));
    let (counts, levels): (Vec<&Column>, Vec<&Column>) = columns.partition(|c| c.counter);
    let steepest = |mut list: Vec<&Column>| -> Vec<String> {
        let end = |c: &Column| c.values.iter().flatten().fold(0.0, |a: f64, b| a.max(*b));
        list.sort_by(|a, b| end(b).total_cmp(&end(a)));
        list.into_iter().map(|c| c.name.clone()).collect()
    };
    let rates: Vec<Series> = steepest(counts)
        .iter()
        .filter_map(|name| course.rate_of(of, name, name, 1.0))
        .collect();
    let levels: Vec<Series> = steepest(levels)
        .iter()
        .filter_map(|name| course.level_of(of, name, name))
        .collect();
    let probe = short(of);
    section.plot(course.plot(
        &format!("probe-{probe}"),
        &format!("Probe {probe}: counters"),
        Y::new("rate", "/s"),
        rates,
    ));
    section.plot(course.plot(
        &format!("probe-{probe}-levels"),
        &format!("Probe {probe}: values"),
        Y::new("value", ""),
        levels,
    ));
}
