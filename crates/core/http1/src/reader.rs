//! Finds the ends of messages in a stream that arrives in pieces: RFC 9112 section 6.
//!
//! Parses only what delimits messages, byte by byte up to a colon, and skips the lines of other headers. A head that
//! equals the previous one, as nearly all do under load, is recognised by one comparison. Heads may have any length,
//! because they are not stored.

use crate::progress::{LONGEST_BODY, Phase, Progress, mark};

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
        end: End,
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
pub struct End {
    /// The connection ends with the message or with its response. After status 101 it changes its protocol.
    pub close: bool,
    /// An HTTP/1.0 message that asks for a persistent connection, which the response to a request must grant
    /// explicitly.
    pub keep_if_granted: bool,
    /// For a request: its response has no body. For a response: it answers HEAD.
    pub head_only: bool,
}

/// Receiver of the contents of messages, in pieces as they arrive.
pub trait Sink {
    /// Receives the next bytes of a head, from the start line to the empty line.
    fn head(&mut self, bytes: &[u8]);

    /// Receives the next bytes of a body, without chunk framing and trailers.
    fn body(&mut self, bytes: &[u8]);

    /// The last head was that of an interim response, which is skipped; the next head follows.
    fn interim(&mut self) {}
}

/// Ignores all contents.
impl Sink for () {
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
enum Kind {
    Requests,
    Responses(Interim),
}

/// Reads the messages of one direction of many streams, each with its [`Progress`].
#[derive(Debug)]
pub struct Reader {
    kind: Kind,
    to_head: bool,
    memo: Memo,
}

/// The last head that arrived in one piece, and the result of parsing it.
#[derive(Debug)]
struct Memo {
    head: Vec<u8>,
    /// Phase before the head; not a start phase if the memo is empty.
    start: Phase,
    after: After,
    progress: Progress,
    /// Bytes of the body; `usize::MAX` if unknown or if the sender waits for permission.
    body_len: usize,
    status: u16,
    end: End,
}

/// Continuation after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Body,
    /// The message has ended.
    End,
    /// A body, which the sender transmits after permission.
    Expects,
    /// Head of another response to the same request.
    Interim,
}

