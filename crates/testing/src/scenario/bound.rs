//! Permitted values of JSON.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

/// A value or a range: `5`, `"pass"`, `[1, 2]`, `">= 5"`, `"3..5"` (both included), `"!= null"`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bound {
    Is(Value),
    Not(Value),
    Above(f64),
    AtLeast(f64),
    Below(f64),
    AtMost(f64),
    Between(f64, f64),
}

impl Bound {
    /// With the variables in its text replaced.
    pub(super) fn replaced(&self, replace: &dyn Fn(&str) -> String) -> Self {
        match self {
            Self::Is(value) => Self::Is(replaced(value, replace)),
            Self::Not(value) => Self::Not(replaced(value, replace)),
            other => other.clone(),
        }
    }

    pub(super) fn holds(&self, value: &Value) -> bool {
        let number = |test: &dyn Fn(f64) -> bool| value.as_f64().is_some_and(test);
        match self {
            Self::Is(expected) => same(expected, value),
            Self::Not(other) => !same(other, value),
            Self::Above(least) => number(&|n| n > *least),
            Self::AtLeast(least) => number(&|n| n >= *least),
            Self::Below(most) => number(&|n| n < *most),
            Self::AtMost(most) => number(&|n| n <= *most),
            Self::Between(least, most) => number(&|n| (*least..=*most).contains(&n)),
        }
    }
}

/// The value with the variables in its texts replaced.
fn replaced(value: &Value, replace: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::from(replace(text)),
        Value::Array(all) => all.iter().map(|one| replaced(one, replace)).collect(),
        Value::Object(all) => all
            .iter()
            .map(|(key, one)| (key.clone(), replaced(one, replace)))
            .collect(),
        other => other.clone(),
    }
}

/// Equality by which 1 is 1.0.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}

/// A number with `_` between its digits.
fn number(text: &str) -> Option<f64> {
    text.trim().replace('_', "").parse().ok()
}

fn parse(text: &str) -> Result<Bound, String> {
    // Longer signs first.
    type Make = fn(f64) -> Bound;
    let signs: [(&str, Make); 4] = [
        (">=", Bound::AtLeast),
        ("<=", Bound::AtMost),
        (">", Bound::Above),
        ("<", Bound::Below),
    ];
    if let Some(other) = text.strip_prefix("!=") {
        let other = other.trim();
        let value = serde_json::from_str(other).unwrap_or_else(|_| Value::from(other));
        return Ok(Bound::Not(value));
    }
    for (sign, make) in signs {
        if let Some(rest) = text.strip_prefix(sign) {
            return number(rest)
                .map(make)
                .ok_or_else(|| format!("`{text}` is no bound"));
        }
    }
    if let Some((least, most)) = text.split_once("..")
        && let (Some(least), Some(most)) = (number(least), number(most))
    {
        return Ok(Bound::Between(least, most));
    }
    Ok(Bound::Is(Value::from(text)))
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => parse(&text).map_err(D::Error::custom),
            value => Ok(Self::Is(value)),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(value) => write!(f, "{value}"),
            Self::Not(value) => write!(f, "not {value}"),
            Self::Above(least) => write!(f, "more than {least}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::Below(most) => write!(f, "less than {most}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::Between(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bound(of: Value) -> Bound {
        serde_json::from_value(of).unwrap()
    }

    #[test]
    fn bounds_hold_or_do_not() {
        for (of, good, bad) in [
            (json!(5), json!(5.0), json!(6)),
            (json!("pass"), json!("pass"), json!("fail")),
            (json!(">= 5"), json!(5), json!(4.9)),
            (json!("> 5"), json!(5.1), json!(5)),
            (json!("<= 1_000"), json!(1000), json!(1001)),
            (json!("< 5"), json!(-1), json!(5)),
            (json!("3..5"), json!(5), json!(5.5)),
            (json!("!= null"), json!(0), json!(null)),
            (json!("!= fail"), json!("pass"), json!("fail")),
            (json!([1, 2]), json!([1.0, 2]), json!([2, 1])),
            (json!({"a": 1}), json!({"a": 1.0}), json!({"a": 1, "b": 2})),
        ] {
            let bound = bound(of);
            assert!(bound.holds(&good), "{bound}: {good}");
            assert!(!bound.holds(&bad), "{bound}: {bad}");
        }
    }

    #[test]
    fn a_number_is_asked_of_numbers_only() {
        assert!(!bound(json!(">= 0")).holds(&Value::Null));
        assert!(!bound(json!("< 5")).holds(&json!("4")));
    }

    #[test]
    fn text_with_two_dots_is_text() {
        assert_eq!(
            bound(json!("198.18.1.2..3")),
            Bound::Is(json!("198.18.1.2..3"))
        );
        assert_eq!(bound(json!("a..b")), Bound::Is(json!("a..b")));
    }
}
