//! A folder of control files: what is written is a command, what is read is a state.
//!
//! Knows FUSE and how `procfs` files behave under a shell; what the files mean is the business of
//! whoever implements [`ControlFiles`]. Files have size 0 and are read past it, every `write(2)` is
//! one command that may fail with an error number or block for as long as it likes, and a blocked
//! writer is released by Ctrl-C. The rules a shell script relies on:
//!
//! - `O_TRUNC`, `O_APPEND` and offsets of writes mean nothing, nor does `O_CREAT` on a name that
//!   exists; on another one it is `ENOENT`.
//! - A read at offset 0 takes a fresh snapshot of the content; the reads after it go on in that
//!   one.
//! - While one write blocks, everything else goes on, also on the same name.
//! - An empty write never arrives: the kernel answers it itself, with 0.
//! - A write of more than [`MAX_WRITE`] bytes arrives in pieces, each a command of its own.

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

/// The longest write that arrives whole, in bytes.
pub const MAX_WRITE: u32 = 128 * 1024;

/// The type under which `/proc/self/mountinfo` lists control folders.
pub const KIND: &str = "fuse.wirebench";
