//! Carries out one run in its thread, and publishes its events from another thread, so that the run never waits for a
//! disk or a reader.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use jiff::{Timestamp, tz::TimeZone};
use serde_json::json;
use wb_model::{Phase, Plan, Report, Snapshot, Verdict, bench::TrialPurpose, timeline::Timeline};
use wb_render::metrics::Seen;
use wb_session::{End, Environment, Extras, Finished, Observer, StartError, View, prepare};

use crate::{
    runs::{JobsSoFar, Run, Settings},
    store::{EventFile, KeyFigure, RunEnd, RunState},
};

/// Shortest time between two copies of the report so far on the disk.
const SAVE: Duration = Duration::from_secs(1);
/// Snapshots that may wait for the publisher; further ones are left out.
const MOST_WAITING: usize = 256;

/// News of the run for its publisher.
enum News {
    State(RunState),
    Message(String),
    View {
        snapshot: Box<Snapshot>,
        so_far: Box<Report>,
        figures: Timeline,
    },
}

/// End of a run.
pub(crate) struct Ending {
    pub(crate) end: RunEnd,
    pub(crate) reason: String,
    /// The report, if the run had started.
    pub(crate) report: Option<Box<Report>>,
    /// File of the events, as far as it could be written.
    pub(crate) events: Option<EventFile>,
}

impl Ending {
    /// End of a run that has no report.
    pub(crate) fn without_report(end: RunEnd, reason: impl Into<String>) -> Self {
        Self {
            end,
            reason: reason.into(),
            report: None,
            events: None,
        }
    }
}

/// Work of a run.
pub(crate) enum Work {
    /// To carry out a plan.
    Start(Box<Plan>),
    /// To continue a run over a fleet that a server left behind.
    Resume,
}

/// Carries out a run. Its last events and its report are still to be published.
pub(crate) fn carry_out(run: &Arc<Run>, work: Work, settings: &Settings) -> Ending {
    let (news, arrivals) = channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let (published, counted) = (Arc::clone(run), Arc::clone(&waiting));
    let publisher = thread::Builder::new()
        .name("wb-publisher".to_owned())
        .spawn(move || publish(&published, &arrivals, &counted));
    let observer = Publisher {
        news,
        waiting,
        figures: Timeline::default(),
        run,
    };
    // A defect must not end the runs of others.
    let work = AssertUnwindSafe(|| do_work(work, settings, observer));
    let result = catch_unwind(work).unwrap_or_else(|_| Err(None));
    let events = publisher.ok().and_then(|thread| thread.join().ok());
    let ending = match result {
        Ok(finished) => of_finished(run, finished),
        Err(Some(StartError::Interrupted(_))) => {
            Ending::without_report(RunEnd::Stopped, "stopped before it started")
        }
        Err(Some(error)) => Ending::without_report(RunEnd::Refused, error.to_string()),
        Err(None) => Ending::without_report(
            RunEnd::Fault,
            "a defect of the program ended the run; standard error of the server has the place",
        ),
    };
    Ending {
        events: events.flatten(),
        ..ending
    }
}

fn of_finished(run: &Run, finished: Finished) -> Ending {
    let mut report = finished.report;
    if run.was_steered() {
        let text = "a client changed the rate during the run".to_owned();
        report.warnings.push(text);
    }
    Ending {
        end: match finished.end {
            End::Completed => RunEnd::Finished,
            End::Signal(_) => RunEnd::Stopped,
            End::Fault(_) => RunEnd::Fault,
        },
        reason: report.reason.clone(),
        report: Some(Box::new(report)),
        events: None,
    }
}

fn do_work(
    work: Work,
    settings: &Settings,
    mut observer: Publisher<'_>,
) -> Result<Finished, Option<StartError>> {
    let run = observer.run;
    observer.tell(News::State(RunState::Preparing));
    let environment = Environment {
        run: Some(run.id.clone()),
        signals: run.signals.clone(),
        steering: run.steering.clone(),
        base: settings.grants.files.clone(),
        shares_process: true,
        ..Environment::default()
    };
    let finished = match work {
        Work::Start(plan) => run_plan(*plan, environment, settings, &mut observer),
        Work::Resume => {
            let carrier = settings.carrier.as_ref();
            let resumed = carrier.and_then(|c| c.resume(&run.id, &environment, &mut observer));
            let unknown = || Err(StartError::stream("fleet", "knows nothing of the run"));
            resumed
                .unwrap_or_else(unknown)
                .map(|(report, end)| Finished { report, end })
        }
    };
    finished.map_err(Some)
}

fn run_plan(
    plan: Plan,
    environment: Environment,
    settings: &Settings,
    observer: &mut Publisher<'_>,
) -> Result<Finished, StartError> {
    let has_hosts = plan.first_host().is_some();
    let environment = Environment {
        carrier: settings.carrier.clone().filter(|_| has_hosts),
        hints: (settings.hints)(&plan),
        ..environment
    };
    let mut extras = Extras {
        progress: true,
        ..Extras::default()
    };
    extras.capture.zone = TimeZone::system();
    if has_hosts && plan.procedure.is_none() {
        return wb_session::carry_out(plan, &environment, extras, observer);
    }
    let prepared = prepare(plan, &environment, extras)?;
    observer.run.resolved(prepared.plan());
    for warning in prepared.warnings() {
        observer.tell(News::Message(warning.clone()));
    }
    observer.tell(News::State(RunState::Armed));
    prepared.run(observer)
}

