//! Compares the programs in the kernel with user space: the same frames, the same counts, no silent loss.
#![cfg(feature = "bpf")]

#[macro_use]
mod lab;

mod account;
mod devices;
mod frames;
mod refusals;
mod resizing_device;
