//! Help, line rates and meta commands are interface: a change shows here.

use std::process::Command;

use serde_json::Value;

fn wirebench(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args(arguments)
        .output()
        .expect("the binary runs");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Every command that does something, with its subcommands.
fn commands(above: &[String], found: &mut Vec<Vec<String>>) {
    let words: Vec<&str> = above.iter().map(String::as_str).chain(["--help"]).collect();
    let help = wirebench(&words);
    let list = help.split_once("\nCommands:\n").map(|(_, list)| list);
    let Some(list) = list else {
        found.push(above.to_vec());
        return;
    };
    for line in list.lines().take_while(|l| !l.is_empty()) {
        let name = line.strip_prefix("  ").filter(|l| !l.starts_with(' '));
        let name = name.and_then(|l| l.split(' ').next());
        if let Some(name) = name.filter(|n| *n != "help") {
            commands(&[above, &[name.to_owned()]].concat(), found);
        }
    }
}

#[test]
fn all_examples_name_files_that_are_there() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    let mut all = Vec::new();
    commands(&[], &mut all);
    assert!(all.len() > 20, "{all:?}");
    for command in all {
        let words: Vec<&str> = command
            .iter()
            .map(String::as_str)
            .chain(["--help"])
            .collect();
        let help = wirebench(&words);
        assert!(help.contains("Example"), "{command:?} has no example");
        for file in help
            .split_whitespace()
            .filter(|w| w.starts_with("examples/"))
        {
            let path = std::path::Path::new(root).join(file);
            assert!(path.exists(), "{command:?}: {file} is not there");
        }
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        "demo",
        "doctor",
        "lab",
        "bench",
        "trial",
        "read",
        "capture",
        "pktgen",
        "tx",
        "rx",
        "run",
        "linerate",
        "completions",
        "man",
    ] {
        let help = wirebench(&[command, "--help"]);
        assert!(help.contains("Example"), "{command} has no example");
        assert!(
            help.contains(&format!("wirebench {command}")),
            "{command}'s example does not use it"
        );
    }
}

#[test]
fn the_overview_is_as_it_was() {
    insta::assert_snapshot!(wirebench(&["--help"]));
}

#[test]
fn completions_and_the_man_page_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            wirebench(&["completions", shell]).contains("trial"),
            "{shell}"
        );
    }
    assert!(wirebench(&["man"]).contains(".TH"));
}

#[test]
fn the_reference_of_plan_keys_is_up_to_date() {
    let made = wirebench(&["run", "--keys"]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/plan.md");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        made == kept,
        "docs/plan.md is not what `wirebench run --keys` prints; write it anew"
    );
}

#[test]
fn line_rates_after_the_formula() {
    let table = wirebench(&["linerate", "1g", "10g", "--size", "64,1518"]);
    for cell in ["1,488,095", "81,274", "14,880,952", "812,743"] {
        assert!(table.contains(cell), "{cell} is missing:\n{table}");
    }
}

/// Whether everything in a document is in its schema, level by level.
fn assert_known(value: &Value, schema: &Value, root: &Value, place: &str) {
    let schema = match schema["$ref"].as_str() {
        Some(path) => root.pointer(path.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    if let Some(any) = schema["anyOf"].as_array() {
        let real = any.iter().find(|s| s["type"] != "null").unwrap();
        return assert_known(value, real, root, place);
    }
    match value {
        Value::Object(fields) if schema["properties"].is_object() => {
            for (key, value) in fields {
                let known = &schema["properties"][key];
                assert!(!known.is_null(), "{place}.{key} is not in the schema");
                assert_known(value, known, root, &format!("{place}.{key}"));
            }
        }
        Value::Array(items) => {
            for item in items {
                assert_known(item, &schema["items"], root, &format!("{place}[]"));
            }
        }
        _ => {}
    }
}

#[test]
fn what_is_printed_is_in_its_schema() {
    let schema = |of: &str| serde_json::from_str::<Value>(&wirebench(&["schema", of])).unwrap();
    let memory = ["--rate", "1kpps", "--duration", "300ms", "-q"];
    for line in [
        &["trial", "--tx", "memory:x", "--rx", "memory:x"][..],
        &[
            "load", "--client", "memory:x", "--server", "memory:x", "--cps", "50",
        ],
    ] {
        let rest = match line[0] {
            "trial" => &memory[..],
            _ => &memory[2..],
        };
        let report = wirebench(&[line, rest, &["--json"]].concat());
        let report: Value = serde_json::from_str(&report).unwrap();
        let of_reports = schema("report");
        assert_known(&report, &of_reports, &of_reports, "report");
        let of_plans = schema("plan");
        assert_known(&report["plan"], &of_plans, &of_plans, "plan");
        let lines = wirebench(&[line, rest, &["--live-json", "--interval", "100ms"]].concat());
        let of_snapshots = schema("snapshot");
        for line in lines.lines() {
            let snapshot: Value = serde_json::from_str(line).unwrap();
            assert_known(&snapshot, &of_snapshots, &of_snapshots, "snapshot");
        }
    }
}

#[test]
fn the_plan_of_a_benchmark_is_a_plan() {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../examples/bench/lb.toml"
    );
    let plan = wirebench(&["run", example, "--print-plan"]);
    assert_eq!(plan, wirebench(&["bench", "lb", example, "--print-plan"]));
    let output = Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args(["run", example, "--rate", "10kpps"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not for a benchmark"));
}
