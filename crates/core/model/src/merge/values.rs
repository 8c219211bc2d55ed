//! Values of the distributions of merged runs.

use std::collections::{BTreeMap, BTreeSet};

use wb_figures::Section;
use wb_measure::{
    EncodedHistogram, EncodedValues, Histogram, NamedHistogram, SignedHistogram, Times,
};

use super::Part;
use crate::{
    JobKind,
    report::{Report, Summary},
    timeline::Distribution,
};

/// Owner (empty for the whole run) and name of a distribution.
type Key = (String, String);

/// Limit for the number of values of a run, so that the values of all runs can be counted.
const MOST_VALUES: u64 = 1 << 48;
/// Limits of a sum of squares, and of the square of a sum by the number of values, so that the standard deviation of all
/// runs can be computed.
const LARGEST_SUM: f64 = 1e34;

/// All values of the distributions of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    all: BTreeMap<Key, SignedHistogram>,
    /// Distributions that the report has under this name.
    written: BTreeSet<Key>,
    /// Coarse form of all distributions, which every report has.
    coarse: Vec<Distribution>,
}

impl Values {
    /// Reads the values of a report.
    ///
    /// # Errors
    /// A sentence with the name of the report, if they cannot be read.
    pub(super) fn of(part: &Part) -> Result<Self, String> {
        let report = &part.report;
        let mut all: BTreeMap<Key, Option<SignedHistogram>> = BTreeMap::new();
        for encoded in &report.histograms {
            let named = check(encoded).and_then(|()| NamedHistogram::try_from(encoded));
            let named = named.map_err(|why| format!("{}: {why}", part.name))?;
            // Jobs of two kinds may have distributions with the same name; these are left out.
            let known = all
                .entry((named.of, named.name))
                .or_insert_with(|| Some(named.values.clone()));
            *known = known.take().filter(|known| *known == named.values);
        }
        let known = all
            .into_iter()
            .filter_map(|(key, values)| Some((key, values?)));
        let mut own = Self {
            all: known.collect(),
            written: BTreeSet::new(),
            coarse: report.distributions.clone(),
        };
        own.written = own.all.keys().cloned().collect();
        own.name_only_jobs(report);
        Ok(own)
    }

    /// The distributions of the only job of a kind are those of the whole run.
    fn name_only_jobs(&mut self, report: &Report) {
        let jobs = report.jobs.iter().map(|job| job.name.as_str());
        let shown = report.load.as_ref().map(|load| load.shown());
        let loads = report.load.iter().flat_map(|load| &load.jobs);
        let loads = loads
            .filter(|job| Some(job.end) == shown)
            .map(|job| job.name.as_str());
        let http = report
            .http
            .iter()
            .flat_map(|http| &http.jobs)
            .map(|job| job.name.as_str());
        for names in [jobs.collect(), loads.collect(), http.collect::<Vec<_>>()] {
            let [only] = names[..] else { continue };
            let of_run = self.all.iter().filter(|((of, _), _)| of.is_empty());
            let of_run: Vec<_> = of_run
                .map(|((_, name), values)| (name.clone(), values.clone()))
                .collect();
            for (name, values) in of_run {
                self.all.entry((only.to_owned(), name)).or_insert(values);
            }
        }
    }

    /// Gives the jobs of the report their values.
    pub(super) fn attach(&self, report: &mut Report) {
        for job in report.load.iter_mut().flat_map(|load| &mut load.jobs) {
            let of = job.name.clone();
            job.attach(|name| self.times(&of, name));
        }
        for job in report.http.iter_mut().flat_map(|http| &mut http.jobs) {
            let of = job.name.clone();
            job.attach(|name| self.times(&of, name));
        }
    }

    pub(super) fn get(&self, of: &str, name: &str) -> Option<&SignedHistogram> {
        self.all.get(&(of.to_owned(), name.to_owned()))
    }

    /// Values that are never negative.
    fn times(&self, of: &str, name: &str) -> Option<Histogram> {
        self.get(of, name).map(SignedHistogram::magnitudes)
    }

    /// Adds the values of all runs.
    pub(super) fn sum(parts: &[Self]) -> Self {
        let mut sum = Self::default();
        for part in parts {
            for (key, values) in &part.all {
                sum.all.entry(key.clone()).or_default().merge(values);
            }
            sum.written.extend(part.written.iter().cloned());
            sum.coarse.extend_from_slice(&part.coarse);
        }
        let mut coarse: BTreeMap<Key, Vec<(i64, i64, u64)>> = BTreeMap::new();
        for own in sum.coarse {
            let buckets = coarse.entry((own.of, own.name)).or_default();
            buckets.extend(own.buckets);
        }
        let coarse = coarse.into_iter().map(|((of, name), mut buckets)| {
            buckets.sort_unstable();
            Distribution::from_buckets(&of, &name, buckets.into_iter())
        });
        sum.coarse = coarse.collect();
        // A run without its values leaves too few.
        let is_whole = |(of, name): &Key| {
            let coarse = sum
                .coarse
                .iter()
                .find(|own| (&own.of, &own.name) == (of, name));
            let values = sum.all.get(&(of.clone(), name.clone()));
            coarse.map(Distribution::count) == values.map(SignedHistogram::count)
        };
        sum.written.retain(is_whole);
        sum
    }

