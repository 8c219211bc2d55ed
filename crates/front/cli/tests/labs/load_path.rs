//! TCP through a bad path, with a kernel at either end; and requests of old and new clients to the server.

use std::fs;

use rustix::process::Signal;

use crate::{
    kit::{Lab, eventually, privileged, run, system},
    load::{
        PATIENCE, assert_alike, assert_balanced, counter, job, job_total, load, report_of, started,
        words,
    },
    load_interop::{inside, installed, kernel_at},
};

const BAD: &str = "--loss 1% --reorder 2% --duplicate 1% --delay 300us --both --all --seed 5";

#[test]
fn an_echo_through_a_bad_path_is_whole() {
    if !privileged() || !installed(&["curl"]) {
        return;
    }
    let lab = Lab::up("impair", &words(BAD));
    let node = kernel_at(&lab, "a");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let sent: Vec<u8> = (0..300_000u32).flat_map(u32::to_be_bytes).collect();
    fs::write(path("sent"), &sent).unwrap();
    let server = started(&words(&format!(
        "--server {} --answer echo --reading stream --duration 5m",
        lab.b0()
    )));
    // The response begins with the data from curl, as an answer of HTTP/0.9; neither end closes.
    let body = format!("@{}", path("sent"));
    let mut curl = vec!["netns", "exec", &node, "curl", "-s", "-m", "5", "--http0.9"];
    let back = path("back");
    curl.extend(["-H", "Expect:", "--data-binary", &body, "-o", &back]);
    curl.push("http://198.19.1.2/");
    eventually("the server answers", || {
        system("ip", &curl);
        fs::read(&back).is_ok_and(|back| back.len() > sent.len())
    });
    let back = fs::read(&back).unwrap();
    assert!(back.starts_with(b"POST / HTTP/1.1\r\n"));
    assert!(back.ends_with(&sent), "{} bytes came back", back.len());
    server.signal(Signal::INT);
    let report = report_of(&server.finish(PATIENCE), 130);
    assert_balanced(&report);
}

#[test]
fn both_ends_through_a_bad_path_lose_nothing() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &words(BAD));
    let ends = format!("--client {} --server {}", lab.a0(), lab.b0());
    for what in [
        "--request bytes:5000 --answer echo --cc 5 --every 0s",
        "--answer http:300000 --cc 5 --every 0s",
        "--request bytes:200000 --answer bytes:10 --cc 5 --requests 5",
    ] {
        let line = format!("{ends} {what} --duration 2s --drain 30s");
        let report = load(&words(&line), 0);
        assert_balanced(&report);
        // The ends may disagree on the end of a connection, if its last acknowledgement was lost.
        let client = job(&report, "client");
        assert_eq!(
            job_total(client, "failed_connections"),
            0,
            "{what}: {client}"
        );
        assert_eq!(job_total(client, "open_connections"), 0, "{what}: {client}");
        assert_eq!(
            job_total(client, "requests"),
            job_total(client, "responses"),
            "{what}: {client}"
        );
        let again = counter(job(&report, "client"), "data_again")
            + counter(job(&report, "server"), "data_again");
        assert!(again > 0, "{what}: nothing was lost?");
    }
}

/// Routers with a smaller MTU, and unknown destinations, cause ICMP messages.
#[test]
fn icmp_messages_of_a_router_are_heard() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    let dut = lab.node("dut");
    inside(&dut, &["ip", "link", "set", "db", "mtu", "1300"]);
    let report = load(
        &words(&format!(
            "--client {} --server {} --request bytes:5000 --answer bytes:10 --cps 50 --requests 1 --duration 1s",
            lab.a0(),
            lab.b0()
        )),
        0,
    );
    let client = job(&report, "client");
    assert_eq!(job_total(client, "failed_connections"), 0, "{client}");
    assert_eq!(job_total(client, "responses"), 50, "{client}");
    let warnings = report["warnings"].to_string();
    assert!(
        warnings.contains("the path MTU is 1300 bytes"),
        "{warnings}"
    );

    inside(&dut, &["ip", "route", "add", "unreachable", "198.19.9.9"]);
    inside(&dut, &["sysctl", "-qw", "net.ipv4.icmp_ratelimit=0"]);
    let line = format!(
        "load --client {} --servers 198.19.9.9 --cps 2 --duration 4s --connect-timeout 1s -q --json",
        lab.a0()
    );
    let output = run(&words(&line));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let client = job(&report, "client");
    // The routing of the kernel reports it at most once per second.
    let unreachable = client["failures"]["icmp_unreachable"].as_u64();
    assert!(unreachable >= Some(1), "{client}");
    assert_balanced(&report);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("code 1 (host unreachable)"), "{warnings}");
}

