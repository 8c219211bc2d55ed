//! Which frames the receiver counts, and as how many bytes.

use wb_wire::{PktgenTag, ethertype};

/// A frame that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PktgenFrame {
    /// Ethernet header and IP packet: neither FCS nor VLAN tags nor padding.
    pub bytes: u64,
    /// The tag, unless the frame ends within it.
    pub tag: Option<PktgenTag>,
}

/// Whether this frame (without FCS) counts: IPv4 whose bytes 8 after the transport header begins are
/// the magic, or IPv6 with the magic 48 after its header begins. Protocol and port are not looked
/// at; VLAN tags are passed over.
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
