//! Binary search between a load that passed and one that failed.

use std::time::Duration;

use crate::{LimitCause, LoadOutcome, Measurer, Purpose, SearchResult, TrialRequest};

/// Share of line rate that a device with the slowest allowed clock can forward. Ethernet clocks may differ by 100 ppm
/// at each end, so a device that retimes frames may have to drop part of a higher load.
pub(crate) const SLOWEST_CLOCK: f64 = 0.9998;

/// Binary search (RFC 2544 section 26.1), with loss verification if `repeats` is above 0 (ETSI GS NFV-TST 009 section
/// 12.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binary {
    /// Maximum load.
    pub maximum: f64,
    /// Minimum load.
    pub minimum: f64,
    /// First load. If it passes, the maximum comes next.
    pub first: f64,
    /// The search ends when the highest passing and the lowest failing load differ by at most this, in the unit of the
    /// loads.
    pub resolution: f64,
    /// Maximum loss ratio of a passing trial: 0 for throughput and NDR, more for PDR.
    pub loss_goal: f64,
    /// Maximum number of repetitions of a failed trial at the same load. The result passed at least one of `repeats` +
    /// 1 trials.
    pub repeats: u32,
    /// Duration of search trials; the result is then confirmed at full length. None: all trials have full length.
    pub search_duration: Option<Duration>,
    /// Full trial length. None: chosen by the measurer.
    pub final_duration: Option<Duration>,
    /// Maximum number of loads tried to confirm the result; each is lower than the previous one by the resolution.
    pub most_confirmations: u32,
    /// Maximum number of trials, without those that confirm the result.
    pub most_trials: u32,
}

impl Binary {
    /// Creates a search from `maximum` downwards without loss, with a resolution of 0.1 % of it.
    #[must_use]
    pub const fn up_to(maximum: f64) -> Self {
        Self {
            maximum,
            minimum: 0.0,
            first: maximum,
            resolution: maximum / 1000.0,
            loss_goal: 0.0,
            repeats: 0,
            search_duration: None,
            final_duration: None,
            most_confirmations: 10,
            most_trials: 200,
        }
    }
}

/// Search for the largest passing integer, given that smaller ones pass if a larger one does: frames of a burst,
/// addresses of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integers {
    /// Assumed to pass and never tried (inclusive).
    pub low: u64,
    /// Assumed to fail and never tried (exclusive). Up to 2^53.
    pub high: u64,
    /// The search ends when the largest passing and the smallest failing number differ by at most this; at least 1.
    pub resolution: u64,
    /// Maximum number of repetitions of a failed trial.
    pub repeats: u32,
}

/// Search for the largest passing integer without a known upper limit: doubles until a trial fails, then halves the
/// interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubling {
    /// First number, at least 1.
    pub start: u64,
    /// Maximum number (inclusive). Up to 2^53.
    pub maximum: u64,
    /// The search ends when the best and the smallest failing number differ by at most this share of the best, or by 1.
    pub resolution: f64,
    /// Maximum number of repetitions of a failed trial.
    pub repeats: u32,
    /// Maximum number of trials.
    pub most_trials: u32,
}

/// Runs and counts trials.
struct Prober<'a, M> {
    measurer: &'a mut M,
    loss_goal: f64,
    repeats: u32,
    duration: Option<Duration>,
    purpose: Purpose,
    trials: u32,
    most_trials: u32,
}

/// Verdict on a load.
#[derive(Clone, Copy)]
enum LoadVerdict {
    Pass,
    Fail,
    /// The tester could not offer or receive the load; this is what it offered.
    Tester(f64),
}

impl<M: Measurer> Prober<'_, M> {
    /// Tries one load; it passes with the first repetition that passes. Returns None when trials or time run out.
    fn probe(&mut self, load: f64) -> Result<Option<LoadVerdict>, M::Error> {
        let mut repeats = self.repeats;
        loop {
            if self.trials >= self.most_trials {
                return Ok(None);
            }
            let ask = TrialRequest {
                load,
                duration: self.duration,
                purpose: self.purpose,
            };
            let Some(trial) = self.measurer.measure(&ask)? else {
                return Ok(None);
            };
            self.trials += 1;
            match trial.outcome {
                LoadOutcome::Unoffered => return Ok(Some(LoadVerdict::Tester(trial.offered))),
                LoadOutcome::Unread => return Ok(Some(LoadVerdict::Tester(load))),
                _ if trial.loss <= self.loss_goal => return Ok(Some(LoadVerdict::Pass)),
                _ if repeats == 0 => return Ok(Some(LoadVerdict::Fail)),
                _ => repeats -= 1,
            }
        }
    }
}

