//! IP addresses and UDP/TCP ports: a single one, a range, or a prefix.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use super::{ParseUnitError, string_serde};

/// Single address, range `first-last`, or prefix, all of one family.
///
/// A prefix stands for its hosts: without the network and broadcast address for IPv4 prefixes shorter than /31, and
/// without the subnet-router anycast address (all host bits 0) for IPv6 prefixes shorter than /127.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
    prefix: Option<(IpAddr, u8)>,
}

fn to_number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn from_number(like: IpAddr, n: u128) -> IpAddr {
    match like {
        // The value was computed from 32-bit addresses, so the upper bits are 0.
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(n as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(n)),
    }
}

impl AddressRange {
    /// Creates a range of one address.
    #[must_use]
    pub const fn single(addr: IpAddr) -> Self {
        Self {
            first: addr,
            last: addr,
            prefix: None,
        }
    }

    /// Creates a range from `first` to `last`. `None` if they belong to two families or are in reverse order.
    #[must_use]
    pub fn between(first: IpAddr, last: IpAddr) -> Option<Self> {
        let fits = first.is_ipv4() == last.is_ipv4() && to_number(first) <= to_number(last);
        fits.then_some(Self {
            first,
            last,
            prefix: None,
        })
    }

    /// First address.
    #[must_use]
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// Last address.
    #[must_use]
    pub const fn last(&self) -> IpAddr {
        self.last
    }

    /// Returns true for IPv6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.first.is_ipv6()
    }

    /// Number of addresses; saturates at `u128::MAX`.
    #[must_use]
    pub fn count(&self) -> u128 {
        (to_number(self.last) - to_number(self.first)).saturating_add(1)
    }

    /// Returns the `i`-th address, counted from 0. It wraps around after the last address.
    #[must_use]
    pub fn nth(&self, i: u128) -> IpAddr {
        from_number(self.first, to_number(self.first) + i % self.count())
    }

    /// Returns true if the range contains `addr`.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv6() == self.is_ipv6()
            && (to_number(self.first)..=to_number(self.last)).contains(&to_number(addr))
    }
}

impl FromStr for AddressRange {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || {
            ParseUnitError::new(
                text,
                "an address, a range (198.18.1.2-198.18.1.9) or a prefix (198.18.0.0/16)",
            )
        };
        let addr = |t: &str| t.trim().parse::<IpAddr>().map_err(|_| error());
        if let Some((base, bits)) = text.split_once('/') {
            let base = addr(base)?;
            let width: u8 = if base.is_ipv4() { 32 } else { 128 };
            let bits: u8 = bits
                .trim()
                .parse()
                .ok()
                .filter(|b| *b <= width)
                .ok_or_else(error)?;
            let host_bits = width - bits;
            let mask = if host_bits == 128 {
                u128::MAX
            } else {
                (1u128 << host_bits) - 1
            };
            let network = to_number(base) & !mask;
            let (skip_first, skip_last) = match (base.is_ipv4(), host_bits) {
                (_, 0 | 1) => (0, 0),
                (true, _) => (1, 1),
                (false, _) => (1, 0),
            };
            return Ok(Self {
                first: from_number(base, network + skip_first),
                last: from_number(base, (network | mask) - skip_last),
                prefix: Some((from_number(base, network), bits)),
            });
        }
        if let Some((a, b)) = text.split_once('-') {
            return Self::between(addr(a)?, addr(b)?).ok_or_else(error);
        }
        addr(text).map(Self::single)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix {
            Some((base, bits)) => write!(f, "{base}/{bits}"),
            None if self.first == self.last => self.first.fmt(f),
            None => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

string_serde!(
    AddressRange,
    "AddressRange",
    "an IP address, a range (198.18.1.2-198.18.1.9) or a prefix (198.18.0.0/16)",
    "198.18.1.2"
);

/// UDP or TCP ports: a single port or `first-last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port, not below the first.
    pub last: u16,
}

impl PortRange {
    /// Creates a range of one port.
    #[must_use]
    pub const fn single(port: u16) -> Self {
        Self {
            first: port,
            last: port,
        }
    }

    /// Number of ports.
    #[must_use]
    pub fn count(self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    /// Returns the `i`-th port, counted from 0. It wraps around after the last port.
    #[must_use]
    pub fn nth(self, i: u32) -> u16 {
        // The sum stays within first..=last, which are 16-bit numbers.
        let offset = (i % self.count()) as u16;
        self.first + offset
    }
}

impl FromStr for PortRange {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || {
            ParseUnitError::new(
                text,
                "a UDP/TCP port (0 to 65535) or a range of them (1000-2000)",
            )
        };
        let port = |t: &str| t.trim().parse::<u16>().map_err(|_| error());
        let (first, last) = match text.split_once('-') {
            Some((a, b)) => (port(a)?, port(b)?),
            None => (port(text)?, port(text)?),
        };
        if first > last {
            Err(error())
        } else {
            Ok(Self { first, last })
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

string_serde!(
    PortRange,
    "PortRange",
    "a UDP/TCP port or a range of them",
    "1000-2000"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_stand_for_their_hosts() {
        let p: AddressRange = "10.0.0.9/24".parse().unwrap();
        assert_eq!(
            (p.first().to_string(), p.last().to_string()),
            ("10.0.0.1".into(), "10.0.0.254".into())
        );
        assert_eq!(p.count(), 254);
        assert_eq!(p.to_string(), "10.0.0.0/24");
        assert_eq!(p.nth(254), p.first());
        let p: AddressRange = "2001:2::/64".parse().unwrap();
        assert_eq!(p.first().to_string(), "2001:2::1");
        let p: AddressRange = "::/0".parse().unwrap();
        assert_eq!(p.count(), u128::MAX);
    }

    #[test]
    fn reads_and_prints() {
        for text in [
            "1.2.3.4",
            "1.2.3.4-1.2.3.9",
            "10.0.0.0/8",
            "2001:2::1",
            "10.0.0.0/32",
        ] {
            assert_eq!(text.parse::<AddressRange>().unwrap().to_string(), text);
        }
        for text in ["", "1.2.3", "1.2.3.4/33", "1.2.3.9-1.2.3.4", "1.2.3.4-::1"] {
            assert!(text.parse::<AddressRange>().is_err(), "{text}");
        }
        for text in ["9", "1000-2000"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
        for text in ["", "65536", "9-1", "a"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }
}
