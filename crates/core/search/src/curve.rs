//! One load after the other, downwards or upwards.

use crate::{Ask, Measurer, Outcome, Purpose, Trial};

/// The loads of a loss curve (RFC 2544 section 26.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossCurve {
    /// The first load.
    pub maximum: f64,
    /// By what share of the maximum each load is less than the one before; above 0, the RFC allows up to
    /// 0.1.
    pub step: f64,
}

/// One load of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// What was asked for.
    pub load: f64,
    /// What it came to. Not a word on the device unless [`Trial::is_valid`].
    pub trial: Trial,
}

/// A curve, in the order it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// One for each load that was tried.
    pub points: Vec<Point>,
    /// It went on until no load was left or, of a loss curve, two in succession lost nothing; else time ran out.
    pub is_finished: bool,
}

impl Curve {
    /// The point of the maximum forwarding rate (RFC 2285 section 3.6.3): where most came through, whatever was lost; of
    /// equals the least load. What the tester could not receive is not known, and no such point.
    #[must_use]
    pub fn maximum_forwarding_rate(&self) -> Option<&Point> {
        let known = self
            .points
            .iter()
            .filter(|point| point.trial.outcome != Outcome::Unread);
        known.min_by(|a, b| {
            let by_through = b.trial.through.total_cmp(&a.trial.through);
            by_through.then(a.load.total_cmp(&b.load))
        })
    }
}

/// The loads of a search for the maximum forwarding rate (RFC 2889 section 5.6.1), which need not be where the
/// load is highest, nor on one slope with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForwardingCurve {
    /// The first load, above 0: the throughput.
    pub minimum: f64,
    /// The last load, whatever the step.
    pub maximum: f64,
    /// By what share of the maximum each load is more than the one before; above 0.
    pub step: f64,
}

/// Measures 100 %, 90 %, 80 % and so on of a maximum, until two loads in succession lose nothing.
///
/// A load that the tester could not offer or receive is kept in the curve as such, and is no loss-free one.
///
/// # Errors
/// What the measurer ends with.
pub fn loss_curve<M: Measurer>(measurer: &mut M, curve: &LossCurve) -> Result<Curve, M::Error> {
    let loads = (0_u32..).map(|n| curve.maximum * (1.0 - f64::from(n) * curve.step));
    // What is left of the last step by rounding is no load.
    let loads = loads.take_while(|load| *load > 0.0 && *load >= curve.maximum * 1e-9);
    let mut without_loss = 0;
    step(measurer, with_one_step(loads, curve.step), |trial| {
        without_loss = match trial.is_valid() && trial.loss <= 0.0 {
            true => without_loss + 1,
            false => 0,
        };
        without_loss == 2
    })
}

/// Measures every load from the minimum up to the maximum. See [`Curve::maximum_forwarding_rate`].
///
/// # Errors
/// What the measurer ends with.
pub fn forwarding_curve<M: Measurer>(
    measurer: &mut M,
    curve: &ForwardingCurve,
) -> Result<Curve, M::Error> {
    let ForwardingCurve {
        minimum, maximum, ..
    } = *curve;
    let loads = (0_u32..).map(|n| minimum + f64::from(n) * curve.step * maximum);
    // What is left to the maximum by rounding is no step.
    let below = loads.take_while(|load| *load < maximum * (1.0 - 1e-9));
    let loads = with_one_step(below, curve.step).chain([maximum]);
    step(measurer, loads, |_| false)
}

/// These loads; the first only where the step leads nowhere.
fn with_one_step(loads: impl Iterator<Item = f64>, step: f64) -> impl Iterator<Item = f64> {
    loads.take(if step > 0.0 { usize::MAX } else { 1 })
}

/// Measures one load after the other, until one is the last.
fn step<M: Measurer>(
    measurer: &mut M,
    loads: impl Iterator<Item = f64>,
    mut is_last: impl FnMut(&Trial) -> bool,
) -> Result<Curve, M::Error> {
    let mut curve = Curve {
        points: Vec::new(),
        is_finished: true,
    };
    for load in loads {
        let ask = Ask {
            load,
            duration: None,
            purpose: Purpose::Search,
        };
        let Some(trial) = measurer.measure(&ask)? else {
            curve.is_finished = false;
            break;
        };
        curve.points.push(Point { load, trial });
        if is_last(&trial) {
            break;
        }
    }
    Ok(curve)
}
