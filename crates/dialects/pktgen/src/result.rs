//! Report of a finished run: the text of `Result:`.

use wb_model::device::DeviceConfig;
use wb_pktgen_device::DeviceProgress;

/// Figures of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Packets sent.
    pub sofar: u64,
    /// Packets that the port refused.
    pub errors: u64,
    /// Time from start to end, ns.
    pub elapsed_ns: u64,
    /// Idle part of the time, ns.
    pub idle_ns: u64,
    /// Configured size of the last packet, bytes without FCS.
    pub size: u32,
    /// Fragments of the present packet, if there is one.
    pub frags: Option<u32>,
    /// Size and number of built packets of each entry of the mix; empty without a mix.
    pub mix: Vec<(u64, u64)>,
}

impl DeviceReport {
    /// Report of a device that has stopped.
    pub fn of_device(config: &DeviceConfig, progress: &DeviceProgress) -> Self {
        Self {
            sofar: progress.sofar,
            errors: progress.errors,
            elapsed_ns: progress.stopped_ns.saturating_sub(progress.started_ns),
            idle_ns: progress.idle_ns,
            size: progress.size,
            frags: progress.frags,
            mix: config
                .imix
                .iter()
                .zip(&progress.imix_counts)
                .map(|(entry, count)| (entry.size, *count))
                .collect(),
        }
    }

    /// The two lines after `Result: `, without the last line feed.
    ///
    /// All divisions truncate. Products have 128 bits; those of the original wrap
    /// above 18,446,744,074 packets. A run of zero duration has no rate.
    pub fn text(&self) -> String {
        let per_second = |amount: u128| {
            (amount * 1_000_000_000)
                .checked_div(u128::from(self.elapsed_ns))
                .unwrap_or(0)
        };
        let pps = per_second(self.sofar.into());
        let bps = if self.mix.is_empty() {
            pps * 8 * u128::from(self.size)
        } else {
            let bytes: u128 = self
                .mix
                .iter()
                .map(|(size, count)| u128::from(*size) * u128::from(*count))
                .sum();
            // Sizes of 34 bits and counts of 64 bits leave room for a factor of 8e9 in 128 bits.
            (bytes.saturating_mul(8_000_000_000))
                .checked_div(u128::from(self.elapsed_ns))
                .unwrap_or(0)
        };
        let frags = self.frags.map_or(-1, i64::from);
        format!(
            "OK: {}(c{}+d{}) usec, {} ({}byte,{frags}frags)\n  {pps}pps {}Mb/sec ({bps}bps) errors: {}",
            self.elapsed_ns / 1000,
            self.elapsed_ns.saturating_sub(self.idle_ns) / 1000,
            self.idle_ns / 1000,
            self.sofar,
            self.size,
            bps / 1_000_000,
            self.errors
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(sofar: u64, elapsed_ns: u64, idle_ns: u64, size: u32) -> DeviceReport {
        DeviceReport {
            sofar,
            elapsed_ns,
            idle_ns,
            size,
            frags: Some(0),
            ..DeviceReport::default()
        }
    }

    #[test]
    fn vectors_of_real_runs() {
        let mix = DeviceReport {
            mix: vec![(64, 558), (576, 366), (1500, 76)],
            ..run(1000, 11_014_000, 900, 64)
        };
        let fresh = DeviceReport {
            frags: None,
            ..run(3, 465_200, 0, 60)
        };
        let nothing = DeviceReport {
            frags: None,
            ..run(0, 1_960_294_000, 0, 60)
        };
        for (outcome, first, second) in [
            (
                run(72_155_155, 48_568_554_000, 545_500, 60),
                "OK: 48568554(c48568008+d545) usec, 72155155 (60byte,0frags)",
                "  1485635pps 713Mb/sec (713104800bps) errors: 0",
            ),
            (
                run(100_000, 15_430_760, 25_500, 60),
                "OK: 15430(c15405+d25) usec, 100000 (60byte,0frags)",
                "  6480562pps 3110Mb/sec (3110669760bps) errors: 0",
            ),
            (
                mix,
                "OK: 11014(c11013+d0) usec, 1000 (64byte,0frags)",
                "  90793pps 261Mb/sec (261868894bps) errors: 0",
            ),
            (
                fresh,
                "OK: 465(c465+d0) usec, 3 (60byte,-1frags)",
                "  6448pps 3Mb/sec (3095040bps) errors: 0",
            ),
            (
                nothing,
                "OK: 1960294(c1960294+d0) usec, 0 (60byte,-1frags)",
                "  0pps 0Mb/sec (0bps) errors: 0",
            ),
        ] {
            assert_eq!(outcome.text(), format!("{first}\n{second}"));
        }
    }

    #[test]
    fn extremes() {
        assert!(run(5, 0, 0, 60).text().contains("  0pps 0Mb/sec (0bps)"));
        let long = run(18_446_744_074, 1_000_000_000, 0, 60).text();
        assert!(long.contains("  18446744074pps "), "{long}");
        let most = DeviceReport {
            mix: vec![(9_999_999_999, u64::MAX); 20],
            ..run(u64::MAX, 1, u64::MAX, u32::MAX)
        };
        most.text();
    }
}
