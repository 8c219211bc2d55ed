//! Reads all requested counters and converts them to output lines.

use std::collections::BTreeMap;

use wb_counters::{
    Series, Softnet, cpu,
    device::Group,
    softnet::SoftnetRise,
    stat_document::{
        Cpu, Device, DocumentKind, InterfaceStat, SCHEMA, SoftnetStat as SoftnetLine, StatDocument,
    },
};
use wb_machine::{
    HostError,
    clock::monotonic_ns,
    counters::{Interfaces, softnet},
};

use crate::say::say;

use super::{advice::Advisor, interrupts::Interrupts, path, probes::Probes};

type Ticks = BTreeMap<u32, [u64; 10]>;
type Statistics = BTreeMap<(String, String), u64>;

/// Sources of counters with their previous readings.
pub(crate) struct Collector {
    interfaces: Interfaces,
    series: Series,
    softnet: Vec<Softnet>,
    /// Totals of the CPU counters over all intervals.
    softnet_total: BTreeMap<u32, SoftnetRise>,
    ticks: Ticks,
    first_ticks: Ticks,
    with_driver: bool,
    statistics: Statistics,
    statistics_total: BTreeMap<String, Device>,
    begin_ns: u64,
    last_ns: u64,
    intervals: u64,
    /// Interfaces along a path.
    pub(super) path: Vec<path::Point>,
    /// Interfaces requested by name.
    pub(super) named: Vec<path::Point>,
    /// Probes of devices under test.
    pub(super) probes: Probes,
    /// Interrupts of devices, if requested.
    interrupts: Option<Interrupts>,
    /// Source of advice, if requested.
    advisor: Option<Advisor>,
}

