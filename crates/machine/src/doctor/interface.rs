//! Rules about one interface. Pure functions of its description.

use super::description::{Attach, Description, InterfaceDescription, Usage};
use super::drivers::{self, DriverFacts, XdpQueues};
use super::{Finding, Level, version};
use crate::cpu::format_list;
use crate::ethtool::{Channels, Offload};
use crate::link::LinkKind;

/// Largest MTU that AF_XDP sockets of wirebench receive, in bytes: a frame of memory is one page.
const XDP_MEMORY_MTU: u32 = 3818;
/// First kernel in which virtio_net sends XDP frames by shared queues.
const SHARED_QUEUES: (u32, u32) = (5, 13);
/// Suffix of a finding that would have a command, were it not for the host.
const NO_COMMAND: &str = "no command, because the host uses the interface";

/// Judges the interface of a description. Does no I/O.
#[must_use]
pub fn judge(about: &Description) -> Vec<Finding> {
    let Some(interface) = &about.interface else {
        return Vec::new();
    };
    let mut port = Port {
        about,
        interface,
        facts: drivers::facts(&interface.driver),
        findings: Vec::new(),
    };
    port.link();
    port.mtu();
    port.device();
    port.xdp();
    port.queues();
    port.rings();
    port.offloads();
    port.interrupts();
    port.timestamping();
    port.sharing();
    port.findings
}

/// An interface and what was found about it.
struct Port<'a> {
    about: &'a Description,
    interface: &'a InterfaceDescription,
    facts: Option<&'static DriverFacts>,
    findings: Vec<Finding>,
}

