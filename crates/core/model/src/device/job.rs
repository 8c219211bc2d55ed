//! Jobs of packet devices: which port sends for a device, which port watches for its packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DeviceConfig;
use crate::units::Span;

/// How the time stands in a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeForm {
    /// Seconds and microseconds of CLOCK_REALTIME, as every mainline kernel writes.
    #[default]
    Kernel,
    /// CLOCK_MONOTONIC in ns, as the Open Source Traffic Analyzer writes.
    Osta,
}

/// What jitter is the change of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JitterRule {
    /// Latency, as the Open Source Traffic Analyzer of 2014 has it.
    #[default]
    Latency,
    /// Inter-arrival time, as its versions for Linux 3.6 and before have it.
    InterArrival,
}

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Packets and bytes.
    Counter,
    /// And work time.
    #[default]
    Basic,
    /// And inter-arrival time, jitter and latency.
    Time,
}

/// A packet device that sends from a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceJob {
    /// Name of the sending port. Several devices may share one.
    pub port: String,
    /// CPU of the worker that serves it, together with the other devices of that CPU.
    pub cpu: u32,
    /// How the time stands in its packets.
    #[serde(skip_serializing_if = "is_default")]
    pub time: TimeForm,
    /// What it sends.
    pub settings: DeviceConfig,
}

/// A port that watches for packets of devices, as `pgrx` does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WatchJob {
    /// Name of the receiving port.
    pub port: String,
    /// What is measured: `counter`, `basic` or `time`.
    pub mode: Mode,
    /// What jitter is the change of: `latency` or `inter-arrival`.
    #[serde(skip_serializing_if = "is_default")]
    pub jitter: JitterRule,
    /// Keep what is counted from the host, and hand it only what is not.
    #[serde(skip_serializing_if = "is_default")]
    pub consume: bool,
    /// How long to watch. Without it until the devices of the plan have ended, or for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
