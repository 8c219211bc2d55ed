//! Reads messages in a byte stream that comes in pieces, with ten bytes of state.
//!
//! Heads are looked at byte by byte, but a head that equals the last one read, and nearly all do,
//! is recognised by one comparison.

/// What is read from the peer, and when a message is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every segment with data is a message.
    Segment,
    /// Messages of so many bytes, at least 1.
    Fixed(u32),
    /// HTTP/1.1 and 1.0 messages: RFC 9112 section 6 by Content-Length, chunked, else (a response only)
    /// until the end. Only what delimits messages is looked at.
    Http,
    /// All that comes is one message; it ends with the stream.
    UntilEnd,
}

/// Where the reading of one connection stands.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(2))]
pub(crate) struct Progress {
    /// Bytes left of a body or chunk; digits of a length while they are read: 48 bits.
    left_low: u32,
    left_high: u16,
    phase: Phase,
    /// Place in a line or word.
    at: u8,
    marks: u16,
}

const _: () = assert!(size_of::<Progress>() == 10);
/// A longer body or chunk is none.
const LONGEST_BODY: u64 = (1 << 48) - 1;

impl Progress {
    pub(crate) const NEW: Self = Self {
        left_low: 0,
        left_high: 0,
        phase: Phase::Start,
        at: 0,
        marks: 0,
    };

    #[inline]
    fn left(&self) -> u64 {
        u64::from(self.left_high) << 32 | u64::from(self.left_low)
    }

    #[inline]
    fn set_left(&mut self, left: u64) {
        self.left_low = left as u32;
        self.left_high = (left >> 32) as u16;
    }

    /// First digit of the status; what is no digit is 7.
    #[inline]
    fn class(&self) -> u8 {
        (self.marks >> mark::CLASS) as u8
    }

    #[inline]
    fn set_class(&mut self, class: u8) {
        self.marks = self.marks & !(7 << mark::CLASS) | u16::from(class.min(7)) << mark::CLASS;
    }

    #[inline]
    fn has(&self, mark: u16) -> bool {
        self.marks & mark != 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Before the first byte of a message.
    Start,
    FirstLine,
    LineStart,
    Name,
    Length,
    Encoding,
    Connection,
    Expect,
    RestOfLine,
    Body,
    ChunkSize,
    ChunkExtension,
    Chunk,
    ChunkEnd,
    TrailerStart,
    Trailer,
    UntilEnd,
}

mod mark {
    /// Names that the present line may still be.
    pub(super) const MAY_LENGTH: u16 = 1;
    pub(super) const MAY_ENCODING: u16 = 2;
    pub(super) const MAY_CONNECTION: u16 = 4;
    pub(super) const MAY_EXPECT: u16 = 8;
    pub(super) const MAY: u16 = MAY_LENGTH | MAY_ENCODING | MAY_CONNECTION | MAY_EXPECT;
    /// Content-Length was given, in `left`.
    pub(super) const LENGTH: u16 = 16;
    pub(super) const CHUNKED: u16 = 32;
    pub(super) const CLOSE: u16 = 64;
    /// A digit of a length was seen.
    pub(super) const DIGIT: u16 = 128;
    /// Status 204 or 304.
    pub(super) const NO_BODY: u16 = 256;
    /// HTTP/1.0.
    pub(super) const OLD: u16 = 512;
    /// "Connection: keep-alive".
    pub(super) const KEEP: u16 = 1024;
    /// "Expect: 100-continue".
    pub(super) const EXPECT: u16 = 2048;
    /// The method is HEAD.
    pub(super) const HEAD: u16 = 4096;
    /// Where the three bits of the class begin.
    pub(super) const CLASS: u32 = 13;
}

const LENGTH: &[u8] = b"content-length";
const ENCODING: &[u8] = b"transfer-encoding";
const CONNECTION: &[u8] = b"connection";
const EXPECT: &[u8] = b"expect";
/// Values of "Connection" that matter; `at` is above [`SECOND`] within the second.
const CLOSE: &[u8] = b"close";
const KEEP: &[u8] = b"keep-alive";
const SECOND: u8 = 16;
const HEAD: &[u8] = b"HEAD ";
const LONGEST_MEMO: usize = 512;

/// What a piece of stream led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// All was read; the message goes on.
    More,
    /// A message ended after `used` bytes.
    Message { used: usize, class: u8, end: End },
    /// A head ended after `used` bytes whose sender waits for leave to send the body.
    Expects { used: usize },
    /// This is no message.
    Bad,
}

