//! Plans for the devices of a folder.

use std::collections::BTreeMap;

use wb_model::{
    Driver, Locator, Plan, PortPlan, SendWay,
    device::{DeviceConfig, DeviceJob, JitterRule, Mode, TimeForm, WatchJob, XmitMode},
    units::Span,
};

/// Options common to all plans of a folder.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Network namespace of the interfaces.
    pub node: Option<String>,
    /// Driver for sending, or none for the best available.
    pub driver: Option<Driver>,
    /// Seed of random fields.
    pub seed: u64,
    /// Allow destinations outside the benchmark and private ranges.
    pub i_own_this_network: bool,
    /// Form of the times in the files.
    pub time: TimeForm,
}

impl PlanOptions {
    fn locator(&self, driver: Option<Driver>, interface: &str) -> Locator {
        Locator {
            host: None,
            driver,
            node: self.node.clone(),
            name: interface.to_owned(),
        }
    }

    fn plan(&self) -> Plan {
        Plan {
            kind: "pktgen".to_owned(),
            // Update interval of `live`.
            interval: Span::from_millis(500),
            seed: self.seed,
            i_own_this_network: self.i_own_this_network,
            ..Plan::default()
        }
    }

    /// Returns the plan that runs these devices: interface, CPU and settings of each.
    pub(crate) fn sending<'a>(
        &self,
        devices: impl IntoIterator<Item = (&'a str, u32, &'a DeviceConfig)>,
    ) -> Plan {
        let mut ports: BTreeMap<String, PortPlan> = BTreeMap::new();
        let mut jobs = Vec::new();
        for (interface, cpu, settings) in devices {
            let way = match settings.xmit_mode {
                XmitMode::StartXmit => SendWay::Direct,
                XmitMode::QueueXmit => SendWay::Qdisc,
                XmitMode::NetifReceive => SendWay::Receive,
            };
            let priority = if way == SendWay::Qdisc {
                settings.skb_priority
            } else {
                0
            };
            // Frames sent in different ways need sockets of different kinds.
            let name = match way {
                SendWay::Direct => interface.to_owned(),
                SendWay::Qdisc if priority > 0 => format!("{interface} by qdisc, {priority}"),
                SendWay::Qdisc => format!("{interface} by qdisc"),
                SendWay::Receive => format!("{interface} inwards"),
            };
            let port = ports.entry(name.clone()).or_insert_with(|| PortPlan {
                workers: 0,
                way,
                priority,
                ..PortPlan::new(name.clone(), self.locator(self.driver, interface))
            });
            port.workers += 1;
            jobs.push(DeviceJob {
                port: name,
                cpu,
                time: self.time,
                settings: settings.clone(),
            });
        }
        Plan {
            ports: ports.into_values().collect(),
            devices: jobs,
            ..self.plan()
        }
    }

    /// Returns the plan that receives packets on these interfaces.
    pub(crate) fn watching(
        &self,
        interfaces: &[String],
        mode: Mode,
        jitter: JitterRule,
        consume: bool,
    ) -> Plan {
        let ports = interfaces
            .iter()
            .map(|i| PortPlan::new(i.clone(), self.locator(None, i)))
            .collect();
        let watches = interfaces
            .iter()
            .map(|interface| WatchJob {
                port: interface.clone(),
                mode,
                jitter,
                consume,
                duration: None,
            })
            .collect();
        Plan {
            ports,
            watches,
            kind: "pgrx".to_owned(),
            ..self.plan()
        }
    }
}

#[cfg(test)]
mod tests {
    use wb_model::device::Defaults;

    use super::*;

    #[test]
    fn devices_of_one_interface_share_a_port_unless_their_ways_differ() {
        let options = PlanOptions {
            node: Some("n".to_owned()),
            driver: None,
            seed: 7,
            i_own_this_network: false,
            time: TimeForm::Kernel,
        };
        let device = |name: &str| DeviceConfig::new(name, &Defaults::default());
        let (a, b, mut c) = (device("e@0"), device("e@1"), device("e@2"));
        c.xmit_mode = XmitMode::QueueXmit;
        c.skb_priority = 4;
        let plan = options.sending([("e", 0, &a), ("e", 1, &b), ("e", 1, &c)]);
        plan.validate().unwrap();
        let ports: Vec<_> = plan
            .ports
            .iter()
            .map(|p| (p.locator.to_string(), p.workers, p.way, p.priority))
            .collect();
        assert_eq!(
            ports,
            [
                ("n/e".to_owned(), 2, SendWay::Direct, 0),
                ("n/e".to_owned(), 1, SendWay::Qdisc, 4),
            ]
        );
        let text = wb_model::text::plan_to_toml(&plan);
        let again = wb_model::text::plan_from_toml("plan", &text).unwrap();
        assert_eq!(again, plan, "{text}");
    }
}
