//! Numbers, pairs and names inside arguments.

use wb_model::socket::Family;

/// Integer with an optional sign and one optional suffix: `K` `M` `G` are 2^10, 2^20, 2^30,
/// `k` `m` `g` are 10^3, 10^6, 10^9. `None` if the text is not a number or exceeds 64 bits.
pub(super) fn parse_number(text: &str) -> Option<i64> {
    let (digits, scale) = match text.char_indices().next_back()? {
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        (at, 'k') => (&text[..at], 1_000),
        (at, 'm') => (&text[..at], 1_000_000),
        (at, 'g') => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<i64>().ok()?.checked_mul(scale)
}

/// Microseconds from an integer with a unit: `u` or `us`, `m` or `ms`, `s`; without a unit, milliseconds.
pub(super) fn parse_microseconds(text: &str) -> Option<u64> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let scale = match &text[split..] {
        "u" | "us" => 1,
        "" | "m" | "ms" => 1_000,
        "s" => 1_000_000,
        _ => return None,
    };
    text[..split].parse::<u64>().ok()?.checked_mul(scale)
}

/// `a,b`, `a,` or `,b`; a single `a` sets both.
pub(super) fn two_values(text: &str) -> [Option<&str>; 2] {
    match text.split_once(',') {
        Some(pair) => non_empty(pair),
        None => non_empty((text, text)),
    }
}

/// `a,b`, `a,` or `,b`; a single `a` sets the first.
pub(super) fn first(text: &str) -> [Option<&str>; 2] {
    non_empty(text.split_once(',').unwrap_or((text, "")))
}

fn non_empty<'a>((a, b): (&'a str, &'a str)) -> [Option<&'a str>; 2] {
    [Some(a), Some(b)].map(|t| t.filter(|t| !t.is_empty()))
}

/// Address family, recognised by parts of its name; `None` if there is none.
pub(super) fn parse_family(text: &str) -> Option<Family> {
    let text = text.to_ascii_lowercase();
    let has = |part| text.contains(part);
    if has("6") {
        Some(Family::Ipv6)
    } else if has("inet") || has("4") {
        Some(Family::Ipv4)
    } else if has("unspec") || has("0") {
        Some(Family::Any)
    } else {
        None
    }
}

/// Value of IP_TOS: a name of RFC 2474, 2597, 3246 or 1349, or a number, decimal or `0x..`.
/// `Some(None)` for -1, the system's default.
pub(super) fn parse_tos(text: &str) -> Option<Option<u8>> {
    let text = text.to_ascii_lowercase();
    let class = |digits: &str| digits.parse::<u8>().ok().filter(|_| digits.len() == 1);
    let byte = match text.as_str() {
        "-1" => return Some(None),
        "ef" => 0xb8,
        "lowdelay" => 0x10,
        "throughput" => 0x08,
        "reliability" => 0x04,
        name if name.starts_with("cs") => class(&name[2..]).filter(|n| *n <= 7)? << 5,
        name if name.starts_with("af") && name.len() == 4 && name.is_ascii() => {
            let class_of = class(&name[2..3]).filter(|n| (1..=4).contains(n))?;
            let drop = class(&name[3..]).filter(|n| (1..=3).contains(n))?;
            (8 * class_of + 2 * drop) << 2
        }
        number => match number.strip_prefix("0x") {
            Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => {
                u8::from_str_radix(hex, 16).ok()?
            }
            Some(_) => return None,
            None => number.parse().ok()?,
        },
    };
    Some(Some(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_suffix_and_64_bits() {
        for (text, n) in [
            ("0", Some(0)),
            ("+7", Some(7)),
            ("-5", Some(-5)),
            ("32K", Some(32_768)),
            ("16k", Some(16_000)),
            ("1M", Some(1_048_576)),
            ("1m", Some(1_000_000)),
            ("4G", Some(4_294_967_296)),
            ("4g", Some(4_000_000_000)),
            ("-10M", Some(-10_485_760)),
            ("8589934591G", Some(9_223_372_035_781_033_984)),
            ("8589934592G", None),
            ("9223372036854775808", None),
            ("", None),
            ("K", None),
            ("-", None),
            ("abc", None),
            ("1x", None),
            ("1KK", None),
            ("K1", None),
            ("1.5", None),
            ("0x10", None),
            (" 7", None),
            ("7ß", None),
        ] {
            assert_eq!(parse_number(text), n, "{text}");
        }
    }

    #[test]
    fn times_are_milliseconds_by_themselves() {
        for (text, us) in [
            ("5", Some(5_000)),
            ("5m", Some(5_000)),
            ("5ms", Some(5_000)),
            ("5u", Some(5)),
            ("5us", Some(5)),
            ("2s", Some(2_000_000)),
            ("0", Some(0)),
            ("", None),
            ("s", None),
            ("5x", None),
            ("-5", None),
            ("18446744073709551615s", None),
        ] {
            assert_eq!(parse_microseconds(text), us, "{text}");
        }
    }

    #[test]
    fn pairs() {
        for (text, both_of, first_of) in [
            ("a", [Some("a"), Some("a")], [Some("a"), None]),
            ("a,b", [Some("a"), Some("b")], [Some("a"), Some("b")]),
            ("a,", [Some("a"), None], [Some("a"), None]),
            (",b", [None, Some("b")], [None, Some("b")]),
            (",", [None, None], [None, None]),
            ("", [None, None], [None, None]),
            ("a,b,c", [Some("a"), Some("b,c")], [Some("a"), Some("b,c")]),
        ] {
            assert_eq!(two_values(text), both_of, "{text}");
            assert_eq!(first(text), first_of, "{text}");
        }
    }

    #[test]
    fn families_by_what_the_word_contains() {
        for (text, family_of) in [
            ("6", Some(Family::Ipv6)),
            ("inet6", Some(Family::Ipv6)),
            ("AF_INET6", Some(Family::Ipv6)),
            ("inet", Some(Family::Ipv4)),
            ("4", Some(Family::Ipv4)),
            ("unspec", Some(Family::Any)),
            ("0", Some(Family::Any)),
            ("blah", None),
            ("", None),
        ] {
            assert_eq!(parse_family(text), family_of, "{text}");
        }
    }

    #[test]
    fn kinds_of_service() {
        for (text, byte) in [
            ("ef", Some(0xb8)),
            ("EF", Some(0xb8)),
            ("cs0", Some(0)),
            ("CS1", Some(0x20)),
            ("cs7", Some(0xe0)),
            ("af11", Some(0x28)),
            ("af13", Some(0x38)),
            ("af41", Some(0x88)),
            ("af43", Some(0x98)),
            ("lowdelay", Some(0x10)),
            ("throughput", Some(0x08)),
            ("reliability", Some(0x04)),
            ("16", Some(16)),
            ("0x10", Some(16)),
            ("0XFF", Some(255)),
            ("255", Some(255)),
        ] {
            assert_eq!(parse_tos(text), Some(byte), "{text}");
        }
        assert_eq!(parse_tos("-1"), Some(None));
        for text in [
            "256", "0x100", "cs8", "cs", "cs00", "af10", "af51", "af1", "afé", "0x", "0x+1", "x",
            "",
        ] {
            assert_eq!(parse_tos(text), None, "{text}");
        }
    }
}
