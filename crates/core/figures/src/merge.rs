//! Combines parts of a run (jobs, workers, hosts).

use std::collections::BTreeMap;

use wb_measure::Times;

/// Values of several parts that can be combined.
pub trait Merge {
    /// Adds another part.
    fn merge(&mut self, other: &Self);
}

impl Merge for u64 {
    fn merge(&mut self, other: &Self) {
        *self = self.saturating_add(*other);
    }
}

impl Merge for f64 {
    fn merge(&mut self, other: &Self) {
        *self += other;
    }
}

impl<T: Merge + Clone> Merge for Option<T> {
    fn merge(&mut self, other: &Self) {
        match (self.as_mut(), other) {
            (Some(own), Some(other)) => own.merge(other),
            (None, Some(other)) => *self = Some(other.clone()),
            (_, None) => {}
        }
    }
}

impl Merge for BTreeMap<String, u64> {
    fn merge(&mut self, other: &Self) {
        for (name, n) in other {
            self.entry(name.clone()).or_default().merge(n);
        }
    }
}

/// A stored distribution, which may be absent.
pub trait AsTimes {
    /// Returns the distribution, if there is one.
    fn as_times(&mut self) -> Option<&mut Times>;
}

impl AsTimes for Times {
    fn as_times(&mut self) -> Option<&mut Times> {
        Some(self)
    }
}

impl AsTimes for Option<Times> {
    fn as_times(&mut self) -> Option<&mut Times> {
        self.as_mut()
    }
}

impl Merge for Times {
    fn merge(&mut self, other: &Self) {
        self.merge(other);
    }
}
