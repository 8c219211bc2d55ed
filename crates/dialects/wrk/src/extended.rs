//! Arithmetic as wrk performs it on x86: `long double`, 64 bits of mantissa. Latencies are whole microseconds, so
//! a latency in milliseconds often lies exactly between two hundredths. The last of these bits then decides the
//! direction of rounding.

use std::cmp::Ordering;

/// A number that is not negative: mantissa · 2^exponent. The mantissa has its highest bit set or is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    mantissa: u64,
    exponent: i32,
}

impl Extended {
    const ZERO: Self = Self {
        mantissa: 0,
        exponent: 0,
    };

    /// The number nearest to `value` · 2^`exponent`; with `more`, a residue below the last bit of `value` is added
    /// first.
    fn nearest_to(value: u128, exponent: i32, more: bool) -> Self {
        if value == 0 {
            return Self::ZERO;
        }
        let bits = 128 - value.leading_zeros();
        let Some(cut @ 1..) = bits.checked_sub(64) else {
            let shift = 64 - bits;
            return Self {
                mantissa: (value << shift) as u64,
                exponent: exponent - shift as i32,
            };
        };
        let kept = (value >> cut) as u64;
        let rest = value & ((1 << cut) - 1);
        let up = match rest.cmp(&(1 << (cut - 1))) {
            Ordering::Less => false,
            Ordering::Equal => more || kept & 1 == 1,
            Ordering::Greater => true,
        };
        let exponent = exponent + cut as i32;
        match kept.checked_add(u64::from(up)) {
            Some(mantissa) => Self { mantissa, exponent },
            None => Self {
                mantissa: 1 << 63,
                exponent: exponent + 1,
            },
        }
    }

    /// Conversion of a double; 0 for negative values, infinities and NaN.
    pub(crate) fn from_f64(value: f64) -> Self {
        if !value.is_finite() || value <= 0.0 {
            return Self::ZERO;
        }
        let bits = value.to_bits();
        let fraction = bits & ((1 << 52) - 1);
        match (bits >> 52) as i32 {
            0 => Self::nearest_to(fraction.into(), -1074, false),
            power => Self::nearest_to((fraction | 1 << 52).into(), power - 1075, false),
        }
    }

    pub(crate) fn to_f64(self) -> f64 {
        self.mantissa as f64 * f64::from(self.exponent).exp2()
    }

    /// Decimal text with `places` decimals, rounded half to even.
    pub(crate) fn decimal_text(self, places: u32) -> String {
        let scale = 10u64.pow(places);
        let scaled = u128::from(self.mantissa) * u128::from(scale);
        let hundredths = match self.exponent {
            // Larger than any counter and any rate.
            50.. => return format!("{:.*}", places as usize, self.to_f64()),
            up @ 0.. => scaled << up,
            down => {
                let down = down.unsigned_abs();
                let whole = scaled.checked_shr(down).unwrap_or(0);
                let rest = scaled - whole.checked_shl(down).unwrap_or(0);
                let half = 1u128.checked_shl(down - 1).unwrap_or(u128::MAX);
                match rest.cmp(&half) {
                    Ordering::Less => whole,
                    Ordering::Equal => whole + (whole & 1),
                    Ordering::Greater => whole + 1,
                }
            }
        };
        let scale = u128::from(scale);
        match places {
            0 => hundredths.to_string(),
            _ => format!(
                "{}.{:0width$}",
                hundredths / scale,
                hundredths % scale,
                width = places as usize
            ),
        }
    }
}

impl From<u128> for Extended {
    fn from(value: u128) -> Self {
        Self::nearest_to(value, 0, false)
    }
}

impl From<u64> for Extended {
    fn from(value: u64) -> Self {
        u128::from(value).into()
    }
}

impl std::ops::Div for Extended {
    type Output = Self;

    /// Returns 0 for a division by 0.
    fn div(self, by: Self) -> Self {
        if by.mantissa == 0 {
            return Self::ZERO;
        }
        let divisor = u128::from(by.mantissa);
        let dividend = u128::from(self.mantissa) << 64;
        // One bit more than is kept, for rounding.
        let rest = dividend % divisor * 2;
        let bit = u128::from(rest >= divisor);
        let quotient = dividend / divisor * 2 + bit;
        let exponent = self.exponent - by.exponent - 65;
        Self::nearest_to(quotient, exponent, rest - bit * divisor != 0)
    }
}

impl std::ops::Mul for Extended {
    type Output = Self;

