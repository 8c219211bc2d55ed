//! Exact non-negative fractions, because rounding errors of rates accumulate.

use std::fmt;

/// Fraction of two 64-bit numbers in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rational {
    num: u64,
    den: u64,
}

/// Reason why a text is not a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecimalError {
    /// Other characters than digits and one point, no digits, or more digits than a fraction of 64-bit numbers holds.
    Form,
    /// The whole part exceeds 64 bits.
    TooLarge,
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Rational {
    /// Zero.
    pub const ZERO: Self = Self { num: 0, den: 1 };

    /// Creates `num / den`, reduced. `None` if `den` is 0 or the reduced parts do not fit 64 bits.
    #[must_use]
    pub fn new(num: u128, den: u128) -> Option<Self> {
        if den == 0 {
            return None;
        }
        let g = gcd(num, den).max(1);
        Some(Self {
            num: u64::try_from(num / g).ok()?,
            den: u64::try_from(den / g).ok()?,
        })
    }

    /// Creates a whole number.
    #[must_use]
    pub const fn whole(n: u64) -> Self {
        Self { num: n, den: 1 }
    }

    /// Numerator.
    #[must_use]
    pub const fn numerator(self) -> u64 {
        self.num
    }

    /// Denominator, never 0.
    #[must_use]
    pub const fn denominator(self) -> u64 {
        self.den
    }

    /// Returns true for 0.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.num == 0
    }

    /// Nearest floating-point number, for display and statistics only.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.num as f64 / self.den as f64
    }

    /// Product; `None` if it does not fit.
    #[must_use]
    pub fn times(self, other: Self) -> Option<Self> {
        Self::new(
            u128::from(self.num) * u128::from(other.num),
            u128::from(self.den) * u128::from(other.den),
        )
    }

    /// Quotient; `None` if `other` is 0 or the result does not fit.
    #[must_use]
    pub fn over(self, other: Self) -> Option<Self> {
        Self::new(
            u128::from(self.num) * u128::from(other.den),
            u128::from(self.den) * u128::from(other.num),
        )
    }

    /// Parses a decimal number without sign: `12`, `1.25`, `.5`.
    pub(crate) fn parse_decimal(text: &str) -> Result<Self, DecimalError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.is_empty() && fraction.is_empty()
            || fraction.len() > 18
            || !whole
                .bytes()
                .chain(fraction.bytes())
                .all(|b| b.is_ascii_digit())
        {
            return Err(DecimalError::Form);
        }
        // Both consist of digits, so only a number that does not fit is an error.
        let number = |digits: &str| match digits {
            "" => Ok(0),
            digits => digits.parse::<u64>().map_err(|_| DecimalError::TooLarge),
        };
        let (whole, part) = (number(whole)?, number(fraction)?);
        let scale = 10u128.pow(fraction.len() as u32);
        Self::new(u128::from(whole) * scale + u128::from(part), scale).ok_or(DecimalError::Form)
    }
}

impl fmt::Display for Rational {
    /// Writes a decimal if one exists within 18 places, otherwise `a/b`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.num / self.den;
        let mut rest = u128::from(self.num % self.den);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let mut digits = String::new();
        while rest != 0 && digits.len() < 18 {
            rest *= 10;
            let digit = u8::try_from(rest / u128::from(self.den)).unwrap_or(9);
            digits.push(char::from(b'0' + digit));
            rest %= u128::from(self.den);
        }
        if rest == 0 {
            write!(f, "{whole}.{digits}")
        } else {
            write!(f, "{}/{}", self.num, self.den)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for text in ["0", "1", "1.25", "14880952.38", "0.001", "100000"] {
            assert_eq!(Rational::parse_decimal(text).unwrap().to_string(), text);
        }
        for text in ["1.2.3", "-1", ".", "10000000000.000000000000000001"] {
            assert_eq!(
                Rational::parse_decimal(text),
                Err(DecimalError::Form),
                "{text}"
            );
        }
        let large = Rational::parse_decimal("18446744073709551616");
        assert_eq!(large, Err(DecimalError::TooLarge));
    }
}
