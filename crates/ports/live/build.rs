//! Compiles the programs in `bpf/`.

#[cfg(feature = "bpf")]
#[path = "../bpf/build.rs"]
mod bpf;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    #[cfg(feature = "bpf")]
    bpf::build();
}
