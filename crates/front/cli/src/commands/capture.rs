//! `wirebench capture`: lossless capture into files, with the command line of tcpdump.

mod lines;
mod output;
mod port;
mod tcpdump_options;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{ArgAction, Args};
use schemars::JsonSchema;
use serde::Serialize;
use wb_machine::expression::{LINK_ETHERNET, compile};
use wb_model::{
    Criterion, Plan, Report, Verdict,
    capture::CaptureJob,
    counted,
    criteria::{self, CriterionLimit},
    report::CaptureReport,
    schema::mismatch,
    units::Span,
};
use wb_options::{Opt, Typed, options};
use wb_session::input::read_text;
use wb_session::{FrameSink, Signals, View};
use wb_tcpdump::{closing, print::LinkType};

use self::lines::{Beside, Lines, Printing};
use crate::{
    args::{Given, OutputArgs, PrintArgs, Refused, Row, Table, count_in},
    deliver::{Fault, deliver, deliver_document, not_written, print},
    metrics::MetricsArgs,
    run::{Runner, Show, is_to_run, say_fault, say_ports, say_warnings},
    say::{say, say_as_is, say_in_passing},
    stdout::stdout,
};

/// Capture frames into a file without loss, or report exactly where and how many were lost.
///
/// Accepts the command line of tcpdump, in any order. Without -w, frames are printed as by tcpdump, with numeric
/// addresses and ports: Ethernet, VLAN, MPLS, ARP, STP, IPv4, IPv6, ICMP, IGMP, TCP, UDP, GRE, VXLAN, ESP. Payloads
/// of TCP and UDP are not decoded; -X shows their bytes, `read --as tcpdump` and `read --decode` more.
#[derive(Args, Debug)]
#[command(version, disable_version_flag = true)]
// As with getopt_long(3), the last of two options applies, and a long option may be abbreviated.
#[command(args_override_self = true, infer_long_args = true)]
#[command(after_help = "Examples:\n  \
    wirebench capture -i eth2 -w trace.pcapng\n  \
    wirebench capture -i wb-pair-b/b0 -w out.pcap -C 100 -W 10 udp port 9\n  \
    wirebench capture -nni eth2 -e 'tcp port 80 or arp'         print frames as tcpdump does\n  \
    wirebench capture -i eth2 -i eth3 -s 128 --duration 60s --count\n  \
    wirebench capture --self-test --with tcpdump --hogs 2       measure losses in a lab")]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    port: port::PortArgs,
    #[command(flatten)]
    output: output::OutputArgs,
    /// Bytes of each frame to keep, up to 262144; 0 means 262144.
    #[arg(
        short = 's',
        long = "snapshot-length",
        value_name = "BYTES",
        default_value_t = 0,
        help_heading = "Capture"
    )]
    snap_len: u32,
    /// Stop after this many frames.
    #[arg(short = 'c', value_name = "N", value_parser = count_in::<u64>(1..), help_heading = "Capture")]
    most: Option<u64>,
    /// Count frames without printing them.
    #[arg(long, help_heading = "Printing")]
    count: bool,
    /// Also print frames that are written to a file. Lines that a slow reader holds up are dropped and counted; the
    /// file stays complete.
    #[arg(long, help_heading = "Printing")]
    print: bool,
    #[command(flatten)]
    chosen: Typed<Chosen>,
    /// Do not use promiscuous mode, which receives frames for other addresses.
    #[arg(short = 'p', long, help_heading = "Capture")]
    no_promiscuous_mode: bool,
    /// Read the filter from this file instead of the command line.
    #[arg(short = 'F', value_name = "FILE", help_heading = "Capture")]
    filter_file: Option<PathBuf>,
    /// Read this file instead, as `wirebench read` does.
    #[arg(short = 'r', long, value_name = "FILE", help_heading = "Capture")]
    read: Vec<PathBuf>,
    #[command(flatten)]
    tcpdump_options: tcpdump_options::TcpdumpOptions,
    #[command(flatten)]
    printing: PrintArgs,
    #[command(flatten)]
    refused: Refused<Capturing>,
    /// Fail (exit code 1) if the loss exceeds this share: 0 or 0.1% [default: 0].
    #[arg(long, value_name = "SHARE", help_heading = "Output and judgement")]
    max_loss: Option<String>,
    /// Write the counters to this file as JSON once per second; the file is replaced atomically.
    #[arg(long, value_name = "FILE", help_heading = "Output and judgement")]
    stats_file: Option<PathBuf>,
    /// Print the compiled filter and exit; -dd prints C, -ddd numbers.
    #[arg(short = 'd', action = ArgAction::Count, help_heading = "Instead of capturing")]
    dump: u8,
    /// List the interfaces and exit.
    #[arg(
        short = 'D',
        long = "list-interfaces",
        help_heading = "Instead of capturing"
    )]
    list: bool,
    /// Print the report as one JSON document on standard output.
    #[arg(long, help_heading = "Output and judgement")]
    json: bool,
    /// Print each snapshot as one line of JSON on standard output during the run.
    #[arg(long, help_heading = "Output and judgement")]
    live_json: bool,
    /// Print totals and rates as CSV.
    #[arg(long, help_heading = "Output and judgement")]
    csv: bool,
    /// Also write the report to a file: HTML with plots (.html), Markdown (.md) or figures (.csv).
    #[arg(long, value_name = "FILE", help_heading = "Output and judgement")]
    report: Option<PathBuf>,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Fail (exit code 1) if a criterion does not hold: lost<=10, loss<=0.1% [default: no loss allowed].
    #[arg(
        long,
        value_name = "CRITERION",
        value_delimiter = ',',
        help_heading = "Output and judgement"
    )]
    criteria: Vec<Criterion>,
    /// Print the plan (TOML) instead of running it; `wirebench run` accepts it.
    #[arg(long, help_heading = "Output and judgement")]
    print_plan: bool,
    /// Print more of each frame, up to -vvv; without printed frames, more about the ports.
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output and judgement")]
    verbose: u8,
    /// Print less of each frame, and no live lines.
    #[arg(short, long, help_heading = "Output and judgement")]
    quiet: bool,
    /// Print live lines instead of the full-screen view of a terminal.
    #[arg(long, help_heading = "Output and judgement")]
    plain: bool,
    /// Interval between live lines, 100ms to 1m.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        help_heading = "Output and judgement"
    )]
    interval: Span,
    /// Measure in a lab what a busy machine loses, with wirebench (with --xdp also by AF_XDP) and with other tools.
    #[arg(long, conflicts_with_all = ["interfaces", "write", "filter", "most", "duration", "print_plan", "stats_file"], help_heading = "Instead of capturing")]
    self_test: bool,
    #[command(flatten)]
    test: super::selftest::SelfTestArgs,
    /// Print the version and exit.
    #[arg(long, action = ArgAction::Version, help_heading = "Instead of capturing")]
    version: Option<bool>,
    /// Filter expression, in the language of pcap-filter(7).
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

