//! Any bytes as a capture file: the reader ends, and never hands out more than there is.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    if let Ok(reader) = wb_pcapng::Reader::new(file) {
        let mut captured = 0;
        for record in reader {
            let Ok(record) = record else { break };
            captured += record.captured.len();
        }
        assert!(captured <= file.len());
    }
});
