//! Many clients at once, including disruptive ones.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use rustix::process::Signal;

use super::{PATIENCE, SERVER_V4, Server, interop, ours_going_on, within};
use crate::{
    http::settled,
    kit::{Lab, Running, eventually, privileged, system},
};

/// Silent control connections, and some that send invalid data. Prints a line when all are
/// made, and holds them.
const NUISANCES: &str = r#"
import os, socket, sys, time
held = []
for i in range(100):
    s = socket.create_connection((sys.argv[1], 12865), 20)
    if i % 2:
        s.sendall((b"\xff\xfe\xfd\xfc" + os.urandom(652)) * (1 + i % 3) + b"x" * (i % 7))
    elif i % 4:
        s.sendall(b"\0\0\0")
    held.append(s)
print("held", flush=True)
time.sleep(80)
"#;

/// Current and peak memory of a process, in KiB.
fn resident(id: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let kib = |key: &str| {
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix(key))
            .expect("a line");
        line.split_whitespace()
            .next()
            .and_then(|n| n.parse().ok())
            .expect("KiB")
    };
    (kib("VmRSS:"), kib("VmHWM:"))
}

fn threads(id: u32) -> usize {
    fs::read_dir(format!("/proc/{id}/task")).map_or(0, Iterator::count)
}

#[test]
fn many_clients_among_nuisances() {
    let name = "many_clients_among_nuisances";
    if !privileged() {
        return;
    }
    if Command::new("python3")
        .arg("-V")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        wb_skip::skipped("python3 is not installed");
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &["--idle", "5s"], &[]);
    // Some of its threads start after it listens.
    let idle_threads = settled(|| threads(server.id()) as u64) as usize;
    let (at_rest, _) = resident(server.id());
    let nuisances = within(&a, "python3", &["-c", NUISANCES, SERVER_V4])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut nuisances = Running(nuisances);
    let mut line = String::new();
    let out = nuisances.0.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
    assert_eq!(line, "held\n");
    // Includes real clients, if they are installed. All get a second together with all the others.
    let real = interop::original();
    let (node, begun) = (&a, Instant::now());
    thread::scope(|scope| {
        let clients: Vec<_> = (0..200)
            .map(|i| {
                scope.spawn(move || {
                    let words = ["-H", SERVER_V4, "-t", "TCP_RR", "-l", "3", "-P", "0"];
                    let output = match real && i % 2 == 0 {
                        true => within(node, "netperf", &words),
                        false => within(
                            node,
                            env!("CARGO_BIN_EXE_wirebench"),
                            &[&["netperf"], &words[..]].concat(),
                        ),
                    }
                    .output()
                    .expect("it runs");
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    (output.status.code(), said)
                })
            })
            .collect();
        for (i, client) in clients.into_iter().enumerate() {
            let (code, said) = client.join().expect("it ran");
            assert_eq!((code, said.as_str()), (Some(0), ""), "client {i}");
        }
    });
    eprintln!(
        "{name}: 200 clients in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    // A client costs a receive buffer (131072 bytes by default, twice), a send buffer, the part of two
    // stacks that is used: below 512 KiB. None of it grows with what is sent.
    let (_, most) = resident(server.id());
    assert!(
        most < at_rest + 200 * 512 + 100 * 64,
        "{most} KiB; {at_rest} KiB at rest"
    );
    // Silent connections are closed after the configured time.
    eventually("the silent ones are given up", || {
        threads(server.id()) <= idle_threads
    });
    // It serves on.
    let after = super::ours(
        &a,
        &[
            "netperf", "-H", SERVER_V4, "-t", "TCP_RR", "-l", "-10", "-P", "0",
        ],
    );
    assert!(after.status.success());
    let did = server.end();
    assert_eq!(did["clients"], 301, "{did}");
    assert_eq!(did["given_up"], 100, "{did}");
    assert_eq!(did["completed"], 201, "{did}");
    assert_eq!(
        (&did["failed"], &did["turned_away"]),
        (&0.into(), &0.into()),
        "{did}"
    );
    drop(nuisances);
}

/// Control connections that are established at the server's node.
fn control_connections(node: &str) -> usize {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let words = [&["netns", "exec", node, "cat"][..], &tables].concat();
    let output = system("ip", &words);
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let local = columns.next().unwrap_or_default();
            // 12865; the state 01 is ESTABLISHED.
            local.ends_with(":3241") && columns.nth(1) == Some("01")
        })
        .count()
}

#[test]
fn no_more_clients_than_allowed() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &["--clients", "2"], &[]);
    let words = [
        "netperf", "-H", SERVER_V4, "-t", "TCP_RR", "-l", "60", "-P", "0",
    ];
    let busy = [ours_going_on(&a, &words), ours_going_on(&a, &words)];
    let short = [
        "netperf", "-H", SERVER_V4, "-t", "TCP_RR", "-l", "-10", "-P", "0",
    ];
    // Before both are there a third would take the place of one of them.
    eventually("both are there", || control_connections(&b) == 2);
    eventually("a third is turned away", || {
        !super::ours(&a, &short).status.success()
    });
    for client in busy {
        client.signal(Signal::INT);
        let output = client.finish(PATIENCE);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
    eventually("there is room again", || {
        super::ours(&a, &short).status.success()
    });
    let did = server.end();
    assert!(did["turned_away"].as_u64().is_some_and(|n| n > 0), "{did}");
    assert_eq!(did["failed"], 0, "{did}");
}
