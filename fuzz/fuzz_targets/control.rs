//! Arbitrary bytes written to any control file of the packet generator, and arbitrary frames for its receiver.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    wb_pktgen::fuzz::exercise(bytes);
    if let Some(seen) = wb_pktgen_device::classify_pktgen(bytes) {
        assert!(seen.bytes <= 14 + 40 + 65_535);
    }
});
