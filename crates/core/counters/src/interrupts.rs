//! `/proc/interrupts`, masks of CPUs, and advice on where interrupts of queues should go.

use std::{collections::BTreeMap, fmt::Write};

use schemars::JsonSchema;
use serde::Serialize;

/// An interrupt and how often it has come on each CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// What handles it: `eth0-TxRx-3`, `virtio3-input.0`.
    pub name: String,
    /// CPUs and counts, in the order of the header.
    pub counts: Vec<(u32, u64)>,
}

/// The numbered lines of `/proc/interrupts`; those that are named (`NMI`, `LOC`) and those that cannot be read are
/// left out.
#[must_use]
pub fn parse(text: &str) -> Vec<Interrupt> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let cpus: Vec<u32> = header
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
        .collect();
    let row = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let mut words = rest.split_ascii_whitespace();
        let mut counts = Vec::with_capacity(cpus.len());
        for cpu in &cpus {
            counts.push((*cpu, words.next()?.parse().ok()?));
        }
        let name = words.last().unwrap_or_default().to_owned();
        Some(Interrupt {
            number,
            name,
            counts,
        })
    };
    lines.filter_map(row).collect()
}

/// Sets of CPUs as the kernel writes masks: hexadecimal groups of 32 bits, the highest first.
///
/// `None` for what is no mask, or has more than 4,096 bits.
#[must_use]
pub fn parse_mask(text: &str) -> Option<Vec<u32>> {
    let groups: Vec<&str> = text.trim().split(',').collect();
    if groups.len() > 128 {
        return None;
    }
    let mut cpus = Vec::new();
    for (n, group) in (0_u32..).zip(groups.iter().rev()) {
        if group.is_empty() || group.len() > 8 {
            return None;
        }
        let bits = u32::from_str_radix(group, 16).ok()?;
        cpus.extend(
            (0..32)
                .filter(|bit| bits >> bit & 1 == 1)
                .map(|bit| n * 32 + bit),
        );
    }
    Some(cpus)
}

/// The mask of a set of CPUs, as the kernel takes it: `550`, `1,00000000`.
#[must_use]
pub fn format_mask(cpus: &[u32]) -> String {
    let mut groups: BTreeMap<u32, u32> = BTreeMap::new();
    for cpu in cpus {
        *groups.entry(cpu / 32).or_default() |= 1 << (cpu % 32);
    }
    let highest = groups.keys().next_back().copied().unwrap_or(0);
    let mut text = format!("{:x}", groups.get(&highest).unwrap_or(&0));
    for n in (0..highest).rev() {
        let _ = write!(text, ",{:08x}", groups.get(&n).unwrap_or(&0));
    }
    text
}

/// A queue's interrupt in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct QueueInterrupt {
    /// Its number.
    pub irq: u32,
    /// Its name in `/proc/interrupts`.
    pub name: String,
    /// How often it came in a second.
    pub per_second: f64,
    /// The CPUs on which it came.
    pub came_on: Vec<u32>,
    /// The CPUs to which it is sent.
    pub cpus: Vec<u32>,
}

/// A CPU that interrupts could be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// Its number.
    pub number: u32,
    /// Its NUMA node.
    pub node: Option<u32>,
}

/// An interrupt and where it should go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Move {
    /// Its number.
    pub irq: u32,
    /// Its name.
    pub name: String,
    /// Where it is sent now.
    pub from: Vec<u32>,
    /// Where it should be.
    pub to: u32,
    /// Which rule says so: `T1` (queues that share a CPU while others idle), `T2` (a CPU of another NUMA node).
    pub rule: String,
}

/// Interrupts that come more often than this in a second make their queue a busy one.
const BUSY: f64 = 100.0;

