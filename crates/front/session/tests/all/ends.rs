//! Tests every end of every kind of run, and of mixed runs, on ports in memory: counters add up, and the verdict
//! matches the end. Needs no privileges.

use std::{net::TcpListener, path::Path, thread, time::Duration};

use wb_model::{Plan, Report, Verdict, capture::CaptureOutput, text::plan_from_toml};
use wb_session::{End, Environment, Extras, Finished, Signals, View, prepare};

const TRAFFIC: &str = r#"
[[port]]
name = "t1"
locator = "memory:t"
[[port]]
name = "t2"
locator = "memory:t"
[[traffic]]
tx = "t1"
rx = "t2"
duration = "LONG"
catch_up = "10s"
[[traffic.stream]]
rate = "2kpps"
"#;
const LOAD: &str = r#"
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
rate = { cps = 200 }
shape = { duration = "LONG" }
[[load]]
port = "l2"
end = "server"
servers = ["198.19.1.2"]
"#;
const DEVICES: &str = r#"
[[port]]
name = "d1"
locator = "memory:d"
[[port]]
name = "d2"
locator = "memory:d"
[[device]]
port = "d1"
cpu = 0
settings = { name = "d1", count = COUNT, delay = "1000000", dst_min = "198.19.0.1" }
[[watch]]
port = "d2"
mode = "time"
"#;
const CAPTURE: &str = r#"
[[port]]
name = "c1"
locator = "memory:c"
[[capture]]
ports = ["c1"]
"#;
/// Two captures at separate ports. Without other jobs, their sums are the sums of the run.
const CAPTURES: &str = r#"
[[port]]
name = "m1"
locator = "memory:m"
[[port]]
name = "m2"
locator = "memory:n"
[[capture]]
name = "one"
ports = ["m1"]
[[capture]]
ports = ["m2"]
"#;
const PROBE: &str = r#"
[[probe]]
kind = "command"
name = "p"
command = "echo seen 7"
counters = { seen = "seen (\\d+)" }
"#;

fn socket(port: u16) -> String {
    format!(
        "[[socket]]\ncontrol = {{ server = \"127.0.0.1\", port = {port} }}\n\
         duration = \"LONG\"\n"
    )
}

fn plan(parts: &[&str], long: &str, criteria: &str) -> Plan {
    let count = if long.ends_with("ms") { "300" } else { "0" };
    let text = format!(
        "schema = \"wirebench.plan/1\"\ninterval = \"100ms\"\ncriteria = [{criteria}]\n{}",
        parts.concat().replace("LONG", long).replace("COUNT", count)
    );
    plan_from_toml("ends", &text).unwrap()
}

/// Checks all sums of the report.
fn check(report: &Report) {
    assert!(report.totals.adds_up(), "{:?}", report.totals);
    for job in &report.jobs {
        assert!(job.totals.adds_up(), "{:?}", job.totals);
    }
    for job in report.load.iter().flat_map(|load| &load.jobs) {
        assert!(job.totals.adds_up(), "{:?}", job.totals);
    }
    let captures = report.capture.iter().chain(report.captures.values());
    assert!(captures.clone().all(|capture| capture.exact));
    assert_eq!(captures.count(), report.plan.captures.len());
}

/// Runs the plan and raises the signals after `patience`.
fn finish(plan: Plan, signals: &[i32], patience: Duration) -> (Finished, usize) {
    let environment = Environment {
        signals: Signals::none(),
        ..Environment::default()
    };
    let prepared = prepare(plan, &environment, Extras::default()).unwrap();
    let mut views = 0;
    let (raised, signals) = (environment.signals.clone(), signals.to_vec());
    let interrupt = thread::spawn(move || {
        for signal in signals {
            wb_testing::disturb(patience);
            raised.raise(signal);
        }
    });
    let finished = prepared
        .run(&mut |view: &View<'_>| {
            views += 1;
            assert!(view.snapshot.totals.adds_up());
        })
        .unwrap();
    interrupt.join().unwrap();
    check(&finished.report);
    (finished, views)
}

const KINDS: [&[&str]; 8] = [
    &[TRAFFIC],
    &[LOAD],
    &[DEVICES],
    &[TRAFFIC, LOAD],
    &[TRAFFIC, CAPTURE, PROBE],
    &[DEVICES, LOAD, CAPTURE],
    &[TRAFFIC, CAPTURES],
    &[TRAFFIC, LOAD, CAPTURE, PROBE],
];

