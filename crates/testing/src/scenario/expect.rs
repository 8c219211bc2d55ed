//! Expectations of steps.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde::Deserialize;
use serde_json::Value;

use super::bound::Bound;

/// Expectations of a step that has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    /// Exit code, or -N if signal N ended it.
    #[serde(default)]
    exit: OneOrMore<i32>,
    /// Texts that the standard output contains.
    #[serde(default)]
    stdout: OneOrMore<String>,
    /// Texts that the standard error contains.
    #[serde(default)]
    stderr: OneOrMore<String>,
    /// Texts that neither contains.
    #[serde(default)]
    lacks: OneOrMore<String>,
    /// Filters of jq with bounds of their values, for the JSON on standard output.
    #[serde(default)]
    json: BTreeMap<String, Bound>,
    /// Filters and bounds for the array of all JSON values on standard output.
    #[serde(default)]
    lines: BTreeMap<String, Bound>,
    /// The file with the JSON, in place of standard output.
    #[serde(default)]
    file: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

impl<T> OneOrMore<T> {
    fn all(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }
}

/// Exit code and output of a step.
pub(super) struct Did {
    pub(super) exit: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

impl Expect {
    /// Deviations; empty if there are none. `replace` inserts the variables in texts and bounds.
    pub(super) fn wrong(
        &self,
        did: &Did,
        folder: &Path,
        replace: &dyn Fn(&str) -> String,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let exits = match self.exit.all() {
            [] => &[0],
            exits => exits,
        };
        if !exits.contains(&did.exit) {
            wrong.push(format!("exit code is {}, expected {exits:?}", did.exit));
        }
        let stdout = String::from_utf8_lossy(&did.stdout);
        let stderr = String::from_utf8_lossy(&did.stderr);
        for (name, text, expected) in [
            ("standard output", &stdout, &self.stdout),
            ("standard error", &stderr, &self.stderr),
        ] {
            for expected in expected.all().iter().map(|text| replace(text)) {
                if !text.contains(&expected) {
                    wrong.push(format!("{name} lacks {expected:?}"));
                }
            }
        }
        for text in self.lacks.all().iter().map(|text| replace(text)) {
            if stdout.contains(&text) || stderr.contains(&text) {
                wrong.push(format!("the output has {text:?}"));
            }
        }
        let from_file = self
            .file
            .as_ref()
            .map(|name| std::fs::read(folder.join(replace(name))));
        let json = match from_file {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => {
                wrong.push(format!(
                    "{}: {error}",
                    self.file.as_deref().unwrap_or_default()
                ));
                return wrong;
            }
            None => did.stdout.clone(),
        };
        for (bounds, slurp) in [(&self.json, false), (&self.lines, true)] {
            wrong.extend(unmet(&json, bounds, slurp, replace));
        }
        wrong
    }
}

/// Bounds that do not hold, with the values.
fn unmet(
    json: &[u8],
    bounds: &BTreeMap<String, Bound>,
    slurp: bool,
    replace: &dyn Fn(&str) -> String,
) -> Vec<String> {
    if bounds.is_empty() {
        return Vec::new();
    }
    let filters: Vec<String> = bounds.keys().map(|filter| replace(filter)).collect();
    match values(json, &filters, slurp) {
        Err(error) => vec![error],
        Ok(values) => bounds
            .values()
            .zip(&filters)
            .zip(values)
            .filter_map(|((bound, filter), value)| match value {
                Err(error) => Some(format!("{filter}: {error}")),
                Ok(value) if bound.replaced(replace).holds(&value) => None,
                Ok(value) => Some(format!("{filter} is {value}, expected {bound}")),
            })
            .collect(),
    }
}

/// The value of each filter, by jq; several values of one filter are an array.
fn values(
    json: &[u8],
    filters: &[String],
    slurp: bool,
) -> Result<Vec<Result<Value, String>>, String> {
    let each: Vec<String> = filters
        .iter()
        .map(|filter| format!("(try [{filter}] catch {{\"error\": .}})"))
        .collect();
    let mut command = Command::new("jq");
    command.arg("-c");
    if slurp {
        command.arg("-s");
    }
    let mut child = command
        .arg(format!("[{}]", each.join(",")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("jq: {error}"))?;
    let mut stdin = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(json));
        child.wait_with_output()
    });
    let output = output.map_err(|error| format!("jq: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("jq: {}", said.trim()));
    }
    let all: Vec<Value> = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("standard output is not one JSON value: {error}"))?;
    let value = |found: Value| match found {
        Value::Array(values) if values.is_empty() => Err("there is no value".to_owned()),
        Value::Array(mut values) if values.len() == 1 => Ok(values.remove(0)),
        Value::Array(values) => Ok(Value::Array(values)),
        error => Err(error["error"].to_string()),
    };
    Ok(all.into_iter().map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(expect: &str, exit: i32, stdout: &str) -> Vec<String> {
        let expect: Expect = toml::from_str(expect).unwrap();
        let did = Did {
            exit,
            stdout: stdout.as_bytes().to_vec(),
            stderr: b"Error: no such port".to_vec(),
        };
        expect.wrong(&did, Path::new("/"), &|text| text.replace("$a0", "wb-x/a0"))
    }

    #[test]
    fn exit_code_and_texts() {
        assert_eq!(wrong("", 0, ""), [""; 0]);
        assert_eq!(wrong("", 3, ""), ["exit code is 3, expected [0]"]);
        assert_eq!(wrong("exit = [1, 3]", 3, ""), [""; 0]);
        assert_eq!(
            wrong(
                "stderr = 'no such port'\nstdout = 'wb-x/a0 is up'",
                0,
                "wb-x/a0 is up"
            ),
            [""; 0]
        );
        assert_eq!(
            wrong("stdout = '$a0 is'", 0, ""),
            ["standard output lacks \"wb-x/a0 is\""]
        );
        assert_eq!(
            wrong("lacks = 'Error'", 0, ""),
            ["the output has \"Error\""]
        );
    }

    #[test]
    fn values_of_json() {
        let json = r#"{"totals": {"lost": 3, "port": "wb-x/a0"}, "flows": [{"n": 1}, {"n": 2}]}"#;
        let good = r#"
            json = { ".totals.lost" = "< 4", "[.flows[].n]" = [1, 2], ".flows | length" = 2, ".totals.port" = "$a0",
                "[.totals.port]" = ["$a0"] }"#;
        assert_eq!(wrong(good, 0, json), [""; 0]);
        assert_eq!(
            wrong("json = { '.totals.lost' = 0 }", 0, json),
            [".totals.lost is 3, expected 0"]
        );
        assert_eq!(
            wrong("json = { '.flows[].n' = 1 }", 0, json),
            [".flows[].n is [1,2], expected 1"]
        );
        let said = wrong("json = { '.totals[0]' = '!= 1' }", 0, json).join("");
        assert!(said.contains("Cannot index object with number"), "{said}");
        assert_eq!(
            wrong("json = { '.flows[] | select(.n > 2)' = [] }", 0, json),
            [".flows[] | select(.n > 2): there is no value"]
        );
        assert!(wrong("json = { '.a' = 1 }", 0, "no JSON")[0].starts_with("jq: "));
    }

    #[test]
    fn several_values_are_an_array() {
        let lines = "lines = { 'map(.n) | add' = 3, 'length' = 2 }";
        assert_eq!(wrong(lines, 0, "{\"n\": 1}\n{\"n\": 2}"), [""; 0]);
    }
}
