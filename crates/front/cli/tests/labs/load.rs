//! Loads with both ends in wirebench: drivers, tags, memory, losses, ends in the middle, other rates.
//! Rates are not checked: the sums must be right on any machine.

use std::{
    process::{Command, Output},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Lab, Running, eventually, privileged, run, system};

/// Maximum duration of a run on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Options of each load: one that a busy machine kept from being offered is valid.
const OPTIONS: [&str; 4] = ["load", "--json", "-q", "--allow-unsent"];

/// A load with JSON; panics unless it ended with `code`. A long run is ended.
pub(crate) fn load(arguments: &[&str], code: i32) -> Value {
    let output = Command::new("timeout")
        .args(["-k", "5", "90", env!("CARGO_BIN_EXE_wirebench")])
        .args(OPTIONS)
        .args(arguments)
        .output()
        .expect("runs");
    report_of(&output, code)
}

/// The report that a run printed; panics unless the run ended with `code`.
pub(crate) fn report_of(output: &Output, code: i32) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    let reason = &report["reason"];
    assert_eq!(output.status.code(), Some(code), "{reason} {error}");
    report
}

/// A load in the background, with JSON at its end.
pub(crate) fn started(arguments: &[&str]) -> Running {
    Running::start(&[&OPTIONS, arguments].concat())
}

pub(crate) fn jobs_of(report: &Value) -> &Vec<Value> {
    report["load"]["jobs"].as_array().expect("jobs")
}

pub(crate) fn job<'a>(report: &'a Value, end: &str) -> &'a Value {
    let jobs = jobs_of(report);
    jobs.iter().find(|j| j["end"] == end).expect("this end")
}

pub(crate) fn job_total(job: &Value, key: &str) -> u64 {
    let n = job["totals"][key].as_u64();
    n.unwrap_or_else(|| panic!("no {key} in {}", job["totals"]))
}

pub(crate) fn counter(job: &Value, key: &str) -> u64 {
    job["counters"][key].as_u64().unwrap_or(0)
}

fn failures(job: &Value) -> u64 {
    let all = job["failures"].as_object().expect("failures");
    all.values().map(|n| n.as_u64().unwrap()).sum()
}

/// Every connection of each job, of its workers and of its phases has one place, every failure a cause.
pub(crate) fn assert_balanced(report: &Value) {
    let keys = [
        "attempted_connections",
        "completed_connections",
        "failed_connections",
        "requests",
        "responses",
    ];
    for job in jobs_of(report) {
        let of = |key| job_total(job, key);
        assert_eq!(
            of("attempted_connections"),
            of("completed_connections") + of("failed_connections") + of("open_connections"),
            "{job}"
        );
        assert_eq!(failures(job), of("failed_connections"), "{job}");
        for list in ["workers", "phases"] {
            let parts = job[list].as_array().expect("parts");
            for key in keys {
                let sum: u64 = parts.iter().map(|p| job_total(p, key)).sum();
                assert_eq!(sum, of(key), "{list}: {key}: {job}");
            }
        }
    }
}

/// Checks a run without losses between the ends: both ends saw the same, and nothing failed.
pub(crate) fn assert_alike(report: &Value, place: &str) {
    assert_balanced(report);
    let (client, server) = (job(report, "client"), job(report, "server"));
    let tcp = client["transport"] == "tcp";
    for key in [
        "attempted_connections",
        "established_connections",
        "completed_connections",
        "requests",
        "responses",
    ] {
        if tcp || key.starts_with("re") {
            assert_eq!(
                job_total(client, key),
                job_total(server, key),
                "{place}: {key}"
            );
        }
    }
    for job in [client, server] {
        assert_eq!(job_total(job, "failed_connections"), 0, "{place}: {job}");
        assert_eq!(job_total(job, "open_connections"), 0, "{place}: {job}");
    }
    assert!(job_total(client, "responses") > 0, "{place}: {client}");
    assert_eq!(
        job_total(client, "requests"),
        job_total(client, "responses"),
        "{place}: {client}"
    );
}

