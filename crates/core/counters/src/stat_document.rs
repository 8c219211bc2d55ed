//! Documents of `wirebench stat`: one per interval, and one with the averages at the end.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    LinkInterval, LinkRates, LinkState,
    advice::Advice,
    cpu::CpuShares,
    device::Group,
    interrupts::{Move, QueueInterrupt},
    path::Hop,
    series::{LinkTotal, Smooth},
    softnet::SoftnetRise,
};

/// Value of `schema` in documents of this version.
pub const SCHEMA: &str = "wirebench.stat/1";

/// Kind of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Kind")]
pub enum DocumentKind {
    /// One interval.
    #[default]
    Interval,
    /// Totals and mean rates of all intervals.
    Average,
}

/// One document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Line")]
pub struct StatDocument {
    /// `wirebench.stat/1`.
    pub schema: String,
    /// Kind of the document.
    pub kind: DocumentKind,
    /// Number of the interval, from 1; in the average, the number of intervals.
    pub number: u64,
    /// End of the interval (RFC 3339).
    pub time: String,
    /// Duration between the two readings, in seconds.
    pub seconds: f64,
    /// Interfaces, in the requested order.
    pub interfaces: Vec<InterfaceStat>,
    /// Work of the CPUs for incoming packets, on the whole machine: a packet that crosses a veth pair counts twice.
    pub softnet: SoftnetStat,
    /// Driver-specific statistics that changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Device interrupts and their CPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<DeviceInterrupts>,
    /// Settings that spoil a test, and how to change them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
    /// Probes of devices under test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// Losses along the given path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathStat>,
}

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Interface")]
pub struct InterfaceStat {
    /// `IF` or `NODE/IF`.
    pub name: String,
    /// True if the interface was named explicitly.
    #[serde(skip)]
    pub named: bool,
    /// Index in its namespace.
    pub index: u32,
    /// State of the interface in this interval.
    pub state: LinkState,
    /// Previous name, if the interface was renamed in this interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// True if the interface is up and has a link partner.
    pub running: bool,
    /// Speed in bits per second; `null` if unknown or nominal.
    pub speed_bps: Option<u64>,
    /// Time between the two readings, in seconds; in the average, the sum over the intervals with rates.
    pub seconds: f64,
    /// Increase of the counters, by the kernel's names; missing counters are 0. `null` if unknown.
    pub counted: Option<BTreeMap<String, u64>>,
    /// Rates.
    pub rates: Option<LinkRates>,
    /// Packets per second, smoothed over 1, 10 and 60 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smooth: Option<Smooth>,
    /// In the average: number of counter resets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets: Option<u64>,
    /// In the average: minimum and maximum of packets received per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_pps_range: Option<[f64; 2]>,
    /// In the average: minimum and maximum of packets sent per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_pps_range: Option<[f64; 2]>,
}

impl From<&LinkInterval> for InterfaceStat {
    fn from(interval: &LinkInterval) -> Self {
        let counted = interval.counted.as_ref().map(|counted| {
            let moved = counted.named().filter(|(_, n)| *n > 0);
            moved.map(|(name, n)| (name.to_owned(), n)).collect()
        });
        Self {
            name: interval.name.clone(),
            named: false,
            index: interval.index,
            state: interval.state,
            renamed_from: interval.renamed_from.clone(),
            running: interval.facts.running,
            speed_bps: interval.facts.speed_bps.filter(|_| !interval.facts.nominal),
            seconds: interval.seconds,
            counted,
            rates: interval.rates(),
            smooth: interval.smooth,
            resets: None,
            rx_pps_range: None,
            tx_pps_range: None,
        }
    }
}

impl From<&LinkTotal> for InterfaceStat {
    fn from(total: &LinkTotal) -> Self {
        let range = |range: Option<(f64, f64)>| range.map(|(least, most)| [least, most]);
        Self {
            resets: Some(total.resets),
            rx_pps_range: range(total.rx_pps),
            tx_pps_range: range(total.tx_pps),
            ..Self::from(&total.whole)
        }
    }
}

/// Work of the CPUs for incoming packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Softnet")]
pub struct SoftnetStat {
    /// Sum of all CPUs.
    pub all: SoftnetRise,
    /// Figures of each CPU.
    pub cpus: Vec<Cpu>,
}

/// One CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Cpu {
    /// Number of the CPU.
    pub cpu: u32,
    /// Increase of the counters.
    #[serde(flatten)]
    pub counted: SoftnetRise,
    /// Shares of CPU time; `null` if no tick has passed.
    pub shares: Option<CpuShares>,
}

/// Driver-specific statistics of one interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Device {
    /// Name of the interface.
    pub interface: String,
    /// Increase of each counter, by group and name.
    pub groups: BTreeMap<Group, BTreeMap<String, u64>>,
    /// Current values of counters that fell: gauges, or counters that were reset.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fell: BTreeMap<String, u64>,
}

/// Interrupts of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DeviceInterrupts {
    /// Name of the interface.
    pub interface: String,
    /// Interrupts of its queues.
    pub queues: Vec<QueueInterrupt>,
    /// Better CPUs for these interrupts.
    pub moves: Vec<Move>,
}

/// One probe of a device under test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Probe {
    /// Name of the probe.
    pub name: String,
    /// Reason why figures of this interval are missing; in the average, the last such reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// In the average: number of failed readings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u64>,
    /// Time between the two readings, in seconds: more than the interval if a reading took longer.
    pub seconds: f64,
    /// Increase of the counters; `null` for a counter that was reset.
    pub counted: BTreeMap<String, Option<u64>>,
    /// Values that rise and fall.
    pub gauges: BTreeMap<String, u64>,
}

/// One path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Path")]
pub struct PathStat {
    /// Hops between neighbouring points; empty if a point was missing.
    pub hops: Vec<Hop>,
    /// Ratio of lost packets to packets sent by the first interface; negative if packets were added.
    pub loss_ratio: Option<f64>,
    /// Description of the hop with the largest loss.
    pub lost_where: Option<String>,
}
