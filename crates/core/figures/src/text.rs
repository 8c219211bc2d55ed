//! Figures for people: grouped digits, units, and shares that hide nothing.

/// Placeholder for an unknown figure.
pub const UNKNOWN: &str = "-";

/// A count with its digits in groups of three.
///
/// ```
/// assert_eq!(wb_figures::text::count(1_234_567), "1,234,567");
/// ```
#[must_use]
pub fn count(n: u64) -> String {
    group(&n.to_string())
}

/// A count, or [`UNKNOWN`].
#[must_use]
pub fn count_or(n: Option<u64>) -> String {
    n.map_or_else(|| UNKNOWN.to_owned(), count)
}

/// Frames per second in three digits.
///
/// ```
/// assert_eq!(wb_figures::text::rate_pps(1_234_567.0), "1.23 Mpps");
/// ```
#[must_use]
pub fn rate_pps(pps: f64) -> String {
    scaled(
        pps,
        &[("pps", 1.0), ("kpps", 1e3), ("Mpps", 1e6), ("Gpps", 1e9)],
    )
}

/// Bits per second in three digits. Name the layer in the text around it.
///
/// ```
/// assert_eq!(wb_figures::text::rate_bps(51.2e6), "51.2 Mbit/s");
/// ```
#[must_use]
pub fn rate_bps(bps: f64) -> String {
    scaled(
        bps,
        &[
            ("bit/s", 1.0),
            ("kbit/s", 1e3),
            ("Mbit/s", 1e6),
            ("Gbit/s", 1e9),
            ("Tbit/s", 1e12),
        ],
    )
}

/// Units of time with their length in nanoseconds.
pub const TIME_UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

/// A time in three digits. It may be negative.
///
/// ```
/// assert_eq!(wb_figures::text::time_ns(12_345.0), "12.3 us");
/// ```
#[must_use]
pub fn time_ns(ns: f64) -> String {
    scaled(ns, &TIME_UNITS)
}

/// Frames per second, rounded to whole frames, if three digits would hide a difference.
///
/// ```
/// assert_eq!(wb_figures::text::exact_pps(99_998.4), "99,998 pps");
/// ```
#[must_use]
pub fn exact_pps(pps: f64) -> String {
    if pps.is_finite() && pps.abs() >= 100.0 {
        format!("{} pps", group(&format!("{pps:.0}")))
    } else {
        rate_pps(pps)
    }
}

/// A load without its unit, rounded down to a whole number. Values below 100 have three digits.
///
/// ```
/// use wb_figures::text::load;
/// assert_eq!(load(1_488_095.9), "1,488,095");
/// assert_eq!(load(8.514), "8.51");
/// ```
#[must_use]
pub fn load(value: f64) -> String {
    match value.abs() {
        n if !n.is_finite() => UNKNOWN.to_owned(),
        n if n >= 100.0 || n.fract() == 0.0 => group(&format!("{:.0}", (value + 1e-6).floor())),
        _ => significant(value, 3),
    }
}

/// A part of a whole in per cent, exact enough that neither a part nor a remainder disappears:
/// `0 %` and `100 %` stand for exactly none and exactly all.
///
/// ```
/// use wb_figures::text::share;
/// assert_eq!(share(786, 510_000_000), "0.00015 %");
/// assert_eq!(share(509_999_214, 510_000_000), "99.99985 %");
/// assert_eq!(share(1_000, 500_000), "0.2 %");
/// ```
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return UNKNOWN.to_owned();
    }
    let (whole, part) = (u128::from(whole), u128::from(part));
    let rest = part.abs_diff(whole);
    let small = part.min(rest);
    let mut places = 2;
    // Two digits of the smaller part. 10^places grows no further than `whole` / `small`, so
    // the products stay far below 2^128.
    while small > 0 && small * 10u128.pow(places + 2) < 10 * whole {
        places += 1;
    }
    let rounded = |n: u128| (n * 10u128.pow(places + 2) + whole / 2) / whole;
    let all = 10u128.pow(places + 2);
    let percent = if small == part {
        rounded(part)
    } else if part < whole {
        all - rounded(rest)
    } else {
        all + rounded(rest)
    };
    let one = 10u128.pow(places);
    let digits = format!(
        "{}.{:0width$}",
        percent / one,
        percent % one,
        width = places as usize
    );
    format!("{} %", group(trimmed(&digits)))
}

