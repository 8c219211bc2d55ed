//! Together with a file or a plan, every option has an effect on the printed plan or is refused.

use std::process::{Command, Output};

use crate::samples::sample;

/// Root of the sources, with the examples.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// Options of output alone: the plan is the same with and without them.
const OUTPUT: [&str; 13] = [
    "--csv",
    "--help",
    "--json",
    "--junit",
    "--live-json",
    "--fleet",
    "--metrics",
    "--metrics-linger",
    "--plain",
    "--print-plan",
    "--quiet",
    "--report",
    "--verbose",
];

/// For captures, also options of the printed text, and for tcpdump those that request the default behaviour.
const OUTPUT_OF_CAPTURES: [&str; 21] = [
    "--absolute-tcp-sequence-numbers",
    "--count",
    "--dont-verify-checksums",
    "--help",
    "--linktype",
    "--nano",
    "--number",
    "--print",
    "--stats-file",
    "-A",
    "-N",
    "-X",
    "-e",
    "-f",
    "-l",
    "-n",
    "-t",
    "-u",
    "-x",
    "--immediate-mode",
    "--packet-buffered",
];

/// For loads: the format of lines, and the control socket.
const OUTPUT_OF_LOADS: [&str; 2] = ["--control", "--format"];

/// Settings of examples/bench/rfc2544.toml and services.toml.
const SAID_BY_SUITES: [&str; 1] = ["--isolated"];

/// Values for options with a sample that does not fit the file, or equals the default.
const VALUES: &[(&str, &str)] = &[
    ("--arrivals", "poisson"),
    ("--bps", "1m"),
    ("--criteria", "loss<=0.5%"),
    ("--dst-mac", "02:00:00:00:00:02"),
    ("--fleet", "nats://127.0.0.1:4222"),
    ("--format", "pcap"),
    ("--count", "1000"),
    ("--drain", "300ms"),
    ("--goals", "tst009"),
    ("--offloads", "off"),
    ("--overflow", "drop-newest"),
    ("--ramp", "300ms"),
    ("capture --rate", "1kpps"),
    ("--settle", "300ms"),
    ("--with", "tcpdump"),
    ("--route", "/a 200 1000 10ms"),
    ("--time-stamp-precision", "micro"),
    ("--time-stamp-type", "adapter"),
    ("--proto", "tcp"),
    ("--tag", "pktgen"),
];

fn wirebench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args(words)
        .current_dir(ROOT)
        .output()
        .expect("the binary runs")
}

/// An option of a command, and a value for it if it takes one.
#[derive(Debug)]
struct Opt {
    name: String,
    value: Option<String>,
}

/// All options of a command, read from its help, which is made from their declarations.
fn options(command: &[&str]) -> Vec<Opt> {
    let output = wirebench(&[command, &["--help"]].concat());
    let help = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = help.lines().collect();
    let starts = |line: &str| {
        let name = line.trim_start();
        line.len() - name.len() <= 6 && name.starts_with('-')
    };
    let mut found = Vec::new();
    for line in lines.iter().filter(|line| starts(line)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let long = words.iter().find(|word| word.starts_with("--"));
        let name = long.unwrap_or(&words[0]).trim_end_matches([',', '.']);
        let name = name.split('[').next().unwrap_or(name).to_owned();
        let metavar = line
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'));
        let example = metavar.and_then(|(value, _)| sample(&name, value));
        let full = format!("{} {name}", command.join(" "));
        let known = VALUES
            .iter()
            .find(|(option, _)| *option == name || *option == full);
        let value = known
            .map(|(_, value)| *value)
            .or(example)
            .map(str::to_owned);
        let takes_one = line.contains('<') && !line.contains("[=");
        assert!(
            !takes_one || value.is_some(),
            "{command:?} {name}: give it a value"
        );
        found.push(Opt {
            name,
            value: value.filter(|_| takes_one),
        });
    }
    assert!(found.len() > 10, "{command:?}: {found:?}");
    found
}

