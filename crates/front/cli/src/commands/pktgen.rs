//! `wirebench pktgen`: control files of the Linux packet generator, and its scripts.

use std::{
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use wb_files::report;
use wb_fuse::{MountOptions, Mounted};
use wb_machine::{PrivateMounts, ShownModule};
use wb_model::{
    Driver, Locator, Plan, PortPlan,
    device::{Defaults, Mode, TimeForm, WatchJob},
    units::Span,
};
use wb_pktgen::{
    control,
    keywords::KEYWORDS,
    pgrx::{self, FileFormat, PgrxReceiver, ReceiverDialect},
};
use wb_pktgen_folder::{Host, Options, PlanOptions, Program, Service};
use wb_render::report::Run;
use wb_session::{Machine, Prepared, Signals, View};

use crate::{
    args::{OutputArgs, count_in},
    deliver::{Fault, check_writable, deliver, print, show},
    metrics::{self, MetricsArgs},
    run::{Runner, listed, run_plan, say_warnings},
    say::say,
};

/// Provide the control files of the Linux packet generator (pktgen) and its receiver (pgrx), and run its scripts.
#[derive(Subcommand, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench pktgen run --netns wb-pair-a ./pktgen_sample01_simple.sh -i a0 -m 02:00:00:00:00:02\n  \
    wirebench pktgen mount /tmp/pktgen --daemon; echo add_device eth2 > /tmp/pktgen/kpktgend_0")]
pub(crate) enum PktgenCommand {
    Mount(Box<MountArgs>),
    Umount(UmountArgs),
    Run(Box<RunArgs>),
    Watch(Box<WatchArgs>),
    Commands(CommandsArgs),
}

/// Options for a control folder.
#[derive(Args, Debug)]
struct FolderArgs {
    /// Network namespace of the interfaces [default: the current one].
    #[arg(long, value_name = "NODE")]
    netns: Option<String>,
    /// Driver for sending: live (the kernel generates the packets), xdp or packet [default: the best available].
    #[arg(long, value_name = "DRIVER", value_parser = driver)]
    driver: Option<Driver>,
    /// Time format in packets: kernel (us, wall clock) or osta (ns, monotonic clock).
    #[arg(long, value_name = "FORM", default_value = "kernel", value_parser = time_form)]
    time: TimeForm,
    /// Variant of the receiver pgrx: osta (2014, jitter of latency) or osta36 (2012, jitter of arrivals).
    #[arg(long, value_name = "DIALECT", default_value = "osta", value_parser = dialect)]
    pgrx: ReceiverDialect,
    /// Seed of random fields; the same seed sends the same packets.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Default of `count` (parameter of the kernel module).
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = count_in::<u64>(0..))]
    pg_count_d: u64,
    /// Default of `delay` in ns (parameter of the kernel module).
    #[arg(long, value_name = "NS", default_value_t = 0)]
    pg_delay_d: u64,
    /// Default of `clone_skb` (parameter of the kernel module).
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count_in::<i32>(0..))]
    pg_clone_skb_d: i32,
    /// Refuse clones and bursts on virtual interfaces, as the kernel does.
    #[arg(long)]
    strict: bool,
    /// Print more on standard error.
    #[arg(short, long)]
    verbose: bool,
    /// Allow destinations outside the benchmark and private ranges and interfaces with the default route.
    #[arg(long)]
    i_own_this_network: bool,
}

/// Mount the control files on a folder.
///
/// Provides the files of /proc/net/pktgen: pgctrl, one kpktgend_N per CPU, one file per device, and pgrx. Additional
/// files: DEVICE.result.json, result.json (the last run), pgrx.json, plan.toml (for `wirebench run`), live.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench pktgen mount /tmp/pktgen                     in the foreground, until Ctrl-C\n  \
    wirebench pktgen mount /tmp/pktgen --daemon --netns wb-pair-a\n  \
    echo \"add_device eth2@0\" > /tmp/pktgen/kpktgend_0; cat /tmp/pktgen/eth2@0")]
