//! Confirmation before a suite overloads a device: the network must be isolated (RFC 6815).
//!
//! The guard checks the addresses in frames and the routes of interfaces. This module asks the operator about
//! interfaces that may be part of a network in use, even if the guard permits them.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, IsTerminal as _},
};

use anyhow::{Result, bail};
use wb_model::{
    Plan,
    bench::{Quantity, SuitePlan},
    plan::Procedure,
};
use wb_runs::Concern;

use crate::say::say;

/// Asks for confirmation if needed, and stores the answer in the plan for the report.
///
/// # Errors
/// If there is no operator to ask, or the answer is no.
pub(crate) fn confirm(plan: &mut Plan) -> Result<()> {
    let concerns = wb_runs::concerns(plan)?;
    let (Some(suite), false) = (plan.suite(), concerns.is_empty()) else {
        return Ok(());
    };
    let targets: Vec<&str> = concerns.iter().map(|c| c.port.as_str()).collect();
    let targets = targets.join(" and ");
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        let Concern { port, why } = &concerns[0];
        bail!(
            "{port}: {why}; these tests overload the device on purpose (RFC 6815); if no other system uses the network \
             behind {targets}, give --isolated (isolated = true in [procedure.suite])"
        );
    }
    say(
        "These tests overload the device on purpose; run them only in an isolated network (RFC 6815).",
    );
    for Concern { port, why } in &concerns {
        say(format_args!("  interface    {port}: {why}"));
    }
    say(format_args!("  peak load    {}", peak(suite)));
    say(format_args!("  addresses    {}", destinations(plan)));
    say(format_args!(
        "Is the network behind {targets} isolated? [y/N]"
    ));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("not confirmed: nothing was sent; confirm in advance with --isolated");
    }
    if let Some(Procedure::Suite(suite)) = &mut plan.procedure {
        suite.isolated = true;
    }
    Ok(())
}

/// Returns the highest load that the suite may try.
fn peak(suite: &SuitePlan) -> String {
    match (suite.max, suite.of) {
        (Some(max), Quantity::Frames) => max.to_string(),
        (Some(max), of) => format!("{max} {}", of.unit()),
        (None, Quantity::Frames) => "line rate, or the maximum of the tester".to_owned(),
        (None, _) => "the maximum of the tester".to_owned(),
    }
}

/// Returns the destinations of the frames.
fn destinations(plan: &Plan) -> String {
    let streams = plan.traffic.iter().flat_map(|job| {
        let streams = job.streams.iter();
        streams.flat_map(|stream| {
            stream
                .reach()
                .into_iter()
                .filter(|r| job.bidir || r.0 != "src")
        })
    });
    let streams = streams.map(|(_, range)| range.to_string());
    let servers = plan.loads.iter().flat_map(|load| &load.servers);
    let all: BTreeSet<String> = streams.chain(servers.map(ToString::to_string)).collect();
    let all: Vec<String> = all.into_iter().collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_before_it_starts() {
        let mut suite = SuitePlan::default();
        assert_eq!(peak(&suite), "line rate, or the maximum of the tester");
        suite.max = "40kpps".parse().ok();
        assert_eq!(peak(&suite), "40kpps");
        let plan = |bidir| Plan {
            traffic: vec![wb_model::TrafficJob {
                bidir,
                streams: vec![wb_model::Stream::default()],
                ..Default::default()
            }],
            ..Plan::default()
        };
        assert_eq!(destinations(&plan(false)), "198.19.1.2");
        assert_eq!(destinations(&plan(true)), "198.18.1.2, 198.19.1.2");
    }
}
