//! Interfaces of a capture file, and the units of their timestamps.

/// Timestamp unit of an interface: the option if_tsresol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeUnit(u8);

impl TimeUnit {
    /// 10^-6 s, the unit of a file without the option.
    pub const MICROSECONDS: Self = Self(6);
    /// 10^-9 s.
    pub const NANOSECONDS: Self = Self(9);

    /// Decodes the option: a negative power of ten, or of two if the top bit is set.
    pub const fn from_tsresol(byte: u8) -> Self {
        Self(byte)
    }

    /// Returns the option's byte.
    pub const fn tsresol(self) -> u8 {
        self.0
    }

    /// Decimals of a second that timestamps of this unit can have, limited to nine: 6 for microseconds.
    pub const fn decimals(self) -> u8 {
        let power = self.0 & 0x7f;
        // 2^-10 s needs four decimals: ten bits are three digits and a little.
        let decimals = if self.0 & 0x80 != 0 {
            (power as u32 * 30_103).div_ceil(100_000) as u8
        } else {
            power
        };
        if decimals > 9 { 9 } else { decimals }
    }

    /// Converts `ticks` to nanoseconds, rounded down and limited to the maximum of the type.
    pub fn to_ns(self, ticks: u64) -> u64 {
        let power = u32::from(self.0 & 0x7f);
        if self.0 & 0x80 != 0 {
            let ns = (u128::from(ticks) * 1_000_000_000) >> power;
            return u64::try_from(ns).unwrap_or(u64::MAX);
        }
        match power.checked_sub(9) {
            None => ticks.saturating_mul(10u64.pow(9 - power)),
            Some(finer) => 10u64.checked_pow(finer).map_or(0, |unit| ticks / unit),
        }
    }
}

/// Description of a capture interface, read from a file or to write as a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureInterface {
    /// Link type of the frames.
    pub link_type: u16,
    /// Maximum number of captured bytes per frame; 0 means no limit.
    pub snap_len: u32,
    /// Name, if the file has it.
    pub name: Option<String>,
    /// Description in free text.
    pub description: Option<String>,
    /// MAC address.
    pub mac: Option<[u8; 6]>,
    /// Speed in bits per second.
    pub speed_bps: Option<u64>,
    /// Capture filter, as libpcap text.
    pub filter: Option<String>,
    /// Operating system of the machine.
    pub os: Option<String>,
    /// Length of the FCS at the end of each frame, in bytes; 0 if the file does not specify it.
    pub fcs_len: u8,
    /// Unit of the timestamps.
    pub time_unit: TimeUnit,
    /// Seconds to add to the timestamps.
    pub time_offset: i64,
}

impl CaptureInterface {
    /// Creates a description with this link type, nanosecond timestamps and the maximum snap length.
    pub fn new(link_type: u16) -> Self {
        Self {
            link_type,
            snap_len: crate::MAX_CAPTURED as u32,
            name: None,
            description: None,
            mac: None,
            speed_bps: None,
            filter: None,
            os: None,
            fcs_len: 0,
            time_unit: TimeUnit::NANOSECONDS,
            time_offset: 0,
        }
    }

    /// Wall-clock time of a timestamp, in ns since 1970; 0 before 1970, the maximum after 2554.
    pub(crate) fn stamp_ns(&self, ticks: u64) -> u64 {
        let ns = self.time_unit.to_ns(ticks);
        if self.time_offset == 0 {
            return ns;
        }
        let ns = i128::from(ns) + i128::from(self.time_offset) * 1_000_000_000;
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }

    /// Maximum memory of the description in bytes, for a list that may be half empty.
    pub(crate) fn memory(&self) -> usize {
        let texts = [&self.name, &self.description, &self.filter, &self.os];
        let text_bytes = texts.iter().filter_map(|text| text.as_ref());
        2 * size_of::<Self>() + text_bytes.map(String::capacity).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_time() {
        for (byte, ticks, ns) in [
            (0, 7, 7_000_000_000),
            (3, 7, 7_000_000),
            (6, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
            (9, 7, 7),
            (12, 7_999, 7),
            (29, u64::MAX, 0),
            (127, u64::MAX, 0),
            (0, u64::MAX, u64::MAX),
            (0x80, 7, 7_000_000_000),
            (0x80 | 10, 512, 500_000_000),
            (0x80 | 32, 1 << 31, 500_000_000),
            (0x80 | 127, u64::MAX, 0),
            (0x80, u64::MAX, u64::MAX),
        ] {
            assert_eq!(TimeUnit::from_tsresol(byte).to_ns(ticks), ns, "{byte:#x}");
        }
    }

    #[test]
    fn decimals_of_time() {
        for (byte, decimals) in [
            (0, 0),
            (6, 6),
            (9, 9),
            (12, 9),
            (0x80, 0),
            (0x80 | 10, 4),
            (0x80 | 127, 9),
        ] {
            assert_eq!(
                TimeUnit::from_tsresol(byte).decimals(),
                decimals,
                "{byte:#x}"
            );
        }
    }

    #[test]
    fn stamps_outside_the_clock_stop_at_its_ends() {
        let offset = |time_offset| CaptureInterface {
            time_offset,
            ..CaptureInterface::new(1)
        };
        assert_eq!(offset(-1).stamp_ns(1_000_000_007), 7);
        assert_eq!(offset(-2).stamp_ns(1_000_000_007), 0);
        assert_eq!(offset(i64::MIN).stamp_ns(u64::MAX), 0);
        assert_eq!(offset(i64::MAX).stamp_ns(0), u64::MAX);
    }
}
