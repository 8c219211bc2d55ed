//! Answers that take longer than the interval, that arrive twice, or never: each request ends once, under
//! the right name, and no time is invented.

use serde_json::Value;

use crate::{
    kit::{Lab, eventually, privileged, system},
    load::{counter, job, job_total, load, words},
    turns::Turn,
};

/// The Ethernet address of an interface in a node.
pub(super) fn mac(node: &str, interface: &str) -> String {
    let said = system("ip", &["-n", node, "-j", "link", "show", interface]);
    let all: Value = serde_json::from_slice(&said.stdout).expect("ip speaks JSON");
    all[0]["address"].as_str().expect("an address").to_owned()
}

/// Counter of the device for both directions, once it is idle.
fn did(lab: &Lab, key: &str) -> u64 {
    let mut last = Value::Null;
    eventually("the device comes to rest", || {
        let now = lab.status()["device"].clone();
        let rest = now == last && now["a_to_b"]["inside"] == 0 && now["b_to_a"]["inside"] == 0;
        last = now;
        std::thread::sleep(std::time::Duration::from_millis(80));
        rest
    });
    ["a_to_b", "b_to_a"]
        .map(|way| last[way][key].as_u64().expect("a counter"))
        .iter()
        .sum()
}

pub(super) fn assert_requests_add_up(client: &Value) {
    let of = |key| job_total(client, key);
    assert_eq!(
        of("requests"),
        of("responses") + of("lost_requests") + of("in_flight_requests") + of("unawaited_requests"),
        "{client}"
    );
    assert_eq!(
        counter(client, "udp_rx"),
        of("responses")
            + of("late_responses")
            + of("duplicate_responses")
            + counter(client, "udp_unasked")
            + counter(client, "drop_datagram"),
        "{client}"
    );
}

#[test]
fn what_the_device_lost_is_lost_and_times_are_the_delay() {
    if !privileged() {
        return;
    }
    let turn = &Turn::alone();
    std::thread::scope(|scope| {
        for (driver, options) in [
            ("packet", "--every 1ms --cc 1"),
            ("packet", "--every 4ms --cc 1 --pipeline 4"),
            ("xdp", "--pps 1k"),
        ] {
            scope.spawn(move || lost_is_lost(turn, driver, options));
        }
    });
}

fn lost_is_lost(turn: &Turn, driver: &str, options: &str) {
    let lab = Lab::within(
        turn,
        "impair",
        &words("--all --both --delay 1500us --loss 1%"),
    );
    // No address is resolved, so nothing but the load is lost.
    let gateway = mac(&lab.node("b"), "b0");
    let line = format!(
        "--client {driver}:{} --server {driver}:{} --gateway-mac {gateway} --udp --duration 2s --response-timeout 3s {options}",
        lab.a0(),
        lab.b0()
    );
    let report = load(&words(&line), 0);
    let client = job(&report, "client");
    assert_requests_add_up(client);
    assert_eq!(
        job_total(client, "lost_requests"),
        did(&lab, "lost"),
        "{options}: {client}"
    );
    assert!(
        job_total(client, "lost_requests") > 0,
        "{options}: {client}"
    );
    assert_eq!(
        job_total(client, "late_responses"),
        0,
        "{options}: {client}"
    );
    let times = &client["request_ns"];
    assert_eq!(times["samples"], client["totals"]["responses"]);
    assert!(
        times["min"].as_i64().unwrap() >= 2_900_000,
        "{options}: {times} {} {}",
        report["clock"],
        report["warnings"]
    );
    assert_eq!(client["latency_is_estimate"], false);
}

#[test]
fn late_and_repeated_answers_have_their_own_names() {
    if !privileged() {
        return;
    }
    let lab = Lab::up(
        "impair",
        &words("--all --both --delay 200ms --duplicate 5%"),
    );
    // A busy machine adds seconds to the delay.
    for (timeout, answer, duration) in [("10ms", "echo", "4s"), ("10s", "bytes:40", "1s")] {
        let line = format!(
            "--client packet:{} --server packet:{} --udp --cc 5 --every 5ms --duration {duration} --response-timeout {timeout} --answer {answer}",
            lab.a0(),
            lab.b0()
        );
        // Without an answer in time nothing was established.
        let code = if timeout == "10ms" { 3 } else { 0 };
        let report = load(&words(&line), code);
        let client = job(&report, "client");
        assert_requests_add_up(client);
        let of = |key| job_total(client, key);
        assert!(of("duplicate_responses") > 0, "{client}");
        if timeout == "10ms" {
            assert_eq!(of("responses"), 0, "{client}");
            assert!(of("late_responses") > 0, "{client}");
        } else {
            assert_eq!(of("lost_requests"), 0, "{client}");
        }
    }
    // Without a number in the response, the report says that times are an estimate.
    let line = format!(
        "--client packet:{} --server packet:{} --udp --cc 5 --every 5ms --duration 500ms --request bytes:1",
        lab.a0(),
        lab.b0()
    );
    let report = load(&words(&line), 0);
    assert_requests_add_up(job(&report, "client"));
    assert_eq!(job(&report, "client")["latency_is_estimate"], true);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("are estimates"), "{warnings}");
}
