//! How a run ended, in a word and a sentence: the same order of precedence for every kind of run.

use wb_model::{Verdict, report::CriterionReport};

use crate::{End, settle::signal_name};

/// What decides beside the criteria.
#[derive(Clone, Debug, Default)]
pub(crate) struct Circumstances {
    /// Sums that do not add up; however it ended.
    pub(crate) defect: Option<String>,
    /// Why the figures say nothing about the device: the tester was the limit, or is wrong.
    pub(crate) invalid: Option<String>,
    /// The plan has no end of its own, so a signal is no early one.
    pub(crate) endless: bool,
    /// What ended it early and in order, beside a signal.
    pub(crate) stopped: Option<String>,
}

/// The verdict of a run and the reason.
pub(crate) fn verdict(
    end: &End,
    criteria: &[CriterionReport],
    circumstances: Circumstances,
) -> (Verdict, String) {
    let failed: Vec<&str> = criteria
        .iter()
        .filter(|c| !c.held)
        .map(|c| c.criterion.as_str())
        .collect();
    let judged = match failed.is_empty() {
        true => Verdict::Pass,
        false => Verdict::Fail,
    };
    let not_held = match failed.is_empty() {
        true => String::new(),
        false => format!("; did not hold: {}", failed.join(", ")),
    };
    let defect = circumstances.defect.is_some();
    match (end, circumstances.defect.or(circumstances.invalid)) {
        (End::Fault(text), _) => (Verdict::Invalid, format!("ended by a fault: {text}")),
        (End::Signal(n), _) if !defect && !circumstances.endless => (
            Verdict::Incomplete,
            format!("ended early by {}{not_held}", signal_name(*n)),
        ),
        (_, Some(reason)) => (Verdict::Invalid, reason),
        (End::Signal(n), None) => (judged, format!("ended by {}{not_held}", signal_name(*n))),
        (End::Completed, None) => (
            judged,
            match (circumstances.stopped, failed.is_empty()) {
                (_, false) => format!("did not hold: {}", failed.join(", ")),
                (Some(stopped), true) => stopped,
                (None, true) if criteria.is_empty() => {
                    "it ran to its end; no criteria were given".to_owned()
                }
                (None, true) => "all criteria held".to_owned(),
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_weighs_most_is_said() {
        let criterion = |held| CriterionReport {
            criterion: "loss<=0%".to_owned(),
            measured: Some(0.5),
            held,
        };
        let endless = || Circumstances {
            endless: true,
            ..Circumstances::default()
        };
        let invalid = || Circumstances {
            invalid: Some("nothing was sent".to_owned()),
            ..Circumstances::default()
        };
        let defect = || Circumstances {
            defect: Some("it does not add up".to_owned()),
            ..invalid()
        };
        let none = Circumstances::default;
        let cases = [
            (End::Completed, None, none(), Verdict::Pass),
            (End::Completed, Some(true), none(), Verdict::Pass),
            (End::Completed, Some(false), none(), Verdict::Fail),
            (End::Completed, Some(true), invalid(), Verdict::Invalid),
            (End::Signal(2), None, none(), Verdict::Incomplete),
            (End::Signal(2), Some(false), none(), Verdict::Incomplete),
            (End::Signal(2), None, invalid(), Verdict::Incomplete),
            (End::Completed, None, defect(), Verdict::Invalid),
            (End::Signal(2), None, defect(), Verdict::Invalid),
            (End::Signal(15), None, endless(), Verdict::Pass),
            (End::Signal(15), Some(false), endless(), Verdict::Fail),
            (
                End::Fault("x".to_owned()),
                None,
                endless(),
                Verdict::Invalid,
            ),
        ];
        for (end, held, circumstances, wanted) in cases {
            let criteria: Vec<_> = held.map(criterion).into_iter().collect();
            let (got, reason) = verdict(&end, &criteria, circumstances);
            assert_eq!(got, wanted, "{end:?} {held:?}: {reason}");
            assert_eq!(
                reason.contains("did not hold: loss<=0%"),
                held == Some(false),
                "{reason}"
            );
        }
    }
}
