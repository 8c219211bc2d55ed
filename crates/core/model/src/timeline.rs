//! Time series and distributions of a run: the data of a report's plots.
//!
//! A timeline holds cumulative counters at a number of moments. Rates are differences of counters, so dropping every
//! other moment of a long run loses detail but no frames, and the last moment has the totals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_measure::{NamedHistogram, Outline, outline};

/// Maximum number of moments. At this number every other moment is dropped, and the spacing of later moments doubles. A
/// long run therefore keeps between half of this number and this number.
pub const MOST_SAMPLES: usize = 2_000;

/// Figures at a number of moments of a run, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Moments, in ns since the start of the run.
    pub at_ns: Vec<u64>,
    /// Figures at these moments.
    pub columns: Vec<Column>,
    /// Distributions of times since the start, while the run continues. The report has more distributions.
    #[serde(skip)]
    pub spreads: Vec<Spread>,
}

/// Distribution of times since the start. The timeline has its percentiles for each interval as columns: `NAME_p50_ns`
/// and so on.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Owner, as in [`Column::of`].
    pub of: String,
    /// Name of the figure: `latency`.
    pub name: String,
    /// Distribution since the start, in ns.
    pub so_far: Outline,
}

/// Percentiles of each interval in a timeline, with the suffixes of their columns' names.
pub const PERCENTILES: [(f64, &str); 3] = [(50.0, "p50_ns"), (99.0, "p99_ns"), (99.9, "p999_ns")];

/// One figure at all moments of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// Owner: all jobs of a kind (`traffic`, `http`), `job NAME`, `capture NAME`, `worker PORT QUEUE`, `flow NUMBER`
    /// (the first eight received of each job, if it has several), `port NAME` (counters of the interface since its
    /// creation), `probe NAME`.
    pub of: String,
    /// Name of the figure in the report or the probe: `received_frames`.
    pub name: String,
    /// Unit: `frames`, `octets`, `ns`; empty if unknown.
    pub unit: String,
    /// True for a counter, which only rises; false for a value at the moment.
    pub counter: bool,
    /// One value for each moment; null if unknown.
    pub values: Vec<Option<f64>>,
}

impl Timeline {
    /// Repeats the columns of an owner under another owner.
    pub(crate) fn copy_owner(&mut self, from: &str, to: &str) {
        let own = self.columns.iter().filter(|column| column.of == from);
        let copies: Vec<Column> = own
            .map(|column| Column {
                of: to.to_owned(),
                ..column.clone()
            })
            .collect();
        self.columns.extend(copies);
    }

    /// Returns true if the timeline has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at_ns.is_empty() || self.columns.is_empty()
    }

    /// Returns a column, if it was recorded.
    #[must_use]
    pub fn column(&self, of: &str, name: &str) -> Option<&Column> {
        let mut columns = self.columns.iter();
        columns.find(|c| c.of == of && c.name == name)
    }

    /// Returns the last moment alone, with the last known values of interfaces.
    #[must_use]
    pub fn last(&self) -> Self {
        let rows = self.at_ns.len();
        let columns = self.columns.iter().map(|c| Column {
            of: c.of.clone(),
            name: c.name.clone(),
            unit: c.unit.clone(),
            counter: c.counter,
            values: vec![match c.of.starts_with("port ") {
                // Interfaces are read less often than other sources.
                true => c.values.iter().rev().copied().flatten().next(),
                false => c.values.get(rows.wrapping_sub(1)).copied().flatten(),
            }],
        });
        Self {
            at_ns: self.at_ns.last().copied().into_iter().collect(),
            columns: columns.collect(),
            spreads: self.spreads.clone(),
        }
    }

    /// Returns the index of a column, and adds the column if it is missing. `likely` is checked first.
    fn place(&mut self, of: &str, name: &str, unit: &str, counter: bool, likely: usize) -> usize {
        let is = |c: &Column| c.of == of && c.name == name;
        if self.columns.get(likely).is_some_and(is) {
            return likely;
        }
        let place = self.columns.iter().position(is);
        place.unwrap_or_else(|| {
            self.columns.push(Column {
                of: of.to_owned(),
                name: name.to_owned(),
                unit: unit.to_owned(),
                counter,
                values: Vec::new(),
            });
            self.columns.len() - 1
        })
    }

    /// Returns the value of a column at the last moment.
    fn now(&mut self, column: usize) -> &mut Option<f64> {
        let row = self.at_ns.len() - 1;
        let values = &mut self.columns[column].values;
        values.resize((row + 1).max(values.len()), None);
        &mut values[row]
    }

    /// Drops every other moment but keeps the last one.
    fn thin(&mut self) {
        let even = self.at_ns.len() % 2;
        let stays = |i: &usize| i % 2 != even;
        keep(&mut self.at_ns, stays);
        for column in &mut self.columns {
            keep(&mut column.values, stays);
        }
    }
}

