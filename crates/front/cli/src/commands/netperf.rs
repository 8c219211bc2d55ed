//! `wirebench netperf`: netperf's command line, preceded by additional options.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use wb_model::{
    Report,
    socket::{SocketJob, SocketJobReport},
};
use wb_netperf::{ConnectionEnds, FigureSelection, NetperfCommand, ProgramExit, SpecialAction};
use wb_session::input::read_text;
use wb_session::{Signals, View, data_ends};

use crate::{
    args::{OutputArgs, Pair, SocketArgs, count_in},
    deliver::{deliver, deliver_document, print},
    run::{Runner, is_to_run},
    say::{say, say_as_is},
    stdout::stdout,
};

/// Run socket tests with netperf's command line and output, against either netserver.
///
/// wirebench options come before `--`, netperf's options after it; without wirebench options `--` may be omitted. A
/// link named netperf accepts only netperf's options.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench netperf -H 198.18.1.2 -t TCP_RR -l 5\n  \
    wirebench netperf --json -- -H 198.18.1.2 -t TCP_STREAM -- -m 16K\n  \
    wirebench netperf --streams 4 --interval 1s --json -- -H 198.18.1.2\n  \
    wirebench netperf --busy-poll --latency --json -- -H 198.18.1.2 -t TCP_RR\n  \
    wirebench netperf -h                            netperf's own options\n  \
    ln -s $(command -v wirebench) netperf; ./netperf -H 198.18.1.2\n\n\
    Exit codes: 0 results, also after Ctrl-C; 1 the test failed, is unknown or did not meet --criteria;\n\
    2 a wrong option of wirebench; 3 invalid; 255 the server was not found or not reached.")]
pub(crate) struct NetperfArgs {
    /// Number of parallel streams, each with its own thread and connections, started together.
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(1..=512))]
    streams: Option<u32>,
    /// Congestion control of this end, or LOCAL,REMOTE.
    #[arg(long, value_name = "NAME")]
    congestion: Option<Pair>,
    #[command(flatten)]
    socket: SocketArgs,
    /// Print exactly what netperf 2.7 prints, including its bugs, and use no server extensions.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// Options of netperf.
    #[arg(value_name = "NETPERF", last = true)]
    words: Vec<String>,
}

/// Prints the output of the tool to the stream that the tool uses.
fn tell(ending: &ProgramExit) -> Result<u8> {
    if !ending.stderr.is_empty() {
        say_as_is(&ending.stderr);
    }
    write_all(&ending.stdout)?;
    Ok(ending.status)
}

/// Prints a text unchanged, without an additional line end.
pub(crate) fn write_all(text: &str) -> Result<()> {
    let bytes = text.as_bytes();
    match stdout().and_then(|mut out| out.write_all(bytes).and_then(|()| out.flush())) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(crate::deliver::Fault(format!("cannot write to standard output: {e}")).into())
        }
        _ => Ok(()),
    }
}

pub(crate) fn run(args: &NetperfArgs) -> Result<u8> {
    let mut command = match wb_netperf::netperf(&args.words) {
        Ok(command) => command,
        Err(refusal) => return refused(&refusal),
    };
    if args.strict {
        command.be_strict();
    }
    for note in &command.notes {
        match note.to_stdout {
            true => write_all(&note.text)?,
            false => say_as_is(&note.text),
        }
    }
    if command.show.uuid.is_empty() {
        command.show.uuid = wb_netperf::uuid(drawn());
    }
    let read = |file: &str| {
        read_text(file.as_ref()).map_err(|e| match e.kind() {
            std::io::ErrorKind::FileTooLarge => rustix::io::Errno::FBIG.raw_os_error(),
            _ => e.raw_os_error().unwrap_or(0),
        })
    };
    let selection = match command.select_figures(read) {
        Ok(selection) => selection,
        Err(ending) => return tell(&ending),
    };
    if let Some(warning) = selection.warning() {
        say_as_is(warning);
    }
    let demo = command.show.demo;
    for job in &mut command.plan.sockets {
        args.socket.apply(job)?;
        job.streams = args.streams.unwrap_or(job.streams);
        if let Some(Pair { local, remote }) = &args.congestion {
            job.local.congestion = local.clone().or(job.local.congestion.take());
            job.remote.congestion = remote.clone().or(job.remote.congestion.take());
        }
        if let Some(interval) = args.output.interval
            && !demo
        {
            job.interim = Some(interval);
        }
    }
    if !is_to_run(&mut command.plan, &args.output)? {
        return Ok(0);
    }
    measure(args, &command, &selection)
}

fn refused(refusal: &wb_netperf::NetperfRefusal) -> Result<u8> {
    for note in &refusal.notes {
        match note.to_stdout {
            true => write_all(&note.text)?,
            false => say_as_is(&note.text),
        }
    }
    match refusal.to_stdout {
        true => write_all(&refusal.text)?,
        false => say_as_is(&refusal.text),
    }
    Ok(u8::try_from(refusal.code).unwrap_or(255))
}

