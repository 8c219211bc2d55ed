//! HTTP/3 of a real server, caddy: its log matches the counts of wirebench, also over bad paths and when it dies.

use std::{
    fs,
    net::IpAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    http::{assert_bodies, n, report, settled},
    kit::{Lab, eventually, privileged, system},
    load_interop::installed,
    netperf::{ours, ours_going_on, wait_for_port},
};

/// A caddy in a node, which notes each request.
struct Caddy {
    process: Child,
    folder: TempDir,
}

impl Caddy {
    /// Serves /one (a byte), /ten (10 KiB) and /gone (404) at port 443, by TCP, too; at 444 by TCP only.
    fn start(node: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let at = folder.path().display().to_string();
        fs::create_dir(folder.path().join("www")).unwrap();
        fs::write(folder.path().join("www/one"), "x").unwrap();
        let ten: Vec<u8> = (0..10_240_u32).map(|n| (n * 7 % 251) as u8).collect();
        fs::write(folder.path().join("www/ten"), ten).unwrap();
        let (key, certificate) = (format!("{at}/key"), format!("{at}/certificate"));
        let words = format!(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab -addext subjectAltName=DNS:lab \
             -addext basicConstraints=critical,CA:FALSE \
             -keyout {key} -out {certificate}"
        );
        let made = system("openssl", &words.split_whitespace().collect::<Vec<_>>());
        assert!(made.status.success());
        let site = format!(
            "{{\n tls {certificate} {key}\n root * {at}/www\n file_server\n\
             log {{\n output file {at}/access\n }}\n}}\n"
        );
        let config = format!(
            "{{\n admin off\n default_sni lab\n auto_https off\n skip_install_trust\n\
             log {{\n output file {at}/log\n }}\n\
             servers :443 {{\n protocols h1 h3\n }}\n servers :444 {{\n protocols h1 h2\n }}\n}}\n\
             :443 {site}:444 {site}"
        );
        fs::write(folder.path().join("config"), config).unwrap();
        let config = format!("{at}/config");
        let run = ["caddy", "run", "--adapter", "caddyfile", "--config"];
        let process = Command::new("ip")
            .args(["netns", "exec", node])
            .args(run)
            .arg(&config)
            .env("HOME", &at)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_port(node, 443);
        wait_for_port(node, 444);
        Self { process, folder }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("access")).unwrap_or_default()
    }

    /// Requests that it has noted, soon after it has answered them.
    fn noted(&self) -> u64 {
        settled(|| self.logged())
    }

    fn logged(&self) -> u64 {
        self.log().lines().count() as u64
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        self.kill();
    }
}

fn sum(of: &Value) -> u64 {
    let causes = of.as_object().unwrap().values();
    causes.map(|n| n.as_u64().unwrap()).sum()
}

/// Each request and each connection has one place.
fn adds_up(job: &Value) {
    let t = &job["totals"];
    let failed = sum(&t["failed"]);
    assert_eq!(
        n(job, "sent"),
        n(job, "completed") + failed + n(job, "in_flight"),
        "{t}"
    );
    let not_made = sum(&t["refused_connections"]);
    let made = n(job, "established_connections");
    assert_eq!(
        n(job, "attempted_connections"),
        made + not_made + n(job, "connecting"),
        "{t}"
    );
    let ended = n(job, "closed_connections") + n(job, "broken_connections");
    assert_eq!(made, ended + n(job, "open_connections"), "{t}");
}

