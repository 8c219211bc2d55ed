//! Valid and malformed messages: RFC 9112 sections 4, 6 and 7.

use wb_http1::{Interim, Reader};

use crate::stream::{Outcome, bytes, read};

fn response(text: &str) -> Outcome {
    let fresh = || Reader::responses(Interim::Skipped);
    let whole = read(&mut fresh(), &[], &[text.as_bytes()]);
    assert_eq!(
        read(&mut fresh(), &[], &bytes(text.as_bytes())),
        whole,
        "{text:?}"
    );
    whole
}

/// Returns the body of the one message that consists of this head and `hello`, or `None` if it is malformed.
fn body(lines: &str) -> Option<Vec<u8>> {
    let out = response(&format!("HTTP/1.1 200 OK\r\n{lines}\r\nhello"));
    assert!(out.bad || out.messages.len() == 1, "{lines:?}: {out:?}");
    out.messages.into_iter().next().map(|seen| seen.body)
}

#[test]
fn a_length_is_digits_and_no_sign() {
    for sound in [
        "5",
        " 5",
        "\t5 \t",
        "005",
        "0000000000000000000000000000005",
    ] {
        let lines = format!("Content-Length:{sound}\r\n");
        assert_eq!(body(&lines).as_deref(), Some(&b"hello"[..]), "{sound}");
    }
    for none in [
        "", " ", "+5", "-5", "5x", "x", "0x5", "5.0", "5,5", "5, 5", "5 5", "\"5\"", "5;",
    ] {
        assert_eq!(body(&format!("Content-Length:{none}\r\n")), None, "{none}");
    }
}

#[test]
fn a_length_has_48_bits_at_most() {
    let longest = (1u64 << 48) - 1;
    let out = response(&format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {longest}\r\n\r\na"
    ));
    assert!(!out.bad && out.within && out.end.is_none());
    for more in ["281474976710656", "18446744073709551617", &"9".repeat(40)] {
        assert_eq!(body(&format!("Content-Length: {more}\r\n")), None);
    }
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(!response(&format!("{chunked}{longest:x}\r\na")).bad);
    for more in ["1000000000000", "10000000000000001", &"f".repeat(40)] {
        assert!(response(&format!("{chunked}{more}\r\n")).bad);
    }
}

#[test]
fn lengths_given_twice_must_be_the_same() {
    let twice = |a: &str, b: &str| {
        body(&format!(
            "Content-Length: {a}\r\nX: y\r\ncontent-length: {b}\r\n"
        ))
    };
    for (a, b) in [("5", "5"), ("5", "005"), ("005", "5 ")] {
        assert_eq!(twice(a, b).as_deref(), Some(&b"hello"[..]), "{a} and {b}");
    }
    for (a, b) in [
        ("5", "6"),
        ("5", "0"),
        ("0", "5"),
        ("5", "55"),
        ("15", "5"),
        ("5", ""),
        ("5", "+5"),
        ("50", "5"),
    ] {
        assert_eq!(twice(a, b), None, "{a} and {b}");
    }
    let none = |a: &str, b: &str| {
        let out = response(&format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {a}\r\nContent-Length: {b}\r\n\r\n"
        ));
        (out.bad, out.messages.len())
    };
    assert_eq!(none("0", "000"), (false, 1));
    assert_eq!(none("0", ""), (true, 0));
    let long = "281474976710655";
    let out = response(&format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {long}\r\nContent-Length: 0{long}\r\n\r\n"
    ));
    assert!(!out.bad && out.within);
}

#[test]
fn chunks_win_over_a_length() {
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    for lines in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "TRANSFER-encoding: gzip\r\nTransfer-Encoding: Chunked\r\n",
    ] {
        let out = response(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n{chunks}"));
        assert_eq!(out.messages.len(), 1, "{lines}");
        assert_eq!(out.messages[0].body, b"hello");
    }
}

#[test]
fn only_the_last_coding_frames() {
    // Without chunk framing the length counts, or else the end of the stream.
    for other in [
        "gzip",
        "chunked, gzip",
        "xchunked",
        "chunkedx",
        "chun ked",
        "identity",
        "",
    ] {
        let lines = format!("Transfer-Encoding: {other}\r\nContent-Length: 5\r\n");
        assert_eq!(body(&lines).as_deref(), Some(&b"hello"[..]), "{other}");
        let out = response(&format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: {other}\r\n\r\nhello"
        ));
        assert_eq!((out.end, out.rest.1.len()), (Some(200), 5), "{other}");
    }
}

