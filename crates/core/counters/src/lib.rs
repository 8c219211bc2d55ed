//! Counters of interfaces and CPUs: parsers of the kernel's texts, and the arithmetic over two readings.
//!
//! Knows no files, sockets or clocks: texts, counters and times are arguments. [`rise`] computes the increase of a
//! counter between two readings. It recognises wraps, and a reset never becomes a rate. [`Series`] follows interfaces
//! from reading to reading and returns the intervals between readings and the totals.

#![forbid(unsafe_code)]

pub mod advice;
pub mod cpu;
pub mod device;
pub mod interrupts;
pub mod link;
pub mod path;
pub mod rates;
pub mod series;
pub mod softnet;
pub mod stat_document;

pub use link::{Folded, LinkCounters};
pub use rates::LinkRates;
pub use series::{LinkInterval, LinkProperties, LinkReading, LinkState, Series, Smooth};
pub use softnet::Softnet;

/// Value above which a 64-bit counter may have wrapped.
const HIGH: u64 = 1 << 63;

/// Returns the increase of a counter from `old` to `new`, or `None` if it was reset in between.
///
/// A decrease is a wrap only if the counter was in the upper half of its 64 bits and its sister (packets for bytes,
/// bytes for packets) rose.
#[must_use]
pub const fn rise(old: u64, new: u64, sister_rose: bool) -> Option<u64> {
    if new >= old {
        Some(new - old)
    } else if old >= HIGH && sister_rose {
        Some(new.wrapping_sub(old))
    } else {
        None
    }
}

/// Returns the increase of a 32-bit counter, which wraps every 20 minutes at 3.5 million per second.
#[must_use]
pub const fn rise_of_32_bits(old: u32, new: u32) -> u64 {
    new.wrapping_sub(old) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrap_is_no_reset() {
        assert_eq!(rise(u64::MAX - 99, 50, true), Some(150));
        assert_eq!(rise(u64::MAX - 99, 50, false), None);
        assert_eq!(rise(1000, 10, true), None);
        assert_eq!(rise(10, 1000, false), Some(990));
        assert_eq!(rise_of_32_bits(u32::MAX - 9, 10), 20);
    }
}
