//! Advice on the traffic of an interval and the set-up of the machine, in addition to interrupt advice.

use std::collections::BTreeMap;

use wb_counters::{
    advice::{
        Advice, InterfaceObservation, InterfaceSteering, Power, cpu_advice, interface_advice,
    },
    cpu::CpuShares,
    stat_document::{DeviceInterrupts, InterfaceStat, SoftnetStat},
};
use wb_machine::{Namespace, steering};

/// Packets per second below which an interface needs no advice.
const BUSY_PPS: f64 = 100.0;

/// Source of the advice.
pub(crate) struct Advisor {
    interfaces: BTreeMap<String, (Namespace, String)>,
    /// Packet steering of interfaces that have been busy. Read once per interface because reading is slow.
    steering: BTreeMap<String, InterfaceSteering>,
    power: Power,
    told: Vec<Advice>,
}

impl Advisor {
    pub(crate) fn of(interfaces: &[(Namespace, String)]) -> Self {
        let named = |(namespace, name): &(Namespace, String)| {
            (namespace.place_of(name), (namespace.clone(), name.clone()))
        };
        Self {
            interfaces: interfaces.iter().map(named).collect(),
            steering: BTreeMap::new(),
            power: steering::power(),
            told: Vec::new(),
        }
    }

    /// Returns the advice for an interval.
    pub(crate) fn next(
        &mut self,
        interfaces: &[InterfaceStat],
        interrupts: &[DeviceInterrupts],
        softnet: &SoftnetStat,
    ) -> Vec<Advice> {
        let shares = softnet.cpus.iter().filter_map(|c| Some((c.cpu, c.shares?)));
        let shares: BTreeMap<u32, CpuShares> = shares.collect();
        let mut advice = cpu_advice(&self.power, &shares);
        let (mut threads, none) = (None, Vec::new());
        for interface in interfaces {
            let Some(rates) = interface.rates.as_ref() else {
                continue;
            };
            let pps = [rates.rx_pps, rates.tx_pps];
            if pps.iter().all(|pps| *pps < BUSY_PPS) {
                continue;
            }
            let Some((namespace, name)) = self.interfaces.get(&interface.name) else {
                continue;
            };
            let steering = self
                .steering
                .entry(interface.name.clone())
                .or_insert_with(|| steering::of_interface(namespace, name).unwrap_or_default());
            let device = interrupts.iter().find(|d| d.interface == interface.name);
            let queues = device.map_or(&[][..], |device| &device.queues);
            let seen = InterfaceObservation {
                interface: &interface.name,
                steering,
                queues,
                pps,
                sizes: [rates.rx_size_bytes, rates.tx_size_bytes],
            };
            // Scanning all processes is slow, so only done if one could disturb.
            let threads = match queues.is_empty() {
                true => &none,
                false => &*threads.get_or_insert_with(steering::own_threads),
            };
            advice.extend(interface_advice(&seen, &shares, threads));
        }
        for new in &advice {
            self.told.retain(|old| !old.is_like(new));
            self.told.push(new.clone());
        }
        advice
    }

    /// Returns all advice so far, each item once, in its last wording.
    pub(crate) fn whole(&self) -> Vec<Advice> {
        self.told.clone()
    }
}
