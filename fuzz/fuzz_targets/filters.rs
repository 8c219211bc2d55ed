//! Arbitrary instructions on arbitrary packets: an accepted program ends and reads nothing outside the packet.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wb_filter::fuzz::exercise(bytes));
