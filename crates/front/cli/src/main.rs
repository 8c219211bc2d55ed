//! The binary `wirebench`: reads what was typed, hands it to the right crate, prints what comes
//! back, and turns it into an exit code.
//!
//! Exit codes: 0 ran and all criteria held, 1 a criterion failed, 2 bad input or missing privilege
//! and nothing started, 3 the tester was the limit, 4 started but ended by a fault, 130 and 143
//! after SIGINT and SIGTERM.

mod args;
mod commands;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One instrument for the wire: generates packets, receives and analyses them, on any NIC.
#[derive(Parser, Debug)]
#[command(
    name = "wirebench",
    version,
    max_term_width = 100,
    after_help = "Start with `wirebench demo`: no hardware and no arguments are needed.\n\
                  Ports are IF, NODE/IF (an interface in the network namespace NODE), xdp:IF, packet:IF,\n\
                  memory:NAME or file:PATH. `wirebench help COMMAND` has an example for each command."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(commands::demo::DemoArgs),
    Doctor(commands::doctor::DoctorArgs),
    #[command(subcommand)]
    Lab(commands::lab::LabCommand),
    Trial(Box<commands::trial::TrialArgs>),
    Tx(Box<commands::tx::TxArgs>),
    Rx(commands::rx::RxArgs),
    Run(commands::run::RunArgs),
    Linerate(commands::linerate::LinerateArgs),
    Completions(commands::meta::CompletionsArgs),
    Man(commands::meta::ManArgs),
    #[command(hide = true, name = "impair-device")]
    ImpairDevice(commands::lab::ImpairDeviceArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("WIREBENCH_LOG"))
        .with_writer(std::io::stderr)
        .init();
    let result = match cli.command {
        Command::Demo(a) => commands::demo::run(&a),
        Command::Doctor(a) => commands::doctor::run(&a),
        Command::Lab(c) => commands::lab::run(c),
        Command::Trial(a) => commands::trial::run(&a),
        Command::Tx(a) => commands::tx::run(&a),
        Command::Rx(a) => commands::rx::run(&a),
        Command::Run(a) => commands::run::run(&a),
        Command::Linerate(a) => commands::linerate::run(&a),
        Command::Completions(a) => commands::meta::completions::<Cli>(&a),
        Command::Man(a) => commands::meta::man::<Cli>(&a),
        Command::ImpairDevice(a) => commands::lab::impair_device(&a),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            for line in format!("{error:#}").lines() {
                eprintln!("wirebench: {line}");
            }
            ExitCode::from(2)
        }
    }
}
