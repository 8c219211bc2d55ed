//! Original source of a connection as reported by devices on the path: PROXY protocol versions 1 and 2 (haproxy.org,
//! "The PROXY protocol", 2020), the TCP option TOA and its UDP counterpart UOA.

use std::net::IpAddr;

use crate::addr::Addr;
use crate::parse::options;

/// Start of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// No header.
    None,
    /// Header of `len` bytes; no source if the device itself opened the connection.
    Header {
        len: usize,
        source: Option<(Addr, u16)>,
    },
    /// Incomplete header.
    Partial,
    /// Starts like a header but is invalid.
    Malformed,
}

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum length of a version 1 line including its end: section 2.1.
const LONGEST_LINE: usize = 107;

/// Maximum accepted length of a version 2 header; section 2.2 requires support for 536.
const LONGEST_BLOCK: usize = 4096;

/// Parses the header at the start of a stream, given at least one byte.
pub(crate) fn read_proxy(bytes: &[u8]) -> Proxy {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(a, b)| a == b);
    if begins(b"PROXY ") {
        let line = &bytes[..bytes.len().min(LONGEST_LINE)];
        if line.len() < LONGEST_LINE && !line.windows(2).any(|pair| pair == b"\r\n") {
            return Proxy::Partial;
        }
        return version_1(bytes).unwrap_or(Proxy::Malformed);
    }
    if begins(SIGNATURE) {
        let len = bytes.get(14..16).map_or(16, |len| {
            16 + usize::from(u16::from_be_bytes([len[0], len[1]]))
        });
        if len > LONGEST_BLOCK {
            return Proxy::Malformed;
        }
        if bytes.len() < len {
            return Proxy::Partial;
        }
        return version_2(bytes).unwrap_or(Proxy::Malformed);
    }
    Proxy::None
}

fn version_1(bytes: &[u8]) -> Option<Proxy> {
    let end = bytes
        .windows(2)
        .take(LONGEST_LINE)
        .position(|pair| pair == b"\r\n")?;
    let line = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut words = line.split(' ').skip(1);
    let source = match words.next()? {
        "UNKNOWN" => None,
        "TCP4" | "TCP6" => {
            let address: IpAddr = words.next()?.parse().ok()?;
            let _: IpAddr = words.next()?.parse().ok()?;
            let port = words.next()?.parse().ok()?;
            let _: u16 = words.next()?.parse().ok()?;
            Some((address.into(), port))
        }
        _ => return None,
    };
    Some(Proxy::Header {
        len: end + 2,
        source,
    })
}

fn version_2(bytes: &[u8]) -> Option<Proxy> {
    let &[command, family, high, low] = bytes.get(12..16)?.first_chunk()?;
    let len = 16 + usize::from(u16::from_be_bytes([high, low]));
    let body = bytes.get(16..len)?;
    let port = |at: usize| Some(u16::from_be_bytes(*body.get(at..)?.first_chunk()?));
    let source = match (command, family >> 4) {
        (0x21, 1) => {
            let address = u32::from_be_bytes(*body.first_chunk()?);
            Some((Addr::v4(address), port(8)?))
        }
        (0x21, 2) => Some((Addr::v6(body.first_chunk()?), port(32)?)),
        (0x20 | 0x21, _) => None,
        _ => return None,
    };
    Some(Proxy::Header { len, source })
}

/// Address and port of the client in a TOA option: kind 254, port, then 4 or 16 bytes of address.
pub(crate) fn toa(bytes: &[u8]) -> Option<(Addr, u16)> {
    address_option(bytes, 254)
}

/// Address and port of the client in a UOA option: kind 31 among the IPv4 options.
pub(crate) fn uoa(bytes: &[u8]) -> Option<(Addr, u16)> {
    address_option(bytes, 31)
}

fn address_option(bytes: &[u8], wanted: u8) -> Option<(Addr, u16)> {
    options(bytes).find_map(|(kind, content)| {
        let (port, address) = content.split_first_chunk::<2>()?;
        let address = match address.len() {
            _ if kind != wanted => return None,
            4 => Addr::v4(u32::from_be_bytes(*address.first_chunk()?)),
            16 => Addr::v6(address.first_chunk()?),
            _ => return None,
        };
        Some((address, u16::from_be_bytes(*port)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addr(text: &str) -> Addr {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn version_1_is_a_line() {
        let line = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\nGET /";
        let source = Some((addr("192.0.2.7"), 56324));
        assert_eq!(read_proxy(line), Proxy::Header { len: 45, source });
        let line = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n";
        let source = Some((addr("2001:db8::1"), 1));
        assert_eq!(read_proxy(line), Proxy::Header { len: 40, source });
        assert_eq!(
            read_proxy(b"PROXY UNKNOWN ff\r\n"),
            Proxy::Header {
                len: 18,
                source: None
            }
        );
        assert_eq!(read_proxy(b"PROXY TCP4 1.2.3.4\r\n"), Proxy::Malformed);
        for len in 1..line.len() - 5 {
            let whole = len >= 45;
            assert_eq!(read_proxy(&line[..len]) == Proxy::Partial, !whole, "{len}");
        }
        assert_eq!(
            read_proxy(&[b"PROXY ", [b'x'; 101].as_slice()].concat()),
            Proxy::Malformed
        );
        assert_eq!(read_proxy(b"GET / HTTP/1.1\r\n"), Proxy::None);
    }

    #[test]
    fn version_2_is_binary() {
        let mut header = SIGNATURE.to_vec();
        header.extend_from_slice(&[
            0x21, 0x11, 0, 12, 192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 4, 1, 0xbb,
        ]);
        let source = Some((addr("192.0.2.7"), 56324));
        assert_eq!(read_proxy(&header), Proxy::Header { len: 28, source });
        while header.pop().is_some() && !header.is_empty() {
            assert_eq!(read_proxy(&header), Proxy::Partial, "{}", header.len());
        }
        let long = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat();
        assert_eq!(read_proxy(&long), Proxy::Malformed);
        let mut local = SIGNATURE.to_vec();
        local.extend_from_slice(&[0x20, 0, 0, 0]);
        assert_eq!(
            read_proxy(&local),
            Proxy::Header {
                len: 16,
                source: None
            }
        );
    }

    #[test]
    fn toa_has_port_and_address() {
        let bytes = [1, 254, 8, 0x12, 0x34, 10, 0, 0, 1, 0];
        assert_eq!(toa(&bytes), Some((addr("10.0.0.1"), 0x1234)));
        assert_eq!(toa(&[254, 7, 0x12, 0x34, 10, 0, 0]), None);
        assert_eq!(
            (toa(&[31, 8, 0, 1, 10, 0, 0, 1]), uoa(&bytes)),
            (None, None)
        );
        assert_eq!(
            uoa(&[31, 8, 0, 1, 10, 0, 0, 1]),
            Some((addr("10.0.0.1"), 1))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(rest in prop::collection::vec(any::<u8>(), 0..120)) {
            for start in [&b"PROXY TCP4 "[..], SIGNATURE, b"x"] {
                if let Proxy::Header { len, .. } = read_proxy(&[start, &rest].concat()) {
                    prop_assert!(len <= start.len() + rest.len());
                }
            }
            toa(&rest);
        }
    }
}
