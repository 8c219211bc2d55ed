//! The original netperf against netserver of wirebench, and netperf of wirebench against the original: command lines
//! and output.

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
};

use super::{SERVER_V4, SERVER_V6, Server, ours, wait_for_port, within};
use crate::kit::{Lab, Running, privileged};

/// The tests of netperf; in batches, so that two CPUs are enough for what a batch has to be answered in time.
const BATCHES: [&[&str]; 4] = [
    &["TCP_RR", "TCP_CRR", "TCP_CC"],
    &["TCP_STREAM", "TCP_MAERTS"],
    &["UDP_RR", "TCP_SENDFILE"],
    &["UDP_STREAM", "omni"],
];

/// Path of a program, in the folders of `PATH`.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    places.find(|place| place.exists())
}

/// Returns true if both programs of the original are installed, and prints a message otherwise.
pub(super) fn original() -> bool {
    let missing = ["netperf", "netserver"]
        .into_iter()
        .find(|p| found(p).is_none());
    if let Some(program) = missing {
        wb_skip::skipped(format_args!("{program} is not installed"));
    }
    missing.is_none()
}

/// The original netserver in a node. Its debug files go to a private /tmp. Without a socket as standard
/// input: as a child of inetd it would remove the file that it writes to, even the null device.
fn original_server(node: &str, words: &str) -> Running {
    let script = format!("mount -t tmpfs none /tmp && exec netserver -D {words}");
    let child = Command::new("ip")
        .args(["netns", "exec", node, "sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let running = Running(child);
    wait_for_port(node, 12865);
    running
}

fn said(output: &Output) -> (String, String) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Runs these command lines at once, of the original or of wirebench; returns the output of each, in their order. All
/// must succeed without any other message.
fn printed(node: &str, lines: &[String]) -> Vec<String> {
    thread::scope(|scope| {
        let running: Vec<_> = lines
            .iter()
            .map(|line| {
                scope.spawn(move || {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    let output = match words[0] {
                        "wirebench" => ours(node, &words[1..]),
                        program => within(node, program, &words[1..])
                            .output()
                            .expect("it runs"),
                    };
                    let (text, error) = said(&output);
                    assert_eq!(output.status.code(), Some(0), "{line}: {error}\n{text}");
                    assert_eq!(error, "", "{line}");
                    text
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("it ended well"))
            .collect()
    })
}

/// Runs the same command lines with the original and with wirebench at once; returns both outputs.
///
/// If the original gets no processor at its end, it reports that its timer fired again, and some lines twice: such a
/// text is no reference, and it gets three attempts.
fn both(node: &str, lines: &[String]) -> Vec<(String, String)> {
    let mut all: Vec<String> = lines.iter().map(|l| format!("netperf {l}")).collect();
    all.extend(
        lines
            .iter()
            .map(|l| format!("wirebench netperf --strict -- {l}")),
    );
    let mut texts = printed(node, &all);
    let ours = texts.split_off(lines.len());
    for (text, line) in texts.iter_mut().zip(&all) {
        for _ in 0..2 {
            if text.contains("catcher: timer popped") {
                *text = printed(node, std::slice::from_ref(line)).remove(0);
            }
        }
    }
    texts.into_iter().zip(ours).collect()
}

/// Numbers of the rows of a table after its headers, line by line.
fn rows(text: &str) -> Vec<Vec<f64>> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        let words = line.split_whitespace();
        let row: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        (!row.is_empty()).then_some(row)
    };
    text.lines().filter_map(numbers).collect()
}

/// Number of columns in each row of a test's table, and the column of the result in the first row.
fn table(test: &str, with_cpu: bool) -> (Vec<usize>, usize) {
    match (test, with_cpu) {
        ("TCP_STREAM" | "TCP_MAERTS" | "TCP_SENDFILE", false) => (vec![5], 4),
        ("TCP_STREAM" | "TCP_MAERTS" | "TCP_SENDFILE", true) => (vec![9], 4),
        ("UDP_STREAM", false) => (vec![6, 4], 5),
        ("UDP_STREAM", true) => (vec![8, 6], 5),
        ("TCP_RR" | "UDP_RR" | "TCP_CRR" | "TCP_CC", false) => (vec![6, 2], 5),
        ("TCP_RR" | "UDP_RR" | "TCP_CRR" | "TCP_CC", true) => (vec![10, 2], 5),
        _ => panic!("{test}"),
    }
}

/// A table has the rows that it should, and a result above nothing.
fn assert_table(line: &str, text: &str) {
    let test = line
        .split_whitespace()
        .skip_while(|w| *w != "-t")
        .nth(1)
        .expect("-t");
    if test == "omni" {
        let row = text.lines().last().expect("a row");
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[5], "10^6bits/s", "{line}: {text}");
        assert!(
            words[4].parse::<f64>().is_ok_and(|n| n > 0.0),
            "{line}: {text}"
        );
        return;
    }
    let (columns, result) = table(test, line.contains("-c -C"));
    let rows = rows(text);
    let got: Vec<usize> = rows.iter().map(Vec::len).collect();
    assert_eq!(got, columns, "{line}: {text}");
    assert!(rows[0][result] > 0.0, "{line}: {text}");
    if columns.len() == 2 && test == "UDP_STREAM" {
        // No more arrived than was sent.
        assert!(rows[1][2] <= rows[0][3], "{line}: {text}");
    }
}

#[test]
fn the_original_at_our_server() {
    if !privileged() || !original() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &[]);
    let mut tests = 0;
    for batch in BATCHES {
        // Each test once by each family, and once with the CPUs measured.
        let lines: Vec<String> = batch
            .iter()
            .flat_map(|t| {
                let cpu = if *t == "omni" { "" } else { "-c -C" };
                [
                    format!("netperf -H {SERVER_V4} -t {t} -l 1"),
                    format!("netperf -H {SERVER_V6} -t {t} -l 1 {cpu}"),
                ]
            })
            .collect();
        for (line, text) in lines.iter().zip(printed(&a, &lines)) {
            assert_table(line, &text);
        }
        tests += lines.len();
    }
    // Keys, whichever are asked for.
    let keys = "THROUGHPUT,THROUGHPUT_UNITS,ELAPSED_TIME,PROTOCOL,DIRECTION,LOCAL_SEND_CALLS,REMOTE_RECV_CALLS,\
                REMOTE_BYTES_RECVD,LOCAL_BYTES_SENT,RSR_SIZE_END,REMOTE_CONG_CONTROL,P99_LATENCY";
    let lines = [
        format!("netperf -H {SERVER_V4} -l 1 -- -k {keys}"),
        format!("netperf -H {SERVER_V4} -l -100 -t TCP_RR -- -r 100,200 -k {keys}"),
    ];
    let texts = printed(&a, &lines);
    for (line, text) in lines.iter().zip(&texts) {
        let value = |key: &str| {
            let found = text
                .lines()
                .find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("{line}: no {key} in {text}"))
        };
        assert!(
            value("THROUGHPUT").parse::<f64>().is_ok_and(|n| n > 0.0),
            "{text}"
        );
        // A send that was cut off at the end counts as received, but not as sent by the original.
        let bytes = |key: &str| value(key).parse::<u64>().expect("a number");
        let (sent, got) = (bytes("LOCAL_BYTES_SENT"), bytes("REMOTE_BYTES_RECVD"));
        assert!(sent > 0 && got >= sent, "{text}");
        assert_ne!(value("REMOTE_CONG_CONTROL"), "", "{text}");
    }
    assert!(
        texts[1].contains("\nLOCAL_BYTES_SENT=10000\n"),
        "{}",
        texts[1]
    );
    assert!(
        texts[1].contains("\nREMOTE_BYTES_RECVD=10000\n"),
        "{}",
        texts[1]
    );
    tests += 2;
    let did = server.end();
    assert_eq!(did["completed"], tests, "{did}");
    assert_eq!(did["failed"], 0, "{did}");
    assert_eq!(did["given_up"], 0, "{did}");
}

