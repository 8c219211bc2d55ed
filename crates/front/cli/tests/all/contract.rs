//! Goldens of documents that programs read: the keys of JSON documents, and the plans that command lines print.
//!
//! Keys are a contract: a new line in `schema_of_*` is an addition, a line that disappears or changes breaks scripts.

use std::{
    collections::BTreeSet,
    process::{Command, Output},
};

use insta::assert_snapshot;
use serde_json::Value;
use wb_measure::{EncodedHistogram, NamedHistogram, Summary};

use crate::architecture::sources;

/// Root of the sources, with the examples.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

fn wirebench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args(words)
        .current_dir(ROOT)
        .output()
        .expect("the binary runs")
}

/// All key paths of a schema with their types and words: `load.jobs[].name string`.
struct Paths<'a> {
    root: &'a Value,
    /// Definitions that are being walked; a type may contain itself.
    within: Vec<&'a str>,
    found: BTreeSet<String>,
}

impl<'a> Paths<'a> {
    fn walk(&mut self, schema: &'a Value, at: &str) {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.strip_prefix("#/$defs/").expect("a definition");
            if self.within.contains(&name) {
                self.found.insert(format!("{at} (as above)"));
                return;
            }
            self.within.push(name);
            self.walk(&self.root["$defs"][name], at);
            self.within.pop();
        }
        let listed = schema["enum"].as_array().into_iter().flatten();
        for word in listed.chain(schema.get("const")) {
            self.found.insert(format!("{at} = {word}"));
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => Vec::from_iter(one.as_str()),
        };
        for kind in types.iter().filter(|_| !at.is_empty()) {
            self.found.insert(format!("{at} {kind}"));
        }
        for (key, below) in schema["properties"].as_object().into_iter().flatten() {
            let dot = if at.is_empty() { "" } else { "." };
            self.walk(below, &format!("{at}{dot}{key}"));
        }
        for (key, end) in [("items", "[]"), ("additionalProperties", ".*")] {
            if schema[key].is_object() {
                self.walk(&schema[key], &format!("{at}{end}"));
            }
        }
        for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            for one in schema[key].as_array().into_iter().flatten() {
                let end = if key == "prefixItems" { "[]" } else { "" };
                self.walk(one, &format!("{at}{end}"));
            }
        }
    }
}

fn schema_paths(document: &str) -> String {
    let output = wirebench(&["schema", document]);
    assert!(output.status.success(), "{document}: {output:?}");
    let root: Value = serde_json::from_slice(&output.stdout).expect("a schema is JSON");
    let mut paths = Paths {
        root: &root,
        within: Vec::new(),
        found: BTreeSet::new(),
    };
    paths.walk(&root, "");
    assert!(paths.found.len() > 5, "{document}: {:?}", paths.found);
    Vec::from_iter(paths.found).join("\n")
}

#[test]
fn schema_paths_are_only_added_to() {
    for document in [
        "plan",
        "report",
        "snapshot",
        "stat",
        "doctor",
        "labs",
        "runs",
        "linerate",
        "compare",
        "read",
        "capture-stats",
        "self-test",
        "demo",
        "pktgen-device",
        "pgrx",
    ] {
        assert_snapshot!(format!("schema_of_{document}"), schema_paths(document));
    }
}

/// `schema` knows each name of a document in the sources, `wirebench.NAME/1`.
#[test]
fn every_document_has_a_schema() {
    let mut names = BTreeSet::new();
    for (_, text) in sources() {
        for (start, _) in text.match_indices("\"wirebench.") {
            let rest = &text[start + "\"wirebench.".len()..];
            let word = rest.split('"').next().unwrap_or_default();
            if let Some((name, version)) = word.split_once('/')
                && !version.is_empty()
                && version.bytes().all(|b| b.is_ascii_digit())
            {
                names.insert(name.to_owned());
            }
        }
    }
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let output = wirebench(&["schema", &name]);
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

/// Returns the JSON output of a command. The exit code does not matter: `doctor` may find a problem.
fn json(words: &[&str]) -> Value {
    let output = wirebench(words);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}: {output:?}"))
}

