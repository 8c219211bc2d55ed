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

/// Collects every command that does work, with its subcommands.
fn commands(above: &[String], found: &mut Vec<Vec<String>>) {
    let words: Vec<&str> = above.iter().map(String::as_str).chain(["--help"]).collect();
    let help = wirebench(&words);
    // All groups in the overview; for a command with subcommands, their list.
    let list = match above {
        [] => help
            .split_once("\n\n")
            .and_then(|(_, rest)| rest.split_once("\n  -h")),
        _ => help.split_once("\nCommands:\n"),
    };
    let list = match (list, above) {
        (Some((groups, _)), []) => groups,
        (Some((_, list)), _) => list.split("\n\n").next().unwrap_or_default(),
        (None, _) => {
            found.push(above.to_vec());
            return;
        }
    };
    for line in list.lines() {
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
        "serve",
        "ls",
        "stop",
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
    let short = wirebench(&["-h"]);
    assert!(short.lines().count() <= 24, "{short}");
    insta::assert_snapshot!("the_short_overview", short);
    insta::assert_snapshot!("the_short_help_of_a_command", wirebench(&["trial", "-h"]));
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

/// Line rates as a page, including a run with ports of unknown speed.
#[test]
fn line_rates_are_on_pages_too() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    wirebench(&[
        "linerate",
        "1g",
        "10g",
        "--size",
        "64,1518",
        "--html",
        &file("a.html"),
    ]);
    let page = std::fs::read_to_string(file("a.html")).unwrap();
    for part in ["1,488,095", "812,743", "id=\"plot-1\"", "\"1518 B\""] {
        assert!(page.contains(part), "{part}");
    }
    let trial = "trial --tx memory:ls --rx memory:ls --rate 1kpps --allow-unsent --duration 200ms --json -q";
    let run = wirebench(&trial.split(' ').collect::<Vec<_>>());
    std::fs::write(file("a.json"), run).unwrap();
    let kept = file("a.json");
    let told = |more: &[&str]| wirebench(&[&["report", "--markdown", &kept], more].concat());
    assert!(told(&["--link-speed", "1g"]).contains("| line rate | 1,488,095 pps |"));
    assert!(!told(&[]).contains("line rate"));
}

/// Conformance of the output is checked at every place that prints JSON, in debug and test builds.
#[test]
fn documents_have_schemas() {
    for (of, key) in [
        ("plan", "traffic"),
        ("report", "verdict"),
        ("snapshot", "phase"),
        ("bench-plan", "device"),
    ] {
        let schema: Value = serde_json::from_str(&wirebench(&["schema", of])).unwrap();
        assert!(schema["properties"][key].is_object(), "{of}: {schema}");
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
