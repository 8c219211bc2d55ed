//! Whether an answer is what it must be, found out while it comes: nothing is kept of it but what may still decide.

use super::HttpCheck;

/// A line of a head that is longer is none that a check asks for.
const LONGEST_LINE: usize = 1 << 16;
/// So much of a body is told.
const BEGIN: usize = 60;

/// What was seen of an answer so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// The beginning of a line of the head.
    line: Vec<u8>,
    header: Header,
    /// The beginning of the body.
    begin: Vec<u8>,
    /// The last bytes of the body, which may be the beginning of what is looked for.
    tail: Vec<u8>,
    has_body: bool,
}

#[derive(Debug, Default)]
enum Header {
    #[default]
    None,
    /// With another value, the first of them.
    Other(String),
    Found,
}

impl Seen {
    /// Before an answer.
    pub fn clear(&mut self) {
        self.line.clear();
        self.header = Header::None;
        self.begin.clear();
        self.tail.clear();
        self.has_body = false;
    }
}

/// What is asked of an answer, ready to compare.
#[derive(Debug)]
pub struct Judge {
    status: Vec<u16>,
    body: Option<Vec<u8>>,
    header: Option<(String, Option<String>)>,
}

impl Judge {
    /// Of what a plan says.
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

    /// Whether heads and bodies have to be shown to it.
    #[must_use]
    pub fn looks(&self) -> bool {
        self.body.is_some() || self.header.is_some()
    }

    /// Looks at the next bytes of a head.
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

    /// Looks at the next bytes of a body.
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

    /// What is wrong with an answer of which all was seen.
    #[must_use]
    pub fn fault(&self, status: u16, seen: &Seen) -> Option<String> {
        if !self.status.is_empty() && !self.status.contains(&status) {
            return Some(format!("the status is {status}"));
        }
        if let Some((name, _)) = &self.header {
            match &seen.header {
                Header::Found => {}
                Header::Other(value) => return Some(format!("{name} is {value:?}")),
                Header::None => return Some(format!("there is no {name}")),
            }
        }
        if let Some(wanted) = &self.body
            && !wanted.is_empty()
            && !seen.has_body
        {
            let begin = String::from_utf8_lossy(&seen.begin);
            return Some(format!(
                "the body does not hold the text; it begins {begin:?}"
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong, if head and body come in pieces of so many bytes.
    fn fault(check: &HttpCheck, piece: usize) -> String {
        let judge = Judge::new(check);
        let mut seen = Seen::default();
        // Of the answer before.
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
            assert!(fault(&header("X-B"), piece).contains("no x-b"));
            assert!(fault(&header("X-A: three"), piece).contains("one"));
            for other in ["bye", "hello  ", "worlds"] {
                assert!(fault(&body(other), piece).contains("begins \"hello world\""));
            }
        }
    }
}