/// Options that a capture refuses.
struct Capturing;

impl Table for Capturing {
    const ROWS: &'static [Row] = &[
        (
            'I',
            "monitor-mode",
            false,
            "Wi-Fi monitor mode is not supported",
        ),
        ('V', "", true, "give several files to `wirebench read`"),
    ];
}

options! {
    /// Frames to capture.
    Chosen: CaptureJob = CaptureJob::default(), "Capture", [
        Opt::new("duration", "TIME"),
        Opt::new("direction", "DIRECTION").with(|arg| arg.short('Q')),
    ]
}

impl CaptureArgs {
    /// Returns true if frames are printed.
    fn prints(&self) -> bool {
        let document = self.json || self.csv || self.live_json;
        self.print || !(self.output.write.is_some() || self.count || document)
    }

    /// Checks for refused options, an unwritable report, and several outputs on standard output.
    fn check(&self) -> Result<()> {
        self.refused.check()?;
        if let Some(path) = self.report.as_deref().filter(|_| !self.print_plan) {
            super::report::check(path)?;
        }
        let to_stdout = self.output.write.as_deref() == Some("-");
        let users = [
            (to_stdout, "-w -"),
            (self.json, "--json"),
            (self.csv, "--csv"),
            (self.live_json, "--live-json"),
            (self.print, "--print"),
        ];
        let mut users = users.iter().filter(|(uses, _)| *uses);
        if let (Some((_, one)), Some((_, other))) = (users.next(), users.next()) {
            bail!("{one} and {other} exclude each other: both use standard output");
        }
        if to_stdout {
            drop(stdout().map_err(|e| not_written(&e))?);
        }
        if self.print && self.count {
            bail!("--count and --print exclude each other");
        }
        Ok(())
    }