/// What follows from a message that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The connection ends with it, or with its answer.
    pub(crate) close: bool,
    /// It is of HTTP/1.0 and wants the connection kept, which the answer has to grant in words.
    pub(crate) keep_if_granted: bool,
    /// Its answer has no body.
    pub(crate) head_only: bool,
}

#[derive(Debug)]
pub(crate) struct Reader {
    kind: Reading,
    is_response: bool,
    /// Responses are to HEAD: none has a body.
    no_bodies: bool,
    memo: Vec<u8>,
    after_memo: Progress,
}

impl Reader {
    /// A reader of requests, or of responses to such requests as `asked` is the beginning of.
    pub(crate) fn new(kind: Reading, asked: Option<&[u8]>) -> Self {
        Self {
            kind,
            is_response: asked.is_some(),
            no_bodies: asked.is_some_and(|asked| asked.starts_with(HEAD)),
            memo: Vec::with_capacity(LONGEST_MEMO),
            after_memo: Progress::NEW,
        }
    }

    /// Reads from in-order bytes, at least one, up to the end of a message.
    #[inline]
    pub(crate) fn read(&mut self, progress: &mut Progress, bytes: &[u8]) -> Read {
        match self.kind {
            Reading::Segment => Read::Message {
                used: bytes.len(),
                class: if self.is_response && bytes.len() > 18 {
                    bytes[9].wrapping_sub(b'0')
                } else {
                    0
                },
                end: End::default(),
            },
            Reading::Fixed(len) => {
                if progress.phase == Phase::Start {
                    progress.set_left(u64::from(len.max(1)));
                    progress.phase = Phase::Body;
                }
                let used = progress.left().min(bytes.len() as u64);
                self.count(progress, used)
            }
            Reading::UntilEnd => {
                progress.phase = Phase::UntilEnd;
                Read::More
            }
            Reading::Http => self.read_http(progress, bytes),
        }
    }

    /// How many of the next bytes need only be counted, not seen.
    #[inline]
    pub(crate) fn countable(&self, progress: &Progress) -> u64 {
        match (self.kind, progress.phase) {
            (Reading::UntilEnd, _) | (_, Phase::UntilEnd) => u64::MAX,
            (Reading::Fixed(len), Phase::Start) => u64::from(len),
            (_, Phase::Body | Phase::Chunk) => progress.left(),
            _ => 0,
        }
    }

    /// Takes `n` bytes as read, at most [`Reader::countable`].
    #[inline]
    pub(crate) fn count(&self, progress: &mut Progress, n: u64) -> Read {
        match (self.kind, progress.phase) {
            (Reading::Fixed(len), Phase::Start) => {
                progress.set_left(u64::from(len.max(1)));
                progress.phase = Phase::Body;
            }
            (_, Phase::UntilEnd) | (Reading::UntilEnd, _) => return Read::More,
            _ => {}
        }
        let left = progress.left().saturating_sub(n);
        progress.set_left(left);
        if left > 0 {
            return Read::More;
        }
        if progress.phase == Phase::Chunk {
            progress.phase = Phase::ChunkEnd;
            return Read::More;
        }
        Self::complete(progress, n as usize)
    }

    /// The stream has ended: whether that ends the message well, and its status class.
    pub(crate) fn end(&self, progress: &Progress) -> Option<u8> {
        (progress.phase == Phase::UntilEnd || self.kind == Reading::UntilEnd)
            .then_some(progress.class())
    }

    /// Whether a message has begun and not ended.
    pub(crate) fn is_within(&self, progress: &Progress) -> bool {
        progress.phase != Phase::Start
    }

    #[inline]
    fn complete(progress: &mut Progress, used: usize) -> Read {
        let done = Read::Message {
            used,
            class: progress.class(),
            end: End {
                close: progress.has(mark::CLOSE)
                    || progress.has(mark::OLD) && !progress.has(mark::KEEP),
                keep_if_granted: progress.has(mark::OLD) && progress.has(mark::KEEP),
                head_only: progress.has(mark::HEAD),
            },
        };
        *progress = Progress::NEW;
        done
    }

