//! Marks of an axis, and how their figures are written.
//!
//! The module knows numbers only. An axis has a low and a high end, and everything between them is a share
//! from 0 to 1.

use crate::figures::{group, significant};

/// Larger values are not drawn: differences between them would overflow a double.
const LARGEST: f64 = 1e300;

/// Returns true if a value has a place on a linear axis.
pub(crate) fn drawable(value: f64) -> bool {
    value.abs() <= LARGEST
}

/// Marks at equal distances; the first and the last are the ends of the axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ticks {
    /// Ascending, at least two.
    pub(crate) at: Vec<f64>,
    pub(crate) step: f64,
}

/// Minimum number of marks that cover any axis: one on each side of zero, and zero.
const LEAST_TICKS: usize = 3;

impl Ticks {
    /// Multiples of 1, 2 or 5 times a power of ten that cover two [`drawable`] values: at most `most` marks,
    /// or [`LEAST_TICKS`] if `most` is lower.
    pub(crate) fn linear(low: f64, high: f64, most: usize) -> Self {
        let most = most.max(LEAST_TICKS) as f64;
        let (low, high) = apart(low.min(high), low.max(high));
        let rough = (high - low) / most;
        let mut power = rough.log10().floor() as i32;
        loop {
            for digit in [1.0, 2.0, 5.0] {
                let step = digit * 10f64.powi(power);
                let (first, last) = (floor(low / step), ceil(high / step));
                let steps = last - first;
                if steps < most {
                    let at = (0..=steps as usize).map(|i| (first + i as f64) * step);
                    return Self {
                        at: at.collect(),
                        step,
                    };
                }
            }
            power += 1;
        }
    }

    pub(crate) fn low(&self) -> f64 {
        self.at.first().copied().unwrap_or(0.0)
    }

    pub(crate) fn high(&self) -> f64 {
        self.at.last().copied().unwrap_or(1.0)
    }

    /// Position along the axis, 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let span = self.high() - self.low();
        ((value - self.low()) / span).clamp(0.0, 1.0)
    }
}

/// Moves two ends apart until the marks between them differ, too.
fn apart(low: f64, high: f64) -> (f64, f64) {
    let size = low.abs().max(high.abs());
    if size < LARGEST.recip() {
        (0.0, 1.0)
    } else if high - low < size * 1e-9 {
        (low - size / 10.0, high + size / 10.0)
    } else {
        (low, high)
    }
}

/// Returns `f64::floor`, except that 2.9999999999 becomes 3.
fn floor(x: f64) -> f64 {
    (x + 1e-9).floor()
}

/// Returns `f64::ceil`, except that 3.0000000001 becomes 3.
fn ceil(x: f64) -> f64 {
    (x - 1e-9).ceil()
}

const LARGE: [(&str, f64); 5] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];

const SMALL: [(&str, f64); 3] = [("m", 1e-3), ("u", 1e-6), ("n", 1e-9)];

/// A unit with the prefix in which figures of an axis are written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unit {
    /// `Mbit/s`. Empty for none.
    pub(crate) name: String,
    /// Value of 1 of this unit in the unit without a prefix.
    pub(crate) factor: f64,
}

impl Unit {
    /// The unit `base` for values up to `size`.
    pub(crate) fn of(base: &str, size: f64) -> Self {
        let size = size.abs();
        // Per cent has no prefixes, and seconds alone are commonly divided.
        let (prefix, factor) = if base.starts_with('%') {
            ("", 1.0)
        } else if base == "s" && size < 1.0 && size > 0.0 {
            let small = SMALL.iter().find(|(_, factor)| size >= *factor);
            *small.unwrap_or(&SMALL[2])
        } else {
            let large = LARGE.iter().rfind(|(_, factor)| size >= *factor);
            *large.unwrap_or(&LARGE[0])
        };
        // kpps and Mbit/s, but k transactions/s.
        let joined = base.starts_with('/')
            || ["bit", "B", "s", "fps", "pps", "cps", "rps", "tps", "Hz"]
                .iter()
                .any(|word| {
                    let rest = base.strip_prefix(word);
                    rest.is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
                });
        let gap = if joined || prefix.is_empty() || base.is_empty() {
            ""
        } else {
            " "
        };
        Self {
            name: format!("{prefix}{gap}{base}"),
            factor,
        }
    }

    /// A value in three digits, without the unit.
    pub(crate) fn figure(&self, value: f64) -> String {
        number(value / self.factor)
    }

    /// Half width of the interval around a value that was written as `figure`: with the same
    /// decimal places, but never rounded to zero.
    pub(crate) fn doubt(&self, half_width: f64, figure: &str) -> String {
        let scaled = half_width / self.factor;
        if figure.contains('e') || scaled >= 1e9 {
            return number(scaled);
        }
        let places = figure.find('.').map_or(0, |point| figure.len() - point - 1);
        let text = format!("{scaled:.places$}");
        if scaled > 0.0 && text.parse() == Ok(0.0) {
            return if scaled < 1e-4 {
                format!("{scaled:.0e}")
            } else {
                significant(scaled, 1)
            };
        }
        group(&text)
    }

