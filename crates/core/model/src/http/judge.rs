//! Checks a response against its conditions while it arrives. Only data that may still decide is kept.

use super::HttpCheck;

/// Longest header line that a condition can match.
const LONGEST_LINE: usize = 1 << 16;
/// Number of bytes of a body that a message shows.
const BEGIN: usize = 60;

/// State of a response that is being checked.
#[derive(Debug, Default)]
pub struct Seen {
    /// Start of a header line.
    line: Vec<u8>,
    header: Header,
    /// Start of the body.
    begin: Vec<u8>,
    /// Last bytes of the body, which may be the start of the wanted text.
    tail: Vec<u8>,
    has_body: bool,
}

#[derive(Debug, Default)]
enum Header {
    #[default]
    None,
    /// First other value of the header.
    Other(String),
    Found,
}

impl Seen {
    /// Resets the state before a response.
    pub fn clear(&mut self) {
        self.line.clear();
        self.header = Header::None;
        self.begin.clear();
        self.tail.clear();
        self.has_body = false;
    }
}

/// Conditions on a response, prepared for comparison.
#[derive(Debug)]
pub struct Judge {
    status: Vec<u16>,
    body: Option<Vec<u8>>,
    header: Option<(String, Option<String>)>,
}

impl Judge {
    /// Creates the conditions from those of a plan.
    #[must_use]
    pub fn new(check: &HttpCheck) -> Self {
        Self {
            status: check.status.clone(),
            body: check.body.as_ref().map(|b| b.clone().into_bytes()),
            header: check.header.as_ref().map(|h| match h.split_once(':') {
                Some((name, value)) => (name.to_ascii_lowercase(), Some(value.trim().to_owned())),
                None => (h.to_ascii_lowercase(), None),
            }),
        }
    }

    /// Returns true if the conditions need headers and bodies.
    #[must_use]
    pub fn looks(&self) -> bool {
        self.body.is_some() || self.header.is_some()
    }

    /// Processes the next bytes of the header section.
    pub fn head(&self, seen: &mut Seen, bytes: &[u8]) {
        let Some((name, value)) = &self.header else {
            return;
        };
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let room = LONGEST_LINE.saturating_sub(seen.line.len());
            seen.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let colon = seen.line.iter().position(|b| *b == b':');
                if let Some(colon) = colon
                    && seen.line[..colon].eq_ignore_ascii_case(name.as_bytes())
                {
                    let given = String::from_utf8_lossy(seen.line[colon + 1..].trim_ascii());
                    if value.as_ref().is_none_or(|value| *value == given) {
                        seen.header = Header::Found;
                    } else if matches!(seen.header, Header::None) {
                        seen.header = Header::Other(given.into_owned());
                    }
                }
                seen.line.clear();
            }
        }
    }

    /// Processes the next bytes of a body.
    pub fn body(&self, seen: &mut Seen, bytes: &[u8]) {
        let Some(wanted) = &self.body else {
            return;
        };
        if seen.has_body || wanted.is_empty() {
            return;
        }
        let room = BEGIN - seen.begin.len();
        seen.begin
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        seen.tail.extend_from_slice(bytes);
        seen.has_body = seen.tail.windows(wanted.len()).any(|part| part == wanted);
        let past = seen.tail.len().saturating_sub(wanted.len() - 1);
        seen.tail.drain(..past);
    }

    /// Returns the first unmet condition after a complete response.
    #[must_use]
    pub fn fault(&self, status: u16, seen: &Seen) -> Option<String> {
        if !self.status.is_empty() && !self.status.contains(&status) {
            return Some(format!("the status is {status}"));
        }
        if let Some((name, _)) = &self.header {
            match &seen.header {
                Header::Found => {}
                Header::Other(value) => return Some(format!("{name} is {value:?}")),
                Header::None => return Some(format!("missing header {name}")),
            }
        }
        if let Some(wanted) = &self.body
            && !wanted.is_empty()
            && !seen.has_body
        {
            let begin = String::from_utf8_lossy(&seen.begin);
            return Some(format!(
                "the body does not contain the expected text; it begins {begin:?}"
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the unmet condition if header section and body arrive in pieces of `piece` bytes.
    fn fault(check: &HttpCheck, piece: usize) -> String {
        let judge = Judge::new(check);
        let mut seen = Seen::default();
        // Part of the previous response.
        judge.head(&mut seen, b"HTTP/1.1 200 OK\r\nX-B: 1\r\nX-A");
        judge.body(&mut seen, b"bye he");
        seen.clear();
        let head: &[u8] = b"HTTP/1.1 200 OK\r\nX-A: one\r\nx-a: two\r\n\r\n";
        for bytes in head.chunks(piece) {
            judge.head(&mut seen, bytes);
        }
        for bytes in b"hello world".chunks(piece) {
            judge.body(&mut seen, bytes);
        }
        judge.fault(200, &seen).unwrap_or_default()
    }

    #[test]
    fn what_is_wrong_is_said() {
        let header = |text: &str| HttpCheck {
            header: Some(text.to_owned()),
            ..HttpCheck::default()
        };
        let body = |text: &str| HttpCheck {
            body: Some(text.to_owned()),
            ..HttpCheck::default()
        };
        let status = |status: u16| HttpCheck {
            status: vec![status],
            ..HttpCheck::default()
        };
        for piece in [1, 2, 3, 5, 100] {
            for fine in [
                HttpCheck::default(),
                status(200),
                header("X-A"),
                header("x-a: one"),
                header("x-a: two"),
                body("lo w"),
                body("world"),
                body("hello world"),
                body(""),
            ] {
                assert_eq!(fault(&fine, piece), "", "{piece} {fine:?}");
            }
            assert!(fault(&status(201), piece).contains("200"));
            assert!(fault(&header("X-B"), piece).contains("missing header x-b"));
            assert!(fault(&header("X-A: three"), piece).contains("one"));
            for other in ["bye", "hello  ", "worlds"] {
                assert!(fault(&body(other), piece).contains("begins \"hello world\""));
            }
        }
    }
}
