//! Frame parser: extracts the fields that the machine needs.

use wb_wire::{checksum, ethertype, protocol};

use crate::addr::Addr;

/// Options of a SYN: RFC 9293 section 3.2, RFC 7323 section 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SynOptions {
    pub(crate) mss: Option<u16>,
    /// Window scale, limited to 14: RFC 7323 section 2.3.
    pub(crate) scale: Option<u8>,
    /// SACK permitted: RFC 2018 section 2.
    pub(crate) sack: bool,
}

/// Parsed TCP segment or UDP datagram with its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) src_mac: &'a [u8; 6],
    pub(crate) src: Addr,
    pub(crate) dst: Addr,
    /// Both ports as one number, source port in the upper half.
    pub(crate) ports: u32,
    pub(crate) is_tcp: bool,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) tos: u8,
    /// TCP options; for a datagram the IPv4 options or those of the UOA header.
    pub(crate) options: &'a [u8],
    pub(crate) payload: &'a [u8],
}

/// Reason why a frame is not a packet for the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// Other protocol or other VLAN.
    Foreign,
    /// Inconsistent lengths.
    Malformed,
    /// Wrong checksum.
    Corrupt,
    /// Fragment of an IP packet.
    Fragment,
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Knowledge about the transport checksum of a frame before its bytes are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// No information.
    #[default]
    Unknown,
    /// Verified by the device or the kernel.
    Right,
    /// Left to hardware that never ran, so the field is not valid.
    Left,
}

/// Checksums to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// No checksums.
    Nothing,
    /// IPv4 header checksum.
    Header,
    /// IPv4 header checksum and transport checksum.
    All,
    /// Like `All`, but also accepts a field that contains only the sum of the pseudo header. The kernel leaves such
    /// checksums to hardware when it sends to a virtual device.
    AllOrLeft,
}

impl Check {
    #[inline(always)]
    fn looks_inside(self) -> bool {
        matches!(self, Self::All | Self::AllOrLeft)
    }
}

/// Parses a frame. `vlan` is the expected VLAN id. An untagged frame is accepted too, because the device may have
/// removed the tag.
// Force inlining: passing the packet through memory costs 30 instructions per frame.
#[inline(always)]
pub(crate) fn parse(
    frame: &[u8],
    vlan: Option<u16>,
    check: Check,
) -> Result<Packet<'_>, RejectReason> {
    let ethernet: &[u8; 14] = frame.first_chunk().ok_or(RejectReason::Foreign)?;
    let mut kind = be16(ethernet, 12);
    let mut rest = &frame[14..];
    if kind == ethertype::VLAN {
        let tag: &[u8; 4] = rest.first_chunk().ok_or(RejectReason::Foreign)?;
        if vlan != Some(be16(tag, 0) & 0xfff) {
            return Err(RejectReason::Foreign);
        }
        kind = be16(tag, 2);
        rest = &rest[4..];
    }
    let src_mac = ethernet[6..].first_chunk().expect("eight bytes");
    let (src, dst, mut next, tos, mut body) = match kind {
        ethertype::IPV4 => ipv4(rest, check != Check::Nothing)?,
        ethertype::IPV6 => ipv6(rest)?,
        _ => return Err(RejectReason::Foreign),
    };
    let mut network_options: &[u8] = &[];
    if next == protocol::UDP {
        if rest[0] != NO_OPTIONS && kind == ethertype::IPV4 {
            network_options = ipv4_options(rest);
        }
    } else if next == OPTION_HEADER {
        (next, network_options, body) = option_header(body)?;
    }
    let v6 = kind == ethertype::IPV6;
    let packet = Packet {
        src_mac,
        src,
        dst,
        ports: 0,
        is_tcp: true,
        seq: 0,
        ack: 0,
        flags: 0,
        window: 0,
        tos,
        options: &[],
        payload: &[],
    };
    match next {
        protocol::TCP => {
            let header: &[u8; 20] = body.first_chunk().ok_or(RejectReason::Malformed)?;
            if check.looks_inside() {
                let pseudo = pseudo(src, dst, v6, next, body);
                is_intact(pseudo, body, be16(header, 16), check)?;
            }
            let header_len = usize::from(header[12] >> 4) * 4;
            let options = body.get(20..header_len).ok_or(RejectReason::Malformed)?;
            Ok(Packet {
                ports: be32(header, 0),
                seq: be32(header, 4),
                ack: be32(header, 8),
                flags: header[13],
                window: be16(header, 14),
                options,
                payload: &body[header_len..],
                ..packet
            })
        }
        protocol::UDP => {
            let header: &[u8; 8] = body.first_chunk().ok_or(RejectReason::Malformed)?;
            // Bytes of the packet after the datagram are padding.
            let datagram = body
                .get(..usize::from(be16(header, 4)))
                .ok_or(RejectReason::Malformed)?;
            let payload = datagram.get(8..).ok_or(RejectReason::Malformed)?;
            let field = be16(header, 6);
            // A checksum of 0 means that the sender did not compute one: RFC 768.
            if check.looks_inside() && (field != 0 || v6) {
                let pseudo = pseudo(src, dst, v6, next, datagram);
                is_intact(pseudo, datagram, field, check)?;
            }
            Ok(Packet {
                ports: be32(header, 0),
                is_tcp: false,
                options: network_options,
                payload,
                ..packet
            })
        }
        _ => Err(RejectReason::Foreign),
    }
}

