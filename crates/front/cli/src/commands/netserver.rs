//! `wirebench netserver`: server for socket tests of netperf and wirebench.

use std::{
    io::Read,
    net::TcpStream,
    os::fd::{AsFd, OwnedFd},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use clap::Args;
use wb_model::{Plan, socket::SocketServerJob};
use wb_session::{Prepared, Signals, StartError, View};

use super::netperf::write_all;
use crate::{
    args::{OutputArgs, count_in},
    deliver::{deliver_report, print, show},
    run::{Runner, is_to_run},
    say::{say, say_as_is},
};

/// Set in the environment of the background process, which must not start another one.
const IN_BACKGROUND: &str = "WIREBENCH_NETSERVER_BACKGROUND";

/// Serve socket tests of netperf and wirebench, with netserver's command line.
///
/// wirebench options come before `--`, netserver's options after it; without wirebench options `--` may be omitted.
/// Without -D the server moves to the background, as netserver does.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench netserver -D                          in the foreground, port 12865\n  \
    wirebench netserver -D -L 198.18.1.2 -p 4444 -Z secret\n  \
    wirebench netserver --clients 16 -- -D          at most 16 clients at a time\n  \
    wirebench netserver -h                          netserver's own options\n  \
    ln -s $(command -v wirebench) netserver; ./netserver -D")]
pub(crate) struct NetserverArgs {
    /// Maximum number of clients; further clients are rejected at once [default: 1024].
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(1..=10_000))]
    clients: Option<u32>,
    /// Maximum number of clients per address, or per IPv6 /64 [default: 512].
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(1..=10_000))]
    clients_per_address: Option<u32>,
    /// Time after which a control connection without a test is closed [default: 60s].
    #[arg(long, value_name = "TIME")]
    idle: Option<wb_model::units::Span>,
    /// Also serve at addresses that no interface of this machine has.
    #[arg(long)]
    any_address: bool,
    /// Accept test data from any address, not only from the client's, for clients that send data over another network
    /// than their control connection.
    #[arg(long)]
    any_source: bool,
    /// Switch to this user once listening [default: nobody if started by root]; `root` keeps root.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    /// Options of netserver.
    #[arg(value_name = "NETSERVER", last = true)]
    words: Vec<String>,
}

pub(crate) fn run(args: &NetserverArgs) -> Result<u8> {
    let command = match wb_netperf::netserver(&args.words) {
        Ok(command) => command,
        Err(refusal) => {
            match refusal.to_stdout {
                true => write_all(&refusal.text)?,
                false => say_as_is(&refusal.text),
            }
            return Ok(u8::try_from(refusal.code).unwrap_or(255));
        }
    };
    let child = std::env::var_os(IN_BACKGROUND).is_some();
    for note in command.notes.iter().filter(|_| !child) {
        say_as_is(&note.text);
    }
    let mut job: SocketServerJob = command.job.clone();
    job.clients = args.clients.unwrap_or(job.clients);
    job.clients_per_address = args.clients_per_address.unwrap_or(job.clients_per_address);
    job.any_source |= args.any_source;
    job.user = args.user.clone().or(job.user);
    job.idle = args.idle.unwrap_or(job.idle);
    job.any_address |= args.any_address;
    let mut plan = Plan {
        kind: "netserver".to_owned(),
        socket_server: Some(job),
        ..Plan::default()
    };
    if !is_to_run(&mut plan, &args.output)? {
        return Ok(0);
    }
    let runner = |plan| -> Result<Runner<'_>> {
        let mut runner = Runner::new(plan, &args.output, Signals::install()?);
        runner.screen = false;
        Ok(runner)
    };
    if let Some(control) = inherited(&command) {
        let mut runner = runner(plan)?;
        runner.extras.control_connection = Some(control);
        let finished = runner.prepare()?.run(&mut |_: &View<'_>, _: bool| {})?;
        return Ok(finished.exit_code());
    }
    if child {
        // A new session: signals of the starting terminal must not reach the server. The process is no group leader,
        // so this works.
        let _ = rustix::process::setsid();
    }
    if !command.foreground && !child {
        return to_background(&command);
    }
    // Process lists show netserver, whatever the name of the file.
    let _ = rustix::thread::set_name(c"netserver");
    let server = match runner(plan)?.prepare() {
        Ok(server) => server,
        Err(error) if error.is::<StartError>() => {
            say(format_args!("wirebench: {error}"));
            say_as_is(wb_netperf::cannot_start(&command));
            return Ok(1);
        }
        Err(error) => return Err(error),
    };
    if child {
        let_go()?;
    }
    // A document on standard output must be the only output there.
    if !child && !args.output.json && !args.output.live_json && !args.output.csv {
        write_all(&wb_netperf::start_line(&command))?;
    }
    if args.output.verbose {
        let addresses = server.prepared().map(Prepared::addresses);
        for address in addresses.unwrap_or_default() {
            say(format_args!("listening at {address}"));
        }
    }
    let (live_json, quiet) = (args.output.live_json, args.output.quiet);
    let verbose = args.output.verbose;
    let finished = server.run(&mut |view: &View<'_>, _: bool| {
        if live_json {
            print(&wb_render::json::snapshot("netserver", &view.snapshot));
        } else if verbose && !quiet {
            show(&view.snapshot);
        }
    })?;
    if args.output.json || args.output.csv || args.output.verbose {
        deliver_report(&finished.report, &args.output)?;
    }
    Ok(finished.exit_code())
}

/// Returns the control connection on standard input if a super-server such as inetd started the program.
fn inherited(command: &wb_netperf::ServerCommand) -> Option<TcpStream> {
    if command.stand_alone {
        return None;
    }
    let input = std::io::stdin();
    rustix::net::sockopt::socket_type(input.as_fd()).ok()?;
    let own: OwnedFd = input.as_fd().try_clone_to_owned().ok()?;
    let stream = TcpStream::from(own);
    stream.peer_addr().ok()?;
    Some(stream)
}

/// Message of the background server to its parent process, once it listens.
const LISTENS: &[u8] = b"listens\n";

/// Reports to the parent process that the server listens, and releases the inherited output.
fn let_go() -> Result<()> {
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .context("cannot open /dev/null")?;
    rustix::stdio::dup2_stderr(&null)?;
    let _ = rustix::io::write(rustix::stdio::stdout(), LISTENS);
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// Starts the same command again without a terminal and returns once it listens, so that clients can connect. If the
/// start fails, prints the error of the background process.
fn to_background(command: &wb_netperf::ServerCommand) -> Result<u8> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let words: Vec<_> = std::env::args_os().collect();
    let words = crate::alias::translated(&words).unwrap_or(words);
    let mut child = Command::new(program)
        .args(&words[1..])
        .env(IN_BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the background process; use -D to stay in the foreground")?;
    let mut said = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        // Ends when the background process closes its output, after it listens.
        let _ = out.read_to_end(&mut said);
    }
    if said == LISTENS {
        write_all(&wb_netperf::start_line(command))?;
        return Ok(0);
    }
    write_all(&String::from_utf8_lossy(&said))?;
    let status = child
        .wait()
        .context("cannot wait for the background process")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}
