//! `wirebench bench compare`: changes between two benchmarks that exceed the measurement repeatability.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use wb_model::bench::Share;

use crate::deliver::{deliver, deliver_document};

/// Compare two benchmarks: report changes beyond their repeatability, for regression tests of a device.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench bench rfc2544 --tx eth2 --rx eth3 --json >old.json      and new.json after the change\n  \
    wirebench bench compare old.json new.json\n  \
    wirebench bench compare old.json new.json --json --tolerance 5%\n\n\
    Exit codes: 0 no figure is worse; 1 a figure is worse; 2 the files cannot be compared.")]
pub(crate) struct CompareArgs {
    /// Old report, as printed by --json.
    #[arg(value_name = "OLD.json")]
    old: PathBuf,
    /// New report, as printed by --json.
    #[arg(value_name = "NEW.json")]
    new: PathBuf,
    /// Minimum tolerance for figures without a search interval [default: 2 %; a latency measured once is not judged].
    #[arg(long, value_name = "SHARE")]
    tolerance: Option<Share>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CompareArgs) -> Result<u8> {
    let tolerance = args.tolerance.map(|share| share.0);
    let comparison = wb_files::compare::compare(&args.old, &args.new, tolerance)?;
    if args.json {
        deliver_document(&comparison.json()?)?;
    } else {
        deliver(&comparison.text())?;
    }
    Ok(u8::from(comparison.worse))
}
