//! Locator of a port: `eth0`, `NODE/IF`, `driver:IF`, `memory:NAME`, `file:PATH`, each with or without `HOST:` before it.

use std::{fmt, str::FromStr};

use crate::{
    hosts::HostChoice,
    text::is_unprintable,
    units::{ParseUnitError, string_serde},
};

/// Driver: a method to send and receive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Driver {
    /// AF_XDP.
    Xdp,
    /// AF_PACKET.
    Packet,
    /// Queues inside this process.
    Memory,
    /// pcap or pcapng file.
    File,
    /// Streams sent and counted inside the kernel, by XDP live frames.
    Live,
}

impl Driver {
    /// All drivers, in the order of preference for an interface.
    pub const ALL: [Self; 5] = [
        Self::Xdp,
        Self::Packet,
        Self::Memory,
        Self::File,
        Self::Live,
    ];

    /// Prefix of the locator, before the colon.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Packet => "packet",
            Self::Memory => "memory",
            Self::File => "file",
            Self::Live => "live",
        }
    }
}

/// Port as the user names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Locator {
    /// Host of the port in a fleet: its name, or labels such as `{rack=r1}`; `None` is this host.
    pub host: Option<String>,
    /// Requested driver; `None` selects the best one that works.
    pub driver: Option<Driver>,
    /// Network namespace of the interface; `None` is the current one.
    pub node: Option<String>,
    /// Interface name, memory port name or file path.
    pub name: String,
}

impl Locator {
    /// Returns true if the locator names a network interface (not memory or a file).
    #[must_use]
    pub const fn is_interface(&self) -> bool {
        !matches!(self.driver, Some(Driver::Memory | Driver::File))
    }

    /// Returns an error if the port is on another host.
    ///
    /// # Errors
    /// A sentence that names the port and the host.
    pub fn check_local(&self) -> Result<(), String> {
        match &self.host {
            None => Ok(()),
            Some(host) => Err(format!(
                "{self}: the port is on the host {host}, not on this host"
            )),
        }
    }

    /// Returns the locator without host and driver: `NODE/IF`.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.node {
            Some(node) => format!("{node}/{}", self.name),
            None => self.name.clone(),
        }
    }

    /// Returns the locator without driver: `NODE/IF`, or `HOST:NODE/IF` for a port of a fleet.
    #[must_use]
    pub fn site(&self) -> String {
        match &self.host {
            Some(host) => format!("{host}:{}", self.place()),
            None => self.place(),
        }
    }
}

/// Forms of a locator, for messages.
const FORMS: &str = "a port: IF, NODE/IF, xdp:IF, packet:IF, live:IF, memory:NAME or file:PATH; HOST: before it for a port of a fleet";

/// Longest name of a host, as of a label of a domain name (RFC 1035).
const MAX_HOST: usize = 63;

/// Returns true if a word is the name of a host: 1 to 63 lower-case letters, digits and hyphens, and not a driver.
#[must_use]
pub fn is_host(word: &str) -> bool {
    let is_allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=MAX_HOST).contains(&word.len())
        && word.bytes().all(is_allowed)
        && word != "dpdk"
        && Driver::ALL.into_iter().all(|driver| driver.name() != word)
}

/// `IFNAMSIZ` - 1 in linux/if.h.
const MAX_INTERFACE_NAME: usize = 15;

/// Returns true for the address of a PCI device, such as `0000:1b:00.0` or `1b:00.0`.
fn is_pci_address(text: &str) -> bool {
    let is_hex =
        |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let (domain, rest) = match text.split(':').count() {
        3 => text.split_once(':').unwrap_or_default(),
        _ => ("0000", text),
    };
    let Some((bus, (device, function))) = rest
        .split_once(':')
        .and_then(|(bus, rest)| Some((bus, rest.split_once('.')?)))
    else {
        return false;
    };
    is_hex(domain, 4) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1)
}

impl FromStr for Locator {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        if let Some((labels, port)) = text.split_once("}:").filter(|_| text.starts_with('{')) {
            let host = format!("{labels}}}").parse::<HostChoice>()?;
            return Ok(Self {
                host: Some(host.to_string()),
                ..Self::without_host(port, text)?
            });
        }
        match text.split_once(':') {
            Some((host, port)) if is_host(host) && !is_pci_address(text) => Ok(Self {
                host: Some(host.to_owned()),
                ..Self::without_host(port, text)?
            }),
            _ => Self::without_host(text, text),
        }
    }
}

