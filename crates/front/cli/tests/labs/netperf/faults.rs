//! Faults: one clear line, the right exit code, and the results until then.

use std::{
    process::{Output, Stdio},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use super::{PATIENCE, SERVER_V4, Server, number, ours, ours_going_on, wait_for_port, within};
use crate::{
    http::settled,
    kit::{Lab, Running, eventually, privileged},
};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Checks that a run ended with this code and printed these parts in `lines` lines.
fn assert_says(what: &str, output: &Output, code: i32, parts: &[&str], lines: usize) {
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{what}: {said}\n{printed}"
    );
    let all = format!("{said}{printed}");
    for part in parts {
        assert!(all.contains(part), "{what}: no {part:?} in {all}");
    }
    assert_eq!(said.lines().count(), lines, "{what}: {said}");
}

#[test]
fn mistakes_and_refusals_of_socket_tests() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &["-Z", "word"]);
    let host = format!("-H {SERVER_V4} -Z word -l 1");
    for (line, code, parts, lines) in [
        // The tool's own words go to standard output, as they always did.
        (
            "netperf -H no-such-host.invalid -l 1".to_owned(),
            255,
            &["could not resolve host 'no-such-host.invalid'"][..],
            0,
        ),
        (
            format!("netperf -H {SERVER_V4} -p 9 -l 1"),
            255,
            &[
                "are you sure there is a netserver listening on 198.19.1.2 at port 9?",
                "establish_control could not establish the control connection from",
                "cannot connect to 198.19.1.2:9: Connection refused",
            ],
            1,
        ),
        (
            format!("netperf {host} -t NO_SUCH"),
            1,
            &["The test you requested (NO_SUCH) is unknown to this netperf."],
            0,
        ),
        // The original continues without it, too.
        (
            format!("netperf --congestion nosuch -- {host}"),
            0,
            &["congestion control nosuch"],
            1,
        ),
        (
            format!("netperf --congestion ,nosuch -- {host}"),
            0,
            &["the server uses congestion control ", ", not nosuch"],
            1,
        ),
        (
            format!("netperf {host} -t UDP_STREAM -- -m 70000"),
            1,
            &["must be at most 65507 bytes for datagrams, got 70000"],
            1,
        ),
        (
            format!("netperf -H {SERVER_V4} -l 1"),
            1,
            &[
                "recv_response: partial response received: 0 bytes",
                "the server closed the control connection",
            ],
            2,
        ),
        (
            "sweep -H no-such-host.invalid --message 1k -q".to_owned(),
            4,
            &["no-such-host.invalid"],
            1,
        ),
        (
            format!("sweep -H {SERVER_V4} --message 1q"),
            2,
            &["1q", "--message"],
            1,
        ),
    ] {
        let output = ours(&a, &words(&line));
        assert_says(&line, &output, code, parts, lines);
    }
    // The server is none the worse for it.
    let output = ours(&a, &words(&format!("netperf {host} -t TCP_RR")));
    assert_says("after all", &output, 0, &["Trans."], 0);
    let did = server.end();
    assert_eq!(did["completed"], 3, "{did}");
    assert_eq!(did["unauthorised"], 1, "{did}");
    // Listening fails at an address that the machine does not have, and at a port in use.
    let output = ours(&b, &words("netserver -D -L 198.18.77.77"));
    assert_says(
        "address",
        &output,
        1,
        &["Unable to start netserver with  '198.18.77.77'"],
        2,
    );
    let first = Server::start(&b, &[], &[]);
    let output = ours(&b, &words("netserver -D"));
    assert_says("taken", &output, 1, &["Unable to start netserver"], 2);
    let output = ours(&b, &words("netserver"));
    assert_says(
        "taken, in the background",
        &output,
        1,
        &["Unable to start netserver"],
        2,
    );
    first.end();
}

