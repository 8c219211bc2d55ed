//! Clients of the API: they send no token, and are admitted from this host and from given networks.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use axum::{
    extract::{ConnectInfo, Request, State},
    http::{Method, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{Otg, OtgError};
use crate::{
    access::{Access, MOST_BODY, read_body},
    guard,
    tls::{HasCertificate, IsEncrypted},
    tokens::Role,
};

/// Network with OTG clients that need no token: `192.0.2.0/24`, or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientNetwork {
    address: u128,
    bits: u32,
}

/// IPv4 addresses as those of IPv6 that are mapped to them.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl FromStr for ClientNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("{text:?} is not a network such as 192.0.2.0/24");
        let (address, bits) = text
            .split_once('/')
            .map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| error()))?;
        match bits <= most {
            true => Ok(Self {
                address: number(address),
                bits: 128 - most + bits,
            }),
            false => Err(error()),
        }
    }
}

impl ClientNetwork {
    fn contains(&self, address: IpAddr) -> bool {
        let other = self.address ^ number(address);
        other.checked_shr(128 - self.bits).unwrap_or(0) == 0
    }
}

/// Content type of the requests of HTTP clients.
const JSON: [&str; 1] = ["application/json"];

/// Lets requests of OTG clients pass.
pub(super) async fn admit(
    State((otg, access)): State<(Otg, Access)>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(error) = check(&otg.0.open, &access, &parts, &JSON) {
        return error.into_response();
    }
    match read_body(body, MOST_BODY).await {
        Ok((body, _turn)) => next.run(Request::from_parts(parts, body)).await,
        Err(error) => OtgError::new(error.status().as_u16(), "the body is too large or too slow")
            .into_response(),
    }
}

