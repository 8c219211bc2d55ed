//! Builds requests, and checks texts of requests from other sources.

use crate::progress::{Progress, ReadPhase};
use crate::reader::{Read, Reader};

/// HTTP version of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: the connection ends with the response unless both ends send "keep-alive".
    Old,
    /// HTTP/1.1.
    #[default]
    New,
}

/// Reason why a request cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// RFC 9110 section 5.6.2.
    #[error("method `{0}`: only letters, digits and !#$%&'*+-.^_`|~ are allowed")]
    Method(String),
    /// The target contains a character that would end the line or the target.
    #[error("target `{0}`: must be non-empty, without blanks and control characters")]
    Target(String),
    /// RFC 9110 section 5.6.2.
    #[error("header name `{0}`: only letters, digits and !#$%&'*+-.^_`|~ are allowed")]
    HeaderName(String),
    /// RFC 9110 section 5.5.
    #[error("header `{0}`: CR, LF and NUL are not allowed in its value")]
    HeaderValue(String),
    /// RFC 9112 section 3.2.
    #[error("an HTTP/1.1 request needs exactly one Host header")]
    Host,
    /// Content-Length and Transfer-Encoding follow from the body and cannot be set.
    #[error("header `{0}` is computed from the body and cannot be set")]
    Framing(String),
}

/// Builds a request in wire format. With a body, even an empty one, it has a Content-Length.
///
/// # Errors
///
/// The parts cannot be written as one request, or would not be read back as this one.
pub fn request<N: AsRef<str>, V: AsRef<str>>(
    method: &str,
    target: &str,
    version: Version,
    headers: &[(N, V)],
    body: Option<&[u8]>,
) -> Result<Vec<u8>, RequestError> {
    if !is_token(method.as_bytes()) {
        return Err(RequestError::Method(method.escape_debug().to_string()));
    }
    if target.is_empty() || !target.bytes().all(is_of_target) {
        return Err(RequestError::Target(target.escape_debug().to_string()));
    }
    let minor = match version {
        Version::Old => 0,
        Version::New => 1,
    };
    let mut text = format!("{method} {target} HTTP/1.{minor}\r\n");
    let mut hosts = 0;
    for (name, value) in headers {
        let (name, value) = (name.as_ref(), value.as_ref());
        if !is_token(name.as_bytes()) {
            return Err(RequestError::HeaderName(name.escape_debug().to_string()));
        }
        if !value.bytes().all(is_of_value) {
            return Err(RequestError::HeaderValue(name.into()));
        }
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is("Content-Length") || is("Transfer-Encoding") {
            return Err(RequestError::Framing(name.into()));
        }
        hosts += usize::from(is("Host"));
        text += &format!("{name}: {value}\r\n");
    }
    if hosts > 1 || hosts == 0 && version == Version::New {
        return Err(RequestError::Host);
    }
    if let Some(body) = body {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body.unwrap_or_default());
    Ok(bytes)
}

/// Properties of a request that its sender needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// Length in bytes, including the body.
    pub len: usize,
    /// True if the method is HEAD: see [`Progress::expect`].
    pub head: bool,
    /// True if the request asks to close the connection after the response.
    pub close: bool,
}

/// Position and kind of an error in a text of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at {line}:{column}")]
pub struct TextError {
    /// Kind of error.
    pub fault: TextFault,
    /// Line of the first byte that is wrong or missing, from 1; lines end with LF.
    pub line: usize,
    /// Column in that line, in bytes from 1.
    pub column: usize,
}

/// Errors in a text of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    /// The text ends within a request, or contains none.
    #[error("incomplete request")]
    Incomplete,
    /// The method is not a token of RFC 9110 section 5.6.2.
    #[error("invalid method")]
    Method,
    /// The target is empty or contains a control character.
    #[error("invalid target")]
    Target,
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    #[error("invalid version")]
    Version,
    /// A header name is not a token, a line has no colon, or a value contains a control character.
    #[error("invalid character in header")]
    Header,
    /// The length is not a number, is too large, or contradicts an earlier one.
    #[error("invalid Content-Length")]
    Length,
    /// Malformed chunk framing.
    #[error("invalid chunk")]
    Chunk,
}

