//! Criteria of a run: `loss<=0.1%`, `p99<=500us`, `load.cps>=20k`, `probe.drops<=0`.

use std::{fmt, str::FromStr};

use wb_figures::text::{count, ratio_to, significant, time_ns, trimmed};
use wb_measure::Summary;

use crate::{
    bench::LbMetric,
    kinds::JobKind,
    spelling::nearest,
    units::{ParseUnitError, Rate, Rational, Span, parse_count, parse_number, string_serde},
};

/// Statistic of a distribution: the mean, a percentile or the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat(&'static str);

impl Stat {
    /// All statistics, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        let percentiles = Summary::PERCENTILES.iter().map(|(name, ..)| *name);
        let names = std::iter::once("mean").chain(percentiles);
        names.chain(std::iter::once("max")).map(Self)
    }

    /// Name in criteria and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// Value of the statistic in ns; `None` if there are no samples.
    #[must_use]
    pub fn of(self, times: &Summary) -> Option<f64> {
        times.statistic(self.0)
    }
}

/// Metric of a criterion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Lost frames as a share of offered frames.
    Loss,
    /// Unsent frames as a share of intended frames.
    Unsent,
    /// Duplicate frames as a share of offered frames.
    Duplicates,
    /// Reordered frames as a share of offered frames.
    Reordered,
    /// Connections that failed, or are open at the end, as a share of attempted connections.
    Failed,
    /// HTTP responses with a status of 400 or more as a share of all responses.
    Errors,
    /// Latency of frames; for loads the time from a request to its complete response; for socket tests the duration of
    /// an operation.
    Latency(Stat),
    /// Time from SYN to SYN-ACK.
    Connect(Stat),
    /// Time from an HTTP request to its complete response; with a rate or an interval, from the scheduled time of the
    /// request.
    Http(Stat),
    /// Lost frames.
    Lost,
    /// Frames received per second; frames sent if nothing is received.
    Pps,
    /// Bits received per second at layer 2 with FCS; bits sent if nothing is received. For socket tests the throughput;
    /// for a benchmark the limit.
    Bps,
    /// Connections established per second of the duration; for a benchmark the limit.
    Cps,
    /// Responses per second of the duration.
    Rps,
    /// Transactions per second of a socket test.
    Tps,
    /// Connections open at the end of the duration.
    Open,
    /// Increase of a counter of a probe, or the maximum of a gauge.
    Counter(String),
    /// Limit that a benchmark searches.
    Limit(LbMetric),
    /// Result of a test suite.
    Found(Figure),
}

/// Result of a test suite at a frame size; each figure belongs to one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Highest load without loss, or within the loss that the search allows.
    Throughput(Counted),
    /// Highest load that meets an MLRsearch goal without loss.
    Ndr(Counted),
    /// Highest load that meets an MLRsearch goal with loss.
    Pdr(Counted),
    /// Highest forwarding rate.
    Mfr(Counted),
    /// Mean of the longest bursts without loss, in frames.
    B2b,
    /// Time from the end of the overload to the last lost frame, the maximum over all repetitions.
    Recovery,
    /// Time in which the device did not forward.
    Reset,
}

/// Unit of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Frames, connections or requests per second, or connections.
    Number,
    /// Bits per second at layer 1.
    L1,
    /// Bits per second at layer 2.
    L2,
    /// Share of the line rate.
    OfLine,
}

impl Counted {
    /// All units.
    pub const ALL: [Self; 4] = [Self::Number, Self::L1, Self::L2, Self::OfLine];
}

/// Constructor of a figure that is a load, from its unit.
type OfLoad = fn(Counted) -> Figure;

const LOADS: [(&str, OfLoad); 4] = [
    ("throughput", Figure::Throughput),
    ("ndr", Figure::Ndr),
    ("pdr", Figure::Pdr),
    ("mfr", Figure::Mfr),
];

/// Type of a metric's values.
#[derive(Clone, Copy)]
enum Unit {
    Share,
    Time,
    Number,
    /// Number or rate.
    Load(OfLoad),
}

const SHARES: [(&str, Metric); 6] = [
    ("loss", Metric::Loss),
    ("unsent", Metric::Unsent),
    ("duplicates", Metric::Duplicates),
    ("reordered", Metric::Reordered),
    ("failed", Metric::Failed),
    ("errors", Metric::Errors),
];

/// Constructor of a time metric, from its statistic.
type Time = fn(Stat) -> Metric;