fn keep<T>(list: &mut Vec<T>, stays: impl Fn(&usize) -> bool) {
    let mut i = 0;
    list.retain(|_| {
        i += 1;
        stays(&(i - 1))
    });
}

/// Records a timeline during a run. The caller passes the time.
#[derive(Debug)]
pub struct Recorder {
    timeline: Timeline,
    times: Vec<Times>,
    spacing_ns: u64,
    next_ns: u64,
}

/// Distribution of one kind of times at each moment.
#[derive(Debug, Default)]
struct Times {
    /// Distribution up to the last moment.
    before: Outline,
    /// Distribution up to the moment that is being recorded.
    now: Outline,
    /// Slots with new values at each moment, and the number of new values.
    grew: Vec<Vec<(u16, u64)>>,
    /// Indices of the percentile columns.
    columns: Vec<usize>,
}

impl Times {
    /// Assigns the values since the previous moment to this moment.
    fn settle(&mut self, row: usize, mut carried: Vec<(u16, u64)>) {
        self.grew.resize(row, Vec::new());
        let slots = self.now.since(&self.before);
        let more = slots.map(|(slot, n)| (u16::try_from(slot).expect("few slots"), n));
        add(&mut carried, more);
        self.grew.push(carried);
        self.before.clone_from(&self.now);
    }

    fn percentile(&self, row: usize, percent: f64) -> Option<f64> {
        let slots = self.grew[row].iter();
        #[allow(clippy::cast_precision_loss)]
        outline::percentile(slots.map(|(slot, n)| (usize::from(*slot), *n)), percent)
            .map(|ns| ns as f64)
    }
}

/// Merges slots into slots, both in ascending order.
fn add(slots: &mut Vec<(u16, u64)>, more: impl Iterator<Item = (u16, u64)>) {
    for (slot, n) in more {
        match slots.binary_search_by_key(&slot, |(slot, _)| *slot) {
            Ok(at) => slots[at].1 += n,
            Err(at) => slots.insert(at, (slot, n)),
        }
    }
}

impl Recorder {
    /// Creates a recorder with the given interval between moments, in ns.
    #[must_use]
    pub fn new(spacing_ns: u64) -> Self {
        Self {
            timeline: Timeline::default(),
            times: Vec::new(),
            spacing_ns: spacing_ns.max(1),
            next_ns: 0,
        }
    }

    /// Returns true if the next moment is due, given the time since the start.
    #[must_use]
    pub fn is_due(&self, elapsed_ns: u64) -> bool {
        elapsed_ns >= self.next_ns
    }

