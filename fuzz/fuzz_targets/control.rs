//! Any bytes written to any control file of a packet generator, and any frame shown to its receiver.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    wb_pktgen::fuzz::exercise(bytes);
    if let Some(seen) = wb_pktgen_device::classify_pktgen(bytes) {
        assert!(seen.bytes <= 14 + 40 + 65_535);
    }
});
