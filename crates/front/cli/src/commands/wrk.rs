//! `wirebench wrk`: command line, scripts and output of wrk.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use clap::Args;
use wb_model::{
    Plan,
    http::{HttpJob, HttpScript, plain_zone},
    units::Span,
};
use wb_session::input::{LARGEST_TEXT, read_file};
use wb_session::{End, Scripts, Signals, View, admit_servers, needs_no_zone};
use wb_wrk::{
    Stats, WrkCommand, WrkExit, WrkResults, banner, results,
    script::{MEMORY_BYTES, RunSummary, ScriptHost, ScriptIo, ScriptSettings, fatal_message},
};

use crate::{
    args::OutputArgs,
    commands::netperf::write_all,
    deliver::{deliver_report, print},
    run::{Runner, is_to_run},
    say::{say, say_as_is, say_bytes},
    stdout::stdout,
};

/// Load an HTTP server with wrk's command line, scripts and output.
///
/// wirebench options come first: --json, --csv, --live-json, --print-plan, --trust-script, --i-own-this-network,
/// --report, --metrics, --metrics-linger. A link named wrk accepts only wrk's options; WIREBENCH_TRUST_SCRIPT=1
/// trusts its script.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench wrk -t2 -c100 -d30s --latency http://web.lab/\n  \
    wirebench wrk -c100 -d10s -s examples/http/post.lua http://web.lab/ -- a b\n  \
    wirebench wrk -h                                wrk's own options\n  \
    wirebench wrk --json -c100 -d10s http://web.lab/\n  \
    ln -s $(command -v wirebench) wrk; ./wrk -c100 -d10s http://web.lab/")]
pub(crate) struct WrkArgs {
    /// Allow the script to open files, start programs and load libraries.
    #[arg(long)]
    trust_script: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// Options of wrk.
    #[arg(value_name = "WRK", last = true)]
    words: Vec<String>,
}

/// Options of wirebench that may precede wrk's options.
pub(crate) const OURS: [&str; 7] = [
    "--help",
    "--json",
    "--csv",
    "--live-json",
    "--print-plan",
    "--trust-script",
    "--i-own-this-network",
];
/// Options among [`OURS`] that take a value, as the next word or after `=`.
pub(crate) const OURS_WITH_VALUE: [&str; 3] = ["--report", "--metrics", "--metrics-linger"];

/// If set to 1, the script is trusted, because a link named wrk has no option for that.
const TRUST: &str = "WIREBENCH_TRUST_SCRIPT";

/// Host as seen by scripts.
struct Machine {
    /// True if connections may go to benchmark addresses by the default route.
    consent: bool,
}

impl Machine {
    /// Checks that the host of the command line may be used. A name without addresses fails later.
    fn admit_host(&self, command: &WrkCommand) -> Result<(), String> {
        let host = plain_zone(&command.url.host);
        if let Ok(address) = host.parse() {
            needs_no_zone(&SocketAddr::new(address, 0))?;
        }
        let found = (host.as_str(), 0).to_socket_addrs();
        found.into_iter().flatten().try_for_each(|a| self.admit(a))
    }

    /// Checks that connections may go to an address. Returns the reason if not.
    fn admit(&self, address: SocketAddr) -> Result<(), String> {
        match self.consent {
            true => Ok(()),
            false => admit_servers([address.ip()]),
        }
    }
}

/// Returns true if the program was started as `wrk`.
fn is_link() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| std::path::Path::new(&name).file_name() == Some("wrk".as_ref()))
}

/// Returns the system's error text without the error number.
fn words_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let resolver = "failed to lookup address information: ";
    text.strip_prefix(resolver).unwrap_or(text).to_owned()
}

/// Resolves the port of a service: a number, or a name from the system's list.
fn port_of(service: &str) -> Option<u16> {
    if let Ok(port) = service.parse() {
        return Some(port);
    }
    let known = |text: &str| {
        text.lines().find_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let (name, place) = (words.next()?, words.next()?);
            let port = place.strip_suffix("/tcp")?;
            (name == service || words.any(|w| w == service)).then(|| port.parse().ok())?
        })
    };
    match service {
        "http" => Some(80),
        "https" => Some(443),
        _ => known(&std::fs::read_to_string("/etc/services").unwrap_or_default()),
    }
}

