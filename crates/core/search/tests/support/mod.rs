//! A device in virtual time: an exact token bucket behind a tester with a ceiling, and what can go wrong.

use std::{convert::Infallible, time::Duration};

use wb_search::{Ask, Measurer, Outcome, Purpose, Trial};

/// The line rate of 64-byte frames at 10 Gbit/s, frames per second.
pub(crate) const TEN_GIG: f64 = 1e10 / 672.0;

/// A device, the tester before it, and what was measured.
pub(crate) struct Device {
    /// Frames per second that pass.
    pub(crate) capacity: f64,
    /// What the tester can offer at most.
    pub(crate) ceiling: f64,
    /// How long a trial is that was not asked to be of some length.
    pub(crate) duration: Duration,
    /// Frames that get lost though the load is below capacity, by the number of the trial, which begins at
    /// 1.
    pub(crate) noise: Box<dyn FnMut(usize, u64) -> u64>,
    /// Trials for which there is time.
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

    /// The log in short: each load with how its trials came out, P without loss beyond the goal, F with.
    pub(crate) fn told(&self, loss_goal: f64) -> Vec<(f64, String)> {
        let mut told: Vec<(f64, String)> = Vec::new();
        for row in &self.log {
            let letter = match row.trial.outcome {
                Outcome::Unoffered => 'U',
                Outcome::Unread => 'R',
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

    fn measure(&mut self, ask: &Ask) -> Result<Option<Trial>, Infallible> {
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
                (true, _) => Outcome::Unoffered,
                (false, true) => Outcome::Broke,
                (false, false) => Outcome::Held,
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
