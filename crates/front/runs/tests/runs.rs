//! Runs over ports in memory, several at once, without a network.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use wb_model::{
    Plan, Report, Verdict,
    fleet::{Agent, HostReport, HostState},
    text::plan_from_toml,
};
use wb_runs::{Grants, Refusal, Run, RunEnd, RunRequest, RunState, Runs, Settings};
use wb_session::{Carrier, End, Environment, Observer, StartError, View};
use wb_testing::eventually_within;

/// Longest time for what happens soon.
const SOON: Duration = Duration::from_secs(60);

fn settings(state: &Path, most: usize) -> Settings {
    Settings {
        state: state.to_owned(),
        keep: 100,
        most,
        grants: Grants::default(),
        ports: Vec::new(),
        carrier: None,
        socket: None,
        hints: |_| BTreeMap::new(),
    }
}

fn plan(text: &str) -> Plan {
    let ports = "[[port]]\nname = \"a\"\nlocator = \"memory:x\"\n[[port]]\nname = \"b\"\nlocator = \"memory:x\"\n";
    plan_from_toml("plan", &format!("{ports}{text}")).unwrap()
}

/// Sends frames for a time, or until it is stopped.
fn traffic(amount: &str) -> Plan {
    plan(&format!(
        "[[traffic]]\ntx = \"a\"\nrx = \"b\"\ncatch_up = \"10s\"\n{amount}\n[[traffic.stream]]\nrate = \"2kpps\"\nflows = 3\n"
    ))
}

fn request(plan: Plan) -> RunRequest {
    RunRequest {
        plan,
        ..RunRequest::default()
    }
}

fn wait_for_end(run: &Run) {
    eventually_within(SOON, "it ends", || run.feed.after(u64::MAX).over);
}

fn wait_for(run: &Run, state: RunState) {
    eventually_within(SOON, "its state", || run.meta().state == state);
}

/// Names of the events so far.
fn events(run: &Run) -> Vec<&'static str> {
    run.feed
        .after(0)
        .events
        .iter()
        .map(|event| event.name)
        .collect()
}

#[test]
fn a_run_measures_what_it_measures_alone() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::new(settings(folder.path(), 4)).unwrap();
    let mut plan = traffic("count = 500");
    plan.first_flow = Some(7);
    let alone = wb_session::run(plan.clone(), &Environment::default(), &mut |_: &View<
        '_,
    >| {});
    let alone: Report = alone.unwrap().report;
    // Several at once.
    let started: Vec<Arc<Run>> = (0..3)
        .map(|_| runs.start(request(plan.clone())).unwrap())
        .collect();
    for run in &started {
        // A run that is shown as ended has its report.
        wait_for(run, RunState::Ended);
        assert!(runs.report(&run.id).is_some());
        wait_for_end(run);
        let report = runs.report(&run.id).unwrap();
        assert_eq!(report.totals.offered_frames, Some(500));
        assert_eq!(report.totals.received_frames, alone.totals.received_frames);
        assert_eq!(report.totals.lost_frames, Some(0));
        assert_eq!(report.plan, alone.plan);
        let meta = runs.get(&run.id).unwrap();
        assert_eq!(
            (meta.state, meta.end),
            (RunState::Ended, Some(RunEnd::Finished))
        );
        assert_eq!(meta.verdict, Some(Verdict::Completed));
        let names = events(run);
        assert_eq!(names[..3], ["state"; 3]);
        assert_eq!(names[names.len() - 2..], ["state", "report"]);
        // The disk has the same events.
        assert!(runs.events(&run.id).eq(run.feed.after(0).events));
    }
    let ids: Vec<String> = runs
        .list()
        .into_iter()
        .map(|meta| meta.id.clone())
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.is_sorted_by(|a, b| a > b), "{ids:?}");
}

#[test]
fn runs_wait_for_others_and_are_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::new(settings(folder.path(), 1)).unwrap();
    let first = runs.start(request(traffic(""))).unwrap();
    assert!(matches!(
        runs.start(request(traffic(""))),
        Err(Refusal::Busy(1))
    ));
    let waiting = |wait| RunRequest {
        wait: Some(wait),
        ..request(traffic(""))
    };
    let second = runs.start(waiting(SOON)).unwrap();
    let stopped = runs.start(waiting(SOON)).unwrap();
    let late = runs.start(waiting(Duration::from_millis(20))).unwrap();
    wait_for_end(&late);
    let refused = runs.get(&late.id).unwrap();
    assert_eq!(refused.end, Some(RunEnd::Refused));
    assert!(
        refused.reason.contains("1 runs were active"),
        "{}",
        refused.reason
    );
    assert!(runs.stop(&stopped.id, false));
    assert_eq!(runs.get(&stopped.id).unwrap().end, Some(RunEnd::Stopped));
    assert_eq!(second.meta().state, RunState::Queued);
    wait_for(&first, RunState::Running);
    for _ in 0..3 {
        // Repeated requests do not hurry.
        assert!(runs.stop(&first.id, false));
    }
    wait_for_end(&first);
    let report = runs.report(&first.id).unwrap();
    assert_eq!(report.verdict, Verdict::Incomplete);
    assert_eq!(report.totals.lost_frames, Some(0));
    wait_for(&second, RunState::Running);
    second.ask_for_course();
    eventually_within(SOON, "its figures", || second.courses() > 0);
    assert!(second.course().is_some_and(|course| !course.is_empty()));
    // All runs end with the program.
    assert!(runs.end(SOON));
    assert_eq!(runs.get(&second.id).unwrap().end, Some(RunEnd::Stopped));
    assert!(runs.report(&second.id).is_some());
    assert!(matches!(
        runs.start(request(traffic("count = 1"))),
        Err(Refusal::Stopping)
    ));
    assert!(!runs.stop("nobody", false));
}