fn ticks() -> Ticks {
    wb_machine::cpu::times()
        .unwrap_or_default()
        .into_iter()
        .collect()
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

#[allow(clippy::cast_precision_loss)]
fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

/// Returns the changes of the CPU counters between two readings; a CPU missing from the first one is left out.
pub(crate) fn softnet_rises(before: &[Softnet], now: &[Softnet]) -> BTreeMap<u32, SoftnetRise> {
    let rise = |row: &Softnet| {
        let old = before.iter().find(|old| old.cpu == row.cpu)?;
        Some((row.cpu, row.since(old)))
    };
    now.iter().filter_map(rise).collect()
}

impl Collector {
    /// Opens the requested sources, see [`Interfaces::open`].
    pub(crate) fn open(
        wanted: &[(Option<String>, Option<String>)],
        with_driver: bool,
    ) -> Result<Self, HostError> {
        Ok(Self {
            interfaces: Interfaces::open(wanted)?,
            series: Series::default(),
            softnet: Vec::new(),
            softnet_total: BTreeMap::new(),
            ticks: Ticks::new(),
            first_ticks: Ticks::new(),
            with_driver,
            statistics: Statistics::new(),
            statistics_total: BTreeMap::new(),
            begin_ns: 0,
            last_ns: 0,
            intervals: 0,
            path: Vec::new(),
            named: Vec::new(),
            probes: Probes::default(),
            interrupts: None,
            advisor: None,
        })
    }

    /// Returns the number of intervals so far.
    pub(crate) fn intervals(&self) -> u64 {
        self.intervals
    }

    /// Takes the first reading.
    pub(crate) fn first(&mut self) -> Result<(), HostError> {
        self.series.next(self.interfaces.read()?);
        self.begin_ns = monotonic_ns();
        self.last_ns = self.begin_ns;
        self.softnet = softnet();
        self.ticks = ticks();
        self.first_ticks.clone_from(&self.ticks);
        if self.with_driver {
            self.statistics = self.read_statistics();
        }
        self.probes.begin();
        Ok(())
    }

    /// Returns a warning for each interface with an XDP program. Call after the first reading.
    pub(super) fn xdp_warnings(&self) -> Vec<String> {
        let warning = |(namespace, name): &(wb_machine::Namespace, String)| {
            let link = wb_machine::link::link_by_name(namespace, name).ok()?;
            let place = match namespace.name() {
                Some(node) => format!("{node}/{name}"),
                None => name.clone(),
            };
            Some(format!("{place}: {}", link.xdp_attached?.warning()))
        };
        self.interfaces.known().iter().filter_map(warning).collect()
    }

    /// Adds interrupts to all following readings, and moves them as advised if `apply` is set. Call after the first
    /// reading, which finds the interfaces.
    pub(super) fn with_interrupts(&mut self, apply: bool) -> Result<(), HostError> {
        let known = self.interfaces.known();
        let interrupts = Interrupts::of(&known, apply)?;
        if interrupts.is_empty() {
            say("wirebench: none of these interfaces has its own interrupts");
        }
        if !interrupts.is_empty() && wb_machine::process::is_running("irqbalance") {
            say(
                "wirebench: T3: irqbalance is running and may move interrupts during the measurement; stop it: systemctl stop irqbalance",
            );
        }
        self.interrupts = Some(interrupts);
        self.advisor = Some(Advisor::of(&known));
        Ok(())
    }

    /// Takes the next reading and returns the interval since the last one.
    pub(crate) fn next(&mut self) -> Result<StatDocument, HostError> {
        self.probes.ask();
        let intervals = self.series.next(self.interfaces.read()?);
        path::follow(&mut self.path, &intervals);
        path::follow(&mut self.named, &intervals);
        let at_ns = monotonic_ns();
        let (softnet, ticks) = (softnet(), ticks());
        let rises = softnet_rises(&self.softnet, &softnet);
        for (cpu, rise) in &rises {
            let total = self.softnet_total.entry(*cpu).or_default();
            *total = SoftnetRise {
                backlog: rise.backlog,
                ..total.plus(*rise)
            };
        }
        self.intervals += 1;
        let interval = seconds(self.last_ns, at_ns);
        let mut line = StatDocument {
            schema: SCHEMA.to_owned(),
            kind: DocumentKind::Interval,
            number: self.intervals,
            time: now(),
            seconds: interval,
            interrupts: self
                .interrupts
                .as_mut()
                .map_or_else(Vec::new, |i| i.lines(interval)),
            softnet: softnet_line(&rises, &self.ticks, &ticks),
            devices: self.devices(),
            path: path::line(&self.path, intervals.iter()),
            interfaces: self.told(intervals.iter().map(InterfaceStat::from)),
            advice: Vec::new(),
            probes: self.probes.lines(),
        };
        if let Some(advisor) = &mut self.advisor {
            line.advice = advisor.next(&line.interfaces, &line.interrupts, &line.softnet);
        }
        (self.softnet, self.ticks, self.last_ns) = (softnet, ticks, at_ns);
        Ok(line)
    }

    /// Returns the totals of all intervals.
    pub(crate) fn average(&mut self) -> StatDocument {
        let totals = self.series.totals();
        let whole = seconds(self.begin_ns, self.last_ns);
        StatDocument {
            schema: SCHEMA.to_owned(),
            kind: DocumentKind::Average,
            number: self.intervals,
            time: now(),
            seconds: whole,
            softnet: softnet_line(&self.softnet_total, &self.first_ticks, &self.ticks),
            interrupts: self
                .interrupts
                .as_ref()
                .map_or_else(Vec::new, |i| i.totals(whole)),
            devices: self.statistics_total.values().cloned().collect(),
            path: path::whole(&self.path, &totals, self.intervals),
            interfaces: self.told(totals.into_iter().map(InterfaceStat::from)),
            advice: self.advisor.as_ref().map_or_else(Vec::new, Advisor::whole),
            probes: self.probes.totals(),
        }
    }

    fn told(&self, all: impl Iterator<Item = InterfaceStat>) -> Vec<InterfaceStat> {
        all.map(|interface| InterfaceStat {
            named: path::names(&self.named, &interface.name),
            ..interface
        })
        .collect()
    }

    fn read_statistics(&mut self) -> Statistics {
        let mut all = Statistics::new();
        for (interface, values) in self.interfaces.statistics() {
            for (name, value) in values {
                all.insert((interface.clone(), name), value);
            }
        }
        all
    }

    /// Returns the driver statistics that changed.
    fn devices(&mut self) -> Vec<Device> {
        if !self.with_driver {
            return Vec::new();
        }
        let now = self.read_statistics();
        let mut moved: BTreeMap<&str, Device> = BTreeMap::new();
        for ((interface, name), value) in &now {
            let Some(before) = self.statistics.get(&(interface.clone(), name.clone())) else {
                continue;
            };
            if value == before {
                continue;
            }
            let new = || Device {
                interface: interface.clone(),
                ..Device::default()
            };
            let device = moved.entry(interface).or_insert_with(new);
            let total = self
                .statistics_total
                .entry(interface.clone())
                .or_insert_with(new);
            match value.checked_sub(*before) {
                Some(rise) => {
                    let group = Group::from_counter_name(name);
                    device
                        .groups
                        .entry(group)
                        .or_default()
                        .insert(name.clone(), rise);
                    *total
                        .groups
                        .entry(group)
                        .or_default()
                        .entry(name.clone())
                        .or_default() += rise;
                }
                None => {
                    device.fell.insert(name.clone(), *value);
                    total.fell.insert(name.clone(), *value);
                }
            }
        }
        let devices = moved.into_values().collect();
        self.statistics = now;
        devices
    }
}

fn softnet_line(rises: &BTreeMap<u32, SoftnetRise>, before: &Ticks, now: &Ticks) -> SoftnetLine {
    let shares = |cpu: &u32| cpu::shares(before.get(cpu)?, now.get(cpu)?);
    SoftnetLine {
        all: rises
            .values()
            .fold(SoftnetRise::default(), |sum, rise| sum.plus(*rise)),
        cpus: rises
            .iter()
            .map(|(cpu, counted)| Cpu {
                cpu: *cpu,
                counted: *counted,
                shares: shares(cpu),
            })
            .collect(),
    }
}
