//! Whether an answer is what it must be.

use wb_model::http::HttpCheck;

/// What is kept of an answer while it comes, where somebody wants to see it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Kept {
    pub(crate) fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
    }
}

/// What is asked of an answer, ready to compare.
#[derive(Debug)]
pub(crate) struct Judge {
    status: Vec<u16>,
    body: Option<Vec<u8>>,
    header: Option<(String, Option<String>)>,
}

impl Judge {
    pub(crate) fn new(check: &HttpCheck) -> Self {
        Self {
            status: check.status.clone(),
            body: check.body.as_ref().map(|b| b.clone().into_bytes()),
            header: check.header.as_ref().map(|h| match h.split_once(':') {
                Some((name, value)) => (name.to_ascii_lowercase(), Some(value.trim().to_owned())),
                None => (h.to_ascii_lowercase(), None),
            }),
        }
    }

    /// Whether heads and bodies have to be kept for it.
    pub(crate) fn looks(&self) -> bool {
        self.body.is_some() || self.header.is_some()
    }

    /// What is wrong.
    pub(crate) fn fault(&self, status: u16, kept: Option<&Kept>) -> Option<String> {
        if !self.status.is_empty() && !self.status.contains(&status) {
            return Some(format!("the status is {status}"));
        }
        let kept = kept?;
        if let Some((name, value)) = &self.header {
            let mut seen = None;
            let found = kept.head.split(|b| *b == b'\n').skip(1).any(|line| {
                let Some(colon) = line.iter().position(|b| *b == b':') else {
                    return false;
                };
                if !line[..colon].eq_ignore_ascii_case(name.as_bytes()) {
                    return false;
                }
                let given = String::from_utf8_lossy(line[colon + 1..].trim_ascii()).into_owned();
                let fits = value.as_ref().is_none_or(|value| *value == given);
                seen.get_or_insert(given);
                fits
            });
            if !found {
                return Some(match seen {
                    Some(value) => format!("{name} is {value:?}"),
                    None => format!("there is no {name}"),
                });
            }
        }
        if let Some(wanted) = &self.body {
            let found =
                wanted.is_empty() || kept.body.windows(wanted.len()).any(|part| part == wanted);
            if !found {
                let begin =
                    String::from_utf8_lossy(&kept.body[..kept.body.len().min(60)]).into_owned();
                return Some(format!(
                    "the body does not hold the text; it begins {begin:?}"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        let kept = Kept {
            head: b"HTTP/1.1 200 OK\r\nX-A: one\r\nx-a: two\r\n\r\n".to_vec(),
            body: b"hello world".to_vec(),
        };
        let fault = |check: HttpCheck| {
            Judge::new(&check)
                .fault(200, Some(&kept))
                .unwrap_or_default()
        };
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
        for fine in [
            HttpCheck::default(),
            status(200),
            header("X-A"),
            header("x-A: two"),
            body("lo w"),
            body(""),
        ] {
            assert_eq!(fault(fine), "");
        }
        assert!(fault(status(201)).contains("200"));
        assert!(fault(header("X-B")).contains("no x-b"));
        assert!(fault(header("X-A: three")).contains("one"));
        assert!(fault(body("bye")).contains("hello"));
    }
}