/// Interval between the highest passing and the lowest failing load.
struct Bracket<N> {
    /// Highest load that passed or is assumed to pass.
    low: f64,
    /// Lowest load that failed, with the cause.
    high: Option<(f64, LimitCause)>,
    minimum: f64,
    /// Growth factor of the load until the first failure.
    growth: f64,
    maximum: f64,
    /// Only integers.
    is_whole: bool,
    is_narrow: N,
}

impl<N: Fn(f64, f64) -> bool> Bracket<N> {
    fn rounded(&self, load: f64) -> f64 {
        if self.is_whole { load.floor() } else { load }
    }

    /// Next load, or None at the end of the search.
    fn next(&self) -> Option<f64> {
        let Some((high, _)) = self.high else {
            return (self.low < self.maximum).then(|| (self.low * self.growth).min(self.maximum));
        };
        let middle = self
            .rounded(f64::midpoint(self.low, high))
            .max(self.minimum);
        let is_between = self.low < middle && middle < high;
        (is_between && !(self.is_narrow)(self.low, high)).then_some(middle)
    }

    /// Narrows the bracket. Returns false if trials or time ran out. The first load that the tester cannot offer caps the
    /// maximum: the load actually offered is tried next.
    fn close<M: Measurer>(
        &mut self,
        prober: &mut Prober<'_, M>,
        first: f64,
    ) -> Result<bool, M::Error> {
        let mut load = first;
        let mut cap = None;
        loop {
            let Some(verdict) = prober.probe(load)? else {
                return Ok(false);
            };
            let mut next = None;
            match verdict {
                LoadVerdict::Pass => self.low = load,
                LoadVerdict::Fail => self.high = Some((load, LimitCause::Device)),
                LoadVerdict::Tester(offered) => {
                    self.high = Some((load, LimitCause::Tester));
                    let offered = self.rounded(offered);
                    if cap.is_none() && offered < load && offered > self.low.max(self.minimum) {
                        cap = Some(offered);
                        next = cap;
                    }
                }
            }
            if cap == Some(self.low) {
                return Ok(true);
            }
            let Some(next) = next.or_else(|| self.next()) else {
                return Ok(true);
            };
            load = next;
        }
    }

    fn found(&self, finished: bool, best: Option<f64>, trials: u32) -> SearchResult {
        let reached = self.high.map_or(LimitCause::Maximum, |(_, bound)| bound);
        SearchResult {
            best,
            confirmed: best.is_some(),
            beyond: self.high.map(|(high, _)| high),
            bound: if finished {
                reached
            } else {
                LimitCause::Unfinished
            },
            near_maximum: None,
            trials,
        }
    }
}

/// Finds the highest load with a loss ratio within the goal.
///
/// Starts with `low` = 0 and no `high`. A passing load becomes `low`, a failing one `high`, and the next is (`low` +
/// `high`) / 2, until `high` - `low` is at most the resolution; the result is `low`. If the first load is the maximum,
/// this takes at most 1 + ceil(log2(maximum / resolution)) trials, plus one if only the maximum fails: see
/// [`SearchResult::near_maximum`].
///
/// A load that the tester cannot offer or receive says nothing about the device. The first time the search continues
/// with the load offered, later with the middle. It ends with [`LimitCause::Tester`] if the device failed at no load above
/// the result.
///
/// After a search with short trials the result is repeated at full length, reduced by the resolution after each
/// failure. There is no result if no load passes at full length.
///
/// # Errors
/// Returns the error of the measurer.
pub fn binary<M: Measurer>(measurer: &mut M, binary: &Binary) -> Result<SearchResult, M::Error> {
    let short = binary
        .search_duration
        .filter(|short| binary.final_duration.is_none_or(|full| *short < full));
    let mut prober = Prober {
        measurer,
        loss_goal: binary.loss_goal,
        repeats: binary.repeats,
        duration: short.or(binary.final_duration),
        purpose: Purpose::Search,
        trials: 0,
        most_trials: binary.most_trials,
    };
    let mut bracket = Bracket {
        low: 0.0,
        high: None,
        minimum: binary.minimum,
        growth: f64::INFINITY,
        maximum: binary.maximum,
        is_whole: false,
        is_narrow: |low, high| high - low <= binary.resolution,
    };
    let first = binary.first.max(binary.minimum).min(binary.maximum);
    let mut finished = bracket.close(&mut prober, first)?;
    let mut near_maximum = None;
    let near = binary.maximum * SLOWEST_CLOCK;
    if finished && bracket.high == Some((binary.maximum, LimitCause::Device)) && bracket.low < near
    {
        match prober.probe(near)? {
            Some(LoadVerdict::Pass) => {
                bracket.low = near;
                near_maximum = Some(true);
            }
            Some(LoadVerdict::Fail) => {
                bracket.high = Some((near, LimitCause::Device));
                near_maximum = Some(false);
            }
            Some(LoadVerdict::Tester(_)) => {}
            None => finished = false,
        }
    }
    let best = (bracket.low > 0.0).then_some(bracket.low);
    let mut found = bracket.found(finished, best, prober.trials);
    found.near_maximum = near_maximum;
    if short.is_some() {
        prober.duration = binary.final_duration;
        confirm(&mut prober, binary, &mut found)?;
    }
    Ok(found)
}

