//! Client side of a connection: reads what the server sends and writes the necessary answers.

use std::collections::VecDeque;

use crate::{
    decode::{BlockError, BlockPlace, HeaderDecoder, ResponseInfo},
    frame::{self, FrameHeader, HEAD_LEN, LARGEST, LONGEST_PAYLOAD, code, flag, kind, setting},
    stream::{OpenRequest, StreamState, Streams},
};

/// Initial window until the server changes it: RFC 9113 section 6.9.2.
const FIRST_WINDOW: i64 = 65_535;
/// Bytes of a body received before the window is renewed.
const ALLOW_AFTER: u32 = 1 << 30;
/// Maximum length of a header block, in bytes.
const LONGEST_BLOCK: usize = 64 * 1024;
/// Maximum number of frames answered while the peer does not read.
const MOST_ANSWERS: u32 = 10_000;

/// Error that makes a connection unusable. GOAWAY reports it to the peer with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Fault {
    /// Code of [`frame::code`].
    pub code: u32,
    /// Description of the error.
    pub what: &'static str,
}

const fn against(what: &'static str) -> Http2Fault {
    Http2Fault {
        code: code::PROTOCOL_ERROR,
        what,
    }
}

const fn length(what: &'static str) -> Http2Fault {
    Http2Fault {
        code: code::FRAME_SIZE_ERROR,
        what,
    }
}

const fn window(what: &'static str) -> Http2Fault {
    Http2Fault {
        code: code::FLOW_CONTROL_ERROR,
        what,
    }
}

/// Reason why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The server reset the stream with this code.
    Reset(u32),
    /// The server goes away, and announced that it has not processed the request.
    Unprocessed,
    /// The response is malformed.
    Malformed(&'static str),
}

/// Result of reading bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2Step<T> {
    /// All bytes were read.
    More,
    /// The first settings of the server arrived; requests may be sent.
    Ready,
    /// The response to a request is complete.
    Ended {
        /// The request.
        of: T,
        /// Status, 200 to 599.
        status: u16,
    },
    /// A request will have no response.
    Failed {
        /// The request.
        of: T,
        /// The reason.
        why: FailureReason,
    },
    /// The server accepts no more requests. Those in flight continue.
    GoingAway {
        /// Code of [`frame::code`].
        code: u32,
    },
}

/// Receiver of responses as they arrive.
pub trait ResponseSink<T> {
    /// Called for each head, also of an interim response. Returns the buffer to which its text is appended, if any.
    fn head<'a>(&mut self, of: &'a mut T) -> Option<&'a mut Vec<u8>> {
        let _ = of;
        None
    }

    /// Receives the next bytes of a body.
    fn body(&mut self, of: &mut T, bytes: &[u8]) {
        let _ = (of, bytes);
    }
}

/// Remainder of a DATA frame.
#[derive(Clone, Copy, Debug)]
struct Data {
    stream: u32,
    left: usize,
    /// True until the length of the padding is read.
    padded: bool,
    /// Padding within `left`, in bytes.
    padding: usize,
    end: bool,
}

/// A body, or the rest of one, that waits for a window.
#[derive(Debug)]
struct WaitingBody {
    stream: u32,
    body: Vec<u8>,
    at: usize,
}

/// Client side of a connection. `T` is the caller's data of a request.
#[derive(Debug)]
pub struct Http2Connection<T> {
    streams: Streams<T>,
    /// Part of a frame that arrived so far, except for DATA frames.
    partial: Vec<u8>,
    data: Option<Data>,
    /// Stream of a header block that continues in the next frame, and whether the stream ends with it.
    block_of: Option<(u32, bool)>,
    block: Vec<u8>,
    greeted: bool,
    /// Limits set by the server.
    most_streams: u32,
    first_window: i64,
    longest_frame: usize,
    window: i64,
    /// Bytes of bodies since the connection window was last renewed.
    received: u32,
    waiting: VecDeque<WaitingBody>,
    /// Last stream that a server processes after GOAWAY.
    last: Option<u32>,
    /// True once we have reset a stream before its response was complete, so that frames may still arrive for it.
    gave_up: bool,
    answers: u32,
    echoes: u32,
}

