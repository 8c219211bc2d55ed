//! Runs a plan, for all commands.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;
use jiff::{Timestamp, tz::TimeZone};
use wb_machine::runs::Listed;
use wb_model::{JobKind, Plan, Snapshot, bench::BenchLive, text::plan_to_toml, timeline::Timeline};
use wb_session::{
    End, Environment, Extras, Finished, Observer, PortHint, Prepared, Signals, View, prepare,
};

use crate::{
    args::OutputArgs,
    deliver::{deliver_report, print, show, write_files},
    metrics, safety,
    say::say,
    screen::Live,
};

/// One run: a plan and everything else that the run needs.
pub(crate) struct Runner<'a> {
    pub(crate) plan: Plan,
    pub(crate) output: &'a OutputArgs,
    pub(crate) signals: Signals,
    pub(crate) extras: Extras,
    /// Folder of the files that the plan names.
    pub(crate) base: Option<PathBuf>,
    /// Socket that takes commands during the run.
    pub(crate) control: Option<PathBuf>,
    /// True if the screen may open.
    pub(crate) screen: bool,
}

/// Output of a command about its run, in addition to screen, metrics and files.
pub(crate) trait Show {
    /// Takes over the start.
    fn started(&mut self) {}

    /// Takes over a view that the user asked for with SIGUSR1, between regular views.
    fn asked(&mut self, view: &View<'_>) {
        show(&view.snapshot);
    }

    /// Takes over a view. `on_screen` is true if the screen shows it.
    fn view(&mut self, view: &View<'_>, on_screen: bool);
}

impl<F: FnMut(&View<'_>, bool)> Show for F {
    fn view(&mut self, view: &View<'_>, on_screen: bool) {
        self(view, on_screen);
    }
}

impl<'a> Runner<'a> {
    /// Creates a run with the screen that the options permit.
    pub(crate) fn new(plan: Plan, output: &'a OutputArgs, signals: Signals) -> Self {
        Self {
            plan,
            output,
            signals,
            extras: Extras::default(),
            base: None,
            control: None,
            screen: output.has_screen(),
        }
    }

    /// Serves metrics if the options ask for it, and does everything that can fail before the first frame.
    ///
    /// # Errors
    /// [`wb_session::StartError`] if the plan cannot run, or the reason why metrics cannot be served.
    pub(crate) fn prepare(mut self) -> Result<Ready<'a>> {
        metrics::serve(&self.output.metrics, &self.signals)?;
        let listed = listed(&self.plan.kind, &wb_render::plan_target(&self.plan));
        let environment = Environment {
            hints: lab_hints(&self.plan),
            signals: self.signals,
            base: self.base,
            control: self.control,
            #[cfg(feature = "fleet")]
            carrier: self.output.carrier()?,
            ..Environment::default()
        };
        self.extras.histograms = self.output.histograms;
        self.extras.capture.zone = TimeZone::system();
        // Benchmarks run here, and their trials over the fleet.
        let is_elsewhere = environment.carrier.is_some() && self.plan.procedure.is_none();
        let (live, work) = match is_elsewhere {
            true => (
                Live::elsewhere(&self.plan, self.screen, &environment),
                Work::Elsewhere(Box::new((self.plan, environment))),
            ),
            false => {
                let prepared = prepare(self.plan, &environment, self.extras)?;
                let live = Live::new(&prepared, self.screen, &environment);
                (live, Work::Here(Box::new(prepared)))
            }
        };
        Ok(Ready {
            live,
            work,
            output: self.output,
            listed,
        })
    }
}

/// Work of a run.
enum Work {
    /// In this process.
    Here(Box<Prepared>),
    /// On other hosts, which prepare it.
    Elsewhere(Box<(Plan, Environment)>),
}

/// A run that is ready to start.
pub(crate) struct Ready<'a> {
    work: Work,
    live: Live,
    output: &'a OutputArgs,
    listed: Listed,
}

/// Lists a run of this process until the value is dropped: `wirebench ls` shows it.
pub(crate) fn listed(kind: &str, target: &str) -> Listed {
    let now = Timestamp::now();
    let stamp = now.strftime("%Y%m%dT%H%M%S").to_string();
    let now_ns = u64::try_from(now.as_nanosecond()).unwrap_or(0);
    Listed::new(&stamp, kind, target, now_ns, None)
}

impl Ready<'_> {
    /// Facts about the run, if this process carries it out.
    pub(crate) fn prepared(&self) -> Option<&Prepared> {
        match &self.work {
            Work::Here(prepared) => Some(prepared),
            Work::Elsewhere(_) => None,
        }
    }

    /// The plan, as far as it is resolved.
    pub(crate) fn plan(&self) -> &Plan {
        match &self.work {
            Work::Here(prepared) => prepared.plan(),
            Work::Elsewhere(work) => &work.0,
        }
    }

    /// Runs the plan to its end and writes the requested files. The terminal is then as before.
    ///
    /// # Errors
    /// If the run cannot start.
    pub(crate) fn run(self, show: &mut dyn Show) -> Result<Finished> {
        let mut watched = Watched {
            live: self.live,
            show,
        };
        let finished = match self.work {
            Work::Here(prepared) => metrics::run(*prepared, &mut watched),
            Work::Elsewhere(work) => metrics::watch(&mut watched, |observer| {
                let (plan, environment) = *work;
                wb_session::carry_out(plan, &environment, Extras::default(), observer)
            }),
        }?;
        drop(self.listed);
        write_files(&finished.report, self.output);
        Ok(finished)
    }
}