/// Checks a text of consecutive requests with their bodies, and returns their properties.
///
/// Stricter than [`Reader`], with which servers read any traffic. A Host header is not required, because tests omit it.
///
/// # Errors
///
/// The first byte that is wrong.
pub fn requests(text: &[u8]) -> Result<Vec<RequestInfo>, TextError> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        // Both parse independently. The one that stops first is right.
        let mut asked = match (check_head(rest), measure(rest)) {
            (Ok(()), Ok(asked)) => asked,
            (Err(fault), Ok(_)) | (Ok(()), Err(fault)) => {
                return Err(locate(text, rest, fault));
            }
            (Err(one), Err(other)) => {
                let first = if one.0 <= other.0 { one } else { other };
                return Err(locate(text, rest, first));
            }
        };
        rest = &rest[asked.len..];
        let is_last = rest.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        if is_last {
            // Readers skip empty lines, and a body is often followed by one.
            asked.len += rest.len();
        }
        all.push(asked);
        if is_last {
            return Ok(all);
        }
    }
}

/// Number of bytes before a fault, and the fault.
type TextFaultAt = (usize, TextFault);

fn locate(text: &[u8], rest: &[u8], (at, fault): TextFaultAt) -> TextError {
    let before = &text[..text.len() - rest.len() + at];
    let line_len = before.iter().rev().position(|byte| *byte == b'\n');
    TextError {
        fault,
        line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
        column: 1 + line_len.unwrap_or(before.len()),
    }
}

/// Measures the first request.
fn measure(text: &[u8]) -> Result<RequestInfo, TextFaultAt> {
    let mut reader = Reader::requests();
    let mut progress = Progress::NEW;
    let mut at = 0;
    while at < text.len() {
        let before = progress.phase;
        let n = progress.countable().clamp(1, (text.len() - at) as u64) as usize;
        match reader.read(&mut progress, &text[at..at + n]) {
            Read::More | Read::Expects { .. } => at += n,
            Read::Message { end, .. } => {
                return Ok(RequestInfo {
                    len: at + n,
                    head: end.head_only,
                    close: end.close,
                });
            }
            Read::Bad => {
                let fault = match before {
                    ReadPhase::Length | ReadPhase::LengthAgain | ReadPhase::LengthEnd => {
                        TextFault::Length
                    }
                    _ => TextFault::Chunk,
                };
                return Err((at, fault));
            }
        }
    }
    Err((at, TextFault::Incomplete))
}

/// Checks the head of the first request: RFC 9112 sections 2 to 5.
fn check_head(text: &[u8]) -> Result<(), TextFaultAt> {
    let mut at = text
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    at = run(text, at, 1, is_of_token, TextFault::Method)?;
    at = words(text, at, b" ", TextFault::Method)?;
    at = run(text, at, 1, is_of_target, TextFault::Target)?;
    at = words(text, at, b" HTTP/1.", TextFault::Version)?;
    match text.get(at) {
        Some(b'0' | b'1') => {}
        Some(_) => return Err((at, TextFault::Version)),
        None => return Err((at, TextFault::Incomplete)),
    }
    at = line_end(text, at + 1, TextFault::Version)?;
    while !matches!(text.get(at), Some(b'\r' | b'\n')) {
        at = run(text, at, 1, is_of_token, TextFault::Header)?;
        at = words(text, at, b":", TextFault::Header)?;
        at = run(text, at, 0, is_of_value, TextFault::Header)?;
        at = line_end(text, at, TextFault::Header)?;
    }
    line_end(text, at, TextFault::Header).map(|_| ())
}

/// Skips at least `least` bytes of a class.
fn run(
    text: &[u8],
    at: usize,
    least: usize,
    is: impl Fn(u8) -> bool,
    fault: TextFault,
) -> Result<usize, TextFaultAt> {
    let len = text[at..].iter().take_while(|byte| is(**byte)).count();
    let at = at + len;
    if at == text.len() {
        return Err((at, TextFault::Incomplete));
    }
    if len < least {
        return Err((at, fault));
    }
    Ok(at)
}

/// Skips the bytes `wanted`.
fn words(text: &[u8], at: usize, wanted: &[u8], fault: TextFault) -> Result<usize, TextFaultAt> {
    for (n, byte) in wanted.iter().enumerate() {
        match text.get(at + n) {
            Some(found) if found == byte => {}
            Some(_) => return Err((at + n, fault)),
            None => return Err((at + n, TextFault::Incomplete)),
        }
    }
    Ok(at + wanted.len())
}

/// Skips LF or CR LF.
fn line_end(text: &[u8], at: usize, fault: TextFault) -> Result<usize, TextFaultAt> {
    match text.get(at) {
        Some(b'\n') => Ok(at + 1),
        _ => words(text, at, b"\r\n", fault),
    }
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_of_token(*byte))
}

/// Returns true for characters of a token: RFC 9110 section 5.6.2.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns true for bytes of a target. Bytes above ASCII are sent unchanged.
fn is_of_target(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
}

/// Returns true for bytes of a header value: RFC 9110 section 5.5.
fn is_of_value(byte: u8) -> bool {
    !matches!(byte, b'\r' | b'\n' | 0)
}
