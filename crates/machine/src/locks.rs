//! Locks that limit each queue to one run and identify the owner.
//!
//! Each lock is an advisory lock on a small file. The kernel releases it when the owner ends in any way. The file names
//! the owner. The locks do not check permissions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::error::{HostError, Result};
use crate::netns::Namespace;
use crate::private_folder::own_folder;
use crate::process;

/// Half of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Sending half.
    Tx,
    /// Receiving half.
    Rx,
}

impl Direction {
    /// `tx` or `rx`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Tx => "tx",
            Direction::Rx => "rx",
        }
    }
}

/// Lock on one half of a queue, held until the value is dropped.
#[derive(Debug)]
pub struct QueueLock {
    file: File,
    path: PathBuf,
}

impl QueueLock {
    /// Locks half a queue of the interface `interface` with index `ifindex` in `namespace`.
    ///
    /// # Errors
    /// [`HostError::QueueHeld`] with the process and command of the owner; a refusal if no folder for locks is
    /// writable.
    pub fn acquire(
        namespace: &Namespace,
        interface: &str,
        ifindex: u32,
        queue: u32,
        direction: Direction,
    ) -> Result<Self> {
        let name = format!(
            "{}-{ifindex}-{queue}-{}",
            namespace.inode(),
            direction.name()
        );
        let path = directory()?.join(name);
        let object = || format!("the lock {}", path.display());
        loop {
            let mut file = open(&path).map_err(HostError::refused("open", object()))?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(HostError::QueueHeld {
                        interface: namespace.place_of(interface),
                        queue,
                        direction: direction.name(),
                        holder: holder(&mut file),
                    });
                }
                Err(e) => return Err(HostError::refused("take", object())(e)),
            }
            // The previous owner may have removed the file between our open and our lock. A lock on a removed file
            // has no effect, so try again.
            if same_file(&file, &path) {
                // The lock works even without the name.
                let _ = sign(&mut file);
                return Ok(QueueLock { file, path });
            }
        }
    }
}

impl Drop for QueueLock {
    fn drop(&mut self) {
        // Remove the file while it is locked, so that no other process can lock a name that will be removed.
        let _ = fs::remove_file(&self.path);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Folder of the locks, separate for each user. A user who could open root's locks could hold them.
fn directory() -> Result<PathBuf> {
    own_folder("locks")
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Owners of queues in this namespace, limited to processes of this user: `process 4711 (wirebench tx -i eth0)`.
///
/// # Errors
/// If the folder of the locks cannot be used.
pub fn holders(namespace: &Namespace) -> Result<Vec<String>> {
    holders_of(&format!("{}-", namespace.inode()))
}

/// Owners of the queues of one interface, in the form of [`holders`], without this process.
///
/// # Errors
/// If the folder of the locks cannot be used.
pub fn others_at(namespace: &Namespace, ifindex: u32) -> Result<Vec<String>> {
    let own = format!("process {} ", std::process::id());
    let mut found = holders_of(&format!("{}-{ifindex}-", namespace.inode()))?;
    found.retain(|holder| !format!("{holder} ").starts_with(&own));
    Ok(found)
}

/// Owners of the locks with names that have this beginning.
fn holders_of(prefix: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory()?).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let Ok(mut file) = open_existing(&entry.path()) else {
            continue;
        };
        // A shared lock, so that concurrent readers do not see each other; released at once.
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => found.push(holder(&mut file)),
            _ => drop(file),
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn open_existing(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

fn same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(held), Ok(named)) => (held.dev(), held.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

fn sign(file: &mut File) -> io::Result<()> {
    let pid = std::process::id();
    let command = process::command_of(pid).unwrap_or_default();
    file.set_len(0)?;
    file.write_all(format!("{pid}\n{command}\n").as_bytes())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    describe(&text)
}

fn describe(text: &str) -> String {
    let mut lines = text.lines();
    match (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    ) {
        // The owner has the lock and has not yet written its name.
        ("", _) => "a process that is just starting".into(),
        (pid, "") => format!("process {pid}"),
        (pid, command) => format!("process {pid} ({command})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_is_told_who_was_first() {
        let here = Namespace::current().unwrap();
        // No interface has such an index, so no other process uses it.
        let index = 0x7f00_0000 + std::process::id();
        let take = |queue, direction| QueueLock::acquire(&here, "eth0", index, queue, direction);

        let first = take(0, Direction::Tx).unwrap();
        let error = take(0, Direction::Tx).unwrap_err().to_string();
        let pid = std::process::id();
        assert!(
            error.starts_with(&format!(
                "queue 0 (tx) of eth0 is in use by process {pid} ("
            )),
            "{error}"
        );
        let _other_half = take(0, Direction::Rx).unwrap();
        let _other_queue = take(1, Direction::Tx).unwrap();

        let held = holders(&here).unwrap();
        assert!(
            held.iter()
                .any(|h| h.starts_with(&format!("process {pid} (")))
        );

        let path = first.path.clone();
        drop(first);
        assert!(!path.exists());
        take(0, Direction::Tx).unwrap();
    }

    #[test]
    fn a_left_over_file_is_no_obstacle() {
        let here = Namespace::current().unwrap();
        let index = 0x7e00_0000 + std::process::id();
        let path = directory()
            .unwrap()
            .join(format!("{}-{index}-0-rx", here.inode()));
        fs::write(
            &path,
            "1\na command that is long gone and has a long name\n",
        )
        .unwrap();
        let lock = QueueLock::acquire(&here, "eth0", index, 0, Direction::Rx).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with(&format!("{}\n", std::process::id())) && !text.contains("long gone")
        );
        drop(lock);
    }

    #[test]
    fn holders_are_described() {
        assert_eq!(
            describe("4711\nwirebench tx -i eth0\n"),
            "process 4711 (wirebench tx -i eth0)"
        );
        assert_eq!(describe("4711\n"), "process 4711");
        assert_eq!(describe(""), "a process that is just starting");
    }
}
