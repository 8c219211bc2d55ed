//! Looks over the machine and one interface: what is well, what limits a measurement, and the
//! command that would change it.
//!
//! Only looks; changes nothing. What cannot be found out is left out rather than guessed.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::clock;
use crate::cpu::{self, Cpu, Irq};
use crate::error::Result;
use crate::ethtool::{Channels, Driver, Ethtool, Offload, Rings, Timestamping};
use crate::kin::WayOut;
use crate::link::{Link, LinkKind};
use crate::netlink::Netlink;
use crate::netns::Namespace;
use crate::offloads::{self, LeftOff};
use crate::privilege::{self, Capability, Privileges};
use crate::sysctl;

/// Drivers with XDP inside (kernel trees up to 6.18).
const NATIVE_XDP: &[&str] = &[
    "am65-cpsw-nuss",
    "atlantic",
    "bnxt_en",
    "bonding",
    "cpsw",
    "dpaa2-eth",
    "ena",
    "enetc",
    "fbnic",
    "fec",
    "fsl_dpa",
    "fsl_dpaa2_eth",
    "fsl_enetc",
    "funeth",
    "gve",
    "hv_netvsc",
    "i40e",
    "ice",
    "icssg-prueth",
    "idpf",
    "igb",
    "igc",
    "ixgbe",
    "ixgbevf",
    "lan966x-switch",
    "mana",
    "mlx4_en",
    "mlx5_core",
    "mtk_soc_eth",
    "mvneta",
    "mvpp2",
    "netkit",
    "netdevsim",
    "netsec",
    "nfp",
    "nicvf",
    "qede",
    "rvu-nicpf",
    "rvu_nicpf",
    "rvu-nicvf",
    "rvu_nicvf",
    "sfc",
    "sfc_siena",
    "st_gmac",
    "stmmac",
    "thunder-nicvf",
    "tsnep",
    "tun",
    "veth",
    "virtio_net",
    "vmxnet3",
    "xen_netfront",
    "vif",
];

/// Those of them that hand an AF_XDP socket's memory to the device.
const ZERO_COPY: &[&str] = &[
    "fsl_dpaa2_eth",
    "dpaa2-eth",
    "gve",
    "i40e",
    "ice",
    "idpf",
    "igb",
    "igc",
    "ixgbe",
    "mlx5_core",
    "nfp",
    "rvu-nicpf",
    "rvu_nicpf",
    "st_gmac",
    "stmmac",
    "tsnep",
    "virtio_net",
];

/// Kernel versions: bpf_link for XDP; the oldest we are tested against.
const OLDEST_FOR_XDP: (u32, u32) = (5, 9);
const OLDEST_TESTED: (u32, u32) = (5, 15);

/// Enough locked memory for one AF_XDP area of 4096 frames and its rings, with some to spare.
const ENOUGH_MEMLOCK: u64 = 64 << 20;

/// How a finding is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Spoils some measurements.
    Warn,
    /// Prevents something.
    Problem,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warn => "warn",
            Level::Problem => "problem",
        })
    }
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it is meant.
    pub level: Level,
    /// What it is about: `kernel`, `queues`.
    pub topic: String,
    /// What was found, in a sentence.
    pub text: String,
    /// The command that would change it.
    pub fix: Option<String>,
}

impl Finding {
    fn new(level: Level, topic: &str, text: impl Into<String>) -> Self {
        Finding {
            level,
            topic: topic.into(),
            text: text.into(),
            fix: None,
        }
    }

    fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
        self
    }
}

/// Looks over this machine and, where one is given, an interface in a namespace.
pub fn examine(port: Option<(&Namespace, &str)>) -> Vec<Finding> {
    let privileges = Privileges::of_this_process();
    let mut findings = Vec::new();
    findings.push(kernel(&rustix::system::uname().release().to_string_lossy()));
    findings.extend(privilege_findings(&privileges));
    findings.extend(memlock(&privileges, kernel_version()));
    findings.push(btf(Path::new("/sys/kernel/btf/vmlinux").exists()));
    if let Ok(cpus) = cpu::online() {
        findings.extend(cpus_found(&cpus, cpu::smt_active()));
    }
    findings.extend(clock::clocksource().map(|name| clocksource(&name, clock::read_cost_ns())));
    findings.extend(settings());
    findings.extend(offloads::left_off().iter().map(left_off));
    if let Some((namespace, interface)) = port {
        findings.extend(Port::examine(namespace, interface));
    }
    findings
}

