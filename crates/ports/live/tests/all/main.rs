//! The programs in the kernel against what user space does: the same frames, the same accounts, nothing lost silently.
#![cfg(feature = "bpf")]

#[macro_use]
mod lab;

mod account;
mod devices;
mod frames;
mod refusals;
mod resizing_device;
