//! Search from a small load or the maximum, guided by the load forwarded and by geometric middles.

use crate::{
    ACCIDENT, LimitCause, LoadOutcome, Measurer, Purpose, Search, SearchResult, Trial, TrialRequest,
};

/// A tester that offered less than this share of a load cannot offer more than it did.
const CLEARLY_LESS: f64 = 0.98;
/// Upper bound above the load offered by the tester, as a factor: close enough that no trial fits in between.
const TESTER_MAY_DO: f64 = 1.002;
/// If the tester cannot offer a load again, the load that it did offer counts as confirmed if it is at least this
/// share.
const STILL_WORTH: f64 = 0.75;

/// State of the search.
#[derive(Debug, Default)]
struct KnownBounds {
    /// Highest load that held.
    low: Option<f64>,
    /// Lowest load that did not hold, with the cause.
    high: Option<(f64, LimitCause)>,
    /// Load forwarded at the lowest load that did not hold.
    guess: f64,
    /// Set after the guess held: distance from the highest load that held to the next one, in steps of the resolution.
    steps: Option<f64>,
}

impl KnownBounds {
    /// Reason why no higher load held.
    fn bound(&self) -> LimitCause {
        self.high.map_or(LimitCause::Maximum, |(_, bound)| bound)
    }

    fn did_not_hold(&mut self, load: f64, through: f64, bound: LimitCause) {
        if self.high.is_none_or(|(high, _)| load <= high) {
            self.high = Some((load, bound));
            self.guess = through;
            self.steps = None;
        }
        // The latest result of the device counts: a load that held earlier but fails now is not its limit.
        if bound == LimitCause::Device && self.low.is_some_and(|low| low >= load) {
            self.low = None;
        }
    }

    fn held(&mut self, load: f64) {
        // The device forwarded this much of a higher load, so its limit is close: continue in doubling steps.
        self.steps = match self.steps {
            Some(steps) => Some(2.0 * steps),
            None => (self.high.is_some() && load == self.guess).then_some(2.0),
        };
        self.low = Some(self.low.map_or(load, |low| low.max(load)));
        if self.high.is_some_and(|(high, _)| high <= load) {
            self.high = None;
        }
    }

    fn add_trial(&mut self, load: f64, trial: &Trial) {
        match trial.outcome {
            LoadOutcome::Held => self.held(load),
            LoadOutcome::Broke => {
                self.did_not_hold(trial.offered.min(load), trial.through, LimitCause::Device);
            }
            LoadOutcome::Unoffered => {
                let offered = trial.offered.min(load);
                if is_whole(trial) {
                    self.held(offered);
                }
                let above = match offered < load * CLEARLY_LESS {
                    true => (offered * TESTER_MAY_DO).max(load * ACCIDENT),
                    false => load,
                };
                self.did_not_hold(above, trial.through.min(offered), LimitCause::Tester);
            }
            LoadOutcome::Unread => {
                let through = trial.through.max(load * ACCIDENT);
                self.did_not_hold(load, through, LimitCause::Tester);
            }
        }
    }

    /// Returns true if the bounds are within the resolution.
    fn is_narrow(&self, search: &Search) -> bool {
        match (self.low, self.high) {
            (Some(low), Some((high, _))) => high - low <= high * search.resolution,
            (Some(low), None) => low >= search.maximum,
            (None, Some((high, _))) => high <= search.minimum,
            (None, None) => false,
        }
    }

    fn next(&self, search: &Search) -> f64 {
        let middle = |low: f64, high: f64| (low * high).sqrt();
        let load = match (self.low, self.high) {
            (Some(low), Some((high, _))) if self.steps.is_some() => {
                let above = self.steps.unwrap_or(0.0) * search.resolution;
                (low * (1.0 + above)).min(middle(low, high))
            }
            (None, None) => search.first,
            (Some(low), None) => low * search.growth,
            (Some(low), Some((high, _))) if self.guess > low * 1.05 && self.guess < high * 0.95 => {
                self.guess
            }
            // Geometric middle, because the resolution is a ratio.
            (Some(low), Some((high, _))) => middle(low, high),
            (None, Some((high, _))) if self.guess > 0.0 && self.guess < high * 0.9 => self.guess,
            (None, Some((high, _))) => high / 2.0,
        };
        load.clamp(search.minimum, search.maximum)
    }
}