/// Puts right what killed runs have left behind, and says so in lines.
#[must_use]
pub fn repair() -> Vec<String> {
    offloads::repair()
}

/// Which Linux this is; `None` where its name does not say.
pub fn kernel_version() -> Option<(u32, u32)> {
    version(&rustix::system::uname().release().to_string_lossy())
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(release: &str) -> Finding {
    let (level, text) = match version(release) {
        Some(v) if v >= OLDEST_TESTED => (Level::Ok, format!("Linux {release}")),
        Some(v) if v >= OLDEST_FOR_XDP => (
            Level::Note,
            format!("Linux {release}: older than 5.15, which is not tested"),
        ),
        Some(_) => (
            Level::Warn,
            format!("Linux {release}: the xdp driver needs 5.9; the packet driver works"),
        ),
        None => (Level::Note, format!("Linux {release}")),
    };
    Finding::new(level, "kernel", text)
}

fn privilege_findings(privileges: &Privileges) -> Vec<Finding> {
    let needed = [
        Capability::NetRaw,
        Capability::NetAdmin,
        Capability::Bpf,
        Capability::SysAdmin,
    ];
    let missing = privileges.missing(&needed);
    let mut findings = Vec::new();
    if privileges.in_user_namespace {
        findings.push(Finding::new(
            Level::Note,
            "privileges",
            "in a user namespace: labs and the packet driver work, the xdp driver does not",
        ));
    }
    if missing.is_empty() {
        findings.push(Finding::new(
            Level::Ok,
            "privileges",
            "all that are needed are there",
        ));
    }
    for each in missing {
        // Labs have their own way out (`lab run` in a user namespace), sending has not.
        let level = match each.capability {
            Capability::NetRaw => Level::Problem,
            _ => Level::Warn,
        };
        let text = format!(
            "{} is missing: it is needed to {}",
            each.capability, each.why
        );
        findings.push(Finding::new(level, "privileges", text).fix(each.command));
    }
    findings
}

fn memlock(privileges: &Privileges, kernel: Option<(u32, u32)>) -> Option<Finding> {
    let limit = privileges.memlock?;
    // Who has CAP_IPC_LOCK is not bound by it, and since 5.11 eBPF maps do not count.
    (limit < ENOUGH_MEMLOCK && !privilege::is_root()).then(|| {
        let maps = if kernel.is_some_and(|v| v < (5, 11)) {
            " and eBPF maps"
        } else {
            ""
        };
        let text = format!(
            "only {} KiB may be locked: too little for AF_XDP memory{maps}",
            limit >> 10
        );
        Finding::new(Level::Warn, "memlock", text).fix("ulimit -l unlimited")
    })
}

fn btf(present: bool) -> Finding {
    if present {
        Finding::new(
            Level::Ok,
            "BTF",
            "the kernel describes its types: XDP metadata can be read",
        )
    } else {
        Finding::new(
            Level::Warn,
            "BTF",
            "/sys/kernel/btf/vmlinux is missing (CONFIG_DEBUG_INFO_BTF): no receive timestamps by XDP",
        )
    }
}

fn cpus_found(cpus: &[Cpu], smt: bool) -> Vec<Finding> {
    let allowed: Vec<u32> = cpus.iter().filter(|c| c.allowed).map(|c| c.id).collect();
    let mut findings = Vec::new();
    let (level, advice) = match allowed.len() {
        0 | 1 => (
            Level::Warn,
            ": sender and receiver take turns, latencies are longer than the device's",
        ),
        2 | 3 => (
            Level::Note,
            ": one sender and one receiver, with nothing left for the rest",
        ),
        _ => (Level::Ok, ""),
    };
    let text = format!(
        "{} of {} may be used ({}){advice}",
        allowed.len(),
        cpus.len(),
        cpu::format_list(&allowed)
    );
    findings.push(Finding::new(level, "CPUs", text));

    let slow: Vec<u32> = cpus
        .iter()
        .filter(|c| c.allowed && c.governor.as_deref().is_some_and(|g| g != "performance"))
        .map(|c| c.id)
        .collect();
    if !slow.is_empty() {
        let governor = cpus
            .iter()
            .find(|c| slow.contains(&c.id))
            .and_then(|c| c.governor.clone());
        let text = format!(
            "CPUs {} change their frequency ({}): rates and latencies wander",
            cpu::format_list(&slow),
            governor.unwrap_or_default()
        );
        findings.push(
            Finding::new(Level::Warn, "governor", text)
                .fix(sudo("cpupower frequency-set -g performance")),
        );
    }
    let isolated: Vec<u32> = cpus.iter().filter(|c| c.isolated).map(|c| c.id).collect();
    if !isolated.is_empty() {
        let text = format!(
            "CPUs {} are kept free of other work; workers go there first",
            cpu::format_list(&isolated)
        );
        findings.push(Finding::new(Level::Ok, "isolation", text));
    } else if allowed.len() > 3 {
        let text =
            "no CPU is kept free of other work: latency tails include the scheduler's (isolcpus=)";
        findings.push(Finding::new(Level::Note, "isolation", text));
    }
    if smt {
        findings.push(
            Finding::new(
                Level::Note,
                "SMT",
                "cores run two threads: workers go to different cores while there are enough",
            )
            .fix(sudo(
                "sh -c 'echo off > /sys/devices/system/cpu/smt/control'",
            )),
        );
    }
    findings
}

fn clocksource(name: &str, cost: f64) -> Finding {
    // Others leave the vDSO and make a system call of each reading.
    const FAST: [&str; 4] = [
        "tsc",
        "kvm-clock",
        "hyperv_clocksource_tsc_page",
        "arch_sys_counter",
    ];
    let text = format!("{name}, {cost:.0} ns a reading");
    if FAST.contains(&name) {
        return Finding::new(Level::Ok, "clock", text);
    }
    let available = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    let available = fs::read_to_string(available).unwrap_or_default();
    let better = available
        .split_ascii_whitespace()
        .find(|other| FAST.contains(other));
    let finding = Finding::new(
        Level::Warn,
        "clock",
        format!("{text}: slow, stamps cost rate"),
    );
    match better {
        Some(better) => finding.fix(sudo(&format!(
            "sh -c 'echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource'"
        ))),
        None => finding,
    }
}

/// Settings of the first namespace that bound everybody.
fn settings() -> Vec<Finding> {
    // (key, least, what it bounds, level)
    const LEAST: [(&str, u64, &str, Level); 3] = [
        (
            "net.core.bpf_jit_enable",
            1,
            "XDP programs are interpreted, several times slower",
            Level::Warn,
        ),
        (
            "net.core.netdev_max_backlog",
            10_000,
            "veth and generic XDP drop when more frames wait",
            Level::Note,
        ),
        (
            "net.core.rmem_max",
            16 << 20,
            "socket tests cannot have larger receive buffers",
            Level::Note,
        ),
    ];
    let Ok(here) = Namespace::current() else {
        return Vec::new();
    };
    LEAST
        .iter()
        .filter_map(|(key, least, bound, level)| {
            let value: u64 = sysctl::get(&here, key).ok()?.parse().ok()?;
            Some(setting(key, value, *least, bound, *level))
        })
        .collect()
}

fn setting(key: &str, value: u64, least: u64, bound: &str, level: Level) -> Finding {
    let topic = key.rsplit('.').next().unwrap_or(key);
    if value >= least {
        return Finding::new(Level::Ok, topic, format!("{value}"));
    }
    Finding::new(level, topic, format!("{value}: {bound}"))
        .fix(sudo(&format!("sysctl -w {key}={least}")))
}

/// Offloads that a killed run has left off.
fn left_off(left: &LeftOff) -> Finding {
    let text = format!(
        "{}: {} off, by process {} (capture --offloads off), which was killed; the next run of this user puts it right",
        left.place, left.offloads, left.pid
    );
    Finding::new(Level::Warn, "left behind", text).fix(sudo("wirebench doctor --repair"))
}

fn sudo(command: &str) -> String {
    if privilege::is_root() {
        command.into()
    } else {
        format!("sudo {command}")
    }
}

/// One interface and the commands that act on it.
struct Port<'a> {
    name: &'a str,
    prefix: String,
    findings: Vec<Finding>,
}

