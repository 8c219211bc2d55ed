//! Runs on this host. Each run leaves a record while it lasts, by which other processes find it and stop it.
//!
//! The records of a user are in a private folder, so other users cannot make a process look like a run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::private_folder::own_folder;
use crate::process;

/// Folder of the records.
const FOLDER: &str = "runs";
/// Maximum size of a record, in bytes.
const LARGEST: u64 = 64 * 1024;
/// Number of names that a run tries.
const TRIES: u16 = 64;

/// Runs of this process so far.
static STARTED: AtomicU16 = AtomicU16::new(0);

/// A run, as its record describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Name on this host: time of the start and four hexadecimal digits.
    pub id: String,
    /// Kind of the run, such as `trial`.
    pub kind: String,
    /// Ports or addresses of the run.
    pub target: String,
    /// Start, in ns since 1970.
    pub started_wall_ns: u64,
    /// Number of the process.
    pub process: u32,
    /// Start of the process, in clock ticks since boot.
    pub start_time: u64,
    /// Number of the PID namespace, in which the number of the process is valid.
    pub pid_namespace: u64,
    /// Command line.
    pub command: String,
    /// Socket of the server that carries out the run and stops it on request. Without it, a signal stops the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<PathBuf>,
}

/// A run that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRun {
    /// Its record.
    pub record: RunRecord,
    /// Number of its user.
    pub user: u32,
}

/// Record of a run of this process. It is removed when the value is dropped, and its lock ends with the process.
#[derive(Debug)]
pub struct Listed(Option<(PathBuf, File)>);

/// Returns the path for the local socket of a server of runs in this process, in a private folder of the user.
///
/// # Errors
/// If no folder can be used.
pub fn server_socket() -> Result<PathBuf> {
    let folder = own_folder("servers")?;
    // Killed servers leave their sockets.
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let refused = UnixStream::connect(&path).err();
        if refused.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(path);
        }
    }
    Ok(folder.join(format!("{}.sock", std::process::id())))
}

impl Listed {
    /// Leaves a record of a run that begins now. `stamp` is the time in the name of the run. `server` is the socket of
    /// the server that carries it out, if any. A run that cannot be recorded is not listed.
    #[must_use]
    pub fn new(
        stamp: &str,
        kind: &str,
        target: &str,
        started_wall_ns: u64,
        server: Option<&Path>,
    ) -> Self {
        let process = std::process::id();
        let record = RunRecord {
            id: String::new(),
            kind: kind.to_owned(),
            target: target.to_owned(),
            started_wall_ns,
            process,
            start_time: process::own_start_time(),
            pid_namespace: pid_namespace(),
            command: process::command_of(process).unwrap_or_default(),
            server: server.map(Path::to_owned),
        };
        let folder = own_folder(FOLDER).ok();
        Self(folder.and_then(|folder| {
            // Removes records of killed processes.
            runs_in(&folder);
            write_in(&folder, stamp, record)
        }))
    }
}

impl Listed {
    /// Name of the run, if it could be recorded.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        let (path, _) = self.0.as_ref()?;
        path.file_stem()?.to_str()
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes a record under a free name. Returns its path and the file, which is locked before it has contents.
fn write_in(folder: &Path, stamp: &str, mut record: RunRecord) -> Option<(PathBuf, File)> {
    for _ in 0..TRIES {
        // An odd factor spreads the numbers of processes over all digits.
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let mixed = (record.process as u16)
            .wrapping_mul(0x9e37)
            .wrapping_add(number);
        record.id = format!("{stamp}-{mixed:04x}");
        let path = folder.join(format!("{}.json", record.id));
        let mut new = File::options();
        match new.create_new(true).write(true).mode(0o600).open(&path) {
            Ok(mut file) => {
                flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
                let text = serde_json::to_vec(&record).ok()?;
                return file.write_all(&text).ok().map(|()| (path, file));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => return None,
        }
    }
    None
}

/// Number of the PID namespace of this process; 0 if it is unknown.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// All runs that this user can see, the oldest first: root sees those of all users. Records of killed processes are
/// removed.
#[must_use]
pub fn running() -> Vec<FoundRun> {
    let mut found: Vec<FoundRun> = folders()
        .iter()
        .flat_map(|folder| runs_in(folder))
        .collect();
    found.sort_by(|a, b| {
        let key = |run: &FoundRun| (run.record.started_wall_ns, run.record.id.clone());
        key(a).cmp(&key(b))
    });
    found
}

/// Returns true if a run has not ended: its process lives, and for a run of a server, its record is still there.
#[must_use]
pub fn lasts(run: &FoundRun) -> bool {
    let is_there = |other: &FoundRun| other.record.id == run.record.id;
    run.is_alive() && (run.record.server.is_none() || running().iter().any(is_there))
}

/// Folders of the records of all users.
fn folders() -> BTreeSet<PathBuf> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let of_users = below(Path::new("/run/user")).into_iter();
    let of_users = of_users.map(|folder| folder.join("wirebench"));
    let temporary = below(Path::new("/tmp")).into_iter();
    let is_ours = |path: &PathBuf, start: &str| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(start))
    };
    let temporary = temporary.filter(|path| is_ours(path, "wirebench-"));
    let places = [PathBuf::from("/run/wirebench")].into_iter();
    let all = places.chain(of_users).chain(temporary);
    let start = format!("{FOLDER}-");
    let all = all.flat_map(|place| below(&place));
    let mut all: BTreeSet<PathBuf> = all.filter(|path| is_ours(path, &start)).collect();
    all.extend(own_folder(FOLDER).ok());
    all
}

