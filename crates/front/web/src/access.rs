//! Access to requests: tokens and roles.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Extension, Json,
    body::{Body, Bytes, to_bytes},
    extract::{ConnectInfo, Request, State, rejection::BytesRejection},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    answer::{ApiError, ApiResult, blocking},
    runs::{App, parsed},
    tls::HasCertificate,
    tokens::{Role, TokenFile, Tokens, digest_of, is_same, random_token},
};

/// Number of false tokens from an address in [`WINDOW`], after which further ones are answered with 429.
const MOST_FAILURES: u32 = 10;
/// Time after which the failures of an address are forgotten.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum size of a body, in bytes.
pub(crate) const MOST_BODY: usize = 64 << 20;
/// Maximum size of a body from a client that is not known, in bytes.
const MOST_PUBLIC_BODY: usize = 64 << 10;
/// Name of the cookie that has the token of a browser.
const COOKIE: &str = "wb";
/// Time for which a browser stays logged in by a token that can be used once.
const BROWSER: Duration = Duration::from_secs(30 * 86_400);
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
    /// Digest of the token that a browser can use once.
    once: Mutex<Option<String>>,
    failures: Mutex<BTreeMap<IpAddr, (u32, Instant)>>,
}

/// Permission of a client that makes a request.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    access: Access,
    token: String,
    /// Name of the client.
    pub(crate) name: String,
    /// Rights of the client.
    pub(crate) role: Role,
}

impl Ticket {
    /// Returns false once the token was removed or has expired.
    pub(crate) fn is_valid(&self) -> bool {
        match &self.access {
            Access::Open => true,
            // A certificate is valid for as long as its connection lasts.
            Access::Tokens(_) if self.token.is_empty() => true,
            Access::Tokens(guarded) => guarded.tokens.find(&self.token).is_some(),
        }
    }

    /// Returns false if each client has all roles without a token.
    pub(crate) const fn is_authenticated(&self) -> bool {
        matches!(self.access, Access::Tokens(_))
    }
}

/// The token in the headers of a request, for which only a program can set this header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| token.trim())
}

/// The token in the cookie that a browser sends.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter();
    let pairs = all.filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// Value of a `Set-Cookie` header. No script can read the cookie, and a browser sends it only with requests of pages of
/// this server; an empty token removes it.
fn set_cookie(token: &str, is_encrypted: bool) -> String {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let age = match token {
        "" => 0,
        _ => BROWSER.as_secs(),
    };
    format!("{COOKIE}={token}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
}

impl Access {
    pub(crate) fn by_tokens(file: TokenFile) -> Self {
        Self::Tokens(Arc::new(Guarded {
            tokens: Tokens::new(file),
            once: Mutex::default(),
            failures: Mutex::default(),
        }))
    }

    /// Makes a token that a browser can use once to log in. Returns its text; none without authentication.
    pub(crate) fn once(&self) -> io::Result<Option<String>> {
        let Self::Tokens(guarded) = self else {
            return Ok(None);
        };
        let token = random_token()?;
        *lock(&guarded.once) = Some(digest_of(token.as_bytes()));
        Ok(Some(token))
    }

    /// Permission of the client that makes a request.
    pub(crate) fn ticket(&self, parts: &Parts) -> Result<Ticket, ApiError> {
        let from = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let from = from.map(|ConnectInfo(address)| address.ip());
        let changes = !matches!(parts.method, Method::GET | Method::HEAD);
        let certificate = parts.extensions.get::<HasCertificate>();
        let has_certificate = certificate.is_some_and(|HasCertificate(known)| *known);
        self.admit(&parts.headers, changes, from, has_certificate)
    }

    /// Permission of a client.
    fn admit(
        &self,
        headers: &HeaderMap,
        changes: bool,
        from: Option<IpAddr>,
        has_certificate: bool,
    ) -> Result<Ticket, ApiError> {
        let Self::Tokens(guarded) = self else {
            return Ok(Ticket {
                access: self.clone(),
                token: String::new(),
                name: String::new(),
                role: Role::Admin,
            });
        };
        let by_cookie = bearer(headers).is_none();
        let Some(token) = bearer(headers).or_else(|| cookie(headers)) else {
            // A browser sends a certificate with requests of pages of other sites, too; those have an origin, which
            // the guard has compared.
            if has_certificate {
                return Ok(Ticket {
                    access: self.clone(),
                    token: String::new(),
                    name: "certificate".to_owned(),
                    role: Role::Run,
                });
            }
            return Err(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "a token is needed: Authorization: Bearer wbt_…",
            ));
        };
        // The guard has compared the origin with the host.
        if by_cookie && changes && !headers.contains_key(header::ORIGIN) {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "with a cookie, requests that change something need an Origin",
            ));
        }
        let entry = guarded.tokens.find(token);
        let entry = entry.ok_or_else(|| guarded.refusal(from))?;
        Ok(Ticket {
            access: self.clone(),
            token: token.to_owned(),
            name: entry.name,
            role: entry.role,
        })
    }
}

/// Request to log in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// A token.
    token: String,
}