impl<'a> Port<'a> {
    fn examine(namespace: &'a Namespace, name: &'a str) -> Vec<Finding> {
        let opened = Netlink::open(namespace).and_then(|netlink| {
            let link = netlink.link(name)?;
            Ok((netlink, link, Ethtool::open(namespace)?))
        });
        let (netlink, link, ethtool) = match opened {
            Ok(opened) => opened,
            Err(e) => return vec![Finding::new(Level::Problem, "interface", e.to_string())],
        };
        let mut port = Port {
            name,
            prefix: namespace.command_prefix(),
            findings: Vec::new(),
        };
        let driver = ethtool.driver(name).ok().flatten();
        port.state(&link);
        port.device(&link, driver.as_ref(), &ethtool);
        port.xdp(&link, driver.as_ref());
        if let Ok(Some(channels)) = ethtool.channels(name) {
            port.queues(&channels, cpu::allowed().map_or(1, |cpus| cpus.len()));
        }
        if let Ok(Some(rings)) = ethtool.rings(name) {
            port.rings(&rings);
        }
        let on = |offload| ethtool.offload(name, offload).ok().flatten() == Some(true);
        port.offloads(
            &link.kind,
            &Offload::ALL.map(|offload| (offload, on(offload))),
        );
        if let Ok(irqs) = cpu::irqs(namespace, name) {
            port.interrupts(&irqs, &cpu::online().unwrap_or_default());
        }
        if let Ok(stamps) = ethtool.timestamping(name) {
            port.timestamping(stamps.as_ref());
        }
        port.sharing(
            netlink.host_use(name),
            netlink.way_out(name),
            namespace.name().is_some_and(|name| name.starts_with("wb-")),
        );
        port.findings
    }

