//! Worker threads of all engines: starts them, pins them, waits for them, and detects panics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use crate::{Alarm, StartError};

/// Nice value of workers: without it, their rings overflow when a compiler has the CPU.
const WORKER_NICE: i32 = -15;

/// Interval at which workers are asked for the outlines of their times, in ns. A request costs a worker some
/// microseconds. The interval is shorter than the interval of timelines.
const ASK_NS: u64 = 40_000_000;

/// Time of the last request for outlines, in ns.
#[derive(Debug, Default)]
pub struct LastOutlineRequest(u64);

impl LastOutlineRequest {
    /// Returns true if a request is due, and notes the time of the request.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.0) >= ASK_NS;
        if is_due {
            self.0 = now_ns;
        }
        is_due
    }
}

/// Announces the end of its thread when dropped. A panic is a fault of the run: the controlling thread would otherwise
/// wait for the thread until the end of the run.
struct EndNotice {
    alarm: Arc<Alarm>,
    ended: Arc<AtomicBool>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        match std::thread::panicking() {
            true => self.alarm.fault(),
            false => self.alarm.bell.ring(),
        }
    }
}

/// Pins the calling thread to its CPU and raises its priority.
fn settle_worker(cpu: Option<u32>) {
    if let Some(cpu) = cpu {
        // A worker that cannot be pinned still works. `doctor` reports the reason.
        let _ = wb_machine::cpu::pin(cpu);
    }
    // Ahead of all other programs of the machine. If the priority is not permitted, it stays unchanged.
    let _ = wb_machine::cpu::set_nice(WORKER_NICE);
    // Without this setting, sleeps end up to 50 us late (prctl(2), PR_SET_TIMERSLACK).
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// The worker threads of an engine, in the order in which they were started.
pub struct Workers<T> {
    threads: Vec<JoinHandle<T>>,
    /// True for each thread that has finished its work. The kernel may list the thread for a moment longer.
    ended: Vec<Arc<AtomicBool>>,
    alarm: Arc<Alarm>,
}

impl<T: Send + 'static> Workers<T> {
    /// Creates an empty set. `alarm` is raised when a worker breaks, and its bell rings when a worker ends.
    pub fn new(alarm: &Arc<Alarm>) -> Self {
        Self {
            threads: Vec::new(),
            ended: Vec::new(),
            alarm: Arc::clone(alarm),
        }
    }

    /// Starts a worker on its CPU with raised priority. `broke` decides from the outcome if the run has to end.
    ///
    /// # Errors
    /// Fails if the system starts no thread. The caller must then end the workers that already run.
    pub fn spawn(
        &mut self,
        name: String,
        cpu: Option<u32>,
        broke: fn(&T) -> bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(), StartError> {
        let alarm = Arc::clone(&self.alarm);
        self.spawn_plain(name, move || {
            settle_worker(cpu);
            let outcome = work();
            if broke(&outcome) {
                alarm.fault();
            }
            outcome
        })
    }

    /// Starts a worker without a dedicated CPU and without raised priority.
    ///
    /// # Errors
    /// Returns the same errors as [`Workers::spawn`].
    pub fn spawn_plain(
        &mut self,
        name: String,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(), StartError> {
        let ended = Arc::new(AtomicBool::new(false));
        let notice = EndNotice {
            alarm: Arc::clone(&self.alarm),
            ended: Arc::clone(&ended),
        };
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let _notice = notice;
                work()
            })
            .map_err(StartError::thread)?;
        self.threads.push(thread);
        self.ended.push(ended);
        Ok(())
    }

    /// Returns true if the worker has ended or was never started.
    pub fn is_over(&self, number: usize) -> bool {
        let ended = self.ended.get(number);
        ended.is_none_or(|ended| ended.load(Ordering::Acquire))
    }

    /// Returns true if all workers have ended.
    pub fn all_over(&self) -> bool {
        self.ended.iter().all(|ended| ended.load(Ordering::Acquire))
    }

    /// Waits for all workers. `None` stands for a worker that panicked.
    pub fn join(&mut self) -> Vec<Option<T>> {
        let threads = std::mem::take(&mut self.threads);
        self.ended.clear();
        threads.into_iter().map(|t| t.join().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_and_a_fault_raise_the_alarm() {
        for (panics, breaks) in [(false, false), (true, false), (false, true)] {
            let alarm = Arc::new(Alarm::default());
            let mut workers = Workers::new(&alarm);
            let work = move || {
                assert!(!panics, "as it is meant to");
                breaks
            };
            workers
                .spawn("wb-test".to_owned(), None, |b| *b, work)
                .unwrap();
            assert_eq!(workers.join(), [(!panics).then_some(breaks)]);
            assert_eq!(alarm.has_faulted(), panics || breaks);
        }
    }
}
