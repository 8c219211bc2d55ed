//! Standard output, and whether there is one. Where it is closed (`>&-`) the standard library opens `/dev/null` in its
//! place before `main`, so that results would be lost as if they had been written; nobody could tell later, as others
//! start programs with `/dev/null` opened in the same way. So this looks before the library does.

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

// SAFETY: the C library calls what is listed here once, before `main` and any thread; the function is for any arguments,
// and does nothing that needs the standard library to be ready.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    let closed = fcntl_getfd(rustix::stdio::stdout()) == Err(Errno::BADF);
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Standard output, for results.
///
/// # Errors
/// If it was closed when the program was started.
pub(crate) fn stdout() -> io::Result<StdoutLock<'static>> {
    match CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::other("it is closed")),
        false => Ok(io::stdout().lock()),
    }
}
