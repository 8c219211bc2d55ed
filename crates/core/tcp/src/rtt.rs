//! Round-trip time of a connection in two bytes: RFC 6298.
//!
//! Each byte is a time in eighths of an octave, starting at one microsecond, and at most an eighth below the true
//! value. A sample that differs moves the value by at least one step, which compensates for the rounding.

/// Smoothed round-trip time and its variation; 0 while unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rtt {
    smoothed: u8,
    variation: u8,
}

/// Shift to units of 1,024 ns, about a microsecond.
const UNIT: u32 = 10;
/// Upper limit in units: about half an hour.
const LONGEST: u64 = 1 << 31;

impl Rtt {
    pub(crate) const UNKNOWN: Self = Self {
        smoothed: 0,
        variation: 0,
    };

    #[inline]
    pub(crate) fn is_known(self) -> bool {
        self.smoothed != 0
    }

    /// Smoothed round-trip time in ns; 0 while unknown.
    #[inline]
    pub(crate) fn smoothed_ns(self) -> u64 {
        decode(self.smoothed)
    }

    /// Adds a sample of `ns`.
    #[inline]
    pub(crate) fn sample(&mut self, ns: u64) {
        let code = encode(ns);
        if code == self.smoothed {
            // No variation: reduce it by a quarter, which is slightly more than three eighths of an octave.
            self.variation = self.variation.saturating_sub(3).max(1);
        } else if self.is_known() {
            self.follow(ns);
        } else {
            *self = Self {
                smoothed: code,
                variation: code.saturating_sub(8).max(1),
            };
        }
    }

    /// Adds a sample that differs from the smoothed value.
    #[inline(never)]
    fn follow(&mut self, ns: u64) {
        let smoothed = decode(self.smoothed);
        let off = smoothed.abs_diff(ns);
        let variation = decode(self.variation);
        self.variation = toward(self.variation, variation - variation / 4 + off / 4, off);
        self.smoothed = toward(self.smoothed, smoothed - smoothed / 8 + ns / 8, ns);
    }

    /// Retransmission timeout in ns; the variation term is at least `least`.
    #[inline]
    pub(crate) fn timeout_ns(self, least: u64) -> u64 {
        decode(self.smoothed) + (4 * decode(self.variation)).max(least)
    }
}

#[inline]
fn encode(ns: u64) -> u8 {
    let units = (ns >> UNIT).clamp(1, LONGEST - 1);
    let octave = units.ilog2();
    let eighths = (units << 3 >> octave) as u32 & 7;
    (1 + octave * 8 + eighths) as u8
}

#[inline]
fn decode(code: u8) -> u64 {
    let Some(code) = code.checked_sub(1) else {
        return 0;
    };
    (8 + u64::from(code % 8)) << (code / 8) << (UNIT - 3)
}

/// Code of the mean, moved one step toward the sample if the mean does not change the code.
fn toward(code: u8, mean: u64, sample: u64) -> u8 {
    let (new, wanted) = (encode(mean), encode(sample));
    match new.cmp(&code) {
        std::cmp::Ordering::Equal if wanted > code => code + 1,
        std::cmp::Ordering::Equal if wanted < code => code - 1,
        _ => new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_near_their_times() {
        let mut last = 0;
        for us in 1..3_000_000u64 {
            let ns = us * 1024;
            let code = encode(ns);
            assert!(code >= last);
            last = code;
            let told = decode(code);
            assert!(told <= ns && ns - told <= ns / 8, "{us}: {told}");
        }
        assert_eq!((decode(0), encode(0), encode(u64::MAX)), (0, 1, 248));
    }

    #[test]
    fn it_follows_what_changes() {
        let mut rtt = Rtt::default();
        for ms in [1u64, 300, 5] {
            for _ in 0..60 {
                rtt.sample(ms * 1_000_000);
            }
            let told = rtt.smoothed_ns() as f64 / 1e6;
            assert!((told / ms as f64 - 1.0).abs() < 0.13, "{told} of {ms}");
        }
        // A steady path has little variation; a path with jitter gets a longer timeout.
        assert!(rtt.timeout_ns(0) < 15_000_000, "{}", rtt.timeout_ns(0));
        for i in 0..200 {
            rtt.sample(if i % 2 == 0 { 5_000_000 } else { 45_000_000 });
        }
        assert!(rtt.timeout_ns(0) > 60_000_000, "{}", rtt.timeout_ns(0));
    }
}