/// Starts a client, calls `f` to cause a fault during its test, and returns its report.
fn cut(lab: &Lab, line: &str, code: i32, f: impl FnOnce()) -> (Value, String) {
    let client = ours_going_on(&lab.node("a"), &words(line));
    // Traffic, so that something has been measured.
    let device = format!("/sys/class/net/{}0/statistics/tx_bytes", "a");
    eventually("data flows", || {
        let output = within(&lab.node("a"), "cat", &[&device])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().parse::<u64>().is_ok_and(|n| n > 1_000_000)
    });
    f();
    let output = client.finish(PATIENCE);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    (report, said)
}

/// Checks that the test failed, and that the report contains the results until then.
fn assert_partial(report: &Value, said: &str, stages: &[&str]) {
    let job = &report["socket"]["jobs"][0];
    let stage = job["failure"]["stage"]
        .as_str()
        .unwrap_or_else(|| panic!("{job}"));
    assert!(stages.contains(&stage), "{}", job["failure"]);
    assert!(
        !job["failure"]["what"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    );
    assert!(number(job, "/local/bytes_sent") > 0, "{job}");
    assert!(
        !job["intervals"].as_array().expect("intervals").is_empty(),
        "{job}"
    );
    // The message of the original comes first, for scripts that search for it.
    let last = said.lines().last().unwrap_or_default();
    assert!(
        said.lines().count() <= 2 && last.starts_with("netperf: "),
        "{said}"
    );
}

#[test]
fn a_server_that_dies() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    let line = format!("netperf --json -q --interval 100ms -- -H {SERVER_V4} -l 50");
    let (report, said) = cut(&lab, &line, 1, || {
        thread::sleep(Duration::from_millis(300));
        server.signal(Signal::KILL);
    });
    assert_partial(&report, &said, &["control", "data"]);
    assert_eq!(report["verdict"], "incomplete", "{report}");
}

/// Answers one request for a test, reads from the data connection, and closes the control
/// connection after a second without a further message.
const RUDE: &str = r#"
import socket, struct, threading, time
data = socket.create_server(("198.19.1.2", 0))
def take():
    c, _ = data.accept()
    while c.recv(65536):
        pass
threading.Thread(target=take, daemon=True).start()
control, _ = socket.create_server(("198.19.1.2", 12865)).accept()
got = b""
while len(got) < 656:
    got += control.recv(656 - len(got))
words = [98, 0, 131072, 131072, 2, 16384, 0xffffffff, 2] + [0] * 5 + [data.getsockname()[1]] + [0] * 150
control.sendall(struct.pack(">164I", *words))
time.sleep(1)
control.close()
time.sleep(60)
"#;

#[test]
fn a_control_connection_that_ends() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let Ok(rude) = within(&lab.node("b"), "python3", &["-c", RUDE])
        .stderr(Stdio::null())
        .spawn()
    else {
        wb_skip::skipped("python3 is not installed");
        return;
    };
    let rude = Running(rude);
    wait_for_port(&lab.node("b"), 12865);
    let line = format!("netperf --json -q --interval 100ms -- -H {SERVER_V4} -l 50");
    let (report, said) = cut(&lab, &line, 1, || {});
    assert_partial(&report, &said, &["control"]);
    drop(rude);
}