/// Runs with a record in this folder.
fn runs_in(folder: &Path) -> Vec<FoundRun> {
    let Ok(owner) = fs::symlink_metadata(folder).map(|found| found.uid()) else {
        return Vec::new();
    };
    let own = rustix::process::getuid().as_raw();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        let Some((file, user, record)) = read(&path).filter(|(_, user, _)| *user == owner) else {
            continue;
        };
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            // In a folder of another user, the path could lead elsewhere by now.
            if owner == own {
                let _ = fs::remove_file(&path);
            }
            continue;
        }
        let found_run = FoundRun { record, user };
        if found_run.is_here() {
            found.push(found_run);
        }
    }
    found
}

/// Reads a record: the file, the number of its owner and the contents. Links and pipes of other users are not followed
/// or waited for.
fn read(path: &Path) -> Option<(File, u32, RunRecord)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = File::options();
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    let about = file.metadata().ok()?;
    let mut text = Vec::new();
    if !about.is_file() || (&file).take(LARGEST).read_to_end(&mut text).is_err() {
        return None;
    }
    let record = serde_json::from_slice(&text).ok()?;
    Some((file, about.uid(), record))
}

impl FoundRun {
    /// Returns true if the number in the record is that of the run's process: it is in the same PID namespace, and the
    /// process belongs to the user of the record. A process of root may have become another user.
    fn is_here(&self) -> bool {
        let is_of_user = || process::user_of(self.record.process) == Some(self.user);
        self.record.pid_namespace == pid_namespace()
            && self.is_alive()
            && (self.user == 0 || is_of_user())
    }

    /// Returns true if the process of the run has not ended. It writes the report after the run.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        process::is_alive(self.record.process, self.record.start_time)
    }

    /// Asks the run to end, as Ctrl-C does.
    ///
    /// # Errors
    /// If the process has ended, or belongs to another user.
    pub fn interrupt(&self) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let number = i32::try_from(self.record.process).map_err(|_| gone())?;
        let process = Pid::from_raw(number).ok_or_else(gone)?;
        // The number belongs to this process from here on, whatever ends meanwhile.
        let process = pidfd_open(process, PidfdFlags::empty())?;
        if !self.is_alive() {
            return Err(gone());
        }
        Ok(pidfd_send_signal(process, Signal::INT)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(process: u32, start_time: u64) -> RunRecord {
        RunRecord {
            id: String::new(),
            kind: "trial".to_owned(),
            target: "a and b".to_owned(),
            started_wall_ns: 7,
            process,
            start_time,
            pid_namespace: pid_namespace(),
            command: "wirebench trial".to_owned(),
            server: None,
        }
    }

    #[test]
    fn runs_are_found_while_they_last() {
        let listed = Listed::new("20261129T164300", "trial", "a and b", 7, None);
        let id = listed.id().expect("a record").to_owned();
        assert!(id.starts_with("20261129T164300-"));
        let own = || running().into_iter().find(|run| run.record.id == id);
        let found = own().expect("it runs");
        assert!(found.is_alive());
        assert_eq!(
            (found.record.kind.as_str(), found.record.process),
            ("trial", std::process::id())
        );
        drop(listed);
        assert_eq!(own(), None);
    }

    #[test]
    fn records_of_others_and_of_the_dead_are_no_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (own, started) = (std::process::id(), process::own_start_time());
        let write = |record: RunRecord| write_in(folder.path(), "t", record).expect("a record");
        let here = write(record(own, started));
        // A second one gets another name.
        let again = write(record(own, started));
        assert_ne!(here.0, again.0);
        let elsewhere = write(RunRecord {
            pid_namespace: 1,
            ..record(own, started)
        });
        // A new process may have the number of one that was killed.
        let (killed, lock) = write(record(own, started));
        drop(lock);
        let reused = write(record(own, started + 1));
        fs::write(folder.path().join("half.json"), "{\"id\":").unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("zero.json")).unwrap();
        assert_eq!(runs_in(folder.path()).len(), 2);
        assert!(!killed.exists() && elsewhere.0.exists() && reused.0.exists());
        // Only root may name a process of root, such as process 1.
        let _first = write(record(1, process::start_time(1).unwrap()));
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(runs_in(folder.path()).len(), 2 + usize::from(is_root));
    }
}