#[test]
fn the_passphrase_of_the_original() {
    if !privileged() || !original() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let server = Server::start(&b, &[], &["-Z", "s3cret"]);
    for (words, good) in [("-Z s3cret", true), ("-Z other", false), ("", false)] {
        let line = format!("-H {SERVER_V4} -t TCP_RR -l -10 {words}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = within(&a, "netperf", &words).output().expect("it runs");
        let (text, error) = said(&output);
        assert_eq!(output.status.success(), good, "{line}: {error}\n{text}");
    }
    let did = server.end();
    assert_eq!(
        (&did["unauthorised"], &did["completed"]),
        (&2.into(), &1.into()),
        "{did}"
    );
    // And the other way round.
    let theirs = original_server(&b, "-Z s3cret");
    for (words, good) in [("-Z s3cret", true), ("-Z other", false)] {
        let line = format!("netperf -H {SERVER_V4} -t TCP_RR -l -10 {words}");
        let output = ours(&a, &line.split_whitespace().collect::<Vec<_>>());
        let (text, error) = said(&output);
        assert_eq!(output.status.success(), good, "{line}: {error}\n{text}");
    }
    drop(theirs);
}

/// A line without its numbers: the separators may depend on their lengths.
fn shape(line: &str) -> Vec<String> {
    line.split_whitespace()
        .map(|word| match word.parse::<f64>() {
            Ok(_) => "#".to_owned(),
            Err(_) => word.to_owned(),
        })
        .collect()
}

#[test]
fn our_text_is_the_originals() {
    if !privileged() || !original() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let theirs = original_server(&b, "");
    for batch in BATCHES {
        let lines: Vec<String> = batch
            .iter()
            .enumerate()
            .map(|(i, t)| {
                let host = if i % 2 == 0 { SERVER_V4 } else { SERVER_V6 };
                let more = match *t {
                    "TCP_RR" => "-c -C -- -r 10,20 -D",
                    "TCP_STREAM" => "-v 2",
                    "TCP_MAERTS" => "-f K",
                    "UDP_STREAM" => "-c -C -- -m 1000",
                    "TCP_CRR" => "-v 2 -- -r 5,6",
                    "TCP_SENDFILE" => "-c -C",
                    "omni" => "-c -C -D 10 -- -d recv",
                    _ => "",
                };
                format!("-H {host} -t {t} -l 1 {more}")
            })
            .collect();
        for (line, (want, got)) in lines.iter().zip(both(&a, &lines)) {
            let ends = |text: &str| text.ends_with('\n');
            assert_eq!(ends(&got), ends(&want), "{line}");
            let (got, want): (Vec<&str>, Vec<&str>) =
                (got.lines().collect(), want.lines().collect());
            assert_eq!(got.len(), want.len(), "{line}:\n{got:#?}\n{want:#?}");
            for (got, want) in got.iter().zip(&want) {
                // Rows differ only by their numbers, not even by a blank; omni makes its columns
                // as wide as the numbers are.
                let row = want.starts_with(|c: char| c == ' ' || c.is_ascii_digit());
                let banner = want.contains(" TEST from ");
                match row || want.starts_with("Interim") || line.contains("omni") && !banner {
                    true => assert_eq!(shape(got), shape(want), "{line}"),
                    false => assert_eq!(got, want, "{line}"),
                }
            }
        }
    }
    let lines = [
        format!(
            "-H {SERVER_V4} -l 1 -- -o THROUGHPUT,DIRECTION,REMOTE_SEND_CALLS,LOCAL_CONG_CONTROL"
        ),
        format!(
            "-H {SERVER_V4} -t TCP_RR -l 1 -B tag -P 0 -- -k THROUGHPUT,RESULT_BRAND,OUTPUT_NONE,DIRECTION,RT_LATENCY"
        ),
        format!("-H {SERVER_V6} -t UDP_RR -l 1 -P 0 -v 0"),
    ];
    for (line, (want, got)) in lines.iter().zip(both(&a, &lines)) {
        let values = |text: &str| {
            text.lines()
                .flat_map(|l| l.split([',', '=']).map(shape).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        assert_eq!(values(&got), values(&want), "{line}:\n{got}\n{want}");
    }
    drop(theirs);
}
