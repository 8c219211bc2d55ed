//! Frames: RFC 9113 sections 4, 6 and 7.

/// Connection preface, the first bytes that a client sends.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame header, in bytes.
pub const HEAD_LEN: usize = 9;

/// Largest payload without negotiation. We never ask for more.
pub const LONGEST_PAYLOAD: usize = 16_384;
/// Largest window and stream number.
pub(crate) const LARGEST: u32 = 0x7fff_ffff;

/// Types of frames.
pub mod kind {
    /// Bytes of a body.
    pub const DATA: u8 = 0;
    /// Beginning of a header block.
    pub const HEADERS: u8 = 1;
    /// Priority; ignored, as RFC 9113 requires.
    pub const PRIORITY: u8 = 2;
    /// Immediate end of a stream.
    pub const RST_STREAM: u8 = 3;
    /// Limits for the peer.
    pub const SETTINGS: u8 = 4;
    /// Pushed response; not allowed here.
    pub const PUSH_PROMISE: u8 = 5;
    /// Echo request or reply.
    pub const PING: u8 = 6;
    /// End of new streams.
    pub const GOAWAY: u8 = 7;
    /// Enlarges a window.
    pub const WINDOW_UPDATE: u8 = 8;
    /// Continuation of a header block.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    /// On DATA and HEADERS: the stream ends.
    pub const END_STREAM: u8 = 0x1;
    /// On SETTINGS and PING: acknowledgement.
    pub const ACK: u8 = 0x1;
    /// The header block ends here.
    pub const END_HEADERS: u8 = 0x4;
    /// The payload begins with the length of the padding and ends with the padding.
    pub const PADDED: u8 = 0x8;
    /// The block is preceded by five bytes of priority.
    pub const PRIORITY: u8 = 0x20;
}

/// Error codes.
pub mod code {
    /// No error: orderly end.
    pub const NO_ERROR: u32 = 0x0;
    /// Violation of the protocol.
    pub const PROTOCOL_ERROR: u32 = 0x1;
    /// More bytes than a window allows.
    pub const FLOW_CONTROL_ERROR: u32 = 0x3;
    /// Frame on a stream that has ended.
    pub const STREAM_CLOSED: u32 = 0x5;
    /// A frame of a wrong length.
    pub const FRAME_SIZE_ERROR: u32 = 0x6;
    /// Request not processed; it may be sent again.
    pub const REFUSED_STREAM: u32 = 0x7;
    /// Response no longer wanted.
    pub const CANCEL: u32 = 0x8;
    /// Header block that cannot be decoded.
    pub const COMPRESSION_ERROR: u32 = 0x9;
    /// Excessive load.
    pub const ENHANCE_YOUR_CALM: u32 = 0xb;
}

/// Returns the name of a code in RFC 9113.
#[must_use]
pub const fn code_name(code: u32) -> &'static str {
    match code {
        0x0 => "NO_ERROR",
        0x1 => "PROTOCOL_ERROR",
        0x2 => "INTERNAL_ERROR",
        0x3 => "FLOW_CONTROL_ERROR",
        0x4 => "SETTINGS_TIMEOUT",
        0x5 => "STREAM_CLOSED",
        0x6 => "FRAME_SIZE_ERROR",
        0x7 => "REFUSED_STREAM",
        0x8 => "CANCEL",
        0x9 => "COMPRESSION_ERROR",
        0xa => "CONNECT_ERROR",
        0xb => "ENHANCE_YOUR_CALM",
        0xc => "INADEQUATE_SECURITY",
        0xd => "HTTP_1_1_REQUIRED",
        _ => "unknown",
    }
}

/// Frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload, in bytes.
    pub len: usize,
    /// Type of the frame.
    pub kind: u8,
    /// Flags of the frame.
    pub flags: u8,
    /// Stream number; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Decodes a frame header.
    #[must_use]
    #[inline]
    pub const fn read(bytes: &[u8; HEAD_LEN]) -> Self {
        let [a, b, c, kind, flags, s, t, u, v] = *bytes;
        Self {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s, t, u, v]) & LARGEST,
        }
    }

    /// Appends the frame header.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        out.extend_from_slice(&[a, b, c, self.kind, self.flags, s, t, u, v]);
    }

    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a complete frame.
pub fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    FrameHeader {
        len: payload.len(),
        kind,
        flags,
        stream,
    }
    .write(out);
    out.extend_from_slice(payload);
}

/// Settings of interest to a client, by number.
pub mod setting {
    /// Size of the dynamic table for header blocks, in bytes.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// 1 if the server may push.
    pub const ENABLE_PUSH: u16 = 2;
    /// Maximum of concurrent streams.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Initial window of a stream, in bytes.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Largest payload of a frame, in bytes.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Maximum size of a head, in bytes (advisory).
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Writes SETTINGS.
pub fn settings(all: &[(u16, u32)], out: &mut Vec<u8>) {
    FrameHeader {
        len: all.len() * 6,
        kind: kind::SETTINGS,
        flags: 0,
        stream: 0,
    }
    .write(out);
    for (number, value) in all {
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}
