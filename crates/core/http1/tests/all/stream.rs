//! Reads streams in pieces and records everything that was seen.

use wb_http1::{MessageEnd, MessageSink, Progress, Read, Reader};

/// A message that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) end: MessageEnd,
    /// Number of bytes of the stream up to the end of the message.
    pub(crate) at: usize,
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// Everything that a stream produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) messages: Vec<Seen>,
    /// Number of skipped interim responses.
    pub(crate) interim: usize,
    /// Positions at which requests wait for permission.
    pub(crate) leave: Vec<usize>,
    pub(crate) bad: bool,
    /// Status of a message that the end of the stream completes.
    pub(crate) end: Option<u16>,
    pub(crate) within: bool,
    /// Head and body of a message that has not ended.
    pub(crate) rest: (Vec<u8>, Vec<u8>),
}

#[derive(Default)]
struct Kept {
    head: Vec<u8>,
    body: Vec<u8>,
    interim: usize,
}

impl MessageSink for Kept {
    fn head(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
    }

    fn body(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        self.body.extend_from_slice(bytes);
    }

    fn interim(&mut self) {
        self.interim += 1;
        self.head.clear();
    }
}

/// Reads `pieces`; message n answers HEAD if `heads[n]`. Also checks that counting bodies gives the same result.
pub(crate) fn read(reader: &mut Reader, heads: &[bool], pieces: &[&[u8]]) -> Outcome {
    let (mut progress, mut counted) = (Progress::NEW, Progress::NEW);
    let (mut kept, mut out, mut base) = (Kept::default(), Outcome::default(), 0);
    let expect = |n: usize| heads.get(n).copied().unwrap_or(false);
    progress.expect(expect(0));
    counted.expect(expect(0));
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            // Both ways give the same result: a sink that sees everything, and no sink with bodies only counted.
            let countable = counted.countable().min(rest.len() as u64);
            let plain = if countable > 0 {
                counted.count(countable)
            } else {
                reader.read(&mut counted, rest)
            };
            let read = reader.read_with(&mut progress, rest, &mut kept);
            if countable == 0 {
                assert_eq!((plain, counted), (read, progress));
            } else if let Read::Message { .. } = plain {
                assert_eq!((plain, counted), (read, progress));
            } else {
                counted = progress;
            }
            match read {
                Read::More => {
                    base += rest.len();
                    break;
                }
                Read::Message { used, status, end } => {
                    base += used;
                    rest = &rest[used..];
                    out.messages.push(Seen {
                        status,
                        end,
                        at: base,
                        head: std::mem::take(&mut kept.head),
                        body: std::mem::take(&mut kept.body),
                    });
                    progress.expect(expect(out.messages.len()));
                    counted = progress;
                }
                Read::Expects { used } => {
                    base += used;
                    rest = &rest[used..];
                    out.leave.push(base);
                }
                Read::Bad => {
                    out.bad = true;
                    // The pieces determine how much of it was seen.
                    out.interim = kept.interim;
                    return out;
                }
            }
        }
    }
    Outcome {
        interim: kept.interim,
        end: progress.end(),
        within: progress.is_within(),
        rest: (kept.head, kept.body),
        ..out
    }
}

/// Cuts the stream at these places, in any order; places behind its end wrap around.
pub(crate) fn cut<'a>(stream: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<_> = places.iter().map(|at| at % (stream.len() + 1)).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    places.windows(2).map(|w| &stream[w[0]..w[1]]).collect()
}

/// The stream byte by byte.
pub(crate) fn bytes(stream: &[u8]) -> Vec<&[u8]> {
    stream.chunks(1).collect()
}
