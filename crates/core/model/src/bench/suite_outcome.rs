//! Evaluation of suite results, used by verdict, criteria and all forms of a report.

use super::{LbLimit, SuiteResult, SuiteTest, TrialOutcome, TrialPurpose};

impl SuiteResult {
    /// Returns the number of frames sent through the device, and the number that arrived or were dropped by the
    /// tester's ports, over all trials.
    #[must_use]
    pub fn carried(&self) -> (u64, u64) {
        let trials = self.trial_log.iter();
        let through = trials.filter(|trial| trial.purpose != TrialPurpose::Ceiling);
        through.fold((0, 0), |(sent, arrived), trial| {
            (sent + trial.tx, arrived + trial.rx + trial.nic_drops)
        })
    }

    /// Returns true if the device failed the test.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match self.test {
            SuiteTest::Throughput | SuiteTest::Ndr => {
                let all_failed = || match &self.mlr {
                    Some(mlr) => {
                        let low = mlr.loads.iter().any(|l| l.low_full_s + l.low_short_s > 0.0);
                        let high = mlr
                            .loads
                            .iter()
                            .any(|l| l.high_full_s + l.high_short_s > 0.0);
                        high && !low
                    }
                    None => {
                        let any = |outcome| self.trial_log.iter().any(|t| t.outcome == outcome);
                        any(TrialOutcome::Fail) && !any(TrialOutcome::Pass)
                    }
                };
                let by_device = self.limited_by == Some(LbLimit::Device);
                self.limit.is_none() && (by_device || all_failed())
            }
            SuiteTest::Y1564 => self.steps.iter().any(|step| !step.passed && !step.void),
            SuiteTest::Mfr => self.mfr.as_ref().is_some_and(|mfr| mfr.rate_fps <= 0.0),
            SuiteTest::Impact | SuiteTest::Loss => {
                let known = self.known("loss");
                !known.is_empty() && known.iter().all(|loss| *loss >= 1.0)
            }
            SuiteTest::Recovery => {
                let recovery = self.recovery.as_ref();
                recovery.is_some_and(|r| r.seconds.iter().any(Option::is_none))
            }
            SuiteTest::Reset => {
                let reset = self.reset.as_ref();
                self.not_measured.is_none() && reset.is_some_and(|r| r.not_again_s.is_some())
            }
            SuiteTest::Latency | SuiteTest::B2b => false,
        }
    }

    /// Returns true if the test has no result because it had no valid trials.
    #[must_use]
    pub fn is_unjudged(&self) -> bool {
        let no_limit = self.test.finds_limit() && self.limit.is_none();
        let no_loss = match self.test {
            SuiteTest::Loss => self.known("loss").is_empty(),
            SuiteTest::Impact => self.impact.iter().all(|row| row.lost.is_none()),
            _ => false,
        };
        let nothing = (no_limit || no_loss) && self.not_measured.is_none() && !self.has_failed();
        nothing || self.steps.iter().any(|step| step.void)
    }

    /// Returns true if a part of the result is void because the tester could not run its trial.
    #[must_use]
    pub fn is_partly_void(&self) -> bool {
        self.steps.iter().any(|step| step.void)
            || self.impact.iter().any(|row| row.lost.is_none())
            || self.curve.iter().any(|row| row.loss_pct.is_none())
    }
}
