//! Arbitrary sequence numbers in any order: every frame is counted once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_measure::Analyser;

fuzz_target!(|bytes: &[u8]| {
    let mut analyser = Analyser::planned(4);
    let (mut now, mut frames) = (1_u64, 0_u64);
    for chunk in bytes.chunks_exact(8) {
        let sequence = u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        now += u64::from(chunk[4]);
        analyser.on_frame(
            u32::from(chunk[5] % 5),
            sequence,
            now.saturating_sub(u64::from(chunk[6])),
            now,
            64,
        );
        frames += 1;
    }
    let counters = analyser.counters();
    assert_eq!(counters.received_frames + counters.foreign_frames, frames);
    assert!(counters.duplicate_frames <= counters.received_frames);
});
