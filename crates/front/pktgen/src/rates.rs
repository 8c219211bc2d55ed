//! Rates of devices: the file `live`.

use std::{collections::BTreeMap, fmt::Write as _};

use wb_pktgen_device::DeviceProgress;

/// Previous reading of a device, and its rate until then.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    at_ns: u64,
    sofar: u64,
    errors: u64,
    pps: f64,
}

/// Rates of the devices of a run.
#[derive(Debug, Default)]
pub(crate) struct Rates(BTreeMap<String, Rate>);

impl Rates {
    /// Updates the rate of a device, at intervals of at least 0.1 s.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn look(&mut self, name: &str, progress: &DeviceProgress, now_ns: u64) {
        let last = self.0.get(name).copied().unwrap_or(Rate {
            at_ns: progress.started_ns,
            ..Rate::default()
        });
        let ns = now_ns.saturating_sub(last.at_ns);
        let packets = progress.sofar.saturating_sub(last.sofar);
        let rate = Rate {
            at_ns: now_ns,
            sofar: progress.sofar,
            errors: progress.errors,
            pps: if ns == 0 {
                0.0
            } else {
                packets as f64 * 1e9 / ns as f64
            },
        };
        self.0.insert(name.to_owned(), rate);
    }

    /// Returns the packets per second at the last reading.
    pub(crate) fn pps(&self, name: &str) -> Option<f64> {
        self.0.get(name).map(|rate| rate.pps)
    }

    /// Returns one line per device.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{:<20} {:>16} {:>12} {:>10}\n",
            "device", "packets", "pps now", "errors"
        );
        for (name, rate) in &self.0 {
            let _ = writeln!(
                text,
                "{name:<20} {:>16} {:>12.0} {:>10}",
                rate.sofar, rate.pps, rate.errors
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let mut rates = Rates::default();
        let mut progress = DeviceProgress {
            started_ns: 1_000_000_000,
            ..DeviceProgress::default()
        };
        progress.sofar = 100;
        rates.look("eth0", &progress, 1_500_000_000);
        assert_eq!(rates.pps("eth0"), Some(200.0));
        progress.sofar = 1100;
        rates.look("eth0", &progress, 2_500_000_000);
        assert_eq!(rates.pps("eth0"), Some(1000.0));
        assert!(rates.text().contains("1100         1000          0"));
    }
}
