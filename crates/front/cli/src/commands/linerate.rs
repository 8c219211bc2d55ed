//! `wirebench linerate`: theoretical frame rates of links.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::deliver::{print, width};

/// Print theoretical frame rates according to RFC 5180 appendix A, for any speeds and sizes.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench linerate\n  \
    wirebench linerate 10g 25g 100g --size 64,1518,9216 --times\n  \
    wirebench linerate 2.5g --json\n  \
    wirebench linerate 10g 25g --html linerate.html")]
pub(crate) struct LinerateArgs {
    /// Link speeds: 100m, 2.5g, 10gbps, 400G.
    #[arg(value_name = "SPEED", value_parser = wb_render::linerate::parse_speed)]
    speeds: Vec<u64>,
    /// Frame sizes with FCS [default: sizes of RFC 2544].
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(64..=65535))]
    size: Vec<u32>,
    /// Also print the time of one frame on the wire.
    #[arg(long)]
    times: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Print CSV instead of a table.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Also write a page with plots.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: &LinerateArgs) -> Result<u8> {
    use wb_render::linerate::{Options, SIZES, SPEEDS, csv, json, page, table};
    let speeds = if args.speeds.is_empty() {
        SPEEDS.to_vec()
    } else {
        args.speeds.clone()
    };
    let sizes = if args.size.is_empty() {
        SIZES.to_vec()
    } else {
        args.size.clone()
    };
    if let Some(path) = &args.html {
        let page = wb_render::report::html(&page(&speeds, &sizes));
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(&if args.json {
        json(&speeds, &sizes)
    } else if args.csv {
        csv(&speeds, &sizes)
    } else {
        table(
            &speeds,
            &sizes,
            &Options {
                times: args.times,
                width: width(),
            },
        )
    });
    Ok(0)
}
