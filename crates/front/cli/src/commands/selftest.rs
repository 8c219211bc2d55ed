//! `wirebench capture --self-test`: frames lost on a busy machine, by wirebench and by other tools.

use std::path::PathBuf;

use anyhow::Result;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use wb_model::units::Rate;
use wb_session::Signals;
use wb_testbed::{CaptureTool, SelfTest, SelfTestEnvironment, SelfTestOptions, TestbedError};

use crate::{
    args::count_in,
    deliver::{Fault, deliver, print},
    say::say_in_passing,
};

/// Options for the experiment.
#[derive(Args, Debug)]
#[command(next_help_heading = "Self-test")]
pub(crate) struct SelfTestArgs {
    /// Tools to compare with, at their default settings.
    #[arg(
        long,
        value_name = "TOOLS",
        value_delimiter = ',',
        requires = "self_test",
        value_parser = tool_parser()
    )]
    with: Vec<CaptureTool>,
    /// Number of processes that keep the CPUs busy during the experiment.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "self_test", value_parser = count_in::<u32>(0..))]
    hogs: u32,
    /// Frame sizes with FCS.
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "64,1518",
        requires = "self_test"
    )]
    sizes: Vec<u32>,
    /// Frames per second: one rate for all sizes, or one per size [default: 200kpps for 64, 100kpps above].
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        requires = "self_test"
    )]
    rate: Vec<Rate>,
    /// Frames to send: one number for all sizes, or one per size [default: 600000 for 64, 400000 above].
    #[arg(long, value_name = "N", value_delimiter = ',', requires = "self_test", value_parser = count_in::<u64>(0..))]
    frames: Vec<u64>,
    /// Runs of each tool at each size, 1 to 100.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "self_test",
        value_parser = count_in::<u32>(1..=100))]
    runs: u32,
    /// Folder for the temporary capture files [default: temporary folder of the system].
    #[arg(long, value_name = "DIR", requires = "self_test")]
    dir: Option<PathBuf>,
}

fn tool_parser() -> impl TypedValueParser<Value = CaptureTool> {
    let tools = CaptureTool::OTHERS;
    PossibleValuesParser::new(tools.map(CaptureTool::name)).map(move |name| {
        let tool = tools.into_iter().find(|tool| tool.name() == name);
        tool.expect("a possible value is the name of a tool")
    })
}

/// Runs the experiment, with `xdp` also over AF_XDP. Returns the exit code.
pub(crate) fn run(args: &SelfTestArgs, xdp: bool, quiet: bool, json: bool) -> Result<u8> {
    let test = SelfTest::new(SelfTestOptions {
        xdp,
        with: args.with.clone(),
        hogs: args.hogs,
        sizes: args.sizes.clone(),
        rates: args.rate.clone(),
        frames: args.frames.clone(),
        runs: args.runs,
        folder: args.dir.clone(),
    })?;
    let in_user_namespace = wb_testbed::gain_privileges()?;
    let signals = Signals::install()?;
    let outcome = test.run(&SelfTestEnvironment {
        program: &std::env::current_exe()?,
        in_user_namespace,
        stopped: &|| signals.received(),
        progress: &|line| {
            if !quiet {
                say_in_passing(line);
            }
        },
    })?;
    let text = outcome.document.text();
    if json {
        deliver(&serde_json::to_string_pretty(&outcome.document)?)?;
    } else if !text.is_empty() {
        print(&text);
    }
    outcome.removed?;
    match outcome.end {
        Ok(()) => Ok(u8::from(outcome.document.verdict != "pass")),
        Err(TestbedError::Interrupted { signal }) => Ok(u8::try_from(128 + signal).unwrap_or(1)),
        Err(error) => Err(Fault(format!("{:#}", anyhow::Error::from(error))).into()),
    }
}
