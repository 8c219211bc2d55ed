//! Where the reading of one stream stands: ten bytes, as there may be millions of streams.

use crate::reader::{End, Read};

/// Where the reading of one stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(2))]
pub struct Progress {
    /// Bytes left of a body or chunk; digits of a length while they are read: 48 bits.
    left_low: u32,
    left_high: u16,
    pub(crate) phase: Phase,
    /// Place in a line or word.
    pub(crate) at: u8,
    /// Marks, and above them the status.
    marks: u16,
}

const _: () = assert!(size_of::<Progress>() == 10);
/// A longer body or chunk is none.
pub(crate) const LONGEST_BODY: u64 = (1 << 48) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Before the first byte of a message.
    Start,
    /// The same; it answers HEAD.
    StartToHead,
    FirstLine,
    LineStart,
    /// In a name that may be this one. A [`Phase::LengthName`] may still become the next.
    LengthName,
    ConnectionName,
    EncodingName,
    ExpectName,
    Length,
    /// The value of a second Content-Length, which must be that of the first.
    LengthAgain,
    LengthEnd,
    Encoding,
    Connection,
    Expect,
    RestOfLine,
    /// The phases above are those of a head, and those from here to [`Phase::Trailer`] frame chunks.
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
    /// Content-Length was given, in `left`.
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
    /// Where the ten bits of the status begin.
    pub(crate) const STATUS: u32 = 6;
    /// A request waits for this status.
    pub(crate) const EXPECTS: u16 = 100 << STATUS;
}

impl Progress {
    /// Before the first message.
    pub const NEW: Self = Self {
        left_low: 0,
        left_high: 0,
        phase: Phase::Start,
        at: 0,
        marks: 0,
    };

    /// Within a message that has no head and so many bytes, at least 1.
    #[inline]
    pub const fn within_body(len: u32) -> Self {
        Self {
            left_low: if len == 0 { 1 } else { len },
            phase: Phase::Body,
            ..Self::NEW
        }
    }

    /// Within a message that has no head and ends with the stream.
    #[inline]
    pub const fn until_end() -> Self {
        Self {
            phase: Phase::UntilEnd,
            ..Self::NEW
        }
    }

    /// Says of the message that comes next whether it answers a request with the method HEAD, and so has no body
    /// whatever its head says. Each message ends with false said of the next one. Without effect within a message.
    #[inline]
    pub fn expect(&mut self, head: bool) {
        if !self.is_within() {
            self.phase = Phase::start(head);
        }
    }

    /// Whether a message has begun and not ended. An interim response that was passed over is none.
    #[inline]
    pub fn is_within(&self) -> bool {
        !matches!(self.phase, Phase::Start | Phase::StartToHead)
    }

    /// How many of the next bytes need only be counted, not seen.
    #[inline]
    pub fn countable(&self) -> u64 {
        match self.phase {
            Phase::UntilEnd => u64::MAX,
            Phase::Body | Phase::Chunk => self.left(),
            _ => 0,
        }
    }

    /// Takes `n` bytes as read, at most [`Progress::countable`].
    #[inline]
    pub fn count(&mut self, n: u64) -> Read {
        if self.phase == Phase::UntilEnd {
            return Read::More;
        }
        let left = self.left().saturating_sub(n);
        self.set_left(left);
        if left > 0 {
            return Read::More;
        }
        if self.phase == Phase::Chunk {
            self.phase = Phase::ChunkEnd;
            return Read::More;
        }
        self.complete(n as usize)
    }

    /// The stream has ended: whether that ends the message well, which had no other end; then its status.
    #[inline]
    pub fn end(&self) -> Option<u16> {
        (self.phase == Phase::UntilEnd).then_some(self.status())
    }

    /// The message ends after `used` bytes of the piece.
    #[inline]
    pub(crate) fn complete(&mut self, used: usize) -> Read {
        let old = self.has(mark::OLD);
        let keep = self.has(mark::KEEP);
        let done = Read::Message {
            used,
            status: self.status(),
            end: End {
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

    /// The status of a response, of its digits those that were read. Of a request it is 100 while that waits for
    /// leave to send its body.
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

impl Phase {
    #[inline]
    pub(crate) fn start(to_head: bool) -> Self {
        if to_head {
            Self::StartToHead
        } else {
            Self::Start
        }
    }
}
