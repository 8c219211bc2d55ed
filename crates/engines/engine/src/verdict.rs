//! The verdict of a run: one rule for the jobs of all kinds.
//!
//! The first match decides:
//!
//! | # | if | verdict | exit code |
//! |---|---|---|---|
//! | 1 | a fault ended the run | incomplete | 4 |
//! | 2 | a signal ended it before its planned end, or results of another host are missing | incomplete | 129, 130, 143; 4 |
//! | 3 | sums do not add up | invalid | 3 |
//! | 4 | a criterion failed and tester stalls cannot explain it | fail | 1 |
//! | 5 | nothing arrived, too little was offered, or tester stalls can explain a failed criterion | invalid | 3 |
//! | 6 | criteria were set | pass | 0 |
//! | 7 | otherwise | completed | 0 |

use wb_model::{Verdict, report::CriterionReport};
use wb_open::signal_name;

use crate::End;

/// Facts that decide the verdict in addition to the end of the run and its criteria.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Reason why results of another host are missing.
    pub incomplete: Option<String>,
    /// Sums that do not add up.
    pub defect: Option<String>,
    /// Broken promise of a kind of job, which holds without criteria.
    pub broken: Option<String>,
    /// Reason why the tester may have caused every failed criterion, or why criteria held only because less was
    /// offered.
    pub excuse: Option<String>,
    /// Reason why the run measured nothing: nothing arrived, no connection was established, or no request completed.
    pub nothing: Option<String>,
    /// Reason why less than 98 % of the intended load was offered.
    pub not_offered: Option<String>,
    /// True if the plan has no end, so that a signal is its planned end.
    pub endless: bool,
    /// True if the plan itself contains goals, which act like criteria.
    pub has_goals: bool,
    /// Reason why the run ended early and in order, other than a signal.
    pub stopped: Option<String>,
    /// Result of a run that went well, in place of "no criteria were set".
    pub found: Option<String>,
}

/// Returns the verdict of a run and the reason.
#[must_use]
pub fn verdict(end: &End, criteria: &[CriterionReport], evidence: Evidence) -> (Verdict, String) {
    let unmet: Vec<&CriterionReport> = criteria.iter().filter(|c| !c.held).collect();
    let names: Vec<String> = unmet.iter().map(|c| c.with_value()).collect();
    let not_held = (!names.is_empty()).then(|| format!("criteria not met: {}", names.join(", ")));
    let failure = not_held.clone().or(evidence.broken);
    // 1 and 2
    let early = match end {
        End::Fault(text) => Some(format!("ended by an error: {text}")),
        End::Signal(n) if !evidence.endless => Some(format!("ended early by {}", signal_name(*n))),
        End::Signal(_) | End::Completed => None,
    };
    if let Some(early) = early.or(evidence.incomplete) {
        let all = [Some(early), failure, evidence.defect];
        let reasons: Vec<String> = all.into_iter().flatten().collect();
        return (Verdict::Incomplete, reasons.join("; "));
    }
    // 3
    if let Some(defect) = evidence.defect {
        return (Verdict::Invalid, defect);
    }
    let ended = match end {
        End::Signal(n) => Some(format!("ended by {}", signal_name(*n))),
        End::Completed | End::Fault(_) => evidence.stopped,
    };
    let after_end = |what: String| match ended.clone() {
        Some(ended) => format!("{ended}; {what}"),
        None => what,
    };
    let void = evidence.nothing.or(evidence.not_offered);
    // 4. A criterion without a measurement is not a failure if nothing was offered or nothing arrived.
    if let Some(failure) = failure {
        let is_blank = !unmet.is_empty() && unmet.iter().all(|c| c.measured.is_none());
        if evidence.excuse.is_none() && !(is_blank && void.is_some()) {
            return (Verdict::Fail, after_end(failure));
        }
    }
    // 5. The excuse is about the failed criteria, so the reason names them, too.
    if let Some(excuse) = evidence.excuse {
        let reasons: Vec<String> = [Some(excuse), not_held].into_iter().flatten().collect();
        return (Verdict::Invalid, reasons.join("; "));
    }
    if let Some(reason) = void {
        return (Verdict::Invalid, reason);
    }
    // 6 and 7
    let good = |what: &str| ended.clone().unwrap_or_else(|| what.to_owned());
    match (criteria.is_empty(), evidence.has_goals) {
        (false, _) => (Verdict::Pass, good("all criteria met")),
        (true, has_goals) => (
            match has_goals {
                true => Verdict::Pass,
                false => Verdict::Completed,
            },
            evidence
                .found
                .unwrap_or_else(|| good("no criteria were set")),
        ),
    }
}

/// Returns the exit code of a native command: 0 completed or all criteria met, 1 a criterion failed, 3 invalid,
/// 4 ended by a fault or incomplete, 128 + n after signal n.
#[must_use]
pub fn exit_code(end: &End, verdict: Verdict) -> u8 {
    match (end, verdict) {
        (End::Signal(n), _) => u8::try_from(128 + n).unwrap_or(130),
        (End::Fault(_), _) | (End::Completed, Verdict::Incomplete) => 4,
        (_, Verdict::Fail) => 1,
        (_, Verdict::Invalid) => 3,
        (End::Completed, Verdict::Pass | Verdict::Completed) => 0,
    }
}

#[cfg(test)]
mod tests;