    /// Time of the next moment since the start, in ns.
    #[must_use]
    pub const fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Starts the next moment. If its time is not after the last moment, it replaces the last moment.
    pub fn row(&mut self, elapsed_ns: u64) -> Row<'_> {
        let timeline = &mut self.timeline;
        let mut carried = Vec::new();
        if timeline
            .at_ns
            .last()
            .is_some_and(|last| *last >= elapsed_ns)
        {
            timeline.at_ns.pop();
            let rows = timeline.at_ns.len();
            timeline
                .columns
                .iter_mut()
                .for_each(|c| c.values.truncate(rows));
            let times = self.times.iter_mut();
            carried = times
                .map(|t| t.grew.drain(rows.min(t.grew.len())..).flatten().collect())
                .collect();
        }
        if timeline.at_ns.len() >= MOST_SAMPLES {
            self.thin();
            self.spacing_ns = self.spacing_ns.saturating_mul(2);
        }
        self.timeline.at_ns.push(elapsed_ns);
        self.next_ns = (elapsed_ns / self.spacing_ns + 1).saturating_mul(self.spacing_ns);
        Row {
            recorder: self,
            next: 0,
            carried,
        }
    }

    /// Drops every other moment. The values of a dropped moment are added to the next one.
    fn thin(&mut self) {
        let even = self.timeline.at_ns.len() % 2;
        self.timeline.thin();
        for times in &mut self.times {
            let mut left = Vec::new();
            let mut i = 0;
            times.grew.retain_mut(|grew| {
                i += 1;
                let stays = (i - 1) % 2 != even;
                match stays {
                    true => add(grew, std::mem::take(&mut left).into_iter()),
                    false => left = std::mem::take(grew),
                }
                stays
            });
            let columns = times.columns.iter().zip(PERCENTILES);
            for (&column, (percent, _)) in columns {
                let values = &mut self.timeline.columns[column].values;
                for (row, value) in values.iter_mut().enumerate().take(times.grew.len()) {
                    *value = times.percentile(row, percent);
                }
            }
        }
    }

    /// Returns the timeline so far. A column may be shorter than the list of moments if it has no later values.
    #[must_use]
    pub const fn so_far(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the timeline without columns that have no values.
    #[must_use]
    pub fn finish(self) -> Timeline {
        let mut timeline = self.timeline;
        timeline.spreads.clear();
        let rows = timeline.at_ns.len();
        timeline
            .columns
            .iter_mut()
            .for_each(|c| c.values.resize(rows, None));
        timeline
            .columns
            .retain(|c| c.values.iter().any(Option::is_some));
        timeline
    }
}

/// One moment of a timeline, which is complete when it is dropped.
#[derive(Debug)]
pub struct Row<'a> {
    recorder: &'a mut Recorder,
    /// Index of the next figure: figures arrive in the same order at each moment.
    next: usize,
    /// For each kind of times, the values of a replaced moment.
    carried: Vec<Vec<(u16, u64)>>,
}

impl Row<'_> {
    /// Records a distribution of times since the start; distributions with the same name are merged. The timeline has
    /// percentiles of the values since the previous moment, within [`Outline::RELATIVE_ERROR`].
    pub fn times(&mut self, of: &str, name: &str, so_far: &Outline) {
        let spreads = &mut self.recorder.timeline.spreads;
        let place = spreads.iter().position(|s| s.of == of && s.name == name);
        let place = place.unwrap_or_else(|| {
            spreads.push(Spread {
                of: of.to_owned(),
                name: name.to_owned(),
                so_far: Outline::default(),
            });
            self.recorder.times.push(Times::default());
            spreads.len() - 1
        });
        self.recorder.times[place].now.merge(so_far);
    }

    /// Records a counter; values with the same name are added.
    #[allow(clippy::cast_precision_loss)]
    pub fn counter(&mut self, of: &str, name: &str, unit: &str, value: u64) {
        self.put(of, name, unit, true, value as f64);
    }

    /// Records a value that rises and falls; values with the same name are added.
    pub fn level(&mut self, of: &str, name: &str, unit: &str, value: f64) {
        self.put(of, name, unit, false, value);
    }

    fn put(&mut self, of: &str, name: &str, unit: &str, counter: bool, value: f64) {
        let place = self
            .recorder
            .timeline
            .place(of, name, unit, counter, self.next);
        self.next = place + 1;
        let value = Some(value).filter(|v| v.is_finite());
        let slot = self.recorder.timeline.now(place);
        *slot = slot.zip(value).map(|(a, b)| a + b).or(value);
    }
}