enum Step {
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
        Self::new(Kind::Requests)
    }

    /// Creates a reader of responses.
    pub fn responses(interim: Interim) -> Self {
        Self::new(Kind::Responses(interim))
    }

    /// Treats all responses as answers to HEAD: none has a body, without calls of [`Progress::expect`].
    #[must_use]
    pub fn to_head(self) -> Self {
        Self {
            to_head: true,
            ..self
        }
    }

    fn new(kind: Kind) -> Self {
        Self {
            kind,
            to_head: false,
            memo: Memo {
                head: Vec::with_capacity(LONGEST_MEMO),
                start: Phase::UntilEnd,
                after: After::End,
                progress: Progress::NEW,
                body_len: usize::MAX,
                status: 0,
                end: End::default(),
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
        sink: &mut impl Sink,
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
            progress.phase = Phase::Start;
            return Read::Message {
                used: memo.head.len() + body.len(),
                status: memo.status,
                end: memo.end,
            };
        }
        self.read_on(progress, bytes, sink)
    }

    fn read_on(&mut self, progress: &mut Progress, bytes: &[u8], sink: &mut impl Sink) -> Read {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let start = progress.phase;
            match start {
                Phase::Body | Phase::Chunk | Phase::UntilEnd => {
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
                Phase::ChunkSize
                | Phase::ChunkExtension
                | Phase::ChunkEnd
                | Phase::TrailerStart
                | Phase::Trailer => {
                    let (n, step) = frame_chunk(progress, rest);
                    at += n;
                    match step {
                        Step::On => {}
                        Step::End => return progress.complete(at),
                        Step::Bad => return Read::Bad,
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
                    Step::On => return Read::More,
                    Step::Bad => return Read::Bad,
                    Step::End => {
                        let after = self.after_head(progress);
                        self.remember(start, &rest[..n], progress, after);
                        after
                    }
                }
            };
            match after {
                After::Body => {}
                After::End => return progress.complete(at),
                After::Expects => return Read::Expects { used: at },
                After::Interim => sink.interim(),
            }
        }
        Read::More
    }

    fn remember(&mut self, start: Phase, head: &[u8], progress: &Progress, after: After) {
        if !matches!(start, Phase::Start | Phase::StartToHead) || head.len() > LONGEST_MEMO {
            return;
        }
        let memo = &mut self.memo;
        memo.head.clear();
        memo.head.extend_from_slice(head);
        memo.start = start;
        memo.after = after;
        memo.progress = *progress;
        memo.body_len = match after {
            After::End => 0,
            After::Body if progress.phase == Phase::Body => progress.left() as usize,
            _ => usize::MAX,
        };
        if let Read::Message { status, end, .. } = progress.clone().complete(0) {
            memo.status = status;
            memo.end = end;
        }
    }

    /// Decides what follows the head: RFC 9112 section 6.3.
    fn after_head(&self, p: &mut Progress) -> After {
        let status = p.status();
        if let Kind::Responses(interim) = self.kind {
            if status == 101 {
                p.set(mark::CLOSE);
            } else if status < 200 && interim == Interim::Skipped {
                let to_head = p.has(mark::HEAD);
                *p = Progress::NEW;
                p.expect(to_head);
                return After::Interim;
            }
            let has_none = status < 200 || matches!(status, 204 | 304);
            if has_none || self.to_head || p.has(mark::HEAD) {
                return After::End;
            }
        } else {
            p.set_status(0);
        }
        p.at = 0;
        if p.has(mark::CHUNKED) {
            p.phase = Phase::ChunkSize;
            p.set_left(0);
        } else if p.has(mark::LENGTH) {
            if p.left() == 0 {
                return After::End;
            }
            p.phase = Phase::Body;
        } else if self.kind == Kind::Requests {
            return After::End;
        } else {
            p.phase = Phase::UntilEnd;
            p.set(mark::CLOSE);
        }
        // RFC 9110 section 10.1.1: an expectation in an HTTP/1.0 request is ignored.
        if self.kind == Kind::Requests && status == 100 && !p.has(mark::OLD) {
            After::Expects
        } else {
            After::Body
        }
    }

    /// Continues reading a head. Returns the number of bytes read.
    fn read_head(&self, p: &mut Progress, bytes: &[u8]) -> (usize, Step) {
        let mut at = 0;
        while at < bytes.len() {
            if p.phase == Phase::RestOfLine && !skip_line(&mut at, bytes) {
                break;
            }
            let byte = bytes[at];
            at += 1;
            match self.step(p, byte) {
                Step::On => {}
                step => return (at, step),
            }
        }
        (at, Step::On)
    }

    /// Reads one byte of a head.
    fn step(&self, p: &mut Progress, byte: u8) -> Step {
        match p.phase {
            Phase::Start | Phase::StartToHead => {
                let is_request = self.kind == Kind::Requests;
                if is_request && matches!(byte, b'\r' | b'\n') {
                    // An empty line before a request is ignored: RFC 9112 section 2.2.
                    return Step::On;
                }
                if p.phase == Phase::StartToHead && !is_request {
                    p.set(mark::HEAD);
                }
                p.phase = Phase::FirstLine;
                return self.step(p, byte);
            }
            Phase::FirstLine if self.kind == Kind::Requests => request_line(p, byte),
            Phase::FirstLine => return status_line(p, byte),
            Phase::LineStart => {
                p.at = 1;
                p.phase = match byte {
                    b'\n' => return Step::End,
                    b'\r' => return Step::On,
                    b'c' | b'C' => Phase::LengthName,
                    b't' | b'T' => Phase::EncodingName,
                    b'e' | b'E' if self.kind == Kind::Requests => Phase::ExpectName,
                    _ => Phase::RestOfLine,
                };
            }
            Phase::LengthName => name(p, byte, LENGTH),
            Phase::ConnectionName => name(p, byte, CONNECTION),
            Phase::EncodingName => name(p, byte, ENCODING),
            Phase::ExpectName => name(p, byte, EXPECT),
            Phase::Length => return length(p, byte),
            Phase::LengthAgain => return length_again(p, byte),
            Phase::LengthEnd => match byte {
                b'\n' => p.phase = Phase::LineStart,
                b' ' | b'\t' | b'\r' => {}
                _ => return Step::Bad,
            },
            Phase::Encoding => {
                if !is_between_words(byte) {
                    // Only the last coding counts.
                    p.clear(mark::CHUNKED);
                }
                word(p, byte, CHUNKED, mark::CHUNKED);
            }
            Phase::Expect => word(p, byte, CONTINUE, mark::EXPECTS),
            Phase::Connection if p.at == 0 && byte.eq_ignore_ascii_case(&KEEP[0]) => {
                p.at = SECOND + 1;
            }
            Phase::Connection if p.at > SECOND && p.at != OTHER => {
                p.at -= SECOND;
                word(p, byte, KEEP, mark::KEEP);
                p.at = match p.at {
                    0 | OTHER => p.at,
                    at => at + SECOND,
                };
            }
            Phase::Connection => word(p, byte, CLOSE, mark::CLOSE),
            Phase::RestOfLine if byte == b'\n' => p.phase = Phase::LineStart,
            _ => {}
        }
        Step::On
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
            p.phase = Phase::LineStart;
            0
        }
        _ => 0,
    };
    p.set_left(seen);
}

