//! Criteria of a run: `loss<=0.1%`, `p99<=500us`, `load.cps>=20k`, `probe.drops<=0`.

use std::{collections::BTreeSet, fmt, str::FromStr, sync::LazyLock};

use wb_figures::{
    Kind, Section, Unit,
    text::{count, ratio_to, significant, time_ns, trimmed},
};
use wb_measure::Summary;

use crate::{
    bench::LbMetric,
    frames::Frames,
    http::HttpJobReport,
    kinds::JobKind,
    load::LoadJobReport,
    report::{CaptureReport, Totals},
    spelling::nearest,
    units::{ParseUnitError, Rate, Rational, Span, parse_count, parse_number, string_serde},
};

/// Jobs of one kind together, for criteria.
pub trait Measured {
    /// Figures of the jobs; metrics of criteria are their names.
    fn section(&self) -> Section<'_>;

    /// Frames and connections that the criteria cover.
    fn totals(&self) -> Totals {
        Totals::default()
    }

    /// Longest outage in ns, if outages are measured.
    fn longest_outage_ns(&self) -> Option<u64> {
        None
    }
}

/// Statistics of a distribution that criteria can name, in order: the mean, percentiles, the maximum.
pub fn statistics() -> impl Iterator<Item = &'static str> {
    let percentiles = Summary::PERCENTILES.iter().map(|(name, ..)| *name);
    std::iter::once("mean").chain(percentiles).chain(["max"])
}

/// Form of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Share,
    Time,
    /// A whole number.
    Count,
    /// A number that may be fractional.
    Rate,
    /// A load: a whole number, a bit rate, or a share of the line rate.
    Load,
}

impl From<Unit> for Form {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Share => Self::Share,
            Unit::Nanoseconds => Self::Time,
            Unit::None | Unit::Count(_) | Unit::Bytes => Self::Count,
            Unit::Load(_) | Unit::Megabits => Self::Load,
            Unit::PerSecond(_) | Unit::BitsPerSecond | Unit::Seconds | Unit::Percent => Self::Rate,
        }
    }
}

/// Results of a suite at a frame size; each belongs to one test.
const RESULTS: [(&str, Form); 7] = [
    ("throughput", Form::Load),
    ("ndr", Form::Load),
    ("pdr", Form::Load),
    ("mfr", Form::Load),
    ("b2b", Form::Count),
    ("recovery", Form::Time),
    ("reset", Form::Time),
];

/// Limits of a load balancer with names that no figure has.
const LIMITS: [LbMetric; 4] = [
    LbMetric::OnewayPps,
    LbMetric::TwowayPps,
    LbMetric::Cc,
    LbMetric::Elephant,
];

/// A figure of a kind of job.
struct Known {
    kind: JobKind,
    name: String,
    form: Form,
    /// True if its table declares the name for criteria; other figures have their own name.
    is_declared: bool,
}

/// Figures of all kinds of jobs. Declared names come first.
static CATALOG: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let (frames, load) = (Frames::default(), LoadJobReport::default());
    let (http, capture) = (HttpJobReport::default(), CaptureReport::default());
    let kinds: [(JobKind, &dyn Measured); 6] = [
        (JobKind::Traffic, &frames),
        (JobKind::Devices, &frames),
        (JobKind::Socket, &frames),
        (JobKind::Load, &load),
        (JobKind::Http, &http),
        (JobKind::Capture, &capture),
    ];
    let each = kinds.iter();
    let mut all: Vec<Known> = each
        .flat_map(|(kind, of)| known(*kind, &of.section()))
        .collect();
    all.sort_by_key(|known| !known.is_declared);
    all
});

fn known(kind: JobKind, section: &Section<'_>) -> Vec<Known> {
    let mut all = Vec::new();
    let mut add = |name: String, form, is_declared| {
        all.push(Known {
            kind,
            name,
            form,
            is_declared,
        });
    };
    for def in section.figures.iter().map(|figure| figure.def) {
        match def.kind {
            Kind::Fact => {}
            Kind::Distribution => {
                for (prefix, statistic) in
                    (def.judged.iter()).flat_map(|prefix| statistics().map(move |s| (prefix, s)))
                {
                    let name = match *prefix {
                        "" => statistic.to_owned(),
                        prefix => format!("{prefix}_{statistic}"),
                    };
                    add(name, Form::Time, true);
                }
            }
            _ => {
                let names = def.judged.iter();
                names.for_each(|name| add((*name).to_owned(), def.unit.into(), true));
                if !def.judged.contains(&def.name) {
                    add(def.name.to_owned(), def.unit.into(), false);
                }
            }
        }
    }
    all
}

