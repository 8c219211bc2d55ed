//! Runs through the public face of the crate.

mod ends;
mod frames;
mod threads;
