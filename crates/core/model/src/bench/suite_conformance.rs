//! Requirements of the standards on a suite, and deviations of a suite from them.

use super::{CONFORMANCE, Quantity, Share, SuitePlan, SuiteSearch, SuiteTest, SuiteTimes};
use crate::{
    bench::{LatencyTest, RecoveryTest},
    units::Span,
};

/// Minimum number of frame sizes (RFC 2544 section 9).
const SIZES: usize = 5;
/// Resolution of a search, as a share of the maximum load.
const RESOLUTION: Share = Share(0.001);

impl SuitePlan {
    /// Sets the times, limits and repetitions of the standards.
    pub fn conform(&mut self) {
        CONFORMANCE.clone_into(&mut self.preset);
        // RFC 2544 sections 23 and 24.
        self.times = SuiteTimes {
            trial: Span::from_secs(60),
            search: None,
            ramp: Span::default(),
            drain: Span::from_secs(2),
            settle: Span::from_secs(5),
            ..self.times
        };
        self.search = SuiteSearch {
            precision: None,
            resolution: Some(RESOLUTION),
            budget: Span::from_secs(2 * 3600),
            ..self.search.clone()
        };
        // Section 26.2: at the throughput.
        self.latency = LatencyTest {
            duration: Span::from_secs(120),
            after: Span::from_secs(60),
            repetitions: 20,
            loads: vec![Share(1.0)],
        };
        // Sections 26.4 and 26.5.
        self.b2b.searches = 50;
        self.recovery = RecoveryTest {
            overload: Span::from_secs(60),
            half: Span::from_secs(60),
            repetitions: self.recovery.repetitions.max(5),
        };
    }

    /// Returns the deviations from [`Self::conform`] that affect the tests of the suite, a few words each: `trials of
    /// 5s, not 60s`.
    #[must_use]
    pub fn deviations(&self) -> Vec<String> {
        let mut standard = self.clone();
        standard.conform();
        let makes = |tests: &[SuiteTest]| self.tests.iter().any(|test| tests.contains(test));
        let searches = makes(&[SuiteTest::Throughput])
            || self.tests.iter().any(|test| test.needs_throughput());
        let mut found = Vec::new();
        let mut shorter = |concerns: bool, what: &str, own: Span, due: Span| {
            if concerns && own < due {
                found.push(format!("{what} {own}, not {due}"));
            }
        };
        let (own, due) = (&self.times, &standard.times);
        let decides = searches || makes(&[SuiteTest::Loss, SuiteTest::Mfr, SuiteTest::Impact]);
        shorter(decides, "trials of", own.trial, due.trial);
        shorter(true, "drain", own.drain, due.drain);
        shorter(true, "settle", own.settle, due.settle);
        let latency = makes(&[SuiteTest::Latency]);
        let (own, due) = (&self.latency, &standard.latency);
        shorter(latency, "latency streams of", own.duration, due.duration);
        shorter(latency, "latency after", own.after, due.after);
        let recovery = makes(&[SuiteTest::Recovery]);
        let (own, due) = (&self.recovery, &standard.recovery);
        shorter(recovery, "overloads of", own.overload, due.overload);
        shorter(recovery, "half load for", own.half, due.half);
        let mut fewer = |concerns: bool, what: &str, own: u32, due: u32| {
            if concerns && own < due {
                found.push(format!("{own} {what}, not {due}"));
            }
        };
        let (own, due) = (&self.latency, &standard.latency);
        fewer(latency, "latency streams", own.repetitions, due.repetitions);
        let b2b = makes(&[SuiteTest::B2b]);
        fewer(
            b2b,
            "burst searches",
            self.b2b.searches,
            standard.b2b.searches,
        );
        let (own, due) = (&self.recovery, &standard.recovery);
        fewer(recovery, "overloads", own.repetitions, due.repetitions);
        // A mix or a single size is an explicit request; a list of sizes represents all sizes.
        let sizes = self.sizes.len();
        if self.of == Quantity::Frames && (2..SIZES).contains(&sizes) {
            found.push(format!("{sizes} sizes, not at least {SIZES}"));
        }
        if self.times.ramp > Span::default() {
            found.push(format!("a ramp of {}", self.times.ramp));
        }
        let is_coarse = match (self.search.precision, self.search.resolution) {
            (Some(share), _) | (None, Some(share)) => share.0 > RESOLUTION.0,
            (None, None) => true,
        };
        if searches && is_coarse {
            found.push("search resolution coarser than 0.1 % of the maximum load".to_owned());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shorter_than_the_standard_is_said() {
        let mut suite = SuitePlan::default();
        assert!(!suite.deviations().is_empty());
        suite.conform();
        assert_eq!(suite.deviations(), [""; 0]);
        suite.times.trial = Span::from_secs(5);
        suite.latency.repetitions = 3;
        suite.search.resolution = Some(Share(0.01));
        assert_eq!(
            suite.deviations(),
            [
                "trials of 5s, not 1m",
                "3 latency streams, not 20",
                "search resolution coarser than 0.1 % of the maximum load"
            ]
        );
        // Skipped tests cause no deviations, and longer times are not deviations.
        suite.tests = vec![SuiteTest::Loss];
        suite.times.trial = Span::from_secs(90);
        assert_eq!(suite.deviations(), [""; 0]);
    }
}