    fn expression(&self) -> Result<String> {
        match &self.filter_file {
            Some(path) => Ok(read_text(path)
                .with_context(|| format!("cannot read the filter {}", path.display()))?
                .trim()
                .to_owned()),
            None => Ok(self.filter.join(" ")),
        }
    }

    const fn snap(&self) -> u32 {
        if self.snap_len == 0 {
            262_144
        } else {
            self.snap_len
        }
    }

    /// Returns the options that all native commands have.
    fn native(&self) -> OutputArgs {
        OutputArgs {
            json: self.json,
            csv: self.csv,
            live_json: self.live_json,
            report: self.report.clone(),
            metrics: self.metrics.clone(),
            print_plan: self.print_plan,
            verbose: self.verbose > 0 && !self.prints(),
            quiet: self.quiet || self.prints(),
            plain: self.plain,
            ..OutputArgs::default()
        }
    }

    /// Returns the printer of the frames of a plan.
    fn lines(&self, plan: &Plan) -> Result<Lines> {
        let nano = self.tcpdump_options.nano();
        let options = self.printing.options(self.verbose, self.quiet, nano)?;
        let name = |p: &wb_model::PortPlan| p.locator.name.clone();
        let names = plan.ports.iter().map(name).collect();
        Lines::new(options, names, self.printing.line_buffered).map_err(|e| not_written(&e).into())
    }

    /// Returns the plan and messages about it.
    fn plan(&self) -> Result<(Plan, Vec<String>)> {
        let (locators, mut notes) = self.port.locators()?;
        if self.filter_file.is_some() && !self.filter.is_empty() {
            notes.push(format!(
                "-F replaces the filter {:?}",
                self.filter.join(" ")
            ));
        }
        let shown_only = self.prints() && self.output.write.is_none();
        let ports = self.port.ports(locators, shown_only)?;
        let mut criteria = self.criteria.clone();
        if let Some(text) = &self.max_loss {
            let share =
                criteria::parse_share(text).map_err(|e| anyhow::anyhow!("--max-loss: {e}"))?;
            criteria.push(Criterion::at_most("loss", CriterionLimit::Share(share)));
        }
        let mut job = CaptureJob {
            ports: ports.iter().map(|p| p.name.clone()).collect(),
            filter: self.expression()?,
            snap_len: self.snap(),
            promiscuous: !self.no_promiscuous_mode,
            count: self.most,
            output: self.output.output(self.tcpdump_options.micro()),
            ..self.output.overload.over(&self.chosen.value())
        };
        self.port.complete(&mut job);
        self.tcpdump_options.complete(&mut job)?;
        let plan = Plan {
            kind: "capture".to_owned(),
            interval: self.interval,
            captures: vec![job],
            ports,
            criteria,
            ..Plan::default()
        };
        Ok((plan, notes))
    }
}

