//! Frames, and the integers in them: RFC 9000 section 16, RFC 9114 section 7.

/// Types of frames.
pub mod kind {
    /// Piece of a body.
    pub const DATA: u64 = 0x0;
    /// Head or trailers.
    pub const HEADERS: u64 = 0x1;
    /// Limits for the peer.
    pub const SETTINGS: u64 = 0x4;
    /// Announcement of a pushed response; not allowed here.
    pub const PUSH_PROMISE: u64 = 0x5;
    /// Cancels a push.
    pub const CANCEL_PUSH: u64 = 0x3;
    /// The server accepts no more requests.
    pub const GOAWAY: u64 = 0x7;
    /// Limit of pushes.
    pub const MAX_PUSH_ID: u64 = 0xd;
}

/// Types of unidirectional streams: RFC 9114 section 6.2, RFC 9204 section 4.2.
pub mod stream {
    /// Frames about the connection.
    pub const CONTROL: u64 = 0x0;
    /// Pushed response.
    pub const PUSH: u64 = 0x1;
    /// Insertions into the dynamic table.
    pub const ENCODER: u64 = 0x2;
    /// Acknowledgements of insertions.
    pub const DECODER: u64 = 0x3;
}

/// Settings, by number.
pub mod setting {
    /// Size of the dynamic table, in bytes.
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
    /// Maximum size of a head, in bytes (advisory).
    pub const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
    /// Maximum number of streams that wait for the dynamic table.
    pub const QPACK_BLOCKED_STREAMS: u64 = 0x7;
}

/// Error codes of streams and connections: RFC 9114 section 8.1, RFC 9204 section 6.
pub mod code {
    /// No error.
    pub const NO_ERROR: u64 = 0x100;
    /// Violation of the protocol.
    pub const GENERAL_PROTOCOL_ERROR: u64 = 0x101;
    /// Stream that must not be opened.
    pub const STREAM_CREATION_ERROR: u64 = 0x103;
    /// End of a stream that must stay open.
    pub const CLOSED_CRITICAL_STREAM: u64 = 0x104;
    /// Frame that is not allowed there.
    pub const FRAME_UNEXPECTED: u64 = 0x105;
    /// Malformed frame.
    pub const FRAME_ERROR: u64 = 0x106;
    /// Excessive load.
    pub const EXCESSIVE_LOAD: u64 = 0x107;
    /// Invalid stream or push number.
    pub const ID_ERROR: u64 = 0x108;
    /// Malformed SETTINGS.
    pub const SETTINGS_ERROR: u64 = 0x109;
    /// No SETTINGS at the beginning.
    pub const MISSING_SETTINGS: u64 = 0x10a;
    /// Request not processed by the server.
    pub const REQUEST_REJECTED: u64 = 0x10b;
    /// Response no longer wanted.
    pub const REQUEST_CANCELLED: u64 = 0x10c;
    /// Malformed message.
    pub const MESSAGE_ERROR: u64 = 0x10e;
    /// Header block that cannot be decoded.
    pub const DECOMPRESSION_FAILED: u64 = 0x200;
    /// Insertion into a table of size 0.
    pub const ENCODER_STREAM_ERROR: u64 = 0x201;
}

/// Returns the name of a code.
#[must_use]
pub const fn code_name(code: u64) -> &'static str {
    match code {
        0x100 => "H3_NO_ERROR",
        0x101 => "H3_GENERAL_PROTOCOL_ERROR",
        0x102 => "H3_INTERNAL_ERROR",
        0x103 => "H3_STREAM_CREATION_ERROR",
        0x104 => "H3_CLOSED_CRITICAL_STREAM",
        0x105 => "H3_FRAME_UNEXPECTED",
        0x106 => "H3_FRAME_ERROR",
        0x107 => "H3_EXCESSIVE_LOAD",
        0x108 => "H3_ID_ERROR",
        0x109 => "H3_SETTINGS_ERROR",
        0x10a => "H3_MISSING_SETTINGS",
        0x10b => "H3_REQUEST_REJECTED",
        0x10c => "H3_REQUEST_CANCELLED",
        0x10d => "H3_REQUEST_INCOMPLETE",
        0x10e => "H3_MESSAGE_ERROR",
        0x10f => "H3_CONNECT_ERROR",
        0x110 => "H3_VERSION_FALLBACK",
        0x200 => "QPACK_DECOMPRESSION_FAILED",
        0x201 => "QPACK_ENCODER_STREAM_ERROR",
        0x202 => "QPACK_DECODER_STREAM_ERROR",
        _ => "unknown",
    }
}

/// Largest integer.
pub const LARGEST: u64 = (1 << 62) - 1;

/// Appends an integer of at most [`LARGEST`].
pub fn number(value: u64, out: &mut Vec<u8>) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => {
            out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Takes an integer. Returns `None` and takes nothing if it is incomplete.
#[must_use]
#[inline]
pub fn take_integer(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let (all, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = all[1..].iter();
    let value = value.fold(u64::from(first & 0x3f), |n, b| n << 8 | u64::from(*b));
    *bytes = rest;
    Some(value)
}

/// Appends a complete frame.
pub fn write(kind: u64, payload: &[u8], out: &mut Vec<u8>) {
    number(kind, out);
    number(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// Appends SETTINGS.
pub fn settings(all: &[(u64, u64)], out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    for (name, value) in all {
        number(*name, &mut payload);
        number(*value, &mut payload);
    }
    write(kind::SETTINGS, &payload, out);
}
