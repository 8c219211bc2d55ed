//! Limit of open files: raised for this process, restored for the commands that it starts.

use std::{os::unix::process::CommandExt, process::Command, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit at the start of this process.
static AT_START: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files (`ulimit -Sn`) to the hard limit.
pub fn raise_limit() {
    let limit = AT_START.get_or_init(|| getrlimit(Resource::Nofile));
    // The call fails only if the limit cannot be raised.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

/// Makes a command run with the limit that this process was started with.
#[allow(unsafe_code)] // The standard library has no other way to set a limit in the child.
pub fn keep_limit(command: &mut Command) -> &mut Command {
    let Some(limit) = AT_START.get() else {
        return command;
    };
    let (current, maximum) = (limit.current, limit.maximum);
    let restore = move || {
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).map_err(std::io::Error::from)
    };
    // SAFETY: setrlimit is only a system call, and nothing is allocated or locked.
    unsafe { command.pre_exec(restore) }
}