impl ScriptIo for Machine {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        read_file(path.as_ref(), LARGEST_TEXT).map_err(|e| words_of(&e))
    }

    fn lookup(&self, host: &str, service: &str) -> Result<Vec<SocketAddr>, String> {
        let Some(port) = port_of(service) else {
            return Err("Servname not supported for ai_socktype".to_owned());
        };
        let found = (plain_zone(host).as_str(), port).to_socket_addrs();
        let found: Vec<SocketAddr> = found.map_err(|e| words_of(&e))?.collect();
        // A script may pass any of the addresses to a thread.
        found.iter().try_for_each(|address| self.admit(*address))?;
        Ok(found)
    }

    fn connect(&self, address: SocketAddr) -> Result<(), String> {
        self.admit(address)?;
        TcpStream::connect(address)
            .map(drop)
            .map_err(|e| words_of(&e))
    }

    fn print(&self, bytes: &[u8]) {
        use std::io::Write as _;
        match stdout().and_then(|mut out| out.write_all(bytes).and_then(|()| out.flush())) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => print_failed(),
            _ => {}
        }
    }

    fn print_error(&self, bytes: &[u8]) {
        say_as_is(String::from_utf8_lossy(bytes));
    }
}

/// Records a failed write, which is reported once at the end.
fn print_failed() {
    print("");
}

