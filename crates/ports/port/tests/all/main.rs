//! Ports without a kernel through the public face of the crate.

mod conformance;
mod file;
mod impairer;
mod memory;
