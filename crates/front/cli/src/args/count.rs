//! Value parser of options that take a count.

use std::ops::{Bound, RangeBounds};

use wb_model::units::{ParseUnitError, largest, parse_count};

/// Returns a value parser for a whole number in `range`, also with k, m or g: `5`, `2k`, `1.5m`.
pub(crate) fn count_in<T: TryFrom<u64>>(
    range: impl RangeBounds<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    let least = match range.start_bound() {
        Bound::Included(n) => *n,
        Bound::Excluded(n) => n.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let most = match range.end_bound() {
        Bound::Included(n) => *n,
        Bound::Excluded(n) => n.saturating_sub(1),
        Bound::Unbounded => largest::<T>(),
    };
    move |text| {
        let number = match parse_count(text) {
            Ok(number) => number,
            // The range of the option is the answer, unless it has no end.
            Err(ParseUnitError::TooLarge { .. }) if most < u64::MAX => u64::MAX,
            Err(error) => return Err(error.to_string()),
        };
        T::try_from(number)
            .ok()
            .filter(|_| (least..=most).contains(&number))
            .ok_or_else(|| match most {
                u64::MAX => format!("must be at least {least}"),
                _ => format!("must be between {least} and {most}"),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_suffixes_and_limits() {
        assert_eq!(count_in::<u64>(0..)("1.5m"), Ok(1_500_000));
        assert_eq!(count_in::<u8>(1..)("5"), Ok(5));
        for (error, text) in [
            (
                count_in::<u32>(1..=512)("2k").unwrap_err(),
                "must be between 1 and 512",
            ),
            (
                count_in::<u8>(0..)("2k").unwrap_err(),
                "must be between 0 and 255",
            ),
            (
                count_in::<u64>(..=512)("99999999999g").unwrap_err(),
                "must be between 0 and 512",
            ),
            (
                count_in::<u32>(0..)("99999999999999999999").unwrap_err(),
                "must be between 0 and 4294967295",
            ),
            (
                count_in::<u64>(0..)("99999999999999999999").unwrap_err(),
                "\"99999999999999999999\" is too large; the largest is 18446744073709551615",
            ),
            (count_in::<u64>(1..)("0").unwrap_err(), "must be at least 1"),
        ] {
            assert_eq!(error, text);
        }
        assert!(count_in::<u32>(0..)("1.5").is_err() && count_in::<u32>(0..)("x").is_err());
    }
}
