//! Addresses that a plan may put into frames, with the ranges that are free for tests.
//!
//! A range is checked as a whole. Sources are checked like destinations, because the receiver of a frame answers to its
//! source. The session checks recorded and raw bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    device::{DeviceConfig, Interface, lax_ipv4},
    load::LoadJob,
    plan::{PortPlan, Proto, Stream},
    units::AddressRange,
    vary::{Field, Pattern, Vary},
};

/// Addresses that tests may use without confirmation: RFC 2544 C.2.2, private, link-local, loopback, documentation, and
/// the unspecified address.
const FREE4: [(Ipv4Addr, u8); 10] = [
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::UNSPECIFIED, 32),
];

/// IPv6 addresses that tests may use without confirmation: RFC 5180, unique-local, link-local, documentation, loopback,
/// unspecified.
const FREE6: [(Ipv6Addr, u8); 6] = [
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::LOCALHOST, 128),
    (Ipv6Addr::UNSPECIFIED, 128),
];

/// Ranges for tests and examples, which no host on the Internet has: RFC 2544 C.2.2, RFC 5737.
const TEST4: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
];

/// IPv6 networks for tests and examples: RFC 5180, RFC 3849, RFC 9637.
const TEST6: [(Ipv6Addr, u8); 3] = [
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Returns true for addresses of the benchmark and documentation ranges.
#[must_use]
pub fn is_for_tests(address: IpAddr) -> bool {
    let v4 = |address: Ipv4Addr| {
        TEST4
            .iter()
            .any(|(base, bits)| (address.to_bits() ^ base.to_bits()) >> (32 - bits) == 0)
    };
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => {
            address.to_ipv4_mapped().is_some_and(v4)
                || TEST6
                    .iter()
                    .any(|(base, bits)| (address.to_bits() ^ base.to_bits()) >> (128 - bits) == 0)
        }
    }
}

/// Text after the address in an error.
pub const OUTSIDE: &str = "is outside the benchmark and private ranges (198.18.0.0/15, 2001:2::/48, RFC 1918, ULA); use --i-own-this-network (i_own_this_network = true) if you own this network";

/// Ranges that tests may use without confirmation.
pub fn free_ranges() -> impl Iterator<Item = (IpAddr, u8)> {
    let v4 = FREE4.into_iter().map(|(base, bits)| (base.into(), bits));
    v4.chain(FREE6.into_iter().map(|(base, bits)| (base.into(), bits)))
}

/// Returns true if tests may use the address without confirmation.
#[must_use]
pub fn is_free(address: IpAddr) -> bool {
    is_free_range(&AddressRange::single(address))
}

/// Returns true if tests may use every address of a range without confirmation: one free range contains it.
#[must_use]
pub fn is_free_range(range: &AddressRange) -> bool {
    match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => FREE4.iter().any(|(base, bits)| {
            let host = u32::MAX.checked_shr((*bits).into()).unwrap_or(0);
            let base = base.to_bits();
            base <= first.to_bits() && last.to_bits() <= base | host
        }),
        (IpAddr::V6(first), IpAddr::V6(last)) => FREE6.iter().any(|(base, bits)| {
            let host = u128::MAX.checked_shr((*bits).into()).unwrap_or(0);
            let base = base.to_bits();
            base <= first.to_bits() && last.to_bits() <= base | host
        }),
        _ => false,
    }
}

/// Key of a plan, and the addresses that it puts into frames.
pub type Reach = (String, AddressRange);

impl Stream {
    /// Addresses of its headers, including modifiers of address fields. Recordings and raw frames are excluded.
    #[must_use]
    pub fn reach(&self) -> Vec<Reach> {
        if self.replay.is_some() || self.proto == Proto::Raw {
            return Vec::new();
        }
        let mut found = vec![
            ("src".to_owned(), self.source()),
            ("dst".to_owned(), self.destination()),
        ];
        for vary in &self.vary {
            let own = match vary.field {
                Field::Src => self.source(),
                Field::Dst => self.destination(),
                _ => continue,
            };
            found.push((format!("vary {}", vary.field), varied(vary, &own)));
        }
        found
    }
}

/// Returns the smallest range that contains all values of a modifier of an address field.
fn varied(vary: &Vary, own: &AddressRange) -> AddressRange {
    let number = |address: IpAddr| match address {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    };
    let (first, last) = match (vary.mask, &vary.pattern) {
        // The stream's addresses with any bits up to the highest of the mask.
        (Some(mask), _) => {
            let below = u128::MAX.checked_shr(mask.leading_zeros()).unwrap_or(0);
            (number(own.first()) & !below, number(own.last()) | below)
        }
        (None, Pattern::List(list)) => (
            list.iter().copied().min().unwrap_or(0),
            list.iter().copied().max().unwrap_or(0),
        ),
        (None, Pattern::Increment(r) | Pattern::Decrement(r) | Pattern::Random(r)) => {
            (r.first, r.last)
        }
    };
    let address = |n: u128| -> IpAddr {
        if own.is_ipv6() {
            IpAddr::V6(n.into())
        } else {
            IpAddr::V4(u32::try_from(n).unwrap_or(u32::MAX).into())
        }
    };
    // Numbers in reverse order form no range; then all addresses are possible.
    AddressRange::between(address(first), address(last)).unwrap_or_else(|| {
        let all = if own.is_ipv6() {
            u128::MAX
        } else {
            u128::from(u32::MAX)
        };
        AddressRange::between(address(0), address(all)).expect("0 is the least")
    })
}

