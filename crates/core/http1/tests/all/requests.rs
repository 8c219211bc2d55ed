//! Requests that are built, and texts of requests that are checked.

use proptest::prelude::*;
use wb_http1::{RequestError, RequestInfo, TextFault, Version, request, requests};

fn made(
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> Result<String, RequestError> {
    let bytes = request(
        method,
        target,
        Version::New,
        headers,
        body.map(str::as_bytes),
    )?;
    Ok(String::from_utf8(bytes).expect("ASCII"))
}

const HOST: (&str, &str) = ("Host", "a");

#[test]
fn a_request_is_written_with_its_length() {
    let get = made("GET", "/x?y=z", &[HOST, ("A", "b c")], None).unwrap();
    assert_eq!(get, "GET /x?y=z HTTP/1.1\r\nHost: a\r\nA: b c\r\n\r\n");
    let post = made("POST", "/", &[HOST], Some("hello")).unwrap();
    assert_eq!(
        post,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    );
    let empty = made("POST", "/", &[HOST], Some("")).unwrap();
    assert_eq!(
        empty,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    );
    let none: [(&str, &str); 0] = [];
    let old = request("GET", "/", Version::Old, &none, None).unwrap();
    assert_eq!(old, b"GET / HTTP/1.0\r\n\r\n");
}

#[test]
fn what_would_be_another_request_is_refused() {
    for method in ["", "G T", "GET\r\n", "G\0", "G:T", "\u{fc}"] {
        let error = made(method, "/", &[HOST], None).unwrap_err();
        assert!(matches!(error, RequestError::Method(_)), "{error}");
    }
    for target in ["", "/a b", "/\r\nX: y", "/\n", "/\0", "/\t", "/\u{7f}"] {
        let error = made("GET", target, &[HOST], None).unwrap_err();
        assert!(matches!(error, RequestError::Target(_)), "{error}");
        assert!(!error.to_string().contains('\n'));
    }
    for name in ["", "A B", "A\r\nB", "A:", "A\0", " A"] {
        let error = made("GET", "/", &[HOST, (name, "x")], None).unwrap_err();
        assert!(matches!(error, RequestError::HeaderName(_)), "{error}");
    }
    for value in ["a\r\nB: c", "a\nb", "a\rb", "\0"] {
        let error = made("GET", "/", &[HOST, ("A", value)], None).unwrap_err();
        assert_eq!(error, RequestError::HeaderValue("A".into()));
    }
    for name in ["content-length", "Transfer-Encoding"] {
        let error = made("POST", "/", &[HOST, (name, "5")], Some("hello")).unwrap_err();
        assert_eq!(error, RequestError::Framing(name.into()));
    }
    assert_eq!(
        made("GET", "/", &[("Hos", "a")], None),
        Err(RequestError::Host)
    );
    assert_eq!(
        made("GET", "/", &[HOST, ("HOST", "b")], None),
        Err(RequestError::Host)
    );
}

#[test]
fn a_text_is_told_apart_into_its_requests() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\nHEAD /x HTTP/1.0\n\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\
        PUT / HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    let asked = |len, head, close| RequestInfo { len, head, close };
    let all = requests(text.as_bytes()).unwrap();
    let last = text.len() - 27 - 18 - 41;
    assert_eq!(
        all,
        [
            asked(27, false, false),
            asked(18, true, true),
            asked(41, false, false),
            asked(last, false, true),
        ]
    );
    // An empty line behind a body belongs to the request.
    let all = requests(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\na\r\n").unwrap();
    assert_eq!(all, [asked(41, false, false)]);
}

#[test]
fn faults_have_a_line_and_a_column() {
    use TextFault::*;
    let get = "GET / HTTP/1.1\r\n";
    for (text, fault, line, column) in [
        ("GET / HTTP/1.1\r\nHost", Incomplete, 2, 5),
        ("", Incomplete, 1, 1),
        ("\r\n", Incomplete, 2, 1),
        ("GET", Incomplete, 1, 4),
        ("GET / HTTP/1.1", Incomplete, 1, 15),
        ("GET / HTTP/1.1\r\n", Incomplete, 2, 1),
        ("GET / HTTP/1.1\r\nHost: a\r\n", Incomplete, 3, 1),
        ("GET / HTTP/1.1\r\n\r", Incomplete, 2, 2),
        (
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab",
            Incomplete,
            4,
            3,
        ),
        ("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n", Incomplete, 4, 1),
        (" GET / HTTP/1.1\r\n\r\n", Method, 1, 1),
        ("G:T / HTTP/1.1\r\n\r\n", Method, 1, 2),
        ("GET  / HTTP/1.1\r\n\r\n", Target, 1, 5),
        ("GET /\0 HTTP/1.1\r\n\r\n", Version, 1, 6),
        ("GET /a b HTTP/1.1\r\n\r\n", Version, 1, 8),
        ("GET /\r\n\r\n", Version, 1, 6),
        ("GET / HTTP/1.2\r\n\r\n", Version, 1, 14),
        ("GET / HTTP/1.10\r\n\r\n", Version, 1, 15),
        ("GET / HTTP/2.0\r\n\r\n", Version, 1, 12),
    ] {
        let error = requests(text.as_bytes()).unwrap_err();
        assert_eq!(
            (error.fault, error.line, error.column),
            (fault, line, column),
            "{text:?}"
        );
    }
    for (lines, fault, line, column) in [
        ("A b: c\r\n\r\n", Header, 2, 2),
        ("A: b\r\n c\r\n\r\n", Header, 3, 1),
        ("A: b\0\r\n\r\n", Header, 2, 5),
        ("A: b\rc\r\n\r\n", Header, 2, 6),
        (": b\r\n\r\n", Header, 2, 1),
        ("A: b\r\nContent-Length: 5x\r\n\r\n", Length, 3, 18),
        ("Content-Length: \r\n\r\n", Length, 2, 17),
        (
            "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
            Length,
            3,
            17,
        ),
        ("Content-Length: x\r\nA b: c\r\n\r\n", Length, 2, 17),
        ("A b: c\r\nContent-Length: x\r\n\r\n", Header, 2, 2),
        ("Transfer-Encoding: chunked\r\n\r\nx\r\n", Chunk, 4, 1),
        (
            "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
            Chunk,
            5,
            2,
        ),
    ] {
        let error = requests(format!("{get}{lines}").as_bytes()).unwrap_err();
        assert_eq!(
            (error.fault, error.line, error.column),
            (fault, line, column),
            "{lines:?}"
        );
    }
    let error = requests(b"GET / HTTP/1.1\r\nHost").unwrap_err();
    assert_eq!(error.to_string(), "incomplete request at 2:5");
}

proptest! {
    #[test]
    fn what_is_made_passes_the_check(
        parts in prop::collection::vec((
            prop::sample::select(vec!["GET", "HEAD", "POST", "M-SEARCH"]),
            "/[!-~]{0,20}",
            any::<bool>(),
            prop::collection::vec(("[A-Za-z-]{1,12}", "[ -~\t]{0,20}"), 0..4),
            prop::option::of(prop::collection::vec(any::<u8>(), 0..50)),
        ), 1..4),
    ) {
        let (mut text, mut wanted) = (Vec::new(), Vec::new());
        for (method, target, old, mut headers, body) in parts {
            let version = if old { Version::Old } else { Version::New };
            headers.retain(|(name, _)| {
                !["host", "connection", "expect"].contains(&name.to_ascii_lowercase().as_str())
            });
            headers.push(("Host".into(), "a".into()));
            let one = request(method, &target, version, &headers, body.as_deref()).unwrap();
            wanted.push(RequestInfo { len: one.len(), head: method == "HEAD", close: old });
            text.extend_from_slice(&one);
        }
        // The last body may end like an empty line, but no request begins with one.
        prop_assert_eq!(requests(&text).unwrap(), wanted);
    }

    #[test]
    fn any_text_is_checked_without_panic(text in prop::collection::vec(any::<u8>(), 0..100), head: bool) {
        let mut bytes = if head { b"GET / HTTP/1.1\r\n".to_vec() } else { Vec::new() };
        bytes.extend_from_slice(&text);
        if let Ok(all) = requests(&bytes) {
            prop_assert_eq!(all.iter().map(|asked| asked.len).sum::<usize>(), bytes.len());
        }
    }
}
