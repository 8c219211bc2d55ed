//! Results of a suite as sections.

use wb_figures::{Def, Field, Kind, Section, Show, Tone, Unit, Value, derived, fields, text};

use super::{FPS, FamilyFrames, SuitePlan, SuiteTest, lb};
use crate::{
    bench::{LbLimit, Quantity, SuiteResult},
    figures::FRAMES,
    report::Report,
};

/// Sections of all results of a suite, test by test.
#[must_use]
pub fn sections(report: &Report) -> Vec<Section<'_>> {
    let mut tests: Vec<SuiteTest> = Vec::new();
    for result in &report.results {
        if !tests.contains(&result.test) {
            tests.push(result.test);
        }
    }
    let plan = report.plan.suite();
    let of = |test| report.results.iter().filter(move |r| r.test == test);
    let all = tests.into_iter().flat_map(of);
    all.map(|result| section(plan, result)).collect()
}

static COMMON: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("spread", "spread", Unit::Share, |r| (&r.spread).into()).show(Show::Never),
);

/// Returns true if sections of this kind are results of a benchmark.
#[must_use]
pub fn is_test(kind: &str) -> bool {
    kind == SuiteTest::Lb.name() || SuiteTest::ALL.iter().any(|test| test.name() == kind)
}

/// Section of one result.
#[must_use]
pub fn section<'a>(plan: Option<&SuitePlan>, r: &'a SuiteResult) -> Section<'a> {
    let test = r.test.def();
    let mut section = Section::new(test.name, test.heading, r.subject(), String::new());
    section.parameters = r.parameters().into();
    section = section.note(Tone::Bad, r.headline());
    section = (test.add_to)(r, plan, section).figures(COMMON, r);
    section = families(r, section);
    if r.of != Quantity::Frames {
        let loads = [
            "limit",
            "beyond",
            "conditional",
            "tester_ceiling",
            "maximum",
            "offered",
            "load",
        ];
        let of_load = |unit: Unit| unit == FPS;
        section = section.units(|name, unit| match loads.contains(&name) && of_load(unit) {
            true => Unit::Load(r.of.unit()),
            false => unit,
        });
    }
    // A limit of the tester is neither good nor bad for the device.
    if r.is_tester_limit() {
        section = section.neutral(&["limit", "conditional", "frmol_fps"]);
    }
    if r.not_measured.is_some() {
        section = section.hide_all();
        return section;
    }
    let both = (r.directions > 1).then(|| "rates are per direction".to_owned());
    let spread = r.spread.map(|spread| {
        let spread = text::ratio(spread);
        format!("repeated measurements differ by {spread} of their mean")
    });
    section = section.note(Tone::Term, both).note(Tone::Plain, spread);
    for note in &r.notes {
        section = section.note(Tone::Plain, Some(note.clone()));
    }
    section
}

/// Adds the frames of each version of IP, for mixes: in the trial at the limit, and at each load of a loss curve.
fn families<'a>(r: &'a SuiteResult, section: Section<'a>) -> Section<'a> {
    let columns = vec![
        Def::new("load", "load", Unit::Share, Kind::Derived),
        Def::new("family", "version", Unit::None, Kind::Fact),
        Def::new("offered", "offered", FPS, Kind::Derived),
        Def::new("forwarded", "forwarded", FPS, Kind::Derived),
        Def::new("sent", "sent", FRAMES, Kind::Counter),
        Def::new("lost", "lost", FRAMES, Kind::Counter).bad(),
        Def::new("loss", "loss", Unit::Share, Kind::Derived).bad(),
    ];
    let row = |load: Option<f64>, own: &FamilyFrames| {
        vec![
            load.into(),
            Value::Text(own.family.name().into()),
            own.offered_fps.into(),
            own.forwarded_fps.into(),
            own.tx.into(),
            own.lost.into(),
            own.loss_ratio().into(),
        ]
    };
    let at_limit = r.families.iter().map(|own| row(None, own));
    let by_load = r.curve.iter().flat_map(|at| {
        let of = move |own| row(Some(at.load_pct / 100.0), own);
        at.families.iter().map(of)
    });
    let rows: Vec<_> = at_limit.chain(by_load).collect();
    section.rows("IPv4 and IPv6", columns, rows)
}

impl SuiteResult {
    /// Name without the test: `64 B`, `64 B pdr`, `cps`, `64 B in bursts of 16`.
    #[must_use]
    pub fn subject(&self) -> String {
        let metric = self.balancer.as_ref().map(|own| own.metric.name());
        let mut parts: Vec<String> = metric.map(str::to_owned).into_iter().collect();
        match (self.size.as_str(), metric) {
            ("", Some(_)) => {}
            ("", None) => parts.push(self.of.name().to_owned()),
            (own, _) => parts.push(size_text(own)),
        }
        parts.extend(self.goal.clone());
        let burst = self.burst.as_ref();
        parts.extend(burst.map(|burst| in_bursts(burst.frames)));
        parts.join(" ")
    }

