//! Tables of sar for interfaces and received packets per CPU.

use std::{collections::BTreeMap, time::Duration};

use wb_counters::{
    LinkInterval, LinkState, Series, Softnet,
    rates::LinkRates,
    softnet::{SoftnetRise, SoftnetSeries},
};
use wb_machine::{
    HostError,
    clock::monotonic_ns,
    counters::{Interfaces, softnet},
    machine,
};
use wb_sar::{Banner, CpuRow, LinkRow, ReportTimes, ShownCpus, TableFormatter, TableRequest};

use crate::{schedule::Schedule, seconds};

/// Time format that the environment selects.
struct Clock {
    /// True if `S_TIME_FORMAT` is `ISO`.
    iso: bool,
    /// True if the locale has 12-hour clocks and four-digit years.
    american: bool,
}

impl Clock {
    fn of_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let locale = ["LC_ALL", "LC_TIME", "LANG"].into_iter().find_map(variable);
        Self {
            iso: variable("S_TIME_FORMAT").is_some_and(|format| format == "ISO"),
            american: locale.is_some_and(|locale| locale.starts_with("en_US")),
        }
    }

    fn now(&self) -> String {
        let format = if self.american && !self.iso {
            "%I:%M:%S %p"
        } else {
            "%H:%M:%S"
        };
        jiff::Zoned::now().strftime(format).to_string()
    }

    fn today(&self) -> String {
        let format = match (self.iso, self.american) {
            (true, _) => "%Y-%m-%d",
            (_, true) => "%m/%d/%Y",
            _ => "%m/%d/%y",
        };
        jiff::Zoned::now().strftime(format).to_string()
    }
}

/// Tables of sar, with the counters of the last reading.
///
/// Call [`SarTables::first`], then [`SarTables::wait`] and [`SarTables::next_interval`] in turns.
/// Call [`SarTables::average`] at the end.
pub struct SarTables {
    request: TableRequest,
    text: TableFormatter,
    clock: Clock,
    interfaces: Interfaces,
    series: Series,
    softnet: SoftnetSeries,
    schedule: Schedule,
    /// Number of intervals so far.
    intervals: u64,
    /// True if the intervals ended early.
    is_interrupted: bool,
    begin_ns: u64,
    last_ns: u64,
    /// Time of the last reading, as printed.
    last_time: String,
    /// Lines since the last header, if intervals are not printed as blocks.
    lines: Option<usize>,
}

/// Removes the empty line after the last table.
fn without_last_gap(text: &str) -> &str {
    text.strip_suffix('\n')
        .filter(|rest| rest.ends_with('\n'))
        .unwrap_or(text)
}

impl SarTables {
    /// Opens the counters.
    ///
    /// # Errors
    /// If the system refuses a socket.
    pub fn open(request: TableRequest) -> Result<Self, HostError> {
        let clock = Clock::of_environment();
        Ok(Self {
            text: TableFormatter::new(&request),
            interfaces: Interfaces::open(&[])?,
            series: Series::default(),
            softnet: SoftnetSeries::default(),
            schedule: Schedule::new(request.interval),
            intervals: 0,
            is_interrupted: false,
            begin_ns: 0,
            last_ns: 0,
            last_time: clock.now(),
            lines: None,
            clock,
            request,
        })
    }

    /// Returns the line about the machine, the first one of the output.
    #[must_use]
    pub fn banner(&self) -> String {
        let identity = machine::identity();
        // `Linux 6.1.0 #1 SMP …`: sar omits the version.
        let system: Vec<&str> = identity.kernel.split(' ').take(2).collect();
        let banner = Banner {
            system: system.join(" "),
            host: identity.host,
            day: self.clock.today(),
            machine: identity.architecture,
            cpus: identity.cpus as usize,
        };
        banner.text()
    }

