//! `wirebench stop`: ends runs on this host.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use wb_machine::runs::{self, FoundRun};
use wb_model::units::Span;

use crate::say::say;

/// Time between the two signals of `--now`. Two signals within 250 ms are one.
const APART: Duration = Duration::from_millis(400);
/// Maximum time for the answer of a server.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which the end is checked.
const LOOK: Duration = Duration::from_millis(20);

/// Stop runs on this host as Ctrl-C does: each ends in order and writes its report.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  wirebench stop 20261129T164300-7f3a\n  wirebench stop --all --wait 30s\n\n\
    Exit codes: 0 the runs have ended; 2 no such run; 4 a run could not be stopped, or has not ended in time."
)]
pub(crate) struct StopArgs {
    /// Runs to stop, by the names or process numbers of `wirebench ls`.
    #[arg(value_name = "RUN", required_unless_present = "all")]
    runs: Vec<String>,
    /// Stop all runs that `wirebench ls` lists.
    #[arg(long, conflicts_with = "runs")]
    all: bool,
    /// Do not let the runs wait for frames in flight.
    #[arg(long)]
    now: bool,
    /// Maximum time to wait for the ends.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    wait: Span,
}

pub(crate) fn run(args: &StopArgs) -> Result<u8> {
    let known = runs::running();
    let meant = match args.all {
        true => known,
        false => chosen(&args.runs, &known)?,
    };
    let mut failed = interrupt(&meant, false);
    if args.now {
        std::thread::sleep(APART);
        let still: Vec<FoundRun> = meant.iter().filter(|r| runs::lasts(r)).cloned().collect();
        failed |= interrupt(&still, true);
    }
    let until = Instant::now() + Duration::from_nanos(args.wait.as_nanos());
    let mut open = meant;
    while !open.is_empty() {
        open.retain(|run| {
            let ended = !runs::lasts(run);
            if ended {
                say(format_args!("{} has ended", name(run)));
            }
            !ended
        });
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(LOOK);
    }
    for run in &open {
        say(format_args!(
            "{} has not ended within {}; wirebench stop --now does not wait for frames in flight",
            name(run),
            args.wait
        ));
    }
    Ok(if failed || !open.is_empty() { 4 } else { 0 })
}

/// The runs with these names or process numbers.
fn chosen(names: &[String], known: &[FoundRun]) -> Result<Vec<FoundRun>> {
    let mut meant: Vec<FoundRun> = Vec::new();
    for name in names {
        let is_meant =
            |run: &&FoundRun| run.record.id == *name || run.record.process.to_string() == *name;
        let before = meant.len();
        meant.extend(known.iter().filter(is_meant).cloned());
        if meant.len() == before {
            let ids: Vec<&str> = known.iter().map(|run| run.record.id.as_str()).collect();
            match ids.is_empty() {
                true => bail!("{name}: no such run; nothing runs on this host"),
                false => bail!("{name}: no such run; known: {}", ids.join(", ")),
            }
        }
    }
    Ok(meant)
}

/// Interrupts runs. Returns true if one could not be interrupted.
fn interrupt(runs: &[FoundRun], now: bool) -> bool {
    let mut failed = false;
    for run in runs {
        let done = match &run.record.server {
            Some(server) => ask(server, run, now),
            None => run.interrupt(),
        };
        let done = done.with_context(|| name(run));
        // A run that ended before the signal needs none.
        if let (Err(error), true) = (done, runs::lasts(run)) {
            say(format_args!("wirebench: {error:#}"));
            failed = true;
        }
    }
    failed
}

/// Asks the server of a run to stop it.
fn ask(server: &Path, run: &FoundRun, now: bool) -> io::Result<()> {
    let body = if now { r#"{"how":"now"}"# } else { "{}" };
    let mut stream = UnixStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "POST /api/v1/runs/{}/stop HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        run.record.id,
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split(' ').nth(1) {
        Some("200" | "202") => Ok(()),
        _ => Err(io::Error::other("its server refused to stop it")),
    }
}

fn name(run: &FoundRun) -> String {
    let record = &run.record;
    format!(
        "{} ({} of process {})",
        record.id, record.kind, record.process
    )
}
