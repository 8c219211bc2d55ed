//! Access to the big-endian words of a message by number, and shared checks of fields.
//!
//! [`wire_table`] declares the place and the form of each field once, for reading and for writing. A form is a pair of
//! methods with the same name, one of [`Words`] and one of [`WordWriter`]. A form that checks its value also takes
//! netperf's name of the field.

use crate::error::{AnswerError, BadMessage, Refusal};
use crate::flags::{Features, Flags};
use crate::framer::Generation;
use crate::values::{
    DataDirection, MAX_SIZE, Name, TestLength, WireAddress, WireFamily, WireSocketType,
};

/// Declares the fields of a message: `name: form(place)` or `name: form(place, name in netperf)`. The place is the
/// number of a word, or an offset in bytes for [`long`](Words::long) and for arrays of bytes. Fields that are not in the
/// table come from the value behind it. A parameter behind the type is a name for the table.
macro_rules! wire_table {
    ($type:ident $(($parameter:ident))? {
        $($field:ident: $form:ident($place:expr $(, $name:expr)?),)*
    } $(..$rest:expr)?) => {
        impl $type {
            fn read_table(
                words: $crate::words::Words<'_>,
                $($parameter: &'static str,)?
            ) -> Result<Self, $crate::error::BadMessage> {
                Ok(Self {
                    $($field: $crate::words::read_field!(words.$form($place $(, $name)?)),)*
                    $(..$rest)?
                })
            }

            fn write_table(&self, writer: &mut $crate::words::WordWriter) {
                $(writer.$form($place, self.$field);)*
            }
        }
    };
}

/// Reads a field in a function that returns a `Result`.
macro_rules! read_field {
    ($words:ident.$form:ident($place:expr)) => {
        $words.$form($place)
    };
    ($words:ident.$form:ident($place:expr, $name:expr)) => {
        $words.$form($place, $name)?
    };
}

pub(crate) use {read_field, wire_table};

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

    pub(crate) fn signed_long(self, offset: usize) -> i64 {
        i64::from_be_bytes(self.bytes(offset))
    }

    /// Reads a number, 2⁶⁴ − 1 for `None`.
    pub(crate) fn optional_long(self, offset: usize) -> Option<u64> {
        Some(self.long(offset)).filter(|value| *value != u64::MAX)
    }

    pub(crate) fn flags(self, word: usize) -> Flags {
        Flags(self.unsigned(word))
    }

    pub(crate) fn features(self, word: usize) -> Features {
        Features(self.unsigned(word))
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

    /// Reads a number, 0 if it is negative.
    pub(crate) fn or_zero(self, word: usize) -> u32 {
        self.optional(word).unwrap_or(0)
    }

    /// Reads a number that short messages do not have.
    pub(crate) fn late_optional(self, word: usize) -> Option<u32> {
        match self.generation {
            Generation::Words64 => None,
            Generation::Words164 => self.optional(word),
        }
    }

    /// Reads a name that short messages do not have.
    pub(crate) fn late_name<const N: usize>(self, offset: usize) -> Name<N> {
        match self.generation {
            Generation::Words64 => Name::NONE,
            Generation::Words164 => self.name(offset),
        }
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

    pub(crate) fn socket_type(
        self,
        word: usize,
        field: &'static str,
    ) -> Result<WireSocketType, BadMessage> {
        let allowed = "1 (stream), 2 (datagram), 3 (dccp) or 4 (seqpacket)";
        WireSocketType::from_wire(self.unsigned(word))
            .ok_or_else(|| bad(field, self.signed(word), allowed))
    }

    pub(crate) fn protocol(self, word: usize, field: &'static str) -> Result<u8, BadMessage> {
        u8::try_from(self.unsigned(word)).map_err(|_| bad(field, self.signed(word), "0 to 255"))
    }

    pub(crate) fn direction(
        self,
        word: usize,
        field: &'static str,
    ) -> Result<DataDirection, BadMessage> {
        let allowed = "0 (connect), 2 (server sends), 4 (server receives) or 6 (both)";
        DataDirection::from_wire(self.unsigned(word))
            .ok_or_else(|| bad(field, self.signed(word), allowed))
    }

    pub(crate) fn length(self, word: usize) -> TestLength {
        TestLength::from_wire(self.signed(word))
    }
}

fn bad(field: &'static str, value: i32, allowed: &'static str) -> BadMessage {
    BadMessage::Field {
        field,
        value: value.into(),
        allowed,
    }
}

/// Defines writers of values that occupy one word.
macro_rules! word_forms {
    ($($form:ident($value:ident: $type:ty) = $word:expr;)*) => {$(
        pub(crate) fn $form(&mut self, word: usize, $value: $type) -> &mut Self {
            self.unsigned(word, $word)
        }
    )*};
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

    pub(crate) fn signed_long(&mut self, offset: usize, value: i64) -> &mut Self {
        self.bytes(offset, &value.to_be_bytes())
    }

    pub(crate) fn optional_long(&mut self, offset: usize, value: Option<u64>) -> &mut Self {
        self.long(offset, value.unwrap_or(u64::MAX))
    }

    pub(crate) fn float(&mut self, word: usize, value: f32) -> &mut Self {
        self.bytes(4 * word, &value.to_be_bytes())
    }

    word_forms! {
        switch(value: bool) = value.into();
        optional(value: Option<u32>) = or_minus_one(value).cast_unsigned();
        size(value: Option<u32>) = or_minus_one(value).cast_unsigned();
        call_size(value: Option<u32>) = or_minus_one(value).cast_unsigned();
        classic_call_size(value: Option<u32>) = value.unwrap_or(0);
        amount(value: u32) = value;
        count(value: u32) = value;
        or_zero(value: u32) = value;
        flags(value: Flags) = value.0;
        features(value: Features) = value.0;
        length(value: TestLength) = value.to_wire().cast_unsigned();
        port(value: u16) = value.into();
        family(value: WireFamily) = value.to_wire();
        socket_type(value: WireSocketType) = value.to_wire();
        protocol(value: u8) = value.into();
        direction(value: DataDirection) = value.to_wire();
    }

    pub(crate) fn address(&mut self, offset: usize, value: WireAddress) -> &mut Self {
        self.bytes(offset, &value.0)
    }

    pub(crate) fn late_optional(&mut self, word: usize, value: Option<u32>) -> &mut Self {
        if self.is_long() {
            self.optional(word, value);
        }
        self
    }

    pub(crate) fn late_name<const N: usize>(&mut self, offset: usize, value: Name<N>) -> &mut Self {
        if self.is_long() {
            self.bytes(offset, value.padded());
        }
        self
    }

    /// Returns true if the message has 164 words.
    fn is_long(&self) -> bool {
        self.bytes.len() == Generation::Words164.len()
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Returns -1 for `None`. Numbers too large for a signed word become its maximum.
fn or_minus_one(value: Option<u32>) -> i32 {
    value.map_or(-1, |value| i32::try_from(value).unwrap_or(i32::MAX))
}