/// Form of the limit of a metric.
fn form(name: &str) -> Option<Form> {
    let result = RESULTS.iter().find(|(known, _)| *known == name);
    let limit = LIMITS.iter().find(|limit| limit.name() == name);
    let figure = || CATALOG.iter().find(|known| known.name == name);
    (result.map(|(_, form)| *form))
        .or(limit.map(|_| Form::Count))
        .or_else(|| figure().map(|known| known.form))
}

/// Returns true if the metric is a load that a suite finds.
pub(crate) fn is_load(name: &str) -> bool {
    form(name) == Some(Form::Load)
}

/// Returns true if the metric is a figure that no table declares for criteria.
#[must_use]
pub fn is_plain(name: &str) -> bool {
    let mut same = CATALOG.iter().filter(|known| known.name == name).peekable();
    same.peek().is_some() && same.all(|known| !known.is_declared)
}

/// Returns true if jobs of the kind have a figure of this name that no table declares for criteria. The plan decides
/// about the declared ones.
pub(crate) fn is_plain_figure(kind: JobKind, name: &str) -> bool {
    let is_of_kind = |known: &Known| known.kind == kind && known.name == name;
    is_plain(name) && CATALOG.iter().any(is_of_kind)
}

/// Value to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CriterionLimit {
    /// Share from 0 to 1.
    Share(Rational),
    /// Duration.
    Time(Span),
    /// Count, or rate per second, which may be fractional.
    Number(Rational),
    /// Bits per second at layer 1.
    L1(Rational),
    /// Bits per second at layer 2.
    L2(Rational),
}

impl CriterionLimit {
    /// Returns the limit as a number: share of 1, nanoseconds, or count.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn as_f64(&self) -> f64 {
        match self {
            Self::Share(share) => share.as_f64(),
            Self::Time(time) => time.as_nanos() as f64,
            Self::Number(n) | Self::L1(n) | Self::L2(n) => n.as_f64(),
        }
    }
}

/// Returns a measured value in the unit of its criterion, with enough digits to differ from the limit: `500 us` next to
/// `p99<=500us` would not show why the criterion failed.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#[allow(clippy::cast_sign_loss)]
pub fn measured_text(criterion: &str, value: f64) -> String {
    match criterion.parse::<Criterion>().map(|c| c.limit) {
        Ok(CriterionLimit::Share(limit)) => {
            let limit = limit.as_f64();
            (2..=12)
                .map(|places| (ratio_to(value, places), ratio_to(limit, places)))
                .find_map(|(text, limit_text)| (text != limit_text).then_some(text))
                .unwrap_or_else(|| ratio_to(value, 2))
        }
        Ok(CriterionLimit::Time(limit)) => {
            let limit = limit.as_nanos() as f64;
            let text = time_ns(value);
            if value != limit && text == time_ns(limit) {
                format!("{} us", trimmed(&significant(value / 1e3, 12)))
            } else {
                text
            }
        }
        Ok(limit) => {
            let (whole, limit) = (value.max(0.0).round(), limit.as_f64());
            match limit.fract() != 0.0 || whole == limit && value != whole {
                true => trimmed(&significant(value, 12)).to_owned(),
                false => count(whole as u64),
            }
        }
        Err(_) => significant(value, 6),
    }
}

/// Side of the limit on which a metric must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// At or below the limit.
    AtMost,
    /// At or above the limit.
    AtLeast,
}

