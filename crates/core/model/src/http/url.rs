//! URLs, as far as a load needs them.

use std::{fmt, str::FromStr};

/// Scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

/// URL: `SCHEME://[USER@]HOST[:PORT][PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// Scheme.
    pub scheme: Scheme,
    /// Name or address; for an IPv6 address without its brackets but with its zone (`fe80::1%eth0`).
    pub host: String,
    /// Port, if given.
    pub port: Option<u16>,
    /// Path and query without the fragment; `/` if there is none.
    pub target: String,
}

impl HttpUrl {
    /// Returns the port, or the default port of the scheme.
    #[must_use]
    pub const fn port_or_default(&self) -> u16 {
        match (self.port, self.scheme) {
            (Some(port), _) => port,
            (None, Scheme::Http) => 80,
            (None, Scheme::Https) => 443,
        }
    }

    /// Returns the host without its zone, which has a meaning on this machine only (RFC 6874 section 4).
    #[must_use]
    pub fn known_host(&self) -> &str {
        self.host.split('%').next().unwrap_or_default()
    }

    /// Value of the Host header: RFC 9110 section 7.2.
    #[must_use]
    pub fn authority(&self) -> String {
        self.with_port(self.known_host())
    }

    fn with_port(&self, host: &str) -> String {
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        match self.port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(
            f,
            "{scheme}://{}{}",
            self.with_port(&self.host),
            self.target
        )
    }
}

impl FromStr for HttpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |why: &str| {
            format!("invalid URL {text:?}: {why}; use http://HOST[:PORT][/PATH] or https://…")
        };
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("missing scheme"))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(wrong("unknown scheme")),
        };
        if text.chars().any(|c| c.is_control() || c == ' ') {
            return Err(wrong("blanks or control characters"));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let target = target.split('#').next().unwrap_or_default();
        let target = match target.starts_with('/') {
            true => target.to_owned(),
            false => format!("/{target}"),
        };
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let (host, port) = match authority.strip_prefix('[') {
            Some(inner) => {
                let (host, port) = inner
                    .split_once(']')
                    .ok_or_else(|| wrong("missing closing bracket"))?;
                let (address, zone) = host.split_once('%').unwrap_or((host, "lo"));
                let address: Result<std::net::Ipv6Addr, _> = address.parse();
                address.map_err(|_| wrong("no IPv6 address between the brackets"))?;
                if zone.is_empty() {
                    return Err(wrong("missing interface after %"));
                }
                match port.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if port.is_empty() => (host, None),
                    None => return Err(wrong("expected a port after the bracket")),
                }
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("missing host"));
        }
        let port = match port {
            None | Some("") => None,
            Some(digits) => match digits.parse() {
                Ok(0) | Err(_) => return Err(wrong("the port must be between 1 and 65535")),
                Ok(port) => Some(port),
            },
        };
        Ok(Self {
            scheme,
            host: plain_zone(host),
            port,
            target,
        })
    }
}

/// Returns a host with its zone in the system's notation: `%25` of RFC 6874 becomes `%`.
#[must_use]
pub fn plain_zone(host: &str) -> String {
    match host.split_once("%25") {
        Some((address, zone)) if address.contains(':') && !zone.is_empty() => {
            format!("{address}%{zone}")
        }
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_what_they_mean() {
        for (text, host, port, target, shown) in [
            ("http://a", "a", 80, "/", "http://a/"),
            (
                "HTTPS://a:8443/x?y=1#z",
                "a",
                8443,
                "/x?y=1",
                "https://a:8443/x?y=1",
            ),
            ("http://u:p@a/", "a", 80, "/", "http://a/"),
            (
                "http://[2001:db8::1]:81?q",
                "2001:db8::1",
                81,
                "/?q",
                "http://[2001:db8::1]:81/?q",
            ),
        ] {
            let url: HttpUrl = text.parse().unwrap();
            assert_eq!(
                (
                    url.host.as_str(),
                    url.port_or_default(),
                    url.target.as_str()
                ),
                (host, port, target)
            );
            assert_eq!(url.to_string(), shown);
        }
        for text in ["http://[fe80::1%eth0]:81/x", "http://[fe80::1%25eth0]:81/x"] {
            let url: HttpUrl = text.parse().unwrap();
            assert_eq!(
                (url.host.as_str(), url.known_host()),
                ("fe80::1%eth0", "fe80::1")
            );
            assert_eq!(url.authority(), "[fe80::1]:81");
            assert_eq!(url.to_string(), "http://[fe80::1%eth0]:81/x");
        }
        for text in [
            "",
            "a",
            "http://[fe80::1%]",
            "http://[%lo]",
            "ftp://a",
            "http://",
            "http:///x",
            "http://a:0",
            "http://a:x",
            "http://[::1",
            "http://[a]",
            "http://[::1]x",
            "http://a b/",
            "http://a/\r\n",
        ] {
            assert!(text.parse::<HttpUrl>().is_err(), "{text}");
        }
    }
}
