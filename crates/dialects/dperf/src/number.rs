//! Notation of numbers, rates and times.
//!
//! Decimals are exact: `4.35k` is 4350, without rounding errors of binary fractions.

/// A number of which only a part may have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LooseNumber<T> {
    pub(crate) value: T,
    /// True if the whole text was read.
    pub(crate) whole: bool,
}

/// `text` times `unit`, rounded down, and true if the result is exact. `text` is digits with at most
/// one point.
fn parse_decimal(text: &str, unit: u128) -> Option<(u128, bool)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    // Further digits of a fraction cannot change a result, only its exactness.
    const DIGITS: usize = 18;
    let (near, far) = fraction.split_at(fraction.len().min(DIGITS));
    let read = |text: &str| match text {
        "" => Some(0),
        text => text.parse::<u128>().ok(),
    };
    let scaled = read(near)?.checked_mul(unit)?;
    let divisor = 10u128.pow(near.len() as u32);
    let value = read(whole)?
        .checked_mul(unit)?
        .checked_add(scaled / divisor)?;
    Some((
        value,
        scaled % divisor == 0 && far.bytes().all(|b| b == b'0'),
    ))
}

/// Reads an integer of digits only, up to 2147483647.
pub(crate) fn parse_integer(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse::<i32>().ok()?.try_into().ok()
}

/// Reads a decimal with at most one suffix, k = 1000 or m = 1 000 000 in either case. Rounds down; up to
/// 2147483647.
pub(crate) fn parse_rate(text: &str) -> Option<u32> {
    let (number, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1000),
        b'm' | b'M' => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let (value, _) = parse_decimal(number, unit)?;
    i32::try_from(value).ok()?.try_into().ok()
}

/// Inverse of [`parse_rate`]: the shortest form without a fraction.
pub(crate) fn show_rate(rate: u32) -> String {
    match rate {
        0 => "0".to_owned(),
        n if n % 1_000_000 == 0 => format!("{}m", n / 1_000_000),
        n if n % 1000 == 0 => format!("{}k", n / 1000),
        n => n.to_string(),
    }
}

impl From<u32> for LooseNumber<u32> {
    fn from(value: u32) -> Self {
        Self { value, whole: true }
    }
}

/// Reads the sign and the digits at the beginning, as C's `atoi` does. Without digits the value is 0.
pub(crate) fn signed(text: &str) -> Option<LooseNumber<i32>> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = digits.bytes().take_while(u8::is_ascii_digit).count();
    let value = match &digits[..end] {
        "" => 0,
        digits => i32::try_from(parse_integer(digits)?).ok()?,
    };
    Some(LooseNumber {
        value: if text.starts_with('-') { -value } else { value },
        whole: end == digits.len() && end > 0,
    })
}

/// [`signed`] without negative numbers.
pub(crate) fn loose(text: &str) -> Option<LooseNumber<u32>> {
    let number = signed(text)?;
    Some(LooseNumber {
        value: u32::try_from(number.value).ok()?,
        whole: number.whole,
    })
}

/// Reads `0x` and hexadecimal digits, or the decimal digits at the beginning, at least one.
pub(crate) fn hexadecimal(text: &str) -> Option<LooseNumber<u32>> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // `from_str_radix` would accept a sign.
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            let value = u32::from_str_radix(digits, 16).ok()?;
            Some(LooseNumber { value, whole: true })
        }
        Some(_) => None,
        None if text.starts_with(|c: char| c.is_ascii_digit()) => loose(text),
        None => None,
    }
}

/// Whole seconds of a decimal with a unit at the end: m, h, d; any other unit means seconds.
pub(crate) fn duration(text: &str) -> Option<LooseNumber<u32>> {
    let mut points = 0;
    let end = text
        .bytes()
        .take_while(|b| {
            points += usize::from(*b == b'.');
            b.is_ascii_digit() || (*b == b'.' && points == 1)
        })
        .count();
    let (number, tail) = text.split_at(end);
    let unit = match tail.as_bytes().last() {
        Some(b'm') => 60,
        Some(b'h') => 3600,
        Some(b'd') => 86_400,
        _ => 1,
    };
    let (value, _) = parse_decimal(number, unit)?;
    Some(LooseNumber {
        value: u32::try_from(value).ok()?,
        whole: matches!(tail, "" | "s" | "m" | "h" | "d"),
    })
}