impl Drop for Row<'_> {
    fn drop(&mut self) {
        let Recorder {
            timeline, times, ..
        } = &mut *self.recorder;
        let row = timeline.at_ns.len() - 1;
        let mut carried = std::mem::take(&mut self.carried).into_iter();
        for (i, times) in times.iter_mut().enumerate() {
            let now = std::mem::take(&mut times.now);
            // Jobs that have ended report no more times.
            times.now = if now.count() > 0 {
                now
            } else {
                times.before.clone()
            };
            times.settle(row, carried.next().unwrap_or_default());
            let Spread { of, name, so_far } = &mut timeline.spreads[i];
            so_far.clone_from(&times.now);
            let (of, name) = (of.clone(), name.clone());
            times.now = Outline::default();
            times.columns.resize(PERCENTILES.len(), usize::MAX);
            for ((_, ends), column) in PERCENTILES.iter().zip(&mut times.columns) {
                let name = format!("{name}_{ends}");
                *column = timeline.place(&of, &name, "ns", false, *column);
            }
            for ((percent, _), column) in PERCENTILES.iter().zip(&times.columns) {
                *timeline.now(*column) = times.percentile(row, *percent);
            }
        }
    }
}

/// Distribution of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Owner: empty for the whole run, otherwise the name of a job.
    pub of: String,
    /// Name of the figure in the report: `latency_ns`.
    pub name: String,
    /// Non-empty buckets in ascending order: minimum and maximum value, and number of values. Their sum is the number
    /// of measured values.
    pub buckets: Vec<(i64, i64, u64)>,
}

/// Number of steps of a distribution per doubling: a step is at most 6 % wide.
const STEPS: u32 = 16;

impl Distribution {
    /// Creates a distribution from finer buckets in ascending order, each with its extremes and its number of values.
    #[must_use]
    pub fn from_buckets(of: &str, name: &str, fine: impl Iterator<Item = (i64, i64, u64)>) -> Self {
        let mut buckets: Vec<(i64, i64, u64)> = Vec::new();
        for (low, high, count) in fine {
            let own = (step_of(low).0, step_of(high).1);
            match buckets.last_mut() {
                Some(last) if low <= last.1 => {
                    last.1 = last.1.max(own.1);
                    last.2 = last.2.saturating_add(count);
                }
                _ => buckets.push((own.0, own.1, count)),
            }
        }
        Self {
            of: of.to_owned(),
            name: name.to_owned(),
            buckets,
        }
    }

    /// Creates a distribution from all its values.
    #[must_use]
    pub fn of(all: &NamedHistogram) -> Self {
        Self::from_buckets(&all.of, &all.name, all.values.buckets())
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        let counts = self.buckets.iter().map(|bucket| bucket.2);
        counts.fold(0, u64::saturating_add)
    }
}

