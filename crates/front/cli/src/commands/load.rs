//! `wirebench load`: opens, holds, answers and closes millions of connections.

mod dperf;
mod native;

use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use wb_dperf::statistics::StatisticsBlock;
use wb_model::{
    Plan,
    load::{LoadEnd, LoadJob, LoadShape},
};
use wb_options::{Opt, Typed, options};
use wb_session::{Signals, View, client_shares};

use crate::{
    args::{Given, OutputArgs, UnsentArgs},
    deliver::{Fault, deliver, deliver_document, deliver_report, print, show},
    run::{Runner, is_to_run, say_fault, say_ports},
    say::say,
};

/// Load a device with connections: as client, as server, or as both ends.
///
/// Takes unmodified configuration files of dperf, or options.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench lab up pair\n  \
    wirebench load --client wb-pair-a/a0 --server wb-pair-b/b0 --cps 10k --duration 5s\n  \
    wirebench load --server eth3 --servers 198.19.1.2 --answer http:1024      until Ctrl-C\n  \
    wirebench load --client eth2 --udp --cc 1000 --every 100ms --duration 60s --json\n  \
    wirebench load server.conf --port 0000:1b:00.0=eth3 --format dperf\n  \
    wirebench load client.conf --check --strict      check by dperf's own rules\n  \
    wirebench load --ctl /run/load.sock rate cps=20k      change the rate of a load with --control")]
pub(crate) struct LoadArgs {
    /// Configuration files of dperf, of one or both ends. With --ctl: the command to send.
    #[arg(value_name = "FILE.conf")]
    files: Vec<String>,
    #[command(flatten)]
    dperf: dperf::DperfArgs,
    #[command(flatten)]
    native: native::NativeArgs,
    #[command(flatten)]
    change: ChangeArgs,
    /// Output format: the wirebench report, or dperf's lines once per second.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Accept rate changes during the run on this local socket.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Send a command to the load that listens on this socket: rate KEY=NUMBER …, show or stop.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["client", "server", "control"])]
    ctl: Option<PathBuf>,
    #[command(flatten)]
    unsent: UnsentArgs,
    #[command(flatten)]
    output: OutputArgs,
}

options! {
    /// Amounts of load, which the clients share, and the pause between requests.
    Amounts: LoadJob = LoadJob::default(), "Load", [
        Opt::new("cps", "N").key("rate.cps"),
        Opt::new("cc", "N").key("rate.cc"),
        Opt::new("rps", "N").key("rate.rps"),
        Opt::new("pps", "N").key("rate.pps"),
        Opt::new("bps", "N").key("rate.bps"),
        Opt::new("every", "TIME").key("interval").help(
            "Time between the requests of a connection (default: 1s with --cc alone, otherwise 0s)",
        ),
    ]
}

options! {
    /// Course of the load over time.
    Course: LoadShape = LoadShape::default(), "Load", [
        Opt::new("wait", "TIME"),
        Opt::new("ramp", "TIME"),
        Opt::new("duration", "TIME")
            .help("Time at the full rate (default: 10s; for a server alone until Ctrl-C)"),
        Opt::new("drain", "TIME"),
    ]
}

/// Options that also override configuration files.
#[derive(Args, Clone, Debug)]
struct ChangeArgs {
    #[command(flatten)]
    amounts: Typed<Amounts>,
    #[command(flatten)]
    course: Typed<Course>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Dperf,
}

impl ChangeArgs {
    /// Overrides the plan with the command line options. Rates apply to all clients together.
    ///
    /// # Errors
    /// If a rate is given and no job is a client.
    fn apply(&self, plan: &mut Plan) -> Result<()> {
        let has_client = plan.loads.iter().any(|job| job.end == LoadEnd::Client);
        if let Some(amount) = self.amounts.first()
            && !has_client
        {
            bail!("{amount}: needs a client; this load has only servers");
        }
        let told = self.amounts.value().rate;
        let shares = [told.cps, told.cc, told.rps, told.pps, told.bps]
            .map(|told| client_shares(plan, told).into_iter());
        let [mut cps, mut cc, mut rps, mut pps, mut bps] = shares;
        for job in &mut plan.loads {
            if job.end == LoadEnd::Client {
                *job = self.amounts.over(job);
                let rate = &mut job.rate;
                for (of_job, shares) in [
                    (&mut rate.cps, &mut cps),
                    (&mut rate.cc, &mut cc),
                    (&mut rate.rps, &mut rps),
                    (&mut rate.pps, &mut pps),
                    (&mut rate.bps, &mut bps),
                ] {
                    *of_job = shares.next().flatten().or(*of_job);
                }
            }
            job.shape = self.course.over(&job.shape);
        }
        Ok(())
    }
}

