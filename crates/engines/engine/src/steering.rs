//! Rate changes that a program requests while a run continues: less, more, or a pause; of all clients of loads, or of
//! single streams.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use wb_model::{JobKind, Plan, load::LoadRate, units::Rate};

/// Requested change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steer {
    /// Start no new connections and no new requests. Open connections stay.
    Pause,
    /// Use this share of the planned rate. Also ends a pause.
    Rate(f64),
}

/// Requested change of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StreamSteer {
    /// Send no frames. They are not intended either.
    Off,
    /// Continue after a pause.
    On,
    /// Send at this rate from now on. Also ends a pause.
    Rate(Rate),
    /// Send no more frames. A run ends with the last of its streams.
    End,
}

/// A stream at this moment, and what can change about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// Name.
    pub name: String,
    /// False while it pauses.
    pub is_on: bool,
    /// Its rate, if it can change: `10kpps`.
    pub rate: Option<String>,
    /// Reason why it cannot change at all.
    pub fixed: Option<&'static str>,
}

/// Reason of a refusal: no stream of the run sends any more.
pub const ALL_SENT: &str = "all streams of the run have been sent";

/// Streams of a run that can change.
pub trait SteerStreams: Debug + Send + Sync {
    /// The streams with different names. None are left when all have been sent.
    fn states(&self) -> Vec<StreamState>;

    /// Changes streams by their names, all at the same time. A name stands for all streams that have it, for example
    /// those of both directions of a job.
    ///
    /// # Errors
    /// The reason why a stream cannot follow. No stream changes then.
    fn steer(&self, wishes: &[(String, StreamSteer)]) -> Result<(), String>;
}

/// Holds a requested change until the run takes it. Only clients of loads can follow changes
/// ([`Steering::is_followed_by`]). Streams take their changes at once.
#[derive(Clone, Debug, Default)]
pub struct Steering {
    wish: Arc<Mutex<Option<Steer>>>,
    streams: Arc<Mutex<Option<Arc<dyn SteerStreams>>>>,
    held: Arc<[String]>,
}

impl Steering {
    /// For a run in which these streams are off until a program switches them on.
    #[must_use]
    pub fn with_held(streams: Vec<String>) -> Self {
        Self {
            held: streams.into(),
            ..Self::default()
        }
    }

    /// Requests a change. It replaces a change that the run has not yet taken.
    pub fn ask(&self, wish: Steer) {
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner) = Some(wish);
    }

    /// Takes the change requested since the last call.
    pub fn take(&self) -> Option<Steer> {
        let mut wish = self.wish.lock().unwrap_or_else(PoisonError::into_inner);
        wish.take()
    }

    /// Sets the streams of a run that is about to start, and switches off those that do not start with it.
    ///
    /// # Errors
    /// The reason why a stream cannot be off.
    pub fn set_streams(&self, streams: Arc<dyn SteerStreams>) -> Result<(), String> {
        let held = self.held.iter();
        let off: Vec<_> = held.map(|name| (name.clone(), StreamSteer::Off)).collect();
        if !off.is_empty() {
            streams.steer(&off)?;
        }
        *self.streams.lock().unwrap_or_else(PoisonError::into_inner) = Some(streams);
        Ok(())
    }

    /// The streams of the run as they are now. Empty before and after they are sent.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamState> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = streams.clone();
        streams.map_or_else(Vec::new, |streams| streams.states())
    }

    /// Changes streams by their names, all at the same time. A name stands for all streams that have it.
    ///
    /// # Errors
    /// The reason why a stream cannot follow. No stream changes then.
    pub fn steer_streams(&self, wishes: &[(String, StreamSteer)]) -> Result<(), String> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = streams.clone();
        streams.map_or_else(
            || Err("the run has no streams that can change now".to_owned()),
            |streams| streams.steer(wishes),
        )
    }

    /// Returns true if all senders in a run of this plan would follow changes.
    #[must_use]
    pub fn is_followed_by(plan: &Plan) -> bool {
        let mut others = JobKind::ALL
            .into_iter()
            .filter(|kind| *kind != JobKind::Load);
        plan.sends(JobKind::Load) && !others.any(|kind| plan.sends(kind))
    }
}

/// Returns the rate after a change.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
pub fn steered(planned: &LoadRate, wish: Steer) -> LoadRate {
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
            // One is the smallest rate that still sends.
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