/// Problems of options of `command` in combination with the arguments `base`.
fn without_effect(command: &[&str], base: &[&str], skipped: &[&str]) -> Vec<String> {
    let words = [command, base, &["--print-plan"]].concat();
    let plain = wirebench(&words);
    let said = String::from_utf8_lossy(&plain.stderr);
    assert!(plain.status.success(), "{words:?}: {said}");
    let mut wrong = Vec::new();
    for option in options(command) {
        if OUTPUT.contains(&option.name.as_str()) || skipped.contains(&option.name.as_str()) {
            continue;
        }
        let mut all = words.clone();
        all.push(&option.name);
        all.extend(option.value.as_deref());
        let with = wirebench(&all);
        let said = String::from_utf8_lossy(&with.stderr);
        let shown = all.join(" ");
        match with.status.code() {
            Some(0) if with.stdout == plain.stdout => wrong.push(format!("{shown}: no effect")),
            Some(0) => {}
            // An unsuitable value in this test hides the effect of the option.
            Some(2) if !said.contains("invalid value") => {}
            code => wrong.push(format!("{shown}: {code:?}: {said}")),
        }
    }
    wrong
}

fn check(command: &[&str], base: &[&str], output: &[&str]) {
    let wrong = without_effect(command, base, output);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A value that would have no effect, or that no unit can hold, is refused in one line.
#[test]
fn useless_values_are_refused() {
    for (line, message) in [
        (
            "http --poisson http://198.18.1.2/ --print-plan",
            "http, arrivals: poisson needs rate",
        ),
        (
            "load --client memory:x --server memory:x --cps 0 --duration 1s",
            "load, rate: must be at least 1, got 0",
        ),
        (
            "load --client eth2 --cps 5 --tries 0 --print-plan",
            "must be between 1 and 255",
        ),
        (
            "bench ndr --tx eth2 --rx eth3 --min 10kpps --max 1kpps --print-plan",
            "min must be at most max (1kpps), got 10kpps",
        ),
        (
            "trial --tx eth2 --rx eth3 --proto raw --src 198.18.1.2 --print-plan",
            "proto raw has no IP header",
        ),
        (
            "trial --tx eth2 --rx eth3 --duration 999999999999999s",
            "is too large; the largest is 5124095h",
        ),
        (
            "trial --tx eth2 --rx eth3 --rate 99999999999gbps",
            "is too large; the largest is 18446744073gpps or 18446744073gbps",
        ),
    ] {
        let output = wirebench(&line.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(
            said.contains(message) && said.lines().count() == 1,
            "{line}: {said}"
        );
    }
}

#[test]
fn of_configuration_files_of_dperf() {
    for (file, device) in [
        (
            "examples/dperf/01-http-cps-client.conf",
            "0000:1b:00.0=eth2",
        ),
        (
            "examples/dperf/02-http-cps-server.conf",
            "0000:1b:00.1=eth2",
        ),
    ] {
        check(&["load"], &[file, "--port", device], &OUTPUT_OF_LOADS);
    }
}

#[test]
fn of_plans() {
    for plan in ["examples/mixed-streams.toml", "examples/http/mixed.toml"] {
        check(&["run"], &[plan], &[]);
    }
    check(&["http"], &["examples/http/mixed.toml"], &[]);
}

#[test]
fn of_recordings() {
    let file = ["--replay", "frames.pcap"];
    check(
        &["trial"],
        &[&["--tx", "eth2", "--rx", "eth3"], &file[..]].concat(),
        &[],
    );
    check(&["tx"], &[&["-i", "eth2"], &file[..]].concat(), &[]);
}

#[test]
fn of_plans_of_suites() {
    let rfc2544 = [
        "rfc2544", "ndr", "pdr", "loss", "mfr", "impact", "latency", "b2b", "recovery", "reset",
    ]
    .map(|name| (name, "examples/bench/rfc2544.toml"));
    let y1564 = ("y1564", "examples/bench/services.toml");
    let mut wrong = Vec::new();
    // Most options are those of all suites; each is tried once.
    let mut tried: Vec<String> = SAID_BY_SUITES.map(str::to_owned).into();
    for (name, plan) in [&rfc2544[..], &[y1564]].concat() {
        let known: Vec<&str> = tried.iter().map(String::as_str).collect();
        wrong.extend(without_effect(&["bench", name], &[plan], &known));
        tried.extend(
            options(&["bench", name])
                .into_iter()
                .map(|option| option.name),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn of_plans_of_balancers() {
    check(&["bench", "lb"], &["examples/bench/lb.toml"], &[]);
}

#[test]
fn of_captures() {
    let base = ["-i", "eth2", "-w", "trace.pcapng"];
    check(&["capture"], &base, &OUTPUT_OF_CAPTURES);
}
