//! wrk's check of the first request of a script. In places it accepts more than a server would, and its messages are
//! those of wrk's HTTP parser.

/// Counts the requests in a text. If there are several, the last may be cut off.
///
/// # Errors
///
/// wrk's message about the first wrong byte, with its line and column.
pub(super) fn check(text: &[u8]) -> Result<usize, String> {
    let mut reader = Reader { text, at: 0 };
    let mut whole = 0;
    let fault = loop {
        match reader.message() {
            Ok(After::Any) => whole += 1,
            Ok(After::Nothing) => {
                whole += 1;
                reader.blank_lines();
                if reader.at < text.len() {
                    break "data received after completed connection: close message";
                }
            }
            Ok(After::Foreign) if reader.at == text.len() => return Ok(whole + 1),
            Err(Halt::End) if whole > 0 => return Ok(whole),
            Ok(After::Foreign) | Err(Halt::End) => break "incomplete request",
            Err(Halt::Fault(fault)) => break fault,
        }
    };
    let before = &text[..reader.at];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    Err(format!("{fault} at {line}:{}", before.len() - start + 1))
}

const METHODS: &[&str] = &[
    "ACL",
    "BIND",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LINK",
    "LOCK",
    "M-SEARCH",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MOVE",
    "NOTIFY",
    "OPTIONS",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "PUT",
    "REBIND",
    "REPORT",
    "SEARCH",
    "SUBSCRIBE",
    "TRACE",
    "UNBIND",
    "UNLINK",
    "UNLOCK",
    "UNSUBSCRIBE",
];

const METHOD: &str = "invalid HTTP method";
const URL: &str = "invalid URL";
const VERSION: &str = "invalid HTTP version";
const CONSTANT: &str = "invalid constant string";
const HEADER: &str = "invalid character in header";
const LENGTH: &str = "invalid character in content-length header";
const TWO_LENGTHS: &str = "unexpected content-length header";
const CHUNK: &str = "invalid character in chunk size header";
const LINE_FEED: &str = "LF character expected";
const STRICT: &str = "strict mode assertion failed";

/// Bytes allowed after a request.
enum After {
    Any,
    /// The request ends the connection.
    Nothing,
    /// The following bytes are not HTTP and are not checked.
    Foreign,
}

/// Reason why reading stopped.
enum Halt {
    End,
    /// Fault at the next byte.
    Fault(&'static str),
}

type Step<T = ()> = Result<T, Halt>;

/// Framing of the message according to its headers.
#[derive(Default)]
struct Frame {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep: bool,
    upgrade: bool,
    upgrades: bool,
}

struct Reader<'a> {
    text: &'a [u8],
    /// Position of the next byte.
    at: usize,
}

