//! Realtime scheduling.
#![allow(unsafe_code)] // sched_setscheduler(2), which has no safe wrapper.

use std::io;

use crate::{HostError, Result};

/// Sets the calling thread to SCHED_FIFO with priority 1, or back to normal scheduling.
///
/// # Errors
/// Without CAP_SYS_NICE or a limit (RLIMIT_RTPRIO) that allows it.
pub fn set_realtime(on: bool) -> Result<()> {
    let (policy, priority) = if on {
        (libc::SCHED_FIFO, 1)
    } else {
        (libc::SCHED_OTHER, 0)
    };
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the kernel reads the parameters, which outlive the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 {
        return Ok(());
    }
    Err(HostError::refused(
        "set",
        "the scheduler of this thread to SCHED_FIFO".to_owned(),
    )(io::Error::last_os_error()))
}
