//! Waits for the next departure without taking the CPU from sender and receiver.
//!
//! A timer wakes the thread some microseconds late, by an almost constant amount. The thread therefore
//! sets the timer that much earlier and spins for the rest. Departures closer together than the cost of a
//! wake-up are grouped.
#![allow(unsafe_code)] // Scheduling classes have no safe wrapper.

use std::num::NonZeroU64;

use rustix::thread::ClockId;
use rustix::time::Timespec;
use wb_machine::{clock, cpu};

/// Later wake-ups are caused by the scheduler, and an earlier alarm does not help.
const LATEST_NS: u64 = 60_000;

/// Waiting strategy of a device thread.
pub(crate) struct WakeTuning {
    /// Departures within this time are grouped.
    pub(crate) quantum_ns: u64,
    /// The thread spins for shorter waits instead of sleeping.
    pub(crate) spin_ns: u64,
    /// Moving average of the timer's lateness.
    late_ns: u64,
    /// Start of the period in which `slept_ns` counts.
    since_ns: u64,
    slept_ns: u64,
}

/// Period of the sleep quota. The kernel stops a real-time thread that never sleeps for 50 ms of each second
/// (`kernel.sched_rt_runtime_us`), all at once.
const TURN_NS: u64 = 5_000_000;
/// Minimum sleep in each period: several short natural sleeps, or a single forced one.
const REST_NS: u64 = 500_000;

impl WakeTuning {
    /// Makes the strategy for a machine with `cpus` CPUs.
    pub(crate) fn new(cpus: usize) -> Self {
        // With a dedicated CPU the device may spin. If it shares the CPU with the sender or the
        // receiver, each spin takes their time. It then wakes every 15 us, which is worth
        // a wake-up of about 4 us.
        let (quantum_ns, spin_ns) = if cpus >= 4 {
            (0, 100_000)
        } else {
            (15_000, 3_000)
        };
        Self {
            quantum_ns,
            spin_ns,
            late_ns: 5_000,
            since_ns: clock::monotonic_ns(),
            slept_ns: 0,
        }
    }

    /// Time at which the thread should wake for `due_ns`.
    pub(crate) fn wake_time(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.late_ns)
    }

    /// Sleeps and spins until `due_ns` (CLOCK_MONOTONIC).
    pub(crate) fn sleep_until(&mut self, due_ns: u64, now: u64) {
        let alarm = self.wake_time(due_ns);
        if alarm > now && due_ns > now + self.spin_ns {
            sleep_until_time(alarm);
            let woken = clock::monotonic_ns();
            self.note_sleep(woken.min(alarm) - now);
            self.record_lateness(woken.saturating_sub(alarm));
        }
        while clock::monotonic_ns() < due_ns {
            std::hint::spin_loop();
        }
    }

    /// Records a sleep of the thread.
    pub(crate) fn note_sleep(&mut self, ns: u64) {
        self.slept_ns += ns;
    }

    /// Sleeps if the thread has not slept enough for a period.
    pub(crate) fn enforce_sleep_quota(&mut self, now: u64) {
        if now - self.since_ns < TURN_NS - REST_NS {
            return;
        }
        let missing = REST_NS.saturating_sub(self.slept_ns);
        if missing > 0 {
            sleep_until_time(now + missing);
        }
        self.since_ns = now + missing;
        self.slept_ns = 0;
    }

    fn record_lateness(&mut self, late_ns: u64) {
        if late_ns < LATEST_NS {
            self.late_ns = (self.late_ns * 15 + late_ns) / 16;
        }
    }
}

/// Sleeps until `time_ns` of CLOCK_MONOTONIC, or until a signal: the caller checks the clock anyway.
fn sleep_until_time(time_ns: u64) {
    let time = Timespec {
        tv_sec: (time_ns / 1_000_000_000) as i64,
        tv_nsec: (time_ns % 1_000_000_000) as i64,
    };
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &time);
}

/// Gives the calling thread the best available placement: real-time priority on the first CPU, which
/// senders take last. (Interrupting a sender delays its frames before they reach the device.) Settings
/// that the kernel rejects stay unchanged.
pub(crate) fn place_thread() -> usize {
    let cpus = cpu::allowed().unwrap_or_default();
    if let Some(first) = cpus.first() {
        let _ = cpu::pin(*first);
    }
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    if !set_first_in_first_out() {
        let _ = cpu::set_nice(-10);
        set_short_slice();
    }
    cpus.len()
}

/// Gives the thread priority over all ordinary threads.
fn set_first_in_first_out() -> bool {
    // SAFETY: an all-zero sched_param is a valid one.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the pointer is to a live sched_param; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
}

/// Requests a short time slice: an ordinary thread with a short slice may preempt one with a long slice (since
/// Linux 6.12). Needs no privilege.
fn set_short_slice() {
    /// sched.h: struct sched_attr, first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: rustix::process::getpriority_process(None).unwrap_or(0),
        priority: 0,
        // Shortest slice that the kernel accepts.
        runtime_ns: 100_000,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the structure is as long as its first field says and outlives the call.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_follows_the_timer() {
        let mut tuning = WakeTuning::new(2);
        for _ in 0..200 {
            tuning.record_lateness(20_000);
        }
        assert!(tuning.wake_time(1_000_000).abs_diff(980_000) < 100);
        for _ in 0..200 {
            tuning.record_lateness(3_000_000);
        }
        assert!(
            tuning.wake_time(1_000_000).abs_diff(980_000) < 100,
            "a busy scheduler is not the timer"
        );
    }
}
