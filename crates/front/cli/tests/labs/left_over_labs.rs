//! Clean-up of labs after their test process was killed.
//!
//! A test process holds a lock on a file that is named for the prefix of its lab names. The kernel releases the lock
//! when the process ends, however the process ends and in whatever PID namespace it ran. A prefix without a file may
//! belong to a running process, so its labs stay.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::LazyLock,
};

use rustix::fs::{FlockOperation, flock};
use wb_testbed::SweepScope;

/// Lock files of test processes.
const FOLDER: &str = "/run/wirebench/tests";

/// Prefix of the lab names of this process. The first call removes the labs of test processes that have ended.
pub(crate) fn own_prefix() -> &'static str {
    static OWN: LazyLock<Claim> = LazyLock::new(|| {
        let own = Claim::new().expect("a lock file can be made");
        remove_all();
        own
    });
    &OWN.prefix
}

/// Exclusive use of a prefix of lab names, until dropped. The next test process removes the file.
struct Claim {
    prefix: String,
    _lock: File,
}

impl Claim {
    fn new() -> io::Result<Self> {
        fs::create_dir_all(FOLDER)?;
        let pid = std::process::id();
        // A process in another PID namespace may have the same PID.
        for attempt in 0.. {
            let prefix = match attempt {
                0 => format!("tp{pid}-"),
                _ => format!("tp{pid}x{attempt}-"),
            };
            let path = Path::new(FOLDER).join(format!("{prefix}.lock"));
            // Labs of an earlier process with this PID, if any.
            remove_labs_of(&path);
            let created = File::options().write(true).create_new(true).open(&path);
            let file = match created {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created?,
            };
            if let Some(lock) = locked(file, &path) {
                return Ok(Self {
                    prefix,
                    _lock: lock,
                });
            }
        }
        unreachable!("prefixes do not run out")
    }
}

/// Locks the file. Returns none if another process has the lock or has removed the file.
fn locked(file: File, path: &Path) -> Option<File> {
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let (open, named) = (file.metadata().ok()?, fs::metadata(path).ok()?);
    (open.ino() == named.ino()).then_some(file)
}

/// Removes the labs of all test processes that have ended.
pub(crate) fn remove_all() {
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        remove_labs_of(&entry.path());
    }
}

/// Removes the labs of the test process with this lock file, and the file, unless the process is alive.
fn remove_labs_of(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    let Some(_lock) = locked(file, path) else {
        return;
    };
    let Some(prefix) = path.file_stem().and_then(|stem| stem.to_str()) else {
        return;
    };
    let sweep = SweepScope {
        force: true,
        only: Some(prefix.to_owned()),
    };
    match wb_testbed::sweep(&sweep) {
        Ok(_) => drop(fs::remove_file(path)),
        // The next test process tries again.
        Err(error) => eprintln!("labs {prefix}*: {error}"),
    }
}
