//! HTTP loads over sockets against haproxy, which has ways of its own to refuse and to close, and with as many
//! connections as one thread is asked to keep.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::{
    kit::{Lab, eventually, privileged},
    load_interop::{haproxy_says, inside, installed, server},
    netperf::ours,
};

/// The one job of a run of `wirebench http`, whose sums hold.
fn job(node: &str, words: &str) -> Value {
    let words: Vec<&str> = words.split_whitespace().collect();
    let output = ours(node, &[&["http", "-q", "--json"], &words[..]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{words:?}: no report; {error}"));
    let job = report["http"]["jobs"][0].clone();
    let n = |key| total(&job, key);
    assert_eq!(
        n("sent"),
        n("completed") + n("failed") + n("in_flight"),
        "{job}"
    );
    assert_eq!(
        n("established_connections"),
        n("closed_connections") + n("broken_connections") + n("open_connections"),
        "{job}"
    );
    job
}

/// A total, or the sum of one by cause.
fn total(job: &Value, key: &str) -> u64 {
    match &job["totals"][key] {
        Value::Object(causes) => causes.values().filter_map(Value::as_u64).sum(),
        value => value
            .as_u64()
            .unwrap_or_else(|| panic!("no {key} in {job}")),
    }
}

fn haproxy(folder: &Path, rules: &str) -> String {
    let file = folder.join("haproxy.cfg");
    let config = format!(
        "global\n stats socket {}/s mode 600 level admin\n maxconn 2000\ndefaults\n mode http\n\
         timeout client 2s\n timeout server 2s\n timeout connect 2s\n timeout http-keep-alive 2s\n\
         frontend front\n bind 0.0.0.0:80\n bind :::80 v6only\n{rules}",
        folder.display()
    );
    fs::write(&file, config).unwrap();
    file.display().to_string()
}

#[test]
fn haproxy_counts_the_same() {
    if !privileged() || !installed(&["haproxy"]) {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (client, node) = (lab.node("a"), lab.node("b"));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let rules = " http-request return status 404 if { path /gone }\n\
                 http-request silent-drop if { path /drop }\n\
                 http-request reject if { path /reject }\n\
                 http-request return status 200 content-type text/plain string hello\n";
    let _haproxy = server(
        &node,
        &["haproxy", "-db", "-f", &haproxy(folder.path(), rules)],
    );
    let (mut answers, mut connections) = (BTreeMap::new(), 0);
    for (words, path, status) in [
        ("-n 2000 -c 8 --pipeline 4", "ok", "200"),
        ("-n 500 -c 8 --close", "ok", "200"),
        ("-n 300 -c 4 --per-connection 7", "gone", "404"),
    ] {
        let job = job(&client, &format!("{words} http://198.19.1.2/{path}"));
        let sent = total(&job, "sent");
        assert_eq!(total(&job, "completed"), sent, "{words}: {job}");
        assert_eq!(job["statuses"][status], sent, "{words}: {job}");
        // No more than are asked for a connection each.
        if words.ends_with("--close") {
            assert_eq!(total(&job, "attempted_connections"), sent, "{words}: {job}");
        }
        connections += total(&job, "established_connections");
        *answers
            .entry(format!("hrsp_{}xx", &status[..1]))
            .or_insert(0) += sent;
        for (class, n) in &answers {
            eventually("its answers", || haproxy_says(&socket, class) >= *n);
            assert_eq!(haproxy_says(&socket, class), *n, "{words}");
        }
        // A connection of which nothing came is a session, too, and here one that was not needed in the end.
        assert_eq!(haproxy_says(&socket, "stot"), connections, "{words}");
    }
    // It closes without an answer: each request has failed, each connection is replaced.
    let job_of = job(&client, "-d 1s -c 2 http://198.19.1.2/reject");
    assert_eq!(total(&job_of, "completed"), 0, "{job_of}");
    assert!(total(&job_of, "failed") > 2, "{job_of}");
    assert_eq!(
        total(&job_of, "failed"),
        total(&job_of, "broken_connections"),
        "{job_of}"
    );
    // It forgets the connection and tells nobody: only time ends them.
    let job_of = job(&client, "-d 1s -c 2 --timeout 300ms http://198.19.1.2/drop");
    assert_eq!(total(&job_of, "completed"), 0, "{job_of}");
    assert_eq!(
        job_of["totals"]["failed"]["timeout"],
        total(&job_of, "failed"),
        "{job_of}"
    );
    assert!((4..=10).contains(&total(&job_of, "failed")), "{job_of}");
}

/// nginx accepts one connection a turn by default, so that thousands would wait for it.
#[test]
fn ten_thousand_connections_of_one_thread() {
    if !privileged() || !installed(&["nginx"]) {
        return;
    }
    // As it takes the whole machine.
    let lab = Lab::alone("pair", &["--hosts"]);
    let (client, node) = (lab.node("a"), lab.node("b"));
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let config = format!(
        "daemon off; user root; worker_processes 1; worker_rlimit_nofile 30000; pid {at}/pid; error_log {at}/error;\n\
         events {{ worker_connections 20000; multi_accept on; }}\n\
         http {{ access_log off; keepalive_requests 1000000; keepalive_timeout 60;\n\
         server {{ listen 0.0.0.0:80 backlog=20000; listen [::]:80; location / {{ return 200 x; }} }} }}\n"
    );
    fs::write(folder.path().join("config"), config).unwrap();
    inside(&node, &["sysctl", "-qw", "net.core.somaxconn=20000"]);
    let path = format!("{at}/config");
    let _nginx = server(&node, &["nginx", "-c", &path]);
    let job = job(
        &client,
        "-n 200000 -c 10000 --timeout 20s http://198.19.1.2/",
    );
    assert_eq!(total(&job, "sent"), 200_000, "{job}");
    assert_eq!(total(&job, "completed"), 200_000, "{job}");
    assert_eq!(total(&job, "attempted_connections"), 10_000, "{job}");
    assert_eq!(total(&job, "established_connections"), 10_000, "{job}");
}
