//! Several runs in one process: none disturbs another, they meet on shared links, and they begin at one time.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use wb_model::{Plan, Verdict, text::plan_from_toml};
use wb_session::{
    Checked, End, Environment, Extras, Finished, Observer, Registry, Request, StartAt, StartError,
    View, prepare,
};

const TRIAL: &str = r#"
[[port]]
name = "t1"
locator = "memory:t"
[[port]]
name = "t2"
locator = "memory:t"
[[traffic]]
tx = "t1"
rx = "t2"
count = COUNT
catch_up = "10s"
[[traffic.stream]]
rate = "2kpps"
"#;
const OTHERS: &str = r#"
[[port]]
name = "l1"
locator = "memory:l"
[[port]]
name = "l2"
locator = "memory:l"
[[load]]
port = "l1"
end = "client"
clients = ["198.18.1.2"]
servers = ["198.19.1.2"]
requests = 1
rate = { cps = 50 }
shape = { duration = "1s" }
[[load]]
port = "l2"
end = "server"
servers = ["198.19.1.2"]
[[port]]
name = "c1"
locator = "memory:c"
[[capture]]
ports = ["c1"]
"#;

fn plan(text: &str, count: u32) -> Plan {
    let text = text.replace("COUNT", &count.to_string());
    plan_from_toml(
        "several",
        &format!("schema = \"wirebench.plan/1\"\nallow_unsent = true\n{text}"),
    )
    .unwrap()
}

