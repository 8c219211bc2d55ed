//! Finds the ends of messages in a stream that arrives in pieces: RFC 9112 section 6.
//!
//! Parses only what delimits messages, byte by byte up to a colon, and skips the lines of other headers. A head that
//! equals the previous one, as nearly all do under load, is recognised by one comparison. Heads may have any length,
//! because they are not stored.

use crate::progress::{LONGEST_BODY, Progress, ReadPhase, mark};

/// Result of reading a piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// All bytes were read; the message continues.
    More,
    /// A message ended.
    Message {
        /// Bytes of the piece up to the end of the message.
        used: usize,
        /// Status, 100 to 599; 0 for a request.
        status: u16,
        /// Consequences of the message.
        end: MessageEnd,
    },
    /// The head of a request ended, and its sender waits for permission to send the body: RFC 9110 section 10.1.1.
    Expects {
        /// Bytes of the piece up to the end of the head.
        used: usize,
    },
    /// The bytes are not a message. The stream is unusable from here on.
    Bad,
}

/// Consequences of a message that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageEnd {
    /// The connection ends with the message or with its response. After status 101 it changes its protocol.
    pub close: bool,
    /// An HTTP/1.0 message that asks for a persistent connection, which the response to a request must grant
    /// explicitly.
    pub keep_if_granted: bool,
    /// For a request: its response has no body. For a response: it answers HEAD.
    pub head_only: bool,
}

/// Receiver of the contents of messages, in pieces as they arrive.
pub trait MessageSink {
    /// Receives the next bytes of a head, from the start line to the empty line.
    fn head(&mut self, bytes: &[u8]);

    /// Receives the next bytes of a body, without chunk framing and trailers.
    fn body(&mut self, bytes: &[u8]);

    /// The last head was that of an interim response, which is skipped; the next head follows.
    fn interim(&mut self) {}
}

/// Ignores all contents.
impl MessageSink for () {
    #[inline]
    fn head(&mut self, _: &[u8]) {}

    #[inline]
    fn body(&mut self, _: &[u8]) {}
}

/// Handling of interim responses (100 to 199 except 101, which is final).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interim {
    /// Interim responses are skipped, and the final response follows. RFC 9110 section 15.2.
    Skipped,
    /// Each interim response is a message. [`Progress::expect`] must be called again for the next one.
    Messages,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    Requests,
    Responses(Interim),
}

/// Reads the messages of one direction of many streams, each with its [`Progress`].
#[derive(Debug)]
pub struct Reader {
    kind: MessageKind,
    to_head: bool,
    memo: Memo,
}

/// The last head that arrived in one piece, and the result of parsing it.
#[derive(Debug)]
struct Memo {
    head: Vec<u8>,
    /// Phase before the head; not a start phase if the memo is empty.
    start: ReadPhase,
    after: AfterHead,
    progress: Progress,
    /// Bytes of the body; `usize::MAX` if unknown or if the sender waits for permission.
    body_len: usize,
    status: u16,
    end: MessageEnd,
}

/// Continuation after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterHead {
    Body,
    /// The message has ended.
    End,
    /// A body, which the sender transmits after permission.
    Expects,
    /// Head of another response to the same request.
    Interim,
}

enum ReaderStep {
    On,
    /// The head or the message ends with this byte.
    End,
    Bad,
}

const LENGTH: &[u8] = b"content-length";
const ENCODING: &[u8] = b"transfer-encoding";
const CONNECTION: &[u8] = b"connection";
const EXPECT: &[u8] = b"expect";
const CHUNKED: &[u8] = b"chunked";
const CONTINUE: &[u8] = b"100-continue";
/// Recognised values of "Connection"; `at` is above [`SECOND`] within the second.
const CLOSE: &[u8] = b"close";
const KEEP: &[u8] = b"keep-alive";
const SECOND: u8 = 16;
/// Value of `at` within a word that is not in the list.
const OTHER: u8 = u8::MAX;
const HEAD: &[u8] = b"HEAD ";
/// First bytes of a response. Minor version, blank and status follow.
const HTTP: &[u8] = b"HTTP/1.";
const LONGEST_MEMO: usize = 512;

impl Reader {
    /// Creates a reader of requests.
    pub fn requests() -> Self {
        Self::new(MessageKind::Requests)
    }