pub(crate) fn run(args: &LoadArgs, given: &Given) -> Result<u8> {
    if let Some(path) = &args.ctl {
        return talk(path, &args.files.join(" "));
    }
    if args.dperf.keywords {
        print(&dperf::reference());
        return Ok(0);
    }
    let (mut plan, printer) = match args.files.as_slice() {
        [] => (args.native.plan(&args.change)?, None),
        files => {
            if args.native.client.is_some() || args.native.server.is_some() {
                bail!(
                    "unexpected {:?}: configuration files and --client/--server exclude each other",
                    files[0]
                );
            }
            given.refuse_of::<native::NativeArgs>(
                &native::BESIDE_FILES,
                "no effect on a dperf configuration file; set this in the file (keywords: `wirebench load --keywords`)",
            )?;
            match args.dperf.read(files, args.format == Format::Dperf)? {
                dperf::Read::Checked(code) => return Ok(code),
                dperf::Read::Plan(read) => {
                    let (mut plan, printer) = *read;
                    args.native.change(&mut plan)?;
                    (plan, Some(printer))
                }
            }
        }
    };
    args.change.apply(&mut plan)?;
    args.unsent.apply(&mut plan);
    if args.format == Format::Dperf && printer.is_none() {
        bail!("--format dperf needs a dperf configuration file");
    }
    let base = args
        .files
        .first()
        .and_then(|f| std::path::Path::new(f).parent().map(PathBuf::from));
    let shown = Shown {
        output: &args.output,
        as_dperf: args.format == Format::Dperf,
    };
    run_load(plan, &shown, base, args.control.clone(), printer)
}

/// Output options of a run.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) output: &'a OutputArgs,
    /// Print dperf's lines.
    pub(crate) as_dperf: bool,
}

/// Adds dperf's figures to a JSON document.
fn with_compat(text: &str, block: Option<&StatisticsBlock>) -> Result<String> {
    let Some(block) = block else {
        return Ok(text.to_owned());
    };
    let mut value: serde_json::Value = serde_json::from_str(text)?;
    value["compat"] = serde_json::to_value(block)?;
    Ok(value.to_string())
}

/// Runs a load plan with the output options. Returns the exit code.
pub(crate) fn run_load(
    mut plan: Plan,
    shown: &Shown<'_>,
    base: Option<PathBuf>,
    control: Option<PathBuf>,
    mut printer: Option<dperf::Printer>,
) -> Result<u8> {
    let output = shown.output;
    if !is_to_run(&mut plan, output)? {
        return Ok(0);
    }
    let kind = plan.kind.clone();
    let mut runner = Runner::new(plan, output, Signals::install()?);
    (runner.base, runner.control) = (base, control);
    runner.screen &= !shown.as_dperf;
    let ready = runner.prepare()?;
    say_ports(&ready, output);
    let finished = ready.run(&mut |view: &View<'_>, on_screen: bool| {
        let block = printer.as_mut().and_then(|printer| printer.second(view));
        if output.live_json {
            let line = wb_render::json::snapshot(&kind, &view.snapshot);
            // A snapshot is valid JSON, so parsing it again cannot fail.
            print(&with_compat(&line, block.as_ref()).unwrap_or(line));
        } else if shown.as_dperf {
            if let (Some(printer), Some(block)) = (&printer, &block) {
                print(&printer.second_text(block));
            }
        } else if !(output.quiet || on_screen) {
            show(&view.snapshot);
        }
    })?;
    let delivered = match &printer {
        Some(printer) if output.json => {
            let report = wb_render::json::report(&finished.report);
            deliver_document(&with_compat(&report, Some(&printer.total()))?)
        }
        Some(printer) if shown.as_dperf => deliver(&printer.total_text()),
        _ => deliver_report(&finished.report, output),
    };
    say_fault(&finished, "run");
    delivered?;
    let code = finished.exit_code();
    if code == 3 && crate::alias::is_link("dperf") {
        // dperf has no such exit code.
        say(format_args!(
            "wirebench: invalid: {}",
            finished.report.reason
        ));
        return Ok(0);
    }
    Ok(code)
}

/// Sends a command to a running load and prints the response.
fn talk(path: &std::path::Path, line: &str) -> Result<u8> {
    let place = path.display();
    let mut stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => anyhow::anyhow!(
            "cannot connect to {place}: permission denied; the socket belongs to the user who started the load"
        ),
        _ => anyhow::anyhow!(
            "cannot connect to {place}: {error}; start a load with --control {place}"
        ),
    })?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    writeln!(stream, "{line}").with_context(|| format!("cannot write to {place}"))?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .map_err(|e| Fault(format!("no response from {place}: {e}")))?;
    let value: serde_json::Value = serde_json::from_str(&answer)
        .map_err(|e| Fault(format!("no response from {place}: {e}")))?;
    if let Some(error) = value["error"].as_str() {
        bail!("{error}");
    }
    deliver(answer.trim_end())?;
    Ok(0)
}
