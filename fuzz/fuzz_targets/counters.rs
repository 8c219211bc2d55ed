//! Arbitrary text as kernel tables, and arbitrary words as sar's command line: no panics, and masks round-trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_counters::{Folded, device::Group, interrupts, softnet};

fuzz_target!(|text: &str| {
    for line in text.lines() {
        let _ = Folded::parse(line);
        let _ = Group::from_counter_name(line).title();
        if let Some(cpus) = interrupts::parse_mask(line) {
            assert_eq!(interrupts::parse_mask(&interrupts::format_mask(&cpus)), Some(cpus));
        }
    }
    let rows = softnet::parse(text, || vec![0, 2]);
    for (before, now) in rows.iter().zip(rows.iter().skip(1)) {
        let _ = now.since(before);
    }
    for interrupt in interrupts::parse(text) {
        assert!(interrupt.counts.len() <= text.len());
    }
    let words: Vec<String> = text.split_whitespace().map(ToOwned::to_owned).collect();
    let _ = wb_sar::parse(&words);
});
