//! Requests by datagram over a path that reorders and loses: each answer finds its request.

use crate::kit::{Lab, privileged};

use super::{SERVER_V4, Server, number, ours, report_of};

fn job(lab: &Lab, words: &str) -> serde_json::Value {
    let words: Vec<&str> = words.split_whitespace().collect();
    let report = report_of(&ours(&lab.node("a"), &words), 0);
    report["socket"]["jobs"][0].clone()
}

#[test]
fn answers_that_overtake_others_lose_none() {
    if !privileged() {
        return;
    }
    let lab = Lab::up(
        "impair",
        &["--hosts", "--both", "--delay", "300us", "--reorder", "5%"],
    );
    let server = Server::start(&lab.node("b"), &[], &[]);
    let job = job(
        &lab,
        &format!("netperf --json -- -H {SERVER_V4} -t UDP_RR -l -2000 -- -r 64 -b 8"),
    );
    assert_eq!(number(&job, "/result/transactions"), 2000, "{job}");
    let warnings = job["warnings"].to_string();
    assert!(!warnings.contains("timed out"), "{warnings}");
    assert!(job["failure"].is_null(), "{job}");
    drop(server);
}

#[test]
fn after_a_loss_the_times_are_still_those_of_their_requests() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &["--hosts", "--loss-every", "15"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    // A request is due every 50 ms, and the path takes no time to speak of.
    let job = job(
        &lab,
        &format!("netperf --json --rate 20 -- -H {SERVER_V4} -t UDP_RR -l 3"),
    );
    let p50 = number(&job, "/latency_ns/p50");
    assert!(p50 < 50_000_000, "{p50} ns: {job}");
    let sent = number(&job, "/local/send_calls");
    let answered = number(&job, "/result/transactions");
    assert!(sent > answered, "nothing was lost: {job}");
    drop(server);
}
