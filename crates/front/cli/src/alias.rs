//! Aliases of the binary: a link with the name of a tool accepts the command line of the tool.

use std::{ffi::OsString, path::Path};

use crate::commands::wrk::{OURS, OURS_WITH_VALUE};

/// Returns the command line in wirebench's own form, translated if the binary was called by another name.
///
/// # Errors
/// One line that says what is wrong with the tool's command line.
pub(crate) fn translated(words: &[OsString]) -> Result<Vec<OsString>, String> {
    let name = words
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .unwrap_or_default();
    match name.to_str() {
        Some("dperf") => return dperf(&words[1..]),
        Some(tool @ ("netperf" | "netserver")) => {
            return Ok(socket_tool(tool, &[], &words[1..]));
        }
        Some(tool @ ("wrk" | "sar")) => return Ok(socket_tool(tool, &[], &words[1..])),
        _ => {}
    }
    match words.get(1).and_then(|w| w.to_str()) {
        Some(tool @ ("netperf" | "netserver")) => {
            let (ours, theirs) = split(&words[2..]);
            Ok(socket_tool(tool, ours, theirs))
        }
        // sar's command line has no room for wirebench options.
        Some("sar") => {
            let theirs = &words[2..];
            let theirs = theirs.strip_prefix(&["--".into()][..]).unwrap_or(theirs);
            Ok(socket_tool("sar", &[], theirs))
        }
        // wrk has long options itself, so wirebench options are recognised by name.
        Some("wrk") => {
            let mut count = 0;
            while let Some(word) = words.get(2 + count).and_then(|w| w.to_str()) {
                let name = word.split('=').next().unwrap_or_default();
                count += match OURS_WITH_VALUE.contains(&name) {
                    true if name == word => 2,
                    true => 1,
                    false if OURS.contains(&word) => 1,
                    false => break,
                };
            }
            let (ours, theirs) = words[2..].split_at(count.min(words.len() - 2));
            Ok(socket_tool("wrk", ours, theirs))
        }
        _ => Ok(words.to_vec()),
    }
}

/// Returns true if the program was started by a link with this name.
pub(crate) fn is_link(name: &str) -> bool {
    let word = std::env::args_os().next().unwrap_or_default();
    Path::new(&word).file_name().is_some_and(|own| own == name)
}

/// Splits wirebench options, which come first and have two dashes, from the tool's options, which have one dash and
/// follow `--`. Without wirebench options, `--` may be missing. The options `-v` and `-q` of wirebench also have one
/// dash, but netperf's `-v` never precedes `--` or a wirebench option, and netperf has no `-q`.
fn split(words: &[OsString]) -> (&[OsString], &[OsString]) {
    let mut texts = words.iter().map(|w| w.to_str().unwrap_or_default());
    let first = texts.by_ref().find(|w| !matches!(*w, "-v" | "-q"));
    let short = matches!(words.first().and_then(|w| w.to_str()), Some("-v" | "-q"));
    let ours = first.is_some_and(|w| w.starts_with("--") && (short || w.len() > 2));
    match (ours, words.iter().position(|w| w == "--")) {
        (true, Some(end)) => (&words[..end], &words[end + 1..]),
        (true, None) => (words, &[]),
        (false, Some(0)) => (&[], &words[1..]),
        (false, _) => (&[], words),
    }
}

fn socket_tool(tool: &str, ours: &[OsString], theirs: &[OsString]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["wirebench".into(), tool.into()];
    words.extend_from_slice(ours);
    words.push("--".into());
    words.extend_from_slice(theirs);
    words
}

/// Translates `dperf -c FILE [-t]`, `-h`, `-v`, `-m`, also in their long forms with one or two dashes.
fn dperf(words: &[OsString]) -> Result<Vec<OsString>, String> {
    let mut ours: Vec<OsString> = vec!["wirebench".into(), "load".into()];
    let (mut file, mut tests) = (None, false);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.to_str().unwrap_or_default() {
            "-c" | "-conf" | "--conf" => file = rest.next(),
            "-t" | "-test" | "--test" => tests = true,
            "-m" | "-manual" | "--manual" => {
                ours.push("--keywords".into());
                return Ok(ours);
            }
            "-h" | "-help" | "--help" => {
                ours.push("--help".into());
                return Ok(ours);
            }
            "-v" | "-version" | "--version" => {
                return Ok(vec!["wirebench".into(), "--version".into()]);
            }
            // Options that dperf does not have are wirebench options: --port, --duration, --json.
            _ => ours.push(word.clone()),
        }
    }
    ours.push(
        file.ok_or("dperf: no configuration file; usage: dperf -c FILE [-t]")?
            .clone(),
    );
    ours.extend(match tests {
        true => vec!["--check".into(), "--format".into(), "dperf".into()],
        false => vec!["--format".into(), "dperf".into()],
    });
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<String, String> {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        translated(&words).map(|w| w.join(" ".as_ref()).into_string().unwrap())
    }

    #[test]
    fn a_link_takes_the_words_of_its_tool() {
        assert_eq!(line("wirebench -c x").unwrap(), "wirebench -c x");
        assert_eq!(
            line("/usr/bin/dperf -c a.conf").unwrap(),
            "wirebench load a.conf --format dperf"
        );
        assert_eq!(
            line("dperf -t -c a.conf").unwrap(),
            "wirebench load a.conf --check --format dperf"
        );
        assert_eq!(
            line("dperf -test -conf a.conf").unwrap(),
            "wirebench load a.conf --check --format dperf"
        );
        assert_eq!(
            line("dperf -c a.conf --duration 1s").unwrap(),
            "wirebench load --duration 1s a.conf --format dperf"
        );
        assert_eq!(line("dperf -m").unwrap(), "wirebench load --keywords");
        assert!(line("dperf -t").unwrap_err().contains("-c FILE"));
        for (typed, ours) in [
            ("netperf -H h -- -m 1", "wirebench netperf -- -H h -- -m 1"),
            (
                "wirebench netperf -H h -- -m 1",
                "wirebench netperf -- -H h -- -m 1",
            ),
            (
                "wirebench netperf -- -H h -- -m 1",
                "wirebench netperf -- -H h -- -m 1",
            ),
            (
                "wirebench netperf -v -- -H h -- -m 1",
                "wirebench netperf -v -- -H h -- -m 1",
            ),
            (
                "wirebench netperf -q -v --json -- -H h",
                "wirebench netperf -q -v --json -- -H h",
            ),
            (
                "wirebench netperf -v 2 -H h",
                "wirebench netperf -- -v 2 -H h",
            ),
            (
                "wirebench netperf --json -- -H h -- -m 1",
                "wirebench netperf --json -- -H h -- -m 1",
            ),
            ("wirebench netperf --help", "wirebench netperf --help --"),
            ("/x/sar -n DEV -h 1", "wirebench sar -- -n DEV -h 1"),
            ("wirebench sar -n DEV 1 2", "wirebench sar -- -n DEV 1 2"),
            ("wirebench sar -- --help", "wirebench sar -- --help"),
            ("/x/netserver -D", "wirebench netserver -- -D"),
            (
                "wirebench wrk --json --metrics :1 --report=x.md -c 1 --json",
                "wirebench wrk --json --metrics :1 --report=x.md -- -c 1 --json",
            ),
            ("wirebench wrk --metrics", "wirebench wrk --metrics --"),
        ] {
            assert_eq!(line(typed).unwrap(), ours);
        }
    }
}
