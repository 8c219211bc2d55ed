//! The requests of a job in wire format, except for their variable parts.

mod encoded_headers;

use wb_model::http::{HttpCall, HttpJob, HttpUrl, HttpVersion, Scheme};

use encoded_headers::EncodedHeaders;

/// Reads the files that a job names.
pub trait RequestFiles {
    /// Returns the contents of a file.
    ///
    /// # Errors
    /// Returns the reason, with the name of the file.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TextPiece {
    Text(Vec<u8>),
    /// The value of this column.
    Column(usize),
}

impl TextPiece {
    const fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }
}

/// Appends pieces with the values of a line.
fn append_pieces(pieces: &[TextPiece], values: Option<&[String]>, out: &mut Vec<u8>) {
    for piece in pieces {
        match (piece, values) {
            (TextPiece::Text(text), _) => out.extend_from_slice(text),
            (TextPiece::Column(i), Some(values)) => out.extend_from_slice(values[*i].as_bytes()),
            (TextPiece::Column(_), None) => {}
        }
    }
}

/// Length of the pieces with the values of a line.
fn pieces_len(pieces: &[TextPiece], values: Option<&[String]>) -> usize {
    let len = |piece: &TextPiece| match (piece, values) {
        (TextPiece::Text(text), _) => text.len(),
        (TextPiece::Column(i), Some(values)) => values[*i].len(),
        (TextPiece::Column(_), None) => 0,
    };
    pieces.iter().map(len).sum()
}

/// One request of the set.
#[derive(Clone, Debug)]
pub(crate) struct PreparedRequest {
    pub(crate) name: String,
    /// An answer to it has no body.
    pub(crate) head: bool,
    weight: u32,
    head_pieces: Vec<TextPiece>,
    body_pieces: Vec<TextPiece>,
    /// The whole request, if it has no variable parts.
    fixed: Option<Vec<u8>>,
    has_body: bool,
    /// The request in the form of HTTP/2 or HTTP/3.
    coded: Option<EncodedHeaders>,
}

/// Values of variables, by line.
#[derive(Clone, Debug, Default)]
struct VariableTable {
    names: Vec<String>,
    lines: Vec<Vec<String>>,
}

/// All requests of a job.
#[derive(Clone, Debug)]
pub(crate) struct RequestSet {
    pub(crate) calls: Vec<PreparedRequest>,
    table: VariableTable,
    total: u64,
}

/// The request, if it is the only one and has no variable parts.
pub(crate) fn only_fixed(set: &RequestSet) -> Option<&[u8]> {
    match set.calls.as_slice() {
        [call] => call.fixed.as_deref(),
        _ => None,
    }
}

impl RequestSet {
    /// # Errors
    /// Fails for a file that cannot be read or used, or a variable without a value.
    pub(crate) fn new(
        job: &HttpJob,
        url: &HttpUrl,
        files: &dyn RequestFiles,
    ) -> Result<Self, String> {
        let table = match &job.data {
            Some(path) => VariableTable::parse(path, &files.read(path)?)?,
            None => VariableTable::default(),
        };
        let only = [HttpCall::default()];
        let wanted = match job.requests.is_empty() {
            true => &only[..],
            false => &job.requests,
        };
        let calls: Result<Vec<PreparedRequest>, String> = wanted
            .iter()
            .map(|call| PreparedRequest::new(call, job, url, &table, files))
            .collect();
        let calls = calls?;
        Ok(Self {
            total: calls.iter().map(|call| u64::from(call.weight)).sum(),
            calls,
            table,
        })
    }

    /// Selects the next request, evenly spread in proportion to the weights.
    pub(crate) fn choose_next(&self, credit: &mut [i64]) -> usize {
        if self.calls.len() == 1 {
            return 0;
        }
        let mut best = 0;
        for (i, call) in self.calls.iter().enumerate() {
            credit[i] += i64::from(call.weight);
            if credit[i] > credit[best] {
                best = i;
            }
        }
        credit[best] -= self.total as i64;
        best
    }

