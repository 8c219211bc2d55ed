//! Messages for the user: written to standard error on a best-effort basis. While a screen is open, messages appear
//! there, and on standard error when the screen closes. A run never fails or waits because messages cannot be
//! written.

use std::{
    fmt::Display,
    io::{self, Write},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wb_model::text::is_unprintable;

/// Prints a line, without the numbers of system errors, such as "(os error 2)".
pub(crate) fn say(text: impl Display) {
    say_as_is(visible(&without_numbers(format!("{text}\n"))));
}

/// Writes control characters of names and values as escapes, so that they cannot change the terminal.
fn visible(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => clean.push(c),
            c if is_unprintable(c) => clean.extend(c.escape_unicode()),
            c => clean.push(c),
        }
    }
    clean
}

/// Removes the error numbers that the library adds to the texts of system errors.
pub(crate) fn without_numbers(mut text: String) -> String {
    const BEFORE: &str = " (os error ";
    while let Some(at) = text.find(BEFORE) {
        let Some(end) = text[at..].find(')') else {
            break;
        };
        text.replace_range(at..=at + end, "");
    }
    text
}

/// Prints a text that contains its line ends.
pub(crate) fn say_as_is(text: impl Display) {
    let text = text.to_string();
    if !crate::screen::overhears(&text) {
        say_bytes(text.as_bytes());
    }
}

/// Prints bytes that need not be text, in one write, so that lines of several processes do not mix.
pub(crate) fn say_bytes(bytes: &[u8]) {
    let _ = io::stderr().write_all(bytes);
}

/// Prints a line that the next one replaces, such as a live line. If the reader is behind (a pager, a stopped
/// terminal), the line is dropped.
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

/// Writer to standard error that never fails.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_visible() {
        assert_eq!(visible("a\x1b[31mb\tc\n"), "a\\u{1b}[31mb\tc\n");
    }

    #[test]
    fn system_errors_have_no_numbers() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(
            without_numbers(format!("cannot open a: {error}; or b: {error}\n")),
            "cannot open a: No such file or directory; or b: No such file or directory\n"
        );
        assert_eq!(without_numbers("(os error".to_owned()), "(os error");
    }
}
