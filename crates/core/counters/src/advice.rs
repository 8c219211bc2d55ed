//! Advice on settings of the machine that spoil a test: rules T4, T5, T9, T11 and T12. For interrupts on the wrong CPUs
//! (T1 and T2) see [`placement`](crate::interrupts::placement).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    cpu::CpuShares,
    interrupts::{QueueInterrupt, format_mask},
};

/// Idle share below which a CPU counts as full, in percent.
const FULL: f64 = 10.0;
/// Idle share above which a CPU counts as idle, in percent.
const IDLE: f64 = 50.0;
/// Interrupts or packets per second from which a queue or an interface counts as busy.
const BUSY: f64 = 100.0;
/// Steal time from which the hypervisor's share is reported, in percent.
const STOLEN: f64 = 1.0;
/// Wake-up latency above which a sleep state counts as deep, in us.
const DEEP: u32 = 20;
/// Bytes of a frame in addition to the MTU: Ethernet header, VLAN tag and FCS.
const AROUND_MTU: f64 = 22.0;

/// Advice on one setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Advice {
    /// Rule: `T4` (one queue fills a CPU while others idle), `T5` (a worker on the CPU of a queue), `T9` (transmit
    /// queues that CPUs share), `T11` (joined frames), `T12` (CPUs that slow down, sleep or are taken away).
    pub rule: String,
    /// Interface; `null` for advice on the machine.
    pub interface: Option<String>,
    /// Observation that led to the advice.
    pub evidence: String,
    /// Command that changes the setting; `null` if there is none.
    pub command: Option<String>,
    /// Cost of the change, or cases in which it does not help.
    pub risk: String,
}

impl Advice {
    /// Returns true if `other` gives the same advice, regardless of its figures.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.rule, &self.interface, &self.command)
            == (&other.rule, &other.interface, &other.command)
    }
}

/// Distribution of an interface's packets over CPUs, and the offloads that join them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceSteering {
    /// CPUs to which each receive queue hands its packets (RPS).
    pub rps: Vec<Vec<u32>>,
    /// CPUs that use each transmit queue (XPS).
    pub xps: Vec<Vec<u32>>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Enabled offloads that join frames, by their `ethtool -K` names.
    pub joins: Vec<&'static str>,
}

/// Thread of this program that is pinned to one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedThread {
    /// Name of the thread.
    pub name: String,
    /// Process of the thread.
    pub pid: u32,
    /// CPU to which the thread is pinned.
    pub cpu: u32,
}

/// Power-saving settings of the CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// CPUs with a governor other than `performance`, and that governor.
    pub governors: BTreeMap<u32, String>,
    /// Deepest sleep state that is allowed, and its wake-up latency in us.
    pub deepest: Option<(String, u32)>,
}

/// Observations of one interface in an interval.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceObservation<'a> {
    /// `IF` or `NODE/IF`.
    pub interface: &'a str,
    /// Distribution of its packets over CPUs.
    pub steering: &'a InterfaceSteering,
    /// Interrupts of its queues; empty for a virtual interface.
    pub queues: &'a [QueueInterrupt],
    /// Packets received and sent per second.
    pub pps: [f64; 2],
    /// Mean sizes of received and sent frames, in bytes.
    pub sizes: [Option<f64>; 2],
}

impl InterfaceObservation<'_> {
    /// Interface name within its namespace, for commands.
    fn name(&self) -> &str {
        let last = self.interface.rsplit('/').next();
        last.unwrap_or(self.interface)
    }

    fn advice(&self, rule: &str, evidence: String, command: Option<String>, risk: &str) -> Advice {
        Advice {
            interface: Some(self.interface.to_owned()),
            ..machine_advice(rule, evidence, command, risk)
        }
    }
}

fn machine_advice(rule: &str, evidence: String, command: Option<String>, risk: &str) -> Advice {
    Advice {
        rule: rule.to_owned(),
        interface: None,
        evidence,
        command,
        risk: risk.to_owned(),
    }
}

/// Returns the advice for one interface and interval. `cpus` holds the shares of the CPUs that are online.
#[must_use]
pub fn interface_advice(
    seen: &InterfaceObservation<'_>,
    cpus: &BTreeMap<u32, CpuShares>,
    threads: &[PinnedThread],
) -> Vec<Advice> {
    let mut advice = Vec::new();
    advice.extend(one_cpu_is_full(seen, cpus));
    advice.extend(threads.iter().filter_map(|thread| in_the_way(seen, thread)));
    advice.extend(shared_for_sending(seen));
    advice.extend(joined(seen));
    advice
}

