//! Parser of `/proc/interrupts` and of CPU masks, and advice on the placement of queue interrupts.

use std::{collections::BTreeMap, fmt::Write};

use schemars::JsonSchema;
use serde::Serialize;

/// One interrupt and its count on each CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// Number of the interrupt.
    pub number: u32,
    /// Name of the handler: `eth0-TxRx-3`, `virtio3-input.0`.
    pub name: String,
    /// CPU and count, in the order of the header.
    pub counts: Vec<(u32, u64)>,
}

/// Parses the numbered lines of `/proc/interrupts`. Skips named interrupts (`NMI`, `LOC`) and malformed lines.
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

/// Parses a CPU mask as the kernel writes it: hexadecimal groups of 32 bits, the highest first.
///
/// Returns `None` for anything that is not a mask, and for masks of more than 4,096 bits.
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

/// Formats a set of CPUs as a mask for the kernel: `550`, `1,00000000`.
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

/// Interrupt of a queue in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct QueueInterrupt {
    /// Number of the interrupt.
    pub irq: u32,
    /// Name in `/proc/interrupts`.
    pub name: String,
    /// Interrupts per second.
    pub per_second: f64,
    /// CPUs that served the interrupt.
    pub came_on: Vec<u32>,
    /// CPUs to which the interrupt is sent (effective affinity, or the configured one if unknown).
    pub cpus: Vec<u32>,
}

/// CPU that interrupts can be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// Number of the CPU.
    pub number: u32,
    /// NUMA node of the CPU.
    pub node: Option<u32>,
}

/// Proposed move of an interrupt to another CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Move {
    /// Number of the interrupt.
    pub irq: u32,
    /// Name of the interrupt.
    pub name: String,
    /// CPUs to which the interrupt is sent now.
    pub from: Vec<u32>,
    /// Proposed CPU.
    pub to: u32,
    /// Rule: `T1` (queues that share a CPU while others idle), `T2` (a CPU of another NUMA node).
    pub rule: String,
}

/// Interrupts per second from which a queue counts as busy.
const BUSY: f64 = 100.0;

/// Proposes CPUs for the interrupts of a device's busy queues: one queue per CPU, on the device's node. `cpus` are the
/// CPUs that are online, `node` is the device's node if it has one. Well-placed interrupts stay.
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
        // If every CPU has a queue, moving a queue gains nothing.
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
        // Every CPU of the node has a queue, so a move gains nothing.
        let full = [
            queue(1, 0, 5000.0),
            queue(2, 1, 5000.0),
            queue(3, 0, 5000.0),
        ];
        assert_eq!(placement(&full, &machine(), Some(0)), []);
        // The interrupt is on the wrong node.
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
