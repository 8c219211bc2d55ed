//! Repair of truncated files: keeps the complete records, in a copy or in place.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use wb_model::counted;
use wb_render::figures::count;

use super::{
    source::{Source, Trouble},
    write::Copy,
    written,
};
use crate::{
    deliver::{Fault, print},
    say::say,
};

/// Copies the complete records of `file` to `copy`. Returns exit code 1 if there are none.
///
/// # Errors
/// If the file is no capture file, cannot be read, or the copy cannot be written.
pub(super) fn into_copy(file: &Path, copy: &Path) -> Result<u8> {
    let source = Source::open(file)?;
    let mut out: Option<Copy> = None;
    let name = copy.display().to_string();
    let (source, trouble) = read_to_end(source, |bytes| {
        // The first complete block proves a capture file; the copy is not overwritten before.
        let out = match &mut out {
            Some(out) => out,
            None => out.insert(Copy::create(copy, &[file.to_owned()])?),
        };
        written(out.writer().write_all(bytes), &name)
    })?;
    let Some(out) = out else {
        return nothing_whole(&source, trouble);
    };
    written(out.finish(), &name)?;
    let whole = count(source.whole_bytes());
    let records = |one: &str, many: &str| counted(count(source.whole_records()), one, many);
    let from = &source.name;
    let what = match trouble {
        None => format!(
            "{from}: undamaged; copied {} to {name}",
            records("packet", "packets")
        ),
        Some(trouble) => format!(
            "{from}: {trouble}\n{name}: saved {} before it ({whole} bytes)",
            records("complete packet", "complete packets")
        ),
    };
    if name == "-" {
        say(format_args!("wirebench: {what}"));
    } else {
        print(&what);
    }
    Ok(0)
}

/// Truncates each file after its last complete record. Returns exit code 1 if a file has none.
///
/// # Errors
/// If a file is no capture file, cannot be read or written, or still grows.
pub(super) fn in_place(files: &[PathBuf]) -> Result<u8> {
    let mut code = 0;
    for file in files {
        code = code.max(repair(file)?);
    }
    Ok(code)
}

/// Reads a file up to its last complete block, and passes each block to `visit`.
fn read_to_end(
    mut source: Source,
    mut visit: impl FnMut(&[u8]) -> Result<()>,
) -> Result<(Source, Option<Trouble>)> {
    loop {
        match source.step(|item| visit(item.bytes)) {
            Ok(Some(visited)) => visited?,
            Ok(None) => return Ok((source, None)),
            Err(trouble) => return Ok((source, Some(trouble))),
        }
    }
}

/// Reports a file without complete records. Returns the exit code.
fn nothing_whole(source: &Source, trouble: Option<Trouble>) -> Result<u8> {
    let name = &source.name;
    match trouble {
        Some(trouble) if trouble.is_foreign() => bail!("{name}: {trouble}"),
        Some(trouble @ (Trouble::Damaged(_) | Trouble::Unpacking(..))) => {
            say(format_args!(
                "wirebench: {name}: {trouble}; no complete record found, file unchanged"
            ));
            Ok(1)
        }
        Some(trouble) => bail!("{name}: {trouble}"),
        None => bail!("{name}: empty file"),
    }
}

fn repair(path: &Path) -> Result<u8> {
    let name = path.display();
    let file = fs::metadata(path).with_context(|| format!("cannot open {name}"))?;
    if !file.is_file() {
        bail!("cannot truncate {name}: not a regular file");
    }
    let source = Source::open(path)?;
    if let Some(packing) = source.packing {
        bail!(
            "cannot truncate {name}: compressed with {}; \
             `wirebench read --repair {name} -w COPY` saves the complete records",
            packing.name()
        );
    }
    let (source, trouble) = read_to_end(source, |_| Ok(()))?;
    let whole = source.whole_bytes();
    let records = |one: &str, many: &str| counted(count(source.whole_records()), one, many);
    match trouble {
        None => {
            print(&format!(
                "{name}: undamaged, {}; file unchanged",
                records("packet", "packets")
            ));
            Ok(0)
        }
        Some(trouble @ Trouble::Damaged(_)) if whole > 0 => {
            cut(path, file.len(), whole)?;
            print(&format!(
                "{name}: {trouble}\n{name}: removed {} bytes from the end; {} bytes with {} remain",
                count(file.len() - whole),
                count(whole),
                records("complete packet", "complete packets"),
            ));
            Ok(0)
        }
        trouble => nothing_whole(&source, trouble),
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
        bail!("{name}: the file is still growing; end the capture first");
    }
    file.set_len(whole)
        .map_err(|error| Fault(format!("cannot truncate {name}: {error}")).into())
}
