//! Information that a row of a sweep, and a text, must give in addition to the figure.

use serde_json::Value;

use crate::kit::{Lab, privileged};

use super::{SERVER_V4, Server, ours, report_of};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Code, standard output, standard error.
fn said(lab: &Lab, line: &str) -> (Option<i32>, String, String) {
    let output = ours(&lab.node("a"), &words(line));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_row_is_what_its_set_says() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    let sweep = format!("sweep -q -H {SERVER_V4} --duration 200ms");
    let had = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    let had = had.expect("there is one");
    let line = format!("{sweep} --json --congestion {},nosuch", had.trim());
    let report = report_of(&ours(&lab.node("a"), &words(&line)), 4);
    let jobs = report["socket"]["jobs"].as_array().expect("jobs");
    assert_eq!(jobs[0]["failure"], Value::Null, "{report}");
    let why = jobs[1]["failure"]["what"].as_str().expect("it failed");
    assert!(
        why.contains("congestion control nosuch is not available"),
        "{why}"
    );
    assert_ne!(report["verdict"], "pass", "{report}");

    // A set that would change nothing.
    for (line, word) in [
        ("--test tcp_rr --message 1Ki,2Ki", "--message"),
        ("--test tcp_stream --request 1,2", "--request"),
    ] {
        let (code, _, error) = said(&lab, &format!("{sweep} {line}"));
        assert_eq!(code, Some(2), "{line}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(word), "{error}");
    }

    let line = format!("{sweep} --confidence 99,0.001 --repeat 2-2 --message 1Ki,16Ki");
    let (code, text, error) = said(&lab, &line);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(text.matches("(target missed)").count(), 2, "{text}");
    drop(server);
}

#[test]
fn lost_datagrams_are_told_and_hold_nobody_up() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &["--hosts", "--both", "--loss-every", "10"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    let line =
        format!("sweep -q -H {SERVER_V4} --test udp_stream --message 100,200 --duration 300ms");
    let (code, text, error) = said(&lab, &line);
    assert_eq!(code, Some(0), "{error}");
    let head = text
        .lines()
        .find(|line| line.contains("UDP_STREAM") || line.contains("message"));
    assert!(text.contains(" lost"), "{head:?}: {text}");
    let rows: Vec<&str> = text.lines().filter(|l| l.contains("UDP_STREAM ")).collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert!(rows.iter().all(|row| row.ends_with('%')), "{text}");

    // One request at a time: each tenth datagram ends the test unless lost requests are given up.
    let line = format!("sweep -q --json -H {SERVER_V4} --test udp_rr --request 1,64 --duration 3s");
    let report = report_of(&ours(&lab.node("a"), &words(&line)), 0);
    for job in report["socket"]["jobs"].as_array().expect("jobs") {
        let warnings = job["warnings"].to_string();
        assert!(warnings.contains("timed out"), "{warnings}");
    }

    // Text mode names the failed criterion.
    let line = format!(
        "netperf --track --rate 1000 --criteria loss<=1% -- -H {SERVER_V4} -t UDP_STREAM -l 1 -- -m 100"
    );
    // A sender that was too slow for its rate proves nothing, and gets another try.
    let mut tries = 3;
    let (code, text, error) = loop {
        let said = said(&lab, &line);
        tries -= 1;
        if said.0 != Some(3) || tries == 0 {
            break said;
        }
    };
    assert_eq!(code, Some(1), "{text}{error}");
    assert!(error.contains("loss<=1%"), "{text}{error}");
    drop(server);
}