impl Locator {
    /// Parses a locator without a host. `whole` is the text for messages.
    fn without_host(text: &str, whole: &str) -> Result<Self, ParseUnitError> {
        let error = |what: &str| ParseUnitError::new(whole, what);
        if text.contains(is_unprintable) {
            return Err(error("a port: it has a control character"));
        }
        let (driver, rest) = match text.split_once(':') {
            Some((word, rest)) => match Driver::ALL.into_iter().find(|d| d.name() == word) {
                Some(driver) => (Some(driver), rest),
                None if word == "dpdk" || is_pci_address(text) => {
                    return Err(error(
                        "a port: DPDK devices are not supported; use the kernel interface, such as eth0",
                    ));
                }
                None => return Err(error(FORMS)),
            },
            None => (None, text),
        };
        if matches!(driver, Some(Driver::Memory | Driver::File)) {
            if rest.is_empty() {
                return Err(error("a port: a name or path must follow the colon"));
            }
            return Ok(Self {
                host: None,
                driver,
                node: None,
                name: rest.to_owned(),
            });
        }
        let (node, name) = match rest.split_once('/') {
            Some((node, name)) => (Some(node.to_owned()), name),
            None => (None, rest),
        };
        if node
            .as_deref()
            .is_some_and(|n| n.is_empty() || n == "." || n == "..")
        {
            return Err(error("a port: the namespace before the slash is missing"));
        }
        if name.is_empty()
            || name.len() > MAX_INTERFACE_NAME
            || name.contains('/')
            || name.contains(char::is_whitespace)
        {
            return Err(error(
                "a port: an interface name has 1 to 15 characters without blanks or slashes",
            ));
        }
        Ok(Self {
            host: None,
            driver,
            node,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "{host}:")?;
        }
        if let Some(driver) = self.driver {
            write!(f, "{}:", driver.name())?;
        }
        f.write_str(&self.place())
    }
}

string_serde!(
    Locator,
    "Locator",
    "a port: IF, NODE/IF, xdp:IF, packet:IF, live:IF, memory:NAME or file:PATH; HOST: before it for a port of a fleet",
    "wb-pair-a/a0"
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_site_has_the_host_but_no_driver() {
        for (text, site) in [
            ("eth0", "eth0"),
            ("xdp:wb-pair-a/a0", "wb-pair-a/a0"),
            ("h1:xdp:n/eth0", "h1:n/eth0"),
        ] {
            assert_eq!(text.parse::<Locator>().unwrap().site(), site);
        }
    }

    #[test]
    fn reads_and_prints() {
        for text in [
            "eth0",
            "wb-pair-a/a0",
            "xdp:eth0",
            "packet:wb-pair-a/a0",
            "live:wb-pair-a/a0",
            "memory:x",
            "file:/a/b.pcap",
            "h1:eth0",
            "h1:xdp:eth0",
            "rack-1:packet:wb-pair-a/a0",
            "h1:memory:x",
            "{rack=r1,speed=25g}:any",
            "{rack=r1}:xdp:eth2",
            "h1:file:/a/b:c.pcap",
        ] {
            assert_eq!(text.parse::<Locator>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "Foo:eth0",
            ":eth0",
            "h1:",
            "h1:h2:eth0",
            "{rack}:eth0",
            "h_1:eth0",
            "/a0",
            "a/",
            "a/b/c",
            "averyverylongname0",
            "file:",
            "a b",
            "memory:x\u{1b}[2J",
            "file:/a\n",
            "a\u{202e}/b",
        ] {
            assert!(text.parse::<Locator>().is_err(), "{text}");
        }
    }

    #[test]
    fn dpdk_devices_are_refused_with_the_alternative() {
        let refused = |text: &str| text.parse::<Locator>().unwrap_err().to_string();
        for text in [
            "0000:1b:00.0",
            "1b:00.0",
            "dpdk:0",
            "h1:dpdk:0",
            "h1:0000:1b:00.0",
        ] {
            assert!(refused(text).contains("DPDK"), "{text}");
        }
        for text in ["00:1b:00:00.0", "0000:1b:00.00"] {
            assert!(!refused(text).contains("DPDK"), "{text}");
        }
    }

    #[test]
    fn the_first_word_is_a_host_unless_it_is_a_driver() {
        let host = |text: &str| text.parse::<Locator>().map(|port| port.host).ok().flatten();
        assert_eq!(host("h1:eth0").as_deref(), Some("h1"));
        assert_eq!(host("xdp:eth0"), None);
        let longest = "h".repeat(MAX_HOST);
        assert_eq!(host(&format!("{longest}:eth0")).as_deref(), Some(&*longest));
        assert!(format!("h{longest}:eth0").parse::<Locator>().is_err());
        let refused = "h1:xdp:eth0".parse::<Locator>().unwrap().check_local();
        assert_eq!(
            refused.unwrap_err(),
            "h1:xdp:eth0: the port is on the host h1, not on this host"
        );
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(
            host in proptest::option::of("[a-z0-9-]{1,63}"),
            driver in proptest::option::of(0..Driver::ALL.len()),
            node in proptest::option::of("[a-z0-9-]{1,20}"),
            name in "[a-z][a-z0-9.@-]{0,14}",
        ) {
            let driver = driver.map(|number| Driver::ALL[number]);
            let is_interface = !matches!(driver, Some(Driver::Memory | Driver::File));
            let locator = Locator {
                host: host.filter(|host| is_host(host)),
                driver,
                node: node.filter(|_| is_interface),
                name,
            };
            prop_assert_eq!(locator.to_string().parse::<Locator>().unwrap(), locator);
        }

        #[test]
        fn a_text_that_is_read_is_printed_alike(text in "([a-z0-9:/.-]|xdp:|file:){1,24}") {
            if let Ok(locator) = text.parse::<Locator>() {
                prop_assert_eq!(locator.to_string(), text);
            }
        }
    }
}
