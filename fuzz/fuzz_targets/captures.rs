//! Arbitrary bytes as a capture file, whole and in pieces: both readers end, agree, and stay within bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| wb_pcapng::fuzz::exercise(file));
