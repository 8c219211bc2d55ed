//! Text form of plans: reads and writes TOML, with errors that name the line, and reads JSON as in reports.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, Visitor, value},
};

use crate::{
    bench::{LB_PLAN_SCHEMA, LbFile},
    plan::{PLAN_KINDS, PLAN_SCHEMA, Plan},
    spelling::nearest,
};

/// Returns true for a character that has no place in a line of text: a control character, a separator of lines, or a
/// character that changes the direction of what follows, so that a name looks like another one (Unicode TR 36).
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Error of a plan file, in one line: `plan.toml:4: unknown key "speeed"`.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {message}", line.map_or_else(String::new, |line| format!(":{line}")))]
pub struct PlanTextError {
    /// File name, or `-`.
    pub file: String,
    /// Line of the error, from 1, if known.
    pub line: Option<usize>,
    /// Description of the error, with the allowed values.
    pub message: String,
}

/// Reads a plan: JSON if it begins with a brace, otherwise TOML; also the short form of a benchmark ([`LbFile`]).
/// `file` is used in messages only.
///
/// # Errors
/// Returns an error for malformed text, unknown keys, values that do not parse, or another schema version.
pub fn plan_from_toml(file: &str, text: &str) -> Result<Plan, PlanTextError> {
    let error = |message: String| PlanTextError {
        file: file.to_owned(),
        line: None,
        message,
    };
    let at_line = |(line, message)| PlanTextError {
        line: Some(line),
        ..error(message)
    };
    let head = head(text);
    if head.client.is_some() || head.schema.as_deref() == Some(LB_PLAN_SCHEMA) {
        let file: LbFile = read(text).map_err(at_line)?;
        if file.schema != LB_PLAN_SCHEMA {
            return Err(error(format!(
                "unknown schema {:?}: use {LB_PLAN_SCHEMA:?}",
                file.schema
            )));
        }
        return Ok(file.into());
    }
    let plan: Plan = read(text).map_err(at_line)?;
    if plan.schema != PLAN_SCHEMA {
        return Err(error(format!(
            "unknown schema {:?}: use {PLAN_SCHEMA:?} or {LB_PLAN_SCHEMA:?}",
            plan.schema
        )));
    }
    if !PLAN_KINDS.contains(&plan.kind.as_str()) {
        let meant = match nearest(&plan.kind, PLAN_KINDS).first() {
            Some(meant) => format!("; did you mean {meant:?}?"),
            None => format!(": use one of {}", PLAN_KINDS.join(", ")),
        };
        return Err(error(format!("unknown kind {:?}{meant}", plan.kind)));
    }
    Ok(plan)
}

/// Fields that distinguish the two forms of a plan.
#[derive(Default, Deserialize)]
struct Head {
    schema: Option<String>,
    client: Option<IgnoredAny>,
}

fn head(text: &str) -> Head {
    match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).unwrap_or_default(),
        false => toml::from_str(text).unwrap_or_default(),
    }
}

/// Reads TOML or JSON. Errors have their line. An unknown key of the top level is reported first: it may make its
/// neighbours malformed.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, (usize, String)> {
    let keys = || TopLevel(keys_of::<T>());
    if text.trim_start().starts_with('{') {
        let mut reader = serde_json::Deserializer::from_str(text);
        return keys()
            .deserialize(&mut reader)
            .and_then(|()| serde_json::from_str(text))
            .map_err(|e| json_message(&e));
    }
    toml::Deserializer::parse(text)
        .and_then(|reader| keys().deserialize(reader))
        .and_then(|()| toml::from_str(text))
        .map_err(|e| toml_message(&e, text))
}

fn json_message(error: &serde_json::Error) -> (usize, String) {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    let what = message.strip_suffix(&place).unwrap_or(&message);
    (error.line(), in_plain_words(what, "key"))
}

fn toml_message(error: &toml::de::Error, text: &str) -> (usize, String) {
    let before = error.span().map_or("", |span| &text[..span.start]);
    let line = before.rsplit('\n').next().unwrap_or_default();
    let is_header = line.trim_start().starts_with('[');
    let what: Vec<&str> = error.message().lines().map(str::trim).collect();
    let what = in_plain_words(&what.join("; "), if is_header { "table" } else { "key" });
    (before.matches('\n').count() + 1, what)
}

