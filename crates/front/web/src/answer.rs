//! Answers: JSON documents and errors.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;
use wb_model::{PlanProblem, powers::PowerUse};
use wb_runs::{Concern, HeldPort, Refusal};

/// Maximum length of a text in an error, in characters: a request may be quoted there.
const MOST_TEXT: usize = 1000;

/// The beginning of a text that is too long.
fn shortened(text: impl Into<String>) -> String {
    let mut text = text.into();
    if let Some((end, _)) = text.char_indices().nth(MOST_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Body of every answer to a request that failed.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// The error in a few words.
    pub(crate) error: String,
    /// Each problem with its place.
    pub(crate) problems: Vec<Problem>,
    /// Powers that the plan uses and that the server does not grant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) powers: Vec<PowerUse>,
    /// Concerns to confirm with `isolated`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) concerns: Vec<Concern>,
    /// Ports that are in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) held: Vec<HeldPort>,
}

/// A problem and its place.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// Place in the plan or the request: `traffic 2, rx`.
    pub(crate) place: String,
    /// The problem, and the allowed values.
    pub(crate) what: String,
}

/// Error with its status.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: Box<ErrorBody>,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            body: Box::new(ErrorBody {
                error: shortened(error),
                ..ErrorBody::default()
            }),
        }
    }

    /// A request that cannot be understood.
    pub(crate) fn bad(place: &str, what: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "the request is not valid").at(place, what)
    }

    /// Something that does not exist.
    pub(crate) fn unknown(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("no such {what}"))
    }

    /// A defect of the program.
    pub(crate) fn internal(error: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    /// The error in a few words.
    pub(crate) fn text(&self) -> &str {
        &self.body.error
    }

    /// HTTP status.
    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    /// Adds a problem.
    pub(crate) fn at(mut self, place: impl Into<String>, what: impl Into<String>) -> Self {
        self.body.problems.push(Problem {
            place: shortened(place),
            what: shortened(what),
        });
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(*self.body)).into_response()
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = match &refusal {
            Refusal::Plan(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Powers(_) | Refusal::Offered(_) => StatusCode::FORBIDDEN,
            Refusal::Concerns(_) | Refusal::Held(_) | Refusal::Busy(_) => StatusCode::CONFLICT,
            Refusal::Stopping | Refusal::Waiting(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Full => StatusCode::INSUFFICIENT_STORAGE,
            Refusal::Store(_) | Refusal::Machine(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let text = match &refusal {
            Refusal::Plan(_) => "the plan is not valid".to_owned(),
            other => other.to_string(),
        };
        let error = Self::new(status, text);
        match refusal {
            Refusal::Plan(plan) => with_problems(error, &plan.0),
            Refusal::Powers(powers) => {
                let mut error = powers.iter().fold(error, |error, used| {
                    let what = format!("needs {}: {}", used.power.name(), used.value);
                    error.at(used.place.clone(), what)
                });
                error.body.powers = powers;
                error
            }
            Refusal::Offered(ports) => ports.into_iter().fold(error, |error, port| {
                error.at(port, "is not a port of this server (--ports)")
            }),
            Refusal::Concerns(concerns) => {
                let mut error = concerns.iter().fold(error, |error, concern| {
                    error.at(concern.port.clone(), concern.why.clone())
                });
                error.body.concerns = concerns;
                error
            }
            Refusal::Held(held) => {
                let mut error = held.iter().fold(error, |error, port| {
                    error.at(port.port.clone(), port.in_words())
                });
                error.body.held = held;
                error
            }
            _ => error,
        }
    }
}

/// Adds the problems of a plan.
fn with_problems(error: ApiError, problems: &[PlanProblem]) -> ApiError {
    problems.iter().fold(error, |error, problem| {
        error.at(problem.place.clone(), problem.what.clone())
    })
}

/// Does work that waits for files or the kernel, outside of the threads that serve requests.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(ApiError::internal(
            "a defect of the program; standard error of the server has the place",
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_quote_little_of_a_request() {
        let long = "µ".repeat(2 * MOST_TEXT);
        let error = ApiError::bad(&long, long.as_str());
        let [problem] = error.body.problems.as_slice() else {
            panic!("one problem");
        };
        for text in [&problem.place, &problem.what] {
            assert_eq!(text.chars().count(), MOST_TEXT + 1);
        }
        assert_eq!(shortened("short"), "short");
    }
}