pub(crate) struct MountArgs {
    /// Mount point; an existing folder.
    dir: PathBuf,
    /// Run in the background; the command returns once the files are available.
    #[arg(long)]
    daemon: bool,
    /// File to which the daemon appends its warnings and errors.
    #[arg(long, value_name = "FILE", requires = "daemon")]
    log: Option<PathBuf>,
    /// Log file of the daemon; set by --daemon for the background process.
    #[arg(long, hide = true, value_name = "FILE")]
    daemon_of: Option<PathBuf>,
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Unmount the control files of a running or killed daemon.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  wirebench pktgen umount /tmp/pktgen")]
pub(crate) struct UmountArgs {
    /// Mount point.
    dir: PathBuf,
}

/// Run an unmodified script for the kernel's packet generator.
///
/// Only the script sees the control files at /proc/net/pktgen, and they disappear when the script ends. The exit code
/// is the script's.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench pktgen run --netns wb-pair-a ./pktgen_sample01_simple.sh -i a0 -m 02:00:00:00:00:02\n  \
    wirebench pktgen run --report run.json ./mytest.sh\n  \
    wirebench pktgen run bash                              an interactive shell")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Write the report of the last run to this file: FILE.html, FILE.md or FILE.csv; with another name as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Script or program, with its arguments.
    #[arg(
        value_name = "SCRIPT",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    script: Vec<String>,
}

/// Receive as pgrx does, without a control folder: from an interface or a capture file.
///
/// Prints the text of the pgrx file. Without --duration it runs until Ctrl-C, or to the end of a file.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench pktgen watch -i wb-pair-b/b0 --mode time --duration 10s\n  \
    wirebench pktgen watch -i file:capture.pcap --mode time --script")]