    fn read_http(&mut self, progress: &mut Progress, bytes: &[u8]) -> Read {
        let mut at = 0;
        let mut head = None;
        if progress.phase == Phase::Start {
            if !self.memo.is_empty() && bytes.starts_with(&self.memo) {
                at = self.memo.len();
                *progress = self.after_memo;
                if progress.phase == Phase::Start {
                    return Self::complete_of(self.after_memo, progress, at);
                }
                if progress.has(mark::EXPECT) {
                    return Self::expects(progress, at);
                }
            } else {
                progress.phase = Phase::FirstLine;
                head = Some(bytes);
            }
        }
        while at < bytes.len() {
            match progress.phase {
                Phase::Body | Phase::Chunk | Phase::UntilEnd => {
                    let rest = (bytes.len() - at) as u64;
                    let n = if progress.phase == Phase::UntilEnd {
                        rest
                    } else {
                        rest.min(progress.left())
                    };
                    at += n as usize;
                    match self.count(progress, n) {
                        Read::Message { class, end, .. } => {
                            return Read::Message {
                                used: at,
                                class,
                                end,
                            };
                        }
                        Read::Bad => return Read::Bad,
                        _ => {}
                    }
                }
                _ => {
                    let byte = bytes[at];
                    at += 1;
                    match self.step(progress, byte) {
                        Step::On => {}
                        Step::Bad => return Read::Bad,
                        Step::End => return Self::complete(progress, at),
                        Step::Head => {
                            let ended = self.after_head(progress);
                            if let Some(head) = head.take() {
                                self.remember(&head[..at], progress, ended);
                            }
                            if ended {
                                return Self::complete(progress, at);
                            }
                            if progress.has(mark::EXPECT) {
                                return Self::expects(progress, at);
                            }
                        }
                    }
                }
            }
        }
        Read::More
    }

    /// The body is waited for: RFC 9110 section 10.1.1.
    #[cold]
    fn expects(progress: &mut Progress, used: usize) -> Read {
        progress.marks &= !mark::EXPECT;
        Read::Expects { used }
    }

    /// A memo whose message has no body.
    fn complete_of(after: Progress, progress: &mut Progress, used: usize) -> Read {
        *progress = after;
        Self::complete(progress, used)
    }

    fn remember(&mut self, head: &[u8], progress: &Progress, ended: bool) {
        if head.len() <= LONGEST_MEMO {
            self.memo.clear();
            self.memo.extend_from_slice(head);
            self.after_memo = *progress;
            if ended {
                self.after_memo.phase = Phase::Start;
            }
        }
    }

    /// The head has ended: RFC 9112 section 6.3. Returns whether the message has, too.
    fn after_head(&self, progress: &mut Progress) -> bool {
        if self.is_response && progress.class() == 1 {
            // An interim response; the final one follows. RFC 9110 section 15.2.
            *progress = Progress::NEW;
            progress.phase = Phase::FirstLine;
            return false;
        }
        if self.no_bodies || progress.has(mark::NO_BODY) {
            return true;
        }
        if progress.has(mark::CHUNKED) {
            progress.phase = Phase::ChunkSize;
            progress.set_left(0);
            progress.marks &= !mark::DIGIT;
            return false;
        }
        if progress.has(mark::LENGTH) {
            progress.phase = Phase::Body;
            return progress.left() == 0;
        }
        if !self.is_response {
            return true;
        }
        progress.phase = Phase::UntilEnd;
        progress.marks |= mark::CLOSE;
        false
    }

