//! `wirebench doctor`: abilities and limits of this host and interface, and how to improve them.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use wb_machine::{
    doctor::{self, Description},
    netns::Namespace,
};
use wb_model::Locator;
use wb_render::findings::{Finding, Level};
use wb_session::PortDrivers;

use crate::{
    deliver::{color, print, width},
    say::say,
};

/// Check the abilities and limits of this host and interface, and print the commands that fix problems.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  wirebench doctor\n  wirebench doctor eth2\n  wirebench doctor wb-pair-a/a0 --json --describe\n\n\
        Exit codes: 0 no problem was found; 1 a problem was found; 2 bad input.\n\n\
        On an unused interface, doctor briefly attaches an XDP program that passes every frame; some cards reset \
        their link for it."
)]
pub(crate) struct DoctorArgs {
    /// Port to check [default: the host only].
    #[arg(value_name = "PORT")]
    port: Option<Locator>,
    /// Repair the remains of killed runs: offloads disabled for a capture, control folders without a daemon.
    #[arg(long)]
    repair: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Add the facts behind the findings to the JSON.
    #[arg(long, requires = "json")]
    describe: bool,
}

/// JSON document of `doctor --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DoctorDocument<'a> {
    /// `wirebench.doctor/1`.
    schema: &'static str,
    /// Findings, in the order of the text.
    findings: &'a [Finding],
    /// Drivers of the interface, and the choice of a plan that leaves the driver open.
    #[serde(flatten)]
    drivers: Option<&'a PortDrivers>,
    /// Facts behind the findings about the interface; with `--describe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a Description>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<u8> {
    if args.repair {
        doctor::repair().iter().for_each(say);
        repair_folders()?;
    }
    if let Some(port) = &args.port {
        port.check_local().map_err(anyhow::Error::msg)?;
    }
    let namespace = match args.port.as_ref().and_then(|p| p.node.as_deref()) {
        Some(node) => Namespace::named(node)?,
        None => Namespace::current()?,
    };
    let port = match &args.port {
        Some(locator) if !locator.is_interface() => {
            bail!("{locator}: doctor checks network interfaces only")
        }
        Some(locator) => Some((&namespace, locator.name.as_str())),
        None => None,
    };
    let mut about = doctor::describe(port)?;
    if let (Some(locator), Some(interface)) = (&args.port, &mut about.interface) {
        interface.xdp = wb_session::xdp_abilities(locator, interface)?;
    }
    let drivers = args.port.as_ref();
    let drivers = drivers.map(|locator| wb_session::port_drivers(locator, &about));
    let drivers = drivers.transpose()?;
    let in_kernel = wb_session::in_kernel(args.port.as_ref())?;
    let in_kernel = in_kernel.into_iter().map(|f| Finding {
        level: match f.can {
            true => Level::Ok,
            false => Level::Note,
        },
        topic: "in the kernel".to_owned(),
        text: f.text,
        fix: f.fix,
    });
    let findings: Vec<Finding> = doctor::examine(&about)
        .into_iter()
        .map(|f| Finding {
            level: match f.level {
                doctor::Level::Ok => Level::Ok,
                doctor::Level::Note => Level::Note,
                doctor::Level::Warn => Level::Warn,
                doctor::Level::Problem => Level::Problem,
            },
            topic: f.topic,
            text: f.text,
            fix: f.fix,
        })
        .chain(in_kernel)
        .chain(drivers.as_ref().map(chosen_drivers))
        .chain(wb_fuse::dead_folders()?.iter().map(|dir| dead_folder(dir)))
        .collect();
    print(&if args.json {
        serde_json::to_string_pretty(&DoctorDocument {
            schema: "wirebench.doctor/1",
            findings: &findings,
            drivers: drivers.as_ref(),
            description: args.describe.then_some(&about),
        })?
    } else {
        wb_render::findings::text(&findings, color(), width())
    });
    Ok(exit_code(&findings))
}

/// The choice of a plan that leaves the driver of a port open.
fn chosen_drivers(drivers: &PortDrivers) -> Finding {
    Finding {
        level: match drivers.sends_with {
            Some(_) => Level::Ok,
            None => Level::Warn,
        },
        topic: "drivers".to_owned(),
        text: drivers.driver_choice.clone(),
        fix: None,
    }
}

/// Returns 1 if a problem remains.
fn exit_code(findings: &[Finding]) -> u8 {
    u8::from(findings.iter().any(|f| f.level == Level::Problem))
}

/// Removes the control folders of killed processes and reports them.
fn repair_folders() -> Result<()> {
    for dir in wb_fuse::dead_folders()? {
        match wb_fuse::remove_dead(&dir) {
            Ok(()) => say(format!(
                "{}: removed the control folder of a killed process",
                dir.display()
            )),
            Err(refused) => say(refused),
        }
    }
    Ok(())
}

fn dead_folder(dir: &Path) -> Finding {
    Finding {
        level: Level::Warn,
        topic: "control files".to_owned(),
        text: format!(
            "the process that served the control folder {} was killed; accesses to the folder fail",
            dir.display()
        ),
        fix: Some("wirebench doctor --repair".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_problem_is_a_failure() {
        let found = |level| Finding {
            level,
            topic: "link".to_owned(),
            text: "down".to_owned(),
            fix: None,
        };
        assert_eq!(exit_code(&[]), 0);
        assert_eq!(exit_code(&[found(Level::Warn), found(Level::Note)]), 0);
        assert_eq!(exit_code(&[found(Level::Ok), found(Level::Problem)]), 1);
    }
}
