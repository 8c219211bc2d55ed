//! Header blocks are decoded as they were encoded, and according to RFC 7541.

use proptest::prelude::*;
use wb_http2::{Http2Step, encode, frame::code};

use crate::kit::{Seen, answer, greeting, read};

fn of_block(block: &[u8]) -> Seen {
    let mut stream = greeting(&[]);
    answer(1, block, &mut stream);
    read(1, &stream, usize::MAX)
}

fn text(block: &[u8]) -> String {
    let seen = of_block(block);
    assert_eq!(seen.fault, None, "{seen:?}");
    String::from_utf8(seen.heads[0].1.clone()).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn the_examples_of_the_rfc_are_read() {
    // RFC 7541 C.5.1 and C.6.1: fields for the table do not fit there.
    let head = "HTTP/2 302\r\ncache-control: private\r\ndate: Mon, 21 Oct 2013 20:13:21 GMT\r\n\
                location: https://www.example.com\r\n\r\n";
    let plain = bytes(
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
    );
    assert_eq!(text(&plain), head);
    let short = bytes(
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
    );
    assert_eq!(text(&short), head);
    // C.5.2 refers to the table.
    let later = of_block(&bytes("4803 3330 37c1 c0bf"));
    assert_eq!(later.fault.map(|f| f.code), Some(code::COMPRESSION_ERROR));
    // C.1.2: 1337 with a prefix of five bits, as a size of the table.
    assert!(of_block(&bytes("3f9a0a88")).fault.is_some());
    assert_eq!(text(&bytes("2088")), "HTTP/2 200\r\n\r\n");
}

#[test]
fn what_cannot_be_read_is_refused() {
    for block in [
        // Index 0, and 62.
        "80",
        "be",
        // Truncated in an integer, in a string, before the value.
        "ff",
        "00",
        "0005 6162",
        "0001 61",
        "4803",
        // An integer without end.
        "ffff ffff ffff 7f",
        // A table size above 0, and a table size after a field.
        "21",
        "8820",
        // Huffman code: an end symbol inside, eight bits of padding, and padding that is not part of the end symbol.
        "4884 ffff ffff",
        "4882 f8ff",
        "4882 1000",
    ] {
        let seen = of_block(&bytes(block));
        let code = seen.fault.map(|fault| fault.code);
        assert_eq!(code, Some(code::COMPRESSION_ERROR), "{block}: {seen:?}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        fields in prop::collection::vec(("[a-z][a-z0-9-]{0,20}", "[ -~]{0,200}", any::<bool>()), 0..10),
        status in 200_u16..600,
    ) {
        let fields: Vec<_> = fields.into_iter().filter(|(name, ..)| {
            !["content-length", "connection", "upgrade", "keep-alive"].contains(&name.as_str())
        }).collect();
        let mut block = Vec::new();
        encode::field(":status", &status.to_string(), &mut block);
        let mut wanted = format!("HTTP/2 {status}\r\n");
        for (name, value, short) in &fields {
            match short {
                true => {
                    encode::name(name, &mut block);
                    encode::short_string(value.as_bytes(), &mut block);
                }
                false => encode::field(name, value, &mut block),
            }
            wanted += &format!("{name}: {value}\r\n");
        }
        prop_assert_eq!(text(&block), wanted + "\r\n");
    }

    #[test]
    fn codes_hold_any_bytes(value in prop::collection::vec(any::<u8>(), 0..100)) {
        let fits = !value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n'));
        let mut block = vec![0x88];
        encode::name("x-a", &mut block);
        encode::short_string(&value, &mut block);
        let seen = of_block(&block);
        prop_assert_eq!(seen.fault, None);
        let ended = Http2Step::Ended { of: 0, status: 200 };
        prop_assert_eq!(seen.steps.last() == Some(&ended), fits);
        if fits {
            let wanted = [b"HTTP/2 200\r\nx-a: ", &value[..], b"\r\n\r\n"].concat();
            prop_assert_eq!(&seen.heads[0].1, &wanted);
        }
    }

    #[test]
    fn any_block_is_read_or_refused(block in prop::collection::vec(any::<u8>(), 0..60)) {
        of_block(&block);
    }
}