impl LoadJob {
    /// Addresses of its frames, inside and outside a tunnel.
    #[must_use]
    pub fn reach(&self) -> Vec<Reach> {
        let mut found: Vec<Reach> = Vec::new();
        for (key, ranges) in [("clients", &self.clients), ("servers", &self.servers)] {
            found.extend(ranges.iter().map(|range| (key.to_owned(), *range)));
        }
        found.extend(
            self.destinations
                .iter()
                .map(|d| ("destinations".to_owned(), d.addresses)),
        );
        if let Some(tunnel) = &self.vxlan {
            found.push(("vxlan.local".to_owned(), tunnel.local));
            found.push(("vxlan.remote".to_owned(), tunnel.remote));
        }
        found
    }
}

impl DeviceConfig {
    /// Addresses that its packets step through on an interface. Both families are included, because a flag selects one.
    /// Both ends of each range are included, because a change during a run continues from either.
    #[must_use]
    pub fn reach(&self, interface: &Interface) -> Vec<Reach> {
        let mut found = Vec::new();
        let (src_min, src_max) = self.source_range(interface);
        for (keys, low, high) in [
            (["src_min", "src_max"], src_min, src_max),
            (
                ["dst_min", "dst_max"],
                lax_ipv4(&self.dst_min),
                lax_ipv4(&self.dst_max),
            ),
        ] {
            let v4 = |n: u32| IpAddr::V4(n.into());
            match AddressRange::between(v4(low), v4(high)) {
                Some(range) => found.push((keys[0].to_owned(), range)),
                None => found.extend(
                    [(keys[0], low), (keys[1], high)]
                        .map(|(key, n)| (key.to_owned(), AddressRange::single(v4(n)))),
                ),
            }
        }
        for (key, address) in [("src6", self.src6), ("dst6", self.dst6)] {
            found.push((key.to_owned(), AddressRange::single(address.into())));
        }
        if !self.dst6_min.is_unspecified() {
            // Any bits of `dst6_max`, with those of `dst6_min` that are part of it.
            let low = self.dst6_min & self.dst6_max;
            let range = AddressRange::between(low.into(), self.dst6_max.into());
            found.extend(range.map(|range| ("dst6_max".to_owned(), range)));
        }
        found
    }
}

impl PortPlan {
    /// Addresses that neighbours receive: the addresses that the port answers for, and the gateway that it resolves.
    #[must_use]
    pub fn reach(&self) -> Vec<Reach> {
        let own = self.addresses.iter().map(|r| ("addresses".to_owned(), *r));
        let gateway = self.gateway.map(AddressRange::single);
        own.chain(gateway.map(|g| ("gateway".to_owned(), g)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmark_and_documentation_ranges() {
        for (address, expected) in [
            ("198.18.0.0", true),
            ("198.19.255.255", true),
            ("198.20.0.0", false),
            ("192.0.2.7", true),
            ("203.0.113.7", true),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
            ("::ffff:198.18.0.1", true),
            ("2001:db8::1", true),
            ("2001:2::1", true),
            ("2001:2:1::1", false),
            ("3fff:fff::1", true),
            ("fd00::1", false),
        ] {
            assert_eq!(
                is_for_tests(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn free_addresses() {
        for text in [
            "198.18.0.1",
            "198.19.255.255",
            "10.1.2.3",
            "172.16.0.1",
            "2001:2::1",
            "fd00::1",
            "fe80::1",
            "0.0.0.0",
            "::",
        ] {
            assert!(is_free(text.parse().unwrap()), "{text}");
        }
        for text in [
            "198.20.0.1",
            "8.8.8.8",
            "172.32.0.1",
            "2001:4860::1",
            "2001:2:1::1",
            "224.0.0.1",
            "0.0.0.1",
            "::ffff:8.8.8.8",
            "::2",
        ] {
            assert!(!is_free(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn ranges_are_judged_whole() {
        for (text, free) in [
            ("198.18.0.0/15", true),
            ("10.0.0.0/8", true),
            ("198.18.0.1-198.20.0.1", false),
            ("9.0.0.0-11.0.0.0", false),
            // Both ends are free, but the addresses between them are not.
            ("198.18.0.1-198.51.100.1", false),
            ("10.0.0.1-192.168.0.1", false),
            ("10.255.255.254-172.16.0.2", false),
            ("198.18.5.0-198.19.0.9", true),
            ("2001:2::1-2001:db8::1", false),
            ("2001:2::1-2001:2::9", true),
            ("fc00::1-fdff::1", true),
            ("fd00::1-fe80::1", false),
        ] {
            assert_eq!(is_free_range(&text.parse().unwrap()), free, "{text}");
        }
    }

    #[test]
    fn modifiers_count_with_all_they_may_write() {
        let free = |stream: &Stream| stream.reach().iter().all(|(_, range)| is_free_range(range));
        for (vary, expected) in [
            ("dst=inc:198.18.0.1-198.19.0.9", true),
            ("dst=list:198.18.0.1,8.8.8.8", false),
            ("src=list:198.18.0.1,8.8.8.8", false),
            ("src=random:0.0.0.0/0", false),
            ("dst=inc:198.19.0.0-198.19.0.255,mask=0xff", true),
            // 198.8.8.8: the first byte comes from the stream.
            ("dst=list:10.8.8.8,mask=0xffffff", false),
            ("sport=inc:1-9", true),
        ] {
            let stream = Stream {
                vary: vec![vary.parse().unwrap()],
                ..Stream::default()
            };
            assert_eq!(free(&stream), expected, "{vary}");
        }
        let back = Stream {
            src: Some("8.8.8.8".parse().unwrap()),
            ..Stream::default()
        };
        assert!(!free(&back) && !free(&back.reversed()));
    }
}
