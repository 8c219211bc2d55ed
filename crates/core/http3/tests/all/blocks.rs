//! Header blocks: RFC 9204.

use proptest::prelude::*;
use wb_http2::blocks::{BlockError, Coding as _};
use wb_http3::qpack::{self, Qpack};

/// Decodes all fields of a block.
fn fields(mut block: &[u8]) -> Result<Vec<(String, String)>, BlockError> {
    Qpack::begin(&mut block)?;
    let mut all = Vec::new();
    while !block.is_empty() {
        let mut field = Vec::new();
        let split = Qpack::field(&mut block, all.is_empty(), &mut field)?.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        all.push((text(&field[..split]), text(&field[split..])));
    }
    Ok(all)
}

fn block(all: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    qpack::begin(&mut block);
    for (name, value) in all {
        qpack::field(name, value, &mut block);
    }
    block
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let bytes = digits.chunks(2).map(|two| two.iter().collect::<String>());
    bytes
        .map(|two| u8::from_str_radix(&two, 16).unwrap())
        .collect()
}

#[test]
fn the_examples_of_rfc_9204_appendix_b() {
    let first = hex("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    let path = [(":path".to_owned(), "/index.html".to_owned())];
    assert_eq!(fields(&first).unwrap(), path);
    assert_eq!(block(&[(":path", "/index.html")]), first);
    // All others refer to a dynamic table, which is not available here.
    for dynamic in ["0381 10 11", "050080 c181", "038010 11", "0500 8081"] {
        let wrong = BlockError::Block("header block refers to the empty dynamic table");
        assert_eq!(fields(&hex(dynamic)), Err(wrong), "{dynamic}");
    }
}

#[test]
fn fields_are_written_by_their_numbers_where_they_have_one() {
    for (name, value, wanted) in [
        (":authority", "", "c0"),
        (":method", "GET", "d1"),
        (":scheme", "https", "d7"),
        (":status", "200", "d9"),
        (":status", "100", "ff00"),
        ("x-frame-options", "sameorigin", "ff23"),
        ("user-agent", "", "ff20"),
        ("user-agent", "a", "5f50 01 61"),
        (":status", "201", "5f09 03 323031"),
        ("x", "y", "21 78 01 79"),
        ("longname", "", "27 01 6c6f6e676e616d65 00"),
    ] {
        let wanted = [vec![0, 0], hex(wanted)].concat();
        assert_eq!(block(&[(name, value)]), wanted, "{name}: {value}");
        let field = (name.to_owned(), value.to_owned());
        assert_eq!(fields(&wanted).unwrap(), [field]);
    }
    // Every index is a different field, and the field is encoded as that index.
    let mut seen = Vec::new();
    for number in 0..99_usize {
        let mut bytes = vec![0, 0];
        wb_http2::encode::integer(number, 6, 0xc0, &mut bytes);
        let [field] = &fields(&bytes).unwrap()[..] else {
            panic!("{number}")
        };
        assert_eq!(block(&[(&field.0, &field.1)]), bytes, "{field:?}");
        assert!(!seen.contains(field), "{field:?}");
        seen.push(field.clone());
    }
    assert!(fields(&hex("0000 ff24")).is_err());
}

#[test]
fn strings_in_fewer_bits_and_fields_never_to_be_kept() {
    // "200" in Huffman code, by name index, without and with the never-indexed bit.
    assert_eq!(fields(&hex("0000 5f09 82 1001")).unwrap()[0].1, "200");
    assert_eq!(fields(&hex("0000 7f09 82 1001")).unwrap()[0].1, "200");
    // A name in Huffman code.
    let mut block = hex("0000 2a 1001 01 79");
    assert_eq!(
        fields(&block).unwrap()[0],
        ("200".to_owned(), "y".to_owned())
    );
    // Invalid padding.
    block[3] = 0x10;
    block[4] = 0x00;
    assert!(fields(&block).is_err());
}

#[test]
fn what_is_cut_off_cannot_be_read() {
    let whole = hex("0000 5f09 03 323031 21 78 01 79");
    for end in 0..whole.len() {
        match (end, fields(&whole[..end])) {
            (2, Ok(none)) => assert!(none.is_empty()),
            (8, Ok(one)) => assert_eq!(one.len(), 1),
            (_, result) => assert!(result.is_err(), "{end}"),
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        all in prop::collection::vec(("[a-z0-9:-]{0,40}", "[ -~]{0,300}"), 0..8)
    ) {
        let refs: Vec<(&str, &str)> = all.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        prop_assert_eq!(fields(&block(&refs)).unwrap(), all);
    }

    #[test]
    fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut rest = &bytes[..];
        let _ = Qpack::begin(&mut rest);
        let mut field = Vec::new();
        while !rest.is_empty() && Qpack::field(&mut rest, false, &mut field).is_ok() {}
    }
}