    /// Creates a reader of responses.
    pub fn responses(interim: Interim) -> Self {
        Self::new(MessageKind::Responses(interim))
    }

    /// Treats all responses as answers to HEAD: none has a body, without calls of [`Progress::expect`].
    #[must_use]
    pub fn to_head(self) -> Self {
        Self {
            to_head: true,
            ..self
        }
    }

    fn new(kind: MessageKind) -> Self {
        Self {
            kind,
            to_head: false,
            memo: Memo {
                head: Vec::with_capacity(LONGEST_MEMO),
                start: ReadPhase::UntilEnd,
                after: AfterHead::End,
                progress: Progress::NEW,
                body_len: usize::MAX,
                status: 0,
                end: MessageEnd::default(),
            },
        }
    }

    /// Reads in-order bytes up to the end of a message.
    #[inline]
    pub fn read(&mut self, progress: &mut Progress, bytes: &[u8]) -> Read {
        self.read_with(progress, bytes, &mut ())
    }

    /// Like [`Reader::read`]; passes the contents of the message to `sink`.
    #[inline]
    pub fn read_with(
        &mut self,
        progress: &mut Progress,
        bytes: &[u8],
        sink: &mut impl MessageSink,
    ) -> Read {
        let memo = &self.memo;
        if progress.phase == memo.start
            && let Some(rest) = bytes.strip_prefix(&memo.head[..])
            && let Some(body) = rest.get(..memo.body_len)
        {
            sink.head(&memo.head);
            if !body.is_empty() {
                sink.body(body);
            }
            // No other field is set at a start.
            progress.phase = ReadPhase::Start;
            return Read::Message {
                used: memo.head.len() + body.len(),
                status: memo.status,
                end: memo.end,
            };
        }
        self.read_on(progress, bytes, sink)
    }