/// Protocol number of the header that carries UOA if IPv4 options would be dropped.
const OPTION_HEADER: u8 = 248;

/// Parses the UOA header: version, protocol, total length, options (DPVS, "UDP option of address").
#[cold]
fn option_header(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), RejectReason> {
    let header: &[u8; 4] = bytes.first_chunk().ok_or(RejectReason::Malformed)?;
    let len = usize::from(be16(header, 2));
    let options = bytes.get(4..len).ok_or(RejectReason::Malformed)?;
    Ok((header[1], options, &bytes[len..]))
}

type NetworkPacket<'a> = (Addr, Addr, u8, u8, &'a [u8]);

#[inline(always)]
fn ipv4(bytes: &[u8], verify: bool) -> Result<NetworkPacket<'_>, RejectReason> {
    let header: &[u8; 20] = bytes.first_chunk().ok_or(RejectReason::Malformed)?;
    // Most headers have no options, and the sum of 20 bytes needs no loop.
    let (header_len, is_right) = match header[0] {
        NO_OPTIONS => (20, !verify || checksum::is_right(0, header)),
        _ => long_header(bytes)?,
    };
    if be16(header, 6) & 0x3fff != 0 {
        return Err(RejectReason::Fragment);
    }
    let body = bytes
        .get(header_len..usize::from(be16(header, 2)))
        .ok_or(RejectReason::Malformed)?;
    if verify && !is_right {
        return Err(RejectReason::Corrupt);
    }
    let (src, dst) = (Addr::v4(be32(header, 12)), Addr::v4(be32(header, 16)));
    Ok((src, dst, header[9], header[1], body))
}

/// First byte of an IPv4 header without options: version 4, header length 5 words.
const NO_OPTIONS: u8 = 0x45;

/// Returns the options of a packet with a valid IPv4 header.
#[cold]
#[inline(never)]
fn ipv4_options(packet: &[u8]) -> &[u8] {
    &packet[20..usize::from(packet[0] & 0xf) * 4]
}

/// Length of an IPv4 header with options, and true if its checksum is correct.
#[cold]
fn long_header(bytes: &[u8]) -> Result<(usize, bool), RejectReason> {
    let len = usize::from(bytes[0] & 0xf) * 4;
    match bytes.get(..len) {
        Some(header) if bytes[0] >> 4 == 4 && len >= 20 => Ok((len, checksum::is_right(0, header))),
        _ => Err(RejectReason::Malformed),
    }
}