    /// Appends request number `call` with the values of line `line` to `out`.
    pub(crate) fn write(&self, call: usize, line: u64, out: &mut Vec<u8>) {
        let call = &self.calls[call];
        if let Some(fixed) = &call.fixed {
            out.extend_from_slice(fixed);
            return;
        }
        let values = self.line_values(line);
        append_pieces(&call.head_pieces, values, out);
        if call.has_body {
            out.extend_from_slice(b"Content-Length: ");
            append_decimal(pieces_len(&call.body_pieces, values), out);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        append_pieces(&call.body_pieces, values, out);
    }

    /// Values of a line; the first line follows the last.
    fn line_values(&self, line: u64) -> Option<&[String]> {
        let lines = self.table.lines.len().max(1) as u64;
        let values = self.table.lines.get((line % lines) as usize);
        values.map(Vec::as_slice)
    }
}

/// Appends a number without allocation.
fn append_decimal(mut n: usize, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

impl PreparedRequest {
    fn new(
        call: &HttpCall,
        job: &HttpJob,
        url: &HttpUrl,
        table: &VariableTable,
        files: &dyn RequestFiles,
    ) -> Result<Self, String> {
        let path = match call.path.is_empty() {
            true => &url.target,
            false => &call.path,
        };
        let body = match &call.body_file {
            Some(file) => files.read(file)?,
            None => call.body.clone().into_bytes(),
        };
        let has_body = !body.is_empty() || matches!(call.method.as_str(), "POST" | "PUT" | "PATCH");
        let name_of = |header: &str| {
            header
                .split(':')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase()
        };
        let own: Vec<String> = call.headers.iter().map(|h| name_of(h)).collect();
        let common = job.headers.iter().filter(|h| !own.contains(&name_of(h)));
        let headers: Vec<&String> = common.chain(&call.headers).collect();
        let given = |name: &str| headers.iter().any(|h| name_of(h) == name);
        for name in ["content-length", "transfer-encoding"] {
            if given(name) {
                return Err(format!(
                    "header `{name}` is computed from the body and cannot be set"
                ));
            }
        }
        let mut text = format!("{} {path} HTTP/1.1\r\n", call.method);
        if !given("host") {
            text.push_str(&format!("Host: {}\r\n", url.authority()));
        }
        for header in &headers {
            text.push_str(header);
            text.push_str("\r\n");
        }
        if job.per_connection == 1 && !given("connection") {
            text.push_str("Connection: close\r\n");
        }
        table.refuse_spaces(path)?;
        let head_pieces = table.cut_pieces(text.as_bytes())?;
        let body_pieces = table.cut_pieces(&body)?;
        let fixed = head_pieces
            .iter()
            .chain(&body_pieces)
            .all(TextPiece::is_text);
        let coded = || {
            let authority = url.authority();
            let mut authority = authority.as_str();
            let mut fields = Vec::new();
            for header in &headers {
                let value = header.split_once(':').map_or("", |(_, value)| value.trim());
                match name_of(header) {
                    name if name == "host" => authority = value,
                    name => fields.push((name, value)),
                }
            }
            let scheme = match url.scheme {
                Scheme::Http => "http",
                Scheme::Https => "https",
            };
            let mut all = vec![
                (":method".to_owned(), call.method.as_str()),
                (":scheme".to_owned(), scheme),
                (":authority".to_owned(), authority),
                (":path".to_owned(), path),
            ];
            all.append(&mut fields);
            let body = has_body.then_some(&body_pieces[..]);
            EncodedHeaders::new(job.version, &all, body, table)
        };
        let coded = match job.version {
            HttpVersion::V11 => None,
            HttpVersion::V2 | HttpVersion::V3 => Some(coded()?),
        };
        let name = match call.name.is_empty() {
            true => format!("{} {path}", call.method),
            false => call.name.clone(),
        };
        let mut made = Self {
            name,
            head: call.method == "HEAD",
            weight: call.weight,
            head_pieces,
            body_pieces,
            fixed: None,
            has_body,
            coded,
        };
        if fixed {
            let mut out = Vec::new();
            let set = RequestSet {
                calls: vec![made.clone()],
                table: VariableTable::default(),
                total: 1,
            };
            set.write(0, 0, &mut out);
            made.fixed = Some(out);
        }
        Ok(made)
    }
}

impl VariableTable {
    /// Refuses a path that gets a space from a column.
    fn refuse_spaces(&self, path: &str) -> Result<(), String> {
        for piece in self.cut_pieces(path.as_bytes())? {
            if let TextPiece::Column(i) = piece
                && let Some(bad) = self.lines.iter().find(|values| values[i].contains(' '))
            {
                return Err(format!(
                    "{path}: {:?} contains a space, which is not allowed in a path; use %20",
                    bad[i]
                ));
            }
        }
        Ok(())
    }

    fn parse(path: &str, bytes: &[u8]) -> Result<Self, String> {
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::Headers)
            .from_reader(bytes);
        let wrong = |why: csv::Error| format!("{path}: {why}");
        let names: Vec<String> = reader
            .headers()
            .map_err(wrong)?
            .iter()
            .map(str::to_owned)
            .collect();
        let mut lines = Vec::new();
        for record in reader.records() {
            let record = record.map_err(wrong)?;
            if let Some(bad) = record.iter().find(|v| v.chars().any(char::is_control)) {
                return Err(format!("{path}: {bad:?} contains control characters"));
            }
            lines.push(record.iter().map(str::to_owned).collect());
        }
        match lines.is_empty() {
            true => Err(format!(
                "{path}: no line of values follows the line of names"
            )),
            false => Ok(Self { names, lines }),
        }
    }

    /// Cuts a text at `{{NAME}}`.
    fn cut_pieces(&self, text: &[u8]) -> Result<Vec<TextPiece>, String> {
        let find = |text: &[u8], mark: &[u8]| text.windows(2).position(|w| w == mark);
        let mut pieces = Vec::new();
        let mut rest = text;
        // Without a data file there are no variables.
        while let Some(from) = find(rest, b"{{").filter(|_| !self.names.is_empty()) {
            let Some(len) = find(&rest[from..], b"}}") else {
                break;
            };
            let name = String::from_utf8_lossy(&rest[from + 2..from + len]);
            let column = self.names.iter().position(|n| *n == name.trim());
            let column = column.ok_or_else(|| {
                format!(
                    "{{{{{name}}}}} is not a column of the data file; its columns are {}",
                    self.names.join(", ")
                )
            })?;
            pieces.push(TextPiece::Text(rest[..from].to_vec()));
            pieces.push(TextPiece::Column(column));
            rest = &rest[from + len + 2..];
        }
        pieces.push(TextPiece::Text(rest.to_vec()));
        pieces.retain(|piece| *piece != TextPiece::Text(Vec::new()));
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct File(&'static str);

    impl RequestFiles for File {
        fn read(&self, _: &str) -> Result<Vec<u8>, String> {
            Ok(self.0.as_bytes().to_vec())
        }
    }

    fn set(job: &HttpJob, file: &'static str) -> Result<RequestSet, String> {
        RequestSet::new(job, &"http://h:81/p?q".parse().unwrap(), &File(file))
    }

    fn text(set: &RequestSet, call: usize, line: u64) -> String {
        let mut out = Vec::new();
        set.write(call, line, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_plain_request_is_wrks() {
        let set = set(&HttpJob::default(), "").unwrap();
        assert_eq!(text(&set, 0, 0), "GET /p?q HTTP/1.1\r\nHost: h:81\r\n\r\n");
        assert!(only_fixed(&set).is_some());
    }

    #[test]
    fn a_host_header_is_the_authority_of_http2() {
        for (headers, authority) in [(vec![], "h:81"), (vec!["Host: web.lab".into()], "web.lab")] {
            let job = HttpJob {
                version: HttpVersion::V2,
                headers,
                ..HttpJob::default()
            };
            let set = set(&job, "").unwrap();
            let mut field = Vec::new();
            wb_http2::encode::field(":authority", authority, &mut field);
            let mut block = (Vec::new(), Vec::new());
            let (head, _) = set.encoded_request(0, 0, &mut block);
            let has = head.windows(field.len()).any(|bytes| bytes == field);
            assert!(has, "{authority}: {head:?}");
        }
    }

    #[test]
    fn headers_bodies_and_variables() {
        let mut job = HttpJob {
            headers: vec!["X-A: common".into(), "Host: other".into()],
            data: Some("f".into()),
            per_connection: 1,
            requests: vec![HttpCall {
                method: "POST".into(),
                path: "/u/{{id}}".into(),
                headers: vec!["x-a: {{name}}".into()],
                body: "n={{name}}".into(),
                ..HttpCall::default()
            }],
            ..HttpJob::default()
        };
        let made = set(&job, "id,name\n1,ann\n22,\"b,c\"\n").unwrap();
        let answer = "POST /u/22 HTTP/1.1\r\nHost: other\r\nx-a: b,c\r\nConnection: close\r\n\
                      Content-Length: 5\r\n\r\nn=b,c";
        assert_eq!(text(&made, 0, 1), answer);
        assert_eq!(text(&made, 0, 3), answer);
        assert!(text(&made, 0, 2).contains("/u/1 "));
        assert!(set(&job, "id,name\n1,a b\n").is_ok());
        job.requests[0].body = "{{who}}".into();
        assert!(set(&job, "id,name\n1,a\n").unwrap_err().contains("{{who}}"));
        assert!(set(&job, "id,name\n").unwrap_err().contains("no line"));
        assert!(
            set(&job, "id\n\"a\r\nX: y\"\n")
                .unwrap_err()
                .contains("control")
        );
        assert!(set(&job, "id,name\n1 2,a\n").unwrap_err().contains("%20"));
        job.headers.push("content-length: 3".into());
        job.requests[0].body.clear();
        assert!(set(&job, "id,name\n1,a\n").is_err());
    }

    #[test]
    fn weights_are_kept_exactly_and_spread() {
        let call = |weight| HttpCall {
            weight,
            ..HttpCall::default()
        };
        let job = HttpJob {
            requests: vec![call(5), call(1), call(2)],
            ..HttpJob::default()
        };
        let set = set(&job, "").unwrap();
        let mut credit = vec![0; 3];
        let chosen: Vec<usize> = (0..8).map(|_| set.choose_next(&mut credit)).collect();
        let count = |i| chosen.iter().filter(|c| **c == i).count();
        assert_eq!((count(0), count(1), count(2)), (5, 1, 2));
        assert!(chosen.windows(3).all(|w| w != [0, 0, 0]) || chosen[..2] != [0, 0]);
    }
}