    /// Sets the statistics and the distributions of a merged report.
    pub(super) fn set(&self, merged: &mut Report, parts: &[Part]) {
        let Report {
            latency_ns,
            jitter_ns,
            ipdv_ns,
            inter_arrival_ns,
            ..
        } = merged;
        type Of = fn(&Report) -> Summary;
        let latency = match parts[0].report.plan.has(JobKind::Load) {
            true => "request_ns",
            false => "latency_ns",
        };
        let of_run: [(&mut Summary, &str, Of); 4] = [
            (latency_ns, latency, |r| r.latency_ns),
            (jitter_ns, "jitter_ns", |r| r.jitter_ns),
            (ipdv_ns, "ipdv_ns", |r| r.ipdv_ns),
            (inter_arrival_ns, "inter_arrival_ns", |r| r.inter_arrival_ns),
        ];
        for (own, name, of) in of_run {
            *own = Summary::default();
            parts.iter().for_each(|part| add(own, of(&part.report)));
            self.complete(own, "", name);
        }
        let departures = parts
            .iter()
            .filter_map(|part| part.report.inter_departure_ns);
        let mut departures = departures.reduce(Times::statistics_of);
        if let Some(own) = &mut departures {
            self.complete(own, "", "inter_departure_ns");
        }
        merged.inter_departure_ns = departures;
        // Each path has its own smallest delay.
        merged.pdv_ns = Summary::default();
        let errors = parts.iter().map(|part| part.report.percentile_error);
        merged.percentile_error = errors.fold(0.0, f64::max);
        let jitters = parts
            .iter()
            .filter_map(|part| part.report.jitter_rfc3550_ns);
        merged.jitter_rfc3550_ns = jitters.reduce(f64::max);
        for job in &mut merged.jobs {
            let of = &job.name;
            self.complete(&mut job.latency_ns, of, "latency_ns");
            self.complete(&mut job.ipdv_ns, of, "ipdv_ns");
            self.complete(&mut job.inter_arrival_ns, of, "inter_arrival_ns");
        }
        merged.distributions.clone_from(&self.coarse);
        let encoded = self.written.iter().filter_map(|(of, name)| {
            let values = self.get(of, name)?.clone();
            let (of, name) = (of.clone(), name.clone());
            Some(EncodedHistogram::from(&NamedHistogram { of, name, values }))
        });
        merged.histograms = encoded.collect();
        let sections = merged.sections();
        let mut times = sections.iter().flat_map(Section::times);
        let is_unknown = times.any(|(_, summary)| summary.p50.is_none());
        drop(times);
        drop(sections);
        if is_unknown {
            let why =
                "some percentiles are unknown: they need reports with all values (--histograms)";
            merged.warnings.push(why.to_owned());
        }
    }

    /// Replaces statistics by those of all values, if these are complete.
    fn complete(&self, own: &mut Summary, of: &str, name: &str) {
        if let Some(values) = self.get(of, name)
            && values.count() == own.samples
        {
            *own = values.summary();
        }
    }
}

/// Adds statistics; percentiles of several runs are unknown.
pub(super) fn add(own: &mut Summary, other: Summary) {
    *own = Times::statistics_of(*own, other);
}

/// Returns an error if sums of such distributions may overflow.
#[allow(clippy::cast_precision_loss)]
fn check(encoded: &EncodedHistogram) -> Result<(), String> {
    let is_small = |values: &EncodedValues| {
        let counts = values.slots.chunks(2).filter_map(|pair| pair.get(1));
        let all = counts
            .chain([&values.clamped])
            .try_fold(0_u64, |sum, n| sum.checked_add(*n));
        let [sum, squares] =
            [&values.sum, &values.squares].map(|text| text.parse().unwrap_or(f64::MAX));
        let is_small = |all: u64| sum * sum / all.max(1) as f64 <= LARGEST_SUM && all < MOST_VALUES;
        all.is_some_and(is_small) && squares <= LARGEST_SUM
    };
    match is_small(&encoded.values) && encoded.below.as_ref().is_none_or(is_small) {
        true => Ok(()),
        false => Err(format!(
            "histogram {}: its numbers are too large",
            encoded.name
        )),
    }
}
