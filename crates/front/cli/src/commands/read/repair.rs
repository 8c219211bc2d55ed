//! Files that end within a record, cut to their last whole one.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use wb_render::figures::count;

use super::source::{Source, Trouble};
use crate::{
    run::{Fault, print},
    say::say,
};

/// Repairs each file; the exit code is 1 if one has nothing that is whole.
///
/// # Errors
/// If a file is no capture file, cannot be read or written, or still grows.
pub(super) fn run(files: &[PathBuf]) -> Result<u8> {
    let mut code = 0;
    for file in files {
        code = code.max(repair(file)?);
    }
    Ok(code)
}

fn repair(path: &Path) -> Result<u8> {
    let name = path.display();
    let file = fs::metadata(path).with_context(|| format!("cannot open {name}"))?;
    if !file.is_file() {
        bail!("{name} is no plain file, so it cannot be cut");
    }
    let mut source = Source::open(path)?;
    if let Some(packing) = source.packing {
        bail!(
            "{name} is packed by {}, so its end cannot be cut; \
             `wirebench read {name} -w NEW` keeps what is whole",
            packing.name()
        );
    }
    let trouble = loop {
        match source.step(|_| ()) {
            Ok(Some(())) => {}
            Ok(None) => break None,
            Err(trouble) => break Some(trouble),
        }
    };
    let (whole, records) = (source.whole_bytes(), count(source.whole_records()));
    match trouble {
        None => {
            print(&format!(
                "{name}: whole, {records} packets; nothing was changed"
            ));
            Ok(0)
        }
        Some(trouble) if trouble.is_foreign() => bail!("{name}: {trouble}"),
        Some(trouble @ Trouble::Damaged(_)) if whole == 0 => {
            say(format_args!(
                "wirebench: {name}: {trouble}; nothing is whole, so nothing was changed"
            ));
            Ok(1)
        }
        Some(trouble @ Trouble::Damaged(_)) => {
            cut(path, file.len(), whole)?;
            print(&format!(
                "{name}: {trouble}\n{name}: {} bytes were removed from the end; the {} bytes left hold \
                 {records} whole packets",
                count(file.len() - whole),
                count(whole),
            ));
            Ok(0)
        }
        Some(trouble) => bail!("{name}: {trouble}"),
    }
}

fn cut(path: &Path, len: u64, whole: u64) -> Result<()> {
    let name = path.display();
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .with_context(|| format!("cannot write {name}"))?;
    let now = file
        .metadata()
        .with_context(|| format!("cannot read {name}"))?
        .len();
    if now != len {
        bail!("{name} is still being written; end the capture first");
    }
    file.set_len(whole)
        .map_err(|error| Fault(format!("cannot cut {name}: {error}")).into())
}
