//! Reads a capture file that lies in memory.

use crate::error::{Error, Problem, Warnings};
use crate::interface::Interface;
use crate::parser::{Event, Format, Item, Parser, Record, Whole};

/// Reads a capture file that lies in memory, record by record.
///
/// An iterator of records; after an error, which names the first byte that could not be read, it ends.
/// All before that byte is whole. Blocks that carry no packets are skipped; who wants them calls
/// [`next_item`](Self::next_item) instead. For a file that comes in pieces there is
/// [`Decoder`](crate::Decoder).
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    file: &'a [u8],
    parser: Parser,
    format: Format,
    /// The header, which was read at once, was not yet handed out.
    at_header: bool,
    failed: bool,
}

impl<'a> Reader<'a> {
    /// Looks at the file's header.
    ///
    /// # Errors
    /// If the file is of neither format, or ends in its header.
    pub fn new(file: &'a [u8]) -> Result<Self, Error> {
        let mut parser = Parser::with_any_layout();
        let step = parser.step(file)?;
        step.map_err(|short| parser.truncated(short, file.len()))?;
        let format = parser
            .format()
            .ok_or_else(|| parser.error(Problem::TruncatedHeader))?;
        Ok(Self {
            file,
            parser,
            format,
            at_header: true,
            failed: false,
        })
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn has_other_layout(&self) -> bool {
        self.parser.has_other_layout()
    }

    /// The interfaces met so far, of all sections in order; pcap has one from the start.
    pub fn interfaces(&self) -> &[Interface] {
        self.parser.interfaces()
    }

    /// Bytes read so far: everything before is whole.
    pub fn offset(&self) -> u64 {
        self.parser.whole().offset
    }

    /// How much was read so far; after an error, how much of the file is whole.
    pub fn whole(&self) -> Whole {
        self.parser.whole()
    }

    /// Oddities met so far.
    pub fn warnings(&self) -> Warnings {
        self.parser.warnings()
    }

    /// The next block, record or header; the first header, too, if it is called before the first record.
    /// None at the end of the file, and after an error.
    ///
    /// # Errors
    /// If the file is damaged or ends in the middle.
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, Error> {
        if self.at_header {
            self.at_header = false;
            self.parser = Parser::with_any_layout();
        }
        let start = self.offset();
        let Some(event) = self.step()? else {
            return Ok(None);
        };
        Ok(Some(Item {
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

impl<'a> Iterator for Reader<'a> {
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

impl std::iter::FusedIterator for Reader<'_> {}