#[test]
fn what_ends_by_itself_takes_those_that_listen_with_it() {
    for parts in KINDS {
        let (finished, views) = finish(plan(parts, "300ms", ""), &[], Duration::ZERO);
        let report = &finished.report;
        assert_eq!(finished.end, End::Completed, "{parts:?}");
        // A busy machine may stall a load for longer than the run lasts.
        let is_late = report.verdict == Verdict::Invalid && report.reason.contains("was late");
        assert!(
            is_late || report.verdict == Verdict::Completed,
            "{parts:?}: {}",
            report.reason
        );
        assert!(views >= 2, "{parts:?}: {views} views");
        assert_eq!(report.load.is_some(), parts.contains(&LOAD));
        assert_eq!(report.capture.is_some(), parts.contains(&CAPTURE));
        assert_eq!(report.probes.len(), usize::from(parts.contains(&PROBE)));
        if parts.contains(&TRAFFIC) {
            assert_eq!(report.totals.offered_frames, Some(600), "{parts:?}");
            assert_eq!(report.totals.lost_frames, Some(0), "{parts:?}");
        }
        if parts.contains(&LOAD) {
            let connections = report.totals.connections.unwrap();
            let completed = connections.completed_connections;
            assert!(is_late || completed == 60, "{parts:?}: {completed}");
            assert!(
                completed > 0 && connections.failed_connections == 0,
                "{parts:?}"
            );
        }
    }
}

#[test]
fn a_signal_ends_all_in_order() {
    all_end_by(&[2]);
}

#[test]
fn a_second_signal_ends_all_at_once() {
    all_end_by(&[15, 15]);
}

fn all_end_by(signals: &'static [i32]) {
    for parts in KINDS {
        let patience = Duration::from_millis(300);
        let (finished, _) = finish(plan(parts, "60s", ""), signals, patience);
        let report = &finished.report;
        assert_eq!(finished.end, End::Signal(signals[0]), "{parts:?}");
        // A device without a count continues until a signal, so the signal is its planned end.
        let verdict = match parts.contains(&DEVICES) {
            true => Verdict::Completed,
            false => Verdict::Incomplete,
        };
        assert_eq!(report.verdict, verdict, "{parts:?}: {}", report.reason);
        assert!(report.elapsed_ns < 20_000_000_000, "{parts:?}");
        if let (Some(load), 1) = (&report.load, signals.len()) {
            let [client, server] = &load.jobs[..] else {
                panic!("{} jobs", load.jobs.len());
            };
            assert_eq!(
                client.totals.completed_connections, server.totals.completed_connections,
                "{parts:?}"
            );
        }
    }
}

#[test]
fn those_that_only_listen_are_complete_with_a_signal() {
    for parts in [&[CAPTURE][..], &[PROBE], &[CAPTURE, PROBE]] {
        let patience = Duration::from_millis(300);
        let (finished, _) = finish(plan(parts, "60s", ""), &[2], patience);
        assert_eq!(finished.end, End::Signal(2), "{parts:?}");
        assert_eq!(finished.report.verdict, Verdict::Completed, "{parts:?}");
    }
}

