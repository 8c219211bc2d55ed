//! Reader of a capture file in pieces.

use crate::details::Details;
use crate::error::{Error, Warnings};
use crate::interface::CaptureInterface;
use crate::parser::{FileItem, Format, IntactPart, Parser};

/// Reads a capture file from pieces of any size, in bounded memory.
///
/// Pass bytes with [`push`](Self::push), or with [`space`](Self::space) and [`filled`](Self::filled), which saves a
/// copy. Then call [`next_item`](Self::next_item) until it returns `None`, and pass more. At the end of the file call
/// [`finish`](Self::finish) and `next_item` once more.
///
/// Memory is bounded whatever the file contains. The buffer holds at most twice the sum of
/// [`MAX_BLOCK`](crate::MAX_BLOCK) (with D-Bus, [`MAX_FRAME`](crate::MAX_FRAME)) and the largest piece, in practice one
/// record and one piece; interfaces take at most [`MAX_METADATA`](crate::MAX_METADATA). A length in the file reserves
/// no memory.
///
/// ```
/// use wb_pcapng::{CaptureDecoder, Event, LINK_ETHERNET, PcapWriter};
///
/// let mut file = Vec::new();
/// PcapWriter::new(LINK_ETHERNET, &mut file).record(7, 60, &[0; 60], &mut file);
///
/// let (mut decoder, mut frames) = (CaptureDecoder::new(), 0);
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
pub struct CaptureDecoder {
    parser: Parser,
    buffer: Vec<u8>,
    /// Bytes passed and not yet read: `buffer[start..end]`.
    start: usize,
    end: usize,
    finished: bool,
    failed: Option<Error>,
}

impl Default for CaptureDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl CaptureDecoder {
    /// Creates a decoder for the start of a file.
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

    /// Creates a decoder that infers the layout of pcap records from the first piece of a file, which should be large.
    ///
    /// Some systems wrote longer record headers without another magic number (Red Hat 6.1, SuSE 6.3, Nokia). With
    /// [`new`](Self::new) such a file appears damaged after its first record.
    pub fn with_any_layout() -> Self {
        Self {
            parser: Parser::with_any_layout(),
            ..Self::new()
        }
    }

    /// Returns room for the next piece, at least `at_least` bytes. Then call [`filled`](Self::filled) with the number
    /// of bytes received.
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

    /// Appends the first `len` bytes of [`space`](Self::space) as the next piece.
    ///
    /// # Panics
    /// `len` is larger than the space.
    pub fn filled(&mut self, len: usize) {
        assert!(
            len <= self.buffer.len() - self.end,
            "{len} bytes were said to fill less space"
        );
        // After an error no bytes are read, so none are kept.
        if self.failed.is_none() {
            self.end += len;
        }
    }

    /// Appends the next piece of the file.
    pub fn push(&mut self, piece: &[u8]) {
        self.space(piece.len())[..piece.len()].copy_from_slice(piece);
        self.filled(piece.len());
    }

    /// Marks the end of the file: an incomplete block is an error then.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns the next block, record or header. Returns `None` if more bytes are needed, or at the end of a
    /// [finished](Self::finish) file.
    ///
    /// # Errors
    /// The file is damaged or truncated. All further calls return the same error.
    pub fn next_item(&mut self) -> Result<Option<FileItem<'_>>, Error> {
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
                return Ok(Some(FileItem {
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

    /// Format of the file; `None` before its header.
    pub fn format(&self) -> Option<Format> {
        self.parser.format()
    }

    /// Returns true if libpcap can read the format: pcapng, and pcap without the dialects of some systems. Of a file
    /// with interfaces of several link types, libpcap reads only the first.
    pub fn is_known_to_libpcap(&self) -> bool {
        self.parser.is_known_to_libpcap()
    }

    /// Interfaces read so far, of all sections in order.
    pub fn interfaces(&self) -> &[CaptureInterface] {
        self.parser.interfaces()
    }

    /// Extent of the part read so far; after an error, of the intact part of the file.
    pub fn whole(&self) -> IntactPart {
        self.parser.whole()
    }

    /// Anomalies found so far.
    pub fn warnings(&self) -> Warnings {
        self.parser.warnings()
    }

    /// Kinds of information besides frames found so far.
    pub fn details(&self) -> Details {
        self.parser.details()
    }

    /// Number of bytes passed and not yet read: part of a block, if [`next_item`](Self::next_item) returned `None`.
    pub fn pending(&self) -> usize {
        self.end - self.start
    }

    /// Memory of the decoder, in bytes.
    pub fn memory(&self) -> usize {
        self.buffer.capacity() + self.parser.memory()
    }
}
