//! Measurements through the public face of the crate.

mod laws;
mod vectors;
