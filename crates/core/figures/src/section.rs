//! Everything that outputs show about one job.

use std::borrow::Cow;

use wb_measure::Summary;

use crate::{Better, Def, Field, Kind, Show, Unit, Value};

/// Meaning of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// An explanation of the section's words. It is about all sections that have them.
    Term,
    /// A statement about this section.
    Plain,
    /// Something is wrong.
    Bad,
}

/// A sentence.
#[derive(Clone, Debug)]
pub struct Note {
    /// Its meaning.
    pub tone: Tone,
    /// The sentence.
    pub text: String,
}

/// A figure with its value.
#[derive(Clone, Debug)]
pub struct Figure<'a> {
    /// Its description.
    pub def: &'static Def,
    /// Word before its label: `frames`; empty for none.
    pub group: &'static str,
    /// Its label, usually that of the description.
    pub label: &'static str,
    /// When it is shown to people, usually as the description says.
    pub show: Show,
    /// Unit of its value, usually that of the description.
    pub unit: Unit,
    /// Direction in which it improves, usually as the description says.
    pub better: Better,
    /// Its value.
    pub value: Value<'a>,
    /// Remark next to the value; empty for none.
    pub note: String,
}

impl Figure<'_> {
    /// Name for people: the label with the word of its group.
    #[must_use]
    pub fn title(&self) -> String {
        match self.group {
            "" => self.label.to_owned(),
            group => format!("{group} {}", self.label),
        }
    }
}

/// Figures that must add up: `whole` = the sum of `parts`, without those of `minus`. All are names.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    /// The sum.
    pub whole: &'static str,
    /// Its parts.
    pub parts: &'static [&'static str],
    /// Parts that are subtracted.
    pub minus: &'static [&'static str],
}

impl Sum {
    /// A sum without subtracted parts.
    #[must_use]
    pub const fn new(whole: &'static str, parts: &'static [&'static str]) -> Self {
        Self {
            whole,
            parts,
            minus: &[],
        }
    }
}

/// Rows of figures.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    /// Caption.
    pub caption: &'static str,
    /// True for a table that texts show only with details.
    pub is_detail: bool,
    /// Number of rows that are counted elsewhere but not listed.
    pub omitted: u64,
    /// Number of columns at the start that name a row, 0 if rows have no names. Comparisons list the other columns of
    /// rows with names.
    pub keys: usize,
    /// Names of two columns: the tables of several jobs are shown as one matrix, with a row for each value of the first
    /// column and the value of the second in the column of each job.
    pub across: Option<(&'static str, &'static str)>,
    /// Columns.
    pub columns: Vec<Def>,
    /// Rows, with one value for each column.
    pub rows: Vec<Vec<Value<'a>>>,
}

/// Lines of a plot over time, by their names in the timeline.
#[derive(Clone, Copy, Debug)]
pub enum Series {
    /// Increases of counters per second.
    Rates(&'static [&'static str]),
    /// Increase of one counter per second, one line for each owner that begins with this word: `flow `.
    RatesOf(&'static str, &'static str),
    /// Difference between the whole of a sum and its parts, with a label: frames in flight or lost.
    Rest(&'static str, Sum),
    /// Values of gauges.
    Levels(&'static [&'static str]),
    /// Mean and percentiles of each interval, by the names of distributions: `connect_ns`.
    Times(&'static [&'static str]),
    /// Columns of a table of one job against another column: its caption, the horizontal column, the lines. Without
    /// lines: all statistics of its distribution.
    Columns(&'static str, &'static str, &'static [&'static str]),
    /// A column of a table against another column, one line for each job: its caption, the horizontal column, the line.
    Jobs(&'static str, &'static str, &'static str),
    /// Figures against the first parameter of the jobs, one line for each combination of the other parameters.
    Parameter(&'static [&'static str]),
}

impl Series {
    /// Returns true for lines over time.
    #[must_use]
    pub const fn is_over_time(&self) -> bool {
        !matches!(
            self,
            Self::Columns(..) | Self::Jobs(..) | Self::Parameter(_)
        )
    }
}

