//! Text forms of delays and flags.

use std::{fmt, str::FromStr};

use super::{Delay, Flags, flags};
use crate::units::{ParseUnitError, string_serde};

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = self.exact_ns;
        match exact.denominator() {
            _ if self.is_never() => f.write_str("never"),
            1 => write!(f, "{}", exact.numerator()),
            den => write!(f, "{}/{den}", exact.numerator()),
        }
    }
}

impl FromStr for Delay {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || {
            ParseUnitError::new(
                text,
                "nanoseconds between two transmit calls: a whole number, a fraction such as 1000/3, or never",
            )
        };
        let text = text.trim();
        if text == "never" {
            return Ok(Self::whole(Self::NEVER));
        }
        let (num, den) = text.split_once('/').unwrap_or((text, "1"));
        let num: u64 = num.trim().parse().map_err(|_| error())?;
        let den: u64 = den
            .trim()
            .parse()
            .ok()
            .filter(|d| *d > 0)
            .ok_or_else(error)?;
        Ok(if den == 1 {
            Self::whole(num)
        } else {
            Self::fraction(num, den)
        })
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = flags::FLAGS
            .iter()
            .filter(|flag| self.has(flag.bit))
            .map(|flag| flag.name)
            .collect();
        f.write_str(&names.join(" "))
    }
}

impl FromStr for Flags {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let mut all = Self(0);
        for name in text.split_whitespace() {
            let flag = flags::find(name.as_bytes())
                .ok_or_else(|| ParseUnitError::new(name, "the name of a flag, such as UDPCSUM"))?;
            all.put(flag.bit, true);
        }
        Ok(all)
    }
}

string_serde!(
    Delay,
    "Delay",
    "nanoseconds between two transmit calls, a fraction of them, or never; 0 is full speed",
    "1000/3"
);
string_serde!(
    Flags,
    "Flags",
    "names of flags, separated by blanks",
    "UDPCSUM SHARED"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rational;

    #[test]
    fn texts_come_back() {
        for delay in [
            Delay::whole(0),
            Delay::whole(5000),
            Delay::whole(Delay::NEVER),
            Delay::fraction(1_000_000_000, 3_000_000),
        ] {
            assert_eq!(delay.to_string().parse::<Delay>().unwrap(), delay);
        }
        assert_eq!(
            Delay::fraction(1000, 3).exact_ns,
            Rational::new(1000, 3).unwrap()
        );
        for bad in ["", "x", "1/0", "-1", "1/2/3"] {
            assert!(bad.parse::<Delay>().is_err(), "{bad}");
        }
        for flags in [Flags(0), Flags(Flags::SHARED), Flags(0x7_ffff)] {
            assert_eq!(flags.to_string().parse::<Flags>().unwrap(), flags);
        }
        assert!("SHARED NOPE".parse::<Flags>().is_err());
    }
}
