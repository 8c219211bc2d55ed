//! A test that cannot do its work on a machine says so here. The test runner would count it as passed and
//! hide why.
//!
//! `make test` names a file in `WB_SKIPPED`, which gets a line for each: package and program, test, and reason, with
//! tabs between. At the end it is counted and shown.

use std::{
    fmt::Display,
    fs::OpenOptions,
    io::{Write, stderr},
    path::{Path, PathBuf},
    thread,
};

/// Says that the running test, or a part of it, is skipped, and why. The caller leaves it then.
pub fn skipped(reason: impl Display) {
    let thread = thread::current();
    let named = thread.name().filter(|name| *name != "main");
    let test = named.map_or_else(test_of_process, str::to_owned);
    // Not by the macros: what they print of a test that passes is hidden.
    let _ = writeln!(stderr(), "skipped: {test}: {reason}");
    if let Some(file) = std::env::var_os("WB_SKIPPED") {
        note(Path::new(&file), &test, &reason.to_string());
    }
}

/// Returns true if all these programs are installed, and names those that are missing otherwise. A path stands for
/// itself.
pub fn installed(programs: &[impl AsRef<Path>]) -> bool {
    let missing = missing(programs);
    for program in &missing {
        skipped(format_args!("{} is not installed", program.display()));
    }
    missing.is_empty()
}

/// The programs that are in no folder of the search path.
fn missing<P: AsRef<Path>>(programs: &[P]) -> Vec<&Path> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    let found = |name: &Path| folders.iter().any(|folder| folder.join(name).exists());
    let names = programs.iter().map(AsRef::as_ref);
    names.filter(|name| !found(name)).collect()
}

/// Name of the only test of this process, as cargo-nextest gives it.
fn test_of_process() -> String {
    std::env::var("NEXTEST_TEST_NAME").unwrap_or_else(|_| "?".to_owned())
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
    fn programs_are_found_or_named() {
        assert!(installed(&["sh", "/dev/null"]));
        assert_eq!(
            missing(&["sh", "no-such-program"]),
            [Path::new("no-such-program")]
        );
    }

    #[test]
    fn a_line_names_program_test_and_reason() {
        let file = std::env::temp_dir().join(format!("wb-testing-{}", std::process::id()));
        note(&file, "a_test", "no\troot");
        note(&file, "another", "no tool");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(
            text,
            "wb-testing wb_testing\ta_test\tno root\nwb-testing wb_testing\tanother\tno tool\n"
        );
    }
}
