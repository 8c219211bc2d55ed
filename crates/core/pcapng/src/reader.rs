//! Reader of a capture file in memory.

use crate::error::{Error, FormatProblem, Warnings};
use crate::interface::CaptureInterface;
use crate::parser::{Event, FileItem, Format, IntactPart, Parser, Record};

/// Reads a capture file in memory, record by record.
///
/// An iterator of records. After an error, which holds the offset of the first unreadable byte, it ends; everything
/// before that byte is intact. Blocks without packets are skipped; to see them, call [`next_item`](Self::next_item).
/// For a file in pieces see [`CaptureDecoder`](crate::CaptureDecoder).
#[derive(Clone, Debug)]
pub struct CaptureReader<'a> {
    file: &'a [u8],
    parser: Parser,
    format: Format,
    /// True until the header, which `new` has read, is returned as an item.
    at_header: bool,
    failed: bool,
}

impl<'a> CaptureReader<'a> {
    /// Reads the file header.
    ///
    /// # Errors
    /// The file has neither format, or ends in its header.
    pub fn new(file: &'a [u8]) -> Result<Self, Error> {
        let mut parser = Parser::with_any_layout();
        let step = parser.step(file)?;
        step.map_err(|short| parser.truncated(short, file.len()))?;
        let format = parser
            .format()
            .ok_or_else(|| parser.error(FormatProblem::TruncatedHeader))?;
        Ok(Self {
            file,
            parser,
            format,
            at_header: true,
            failed: false,
        })
    }

    /// Format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn has_other_layout(&self) -> bool {
        self.parser.has_other_layout()
    }

    /// Interfaces read so far, of all sections in order; a pcap file has one from the start.
    pub fn interfaces(&self) -> &[CaptureInterface] {
        self.parser.interfaces()
    }

    /// Number of bytes read so far. Everything before this offset is intact.
    pub fn offset(&self) -> u64 {
        self.parser.whole().offset
    }

    /// Extent of the part read so far; after an error, of the intact part of the file.
    pub fn whole(&self) -> IntactPart {
        self.parser.whole()
    }

    /// Anomalies found so far.
    pub fn warnings(&self) -> Warnings {
        self.parser.warnings()
    }

    /// Returns the next block, record or header, including the first header if called before the first record. Returns
    /// `None` at the end of the file and after an error.
    ///
    /// # Errors
    /// The file is damaged or truncated.
    pub fn next_item(&mut self) -> Result<Option<FileItem<'_>>, Error> {
        if self.at_header {
            self.at_header = false;
            self.parser = Parser::with_any_layout();
        }
        let start = self.offset();
        let Some(event) = self.step()? else {
            return Ok(None);
        };
        Ok(Some(FileItem {
            offset: start,
            bytes: &self.file[start as usize..self.offset() as usize],
            event,
            interfaces: self.interfaces(),
        }))
    }

    fn step(&mut self) -> Result<Option<Event<'a>>, Error> {
        let rest = &self.file[self.offset() as usize..];
        if self.failed || rest.is_empty() {
            return Ok(None);
        }
        let step = self
            .parser
            .step(rest)
            .and_then(|step| step.map_err(|short| self.parser.truncated(short, rest.len())));
        self.failed = step.is_err();
        step.map(|(event, _)| Some(event))
    }
}

impl<'a> Iterator for CaptureReader<'a> {
    type Item = Result<Record<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.at_header = false;
        loop {
            match self.step() {
                Ok(Some(Event::Record(record))) => return Some(Ok(record)),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl std::iter::FusedIterator for CaptureReader<'_> {}
