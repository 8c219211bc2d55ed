//! A test that cannot do its work on a machine says so here. The test runner would count it as passed and
//! hide why.
//!
//! `make test` names a file in `WB_SKIPPED`, which gets a line for each: package and program, test, and reason, with
//! tabs between. At the end it is counted and shown.

use std::{
    fmt::Display,
    fs::OpenOptions,
    io::{Write, stderr},
    path::Path,
    thread,
};

/// Says that the running test, or a part of it, is skipped, and why. The caller leaves it then.
pub fn skipped(reason: impl Display) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("?");
    // Not by the macros: what they print of a test that passes is hidden.
    let _ = writeln!(stderr(), "skipped: {test}: {reason}");
    if let Some(file) = std::env::var_os("WB_SKIPPED") {
        note(Path::new(&file), test, &reason.to_string());
    }
}

fn note(file: &Path, test: &str, reason: &str) {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Behind the dash is cargo's number for the build.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    // Most crates have one that is called `all`.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let reason = reason.replace(['\n', '\t'], " ");
    let line = format!("{package} {program}\t{test}\t{reason}\n");
    // In one piece, as other tests write too.
    let written = OpenOptions::new().create(true).append(true).open(file);
    written
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the file of what was skipped can be written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_program_test_and_reason() {
        let file = std::env::temp_dir().join(format!("wb-skip-{}", std::process::id()));
        note(&file, "a_test", "no\troot");
        note(&file, "another", "no tool");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(
            text,
            "wb-skip wb_skip\ta_test\tno root\nwb-skip wb_skip\tanother\tno tool\n"
        );
    }
}