    fn command(&self, command: &str) -> String {
        sudo(&format!("{}{command}", self.prefix))
    }

    fn say(&mut self, level: Level, topic: &str, text: impl Into<String>) {
        self.findings.push(Finding::new(level, topic, text));
    }

    fn say_with_fix(&mut self, level: Level, topic: &str, text: impl Into<String>, command: &str) {
        let finding = Finding::new(level, topic, text).fix(self.command(command));
        self.findings.push(finding);
    }

    fn state(&mut self, link: &Link) {
        let name = self.name;
        if !link.up {
            self.say_with_fix(
                Level::Problem,
                "link",
                "down",
                &format!("ip link set {name} up"),
            );
        } else if !link.carrier {
            let other = match link.kind {
                LinkKind::Veth => "is the other end up?",
                _ => "is a cable plugged in, and the other end up?",
            };
            self.say(
                Level::Problem,
                "link",
                format!("up, but no carrier: {other}"),
            );
        } else {
            self.say(Level::Ok, "link", "up, with carrier");
        }
        let largest = link.mtu + 18;
        let text = format!("{}: frames of up to {largest} bytes with FCS", link.mtu);
        if link.mtu < 1500 && link.max_mtu.is_none_or(|most| most >= 1500) {
            let command = format!("ip link set {name} mtu 1500");
            self.say_with_fix(
                Level::Warn,
                "MTU",
                format!("{text}; 1518 do not fit"),
                &command,
            );
        } else {
            self.say(Level::Ok, "MTU", text);
        }
    }

