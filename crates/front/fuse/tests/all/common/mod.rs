//! A toy folder, and shells that use it, all with a time limit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use wb_fuse::{
    Answer, ControlFiles, MountError, MountOptions, Mounted, Writer, is_control_folder, mount,
    unmount,
};

/// Time after which a test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// `log` contains what was written to it, `ctl` blocks on `start` until `stop`, `refuse` fails with
/// the number written to it, `rest` can only be read and is long, `gone` exists and cannot be read.
#[derive(Default)]
pub(crate) struct Toy {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) written: Vec<String>,
    pub(crate) writers: Vec<Writer>,
    pub(crate) blocked: Vec<Answer>,
    pub(crate) interrupts: Vec<(String, Writer)>,
    extra: BTreeMap<String, String>,
    reads: u64,
}

pub(crate) const LONG: usize = 300_000;

impl Toy {
    /// Locks the state even after a panic: a failed test must still release its writers.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a condition holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let state = self.lock();
        let (_state, timeout) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !holds(state))
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "{what}");
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let value = f(&mut self.lock());
        self.changed.notify_all();
        value
    }

    pub(crate) fn written(&self) -> Vec<String> {
        self.with(|state| std::mem::take(&mut state.written))
    }

    pub(crate) fn add(&self, name: &str, content: &str) {
        self.with(|state| state.extra.insert(name.into(), content.into()));
    }

    pub(crate) fn remove(&self, name: &str) {
        self.with(|state| state.extra.remove(name));
    }

    /// Releases all blocked writers.
    pub(crate) fn release(&self) {
        let blocked = self.with(|state| std::mem::take(&mut state.blocked));
        blocked.into_iter().for_each(Answer::taken);
    }
}

const NAMES: [&str; 5] = ["log", "ctl", "refuse", "rest", "gone"];

impl ControlFiles for Toy {
    fn names(&self) -> Vec<String> {
        let own = NAMES.iter().map(ToString::to_string);
        self.with(|state| own.chain(state.extra.keys().cloned()).collect())
    }

    fn exists(&self, name: &str) -> bool {
        self.names().iter().any(|existing| existing == name)
    }

    fn mode(&self, name: &str) -> u32 {
        if name == "rest" { 0o400 } else { 0o600 }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, i32> {
        self.with(|state| {
            state.reads += 1;
            match name {
                "log" => Ok(format!("Reads: {}\nResult: OK: log\n", state.reads).into()),
                "ctl" => Ok(format!("Blocked: {}\n", state.blocked.len()).into()),
                "rest" => Ok((0..LONG).map(|n| b'a' + (n / 1000 % 26) as u8).collect()),
                "gone" => Err(libc::ENODEV),
                other => state
                    .extra
                    .get(other)
                    .map(|t| t.clone().into())
                    .ok_or(libc::ENOENT),
            }
        })
    }

    fn write(&self, name: &str, command: &[u8], writer: Writer, answer: Answer) {
        let text = String::from_utf8_lossy(command).into_owned();
        let word = text.trim_end().to_owned();
        self.with(|state| {
            state.written.push(text);
            state.writers.push(writer);
        });
        match (name, word.as_str()) {
            ("ctl", "start") => self.with(|state| state.blocked.push(answer)),
            ("ctl", "stop") => {
                self.release();
                answer.taken();
            }
            ("ctl", _) => answer.refused(libc::EINVAL),
            ("refuse", number) => answer.refused(number.parse().unwrap()),
            ("gone", _) => drop(answer),
            _ => answer.taken(),
        }
    }

    fn interrupted(&self, name: &str, writer: Writer) {
        self.with(|state| state.interrupts.push((name.to_owned(), writer)));
        self.release();
    }
}

/// A folder that unmounts everything still mounted on it, even if its daemon was killed and the test then failed.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while is_control_folder(self.path()).unwrap_or(false) && unmount(self.path()).is_ok() {}
    }
}

/// A mounted toy. The mount is dropped before its folder.
pub(crate) struct Playground {
    pub(crate) mounted: Mounted,
    pub(crate) toy: Arc<Toy>,
    pub(crate) dir: tempfile::TempDir,
    _watchdog: mpsc::Sender<()>,
}

impl Playground {
    pub(crate) fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let toy = Arc::new(Toy::default());
        let mounted = mount_or_skip(dir.path(), &toy)?;
        let (watchdog, life) = mpsc::channel::<()>();
        // A shell that hangs behind a blocked write could not even be killed.
        let watched = Arc::clone(&toy);
        std::thread::spawn(move || {
            if life.recv_timeout(2 * PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test takes too long: all writers are released");
                watched.release();
            }
        });
        Some(Playground {
            mounted,
            toy,
            dir,
            _watchdog: watchdog,
        })
    }

    /// Output of a shell in the folder, errors included, followed by its exit status.
    pub(crate) fn bash(&self, script: &str) -> String {
        told(&bash_in(self.dir.path(), script).output().unwrap())
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        // No writer stays blocked after a failed test.
        self.toy.release();
    }
}

/// Mounts, or prints why a test that needs it is skipped.
pub(crate) fn mount_or_skip(dir: &Path, toy: &Arc<Toy>) -> Option<Mounted> {
    match mount(
        dir,
        Arc::clone(toy) as Arc<dyn ControlFiles>,
        &MountOptions::default(),
    ) {
        Ok(mounted) => Some(mounted),
        Err(e @ MountError::NoFuse { .. }) => {
            wb_testing::skipped(e);
            None
        }
        Err(e) if !rustix::process::geteuid().is_root() => {
            wb_testing::skipped(e);
            None
        }
        Err(e) => panic!("{e}"),
    }
}

pub(crate) fn bash_in(dir: &Path, script: &str) -> Command {
    let mut command = Command::new("timeout");
    // In the foreground the signals sent to the shell reach it alone.
    command.args(["--foreground", "-k", "1", "20", "bash", "-c", script]);
    command
        .current_dir(dir)
        .stdin(Stdio::null())
        .env("LC_ALL", "C");
    command
}

pub(crate) fn told(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        writeln!(text, "({})", output.status).unwrap();
    }
    text
}
