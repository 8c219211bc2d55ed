//! Programs that run in the nodes of a lab: the impairing device, haproxy, and those that the lab's maker names. They
//! start with the lab, are recorded in its file, and end with it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, io};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_machine::descriptors::keep_limit;
use wb_machine::{Namespace, in_namespace};

use crate::process::{identify_process, own_session};
use crate::run::spawn_inside;
use crate::{Process, Result, TestbedError};

/// Maximum time until a program is ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between checks of a program that starts.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Program to run in a node of a lab.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// Name in messages and lists, unique in the lab: `broker`, `h1`.
    pub name: String,
    /// Namespace in which the program runs, such as `wb-fleet-h1`.
    pub namespace: String,
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<OsString>,
    /// File for the program's output; an older one is replaced.
    pub log: PathBuf,
    /// Condition for the program to be ready.
    pub ready: Ready,
}

/// Condition for a program to be ready, within 30 s.
#[derive(Clone, Debug)]
pub enum Ready {
    /// Its output has this text.
    Prints(&'static str),
    /// It accepts TCP connections at this address, within its namespace.
    Listens(SocketAddr),
}

/// A program of a lab that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StartedDaemon {
    /// Name of the program in the lab: `broker`, `h1`.
    pub name: String,
    /// Namespace in which the program runs.
    pub namespace: String,
    /// File with the program's output.
    pub log: PathBuf,
    /// Process.
    #[serde(flatten)]
    pub process: Process,
}

/// A program that is not ready yet.
struct Starting<'a> {
    daemon: &'a Daemon,
    namespace: Namespace,
    child: Child,
}

/// Starts the programs together and waits until all are ready.
///
/// # Errors
/// [`TestbedError::NotStarted`] for the first program that ends or is not ready in time; none of them runs then.
pub(crate) fn start_daemons(daemons: &[Daemon]) -> Result<Vec<StartedDaemon>> {
    let mut starting = Vec::new();
    let mut started = Vec::new();
    let all_ready = daemons
        .iter()
        .try_for_each(|daemon| {
            starting.push(daemon.start()?);
            Ok(())
        })
        .and_then(|()| {
            for program in &mut starting {
                started.push(program.wait_until_ready()?);
            }
            Ok(())
        });
    if let Err(error) = all_ready {
        for program in &mut starting {
            let _ = program.child.kill();
            let _ = program.child.wait();
        }
        return Err(error);
    }
    // The handles are dropped without waiting, since the processes must outlive this one.
    Ok(started)
}

/// Starts one program and waits until it is ready.
///
/// # Errors
/// See [`start_daemons`].
pub(crate) fn start_daemon(daemon: &Daemon) -> Result<Process> {
    let started = start_daemons(std::slice::from_ref(daemon))?;
    Ok(started[0].process)
}

impl Daemon {
    fn start(&self) -> Result<Starting<'_>> {
        let failed = |verb| TestbedError::io(verb, self.log.display().to_string());
        let log = File::create(&self.log).map_err(failed("create"))?;
        let also_log = log.try_clone().map_err(failed("open"))?;
        let namespace = Namespace::named(&self.namespace)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also_log);
        own_session(&mut command);
        keep_limit(&mut command);
        let child = spawn_inside(&namespace, &mut command)?;
        Ok(Starting {
            daemon: self,
            namespace,
            child,
        })
    }
}

impl Starting<'_> {
    fn wait_until_ready(&mut self) -> Result<StartedDaemon> {
        let begin = Instant::now();
        let message = loop {
            // A program that has ended may have printed that it was ready.
            if let Ok(Some(_)) = self.child.try_wait() {
                break complaint(&self.log());
            }
            if self.is_ready()?
                && let Some(process) = identify_process(self.child.id())
            {
                return Ok(StartedDaemon {
                    name: self.daemon.name.clone(),
                    namespace: self.daemon.namespace.clone(),
                    log: self.daemon.log.clone(),
                    process,
                });
            }
            if begin.elapsed() > START_TIMEOUT {
                let waited = START_TIMEOUT.as_secs();
                break format!("not ready after {waited} s; {}", complaint(&self.log()));
            }
            thread::sleep(CHECK_INTERVAL);
        };
        Err(TestbedError::NotStarted {
            name: self.daemon.name.clone(),
            message,
        })
    }

    fn is_ready(&self) -> Result<bool> {
        match self.daemon.ready {
            Ready::Prints(text) => Ok(self.log().contains(text)),
            Ready::Listens(address) => {
                let answers = in_namespace(&self.namespace, || TcpStream::connect(address))?;
                Ok(answers.is_ok())
            }
        }
    }

    fn log(&self) -> String {
        let bytes = fs::read(&self.daemon.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The relevant line of a log: the first one that haproxy or nats-server marks as fatal, or the last one.
fn complaint(log: &str) -> String {
    let is_fatal = |line: &&str| line.contains("[ALERT]") || line.contains("[FTL]");
    let line = log.lines().find(is_fatal).or_else(|| log.lines().last());
    line.unwrap_or("it ended without a message")
        .trim()
        .to_owned()
}

/// Path of a program; administration tools are often not in `PATH`.
///
/// # Errors
/// [`TestbedError::Missing`], with the Debian package of the program.
pub fn find_program(program: &'static str, package: &'static str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or(TestbedError::Missing { program, package })
}

/// Names no programs, for labs that need only their device.
///
/// # Errors
/// Never fails.
pub fn no_daemons(_: &crate::LabState, _: &std::path::Path) -> io::Result<Vec<Vec<Daemon>>> {
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relevant_line_is_found() {
        let log = "[NOTICE] path\n[ALERT] (7) : cannot bind socket\n[ALERT] (7) : fatal\n";
        assert_eq!(complaint(log), "[ALERT] (7) : cannot bind socket");
        assert_eq!(
            complaint("[7] [FTL] no certificate\n[7] [INF] exiting\n"),
            "[7] [FTL] no certificate"
        );
        assert_eq!(complaint("one\ntwo \n"), "two");
        assert_eq!(complaint(""), "it ended without a message");
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let missing = find_program("no-such-program", "its-package").unwrap_err();
        assert!(missing.is_input());
        assert!(missing.to_string().contains("apt-get install its-package"));
    }
}
