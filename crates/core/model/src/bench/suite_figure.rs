//! Values of a suite result for criteria.

use super::{ImpactRow, LbMetric, Quantity, SuiteResult, SuiteTest};
use crate::criteria::{Criterion, CriterionLimit, statistics};

impl Quantity {
    /// Returns the metric of the limit, if it has a dedicated name.
    #[must_use]
    pub const fn metric(self) -> Option<&'static str> {
        match self {
            Self::Frames => None,
            Self::Cps => Some("cps"),
            Self::Cc => Some(LbMetric::Cc.name()),
            Self::Rps => Some("rps"),
        }
    }
}

impl SuiteResult {
    /// Returns true if a metric applies to results of this test.
    #[must_use]
    pub fn is_about(&self, metric: &str) -> bool {
        // A goal without loss is NDR, regardless of its name.
        let allows_loss = self.loss_goal.is_some_and(|loss| loss > 0.0);
        match metric {
            "throughput" => self.test == SuiteTest::Throughput,
            "ndr" => self.test == SuiteTest::Ndr && !allows_loss,
            "pdr" => self.test == SuiteTest::Ndr && allows_loss,
            "mfr" => self.test == SuiteTest::Mfr,
            "b2b" => self.test == SuiteTest::B2b,
            "recovery" => self.test == SuiteTest::Recovery,
            "reset" => self.test == SuiteTest::Reset,
            "loss" => matches!(self.test, SuiteTest::Loss | SuiteTest::Impact),
            time if statistics().any(|own| own == time) => {
                matches!(self.test, SuiteTest::Latency | SuiteTest::Impact)
            }
            other => {
                let of_load = matches!(self.test, SuiteTest::Throughput | SuiteTest::Ndr);
                of_load && self.of.metric() == Some(other)
            }
        }
    }

    /// Returns the value for a criterion that applies to this test: loads in the unit of its limit, times in ns, shares
    /// of 1. For delay, the maximum over all loads; for loss, the maximum of the curve. `None` if it was not measured.
    #[must_use]
    pub fn figure(&self, criterion: &Criterion) -> Option<f64> {
        const NS: f64 = 1e9;
        let metric = criterion.metric.as_str();
        if !self.is_about(metric) {
            return None;
        }
        match self.test {
            SuiteTest::Throughput | SuiteTest::Ndr => match criterion.limit {
                CriterionLimit::L1(_) => self.throughput_l1_bps,
                CriterionLimit::L2(_) => self.throughput_l2_bps,
                CriterionLimit::Share(_) => Some(self.throughput_fps? / self.theoretical_fps?),
                _ => self.limit,
            },
            SuiteTest::Mfr => {
                let mfr = self.mfr.as_ref()?;
                match criterion.limit {
                    CriterionLimit::L1(_) => mfr.rate_l1_bps,
                    CriterionLimit::L2(_) => mfr.rate_l2_bps,
                    CriterionLimit::Share(_) => Some(self.limit? / self.theoretical_fps?),
                    _ => self.limit,
                }
            }
            SuiteTest::B2b => Some(self.bursts.as_ref()?.average),
            SuiteTest::Recovery => {
                let seconds = &self.recovery.as_ref()?.seconds;
                largest(seconds.iter().copied()).map(|s| s * NS)
            }
            SuiteTest::Reset => {
                let reset = self.reset.as_ref()?;
                reset.by_loss_s.or(reset.by_stamps_s).map(|s| s * NS)
            }
            SuiteTest::Latency | SuiteTest::Loss | SuiteTest::Impact | SuiteTest::Y1564 => {
                largest(self.parts(metric))
            }
        }
    }

    /// Returns all known values, for a metric that covers several loads.
    #[must_use]
    pub fn known(&self, metric: &str) -> Vec<f64> {
        self.parts(metric).into_iter().flatten().collect()
    }

    fn parts(&self, metric: &str) -> Vec<Option<f64>> {
        let share = |pct: Option<f64>| Some(pct? / 100.0);
        match (metric, self.test) {
            ("loss", SuiteTest::Impact) => {
                self.impact.iter().map(|row| share(row.loss_pct)).collect()
            }
            ("loss", _) => self.curve.iter().map(|row| share(row.loss_pct)).collect(),
            (statistic, SuiteTest::Impact) => {
                // If the loss is unknown, the delay is not the device's either.
                let of = |row: &ImpactRow| {
                    let value = row.latency_ns.statistic(statistic);
                    value.filter(|_| row.lost.is_some())
                };
                self.impact.iter().map(of).collect()
            }
            (statistic, _) => {
                let rows = self.latency.iter();
                rows.map(|row| row.latency_ns.statistic(statistic))
                    .collect()
            }
        }
    }
}