/// Criterion of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Criterion {
    /// Kind of the jobs, if several kinds have the metric.
    pub kind: Option<JobKind>,
    /// Name of the only job that is checked; otherwise all jobs of its kind together.
    pub job: Option<String>,
    /// Name of the metric: of a figure, of a statistic of a distribution (`p99`, `connect_p99`), of a result of a
    /// benchmark, or of a counter of a probe.
    pub metric: String,
    /// Required side of the limit.
    pub bound: Bound,
    /// Limit.
    pub limit: CriterionLimit,
}

impl Criterion {
    /// Creates a criterion for all jobs that measure the metric.
    #[must_use]
    pub fn at_most(metric: &str, limit: CriterionLimit) -> Self {
        Self {
            kind: None,
            job: None,
            metric: metric.to_owned(),
            bound: Bound::AtMost,
            limit,
        }
    }

    /// Returns true if a value meets the criterion.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        match self.bound {
            Bound::AtMost => value <= self.limit.as_f64(),
            Bound::AtLeast => value >= self.limit.as_f64(),
        }
    }
}

/// Parses a share: `1%`, `0.1%`, `0.001` or `0`.
///
/// # Errors
/// Returns an error if the text is not a number, or the share exceeds 1.
pub fn parse_share(text: &str) -> Result<Rational, ParseUnitError> {
    let error =
        || ParseUnitError::new(text, "a share: a percentage (0.1%) or a number from 0 to 1");
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(n) => (n, 100),
        None => (text.trim(), 1),
    };
    let value = Rational::parse_decimal(number.trim()).map_err(|_| error())?;
    let share = value.over(Rational::whole(scale)).ok_or_else(error)?;
    if share.numerator() > share.denominator() {
        Err(error())
    } else {
        Ok(share)
    }
}

/// Parses a load as a limit: a number, a rate of whole frames or bits, or a share of the line rate.
fn load(text: &str) -> Option<CriterionLimit> {
    if let Ok(number) = parse_count(text) {
        return Some(CriterionLimit::Number(Rational::whole(number)));
    }
    let whole = |n: &Rational| n.denominator() == 1;
    match text.parse().ok()? {
        Rate::Pps(n) => Some(CriterionLimit::Number(n)).filter(|_| whole(&n)),
        Rate::L1(n) => Some(CriterionLimit::L1(n)).filter(|_| whole(&n)),
        Rate::L2(n) => Some(CriterionLimit::L2(n)).filter(|_| whole(&n)),
        Rate::Percent(_) => parse_share(text).ok().map(CriterionLimit::Share),
        Rate::Max => None,
    }
}

/// Parses the limit of a time, which needs a unit: `p99<=500` would otherwise mean 500 seconds and always pass.
fn time(text: &str) -> Option<CriterionLimit> {
    let unit = text.contains(|c: char| c.is_alphabetic());
    let limit = text.parse().ok()?;
    (unit || limit == Span::default()).then_some(CriterionLimit::Time(limit))
}

/// Returns the message about an unknown metric: similar ones, or all.
fn unknown_metric(name: &str) -> String {
    let declared = |form: Form| {
        let mut names: Vec<&str> = Vec::new();
        for known in CATALOG.iter().filter(|k| k.is_declared && k.form == form) {
            if !names.contains(&known.name.as_str()) {
                names.push(&known.name);
            }
        }
        names
    };
    let results = RESULTS.iter().map(|(name, _)| *name);
    let results: Vec<&str> = LIMITS.iter().map(|l| l.name()).chain(results).collect();
    let all = CATALOG.iter().map(|known| known.name.as_str());
    let all: BTreeSet<&str> = all.chain(results.iter().copied()).collect();
    let similar = nearest(name, all);
    if !similar.is_empty() {
        return format!(
            "unknown metric {name:?}; did you mean {}?",
            similar.join(" or ")
        );
    }
    let numbers = [declared(Form::Count), declared(Form::Rate)].concat();
    format!(
        "unknown metric {name:?}: use a share ({}), a time ({}, also with connect_ or http_ before it), a number ({}, \
         probe.COUNTER, the name of a figure in the CSV), or a result of a benchmark ({})",
        declared(Form::Share).join(", "),
        statistics().collect::<Vec<_>>().join(", "),
        numbers.join(", "),
        results.join(", ")
    )
}