#[test]
fn a_name_is_all_before_the_colon() {
    for other in [
        "Content-Length : 3",
        " Content-Length: 3",
        "XContent-Length: 3",
        "Content-Length",
        "Content-Lengt: 3",
    ] {
        let lines = format!("{other}\r\nContent-Length: 5\r\n");
        assert_eq!(body(&lines).as_deref(), Some(&b"hello"[..]), "{other}");
    }
}

#[test]
fn lines_end_with_lf() {
    let out = response("HTTP/1.1 200 OK\nContent-Length: 5\nConnection: close\n\nhello");
    assert_eq!(out.messages[0].body, b"hello");
    assert!(out.messages[0].end.close);
    let out = response("HTTP/1.1 200\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n");
    assert_eq!(out.messages[0].body, b"hello");
    // CR alone does not end a line.
    let out = response("HTTP/1.1 200 OK\rContent-Length: 5\r\rhello");
    assert!(out.messages.is_empty() && out.within && !out.bad);
    assert!(response("HTTP/1.1 200 OK\r\nContent-Length: 5\rX: y\r\n\r\n").bad);
}

#[test]
fn a_status_line_has_a_version_and_three_digits() {
    for sound in [
        "HTTP/1.1 200 OK",
        "HTTP/1.0 200",
        "HTTP/1.1 200 ",
        "HTTP/1.9 200 \u{fc}",
    ] {
        let out = response(&format!("{sound}\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(out.messages.len(), 1, "{sound}");
        assert_eq!(out.messages[0].status, 200);
        assert_eq!(out.messages[0].end.close, sound.contains("1.0"), "{sound}");
    }
    for none in [
        "",
        "\r\nHTTP/1.1 200 OK",
        " HTTP/1.1 200 OK",
        "http/1.1 200 OK",
        "HTTP/2 200",
        "HTTP/2.0 200 OK",
        "HTTP/1.x 200 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 20x OK",
        "HTTP/1.1 099 OK",
        "HTTP/1.1 600 OK",
        "HTTP/1.1 -20 OK",
        "HTTP/1.1",
        "HTTP/1.1 ",
        "SSH-2.0-x",
        "\0\0\0",
        "HTTP/1.1 200OK",
        "ICY 200 OK",
    ] {
        assert!(
            response(&format!("{none}\r\nContent-Length: 0\r\n\r\n")).bad,
            "{none:?}"
        );
    }
}

#[test]
fn some_statuses_have_no_body() {
    for status in ["204 No Content", "304 Not Modified"] {
        for lines in [
            "",
            "Content-Length: 9\r\n",
            "Transfer-Encoding: chunked\r\n",
        ] {
            let text = format!("HTTP/1.1 {status}\r\n{lines}\r\n");
            let out = response(&text.repeat(2));
            assert_eq!(out.messages.len(), 2, "{text}");
            assert!(!out.messages[0].end.close);
        }
    }
    for status in [200, 203, 205, 214, 303, 305, 404] {
        let out = response(&format!(
            "HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nab"
        ));
        assert_eq!(out.messages[0].body, b"ab", "{status}");
    }
}

#[test]
fn chunks_have_sizes_extensions_and_trailers() {
    let chunked = |text: &str| {
        response(&format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{text}"
        ))
    };
    for sound in [
        "5\r\nhello\r\n0\r\n\r\n",
        "05\r\nhello\r\n000\r\n\r\n",
        "2;a=b\r\nhe\r\n3 ; c\r\nllo\r\n0;d\r\n\r\n",
        "1\r\nh\r\n4\r\nello\r\n0\r\nTrailer: x\r\nContent-Length: 7\r\n\r\n",
    ] {
        let out = chunked(sound);
        assert_eq!(out.messages.len(), 1, "{sound:?}");
        assert_eq!(out.messages[0].body, b"hello");
        assert!(out.messages[0].head.ends_with(b"chunked\r\n\r\n"));
    }
    for none in [
        "\r\nhello",
        ";a\r\n",
        "x\r\n",
        "+5\r\nhello\r\n",
        "-5\r\nhello",
        "5x\r\nhello",
        "5\r\nhellox\r\n",
        "5\r\nhello5\r\n",
        "5\r\nhello\r\n\r\n",
        "4\r\nhello\r\n",
        "0x5\r\nhello",
        "G\r\n",
    ] {
        assert!(chunked(none).bad, "{none:?}");
    }
    for half in [
        "5",
        "5\r",
        "5\r\n",
        "5\r\nhel",
        "5\r\nhello",
        "5\r\nhello\r\n",
        "0",
        "0\r\n",
        "0\r\n\r",
        "0\r\nT: x\r\n",
    ] {
        let out = chunked(half);
        assert!(!out.bad && out.within && out.end.is_none(), "{half:?}");
        assert!(out.messages.is_empty());
    }
}
