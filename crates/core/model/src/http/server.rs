//! Server addresses with zones.

use std::{fmt, net::SocketAddr, str::FromStr};

use serde::{Deserialize, Serialize};

use super::plain_zone;

/// Server address, `IP:PORT`. The zone of an IPv6 address is a number or the name of an interface
/// (`[fe80::1%eth0]:80`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerAddress {
    /// Address, without a zone that is a name.
    pub address: SocketAddr,
    /// Interface of a zone that is a name.
    pub interface: Option<String>,
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            interface: None,
        }
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = plain_zone(text);
        let named = plain.strip_prefix('[').and_then(|t| {
            let (ip, rest) = t.split_once('%')?;
            let (zone, port) = rest.split_once("]:")?;
            let is_name = zone.parse::<u32>().is_err() && !zone.is_empty();
            is_name.then(|| (format!("[{ip}]:{port}"), zone.to_owned()))
        });
        let (address, interface) = match named {
            Some((address, zone)) => (address, Some(zone)),
            None => (plain, None),
        };
        let address = address.parse().map_err(|e| format!("{text:?}: {e}"))?;
        Ok(Self { address, interface })
    }
}

impl TryFrom<String> for ServerAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ServerAddress> for String {
    fn from(server: ServerAddress) -> Self {
        server.to_string()
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(zone) => write!(f, "[{}%{zone}]:{}", self.address.ip(), self.address.port()),
            None => self.address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_numbers_or_names() {
        for (text, shown, interface) in [
            ("198.19.1.2:80", "198.19.1.2:80", None),
            ("[fe80::1%2]:0", "[fe80::1%2]:0", None),
            ("[fe80::1%eth0]:80", "[fe80::1%eth0]:80", Some("eth0")),
            ("[fe80::1%25eth0]:80", "[fe80::1%eth0]:80", Some("eth0")),
        ] {
            let server: ServerAddress = text.parse().unwrap();
            assert_eq!(server.to_string(), shown);
            assert_eq!(server.interface.as_deref(), interface);
        }
        for wrong in [
            "",
            "host:80",
            "198.19.1.2",
            "[fe80::1%]:80",
            "[198.19.1.2%eth0]:80",
        ] {
            assert!(wrong.parse::<ServerAddress>().is_err(), "{wrong}");
        }
    }
}
