//! `wirebench stat`: counters of interfaces, CPUs and devices per interval.

use std::{str::FromStr, time::Duration};

use anyhow::{Context as _, Result};
use clap::Args;
use wb_model::{locator::Locator, units::Span};
use wb_render::stat::Text;
use wb_session::Signals;
use wb_stat::{Collector, StatForm, StatOptions};
use wb_tui::Reading;

use crate::{
    args::count_in,
    deliver::{Fault, deliver_to_reader},
    metrics::{self, MetricsArgs},
    say::say,
    screen::Live,
};

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

/// Prints messages of the program.
fn warn(messages: &[String]) {
    for message in messages {
        say(format_args!("wirebench: {message}"));
    }
}

pub(crate) fn run(args: &StatArgs) -> Result<u8> {
    let interval = args
        .interval
        .map_or(Duration::from_secs(1), |seconds| seconds.0);
    let options = StatOptions {
        interfaces: &args.interfaces,
        nodes: &args.nodes,
        path: &args.path,
        probes: &args.probes,
        driver: args.driver,
        interval,
        count: args.count,
        until_idle: args.until_idle,
    };
    let mut collector = Collector::open(&options)?;

    let signals = Signals::install()?;
    metrics::serve(&args.metrics, &signals)?;
    let omit_idle = options.omits_idle();
    let mut form = match (args.json, args.csv) {
        (true, _) => StatForm::Json,
        (_, true) => StatForm::Csv,
        _ => StatForm::Text(Text::new(omit_idle, args.cpus)),
    };
    collector.first().context("cannot read the counters")?;
    warn(&collector.xdp_warnings());
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
        warn(&collector.take_messages());
    }
    let mut listening = match form.header() {
        Some(header) => deliver_to_reader(&header)?,
        None => true,
    };
    let mut fault = None;
    while listening && collector.wait(&|| signals.received().is_some()) {
        match collector.next_interval() {
            Ok(line) => {
                warn(&collector.take_messages());
                metrics::publish(|seen| seen.stat = Some(collector.average()));
                let shown = live.tell(false, |screen| {
                    screen.count(line.clone(), collector.average());
                });
                listening = shown || args.quiet || deliver_to_reader(&form.line(&line))?;
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
}
