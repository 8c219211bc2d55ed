//! Lets modules of Lua in C, which trusted scripts may load, find the functions of the Lua in this program.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for names in ["lua_*", "luaL_*", "luaJIT_*", "luaopen_*"] {
        println!("cargo::rustc-link-arg-bin=wirebench=-Wl,--export-dynamic-symbol={names}");
    }
}