    /// Takes the first reading. If the interval is zero, returns the tables of the totals since boot, which are the
    /// whole output.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn first(&mut self) -> Result<Option<String>, HostError> {
        if self.request.interval.is_zero() {
            return self.since_boot().map(Some);
        }
        self.series.next(self.interfaces.read()?);
        self.begin_ns = monotonic_ns();
        self.last_ns = self.begin_ns;
        self.softnet.next(softnet());
        self.schedule.begin();
        Ok(None)
    }

    fn since_boot(&mut self) -> Result<String, HostError> {
        let uptime = Duration::from_nanos(monotonic_ns()).as_secs_f64();
        let whole = |reading: wb_counters::LinkReading| LinkInterval {
            name: reading.name,
            index: reading.id.1,
            seconds: uptime,
            counted: Some(reading.counters),
            facts: reading.facts,
            ..LinkInterval::default()
        };
        let links: Vec<LinkInterval> = self.interfaces.read()?.into_iter().map(whole).collect();
        let rises = softnet()
            .iter()
            .map(|row| (row.cpu, row.since(&Softnet::default())))
            .collect();
        let moment = ReportTimes {
            before: self.last_time.clone(),
            now: self.clock.now(),
        };
        let (links, cpus) = (self.links(links.iter()), self.cpus(&rises, uptime));
        let block = self.text.is_block(links.len(), cpus.len());
        let text = self
            .text
            .interval_lines(&moment, &links, &cpus, true, block);
        Ok(without_last_gap(&text).to_owned())
    }

    /// Waits until the next reading is due. Returns false after the last interval, or once `is_stopped` returns true.
    pub fn wait(&mut self, is_stopped: &dyn Fn() -> bool) -> bool {
        let count = self.request.count;
        if count.is_some_and(|count| self.intervals >= count) {
            return false;
        }
        self.is_interrupted = !self.schedule.wait(is_stopped);
        !self.is_interrupted
    }

    /// Takes the next reading and returns the tables of the interval since the last one. The header is repeated after
    /// `page` lines.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn next_interval(&mut self, page: usize) -> Result<String, HostError> {
        let reading = self.interfaces.read();
        // The averages begin behind an empty line, as after a signal.
        self.is_interrupted = reading.is_err();
        let intervals = self.series.next(reading?);
        let at_ns = monotonic_ns();
        let rises = self.softnet.next(softnet());
        let moment = ReportTimes {
            before: self.last_time.clone(),
            now: self.clock.now(),
        };
        let there = intervals
            .iter()
            .filter(|i| !matches!(i.state, LinkState::Gone));
        let block = self.is_block(there.clone().count(), rises.len());
        // A new interface gets its first line with its second reading.
        let links = self.links(there.filter(|i| i.state != LinkState::New));
        let cpus = self.cpus(&rises, seconds(self.last_ns, at_ns));
        let headers = block || self.lines.is_none_or(|lines| lines >= page);
        self.lines = Some(if headers {
            1
        } else {
            self.lines.unwrap_or(0) + 1
        });
        let text = self
            .text
            .interval_lines(&moment, &links, &cpus, headers, block);
        (self.last_ns, self.last_time) = (at_ns, moment.now);
        self.intervals += 1;
        Ok(text)
    }

    /// Returns the tables of the averages over all intervals.
    #[must_use]
    pub fn average(&self) -> String {
        let totals: Vec<LinkInterval> = self
            .series
            .totals()
            .into_iter()
            .map(|total| total.whole.clone())
            .collect();
        let rises = self.softnet.totals();
        let block = self.is_block(totals.len(), rises.len());
        let there = totals.iter().filter(|whole| whole.state != LinkState::Gone);
        let links = self.links(there);
        let cpus = self.cpus(rises, seconds(self.begin_ns, self.last_ns));
        let mut text =
            self.text
                .interval_lines(&ReportTimes::average(), &links, &cpus, block, block);
        if self.is_interrupted {
            text.insert(0, '\n');
        }
        without_last_gap(&text).to_owned()
    }

    fn is_block(&self, interfaces: usize, cpus: usize) -> bool {
        let cpus = match &self.request.cpus {
            ShownCpus::Together => 1,
            ShownCpus::Each => cpus + 1,
            ShownCpus::Some { together, cpus } => cpus.len() + usize::from(*together),
        };
        self.text.is_block(interfaces, cpus)
    }

    fn links<'a>(&self, intervals: impl Iterator<Item = &'a LinkInterval>) -> Vec<LinkRow> {
        let wanted = |name: &String| {
            self.request
                .interfaces
                .as_ref()
                .is_none_or(|list| list.contains(name))
        };
        let row = |interval: &LinkInterval| LinkRow {
            name: interval.name.clone(),
            counted: interval.counted.map(|counted| {
                (
                    counted,
                    LinkRates::new(&counted, interval.seconds, &interval.facts),
                )
            }),
            seconds: interval.seconds,
        };
        intervals.filter(|i| wanted(&i.name)).map(row).collect()
    }

    fn cpus(&self, rises: &BTreeMap<u32, SoftnetRise>, seconds: f64) -> Vec<CpuRow> {
        let all = CpuRow {
            cpu: None,
            counted: rises
                .values()
                .fold(SoftnetRise::default(), |sum, rise| sum.plus(*rise)),
            seconds,
        };
        let each = rises.iter().map(|(cpu, counted)| CpuRow {
            cpu: Some(*cpu),
            counted: *counted,
            seconds,
        });
        match &self.request.cpus {
            ShownCpus::Together => vec![all],
            ShownCpus::Each => std::iter::once(all).chain(each).collect(),
            ShownCpus::Some { together, cpus } => together
                .then_some(all)
                .into_iter()
                .chain(each.filter(|row| row.cpu.is_some_and(|cpu| cpus.contains(&cpu))))
                .collect(),
        }
    }
}