#[test]
fn signals_end_socket_tests_in_order() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    let id = server.id();
    let threads = || std::fs::read_dir(format!("/proc/{id}/task")).map_or(0, Iterator::count);
    let idle = settled(|| threads() as u64) as usize;
    // A test has a control thread and a data thread.
    let runs = || eventually("the test runs", || threads() > idle + 1);
    // A signal is the end of the time, and no failure.
    let line = format!("netperf --json -q -- -H {SERVER_V4} -l 50");
    let client = ours_going_on(&a, &words(&line));
    eventually("data flows", || {
        let output = within(&a, "cat", &["/sys/class/net/a0/statistics/tx_bytes"])
            .output()
            .expect("it runs");
        String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse::<u64>()
            .is_ok_and(|n| n > 1_000_000)
    });
    client.signal(Signal::INT);
    let report = super::report_of(&client.finish(PATIENCE), 0);
    let job = &report["socket"]["jobs"][0];
    assert!(job["failure"].is_null(), "{job}");
    assert_eq!(
        number(job, "/local/bytes_sent"),
        number(job, "/remote/bytes_received"),
        "{job}"
    );
    assert!(number(job, "/local/bytes_sent") > 0, "{job}");
    let client = ours_going_on(
        &a,
        &words(&format!("netperf -H {SERVER_V4} -t TCP_CRR -l 0")),
    );
    runs();
    thread::sleep(Duration::from_millis(300));
    client.signal(Signal::INT);
    let output = client.finish(PATIENCE);
    assert_says(
        "without an end",
        &output,
        0,
        &["Connect/Request/Response", "per sec"],
        0,
    );

    // A sweep keeps the rows that it has.
    let line =
        format!("sweep -q --json -H {SERVER_V4} --test tcp_rr --request 1,2,3 --duration 1s");
    let sweep = ours_going_on(&a, &words(&line));
    runs();
    thread::sleep(Duration::from_millis(1_600));
    sweep.signal(Signal::INT);
    let report = super::report_of(&sweep.finish(PATIENCE), 130);
    let jobs = report["socket"]["jobs"].as_array().expect("jobs");
    assert!((1..=3).contains(&jobs.len()), "{report}");
    assert!(number(&jobs[0], "/result/transactions") > 0, "{}", jobs[0]);

    // The server ends at once, even during a test, and leaves nothing behind.
    let client = ours_going_on(&a, &words(&format!("netperf -H {SERVER_V4} -l 50")));
    runs();
    thread::sleep(Duration::from_millis(300));
    let did = server.end();
    assert!(did["clients"].as_u64().is_some_and(|n| n >= 4), "{did}");
    let output = client.finish(PATIENCE);
    assert_says("the server went", &output, 1, &["the server"], 2);
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    let left = within(&b, "sh", &["-c", "ip netns pids $(ip netns identify $$)"])
        .output()
        .expect("it runs");
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    // The shell, and what it asks with.
    assert!(left.lines().count() <= 4, "{left}");
}

/// Without -D the server runs in the background and can be ended there.
#[test]
fn netserver_in_the_background() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let output = ours(&b, &["netserver"]);
    assert_says(
        "the start",
        &output,
        0,
        &["Starting netserver with host 'IN(6)ADDR_ANY' port '12865' and family AF_UNSPEC"],
        0,
    );
    wait_for_port(&b, 12865);
    let output = ours(
        &a,
        &words(&format!("netperf -H {SERVER_V4} -t TCP_RR -l -10")),
    );
    assert_says("a test", &output, 0, &["Trans."], 0);
    let pids = within(
        &b,
        "sh",
        &[
            "-c",
            "kill $(ip netns pids $(ip netns identify $$) | grep -vx $$)",
        ],
    );
    let mut pids = pids;
    let _ = pids.output().expect("it runs");
    eventually("it is gone", || {
        let output = ours(
            &a,
            &words(&format!("netperf -H {SERVER_V4} -t TCP_RR -l -10")),
        );
        output.status.code() == Some(255)
    });
}

#[test]
fn a_test_that_the_tester_made_void_has_code_3() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    let line = format!("netperf --latency --criteria max<=200ms -- -H {SERVER_V4} -t TCP_RR -l 3");
    let running = ours_going_on(&a, &words(&line));
    let sent = || {
        let file = "/sys/class/net/a0/statistics/tx_packets";
        let text = within(&a, "cat", &[file]).output().unwrap().stdout;
        String::from_utf8(text)
            .unwrap()
            .trim()
            .parse::<u64>()
            .unwrap()
    };
    let before = sent();
    eventually("requests are sent", || sent() > before + 500);
    running.signal(Signal::STOP);
    thread::sleep(Duration::from_millis(700));
    running.signal(Signal::CONT);
    let output = running.finish(PATIENCE);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("wirebench: invalid: the tester was late"),
        "{said}"
    );
    assert_eq!(server.end()["failed"], 0);
}