/// Nanoseconds of a decimal with a mandatory unit: ns, us, ms or s.
pub(crate) fn interval(text: &str) -> Option<u64> {
    for (unit, ns) in UNITS {
        if let Some(number) = text.strip_suffix(unit) {
            let (value, exact) = parse_decimal(number, ns)?;
            return u64::try_from(value).ok().filter(|_| exact);
        }
    }
    None
}

/// Inverse of [`interval`], in the largest unit that gives a whole number.
pub(crate) fn show_interval(ns: u64) -> String {
    let (unit, size) = UNITS
        .into_iter()
        .rev()
        .find(|(_, size)| u128::from(ns) % size == 0)
        .expect("1 ns divides everything");
    format!("{}{unit}", u128::from(ns) / size)
}

/// Units of an interval; `s` is last because the other units end in it.
const UNITS: [(&str, u128); 4] = [
    ("ns", 1),
    ("us", 1000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// Decimal digits in groups of three.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        assert_eq!(parse_integer("0"), Some(0));
        assert_eq!(parse_integer("64"), Some(64));
        assert_eq!(parse_integer("2147483647"), Some(2_147_483_647));
        for bad in ["", "-1", "+1", "1k", "1.5", "0x10", "2147483648"] {
            assert_eq!(parse_integer(bad), None, "{bad}");
        }
    }

    #[test]
    fn rates() {
        for (text, value) in [
            ("100", 100),
            ("2k", 2000),
            ("1.5m", 1_500_000),
            ("37.2K", 37_200),
            ("0.5M", 500_000),
            ("4.35k", 4350),
            ("1.9", 1),
            ("0", 0),
        ] {
            assert_eq!(parse_rate(text), Some(value), "{text}");
        }
        for bad in [
            "1g", "1kk", "k", "-1", "", ".", "1.2.3", "3000m", "1e3", "+5",
        ] {
            assert_eq!(parse_rate(bad), None, "{bad}");
        }
        assert_eq!(show_rate(2_100_000), "2100k");
        assert_eq!(show_rate(5_000_000), "5m");
        assert_eq!(show_rate(1001), "1001");
    }

    #[test]
    fn durations() {
        for (text, value, whole) in [
            ("60", 60, true),
            ("100s", 100, true),
            ("1.5m", 90, true),
            ("10.1d", 872_640, true),
            ("2h", 7200, true),
            ("30x", 30, false),
            ("0.5", 0, true),
            ("0", 0, true),
        ] {
            assert_eq!(duration(text), Some(LooseNumber { value, whole }), "{text}");
        }
        for bad in ["-5", "x", "", "99999999999"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn intervals() {
        for (text, ns) in [
            ("0us", 0),
            ("1us", 1000),
            ("6.25ms", 6_250_000),
            ("60s", 60_000_000_000),
            ("15ns", 15),
            ("1500us", 1_500_000),
        ] {
            assert_eq!(interval(text), Some(ns), "{text}");
        }
        for bad in ["5", "1m", "us", "-1us", "0.5ns", "1us2", "99999999999999s"] {
            assert_eq!(interval(bad), None, "{bad}");
        }
        assert_eq!(show_interval(0), "0s");
        assert_eq!(show_interval(1_500_000), "1500us");
        assert_eq!(show_interval(6_250_001), "6250001ns");
    }

    #[test]
    fn loose_numbers() {
        let read = |text| loose(text).map(|l| (l.value, l.whole));
        assert_eq!(read("12"), Some((12, true)));
        assert_eq!(read("12abc"), Some((12, false)));
        assert_eq!(read("abc"), Some((0, false)));
        assert_eq!(read("+5"), Some((5, true)));
        assert_eq!(read("-5"), None);
        assert_eq!(read("99999999999"), None);
        assert_eq!(
            signed("-5x"),
            Some(LooseNumber {
                value: -5,
                whole: false
            })
        );
        let read = |text| hexadecimal(text).map(|l| (l.value, l.whole));
        assert_eq!(read("0x10"), Some((16, true)));
        assert_eq!(read("16"), Some((16, true)));
        assert_eq!(read("16z"), Some((16, false)));
        assert_eq!(read("abc"), None);
        assert_eq!(read("0x"), None);
        assert_eq!(read("0x+1"), None);
    }

    #[test]
    fn groups_of_three() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(430_393_544), "430,393,544");
    }
}
