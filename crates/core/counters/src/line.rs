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

/// What a document is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An interval.
    #[default]
    Interval,
    /// All intervals: what was counted in the whole time, and its rates.
    Average,
}

/// A document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// `wirebench.stat/1`.
    pub schema: String,
    /// What it is about.
    pub kind: Kind,
    /// Number of the interval, from 1; of the whole, how many there were.
    pub number: u64,
    /// When it ended (RFC 3339).
    pub time: String,
    /// How long it took, from reading to reading.
    pub seconds: f64,
    /// Interfaces, in the order in which they were asked for.
    pub interfaces: Vec<Interface>,
    /// What CPUs did for packets that came in, on the whole machine: a packet that crosses a veth pair is in it again.
    pub softnet: Softnet,
    /// Statistics that drivers name themselves, as far as they moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Interrupts of devices and where they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<DeviceInterrupts>,
    /// What spoils a test, and what changes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
    /// Probes of devices under test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// What was lost along the path that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Interface {
    /// `IF` or `NODE/IF`.
    pub name: String,
    /// It was asked for by its name.
    #[serde(skip)]
    pub named: bool,
    /// Its index in its namespace.
    pub index: u32,
    /// What the interval was to it.
    pub state: LinkState,
    /// Its name before, if it was renamed in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// It is up and there is somebody at the other end.
    pub running: bool,
    /// Its speed; `null` where it is unknown or nominal.
    pub speed_bps: Option<u64>,
    /// Time between its readings; in the whole, of those intervals that say something.
    pub seconds: f64,
    /// What it counted, by the kernel's names; those that are missing are 0. `null` where nobody knows.
    pub counted: Option<BTreeMap<String, u64>>,
    /// Rates.
    pub rates: Option<LinkRates>,
    /// Packets per second, smoothed over 1, 10 and 60 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smooth: Option<Smooth>,
    /// Of the whole: how often its counters were reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets: Option<u64>,
    /// Of the whole: the least and the most packets per second received in an interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_pps_range: Option<[f64; 2]>,
    /// Of the whole: the least and the most packets per second sent in an interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_pps_range: Option<[f64; 2]>,
}

impl From<&LinkInterval> for Interface {
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

impl From<&LinkTotal> for Interface {
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

/// CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Softnet {
    /// All together.
    pub all: SoftnetRise,
    /// Each.
    pub cpus: Vec<Cpu>,
}

/// A CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// What it counted.
    #[serde(flatten)]
    pub counted: SoftnetRise,
    /// How it spent its time; `null` where no tick has passed.
    pub shares: Option<CpuShares>,
}

/// The statistics of a driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Device {
    /// The interface.
    pub interface: String,
    /// By group and name, what each rose by.
    pub groups: BTreeMap<Group, BTreeMap<String, u64>>,
    /// Counters that fell: values that rise and fall, or were reset. Their value now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fell: BTreeMap<String, u64>,
}

/// The interrupts of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DeviceInterrupts {
    /// The interface.
    pub interface: String,
    /// Its interrupts.
    pub queues: Vec<QueueInterrupt>,
    /// Where they should rather go.
    pub moves: Vec<Move>,
}

/// A probe of a device under test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Probe {
    /// Its name.
    pub name: String,
    /// Why there is nothing, or not all, of this interval; of the whole, of the last that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Of the whole: readings that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u64>,
    /// Time between its readings: more than the interval where a reading took longer.
    pub seconds: f64,
    /// What its counters rose by between them; `null` if one fell, as it was reset.
    pub counted: BTreeMap<String, Option<u64>>,
    /// Values that rise and fall.
    pub gauges: BTreeMap<String, u64>,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Path {
    /// From point to point; nothing where one of them was not there.
    pub hops: Vec<Hop>,
    /// Lost on the way, of what the first sent; negative where more came.
    pub loss_ratio: Option<f64>,
    /// Where most was lost, in words.
    pub lost_where: Option<String>,
}
