//! Tests of the public interface of ports without a kernel.

mod conformance;
mod file;
mod impairer;
mod memory;
