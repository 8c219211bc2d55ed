//! Selects the frames that the receiver counts, and their number of bytes.

use wb_wire::{PktgenTag, ethertype};

/// A frame that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PktgenFrame {
    /// Bytes of Ethernet header and IP packet, without FCS, VLAN tags and padding.
    pub bytes: u64,
    /// The tag, unless the frame ends within it.
    pub tag: Option<PktgenTag>,
}

/// Returns the frame (without FCS) if it counts: an IPv4 frame with the magic 8 bytes after the start of the transport
/// header, or an IPv6 frame with the magic 48 bytes after the start of the IPv6 header. Ignores protocol and port, and
/// skips VLAN tags.
pub fn classify_pktgen(frame: &[u8]) -> Option<PktgenFrame> {
    let mut at = 12;
    let kind = loop {
        match word(frame, at)? {
            ethertype::VLAN | ethertype::QINQ | ethertype::OLD_QINQ => at += 4,
            kind => break kind,
        }
    };
    let packet = frame.get(at + 2..)?;
    let (payload, len) = match kind {
        ethertype::IPV4 => {
            let first = *packet.first()?;
            let header = usize::from(first & 15) * 4;
            if first >> 4 != 4 || header < 20 {
                return None;
            }
            (header + 8, u64::from(word(packet, 2)?))
        }
        ethertype::IPV6 if packet.first()? >> 4 == 6 => (48, 40 + u64::from(word(packet, 4)?)),
        _ => return None,
    };
    let payload = packet.get(payload..)?;
    if payload.first_chunk()? != &PktgenTag::MAGIC.to_be_bytes() {
        return None;
    }
    Some(PktgenFrame {
        bytes: 14 + len,
        tag: PktgenTag::read(payload),
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
