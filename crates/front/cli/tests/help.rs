//! Help, line rates and meta commands are interface: a change shows here.

use std::process::Command;

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
