//! Loss and delay at one load for a long time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Show, Tone, Unit, derived, fields};

use super::{
    Share,
    impact::{loss_and_delay, losses},
    loss::{is_all_lost, largest},
    test::{TestDef, named},
};
use crate::{bench::SuiteResult, criteria::statistics, units::Span, validate::rules};

pub(super) const TEST: TestDef = TestDef {
    needs_throughput: true,
    tells_loss: true,
    metrics: |_| std::iter::once("loss").chain(statistics()).collect(),
    values: |r, criterion| super::impact::values(r, criterion),
    has_failed: |r| is_all_lost(&losses(r)),
    is_void: |r| r.impact.iter().all(|row| row.lost.is_none()),
    check: |suite, found| {
        let soak = &suite.soak;
        rules! { found:
            soak.load.0 <= 0.0 => "procedure.suite", "soak.load must be above 0";
            soak.duration < Span::from_millis(100) =>
                "procedure.suite", "soak.duration must be at least 100ms, got {}", soak.duration;
        }
    },
    add_to: |r, _, section| {
        let terms = "load: share of the throughput";
        loss_and_delay(r, section.figures(LOSS, r)).note(Tone::Term, Some(terms.to_owned()))
    },
    ..named!("soak", "soak", "one load for a long time")
};

static LOSS: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("loss", "loss", Unit::Share, |r| largest(&losses(r)).into()).leads().show(Show::Never),
);

/// Parameters of the soak test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SoakTest {
    /// Load as a share of the throughput, above 0 (default 90 %).
    pub load: Share,
    /// Duration, at least 100 ms (default 1 min).
    pub duration: Span,
}

impl Default for SoakTest {
    fn default() -> Self {
        Self {
            load: Share(0.9),
            duration: Span::from_secs(60),
        }
    }
}
