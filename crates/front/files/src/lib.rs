//! Capture files and report files: read, checked, converted, merged and compared.
//!
//! Knows no command line and no terminal: returns text, or writes to the [`Output`] of the caller.

pub mod compare;
pub mod read;
pub mod report;

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

/// Outputs of the caller.
pub trait Output {
    /// Writes a text of results; a reader that has gone is no error.
    ///
    /// # Errors
    /// If the text cannot be written.
    fn results(&self, text: &str) -> Result<()>;

    /// Reports one line to the user.
    fn message(&self, line: &str);

    /// Opens standard output for packets, as lines or as a file.
    ///
    /// # Errors
    /// If there is no standard output.
    fn packets(&self) -> io::Result<Box<dyn Write>>;
}

/// Returns true if both paths name the same file.
#[must_use]
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    let inode = |path: &Path| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino()))
    };
    a == b || inode(a).is_some_and(|own| inode(b) == Some(own))
}

/// Checks that at most one file is standard input (`-`).
///
/// # Errors
/// If several are.
pub fn check_standard_input(files: &[PathBuf]) -> Result<()> {
    if files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
        bail!("standard input (-) can be given only once");
    }
    Ok(())
}
