//! Ports: their properties, the reason for the mode in which they were opened, and the counters of the device.

use std::collections::BTreeMap;

use wb_model::{Report, report::PortReport};

use crate::{
    figures::{count, rate_bps},
    page::{Page, Tone},
};

pub(super) fn section(page: &mut Page, report: &Report) {
    if report.ports.is_empty() {
        return;
    }
    page.head("ports");
    for port in &report.ports {
        one(page, port);
    }
}

fn one(page: &mut Page, port: &PortReport) {
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
    detail("neighbours", &neighbours(&port.neighbours));
    detail("device", &counters(port));
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

fn neighbours(all: &BTreeMap<String, String>) -> String {
    let parts = all
        .iter()
        .map(|(address, mac)| format!("{address} at {mac}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Counters of the device that changed during the run.
fn counters(port: &PortReport) -> String {
    let changed = port.after.iter().filter_map(|(name, after)| {
        let before = port.before.get(name).copied().unwrap_or(0);
        match after.checked_sub(before) {
            Some(0) => None,
            Some(more) => Some(format!("{name} +{}", count(more))),
            None => Some(format!("{name} -{} (reset?)", count(before - after))),
        }
    });
    changed.collect::<Vec<_>>().join(", ")
}
