//! Reads JSON objects key by key. Keys that nothing has read are reported as unsupported.

use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive};

use serde_json::Value;

use crate::problem::Problems;

/// Maximum number of elements of a list.
const LONGEST_LIST: usize = 65_536;

/// A JSON object and its place. `null` is the same as a missing key.
pub(crate) struct Node<'a> {
    pub(crate) path: String,
    keys: BTreeMap<&'a str, &'a Value>,
    pub(crate) problems: &'a Problems,
}

impl<'a> Node<'a> {
    /// Reads an object; another value is a problem and reads as an empty object.
    pub(crate) fn new(path: impl Into<String>, value: &'a Value, problems: &'a Problems) -> Self {
        let path = path.into();
        let mut keys = BTreeMap::new();
        match value {
            Value::Object(map) => {
                let given = map.iter().filter(|(_, value)| !value.is_null());
                keys = given.map(|(key, value)| (key.as_str(), value)).collect();
            }
            _ => problems.add(path.clone(), "must be an object"),
        }
        Self {
            path,
            keys,
            problems,
        }
    }

    pub(crate) fn at(&self, key: &str) -> String {
        match self.path.is_empty() {
            true => key.to_owned(),
            false => format!("{}.{key}", self.path),
        }
    }

    pub(crate) fn problem(&self, key: &str, what: impl Into<String>) {
        self.problems.add(self.at(key), what);
    }

    pub(crate) fn unsupported(&self, key: &str, what: &str) {
        self.problems.unsupported(self.at(key), what);
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<&'a Value> {
        self.keys.remove(key)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    fn parse<T>(&mut self, key: &str, form: &str, of: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.take(key)?;
        let parsed = of(value);
        if parsed.is_none() {
            self.problem(key, format!("must be {form}, got {value}"));
        }
        parsed
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        self.parse(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// A name, which must be present.
    pub(crate) fn name(&mut self, key: &str) -> String {
        self.required_text(key, "is required")
    }

    /// A text, which must be present and not empty.
    pub(crate) fn required_text(&mut self, key: &str, what: &str) -> String {
        let is_given = self.has(key);
        let text = self.text(key);
        if text.as_ref().map_or(!is_given, String::is_empty) {
            self.problem(key, what);
        }
        text.unwrap_or_default()
    }

    pub(crate) fn number(&mut self, key: &str) -> Option<u64> {
        self.parse(key, "a whole number", whole)
    }

    /// A number in a range, or the default.
    pub(crate) fn number_in<T: Copy + Into<u64> + TryFrom<u64> + Display>(
        &mut self,
        key: &str,
        range: RangeInclusive<T>,
        default: T,
    ) -> T {
        let Some(number) = self.number(key) else {
            return default;
        };
        let (low, high) = (*range.start(), *range.end());
        match T::try_from(number) {
            Ok(fit) if (low.into()..=high.into()).contains(&number) => fit,
            _ => {
                let what = format!("out of range: {number}; must be between {low} and {high}");
                self.problem(key, what);
                default
            }
        }
    }

    pub(crate) fn float(&mut self, key: &str) -> Option<f64> {
        let of = |value: &Value| match value {
            Value::String(text) => text.parse().ok(),
            value => value.as_f64(),
        };
        self.parse(key, "a number", of)
    }

    pub(crate) fn flag(&mut self, key: &str) -> Option<bool> {
        self.parse(key, "true or false", Value::as_bool)
    }

    /// Elements of a list with their paths.
    pub(crate) fn list(&mut self, key: &str) -> Vec<(String, &'a Value)> {
        let Some(value) = self.take(key) else {
            return Vec::new();
        };
        let Some(list) = value.as_array() else {
            self.problem(key, "must be a list");
            return Vec::new();
        };
        if list.len() > LONGEST_LIST {
            let what = format!(
                "out of range: {} elements; at most {LONGEST_LIST}",
                list.len()
            );
            self.problem(key, what);
        }
        let path = self.at(key);
        let place = |(n, value)| (format!("{path}[{n}]"), value);
        let list = list.iter().take(LONGEST_LIST).enumerate();
        list.map(place).collect()
    }

    pub(crate) fn nodes(&mut self, key: &str) -> Vec<Node<'a>> {
        let problems = self.problems;
        let list = self.list(key).into_iter();
        list.map(|(path, value)| Node::new(path, value, problems))
            .collect()
    }

    pub(crate) fn texts(&mut self, key: &str) -> Vec<String> {
        let problems = self.problems;
        let list = self.list(key).into_iter();
        let texts = list.filter_map(|(path, value)| {
            if value.as_str().is_none() {
                problems.add(path, "must be a text");
            }
            value.as_str().map(str::to_owned)
        });
        texts.collect()
    }

    pub(crate) fn node(&mut self, key: &str) -> Option<Node<'a>> {
        let value = self.take(key)?;
        Some(Node::new(self.at(key), value, self.problems))
    }

    /// The object of a key; an empty one if it is missing.
    pub(crate) fn node_or_empty(&mut self, key: &str) -> Node<'a> {
        let path = self.at(key);
        self.node(key).unwrap_or(Node {
            path,
            keys: BTreeMap::new(),
            problems: self.problems,
        })
    }

    /// The value of `choice`. Without it, the only alternative that is present, else the default.
    pub(crate) fn choice(&mut self, alternatives: &[&str], default: &str) -> String {
        let given = self.text("choice");
        let mut present = alternatives.iter().filter(|key| self.has(key));
        let chosen = match (given, present.next()) {
            (Some(given), _) => given,
            (None, Some(first)) => (*first).to_owned(),
            (None, None) => return default.to_owned(),
        };
        for other in alternatives.iter().filter(|other| **other != chosen) {
            if self.take(other).is_some() {
                let what = format!("conflict: the choice is {chosen}, but {other} is present");
                self.problem("choice", what);
            }
        }
        chosen
    }

    /// Reports all keys that nothing has read.
    pub(crate) fn end(self) {
        for key in self.keys.keys() {
            self.unsupported(key, "");
        }
    }

    /// Reports a choice that is not supported.
    pub(crate) fn unknown_choice(mut self, choice: &str) {
        self.keys.remove(choice);
        self.unsupported(choice, "");
        self.end();
    }
}

/// A whole number, as a number or as a text.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64().or_else(|| {
            let float = value.as_f64()?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let number = float as u64;
            #[allow(clippy::cast_precision_loss)]
            let is_whole = (number as f64).to_bits() == float.to_bits();
            is_whole.then_some(number)
        }),
    }
}