    fn read_on(
        &mut self,
        progress: &mut Progress,
        bytes: &[u8],
        sink: &mut impl MessageSink,
    ) -> Read {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let start = progress.phase;
            match start {
                ReadPhase::Body | ReadPhase::Chunk | ReadPhase::UntilEnd => {
                    let n = progress.countable().min(rest.len() as u64);
                    sink.body(&rest[..n as usize]);
                    at += n as usize;
                    if let Read::Message { status, end, .. } = progress.count(n) {
                        return Read::Message {
                            used: at,
                            status,
                            end,
                        };
                    }
                    continue;
                }
                ReadPhase::ChunkSize
                | ReadPhase::ChunkExtension
                | ReadPhase::ChunkEnd
                | ReadPhase::TrailerStart
                | ReadPhase::Trailer => {
                    let (n, step) = frame_chunk(progress, rest);
                    at += n;
                    match step {
                        ReaderStep::On => {}
                        ReaderStep::End => return progress.complete(at),
                        ReaderStep::Bad => return Read::Bad,
                    }
                    continue;
                }
                _ => {}
            }
            let after = if start == self.memo.start && rest.starts_with(&self.memo.head) {
                sink.head(&self.memo.head);
                at += self.memo.head.len();
                *progress = self.memo.progress;
                self.memo.after
            } else {
                let (n, step) = self.read_head(progress, rest);
                sink.head(&rest[..n]);
                at += n;
                match step {
                    ReaderStep::On => return Read::More,
                    ReaderStep::Bad => return Read::Bad,
                    ReaderStep::End => {
                        let after = self.after_head(progress);
                        self.remember(start, &rest[..n], progress, after);
                        after
                    }
                }
            };
            match after {
                AfterHead::Body => {}
                AfterHead::End => return progress.complete(at),
                AfterHead::Expects => return Read::Expects { used: at },
                AfterHead::Interim => sink.interim(),
            }
        }
        Read::More
    }

    fn remember(&mut self, start: ReadPhase, head: &[u8], progress: &Progress, after: AfterHead) {
        if !matches!(start, ReadPhase::Start | ReadPhase::StartToHead) || head.len() > LONGEST_MEMO
        {
            return;
        }
        let memo = &mut self.memo;
        memo.head.clear();
        memo.head.extend_from_slice(head);
        memo.start = start;
        memo.after = after;
        memo.progress = *progress;
        memo.body_len = match after {
            AfterHead::End => 0,
            AfterHead::Body if progress.phase == ReadPhase::Body => progress.left() as usize,
            _ => usize::MAX,
        };
        if let Read::Message { status, end, .. } = progress.clone().complete(0) {
            memo.status = status;
            memo.end = end;
        }
    }

    /// Decides what follows the head: RFC 9112 section 6.3.
    fn after_head(&self, p: &mut Progress) -> AfterHead {
        let status = p.status();
        if let MessageKind::Responses(interim) = self.kind {
            if status == 101 {
                p.set(mark::CLOSE);
            } else if status < 200 && interim == Interim::Skipped {
                let to_head = p.has(mark::HEAD);
                *p = Progress::NEW;
                p.expect(to_head);
                return AfterHead::Interim;
            }
            let has_none = status < 200 || matches!(status, 204 | 304);
            if has_none || self.to_head || p.has(mark::HEAD) {
                return AfterHead::End;
            }
        } else {
            p.set_status(0);
        }
        p.at = 0;
        if p.has(mark::CHUNKED) {
            p.phase = ReadPhase::ChunkSize;
            p.set_left(0);
        } else if p.has(mark::LENGTH) {
            if p.left() == 0 {
                return AfterHead::End;
            }
            p.phase = ReadPhase::Body;
        } else if self.kind == MessageKind::Requests {
            return AfterHead::End;
        } else {
            p.phase = ReadPhase::UntilEnd;
            p.set(mark::CLOSE);
        }
        // RFC 9110 section 10.1.1: an expectation in an HTTP/1.0 request is ignored.
        if self.kind == MessageKind::Requests && status == 100 && !p.has(mark::OLD) {
            AfterHead::Expects
        } else {
            AfterHead::Body
        }
    }

    /// Continues reading a head. Returns the number of bytes read.
    fn read_head(&self, p: &mut Progress, bytes: &[u8]) -> (usize, ReaderStep) {
        let mut at = 0;
        while at < bytes.len() {
            if p.phase == ReadPhase::RestOfLine && !skip_line(&mut at, bytes) {
                break;
            }
            let byte = bytes[at];
            at += 1;
            match self.step(p, byte) {
                ReaderStep::On => {}
                step => return (at, step),
            }
        }
        (at, ReaderStep::On)
    }

    /// Reads one byte of a head.
    fn step(&self, p: &mut Progress, byte: u8) -> ReaderStep {
        match p.phase {
            ReadPhase::Start | ReadPhase::StartToHead => {
                let is_request = self.kind == MessageKind::Requests;
                if is_request && matches!(byte, b'\r' | b'\n') {
                    // An empty line before a request is ignored: RFC 9112 section 2.2.
                    return ReaderStep::On;
                }
                if p.phase == ReadPhase::StartToHead && !is_request {
                    p.set(mark::HEAD);
                }
                p.phase = ReadPhase::FirstLine;
                return self.step(p, byte);
            }
            ReadPhase::FirstLine if self.kind == MessageKind::Requests => request_line(p, byte),
            ReadPhase::FirstLine => return status_line(p, byte),
            ReadPhase::LineStart => {
                p.at = 1;
                p.phase = match byte {
                    b'\n' => return ReaderStep::End,
                    b'\r' => return ReaderStep::On,
                    b'c' | b'C' => ReadPhase::LengthName,
                    b't' | b'T' => ReadPhase::EncodingName,
                    b'e' | b'E' if self.kind == MessageKind::Requests => ReadPhase::ExpectName,
                    _ => ReadPhase::RestOfLine,
                };
            }
            ReadPhase::LengthName => name(p, byte, LENGTH),
            ReadPhase::ConnectionName => name(p, byte, CONNECTION),
            ReadPhase::EncodingName => name(p, byte, ENCODING),
            ReadPhase::ExpectName => name(p, byte, EXPECT),
            ReadPhase::Length => return length(p, byte),
            ReadPhase::LengthAgain => return length_again(p, byte),
            ReadPhase::LengthEnd => match byte {
                b'\n' => p.phase = ReadPhase::LineStart,
                b' ' | b'\t' | b'\r' => {}
                _ => return ReaderStep::Bad,
            },
            ReadPhase::Encoding => {
                if !is_between_words(byte) {
                    // Only the last coding counts.
                    p.clear(mark::CHUNKED);
                }
                word(p, byte, CHUNKED, mark::CHUNKED);
            }
            ReadPhase::Expect => word(p, byte, CONTINUE, mark::EXPECTS),
            ReadPhase::Connection if p.at == 0 && byte.eq_ignore_ascii_case(&KEEP[0]) => {
                p.at = SECOND + 1;
            }
            ReadPhase::Connection if p.at > SECOND && p.at != OTHER => {
                p.at -= SECOND;
                word(p, byte, KEEP, mark::KEEP);
                p.at = match p.at {
                    0 | OTHER => p.at,
                    at => at + SECOND,
                };
            }
            ReadPhase::Connection => word(p, byte, CLOSE, mark::CLOSE),
            ReadPhase::RestOfLine if byte == b'\n' => p.phase = ReadPhase::LineStart,
            _ => {}
        }
        ReaderStep::On
    }
}

