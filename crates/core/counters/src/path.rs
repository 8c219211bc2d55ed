//! Interfaces along a path, hop by hop: packets in, packets out, and where they were lost.

use schemars::JsonSchema;
use serde::Serialize;

use crate::LinkCounters;

/// Kind of a hop between two points of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Between {
    /// A wire: one end sends, the other receives.
    Wire,
    /// A device: it receives at one interface and sends at the other.
    Device,
}

/// One hop of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Hop {
    /// Interface at which packets enter the hop.
    pub from: String,
    /// Interface at which packets leave the hop.
    pub to: String,
    /// Kind of the hop.
    pub between: Between,
    /// Packets that `from` sent (wire) or received (device).
    pub in_packets: u64,
    /// Packets that `to` received (wire) or sent (device).
    pub out_packets: u64,
    /// `in_packets` minus `out_packets`; negative if packets were added.
    pub lost_packets: i64,
    /// Lost packets that the counters of `to` explain (wire: received and dropped; device: not sent).
    pub explained_packets: u64,
}

/// Returns the hops of a path. The first interface sends and the last receives; those in between come in pairs, the
/// ingress and the egress of a device.
#[must_use]
pub fn hops(points: &[(String, LinkCounters)]) -> Vec<Hop> {
    let hop = |(n, pair): (usize, &[(String, LinkCounters)])| {
        let [(from, a), (to, b)] = pair else {
            unreachable!("windows of two")
        };
        let wire = n % 2 == 0;
        let (sent, got, told) = match wire {
            true => (
                a.tx_packets,
                b.rx_packets,
                b.rx_dropped + b.rx_missed_errors + b.rx_errors,
            ),
            false => (a.rx_packets, b.tx_packets, b.tx_dropped + b.tx_errors),
        };
        Hop {
            from: from.clone(),
            to: to.clone(),
            between: if wire { Between::Wire } else { Between::Device },
            in_packets: sent,
            out_packets: got,
            lost_packets: i64::try_from(i128::from(sent) - i128::from(got)).unwrap_or(i64::MAX),
            explained_packets: told.min(sent.saturating_sub(got)),
        }
    };
    points.windows(2).enumerate().map(hop).collect()
}

/// Returns the hop with the most lost packets, or `None` if no packets were lost.
#[must_use]
pub fn worst(hops: &[Hop]) -> Option<&Hop> {
    hops.iter()
        .filter(|hop| hop.lost_packets > 0)
        .max_by_key(|hop| hop.lost_packets)
}

/// Ratio of lost packets to packets sent by the first interface; `None` if the first interface sent none.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn loss_ratio(hops: &[Hop]) -> Option<f64> {
    let (first, last) = (hops.first()?, hops.last()?);
    let lost = first.in_packets as f64 - last.out_packets as f64;
    (first.in_packets > 0).then(|| lost / first.in_packets as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(name: &str, rx: u64, tx: u64) -> (String, LinkCounters) {
        let counters = LinkCounters {
            rx_packets: rx,
            tx_packets: tx,
            ..LinkCounters::default()
        };
        (name.to_owned(), counters)
    }

    #[test]
    fn the_culprit_is_named() {
        // Forwarding rates from the field: 1,488,032.20 pps in and 1,053,511.30 pps out, for ten seconds.
        let path = [
            point("a", 0, 14_880_322),
            point("in", 14_880_322, 0),
            point("out", 0, 10_535_113),
            point("b", 10_535_113, 0),
        ];
        let hops = hops(&path);
        let worst = worst(&hops).unwrap();
        assert_eq!((&*worst.from, worst.between), ("in", Between::Device));
        assert_eq!(worst.lost_packets, 4_345_209);
        assert!((loss_ratio(&hops).unwrap() - 0.2920).abs() < 0.000_05);
    }

    proptest! {
        #[test]
        fn hops_add_up(counts in prop::collection::vec((0_u64..1 << 60, 0_u64..1 << 60), 2..8)) {
            let mut points: Vec<_> = counts.iter().map(|(rx, tx)| point("x", *rx, *tx)).collect();
            // A device's ingress and egress count independently; each hop begins where the last ended.
            for (n, (_, counters)) in points.iter_mut().enumerate() {
                if n % 2 == 1 { counters.tx_packets = 0; } else if n > 0 { counters.rx_packets = 0; }
            }
            let hops = hops(&points);
            let lost: i128 = hops.iter().map(|hop| i128::from(hop.lost_packets)).sum();
            let whole = i128::from(hops[0].in_packets) - i128::from(hops.last().unwrap().out_packets);
            prop_assert_eq!(lost, whole);
        }
    }
}