impl Port<'_> {
    fn add_finding(&mut self, level: Level, topic: &str, text: impl Into<String>) {
        self.findings.push(Finding::new(level, topic, text));
    }

    /// Reports a finding with the command that changes it, unless the change could cut the host off.
    fn say_with_fix(&mut self, level: Level, topic: &str, text: impl Into<String>, command: &str) {
        let (text, fix) = match self.interface.is_hosts() {
            true => (format!("{}; {NO_COMMAND}", text.into()), None),
            false => (text.into(), Some(self.command(command))),
        };
        self.findings.push(Finding {
            fix,
            ..Finding::new(level, topic, text)
        });
    }

    fn command(&self, command: &str) -> String {
        self.sudo(&format!("{}{command}", self.interface.command_prefix))
    }

    fn sudo(&self, command: &str) -> String {
        match self.about.root {
            true => command.to_owned(),
            false => format!("sudo {command}"),
        }
    }

    fn link(&mut self) {
        let InterfaceDescription {
            name, up, carrier, ..
        } = self.interface;
        if !up {
            let finding = Finding::new(Level::Problem, "link", "down");
            let command = self.command(&format!("ip link set {name} up"));
            self.findings.push(finding.fix(command));
        } else if !carrier {
            let other = match self.interface.kind {
                LinkKind::Veth => "is the other end up?",
                _ => "is a cable plugged in, and the other end up?",
            };
            let text = format!("up, but no carrier: {other}");
            self.add_finding(Level::Problem, "link", text);
        } else {
            self.add_finding(Level::Ok, "link", "up, with carrier");
        }
    }

    fn mtu(&mut self) {
        let InterfaceDescription {
            name, mtu, max_mtu, ..
        } = self.interface;
        let text = format!("{mtu}: frames up to {} bytes with FCS", mtu + 18);
        if *mtu >= 1500 || max_mtu.is_some_and(|most| most < 1500) {
            return self.add_finding(Level::Ok, "MTU", text);
        }
        let text = format!("{text}, so 1518-byte frames do not fit");
        if self.interface.is_hosts() {
            let text = format!(
                "{text}; the network sets this MTU, and a larger one may disconnect the host"
            );
            return self.add_finding(Level::Note, "MTU", text);
        }
        let command = format!("ip link set {name} mtu 1500");
        self.say_with_fix(Level::Warn, "MTU", text, &command);
    }

    fn device(&mut self) {
        let InterfaceDescription {
            kind, driver, bus, ..
        } = self.interface;
        let driver = match driver.as_str() {
            "" => "no driver",
            driver => driver,
        };
        let bus = match bus.as_str() {
            "" => String::new(),
            bus => format!(" at {bus}"),
        };
        self.add_finding(Level::Ok, "device", format!("{kind}, {driver}{bus}"));
        match self.interface.speed {
            Some(speed) => {
                let text = format!("{} Gbit/s", speed.bits_per_second as f64 / 1e9);
                if speed.nominal || kind.is_virtual() {
                    let text = format!("{text} nominal: give rates in pps or bps, not in %");
                    self.add_finding(Level::Note, "speed", text);
                } else {
                    self.add_finding(Level::Ok, "speed", text);
                }
            }
            None => {
                let text = "unknown: give rates in pps or bps, not in %";
                self.add_finding(Level::Note, "speed", text);
            }
        }
    }

    /// Reports how XDP programs run here, then each thing that keeps them out of the driver.
    fn xdp(&mut self) {
        let InterfaceDescription { name, driver, .. } = self.interface;
        let mut obstacles = obstacles(self.interface);
        if self.interface.xdp.attach == Attach::Accepted {
            obstacles.clear();
        }
        let mode = mode_with(self.about, self.interface, &obstacles);
        self.add_finding(mode.level, "XDP", mode.text);
        for (topic, text, command) in obstacles {
            self.say_with_fix(Level::Warn, topic, text, &command);
        }
        self.xdp_mtu();
        if let Some(note) = self.facts.and_then(|facts| facts.note) {
            self.add_finding(Level::Note, "driver", format!("{driver}: {note}"));
        }
        if let Some(program) = self.interface.xdp_program {
            let text = format!(
                "program {} is attached ({}): the xdp driver cannot receive",
                program.id, program.mode
            );
            let command = format!("ip link set {name} xdp off");
            self.say_with_fix(Level::Problem, "XDP program", text, &command);
        }
    }

    /// Reports an MTU that the driver takes and the memory of the xdp driver does not.
    fn xdp_mtu(&mut self) {
        let InterfaceDescription { name, mtu, .. } = self.interface;
        let is_reported = self.findings.iter().any(|f| f.topic == "XDP MTU");
        if *mtu > XDP_MEMORY_MTU && !is_reported {
            let text = format!(
                "MTU {mtu}: the xdp driver receives up to MTU {XDP_MEMORY_MTU}; live and packet receive more"
            );
            let command = format!("ip link set {name} mtu {XDP_MEMORY_MTU}");
            self.say_with_fix(Level::Note, "XDP MTU", text, &command);
        }
    }

    fn queues(&mut self) {
        let Some(channels) = &self.interface.channels else {
            return;
        };
        let (rx, tx) = (channels.rx_queues(), channels.tx_queues());
        let text = format!(
            "{rx} of {} receive, {tx} of {} transmit",
            max_rx(channels),
            max_tx(channels)
        );
        let cpus = self.about.usable_cpus.max(1);
        // More queues than CPUs bring nothing, and some drivers want queues left for XDP.
        let useful = |max: u32| {
            let room = match self.facts.map(|facts| facts.queues) {
                Some(XdpQueues::Half) => max / 2,
                Some(XdpQueues::Spare) => max.saturating_sub(self.about.cpus.len() as u32),
                _ => max,
            };
            room.clamp(1, cpus)
        };
        let (useful_rx, useful_tx) = (useful(max_rx(channels)), useful(max_tx(channels)));
        self.spare_queues(channels, useful_rx);
        if rx >= useful_rx && tx >= useful_tx {
            return self.add_finding(Level::Ok, "queues", text);
        }
        let command = channels_command(&self.interface.name, channels, useful_rx, useful_tx);
        self.say_with_fix(Level::Note, "queues", format!("{text} enabled"), &command);
    }

    /// Reports that a driver which wants a spare queue pair for each CPU has too few.
    fn spare_queues(&mut self, channels: &Channels, useful: u32) {
        let (max, cpus) = (max_tx(channels), self.about.cpus.len() as u32);
        let on = channels.tx_queues();
        if self.facts.map(|facts| facts.queues) != Some(XdpQueues::Spare) || on + cpus <= max {
            return;
        }
        let driver = &self.interface.driver;
        let what = match version(&self.about.kernel).is_some_and(|kernel| kernel < SHARED_QUEUES) {
            true => "refuses XDP programs",
            false => "sends XDP frames through shared queues, under a lock",
        };
        let text = format!(
            "{driver} needs a spare queue pair for each CPU, but {on} of {max} pairs are enabled with {cpus} CPUs, so it {what}; \
             the hypervisor can provide 2 x {cpus} pairs"
        );
        if max > cpus {
            let command = channels_command(&self.interface.name, channels, useful, useful);
            self.say_with_fix(Level::Note, "XDP queues", text, &command);
        } else {
            self.add_finding(Level::Note, "XDP queues", text);
        }
    }

    fn rings(&mut self) {
        let Some(rings) = &self.interface.rings else {
            return;
        };
        if rings.max_rx == 0 && rings.max_tx == 0 {
            return;
        }
        let text = format!(
            "{} of {} receive, {} of {} transmit",
            rings.rx, rings.max_rx, rings.tx, rings.max_tx
        );
        if rings.rx >= rings.max_rx {
            return self.add_finding(Level::Ok, "rings", text);
        }
        let command = format!("ethtool -G {} rx {}", self.interface.name, rings.max_rx);
        let text = format!("{text}: a larger receive ring tolerates longer stalls of the receiver");
        self.say_with_fix(Level::Note, "rings", text, &command);
    }

    fn offloads(&mut self) {
        // Offloads that join received frames, and on a virtual wire offloads of the other stack that leave frames
        // unfinished, because no device will finish them.
        let spoils = |offload: Offload| match offload {
            Offload::Gro | Offload::Lro => Some("merges received frames"),
            Offload::RxVlan => Some("strips VLAN tags (they are read from metadata)"),
            Offload::TxChecksum if self.interface.kind.is_virtual() => {
                Some("leaves checksums incomplete")
            }
            Offload::Tso | Offload::Gso if self.interface.kind.is_virtual() => {
                Some("passes frames above the MTU")
            }
            _ => None,
        };
        let on: Vec<(Offload, &str)> = Offload::ALL
            .iter()
            .filter(|offload| self.interface.has_on(**offload))
            .filter_map(|offload| Some((*offload, spoils(*offload)?)))
            .collect();
        if on.is_empty() {
            return self.add_finding(Level::Ok, "offloads", "none that changes frames is enabled");
        }
        let level = match on.iter().all(|(o, _)| *o == Offload::RxVlan) {
            true => Level::Note,
            false => Level::Warn,
        };
        let what: Vec<String> = on
            .iter()
            .map(|(offload, effect)| format!("{} {effect}", offload.keyword()))
            .collect();
        let switches: Vec<String> = on
            .iter()
            .map(|(o, _)| format!("{} off", o.keyword()))
            .collect();
        let command = format!("ethtool -K {} {}", self.interface.name, switches.join(" "));
        self.say_with_fix(level, "offloads", what.join("; "), &command);
    }

    fn interrupts(&mut self) {
        let used: Vec<_> = self
            .interface
            .interrupts
            .iter()
            .filter(|irq| irq.count > 0 && !irq.cpus.is_empty())
            .collect();
        if used.is_empty() {
            return;
        }
        let mut targets: Vec<u32> = used.iter().flat_map(|irq| irq.cpus.clone()).collect();
        targets.sort_unstable();
        targets.dedup();
        let text = format!("{} in use, on CPUs {}", used.len(), format_list(&targets));
        if targets.len() > 1 || used.len() < 2 || self.about.cpus.len() < 2 {
            return self.add_finding(Level::Ok, "interrupts", text);
        }
        let spread = used
            .iter()
            .zip(self.about.cpus.iter().cycle())
            .map(|(irq, cpu)| format!("echo {cpu} > /proc/irq/{}/smp_affinity_list", irq.number));
        let command = format!("sh -c '{}'", spread.collect::<Vec<_>>().join("; "));
        // Interrupts belong to the machine, not to the namespace.
        let text = format!("{text}: one CPU serves all queues");
        self.findings
            .push(Finding::new(Level::Warn, "interrupts", text).fix(self.sudo(&command)));
    }

    fn timestamping(&mut self) {
        let hardware = self
            .interface
            .timestamping
            .filter(|stamps| stamps.hardware_rx);
        let Some(stamps) = hardware else {
            let text = "by the kernel, not by the device: latencies include those of the host";
            return self.add_finding(Level::Note, "timestamps", text);
        };
        let clock = stamps
            .clock
            .map(|n| format!(" (clock /dev/ptp{n})"))
            .unwrap_or_default();
        let text = format!(
            "captures can use those of the device{clock}; trials use those of the kernel, so latencies include those of the host"
        );
        self.add_finding(Level::Ok, "timestamps", text);
    }

    fn sharing(&mut self) {
        match &self.interface.way_out {
            Usage::Unused => {}
            Usage::Used(way) => {
                let text = format!("{way}: sending requires `--i-own-this-network`");
                self.add_finding(Level::Warn, "sending", text);
            }
            Usage::Unknown(error) => {
                let text = format!(
                    "cannot determine if the default route leaves by this interface ({error}): sending requires `--i-own-this-network`"
                );
                self.add_finding(Level::Warn, "sending", text);
            }
        }
        match &self.interface.host_use {
            Usage::Unused => {
                let text = "the host does not use the interface";
                self.add_finding(Level::Ok, "sharing", text);
            }
            Usage::Used(why) => {
                let level = match self.interface.in_lab {
                    true => Level::Ok,
                    false => Level::Note,
                };
                let text = format!(
                    "{why}: the xdp driver would hide frames from the host, so the packet driver receives"
                );
                self.add_finding(level, "sharing", text);
            }
            Usage::Unknown(error) => {
                let text = format!(
                    "cannot determine if the host uses the interface ({error}): the packet driver receives"
                );
                self.add_finding(Level::Warn, "sharing", text);
            }
        }
    }
}

