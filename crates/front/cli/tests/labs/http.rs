//! HTTP loads of real servers, over clean and bad paths: the counts of wirebench and of the server are equal.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    kit::{Lab, eventually, privileged, system},
    load_interop::installed,
    netperf::{ours, ours_going_on, wait_for_port},
};

/// An nginx in a node, which notes each request.
pub(crate) struct Nginx {
    process: Child,
    folder: TempDir,
}

impl Nginx {
    /// Serves /one (a byte), /ten (10 KiB) and /gone (404) on ports 80 and, with TLS, 443; as HTTP/2 on 81 and 444, and
    /// on 82 with connections that end after 100 requests. Port 445 requires a client certificate: its own.
    pub(crate) fn start(node: &str, address: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let at = folder.path().display().to_string();
        // Its worker runs as the user nobody.
        system("chmod", &["755", &at]);
        fs::create_dir(folder.path().join("www")).unwrap();
        fs::write(folder.path().join("www/one"), "x").unwrap();
        let ten: Vec<u8> = (0..10_240_u32).map(|n| (n * 7 % 251) as u8).collect();
        fs::write(folder.path().join("www/ten"), ten).unwrap();
        let (key, certificate) = (format!("{at}/key"), format!("{at}/certificate"));
        let made = system(
            "openssl",
            &[
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=lab",
                "-keyout",
                &key,
                "-out",
                &certificate,
            ],
        );
        assert!(made.status.success());
        let config = format!(
            "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log {at}/access; keepalive_requests 1000000; ssl_certificate {certificate};\n\
             ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;\n\
             server {{ listen {address}:80; listen {address}:443 ssl; root {at}/www;\n\
             listen {address}:81 http2; listen {address}:444 ssl http2; }}\n\
             server {{ listen {address}:445 ssl; root {at}/www; ssl_verify_client on;\n\
             ssl_client_certificate {certificate}; }}\n\
             server {{ listen {address}:82 http2; keepalive_requests 100; root {at}/www; }} }}\n"
        );
        fs::write(folder.path().join("config"), config).unwrap();
        let process = Command::new("ip")
            .args([
                "netns",
                "exec",
                node,
                "nginx",
                "-c",
                &format!("{at}/config"),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_port(node, 443);
        Self { process, folder }
    }

    /// Log of the server.
    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("access")).unwrap_or_default()
    }

    /// Number of requests logged so far.
    pub(crate) fn logged(&self) -> u64 {
        self.log().lines().count() as u64
    }

    /// Number of logged requests. The server logs them before the last byte of an answer, or soon after.
    pub(crate) fn noted(&self) -> u64 {
        settled(|| self.logged())
    }
}

/// A count that a server may still be writing: the value that did not change for a while.
pub(crate) fn settled(count: impl Fn() -> u64) -> u64 {
    let mut last = count();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(300));
        match count() {
            same if same == last => break,
            more => last = more,
        }
    }
    last
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Killed at once, with its worker.
        let pid = fs::read_to_string(self.folder.path().join("pid")).unwrap_or_default();
        system("kill", &["-TERM", pid.trim()]);
        let _ = self.process.wait();
    }
}