/// A ratio (0 to 1) in per cent, by the rule of [`share`].
///
/// ```
/// assert_eq!(wb_figures::text::ratio(0.371), "37.1 %");
/// assert_eq!(wb_figures::text::ratio(0.999_998_5), "99.99985 %");
/// ```
#[must_use]
pub fn ratio(r: f64) -> String {
    ratio_to(r, 2)
}

/// A ratio in per cent with at least `least_places` decimal places.
pub fn ratio_to(r: f64, least_places: usize) -> String {
    if !r.is_finite() {
        return UNKNOWN.to_owned();
    }
    let small = r.abs().min((1.0 - r).abs()) * 100.0;
    let places = if small == 0.0 {
        0
    } else {
        usize::try_from(1 - magnitude(small))
            .unwrap_or(0)
            .clamp(least_places, 17.max(least_places))
    };
    let digits = format!("{:.places$}", r * 100.0);
    match trimmed(&digits) {
        // Smaller than the decimal places of a double can show.
        "0" | "-0" if r != 0.0 => format!("{:.1e} %", r * 100.0),
        "100" if r < 1.0 => "<100 %".to_owned(),
        "100" if r > 1.0 => ">100 %".to_owned(),
        text => format!("{} %", group(text)),
    }
}

/// The value in the largest of `units` in which it is at least 1.
fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    let mut unit = units
        .iter()
        .rposition(|(_, scale)| value.abs() >= *scale)
        .unwrap_or(0);
    if unit == 0 && value.fract() == 0.0 {
        return format!("{value:.0} {}", units[0].0).replace("-0 ", "0 ");
    }
    loop {
        let (name, scale) = units[unit];
        let text = significant(value / scale, 3);
        // 999.96 us is shown as 1.00 ms.
        if unit + 1 < units.len() && text.trim_start_matches('-') == "1000" {
            unit += 1;
            continue;
        }
        return format!("{} {name}", group(&text));
    }
}

/// The value in this many significant digits, with all digits before the point.
pub fn significant(value: f64, digits: usize) -> String {
    let format = |magnitude: i32| {
        let digits = i32::try_from(digits).unwrap_or(i32::MAX);
        let places = usize::try_from(digits - 1 - magnitude).unwrap_or(0);
        format!("{value:.places$}")
    };
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format(magnitude(value));
    // 9.996 in three digits is 10.0, not 10.00.
    match text.parse::<f64>() {
        Ok(read) if magnitude(read) > magnitude(value) => format(magnitude(read)),
        _ => text,
    }
}

/// The power of ten of the first digit that is not 0.
#[allow(clippy::cast_possible_truncation)]
fn magnitude(value: f64) -> i32 {
    value.abs().log10().floor() as i32
}

/// Digits before the point in groups of three.
pub fn group(digits: &str) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let end = digits.find('.').unwrap_or(digits.len());
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    text.push_str(sign);
    for (i, c) in digits[..end].chars().enumerate() {
        if i > 0 && (end - i) % 3 == 0 {
            text.push(',');
        }
        text.push(c);
    }
    text.push_str(&digits[end..]);
    text
}

