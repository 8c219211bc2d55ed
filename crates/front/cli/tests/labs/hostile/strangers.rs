//! A server that accepts any client: its user, its reserved places, and its start.

use std::{
    io::Read,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::{Running, eventually, privileged};

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Our netserver at a port of the loopback address.
fn netserver(port: u16, ours: &[&str]) -> Running {
    let child = Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args(["netserver", "--json"])
        .args(ours)
        .args(["--", "-D", "-L", "127.0.0.1", "-p", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let server = Running(child);
    eventually("it listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    server
}

/// The user identities and the name of a process.
fn identity(pid: u32) -> (Vec<String>, String) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    (field("Uid:"), field("Name:").concat())
}

fn connect_from(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddr::new(source.into(), 0)).unwrap();
    connect(&fd, &to).unwrap();
    TcpStream::from(fd)
}

#[test]
fn a_server_that_root_starts_is_not_root() {
    if !privileged() {
        return;
    }
    let port = free_port();
    let server = netserver(port, &[]);
    // It listens first, and drops its privileges then.
    crate::kit::eventually("it is not root", || {
        !identity(server.0.id()).0.contains(&"0".to_owned())
    });
    let (_, name) = identity(server.0.id());
    assert_eq!(name, "netserver");
    // And serves all the same.
    let output = Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args(["netperf", "-H", "127.0.0.1", "-p", &port.to_string()])
        .args(["-t", "TCP_RR", "-l", "-100", "-c", "-C", "-T", ",0"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    drop(server);

    let server = netserver(free_port(), &["--user", "root"]);
    assert_eq!(identity(server.0.id()).0, ["0", "0", "0", "0"]);
    let refused = Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args(["netserver", "--user", "wb-no-such-user", "--", "-D"])
        .args(["-L", "127.0.0.1", "-p", &free_port().to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("wb-no-such-user"), "{said}");
}

/// Processes with this word in their command line.
fn processes_with(word: &str) -> Vec<Pid> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let ours = numbers.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|w| w == word.as_bytes())
    });
    ours.filter_map(Pid::from_raw).collect()
}

#[test]
fn a_server_in_the_background_listens_when_its_command_returns() {
    for _ in 0..5 {
        let port = free_port();
        let text = port.to_string();
        let start = || {
            Command::new(env!("CARGO_BIN_EXE_wirebench"))
                .args(["netserver", "-L", "127.0.0.1", "-p", &text])
                .stdin(Stdio::null())
                .output()
                .unwrap()
        };
        let started = start();
        let connected = TcpStream::connect(("127.0.0.1", port)).is_ok();
        let again = start();
        for pid in processes_with(&text) {
            let _ = kill_process(pid, Signal::TERM);
        }
        assert_eq!(started.status.code(), Some(0), "{started:?}");
        let said = String::from_utf8_lossy(&started.stdout);
        assert!(
            said.starts_with("Starting netserver with host '127.0.0.1'"),
            "{said}"
        );
        assert!(connected);
        // The port is in use: the command reports it, and nothing is left behind.
        assert_eq!(again.status.code(), Some(1), "{again:?}");
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(said.contains("Unable to start netserver"), "{said}");
        eventually("they are gone", || processes_with(&text).is_empty());
    }
}

#[test]
fn three_hundred_connections_of_one_address_leave_room_for_others() {
    let port = free_port();
    let server = netserver(port, &["--clients-per-address", "256"]);
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let crowd: Vec<TcpStream> = (0..300)
        .map(|_| connect_from(Ipv4Addr::new(127, 0, 0, 2), to))
        .collect();
    let closed = || {
        let is_closed = |mut one: &TcpStream| {
            one.set_nonblocking(true).unwrap();
            matches!(one.read(&mut [0]), Ok(0))
        };
        crowd.iter().filter(|one| is_closed(one)).count()
    };
    eventually("44 are turned away", || closed() == 44);
    let output = Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args([
            "netperf",
            "-H",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-l",
            "-1000",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    server.signal(Signal::TERM);
    let report = server.finish(Duration::from_secs(60));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["socket"]["server"]["turned_away"], 44, "{report}");
}
