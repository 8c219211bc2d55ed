//! Recorded reports of every kind of run and of two mixes, in every form that is compared by text.
//!
//! `samples/NAME.json` is the report of a real run, with its timeline, distributions and flows cut down;
//! `samples/NAME.live.json` is one of its live lines. A new file needs no new test.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use insta::assert_snapshot;
use serde_json::Value;
use wb_counters::{
    device::Group,
    stat_document::{Cpu, Device, DocumentKind, InterfaceStat, Probe, SoftnetStat, StatDocument},
};
use wb_model::{Report, Snapshot};
use wb_render::{
    csv, json, live,
    metrics::{self, Seen},
    report::{Run, document, markdown},
    text::{self, Options},
};

/// A recorded run.
struct Sample {
    name: String,
    json: String,
    report: Report,
    live: Option<Snapshot>,
}

impl Sample {
    /// Metrics in the middle of the run, and after its end.
    fn metrics(&self) -> String {
        let ended = Seen {
            figures: self.report.timeline.clone(),
            snapshot: self.live.clone(),
            report: Some(self.report.clone()),
            ..Seen::default()
        };
        let mut running = Seen {
            report: None,
            ..ended.clone()
        };
        for column in &mut running.figures.columns {
            column.values.pop();
        }
        let [running, ended] = [running, ended].map(|seen| metrics::text("0.0.0", &seen));
        format!("=== running\n\n{running}\n=== ended\n\n{ended}")
    }

    fn markdown(&self, names: &[&str]) -> String {
        let run = |name: &&str| Run {
            name: (*name).to_owned(),
            report: self.report.clone(),
        };
        markdown(&document(&names.iter().map(run).collect::<Vec<_>>()))
    }
}

fn samples() -> Vec<Sample> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/samples");
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let file = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = file.strip_suffix(".json").filter(|n| !n.ends_with(".live")) else {
            continue;
        };
        let json = read(&path);
        let line = folder.join(format!("{name}.live.json"));
        found.push(Sample {
            name: name.to_owned(),
            report: serde_json::from_str(&json).unwrap_or_else(|e| panic!("{file}: {e}")),
            json,
            live: line
                .exists()
                .then(|| serde_json::from_str(&read(&line)).unwrap()),
        });
    }
    assert!(found.len() >= 15, "{}", found.len());
    found
}

/// The recorded reports as JSON.
pub(crate) fn documents() -> Vec<Value> {
    let all = samples().into_iter();
    all.map(|sample| serde_json::from_str(&sample.json).unwrap())
        .collect()
}