impl FromStr for Criterion {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = |what: &str| ParseUnitError::new(text, format!("a criterion: {what}"));
        let (name, bound, limit) = [("<=", Bound::AtMost), (">=", Bound::AtLeast)]
            .into_iter()
            .find_map(|(sign, bound)| text.split_once(sign).map(|(n, l)| (n.trim(), bound, l)))
            .ok_or_else(|| error("METRIC<=LIMIT or METRIC>=LIMIT, such as loss<=0.1%"))?;
        let number = |limit: &str| {
            let number = parse_count(limit).map(|n| CriterionLimit::Number(Rational::whole(n)));
            number.map_err(|_| error("expected a whole number as its limit: 0, 20k, 1.5m"))
        };
        let probe = format!("{}.", JobKind::Probe.name());
        if let Some(counter) = name.strip_prefix(&probe) {
            return Ok(Self {
                kind: Some(JobKind::Probe),
                job: None,
                metric: counter.to_owned(),
                bound,
                limit: number(limit)?,
            });
        }
        // Reports print `p99.9`, and criteria accept it for `p999`.
        let label = Summary::PERCENTILES.iter().find(|(_, label, _)| {
            let rest = name.strip_suffix(label);
            label.contains('.')
                && rest.is_some_and(|rest| !rest.ends_with(|c: char| c.is_alphanumeric()))
        });
        let name = &match label {
            Some((own, label, _)) => name.trim_end_matches(label).to_owned() + own,
            None => name.to_owned(),
        };
        let (whose, name) = match name.rsplit_once('.') {
            Some((whose, name)) => (Some(whose), name),
            None => (None, name.as_str()),
        };
        let kind_of = |word: &str| JobKind::ALL.into_iter().find(|kind| kind.name() == word);
        let (kind, job) = match whose {
            None => (None, None),
            Some(whose) => match (kind_of(whose), whose.split_once('.')) {
                (Some(kind), _) => (Some(kind), None),
                (None, Some((first, rest))) if kind_of(first).is_some() => {
                    (kind_of(first), Some(rest.to_owned()))
                }
                (None, _) => (None, Some(whose.to_owned())),
            },
        };
        let limit = match form(name).ok_or_else(|| error(&unknown_metric(name)))? {
            Form::Load => load(limit).ok_or_else(|| {
                error("expected a number or a rate as its limit: 50k, 1mpps, 40mbps-l2, 90%")
            })?,
            Form::Share => parse_share(limit)
                .map(CriterionLimit::Share)
                .map_err(|_| error("expected a share as its limit: 0, 0.1%, 0.001"))?,
            Form::Time => time(limit)
                .ok_or_else(|| error("expected a time with a unit as its limit: 500us, 2ms"))?,
            Form::Rate => parse_number(limit)
                .map(CriterionLimit::Number)
                .map_err(|_| error("expected a number as its limit: 0.5, 20k, 1.5m"))?,
            Form::Count => number(limit)?,
        };
        Ok(Self {
            kind,
            job,
            metric: name.to_owned(),
            bound,
            limit,
        })
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = self.kind {
            write!(f, "{}.", kind.name())?;
        }
        if let Some(job) = &self.job {
            write!(f, "{job}.")?;
        }
        let sign = match self.bound {
            Bound::AtMost => "<=",
            Bound::AtLeast => ">=",
        };
        write!(f, "{}{sign}", self.metric)?;
        match self.limit {
            CriterionLimit::Share(s) => match s.times(Rational::whole(100)) {
                Some(percent) => write!(f, "{percent}%"),
                None => write!(f, "{s}"),
            },
            CriterionLimit::Time(t) => t.fmt(f),
            CriterionLimit::Number(n) => n.fmt(f),
            CriterionLimit::L1(n) => write!(f, "{n}bps"),
            CriterionLimit::L2(n) => write!(f, "{n}bps-l2"),
        }
    }
}

