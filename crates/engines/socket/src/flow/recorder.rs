//! Operation times: written by a loop, read in intervals by observers.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use wb_measure::Histogram;

/// The loop's side: records times.
#[derive(Debug)]
pub struct TimeRecorder {
    all: Histogram,
    /// Times recorded while an observer held the interval.
    missed: Histogram,
    meter: Arc<TimeMeter>,
}

/// The observer's side.
#[derive(Debug)]
pub struct TimeMeter {
    paused: AtomicBool,
    interval: Option<Mutex<Histogram>>,
}

impl TimeRecorder {
    /// Creates a recorder. With `intervals`, times are also kept per interval.
    #[must_use]
    pub fn new(intervals: bool) -> Self {
        Self {
            all: Histogram::new(),
            missed: Histogram::new(),
            meter: Arc::new(TimeMeter {
                paused: AtomicBool::new(false),
                interval: intervals.then(Mutex::default),
            }),
        }
    }

    /// The observer's side.
    #[must_use]
    pub fn meter(&self) -> Arc<TimeMeter> {
        Arc::clone(&self.meter)
    }

    /// Records the time of an operation, ns. Never waits.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if self.meter.paused.load(Ordering::Relaxed) {
            return;
        }
        self.all.record(ns);
        if let Some(interval) = &self.meter.interval {
            match interval.try_lock() {
                Ok(mut interval) => {
                    interval.record(ns);
                    if self.missed.count() > 0 {
                        interval.merge(&self.missed);
                        self.missed = Histogram::new();
                    }
                }
                // An observer holds the interval: this time belongs to the next one.
                Err(_) => self.missed.record(ns),
            }
        }
    }

    /// All recorded times.
    #[must_use]
    pub fn histogram(&self) -> &Histogram {
        &self.all
    }
}

impl TimeMeter {
    /// Suspends recording.
    pub fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
    }

    /// Resumes recording.
    pub fn resume(&self) {
        self.paused.store(false, Ordering::Relaxed);
    }

    /// Takes the times recorded since the last call; empty without intervals.
    #[must_use]
    pub fn take_interval(&self) -> Histogram {
        let mut fresh = Histogram::new();
        if let Some(interval) = &self.interval {
            let mut interval = interval.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *interval, &mut fresh);
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up_to_all() {
        let mut recorder = TimeRecorder::new(true);
        let meter = recorder.meter();
        meter.pause();
        recorder.record(1);
        meter.resume();
        recorder.record(10);
        recorder.record(20);
        assert_eq!(meter.take_interval().count(), 2);
        {
            let held = meter.interval.as_ref().unwrap().lock().unwrap();
            recorder.record(30);
            assert_eq!(held.count(), 0);
        }
        recorder.record(40);
        let last = meter.take_interval();
        assert_eq!((last.count(), last.sum()), (2, 70));
        assert_eq!(meter.take_interval().count(), 0);
        let all = recorder.histogram();
        assert_eq!((all.count(), all.sum()), (4, 100));
    }

    #[test]
    fn without_intervals_there_is_only_the_whole() {
        let mut recorder = TimeRecorder::new(false);
        recorder.record(5);
        assert_eq!(recorder.meter().take_interval().count(), 0);
        assert_eq!(recorder.histogram().count(), 1);
    }
}
