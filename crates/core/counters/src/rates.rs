//! Conversion of counter increases to rates, in common units.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{LinkCounters, series::LinkProperties};

/// Bytes around each frame on a wire, without the FCS: preamble and gap.
const AROUND: f64 = 20.0;
/// Bytes of a frame check sequence.
const FCS: f64 = 4.0;
/// Maximum clock ratio between the two ends of a link: 100 ppm.
const CLOCKS: f64 = 1.0001;

/// Rates of an interface over an interval. `null` without packets, a known speed or Ethernet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LinkRates {
    /// Packets received per second.
    pub rx_pps: f64,
    /// Packets sent per second.
    pub tx_pps: f64,
    /// Bytes received per second, as the device counts them.
    pub rx_bytes_per_s: f64,
    /// Bytes sent per second.
    pub tx_bytes_per_s: f64,
    /// Layer 1 bits per second received: with FCS, preamble and gap.
    pub rx_l1_bps: Option<f64>,
    /// Layer 1 bits per second sent.
    pub tx_l1_bps: Option<f64>,
    /// Share of the link speed that was received, in percent; `null` if the speed is nominal.
    pub rx_l1_percent: Option<f64>,
    /// Share of the link speed that was sent, in percent.
    pub tx_l1_percent: Option<f64>,
    /// sar's `%ifutil`: bytes of the busier direction (both, with half duplex) relative to the speed, even a nominal
    /// one.
    pub ifutil_percent: Option<f64>,
    /// Mean size of received frames, with FCS.
    pub rx_size_bytes: Option<f64>,
    /// Mean size of sent frames, with FCS.
    pub tx_size_bytes: Option<f64>,
    /// Ratio of packets dropped or missed to all packets that arrived.
    pub rx_drop_ratio: Option<f64>,
    /// Ratio of packets dropped before transmission to all packets to send.
    pub tx_drop_ratio: Option<f64>,
    /// True if the rate exceeds the link speed: the device updates its counters late, so this interval includes a part
    /// of the previous one.
    pub over_line: bool,
}

#[allow(clippy::cast_precision_loss)]
fn ratio(part: u64, rest: u64) -> Option<f64> {
    (part + rest > 0).then(|| part as f64 / (part + rest) as f64)
}

