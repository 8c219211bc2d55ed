//! Reads a capture file that comes in pieces.

use crate::details::Details;
use crate::error::{Error, Warnings};
use crate::interface::Interface;
use crate::parser::{Format, Item, Parser, Whole};

/// Reads a capture file from pieces of any size, in bounded memory.
///
/// Give it bytes, with [`push`](Self::push), or with [`space`](Self::space) and
/// [`filled`](Self::filled), which saves a copy; then call [`next_item`](Self::next_item) until it gives
/// none; then give more. When there are no more, call [`finish`](Self::finish) and `next_item` once more.
///
/// The memory it takes is bounded whatever the file says: so used, its buffer is at most twice the sum of
/// [`MAX_BLOCK`](crate::MAX_BLOCK) (with D-Bus, [`MAX_FRAME`](crate::MAX_FRAME)) and the largest piece, in practice a record and a piece; interfaces
/// take at most [`MAX_METADATA`](crate::MAX_METADATA). A length in the file reserves nothing.
///
/// ```
/// use wb_pcapng::{Decoder, Event, LINK_ETHERNET, PcapWriter};
///
/// let mut file = Vec::new();
/// PcapWriter::new(LINK_ETHERNET, &mut file).record(7, 60, &[0; 60], &mut file);
///
/// let (mut decoder, mut frames) = (Decoder::new(), 0);
/// for piece in file.chunks(10) {
///     decoder.push(piece);
///     while let Some(item) = decoder.next_item()? {
///         frames += u32::from(matches!(item.event, Event::Record(_)));
///     }
/// }
/// decoder.finish();
/// assert!(decoder.next_item()?.is_none());
/// assert_eq!(frames, 1);
/// # Ok::<(), wb_pcapng::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    parser: Parser,
    buffer: Vec<u8>,
    /// What was given and not yet read: `buffer[start..end]`.
    start: usize,
    end: usize,
    finished: bool,
    failed: Option<Error>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// At the start of a file.
    pub fn new() -> Self {
        Self {
            parser: Parser::new(),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            finished: false,
            failed: None,
        }
    }

    /// Starts at the beginning of a file, and infers the layout of pcap records from its first piece, which should be large.
    ///
    /// Some systems wrote longer record headers without another magic number (Red Hat 6.1, SuSE 6.3, Nokia).
    /// To [`new`](Self::new) such a file looks damaged behind its first record.
    pub fn with_any_layout() -> Self {
        Self {
            parser: Parser::with_any_layout(),
            ..Self::new()
        }
    }

    /// Room for the next piece, at least so many bytes; then say with [`filled`](Self::filled) how many
    /// came.
    pub fn space(&mut self, at_least: usize) -> &mut [u8] {
        if self.buffer.len() - self.end < at_least {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let len = self.end + at_least;
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes of the [`space`](Self::space) hold the next piece.
    ///
    /// # Panics
    /// If that is more than there was.
    pub fn filled(&mut self, len: usize) {
        assert!(
            len <= self.buffer.len() - self.end,
            "{len} bytes were said to fill less space"
        );
        // After an error nothing is read any more, so nothing is kept.
        if self.failed.is_none() {
            self.end += len;
        }
    }

    /// Takes the next piece of the file.
    pub fn push(&mut self, piece: &[u8]) {
        self.space(piece.len())[..piece.len()].copy_from_slice(piece);
        self.filled(piece.len());
    }

    /// The file ends here: what is left in the middle of a block is an error.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The next block, record or header. None if more bytes are needed, or at the end of a file that is
    /// [finished](Self::finish).
    ///
    /// # Errors
    /// If the file is damaged or ends in the middle; then again at every call.
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let rest = &self.buffer[self.start..self.end];
        if rest.is_empty() && !(self.finished && self.parser.format().is_none()) {
            return Ok(None);
        }
        let offset = self.parser.whole().offset;
        let error = match self.parser.step(rest) {
            Ok(Ok((event, len))) => {
                self.start += len;
                return Ok(Some(Item {
                    offset,
                    bytes: &rest[..len],
                    event,
                    interfaces: self.parser.interfaces(),
                }));
            }
            Ok(Err(_)) if !self.finished => return Ok(None),
            Ok(Err(short)) => self.parser.truncated(short, rest.len()),
            Err(error) => error,
        };
        self.failed = Some(error.clone());
        (self.start, self.end) = (0, 0);
        Err(error)
    }

    /// The format of the file, once its header was read.
    pub fn format(&self) -> Option<Format> {
        self.parser.format()
    }

    /// Returns true if libpcap knows the format: pcapng, and pcap but for dialects of some systems. Of a file with
    /// interfaces of several link types it reads none but the first.
    pub fn is_known_to_libpcap(&self) -> bool {
        self.parser.is_known_to_libpcap()
    }

    /// The interfaces met so far, of all sections in order.
    pub fn interfaces(&self) -> &[Interface] {
        self.parser.interfaces()
    }

    /// How much was read so far; after an error, how much of the file is whole.
    pub fn whole(&self) -> Whole {
        self.parser.whole()
    }

    /// Oddities met so far.
    pub fn warnings(&self) -> Warnings {
        self.parser.warnings()
    }

    /// Kinds of information met so far beyond frames.
    pub fn details(&self) -> Details {
        self.parser.details()
    }

    /// Bytes that were given and not yet read: part of a block, if [`next_item`](Self::next_item) gave
    /// none.
    pub fn pending(&self) -> usize {
        self.end - self.start
    }

    /// Bytes of memory that the decoder holds.
    pub fn memory(&self) -> usize {
        self.buffer.capacity() + self.parser.memory()
    }
}