pub(crate) fn run(args: &CaptureArgs, given: &Given) -> Result<u8> {
    if args.self_test {
        return super::selftest::run(&args.test, args.port.xdp, args.quiet, args.json);
    }
    // clap does not enforce `requires` for an option that conflicts with --self-test.
    given.refuse_of::<super::selftest::SelfTestArgs>(&[], "needs --self-test")?;
    args.check()?;
    if args.list {
        print(&port::list()?);
        return Ok(0);
    }
    if args.dump > 0 {
        let optimize = !args.tcpdump_options.no_optimize;
        let program = compile(&args.expression()?, LINK_ETHERNET, args.snap(), optimize)
            .map_err(|e| anyhow::anyhow!("{}", e.render()))?;
        print(&match args.dump {
            1 => program.listing(),
            2 => program.c_array(),
            _ => program.decimal(),
        });
        return Ok(0);
    }
    if let Some(text) = args.tcpdump_options.lists(&args.port.locators()?.0)? {
        print(&text);
        return Ok(0);
    }
    let (mut plan, notes) = args.plan()?;
    for note in notes {
        say(format_args!("wirebench: {note}"));
    }
    let output = args.native();
    if !is_to_run(&mut plan, &output)? {
        return Ok(0);
    }
    let lines = match args.prints() {
        true => Some(args.lines(&plan)?),
        false => None,
    };
    capture(plan, &output, args.stats_file.as_deref(), lines)
}

type Sink = Box<dyn FrameSink>;

/// Returns the sink that prints frames and, if frames also go to files, the reading end of the printed lines.
fn sink(plan: &Plan, lines: Option<Lines>) -> Result<(Option<Sink>, Option<Printing>)> {
    let into_files = plan.captures.iter().any(|job| job.output.is_some());
    Ok(match lines {
        None => (None, None),
        Some(lines) if into_files => {
            let (beside, printing) = Beside::start(lines).context("cannot start a thread")?;
            (Some(Box::new(beside)), Some(printing))
        }
        Some(lines) => (Some(Box::new(lines)), None),
    })
}

/// Runs a capture plan. Returns the exit code.
fn capture(
    plan: Plan,
    output: &OutputArgs,
    stats_file: Option<&Path>,
    lines: Option<Lines>,
) -> Result<u8> {
    let signals = Signals::install_for_capture()?;
    let snap_len = plan.captures.first().map_or(262_144, |c| c.snap_len);
    let (sink, printing) = sink(&plan, lines)?;
    let mut runner = Runner::new(plan, output, signals.clone());
    runner.extras.capture.sink = sink;
    let ready = runner.prepare()?;
    say_ports(&ready, output);
    say_warnings(&ready);
    let mut teller = Teller {
        names: interfaces(ready.plan()),
        snap_len,
        output,
        stats_file,
        last: Last::default(),
        stats_failed: false,
    };
    let finished = ready.run(&mut teller)?;
    let unprinted = printing.map_or(0, |p| p.end(|| signals.hurry()));
    let report = &finished.report;
    // Written first, so that a process that waits for the last line finds the file. The account is printed even if
    // this fails.
    let saved = match stats_file {
        Some(path) => replace(
            path,
            &(wb_render::json::report(report)
                + "
"),
        )
        .map_err(|error| Fault(format!("cannot write {}: {error}", path.display()))),
        None => Ok(()),
    };
    let faulted = matches!(finished.end, wb_session::End::Fault(_));
    say_as_is(end_lines(report, faulted));
    for warning in &report.warnings {
        say(format_args!("# wirebench: {warning}"));
    }
    if unprinted > 0 {
        say(format_args!(
            "# wirebench: {} not printed, because the output was read too slowly",
            counted(unprinted, "frame was", "frames were")
        ));
    }
    say_fault(&finished, "capture");
    let is_good = matches!(report.verdict, Verdict::Pass | Verdict::Completed);
    if !is_good && !report.criteria.is_empty() {
        say(format_args!("# wirebench: {}", report.reason));
    }
    if output.json {
        deliver_document(&wb_render::json::report(report))?;
    } else if output.csv {
        deliver(&wb_render::csv::report(report))?;
    }
    saved?;
    Ok(exit_code(&finished))
}

/// Returns the exit code. As with tcpdump, a signal is the normal end of an unlimited capture and no error.
fn exit_code(finished: &wb_session::Finished) -> u8 {
    match (&finished.end, finished.report.verdict) {
        (wb_session::End::Signal(_), Verdict::Pass | Verdict::Completed) => 0,
        (wb_session::End::Signal(_), Verdict::Fail) => 1,
        (wb_session::End::Signal(_), Verdict::Invalid) => 3,
        _ => finished.exit_code(),
    }
}

/// Returns the names of the interfaces, in order.
fn interfaces(plan: &Plan) -> String {
    let place = |name: &String| {
        let port = plan.ports.iter().find(|p| p.name == *name);
        port.map_or_else(String::new, |p| p.locator.place())
    };
    let names = plan.captures.iter().flat_map(|job| &job.ports).map(place);
    names.collect::<Vec<_>>().join(", ")
}

/// Observer that reports the progress of a capture in tcpdump's words.
struct Teller<'a> {
    names: String,
    snap_len: u32,
    output: &'a OutputArgs,
    stats_file: Option<&'a Path>,
    last: Last,
    stats_failed: bool,
}