#[test]
fn a_run_that_cannot_start_is_kept_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::new(settings(folder.path(), 4)).unwrap();
    let missing = "[[port]]\nname = \"a\"\nlocator = \"nosuch0\"\n[[traffic]]\ntx = \"a\"\ncount = 1\n[[traffic.stream]]\n";
    let plan = plan_from_toml("plan", missing).unwrap();
    let run = runs.start(request(plan.clone())).unwrap();
    wait_for_end(&run);
    let meta = runs.get(&run.id).unwrap();
    assert_eq!(meta.end, Some(RunEnd::Refused));
    assert!(meta.reason.contains("nosuch0"), "{}", meta.reason);
    assert!(runs.report(&run.id).is_none());
    let last = run.feed.after(0).events.pop().unwrap();
    assert!(last.data.contains("refused"), "{}", last.data);
    // Its port is free again.
    assert!(runs.start(request(plan)).is_ok());
    let invalid = RunRequest::default();
    assert!(matches!(runs.start(invalid), Err(Refusal::Plan(_))));
}

#[test]
fn captures_write_into_the_folder_of_their_run() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::new(settings(folder.path(), 4)).unwrap();
    let capture = "[[capture]]\nports = [\"b\"]\noutput = { path = \"all.pcap\" }\n";
    let text = "[[traffic]]\ntx = \"a\"\ncount = 5\n[[traffic.stream]]\nrate = \"1kpps\"\n";
    let run = runs
        .start(request(plan(&format!("{text}{capture}"))))
        .unwrap();
    wait_for_end(&run);
    let meta = runs.get(&run.id).unwrap();
    assert_eq!(meta.end, Some(RunEnd::Finished), "{}", meta.reason);
    let files = runs.files(&run.id).unwrap();
    assert!(files.join("all.pcap").metadata().unwrap().len() > 24);
    for path in ["/tmp/x.pcap", "../x.pcap"] {
        let capture = capture.replace("all.pcap", path);
        let refused = runs.start(request(plan(&format!("{text}{capture}"))));
        assert!(matches!(refused, Err(Refusal::Powers(_))), "{path}");
    }
}

/// Report of a run over one host; `None`: the host is lost.
fn of_shares(offered: Option<u64>) -> Report {
    let mut report = Report {
        reason: "of the shares".to_owned(),
        hosts: vec![HostReport {
            host: "h1".to_owned(),
            state: match offered {
                Some(_) => HostState::Complete,
                None => HostState::Lost,
            },
            ..HostReport::default()
        }],
        ..Report::default()
    };
    report.totals.offered_frames = offered;
    report
}

/// A plan with its ports on another host.
fn far() -> Plan {
    let mut plan = traffic("count = 5");
    for port in &mut plan.ports {
        port.locator.host = Some("h1".to_owned());
        port.locator.driver = None;
        port.locator.name.clone_from(&port.name);
    }
    plan
}

