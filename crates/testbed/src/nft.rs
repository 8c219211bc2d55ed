//! `nft`: nftables rules of a node's kernel.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use wb_machine::{Namespace, in_namespace};

use crate::{Result, TestbedError, daemon::find_program};

/// Path of `nft`.
pub(crate) fn nft_program() -> Result<PathBuf> {
    find_program("nft", "nftables")
}

/// Loads rules in a node.
pub(crate) fn load_rules(device: &Namespace, rules: &str) -> Result<()> {
    let program = nft_program()?;
    let load = || {
        let mut child = Command::new(program)
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().expect("its input is a pipe");
        // If `nft` ended without reading, its own message explains the reason better.
        let _ = input.write_all(rules.as_bytes());
        drop(input);
        child.wait_with_output()
    };
    let output = in_namespace(device, load)?.map_err(TestbedError::io("run", "nft"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(TestbedError::Command {
            command: format!("{}nft -f -", device.command_prefix()),
            message: said.lines().next().unwrap_or_default().to_owned(),
        });
    }
    Ok(())
}