    fn device(&mut self, link: &Link, driver: Option<&Driver>, ethtool: &Ethtool) {
        let bus = driver
            .filter(|d| !d.bus.is_empty())
            .map(|d| format!(" at {}", d.bus));
        let driver = driver.map_or_else(|| "no driver".into(), |d| d.name.clone());
        self.say(
            Level::Ok,
            "device",
            format!("{}, {driver}{}", link.kind, bus.unwrap_or_default()),
        );
        match ethtool.speed(self.name) {
            Ok(Some(speed)) => {
                let text = format!("{} Gbit/s", speed.bits_per_second as f64 / 1e9);
                if speed.nominal || link.kind.is_virtual() {
                    let text = format!("{text} in name only: give rates in pps or bps, not in %");
                    self.say(Level::Note, "speed", text);
                } else {
                    self.say(Level::Ok, "speed", text);
                }
            }
            _ => self.say(
                Level::Note,
                "speed",
                "unknown: give rates in pps or bps, not in %",
            ),
        }
    }

    fn xdp(&mut self, link: &Link, driver: Option<&Driver>) {
        let driver = driver.map_or("", |driver| driver.name.as_str());
        let (level, text) = if ZERO_COPY.contains(&driver) {
            (
                Level::Ok,
                "native, with zero copy where device and kernel have it",
            )
        } else if NATIVE_XDP.contains(&driver) {
            (Level::Ok, "native, with a copy")
        } else {
            (
                Level::Note,
                "generic only, as far as known for this driver: slower than native",
            )
        };
        self.say(level, "XDP", text);
        if let Some(program) = link.xdp_attached {
            let text = format!(
                "program {} is attached ({}): the xdp driver cannot be used for receiving",
                program.id, program.mode
            );
            let command = format!("ip link set {} xdp off", self.name);
            self.say_with_fix(Level::Problem, "XDP program", text, &command);
        }
    }

    fn queues(&mut self, channels: &Channels, cpus: usize) {
        let (rx, tx) = (channels.rx_queues(), channels.tx_queues());
        let (max_rx, max_tx) = (
            channels.max_combined.max(channels.max_rx),
            channels.max_combined.max(channels.max_tx),
        );
        let text = format!("{rx} of {max_rx} to receive, {tx} of {max_tx} to send");
        // More queues than CPUs bring nothing.
        let useful = |max: u32| max.min(u32::try_from(cpus).unwrap_or(u32::MAX));
        if rx >= useful(max_rx) && tx >= useful(max_tx) {
            return self.say(Level::Ok, "queues", text);
        }
        let command = if channels.max_combined > 0 {
            format!(
                "ethtool -L {} combined {}",
                self.name,
                useful(channels.max_combined)
            )
        } else {
            format!(
                "ethtool -L {} rx {} tx {}",
                self.name,
                useful(max_rx),
                useful(max_tx)
            )
        };
        self.say_with_fix(Level::Note, "queues", format!("{text} are on"), &command);
    }

    fn rings(&mut self, rings: &Rings) {
        if rings.max_rx == 0 && rings.max_tx == 0 {
            return;
        }
        let text = format!(
            "{} of {} to receive, {} of {} to send",
            rings.rx, rings.max_rx, rings.tx, rings.max_tx
        );
        if rings.rx >= rings.max_rx {
            return self.say(Level::Ok, "rings", text);
        }
        let command = format!("ethtool -G {} rx {}", self.name, rings.max_rx);
        let text = format!("{text}: a longer receive ring survives longer pauses of the receiver");
        self.say_with_fix(Level::Note, "rings", text, &command);
    }

    fn offloads(&mut self, kind: &LinkKind, offloads: &[(Offload, bool)]) {
        // What spoils measuring: frames that are joined on their way in, and on a virtual wire
        // those that the other stack left unfinished, since no device will finish them.
        let spoils = |offload: Offload| match offload {
            Offload::Gro | Offload::Lro => Some("joins received frames"),
            Offload::RxVlan => Some("takes VLAN tags off (they are read beside the frame)"),
            Offload::TxChecksum if kind.is_virtual() => Some("leaves checksums unfilled"),
            Offload::Tso | Offload::Gso if kind.is_virtual() => Some("passes frames above the MTU"),
            _ => None,
        };
        let on: Vec<(Offload, &str)> = offloads
            .iter()
            .filter(|(_, on)| *on)
            .filter_map(|(offload, _)| Some((*offload, spoils(*offload)?)))
            .collect();
        if on.is_empty() {
            return self.say(Level::Ok, "offloads", "none is on that would change frames");
        }
        let level = if on.iter().all(|(o, _)| *o == Offload::RxVlan) {
            Level::Note
        } else {
            Level::Warn
        };
        let what: Vec<String> = on
            .iter()
            .map(|(offload, effect)| format!("{} {effect}", offload.keyword()))
            .collect();
        let switches: Vec<String> = on
            .iter()
            .map(|(o, _)| format!("{} off", o.keyword()))
            .collect();
        let command = format!("ethtool -K {} {}", self.name, switches.join(" "));
        self.say_with_fix(level, "offloads", what.join("; "), &command);
    }

