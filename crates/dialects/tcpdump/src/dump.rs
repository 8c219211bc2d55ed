//! Bytes in hexadecimal, as text, or both.

use std::fmt::Write;

/// Prints lines of 16 bytes, each with `indent` and its offset.
pub(crate) fn append_hex(out: &mut String, bytes: &[u8], indent: &str, text: bool) {
    for (row, chunk) in bytes.chunks(16).enumerate() {
        let _ = write!(out, "{indent}0x{:04x}: ", row * 16);
        let begin = out.len();
        for pair in chunk.chunks(2) {
            out.push(' ');
            for byte in pair {
                let _ = write!(out, "{byte:02x}");
            }
        }
        if text {
            let width = out.len() - begin;
            out.extend(std::iter::repeat_n(' ', 42 - width));
            out.extend(chunk.iter().map(|byte| match byte {
                b'!'..=b'~' => char::from(*byte),
                _ => '.',
            }));
        }
    }
}

/// Prints bytes as text. Line ends remain; a carriage return before one is omitted, and so is one among
/// the last two bytes.
pub(crate) fn append_ascii(out: &mut String, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.push('\n');
    }
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\r' if at + 2 >= bytes.len() || bytes[at + 1] == b'\n' => {}
            b' '..=b'~' | b'\t' | b'\n' => out.push(char::from(*byte)),
            _ => out.push('.'),
        }
    }
}
