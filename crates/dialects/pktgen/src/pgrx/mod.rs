//! The receiver: commands, counters per CPU, and what its file says.
//!
//! Knows neither ports nor clocks: whoever receives looks for packets with [`classify_pktgen`] and tells
//! each [`Row::arrival`] (of its own CPU, in its own worker) or [`Receiver::arrival`].

mod display;

use std::collections::BTreeMap;

use wb_pktgen_device::Time;
pub use wb_pktgen_device::{JitterRule, Mode, PktgenFrame, Row, Sample, classify_pktgen};
use wb_wire::PktgenTag;

/// Whose receiver it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Open Source Traffic Analyzer of 2014: jitter by latency.
    #[default]
    Osta,
    /// Its patches for Linux 3.6 and before: jitter by inter-arrival time.
    Osta36,
}

impl Dialect {
    /// What its jitter is the change of.
    pub const fn jitter(self) -> JitterRule {
        match self {
            Self::Osta => JitterRule::Latency,
            Self::Osta36 => JitterRule::InterArrival,
        }
    }
}

/// The form of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Display {
    /// Lines to read.
    #[default]
    Human,
    /// Columns to parse.
    Script,
}

/// A command written to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Clear and receive.
    Rx {
        /// From this interface only.
        device: Option<String>,
    },
    /// Clear.
    Reset,
    /// Stop receiving and forget the settings.
    Disable,
    /// The form of the file.
    Display(Display),
    /// What is measured.
    Statistics(Mode),
    /// Whether latency is taken always, or as in the original only while a local run goes on. Not a
    /// command of the original.
    AlwaysLatency(bool),
    /// Whether packets that count are kept from the host. Not a command of the original, which
    /// always does so.
    Consume(bool),
}

impl Command {
    /// The command, unless its words are unknown; those are ignored. A device that does not exist
    /// means all of them.
    pub fn parse(name: &str, argument: &str, exists: impl Fn(&str) -> bool) -> Option<Self> {
        Some(match (name, argument) {
            ("rx", device) => Self::Rx {
                device: exists(device).then(|| device.to_owned()),
            },
            ("rx_reset", _) => Self::Reset,
            ("rx_disable", _) => Self::Disable,
            ("display", "human" | "text") => Self::Display(Display::Human),
            ("display", "script" | "no_text") => Self::Display(Display::Script),
            ("statistics", "counter") => Self::Statistics(Mode::Counter),
            // Both families are counted always.
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

/// What `rx` switched on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Enabled {
    device: Option<String>,
    display: Display,
    mode: Mode,
}

/// The receiver of one folder.
#[derive(Clone, Debug)]
pub struct Receiver {
    rows: BTreeMap<u32, Row>,
    dialect: Dialect,
    enabled: Option<Enabled>,
    sending: bool,
    always_latency: bool,
    consumes: bool,
    clears: u64,
}

impl Receiver {
    /// A receiver that is off, with a row for each of `cpus`.
    pub fn new(cpus: impl IntoIterator<Item = u32>, dialect: Dialect) -> Self {
        Self {
            rows: cpus.into_iter().map(|cpu| (cpu, Row::default())).collect(),
            dialect,
            enabled: None,
            sending: false,
            always_latency: false,
            consumes: true,
            clears: 0,
        }
    }

    /// Carries out a command.
    pub fn apply(&mut self, command: &Command) {
        match command {
            Command::Rx { device } => {
                let (display, mode) = self
                    .enabled
                    .as_ref()
                    .map_or((Display::Human, Mode::Basic), |e| (e.display, e.mode));
                self.enabled = Some(Enabled {
                    device: device.clone(),
                    display,
                    mode,
                });
                self.clear();
            }
            Command::Reset => self.clear(),
            Command::Disable => self.enabled = None,
            Command::Display(display) => {
                if let Some(enabled) = &mut self.enabled {
                    enabled.display = *display;
                }
            }
            Command::Statistics(mode) => {
                if let Some(enabled) = &mut self.enabled {
                    enabled.mode = *mode;
                }
            }
            Command::AlwaysLatency(on) => self.always_latency = *on,
            Command::Consume(on) => self.consumes = *on,
        }
    }

    fn clear(&mut self) {
        self.clears += 1;
        for row in self.rows.values_mut() {
            *row = Row::default();
        }
    }

    /// What to measure, if switched on.
    pub fn mode(&self) -> Option<Mode> {
        Some(self.enabled.as_ref()?.mode)
    }

    /// The only interface to receive from, if one was named.
    pub fn device(&self) -> Option<&str> {
        self.enabled.as_ref()?.device.as_deref()
    }

    /// How often the counters were cleared; a worker that sees it grow clears its own row.
    pub const fn clears(&self) -> u64 {
        self.clears
    }

    /// Whose receiver it is.
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether a local run is in progress: without one there are no latency samples.
    pub const fn set_sending(&mut self, sending: bool) {
        self.sending = sending;
    }

    /// Whether packets that count are to be kept from the host.
    pub const fn consumes(&self) -> bool {
        self.consumes
    }

    /// Whether a packet arriving now gives a latency sample.
    pub const fn takes_latency(&self) -> bool {
        self.sending || self.always_latency
    }

    /// A packet has arrived on this CPU; ignored while switched off.
    pub fn arrival(&mut self, cpu: u32, bytes: u64, now: Time, tag: Option<PktgenTag>) {
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

    /// Takes over the row that the worker of a CPU keeps by itself.
    pub fn publish(&mut self, cpu: u32, row: Row) {
        self.rows.insert(cpu, row);
    }

    /// The row of each CPU.
    pub fn rows(&self) -> impl Iterator<Item = (u32, &Row)> {
        self.rows.iter().map(|(cpu, row)| (*cpu, row))
    }

    /// The text of the file.
    pub fn show(&self) -> String {
        match &self.enabled {
            None => "Not enabled.\n".to_owned(),
            Some(e) => match e.display {
                Display::Human => display::human(&self.rows),
                Display::Script => display::script(&self.rows),
            },
        }
    }
}
