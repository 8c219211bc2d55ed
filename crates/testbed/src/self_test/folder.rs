//! Temporary folder of the self-test.

use std::path::{Path, PathBuf};

use super::Load;
use crate::{Result, TestbedError};

/// Temporary folder of the self-test, removed with its contents at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    const PREFIX: &str = "wirebench-self-test-";

    pub(super) fn fresh(parent: &Path) -> Result<Self> {
        Self::remove_left_over(parent);
        let path = parent.join(format!("{}{}", Self::PREFIX, std::process::id()));
        let object = format!("the folder {}; use --dir", path.display());
        std::fs::create_dir(&path).map_err(TestbedError::io("create", object))?;
        Ok(Self(path))
    }

    /// Removes the remains of killed self-tests.
    fn remove_left_over(parent: &Path) {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix(Self::PREFIX))
                .and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| wb_machine::process::start_time(pid).is_none()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Checks that the largest file of the self-test fits.
    pub(super) fn check_room(&self, loads: &[Load]) -> Result<()> {
        // A pcapng frame has 32 bytes of overhead; twice that for safety.
        let needed = loads
            .iter()
            .map(|l| l.frames * u64::from(l.size + 64))
            .max();
        let needed = needed.unwrap_or(0);
        let there = rustix::fs::statvfs(&self.0).map_or(u64::MAX, |s| s.f_bavail * s.f_frsize);
        if there < needed {
            return Err(TestbedError::Input(format!(
                "{}: {} MB free, but a file needs {} MB; use --dir or fewer --frames",
                self.0.display(),
                there / 1_000_000,
                needed / 1_000_000
            )));
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
