//! Halving what is between a load that held and one that did not.

use std::time::Duration;

use crate::{Ask, Bound, Found, Measurer, Outcome, Purpose};

/// Clocks of Ethernet may differ by 100 ppm at each end, so a device that times frames anew may have to
/// lose some of a load above this share of line rate.
pub(crate) const SLOWEST_CLOCK: f64 = 0.9998;

/// A binary search (RFC 2544 section 26.1), with loss verification where `repeats` is above 0 (ETSI GS
/// NFV-TST 009 section 12.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binary {
    /// No load above it is tried.
    pub maximum: f64,
    /// No load below it is tried.
    pub minimum: f64,
    /// The first load; where it holds the maximum comes next.
    pub first: f64,
    /// It ends when the best load and the least that failed differ by no more than this, in the unit of the
    /// loads.
    pub resolution: f64,
    /// A load passes when its loss ratio is no more than this: 0 for throughput and NDR, more for PDR.
    pub loss_goal: f64,
    /// How often a trial that fails is repeated at the same load at most. With 1 or more, what is found
    /// passes in at least one of so many trials and one.
    pub repeats: u32,
    /// Trials of the search take so long, and the result is confirmed at full length; none: all trials are
    /// of full length.
    pub search_duration: Option<Duration>,
    /// Full length; none: as long as the measurer's trials are.
    pub final_duration: Option<Duration>,
    /// Loads at most that are tried to confirm the result; each is less than the one before by the resolution.
    pub most_confirmations: u32,
    /// Trials at most, without those that confirm the result.
    pub most_trials: u32,
}

impl Binary {
    /// From `maximum` downwards without loss, to within 0.1 % of it.
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

/// A search among whole numbers for the largest that passes, where smaller ones pass if a larger one does:
/// the frames of a burst, the addresses of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integers {
    /// Taken to pass and never tried: inclusive.
    pub low: u64,
    /// Taken to fail and never tried: exclusive. Up to 2^53.
    pub high: u64,
    /// It ends when the largest that passed and the least that failed differ by no more than this; at least
    /// 1.
    pub resolution: u64,
    /// How often a trial that fails is repeated at most.
    pub repeats: u32,
}

/// A search among whole numbers without a known upper limit: twice as much until something gives way, then
/// the middle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubling {
    /// The first number; at least 1.
    pub start: u64,
    /// No number above it is tried: inclusive. Up to 2^53.
    pub maximum: u64,
    /// It ends when the best and the least that failed differ by no more than this share of the best, or by
    /// 1.
    pub resolution: f64,
    /// How often a trial that fails is repeated at most.
    pub repeats: u32,
    /// Trials at most.
    pub most_trials: u32,
}

/// Makes trials, and counts them.
struct Prober<'a, M> {
    measurer: &'a mut M,
    loss_goal: f64,
    repeats: u32,
    duration: Option<Duration>,
    purpose: Purpose,
    trials: u32,
    most_trials: u32,
}

/// What is known of a load.
#[derive(Clone, Copy)]
enum Verdict {
    Pass,
    Fail,
    /// The tester could not offer or receive it; it offered so much.
    Tester(f64),
}

impl<M: Measurer> Prober<'_, M> {
    /// The first repetition that passes makes the load pass. Nothing when trials or time run out.
    fn probe(&mut self, load: f64) -> Result<Option<Verdict>, M::Error> {
        let mut repeats = self.repeats;
        loop {
            if self.trials >= self.most_trials {
                return Ok(None);
            }
            let ask = Ask {
                load,
                duration: self.duration,
                purpose: self.purpose,
            };
            let Some(trial) = self.measurer.measure(&ask)? else {
                return Ok(None);
            };
            self.trials += 1;
            match trial.outcome {
                Outcome::Unoffered => return Ok(Some(Verdict::Tester(trial.offered))),
                Outcome::Unread => return Ok(Some(Verdict::Tester(load))),
                _ if trial.loss <= self.loss_goal => return Ok(Some(Verdict::Pass)),
                _ if repeats == 0 => return Ok(Some(Verdict::Fail)),
                _ => repeats -= 1,
            }
        }
    }
}

/// What lies between what passed and what failed, and where to go in it.
struct Bracket<N> {
    /// The highest that passed, or what is taken to.
    low: f64,
    /// The least that failed, and whose fault it was.
    high: Option<(f64, Bound)>,
    minimum: f64,
    /// By how much a load grows while nothing failed.
    growth: f64,
    maximum: f64,
    /// Whole numbers only.
    is_whole: bool,
    is_narrow: N,
}