    fn mul(self, by: Self) -> Self {
        let product = u128::from(self.mantissa) * u128::from(by.mantissa);
        Self::nearest_to(product, self.exponent + by.exponent, false)
    }
}

impl std::ops::Add for Extended {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        if self.mantissa == 0 || other.mantissa == 0 {
            return if self.mantissa == 0 { other } else { self };
        }
        let (large, small) = match self.exponent >= other.exponent {
            true => (self, other),
            false => (other, self),
        };
        let away = (large.exponent - small.exponent) as u32;
        let shifted = u128::from(small.mantissa) << 63;
        let part = shifted.checked_shr(away).unwrap_or(0);
        let more = part.checked_shl(away).unwrap_or(0) != shifted;
        let sum = (u128::from(large.mantissa) << 63) + part;
        Self::nearest_to(sum, large.exponent - 63, more)
    }
}

impl PartialOrd for Extended {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        // With the highest bit set, the larger exponent is the larger number.
        let key = |n: &Self| (n.mantissa != 0, n.exponent, n.mantissa);
        Some(key(self).cmp(&key(other)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ties as C prints them: each value lies between two hundredths of a millisecond, and half of them round up.
    #[test]
    fn ties_go_as_in_80_bits() {
        let milliseconds = |us: u64| (Extended::from(us) / 1000u64.into()).decimal_text(2);
        for (us, shown) in [
            (855, "0.86"),
            (865, "0.87"),
            (875, "0.88"),
            (905, "0.90"),
            (1065, "1.07"),
            (1095, "1.10"),
        ] {
            assert_eq!(milliseconds(us), shown);
        }
        let up = |us: &u64| milliseconds(*us) != format!("{}.{:02}", us / 1000, us / 10 % 100);
        assert_eq!((855..1_000_000).step_by(10).filter(up).count(), 49_959);
    }

    #[test]
    fn a_tie_of_the_last_bit_goes_to_even() {
        let sum = |whole: u64, part: f64| Extended::from(whole) + Extended::from_f64(part);
        for (whole, part, nearest) in [
            (1u64 << 63, 0.5, 1u64 << 63),
            (1 << 63, 0.5 + 1e-12, (1 << 63) + 1),
            ((1 << 63) + 1, 0.5, (1 << 63) + 2),
            ((1 << 63) + 1, 0.5 - 1e-12, (1 << 63) + 1),
        ] {
            assert_eq!(sum(whole, part), Extended::from(nearest), "{whole} {part}");
            assert_eq!(Extended::from_f64(part) + whole.into(), sum(whole, part));
        }
        let past = (1u128 << 64) + 3;
        assert_eq!(Extended::from(past), Extended::from(past + 1));
        assert_eq!(Extended::from(past - 2), Extended::from(past - 3));
        assert_eq!(
            Extended::from(u128::MAX),
            Extended::from(1u128 << 127) * 2u64.into()
        );
    }

    #[test]
    fn decimals_of_halves_go_to_even() {
        for (value, places, shown) in [
            (0.5, 0, "0"),
            (1.5, 0, "2"),
            (0.125, 2, "0.12"),
            (0.375, 2, "0.38"),
            (1e-300, 2, "0.00"),
            (999.996, 2, "1000.00"),
            (1e30, 0, "1000000000000000019884624838656"),
            (-3.0, 2, "0.00"),
            (f64::NAN, 2, "0.00"),
        ] {
            assert_eq!(Extended::from_f64(value).decimal_text(places), shown);
        }
    }

    proptest! {
        #[test]
        fn a_double_is_kept(value in 1e-200f64..1e200) {
            prop_assert_eq!(Extended::from_f64(value).to_f64(), value);
        }

        #[test]
        fn whole_numbers_are_exact(a: u32, b in 1u32.., c: u64) {
            let [x, y] = [a, b].map(|n| Extended::from(u64::from(n)));
            prop_assert_eq!(x + y, Extended::from(u64::from(a) + u64::from(b)));
            prop_assert_eq!(x * y, Extended::from(u64::from(a) * u64::from(b)));
            prop_assert_eq!(x * y / y, x);
            prop_assert_eq!(x < y, a < b);
            prop_assert_eq!(Extended::from(c).decimal_text(0), c.to_string());
        }

        #[test]
        fn nothing_panics(a: u64, b: u64, bits: u64, places in 0u32..4) {
            let double = Extended::from_f64(f64::from_bits(bits));
            for n in [Extended::from(a) / b.into(), double / a.into(), double * b.into(), double + a.into()] {
                prop_assert!(!n.decimal_text(places).is_empty());
            }
        }
    }
}
