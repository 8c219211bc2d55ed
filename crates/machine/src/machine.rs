//! Identity of this machine, which is part of each result.

use std::fs;

use crate::cpu::parse_list;

/// Names and size of a machine. Unknown values are empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Name of the host.
    pub host: String,
    /// System, release and version.
    pub kernel: String,
    /// Architecture: `x86_64`.
    pub architecture: String,
    /// Model of the first CPU.
    pub cpu: String,
    /// Number of online CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// Identity of this machine.
#[must_use]
pub fn identity() -> Identity {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let name = rustix::system::uname();
    let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let kernel = [name.sysname(), name.release(), name.version()].map(word);
    let online = parse_list(&read("/sys/devices/system/cpu/online")).unwrap_or_default();
    Identity {
        host: word(name.nodename()),
        kernel: kernel.join(" "),
        architecture: word(name.machine()),
        cpu: cpu_model(&read("/proc/cpuinfo")).unwrap_or_default(),
        cpus: u32::try_from(online.len()).unwrap_or(u32::MAX),
        memory_bytes: memory(&read("/proc/meminfo")).unwrap_or(0),
    }
}

/// Running tasks for each CPU, averaged over the last minute; `None` if unknown.
#[must_use]
pub fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let tasks: f64 = text.split(' ').next()?.parse().ok()?;
    Some(tasks / f64::from(identity().cpus.max(1)))
}

/// Random name of this start of the kernel, which all its namespaces share; empty if unknown.
#[must_use]
pub fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// Name of the first CPU in `/proc/cpuinfo`; the key differs between architectures.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let named = |key: &str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let mut named = lines.filter(|(k, _)| k.trim().eq_ignore_ascii_case(key));
        let value = named.next()?.1.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let keys = ["model name", "cpu model", "uarch", "CPU part", "cpu"];
    keys.into_iter().find_map(named)
}

/// MemTotal of `/proc/meminfo`, in bytes.
fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_called_by_any_architecture() {
        let intel = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.00GHz\n\nprocessor\t: 1\n";
        assert_eq!(cpu_model(intel).unwrap(), "Intel(R) Xeon(R) CPU @ 2.00GHz");
        assert_eq!(
            cpu_model("processor : 0\nCPU part : 0xd0c\n").unwrap(),
            "0xd0c"
        );
        assert_eq!(cpu_model("model name :\n"), None);
        assert_eq!(
            memory("MemTotal:       16303428 kB\nMemFree: 1 kB\n"),
            Some(16_303_428 * 1024)
        );
        assert_eq!(memory("MemTotal: many\n"), None);
    }

    #[test]
    fn this_machine_has_names() {
        let this = identity();
        assert!(!this.host.is_empty() && this.kernel.starts_with("Linux "));
        assert!(this.cpus > 0 && this.memory_bytes > 1 << 20, "{this:?}");
    }
}
