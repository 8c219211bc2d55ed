//! Decoder of header blocks: RFC 7541 with an empty dynamic table, and RFC 9113 section 8 for the fields. HTTP/3
//! encodes fields differently and has the same rules for them.

use std::marker::PhantomData;

use crate::{huffman, table::TABLE};

/// Facts from the head of a response that a load test needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseInfo {
    /// Status; 0 in trailers.
    pub status: u16,
    /// Required length of the body, in bytes.
    pub length: Option<u64>,
}

/// Error in a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The block cannot be decoded; the connection is unusable.
    Block(&'static str),
    /// The block is not the head of a response.
    Answer(&'static str),
}

/// Position of a block in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockPlace {
    /// Before the body.
    Head,
    /// Behind the body.
    Trailers,
}

/// Encoding of fields.
pub trait Coding {
    /// Beginning of the text form of a head.
    const VERSION: &'static str;

    /// Takes the prefix of a block, before all fields.
    ///
    /// # Errors
    /// The prefix is malformed.
    fn begin(block: &mut &[u8]) -> Result<(), BlockError> {
        let _ = block;
        Ok(())
    }

    /// Takes the next field of a non-empty block: appends name and value, and returns the length of the name, or `None`
    /// if it was an instruction instead of a field. `first` is true before the first field.
    ///
    /// # Errors
    /// The field cannot be decoded.
    fn field(
        block: &mut &[u8],
        first: bool,
        field: &mut Vec<u8>,
    ) -> Result<Option<usize>, BlockError>;
}

/// The encoding of RFC 7541.
#[derive(Debug)]
pub struct Hpack;

impl Coding for Hpack {
    const VERSION: &'static str = "HTTP/2 ";

    fn field(
        block: &mut &[u8],
        first: bool,
        field: &mut Vec<u8>,
    ) -> Result<Option<usize>, BlockError> {
        match block.first() {
            Some(0x80..) => {
                let (name, value) = known(integer(block, 7)?)?;
                field.extend_from_slice(name.as_bytes());
                field.extend_from_slice(value.as_bytes());
                Ok(Some(name.len()))
            }
            // A new size of the table; only 0 is allowed.
            Some(0x20..=0x3f) => match integer(block, 5)? {
                0 if first => Ok(None),
                _ => Err(BlockError::Block("header table larger than allowed")),
            },
            // A field to be added to the table (bits 01) does not fit there.
            kind => {
                let bits = if kind.is_some_and(|b| b & 0x40 == 0) {
                    4
                } else {
                    6
                };
                match integer(block, bits)? {
                    0 => string(block, 7, field)?,
                    number => {
                        let (name, _) = known(number)?;
                        field.extend_from_slice(name.as_bytes());
                    }
                }
                let split = field.len();
                string(block, 7, field)?;
                Ok(Some(split))
            }
        }
    }
}

/// Decodes the header blocks of many connections. Remembers the last one, because most responses of a load test are
/// equal.
#[derive(Debug)]
pub struct HeaderDecoder<C = Hpack> {
    last: Vec<u8>,
    answer: ResponseInfo,
    /// One field: its name, followed by its value.
    field: Vec<u8>,
    coding: PhantomData<C>,
}

impl<C> Default for HeaderDecoder<C> {
    fn default() -> Self {
        Self {
            last: Vec::new(),
            answer: ResponseInfo::default(),
            field: Vec::new(),
            coding: PhantomData,
        }
    }
}

impl<C: Coding> HeaderDecoder<C> {
    /// Creates a decoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a block, and appends it to `text` in text form.
    ///
    /// # Errors
    /// The block cannot be decoded, or is not the head of a response.
    #[inline]
    pub fn read(
        &mut self,
        block: &[u8],
        place: BlockPlace,
        text: Option<&mut Vec<u8>>,
    ) -> Result<ResponseInfo, BlockError> {
        let plain = text.is_none() && place == BlockPlace::Head;
        if plain && !block.is_empty() && block == self.last {
            return Ok(self.answer);
        }
        let answer = self.all(block, place, text)?;
        if plain {
            self.last.clear();
            self.last.extend_from_slice(block);
            self.answer = answer;
        }
        Ok(answer)
    }

