//! Time without forwarding after a reset of the device (RFC 2544 section 26.6, RFC 6201).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Tone, Unit, Value, derived, fields, text::time_ns};

use super::{
    FPS, Share, is_nothing, is_zero,
    test::{TestDef, named},
};
use crate::{bench::SuiteResult, figures::FRAMES, units::Span};

/// Nanoseconds of a second.
const NS: f64 = 1e9;

pub(super) const TEST: TestDef = TestDef {
    needs_throughput: true,
    values: |r, _| {
        vec![
            r.reset
                .as_ref()
                .and_then(|own| Some(own.by_loss_s.or(own.by_stamps_s)? * NS)),
        ]
    },
    has_failed: |r| {
        let reset = r.reset.as_ref();
        r.not_measured.is_none() && reset.is_some_and(|own| own.not_again_s.is_some())
    },
    failure: "the device did not resume forwarding",
    add_to: |r, _, section| {
        let by = r.reset.as_ref().map(|own| {
            let kind = if own.kind.is_empty() { "" } else { " " };
            format!("{}{kind}reset by `{}`", own.kind, own.trigger)
        });
        let never = r.reset.as_ref().and_then(|own| own.not_again_s).map(|s| {
            let last = time_ns(s * NS);
            format!("the device did not resume forwarding: no frame arrived in the last {last}")
        });
        let terms = "by loss: lost frames ÷ load; by timestamps: from the last frame before the reset to the first \
                     after it";
        let is_unknown = |own: &ResetResult| {
            let times = [own.by_loss_s, own.by_stamps_s, own.not_again_s];
            times.iter().all(Option::is_none)
        };
        let unknown = r.reset.as_ref().filter(|own| is_unknown(own));
        section
            .figures(TIME, r)
            .note(
                Tone::Plain,
                unknown.map(|_| "the length of the outage is unknown".to_owned()),
            )
            .note(Tone::Bad, never)
            .note(Tone::Plain, by)
            .note(Tone::Term, r.reset.as_ref().map(|_| terms.to_owned()))
    },
    ..named!("reset", "reset", "RFC 6201")
};

static TIME: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("offered", "load", FPS, |r| of(r, |own| Some(own.offered_fps))),
    derived!("lost", "lost", FRAMES, |r| r.reset.as_ref().map(|own| own.lost).into()),
    derived!("by_loss_ns", "by loss", Unit::Nanoseconds, |r| of(r, |own| Some(own.by_loss_s? * NS))).bad().leads(),
    derived!("by_stamps_ns", "by timestamps", Unit::Nanoseconds, |r| of(r, |own| Some(own.by_stamps_s? * NS))).bad().leads(),
);

fn of(r: &SuiteResult, value: fn(&ResetResult) -> Option<f64>) -> Value<'_> {
    r.reset.as_ref().and_then(value).into()
}

/// Parameters of the reset test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResetTest {
    /// Command that resets the device, run with `sh -c`, such as `ssh dut reboot`. Without it, the test is skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Kind of reset, for the report: `hardware`, `software`, `power`, `link`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Load as a share of the maximum; 0 means 10 %.
    #[serde(skip_serializing_if = "is_nothing")]
    pub load: Share,
    /// Maximum time to wait until the device forwards again, at least 100ms (default 30s).
    #[serde(skip_serializing_if = "is_zero")]
    pub patience: Span,
}

/// Reset (RFC 6201).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResetResult {
    /// Kind of reset, from the plan.
    pub kind: String,
    /// Command that reset the device.
    pub trigger: String,
    /// Load, in frames per second.
    pub offered_fps: f64,
    /// Frames lost due to the reset; with two directions, of the direction that lost more.
    #[serde(default)]
    pub lost: u64,
    /// Reset time by the frame-loss method (section 4.1), in seconds: lost ÷ load.
    pub by_loss_s: Option<f64>,
    /// Reset time by the time-stamp method (section 4.1), in seconds: from the last frame before the reset to the first
    /// after it.
    pub by_stamps_s: Option<f64>,
    /// Time without a received frame at the end, in seconds, if the device did not forward again while the tester
    /// waited. Then the two reset times are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_again_s: Option<f64>,
}
