//! Access to requests: tokens and roles.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    body::{Body, to_bytes},
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    answer::ApiError,
    tokens::{Role, TokenFile, Tokens},
};

/// Number of false tokens from an address in [`WINDOW`], after which further ones are answered with 429.
const MOST_FAILURES: u32 = 10;
/// Time after which the failures of an address are forgotten.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum size of a body, in bytes.
const MOST_BODY: usize = 64 << 20;
/// Time in which a body has to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of addresses with remembered failures.
const MOST_ADDRESSES: usize = 10_000;

/// Authentication of the clients of a listener.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// No authentication: each client has all roles.
    Open,
    /// By tokens.
    Tokens(Arc<Guarded>),
}

/// Tokens, and the failures of clients without a valid one.
#[derive(Debug)]
pub(crate) struct Guarded {
    tokens: Tokens,
    failures: Mutex<BTreeMap<IpAddr, (u32, Instant)>>,
}

/// Permission of a client that makes a request.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    access: Access,
    token: String,
}

impl Ticket {
    /// Returns false once the token was removed or has expired.
    pub(crate) fn is_valid(&self) -> bool {
        match &self.access {
            Access::Open => true,
            Access::Tokens(guarded) => guarded.tokens.role_of(&self.token).is_some(),
        }
    }
}

/// The token in the headers of a request.
fn token_in(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| token.trim())
}

impl Access {
    pub(crate) fn by_tokens(file: TokenFile) -> Self {
        Self::Tokens(Arc::new(Guarded {
            tokens: Tokens::new(file),
            failures: Mutex::default(),
        }))
    }

    /// The role of a client.
    fn role(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<Role, ApiError> {
        let Self::Tokens(guarded) = self else {
            return Ok(Role::Admin);
        };
        let Some(token) = token_in(headers) else {
            return Err(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "a token is needed: Authorization: Bearer wbt_…",
            ));
        };
        match guarded.tokens.role_of(token) {
            Some(role) => Ok(role),
            None => Err(guarded.refusal(from)),
        }
    }
}

impl Guarded {
    /// The answer to a false token.
    fn refusal(&self, from: Option<IpAddr>) -> ApiError {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MOST_ADDRESSES {
            failures.retain(|_, (_, since)| since.elapsed() < WINDOW);
        }
        let mut failed = 0;
        if let Some(address) = from.filter(|_| failures.len() < MOST_ADDRESSES) {
            let known = failures.entry(address).or_insert((0, Instant::now()));
            if known.1.elapsed() >= WINDOW {
                *known = (0, Instant::now());
            }
            known.0 += 1;
            failed = known.0;
        }
        match failed > MOST_FAILURES {
            true => ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too many false tokens"),
            false => ApiError::new(StatusCode::UNAUTHORIZED, "the token is not valid"),
        }
    }
}

/// Lets a request pass if its client has at least this role. The handler finds the role in the extensions.
pub(crate) async fn require(
    State((access, least)): State<(Access, Role)>,
    request: Request,
    next: Next,
) -> Response {
    let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let from = from.map(|ConnectInfo(address)| address.ip());
    let role = match access.role(request.headers(), from) {
        Ok(role) => role,
        Err(error) => {
            let mut response = error.into_response();
            let bearer = header::HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, bearer);
            return response;
        }
    };
    if role < least {
        let what = format!(
            "the role {} is needed; the token has {}",
            least.name(),
            role.name()
        );
        return ApiError::new(StatusCode::FORBIDDEN, what).into_response();
    }
    let ticket = Ticket {
        access,
        token: token_in(request.headers()).unwrap_or_default().to_owned(),
    };
    let (mut parts, body) = request.into_parts();
    let read = tokio::time::timeout(PATIENCE, to_bytes(body, MOST_BODY)).await;
    let body = match read {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let what = format!(
                "the body is larger than {} MiB, or ends too soon",
                MOST_BODY >> 20
            );
            return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, what).into_response();
        }
        Err(_) => {
            let what = "the body did not arrive in time";
            return ApiError::new(StatusCode::REQUEST_TIMEOUT, what).into_response();
        }
    };
    parts.extensions.insert(role);
    parts.extensions.insert(ticket);
    next.run(Request::from_parts(parts, Body::from(body))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_false_tokens_are_refused_by_address() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path());
        let valid = file.add("ci", Role::Run, None).unwrap();
        let access = Access::by_tokens(file);
        let of = |token: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
            headers
        };
        let status = |token: &str, from: &str| match access.role(&of(token), from.parse().ok()) {
            Ok(_) => 200,
            Err(error) => error.into_response().status().as_u16(),
        };
        assert!(access.role(&HeaderMap::new(), None).is_err());
        for n in 0..12 {
            let expected = if n < MOST_FAILURES { 401 } else { 429 };
            assert_eq!(status("wbt_1_2", "10.0.0.1"), expected, "{n}");
        }
        assert_eq!(status("wbt_1_2", "10.0.0.2"), 401);
        // A client that guesses does not lock out others with its address.
        assert_eq!(status(&valid, "10.0.0.1"), 200);
    }
}
