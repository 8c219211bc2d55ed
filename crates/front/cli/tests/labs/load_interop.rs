//! Loads against other programs: nginx, haproxy, curl and wrk on the kernel's TCP; and the analysis of the frames
//! by tshark. Missing programs are skipped with a message.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    kit::{self, Lab, Running, eventually, listening, privileged, system},
    load::{
        PATIENCE, Talking, assert_alike, assert_balanced, job, job_total, load, report_of, started,
        words,
    },
};

/// Returns true if all these programs are installed, and names a missing one otherwise.
pub(crate) fn installed(programs: &[&str]) -> bool {
    let found = |name: &&&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        folders.extend(["/usr/sbin".into(), "/sbin".into()]);
        folders.iter().any(|folder| folder.join(name).exists())
    };
    let missing: Vec<&&str> = programs.iter().filter(|name| !found(name)).collect();
    for program in &missing {
        wb_skip::skipped(format_args!("{program} is not installed"));
    }
    missing.is_empty()
}

/// A command of the system in a namespace; its standard output.
pub(crate) fn inside(node: &str, command: &[&str]) -> String {
    let output = system("ip", &[&["netns", "exec", node], command].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Gives the kernel of a node the addresses that the tester has there, and the way to the other side.
pub(crate) fn kernel_at(lab: &Lab, side: &str) -> String {
    let (own, way) = match side {
        "a" => (
            ["198.18.1.2/32", "2001:2:0:1::2/128"],
            ["198.19.0.0/16", "2001:2:0:8000::/56"],
        ),
        _ => (
            ["198.19.1.2/32", "2001:2:0:8001::2/128"],
            ["198.18.0.0/16", "2001:2::/56"],
        ),
    };
    let (node, device) = (lab.node(side), format!("{side}0"));
    for name in ["lo", &device] {
        let setting = format!("net.ipv6.conf.{name}.disable_ipv6=0");
        inside(&node, &["sysctl", "-qw", &setting]);
    }
    inside(&node, &["ip", "link", "set", "lo", "up"]);
    for address in own {
        inside(
            &node,
            &["ip", "addr", "add", address, "dev", &device, "nodad"],
        );
    }
    for net in way {
        inside(&node, &["ip", "route", "add", net, "dev", &device]);
    }
    node
}

/// Waits until a server listens at port 80 of a node, in both families.
fn wait_for_port_80(node: &str) {
    eventually("it listens", || {
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().all(|table| {
            inside(node, &["cat", table]).lines().any(|l| {
                l.split_whitespace()
                    .nth(1)
                    .is_some_and(|a| a.ends_with(":0050"))
                    && l.contains(" 0A ")
            })
        })
    });
}

fn wait_for_no_port_80(node: &str) {
    eventually("it is gone", || {
        !inside(node, &["cat", "/proc/net/tcp"]).contains(":0050 00000000:0000 0A")
    });
}

/// A server of the system in a node.
pub(crate) fn server(node: &str, command: &[&str]) -> Running {
    let child = Command::new("ip")
        .args(["netns", "exec", node])
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let running = Running(child);
    wait_for_port_80(node);
    running
}

/// An nginx that writes a line for each request: the number of its connection and the status.
pub(crate) struct Nginx {
    running: Running,
    dir: TempDir,
}

impl Nginx {
    pub(crate) fn start(node: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_str().unwrap();
        let parts = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let folders: String = parts
            .iter()
            .map(|p| format!("{p}_temp_path {at}/{p};"))
            .collect();
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/errors;
            events {{ worker_connections 4096; }}
            http {{
              log_format each '$connection $status'; access_log {at}/requests each; {folders}
              keepalive_requests 1000000;
              server {{ listen 80; listen [::]:80 ipv6only=on; location / {{ return 200 \"hello\"; }} }}
            }}"
        );
        let file = dir.path().join("nginx.conf");
        fs::write(&file, config).unwrap();
        let running = server(
            node,
            &[
                "nginx",
                "-e",
                &format!("{at}/errors"),
                "-c",
                file.to_str().unwrap(),
            ],
        );
        Self { running, dir }
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("requests")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until it has served as many requests as `client` asked, each with 200, over as many connections.
    fn agrees_with(&self, client: &Value, place: &str) {
        let requests = job_total(client, "requests") as usize;
        eventually(place, || self.lines().len() >= requests);
        let lines = self.lines();
        assert_eq!(lines.len(), requests, "{place}: {client}");
        assert!(lines.iter().all(|l| l.ends_with(" 200")), "{place}");
        let connections: BTreeSet<&str> =
            lines.iter().map(|l| l.split(' ').next().unwrap()).collect();
        assert_eq!(
            connections.len() as u64,
            job_total(client, "completed_connections"),
            "{place}: {client}"
        );
    }
}

/// Checks that nothing failed and everything was answered with 2xx.
pub(crate) fn assert_perfect(report: &Value, place: &str) {
    assert_balanced(report);
    let client = job(report, "client");
    let of = |key| job_total(client, key);
    assert_eq!(
        of("attempted_connections"),
        of("completed_connections"),
        "{place}: {client}"
    );
    assert_eq!(of("requests"), of("responses"), "{place}: {client}");
    assert!(of("responses") > 0, "{place}: {client}");
    assert_eq!(
        client["counters"]["status_2xx"],
        of("responses"),
        "{place}: {client}"
    );
}

#[test]
fn nginx_counts_what_the_client_counts() {
    if !privileged() || !installed(&["nginx"]) {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = kernel_at(&lab, "b");
    for (driver, options) in [
        ("xdp", "--cps 300"),
        ("xdp", "-6 --cps 300 --requests 3"),
        ("xdp", "--cc 20 --every 20ms"),
        ("packet", "--cps 300 --workers 2"),
        ("packet", "-6 --cps 100 --requests 6 --pipeline 3"),
        ("packet", "--cps 300 --close reset"),
    ] {
        let nginx = Nginx::start(&node);
        let line = format!(
            "--client {driver}:{} --duration 1s --drain 20s {options}",
            lab.a0()
        );
        let report = load(&words(&line), 0);
        let place = format!("{driver} {options}");
        assert_perfect(&report, &place);
        nginx.agrees_with(job(&report, "client"), &place);
        drop(nginx);
        wait_for_no_port_80(&node);
    }
}

#[test]
fn nginx_over_a_lossy_link_answers_everything_or_it_is_counted() {
    if !privileged() || !installed(&["nginx"]) {
        return;
    }
    let lab = Lab::up(
        "impair",
        &words("--loss 1% --reorder 2% --both --all --seed 9"),
    );
    let node = kernel_at(&lab, "b");
    let nginx = Nginx::start(&node);
    for options in ["--cps 300", "--cc 30 --every 20ms -6"] {
        let before = nginx.lines().len();
        let line = format!(
            "--client {} --duration 2s --retransmit 200ms --tries 10 --drain 60s {options}",
            lab.a0()
        );
        let report = load(&words(&line), 0);
        assert_balanced(&report);
        let client = job(&report, "client");
        let of = |key| job_total(client, key);
        assert_eq!(of("open_connections"), 0, "{options}: {client}");
        assert!(
            of("requests") <= of("responses") + of("failed_connections"),
            "{options}: {client}"
        );
        assert!(of("completed_connections") > 0, "{options}: {client}");
        // It was served at least as often as it was answered.
        let answered = of("responses") as usize;
        eventually("nginx has written", || {
            nginx.lines().len() - before >= answered
        });
        if of("failed_connections") == 0 {
            assert_eq!(
                nginx.lines().len() - before,
                answered,
                "{options}: {client}"
            );
        }
    }
}

#[test]
fn a_killed_nginx_is_counted_and_its_successor_found() {
    if !privileged() || !installed(&["nginx"]) {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = kernel_at(&lab, "b");
    let first = Nginx::start(&node);
    let line = format!(
        "--client {} --cps 200 --requests 5 --every 20ms --duration 5m",
        lab.a0()
    );
    let client = Talking::start(&words(&line));
    client.more("completed_connections", 20);
    first.running.signal(Signal::KILL);
    client.more("failed_connections", 20);
    drop(first);
    let _second = Nginx::start(&node);
    client.more("completed_connections", 20);
    let report = client.stop();
    assert_balanced(&report);
    let client = job(&report, "client");
    assert_eq!(job_total(client, "open_connections"), 0, "{client}");
    // The kernel reports the closed port at once.
    assert!(client["failures"]["refused"].as_u64() > Some(0), "{client}");
}

#[test]
fn haproxy_counts_what_the_client_counts() {
    if !privileged() || !installed(&["haproxy"]) {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = kernel_at(&lab, "b");
    for (driver, options) in [
        ("xdp", "--cps 300"),
        ("packet", "-6 --cps 200 --requests 3"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (socket, file) = (dir.path().join("s"), dir.path().join("haproxy.cfg"));
        let config = format!(
            "global\n stats socket {} mode 600 level admin\n maxconn 2000\ndefaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 2s\nfrontend front\n bind 0.0.0.0:80\n bind :::80 v6only\n http-request return status 200 content-type text/plain string hello\n",
            socket.display()
        );
        fs::write(&file, config).unwrap();
        let haproxy = server(&node, &["haproxy", "-db", "-f", file.to_str().unwrap()]);
        let line = format!(
            "--client {driver}:{} --duration 1s --drain 20s {options}",
            lab.a0()
        );
        let report = load(&words(&line), 0);
        assert_perfect(&report, options);
        let client = job(&report, "client");
        for (key, ours) in [
            ("stot", "attempted_connections"),
            ("req_tot", "requests"),
            ("hrsp_2xx", "responses"),
        ] {
            let theirs = || haproxy_says(&socket, key);
            eventually(key, || theirs() >= job_total(client, ours));
            assert_eq!(theirs(), job_total(client, ours), "{options}: {key}");
        }
        drop(haproxy);
        wait_for_no_port_80(&node);
    }
}

/// A number of its frontend.
pub(crate) fn haproxy_says(socket: &PathBuf, key: &str) -> u64 {
    let mut stream = UnixStream::connect(socket).expect("its socket");
    stream.write_all(b"show stat\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = names
        .iter()
        .position(|n| *n == key)
        .unwrap_or_else(|| panic!("no {key} in {names:?}"));
    let row = lines
        .find(|l| l.starts_with("front,FRONTEND"))
        .expect("the frontend");
    row.split(',').nth(column).unwrap().parse().unwrap()
}

#[test]
fn curl_and_wrk_are_answered() {
    if !privileged() || !installed(&["curl", "wrk"]) {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = kernel_at(&lab, "a");
    for (driver, family) in [("xdp", ""), ("xdp", "-6"), ("packet", ""), ("packet", "-6")] {
        let url = match family {
            "" => "http://198.19.1.2/",
            _ => "http://[2001:2:0:8001::2]/",
        };
        let line = format!("--server {driver}:{} --answer http:3000 {family}", lab.b0());
        let ours = Talking::start(&words(&line));
        // Two requests over one connection, and one that has a body.
        let both = inside(&node, &["curl", "-sS", "--max-time", "20", url, url]);
        assert_eq!(both.len(), 6_000, "{driver} {family}");
        let posted = inside(
            &node,
            &["curl", "-sS", "--max-time", "20", "-d", "some body", url],
        );
        assert_eq!(posted.len(), 3_000, "{driver} {family}");
        let text = inside(
            &node,
            &["wrk", "-t1", "-c4", "-d1s", "--timeout", "20s", url],
        );
        let line = text
            .lines()
            .find(|l| l.contains("requests in"))
            .expect("a sum");
        let wrk: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
        assert!(
            !text.contains("Socket errors") && !text.contains("Non-2xx"),
            "{text}"
        );
        ours.running.signal(Signal::TERM);
        let Talking { running, .. } = ours;
        let report = report_of(&running.finish(PATIENCE), 143);
        assert_balanced(&report);
        let server = job(&report, "server");
        // wrk does not wait for its last requests: one on each connection.
        let asked = job_total(server, "requests");
        assert!(
            (wrk + 3..=wrk + 3 + 4).contains(&asked),
            "{driver} {family}: {wrk} {server}"
        );
        let connections = job_total(server, "attempted_connections");
        assert!(
            (6..=7).contains(&connections),
            "{driver} {family}: {server}"
        );
        assert_eq!(
            job_total(server, "open_connections"),
            0,
            "{driver} {family}: {server}"
        );
    }
}

/// Frames that tshark finds something about.
fn found(file: &str, filter: &str) -> String {
    let checks = [
        "tcp.check_checksum",
        "ip.check_checksum",
        "udp.check_checksum",
    ];
    let options: Vec<String> = checks.iter().map(|c| format!("-o{c}:TRUE")).collect();
    let output = Command::new("tshark")
        .args(["-r", file, "-Y", filter])
        .args(options)
        .stderr(Stdio::null())
        .output()
        .expect("tshark runs");
    assert!(output.status.success(), "{filter}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn tshark_finds_nothing_wrong_with_our_frames() {
    if !privileged() || !installed(&["tshark", "reordercap"]) {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for options in [
        "--cps 100 --answer http:10000",
        "-6 --cps 100 --requests 3 --pipeline 3",
        "--vlan 5 --cps 50 --body 3000 --method POST",
        "--udp --cps 100",
        "-6 --udp --cps 100 --request random:800",
        "--cps 50 --close reset",
    ] {
        for attempt in 1..=3 {
            let dir = tempfile::tempdir().unwrap();
            let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
            let (raw, file) = (path("raw.pcapng"), path("frames.pcapng"));
            // Frames that arrive at both ends, as sent by the opposite end.
            let mut capture = kit::capture(&[
                "-q",
                "-Q",
                "in",
                "-i",
                &lab.a0(),
                "-i",
                &lab.b0(),
                "-w",
                &raw,
            ]);
            let capture = listening(dir.path(), &mut capture);
            let line = format!(
                "--client packet:{} --server packet:{} --duration 500ms --retransmit 50s {options}",
                lab.a0(),
                lab.b0()
            );
            let report = load(&words(&line), 0);
            assert_alike(&report, options);
            capture.signal(Signal::INT);
            capture.finish(PATIENCE);
            // After a stall a peer sends again, which says nothing about the frames.
            let pause = report["lateness"]["largest_gap_ns"].as_u64().unwrap();
            if attempt < 3 && pause > 100_000_000 {
                continue;
            }
            assert!(system("reordercap", &[&raw, &file]).status.success());
            let sent: u64 = ["client", "server"]
                .iter()
                .map(|end| {
                    job(&report, end)["frames"]["offered_frames"]
                        .as_u64()
                        .unwrap()
                })
                .sum();
            let kind = if options.contains("--udp") {
                "udp"
            } else {
                "tcp"
            };
            assert_eq!(
                found(&file, kind).lines().count() as u64,
                sent,
                "{options}: all were captured"
            );
            for wrong in [
                "_ws.malformed",
                "_ws.expert.severity == error",
                "tcp.checksum.status == 0 || udp.checksum.status == 0 || ip.checksum.status == 0",
                // Timestamps of the two ends are not exact: an answer may seem to precede its request, and an answered
                // segment may seem to be retransmitted. The number of frames shows that none was.
                "tcp.analysis.flags && !tcp.analysis.window_full && !tcp.analysis.ack_lost_segment && !tcp.analysis.spurious_retransmission",
            ] {
                assert_eq!(found(&file, wrong), "", "{options}: {wrong}");
            }
            // It judged, and was not asked in vain.
            let good = format!("{kind}.checksum.status == 1");
            assert_eq!(
                found(&file, &good).lines().count() as u64,
                sent,
                "{options}: {good}"
            );
            break;
        }
    }
}

#[test]
fn a_server_of_its_own_process_agrees_with_its_client() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let server = Talking::start(&["--server", &lab.b0()]);
    let line = format!("--client {} --cps 300 --duration 1s", lab.a0());
    let running = started(&words(&line));
    let client = report_of(&running.finish(PATIENCE), 0);
    let mut both = server.stop();
    assert_perfect(&client, "two processes");
    let jobs = both["load"]["jobs"].as_array_mut().unwrap();
    jobs.push(job(&client, "client").clone());
    assert_alike(&both, "two processes");
}
