//! CPU topology, affinity, worker placement, and the interrupts of interfaces.
//!
//! Chooses CPUs for workers and can pin the calling thread. Starts no threads.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::thread::CpuSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{HostError, Result};
use crate::link::link_by_name;
use crate::netns::Namespace;
use crate::sysfs::Sysfs;

const CPUS: &str = "/sys/devices/system/cpu";

/// CPU as the kernel counts them: a hardware thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// CPU number.
    pub id: u32,
    /// NUMA node; 0 on machines with one node.
    pub node: u32,
    /// Hardware threads of the same core, including this one.
    pub siblings: Vec<u32>,
    /// Frequency governor: `performance`, `powersave`; `None` in most virtual machines.
    pub governor: Option<String>,
    /// True if the scheduler keeps other work away (`isolcpus=`).
    pub isolated: bool,
    /// True if this thread may run on the CPU.
    pub allowed: bool,
}

/// CPUs for workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPU of each sending worker.
    pub tx: Vec<u32>,
    /// CPU of each receiving worker.
    pub rx: Vec<u32>,
    /// Problem of the placement, for example workers that share a CPU.
    pub warning: Option<String>,
}

/// An interrupt of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Irq {
    /// Its number.
    pub number: u32,
    /// Its name in `/proc/interrupts`: `eth0-TxRx-3`; empty where it is not in use.
    pub name: String,
    /// The CPUs it is sent to, or may be sent to.
    pub cpus: Vec<u32>,
    /// How often it has come, on all CPUs.
    pub count: u64,
}

/// All online CPUs.
///
/// # Errors
/// If `/sys` is not mounted.
pub fn online() -> Result<Vec<Cpu>> {
    let path = format!("{CPUS}/online");
    let text = fs::read_to_string(&path).map_err(HostError::refused("read", &path))?;
    let ids = parse_list(&text).ok_or(HostError::Unreadable {
        path,
        text,
        expected: "a list of CPUs",
    })?;
    let isolated = isolated();
    let allowed = allowed()?;
    Ok(ids
        .into_iter()
        .map(|id| {
            let folder = PathBuf::from(format!("{CPUS}/cpu{id}"));
            let siblings = read_list(&folder.join("topology/thread_siblings_list"));
            Cpu {
                id,
                node: node_of(&folder),
                siblings: siblings.unwrap_or_else(|| vec![id]),
                governor: fs::read_to_string(folder.join("cpufreq/scaling_governor"))
                    .ok()
                    .map(|text| text.trim().to_owned()),
                isolated: isolated.contains(&id),
                allowed: allowed.contains(&id),
            }
        })
        .collect())
}

/// CPUs that this thread may run on.
///
/// # Errors
/// If the kernel does not report them.
pub fn allowed() -> Result<Vec<u32>> {
    let set = rustix::thread::sched_getaffinity(None)
        .map_err(HostError::refused("read", "the CPUs this thread may use"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .map(|cpu| cpu as u32)
        .collect())
}

/// Isolated CPUs.
pub fn isolated() -> Vec<u32> {
    read_list(Path::new(&format!("{CPUS}/isolated"))).unwrap_or_default()
}

/// Possible NUMA nodes; only 0 if the kernel does not list any.
pub fn possible_nodes() -> Vec<u32> {
    read_list(Path::new("/sys/devices/system/node/possible")).unwrap_or_else(|| vec![0])
}

/// True if simultaneous multithreading is active.
pub fn smt_active() -> bool {
    fs::read_to_string(format!("{CPUS}/smt/active")).is_ok_and(|text| text.trim() == "1")
}

/// Clock ticks of each CPU since boot, with the CPU number: user, nice, system, idle, iowait, irq, softirq, steal,
/// guest, guest nice (proc(5), `/proc/stat`). Columns that the kernel does not have are 0. `None` if the kernel does
/// not report them.
pub fn times() -> Option<Vec<(u32, [u64; 10])>> {
    read_times(&fs::read_to_string("/proc/stat").ok()?)
}

fn read_times(text: &str) -> Option<Vec<(u32, [u64; 10])>> {
    let mut cpus = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|w| w.strip_prefix("cpu"));
        let Some(number) = number.and_then(|n| n.parse().ok()) else {
            continue;
        };
        let mut ticks = [0; 10];
        for (slot, word) in ticks.iter_mut().zip(words) {
            *slot = word.parse().ok()?;
        }
        cpus.push((number, ticks));
    }
    (!cpus.is_empty()).then_some(cpus)
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// If the CPU does not exist, or this process may not use it.
pub fn pin(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    let object = || format!("this thread to CPU {cpu}");
    if cpu as usize >= CpuSet::MAX_CPU {
        let none = std::io::Error::from_raw_os_error(libc::EINVAL);
        return Err(HostError::refused("pin", object())(none));
    }
    set.set(cpu as usize);
    rustix::thread::sched_setaffinity(None, &set).map_err(HostError::refused("pin", object()))
}

