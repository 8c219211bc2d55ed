//! Entry point for fuzzers: arbitrary bytes as configuration files.

use crate::{Config, TranslateOptions, accepted, check, is_configuration, parse, translate};

/// Reads `bytes` as a file, checks it in both modes, prints it and reads it again, and
/// translates it.
///
/// # Panics
/// If the printed text reads differently, which is the defect to find.
pub fn exercise(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = is_configuration(&text);
    let parsed = parse("fuzz.conf", &text);
    assert_eq!(parsed.config.is_some(), accepted(&parsed.problems));
    for strict in [false, true] {
        for problem in check("fuzz.conf", &text, strict) {
            assert_eq!(problem.to_string().lines().count(), 1, "{problem:?}");
        }
    }
    if let Some(config) = parsed.config {
        let printed = config.to_string();
        let again = parse("printed.conf", &printed);
        assert_eq!(again.config.as_ref(), Some(&config), "{printed}");
        exercise_plan(&config);
    }
}

/// Asserts that a checked configuration with known devices can be translated, or has a problem with a line.
fn exercise_plan(config: &Config) {
    let known = |(n, port): (usize, &crate::config::Port)| {
        let locator = format!("p{n}").parse().expect("a short name");
        (port.device.to_string(), locator)
    };
    let locators = config.ports.iter().enumerate().map(known).collect();
    let good = accepted(&config.check(false));
    match translate(config, &TranslateOptions { locators }) {
        Ok(made) => {
            assert!(good);
            assert_eq!(made.ports.len(), config.ports.len());
            assert_eq!(made.jobs.len(), config.ports.len());
            assert!(made.jobs.iter().all(|job| job.problems().is_empty()));
        }
        Err(problems) => {
            assert!(!accepted(&problems));
            assert!(
                !good || problems.iter().all(|p| p.line.is_some()),
                "{problems:#?}"
            );
        }
    }
}
