//! Streams read in pieces, and all that was seen of them.

use wb_http1::{End, Progress, Read, Reader, Sink};

/// A message as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) end: End,
    /// After so many bytes of the stream.
    pub(crate) at: usize,
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// What a stream led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) messages: Vec<Seen>,
    /// Interim responses that were passed over.
    pub(crate) interim: usize,
    /// Where requests waited for leave.
    pub(crate) leave: Vec<usize>,
    pub(crate) bad: bool,
    /// What the end of the stream makes of it.
    pub(crate) end: Option<u16>,
    pub(crate) within: bool,
    /// What was seen of a message without an end.
    pub(crate) rest: (Vec<u8>, Vec<u8>),
}

#[derive(Default)]
struct Kept {
    head: Vec<u8>,
    body: Vec<u8>,
    interim: usize,
}

impl Sink for Kept {
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

/// Reads `pieces`; message n answers HEAD if `heads[n]`. What is only counted must come to the same.
pub(crate) fn read(reader: &mut Reader, heads: &[bool], pieces: &[&[u8]]) -> Outcome {
    let (mut progress, mut counted) = (Progress::NEW, Progress::NEW);
    let (mut kept, mut out, mut base) = (Kept::default(), Outcome::default(), 0);
    let expect = |n: usize| heads.get(n).copied().unwrap_or(false);
    progress.expect(expect(0));
    counted.expect(expect(0));
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            // Two ways lead to the same: a sink that looks, and none with bodies that are counted.
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
                    // How much of it was seen depends on the pieces.
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

/// The stream cut at these places, in any order; those behind its end are none.
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
