//! Counters over time of the runs that are merged: their rates while all runs were active, and their sum.

use crate::timeline::{Column, MOST_SAMPLES, Timeline};

/// Minimum number of moments within a window for a rate: counts are not read at the moment at which frames leave.
const FEWEST_MOMENTS: usize = 10;

/// Time in which a run measured a rate, in ns since the start of the first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

impl Window {
    /// Time that all windows share; `None` if there is no such time.
    pub(super) fn shared(mut all: impl Iterator<Item = Self>) -> Option<Self> {
        let first = all.next()?;
        let shared = all.fold(first, |a, b| Self {
            from_ns: a.from_ns.max(b.from_ns),
            to_ns: a.to_ns.min(b.to_ns),
        });
        (shared.from_ns < shared.to_ns).then_some(shared)
    }

    pub(super) const fn ns(self) -> u64 {
        self.to_ns - self.from_ns
    }

    #[allow(clippy::cast_precision_loss)]
    pub(super) fn seconds(self) -> f64 {
        self.ns() as f64 / 1e9
    }
}

/// Counters over time of one job, or of all jobs of a kind, in one run.
#[derive(Clone, Debug)]
pub(super) struct Course<'a> {
    pub(super) timeline: &'a Timeline,
    /// Owner of the columns: `traffic`, `job web`.
    pub(super) of: String,
    /// Start of the run, in ns since the start of the first run.
    pub(super) start_ns: u64,
}

impl Course<'_> {
    /// Returns the growth of a counter within a window; `None` if the run did not record it, or too rarely.
    fn growth(&self, name: &str, window: Window) -> Option<f64> {
        let column = self.timeline.column(&self.of, name)?;
        let times = &self.timeline.at_ns;
        let is_within = |at: &&u64| (window.from_ns..=window.to_ns).contains(at);
        if column.values.len() != times.len()
            || times.iter().filter(is_within).count() < FEWEST_MOMENTS
        {
            return None;
        }
        let at = |ns| value_at(&self.timeline.at_ns, column, self.start_ns, ns);
        Some(at(window.to_ns)? - at(window.from_ns)?)
    }
}

impl Course<'_> {
    /// Returns the time in which a counter rose: from the first moment with a count to the last one before the final
    /// count. `None` if the run did not record it, or too rarely.
    pub(super) fn active(&self, name: &str) -> Option<Window> {
        let column = self.timeline.column(&self.of, name)?;
        let known = self.timeline.at_ns.iter().zip(&column.values);
        let known = known.filter_map(|(at, value)| Some((*at, (*value)?)));
        let last = known.clone().next_back()?.1;
        let from_ns = known.clone().find(|(_, n)| *n > 0.0)?.0;
        let to_ns = known.rev().find(|(_, n)| *n < last)?.0;
        (from_ns < to_ns).then_some(Window { from_ns, to_ns })
    }

    /// Returns the value of a level at a time.
    pub(super) fn level(&self, name: &str, ns: u64) -> Option<f64> {
        let column = self.timeline.column(&self.of, name)?;
        value_at(&self.timeline.at_ns, column, self.start_ns, ns)
    }
}

