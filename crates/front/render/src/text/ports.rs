//! Ports: their properties, the reason for the mode in which they were opened, and the counters of the device.

use std::collections::BTreeMap;

use wb_model::{Report, report::PortReport};

use crate::{
    figures::{count, rate_bps},
    page::{Page, Tone},
};

/// Number of neighbours and similar items that are listed without `verbose`.
const FEW: usize = 4;

pub(super) fn section(page: &mut Page, report: &Report, verbose: bool) {
    if report.ports.is_empty() {
        return;
    }
    page.head("ports");
    for port in &report.ports {
        one(page, port, verbose);
    }
}

fn one(page: &mut Page, port: &PortReport, verbose: bool) {
    let mut what = port.locator.clone();
    if !port.locator.starts_with(&format!("{}:", port.driver)) && !port.driver.is_empty() {
        what.push_str(&format!(", driver {}", port.driver));
    }
    if !port.mode.is_empty() {
        what.push_str(&format!(", {}", port.mode));
    }
    page.item(
        Tone::Plain,
        &format!("  {}  ", port.name),
        Tone::Plain,
        &what,
    );
    let mut detail = |name: &str, body: &str| {
        if !body.is_empty() {
            page.item(Tone::Plain, &format!("    {name:<11} "), Tone::Plain, body);
        }
    };
    for user in &port.users {
        let how = format!("{}, {}; {}", user.locator, user.mode, user.chosen_because);
        detail(&user.jobs, &how);
    }
    if port.users.is_empty() {
        detail("because", &port.chosen_because);
    }
    detail("link", &link(port));
    detail("stamps", &port.timestamp_source);
    detail("neighbours", &neighbours(&port.neighbours, verbose));
    detail("device", &counters(port, verbose));
}

fn link(port: &PortReport) -> String {
    let mut parts = Vec::new();
    if !port.mac.is_empty() {
        parts.push(port.mac.clone());
    }
    if port.mtu > 0 {
        parts.push(format!("MTU {}", port.mtu));
    }
    if !port.kernel_driver.is_empty() {
        parts.push(port.kernel_driver.clone());
    }
    // Link speeds are far below 2^53 bit/s.
    #[allow(clippy::cast_precision_loss)]
    if let Some(bps) = port.speed_bps {
        let claimed = if port.speed_nominal { " (nominal)" } else { "" };
        parts.push(format!("{}{claimed}", rate_bps(bps as f64)));
    }
    parts.join(", ")
}

fn neighbours(all: &BTreeMap<String, String>, verbose: bool) -> String {
    let limit = if verbose { usize::MAX } else { FEW };
    let mut parts: Vec<String> = all
        .iter()
        .take(limit)
        .map(|(address, mac)| format!("{address} at {mac}"))
        .collect();
    if all.len() > parts.len() {
        parts.push(format!("... and {} more", all.len() - parts.len()));
    }
    parts.join(", ")
}

/// Words in the names of counters that indicate trouble.
const TROUBLE: [&str; 17] = [
    "carrier",
    "drop",
    "discard",
    "err",
    "miss",
    "fail",
    "fifo",
    "full",
    "over",
    "crc",
    "bad",
    "invalid",
    "collision",
    "carrier",
    "abort",
    "timeout",
    "no_buf",
];

/// Counters of the frames that the device moved.
const TRAFFIC: [&str; 2] = ["rx_packets", "tx_packets"];

/// Counters of the device during the run: frames, and those that indicate trouble. With `verbose`, all that
/// changed.
fn counters(port: &PortReport, verbose: bool) -> String {
    let worth = |name: &str| {
        let name = name.to_ascii_lowercase();
        verbose
            || TRAFFIC.contains(&name.as_str())
            || TROUBLE.iter().any(|word| name.contains(word))
    };
    let parts: Vec<String> = port
        .after
        .iter()
        .filter(|(name, _)| worth(name))
        .filter_map(|(name, after)| {
            let before = port.before.get(name).copied().unwrap_or(0);
            match after.checked_sub(before) {
                Some(0) => None,
                Some(more) => Some(format!("{name} +{}", count(more))),
                None => Some(format!("{name} -{} (reset?)", count(before - after))),
            }
        })
        .collect();
    parts.join(", ")
}