    /// Name: `throughput 64 B`, `ndr 64 B pdr`, `throughput cps`.
    #[must_use]
    pub fn title(&self) -> String {
        match self.balancer {
            Some(_) => self.subject(),
            None => format!("{} {}", self.test.name(), self.subject()),
        }
    }

    /// Unit of the loads of its trials: bursts are counted in frames.
    #[must_use]
    pub fn trial_unit(&self) -> &'static str {
        match &self.balancer {
            Some(own) => own.metric.load_unit(),
            None => self.test.trial_unit(self.of),
        }
    }

    /// Names and values of what differs between the results of a test.
    fn parameters(&self) -> Vec<(String, String)> {
        let metric = self.balancer.as_ref().map(|own| own.metric.name());
        let size = match (self.size.as_str(), metric) {
            ("", Some(_)) => ("size", None),
            ("", None) => ("quantity", Some(self.of.name().to_owned())),
            (own, _) => ("size", Some(own.to_owned())),
        };
        let burst = self.burst.as_ref();
        let all = [
            ("metric", metric.map(str::to_owned)),
            size,
            ("goal", self.goal.clone()),
            ("burst", burst.map(|burst| burst.frames.to_string())),
        ];
        let known = all.into_iter();
        known
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }

    /// Limiting component of the result, in one or two words.
    #[must_use]
    pub fn limiter(&self) -> &'static str {
        let is_at_line_rate = || {
            let of_line = self.limit.zip(self.theoretical_fps);
            let is_all = of_line.is_some_and(|(limit, line)| limit >= line * (1.0 - 1e-9));
            self.of == Quantity::Frames && is_all
        };
        match self.limited_by {
            _ if self.not_measured.is_some() => "not measured",
            _ if self.tester_limit => "tester",
            _ if self.limit.is_none() && !self.test.def().searches => "nothing forwarded",
            _ if self.limit.is_none() => "none passed",
            _ if is_at_line_rate() => "line rate",
            None => "",
            Some(by) => by.name(),
        }
    }

    /// Returns true if the tester, not the device, was the limit.
    #[must_use]
    pub fn is_tester_limit(&self) -> bool {
        self.tester_limit || self.limited_by == Some(LbLimit::Tester) && self.limit.is_some()
    }

    /// The most important statement about a result: the tester was the limit, nothing was measured, the test was stopped
    /// early, or no load passed. `None` for an ordinary result.
    #[must_use]
    pub fn headline(&self) -> Option<String> {
        let load = |load: f64| match &self.balancer {
            Some(_) => lb::unit(self).text(load),
            None => format!("{} {}", text::load(load), self.unit),
        };
        let finds = self.test.finds_limit();
        if let Some(why) = self.late() {
            return Some(format!("no result: {why}"));
        }
        if let Some(why) = &self.not_measured {
            return Some(format!("not measured: {why}"));
        }
        let ceiling = self.tester_ceiling.map(load);
        let ceiling = ceiling.map_or_else(String::new, |most| {
            format!("; the tester alone reaches {most}")
        });
        let text = match self.limit {
            Some(limit) if finds && self.is_tester_limit() => {
                format!("tester limit: at least {}{ceiling}", load(limit))
            }
            None if finds && self.is_tester_limit() => {
                format!("tester limit: no load could be tested{ceiling}")
            }
            Some(limit) if finds && self.incomplete => {
                format!("stopped early: at least {}", load(limit))
            }
            _ if self.incomplete => "stopped early".to_owned(),
            None if finds && !self.test.def().searches => "nothing was forwarded".to_owned(),
            None if finds => "no tested load passed".to_owned(),
            _ => return None,
        };
        Some(text)
    }

    /// Share of the line rate. A tiny difference between two numbers that are computed in different ways counts as
    /// none.
    pub(super) fn of_line(&self, fps: Option<f64>) -> Option<f64> {
        let share = fps? / self.theoretical_fps?;
        Some(if (share - 1.0).abs() < 1e-9 {
            1.0
        } else {
            share
        })
    }

    /// Smallest gap between two bursts, in ns.
    pub(super) fn burst_gap_ns(&self) -> Option<f64> {
        Some(self.burst.as_ref()?.gap_us? * 1e3)
    }
}

/// A frame size as the plan has it, with its unit: `64 B`, `imix`.
#[must_use]
pub fn size_text(size: &str) -> String {
    match size.is_empty() || size.contains(|c: char| !c.is_ascii_digit()) {
        true => size.to_owned(),
        false => format!("{size} B"),
    }
}

/// Spacing of the frames of a run, unless it is even.
#[must_use]
pub fn in_bursts(frames: u32) -> String {
    format!("in bursts of {}", text::count(frames.into()))
}

/// Text of a number in per cent.
pub(super) fn percent(pct: f64) -> String {
    text::ratio(pct / 100.0)
}