/// Sets the nice value of the calling thread: -20 (highest priority) to 19 (lowest).
///
/// # Errors
/// Without CAP_SYS_NICE, if the priority is above the limit.
pub fn set_nice(nice: i32) -> Result<()> {
    // On Linux this call affects only the calling thread.
    rustix::process::setpriority_process(None, nice).map_err(HostError::refused(
        "set",
        format!("the priority of this thread to {nice}"),
    ))
}

/// Distributes sending and receiving workers over `cpus`. Each worker gets a separate core if there are enough, and
/// senders and receivers get different CPUs if there are at least two. Isolated CPUs come first. CPU 0 comes last,
/// because it has the most other work.
///
/// # Panics
/// If `cpus` is empty.
pub fn place_workers(tx: usize, rx: usize, cpus: &[Cpu]) -> Placement {
    let order = preferred(cpus);
    assert!(!order.is_empty(), "no CPU to place workers on");
    let workers = tx + rx;
    if workers <= order.len() {
        // A sender and its receiver get CPUs of one node if possible.
        let pairs = tx.min(rx);
        let (mut tx_cpus, mut rx_cpus) = (Vec::new(), Vec::new());
        for (slot, &cpu) in order.iter().take(workers).enumerate() {
            let sends = if slot < 2 * pairs {
                slot % 2 == 0
            } else {
                tx > rx
            };
            if sends {
                tx_cpus.push(cpu)
            } else {
                rx_cpus.push(cpu)
            }
        }
        let warning = shared_cores(&order[..workers], cpus);
        return Placement {
            tx: tx_cpus,
            rx: rx_cpus,
            warning,
        };
    }
    // Each side gets its share of the CPUs, at least one, and reuses them in turn.
    let share = match (tx, rx, order.len()) {
        (_, _, 1) | (_, 0, _) => order.len(),
        (0, _, _) => 0,
        (_, _, count) => (count * tx).div_ceil(workers).clamp(1, count - 1),
    };
    let (for_tx, for_rx) = order.split_at(share);
    let for_rx = if for_rx.is_empty() { for_tx } else { for_rx };
    let mut listed = order.clone();
    listed.sort_unstable();
    Placement {
        tx: for_tx.iter().copied().cycle().take(tx).collect(),
        rx: for_rx.iter().copied().cycle().take(rx).collect(),
        warning: Some(format!(
            "{workers} workers share {} CPU{} ({}): rates are lower and \
             latencies longer than those of the device",
            order.len(),
            if order.len() == 1 { "" } else { "s" },
            format_list(&listed),
        )),
    }
}

/// CPU that [`place_workers`] uses last, unless it is the only one.
pub fn placed_last(cpus: &[Cpu]) -> Option<u32> {
    preferred(cpus).get(1..)?.last().copied()
}

/// Interrupts of an interface and their CPUs. Empty for virtual interfaces, or if the namespace's `/sys` is not
/// available.
///
/// # Errors
/// [`HostError::UnknownInterface`].
pub fn irqs(namespace: &Namespace, interface: &str) -> Result<Vec<Irq>> {
    let link = link_by_name(namespace, interface)?;
    let Some(sysfs) = Sysfs::showing(namespace, &link) else {
        return Ok(Vec::new());
    };
    let device = sysfs.interface(interface).join("device");
    let table = interrupts(&fs::read_to_string("/proc/interrupts").unwrap_or_default());

    let mut numbers = msi_irqs(&device);
    if numbers.is_empty() {
        // The link contains the name of the device (`virtio2`). A virtual interface has none.
        let device = fs::read_link(&device).unwrap_or_default();
        let device = device
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let ours = |name: &str| belongs(name, interface) || belongs(name, &device);
        numbers = table
            .iter()
            .filter(|line| ours(&line.name))
            .map(|line| line.number)
            .collect();
    }
    Ok(numbers
        .into_iter()
        .map(|number| {
            let line = table.iter().find(|line| line.number == number);
            Irq {
                number,
                name: line.map(|line| line.name.clone()).unwrap_or_default(),
                cpus: affinity(number),
                count: line.map_or(0, |line| line.count),
            }
        })
        .collect())
}