/// Words of a line.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn memory_ports_need_no_lab_and_no_rights() {
    for options in [
        "--cps 500",
        "-6 --cps 500 --answer http:10000",
        "--cc 20 --every 10ms --workers 2 --server-workers 2",
        "--udp --cps 500",
        "--udp --cc 20 --every 10ms -6",
    ] {
        let line = format!("--client memory:x --server memory:x --duration 500ms {options}");
        assert_alike(&load(&words(&line), 0), options);
    }
}

#[test]
fn both_ends_tell_their_rates_of_the_same_time() {
    let line = "--client memory:x --server memory:x --cps 500 --ramp 300ms --duration 500ms";
    let report = load(&words(line), 0);
    assert_alike(&report, line);
    for job in jobs_of(&report) {
        let phases = job["phases"].as_array().expect("phases");
        let steady = phases.iter().find(|p| p["phase"] == "steady");
        let at = |key: &str| steady.unwrap()[key].as_u64().unwrap() / 1_000_000;
        // Servers stay 200 ms longer.
        let (from, to) = (at("from_ns"), at("to_ns"));
        assert!((300..500).contains(&from), "{from}: {job}");
        assert!((800..1000).contains(&to), "{to}: {job}");
    }
}

#[test]
fn drivers_workers_families_and_tags_agree() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "2"]);
    for (driver, options) in [
        ("xdp", "--cps 300"),
        ("xdp", "-6 --cps 300 --requests 3"),
        ("xdp", "--vlan 5 --cps 300"),
        ("xdp", "--cps 300 --workers 2 --server-workers 2"),
        ("xdp", "--udp --cc 20 --every 20ms -6"),
        ("packet", "--cps 300"),
        ("packet", "-6 --vlan 5 --cps 300 --answer http:5000"),
        ("packet", "--cps 300 --workers 3 --server-workers 2"),
        (
            "packet",
            "-6 --cps 300 --workers 2 --server-workers 3 --order random",
        ),
        (
            "packet",
            "--vlan 7 --cc 30 --every 20ms --workers 2 --server-workers 2",
        ),
        ("packet", "--udp --cps 300 --workers 2 --server-workers 2"),
        ("packet", "--cps 300 --close reset"),
    ] {
        let place = format!("{driver} {options}");
        let line = format!(
            "--client {driver}:{} --server {driver}:{} --duration 500ms --retransmit 50s {options}",
            lab.a0(),
            lab.b0()
        );
        let report = load(&words(&line), 0);
        assert_alike(&report, &place);
        for job in jobs_of(&report) {
            for key in ["rx_malformed", "rx_foreign", "drop_datagram"] {
                assert_eq!(counter(job, key), 0, "{place}: {key}: {job}");
            }
            let again = sent_again(&report);
            assert!(counter(job, "drop_unknown") <= again, "{place}: {report}");
        }
    }
}

/// Segments that both ends sent again, and that may arrive after their connection has ended. If the peer waits for a CPU,
/// an end sends a tail loss probe.
pub(crate) fn sent_again(report: &Value) -> u64 {
    let keys = ["syn_again", "data_again", "fin_again", "fast_again"];
    let of = |job: &Value| keys.map(|key| counter(job, key)).iter().sum::<u64>();
    jobs_of(report).iter().map(of).sum()
}

/// Checks invariants under loss. The client closes first, so its last acknowledgement may be lost: the server ends
/// such a connection by its own timer. A SYN that arrives again after its connection has ended is a new
/// connection to the server, which is never completed.
fn assert_survived(report: &Value, place: &str) {
    assert_balanced(report);
    let (client, server) = (job(report, "client"), job(report, "server"));
    let of = |key| job_total(client, key);
    assert_eq!(of("open_connections"), 0, "{place}: {client}");
    assert_eq!(
        job_total(server, "open_connections"),
        0,
        "{place}: {server}"
    );
    assert!(of("completed_connections") > 0, "{place}: {client}");
    if client["transport"] == "udp" {
        assert_eq!(
            of("requests"),
            of("responses") + counter(client, "udp_lost"),
            "{place}: every request was answered, or counted as lost: {client}"
        );
        assert!(
            job_total(server, "requests") >= of("responses"),
            "{place}: {server}"
        );
        return;
    }
    // One answer at most is outstanding when a connection fails.
    assert!(
        of("requests") <= of("responses") + of("failed_connections"),
        "{place}: {client}"
    );
    assert!(
        job_total(server, "established_connections") >= of("completed_connections"),
        "{place}: {report}"
    );
    assert!(
        job_total(server, "responses") >= of("responses"),
        "{place}: {report}"
    );
    if of("failed_connections") == 0 {
        assert_eq!(of("requests"), of("responses"), "{place}: {client}");
        assert_eq!(
            job_total(server, "requests"),
            of("requests"),
            "{place}: {report}"
        );
    }
}

