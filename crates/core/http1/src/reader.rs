//! Finds where messages end in a stream that comes in pieces: RFC 9112 section 6.
//!
//! Only what delimits messages is looked at, byte by byte up to a colon, and lines of other headers are skipped. A head
//! that equals the last one read, and where a load runs nearly all do, is recognised by one comparison. Heads may be of
//! any length, because nothing of them is kept.

use crate::progress::{LONGEST_BODY, Phase, Progress, mark};

/// What a piece of a stream led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// All was read; the message goes on.
    More,
    /// A message ended.
    Message {
        /// After so many bytes of the piece.
        used: usize,
        /// From 100 to 599; 0 of a request.
        status: u16,
        /// What follows from it.
        end: End,
    },
    /// The head of a request ended whose sender waits for leave to send the body: RFC 9110 section 10.1.1.
    Expects {
        /// After so many bytes of the piece.
        used: usize,
    },
    /// This is no message. The stream is of no use from here on.
    Bad,
}

/// What follows from a message that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The connection ends with it, or with its answer; after status 101 it speaks something else.
    pub close: bool,
    /// It is of HTTP/1.0 and wants the connection kept, which the answer to a request has to grant in words.
    pub keep_if_granted: bool,
    /// Of a request: its answer has no body. Of a response: it answers HEAD.
    pub head_only: bool,
}

/// Is shown messages while they are read, in pieces as they come.
pub trait Sink {
    /// The next bytes of a head, from the start line to the empty line.
    fn head(&mut self, bytes: &[u8]);

    /// The next bytes of a body, without what frames chunks, and without trailers.
    fn body(&mut self, bytes: &[u8]);

    /// The head that was shown is that of an interim response, which is passed over; the next head follows.
    fn interim(&mut self) {}
}

/// Looks at nothing.
impl Sink for () {
    #[inline]
    fn head(&mut self, _: &[u8]) {}

    #[inline]
    fn body(&mut self, _: &[u8]) {}
}

/// What interim responses (100 to 199, but 101, which is final) count as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interim {
    /// Nothing: the final response follows. RFC 9110 section 15.2.
    Skipped,
    /// A message each. What is [expected](Progress::expect) has to be said again of the next one.
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

/// The last head that came in one piece, and what it led to.
#[derive(Debug)]
struct Memo {
    head: Vec<u8>,
    /// The phase before it; what is no start, if there is no memo.
    start: Phase,
    after: After,
    progress: Progress,
    /// Bytes of the body; what no piece has, if they are not known or leave is waited for.
    body_len: usize,
    status: u16,
    end: End,
}

/// What follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Body,
    /// Nothing: the message has ended.
    End,
    /// A body, for which leave is waited for.
    Expects,
    /// The head of another response to the same request.
    Interim,
}

enum Step {
    On,
    /// The head, or the message, ends with this byte.
    End,
    Bad,
}

const LENGTH: &[u8] = b"content-length";
const ENCODING: &[u8] = b"transfer-encoding";
const CONNECTION: &[u8] = b"connection";
const EXPECT: &[u8] = b"expect";
const CHUNKED: &[u8] = b"chunked";
const CONTINUE: &[u8] = b"100-continue";
/// Values of "Connection" that matter; `at` is above [`SECOND`] within the second.
const CLOSE: &[u8] = b"close";
const KEEP: &[u8] = b"keep-alive";
const SECOND: u8 = 16;
/// `at` in a word of a list that is none of those looked for.
const OTHER: u8 = u8::MAX;
const HEAD: &[u8] = b"HEAD ";
/// First bytes of a response; minor version, blank and status follow.
const HTTP: &[u8] = b"HTTP/1.";
const LONGEST_MEMO: usize = 512;

impl Reader {
    /// A reader of requests.
    pub fn requests() -> Self {
        Self::new(Kind::Requests)
    }

    /// A reader of responses.
    pub fn responses(interim: Interim) -> Self {
        Self::new(Kind::Responses(interim))
    }

    /// All responses answer HEAD: none has a body, without a word to [`Progress::expect`].
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

    /// The same, and shows to `sink` what the message holds.
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
            // Nothing else is set at a start.
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

    /// The head has ended: RFC 9112 section 6.3.
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
        // RFC 9110 section 10.1.1: of a client of HTTP/1.0 it means nothing.
        if self.kind == Kind::Requests && status == 100 && !p.has(mark::OLD) {
            After::Expects
        } else {
            After::Body
        }
    }

    /// Reads on in a head, and says how far.
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

    /// A byte of a head.
    fn step(&self, p: &mut Progress, byte: u8) -> Step {
        match p.phase {
            Phase::Start | Phase::StartToHead => {
                let is_request = self.kind == Kind::Requests;
                if is_request && matches!(byte, b'\r' | b'\n') {
                    // Such a line before a request is nothing: RFC 9112 section 2.2.
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

/// Goes on to the end of the line, and says whether it is in this piece.
#[inline]
fn skip_line(at: &mut usize, bytes: &[u8]) -> bool {
    let end = bytes[*at..].iter().position(|byte| *byte == b'\n');
    *at = end.map_or(bytes.len(), |n| *at + n);
    end.is_some()
}

/// A byte of a request's first line: its method, and its version, which is what it ends with. How much of ".0" was
/// last seen is told by `left`.
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

/// A byte of a response's first line, as far as the status goes: RFC 9112 section 4.
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

/// A byte of a name that so far is the beginning of `word`.
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

/// A byte of a header's value that is a list of words: where one ends that is `wanted`, sets the mark.
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
            // Before the first digit it holds nothing: names of other headers do not touch it.
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

/// A byte of the length that was given before. One more than the number of its digits that were read, zeros in front
/// not counted, is in `at`, once there was one.
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

/// Reads on in what frames chunks, and says how far: RFC 9112 section 7.1.
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
