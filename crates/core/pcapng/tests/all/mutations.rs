//! Many damaged files. To test a million, optionally with another seed:
//! `WB_SEED=7 cargo test -p wb-pcapng --test all mutations -- --ignored --nocapture`.

use crate::reference::{self, Piece};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use wb_pcapng::{CaptureReader, FormatProblem, fuzz};

/// xorshift64*: the same seed gives the same files on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Builds intact files of both formats and byte orders.
fn originals() -> Vec<Vec<u8>> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut files = Vec::new();
    for n in 0..24 {
        let order = reference::Order { big: n % 2 == 1 };
        let file = reference::file().new_tree(&mut runner).unwrap().current();
        let packets: Vec<_> = file
            .pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Packet(p) => Some(p.clone()),
                _ => None,
            })
            .collect();
        files.push(reference::pcapng(&file, order).concat());
        files.push(reference::pcap(&packets, 1, n % 4 < 2, order).concat());
    }
    files
}

/// Changes a file in one to four places, as a bad disk, a faulty program or an attacker would.
fn damage(file: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    const NUMBERS: [u32; 12] = [
        0,
        1,
        3,
        4,
        12,
        16,
        262_144,
        262_145,
        1 << 24,
        i32::MAX as u32,
        u32::MAX - 3,
        u32::MAX,
    ];
    for _ in 0..=random.below(4) {
        let at = random.below(file.len());
        match random.below(8) {
            0 if !file.is_empty() => file[at] ^= 1 << random.below(8),
            1 if !file.is_empty() => file[at] = random.next() as u8,
            // In pcapng, integers are aligned to four bytes.
            2 | 3 if file.len() >= 4 => {
                let at = (at & !3).min(file.len() - 4);
                let number = NUMBERS[random.below(NUMBERS.len())];
                let bytes = if random.below(2) == 0 {
                    number.to_le_bytes()
                } else {
                    number.to_be_bytes()
                };
                file[at..at + 4].copy_from_slice(&bytes);
            }
            4 => file.truncate(at),
            5 => {
                let end = at + random.below(file.len() - at);
                file.drain(at..end);
            }
            6 => {
                let end = at + random.below((file.len() - at).min(100));
                let copy = file[at..end].to_vec();
                let to = random.below(file.len());
                file.splice(to..to, copy);
            }
            _ => {
                let other = &others[random.below(others.len())];
                file.truncate(at & !3);
                file.extend_from_slice(&other[random.below(other.len()) & !3..]);
            }
        }
    }
}

fn run(count: u64, seed: u64) {
    let originals = originals();
    let mut random = Random(seed.max(1));
    let (mut whole, mut records, mut kinds) = (0u64, 0u64, [0u64; 9]);
    let started = std::time::Instant::now();
    for n in 0..count {
        let mut file = originals[random.below(originals.len())].clone();
        damage(&mut file, &originals, &mut random);
        let outcome = std::panic::catch_unwind(|| fuzz::exercise(&file));
        if outcome.is_err() {
            let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!("seed {seed}, file {n}: {hex}");
        }
        let problem = match CaptureReader::new(&file) {
            Ok(mut reader) => {
                let error = reader.by_ref().find_map(Result::err);
                records += reader.whole().records;
                error
            }
            Err(error) => Some(error),
        };
        match problem.map(|error| error.problem) {
            None => whole += 1,
            Some(problem) => kinds[kind(&problem)] += 1,
        }
    }
    println!(
        "{count} damaged files, seed {seed}: {whole} read to the end, {records} frames; errors \
         {kinds:?}; {:.1} s",
        started.elapsed().as_secs_f64()
    );
    // Damage must cause every kind of error, except for the metadata limit, for which files are too small.
    assert!(whole > 0 && records > 0);
    assert!(kinds[..8].iter().all(|n| *n > 0), "{kinds:?}");
}

fn kind(problem: &FormatProblem) -> usize {
    match problem {
        FormatProblem::UnknownFormat(_) => 0,
        FormatProblem::TruncatedHeader => 1,
        FormatProblem::Truncated { .. } => 2,
        FormatProblem::TooLarge { .. } => 3,
        FormatProblem::BlockLength { .. } => 4,
        FormatProblem::ByteOrder(_) => 5,
        FormatProblem::Version { .. } => 6,
        FormatProblem::UnknownInterface { .. } => 7,
        FormatProblem::TooMuchMetadata(_) => 8,
    }
}

#[test]
fn two_hundred_thousand_damaged_files() {
    run(200_000, 1);
}

#[test]
#[ignore = "takes long; see the head of this file"]
fn a_million_damaged_files() {
    let seed = std::env::var("WB_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    run(1_000_000, seed.unwrap_or(2));
}
