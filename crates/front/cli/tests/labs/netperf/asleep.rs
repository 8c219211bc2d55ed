//! Threads that wait without work, and what they notice all the same.

use std::{fs, path::Path, thread, time::Duration};

use rustix::process::Signal;

use super::{SERVER_V4, Server, number, ours, ours_going_on, report_of, snmp};
use crate::kit::{Lab, eventually, privileged};

/// Sleeps that all threads of a process have begun so far.
fn sleeps(id: u32) -> u64 {
    let of = |task: &Path| -> Option<u64> {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line?.trim().parse().ok()
    };
    let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("it runs");
    tasks.filter_map(|task| of(&task.ok()?.path())).sum()
}

#[test]
fn an_idle_server_sleeps() {
    const SECONDS: u64 = 4;
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    // The first second shows that no client came, the second that the client has gone.
    for client in [false, true] {
        if client {
            let output = ours(&a, &["netperf", "-H", SERVER_V4, "-t", "TCP_RR", "-l", "1"]);
            assert_eq!(output.status.code(), Some(0));
            thread::sleep(Duration::from_secs(2));
        }
        let before = sleeps(server.id());
        thread::sleep(Duration::from_secs(SECONDS));
        let slept = sleeps(server.id()) - before;
        assert!(slept <= 10 * SECONDS, "{slept} wake-ups in {SECONDS} s");
    }
}

#[test]
fn a_stopped_client_reports_its_stall() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let _server = Server::start(&b, &[], &[]);
    let words = [
        "netperf",
        "--json",
        "--",
        "-H",
        SERVER_V4,
        "-t",
        "TCP_STREAM",
        "-l",
        "3",
    ];
    let running = ours_going_on(&a, &words);
    eventually("the test sends", || snmp(&a, "Tcp", "OutSegs") > 1_000);
    running.signal(Signal::STOP);
    thread::sleep(Duration::from_millis(400));
    running.signal(Signal::CONT);
    let report = report_of(&running.finish(super::PATIENCE), 0);
    // The controlling thread was asleep for at most 50 ms of the time.
    let gap = number(&report, "/lateness/largest_gap_ns");
    assert!(gap >= 350_000_000, "{}", report["lateness"]);
}