/// The report of one job.
pub(crate) fn report(node: &str, words: &str) -> Value {
    let words: Vec<&str> = words.split_whitespace().collect();
    let output = ours(node, &[&["http", "-q", "--json"], &words[..]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["http"]["jobs"][0].clone()
}

pub(crate) fn n(job: &Value, key: &str) -> u64 {
    job["totals"][key].as_u64().unwrap()
}

/// The bytes of bodies are those of the requests that count, each of which was answered with `size` of them.
pub(crate) fn assert_bodies(job: &Value, size: u64) {
    let (completed, bytes) = (n(job, "completed"), n(job, "body_bytes"));
    // A run that ends by the clock may have read a part of the last answers.
    let most = completed + n(job, "in_flight");
    assert!(completed > 0, "{job}");
    assert!((completed * size..=most * size).contains(&bytes), "{job}");
}

#[test]
fn nginx_counts_the_same() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let node = lab.node("a");
    let mut noted = 0;
    for (words, url, bytes) in [
        ("-n 1000 -c 10 -t 2", "http://198.19.1.2/one", 1),
        ("-n 300 -c 4 --pipeline 8", "http://198.19.1.2/ten", 10_240),
        ("-n 300 -c 4 --close", "http://198.19.1.2/ten", 10_240),
        ("-n 300 -c 4 --digest", "https://198.19.1.2/ten", 10_240),
        (
            "-n 100 -c 4 --close --tls-version 1.3",
            "https://198.19.1.2/one",
            1,
        ),
        (
            "-n 100 -c 4 --close --tls-version 1.2 --no-resume",
            "https://198.19.1.2/one",
            1,
        ),
        ("-n 100 --rate 400 -m HEAD", "http://198.19.1.2/ten", 0),
    ] {
        let job = report(&node, &format!("{words} {url}"));
        let sent = n(&job, "sent");
        assert_eq!(n(&job, "completed"), sent, "{words}: {job}");
        assert_eq!(n(&job, "body_bytes"), sent * bytes, "{words}: {job}");
        assert_eq!(nginx.noted() - noted, sent, "{words}");
        noted += sent;
        if let Some(tls) = job["tls"].as_object() {
            let (full, resumed) = (
                tls["full_handshakes"].as_u64(),
                tls["resumed_handshakes"].as_u64(),
            );
            let all = full.unwrap() + resumed.unwrap();
            assert_eq!(all, n(&job, "established_connections"));
            match (words.contains("--close"), words.contains("--no-resume")) {
                (true, false) => assert!(resumed.unwrap() > 50, "{words}: {job}"),
                _ => assert_eq!(resumed, Some(0), "{words}: {job}"),
            }
        }
        if words.contains("--digest") {
            assert_eq!(job["digests"].as_array().unwrap().len(), 1, "{job}");
        }
    }
    let job = report(&node, "-n 50 http://198.19.1.2/gone");
    assert_eq!(job["statuses"]["404"], 50);
    assert_eq!(n(&job, "error_responses"), 50);
}

#[test]
fn over_http2_nginx_counts_the_same() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let node = lab.node("a");
    let mut noted = 0;
    for (words, url, bytes) in [
        ("-n 1000 -c 10 -t 2", "http://198.19.1.2:81/one", 1),
        ("-n 1000 -c 4 --streams 50", "https://198.19.1.2:444/one", 1),
        (
            "-n 300 -c 2 --streams 8 --digest",
            "https://198.19.1.2:444/ten",
            10_240,
        ),
        (
            "-n 100 -c 4 --per-connection 5 --streams 2 --tls-version 1.2",
            "https://198.19.1.2:444/ten",
            10_240,
        ),
        (
            "-n 100 --rate 400 --streams 4 -m HEAD",
            "http://198.19.1.2:81/ten",
            0,
        ),
        (
            "-n 1000 -c 2 --streams 1000 -H x-a:b",
            "http://198.19.1.2:81/one",
            1,
        ),
    ] {
        let job = report(&node, &format!("--http2 {words} {url}"));
        let sent = n(&job, "sent");
        assert_eq!(n(&job, "completed"), sent, "{words}: {job}");
        assert_eq!(n(&job, "body_bytes"), sent * bytes, "{words}: {job}");
        assert_eq!(nginx.noted() - noted, sent, "{words}");
        noted += sent;
        // Limit of this nginx.
        assert_eq!(job["http2"]["allowed_streams"], 128, "{words}: {job}");
        let most = job["http2"]["most_streams"].as_u64().unwrap();
        assert!(most <= 128, "{words}: {job}");
        if words.contains("1000 -H") {
            assert_eq!(most, 128);
        }
        if words.contains("--digest") {
            assert_eq!(job["digests"].as_array().unwrap().len(), 1, "{job}");
        }
    }
    let text = nginx.log();
    assert_eq!(text.matches("HTTP/2.0").count() as u64, noted);

    let job = report(&node, "--http2 -n 50 https://198.19.1.2:444/gone");
    assert_eq!(job["statuses"]["404"], 50, "{job}");
    // A body larger than the first window waits.
    let body = "b".repeat(100_000);
    let words = format!("--http2 -n 20 --streams 3 -m POST -b {body} http://198.19.1.2:81/one");
    let job = report(&node, &words);
    assert_eq!(job["statuses"]["405"], 20, "{job}");
    assert!(n(&job, "sent_bytes") > 0, "{job}");

    // It ends connections; what it has not processed is asked again over others.
    let noted = nginx.noted();
    let job = report(
        &node,
        "--http2 -n 2000 -c 2 --streams 10 http://198.19.1.2:82/one",
    );
    let counts = ["sent", "completed"].map(|key| n(&job, key));
    assert_eq!(counts, [2000; 2], "{job}");
    assert!(n(&job, "retried") > 0, "{job}");
    assert_eq!(nginx.noted() - noted, 2000, "{job}");
    let goaways = job["http2"]["goaways"]["NO_ERROR"].as_u64().unwrap();
    // Two connections are open at the end, of up to 100 requests each.
    assert!(goaways + 2 >= n(&job, "completed") / 100, "{job}");
    assert_eq!(n(&job, "closed_connections"), goaways, "{job}");
}

