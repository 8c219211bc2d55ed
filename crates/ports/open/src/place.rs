//! Chooses CPUs for the workers of ports.

use std::collections::BTreeSet;

use wb_machine::cpu::{Cpu, Irq};

use crate::OpenPort;

/// Chooses CPUs for the workers of all ports, in the order of ports and queues. The text is a warning about the
/// placement.
pub fn place(ports: &[&OpenPort], cpus: &[Cpu]) -> (Vec<Vec<u32>>, Option<String>) {
    let wanted = |p: &&&OpenPort| p.plan.cpus.is_empty();
    let sending: usize = ports
        .iter()
        .filter(wanted)
        .filter(|p| p.used.tx)
        .map(|p| p.placed_workers())
        .sum();
    let receiving: usize = ports
        .iter()
        .filter(wanted)
        .filter(|p| !p.used.tx)
        .map(|p| p.placed_workers())
        .sum();
    let usable: Vec<Cpu> = cpus.iter().filter(|c| c.allowed).cloned().collect();
    if usable.is_empty() || sending + receiving == 0 {
        return (ports.iter().map(|p| p.plan.cpus.clone()).collect(), None);
    }
    let placement = wb_machine::cpu::place_workers(sending, receiving, &usable);
    let (mut tx, mut rx) = (placement.tx.into_iter(), placement.rx.into_iter());
    let lists = ports
        .iter()
        .map(|p| {
            if !p.plan.cpus.is_empty() {
                return p.plan.cpus.clone();
            }
            let from: &mut dyn Iterator<Item = u32> = if p.used.tx { &mut tx } else { &mut rx };
            from.take(p.placed_workers()).collect()
        })
        .collect();
    (lists, placement.warning)
}

/// Returns a warning (T5) for workers on CPUs that serve interrupts of the same port, if other CPUs are available.
pub fn in_the_way(ports: &[&OpenPort], lists: &[Vec<u32>], cpus: &[Cpu]) -> Vec<String> {
    let used: BTreeSet<u32> = lists.iter().flatten().copied().collect();
    if cpus
        .iter()
        .filter(|c| c.allowed)
        .all(|c| used.contains(&c.id))
    {
        return Vec::new();
    }
    let said = |(port, own): (&&OpenPort, &Vec<u32>)| {
        let wire = port.wire.as_ref()?;
        let irqs = wb_machine::cpu::irqs(&wire.namespace, &wire.interface.name).ok()?;
        let (irq, cpu) = shared(&irqs, own)?;
        Some(format!(
            "T5: {}: a worker shares CPU {cpu} with interrupt {} ({}); `echo CPU > /proc/irq/{}/smp_affinity_list` \
             moves the interrupt to a free CPU (busy polling may want both on one CPU)",
            port.facts.locator, irq.number, irq.name, irq.number
        ))
    };
    let said: BTreeSet<String> = ports.iter().zip(lists).filter_map(said).collect();
    said.into_iter().collect()
}

/// Returns the first active interrupt that is served by these CPUs alone.
fn shared<'a>(irqs: &'a [Irq], cpus: &[u32]) -> Option<(&'a Irq, u32)> {
    irqs.iter()
        .filter(|irq| irq.count > 0)
        .find_map(|irq| match irq.cpus[..] {
            [cpu] if cpus.contains(&cpu) => Some((irq, cpu)),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_shares_its_cpu_with_an_interrupt_that_comes_there_alone() {
        let irq = |number, cpus: &[u32], count| Irq {
            number,
            name: String::new(),
            cpus: cpus.to_vec(),
            count,
        };
        let irqs = [
            irq(40, &[3], 0),
            irq(41, &[2, 3], 9),
            irq(42, &[1], 9),
            irq(43, &[3], 9),
        ];
        let found = |cpus: &[u32]| shared(&irqs, cpus).map(|(irq, cpu)| (irq.number, cpu));
        assert_eq!(found(&[2, 3]), Some((43, 3)));
        assert_eq!(found(&[0, 1]), Some((42, 1)));
        assert_eq!(found(&[0, 2]), None);
    }
}