/// A plot over time.
#[derive(Clone, Copy, Debug)]
pub struct Plot {
    /// Name of its file, without the kind: `connections`.
    pub name: &'static str,
    /// Title.
    pub title: &'static str,
    /// Its lines.
    pub series: Series,
    /// Name of a figure that is drawn as a dashed line; empty for none.
    pub limit: &'static str,
}

impl Plot {
    /// A plot without a limit.
    #[must_use]
    pub const fn new(name: &'static str, title: &'static str, series: Series) -> Self {
        Self {
            name,
            title,
            series,
            limit: "",
        }
    }

    /// Draws the figure `name` as a dashed line.
    #[must_use]
    pub const fn limit(mut self, name: &'static str) -> Self {
        self.limit = name;
        self
    }
}

/// Everything that outputs show about one job.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// Kind of the job.
    pub kind: &'static str,
    /// Heading above the sections of all jobs of the kind.
    pub heading: &'static str,
    /// Name of the job.
    pub job: Cow<'a, str>,
    /// True for all jobs of the run together, next to the sections of these jobs.
    pub is_total: bool,
    /// Description of the job; empty for none.
    pub title: String,
    /// Names and values of the parameters that vary between jobs: the points of a sweep, the frame sizes of a benchmark.
    pub parameters: Cow<'a, [(String, String)]>,
    /// Figures, in order.
    pub figures: Vec<Figure<'a>>,
    /// Sums that must hold.
    pub sums: Vec<Sum>,
    /// Tables.
    pub tables: Vec<Table<'a>>,
    /// Sentences.
    pub notes: Vec<Note>,
    /// Plots over time.
    pub plots: &'static [Plot],
}

impl<'a> Section<'a> {
    /// A section without contents.
    #[must_use]
    pub fn new(
        kind: &'static str,
        heading: &'static str,
        job: impl Into<Cow<'a, str>>,
        title: String,
    ) -> Self {
        Self {
            kind,
            heading,
            job: job.into(),
            is_total: false,
            title,
            parameters: Cow::Borrowed(&[]),
            figures: Vec::new(),
            sums: Vec::new(),
            tables: Vec::new(),
            notes: Vec::new(),
            plots: &[],
        }
    }

    /// Adds all figures of a part.
    #[must_use]
    pub fn figures<S>(self, fields: &'static [Field<S>], part: &'a S) -> Self {
        self.group("", fields, part)
    }

    /// Adds all figures of a part, with a word before their labels.
    #[must_use]
    pub fn group<S>(
        mut self,
        group: &'static str,
        fields: &'static [Field<S>],
        part: &'a S,
    ) -> Self {
        self.figures.extend(fields.iter().map(|field| Figure {
            def: &field.def,
            group,
            label: field.def.label,
            show: field.def.show,
            unit: field.def.unit,
            better: field.def.better,
            value: (field.get)(part),
            note: (field.note)(part),
        }));
        self
    }

    /// Adds a table with a row for each part. A distribution becomes one column for each statistic: `p99`.
    #[must_use]
    pub fn table<S>(
        self,
        caption: &'static str,
        columns: &'static [Field<S>],
        parts: impl IntoIterator<Item = &'a S>,
    ) -> Self {
        let row = |part: &'a S| columns.iter().flat_map(|c| cells(&c.def, (c.get)(part)));
        let row = |part| row(part).collect();
        let columns = columns.iter().flat_map(|c| heads(&c.def)).collect();
        self.rows(caption, columns, parts.into_iter().map(row))
    }

    /// Adds a table with a row for each part, and the names of the parts in the first column.
    #[must_use]
    pub fn named<S>(
        self,
        caption: &'static str,
        head: &'static str,
        columns: &'static [Field<S>],
        parts: impl IntoIterator<Item = (Cow<'a, str>, &'a S)>,
    ) -> Self {
        let row = |(name, part): (_, &'a S)| {
            let name = std::iter::once(Value::Text(name));
            name.chain(columns.iter().map(|c| (c.get)(part))).collect()
        };
        let name = Def::new("name", head, Unit::None, Kind::Fact);
        let columns = std::iter::once(name).chain(columns.iter().map(|c| c.def));
        self.rows(caption, columns.collect(), parts.into_iter().map(row))
    }