#[test]
fn a_server_without_http2_is_told_and_never_asked_otherwise() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    for (url, what) in [
        ("https://198.19.1.2/one", "ALPN"),
        (
            "http://198.19.1.2/one",
            "did not start with an HTTP/2 preface",
        ),
    ] {
        let line = format!("http -q --json --http2 -c 1 -d 300ms {url}");
        let output = ours(&lab.node("a"), &line.split(' ').collect::<Vec<_>>());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let job = &report["http"]["jobs"][0];
        let said = job["first_failure"].as_str().unwrap();
        assert!(said.contains(what), "{url}: {said}");
        assert_eq!((n(job, "sent"), n(job, "established_connections")), (0, 0));
        assert_ne!(output.status.code(), Some(0), "{report}");
    }
    assert!(!nginx.log().contains("/one"), "{}", nginx.log());
}

#[test]
fn nghttpd_answers_all_of_many_streams() {
    if !privileged() || !installed(&["nghttpd"]) {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), vec![b'x'; 70_000]).unwrap();
    let root = folder.path().display().to_string();
    let node = lab.node("b");
    let mut nghttpd = Command::new("ip")
        .args([
            "netns", "exec", &node, "nghttpd", "--no-tls", "-d", &root, "8080",
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_port(&node, 8080);
    let url = "http://198.19.1.2:8080";
    let words = format!("--http2 -n 2000 -c 3 --streams 200 --digest {url}/file");
    let job = report(&lab.node("a"), &words);
    let none = report(
        &lab.node("a"),
        &format!("--http2 -n 50 --streams 7 {url}/none"),
    );
    nghttpd.kill().unwrap();
    nghttpd.wait().unwrap();
    assert_eq!(n(&job, "completed"), 2000, "{job}");
    assert_eq!(n(&job, "body_bytes"), 2000 * 70_000, "{job}");
    assert_eq!(job["http2"]["allowed_streams"], 100, "{job}");
    assert_eq!(job["digests"].as_array().unwrap().len(), 1, "{job}");
    assert_eq!(none["statuses"]["404"], 50, "{none}");
}

#[test]
fn a_rate_that_was_not_kept_proves_nothing() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let _nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let line = "http -q --json -c 1 --rate 1m -d 500ms --criteria p99<=10s http://198.19.1.2/one";
    let output = ours(&lab.node("a"), &line.split(' ').collect::<Vec<_>>());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reason = report["reason"].as_str().unwrap();
    assert_eq!(output.status.code(), Some(3), "{reason}");
    assert!(reason.contains("of the intended load"), "{reason}");
}

