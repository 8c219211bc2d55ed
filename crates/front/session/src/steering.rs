//! Wishes of whoever looks on while a run goes on: less, more, nothing for a while.

use std::sync::{Arc, Mutex, PoisonError};

use wb_model::{Plan, load::LoadEnd, load::LoadRate};

/// What is to change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steer {
    /// Nothing new: no connections, no requests. Those that are open stay.
    Pause,
    /// This share of the rate of the plan; also ends a pause.
    Rate(f64),
}

/// Where wishes wait for the run. Only clients of loads can follow them ([`Steering::is_followed_by`]).
#[derive(Clone, Debug, Default)]
pub struct Steering {
    wish: Arc<Mutex<Option<Steer>>>,
}

impl Steering {
    /// Asks for something; what was asked for before and not seen yet is forgotten.
    pub fn ask(&self, wish: Steer) {
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner) = Some(wish);
    }

    /// What was asked for since the last time.
    pub(crate) fn take(&self) -> Option<Steer> {
        let mut wish = self.wish.lock().unwrap_or_else(PoisonError::into_inner);
        wish.take()
    }

    /// Whether all that sends in a run of this plan would follow.
    #[must_use]
    pub fn is_followed_by(plan: &Plan) -> bool {
        let clients = plan.loads.iter().any(|job| job.end == LoadEnd::Client);
        let others = !(plan.traffic.is_empty()
            && plan.devices.is_empty()
            && plan.http_jobs.is_empty()
            && plan.sockets.is_empty()
            && plan.procedure.is_none());
        clients && !others
    }
}

/// A rate as it is wished.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
pub(crate) fn steered(planned: &LoadRate, wish: Steer) -> LoadRate {
    match wish {
        Steer::Pause => {
            let requests = planned.pps.is_none() && planned.bps.is_none();
            LoadRate {
                cps: Some(0),
                rps: planned.rps.map(|_| 0).or(requests.then_some(0)),
                pps: planned.pps.map(|_| 0),
                bps: planned.bps.map(|_| 0),
                ..*planned
            }
        }
        Steer::Rate(share) => {
            // One is the least that is not none.
            let of = |rate: Option<u64>| {
                rate.map(|n| match n {
                    0 | LoadRate::MAX => n,
                    n => ((n as f64 * share).round() as u64).max(1),
                })
            };
            LoadRate {
                cps: of(planned.cps),
                cc: of(planned.cc),
                rps: of(planned.rps),
                pps: of(planned.pps),
                bps: of(planned.bps),
                ..*planned
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_was_planned_and_a_pause_keeps_what_is_open() {
        let planned = LoadRate {
            cps: Some(1_000),
            cc: Some(3),
            ..LoadRate::default()
        };
        let less = steered(&planned, Steer::Rate(0.1));
        assert_eq!((less.cps, less.cc, less.rps), (Some(100), Some(1), None));
        let none = steered(&planned, Steer::Pause);
        assert_eq!((none.cps, none.cc, none.rps), (Some(0), Some(3), Some(0)));
        assert_eq!(steered(&planned, Steer::Rate(1.0)), planned);
        let datagrams = LoadRate {
            pps: Some(9),
            ..LoadRate::default()
        };
        let none = steered(&datagrams, Steer::Pause);
        assert_eq!((none.rps, none.pps), (None, Some(0)));
    }

    #[test]
    fn the_last_wish_counts_and_is_seen_once() {
        let steering = Steering::default();
        steering.ask(Steer::Pause);
        steering.ask(Steer::Rate(0.5));
        assert_eq!(steering.clone().take(), Some(Steer::Rate(0.5)));
        assert_eq!(steering.take(), None);
    }
}
