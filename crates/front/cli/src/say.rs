//! What the user is told beside the results: on standard error, by best effort; while a screen is open, on that, and on
//! standard error when it is left. A run never ends,
//! and never waits, because nobody listens.

use std::{
    fmt::Display,
    io::{self, Write},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Says a line.
pub(crate) fn say(text: impl Display) {
    say_as_is(format_args!("{text}\n"));
}

/// Says a text that brings its own line ends.
pub(crate) fn say_as_is(text: impl Display) {
    let text = text.to_string();
    if !crate::screen::overhears(&text) {
        say_bytes(text.as_bytes());
    }
}

/// Says bytes that need not be text; in one write, so that lines of several processes do not mix.
pub(crate) fn say_bytes(bytes: &[u8]) {
    let _ = io::stderr().write_all(bytes);
}

/// Says a line that the next one replaces anyway, such as a live line: where the reader is behind
/// (a pager, a terminal that was stopped), it is left out rather than waited for.
pub(crate) fn say_in_passing(text: impl Display) {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    if poll(&mut ready, Some(&now)).is_ok_and(|n| n > 0) {
        say(text);
    }
}

/// Standard error for who wants a writer; it never fails.
pub(crate) struct Listener;

impl Write for Listener {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        say_as_is(String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