#[test]
fn an_interrupted_run_has_a_place_for_each_request() {
    if !privileged() {
        return;
    }
    let options = ["--hosts", "--all", "--both", "--delay", "300ms"];
    let lab = Lab::up("impair", &options);
    let nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let (closed, open) = ("-c 20 -d 5m http", "-c 20 --rate 30 -d 5m https");
    for (words, at_once) in [(closed, false), (open, false), (closed, true), (open, true)] {
        let line = format!("http -q --json {words}://198.19.1.2/ten");
        let before = nginx.noted();
        let running = ours_going_on(&lab.node("a"), &line.split(' ').collect::<Vec<_>>());
        eventually("requests are answered", || nginx.logged() > before + 30);
        running.signal(Signal::INT);
        if at_once {
            // Two pending signals of one number would be one; a pause could be long enough for all responses.
            running.signal(Signal::TERM);
        }
        let output = running.finish(Duration::from_secs(60));
        let error = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().unwrap();
        assert!(
            code == 130 || at_once && code == 143,
            "{line}: {code}: {error}"
        );
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["verdict"], "incomplete", "{}", report["reason"]);
        let job = &report["http"]["jobs"][0];
        let failed = job["totals"]["failed"]
            .as_object()
            .expect("causes")
            .values();
        let failed: u64 = failed.map(|count| count.as_u64().unwrap()).sum();
        let (sent, completed) = (n(job, "sent"), n(job, "completed"));
        assert_eq!(sent, completed + failed + n(job, "in_flight"), "{job}");
        assert!(completed >= 20, "{job}");
        assert_eq!(n(job, "in_flight") > 0, at_once, "{job}");
        let noted = nginx.noted() - before;
        assert!((completed..=sent).contains(&noted), "{noted}: {job}");
    }
}

#[test]
fn a_bad_path_loses_no_request_and_changes_no_byte() {
    if !privileged() {
        return;
    }
    let options = "--hosts --all --both --delay 500us --loss 1% --reorder 2% --duplicate 1%";
    let lab = Lab::up("impair", &options.split(' ').collect::<Vec<_>>());
    let nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let node = lab.node("a");
    for (words, url) in [
        (
            "-n 400 -c 20 --digest --timeout 10s",
            "http://198.19.1.2/ten",
        ),
        (
            "-n 100 -c 10 --digest --close --timeout 10s",
            "https://198.19.1.2/ten",
        ),
    ] {
        let before = nginx.noted();
        let job = report(&node, &format!("{words} {url}"));
        let t = &job["totals"];
        assert_eq!(
            (n(&job, "completed"), n(&job, "in_flight")),
            (n(&job, "sent"), 0),
            "{t}"
        );
        assert_eq!(job["digests"].as_array().unwrap().len(), 1, "{job}");
        assert_eq!(nginx.noted() - before, n(&job, "sent"));
    }
}

/// A text with every figure the same, and blanks too.
fn form(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        // Its units depend on how fast it was.
        let words = line.split_whitespace().map(|word| {
            let figure = word.starts_with(|c: char| c.is_ascii_digit()) || word.ends_with("nan%");
            match figure {
                true => "#".to_owned(),
                false => word.to_owned(),
            }
        });
        out.push_str(&words.collect::<Vec<_>>().join(" "));
        out.push('\n');
    }
    out
}