/// Reads one byte of a status line, up to the status: RFC 9112 section 4.
fn status_line(p: &mut Progress, byte: u8) -> Step {
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
                b'\n' => Phase::LineStart,
                b' ' | b'\r' => Phase::RestOfLine,
                _ => return Step::Bad,
            };
            return Step::On;
        }
    };
    if !is_sound {
        return Step::Bad;
    }
    if p.at >= 9 {
        p.set_status(p.status() * 10 + u16::from(byte - b'0'));
    }
    p.at += 1;
    Step::On
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
            Phase::LengthName if p.has(mark::LENGTH) => Phase::LengthAgain,
            Phase::LengthName => Phase::Length,
            Phase::ConnectionName => Phase::Connection,
            Phase::EncodingName => Phase::Encoding,
            _ => Phase::Expect,
        };
    } else if p.phase == Phase::LengthName && at == 3 && lower == CONNECTION[3] {
        p.at += 1;
        p.phase = Phase::ConnectionName;
    } else if byte == b'\n' {
        p.phase = Phase::LineStart;
    } else {
        p.phase = Phase::RestOfLine;
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
                p.phase = Phase::LineStart;
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

fn length(p: &mut Progress, byte: u8) -> Step {
    match byte {
        b'0'..=b'9' => {
            // Before the first digit `left` is 0, because names of other headers do not change it.
            let left = p.left() * 10 + u64::from(byte - b'0');
            if left > LONGEST_BODY {
                return Step::Bad;
            }
            p.set_left(left);
            p.set(mark::LENGTH);
            p.at = 1;
        }
        b' ' | b'\t' if p.at == 0 => {}
        b' ' | b'\t' | b'\r' if p.at > 0 => p.phase = Phase::LengthEnd,
        b'\n' if p.at > 0 => p.phase = Phase::LineStart,
        _ => return Step::Bad,
    }
    Step::On
}

/// Reads one byte of a repeated length. `at` is 0 before the first digit, then one more than the number of digits read,
/// without leading zeros.
fn length_again(p: &mut Progress, byte: u8) -> Step {
    let left = p.left();
    let digits = left.checked_ilog10().map_or(0, |log| log + 1);
    let read = u32::from(p.at.max(1)) - 1;
    match byte {
        b'0' if read == 0 => p.at = 1,
        b'0'..=b'9' => {
            let is_same =
                read < digits && left / 10u64.pow(digits - 1 - read) % 10 == u64::from(byte - b'0');
            if !is_same {
                return Step::Bad;
            }
            p.at = read as u8 + 2;
        }
        b' ' | b'\t' if p.at == 0 => {}
        _ if p.at == 0 || read != digits => return Step::Bad,
        b' ' | b'\t' | b'\r' => p.phase = Phase::LengthEnd,
        b'\n' => p.phase = Phase::LineStart,
        _ => return Step::Bad,
    }
    Step::On
}

/// Continues reading chunk framing. Returns the number of bytes read: RFC 9112 section 7.1.
fn frame_chunk(p: &mut Progress, bytes: &[u8]) -> (usize, Step) {
    let mut at = 0;
    while at < bytes.len() {
        let skips = matches!(p.phase, Phase::ChunkExtension | Phase::Trailer);
        if skips && !skip_line(&mut at, bytes) {
            break;
        }
        let byte = bytes[at];
        at += 1;
        p.phase = match (p.phase, byte) {
            (Phase::ChunkSize, _) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                let left = p.left() << 4 | u64::from(digit);
                if left > LONGEST_BODY {
                    return (at, Step::Bad);
                }
                p.set_left(left);
                p.at = 1;
                continue;
            }
            (Phase::ChunkSize, _) if p.at == 0 => return (at, Step::Bad),
            (Phase::ChunkSize | Phase::ChunkExtension, b'\n') if p.left() == 0 => {
                Phase::TrailerStart
            }
            (Phase::ChunkSize | Phase::ChunkExtension, b'\n') => {
                p.phase = Phase::Chunk;
                return (at, Step::On);
            }
            (Phase::ChunkSize, b';' | b' ' | b'\t' | b'\r') => Phase::ChunkExtension,
            (Phase::ChunkEnd | Phase::TrailerStart, b'\r') => continue,
            (Phase::ChunkEnd, b'\n') => {
                p.set_left(0);
                p.at = 0;
                Phase::ChunkSize
            }
            (Phase::TrailerStart, b'\n') => return (at, Step::End),
            (Phase::TrailerStart, _) => Phase::Trailer,
            (Phase::Trailer, b'\n') => Phase::TrailerStart,
            _ => return (at, Step::Bad),
        };
    }
    (at, Step::On)
}
