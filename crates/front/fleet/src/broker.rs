//! A broker of this process: `nats-server` with the configuration of a fleet.

use std::{
    fs::File,
    io,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::pki::in_file;

/// A running broker. It ends with this value.
#[derive(Debug)]
pub struct Broker {
    child: Child,
}

impl Broker {
    /// Starts `nats-server` with a configuration file. Its messages go to a file.
    ///
    /// # Errors
    /// If there is no such program, or it cannot be started.
    pub fn start(config: &Path, log: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.map_err(|e| in_file(log, &e))?;
        let mut command = Command::new("nats-server");
        command
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            // A Ctrl-C ends the runs first, which need the broker.
            .process_group(0);
        let child = command.spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => io::Error::other(
                "nats-server was not found; install it (package nats-server), or give the URL of a broker",
            ),
            _ => io::Error::other(format!("cannot start nats-server: {e}")),
        })?;
        Ok(Self { child })
    }

    /// Why the broker has ended, if it has.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("nats-server ended: {status}"))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let _ = self.child.wait();
    }
}