/// Condition of the driver that is not met, as topic, text and command.
type Obstacle = (&'static str, String, String);

/// Way in which XDP programs run at an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpMode {
    /// True if they run in the driver, false if only in the generic receive path.
    pub is_native: bool,
    /// The way and its reason.
    pub text: String,
    level: Level,
}

/// Returns the way in which XDP programs would run at the interface of a description; `None` without an interface.
/// Does no I/O.
#[must_use]
pub fn xdp_mode(about: &Description) -> Option<XdpMode> {
    let interface = about.interface.as_ref()?;
    Some(mode_with(about, interface, &obstacles(interface)))
}

fn mode_with(
    about: &Description,
    interface: &InterfaceDescription,
    obstacles: &[Obstacle],
) -> XdpMode {
    let InterfaceDescription { driver, xdp, .. } = interface;
    let is_known = xdp.native.unwrap_or(drivers::has_native(driver));
    let zero_copy = match xdp.zero_copy {
        Some(true) => "with zero copy",
        Some(false) => "with a copy",
        None if drivers::has_zero_copy(driver) => "with zero copy if the device supports it",
        None => "with a copy",
    };
    let native = XdpMode {
        is_native: true,
        text: format!("native, {zero_copy}"),
        level: Level::Ok,
    };
    let generic = |level, why: String| XdpMode {
        is_native: false,
        text: format!("generic only, slower than native: {why}"),
        level,
    };
    let too_old = drivers::facts(driver)
        .filter(|facts| version(&about.kernel).is_some_and(|kernel| kernel < facts.since));
    match &xdp.attach {
        Attach::Accepted => native,
        Attach::Refused(words) => generic(
            Level::Warn,
            format!("the driver refuses XDP programs ({words})"),
        ),
        Attach::NotTried(_) if !is_known => generic(
            Level::Note,
            "the driver is not known to support native XDP".to_owned(),
        ),
        Attach::NotTried(_) => match too_old {
            Some(DriverFacts {
                since: (major, minor),
                ..
            }) => generic(
                Level::Note,
                format!("native needs Linux {major}.{minor} with {driver}"),
            ),
            None if obstacles.is_empty() => native,
            None => generic(
                Level::Warn,
                format!("{driver} refuses XDP programs with the current settings"),
            ),
        },
    }
}