    /// Adds a table with these rows, which have one value for each column.
    #[must_use]
    pub fn rows(
        mut self,
        caption: &'static str,
        columns: Vec<Def>,
        rows: impl IntoIterator<Item = Vec<Value<'a>>>,
    ) -> Self {
        self.tables.push(Table {
            caption,
            is_detail: false,
            omitted: 0,
            keys: 0,
            across: None,
            columns,
            rows: rows.into_iter().collect(),
        });
        self
    }

    /// Shows the last table only with details, if this is true.
    #[must_use]
    pub fn detail(mut self, is_detail: bool) -> Self {
        let last = self.tables.iter_mut().last();
        last.into_iter()
            .for_each(|table| table.is_detail = is_detail);
        self
    }

    /// Sets the number of rows that the last table does not list.
    #[must_use]
    pub fn omitted(mut self, rows: u64) -> Self {
        let last = self.tables.iter_mut().last();
        last.into_iter().for_each(|table| table.omitted = rows);
        self
    }

    /// Sets the number of columns that name a row of the last table.
    #[must_use]
    pub fn keys(mut self, columns: usize) -> Self {
        let last = self.tables.iter_mut().last();
        last.into_iter().for_each(|table| table.keys = columns);
        self
    }

    /// Shows the last table of several jobs as a matrix: rows by the column `x`, and values of the column `y`.
    #[must_use]
    pub fn across(mut self, x: &'static str, y: &'static str) -> Self {
        let last = self.tables.iter_mut().last();
        last.into_iter()
            .for_each(|table| table.across = Some((x, y)));
        self
    }

    /// Replaces the units of figures and columns: `unit` returns the new unit for a name and its unit.
    #[must_use]
    pub fn units(mut self, unit: impl Fn(&str, Unit) -> Unit) -> Self {
        for figure in &mut self.figures {
            figure.unit = unit(figure.def.name, figure.unit);
        }
        for def in self.tables.iter_mut().flat_map(|table| &mut table.columns) {
            def.unit = unit(def.name, def.unit);
        }
        self
    }

    /// Shows a figure whenever it is known.
    #[must_use]
    pub fn always(mut self, name: &str) -> Self {
        let named = self.figures.iter_mut().filter(|f| f.def.name == name);
        named.for_each(|figure| figure.show = Show::Always);
        self
    }

    /// Lets figures improve in neither direction.
    #[must_use]
    pub fn neutral(mut self, names: &[&str]) -> Self {
        let figures = self.figures.iter_mut();
        let named = figures.filter(|f| names.contains(&f.def.name));
        named.for_each(|figure| figure.better = Better::Neither);
        self
    }

    /// Hides all figures and rows from people.
    #[must_use]
    pub fn hide_all(mut self) -> Self {
        let figures = self.figures.iter_mut();
        figures.for_each(|figure| figure.show = Show::Never);
        self.tables.iter_mut().for_each(|table| table.rows.clear());
        self
    }

    /// Marks the section as that of all jobs of the run together.
    #[must_use]
    pub const fn total(mut self) -> Self {
        self.is_total = true;
        self
    }

    /// Adds a sum that must hold.
    #[must_use]
    pub fn sum(mut self, sum: Sum) -> Self {
        self.sums.push(sum);
        self
    }

    /// Adds a sentence, if there is one.
    #[must_use]
    pub fn note(mut self, tone: Tone, text: Option<String>) -> Self {
        self.notes.extend(text.map(|text| Note { tone, text }));
        self
    }

    /// Sets the plots over time.
    #[must_use]
    pub const fn plots(mut self, plots: &'static [Plot]) -> Self {
        self.plots = plots;
        self
    }

