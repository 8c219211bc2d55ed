//! Command lines in README.md and docs/*.md: a shell can read each block, and wirebench each of its lines. Nothing runs:
//! a command is asked for its plan (`--print-plan`) or, if it makes none, for its help behind all other words, which
//! clap prints only after it has read them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::document_blocks::{blocks, documents, place_files, script};

/// Lines that are not checked: document, part of the line, reason. Each entry has to match at least one line.
const EXCLUDED: &[(&str, &str, &str)] = &[(
    "capture.md",
    "udp prot 7",
    "shows how a wrong filter is refused",
)];

/// Commands that print their plan instead of running it.
const PLANNED: &[&str] = &[
    "trial", "tx", "rx", "run", "capture", "load", "http", "sweep", "bench",
];

/// Options with which a command makes no plan, or needs what only a run has (a lab, a socket, PCI devices).
const NO_PLAN: &[&str] = &[
    "--help",
    "-h",
    "--keys",
    "--lab",
    "--ctl",
    "--check",
    "--self-test",
    "-D",
    "-L",
    "-d",
    "-r",
    "compare",
];

/// Options of `pktgen run` that take a value in the next word.
const PKTGEN_VALUES: &[&str] = &["--netns", "--driver", "--time", "--pgrx", "--report"];

/// Simple commands of a script, each as its words without redirections.
fn commands(script: &str) -> Vec<Vec<String>> {
    let text: Vec<char> = script.replace("\\\n", " ").chars().collect();
    let mut found = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut redirected = false;
    let mut at = 0;
    while at < text.len() {
        let c = text[at];
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                at += 1;
                while at < text.len() && text[at] != c {
                    if c == '"' && text[at] == '\\' {
                        at += 1;
                    }
                    word.push(text[at]);
                    at += 1;
                }
            }
            '$' if text.get(at + 1) == Some(&'(') => {
                let word = word.get_or_insert_default();
                let mut depth = 0;
                while at < text.len() {
                    depth += i32::from(text[at] == '(') - i32::from(text[at] == ')');
                    word.push(text[at]);
                    if text[at] == ')' && depth == 0 {
                        break;
                    }
                    at += 1;
                }
            }
            '#' if word.is_none() => {
                while at + 1 < text.len() && text[at + 1] != '\n' {
                    at += 1;
                }
            }
            ' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>' => {
                if let Some(word) = word.take() {
                    let is_descriptor = matches!(c, '<' | '>') && word.parse::<u8>().is_ok();
                    if !redirected && !is_descriptor {
                        found.last_mut().expect("one").push(word);
                    }
                    redirected = false;
                }
                match c {
                    ' ' | '\t' => {}
                    '<' | '>' => {
                        redirected = true;
                        if text.get(at + 1) == Some(&'&') {
                            at += 1;
                        }
                    }
                    _ => {
                        redirected = false;
                        found.push(Vec::new());
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
        at += 1;
    }
    if let Some(word) = word.filter(|_| !redirected) {
        found.last_mut().expect("one").push(word);
    }
    found.retain(|words| !words.is_empty());
    found
}

/// Words after `wirebench` of a command that runs it, also behind `sudo`, `ip netns exec` and the like.
fn words_of_wirebench(words: &[String]) -> Option<&[String]> {
    if matches!(words[0].as_str(), "ln" | "echo" | "command") {
        return None;
    }
    let at = words
        .iter()
        .position(|w| w == "wirebench" || w.ends_with("/wirebench"))?;
    Some(&words[at + 1..])
}

/// The words with which wirebench reads a command line and runs nothing.
fn dry(words: &[String]) -> Vec<String> {
    let given: Vec<&str> = words.iter().map(String::as_str).collect();
    let dry: Vec<&str> = match given.as_slice() {
        ["lab", "exec", node, ..] => vec!["lab", "exec", node, "--help"],
        ["lab", "run", rest @ ..] => {
            let own = rest.split(|w| *w == "--").next().unwrap_or_default();
            [&["lab", "run"], own, &["--help"]].concat()
        }
        ["pktgen", "run", rest @ ..] => {
            let mut own = 0;
            while rest.get(own).is_some_and(|w| w.starts_with('-')) {
                own += if PKTGEN_VALUES.contains(&rest[own]) {
                    2
                } else {
                    1
                };
            }
            [&["pktgen", "run"], &rest[..own], &["--help"]].concat()
        }
        // The words of netserver itself cannot be read without a start.
        ["netserver", rest @ ..] => {
            let own = rest.split(|w| *w == "--").next().unwrap_or_default();
            let own = if rest.contains(&"--") { own } else { &[] };
            [&["netserver"], own, &["--help"]].concat()
        }
        ["netperf", "-h" | "--help"] => given.clone(),
        ["netperf", rest @ ..] => {
            let is_own = rest.first().is_some_and(|w| w.starts_with("--"));
            let between: &[&str] = if is_own {
                &["--print-plan"]
            } else {
                &["--print-plan", "--"]
            };
            [&["netperf"], between, rest].concat()
        }
        ["wrk", rest @ ..] => [&["wrk", "--print-plan"], rest].concat(),
        [command, rest @ ..]
            if PLANNED.contains(command) && !rest.iter().any(|w| NO_PLAN.contains(w)) =>
        {
            let printed = rest.contains(&"--print-plan");
            [&given[..], if printed { &[] } else { &["--print-plan"] }].concat()
        }
        _ => [&given[..], &["--help"]].concat(),
    };
    dry.into_iter().map(str::to_owned).collect()
}

/// The reason why wirebench refuses a command line.
fn refused(words: &[String], folder: &Path) -> Option<String> {
    if let ["lab", kind @ ("exec" | "run"), ..] =
        words.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        let inner = match kind {
            "exec" => words.get(3..).unwrap_or_default(),
            _ => words.split(|w| w == "--").nth(1).unwrap_or_default(),
        };
        if let Some(inner) = inner
            .first()
            .and_then(|_| words_of_wirebench(inner))
            .filter(|inner| !inner.is_empty())
            && let Some(reason) = refused(inner, folder)
        {
            return Some(reason);
        }
    }
    let output = Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args(dry(words))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The complaint of a shell that reads a script without running it.
fn unreadable(script: &str) -> Option<String> {
    let output = Command::new("sh")
        .args(["-n", "-c", script])
        .output()
        .expect("there is a shell");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_command_line_of_the_documents_can_be_typed() {
    let folder = tempfile::TempDir::new().unwrap();
    place_files(folder.path());
    let mut wrong = Vec::new();
    let mut unused: Vec<_> = EXCLUDED.iter().collect();
    let mut checked = 0;
    for path in documents() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for block in blocks(&text) {
            let script = script(&block);
            let place = format!("{name}:{}", block.first_line);
            if let Some(complaint) = unreadable(&script) {
                wrong.push(format!(
                    "{place}: a shell cannot read this: {complaint}{script}"
                ));
            }
            for command in commands(&script) {
                let line = command.join(" ");
                if command.iter().any(|w| w == "…" || w == "...") {
                    wrong.push(format!("{place}: `{line}` leaves something out"));
                }
                let Some(words) = words_of_wirebench(&command) else {
                    continue;
                };
                let excluded = |e: &(&str, &str, &str)| name == e.0 && line.contains(e.1);
                if EXCLUDED.iter().any(excluded) {
                    unused.retain(|e| !excluded(e));
                    continue;
                }
                checked += 1;
                if let Some(reason) = refused(words, folder.path()) {
                    wrong.push(format!("{place}: `{line}`: {reason}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(unused.is_empty(), "nothing to exclude: {unused:?}");
    assert!(checked > 100, "{checked} command lines");
}

#[test]
fn command_lines_are_found_in_all_kinds_of_blocks() {
    let text = "\
text\n\n    wirebench doctor   # a comment\n    output\n\n```\n$ wirebench tx -i 'a b' \\\n      >x 2>&1; sudo wirebench rx\nwirebench no\n```\n\
1. item\n\n       wirebench stat | head\n\n```toml\nwirebench = 1\n```\n```sh\nfor i in 1; do\n  wirebench man\ndone\n```\n";
    let found: Vec<String> = blocks(text)
        .iter()
        .flat_map(|block| commands(&script(block)))
        .filter_map(|c| words_of_wirebench(&c).map(|w| w.join(" ")))
        .collect();
    assert_eq!(found, ["doctor", "tx -i a b", "rx", "stat", "man"]);
}
