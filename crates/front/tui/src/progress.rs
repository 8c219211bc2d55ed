//! Sections of the report so far: each figure with its change in the last interval and its course over the run.

use std::collections::{BTreeMap, VecDeque};

use wb_figures::{
    Better, Figure, Kind, Section as JobSection, Series, Show, Unit, Value,
    text::{count, rate_bps, rate_pps, time_ns},
};
use wb_measure::Summary;
use wb_model::{Phase, Report, Snapshot};

use crate::{
    Row, Section, Tone,
    pages::{Chart, Write, per_second, whole},
    screen::KEPT,
};

/// Section and name of a figure.
type Key = (String, &'static str);

/// A figure at the last views.
#[derive(Debug, Default)]
struct Course {
    /// Value, or number and mean of the times so far.
    last: (f64, f64),
    /// Change per second of a counter, level of a gauge, mean of the times of each interval.
    values: VecDeque<Option<f64>>,
}

/// The jobs of a run, kind by kind.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Number of the current trial, in a benchmark.
    trial: Option<u32>,
    courses: BTreeMap<Key, Course>,
    sections: Vec<Section>,
    /// Titles and keys of the leading figures, with the format of their courses.
    leading: Vec<(String, Key, Write)>,
}

impl Progress {
    /// Adds the report so far of a snapshot.
    pub(crate) fn take(&mut self, snapshot: &Snapshot, report: &Report) {
        // The last interval is only the rest of one.
        let is_end = snapshot.phase == Phase::Done;
        let seconds = snapshot.interval_ns as f64 / 1e9;
        let trial = snapshot.bench.as_ref().map(|bench| bench.trial);
        if trial != self.trial {
            // The counters of a trial start at 0.
            self.trial = trial;
            self.courses.values_mut().for_each(|c| c.last = (0.0, 0.0));
        }
        self.leading.clear();
        let jobs = report.one_job_of_each_kind();
        let sections = jobs.sections();
        let of_jobs = sections
            .iter()
            .filter(|section| !is_shown_elsewhere(section));
        self.sections = of_jobs
            .map(|section| self.section(section, seconds, is_end))
            .collect();
    }