    fn step(&self, p: &mut Progress, byte: u8) -> Step {
        match p.phase {
            Phase::FirstLine => {
                if byte == b'\n' {
                    p.phase = Phase::LineStart;
                    return if !self.is_response {
                        Self::request_line_ends(p);
                        Step::On
                    } else if (1..=5).contains(&p.class()) {
                        Step::On
                    } else {
                        Step::Bad
                    };
                }
                if self.is_response {
                    let wanted = b"HTTP/1.";
                    if usize::from(p.at) < wanted.len() && wanted[usize::from(p.at)] != byte {
                        return Step::Bad;
                    }
                    match (p.at, byte) {
                        (7, b'0') => p.marks |= mark::OLD,
                        (9, _) => p.set_class(byte.wrapping_sub(b'0')),
                        (10, b'0') if matches!(p.class(), 2 | 3) => p.marks |= mark::NO_BODY,
                        (11, b'4') => {}
                        (11, _) => p.marks &= !mark::NO_BODY,
                        _ => {}
                    }
                } else {
                    Self::request_line(p, byte);
                }
                p.at = p.at.saturating_add(1);
            }
            Phase::LineStart if byte == b'\n' => return Step::Head,
            Phase::LineStart if byte == b'\r' => {}
            Phase::LineStart => {
                p.phase = Phase::Name;
                p.at = 0;
                p.marks |= mark::MAY;
                return self.step(p, byte);
            }
            Phase::Name => Self::name(p, byte),
            Phase::Length => return Self::length(p, byte),
            Phase::Encoding => Self::word(p, byte, b"chunked", mark::CHUNKED),
            Phase::Expect => Self::word(p, byte, b"100-continue", mark::EXPECT),
            Phase::Connection if p.at > SECOND => {
                p.at -= SECOND;
                Self::word(p, byte, KEEP, mark::KEEP);
                p.at = if p.at > 0 { p.at + SECOND } else { 0 };
            }
            Phase::Connection if p.at == 0 && byte.eq_ignore_ascii_case(&KEEP[0]) => {
                p.at = SECOND + 1;
            }
            Phase::Connection => Self::word(p, byte, CLOSE, mark::CLOSE),
            Phase::RestOfLine if byte == b'\n' => p.phase = Phase::LineStart,
            Phase::RestOfLine => {}
            Phase::ChunkSize => return Self::chunk_size(p, byte),
            Phase::ChunkExtension if byte == b'\n' => Self::chunk_begins(p),
            Phase::ChunkExtension => {}
            Phase::ChunkEnd if byte == b'\r' => {}
            Phase::ChunkEnd if byte == b'\n' => {
                p.phase = Phase::ChunkSize;
                p.set_left(0);
                p.marks &= !mark::DIGIT;
            }
            Phase::ChunkEnd => return Step::Bad,
            Phase::TrailerStart if byte == b'\n' => return Step::End,
            Phase::TrailerStart if byte == b'\r' => {}
            Phase::TrailerStart => p.phase = Phase::Trailer,
            Phase::Trailer if byte == b'\n' => p.phase = Phase::TrailerStart,
            Phase::Trailer => {}
            Phase::Start | Phase::Body | Phase::Chunk | Phase::UntilEnd => return Step::Bad,
        }
        Step::On
    }

    /// A byte of a request's first line: its method, and its version, which is what it ends with. The
    /// class, which a request has none of, tells how much of ".0" was last seen.
    fn request_line(p: &mut Progress, byte: u8) {
        match p.at {
            0 if byte == HEAD[0] => p.marks |= mark::HEAD,
            at @ 1..=4 if HEAD[usize::from(at)] != byte => p.marks &= !mark::HEAD,
            _ => {}
        }
        match (byte, p.class()) {
            (b'.', _) => p.set_class(1),
            (b'0', 1) => p.set_class(2),
            (b'\r', _) => {}
            _ => p.set_class(0),
        }
    }

    fn request_line_ends(p: &mut Progress) {
        if p.class() == 2 {
            p.marks |= mark::OLD;
        }
        p.set_class(0);
    }

    /// A byte of a header's value, in which a word is looked for.
    fn word(p: &mut Progress, byte: u8, word: &[u8], found: u16) {
        let lower = byte.to_ascii_lowercase();
        if word[usize::from(p.at)] == lower {
            p.at += 1;
        } else {
            p.at = u8::from(lower == word[0]);
        }
        if usize::from(p.at) == word.len() {
            p.marks |= found;
            p.phase = Phase::RestOfLine;
            p.at = 0;
        }
        if byte == b'\n' {
            p.phase = Phase::LineStart;
        }
    }