/// Prefixes of times other than the latency.
const TIMES: [(&str, Time); 3] = [
    ("connect_", Metric::Connect),
    ("http_", Metric::Http),
    ("", Metric::Latency),
];

const NUMBERS: [(&str, Metric); 7] = [
    ("lost", Metric::Lost),
    ("pps", Metric::Pps),
    ("bps", Metric::Bps),
    ("cps", Metric::Cps),
    ("rps", Metric::Rps),
    ("tps", Metric::Tps),
    ("open", Metric::Open),
];

/// Limits of a benchmark without a name among the metrics of jobs.
const LIMITS: [LbMetric; 4] = [
    LbMetric::OnewayPps,
    LbMetric::TwowayPps,
    LbMetric::Cc,
    LbMetric::Elephant,
];

/// Times that a suite measures.
const INTERVALS: [(&str, Figure); 2] = [("recovery", Figure::Recovery), ("reset", Figure::Reset)];

impl Metric {
    fn named(name: &str) -> Option<(Self, Unit)> {
        let find = |list: &[(&str, Self)], unit| {
            let found = list.iter().find(|(n, _)| *n == name);
            found.map(|(_, metric)| (metric.clone(), unit))
        };
        let time = TIMES.iter().find_map(|(word, of)| {
            let stat = name.strip_prefix(word)?;
            let stat = Stat::all().find(|known| known.name() == stat)?;
            Some((of(stat), Unit::Time))
        });
        let limit = LIMITS.iter().find(|limit| limit.name() == name);
        find(&SHARES, Unit::Share)
            .or(time)
            .or_else(|| find(&NUMBERS, Unit::Number))
            .or_else(|| limit.map(|l| (Self::Limit(*l), Unit::Number)))
            .or_else(|| Self::found(name))
    }

    /// Returns true if it is a rate per second.
    const fn is_per_second(&self) -> bool {
        matches!(
            self,
            Self::Pps | Self::Bps | Self::Cps | Self::Rps | Self::Tps
        )
    }

    /// Unit after a number of this metric.
    const fn unit(&self) -> &'static str {
        match self {
            Self::Found(
                Figure::Throughput(counted)
                | Figure::Ndr(counted)
                | Figure::Pdr(counted)
                | Figure::Mfr(counted),
            ) => match counted {
                Counted::L1 => "bps",
                Counted::L2 => "bps-l2",
                Counted::Number | Counted::OfLine => "",
            },
            _ => "",
        }
    }

    fn found(name: &str) -> Option<(Self, Unit)> {
        let load = LOADS.iter().find(|(n, _)| *n == name);
        let interval = INTERVALS.iter().find(|(n, _)| *n == name);
        let load = load.map(|(_, of)| (of(Counted::Number), Unit::Load(*of)));
        let interval = || interval.map(|(_, figure)| (*figure, Unit::Time));
        let burst = || (name == "b2b").then_some((Figure::B2b, Unit::Number));
        let (figure, unit) = load.or_else(interval).or_else(burst)?;
        Some((Self::Found(figure), unit))
    }
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
}

