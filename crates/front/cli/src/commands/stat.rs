//! `wirebench stat`: counters of interfaces, CPUs and devices per interval.

mod advice;
mod collector;
mod interrupts;
mod path;
mod probes;

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use wb_counters::stat_document::{DocumentKind, InterfaceStat, StatDocument};
use wb_model::{locator::Locator, units::Span};
use wb_render::stat::{Text, csv, csv_header, json};
use wb_session::Signals;
use wb_tui::Reading;

use crate::{
    args::count_in,
    deliver::{Fault, deliver_to_reader},
    metrics::{self, MetricsArgs},
    say::say,
    screen::Live,
};
use collector::Collector;
pub(crate) use collector::softnet_rises;

/// Show interface counters per interval and in total: rates, errors by kernel name, drops.
///
/// Rates cover the time between two readings, averages the whole time. A counter that falls is reported as reset,
/// never as a rate. Ctrl-C ends with the averages.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench stat                                   all interfaces, every second\n  \
    wirebench stat -i eth0,eth1 1 10                 two interfaces, ten intervals of a second\n  \
    wirebench stat -i wb-router-dut/da 0.5 --json    in a namespace, lines of JSON\n  \
    wirebench stat -i eth0 --driver --cpus           with driver statistics and all CPUs\n  \
    wirebench stat --path eth0,wb-dut/da,wb-dut/db,eth1 1\n  \
    wirebench stat -i eth0 --probe 'kind = \"ipvs\", ssh = \"root@lvs\"' 1")]
pub(crate) struct StatArgs {
    /// Seconds between two readings, 0.1 to 86400 [default: 1].
    #[arg(value_name = "INTERVAL")]
    interval: Option<Seconds>,
    /// Number of intervals [default: until a signal].
    #[arg(value_name = "COUNT", value_parser = count_in::<u64>(1..))]
    count: Option<u64>,
    /// Exit after the first idle interval once traffic has been seen.
    #[arg(long)]
    until_idle: bool,
    /// Print only the average at the end: no interval lines, no screen.
    #[arg(short, long)]
    quiet: bool,
    /// Interfaces, separated by commas [default: all in this namespace with traffic].
    #[arg(short, long = "interface", value_name = "IF", value_delimiter = ',')]
    interfaces: Vec<Locator>,
    /// Show all interfaces of these namespaces, separated by commas.
    #[arg(long = "node", value_name = "NODE", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Also show the driver's statistics (ethtool -S) that change.
    #[arg(long)]
    driver: bool,
    /// Show one line per CPU with received packets and CPU time [default: only CPUs with drops].
    #[arg(long)]
    cpus: bool,
    /// Show the interrupts of the interfaces' queues per CPU, with advice on better CPUs and on other disturbances of
    /// a test.
    #[arg(long)]
    interrupts: bool,
    /// Move interrupts as advised, and restore them at the end.
    #[arg(long, requires = "interrupts")]
    apply: bool,
    /// Interfaces along the path from sender to receiver, with ingress and egress of each device in between; shows
    /// the loss per hop.
    #[arg(long, value_name = "IF,IF,…", value_delimiter = ',')]
    path: Vec<Locator>,
    /// Counters of a device under test, by the keys of [[probe]] in plans, or only a kind: ipvs, dpvs, conntrack,
    /// netdev; repeatable.
    #[arg(long = "probe", value_name = "PROBE")]
    probes: Vec<String>,
    /// Print one line of JSON per interval, and one for the total.
    #[arg(long)]
    json: bool,
    /// Print CSV with one row per interface and interval.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print lines instead of the full-screen view of a terminal.
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Length of an interval, in seconds.
#[derive(Clone, Copy, Debug)]
struct Seconds(Duration);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = match text.parse::<f64>() {
            Ok(seconds) => seconds,
            Err(_) => text
                .parse::<Span>()
                .map_err(|_| "expected seconds (1, 0.5) or a time such as 500ms".to_owned())?
                .0
                .as_secs_f64(),
        };
        if (0.1..=86_400.0).contains(&seconds) {
            Ok(Self(Duration::from_secs_f64(seconds)))
        } else {
            Err("must be between 0.1 and 86400 seconds".to_owned())
        }
    }
}

/// Output format of intervals.
enum Form {
    Text(Text),
    Json,
    Csv,
}

impl Form {
    fn line(&mut self, line: &StatDocument) -> String {
        match self {
            Self::Json => json(line),
            Self::Csv => csv(line),
            Self::Text(text) => {
                let now = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
                let average = line.kind == DocumentKind::Average;
                text.line(line, if average { "average" } else { &now })
            }
        }
    }
}

/// Waits until the given time. Returns early if a signal arrives.
pub(crate) fn wait_until(due: Instant, signals: &Signals) -> bool {
    // Polling for signals costs more than readings that are a second apart.
    const LOOK: Duration = Duration::from_millis(100);
    while signals.received().is_none() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
    false
}

/// Returns the time of the next reading. After a delay longer than an interval, the missed readings are skipped.
pub(crate) fn next_due(due: Instant, interval: Duration) -> Instant {
    let now = Instant::now();
    let mut next = due + interval;
    while next <= now {
        next += interval;
    }
    next
}