    fn name(p: &mut Progress, byte: u8) {
        let at = usize::from(p.at);
        if byte == b':' {
            let whole = |may: u16, word: &[u8]| p.marks & may != 0 && at == word.len();
            p.phase = if whole(mark::MAY_LENGTH, LENGTH) {
                // A second length replaces nothing: it must be the same, which is not checked.
                p.set_left(0);
                Phase::Length
            } else if whole(mark::MAY_EXPECT, EXPECT) {
                Phase::Expect
            } else if whole(mark::MAY_ENCODING, ENCODING) {
                Phase::Encoding
            } else if whole(mark::MAY_CONNECTION, CONNECTION) {
                Phase::Connection
            } else {
                Phase::RestOfLine
            };
            p.at = 0;
            return;
        }
        let lower = byte.to_ascii_lowercase();
        for (may, word) in [
            (mark::MAY_LENGTH, LENGTH),
            (mark::MAY_ENCODING, ENCODING),
            (mark::MAY_CONNECTION, CONNECTION),
            (mark::MAY_EXPECT, EXPECT),
        ] {
            if word.get(at) != Some(&lower) {
                p.marks &= !may;
            }
        }
        p.at = p.at.saturating_add(1);
        if byte == b'\n' {
            p.phase = Phase::LineStart;
        } else if p.marks & mark::MAY == 0 {
            p.phase = Phase::RestOfLine;
        }
    }

    fn length(p: &mut Progress, byte: u8) -> Step {
        match byte {
            b'0'..=b'9' => {
                p.marks |= mark::DIGIT | mark::LENGTH;
                let digit = u64::from(byte - b'0');
                let left = p.left() * 10 + digit;
                if left > LONGEST_BODY {
                    return Step::Bad;
                }
                p.set_left(left);
            }
            b' ' | b'\t' | b'\r' => {}
            b'\n' if p.marks & mark::LENGTH != 0 => p.phase = Phase::LineStart,
            _ => return Step::Bad,
        }
        Step::On
    }

    fn chunk_size(p: &mut Progress, byte: u8) -> Step {
        if let Some(digit) = (byte as char).to_digit(16) {
            let left = p.left() << 4 | u64::from(digit);
            if left > LONGEST_BODY {
                return Step::Bad;
            }
            p.set_left(left);
            p.marks |= mark::DIGIT;
            return Step::On;
        }
        match byte {
            _ if p.marks & mark::DIGIT == 0 => Step::Bad,
            b'\n' => {
                Self::chunk_begins(p);
                Step::On
            }
            b';' | b' ' | b'\t' | b'\r' => {
                p.phase = Phase::ChunkExtension;
                Step::On
            }
            _ => Step::Bad,
        }
    }

    fn chunk_begins(p: &mut Progress) {
        p.phase = if p.left() == 0 {
            Phase::TrailerStart
        } else {
            Phase::Chunk
        };
    }
}

