//! Arbitrary words, separated by zero bytes, as wrk's command line: no panics, and an accepted command can run.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let words: Vec<String> = bytes
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    match wb_wrk::wrk("wrk", &words) {
        Ok(command) => {
            assert!(command.threads >= 1 && command.threads <= command.connections);
            assert!(command.duration >= 1);
            // Every request needs a Host header.
            assert!(!command.url.authority().is_empty());
        }
        Err(stop) => assert!(stop.exit <= 1 && !(stop.stdout.is_empty() && stop.stderr.is_empty())),
    }
});
