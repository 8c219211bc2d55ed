//! Path of captured bytes into a file: directly, through a compressor or with O_DIRECT; frees disk space if needed.

use std::ops::Range;

use crate::OutputError;
use crate::compress::Compressor;
use crate::output::Output;
use crate::pool::PageMemory;
use crate::retention::FileRetention;

/// Processing of bytes on their way into a file.
#[derive(Debug)]
pub(crate) struct OutputPipe {
    /// Files are compressed.
    pub(crate) compresses: bool,
    pub(crate) retention: FileRetention,
}

impl OutputPipe {
    /// Writes records of a buffer, and frees disk space if configured. `stores`: there is no time to compress.
    /// Uncompressed records may be moved; their position then changes.
    pub(crate) fn put_records(
        &mut self,
        output: &mut Output,
        memory: &mut PageMemory,
        place: &mut Range<usize>,
        stores: bool,
        gives_up: impl Fn() -> bool,
    ) -> Result<(), OutputError> {
        if self.compresses {
            return self.write_all(output, &memory[place.clone()], stores, gives_up);
        }
        let mut done = 0;
        loop {
            let mut rest = place.start + done..place.end;
            let result = output.put_in_place(memory, &mut rest, &gives_up);
            *place = rest.start - done..rest.end;
            let Err(short) = result else {
                return Ok(());
            };
            done += short.written;
            if !short.error.is_full() || !self.retention.make_room() {
                return Err(short.error);
            }
        }
    }

    /// Writes all bytes, and frees disk space if configured.
    pub(crate) fn write_all(
        &mut self,
        output: &mut Output,
        bytes: &[u8],
        stores: bool,
        gives_up: impl Fn() -> bool,
    ) -> Result<(), OutputError> {
        let Some(mut compressor) = output.compressor.take() else {
            return self.put_plain(output, bytes, gives_up);
        };
        let packed = match stores {
            true => Ok(compressor.store_piece(bytes)),
            false => compressor.compress_piece(bytes),
        };
        let result = match packed {
            Ok(packed) => self.put_plain(output, packed, gives_up),
            Err(cause) => Err(OutputError::Write {
                path: output.path().to_owned(),
                cause,
            }),
        };
        output.compressor = Some(compressor);
        result
    }

    /// Writes the end of a compressed file.
    pub(crate) fn put_end(
        &mut self,
        output: &mut Output,
        gives_up: impl Fn() -> bool,
    ) -> Result<(), OutputError> {
        let end = output.compressor.as_ref().map(Compressor::file_end);
        end.map_or(Ok(()), |end| self.put_plain(output, end, gives_up))
    }

    fn put_plain(
        &mut self,
        output: &mut Output,
        mut rest: &[u8],
        gives_up: impl Fn() -> bool,
    ) -> Result<(), OutputError> {
        while let Err(short) = output.write_all(rest, &gives_up) {
            rest = &rest[short.written..];
            if !short.error.is_full() || !self.retention.make_room() {
                return Err(short.error);
            }
        }
        Ok(())
    }

    /// Writes held-back data to a file, and frees disk space if configured.
    pub(crate) fn write_held_back(&mut self, output: &mut Output) -> Result<(), OutputError> {
        loop {
            match output.write_held_back() {
                Err(error) if error.is_full() && self.retention.make_room() => {}
                settled => return settled,
            }
        }
    }
}
