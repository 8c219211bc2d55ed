//! A program that runs for each finished file, alongside the capture.
//!
//! Programs are started directly, without a shell, with the file as the only argument, at the lowest priority and two
//! at a time. Failures are reported at the end and stop nothing.

use std::{
    collections::HashSet,
    ffi::OsStr,
    io,
    os::{
        fd::AsFd,
        unix::{fs::PermissionsExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use wb_engine::signals::Signals;
use wb_machine::descriptors::keep_limit;
use wb_open::StartError;

/// Maximum number of programs that run at once.
const AT_ONCE: usize = 2;
/// Lowest scheduling priority (nice value).
const LOWEST: i32 = 19;
/// Interval at which signals are checked while programs run.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum number of failures that are reported individually.
const MAX_LISTED_FAILURES: usize = 5;

/// Runs the programs.
pub(crate) struct Commands {
    program: String,
    threads: Vec<JoinHandle<()>>,
    state: Arc<Mutex<CommandState>>,
}

#[derive(Default)]
struct CommandState {
    failures: Vec<String>,
    failed: usize,
    running: HashSet<PathBuf>,
}

impl Commands {
    /// Waits for files and runs the program for each received file. Ends when the last sender is dropped.
    ///
    /// # Errors
    /// Fails if there is no such program or a thread cannot be started.
    pub(crate) fn start(program: &str) -> Result<(Sender<PathBuf>, Self), StartError> {
        if !is_program(program) {
            let what = format!(
                "{program:?} is not an executable program; name a program without arguments"
            );
            return Err(StartError::stream("-z", what));
        }
        let (sender, files) = channel();
        let files = Arc::new(Mutex::new(files));
        let state = Arc::new(Mutex::new(CommandState::default()));
        let mut threads = Vec::new();
        for number in 0..AT_ONCE {
            let (program, files) = (program.to_owned(), Arc::clone(&files));
            let state = Arc::clone(&state);
            let thread = std::thread::Builder::new()
                .name(format!("wb-command-{number}"))
                .spawn(move || work(&program, &files, &state))
                .map_err(StartError::thread)?;
            threads.push(thread);
        }
        let program = program.to_owned();
        Ok((
            sender,
            Self {
                program,
                threads,
                state,
            },
        ))
    }

    /// Waits until all programs have ended, unless a second signal came. Returns the failures.
    pub(crate) fn finish(self, signals: &Signals) -> Vec<String> {
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if signals.hurry() {
                let mut failures = self.failures();
                failures.push(format!(
                    "-z {}: ended with {} still running; later files were not processed",
                    self.program,
                    lock(&self.state).running.len()
                ));
                return failures;
            }
            std::thread::sleep(LOOK);
        }
        self.failures()
    }

    fn failures(&self) -> Vec<String> {
        let state = lock(&self.state);
        let mut failures = state.failures.clone();
        if state.failed > failures.len() {
            let more = state.failed - failures.len();
            failures.push(format!("-z {}: {more} more failed", self.program));
        }
        failures
    }
}

fn work(program: &str, files: &Mutex<Receiver<PathBuf>>, state: &Mutex<CommandState>) {
    // On Linux the priority belongs to the thread, and child processes inherit it.
    let _ = wb_machine::cpu::set_nice(LOWEST);
    loop {
        let next = lock(files).recv();
        let Ok(file) = next else { return };
        lock(state).running.insert(file.clone());
        let result = run(program, &file);
        let mut state = lock(state);
        state.running.remove(&file);
        if let Err(why) = result {
            state.failed += 1;
            if state.failures.len() < MAX_LISTED_FAILURES {
                let file = file.display();
                state.failures.push(format!("-z {program} {file}: {why}"));
            }
        }
    }
}

fn run(program: &str, file: &Path) -> Result<(), String> {
    // Standard output may carry the frames or the report.
    let stderr = io::stderr().as_fd().try_clone_to_owned();
    let status = keep_limit(&mut Command::new(program))
        .arg(file)
        .stdin(Stdio::null())
        .stdout(stderr.map_or_else(|_| Stdio::null(), Stdio::from))
        // Ctrl-C ends the capture, but a program that has started runs to its end.
        .process_group(0)
        .status()
        .map_err(|cause| wb_machine::cause_text(&cause))?;
    match status.success() {
        true => Ok(()),
        false => Err(status.to_string()),
    }
}

/// Returns true if an executable of this name exists, here or in the path.
fn is_program(name: &str) -> bool {
    let runs = |path: &Path| {
        path.metadata()
            .is_ok_and(|told| told.is_file() && told.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return runs(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| runs(&folder.join(OsStr::new(name))))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a script. A separate process writes the file: a child that another test starts meanwhile would inherit
    /// our descriptor, and a file that is open for writing cannot be run.
    fn script(dir: &Path, text: &str) -> String {
        let path = dir.join("program").display().to_string();
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let written = Command::new("sh").args(["-c", write, &path, text]).status();
        assert!(written.unwrap().success());
        path
    }

    fn after(program: &str, files: impl IntoIterator<Item = PathBuf>) -> Vec<String> {
        let (sender, commands) = Commands::start(program).unwrap();
        files
            .into_iter()
            .for_each(|file| sender.send(file).unwrap());
        drop(sender);
        commands.finish(&Signals::none())
    }

    #[test]
    fn each_file_is_the_only_argument_and_the_priority_is_low() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "echo \"$# $(nice)\" > \"$1.done\"");
        let files: Vec<_> = (0..5).map(|i| dir.path().join(format!("a ;{i}"))).collect();
        assert_eq!(after(&program, files.clone()), [""; 0]);
        for file in files {
            let done = format!("{}.done", file.display());
            assert_eq!(std::fs::read_to_string(done).unwrap(), "1 19\n");
        }
    }

    #[test]
    fn failures_are_told_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "exit 3");
        let failures = after(&program, (0..9).map(|i| PathBuf::from(i.to_string())));
        assert_eq!(failures.len(), MAX_LISTED_FAILURES + 1);
        assert!(failures[0].ends_with(": exit status: 3"), "{}", failures[0]);
        assert!(
            failures[MAX_LISTED_FAILURES].ends_with(": 4 more failed"),
            "{}",
            failures[MAX_LISTED_FAILURES]
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_refused() {
        for name in [
            "wb-no-such-program",
            "/wb/no/such",
            "/etc/passwd",
            "gzip -9",
        ] {
            let error = Commands::start(name).err().expect("refused").to_string();
            assert!(error.contains("not an executable program"), "{error}");
        }
    }
}