impl LinkRates {
    /// Computes the rates of `counted` over `seconds`.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn new(counted: &LinkCounters, seconds: f64, facts: &LinkProperties) -> Self {
        let rate = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        // Bytes of a frame that the device does not count.
        let fcs = if facts.counts_fcs { 0.0 } else { FCS };
        let l1 = |bytes, packets| {
            (facts.ethernet).then(|| 8.0 * (rate(bytes) + rate(packets) * (AROUND + fcs)))
        };
        let size = |bytes: u64, packets: u64| {
            (packets > 0 && facts.ethernet).then(|| bytes as f64 / packets as f64 + fcs)
        };
        let (rx, tx) = (rate(counted.rx_bytes), rate(counted.tx_bytes));
        let (rx_l1, tx_l1) = (
            l1(counted.rx_bytes, counted.rx_packets),
            l1(counted.tx_bytes, counted.tx_packets),
        );
        let busy = if facts.half_duplex {
            rx + tx
        } else {
            rx.max(tx)
        };
        let wire = facts.speed_bps.filter(|_| !facts.nominal);
        let share = |bps: Option<f64>| Some(100.0 * bps? / wire? as f64);
        let shares = (share(rx_l1), share(tx_l1));
        let over = |percent: Option<f64>| percent.is_some_and(|p| p > 100.0 * CLOCKS);
        Self {
            rx_pps: rate(counted.rx_packets),
            tx_pps: rate(counted.tx_packets),
            rx_bytes_per_s: rx,
            tx_bytes_per_s: tx,
            rx_l1_bps: rx_l1,
            tx_l1_bps: tx_l1,
            rx_l1_percent: shares.0,
            tx_l1_percent: shares.1,
            ifutil_percent: facts
                .speed_bps
                .map(|speed| busy * 8.0 * 100.0 / speed as f64),
            rx_size_bytes: size(counted.rx_bytes, counted.rx_packets),
            tx_size_bytes: size(counted.tx_bytes, counted.tx_packets),
            rx_drop_ratio: ratio(
                counted.rx_dropped + counted.rx_missed_errors,
                counted.rx_packets,
            ),
            tx_drop_ratio: ratio(counted.tx_dropped, counted.tx_packets),
            over_line: over(shares.0) || over(shares.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, digits: f64) {
        assert!((a - b).abs() <= digits, "{a} is not {b}");
    }

    fn ethernet(speed_bps: u64) -> LinkProperties {
        LinkProperties {
            speed_bps: Some(speed_bps),
            ethernet: true,
            ..LinkProperties::default()
        }
    }

    #[test]
    fn kilobytes_and_utilisation_are_those_of_sar() {
        let counted = LinkCounters {
            rx_packets: 1_514_519,
            rx_bytes: 1_514_519 * 64,
            ..LinkCounters::default()
        };
        let rates = LinkRates::new(&counted, 100.0, &ethernet(10_000_000_000));
        near(rates.rx_pps, 15_145.19, 0.001);
        near(rates.rx_bytes_per_s / 1024.0, 946.57, 0.01);
        near(rates.ifutil_percent.unwrap(), 0.08, 0.005);
        // With full duplex, the busier direction counts.
        let both = LinkCounters {
            tx_bytes: counted.rx_bytes / 2,
            ..counted
        };
        let full = LinkRates::new(&both, 100.0, &ethernet(10_000_000_000));
        assert_eq!(full.ifutil_percent, rates.ifutil_percent);
        let half = LinkProperties {
            half_duplex: true,
            ..ethernet(10_000_000_000)
        };
        let both = LinkCounters {
            tx_bytes: counted.rx_bytes,
            ..counted
        };
        let rates = LinkRates::new(&both, 100.0, &half);
        near(rates.ifutil_percent.unwrap(), 0.155, 0.001);
    }

    #[test]
    fn more_than_the_wire_carries_is_told() {
        // Counted with FCS: 93,191.38 kB/s are 64 bytes per packet.
        let counted = LinkCounters {
            rx_packets: 1_491_062,
            rx_bytes: 1_491_062 * 64,
            ..LinkCounters::default()
        };
        let facts = LinkProperties {
            counts_fcs: true,
            ..ethernet(1_000_000_000)
        };
        let rates = LinkRates::new(&counted, 1.0, &facts);
        near(rates.rx_bytes_per_s / 1024.0, 93_191.38, 0.01);
        near(rates.rx_size_bytes.unwrap(), 64.0, 1e-9);
        near(rates.rx_l1_bps.unwrap(), 1.002e9, 1e6);
        assert!(rates.over_line);

        let line = LinkCounters {
            rx_packets: 1_488_095,
            rx_bytes: 1_488_095 * 60,
            ..LinkCounters::default()
        };
        let rates = LinkRates::new(&line, 1.0, &ethernet(1_000_000_000));
        near(rates.rx_l1_percent.unwrap(), 100.0, 0.001);
        near(rates.ifutil_percent.unwrap(), 71.4, 0.1);
        assert!(!rates.over_line);
    }

    #[test]
    fn a_nominal_speed_has_no_share() {
        let facts = LinkProperties {
            nominal: true,
            ..ethernet(10_000_000_000)
        };
        let counted = LinkCounters {
            rx_packets: 3,
            rx_dropped: 1,
            tx_packets: 0,
            ..LinkCounters::default()
        };
        let rates = LinkRates::new(&counted, 1.0, &facts);
        assert_eq!((rates.rx_l1_percent, rates.tx_drop_ratio), (None, None));
        assert_eq!(rates.rx_drop_ratio, Some(0.25));
        assert!(rates.ifutil_percent.is_some() && rates.tx_size_bytes.is_none());
    }
}
