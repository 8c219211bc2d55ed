//! Fast parser that finds the test tag in a received frame.

use crate::{ArpView, TagFormat, Vlan, ethertype, protocol, tag_at};

/// Finds the test tag of a frame, directly behind the last header: its offset and kind.
///
/// A VLAN tag stripped by the device makes no difference. Receivers of many similar frames call [`crate::is_tag_at`]
/// first.
#[inline]
pub fn find_tag(frame: &[u8]) -> Option<(usize, TagFormat)> {
    let offset = headers_end(frame)?;
    Some((offset, tag_at(frame, offset)?))
}

/// Offset of the first byte behind the last known header: Ethernet, VLANs, MPLS, ARP, IPv4 or IPv6 with extension
/// headers, UDP, TCP or ICMP echo. None if the frame is truncated inside a header, or is a later fragment. Lengths and
/// checksums are not verified.
#[inline]
pub fn headers_end(frame: &[u8]) -> Option<usize> {
    let mut kind = be16(frame, 12)?;
    let mut at = 14;
    while Vlan::is_tpid(kind) {
        kind = be16(frame, at + 2)?;
        at += 4;
    }
    if matches!(kind, ethertype::MPLS | ethertype::MPLS_MULTICAST) {
        loop {
            let bottom = frame.get(at..at + 4)?[2] & 1 != 0;
            at += 4;
            if bottom {
                break;
            }
        }
        // A label does not identify its payload: RFC 4928 section 2.
        kind = match frame.get(at)? >> 4 {
            4 => ethertype::IPV4,
            6 => ethertype::IPV6,
            _ => return Some(at),
        };
    }
    let end = match kind {
        ethertype::IPV4 => ipv4_end(frame, at)?,
        ethertype::IPV6 => ipv6_end(frame, at)?,
        ethertype::ARP => at + ArpView::LEN,
        _ => at,
    };
    (end <= frame.len()).then_some(end)
}

#[inline]
fn ipv4_end(frame: &[u8], at: usize) -> Option<usize> {
    let header = frame.get(at..at + 20)?;
    let later_fragment = (u16::from(header[6]) << 8 | u16::from(header[7])) & 0x1fff != 0;
    if later_fragment {
        return None;
    }
    let len = usize::from(header[0] & 0xf) * 4;
    if len < 20 {
        return None;
    }
    l4_end(frame, at + len, header[9])
}

#[inline]
fn ipv6_end(frame: &[u8], at: usize) -> Option<usize> {
    let mut next = frame.get(at..at + 40)?[6];
    let mut at = at + 40;
    // Hop-by-hop, routing, destination options; fragment. Each iteration advances by at least eight bytes.
    while matches!(next, 0 | 43 | 60 | 44) {
        let header = frame.get(at..at + 8)?;
        if next == 44 {
            let later_fragment = (u16::from(header[2]) << 8 | u16::from(header[3])) & 0xfff8 != 0;
            if later_fragment {
                return None;
            }
            at += 8;
        } else {
            at += 8 + usize::from(header[1]) * 8;
        }
        next = header[0];
    }
    l4_end(frame, at, next)
}

#[inline]
fn l4_end(frame: &[u8], at: usize, protocol: u8) -> Option<usize> {
    match protocol {
        protocol::UDP | protocol::ICMP | protocol::ICMPV6 => Some(at + 8),
        protocol::TCP => {
            let len = usize::from(frame.get(at + 12)? >> 4) * 4;
            (len >= 20).then_some(at + len)
        }
        _ => Some(at),
    }
}

#[inline]
fn be16(frame: &[u8], at: usize) -> Option<u16> {
    frame
        .get(at..at + 2)
        .map(|b| u16::from_be_bytes([b[0], b[1]]))
}
