//! Privileges of this process, and the command that grants more.

use std::fmt;
use std::fs;

/// Capability that wirebench uses. linux/capability.h
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Configure interfaces; attach XDP programs.
    NetAdmin = 12,
    /// Open packet and AF_XDP sockets.
    NetRaw = 13,
    /// Enter and create namespaces, mount.
    SysAdmin = 21,
    /// Raise priorities.
    SysNice = 23,
    /// Load programs that read kernel pointers, and use performance counters.
    Perfmon = 38,
    /// Load eBPF programs and create maps.
    Bpf = 39,
}

impl Capability {
    /// All capabilities of this type.
    pub const ALL: [Capability; 6] = [
        Capability::NetAdmin,
        Capability::NetRaw,
        Capability::SysAdmin,
        Capability::SysNice,
        Capability::Perfmon,
        Capability::Bpf,
    ];

    /// Name for setcap.
    pub fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "cap_net_admin",
            Capability::NetRaw => "cap_net_raw",
            Capability::SysAdmin => "cap_sys_admin",
            Capability::SysNice => "cap_sys_nice",
            Capability::Perfmon => "cap_perfmon",
            Capability::Bpf => "cap_bpf",
        }
    }

    /// Purpose.
    pub fn purpose(self) -> &'static str {
        match self {
            Capability::NetAdmin => "configure interfaces and attach XDP programs",
            Capability::NetRaw => "open packet and AF_XDP sockets",
            Capability::SysAdmin => "create and enter network namespaces",
            Capability::SysNice => "raise the priority of workers",
            Capability::Perfmon => "let XDP programs read packet metadata",
            Capability::Bpf => "load XDP programs",
        }
    }

    /// Returns true if a user namespace can grant it. The kernel requires CAP_BPF and CAP_PERFMON in the initial user
    /// namespace, because eBPF programs have no namespace.
    pub fn works_in_user_namespace(self) -> bool {
        !matches!(
            self,
            Capability::Bpf | Capability::Perfmon | Capability::SysNice
        )
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_uppercase())
    }
}

/// Missing capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Capability.
    pub capability: Capability,
    /// Purpose.
    pub why: String,
    /// Command that grants it.
    pub command: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is missing, needed to {}; try `{}`",
            self.capability, self.why, self.command
        )
    }
}

/// Privileges of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    effective: u64,
    /// True if capabilities apply only to objects of a user namespace.
    pub in_user_namespace: bool,
    /// Limit of locked memory in bytes; `None` is unlimited.
    pub memlock: Option<u64>,
}

impl Privileges {
    /// Reads the privileges. Unknown ones count as missing.
    pub fn of_this_process() -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let uid_map = fs::read_to_string("/proc/thread-self/uid_map").unwrap_or_default();
        Privileges {
            effective: effective(&status).unwrap_or(0),
            in_user_namespace: !is_first_map(&uid_map),
            memlock: rustix::process::getrlimit(rustix::process::Resource::Memlock).current,
        }
    }

    /// Returns true if the capability is effective and usable here.
    pub fn has(&self, capability: Capability) -> bool {
        self.effective & (1 << capability as u32) != 0
            && (!self.in_user_namespace || capability.works_in_user_namespace())
    }

    /// Missing capabilities of `needed`, each with the command that grants them all.
    pub fn missing(&self, needed: &[Capability]) -> Vec<Missing> {
        let lacking: Vec<Capability> = needed.iter().copied().filter(|c| !self.has(*c)).collect();
        let command = command_granting(&lacking, self.in_user_namespace);
        lacking
            .into_iter()
            .map(|capability| Missing {
                capability,
                why: capability.purpose().into(),
                command: command.clone(),
            })
            .collect()
    }
}

/// Returns true if this process runs as user 0 of its user namespace.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// User id of this process outside of its user namespace.
pub fn outer_uid() -> u32 {
    let uid = rustix::process::getuid().as_raw();
    let map = fs::read_to_string("/proc/thread-self/uid_map").unwrap_or_default();
    outer(&map, uid).unwrap_or(uid)
}

/// Translates a user id with a `uid_map` (first inside, first outside, count).
fn outer(map: &str, uid: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let count = numbers.next()?.ok()?;
        let within = uid.checked_sub(inside)?;
        (within < count).then(|| outside + within)
    })
}

/// Command that grants this program every capability that any part of it uses, so that one command is enough.
#[must_use]
pub fn setcap_command() -> String {
    let program = std::env::current_exe()
        .map_or_else(|_| "wirebench".into(), |path| path.display().to_string());
    format!(
        "sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon,cap_sys_admin,cap_ipc_lock+ep {program}"
    )
}

fn command_granting(lacking: &[Capability], in_user_namespace: bool) -> String {
    let beyond = lacking.iter().any(|c| !c.works_in_user_namespace());
    if in_user_namespace && beyond {
        // File capabilities do not apply outside of a user namespace.
        return "sudo wirebench …, outside of any user namespace".into();
    }
    if lacking.contains(&Capability::SysAdmin) && !beyond {
        return "unshare -Urnm wirebench …".into();
    }
    setcap_command()
}

/// Value of `CapEff:` in `/proc/PID/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Returns true if a `uid_map` is the identity map of the initial user namespace.
fn is_first_map(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(capabilities: &[Capability], in_user_namespace: bool) -> Privileges {
        let effective = capabilities.iter().fold(0, |bits, c| bits | 1 << *c as u32);
        Privileges {
            effective,
            in_user_namespace,
            memlock: None,
        }
    }

    #[test]
    fn proc_texts() {
        assert_eq!(
            effective("Name:\tcat\nCapEff:\t000001ffffffffff\n"),
            Some(0x1ff_ffff_ffff)
        );
        assert_eq!(effective("Name:\tcat\n"), None);
        assert!(is_first_map("         0          0 4294967295\n"));
        assert!(!is_first_map("         0       1000          1\n"));
        assert!(!is_first_map(""));
        let map = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(
            (outer(map, 0), outer(map, 5), outer(map, 70_000)),
            (Some(1000), Some(100_004), None)
        );
    }

    #[test]
    fn what_is_missing_comes_with_one_command() {
        let missing = with(&[Capability::NetAdmin], false).missing(&[
            Capability::NetRaw,
            Capability::NetAdmin,
            Capability::Bpf,
        ]);
        let names: Vec<Capability> = missing.iter().map(|m| m.capability).collect();
        assert_eq!(names, [Capability::NetRaw, Capability::Bpf]);
        for each in &missing {
            assert_eq!(each.command, setcap_command());
            assert!(
                each.command.contains(each.capability.name()),
                "{}",
                each.command
            );
        }
        let text = missing[0].to_string();
        assert!(
            text.starts_with("CAP_NET_RAW is missing, needed to open packet and AF_XDP sockets; try `sudo setcap "),
            "{text}"
        );
    }

    #[test]
    fn a_user_namespace_gives_some_and_not_others() {
        let all = with(&Capability::ALL, true);
        assert!(all.has(Capability::NetRaw) && all.has(Capability::SysAdmin));
        assert!(!all.has(Capability::Bpf));
        assert!(
            all.missing(&[Capability::Bpf])[0]
                .command
                .contains("outside")
        );
        let none = with(&[], false);
        assert_eq!(
            none.missing(&[Capability::SysAdmin])[0].command,
            "unshare -Urnm wirebench …"
        );
    }

    #[test]
    fn reads_this_process() {
        let privileges = Privileges::of_this_process();
        if is_root() && !privileges.in_user_namespace {
            assert_ne!(privileges.effective, 0);
        }
    }
}