impl Show for Teller<'_> {
    fn started(&mut self) {
        say_as_is(closing::listening_line(
            &self.names,
            LinkType::Ethernet,
            self.snap_len,
        ));
    }

    fn asked(&mut self, view: &View<'_>) {
        if let Some(capture) = &view.report.capture {
            say_as_is(closing::progress_line(
                capture.captured_frames,
                capture.filter_accept_frames,
                capture.kernel_drop_frames,
                0,
            ));
        }
    }

    fn view(&mut self, view: &View<'_>, on_screen: bool) {
        let Some(capture) = &view.report.capture else {
            return;
        };
        if self.output.live_json {
            print(&wb_render::json::snapshot("capture", &view.snapshot));
        } else if !(self.output.quiet || view.done || on_screen) {
            say_in_passing(self.last.line(view, capture));
        }
        if let Some(path) = self.stats_file
            && !self.stats_failed
            && let Err(error) = save_stats(path, view, capture)
        {
            self.stats_failed = true;
            say(format_args!(
                "wirebench: cannot write {}: {error}",
                path.display()
            ));
        }
    }
}

/// Returns tcpdump's closing lines, followed by those of wirebench.
pub(crate) fn end_lines(report: &Report, faulted: bool) -> String {
    let Some(c) = &report.capture else {
        return String::new();
    };
    let read = c.captured_frames + c.not_written_frames + c.queue_drop_frames + c.over_limit_frames;
    let mut text = closing::closing_lines(
        c.captured_frames,
        c.filter_accept_frames,
        c.kernel_drop_frames,
        c.interface_drop_frames,
    );
    text += &closing::PacketAccount {
        received: c.filter_accept_frames,
        dropped: c.kernel_drop_frames,
        read,
        written: c.captured_frames,
        files: c.files,
        bytes: c.file_octets,
        write_errors: c.not_written_frames,
        write_error: c.write_error.as_deref(),
        not_read: c.not_read_frames,
        over_limit: c.over_limit_frames,
        queue_drops: c.queue_drop_frames,
        printed: report.plan.captures.iter().all(|job| job.output.is_none()) && c.buffers > 0,
        interface_drops: c.interface_drop_frames,
        // A failed write is part of the account.
        faulted: faulted && c.write_error.is_none(),
    }
    .line();
    text
}

/// Previous values of the live lines.
#[derive(Default)]
struct Last {
    dropped: u64,
}

impl Last {
    #[allow(clippy::cast_precision_loss)]
    fn line(&mut self, view: &View<'_>, capture: &CaptureReport) -> String {
        let snapshot = &view.snapshot;
        let read: u64 = capture.readers.iter().map(|r| r.read_frames).sum();
        let dropped = capture.kernel_drop_frames;
        let mut line = format!(
            "{:5.1} s  {:>10.0} pps  {:>9.1} Mbit/s  read {read}  dropped by kernel {dropped}",
            snapshot.elapsed_ns as f64 / 1e9,
            snapshot.received_pps.unwrap_or(0.0),
            snapshot.received_l2_bps.unwrap_or(0.0) / 1e6,
        );
        if dropped > self.dropped {
            line += &format!(" (+{})", dropped - self.dropped);
        }
        if capture.buffers > 0 {
            line += &format!(
                "  written {}  buffers free {}/{}  longest write {:.0} ms",
                capture.captured_frames,
                capture.buffers_free,
                capture.buffers,
                capture.longest_write_ms
            );
        }
        self.dropped = dropped;
        line
    }
}

