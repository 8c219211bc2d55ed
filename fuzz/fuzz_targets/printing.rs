//! Arbitrary bytes as a frame, printed with arbitrary options.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wb_tcpdump::fuzz::exercise(bytes));
