//! Problems of configurations and requests.

use std::cell::{Cell, RefCell};

use serde_json::{Value, json};
use wb_model::counted;

/// Problem of a configuration or a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// JSON path: `flows[2].tx_rx.port.tx_name`.
    pub path: String,
    /// The problem, and the allowed values.
    pub what: String,
    /// True if the request is valid, but this server does not support it.
    pub is_unsupported: bool,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.is_empty() {
            true => f.write_str(&self.what),
            false => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

impl Problem {
    /// A problem of a value.
    pub fn new(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            what: what.into(),
            is_unsupported: false,
        }
    }

    /// A value that is valid, but that this server does not support.
    pub fn unsupported(path: impl Into<String>, what: &str) -> Self {
        Self {
            is_unsupported: true,
            ..Self::new(path, format!("unsupported: {what}"))
        }
    }
}

/// HTTP status for these problems: 501 if all of them are about unsupported keys, else 400.
fn status(problems: &[Problem]) -> u16 {
    match !problems.is_empty() && problems.iter().all(|problem| problem.is_unsupported) {
        true => 501,
        false => 400,
    }
}

/// HTTP status and body of the answer to a request with problems.
#[must_use]
pub fn error_body(problems: &[Problem]) -> (u16, Value) {
    let code = status(problems);
    let errors: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let body = json!({ "code": code, "kind": "validation", "errors": errors });
    (code, body)
}

/// Maximum number of problems that an answer lists.
const MOST_PROBLEMS: usize = 100;
/// Maximum number of bytes of a path, and of the text of a problem.
const LONGEST_TEXT: usize = 400;

/// Shortens a text that may contain a part of the request.
fn shortened(text: impl Into<String>) -> String {
    let mut text = text.into();
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT)
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

/// Problems found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    listed: RefCell<Vec<Problem>>,
    /// Number of problems that are not listed, and of those among them that are about unsupported keys.
    others: Cell<(usize, usize)>,
}

impl Problems {
    pub(crate) fn add(&self, path: impl Into<String>, what: impl Into<String>) {
        self.push(path, what, false);
    }

    fn push(&self, path: impl Into<String>, what: impl Into<String>, is_unsupported: bool) {
        let mut listed = self.listed.borrow_mut();
        if listed.len() < MOST_PROBLEMS {
            listed.push(Problem {
                path: shortened(path),
                what: shortened(what),
                is_unsupported,
            });
        } else {
            let (all, unsupported) = self.others.get();
            let one = usize::from(is_unsupported);
            self.others.set((all + 1, unsupported + one));
        }
    }

    pub(crate) fn unsupported(&self, path: impl Into<String>, what: &str) {
        let what = match what {
            "" => "unsupported".to_owned(),
            what => format!("unsupported: {what}"),
        };
        self.push(path, what, true);
    }

    /// Number of problems found so far.
    pub(crate) fn count(&self) -> usize {
        self.listed.borrow().len() + self.others.get().0
    }

    pub(crate) fn into_result<T>(self, value: T) -> Result<T, Vec<Problem>> {
        let mut problems = self.listed.into_inner();
        let (others, unsupported) = self.others.get();
        if others > 0 {
            problems.push(Problem {
                is_unsupported: others == unsupported,
                ..Problem::new("", counted(others, "further problem", "further problems"))
            });
        }
        match problems.is_empty() {
            true => Ok(value),
            false => Err(problems),
        }
    }
}
