//! Arbitrary bytes as HTTP/1 messages: no panics, the result does not depend on the pieces, and an accepted request
//! reads as it was checked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_http1::{Interim, Progress, Read, Reader, MessageSink, requests};

/// All events, in order.
#[derive(Default, PartialEq, Debug)]
struct Seen {
    heads: Vec<u8>,
    bodies: Vec<u8>,
    interim: usize,
    /// End position and content of each message.
    messages: Vec<(usize, Read)>,
    /// Result at the end of the stream; `None` if the stream is bad.
    end: Option<(Option<u16>, bool)>,
}

impl MessageSink for Seen {
    fn head(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
    }

    fn body(&mut self, bytes: &[u8]) {
        self.bodies.extend_from_slice(bytes);
    }

    fn interim(&mut self) {
        self.interim += 1;
    }
}

fn reader(kind: u8) -> Reader {
    match kind & 3 {
        0 => Reader::requests(),
        1 => Reader::responses(Interim::Skipped),
        2 => Reader::responses(Interim::Messages),
        _ => Reader::responses(Interim::Skipped).to_head(),
    }
}

fn read(reader: &mut Reader, kind: u8, stream: &[u8], piece_len: usize) -> Seen {
    let (mut progress, mut seen, mut base) = (Progress::NEW, Seen::default(), 0);
    for piece in stream.chunks(piece_len.max(1)) {
        let mut rest = piece;
        while !rest.is_empty() {
            // The bits of the first byte, used cyclically, select the messages that answer HEAD.
            progress.expect(kind >> (2 + seen.messages.len() % 6) & 1 == 1);
            let read = reader.read_with(&mut progress, rest, &mut seen);
            let used = match read {
                Read::More => rest.len(),
                Read::Message { used, .. } | Read::Expects { used } => used,
                Read::Bad => return seen,
            };
            base += used;
            rest = &rest[used..];
            match read {
                Read::Message { status, end, .. } => {
                    let used = 0;
                    seen.messages.push((base, Read::Message { used, status, end }));
                }
                Read::Expects { .. } => seen.messages.push((base, Read::Expects { used: 0 })),
                _ => {}
            }
        }
    }
    seen.end = Some((progress.end(), progress.is_within()));
    seen
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[kind, piece_len], stream)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let mut used = reader(kind);
    let whole = read(&mut used, kind, stream, stream.len());
    let pieces = read(&mut reader(kind), kind, stream, piece_len.into());
    // For a bad stream, the reported bytes depend on the pieces.
    assert_eq!(pieces.messages, whole.messages);
    assert_eq!(pieces.end, whole.end);
    if whole.end.is_some() {
        assert_eq!(pieces, whole);
    }
    assert_eq!(read(&mut used, kind, stream, stream.len()), whole);

    let Ok(all) = requests(stream) else {
        return;
    };
    let seen = read(&mut reader(0), 0, stream, stream.len());
    let ends = seen.messages.iter().filter_map(|(_, read)| match read {
        Read::Message { end, .. } => Some((end.head_only, end.close)),
        _ => None,
    });
    assert!(ends.eq(all.iter().map(|asked| (asked.head, asked.close))));
    assert_eq!(all.iter().map(|asked| asked.len).sum::<usize>(), stream.len());
});
