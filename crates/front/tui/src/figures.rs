//! Figures of ports, jobs and workers from the timeline of a run.

use std::collections::{BTreeMap, VecDeque};

use wb_model::timeline::{Spread, Timeline};

/// Number of moments kept for each figure.
const KEPT: usize = 256;

/// History of a figure at the last moments.
#[derive(Debug, Default)]
struct Figure {
    counter: bool,
    /// Value at the first moment at which it was known.
    first: f64,
    /// Times in ns, and values.
    seen: VecDeque<(u64, f64)>,
}

/// All figures by owner and name, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    figures: BTreeMap<(String, String), Figure>,
    order: Vec<(String, String)>,
    spreads: Vec<Spread>,
    last_ns: Option<u64>,
}

impl Figures {
    /// Adds the new moments of a timeline.
    pub(crate) fn take(&mut self, timeline: &Timeline) {
        // A run within a run starts again.
        let last = timeline.at_ns.last().copied();
        if self.last_ns > last {
            *self = Self::default();
        }
        let known = |at: &u64| self.last_ns.is_some_and(|last| *at <= last);
        let from = timeline.at_ns.partition_point(known);
        for column in &timeline.columns {
            let key = (column.of.clone(), column.name.clone());
            for (at, value) in timeline.at_ns.iter().zip(&column.values).skip(from) {
                let Some(value) = value else { continue };
                if !self.figures.contains_key(&key) {
                    self.order.push(key.clone());
                }
                let figure = self.figures.entry(key.clone()).or_default();
                if figure.seen.is_empty() {
                    (figure.counter, figure.first) = (column.counter, *value);
                }
                if figure.seen.len() == KEPT {
                    figure.seen.pop_front();
                }
                figure.seen.push_back((*at, *value));
            }
        }
        self.spreads.clone_from(&timeline.spreads);
        self.last_ns = last;
    }

    /// Distribution of the times so far.
    pub(crate) fn spread(&self, of: &str, name: &str) -> Option<&Spread> {
        self.spreads.iter().find(|s| s.of == of && s.name == name)
    }

    /// Values at the kept moments.
    pub(crate) fn past(&self, of: &str, name: &str) -> Vec<Option<f64>> {
        let seen = self.get(of, name).into_iter().flat_map(|f| &f.seen);
        seen.map(|(_, value)| Some(*value)).collect()
    }

    fn get(&self, of: &str, name: &str) -> Option<&Figure> {
        self.figures.get(&(of.to_owned(), name.to_owned()))
    }

    /// Owners with this prefix, each once.
    pub(crate) fn owners(&self, start: &str) -> Vec<&str> {
        let mut owners: Vec<&str> = Vec::new();
        for (of, _) in &self.order {
            if of.starts_with(start) && !owners.contains(&of.as_str()) {
                owners.push(of);
            }
        }
        owners
    }

    /// Names of the known figures of an owner.
    pub(crate) fn names<'a>(&'a self, of: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self.order.iter().filter(move |(owner, _)| owner == of);
        own.map(|(_, name)| name.as_str())
    }

    /// Last value; for a counter, the count since the start of the run.
    pub(crate) fn last(&self, of: &str, name: &str) -> Option<f64> {
        let figure = self.get(of, name)?;
        let (_, value) = figure.seen.back()?;
        Some(*value)
    }

    /// Growth of a counter since its first value.
    pub(crate) fn grown(&self, of: &str, name: &str) -> Option<f64> {
        Some(self.last(of, name)? - self.get(of, name)?.first)
    }

    /// Growth of a counter per second over the last second or so.
    pub(crate) fn rate(&self, of: &str, name: &str) -> Option<f64> {
        let (value, seconds) = self.step(of, name)?;
        Some(value / seconds)
    }

    /// Growth of a counter over the last second or so, and the length of that time in seconds.
    fn step(&self, of: &str, name: &str) -> Option<(f64, f64)> {
        const SPAN_NS: u64 = 900_000_000;
        let figure = self.get(of, name).filter(|f| f.counter)?;
        let (now, value) = *figure.seen.back()?;
        let before = figure.seen.iter().rev().skip(1);
        let (then, old) = before
            .clone()
            .find(|(at, _)| now.saturating_sub(*at) >= SPAN_NS)
            .or_else(|| before.last())?;
        let seconds = now.saturating_sub(*then) as f64 / 1e9;
        (seconds > 0.0).then_some(((value - old).max(0.0), seconds))
    }

    /// Mean of a time, from its count and its sum, over the last second or so, in ns.
    pub(crate) fn mean(&self, of: &str, samples: &str, sum: &str) -> Option<f64> {
        let (count, _) = self.step(of, samples)?;
        let (sum, _) = self.step(of, sum)?;
        (count > 0.0).then(|| sum / count)
    }

    /// Mean of a time over the whole run, in ns.
    pub(crate) fn mean_of_all(&self, of: &str, samples: &str, sum: &str) -> Option<f64> {
        let count = self.last(of, samples).filter(|count| *count > 0.0)?;
        Some(self.last(of, sum)? / count)
    }

    /// Growth of a counter per second from moment to moment.
    pub(crate) fn rates(&self, of: &str, name: &str) -> Vec<Option<f64>> {
        let Some(figure) = self.get(of, name) else {
            return Vec::new();
        };
        let pairs = figure.seen.iter().zip(figure.seen.iter().skip(1));
        pairs
            .map(|((then, old), (now, new))| {
                let seconds = now.saturating_sub(*then) as f64 / 1e9;
                (seconds > 0.0).then(|| (new - old).max(0.0) / seconds)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use wb_model::timeline::Recorder;

    use super::*;

    #[test]
    fn each_moment_is_taken_once_and_rates_are_differences() {
        let mut recorder = Recorder::new(1);
        let mut figures = Figures::default();
        for tenth in 0..=20_u64 {
            let mut row = recorder.row(tenth * 100_000_000);
            row.counter("port 1", "rx_packets", "frames", 1_000 + tenth * tenth);
            row.counter("job a", "n", "", tenth);
            row.counter("job a", "sum", "ns", tenth * 50);
            drop(row);
            if tenth % 3 == 0 {
                figures.take(recorder.so_far());
            }
        }
        figures.take(recorder.so_far());
        figures.take(recorder.so_far());
        assert_eq!(figures.owners("port "), ["port 1"]);
        assert_eq!(figures.names("job a").collect::<Vec<_>>(), ["n", "sum"]);
        assert_eq!(figures.last("port 1", "rx_packets"), Some(1_400.0));
        assert_eq!(figures.grown("port 1", "rx_packets"), Some(400.0));
        // From 1.1 s to 2.0 s: (400 - 121) / 0.9.
        let rate = figures.rate("port 1", "rx_packets").unwrap();
        assert!((rate - 310.0).abs() < 1e-9, "{rate}");
        assert_eq!(figures.rates("job a", "n").len(), 20);
        assert_eq!(figures.mean("job a", "n", "sum"), Some(50.0));
        assert_eq!(figures.mean_of_all("job a", "n", "sum"), Some(50.0));
        assert_eq!(figures.last("job b", "n"), None);
    }
}
