//! Frame rates and bit rates on Ethernet.
//!
//! Frame size always includes the 4-byte FCS. Layer 1 adds [`LAYER1_OVERHEAD`] octets to a frame.

/// Preamble (7), start of frame (1) and inter-frame gap (12), in octets: IEEE 802.3.
pub const LAYER1_OVERHEAD: u32 = 20;

/// Maximum frame rate in frames per second for frames of `frame_size` octets with FCS on a link of `bits_per_second`,
/// rounded down.
///
/// ```
/// assert_eq!(wb_measure::line_rate_pps(10_000_000_000, 64), 14_880_952);
/// ```
pub fn line_rate_pps(bits_per_second: u64, frame_size: u32) -> u64 {
    bits_per_second / (8 * (u64::from(frame_size) + u64::from(LAYER1_OVERHEAD)))
}

/// Rate of `amount` in `duration_ns`, per second; 0 if the duration is 0.
pub fn per_second(amount: u128, duration_ns: u64) -> f64 {
    if duration_ns == 0 {
        return 0.0;
    }
    amount as f64 * 1e9 / duration_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1_000_000;
    const SPEEDS: [u64; 13] = [
        10 * M,
        100 * M,
        1_000 * M,
        2_500 * M,
        5_000 * M,
        10_000 * M,
        25_000 * M,
        40_000 * M,
        50_000 * M,
        100_000 * M,
        200_000 * M,
        400_000 * M,
        800_000 * M,
    ];

    /// Frames per second by frame size, one column per speed above.
    #[rustfmt::skip]
    const LINE_RATES: &str = "
  64 14,880 148,809 1,488,095 3,720,238 7,440,476 14,880,952 37,202,380 59,523,809 74,404,761 148,809,523 297,619,047 595,238,095 1,190,476,190
 128  8,445  84,459   844,594 2,111,486 4,222,972  8,445,945 21,114,864 33,783,783 42,229,729  84,459,459 168,918,918 337,837,837   675,675,675
 256  4,528  45,289   452,898 1,132,246 2,264,492  4,528,985 11,322,463 18,115,942 22,644,927  45,289,855  90,579,710 181,159,420   362,318,840
 512  2,349  23,496   234,962   587,406 1,174,812  2,349,624  5,874,060  9,398,496 11,748,120  23,496,240  46,992,481  93,984,962   187,969,924
1024  1,197  11,973   119,731   299,329   598,659  1,197,318  2,993,295  4,789,272  5,986,590  11,973,180  23,946,360  47,892,720    95,785,440
1280    961   9,615    96,153   240,384   480,769    961,538  2,403,846  3,846,153  4,807,692   9,615,384  19,230,769  38,461,538    76,923,076
1518    812   8,127    81,274   203,185   406,371    812,743  2,031,859  3,250,975  4,063,719   8,127,438  16,254,876  32,509,752    65,019,505
1522    810   8,106    81,063   202,658   405,317    810,635  2,026,588  3,242,542  4,053,177   8,106,355  16,212,710  32,425,421    64,850,843
2048    604   6,044    60,444   151,112   302,224    604,448  1,511,121  2,417,794  3,022,243   6,044,487  12,088,974  24,177,949    48,355,899
4096    303   3,036    30,369    75,923   151,846    303,692    759,232  1,214,771  1,518,464   3,036,929   6,073,858  12,147,716    24,295,432
8192    152   1,522    15,221    38,054    76,108    152,216    380,540    608,865    761,081   1,522,162   3,044,325   6,088,650    12,177,301
9216    135   1,353    13,533    33,834    67,669    135,339    338,349    541,359    676,699   1,353,399   2,706,799   5,413,598    10,827,197";

    #[test]
    fn line_rates_of_the_usual_sizes_and_speeds() {
        let mut cells = 0;
        for line in LINE_RATES.lines().filter(|line| !line.is_empty()) {
            let mut numbers = line.split_whitespace().map(|word| word.replace(',', ""));
            let size: u32 = numbers.next().unwrap().parse().unwrap();
            for (speed, rate) in SPEEDS.into_iter().zip(numbers) {
                assert_eq!(
                    line_rate_pps(speed, size).to_string(),
                    rate,
                    "{size} B at {speed}"
                );
                cells += 1;
            }
        }
        assert_eq!(cells, 12 * 13);
    }

    #[test]
    fn a_second_at_line_rate_fills_the_wire() {
        let bits = 8 * (64 + 20) * 14_880_952;
        assert_eq!(per_second(bits, 1_000_000_000), 9_999_999_744.0);
        assert_eq!(per_second(bits, 0), 0.0);
    }
}