/// Stores the report, and publishes the last events of a run. Returns the report if it could not be stored.
pub(crate) fn publish_end(run: &Run, ending: Ending) -> Option<Box<Report>> {
    let Ending {
        end,
        reason,
        report,
        mut events,
    } = ending;
    let mut unsaved = None;
    if let Some(report) = &report {
        run.show(Seen {
            figures: report.timeline.last(),
            snapshot: run.seen().snapshot.clone(),
            report: Some((**report).clone()),
            ..Seen::default()
        });
        unsaved = run.folder.write("report.json.zst", report).err();
    }
    let data = json!({ "state": RunState::Ended, "end": end, "reason": reason });
    add(run, &mut events, "state", &data.to_string());
    if let Some(error) = &unsaved {
        let text = format!("the report is kept in memory until it can be written: {error}");
        let data = json!({ "text": text });
        add(run, &mut events, "message", &data.to_string());
    }
    if let Some(report) = &report {
        let data = json!({
            "id": run.id,
            "verdict": report.verdict,
            "reason": report.reason,
            "href": format!("/api/v1/runs/{}/report", run.id),
        });
        add(run, &mut events, "report", &data.to_string());
    }
    if let Some(events) = events {
        let _ = events.finish();
    }
    report.filter(|_| unsaved.is_some())
}

/// Publishes an event, and stores it for as long as the disk takes it.
fn add(run: &Run, events: &mut Option<EventFile>, name: &'static str, data: &str) {
    let id = run.feed.push(name, data);
    if let Some(file) = events
        && file.add(id, name, data).is_err()
    {
        *events = None;
    }
}

/// Observer of a run: hands everything to the publisher.
struct Publisher<'a> {
    news: Sender<News>,
    waiting: Arc<AtomicUsize>,
    /// The last moment of the timeline.
    figures: Timeline,
    run: &'a Arc<Run>,
}

impl Publisher<'_> {
    fn tell(&self, news: News) {
        // Sending fails only without a publisher.
        let _ = self.news.send(news);
    }
}

impl Observer for Publisher<'_> {
    fn started(&mut self) {
        self.run.begins();
        self.tell(News::State(RunState::Running));
    }

    fn recorded(&mut self, timeline: &Timeline) {
        self.run.course.offer(timeline);
        self.figures = timeline.last();
    }

    fn view(&mut self, view: &View<'_>) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let figures = std::mem::take(&mut self.figures);
        self.tell(News::View {
            snapshot: Box::new(view.snapshot.clone()),
            so_far: Box::new(view.report.clone()),
            figures,
        });
    }
}

/// Publishes the news of a run until the run has ended. Returns the file of events.
fn publish(run: &Run, arrivals: &Receiver<News>, waiting: &AtomicUsize) -> Option<EventFile> {
    // Without this file the run has no history of its events, and nothing else is lost.
    let mut events = run.folder.events().ok();
    let mut saved: Option<Instant> = None;
    for news in arrivals {
        match news {
            News::State(state) => set_state(run, &mut events, state),
            News::Message(text) => {
                add(
                    run,
                    &mut events,
                    "message",
                    &json!({ "text": text }).to_string(),
                );
            }
            News::View {
                snapshot,
                so_far,
                figures,
            } => {
                waiting.fetch_sub(1, Ordering::Relaxed);
                // The phases of a benchmark are those of its trials.
                if snapshot.phase == Phase::Drain && snapshot.bench.is_none() {
                    set_state(run, &mut events, RunState::Draining);
                }
                run.change(|meta| {
                    meta.progress = snapshot.progress.or_else(|| progress_of_search(&snapshot));
                    meta.now = wb_render::live::now(&snapshot);
                    meta.figures = KeyFigure::of(&so_far);
                });
                if let Ok(text) = serde_json::to_string(&snapshot) {
                    add(run, &mut events, "snapshot", &text);
                }
                run.show_jobs(JobsSoFar {
                    elapsed_ns: snapshot.elapsed_ns,
                    phase: snapshot.phase,
                    jobs: Arc::new(so_far.jobs.clone()),
                    ports: Arc::new(so_far.ports.clone()),
                });
                run.show(Seen {
                    figures,
                    snapshot: Some(*snapshot),
                    so_far: Some(so_far.jobs_alone()),
                    ..Seen::default()
                });
                let so_far = Report {
                    verdict: Verdict::Incomplete,
                    ..*so_far
                };
                if saved.is_none_or(|at| at.elapsed() >= SAVE) {
                    saved = Some(Instant::now());
                    // The history needs it only if this process is killed.
                    let _ = run.folder.write_quickly("so-far.json", &so_far);
                }
                run.has_report_so_far(so_far);
            }
        }
    }
    events
}

/// Share of the time of a benchmark that has passed, by the estimate of its remaining time.
#[allow(clippy::cast_precision_loss)]
fn progress_of_search(snapshot: &Snapshot) -> Option<f64> {
    let bench = snapshot.bench.as_ref()?;
    // The estimate of a trial that measures the tester does not include the tests.
    let left_ns = bench
        .left_ns
        .filter(|_| bench.purpose != Some(TrialPurpose::Ceiling))?;
    let elapsed_ns = snapshot.elapsed_ns as f64;
    let whole_ns = elapsed_ns + left_ns as f64;
    (whole_ns > 0.0).then(|| elapsed_ns / whole_ns)
}

fn set_state(run: &Run, events: &mut Option<EventFile>, state: RunState) {
    let mut is_new = false;
    run.change(|meta| {
        // The first state was set when the run left the queue.
        is_new = meta.state != state || state == RunState::Preparing;
        meta.state = state;
        if state == RunState::Running && meta.started.is_none() {
            meta.started = Some(Timestamp::now().to_string());
        }
    });
    if is_new {
        let meta = run.meta();
        let _ = run.folder.write_quickly("run.json", &meta);
        add(run, events, "state", &json!({ "state": state }).to_string());
    }
}
