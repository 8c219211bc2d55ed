//! Worker threads of all engines: started, pinned, awaited, and missed when they panic, in one place; and
//! the only choice between drivers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use wb_port::QueuePair;

use crate::{StartError, bell::Alarm, ports::AnyQueue};

/// Priority of workers: their rings overflow when a compiler has the CPU.
const WORKER_NICE: i32 = -15;

/// How often workers are asked for the outlines of their times, which takes them some microseconds: more often than
/// timelines have moments.
const ASK_NS: u64 = 40_000_000;

/// When workers were last asked for the outlines of their times.
#[derive(Debug, Default)]
pub(crate) struct Asked(u64);

impl Asked {
    /// Whether they are to be asked now, and are then taken to be.
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.0) >= ASK_NS;
        if is_due {
            self.0 = now_ns;
        }
        is_due
    }
}

/// What is done with a queue pair: compiled once for each driver.
pub(crate) trait OnQueue {
    /// What comes of it.
    type Output;
    /// Does it.
    fn on<Q: QueuePair + 'static>(self, pair: Q) -> Self::Output;
}

impl AnyQueue {
    /// Hands the queue pair on, to code that knows its driver.
    pub(crate) fn give<T: OnQueue>(self, task: T) -> T::Output {
        match self {
            #[cfg(not(test))]
            Self::Xdp(pair) => task.on(pair),
            #[cfg(not(test))]
            Self::XdpGroup(pair) => task.on(pair),
            #[cfg(not(test))]
            Self::Packet(pair) => task.on(pair),
            #[cfg(not(test))]
            Self::File(pair) => task.on(pair),
            Self::Memory(pair) => task.on(pair),
            // All loops once more for each driver would take longer to build than the rest of the crate.
            #[cfg(test)]
            _ => unreachable!("unit tests have ports in memory; drivers are tested from outside"),
        }
    }
}

/// Announces the end of the thread that holds it. A panic is a fault of the run: the controlling thread would else wait
/// for the thread to the end of the run.
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

/// Gives the calling thread its CPU and its rank among the others.
fn settle_worker(cpu: Option<u32>) {
    if let Some(cpu) = cpu {
        // A worker that cannot be pinned still works; `doctor` says why it could not.
        let _ = wb_machine::cpu::pin(cpu);
    }
    // Ahead of whatever else the machine does; not permitted to everyone, and then left.
    let _ = wb_machine::cpu::set_nice(WORKER_NICE);
    // Without it sleeps end up to 50 us late (prctl(2), PR_SET_TIMERSLACK).
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// The worker threads of an engine, in the order in which they were started.
pub(crate) struct Workers<T> {
    threads: Vec<JoinHandle<T>>,
    /// True for each thread that has nothing left to do. The kernel may know the thread for a moment longer.
    ended: Vec<Arc<AtomicBool>>,
    alarm: Arc<Alarm>,
}

impl<T: Send + 'static> Workers<T> {
    /// None yet. `alarm` is raised when one of them breaks, and its bell rings when one ends.
    pub(crate) fn new(alarm: &Arc<Alarm>) -> Self {
        Self {
            threads: Vec::new(),
            ended: Vec::new(),
            alarm: Arc::clone(alarm),
        }
    }

    /// Starts one more, on its CPU and ahead of others. `broke` tells from its outcome whether the run has
    /// to end.
    ///
    /// # Errors
    /// When the system gives no thread. Whoever started the others ends them.
    pub(crate) fn spawn(
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

    /// Starts one more that has no CPU of its own and no rank.
    ///
    /// # Errors
    /// As [`Workers::spawn`].
    pub(crate) fn spawn_plain(
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

    /// Whether this one has ended; those that were never started have.
    pub(crate) fn is_over(&self, number: usize) -> bool {
        let ended = self.ended.get(number);
        ended.is_none_or(|ended| ended.load(Ordering::Acquire))
    }

    /// Whether all have ended.
    pub(crate) fn all_over(&self) -> bool {
        self.ended.iter().all(|ended| ended.load(Ordering::Acquire))
    }

    /// Waits for all. `None` stands for one that panicked.
    pub(crate) fn join(&mut self) -> Vec<Option<T>> {
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
