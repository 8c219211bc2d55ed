//! Reader: finds the messages in a byte stream that arrives in pieces, with ten bytes of state.

use wb_http1::{Interim, MessageEnd, Progress, Read};

/// Format of received messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every segment with data is a message.
    Segment,
    /// Messages of this length in bytes, at least 1.
    Fixed(u32),
    /// HTTP/1.1 and HTTP/1.0 messages: RFC 9112 section 6, by Content-Length, chunked, or (responses only) until the
    /// end of the stream. Only the parts that delimit messages are interpreted.
    Http,
    /// One message that ends with the stream.
    UntilEnd,
    /// UDP: each datagram is an SNMPv2c response with the request id of its request. With TCP like
    /// [`Reading::Segment`].
    Snmp {
        /// Offset of the request id in the request.
        id_at: u32,
    },
}

#[derive(Debug)]
pub(crate) struct StreamReader {
    kind: Reading,
    is_response: bool,
    http: wb_http1::Reader,
}

impl StreamReader {
    /// Creates a reader of requests, or of responses if `asked`, the start of the request, is given.
    pub(crate) fn new(kind: Reading, asked: Option<&[u8]>) -> Self {
        let http = match asked {
            None => wb_http1::Reader::requests(),
            Some(asked) if asked.starts_with(b"HEAD ") => {
                wb_http1::Reader::responses(Interim::Skipped).to_head()
            }
            Some(_) => wb_http1::Reader::responses(Interim::Skipped),
        };
        Self {
            kind,
            is_response: asked.is_some(),
            http,
        }
    }

    /// Reads from in-order bytes, at least one, up to the end of a message.
    #[inline]
    pub(crate) fn read(&mut self, progress: &mut Progress, bytes: &[u8]) -> Read {
        self.read_with(progress, bytes, &mut ())
    }

    /// Like `read`, and passes the contents of an HTTP message to `sink`.
    #[inline]
    pub(crate) fn read_with(
        &mut self,
        progress: &mut Progress,
        bytes: &[u8],
        sink: &mut impl wb_http1::MessageSink,
    ) -> Read {
        if self.kind == Reading::Http {
            return self.http.read_with(progress, bytes, sink);
        }
        if matches!(self.kind, Reading::Segment | Reading::Snmp { .. }) {
            // Same as dperf: the first digit of the status, regardless of where a segment starts.
            let class = match bytes.get(9) {
                Some(digit) if self.is_response && bytes.len() > 18 => digit.wrapping_sub(b'0'),
                _ => 0,
            };
            return Read::Message {
                used: bytes.len(),
                status: u16::from(class) * 100,
                end: MessageEnd::default(),
            };
        }
        self.begin(progress);
        let n = progress.countable().min(bytes.len() as u64);
        progress.count(n)
    }

    /// Number of following bytes that must only be counted, not read.
    #[inline]
    pub(crate) fn countable(&self, progress: &Progress) -> u64 {
        let mut progress = *progress;
        self.begin(&mut progress);
        progress.countable()
    }

    /// Counts `n` bytes as read, at most [`StreamReader::countable`].
    #[inline]
    pub(crate) fn count(&self, progress: &mut Progress, n: u64) -> Read {
        self.begin(progress);
        progress.count(n)
    }

    /// Handles the end of the stream. Returns the status if it completes a message.
    pub(crate) fn end(&self, progress: &Progress) -> Option<u16> {
        let mut progress = *progress;
        if self.kind == Reading::UntilEnd {
            self.begin(&mut progress);
        }
        progress.end()
    }

    /// Starts a message without a head, which needs no first byte.
    #[inline]
    fn begin(&self, progress: &mut Progress) {
        match self.kind {
            Reading::Fixed(len) if !progress.is_within() => *progress = Progress::within_body(len),
            Reading::UntilEnd => *progress = Progress::until_end(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All messages of a stream cut into pieces: status and end.
    fn messages(kind: Reading, asked: Option<&[u8]>, pieces: &[&[u8]]) -> Vec<(u16, usize)> {
        let mut reader = StreamReader::new(kind, asked);
        let (mut progress, mut all, mut base) = (Progress::NEW, Vec::new(), 0);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                match reader.read(&mut progress, rest) {
                    Read::More => {
                        base += rest.len();
                        break;
                    }
                    Read::Message { used, status, .. } => {
                        base += used;
                        all.push((status, base));
                        rest = &rest[used..];
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        all
    }

    #[test]
    fn fixed_messages_are_counted() {
        let all = messages(Reading::Fixed(3), Some(b"x"), &[b"ab", b"cdefg", b"hi"]);
        assert_eq!(all, [(0, 3), (0, 6), (0, 9)]);
        let reader = StreamReader::new(Reading::Fixed(3), None);
        let mut progress = Progress::NEW;
        assert_eq!(reader.countable(&progress), 3);
        assert_eq!(reader.count(&mut progress, 2), Read::More);
        assert_eq!(reader.countable(&progress), 1);
        assert_eq!(reader.end(&progress), None);
    }

    #[test]
    fn a_segment_is_a_message_with_the_class_of_its_status() {
        let full = b"HTTP/1.1 404 Not Found\r\n";
        let all = messages(Reading::Segment, Some(b"GET /"), &[full, &full[..18]]);
        assert_eq!(all, [(400, 24), (0, 42)]);
        assert_eq!(messages(Reading::Segment, None, &[full]), [(0, 24)]);
    }

    #[test]
    fn what_ends_with_the_stream_needs_no_byte() {
        let reader = StreamReader::new(Reading::UntilEnd, None);
        assert_eq!(reader.end(&Progress::NEW), Some(0));
        assert_eq!(reader.countable(&Progress::NEW), u64::MAX);
        assert!(messages(Reading::UntilEnd, None, &[b"ab", b"c"]).is_empty());
    }

    #[test]
    fn answers_to_head_have_no_body() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let all = messages(
            Reading::Http,
            Some(b"HEAD / HTTP/1.1\r\n"),
            &[answer, answer],
        );
        assert_eq!(all, [(200, answer.len()), (200, 2 * answer.len())]);
    }
}
