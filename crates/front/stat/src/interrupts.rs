//! Device interrupts: their CPUs, better CPUs, and temporary moves.

use std::collections::BTreeMap;

use wb_counters::{
    interrupts::{CpuPlace, Interrupt, Move, QueueInterrupt, placement},
    stat_document::DeviceInterrupts,
};
use wb_machine::{
    HostError, Namespace, affinity, counters,
    cpu::{self, Irq},
};

/// Interrupts of a device.
struct Device {
    interface: String,
    node: Option<u32>,
    irqs: Vec<Irq>,
}

/// Interrupts of all observed devices.
pub(crate) struct Interrupts {
    devices: Vec<Device>,
    cpus: Vec<CpuPlace>,
    first: Vec<Interrupt>,
    last: Vec<Interrupt>,
    /// True if the interrupts are moved as advised.
    apply: bool,
    /// Moved interrupts, restored when dropped.
    moved: Vec<affinity::MovedInterrupts>,
    /// Messages that have not been printed yet.
    messages: Vec<String>,
}

impl Interrupts {
    /// Returns the interrupts of the given interfaces; virtual interfaces have none.
    ///
    /// # Errors
    /// If the CPUs cannot be determined.
    pub(crate) fn of(interfaces: &[(Namespace, String)], apply: bool) -> Result<Self, HostError> {
        let device = |(namespace, name): &(Namespace, String)| Device {
            interface: namespace.place_of(name),
            node: cpu::node_of_interface(namespace, name),
            irqs: cpu::irqs(namespace, name).unwrap_or_default(),
        };
        let cpus = cpu::online()?.into_iter().map(|cpu| CpuPlace {
            number: cpu.id,
            node: Some(cpu.node),
        });
        let now = counters::interrupts();
        let mut devices: Vec<Device> = interfaces.iter().map(device).collect();
        devices.retain(|device| !device.irqs.is_empty());
        let message = if devices.is_empty() {
            Some("none of these interfaces has its own interrupts")
        } else {
            wb_machine::process::is_running("irqbalance").then_some(
                "T3: irqbalance is running and may move interrupts during the measurement; stop it: systemctl stop irqbalance",
            )
        };
        Ok(Self {
            devices,
            cpus: cpus.collect(),
            first: now.clone(),
            last: now,
            apply,
            moved: Vec::new(),
            messages: message.into_iter().map(str::to_owned).collect(),
        })
    }

    /// Returns the messages since the last call.
    pub(crate) fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// Returns the interrupts per CPU in the interval that ends now.
    pub(crate) fn lines(&mut self, seconds: f64) -> Vec<DeviceInterrupts> {
        let now = counters::interrupts();
        let lines = self.between(&self.last, &now, seconds);
        self.last = now;
        if self.apply {
            for line in &lines {
                self.carry_out(&line.moves);
            }
        }
        lines
    }

    /// Returns the interrupts per CPU in total.
    pub(crate) fn totals(&self, seconds: f64) -> Vec<DeviceInterrupts> {
        self.between(&self.first, &self.last, seconds)
    }

    fn between(
        &self,
        before: &[Interrupt],
        now: &[Interrupt],
        seconds: f64,
    ) -> Vec<DeviceInterrupts> {
        let line = |device: &Device| {
            let queue = |irq: &Irq| queue(irq, before, now, seconds);
            let queues: Vec<QueueInterrupt> = device.irqs.iter().map(queue).collect();
            DeviceInterrupts {
                interface: device.interface.clone(),
                moves: placement(&queues, &self.cpus, device.node),
                queues: queues
                    .into_iter()
                    .filter(|queue| queue.per_second > 0.0)
                    .collect(),
            }
        };
        self.devices.iter().map(line).collect()
    }

    /// Moves each interrupt once. A moved interrupt is not moved again, even if the change takes effect late.
    fn carry_out(&mut self, moves: &[Move]) {
        for step in moves {
            let device = self.devices.iter_mut().flat_map(|device| &mut device.irqs);
            let Some(irq) = device.into_iter().find(|irq| irq.number == step.irq) else {
                continue;
            };
            if irq.cpus == [step.to] {
                continue;
            }
            match affinity::MovedInterrupts::to(&[(step.irq, step.to)]) {
                Ok(moved) => {
                    self.messages.push(format!(
                        "moved interrupt {} ({}) to CPU {} until the end",
                        step.irq, step.name, step.to
                    ));
                    irq.cpus = vec![step.to];
                    self.moved.push(moved);
                }
                Err(error) => {
                    self.messages.push(error.to_string());
                    // Prevents a repeated attempt in each interval.
                    irq.cpus = vec![step.to];
                }
            }
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn queue(irq: &Irq, before: &[Interrupt], now: &[Interrupt], seconds: f64) -> QueueInterrupt {
    let counts = |table: &[Interrupt]| -> BTreeMap<u32, u64> {
        let line = table.iter().find(|line| line.number == irq.number);
        line.map_or_else(BTreeMap::new, |line| line.counts.iter().copied().collect())
    };
    let before = counts(before);
    let risen = counts(now).into_iter().map(|(cpu, count)| {
        let before = before.get(&cpu).copied().unwrap_or(0);
        (cpu, count.saturating_sub(before))
    });
    let mut risen: Vec<(u32, u64)> = risen.filter(|(_, count)| *count > 0).collect();
    risen.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let sum: u64 = risen.iter().map(|(_, count)| count).sum();
    QueueInterrupt {
        irq: irq.number,
        name: irq.name.clone(),
        per_second: if seconds > 0.0 {
            sum as f64 / seconds
        } else {
            0.0
        },
        came_on: risen.into_iter().map(|(cpu, _)| cpu).collect(),
        cpus: irq.cpus.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(counts: &[(u32, u64)]) -> Vec<Interrupt> {
        vec![Interrupt {
            number: 40,
            name: "eth0-rx-0".to_owned(),
            counts: counts.to_vec(),
        }]
    }

    #[test]
    fn interrupts_are_told_where_they_came() {
        let irq = Irq {
            number: 40,
            name: "eth0-rx-0".to_owned(),
            cpus: vec![1],
            count: 0,
        };
        let (before, now) = (table(&[(0, 100), (1, 5)]), table(&[(0, 130), (1, 1005)]));
        let queue = queue(&irq, &before, &now, 2.0);
        assert_eq!(queue.came_on, [1, 0]);
        assert!((queue.per_second - 515.0).abs() < 1e-9);
        let machine = |devices| Interrupts {
            devices,
            cpus: Vec::new(),
            first: before.clone(),
            last: now.clone(),
            apply: false,
            moved: Vec::new(),
            messages: Vec::new(),
        };
        assert!(machine(Vec::new()).totals(1.0).is_empty());
        let all = machine(vec![Device {
            interface: "eth0".to_owned(),
            node: None,
            irqs: vec![irq],
        }]);
        assert_eq!(all.totals(1.0)[0].queues[0].irq, 40);
    }
}