/// Removes zeros at the end of a fraction.
pub fn trimmed(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_are_grouped() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(count(n), text);
        }
        assert_eq!(count_or(None), "-");
        assert_eq!(group("-1234.5678"), "-1,234.5678");
    }

    #[test]
    fn rates_have_three_digits() {
        for (pps, text) in [
            (0.0, "0 pps"),
            (0.5, "0.500 pps"),
            (7.0, "7 pps"),
            (999.9, "1.00 kpps"),
            (100_000.0, "100 kpps"),
            (8_500_000.0, "8.50 Mpps"),
            (14_880_952.0, "14.9 Mpps"),
            (999_600.0, "1.00 Mpps"),
            (1.19e9, "1.19 Gpps"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(rate_pps(pps), text);
        }
        assert_eq!(rate_bps(9_999_999_744.0), "10.0 Gbit/s");
        assert_eq!(rate_bps(800e9), "800 Gbit/s");
        assert_eq!(exact_pps(14_880_952.38), "14,880,952 pps");
        assert_eq!(exact_pps(0.5), "0.500 pps");
    }

    #[test]
    fn times_find_their_unit() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (0.84, "0.840 ns"),
            (850.0, "850 ns"),
            (9.996, "10.0 ns"),
            (12_345.0, "12.3 us"),
            (-12_345.0, "-12.3 us"),
            (999_960.0, "1.00 ms"),
            (1_500_000_000.0, "1.50 s"),
            (7_200e9, "7,200 s"),
        ] {
            assert_eq!(time_ns(ns), text, "{ns}");
        }
    }

    #[test]
    fn shares_of_the_usual_kinds() {
        for (part, whole, text) in [
            (0, 10, "0 %"),
            (10, 10, "100 %"),
            (1, 2, "50 %"),
            (1, 3, "33.33 %"),
            (5, 2, "250 %"),
            (1, u64::MAX, "0.0000000000000000054 %"),
            (u64::MAX - 1, u64::MAX, "99.9999999999999999946 %"),
            (1_000_001, 1_000_000, "100.0001 %"),
            (3, 0, "-"),
        ] {
            assert_eq!(share(part, whole), text, "{part} of {whole}");
        }
        assert_eq!(ratio(0.0), "0 %");
        assert_eq!(ratio(1.0), "100 %");
        assert_eq!(ratio(0.5), "50 %");
        assert_eq!(ratio(1e-30), "1.0e-28 %");
        assert_eq!(ratio(f64::NAN), "-");
    }

    proptest! {
        #[test]
        fn no_share_hides_a_part_or_a_remainder(a: u64, b: u64, shift in 0u32..64) {
            let (part, whole) = (a >> shift, b.max(1));
            let text = share(part, whole);
            prop_assert_eq!(text == "0 %", part == 0, "{} of {}: {}", part, whole, text);
            prop_assert_eq!(text == "100 %", part == whole, "{} of {}: {}", part, whole, text);
            let number: f64 = text.trim_end_matches(" %").replace(',', "").parse().unwrap();
            let exact = part as f64 / whole as f64 * 100.0;
            prop_assert!((number - exact).abs() <= 0.006f64.max(exact * 1e-12), "{} {}", number, exact);
            prop_assert!(part == 0 || number > 0.0);
        }

        #[test]
        fn almost_all_is_not_all(whole in 2u64.., missing in 1u64..1000) {
            let text = share(whole.saturating_sub(missing), whole);
            prop_assert_ne!(text, "100 %");
            let text = share(missing.min(whole - 1), whole);
            prop_assert_ne!(text, "0 %");
        }

        #[test]
        fn no_ratio_hides_a_part_or_a_remainder(r in 0.0f64..=1.0, small in 1e-18f64..1e-3) {
            for r in [r, small, 1.0 - small] {
                prop_assert_eq!(ratio(r) == "0 %", r == 0.0);
                prop_assert_eq!(ratio(r) == "100 %", r == 1.0);
            }
        }

        #[test]
        fn scaled_figures_read_back(ns in -1e15f64..1e15) {
            let text = time_ns(ns);
            let (number, unit) = text.split_once(' ').unwrap();
            let scale = TIME_UNITS.iter().find(|(name, _)| *name == unit).unwrap().1;
            let read = number.replace(',', "").parse::<f64>().unwrap() * scale;
            prop_assert!((read - ns).abs() <= ns.abs() * 0.0051, "{} {}", ns, text);
        }
    }
}
