//! The way of bytes into a file: compressed or as they are, and room made for them.

use std::ops::Range;

use crate::OutputError;
use crate::compress::Compressor;
use crate::output::Output;
use crate::pool::Memory;
use crate::shelf::Shelf;

/// What bytes go through on their way into a file.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) compressor: Option<Compressor>,
    pub(crate) shelf: Shelf,
}

impl Way {
    /// Puts a place of a buffer, and makes room for it if that is wanted. `stores`: there is no time to
    /// compress. What is put as it is may be moved; then its place is another one.
    pub(crate) fn put_records(
        &mut self,
        output: &mut Output,
        memory: &mut Memory,
        place: &mut Range<usize>,
        stores: bool,
        gives_up: impl Fn() -> bool,
    ) -> Result<(), OutputError> {
        if self.compressor.is_some() {
            return self.put(output, &memory[place.clone()], stores, gives_up);
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
            if !short.error.is_full() || !self.shelf.make_room() {
                return Err(short.error);
            }
        }
    }

    /// Puts all of it, and makes room for it if that is wanted.
    pub(crate) fn put(
        &mut self,
        output: &mut Output,
        bytes: &[u8],
        stores: bool,
        gives_up: impl Fn() -> bool,
    ) -> Result<(), OutputError> {
        let mut rest = match &mut self.compressor {
            None => bytes,
            Some(compressor) if stores => compressor.stored(bytes),
            Some(compressor) => {
                let frame = compressor.frame(bytes);
                frame.map_err(|cause| OutputError::Write {
                    path: output.path().to_owned(),
                    cause,
                })?
            }
        };
        while let Err(short) = output.put(rest, &gives_up) {
            rest = &rest[short.written..];
            if !short.error.is_full() || !self.shelf.make_room() {
                return Err(short.error);
            }
        }
        Ok(())
    }

    /// Brings into a file what it holds back, and makes room for it if that is wanted.
    pub(crate) fn settle(&mut self, output: &mut Output) -> Result<(), OutputError> {
        loop {
            match output.settle() {
                Err(error) if error.is_full() && self.shelf.make_room() => {}
                settled => return settled,
            }
        }
    }
}