#[test]
fn printed_documents_match_their_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let report = serde_json::to_string(&wb_model::Report {
        schema: wb_model::REPORT_SCHEMA.to_owned(),
        results: vec![wb_model::bench::SuiteResult::new(
            wb_model::bench::SuiteTest::Throughput,
            wb_model::bench::Quantity::Frames,
        )],
        ..wb_model::Report::default()
    });
    std::fs::write(&file, report.unwrap()).unwrap();
    let file = file.to_str().unwrap();
    let frames = folder.path().join("frames.pcap");
    let port = format!("file:{}", frames.display());
    let sent = wirebench(&["tx", "-i", &port, "--count", "3", "-q"]);
    assert!(sent.status.success(), "{sent:?}");
    let frames = frames.to_str().unwrap();
    for (document, words) in [
        ("doctor", &["doctor", "--json"][..]),
        ("doctor", &["doctor", "lo", "--json", "--describe"]),
        ("labs", &["lab", "ls", "--json"]),
        ("runs", &["ls", "--json"]),
        ("linerate", &["linerate", "10g", "--json"]),
        ("compare", &["bench", "compare", file, file, "--json"]),
        ("read", &["read", "--count", "--json", frames]),
        ("read", &["read", "--verify", "--json", frames]),
        ("read", &["read", "--info", "--json", frames]),
    ] {
        let printed = json(words);
        assert_eq!(printed["schema"], format!("wirebench.{document}/1"));
        let schema = json(&["schema", document]);
        let mismatch = wb_model::schema::mismatch_with(&schema, &printed);
        assert_eq!(mismatch, None, "{words:?}: {printed}");
        let required = schema["required"].as_array();
        assert!(
            schema.get("anyOf").is_some() || required.is_some_and(|r| r.contains(&"schema".into())),
            "{document}: {schema}"
        );
    }
}

/// A command line for each kind of plan and group of options. None needs root or an interface.
const LINES: &str = "
trial --tx eth2 --rx eth3
trial --tx eth2 --rx eth3 --rate 100kpps --duration 5s --criteria loss<=0.1%,p99<=500us
trial --tx wb-a/a0 --rx wb-b/b0 --bidir --size 64-1518 --rate 37% --ramp 1s
trial --tx xdp:eth2 --rx packet:eth3 --workers 2 --cpus 2-3 --flows 100 --vlan 100:5,200 --mpls 16,17
trial --tx eth2 --rx eth3 -6 --src 2001:2:0:1::2 --dst 2001:2:0:8001::2-2001:2:0:8001::9 --ext hop-by-hop --count 1000
trial --tx eth2 --rx eth3 --replay frames.pcap --speed 2 --duration 3s
trial --tx eth2 --rx eth3 --stream 'size=1518 rate=1kpps' --stream 'size=128 vlan=7'
trial --tx eth2 --rx eth3 --rate 10kpps --vary sport=inc:1000-2000 --vary dport=random:1-1023 --max-loss 0.001 --seed 9
tx -i eth2 --rate 1mpps --size imix --dst-mac 02:00:00:00:00:02
tx -i eth2 --burst 16 --gap 10ms --tag pktgen --proto tcp --tcp-flags 0x02
tx -i file:out.pcap --count 10 --rate 1kpps --payload 00ff
rx -i eth3
rx -i live:eth3 --flows 4 --duration 5s
load --client eth2 --server eth3 --cps 10k --duration 5s
load --client eth2 --udp --cc 1000 --every 100ms --duration 60s
load --server eth3 --servers 198.19.1.2 --answer http:1024
load --server eth3 --route '/a 200 1000 10ms close'
load --client eth2 --gateway 198.18.1.1 --clients 198.18.2.1-198.18.2.250 --servers 198.18.1.100 --cc 5k --profile 0s:0.1,5s:1
load --client eth2 --rps 20k --cc 100 --request http:/index.html --host web.lab --mss 536 --vlan 7 --order random
load examples/dperf/01-http-cps-client.conf --port 0000:1b:00.0=eth2
load examples/dperf/05-udp-client.conf --port 0000:1b:00.0=eth2 --port 0000:1b:00.1=eth3 --duration 3s
http http://198.18.1.2/
http -c 100 -t 2 --rate 20k -d 30s http://198.18.1.2/
http --stages 0:50k:30s,50k:50k:60s --criteria p99<=5ms,failed<=0 https://web.lab/
http --close -m POST -b id=1 -H X-A:b http://198.18.1.2/login
http --http2 --streams 10 --poisson --warm-up 2s --rate 100 https://web.lab/
http --port eth2 --source 198.18.1.2-198.18.1.99 -c 10k --gateway 198.18.1.1 http://198.19.1.2/
http http://198.18.1.2/a http://198.18.1.2/b --expect-status 200 --digest -n 100
http examples/http/mixed.toml
netperf -- -H 198.19.1.2 -t TCP_STREAM -l 5 -- -m 16K
netperf --streams 4 -- -H 198.19.1.2 -t TCP_RR -- -r 100,200
netserver
sweep -H 198.18.1.2 --test tcp_rr --request 1,64,1Ki --streams 1,2 --confidence 95,5
wrk -t2 -c10 -d5s http://198.18.1.2/
capture -i eth2 -w trace.pcapng -C 100 -W 10 udp port 9
capture -i eth2 -i eth3 -s 128 --duration 60s --count -Q in --criteria lost<=10
bench rfc2544 --tx eth2 --rx eth3 --fast
bench rfc2544 --tx eth2 --rx eth3 --conformance --sizes 64,1518 --tests throughput,latency --modifiers bursts
bench ndr --tx eth2 --rx eth3 --sizes 64,imix --goals ndr,pdr
bench loss --tx eth2 --rx eth3 --max 40kpps --step 5%
bench mfr --tx eth2 --rx eth3 --bidir
bench impact --tx eth2 --rx eth3 -6 --ext hop-by-hop --loads 1%,5%
bench latency --tx eth2 --rx eth3 --latency-load 50%,90% --n 5
bench b2b --tx eth2 --rx eth3 --sizes 64 --repetitions 50
bench recovery --tx eth2 --rx eth3
bench reset --tx eth2 --rx eth3 --trigger reboot --reset-kind software
bench y1564 --tx eth2 --rx eth3 --cir 20mbps-l2 --eir 10mbps-l2 --delay 10ms
bench y1564 examples/bench/services.toml --fast
bench rfc2544 examples/bench/rfc2544.toml --sizes 64
bench lb examples/bench/lb.toml --only cps,cc
run examples/mix.toml --rate 1kpps --duration 1s
run examples/mixed-streams.toml
run examples/pktgen-devices.toml
run examples/socket/client.toml
";

