//! From a small load or the maximum, by what came through and by geometric middles.

use crate::{ACCIDENT, Ask, Bound, Found, Measurer, Outcome, Purpose, Search, Trial};

/// A tester that offered less than this share of a load cannot offer more than it did.
const CLEARLY_LESS: f64 = 0.98;
/// Upper bound of a search above what the tester offered, as a factor: too near for another trial between the two.
const TESTER_MAY_DO: f64 = 1.002;
/// A tester that could not confirm a load has confirmed what it offered, if that was no less a share of
/// it.
const STILL_WORTH: f64 = 0.75;

/// What is known of the loads so far.
#[derive(Debug, Default)]
struct Known {
    /// The highest that held.
    low: Option<f64>,
    /// The least that did not, and whose fault it was.
    high: Option<(f64, Bound)>,
    /// What came through the least load that did not hold.
    guess: f64,
    /// Since the guess held: how far above the highest load that held the next one is, in steps of the resolution.
    steps: Option<f64>,
}

impl Known {
    /// Whose fault it is that nothing higher held.
    fn bound(&self) -> Bound {
        self.high.map_or(Bound::Maximum, |(_, bound)| bound)
    }

    fn did_not_hold(&mut self, load: f64, through: f64, bound: Bound) {
        if self.high.is_none_or(|(high, _)| load <= high) {
            self.high = Some((load, bound));
            self.guess = through;
            self.steps = None;
        }
        // The device's latest word counts: what held before and does not now is not its limit.
        if bound == Bound::Device && self.low.is_some_and(|low| low >= load) {
            self.low = None;
        }
    }

    fn held(&mut self, load: f64) {
        // The device forwarded that much of more, so its limit is near: further away step by step, each twice the last.
        self.steps = match self.steps {
            Some(steps) => Some(2.0 * steps),
            None => (self.high.is_some() && load == self.guess).then_some(2.0),
        };
        self.low = Some(self.low.map_or(load, |low| low.max(load)));
        if self.high.is_some_and(|(high, _)| high <= load) {
            self.high = None;
        }
    }

    fn note(&mut self, load: f64, trial: &Trial) {
        match trial.outcome {
            Outcome::Held => self.held(load),
            Outcome::Broke => {
                self.did_not_hold(trial.offered.min(load), trial.through, Bound::Device);
            }
            Outcome::Unoffered => {
                let offered = trial.offered.min(load);
                if is_whole(trial) {
                    self.held(offered);
                }
                let above = match offered < load * CLEARLY_LESS {
                    true => (offered * TESTER_MAY_DO).max(load * ACCIDENT),
                    false => load,
                };
                self.did_not_hold(above, trial.through.min(offered), Bound::Tester);
            }
            Outcome::Unread => {
                let through = trial.through.max(load * ACCIDENT);
                self.did_not_hold(load, through, Bound::Tester);
            }
        }
    }

    /// Whether the two are as close as asked.
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
            // Equal shares, as the resolution is one.
            (Some(low), Some((high, _))) => middle(low, high),
            (None, Some((high, _))) if self.guess > 0.0 && self.guess < high * 0.9 => self.guess,
            (None, Some((high, _))) => high / 2.0,
        };
        load.clamp(search.minimum, search.maximum)
    }
}

/// Returns true if all that was offered came through.
fn is_whole(trial: &Trial) -> bool {
    trial.through >= trial.offered * (1.0 - 1e-9)
}

const fn ask(load: f64, purpose: Purpose) -> Ask {
    Ask {
        load,
        duration: None,
        purpose,
    }
}

/// Finds the highest load that holds, as [`Search`] says.
///
/// # Errors
/// What the measurer ends with.
pub fn search<M: Measurer>(measurer: &mut M, search: &Search) -> Result<Found, M::Error> {
    let mut known = Known::default();
    let mut trials = 0;
    let mut finished = false;
    while trials < search.most_trials {
        if known.is_narrow(search) {
            finished = true;
            break;
        }
        let load = known.next(search);
        let Some(trial) = measurer.measure(&ask(load, Purpose::Search))? else {
            break;
        };
        trials += 1;
        known.note(load, &trial);
        // Below the least load there is nothing to try.
        if known.low.is_none() && load <= search.minimum {
            finished = true;
            break;
        }
    }
    finished |= known.is_narrow(search);
    let mut found = Found {
        best: known.low,
        confirmed: false,
        beyond: known.high.map(|(high, _)| high),
        bound: if finished {
            known.bound()
        } else {
            Bound::Unfinished
        },
        near_maximum: None,
        trials,
    };
    confirm(measurer, search, &mut known, &mut found)?;
    Ok(found)
}

/// Repeats the best load until it holds again; each time it does not, steps down to what came through, at least twice as
/// far as before. Of the two last it then halves what is between, until they are as close as asked.
fn confirm<M: Measurer>(
    measurer: &mut M,
    search: &Search,
    known: &mut Known,
    found: &mut Found,
) -> Result<(), M::Error> {
    let Some(mut load) = known.low.filter(|_| search.most_confirmations > 0) else {
        return Ok(());
    };
    let mut step = search.resolution;
    let mut failed: Option<(f64, Bound)> = None;
    let mut through = f64::INFINITY;
    found.best = None;
    for _ in 0..search.most_confirmations {
        let Some(trial) = measurer.measure(&ask(load, Purpose::Confirm))? else {
            match found.best {
                // It held once, and there was no time to see it again.
                None => found.best = Some(load),
                // There was none for what lies between.
                Some(_) => found.bound = Bound::Unfinished,
            }
            return Ok(());
        };
        found.trials += 1;
        match trial.outcome {
            Outcome::Held => (found.best, found.confirmed) = (Some(load), true),
            // What it did offer has held for the full length.
            Outcome::Unoffered if trial.offered >= load * STILL_WORTH && is_whole(&trial) => {
                let best = trial.offered.min(load);
                if found.best.is_none_or(|held| held < best) {
                    (found.best, found.confirmed) = (Some(best), true);
                    found.bound = Bound::Tester;
                }
                return Ok(());
            }
            Outcome::Broke => {
                failed = Some((load, Bound::Device));
                through = trial.through;
            }
            Outcome::Unoffered | Outcome::Unread => failed = Some((load, Bound::Tester)),
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
                // What came through is a better guess, unless the device carries less the more it gets.
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
    // Where nothing held twice nothing is claimed.
    if found.bound != Bound::Tester {
        found.bound = Bound::Unfinished;
    }
    Ok(())
}
