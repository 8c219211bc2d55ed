//! Checks of every request before it is carried out.
//!
//! A page of another site could make a browser send requests to the server. Such requests carry the host name of that
//! site, or an origin that is not this server, or no content type that a form cannot have.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    answer::ApiError,
    otg::{self, OtgError},
};

/// Reach of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From this host over loopback addresses, without authentication.
    Open,
    /// By clients with tokens.
    Authenticated,
    /// Through a socket in a private folder.
    Socket,
}

/// Refuses requests that no client of this server makes.
pub(crate) async fn check(State(reach): State<Reach>, request: Request, next: Next) -> Response {
    let mut response = match check_headers(reach, request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) if otg::is_otg(request.uri().path()) => OtgError::from(error).into_response(),
        Err(error) => error.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        header::HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::X_FRAME_OPTIONS,
        header::HeaderValue::from_static("DENY"),
    );
    headers.insert(
        header::REFERRER_POLICY,
        header::HeaderValue::from_static("no-referrer"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-store"),
    );
    // Pages have their own policy, and other documents need no script or style.
    let kind = headers.get(header::CONTENT_TYPE);
    let is_page = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    if !is_page {
        let nothing =
            header::HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        headers.insert(header::CONTENT_SECURITY_POLICY, nothing);
    }
    response
}

fn check_headers(reach: Reach, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let refused = |what: &str| Err(ApiError::new(StatusCode::FORBIDDEN, what));
    let host = text(header::HOST).unwrap_or_default();
    if reach == Reach::Open && !is_loopback(host) {
        return refused("the request is for another host; use localhost");
    }
    // An unreadable origin is not that of this server.
    if headers.get_all(header::ORIGIN).iter().count() > 1 {
        return refused("the request has several origins");
    }
    let origin = headers.get(header::ORIGIN);
    if let Some(origin) = origin.map(|value| value.to_str().unwrap_or("unreadable")) {
        let of = origin.split_once("://").map_or(origin, |(_, host)| host);
        if of != host {
            return refused("the request comes from a page of another site");
        }
    }
    // Pages of other sites can send no other changing requests without asking first.
    let changes = *method == Method::POST;
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_known = |known: &str| kind.eq_ignore_ascii_case(known);
    if changes
        && !["application/json", "application/toml"]
            .into_iter()
            .any(is_known)
    {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "requests that change something need Content-Type: application/json",
        ));
    }
    Ok(())
}

/// The name or address in a Host header, without the port.
fn name_in(host: &str) -> &str {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    name.unwrap_or_default()
}

/// Returns true for a Host header with an address.
pub(crate) fn is_address(host: &str) -> bool {
    name_in(host).parse::<std::net::IpAddr>().is_ok()
}

/// Returns true for a Host header with a name or address of this host.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = name_in(host);
    let is_address = |address: std::net::IpAddr| address.is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: Method, headers: &[(&'static str, &str)]) -> u16 {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.insert(*name, value.parse().unwrap());
        }
        let checked = check_headers(Reach::Open, &method, &all);
        checked.map_or_else(|error| error.into_response().status().as_u16(), |()| 200)
    }

    #[test]
    fn only_clients_of_this_server_are_served() {
        let json = ("content-type", "application/json; charset=utf-8");
        let host = ("host", "localhost:8443");
        for (method, headers, expected) in [
            (Method::GET, vec![host], 200),
            (Method::GET, vec![("host", "127.0.0.1:8443")], 200),
            (Method::GET, vec![("host", "[::1]:8443")], 200),
            (Method::GET, vec![("host", "evil.example:8443")], 403),
            (Method::GET, vec![("host", "localhost.evil.example")], 403),
            (Method::GET, vec![], 403),
            (Method::POST, vec![host, json], 200),
            (Method::POST, vec![host], 415),
            (
                Method::POST,
                vec![host, ("content-type", "text/plain")],
                415,
            ),
            (Method::DELETE, vec![host], 200),
            (
                Method::POST,
                vec![host, json, ("origin", "http://localhost:8443")],
                200,
            ),
            (
                Method::POST,
                vec![host, json, ("origin", "http://localhost:80")],
                403,
            ),
            (Method::POST, vec![host, json, ("origin", "null")], 403),
        ] {
            assert_eq!(
                status(method.clone(), &headers),
                expected,
                "{method} {headers:?}"
            );
        }
    }
}
