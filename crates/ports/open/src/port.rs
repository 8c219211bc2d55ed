//! A port of a plan, open.

use std::collections::BTreeMap;

use wb_machine::{Ethtool, LinkEvents, locks::QueueLock, pci};
use wb_model::{
    Driver,
    plan::{Plan, PortPlan},
    report::{NicReport, PortReport, PortUser},
    units::Mac,
};
use wb_port::PortFacts;
use wb_xdp::XdpPort;

use crate::{AnyQueue, Wire};

/// Requirements of a plan for a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// True if the port sends.
    pub tx: bool,
    /// True if the port receives.
    pub rx: bool,
    /// True if the port receives alongside the host: one queue for each CPU, and no frame is taken away from the host.
    pub watch: bool,
    /// True if test frames are of types that a host must see, such as ARP. The port then receives copies alongside the
    /// host.
    pub shares: bool,
    /// Sharing of the interface with other jobs.
    pub sharing: Sharing,
}

/// Use of an interface by one or several jobs. With several jobs, each job receives alongside the others and takes only
/// its own frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// One job, or several of one engine that share its sockets.
    #[default]
    Alone,
    /// Several jobs. This job is the first to open the interface and locks it for all.
    First,
    /// Several jobs, and the interface is already locked.
    Also,
}

impl Use {
    /// Returns the directions in which the traffic of a plan uses each port.
    pub fn of_plan(plan: &Plan) -> BTreeMap<String, Use> {
        let mut uses: BTreeMap<String, Use> = BTreeMap::new();
        for job in &plan.traffic {
            if let Some(tx) = &job.tx {
                let u = uses.entry(tx.clone()).or_default();
                u.tx = true;
                u.rx |= job.bidir;
            }
            if let Some(rx) = &job.rx {
                let u = uses.entry(rx.clone()).or_default();
                u.rx = true;
                u.tx |= job.bidir;
            }
        }
        uses
    }

    pub(crate) fn role(self) -> &'static str {
        match (self.tx, self.rx) {
            (true, true) => "tx+rx",
            (true, false) => "tx",
            _ => "rx",
        }
    }
}

/// A port of the plan, open.
pub struct OpenPort {
    /// The port as the plan has it.
    pub plan: PortPlan,
    /// Use of the port.
    pub used: Use,
    /// The driver's description of the port.
    pub facts: PortFacts,
    /// The interface; `None` for memory and files.
    pub wire: Option<Wire>,
    /// Queues, until the workers own them.
    pub queues: Vec<AnyQueue>,
    /// Reason for the driver.
    pub chosen_because: String,
    /// Job that opened the port for itself alone; empty if the port belongs to all jobs of a kind.
    pub job: String,
    /// Size of all receive rings together in bytes, if a capture has chosen it.
    pub ring_bytes: u64,
    /// True if the kernel runs the filter of the capture.
    pub filters: bool,
    pub(crate) _locks: Vec<QueueLock>,
    /// Keeps the XDP program attached for as long as the port lives.
    pub(crate) _xdp: Option<XdpPort>,
}

impl OpenPort {
    /// Returns `tx`, `rx` or `tx+rx`.
    #[must_use]
    pub fn role(&self) -> &'static str {
        self.used.role()
    }

    /// Returns true if the port itself sends the streams and accounts for them.
    pub fn is_live(&self) -> bool {
        self.facts.driver == Driver::Live.name()
    }

    /// Returns true if the port counts foreign frames. A live port that shares its interface with other jobs passes
    /// such frames on to the other jobs, and does not count them.
    pub fn counts_foreign(&self) -> bool {
        !self.is_live() || self.used.sharing == Sharing::Alone
    }

    /// Number of workers. Once the workers run, they own the queues of the port.
    pub fn workers(&self) -> usize {
        match self.is_live() {
            true => self.plan.workers as usize,
            false => self.queues.len(),
        }
    }

    /// Number of workers that need a CPU. A live port that only receives needs none, because its workers only read
    /// counters now and then.
    pub(crate) fn placed_workers(&self) -> usize {
        match self.is_live() && !self.used.tx {
            true => 0,
            false => self.workers(),
        }
    }

    /// Counters of the interface so far; empty if there is no interface.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.wire
            .as_ref()
            .map_or_else(BTreeMap::new, Wire::counters)
    }

    /// Returns true if the interface is set down on this host, or was since it was opened.
    pub fn was_set_down(&self) -> bool {
        let is_down = |wire: &Wire| {
            let link = wire.netlink.link(&wire.interface.name);
            link.is_ok_and(|link| !link.up)
        };
        let was_down = |wire: &Wire| {
            let events = wire.link_events.as_ref();
            events.is_some_and(LinkEvents::was_set_down) || is_down(wire)
        };
        self.wire.as_ref().is_some_and(was_down)
    }

    /// Report of the port, with its interface counters before and after the run.
    pub fn report(
        &self,
        before: BTreeMap<String, u64>,
        after: BTreeMap<String, u64>,
    ) -> PortReport {
        PortReport {
            nic: self.wire.as_ref().and_then(nic),
            ..self.so_far(before, after)
        }
    }

    /// Report of the port during a run, without what the system has to be asked for.
    pub fn so_far(
        &self,
        before: BTreeMap<String, u64>,
        after: BTreeMap<String, u64>,
    ) -> PortReport {
        PortReport {
            name: self.plan.name.clone(),
            locator: self.facts.locator.clone(),
            driver: self.facts.driver.to_owned(),
            mode: self.facts.mode.clone(),
            chosen_because: self.chosen_because.clone(),
            mac: Mac(self.facts.mac).to_string(),
            mtu: self.facts.mtu,
            kernel_driver: self.facts.kernel_driver.clone(),
            speed_bps: self.facts.speed.map(|s| s.bits_per_second),
            speed_nominal: self.facts.speed.is_some_and(|s| s.nominal),
            timestamp_source: self.facts.stamp_source.to_string(),
            nic: None,
            neighbours: BTreeMap::new(),
            users: vec![PortUser {
                jobs: self.job.clone(),
                locator: self.facts.locator.clone(),
                mode: self.facts.mode.clone(),
                chosen_because: self.chosen_because.clone(),
                timestamp_source: self.facts.stamp_source.to_string(),
            }],
            link_downs: 0,
            set_down_at_ns: None,
            interface_drops: 0,
            before,
            after,
        }
    }

    /// Text with locator, driver, mode, and the reason for the driver.
    pub fn line(&self) -> String {
        format!(
            "{} ({}): {}, {}; {}",
            self.plan.name,
            self.role(),
            self.facts.locator,
            self.facts.mode,
            self.chosen_because
        )
    }

    /// Bits per second, if a real wire sets the pace.
    pub fn line_rate(&self) -> Option<u64> {
        self.facts
            .speed
            .filter(|s| !s.nominal)
            .map(|s| s.bits_per_second)
    }
}

/// Describes the device behind an interface, as far as its driver reports it.
fn nic(wire: &Wire) -> Option<NicReport> {
    let driver = Ethtool::open(&wire.namespace)
        .and_then(|ethtool| ethtool.driver(&wire.interface.name))
        .ok()
        .flatten()?;
    Some(NicReport {
        pci_id: pci::id_at(&driver.bus).unwrap_or_default(),
        driver_version: driver.version,
        firmware: driver.firmware,
        bus: driver.bus,
    })
}
