//! Frames: RFC 9113 sections 4, 6 and 7.

/// What comes before everything else that a client sends.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of the head of a frame.
pub const HEAD_LEN: usize = 9;

/// The longest payload that both ends take without a word: we never ask for more.
pub const LONGEST_PAYLOAD: usize = 16_384;
/// Windows and numbers of streams.
pub(crate) const LARGEST: u32 = 0x7fff_ffff;

/// Types of frames.
pub mod kind {
    /// Bytes of a body.
    pub const DATA: u8 = 0;
    /// The beginning of a header block.
    pub const HEADERS: u8 = 1;
    /// Ignored, as RFC 9113 has it.
    pub const PRIORITY: u8 = 2;
    /// The end of a stream, at once.
    pub const RST_STREAM: u8 = 3;
    /// What an end allows the other.
    pub const SETTINGS: u8 = 4;
    /// An answer that nobody asked for; we allow none.
    pub const PUSH_PROMISE: u8 = 5;
    /// An echo.
    pub const PING: u8 = 6;
    /// No more streams.
    pub const GOAWAY: u8 = 7;
    /// So many more bytes of bodies.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More of a header block.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    /// Of DATA and HEADERS: nothing more comes on this stream.
    pub const END_STREAM: u8 = 0x1;
    /// Of SETTINGS and PING: it answers one.
    pub const ACK: u8 = 0x1;
    /// The header block ends here.
    pub const END_HEADERS: u8 = 0x4;
    /// A length of padding comes first, and the padding last.
    pub const PADDED: u8 = 0x8;
    /// Five bytes of priority come before the block.
    pub const PRIORITY: u8 = 0x20;
}

/// Codes of errors.
pub mod code {
    /// No error: an end in order.
    pub const NO_ERROR: u32 = 0x0;
    /// Against the protocol.
    pub const PROTOCOL_ERROR: u32 = 0x1;
    /// More than a window allows.
    pub const FLOW_CONTROL_ERROR: u32 = 0x3;
    /// On a stream that has ended.
    pub const STREAM_CLOSED: u32 = 0x5;
    /// A frame of a wrong length.
    pub const FRAME_SIZE_ERROR: u32 = 0x6;
    /// Not processed; may be asked again.
    pub const REFUSED_STREAM: u32 = 0x7;
    /// Not wanted any more.
    pub const CANCEL: u32 = 0x8;
    /// A header block that nobody can read.
    pub const COMPRESSION_ERROR: u32 = 0x9;
    /// Too much of it.
    pub const ENHANCE_YOUR_CALM: u32 = 0xb;
}

/// The name of a code in RFC 9113.
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

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the payload.
    pub len: usize,
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
}

impl Head {
    /// Reads one.
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

    /// Writes it.
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

/// Writes a whole frame.
pub fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    Head {
        len: payload.len(),
        kind,
        flags,
        stream,
    }
    .write(out);
    out.extend_from_slice(payload);
}

/// Settings that matter to a client, and their numbers.
pub mod setting {
    /// Bytes of the table that header blocks may refer to.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Whether a server may push.
    pub const ENABLE_PUSH: u16 = 2;
    /// Streams at a time.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Bytes of a body that may be sent before more is allowed.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// The longest payload of a frame.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Bytes of a head, about.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Writes SETTINGS.
pub fn settings(all: &[(u16, u32)], out: &mut Vec<u8>) {
    Head {
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
