//! `wirebench demo`: guided tour without hardware or arguments, in less than a minute.
//!
//! Each step is a function that brings up its lab, runs its trials and stores its results in the [`Tour`]. A new step
//! is one more function and one line in [`run`].

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use wb_machine::privilege::Privileges;
use wb_model::{
    Plan, PortPlan, Report, Stream, TrafficJob, counted,
    schema::mismatch,
    units::{FrameSize, Rate, Rational, SizeModel, Span},
};
use wb_render::{figures, report::Run, table::Table};
use wb_session::{End, Signals, View};
use wb_testbed::{
    Lab, LabKind, LabOptions,
    impair::{DirectionCounters, ImpairOptions, Loss},
};

use super::report;
use crate::{
    args::OutputArgs,
    deliver::{Fault, check_writable, deliver, print, show},
    run::Runner,
    say::say_in_passing,
};

/// Run a guided tour: trials through a kernel router and an impairing device, in a lab.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  wirebench demo")]
pub(crate) struct DemoArgs {
    /// File for the reports of all trials, as one JSON document.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "wirebench-demo.json"
    )]
    output: PathBuf,
    /// File for the comparison page with plots: FILE.html, FILE.md or FILE.csv.
    #[arg(long, value_name = "FILE", default_value = "wirebench-demo.html")]
    report: PathBuf,
    /// Print the reports (JSON) on standard output instead of tables.
    #[arg(long)]
    json: bool,
    /// Print no live lines.
    #[arg(short, long)]
    quiet: bool,
}

/// Length of a trial.
const TRIAL: Span = Span::from_secs(3);
/// Fixed rate of step (a), in packets per second.
const FIXED: u64 = 20_000;
/// Rate through the impairing device, in packets per second.
const IMPAIRED: u64 = 50_000;

/// Returns the impairments of the demo.
fn impairment() -> ImpairOptions {
    ImpairOptions {
        delay_ns: 300_000,
        loss: Loss::Ratio(0.01),
        duplicate: 0.005,
        reorder: 0.02,
        ..ImpairOptions::default()
    }
}

/// JSON document of `demo --json`, also written to the file of `--output`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DemoDocument<'a> {
    /// `wirebench.demo/1`.
    schema: &'static str,
    /// `pass`, `fail` or `interrupted`.
    verdict: &'static str,
    /// Results that differ from the expected ones.
    wrong: &'a [String],
    /// Trials, in order.
    steps: &'a [DemoTrial],
}

/// One trial of the tour.
#[derive(Serialize, JsonSchema)]
struct DemoTrial {
    /// Name of the trial.
    name: String,
    /// Report of the trial.
    report: Report,
    /// Counters of the impairing device from a to b; only after the trial through that device.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DirectionCounters>,
}

/// Results of the tour so far.
struct Tour<'a> {
    args: &'a DemoArgs,
    signals: Signals,
    steps: Vec<DemoTrial>,
    /// Runs for the comparison page.
    runs: Vec<Run>,
    /// Highest received rate of a trial without loss, in packets per second.
    carried: Option<f64>,
    /// Results that differ from the expected ones.
    wrong: Vec<String>,
}

/// Early end of the tour by a signal.
struct Interrupted(u8);

type Step<T> = Result<std::result::Result<T, Interrupted>>;

impl Tour<'_> {
    fn say(&self, text: &str) {
        if !self.args.json {
            print(text);
        }
    }

    /// Runs one trial between two ends of a lab.
    fn trial(&mut self, name: &str, lab: &Lab, size: u32, rate: Rate) -> Step<Report> {
        let plan = Plan {
            kind: "trial".to_owned(),
            ports: vec![
                PortPlan::new("tx", lab.port("a0").parse()?),
                PortPlan::new("rx", lab.port("b0").parse()?),
            ],
            traffic: vec![TrafficJob {
                name: name.to_owned(),
                tx: Some("tx".to_owned()),
                rx: Some("rx".to_owned()),
                duration: Some(TRIAL),
                streams: vec![Stream {
                    size: FrameSize::new(size).map(SizeModel::Fixed),
                    rate,
                    ..Stream::default()
                }],
                ..TrafficJob::default()
            }],
            ..Plan::default()
        };
        if !self.args.quiet {
            say_in_passing(name);
        }
        let (quiet, output) = (self.args.quiet, OutputArgs::default());
        let mut runner = Runner::new(plan, &output, self.signals.clone());
        runner.screen = false;
        let finished = runner.prepare()?.run(&mut |view: &View<'_>, _: bool| {
            if !quiet {
                show(&view.snapshot);
            }
        })?;
        let code = finished.exit_code();
        self.runs.push(Run {
            name: name.to_owned(),
            report: finished.report.clone(),
        });
        self.steps.push(DemoTrial {
            name: name.to_owned(),
            report: finished.report.clone(),
            device: None,
        });
        if let End::Fault(text) = &finished.end {
            return Err(Fault(format!("{name}: {text}")).into());
        }
        if !finished.report.totals.adds_up() {
            self.wrong.push(format!("{name}: the totals do not add up"));
        }
        if matches!(finished.end, End::Signal(_)) {
            return Ok(Err(Interrupted(code)));
        }
        Ok(Ok(finished.report))
    }
}