    /// Sections for the screen.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Courses of the leading figures.
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let charts = self.leading.iter().map(|(title, key, write)| Chart {
            title: title.clone(),
            values: self.course(key),
            write: *write,
        });
        charts.collect()
    }

    /// Means of the times of each interval.
    pub(crate) fn means(&self, section: &str, name: &'static str) -> Vec<Option<f64>> {
        self.course(&(section.to_owned(), name))
    }

    fn course(&self, key: &Key) -> Vec<Option<f64>> {
        let values = self.courses.get(key).into_iter().flat_map(|c| &c.values);
        values.copied().collect()
    }

    fn section(&mut self, section: &JobSection<'_>, seconds: f64, is_end: bool) -> Section {
        let of = match section.kind {
            "capture" if section.job != "capture" => format!("capture {}", section.job),
            kind => kind.to_owned(),
        };
        let title = match of == section.kind {
            true => section.heading.to_owned(),
            false => format!("{} {}", section.heading, section.job),
        };
        let shown = section
            .figures
            .iter()
            .filter(|figure| is_for_people(figure));
        let first = self.leading.len();
        let rows = shown.flat_map(|figure| match &figure.value {
            Value::Counts(all) => causes(figure, all),
            Value::Times(summary, _) => self
                .times(&of, figure, summary, is_end)
                .into_iter()
                .collect(),
            value => {
                let number = value.number();
                let leads = figure.def.leads || is_plotted(section, figure);
                let row = number.map(|n| self.number(&of, figure, n, leads, seconds, is_end));
                row.into_iter().collect()
            }
        });
        let rows = rows.collect();
        for (chart, ..) in &mut self.leading[first..] {
            *chart = format!("{title}: {chart}");
        }
        Section::new(&title, rows)
    }

    /// Notes the value of a figure in its course.
    fn note(&mut self, of: &str, figure: &Figure<'_>, last: (f64, f64), value: Option<f64>) -> Key {
        let key = (of.to_owned(), figure.def.name);
        let course = self.courses.entry(key.clone()).or_default();
        course.last = last;
        if course.values.len() == KEPT {
            course.values.pop_front();
        }
        course.values.push_back(value);
        key
    }

    fn last(&self, of: &str, figure: &Figure<'_>) -> (f64, f64) {
        let course = self.courses.get(&(of.to_owned(), figure.def.name));
        course.map_or((0.0, 0.0), |course| course.last)
    }

    fn number(
        &mut self,
        of: &str,
        figure: &Figure<'_>,
        now: f64,
        leads: bool,
        seconds: f64,
        is_end: bool,
    ) -> Row {
        let is_counter = figure.def.kind == Kind::Counter;
        let (last, _) = self.last(of, figure);
        let grown = (is_counter && seconds > 0.0).then(|| (now - last).max(0.0) / seconds);
        let course = match is_counter {
            true => grown,
            false => Some(now),
        };
        let text = match figure.unit {
            Unit::Count(_) | Unit::None => whole(now),
            unit => unit.text(now),
        };
        let write = per_second_of(figure.unit);
        let change = grown.filter(|rate| leads || *rate > 0.0);
        let change = change.filter(|_| !is_end).map(write);
        // Requests in flight are bad only at the end.
        let is_level = figure.def.kind == Kind::Gauge || is_time(figure.unit);
        let is_bad = figure.better == Better::Lower && !is_level;
        let tone = match is_bad && now > 0.0 {
            true => Tone::Bad,
            false => Tone::Plain,
        };
        let row = Row::toned(&figure.title(), [text].into_iter().chain(change), tone);
        if !leads && !is_counter {
            return row;
        }
        let course = course.filter(|_| !is_end);
        let key = self.note(of, figure, (now, 0.0), course);
        if !leads {
            return row;
        }
        let values = self.course(&key);
        if is_bad {
            return row.over(values);
        }
        let (title, write) = match is_counter {
            true => (format!("{} per second", figure.title()), write),
            false => (figure.title(), whole as Write),
        };
        self.leading.push((title, key, write));
        row.over(values)
    }

    /// Mean of the times of the last interval.
    fn times(
        &mut self,
        of: &str,
        figure: &Figure<'_>,
        summary: &Summary,
        is_end: bool,
    ) -> Option<Row> {
        let now = (summary.samples as f64, summary.mean?);
        let last = self.last(of, figure);
        let new = now.0 - last.0;
        let mean = (new > 0.0).then(|| ((now.0 * now.1 - last.0 * last.1) / new).max(0.0));
        let key = self.note(of, figure, now, mean.filter(|_| !is_end));
        let values = self.course(&key);
        let title = format!("mean {}", figure.title());
        let shown = mean.map_or_else(|| "-".to_owned(), time_ns);
        let row = Row::of(&title, [shown]).over(values);
        self.leading.push((title, key, time_ns));
        Some(row)
    }
}

/// Returns true for the first line of a plot of rates in the report.
fn is_plotted(section: &JobSection<'_>, figure: &Figure<'_>) -> bool {
    let firsts = section.plots.iter().filter_map(|plot| match plot.series {
        Series::Rates([first, ..]) => Some(*first),
        _ => None,
    });
    firsts.into_iter().any(|first| first == figure.def.name)
}

/// Returns true for frames and probes, which have separate sections and pages.
fn is_shown_elsewhere(section: &JobSection<'_>) -> bool {
    ["traffic", "devices", "probe"].contains(&section.kind)
}

fn is_time(unit: Unit) -> bool {
    matches!(unit, Unit::Nanoseconds | Unit::Seconds)
}

