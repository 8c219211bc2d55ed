//! Makes requests, and checks texts of requests that others have made.

use crate::progress::{Phase, Progress};
use crate::reader::{Read, Reader};

/// Of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: the connection ends with the answer unless both ends say "keep-alive".
    Old,
    /// HTTP/1.1.
    #[default]
    New,
}

/// Why a request cannot be made of its parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// RFC 9110 section 5.6.2.
    #[error("method `{0}`: only letters, digits and !#$%&'*+-.^_`|~ are allowed")]
    Method(String),
    /// It would end the line, or the target within it.
    #[error(
        "target `{0}`: at least one character, and no blanks or control characters, are allowed"
    )]
    Target(String),
    /// RFC 9110 section 5.6.2.
    #[error("header name `{0}`: only letters, digits and !#$%&'*+-.^_`|~ are allowed")]
    HeaderName(String),
    /// RFC 9110 section 5.5.
    #[error("header `{0}`: CR, LF and NUL are not allowed in its value")]
    HeaderValue(String),
    /// RFC 9112 section 3.2.
    #[error("a request of HTTP/1.1 needs one header Host")]
    Host,
    /// The body alone says how long it is.
    #[error("header `{0}`: how long the body is, is said by the body alone")]
    Framing(String),
}

/// A request in wire format. With a body, an empty one too, it has a Content-Length.
///
/// # Errors
///
/// What cannot be written as one request, or would not be read as this one.
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

/// A request as its sender has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Bytes, with its body.
    pub len: usize,
    /// Its method is HEAD: [`Progress::expect`].
    pub head: bool,
    /// It asks for the end of the connection after its answer.
    pub close: bool,
}

/// Where a text is no sequence of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at {line}:{column}")]
pub struct TextError {
    /// What is wrong.
    pub fault: TextFault,
    /// Line of the first byte that does not fit, or that is missing; from 1, as lines end with LF.
    pub line: usize,
    /// Its place in the line in bytes, from 1.
    pub column: usize,
}

/// What is wrong with a text of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    /// The text ends within a request, or holds none.
    #[error("incomplete request")]
    Incomplete,
    /// No token of RFC 9110 section 5.6.2.
    #[error("invalid method")]
    Method,
    /// Empty, or with a control character.
    #[error("invalid target")]
    Target,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    #[error("invalid version")]
    Version,
    /// A name that is no token, a line without a colon, a control character in a value.
    #[error("invalid character in header")]
    Header,
    /// No number, one too large, or another one than before.
    #[error("invalid Content-Length")]
    Length,
    /// What should frame a chunk does not.
    #[error("invalid chunk")]
    Chunk,
}

/// Checks a text of requests, one after another, with their bodies, and says what they are.
///
/// Stricter than [`Reader`], which servers read what comes with. A header Host is not asked for, as tests leave it out.
///
/// # Errors
///
/// The first byte that does not fit.
pub fn requests(text: &[u8]) -> Result<Vec<Asked>, TextError> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        // Both read on their own; who is stopped first is right.
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
            // Readers pass over empty lines; many put one behind a body.
            asked.len += rest.len();
        }
        all.push(asked);
        if is_last {
            return Ok(all);
        }
    }
}

/// A fault and how many bytes come before it.
type Fault = (usize, TextFault);

fn locate(text: &[u8], rest: &[u8], (at, fault): Fault) -> TextError {
    let before = &text[..text.len() - rest.len() + at];
    let line_len = before.iter().rev().position(|byte| *byte == b'\n');
    TextError {
        fault,
        line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
        column: 1 + line_len.unwrap_or(before.len()),
    }
}

/// Finds the end of the first request.
fn measure(text: &[u8]) -> Result<Asked, Fault> {
    let mut reader = Reader::requests();
    let mut progress = Progress::NEW;
    let mut at = 0;
    while at < text.len() {
        let before = progress.phase;
        let n = progress.countable().clamp(1, (text.len() - at) as u64) as usize;
        match reader.read(&mut progress, &text[at..at + n]) {
            Read::More | Read::Expects { .. } => at += n,
            Read::Message { end, .. } => {
                return Ok(Asked {
                    len: at + n,
                    head: end.head_only,
                    close: end.close,
                });
            }
            Read::Bad => {
                let fault = match before {
                    Phase::Length | Phase::LengthAgain | Phase::LengthEnd => TextFault::Length,
                    _ => TextFault::Chunk,
                };
                return Err((at, fault));
            }
        }
    }
    Err((at, TextFault::Incomplete))
}

/// Checks the head of the first request: RFC 9112 sections 2 to 5.
fn check_head(text: &[u8]) -> Result<(), Fault> {
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

/// Passes over at least so many bytes of a class.
fn run(
    text: &[u8],
    at: usize,
    least: usize,
    is: impl Fn(u8) -> bool,
    fault: TextFault,
) -> Result<usize, Fault> {
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

/// Passes over these bytes.
fn words(text: &[u8], at: usize, wanted: &[u8], fault: TextFault) -> Result<usize, Fault> {
    for (n, byte) in wanted.iter().enumerate() {
        match text.get(at + n) {
            Some(found) if found == byte => {}
            Some(_) => return Err((at + n, fault)),
            None => return Err((at + n, TextFault::Incomplete)),
        }
    }
    Ok(at + wanted.len())
}

/// Passes over LF or CR LF.
fn line_end(text: &[u8], at: usize, fault: TextFault) -> Result<usize, Fault> {
    match text.get(at) {
        Some(b'\n') => Ok(at + 1),
        _ => words(text, at, b"\r\n", fault),
    }
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_of_token(*byte))
}

/// RFC 9110 section 5.6.2.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Bytes above ASCII are sent as they are.
fn is_of_target(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
}

/// RFC 9110 section 5.5.
fn is_of_value(byte: u8) -> bool {
    !matches!(byte, b'\r' | b'\n' | 0)
}
