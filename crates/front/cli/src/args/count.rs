//! Value parser of options that take a count.

use std::ops::{Bound, RangeBounds};

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
        let number = wb_model::units::parse_count(text).map_err(|e| e.to_string())?;
        T::try_from(number)
            .ok()
            .filter(|_| (least..=most).contains(&number))
            .ok_or_else(|| match most {
                u64::MAX => format!("must be at least {least}"),
                _ => format!("must be between {least} and {most}"),
            })
    }
}

/// Returns the largest number of a type.
fn largest<T: TryFrom<u64>>() -> u64 {
    (0..64)
        .map(|shift| u64::MAX >> shift)
        .find(|n| T::try_from(*n).is_ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_suffixes_and_limits() {
        assert_eq!(count_in::<u64>(0..)("1.5m"), Ok(1_500_000));
        assert_eq!(count_in::<u8>(1..)("5"), Ok(5));
        assert_eq!(
            [largest::<u8>(), largest::<u32>(), largest::<u64>()],
            [255, 0xffff_ffff, u64::MAX]
        );
        assert_eq!(largest::<i32>(), 0x7fff_ffff);
        for (error, text) in [
            (
                count_in::<u32>(1..=512)("2k").unwrap_err(),
                "must be between 1 and 512",
            ),
            (
                count_in::<u8>(0..)("2k").unwrap_err(),
                "must be between 0 and 255",
            ),
            (count_in::<u64>(1..)("0").unwrap_err(), "must be at least 1"),
        ] {
            assert_eq!(error, text);
        }
        assert!(count_in::<u32>(0..)("1.5").is_err() && count_in::<u32>(0..)("x").is_err());
    }
}
