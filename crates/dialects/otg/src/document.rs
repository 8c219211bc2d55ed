//! JSON documents of clients.

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::Problem;

/// Maximum number of values in a document. A small value takes many times its text in memory.
pub(crate) const MOST_VALUES: u32 = 2_000_000;

/// Reads a JSON document. A key that an object has twice is an error, because clients and servers would take different
/// values.
///
/// # Errors
/// Returns the reason, with its line and column.
pub fn read_document(text: &[u8]) -> Result<Value, Problem> {
    let left = Cell::new(MOST_VALUES);
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = UniqueKeys { left: &left }.deserialize(&mut reader);
    let value = value.and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| match left.get() {
        0 => Problem::new("", format!("the body has more than {MOST_VALUES} values")),
        _ => Problem::new("", format!("the body is not valid JSON: {error}")),
    })
}

/// Reads any value. Refuses an object that has a key twice, and too many values.
#[derive(Clone, Copy)]
struct UniqueKeys<'c> {
    /// Number of values that may follow.
    left: &'c Cell<u32>,
}

impl UniqueKeys<'_> {
    fn count<E: Error>(self) -> Result<(), E> {
        self.left.set(self.left.get().saturating_sub(1));
        match self.left.get() {
            0 => Err(E::custom("too many values")),
            _ => Ok(()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            self.count()?;
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate key \"{key}\"")));
            }
            self.count()?;
            object.insert(key, entries.next_value_seed(self)?);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_read_as_they_are() {
        let text =
            br#" {"a": [1, -2, 2.5, 1e3, null, true, "x"], "b": {}, "c": 18446744073709551615} "#;
        let expected = json!({"a": [1, -2, 2.5, 1000.0, null, true, "x"], "b": {}, "c": u64::MAX});
        assert_eq!(read_document(text), Ok(expected));
    }

    #[test]
    fn documents_with_errors_are_refused_with_the_place() {
        let error = |text: &str| read_document(text.as_bytes()).unwrap_err().to_string();
        let twice = error("{\"flows\": [{\"name\": 1,\n \"name\": 2}]}");
        assert!(
            twice.contains("duplicate key \"name\" at line 2"),
            "{twice}"
        );
        for text in ["", "{", "{} {}", "[1,]", "nul", "\u{1}"] {
            assert!(error(text).contains("line 1"), "{text}");
        }
        let many = |values: usize| format!("[{}0]", "0,".repeat(values - 1));
        let most = MOST_VALUES as usize - 1;
        assert!(read_document(many(most).as_bytes()).is_ok());
        assert_eq!(
            error(&many(most + 1)),
            "the body has more than 2000000 values"
        );
        let deep = "[".repeat(10_000);
        assert!(error(&deep).contains("recursion limit"));
    }
}
