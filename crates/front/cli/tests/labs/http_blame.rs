//! Limits reported by HTTP loads: a stopped tester, a machine without free ports, a missing server.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    http::Nginx,
    http_servers::{Way, total, whole_frames},
    kit::{Lab, Running, eventually, privileged},
    load_interop::inside,
    netperf::ours,
};

/// Stops a run that is under way for a while.
fn stop_for(running: &Running, time: Duration) {
    running.signal(Signal::STOP);
    std::thread::sleep(time);
    running.signal(Signal::CONT);
}

fn lateness(report: &Value, key: &str) -> u64 {
    report["lateness"][key].as_u64().unwrap_or(0)
}

#[test]
fn a_stop_across_the_end_adds_no_request() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let node = lab.node("b");
    let nginx = Nginx::start(&node, "198.19.1.2");
    // All of the 300 requests may be in flight on the connection.
    for target in [
        "--pipeline 400 http://198.19.1.2/one",
        "--http2 --streams 100 http://198.19.1.2:81/one",
    ] {
        let words = format!("--allow-unsent -d 600ms --rate 500 -c 1 {target}");
        let way = Way::Sockets(lab.node("a"));
        let before = nginx.noted();
        let running = way.start(&words);
        eventually("it answers", || nginx.logged() > before + 20);
        stop_for(&running, Duration::from_millis(1000));
        let report = way.finish(running, &words, 0);
        let job = &report["http"]["jobs"][0];
        let (sent, unsent) = (total(job, "sent"), total(job, "unsent"));
        assert_eq!(sent + unsent, 300, "{words}: {sent} sent, {unsent} unsent");
    }
}

#[test]
fn no_answer_times_out_because_the_tester_was_away() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let node = lab.node("b");
    whole_frames(&node);
    let nginx = Nginx::start(&node, "198.19.1.2");
    let [sockets, port] = Way::both(&lab);
    // More than are read in one turn.
    for (way, words) in [
        (&sockets, "-c 500 http://198.19.1.2/one"),
        (&sockets, "-c 200 --close http://198.19.1.2/one"),
        (&sockets, "-c 100 https://198.19.1.2/one"),
        (
            &sockets,
            "-c 50 --http2 --streams 10 http://198.19.1.2:81/one",
        ),
        // With their retransmissions, the responses to 500 requests may not fit the receive ring.
        (&port, "-c 250 http://198.19.1.2/one"),
    ] {
        let words = format!("-d 7s --timeout 2s --criteria failed<=0 {words}");
        let before = nginx.noted();
        let running = way.start(&words);
        eventually("it answers", || nginx.logged() > before + 1000);
        stop_for(&running, Duration::from_millis(2500));
        let report = way.finish(running, &words, 0);
        let job = &report["http"]["jobs"][0];
        assert_eq!(total(job, "failed"), 0, "{words}: {job}");
        assert!(lateness(&report, "exposed_connections") > 0, "{words}");
    }
}

#[test]
fn what_is_unsent_because_the_tester_was_away_is_nobody_elses() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let node = lab.node("b");
    whole_frames(&node);
    let nginx = Nginx::start(&node, "198.19.1.2");
    for way in Way::both(&lab) {
        let words =
            "-d 3s -c 10 --rate 500 --patience 100ms --criteria failed<=0 http://198.19.1.2/one";
        let before = nginx.noted();
        let running = way.start(words);
        eventually("it answers", || nginx.logged() > before + 100);
        stop_for(&running, Duration::from_secs(1));
        let report = way.finish(running, words, 3);
        let said = ["limited_by", "reason"].map(|key| report[key].as_str().unwrap());
        assert!(said[0].starts_with("the tester: stalled for"), "{said:?}");
        assert!(said[1].contains("the tester was late"), "{said:?}");
        let unsent = total(&report["http"]["jobs"][0], "unsent");
        assert!(unsent > 300, "{way:?}: {unsent}");
        assert!(lateness(&report, "missed_departures") > 300, "{way:?}");
    }
}

#[test]
fn connections_are_open_until_nothing_more_is_asked() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let node = lab.node("b");
    let _nginx = Nginx::start(&node, "198.19.1.2");
    for way in Way::both(&lab) {
        for (limit, code) in [(7, 0), (8, 1)] {
            let words =
                format!("-d 2s -c 7 --rate 500 --criteria open>={limit} http://198.19.1.2/one");
            let report = way.report(&words, code);
            assert_eq!(report["criteria"][0]["measured"], 7.0, "{way:?}");
        }
    }
}

