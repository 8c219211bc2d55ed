//! Request stream: frames up to the end of the response.

use wb_http2::blocks::{BlockError, BlockPlace, ResponseInfo};

use crate::{
    Http3Fault, QpackDecoder, ResponseSink,
    frame::{self, code, kind},
};

/// Maximum length of a header block, in bytes.
pub(crate) const LONGEST_BLOCK: u64 = 64 * 1024;
/// Maximum length of a frame's type and length, in bytes.
const HEAD_LEN: usize = 16;

/// Beginning of a frame that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct PartialFrame {
    bytes: [u8; HEAD_LEN],
    len: usize,
}

impl PartialFrame {
    /// Takes the next frame's type and length. Stores all bytes and returns `None` if they are incomplete.
    #[inline]
    pub(crate) fn take_header(&mut self, bytes: &mut &[u8]) -> Option<(u64, u64)> {
        fn head(bytes: &mut &[u8]) -> Option<(u64, u64)> {
            let mut rest = *bytes;
            let kind = frame::take_integer(&mut rest)?;
            let len = frame::take_integer(&mut rest)?;
            *bytes = rest;
            Some((kind, len))
        }
        if self.len == 0
            && let Some(found) = head(bytes)
        {
            return Some(found);
        }
        while let Some((byte, rest)) = bytes.split_first() {
            self.bytes[self.len] = *byte;
            self.len += 1;
            *bytes = rest;
            if let Some(found) = head(&mut &self.bytes[..self.len]) {
                self.len = 0;
                return Some(found);
            }
        }
        None
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct RequestStream<T> {
    pub(crate) of: T,
    /// True if no response to it has a body.
    head: bool,
    /// Status of the response; 0 until its head has arrived.
    pub(crate) status: u16,
    /// Bytes of the body still expected.
    pub(crate) left: Option<u64>,
    /// True after the trailers: no further frame may follow.
    trailers: bool,
    begun: PartialFrame,
    /// The current frame: type and bytes left.
    frame: Option<(u64, u64)>,
    /// Part of a header block that arrived so far.
    block: Vec<u8>,
}

impl<T> RequestStream<T> {
    pub(crate) fn new(of: T, head: bool) -> Self {
        Self {
            of,
            head,
            status: 0,
            left: None,
            trailers: false,
            begun: PartialFrame::default(),
            frame: None,
            block: Vec::new(),
        }
    }

    /// Returns true between two frames.
    pub(crate) const fn is_between(&self) -> bool {
        self.frame.is_none() && self.begun.is_empty()
    }

    /// Reads bytes. Returns an error of the response, if any.
    #[inline]
    pub(crate) fn read(
        &mut self,
        decoder: &mut QpackDecoder,
        mut bytes: &[u8],
        sink: &mut impl ResponseSink<T>,
    ) -> Result<Option<&'static str>, Http3Fault> {
        loop {
            let (kind, left) = match self.frame {
                Some(frame) => frame,
                None => match self.begun.take_header(&mut bytes) {
                    Some((kind, len)) => {
                        self.may_be(kind, len)?;
                        (kind, len)
                    }
                    None => return Ok(None),
                },
            };
            let now = left.min(bytes.len() as u64) as usize;
            let (piece, rest) = bytes.split_at(now);
            bytes = rest;
            let left = left - now as u64;
            self.frame = (left > 0).then_some((kind, left));
            let wrong = match kind {
                kind::DATA => self.body(piece, sink),
                kind::HEADERS if left > 0 => {
                    self.block.extend_from_slice(piece);
                    None
                }
                kind::HEADERS if self.block.is_empty() => self.fields(decoder, piece, sink)?,
                kind::HEADERS => {
                    let mut block = std::mem::take(&mut self.block);
                    block.extend_from_slice(piece);
                    self.fields(decoder, &block, sink)?
                }
                _ => None,
            };
            if wrong.is_some() {
                return Ok(wrong);
            }
            if left > 0 {
                return Ok(None);
            }
        }
    }

    /// Checks that a frame is allowed here: RFC 9114 sections 4.1 and 7.2.
    fn may_be(&self, kind: u64, len: u64) -> Result<(), Http3Fault> {
        let unexpected = |what| {
            Err(Http3Fault {
                code: code::FRAME_UNEXPECTED,
                what,
            })
        };
        match kind {
            kind::DATA if self.status == 0 => unexpected("DATA comes before HEADERS"),
            kind::DATA | kind::HEADERS if self.trailers => unexpected("frame after the trailers"),
            kind::HEADERS if len > LONGEST_BLOCK => Err(Http3Fault {
                code: code::EXCESSIVE_LOAD,
                what: "header block longer than 64 KiB",
            }),
            kind::PUSH_PROMISE => Err(Http3Fault {
                code: code::ID_ERROR,
                what: "PUSH_PROMISE although push is disabled",
            }),
            kind::CANCEL_PUSH | kind::SETTINGS | kind::GOAWAY | kind::MAX_PUSH_ID => {
                unexpected("control frame on a request stream")
            }
            0x2 | 0x6 | 0x8 | 0x9 => unexpected("HTTP/2 frame type in HTTP/3"),
            _ => Ok(()),
        }
    }

    #[inline]
    fn body(&mut self, piece: &[u8], sink: &mut impl ResponseSink<T>) -> Option<&'static str> {
        if piece.is_empty() {
            return None;
        }
        if let Some(left) = &mut self.left {
            match left.checked_sub(piece.len() as u64) {
                Some(rest) => *left = rest,
                None => {
                    // Pass on what fits, so that the result does not depend on the pieces.
                    sink.body(&mut self.of, &piece[..*left as usize]);
                    return Some("body longer than its Content-Length");
                }
            }
        }
        sink.body(&mut self.of, piece);
        None
    }

    fn fields(
        &mut self,
        decoder: &mut QpackDecoder,
        block: &[u8],
        sink: &mut impl ResponseSink<T>,
    ) -> Result<Option<&'static str>, Http3Fault> {
        let (place, text) = match self.status {
            0 => (BlockPlace::Head, sink.head(&mut self.of)),
            _ => (BlockPlace::Trailers, None),
        };
        let ResponseInfo { status, length } = match decoder.read(block, place, text) {
            Ok(answer) => answer,
            Err(BlockError::Answer(what)) => return Ok(Some(what)),
            Err(BlockError::Block(what)) => {
                return Err(Http3Fault {
                    code: code::DECOMPRESSION_FAILED,
                    what,
                });
            }
        };
        match status {
            0 => self.trailers = true,
            101 => return Ok(Some("status 101 is not allowed in HTTP/3")),
            100..=199 => {}
            _ => {
                self.status = status;
                self.left = match self.head || matches!(status, 204 | 304) {
                    true => None,
                    false => length,
                };
            }
        }
        Ok(None)
    }
}
