//! Device in virtual time: an exact token bucket behind a tester with a ceiling, and possible impairments.

use std::{convert::Infallible, time::Duration};

use wb_search::{LoadOutcome, Measurer, Purpose, Trial, TrialRequest};

/// Line rate of 64-byte frames at 10 Gbit/s, in frames per second.
pub(crate) const TEN_GIG: f64 = 1e10 / 672.0;

/// Device, the tester in front of it, and a log of the trials.
pub(crate) struct Device {
    /// Capacity in frames per second.
    pub(crate) capacity: f64,
    /// Maximum load that the tester can offer.
    pub(crate) ceiling: f64,
    /// Duration of a trial without a requested duration.
    pub(crate) duration: Duration,
    /// Frames lost although the load is below capacity, by number of the trial (from 1) and frames.
    pub(crate) noise: Box<dyn FnMut(usize, u64) -> u64>,
    /// Number of trials before time runs out.
    pub(crate) patience: usize,
    /// All trials so far.
    pub(crate) log: Vec<Row>,
}

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) load: f64,
    pub(crate) duration: Duration,
    pub(crate) purpose: Purpose,
    pub(crate) lost: u64,
    pub(crate) trial: Trial,
}

impl Device {
    pub(crate) fn new(capacity: f64) -> Self {
        Self {
            capacity,
            ceiling: f64::INFINITY,
            duration: Duration::from_secs(60),
            noise: Box::new(|_, _| 0),
            patience: usize::MAX,
            log: Vec::new(),
        }
    }

    /// Summary of the log: each load with the outcomes of its trials, P for loss within the goal, F for more.
    pub(crate) fn told(&self, loss_goal: f64) -> Vec<(f64, String)> {
        let mut told: Vec<(f64, String)> = Vec::new();
        for row in &self.log {
            let letter = match row.trial.outcome {
                LoadOutcome::Unoffered => 'U',
                LoadOutcome::Unread => 'R',
                _ if row.trial.loss <= loss_goal => 'P',
                _ => 'F',
            };
            match told.last_mut().filter(|(load, _)| *load == row.load) {
                Some((_, letters)) => letters.push(letter),
                None => told.push((row.load, letter.to_string())),
            }
        }
        told
    }
}

impl Measurer for Device {
    type Error = Infallible;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Infallible> {
        if self.log.len() >= self.patience {
            return Ok(None);
        }
        let duration = ask.duration.unwrap_or(self.duration);
        let seconds = duration.as_secs_f64();
        let asked = (ask.load * seconds).floor();
        let sent = asked.min((self.ceiling * seconds).floor());
        let passed = (self.capacity * seconds).floor().min(sent);
        let noise = (self.noise)(self.log.len() + 1, sent as u64) as f64;
        let passed = if passed < sent {
            passed
        } else {
            (sent - noise).max(0.0)
        };
        let lost = sent - passed;
        let trial = Trial {
            outcome: match (sent < asked, lost > 0.0) {
                (true, _) => LoadOutcome::Unoffered,
                (false, true) => LoadOutcome::Broke,
                (false, false) => LoadOutcome::Held,
            },
            offered: if sent < asked {
                sent / seconds
            } else {
                ask.load
            },
            through: passed / seconds,
            loss: if sent > 0.0 { lost / sent } else { 0.0 },
            overhead: Duration::ZERO,
        };
        self.log.push(Row {
            load: ask.load,
            duration,
            purpose: ask.purpose,
            lost: lost as u64,
            trial,
        });
        Ok(Some(trial))
    }
}