impl Reader<'_> {
    fn next(&self) -> Step<u8> {
        self.text.get(self.at).copied().ok_or(Halt::End)
    }

    /// Consumes one byte that satisfies `is`; any other byte is a fault.
    fn take(&mut self, is: impl FnOnce(u8) -> bool, fault: &'static str) -> Step<u8> {
        let byte = self.next()?;
        if !is(byte) {
            return Err(Halt::Fault(fault));
        }
        self.at += 1;
        Ok(byte)
    }

    /// Consumes bytes while they satisfy `is`.
    fn run(&mut self, is: impl Fn(u8) -> bool) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|byte| is(**byte)).count();
    }

    fn blank_lines(&mut self) {
        self.run(|byte| matches!(byte, b'\r' | b'\n'));
    }

    /// Consumes a line end: LF, or CR and LF.
    fn line_end(&mut self, fault: &'static str) -> Step {
        if self.next()? == b'\r' {
            self.at += 1;
        }
        self.take(|byte| byte == b'\n', fault).map(|_| ())
    }

    /// Reads one request with its body.
    fn message(&mut self) -> Step<After> {
        self.blank_lines();
        let is_tunnel = self.method()?;
        self.run(|byte| byte == b' ');
        self.target(is_tunnel)?;
        let keeps = self.version()?;
        let mut frame = Frame::default();
        self.headers(&mut frame)?;
        self.take_line_feed()?;
        let has_body = frame.chunked || frame.length.is_some_and(|length| length > 0);
        if is_tunnel || frame.upgrade && frame.upgrades && !has_body {
            return Ok(After::Foreign);
        }
        if frame.chunked {
            self.chunks()?;
        } else {
            self.pass(frame.length.unwrap_or(0))?;
        }
        Ok(match frame {
            _ if frame.upgrade && frame.upgrades => After::Foreign,
            _ if frame.close || !keeps && !frame.keep => After::Nothing,
            _ => After::Any,
        })
    }

    /// Reads the method and returns true if it is CONNECT.
    fn method(&mut self) -> Step<bool> {
        let start = self.at;
        loop {
            let byte = self.next()?;
            let word = &self.text[start..self.at];
            if byte == b' ' && METHODS.iter().any(|method| method.as_bytes() == word) {
                return Ok(word == b"CONNECT");
            }
            let word = &self.text[start..=self.at];
            if !METHODS
                .iter()
                .any(|method| method.as_bytes().starts_with(word))
            {
                return Err(Halt::Fault(METHOD));
            }
            self.at += 1;
        }
    }

    fn target(&mut self, is_tunnel: bool) -> Step {
        let first = self.next()?;
        if is_tunnel {
            self.server()?;
        } else if first.is_ascii_alphabetic() {
            self.run(|byte| byte.is_ascii_alphabetic());
            for wanted in b"://" {
                self.take(|byte| byte == *wanted, URL)?;
            }
            self.server()?;
        } else {
            self.take(|byte| matches!(byte, b'/' | b'*'), URL)?;
        }
        self.run(|byte| byte.is_ascii_graphic());
        match self.next()? {
            b' ' | b'\r' | b'\n' => Ok(()),
            _ => Err(Halt::Fault(URL)),
        }
    }

    /// Reads the authority part of a target.
    fn server(&mut self) -> Step {
        let is = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'();:&=+$,%@[]".contains(&byte);
        if matches!(self.next()?, b' ' | b'\r' | b'\n') {
            return Err(Halt::Fault(URL));
        }
        self.run(is);
        match self.next()? {
            b' ' | b'\r' | b'\n' | b'/' | b'?' => Ok(()),
            _ => Err(Halt::Fault(URL)),
        }
    }

    /// Reads the version and returns true if its connections are persistent by default.
    fn version(&mut self) -> Step<bool> {
        if self.next()? != b' ' {
            self.line_end(LINE_FEED)?;
            return Ok(false);
        }
        self.run(|byte| byte == b' ');
        self.take(|byte| byte == b'H', CONSTANT)?;
        for wanted in b"TTP/" {
            self.take(|byte| byte == *wanted, STRICT)?;
        }
        let major = self.take(|byte| byte.is_ascii_digit(), VERSION)?;
        self.take(|byte| byte == b'.', VERSION)?;
        let minor = self.take(|byte| byte.is_ascii_digit(), VERSION)?;
        if !matches!(self.next()?, b'\r' | b'\n') {
            return Err(Halt::Fault(VERSION));
        }
        self.line_end(LINE_FEED)?;
        Ok(major > b'0' && minor > b'0')
    }

    /// Reads all header lines up to the LF of the empty line.
    fn headers(&mut self, frame: &mut Frame) -> Step {
        loop {
            match self.next()? {
                b'\n' => return self.framed(frame),
                b'\r' => {
                    self.at += 1;
                    if self.next()? != b'\n' {
                        return Err(Halt::Fault(STRICT));
                    }
                    return self.framed(frame);
                }
                _ => self.header(frame)?,
            }
        }
    }

    /// At the last byte of the head, rejects chunked coding together with a Content-Length.
    fn framed(&self, frame: &Frame) -> Step {
        match frame {
            Frame {
                chunked: true,
                length: Some(_),
                ..
            } => Err(Halt::Fault(TWO_LENGTHS)),
            _ => Ok(()),
        }
    }

    fn take_line_feed(&mut self) -> Step {
        self.take(|byte| byte == b'\n', STRICT).map(|_| ())
    }

    fn header(&mut self, frame: &mut Frame) -> Step {
        let start = self.at;
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        self.take(is_token, HEADER)?;
        self.run(is_token);
        let name = self.text[start..self.at].to_ascii_lowercase();
        self.take(|byte| byte == b':', HEADER)?;
        let is_length = name == b"content-length";
        let mut value = Vec::new();
        loop {
            self.run(|byte| matches!(byte, b' ' | b'\t'));
            let first = self.next()?;
            let fault = if value.is_empty() && matches!(first, b'\r' | b'\n') {
                STRICT
            } else {
                if is_length {
                    self.length(frame)?;
                }
                let start = self.at;
                if !is_length && !matches!(first, b'\r' | b'\n') {
                    // The first byte is not checked.
                    self.at += 1;
                }
                self.run(|byte| byte == b'\t' || byte >= b' ' && byte != 0x7f);
                value.extend_from_slice(&self.text[start..self.at]);
                if !matches!(self.next()?, b'\r' | b'\n') {
                    return Err(Halt::Fault(HEADER));
                }
                LINE_FEED
            };
            self.line_end(fault)?;
            if !matches!(self.next()?, b' ' | b'\t') {
                break;
            }
        }
        value.make_ascii_lowercase();
        match name.as_slice() {
            b"connection" | b"proxy-connection" => {
                for word in value.split(|byte| *byte == b',') {
                    match word.trim_ascii() {
                        b"close" => frame.close = true,
                        b"keep-alive" => frame.keep = true,
                        b"upgrade" => frame.upgrades = true,
                        _ => {}
                    }
                }
            }
            b"transfer-encoding" if value.trim_ascii_end() == b"chunked" => frame.chunked = true,
            b"upgrade" => frame.upgrade = true,
            _ => {}
        }
        Ok(())
    }

    /// Reads a Content-Length up to the end of its line. Skips blanks within the line.
    fn length(&mut self, frame: &mut Frame) -> Step {
        if !self.next()?.is_ascii_digit() {
            return Err(Halt::Fault(LENGTH));
        }
        if frame.length.is_some() {
            return Err(Halt::Fault(TWO_LENGTHS));
        }
        let mut length = 0;
        while !matches!(self.next()?, b'\r' | b'\n') {
            if self.next()? != b' ' {
                let digit = self.next()?;
                let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'));
                length = self.longer(length, 10, digit.ok_or(Halt::Fault(LENGTH))?)?;
            }
            self.at += 1;
        }
        frame.length = Some(length);
        Ok(())
    }

    /// Appends one digit to a number.
    fn longer(&self, number: u64, base: u64, digit: u64) -> Step<u64> {
        if number > (u64::MAX - base) / base {
            return Err(Halt::Fault(LENGTH));
        }
        Ok(number * base + digit)
    }

    fn pass(&mut self, len: u64) -> Step {
        let rest = self.text.len() - self.at;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.at += len.min(rest);
        if len > rest { Err(Halt::End) } else { Ok(()) }
    }

    /// Reads a chunked body with its trailers.
    fn chunks(&mut self) -> Step {
        loop {
            let hex = |byte: u8| (byte as char).to_digit(16).map(u64::from);
            let mut len = hex(self.next()?).ok_or(Halt::Fault(CHUNK))?;
            self.at += 1;
            while let Some(digit) = hex(self.next()?) {
                len = self.longer(len, 16, digit)?;
                self.at += 1;
            }
            if matches!(self.next()?, b';' | b' ') {
                self.run(|byte| byte != b'\r');
            }
            self.take(|byte| byte == b'\r', CHUNK)?;
            self.take_line_feed()?;
            if len == 0 {
                self.headers(&mut Frame::default())?;
                return self.take_line_feed();
            }
            self.pass(len)?;
            self.take(|byte| byte == b'\r', STRICT)?;
            self.take_line_feed()?;
        }
    }
}
