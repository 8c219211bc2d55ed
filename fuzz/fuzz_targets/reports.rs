//! Reports from elsewhere: shown in every form, compared, and merged with a later run of the same plan.
//!
//! Begin with recorded reports: `cargo +nightly fuzz run reports crates/front/render/tests/all/samples`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_model::{
    Report,
    merge::{Part, merge},
};
use wb_render::{
    csv, junit,
    report::{Run, document, html, markdown},
    text::{self, Options},
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(report) = serde_json::from_slice::<Report>(bytes) else {
        return;
    };
    let run = |name: &str| Run {
        name: name.to_owned(),
        report: report.clone(),
    };
    let _ = text::report(&report, &Options::default());
    let _ = (csv::report(&report), junit::report(&report));
    let _ = html(&document(&[run("a")]));
    let _ = markdown(&document(&[run("a"), run("b")]));
    let part = |name: &str, started_ns| Part {
        name: name.to_owned(),
        started_ns,
        report: report.clone(),
    };
    if let Ok(merged) = merge(vec![part("a", 0), part("b", 1)]) {
        let _ = text::report(&merged, &Options::default());
    }
});
