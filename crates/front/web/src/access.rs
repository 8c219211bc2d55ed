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
    body::{Body, Bytes, HttpBody as _, to_bytes},
    extract::{ConnectInfo, Request, State, rejection::BytesRejection},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    answer::{ApiError, ApiResult, blocking},
    runs::{App, parsed},
    tls::HasCertificate,
    tokens::{Role, TokenEntry, TokenFile, Tokens, digest_of, is_same, random_token},
};

/// Number of false tokens from an address in [`WINDOW`], after which further ones are answered with 429.
const MOST_FAILURES: u32 = 10;
/// Time after which the failures of an address are forgotten.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum size of a body of an OTG client, in bytes.
pub(crate) const MOST_BODY: usize = 64 << 20;
/// Maximum size of a body with a plan, in bytes.
const MOST_PLAN: usize = 16 << 20;
/// Maximum size of a body from a client that is not known, and of requests that need none, in bytes.
const MOST_SMALL_BODY: usize = 64 << 10;
/// Size from which on bodies are worked on one at a time, in bytes: a plan in memory needs a multiple of its text.
const LARGE_BODY: usize = 1 << 20;
/// Held by the request with a large body that is worked on.
static LARGE: Semaphore = Semaphore::const_new(1);
/// Time for which a browser stays logged in.
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
    /// Name of the cookie for reading. Cookies are those of a host, so the port is part of it.
    cookie: String,
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

