//! wrk's check of the first request of a script. In places it accepts more than a server would, and its messages are
//! those of wrk's HTTP parser.

/// Counts the requests in a text. If there are several, the last may be cut off.
///
/// # Errors
///
/// wrk's message about the first wrong byte, with its line and column.
pub(super) fn count_requests(text: &[u8]) -> Result<usize, String> {
    let mut reader = RequestReader { text, at: 0 };
    let mut whole = 0;
    let fault = loop {
        match reader.read_request() {
            Ok(AllowedAfter::Any) => whole += 1,
            Ok(AllowedAfter::Nothing) => {
                whole += 1;
                reader.blank_lines();
                if reader.at < text.len() {
                    break "data received after completed connection: close message";
                }
            }
            Ok(AllowedAfter::Foreign) if reader.at == text.len() => return Ok(whole + 1),
            Err(ReadHalt::End) if whole > 0 => return Ok(whole),
            Ok(AllowedAfter::Foreign) | Err(ReadHalt::End) => break "incomplete request",
            Err(ReadHalt::Fault(fault)) => break fault,
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
enum AllowedAfter {
    Any,
    /// The request ends the connection.
    Nothing,
    /// The following bytes are not HTTP and are not checked.
    Foreign,
}

/// Reason why reading stopped.
enum ReadHalt {
    End,
    /// Fault at the next byte.
    Fault(&'static str),
}

type ReadStep<T = ()> = Result<T, ReadHalt>;

/// Framing of the message according to its headers.
#[derive(Default)]
struct MessageFraming {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep: bool,
    upgrade: bool,
    upgrades: bool,
}

struct RequestReader<'a> {
    text: &'a [u8],
    /// Position of the next byte.
    at: usize,
}

impl RequestReader<'_> {
    fn next(&self) -> ReadStep<u8> {
        self.text.get(self.at).copied().ok_or(ReadHalt::End)
    }

    /// Consumes one byte that satisfies `is`; any other byte is a fault.
    fn take_byte(&mut self, is: impl FnOnce(u8) -> bool, fault: &'static str) -> ReadStep<u8> {
        let byte = self.next()?;
        if !is(byte) {
            return Err(ReadHalt::Fault(fault));
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
    fn line_end(&mut self, fault: &'static str) -> ReadStep {
        if self.next()? == b'\r' {
            self.at += 1;
        }
        self.take_byte(|byte| byte == b'\n', fault).map(|_| ())
    }

    /// Reads one request with its body.
    fn read_request(&mut self) -> ReadStep<AllowedAfter> {
        self.blank_lines();
        let is_tunnel = self.read_method()?;
        self.run(|byte| byte == b' ');
        self.read_target(is_tunnel)?;
        let keeps = self.read_version()?;
        let mut frame = MessageFraming::default();
        self.read_headers(&mut frame)?;
        self.take_line_feed()?;
        let has_body = frame.chunked || frame.length.is_some_and(|length| length > 0);
        if is_tunnel || frame.upgrade && frame.upgrades && !has_body {
            return Ok(AllowedAfter::Foreign);
        }
        if frame.chunked {
            self.read_chunks()?;
        } else {
            self.skip_bytes(frame.length.unwrap_or(0))?;
        }
        Ok(match frame {
            _ if frame.upgrade && frame.upgrades => AllowedAfter::Foreign,
            _ if frame.close || !keeps && !frame.keep => AllowedAfter::Nothing,
            _ => AllowedAfter::Any,
        })
    }

    /// Reads the method and returns true if it is CONNECT.
    fn read_method(&mut self) -> ReadStep<bool> {
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
                return Err(ReadHalt::Fault(METHOD));
            }
            self.at += 1;
        }
    }

    fn read_target(&mut self, is_tunnel: bool) -> ReadStep {
        let first = self.next()?;
        if is_tunnel {
            self.read_authority()?;
        } else if first.is_ascii_alphabetic() {
            self.run(|byte| byte.is_ascii_alphabetic());
            for wanted in b"://" {
                self.take_byte(|byte| byte == *wanted, URL)?;
            }
            self.read_authority()?;
        } else {
            self.take_byte(|byte| matches!(byte, b'/' | b'*'), URL)?;
        }
        self.run(|byte| byte.is_ascii_graphic());
        match self.next()? {
            b' ' | b'\r' | b'\n' => Ok(()),
            _ => Err(ReadHalt::Fault(URL)),
        }
    }

    /// Reads the authority part of a target.
    fn read_authority(&mut self) -> ReadStep {
        let is = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'();:&=+$,%@[]".contains(&byte);
        if matches!(self.next()?, b' ' | b'\r' | b'\n') {
            return Err(ReadHalt::Fault(URL));
        }
        self.run(is);
        match self.next()? {
            b' ' | b'\r' | b'\n' | b'/' | b'?' => Ok(()),
            _ => Err(ReadHalt::Fault(URL)),
        }
    }

    /// Reads the version and returns true if its connections are persistent by default.
    fn read_version(&mut self) -> ReadStep<bool> {
        if self.next()? != b' ' {
            self.line_end(LINE_FEED)?;
            return Ok(false);
        }
        self.run(|byte| byte == b' ');
        self.take_byte(|byte| byte == b'H', CONSTANT)?;
        for wanted in b"TTP/" {
            self.take_byte(|byte| byte == *wanted, STRICT)?;
        }
        let major = self.take_byte(|byte| byte.is_ascii_digit(), VERSION)?;
        self.take_byte(|byte| byte == b'.', VERSION)?;
        let minor = self.take_byte(|byte| byte.is_ascii_digit(), VERSION)?;
        if !matches!(self.next()?, b'\r' | b'\n') {
            return Err(ReadHalt::Fault(VERSION));
        }
        self.line_end(LINE_FEED)?;
        Ok(major > b'0' && minor > b'0')
    }

    /// Reads all header lines up to the LF of the empty line.
    fn read_headers(&mut self, frame: &mut MessageFraming) -> ReadStep {
        loop {
            match self.next()? {
                b'\n' => return self.check_framing(frame),
                b'\r' => {
                    self.at += 1;
                    if self.next()? != b'\n' {
                        return Err(ReadHalt::Fault(STRICT));
                    }
                    return self.check_framing(frame);
                }
                _ => self.read_header(frame)?,
            }
        }
    }

    /// At the last byte of the head, rejects chunked coding together with a Content-Length.
    fn check_framing(&self, frame: &MessageFraming) -> ReadStep {
        match frame {
            MessageFraming {
                chunked: true,
                length: Some(_),
                ..
            } => Err(ReadHalt::Fault(TWO_LENGTHS)),
            _ => Ok(()),
        }
    }

    fn take_line_feed(&mut self) -> ReadStep {
        self.take_byte(|byte| byte == b'\n', STRICT).map(|_| ())
    }

    fn read_header(&mut self, frame: &mut MessageFraming) -> ReadStep {
        let start = self.at;
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        self.take_byte(is_token, HEADER)?;
        self.run(is_token);
        let name = self.text[start..self.at].to_ascii_lowercase();
        self.take_byte(|byte| byte == b':', HEADER)?;
        let is_length = name == b"content-length";
        let mut value = Vec::new();
        loop {
            self.run(|byte| matches!(byte, b' ' | b'\t'));
            let first = self.next()?;
            let fault = if value.is_empty() && matches!(first, b'\r' | b'\n') {
                STRICT
            } else {
                if is_length {
                    self.read_length(frame)?;
                }
                let start = self.at;
                if !is_length && !matches!(first, b'\r' | b'\n') {
                    // The first byte is not checked.
                    self.at += 1;
                }
                self.run(|byte| byte == b'\t' || byte >= b' ' && byte != 0x7f);
                value.extend_from_slice(&self.text[start..self.at]);
                if !matches!(self.next()?, b'\r' | b'\n') {
                    return Err(ReadHalt::Fault(HEADER));
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
    fn read_length(&mut self, frame: &mut MessageFraming) -> ReadStep {
        if !self.next()?.is_ascii_digit() {
            return Err(ReadHalt::Fault(LENGTH));
        }
        if frame.length.is_some() {
            return Err(ReadHalt::Fault(TWO_LENGTHS));
        }
        let mut length = 0;
        while !matches!(self.next()?, b'\r' | b'\n') {
            if self.next()? != b' ' {
                let digit = self.next()?;
                let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'));
                length = self.append_digit(length, 10, digit.ok_or(ReadHalt::Fault(LENGTH))?)?;
            }
            self.at += 1;
        }
        frame.length = Some(length);
        Ok(())
    }

    /// Appends one digit to a number.
    fn append_digit(&self, number: u64, base: u64, digit: u64) -> ReadStep<u64> {
        if number > (u64::MAX - base) / base {
            return Err(ReadHalt::Fault(LENGTH));
        }
        Ok(number * base + digit)
    }

    fn skip_bytes(&mut self, len: u64) -> ReadStep {
        let rest = self.text.len() - self.at;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.at += len.min(rest);
        if len > rest {
            Err(ReadHalt::End)
        } else {
            Ok(())
        }
    }

    /// Reads a chunked body with its trailers.
    fn read_chunks(&mut self) -> ReadStep {
        loop {
            let hex = |byte: u8| (byte as char).to_digit(16).map(u64::from);
            let mut len = hex(self.next()?).ok_or(ReadHalt::Fault(CHUNK))?;
            self.at += 1;
            while let Some(digit) = hex(self.next()?) {
                len = self.append_digit(len, 16, digit)?;
                self.at += 1;
            }
            if matches!(self.next()?, b';' | b' ') {
                self.run(|byte| byte != b'\r');
            }
            self.take_byte(|byte| byte == b'\r', CHUNK)?;
            self.take_line_feed()?;
            if len == 0 {
                self.read_headers(&mut MessageFraming::default())?;
                return self.take_line_feed();
            }
            self.skip_bytes(len)?;
            self.take_byte(|byte| byte == b'\r', STRICT)?;
            self.take_line_feed()?;
        }
    }
}
