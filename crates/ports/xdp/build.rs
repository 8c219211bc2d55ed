//! Compiles the programs in `bpf/` and generates their skeletons.

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    #[cfg(feature = "bpf")]
    bpf::build();
}

#[cfg(feature = "bpf")]
mod bpf {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    pub(crate) fn build() {
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let mut arguments: Vec<String> = ["-mcpu=v3", "-g", "-O2", "-Wall", "-Werror"]
            .map(String::from)
            .into();
        if let Some(folder) = multiarch_include() {
            arguments.push(format!("-I{folder}"));
        }
        for program in ["select", "consume"] {
            libbpf_cargo::SkeletonBuilder::new()
                .source(format!("bpf/{program}.bpf.c"))
                .clang_args(&arguments)
                .build_and_generate(out.join(format!("{program}.skel.rs")))
                .expect(
                    "clang compiles the programs in bpf/ (build with --no-default-features to go \
                     without)",
                );
        }
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
}
