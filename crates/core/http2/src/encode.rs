//! Encoder of header blocks that do not change the decoder's table, so that a block can be sent repeatedly.

use crate::{huffman, table::TABLE};

/// Appends a field, as an index if the static table contains it.
pub fn field(name: &str, value: &str, out: &mut Vec<u8>) {
    match TABLE.iter().position(|one| *one == (name, value)) {
        Some(at) => integer(at + 1, 7, 0x80, out),
        None => {
            self::name(name, out);
            string(value.as_bytes(), out);
        }
    }
}

/// Appends the beginning of a field, up to its value, which is a [`string`].
pub fn name(name: &str, out: &mut Vec<u8>) {
    match TABLE.iter().position(|(one, _)| *one == name) {
        Some(at) => integer(at + 1, 4, 0, out),
        None => {
            out.push(0);
            string(name.as_bytes(), out);
        }
    }
}

/// Appends a string without compression.
pub fn string(bytes: &[u8], out: &mut Vec<u8>) {
    length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Appends the length of an uncompressed string of `len` bytes.
pub fn length(len: usize, out: &mut Vec<u8>) {
    integer(len, 7, 0, out);
}

/// Appends a string in Huffman code, as servers do.
pub fn short_string(bytes: &[u8], out: &mut Vec<u8>) {
    let mut short = Vec::new();
    huffman::encode(bytes, &mut short);
    integer(short.len(), 7, 0x80, out);
    out.extend_from_slice(&short);
}

/// Appends an integer with a prefix of `bits` bits behind those of `first`: RFC 7541 section 5.1.
pub fn integer(value: usize, bits: u32, first: u8, out: &mut Vec<u8>) {
    let most = (1 << bits) - 1;
    if value < most {
        out.push(first | value as u8);
        return;
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
