//! Every output of every kind of run: JSON, live JSON, CSV, the plan and the same run again from it, criteria
//! that hold, fail, or are of another kind. Debug and test builds check themselves that reports match their
//! schema.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    http::Nginx,
    kit::{Lab, privileged, run, wirebench},
    netperf::{SERVER_V4, Server, ours},
    turns::Turn,
};

/// A kind of run, and what its criteria may be about.
#[derive(Default)]
struct Kind<'a> {
    /// The namespace to run in, if it is another one.
    node: &'a str,
    /// A command line that ends without a signal.
    line: &'a str,
    holds: &'a str,
    fails: &'a str,
    /// A criterion that it does not measure.
    refused: &'a str,
}

impl Kind<'_> {
    /// The exit code, standard output and standard error of a command line with more options.
    fn outcome(&self, line: &str, more: &[&str]) -> (Option<i32>, String, String) {
        let (own, theirs) = match line.split_once(" -- ") {
            Some((own, theirs)) => (own, Some(theirs)),
            None => (line, None),
        };
        let mut words: Vec<&str> = own.split_whitespace().collect();
        words.extend(more);
        if let Some(theirs) = theirs {
            words.push("--");
            words.extend(theirs.split_whitespace());
        }
        let output = match self.node {
            "" => run(&words),
            node => ours(node, &words),
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    fn json(&self, line: &str, more: &[&str], code: i32) -> Value {
        let (ended, text, error) = self.outcome(line, &[more, &["--json", "-q"]].concat());
        assert_eq!(ended, Some(code), "{line} {more:?}: {error}\n{text}");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{line}: {e}: {text}"))
    }

    fn check(&self) {
        let line = self.line;
        let folder = TempDir::new().unwrap();
        let page = folder.path().join("page.html");
        let more = ["--criteria", self.holds, "--report", page.to_str().unwrap()];
        let report = self.json(line, &more, 0);
        assert_eq!(report["verdict"], "pass", "{report}");
        crate::report::holds(&report, &page);
        let mut criteria = report["criteria"].as_array().unwrap().iter();
        assert!(criteria.any(|c| c["criterion"] == self.holds), "{report}");

        let report = self.json(line, &["--criteria", self.fails], 1);
        let reason = report["reason"].as_str().unwrap();
        // A capture reports the lost frames.
        let named = reason.contains(self.fails) || report["kind"] == "capture";
        assert!(named, "{reason}");

        let (code, _, error) = self.outcome(line, &["--criteria", self.refused]);
        assert_eq!(code, Some(2), "{line}: {error}");
        assert!(error.contains(self.refused), "{error}");

        let (code, lines, error) =
            self.outcome(line, &["--live-json", "--interval", "100ms", "-q"]);
        assert_eq!(code, Some(0), "{line}: {error}");
        let last = lines.lines().last().expect("a line");
        for text in lines.lines() {
            let _: Value = serde_json::from_str(text).unwrap();
        }
        // Socket tests end with the report.
        let ended = last.contains("\"done\"") || last.contains("wirebench.report/1");
        assert!(ended, "{last}");

        let (code, table, error) = self.outcome(line, &["--csv", "-q"]);
        assert_eq!(code, Some(0), "{line}: {error}");
        let rows: Vec<usize> = table.lines().map(|row| row.split(',').count()).collect();
        assert!(rows.len() >= 2, "{table}");
        assert!(rows.iter().all(|cells| *cells == rows[0]), "{table}");

        let (code, plan, error) = self.outcome(line, &["--print-plan"]);
        assert_eq!(code, Some(0), "{line}: {error}");
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("plan.toml");
        fs::write(&file, &plan).unwrap();
        let again = format!("run {}", file.display());
        let (_, same, _) = self.outcome(&again, &["--print-plan"]);
        assert_eq!(plan, same);
        self.json(&again, &["--criteria", self.holds], 0);
    }
}

#[test]
fn of_streams() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("frames.pcap");
    let sent = wirebench()
        .args(["tx", "--count", "200", "--rate", "1kpps", "-q", "-i"])
        .arg(format!("file:{}", file.display()))
        .status();
    assert!(sent.unwrap().success());
    for (line, refused) in [
        ("trial --tx memory:x --rx memory:x", "cps>=1"),
        ("tx -i memory:x", "loss<=0%"),
    ] {
        Kind {
            line: &format!("{line} --rate 1kpps --duration 300ms --catch-up 10s"),
            holds: "pps>=1",
            fails: "pps<=1",
            refused,
            ..Kind::default()
        }
        .check();
    }
    Kind {
        line: &format!("rx -i file:{}", file.display()),
        holds: "lost<=0",
        fails: "lost>=1",
        refused: "unsent<=0%",
        ..Kind::default()
    }
    .check();
}

#[test]
fn of_devices_and_loads() {
    // If the tester is late for half of a run, its criteria prove nothing.
    let _turn = Turn::alone();
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../examples/pktgen-devices.toml"
    );
    Kind {
        line: &format!("run {example} --duration 300ms"),
        holds: "pps>=1",
        fails: "pps<=1",
        refused: "cps>=1",
        ..Kind::default()
    }
    .check();
    Kind {
        line: "load --client memory:x --server memory:x --cps 100 --requests 1 --duration 500ms",
        holds: "cps>=1",
        fails: "client.cps<=1",
        refused: "reordered<=0%",
        ..Kind::default()
    }
    .check();
}

#[test]
fn of_captures_and_mixes() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    Kind {
        line: &format!("capture -i {} --count --ring 16 --duration 300ms", lab.b0()),
        holds: "lost<=0",
        fails: "lost>=1",
        refused: "p99<=1ms",
        ..Kind::default()
    }
    .check();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mix.toml");
    let folder = TempDir::new().unwrap();
    let plan = folder.path().join("mix.toml");
    let text = fs::read_to_string(example).unwrap();
    let text = text.replace("wb-pair-", &format!("wb-{}-", lab.name));
    fs::write(&plan, text).unwrap();
    Kind {
        line: &format!("run {} --duration 500ms --allow-unsent", plan.display()),
        holds: "clients.cps>=1",
        fails: "clients.cps<=1",
        refused: "stream.cps>=1",
        ..Kind::default()
    }
    .check();
}

#[test]
fn of_http() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let _nginx = Nginx::start(&lab.node("b"), "198.19.1.2");
    Kind {
        node: &lab.node("a"),
        line: "http -d 500ms -c 2 http://198.19.1.2/one",
        holds: "rps>=1",
        fails: "cps>=1000000",
        refused: "reordered<=0%",
    }
    .check();
}

#[test]
fn of_a_benchmark() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("balancer", &[]);
    Kind {
        line: &format!(
            "bench lb --lab {} --only cps --max 100 --trial 200ms --confirm 200ms --budget 10s",
            lab.name
        ),
        holds: "cps>=1",
        fails: "cps<=1",
        refused: "cc>=1",
        ..Kind::default()
    }
    .check();
}

#[test]
fn of_socket_tests() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let server = Server::start(&lab.node("b"), &[], &[]);
    for (test, holds, fails, refused) in [
        ("TCP_RR", "tps>=1", "tps<=1", "bps>=1"),
        ("TCP_STREAM", "bps>=1", "bps<=1", "loss<=0%"),
    ] {
        Kind {
            node: &lab.node("a"),
            line: &format!("netperf -- -H {SERVER_V4} -t {test} -l 1"),
            holds,
            fails,
            refused,
        }
        .check();
    }
    server.end();
}