/// The values of all cookies with a name. Servers at other ports of the host can set cookies with the same name.
fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(header::COOKIE).iter();
    let pairs = all.filter_map(|value| value.to_str().ok());
    let pairs = pairs.flat_map(|value| value.split(';'));
    pairs.filter_map(move |pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// Value of a `Set-Cookie` header. No script can read the cookie, and a browser sends it only with requests of pages of
/// this host; an empty token removes it.
fn set_cookie(name: &str, token: &str, is_encrypted: bool) -> String {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let age = match token {
        "" => 0,
        _ => BROWSER.as_secs(),
    };
    format!("{name}={token}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
}

impl Access {
    /// Access by tokens, to a server at a port.
    #[cfg(test)]
    pub(crate) fn by_tokens(file: TokenFile, port: u16) -> Self {
        Self::by_tokens_of(file, port, |_| ())
    }

    /// Access by tokens, to a server at a port. `warn` receives a line when the file can no longer be read.
    pub(crate) fn by_tokens_of(file: TokenFile, port: u16, warn: fn(&str)) -> Self {
        Self::Tokens(Arc::new(Guarded {
            tokens: Tokens::new(file, warn),
            cookie: format!("wb_{port}"),
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

    /// Returns true if clients have tokens.
    pub(crate) const fn has_tokens(&self) -> bool {
        matches!(self, Self::Tokens(_))
    }

    /// Permission of the client that makes a request.
    pub(crate) fn ticket(&self, parts: &Parts) -> Result<Ticket, ApiError> {
        let from = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let from = from.map(|ConnectInfo(address)| address.ip());
        let certificate = parts.extensions.get::<HasCertificate>();
        let has_certificate = certificate.is_some_and(|HasCertificate(known)| *known);
        self.admit(&parts.headers, from, has_certificate)
    }

    /// Permission of a client: by its token, else by a cookie, which is enough for reading, else by its certificate.
    fn admit(
        &self,
        headers: &HeaderMap,
        from: Option<IpAddr>,
        has_certificate: bool,
    ) -> Result<Ticket, ApiError> {
        let ticket = |token: &str, name: &str, role| Ticket {
            access: self.clone(),
            token: token.to_owned(),
            name: name.to_owned(),
            role,
        };
        let Self::Tokens(guarded) = self else {
            return Ok(ticket("", "", Role::Admin));
        };
        if let Some(token) = bearer(headers) {
            let entry = guarded.tokens.find(token);
            let entry = entry.ok_or_else(|| guarded.refusal(from))?;
            return Ok(ticket(token, &entry.name, entry.role));
        }
        let mut cookies = cookies(headers, &guarded.cookie);
        let known = cookies.find_map(|token| Some((token, guarded.tokens.find(token)?)));
        match known {
            Some((token, entry)) => Ok(ticket(token, &entry.name, Role::Read)),
            None if has_certificate => Ok(ticket("", "certificate", Role::Run)),
            None => Err(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "a token is needed: Authorization: Bearer wbt_…",
            )),
        }
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

/// A browser that has logged in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoggedIn {
    /// Token for the requests of the page.
    token: String,
}

/// Makes the tokens of a browser: one for its page, and one for reading, in a cookie.
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
        let is_once = lock(&guarded.once)
            .take_if(|once| is_same(once, &digest_of(login.token.as_bytes())))
            .is_some();
        let user = guarded.tokens.find(&login.token);
        if user.is_none() && !is_once {
            return Err(guarded.refusal(from));
        }
        let made = app.tokens.log_in(user.as_ref(), BROWSER);
        let made = made.map_err(|error| ApiError::internal(app.tokens.unchanged(&error)))?;
        let cookie = set_cookie(&guarded.cookie, &made.cookie, app.is_encrypted);
        let body = Json(LoggedIn { token: made.page });
        Ok(([(header::SET_COOKIE, cookie)], body).into_response())
    })
    .await
}

/// Removes the tokens of a browser.
pub(crate) async fn log_out(
    State(app): State<App>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let Access::Tokens(guarded) = access else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    blocking(move || {
        let token = bearer(&headers).and_then(|token| guarded.tokens.find(token));
        if let Some(token) = token.filter(TokenEntry::is_of_browser) {
            let removed = app.tokens.remove(&token.id);
            removed.map_err(|error| ApiError::internal(app.tokens.unchanged(&error)))?;
        }
        let cookie = set_cookie(&guarded.cookie, "", app.is_encrypted);
        Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
    })
    .await
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
    let takes_plan = parts.method == Method::POST;
    let most = match least {
        None => MOST_SMALL_BODY,
        Some(least) => {
            match access.ticket(&parts) {
                Ok(ticket) if ticket.role >= least => parts.extensions.insert(ticket),
                Ok(ticket) => return too_low(least, ticket.role).into_response(),
                Err(error) => {
                    let bearer = [(header::WWW_AUTHENTICATE, "Bearer")];
                    return (bearer, error).into_response();
                }
            };
            match takes_plan {
                true => MOST_PLAN,
                false => MOST_SMALL_BODY,
            }
        }
    };
    match read_body(body, most).await {
        Ok((body, _turn)) => {
            parts.extensions.insert(access);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(error) => error.into_response(),
    }
}

/// Turn of a request with a large body, until its answer.
pub(crate) type Turn = Option<SemaphorePermit<'static>>;

/// Reads a body of at most this number of bytes, in limited time. Waits until a large one has its turn.
pub(crate) async fn read_body(body: Body, most: usize) -> Result<(Body, Turn), ApiError> {
    let too_large = |what: &str| {
        let what = format!("the body is larger than {most} bytes{what}");
        Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, what))
    };
    if body.size_hint().lower() > most as u64 {
        return too_large("");
    }
    let read = tokio::time::timeout(PATIENCE, to_bytes(body, most)).await;
    match read {
        Ok(Ok(body)) => {
            let is_large = body.len() > LARGE_BODY;
            // The semaphore is never closed.
            let turn = match is_large {
                true => LARGE.acquire().await.ok(),
                false => None,
            };
            Ok((Body::from(body), turn))
        }
        Ok(Err(_)) => too_large(", or ends too soon"),
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
    fn bodies_are_limited_and_large_ones_take_turns() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let status = |error: ApiError| error.status().as_u16();
        let large = || Body::from(vec![b' '; LARGE_BODY + 1]);
        runtime.unwrap().block_on(async {
            assert_eq!(read_body(large(), 9).await.map_err(status).err(), Some(413));
            let first = read_body(large(), MOST_BODY).await.unwrap();
            assert!(first.1.is_some());
            let small = read_body(Body::from("{}"), 9).await.unwrap();
            assert!(small.1.is_none());
            let mut second = Box::pin(read_body(large(), MOST_BODY));
            let soon = tokio::time::timeout(Duration::ZERO, &mut second);
            assert!(soon.await.is_err(), "two at once");
            drop(first);
            assert!(second.await.unwrap().1.is_some());
        });
    }

    #[test]
    fn many_false_tokens_are_refused_by_address() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path());
        let valid = file.add("ci", Role::Run, None).unwrap();
        let access = Access::by_tokens(file, 8443);
        let of = |token: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
            headers
        };
        let status =
            |token: &str, from: &str| match access.admit(&of(token), from.parse().ok(), false) {
                Ok(_) => 200,
                Err(error) => error.into_response().status().as_u16(),
            };
        assert!(access.admit(&HeaderMap::new(), None, false).is_err());
        for n in 0..12 {
            let expected = if n < MOST_FAILURES { 401 } else { 429 };
            assert_eq!(status("wbt_1_2", "10.0.0.1"), expected, "{n}");
        }
        assert_eq!(status("wbt_1_2", "10.0.0.2"), 401);
        // A client that guesses does not lock out others with its address.
        assert_eq!(status(&valid, "10.0.0.1"), 200);
    }

    #[test]
    fn a_cookie_is_enough_for_reading_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path());
        let valid = file.add("me", Role::Admin, None).unwrap();
        let access = Access::by_tokens(file, 8443);
        let of = |cookies: &str, has_certificate| {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, cookies.parse().unwrap());
            let from = "10.0.0.1".parse().ok();
            let ticket = access.admit(&headers, from, has_certificate);
            ticket.map(|ticket| (ticket.name, ticket.role))
        };
        let own = Ok(("me".to_owned(), Role::Read));
        // Another server of the host may have set cookies, too.
        let cookies = format!("other=1; wb_8443=; wb_8443=junk; wb_8443={valid}; wb_84430=2");
        assert_eq!(of(&cookies, false).map_err(|_| ()), own);
        assert_eq!(of(&cookies, true).map_err(|_| ()), own);
        // They are no guesses.
        for _ in 0..20 {
            let error = of("wb_8443=junk; wb=x", false).unwrap_err();
            assert_eq!(error.into_response().status(), StatusCode::UNAUTHORIZED);
        }
        assert_eq!(of("wb_8443=junk", true).unwrap().1, Role::Run);
        let made = set_cookie("wb_1", &valid, true);
        assert!(
            made.ends_with("; HttpOnly; SameSite=Strict; Secure"),
            "{made}"
        );
        assert!(set_cookie("wb_1", "", false).contains("wb_1=; Path=/; Max-Age=0;"));
    }
}
