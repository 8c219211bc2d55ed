//! Any words of wrk's command line, parted by zero bytes: nothing panics, and what is to be run can be run.
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
            // The first request is checked in wrk's words.
            assert!(!command.url.authority().is_empty());
        }
        Err(stop) => assert!(stop.exit <= 1 && !(stop.stdout.is_empty() && stop.stderr.is_empty())),
    }
});
