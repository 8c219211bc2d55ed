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
fn remove_all() {
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

mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _},
        process::{Child, ChildStdout, Command, Stdio},
    };

    use crate::{
        kit::{Lab, eventually, privileged, system},
        turns::Turn,
    };

    /// A test process that has a lab.
    struct Other {
        child: Child,
        said: BufReader<ChildStdout>,
        lab: String,
    }

    impl Other {
        fn start(before: &[&str]) -> Self {
            let mut words: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
            let program = std::env::current_exe().unwrap();
            words.push(program.to_str().unwrap().to_owned());
            let mut child = Command::new(&words[0])
                .args(&words[1..])
                .args(["--exact", "left_over_labs::tests::a_process_with_a_lab"])
                .args(["--ignored", "--nocapture"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = BufReader::new(child.stdout.take().unwrap());
            let mut lines = said.by_ref().lines().map(Result::unwrap);
            let lab = lines.find_map(|line| Some(line.split_once("has lab ")?.1.to_owned()));
            Self {
                lab: lab.expect("a lab"),
                said,
                child,
            }
        }

        fn lab_exists(&self) -> bool {
            let listed = system("ip", &["netns", "list"]).stdout;
            String::from_utf8_lossy(&listed).contains(&format!("wb-{}-a", self.lab))
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            // Closes its input.
            let _ = self.child.wait();
        }
    }

    #[test]
    #[ignore = "run by the test below"]
    fn a_process_with_a_lab() {
        let lab = Lab::up("pair", &[]);
        println!("has lab {}", lab.name);
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    }

    #[test]
    fn labs_of_ended_processes_are_removed_and_labs_of_running_processes_stay() {
        if !privileged() {
            return;
        }
        let _turn = Turn::beside_others();
        let mut killed = Other::start(&[]);
        let running = Other::start(&[]);
        let elsewhere = Other::start(&["unshare", "--pid", "--fork", "--mount-proc"]);
        assert!(killed.lab_exists() && running.lab_exists() && elsewhere.lab_exists());
        killed.child.kill().unwrap();
        killed.child.wait().unwrap();
        super::remove_all();
        // Another test process may have been first, and at work.
        eventually("the lab is gone", || !killed.lab_exists());
        assert!(running.lab_exists() && elsewhere.lab_exists());
        for mut other in [running, elsewhere] {
            drop(other.child.stdin.take());
            let _ = other.said.read_to_end(&mut Vec::new());
            assert!(other.child.wait().unwrap().success());
            assert!(!other.lab_exists());
        }
    }
}