/// Returns 16 bytes unique to this test: random, or from time and process id if no random source is readable.
fn drawn() -> [u8; 16] {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    if read.is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanoseconds = now.map_or(0, |d| d.as_nanos());
        bytes = (nanoseconds ^ (u128::from(std::process::id()) << 96)).to_be_bytes();
    }
    bytes
}

fn measure(
    args: &NetperfArgs,
    command: &NetperfCommand,
    selection: &FigureSelection,
) -> Result<u8> {
    let (show, job) = (&command.show, command.job());
    let machine = args.output.json || args.output.live_json || args.output.csv;
    if !machine && command.special == SpecialAction::Normal {
        match data_ends(job) {
            Ok(found) => {
                let ends = ConnectionEnds {
                    server_name: found.server_name,
                    server: found.server,
                    local: found.local,
                };
                write_all(&wb_netperf::banner(show, job, &ends))?;
            }
            Err(failure) => {
                let report = SocketJobReport {
                    failure: Some(failure),
                    ..SocketJobReport::default()
                };
                return tell(&wb_netperf::program_exit(show, job, selection, &report));
            }
        }
    }
    let live_json = args.output.live_json;
    let plan = command.plan.clone();
    let mut runner = Runner::new(plan, &args.output, Signals::install_for_test()?);
    runner.screen = false;
    runner.extras.progress = live_json;
    let mut intervals = 0;
    let finished = runner.prepare()?.run(&mut |view: &View<'_>, _: bool| {
        let Some(live) = &view.snapshot.socket else {
            return;
        };
        if live_json {
            print(&wb_render::json::snapshot(
                &command.plan.kind,
                &view.snapshot,
            ));
        } else if show.demo && !machine {
            let text = wb_netperf::interim(show, job, live, intervals);
            // A closed output does not stop the test.
            let _ = write_all(&text);
            intervals += 1;
        }
    })?;
    let report = finished
        .report
        .socket
        .as_ref()
        .and_then(|s| s.jobs.first())
        .cloned()
        .unwrap_or_default();
    if std::env::var_os("DUMP_TCP_INFO").is_some()
        && let Some(lines) = wb_netperf::tcp_info(&report)
    {
        say_as_is(lines);
    }
    let ending = match (command.special, &report.failure) {
        (SpecialAction::LocalCpu, None) => ProgramExit {
            stdout: wb_netperf::calibration(show, local_cpus(command)),
            ..ProgramExit::default()
        },
        _ => wb_netperf::program_exit(show, job, selection, &report),
    };
    if args.output.json {
        if !ending.stderr.is_empty() {
            say_as_is(&ending.stderr);
        }
        deliver_document(&wb_render::json::report(&finished.report))?;
        return Ok(exit_code(ending.status, finished.exit_code()));
    }
    if args.output.csv {
        deliver(&wb_render::csv::report(&finished.report))?;
        return Ok(exit_code(ending.status, finished.exit_code()));
    }
    if args.output.verbose {
        deliver(&wb_render::text::report(
            &finished.report,
            &crate::deliver::text_options(true),
        ))?;
    }
    print_findings(job, &report, &finished.report);
    if live_json {
        // Summary of the lines above.
        print(&wb_render::json::report_line(&finished.report));
        return Ok(exit_code(ending.status, finished.exit_code()));
    }
    let status = tell(&ending)?;
    if let Some(back) = report.result.reverse_bps.filter(|_| status == 0) {
        // netperf has no bidirectional test, so its table has no column for one.
        write_all(&format!(
            "{:.2} 10^6bits/s came from the server at the same time\n",
            back / 1e6
        ))?;
    }
    Ok(exit_code(status, finished.exit_code()))
}

/// Prints findings that netperf has no text for: warnings, an invalid result and criteria that failed.
fn print_findings(job: &SocketJob, result: &SocketJobReport, report: &Report) {
    for warning in beyond(job, result) {
        say(format_args!("wirebench: {warning}"));
    }
    if report.verdict == wb_model::Verdict::Invalid {
        say(format_args!("wirebench: invalid: {}", report.reason));
    }
    for missed in report.criteria.iter().filter(|c| !c.held) {
        say(format_args!(
            "wirebench: criterion failed: {}",
            missed.criterion
        ));
    }
}

/// Returns the number of CPUs of this end, as counted or as given by `-n`.
fn local_cpus(command: &NetperfCommand) -> u32 {
    let counted = std::thread::available_parallelism().map(|n| n.get());
    let counted = counted.ok().and_then(|n| u32::try_from(n).ok());
    counted.or(command.cpus).unwrap_or(1)
}

/// Returns the tool's own code if the test failed; else 1 if a criterion did not hold, or 3 if the run is invalid and
/// was not started by a link with the tool's name. A signal ends a test in order, and the tool's code for that is 0.
fn exit_code(tool: u8, ours: u8) -> u8 {
    match (tool, ours) {
        (0, 1) => 1,
        (0, 3) if !crate::alias::is_link("netperf") => 3,
        (code, _) => code,
    }
}

/// Returns the warnings about wirebench options, which have no place in netperf's output.
fn beyond<'a>(job: &SocketJob, report: &'a SocketJobReport) -> &'a [String] {
    match job.control.plain {
        true => &[],
        false => &report.warnings,
    }
}