/// A client that has logged in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionDocument {
    /// Name of its token.
    name: String,
    /// Its rights.
    role: Role,
    /// False if clients need no token here.
    authenticated: bool,
}

/// Sets the cookie of a browser. A token that can be used once is exchanged for one of this browser.
pub(crate) async fn log_in(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    body: Result<Bytes, BytesRejection>,
) -> ApiResult<Response> {
    let login: Login = parsed(body)?;
    let from = from.map(|Extension(ConnectInfo(address))| address.ip());
    let Access::Tokens(guarded) = access else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    blocking(move || {
        let mut token = login.token;
        let is_once = lock(&guarded.once)
            .take_if(|once| is_same(once, &digest_of(token.as_bytes())))
            .is_some();
        if is_once {
            let made = app.tokens.add("browser", Role::Admin, Some(BROWSER));
            token = made.map_err(ApiError::internal)?;
        }
        match guarded.tokens.find(&token) {
            Some(_) => Ok(with_cookie(&token, app.is_encrypted)),
            None => Err(guarded.refusal(from)),
        }
    })
    .await
}

/// Removes the cookie of a browser.
pub(crate) async fn log_out(State(app): State<App>) -> Response {
    with_cookie("", app.is_encrypted)
}

fn with_cookie(token: &str, is_encrypted: bool) -> Response {
    let cookie = set_cookie(token, is_encrypted);
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}

pub(crate) async fn session(Extension(ticket): Extension<Ticket>) -> Json<SessionDocument> {
    Json(SessionDocument {
        authenticated: ticket.is_authenticated(),
        name: ticket.name,
        role: ticket.role,
    })
}

impl Guarded {
    /// The answer to a false token.
    fn refusal(&self, from: Option<IpAddr>) -> ApiError {
        let mut failures = lock(&self.failures);
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a request pass if its client has at least this role; public requests need no role. Then reads the body. The
/// handler finds the access of the listener and the ticket of the client in the extensions.
pub(crate) async fn require(
    State((access, least)): State<(Access, Option<Role>)>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let most = match least {
        None => MOST_PUBLIC_BODY,
        Some(least) => {
            match access.ticket(&parts) {
                Ok(ticket) if ticket.role >= least => parts.extensions.insert(ticket),
                Ok(ticket) => return too_low(least, ticket.role).into_response(),
                Err(error) => {
                    let bearer = [(header::WWW_AUTHENTICATE, "Bearer")];
                    return (bearer, error).into_response();
                }
            };
            MOST_BODY
        }
    };
    match read_body(body, most).await {
        Ok(body) => {
            parts.extensions.insert(access);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(error) => error.into_response(),
    }
}

/// Reads a body of at most this number of bytes, in limited time.
pub(crate) async fn read_body(body: Body, most: usize) -> Result<Body, ApiError> {
    let read = tokio::time::timeout(PATIENCE, to_bytes(body, most)).await;
    match read {
        Ok(Ok(body)) => Ok(Body::from(body)),
        Ok(Err(_)) => {
            let what = format!("the body is larger than {most} bytes, or ends too soon");
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, what))
        }
        Err(_) => {
            let what = "the body did not arrive in time";
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, what))
        }
    }
}

fn too_low(least: Role, own: Role) -> ApiError {
    let (least, own) = (least.name(), own.name());
    let what = format!("the role {least} is needed; the token has {own}");
    ApiError::new(StatusCode::FORBIDDEN, what)
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
        let status = |token: &str, from: &str| match access.admit(
            &of(token),
            true,
            from.parse().ok(),
            false,
        ) {
            Ok(_) => 200,
            Err(error) => error.into_response().status().as_u16(),
        };
        assert!(access.admit(&HeaderMap::new(), false, None, false).is_err());
        for n in 0..12 {
            let expected = if n < MOST_FAILURES { 401 } else { 429 };
            assert_eq!(status("wbt_1_2", "10.0.0.1"), expected, "{n}");
        }
        assert_eq!(status("wbt_1_2", "10.0.0.2"), 401);
        // A client that guesses does not lock out others with its address.
        assert_eq!(status(&valid, "10.0.0.1"), 200);
    }

    #[test]
    fn a_cookie_needs_the_origin_of_a_page_to_change_something() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path());
        let valid = file.add("browser", Role::Run, None).unwrap();
        let access = Access::by_tokens(file);
        let mut headers = HeaderMap::new();
        let cookies = format!("other=1; wb={valid}; wbx=2");
        headers.insert(header::COOKIE, cookies.parse().unwrap());
        assert_eq!(
            access.admit(&headers, false, None, false).unwrap().name,
            "browser"
        );
        assert!(access.admit(&headers, true, None, false).is_err());
        headers.insert(header::ORIGIN, "https://localhost".parse().unwrap());
        assert!(access.admit(&headers, true, None, false).is_ok());
        let made = set_cookie(&valid, true);
        assert!(
            made.ends_with("; HttpOnly; SameSite=Strict; Secure"),
            "{made}"
        );
        assert!(set_cookie("", false).contains("wb=; Path=/; Max-Age=0;"));
    }
}
