//! Header blocks: RFC 9204 with the static table only.

use wb_http2::{
    blocks::{BlockError, Coding, integer, string},
    encode,
};

/// Indices begin at 0: RFC 9204 appendix A.
#[rustfmt::skip]
const TABLE: [(&str, &str); 99] = [
    (":authority", ""), (":path", "/"), ("age", "0"), ("content-disposition", ""), ("content-length", "0"),
    ("cookie", ""), ("date", ""), ("etag", ""), ("if-modified-since", ""), ("if-none-match", ""),
    ("last-modified", ""), ("link", ""), ("location", ""), ("referer", ""), ("set-cookie", ""),
    (":method", "CONNECT"), (":method", "DELETE"), (":method", "GET"), (":method", "HEAD"),
    (":method", "OPTIONS"), (":method", "POST"), (":method", "PUT"), (":scheme", "http"), (":scheme", "https"),
    (":status", "103"), (":status", "200"), (":status", "304"), (":status", "404"), (":status", "503"),
    ("accept", "*/*"), ("accept", "application/dns-message"), ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"), ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"), ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"), ("cache-control", "max-age=2592000"), ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"), ("cache-control", "no-store"), ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"), ("content-encoding", "gzip"), ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"), ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"), ("content-type", "image/gif"),
    ("content-type", "image/jpeg"), ("content-type", "image/png"), ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"), ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"), ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"), ("vary", "accept-encoding"),
    ("vary", "origin"), ("x-content-type-options", "nosniff"), ("x-xss-protection", "1; mode=block"),
    (":status", "100"), (":status", "204"), (":status", "206"), (":status", "302"), (":status", "400"),
    (":status", "403"), (":status", "421"), (":status", "425"), (":status", "500"), ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"), ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"), ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"), ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"), ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"), ("access-control-request-method", "post"), ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"), ("early-data", "1"),
    ("expect-ct", ""), ("forwarded", ""), ("if-range", ""), ("origin", ""), ("purpose", "prefetch"),
    ("server", ""), ("timing-allow-origin", "*"), ("upgrade-insecure-requests", "1"), ("user-agent", ""),
    ("x-forwarded-for", ""), ("x-frame-options", "deny"), ("x-frame-options", "sameorigin"),
];

const NO_ROOM: BlockError = BlockError::Block("header block refers to the empty dynamic table");

/// The field encoding of HTTP/3.
#[derive(Debug)]
pub struct Qpack;

impl Coding for Qpack {
    const VERSION: &'static str = "HTTP/3 ";

    /// Reads the required insert count, which must be 0, and the base.
    fn begin(block: &mut &[u8]) -> Result<(), BlockError> {
        let needed = integer(block, 8)?;
        integer(block, 7)?;
        match needed {
            0 => Ok(()),
            _ => Err(NO_ROOM),
        }
    }

    fn field(block: &mut &[u8], _: bool, field: &mut Vec<u8>) -> Result<Option<usize>, BlockError> {
        let kind = block.first().copied().unwrap_or_default();
        let split = match kind {
            // Field by index.
            0xc0.. => {
                let (name, value) = known(integer(block, 6)?)?;
                field.extend_from_slice(name.as_bytes());
                field.extend_from_slice(value.as_bytes());
                return Ok(Some(name.len()));
            }
            // Name by index.
            0x50..=0x5f | 0x70..=0x7f => {
                let (name, _) = known(integer(block, 4)?)?;
                field.extend_from_slice(name.as_bytes());
                name.len()
            }
            0x20..=0x3f => {
                string(block, 3, field)?;
                field.len()
            }
            // Dynamic table.
            _ => return Err(NO_ROOM),
        };
        string(block, 7, field)?;
        Ok(Some(split))
    }
}

fn known(number: u32) -> Result<(&'static str, &'static str), BlockError> {
    let found = TABLE.get(number as usize).copied();
    found.ok_or(BlockError::Block(
        "header block refers to an unknown table entry",
    ))
}

/// Appends the prefix of a block, before all fields.
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends a field, as an index if the static table contains it.
pub fn field(name: &str, value: &str, out: &mut Vec<u8>) {
    match TABLE.iter().position(|one| *one == (name, value)) {
        Some(at) => encode::integer(at, 6, 0xc0, out),
        None => {
            self::name(name, out);
            encode::string(value.as_bytes(), out);
        }
    }
}

/// Appends the beginning of a field, up to its value, which is a [`encode::string`].
pub fn name(name: &str, out: &mut Vec<u8>) {
    match TABLE.iter().position(|(one, _)| *one == name) {
        Some(at) => encode::integer(at, 4, 0x50, out),
        None => {
            encode::integer(name.len(), 3, 0x20, out);
            out.extend_from_slice(name.as_bytes());
        }
    }
}
