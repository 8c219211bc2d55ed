//! Captures through the public interface of the crate.

mod common;
mod direct;
mod failures;
mod files;
mod rotation;
mod sink;
