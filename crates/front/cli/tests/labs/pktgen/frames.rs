//! The generator's packets in capture files, taken apart without any of the product's code.

use std::path::Path;

/// A frame of a capture file.
pub(super) struct Frame {
    /// When it was recorded, wall clock.
    pub(super) at_ns: u64,
    bytes: Vec<u8>,
}

/// Header that the generator writes after the UDP header.
pub(super) struct Tag {
    /// The eight bytes of time.
    stamp: [u8; 8],
    /// Ethernet and IP: what the receiver counts.
    pub(super) counted_bytes: u64,
}

/// All frames of a file in the classic format, little-endian, of micro- or nanoseconds.
pub(super) fn of(path: &Path) -> Vec<Frame> {
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let word = |at: usize| u64::from(u32::from_le_bytes(file[at..at + 4].try_into().expect("4")));
    let unit = match word(0) {
        0xa1b2_3c4d => 1,
        0xa1b2_c3d4 => 1000,
        other => panic!("{}: not a capture: {other:x}", path.display()),
    };
    let (mut frames, mut at) = (Vec::new(), 24);
    while at + 16 <= file.len() {
        let len = usize::try_from(word(at + 8)).expect("fits");
        frames.push(Frame {
            at_ns: word(at) * 1_000_000_000 + word(at + 4) * unit,
            bytes: file[at + 16..at + 16 + len].to_vec(),
        });
        at += 16 + len;
    }
    frames
}

impl Frame {
    /// The tag, if the generator made this frame.
    pub(super) fn tag(&self) -> Option<Tag> {
        let frame = &self.bytes;
        let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
        let short = |at: usize| u64::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let (header, ip_bytes) = match frame[ip] >> 4 {
            4 => (20, short(ip + 2)),
            6 => (40, 40 + short(ip + 4)),
            _ => return None,
        };
        let tag = frame.get(ip + header + 8..ip + header + 24)?;
        (tag[..4] == [0xbe, 0x9b, 0xe9, 0x55]).then(|| Tag {
            stamp: tag[8..].try_into().expect("8"),
            counted_bytes: 14 + ip_bytes,
        })
    }
}

impl Tag {
    /// Wall clock time in the form of the kernel's generator; none if the frame has none.
    pub(super) fn kernel_ns(&self) -> Option<u64> {
        let word = |at: usize| {
            u64::from(u32::from_be_bytes(
                self.stamp[at..at + 4].try_into().expect("4"),
            ))
        };
        (self.stamp != [0; 8]).then(|| word(0) * 1_000_000_000 + word(4) * 1000)
    }
}
