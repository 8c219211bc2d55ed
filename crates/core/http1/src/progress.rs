//! Parser state of one stream: ten bytes, because there may be millions of streams.

use crate::reader::{MessageEnd, Read};

/// Parser state of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(2))]
pub struct Progress {
    /// Bytes left of a body or chunk, or the digits of a length while they are read: 48 bits.
    left_low: u32,
    left_high: u16,
    pub(crate) phase: ReadPhase,
    /// Position in a line or word.
    pub(crate) at: u8,
    /// Marks in the low bits, the status above them.
    marks: u16,
}

const _: () = assert!(size_of::<Progress>() == 10);
/// Largest accepted body or chunk; a longer one is malformed.
pub(crate) const LONGEST_BODY: u64 = (1 << 48) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ReadPhase {
    /// Before the first byte of a message.
    Start,
    /// Like `Start`, for a response to HEAD.
    StartToHead,
    FirstLine,
    LineStart,
    /// Within a name that may be this one. A [`Phase::LengthName`] may still become the next.
    LengthName,
    ConnectionName,
    EncodingName,
    ExpectName,
    Length,
    /// Value of a second Content-Length, which must equal the first.
    LengthAgain,
    LengthEnd,
    Encoding,
    Connection,
    Expect,
    RestOfLine,
    /// The phases above belong to the head; those from here to [`Phase::Trailer`] belong to chunk framing.
    ChunkSize,
    ChunkExtension,
    ChunkEnd,
    TrailerStart,
    Trailer,
    Body,
    Chunk,
    UntilEnd,
}

pub(crate) mod mark {
    /// Content-Length was given; its value is in `left`.
    pub(crate) const LENGTH: u16 = 1;
    /// The last transfer coding is "chunked".
    pub(crate) const CHUNKED: u16 = 2;
    pub(crate) const CLOSE: u16 = 4;
    /// HTTP/1.0.
    pub(crate) const OLD: u16 = 8;
    /// "Connection: keep-alive".
    pub(crate) const KEEP: u16 = 16;
    /// The method is HEAD, or that of the request was.
    pub(crate) const HEAD: u16 = 32;
    /// Lowest of the ten bits of the status.
    pub(crate) const STATUS: u32 = 6;
    /// A request that waits for this status.
    pub(crate) const EXPECTS: u16 = 100 << STATUS;
}

impl Progress {
    /// State before the first message.
    pub const NEW: Self = Self {
        left_low: 0,
        left_high: 0,
        phase: ReadPhase::Start,
        at: 0,
        marks: 0,
    };

    /// State within a message that has no head and `len` more bytes; 0 counts as 1.
    #[inline]
    pub const fn within_body(len: u32) -> Self {
        Self {
            left_low: if len == 0 { 1 } else { len },
            phase: ReadPhase::Body,
            ..Self::NEW
        }
    }

    /// State within a message that has no head and ends with the stream.
    #[inline]
    pub const fn until_end() -> Self {
        Self {
            phase: ReadPhase::UntilEnd,
            ..Self::NEW
        }
    }

    /// Sets whether the next message answers a HEAD request, and so has no body whatever its head states. Each message
    /// resets this to false for the next one. Has no effect within a message.
    #[inline]
    pub fn expect(&mut self, head: bool) {
        if !self.is_within() {
            self.phase = ReadPhase::start(head);
        }
    }

    /// Returns true if a message has begun and not ended. A skipped interim response does not count as a message.
    #[inline]
    pub fn is_within(&self) -> bool {
        !matches!(self.phase, ReadPhase::Start | ReadPhase::StartToHead)
    }

    /// Number of following bytes that need only be counted, not parsed.
    #[inline]
    pub fn countable(&self) -> u64 {
        match self.phase {
            ReadPhase::UntilEnd => u64::MAX,
            ReadPhase::Body | ReadPhase::Chunk => self.left(),
            _ => 0,
        }
    }

    /// Counts `n` bytes as read, at most [`Progress::countable`].
    #[inline]
    pub fn count(&mut self, n: u64) -> Read {
        if self.phase == ReadPhase::UntilEnd {
            return Read::More;
        }
        let left = self.left().saturating_sub(n);
        self.set_left(left);
        if left > 0 {
            return Read::More;
        }
        if self.phase == ReadPhase::Chunk {
            self.phase = ReadPhase::ChunkEnd;
            return Read::More;
        }
        self.complete(n as usize)
    }

    /// Handles the end of the stream. If the stream end is the proper end of the message, returns the status.
    #[inline]
    pub fn end(&self) -> Option<u16> {
        (self.phase == ReadPhase::UntilEnd).then_some(self.status())
    }

    /// Ends the message after `used` bytes of the piece.
    #[inline]
    pub(crate) fn complete(&mut self, used: usize) -> Read {
        let old = self.has(mark::OLD);
        let keep = self.has(mark::KEEP);
        let done = Read::Message {
            used,
            status: self.status(),
            end: MessageEnd {
                close: self.has(mark::CLOSE) || old && !keep,
                keep_if_granted: old && keep,
                head_only: self.has(mark::HEAD),
            },
        };
        *self = Self::NEW;
        done
    }

    #[inline]
    pub(crate) fn left(&self) -> u64 {
        u64::from(self.left_high) << 32 | u64::from(self.left_low)
    }

    #[inline]
    pub(crate) fn set_left(&mut self, left: u64) {
        self.left_low = left as u32;
        self.left_high = (left >> 32) as u16;
    }

    /// Status of a response, from the digits read so far. For a request, 100 while it waits for permission to send its
    /// body.
    #[inline]
    pub(crate) fn status(&self) -> u16 {
        self.marks >> mark::STATUS
    }

    #[inline]
    pub(crate) fn set_status(&mut self, status: u16) {
        self.marks = self.marks & ((1 << mark::STATUS) - 1) | status << mark::STATUS;
    }

    #[inline]
    pub(crate) fn has(&self, mark: u16) -> bool {
        self.marks & mark != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, mark: u16) {
        self.marks |= mark;
    }

    #[inline]
    pub(crate) fn clear(&mut self, mark: u16) {
        self.marks &= !mark;
    }
}

impl ReadPhase {
    #[inline]
    pub(crate) fn start(to_head: bool) -> Self {
        if to_head {
            Self::StartToHead
        } else {
            Self::Start
        }
    }
}
