//! HTTP loads over sockets against haproxy, which has special ways to refuse and to close, and with as many
//! connections as one thread must keep.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use serde_json::Value;

use crate::{
    kit::{Lab, Running, eventually, privileged},
    load_interop::{haproxy_says, inside, installed, server},
    netperf::ours_going_on,
};

/// Path from a load to its server.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// By the kernel of this node.
    Sockets(String),
    /// Over the TCP stack of wirebench, from addresses that no kernel has.
    Port(String),
}

impl Way {
    /// From node a of a pair.
    pub(crate) fn both(lab: &Lab) -> [Self; 2] {
        [Self::Sockets(lab.node("a")), Self::Port(lab.a0())]
    }

    /// The only job of a run of `wirebench http`, after a check of its sums.
    pub(crate) fn job(&self, words: &str) -> Value {
        self.report(words, 0)["http"]["jobs"][0].clone()
    }

    /// The report of a run that must end with `code`. It is valid if a busy machine kept requests from being sent.
    pub(crate) fn report(&self, words: &str, code: i32) -> Value {
        let words = format!("--allow-unsent {words}");
        self.finish(self.start(&words), &words, code)
    }

    /// A run in the background.
    pub(crate) fn start(&self, words: &str) -> Running {
        let line = match self {
            Self::Sockets(_) => format!("http -q --json {words}"),
            Self::Port(port) => {
                format!("http -q --json --port {port} --source 198.18.1.100-198.18.1.109 {words}")
            }
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        match self {
            Self::Sockets(node) => ours_going_on(node, &words),
            Self::Port(_) => Running::start(&words),
        }
    }

    /// The report of a run that must end with `code`.
    pub(crate) fn finish(&self, running: Running, words: &str, code: i32) -> Value {
        let line = format!("{self:?} {words}");
        let output = running.finish(Duration::from_secs(120));
        let error = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{line}: no report; {error}"));
        let reason = &report["reason"];
        assert_eq!(output.status.code(), Some(code), "{line}: {reason} {error}");
        let job = &report["http"]["jobs"][0];
        let n = |key| total(job, key);
        assert_eq!(
            n("sent"),
            n("completed") + n("failed") + n("in_flight"),
            "{job}"
        );
        assert_eq!(
            n("established_connections") + n("warm_up_connections"),
            n("closed_connections") + n("broken_connections") + n("open_connections"),
            "{job}"
        );
        report
    }
}

/// A total, or the sum of one by cause.
pub(crate) fn total(job: &Value, key: &str) -> u64 {
    match &job["totals"][key] {
        Value::Object(causes) => causes.values().filter_map(Value::as_u64).sum(),
        value => value
            .as_u64()
            .unwrap_or_else(|| panic!("no {key} in {job}")),
    }
}

/// Limits packets from the kernel of node b over veth to the length of a frame.
pub(crate) fn whole_frames(node: &str) {
    inside(node, &["ethtool", "-K", "b0", "tso", "off", "gso", "off"]);
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
    let node = lab.node("b");
    whole_frames(&node);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    // A separate error would count with a 404: a connection without a request is one.
    let rules = " http-request redirect location /ok if { path /moved }\n\
                 http-request silent-drop if { path /drop }\n\
                 http-request reject if { path /reject }\n\
                 http-request return status 200 content-type text/plain string hello\n";
    let _haproxy = server(
        &node,
        &["haproxy", "-db", "-f", &haproxy(folder.path(), rules)],
    );
    let (mut answers, mut connections) = (BTreeMap::new(), 0);
    for way in Way::both(&lab) {
        for (words, path, status) in [
            ("-n 2000 -c 8 --pipeline 4", "ok", "200"),
            ("-n 500 -c 8 --close", "ok", "200"),
            ("-n 300 -c 4 --per-connection 7", "moved", "302"),
        ] {
            let job = way.job(&format!("{words} http://198.19.1.2/{path}"));
            let sent = total(&job, "sent");
            assert_eq!(total(&job, "completed"), sent, "{way:?} {words}: {job}");
            assert_eq!(job["statuses"][status], sent, "{way:?} {words}: {job}");
            // No more than are asked for a connection each.
            if words.ends_with("--close") {
                let attempted = total(&job, "attempted_connections");
                assert_eq!(attempted, sent, "{way:?} {words}: {job}");
            }
            connections += total(&job, "established_connections");
            *answers
                .entry(format!("hrsp_{}xx", &status[..1]))
                .or_insert(0) += sent;
            for (class, n) in &answers {
                eventually("its answers", || haproxy_says(&socket, class) >= *n);
                assert_eq!(haproxy_says(&socket, class), *n, "{way:?} {words}");
            }
            // A connection without any data is a session, too, including one that was not needed in the end.
            let sessions = haproxy_says(&socket, "stot");
            assert_eq!(sessions, connections, "{way:?} {words}");
        }
        // It closes without an answer: each request has failed, each connection is replaced.
        let nothing_completed = |words| way.report(words, 3)["http"]["jobs"][0].clone();
        let job = nothing_completed("-d 1s -c 2 http://198.19.1.2/reject");
        let failed = total(&job, "failed");
        assert_eq!(total(&job, "completed"), 0, "{way:?}: {job}");
        assert!(failed > 2, "{way:?}: {job}");
        assert_eq!(failed, total(&job, "broken_connections"), "{way:?}: {job}");
        // The server forgets the connection silently: only the timeout ends the requests.
        let job = nothing_completed("-d 1s -c 2 --timeout 300ms http://198.19.1.2/drop");
        let failed = total(&job, "failed");
        assert_eq!(total(&job, "completed"), 0, "{way:?}: {job}");
        assert_eq!(job["totals"]["failed"]["timeout"], failed, "{way:?}: {job}");
        assert!((4..=10).contains(&failed), "{way:?}: {job}");
        eventually("its sessions", || {
            let now = haproxy_says(&socket, "stot");
            std::mem::replace(&mut connections, now) == now
        });
    }
}

#[test]
fn haproxy_counts_the_same_behind_a_bad_path() {
    if !privileged() || !installed(&["haproxy"]) {
        return;
    }
    let options = "--hosts --all --both --delay 500us --loss 1% --reorder 2% --duplicate 1%";
    let lab = Lab::up("impair", &options.split(' ').collect::<Vec<_>>());
    let node = lab.node("b");
    whole_frames(&node);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let rules = " http-request redirect location / if { path /moved }\n\
                 http-request return status 200 content-type text/plain string hello\n";
    let config = haproxy(folder.path(), rules);
    let _haproxy = server(&node, &["haproxy", "-db", "-f", &config]);
    let (mut good, mut moved) = (0, 0);
    for words in [
        "-n 400 -c 20",
        "-n 300 -c 10 --pipeline 4",
        "-n 100 -c 10 --close",
    ] {
        let words = format!("{words} --timeout 10s http://198.19.1.2/ http://198.19.1.2/moved");
        let job = Way::Port(lab.a0()).job(&words);
        let sent = total(&job, "sent");
        assert_eq!(total(&job, "completed"), sent, "{words}: {job}");
        good += job["statuses"]["200"].as_u64().unwrap();
        moved += job["statuses"]["302"].as_u64().unwrap();
        assert_eq!(haproxy_says(&socket, "hrsp_2xx"), good, "{words}: {job}");
        assert_eq!(haproxy_says(&socket, "hrsp_3xx"), moved, "{words}: {job}");
    }
}

/// nginx accepts one connection a turn by default, so that thousands would wait for it.
#[test]
fn ten_thousand_connections_of_one_thread() {
    if !privileged() || !installed(&["nginx"]) {
        return;
    }
    // Alone, because it takes the whole machine.
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
    let words = "-n 200000 -c 10000 --timeout 20s http://198.19.1.2/";
    let job = Way::Sockets(client).job(words);
    assert_eq!(total(&job, "sent"), 200_000, "{job}");
    assert_eq!(total(&job, "completed"), 200_000, "{job}");
    assert_eq!(total(&job, "attempted_connections"), 10_000, "{job}");
    assert_eq!(total(&job, "established_connections"), 10_000, "{job}");
}
