//! Laws for all files, whatever their bytes.

use crate::{
    CaptureDecoder, CaptureInterface, CaptureReader, CaptureSummary, EnhancedPacket, Error, Event,
    IntactPart, MAX_FRAME, MAX_METADATA, PcapngWriter, Record, max_captured,
};

/// Reads `bytes` as a capture file in several ways and compares the results.
///
/// Reading as a whole and in pieces gives the same blocks, the same error and the same offset. The blocks cover the
/// file up to there without a gap. The intact part reads again without an error. Every frame can be written and read
/// back. Memory stays within its limits.
///
/// # Panics
/// One of these laws is broken.
pub fn exercise(bytes: &[u8]) {
    let end = whole(bytes);
    // With pieces or a part of the file, the reader may infer a different layout.
    if CaptureReader::new(bytes).is_ok_and(|reader| reader.has_other_layout()) {
        return;
    }
    let piece = match bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) {
        0 => usize::MAX,
        size => size.into(),
    };
    pieces(bytes, piece, &end);
    repaired(bytes, &end);
}

/// State at the end of reading.
struct FuzzEnd {
    whole: IntactPart,
    error: Option<Error>,
}

/// Reads the file as one slice.
fn whole(bytes: &[u8]) -> FuzzEnd {
    let mut reader = match CaptureReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => {
            assert_eq!(error.offset, 0, "the header is at the start");
            return FuzzEnd {
                whole: IntactPart::default(),
                error: Some(error),
            };
        }
    };
    let mut summary = CaptureSummary::default();
    let mut at = 0;
    let error = loop {
        match reader.next_item() {
            Ok(Some(item)) => {
                assert_eq!(item.offset, at as u64, "no gap");
                assert_eq!(item.bytes, &bytes[at..at + item.bytes.len()]);
                assert!(!item.bytes.is_empty(), "moves on");
                at += item.bytes.len();
                summary.add(&item);
                if let Event::Record(record) = &item.event {
                    let known = item.interfaces.get(record.interface as usize);
                    let known = known.expect("of a known interface");
                    assert_eq!(record.link_type, known.link_type);
                    written_again(record);
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let whole = reader.whole();
    assert_eq!(whole.offset, at as u64);
    assert_eq!(summary.file_bytes, whole.offset);
    assert_eq!(summary.total.packets, whole.records);
    let of_each: u64 = summary.interfaces.iter().map(|i| i.counts.packets).sum();
    assert_eq!(of_each, whole.records);
    match &error {
        Some(error) => assert_eq!(error.offset, whole.offset),
        None => assert_eq!(at, bytes.len(), "all is read"),
    }
    assert!(reader.next_item().is_ok_and(|item| item.is_none()));
    FuzzEnd { whole, error }
}

/// Reads the same file in pieces of this size.
fn pieces(bytes: &[u8], size: usize, end: &FuzzEnd) {
    let size = size.min(bytes.len().max(1));
    let mut reader = CaptureReader::new(bytes).ok();
    let mut decoder = CaptureDecoder::new();
    let mut error = None;
    let mut chunks = bytes.chunks(size);
    loop {
        match chunks.next() {
            Some(chunk) => decoder.push(chunk),
            None => decoder.finish(),
        }
        let limit = 2 * (MAX_FRAME.min(bytes.len()) + size) + MAX_METADATA;
        assert!(decoder.memory() <= limit, "memory within its limits");
        let finished = chunks.len() == 0;
        loop {
            match decoder.next_item() {
                Ok(Some(item)) => {
                    let reader = reader.as_mut().expect("has a header");
                    assert_eq!(reader.next_item(), Ok(Some(item)));
                }
                Ok(None) => break,
                Err(found) => {
                    error = Some(found);
                    break;
                }
            }
        }
        if error.is_some() {
            break;
        }
        if finished {
            decoder.finish();
            error = decoder.next_item().err();
            break;
        }
    }
    assert_eq!(error, end.error);
    assert_eq!(decoder.whole(), end.whole);
}

/// Reads the intact part of the file.
fn repaired(bytes: &[u8], end: &FuzzEnd) {
    let kept = &bytes[..end.whole.offset as usize];
    if kept.is_empty() {
        return;
    }
    let mut reader = CaptureReader::new(kept).expect("its header is whole");
    // The records behind this part may have been the ones that ruled out the other layout.
    if reader.has_other_layout() {
        return;
    }
    let records = reader.by_ref().map(|record| record.expect("is whole"));
    assert_eq!(records.count() as u64, end.whole.records);
    assert_eq!(reader.whole(), end.whole);
}

/// Writes a frame with our writer and reads it again.
fn written_again(record: &Record<'_>) {
    assert!(record.captured.len() <= max_captured(record.link_type));
    let mut file = Vec::new();
    let mut writer = PcapngWriter::new("", &mut file);
    let interface = writer.describe(&CaptureInterface::new(record.link_type), &mut file);
    let packet = EnhancedPacket {
        interface,
        ticks: record.stamp_ns,
        original_len: record.original_len,
        captured: record.captured,
        options: record.options,
    };
    writer.packet(&packet, &mut file);
    let mut reader = CaptureReader::new(&file).expect("we wrote it");
    let again = Record {
        interface,
        stamped: true,
        ..*record
    };
    assert_eq!(reader.next(), Some(Ok(again)));
    assert_eq!(reader.next(), None);
}
