//! Packet steering and power saving of the machine, as input for advice.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use wb_counters::advice::{InterfaceSteering, PinnedThread, Power};
use wb_counters::interrupts::parse_mask;

use crate::cpu::parse_list;
use crate::ethtool::{Ethtool, Offload};
use crate::link::link_by_name;
use crate::netns::Namespace;
use crate::sysfs::Sysfs;

/// Offloads that join frames or send joined frames.
const JOINS: [Offload; 4] = [Offload::Gro, Offload::Lro, Offload::Tso, Offload::Gso];

/// Packet steering of an interface; `None` if it was removed.
#[must_use]
pub fn of_interface(namespace: &Namespace, name: &str) -> Option<InterfaceSteering> {
    let link = link_by_name(namespace, name).ok()?;
    let ethtool = Ethtool::open(namespace).ok()?;
    let on = |join: &Offload| ethtool.offload(name, *join).ok().flatten() == Some(true);
    let sysfs = Sysfs::showing(namespace, &link)?;
    Some(InterfaceSteering {
        joins: JOINS.into_iter().filter(on).map(Offload::keyword).collect(),
        ..below(&sysfs.interface(name))
    })
}

/// Makes the kernel process packets of an interface's first queue on `cpu`, whichever CPU sent them. Returns true on
/// success; this requires privileges of the initial user namespace.
pub fn receive_on(namespace: &Namespace, name: &str, cpu: u32) -> bool {
    let written = || {
        let link = link_by_name(namespace, name).ok()?;
        let sysfs = Sysfs::writable(namespace, &link)?;
        let file = sysfs.interface(name).join("queues/rx-0/rps_cpus");
        fs::write(file, mask_of(cpu)).ok()
    };
    written().is_some()
}

/// CPU mask in kernel format: words of 32 bits, highest first.
fn mask_of(cpu: u32) -> String {
    format!(
        "{:x}{}",
        1u32 << (cpu % 32),
        ",00000000".repeat(cpu as usize / 32)
    )
}

fn below(interface: &Path) -> InterfaceSteering {
    let masks = |direction: &str, file: &str| {
        let queue = |n: usize| interface.join(format!("queues/{direction}-{n}"));
        // A device with one queue has no readable mask; a missing mask counts as zeros.
        let mask = |n| fs::read_to_string(queue(n).join(file)).ok();
        (0..)
            .take_while(|n| queue(*n).exists())
            .map(|n| {
                mask(n)
                    .and_then(|text| parse_mask(&text))
                    .unwrap_or_default()
            })
            .collect()
    };
    InterfaceSteering {
        rps: masks("rx", "rps_cpus"),
        xps: masks("tx", "xps_cpus"),
        mtu: read(&interface.join("mtu")).and_then(|text| text.parse().ok()),
        joins: Vec::new(),
    }
}

/// Power-saving settings of the CPUs.
#[must_use]
pub fn power() -> Power {
    power_below(Path::new("/sys/devices/system/cpu"))
}

fn power_below(cpus: &Path) -> Power {
    let online = read(&cpus.join("online")).and_then(|text| parse_list(&text));
    let mut power = Power {
        governors: BTreeMap::new(),
        deepest: None,
    };
    for cpu in online.unwrap_or_default() {
        let folder = cpus.join(format!("cpu{cpu}"));
        let governor = read(&folder.join("cpufreq/scaling_governor"));
        if let Some(governor) = governor.filter(|governor| governor != "performance") {
            power.governors.insert(cpu, governor);
        }
        for n in 0.. {
            let state = folder.join(format!("cpuidle/state{n}"));
            let Some(name) = read(&state.join("name")) else {
                break;
            };
            let allowed = read(&state.join("disable")).is_none_or(|text| text == "0");
            let latency = read(&state.join("latency")).and_then(|text| text.parse().ok());
            let deeper = |us: &u32| power.deepest.as_ref().is_none_or(|(_, most)| us > most);
            if let Some(us) = latency.filter(|us| allowed && deeper(us)) {
                power.deepest = Some((name, us));
            }
        }
    }
    power
}

/// Threads of all wirebench processes that are pinned to one CPU.
#[must_use]
pub fn own_threads() -> Vec<PinnedThread> {
    threads_below(Path::new("/proc"))
}