/// Returns the extremes of the step that contains a value.
#[allow(clippy::cast_possible_wrap)]
fn step_of(value: i64) -> (i64, i64) {
    let amount = value.unsigned_abs();
    let shift = (u64::BITS - amount.leading_zeros()).saturating_sub(STEPS.ilog2() + 1);
    let low = amount >> shift << shift;
    let high = low + ((1 << shift) - 1);
    match value < 0 {
        true => (
            (high.min(i64::MAX as u64) as i64).saturating_neg(),
            (low as i64).saturating_neg(),
        ),
        false => (low as i64, high as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_its_ends_and_its_sums() {
        let mut recorder = Recorder::new(10);
        let mut rows = 0;
        for now in 0..200_000_u64 {
            if recorder.is_due(now) {
                rows += 1;
                recorder.row(now).counter("", "sent", "frames", now);
            }
        }
        recorder.row(200_000).counter("", "sent", "frames", 200_000);
        let timeline = recorder.finish();
        assert!(rows > MOST_SAMPLES, "{rows}");
        assert!((MOST_SAMPLES / 2..=MOST_SAMPLES).contains(&timeline.at_ns.len()));
        assert!(timeline.at_ns.windows(2).all(|w| w[0] < w[1]));
        let sent = &timeline.column("", "sent").unwrap().values;
        assert_eq!(sent.last(), Some(&Some(200_000.0)));
        for (at, sent) in timeline.at_ns.iter().zip(sent) {
            assert_eq!(*sent, Some(*at as f64));
        }
    }

    /// Percentiles of a moment cover all times since the previous moment, including dropped moments.
    #[test]
    fn percentiles_of_intervals_leave_out_no_time() {
        let mut recorder = Recorder::new(10);
        // Two workers, one of which stops reporting.
        let mut so_far = [Outline::default(), Outline::default()];
        let mut came: Vec<(u64, usize)> = Vec::new();
        let mut seed = 1_u64;
        for now in 0..70_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let slot = Outline::slot(seed >> 40);
            let worker = usize::from(now % 3 == 0);
            if worker == 0 || now < 30_000 {
                so_far[worker].add_to_slot(slot, 1);
                came.push((now, slot));
            }
            // From time to time a moment replaces the last one.
            let again = now % 1_000 == 7 && !recorder.is_due(now);
            if recorder.is_due(now) || again {
                let last = recorder.so_far().at_ns.last().copied();
                let at = last.filter(|_| again).unwrap_or(now);
                let mut row = recorder.row(at);
                row.counter("traffic", "n", "", now);
                for worker in &so_far {
                    row.times("traffic", "latency", worker);
                }
                // Then values up to now belong to the previous moment.
                came.iter_mut()
                    .filter(|(then, _)| *then > at)
                    .for_each(|(then, _)| *then = at);
            }
        }
        let mut row = recorder.row(70_000);
        so_far
            .iter()
            .for_each(|w| row.times("traffic", "latency", w));
        drop(row);
        // No more times are reported.
        recorder.row(70_010).counter("traffic", "n", "", 70_000);
        let total = came.len() as u64;
        assert_eq!(recorder.so_far().spreads[0].so_far.count(), total);
        let timeline = recorder.finish();
        assert!(timeline.spreads.is_empty());
        let mut last = None;
        for (row, &at) in timeline.at_ns.iter().enumerate() {
            let mut interval = Outline::default();
            for (then, slot) in &came {
                if *then <= at && last.is_none_or(|last| *then > last) {
                    interval.add_to_slot(*slot, 1);
                }
            }
            for (percent, ends) in PERCENTILES {
                let column = timeline.column("traffic", &format!("latency_{ends}"));
                let told = column.unwrap().values[row];
                assert_eq!(
                    told,
                    interval.percentile(percent).map(|p| p as f64),
                    "{row}"
                );
            }
            last = Some(at);
        }
    }

    #[test]
    fn what_was_not_known_at_a_moment_is_missing() {
        let mut recorder = Recorder::new(10);
        recorder.row(0).counter("", "a", "frames", 1);
        let mut row = recorder.row(10);
        row.level("p", "b", "", 2.0);
        row.level("p", "b", "", 3.0);
        row.level("p", "never", "", f64::NAN);
        drop(row);
        recorder.row(20).counter("", "a", "frames", 5);
        // Same moment as before.
        recorder.row(20).counter("", "a", "frames", 6);
        let timeline = recorder.finish();
        assert_eq!(timeline.at_ns, [0, 10, 20]);
        let values = |of, name| timeline.column(of, name).map(|c| c.values.clone());
        assert_eq!(values("", "a").unwrap(), [Some(1.0), None, Some(6.0)]);
        assert_eq!(values("p", "b").unwrap(), [None, Some(5.0), None]);
        assert_eq!(values("p", "never"), None);
    }

    #[test]
    fn steps_hold_every_value_once() {
        let fine = (-3000..3000).map(|v| (v, v, 1));
        let coarse = Distribution::from_buckets("", "x", fine);
        assert_eq!(coarse.count(), 6000);
        assert!(coarse.buckets.len() < 500, "{}", coarse.buckets.len());
        assert!(coarse.buckets.windows(2).all(|w| w[0].1 < w[1].0));
        for (low, high, count) in &coarse.buckets {
            assert!(
                low <= high && *count <= (high - low + 1) as u64,
                "{low} {high} {count}"
            );
            assert!(
                (high - low) * 16 <= low.abs().max(high.abs()),
                "{low} {high}"
            );
        }
        for end in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            let (low, high) = step_of(end);
            assert!(
                low <= high && high >= end && low <= end.max(-i64::MAX),
                "{end}: {low} {high}"
            );
        }
    }
}