/// The words of a line; those in quotes are one.
fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(i, part)| match i % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        })
        .collect()
}

#[test]
fn plans_of_command_lines() {
    let mut all = String::new();
    for line in LINES.lines().filter(|line| !line.is_empty()) {
        let mut words = words(line);
        // Options of netperf follow `--`, those of wrk end with its URL.
        let place = match words[0] {
            "netperf" | "wrk" => 1,
            _ => words.len(),
        };
        words.insert(place, "--print-plan");
        let output = wirebench(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        let plan = String::from_utf8(output.stdout).expect("text");
        all += &format!("$ wirebench {line}\n{plan}\n");
    }
    assert_snapshot!(all);
}

#[test]
fn a_file_that_may_not_grow_ends_a_run_with_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.pcap");
    let line = format!(
        "ulimit -f 1; exec {} tx -i file:{} --rate max --count 1000",
        env!("CARGO_BIN_EXE_wirebench"),
        file.display()
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("File too large"), "{told}");
}

/// Without tags a duplicate looks like an original.
#[test]
fn untagged_frames_have_no_duplicates_and_no_order() {
    let report = |tag: &str| {
        let line = format!(
            "trial --tx memory:ut{tag} --rx memory:ut{tag} --tag {tag} --count 100 --rate 1kpps --json -q"
        );
        let words: Vec<&str> = line.split(' ').collect();
        let report: Value = serde_json::from_slice(&wirebench(&words).stdout).unwrap();
        report["totals"].clone()
    };
    let (tagged, untagged) = (report("wirebench"), report("none"));
    for totals in [&tagged, &untagged] {
        assert_eq!(totals["received_frames"], 100, "{totals}");
        assert_eq!(totals["lost_frames"], 0, "{totals}");
    }
    for key in ["duplicate_frames", "reordered_frames"] {
        assert_eq!(tagged[key], 0, "{key}");
        assert!(untagged[key].is_null(), "{key}: {}", untagged[key]);
    }
}

/// Full histograms give the statistics of the report again.
#[test]
fn histograms_hold_the_values_of_the_statistics() {
    let line =
        "trial --tx memory:hg --rx memory:hg --count 500 --rate 5kpps --allow-unsent --json -q";
    let report = |more: &str| -> Value {
        let line = format!("{line}{more}");
        let words: Vec<&str> = line.split(' ').collect();
        serde_json::from_slice(&wirebench(&words).stdout).unwrap()
    };
    assert!(report("").get("histograms").is_none());
    let report = report(" --histograms");
    let all: Vec<EncodedHistogram> = serde_json::from_value(report["histograms"].clone()).unwrap();
    for name in ["latency_ns", "ipdv_ns", "inter_arrival_ns"] {
        let own = all.iter().find(|own| own.of.is_empty() && own.name == name);
        let own = NamedHistogram::try_from(own.unwrap()).unwrap();
        let summary: Summary = serde_json::from_value(report[name].clone()).unwrap();
        // A number read from JSON may differ in its last digit.
        let whole = |summary: Summary| Summary {
            mean: summary.mean.map(f64::round),
            stddev: summary.stddev.map(f64::round),
            ..summary
        };
        assert_eq!(whole(own.values.summary()), whole(summary), "{name}");
    }
    let refused = wirebench(&[
        "bench",
        "ndr",
        "--tx",
        "memory:x",
        "--rx",
        "memory:x",
        "--json",
        "--histograms",
    ]);
    assert_eq!(refused.status.code(), Some(2));
}