    fn interrupts(&mut self, irqs: &[Irq], cpus: &[Cpu]) {
        let used: Vec<&Irq> = irqs
            .iter()
            .filter(|irq| irq.count > 0 && !irq.cpus.is_empty())
            .collect();
        if used.is_empty() {
            return;
        }
        let mut targets: Vec<u32> = used.iter().flat_map(|irq| irq.cpus.clone()).collect();
        targets.sort_unstable();
        targets.dedup();
        let text = format!(
            "{} in use, on CPUs {}",
            used.len(),
            cpu::format_list(&targets)
        );
        if targets.len() > 1 || used.len() < 2 || cpus.len() < 2 {
            return self.say(Level::Ok, "interrupts", text);
        }
        let spread = used.iter().zip(cpus.iter().cycle()).map(|(irq, cpu)| {
            format!(
                "echo {} > /proc/irq/{}/smp_affinity_list",
                cpu.id, irq.number
            )
        });
        let command = format!("sh -c '{}'", spread.collect::<Vec<_>>().join("; "));
        // Interrupts belong to the machine, not to the namespace.
        let text = format!("{text}: one CPU serves all queues");
        self.findings
            .push(Finding::new(Level::Warn, "interrupts", text).fix(sudo(&command)));
    }

    fn timestamping(&mut self, stamps: Option<&Timestamping>) {
        match stamps {
            Some(stamps) if stamps.hardware_rx => {
                let clock = stamps
                    .clock
                    .map(|n| format!(", clock /dev/ptp{n}"))
                    .unwrap_or_default();
                self.say(
                    Level::Ok,
                    "timestamps",
                    format!("by the device for every frame{clock}"),
                );
            }
            _ => {
                let text = "by the kernel, not by the device: latencies include the host's";
                self.say(Level::Note, "timestamps", text);
            }
        }
    }

