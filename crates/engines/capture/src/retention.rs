//! The finished files of a capture, and those that may be removed to free space.
//!
//! Knows only files that this capture began and finished: never the open one or files of other programs.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use wb_model::capture::{CaptureOutput, OnFull};

/// A complete file with its final name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FinishedFile {
    pub(crate) path: PathBuf,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Finished files, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct FileRetention {
    files: VecDeque<FinishedFile>,
    /// Number of files that a ring keeps, including open ones; 0: it removes none.
    ring: usize,
    keep_free: u64,
    frees: bool,
    /// Files removed for lack of space.
    pub(crate) removed: u64,
    /// There was less space than configured, and no file left to remove.
    pub(crate) short: bool,
}

impl FileRetention {
    /// `ring`: number of files to keep, unless the ring overwrites them.
    pub(crate) fn new(output: &CaptureOutput, ring: usize) -> Self {
        Self {
            ring,
            keep_free: output.keep_free,
            frees: output.on_enospc == OnFull::RotateDelete,
            ..Self::default()
        }
    }

    /// Adds a file while `open` others are open. Removes the oldest files beyond the ring size.
    pub(crate) fn add_file(&mut self, file: FinishedFile, open: usize) {
        if self.ring == 0 && self.keep_free == 0 && !self.frees {
            return;
        }
        self.files.push_back(file);
        while self.ring > 0 && self.files.len() + open > self.ring {
            self.remove_oldest();
        }
    }

    /// Forgets a file because its name is reused.
    pub(crate) fn forget_file(&mut self, path: &Path) {
        self.files.retain(|file| file.path != path);
    }

    /// Handles a full disk. Returns true if a file was removed, so that a retry makes sense.
    pub(crate) fn make_room(&mut self) -> bool {
        let made = self.frees && self.remove_oldest().is_some();
        self.removed += u64::from(made);
        made
    }

    /// Removes files until the configured space is free. `free` returns the free space.
    pub(crate) fn keep_free(&mut self, free: impl FnOnce() -> Option<u64>) {
        if self.keep_free == 0 {
            return;
        }
        let Some(mut free) = free() else {
            return;
        };
        // A file system may show freed space late, so it is counted here. Otherwise repeated checks would remove more
        // than needed.
        while free < self.keep_free {
            let Some(bytes) = self.remove_oldest() else {
                self.short = true;
                return;
            };
            self.removed += 1;
            free = free.saturating_add(bytes);
        }
    }

    /// Removes the oldest file that still exists. Returns the disk space that it used.
    fn remove_oldest(&mut self) -> Option<u64> {
        while let Some(file) = self.files.pop_front() {
            // The file may have been removed or replaced by another program.
            let Ok(there) = fs::symlink_metadata(&file.path) else {
                continue;
            };
            let ours = (there.dev(), there.ino()) == (file.device, file.inode);
            if ours && fs::remove_file(&file.path).is_ok() {
                return Some(there.blocks() * 512);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: PathBuf) -> FinishedFile {
        fs::write(&path, [1; 8192]).unwrap();
        let there = fs::metadata(&path).unwrap();
        FinishedFile {
            path,
            device: there.dev(),
            inode: there.ino(),
        }
    }

    fn retention(change: impl Fn(&mut CaptureOutput), ring: usize) -> FileRetention {
        let mut output = CaptureOutput::default();
        change(&mut output);
        FileRetention::new(&output, ring)
    }

    #[test]
    fn only_our_own_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut retention = retention(|o| o.on_enospc = OnFull::RotateDelete, 0);
        for name in ["gone", "anothers", "again", "ours", "last"] {
            retention.add_file(file(at(name)), 1);
        }
        fs::remove_file(at("gone")).unwrap();
        // The new one is created before the old one is removed, so it has another inode number.
        file(at("new"));
        fs::rename(at("new"), at("anothers")).unwrap();
        retention.forget_file(&at("again"));
        assert!(retention.make_room());
        assert!(!at("ours").exists() && at("last").exists());
        assert!(retention.make_room());
        assert!(!retention.make_room());
        assert_eq!(retention.removed, 2);
        assert!(at("anothers").exists() && at("again").exists());
    }

    #[test]
    fn room_is_kept_by_removing_as_much_as_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let mut retention = retention(|o| o.keep_free = 1 << 20, 0);
        for i in 0..4 {
            retention.add_file(file(dir.path().join(i.to_string())), 1);
        }
        retention.keep_free(|| Some(1 << 20));
        retention.keep_free(|| None);
        assert_eq!(retention.removed, 0);
        retention.keep_free(|| Some((1 << 20) - 8193));
        assert_eq!((retention.removed, retention.short), (2, false));
        // A full disk is a separate case.
        assert!(!retention.make_room());
        retention.keep_free(|| Some(0));
        assert_eq!((retention.removed, retention.short), (4, true));
    }

    #[test]
    fn a_ring_counts_the_open_files_too() {
        let dir = tempfile::tempdir().unwrap();
        let mut retention = retention(|_| {}, 3);
        for i in 0..4 {
            retention.add_file(file(dir.path().join(i.to_string())), 1);
        }
        let left = |i: u32| dir.path().join(i.to_string()).exists();
        assert_eq!(
            [left(0), left(1), left(2), left(3)],
            [false, false, true, true]
        );
        assert_eq!(retention.removed, 0);
    }
}