/// Returns true if the complete load offered was forwarded.
fn is_whole(trial: &Trial) -> bool {
    trial.through >= trial.offered * (1.0 - 1e-9)
}

const fn request(load: f64, purpose: Purpose) -> TrialRequest {
    TrialRequest {
        load,
        duration: None,
        purpose,
    }
}

/// Finds the highest load that holds, with the parameters of [`Search`].
///
/// # Errors
/// Returns the error of the measurer.
pub fn search<M: Measurer>(measurer: &mut M, search: &Search) -> Result<SearchResult, M::Error> {
    let mut known = KnownBounds::default();
    let mut trials = 0;
    let mut finished = false;
    while trials < search.most_trials {
        if known.is_narrow(search) {
            finished = true;
            break;
        }
        let load = known.next(search);
        let Some(trial) = measurer.measure(&request(load, Purpose::Search))? else {
            break;
        };
        trials += 1;
        known.add_trial(load, &trial);
        // There is no load below the minimum to try.
        if known.low.is_none() && load <= search.minimum {
            finished = true;
            break;
        }
    }
    finished |= known.is_narrow(search);
    let mut found = SearchResult {
        best: known.low,
        confirmed: false,
        beyond: known.high.map(|(high, _)| high),
        bound: if finished {
            known.bound()
        } else {
            LimitCause::Unfinished
        },
        near_maximum: None,
        trials,
    };
    confirm(measurer, search, &mut known, &mut found)?;
    Ok(found)
}

/// Repeats the best load until it holds again. After each failure, steps down to the load forwarded, at least twice as
/// far as before. Then halves the interval between the last two until it is within the resolution.
fn confirm<M: Measurer>(
    measurer: &mut M,
    search: &Search,
    known: &mut KnownBounds,
    found: &mut SearchResult,
) -> Result<(), M::Error> {
    let Some(mut load) = known.low.filter(|_| search.most_confirmations > 0) else {
        return Ok(());
    };
    let mut step = search.resolution;
    let mut failed: Option<(f64, LimitCause)> = None;
    let mut through = f64::INFINITY;
    found.best = None;
    for _ in 0..search.most_confirmations {
        let Some(trial) = measurer.measure(&request(load, Purpose::Confirm))? else {
            match found.best {
                // The load held once, and there was no time to repeat it.
                None => found.best = Some(load),
                // There was no time for the interval in between.
                Some(_) => found.bound = LimitCause::Unfinished,
            }
            return Ok(());
        };
        found.trials += 1;
        match trial.outcome {
            LoadOutcome::Held => (found.best, found.confirmed) = (Some(load), true),
            // The load that the tester did offer has held for the full length.
            LoadOutcome::Unoffered if trial.offered >= load * STILL_WORTH && is_whole(&trial) => {
                let best = trial.offered.min(load);
                if found.best.is_none_or(|held| held < best) {
                    (found.best, found.confirmed) = (Some(best), true);
                    found.bound = LimitCause::Tester;
                }
                return Ok(());
            }
            LoadOutcome::Broke => {
                failed = Some((load, LimitCause::Device));
                through = trial.through;
            }
            LoadOutcome::Unoffered | LoadOutcome::Unread => {
                failed = Some((load, LimitCause::Tester))
            }
        }
        if let Some((beyond, bound)) = failed {
            (found.beyond, found.bound) = (Some(beyond), bound);
        }
        load = match (found.best, failed) {
            (Some(held), Some((beyond, _))) if beyond - held > beyond * search.resolution => {
                (held * beyond).sqrt()
            }
            (Some(_), _) => return Ok(()),
            (None, _) => {
                // The load forwarded is a better guess, unless the device carries less under overload.
                let steps = |n: f64| load * (1.0 - n * step).max(0.1);
                let next = through.clamp(steps(8.0), steps(1.0));
                step *= 2.0;
                next
            }
        };
        if load < search.minimum {
            break;
        }
    }
    // Without a confirmed load, the result claims nothing.
    if found.bound != LimitCause::Tester {
        found.bound = LimitCause::Unfinished;
    }
    Ok(())
}
