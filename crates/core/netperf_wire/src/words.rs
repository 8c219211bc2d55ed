//! Access to the big-endian words of a message by number, and shared checks of fields.

use crate::error::{AnswerError, BadMessage, Refusal};
use crate::framer::Generation;
use crate::values::{MAX_SIZE, Name, TestLength, WireAddress, WireFamily};

/// Allowed values of a word with -1 for "default".
const SIZE: &str = "-1 (default) or 0 to 1 GiB";

/// A message of one of the two lengths. Words beyond its end read as zero.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    bytes: &'a [u8],
    pub(crate) generation: Generation,
}

impl<'a> Words<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, BadMessage> {
        let generation = Generation::of_len(bytes.len()).ok_or(BadMessage::Length(bytes.len()))?;
        Ok(Self { bytes, generation })
    }

    /// Returns the message as an answer, or the refusal.
    pub(crate) fn answer(bytes: &'a [u8]) -> Result<Self, AnswerError> {
        let words = Self::new(bytes)?;
        match Refusal::new(words.signed(1)) {
            Some(refusal) => Err(refusal.into()),
            None => Ok(words),
        }
    }

    /// Returns `N` bytes from `offset` on.
    pub(crate) fn bytes<const N: usize>(self, offset: usize) -> [u8; N] {
        self.bytes
            .get(offset..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .unwrap_or([0; N])
    }

    /// Returns the bytes from `offset` to the first zero byte, or to the end.
    pub(crate) fn text(self, offset: usize) -> &'a [u8] {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    pub(crate) fn name<const N: usize>(self, offset: usize) -> Name<N> {
        Name::from_wire(self.bytes(offset))
    }

    pub(crate) fn address(self, offset: usize) -> WireAddress {
        WireAddress(self.bytes(offset))
    }

    pub(crate) fn signed(self, word: usize) -> i32 {
        i32::from_be_bytes(self.bytes(4 * word))
    }

    pub(crate) fn unsigned(self, word: usize) -> u32 {
        u32::from_be_bytes(self.bytes(4 * word))
    }

    pub(crate) fn long(self, offset: usize) -> u64 {
        u64::from_be_bytes(self.bytes(offset))
    }

    pub(crate) fn float(self, word: usize) -> f32 {
        f32::from_be_bytes(self.bytes(4 * word))
    }

    /// Reads a switch: netperf writes 1 for on, 0 for off, and -1 for unknown.
    pub(crate) fn switch(self, word: usize) -> bool {
        self.signed(word) > 0
    }

    /// Reads a number that is negative if it is absent; all other values are harmless.
    pub(crate) fn optional(self, word: usize) -> Option<u32> {
        u32::try_from(self.signed(word)).ok()
    }

    /// Reads a size in bytes, -1 for the default.
    pub(crate) fn size(self, word: usize, field: &'static str) -> Result<Option<u32>, BadMessage> {
        match self.signed(word) {
            -1 => Ok(None),
            value => match u32::try_from(value) {
                Ok(size) if size <= MAX_SIZE => Ok(Some(size)),
                _ => Err(bad(field, value, SIZE)),
            },
        }
    }

    /// Reads the bytes of one call, -1 for the default. Zero is refused, because it would cause an endless loop.
    pub(crate) fn call_size(
        self,
        word: usize,
        field: &'static str,
    ) -> Result<Option<u32>, BadMessage> {
        match self.size(word, field)? {
            Some(0) => Err(bad(field, 0, "-1 (default) or 1 to 1 GiB")),
            size => Ok(size),
        }
    }

    /// Reads the bytes of one call in classic messages, with 0 or -1 for the default.
    pub(crate) fn classic_call_size(
        self,
        word: usize,
        field: &'static str,
    ) -> Result<Option<u32>, BadMessage> {
        Ok(self.size(word, field)?.filter(|size| *size > 0))
    }

    /// Reads a size without a default.
    pub(crate) fn amount(self, word: usize, field: &'static str) -> Result<u32, BadMessage> {
        match self.unsigned(word) {
            size if size <= MAX_SIZE => Ok(size),
            _ => Err(bad(field, self.signed(word), "0 to 1 GiB")),
        }
    }

    /// Reads a number that must not be negative.
    pub(crate) fn count(self, word: usize, field: &'static str) -> Result<u32, BadMessage> {
        self.optional(word)
            .ok_or_else(|| bad(field, self.signed(word), "0 or more"))
    }

    pub(crate) fn port(self, word: usize, field: &'static str) -> Result<u16, BadMessage> {
        u16::try_from(self.unsigned(word)).map_err(|_| bad(field, self.signed(word), "0 to 65535"))
    }

    pub(crate) fn family(self, word: usize, field: &'static str) -> Result<WireFamily, BadMessage> {
        WireFamily::from_wire(self.unsigned(word))
            .ok_or_else(|| bad(field, self.signed(word), "0 (any), 4, 6 or 7 (RDS)"))
    }

    pub(crate) fn length(self, word: usize) -> TestLength {
        TestLength::from_wire(self.signed(word))
    }
}

pub(crate) fn bad(field: &'static str, value: i32, allowed: &'static str) -> BadMessage {
    BadMessage::Field {
        field,
        value: value.into(),
        allowed,
    }
}

/// Builder of a message. Unset words are zero.
///
/// Words beyond the end of a short message are dropped; only fields of the newer generation are there.
pub(crate) struct WordWriter {
    bytes: Vec<u8>,
}

impl WordWriter {
    pub(crate) fn new(generation: Generation, kind: i32, second: i32) -> Self {
        let mut writer = Self {
            bytes: vec![0; generation.len()],
        };
        writer.signed(0, kind).signed(1, second);
        writer
    }

    /// Starts a request that binds the server to this CPU.
    pub(crate) fn request(generation: Generation, kind: i32, cpu: Option<u32>) -> Self {
        Self::new(generation, kind, or_minus_one(cpu))
    }

    pub(crate) fn bytes(&mut self, offset: usize, bytes: &[u8]) -> &mut Self {
        if let Some(place) = self.bytes.get_mut(offset..offset + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self
    }

    pub(crate) fn signed(&mut self, word: usize, value: i32) -> &mut Self {
        self.bytes(4 * word, &value.to_be_bytes())
    }

    pub(crate) fn unsigned(&mut self, word: usize, value: u32) -> &mut Self {
        self.bytes(4 * word, &value.to_be_bytes())
    }

    pub(crate) fn long(&mut self, offset: usize, value: u64) -> &mut Self {
        self.bytes(offset, &value.to_be_bytes())
    }

    pub(crate) fn float(&mut self, word: usize, value: f32) -> &mut Self {
        self.bytes(4 * word, &value.to_be_bytes())
    }

    pub(crate) fn switch(&mut self, word: usize, value: bool) -> &mut Self {
        self.unsigned(word, value.into())
    }

    pub(crate) fn optional(&mut self, word: usize, value: Option<u32>) -> &mut Self {
        self.signed(word, or_minus_one(value))
    }

    pub(crate) fn length(&mut self, word: usize, value: TestLength) -> &mut Self {
        self.signed(word, value.to_wire())
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Returns -1 for `None`. Numbers too large for a signed word become its maximum.
fn or_minus_one(value: Option<u32>) -> i32 {
    value.map_or(-1, |value| i32::try_from(value).unwrap_or(i32::MAX))
}