/// NUMA node of an interface's device; `None` for virtual interfaces and on machines with one node.
pub fn node_of_interface(namespace: &Namespace, interface: &str) -> Option<u32> {
    let link = link_by_name(namespace, interface).ok()?;
    let device = Sysfs::showing(namespace, &link)?.interface(interface);
    // -1 without a node.
    let node = fs::read_to_string(device.join("device/numa_node")).ok()?;
    node.trim().parse().ok()
}

/// Parses a CPU list in kernel format: `0-3,8`.
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut cpus = BTreeSet::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if from > to || to as usize >= CpuSet::MAX_CPU * 64 {
            return None;
        }
        cpus.extend(from..=to);
    }
    Some(cpus.into_iter().collect())
}

/// Formats sorted CPU numbers as the kernel does: `0-3,8`.
pub fn format_list(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// CPU numbers in the order of assignment.
fn preferred(cpus: &[Cpu]) -> Vec<u32> {
    let mut order: Vec<&Cpu> = cpus.iter().collect();
    order.sort_by_key(|cpu| {
        let rank_in_core = cpu.siblings.iter().filter(|other| **other < cpu.id).count();
        (!cpu.isolated, rank_in_core, cpu.id == 0, cpu.node, cpu.id)
    });
    order.into_iter().map(|cpu| cpu.id).collect()
}

fn shared_cores(used: &[u32], cpus: &[Cpu]) -> Option<String> {
    let mut cores = BTreeSet::new();
    let doubled = used.iter().any(|id| {
        let core = cpus
            .iter()
            .find(|cpu| cpu.id == *id)
            .and_then(|cpu| cpu.siblings.first());
        !cores.insert(core.copied().unwrap_or(*id))
    });
    doubled.then(|| "some workers share a core (hardware threads) and slow each other down".into())
}

fn read_list(path: &Path) -> Option<Vec<u32>> {
    parse_list(&fs::read_to_string(path).ok()?)
}

/// The node is a link `nodeN` in the CPU's folder.
fn node_of(folder: &Path) -> u32 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .find_map(|name| name.strip_prefix("node")?.parse().ok())
        .unwrap_or(0)
}

/// Message-signalled interrupts of a PCI device, or of the PCI device under a virtio device.
fn msi_irqs(device: &Path) -> Vec<u32> {
    // Let the kernel resolve the path: a path into a detached mount cannot be made canonical.
    for folder in ["msi_irqs", "../msi_irqs"] {
        if let Ok(entries) = fs::read_dir(device.join(folder)) {
            let mut numbers: Vec<u32> = entries
                .flatten()
                .filter_map(|e| e.file_name().to_str()?.parse().ok())
                .collect();
            numbers.sort_unstable();
            return numbers;
        }
    }
    Vec::new()
}

/// Effective CPUs of an interrupt, or its allowed CPUs if these are unknown.
fn affinity(irq: u32) -> Vec<u32> {
    ["effective_affinity_list", "smp_affinity_list"]
        .iter()
        .filter_map(|file| read_list(Path::new(&format!("/proc/irq/{irq}/{file}"))))
        .find(|cpus| !cpus.is_empty())
        .unwrap_or_default()
}

struct InterruptLine {
    number: u32,
    name: String,
    count: u64,
}

/// Numbered lines of `/proc/interrupts`.
fn interrupts(text: &str) -> Vec<InterruptLine> {
    let mut lines = text.lines();
    let columns = lines
        .next()
        .map_or(0, |header| header.split_ascii_whitespace().count());
    lines
        .filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let words: Vec<&str> = rest.split_ascii_whitespace().collect();
            let counts = words.get(..columns)?;
            Some(InterruptLine {
                number: number.trim().parse().ok()?,
                name: words.last().copied().unwrap_or_default().to_owned(),
                count: counts
                    .iter()
                    .filter_map(|count| count.parse::<u64>().ok())
                    .sum(),
            })
        })
        .collect()
}

