//! `wirebench sar`: command line and tables of sar for interfaces and received packets per CPU.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Args;
use wb_counters::{
    LinkInterval, LinkState, Series, Softnet, rates::LinkRates, softnet::SoftnetRise,
};
use wb_machine::{
    clock::monotonic_ns,
    counters::{Interfaces, softnet},
    machine,
};
use wb_sar::{
    Banner, CpuRow, LinkRow, ReportTimes, SarAction, ShownCpus, TableFormatter, TableRequest,
};
use wb_session::Signals;

use crate::{
    commands::stat::{next_due, softnet_rises, wait_until},
    deliver::{Fault, deliver_to_reader},
    say::say,
};

/// Show interfaces (-n DEV), their errors (-n EDEV) and packets received by CPUs (-n SOFT), as sar does.
///
/// Accepts sar's options and prints its tables column for column. Shows live data only; recorded data is in sar's own
/// files. `wirebench stat` shows more.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench sar -n DEV 1\n  \
    wirebench sar -n DEV,EDEV --iface=eth0,eth1 -h 2 10\n  \
    wirebench sar -n SOFT -P ALL 1 5\n  \
    ip netns exec wb-router-dut wirebench sar -n DEV 1\n  \
    ln -s $(command -v wirebench) sar; S_TIME_FORMAT=ISO ./sar -n DEV 1\n\n\
    sar options: -n DEV|EDEV|SOFT[,…]  --iface=IF[,…]  -P {CPU[,…]|ALL}  -h  --human  --pretty  --dec={0|1|2}  -z  -V\n\
    then INTERVAL (seconds; 0: totals since boot) and COUNT.")]
pub(crate) struct SarArgs {
    /// Options of sar.
    #[arg(value_name = "SAR", last = true)]
    words: Vec<String>,
}

/// Exit code of sar for an invalid command line.
const USAGE: u8 = 1;

pub(crate) fn run(args: &SarArgs) -> Result<u8> {
    let request = match wb_sar::parse(&args.words) {
        Ok(SarAction::Tables(request)) => request,
        Ok(SarAction::Version) => {
            let version = env!("CARGO_PKG_VERSION");
            deliver_to_reader(&format!(
                "wirebench {version}, with the network tables of sar (sysstat 12.6.1)"
            ))?;
            return Ok(0);
        }
        Ok(SarAction::Help) => {
            use clap::Args as _;
            let command = SarArgs::augment_args(clap::Command::new("wirebench sar"));
            deliver_to_reader(&command.max_term_width(100).render_long_help().to_string())?;
            return Ok(0);
        }
        Err(refusal) => {
            say(refusal);
            return Ok(USAGE);
        }
    };
    Session::open(request)?.show()
}

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

struct Session {
    request: TableRequest,
    text: TableFormatter,
    clock: Clock,
    interfaces: Interfaces,
    series: Series,
    softnet: Vec<Softnet>,
    softnet_total: BTreeMap<u32, SoftnetRise>,
    begin_ns: u64,
    last_ns: u64,
    /// Time of the last reading, as printed.
    last_time: String,
    /// Lines since the last header, if intervals are not printed as blocks.
    lines: Option<usize>,
}

/// Returns the number of lines after which a terminal gets the header again.
fn page() -> usize {
    let rows =
        rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_row));
    if rows > 2 { rows - 2 } else { usize::MAX }
}

/// Removes the empty line after the last table.
fn without_last_gap(text: &str) -> &str {
    text.strip_suffix('\n')
        .filter(|rest| rest.ends_with('\n'))
        .unwrap_or(text)
}

#[allow(clippy::cast_precision_loss)]
fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

impl Session {
    fn open(request: TableRequest) -> Result<Self> {
        let clock = Clock::of_environment();
        Ok(Self {
            text: TableFormatter::new(&request),
            interfaces: Interfaces::open(&[])?,
            series: Series::default(),
            softnet: Vec::new(),
            softnet_total: BTreeMap::new(),
            begin_ns: 0,
            last_ns: 0,
            last_time: clock.now(),
            lines: None,
            clock,
            request,
        })
    }

    fn show(mut self) -> Result<u8> {
        let signals = Signals::install()?;
        let identity = machine::identity();
        let banner = Banner {
            // `Linux 6.1.0 #1 SMP …`: sar omits the version.
            system: identity
                .kernel
                .split(' ')
                .take(2)
                .collect::<Vec<_>>()
                .join(" "),
            host: identity.host,
            day: self.clock.today(),
            machine: identity.architecture,
            cpus: identity.cpus as usize,
        };
        if !deliver_to_reader(&banner.text())? {
            return Ok(0);
        }
        if self.request.interval.is_zero() {
            self.since_the_start()?;
            return Ok(0);
        }
        self.series.next(self.interfaces.read()?);
        self.begin_ns = monotonic_ns();
        self.last_ns = self.begin_ns;
        self.softnet = softnet();
        let interval = self.request.interval;
        let mut due = Instant::now();
        let mut told = 0;
        let mut interrupted = false;
        while self.request.count.is_none_or(|count| told < count) {
            due = next_due(due, interval);
            if !wait_until(due, &signals) {
                interrupted = true;
                break;
            }
            match self.next() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(e) => {
                    // Averages of the intervals so far are still printed.
                    self.average(true)?;
                    let why = format!("sar: cannot continue reading the counters: {e}");
                    return Err(Fault(why).into());
                }
            }
            told += 1;
        }
        self.average(interrupted)?;
        Ok(0)
    }

    /// Prints the table of interval zero: totals since boot.
    fn since_the_start(&mut self) -> Result<()> {
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
        deliver_to_reader(without_last_gap(&text))?;
        Ok(())
    }

    /// Prints the next interval. Returns false if nothing reads the output any more.
    fn next(&mut self) -> Result<bool> {
        let intervals = self.series.next(self.interfaces.read()?);
        let at_ns = monotonic_ns();
        let softnet = softnet();
        let rises = softnet_rises(&self.softnet, &softnet);
        for (cpu, rise) in &rises {
            let total = self.softnet_total.entry(*cpu).or_default();
            *total = SoftnetRise {
                backlog: rise.backlog,
                ..total.plus(*rise)
            };
        }
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
        let headers = block || self.lines.is_none_or(|lines| lines >= page());
        self.lines = Some(if headers {
            1
        } else {
            self.lines.unwrap_or(0) + 1
        });
        let text = self
            .text
            .interval_lines(&moment, &links, &cpus, headers, block);
        (self.softnet, self.last_ns, self.last_time) = (softnet, at_ns, moment.now);
        Ok(deliver_to_reader(&text)?)
    }

    fn average(&self, interrupted: bool) -> Result<()> {
        let totals: Vec<LinkInterval> = self
            .series
            .totals()
            .into_iter()
            .map(|total| total.whole.clone())
            .collect();
        let block = self.is_block(totals.len(), self.softnet_total.len());
        let there = totals.iter().filter(|whole| whole.state != LinkState::Gone);
        let links = self.links(there);
        let cpus = self.cpus(&self.softnet_total, seconds(self.begin_ns, self.last_ns));
        let mut text =
            self.text
                .interval_lines(&ReportTimes::average(), &links, &cpus, block, block);
        if interrupted {
            text.insert(0, '\n');
        }
        deliver_to_reader(without_last_gap(&text))?;
        Ok(())
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