#[test]
fn a_server_that_wants_a_certificate_gets_it() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let node = lab.node("a");
    let at = nginx.folder.path().display();
    let job = report(
        &node,
        &format!("-n 10 --cert {at}/certificate --key {at}/key https://198.19.1.2:445/one"),
    );
    assert_eq!(job["statuses"]["200"], 10, "{job}");
    let job = report(&node, "-n 10 https://198.19.1.2:445/one");
    assert_eq!(job["statuses"]["400"], 10, "{job}");
    // OpenSSL signs certificates of X.509 version 1 unless it is given extensions.
    let make = format!(
        "cd {at} && openssl req -newkey rsa:2048 -nodes -keyout own.key -out own.csr -subj /CN=client && \
         openssl x509 -req -in own.csr -CA certificate -CAkey key -CAcreateserial -out own.pem"
    );
    assert!(system("sh", &["-c", &make]).status.success());
    let job = report(
        &node,
        &format!("-n 10 --cert {at}/own.pem --key {at}/own.key https://198.19.1.2:445/one"),
    );
    assert_eq!(job["statuses"]["200"], 10, "{job}");
    let (own, other) = (format!("{at}/certificate"), format!("{at}/own.key"));
    let words = [
        "http",
        "--cert",
        &own,
        "--key",
        &other,
        "https://198.19.1.2:445/one",
    ];
    let output = ours(&node, &words);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("does not match the certificate in"), "{said}");
    let words = ["http", "--cert", "/no/such", "https://198.19.1.2:445/one"];
    let output = ours(&node, &words);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn benchmark_addresses_are_refused_by_the_default_route() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let node = lab.node("a");
    let ip = |words: &str| {
        let words: Vec<&str> = ["-n", &node].into_iter().chain(words.split(' ')).collect();
        assert!(system("ip", &words).status.success(), "{words:?}");
    };
    ip("route add default via 198.18.1.9 dev a0 onlink");
    let folder = TempDir::new().unwrap();
    let link = folder.path().join("wrk");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_wirebench"), &link).unwrap();
    let link = link.display().to_string();
    let refused = |program: &str, words: &str, code: i32| {
        let words = words.split(' ');
        let words: Vec<&str> = ["netns", "exec", &node, program]
            .into_iter()
            .chain(words)
            .collect();
        let output = system("ip", &words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        error.contains("the default route would carry the requests")
    };
    let ours = env!("CARGO_BIN_EXE_wirebench");
    let (url, end) = ("http://203.0.113.9/", "-d1s -c1 -t1 http://203.0.113.9/");
    assert!(refused(ours, &format!("http -d 1s {url}"), 2));
    assert!(refused(ours, &format!("wrk {end}"), 2));
    assert!(refused(&link, end, 1));
    // If another route leads there, and with consent, the request is sent: no server is there.
    let consent = format!("http -q -n 1 --timeout 100ms --i-own-this-network {url}");
    assert!(!refused(ours, &consent, 3));
    ip("route add 203.0.113.0/24 via 198.18.1.9 dev a0 onlink");
    assert!(!refused(
        ours,
        &format!("http -q -n 1 --timeout 100ms {url}"),
        3
    ));
}

#[test]
fn wrks_command_lines_give_wrks_text() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let _nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let node = lab.node("a");
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("all.lua");
    let text = r#"
        local threads = {}
        function setup(thread) thread:set("id", #threads) table.insert(threads, thread) end
        function init(args) print("init", id, #args, args[0], args[1]) sent, seen = 0, 0 end
        function request() sent = sent + 1 return wrk.format("POST", "/one?" .. sent, nil, "a=b") end
        function response(status, headers, body) seen = seen + (status == 405 and 1 or 1000000) end
        function done(summary, latency, requests)
            io.write("errors ", summary.errors.status == summary.requests and "all" or "some", "\n")
            for _, t in ipairs(threads) do
                print(t:get("id"), t:get("sent") - t:get("seen") <= 3)
            end
            print(latency.max >= latency:percentile(99), latency:percentile(100), requests.mean > 0)
        end
    "#;
    fs::write(&script, text).unwrap();
    let script = script.display().to_string();
    for words in [
        "-t2 -c4 -d1 --latency http://198.19.1.2/one".to_owned(),
        "-t1 -c2 -d1s http://198.19.1.2/gone?x=1#y".to_owned(),
        "-t1 -c2 -d1s https://198.19.1.2/ten".to_owned(),
        format!("-t2 -c4 -d1 -s {script} http://198.19.1.2/ -- a b"),
        "-t2 -c1 http://198.19.1.2/".to_owned(),
        "-d1 http://198.19.1.2:9/".to_owned(),
        "-t1 -c1 -d1 -s /none.lua http://198.19.1.2/one".to_owned(),
        "-h".to_owned(),
        "-c2 --help".to_owned(),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let theirs = system(
            "ip",
            &[&["netns", "exec", &node, "wrk"], &words[..]].concat(),
        );
        let mine = ours(&node, &[&["wrk"], &words[..]].concat());
        let text = |bytes: &[u8]| form(&String::from_utf8_lossy(bytes));
        assert_eq!(text(&mine.stdout), text(&theirs.stdout), "{words:?}");
        assert_eq!(text(&mine.stderr), text(&theirs.stderr), "{words:?}");
        assert_eq!(mine.status.code(), theirs.status.code(), "{words:?}");
    }
}