/// Repeats the best load at full length, reduced by the resolution after each failure.
fn confirm<M: Measurer>(
    prober: &mut Prober<'_, M>,
    binary: &Binary,
    found: &mut SearchResult,
) -> Result<(), M::Error> {
    found.confirmed = false;
    prober.purpose = Purpose::Confirm;
    prober.most_trials = u32::MAX;
    let Some(mut load) = found.best else {
        return Ok(());
    };
    for _ in 0..binary.most_confirmations {
        let verdict = prober.probe(load)?;
        found.trials = prober.trials;
        let mut next = load - binary.resolution;
        match verdict {
            // Only the first load is known to have passed a short trial.
            None => {
                found.bound = LimitCause::Unfinished;
                return Ok(());
            }
            Some(LoadVerdict::Pass) => {
                (found.best, found.confirmed) = (Some(load), true);
                return Ok(());
            }
            Some(LoadVerdict::Fail) => found.bound = LimitCause::Device,
            Some(LoadVerdict::Tester(offered)) => {
                found.bound = LimitCause::Tester;
                if offered < load {
                    next = offered;
                }
            }
        }
        (found.best, found.beyond) = (None, Some(load));
        load = next;
        if load <= 0.0 || load < binary.minimum {
            return Ok(());
        }
    }
    found.bound = match found.bound {
        LimitCause::Tester => LimitCause::Tester,
        _ => LimitCause::Unfinished,
    };
    Ok(())
}

/// Finds the largest passing integer; `low` if no other number passes.
///
/// The next number is `low` + floor((`high` - `low`) / 2), until `high` - `low` is at most the resolution (RFC 2889
/// section 5.7; RFC 9004 section 5). [`LimitCause::Maximum`] means that no trial failed: the limit is at least the result,
/// and a search for a burst must raise `high`. A trial passes when its loss ratio is 0.
///
/// # Errors
/// Returns the error of the measurer.
pub fn integers<M: Measurer>(
    measurer: &mut M,
    integers: &Integers,
) -> Result<SearchResult, M::Error> {
    let mut prober = Prober {
        measurer,
        loss_goal: 0.0,
        repeats: integers.repeats,
        duration: None,
        purpose: Purpose::Search,
        trials: 0,
        most_trials: u32::MAX,
    };
    let resolution = integers.resolution.max(1) as f64;
    let mut bracket = Bracket {
        low: integers.low as f64,
        high: Some((integers.high as f64, LimitCause::Maximum)),
        minimum: 0.0,
        growth: 1.0,
        maximum: integers.high as f64,
        is_whole: true,
        is_narrow: |low, high| high - low <= resolution,
    };
    let finished = match bracket.next() {
        Some(first) => bracket.close(&mut prober, first)?,
        None => true,
    };
    let mut found = bracket.found(finished, Some(bracket.low), prober.trials);
    found.confirmed = bracket.low > integers.low as f64;
    found.beyond = found.beyond.filter(|high| *high < integers.high as f64);
    Ok(found)
}

/// Finds the largest passing integer, starting with a small one.
///
/// Doubles until the first failure. Then the next number is the middle, rounded down, until `high` - `low` is no
/// more than max(1, resolution · `low`). A trial passes when its loss ratio is 0.
///
/// # Errors
/// Returns the error of the measurer.
pub fn doubling<M: Measurer>(
    measurer: &mut M,
    doubling: &Doubling,
) -> Result<SearchResult, M::Error> {
    let mut prober = Prober {
        measurer,
        loss_goal: 0.0,
        repeats: doubling.repeats,
        duration: None,
        purpose: Purpose::Search,
        trials: 0,
        most_trials: doubling.most_trials,
    };
    let mut bracket = Bracket {
        low: 0.0,
        high: None,
        minimum: 1.0,
        growth: 2.0,
        maximum: doubling.maximum as f64,
        is_whole: true,
        is_narrow: |low: f64, high: f64| high - low <= (doubling.resolution * low).max(1.0),
    };
    let first = doubling.start.max(1).min(doubling.maximum) as f64;
    let finished = bracket.close(&mut prober, first)?;
    let best = (bracket.low > 0.0).then_some(bracket.low);
    Ok(bracket.found(finished, best, prober.trials))
}