    /// Figure of a mark, with as many decimal places as the step has.
    pub(crate) fn tick(&self, value: f64, step: f64) -> String {
        fixed(value / self.factor, step / self.factor)
    }
}

/// A value in three digits, or as a power of ten if that is shorter.
fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1e9 || (size > 0.0 && size < 1e-4) {
        format!("{value:.2e}")
    } else {
        group(&significant(value, 3))
    }
}

/// `value` with the places that a multiple of `step` needs.
fn fixed(value: f64, step: f64) -> String {
    let value = if value.abs() < step / 2.0 { 0.0 } else { value };
    if value.abs() >= 1e9 || step < 1e-6 {
        return if value == 0.0 {
            "0".to_owned()
        } else {
            format!("{value:.3e}")
        };
    }
    let places = (-(step.log10() + 1e-9).floor()).max(0.0) as usize;
    group(&format!("{value:.places$}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(low: f64, high: f64, most: usize, unit: &str) -> (Vec<String>, String) {
        let ticks = Ticks::linear(low, high, most);
        let unit = Unit::of(unit, high);
        let labels = ticks.at.iter().map(|t| unit.tick(*t, ticks.step));
        (labels.collect(), unit.name)
    }

    #[test]
    fn steps_are_round() {
        let (texts, unit) = labels(0.0, 941e6, 6, "bit/s");
        assert_eq!(texts, ["0", "200", "400", "600", "800", "1,000"]);
        assert_eq!(unit, "Mbit/s");
    }

    #[test]
    fn units_take_prefixes() {
        let of = |base, size| Unit::of(base, size).name;
        assert_eq!(of("bit/s", 9.4e9), "Gbit/s");
        assert_eq!(of("/s", 55_000.0), "k/s");
        assert_eq!(of("transactions/s", 55_000.0), "k transactions/s");
        assert_eq!(of("s", 0.000_042), "us");
        assert_eq!(of("s", 1e-12), "ns");
        assert_eq!(of("s", 0.0), "s");
        assert_eq!(of("%", 5000.0), "%");
        assert_eq!(of("", 5000.0), "k");
        assert_eq!(of("B", 999.0), "B");
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(fixed(0.1 + 0.2, 0.1), "0.3");
        assert_eq!(fixed(-1e-17, 0.5), "0.0");
        assert_eq!(fixed(1500.0, 500.0), "1,500");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(1234.5), "1,234");
        assert_eq!(number(1.25e-7), "1.25e-7");
    }

    #[test]
    fn a_half_width_has_the_places_of_its_value() {
        let unit = Unit::of("bit/s", 9.38e9);
        assert_eq!(unit.doubt(281.4e6, &unit.figure(9.38e9)), "0.28");
        assert_eq!(unit.doubt(0.3e6, &unit.figure(9.38e9)), "0.0003");
        assert_eq!(unit.doubt(0.0, &unit.figure(9.38e9)), "0.00");
        assert_eq!(unit.doubt(1.0, &unit.figure(9.38e9)), "1e-9");
        assert_eq!(unit.doubt(2.6e9, &unit.figure(941e9)), "3");
    }

    #[test]
    fn a_single_value_gets_an_axis() {
        assert_eq!(
            Ticks::linear(0.0, 0.0, 6).at,
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        let around = Ticks::linear(7.0, 7.0, 6);
        assert!(around.low() < 7.0 && around.high() > 7.0);
    }

    proptest! {
        #[test]
        fn ticks_cover_and_ascend(
            a in prop_oneof![-1e3..1e3, -1e300..1e300, Just(0.0), -1e-200..1e-200],
            b in prop_oneof![-1e3..1e3, -1e300..1e300, Just(0.0), -1e-200..1e-200],
            most in 0usize..20,
        ) {
            let ticks = Ticks::linear(a, b, most);
            let slack = ticks.step * 1e-6;
            prop_assert!(ticks.low() <= a.min(b) + slack, "{ticks:?}");
            prop_assert!(ticks.high() >= a.max(b) - slack, "{ticks:?}");
            prop_assert!(ticks.at.len() >= 2 && ticks.at.len() <= most.max(LEAST_TICKS));
            prop_assert!(ticks.at.windows(2).all(|w| w[0] < w[1]), "{ticks:?}");
            let digits = ticks.step / 10f64.powf(ticks.step.log10().floor());
            let round = [1.0, 2.0, 5.0, 10.0].iter().any(|d| (digits - d).abs() < 1e-6);
            prop_assert!(round, "a step of {}", ticks.step);
            for value in [a, b] {
                prop_assert!((0.0..=1.0).contains(&ticks.share(value)));
            }
        }

        #[test]
        fn any_number_is_written(value in any::<f64>(), step in any::<f64>()) {
            prop_assert!(!number(value).is_empty());
            prop_assert!(!fixed(value, step.abs()).is_empty());
        }
    }
}
