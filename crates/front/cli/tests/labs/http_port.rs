//! HTTP loads over the TCP stack of wirebench against real servers: both ends have the same counts.

use serde_json::Value;

use crate::{
    http::{Nginx, assert_bodies, n},
    http_servers::{Way, whole_frames},
    kit::{Lab, privileged, run},
};

fn job(report: &Value) -> &Value {
    &report["http"]["jobs"][0]
}

#[test]
fn nginx_counts_what_our_tcp_counts() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    whole_frames(&lab.node("b"));
    let nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let mut noted = 0;
    for (driver, words, bytes) in [
        ("packet", "-n 1000 -c 10 http://198.19.1.2/one", 1),
        ("xdp", "-n 1000 -c 10 http://198.19.1.2/one", 1),
        (
            "packet",
            "-n 300 -c 5 --close http://198.19.1.2/ten",
            10_240,
        ),
        (
            "xdp",
            "-n 999 -c 10 --per-connection 7 --pipeline 3 http://198.19.1.2/ten",
            10_240,
        ),
        (
            "packet",
            "-n 600 -c 5 --pipeline 4 -m HEAD http://198.19.1.2/one http://198.19.1.2/ten",
            0,
        ),
        (
            "packet",
            "-d 1s -c 10 -t 2 --rate 400 --poisson http://198.19.1.2/one",
            1,
        ),
    ] {
        let report = Way::Port(format!("{driver}:{}", lab.a0())).report(words, 0);
        let job = job(&report);
        let sent = n(job, "sent");
        assert!(sent > 250, "{words}: {job}");
        assert_eq!(n(job, "completed"), sent, "{words}: {job}");
        assert_eq!(n(job, "body_bytes"), sent * bytes, "{words}: {job}");
        assert_eq!(nginx.noted() - noted, sent, "{words}");
        noted += sent;
        let load = &report["load"]["jobs"][0];
        assert_eq!(load["totals"]["requests"], sent, "{words}");
        let calls = job["requests"].as_array().unwrap();
        let completed: u64 = calls.iter().map(|c| c["completed"].as_u64().unwrap()).sum();
        assert_eq!(completed, sent);
    }
    let words = "-n 50 --expect-status 200 --criteria failed<=0 http://198.19.1.2/gone";
    let report = Way::Port(lab.a0()).report(words, 1);
    assert_eq!(job(&report)["totals"]["failed"]["check"], 50);
    assert!(
        job(&report)["first_failure"]
            .as_str()
            .unwrap()
            .contains("404")
    );
}

#[test]
fn a_bad_path_costs_our_tcp_no_request() {
    if !privileged() {
        return;
    }
    let options = "--hosts --all --both --delay 500us --loss 1% --reorder 2% --duplicate 1%";
    let lab = Lab::up("impair", &options.split(' ').collect::<Vec<_>>());
    whole_frames(&lab.node("b"));
    let nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    for words in [
        "-n 400 -c 20 http://198.19.1.2/ten http://198.19.1.2/one",
        "-n 200 -c 10 --pipeline 4 http://198.19.1.2/ten http://198.19.1.2/one",
        "-n 100 -c 10 --close http://198.19.1.2/ten",
    ] {
        let words = format!("--timeout 10s --digest {words}");
        let kernels = Way::Sockets(lab.node("a")).job(&words);
        let before = nginx.noted();
        let report = Way::Port(lab.a0()).report(&words, 0);
        let job = job(&report);
        // Each body is the same, and as the kernel's TCP has it.
        let digests = job["digests"].as_array().unwrap();
        assert_eq!(digests.len(), job["requests"].as_array().unwrap().len());
        assert_eq!(job["digests"], kernels["digests"]);
        let sent = n(job, "sent");
        assert_eq!(
            (n(job, "completed"), n(job, "in_flight")),
            (sent, 0),
            "{job}"
        );
        let of = |i: usize| job["requests"][i]["completed"].as_u64().unwrap_or(0);
        let small = if words.contains("/one") { of(1) } else { 0 };
        assert_eq!(n(job, "body_bytes"), of(0) * 10_240 + small, "{job}");
        assert_eq!(nginx.noted() - before, sent);
    }
}