#[test]
fn loss_and_reordering_leave_nothing_behind() {
    if !privileged() {
        return;
    }
    let lab = Lab::up(
        "impair",
        &words("--loss 1% --reorder 2% --duplicate 1% --both --all --seed 7"),
    );
    for (driver, options) in [
        ("packet", "--cps 500"),
        ("xdp", "--cc 40 --every 20ms --answer http:20000"),
        ("xdp", "-6 --cps 300 --requests 4 --pipeline 2"),
        (
            "packet",
            "--udp --cc 40 --every 20ms --response-timeout 500ms",
        ),
    ] {
        let line = format!(
            "--client {driver}:{} --server {driver}:{} --duration 2s --retransmit 200ms --tries 10 --close-timeout 3s --drain 30s {options}",
            lab.a0(),
            lab.b0()
        );
        let report = load(&words(&line), 0);
        assert_survived(&report, options);
        // It was not for want of loss.
        let again: u64 = jobs_of(&report)
            .iter()
            .flat_map(|job| {
                ["syn_again", "data_again", "fin_again", "udp_lost"].map(|k| counter(job, k))
            })
            .sum();
        assert!(again > 0, "{options}: {report}");
    }
}

/// A load that listens for words at a socket.
pub(crate) struct Talking {
    pub(crate) running: Running,
    dir: tempfile::TempDir,
}

