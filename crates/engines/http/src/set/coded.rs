//! Requests as header blocks of HTTP/2 and HTTP/3.

use wb_http2::encode;
use wb_http3::qpack;
use wb_model::http::HttpVersion;

use super::{Piece, Set, Table, decimal, put, span};

/// A part of a header block.
#[derive(Clone, Debug)]
enum Part {
    Bytes(Vec<u8>),
    /// A value with parts from the data file.
    Value(Vec<Piece>),
    /// Length of a variable body.
    BodyLength,
}

/// A header block, except for its variable parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Coded {
    parts: Vec<Part>,
    /// The block and the body, if they have no variable parts.
    fixed: Option<(Vec<u8>, Vec<u8>)>,
}

impl Coded {
    /// Encodes `fields` in their order, then the length of a body.
    ///
    /// # Errors
    /// Fails for a variable without a value.
    pub(super) fn new(
        version: HttpVersion,
        fields: &[(String, &str)],
        body: Option<&[Piece]>,
        table: &Table,
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
            let pieces = table.pieces(value.as_bytes())?;
            if pieces.iter().all(Piece::is_text) {
                write(name, value, &mut bytes);
                continue;
            }
            begin_field(name, &mut bytes);
            parts.push(Part::Bytes(std::mem::take(&mut bytes)));
            parts.push(Part::Value(pieces));
        }
        if let Some(body) = body {
            begin_field("content-length", &mut bytes);
            if body.iter().all(Piece::is_text) {
                length(span(body, None), &mut bytes);
            } else {
                parts.push(Part::Bytes(std::mem::take(&mut bytes)));
                parts.push(Part::BodyLength);
            }
        }
        parts.push(Part::Bytes(bytes));
        let mut made = Self { parts, fixed: None };
        let body = body.unwrap_or_default();
        let varies = |part: &Part| !matches!(part, Part::Bytes(_));
        if !made.parts.iter().any(varies) && body.iter().all(Piece::is_text) {
            let mut whole = (Vec::new(), Vec::new());
            made.write(body, None, &mut whole.0, &mut whole.1);
            made.fixed = Some(whole);
        }
        Ok(made)
    }

    fn write(
        &self,
        body_pieces: &[Piece],
        values: Option<&[String]>,
        block: &mut Vec<u8>,
        body: &mut Vec<u8>,
    ) {
        put(body_pieces, values, body);
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => block.extend_from_slice(bytes),
                Part::Value(pieces) => {
                    encode::length(span(pieces, values), block);
                    put(pieces, values, block);
                }
                Part::BodyLength => length(body.len(), block),
            }
        }
    }
}

/// Appends a number as a string.
fn length(n: usize, block: &mut Vec<u8>) {
    let digits = n.checked_ilog10().unwrap_or(0) as usize + 1;
    encode::length(digits, block);
    decimal(n, block);
}

impl Set {
    /// Header block and body of request number `call` with the values of line `line`; built in `room` if they vary.
    pub(crate) fn coded<'a>(
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
        let values = self.values(line);
        coded.write(&call.body_pieces, values, &mut room.0, &mut room.1);
        (&room.0, &room.1)
    }
}
