//! Reads all requested counters and converts them to output lines.

use std::collections::BTreeMap;

use wb_counters::{
    Series, cpu,
    device::Group,
    softnet::{SoftnetRise, SoftnetSeries},
    stat_document::{
        Cpu, Device, DocumentKind, InterfaceStat, SCHEMA, SoftnetStat as SoftnetLine, StatDocument,
    },
};
use wb_machine::{
    HostError,
    clock::monotonic_ns,
    counters::{Interfaces, softnet},
};
use wb_model::locator::Locator;

use crate::{
    StatError, StatOptions,
    advice::Advisor,
    interrupts::Interrupts,
    path,
    probes::{self, Probes},
    schedule::Schedule,
    seconds,
};

type Ticks = BTreeMap<u32, [u64; 10]>;
type Statistics = BTreeMap<(String, String), u64>;

/// Returns true if the interface counted packets in an interval.
fn has_counted(interface: &InterfaceStat) -> bool {
    let rates = interface.rates.as_ref();
    rates.is_some_and(|rates| rates.rx_pps + rates.tx_pps > 0.0)
}

/// Sources of counters with their previous readings.
///
/// Call [`Collector::first`], then [`Collector::wait`] and [`Collector::next_interval`] in turns.
/// Call [`Collector::average`] at the end.
pub struct Collector {
    interfaces: Interfaces,
    series: Series,
    softnet: SoftnetSeries,
    ticks: Ticks,
    first_ticks: Ticks,
    with_driver: bool,
    statistics: Statistics,
    statistics_total: BTreeMap<String, Device>,
    begin_ns: u64,
    last_ns: u64,
    schedule: Schedule,
    intervals: u64,
    /// Number of intervals; unlimited if `None`.
    count: Option<u64>,
    until_idle: bool,
    /// True once an interface has counted packets.
    was_busy: bool,
    /// True after the idle interval that is the last one.
    is_over: bool,
    /// Interfaces along a path.
    path: Vec<path::Point>,
    /// Interfaces requested by name.
    named: Vec<path::Point>,
    /// Probes of devices under test.
    probes: Probes,
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

impl Collector {
    /// Opens the requested sources.
    ///
    /// # Errors
    /// An invalid option, or an interface or a namespace that does not exist.
    pub fn open(options: &StatOptions<'_>) -> Result<Self, StatError> {
        let path = options.path;
        if path.len() % 2 == 1 {
            return Err(StatError::Input(format!(
                "--path: {} interface{} given; expected the sender, two of each device in between, and the receiver",
                path.len(),
                if path.len() == 1 { "" } else { "s" }
            )));
        }
        let interfaces = Interfaces::open(&options.wanted()?)?;
        let point = |locator: &Locator| path::Point::new(locator.place());
        let probes = probes::plans(options.probes)?;
        Ok(Self {
            interfaces,
            series: Series::default(),
            softnet: SoftnetSeries::default(),
            ticks: Ticks::new(),
            first_ticks: Ticks::new(),
            with_driver: options.driver,
            statistics: Statistics::new(),
            statistics_total: BTreeMap::new(),
            begin_ns: 0,
            last_ns: 0,
            schedule: Schedule::new(options.interval),
            intervals: 0,
            count: options.count,
            until_idle: options.until_idle,
            was_busy: false,
            is_over: false,
            path: path.iter().map(point).collect(),
            named: options.interfaces.iter().chain(path).map(point).collect(),
            probes: Probes::open(&probes, options.interval)?,
            interrupts: None,
            advisor: None,
        })
    }

    /// Takes the first reading.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn first(&mut self) -> Result<(), HostError> {
        self.schedule.begin();
        self.series.next(self.interfaces.read()?);
        self.begin_ns = monotonic_ns();
        self.last_ns = self.begin_ns;
        self.softnet.next(softnet());
        self.ticks = ticks();
        self.first_ticks.clone_from(&self.ticks);
        if self.with_driver {
            self.statistics = self.read_statistics();
        }
        self.probes.begin();
        Ok(())
    }

    /// Returns a warning for each interface with an XDP program. Call after the first reading.
    #[must_use]
    pub fn xdp_warnings(&self) -> Vec<String> {
        let warning = |(namespace, name): &(wb_machine::Namespace, String)| {
            let link = wb_machine::link::link_by_name(namespace, name).ok()?;
            let warning = link.xdp_attached?.warning();
            Some(format!("{}: {warning}", namespace.place_of(name)))
        };
        self.interfaces.known().iter().filter_map(warning).collect()
    }

    /// Adds interrupts to all following readings, and moves them as advised if `apply` is set. Call after the first
    /// reading, which finds the interfaces.
    ///
    /// # Errors
    /// If the CPUs cannot be determined.
    pub fn with_interrupts(&mut self, apply: bool) -> Result<(), HostError> {
        let known = self.interfaces.known();
        self.interrupts = Some(Interrupts::of(&known, apply)?);
        self.advisor = Some(Advisor::of(&known));
        Ok(())
    }

    /// Returns the messages about interrupts since the last call.
    pub fn take_messages(&mut self) -> Vec<String> {
        let interrupts = self.interrupts.as_mut();
        interrupts.map_or_else(Vec::new, Interrupts::take_messages)
    }

    /// Waits until the next reading is due. Returns false after the last interval, or once `is_stopped` returns true.
    pub fn wait(&mut self, is_stopped: &dyn Fn() -> bool) -> bool {
        let is_last = self.count.is_some_and(|count| self.intervals >= count);
        !(is_last || self.is_over) && self.schedule.wait(is_stopped)
    }

    /// Takes the next reading and returns the interval since the last one.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn next_interval(&mut self) -> Result<StatDocument, HostError> {
        self.probes.ask();
        let intervals = self.series.next(self.interfaces.read()?);
        path::follow(&mut self.path, &intervals);
        path::follow(&mut self.named, &intervals);
        let at_ns = monotonic_ns();
        let rises = self.softnet.next(softnet());
        let ticks = ticks();
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
        (self.ticks, self.last_ns) = (ticks, at_ns);
        let is_busy = line.interfaces.iter().any(has_counted);
        self.is_over = self.until_idle && self.was_busy && !is_busy;
        self.was_busy |= is_busy;
        Ok(line)
    }

    /// Returns the totals of all intervals.
    pub fn average(&mut self) -> StatDocument {
        let totals = self.series.totals();
        let whole = seconds(self.begin_ns, self.last_ns);
        StatDocument {
            schema: SCHEMA.to_owned(),
            kind: DocumentKind::Average,
            number: self.intervals,
            time: now(),
            seconds: whole,
            softnet: softnet_line(self.softnet.totals(), &self.first_ticks, &self.ticks),
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