pub(crate) struct WatchArgs {
    /// Receiving port.
    #[arg(short, long, value_name = "PORT")]
    interface: Locator,
    /// Measurement: counter, basic or time.
    #[arg(long, value_name = "MODE", default_value = "basic", value_parser = mode)]
    mode: Mode,
    /// Print columns for scripts instead of lines for people.
    #[arg(long)]
    script: bool,
    /// Variant of the receiver pgrx: osta (2014, jitter of latency) or osta36 (2012, jitter of arrivals).
    #[arg(long, value_name = "DIALECT", default_value = "osta", value_parser = dialect)]
    pgrx: ReceiverDialect,
    /// Duration of the measurement.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Also pass the packets to the host instead of consuming them.
    #[arg(long)]
    pass: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// List the commands of device files.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  wirebench pktgen commands | grep mac")]
pub(crate) struct CommandsArgs {}

fn driver(text: &str) -> Result<Driver, String> {
    match text {
        "xdp" => Ok(Driver::Xdp),
        "packet" => Ok(Driver::Packet),
        "live" => Ok(Driver::Live),
        _ => Err("expected live, xdp or packet".to_owned()),
    }
}

fn time_form(text: &str) -> Result<TimeForm, String> {
    match text {
        "kernel" => Ok(TimeForm::Kernel),
        "osta" => Ok(TimeForm::Osta),
        _ => Err("expected kernel or osta".to_owned()),
    }
}

fn dialect(text: &str) -> Result<ReceiverDialect, String> {
    match text {
        "osta" => Ok(ReceiverDialect::Osta),
        "osta36" => Ok(ReceiverDialect::Osta36),
        _ => Err("expected osta or osta36".to_owned()),
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "counter" => Ok(Mode::Counter),
        "basic" => Ok(Mode::Basic),
        "time" => Ok(Mode::Time),
        _ => Err("expected counter, basic or time".to_owned()),
    }
}

impl FolderArgs {
    fn service(&self) -> Result<Arc<Service>> {
        let machine = Machine::open(self.netns.as_deref())?;
        let cpus = machine.online_cpus();
        let options = Options {
            folder: control::ControlOptions {
                defaults: Defaults {
                    count: self.pg_count_d,
                    delay_ns: self.pg_delay_d,
                    clone_skb: self.pg_clone_skb_d,
                    debug: 0,
                },
                strict_sharing: self.strict,
                time_form: self.time,
                receiver: self.pgrx,
            },
            plans: PlanOptions {
                node: self.netns.clone(),
                driver: self.driver,
                seed: self.seed,
                i_own_this_network: self.i_own_this_network,
                time: self.time,
            },
            verbose: self.verbose,
        };
        let program = Program {
            say: |line| say(format_args!("wirebench: {line}")),
            run: metrics::run,
        };
        Ok(Service::new(Host::new(machine), &cpus, options, program))
    }
}

pub(crate) fn run(command: &PktgenCommand) -> Result<u8> {
    match command {
        PktgenCommand::Mount(args) if args.daemon => daemon(args),
        PktgenCommand::Mount(args) => mount(args),
        PktgenCommand::Umount(args) => {
            wb_fuse::unmount(&args.dir)?;
            Ok(0)
        }
        PktgenCommand::Run(args) => script(args),
        PktgenCommand::Watch(args) => watch(args),
        PktgenCommand::Commands(_) => {
            print(&reference());
            Ok(0)
        }
    }
}

/// Interval at which a waiting thread checks for the end.
const LOOK: Duration = Duration::from_millis(100);

fn mount(args: &MountArgs) -> Result<u8> {
    let signals = Signals::install()?;
    let service = args.folder.service()?;
    let _listed = listed("pktgen", &args.dir.display().to_string());
    let mounted = wb_fuse::mount(&args.dir, service.clone(), &MountOptions::default())?;
    let log = match &args.daemon_of {
        Some(log) => Some(
            std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(log)
                .with_context(|| format!("cannot write {}", log.display()))?,
        ),
        None => None,
    };
    // Follows all other steps that can fail, so that a daemon that does not start reports one line with the reason.
    metrics::serve(&args.metrics, &signals)?;
    if let Some(log) = &log {
        say(UP);
        // The parent process ends now, and its end of the pipe closes.
        rustix::stdio::dup2_stderr(log).context("cannot redirect standard error")?;
    }
    say(format_args!(
        "the control files are in {}; remove them with Ctrl-C or `wirebench pktgen umount {}`",
        mounted.path().display(),
        args.dir.display()
    ));
    let signal = loop {
        if let Some(signal) = signals.received() {
            break Some(signal);
        }
        if mounted.wait(LOOK) {
            break None;
        }
    };
    service.close();
    drop(mounted);
    Ok(signal.map_or(0, |n| u8::try_from(128 + n).unwrap_or(130)))
}

/// Last line that a daemon sends to its parent process. A closed pipe is no proof of success, because a failing
/// daemon also closes it shortly before it can be waited for.
const UP: &str = "up";

/// Maximum start-up time of a daemon.
const COMING_UP: Duration = Duration::from_secs(10);

/// Returns the arguments for the daemon process.
fn daemon_args(args: &MountArgs) -> Vec<std::ffi::OsString> {
    let mut list: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(at) = list.iter().position(|a| a == "--log") {
        list.drain(at..(at + 2).min(list.len()));
    }
    list.retain(|a| a != "--daemon" && !a.as_encoded_bytes().starts_with(b"--log="));
    let log = args.log.clone().unwrap_or_else(|| "/dev/null".into());
    list.extend(["--daemon-of".into(), log.into()]);
    list
}

fn daemon(args: &MountArgs) -> Result<u8> {
    // Checked here, because the daemon has no terminal for errors.
    drop(args.folder.service()?);
    let dir = std::path::absolute(&args.dir)?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(program);
    command
        .args(daemon_args(args))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Ctrl-C in this terminal must not reach the daemon.
        .process_group(0);
    let mut child = command.spawn().context("cannot start the daemon")?;
    let mut pipe = child
        .stderr
        .take()
        .context("cannot read the output of the daemon")?;
    let (told, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut pipe, &mut text);
        let _ = told.send(text);
    });
    let Ok(said) = said.recv_timeout(COMING_UP) else {
        let _ = child.kill();
        bail!("the daemon did not start within {} s", COMING_UP.as_secs());
    };
    let mut lines: Vec<_> = said.lines().collect();
    if lines.last() == Some(&UP) {
        lines.pop();
        print(&format!(
            "the control files are in {}, served by process {}",
            dir.display(),
            child.id()
        ));
        // Address of the metrics server.
        lines.into_iter().for_each(say);
        return Ok(0);
    }
    let status = child.wait()?;
    match said.trim().trim_start_matches("wirebench: ") {
        "" => bail!("the daemon ended during start-up ({status})"),
        said => bail!("{said}"),
    }
}