/// Returns true if an interrupt has the name of a device or of one of its queues.
fn belongs(interrupt: &str, device: &str) -> bool {
    !device.is_empty()
        && interrupt
            .strip_prefix(device)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ':', '.', '@']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cores` cores of `threads` hardware threads, numbered as in Linux: first one thread of each core.
    fn machine(cores: u32, threads: u32) -> Vec<Cpu> {
        (0..cores * threads)
            .map(|id| Cpu {
                id,
                node: 0,
                siblings: (0..threads).map(|t| id % cores + t * cores).collect(),
                governor: None,
                isolated: false,
                allowed: true,
            })
            .collect()
    }

    #[test]
    fn times_are_read_cpu_by_cpu() {
        let text = "cpu  9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu3 10 0 0 1\nintr 5 0\n";
        let times = read_times(text).unwrap();
        assert_eq!(times[0], (0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
        assert_eq!(times[1], (3, [10, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
        assert_eq!(read_times("cpu0 1 x"), None);
        assert_eq!(read_times("intr 5"), None);
        assert!(!times_of_this_machine_is_empty());
    }

    fn times_of_this_machine_is_empty() -> bool {
        times().is_none_or(|cpus| cpus.is_empty())
    }

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        for bad in ["3-1", "a", "1,,2", "0-4294967295"] {
            assert_eq!(parse_list(bad), None, "{bad}");
        }
        assert_eq!(format_list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(format_list(&[4, 5]), "4-5");
        assert_eq!(format_list(&[]), "");
    }

    #[test]
    fn enough_cpus_give_each_worker_its_own() {
        let placed = place_workers(2, 2, &machine(8, 1));
        assert_eq!(
            (placed.tx, placed.rx, placed.warning),
            (vec![1, 3], vec![2, 4], None)
        );
        let placed = place_workers(1, 3, &machine(4, 1));
        assert_eq!((placed.tx, placed.rx), (vec![1], vec![2, 3, 0]));
        assert_eq!(place_workers(0, 0, &machine(1, 1)).warning, None);
    }

    #[test]
    fn cores_before_threads_and_said_where_not() {
        let cpus = machine(4, 2);
        let placed = place_workers(2, 2, &cpus);
        assert_eq!(
            (placed.tx, placed.rx, placed.warning),
            (vec![1, 3], vec![2, 0], None)
        );
        let placed = place_workers(3, 2, &cpus);
        assert!(placed.warning.unwrap().contains("hardware threads"));
    }

    #[test]
    fn isolated_cpus_first() {
        let mut cpus = machine(4, 1);
        cpus[3].isolated = true;
        assert_eq!(place_workers(1, 1, &cpus).tx, [3]);
    }

    #[test]
    fn too_few_cpus_are_shared_and_said_so() {
        let placed = place_workers(2, 2, &machine(2, 1));
        assert_eq!(
            (placed.tx.as_slice(), placed.rx.as_slice()),
            (&[1, 1][..], &[0, 0][..])
        );
        assert!(
            placed
                .warning
                .unwrap()
                .starts_with("4 workers share 2 CPUs (0-1)")
        );

        let placed = place_workers(1, 1, &machine(1, 1));
        assert_eq!((placed.tx, placed.rx), (vec![0], vec![0]));
        assert!(
            placed
                .warning
                .unwrap()
                .starts_with("2 workers share 1 CPU (0)")
        );

        let placed = place_workers(5, 0, &machine(2, 1));
        assert_eq!((placed.tx, placed.rx.len()), (vec![1, 0, 1, 0, 1], 0));
        let placed = place_workers(0, 3, &machine(2, 1));
        assert_eq!(placed.rx, [1, 0, 1]);
        let placed = place_workers(1, 9, &machine(4, 1));
        assert!(placed.rx.iter().all(|cpu| !placed.tx.contains(cpu)));
    }

    #[test]
    fn interrupt_table() {
        let text = "           CPU0       CPU1       \n \
            38:          2       7431 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
            NMI:          0          0   Non-maskable interrupts\n\
            ERR:          0\n \
            40:          1          0 PCI-MSIX-0000:00:04.0   0-edge\n";
        let lines = interrupts(text);
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[0].number, lines[0].name.as_str(), lines[0].count),
            (38, "virtio2-input.0", 7433)
        );
        assert!(belongs("eth0-TxRx-3", "eth0") && belongs("eth0", "eth0"));
        assert!(!belongs("eth01", "eth0") && !belongs("x", ""));
    }

    #[test]
    fn this_machine() {
        let cpus = online().unwrap();
        assert!(cpus.iter().any(|cpu| cpu.allowed));
        assert!(cpus.iter().all(|cpu| cpu.siblings.contains(&cpu.id)));
        let first = allowed().unwrap()[0];
        std::thread::spawn(move || {
            pin(first).unwrap();
            assert_eq!(allowed().unwrap(), [first]);
            assert!(pin(u32::MAX).is_err());
        })
        .join()
        .unwrap();
    }
}