string_serde!(
    Criterion,
    "Criterion",
    "a criterion METRIC<=LIMIT or METRIC>=LIMIT, with KIND. or JOB. before the metric if several jobs measure it",
    "loss<=0.1%"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for text in [
            "loss<=0.1%",
            "p99<=500us",
            "reordered<=0%",
            "errors<=1%",
            "max<=1ms",
            "load.p99<=1ms",
            "web.http_p999<=20ms",
            "load.web 1.cps>=20000",
            "cps>=0.5",
            "tps<=2.25",
            "connect_mean<=1ms",
            "open>=1000000",
            "capture.lost<=0",
            "probe.nft.drops<=0",
            "bench.oneway-pps>=100000",
            "loss>=100%",
            "throughput>=50000",
            "64.throughput>=40000000bps-l2",
            "imix.ndr>=1000000bps",
            "bench.7a4d1g.pdr>=90%",
            "b2b>=1000",
            "recovery<=1s",
            "reset<=10s",
        ] {
            assert_eq!(text.parse::<Criterion>().unwrap().to_string(), text);
        }
        assert_eq!(
            "loss<=0.001".parse::<Criterion>().unwrap().to_string(),
            "loss<=0.1%"
        );
        for text in ["p99.9<=1ms", "load.connect_p99.99<=1ms", "web.p99.999<=1ms"] {
            let printed = text.parse::<Criterion>().unwrap().to_string();
            assert_eq!(printed, text.replacen("p99.", "p99", 1));
        }
        assert_eq!(
            "ndr>=1.5mpps".parse::<Criterion>().unwrap().to_string(),
            "ndr>=1500000"
        );
        for text in [
            "",
            "loss",
            "loss<1",
            "loss<=500us",
            "p99<=1%",
            "p99<=500",
            "loss<=101%",
            "speed<=1",
            "open>=1.5",
            "open>=1%",
            "http_loss<=1ms",
            "probe.drops<=1%",
            "throughput>=max",
            "throughput>=1.5",
            "throughput>=0.5pps",
            "ndr>=101%",
            "recovery<=1",
            "b2b>=1s",
        ] {
            assert!(text.parse::<Criterion>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_measured_value_differs_from_its_limit() {
        for (criterion, value, text) in [
            ("loss<=0.1%", 0.002, "0.2 %"),
            ("loss<=0.1%", 0.001_000_01, "0.100001 %"),
            ("loss<=0.1%", 0.001, "0.1 %"),
            ("p99<=500us", 23_100.0, "23.1 us"),
            ("p99<=500us", 500_123.0, "500.123 us"),
            ("p99<=500us", 500_000.0, "500 us"),
            ("cps>=20k", 12_345.4, "12,345"),
            ("cps>=20k", 19_999.75, "19999.75"),
            ("probe.drops<=0", 3.0, "3"),
        ] {
            assert_eq!(measured_text(criterion, value), text, "{criterion}");
        }
    }

    #[test]
    fn figures_are_metrics_by_their_names() {
        for (text, kind) in [
            ("no_tuple<=0", JobKind::Load),
            ("rx_pps>=1", JobKind::Load),
            ("retried<=0", JobKind::Http),
            ("buffer_waits<=0", JobKind::Capture),
            ("late_frames<=1k", JobKind::Traffic),
        ] {
            let criterion: Criterion = text.parse().unwrap();
            assert!(is_plain_figure(kind, &criterion.metric), "{text}");
        }
        assert!(
            !is_plain_figure(JobKind::Load, "failed") && !is_plain_figure(JobKind::Load, "retried")
        );
    }

    #[test]
    fn each_metric_has_one_form_of_limit() {
        for known in CATALOG.iter() {
            let mut same = CATALOG.iter().filter(|other| other.name == known.name);
            let is_clear =
                |other: &Known| other.form == known.form || known.is_declared != other.is_declared;
            assert!(same.all(is_clear), "{}", known.name);
        }
    }

    #[test]
    fn misspelt_metrics_get_suggestions() {
        let refused = |text: &str| text.parse::<Criterion>().unwrap_err().to_string();
        for (text, message) in [
            ("p98<=1ms", "unknown metric \"p98\"; did you mean p9"),
            ("los<=1%", "did you mean loss"),
            ("connect_p9<=1ms", "did you mean connect_p9"),
            (
                "banana<=1",
                "unknown metric \"banana\": use a share (loss, ",
            ),
        ] {
            assert!(refused(text).contains(message), "{}", refused(text));
        }
    }
}
