//! Control folders, mounted.

mod blocking;
mod common;
mod folder;
mod mounting;
mod private;
