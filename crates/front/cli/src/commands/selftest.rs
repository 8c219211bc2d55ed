//! `wirebench capture --self-test`: what a busy machine loses, by us and by others.

use anyhow::Result;
use clap::Args;

/// How the experiment is run.
#[derive(Args, Debug)]
#[command(next_help_heading = "Self-test")]
pub(crate) struct SelfTestArgs {
    /// Tools to compare with, at their defaults: tcpdump, dumpcap, netsniff-ng.
    #[arg(
        long,
        value_name = "TOOLS",
        value_delimiter = ',',
        requires = "self_test"
    )]
    with: Vec<String>,
    /// Processes that keep the CPUs busy meanwhile.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "self_test")]
    hogs: u32,
}

pub(crate) fn run(_args: &SelfTestArgs, _quiet: bool, _json: bool) -> Result<u8> {
    anyhow::bail!("the self-test is being built")
}