/// Rewords an error of serde: an unknown or missing key, or an unknown word. Suggests a known one that is similar, and
/// otherwise lists all. `key` is "key" or "table".
#[must_use]
pub fn in_plain_words(message: &str, key: &str) -> String {
    if let Some((missing, "")) = message.strip_prefix("missing field ").and_then(quoted) {
        return format!("missing key {missing:?}");
    }
    if let Some(text) = expectation(message) {
        return text;
    }
    let unknown = [("unknown field ", key), ("unknown variant ", "value")]
        .into_iter()
        .find_map(|(begin, kind)| Some((kind, message.strip_prefix(begin).and_then(quoted)?)));
    let Some((kind, (word, rest))) = unknown else {
        return message.to_owned();
    };
    // Words are between backticks: every second part.
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    match (nearest(word, known.iter().copied()).first(), &known[..]) {
        (Some(meant), _) => format!("unknown {kind} {word:?}; did you mean {meant:?}?"),
        (None, []) => format!("unknown {kind} {word:?}"),
        (None, known) => format!("unknown {kind} {word:?}: use one of {}", known.join(", ")),
    }
}

/// Rewords a wrong type or an integer out of range, without the names of types of the language.
fn expectation(message: &str) -> Option<String> {
    let rest = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))?;
    let (got, expected) = rest.split_once(", expected ")?;
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 to 18446744073709551615",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "a table",
        "a boolean" => "true or false",
        other => other,
    };
    let got = got
        .replace('`', "")
        .replace("sequence", "list")
        .replace("map", "table");
    Some(format!("expected {expected}, got {got}"))
}

/// Splits text that begins with a word between backticks into the word and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('`')?.split_once('`')
}