/// Skips to the end of the line. Returns true if this piece contains it.
#[inline]
fn skip_line(at: &mut usize, bytes: &[u8]) -> bool {
    let end = bytes[*at..].iter().position(|byte| *byte == b'\n');
    *at = end.map_or(bytes.len(), |n| *at + n);
    end.is_some()
}

/// Reads one byte of a request line: the method, and the version at its end. `left` counts the characters of ".0" that
/// were read last.
fn request_line(p: &mut Progress, byte: u8) {
    match p.at {
        0 if byte == HEAD[0] => p.set(mark::HEAD),
        at @ 1..=4 if HEAD[usize::from(at)] != byte => p.clear(mark::HEAD),
        _ => {}
    }
    p.at = p.at.saturating_add(1);
    let seen = match (byte, p.left()) {
        (b'.', _) => 1,
        (b'0', 1) => 2,
        (b'\r', seen) => seen,
        (b'\n', seen) => {
            if seen == 2 {
                p.set(mark::OLD);
            }
            p.phase = ReadPhase::LineStart;
            0
        }
        _ => 0,
    };
    p.set_left(seen);
}

/// Reads one byte of a status line, up to the status: RFC 9112 section 4.
fn status_line(p: &mut Progress, byte: u8) -> ReaderStep {
    let is_sound = match p.at {
        at @ 0..7 => byte == HTTP[usize::from(at)],
        7 => {
            if byte == b'0' {
                p.set(mark::OLD);
            }
            byte.is_ascii_digit()
        }
        8 => byte == b' ',
        9 => (b'1'..=b'5').contains(&byte),
        10 | 11 => byte.is_ascii_digit(),
        _ => {
            p.phase = match byte {
                b'\n' => ReadPhase::LineStart,
                b' ' | b'\r' => ReadPhase::RestOfLine,
                _ => return ReaderStep::Bad,
            };
            return ReaderStep::On;
        }
    };
    if !is_sound {
        return ReaderStep::Bad;
    }
    if p.at >= 9 {
        p.set_status(p.status() * 10 + u16::from(byte - b'0'));
    }
    p.at += 1;
    ReaderStep::On
}

/// Reads one byte of a name that so far is a prefix of `word`.
fn name(p: &mut Progress, byte: u8, word: &[u8]) {
    let lower = byte.to_ascii_lowercase();
    let at = usize::from(p.at);
    if word.get(at) == Some(&lower) {
        p.at += 1;
    } else if byte == b':' && at == word.len() {
        p.at = 0;
        p.phase = match p.phase {
            ReadPhase::LengthName if p.has(mark::LENGTH) => ReadPhase::LengthAgain,
            ReadPhase::LengthName => ReadPhase::Length,
            ReadPhase::ConnectionName => ReadPhase::Connection,
            ReadPhase::EncodingName => ReadPhase::Encoding,
            _ => ReadPhase::Expect,
        };
    } else if p.phase == ReadPhase::LengthName && at == 3 && lower == CONNECTION[3] {
        p.at += 1;
        p.phase = ReadPhase::ConnectionName;
    } else if byte == b'\n' {
        p.phase = ReadPhase::LineStart;
    } else {
        p.phase = ReadPhase::RestOfLine;
    }
}

