//! Parser of ICMP errors about sent packets: RFC 792, RFC 4443.

use wb_wire::{checksum, ethertype, protocol};

use crate::addr::Addr;

/// ICMP error about a packet sent by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IcmpError {
    pub(crate) what: IcmpErrorKind,
    /// Source of the sent packet.
    pub(crate) local: Addr,
    /// Destination of the sent packet.
    pub(crate) remote: Addr,
    /// Ports of the sent packet in the order of an answer: the remote one in the upper half.
    pub(crate) ports: u32,
    pub(crate) is_tcp: bool,
    /// Sequence number of the sent packet (TCP only).
    pub(crate) seq: u32,
}

/// Kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpErrorKind {
    /// Destination unreachable, with the code of the message.
    Unreachable(u8),
    /// The packet is too large for the next link, with the MTU of that link in bytes.
    TooBig(u16),
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Parses a frame. Returns None if it is not an ICMP error or if its checksum is wrong. `vlan` is the expected VLAN id.
#[cold]
pub(crate) fn parse(frame: &[u8], vlan: Option<u16>) -> Option<IcmpError> {
    let (mut kind, mut rest) = (be16(frame, 12)?, frame.get(14..)?);
    if kind == ethertype::VLAN {
        if vlan != Some(be16(rest, 0)? & 0xfff) {
            return None;
        }
        (kind, rest) = (be16(rest, 2)?, rest.get(4..)?);
    }
    let v6 = kind == ethertype::IPV6;
    let (message, pseudo, to) = match kind {
        ethertype::IPV4 => v4(rest)?,
        ethertype::IPV6 => v6_message(rest)?,
        _ => return None,
    };
    let [kind, code, ..] = *message else {
        return None;
    };
    let about = message.get(8..)?;
    let what = match (v6, kind, code) {
        (false, 3, 4) => IcmpErrorKind::TooBig(match be16(message, 6)? {
            // A router older than RFC 1191 reports no MTU.
            0 => plateau_below(be16(about, 2)?),
            mtu => mtu,
        }),
        (false, 3, code) | (true, 1, code) => IcmpErrorKind::Unreachable(code),
        (true, 2, _) => IcmpErrorKind::TooBig(u16::try_from(be32(message, 4)?).unwrap_or(u16::MAX)),
        _ => return None,
    };
    if !checksum::is_right(pseudo, message) {
        return None;
    }
    let (local, remote, next, body) = if v6 {
        let header: &[u8; 40] = about.first_chunk()?;
        let (src, dst) = (header[8..].first_chunk()?, header[24..].first_chunk()?);
        (Addr::v6(src), Addr::v6(dst), header[6], &about[40..])
    } else {
        let len = usize::from(about.first()? & 0xf) * 4;
        let (src, dst) = (be32(about, 12)?, be32(about, 16)?);
        let next = *about.get(9)?;
        (Addr::v4(src), Addr::v4(dst), next, about.get(len..)?)
    };
    if local != to || !matches!(next, protocol::TCP | protocol::UDP) {
        return None;
    }
    Some(IcmpError {
        what,
        local,
        remote,
        ports: be32(body, 0)?.rotate_left(16),
        is_tcp: next == protocol::TCP,
        seq: be32(body, 4)?,
    })
}

/// ICMP message in an IPv4 packet, sum of its pseudo header, and its destination.
fn v4(bytes: &[u8]) -> Option<(&[u8], u64, Addr)> {
    let len = usize::from(bytes.first()? & 0xf) * 4;
    if bytes.get(9) != Some(&protocol::ICMP) || be16(bytes, 6)? & 0x3fff != 0 {
        return None;
    }
    let message = bytes.get(len..usize::from(be16(bytes, 2)?))?;
    Some((message, 0, Addr::v4(be32(bytes, 16)?)))
}

/// ICMP message in an IPv6 packet, sum of its pseudo header, and its destination.
fn v6_message(bytes: &[u8]) -> Option<(&[u8], u64, Addr)> {
    let header: &[u8; 40] = bytes.first_chunk()?;
    if header[6] != protocol::ICMPV6 {
        return None;
    }
    let message = bytes.get(40..)?.get(..usize::from(be16(header, 4)?))?;
    let src = Addr::v6(header[8..].first_chunk()?);
    let dst = Addr::v6(header[24..].first_chunk()?);
    let sum = src.sum(true) + dst.sum(true) + u64::from(protocol::ICMPV6) + message.len() as u64;
    Some((message, sum, dst))
}

/// Next common MTU below the length of a packet that was too large: RFC 1191 section 7.
fn plateau_below(len: u16) -> u16 {
    const PLATEAUS: [u16; 10] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];
    PLATEAUS.into_iter().find(|mtu| *mtu < len).unwrap_or(68)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_router_that_names_no_mtu_means_the_next_plateau() {
        assert_eq!(plateau_below(1500), 1492);
        assert_eq!(plateau_below(1492), 1006);
        assert_eq!(plateau_below(60), 68);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut frame in prop::collection::vec(any::<u8>(), 0..120), v6: bool) {
            if frame.len() > 34 {
                let kind: [u8; 2] = if v6 { [0x86, 0xdd] } else { [8, 0] };
                frame[12..14].copy_from_slice(&kind);
                frame[14] = if v6 { 0x60 } else { 0x45 };
                frame[if v6 { 20 } else { 23 }] = if v6 { 58 } else { 1 };
            }
            let _ = parse(&frame, Some(0));
        }
    }
}