#[test]
fn a_server_that_went_away_is_no_lack_of_connections() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let node = lab.node("b");
    for way in Way::both(&lab) {
        let nginx = Nginx::start(&node, "198.19.1.2");
        let words = "-d 3s -c 4 --rate 500 http://198.19.1.2/one";
        let running = way.start(words);
        eventually("it answers", || nginx.logged() > 100);
        drop(nginx);
        // Nearly all of its load was not offered.
        let report = way.finish(running, words, 3);
        let limit = report["limited_by"].as_str().unwrap();
        assert!(
            limit.starts_with("the server: some connections failed"),
            "{way:?}: {limit}"
        );
    }
}

#[test]
fn a_machine_without_ports_is_no_slow_server() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let _nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    let node = lab.node("a");
    let ports = "net.ipv4.ip_local_port_range=40000 40049";
    inside(&node, &["sysctl", "-qw", ports]);
    // The end that closes a connection first keeps its port for a minute.
    for words in ["-n 500", "-d 1s", "-d 1s --rate 1000"] {
        let words =
            format!("{words} -c 4 --per-connection 2 --timeout 200ms http://198.19.1.2/one");
        let way = Way::Sockets(node.clone());
        // Most was not offered, and behind the first run nothing.
        let report = way.finish(way.start(&words), &words, 3);
        let job = &report["http"]["jobs"][0];
        let exhausted = job["totals"]["refused_connections"]["exhausted"].as_u64();
        assert!(exhausted > Some(0), "{words}: {job}");
        let limit = report["limited_by"].as_str().unwrap();
        assert!(
            limit.starts_with("the tester: no local port"),
            "{words}: {limit}"
        );
    }
}

#[test]
fn a_machine_without_a_route_is_no_server_out_of_reach() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    for words in ["", "--rate 500"] {
        let nginx = Nginx::start(&b, "198.19.1.2");
        let before = nginx.noted();
        let words = format!("-d 3s -c 4 --timeout 200ms {words} http://198.19.1.2/one");
        let way = Way::Sockets(a.clone());
        let running = way.start(&words);
        eventually("it answers", || nginx.logged() > before + 100);
        inside(&a, &["ip", "link", "set", "a0", "down"]);
        // Most of a rate was not offered.
        let code = if words.contains("--rate") { 3 } else { 0 };
        let report = way.finish(running, &words, code);
        inside(&a, &["ip", "link", "set", "a0", "up"]);
        let limit = report["limited_by"].as_str().unwrap();
        assert!(
            limit.starts_with("the tester: no route"),
            "{words}: {limit}"
        );
    }
}

#[test]
fn a_count_ends_where_nobody_can_be_reached() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let closed = "http://198.19.1.2:9/";
    for way in Way::both(&lab) {
        for words in ["", "--rate 100"] {
            let words = format!("-n 10 -c 3 --timeout 200ms {words} {closed}");
            let report = way.report(&words, 3);
            let job = &report["http"]["jobs"][0];
            let told = ["sent", "unsent", "established_connections"].map(|key| total(job, key));
            assert_eq!(told, [0, 10, 0], "{way:?} {words}: {job}");
        }
    }
}

#[test]
fn syns_that_were_sent_again_are_counted() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let node = lab.node("b");
    let _nginx = Nginx::start(&node, "198.19.1.2");
    let rules = "add table ip t; add counter ip t lost; add counter ip t syns; \
        add chain ip t in { type filter hook input priority 0; }; \
        add rule ip t in tcp flags & (syn|ack) == syn counter name syns; \
        add rule ip t in tcp flags & (syn|ack) == syn numgen inc mod 4 == 0 counter name lost drop";
    inside(&node, &["nft", rules]);
    let words = "http -q --json --close -n 20 -c 4 --timeout 60s http://198.19.1.2/one";
    let words: Vec<&str> = words.split_whitespace().collect();
    let output = ours(&lab.node("a"), &words);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let repeated = report["http"]["repeated_syns"].as_u64().unwrap();
    let counted = |name| {
        let counter = inside(&node, &["nft", "list", "counter", "ip", "t", name]);
        let packets = counter.split_once("packets ").unwrap().1;
        let packets = packets.split_whitespace().next().unwrap();
        packets.parse::<u64>().unwrap()
    };
    // The client also repeats a SYN if the answer takes a second, as on a busy machine.
    let attempted = total(&report["http"]["jobs"][0], "attempted_connections");
    eventually("all SYNs have arrived", || {
        counted("syns") >= attempted + repeated
    });
    assert_eq!(counted("syns"), attempted + repeated);
    let lost = counted("lost");
    assert!(lost > 0 && repeated >= lost, "{repeated} of {lost}");
    let warned = report["warnings"].as_array().unwrap().iter();
    let warned = warned.filter(|w| {
        w.as_str()
            .unwrap()
            .starts_with(&format!("{repeated} SYN retransmits"))
    });
    assert_eq!(warned.count(), 1, "{}", report["warnings"]);
}
