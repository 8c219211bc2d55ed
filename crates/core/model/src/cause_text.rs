//! Text of a system error for messages.

use std::fmt::Display;

/// Text of an error without the number at its end (` (os error 2)`).
#[must_use]
pub fn cause_text(cause: impl Display) -> String {
    let mut text = cause.to_string();
    if let Some(number) = text.rfind(" (os error ").filter(|_| text.ends_with(')')) {
        text.truncate(number);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_the_number_is_removed() {
        let system = io::Error::from_raw_os_error(2);
        assert_eq!(cause_text(system), "No such file or directory");
        assert_eq!(cause_text(io::Error::other("it is empty")), "it is empty");
    }
}
