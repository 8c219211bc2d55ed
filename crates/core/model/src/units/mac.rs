//! Hardware addresses in plans.

use std::{fmt, str::FromStr};

use super::{ParseUnitError, string_serde};

/// MAC address as the user writes it, `02:00:00:00:00:01`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || ParseUnitError::new(text, "a MAC address such as 02:00:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.trim().split([':', '-']);
        for byte in &mut bytes {
            let part = parts
                .next()
                // from_str_radix would accept a sign.
                .filter(|p| (1..=2).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_hexdigit()))
                .ok_or_else(error)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() {
            Err(error())
        } else {
            Ok(Self(bytes))
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

string_serde!(Mac, "Mac", "a MAC address", "02:00:00:00:00:01");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        let mac: Mac = "02-0-a:FF:00:01".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:0a:ff:00:01");
        for text in ["", "02:00:00:00:00", "02:00:00:00:00:+1", "1:2:3:4:5:6:7"] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