/// Conditions of the driver that are not met, as topic, text and command.
fn obstacles(interface: &InterfaceDescription) -> Vec<Obstacle> {
    let Some(facts) = drivers::facts(&interface.driver) else {
        return Vec::new();
    };
    let InterfaceDescription { name, driver, .. } = interface;
    let mut found = Vec::new();
    if facts.queues == XdpQueues::Half
        && let Some(channels) = &interface.channels
    {
        let most = (max_rx(channels).min(max_tx(channels)) / 2).max(1);
        let (rx, tx) = (channels.rx_queues(), channels.tx_queues());
        if rx > most || tx > most || rx != tx {
            let text = format!(
                "{rx} of {} receive, {tx} of {} transmit enabled; with XDP, {driver} needs equal numbers, at most {most} each",
                max_rx(channels),
                max_tx(channels)
            );
            let command = channels_command(name, channels, most, most);
            found.push(("XDP queues", text, command));
        }
    }
    if facts.lro_off && interface.has_on(Offload::Lro) {
        let whose = match driver.as_str() {
            "virtio_net" => {
                "; if this fails, disable it in the hypervisor (guest_tso4=off, guest_tso6=off)"
            }
            _ => "",
        };
        let text = format!("{driver} refuses XDP programs while LRO is on{whose}");
        found.push(("XDP LRO", text, format!("ethtool -K {name} lro off")));
    }
    if interface.mtu > facts.xdp_mtu {
        let text = format!(
            "MTU {}: {driver} refuses single-buffer XDP programs above MTU {}",
            interface.mtu, facts.xdp_mtu
        );
        let least = facts.xdp_mtu.min(XDP_MEMORY_MTU);
        found.push(("XDP MTU", text, format!("ip link set {name} mtu {least}")));
    }
    found
}

fn max_rx(channels: &Channels) -> u32 {
    channels.max_combined.max(channels.max_rx)
}

fn max_tx(channels: &Channels) -> u32 {
    channels.max_combined.max(channels.max_tx)
}

fn channels_command(name: &str, channels: &Channels, rx: u32, tx: u32) -> String {
    match channels.max_combined {
        0 => format!("ethtool -L {name} rx {rx} tx {tx}"),
        _ => format!("ethtool -L {name} combined {}", rx.min(tx)),
    }
}
