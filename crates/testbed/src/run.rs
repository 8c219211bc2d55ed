//! Commands inside a node of a lab, and commands with a temporary lab.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Pid, Signal};
use rustix::thread::UnshareFlags;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use wb_machine::{Namespace, descriptors::keep_limit};

use crate::{Lab, LabKind, LabOptions, MakeDaemons, Result, TestbedError, process, state, user};

/// Signals that are forwarded to the command.
const PASSED_ON: [i32; 4] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];

/// Runs a command inside the namespace `node`, with a `/sys` that shows its interfaces, as
/// `ip netns exec` does. Returns the exit code of the command, or 128 + n if signal n ended it.
///
/// # Errors
/// No such namespace or command; missing privileges.
pub fn exec(node: &str, argv: &[String]) -> Result<i32> {
    // Inside a user namespace, outer names must be hidden first.
    state::lab_directory()?;
    let namespace = Namespace::named(node)?;
    let mut signals = watch_signals()?;
    let child = spawn_inside(&namespace, &mut build_command(argv)?)?;
    wait(child, &mut signals)
}

/// Starts a command inside a namespace, with a `/sys` that shows its interfaces.
pub(crate) fn spawn_inside(namespace: &Namespace, command: &mut Command) -> Result<Child> {
    thread::scope(|scope| {
        // The child begins in the namespaces of the thread that starts it.
        let starter = scope.spawn(|| {
            enter_namespace(namespace)?;
            start(command)
        });
        starter
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Makes a lab, runs a command, takes the lab down, and returns the command's exit code.
/// Forwards signals to the command; takes the lab down in any case.
///
/// # Errors
/// Same as [`crate::up`]; no such command.
pub fn run(
    kind: LabKind,
    options: &LabOptions,
    daemons: MakeDaemons<'_>,
    argv: &[String],
) -> Result<i32> {
    let mut signals = watch_signals()?;
    let lab = Lab::with_daemons(kind, options, daemons)?;
    if let Some(signal) = signals.pending().find(|signal| PASSED_ON.contains(signal)) {
        return Err(TestbedError::Interrupted { signal });
    }
    let code = build_command(argv).and_then(|mut command| {
        // If this program is killed, nothing takes the lab down after the command.
        process::end_with_this_thread(&mut command, Signal::TERM);
        wait(start(&mut command)?, &mut signals)
    });
    lab.down()?;
    code
}

fn watch_signals() -> Result<Signals> {
    Signals::new(PASSED_ON.into_iter().chain([SIGCHLD]))
        .map_err(TestbedError::io("watch", "signals"))
}

fn build_command(argv: &[String]) -> Result<Command> {
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| TestbedError::Input("no command was given".into()))?;
    let mut command = Command::new(program);
    command.args(arguments);
    keep_limit(&mut command);
    Ok(command)
}

fn start(command: &mut Command) -> Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(TestbedError::io("start", program))
}

/// Moves this thread into `namespace`, with a matching view of `/sys`.
fn enter_namespace(namespace: &Namespace) -> Result<()> {
    let refused = |object: &str| TestbedError::io("prepare", format!("{object} for the command"));
    user::unshare_namespaces(UnshareFlags::NEWNS).map_err(refused("a mount namespace"))?;
    let quiet = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", quiet).map_err(refused("the mounts"))?;
    namespace.enter()?;
    // Some containers do not permit this. The command then sees the interfaces of the outer namespace in
    // /sys/class/net, and the right ones everywhere else.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = rustix::mount::mount("sysfs", "/sys", "sysfs", flags, None);
    Ok(())
}

/// Waits for the command and forwards signals to it.
fn wait(mut child: Child, signals: &mut Signals) -> Result<i32> {
    let lost = || TestbedError::io("wait for", "the command");
    loop {
        if let Some(status) = child.try_wait().map_err(lost())? {
            return Ok(exit_code(status));
        }
        for signal in signals.wait().filter(|signal| PASSED_ON.contains(signal)) {
            // The terminal has sent Ctrl-C to the command already.
            let from_terminal = matches!(signal, SIGINT | SIGQUIT) && process::in_foreground();
            if !from_terminal
                && let (Some(pid), Some(signal)) = (
                    Pid::from_raw(child.id().cast_signed()),
                    Signal::from_named_raw(signal),
                )
            {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