fn threads_below(proc: &Path) -> Vec<PinnedThread> {
    let numbers = |folder: &Path| -> Vec<u32> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut numbers: Vec<u32> = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    };
    let mut threads = Vec::new();
    for pid in numbers(proc) {
        let process = proc.join(pid.to_string());
        if read(&process.join("comm")).is_none_or(|name| name != "wirebench") {
            continue;
        }
        for thread in numbers(&process.join("task")) {
            let thread = process.join(format!("task/{thread}"));
            let status = read(&thread.join("status")).unwrap_or_default();
            let list = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let name = read(&thread.join("comm")).filter(|name| name.starts_with("wb-"));
            if let Some((name, cpus)) = name.zip(list.and_then(parse_list))
                && let [cpu] = cpus[..]
            {
                threads.push(PinnedThread { name, pid, cpu });
            }
        }
    }
    threads
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_as_written() {
        // Groups of 32 bits, highest first, as in the kernel's bitmaps.
        assert_eq!([0, 33].map(mask_of), ["1", "2,00000000"]);
        for cpu in [0, 3, 31, 32, 100] {
            assert_eq!(
                parse_mask(&mask_of(cpu)),
                Some(vec![cpu]),
                "{}",
                mask_of(cpu)
            );
        }
    }

    /// Creates the files of a recorded tree.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn masks_of_queues_are_read_and_may_be_missing() {
        let root = tree(&[
            ("mtu", "1500\n"),
            ("queues/rx-0/rps_cpus", "00000000,0000000c\n"),
            ("queues/rx-1/rps_cpus", "00000000,00000000\n"),
            ("queues/tx-0/xps_cpus", "1\n"),
            ("queues/tx-1/byte_queue_limits/limit", "0\n"),
        ]);
        let steering = below(root.path());
        assert_eq!(steering.rps, [vec![2, 3], vec![]]);
        assert_eq!(steering.xps, [vec![0], vec![]]);
        assert_eq!(steering.mtu, Some(1500));
    }

    #[test]
    fn governors_and_sleeps_of_cpus_that_are_online() {
        let root = tree(&[
            ("online", "0-1\n"),
            ("cpu0/cpufreq/scaling_governor", "performance\n"),
            ("cpu1/cpufreq/scaling_governor", "powersave\n"),
            ("cpu2/cpufreq/scaling_governor", "ondemand\n"),
            ("cpu0/cpuidle/state0/name", "POLL\n"),
            ("cpu0/cpuidle/state0/latency", "0\n"),
            ("cpu0/cpuidle/state1/name", "C1\n"),
            ("cpu0/cpuidle/state1/latency", "2\n"),
            ("cpu0/cpuidle/state1/disable", "0\n"),
            ("cpu0/cpuidle/state2/name", "C6\n"),
            ("cpu0/cpuidle/state2/latency", "133\n"),
            ("cpu0/cpuidle/state2/disable", "1\n"),
        ]);
        let power = power_below(root.path());
        assert_eq!(power.governors, [(1, "powersave".to_owned())].into());
        assert_eq!(
            power.deepest,
            Some(("C1".to_owned(), 2)),
            "C6 is switched off"
        );
        assert_eq!(power_below(Path::new("/none-such")), Power::default());
    }

    #[test]
    fn threads_that_stay_on_a_cpu_are_ours_alone() {
        let status =
            |list: &str| format!("Name:\tx\nCpus_allowed:\t2\nCpus_allowed_list:\t{list}\n");
        let (one, two) = (status("1"), status("0-1"));
        let root = tree(&[
            ("7/comm", "wirebench\n"),
            ("7/task/7/comm", "wirebench\n"),
            ("7/task/7/status", &one),
            ("7/task/8/comm", "wb-rx-b-0\n"),
            ("7/task/8/status", &one),
            ("7/task/9/comm", "wb-signals\n"),
            ("7/task/9/status", &two),
            ("12/comm", "iperf\n"),
            ("12/task/12/comm", "wb-x\n"),
            ("12/task/12/status", &one),
            ("self/comm", "wirebench\n"),
        ]);
        let expected = PinnedThread {
            name: "wb-rx-b-0".to_owned(),
            pid: 7,
            cpu: 1,
        };
        assert_eq!(threads_below(root.path()), [expected]);
    }
}
