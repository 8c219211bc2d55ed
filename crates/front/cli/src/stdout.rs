//! Standard output, and detection of a closed one. If standard output is closed (`>&-`), the standard library opens
//! `/dev/null` in its place before `main`, and results would be lost silently. Programs are also started with
//! `/dev/null` on purpose, so the two cases look alike later. The check therefore runs before the standard library
//! does.

#![allow(
    unsafe_code,
    reason = "a function that runs before main has no safe form"
)]

use std::{
    io::{self, StdoutLock},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::io::{Errno, fcntl_getfd};

static CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the C library calls the functions listed here once, before `main` and before any thread. The function
// accepts any arguments and needs nothing of the standard library that is not ready yet.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    let closed = fcntl_getfd(rustix::stdio::stdout()) == Err(Errno::BADF);
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Returns standard output, for results.
///
/// # Errors
/// If standard output was closed when the program was started.
pub(crate) fn stdout() -> io::Result<StdoutLock<'static>> {
    match CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::other("it is closed")),
        false => Ok(io::stdout().lock()),
    }
}
