//! Compiles the BPF programs in `bpf/` of a crate. The crate's `build.rs` includes this file.

use std::path::Path;
use std::process::Command;

/// Compiles every `bpf/NAME.bpf.c` of the crate to `NAME.bpf.o`.
pub(crate) fn build() {
    let out = variable("OUT_DIR");
    // Headers of the linked libbpf.
    let headers = variable("DEP_BPF_INCLUDE");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    for source in std::fs::read_dir("bpf").expect("the crate has programs") {
        let source = source.expect("a file of the crate").path();
        let program = source.file_stem().expect("a file").to_string_lossy();
        let mut command = Command::new(&clang);
        // -g: emits the types of maps (BTF).
        command.args([
            "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror",
        ]);
        // Reproducible output in any build folder.
        command.arg("-fdebug-compilation-dir=.");
        command.arg(format!("-I{headers}"));
        if let Some(folder) = multiarch_include() {
            command.arg(format!("-I{folder}"));
        }
        command.arg("-c").arg(&source);
        command.args(["-o", &format!("{out}/{program}.o")]);
        let done = command.status();
        assert!(
            done.as_ref().is_ok_and(std::process::ExitStatus::success),
            "{command:?}: {done:?} (build with --no-default-features to omit the BPF programs)"
        );
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|e| panic!("cargo sets {name}: {e}"))
}

/// Debian keeps `asm/types.h` in a folder per architecture that clang does not search when its
/// target is bpf.
fn multiarch_include() -> Option<String> {
    let output = Command::new("cc").arg("-print-multiarch").output().ok()?;
    let asked = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").ok()?;
    [asked, format!("{arch}-linux-gnu")]
        .into_iter()
        .filter(|triple| !triple.is_empty())
        .map(|triple| format!("/usr/include/{triple}"))
        .find(|folder| Path::new(folder).join("asm/types.h").exists())
}
