//! Repair of truncated files: keeps the complete records, in a copy or in place.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use anyhow::{Context, Result, bail};
use wb_model::counted;
use wb_render::figures::count;
use wb_session::Fault;

use super::{
    source::{Source, Trouble},
    write::Copy,
    written,
};
use crate::Output;

/// Result of a repair, as a text without a line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// The complete records are in the copy or in the file.
    Whole(String),
    /// No record is complete, so nothing was written.
    Nothing(String),
}

/// Copies the complete records of `file` to `copy`; `-` is standard output.
///
/// # Errors
/// If the file is no capture file, cannot be read, or the copy cannot be written; [`ClosedPipe`](super::ClosedPipe) if
/// standard output has no reader any more.
pub fn repair_into_copy(file: &Path, copy: &Path, output: &dyn Output) -> Result<Repaired> {
    let source = Source::open(file)?;
    let mut out: Option<Copy> = None;
    let name = copy.display().to_string();
    let (source, trouble) = read_to_end(source, |bytes| {
        // The first complete block proves a capture file; the copy is not overwritten before.
        let out = match &mut out {
            Some(out) => out,
            None => out.insert(Copy::create(copy, &[file.to_owned()], output)?),
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
    Ok(Repaired::Whole(match trouble {
        None => format!(
            "{from}: undamaged; copied {} to {name}",
            records("packet", "packets")
        ),
        Some(trouble) => format!(
            "{from}: {trouble}\n{name}: saved {} before it ({whole} bytes)",
            records("complete packet", "complete packets")
        ),
    }))
}

/// Truncates a file after its last complete record.
///
/// # Errors
/// If the file is no capture file, cannot be read or written, or still grows.
pub fn repair_in_place(path: &Path) -> Result<Repaired> {
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
            let packets = records("packet", "packets");
            Ok(Repaired::Whole(format!(
                "{name}: undamaged, {packets}; file unchanged"
            )))
        }
        Some(trouble @ Trouble::Damaged(_)) if whole > 0 => {
            cut(path, file.len(), whole)?;
            Ok(Repaired::Whole(format!(
                "{name}: {trouble}\n{name}: removed {} bytes from the end; {} bytes with {} remain",
                count(file.len() - whole),
                count(whole),
                records("complete packet", "complete packets"),
            )))
        }
        trouble => nothing_whole(&source, trouble),
    }
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

/// Describes a file without complete records.
fn nothing_whole(source: &Source, trouble: Option<Trouble>) -> Result<Repaired> {
    let name = &source.name;
    match trouble {
        Some(trouble) if trouble.is_foreign() => bail!("{name}: {trouble}"),
        Some(trouble @ (Trouble::Damaged(_) | Trouble::Unpacking(..))) => Ok(Repaired::Nothing(
            format!("{name}: {trouble}; no complete record found, file unchanged"),
        )),
        Some(trouble) => bail!("{name}: {trouble}"),
        None => bail!("{name}: empty file"),
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
