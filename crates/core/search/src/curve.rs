//! One load after the other, downwards.

use crate::{Ask, Measurer, Purpose, Trial};

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

/// A loss curve, from the maximum downwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// One for each load that was tried.
    pub points: Vec<Point>,
    /// It went on until two loads in succession lost nothing, or no load was left; else time ran out.
    pub is_finished: bool,
}

/// Measures 100 %, 90 %, 80 % and so on of a maximum, until two loads in succession lose nothing.
///
/// A load that the tester could not offer or receive is kept in the curve as such, and is no loss-free one.
///
/// # Errors
/// What the measurer ends with.
pub fn loss_curve<M: Measurer>(measurer: &mut M, curve: &LossCurve) -> Result<Curve, M::Error> {
    let mut points = Vec::new();
    let mut without_loss = 0;
    for n in 0_u32.. {
        let load = curve.maximum * (1.0 - f64::from(n) * curve.step);
        // What is left of the last step by rounding is no load.
        let is_over = load.is_nan() || load < curve.maximum * 1e-9 || load <= 0.0;
        if without_loss == 2 || is_over || (n > 0 && curve.step <= 0.0) {
            break;
        }
        let ask = Ask {
            load,
            duration: None,
            purpose: Purpose::Search,
        };
        let Some(trial) = measurer.measure(&ask)? else {
            return Ok(Curve {
                points,
                is_finished: false,
            });
        };
        without_loss = match trial.is_valid() && trial.loss <= 0.0 {
            true => without_loss + 1,
            false => 0,
        };
        points.push(Point { load, trial });
    }
    Ok(Curve {
        points,
        is_finished: true,
    })
}