fn place(locator: &Locator) -> Result<(Option<String>, Option<String>)> {
    if locator.driver.is_some() {
        bail!(
            "{locator}: counters do not depend on a driver; use {}",
            locator.place()
        );
    }
    Ok((locator.node.clone(), Some(locator.name.clone())))
}

/// Returns true if the interface counted packets in an interval.
fn has_counted(interface: &InterfaceStat) -> bool {
    let rates = interface.rates.as_ref();
    rates.is_some_and(|rates| rates.rx_pps + rates.tx_pps > 0.0)
}

pub(crate) fn run(args: &StatArgs) -> Result<u8> {
    let interval = args
        .interval
        .map_or(Duration::from_secs(1), |seconds| seconds.0);
    if args.path.len() == 1 || args.path.len() % 2 == 1 {
        bail!(
            "--path: {} interface{} given; expected the sender, two of each device in between, and the receiver",
            args.path.len(),
            if args.path.len() == 1 { "" } else { "s" }
        );
    }
    let named = args.interfaces.iter().chain(&args.path).map(place);
    let mut wanted = named.collect::<Result<Vec<_>>>()?;
    // A whole namespace includes its individual interfaces.
    wanted.retain(|(node, _)| node.as_ref().is_none_or(|node| !args.nodes.contains(node)));
    // A request for all interfaces, or for none in particular, omits idle ones.
    let omit_idle = wanted.is_empty() || !args.nodes.is_empty();
    wanted.extend(args.nodes.iter().map(|node| (Some(node.clone()), None)));
    let mut collector = Collector::open(&wanted, args.driver)?;
    let points = args.path.iter().map(Locator::place);
    collector.path = points.map(path::Point::new).collect();
    let named = args.interfaces.iter().chain(&args.path).map(Locator::place);
    collector.named = named.map(path::Point::new).collect();
    let probes = probes::plans(&args.probes)?;
    collector.probes = probes::Probes::open(&probes, interval)?;

    let signals = Signals::install()?;
    metrics::serve(&args.metrics, &signals)?;
    let mut form = match (args.json, args.csv) {
        (true, _) => Form::Json,
        (_, true) => Form::Csv,
        _ => Form::Text(Text::new(omit_idle, args.cpus)),
    };
    let mut due = Instant::now();
    collector.first().context("cannot read the counters")?;
    for warning in collector.xdp_warnings() {
        say(format_args!("wirebench: {warning}"));
    }
    let reading = Reading {
        omit_idle,
        driver: args.driver,
        interrupts: args.interrupts,
    };
    let count = args.count.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let planned = count.map(|n| interval.saturating_mul(n));
    let wanted = !(args.json || args.csv || args.plain || args.quiet);
    let mut live = Live::of_counters(reading, interval, planned, wanted, &signals);
    if args.interrupts {
        wb_machine::affinity::repair().iter().for_each(say);
        collector.with_interrupts(args.apply)?;
    }
    let mut listening = !args.csv || deliver_to_reader(&csv_header())?;
    let mut fault = None;
    let mut seen = false;
    while listening && args.count.is_none_or(|count| collector.intervals() < count) {
        due = next_due(due, interval);
        if !wait_until(due, &signals) {
            break;
        }
        match collector.next() {
            Ok(line) => {
                metrics::publish(|seen| seen.stat = Some(collector.average()));
                let shown = live.tell(false, |screen| {
                    screen.count(line.clone(), collector.average());
                });
                listening = shown || args.quiet || deliver_to_reader(&form.line(&line))?;
                let busy = line.interfaces.iter().any(has_counted);
                if args.until_idle && seen && !busy {
                    break;
                }
                seen |= busy;
            }
            Err(e) => {
                fault = Some(Fault(format!("cannot continue reading the counters: {e}")));
                break;
            }
        }
    }
    drop(live);
    if listening {
        deliver_to_reader(&form.line(&collector.average()))?;
    }
    metrics::linger();
    if let Some(fault) = fault {
        return Err(fault.into());
    }
    let signal = signals
        .received()
        .map(|n| u8::try_from(128 + n).unwrap_or(130));
    Ok(signal.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds_within_reason() {
        for (text, millis) in [
            ("1", 1000),
            ("0.1", 100),
            ("2.5s", 2500),
            ("500ms", 500),
            ("1m", 60_000),
            ("86400", 86_400_000),
        ] {
            assert_eq!(
                text.parse::<Seconds>().unwrap().0.as_millis(),
                millis,
                "{text}"
            );
        }
        for text in ["0", "1ms", "-1", "nan", "inf", "1e9", "", "x", "0.05"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_reading_that_is_late_is_left_out() {
        let interval = Duration::from_millis(100);
        let long_ago = Instant::now()
            .checked_sub(Duration::from_millis(350))
            .unwrap();
        let next = next_due(long_ago, interval);
        assert!(next > Instant::now());
        assert!(next <= Instant::now() + interval);
    }
}