/// Replaces a file atomically: a reader sees the old or the new contents, never a part. What is no file, such as a pipe,
/// is written to.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    if fs::metadata(path).is_ok_and(|known| !known.is_file()) {
        return fs::write(path, text);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

/// JSON document of `capture --stats-file`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CaptureStatsDocument {
    /// `wirebench.capture-stats/1`.
    schema: &'static str,
    /// Time since the start, in ns.
    elapsed_ns: u64,
    /// True after the end of the capture.
    done: bool,
    /// Counters of the readers.
    readers: Vec<ReaderStats>,
    /// Counters of the writer.
    writer: WriterStats,
}

/// Counters of one reader.
#[derive(Serialize, JsonSchema)]
struct ReaderStats {
    /// Number of the interface, in the order of the command line.
    interface: u32,
    /// Frames that passed the filter.
    filter_pass: u64,
    /// Frames that the kernel dropped for lack of room.
    kernel_drop: u64,
    /// Frames that were read.
    read: u64,
    /// Bytes that were read, with FCS.
    octets: u64,
    /// Frames dropped because the writer was too slow.
    queue_drop: u64,
    /// Number of waits for a free buffer.
    buffer_waits: u64,
    /// Longest time between two reads, in ms.
    longest_gap_ms: f64,
}

/// Counters of the writer.
#[derive(Serialize, JsonSchema)]
struct WriterStats {
    /// Frames that were written.
    written: u64,
    /// Frames that could not be written.
    not_written: u64,
    /// Bytes that were written to files.
    octets: u64,
    /// Files that were opened.
    files: u64,
    /// Files that were removed, as the oldest of a ring.
    files_removed: u64,
    /// Path of the current file.
    file: Option<String>,
    /// Number of buffers.
    buffers: u64,
    /// Number of free buffers.
    buffers_free: u64,
    /// Smallest number of free buffers so far.
    buffers_fewest: u64,
    /// Longest time of a write, in ms.
    longest_write_ms: f64,
}

fn save_stats(path: &Path, view: &View<'_>, c: &CaptureReport) -> std::io::Result<()> {
    let plan = view.report.plan.captures.first();
    let number = |port: &String| {
        let at = plan.and_then(|job| job.ports.iter().position(|name| name == port));
        at.and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
    };
    let readers = c.readers.iter().map(|r| ReaderStats {
        interface: number(&r.port),
        filter_pass: r.filter_accept_frames,
        kernel_drop: r.kernel_drop_frames,
        read: r.read_frames,
        octets: r.read_octets,
        queue_drop: r.queue_drop_frames,
        buffer_waits: r.buffer_waits,
        longest_gap_ms: r.longest_gap_ms,
    });
    let document = CaptureStatsDocument {
        schema: "wirebench.capture-stats/1",
        elapsed_ns: view.snapshot.elapsed_ns,
        done: view.done,
        readers: readers.collect(),
        writer: WriterStats {
            written: if c.buffers > 0 { c.captured_frames } else { 0 },
            not_written: c.not_written_frames,
            octets: c.file_octets,
            files: c.files,
            files_removed: c.files_removed,
            file: c.last_file.clone(),
            buffers: c.buffers,
            buffers_free: c.buffers_free,
            buffers_fewest: c.buffers_fewest,
            longest_write_ms: c.longest_write_ms,
        },
    };
    debug_assert_eq!(mismatch(&document), None, "a document matches its schema");
    let text = serde_json::to_string_pretty(&document)?;
    replace(path, &format!("{text}\n"))
}