impl<T> Default for Http2Connection<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Http2Connection<T> {
    /// Creates a connection without any requests.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            streams: Streams::new(),
            partial: Vec::new(),
            data: None,
            block_of: None,
            block: Vec::new(),
            greeted: false,
            most_streams: u32::MAX,
            first_window: FIRST_WINDOW,
            longest_frame: LONGEST_PAYLOAD,
            window: FIRST_WINDOW,
            received: 0,
            waiting: VecDeque::new(),
            last: None,
            gave_up: false,
            answers: 0,
            echoes: 0,
        }
    }

    /// Writes the client's preface and settings.
    pub fn greet(out: &mut Vec<u8>) {
        out.extend_from_slice(frame::PREFACE);
        frame::settings(
            &[
                (setting::HEADER_TABLE_SIZE, 0),
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, LARGEST),
                (setting::MAX_HEADER_LIST_SIZE, LONGEST_BLOCK as u32),
            ],
            out,
        );
        allow(0, LARGEST - FIRST_WINDOW as u32, out);
    }

    /// Writes GOAWAY, the last frame of a client.
    pub fn farewell(code: u32, out: &mut Vec<u8>) {
        let mut payload = [0; 8];
        // The last stream is 0, because the server opens none.
        payload[4..].copy_from_slice(&code.to_be_bytes());
        frame::write(kind::GOAWAY, 0, 0, &payload, out);
    }

    /// Number of requests that may be opened now.
    #[inline]
    #[must_use]
    pub fn free_streams(&self) -> usize {
        match self.greeted && !self.is_over() {
            true => (self.most_streams as usize).saturating_sub(self.streams.open()),
            false => 0,
        }
    }

    /// Maximum of concurrent streams; `None` unless the server has set one.
    #[must_use]
    pub fn most_streams(&self) -> Option<u32> {
        (self.most_streams < u32::MAX).then_some(self.most_streams)
    }

    /// Returns true if the connection takes no more requests.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.last.is_some() || self.streams.next().is_none()
    }

    /// Number of requests in flight.
    #[inline]
    #[must_use]
    pub const fn open_streams(&self) -> usize {
        self.streams.open()
    }

    /// Number of PING acknowledgements received.
    #[must_use]
    pub const fn echoes(&self) -> u32 {
        self.echoes
    }

    /// Returns the requests in flight.
    pub fn requests(&self) -> impl Iterator<Item = &T> {
        self.streams.iter().map(|stream| &stream.of)
    }

    /// Removes and returns all requests in flight.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.waiting.clear();
        self.streams.drain()
    }

    /// Reports that all written bytes have been sent to the peer.
    #[inline]
    pub fn flushed(&mut self) {
        self.answers = 0;
    }

    /// Writes a PING that tests whether the peer is alive.
    pub fn ping(out: &mut Vec<u8>) {
        frame::write(kind::PING, 0, 0, b"wb-alive", out);
    }

    /// Writes a request: its header block of [`crate::encode`], and as much of its body as the windows allow. The rest
    /// follows when they grow. Requires [`Self::room`]. If `head` is true, no response to the request has a body.
    #[inline]
    pub fn open(&mut self, of: T, head: bool, block: &[u8], body: &[u8], out: &mut Vec<u8>) {
        let Some(number) = self.streams.next() else {
            return;
        };
        let end = if body.is_empty() { flag::END_STREAM } else { 0 };
        let (mut kind, mut flags, mut rest) = (kind::HEADERS, end, block);
        loop {
            let (now, later) = rest.split_at(rest.len().min(self.longest_frame));
            if later.is_empty() {
                flags |= flag::END_HEADERS;
            }
            frame::write(kind, flags, number, now, out);
            if later.is_empty() {
                break;
            }
            (kind, flags, rest) = (kind::CONTINUATION, 0, later);
        }
        self.streams.push(OpenRequest {
            of,
            head,
            status: 0,
            left: None,
            window: 0,
            received: 0,
            waits: false,
        });
        if !body.is_empty() {
            let at = self.send(number, body, out);
            if at < body.len() {
                if let Some(stream) = self.streams.get(number) {
                    stream.waits = true;
                }
                self.waiting.push_back(WaitingBody {
                    stream: number,
                    body: body[at..].to_vec(),
                    at: 0,
                });
            }
        }
    }

    /// Writes as much of a body as the windows allow. Returns the number of bytes written.
    fn send(&mut self, number: u32, body: &[u8], out: &mut Vec<u8>) -> usize {
        let Some(stream) = self.streams.get(number) else {
            return body.len();
        };
        let mut at = 0;
        while at < body.len() {
            let allowed = self.window.min(self.first_window + stream.window).max(0) as usize;
            let n = (body.len() - at).min(allowed).min(self.longest_frame);
            if n == 0 {
                break;
            }
            let end = at + n == body.len();
            let flags = if end { flag::END_STREAM } else { 0 };
            frame::write(kind::DATA, flags, number, &body[at..at + n], out);
            self.window -= n as i64;
            stream.window -= n as i64;
            at += n;
        }
        at
    }

    /// Continues waiting bodies after a window has grown.
    fn send_waiting(&mut self, out: &mut Vec<u8>) {
        for _ in 0..self.waiting.len() {
            if self.window <= 0 {
                return;
            }
            let Some(mut one) = self.waiting.pop_front() else {
                return;
            };
            one.at += self.send(one.stream, &one.body[one.at..], out);
            if one.at < one.body.len() {
                self.waiting.push_back(one);
            } else if let Some(stream) = self.streams.get(one.stream) {
                stream.waits = false;
            }
        }
    }

    /// Resets the oldest request if `expired` returns true for it; with `any`, the first request for which it does.
    pub fn expire(
        &mut self,
        any: bool,
        expired: impl Fn(&T) -> bool,
        out: &mut Vec<u8>,
    ) -> Option<T> {
        let number = self.streams.find(any, expired)?;
        self.give_up(number, code::CANCEL, out)
    }

    fn give_up(&mut self, number: u32, code: u32, out: &mut Vec<u8>) -> Option<T> {
        frame::write(kind::RST_STREAM, 0, number, &code.to_be_bytes(), out);
        self.gave_up = true;
        self.remove(number)
    }

    fn remove(&mut self, number: u32) -> Option<T> {
        let stream = self.streams.remove(number)?;
        if stream.waits {
            self.waiting.retain(|one| one.stream != number);
        }
        Some(stream.of)
    }

    /// Reads bytes up to the first event for the caller. Appends the answers to the server to `out`.
    ///
    /// # Errors
    /// The connection and the requests in flight on it are unusable.
    #[inline]
    pub fn read(
        &mut self,
        decoder: &mut HeaderDecoder,
        bytes: &mut &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl ResponseSink<T>,
    ) -> Result<Http2Step<T>, Http2Fault> {
        loop {
            if let Some(last) = self.last
                && let Some(number) = self.streams.youngest_above(last)
                && let Some(of) = self.remove(number)
            {
                let why = FailureReason::Unprocessed;
                return Ok(Http2Step::Failed { of, why });
            }
            let step = match self.data {
                Some(data) if data.left > 0 && bytes.is_empty() => return Ok(Http2Step::More),
                Some(data) => self.data(data, bytes, out, sink)?,
                None if bytes.is_empty() => return Ok(Http2Step::More),
                None => self.next_frame(decoder, bytes, out, sink)?,
            };
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    /// Reads the next frame, or as much of it as is available.
    fn next_frame(
        &mut self,
        decoder: &mut HeaderDecoder,
        bytes: &mut &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl ResponseSink<T>,
    ) -> Result<Option<Http2Step<T>>, Http2Fault> {
        if self.partial.is_empty()
            && let Some((head, rest)) = bytes.split_first_chunk()
        {
            let head = FrameHeader::read(head);
            self.check(&head)?;
            if head.kind == kind::DATA {
                *bytes = rest;
                return self.begin_data(&head, out);
            }
            if let Some((payload, rest)) = rest.split_at_checked(head.len) {
                *bytes = rest;
                return self.frame(&head, payload, decoder, out, sink);
            }
        }
        self.fill(HEAD_LEN, bytes);
        let Some(head) = self.partial.first_chunk() else {
            return Ok(None);
        };
        let head = FrameHeader::read(head);
        if self.partial.len() == HEAD_LEN {
            self.check(&head)?;
            if head.kind == kind::DATA {
                self.partial.clear();
                return self.begin_data(&head, out);
            }
        }
        self.fill(HEAD_LEN + head.len, bytes);
        if self.partial.len() < HEAD_LEN + head.len {
            return Ok(None);
        }
        let mut partial = std::mem::take(&mut self.partial);
        let step = self.frame(&head, &partial[HEAD_LEN..], decoder, out, sink);
        partial.clear();
        self.partial = partial;
        step
    }

    fn fill(&mut self, len: usize, bytes: &mut &[u8]) {
        let n = len.saturating_sub(self.partial.len()).min(bytes.len());
        let (now, later) = bytes.split_at(n);
        self.partial.extend_from_slice(now);
        *bytes = later;
    }

    /// Checks a frame by its head.
    fn check(&self, head: &FrameHeader) -> Result<(), Http2Fault> {
        if !self.greeted && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(against("the server did not start with an HTTP/2 preface"));
        }
        if head.len > LONGEST_PAYLOAD {
            return Err(length("frame longer than the allowed maximum"));
        }
        match (self.block_of, head.kind) {
            (Some((stream, _)), kind::CONTINUATION) if stream == head.stream => Ok(()),
            (Some(_), _) => Err(against("header block without its CONTINUATION")),
            (None, kind::CONTINUATION) => Err(against("CONTINUATION without HEADERS")),
            (None, _) => Ok(()),
        }
    }

    /// Returns true if a stream is open. Frames of an ended stream are ignored if we have reset any stream.
    fn is_open(&self, number: u32) -> Result<bool, Http2Fault> {
        match self.streams.known(number) {
            StreamState::Open => Ok(true),
            StreamState::Ended if self.gave_up => Ok(false),
            StreamState::Ended => Err(Http2Fault {
                code: code::STREAM_CLOSED,
                what: "frame on a closed stream",
            }),
            StreamState::Never => Err(against("frame on an idle stream")),
        }
    }

    fn begin_data(
        &mut self,
        head: &FrameHeader,
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Step<T>>, Http2Fault> {
        self.is_open(head.stream)?;
        let end = head.has(flag::END_STREAM);
        self.data = Some(Data {
            stream: head.stream,
            left: head.len,
            padded: head.has(flag::PADDED),
            padding: 0,
            end,
        });
        if head.len == 0 {
            if head.has(flag::PADDED) {
                return Err(length("padded frame without a pad length"));
            }
            // The frame uses no window, so a peer could send it endlessly.
            self.answered()?;
        }
        // The whole payload counts, including padding.
        let len = head.len as u32;
        self.received += len;
        if self.received >= ALLOW_AFTER {
            allow(0, self.received, out);
            self.received = 0;
        }
        let Some(stream) = self.streams.get(head.stream) else {
            return Ok(None);
        };
        if stream.status == 0 {
            return Ok(self.malformed(head.stream, "DATA before HEADERS", out));
        }
        stream.received += len;
        if stream.received >= ALLOW_AFTER && !end {
            allow(head.stream, stream.received, out);
            stream.received = 0;
        }
        Ok(None)
    }

    #[inline]
    fn data(
        &mut self,
        mut data: Data,
        bytes: &mut &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl ResponseSink<T>,
    ) -> Result<Option<Http2Step<T>>, Http2Fault> {
        if data.padded
            && let Some((padding, rest)) = bytes.split_first()
        {
            *bytes = rest;
            data.padded = false;
            data.left -= 1;
            data.padding = usize::from(*padding);
            if data.padding > data.left {
                return Err(against("padding longer than its frame"));
            }
        }
        let (now, rest) = bytes.split_at(data.left.min(bytes.len()));
        *bytes = rest;
        let body = &now[..now.len().min(data.left - data.padding)];
        data.left -= now.len();
        data.padding = data.padding.min(data.left);
        self.data = (data.left > 0).then_some(data);
        let Some(stream) = self.streams.get(data.stream) else {
            return Ok(None);
        };
        if !body.is_empty() {
            if let Some(left) = &mut stream.left {
                match left.checked_sub(body.len() as u64) {
                    Some(rest) => *left = rest,
                    None => {
                        // Pass on what fits, so that the result does not depend on the pieces.
                        sink.body(&mut stream.of, &body[..*left as usize]);
                        let what = "body longer than its Content-Length";
                        return Ok(self.malformed(data.stream, what, out));
                    }
                }
            }
            sink.body(&mut stream.of, body);
        }
        match data.left == 0 && data.end {
            true => Ok(self.end(data.stream, out)),
            false => Ok(None),
        }
    }

    /// Ends a response.
    #[inline]
    fn end(&mut self, number: u32, out: &mut Vec<u8>) -> Option<Http2Step<T>> {
        let stream = self.streams.get(number)?;
        if stream.left.is_some_and(|left| left > 0) {
            return self.malformed(number, "body shorter than its Content-Length", out);
        }
        let status = stream.status;
        let of = match stream.waits {
            // The server responded before it had the whole request, and does not need the rest.
            true => self.give_up(number, code::NO_ERROR, out),
            false => self.remove(number),
        };
        of.map(|of| Http2Step::Ended { of, status })
    }

    fn malformed(
        &mut self,
        number: u32,
        what: &'static str,
        out: &mut Vec<u8>,
    ) -> Option<Http2Step<T>> {
        let of = self.give_up(number, code::PROTOCOL_ERROR, out)?;
        let why = FailureReason::Malformed(what);
        Some(Http2Step::Failed { of, why })
    }

    /// Counts a frame that requires an answer, or causes work for nothing.
    fn answered(&mut self) -> Result<(), Http2Fault> {
        self.answers += 1;
        match self.answers > MOST_ANSWERS {
            true => Err(Http2Fault {
                code: code::ENHANCE_YOUR_CALM,
                what: "the server sends a flood of empty frames",
            }),
            false => Ok(()),
        }
    }

    /// Handles a complete frame, except DATA.
    fn frame(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        decoder: &mut HeaderDecoder,
        out: &mut Vec<u8>,
        sink: &mut impl ResponseSink<T>,
    ) -> Result<Option<Http2Step<T>>, Http2Fault> {
        match head.kind {
            kind::HEADERS => {
                self.is_open(head.stream)?;
                let block = part_of_block(head, payload)?;
                let end = head.has(flag::END_STREAM);
                if head.has(flag::END_HEADERS) {
                    return self.block(head.stream, end, block, decoder, out, sink);
                }
                self.block_of = Some((head.stream, end));
                self.block.clear();
                self.block.extend_from_slice(block);
                Ok(None)
            }
            kind::CONTINUATION => {
                let Some((stream, end)) = self.block_of else {
                    return Ok(None);
                };
                if payload.is_empty() {
                    self.answered()?;
                }
                self.block.extend_from_slice(payload);
                if self.block.len() > LONGEST_BLOCK {
                    return Err(Http2Fault {
                        code: code::ENHANCE_YOUR_CALM,
                        what: "header block longer than 64 KiB",
                    });
                }
                if !head.has(flag::END_HEADERS) {
                    return Ok(None);
                }
                self.block_of = None;
                let block = std::mem::take(&mut self.block);
                let step = self.block(stream, end, &block, decoder, out, sink);
                self.block = block;
                step
            }
            kind::RST_STREAM => {
                let code = number(payload, "RST_STREAM length is not 4 bytes")?;
                match self.streams.known(head.stream) {
                    StreamState::Never => {
                        return Err(against("RST_STREAM on an idle stream"));
                    }
                    StreamState::Ended => self.answered()?,
                    StreamState::Open => {}
                }
                let why = FailureReason::Reset(code);
                Ok(self
                    .remove(head.stream)
                    .map(|of| Http2Step::Failed { of, why }))
            }
            kind::SETTINGS => self.settings(head, payload, out),
            kind::PING => {
                connection_only(head)?;
                if payload.len() != 8 {
                    return Err(length("PING length is not 8 bytes"));
                }
                if head.has(flag::ACK) {
                    self.echoes += 1;
                } else {
                    frame::write(kind::PING, flag::ACK, 0, payload, out);
                }
                self.answered()?;
                Ok(None)
            }
            kind::GOAWAY => {
                connection_only(head)?;
                let (Some(last), Some(code)) = (payload.first_chunk(), payload.get(4..8)) else {
                    return Err(length("GOAWAY shorter than 8 bytes"));
                };
                let last = u32::from_be_bytes(*last) & LARGEST;
                let code = number(code, "")?;
                self.last = Some(self.last.map_or(last, |before| before.min(last)));
                self.answered()?;
                Ok(Some(Http2Step::GoingAway { code }))
            }
            kind::WINDOW_UPDATE => {
                let more = number(payload, "WINDOW_UPDATE length is not 4 bytes")? & LARGEST;
                self.more_window(head.stream, more, out)
            }
            kind::PUSH_PROMISE => Err(against("PUSH_PROMISE although push is disabled")),
            kind::PRIORITY if payload.len() != 5 => Err(length("PRIORITY length is not 5 bytes")),
            // RFC 9113 sections 5.3.2 and 5.5.
            _ => {
                self.answered()?;
                Ok(None)
            }
        }
    }

    fn block(
        &mut self,
        number: u32,
        end: bool,
        block: &[u8],
        decoder: &mut HeaderDecoder,
        out: &mut Vec<u8>,
        sink: &mut impl ResponseSink<T>,
    ) -> Result<Option<Http2Step<T>>, Http2Fault> {
        let Some(stream) = self.streams.get(number) else {
            self.answered()?;
            return Ok(None);
        };
        let (place, text) = match stream.status {
            0 => (BlockPlace::Head, sink.head(&mut stream.of)),
            _ => (BlockPlace::Trailers, None),
        };
        let ResponseInfo { status, length } = match decoder.read(block, place, text) {
            Ok(answer) => answer,
            Err(BlockError::Answer(what)) => return Ok(self.malformed(number, what, out)),
            Err(BlockError::Block(what)) => {
                return Err(Http2Fault {
                    code: code::COMPRESSION_ERROR,
                    what,
                });
            }
        };
        let wrong = match (place, status) {
            (BlockPlace::Trailers, _) if !end => "trailers without END_STREAM",
            (BlockPlace::Head, 101) => "status 101 is not allowed in HTTP/2",
            (BlockPlace::Head, 100..=199) if end => "END_STREAM on an interim response",
            _ => "",
        };
        if !wrong.is_empty() {
            return Ok(self.malformed(number, wrong, out));
        }
        match status {
            100..=199 => {
                self.answered()?;
                return Ok(None);
            }
            0 => {}
            _ => {
                stream.status = status;
                stream.left = match stream.head || matches!(status, 204 | 304) {
                    true => None,
                    false => length,
                };
            }
        }
        match end {
            true => Ok(self.end(number, out)),
            false => Ok(None),
        }
    }

    fn settings(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Step<T>>, Http2Fault> {
        connection_only(head)?;
        self.answered()?;
        if head.has(flag::ACK) {
            return match payload.is_empty() {
                true => Ok(None),
                false => Err(length("SETTINGS acknowledgement is not empty")),
            };
        }
        let (all, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(length("SETTINGS length is not a multiple of 6 bytes"));
        }
        for [a, b, c, d, e, f] in all {
            let value = u32::from_be_bytes([*c, *d, *e, *f]);
            match u16::from_be_bytes([*a, *b]) {
                setting::ENABLE_PUSH if value != 0 => {
                    return Err(against("the server sent SETTINGS_ENABLE_PUSH 1"));
                }
                setting::MAX_CONCURRENT_STREAMS => self.most_streams = value,
                setting::INITIAL_WINDOW_SIZE if value > LARGEST => {
                    return Err(window("flow-control window above 2147483647 bytes"));
                }
                setting::INITIAL_WINDOW_SIZE => self.first_window = i64::from(value),
                setting::MAX_FRAME_SIZE if !(16_384..=16_777_215).contains(&value) => {
                    return Err(against("SETTINGS_MAX_FRAME_SIZE out of range"));
                }
                // Longer frames gain nothing.
                _ => {}
            }
        }
        frame::write(kind::SETTINGS, flag::ACK, 0, &[], out);
        self.send_waiting(out);
        let first = !std::mem::replace(&mut self.greeted, true);
        Ok(first.then_some(Http2Step::Ready))
    }

    fn more_window(
        &mut self,
        number: u32,
        more: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<Http2Step<T>>, Http2Fault> {
        self.answered()?;
        let largest = i64::from(LARGEST);
        if number == 0 {
            self.window += i64::from(more);
            match more {
                0 => return Err(against("WINDOW_UPDATE with increment 0")),
                _ if self.window > largest => {
                    return Err(window("flow-control window above 2147483647 bytes"));
                }
                _ => self.send_waiting(out),
            }
            return Ok(None);
        }
        // Window updates are normal for requests that are complete.
        if self.streams.known(number) == StreamState::Never {
            return Err(against("WINDOW_UPDATE on an idle stream"));
        }
        let first = self.first_window;
        let Some(stream) = self.streams.get(number) else {
            return Ok(None);
        };
        stream.window += i64::from(more);
        if more == 0 || stream.window + first > largest {
            return Ok(self.malformed(number, "invalid flow-control window", out));
        }
        if stream.waits {
            self.send_waiting(out);
        }
        Ok(None)
    }
}

/// Writes a WINDOW_UPDATE of `more` bytes.
fn allow(stream: u32, more: u32, out: &mut Vec<u8>) {
    frame::write(kind::WINDOW_UPDATE, 0, stream, &more.to_be_bytes(), out);
}

fn number(payload: &[u8], what: &'static str) -> Result<u32, Http2Fault> {
    let four = payload.try_into().map_err(|_| length(what))?;
    Ok(u32::from_be_bytes(four))
}

fn connection_only(head: &FrameHeader) -> Result<(), Http2Fault> {
    match head.stream {
        0 => Ok(()),
        _ => Err(against("connection frame on a stream")),
    }
}

/// Removes padding and priority from the payload of HEADERS.
fn part_of_block<'a>(head: &FrameHeader, mut payload: &'a [u8]) -> Result<&'a [u8], Http2Fault> {
    let short = length("HEADERS shorter than its fields");
    let mut padding = 0;
    if head.has(flag::PADDED) {
        let (first, rest) = payload.split_first().ok_or(short)?;
        (padding, payload) = (usize::from(*first), rest);
    }
    if head.has(flag::PRIORITY) {
        payload = payload.get(5..).ok_or(short)?;
    }
    let len = payload.len().checked_sub(padding);
    let len = len.ok_or(against("padding longer than its frame"))?;
    Ok(&payload[..len])
}