/// Runs all checks and fails at the end, so that one run shows every difference.
fn each(mut check: impl FnMut(&Sample)) {
    let mut failed = Vec::new();
    for sample in samples() {
        if catch_unwind(AssertUnwindSafe(|| check(&sample))).is_err() {
            failed.push(sample.name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn text_of_recorded_reports() {
    each(|sample| {
        let options = Options {
            verbose: true,
            ..Options::default()
        };
        let brief = text::report(&sample.report, &Options::default());
        let full = text::report(&sample.report, &options);
        let mut all = format!("{brief}\n=== verbose\n\n{full}");
        if let Some(line) = &sample.live {
            all += "\n=== live\n\n";
            for width in [140, 80, 40] {
                all += &format!("{}\n", live::line(line, width, true));
            }
        }
        assert_snapshot!(format!("{}_text", sample.name), all);
    });
}

#[test]
fn markdown_of_recorded_reports() {
    each(|sample| {
        let name = format!("{}_markdown", sample.name);
        assert_snapshot!(name, sample.markdown(&[&sample.name]));
    });
}

#[test]
fn csv_of_recorded_reports() {
    each(|sample| {
        assert_snapshot!(format!("{}_csv", sample.name), csv::report(&sample.report));
    });
}

#[test]
fn metrics_of_recorded_reports() {
    each(|sample| {
        assert_snapshot!(format!("{}_metrics", sample.name), sample.metrics());
    });
}

#[test]
fn recorded_reports_compared_with_themselves() {
    each(|sample| {
        let name = format!("{}_compared", sample.name);
        assert_snapshot!(name, sample.markdown(&["before", "after"]));
    });
}

/// Collects every key of `old` that is not in `new`.
fn gone(at: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old {
                match new.get(key) {
                    Some(other) => gone(&format!("{at}.{key}"), value, other, found),
                    // Keys without a value may be left out.
                    None if value.is_null() => {}
                    None => found.push(format!("{at}.{key}")),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (i, (old, new)) in old.iter().zip(new).enumerate() {
                gone(&format!("{at}[{i}]"), old, new, found);
            }
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
        _ if old == new => {}
        _ => found.push(format!("{at}: {old} became {new}")),
    }
}

#[test]
fn recorded_reports_keep_every_key_and_value() {
    each(|sample| {
        let old: Value = serde_json::from_str(&sample.json).unwrap();
        let new: Value = serde_json::from_str(&json::report(&sample.report)).unwrap();
        let mut found = Vec::new();
        gone("", &old, &new, &mut found);
        assert!(found.is_empty(), "{}: {found:#?}", sample.name);
    });
}

/// The keys that scripts read. `*` stands for any key, `[]` for each entry of a list.
const READ_BY_SCRIPTS: &str = "
    verdict reason warnings[] limited_by totals.offered_frames totals.received_frames totals.lost_frames
    totals.unsent_frames totals.duplicate_frames rates.offered_pps rates.received_pps latency_ns.p50 latency_ns.p99
    latency_ns.max jobs[].name ports[].driver ports[].chosen_because ports[].users ports[].timestamp_source
    workers[].queue criteria[].measured lateness.stalls timeline.at_ns[] timeline.columns[].values[]
    load.jobs[].name load.jobs[].end load.jobs[].totals.attempted_connections
    load.jobs[].totals.established_connections load.jobs[].totals.completed_connections
    load.jobs[].totals.failed_connections load.jobs[].frames.received_frames load.jobs[].phases[].cps
    load.jobs[].phases[].rps load.jobs[].counters.requests load.jobs[].counters.responses
    load.jobs[].counters.udp_lost load.jobs[].failures.* load.jobs[].request_ns.p99 load.jobs[].connect_ns.p99
    http.jobs[].requests_per_second http.jobs[].totals.completed http.jobs[].statuses.200 http.jobs[].statuses.404
    http.jobs[].latency_ns.p99 socket.jobs[].result.* capture.captured_frames capture.readers[] capture.ring_bytes
    capture.files probes[].name results[].limit results[].trials results[].trial_log[] results[].mlr results[].goal
    results[].throughput_fps";

fn holds(value: &Value, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return true;
    };
    let (key, list) = match first.strip_suffix("[]") {
        Some(key) => (key, true),
        None => (*first, false),
    };
    let below = |value: &Value| match value.as_array().filter(|_| list) {
        Some(items) => items.iter().any(|item| holds(item, rest)),
        None => !list && holds(value, rest),
    };
    let Some(object) = value.as_object() else {
        return false;
    };
    match key {
        "*" => object.values().any(below),
        key => object.get(key).is_some_and(below),
    }
}

#[test]
fn recorded_reports_have_the_keys_that_scripts_read() {
    let reports: Vec<Value> = samples()
        .iter()
        .map(|sample| serde_json::from_str(&json::report(&sample.report)).unwrap())
        .collect();
    let missing: Vec<&str> = READ_BY_SCRIPTS
        .split_whitespace()
        .filter(|path| {
            let path: Vec<&str> = path.split('.').collect();
            !reports.iter().any(|report| holds(report, &path))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn csv_headers() {
    let mut headers = BTreeMap::new();
    for sample in samples() {
        let csv = csv::report(&sample.report);
        let header = csv.lines().next().unwrap_or_default().to_owned();
        let of: &mut Vec<String> = headers.entry(header).or_default();
        of.push(sample.name);
    }
    let mut headers: Vec<_> = headers.into_iter().map(|(h, of)| (of, h)).collect();
    headers.sort();
    let mut text = String::new();
    for (of, header) in headers {
        let columns = header.replace(',', "\n  ");
        text += &format!("{}\n  {columns}\n", of.join(", "));
    }
    assert_snapshot!(text);
}

/// The totals of `stat` with each part once.
fn stat_line() -> StatDocument {
    let counted = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), 1)).collect();
    StatDocument {
        kind: DocumentKind::Average,
        seconds: 1.0,
        interfaces: vec![InterfaceStat {
            name: "eth0".to_owned(),
            counted: Some(counted(&["rx_packets", "rx_dropped", "tx_packets"])),
            ..InterfaceStat::default()
        }],
        softnet: SoftnetStat {
            cpus: vec![Cpu::default()],
            ..SoftnetStat::default()
        },
        devices: vec![Device {
            groups: [(Group::NoBuffer, counted(&["rx_drops"]))].into(),
            ..Device::default()
        }],
        probes: vec![Probe {
            counted: [("drops".to_owned(), Some(1))].into(),
            ..Probe::default()
        }],
        ..StatDocument::default()
    }
}

/// Names of metrics with their types, over all samples.
fn metric_names() -> BTreeSet<String> {
    let mut texts: Vec<String> = samples().iter().map(Sample::metrics).collect();
    texts.push(metrics::text(
        "0.0.0",
        &Seen {
            stat: Some(stat_line()),
            ..Seen::default()
        },
    ));
    texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn metric_names_and_types() {
    let names: Vec<String> = metric_names().into_iter().collect();
    assert_snapshot!(names.join("\n"));
}

/// All files below a folder.
fn files(at: &Path, found: &mut Vec<PathBuf>) {
    if at.is_dir() {
        for entry in fs::read_dir(at).unwrap() {
            files(&entry.unwrap().path(), found);
        }
    } else {
        found.push(at.to_owned());
    }
}

#[test]
fn metrics_that_docs_tests_and_the_dashboard_use_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut sources = Vec::new();
    for place in [
        "README.md",
        "docs",
        "examples/grafana",
        "crates/front/cli/tests",
    ] {
        files(&root.join(place), &mut sources);
    }
    let known: BTreeMap<String, String> = metric_names()
        .iter()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let exists = |used: &str| {
        let ends: &[(&str, &str)] = &[
            ("_total", "counter"),
            ("_info", "info"),
            ("_bucket", "histogram"),
            ("_sum", "histogram"),
            ("_count", "histogram"),
        ];
        let is = |name: &str, kind: &str| known.get(name).is_some_and(|k| k == kind);
        known
            .keys()
            .any(|name| used.ends_with('_') && name.starts_with(used))
            || known.contains_key(used)
            || ends
                .iter()
                .any(|(end, kind)| used.strip_suffix(end).is_some_and(|n| is(n, kind)))
    };
    let mut missing = BTreeSet::new();
    let mut used = BTreeSet::new();
    for source in sources {
        let Ok(text) = fs::read_to_string(&source) else {
            continue;
        };
        let words =
            text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        for word in words.filter(|w| w.starts_with("wirebench_")) {
            used.insert(word.to_owned());
            if !exists(word) {
                missing.insert(format!("{word} in {}", source.display()));
            }
        }
    }
    assert!(used.len() > 50, "{used:?}");
    assert!(missing.is_empty(), "{missing:#?}");
}