impl Talking {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let at = ["--control", path.to_str().unwrap()];
        let running = started(&[arguments, &at].concat());
        let this = Self { running, dir };
        eventually("it listens", || this.path().exists());
        this
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("s")
    }

    pub(crate) fn told(&self, line: &str) -> Output {
        let path = self.path();
        run(&[
            &["load", "--ctl", path.to_str().unwrap()],
            words(line).as_slice(),
        ]
        .concat())
    }

    /// Current value of a counter.
    pub(crate) fn look(&self, key: &str) -> u64 {
        let output = self.told("show");
        let error = String::from_utf8_lossy(&output.stderr);
        let value: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
        value["load"]["totals"][key].as_u64().expect("a total")
    }

    /// Waits until `n` more are counted.
    pub(crate) fn more(&self, key: &str, n: u64) {
        let (before, begin) = (self.look(key), Instant::now());
        while self.look(key) < before + n {
            assert!(
                begin.elapsed() < PATIENCE,
                "{key}: not {n} more than {before} within {PATIENCE:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until `n` connections in a row were begun without any being established: then the workers were
    /// awake while no frame arrived.
    fn unheard(&self, n: u64) {
        let begin = Instant::now();
        loop {
            let look = || {
                (
                    self.look("attempted_connections"),
                    self.look("established_connections"),
                )
            };
            let (before, heard) = look();
            let now = loop {
                let now = look();
                if now.0 >= before + n || now.1 != heard {
                    break now;
                }
                assert!(
                    begin.elapsed() < PATIENCE,
                    "something comes through, or nothing goes"
                );
                std::thread::sleep(Duration::from_millis(20));
            };
            if now.1 == heard {
                return;
            }
        }
    }

    /// Ends it by a word; its report.
    pub(crate) fn stop(self) -> Value {
        let output = self.told("stop");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        report_of(&self.running.finish(PATIENCE), 0)
    }
}

#[test]
fn a_killed_server_is_counted_and_its_successor_found() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for driver in ["packet", "xdp"] {
        let at = format!("{driver}:{}", lab.b0());
        let server = || Talking::start(&["--server", &at]);
        let first = server();
        let line = format!(
            "--client {driver}:{} --cps 200 --duration 5m --retransmit 100ms --tries 2 --connect-timeout 400ms --response-timeout 400ms --close-timeout 400ms",
            lab.a0()
        );
        let client = Talking::start(&words(&line));
        client.more("completed_connections", 20);
        first.running.signal(Signal::KILL);
        drop(first);
        client.more("failed_connections", 20);
        let second = server();
        client.more("completed_connections", 20);
        let report = client.stop();
        assert_balanced(&report);
        let client = job(&report, "client");
        assert_eq!(job_total(client, "open_connections"), 0, "{client}");
        assert!(
            client["failures"]["connect_timeout"].as_u64() >= Some(20),
            "{client}"
        );
        let report = second.stop();
        assert_balanced(&report);
        assert!(job_total(job(&report, "server"), "completed_connections") >= 20);
    }
}

#[test]
fn a_link_that_goes_down_and_up_is_counted_and_outlived() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("b");
    let set = |state: &str| {
        let output = system("ip", &["-n", &node, "link", "set", "b0", state]);
        assert!(output.status.success(), "{output:?}");
    };
    for driver in ["packet", "xdp"] {
        let line = format!(
            "--client {driver}:{} --server {driver}:{} --cps 200 --duration 5m --retransmit 100ms --tries 2 --connect-timeout 400ms --response-timeout 400ms --close-timeout 400ms --idle-timeout 1s",
            lab.a0(),
            lab.b0()
        );
        let run = Talking::start(&words(&line));
        run.more("completed_connections", 20);
        set("down");
        run.unheard(100);
        run.more("failed_connections", 20);
        set("up");
        run.more("completed_connections", 20);
        let report = run.stop();
        assert_balanced(&report);
        for job in jobs_of(&report) {
            assert_eq!(job_total(job, "open_connections"), 0, "{driver}: {job}");
        }
        let client = job(&report, "client");
        assert_eq!(client["link_downs"], 1, "{driver}: {report}");
        assert!(
            report["warnings"].to_string().contains("link went down"),
            "{driver}: {}",
            report["warnings"]
        );
    }
}

#[test]
fn signals_end_it_in_order() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let line = format!(
            "--client {} --server {} --cps 200 --requests 5 --every 50ms --duration 5m",
            lab.a0(),
            lab.b0()
        );
        let run = Talking::start(&words(&line));
        run.more("requests", 50);
        run.running.signal(signal);
        let socket = run.path();
        let Talking { running, dir: _dir } = run;
        let report = report_of(&running.finish(PATIENCE), code);
        assert_alike(&report, "after a signal");
        assert!(!socket.exists(), "the socket is left behind");
        assert!(
            report["reason"].as_str().unwrap().contains("ended early"),
            "{report}"
        );
    }
    // No state is left behind: the same ports are available again.
    let line = format!(
        "--client {} --server {} --cps 100 --duration 300ms",
        lab.a0(),
        lab.b0()
    );
    assert_alike(&load(&words(&line), 0), "again");
}

#[test]
fn rates_change_while_it_runs() {
    let run = Talking::start(&words(
        "--client memory:x --server memory:x --cps 0 --duration 5m",
    ));
    assert_eq!(run.look("attempted_connections"), 0);
    let told = run.told("rate cps=500");
    assert!(
        told.status.success(),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
    run.more("completed_connections", 20);
    for (word, part) in [
        ("rate cps=many", "\"cps=many\""),
        ("rate speed=3", "\"speed=3\""),
        ("faster", "rate KEY=NUMBER"),
    ] {
        let output = run.told(word);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.contains(part) && error.lines().count() == 1,
            "{error}"
        );
    }
    assert!(run.told("rate cps=0 cc=off").status.success());
    let report = run.stop();
    assert_alike(&report, "by the socket");
    assert!(
        report["reason"].as_str().unwrap().contains("stop"),
        "{}",
        report["reason"]
    );
}