/// Reads one byte of a header value that is a list of words. Sets the mark at the end of a word that equals `wanted`.
fn word(p: &mut Progress, byte: u8, wanted: &[u8], found: u16) {
    let at = usize::from(p.at);
    p.at = match byte {
        b'\n' | b',' => {
            if at == wanted.len() {
                p.set(found);
            }
            if byte == b'\n' {
                p.phase = ReadPhase::LineStart;
            }
            0
        }
        _ if is_between_words(byte) && (at == 0 || at == wanted.len()) => p.at,
        _ if wanted.get(at) == Some(&byte.to_ascii_lowercase()) => p.at + 1,
        _ => OTHER,
    };
}

fn is_between_words(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',')
}

fn length(p: &mut Progress, byte: u8) -> ReaderStep {
    match byte {
        b'0'..=b'9' => {
            // Before the first digit `left` is 0, because names of other headers do not change it.
            let left = p.left() * 10 + u64::from(byte - b'0');
            if left > LONGEST_BODY {
                return ReaderStep::Bad;
            }
            p.set_left(left);
            p.set(mark::LENGTH);
            p.at = 1;
        }
        b' ' | b'\t' if p.at == 0 => {}
        b' ' | b'\t' | b'\r' if p.at > 0 => p.phase = ReadPhase::LengthEnd,
        b'\n' if p.at > 0 => p.phase = ReadPhase::LineStart,
        _ => return ReaderStep::Bad,
    }
    ReaderStep::On
}

/// Reads one byte of a repeated length. `at` is 0 before the first digit, then one more than the number of digits read,
/// without leading zeros.
fn length_again(p: &mut Progress, byte: u8) -> ReaderStep {
    let left = p.left();
    let digits = left.checked_ilog10().map_or(0, |log| log + 1);
    let read = u32::from(p.at.max(1)) - 1;
    match byte {
        b'0' if read == 0 => p.at = 1,
        b'0'..=b'9' => {
            let is_same =
                read < digits && left / 10u64.pow(digits - 1 - read) % 10 == u64::from(byte - b'0');
            if !is_same {
                return ReaderStep::Bad;
            }
            p.at = read as u8 + 2;
        }
        b' ' | b'\t' if p.at == 0 => {}
        _ if p.at == 0 || read != digits => return ReaderStep::Bad,
        b' ' | b'\t' | b'\r' => p.phase = ReadPhase::LengthEnd,
        b'\n' => p.phase = ReadPhase::LineStart,
        _ => return ReaderStep::Bad,
    }
    ReaderStep::On
}

/// Continues reading chunk framing. Returns the number of bytes read: RFC 9112 section 7.1.
fn frame_chunk(p: &mut Progress, bytes: &[u8]) -> (usize, ReaderStep) {
    let mut at = 0;
    while at < bytes.len() {
        let skips = matches!(p.phase, ReadPhase::ChunkExtension | ReadPhase::Trailer);
        if skips && !skip_line(&mut at, bytes) {
            break;
        }
        let byte = bytes[at];
        at += 1;
        p.phase = match (p.phase, byte) {
            (ReadPhase::ChunkSize, _) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                let left = p.left() << 4 | u64::from(digit);
                if left > LONGEST_BODY {
                    return (at, ReaderStep::Bad);
                }
                p.set_left(left);
                p.at = 1;
                continue;
            }
            (ReadPhase::ChunkSize, _) if p.at == 0 => return (at, ReaderStep::Bad),
            (ReadPhase::ChunkSize | ReadPhase::ChunkExtension, b'\n') if p.left() == 0 => {
                ReadPhase::TrailerStart
            }
            (ReadPhase::ChunkSize | ReadPhase::ChunkExtension, b'\n') => {
                p.phase = ReadPhase::Chunk;
                return (at, ReaderStep::On);
            }
            (ReadPhase::ChunkSize, b';' | b' ' | b'\t' | b'\r') => ReadPhase::ChunkExtension,
            (ReadPhase::ChunkEnd | ReadPhase::TrailerStart, b'\r') => continue,
            (ReadPhase::ChunkEnd, b'\n') => {
                p.set_left(0);
                p.at = 0;
                ReadPhase::ChunkSize
            }
            (ReadPhase::TrailerStart, b'\n') => return (at, ReaderStep::End),
            (ReadPhase::TrailerStart, _) => ReadPhase::Trailer,
            (ReadPhase::Trailer, b'\n') => ReadPhase::TrailerStart,
            _ => return (at, ReaderStep::Bad),
        };
    }
    (at, ReaderStep::On)
}