enum Step {
    On,
    /// The head ends with this byte.
    Head,
    /// The message ends with this byte.
    End,
    Bad,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All messages of a stream cut into pieces: status class, whether the peer closes, where it ends.
    fn messages(kind: Reading, response: bool, pieces: &[&[u8]]) -> Option<Vec<(u8, bool, usize)>> {
        let mut reader = Reader::new(kind, response.then_some(b"GET /"));
        let mut progress = Progress::NEW;
        let (mut all, mut base) = (Vec::new(), 0);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                match reader.read(&mut progress, rest) {
                    Read::More => {
                        base += rest.len();
                        break;
                    }
                    Read::Message { used, class, end } => {
                        base += used;
                        all.push((class, end.close, base));
                        rest = &rest[used..];
                    }
                    Read::Expects { used } => {
                        base += used;
                        rest = &rest[used..];
                    }
                    Read::Bad => return None,
                }
            }
        }
        Some(all)
    }

    const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-LENGTH:   5\r\n\r\nhello\
        HTTP/1.1 404 Not Found\r\nX: y\r\nTransfer-Encoding: gzip, chunked\r\n\r\n\
        5\r\nhello\r\n1a;x=y\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nT: v\r\n\r\n\
        HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 500 No\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n\
        HTTP/1.1 200 OK\r\ncontent-LENGTH:   5\r\n\r\nhello";

    proptest! {
        #[test]
        fn pieces_do_not_matter(cuts in prop::collection::vec(0usize..STREAM.len(), 0..12)) {
            let whole = messages(Reading::Http, true, &[STREAM]).unwrap();
            let classes: Vec<_> = whole.iter().map(|m| (m.0, m.1)).collect();
            prop_assert_eq!(classes, [(2, false), (4, false), (5, true), (2, false)]);
            prop_assert_eq!(whole[3].2, STREAM.len());
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|w| &STREAM[w[0]..w[1]]).collect();
            prop_assert_eq!(messages(Reading::Http, true, &pieces).unwrap(), whole);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), response: bool) {
            messages(Reading::Http, response, &[b"HTTP/1.1 200 OK\r\nContent-Length:", &bytes]);
            messages(Reading::Http, response, &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes]);
            messages(Reading::Http, response, &[&bytes]);
        }
    }

    #[test]
    fn requests_end_with_their_head_or_body() {
        let stream = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n";
        let ends: Vec<_> = messages(Reading::Http, false, &[stream]).unwrap();
        assert_eq!(
            ends.iter().map(|m| m.2).collect::<Vec<_>>(),
            [27, 68, stream.len()]
        );
    }

    #[test]
    fn fixed_messages_are_counted() {
        let all = messages(Reading::Fixed(3), true, &[b"ab", b"cdefg", b"hi"]).unwrap();
        assert_eq!(all.iter().map(|m| m.2).collect::<Vec<_>>(), [3, 6, 9]);
    }

    #[test]
    fn what_is_no_response_is_refused() {
        assert!(messages(Reading::Http, true, &[b"SSH-2.0-x\r\n"]).is_none());
        let both = b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n";
        assert!(messages(Reading::Http, true, &[both]).is_none());
    }

    /// What the end of each request says: close, keep if granted, head only; and how many asked for leave.
    fn ends(stream: &[u8]) -> (Vec<(bool, bool, bool)>, usize) {
        let mut reader = Reader::new(Reading::Http, None);
        let (mut progress, mut rest) = (Progress::NEW, stream);
        let (mut all, mut leave) = (Vec::new(), 0);
        while !rest.is_empty() {
            match reader.read(&mut progress, rest) {
                Read::Message { used, end, .. } => {
                    all.push((end.close, end.keep_if_granted, end.head_only));
                    rest = &rest[used..];
                }
                Read::Expects { used } => {
                    leave += 1;
                    rest = &rest[used..];
                }
                other => panic!("{other:?} with {} left", rest.len()),
            }
        }
        (all, leave)
    }

    #[test]
    fn versions_and_methods_of_requests_count() {
        let stream = b"GET / HTTP/1.0\r\n\r\nGET /1.0 HTTP/1.1\r\n\r\n\
            GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nHEAD / HTTP/1.1\r\n\r\n\
            HEAL / HTTP/1.1\r\nConnection: k, close\r\n\r\nHEAD / HTTP/1.0\r\n\r\n";
        let (all, leave) = ends(stream);
        assert_eq!(
            all,
            [
                (true, false, false),
                (false, false, false),
                (false, true, false),
                (false, false, true),
                (true, false, false),
                (true, false, true),
            ]
        );
        assert_eq!(leave, 0);
    }

    #[test]
    fn leave_is_asked_for_once_a_request() {
        let one: &[u8] = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab";
        let (all, leave) = ends(&[one, one, one].concat());
        assert_eq!((all.len(), leave), (3, 3));
        // Without a body there is nothing to wait for.
        let (all, leave) = ends(b"GET / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n");
        assert_eq!((all.len(), leave), (1, 0));
    }

    #[test]
    fn answers_to_head_have_no_body() {
        let mut reader = Reader::new(Reading::Http, Some(b"HEAD / HTTP/1.1\r\n"));
        let stream = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        for _ in 0..2 {
            let read = reader.read(&mut Progress::NEW.clone(), stream);
            let used = stream.len();
            assert!(matches!(read, Read::Message { used: n, class: 2, .. } if n == used));
        }
    }

    #[test]
    fn an_old_answer_ends_the_connection_unless_it_says_otherwise() {
        let old = b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx";
        let kept = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx";
        let all = messages(Reading::Http, true, &[old, kept]).unwrap();
        assert_eq!((all[0].1, all[1].1), (true, false));
    }
}