fn script(args: &RunArgs) -> Result<u8> {
    if let Some(path) = &args.report {
        check_writable(path)?;
    }
    // Ctrl-C is left to the script, which decides how to react.
    let mut passed_on = false;
    let signals = Signals::install()?;
    metrics::serve(&args.metrics, &signals)?;
    let service = args.folder.service()?;
    let _listed = listed("pktgen", &args.script.join(" "));
    let namespace = args
        .folder
        .netns
        .as_deref()
        .map(wb_machine::Namespace::named)
        .transpose()?;
    let mounts = PrivateMounts::new(namespace.as_ref())?;
    let folder = mounts.add_to_proc_net("pktgen")?;
    let programs = mounts.show_module(MODULE)?;
    let files = Arc::clone(&service);
    let mounted: Mounted =
        mounts.run(move || wb_fuse::mount(&folder, files, &MountOptions::default()))?;
    let mut child = match spawn_as_shells_do(&mounts, &programs, &args.script) {
        Ok(child) => child,
        Err(error) => {
            service.close();
            mounts.run(move || drop(mounted));
            bail!("{}: {error}", args.script[0]);
        }
    };
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => {
                service.close();
                return Err(error).context("cannot wait for the script");
            }
        }
        // SIGTERM reaches only this process, SIGINT from the terminal reaches both.
        let interrupted = signals.received() == Some(libc_sigint());
        if interrupted && signals.is_for_this_process_only() && !passed_on {
            passed_on = true;
            interrupt(&mounts.processes());
        }
        if signals.received().is_some_and(|n| n != libc_sigint()) || signals.hurry() {
            service.interrupt();
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    if signals.received().is_none() {
        warn_of_what_goes_on(&service, &mounts);
    }
    service.close();
    let saved = args
        .report
        .as_deref()
        .map_or(Ok(()), |path| save(&service, path));
    mounts.run(move || drop(mounted));
    saved?;
    Ok(match (status.code(), status.signal(), signals.received()) {
        (_, _, Some(n)) if n != libc_sigint() => u8::try_from(128 + n).unwrap_or(143),
        (Some(code), _, _) => u8::try_from(code).unwrap_or(1),
        (None, Some(n), _) => u8::try_from(128 + n).unwrap_or(130),
        _ => 1,
    })
}

/// Sends SIGINT to all processes of the script, as a terminal does on Ctrl-C.
fn interrupt(processes: &[u32]) {
    let numbers = processes.iter().filter_map(|pid| i32::try_from(*pid).ok());
    for process in numbers.filter_map(rustix::process::Pid::from_raw) {
        // It may have ended.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::INT);
    }
}

/// Kernel module that scripts load before they use its files.
const MODULE: ShownModule = ShownModule {
    name: "pktgen",
    version: "2.75",
    on_removal: "echo reset > /proc/net/pktgen/pgctrl",
};

/// Warns if a script ended before the work that it started; the files disappear with the script.
fn warn_of_what_goes_on(service: &Service, mounts: &PrivateMounts) {
    let what = if service.is_running() {
        "the script ended while its devices were sending, so they were stopped"
    } else if service.is_unstarted() && !mounts.processes().is_empty() {
        "the script ended before its devices were started, and some of its processes still run"
    } else {
        return;
    };
    say(format!(
        "wirebench: {what}; the control files exist only while the script runs, use `wirebench pktgen mount DIR` to keep them"
    ));
}

