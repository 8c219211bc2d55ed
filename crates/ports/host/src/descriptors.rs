//! The limit of open files: raised for this process, unchanged for the commands that it starts.

use std::{os::unix::process::CommandExt, process::Command, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that this process was started with.
static AT_START: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files (`ulimit -Sn`) to the hard limit.
pub fn raise_limit() {
    let limit = AT_START.get_or_init(|| getrlimit(Resource::Nofile));
    // Refused only where the limit stays as it is.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

/// Starts a command with the limit of open files that this process was started with.
#[allow(unsafe_code)] // The standard library has no other way to set a limit in the child.
pub fn keep_limit(command: &mut Command) -> &mut Command {
    let Some(limit) = AT_START.get() else {
        return command;
    };
    let (current, maximum) = (limit.current, limit.maximum);
    let restore = move || {
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).map_err(std::io::Error::from)
    };
    // SAFETY: setrlimit is a system call alone, and nothing is allocated or locked.
    unsafe { command.pre_exec(restore) }
}
