//! Reads clocks, and sleeps until a given time.

use std::{num::NonZeroU64, time::Duration};

use rustix::{
    io::Errno,
    thread::{ClockId, clock_nanosleep_absolute, set_current_timer_slack},
    time::{Timespec, clock_gettime},
};

use crate::Stopper;

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub(crate) fn now_ns() -> u64 {
    to_ns(clock_gettime(rustix::time::ClockId::Monotonic))
}

/// Nanoseconds since 1970 (CLOCK_REALTIME): the time of tags, which two hosts can share.
#[inline]
pub(super) fn wall_ns() -> u64 {
    to_ns(clock_gettime(rustix::time::ClockId::Realtime))
}

#[inline]
fn to_ns(time: Timespec) -> u64 {
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

pub(super) fn to_timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    }
}

/// A duration in nanoseconds.
pub(super) fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps until CLOCK_MONOTONIC shows `due`. Returns false if stopped first.
pub(super) fn sleep_until(due: u64, stop: &Stopper) -> bool {
    while !stop.is_stopped() {
        match clock_nanosleep_absolute(ClockId::Monotonic, &to_timespec(due)) {
            Err(Errno::INTR) => {}
            _ => return true,
        }
    }
    false
}

/// Makes the calling thread's sleeps end on time: by default the kernel may add 50 µs.
pub(super) fn sleep_exactly() {
    // If refused, sleeps are slightly longer.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}
