//! Figures of an interval for each stream and each direction, and that they add up to the totals.

use serde_json::Value;

use crate::kit::{Lab, privileged};

use super::{Server, job_with, number, real};

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Figures of the streams of that name in each interval.
fn of_stream<'a>(job: &'a Value, name: &str) -> Vec<&'a Value> {
    let streams = list(job, "intervals")
        .iter()
        .flat_map(|i| list(i, "streams"));
    streams.filter(|stream| stream["name"] == name).collect()
}

fn sum(streams: &[&Value], key: &str) -> i64 {
    let told = streams.iter().filter_map(|stream| stream[key].as_i64());
    told.sum()
}

#[test]
fn datagrams_are_lost_in_the_interval_that_misses_them() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("impair", &["--hosts", "--both", "--loss-every", "20"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    let words = "-t UDP_STREAM -l 2 -- -m 200,200";
    let options = ["--track", "--interval", "400ms"];
    // 1875 a second.
    let paced = ["--reverse", "--pacing", ",3m"];
    let down = job_with(&lab, &[&options[..], &paced].concat(), words);
    let rows = of_stream(&down, "down 1");
    assert!(rows.len() >= 4, "{down}");
    for row in &rows {
        assert_eq!(row["direction"], "down", "{row}");
        let (came, lost) = (number(row, "/datagrams"), row["lost"].as_i64());
        if came == 0 {
            // The wait for the mark of the end. Losses at that time are unknown.
            assert_eq!(lost, None, "{row}");
            continue;
        }
        // One of 20: 37 of 750.
        let lost = lost.unwrap_or_else(|| panic!("nothing lost in {row}"));
        let share = lost as f64 / (lost as f64 + came as f64);
        assert!((0.03..0.07).contains(&share), "{share}: {row}");
        assert!(real(row, "/jitter_rfc3550_ns") > 0.0, "{row}");
        assert_eq!(row["retransmissions"], Value::Null, "{row}");
    }
    let all = number(&down, "/datagrams/lost").cast_signed();
    let lost = sum(&rows, "lost");
    // The last datagram may be one of those that are lost.
    assert!((all - 1..=all).contains(&lost), "{lost} of {all}: {down}");
    assert_eq!(
        sum(&rows, "datagrams"),
        number(&down, "/datagrams/received").cast_signed()
    );

    // The server counts these, and reports when the test is over.
    let up = job_with(&lab, &[&options[..], &["--rate", "2000"]].concat(), words);
    assert!(number(&up, "/datagrams/lost") > 0, "{up}");
    let rows = of_stream(&up, "up 1");
    for row in &rows {
        assert_eq!(row["direction"], "up", "{row}");
        assert_eq!(row["lost"], Value::Null, "{row}");
        assert_eq!(row["jitter_rfc3550_ns"], Value::Null, "{row}");
    }
    assert_eq!(
        sum(&rows, "datagrams"),
        number(&up, "/datagrams/sent").cast_signed()
    );
    drop(server);
}

#[test]
fn each_stream_and_each_way_by_itself() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &["--hosts", "--both", "--loss-every", "500"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    // A lost SYN is retransmitted after a second.
    let job = job_with(
        &lab,
        &["--bidir", "--streams", "2", "--interval", "250ms"],
        "-l 2",
    );
    let names: Vec<&Value> = list(&job, "streams").iter().map(|s| &s["name"]).collect();
    for interval in list(&job, "intervals") {
        let streams = list(interval, "streams");
        let of_interval: Vec<&Value> = streams.iter().map(|s| &s["name"]).collect();
        assert_eq!(of_interval, names, "{interval}");
        for way in ["up", "down"] {
            let chosen = streams.iter().filter(|s| s["direction"] == way);
            let sum: f64 = chosen.map(|s| real(s, "/throughput_bps")).sum();
            let told = real(interval, &format!("/{way}_bps"));
            assert!((sum - told).abs() <= told * 1e-9, "{way}: {interval}");
        }
        let both = real(interval, "/up_bps") + real(interval, "/down_bps");
        let told = real(interval, "/throughput_bps");
        assert!((both - told).abs() <= told * 1e-9, "{interval}");
    }
    let mut down = 0;
    for stream in list(&job, "streams") {
        let name = stream["name"].as_str().expect("a name");
        let rows = of_stream(&job, name);
        let counted = number(stream, "/bytes_sent") + number(stream, "/bytes_received");
        let units = sum(&rows, "units");
        let ours = name.starts_with("up");
        // Data that arrives while the connection is closed is in no interval.
        let all = counted.cast_signed();
        assert!(units == all || !ours && units < all, "{name}: {job}");
        down += if ours { 0 } else { units };
        for row in &rows {
            assert_eq!(row["cwnd"].is_u64(), ours, "{row}");
            assert_eq!(row["retransmissions"].is_u64(), ours, "{row}");
            assert_eq!(row["lost"], Value::Null, "{row}");
        }
        if ours {
            // Some may be sent again while the connection is taken down.
            let again = number(stream, "/retransmissions").cast_signed();
            let told = sum(&rows, "retransmissions");
            assert!(told > 0 && told <= again, "{told} of {again}: {job}");
        }
    }
    // A single stream may wait for its own losses until the test is over.
    assert!(down > 0, "{job}");
    drop(server);
}

#[test]
fn what_is_omitted_and_what_counts_are_all() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    for (ours, theirs) in [
        (vec!["--streams", "2"], "-l 1"),
        (vec!["--reverse"], "-l 1"),
        (vec![], "-l 1 -t TCP_RR"),
    ] {
        let mut options = vec!["--omit", "500ms", "--interval", "100ms"];
        options.extend(ours);
        let job = job_with(&lab, &options, theirs);
        let transactions = theirs.contains("RR");
        let units = list(&job, "intervals").iter().map(|i| number(i, "/units"));
        let units: u64 = units.sum();
        let bytes = |end: &str| {
            let sent = number(&job, &format!("/{end}/bytes_sent"));
            sent + number(&job, &format!("/{end}/bytes_received"))
        };
        let left_out = number(&job, "/local/omitted/bytes");
        // A request and its answer have one byte each.
        let counted = if transactions { 2 * units } else { units };
        assert!(left_out > 0 && counted > 0, "{job}");
        // The rest is moved between the last reading and the stop of the stream, and data of the server that arrives
        // while the connection is closed.
        let rest = bytes("local") - left_out - counted;
        let reverse = options.contains(&"--reverse");
        let is_small = rest <= if transactions { counted / 100 } else { 0 };
        assert!(is_small || reverse, "{rest}: {job}");
        // The server's clock is its own, so the shares are only alike.
        let there = number(&job, "/remote/omitted/bytes") as f64 / bytes("remote") as f64;
        let here = left_out as f64 / bytes("local") as f64;
        assert!((here - there).abs() < 0.2, "{here} {there}: {job}");
        let of_streams: u64 = list(&job, "streams")
            .iter()
            .map(|stream| number(stream, "/omitted/bytes"))
            .sum();
        assert_eq!(of_streams, left_out, "{job}");
        assert!(number(&job, "/local/omitted/calls") > 0, "{job}");
        assert_eq!(job["remote"]["omitted"]["calls"], Value::Null, "{job}");
        if transactions {
            let left_out = number(&job, "/local/omitted/transactions");
            assert_eq!(2 * left_out, number(&job, "/local/omitted/bytes"), "{job}");
        }
    }
    let whole = job_with(&lab, &[], "-l 1");
    assert_eq!(whole["local"]["omitted"], Value::Null, "{whole}");
    drop(server);
}
