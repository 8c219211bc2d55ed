//! Requests as header blocks of HTTP/2 and HTTP/3.

use wb_http2::encode;
use wb_http3::qpack;
use wb_model::http::HttpVersion;

use super::{RequestSet, TextPiece, VariableTable, append_decimal, append_pieces, pieces_len};

/// A part of a header block.
#[derive(Clone, Debug)]
enum HeaderPart {
    Bytes(Vec<u8>),
    /// A value with parts from the data file.
    Value(Vec<TextPiece>),
    /// Length of a variable body.
    BodyLength,
}

/// A header block, except for its variable parts.
#[derive(Clone, Debug, Default)]
pub(super) struct EncodedHeaders {
    parts: Vec<HeaderPart>,
    /// The block and the body, if they have no variable parts.
    fixed: Option<(Vec<u8>, Vec<u8>)>,
}

impl EncodedHeaders {
    /// Encodes `fields` in their order, then the length of a body.
    ///
    /// # Errors
    /// Fails for a variable without a value.
    pub(super) fn new(
        version: HttpVersion,
        fields: &[(String, &str)],
        body: Option<&[TextPiece]>,
        table: &VariableTable,
    ) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut bytes = Vec::new();
        type Write = (fn(&str, &str, &mut Vec<u8>), fn(&str, &mut Vec<u8>));
        let (write, begin_field): Write = match version {
            HttpVersion::V3 => {
                qpack::begin(&mut bytes);
                (qpack::field, qpack::name)
            }
            _ => (encode::field, encode::name),
        };
        for (name, value) in fields {
            let pieces = table.cut_pieces(value.as_bytes())?;
            if pieces.iter().all(TextPiece::is_text) {
                write(name, value, &mut bytes);
                continue;
            }
            begin_field(name, &mut bytes);
            parts.push(HeaderPart::Bytes(std::mem::take(&mut bytes)));
            parts.push(HeaderPart::Value(pieces));
        }
        if let Some(body) = body {
            begin_field("content-length", &mut bytes);
            if body.iter().all(TextPiece::is_text) {
                append_length(pieces_len(body, None), &mut bytes);
            } else {
                parts.push(HeaderPart::Bytes(std::mem::take(&mut bytes)));
                parts.push(HeaderPart::BodyLength);
            }
        }
        parts.push(HeaderPart::Bytes(bytes));
        let mut made = Self { parts, fixed: None };
        let body = body.unwrap_or_default();
        let varies = |part: &HeaderPart| !matches!(part, HeaderPart::Bytes(_));
        if !made.parts.iter().any(varies) && body.iter().all(TextPiece::is_text) {
            let mut whole = (Vec::new(), Vec::new());
            made.write(body, None, &mut whole.0, &mut whole.1);
            made.fixed = Some(whole);
        }
        Ok(made)
    }

    fn write(
        &self,
        body_pieces: &[TextPiece],
        values: Option<&[String]>,
        block: &mut Vec<u8>,
        body: &mut Vec<u8>,
    ) {
        append_pieces(body_pieces, values, body);
        for part in &self.parts {
            match part {
                HeaderPart::Bytes(bytes) => block.extend_from_slice(bytes),
                HeaderPart::Value(pieces) => {
                    encode::length(pieces_len(pieces, values), block);
                    append_pieces(pieces, values, block);
                }
                HeaderPart::BodyLength => append_length(body.len(), block),
            }
        }
    }
}

/// Appends a number as a string.
fn append_length(n: usize, block: &mut Vec<u8>) {
    let digits = n.checked_ilog10().unwrap_or(0) as usize + 1;
    encode::length(digits, block);
    append_decimal(n, block);
}

impl RequestSet {
    /// Header block and body of request number `call` with the values of line `line`; built in `room` if they vary.
    pub(crate) fn encoded_request<'a>(
        &'a self,
        call: usize,
        line: u64,
        room: &'a mut (Vec<u8>, Vec<u8>),
    ) -> (&'a [u8], &'a [u8]) {
        let call = &self.calls[call];
        let Some(coded) = &call.coded else {
            return (&[], &[]);
        };
        if let Some((block, body)) = &coded.fixed {
            return (block, body);
        }
        room.0.clear();
        room.1.clear();
        let values = self.line_values(line);
        coded.write(&call.body_pieces, values, &mut room.0, &mut room.1);
        (&room.0, &room.1)
    }
}
