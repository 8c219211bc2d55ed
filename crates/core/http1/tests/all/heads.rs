//! Heads compared with the results of `httparse`.

use proptest::prelude::*;
use wb_http1::{Interim, Progress, Read, Reader};

/// Properties of a message according to the headers that `httparse` found.
#[derive(Default)]
struct Judge {
    length: Option<u64>,
    bad: bool,
    chunked: bool,
    close: bool,
    keep: bool,
    expects: bool,
}

impl Judge {
    fn new(headers: &[httparse::Header<'_>]) -> Self {
        let mut judge = Self::default();
        for header in headers {
            let value = String::from_utf8_lossy(header.value).to_ascii_lowercase();
            let words = || {
                let blanks = |word: &str| word.trim_matches([' ', '\t']).to_owned();
                value
                    .split(',')
                    .map(blanks)
                    .filter(|word| !word.is_empty())
                    .collect::<Vec<_>>()
            };
            match header.name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let digits =
                        !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                    let length = value.parse::<u64>().ok().filter(|n| digits && *n < 1 << 48);
                    judge.bad |=
                        length.is_none() || judge.length.is_some_and(|n| Some(n) != length);
                    judge.length = length;
                }
                "transfer-encoding" => {
                    if let Some(last) = words().last() {
                        judge.chunked = last == "chunked";
                    }
                }
                "connection" => {
                    judge.close |= words().iter().any(|word| word == "close");
                    judge.keep |= words().iter().any(|word| word == "keep-alive");
                }
                "expect" => judge.expects |= words().iter().any(|word| word == "100-continue"),
                _ => {}
            }
        }
        judge
    }
}

fn lines() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "Content-Length",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "CONNECTION",
        "Expect",
        "Host",
        "Content-Type",
        "C",
        "X-Y",
        "Contention",
        "Connec",
        "content-lengths",
    ]);
    let value = prop::sample::select(vec![
        "5",
        "0",
        "05",
        "12345678901234",
        "",
        "5 ",
        "5,5",
        "chunked",
        "gzip, Chunked",
        "chunked,gzip",
        "close",
        "Close,x",
        "keep-alive",
        "keep-alive , close",
        "closely",
        "100-continue",
        "100-Continue, x",
        "a: b",
        "\u{fc}",
    ]);
    let gap = prop::sample::select(vec!["", " ", "\t  "]);
    let eol = prop::sample::select(vec!["\r\n", "\n"]);
    let line = (name, gap, value, eol).prop_map(|(n, g, v, e)| format!("{n}:{g}{v}{e}"));
    prop::collection::vec(line, 0..6).prop_map(|lines| lines.concat())
}

/// Overwrites some bytes of a text.
fn spoil(text: String, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for (at, byte) in changes {
        let at = at % bytes.len();
        bytes[at] = *byte;
    }
    bytes
}

fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(b"\r\n :,;019aC\0\t".to_vec())
    ];
    prop::collection::vec((any::<usize>(), byte), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn responses_are_read_as_httparse_reads_them(
        start in prop::sample::select(vec![
            "HTTP/1.1 200 OK\r\n", "HTTP/1.0 302 Found\r\n", "HTTP/1.1 204\r\n", "HTTP/1.1 404 \n", "HTTP/1.1 500 a b\r\n",
        ]),
        lines in lines(),
        changes in changes(),
        to_head: bool,
    ) {
        let bytes = spoil(format!("{start}{lines}\r\n"), &changes);
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut judge = httparse::Response::new(&mut headers);
        let result = judge.parse(&bytes);
        // Only `httparse` skips empty lines here; only our reader rejects statuses of other classes.
        prop_assume!(bytes[0] == b'H' && judge.code.is_none_or(|code| (100..600).contains(&code)));
        let mut progress = Progress::NEW;
        progress.expect(to_head);
        let read = Reader::responses(Interim::Messages).read(&mut progress, &bytes);
        match result {
            Ok(httparse::Status::Complete(len)) => {
                let (version, code) = (judge.version.unwrap(), judge.code.unwrap());
                let head = Judge::new(judge.headers);
                if head.bad {
                    prop_assert_eq!(read, Read::Bad);
                } else if to_head || code < 200 || code == 204 || code == 304
                    || !head.chunked && head.length == Some(0) {
                    let Read::Message { used, status, end } = read else { panic!("{read:?}") };
                    prop_assert_eq!((used, status), (len, code));
                    prop_assert_eq!(end.close, code == 101 || head.close || version == 0 && !head.keep);
                    prop_assert_eq!(end.head_only, to_head);
                } else if len == bytes.len() {
                    prop_assert_eq!(read, Read::More);
                    let countable = progress.countable();
                    let wanted = match head.length {
                        _ if head.chunked => 0,
                        length => length.unwrap_or(u64::MAX),
                    };
                    prop_assert_eq!(countable, wanted);
                    prop_assert_eq!(progress.end().is_some(), wanted == u64::MAX);
                }
            }
            // `httparse` may wait for more bytes although the bytes so far are malformed.
            Ok(httparse::Status::Partial) => prop_assert!(matches!(read, Read::More | Read::Bad)),
            Err(_) => {}
        }
    }

    #[test]
    fn requests_are_read_as_httparse_reads_them(
        start in prop::sample::select(vec![
            "GET / HTTP/1.1\r\n", "HEAD /a.0 HTTP/1.0\r\n", "POST /x?y HTTP/1.1\n", "\r\nGET / HTTP/1.0\r\n", "HEAP / HTTP/1.1\r\n",
        ]),
        lines in lines(),
        changes in changes(),
    ) {
        let bytes = spoil(format!("{start}{lines}\r\n"), &changes);
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut judge = httparse::Request::new(&mut headers);
        let result = judge.parse(&bytes);
        let mut progress = Progress::NEW;
        let read = Reader::requests().read(&mut progress, &bytes);
        match result {
            Ok(httparse::Status::Complete(len)) => {
                let head = Judge::new(judge.headers);
                let old = judge.version == Some(0);
                if head.bad {
                    prop_assert_eq!(read, Read::Bad);
                } else if !head.chunked && head.length.unwrap_or(0) == 0 {
                    let Read::Message { used, status, end } = read else { panic!("{read:?}") };
                    prop_assert_eq!((used, status), (len, 0));
                    prop_assert_eq!(end.close, head.close || old && !head.keep);
                    prop_assert_eq!(end.keep_if_granted, old && head.keep);
                    prop_assert_eq!(end.head_only, judge.method == Some("HEAD"));
                } else if head.expects && !old {
                    prop_assert_eq!(read, Read::Expects { used: len });
                } else if len == bytes.len() {
                    prop_assert_eq!(read, Read::More);
                    prop_assert_eq!(progress.countable(), if head.chunked { 0 } else { head.length.unwrap() });
                }
                // The check of requests is stricter, but gives the same results.
                if let Ok(all) = wb_http1::requests(&bytes) {
                    prop_assert_eq!(all[0].head, judge.method == Some("HEAD"));
                }
            }
            Ok(httparse::Status::Partial) => prop_assert!(matches!(read, Read::More | Read::Bad)),
            Err(_) => {}
        }
    }
}
