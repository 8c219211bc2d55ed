//! Counts of a plan: a number, or text with a suffix such as `"20k"`. For `deserialize_with`.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, de};

use super::{ParseUnitError, parse_count, parse_number};

/// Reads a whole number, or text such as `"20k"`.
pub(crate) fn count<'de, D: Deserializer<'de>, N: TryFrom<u64>>(
    deserializer: D,
) -> Result<N, D::Error> {
    Count::deserialize(deserializer).map(|count| count.0)
}

/// Reads an optional whole number, or text such as `"20k"`.
pub(crate) fn optional_count<'de, D: Deserializer<'de>, N: TryFrom<u64>>(
    deserializer: D,
) -> Result<Option<N>, D::Error> {
    Option::<Count<N>>::deserialize(deserializer).map(|count| count.map(|count| count.0))
}

/// Reads a number, or text such as `"1.5k"`.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Number::deserialize(deserializer).map(|number| number.0)
}

/// Reads an optional number, or text such as `"1.5k"`.
pub(crate) fn optional_number<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<f64>, D::Error> {
    Option::<Number>::deserialize(deserializer).map(|number| number.map(|number| number.0))
}

/// Returns the largest number of a type.
#[must_use]
pub fn largest<T: TryFrom<u64>>() -> u64 {
    (0..64)
        .map(|shift| u64::MAX >> shift)
        .find(|n| T::try_from(*n).is_ok())
        .unwrap_or(0)
}

fn too_large<N: TryFrom<u64>, E: de::Error>(given: impl fmt::Display) -> E {
    let largest = largest::<N>();
    E::custom(format!("{given} is too large; the largest is {largest}"))
}

struct Count<N>(N);

impl<'de, N: TryFrom<u64>> Deserialize<'de> for Count<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<N>(PhantomData<N>);

        impl<N: TryFrom<u64>> de::Visitor<'_> for Visitor<N> {
            type Value = Count<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, also as text with k, m or g (\"20k\")")
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Count<N>, E> {
                let count = N::try_from(n).map_err(|_| too_large::<N, E>(n))?;
                Ok(Count(count))
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Count<N>, E> {
                match u64::try_from(n) {
                    Ok(n) => self.visit_u64(n),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(n), &self)),
                }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Count<N>, E> {
                match parse_count(text) {
                    Ok(n) => self.visit_u64(n),
                    Err(ParseUnitError::TooLarge { .. }) => Err(too_large::<N, E>(text)),
                    Err(error) => Err(E::custom(error)),
                }
            }
        }

        deserializer.deserialize_any(Visitor(PhantomData))
    }
}

struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        #[allow(clippy::cast_precision_loss)]
        impl de::Visitor<'_> for Visitor {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, also as text with k, m or g (\"1.5k\")")
            }

            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Number, E> {
                Ok(Number(n))
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Number, E> {
                Ok(Number(n as f64))
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Number, E> {
                Ok(Number(n as f64))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                let n = parse_number(text).map_err(E::custom)?;
                Ok(Number(n.as_f64()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Plan {
        #[serde(deserialize_with = "super::count")]
        whole: u32,
        #[serde(default, deserialize_with = "super::optional_count")]
        optional: Option<u64>,
        #[serde(deserialize_with = "super::number")]
        number: f64,
    }

    #[test]
    fn the_largest_number_of_a_type() {
        assert_eq!(
            [
                super::largest::<u8>(),
                super::largest::<u32>(),
                super::largest::<u64>()
            ],
            [255, 0xffff_ffff, u64::MAX]
        );
        assert_eq!(super::largest::<i32>(), 0x7fff_ffff);
    }

    #[test]
    fn counts_have_suffixes() {
        let read = |text: &str| {
            let plan = toml::from_str::<Plan>(text);
            plan.map(|p| (p.whole, p.optional, p.number))
        };
        let suffixes = "whole = \"20k\"\noptional = \"1.5m\"\nnumber = \"0.5k\"";
        assert_eq!(read(suffixes), Ok((20_000, Some(1_500_000), 500.0)));
        assert_eq!(read("whole = 7\nnumber = 0.5"), Ok((7, None, 0.5)));
        for (text, reason) in [
            (
                "whole = \"5g\"\nnumber = 1",
                "5000000000 is too large; the largest is 4294967295",
            ),
            (
                "whole = \"99999999999g\"\nnumber = 1",
                "99999999999g is too large; the largest is 4294967295",
            ),
            ("whole = -1\nnumber = 1", "expected a whole number"),
            ("whole = 1.5\nnumber = 1", "expected a whole number"),
            ("whole = \"1.5\"\nnumber = 1", "whole number"),
            ("whole = 1\nnumber = \"fast\"", "a number"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let json = "{\"whole\": 1, \"optional\": null, \"number\": 2}";
        let plan: Plan = serde_json::from_str(json).unwrap();
        assert_eq!((plan.whole, plan.optional), (1, None));
    }
}
