//! Curves: measure one load after the other, in descending or ascending order.

use crate::{LoadOutcome, Measurer, Purpose, Trial, TrialRequest};

/// Loads of a loss curve (RFC 2544 section 26.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossCurve {
    /// First load.
    pub maximum: f64,
    /// Decrease from load to load as a share of the maximum, above 0; the RFC allows up to 0.1.
    pub step: f64,
}

/// One load of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Intended load.
    pub load: f64,
    /// Result. It says nothing about the device unless [`Trial::is_valid`].
    pub trial: Trial,
}

/// Curve, in the order of measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// One point for each load tried.
    pub points: Vec<Point>,
    /// True if all loads were measured or, in a loss curve, two consecutive loads had no loss; false if time ran out.
    pub is_finished: bool,
}

impl Curve {
    /// Point of the maximum forwarding rate (RFC 2285 section 3.6.3): highest load forwarded, regardless of loss. If
    /// several are equal, the lowest load counts. Points that the tester could not receive are excluded.
    #[must_use]
    pub fn maximum_forwarding_rate(&self) -> Option<&Point> {
        let known = self
            .points
            .iter()
            .filter(|point| point.trial.outcome != LoadOutcome::Unread);
        known.min_by(|a, b| {
            let by_through = b.trial.through.total_cmp(&a.trial.through);
            by_through.then(a.load.total_cmp(&b.load))
        })
    }
}

/// Loads of a search for the maximum forwarding rate (RFC 2889 section 5.6.1). The forwarding rate need not grow with
/// the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForwardingCurve {
    /// First load, above 0: the throughput.
    pub minimum: f64,
    /// Last load, always measured.
    pub maximum: f64,
    /// Increase from load to load as a share of the maximum, above 0.
    pub step: f64,
}

/// Measures 100 %, 90 %, 80 % and so on of a maximum, until two consecutive loads have no loss.
///
/// A load that the tester could not offer or receive stays in the curve with that outcome, and does not count as free
/// of loss.
///
/// # Errors
/// Returns the error of the measurer.
pub fn loss_curve<M: Measurer>(measurer: &mut M, curve: &LossCurve) -> Result<Curve, M::Error> {
    let loads = (0_u32..).map(|n| curve.maximum * (1.0 - f64::from(n) * curve.step));
    // A remainder from rounding is not a load.
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
/// Returns the error of the measurer.
pub fn forwarding_curve<M: Measurer>(
    measurer: &mut M,
    curve: &ForwardingCurve,
) -> Result<Curve, M::Error> {
    let ForwardingCurve {
        minimum, maximum, ..
    } = *curve;
    let loads = (0_u32..).map(|n| minimum + f64::from(n) * curve.step * maximum);
    // A remainder from rounding is not a step.
    let below = loads.take_while(|load| *load < maximum * (1.0 - 1e-9));
    let loads = with_one_step(below, curve.step).chain([maximum]);
    step(measurer, loads, |_| false)
}

/// Limits the loads to the first one if the step is not above 0.
fn with_one_step(loads: impl Iterator<Item = f64>, step: f64) -> impl Iterator<Item = f64> {
    loads.take(if step > 0.0 { usize::MAX } else { 1 })
}

/// Measures one load after the other until `is_last` returns true.
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
        let ask = TrialRequest {
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