/// Checks that a map has known keys only, whatever their values.
struct TopLevel(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for TopLevel {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TopLevel {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(KnownKey(self.0))?.is_some() {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Checks one key. The reader adds the position to the error.
struct KnownKey(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for KnownKey {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KnownKey {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<(), E> {
        match self.0.contains(&key) {
            true => Ok(()),
            false => Err(E::unknown_field(key, self.0)),
        }
    }
}

/// Returns the keys of a struct, from its implementation of `Deserialize`.
fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Keys(&'static [&'static str]);

    impl<'de> Deserializer<'de> for &mut Keys {
        type Error = value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
            Err(de::Error::custom("not a struct"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            keys: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, value::Error> {
            self.0 = keys;
            self.deserialize_any(visitor)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut keys = Keys(&[]);
    // The error only ends the search.
    let _ = T::deserialize(&mut keys);
    keys.0
}

/// Writes a plan in a form that [`plan_from_toml`] reads back unchanged.
#[must_use]
pub fn plan_to_toml(plan: &Plan) -> String {
    written_as_toml(plan).expect("a plan that was read or made has only figures that TOML can hold")
}

/// Writes a plan from a report, which may hold any value. `None` if a number is too large for TOML.
#[must_use]
pub fn written_as_toml(plan: &Plan) -> Option<String> {
    toml::to_string_pretty(plan).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PortPlan, Stream, TrafficJob};

    #[test]
    fn the_kind_of_a_plan_is_a_known_word() {
        let read = |kind: &str| plan_from_toml("p.toml", &format!("kind = {kind:?}"));
        let error = read("trail").unwrap_err().to_string();
        assert!(error.contains("did you mean \"trial\""), "{error}");
        let error = read("something else").unwrap_err().to_string();
        assert!(error.contains("one of run, trial, tx"), "{error}");
        for kind in PLAN_KINDS {
            assert_eq!(read(kind).unwrap().kind, kind);
        }
    }

    #[test]
    fn a_plan_survives_the_trip() {
        let plan = Plan {
            ports: vec![
                PortPlan::new("a", "wb-pair-a/a0".parse().unwrap()),
                PortPlan::new("b", "xdp:wb-pair-b/b0".parse().unwrap()),
            ],
            traffic: vec![TrafficJob {
                tx: Some("a".into()),
                rx: Some("b".into()),
                duration: Some("5s".parse().unwrap()),
                streams: vec![Stream {
                    size: Some("imix".parse().unwrap()),
                    rate: "100kpps".parse().unwrap(),
                    vlan: vec!["10:3".parse().unwrap()],
                    vary: vec!["sport=inc:1000-2000,step=2".parse().unwrap()],
                    payload: Some("dead beef".parse().unwrap()),
                    ..Stream::default()
                }],
                ..TrafficJob::default()
            }],
            criteria: vec!["loss<=0.1%".parse().unwrap()],
            ..Plan::default()
        };
        let text = plan_to_toml(&plan);
        assert_eq!(plan_from_toml("x", &text).unwrap(), plan, "{text}");
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(plan_from_toml("x", &json).unwrap(), plan, "{json}");
    }

    #[test]
    fn errors_are_one_line_with_its_number() {
        let text = "[[port]]\nname = \"a\"\nlocator = \"eth0\"\nspeeed = 3\n";
        let message = plan_from_toml("p.toml", text).unwrap_err().to_string();
        assert!(
            message.starts_with("p.toml:4: unknown key \"speeed\""),
            "{message}"
        );
        for (text, message) in [
            (
                "seed = -1\n",
                "p:1: expected a whole number from 0 to 18446744073709551615, got integer -1",
            ),
            ("\ntraffic = 5\n", "p:2: expected a list, got integer 5"),
            ("{\n\"seed\": \"x\"}", "p:2: expected "),
            ("seed = \n", "p:1: "),
        ] {
            let error = refused(text);
            assert!(
                error.starts_with(message) && error.lines().count() == 1,
                "{error}"
            );
        }
        let text = "[[traffic]]\n[[traffic.stream]]\nrate = \"10x\"\n";
        let message = plan_from_toml("p.toml", text).unwrap_err().to_string();
        assert!(
            message.starts_with("p.toml:3: ") && message.contains("kpps"),
            "{message}"
        );
    }

    /// Returns the error of a plan.
    fn refused(text: &str) -> String {
        plan_from_toml("p", text).unwrap_err().to_string()
    }

    #[test]
    fn misspelt_keys_get_a_suggestion() {
        let stream = "[[traffic]]\n[[traffic.stream]]\n";
        for (text, line, suggestion) in [
            (
                "seeed = 3\n",
                "p:1: ",
                "unknown key \"seeed\"; did you mean \"seed\"?",
            ),
            (
                &format!("{stream}ratte = 1\n"),
                "p:3: ",
                "unknown key \"ratte\"; did you mean \"rate\"?",
            ),
            (
                "[[load]]\n[load.shape]\nrampp = 1\n",
                "p:3: ",
                "unknown key \"rampp\"; did you mean \"ramp\"?",
            ),
            (
                "[[traffic]]\n[[traffic.straem]]\n",
                "p:2: ",
                "unknown table \"straem\"; did you mean \"stream\"?",
            ),
            (
                &format!("{stream}proto = \"udpp\"\n"),
                "p:3: ",
                "unknown value \"udpp\"; did you mean \"udp\"?",
            ),
        ] {
            let error = refused(text);
            assert!(
                error.starts_with(line) && error.ends_with(suggestion),
                "{error}"
            );
            assert!(!error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn unknown_keys_without_a_similar_one_list_the_known() {
        let error = refused("[[port]]\nbanana = 1\n");
        assert!(
            error.ends_with("xdp_chunk, way, priority")
                && error.contains("unknown key \"banana\": use one of name, "),
            "{error}"
        );
    }

    #[test]
    fn missing_keys_are_named() {
        let error = refused("[[port]]\nname = \"a\"\n");
        assert!(error.contains("missing key \"locator\""), "{error}");
    }

    #[test]
    fn unknown_tables_are_reported_before_errors_inside_others() {
        // The array `traffic.stream` makes `traffic` a table, which would be the first error.
        let text = "seed = 1\n\n[[trafic]]\ntx = \"a\"\n[[traffic.stream]]\nrate = \"max\"\n";
        let error = refused(text);
        assert!(
            error.starts_with("p:3: ")
                && error.ends_with("unknown table \"trafic\"; did you mean \"traffic\"?"),
            "{error}"
        );
        let error = refused("{\"traffic\": {\"stream\": []},\n\"trafic\": []}");
        assert!(
            error.starts_with("p:2: ") && error.ends_with("; did you mean \"traffic\"?"),
            "{error}"
        );
    }

    #[test]
    fn the_short_form_of_a_benchmark_has_suggestions_too() {
        let error = refused("schema = \"wirebench.lb/1\"\n[clint]\nport = \"eth0\"\n");
        assert!(
            error.starts_with("p:2: ") && error.contains("did you mean \"client\"?"),
            "{error}"
        );
    }

    #[test]
    fn what_is_wrong_in_json_has_a_line_and_a_column() {
        let text = "{\"port\": [],\n \"speeed\": 3}";
        let message = plan_from_toml("p.json", text).unwrap_err().to_string();
        assert!(
            message.starts_with("p.json:2: ") && message.contains("speeed"),
            "{message}"
        );
    }

    #[test]
    fn other_versions_are_refused() {
        assert!(plan_from_toml("p", "schema = \"wirebench.plan/9\"").is_err());
    }
}