#[test]
fn what_our_tcp_cannot_do_is_refused_in_a_line() {
    for (words, wanted) in [
        ("https://198.19.1.2/", "does not support TLS"),
        ("http://web.lab/", "does not resolve names"),
        ("--data x.csv http://198.19.1.2/", "data"),
        ("-c 100k http://198.19.1.2/", "connections"),
    ] {
        let line = format!("http --port memory:x {words}");
        let output = run(&line.split(' ').collect::<Vec<_>>());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        assert!(error.contains(wanted), "{words}: {error}");
    }
}

/// Needs neither privileges nor a lab: a link in memory.
#[test]
fn both_ends_of_ours_count_the_same_by_route() {
    let plan = r#"
schema = "wirebench.plan/1"
kind = "http"

[[port]]
name = "c"
locator = "memory:routes"

[[port]]
name = "s"
locator = "memory:routes"

[[http]]
port = "c"
url = "http://198.19.1.2/a"
connections = 20
pipeline = 3
amount = 5000

[[http.request]]
path = "/a?n=1"
weight = 3

[[http.request]]
path = "/slow/x"

[[http.request]]
path = "/none"

[[load]]
port = "s"
end = "server"
clients = []
servers = ["198.19.1.2"]
requests = 0

[[load.route]]
path = "/a"
size = 1000

[[load.route]]
path = "/slow/*"
status = 503
size = 10
delay = "5ms"
"#;
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, plan).unwrap();
    let output = run(&["run", "-q", "--json", &path.display().to_string()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let job = job(&report);
    assert_eq!((n(job, "sent"), n(job, "completed")), (5000, 5000), "{job}");
    let calls: Vec<u64> = job["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["completed"].as_u64().unwrap())
        .collect();
    assert_eq!(calls, [3000, 1000, 1000]);
    assert_eq!(
        job["statuses"],
        serde_json::json!({"200": 3000, "404": 1000, "503": 1000})
    );
    let samples = |class: &str| job["classes"][class]["samples"].as_u64();
    let classes = ["2xx", "4xx", "5xx"].map(samples);
    assert_eq!(classes, [Some(3000), Some(1000), Some(1000)]);
    assert!(
        job["classes"]["5xx"]["min"].as_f64().unwrap() >= 5e6,
        "{job}"
    );
    let loads = report["load"]["jobs"].as_array().unwrap();
    let server = loads.iter().find(|load| load["end"] == "server").unwrap();
    let answers: Vec<u64> = server["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| route["answers"].as_u64().unwrap())
        .collect();
    assert_eq!(answers, calls);
    assert_eq!(server["totals"]["responses"], 5000);
    assert!(
        job["requests"][1]["latency_ns"]["min"].as_f64().unwrap() >= 5e6,
        "{job}"
    );
}

#[test]
fn bytes_are_those_of_the_requests_that_count() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    whole_frames(&lab.node("b"));
    let _nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let [sockets, port] = Way::both(&lab);
    for (way, words) in [
        (&sockets, "-c 4 http://198.19.1.2/ten"),
        (&sockets, "-c 4 --close https://198.19.1.2/ten"),
        (
            &sockets,
            "-c 2 --http2 --streams 4 http://198.19.1.2:81/ten",
        ),
        (&port, "-c 4 http://198.19.1.2/ten"),
        (&port, "-c 4 --close http://198.19.1.2/ten"),
    ] {
        for warm_up in ["", "--warm-up 300ms"] {
            let job = way.job(&format!("-d 800ms {warm_up} {words}"));
            assert_eq!(n(&job, "warm_up") > 0, !warm_up.is_empty(), "{job}");
            assert_bodies(&job, 10_240);
        }
    }
}
