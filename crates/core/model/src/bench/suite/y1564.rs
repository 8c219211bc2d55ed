//! Activation of services (ITU-T Y.1564).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Plot, Series, Show, Tone, Unit, derived, fact, fields, gauge};

use super::{
    Share,
    test::{TestDef, named},
};
use crate::{
    bench::SuiteResult,
    report::Verdict,
    units::{Rate, Span},
};

pub(super) const TEST: TestDef = TestDef {
    has_services: true,
    // The services have their own limits.
    metrics: |_| Vec::new(),
    has_failed: |r| r.steps.iter().any(|step| !step.passed && !step.void),
    add_to: |r, _, section| {
        let services = r.services.iter().filter(|_| r.services.len() > 1);
        let mut section = section
            .figures(PASSED, r)
            .table("Services", SERVICE, services)
            .keys(1)
            .table("Steps", STEP, &r.steps)
            .keys(2)
            .plots(&PLOTS);
        for step in r.steps.iter().filter(|step| !step.passed) {
            let text = format!("{} {}: {}", step.service, step.step, step.reason);
            section = section.note(Tone::Plain, Some(text));
        }
        let terms = "rates at layer 2 with FCS; variation: longest minus shortest delay";
        let is_judged = r.steps.iter().any(|step| step.availability.is_some());
        let available = "available: until 10 consecutive seconds lose more than 50 % each, and again after 10 \
                         consecutive other seconds (Y.1563)";
        section
            .note(Tone::Term, Some(terms.to_owned()))
            .note(Tone::Term, is_judged.then(|| available.to_owned()))
    },
    ..named!("y1564", "service activation", "ITU-T Y.1564")
};

static PLOTS: [Plot; 1] = [Plot::new(
    "by-step",
    "Offered and received rate by step",
    Series::Columns("Steps", "step", &["offered_bps", "received_bps"]),
)];

const STEPS: Unit = Unit::Load("steps");

static PASSED: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("steps", "tested", STEPS, |r| (!r.steps.is_empty()).then_some(r.steps.len() as u64).into()),
    derived!("steps_passed", "passed", STEPS, |r| (!r.steps.is_empty()).then(|| r.steps_passed()).into()).good().leads(),
);

static SERVICE: &[Field<ServiceResult>] = fields!(ServiceResult:
    fact!("service", "service", |s| (&s.service).into()),
    fact!("verdict", "verdict", |s| match s.verdict {
        Verdict::Pass | Verdict::Completed => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Invalid => "void",
        Verdict::Incomplete => "incomplete",
    }.into()),
    derived!("steps", "steps", Unit::Count("steps"), |s| s.steps.into()),
    derived!("passed", "passed", Unit::Count("steps"), |s| s.passed.into()),
);

static STEP: &[Field<ServiceStep>] = fields!(ServiceStep:
    fact!("service", "service", |s| (&s.service).into()),
    fact!("step", "step", |s| (&s.step).into()),
    // Reports of early versions have no duration.
    derived!("duration_s", "time", Unit::Seconds, |s| s.duration_s.into()).show(Show::IfAny),
    gauge!(offered_bps, "offered", Unit::BitsPerSecond),
    gauge!(received_bps, "received", Unit::BitsPerSecond),
    derived!("loss", "loss", Unit::Share, |s| s.loss_ratio.into()).bad(),
    derived!("delay_ns", "delay", Unit::Nanoseconds, |s| (&s.delay_ns).into()).bad(),
    derived!("delay_max_ns", "longest delay", Unit::Nanoseconds, |s| s.delay_max_ns.map(|ns| ns as f64).into()).bad(),
    derived!("variation_ns", "variation", Unit::Nanoseconds, |s| s.variation_ns.map(|ns| ns as f64).into()).bad(),
    derived!("availability", "available", Unit::Share, |s| (&s.availability).into()).good(),
    fact!("result", "", |s| match (s.passed, s.void) {
        (true, _) => "pass",
        (false, true) => "void",
        (false, false) => "FAIL",
    }.into()),
);

impl SuiteResult {
    /// Number of steps of services that passed.
    fn steps_passed(&self) -> u64 {
        self.steps.iter().filter(|step| step.passed).count() as u64
    }
}

/// Service of ITU-T Y.1564.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Name in the report (default `service`).
    pub name: String,
    /// Name of the traffic job that sends the frames of this service. Default: the job of the suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Committed information rate: `20mbps-l2` counts frames with FCS, as services are sold; `20mbps` adds preamble and
    /// gap.
    pub cir: Rate,
    /// Excess information rate (default: none).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eir: Option<Rate>,
    /// Maximum frame delay (FTD).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Maximum frame delay variation (FDV): the difference of the longest and the shortest delay of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variation: Option<Span>,
    /// Maximum frame loss ratio, FLR (default 0).
    pub loss: Share,
    /// Minimum availability (AVAIL) in the performance test, which must then last at least 10s: the share of its time
    /// in which the service is available, such as `99.99%`. The service becomes unavailable with ten consecutive
    /// seconds in each of which more than half of the frames are lost. It becomes available again with ten consecutive
    /// seconds without such loss (ITU-T Y.1563).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability: Option<Share>,
    /// Duration of one step of the configuration test, at least 100ms (default 10s).
    pub step: Span,
    /// Duration of the performance test, at least 100 ms (default 15 min).
    pub performance: Span,
    /// Excess traffic that a policer may pass beyond CIR and EIR, as a share of their sum (default 1 %).
    pub tolerance: Share,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            name: "service".to_owned(),
            job: None,
            cir: Rate::Max,
            eir: None,
            delay: None,
            variation: None,
            loss: Share(0.0),
            availability: None,
            step: Span::from_secs(10),
            performance: Span::from_secs(15 * 60),
            tolerance: Share(0.01),
        }
    }
}

/// One step of a service (ITU-T Y.1564).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceStep {
    /// Name of the service.
    pub service: String,
    /// Name of the step: `CIR 25 %`, `CIR + EIR`, `policing`, `performance`.
    pub step: String,
    /// Offered rate at layer 2 with FCS, in bits per second.
    pub offered_bps: f64,
    /// Received information rate at layer 2 with FCS, in bits per second.
    pub received_bps: f64,
    /// Frame loss ratio.
    pub loss_ratio: f64,
    /// Mean frame delay, in ns.
    pub delay_ns: Option<f64>,
    /// Maximum frame delay, in ns.
    pub delay_max_ns: Option<i64>,
    /// Frame delay variation, in ns: the longest less the shortest delay.
    pub variation_ns: Option<i64>,
    /// Duration of the step in seconds; for an interrupted step, until the interruption.
    #[serde(default)]
    pub duration_s: f64,
    /// Availability in a performance test of at least 10 s: share of its time in which the service was available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub availability: Option<f64>,
    /// True if the step meets the criteria of the service.
    pub passed: bool,
    /// True if the trial is void: the criteria are neither met nor missed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
    /// Reason for the result.
    pub reason: String,
}

/// Verdict of a service over all its steps (ITU-T Y.1564).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceResult {
    /// Name of the service.
    pub service: String,
    /// `pass`: all steps meet the criteria; `fail`: at least one does not; `invalid`: none fails, and at least one is
    /// void; `incomplete`: none fails, and some were not run.
    pub verdict: Verdict,
    /// Number of steps run.
    pub steps: u32,
    /// Number of steps that passed.
    pub passed: u32,
    /// Reason for the verdict, one sentence.
    pub reason: String,
}
