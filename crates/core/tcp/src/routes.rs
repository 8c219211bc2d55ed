//! Routes of an HTTP server: select the answer by path.

use std::collections::HashMap;

use crate::message::Message;

/// Maximum length of a request line in which the path is searched.
const LONGEST_LINE: usize = 8192;

/// Path and its answer.
#[derive(Clone, Debug)]
pub struct Route {
    /// Path without query. A `*` at its end matches all paths with this prefix.
    pub path: String,
    /// Complete answer.
    pub answer: Message,
    /// Status code of the answer.
    pub status: u16,
    /// Delay from the end of the request to the start of the answer, in ns.
    pub delay: u64,
    /// The connection ends after the answer.
    pub close: bool,
}

/// Properties of a route without path and answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) status: u16,
    pub(crate) delay: u64,
    pub(crate) close: bool,
    /// Number of answers queued.
    pub(crate) answers: u64,
}

/// Delayed answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayedAnswer {
    pub(crate) due: u64,
    pub(crate) route: u16,
    pub(crate) head_only: bool,
    pub(crate) close: bool,
}

/// All routes of a server; the last one matches all other paths.
#[derive(Debug)]
pub(crate) struct Routes {
    exact: HashMap<Box<[u8]>, u16>,
    /// Longest prefix first.
    prefixes: Vec<(Box<[u8]>, u16)>,
    pub(crate) rules: Box<[Rule]>,
}

impl Routes {
    /// Returns None if `routes` is empty.
    pub(crate) fn new(routes: &[Route]) -> Option<Self> {
        let (mut exact, mut prefixes) = (HashMap::new(), Vec::new());
        for (number, route) in routes.iter().enumerate() {
            let number = number as u16;
            match route.path.strip_suffix('*') {
                Some(prefix) => prefixes.push((Box::from(prefix.as_bytes()), number)),
                None => {
                    exact
                        .entry(Box::from(route.path.as_bytes()))
                        .or_insert(number);
                }
            }
        }
        prefixes.sort_by_key(|(prefix, number): &(Box<[u8]>, u16)| {
            (usize::MAX - prefix.len(), *number)
        });
        let rules = routes.iter().map(|route| Rule {
            status: route.status,
            delay: route.delay,
            close: route.close,
            answers: 0,
        });
        (!routes.is_empty()).then(|| Self {
            exact,
            prefixes,
            rules: rules.collect(),
        })
    }

    pub(crate) fn last(&self) -> u16 {
        self.rules.len() as u16 - 1
    }

    /// Returns the route of a request line, or None while its target is incomplete.
    fn find(&self, line: &[u8]) -> Option<u16> {
        let line = line.trim_ascii_start();
        let begin = line.iter().position(|byte| *byte == b' ')? + 1;
        let rest = &line[begin..];
        let end = rest
            .iter()
            .position(|byte| matches!(byte, b' ' | b'\r' | b'\n'))?;
        let target = &rest[..end];
        let path = target.split(|byte| *byte == b'?').next().unwrap_or(target);
        if let Some(route) = self.exact.get(path) {
            return Some(*route);
        }
        let mut prefixes = self.prefixes.iter();
        let found = prefixes.find(|(prefix, _)| path.starts_with(prefix));
        Some(found.map_or(self.last(), |(_, route)| *route))
    }
}

/// Searches the head of a request for its route.
pub(crate) struct RouteSearch<'a> {
    pub(crate) routes: &'a Routes,
    /// Start of a request line that arrived in pieces.
    pub(crate) line: &'a mut Vec<u8>,
    pub(crate) found: Option<u16>,
}

impl wb_http1::MessageSink for RouteSearch<'_> {
    #[inline]
    fn head(&mut self, bytes: &[u8]) {
        if self.found.is_some() {
            return;
        }
        if self.line.is_empty() {
            self.found = self.routes.find(bytes);
        }
        if self.found.is_none() {
            let room = LONGEST_LINE - self.line.len();
            self.line.extend_from_slice(&bytes[..room.min(bytes.len())]);
            let full = self.line.len() == LONGEST_LINE;
            let last = full.then(|| self.routes.last());
            self.found = self.routes.find(self.line).or(last);
        }
    }

    #[inline]
    fn body(&mut self, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_path_counts_then_the_longest_beginning() {
        let routes = ["/a", "/a/*", "/a/long/*", "*"].map(|path| Route {
            path: path.to_owned(),
            answer: Message::bytes(b"x"),
            status: 200,
            delay: 0,
            close: false,
        });
        let routes = Routes::new(&routes).unwrap();
        for (line, wanted) in [
            ("GET /a HTTP/1.1\r\n", Some(0)),
            ("GET /a?x=/b HTTP/1.1\r\n", Some(0)),
            ("\r\nGET /a/b HTTP/1.1\r\n", Some(1)),
            ("GET /a/long/er HTTP/1.1\r\n", Some(2)),
            ("GET /ab HTTP/1.1\r\n", Some(3)),
            ("GET /a", None),
            ("GE", None),
        ] {
            assert_eq!(routes.find(line.as_bytes()), wanted, "{line}");
        }
        let mut line = Vec::new();
        let mut seen = RouteSearch {
            routes: &routes,
            line: &mut line,
            found: None,
        };
        for piece in ["G", "ET ", "/a/l", "ong/x HT"] {
            assert_eq!(seen.found, None);
            wb_http1::MessageSink::head(&mut seen, piece.as_bytes());
        }
        assert_eq!(seen.found, Some(2));
    }
}