impl CriterionLimit {
    /// Returns the limit as a number: share of 1, nanoseconds, or count.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn as_f64(&self) -> f64 {
        match self {
            Self::Share(share) => share.as_f64(),
            Self::Time(time) => time.as_nanos() as f64,
            Self::Number(number) => number.as_f64(),
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
        Ok(CriterionLimit::Number(limit)) => {
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
    /// Metric.
    pub metric: Metric,
    /// Required side of the limit.
    pub bound: Bound,
    /// Limit.
    pub limit: CriterionLimit,
}

impl Criterion {
    /// Creates a criterion for all jobs that measure the metric.
    #[must_use]
    pub const fn at_most(metric: Metric, limit: CriterionLimit) -> Self {
        Self {
            kind: None,
            job: None,
            metric,
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
fn load(text: &str) -> Option<(Counted, CriterionLimit)> {
    let whole = |n: Rational| (n.denominator() == 1).then_some(CriterionLimit::Number(n));
    if let Ok(number) = parse_count(text) {
        return Some((
            Counted::Number,
            CriterionLimit::Number(Rational::whole(number)),
        ));
    }
    match text.parse().ok()? {
        Rate::Max => None,
        Rate::Pps(n) => Some((Counted::Number, whole(n)?)),
        Rate::L1(n) => Some((Counted::L1, whole(n)?)),
        Rate::L2(n) => Some((Counted::L2, whole(n)?)),
        Rate::Percent(_) => Some((
            Counted::OfLine,
            CriterionLimit::Share(parse_share(text).ok()?),
        )),
    }
}

/// Parses the limit of a time, which needs a unit: `p99<=500` would otherwise mean 500 seconds and always pass.
fn time(text: &str) -> Option<CriterionLimit> {
    let unit = text.contains(|c: char| c.is_alphabetic());
    let limit = text.parse().ok()?;
    (unit || limit == Span::default()).then_some(CriterionLimit::Time(limit))
}

/// Results of the tests of a suite.
const FIGURES: [&str; 7] = [
    "throughput",
    "ndr",
    "pdr",
    "mfr",
    "b2b",
    "recovery",
    "reset",
];

/// Returns the message about an unknown metric: similar ones, or all.
fn unknown_metric(name: &str) -> String {
    let of = |list: &[(&'static str, Metric)]| list.iter().map(|(n, _)| *n).collect::<Vec<_>>();
    let stats: Vec<&str> = Stat::all().map(Stat::name).collect();
    let limits: Vec<&str> = LIMITS.iter().map(|limit| limit.name()).collect();
    let (shares, numbers) = (of(&SHARES), of(&NUMBERS));
    let prefixes = ["", "connect_", "http_"];
    let times: Vec<String> = (prefixes.iter())
        .flat_map(|prefix| stats.iter().map(move |stat| format!("{prefix}{stat}")))
        .collect();
    let all = [&shares[..], &numbers, &limits, &FIGURES].concat();
    let all = all.into_iter().chain(times.iter().map(String::as_str));
    let similar = nearest(name, all);
    if !similar.is_empty() {
        return format!(
            "unknown metric {name:?}; did you mean {}?",
            similar.join(" or ")
        );
    }
    format!(
        "unknown metric {name:?}: use a share ({}), a time ({}, also with connect_ or http_ before it), a number ({}, \
         probe.COUNTER), or a result of a benchmark ({}, {})",
        shares.join(", "),
        stats.join(", "),
        numbers.join(", "),
        limits.join(", "),
        FIGURES.join(", ")
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
                metric: Metric::Counter(counter.to_owned()),
                bound,
                limit: number(limit)?,
            });
        }
        let (whose, name) = match name.rsplit_once('.') {
            Some((whose, name)) => (Some(whose), name),
            None => (None, name),
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
        let (metric, unit) = Metric::named(name).ok_or_else(|| error(&unknown_metric(name)))?;
        let mut metric = metric;
        let limit = match unit {
            Unit::Load(of) => {
                let (counted, limit) = load(limit).ok_or_else(|| {
                    error("expected a number or a rate as its limit: 50k, 1mpps, 40mbps-l2, 90%")
                })?;
                metric = Metric::Found(of(counted));
                limit
            }
            Unit::Share => parse_share(limit)
                .map(CriterionLimit::Share)
                .map_err(|_| error("expected a share as its limit: 0, 0.1%, 0.001"))?,
            Unit::Time => time(limit)
                .ok_or_else(|| error("expected a time with a unit as its limit: 500us, 2ms"))?,
            Unit::Number if metric.is_per_second() => parse_number(limit)
                .map(CriterionLimit::Number)
                .map_err(|_| error("expected a number as its limit: 0.5, 20k, 1.5m"))?,
            Unit::Number => number(limit)?,
        };
        Ok(Self {
            kind,
            job,
            metric,
            bound,
            limit,
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency(s) => f.write_str(s.name()),
            Self::Connect(s) => write!(f, "connect_{}", s.name()),
            Self::Http(s) => write!(f, "http_{}", s.name()),
            Self::Counter(name) => f.write_str(name),
            Self::Limit(limit) => f.write_str(limit.name()),
            Self::Found(Figure::Throughput(_)) => f.write_str("throughput"),
            Self::Found(Figure::Ndr(_)) => f.write_str("ndr"),
            Self::Found(Figure::Pdr(_)) => f.write_str("pdr"),
            Self::Found(Figure::Mfr(_)) => f.write_str("mfr"),
            Self::Found(Figure::B2b) => f.write_str("b2b"),
            Self::Found(Figure::Recovery) => f.write_str("recovery"),
            Self::Found(Figure::Reset) => f.write_str("reset"),
            other => {
                let mut all = SHARES.iter().chain(&NUMBERS);
                f.write_str(all.find(|(_, m)| m == other).map_or("", |(name, _)| name))
            }
        }
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
            CriterionLimit::Number(n) => write!(f, "{n}{}", self.metric.unit()),
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