#[test]
fn a_file_is_one_message_however_it_is_cut() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("message");
    fs::write(&file, [b'm'; 5000]).unwrap();
    let line = format!(
        "--client {} --server {} --request file:{} --answer file:{} --cc 3 --requests 4 --duration 1s",
        lab.a0(),
        lab.b0(),
        file.display(),
        file.display()
    );
    let report = load(&words(&line), 0);
    assert_alike(&report, "files");
    let (client, server) = (job(&report, "client"), job(&report, "server"));
    let bytes = counter(server, "payload_rx");
    assert_eq!(bytes, 5000 * job_total(server, "requests"), "{server}");
    assert_eq!(counter(client, "payload_rx"), bytes, "{client}");
}

#[test]
fn curl_asks_for_heads_old_versions_and_leave() {
    if !privileged() || !installed(&["curl"]) {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = kernel_at(&lab, "a");
    let server = started(&words(&format!(
        "--server {} --answer http:5000 --duration 5m",
        lab.b0()
    )));
    let ask = |options: &str| {
        let line = format!("curl -s -m 5 -o /dev/null {options} http://198.19.1.2/");
        let all = words(&line);
        let told = ["-w", "%{http_code} %{size_download} %{num_connects} "];
        inside(&node, &[&all[..4], &told, &all[4..]].concat())
    };
    eventually("the server answers", || {
        let line = format!("netns exec {node} curl -s -m 1 -o /dev/null http://198.19.1.2/");
        system("ip", &words(&line)).status.success()
    });
    assert_eq!(ask("-I"), "200 0 1 ");
    // HTTP/1.0 is closed, so a second transfer connects anew.
    assert_eq!(
        ask("-0 http://198.19.1.2/ -o /dev/null"),
        "200 5000 1 200 5000 1 "
    );
    assert_eq!(
        ask("http://198.19.1.2/ -o /dev/null"),
        "200 5000 1 200 5000 0 "
    );
    // Without leave curl would wait for a second.
    let leave = ask("-H Expect:100-continue -d abc --expect100-timeout 30");
    assert_eq!(leave, "200 5000 1 ");
    server.signal(Signal::INT);
    let report = report_of(&server.finish(PATIENCE), 130);
    assert_balanced(&report);
    let server = job(&report, "server");
    assert_eq!(counter(server, "failed_malformed"), 0, "{server}");
    assert!(job_total(server, "responses") >= 7, "{server}");
}

#[test]
fn heads_are_asked_for_and_small_answers_never_stall() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let ends = format!("--client {} --server {}", lab.a0(), lab.b0());
    for what in [
        "--method HEAD --answer http:5000 --cc 3 --every 0s",
        "--answer http:2000 --cc 1 --every 0s",
    ] {
        let line = format!("{ends} {what} --duration 2s");
        assert_alike(&load(&words(&line), 0), what);
    }
}

#[test]
fn peers_of_what_is_open_at_the_end_are_told() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let server = started(&words(&format!(
        "--server {} --answer sink --reading stream --duration 5m",
        lab.b0()
    )));
    // A server that never answers: all is open when the drain is over.
    let line = format!(
        "--client {} --servers 198.19.1.2 --cc 20 --duration 1s --drain 100ms",
        lab.a0()
    );
    // No request completed.
    let report = load(&words(&line), 3);
    let client = job(&report, "client");
    let open = job_total(client, "open_connections");
    assert_eq!((open, counter(client, "rst_tx")), (20, 20), "{client}");
    server.signal(Signal::INT);
    let report = report_of(&server.finish(PATIENCE), 130);
    let server = job(&report, "server");
    assert_eq!(counter(server, "rst_rx"), 20, "{server}");
    assert_eq!(job_total(server, "open_connections"), 0, "{server}");
}
