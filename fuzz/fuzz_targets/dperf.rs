//! Arbitrary bytes as a configuration file of dperf: read, checked, printed and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wb_dperf::fuzz::exercise(bytes));
