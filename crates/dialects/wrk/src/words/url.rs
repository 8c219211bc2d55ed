//! URL syntax of wrk's parser. It is stricter than other parsers in some points (no `_` in a host name, no
//! digits in a scheme) and looser in others (no check of `%`).

/// Target of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    /// URL as typed.
    pub text: String,
    /// Letters; a scheme that does not begin with `https` is plain HTTP.
    pub scheme: String,
    /// A name or an address, IPv6 without brackets.
    pub host: String,
    /// Digits, if the URL has a port.
    pub port: Option<String>,
    /// Request target: the path and the rest of the URL. `/` without a path, even if a query follows.
    pub target: String,
}

impl Url {
    /// Parses a URL; `None` if wrk rejects it.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        if scheme.is_empty() || !all_bytes(scheme, |b| b.is_ascii_alphabetic()) {
            return None;
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (server, tail) = rest.split_at(end);
        let (host, port) = split_host(server)?;
        all_bytes(tail, |b| b.is_ascii_graphic()).then(|| Self {
            text: text.to_owned(),
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            port: port.map(str::to_owned),
            target: match tail.starts_with('/') {
                true => tail.to_owned(),
                false => "/".to_owned(),
            },
        })
    }

    /// Service name for the resolver: the port number, or else the scheme.
    #[must_use]
    pub fn service(&self) -> &str {
        self.port.as_deref().unwrap_or(&self.scheme)
    }

    /// Returns true if connections use TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.scheme.starts_with("https")
    }

    /// Value of the header `Host`, with the port if the URL has one.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match &self.port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }
}

/// Host and port in `user@host:port`.
fn split_host(server: &str) -> Option<(&str, Option<&str>)> {
    let server = match server.split_once('@') {
        Some((user, server)) => all_bytes(user, |b| {
            b.is_ascii_alphanumeric() || b"-_.!~*'()%;:&=+$,".contains(&b)
        })
        .then_some(server)?,
        None => server,
    };
    let (host, rest) = match server.strip_prefix('[') {
        Some(literal) => literal
            .split_once(']')
            .filter(|(host, _)| is_literal(host))?,
        None => {
            let (host, rest) = server.split_at(server.find(':').unwrap_or(server.len()));
            let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
            (!host.is_empty() && all_bytes(host, fits)).then_some((host, rest))?
        }
    };
    if rest.is_empty() {
        return Some((host, None));
    }
    let port = rest.strip_prefix(':')?;
    let fits = all_bytes(port, |b| b.is_ascii_digit()) && port.parse::<u16>().is_ok();
    fits.then_some((host, Some(port)))
}

/// Returns true if `text` has only the characters of an IPv6 address, with an optional zone after `%`.
fn is_literal(text: &str) -> bool {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let of_zone = |b: u8| b.is_ascii_alphanumeric() || b"%.-_~".contains(&b);
    !address.is_empty()
        && all_bytes(address, |b| b.is_ascii_hexdigit() || b == b':' || b == b'.')
        && zone.is_none_or(|zone| !zone.is_empty() && all_bytes(zone, of_zone))
}

fn all_bytes(text: &str, fits: impl Fn(u8) -> bool) -> bool {
    text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(String, String, String, String)> {
        let url = Url::read(text)?;
        let authority = url.authority();
        let service = url.service().to_owned();
        Some((url.host, service, url.target, authority))
    }

    #[test]
    fn parts_of_a_url() {
        for (text, host, service, target, authority) in [
            ("http://h", "h", "http", "/", "h"),
            ("http://h/", "h", "http", "/", "h"),
            ("http://h:80", "h", "80", "/", "h:80"),
            ("http://h/a?x=1#frag", "h", "http", "/a?x=1#frag", "h"),
            ("http://h/a#b#c?d", "h", "http", "/a#b#c?d", "h"),
            ("http://h?x=1", "h", "http", "/", "h"),
            ("http://h?x=1/y", "h", "http", "/", "h"),
            ("http://h//x", "h", "http", "//x", "h"),
            ("http://h/\"<>|{}`^\\%", "h", "http", "/\"<>|{}`^\\%", "h"),
            ("http://u:p@h:1/", "h", "1", "/", "h:1"),
            ("http://@h/", "h", "http", "/", "h"),
            ("ftp://10.0.0.1/x", "10.0.0.1", "ftp", "/x", "10.0.0.1"),
            ("https://a.b-c/", "a.b-c", "https", "/", "a.b-c"),
            ("http://[::1]:1/", "::1", "1", "/", "[::1]:1"),
            ("http://[::1]/", "::1", "http", "/", "[::1]"),
            (
                "http://[fe80::1%lo]/",
                "fe80::1%lo",
                "http",
                "/",
                "[fe80::1%lo]",
            ),
            ("http://h:00080/", "h", "00080", "/", "h:00080"),
            ("http://h:65535/", "h", "65535", "/", "h:65535"),
        ] {
            let expected = [host, service, target, authority].map(str::to_owned).into();
            assert_eq!(parts(text), Some(expected), "{text}");
        }
        for (text, tls) in [
            ("https://h", true),
            ("httpsx://h", true),
            ("HTTPS://h", false),
            ("http://h", false),
        ] {
            assert_eq!(Url::read(text).unwrap().uses_tls(), tls);
        }
    }

    #[test]
    fn what_is_no_url() {
        for text in [
            "",
            "h",
            "h:80",
            "127.0.0.1:80",
            "/x",
            "*",
            "http:",
            "http:/h",
            "http://",
            "http:///x",
            "http://?x",
            "://h",
            "h1://x/",
            "x http://h",
            " http://h",
            "http://h#x",
            "http://a_b/",
            "http://a b/",
            "http://h/a b",
            "http://h/\t",
            "http://h/\x7f",
            "http://h/ä",
            "http://ä/",
            "http://h:/",
            "http://h:x/",
            "http://h:65536/",
            "http://h:99999999999999999999/",
            "http://:1/",
            "http://h:1:2/",
            "http://h:+1/",
            "http://a@b@c/",
            "http://a@/",
            "http://[u@h/",
            "http://a#@b/",
            "http://[::1/",
            "http://]/",
            "http://[]/",
            "http://[::1]x/",
            "http://[::1%]/",
            "http://[%lo]/",
            "http://[g::1]/",
            "http://%/",
            "http://a!b/",
            "http://[::1]:/",
        ] {
            assert_eq!(Url::read(text), None, "{text}");
        }
    }
}
