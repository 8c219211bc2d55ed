//! Fields of a plan type, as its JSON schema describes them.

use std::{
    any::TypeId,
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Number, Value};
use wb_model::units::{ParseUnitError, parse_count};

/// Schemas made so far. Many commands have options of the same types, and a program declares all commands at its start.
static SCHEMAS: LazyLock<Mutex<HashMap<TypeId, &'static Value>>> = LazyLock::new(Mutex::default);

/// Returns the schema of a type, without references.
pub(crate) fn schema<T: JsonSchema + 'static>() -> &'static Value {
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    schemas.entry(TypeId::of::<T>()).or_insert_with(|| {
        let settings = SchemaSettings::default().with(|s| s.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>();
        Box::leak(Box::new(schema.to_value()))
    })
}

/// Schema of one field, or of one item of a list.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    schema: Value,
    /// True for the item of a list.
    pub(crate) is_in_list: bool,
}

impl Field {
    /// Returns the field with this key; `tcp.window` is a field of the field `tcp`.
    pub(crate) fn find(schema: &Value, path: &str) -> Option<Self> {
        let found = path.split('.').try_fold(schema, |schema, key| {
            some(schema).get("properties")?.get(key)
        })?;
        Some(Self {
            schema: found.clone(),
            is_in_list: false,
        })
    }

    /// Returns the doc comment.
    pub(crate) fn description(&self) -> &str {
        self.schema["description"].as_str().unwrap_or_default()
    }

    /// Returns the items of a list.
    pub(crate) fn item(&self) -> Option<Self> {
        let schema = some(&self.schema).get("items")?;
        Some(Self {
            schema: schema.clone(),
            is_in_list: true,
        })
    }

    /// Returns true if all values are of this JSON type. A quantity with a unit may also be a number, but is text.
    pub(crate) fn is(&self, kind: &str) -> bool {
        match &some(&self.schema)["type"] {
            Value::Array(kinds) => kinds.iter().all(|k| k == kind || k == "null"),
            one => one == kind,
        }
    }

    /// Returns the allowed words with their meanings, if all values are words.
    pub(crate) fn words(&self) -> Option<Vec<(String, String)>> {
        words(some(&self.schema))
    }

    /// Returns the JSON form of a value. Whole numbers may be hexadecimal (0x10) or have k, m or g.
    ///
    /// # Errors
    /// The allowed range, for numbers outside of it.
    pub(crate) fn parse(&self, text: &str) -> Result<Value, String> {
        if self.is("integer") {
            return self.whole(text).map(Value::from);
        }
        let other = || Value::String(text.to_owned());
        Ok(match text {
            "true" | "false" if self.is("boolean") => Value::Bool(text == "true"),
            _ if self.is("number") => {
                let number = text.parse().ok().and_then(Number::from_f64);
                number.map_or_else(other, Value::Number)
            }
            _ => other(),
        })
    }

    fn whole(&self, text: &str) -> Result<u64, String> {
        let schema = some(&self.schema);
        let least = schema["minimum"].as_u64().unwrap_or(0);
        let most = match (schema["maximum"].as_u64(), schema["format"].as_str()) {
            (Some(most), _) => most,
            (None, Some("uint32")) => u32::MAX.into(),
            (None, _) => u64::MAX,
        };
        let number = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16)
                .map_err(|_| ParseUnitError::new(text, "a hexadecimal number")),
            None => parse_count(text),
        };
        match number {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            Err(error @ ParseUnitError::Form { .. }) => Err(error.to_string()),
            Err(error) if most == u64::MAX => Err(error.to_string()),
            _ if most == u64::MAX => Err(format!("must be at least {least}")),
            _ => Err(format!("must be between {least} and {most}")),
        }
    }
}

/// Returns the schema of the values that are not null.
fn some(schema: &Value) -> &Value {
    let any = schema["anyOf"].as_array().into_iter().flatten();
    let mut others = any.filter(|one| one["type"] != "null");
    match (others.next(), others.next()) {
        (Some(only), None) => only,
        _ => schema,
    }
}

/// Returns the allowed words with their meanings, if a schema allows nothing else.
#[must_use]
pub fn words(schema: &Value) -> Option<Vec<(String, String)>> {
    let meaning = schema["description"].as_str().unwrap_or_default();
    if let Some(word) = schema["const"].as_str() {
        return Some(vec![(word.to_owned(), meaning.replace('\n', " "))]);
    }
    if let Some(all) = schema["enum"].as_array() {
        let all = all.iter().filter_map(Value::as_str);
        return Some(all.map(|word| (word.to_owned(), String::new())).collect());
    }
    let parts = schema["oneOf"].as_array()?.iter().map(words);
    let parts: Option<Vec<_>> = parts.collect();
    parts.map(|parts| parts.concat())
}