impl<N: Fn(f64, f64) -> bool> Bracket<N> {
    fn rounded(&self, load: f64) -> f64 {
        if self.is_whole { load.floor() } else { load }
    }

    /// The load to be tried next; nothing when it is enough.
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

    /// Goes on until it is enough, and tells whether it came so far. The first load that the tester cannot
    /// offer caps the maximum: what it did offer is tried next.
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
                Verdict::Pass => self.low = load,
                Verdict::Fail => self.high = Some((load, Bound::Device)),
                Verdict::Tester(offered) => {
                    self.high = Some((load, Bound::Tester));
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

    fn found(&self, finished: bool, best: Option<f64>, trials: u32) -> Found {
        let reached = self.high.map_or(Bound::Maximum, |(_, bound)| bound);
        Found {
            best,
            confirmed: best.is_some(),
            beyond: self.high.map(|(high, _)| high),
            bound: if finished { reached } else { Bound::Unfinished },
            near_maximum: None,
            trials,
        }
    }
}

/// Finds the highest load whose loss ratio is within the goal.
///
/// From `low` = 0 and no `high`: a load that passes becomes `low`, one that fails `high`, the next is
/// (`low` + `high`) / 2, until `high` - `low` is no more than the resolution; the result is `low`. That
/// takes 1 + ceil(log2(maximum / resolution)) trials at most where the first load is the maximum, and one
/// more where the maximum alone fails: see [`Found::near_maximum`].
///
/// What the tester cannot offer or receive is no word on the device. The first time the search goes on
/// with what was offered, later with the middle, and ends with [`Bound::Tester`] where nothing the device
/// failed at is above the result.
///
/// After a search with short trials the result is repeated at full length, less by the resolution each time it
/// fails. Where nothing holds at full length there is no result.
///
/// # Errors
/// What the measurer ends with.
pub fn binary<M: Measurer>(measurer: &mut M, binary: &Binary) -> Result<Found, M::Error> {
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
    if finished && bracket.high == Some((binary.maximum, Bound::Device)) && bracket.low < near {
        match prober.probe(near)? {
            Some(Verdict::Pass) => {
                bracket.low = near;
                near_maximum = Some(true);
            }
            Some(Verdict::Fail) => {
                bracket.high = Some((near, Bound::Device));
                near_maximum = Some(false);
            }
            Some(Verdict::Tester(_)) => {}
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

/// Repeats the best load at full length, less by the resolution each time it does not hold.
fn confirm<M: Measurer>(
    prober: &mut Prober<'_, M>,
    binary: &Binary,
    found: &mut Found,
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
            // Of what held in a short trial only the first is known.
            None => {
                found.bound = Bound::Unfinished;
                return Ok(());
            }
            Some(Verdict::Pass) => {
                (found.best, found.confirmed) = (Some(load), true);
                return Ok(());
            }
            Some(Verdict::Fail) => found.bound = Bound::Device,
            Some(Verdict::Tester(offered)) => {
                found.bound = Bound::Tester;
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
        Bound::Tester => Bound::Tester,
        _ => Bound::Unfinished,
    };
    Ok(())
}

/// Finds the largest whole number that passes: `low` if nothing else does.
///
/// The next is `low` + floor((`high` - `low`) / 2), until `high` - `low` is no more than the resolution (RFC
/// 2889 section 5.7; RFC 9004 section 5). [`Bound::Maximum`] says that nothing failed: then the limit is at
/// least the result, and whoever searches for a burst has to raise `high`. A trial passes when its loss ratio
/// is 0.
///
/// # Errors
/// What the measurer ends with.
pub fn integers<M: Measurer>(measurer: &mut M, integers: &Integers) -> Result<Found, M::Error> {
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
        high: Some((integers.high as f64, Bound::Maximum)),
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

/// Finds the largest whole number that passes, from a small one upwards.
///
/// Doubles until the first failure; then the next is the middle, rounded down, until `high` - `low` is no more
/// than max(1, resolution · `low`). A trial passes when its loss ratio is 0.
///
/// # Errors
/// What the measurer ends with.
pub fn doubling<M: Measurer>(measurer: &mut M, doubling: &Doubling) -> Result<Found, M::Error> {
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