/// Number of times that the calling thread has slept so far.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// A thread that wakes every few milliseconds pushes receiving threads off their CPUs.
#[test]
fn the_controlling_thread_sleeps_until_something_happens() {
    for parts in [&[TRAFFIC][..], &[LOAD], &[DEVICES]] {
        let prepared = prepare(
            plan(parts, "300ms", ""),
            &Environment::default(),
            Extras::default(),
        );
        let prepared = prepared.unwrap();
        let before = sleeps();
        let finished = prepared.run(&mut |_: &View<'_>| ()).unwrap();
        let times = sleeps() - before;
        let most = finished.report.elapsed_ns / 10_000_000;
        assert!(times < most, "{parts:?}: {times} times, at most {most}");
    }
}

#[test]
fn the_last_snapshot_has_the_frames_of_the_ramp_once() {
    let traffic = TRAFFIC.replace("catch_up", "ramp = \"1s\"\ncatch_up");
    let environment = Environment {
        signals: Signals::none(),
        ..Environment::default()
    };
    let prepared = prepare(
        plan(&[&traffic], "200ms", ""),
        &environment,
        Extras::default(),
    );
    let mut last = None;
    let finished = prepared
        .unwrap()
        .run(&mut |view: &View<'_>| last = view.snapshot.totals.ramp_frames)
        .unwrap();
    assert!(last.is_some_and(|frames| frames > 0));
    assert_eq!(last, finished.report.totals.ramp_frames);
}

#[test]
fn ports_in_memory_that_nothing_joins_are_refused() {
    let lost = TRAFFIC.replace(
        "name = \"t2\"\nlocator = \"memory:t\"",
        "name = \"t2\"\nlocator = \"memory:u\"",
    );
    let environment = Environment {
        signals: Signals::none(),
        ..Environment::default()
    };
    let refused = prepare(plan(&[&lost], "200ms", ""), &environment, Extras::default());
    let why = refused
        .err()
        .expect("the ports are not connected")
        .to_string();
    assert!(why.contains("memory:t to memory:u"), "{why}");
}

#[test]
fn a_criterion_that_does_not_hold_is_named() {
    for (parts, criterion) in [
        (&[TRAFFIC][..], "max<=1ns"),
        (&[LOAD], "max<=1ns"),
        (&[DEVICES], "max<=1ns"),
        (&[TRAFFIC, LOAD], "load.max<=1ns"),
        (&[TRAFFIC, LOAD, CAPTURE], "traffic.max<=1ns"),
        (&[TRAFFIC, CAPTURE, PROBE], "max<=1ns"),
    ] {
        // This criterion holds, and is reported in the plan's order.
        let own = parts.contains(&CAPTURE).then_some("\"capture.loss<=0%\",");
        let criteria = format!("{}\"{criterion}\"", own.unwrap_or_default());
        let (finished, _) = finish(plan(parts, "200ms", &criteria), &[], Duration::ZERO);
        let report = &finished.report;
        // If the machine stalled the test, the tester may have caused a high time, which is then not a failure.
        match &report.lateness.may_have_caused {
            Some(why) if criterion.contains("max") => {
                assert_eq!(finished.exit_code(), 3, "{parts:?}: {}", report.reason);
                let named = format!("{why}; criteria not met: {criterion} (measured ");
                assert!(report.reason.starts_with(&named), "{}", report.reason);
            }
            _ => {
                assert_eq!(finished.exit_code(), 1, "{parts:?}: {}", report.reason);
                let named = format!("criteria not met: {criterion} (measured ");
                assert!(report.reason.starts_with(&named), "{}", report.reason);
            }
        }
        let criteria = report
            .criteria
            .iter()
            .map(|c| (c.criterion.as_str(), c.held));
        let expected = own.map(|_| ("capture.loss<=0%", true)).into_iter();
        let expected: Vec<_> = expected.chain([(criterion, false)]).collect();
        assert_eq!(criteria.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_socket_test_that_nobody_answers_is_a_fault_and_the_rest_is_told() {
    // A port without a listener.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for beside in [&[][..], &[TRAFFIC], &[LOAD, CAPTURE]] {
        let socket = socket(port);
        let parts = [&[socket.as_str()], beside].concat();
        let (finished, _) = finish(plan(&parts, "300ms", ""), &[], Duration::ZERO);
        let report = &finished.report;
        assert!(matches!(finished.end, End::Fault(_)), "{:?}", finished.end);
        assert_eq!(report.verdict, Verdict::Incomplete, "{}", report.reason);
        assert!(report.socket.as_ref().unwrap().jobs[0].failure.is_some());
        if beside.contains(&TRAFFIC) {
            assert_eq!(report.totals.offered_frames, Some(600));
        }
    }
}

/// Plan of [`CAPTURES`], with each capture writing to a file in this folder.
fn captures_into(folder: &Path, names: [&str; 2]) -> Plan {
    let mut plan = plan(&[CAPTURES], "200ms", "\"capture.loss<=0%\"");
    for (job, name) in plan.captures.iter_mut().zip(names) {
        job.duration = Some("200ms".parse().unwrap());
        job.output = Some(CaptureOutput {
            path: folder.join(name).to_str().unwrap().to_owned(),
            ..CaptureOutput::default()
        });
    }
    plan
}

#[test]
fn captures_into_one_file_by_links_are_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink("a.pcap", place("soft.pcap")).unwrap();
    std::fs::write(place("b.pcap"), []).unwrap();
    std::fs::hard_link(place("b.pcap"), place("hard.pcap")).unwrap();
    let prepared = |names| {
        let plan = captures_into(folder.path(), names);
        prepare(plan, &Environment::default(), Extras::default())
    };
    for names in [["a.pcap", "soft.pcap"], ["hard.pcap", "b.pcap"]] {
        let error = prepared(names).err().expect("refused").to_string();
        assert!(
            error.contains("two captures write to the same file"),
            "{error}"
        );
        assert!(
            error.contains(names[0]) && error.contains(names[1]),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1);
    }
    assert!(prepared(["a.pcap", "b.pcap"]).is_ok());
}

#[test]
fn captures_are_told_by_their_names() {
    let folder = tempfile::TempDir::new().unwrap();
    let plan = captures_into(folder.path(), ["a.pcap", "b.pcap"]);
    let (finished, _) = finish(plan, &[], Duration::ZERO);
    let report = &finished.report;
    let reason = "the plan: end condition reached";
    assert_eq!(
        report.limited_by.to_string(),
        format!("capture one: {reason}; capture 2: {reason}")
    );
    // Zero frames have no loss, but no share can be measured.
    assert!(report.criteria[0].held);
    assert_eq!(report.criteria[0].measured, None);
}