#[test]
fn over_http3_caddy_counts_the_same() {
    if !privileged() || !installed(&["caddy"]) {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let caddy = Caddy::start(&lab.node("b"));
    let node = lab.node("a");
    let mut noted = 0;
    for (words, path, bytes) in [
        ("-n 1000 -c 10 -t 2", "one", 1),
        ("-n 1000 -c 4 --streams 50", "one", 1),
        ("-n 300 -c 2 --streams 8 --digest", "ten", 10_240),
        ("-n 300 -c 4 --close", "ten", 10_240),
        ("-n 100 -c 4 --close --no-resume", "one", 1),
        ("-n 100 -c 4 --per-connection 5 --streams 2", "ten", 10_240),
        ("-n 100 --rate 400 --streams 4 -m HEAD", "ten", 0),
        ("-n 1000 -c 1 --streams 1000 -H x-a:b", "one", 1),
    ] {
        let job = report(&node, &format!("--http3 {words} https://198.19.1.2/{path}"));
        let sent = n(&job, "sent");
        assert_eq!(n(&job, "completed"), sent, "{words}: {job}");
        assert_eq!(n(&job, "body_bytes"), sent * bytes, "{words}: {job}");
        assert_eq!(caddy.noted() - noted, sent, "{words}");
        noted += sent;
        adds_up(&job);
        assert_eq!(job["classes"]["2xx"]["samples"], sent, "{words}: {job}");
        let tls = |key: &str| job["tls"][key].as_u64().unwrap();
        let (full, resumed) = (tls("full_handshakes"), tls("resumed_handshakes"));
        let made = n(&job, "established_connections");
        assert_eq!(full + resumed, made, "{words}: {job}");
        assert_eq!(job["tls"]["agreed"]["TLSv1_3"], made, "{words}: {job}");
        assert_eq!(job["connect_ns"]["samples"], made, "{words}: {job}");
        match (words.contains("--close"), words.contains("--no-resume")) {
            (true, false) => assert!(resumed > 150, "{words}: {job}"),
            (_, true) => assert_eq!(resumed, 0, "{words}: {job}"),
            _ => {}
        }
        match (words.contains("--close"), words.contains("--per")) {
            (true, _) => assert_eq!(n(&job, "closed_connections"), sent, "{words}: {job}"),
            // Some may be open with less.
            (_, true) => assert!(
                n(&job, "closed_connections") >= sent / 5 - 4,
                "{words}: {job}"
            ),
            _ => {}
        }
        if words.contains("--digest") {
            assert_eq!(job["digests"].as_array().unwrap().len(), 1, "{job}");
        }
        // Limit of this caddy.
        let most = job["http3"]["most_streams"].as_u64().unwrap();
        assert!(most <= 100, "{words}: {job}");
        let waits = job["http3"]["stream_waits"].as_u64().unwrap();
        assert_eq!(
            words.contains("1000 -H"),
            most == 100 && waits > 0,
            "{words}: {job}"
        );
        let datagrams = job["http3"]["sent_datagrams"].as_u64().unwrap();
        assert!(datagrams >= made, "{words}: {job}");
    }
    let text = caddy.log();
    assert_eq!(text.matches("\"proto\":\"HTTP/3.0\"").count() as u64, noted);

    let job = report(&node, "--http3 -n 50 https://198.19.1.2/gone");
    assert_eq!(job["statuses"]["404"], 50, "{job}");
    assert_eq!(job["classes"]["4xx"]["samples"], 50, "{job}");
    // A body larger than the first window waits.
    let body = "b".repeat(100_000);
    let words = format!("--http3 -n 20 --streams 3 -m POST -b {body} https://198.19.1.2/one");
    let job = report(&node, &words);
    assert_eq!(n(&job, "completed"), 20, "{job}");
    assert!(n(&job, "sent_bytes") > 20 * 100_000, "{job}");
    adds_up(&job);
}

#[test]
fn over_http3_bytes_are_those_of_the_requests_that_count() {
    if !privileged() || !installed(&["caddy"]) {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let _caddy = Caddy::start(&lab.node("b"));
    let words = "-c 2 --streams 4 https://198.19.1.2/ten";
    for warm_up in ["", "--warm-up 300ms"] {
        let line = format!("--http3 -d 800ms {warm_up} {words}");
        let job = report(&lab.node("a"), &line);
        assert_eq!(n(&job, "warm_up") > 0, !warm_up.is_empty(), "{job}");
        assert_bodies(&job, 10_240);
    }
}

#[test]
fn names_addresses_and_sources_are_those_asked_for() {
    if !privileged() || !installed(&["caddy"]) {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let caddy = Caddy::start(&lab.node("b"));
    let node = lab.node("a");
    let at = caddy.folder.path().display();
    for (words, source) in [
        (
            "--source 198.18.1.2 --connect-to 198.19.1.2:0 https://web.lab/one".to_owned(),
            "198.18.1.2",
        ),
        (
            format!(
                "--verify --authorities {at}/certificate --server-name lab https://198.19.1.2/one"
            ),
            "198.18.1.2",
        ),
        ("https://[2001:2:0:8001::2]/one".to_owned(), "2001:2:0:1::2"),
    ] {
        let before = caddy.log().lines().count();
        let job = report(&node, &format!("--http3 -n 5 -c 1 {words}"));
        assert_eq!(n(&job, "completed"), 5, "{words}: {job}");
        caddy.noted();
        let log = caddy.log();
        for line in log.lines().skip(before) {
            let line: Value = serde_json::from_str(line).unwrap();
            let address: IpAddr = line["request"]["remote_ip"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap();
            assert_eq!(
                address,
                source.parse::<IpAddr>().unwrap(),
                "{words}: {line}"
            );
        }
    }
    // The certificate has no trusted signature. A port without HTTP/3 refuses requests.
    let line = "http -q --json --http3 -d 500ms -c 1 --timeout 300ms";
    for (words, cause, said) in [
        (
            "--verify https://198.19.1.2/one",
            "tls",
            "TLS: the cryptographic handshake failed",
        ),
        ("https://198.19.1.2:444/one", "refused", "refused"),
    ] {
        let line = format!("{line} {words}");
        let output = ours(&node, &line.split(' ').collect::<Vec<_>>());
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let job = &all["http"]["jobs"][0];
        adds_up(job);
        assert!(n(job, "attempted_connections") > 1, "{job}");
        let causes = &job["totals"]["refused_connections"];
        let (of_cause, late) = (causes[cause].as_u64(), causes["timeout"].as_u64());
        assert!(of_cause.unwrap() > 0, "{job}");
        assert_eq!(of_cause.unwrap() + late.unwrap(), sum(causes), "{job}");
        let first = job["first_failure"].as_str().unwrap();
        assert!(first.contains(said), "{first}");
    }
}

#[test]
fn a_server_that_dies_leaves_no_request_without_a_place() {
    if !privileged() || !installed(&["caddy"]) {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    for words in ["", "--rate 500", "--close"] {
        let mut caddy = Caddy::start(&lab.node("b"));
        let line = format!(
            "http -q --json --http3 -c 8 --streams 4 -d 3s --timeout 500ms {words} https://198.19.1.2/ten"
        );
        let line: Vec<&str> = line.split_whitespace().collect();
        let running = ours_going_on(&lab.node("a"), &line);
        eventually("requests are answered", || caddy.log().lines().count() > 50);
        caddy.kill();
        let output = running.finish(Duration::from_secs(60));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let job = &report["http"]["jobs"][0];
        adds_up(job);
        let t = &job["totals"];
        assert!(n(job, "completed") > 30, "{t}");
        assert_eq!(n(job, "open_connections"), 0, "{t}");
        // Its kernel reports a closed port, but not to every client: it limits its messages.
        let causes = &t["refused_connections"];
        let (refused, late) = (&causes["refused"], &causes["timeout"]);
        let told = refused.as_u64().unwrap() + t["failed"]["refused"].as_u64().unwrap();
        assert!(told > 0 || !words.is_empty(), "{t}");
        assert_eq!(
            refused.as_u64().unwrap() + late.as_u64().unwrap(),
            sum(causes),
            "{t}"
        );
        let failed = &t["failed"];
        let known = ["refused", "timeout", "closed"].map(|cause| failed[cause].as_u64().unwrap());
        assert_eq!(known.iter().sum::<u64>(), sum(failed), "{t}");
    }
}

#[test]
fn over_a_bad_path_no_request_is_lost_and_no_byte_changes() {
    if !privileged() || !installed(&["caddy"]) {
        return;
    }
    let options = "--hosts --all --both --delay 500us --loss 1% --reorder 2% --duplicate 1%";
    let lab = Lab::up("impair", &options.split(' ').collect::<Vec<_>>());
    let caddy = Caddy::start(&lab.node("b"));
    let node = lab.node("a");
    for words in ["-n 400 -c 10 --streams 2", "-n 100 -c 10 --close"] {
        let before = caddy.noted();
        let line = format!("--http3 {words} --digest --timeout 10s https://198.19.1.2/ten");
        let job = report(&node, &line);
        let t = &job["totals"];
        adds_up(&job);
        assert_eq!(
            (n(&job, "completed"), n(&job, "in_flight")),
            (n(&job, "sent"), 0),
            "{t}"
        );
        assert_eq!(job["digests"].as_array().unwrap().len(), 1, "{job}");
        assert_eq!(caddy.noted() - before, n(&job, "sent"));
    }
}

#[test]
fn what_is_under_way_has_a_place_when_it_is_interrupted() {
    if !privileged() || !installed(&["caddy"]) {
        return;
    }
    let options = ["--hosts", "--all", "--both", "--delay", "200ms"];
    let lab = Lab::up("impair", &options);
    let caddy = Caddy::start(&lab.node("b"));
    for at_once in [false, true] {
        let line = "http -q --json --http3 -c 5 --streams 4 -d 5m https://198.19.1.2/ten";
        let before = caddy.noted();
        let running = ours_going_on(&lab.node("a"), &line.split(' ').collect::<Vec<_>>());
        eventually("requests are answered", || caddy.logged() > before + 30);
        running.signal(Signal::INT);
        if at_once {
            // Two pending signals of one number would be one; a pause could be long enough for all responses.
            running.signal(Signal::TERM);
        }
        let output = running.finish(Duration::from_secs(60));
        let code = output.status.code().unwrap();
        assert!(code == 130 || at_once && code == 143, "{line}: {code}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let job = &report["http"]["jobs"][0];
        adds_up(job);
        assert_eq!(n(job, "in_flight") > 0, at_once, "{job}");
        let noted = caddy.noted() - before;
        assert!(
            (n(job, "completed")..=n(job, "sent")).contains(&noted),
            "{noted}: {job}"
        );
    }
}
