//! Contents of a capture file, compared with the frames sent.

use std::{fs::File, io::Read as _, path::Path};

use wb_pcapng::{CaptureDecoder, Event};
use wb_wire::Tag;

use super::{Stopped, look};
use crate::{Result, TestbedError};

/// Offset of the test tag behind Ethernet, IPv4 without options, and UDP, in bytes.
const TAG_OFFSET: usize = 14 + 20 + 8;

/// Contents of a capture file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) frames: u64,
    /// Number of distinct test frames.
    pub(super) distinct: u64,
    pub(super) duplicates: u64,
    pub(super) foreign: u64,
    /// Reason why the file could not be read to its end.
    pub(super) damage: Option<String>,
}

/// Reads a file to its end; expects the test frames 0 to `sent` - 1.
pub(super) fn contents(path: &Path, sent: u64, stopped: Stopped<'_>) -> Result<Contents> {
    let failed = || TestbedError::io("read", path.display().to_string());
    let mut file = File::open(path).map_err(failed())?;
    let mut decoder = CaptureDecoder::new();
    let mut seen = Seen::new(sent);
    let mut contents = Contents::default();
    loop {
        look(stopped)?;
        let len = file.read(decoder.space(4 << 20)).map_err(failed())?;
        if len == 0 {
            decoder.finish();
        }
        decoder.filled(len);
        loop {
            match decoder.next_item() {
                Ok(Some(item)) => {
                    if let Event::Record(record) = item.event {
                        contents.frames += 1;
                        let tag = record.captured.get(TAG_OFFSET..).and_then(Tag::read);
                        match tag.map(|t| seen.note(t.sequence)) {
                            Some(Some(true)) => contents.distinct += 1,
                            Some(Some(false)) => contents.duplicates += 1,
                            Some(None) | None => contents.foreign += 1,
                        }
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    contents.damage = Some(error.to_string());
                    return Ok(contents);
                }
            }
        }
        if len == 0 {
            return Ok(contents);
        }
    }
}

/// Set of seen sequence numbers, from 0.
struct Seen {
    words: Vec<u64>,
    numbers: u64,
}

impl Seen {
    fn new(numbers: u64) -> Self {
        let words = usize::try_from(numbers.div_ceil(64)).unwrap_or(0);
        Self {
            words: vec![0; words],
            numbers,
        }
    }

    /// Returns true if the number is new, or `None` if it is out of range.
    fn note(&mut self, number: u32) -> Option<bool> {
        let word = self.words.get_mut(number as usize / 64)?;
        if u64::from(number) >= self.numbers {
            return None;
        }
        let bit = 1 << (number % 64);
        let first = *word & bit == 0;
        *word |= bit;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use wb_pcapng::{LINK_ETHERNET, PcapWriter};

    use super::*;

    #[test]
    fn a_file_is_compared_frame_by_frame() {
        let mut file = Vec::new();
        let mut writer = PcapWriter::new(LINK_ETHERNET, &mut file);
        for sequence in [0, 1, 1, 3, 70] {
            let mut frame = [0; 60];
            let tag = Tag {
                flow: 0,
                sequence,
                time_ns: 1,
            };
            tag.write(frame[TAG_OFFSET..].first_chunk_mut().unwrap());
            writer.record(1, 60, &frame, &mut file);
        }
        writer.record(1, 60, &[0; 60], &mut file);
        let path = std::env::temp_dir().join(format!("wb-self-test-unit-{}", std::process::id()));
        std::fs::write(&path, &file).unwrap();
        let all = contents(&path, 70, &|| None).unwrap();
        assert_eq!((all.frames, all.distinct), (6, 3));
        assert_eq!((all.duplicates, all.foreign), (1, 2));
        assert!(all.damage.is_none());
        std::fs::write(&path, &file[..file.len() - 1]).unwrap();
        let cut = contents(&path, 70, &|| None).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(cut.frames, 5);
        assert!(cut.damage.is_some());
    }
}
