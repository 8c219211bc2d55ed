//! The receiver: commands, counters per CPU, and the text of its file.
//!
//! Knows neither ports nor clocks. The receiving worker finds packets with [`classify_pktgen`] and passes
//! each to [`Row::arrival`] (for the worker's own CPU) or to [`PgrxReceiver::count_arrival`].

mod display;

use std::collections::BTreeMap;

use wb_pktgen_device::DeviceTime;
pub use wb_pktgen_device::{
    CpuSample, CpuStatistics, JitterRule, Mode, PktgenFrame, classify_pktgen,
};
use wb_wire::PktgenTag;

/// Version of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiverDialect {
    /// Open Source Traffic Analyzer of 2014: jitter of the latency.
    #[default]
    Osta,
    /// Patches of the analyzer for Linux 3.6 and earlier: jitter of the inter-arrival time.
    Osta36,
}

impl ReceiverDialect {
    /// Quantity of which the receiver measures the jitter.
    pub const fn jitter(self) -> JitterRule {
        match self {
            Self::Osta => JitterRule::Latency,
            Self::Osta36 => JitterRule::InterArrival,
        }
    }
}

/// Format of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileFormat {
    /// Text for reading.
    #[default]
    Human,
    /// Columns for scripts.
    Script,
}

/// A command written to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// Clears the counters and starts receiving.
    Rx {
        /// Restricts reception to this interface.
        device: Option<String>,
    },
    /// Clears the counters.
    Reset,
    /// Stops receiving and drops the settings.
    Disable,
    /// Sets the format of the file.
    Display(FileFormat),
    /// Sets the measured quantities.
    Statistics(Mode),
    /// Takes latency samples always if true, or only during a local run, as in the original, if false. Not a
    /// command of the original.
    AlwaysLatency(bool),
    /// Keeps counted packets from the host if true. Not a command of the original, which
    /// always does so.
    Consume(bool),
}

impl ReceiverCommand {
    /// Parses a command; `None` for unknown words, which are ignored. A device that does not exist
    /// selects all devices.
    pub fn parse(name: &str, argument: &str, exists: impl Fn(&str) -> bool) -> Option<Self> {
        Some(match (name, argument) {
            ("rx", device) => Self::Rx {
                device: exists(device).then(|| device.to_owned()),
            },
            ("rx_reset", _) => Self::Reset,
            ("rx_disable", _) => Self::Disable,
            ("display", "human" | "text") => Self::Display(FileFormat::Human),
            ("display", "script" | "no_text") => Self::Display(FileFormat::Script),
            ("statistics", "counter") => Self::Statistics(Mode::Counter),
            // Both address families are always counted.
            ("statistics", "basic" | "basic6") => Self::Statistics(Mode::Basic),
            ("statistics", "time") => Self::Statistics(Mode::Time),
            ("latency", "always") => Self::AlwaysLatency(true),
            ("latency", "local") => Self::AlwaysLatency(false),
            ("consume", "on") => Self::Consume(true),
            ("consume", "off") => Self::Consume(false),
            _ => return None,
        })
    }
}

/// Settings of `rx`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EnabledSettings {
    device: Option<String>,
    display: FileFormat,
    mode: Mode,
}

/// Receiver of one folder.
#[derive(Clone, Debug)]
pub struct PgrxReceiver {
    rows: BTreeMap<u32, CpuStatistics>,
    dialect: ReceiverDialect,
    enabled: Option<EnabledSettings>,
    sending: bool,
    always_latency: bool,
    consumes: bool,
    clears: u64,
}

impl PgrxReceiver {
    /// Makes a disabled receiver with a row for each of `cpus`.
    pub fn new(cpus: impl IntoIterator<Item = u32>, dialect: ReceiverDialect) -> Self {
        Self {
            rows: cpus
                .into_iter()
                .map(|cpu| (cpu, CpuStatistics::default()))
                .collect(),
            dialect,
            enabled: None,
            sending: false,
            always_latency: false,
            consumes: true,
            clears: 0,
        }
    }

    /// Executes a command.
    pub fn execute(&mut self, command: &ReceiverCommand) {
        match command {
            ReceiverCommand::Rx { device } => {
                let (display, mode) = self
                    .enabled
                    .as_ref()
                    .map_or((FileFormat::Human, Mode::Basic), |e| (e.display, e.mode));
                self.enabled = Some(EnabledSettings {
                    device: device.clone(),
                    display,
                    mode,
                });
                self.clear();
            }
            ReceiverCommand::Reset => self.clear(),
            ReceiverCommand::Disable => self.enabled = None,
            ReceiverCommand::Display(display) => {
                if let Some(enabled) = &mut self.enabled {
                    enabled.display = *display;
                }
            }
            ReceiverCommand::Statistics(mode) => {
                if let Some(enabled) = &mut self.enabled {
                    enabled.mode = *mode;
                }
            }
            ReceiverCommand::AlwaysLatency(on) => self.always_latency = *on,
            ReceiverCommand::Consume(on) => self.consumes = *on,
        }
    }

    fn clear(&mut self) {
        self.clears += 1;
        for row in self.rows.values_mut() {
            *row = CpuStatistics::default();
        }
    }

    /// Measured quantities; `None` if the receiver is off.
    pub fn mode(&self) -> Option<Mode> {
        Some(self.enabled.as_ref()?.mode)
    }

    /// Interface to which reception is restricted, if any.
    pub fn device(&self) -> Option<&str> {
        self.enabled.as_ref()?.device.as_deref()
    }

    /// Number of times the counters were cleared. A worker clears its row when the number grows.
    pub const fn clears(&self) -> u64 {
        self.clears
    }

    /// Version of the receiver.
    pub const fn dialect(&self) -> ReceiverDialect {
        self.dialect
    }

    /// Sets whether a local run is in progress; latency samples may depend on it.
    pub const fn set_sending(&mut self, sending: bool) {
        self.sending = sending;
    }

    /// Returns true if counted packets are kept from the host.
    pub const fn consumes_packets(&self) -> bool {
        self.consumes
    }

    /// Returns true if a packet that arrives now gives a latency sample.
    pub const fn takes_latency(&self) -> bool {
        self.sending || self.always_latency
    }

    /// Counts a packet that arrived on this CPU; ignored while off.
    pub fn count_arrival(&mut self, cpu: u32, bytes: u64, now: DeviceTime, tag: Option<PktgenTag>) {
        let Some(mode) = self.mode() else {
            return;
        };
        let tag = tag.filter(|_| self.takes_latency());
        let rule = self.dialect.jitter();
        self.rows
            .entry(cpu)
            .or_default()
            .arrival(mode, rule, bytes, now, tag);
    }

    /// Replaces the row of a CPU by the one that its worker maintains.
    pub fn replace_row(&mut self, cpu: u32, row: CpuStatistics) {
        self.rows.insert(cpu, row);
    }

    /// Row of each CPU.
    pub fn rows(&self) -> impl Iterator<Item = (u32, &CpuStatistics)> {
        self.rows.iter().map(|(cpu, row)| (*cpu, row))
    }

    /// Text of the file.
    pub fn file_text(&self) -> String {
        match &self.enabled {
            None => "Not enabled.\n".to_owned(),
            Some(e) => match e.display {
                FileFormat::Human => display::human_text(&self.rows),
                FileFormat::Script => display::script_text(&self.rows),
            },
        }
    }
}
