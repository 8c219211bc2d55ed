//! Rates of a job.

use wb_model::{Totals, report::Rates};

use crate::{
    figures::{count, exact_pps, rate_bps, time_ns},
    page::{Page, Tone},
    table::Table,
};

/// One line for each of intended, offered, received and the line rate, as far as they are known.
pub(super) fn section(page: &mut Page, rates: &Rates, totals: &Totals, both_ends: bool) {
    let mut table = Table::new()
        .left("rates")
        .right("frame rate")
        .right("L2, with FCS")
        .right("L1, with gap");
    let bits = |bps: Option<f64>| bps.map(rate_bps).unwrap_or_default();
    let mut row = |name: &str, pps: Option<f64>, l2, l1| {
        if let Some(pps) = pps {
            table.row([name.to_owned(), exact_pps(pps), bits(l2), bits(l1)]);
        }
    };
    row("intended", rates.intended_pps, None, None);
    row(
        "offered",
        rates.offered_pps,
        rates.offered_l2_bps,
        rates.offered_l1_bps,
    );
    row(
        "received",
        rates.received_pps,
        rates.received_l2_bps,
        rates.received_l1_bps,
    );
    if differs(rates) {
        row(
            "while receiving",
            rates.while_receiving_pps,
            rates.while_receiving_l2_bps,
            None,
        );
    }
    row("line rate", rates.line_rate_pps, None, None);
    if !table.is_empty() {
        page.gap();
        page.table(&table.without_blank_columns(), 2, 1);
    }
    let notes = notes(rates, totals, both_ends);
    if !notes.is_empty() {
        page.item(Tone::Plain, "  ", Tone::Plain, &notes.join("; "));
    }
}

/// Returns true if the frame rate while frames arrived exceeds the rate over the whole time by more than 5 %. The first
/// and the last gap of a short run account for smaller differences.
pub(crate) fn differs(rates: &Rates) -> bool {
    let both = rates.received_pps.zip(rates.while_receiving_pps);
    both.is_some_and(|(whole, receiving)| receiving > whole * 1.05)
}

fn notes(rates: &Rates, totals: &Totals, both_ends: bool) -> Vec<String> {
    // Lengths of time in nanoseconds fit a double up to 104 days.
    #[allow(clippy::cast_precision_loss)]
    let time = |ns: u64| time_ns(ns as f64);
    let mut notes = Vec::new();
    if let Some(ns) = rates.tx_time_ns {
        let how = match (rates.intended_pps, totals.offered_frames) {
            (None, Some(_)) => " at the maximum rate",
            _ => "",
        };
        notes.push(format!("sent for {}{how}", time(ns)));
    }
    if let Some(ns) = rates.rx_time_ns {
        let what = if both_ends {
            "received for"
        } else {
            "first to last frame:"
        };
        notes.push(format!("{what} {}", time(ns)));
    }
    if let Some(n) = rates.largest_catch_up_frames.filter(|n| *n > 0) {
        let s = if n == 1 { "" } else { "s" };
        notes.push(format!("at most {} frame{s} behind schedule", count(n)));
    }
    notes
}
