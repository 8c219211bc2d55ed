//! `wirebench doctor`: what this host and interface can do, and what would make it better.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use wb_host::{doctor, netns::Namespace};
use wb_model::Locator;
use wb_render::findings::{Finding, Level};

use crate::{
    run::{color, print, width},
    say::say,
};

/// What this host and interface can do, what limits it, and the command that would fix it.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  wirebench doctor\n  wirebench doctor eth2\n  wirebench doctor wb-pair-a/a0 --json"
)]
pub(crate) struct DoctorArgs {
    /// The port to look at; without it the host only.
    #[arg(value_name = "PORT")]
    port: Option<Locator>,
    /// Put right what killed runs have left behind: offloads that were switched off for a capture, control folders
    /// without their daemon.
    #[arg(long)]
    repair: bool,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<u8> {
    if args.repair {
        doctor::repair().iter().for_each(say);
        repair_folders()?;
    }
    let namespace = match args.port.as_ref().and_then(|p| p.node.as_deref()) {
        Some(node) => Namespace::named(node)?,
        None => Namespace::current()?,
    };
    let port = match &args.port {
        Some(locator) if !locator.is_interface() => {
            bail!("{locator}: doctor looks at network interfaces")
        }
        Some(locator) => {
            wb_host::link::link_by_name(&namespace, &locator.name)?;
            Some((&namespace, locator.name.as_str()))
        }
        None => None,
    };
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
    let findings: Vec<Finding> = doctor::examine(port)
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
        .chain(wb_fuse::dead_folders()?.iter().map(|dir| dead_folder(dir)))
        .collect();
    print(&if args.json {
        serde_json::to_string_pretty(&serde_json::json!({
            "schema": "wirebench.doctor/1",
            "findings": findings.iter().map(json_of).collect::<Vec<_>>(),
        }))?
    } else {
        wb_render::findings::text(&findings, color(), width())
    });
    Ok(0)
}

/// Takes control folders of killed processes away, and says so.
fn repair_folders() -> Result<()> {
    for dir in wb_fuse::dead_folders()? {
        match wb_fuse::remove_dead(&dir) {
            Ok(()) => say(format!(
                "{}: took away the control folder of a process that was killed",
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
            "the process of the control folder on {} was killed; whoever looks into it gets an error",
            dir.display()
        ),
        fix: Some("wirebench doctor --repair".to_owned()),
    }
}

fn json_of(finding: &Finding) -> serde_json::Value {
    serde_json::json!({
        "level": finding.level.name(),
        "topic": finding.topic,
        "text": finding.text,
        "fix": finding.fix,
    })
}