#[inline(never)]
fn ipv6(bytes: &[u8]) -> Result<NetworkPacket<'_>, RejectReason> {
    let header: &[u8; 40] = bytes.first_chunk().ok_or(RejectReason::Malformed)?;
    if header[0] >> 4 != 6 {
        return Err(RejectReason::Malformed);
    }
    let mut body = bytes[40..]
        .get(..usize::from(be16(header, 4)))
        .ok_or(RejectReason::Malformed)?;
    let mut next = header[6];
    // Hop-by-hop, routing and destination options: RFC 8200 section 4.
    while matches!(next, 0 | 43 | 60) {
        let len = 8 + 8 * usize::from(*body.get(1).ok_or(RejectReason::Malformed)?);
        next = body[0];
        body = body.get(len..).ok_or(RejectReason::Malformed)?;
    }
    if next == 44 {
        return Err(RejectReason::Fragment);
    }
    let src = Addr::v6(header[8..].first_chunk().expect("32 bytes"));
    let dst = Addr::v6(header[24..].first_chunk().expect("16 bytes"));
    let class = header[0] << 4 | header[1] >> 4;
    Ok((src, dst, next, class, body))
}

/// Sum of the pseudo header of a segment or datagram.
#[inline(always)]
fn pseudo(src: Addr, dst: Addr, v6: bool, next: u8, body: &[u8]) -> u64 {
    src.sum(v6) + dst.sum(v6) + u64::from(next) + body.len() as u64
}

/// Verifies the checksum `field` of a segment or datagram.
#[inline(always)]
fn is_intact(pseudo: u64, body: &[u8], field: u16, check: Check) -> Result<(), RejectReason> {
    let is_left = || check == Check::AllOrLeft && field == checksum::fold(pseudo);
    if checksum::is_right(pseudo, body) || is_left() {
        Ok(())
    } else {
        Err(RejectReason::Corrupt)
    }
}

/// Iterates over options as (kind, contents), up to the end or the first invalid option.
pub(crate) fn options(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            match *bytes {
                [1, ref rest @ ..] => bytes = rest,
                [kind, len, ..] if kind != 0 && len >= 2 => {
                    let content = bytes.get(2..usize::from(len))?;
                    bytes = &bytes[usize::from(len)..];
                    return Some((kind, content));
                }
                _ => return None,
            }
        }
    })
}

/// Parses the options of a SYN.
#[inline]
pub(crate) fn syn_options(bytes: &[u8]) -> SynOptions {
    let mut found = SynOptions::default();
    let mut rest = bytes;
    loop {
        rest = match *rest {
            [1, ref rest @ ..] => rest,
            [2, 4, a, b, ref rest @ ..] => {
                found.mss = Some(u16::from_be_bytes([a, b]));
                rest
            }
            [3, 3, scale, ref rest @ ..] => {
                found.scale = Some(scale.min(14));
                rest
            }
            [4, 2, ref rest @ ..] => {
                found.sack = true;
                rest
            }
            [kind, len, ..] if kind != 0 && len >= 2 => match rest.get(usize::from(len)..) {
                Some(rest) => rest,
                None => return found,
            },
            _ => return found,
        }
    }
}

/// SACK blocks and their number: RFC 2018 section 3.
pub(crate) fn sack_blocks(bytes: &[u8]) -> ([(u32, u32); 4], usize) {
    let mut blocks = [(0, 0); 4];
    let mut n = 0;
    for (kind, content) in options(bytes) {
        if kind == 5 {
            for (to, block) in blocks.iter_mut().zip(content.chunks_exact(8)) {
                *to = (be32(block, 0), be32(block, 4));
                n += 1;
            }
            break;
        }
    }
    (blocks, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn syn_options_are_found_in_any_order() {
        let syn = [
            4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 15, 2, 4, 5, 0xb4,
        ];
        let found = syn_options(&syn);
        assert_eq!((found.mss, found.scale), (Some(1460), Some(14)));
        assert_eq!(syn_options(&[2, 4, 5]), SynOptions::default());
        assert_eq!(syn_options(&[9, 0, 2, 4, 5, 0xb4]), SynOptions::default());
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(mut frame in prop::collection::vec(any::<u8>(), 0..120), kind in 0usize..4) {
            if frame.len() > 24 {
                let head: &[u8] = [&[8, 0, 0x45][..], &[0x86, 0xdd, 0x60], &[0x81, 0, 0], &[]][kind];
                frame[12..12 + head.len()].copy_from_slice(head);
            }
            let _ = parse(&frame, Some(0), Check::AllOrLeft);
            let _ = parse(&frame, None, Check::Nothing);
            syn_options(&frame);
        }
    }
}