fn trial_table() -> Table {
    Table::new()
        .right("size")
        .left("rate")
        .right("offered")
        .right("received")
        .right("lost")
        .right("loss")
        .right("received rate")
        .right("layer 2")
        .right("p50")
        .right("p99")
}

fn trial_row(table: &mut Table, size: u32, rate: Rate, report: &Report) {
    let t = &report.totals;
    let time = |v: Option<i64>| v.map_or_else(|| "-".to_owned(), |v| figures::time_ns(v as f64));
    table.row([
        size.to_string(),
        rate.to_string(),
        figures::count_or(t.offered_frames),
        figures::count_or(t.received_frames),
        figures::count_or(t.lost_frames),
        figures::share(t.lost_frames.unwrap_or(0), t.offered_frames.unwrap_or(0)),
        report
            .rates
            .received_pps
            .map_or_else(|| "-".to_owned(), figures::rate_pps),
        report
            .rates
            .received_l2_bps
            .map_or_else(|| "-".to_owned(), figures::rate_bps),
        time(report.latency_ns.p50),
        time(report.latency_ns.p99),
    ]);
}

fn pps(n: u64) -> Rate {
    Rate::Pps(Rational::whole(n))
}

/// (a) 64- and 1518-byte frames through the kernel router, at full speed and at a fixed rate; (b) latency at a tenth
/// of the rate received without loss.
fn router(tour: &mut Tour<'_>) -> Step<()> {
    let options = LabOptions {
        name: Some(format!("demo-{}", std::process::id())),
        ..LabOptions::default()
    };
    let lab = Lab::up(LabKind::Router, &options)?;
    tour.say(&format!(
        "\n(a) through a kernel router: {} -> {} -> {}, {TRIAL} per trial\n",
        lab.port("a0"),
        lab.node("dut"),
        lab.port("b0")
    ));
    let mut table = trial_table();
    let mut limits = Vec::new();
    for size in [64, 1518] {
        for rate in [Rate::Max, pps(FIXED)] {
            let name = format!("router, {size} bytes, {rate}");
            let report = match tour.trial(&name, &lab, size, rate)? {
                Ok(report) => report,
                Err(early) => return Ok(Err(early)),
            };
            trial_row(&mut table, size, rate, &report);
            limits.push(format!(
                "  {size} bytes, {rate}: limited by {}",
                report.limited_by
            ));
            if report.totals.lost_frames == Some(0)
                && let Some(carried) = report.rates.received_pps
            {
                tour.carried = Some(tour.carried.map_or(carried, |c| c.max(carried)));
            }
        }
    }
    tour.say(&format!("{}{}", table.text(2), limits.join("\n")));

    let carried = tour.carried.unwrap_or(FIXED as f64);
    let tenth = ((carried / 10.0) as u64).max(1_000);
    tour.say(&format!(
        "\n(b) latency at 10 % of the highest rate without loss ({})\n",
        figures::rate_pps(carried)
    ));
    let report = match tour.trial("router, latency at 10 %", &lab, 64, pps(tenth))? {
        Ok(report) => report,
        Err(early) => return Ok(Err(early)),
    };
    let mut table = Table::new();
    for title in [
        "rate", "samples", "min", "mean", "p50", "p90", "p99", "p99.9", "max",
    ] {
        table = table.right(title);
    }
    let l = &report.latency_ns;
    let time = |v: Option<i64>| v.map_or_else(|| "-".to_owned(), |v| figures::time_ns(v as f64));
    table.row([
        pps(tenth).to_string(),
        figures::count(l.samples),
        time(l.min),
        l.mean.map_or_else(|| "-".to_owned(), figures::time_ns),
        time(l.p50),
        time(l.p90),
        time(l.p99),
        time(l.p999),
        time(l.max),
    ]);
    tour.say(&format!(
        "{}  from {} to {}; lost {}; limited by {}",
        table.text(2),
        report.clock.tx_stamp,
        report.clock.rx_stamp,
        figures::count_or(report.totals.lost_frames),
        report.limited_by
    ));
    lab.down()?;
    Ok(Ok(()))
}

