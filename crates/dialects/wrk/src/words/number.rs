//! Numbers with a unit, as `sscanf("%lu%2s")` reads them.

/// A count: k M G T P are powers of 1000, in either case.
pub(super) fn count(text: &str) -> Option<u64> {
    parse_scaled(text, 1000, &["", "k", "m", "g", "t", "p"])
}

/// A time in seconds: s, m and h, in either case.
pub(super) fn seconds(text: &str) -> Option<u64> {
    parse_scaled(text, 60, &["s", "m", "h"])
}

/// Each unit is `scale` times the previous one; without a unit the number counts in the first.
fn parse_scaled(text: &str, scale: u64, units: &[&str]) -> Option<u64> {
    const BLANKS: [char; 6] = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];
    let text = text.trim_start_matches(BLANKS);
    let (minus, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    if digits.is_empty() {
        return None;
    }
    // Too many digits give the largest number, and a minus sign negates with wrap-around.
    let base = match digits.parse::<u64>() {
        Ok(base) if minus => base.wrapping_neg(),
        Ok(base) => base,
        Err(_) => u64::MAX,
    };
    // At most two letters are read, and nothing after a blank.
    let rest = rest.trim_start_matches(BLANKS);
    let unit: String = (rest.chars().take(2))
        .take_while(|c| !BLANKS.contains(c))
        .collect();
    let place = match unit.is_empty() {
        true => 0,
        false => units.iter().position(|u| u.eq_ignore_ascii_case(&unit))?,
    };
    Some(base.saturating_mul(scale.pow(place as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        for (text, value) in [
            ("5", Some(5)),
            ("1k", Some(1000)),
            ("1K", Some(1000)),
            ("2m", Some(2_000_000)),
            ("3G", Some(3_000_000_000)),
            ("1t", Some(10u64.pow(12))),
            ("1P", Some(10u64.pow(15))),
            (" \t1", Some(1)),
            ("+5", Some(5)),
            ("1 k", Some(1000)),
            ("5  k z", Some(5000)),
            ("5 ", Some(5)),
            ("007", Some(7)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551616", Some(u64::MAX)),
            ("18446744073709551615k", Some(u64::MAX)),
            ("5 x", None),
            ("5kk", None),
            ("5é", None),
            ("1.5", None),
            ("0x10", None),
            ("5s", None),
            ("", None),
            ("k", None),
            ("+ 5", None),
            ("+-5", None),
        ] {
            assert_eq!(count(text), value, "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, value) in [
            ("5", Some(5)),
            ("1S", Some(1)),
            ("2m", Some(120)),
            ("2H", Some(7200)),
            ("1 m", Some(60)),
            ("1ms", None),
            ("1.5", None),
            ("1x", None),
            ("1sec", None),
            ("1d", None),
        ] {
            assert_eq!(seconds(text), value, "{text}");
        }
    }
}