/// Returns the sum of the rates of a counter in several runs, per second; `None` if a run did not record it.
pub(super) fn rate(courses: &[Course<'_>], name: &str, window: Window) -> Option<f64> {
    let growth = courses.iter().map(|course| course.growth(name, window));
    Some(growth.sum::<Option<f64>>()? / window.seconds())
}

/// Returns the value of a column at a time: between two moments in proportion. Before the first moment, a counter rises
/// from 0 at `start_ns`; after the last one it stays. A level is unknown at both times.
#[allow(clippy::cast_precision_loss)]
fn value_at(at_ns: &[u64], column: &Column, start_ns: u64, ns: u64) -> Option<f64> {
    let most = at_ns.len().min(column.values.len());
    let known = |place: usize| Some((at_ns[place], column.values[place]?));
    let place = at_ns.partition_point(|at| *at < ns).min(most);
    let before = (0..place).rev().find_map(known);
    let before = before.or_else(|| column.counter.then_some((start_ns, 0.0)));
    match (before, (place..most).find_map(known)) {
        (_, Some((at, value))) if at == ns => Some(value),
        (Some((from, begin)), Some((at, value))) => {
            let share = ns.saturating_sub(from) as f64 / at.saturating_sub(from).max(1) as f64;
            Some(begin + (value - begin) * share.clamp(0.0, 1.0))
        }
        (Some((_, value)), None) if column.counter => Some(value),
        _ => None,
    }
}

/// Returns true if values of several runs add up: counters and numbers of things of jobs. Percentiles do not; workers,
/// ports, flows and probes belong to one run.
fn adds_up(column: &Column) -> bool {
    let of_one_run = ["worker ", "port ", "flow ", "probe "];
    let is_time = column.unit == "ns";
    !of_one_run.iter().any(|kind| column.of.starts_with(kind)) && (column.counter || !is_time)
}

/// The timelines of hosts that carried out one plan together: as the sum, and with the columns that belong to one host.
pub(super) fn laid_together(parts: &[(u64, &Timeline)]) -> Timeline {
    let mut all = sum(parts);
    for (start_ns, timeline) in parts {
        for own in timeline.columns.iter().filter(|column| !adds_up(column)) {
            let is_known = |c: &Column| c.of == own.of && c.name == own.name;
            if all.columns.iter().any(is_known) {
                continue;
            }
            let at = |ns: &u64| value_at(&timeline.at_ns, own, *start_ns, *ns);
            all.columns.push(Column {
                values: all.at_ns.iter().map(at).collect(),
                ..own.clone()
            });
        }
    }
    all
}

/// Sum of the timelines of several runs, each with its start. Their moments are those of all runs.
pub(super) fn sum(parts: &[(u64, &Timeline)]) -> Timeline {
    let mut at_ns: Vec<u64> = parts.iter().flat_map(|(_, t)| &t.at_ns).copied().collect();
    at_ns.sort_unstable();
    at_ns.dedup();
    while at_ns.len() > MOST_SAMPLES {
        let even = at_ns.len() % 2;
        let mut place = 0;
        at_ns.retain(|_| {
            place += 1;
            (place - 1) % 2 != even
        });
    }
    let mut columns: Vec<Column> = Vec::new();
    for (start_ns, timeline) in parts {
        for own in timeline.columns.iter().filter(|column| adds_up(column)) {
            let values = at_ns
                .iter()
                .map(|ns| value_at(&timeline.at_ns, own, *start_ns, *ns));
            let is = |c: &&mut Column| c.of == own.of && c.name == own.name;
            match columns.iter_mut().find(is) {
                Some(sum) => {
                    for (sum, value) in sum.values.iter_mut().zip(values) {
                        *sum = sum.zip(value).map(|(a, b)| a + b).or(*sum).or(value);
                    }
                }
                None => columns.push(Column {
                    values: values.collect(),
                    ..own.clone()
                }),
            }
        }
    }
    Timeline {
        at_ns,
        columns,
        spreads: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(at_ns: &[u64], counter: bool, values: &[Option<f64>]) -> Timeline {
        Timeline {
            at_ns: at_ns.to_vec(),
            columns: vec![Column {
                of: "traffic".to_owned(),
                name: "offered_frames".to_owned(),
                unit: "frames".to_owned(),
                counter,
                values: values.to_vec(),
            }],
            spreads: Vec::new(),
        }
    }

    #[test]
    fn values_between_moments_are_in_proportion() {
        let counter = timeline(&[100, 200, 300], true, &[Some(10.0), None, Some(50.0)]);
        let at = |of: &Timeline, ns| value_at(&of.at_ns, &of.columns[0], 50, ns);
        for (ns, value) in [
            (0, 0.0),
            (50, 0.0),
            (75, 5.0),
            (100, 10.0),
            (200, 30.0),
            (300, 50.0),
            (999, 50.0),
        ] {
            assert_eq!(at(&counter, ns), Some(value), "{ns}");
        }
        let level = timeline(&[100, 200], false, &[Some(10.0), Some(20.0)]);
        assert_eq!(
            [99, 150, 201].map(|ns| at(&level, ns)),
            [None, Some(15.0), None]
        );
        assert_eq!(at(&timeline(&[], false, &[]), 1), None);
    }

    #[test]
    fn rates_cover_the_shared_time_alone() {
        let window = |from_ns, to_ns| Window { from_ns, to_ns };
        let shared = |all: &[Window]| Window::shared(all.iter().copied());
        assert_eq!(
            shared(&[window(0, 100), window(40, 200)]),
            Some(window(40, 100))
        );
        assert_eq!(shared(&[window(0, 100), window(100, 200)]), None);
        assert_eq!(shared(&[]), None);
        let second = 1_000_000_000;
        // 1,000 a second from 0 s to 2 s, and 300 a second from 1 s to 3 s.
        let rising = |from: u64, step: f64| {
            let at_ns: Vec<u64> = (from..=from + 20).map(|n| n * second / 10).collect();
            let values: Vec<_> = (0..=20).map(|n| Some(f64::from(n) * step)).collect();
            timeline(&at_ns, true, &values)
        };
        let (one, other) = (rising(0, 100.0), rising(10, 30.0));
        let course = |timeline, start_ns| Course {
            timeline,
            of: "traffic".to_owned(),
            start_ns,
        };
        let courses = [course(&one, 0), course(&other, second)];
        let window = window(second, 2 * second);
        assert_eq!(rate(&courses, "offered_frames", window), Some(1300.0));
        assert_eq!(rate(&courses, "received_frames", window), None);
        let short = Window {
            to_ns: window.from_ns + 850_000_000,
            ..window
        };
        assert_eq!(rate(&courses, "offered_frames", short), None);
        let mut cut = one.clone();
        cut.columns[0].values.pop();
        let courses = [course(&cut, 0), course(&other, second)];
        assert_eq!(rate(&courses, "offered_frames", window), None);
    }

    #[test]
    fn sums_end_with_the_totals() {
        let one = timeline(&[10, 20], true, &[Some(1.0), Some(2.0)]);
        let other = timeline(&[15, 40], true, &[Some(10.0), Some(20.0)]);
        let all = sum(&[(0, &one), (15, &other)]);
        assert_eq!(all.at_ns, [10, 15, 20, 40]);
        let last = all.columns[0].values.last();
        assert_eq!((all.columns.len(), last), (1, Some(&Some(22.0))));
        let many: Vec<u64> = (0..5001).collect();
        let values: Vec<_> = many.iter().map(|n| Some(*n as f64)).collect();
        let long = timeline(&many, true, &values);
        let all = sum(&[(0, &long), (0, &long)]);
        assert!(all.at_ns.len() <= MOST_SAMPLES);
        assert_eq!(all.columns[0].values.last(), Some(&Some(10_000.0)));
    }
}