/// (c) Configured, actual and measured impairments of the impairing device.
fn impaired(tour: &mut Tour<'_>) -> Step<()> {
    let injected = impairment();
    let options = LabOptions {
        name: Some(format!("demoi-{}", std::process::id())),
        impair: Some(injected.clone()),
        ..LabOptions::default()
    };
    let lab = Lab::up(LabKind::Impair, &options)?;
    tour.say(
        "\n(c) through a device with 300 us delay, 1 % loss, 0.5 % duplicates, 2 % reordered\n",
    );
    let before = counters(&lab)?;
    let report = match tour.trial("impair", &lab, 64, pps(IMPAIRED))? {
        Ok(report) => report,
        Err(early) => return Ok(Err(early)),
    };
    let after = counters(&lab)?;
    let did = |f: fn(&DirectionCounters) -> u64| f(&after) - f(&before);
    let t = &report.totals;
    let mut table = Table::new()
        .left("frames")
        .right("device")
        .right("measured")
        .left("");
    let rows = [
        ("sent", did(|c| c.arrived), t.offered_frames),
        ("lost", did(|c| c.lost + c.rate_dropped), t.lost_frames),
        ("duplicate", did(|c| c.duplicated), t.duplicate_frames),
        ("reordered", did(|c| c.reordered), t.reordered_frames),
        ("received", did(|c| c.left), t.received_frames),
    ];
    for (name, truth, measured) in rows {
        let same = measured == Some(truth);
        if !same {
            tour.wrong.push(format!(
                "impair: {name}: the device counted {}, the trial measured {}",
                truth,
                figures::count_or(measured)
            ));
        }
        table.row([
            name.to_owned(),
            figures::count(truth),
            figures::count_or(measured),
            if same { "equal" } else { "DIFFERENT" }.to_owned(),
        ]);
    }
    let median = report
        .latency_ns
        .p50
        .map_or_else(|| "-".to_owned(), |v| figures::time_ns(v as f64));
    tour.say(&format!(
        "{}  median latency {median} (300 us in the device, plus both links); limited by {}",
        table.text(2),
        report.limited_by
    ));
    if let Some(step) = tour.steps.last_mut() {
        step.device = Some(after);
    }
    lab.down()?;
    Ok(Ok(()))
}

/// Returns the device's counters from a to b, once no frame is in flight.
fn counters(lab: &Lab) -> Result<DirectionCounters> {
    let mut last = None;
    // The device publishes every 50 ms. Two equal readings without frames in flight are final.
    for _ in 0..40 {
        std::thread::sleep(std::time::Duration::from_millis(60));
        let now = lab
            .status()
            .device
            .and_then(|d| d.counters)
            .map(|c| c.a_to_b);
        if now.is_some() && now == last && now.as_ref().is_some_and(|c| c.inside == 0) {
            break;
        }
        last = now;
    }
    last.context("the impairing device does not publish its counters")
}

pub(crate) fn run(args: &DemoArgs) -> Result<u8> {
    let in_user_namespace = wb_testbed::gain_privileges()?;
    check_writable(&args.output).map_err(|e| anyhow::anyhow!("{e}; use --output FILE"))?;
    report::check(&args.report)?;
    let mut tour = Tour {
        args,
        signals: Signals::install()?,
        steps: Vec::new(),
        runs: Vec::new(),
        carried: None,
        wrong: Vec::new(),
    };
    // Removes the remains of an earlier demo that was killed.
    let _ = wb_testbed::sweep(&wb_testbed::SweepScope {
        force: false,
        only: Some("demo".to_owned()),
    });
    let cpus = wb_machine::cpu::allowed().map_or(0, |c| c.len());
    tour.say(&format!(
        "wirebench {}: runs on this machine only ({cpus} CPUs), in network namespaces",
        env!("CARGO_PKG_VERSION")
    ));
    if in_user_namespace || Privileges::of_this_process().in_user_namespace {
        tour.say("not root: running in a user namespace, with the packet driver");
    }
    let steps: [fn(&mut Tour<'_>) -> Step<()>; 2] = [router, impaired];
    let mut early = None;
    for step in steps {
        if let Err(Interrupted(code)) = step(&mut tour)? {
            early = Some(code);
            break;
        }
    }
    let verdict = match (&early, tour.wrong.is_empty()) {
        (Some(_), _) => "interrupted",
        (None, true) => "pass",
        (None, false) => "fail",
    };
    let document = DemoDocument {
        schema: "wirebench.demo/1",
        verdict,
        wrong: &tour.wrong,
        steps: &tour.steps,
    };
    debug_assert_eq!(mismatch(&document), None, "a document matches its schema");
    let text = serde_json::to_string_pretty(&document)?;
    let written = std::fs::write(&args.output, format!("{text}\n"));
    if args.json {
        deliver(&text)?;
    }
    let trials = tour.steps.len();
    let summary = match (early, tour.wrong.as_slice()) {
        (Some(_), _) => format!("\ninterrupted after {}", counted(trials, "trial", "trials")),
        (None, []) => {
            format!("\nall {trials} trials add up, and all measurements match the device counters")
        }
        (None, wrong) => format!(
            "\nmeasurements differ from the device counters:\n  {}",
            wrong.join("\n  ")
        ),
    };
    let file = args.output.display();
    if let Err(e) = written {
        // An incomplete document must not remain.
        let _ = std::fs::remove_file(&args.output);
        tour.say(&summary);
        return Err(Fault(format!("cannot write the report to {file}: {e}")).into());
    }
    tour.say(&format!("{summary}; all results: {file}"));
    wb_files::report::write(&tour.runs, &args.report)?;
    tour.say(&format!(
        "report with plots and tables: {}",
        args.report.display()
    ));
    if early.is_none() {
        tour.say("next: wirebench lab up pair; wirebench trial --tx wb-pair-a/a0 --rx wb-pair-b/b0 --rate 100kpps");
    }
    Ok(early.unwrap_or(u8::from(!tour.wrong.is_empty())))
}
