//! Command lines: the original and this crate give the same output.

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use wb_wrk::WrkExit;

use crate::original::{text, wrk};

/// A port without a listener.
const CLOSED: &str = "http://127.0.0.1:1/";

/// Parses the words with both. For a valid command line the original fails to connect.
fn same(words: &[String]) -> bool {
    let Some(output) = wrk(words) else {
        return false;
    };
    let told = match wb_wrk::wrk("wrk", words) {
        Ok(command) => WrkExit {
            stdout: command.stdout,
            ..WrkExit::no_connection(&command.url, "Connection refused")
        },
        Err(stop) => stop,
    };
    // The version text contains the packager's name.
    let stdout: String = (text(&output.stdout).lines())
        .map(|line| match line.starts_with("wrk ") {
            true => "wrk 4.1.0 [epoll] Copyright (C) 2012 Will Glozer\n".to_owned(),
            false => format!("{line}\n"),
        })
        .collect();
    let exit = output
        .status
        .code()
        .and_then(|code| u8::try_from(code).ok());
    // Script errors are not part of the command line.
    let script = |line: &&[u8]| !line.windows(14).any(|part| part == b": cannot open ");
    let lines = output.stderr.split_inclusive(|byte| *byte == b'\n');
    let stderr: Vec<u8> = lines.filter(script).flatten().copied().collect();
    let original = (stderr, stdout, exit);
    assert_eq!(
        (told.stderr, told.stdout, Some(told.exit)),
        original,
        "{words:?}"
    );
    true
}

/// Compares 300 random command lines; stops at once if the original is missing.
fn all_same<S: Strategy>(strategy: S, words: impl Fn(S::Value) -> Vec<String>) {
    let mut runner = TestRunner::new(Config::default());
    for _ in 0..300 {
        let value = strategy.new_tree(&mut runner).expect("a value").current();
        if !same(&words(value)) {
            return;
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn lines_from_pieces_are_read_alike() {
    let piece = select(vec![
        "-c",
        "-d",
        "-t",
        "-s",
        "-H",
        "-L",
        "-T",
        "-v",
        "-r",
        "-h",
        "-?",
        "-x",
        "--",
        "-",
        "5",
        "2",
        "1k",
        "0",
        "1s",
        "x",
        "-c5",
        "-d2m",
        "-t1",
        "-LT5",
        "-vL",
        "--he",
        "--head=A: b",
        "--help",
        "--t",
        "--ti",
        "--th=1",
        "--latency",
        "--lat=1",
        "--version",
        "--connections",
        "--d",
        "--=",
        "--c=7",
        "--foo",
        "--foo=1",
        "--script",
        "A: b",
        "A:b",
        "",
        "-c-1",
        "-d1x",
        "-ttt",
    ]);
    all_same((vec(piece, 0..6), 0usize..6), |(pieces, at)| {
        let mut words = owned(&pieces);
        words.insert(at.min(words.len()), CLOSED.to_owned());
        words
    });
}

#[test]
fn numbers_are_read_alike() {
    let number = "[+ \t]?[0-9]{0,3}[ \t]?[kKmMgGtTpPsShH.x]{0,2}[ kx]?";
    let option = select(vec!["-c", "-d", "-t", "-T"]);
    all_same((option, number, 0u64..2), |(option, number, more)| {
        let read = wb_wrk::wrk("wrk", &owned(&["-c1T", "-t1", option, &number, CLOSED]));
        // The original allocates its threads before it connects.
        let near = |number: u64| if number > 100_000 { 1 } else { more };
        match (option, read) {
            // More threads than connections is an error, so one more thread reveals the number.
            ("-c", Ok(command)) => {
                let threads = (command.connections + near(command.connections)).to_string();
                owned(&["-t", &threads, "-c", &number, CLOSED])
            }
            ("-t", Ok(command)) => {
                let connections = command
                    .threads
                    .saturating_sub(near(command.threads))
                    .to_string();
                owned(&["-c", &connections, "-t", &number, CLOSED])
            }
            // Without connections the original stops here, unless the number is wrong.
            _ => owned(&["-c0", option, &number, CLOSED]),
        }
    });
}

#[test]
fn urls_are_read_alike() {
    let part = select(vec![
        "http", "https", "x", "h1", ":", "//", "://", "/", "?", "#", "@", "[", "]", "::1", "%",
        "%lo", "h", "a.b", "_", "-", "80", ":80", "65536", ":0", "!", " ", "\t", "é", "\"", "~",
        "*", "&", "\\", "|",
    ]);
    let begin = select(vec![
        "http://",
        "http://h",
        "http://[::1]",
        "http://u@h:1/",
        "http://h/",
        "",
    ]);
    // Without connections the original stops after the URL.
    all_same((begin, vec(part, 0..5)), |(begin, parts)| {
        owned(&["-c0", &(begin.to_owned() + &parts.concat())])
    });
}