/// Returns the maximum; `None` if a value is missing, because it may be the maximum.
fn largest(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let values: Option<Vec<f64>> = values.into_iter().collect();
    values?.into_iter().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::{BurstResult, LatencyRow, LossRow, RecoveryResult, ResetResult};
    use super::*;
    use crate::Summary;

    fn figure(result: &SuiteResult, criterion: &str) -> Option<f64> {
        result.figure(&criterion.parse().unwrap())
    }

    fn of(test: SuiteTest) -> SuiteResult {
        SuiteResult::new(test, Quantity::Frames)
    }

    #[test]
    fn a_load_in_frames_and_bits() {
        let result = SuiteResult {
            limit: Some(1e6),
            throughput_fps: Some(1e6),
            throughput_l1_bps: Some(672e6),
            throughput_l2_bps: Some(512e6),
            theoretical_fps: Some(2e6),
            loss_goal: Some(0.0),
            ..of(SuiteTest::Throughput)
        };
        assert_eq!(figure(&result, "throughput>=1"), Some(1e6));
        assert_eq!(figure(&result, "throughput>=1mbps"), Some(672e6));
        assert_eq!(figure(&result, "throughput>=1mbps-l2"), Some(512e6));
        assert_eq!(figure(&result, "throughput>=1%"), Some(0.5));
        assert_eq!(figure(&result, "ndr>=1"), None);
        let mut goal = SuiteResult {
            test: SuiteTest::Ndr,
            ..result
        };
        assert_eq!(figure(&goal, "ndr>=1"), Some(1e6));
        assert_eq!(figure(&goal, "pdr>=1"), None);
        goal.loss_goal = Some(0.005);
        assert_eq!(figure(&goal, "ndr>=1"), None);
        assert_eq!(figure(&goal, "pdr>=1"), Some(1e6));
        assert_eq!(figure(&goal, "throughput>=1"), None);
        assert_eq!(figure(&goal, "cps>=1"), None);
    }

    #[test]
    fn a_load_of_connections() {
        let result = |of| SuiteResult {
            limit: Some(9.0),
            ..SuiteResult::new(SuiteTest::Ndr, of)
        };
        assert_eq!(figure(&result(Quantity::Cps), "cps>=1"), Some(9.0));
        assert_eq!(figure(&result(Quantity::Cps), "ndr>=1"), Some(9.0));
        assert_eq!(figure(&result(Quantity::Cps), "rps>=1"), None);
        assert_eq!(figure(&result(Quantity::Cc), "cc>=1"), Some(9.0));
        assert_eq!(figure(&result(Quantity::Rps), "rps>=1"), Some(9.0));
    }

    #[test]
    fn the_worst_load_and_the_worst_repetition() {
        let row = |p99: Option<i64>| LatencyRow {
            latency_ns: Summary {
                p99,
                ..Summary::default()
            },
            ..LatencyRow::default()
        };
        let mut result = of(SuiteTest::Latency);
        assert_eq!(figure(&result, "p99<=1ms"), None);
        result.latency = vec![row(Some(7)), row(Some(900)), row(Some(20))];
        assert_eq!(figure(&result, "p99<=1ms"), Some(900.0));
        assert_eq!(figure(&result, "loss<=1%"), None);
        result.latency.push(row(None));
        assert_eq!(figure(&result, "p99<=1ms"), None);

        let loss = |loss_pct| LossRow {
            loss_pct,
            ..LossRow::default()
        };
        let mut result = of(SuiteTest::Loss);
        result.curve = vec![loss(Some(25.0)), loss(Some(0.0))];
        assert_eq!(figure(&result, "loss<=1%"), Some(0.25));
        result.curve.push(loss(None));
        assert_eq!(figure(&result, "loss<=1%"), None);
        // The known values may already exceed the limit.
        assert_eq!(result.known("loss"), [0.25, 0.0]);

        let mut result = of(SuiteTest::Recovery);
        result.recovery = Some(RecoveryResult {
            seconds: vec![Some(0.5), Some(0.25)],
            average_s: Some(0.375),
            ..RecoveryResult::default()
        });
        assert_eq!(figure(&result, "recovery<=1s"), Some(0.5e9));
        // A failed recovery exceeds any limit.
        result.recovery.as_mut().unwrap().seconds.push(None);
        assert_eq!(figure(&result, "recovery<=1s"), None);
    }

    #[test]
    fn bursts_and_resets() {
        let mut result = of(SuiteTest::B2b);
        assert_eq!(figure(&result, "b2b>=1"), None);
        result.bursts = Some(BurstResult {
            average: 3048.0,
            min: 1,
            ..BurstResult::default()
        });
        assert_eq!(figure(&result, "b2b>=1"), Some(3048.0));
        // Only timestamps, because the link was down and loss is meaningless.
        let mut result = of(SuiteTest::Reset);
        let (by_loss_s, by_stamps_s) = (Some(2.0), Some(3.0));
        result.reset = Some(ResetResult {
            by_loss_s,
            by_stamps_s,
            ..ResetResult::default()
        });
        assert_eq!(figure(&result, "reset<=1s"), Some(2e9));
        result.reset.as_mut().unwrap().by_loss_s = None;
        assert_eq!(figure(&result, "reset<=1s"), Some(3e9));
    }
}
