//! Other names for the binary: a link with the name of a tool takes that tool's command line.

use std::{ffi::OsString, path::Path};

/// The command line in our own words: as it is, unless the binary was called by another name.
///
/// # Errors
/// What is wrong with the command line of that name, in a line.
pub(crate) fn translated(words: &[OsString]) -> Result<Vec<OsString>, String> {
    let name = words
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .unwrap_or_default();
    if name == "dperf" {
        return dperf(&words[1..]);
    }
    Ok(words.to_vec())
}

/// `dperf -c FILE [-t]`, `-h`, `-v`.
fn dperf(words: &[OsString]) -> Result<Vec<OsString>, String> {
    let mut ours: Vec<OsString> = vec!["wirebench".into(), "load".into()];
    let (mut file, mut tests) = (None, false);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.to_str().unwrap_or_default() {
            "-c" | "--conf" => file = rest.next(),
            "-t" | "--test" => tests = true,
            "-h" | "--help" => {
                ours.push("--help".into());
                return Ok(ours);
            }
            "-v" | "--version" => return Ok(vec!["wirebench".into(), "--version".into()]),
            // What dperf does not have is for our own command: --port, --duration, --json.
            _ => ours.push(word.clone()),
        }
    }
    ours.push(
        file.ok_or("dperf: no configuration; dperf -c FILE [-t]")?
            .clone(),
    );
    ours.extend(match tests {
        true => vec!["--check".into()],
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
            "wirebench load a.conf --check"
        );
        assert_eq!(
            line("dperf -c a.conf --duration 1s").unwrap(),
            "wirebench load --duration 1s a.conf --format dperf"
        );
        assert!(line("dperf -t").unwrap_err().contains("-c FILE"));
    }
}
