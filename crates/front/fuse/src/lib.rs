//! A folder of control files: a write is a command, a read returns a state.
//!
//! Knows FUSE and how `procfs` files behave under a shell. The meaning of the files is defined by
//! the implementation of [`ControlFiles`]. Files have size 0 and are read past it. Every `write(2)` is
//! one command, which may fail with an error number or block for any time. A blocked
//! writer is released by Ctrl-C. Shell scripts rely on these rules:
//!
//! - `O_TRUNC`, `O_APPEND` and offsets of writes have no effect, nor has `O_CREAT` on an existing name;
//!   on another name it fails with `ENOENT`.
//! - A read at offset 0 takes a fresh snapshot of the content; the following reads continue in that
//!   snapshot.
//! - While one write blocks, all other operations continue, also on the same name.
//! - An empty write never arrives: the kernel itself answers it with 0.
//! - A write of more than [`MAX_WRITE`] bytes arrives in pieces, each a separate command.

mod error;
mod files;
mod folder;
mod mounted;
mod waiting;

pub use error::MountError;
pub use files::{Answer, ControlFiles, Writer};
pub use mounted::{
    MountOptions, Mounted, dead_folders, is_control_folder, mount, remove_dead, unmount,
};

/// Maximum size of a write that arrives as a whole, in bytes.
pub const MAX_WRITE: u32 = 128 * 1024;

/// The type under which `/proc/self/mountinfo` lists control folders.
pub const KIND: &str = "fuse.wirebench";