/// Observer of a run: screen, then the output of the command.
struct Watched<'a> {
    live: Live,
    show: &'a mut dyn Show,
}

impl Observer for Watched<'_> {
    fn started(&mut self) {
        self.show.started();
    }

    fn recorded(&mut self, timeline: &Timeline) {
        self.live.recorded(timeline);
    }

    fn view(&mut self, view: &View<'_>) {
        let on_screen = self.live.view(view);
        match view.asked {
            true => self.show.asked(view),
            false => self.show.view(view, on_screen),
        }
    }
}

/// Returns hints about lab ends, by place.
pub(crate) fn lab_hints(plan: &Plan) -> BTreeMap<String, PortHint> {
    let hint = |locator: &wb_model::Locator| {
        let hint = wb_testbed::find_port(locator.node.as_deref(), &locator.name)?;
        let peer_mac = Some(hint.peer_mac);
        Some((locator.place(), PortHint { peer_mac }))
    };
    plan.locators().filter_map(hint).collect()
}

/// Applies the output options to a plan. If they ask for the plan only, prints it and returns false.
///
/// # Errors
/// If an option does not fit the plan, a file cannot be written, or the plan to print is not valid.
pub(crate) fn is_to_run(plan: &mut Plan, output: &OutputArgs) -> Result<bool> {
    output.apply(plan)?;
    if output.print_plan {
        plan.validate()?;
        print(&plan_to_toml(plan));
    }
    Ok(!output.print_plan)
}

/// Prints the ports of a run if the options ask for details.
pub(crate) fn say_ports(run: &Ready<'_>, output: &OutputArgs) {
    if output.verbose {
        let lines = run.prepared().map(Prepared::port_lines);
        lines.into_iter().flatten().for_each(say);
    }
}

/// Prints the warnings of a run.
pub(crate) fn say_warnings(run: &Ready<'_>) {
    let warnings = run.prepared().map(Prepared::warnings);
    for warning in warnings.unwrap_or_default() {
        say(format_args!("wirebench: {warning}"));
    }
}

/// Prints why a run, which `noun` names, ended early.
pub(crate) fn say_fault(finished: &Finished, noun: &str) {
    if let End::Fault(text) = &finished.end {
        say(format_args!(
            "wirebench: the {noun} ended by a fault: {text}"
        ));
    }
}

/// Runs a plan with the output options. Returns the exit code.
pub(crate) fn run_plan(mut plan: Plan, output: &OutputArgs, base: Option<PathBuf>) -> Result<u8> {
    if !is_to_run(&mut plan, output)? {
        return Ok(0);
    }
    safety::confirm(&mut plan)?;
    let finished = carry_out(plan, output, base)?;
    deliver_report(&finished.report, output)?;
    Ok(finished.exit_code())
}

/// Runs a plan and shows its progress.
pub(crate) fn carry_out(
    plan: Plan,
    output: &OutputArgs,
    base: Option<PathBuf>,
) -> Result<Finished> {
    let signals = match plan.has(JobKind::Capture) {
        true => Signals::install_for_capture()?,
        false => Signals::install()?,
    };
    let kind = plan.kind.clone();
    let mut runner = Runner::new(plan, output, signals);
    runner.base = base;
    runner.extras.progress = output.live_json || !output.quiet;
    let ready = runner.prepare()?;
    say_ports(&ready, output);
    for address in ready
        .prepared()
        .map(Prepared::addresses)
        .unwrap_or_default()
    {
        if !output.quiet {
            say(format_args!("listening at {address}"));
        }
    }
    let mut shown = Instant::now();
    let finished = ready.run(&mut |view: &View<'_>, on_screen: bool| {
        if output.live_json {
            print(&wb_render::json::snapshot(&kind, &view.snapshot));
        } else if !(output.quiet || on_screen || is_brief(&view.snapshot, shown)) {
            show(&view.snapshot);
            shown = Instant::now();
        }
    })?;
    say_fault(&finished, "run");
    Ok(finished)
}

/// Duration from which a trial of a benchmark gets its own live lines.
const QUIET_TRIAL: Duration = Duration::from_secs(2);

/// Returns true if a snapshot is of a trial that began a moment ago, which gets a line at its end.
fn is_brief(snapshot: &Snapshot, since: Instant) -> bool {
    let running = |bench: &BenchLive| bench.trial > 0 && bench.ended.is_none();
    snapshot.bench.as_ref().is_some_and(running) && since.elapsed() < QUIET_TRIAL
}
