//! Any instructions on any packet: what passes the check ends, and reads nothing outside.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wb_filter::fuzz::exercise(bytes));
