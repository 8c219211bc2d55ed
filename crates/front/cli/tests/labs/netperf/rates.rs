//! Configured rates, contents of an interval, and the owner of the displayed retransmissions.

use serde_json::Value;

use crate::kit::{Lab, privileged, system};

use super::{SERVER_V4, Server, number, ours, real, report_of};

fn job(lab: &Lab, words: &str) -> Value {
    let words: Vec<&str> = words.split_whitespace().collect();
    let report = report_of(&ours(&lab.node("a"), &words), 0);
    report["socket"]["jobs"][0].clone()
}

#[test]
fn paces_intervals_and_links() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    // Without the fq discipline too.
    let paced = job(
        &lab,
        &format!("netperf --json --pacing 4m -- -H {SERVER_V4} -t UDP_STREAM -l 1 -- -m 500"),
    );
    let sent = real(&paced, "/result/sent_bps");
    assert!(sent > 0.0 && sent < 4.4e6, "{sent}: {paced}");
    // The remainder at the end has no separate row.
    let rows = job(
        &lab,
        &format!("netperf --json --interval 250ms -- -H {SERVER_V4} -l 1"),
    );
    let intervals = rows["intervals"].as_array().expect("a list");
    for interval in intervals {
        let length = real(interval, "/to_s") - real(interval, "/from_s");
        assert!(length > 0.1, "{interval}");
    }
    let units: u64 = intervals.iter().map(|i| number(i, "/units")).sum();
    assert_eq!(units, number(&rows, "/local/bytes_sent"), "{rows}");
    // A link-local address is useless without its interface.
    let node = lab.node("b");
    let shown = system(
        "ip",
        &["-n", &node, "-6", "-o", "addr", "show", "scope", "link"],
    );
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let address = shown.split_whitespace().find_map(|w| w.strip_suffix("/64"));
    let address = address.expect("it has a link-local address");
    let near = job(
        &lab,
        &format!("netperf --json -- -6 -H {address}%a0 -t TCP_CRR -l -20"),
    );
    assert_eq!(number(&near, "/result/transactions"), 20, "{near}");
    drop(server);
}

#[test]
fn a_stream_from_the_server_shows_what_the_server_sent_again() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &["--hosts", "--both", "--loss-every", "200"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    let job = job(
        &lab,
        &format!("netperf --json --streams 2 -- -H {SERVER_V4} -t TCP_MAERTS -l 1"),
    );
    let streams = job["streams"].as_array().expect("a list");
    let again: u64 = streams.iter().map(|s| number(s, "/retransmissions")).sum();
    assert_eq!(again, number(&job, "/remote/retransmissions"), "{job}");
    assert!(again > 0, "{job}");
    for stream in streams {
        let (sent, got) = (
            number(stream, "/remote_bytes_sent"),
            number(stream, "/bytes_received"),
        );
        assert_eq!(sent, got, "{stream}");
    }
    drop(server);
}
