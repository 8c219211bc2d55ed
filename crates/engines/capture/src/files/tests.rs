//! The number of complete records in the files at any time.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

use proptest::prelude::*;
use wb_model::capture::{DirectWrites, FileFormat};
use wb_pcapng::{CaptureDecoder, Event};

use super::*;
use crate::InterfaceSpec;
use crate::pool::{BufferPool, PageMemory, RecordBuffer};

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn monotonic_ns(&self) -> u64 {
        0
    }

    fn wall_ns(&self) -> u64 {
        0
    }
}

/// A buffer of a reader.
#[derive(Clone, Debug)]
struct Given {
    interface: u32,
    /// Frame lengths, repeated until it is full.
    lens: Vec<usize>,
    bytes: usize,
    /// Guessed position in a block.
    guess: usize,
    /// Held-back data is written after it.
    settles: bool,
}

const ROOM: usize = 600 << 10;
/// A size slightly above the limit below which nothing is held back.
const FEW_AND_MORE: usize = 300 << 10;

fn given() -> impl Strategy<Value = Given> {
    (
        0u32..2,
        prop::collection::vec(1usize..9000, 1..20),
        prop_oneof![1 => 1usize..FEW_AND_MORE, 3 => FEW_AND_MORE..ROOM],
        0usize..4096,
        prop::bool::weighted(0.2),
    )
        .prop_map(|(interface, lens, bytes, guess, settles)| Given {
            interface,
            lens,
            bytes,
            guess,
            settles,
        })
}

/// A buffer full of records, and their number.
fn buffer(given: &Given, encoding: Encoding, memory: PageMemory) -> RecordBuffer {
    let mut buffer = RecordBuffer::new(memory, given.interface, 0, given.guess);
    for len in given.lens.iter().cycle() {
        if buffer.len() + encoding.record_len(*len, 0) > given.bytes.max(9100) {
            break;
        }
        let frame = vec![*len as u8; *len];
        let stamp_ns = buffer.records * 1000;
        encoding.append_record(given.interface, stamp_ns, 9000, &frame, 0, &mut buffer);
        buffer.count();
    }
    buffer
}

/// Complete records in all files of a directory.
fn found(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap();
    let count = |file: io::Result<DirEntry>| {
        let mut decoder = CaptureDecoder::new();
        decoder.push(&fs::read(file.unwrap().path()).unwrap());
        let mut records = 0;
        while let Ok(Some(item)) = decoder.next_item() {
            records += u64::from(matches!(item.event, Event::Record(_)));
        }
        records
    };
    files.map(count).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// At any time the reported number of written frames equals the number in the files. All others are held back, and
    /// none at the end.
    #[test]
    fn what_is_counted_is_what_a_reader_finds(
        givens in prop::collection::vec(given(), 1..6),
        pcapng in any::<bool>(),
        rotate_bytes in prop_oneof![Just(0u64), 100_000u64..1_000_000],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let output = CaptureOutput {
            path: dir.path().join("out").to_str().unwrap().to_owned(),
            format: if pcapng { FileFormat::Pcapng } else { FileFormat::PcapNs },
            direct: DirectWrites::Always,
            rotate_bytes,
            ..CaptureOutput::default()
        };
        let encoding = Encoding::from(output.format);
        let interfaces = vec![InterfaceSpec::new("wb0"), InterfaceSpec::new("wb1")];
        let spec = CaptureSpec::new(interfaces, Some(output.clone()));
        let shared = Arc::new(CaptureShared::new(2, 2, Some(BufferPool::new(1, ROOM).unwrap())));
        let mut files = CaptureFiles::open(&spec, &output, encoding, None, &shared, 2, 0).unwrap();
        let (control, mut put) = (CaptureControl::new(), [0, 0]);
        for given in &givens {
            let memory = shared.pool.as_ref().and_then(BufferPool::take_buffer).unwrap();
            let mut buffer = buffer(given, encoding, memory);
            put[given.interface as usize] += buffer.records;
            files.write_buffer(&mut buffer, &control, &Still);
            if given.settles {
                files.write_held_back(&control, &Still);
            }
            shared.pool.as_ref().unwrap().return_buffer(buffer.memory);
            files.publish();
            prop_assert_eq!(shared.snapshot().written_frames, found(dir.path()));
            let held: u64 = files.current.iter().flat_map(|f| &f.held).map(|m| m.records).sum();
            prop_assert_eq!(files.outcome.written_frames + held, put.iter().sum::<u64>());
            prop_assert!(!given.settles || held == 0);
        }
        files.close_all(&control, &Still);
        prop_assert_eq!(&files.outcome.interface_frames[..], &put[..]);
        prop_assert_eq!(found(dir.path()), put.iter().sum::<u64>());
    }
}
