//! Checks the machine and one interface: what is in order, what limits a measurement, and the command that changes it.
//!
//! Changes nothing. Unknown facts are left out rather than guessed. The rules about interfaces are pure functions of a
//! [`Description`].

mod description;
mod drivers;
mod interface;

pub use description::{Attach, Description, InterfaceDescription, Usage, XdpAbilities, describe};
pub use drivers::xdp_mtu;
pub use interface::{XdpMode, judge, xdp_mode};

use std::fmt;
use std::fs;
use std::path::Path;

use crate::clock;
use crate::cpu::{self, Cpu};
use crate::netns::Namespace;
use crate::offloads::{self, LeftOff};
use crate::privilege::{self, Capability, Privileges};
use crate::sysctl;

/// Kernel versions: bpf_link for XDP; the oldest tested version.
const OLDEST_FOR_XDP: (u32, u32) = (5, 9);
const OLDEST_TESTED: (u32, u32) = (5, 15);

/// Locked memory for an AF_XDP area of 4096 frames and its rings, with a margin.
const ENOUGH_MEMLOCK: u64 = 64 << 20;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In order.
    Ok,
    /// For information.
    Note,
    /// Affects some measurements.
    Warn,
    /// Prevents an operation.
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

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub level: Level,
    /// Topic: `kernel`, `queues`.
    pub topic: String,
    /// Result, in a sentence.
    pub text: String,
    /// Command that changes the state.
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

/// Judges this machine and, if the description has one, its interface.
pub fn examine(about: &Description) -> Vec<Finding> {
    let privileges = Privileges::of_this_process();
    let mut findings = Vec::new();
    findings.push(kernel(&about.kernel));
    findings.extend(privilege_findings(&privileges));
    findings.extend(memlock(&privileges, kernel_version()));
    findings.push(btf(Path::new("/sys/kernel/btf/vmlinux").exists()));
    if let Ok(cpus) = cpu::online() {
        findings.extend(cpus_found(&cpus, cpu::smt_active()));
    }
    findings.extend(clock::clocksource().map(|name| clocksource(&name, clock::read_cost_ns())));
    findings.extend(settings());
    findings.extend(offloads::left_off().iter().map(left_off));
    findings.extend(judge(about));
    findings
}

/// Repairs changes that killed runs have left behind. Returns a line for each.
#[must_use]
pub fn repair() -> Vec<String> {
    offloads::repair()
}

/// Kernel version; `None` if the release does not contain one.
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
            format!("Linux {release}: older than 5.15, the oldest tested version"),
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
            "all required capabilities are present",
        ));
    }
    for each in missing {
        // Labs have an alternative (`lab run` in a user namespace), sending has none.
        let level = match each.capability {
            Capability::NetRaw => Level::Problem,
            _ => Level::Warn,
        };
        let text = format!("{} is missing, needed to {}", each.capability, each.why);
        findings.push(Finding::new(level, "privileges", text).fix(each.command));
    }
    findings
}

fn memlock(privileges: &Privileges, kernel: Option<(u32, u32)>) -> Option<Finding> {
    let limit = privileges.memlock?;
    // CAP_IPC_LOCK lifts the limit, and since 5.11 eBPF maps do not count.
    (limit < ENOUGH_MEMLOCK && !privilege::is_root()).then(|| {
        let maps = if kernel.is_some_and(|v| v < (5, 11)) {
            " and eBPF maps"
        } else {
            ""
        };
        let text = format!(
            "locked memory is limited to {} KiB: too little for AF_XDP memory{maps}",
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
            "kernel type information is available: XDP programs can read metadata",
        )
    } else {
        Finding::new(
            Level::Warn,
            "BTF",
            "/sys/kernel/btf/vmlinux is missing (CONFIG_DEBUG_INFO_BTF): no receive timestamps with XDP",
        )
    }
}

fn cpus_found(cpus: &[Cpu], smt: bool) -> Vec<Finding> {
    let allowed: Vec<u32> = cpus.iter().filter(|c| c.allowed).map(|c| c.id).collect();
    let mut findings = Vec::new();
    let (level, advice) = match allowed.len() {
        0 | 1 => (
            Level::Warn,
            ": sender and receiver share a CPU, which adds to the latencies",
        ),
        2 | 3 => (
            Level::Note,
            ": enough for one sender and one receiver, none left for other work",
        ),
        _ => (Level::Ok, ""),
    };
    let text = format!(
        "{} of {} usable ({}){advice}",
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
            "CPUs {} scale their frequency ({}): rates and latencies vary",
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
            "CPUs {} are isolated from other work; workers run there first",
            cpu::format_list(&isolated)
        );
        findings.push(Finding::new(Level::Ok, "isolation", text));
    } else if allowed.len() > 3 {
        let text = "no CPU is isolated (isolcpus=): latency tails include scheduling delays";
        findings.push(Finding::new(Level::Note, "isolation", text));
    }
    if smt {
        findings.push(
            Finding::new(
                Level::Note,
                "SMT",
                "cores run two hardware threads; workers use separate cores while there are enough",
            )
            .fix(sudo(
                "sh -c 'echo off > /sys/devices/system/cpu/smt/control'",
            )),
        );
    }
    findings
}

fn clocksource(name: &str, cost: f64) -> Finding {
    // Other clock sources cannot be read through the vDSO, so each reading is a system call.
    const FAST: [&str; 4] = [
        "tsc",
        "kvm-clock",
        "hyperv_clocksource_tsc_page",
        "arch_sys_counter",
    ];
    let text = format!("{name}, {cost:.0} ns per reading");
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
        format!("{text}: slow, timestamps reduce the rate"),
    );
    match better {
        Some(better) => finding.fix(sudo(&format!(
            "sh -c 'echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource'"
        ))),
        None => finding,
    }
}

/// Settings of the first namespace that limit all namespaces.
fn settings() -> Vec<Finding> {
    // (key, minimum, limited resource, level)
    const LEAST: [(&str, u64, &str, Level); 3] = [
        (
            "net.core.bpf_jit_enable",
            1,
            "XDP programs are interpreted, which is several times slower",
            Level::Warn,
        ),
        (
            "net.core.netdev_max_backlog",
            10_000,
            "veth and generic XDP drop frames when more are queued",
            Level::Note,
        ),
        (
            "net.core.rmem_max",
            16 << 20,
            "socket tests cannot use larger receive buffers",
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

/// Finding about offloads that a killed run has left off.
fn left_off(left: &LeftOff) -> Finding {
    let text = format!(
        "{}: {} left off by process {} (capture --offloads off), which was killed; the next run of this user restores the setting",
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
