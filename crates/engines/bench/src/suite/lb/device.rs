//! The device's counters in a trial, and the ones that correspond to ours.

use std::collections::BTreeMap;

use wb_model::bench::{CounterPair, LbDeviceTrial, LbMetric, LbOurs, LbPlan};

use crate::DeviceReading;

/// Synonyms, matched with the last word of a counter's name.
const CONNECTIONS: &[&str] = &["connections", "conns"];
const PORT_IN: &[&str] = &["rx_packets", "ipackets"];
const PORT_OUT: &[&str] = &["tx_packets", "opackets"];
const SERVICE: &[&str] = &["in_packets", "out_packets"];
const ENTRIES: &[&str] = &["entries"];

/// Sum of the first probe's counters with one of these names.
fn counter_sum(plan: &LbPlan, values: &BTreeMap<String, u64>, names: &[&str]) -> Option<u64> {
    plan.device.probes.iter().find_map(|probe| {
        let of_probe = values.iter().filter_map(|(name, n)| {
            let rest = name.strip_prefix(probe.title())?.strip_prefix('.')?;
            let last = rest.rsplit('.').next()?;
            names.contains(&last).then_some(*n)
        });
        let of_probe: Vec<u64> = of_probe.collect();
        (!of_probe.is_empty()).then(|| of_probe.iter().sum())
    })
}

/// Number of connections tracked by the device.
pub(super) fn tracked_connections(plan: &LbPlan, reading: &DeviceReading) -> Option<u64> {
    counter_sum(plan, &reading.gauges, ENTRIES)
}

/// Counts of the device between the first and the last reading.
pub(super) fn device_counts(
    plan: &LbPlan,
    ours: &LbOurs,
    metric: LbMetric,
    readings: &[DeviceReading],
) -> LbDeviceTrial {
    let mut seen = LbDeviceTrial {
        readings: u32::try_from(readings.len() * plan.device.probes.len()).unwrap_or(u32::MAX),
        failed_readings: readings.iter().map(|r| r.failed).sum(),
        ..LbDeviceTrial::default()
    };
    let (Some(before), Some(after)) = (readings.first(), readings.last()) else {
        return seen;
    };
    for (name, now) in &after.counters {
        if let Some(rose) = before
            .counters
            .get(name)
            .and_then(|then| now.checked_sub(*then))
        {
            seen.rose.insert(name.clone(), rose);
        }
    }
    for reading in readings {
        for (name, value) in &reading.gauges {
            let peak = seen.peak.entry(name.clone()).or_default();
            *peak = (*peak).max(*value);
        }
    }
    let pairs = [
        (
            "connections",
            ours.attempted,
            counter_sum(plan, &seen.rose, CONNECTIONS),
            // Flows continue from trial to trial, and are new to the device only once.
            metric.is_of_connections(),
        ),
        (
            "entries",
            ours.held,
            counter_sum(plan, &seen.peak, ENTRIES),
            metric == LbMetric::Cc,
        ),
        (
            "packets in",
            ours.sent_frames,
            counter_sum(plan, &seen.rose, PORT_IN),
            true,
        ),
        (
            "packets out",
            ours.received_frames,
            counter_sum(plan, &seen.rose, PORT_OUT),
            true,
        ),
        (
            "service packets",
            ours.sent_frames,
            counter_sum(plan, &seen.rose, SERVICE),
            true,
        ),
    ];
    for (word, ours, device, wanted) in pairs {
        if let Some(device) = device.filter(|_| wanted) {
            seen.beside
                .insert(word.to_owned(), CounterPair::new(ours, device));
        }
    }
    seen
}
