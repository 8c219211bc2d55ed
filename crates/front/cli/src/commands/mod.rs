//! The commands, a file and a line of the table each.

#[cfg(feature = "fleet")]
pub(crate) mod agent;
pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod demo;
pub(crate) mod doctor;
#[cfg(feature = "fleet")]
pub(crate) mod fleet;
pub(crate) mod http;
pub(crate) mod lab;
pub(crate) mod linerate;
pub(crate) mod load;
pub(crate) mod ls;
pub(crate) mod meta;
pub(crate) mod netperf;
pub(crate) mod netserver;
pub(crate) mod pktgen;
pub(crate) mod read;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod rx;
pub(crate) mod sar;
pub(crate) mod selftest;
#[cfg(feature = "web")]
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod stop;
pub(crate) mod sweep;
#[cfg(feature = "web")]
pub(crate) mod token;
pub(crate) mod trial;
pub(crate) mod tx;
pub(crate) mod wrk;

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use crate::{args::Given, command_line, screen};

/// A command of the program.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Declares the options of the command.
    declare: fn(Command) -> Command,
    /// Runs the command and returns the exit code.
    pub(crate) run: fn(&ArgMatches, &Given) -> Result<u8>,
}

impl Entry {
    /// Returns the declaration of the command.
    pub(crate) fn command(&self) -> Command {
        (self.declare)(Command::new(self.name))
    }
}

/// A command with options: its name, the type of the options, and the call that runs it.
macro_rules! options {
    ($name:literal, $args:ty, |$own:ident, $given:pat_param| $run:expr) => {
        Entry {
            name: $name,
            declare: <$args as Args>::augment_args,
            run: |matches, $given| {
                let $own = &<$args>::from_arg_matches(matches)?;
                $run
            },
        }
    };
}

/// A command with subcommands: its name, their type, and the call that runs one.
macro_rules! subcommands {
    ($name:literal, $commands:ty, $run:path) => {
        Entry {
            name: $name,
            declare: |command| {
                <$commands as Subcommand>::augment_subcommands(command)
                    .subcommand_required(true)
                    .arg_required_else_help(true)
            },
            run: |matches, _| $run(&<$commands>::from_arg_matches(matches)?),
        }
    };
}

/// All commands in groups, in the order of the overview. Those of the last group are hidden.
pub(crate) static GROUPS: &[(&str, &[Entry])] = &[
    (
        "Measure",
        &[
            options!("trial", trial::TrialArgs, |a, _| trial::run(a)),
            options!("tx", tx::TxArgs, |a, _| tx::run(a)),
            options!("rx", rx::RxArgs, |a, _| rx::run(a)),
            options!("run", run::RunArgs, |a, _| run::run(a)),
            subcommands!("bench", bench::BenchCommand, bench::run),
            options!("report", report::ReportArgs, |a, _| report::run(a)),
            options!("linerate", linerate::LinerateArgs, |a, _| linerate::run(a)),
        ],
    ),
    (
        "Connections",
        &[
            options!("load", load::LoadArgs, |a, given| load::run(a, given)),
            options!("http", http::HttpArgs, |a, given| http::run(a, given)),
            options!("sweep", sweep::SweepArgs, |a, _| sweep::run(a)),
        ],
    ),
    (
        "Captures",
        &[
            options!("capture", capture::CaptureArgs, |a, given| capture::run(
                a, given
            )),
            options!("read", read::ReadArgs, |a, _| read::run(a)),
        ],
    ),
    (
        "Labs",
        &[
            options!("demo", demo::DemoArgs, |a, _| demo::run(a)),
            subcommands!("lab", lab::LabCommand, lab::run),
        ],
    ),
    (
        "Host",
        &[
            options!("doctor", doctor::DoctorArgs, |a, _| doctor::run(a)),
            options!("stat", stat::StatArgs, |a, _| stat::run(a)),
            #[cfg(feature = "web")]
            options!("serve", serve::ServeArgs, |a, _| serve::run(a)),
            #[cfg(feature = "web")]
            subcommands!("token", token::TokenCommand, token::run),
            #[cfg(feature = "fleet")]
            options!("agent", agent::AgentArgs, |a, _| agent::run(a)),
            #[cfg(feature = "fleet")]
            subcommands!("fleet", fleet::FleetCommand, fleet::run),
            options!("ls", ls::LsArgs, |a, _| ls::run(a)),
            options!("stop", stop::StopArgs, |a, _| stop::run(a)),
            options!("completions", meta::CompletionsArgs, |a, _| {
                meta::completions(a, command_line())
            }),
            options!("man", meta::ManArgs, |a, _| meta::man(a, command_line())),
            options!("schema", meta::SchemaArgs, |a, _| meta::schema(a)),
        ],
    ),
    (
        "Compatibility",
        &[
            subcommands!("pktgen", pktgen::PktgenCommand, pktgen::run),
            options!("netperf", netperf::NetperfArgs, |a, _| netperf::run(a)),
            options!("netserver", netserver::NetserverArgs, |a, _| {
                netserver::run(a)
            }),
            options!("wrk", wrk::WrkArgs, |a, _| wrk::run(a)),
            options!("sar", sar::SarArgs, |a, _| sar::run(a)),
        ],
    ),
    (
        "",
        &[
            options!("impair-device", lab::ImpairDeviceArgs, |a, _| {
                lab::impair_device(a)
            }),
            Entry {
                name: screen::GUARD,
                declare: |command| command,
                run: |_, _| {
                    screen::guard();
                    Ok(0)
                },
            },
        ],
    ),
];

/// All commands.
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().flat_map(|(_, entries)| *entries)
}