    fn all(
        &mut self,
        mut block: &[u8],
        place: BlockPlace,
        mut text: Option<&mut Vec<u8>>,
    ) -> Result<ResponseInfo, BlockError> {
        let mut answer = ResponseInfo::default();
        let (mut fields, mut regular) = (0, false);
        C::begin(&mut block)?;
        while !block.is_empty() {
            self.field.clear();
            let Some(split) = C::field(&mut block, fields == 0, &mut self.field)? else {
                continue;
            };
            fields += 1;
            let (name, value) = self.field.split_at(split);
            judge(&mut answer, name, value, (place, &mut regular))?;
            if let Some(text) = &mut text {
                match name {
                    b":status" => text.extend_from_slice(C::VERSION.as_bytes()),
                    _ => {
                        text.extend_from_slice(name);
                        text.extend_from_slice(b": ");
                    }
                }
                text.extend_from_slice(value);
                text.extend_from_slice(b"\r\n");
            }
        }
        if let Some(text) = text {
            text.extend_from_slice(b"\r\n");
        }
        match (place, answer.status) {
            (BlockPlace::Head, 0) => Err(BlockError::Answer("missing :status")),
            _ => Ok(answer),
        }
    }
}

/// Checks a field: RFC 9113 sections 8.2 and 8.3.
fn judge(
    answer: &mut ResponseInfo,
    name: &[u8],
    value: &[u8],
    (place, regular): (BlockPlace, &mut bool),
) -> Result<(), BlockError> {
    let wrong = |what| Err(BlockError::Answer(what));
    if value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')) {
        return wrong("header value with CR, LF or NUL");
    }
    if name.first() == Some(&b':') {
        let digits: Option<&[u8; 3]> = value.try_into().ok();
        let status = digits
            .filter(|d| d.iter().all(u8::is_ascii_digit))
            .map(|d| d.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0')))
            .filter(|status| (100..=599).contains(status));
        let fits =
            name == b":status" && place == BlockPlace::Head && !*regular && answer.status == 0;
        return match (fits, status) {
            (true, Some(status)) => {
                answer.status = status;
                Ok(())
            }
            (true, None) => wrong("status is not a number from 100 to 599"),
            (false, _) => wrong("misplaced pseudo-header"),
        };
    }
    *regular = true;
    let is_token =
        |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(b);
    if name.is_empty() || !name.iter().all(is_token) {
        return wrong("invalid header name");
    }
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            wrong("connection-specific header (HTTP/1.1 only)")
        }
        b"content-length" if place == BlockPlace::Head => {
            let digits = std::str::from_utf8(value).ok();
            let digits = digits.filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
            let length: Option<u64> = digits.and_then(|d| d.parse().ok());
            if length.is_none() || answer.length.is_some_and(|before| Some(before) != length) {
                return wrong("invalid or repeated Content-Length");
            }
            answer.length = length;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn known(number: u32) -> Result<(&'static str, &'static str), BlockError> {
    let at = (number as usize).checked_sub(1);
    let found = at.and_then(|at| TABLE.get(at)).copied();
    found.ok_or(BlockError::Block(
        "header block refers to the empty dynamic table",
    ))
}

/// Takes an integer with a prefix of `bits` bits: RFC 7541 section 5.1.
///
/// # Errors
/// The integer is incomplete or too large.
pub fn integer(block: &mut &[u8], bits: u32) -> Result<u32, BlockError> {
    let cut = BlockError::Block("truncated header block");
    let (first, mut rest) = block.split_first().ok_or(cut)?;
    let most = (1_u32 << bits) - 1;
    let mut value = u32::from(*first) & most;
    if value == most {
        let mut shift = 0;
        loop {
            let (byte, behind) = rest.split_first().ok_or(cut)?;
            rest = behind;
            if shift > 21 {
                return Err(BlockError::Block("integer too large in header block"));
            }
            value += u32::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// Takes a string with a length prefix of `bits` bits, and appends the decoded string: RFC 7541 section 5.2.
///
/// # Errors
/// The string is incomplete or has an invalid code.
pub fn string(block: &mut &[u8], bits: u32, out: &mut Vec<u8>) -> Result<(), BlockError> {
    let short = block.first().is_some_and(|first| first & (1 << bits) != 0);
    let len = integer(block, bits)? as usize;
    let (text, rest) = block
        .split_at_checked(len)
        .ok_or(BlockError::Block("truncated header block"))?;
    *block = rest;
    match short {
        true if huffman::decode(text, out) => Ok(()),
        true => Err(BlockError::Block("invalid Huffman code in header block")),
        false => {
            out.extend_from_slice(text);
            Ok(())
        }
    }
}