/// Returns true for a figure that is known during a run. Rates over the whole run are known at its end.
fn is_for_people(figure: &Figure<'_>) -> bool {
    let is_rate = matches!(figure.unit, Unit::PerSecond(_) | Unit::BitsPerSecond);
    let is_known = match figure.show {
        Show::Never | Show::Details => false,
        Show::IfAny => figure.value.is_any(),
        // A leading figure is shown even if it is 0, and so is a figure that should be 0.
        Show::Always if figure.def.leads || figure.better == Better::Lower => {
            figure.value != Value::Unknown
        }
        Show::Always => figure.value.is_any(),
    };
    // Frames of loads have a separate section.
    is_known && !is_rate && figure.group.is_empty()
}

/// A row for each cause that occurred.
fn causes(figure: &Figure<'_>, all: &[(&str, u64)]) -> Vec<Row> {
    let tone = match figure.better {
        Better::Lower => Tone::Bad,
        _ => Tone::Plain,
    };
    let any = all.iter().filter(|(_, n)| *n > 0);
    any.map(|(cause, n)| {
        let name = format!("{}: {}", figure.title(), cause.replace('_', " "));
        Row::toned(&name, [count(*n)], tone)
    })
    .collect()
}

/// Format of the change per second of a figure with this unit.
fn per_second_of(unit: Unit) -> Write {
    match unit {
        Unit::Count("frames") => rate_pps,
        Unit::Bytes | Unit::Count("bytes" | "octets") => |octets| rate_bps(octets * 8.0),
        _ => per_second,
    }
}

#[cfg(test)]
mod tests {
    use wb_model::{
        load::{LoadJobReport, LoadReport},
        report::Times,
    };

    use super::*;

    fn so_far(responses: u64, mean: f64) -> Report {
        let mut job = LoadJobReport {
            request_ns: Times::from(Summary {
                samples: responses,
                mean: Some(mean),
                ..Summary::default()
            }),
            ..LoadJobReport::default()
        };
        job.totals.responses = responses;
        Report {
            load: Some(LoadReport { jobs: vec![job] }),
            ..Report::default()
        }
    }

    fn row(progress: &Progress, name: &str) -> Vec<String> {
        let rows = progress.sections()[0].rows.iter();
        let mut cells = rows.filter_map(|row| match row {
            Row::Cells(cells) | Row::Over(cells, _) => Some(cells),
            _ => None,
        });
        let found = cells.find(|cells| cells[0].0 == name).expect(name);
        found[1..].iter().map(|(text, _)| text.clone()).collect()
    }

    #[test]
    fn changes_and_means_are_those_of_the_last_interval() {
        let mut progress = Progress::default();
        let after = |seconds: u64, phase| Snapshot::at(0, seconds * 1_000_000_000, phase);
        progress.take(&after(1, Phase::Running), &so_far(1000, 500.0));
        assert_eq!(row(&progress, "responses"), ["1,000", "1,000/s"]);
        // 1,000 of 500 ns and 500 of 2,000 ns.
        progress.take(&after(2, Phase::Running), &so_far(1500, 1000.0));
        assert_eq!(row(&progress, "responses"), ["1,500", "250/s"]);
        assert_eq!(row(&progress, "mean response"), ["2.00 us"]);
        assert_eq!(
            progress.means("load", "request_ns"),
            [Some(500.0), Some(2000.0)]
        );
        // The rest of an interval says nothing about the rate.
        progress.take(&after(1, Phase::Done), &so_far(1501, 1000.0));
        assert_eq!(row(&progress, "responses"), ["1,501"]);
    }

    #[test]
    fn a_trial_starts_at_zero() {
        let mut progress = Progress::default();
        for (trial, responses) in [(1, 1000), (2, 400)] {
            let mut snapshot = Snapshot::at(0, 1_000_000_000, Phase::Running);
            snapshot.bench = Some(wb_model::bench::BenchLive {
                trial,
                ..Default::default()
            });
            progress.take(&snapshot, &so_far(responses, 500.0));
        }
        assert_eq!(row(&progress, "responses"), ["400", "400/s"]);
        assert_eq!(
            progress.means("load", "request_ns"),
            [Some(500.0), Some(500.0)]
        );
    }
}
