//! Processes of a lab: finds those inside its namespaces and its device, and ends them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use wb_machine::process;

use crate::daemon::{Daemon, Ready, start_daemon};
use crate::impair::DEVICE_COMMAND;
use crate::{LabState, Process, Result, TestbedError, state};

/// Time for a process to end after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);
/// Additional time for the kernel to end a process after SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// All visible processes of this machine.
fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(crate) fn identify_process(pid: u32) -> Option<Process> {
    Some(Process {
        pid,
        start_time: process::start_time(pid)?,
    })
}

/// Processes whose network namespace is one of these.
pub(crate) fn processes_inside(inodes: &BTreeSet<u64>) -> Vec<Process> {
    let lives_there = |pid: &u32| {
        // `metadata` follows the link to the namespace.
        fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|found| inodes.contains(&found.ino()))
    };
    all_processes()
        .filter(lives_there)
        .filter_map(identify_process)
        .collect()
}

fn user_namespace(pid: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{pid}/ns/user")).ok()?.ino())
}

/// Returns true if no other process is in this process's user namespace.
pub(crate) fn is_alone() -> bool {
    let (own, ours) = (std::process::id(), user_namespace("self"));
    !all_processes().any(|pid| pid != own && user_namespace(&pid.to_string()) == ours)
}

/// Impairing devices of this user namespace, each with the lab file that it received. In other user namespaces
/// the same path is another file.
pub(crate) fn impairing_devices() -> Vec<(Process, PathBuf)> {
    let ours = user_namespace("self");
    all_processes()
        .filter(|pid| user_namespace(&pid.to_string()) == ours)
        .filter_map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            Some((identify_process(pid)?, device_argument(&line)?))
        })
        .collect()
}

fn device_argument(line: &[u8]) -> Option<PathBuf> {
    let words: Vec<&str> = line
        .split(|byte| *byte == 0)
        .filter_map(|word| str::from_utf8(word).ok())
        .collect();
    match words[..] {
        [_, DEVICE_COMMAND, file, ..] if file.ends_with(".json") => Some(file.into()),
        _ => None,
    }
}

/// Ends processes, first with SIGTERM, then with SIGKILL. Spares this process and its ancestors, since the
/// user's shell may itself be inside a lab.
pub(crate) fn end_processes(processes: &[Process]) -> Vec<Process> {
    let spared = own_line();
    let targets: Vec<Process> = processes
        .iter()
        .copied()
        .filter(|p| !spared.contains(&p.pid) && p.is_alive())
        .collect();
    signal_processes(&targets, Signal::TERM);
    if !wait(&targets, GRACE) {
        signal_processes(&targets, Signal::KILL);
        wait(&targets, STOP_TIMEOUT);
    }
    targets
}

fn signal_processes(processes: &[Process], signal: Signal) {
    for process in processes.iter().filter(|process| process.is_alive()) {
        if let Some(pid) = live_pid(*process) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Waits until all processes are gone, and returns true if they are.
fn wait(processes: &[Process], at_most: Duration) -> bool {
    let deadline = Instant::now() + at_most;
    loop {
        for process in processes {
            // Succeeds for children of this process only; no other process would reap them.
            if let Some(pid) = live_pid(*process) {
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
        if !processes.iter().any(|process| process.is_alive()) {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn live_pid(process: Process) -> Option<Pid> {
    Pid::from_raw(i32::try_from(process.pid).ok()?)
}

/// This process and its ancestors.
fn own_line() -> BTreeSet<u32> {
    let mut line = BTreeSet::new();
    let mut next = Some(std::process::id());
    while let Some(pid) = next.filter(|pid| *pid > 1 && line.insert(*pid)) {
        next = parent_pid(pid);
    }
    line
}

fn parent_pid(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Returns true if this process is in the foreground of its terminal, so that Ctrl-C reaches its children too.
pub(crate) fn in_foreground() -> bool {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some(end) = stat.rfind(')') else {
        return false;
    };
    // proc_pid_stat(5): pgrp is the fifth field, tpgid the eighth.
    let fields: Vec<&str> = stat[end + 1..].split_ascii_whitespace().collect();
    fields.len() > 5 && fields[2] == fields[5]
}

/// Starts the impairing device of a lab and waits until its ports are open.
pub(crate) fn start_device(lab: &LabState) -> Result<Process> {
    let program = match &lab.options.device_program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(TestbedError::io("find", "this program"))?,
    };
    let file = state::path_of(&lab.name)?;
    start_daemon(&Daemon {
        name: "the device".into(),
        namespace: lab.links[1].a.namespace.clone(),
        program,
        log: state::log_path(&file),
        arguments: vec![DEVICE_COMMAND.into(), file.into()],
        ready: Ready::Prints(READY),
    })
}

/// Output of the device once it forwards.
pub(crate) const READY: &str = "the device forwards";

/// Detaches a command from Ctrl-C and the end of the terminal: the lab outlives the command that made it.
#[allow(unsafe_code)] // The standard library has no other way to call setsid in the child.
pub(crate) fn own_session(command: &mut Command) {
    let detach = || {
        rustix::process::setsid()
            .map(drop)
            .map_err(std::io::Error::from)
    };
    // SAFETY: setsid is async-signal-safe, and nothing is allocated or locked.
    unsafe { command.pre_exec(detach) };
}

/// Sends `signal` to a command when the thread that starts the command ends, even if the thread is killed. The thread
/// must live as long as the command may.
#[allow(unsafe_code)] // The death signal can only be set in the child.
pub fn end_with_this_thread(command: &mut Command, signal: Signal) {
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(signal)).map_err(std::io::Error::from)
    };
    // SAFETY: prctl is async-signal-safe, and nothing is allocated or locked.
    unsafe { command.pre_exec(bind) };
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn devices_are_known_by_their_command_line() {
        let argument = |line: &[u8]| device_argument(line);
        assert_eq!(
            argument(b"/usr/bin/wirebench\0impair-device\0/run/wirebench/labs/x.json\0"),
            Some("/run/wirebench/labs/x.json".into())
        );
        assert_eq!(
            argument(b"vi\0/run/wirebench/labs/impair-device.json\0"),
            None
        );
        assert_eq!(argument(b"wirebench\0lab\0up\0impair\0"), None);
        assert_eq!(argument(b""), None);
    }

    #[test]
    fn this_process_and_its_parents_are_spared() {
        let line = own_line();
        assert!(line.contains(&std::process::id()));
        assert!(line.contains(&std::os::unix::process::parent_id()));
        assert!(end_processes(&[Process::current()]).is_empty());
    }

    #[test]
    fn a_stubborn_process_is_ended() {
        let script = "trap '' TERM; echo on; while :; do sleep 0.05; done";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let process = identify_process(child.id()).unwrap();
        assert_eq!(end_processes(&[process]), [process]);
        assert!(!process.is_alive());
        assert!(child.wait().is_err(), "it has been waited for");
    }
}
