//! Command line options made from the types of a plan.
//!
//! A table lists the fields of a plan type that a command offers as options. The help of an option is the doc comment
//! of its field. The plan type's own `Deserialize` parses and checks the value. Knows clap and JSON schemas; does not
//! know commands.
//!
//! ```
//! use clap::Parser;
//! use wb_model::Stream;
//! use wb_options::{Opt, Typed};
//!
//! wb_options::options! {
//!     /// Rate and flows.
//!     Pace: Stream = Stream::default(), "Frames", [
//!         Opt::new("rate", "RATE"),
//!         Opt::new("flows", "N"),
//!     ]
//! }
//!
//! #[derive(Parser)]
//! struct Line {
//!     #[command(flatten)]
//!     pace: Typed<Pace>,
//! }
//! let line = Line::parse_from(["tx", "--flows", "2k"]);
//! assert_eq!(line.pace.value().flows, Some(2000));
//! ```

mod field;
mod help;

use std::{any::type_name, fmt::Debug, marker::PhantomData};

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
    parser::ValueSource,
};
use field::Field;
pub use field::words;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use wb_model::text::in_plain_words;

/// Option of a command: a field of a plan type.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    long: &'static str,
    key: &'static str,
    value: &'static str,
    subject: &'static str,
    help: &'static str,
    separator: Option<char>,
    more: fn(Arg) -> Arg,
}

impl Opt {
    /// Creates the option `--LONG VALUE` of the field `LONG`, with underscores for hyphens.
    #[must_use]
    pub const fn new(long: &'static str, value: &'static str) -> Self {
        Self {
            long,
            key: "",
            value,
            subject: "",
            help: "",
            separator: None,
            more: |arg| arg,
        }
    }

    /// Creates the option `--LONG` of a field that is true or false.
    #[must_use]
    pub const fn flag(long: &'static str) -> Self {
        Self::new(long, "")
    }

    /// Sets the key of the field, if it differs from the option. `tcp.window` is a field of the field `tcp`.
    #[must_use]
    pub const fn key(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    /// Names the object that the option is for, at the start of its help: `Sending port`.
    #[must_use]
    pub const fn of(self, subject: &'static str) -> Self {
        Self { subject, ..self }
    }

    /// Replaces the comment of the field, if the command differs from the plan, for example in its default.
    #[must_use]
    pub const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// Separates the values of a list with commas. Without it, the option is repeated for each value.
    #[must_use]
    pub const fn list(self) -> Self {
        Self {
            separator: Some(','),
            ..self
        }
    }

    /// Changes the declaration: short names, conflicts, requirements.
    #[must_use]
    pub const fn with(self, more: fn(Arg) -> Arg) -> Self {
        Self { more, ..self }
    }

    /// Id of the option, as of a derived one.
    fn id(&self) -> String {
        self.long.replace('-', "_")
    }

    /// Key of the field.
    fn path(&self) -> String {
        match self.key {
            "" => self.id(),
            key => key.to_owned(),
        }
    }

    fn arg<O: Options>(&self, schema: &Value) -> Arg {
        let path = self.path();
        let field = Field::find(schema, &path)
            .unwrap_or_else(|| panic!("--{}: {} has no {path}", self.long, type_name::<O::Of>()));
        let is_repeated = field.item().is_some() && self.separator.is_none();
        let comment = match self.help {
            "" => field.description(),
            help => help,
        };
        let (short, long) = help::texts(comment, self.subject, is_repeated, O::TABLE);
        let arg = Arg::new(self.id()).long(self.long).help(short);
        let arg = match long {
            Some(long) => arg.long_help(long),
            None => arg,
        };
        (self.more)(if field.is("boolean") {
            arg.action(ArgAction::SetTrue)
        } else {
            let (item, action) = match field.item() {
                Some(item) => (item, ArgAction::Append),
                None => (field, ArgAction::Set),
            };
            let arg = arg.action(action).value_name(self.value);
            let arg = match self.separator {
                Some(separator) => arg.value_delimiter(separator),
                None => arg,
            };
            match item.words() {
                Some(words) => arg.value_parser(one_of(words, O::TABLE)),
                None => arg.value_parser(move |text: &str| {
                    let value = item.parse(text)?;
                    let shown = if item.is_in_list {
                        vec![value.clone()].into()
                    } else {
                        value.clone()
                    };
                    changed(&O::base(), [(path.as_str(), &shown)]).map(|_: O::Of| value)
                }),
            }
        })
    }
}

/// Parser of a value that is one of some words.
fn one_of(
    words: Vec<(String, String)>,
    table: &[Opt],
) -> impl TypedValueParser<Value = Value> + use<> {
    let words = words.into_iter().map(|(word, meaning)| {
        let (meaning, _) = help::texts(&meaning, "", false, table);
        let value = PossibleValue::new(word);
        if meaning.is_empty() {
            value
        } else {
            value.help(meaning)
        }
    });
    PossibleValuesParser::new(words).map(Value::String)
}

/// Table of options: fields of a plan type.
pub trait Options: Clone + Debug + Send + Sync + 'static {
    /// Plan type.
    type Of: Clone + JsonSchema + Serialize + DeserializeOwned + 'static;
    /// Heading above the options in the help, or an empty text.
    const HEADING: &'static str;
    /// Options, in the order of the help.
    const TABLE: &'static [Opt];

    /// Returns the values without options. Values are checked as a part of it.
    fn base() -> Self::Of;
}

