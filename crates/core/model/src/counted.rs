//! Numbers with their nouns, for messages.

use std::fmt::Display;

/// Returns a number with its noun: "1 frame", "2 frames". `one` and `many` may have more words, such as a verb.
#[must_use]
pub fn counted(n: impl Display, one: &str, many: &str) -> String {
    let n = n.to_string();
    let noun = if n == "1" { one } else { many };
    format!("{n} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let frames = |n: u64| counted(n, "frame was lost", "frames were lost");
        assert_eq!(frames(0), "0 frames were lost");
        assert_eq!(frames(1), "1 frame was lost");
        assert_eq!(frames(11), "11 frames were lost");
        assert_eq!(counted("1,001", "frame", "frames"), "1,001 frames");
    }
}
