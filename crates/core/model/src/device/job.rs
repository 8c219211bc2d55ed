//! Jobs of packet devices: ports that send for a device, and ports that watch for its packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DeviceConfig;
use crate::units::Span;

/// Time format in a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeForm {
    /// Seconds and microseconds of CLOCK_REALTIME, as in every mainline kernel.
    #[default]
    Kernel,
    /// CLOCK_MONOTONIC in ns, as in the Open Source Traffic Analyzer.
    Osta,
}

/// Quantity whose change is the jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JitterRule {
    /// Latency, as in the Open Source Traffic Analyzer of 2014.
    #[default]
    Latency,
    /// Inter-arrival time, as in its versions for Linux 3.6 and earlier.
    InterArrival,
}

/// Measurement mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Packets and bytes.
    Counter,
    /// Packets, bytes and work time.
    #[default]
    Basic,
    /// Additionally inter-arrival time, jitter and latency.
    Time,
}

/// Packet device that sends from a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceJob {
    /// Name of the sending port. Several devices may share one.
    pub port: String,
    /// CPU of the worker that serves the device, together with the other devices of that CPU.
    pub cpu: u32,
    /// Time format in its packets.
    #[serde(skip_serializing_if = "is_default")]
    pub time: TimeForm,
    /// Settings of the device.
    pub settings: DeviceConfig,
}

/// Port that watches for packets of devices, as `pgrx` does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WatchJob {
    /// Name of the receiving port.
    pub port: String,
    /// Measurement mode: `counter`, `basic` or `time`.
    pub mode: Mode,
    /// Quantity whose change is the jitter: `latency` or `inter-arrival`.
    #[serde(skip_serializing_if = "is_default")]
    pub jitter: JitterRule,
    /// Hide counted packets from the host, which then receives only the other packets.
    #[serde(skip_serializing_if = "is_default")]
    pub consume: bool,
    /// Duration. Default: until the devices of the plan have ended; without devices, no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