/// Checks that the client of a request is admitted, and that the body has one of these content types.
pub(super) fn check(
    open: &[ClientNetwork],
    access: &Access,
    parts: &Parts,
    kinds: &[&str],
) -> Result<(), OtgError> {
    let headers = &parts.headers;
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let changes = [Method::POST, Method::PATCH].contains(&parts.method);
    if changes && !kinds.iter().any(|known| kind.eq_ignore_ascii_case(known)) {
        let what = format!("requests need Content-Type: {}", kinds[0]);
        return Err(OtgError::new(415, what));
    }
    let has_token = headers.contains_key(header::AUTHORIZATION);
    // Programs send none of these headers, and browsers cannot leave them out.
    let is_page = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    if is_page && !has_token {
        return Err(OtgError::new(403, "pages in browsers need a token"));
    }
    let from = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let from = from.map(|ConnectInfo(address)| address.ip().to_canonical());
    let is_local = from.is_some_and(|from| from.is_loopback());
    let encrypted = parts.extensions.get::<IsEncrypted>();
    if has_token && !is_local && encrypted.is_some_and(|IsEncrypted(is)| !is) {
        let what = "a token needs an encrypted connection; it may have been seen by others";
        return Err(OtgError::new(401, what));
    }
    let certificate = parts.extensions.get::<HasCertificate>();
    let has_certificate = certificate.is_some_and(|HasCertificate(known)| *known);
    // Without tokens, only the address of a client counts.
    if access.has_tokens() && (has_token || has_certificate) {
        return match access.ticket(parts) {
            Ok(ticket) if ticket.role >= Role::Run => Ok(()),
            Ok(_) => Err(OtgError::new(403, "the role run is needed")),
            Err(error) => Err(OtgError::new(
                error.status().as_u16(),
                "the token is not valid",
            )),
        };
    }
    // A name may lead here from anywhere; an address does not.
    let authority = || parts.uri.authority().map(|authority| authority.as_str());
    let host = text(header::HOST).or_else(authority).unwrap_or_default();
    let is_known = match from {
        Some(_) if is_local => guard::is_loopback(host),
        Some(from) => open.iter().any(|network| network.contains(from)) && guard::is_address(host),
        None => false,
    };
    match is_known {
        true => Ok(()),
        false => Err(OtgError::new(
            401,
            "OTG clients are admitted from this host by localhost, and by address from the networks of --otg-open; \
             others need a token",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: Method, from: &str, headers: &[(&'static str, &str)]) -> u16 {
        let folder = tempfile::tempdir().unwrap();
        let access = Access::by_tokens(crate::tokens::TokenFile::new(folder.path()), 8443);
        code_with(&access, None, method, from, headers)
    }

    fn code_with(
        access: &Access,
        encrypted: Option<bool>,
        method: Method,
        from: &str,
        headers: &[(&'static str, &str)],
    ) -> u16 {
        let mut request = axum::http::Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        if let Ok(from) = from.parse() {
            let from = SocketAddr::new(from, 9);
            parts.extensions.insert(ConnectInfo(from));
        }
        if let Some(encrypted) = encrypted {
            parts.extensions.insert(IsEncrypted(encrypted));
        }
        let open = ["192.0.2.0/24".parse().unwrap()];
        let checked = check(&open, access, &parts, &JSON);
        checked.map_or_else(|error| error.code, |()| 200)
    }

    #[test]
    fn programs_of_this_host_and_of_open_networks_are_admitted() {
        let json = ("content-type", "application/json");
        let local = ("host", "localhost:8443");
        let address = ("host", "192.0.2.1:8443");
        assert_eq!(code(Method::GET, "127.0.0.1", &[local]), 200);
        assert_eq!(
            code(Method::POST, "::1", &[("host", "[::1]:8443"), json]),
            200
        );
        assert_eq!(code(Method::PATCH, "127.0.0.1", &[local, json]), 200);
        assert_eq!(code(Method::GET, "192.0.2.7", &[address]), 200);
        assert_eq!(code(Method::GET, "192.0.3.7", &[address]), 401);
        assert_eq!(code(Method::GET, "", &[local]), 401);
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let json = ("content-type", "application/json");
        let local = ("host", "localhost:8443");
        for method in [Method::POST, Method::PATCH] {
            assert_eq!(code(method.clone(), "127.0.0.1", &[local]), 415);
            let text = ("content-type", "text/plain");
            assert_eq!(code(method, "127.0.0.1", &[local, text]), 415);
        }
        for page in [
            ("origin", "https://localhost:8443"),
            ("origin", "null"),
            ("sec-fetch-site", "same-origin"),
        ] {
            assert_eq!(code(Method::POST, "127.0.0.1", &[local, json, page]), 403);
        }
        // A name that leads to this host for a moment.
        assert_eq!(
            code(Method::GET, "127.0.0.1", &[("host", "evil.example:8443")]),
            401
        );
        assert_eq!(
            code(Method::GET, "192.0.2.7", &[("host", "evil.example")]),
            401
        );
        let token = ("authorization", "Bearer wbt_1_2");
        assert_eq!(code(Method::GET, "127.0.0.1", &[local, token]), 401);
    }

    #[test]
    fn tokens_count_only_if_the_server_has_some_and_nobody_sees_them() {
        let address = ("host", "192.0.2.1:40051");
        let token = ("authorization", "Bearer wbt_1_2");
        let of = |access: &Access, encrypted, from| {
            code_with(access, encrypted, Method::GET, from, &[address, token])
        };
        // Without tokens, a made-up one opens nothing.
        assert_eq!(of(&Access::Open, None, "192.0.3.7"), 401);
        assert_eq!(of(&Access::Open, None, "192.0.2.7"), 200);
        let folder = tempfile::tempdir().unwrap();
        let tokens = crate::tokens::TokenFile::new(folder.path());
        let secret = tokens.add("t", Role::Run, None).unwrap();
        let access = Access::by_tokens(tokens, 8443);
        let bearer = format!("Bearer {secret}");
        for (encrypted, code) in [(Some(true), 200), (None, 200), (Some(false), 401)] {
            let headers = [address, ("authorization", bearer.as_str())];
            let found = code_with(&access, encrypted, Method::GET, "192.0.3.7", &headers);
            assert_eq!(found, code, "{encrypted:?}");
        }
    }

    #[test]
    fn networks_have_the_usual_form() {
        let contains = |network: &str, address: &str| {
            let network: ClientNetwork = network.parse().unwrap();
            network.contains(address.parse().unwrap())
        };
        assert!(contains("10.0.0.0/8", "10.9.9.9") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("0.0.0.0/0", "192.0.2.1") && !contains("0.0.0.0/0", "2001:db8::1"));
        assert!(contains("2001:db8::1", "2001:db8::1") && !contains("2001:db8::1", "2001:db8::2"));
        assert!(contains("::/0", "2001:db8::2"));
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a/b"] {
            assert!(wrong.parse::<ClientNetwork>().is_err(), "{wrong}");
        }
    }
}