/// Returns a flag that a signal sets, to stop scripts that would continue.
fn watch(signals: &Signals) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let (set, signals) = (Arc::downgrade(&flag), signals.clone());
    let watching = std::thread::Builder::new()
        .name("wb-script".to_owned())
        .spawn(move || {
            while let Some(flag) = set.upgrade() {
                if signals.interrupted().is_some() {
                    // Allows a slow hook to finish; only an endless one is interrupted.
                    std::thread::sleep(Duration::from_secs(1));
                    flag.store(true, Ordering::Relaxed);
                    return;
                }
                drop(flag);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
    // Keeps the watcher until here; without it, an endless script needs a second signal.
    drop(watching);
    flag
}

fn job(command: &WrkCommand, trusted: bool) -> HttpJob {
    let scheme = if command.url.uses_tls() {
        "https"
    } else {
        "http"
    };
    let whole = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    HttpJob {
        url: format!(
            "{scheme}://{}{}",
            command.url.authority(),
            command.url.target
        ),
        headers: command
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect(),
        connections: whole(command.connections),
        threads: whole(command.threads),
        duration: Some(Span::from_secs(command.duration.min(1_000_000_000))),
        timeout: Span::from_secs(command.timeout.min(86_400)),
        script: command.script.clone().map(|file| HttpScript {
            file,
            arguments: command.arguments.clone(),
            trusted,
        }),
        as_wrk: true,
        ..HttpJob::default()
    }
}

/// Prints the output of a tool that ended without a run.
fn tell(stop: &WrkExit) -> Result<u8> {
    if !stop.stderr.is_empty() {
        say_bytes(&stop.stderr);
    }
    write_all(&stop.stdout)?;
    Ok(stop.exit)
}

pub(crate) fn run(args: &WrkArgs) -> Result<u8> {
    let command = match wb_wrk::wrk("wrk", &args.words) {
        Ok(command) => command,
        Err(stop) => return tell(&stop),
    };
    write_all(&command.stdout)?;
    for warning in &command.warnings {
        say(format_args!("wirebench: {warning}"));
    }
    let trusted = args.trust_script || std::env::var_os(TRUST).is_some_and(|value| value == "1");
    let mut plan = Plan {
        kind: "wrk".to_owned(),
        http_jobs: vec![job(&command, trusted)],
        ..Plan::default()
    };
    if !is_to_run(&mut plan, &args.output)? {
        return Ok(0);
    }
    plan.validate()?;
    let machine = Machine {
        consent: plan.i_own_this_network,
    };
    if let Err(why) = machine.admit_host(&command) {
        say(format_args!("wirebench: {why}"));
        return Ok(if is_link() { 1 } else { 2 });
    }
    let signals = Signals::install()?;
    let settings = ScriptSettings {
        url: command.url.text.clone(),
        scheme: command.url.scheme.clone(),
        host: command.url.host.clone(),
        port: command.url.port.clone(),
        path: command.url.target.clone(),
        headers: command.headers.clone(),
        file: command.script.clone(),
        arguments: command.arguments.clone(),
        trusted,
        memory_bytes: MEMORY_BYTES,
        give_up: watch(&signals),
    };
    let (mut host, scripts) = match scripts(settings, machine, command.threads) {
        Ok(made) => made,
        Err(why) => {
            say(fatal_message(&why));
            return Ok(1);
        }
    };
    measure(args, &command, plan, signals, &mut host, scripts)
}

/// Loads the script and its part for each thread.
fn scripts(
    settings: ScriptSettings,
    machine: Machine,
    threads: u64,
) -> Result<(ScriptHost, Scripts), wb_wrk::script::ScriptError> {
    let mut host = ScriptHost::new(settings, Arc::new(machine))?;
    host.resolve()?;
    let mut scripts: Scripts = Vec::new();
    for _ in 0..threads {
        scripts.push(Box::new(host.make_thread()?));
    }
    Ok((host, scripts))
}

fn measure(
    args: &WrkArgs,
    command: &WrkCommand,
    plan: Plan,
    signals: Signals,
    host: &mut ScriptHost,
    scripts: Scripts,
) -> Result<u8> {
    let output = &args.output;
    let machine = output.json || output.csv || output.live_json;
    let mut runner = Runner::new(plan, output, signals);
    runner.screen = false;
    runner.extras.progress = output.live_json;
    runner.extras.scripts = vec![scripts];
    let ready = runner.prepare()?;
    if !machine {
        write_all(&banner(
            &command.url.text,
            command.duration,
            command.threads,
            command.connections,
        ))?;
    }
    let live_json = output.live_json;
    let finished = ready.run(&mut |view: &View<'_>, _: bool| {
        if live_json {
            print(&wb_render::json::snapshot("wrk", &view.snapshot));
        }
    })?;
    if let End::Fault(text) = &finished.end {
        say(format_args!(
            "PANIC: unprotected error in call to Lua API ({text})"
        ));
        if !machine {
            return Ok(1);
        }
    }
    let job = finished
        .report
        .http
        .as_ref()
        .and_then(|http| http.jobs.first());
    let exact = job.and_then(|job| job.exact.clone()).unwrap_or_default();
    let mut latency = Stats::new(exact.latency_us.iter().copied());
    latency.correct_omission(exact.elapsed_us, exact.responses, command.connections);
    let rate = Stats::new(exact.rates.iter().copied());
    let [connect_errors, read_errors, write_errors] = exact.errors;
    let summary = RunSummary {
        duration_us: exact.elapsed_us,
        requests: exact.responses,
        bytes: exact.bytes,
        connect_errors,
        read_errors,
        write_errors,
        status_errors: exact.status_errors,
        timeouts: exact.timeouts,
    };
    if machine {
        deliver_report(&finished.report, output)?;
        return Ok(finished.exit_code());
    }
    let outcome = WrkResults {
        elapsed_us: exact.elapsed_us,
        requests: exact.responses,
        bytes: exact.bytes,
        connect_errors,
        read_errors,
        write_errors,
        timeouts: exact.timeouts,
        status_errors: exact.status_errors,
        latency: latency.clone(),
        rate: rate.clone(),
    };
    write_all(&results(&outcome, command.latency))?;
    if let Err(why) = host.call_done(&summary, &latency, &rate) {
        say(fatal_message(&why));
        return Ok(1);
    }
    Ok(0)
}