/// Starts a program or, as shells do, a script without `#!`, which the kernel refuses to execute. The module loaders
/// in `programs` take precedence over those of the system.
fn spawn_as_shells_do(
    mounts: &PrivateMounts,
    programs: &Path,
    words: &[String],
) -> std::io::Result<Child> {
    let mut path = programs.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    let command = |program: &str, words: &[String]| {
        let mut command = Command::new(program);
        command.args(words).env("PATH", &path);
        command
    };
    let spawned = mounts.spawn(command(&words[0], &words[1..]));
    match spawned {
        // Prefers bash, because existing scripts use its syntax.
        Err(error) if error.raw_os_error() == Some(ENOEXEC) => ["/bin/bash", "/bin/sh"]
            .iter()
            .find_map(|shell| mounts.spawn(command(shell, words)).ok())
            .ok_or(error),
        spawned => spawned,
    }
}

/// "Exec format error" of Linux.
const ENOEXEC: i32 = 8;

fn watch(args: &WatchArgs) -> Result<u8> {
    let mut plan = Plan {
        kind: "pgrx".to_owned(),
        ports: vec![PortPlan::new("rx", args.interface.clone())],
        watches: vec![WatchJob {
            port: "rx".to_owned(),
            mode: args.mode,
            jitter: args.pgrx.jitter(),
            consume: !args.pass,
            duration: args.duration,
        }],
        ..Plan::default()
    };
    let output = &args.output;
    if output.json || output.csv || output.live_json || output.print_plan {
        return run_plan(plan, output, None);
    }
    output.apply(&mut plan)?;
    let mut runner = Runner::new(plan, output, Signals::install()?);
    runner.screen = false;
    let ready = runner.prepare()?;
    say_warnings(&ready);
    let queues = ready.prepared().map(Prepared::watches);
    let queues = queues.unwrap_or_default().to_vec();
    let finished = ready.run(&mut |view: &View<'_>, _: bool| {
        if !output.quiet {
            show(&view.snapshot);
        }
    })?;
    let cpus = if args.interface.is_interface() {
        Machine::open(None)?.online_cpus()
    } else {
        vec![0]
    };
    let mut receiver = PgrxReceiver::new(cpus, args.pgrx);
    let display = if args.script {
        FileFormat::Script
    } else {
        FileFormat::Human
    };
    receiver.execute(&pgrx::ReceiverCommand::Rx { device: None });
    receiver.execute(&pgrx::ReceiverCommand::Display(display));
    for queue in &queues {
        receiver.replace_row(queue.cpu, queue.handle.results().0);
    }
    deliver(&receiver.file_text())?;
    for warning in &finished.report.warnings {
        say(format_args!("wirebench: {warning}"));
    }
    Ok(finished.exit_code())
}

const fn libc_sigint() -> i32 {
    2
}

fn save(service: &Service, path: &Path) -> Result<()> {
    let Some(report) = service.report() else {
        say("wirebench: no run, so no report was written");
        return Ok(());
    };
    if report::Form::of(path).is_ok() {
        let name = "pktgen".to_owned();
        return Ok(report::write(&[Run { name, report }], path)?);
    }
    std::fs::write(path, wb_render::json::report(&report) + "\n").map_err(|e| {
        Fault(format!(
            "cannot write the report to {}: {e}",
            path.display()
        ))
        .into()
    })
}

fn reference() -> String {
    let mut text = String::from("Commands of a device file; one write is one command.\n\n");
    let mut rows: Vec<_> = KEYWORDS.iter().collect();
    rows.sort_by_key(|k| k.name);
    for keyword in rows {
        let mut names = keyword.name.to_owned();
        for alias in keyword.aliases {
            names.push_str(", ");
            names.push_str(alias);
        }
        text.push_str(&format!("{names:<24} {}\n", keyword.doc));
    }
    text.push_str("\nFlags (`flag NAME`, `flag !NAME`):\n\n");
    for flag in wb_model::device::flags::FLAGS {
        text.push_str(&format!("{:<24} {}\n", flag.name, flag.doc));
    }
    text
}