fn run(plan: Plan, environment: &Environment) -> Finished {
    let prepared = prepare(plan, environment, Extras::default()).unwrap();
    let finished = prepared.run(&mut |_: &View<'_>| {}).unwrap();
    assert!(finished.report.totals.adds_up());
    finished
}

#[test]
fn runs_at_the_same_time_have_links_frames_and_signals_of_their_own() {
    let text = format!("{TRIAL}{OTHERS}");
    let endless = Environment::default();
    let signals = endless.signals.clone();
    let all: Vec<Finished> = thread::scope(|scope| {
        let text = &text;
        let stopped = scope.spawn(move || run(plan(text, 1_000_000), &endless));
        let others = [1200, 1000]
            .map(|count| scope.spawn(move || run(plan(text, count), &Environment::default())));
        let mut all: Vec<Finished> = others.map(|other| other.join().unwrap()).into();
        // The other runs have ended, and this one continues.
        assert!(!stopped.is_finished());
        signals.raise(2);
        all.push(stopped.join().unwrap());
        all
    });
    let offered = |run: &Finished| run.report.totals.offered_frames.unwrap();
    assert!(offered(&all[2]) > 0);
    assert_eq!([offered(&all[0]), offered(&all[1])], [1200, 1000]);
    for run in &all {
        let totals = &run.report.totals;
        assert_eq!(totals.received_frames, totals.offered_frames);
        assert_eq!(totals.foreign_frames, Some(0));
        let connections = totals.connections.unwrap();
        assert_eq!(connections.failed_connections, 0);
        assert!(run.report.capture.as_ref().unwrap().exact);
    }
    assert_eq!(
        all.iter().map(|run| &run.end).collect::<Vec<_>>(),
        [&End::Completed, &End::Completed, &End::Signal(2),]
    );
}

/// Removes the lines of a port and its role in the job.
fn without(port: &str, role: &str) -> String {
    TRIAL
        .replace(
            &format!("[[port]]\nname = \"{port}\"\nlocator = \"memory:t\"\n"),
            "",
        )
        .replace(&format!("{role} = \"{port}\"\n"), "")
}

pub(crate) fn wall_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

#[test]
fn a_sender_and_a_receiver_of_two_runs_meet_at_one_time() {
    let environment = Environment {
        memory: Some(Arc::new(Mutex::new(Registry::new()))),
        ..Environment::default()
    };
    let receiver = without("t1", "tx")
        .replace("count = COUNT\ncatch_up = \"10s\"\n", "duration = \"2s\"\n")
        .replace("[[traffic.stream]]\nrate = \"2kpps\"\n", "");
    let mut sender = plan(&without("t2", "rx"), 1000);
    let mut receiver = plan(&receiver, 0);
    (sender.first_flow, receiver.first_flow) = (Some(7000), Some(7000));
    // Both have opened their ports before one of them looks for a neighbour.
    let opened =
        [sender, receiver].map(|plan| Checked::new(plan, &environment).unwrap().open().unwrap());
    let prepared = opened.map(|opened| opened.attend().unwrap().build(Extras::default()).unwrap());
    let start = wall_ns() + 1_000_000_000;
    let [sent, received] = thread::scope(|scope| {
        let runs = prepared.map(|prepared| {
            scope.spawn(move || {
                let finished = prepared.run_at(StartAt::Wall(start), &mut |_: &View<'_>| {});
                finished.unwrap().report
            })
        });
        runs.map(|run| run.join().unwrap())
    });
    assert!(sent.elapsed_ns >= 499_000_000, "{}", sent.elapsed_ns);
    assert_eq!(sent.totals.offered_frames, Some(1000));
    assert_eq!(received.totals.received_frames, Some(1000));
    assert_eq!(received.totals.foreign_frames, Some(0));
    assert!(
        wall_ns() >= start + 2_000_000_000,
        "the receiver ended early"
    );
}

#[test]
fn a_start_in_the_past_sends_nothing() {
    let environment = Environment::default();
    let prepared = prepare(plan(TRIAL, 1000), &environment, Extras::default()).unwrap();
    let mut observer = Watch::default();
    let refused = prepared.run_at(StartAt::Wall(wall_ns()), &mut observer);
    let error = refused.unwrap_err();
    assert!(matches!(error, StartError::TooLate { .. }), "{error}");
    // The workers never began.
    assert_eq!((observer.started, observer.views), (false, 0));
}

/// Notes what it is told, and raises a signal when a run has started.
#[derive(Default)]
struct Watch {
    started: bool,
    views: u32,
    asked: u32,
    on_start: Option<Box<dyn Fn()>>,
    on_view: Option<Box<dyn Fn()>>,
}

impl Observer for Watch {
    fn started(&mut self) {
        self.started = true;
        self.on_start.iter().for_each(|act| act());
    }

    fn view(&mut self, view: &View<'_>) {
        self.views += 1;
        self.asked += u32::from(view.asked);
        self.on_view.iter().for_each(|act| act());
    }
}

#[test]
fn a_signal_before_a_distant_start_ends_the_run_at_once() {
    for raised_by in ["the start", "another thread"] {
        let environment = Environment::default();
        let prepared = prepare(plan(TRIAL, 1000), &environment, Extras::default()).unwrap();
        let signals = environment.signals.clone();
        let raise = move || {
            if raised_by == "another thread" {
                wb_testing::disturb(Duration::from_millis(100));
            }
            signals.raise(15);
        };
        let raising = thread::spawn(raise);
        let start = StartAt::Wall(wall_ns() + 60_000_000_000);
        let began = std::time::Instant::now();
        let finished = prepared.run_at(start, &mut |_: &View<'_>| {}).unwrap();
        raising.join().unwrap();
        assert!(began.elapsed() < Duration::from_secs(30));
        assert_eq!(finished.end, End::Signal(15));
        assert_eq!(finished.report.verdict, Verdict::Incomplete);
        assert_eq!(finished.report.totals.offered_frames, Some(0));
    }
}

#[test]
fn counts_are_shown_when_the_program_asks() {
    let environment = Environment::default();
    let mut plan = plan(TRIAL, 1_000_000);
    plan.interval = wb_model::units::Span::from_secs(60);
    let prepared = prepare(plan, &environment, Extras::default()).unwrap();
    // A request from before the run is not one to this run.
    environment.signals.ask(Request::Counts);
    let (asking, ending) = (environment.signals.clone(), environment.signals.clone());
    let mut observer = Watch {
        on_start: Some(Box::new(move || asking.ask(Request::Counts))),
        on_view: Some(Box::new(move || ending.raise(2))),
        ..Watch::default()
    };
    let finished = prepared.run(&mut observer).unwrap();
    assert_eq!(finished.end, End::Signal(2));
    assert_eq!(observer.asked, 1);
}

/// The ports and files of a benchmark are those of its trials: it opens none itself.
#[test]
fn a_benchmark_opens_nothing_before_its_trials() {
    let suite = r#"
[procedure.suite]
tests = ["ndr"]
of = "cps"
job = "client 1"
min = "10"
max = "100"
"#;
    let suite = format!("{OTHERS}{suite}");
    let prepared = prepare(plan(&suite, 0), &Environment::default(), Extras::default()).unwrap();
    assert_eq!(prepared.port_lines(), [""; 0]);
}

#[test]
fn a_run_that_shares_its_process_does_not_change_its_user() {
    let environment = Environment {
        shares_process: true,
        ..Environment::default()
    };
    let mut plan = plan(OTHERS, 0);
    plan.captures[0].user = Some("nobody".to_owned());
    let error = prepare(plan, &environment, Extras::default())
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .contains("capture, user: would change the user"),
        "{error}"
    );
}