    /// Replaces the label of a figure.
    #[must_use]
    pub fn rename(mut self, name: &str, label: &'static str) -> Self {
        let named = self.figures.iter_mut().filter(|f| f.def.name == name);
        named.for_each(|figure| figure.label = label);
        self
    }

    /// Hides a figure from people.
    #[must_use]
    pub fn hide(mut self, name: &str) -> Self {
        let named = self.figures.iter_mut().filter(|f| f.def.name == name);
        named.for_each(|figure| figure.show = Show::Never);
        self
    }

    /// Finds a figure by its name.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<&Figure<'a>> {
        self.figures.iter().find(|f| f.def.name == name)
    }

    /// Value of a criterion's metric: the name of a number, or `p99`, `connect_p99` for a distribution. `None` if
    /// it was not measured.
    #[must_use]
    pub fn measured(&self, metric: &str) -> Option<f64> {
        let is_number = |f: &&Figure<'_>| f.def.kind != Kind::Distribution;
        let mut numbers = self.figures.iter().filter(is_number);
        let judged = |f: &&Figure<'_>| f.def.judged.contains(&metric);
        let number = numbers.clone().find(judged);
        if let Some(figure) = number.or_else(|| numbers.find(|f| f.def.name == metric)) {
            return figure.value.number();
        }
        let (of, statistic) = metric.rsplit_once('_').unwrap_or(("", metric));
        let mut distributions = self.figures.iter().filter(|f| f.def.judged.contains(&of));
        distributions.find_map(|f| match f.value {
            Value::Times(summary, _) => summary.statistic(statistic),
            _ => None,
        })
    }

    /// Returns the sums that do not hold.
    pub fn wrong(&self) -> impl Iterator<Item = &Sum> {
        self.sums.iter().filter(|sum| !self.holds(sum))
    }

    /// Returns true if the sum and its parts are known. Unknown parts that are subtracted count as 0.
    #[must_use]
    pub fn is_known(&self, sum: &Sum) -> bool {
        let names = [sum.whole].into_iter();
        let mut names = names.chain(sum.parts.iter().copied());
        names.all(|name| self.count(name).is_some())
    }

    /// Returns true if the sum holds or is not known.
    #[must_use]
    pub fn holds(&self, sum: &Sum) -> bool {
        let all = |names: &[&str]| {
            let all = names.iter().filter_map(|name| self.count(name));
            all.map(u128::from).sum::<u128>()
        };
        !self.is_known(sum) || all(&[sum.whole]) + all(sum.minus) == all(sum.parts)
    }

    /// Value of a figure that is a whole number.
    fn count(&self, name: &str) -> Option<u64> {
        match self.figure(name)?.value {
            Value::Count(n) => Some(n),
            _ => None,
        }
    }

    /// Returns the distributions with samples that are shown.
    pub fn times(&self) -> impl Iterator<Item = (&Figure<'a>, &'a Summary)> {
        self.figures.iter().filter_map(|f| match f.value {
            Value::Times(summary, _) if summary.samples > 0 && f.show != Show::Never => {
                Some((f, summary))
            }
            _ => None,
        })
    }

    /// Returns the other figures that are shown.
    pub fn shown(&self, details: bool) -> impl Iterator<Item = &Figure<'a>> {
        self.figures.iter().filter(move |f| {
            f.def.kind != Kind::Distribution
                && match f.show {
                    Show::Always => f.value != Value::Unknown,
                    Show::IfAny => f.value.is_any(),
                    Show::Details => details && f.value.is_any(),
                    Show::Never => false,
                }
        })
    }
}

/// Columns of a field: a distribution has one for each statistic but the standard deviation. Comparisons list only three
/// of them, and two lead if the distribution leads.
fn heads(def: &Def) -> Vec<Def> {
    if def.kind != Kind::Distribution {
        return vec![*def];
    }
    let none = Summary::default();
    let shown = none.statistics().filter(|(name, _)| *name != "stddev");
    let head = |(name, _)| Def {
        name,
        label: Summary::label(name),
        kind: Kind::Derived,
        better: match name {
            "p50" | "p99" | "max" => def.better,
            _ => Better::Neither,
        },
        leads: def.leads && ["p50", "p99"].contains(&name),
        ..*def
    };
    shown.map(head).collect()
}

