//! Problems of configurations and requests.

use std::cell::RefCell;

use serde_json::{Value, json};

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

/// Problems found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(crate) fn add(&self, path: impl Into<String>, what: impl Into<String>) {
        self.0.borrow_mut().push(Problem::new(path, what));
    }

    pub(crate) fn unsupported(&self, path: impl Into<String>, what: &str) {
        let what = match what {
            "" => "unsupported".to_owned(),
            what => format!("unsupported: {what}"),
        };
        self.0.borrow_mut().push(Problem {
            is_unsupported: true,
            ..Problem::new(path, what)
        });
    }

    /// Number of problems found so far.
    pub(crate) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    pub(crate) fn into_result<T>(self, value: T) -> Result<T, Vec<Problem>> {
        let problems = self.0.into_inner();
        match problems.is_empty() {
            true => Ok(value),
            false => Err(problems),
        }
    }
}
