//! `wirebench sar`: command line and tables of sar for interfaces and received packets per CPU.

use anyhow::Result;
use clap::Args;
use wb_sar::{SarAction, TableRequest};
use wb_session::Signals;
use wb_stat::SarTables;

use crate::{
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
    show(request)
}

/// Returns the number of lines after which a terminal gets the header again.
fn page() -> usize {
    let rows =
        rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_row));
    if rows > 2 { rows - 2 } else { usize::MAX }
}

fn show(request: TableRequest) -> Result<u8> {
    let mut tables = SarTables::open(request)?;
    let signals = Signals::install()?;
    if !deliver_to_reader(&tables.banner())? {
        return Ok(0);
    }
    if let Some(text) = tables.first()? {
        deliver_to_reader(&text)?;
        return Ok(0);
    }
    while tables.wait(&|| signals.received().is_some()) {
        match tables.next_interval(page()) {
            Ok(text) => {
                if !deliver_to_reader(&text)? {
                    return Ok(0);
                }
            }
            Err(e) => {
                // Averages of the intervals so far are still printed.
                deliver_to_reader(&tables.average())?;
                let why = format!("sar: cannot continue reading the counters: {e}");
                return Err(Fault(why).into());
            }
        }
    }
    deliver_to_reader(&tables.average())?;
    Ok(0)
}