    fn sharing(
        &mut self,
        used: Result<Option<String>>,
        way_out: Result<Option<WayOut>>,
        in_lab: bool,
    ) {
        match way_out {
            Ok(None) => {}
            Ok(Some(way)) => {
                let text = format!("{way}: sending takes `--i-own-this-network`");
                self.say(Level::Warn, "sending", text);
            }
            Err(error) => {
                let text = format!(
                    "whether the default route leaves by it cannot be told ({error}): sending takes `--i-own-this-network`"
                );
                self.say(Level::Warn, "sending", text);
            }
        }
        match used {
            Ok(None) => {
                let text = "nothing of the host uses it: the port is ours alone";
                self.say(Level::Ok, "sharing", text);
            }
            Ok(Some(why)) => {
                let level = if in_lab { Level::Ok } else { Level::Note };
                let text = format!(
                    "{why}: receiving by xdp would hide frames from it; the packet driver is taken"
                );
                self.say(level, "sharing", text);
            }
            Err(error) => {
                let text = format!(
                    "what of the host uses it cannot be told ({error}): the packet driver receives"
                );
                self.say(Level::Warn, "sharing", text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(prefix: &str) -> Port<'static> {
        Port {
            name: "a0",
            prefix: prefix.into(),
            findings: Vec::new(),
        }
    }

    #[test]
    fn kernels() {
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version("odd"), None);
        let level = |release| kernel(release).level;
        assert_eq!(level("6.1.0"), Level::Ok);
        assert_eq!(level("5.10.0-8-amd64"), Level::Note);
        assert_eq!(level("4.19.0"), Level::Warn);
    }

    #[test]
    fn fixes_act_in_the_namespace() {
        let mut port = port("ip netns exec wb-x ");
        let channels = Channels {
            rx: 1,
            tx: 1,
            max_rx: 4,
            max_tx: 4,
            ..Default::default()
        };
        port.queues(&channels, 2);
        assert_eq!(port.findings[0].level, Level::Note);
        let fix = port.findings[0].fix.as_deref().unwrap();
        assert!(
            fix.ends_with("ip netns exec wb-x ethtool -L a0 rx 2 tx 2"),
            "{fix}"
        );
    }

    #[test]
    fn as_many_queues_as_cpus_are_enough() {
        let mut port = port("");
        let channels = Channels {
            combined: 2,
            max_combined: 64,
            ..Default::default()
        };
        port.queues(&channels, 2);
        assert_eq!(
            (port.findings[0].level, &port.findings[0].fix),
            (Level::Ok, &None)
        );
    }

    #[test]
    fn offloads_that_spoil() {
        let mut port = port("");
        port.offloads(
            &LinkKind::Veth,
            &[
                (Offload::Tso, true),
                (Offload::Gro, true),
                (Offload::Lro, false),
            ],
        );
        assert_eq!(port.findings[0].level, Level::Warn);
        assert!(
            port.findings[0]
                .fix
                .as_deref()
                .unwrap()
                .ends_with("ethtool -K a0 tso off gro off")
        );

        // A real device cuts its segments itself.
        port.offloads(
            &LinkKind::Physical,
            &[(Offload::Tso, true), (Offload::TxChecksum, true)],
        );
        assert_eq!(port.findings[1].level, Level::Ok);
    }

    #[test]
    fn interrupts_on_one_cpu() {
        let irq = |number, cpu| Irq {
            number,
            name: "q".into(),
            cpus: vec![cpu],
            count: 9,
        };
        let cpu = |id| Cpu {
            id,
            node: 0,
            siblings: vec![id],
            governor: None,
            isolated: false,
            allowed: true,
        };
        let cpus = [cpu(0), cpu(1)];
        let mut port = port("ip netns exec wb-x ");
        port.interrupts(&[irq(24, 0), irq(25, 0)], &cpus);
        let fix = port.findings[0].fix.as_deref().unwrap();
        assert!(fix.ends_with(
            "sh -c 'echo 0 > /proc/irq/24/smp_affinity_list; echo 1 > /proc/irq/25/smp_affinity_list'"
        ));
        assert!(!fix.contains("netns"));
        port.interrupts(&[irq(24, 0), irq(25, 1)], &cpus);
        assert_eq!(port.findings[1].level, Level::Ok);
    }

    #[test]
    fn governors() {
        let cpu = |governor: Option<&str>| Cpu {
            id: 0,
            node: 0,
            siblings: vec![0],
            governor: governor.map(Into::into),
            isolated: false,
            allowed: true,
        };
        let topics = |cpus: &[Cpu]| {
            cpus_found(cpus, false)
                .into_iter()
                .map(|f| f.topic)
                .collect::<Vec<_>>()
        };
        assert!(topics(&[cpu(Some("powersave"))]).contains(&"governor".into()));
        assert!(!topics(&[cpu(Some("performance"))]).contains(&"governor".into()));
        assert!(!topics(&[cpu(None)]).contains(&"governor".into()));
    }

    #[test]
    fn settings_below_their_least_come_with_a_command() {
        let finding = setting("net.core.rmem_max", 100, 200, "small", Level::Note);
        assert!(
            finding
                .fix
                .unwrap()
                .ends_with("sysctl -w net.core.rmem_max=200")
        );
        assert_eq!(
            setting("net.core.rmem_max", 200, 200, "small", Level::Note).level,
            Level::Ok
        );
    }

    #[test]
    fn an_unknown_interface_is_a_problem() {
        let here = Namespace::current().unwrap();
        let findings = examine(Some((&here, "wb-none")));
        let last = findings.last().unwrap();
        assert_eq!(last.level, Level::Problem);
        assert!(last.text.contains("no interface wb-none"), "{}", last.text);
    }
}
