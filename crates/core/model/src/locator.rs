//! Locator of a port: `eth0`, `NODE/IF`, `driver:IF`, `memory:NAME`, `file:PATH`.

use std::{fmt, str::FromStr};

use crate::units::{ParseUnitError, string_serde};

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

    /// Returns the locator without the driver: `NODE/IF`.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.node {
            Some(node) => format!("{node}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// `IFNAMSIZ` - 1 in linux/if.h.
const MAX_INTERFACE_NAME: usize = 15;

impl FromStr for Locator {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = |what: &str| ParseUnitError::new(text, what);
        let (driver, rest) = match text.split_once(':') {
            Some((word, rest)) => match Driver::ALL.into_iter().find(|d| d.name() == word) {
                Some(driver) => (Some(driver), rest),
                // An alias such as "eth0:1" has its colon after the name; neither word is a driver.
                None => {
                    return Err(error(
                        "a port: IF, NODE/IF, xdp:IF, packet:IF, live:IF, memory:NAME or file:PATH",
                    ));
                }
            },
            None => (None, text),
        };
        if matches!(driver, Some(Driver::Memory | Driver::File)) {
            if rest.is_empty() {
                return Err(error("a port: a name or path must follow the colon"));
            }
            return Ok(Self {
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
            driver,
            node,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(driver) = self.driver {
            write!(f, "{}:", driver.name())?;
        }
        f.write_str(&self.place())
    }
}

string_serde!(
    Locator,
    "Locator",
    "a port: IF, NODE/IF, xdp:IF, packet:IF, live:IF, memory:NAME or file:PATH",
    "wb-pair-a/a0"
);

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(text.parse::<Locator>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "foo:eth0",
            "/a0",
            "a/",
            "a/b/c",
            "averyverylongname0",
            "file:",
            "a b",
        ] {
            assert!(text.parse::<Locator>().is_err(), "{text}");
        }
    }
}
