//! Validation of documents against their schemas.

use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde_json::Value;

/// Returns the first place where a document disagrees with the schema of its type.
///
/// # Panics
/// Never: plans, snapshots and reports have only types that JSON can hold.
#[must_use]
pub fn mismatch<T: Serialize + JsonSchema>(document: &T) -> Option<String> {
    let schema = schema_for!(T).to_value();
    let document = serde_json::to_value(document).expect("it has only types that JSON can hold");
    mismatch_with(&schema, &document)
}

/// Returns the first place where a document disagrees with a schema that this program printed.
#[must_use]
pub fn mismatch_with(schema: &Value, document: &Value) -> Option<String> {
    let name = schema["title"].as_str().unwrap_or("document");
    Schema(schema).check(document, schema, name).err()
}

/// Schema with the parts that it refers to. Supports the features that the types of this crate use.
struct Schema<'a>(&'a Value);

impl Schema<'_> {
    fn check(&self, value: &Value, schema: &Value, place: &str) -> Result<(), String> {
        if let Some(path) = schema["$ref"].as_str() {
            let part = self.0.pointer(path.trim_start_matches('#'));
            let part = part.ok_or_else(|| format!("{place}: the schema has no {path}"))?;
            return self.check(value, part, place);
        }
        for several in ["anyOf", "oneOf"] {
            let Some(all) = schema[several].as_array() else {
                continue;
            };
            let wrong: Vec<String> = all
                .iter()
                .filter_map(|one| self.check(value, one, place).err())
                .collect();
            if wrong.len() == all.len() {
                return Err(wrong.join("; "));
            }
        }
        let known = |list: &Value| list.as_array().is_none_or(|list| list.contains(value));
        if !known(&schema["enum"]) || schema.get("const").is_some_and(|only| only != value) {
            return Err(format!("{place}: {value} is not an allowed value"));
        }
        if !is_of_type(value, &schema["type"]) {
            return Err(format!(
                "{place}: {value} is not of type {}",
                schema["type"]
            ));
        }
        let below = schema["minimum"].as_f64().zip(value.as_f64());
        if below.is_some_and(|(least, value)| value < least) {
            return Err(format!("{place}: {value} is too small"));
        }
        match value {
            Value::Object(fields) => self.check_fields(fields, schema, place),
            Value::Array(items) if schema["items"].is_object() => items
                .iter()
                .try_for_each(|item| self.check(item, &schema["items"], &format!("{place}[]"))),
            _ => Ok(()),
        }
    }

    fn check_fields(
        &self,
        fields: &serde_json::Map<String, Value>,
        schema: &Value,
        place: &str,
    ) -> Result<(), String> {
        let required = schema["required"].as_array().into_iter().flatten();
        for key in required.filter_map(Value::as_str) {
            if !fields.contains_key(key) {
                return Err(format!("{place}: missing key {key}"));
            }
        }
        // Maps have arbitrary keys.
        let others = &schema["additionalProperties"];
        if !schema["properties"].is_object() && !others.is_object() {
            return Ok(());
        }
        for (key, value) in fields {
            let place = format!("{place}.{key}");
            match schema["properties"].get(key) {
                Some(known) => self.check(value, known, &place)?,
                None if others.is_object() => self.check(value, others, &place)?,
                None => return Err(format!("{place}: unknown key")),
            }
        }
        Ok(())
    }
}

fn is_of_type(value: &Value, wanted: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Plan, Report};

    #[test]
    fn documents_are_what_their_schemas_say() {
        assert_eq!(mismatch(&Plan::default()), None);
        assert_eq!(mismatch(&Report::default()), None);
    }

    #[test]
    fn a_plan_has_a_known_kind() {
        let kind = |kind: &str| Plan {
            kind: kind.to_owned(),
            ..Plan::default()
        };
        for known in crate::plan::PLAN_KINDS {
            assert_eq!(mismatch(&kind(known)), None);
        }
        let found = mismatch(&kind("trail")).expect("not a kind");
        assert!(found.contains("kind"), "{found}");
    }

    #[test]
    fn what_is_not_is_told_with_its_place() {
        let schema = schema_for!(Report).to_value();
        let report = serde_json::to_value(Report::default()).unwrap();
        for (path, value, said) in [
            ("/elapsed_ns", json!(-1), "elapsed_ns"),
            ("/elapsed_ns", json!("1"), "not of type"),
            ("/verdict", json!("maybe"), "not an allowed value"),
            ("/totals/lost_frames", json!(0.5), "totals.lost_frames"),
            ("/plan", json!({"speed": 1}), "plan.speed: unknown key"),
            ("/warnings", json!([1]), "warnings[]"),
            ("/latency_ns", json!({}), "missing key samples"),
        ] {
            let mut wrong = report.clone();
            *wrong.pointer_mut(path).unwrap() = value;
            let found = Schema(&schema).check(&wrong, &schema, "report");
            let text = found.expect_err(path);
            assert!(text.contains(said), "{path}: {text}");
        }
    }
}