/// A fleet that knows one run.
#[derive(Debug)]
struct Knows(&'static str);

impl Carrier for Knows {
    fn carry_out(
        &self,
        _: Plan,
        _: &Environment,
        _: &mut dyn Observer,
    ) -> Result<(Report, End), StartError> {
        unreachable!("nothing is started")
    }

    fn resume(
        &self,
        run: &str,
        environment: &Environment,
        observer: &mut dyn Observer,
    ) -> Option<Result<(Report, End), StartError>> {
        assert_eq!(environment.run.as_deref(), Some(run));
        observer.started();
        (run == self.0).then(|| Ok((of_shares(Some(77)), End::Completed)))
    }

    fn delivered_late(&self) -> Vec<String> {
        Vec::new()
    }

    fn agents(&self) -> Vec<Agent> {
        Vec::new()
    }

    fn drain(&self, _: &str, _: bool) -> Result<(), String> {
        Ok(())
    }

    fn close(&self) {}
}

/// A server was killed during two runs over a fleet. The next one continues the one that the fleet knows.
#[test]
fn runs_over_a_fleet_outlive_their_server() {
    let folder = tempfile::tempdir().unwrap();
    let far = far();
    let runs = Runs::new(settings(folder.path(), 1)).unwrap();
    let refused = runs.start(request(far.clone()));
    assert!(matches!(refused, Err(Refusal::Plan(why)) if why.to_string().contains("--fleet")));
    assert!(runs.end(SOON));
    drop(runs);
    for id in ["20261126T211500-0001", "20261126T211500-0002"] {
        let run = folder.path().join("runs").join(id);
        std::fs::create_dir_all(run.join("files")).unwrap();
        let meta = serde_json::json!({
            "id": id, "kind": "trial", "target": "h1:x", "ports": [], "state": "running", "elapsed_ns": 5,
            "requested": "2026-11-26T21:15:00Z", "started": "2026-11-26T21:15:01Z",
        });
        std::fs::write(run.join("run.json"), meta.to_string()).unwrap();
        std::fs::write(run.join("plan.json"), serde_json::to_string(&far).unwrap()).unwrap();
    }
    for _ in 0..2 {
        let with_fleet = Settings {
            carrier: Some(Arc::new(Knows("20261126T211500-0001"))),
            ..settings(folder.path(), 1)
        };
        let mut opened = None;
        eventually_within(SOON, "the server before leaves the folder", || {
            opened = Runs::new(with_fleet.clone()).ok();
            opened.is_some()
        });
        let runs = opened.unwrap();
        let held = RunRequest {
            held: vec!["stream 1".to_owned()],
            ..request(far.clone())
        };
        let refused = runs.start(held);
        assert!(
            matches!(refused, Err(Refusal::Plan(why)) if why.to_string().contains("off at the start"))
        );
        eventually_within(SOON, "both end", || {
            runs.list().len() == 2 && runs.list().iter().all(|meta| meta.state == RunState::Ended)
        });
        let known = runs.get("20261126T211500-0001").unwrap();
        assert_eq!(known.end, Some(RunEnd::Finished));
        let report = runs.report(&known.id).unwrap();
        assert_eq!(
            (report.totals.offered_frames, &*report.reason),
            (Some(77), "of the shares")
        );
        let unknown = runs.get("20261126T211500-0002").unwrap();
        assert_eq!(
            (unknown.end, &*unknown.reason),
            (Some(RunEnd::Fault), "the server ended")
        );
        assert!(runs.end(SOON));
    }
}

/// A fleet whose host delivers its results after the end of the run.
#[derive(Debug, Default)]
struct DeliversLate {
    late: Mutex<Vec<String>>,
    made: AtomicU64,
}

impl Carrier for DeliversLate {
    fn carry_out(
        &self,
        _: Plan,
        environment: &Environment,
        observer: &mut dyn Observer,
    ) -> Result<(Report, End), StartError> {
        observer.started();
        self.late.lock().unwrap().extend(environment.run.clone());
        Ok((of_shares(None), End::Fault("host h1 lost".to_owned())))
    }

    fn resume(
        &self,
        _: &str,
        _: &Environment,
        _: &mut dyn Observer,
    ) -> Option<Result<(Report, End), StartError>> {
        self.made.fetch_add(1, Ordering::Relaxed);
        Some(Ok((of_shares(Some(77)), End::Completed)))
    }

    fn delivered_late(&self) -> Vec<String> {
        self.late.lock().unwrap().clone()
    }

    fn agents(&self) -> Vec<Agent> {
        Vec::new()
    }

    fn drain(&self, _: &str, _: bool) -> Result<(), String> {
        Ok(())
    }

    fn close(&self) {}
}

#[test]
fn results_that_arrive_late_make_the_report_again_once() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Arc::new(DeliversLate::default());
    let with_fleet = Settings {
        carrier: Some(Arc::clone(&fleet) as Arc<dyn Carrier>),
        ..settings(folder.path(), 1)
    };
    let runs = Runs::new(with_fleet).unwrap();
    let run = runs.start(request(far())).unwrap();
    wait_for_end(&run);
    let complete = || {
        let report = runs.report(&run.id).unwrap();
        report.totals.offered_frames == Some(77)
    };
    eventually_within(SOON, "the report is made again", complete);
    let report = runs.report(&run.id).unwrap();
    assert!(
        report.warnings[0].contains("arrived after the end"),
        "{:?}",
        report.warnings
    );
    // The share comes again and again, and changes nothing.
    let seen = fleet.made.load(Ordering::Relaxed);
    fleet.late.lock().unwrap().push("another".to_owned());
    assert!(runs.end(SOON));
    assert_eq!((seen, fleet.made.load(Ordering::Relaxed)), (1, 1));
}