/// Values of the columns of a field.
fn cells<'a>(def: &Def, value: Value<'a>) -> Vec<Value<'a>> {
    if def.kind != Kind::Distribution {
        return vec![value];
    }
    let summary = match value {
        Value::Times(summary, _) => *summary,
        _ => Summary::default(),
    };
    let shown = summary.statistics().filter(|(name, _)| *name != "stddev");
    shown.map(|(_, n)| n.into()).collect()
}

#[cfg(test)]
mod tests {
    use wb_measure::{Histogram, Times};

    use super::*;
    use crate::{Merge, counter, derived, fields, merge_fields, times};

    #[derive(Clone, Default)]
    struct Job {
        sent: u64,
        received: u64,
        duplicate: u64,
        lost: u64,
        rate: Option<f64>,
        latency_ns: Times,
    }

    const FRAMES: Unit = Unit::Count("frames");

    static JOB: &[Field<Job>] = fields!(Job:
        counter!(sent, "sent", FRAMES),
        counter!(received, "received", FRAMES).share_of("sent"),
        counter!(duplicate, "duplicate", FRAMES).show(Show::IfAny),
        counter!(lost, "lost", FRAMES).bad(),
        derived!("rate", "rate", Unit::PerSecond("frames"), |j| (&j.rate).into()).judged(&["pps"]),
        times!(latency_ns, "latency").judged(&[""]),
    );

    fn section(job: &Job) -> Section<'_> {
        Section::new("test", "Test", "one", String::new())
            .figures(JOB, job)
            .sum(Sum {
                minus: &["duplicate"],
                ..Sum::new("sent", &["received", "lost"])
            })
    }

    fn job() -> Job {
        let mut latency = Histogram::new();
        (1..=100).for_each(|ns| latency.record(ns));
        Job {
            sent: 10,
            received: 9,
            duplicate: 1,
            lost: 2,
            rate: Some(5.0),
            latency_ns: Times::from(&latency),
        }
    }

    #[test]
    fn criteria_find_numbers_and_statistics() {
        let job = job();
        let section = section(&job);
        for (metric, value) in [
            ("pps", Some(5.0)),
            ("lost", Some(2.0)),
            ("p99", Some(99.0)),
            ("max", Some(100.0)),
            ("connect_p99", None),
            ("p98", None),
            ("nothing", None),
        ] {
            assert_eq!(section.measured(metric), value, "{metric}");
        }
    }

    #[test]
    fn sums_hold_or_are_named() {
        let mut job = job();
        assert_eq!(section(&job).wrong().count(), 0);
        job.lost += 1;
        let section = section(&job);
        assert_eq!(
            section.wrong().map(|sum| sum.whole).collect::<Vec<_>>(),
            ["sent"]
        );
    }

    #[test]
    fn parts_add_up() {
        let (mut all, one) = (Job::default(), job());
        merge_fields(JOB, &mut all, &one);
        merge_fields(JOB, &mut all, &one);
        assert_eq!((all.sent, all.lost, all.rate), (20, 4, None));
        assert_eq!(
            (all.latency_ns.samples, all.latency_ns.p50),
            (200, Some(50))
        );
        let mut rate = Some(1.5);
        Some(2.0).merge(&None);
        rate.merge(&Some(2.0));
        rate.merge(&None);
        assert_eq!(rate, Some(3.5));
    }

    #[test]
    fn what_is_zero_is_shown_only_if_asked_for() {
        let job = Job::default();
        let labels = |details| -> Vec<_> {
            let section = section(&job);
            section.shown(details).map(Figure::title).collect()
        };
        assert_eq!(labels(true), ["sent", "received", "lost"]);
        assert_eq!(section(&job).times().count(), 0);
    }
}