/// T4: one queue fills a CPU while others idle. Gives no advice if a queue has an RPS mask already.
fn one_cpu_is_full(
    seen: &InterfaceObservation<'_>,
    cpus: &BTreeMap<u32, CpuShares>,
) -> Option<Advice> {
    let mut busy = seen.queues.iter().filter(|q| q.per_second >= BUSY);
    let (queue, None) = (busy.next()?, busy.next()) else {
        return None;
    };
    let cpu = *queue.came_on.first()?;
    let full = cpus.get(&cpu)?;
    if full.idle_percent > FULL
        || seen.pps[0] < BUSY
        || seen.steering.rps.iter().any(|r| !r.is_empty())
    {
        return None;
    }
    let others: Vec<u32> = cpus
        .iter()
        .filter(|(other, shares)| **other != cpu && shares.idle_percent > IDLE)
        .map(|(other, _)| *other)
        .collect();
    if others.is_empty() {
        return None;
    }
    let count = seen.steering.rps.len();
    let name = seen.name();
    let evidence = format!(
        "CPU {cpu} serves the only busy queue of {count} and is {:.0} % idle; other CPUs are idle",
        full.idle_percent
    );
    Some(if count > 1 {
        seen.advice(
            "T4",
            evidence,
            None,
            "one flow stays in one queue and on one CPU; RPS cannot distribute it, more flows can",
        )
    } else {
        let command = format!(
            "echo {} > /sys/class/net/{name}/queues/rx-0/rps_cpus",
            format_mask(&others)
        );
        let risk = "one inter-processor interrupt per batch; no gain for a single flow, which stays on one CPU";
        seen.advice("T4", evidence, Some(command), risk)
    })
}

/// T5: a pinned thread runs on the CPU that serves a busy queue.
fn in_the_way(seen: &InterfaceObservation<'_>, thread: &PinnedThread) -> Option<Advice> {
    let mut queues = seen.queues.iter();
    let queue = queues.find(|q| q.per_second >= BUSY && q.came_on.first() == Some(&thread.cpu))?;
    Some(seen.advice(
        "T5",
        format!(
            "thread {} of process {} is on CPU {}, which serves interrupt {} ({})",
            thread.name, thread.pid, thread.cpu, queue.irq, queue.name
        ),
        Some(format!(
            "echo CPU > /proc/irq/{}/smp_affinity_list",
            queue.irq
        )),
        "replace CPU by a CPU without a worker; XDP busy polling may need both on the same CPU",
    ))
}

/// T9: CPUs share transmit queues. Each CPU that sends should have a separate queue.
fn shared_for_sending(seen: &InterfaceObservation<'_>) -> Option<Advice> {
    let xps = &seen.steering.xps;
    let mut users: Vec<u32> = xps.iter().flatten().copied().collect();
    let all = users.len();
    users.sort_unstable();
    users.dedup();
    let one_to_one = users.len() == all && xps.iter().all(|cpus| cpus.len() == 1);
    if xps.len() < 2 || one_to_one || seen.pps[1] < BUSY {
        return None;
    }
    let evidence = match all {
        0 => format!("none of the {} transmit queues has an XPS mask", xps.len()),
        _ => format!(
            "of {} transmit queues, some are used by several CPUs or by none",
            xps.len()
        ),
    };
    let (name, last) = (seen.name(), xps.len().min(32) - 1);
    let command = format!(
        "for n in $(seq 0 {last}); do printf %x $((1 << n)) > /sys/class/net/{name}/queues/tx-$n/xps_cpus; done"
    );
    let risk =
        "CPUs without a dedicated queue still select one by hash; virtual devices may ignore XPS";
    Some(seen.advice("T9", evidence, Some(command), risk))
}

/// T11: frames longer than the MTU were joined before they were counted, or will be cut after.
fn joined(seen: &InterfaceObservation<'_>) -> Option<Advice> {
    let (mtu, joins) = (seen.steering.mtu?, &seen.steering.joins);
    let most = f64::from(mtu) + AROUND_MTU;
    let sizes = seen.sizes.into_iter().flatten();
    let size = sizes.filter(|size| *size > most).reduce(f64::max)?;
    if joins.is_empty() {
        return None;
    }
    let off: Vec<String> = joins.iter().map(|join| format!("{join} off")).collect();
    Some(seen.advice(
        "T11",
        format!(
            "mean frame size {size:.0} bytes at an MTU of {mtu}: segments are merged before they are counted and captured ({} on)",
            joins.join(", ")
        ),
        Some(format!("ethtool -K {} {}", seen.name(), off.join(" "))),
        "higher CPU load per byte; TCP connections of this host get slower",
    ))
}

