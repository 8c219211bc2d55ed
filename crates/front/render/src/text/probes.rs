//! Counters of the device, as its probes read them.

use wb_model::bench::ProbeReport;

use crate::{
    figures::count,
    page::{Page, Tone},
    table::Table,
};

/// A table for each probe: counters that rose, and the highest of each value that rises and falls. With
/// `verbose`, also those that stood still.
pub(super) fn section(page: &mut Page, probes: &[ProbeReport], verbose: bool) {
    for probe in probes {
        page.head(&format!("probe {}", probe.name));
        page.item(Tone::Plain, "  command     ", Tone::Plain, &probe.command);
        let readings = match probe.failures {
            0 => count(probe.readings),
            n => format!("{} ({} failed)", count(probe.readings), count(n)),
        };
        let tone = if probe.failures > 0 {
            Tone::Doubt
        } else {
            Tone::Plain
        };
        page.item(tone, "  readings    ", tone, &readings);
        let mut table = Table::new()
            .left("")
            .right("before")
            .right("after")
            .right("rose by");
        for (name, after) in &probe.after {
            let before = probe.before.get(name).copied().unwrap_or(0);
            // A counter that fell was reset: its rise is unknown.
            let risen = after.checked_sub(before);
            if verbose || risen != Some(0) {
                let risen = risen.map_or_else(|| "fell".to_owned(), count);
                table.row([name.clone(), count(before), count(*after), risen]);
            }
        }
        if !table.is_empty() {
            page.table(&table, 2, 1);
        }
        let mut table = Table::new().left("").right("highest");
        for (name, highest) in &probe.highest {
            table.row([name.clone(), count(*highest)]);
        }
        if !table.is_empty() {
            page.table(&table, 2, 1);
        }
    }
}
