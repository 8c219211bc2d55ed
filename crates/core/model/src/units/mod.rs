//! Quantities as the user writes them: parsed exactly, and printed in a form that parses again.

mod addr;
pub(crate) mod count;
mod mac;
mod rate;
mod rational;
mod size;
mod span;

pub use addr::{AddressRange, PortRange};
pub use count::largest;
pub use mac::Mac;
pub use rate::{Rate, WIRE_OVERHEAD, parse_count, parse_number};
pub use rational::Rational;
pub use size::{FrameSize, IMIX, MAX_MIX_WEIGHT, SizeModel, parse_size};
pub use span::Span;

/// Error of a value that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseUnitError {
    /// Value of another form.
    #[error("{text:?} is not {expected}")]
    Form {
        /// Text of the user.
        text: String,
        /// Allowed values, as the rest of a sentence that begins "is not".
        expected: String,
    },
    /// Number of the right form that exceeds the largest value.
    #[error("{text:?} is too large; the largest is {largest}")]
    TooLarge {
        /// Text of the user.
        text: String,
        /// Largest value.
        largest: String,
    },
}

impl ParseUnitError {
    /// Creates an error for `text`; `expected` completes "… is not …".
    pub fn new(text: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Form {
            text: text.into(),
            expected: expected.into(),
        }
    }

    /// Creates an error for a number beyond `largest`.
    pub fn too_large(text: impl Into<String>, largest: impl Into<String>) -> Self {
        Self::TooLarge {
            text: text.into(),
            largest: largest.into(),
        }
    }
}

/// Implements serde and the schema for a type that is written as a string (or a bare number, if that parses).
macro_rules! string_serde {
    ($type:ty, $title:literal, $description:literal, $example:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!($description, ", such as \"", $example, "\""))
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<$type, E> {
                        n.to_string().parse().map_err(E::custom)
                    }
                    fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<$type, E> {
                        n.to_string().parse().map_err(E::custom)
                    }
                    fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<$type, E> {
                        n.to_string().parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $title.into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": ["string", "integer"],
                    "description": $description,
                    "examples": [$example],
                })
            }
        }
    };
}
pub(crate) use string_serde;