/// Where the interrupts of a device's busy queues should go: one queue, one CPU of the device's node. `cpus` are those
/// that are online, `node` the device's where it has one. Nothing is moved that stands well.
#[must_use]
pub fn placement(queues: &[QueueInterrupt], cpus: &[CpuPlace], node: Option<u32>) -> Vec<Move> {
    let near = |cpu: &CpuPlace| node.is_none() || cpu.node.is_none() || cpu.node == node;
    let mut load: BTreeMap<u32, u32> = cpus
        .iter()
        .filter(|cpu| near(cpu))
        .map(|cpu| (cpu.number, 0))
        .collect();
    let busy: Vec<&QueueInterrupt> = queues.iter().filter(|q| q.per_second >= BUSY).collect();
    // The first busy queue of a CPU may stay there.
    let mut to_move = Vec::new();
    for queue in busy {
        match queue.came_on.first().and_then(|cpu| load.get_mut(cpu)) {
            Some(count) if *count == 0 => *count = 1,
            Some(_) => to_move.push((queue, "T1")),
            None => to_move.push((queue, "T2")),
        }
    }
    let mut moves = Vec::new();
    for (queue, rule) in to_move {
        let idle = load.iter().min_by_key(|(_, count)| **count);
        let Some((&to, &count)) = idle else { continue };
        // Where all CPUs have a queue, moving one to another is no gain.
        if rule == "T1" && count > 0 {
            continue;
        }
        *load.entry(to).or_default() += 1;
        moves.push(Move {
            irq: queue.irq,
            name: queue.name.clone(),
            from: queue.cpus.clone(),
            to,
            rule: rule.to_owned(),
        });
    }
    moves
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_devices() {
        let text = "           CPU0       CPU2       \n 24:          1          5  IO-APIC   5-edge      em4\n 39:  11341 0 PCI-MSIX-0000:00:03.0 2-edge virtio2-output.0\nNMI:  0 0 Non-maskable interrupts\n 40: 1\n";
        let table = parse(text);
        assert_eq!(table.len(), 2);
        assert_eq!((table[0].number, &*table[0].name), (24, "em4"));
        assert_eq!(table[0].counts, [(0, 1), (2, 5)]);
        assert_eq!(table[1].name, "virtio2-output.0");
    }

    #[test]
    fn masks() {
        assert_eq!(parse_mask("400"), Some(vec![10]));
        assert_eq!(parse_mask("00000001,00000000"), Some(vec![32]));
        assert_eq!(format_mask(&[4, 6, 8, 10]), "550");
        assert_eq!(format_mask(&[32]), "1,00000000");
        for wrong in ["", "x", "1,,2", "123456789"] {
            assert_eq!(parse_mask(wrong), None, "{wrong}");
        }
    }

    fn queue(irq: u32, cpu: u32, per_second: f64) -> QueueInterrupt {
        QueueInterrupt {
            irq,
            name: format!("q{irq}"),
            per_second,
            came_on: vec![cpu],
            cpus: vec![cpu],
        }
    }

    fn machine() -> Vec<CpuPlace> {
        (0..4)
            .map(|number| CpuPlace {
                number,
                node: Some(number / 2),
            })
            .collect()
    }

    #[test]
    fn one_busy_queue_for_each_cpu_of_the_node() {
        let queues = [queue(1, 0, 5000.0), queue(2, 0, 5000.0), queue(3, 0, 1.0)];
        let moves = placement(&queues, &machine(), Some(0));
        assert_eq!(moves.len(), 1);
        assert_eq!((moves[0].irq, moves[0].to, &*moves[0].rule), (2, 1, "T1"));
        // All CPUs of the node have one: nothing is gained.
        let full = [
            queue(1, 0, 5000.0),
            queue(2, 1, 5000.0),
            queue(3, 0, 5000.0),
        ];
        assert_eq!(placement(&full, &machine(), Some(0)), []);
        // On the wrong node.
        let far = placement(&[queue(1, 3, 5000.0)], &machine(), Some(0));
        assert_eq!((far[0].to, &*far[0].rule), (0, "T2"));
        assert_eq!(placement(&[queue(1, 3, 5000.0)], &machine(), None), []);
    }

    proptest! {
        #[test]
        fn masks_come_back(cpus in prop::collection::btree_set(0_u32..4096, 1..40)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(parse_mask(&format_mask(&cpus)), Some(cpus));
        }

        #[test]
        fn no_text_breaks_it(text in "( *CPU[0-9]{1,3})*\n([ 0-9:a-z]{0,60}\n){0,5}|.{0,100}") {
            let _ = (parse(&text), parse_mask(&text));
        }
    }
}