/// Returns the advice for the machine (T12).
#[must_use]
pub fn cpu_advice(power: &Power, cpus: &BTreeMap<u32, CpuShares>) -> Vec<Advice> {
    let mut advice = Vec::new();
    if let Some((cpu, governor)) = power.governors.first_key_value() {
        let count = power.governors.len();
        advice.push(machine_advice(
            "T12",
            format!(
                "governor {governor} on CPU {cpu} ({count} in total): the clock frequency changes with the load"
            ),
            Some("cpupower frequency-set -g performance".to_owned()),
            "more power and heat on all CPUs",
        ));
    }
    if let Some((state, us)) = power.deepest.as_ref().filter(|(_, us)| *us > DEEP) {
        advice.push(machine_advice(
            "T12",
            format!("idle CPUs may enter state {state}, with a wake-up latency of {us} us"),
            Some(format!("cpupower idle-set -D {DEEP}")),
            "more power and heat; lower turbo frequency of busy CPUs",
        ));
    }
    let stolen = cpus
        .iter()
        .filter(|(_, shares)| shares.steal_percent > STOLEN)
        .max_by(|a, b| a.1.steal_percent.total_cmp(&b.1.steal_percent));
    if let Some((cpu, shares)) = stolen {
        advice.push(machine_advice(
            "T12",
            format!(
                "the hypervisor took {:.0} % of CPU {cpu} (steal time)",
                shares.steal_percent
            ),
            None,
            "times and rates include this noise; use a dedicated machine or dedicated CPUs",
        ));
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(irq: u32, cpu: u32, per_second: f64) -> QueueInterrupt {
        QueueInterrupt {
            irq,
            name: format!("eth0-rx-{irq}"),
            per_second,
            came_on: vec![cpu],
            cpus: vec![cpu],
        }
    }

    fn shares(idle: &[f64]) -> BTreeMap<u32, CpuShares> {
        let one = |idle_percent: &f64| CpuShares {
            idle_percent: *idle_percent,
            ..CpuShares::default()
        };
        (0..).zip(idle.iter().map(one)).collect()
    }

    fn seen<'a>(
        steering: &'a InterfaceSteering,
        queues: &'a [QueueInterrupt],
    ) -> InterfaceObservation<'a> {
        InterfaceObservation {
            interface: "wb-x/eth0",
            steering,
            queues,
            pps: [1e6, 1e6],
            sizes: [Some(64.0), Some(64.0)],
        }
    }

    fn rules(advice: &[Advice]) -> Vec<&str> {
        advice.iter().map(|a| &*a.rule).collect()
    }

    #[test]
    fn one_queue_that_fills_a_cpu_is_spread_and_one_flow_is_not() {
        let steering = |queues: usize| InterfaceSteering {
            rps: vec![Vec::new(); queues],
            ..InterfaceSteering::default()
        };
        let (one, four) = (steering(1), steering(4));
        let queues = [queue(40, 0, 5000.0)];
        let full = shares(&[2.0, 90.0, 80.0, 30.0]);
        let advice = interface_advice(&seen(&one, &queues), &full, &[]);
        assert_eq!(rules(&advice), ["T4"]);
        // CPUs 1 and 2, because CPU 3 is busy.
        let command = "echo 6 > /sys/class/net/eth0/queues/rx-0/rps_cpus";
        assert_eq!(advice[0].command.as_deref(), Some(command));
        let advice = interface_advice(&seen(&four, &queues), &full, &[]);
        assert_eq!((rules(&advice), &advice[0].command), (vec!["T4"], &None));
        assert!(advice[0].risk.contains("RPS cannot distribute it"));

        let none = |steering: &InterfaceSteering, queues: &[QueueInterrupt], idle: &[f64]| {
            assert_eq!(
                interface_advice(&seen(steering, queues), &shares(idle), &[]),
                []
            );
        };
        none(&one, &queues, &[40.0, 90.0]);
        none(&one, &queues, &[2.0, 20.0]);
        none(&one, &[queue(40, 0, 5.0)], &[2.0, 90.0]);
        none(
            &four,
            &[queue(40, 0, 5e3), queue(41, 1, 5e3)],
            &[2.0, 2.0, 90.0],
        );
        let spread = InterfaceSteering {
            rps: vec![vec![1]],
            ..InterfaceSteering::default()
        };
        none(&spread, &queues, &[2.0, 90.0]);
    }

    #[test]
    fn a_worker_on_the_cpu_of_a_busy_queue_is_in_the_way() {
        let (steering, queues) = (
            InterfaceSteering::default(),
            [queue(40, 1, 5000.0), queue(41, 2, 3.0)],
        );
        let threads = [1, 2, 3].map(|cpu| PinnedThread {
            name: "wb-rx-b-0".to_owned(),
            pid: 77,
            cpu,
        });
        let advice = interface_advice(&seen(&steering, &queues), &shares(&[50.0; 4]), &threads);
        assert_eq!(rules(&advice), ["T5"]);
        let evidence =
            "thread wb-rx-b-0 of process 77 is on CPU 1, which serves interrupt 40 (eth0-rx-40)";
        assert_eq!(advice[0].evidence, evidence);
    }

    #[test]
    fn queues_for_sending_are_for_one_cpu_each() {
        let advice = |xps: &[&[u32]], tx_pps| {
            let steering = InterfaceSteering {
                xps: xps.iter().map(|cpus| cpus.to_vec()).collect(),
                ..InterfaceSteering::default()
            };
            let seen = InterfaceObservation {
                pps: [0.0, tx_pps],
                ..seen(&steering, &[])
            };
            interface_advice(&seen, &BTreeMap::new(), &[])
        };
        for (xps, said) in [
            (&[&[][..], &[]][..], "none of the 2 transmit queues"),
            (&[&[0, 2][..], &[1]][..], "some are used by several CPUs"),
            (&[&[0][..], &[]][..], "or by none"),
            (&[&[0][..], &[0]][..], "some are used by several CPUs"),
        ] {
            let advice = advice(xps, 1e5);
            assert_eq!(rules(&advice), ["T9"], "{xps:?}");
            assert!(advice[0].evidence.contains(said), "{advice:?}");
        }
        let command = advice(&[&[], &[], &[]], 1e5)[0].command.clone().unwrap();
        assert!(
            command.contains("seq 0 2") && command.contains("net/eth0/queues"),
            "{command}"
        );
        assert_eq!(advice(&[&[0], &[1]], 1e5), []);
        assert_eq!(advice(&[&[]], 1e5), [], "one queue is everybody's");
        assert_eq!(advice(&[&[], &[]], 1.0), [], "nothing is sent");
    }

    #[test]
    fn frames_longer_than_the_wire_takes_were_joined() {
        let advice = |joins: &[&'static str], size| {
            let steering = InterfaceSteering {
                mtu: Some(1500),
                joins: joins.to_vec(),
                ..InterfaceSteering::default()
            };
            let seen = InterfaceObservation {
                sizes: [Some(64.0), size],
                ..seen(&steering, &[])
            };
            interface_advice(&seen, &BTreeMap::new(), &[])
        };
        let found = advice(&["gro", "tso"], Some(9000.0));
        assert_eq!(rules(&found), ["T11"]);
        assert_eq!(
            found[0].command.as_deref(),
            Some("ethtool -K eth0 gro off tso off")
        );
        assert_eq!(advice(&["gro"], Some(1522.0)), []);
        assert_eq!(advice(&[], Some(9000.0)), []);
        assert_eq!(advice(&["gro"], None), []);
    }

    #[test]
    fn cpus_that_slow_down_sleep_or_are_taken_away() {
        let mut cpus = shares(&[50.0, 50.0]);
        assert_eq!(cpu_advice(&Power::default(), &cpus), []);
        cpus.get_mut(&1).unwrap().steal_percent = 7.0;
        let power = Power {
            governors: [(3, "powersave".to_owned())].into(),
            deepest: Some(("C6".to_owned(), 133)),
        };
        let said = cpu_advice(&power, &cpus)
            .into_iter()
            .map(|a| a.evidence)
            .collect::<Vec<_>>();
        assert!(
            said[0].starts_with("governor powersave on CPU 3 (1 in total)"),
            "{said:?}"
        );
        assert!(
            said[1].contains("C6, with a wake-up latency of 133 us"),
            "{said:?}"
        );
        assert_eq!(said[2], "the hypervisor took 7 % of CPU 1 (steal time)");
        assert_eq!(said.len(), 3);
        let shallow = Power {
            deepest: Some(("C1".to_owned(), 2)),
            ..Power::default()
        };
        assert_eq!(cpu_advice(&shallow, &shares(&[50.0])), []);
    }
}