/// Declares a table of options: its name and plan type, the values without options, the heading and the options.
#[macro_export]
macro_rules! options {
    ($(#[$doc:meta])* $table:ident: $of:ty = $base:expr, $heading:literal, [$($option:expr),* $(,)?]) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $table;

        impl $crate::Options for $table {
            type Of = $of;
            const HEADING: &'static str = $heading;
            const TABLE: &'static [$crate::Opt] = &[$($option),*];

            fn base() -> $of {
                $base
            }
        }
    };
}

/// Options of the table `O` that a command line contains. Use it with `#[command(flatten)]`.
#[derive(Clone, Debug)]
pub struct Typed<O> {
    /// Key and value of each given option.
    given: Map<String, Value>,
    table: PhantomData<O>,
}

impl<O> Default for Typed<O> {
    fn default() -> Self {
        Self {
            given: Map::new(),
            table: PhantomData,
        }
    }
}

impl<O: Options> Typed<O> {
    /// Returns `base` with the given options. Each value was checked when the command line was parsed.
    ///
    /// # Panics
    /// If `base` has a value that its type does not read back, such as a number that is not finite.
    #[must_use]
    pub fn over(&self, base: &O::Of) -> O::Of {
        if self.given.is_empty() {
            return base.clone();
        }
        let given = self.given.iter().map(|(key, value)| (key.as_str(), value));
        changed(base, given).expect("values were checked, and the base is readable")
    }

    /// Returns the base of the table with the given options.
    #[must_use]
    pub fn value(&self) -> O::Of {
        self.over(&O::base())
    }

    /// Returns true if the option of the field `key` was given.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }

    /// Returns the first option that was given, in the order of the table: `--rate`.
    #[must_use]
    pub fn first(&self) -> Option<String> {
        let given = |option: &&Opt| self.has(&option.path());
        let first = O::TABLE.iter().find(given)?;
        Some(format!("--{}", first.long))
    }
}

impl<O: Options> Args for Typed<O> {
    fn augment_args(command: Command) -> Command {
        let schema = field::schema::<O::Of>();
        let command = command.next_help_heading((!O::HEADING.is_empty()).then_some(O::HEADING));
        let args = O::TABLE.iter().map(|option| option.arg::<O>(schema));
        command.args(args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<O: Options> FromArgMatches for Typed<O> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let schema = field::schema::<O::Of>();
        let mut typed = Self::default();
        for option in O::TABLE {
            let (id, path) = (option.id(), option.path());
            if matches.value_source(&id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let field = Field::find(schema, &path).expect("found when the option was declared");
            let value = if field.is("boolean") {
                Value::Bool(matches.get_flag(&id))
            } else {
                let values = matches.get_many::<Value>(&id).into_iter().flatten();
                let mut values: Vec<Value> = values.cloned().collect();
                match field.item() {
                    Some(_) => Value::Array(values),
                    None => values.pop().expect("an option that was given has a value"),
                }
            };
            typed.given.insert(path, value);
        }
        Ok(typed)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns `base` with the fields of `text`, such as `size=1518 rate=10kpps`. Keys are those of the plan. The table
/// `O` determines which lists are separated by commas; the others are repeated.
///
/// # Errors
/// The key that is unknown or has a value that does not parse, with the reason.
pub fn pairs<O: Options>(base: &O::Of, text: &str) -> Result<O::Of, String> {
    let schema = field::schema::<O::Of>();
    let mut given = Map::new();
    for pair in text.split_whitespace() {
        let (key, text) = pair
            .split_once('=')
            .ok_or_else(|| format!("expected KEY=VALUE, got {pair:?}"))?;
        let key = key.replace('-', "_");
        let Some(field) = Field::find(schema, &key) else {
            if !key.contains('.') {
                // The plan type knows similar keys.
                changed(base, [(key.as_str(), &Value::Null)])?;
            }
            return Err(format!("unknown key {key:?}"));
        };
        let option = O::TABLE.iter().find(|option| option.path() == key);
        let separator = option.and_then(|option| option.separator);
        let named = |error| format!("{key}: {error}");
        let value = match field.item() {
            None => field.parse(text).map_err(named)?,
            Some(item) => {
                let texts: Vec<&str> = match separator {
                    Some(separator) => text.split(separator).collect(),
                    None => vec![text],
                };
                let values = texts.into_iter().map(|text| item.parse(text));
                Value::Array(values.collect::<Result<_, _>>().map_err(named)?)
            }
        };
        changed(base, [(key.as_str(), &value)]).map_err(named)?;
        match (given.get_mut(&key), value) {
            (Some(Value::Array(list)), Value::Array(more)) if separator.is_none() => {
                list.extend(more);
            }
            (Some(_), _) => return Err(format!("{key} is given twice")),
            (None, value) => {
                given.insert(key, value);
            }
        }
    }
    changed(base, given.iter().map(|(key, value)| (key.as_str(), value)))
}

/// Returns `base` with other values of some fields.
fn changed<'a, T: Serialize + DeserializeOwned>(
    base: &T,
    fields: impl IntoIterator<Item = (&'a str, &'a Value)>,
) -> Result<T, String> {
    let mut form = serde_json::to_value(base).map_err(|error| error.to_string())?;
    for (path, value) in fields {
        // Indexing adds the objects that a default left out.
        let place = path.split('.').fold(&mut form, |form, key| &mut form[key]);
        place.clone_from(value);
    }
    serde_json::from_value(form).map_err(|error| in_plain_words(&error.to_string(), "key"))
}

#[cfg(test)]
mod tests;
